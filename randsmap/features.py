"""Feature maps of latent coordinates: the fixed, nonlinear first layer of the decoders.

Each is a scikit-learn transformer from latent points (n, d) to features (n, P), without the bias column (decoders add
it). The random ones have the form ``scale * act(X @ weights_ + offsets_)``.
"""

from __future__ import annotations

import numbers
from functools import partial
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from randsmap._interface import parameters
from randsmap._interface.arrays import as_array, check_out, validate_data
from randsmap._interface.callers import public
from randsmap._interface.parameters import check_count, check_number, check_parameters, document, estimator, parameter
from randsmap._interface.state import Array, Count, check_fitted, restored_on_error
from randsmap._kernels import gradients as _gradient_kernel
from randsmap._kernels.features import COSINE, LOGISTIC
from randsmap._kernels.features import features as _feature_kernel
from randsmap._parallel import blas_threads, parallel_rows

__all__ = ["FourierFeatures", "MaternFeatures", "MonomialFeatures", "MultiscaleFourierFeatures", "SigmoidFeatures"]

_Values = NDArray[np.float64]


# -- The paper's draws -----------------------------------------------------------------------------
def draw_gaussian_frequencies(rng: Any, d: int, P: int, length_scale: Any) -> _Values:
    """Frequencies w_k ~ N(0, diag(length_scale)^-2) of Eq. 23, as columns of (d, P).

    The paper's "sigma_w" is this length scale, that of the kernel exp(-|z - z'|^2 / (2 length_scale^2)).
    """
    return rng.standard_normal((P, d)).T / np.broadcast_to(length_scale, d)[:, None]


