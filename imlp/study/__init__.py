"""Many runs: sweeps and searches, on this machine or on a Ray cluster, and their results.

`sweep` and `search` do what the commands of the same names do, without a console.
"""

from imlp.study.optuna_search import search
from imlp.study.run_sweep import sweep

__all__ = ["search", "sweep"]
