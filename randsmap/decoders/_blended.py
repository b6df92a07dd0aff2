"""The geometric median of several decoders' fields, kept near the training fields."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from randsmap._interface.arrays import cache_aligned
from randsmap._interface.parameters import Parameter, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Part, immutable, saved
from randsmap._interface.texts import shared_texts
from randsmap._kernels import linear_map as _kernel
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.scales import standard_deviations
from randsmap._linalg.svd import principal_coordinates
from randsmap._parallel import parallel_rows
from randsmap.decoders._base import FIT_STATE, FieldRegressor, Fit, HoldsFit, LinearDecoder, of_fit, require
from randsmap.invariants import AffineInvariants, InvariantParameters
from randsmap.maps.error_bar import HOW, judged_rows, nearest_other
from randsmap.maps.extrapolation import FACTOR, Leverage
from randsmap.maps.linear_map import Basis, LinearMap, mixture_basis

_Values = NDArray[np.float64]


def linear_trend(X: _Values, G: _Values) -> _Values:
    """Slopes (d, r) of the least-squares linear function of X (n, d), those of least norm."""
    return np.linalg.lstsq(X - X.mean(axis=0), G - G.mean(axis=0), rcond=None)[0]


def limited(P: _Values, near: _Values, limit: Any) -> _Values:
    """Fields P (..., n, r) no further than `limit` from the fields `near` (n, r): on the segment between both."""
    E = P - near
    distance = np.linalg.norm(E, axis=-1)[..., None]
    far = distance > limit
    return np.where(far, near + E * np.divide(limit, distance, out=np.ones_like(distance), where=far), P)


def geometric_median(P: _Values, smoothing: float) -> _Values:
    """The points x (n, r) of least sum of distances sqrt(|x - p|^2 + smoothing^2) to the points P (K, n, r)."""
    P, out = np.ascontiguousarray(P), np.empty(P.shape[1:])
    parallel_rows(lambda rows: _kernel.medians(P, rows.start, rows.stop, smoothing, out), len(out), 64)
    return out


def median_smoothing(G: _Values) -> float:
    """The smoothing of medians of fields with the coordinates G (n, r): 1e-9 of their root mean square."""
    return max(1e-9 * float(np.linalg.norm(G) / np.sqrt(len(G))), 1e-150)


def part_of(decoder: Any, share: float | None = None) -> Any:
    """A clone that decodes coordinates of the fields; with a share of the samples it has as much of lambda."""
    part, changed = clone(decoder), dict[str, Any](invariants=None)
    given = part.get_params(deep=False)
    if share is not None:
        value = given.get("regularization")
        has_lambda = isinstance(value, Real) and not isinstance(value, bool)
        changed |= {"n_centers": None, "regularization": share * float(value) if has_lambda else value}
    return part.set_params(**{name: value for name, value in changed.items() if name in given})


@immutable
class BlendFit(Fit):
    """A fit of a blend: the coordinates x(y) of the geometric median of several decoders' fields, and their directions.

    Each decoder's field is within `limit` of the nearest training point's field, moved from there to y along the linear
    trend of all fields. The fit is the basis of its `LinearMap`.
    """

    decoders: list[Any] = saved(Part("predict", many=True, n_in="d", n_out="r"))  # fitted parts
    coefficients: _Values = saved(Array("r+1", "M", single=True))  # mean field, directions that keep the invariants
    points: _Values = saved(Array("n", "d"))  # training points in units of `latent_scale`
    latent_scale: _Values = saved(Array("d", low=np.finfo(float).smallest_subnormal))
    coordinates: _Values = saved(Array("n", "r"))  # of the training fields
    trend: _Values = saved(Array("d", "r"))  # slopes of the linear trend
    limit: float | None = saved(Parameter(float, low=0, words=(None,)))
    smoothing: float = saved(Parameter(float, low=0))  # see `geometric_median`
    invariants: AffineInvariants = saved(Part(AffineInvariants, M="M"))
    bias: Any = saved(Array("M", optional=True), default=None)
    groups: Any = saved(Array("n", dtype=np.intp, low=0, optional=True), default=None)

    training_points = property(lambda self: self.points * self.latent_scale)
    rows = 256  # points per block: a few arrays (parts, rows, coordinates) are in memory

    index = cached_property(lambda self: NeighborIndex(self.points))
    training_fields = property(lambda self: self.coordinates[judged_rows(len(self.coordinates))])

    def left_out(self, G, groups=None):
        labels = None if groups is None else np.empty(len(G), np.intp)
        for number, g in enumerate(groups or ()):
            labels[g] = number
        points, decoders, n = self.points, self.decoders, len(self.points)
        centers = [min(getattr(part, "n_centers", None) or n, n) for part in decoders]
        if len(G) < n or min(centers) < n:  # fits to these points, since matrices of all would not fit in memory
            points = points[judged_rows(n)]
            decoders = [
                part_of(part, len(G) / n).fit(points * self.latent_scale, G) if min(m, len(G)) < n else part
                for part, m in zip(decoders, centers)
            ]
        parts = [getattr(part, "fitted", None) for part in decoders]
        if not all(isinstance(part, Fit) for part in parts):
            raise AttributeError(f"some parts of this blend are not decoders of this package: {HOW}")
        missed = np.stack([part.left_out(G, groups) for part in parts])
        for m, part, count in zip(missed, self.decoders, centers):
            if count < n:  # the least error is that of the fit: a sample's mean share in its field is count / n at most
                own = (G - part.fitted.decode(points * self.latent_scale)) / (1 - min(count / n, 0.5))
                larger = np.linalg.norm(own, axis=1) > np.linalg.norm(m, axis=1)
                m[larger] = own[larger]
        P, nearest = G - missed, nearest_other(points, labels)
        near = G[nearest] + (points - points[nearest]) @ self.trend
        return G - geometric_median(limited(P, near, np.inf if self.limit is None else self.limit), self.smoothing)

    def fields_of(self, G):
        return self.coefficients[0] + G @ self.coefficients[1:]

    @property
    def maps(self) -> list[Any]:
        """The parts' maps, None of one that C does not know."""
        maps = [part.fitted.linear_map if isinstance(part, HoldsFit) else None for part in self.decoders]
        return [found if isinstance(getattr(found, "basis", None), Basis) else None for found in maps]

    @cached_property
    def linear_map(self) -> LinearMap:
        known = None not in self.maps
        return LinearMap(self._median(known) if known else self, self.coefficients, self.invariants, None, self.bias)

    def _median(self, known):
        """The functions of C: the median of the fields of the parts or, if a part is unknown to C, of given fields."""
        limit, (d, r), arrays = np.inf if self.limit is None else self.limit, self.trend.shape, {}
        if known and limit < np.inf:
            near = mixture_basis(self.training_points, self.latent_scale, 1).arrays
            arrays = near | {"near_fields": self.coordinates, "trend": self.trend}
        return Basis(
            kind=_kernel.MEDIAN,
            n_components=d if known else (len(self.decoders) + 1) * r,
            limit=limit,
            smoothing=self.smoothing,
            arrays=arrays,
            parts=tuple(self.maps) if known else (),
        )

    of_values = property(lambda self: self._median(False))

    @property
    def not_frozen(self) -> str:
        return f"C does not support one of its parts, {type(self.decoders[self.maps.index(None)]).__name__}"

    @property
    def leverage_parts(self) -> list[Any]:
        """The first three parts whose leverage is known; the median of three outvotes one."""
        return [part for part in self.decoders if isinstance(getattr(part, "fitted", None), Fit)][:3]

    @cached_property
    def leverage(self) -> Leverage:
        """The median of the parts' leverages in units of their limits."""
        parts = [part.fitted.leverage for part in self.leverage_parts]
        if not parts:
            raise AttributeError("no part of this blend has a leverage")

        def at(X: _Values) -> _Values:
            return np.median([part.relative(X) for part in parts], axis=0)

        training = at(self.training_points)
        return Leverage(at, self.training_points, training, training, limit=FACTOR)

    # -- Parts unknown to C: their fields side by side, and the fields that they must be near ----------------
    def values(self, X: _Values) -> _Values:
        # the blend has checked X
        parts = (part.fitted.decode if isinstance(part, HoldsFit) else part.predict for part in self.decoders)
        x = X / self.latent_scale
        nearest = self.index.query(x, 1)[1][:, 0]
        near = self.coordinates[nearest] + (x - self.points[nearest]) @ self.trend
        return np.hstack([*(decode(X).reshape(len(X), -1) for decode in parts), near])

    def tangents(self, X: _Values, V: _Values | None) -> _Values:
        n, d = X.shape
        if V is None:
            J = [part.jacobian(X).reshape(n, -1, d).transpose(0, 2, 1) for part in self.decoders]
            V = np.broadcast_to(np.eye(d), (n, d, d))
        else:
            J = [part.jvp(X, V[:, 0]).reshape(n, 1, -1) for part in self.decoders]
        return np.concatenate([*J, (V / self.latent_scale) @ self.trend], axis=2)

    def contract(self, X: _Values, H: _Values) -> _Values:
        *parts, near = np.split(H, len(self.decoders) + 1, axis=1)
        out = near @ self.trend.T / self.latent_scale
        for decoder, u in zip(self.decoders, parts):
            out += decoder.vjp(X, np.ascontiguousarray(u))
        return out


@shared_texts
@estimator
class BlendedDecoder(InvariantParameters, LinearDecoder, FieldRegressor):
    """The geometric median of the fields of several decoders, which is robust where some decoders fail.

    `AutoDecoder` returns such a blend of its best candidates. Decoding costs as much as with all parts. If this is too
    slow, use one part, or freeze the blend with ``distil=``.

    Parameters
    ----------
    decoders
        The parts, such as `KernelDecoder` and `KNNDecoder`, without invariants and bounds of their own; cloned.
    limit
        Largest distance (L2 norm) of a part's field from that of the nearest training point, continued by the linear
        trend of the training fields. A field beyond the limit is moved back to it. None: no limit.

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
        return BlendFit(
            decoders=[part_of(decoder).fit(X, G) for decoder in self.decoders],
            coefficients=cache_aligned(invariants.constrain_coefficients(np.vstack([mean, B]))),
            points=X / scales,
            latent_scale=scales,
            coordinates=G,
            trend=linear_trend(X / scales, G),
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
                "the weights of a geometric median depend on the fields: its fit is not linear in them"
            )
        return all(require(part, capability) for part in self.decoders)
