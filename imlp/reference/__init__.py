"""The reference backend: NumPy and SciPy only, float64, one formula a file, in the paper's notation.

Made to be read and to be trusted. `imlp.accel` has the same files and the same functions, and is tested against it.
"""

from imlp.reference.verbs import apply, expand_bias, interpolate, matrix, project, to_numpy

__all__ = ["apply", "expand_bias", "interpolate", "matrix", "project", "to_numpy"]
