"""Squared distances and radial kernels of them: centring and threads around the tiled kernels; linear trends."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from randsmap import _parallel
from randsmap._interface.arrays import empty_aligned
from randsmap._interface.parameters import check_number
from randsmap._io.progress import steps
from randsmap._kernels import distances as _kernels
from randsmap._kernels import linear_map as _map_kernel
from randsmap._linalg.rows import BLOCK, Rows

# Above this many rows, whose distance matrix takes 3.2 GB, the median is taken over a sample of pairs
MEDIAN_EXACT_ROWS = 20_000
# Pairs of that sample: the rank of their median is off by 0.1 % (1 / (2 sqrt(pairs)))
MEDIAN_SAMPLED_PAIRS = 250_000
# exp(-D / eps^2) needs eps^2 and 1/eps^2 as normal numbers
EPSILON_RANGE = (1e-150, 1e150)
_Values = NDArray[np.float64]
# Points (n, dim) for repeated distances: the points less their centre, the squared norms, the centre
CentredPoints = tuple[_Values, _Values, _Values]


def squared_distances(X: _Values, Z: _Values | None = None) -> _Values:
    """Squared Euclidean distances (n, m) between the rows of checked arrays X (n, dim) and Z (m, dim); None: X itself.
    The relative error is about 1e-13, however close the points are compared with their distance from the origin. X
    against itself, or an equal copy, is symmetric to the bit with a zero diagonal."""
    return _pairs(X, Z, 0.0)


def gaussian_kernel(X: _Values, Z: _Values | None = None, *, epsilon: float) -> _Values:
    """Gaussian kernel exp(-|x_i - z_j|^2 / epsilon^2) (paper, App. C, the kernel K^(1)), as `squared_distances`. The
    error of the exponent is about 1e-13, of values below 4e-18 more. Values below 1e-300 are 0, since subnormal numbers
    slow down what uses them."""
    return _pairs(X, Z, kernel_scale(epsilon))


def _pairs(X, Z, scale):
    # an equal copy must give the same bits as X itself
    if Z is not None and Z.shape == X.shape and len(X) and (Z[0] == X[0]).all() and np.array_equal(X, Z):
        Z = None
    return fill_pairs(X, Z, scale, np.empty((len(X), len(X if Z is None else Z))))


def kernel_scale(epsilon: float) -> float:
    """1 / epsilon^2, for a width the kernels can work with."""
    epsilon = check_number(epsilon, "epsilon", low=0, strict_low=True)
    if not EPSILON_RANGE[0] <= epsilon <= EPSILON_RANGE[1]:
        raise ValueError(f"epsilon must be between {EPSILON_RANGE[0]:g} and {EPSILON_RANGE[1]:g}, got {epsilon!r}")
    return 1 / epsilon**2


def gaussian_in_place(D: NDArray[Any], epsilon: float) -> NDArray[Any]:
    """Turn squared distances D (float64, C-contiguous) into exp(-D / epsilon^2), in D itself."""
    scale = kernel_scale(epsilon)
    _parallel.parallel_rows(lambda rows: _kernels.gaussian_rows(D, rows.start, rows.stop, scale), len(D), 64)
    return D


def multi_gaussian_in_place(D: _Values, low: float, high: float) -> None:
    """Turn squared distances D (float64) into the mean of exp(-s^2 r^2 / 2) over s in [low, high], in D itself. Paper,
    Theorem 1 and Eq. 36. Within 12 + 2 (low r)^2 ulp; values below 1e-300 are 0."""
    # sqrt(pi/2) [erf(high r/sqrt2) - erf(low r/sqrt2)] / (r (high - low)), as a difference of erfc for large low r.
    # Where it cancels, near r = 0 or for a narrow interval, a Gauss-Legendre rule over s is exact to round-off.
    D = D.reshape(-1)
    _parallel.parallel_rows(lambda part: _kernels.multi_gaussian(D[part], low, high), len(D), 1 << 15)


def fill_pairs(
    X: _Values, Z: _Values | None, scale: float, out: _Values, kernel: int = _kernels.GAUSSIAN, slopes: bool = False
) -> _Values:
    """Squared distances D (scale 0) or the kernel g(scale D) of `Radial` into out, for checked arrays; Z None: X.
    `slopes`: instead twice the derivative by D; 0 at D = 0 if there is none. Values below 1e-300 are 0, and slopes
    below about that (before the factor `scale`)."""
    if out.size == 0:
        return out
    if not scale:
        kernel = _kernels.SQUARED_DISTANCE
    n, dim = X.shape
    few_rows = Z is not None and n <= _kernels.FEW
    centre = X_centred = X_norms = Z_centred = Z_norms = None
    if dim > _kernels.DIRECT_DIM and not few_rows:
        second = X if Z is None else Z
        centre = centre_of(second)
        # A centred copy if it is no larger than the result, else block by block: no more work for few panels
        if dim <= n:
            Z_centred, Z_norms = centred_rows(second, centre)
            if Z is None:
                X_centred, X_norms = Z_centred, Z_norms

    def task(i, work):
        _kernels.panel(i, X, X_centred, X_norms, Z, Z_centred, Z_norms, centre, kernel, slopes, scale, work, out)

    _for_panels(task, X, Z is None)
    return out


def squared_distances_by_columns(X: Rows, Z: Rows | None = None) -> _Values:
    """`squared_distances` of wide rows in a file, of which some columns at a time are in memory."""
    n, m = len(X), len(X if Z is None else Z)
    D, part = np.zeros((n, m)), np.empty((n, m))
    for a, b in steps(X.shape[1], max(64, BLOCK // max(n, m, 1)), "distances"):
        D += fill_pairs(X.columns(a, b), None if Z is None else Z.columns(a, b), 0.0, part)
    return D


def centre_of(X: _Values) -> _Values:
    """A point amid the rows of X to take distances from: a mean of some rows, in float32 where it fits."""
    # few digits make x - centre exact for data of few digits (float32, pixels), and where the spread is small
    mean = X[:: max(1, len(X) // 128)].mean(axis=0)
    with np.errstate(over="ignore"):
        single = mean.astype(np.float32).astype(np.float64)
    fits = np.isfinite(single) & (abs(single) >= np.finfo(np.float32).tiny)
    return np.where(fits, single, mean)


def centred_rows(X: _Values, centre: _Values) -> tuple[_Values, _Values]:
    """X - centre and the squared norms of its rows."""
    rows, norms = empty_aligned(X.shape), np.empty(len(X))
    _parallel.parallel_rows(
        lambda part: _kernels.center(X[part], centre, rows[part], norms[part]), len(X), _kernels.PANEL
    )
    return rows, norms


def centred_points(X: _Values) -> CentredPoints:
    """Points X (n, dim) made ready for `kernel_sums`, `kernel_rows` and `pairs_within`."""
    centre = centre_of(X)
    return *centred_rows(X, centre), centre


def kernel_sums(X: _Values, points: CentredPoints, weights: _Values, epsilon: float) -> _Values:
    """Weighted sums S[i, p] = sum_j exp(-|x_i - z_j|^2 / epsilon^2) weights[p, j] of the Gaussian kernel over fixed
    points z_j, without storing the kernel; X (n, dim), weights (n_sums, n_points)."""
    sums, scale = np.empty((len(X), len(weights))), kernel_scale(epsilon)

    def task(i, work):
        _kernels.nystrom_panel(i, X, *points, scale, weights, work, sums)

    _for_panels(task, X)
    return sums


def kernel_rows(X: _Values, points: CentredPoints, epsilon: float) -> _Values:
    """The kernel (n, n_points) that `kernel_sums` sums over: for a few rows X (n, dim) at a time."""
    rows, norms, centre = points
    K, scale = np.empty((len(X), len(rows))), kernel_scale(epsilon)
    X, X_norms = centred_rows(X, centre)

    def task(i, work):
        _kernels.panel(i, X, X, X_norms, rows, rows, norms, None, _kernels.GAUSSIAN, False, scale, work, K)

    _for_panels(task, X)
    return K


def far_values(x: _Values, rows: _Values, epsilon: float) -> _Values:
    """The kernel of one centred point x, up to a common factor, where it underflows."""
    # |x|^2 / epsilon^2 in the exponents cancels in the Nystroem ratio; the softmax of the rest, (2 x.f_j - |f_j|^2) /
    # epsilon^2, cannot underflow when shifted by its maximum
    out = np.empty(len(rows))
    _map_kernel.far_values(x, np.ascontiguousarray(rows), epsilon, out)
    return out


def symmetric_product(K: _Values, X: _Values) -> _Values:
    """X K for a symmetric K (n, n), of which the upper triangle is read once, and X (p, n), p even, both C-contiguous.
    The parts do not depend on the number of threads."""
    n_parts, n = 4, len(K)
    # rows of equal parts of the triangle, in fours
    bounds = (n * (1 - np.sqrt(1 - np.arange(n_parts + 1) / n_parts))).astype(int) // 4 * 4
    bounds[-1] = n
    parts = np.zeros((n_parts, *X.shape))
    _parallel.parallel_for(lambda t: _kernels.symmetric_product(K, bounds[t], bounds[t + 1], X, parts[t]), n_parts)
    return parts.sum(axis=0)


def pairs_within(
    X: _Values, points: CentredPoints, x_radii: _Values, z_radii: _Values
) -> tuple[NDArray[np.intp], NDArray[np.intp], _Values]:
    """Pairs (i, j) with |x_i - z_j|^2 <= x_radii[i] or z_radii[j], found by trying all of them. Returns the rows i
    (ascending), the columns j (ascending within a row) and the squared distances."""
    nothing = np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0)
    parts = [nothing] * (_kernels.tasks(*X.shape, False)[0] + 1)  # a part per task, and one more
    guess = [64 * _kernels.PANEL]  # pairs of a task; grows with the number of pairs found

    def task(t, work):
        found = guess[0]
        while True:
            found = capacity = max(found, 1)
            i, j = np.empty((2, capacity), np.intp)
            d = np.empty(capacity)
            found = _kernels.reach_panel(t, X, *points, x_radii, z_radii, work, i, j, d)
            if found <= capacity:
                break
            guess[0] = max(guess[0], found)
        order = np.argsort(i[:found], kind="stable")
        parts[t] = i[order], j[order], d[order]

    _for_panels(task, X)
    i, j, d = (np.concatenate(part) for part in zip(*parts))
    return i, j, d


def _for_panels(task, X, symmetric=False):
    """task(i, work) for each of `_kernels.tasks` of the rows X; `work` is scratch of the thread's own."""
    n_tasks, size = _kernels.tasks(*X.shape, symmetric)
    if n_tasks == 1:  # fast path
        task(0, empty_aligned((size,)))
        return
    free = []  # the next task uses this memory again, so that its pages are mapped once

    def with_workspace(i):
        try:
            work = free.pop()
        except IndexError:
            work = empty_aligned((size,))
        task(i, work)
        free.append(work)

    _parallel.parallel_for(with_workspace, n_tasks)


