"""What the paper says and how its experiments are run: their files, the paper's numbers, its claims and their verdicts.

`imlp.paper.reproduce` does what the command of that name does, without a console.
"""

from imlp.paper.run_experiment import reproduce

__all__ = ["reproduce"]
