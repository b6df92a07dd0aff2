"""Plain references of the kernels, for their tests and for tools/fuzz.py: slow, and right by reading."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
from scipy import ndimage

from randsmap._kernels.features import COSINE, LOGISTIC

import hughes_reference as reference

# -- Features, by activation: the function, in extended precision too, and its steepest slope ----------------
PLAIN = {COSINE: np.cos, LOGISTIC: lambda t: 1 / (1 + np.exp(-t))}  # in extended precision too
STEEPEST = {COSINE: 1.0, LOGISTIC: 0.25}

# -- Elementary functions, in extended precision too ---------------------------------------------------------
ELEMENTARY = {"cos": np.cos, "exp": np.exp, "log": np.log, "logistic": PLAIN[LOGISTIC]}


def ulp(value):
    """Distance to the next double: the unit of the error, the smallest double for denormals."""
    return np.spacing(np.maximum(np.abs(value), 2.0**-1022))


# -- Radial kernels, by name -----------------------------------------------------------------------------------
# scale, and with t = scale D: the kernel, twice its derivative by t where t > 0
THIRD = 1 / np.longdouble(3)
RADIAL = {
    "GAUSSIAN": (0.5, lambda t: np.exp(-t), lambda t: -2 * np.exp(-t)),
    "MATERN_12": (1.0, lambda t: np.exp(-np.sqrt(t)), lambda t: -np.exp(-np.sqrt(t)) / np.sqrt(t)),
    "MATERN_32": (3.0, lambda t: (1 + np.sqrt(t)) * np.exp(-np.sqrt(t)), lambda t: -np.exp(-np.sqrt(t))),
    "MATERN_52": (
        5.0,
        lambda t: (1 + np.sqrt(t) + t * THIRD) * np.exp(-np.sqrt(t)),
        lambda t: -(1 + np.sqrt(t)) * np.exp(-np.sqrt(t)) * THIRD,
    ),
    "THIN_PLATE": (1.0, lambda t: t * np.log(t) / 2, lambda t: np.log(t) + 1),
}
# value and slope of a point with itself
AT_ITSELF = {
    "GAUSSIAN": (1, -1),
    "MATERN_12": (1, 0),
    "MATERN_32": (1, -3),
    "MATERN_52": (1, -5 / 3),
    "THIN_PLATE": (0, 0),
}


def multi_gaussian(D, low, high):
    """The mean of exp(-s^2 D / 2) over s in [low, high], and that of s^2 exp(-s^2 D / 2), for one D > 0."""
    with mpmath.workprec(400):
        D, a, b = mpmath.mpf(float(D)), mpmath.mpf(float(low)), mpmath.mpf(float(high))
        root = mpmath.sqrt(D / 2)
        mass = mpmath.sqrt(mpmath.pi / 2) * (mpmath.erfc(a * root) - mpmath.erfc(b * root)) / mpmath.sqrt(D)
        ends = a * mpmath.exp(-a * a * D / 2) - b * mpmath.exp(-b * b * D / 2)
        return mass / (b - a), (ends + mass) / D / (b - a)


def brute_force(points, queries, k):
    """By definition: squared distances summed in the order of the coordinates, ties by index."""
    D = np.zeros((len(queries), len(points)))
    for j in range(points.shape[1]):
        D += (queries[:, j : j + 1] - points[:, j]) ** 2
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return np.sqrt(np.take_along_axis(D, order, 1)), order


def enumerate_faces(P, y):
    """Best over all subsets: residual first, then |a|^2; exact up to the pseudo-inverse."""
    k, best = len(P), (np.inf, np.inf, None)
    for m in range(1, k + 1):
        for subset in itertools.combinations(range(k), m):
            C = P[list(subset)]
            b = 1 / m + np.linalg.pinv((C - C.mean(0)).T, rcond=1e-11) @ (y - C.mean(0))
            if b.min() < -1e-10:
                continue
            a = np.zeros(k)
            a[list(subset)] = np.maximum(b, 0) / np.maximum(b, 0).sum()
            residual, norm = np.linalg.norm(y - a @ P), a @ a
            if residual < best[0] - 1e-9 or (residual < best[0] + 1e-9 and norm < best[1] - 1e-12):
                best = residual, norm, a
    return best


def exact_projection(z, w, v, lower, upper, m):
    """(f, t) in rational arithmetic: f_i = clip(z_i + t w_i / v_i), w . f = m, by trying every interval
    between breakpoints."""
    z, w, v, m = [Fraction(x) for x in z], [Fraction(x) for x in w], [Fraction(x) for x in v], Fraction(m)
    lower = [None if x == -np.inf else Fraction(x) for x in lower]
    upper = [None if x == np.inf else Fraction(x) for x in upper]

    def clip(x, i):
        x = x if lower[i] is None else max(x, lower[i])
        return x if upper[i] is None else min(x, upper[i])

    def fields(t):
        return [clip(z[i] + t * w[i] / v[i], i) for i in range(len(z))]

    def h(t):
        return sum(a * b for a, b in zip(w, fields(t))) - m

    points = sorted(
        {
            (bound[i] - z[i]) * v[i] / w[i]
            for bound in (lower, upper)
            for i in range(len(z))
            if bound[i] is not None and w[i] > 0
        }
    )
    if not points:
        points = [Fraction(0)]
    values = [h(t) for t in points]
    if values[0] > 0:  # left of all breakpoints only cells without a lower bound move
        a, b = points[0] - 1, points[0]
    elif values[-1] < 0:
        a, b = points[-1], points[-1] + 1
    else:
        k = max(i for i, value in enumerate(values) if value <= 0)
        if values[k] == 0:
            return fields(points[k]), points[k]
        a, b = points[k], points[k + 1]
    slope = (h(b) - h(a)) / (b - a)
    t = a - h(a) / slope if slope else a  # m rounded to beyond the range
    return fields(t), t


def by_plain_iteration(slowness, spacing, cells, exits, obstacles):
    """Travel times of `solve_eikonal`, all cells at once until nothing changes."""
    dx, dy = np.broadcast_to(spacing, 2)
    zero = np.pad(cells, 1)
    zero[0, 1:-1] |= "left" in exits
    zero[-1, 1:-1] |= "right" in exits
    zero[1:-1, 0] |= "bottom" in exits
    zero[1:-1, -1] |= "top" in exits
    walls = np.pad(obstacles, 1, constant_values=True) & ~zero
    return reference.eikonal(slowness, dx, dy, zero, walls)[..., 1:-1, 1:-1]


def rotated_by_scipy(image, angle):
    """An image turned about its centre, of sum 1."""
    turned = ndimage.rotate(image, np.rad2deg(angle), order=1, reshape=False, mode="grid-constant")
    return turned / turned.sum()


def numpy_step(q, courant, rho_max):
    """One step as the wave-propagation form is written in LeVeque's book."""
    left = np.roll(q, 1)
    wave = q - left
    nu = courant * (1 - (left + q) / rho_max)

    def flux(r):
        return courant * r * (1 - r / rho_max)

    # fluctuations; flux differences about the sonic flux where the rarefaction is transonic
    minus, plus = np.minimum(nu, 0) * wave, np.maximum(nu, 0) * wave
    transonic = (left > rho_max / 2) & (q < rho_max / 2)
    sonic = flux(rho_max / 2)
    minus = np.where(transonic, sonic - flux(left), minus)
    plus = np.where(transonic, flux(q) - sonic, plus)

    upwind = np.where(nu > 0, np.roll(wave, 1), np.roll(wave, -1))
    ratio = np.divide(upwind, wave, out=np.zeros_like(wave), where=wave != 0)
    van_leer = (ratio + abs(ratio)) / (1 + abs(ratio))
    correction = 0.5 * abs(nu) * (1 - abs(nu)) * van_leer * wave
    return q - plus - np.roll(minus, -1) - (np.roll(correction, -1) - correction)


