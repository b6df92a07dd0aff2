"""Fields f(y) = [1 | phi(y)] A, projected on their invariants, and their derivatives in closed form."""

import threading
import weakref
from collections import OrderedDict
from contextlib import nullcontext

import numpy as np

from randsmap._kernels import decode as _decode_kernel
from randsmap._kernels import gradients as _kernel
from randsmap._linalg.ridge import feature_matrix
from randsmap._parallel import TILE_ENTRIES, blas_threads, for_tiles, tile_rows
from randsmap._validation import check_matrix
from randsmap.invariants._bounds import STALLED

__all__ = [
    "KernelBasis",
    "check_projected",
    "decode",
    "decode_features",
    "decode_rows",
    "feature_basis",
    "gathered",
    "jacobian_in_tiles",
    "polynomial_jacobian",
    "pull",
    "push",
]

_KEPT = 4  # subsets an estimator keeps
_lock = threading.Lock()
# Beside the estimators, not in them: pickles, model files and copies do not hold it.
_caches = weakref.WeakKeyDictionary()


def gathered(owner, A, cells, make):
    """``make()``, what the estimator `owner` needs of its array A for these cells; a few are kept.

    What was made is used again as long as `owner` has the same array A.
    """
    key = cells.tobytes()
    with _lock:
        cache = _caches.setdefault(owner, OrderedDict())
        if key in cache:
            array, value = cache[key]
            if array() is A:
                cache.move_to_end(key)
                return value
    value = make()
    with _lock:
        for old in [k for k, (array, _) in cache.items() if array() is not A]:
            del cache[old]
        cache[key] = weakref.ref(A), value
        while len(cache) > _KEPT:
            cache.popitem(last=False)
    return value


_SHARED = 1 << 19  # multiplications from which BLAS's threads need a limit, which costs 30 us


def push(G, A, projection, start=0, d=1):
    """Tangents [0 | G] A (n, M) of the fields [1 | phi] A, for derivatives G (n, P) of phi.

    Each is projected on C^T g = 0 (projection None: not). Row i of G belongs to the latent point
    start + i // d, which an error names.
    """
    T = np.empty((len(G), A.shape[1]))
    with blas_threads() if len(G) * A.size > _SHARED else nullcontext():
        _kernel.product(G, A, T)
    bad = -1 if projection is None else projection.project(T)
    if bad >= 0:
        raise ValueError(
            f"the derivative at row {start + bad // d} of X is too large for "
            "floating-point numbers, so it cannot satisfy the invariants"
        )
    if bad < -1:
        raise ValueError(
            f"the projection of the derivative at row {start - (2 + bad) // d} of X on the invariants {STALLED}"
        )
    return T


def pull(U, A, invariants):
    """The adjoint of `push`: H (n, P) = (U projected) A^T, without the bias row."""
    if invariants is not None:
        U = invariants.project_adjoint(U)
    # a few rows are bound by the read of A, which more threads hardly speed up
    with blas_threads(1) if len(U) * A.size > _SHARED else nullcontext():
        return U @ A[1:].T


def jacobian_in_tiles(gradients, A, projection, n, d, out):
    """Derivatives J (n, M, d) of n decoded fields into out.

    ``gradients(a, b)`` are the derivatives ((b - a) d, P) of the features at the latent points a..b, d
    rows a point.
    """
    M = A.shape[1]

    def task(a, b):
        T = push(gradients(a, b), A, projection, a, d)
        out[a:b] = T.reshape(b - a, d, M).transpose(0, 2, 1)

    for_tiles(task, n, tile_rows(d * max(M, len(A))))


def check_projected(bad, start):
    """ValueError if a kernel says that a row of those from `start` on could not be projected.

    bad: -1, the row's number i if it overflows, -2 - i if the projection does not converge.
    """
    if bad < -1:
        raise ValueError(f"the projection of the field at row {start - 2 - bad} of X on its invariants {STALLED}")
    if bad >= 0:
        raise ValueError(
            f"the field at row {start + bad} of X is too large for floating-point numbers, so "
            "it cannot satisfy its invariants: its latent point is too far away"
        )


