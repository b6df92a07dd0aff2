"""Leading eigenpairs of a sparse Markov-like matrix by Lanczos on its shifted inverse.

Where the leading eigenvalues of S crowd towards 1, as those of a kernel of near neighbours do, Lanczos on S takes some
1 / sqrt(1 - xi) products. On ((1 + delta) I - S)^-1 it takes a dozen, at the price of a Cholesky factor. Its size, and
so whether that pays, is known before it is made (`_cholesky`); what Lanczos on S would take is
estimated from Rayleigh quotients.

Reference: Ericsson and Ruhe, The spectral transformation Lanczos method, Math. Comp. 35 (1980).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from randsmap._linalg.lanczos import block_size, leading_eigenpairs
from randsmap._linalg.large_graphs._cholesky import SparseCholesky, step_coordinates

_Values = NDArray[np.float64]
# Nanoseconds, measured with one thread (only their ratios matter)
COST = {
    "product": 1.0,  # with an entry of S, for each vector of Lanczos
    "orthogonalisation": 40,  # of a row, for each vector of Lanczos
    "factorisation": 0.03,  # a multiplication
    "assembly": 15,  # memory moved for an entry of the factor
    "solution": 0.9,  # with an entry of the factor, for each vector
}
# Where the inverse is tried: measured on kernels of two to five parameters, with 2e4 to 2e5 samples
LIMITS = {
    "steps": 5,  # of Lanczos on S, times the root of the gap 1 - xi
    "inverted steps": 12,  # of Lanczos on the inverse
    "dissection": 1000,  # nanoseconds for an entry of S that make it worth while
    "share": 0.7,  # of the time of Lanczos on S that the inverse may take by these estimates
    "entries": 40,  # numbers of the factor for each entry of S
}


def inverted_eigenpairs(S: csr_array, count: int, constraint: _Values) -> tuple[_Values, _Values] | None:
    """As `leading_eigenpairs` for a sparse S, where this is faster than Lanczos on S; otherwise None.

    S (n, n) is symmetric with eigenvalues in (-1, 1], a vertex of a graph in space each row. `constraint` is its unit
    eigenvector to the eigenvalue 1, positive, which is left out.
    """
    # so small a distance from 1 is harmless: the trivial eigenvector, which rounding over it would spoil, is left out
    shift = 1e-8
    n = S.shape[0]
    components = _eigenspace_of_one(S, constraint)
    ones = _other_vectors(components, constraint, count)
    if ones.shape[1] == count:
        return np.ones(count), ones
    # Coordinates tell what Lanczos on S would take, and how to dissect the graph; averages over neighbours part ties
    p = block_size(count)
    coordinates = step_coordinates(S, count=4)
    for _ in range(2):
        coordinates = (S @ (coordinates * constraint[:, None])) / constraint[:, None]
    gap = max(_gap(S, constraint, components, coordinates), 1e-12)
    direct = LIMITS["steps"] / gap**0.5 * p * (COST["product"] * S.nnz + COST["orthogonalisation"] * n)
    if direct < LIMITS["dissection"] * S.nnz:
        return None
    factor = SparseCholesky(S, np.ascontiguousarray(coordinates))
    for_entry = COST["assembly"] + LIMITS["inverted steps"] * p * COST["solution"]
    inverted = COST["factorisation"] * factor.operations + for_entry * factor.entries
    if inverted > LIMITS["share"] * direct or factor.entries > LIMITS["entries"] * S.nnz:
        return None
    A = -S
    A.setdiag(1 + shift - S.diagonal())
    scale = shift + gap  # Lanczos wants a norm of about 1

    def inverse(X):
        return _left(components, factor.solve(_left(components, X))) * scale

    try:
        factor.factor(A)
        # relative to the inverse's norm: eigenvalues next to 1 lie far apart there
        _, U = leading_eigenpairs(inverse, n, count - ones.shape[1], constraint, tolerance=1e-13)
    except np.linalg.LinAlgError:
        return None
    # once more: what is left of other eigenvectors in these is small for the inverse, but not for S
    U = np.hstack([ones, np.linalg.qr(inverse(U))[0]])
    SU = S @ U
    eigenvalues = np.einsum("ij,ij->j", U, SU)
    if np.linalg.norm(SU - U * eigenvalues, axis=0).max() > 1e-12:
        return None
    return eigenvalues, U


def _eigenspace_of_one(S, constraint):
    """Orthonormal columns, sparse: of each component of the graph, what the constraint is on it.

    They are known to round-off, so that eigenvalues next to 1 need not be told from 1.
    """
    number, label = connected_components(S, directed=False)
    lengths = np.sqrt(np.bincount(label, constraint**2))
    return csr_array((constraint / lengths[label], label, np.arange(len(label) + 1)), shape=(len(label), number))


def _other_vectors(components, constraint, count):
    """At most `count` orthonormal vectors of that space that are orthogonal to the constraint: columns of the
    reflection that takes it to the first component."""
    w = components.T @ constraint  # of length 1
    w[0] += 1
    w /= np.linalg.norm(w)
    k = min(count, len(w) - 1)
    return components @ (np.eye(len(w), k, -1) - 2 * np.outer(w, w[1 : k + 1]))


def _left(components, X):
    """X (n, p) without its part in the eigenspace."""
    return X - components @ (components.T @ X)


def _gap(S, constraint, components, coordinates):
    """An upper bound of 1 - xi: the least Rayleigh quotient of I - S among linear functions of the coordinates."""
    trial = _left(components, (coordinates - constraint**2 @ coordinates) * constraint[:, None])
    Q, R = np.linalg.qr(trial)
    kept = abs(np.diag(R)) > 1e-10 * abs(np.diag(R)).max()
    if not kept.any():
        return 1.0
    Q = Q[:, kept]
    return float(1 - eigh(Q.T @ (S @ Q), eigvals_only=True)[-1])