def encode(rows, offset, values, row, a):
    """Coordinates of a mixture of training fields, the weights' objective (rk_simplex.h), and their Jacobian."""
    logits = offset + a @ rows[row]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    psi = values @ p
    return psi, ((values - psi[:, None]) * p) @ rows[row].T


# -- Blends ------------------------------------------------------------------------------------------
def geometric_median(P, smoothing):
    """The points x (n, r) that minimise the sum of distances to the points P (K, n, r), for each of n.

    `smoothing`, eps of the distances sqrt(|x - p|^2 + eps^2), makes x unique and differentiable. Steps are those of
    Newton's method, damped where that is better, or of Weiszfeld's iteration, x = sum_k w_k p_k with w_k ~ 1 / |x -
    p_k|. E. Weiszfeld, Tohoku Math. J. 43 (1937); Y. Vardi and C.-H. Zhang, PNAS 97 (2000).
    """
    if len(P) <= 2:  # of one or two points the mean is a median
        return P.mean(axis=0)
    if P.shape[2] == 1 and len(P) % 2 == 0:  # all between the middle two are medians
        return np.median(P, axis=0)
    # the same distances in K - 1 coordinates: those of a QR factorisation of the differences
    R = np.linalg.qr((P[1:] - P[0]).transpose(1, 2, 0), mode="r")
    C = np.concatenate([np.zeros((1, *R.shape[:2])), R.transpose(2, 0, 1)])
    rows = np.arange(len(R))
    starts = np.concatenate([C.mean(axis=0)[None], _medians_at_points(C, smoothing)])
    x = starts[np.argmin([_smoothed_distances(start - C, smoothing).sum(axis=0) for start in starts], axis=0), rows]
    for _ in range(50):  # a guard
        E = x - C
        d = _smoothed_distances(E, smoothing)
        newton = hessian_solve(E, d, np.einsum("knr,kn->nr", E, 1 / d)[:, None])[:, 0]
        trials = np.stack([*(x - damping * newton for damping in (1.0, 0.3, 0.1, 0.03)), _weighted(C, 1 / d)])
        sums = np.stack([_smoothed_distances(trial - C, smoothing).sum(axis=0) for trial in trials])
        sums[0] *= 1 - 1e-14  # Newton's step where round-off would decide
        new = trials[sums.argmin(axis=0), rows]
        change = np.linalg.norm(new - x, axis=1) / d.mean(axis=0)
        x = new
        if change.max(initial=0) < 1e-11:
            break
    return _weighted(P, 1 / _smoothed_distances(x - C, smoothing))