def decode_features(Z, A, projection, out):
    """Fields [1 | Z] A into out (n, M), each row projected; projection may be None."""

    def task(a, b):
        check_projected(_decode_kernel.decode_features(Z[a:b], A, projection, out[a:b]), a)

    for_tiles(task, len(Z))


_CHUNK = 8192


def decode(features, A, X, projection, out):
    """Fields [1 | features(X)] A into out (n, M), each row projected; projection may be None.

    ValueError if a row is so far away that it overflows: it cannot satisfy its invariants.
    """
    if hasattr(features, "_kernel_map"):
        activation, weights, offsets, scale = features._kernel_map()

        def task(a, b):
            bad = _decode_kernel.decode(activation, X[a:b], weights, offsets, scale, A, projection, out[a:b])
            check_projected(bad, a)

        for_tiles(task, len(X))
        return
    for start in range(0, len(X), _CHUNK):  # `transform` of so many rows at a time: bounded memory
        part = out[start : start + _CHUNK]
        Z = feature_matrix(features, X[start : start + _CHUNK], len(A) - 1)
        decode_features(Z, A, projection, part)


# -- Derivatives of features -----------------------------------------------------------------------
def feature_basis(features):
    """The basis of a fitted feature map.

    Raises
    ------
    TypeError
        If its derivative is not known.
    """
    from sklearn.preprocessing import PolynomialFeatures

    if hasattr(features, "_kernel_map"):
        return MapBasis(*features._kernel_map())
    if hasattr(features, "jacobian"):
        return GivenBasis(features.jacobian)
    if isinstance(features, PolynomialFeatures):
        return GivenBasis(lambda Y: polynomial_jacobian(features.powers_, Y))
    raise TypeError(
        f"the derivative of the features of {type(features).__name__} is not known: it "
        "needs a method jacobian(Y) that gives the derivatives (n, P, d) of transform(Y)"
    )


class MapBasis:
    """Derivatives of the package's own feature maps: act'(w_k . y + b_k) w_k."""

    def __init__(self, activation, weights, offsets, scale):
        self.activation, self.weights, self.offsets, self.scale = activation, weights, offsets, scale

    def _slopes(self, X):
        S = np.empty((len(X), self.weights.shape[1]))
        _kernel.slopes(self.activation, X, self.weights, self.offsets, self.scale, S)
        return S

    def gradients(self, X):
        """(n d, P): d rows a point, one for each latent coordinate."""
        (n, d), P = X.shape, self.weights.shape[1]
        out = np.empty((n, d, P))
        _kernel.gradients(self._slopes(X), None, self.weights, out)
        return out.reshape(n * d, P)

    def directional(self, X, V):
        """(n, P): derivatives along the rows of V (n, d)."""
        S = self._slopes(X)
        _kernel.directional(S, None, self.weights, V, S)
        return S

    def contract(self, X, H):
        """(n, d): gradients of sum_k H_k phi_k."""
        out = np.empty(X.shape)
        _kernel.contract(self._slopes(X), None, self.weights, np.ascontiguousarray(H), out)
        return out


