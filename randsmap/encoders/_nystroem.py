"""Derivatives of the Nystroem extension of diffusion maps with respect to the field.

The coordinates of a field x are y_p = sum_j P_j c_pj with the transition probabilities P_j(x) ~
q_j^-alpha exp(-|x - f_j|^2 / epsilon^2) to the training fields f_j (paper, App. C, last paragraph; the
density of x itself cancels). Since sum P = 1::

    dy_p/dx = (2 / epsilon^2) sum_j w_pj f_j,  w_pj = P_j (c_pj - y_p),

a covariance under P: sum_j w_pj = 0, so that the fields may all be taken from a point amid them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["jacobian", "jvp", "vjp"]


def jacobian(
    P: NDArray[np.float64], values: NDArray[np.float64], rows: NDArray[np.float64], epsilon: float
) -> NDArray[np.float64]:
    """dy/dx (L, d, M) at L fields with transition probabilities P (L, n).

    values are c (d, n), rows the centred training fields (n, M).
    """
    (L, n), d = P.shape, len(values)
    J = _moments(values, P[:, None, :]).reshape(L * d, n) @ rows
    return J.reshape(L, d, rows.shape[1]) * (2 / epsilon / epsilon)


def jvp(
    V: NDArray[np.float64],
    P: NDArray[np.float64],
    values: NDArray[np.float64],
    rows: NDArray[np.float64],
    epsilon: float,
) -> NDArray[np.float64]:
    """dy/dx v (L, d) for V (L, M), without forming dy/dx."""
    return _moments(V @ rows.T, P) @ values.T * (2 / epsilon / epsilon)


def vjp(
    U: NDArray[np.float64],
    P: NDArray[np.float64],
    values: NDArray[np.float64],
    rows: NDArray[np.float64],
    epsilon: float,
) -> NDArray[np.float64]:
    """u dy/dx (L, M) for U (L, d), without forming dy/dx."""
    return _moments(U @ values, P) @ rows * (2 / epsilon / epsilon)


def _moments(c, P):
    """P (c - sum P c) over the last axis, of sum 0 to round-off of its own size."""
    w = c - (P * c).sum(axis=-1, keepdims=True)
    w *= P
    w -= P * w.sum(axis=-1, keepdims=True)
    return w
