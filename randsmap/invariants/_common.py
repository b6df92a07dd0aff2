"""The mass that all training fields have in common, if there is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from randsmap._linalg.rows import Rows
from randsmap.invariants._affine import AffineInvariants
from randsmap.invariants._given import Invariants
from randsmap.invariants._running import fit_invariants

__all__ = ["common_mass"]


def common_mass(
    F: NDArray[np.float64] | Rows, *, cell_weights: ArrayLike | None = None, dtype: DTypeLike = np.float64
) -> tuple[float | None, str]:
    """The mass (weighted sum of the cells) of all fields, or None and the reason why it is not one number.

    Parameters
    ----------
    F : ndarray (n, M) or Rows
        Checked fields.
    cell_weights : array (M,) or None
    dtype : dtype
        Number type that the fields came in, which decides about the tolerance.

    Raises
    ------
    ValueError
        If something other than the mass is wrong, such as a value that is not finite.
    """

    def fit(invariants: str | None) -> AffineInvariants:
        return fit_invariants(F, Invariants.of(F.shape[1], invariants=invariants, cell_weights=cell_weights), dtype)

    try:
        return float(fit("mass").values[0]), ""
    except ValueError as error:
        fit(None)  # raises if it was something else
        return None, str(error)
