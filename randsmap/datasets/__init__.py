"""Data sets of the paper's studies and the solvers that make them."""

from randsmap._interface.callers import public
from randsmap.datasets._hughes import HughesSolver, make_hughes, solve_eikonal
from randsmap.datasets._images import (
    head_phantom,
    load_image,
    make_rotated_images,
    warn_unless_covered_once,
    winding_number,
)
from randsmap.datasets._lwr import LWRSolver, make_lwr
from randsmap.datasets._manifolds import make_s_curve, make_swiss_roll

__all__ = [
    "HughesSolver",
    "LWRSolver",
    "head_phantom",
    "load_image",
    "make_hughes",
    "make_lwr",
    "make_rotated_images",
    "make_s_curve",
    "make_swiss_roll",
    "solve_eikonal",
    "warn_unless_covered_once",
    "winding_number",
]
public(globals())
