"""Leading modes: truncated singular value decompositions of `Rows`, and of kernels by a pivoted Cholesky factorisation.

Modes are rows: a matrix (k, M) of orthonormal rows needs no copy for LAPACK. Four searches, none of which can stand in
for another:

- `truncated_svd`, for singular vectors as accurate as they are determined. Lanczos on G G^T squares the singular
  values: one of 1e-6 of the largest is wrong by 2e-7 (3e-12 here), one of 1e-9 altogether.
- `range_finder`, for a space that holds nearly all of the rows, in three passes over them; where an accuracy is asked
  for, `field_modes` and `low_rank` hold each row to it.
- `pivoted_cholesky`, for all eigenvectors above round-off of a kernel: it reads no more columns than these.
- `leading_eigenpairs`, for a few eigenvalues that lie close together, of a matrix known by its products. Block
  iteration takes 35 times as many products for two coordinates of a Swiss roll (n = 1500).

`FactoredRows` and `ReflectedRows` are fields by their coordinates in an orthonormal basis, which keep distances.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from randsmap._linalg.products import multiply, remove_span, symmetric_eigen, without_span
from randsmap._linalg.rows import BLOCK, Rows, spread_rows
from randsmap._linalg.scales import error_scales, in_norm
from randsmap._parallel import blas_threads

_EPS = np.finfo(float).eps
_Values = NDArray[np.float64]


# -- Orthonormal bases -----------------------------------------------------------------------------
def tall_qr(A: _Values) -> tuple[_Values, _Values]:
    """Q (p, min(p, k)) and R of a tall matrix, which is overwritten."""
    # many small BLAS calls: threads would only wait for one another
    with blas_threads(1 if A.shape[1] < 512 else None):
        Q, R = scipy.linalg.qr(A, mode="economic", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(Q), R


def orthonormalize_rows_against(new: _Values, old: _Values) -> _Values:
    """Orthonormal rows that span the rows `new` (k, P), k <= P, next to the orthonormal ones of `old`, in their order.
    `new` is overwritten. By Householder reflections, twice with `old`: once leaves the round-off of the subtraction."""
    k = len(new)
    for _ in range(2 if len(old) else 1):
        if len(old):
            new -= multiply(multiply(new, old.T), old)
        factors, blocks, _ = lapack.dgeqrt(min(32, k), new.T, overwrite_a=1)
        columns = np.eye(new.shape[1], k, order="F")
        new = lapack.dgemqrt(factors, blocks, columns, overwrite_c=1)[0].T
    return new


# -- Singular value decompositions -----------------------------------------------------------------
# Up to this many rows a triangle, made in one pass over a file, is faster than iterations that read it again
_TRIANGLE = 2048


def truncated_svd(rows: Rows, count: Callable[..., int], few: int | None = None) -> tuple[_Values, _Values, float]:
    """Singular values of G (n, M), its leading k = count(sigma, n, M) right singular vectors (k, M), and the energy
    |G|_F^2 / sigma_1^2. If no more than `few` are wanted, and these are few, block iteration finds only them, as
    accurately, in less time."""
    # A QR factorisation of the longer side, a block at a time, then the singular value decomposition of the triangle
    # (T. F. Chan, 1982): backward stable. A wide G is read again for the vectors sigma V = G^T U.
    n, M = rows.shape
    rows = rows if rows.mapped else Rows(rows.whole())
    if few is not None and not (rows.mapped and min(n, M) <= _TRIANGLE):
        found = _by_block_iteration(rows, few)
        if found is not None:
            sigma, modes, energy = found
            return sigma, modes[: count(sigma, n, M)], energy
    if n >= M:
        R = triangle((block for _, _, block in rows.blocks(max(2048, 2 * M))), M)
        _, sigma, Vt = scipy.linalg.svd(R, check_finite=False)
        modes = Vt[: count(sigma, n, M)]
    else:
        size = max(2048, 2 * n, BLOCK // n)
        R = triangle((rows.columns(a, min(a + size, M)).T for a in range(0, M, size)), n)
        _, sigma, Ut = scipy.linalg.svd(R, check_finite=False)
        k = count(sigma, n, M)
        modes = np.empty((k, M))
        if k:  # sigma V, orthogonal to eps sigma_1 / sigma alone; their lengths do not matter to the factorisation
            modes = np.ascontiguousarray(rows.transposed_times(np.ascontiguousarray(Ut[:k].T)).T)
            modes = orthonormalize_rows_against(modes, modes[:0])
    return sigma, modes, np.sum((sigma / (sigma[0] or 1.0)) ** 2)


def triangle(blocks: Iterable[_Values], M: int) -> _Values:
    """R (min(n, M), M) of a QR factorisation of the rows in these blocks."""
    R = np.empty((0, M))
    for block in blocks:
        stack = np.empty((len(R) + len(block), M), order="F")  # as LAPACK has it, which then needs no copy
        stack[: len(R)], stack[len(R) :] = R, block
        del block
        R = scipy.linalg.qr(stack, mode="raw", overwrite_a=True, check_finite=False)[1]
    return R


def _by_block_iteration(rows, k):
    """The k leading ones of `truncated_svd`; None if they are many, or that takes too long."""
    # Block power iteration with orthonormalisation on each side (Halko, Martinsson and Tropp 2011, Alg. 4.4). It ends
    # when |G v - s u| = 0 and |G^T u - s v| <= 1e-14 |G|_2 for each pair, as good as a backward stable decomposition. A
    # step gains a factor (sigma_b / sigma_k)^2, b being the size of the block; less than a digit in ten is given up.
    size = k + max(k, 16)
    norm = 0.0 if 8 * size > min(rows.shape) else math.hypot(*(np.linalg.norm(block) for *_, block in rows.blocks()))
    if norm == 0:
        return None
    Q = np.random.default_rng(0).standard_normal((len(rows), size))
    before, U, sigma, V = np.inf, None, None, None
    for step in itertools.count():
        B = rows.transposed_times(Q).T
        if step:
            error = np.linalg.norm(multiply(U.T, B) - V * sigma[:, None], axis=1).max()
            if error <= 1e-14 * sigma[0]:
                return sigma, V, (norm / sigma[0]) ** 2
            if step % 10 == 0 and error > 0.1 * before:
                return None
            before = before if step % 10 else error
        W = orthonormalize_rows_against(B, B[:0])
        Q, R = tall_qr(rows.times(W.T))
        U, sigma, Vt = scipy.linalg.svd(R, check_finite=False)
        U, sigma, V = U[:, :k], sigma[:k], multiply(Vt[:k], W)


def principal_coordinates(F: _Values | Rows, weights: _Values | None = None) -> tuple[_Values, _Values, _Values]:
    """Mean (M,), coordinates G (n, r) and rows B (r, M), orthonormal in the cell weights (None: ones): F = mean + G B,
    directions of round-off dropped. Distances between coordinates are those between fields in the weighted norm."""
    mean: Any = (F if isinstance(F, Rows) else Rows(F)).centred().mean
    root = None if weights is None else np.sqrt(weights)
    centred = (F if isinstance(F, Rows) else Rows(F)).less(mean, scale=root)
    size = np.abs(in_norm(mean, weights)).max()

    def count(sigma: _Values, n: int, M: int) -> int:
        return max(1, int(np.count_nonzero(sigma > max(n, M) * _EPS * max(sigma[0], size))))

    with blas_threads():
        modes = np.ascontiguousarray(truncated_svd(centred, count)[1])
        return mean, centred.times(modes.T), modes if root is None else modes / root


def sketched(F: _Values | Rows, weights: _Values | None = None) -> _Values:
    """Fields F (n, M) as (n, k), k <= 128, numbers, with about their distances in the norm of the cells' weights. Up to
    128 cells are as they are, of others 64 random combinations, which keep lengths to 1 / sqrt(2 * 64) = 9 %. Of more
    than 512 cells as many are drawn, by weight and, as much, by their share of the variance over some rows."""
    most, size = 512, 64
    if F.shape[1] <= 2 * size:
        return np.array(in_norm(F[:], weights), order="C")
    rows, rng, cells = F if isinstance(F, Rows) else Rows(F), np.random.default_rng(0), np.arange(F.shape[1])
    combinations: Any = np.ones(len(cells)) if weights is None else np.sqrt(weights)
    if len(cells) > most:
        some = rows[spread_rows(len(rows), 32)]
        some -= some.mean(axis=0)  # a copy of its own
        volume = np.square(combinations) / np.square(combinations).sum()
        energy = volume * np.einsum("ij,ij->j", some, some)
        share = volume + energy / (energy.sum() or 1.0)
        drawn = (np.arange(most) + rng.uniform(size=most)) / most * share.sum()
        cells = np.minimum(np.searchsorted(np.cumsum(share), drawn), len(cells) - 1)
        combinations = combinations[cells] * np.sqrt(share.sum() / (most * share[cells]))
    signs = rng.integers(0, 2, (len(cells), size), np.int8) * (2 / np.sqrt(size)) - 1 / np.sqrt(size)
    signs *= combinations[:, None]
    with blas_threads():
        used: Any = cells if len(cells) < F.shape[1] else slice(None)
        return np.concatenate([multiply(np.ascontiguousarray(block[:, used]), signs) for _, _, block in rows.blocks()])


# -- Approximate spaces ----------------------------------------------------------------------------
def range_finder(rows: Rows, size: int) -> _Values:
    """Orthonormal rows (size, M) whose span holds nearly all of G (n, M), by one step of power iteration."""
    B = rows.transposed_times(np.random.default_rng(0).standard_normal((len(rows), size))).T
    Q, _ = tall_qr(rows.times(orthonormalize_rows_against(B, B[:0]).T))
    B = rows.transposed_times(Q).T
    return orthonormalize_rows_against(B, B[:0])


@blas_threads()
def low_rank(F: _Values, tolerance: float, most: int | None = None) -> tuple[_Values, _Values | None]:
    """B (n, k) and V^T (k, M) with |F - B V^T| <= tolerance (Frobenius), k least; V orthonormal. (F, None) if that does
    not halve the columns, or a space of 4 `most` dimensions is not enough."""
    n, M = F.shape
    if M < 16 or not F.any():
        return F, None
    basis, B, rest = None, F, 0.0
    if M > 1024:  # fewer columns are decomposed directly
        # half of the tolerance is left for the part of the rows outside the first space
        rest, largest = tolerance / 2, min(n, M, np.inf if most is None else 8 * most) // 2
        found, r = _representing(Rows(F), rest / math.sqrt(n), np.ones(n), most=largest)
        if r > largest:
            return F, None
        basis = found[1 : r + 1]
        B = multiply(F, basis.T)
    Vt = np.ascontiguousarray(truncated_svd(Rows(B), _until(tolerance, rest))[1])
    if 2 * len(Vt) > M:
        return F, None
    if basis is not None:
        Vt = multiply(Vt, basis)
    return multiply(F, Vt.T), Vt


def _until(tolerance, rest=0.0):
    """Number of modes, from singular values, that leave no more than `tolerance`, if other modes leave `rest`."""

    def count(sigma, *_):
        tails = np.append(np.sqrt(np.cumsum(sigma[::-1] ** 2))[::-1], 0.0)
        return max(1, int(np.argmax(np.hypot(tails, rest) <= tolerance)))

    return count


def sufficient_rank(coordinates: _Values, allowed: _Values, rest: _Values | float = 0.0) -> int | None:
    """The least r such that the columns of `coordinates` (n, m) from r on are at most `allowed` (n,) in each row.
    `rest`: what the rows have outside all coordinates, to which these add at right angles. None: not even m do."""
    tails = np.zeros((len(coordinates), coordinates.shape[1] + 1))
    tails[:, :-1] = np.cumsum(coordinates[:, ::-1] ** 2, axis=1)[:, ::-1]
    enough = (np.hypot(np.sqrt(tails), np.reshape(rest, (-1, 1))) <= allowed[:, None]).all(axis=0)
    return int(np.argmax(enough)) if enough.any() else None


# Numbers of a block of fields (128 MB)
_ENTRIES = 1 << 24


def field_modes(
    F: Rows,
    rank: int | float,
    norms: _Values,
    *,
    corrected: Callable[[_Values], Any] | None = None,
    normals: _Values | None = None,
    constant: NDArray[np.bool_] | None = None,
    weights: _Values | None = None,
) -> tuple[_Values, _Values]:
    """Mean and modes U of fields F (n, M), f = mean + U g: [mean; U^T] (r+1, M) and the coordinates g (n, r).

    A count as `rank` is met by `range_finder`. A float asks for as few modes as represent each field with a relative L2
    error of at most that: the leading ones of all coordinates in modes that each block of fields adds to. Half of the
    tolerance is a reserve for the regression.

    norms : L2 norms of the fields (n,)
    corrected : projects a mean (1, M) in place on the fields' invariants
    normals : orthonormal rows (q, M), 0 on the constant cells, to which all modes are orthogonal
    constant : cells (M,) that no mode moves
    weights : of the cells (M,) in all norms; `normals` and modes times their square roots are orthonormal
    """
    n, M = F.shape
    size = max(1, min(n, _ENTRIES // M))
    mean: Any = F.centred(size).mean
    if corrected is not None:
        corrected(mean[None])
    root = None if weights is None else np.sqrt(weights)
    moving: Any = root if constant is None else np.where(constant, 0.0, 1.0 if root is None else root)
    rows = F.less(mean, scale=moving, normals=normals)
    largest = min(n, M)
    with blas_threads():
        if isinstance(rank, int):
            modes, rest = range_finder(rows, min(largest, rank + max(rank // 2, 16))), None
            found = np.empty((len(modes) + 1, M))
            found[1:], r = modes, len(modes)
            del modes
        else:
            sizes = error_scales(norms)
            found, r = _representing(rows, rank / 4, sizes, normals, constant, size)
            rest = rank / 4 * sizes
        found[0] = mean
        if constant is not None:
            found[1 : r + 1, constant] = 0
        U, sigma, Qt = scipy.linalg.svd(rows.times(found[1 : r + 1].T), full_matrices=False, check_finite=False)
        G = U * sigma
        most = int(np.count_nonzero(sigma > max(G.shape) * _EPS * sigma[:1].max(initial=0)))
        wanted = rank if rest is None else sufficient_rank(G, 2 * rest, rest)
        k = max(1, min(most if wanted is None else int(wanted), most))
        Qt, width = np.ascontiguousarray(Qt[:k]) * (most > 0), 1 << 14  # cells rotated at a time: a few MB
        for start in range(0, M, width):
            part = np.ascontiguousarray(found[1 : r + 1, start : start + width])
            found[1 : k + 1, start : start + width] = multiply(Qt, part)
    if root is not None:
        found[1 : k + 1] /= root
    found.resize((k + 1, M), refcheck=False)  # no copy: the memory behind is given back
    return found, np.ascontiguousarray(G[:, :k])


def _representing(rows, allowed, sizes, normals=None, constant=None, size=256, most=math.inf):
    """A row for the mean and r modes that miss at most a part `allowed` of the sizes of the rows, and r; it ends where
    that needs more than `most`."""
    # rows that are not used take no memory
    found, r = np.empty((min(rows.shape) + 1, rows.width)), 0
    found[1] = 0  # one of zeros where all fields are equal
    for start, stop, X in rows.blocks(min(size, 256), "modes"):
        X = X / sizes[start:stop, None]  # a block may be the array itself
        modes = found[1 : r + 1]
        if r:
            X -= multiply(multiply(X, modes.T), modes)
        missing = np.linalg.norm(X, axis=1) > allowed
        if not missing.any() or r + 1 == len(found):
            continue
        new = truncated_svd(Rows(X[missing]), _until(allowed))[1][: len(found) - 1 - r]
        # small values are differences of large numbers
        new = np.ascontiguousarray(new)
        if constant is not None:
            new[:, constant] = 0
        if normals is not None and len(normals):
            new -= multiply(multiply(new, normals.T), normals)
        found[r + 1 : r + 1 + len(new)] = orthonormalize_rows_against(new, modes)
        r += len(new)
        if r > most:
            break
    return found, max(r, 1)


# -- Kernels ---------------------------------------------------------------------------------------
def pivoted_cholesky(K: _Values, Q: _Values | None = None) -> tuple[_Values, _Values]:
    """Eigenvalues (descending) and orthonormal eigenvectors of a kernel matrix K, to round-off. With orthonormal
    columns Q, of J K J, J = I - Q Q^T. Reference: H. Harbrecht, M. Peters and R. Schneider, On the low-rank
    approximation by the pivoted Cholesky decomposition, Appl. Numer. Math. 62 (2012)."""
    # Smooth kernels have few eigenvalues above round-off. K = L L^T + E with |E| <= n eps max diag finds them by s
    # columns, in O(n^2 s), and the singular values of L are the roots of the eigenvalues, without the squaring.
    n = len(K)
    # products of narrow blocks: more threads gain little, and lose on a busy machine
    with blas_threads(1):
        L, pivots, s, _ = lapack.dpstrf(K.T, tol=4 * _EPS * K.diagonal().max(), lower=1)
    if 2 * s > n:
        K = K if Q is None else without_span(Q, K)
        with blas_threads():
            eigenvalues, V = symmetric_eigen(K)
        return eigenvalues[::-1], V[:, ::-1]
    with blas_threads(1):
        rows = np.empty((n, s))
        rows[pivots - 1] = np.tril(L[:, :s])
        if Q is not None:
            remove_span(Q, rows)
        if not s:  # SciPy 1.13 refuses a matrix without columns
            return np.zeros(0), rows
        V, sigma, _ = scipy.linalg.svd(rows, full_matrices=False, overwrite_a=True, check_finite=False)
    return sigma**2, V


def nystroem(sketch: _Values, image: _Values) -> tuple[_Values, _Values]:
    """Modes U (p, l) and eigenvalues (l,) of G W (W^T G W)^-1 (G W)^T for W^T = `sketch`, G W = `image`: never above G.
    The shift keeps it computable where G is singular (Frangella, Tropp and Udell 2023, Algorithm 2.1)."""
    shift = np.sqrt(len(image)) * _EPS * np.linalg.norm(image)
    if not shift:
        return sketch.T, np.zeros(len(sketch))
    while True:
        shifted = image + shift * sketch.T
        core = multiply(sketch, shifted)
        try:
            C = scipy.linalg.cholesky((core + core.T) / 2, check_finite=False)
            break
        except np.linalg.LinAlgError:
            shift *= 10
    B = scipy.linalg.solve_triangular(C, shifted.T, trans="T", check_finite=False).T
    Q, R = tall_qr(B)
    with blas_threads(1 if len(R) < 512 else None):
        U, sigma, _ = scipy.linalg.svd(R, check_finite=False)
    return multiply(Q, U), np.maximum(sigma**2 - shift, 0)


# -- Lanczos ---------------------------------------------------------------------------------------
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
    # a single vector would miss repeated eigenvalues, such as those of a circle; a block needs no more passes
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
        next_check = 1.1 * done  # the small problem takes time too
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


# -- Coordinates of fields -------------------------------------------------------------------------
# Fields that are expressed in coordinates at a time
_BLOCK = 512


class FactoredRows(Rows):
    """Fields F (n, M) that are G Q on cells S, to round-off: coordinates G (n, r), orthonormal rows Q (r, M) = `basis`
    that are 0 on the other cells, r <= min(n, M) / 2. `origin` is how the fields came.

    A decoder that is linear in the fields can be fitted to G: its coefficients times Q are those for the fields. For
    ten candidates of `tune` (n = 720, M = 16384, r = 201) this saves two thirds of the time. Reference: P.-G.
    Martinsson, G. Quintana-Orti, N. Heavner and R. van de Geijn, Householder QR factorization with randomization for
    column pivoting (HQRRP), SIAM J. Sci. Comput. 39 (2017).
    """

    def __init__(self, array: _Values, coordinates: _Values, basis: _Values, origin: Any, free: Any) -> None:
        super().__init__(array)
        self.coordinates, self.basis, self.origin, self._free = coordinates, basis, origin, free

    @classmethod
    def factor(cls, F: _Values, beside: _Values, free: NDArray[np.bool_], origin: Any = None) -> Self | None:
        """The factored fields F (n, M), or None where their rank is above min(n, M) / 2, or 0 and q = 0. Q also spans
        the independent rows `beside` (q, M), which are 0 outside the cells S = `free` (M,)."""
        # A QR factorisation whose pivots are panels of 64 rows: the rows of which most is missing, by the estimate
        # |x|^2 ~ mean of (x g)^2 over Gaussian vectors g, of ten too small by a factor of 100 once in 1e8 rows. The
        # leading singular vectors of what is missing of a panel are kept, and made orthogonal to the others twice more.
        # It ends when only round-off is missing.
        n, M = F.shape
        q, most = len(beside), min(n, M) // 2
        sizes = np.sqrt(np.einsum("ij,ij->i", F, F))
        if most <= q or not sizes.any():
            return None
        sizes = error_scales(sizes)
        if _has_rank(F, sizes, free, most + 1):
            return None
        probes = np.random.default_rng(0).standard_normal((10, M)) * free
        # rows that are not used take no memory
        Q, G, r = np.empty((most, M)), np.empty((n, most)), 0
        with blas_threads():
            missed = multiply(F, probes.T)
            new = orthonormalize_rows_against(beside.copy(), Q[:0]) if q else beside
            while True:
                k = len(new)
                if k:
                    new = np.multiply(new, free, out=Q[r : r + k])  # up to round-off they are 0 there
                    columns = multiply(F, new.T)
                    G[:, r : r + k] = columns
                    missed -= multiply(columns, multiply(new, probes.T))
                    r += k
                estimates = np.sqrt(np.mean(missed**2, axis=1)) / sizes
                rows = np.argsort(-estimates, kind="stable")[:64]  # products of matrices at full speed
                rows = rows[estimates[rows] > _round_off(r)]
                if not len(rows):
                    break
                rows = rows[: most - r]
                if not len(rows):
                    return None
                scales = sizes[rows, None]
                X = F[rows] / scales * free - multiply(G[rows, :r] / scales, Q[:r])
                # a direction must add more than round-off to a field of norm 1
                new = truncated_svd(Rows(X), lambda sigma, *_: int(np.count_nonzero(sigma > 8 * _EPS)))[1]
                if not len(new):
                    break
                # a small singular value comes of cancellation: its direction may lie in the span of Q for the most part
                new = orthonormalize_rows_against(np.ascontiguousarray(new * free), Q[:r])
        # constant fields have no directions
        return cls(F, np.ascontiguousarray(G[:, :r]), np.ascontiguousarray(Q[:r]), origin, free) if r else None

    def of_others(self, F: _Values) -> tuple[_Values, _Values]:
        """Coordinates (L, r) of other fields F (L, M), and the distance (L,) on S from what they stand for."""
        if not len(F):
            return np.empty((0, len(self.basis))), np.empty(0)
        rest = np.empty(len(F))
        with blas_threads():
            X = multiply(F, self.basis.T)
            for start in range(0, len(F), _BLOCK):
                part = slice(start, start + _BLOCK)
                left = (F[part] - multiply(X[part], self.basis)) * self._free
                rest[part] = np.sqrt(np.einsum("ij,ij->i", left, left))
        return X, rest


def _has_rank(F, sizes, free, r):
    """True if r rows of F at random are independent on r cells at random, so that the rank is at least r for sure."""
    rng, cells = np.random.default_rng(1), np.flatnonzero(free)
    if len(cells) < r:
        return False
    rows = np.sort(rng.choice(len(F), r, replace=False))
    part = F[np.ix_(rows, np.sort(rng.choice(cells, r, replace=False)))] / sizes[rows, None]
    with blas_threads(1):
        sigma = scipy.linalg.svdvals(part, overwrite_a=True, check_finite=False)
    return sigma[-1] > r * _EPS * sigma[0]


def _round_off(r):
    """Round-off of r products of sums over the cells, for a field of norm 1 (measured: 10 + 2 sqrt(r) eps)."""
    return (16 + 4 * np.sqrt(r)) * _EPS


class ReflectedRows:
    """Coordinates in a basis of rows (q, M) and fields F (n, M) on the cells S, by the reflections of their QR
    factorisation, to which rank does not matter."""

    def __init__(self, F: _Values, beside: _Values, free: NDArray[np.bool_]) -> None:
        # reflections are applied in blocks, wide enough for matrix products at full speed
        reflections = 256
        self._free = free
        q, n = len(beside), len(F)
        rows = np.vstack([beside, F])
        if not free.all():
            rows = rows[:, free]
        # products too narrow to gain from more threads, which lose much on a busy machine
        with blas_threads(1):
            # the factors overwrite the transposed rows, so R^T is their lower triangle
            self._factors, self._blocks, _ = lapack.dgeqrt(min(reflections, q + n), rows.T, overwrite_a=1)
        self.coordinates = np.ascontiguousarray(np.tril(self._factors.T[:, : q + n])[q:])

    def of_others(self, F: _Values) -> tuple[_Values, _Values]:
        """Coordinates (L, q + n) of fields F (L, M), and the distance (L,) on S from what they stand for."""
        r = self._factors.shape[1]
        out, rest = np.empty((len(F), r)), np.empty(len(F))
        for start in range(0, len(F), _BLOCK):
            part = slice(start, start + _BLOCK)
            fields = F[part].copy() if self._free.all() else F[part][:, self._free]
            with blas_threads(1):
                rotated = lapack.dgemqrt(self._factors, self._blocks, fields.T, side="L", trans="T", overwrite_c=1)[0].T
            out[part], rest[part] = rotated[:, :r], Rows(rotated[:, r:]).norms2() ** 0.5
        return out, rest


def field_span(
    F: NDArray[Any], invariants: Any, origin: Any = None, *, few: bool = False, weights: Any = None
) -> tuple[Any, Any]:
    """Orthonormal basis of what linear decoders of the fields F (n, M) can return on the cells that are not constant.

    It spans the correction's directions and the fields, and has few dimensions if they have (`FactoredRows`), otherwise
    q + n (`ReflectedRows`), for which as many cells must not be constant. With `few` it is None in the second case. No
    Gram matrix is formed. The AffineInvariants, or None, are in its coordinates. It is orthonormal in the norm of
    the cells' weights: other fields are given to it `in_norm`.
    """
    M = F.shape[1]
    free = np.ones(M, dtype=bool) if invariants is None else ~invariants.constant
    normals = in_norm(np.zeros((0, M)) if invariants is None else invariants.directions, weights)
    F = in_norm(F, weights)
    basis: Any = FactoredRows.factor(F, normals, free, origin)
    if basis is None and few:
        return None, None
    if basis is None:
        basis = ReflectedRows(F, normals, free)
    if invariants is not None:
        # C^T f for f = V^-1/2 x
        rows = np.where(free, invariants.matrix.T, 0.0) / (1.0 if weights is None else np.sqrt(weights))
        C = np.ascontiguousarray(basis.of_others(rows)[0].T)
        invariants = invariants.in_coordinates(C, np.ascontiguousarray(basis.of_others(normals)[0]))
    return basis, invariants
