"""Data sets of the paper's studies and the solvers that make them."""

from randsmap.datasets._eikonal import solve_eikonal
from randsmap.datasets._hughes import HughesSolver, make_hughes
from randsmap.datasets._lwr import LWRSolver, make_lwr

__all__ = ["HughesSolver", "LWRSolver", "make_hughes", "make_lwr", "solve_eikonal"]
