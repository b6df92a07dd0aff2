"""The functions phi of the latent point of which decoded fields [1 | phi(y)] A are made, and their derivatives.

A basis has `size`, the number of functions; ``decode(X, A, projection, out, first)``, which puts the
fields of the points X (n, d) into out (n, M), each row projected unless projection is None; and

- ``gradients(X)``, (n d, P): d rows a point, one for each latent coordinate,
- ``directional(X, V)``, (n, P): derivatives along the rows of V (n, d),
- ``contract(X, H)``, (n, d): gradients of sum_k H_k phi_k.
- ``frozen()``: the `FrozenBasis` by which C evaluates it; TypeError, which says why, if it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.state import Array, Part
from randsmap._interface.validation import check_matrix
from randsmap._kernels import decode as _decode_kernel
from randsmap._kernels import frozen as _frozen
from randsmap._kernels import gradients as _kernel
from randsmap._kernels.distances import DIRECT_DIM
from randsmap._linalg.rows import feature_matrix
from randsmap._parallel import FEW, MAX_TILE, TILE_ENTRIES, for_tiles
from randsmap.features import polynomial_jacobian
from randsmap.invariants._bounds import STALLED

__all__ = [
    "FeatureMapBasis",
    "FrozenBasis",
    "IdentityBasis",
    "KernelBasis",
    "ReducedBasis",
    "TailedBasis",
    "TransformerBasis",
    "feature_basis",
    "in_units",
    "polynomial_jacobian",
    "refuse_overflow",
]

_LARGEST = np.finfo(float).max
_CHUNK = 8192  # rows that another transformer maps at a time: bounded memory


@dataclass
class FrozenBasis:
    """A basis as images hold it (rk_image.h): its kind, the number of its activation or kernel, and its arrays.

    With `output_coef` B (P+1, r) fields are made of [1 | phi] B, and an image has the two factors of coefficients.
    """

    kind: int
    n_components: int
    function: int = 0
    scale: float = 0.0
    low: float = 0.0
    high: float = 0.0
    arrays: dict[str, NDArray[np.float64] | None] = field(default_factory=dict)
    output_coef: NDArray[np.float64] | None = None


def _in_tiles(tile, X, A, projection, out, first, most=MAX_TILE):
    """tile(rows of X, A, projection, rows of out) over all rows; it says which row overflows, or -1."""
    if len(X) <= FEW:  # one row must cost microseconds
        bad = tile(X, A, projection, out)
        if bad != -1:
            refuse_overflow(bad, first)
        return

    def task(a, b):
        bad = tile(X[a:b], A, projection, out[a:b])
        if bad != -1:
            refuse_overflow(bad, a + first)

    for_tiles(task, len(X), most)


def refuse_overflow(bad: int, first: int) -> NoReturn:
    """ValueError for what a kernel says of the rows from `first` on: i if row i overflows, -2 - i if its projection
    does not converge."""
    if bad < -1:
        raise ValueError(f"the projection of the field at row {first - 2 - bad} of X on its invariants {STALLED}")
    raise ValueError(
        f"the field at row {first + bad} of X is too large for floating-point numbers, so it cannot satisfy its "
        "invariants: its latent point is too far away"
    )


class IdentityBasis:
    """The coordinates themselves: phi(y) = y, of length `size`."""

    constant_gradients = True

    def __init__(self, size: int) -> None:
        self.size = size

    def decode(
        self, X: NDArray[np.float64], A: NDArray[np.float64], projection: Any, out: NDArray[np.float64], first: int = 0
    ) -> None:
        _in_tiles(_decode_kernel.decode_features, X, A, projection, out, first)

    def frozen(self) -> FrozenBasis:
        return FrozenBasis(_frozen.IDENTITY, self.size)

    def gradients(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.tile(np.eye(self.size), (len(X), 1))

    def directional(self, X: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
        return V

    def contract(self, X: NDArray[np.float64], H: NDArray[np.float64]) -> NDArray[np.float64]:
        return H


class ReducedBasis:
    """The combinations [1 | phi(y)] B of another basis: the coordinates of fields in few modes.

    B is (P+1, r), its first row the bias.
    """

    constant_gradients = False

    def __init__(self, basis: Any, B: NDArray[np.float64]) -> None:
        self.size = B.shape[1]
        self.functions, self._B, self._modes = basis, B, IdentityBasis(B.shape[1])

    def decode(
        self, X: NDArray[np.float64], A: NDArray[np.float64], projection: Any, out: NDArray[np.float64], first: int = 0
    ) -> None:
        Z = np.empty((len(X), self.size))
        if self.size:
            self.functions.decode(X, self._B, None, Z, first)
        self._modes.decode(Z, A, projection, out, first)

    def frozen(self) -> FrozenBasis:
        return replace(self.functions.frozen(), output_coef=self._B)

    def gradients(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.functions.gradients(X) @ self._B[1:]

    def directional(self, X: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.functions.directional(X, V) @ self._B[1:]

    def contract(self, X: NDArray[np.float64], H: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.functions.contract(X, H @ self._B[1:].T)


def feature_basis(features: Any) -> FeatureMapBasis | TransformerBasis:
    """The basis of a fitted feature map, the package's own or any transformer."""
    return (FeatureMapBasis if hasattr(features, "activation_parameters") else TransformerBasis)(features)


