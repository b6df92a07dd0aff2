"""Data sets of the paper's studies and the solvers that make them."""

from randsmap.datasets._eikonal import solve_eikonal
from randsmap.datasets._hughes import HughesSolver, make_hughes

__all__ = ["HughesSolver", "make_hughes", "solve_eikonal"]
