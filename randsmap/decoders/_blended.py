"""The geometric median of several decoders' fields, kept near the training fields."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from randsmap._interface.arrays import cache_aligned
from randsmap._interface.parameters import Parameter, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Part, immutable, saved
from randsmap._interface.texts import shared_texts
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.scales import standard_deviations
from randsmap._linalg.svd import principal_coordinates
from randsmap.decoders._base import FIT_STATE, FieldRegressor, Fit, HoldsFit, LinearDecoder, of_fit, require
from randsmap.invariants import AffineInvariants, InvariantParameters
from randsmap.maps.error_bar import HOW, judged_rows, nearest_other
from randsmap.maps.extrapolation import FACTOR, Leverage
from randsmap.maps.linear_map import LinearMap

_Values = NDArray[np.float64]


def linear_trend(X: _Values, G: _Values) -> _Values:
    """Slopes (d, r) of the least-squares linear function of X (n, d), those of least norm."""
    return np.linalg.lstsq(X - X.mean(axis=0), G - G.mean(axis=0), rcond=None)[0]


def limit_factors(E: _Values, limit: Any) -> _Values:
    """Factors <= 1 (...) by which vectors E (..., r) become no longer than `limit`."""
    distance = np.linalg.norm(E, axis=-1)
    return np.divide(limit, distance, out=np.ones_like(distance), where=distance > limit)


def limited(P: _Values, near: _Values, limit: Any) -> _Values:
    """Fields P (..., n, r) no further than `limit` from the fields `near` (n, r): on the segment between both."""
    E = P - near
    factors = limit_factors(E, limit)[..., None]
    far = factors < 1
    return np.where(far, near + E * factors, P) if far.any() else P


def geometric_median(P: _Values, smoothing: float) -> _Values:
    """The points x (n, r) that minimise the sum of distances to the points P (K, n, r), for each of n.

    `smoothing`, eps of the distances sqrt(|x - p|^2 + eps^2), makes x unique and differentiable. Steps are those of
    Newton's method, damped where that is better, or of Weiszfeld's iteration, x = sum_k w_k p_k with w_k ~ 1 / |x -
    p_k|. E. Weiszfeld, Tohoku Math. J. 43 (1937); Y. Vardi and C.-H. Zhang, PNAS 97 (2000).
    """
    if len(P) <= 2:  # of one or two points the mean is a median
        return P.mean(axis=0)
    # the same distances in K - 1 coordinates: those of a QR factorisation of the differences
    R: Any = np.linalg.qr((P[1:] - P[0]).transpose(1, 2, 0), mode="r")
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


def _across(T, c, u):
    """c (I - u u^T) T for tangents T (n, c, r), numbers c (n,) and vectors u (n, r)."""
    u = u[:, None, :]
    return c[:, None, None] * (T - u * np.sum(u * T, axis=-1, keepdims=True))


def _without_invariants(decoder):
    """A clone of a part, of which nothing is to be kept: it decodes coordinates of the fields."""
    part = clone(decoder)
    return part.set_params(invariants=None) if hasattr(part, "invariants") else part


def _for_fewer(decoder, share):
    """A clone of a part for that share of its samples, with as little of lambda, which grows with their number."""
    part = _without_invariants(decoder)
    given = part.get_params(deep=False)
    if isinstance(given.get("regularization"), float):
        part.set_params(regularization=share * given["regularization"])
    return part.set_params(n_centers=None) if "n_centers" in given else part


@immutable
class BlendFit(Fit):
    """A fit of a blend: the coordinates x(y) of the geometric median of several decoders' fields, and their directions.

    Each decoder's field is within `limit` of the nearest training point's field, moved from there to y along the linear
    trend of all fields. The fit is the basis of its `LinearMap`.
    """

    decoders: list[Any] = saved(Part("predict", many=True, n_in="d", n_out="r"))  # fitted parts
    coefficients: _Values = saved(Array("r+1", "M"))  # mean field, directions that keep the invariants
    points: _Values = saved(Array("n", "d"))  # training points in units of `latent_scale`
    latent_scale: _Values = saved(Array("d", low=np.finfo(float).smallest_subnormal))
    coordinates: _Values = saved(Array("n", "r"))  # of the training fields
    trend: _Values = saved(Array("d", "r"))  # slopes of the linear trend
    limit: float | None = saved(Parameter(float, low=0, words=(None,)))
    smoothing: float = saved(Parameter(float, low=0))  # see `geometric_median`
    invariants: AffineInvariants = saved(Part(AffineInvariants, M="M"))
    groups: Any = saved(Array("n", dtype=np.intp, low=0, optional=True), default=None)

    training_points = property(lambda self: self.points * self.latent_scale)
    rows = 256  # points decoded at a time: a few arrays (parts, rows, coordinates)
    not_frozen = (
        "C knows feature maps and kernels, not the median of several decoders' fields. Fit a clone of one of its "
        "`decoders` (of an AutoDecoder best_decoder_.decoders), with the invariants, bounds and weights that it shall "
        "keep, and freeze that"
    )

    @cached_property
    def index(self) -> NeighborIndex:
        return NeighborIndex(self.points)

    @property
    def training_fields(self) -> _Values:
        return self.coordinates[judged_rows(len(self.coordinates))]

    def left_out(self, G, groups=None):
        labels = None if groups is None else np.empty(len(G), np.intp)
        for number, g in enumerate(groups or ()):
            labels[g] = number
        points, decoders, n = self.points, self.decoders, len(self.points)
        if len(G) < n:  # parts that know some points alone, for matrices of all would not fit in memory
            points = points[judged_rows(n)]
            decoders = [_for_fewer(part, len(G) / n).fit(points * self.latent_scale, G) for part in decoders]
        parts = [getattr(part, "fitted", None) for part in decoders]
        if not all(isinstance(part, Fit) for part in parts):
            raise AttributeError(f"not all parts of this blend are the package's own: {HOW}")
        missed = np.stack([part.left_out(G, groups) for part in parts])
        for m, part in zip(missed, self.decoders if len(G) < n else ()):
            centers = getattr(part, "n_centers", None) or n
            if centers < n:  # no less than the fit itself misses, over the mean share of a sample in its field
                own = (G - part.fitted.decode(points * self.latent_scale)) / (1 - centers / n)
                larger = np.linalg.norm(own, axis=1) > np.linalg.norm(m, axis=1)
                m[larger] = own[larger]
        P, nearest = G - missed, nearest_other(points, labels)
        near = G[nearest] + (points - points[nearest]) @ self.trend
        return G - geometric_median(limited(P, near, np.inf if self.limit is None else self.limit), self.smoothing)

    def fields_of(self, G):
        return self.coefficients[0] + G @ self.coefficients[1:]

    @cached_property
    def linear_map(self) -> LinearMap:
        return LinearMap(self, self.coefficients, self.invariants)

    @property
    def leverage_parts(self) -> list[Any]:
        """The first three parts whose leverage is known; the median of three outvotes one."""
        return [part for part in self.decoders if isinstance(getattr(part, "fitted", None), Fit)][:3]

    @cached_property
    def leverage(self) -> Leverage:
        """The median of the parts' leverages in units of their limits."""
        parts = [part.fitted.leverage for part in self.leverage_parts]
        if not parts:
            raise AttributeError("the leverage of a blend is that of its parts, and of none of them it is known")

        def at(X: _Values) -> _Values:
            return np.median([part.relative(X) for part in parts], axis=0)

        points = self.training_points
        training = at(points)
        return Leverage(at, points, training, training, limit=FACTOR)

    def _parts(self, X):
        """Fields of the decoders before the limit (K, n, r), those that they must be near, and the limit."""
        # the blend has checked X
        parts = (part.fitted.decode if isinstance(part, HoldsFit) else part.predict for part in self.decoders)
        P = np.stack([decode(X).reshape(len(X), self.coordinates.shape[1]) for decode in parts])
        x = X / self.latent_scale
        nearest = self.index.query(x, 1)[1][:, 0]
        near = self.coordinates[nearest] + (x - self.points[nearest]) @ self.trend
        return P, near, np.inf if self.limit is None else self.limit

    def values(self, X: _Values) -> _Values:
        return geometric_median(limited(*self._parts(X)), self.smoothing)

    # -- Derivatives -------------------------------------------------------------------------------
    # x solves sum_k e_k / d_k = 0 with e_k = x - p_k and d_k = sqrt(|e_k|^2 + eps^2), so H dx = sum_k W_k dp_k with
    # W_k = (I - e_k e_k^T / d_k^2) / d_k and H = sum_k W_k; of one or two parts W_k = I / K and H = I. The limited
    # field p_k of a part that decodes q_k has dp_k = S_k dq_k + (I - S_k) dnear, near the field that it must be near,
    # and S_k = c_k (I - u_k u_k^T) with u_k the direction of q_k - near; c_k = 1 and u_k = 0 within the limit.
    def _linearised(self, X):
        """Numbers (K, n) and vectors (K, n, r) of the matrices S_k, those of W_k, and the solver of H x = t."""
        P, near, limit = self._parts(X)
        E = P - near
        factors, lengths = limit_factors(E, limit), np.linalg.norm(E, axis=2)[..., None]
        limits = factors, np.divide(E, lengths, out=np.zeros(P.shape), where=factors[..., None] < 1)
        P = limited(P, near, limit)
        if len(P) <= 2:
            return limits, (np.full(P.shape[:2], 1 / len(P)), np.zeros(P.shape)), lambda T: T
        E = geometric_median(P, self.smoothing) - P
        d = _smoothed_distances(E, self.smoothing)
        return limits, (1 / d, E / d[..., None]), lambda T: hessian_solve(E, d, T)

    def _combined(self, X, tangents, directions):
        """Derivatives of x from those of the parts, ``tangents(decoder)`` (n, c, r), along directions (n, c, d)."""
        limits, weights, solve = self._linearised(X)
        near = (directions / self.latent_scale) @ self.trend
        total = 0
        for decoder, c, u, w, v in zip(self.decoders, *limits, *weights):
            T = _across(tangents(decoder), c, u) + (near - _across(near, c, u))
            total = total + _across(T, w, v)
        return solve(total)

    def tangents(self, X: _Values, V: _Values | None) -> _Values:
        (n, d), r = X.shape, self.coordinates.shape[1]
        if V is not None:
            direction = V[:, 0]
            return self._combined(X, lambda part: part.jvp(X, direction).reshape(n, 1, r), V)
        coordinates = np.broadcast_to(np.eye(d), (n, d, d))
        return self._combined(X, lambda part: part.jacobian(X).reshape(n, r, d).transpose(0, 2, 1), coordinates)

    def contract(self, X: _Values, H: _Values) -> _Values:
        limits, weights, solve = self._linearised(X)
        H = solve(H[:, None, :])
        out = np.zeros(X.shape)
        for decoder, c, u, w, v in zip(self.decoders, *limits, *weights):
            T = _across(H, w, v)
            S = _across(T, c, u)
            out += ((T - S)[:, 0] @ self.trend.T) / self.latent_scale
            out += decoder.vjp(X, np.ascontiguousarray(S[:, 0]))
        return out


