"""Exact affine invariants: decoded fields that satisfy C^T f = m at every latent point, and bounds.

Notation as in the package's documentation: fields are rows, F is (n, M); C is (M, q), one invariant
a column (ones for mass, cell volumes on a mesh); J0 are the cells that never change in the training
data, S the others; V is the diagonal matrix of cell weights.
"""

# other parts of the package import these names from here; users need `project_bounds`
from randsmap._interface.callers import public
from randsmap.invariants._affine import AffineInvariants as AffineInvariants
from randsmap.invariants._affine import kept_in_words as kept_in_words
from randsmap.invariants._affine import project_bounds
from randsmap.invariants._bounds import decoding_part as decoding_part
from randsmap.invariants._bounds import invariant_values as invariant_values
from randsmap.invariants._bounds import own_values as own_values
from randsmap.invariants._bounds import round_off as round_off
from randsmap.invariants._bounds import values_of_rows as values_of_rows
from randsmap.invariants._fitting import InvariantParameters as InvariantParameters
from randsmap.invariants._fitting import RunningInvariants as RunningInvariants
from randsmap.invariants._fitting import common_values as common_values
from randsmap.invariants._fitting import fit_estimator as fit_estimator
from randsmap.invariants._fitting import norm_weights as norm_weights

__all__ = ["project_bounds"]
public(globals())
