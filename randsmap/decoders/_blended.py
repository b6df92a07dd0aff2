"""The geometric median of several decoders' fields, kept near the training fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from randsmap._interface.arrays import cache_aligned, validate_data
from randsmap._interface.parameters import Parameter, check_number, estimator, parameter
from randsmap._interface.state import NOT_SAVED, Array, Part
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import standard_deviations
from randsmap._linalg.svd import principal_coordinates
from randsmap.decoders._base import COMPUTED_STATE, FIT_STATE, Fit, HoldsFit, LinearDecoder, check_fields, of_fit
from randsmap.decoders._capabilities import require
from randsmap.invariants import AffineInvariants, InvariantParameters, fit_estimator
from randsmap.maps.extrapolation import FACTOR, Leverage
from randsmap.maps.linear_map import LinearMap

_Values = NDArray[np.float64]


def field_coordinates(F: Any) -> tuple[_Values, _Values, _Values]:
    """`principal_coordinates` of the fields F (n, M), an array or Rows."""
    return principal_coordinates(F if isinstance(F, Rows) else Rows(F))


def linear_trend(X: _Values, G: _Values) -> _Values:
    """Slopes (d, r) of the least-squares linear function of X (n, d), those of least norm."""
    return np.linalg.lstsq(X - X.mean(axis=0), G - G.mean(axis=0), rcond=None)[0]


def limited(P: _Values, near: _Values, limit: Any) -> _Values:
    """Fields P (..., n, r) no further than `limit` from the fields `near` (n, r): on the segment between both."""
    E = P - near
    distance = np.linalg.norm(E, axis=-1)
    far = distance > limit
    if not far.any():
        return P
    E *= np.divide(limit, distance, out=np.ones_like(distance), where=far)[..., None]
    return np.where(far[..., None], near + E, P)


def geometric_median(P: _Values, smoothing: float) -> tuple[_Values, _Values]:
    """The point that minimises the sum of distances to the points P (K, n, r), for each of n.

    Parameters
    ----------
    P : ndarray (K, n, r)
    smoothing : float
        eps of the distances sqrt(|x - p|^2 + eps^2), which makes it unique and differentiable.

    Returns
    -------
    x : ndarray (n, r)
    weights : ndarray (n, K)
        Nonnegative, sum 1: x = sum_k w_k p_k.

    Notes
    -----
    Weiszfeld's iteration, w_k ~ 1 / |x - p_k|, or Newton's where that is better; all in the weights, from the distances
    |p_j - p_k| alone.

    References
    ----------
    E. Weiszfeld, Tohoku Math. J. 43 (1937); Y. Vardi and C.-H. Zhang, PNAS 97 (2000).
    """
    K, n, _ = P.shape
    W = np.full((n, K), 1 / K)
    if K > 2:  # of one or two points the mean is a median
        with np.errstate(over="ignore", invalid="ignore"):
            D = np.stack([np.square(P - p).sum(axis=2) for p in P], axis=2).transpose(1, 0, 2)  # (n, K, K)
            s = _squares(D, W)
            # changes of the weights below 1e-11 move fields by no more of their distances; 50 is a guard
            for _ in range(50):
                new, new_s = _median_step(D, W, s, smoothing)
                change = np.abs(new - W).max(initial=0)
                W, s = new, new_s
                if change < 1e-11:
                    break
        x = _polished(np.einsum("nk,knr->nr", W, P), P, smoothing)
        q = 1 / _smoothed_distances(x - P, smoothing).T
        return x, q / q.sum(axis=1, keepdims=True)
    return np.einsum("nk,knr->nr", W, P), W


def _smoothed_distances(E, smoothing):
    """sqrt(|e|^2 + eps^2) (K, n) of vectors E (K, n, r)."""
    return np.sqrt(np.einsum("knr,knr->kn", E, E) + smoothing**2)


def _polished(x, P, smoothing):
    """x after Newton steps that subtract points, not squares of distances, where they lower the sum of distances."""
    for _ in range(3):  # squares of distances lose half of the digits, which two quadratic steps bring back
        E = x - P
        d = _smoothed_distances(E, smoothing)
        gradient = np.einsum("knr,kn->nr", E, 1 / d)
        new = x - hessian_solve(E, d, gradient[:, None])[:, 0]
        lower = _smoothed_distances(new - P, smoothing).sum(axis=0) <= d.sum(axis=0)
        x = np.where(lower[:, None], new, x)
    return x


def hessian_solve(E: _Values, d: _Values, T: _Values) -> _Values:
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


def median_smoothing(G: _Values) -> float:
    """The smoothing of medians of fields with the coordinates G (n, r): 1e-9 of their root mean square."""
    return max(1e-9 * float(np.linalg.norm(G) / np.sqrt(len(G))), 1e-150)


def _squares(D, W):
    """|sum_k w_k p_k - p_j|^2 (n, K) from the squared distances D (n, K, K), for weights of sum 1."""
    DW = np.einsum("njk,nk->nj", D, W)
    return np.maximum(DW - 0.5 * np.einsum("nj,nj->n", W, DW)[:, None], 0)


def _median_step(D, W, s, smoothing):
    """Newton's step, damped, or Weiszfeld's, which lowers the sum of distances most: weights, and squared distances."""
    q = 1 / np.sqrt(s + smoothing**2)
    a = q.sum(axis=1, keepdims=True)
    weiszfeld = q / a
    # with e_k = x - p_k: gradient g = sum q_k e_k, Hessian a I - sum q_k^3 e_k e_k^T, both in the e_k
    inner = 0.5 * (s[:, :, None] + s[:, None, :] - D) * q[:, :, None] * q[:, None, :]
    S = -inner
    K = W.shape[1]
    S[:, np.arange(K), np.arange(K)] += a / q
    S[:, np.arange(K), np.arange(K)] += 1e-14 * a / q.min(axis=1, keepdims=True)
    w = q * np.linalg.solve(S, inner.sum(axis=2)[..., None])[..., 0]
    newton = weiszfeld - (w.sum(axis=1, keepdims=True) * W - w) / a
    trials = [weiszfeld, *(W + damping * (newton - W) for damping in (1.0, 0.3, 0.1, 0.03))]
    squares = [_squares(D, new) for new in trials]
    best = np.argmin([np.sqrt(x + smoothing**2).sum(axis=1) for x in squares], axis=0)
    rows = np.arange(len(W))
    return np.stack(trials)[best, rows], np.stack(squares)[best, rows]


@dataclass(frozen=True, eq=False)
class BlendFit(Fit):
    """A fit of a blend: the coordinates x(y) of the geometric median of several decoders' fields, and their directions.

    Each decoder's field is within `limit` of the nearest training point's field, moved from there to y along the linear
    trend of all fields. The fit is the basis of its `LinearMap`.
    """

    decoders: list[Any]  # fitted parts, which decode to r coordinates
    coefficients: NDArray[np.float64]  # (r+1, M): mean field, directions that keep the invariants
    points: NDArray[np.float64]  # training points in units of `latent_scale`
    latent_scale: NDArray[np.float64]
    coordinates: NDArray[np.float64]  # (n, r) of the training fields
    trend: NDArray[np.float64]  # slopes (d, r) of the linear trend
    limit: float | None
    smoothing: float  # see `geometric_median`
    invariants: AffineInvariants

    _state = {
        "decoders": Part("predict", many=True, n_in="d", n_out="r"),
        "coefficients": Array("r+1", "M"),
        "points": Array("n", "d"),
        "latent_scale": Array("d", low=np.finfo(float).smallest_subnormal),
        "coordinates": Array("n", "r"),
        "trend": Array("d", "r"),
        "limit": Parameter(float, low=0, words=(None,)),
        "smoothing": Parameter(float, low=0),
        "invariants": Part(AffineInvariants, M="M"),
        "index": NOT_SAVED,
        **COMPUTED_STATE,
    }

    rows = 256  # points decoded at a time: a few arrays (parts, rows, coordinates)
    not_frozen = (
        "a blend of decoders cannot be frozen: C knows feature maps and kernels, not the median of fields. "
        "Fit a clone of one of its `decoders`, with the invariants that it shall keep, and freeze that"
    )

    @property
    def size(self) -> int:
        return self.coordinates.shape[1]

    @cached_property
    def index(self) -> NeighborIndex:
        """The search among the points."""
        return NeighborIndex(self.points)

    @property
    def training_points(self) -> NDArray[np.float64]:
        return self.points * self.latent_scale

    @cached_property
    def linear_map(self) -> LinearMap:
        return LinearMap(self, self.coefficients, self.invariants)

    def _judges(self):
        """The fits of the first three parts whose leverage is known; the median of three outvotes one."""
        fits = [getattr(part, "fitted", None) for part in self.decoders]
        return [fit for fit in fits if isinstance(fit, Fit)][:3]

    @property
    def leverage_cost(self) -> float:
        judges = self._judges()
        return float(sum(part.leverage_cost for part in judges)) if judges else np.inf

    @cached_property
    def leverage(self) -> Leverage:
        """The median of the parts' leverages in units of their limits."""
        parts = [part.leverage for part in self._judges()]
        if not parts:
            raise AttributeError("the leverage of a blend is that of its parts, and of none of them it is known")

        def at(X: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.median([part.relative(X) for part in parts], axis=0)

        points = self.training_points
        training = at(points)
        return Leverage(at, points, training, training, limit=FACTOR)

    def _parts(self, X):
        """Fields of the decoders before the limit (K, n, r), and those that they must be near."""
        # the blend has checked X
        parts = (part.fitted.decode if isinstance(part, HoldsFit) else part.predict for part in self.decoders)
        P = np.stack([decode(X).reshape(len(X), -1) for decode in parts])
        if self.limit is None:
            return P, None
        x = X / self.latent_scale
        nearest = self.index.query(x, 1)[1][:, 0]
        return P, self.coordinates[nearest] + (x - self.points[nearest]) @ self.trend

    def values(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        P, near = self._parts(X)
        if near is not None:
            P = limited(P, near, self.limit)
        return geometric_median(P, self.smoothing)[0]

    # -- Derivatives -------------------------------------------------------------------------------
    # x solves sum_k e_k / d_k = 0 with e_k = x - p_k and d_k = sqrt(|e_k|^2 + eps^2), so
    # H dx = sum_k (1 / d_k) (I - e_k e_k^T / d_k^2) dp_k, H the sum of these matrices.
    def _at(self, X):
        P, near = self._parts(X)
        shrink = None
        if near is not None:
            E = P - near
            distance = np.linalg.norm(E, axis=2)
            far = distance > self.limit
            direction = np.divide(E, distance[..., None], out=np.zeros_like(E), where=far[..., None])
            shrink = np.where(far, np.divide(self.limit, distance, out=np.ones_like(distance), where=far), 1), direction
            P = limited(P, near, self.limit)
        if len(P) <= 2:
            return shrink, None
        x, _ = geometric_median(P, self.smoothing)
        E = x - P
        return shrink, (E, _smoothed_distances(E, self.smoothing))

    @staticmethod
    def _shrunk(shrink, k, T):
        """S T for tangents T (n, c, r) of part k, S the derivative of the limited field in the part's own: symmetric,
        the identity within the limit. That in the field that it must be near is I - S."""
        if shrink is None:
            return T
        factor, u = shrink[0][k][:, None, None], shrink[1][k][:, None, :]
        return factor * (T - u * np.sum(u * T, axis=-1, keepdims=True))

    def _near_tangents(self, tangents):
        """Derivatives (n, c, r) of the fields to be near to along latent tangents (n, c, d)."""
        return (tangents / self.latent_scale) @ self.trend

    def _combined(self, X, tangents, directions):
        """Derivatives of x from those of the parts, ``tangents(decoder)`` (n, c, r), along directions (n, c, d)."""
        shrink, median = self._at(X)
        near = None if shrink is None else self._near_tangents(directions)
        total = 0
        for k, decoder in enumerate(self.decoders):
            T = self._shrunk(shrink, k, tangents(decoder))
            if near is not None:
                T = T + (near - self._shrunk(shrink, k, near))
            if median is None:
                total = total + T / len(self.decoders)
            else:
                e, q = median[0][k][:, None, :], 1 / median[1][k][:, None, None]
                total = total + q * (T - q * q * e * np.sum(e * T, axis=-1, keepdims=True))
        return total if median is None else hessian_solve(*median, total)

    def gradients(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        d = X.shape[1]
        return self._combined(
            X,
            lambda part: part.jacobian(X).reshape(len(X), -1, d).transpose(0, 2, 1),
            np.broadcast_to(np.eye(d), (len(X), d, d)),
        ).reshape(-1, self.size)

    def directional(self, X: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._combined(X, lambda part: part.jvp(X, V).reshape(len(X), 1, -1), V[:, None, :])[:, 0]

    def contract(self, X: NDArray[np.float64], H: NDArray[np.float64]) -> NDArray[np.float64]:
        shrink, median = self._at(X)
        H = H[:, None, :]
        if median is not None:
            H = hessian_solve(median[0], median[1], H)
        out = np.zeros(X.shape)
        for k, decoder in enumerate(self.decoders):
            if median is None:
                T = H / len(self.decoders)
            else:
                e, q = median[0][k][:, None, :], 1 / median[1][k][:, None, None]
                T = q * (H - q * q * e * np.sum(e * H, axis=-1, keepdims=True))
            S = self._shrunk(shrink, k, T)
            if shrink is not None:
                out += ((T - S)[:, 0] @ self.trend.T) / self.latent_scale
            out += decoder.vjp(X, np.ascontiguousarray(S[:, 0]))
        return out


@estimator
class BlendedDecoder(InvariantParameters, LinearDecoder):
    """The geometric median of the fields of several decoders: robust where some of them fail.

    Parameters
    ----------
    decoders
        The parts, such as `KernelDecoder` and `KNNDecoder`, without invariants and bounds of their own; cloned.
    limit
        Largest distance (L2 norm) of a part's field from the nearest training point's field, moved from there along the
        linear trend of the training fields; a field beyond it is moved back to that distance. Far from the training
        points the field of a kernel decoder is arbitrary. None: no limit.

    Attributes
    ----------
    decoders_ : list
        The fitted parts. They decode to the coordinates of the field, not to the field.
    coef_ : ndarray (r+1, M)
        The mean training field, then the orthonormal directions whose coordinates the parts decode.
    latent_scale_ : ndarray (d,)
        Standard deviations of the latents, in units of which the nearest training point is found.
    n_features_in_ : int
        d, the number of latent coordinates.

    Notes
    -----
    The geometric median x of fields f_1, ..., f_K minimises sum_k |x - f_k|. It is a convex combination of them
    whose weights depend on the latent point: parts that agree outvote one that does not. Because the parts decode
    coordinates in an orthonormal basis of the training fields, of r <= min(n, M) directions, a row costs K decodings
    of length r and one product r M. The projection on invariants and bounds is the last step.

    The nearest training point is that of least distance in latents divided by their standard deviations.

    The derivatives follow from those of the parts; with a part that has none (`KNNDecoder`) the blend has none.

    References
    ----------
    Y. Vardi and C.-H. Zhang, The multivariate L1-median and associated data depth, PNAS 97 (2000).

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.decoders import BlendedDecoder
    >>> from randsmap import KernelDecoder
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> fields = np.hstack([latents**2, 1 - latents**2])
    >>> parts = [KernelDecoder(length_scale=s, regularization=1e-8) for s in (0.3, 0.5, 0.8)]
    >>> BlendedDecoder(parts, invariants="mass").fit(latents, fields).predict([[0.5]]).round(4)
    array([[0.25, 0.75]])
    """

    _state = {**FIT_STATE, "_fitted": Part(BlendFit, d="d", M="M")}

    decoders: Sequence[Any] = parameter(kw_only=False, shown="list of regressors")
    limit: float | None = parameter(float, default=None, words=(None,))

    def fit_state(self, X, y):
        limit = None if self.limit is None else float(check_number(self.limit, "limit", low=0))
        if not isinstance(self.decoders, (list, tuple)) or not self.decoders:
            raise TypeError(f"decoders must be a list of decoders, got {self.decoders!r}")
        X = validate_data(self, X, reset=True, min_samples=2)
        F, dtype, layout = check_fields(y, len(X), blocks=True)
        self._keep_fields(layout)
        invariants = fit_estimator(self, F, dtype)
        mean, G, B = field_coordinates(F)
        scales = standard_deviations(X)
        points = X / scales
        return BlendFit(
            decoders=[clone(decoder).fit(X, G) for decoder in self.decoders],
            coefficients=cache_aligned(invariants.constrain_coefficients(np.vstack([mean, B]))),
            points=points,
            latent_scale=scales,
            coordinates=G,
            trend=linear_trend(points, G),
            limit=limit,
            smoothing=median_smoothing(G),
            invariants=invariants,
        )

    decoders_ = of_fit("decoders")
    invariants_ = of_fit("invariants")

    def check_available(self, capability):
        if capability == "smoother":
            raise AttributeError(
                "the weights of a geometric median depend on the fields, so its fit is not linear in them"
            )
        return all(require(part, capability) for part in self.decoders)
