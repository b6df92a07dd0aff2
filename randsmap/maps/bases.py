"""The functions phi of the latent point of which decoded fields [1 | phi(y)] A are made.

C evaluates a `Basis`, which is a few numbers and arrays (rk_image.h). Other functions are evaluated here, and C gets
their values; they are an object with

- ``values(X)``, (n, P): the functions at points X (n, d), and `rows`, the number of points to map at a time,
- ``gradients(X)``, (n d, P): d rows per point, one for each latent coordinate,
- ``directional(X, V)``, (n, P): derivatives along the rows of V (n, d),
- ``contract(X, H)``, (n, d): gradients of sum_k H_k phi_k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.arrays import as_array
from randsmap._interface.state import NOT_SAVED, Array, Part
from randsmap._kernels import linear_map as _kernel
from randsmap._kernels.distances import DIRECT_DIM
from randsmap._linalg.rows import feature_matrix
from randsmap._parallel import TILE_ENTRIES
from randsmap.features import polynomial_jacobian

_Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Functions that C evaluates: their kind, the number of their activation or kernel, and arrays.

    With `combinations` B (P+1, size) of P functions phi these are the functions [1 | phi] B.
    """

    kind: int
    n_components: int
    size: int
    function: int = 0
    scale: float = 0.0
    low: float = 0.0
    high: float = 0.0
    arrays: dict[str, _Values] = field(default_factory=dict)
    combinations: _Values | None = None

    def coefficients(self, A: _Values) -> dict[str, _Values]:
        """Bias and coefficients, or two factors of them, of the fields [1 | functions] A."""
        B = self.combinations
        if B is None:
            return {"bias": A[0], "coefficients": A[1:]}
        return {"bias": A[0] + B[0] @ A[1:], "factor": np.ascontiguousarray(B[1:]), "modes": A[1:]}


def identity_basis(size: int) -> Basis:
    """The coordinates themselves: phi(y) = y, of length `size`."""
    return Basis(kind=_kernel.IDENTITY, n_components=size, size=size)


def reduced_basis(basis: Any, B: _Values) -> Any:
    """The combinations [1 | phi(y)] B of another basis, B (P+1, r): the coordinates of fields in few modes."""
    if isinstance(basis, Basis):
        return replace(basis, size=B.shape[1], combinations=B)
    return TransformerBasis(basis.transformer, basis.scale, B)


def tailed_basis(basis: Basis, centre: _Values, lengths: _Values) -> Basis:
    """The functions of a kernel, then the coordinates (y - centre) / lengths: a linear tail."""
    arrays = {**basis.arrays, "tail_centre": centre, "lengths": lengths}
    return replace(basis, size=basis.size + len(centre), arrays=arrays)


def feature_basis(features: Any) -> Basis | TransformerBasis:
    """The basis of a fitted feature map, the package's own or any transformer."""
    if isinstance(features, TransformerBasis):
        return features
    if not hasattr(features, "activation_parameters"):
        return TransformerBasis(features)
    activation, weights, offsets, scale = features.activation_parameters()
    return Basis(
        kind=_kernel.FEATURE_MAP,
        n_components=len(weights),
        size=weights.shape[1],
        function=activation,
        scale=scale,
        arrays={"weights": weights, "offsets": offsets},
    )


def kernel_basis(kernel: Any, points: _Values, weights: _Values | None = None, lengths: _Values | None = None) -> Basis:
    """A radial kernel g(|x - z|^2) at points z (n, d), x = y / lengths and z in these units.

    With weights (n, P) the functions are its combinations. ``kernel.frozen()`` gives the kernel's entries of a `Basis`.
    """
    n, d = points.shape
    arrays = {"columns": np.ascontiguousarray(points.T)}
    if d > DIRECT_DIM:
        arrays["points"] = points
    if lengths is not None:
        arrays["lengths"] = lengths
    basis = Basis(n_components=d, size=n, arrays=arrays, **kernel.frozen())
    if weights is None:
        return basis
    return reduced_basis(basis, np.vstack([np.zeros((1, weights.shape[1])), weights]))


