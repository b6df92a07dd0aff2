"""Exact affine invariants: decoded fields that satisfy C^T f = m at every latent point, and bounds.

Notation as in the package's documentation: fields are rows, F is (n, M); C is (M, q), one invariant
a column (ones for mass, cell volumes on a mesh); J0 are the cells that never change in the training
data, S the others; V is the diagonal matrix of cell weights.
"""

# what other parts of the package take from here is imported under its own name; users need the last
from randsmap.invariants._affine import AffineInvariants as AffineInvariants
from randsmap.invariants._affine import invariant_values as invariant_values
from randsmap.invariants._bounds import project_bounds
from randsmap.invariants._parameters import InvariantParameters as InvariantParameters
from randsmap.invariants._parameters import document_invariants as document_invariants
from randsmap.invariants._running import RunningInvariants as RunningInvariants
from randsmap.invariants._running import constant_cells as constant_cells

__all__ = ["project_bounds"]