@shared_texts
@estimator
class BlendedDecoder(InvariantParameters, LinearDecoder, FieldRegressor):
    """The geometric median of the fields of several decoders: robust where some of them fail.

    Parameters
    ----------
    decoders
        The parts, such as `KernelDecoder` and `KNNDecoder`, without invariants and bounds of their own; cloned.
    limit
        Largest distance (L2 norm) of a part's field from the nearest training point's field, moved from there along the
        linear trend of the training fields; a field beyond it is moved back to that distance. None: no limit.

    Attributes
    ----------
    decoders_ : list
        The fitted parts. They decode to the coordinates of the field, not to the field.
    coef_ : ndarray (r+1, M)
        The mean training field, then the orthonormal directions whose coordinates the parts decode.

    Notes
    -----
    The geometric median x of fields f_1, ..., f_K minimises sum_k |x - f_k|: a convex combination, in which parts that
    agree outvote one that does not. The parts decode coordinates in an orthonormal basis of the training fields, of
    r <= min(n, M) directions, so a row costs K decodings of length r and one product r M. The projection on invariants
    and bounds is the last step. With a part that has no derivatives the blend has none.

    References
    ----------
    Y. Vardi and C.-H. Zhang, The multivariate L1-median and associated data depth, PNAS 97 (2000).

    Examples
    --------
    {curve}
    >>> from randsmap.decoders import BlendedDecoder
    >>> parts = [randsmap.KernelDecoder(length_scale=s, regularization=1e-8) for s in (0.3, 0.5, 0.8)]
    >>> BlendedDecoder(parts, invariants="mass").fit(latents, fields).predict([[0.5]]).round(4)
    array([[0.25, 0.75]])
    """

    _state = {**FIT_STATE, "_fitted": Part(BlendFit, d="d", M="M")}

    decoders: Sequence[Any] = parameter(kw_only=False, shown="list of regressors", of_columns=True)
    limit: float | None = parameter(float, default=None, words=(None,), low=0)

    def fit_state(self, X, y):
        limit = check_parameters(self)["limit"]
        self._check_parts()
        X, F, _, invariants = self._training_data(X, y)
        mean, G, B = principal_coordinates(F, invariants.cell_weights)
        scales = standard_deviations(X)
        points = X / scales
        return BlendFit(
            decoders=[_without_invariants(decoder).fit(X, G) for decoder in self.decoders],
            coefficients=cache_aligned(invariants.constrain_coefficients(np.vstack([mean, B]))),
            points=points,
            latent_scale=scales,
            coordinates=G,
            trend=linear_trend(points, G),
            limit=limit,
            smoothing=median_smoothing(G),
            invariants=invariants,
        )

    def _check_parts(self):
        if not isinstance(self.decoders, (list, tuple)) or not self.decoders:
            raise TypeError(f"decoders must be a list of decoders, got {self.decoders!r}")
        for i, part in enumerate(self.decoders):
            for name in ("invariants", "bounds"):
                value = getattr(part, name, None)
                if value is not None and not (isinstance(value, str) and value == "auto"):
                    raise ValueError(
                        f"decoders[{i}] has {name}={value!r}, but the parts decode coordinates of the fields, which do "
                        f"not keep them: give {name} to the BlendedDecoder, and None to its parts"
                    )

    decoders_ = of_fit("decoders")
    invariants_ = of_fit("invariants")

    def check_available(self, capability):
        if capability == "smoother":
            raise AttributeError(
                "the weights of a geometric median depend on the fields, so its fit is not linear in them"
            )
        return all(require(part, capability) for part in self.decoders)
