"""Data sets of the paper's studies and the solvers that make them."""

from randsmap.datasets._lwr import LWRSolver, make_lwr

__all__ = ["LWRSolver", "make_lwr"]
