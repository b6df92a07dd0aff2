"""Eigenvalues of symmetric matrices by divide and conquer."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["symmetric_eigen"]


def symmetric_eigen(
    A: NDArray[np.float64], *, lower: bool = True, overwrite: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues (n,), ascending, and eigenvectors (n, n) of the symmetric matrix of which A has a triangle.

    SciPy's default, "evr", loses orthogonality where eigenvalues lie close together; "evd" does not, but SciPy 1.13 has
    too little memory for it where n is 1.
    """
    driver: Any = "evd" if len(A) > 1 else None
    return scipy.linalg.eigh(A, lower=lower, overwrite_a=overwrite, check_finite=False, driver=driver)