def in_blocks(
    kernel: Any, points: _Values, X: _Values, function: Callable[[_Values, slice], _Values]
) -> NDArray[np.float64]:
    """``function(K, rows)``, one number per row, of the kernel K (m, n_points) at rows of X (n, d), in its units."""
    out, step = np.empty(len(X)), max(32, TILE_ENTRIES // len(points))
    for a in range(0, len(X), step):
        rows = slice(a, a + step)
        out[rows] = function(kernel.values(X[rows], points), rows)
    return out


class TransformerBasis:
    """Any other transformer, of points in units of `scale` (d,), or combinations [1 | phi] B of its features.

    Derivatives come from its ``jacobian(Y)``, or are known for PolynomialFeatures.
    """

    _state = {
        "transformer": Part("transform", n_in="d", n_out="P"),
        "scale": Array("d", low=np.finfo(float).smallest_subnormal),
        "combinations": NOT_SAVED,  # none of a fit's features
    }

    rows = 8192  # that a transformer maps at a time: bounded memory
    combinations: _Values | None = None

    def __init__(self, transformer: Any, scale: _Values | None = None, combinations: _Values | None = None) -> None:
        self.transformer, self.scale, self.combinations = transformer, scale, combinations

    @property
    def size(self) -> int | None:
        """Number of functions; None: known from the rows of a transform."""
        return None if self.combinations is None else self.combinations.shape[1]

    @property
    def n_features_in_(self) -> int:
        return int(self.transformer.n_features_in_)

    @property
    def _n_features_out(self):
        return len(self.transformer.get_feature_names_out())

    def transform(self, X: _Values) -> Any:
        """Features of points X (n, d)."""
        return self.transformer.transform(self._in_units(X))

    def _in_units(self, X):
        return X if self.scale is None else in_units(X, self.scale)

    def values(self, X: _Values) -> _Values:
        B = self.combinations
        return feature_matrix(self, X) if B is None else B[0] + feature_matrix(self, X, len(B) - 1) @ B[1:]

    def jacobian(self, X: _Values) -> _Values:
        """Derivatives (n, P, d) of the transform."""
        transformer, Y = self.transformer, self._in_units(X)
        if hasattr(transformer, "jacobian"):
            J = np.asarray(transformer.jacobian(Y), dtype=np.float64)
        else:
            from sklearn.preprocessing import PolynomialFeatures

            if not isinstance(transformer, PolynomialFeatures):
                raise TypeError(
                    f"the derivative of the features of {type(transformer).__name__} is not known: it "
                    "needs a method jacobian(Y) that gives the derivatives (n, P, d) of transform(Y)"
                )
            J = polynomial_jacobian(transformer.powers_, Y)
        if J.ndim != 3 or J.shape[0] != len(X) or J.shape[2] != X.shape[1]:
            raise ValueError(f"the features' jacobian(Y) must have shape ({len(X)}, P, {X.shape[1]}), got {J.shape}")
        return J if self.scale is None else J / self.scale

    def _with_combinations(self, G):
        G = as_array(G, "the features' jacobian")
        return G if self.combinations is None else G @ self.combinations[1:]

    def gradients(self, X: _Values) -> _Values:
        J = self.jacobian(X)
        return self._with_combinations(J.transpose(0, 2, 1).reshape(-1, J.shape[1]))

    def directional(self, X: _Values, V: _Values) -> _Values:
        return self._with_combinations(np.einsum("nkj,nj->nk", self.jacobian(X), V))

    def contract(self, X: _Values, H: _Values) -> _Values:
        B = self.combinations
        return np.einsum("nkj,nk->nj", self.jacobian(X), H if B is None else H @ B[1:].T)

    @property
    def not_frozen(self) -> str:
        return (
            f"C does not know the features of {type(self.transformer).__name__}. Fit one with random features, such as "
            "features=FourierFeatures(), or a KernelDecoder, and freeze that"
        )


def in_units(Y: _Values, lengths: _Values) -> _Values:
    """Y / lengths; no further than the largest number."""
    X = np.empty(Y.shape)
    _kernel.in_units(np.ascontiguousarray(Y), np.ascontiguousarray(lengths), X)
    return X