class FeatureMapBasis:
    """The package's own feature maps: scale * act(w_k . y + b_k)."""

    constant_gradients = False

    def __init__(self, features: Any) -> None:
        self._features = features
        self._read()
        self.size = self._weights.shape[1]

    def _read(self):
        self._activation, self._weights, self._offsets, self._scale = self._features.activation_parameters()

    def _check(self, X):
        """The kernels trust shapes: whoever replaces the map's arrays must not make them read beyond one."""
        features = self._features
        if features.weights_ is not self._weights or features.offsets_ is not self._offsets:
            self._read()
        d, P = self._weights.shape
        if P != self.size or self._offsets.shape != (P,) or X.shape[1] != d:
            raise ValueError(
                f"the feature map was changed after fit: it now takes {d} coordinates to {P} features, the "
                f"decoder has coefficients for {X.shape[1]} coordinates and {self.size} features"
            )

    def decode(
        self, X: NDArray[np.float64], A: NDArray[np.float64], projection: Any, out: NDArray[np.float64], first: int = 0
    ) -> None:
        self._check(X)
        _in_tiles(self._tile, X, A, projection, out, first)

    def _tile(self, X, A, projection, out):
        return _decode_kernel.decode(self._activation, X, self._weights, self._offsets, self._scale, A, projection, out)

    def frozen(self) -> FrozenBasis:
        d = len(self._features.weights_)
        self._check(np.empty((0, d)))
        arrays = {"weights": self._weights, "offsets": self._offsets}
        return FrozenBasis(_frozen.FEATURE_MAP, d, self._activation, self._scale, arrays=arrays)

    def _slopes(self, X):
        self._check(X)
        S = np.empty((len(X), self.size))
        _kernel.slopes(self._activation, X, self._weights, self._offsets, self._scale, S)
        return S

    def gradients(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        (n, d), P = X.shape, self.size
        out = np.empty((n, d, P))
        _kernel.gradients(self._slopes(X), None, self._weights, out)
        return out.reshape(n * d, P)

    def directional(self, X: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
        S = self._slopes(X)
        _kernel.directional(S, None, self._weights, V, S)
        return S

    def contract(self, X: NDArray[np.float64], H: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.empty(X.shape)
        _kernel.contract(self._slopes(X), None, self._weights, np.ascontiguousarray(H), out)
        return out


class TransformerBasis:
    """Any other transformer; derivatives from its ``jacobian(Y)``, or known for PolynomialFeatures."""

    constant_gradients = False

    def __init__(self, features: Any) -> None:
        self._features, self.size = features, None  # the width of another's transform is known from its rows

    def decode(
        self, X: NDArray[np.float64], A: NDArray[np.float64], projection: Any, out: NDArray[np.float64], first: int = 0
    ) -> None:
        for start in range(0, len(X), _CHUNK):
            part = slice(start, start + _CHUNK)
            Z = feature_matrix(self._features, X[part], len(A) - 1)
            _in_tiles(_decode_kernel.decode_features, Z, A, projection, out[part], first + start)

    def frozen(self) -> FrozenBasis:
        raise TypeError(
            f"a decoder with features of {type(self._features).__name__} cannot be frozen: C knows the package's own "
            "feature maps and kernels alone"
        )

    def jacobian(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivatives (n, P, d) of the transform."""
        features = self._features
        if hasattr(features, "jacobian"):
            J = np.asarray(features.jacobian(X), dtype=np.float64)
        else:
            from sklearn.preprocessing import PolynomialFeatures

            if not isinstance(features, PolynomialFeatures):
                raise TypeError(
                    f"the derivative of the features of {type(features).__name__} is not known: it "
                    "needs a method jacobian(Y) that gives the derivatives (n, P, d) of transform(Y)"
                )
            J = polynomial_jacobian(features.powers_, X)
        if J.ndim != 3 or J.shape[0] != len(X) or J.shape[2] != X.shape[1]:
            raise ValueError(f"the features' jacobian(Y) must have shape ({len(X)}, P, {X.shape[1]}), got {J.shape}")
        return J

    def gradients(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        J = self.jacobian(X)
        return check_matrix(J.transpose(0, 2, 1).reshape(-1, J.shape[1]), "the features' jacobian")

    def directional(self, X: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
        return check_matrix(np.einsum("nkj,nj->nk", self.jacobian(X), V), "the features' jacobian")

    def contract(self, X: NDArray[np.float64], H: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.einsum("nkj,nk->nj", self.jacobian(X), H)


class ScaledTransformer:
    """A fitted transformer of points in units of `scale` (d,), as a transformer of points as they are."""

    _state = {
        "transformer": Part("transform", n_in="d", n_out="P"),
        "scale": Array("d", low=np.finfo(float).smallest_subnormal),
    }

    def __init__(self, transformer: Any, scale: NDArray[np.float64]) -> None:
        self.transformer, self.scale = transformer, scale

    @property
    def n_features_in_(self) -> int:
        return len(self.scale)

    @property
    def _n_features_out(self):
        return self.transformer._n_features_out

    def transform(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Features of points X (n, d)."""
        return self.transformer.transform(in_units(X, self.scale))

    def jacobian(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivatives (n, P, d) of `transform`."""
        return TransformerBasis(self.transformer).jacobian(in_units(X, self.scale)) / self.scale


def in_units(Y: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Y / lengths; no further than the largest number."""
    with np.errstate(over="ignore"):
        X = Y / lengths
    return X if np.isfinite(X).all() else np.clip(X, -_LARGEST, _LARGEST)


class TailedBasis:
    """The functions of another basis, then the coordinates (y - centre) / lengths: a linear tail."""

    constant_gradients = False

    def __init__(self, basis: KernelBasis, centre: NDArray[np.float64], lengths: NDArray[np.float64]) -> None:
        self.basis, self.centre, self.lengths = basis, centre, lengths
        self.size = basis.size + len(centre)

    def decode(
        self, X: NDArray[np.float64], A: NDArray[np.float64], projection: Any, out: NDArray[np.float64], first: int = 0
    ) -> None:
        most = max(32, TILE_ENTRIES // self.size)
        _in_tiles(self._tile, X, A, projection, out, first, most)

    def _tile(self, X, A, projection, out):
        basis = self.basis
        Z = np.concatenate([basis.values(basis.scaled(X)), in_units(X - self.centre, self.lengths)], axis=1)
        return _decode_kernel.decode_features(Z, A, projection, out)

    def frozen(self) -> FrozenBasis:
        basis = self.basis.frozen()
        basis.arrays.update(tail_centre=self.centre, lengths=self.lengths)
        return basis

    def gradients(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        slopes = np.tile(np.diag(1 / self.lengths), (len(X), 1))
        return np.concatenate([self.basis.gradients(X), slopes], axis=1)

    def directional(self, X: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([self.basis.directional(X, V), V / self.lengths], axis=1)

    def contract(self, X: NDArray[np.float64], H: NDArray[np.float64]) -> NDArray[np.float64]:
        size = self.basis.size
        return self.basis.contract(X, np.ascontiguousarray(H[:, :size])) + H[:, size:] / self.lengths


class KernelBasis:
    """A radial kernel g(|x - z|^2) at fixed points z, x = y / lengths, or combinations of these functions.

    Parameters
    ----------
    kernel : object
        ``kernel.values(X, Z)`` is g, ``kernel.slopes(X, Z)`` is 2 g', each (n, n_points); ``kernel.frozen()`` its
        entries of a `FrozenBasis`.
    points : ndarray (n_points, d)
        z, in units of the lengths.
    weights : ndarray (n_points, P) or None
        The functions are k(y) weights; None: the kernel itself.
    lengths : ndarray (d,) or None
    """

    constant_gradients = False

    def __init__(
        self,
        kernel: Any,
        points: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        lengths: NDArray[np.float64] | None = None,
    ) -> None:
        self.kernel, self.points, self.weights, self.lengths = kernel, points, weights, lengths
        self.size = len(points) if weights is None else weights.shape[1]
        self._columns = np.ascontiguousarray(points.T)
        self._moderate = lengths is not None and lengths.min() > 1e-100

    def scaled(self, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points in units of the lengths."""
        if self.lengths is None:
            return Y
        # a third of the time of `in_units`, for one row that cannot overflow
        if self._moderate and Y.size <= 64 and np.vdot(Y, Y) < 1e200:
            return Y / self.lengths
        return in_units(Y, self.lengths)

    def values(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The functions (n, P) at points in units of the lengths."""
        K = self.kernel.values(X, self.points)
        if self.weights is None:
            return K
        if len(X) > FEW:
            return K @ self.weights
        # large weights cancel: the sums of C, so that frozen decoders agree
        out = np.zeros((len(X), self.size))
        _decode_kernel.add_rows(K, self.weights, out)
        return out

    def in_blocks(
        self, Y: NDArray[np.float64], function: Callable[[NDArray[np.float64], slice], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """``function(K, rows)``, one number a row, of the kernel K (m, n_points) at rows of the points Y (n, d)."""
        X, out, step = self.scaled(Y), np.empty(len(Y)), max(32, TILE_ENTRIES // len(self.points))
        for a in range(0, len(X), step):
            rows = slice(a, a + step)
            out[rows] = function(self.kernel.values(X[rows], self.points), rows)
        return out

    def decode(
        self, X: NDArray[np.float64], A: NDArray[np.float64], projection: Any, out: NDArray[np.float64], first: int = 0
    ) -> None:
        most = max(32, TILE_ENTRIES // len(self.points))  # never the whole kernel (n, n_points)
        _in_tiles(self._tile, self.scaled(X), A, projection, out, first, most)

    def _tile(self, X, A, projection, out):
        return _decode_kernel.decode_features(self.values(X), A, projection, out)

    def frozen(self) -> FrozenBasis:
        d = self.points.shape[1]
        arrays = {"columns": self._columns, "lengths": self.lengths, "combinations": self.weights}
        if d > DIRECT_DIM:
            arrays["points"] = self.points
        return FrozenBasis(n_components=d, arrays=arrays, **self.kernel.frozen())

    def _slopes(self, Y):
        X = self.scaled(Y)
        return X, self.kernel.slopes(X, self.points)

    def gradients(self, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        X, S = self._slopes(Y)
        out = np.empty((len(X), X.shape[1], S.shape[1]))
        _kernel.gradients(S, X, self._columns, out)
        if self.lengths is not None:
            out /= self.lengths[:, None]
        out = out.reshape(-1, S.shape[1])
        return out if self.weights is None else out @ self.weights

    def directional(self, Y: NDArray[np.float64], V: NDArray[np.float64]) -> NDArray[np.float64]:
        X, S = self._slopes(Y)
        _kernel.directional(S, X, self._columns, V if self.lengths is None else V / self.lengths, S)
        return S if self.weights is None else S @ self.weights

    def contract(self, Y: NDArray[np.float64], H: NDArray[np.float64]) -> NDArray[np.float64]:
        X, S = self._slopes(Y)
        if self.weights is not None:
            H = H @ self.weights.T
        out = np.empty(X.shape)
        _kernel.contract(S, X, self._columns, np.ascontiguousarray(H), out)
        return out if self.lengths is None else out / self.lengths