def gaussian_of_data(X: _Values | Rows, epsilon: float | None, epsilon_scale: float) -> tuple[_Values, float]:
    """Gaussian kernel of the rows of X against themselves, and its width: epsilon, or if that is None epsilon_scale
    times the median distance (paper, App. C: eps = w median |x_i - x_j|)."""
    D = None
    if isinstance(X, Rows):
        D = squared_distances_by_columns(X)
    elif epsilon is None and len(X) <= MEDIAN_EXACT_ROWS:
        D = squared_distances(X)
    epsilon = float(epsilon_scale * median_distance(X, D) if epsilon is None else epsilon)
    if D is None:
        return gaussian_kernel(X, epsilon=epsilon), epsilon  # type: ignore[arg-type]
    return gaussian_in_place(D, epsilon), epsilon  # one matrix: distances, and in place the kernel


def median_distance(X: Any, D: _Values | None = None, *, exact_rows: int = MEDIAN_EXACT_ROWS) -> float:
    """Median of |x_i - x_j| over the pairs i < j of rows of X (paper, App. C: the unit of eps_1), not 0. Exact up to
    `exact_rows` rows, or where the squared distances D are given; beyond, over MEDIAN_SAMPLED_PAIRS pairs drawn with a
    fixed seed."""
    if D is None and len(X) <= exact_rows:
        D = squared_distances(X)
    median = _sampled_median(X) if D is None else median_of_squared(D)
    if not median > 0:
        raise ValueError(
            "the median distance between samples is 0 (at least half of the pairs are identical samples, or closer "
            "than 1e-160), so it sets no kernel width: give epsilon, or remove duplicates"
        )
    return median


