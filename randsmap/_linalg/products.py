"""Dense products and eigenvalues by SciPy's BLAS and LAPACK: NumPy's own would leave its workers spinning."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from randsmap._kernels import ridge as _kernel

_Values = NDArray[np.float64]


def multiply(A: _Values, B: _Values, out: _Values | None = None, *, add: bool = False) -> _Values:
    """A B for a C-contiguous A; B may be the transpose of one, and is not copied then. `add`: out + A B, in `out`."""
    out = np.empty((len(A), B.shape[1])) if out is None else out
    transposed = B.flags.f_contiguous and not B.flags.c_contiguous
    found = dgemm(1.0, B if transposed else B.T, A.T, float(add), out.T, trans_a=transposed, overwrite_c=1)
    if not out.flags.c_contiguous:  # SciPy has made a copy
        out[...] = found.T
    return out


def cross(A: _Values, B: _Values) -> _Values:
    """A^T B."""
    out = np.empty((A.shape[1], B.shape[1]))
    _kernel.cross(A, B, False, out)
    return out


def symmetric_eigen(A: _Values, *, lower: bool = True, overwrite: bool = False) -> tuple[_Values, _Values]:
    """Eigenvalues (n,), ascending, and eigenvectors (n, n) of the symmetric matrix of which A has a triangle. SciPy's
    default, "evr", loses orthogonality where eigenvalues lie close together; "evd" does not, but SciPy 1.13 has too
    little memory for it where n is 1."""
    driver: Any = "evd" if len(A) > 1 else None
    return scipy.linalg.eigh(A, lower=lower, overwrite_a=overwrite, check_finite=False, driver=driver)


def remove_span(Q: _Values, B: _Values) -> None:
    """B (n, m), C-contiguous, becomes J B, J = I - Q Q^T for orthonormal columns Q (n, r)."""
    for _ in range(2 if Q.size and B.size else 0):  # twice, for the round-off of the first subtraction
        dgemm(-1.0, cross(Q, B).T, Q.T, beta=1.0, c=B.T, overwrite_c=True)


def without_span(Q: _Values, K: _Values) -> _Values:
    """J K J of a symmetric K, a new array: K - Q R^T - R Q^T, R = K Q - Q (Q^T K Q) / 2."""
    inner = K.copy()
    if Q.size:
        R = K @ Q
        R -= Q @ (0.5 * (Q.T @ R))
        left, right = np.hstack([Q, R]), np.hstack([R, Q])
        dgemm(-1.0, right.T, left.T, trans_a=True, beta=1.0, c=inner.T, overwrite_c=True)
    return inner