class KernelBasis:
    """Derivatives of a radial kernel g(|x - z|^2) at fixed points, x = y / lengths: 2 g' (x - z) / lengths.

    Parameters
    ----------
    slopes : callable
        ``slopes(X, points)`` is 2 g' (n, n_points).
    points : ndarray (n_points, d)
        z, in units of the lengths.
    lengths : ndarray (d,) or None
    scaled : callable
        ``scaled(Y)`` is X.
    weights : ndarray (n_points, P) or None
        The features are k(y) weights; None: the kernel itself.
    """

    def __init__(self, slopes, points, weights=None, lengths=None, scaled=None):
        self.slopes, self.points, self.weights = slopes, points, weights
        self.lengths, self.scaled = lengths, scaled
        self._columns = np.ascontiguousarray(points.T)

    def _at(self, Y):
        X = Y if self.scaled is None else self.scaled(Y)
        return X, self.slopes(X, self.points)

    def _in_units(self, values):
        return values if self.lengths is None else values / self.lengths

    def gradients(self, Y):
        X, S = self._at(Y)
        out = np.empty((len(X), X.shape[1], S.shape[1]))
        _kernel.gradients(S, X, self._columns, out)
        if self.lengths is not None:
            out /= self.lengths[:, None]
        out = out.reshape(-1, S.shape[1])
        return out if self.weights is None else out @ self.weights

    def directional(self, Y, V):
        X, S = self._at(Y)
        _kernel.directional(S, X, self._columns, self._in_units(V), S)
        return S if self.weights is None else S @ self.weights

    def contract(self, Y, H):
        X, S = self._at(Y)
        if self.weights is not None:
            H = H @ self.weights.T
        out = np.empty(X.shape)
        _kernel.contract(S, X, self._columns, np.ascontiguousarray(H), out)
        return self._in_units(out)


class GivenBasis:
    """Derivatives given as arrays: ``jacobian(Y)`` is (n, P, d)."""

    def __init__(self, jacobian):
        self.jacobian = jacobian

    def _checked(self, X):
        J = np.asarray(self.jacobian(X), dtype=np.float64)
        if J.ndim != 3 or J.shape[0] != len(X) or J.shape[2] != X.shape[1]:
            raise ValueError(f"the features' jacobian(Y) must have shape ({len(X)}, P, {X.shape[1]}), got {J.shape}")
        return J

    def gradients(self, X):
        J = self._checked(X)
        return check_matrix(J.transpose(0, 2, 1).reshape(-1, J.shape[1]), "the features' jacobian")

    def directional(self, X, V):
        return check_matrix(np.einsum("nkj,nj->nk", self._checked(X), V), "the features' jacobian")

    def contract(self, X, H):
        return np.einsum("nkj,nk->nj", self._checked(X), H)


def polynomial_jacobian(powers, Y):
    """Derivatives (n, P, d) of the monomials prod_j y_j^p_kj, powers p (P, d), at Y (n, d)."""
    out = np.empty((len(Y), *powers.shape))
    for j in range(powers.shape[1]):
        lower = powers.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        out[:, :, j] = powers[:, j] * np.prod(Y[:, None, :] ** lower, axis=2)
    return out


def decode_kernel(kernel, points, weights, A, X, projection, out):
    """Fields [1 | k(X) weights] A into out (L, M), each row projected; projection may be None.

    `kernel(X, Z)` are kernel rows between X and the training points Z (n, d); weights (n, r), or
    None for the kernel itself. A tile of rows of the kernel at a time: never the whole (L, n).
    """

    def task(a, b):
        Z = kernel(X[a:b], points)
        if weights is not None:
            Z = Z @ weights
        check_projected(_decode_kernel.decode_features(Z, A, projection, out[a:b]), a)

    for_tiles(task, len(X), max(32, TILE_ENTRIES // len(points)))


def decode_rows(decode, n, invariants, invariant_values, cells, out):
    """Rows or some cells of fields whose whole must be projected, into out (n, M) or (n, k).

    Parameters
    ----------
    decode : callable
        ``decode(a, b, projection, F)`` puts the fields of rows a to b into F (b - a, M), projected
        unless projection is None.
    invariants : AffineInvariants
    invariant_values : as for `AffineInvariants.row_values`, or None
    cells : ndarray (k,) of int, or None
        None: all.
    """
    values = None if invariant_values is None else invariants.row_values(invariant_values, n)

    def fill(a, b, F):
        if values is None:
            decode(a, b, invariants.projection, F)
        else:
            decode(a, b, None, F)
            invariants.project(F, values[a:b], first=a)

    if cells is None:
        fill(0, n, out)
        return
    M = len(invariants.constant)
    rows = max(1, min(n, max(256, (1 << 22) // M)))
    memory = np.empty((rows, M))
    for a in range(0, n, rows):
        b = min(a + rows, n)
        fill(a, b, memory[: b - a])
        out[a:b] = memory[: b - a, cells]