def draw_orthogonal_frequencies(rng: Any, d: int, P: int, length_scale: Any) -> _Values:
    """Gaussian frequencies orthogonal in groups of d, as columns of (d, P): Haar directions, independent lengths."""
    groups = -(-P // d)
    with blas_threads(1):  # bit-identical for any number of threads
        Q, R = np.linalg.qr(rng.standard_normal((groups, d, d)))
    Q *= np.sign(R.diagonal(axis1=1, axis2=2))[:, None, :]
    lengths = np.linalg.norm(rng.standard_normal((groups, d, d)), axis=1)
    frequencies = (Q * lengths[:, None, :]).transpose(1, 0, 2).reshape(d, groups * d)[:, :P]
    return frequencies / np.broadcast_to(length_scale, d)[:, None]


def draw_phases(rng: Any, P: int) -> _Values:
    """Phases b_k ~ U[0, 2 pi) of Eq. 23, as (P,)."""
    return rng.uniform(0.0, 2 * np.pi, P)


def draw_multiscale_frequencies(rng: Any, d: int, P: int, Q: int, low: float, high: float) -> tuple[_Values, _Values]:
    """Frequencies w_ql ~ N(0, sigma_q^2 I) of Eq. 43, (d, P), and their Q scales sigma_q ~ U[low, high)."""
    scales = rng.uniform(low, high, Q)
    return rng.standard_normal((P, d)).T * np.repeat(scales, P // Q + (np.arange(Q) < P % Q)), scales


def draw_centers(rng: Any, X: _Values, P: int) -> _Values:
    """Sigmoid centres, uniform in the bounding box of the points X (paper App. D), as (P, d)."""
    low, high = X.min(axis=0), X.max(axis=0)
    u = rng.uniform(0.0, 1.0, (P, X.shape[1]))
    # a convex combination does not overflow, but rounding may leave a flat box
    return np.clip((1 - u) * low + u * high, low, high)


# -- Parameters ------------------------------------------------------------------------------------
def check_length_scale(length_scale: Any, d: int, name: str = "length_scale") -> Any:
    """Length scale(s): a positive float, or a vector (d,) of them."""
    if np.ndim(length_scale) == 0:
        return check_number(length_scale, name, low=0.0, strict_low=True)
    length_scale = as_array(length_scale, name, (d,)).copy()
    if (length_scale <= 0).any():
        raise ValueError(f"{name} must be > 0 in each coordinate, got {length_scale}")
    return length_scale


def check_frequency_range(low: float, high: float) -> tuple[float, float]:
    """Ends of the interval of scales sigma_q, low < high."""
    if not low < high:
        raise ValueError(f"max_frequency must be above min_frequency ({low:g}), got {high:g}")
    return float(low), float(high)


def check_latent_box(latent_box: Any, d: int) -> _Values:
    """A box of latent points given as (low, high), numbers or vectors, as (2, d)."""
    try:
        low, high = np.asarray(latent_box) if hasattr(latent_box, "iloc") else latent_box  # the rows of a table
    except (TypeError, ValueError):
        expected = f"(low, high), two numbers or two vectors of length {d}"
        raise ValueError(f"latent_box must be {expected}, got {latent_box!r}") from None
    ends = [np.full(d, check_number(end, "latent_box")) if np.ndim(end) == 0 else end for end in (low, high)]
    box = np.stack([as_array(end, "latent_box", (d,)) for end in ends])
    if (box[0] > box[1]).any():
        raise ValueError(f"latent_box must have low <= high in each coordinate, got {latent_box!r}")
    return box


_TEXTS = {
    "points": """\
X : array-like of shape (n, d)
    Latent points.""",
    "out": """\
out : ndarray of shape (n, P), C-contiguous, of the type of the result, default=None
    Array for the result. New memory costs as much time as the features: pass `out` when calling repeatedly.""",
    "returns_features": """\
features : ndarray of shape (n, P)
    float32 if X is float32, else float64; `out` if given. A float32 result is the float64 one, rounded.""",
    "returns_monomials": "ndarray of shape (n, P), float64",
    "ignored": "y : ignored",
    "latent_scale": """\
latent_scale : array-like of shape (d,), default=None
    Units in which lengths and slopes are meant: the map of X / latent_scale is drawn, and its weights are then divided
    by the units, so that `transform` takes points as they are. None: 1.""",
    "returns_fit": """\
self

Raises
------
TypeError, ValueError
    If X is not a finite matrix, or a parameter of the map is out of its range. The map keeps the state it had.""",
    "returns_jacobian": """\
ndarray of shape (n, P, d), float64
    d phi_k / d y_j, without overflow.""",
    "raises": """\
sklearn.exceptions.NotFittedError
    Before `fit`.
ValueError, TypeError
    If X is not a finite matrix with the number of columns seen in `fit`.""",
}
_documented = partial(document, texts=_TEXTS)


# -- Transformers ----------------------------------------------------------------------------------
@_documented
@estimator
class _RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A map scale * act(X @ weights_ + offsets_). A subclass has `draw`, and `_activation` unless it is the cosine.

    Parameters
    ----------
    n_features
        Number P of features: an integer as it is, a float as a multiple of the number of training points (rounded, at
        least 1).
    random_state
        Source of the draws. The same int gives the same features, whatever the number of threads.

    Attributes
    ----------
    weights_ : ndarray of shape (d, P)
        Frequencies w, or the weights of sigmoids.
    offsets_ : ndarray of shape (P,)
        Phases in [0, 2 pi), or the offsets of sigmoids.
    n_features_in_ : int
        Latent dimension d.
    """

    n_features: int | float = parameter(default=1.0, shown="int or float")
    random_state: Any = parameter(default=None, shown="None, int, numpy.random.RandomState or numpy.random.Generator")

    _activation: ClassVar[int] = COSINE

    _state = {"n_features_in_": Count("d"), "weights_": Array("d", "P"), "offsets_": Array("P")}

    def fit(self, X: ArrayLike, y: Any = None, *, latent_scale: ArrayLike | None = None) -> Self:
        """Draw the weights.

        {points} {ignored} {latent_scale} {returns_fit}
        """
        with restored_on_error(self):
            rng = parameters.check_random_state(self.random_state)
            X = validate_data(self, X, reset=True)
            given, P, d = check_parameters(self), self.n_features, X.shape[1]
            if isinstance(P, numbers.Integral):
                P = check_count(P, "n_features")
            else:
                P = max(1, round(check_number(P, "n_features", low=0.0, strict_low=True) * len(X)))
            scale = np.full(d, 1.0 if latent_scale is None else check_length_scale(latent_scale, d, "latent_scale"))
            drawn = self.draw(rng, X / scale, P, scale, given)
            drawn["weights_"] = np.ascontiguousarray(drawn["weights_"] / scale[:, None])
            if not all(np.isfinite(value).all() for value in drawn.values()):
                where = f"latent points of magnitude up to {np.abs(X).max():g}"
                raise ValueError(
                    f"the parameters of {self!r} give weights or offsets that overflow float64 for {where}"
                )
            for name, value in drawn.items():
                setattr(self, name, value)
        return self

    def draw(self, rng: Any, X: _Values, P: int, scale: _Values, given: dict[str, Any]) -> dict[str, _Values]:
        """What `fit` stores: `weights_` (d, P), `offsets_` (P,) and more; X has the units of `scale`."""
        raise NotImplementedError

    def transform(self, X: ArrayLike, *, out: NDArray[np.floating[Any]] | None = None) -> NDArray[np.floating[Any]]:
        """Features of latent points.

        {points} {out} {returns_features} {raises}
            If `out` has the wrong shape, type or layout, or shares memory with X.
        """
        check_fitted(self, "weights_")
        given, X = X, validate_data(self, X, reset=False, min_samples=1)
        single = (given if isinstance(given, np.ndarray) else np.asarray(given)).dtype == np.float32
        activation, weights, offsets, scale = self.activation_parameters()
        out = check_out(out, (len(X), weights.shape[1]), dtype=np.float32 if single else np.float64, apart=given)

        def block(part):
            values = np.empty(out[part].shape) if single else out[part]
            _feature_kernel(activation, X[part], weights, offsets, scale, values)
            if single:
                out[part] = values

        parallel_rows(block, len(out), _block_rows(out))
        return out

    def jacobian(self, X: ArrayLike) -> _Values:
        """Derivatives scale * act'(w_k . z + b_k) w_kj of the features with respect to the latent coordinates.

        {points} {returns_jacobian} {raises}
        """
        check_fitted(self, "weights_")
        X = validate_data(self, X, reset=False, min_samples=1)
        activation, weights, offsets, scale = self.activation_parameters()
        (n, d), P = X.shape, weights.shape[1]
        out = np.empty((n, P, d))

        def block(part):
            slopes = np.empty(out[part].shape[:2])
            _gradient_kernel.slopes(activation, X[part], weights, offsets, scale, slopes)
            for j in range(d):
                np.multiply(slopes, weights[j], out=out[part, :, j])

        parallel_rows(block, n, _block_rows(out))
        return out

    def activation_parameters(self) -> tuple[int, _Values, _Values, float]:
        """Activation, weights, offsets and scale for the kernels: sqrt(2 / P) of cosines (Eq. 23), else 1."""
        scale = float(np.sqrt(2.0 / self.weights_.shape[1])) if self._activation == COSINE else 1.0
        return self._activation, self.weights_, self.offsets_, scale

    @property
    def _n_features_out(self):
        return self.weights_.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _block_rows(out):
    """Rows of `out` per task: enough to hide its overhead (0.2 ms of work), few enough for the second-level cache."""
    return max(1, (1 << 17) * len(out) // max(1, out.size))


_LENGTH_SCALE = parameter(default=1.0, kw_only=False, shown="float or array-like of shape (d,)", of_columns=True)


@estimator
class FourierFeatures(_RandomFeatures):
    """Random Fourier features of a Gaussian kernel, the default of the decoders.

    Use them for smooth fields, `MaternFeatures` for rougher ones and `MultiscaleFourierFeatures` for several lengths.
    Products of feature vectors estimate exp(-|z - z'|^2 / (2 length_scale^2)) without bias, to an error of P^(-1/2).

    Parameters
    ----------
    length_scale
        Length scale of the kernel, in the units of the latent coordinates; an array holds one per coordinate.
    paired
        cos(w . z) and sin(w . z) of P/2 frequencies instead of P frequencies with random phases.
    orthogonal
        Frequencies in groups of d that are orthogonal to one another (before division by the length scale).

    Notes
    -----
    Eq. 23 of the paper, whose tuned "sigma_w" is this length scale. With `paired` and `orthogonal` the kernel's error
    is 1.4 to 2.0 times smaller at equal P (d = 1 to 10, P = 100 and 1000). Decoded fields are not more accurate.

    References
    ----------
    A. Rahimi and B. Recht, Random features for large-scale kernel machines, NIPS 2007.
    D. J. Sutherland and J. Schneider, UAI 2015 (pairs); F. X. Yu et al., Orthogonal random features, NIPS 2016.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> X = np.array([[0.0], [1.0]])
    >>> features = randsmap.FourierFeatures(n_features=100_000, random_state=0).fit_transform(X)
    >>> bool(abs((features @ features.T)[0, 1] - np.exp(-0.5)) < 0.01)
    True
    """

    length_scale: float | ArrayLike = _LENGTH_SCALE
    paired: bool = parameter(bool, default=False)
    orthogonal: bool = parameter(bool, default=False)

    def draw(self, rng, X, P, scale, given):
        d = X.shape[1]
        length_scale = check_length_scale(self.length_scale, d)
        draw = draw_orthogonal_frequencies if given["orthogonal"] else draw_gaussian_frequencies
        if not given["paired"]:
            return {"weights_": draw(rng, d, P, length_scale), "offsets_": draw_phases(rng, P)}
        weights = draw(rng, d, P - P // 2, length_scale)
        # sin x = cos(x - pi/2); of an odd P the last frequency has no partner and a random phase
        offsets = np.zeros(P)
        offsets[P - P // 2 :] = -np.pi / 2
        if P % 2:
            offsets[P // 2] = draw_phases(rng, 1)[0]
        return {"weights_": np.hstack([weights, weights[:, : P // 2]]), "offsets_": offsets}


@estimator
class MaternFeatures(_RandomFeatures):
    """Random Fourier features of a Matern kernel, for fields less smooth than with a Gaussian kernel.

    Use them for fields with kinks or fronts, and `FourierFeatures` for smooth fields.
    Products of feature vectors estimate the Matern kernel of smoothness nu at |z - z'| / length_scale without bias.

    Parameters
    ----------
    length_scale
        As of `FourierFeatures`.
    nu
        Smoothness: `KernelDecoder` has 1.5 and 2.5; for nu to infinity the kernel is Gaussian.

    Notes
    -----
    The spectral density of the Matern kernel is a multivariate t distribution with 2 nu degrees of freedom: a Gaussian
    draw times sqrt(2 nu / chi^2), one chi^2 draw of 2 nu degrees of freedom per feature, shared by its d weights.

    References
    ----------
    C. E. Rasmussen and C. K. I. Williams, Gaussian processes for machine learning, MIT Press (2006), Sec. 4.2.1.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> X = np.array([[0.0], [1.0]])
    >>> features = randsmap.MaternFeatures(n_features=100_000, random_state=0).fit_transform(X)
    >>> s = np.sqrt(3)
    >>> bool(abs((features @ features.T)[0, 1] - (1 + s) * np.exp(-s)) < 0.01)
    True
    """

    length_scale: float | ArrayLike = _LENGTH_SCALE
    nu: float = parameter(float, default=1.5, low=0, strict=True)

    def draw(self, rng, X, P, scale, given):
        d, nu = X.shape[1], given["nu"]
        weights = draw_gaussian_frequencies(rng, d, P, check_length_scale(self.length_scale, d))
        weights *= np.sqrt(2 * nu / rng.chisquare(2 * nu, P))
        return {"weights_": weights, "offsets_": draw_phases(rng, P)}


@estimator
class MultiscaleFourierFeatures(_RandomFeatures):
    """Random Fourier features whose frequencies come from several Gaussian scales.

    Use them for fields that vary on several lengths, and `FourierFeatures` if one length is enough.
    Products of feature vectors estimate the mean of exp(-scales_[q]^2 |z - z'|^2 / 2) over the scales q.

    Parameters
    ----------
    max_frequency
        Upper end of the interval of scales (inverse length scales), above `min_frequency`.
    min_frequency
        Lower end of the interval.
    n_scales
        Number Q of scales, uniform in the interval. The first P % Q of them have one feature more than the others.

    Attributes
    ----------
    scales_ : ndarray of shape (n_scales,)
        The scales drawn; frequencies are arranged scale after scale.

    Notes
    -----
    Sec. 4.2 and Eq. 43 of the paper. For a fixed Q the limit of large P is the mixture of the scales drawn;
    the multi-Gaussian kernel is the limit of Q to infinity.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> features = randsmap.MultiscaleFourierFeatures(20.0, n_scales=4, random_state=0)
    >>> features.fit_transform(np.linspace(0.0, 1.0, 6)[:, None]).shape, features.scales_.shape
    ((6, 6), (4,))
    """

    _state = {**_RandomFeatures._state, "scales_": Array("Q")}
    max_frequency: float = parameter(float, default=1.0, kw_only=False, low=0, strict=True)
    min_frequency: float = parameter(float, default=1e-3, low=0)
    n_scales: int = parameter(int, default=10, low=1)

    def draw(self, rng, X, P, scale, given):
        low, high = check_frequency_range(given["min_frequency"], given["max_frequency"])
        weights, scales = draw_multiscale_frequencies(rng, X.shape[1], P, given["n_scales"], low, high)
        return {"weights_": weights, "offsets_": draw_phases(rng, P), "scales_": scales}


@estimator
class SigmoidFeatures(_RandomFeatures):
    """Random sigmoids with centres in the box of the training points.

    The features are 1 / (1 + exp(-w . (z - c))). With `latent_box` they do not depend on the data, as batches need.
    `FourierFeatures` depends less on its scale.

    Parameters
    ----------
    slope
        Weights are drawn from U[-slope, slope) in each coordinate.
    latent_box
        Box of the centres, (low, high); a number holds for every coordinate. With a box, the features depend on d
        alone. None: the bounding box of the training points.

    Notes
    -----
    Appendix D of the paper (`slope` is its c). The `offsets_` are -w . c, with centres c drawn uniformly in the box.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> features = randsmap.SigmoidFeatures(slope=11.0, n_features=0.5, random_state=0)
    >>> features.fit_transform(np.linspace(0.0, 1.0, 8)[:, None]).shape
    (8, 4)
    """

    _activation = LOGISTIC
    slope: float = parameter(
        float, default=1.0, kw_only=False, low=0, high=np.finfo(np.float64).max / 4, strict=True, shown="float > 0"
    )
    latent_box: Any = parameter(default=None, shown="None, (low, high) or array-like of shape (2, d)", of_columns=True)

    def draw(self, rng, X, P, scale, given):
        weights = rng.uniform(-given["slope"], given["slope"], (P, X.shape[1])).T  # App. D
        box = X if self.latent_box is None else check_latent_box(self.latent_box, X.shape[1]) / scale
        offsets = -np.einsum("jk,kj->k", weights, draw_centers(rng, box, P))
        return {"weights_": weights, "offsets_": offsets}


def polynomial_jacobian(powers: NDArray[np.intp], Y: _Values) -> _Values:
    """Derivatives (n, P, d) of the monomials prod_j y_j^p_kj, powers p (P, d), at Y (n, d)."""
    out = np.empty((len(Y), *powers.shape))
    for j in range(powers.shape[1]):
        lower = powers.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        out[:, :, j] = powers[:, j] * np.prod(Y[:, None, :] ** lower, axis=2)
    return out


@_documented
@estimator
class MonomialFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """All products of latent coordinates, less their means, of total degree 1 to `degree`.

    Use them for few latent coordinates: with POD latents and degree 2 the decoder is the quadratic manifold. Use
    `FourierFeatures` if polynomials of low degree are too stiff.

    Parameters
    ----------
    degree
        Highest total degree.

    Attributes
    ----------
    center_ : ndarray of shape (d,)
        Means of the training points.
    powers_ : ndarray of int of shape (P, d)
        Exponents; P is (d + degree choose degree) - 1.

    References
    ----------
    J. L. Barnett and C. Farhat, Quadratic approximation manifold for mitigating the Kolmogorov barrier, J. Comput.
    Phys. 464 (2022).

    Examples
    --------
    >>> from randsmap import MonomialFeatures
    >>> MonomialFeatures().fit([[1.0, 0.0], [-1.0, 0.0]]).transform([[2.0, 3.0]])
    array([[2., 3., 4., 6., 9.]])
    """

    _state = {
        "n_features_in_": Count("d"),
        "center_": Array("d"),
        "powers_": Array("P", "d", dtype=np.intp, low=0, high=100),
    }

    degree: int = parameter(int, default=2, kw_only=False, low=1, high=100)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Compute the mean of the latent points and the exponents.

        {points} {ignored} {returns_fit}
        """
        with restored_on_error(self):
            degree = check_parameters(self)["degree"]
            X = validate_data(self, X, reset=True)
            d = X.shape[1]
            factors = [c for p in range(1, degree + 1) for c in combinations_with_replacement(range(d), p)]
            self.powers_ = np.array([np.bincount(c, minlength=d) for c in factors], dtype=np.intp)
            self.center_ = X.mean(axis=0)
        return self

    def transform(self, X: ArrayLike) -> _Values:
        """Values of the monomials at latent points.

        {points} {returns_monomials} {raises}
        """
        Y = self._less_center(X)
        out = np.ones((len(Y), len(self.powers_)))
        for j in range(Y.shape[1]):
            powers = Y[:, j : j + 1] ** np.arange(self.powers_.max() + 1)
            out *= powers[:, self.powers_[:, j]]
        return out

    def jacobian(self, X: ArrayLike) -> _Values:
        """Derivatives of the monomials with respect to the latent coordinates.

        {points} {returns_jacobian} {raises}
        """
        return polynomial_jacobian(self.powers_, self._less_center(X))

    def _less_center(self, X):
        check_fitted(self, "powers_")
        return validate_data(self, X, reset=False, min_samples=1) - self.center_

    @property
    def _n_features_out(self):
        return len(self.powers_)


public(globals())
