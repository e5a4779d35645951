"""Any PyTorch model as a prior: its dense form, and the knob between the two, in a training loop of your own.

`densify` makes a copy of a module in which each structured layer is a `Dense` one; `Interpolation` moves those towards
the layers of the original, as one steps a learning-rate scheduler. Needs torch.
"""

from imlp import accel  # where torch is missing, this says how to install it
from imlp.nn.branches import Branches, couple, decay_groups
from imlp.nn.choice import RefusedError
from imlp.nn.compare import Table, bias_meter, project_, shift_meter, verify
from imlp.nn.dense import Dense
from imlp.nn.densify import TooLargeError, densify, matrix, size_table
from imlp.nn.find import Found, Plan, find
from imlp.nn.interpolation import Interpolation, interpolate_, relax_
from imlp.nn.line import align_, line
