"""Leading eigenpairs of a large symmetric matrix: block Lanczos with full orthogonalisation.

`svd` says how this search for leading modes differs from the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_Values = NDArray[np.float64]
# The basis is compressed when it has this many vectors
BASIS = 80


def leading_eigenpairs(
    product: Callable[[_Values], _Values], n: int, count: int, constraint: _Values, tolerance: float = 4e-15
) -> tuple[_Values, _Values]:
    """The `count` <= n / 8 largest eigenvalues of a symmetric matrix S (n, n) of norm about 1, in descending order, and
    orthonormal eigenvectors (n, count).

    ``product(X)`` is S X for X (n, p) in Fortran's order, p even; `constraint` is a unit eigenvector that is left out.
    A pair has converged when |S u - theta u| <= tolerance, by default some 20 eps; a LinAlgError if that takes too
    long. References: Golub and Underwood, The block Lanczos method, 1977; Wu and Simon, Thick-restart Lanczos method,
    SIAM J. Matrix Anal. Appl. 22 (2000).
    """
    # A block finds an eigenvalue as many times as it has vectors, where a single vector would miss repetitions (the
    # circle has every eigenvalue twice), and one pass over a matrix that is larger than the caches serves the block.
    p = block_size(count)
    most = min(max(BASIS, 3 * count + 4 * p), n - 1 - p)
    # Column 0 is the constraint. `projected` is basis^T S basis, without the constraint.
    basis = np.empty((n, 1 + most + p), order="F")
    projected = np.zeros((most + p, most + p))
    basis[:, 0] = constraint
    # fixed, so that a second call gives the same bits, and without symmetry
    start = np.asfortranarray(np.random.default_rng(0).standard_normal((n, p)))
    block, _ = _orthonormalised(start, basis[:, :1], basis[:, :1].T @ start)
    done, next_check, compressions = 0, p, 0
    while True:
        basis[:, 1 + done : 1 + done + p] = block
        W = product(block)
        known = basis[:, : 1 + done + p]
        coefficients = known.T @ W
        block, remainder = _orthonormalised(W, known, coefficients)
        coefficients = coefficients[1:]
        projected[: done + p, done : done + p] = coefficients
        projected[done : done + p, :done] = coefficients[:done].T
        done += p

        full = done + p > most
        if done < next_check and not full:
            continue
        next_check = 1.1 * done  # the small problem is not free
        H = projected[:done, :done]
        eigenvalues, Y = np.linalg.eigh((H + H.T) / 2)
        eigenvalues, Y = eigenvalues[::-1], Y[:, ::-1]
        if done >= count:
            residual = np.linalg.norm(remainder @ Y[done - p :, :count], axis=0).max()
            if residual <= tolerance:
                return eigenvalues[:count], basis[:, 1 : 1 + done] @ Y[:, :count]
        if full:
            if compressions == 2000:  # ends a search that round-off would keep from ever converging
                raise np.linalg.LinAlgError(
                    f"the {count} leading eigenvectors did not converge (residual {residual:.1e}): "
                    "their eigenvalues are too close to one another"
                )
            # thick restart: the best part of the basis
            compressions += 1
            kept = count + (done - count) // 3 // p * p
            basis[:, 1 : 1 + kept] = basis[:, 1 : 1 + done] @ Y[:, :kept]
            projected[:] = 0
            projected[np.arange(kept), np.arange(kept)] = eigenvalues[:kept]
            done, next_check = kept, kept + p


def block_size(count: int) -> int:
    """Vectors of a block, for `count` eigenpairs: an even number from 4 to 8."""
    # two more than wanted: the last eigenpairs of a block converge slowest
    return min(max(2 * ((count + 1) // 2) + 2, 4), 8)


def _orthonormalised(W, basis, coefficients):
    """Orthonormal columns Q and the square R of W = Q R + basis coefficients, these being basis^T W."""
    # normalising what is left of W brings its errors in the span of the basis out: Q is projected again
    Q, R = np.linalg.qr(W - basis @ coefficients)
    Q -= basis @ (basis.T @ Q)
    Q, more = np.linalg.qr(Q)
    return np.asfortranarray(Q), more @ R
