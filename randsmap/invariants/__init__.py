"""Exact affine invariants: decoded fields that satisfy C^T f = m at every latent point, and bounds.

Notation as in the package's documentation: fields are rows, F is (n, M); C is (M, q), one invariant
a column (ones for mass, cell volumes on a mesh); J0 are the cells that never change in the training
data, S the others; V is the diagonal matrix of cell weights.
"""

from randsmap.invariants._active_bounds import ActiveBounds
from randsmap.invariants._affine import AffineInvariants, invariant_values
from randsmap.invariants._bounds import project_bounds
from randsmap.invariants._parameters import InvariantParameters, document_invariants
from randsmap.invariants._running import RunningInvariants, constant_cells

__all__ = [
    "ActiveBounds",
    "AffineInvariants",
    "InvariantParameters",
    "RunningInvariants",
    "constant_cells",
    "document_invariants",
    "invariant_values",
    "project_bounds",
]