def _sampled_median(X):
    rng = np.random.default_rng(0)
    i = rng.integers(len(X), size=MEDIAN_SAMPLED_PAIRS)
    j = rng.integers(len(X) - 1, size=MEDIAN_SAMPLED_PAIRS)
    j += j >= i
    step = max(1, 2**20 // X.shape[1])
    parts = [slice(k, k + step) for k in range(0, MEDIAN_SAMPLED_PAIRS, step)]
    return float(np.median(np.concatenate([np.linalg.norm(X[i[part]] - X[j[part]], axis=1) for part in parts])))


def median_of_squared(D: _Values) -> float:
    """Median distance of the pairs i < j, from their squared distances D (n, n)."""
    # a sample of D brackets the median; one pass counts the values below the bracket and collects those inside, among
    # which the exact one is selected: a third of the time that sorting takes
    n_sampled, n = 2**14, len(D)
    n_pairs = n * (n - 1) // 2
    # the ranks whose mean is the median among all of D, which has n zeros and each pair twice
    low, high = n + (n_pairs - 1) // 2 * 2, n + n_pairs // 2 * 2
    brackets = [(-np.inf, np.inf)]
    if n_pairs > 4 * n_sampled:
        rng = np.random.default_rng(0)
        i = rng.integers(n, size=n_sampled)
        j = rng.integers(n - 1, size=n_sampled)
        sample = np.sort(D[i, j + (j >= i)])
        middle, margin = n_sampled // 2, 2 * int(n_sampled**0.5)  # four standard deviations of the rank
        brackets.insert(0, (sample[middle - margin], sample[middle + margin]))
    for lo, hi in brackets:
        n_below, inside = _bracketed(D, lo, hi)
        if n_below <= low and high < n_below + len(inside):
            break
    ranks = [low - n_below, high - n_below]
    return float(np.sqrt(np.partition(inside, ranks)[ranks]).mean())


def _bracketed(D, lo, hi):
    """Number of the values of D below lo, and the values from lo to hi."""
    found = []

    def task(rows):
        part = D[rows]
        found.append((np.count_nonzero(part < lo), part[(part >= lo) & (part <= hi)]))

    _parallel.parallel_rows(task, len(D), 64)
    below, inside = zip(*found)
    return sum(below), np.concatenate(inside)


# -- Kernels of decoders ---------------------------------------------------------------------------
class Radial:
    """A kernel g(scale |x - z|^2), by the number that `_kernels.distances` has for g, or a mean of Gaussians."""

    def __init__(self, kernel: int, scale: float, frequencies: Any = None) -> None:
        self._kernel, self.scale, self._frequencies = kernel, scale, frequencies

    @classmethod
    def named(cls, name: str, nu: Any = None, frequencies: Any = None) -> Self:
        """The kernel of a `KernelDecoder`, between points in units of its length scale, r being the distance of two.

        "gaussian", exp(-r^2 / 2). "matern" of smoothness nu = 0.5, 1.5 or 2.5, with s = sqrt(2 nu) r: exp(-s),
        (1 + s) exp(-s), (1 + s + s^2 / 3) exp(-s). "multi-gaussian", the mean of exp(-s^2 r^2 / 2) over s between the
        `frequencies` (paper, Theorem 1). "thin-plate", the spline r^2 log r, which is conditionally positive definite,
        for tails of degree 1.
        """
        if name == "matern":
            return cls({0.5: _kernels.MATERN_12, 1.5: _kernels.MATERN_32, 2.5: _kernels.MATERN_52}[nu], 2 * nu)
        if name == "multi-gaussian":
            return cls(_kernels.GAUSSIAN, 0.0, frequencies)
        return cls(_kernels.THIN_PLATE, 1.0) if name == "thin-plate" else cls.gaussian(0.5)

    @classmethod
    def gaussian(cls, scale: float) -> Self:
        """exp(-scale |x - z|^2)."""
        return cls(_kernels.GAUSSIAN, scale)

    def values(self, X: _Values, Z: _Values | None = None) -> _Values:
        """The kernel between points X and Z (None: X)."""
        out = np.empty((len(X), len(X if Z is None else Z)))
        fill_pairs(X, Z, self.scale, out, self._kernel)
        if self._frequencies is not None:  # from the squared distances, "Gaussian" values of scale 0
            multi_gaussian_in_place(out, *self._frequencies)
        return out

    def frozen(self) -> dict[str, Any]:
        """Name of the kernel in an image."""
        if self._frequencies is not None:
            low, high = self._frequencies
            return {"kind": _map_kernel.MULTI_GAUSSIAN, "low": low, "high": high}
        kernel = self._kernel if self.scale else _kernels.SQUARED_DISTANCE
        return {"kind": _map_kernel.RADIAL_KERNEL, "function": kernel, "scale": self.scale}


def polynomial_tail(X: _Values, degree: int) -> _Values:
    """The tail's functions [1] or [1 | x] at points X (n, d)."""
    return np.ones((len(X), 1)) if degree == 0 else np.column_stack([np.ones(len(X)), X])