def _medians_at_points(C, smoothing):
    """For each of the points C (K, n, r) the median if it is that point, to the order of the smoothing; else the mean.

    It is if the unit vectors to the others have a sum no longer than the number of points that coincide.
    """
    E = C - C[:, None]
    d = np.linalg.norm(E, axis=-1)
    apart = d > smoothing
    pull = np.einsum("jknr,jkn->jnr", E, np.divide(1, d, out=np.zeros(d.shape), where=apart))
    left = np.count_nonzero(~apart, axis=1) ** 2 - np.einsum("jnr,jnr->jn", pull, pull)
    step = np.divide(smoothing, np.sqrt(np.abs(left)), out=np.zeros(left.shape), where=left > 0)
    return np.where((left > 0)[..., None], C + pull * step[..., None], C.mean(axis=0))


def _smoothed_distances(E, smoothing):
    """sqrt(|e|^2 + eps^2) (K, n) of vectors E (K, n, r)."""
    return np.sqrt(np.einsum("knr,knr->kn", E, E) + smoothing**2)


def _weighted(P, weights):
    """Means (n, r) of the points P (K, n, r) with these weights (K, n)."""
    return np.einsum("knr,kn->nr", P, weights / weights.sum(axis=0))


def hessian_solve(E, d, T):
    """H^-1 T (n, c, r), H = sum_k (I - e_k e_k^T / d_k^2) / d_k the Hessian of the sum of distances d (K, n).

    By the K directions e_k (K, n, r) of the points from x (Woodbury).
    """
    q = 1 / d
    a = q.sum(axis=0)[:, None, None]
    V = np.moveaxis(E * q[..., None], 0, 1)  # (n, K, r): rows e_k / d_k
    S = -np.einsum("njr,nkr->njk", V, V)
    K = len(E)
    S[:, np.arange(K), np.arange(K)] += a[:, :, 0] / q.T
    VT = np.einsum("nkr,ncr->nkc", V, T)
    try:
        inner = np.linalg.solve(S, VT)
    except np.linalg.LinAlgError:  # all fields on a line, along which the sum of distances is flat
        inner = np.linalg.pinv(S, hermitian=True) @ VT
    return (T + np.einsum("nkr,nkc->ncr", V, inner)) / a
