"""Dense products and eigenvalues by SciPy's BLAS and LAPACK, those of the kernels.

NumPy's own BLAS would leave its workers spinning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from randsmap._kernels import ridge as _kernel


def multiply(
    A: NDArray[np.float64], B: NDArray[np.float64], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """A B for a C-contiguous A; B may be the transpose of one, and is not copied then."""
    if out is None:
        out = np.empty((len(A), B.shape[1]))
    if B.flags.f_contiguous and not B.flags.c_contiguous:
        dgemm(1.0, B, A.T, trans_a=1, c=out.T, overwrite_c=1)
    else:
        dgemm(1.0, B.T, A.T, c=out.T, overwrite_c=1)
    return out


def cross(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """A^T B."""
    out = np.empty((A.shape[1], B.shape[1]))
    _kernel.cross(A, B, False, out)
    return out


def symmetric_eigen(
    A: NDArray[np.float64], *, lower: bool = True, overwrite: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues (n,), ascending, and eigenvectors (n, n) of the symmetric matrix of which A has a triangle.

    SciPy's default, "evr", loses orthogonality where eigenvalues lie close together; "evd" does not, but SciPy 1.13 has
    too little memory for it where n is 1.
    """
    driver: Any = "evd" if len(A) > 1 else None
    return scipy.linalg.eigh(A, lower=lower, overwrite_a=overwrite, check_finite=False, driver=driver)
