"""Derivatives of decoders and encoders, and decoding of a subset of the cells.

Oracles are plain NumPy functions that take complex points, so that the imaginary part at y + ih is the
derivative without cancellation (complex step).
"""

import copy
import pickle
import threading
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import randsmap
from randsmap import (
    POD,
    ConservativeRegressor,
    DiffusionMaps,
    DoubleDiffusionMapsDecoder,
    FourierFeatures,
    KernelDecoder,
    KNNDecoder,
    ManifoldModel,
    MultiscaleFourierFeatures,
    RANDSMAPDecoder,
    RFNNDecoder,
    SigmoidFeatures,
)
from randsmap._kernels import distances as _distances
from randsmap._kernels import gradients as kernel
from randsmap._kernels.features import COSINE, LOGISTIC
from randsmap.features import polynomial_jacobian
from randsmap.invariants import AffineInvariants
from randsmap.maps import linear_map as _linear_map
from randsmap.maps.linear_map import identity_basis

from helpers import python, with_common_invariants
from helpers import random_problem as problem
from helpers import squared_distances as squared
from oracles import multi_gaussian

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps
STEP = 1e-150  # of the complex step: its square is nothing


def complex_step(f, X):
    """Derivatives (L, outputs, d) of f, which takes rows."""
    return np.stack([f(X + 1j * STEP * e).imag / STEP for e in np.eye(X.shape[1])], axis=2)


def central(f, X, h):
    return np.stack([(f(X + h * e) - f(X - h * e)) / (2 * h) for e in np.eye(X.shape[1])], axis=2)


# -- Plain NumPy decoders, of complex points -------------------------------------------------------


def plain_features(decoder, Y):
    features = decoder.features_
    t = Y @ features.weights_ + features.offsets_
    if isinstance(features, SigmoidFeatures):
        return 1 / (1 + np.exp(-t))
    return np.sqrt(2 / t.shape[1]) * np.cos(t)


def lengths_of(decoder):
    fit = decoder._fitted
    return fit.latent_scale if isinstance(decoder, DoubleDiffusionMapsDecoder) else fit.lengths


def plain_kernel(decoder, Y):
    Y = Y / lengths_of(decoder)
    if isinstance(decoder, DoubleDiffusionMapsDecoder):
        k = np.exp(-squared(Y, decoder._fitted.points) / decoder.epsilon_**2)
        return k if decoder._fitted.weights is None else k @ decoder._fitted.weights
    if decoder.kernel == "gaussian":
        return np.exp(-squared(Y, decoder._fitted.points) / 2)
    node, weight = np.polynomial.legendre.leggauss(60)
    low, high = decoder.min_frequency, decoder.max_frequency
    D = squared(Y, decoder._fitted.points)
    return sum(w / 2 * np.exp(-((low + (high - low) * (x + 1) / 2) ** 2) * D / 2) for x, w in zip(node, weight))


def plain_decode(decoder, Y):
    phi = (plain_features if hasattr(decoder, "features_") else plain_kernel)(decoder, Y)
    A = decoder.linear_map.A
    return A[0] + phi @ A[1:]


def scale_of(decoder, X):
    """Size (L, M, 1) of the terms of the sums in J, in units of which round-off comes."""
    A = np.abs(decoder.linear_map.A[1:])
    if hasattr(decoder, "features_"):
        W = decoder.features_.weights_
        t = np.abs(X) @ np.abs(W) + np.abs(decoder.features_.offsets_)
        return ((1 + t) * np.abs(W).max(axis=0)) @ A
    phi = np.abs(np.moveaxis(complex_step(lambda Y: plain_kernel(decoder, Y), X), 2, 0))
    G = phi.max(axis=0) + 1e-3
    if getattr(decoder._fitted, "weights", None) is not None:  # the harmonics are sums that cancel, too
        lengths = lengths_of(decoder)
        k = np.exp(-squared(X / lengths, decoder._fitted.points) / decoder.epsilon_**2) + 1e-3
        G = k @ np.abs(decoder._fitted.weights) * 4 / decoder.epsilon_ / lengths.min()
    return G @ A


DECODERS = {
    "sigmoid": RANDSMAPDecoder(SigmoidFeatures(5.0, n_features=50), random_state=0),
    "fourier": RANDSMAPDecoder(FourierFeatures(0.5, n_features=50), random_state=0),
    "multiscale": RANDSMAPDecoder(MultiscaleFourierFeatures(5.0, n_features=600), random_state=0),
    "training": RANDSMAPDecoder(FourierFeatures(0.5, n_features=50), random_state=0, constraint="training"),
    "plain": RFNNDecoder(SigmoidFeatures(5.0, n_features=50), random_state=0),
    "ddm": DoubleDiffusionMapsDecoder(epsilon=0.5, rank=12, invariants="mass"),
    "ddm expanded": DoubleDiffusionMapsDecoder(epsilon=0.05, invariants="mass"),
    "ddm plain": DoubleDiffusionMapsDecoder(epsilon=0.3, rank=10),
    "gaussian": KernelDecoder(length_scale=0.4, invariants="mass"),
    "multi-gaussian": KernelDecoder("multi-gaussian", max_frequency=6.0, invariants="mass"),
}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("d", [1, 2, 10, 20])
def test_jacobian_is_the_oracles_complex_step_and_central_difference(name, d):
    Y, F = problem(d=d)
    decoder = clone(DECODERS[name]).fit(Y, F)
    X = np.random.default_rng(1).uniform(-0.1, 1.1, size=(7, d))
    J = decoder.jacobian(X)
    assert J.shape == (7, 30, d) and J.dtype == np.float64
    bound = 40 * EPS * scale_of(decoder, X)[:, :, None]
    assert (abs(J - complex_step(lambda Z: plain_decode(decoder, Z), X)) <= bound + 1e-15).all()
    h = 1e-5
    size = np.abs(J).max() + 1
    third = (10 if name != "ddm expanded" else 60) ** 3  # derivatives grow by so much
    differences = central(decoder.predict, X, h)
    assert abs(J - differences).max() <= h**2 * third * size + bound.max() / h


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("n", [1, 5, 12, 13, 300])
def test_products_are_those_of_the_jacobian_and_adjoint(name, n):
    Y, F = problem()
    decoder = clone(DECODERS[name]).fit(Y, F)
    rng = np.random.default_rng(n)
    X, V, U = rng.uniform(size=(n, 2)), rng.normal(size=(n, 2)), rng.normal(size=(n, 30))
    J = decoder.jacobian(X)
    bound = 40 * EPS * scale_of(decoder, X) + 1e-16
    jvp, vjp = decoder.jvp(X, V), decoder.vjp(X, U)
    assert jvp.shape == (n, 30) and vjp.shape == (n, 2)
    assert (abs(jvp - np.einsum("lmd,ld->lm", J, V)) <= bound * abs(V).sum(axis=1)[:, None]).all()
    weighted = (bound * abs(U)).sum(axis=1)[:, None] + bound.max() * abs(U).sum(axis=1)[:, None]
    assert (abs(vjp - np.einsum("lmd,lm->ld", J, U)) <= weighted).all()
    both = (jvp * U).sum(axis=1), (V * vjp).sum(axis=1)
    assert (abs(both[0] - both[1]) <= weighted[:, 0] * abs(V).sum(axis=1)).all()
    # one vector for all rows
    assert abs(decoder.jvp(X, V[0]) - decoder.jvp(X, np.tile(V[0], (n, 1)))).max() == 0
    assert abs(decoder.vjp(X, U[0]) - decoder.vjp(X, np.tile(U[0], (n, 1)))).max() == 0
    # rows alone
    assert (abs(decoder.jacobian(X[-1:]) - J[-1:]) <= bound[-1:, :, None]).all()


# -- Invariants ------------------------------------------------------------------------------------


def conservative_data(seed, q, weighted, constants):
    rng = np.random.default_rng(seed)
    n, M = 40, 25
    Y = rng.uniform(size=(n, 2))
    C = rng.normal(size=(M, q)) * 10.0 ** rng.uniform(-3, 3, q)
    F = np.cos(Y @ rng.normal(size=(2, M)) * 3)
    constant = np.arange(M) < constants
    F[:, constant] = rng.normal(size=constants)
    return Y, with_common_invariants(F, C, constant=constant), C, 10.0 ** rng.uniform(-2, 2, M) if weighted else None


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 999),
    q=st.integers(1, 4),
    weighted=st.booleans(),
    constants=st.integers(0, 6),
    regularization=st.sampled_from([0.0, 1e-10, 1e-3]),
    kind=st.sampled_from(["sigmoid", "fourier", "ddm", "kernel"]),
)
def test_invariants_of_derivatives_vanish(seed, q, weighted, constants, regularization, kind):
    Y, F, C, weights = conservative_data(seed, q, weighted, constants)
    group = dict(invariants=C, cell_weights=weights)
    decoder = {
        "sigmoid": lambda: RANDSMAPDecoder(
            SigmoidFeatures(8.0, n_features=80), random_state=0, regularization=regularization, **group
        ),
        "fourier": lambda: RANDSMAPDecoder(
            FourierFeatures(0.3, n_features=30), random_state=0, regularization=regularization, **group
        ),
        "ddm": lambda: DoubleDiffusionMapsDecoder(epsilon=1.0, **group),
        "kernel": lambda: KernelDecoder(length_scale=0.5, regularization=regularization, **group),
    }[kind]().fit(Y, F)
    rng = np.random.default_rng(seed)
    X, V = rng.uniform(-1, 2, size=(3, 2)), rng.normal(size=(3, 2))
    J = decoder.jacobian(X)
    assert (abs(np.einsum("mq,lmd->lqd", C, J)) <= 1e-13 * np.einsum("mq,lmd->lqd", abs(C), abs(J))).all()
    assert (J[:, decoder.constant_cells_] == 0).all() and decoder.constant_cells_.sum() >= constants
    T = decoder.jvp(X, V)
    assert (abs(T @ C) <= 1e-13 * abs(T) @ abs(C)).all() and (T[:, decoder.constant_cells_] == 0).all()
    # the transposed projector has the normals in its null space
    left = decoder.invariants_.adjoint(np.ascontiguousarray(C.T))
    assert (abs(left) <= 1e-11 * abs(C.T).max(axis=1)[:, None]).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_adjoint_is_the_transpose_of_the_tangent_projection(weighted):
    Y, F, C, weights = conservative_data(3, 3, weighted, 4)
    invariants = RANDSMAPDecoder(invariants=C, cell_weights=weights, random_state=0).fit(Y, F).invariants_
    none, constant = 0 * invariants.values, invariants.constant
    P = AffineInvariants.of(C, none, constant, np.zeros(constant.sum()), weights).project(np.eye(25))
    scale = np.abs(P).max() * 25
    assert abs(invariants.adjoint(np.eye(25)) - P.T).max() <= 200 * EPS * scale
    # orthogonal in the norm weighted by V: V P is symmetric, and a projection
    VP = P.T * (1 if weights is None else weights[:, None])
    assert abs(VP - VP.T).max() <= 200 * EPS * abs(VP).max() * 25
    assert abs(P @ P - P).max() <= 200 * EPS * scale


def test_derivative_that_overflows_is_an_error_that_names_the_row():
    Y, F = problem()
    decoder = clone(DECODERS["sigmoid"]).fit(Y, F)
    V = np.ones((3, 2))
    V[1] = 1.7e308
    with pytest.raises(ValueError, match="V must be 0 or of magnitude"):
        decoder.jvp(Y[:3], V)
    assert np.isfinite(decoder.vjp(Y[:3], np.full(30, 1e139))).all()


# -- Activations and kernels -----------------------------------------------------------------------

CHILD = """
import sys
import numpy as np
from randsmap._kernels import gradients
given = np.load("given.npz")
results = {}
for key in given.files:
    W, b = np.ascontiguousarray(given[key])[None], np.zeros(len(given[key]))
    results[key] = np.empty((1, len(b)))
    gradients.slopes(int(key), np.ones((1, 1)), W, b, 1.0, results[key])
np.savez("results.npz", **results)
"""


def test_slopes_are_within_four_ulp_at_every_instruction_level(tmp_path, levels):
    rng = np.random.default_rng(0)
    with mpmath.workprec(200):
        near = np.array(
            [
                float(mpmath.pi / 2 * int(m))
                for m in np.append(np.arange(-9, 10), rng.integers(-6_000_000, 6_000_000, 200))
            ]
        )
    arguments = {
        str(COSINE): np.concatenate(
            [rng.uniform(-7, 7, 300), rng.uniform(-1e7, 1e7, 300), near, 10.0 ** rng.uniform(-300, 300, 100), [0.0]]
        ),
        str(LOGISTIC): np.concatenate(
            [rng.uniform(-5, 5, 300), rng.uniform(-700, 700, 300), [0.0, 1e300, -1e300, 745.0, -745.0]]
        ),
    }
    np.savez(tmp_path / "given.npz", **arguments)
    expected = {}
    with mpmath.workprec(1200):
        expected[str(COSINE)] = [-mpmath.sin(mpmath.mpf(float(x))) for x in arguments[str(COSINE)]]
        e = [mpmath.exp(-abs(mpmath.mpf(float(x)))) for x in arguments[str(LOGISTIC)]]
        expected[str(LOGISTIC)] = [v / (1 + v) ** 2 for v in e]
        for level in levels:
            python(CHILD, level=level, cwd=tmp_path)
            results = np.load(tmp_path / "results.npz")
            for key, exact in expected.items():
                for x, found, value in zip(arguments[key], results[key][0], exact):
                    ulp = np.spacing(abs(float(value)))
                    assert abs(mpmath.mpf(float(found)) - value) <= 4 * ulp, (level, key, x, found)


@pytest.mark.parametrize(
    "low, high", [(1e-3, 1.0), (0.0, 5.0), (2.0, 20.0), (3.0, 3.0001), (0.0, 1e-3), (10.0, 1000.0)]
)
def test_multi_gaussian_slope_keeps_its_digits(low, high):
    r = np.concatenate([[0.0], 10.0 ** np.linspace(-12, 3, 150) / high])
    D = r**2
    found = D.copy()
    _distances.multi_gaussian(found, low, high, True)
    exact = [(high**2 + high * low + low**2) / 3] + [float(multi_gaussian(d, low, high)[1]) for d in D[1:]]
    for d, value, slope in zip(D, found, exact):
        allowed = (60 + 20 * low * low * d) * EPS * slope
        assert abs(value + slope) <= max(allowed, 1e-300), (d, value, slope)


@pytest.mark.parametrize(
    "decoder", [KernelDecoder(length_scale=0.3), KernelDecoder("multi-gaussian", max_frequency=4.0)], ids=str
)
def test_kernel_jacobian_at_coincident_and_at_close_points(decoder):
    Y, F = problem()
    decoder = clone(decoder).fit(Y, F)
    X = Y[:3].copy()
    X[1] += 1e-9
    X[2] += [1e-170, 0]
    J = decoder.jacobian(X)
    expected = complex_step(lambda Z: plain_decode(decoder, Z), X)
    assert np.isfinite(J).all()
    assert abs(J - expected).max() <= 40 * EPS * scale_of(decoder, X).max()


@pytest.mark.parametrize("name", sorted(set(DECODERS) - {"fourier", "multiscale", "training"}))
def test_far_away_derivatives_are_zero(name):
    Y, F = problem()
    decoder = clone(DECODERS[name]).fit(Y, F)
    X = np.array([[1e8, -1e8], [1e100, 1e100], [1e139, 1e139], [-1e139, 0.0]])
    if name == "multi-gaussian":  # low frequencies: a tail that falls as a power
        X = X[1:]
    with np.errstate(all="raise", under="ignore"):
        J, T, G = decoder.jacobian(X), decoder.jvp(X, [1.0, 2.0]), decoder.vjp(X, np.ones(30))
    assert (abs(J) <= 1e-290).all() and (abs(T) <= 1e-290).all() and (abs(G) <= 1e-290).all()


def test_fourier_features_are_right_beyond_the_reach_of_the_fast_cosine():
    Y, F = problem()
    decoder = clone(DECODERS["fourier"]).fit(Y, F)
    X = np.array([[3e8, -2e8], [1e15, 1e14]])
    W, b, A = decoder.features_.weights_, decoder.features_.offsets_, decoder.coef_
    J = decoder.jacobian(X)
    assert np.isfinite(J).all() and abs(J).max() <= (np.abs(W).max() * np.sqrt(2 / 50) * np.abs(A[1:])).sum()
    S = np.empty((2, 50))
    kernel.slopes(COSINE, X, W, b, 1.0, S)
    assert (abs(S) <= 1).all()


# -- Feature maps that are not the package's own ---------------------------------------------------


def test_polynomial_features_are_the_quadratic_manifold():
    Y, F = problem(d=3)
    decoder = RANDSMAPDecoder(PolynomialFeatures(3, include_bias=False), latent_scale=None).fit(Y, F)
    X = np.array([[0.2, 0.5, 0.9], [0.0, 0.0, 0.3], [-0.5, 2.0, 0.0]])
    powers = decoder.features_.powers_
    expected = complex_step(lambda Z: np.prod(Z[:, None, :] ** powers, axis=2) @ decoder.coef_[1:], X)
    J = decoder.jacobian(X)
    scale = np.abs(polynomial_jacobian(powers, X)).max() * np.abs(decoder.coef_[1:]).sum(axis=0).max()
    assert abs(J - expected).max() <= 40 * EPS * scale
    V, U = np.ones((3, 3)), np.arange(90.0).reshape(3, 30)
    assert abs(decoder.jvp(X, V) - J.sum(axis=2)).max() <= 40 * EPS * scale * 3
    assert abs(decoder.vjp(X, U) - np.einsum("lmd,lm->ld", J, U)).max() <= 40 * EPS * scale * U.sum()


class Squares(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.hstack([X, X**2])


class SquaresWithJacobian(Squares):
    def jacobian(self, X):
        first = np.broadcast_to(np.eye(X.shape[1]), (len(X), X.shape[1], X.shape[1]))
        return np.concatenate([first, first * 2 * X[:, None, :]], axis=1).tolist()


def test_users_features_need_a_jacobian():
    Y, F = problem()
    decoder = RFNNDecoder(SquaresWithJacobian()).fit(Y, F)
    h = 1e-5
    assert abs(decoder.jacobian(Y) - central(decoder.predict, Y, h)).max() <= 1e-9
    for features in (Squares(), StandardScaler()):
        decoder = RFNNDecoder(features).fit(Y, F)
        with pytest.raises(TypeError, match=rf"{type(features).__name__} is not known.*jacobian\(Z\)"):
            decoder.jacobian(Y)


def test_wrong_jacobian_of_features_is_named():
    class Wrong(Squares):
        def jacobian(self, X):
            return np.zeros((len(X), 2))

    Y, F = problem()
    with pytest.raises(ValueError, match=r"jacobian\(Z\) must have shape \(60, P, 2\)"):
        RFNNDecoder(Wrong()).fit(Y, F).jacobian(Y)


@pytest.mark.parametrize("features", [SigmoidFeatures(4.0), FourierFeatures(0.4), MultiscaleFourierFeatures(5.0)])
def test_feature_maps_have_a_jacobian(features):
    Y = np.random.default_rng(0).uniform(size=(40, 3))
    features = clone(features).set_params(n_features=70, random_state=0).fit(Y)
    J = features.jacobian(Y)
    decoder = SimpleNamespace(features_=features)
    expected = complex_step(lambda Z: plain_features(decoder, Z), Y)
    assert J.shape == (40, 70, 3) and abs(J - expected).max() <= 200 * EPS * abs(features.weights_).max()
    with pytest.raises(NotFittedError):
        clone(features).jacobian(Y)
    with pytest.raises(ValueError):
        features.jacobian(Y[:, :2])


# -- Input, output, errors -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sigmoid", "ddm", "gaussian"])
def test_input_of_any_kind_and_out(name):
    Y, F = problem()
    decoder = clone(DECODERS[name]).fit(Y, F)
    X = np.round(Y[:6] * 64) / 64  # exact in float32
    V, U = X[::-1].copy(), np.ones((6, 30))
    expected = decoder.jacobian(X), decoder.jvp(X, V), decoder.vjp(X, U)
    locked = X.copy()
    locked.setflags(write=False)
    for given_X in (X.astype(np.float32), locked, np.repeat(X, 2, axis=0)[::2], np.asfortranarray(X), X.tolist()):
        assert (decoder.jacobian(given_X) == expected[0]).all()
        assert (decoder.jvp(given_X, given_X[::-1]) == expected[1]).all()
        assert (decoder.vjp(given_X, U.astype(int).tolist()) == expected[2]).all()
    out = np.full((6, 30, 2), np.nan)
    assert decoder.jacobian(X, out=out) is out and (out == expected[0]).all()
    for wrong, error in (
        (np.empty((6, 30)), ValueError),
        (np.empty((6, 2, 30)), ValueError),
        (np.empty((6, 30, 2), np.float32), TypeError),
    ):
        with pytest.raises(error, match="out must"):
            decoder.jacobian(X, out=wrong)
    shared = np.empty((1, 30, 2))
    with pytest.raises(ValueError, match="share memory"):
        decoder.jacobian(shared[0, :1], out=shared)
    with pytest.raises(ValueError, match="V must have 2 columns"):
        decoder.jvp(X, np.ones((6, 3)))
    with pytest.raises(ValueError, match="V must have one row for each row of X, 6"):
        decoder.jvp(X, np.ones((5, 2)))
    with pytest.raises(ValueError, match="U must have 30 columns"):
        decoder.vjp(X, np.ones(3))
    with pytest.raises(ValueError, match="U must be finite"):
        decoder.vjp(X, np.full(30, np.nan))
    for bad in (X[:, :1], X * np.nan):
        with pytest.raises(ValueError):
            decoder.jacobian(bad)
    for call in (lambda e: e.jacobian(X), lambda e: e.jvp(X, V), lambda e: e.vjp(X, U)):
        with pytest.raises(NotFittedError):
            call(clone(decoder))


@pytest.mark.parametrize("n_parts", [0, 1, 2, 3], ids=["search", "one part", "two parts", "three parts"])
def test_of_no_points_there_are_no_derivatives_of_blends(n_parts):
    X, F, _ = np.random.default_rng(0).uniform(size=(3, 40, 2))
    none, parts = np.empty((0, 2)), [KernelDecoder(length_scale=s, regularization=1e-6) for s in (0.3, 0.5, 0.8)]
    search = randsmap.AutoDecoder(n_trials=2, families="gaussian", random_state=0)
    decoder = (randsmap.BlendedDecoder(parts[:n_parts]) if n_parts else search).fit(X, F)
    assert decoder.jacobian(none).shape == (0, 2, 2)
    assert decoder.jvp(none, none).shape == decoder.vjp(none, none).shape == (0, 2)


def test_of_no_points_there_are_no_gradients_of_fields_of_a_shape():
    Y, F = problem()
    decoder = KernelDecoder().fit(Y, F.reshape(len(F), 5, 6))
    assert decoder.vjp(Y[:0], np.ones((0, 5, 6))).shape == (0, 2)


def test_one_dimensional_fields_have_no_axis_of_cells():
    Y = np.random.default_rng(0).uniform(size=(40, 3))
    decoder = RFNNDecoder(SigmoidFeatures(3.0, n_features=20), random_state=0).fit(Y, Y[:, 0] ** 2)
    column = RFNNDecoder(SigmoidFeatures(3.0, n_features=20), random_state=0).fit(Y, Y[:, :1] ** 2)
    X, V, U = Y[:5], np.ones((5, 3)), np.arange(5.0)
    assert decoder.predict(X).shape == (5,)
    assert (decoder.jacobian(X) == column.jacobian(X)[:, 0]).all()
    assert (decoder.jvp(X, V) == column.jvp(X, V)[:, 0]).all()
    assert (decoder.vjp(X, U) == column.vjp(X, U[:, None])).all()
    assert decoder.jacobian(X, out=np.empty((5, 3))).shape == (5, 3)
    # cells are an axis of their own
    assert (decoder.predict(X, cells=[0]) == column.predict(X)).all()
    assert decoder.jacobian(X, cells=[0, 0]).shape == (5, 2, 3)


# -- Encoders --------------------------------------------------------------------------------------


def plain_nystroem(encoder, X, joined=None):
    extension = encoder._encoding
    rows = extension.rows + extension.centre
    K = np.exp(-squared(X, rows) / encoder.epsilon_**2)
    if joined is not None:
        K = K * joined
    P = K * extension.weights[0]
    return (K @ extension.weights[1:].T) / P.sum(axis=1)[:, None]


@pytest.mark.parametrize("M", [3, 40])
@pytest.mark.parametrize(
    "parameters", [{}, {"alpha": 0.0}, {"alpha": 0.5, "diffusion_time": 1.5}, {"select": [3, 1]}, {"n_neighbors": 15}]
)
def test_derivatives_of_the_nystroem_map(M, parameters):
    rng = np.random.default_rng(0)
    F = rng.normal(size=(80, M)) + 3
    encoder = DiffusionMaps(2, **parameters).fit(F)
    X = F[:30] + 0.1 * rng.normal(size=(30, M))
    X[0] = F[0]
    joined = None
    if "n_neighbors" in parameters:
        joined = encoder._encoding.transitions(X) > 0
        assert 15 < joined.sum(axis=1).mean() < 60
    J = encoder.jacobian(X)
    assert J.shape == (30, 2, M)
    values = encoder._encoding.values
    bound = 80 * EPS * abs(values).max() * abs(encoder._encoding.rows).max() / encoder.epsilon_**2 * M
    expected = complex_step(lambda Z: plain_nystroem(encoder, Z, joined), X)
    assert abs(J - expected).max() <= bound
    h = 1e-6
    if joined is None:
        tolerance = h**2 * 100 + 100 * EPS * abs(values).max() * M / h
        assert abs(J - central(encoder.transform, X, h)).max() <= tolerance
    V, U = rng.normal(size=(30, M)), rng.normal(size=(30, 2))
    jvp, vjp = encoder.jvp(X, V), encoder.vjp(X, U)
    assert abs(jvp - np.einsum("ldm,lm->ld", J, V)).max() <= bound * np.abs(V).sum(axis=1).max()
    assert abs(vjp - np.einsum("ldm,ld->lm", J, U)).max() <= bound * np.abs(U).sum(axis=1).max()
    assert abs((jvp * U).sum(axis=1) - (V * vjp).sum(axis=1)).max() <= bound * 20 * np.sqrt(M)
    assert (encoder.jvp(X, V[0]) == encoder.jvp(X, np.tile(V[0], (30, 1)))).all()
    one = encoder.jacobian(X[4:5])
    assert abs(one - J[4:5]).max() <= bound
    assert encoder.jacobian(X[:0]).shape == (0, 2, M) and encoder.vjp(X[:0], U[:0]).shape == (0, M)


@pytest.mark.parametrize("parameters", [{}, {"n_neighbors": 10}])
def test_nystroem_derivatives_of_far_and_of_duplicate_points(parameters):
    rng = np.random.default_rng(0)
    F = rng.normal(size=(60, 5))
    F[7] = F[3]
    encoder = DiffusionMaps(2, epsilon=0.8, **parameters).fit(F)
    # some ten widths away the shifted softmax still mixes samples: its derivative, not 0
    X = F[:1] + 12 * np.ones(5)
    P = encoder._encoding.transitions(X)
    values = encoder._encoding.values
    mean = P @ values.T
    expected = 2 / 0.8**2 * np.einsum("j,dj,jm->dm", P[0], values - mean.T, F)
    J = encoder.jacobian(X)
    assert abs(J[0] - expected).max() <= 1e-11
    far = np.array([np.full(5, 1e4), np.full(5, -1e100), np.full(5, 1e139), F[3] * 1e8])
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(encoder.transform(far)).all()
        assert (abs(encoder.jacobian(far)) <= 1e-12).all()
        assert (abs(encoder.jvp(far, np.ones(5))) <= 1e-12).all()
        assert (abs(encoder.vjp(far, np.ones(2))) <= 1e-12).all()


def test_nystroem_derivatives_refuse_wrong_input():
    F = np.random.default_rng(0).normal(size=(30, 6))
    encoder = DiffusionMaps(2).fit(F)
    with pytest.raises(NotFittedError):
        DiffusionMaps(2).jacobian(F)
    with pytest.raises(ValueError):
        encoder.jacobian(F[:, :3])
    with pytest.raises(ValueError, match="V must have 6 columns"):
        encoder.jvp(F, np.ones(2))
    with pytest.raises(ValueError, match="U must have one row"):
        encoder.vjp(F, np.ones((3, 2)))
    single = F.astype(np.float32)
    assert (encoder.jacobian(single) == encoder.jacobian(single.astype(float))).all()


@pytest.mark.parametrize("invariants", [None, "mass"])
def test_derivatives_of_pod(invariants):
    Y, F = problem()
    volumes = np.random.default_rng(0).uniform(1, 2, 30)
    F = F / (F @ volumes)[:, None]
    F = np.hstack([F, np.full((60, 1), 0.25)])
    pod = POD(4, invariants=invariants, cell_weights=np.append(volumes, 1.0)).fit(F)
    L, rng = 5, np.random.default_rng(1)
    Z, V, U = pod.transform(F[:L]), rng.normal(size=(L, 4)), rng.normal(size=(L, 31))
    J, K = pod.jacobian(F[:L]), pod.inverse_jacobian(Z)
    assert J.shape == (L, 4, 31) and K.shape == (L, 31, 4)
    assert abs(pod.jvp(F[:L], U) - (pod.transform(F[:L] + U) - Z)).max() <= 1e-12
    assert abs(pod.vjp(F[:L], V) - np.einsum("ldm,ld->lm", J, V)).max() <= 1e-14
    moved = pod.inverse_transform(Z + V) - pod.inverse_transform(Z)
    assert abs(pod.inverse_jvp(Z, V) - moved).max() <= 1e-13
    assert abs(pod.inverse_jvp(Z, V) - np.einsum("lmd,ld->lm", K, V)).max() <= 1e-14
    assert abs(pod.inverse_vjp(Z, U) - np.einsum("lmd,lm->ld", K, U)).max() <= 1e-13
    assert (K[:, -1] == 0).all()
    if invariants:
        C = pod.invariant_matrix_
        assert (abs(np.einsum("mq,lmd->lqd", C, K)) <= 1e-13 * np.einsum("mq,lmd->lqd", C, abs(K))).all()
    # the inverse is a right inverse of the encoder
    assert abs(np.einsum("ldm,lme->lde", J, K) - np.eye(4)).max() <= 1e-13
    cells = [3, -1]
    assert abs(pod.inverse_transform(Z, cells=cells) - pod.inverse_transform(Z)[:, cells]).max() <= 1e-15
    assert abs(pod.inverse_jacobian(Z, cells=cells) - K[:, cells]).max() <= 1e-15
    assert abs(pod.inverse_jvp(Z, V, cells=cells) - pod.inverse_jvp(Z, V)[:, cells]).max() <= 1e-15
    assert pod.inverse_vjp(Z, U[:, :2], cells=cells).shape == (L, 4)


def test_vector_field_is_pushed_forward_and_back():
    # bumps that travel with speed 1: the latent right-hand side is the encoder's jvp of df/dt
    x = np.linspace(0, 1, 60, endpoint=False)
    centers = np.linspace(0.3, 0.7, 80)

    def bumps(c):
        return np.exp(-(((x - c[:, None]) / 0.1) ** 2))

    def speed(c):
        return 2 * (x - c[:, None]) / 0.01 * bumps(c)

    model = ManifoldModel(
        DiffusionMaps(1, epsilon_scale=0.3), KernelDecoder(length_scale=0.3, regularization=1e-9, invariants=None)
    ).fit(bumps(centers))
    c = np.array([0.42, 0.5, 0.55])
    rate = model.encoder_.jvp(bumps(c), speed(c))
    h = 1e-4
    expected = (model.transform(bumps(c + h)) - model.transform(bumps(c - h))) / (2 * h)
    assert abs(rate - expected).max() <= 1e-5 * abs(expected).max()
    back = model.decoder_.jvp(model.transform(bumps(c)), rate)
    assert abs(back - speed(c)).max() <= 0.02 * abs(speed(c)).max()


# -- Cells -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
def test_cells_are_those_of_the_whole_field(name):
    Y, F = problem()
    F[:, 4] = 0.0
    F /= F.sum(axis=1, keepdims=True)
    decoder = clone(DECODERS[name]).fit(Y, F)
    X = np.random.default_rng(1).uniform(-0.5, 1.5, size=(20, 2))
    V = np.ones(2)
    whole, J, T = decoder.predict(X), decoder.jacobian(X), decoder.jvp(X, V)
    mask = np.arange(30) % 7 == 4
    A = np.abs(decoder.linear_map.A)
    bound = 1e-12 * max(abs(whole).max(), 1e-2 * A.sum(axis=0).max())
    for cells in ([3, -1, 3, 4], np.array([29, 0], np.uint8), mask, np.array([], int), [], np.arange(30)[::-2]):
        index = np.asarray(cells, dtype=None if len(cells) else int)
        for n in (1, 20):
            part = decoder.predict(X[:n], cells=cells)
            assert part.shape == whole[:n, index].shape
            assert (abs(part - whole[:n, index]) <= bound).all()
            assert (part[:, :0] == whole[:n, index][:, :0]).all()
        assert (abs(decoder.jacobian(X, cells=cells) - J[:, index]) <= 30 * bound).all()
        assert (abs(decoder.jvp(X, V, cells=cells) - T[:, index]) <= 60 * bound).all()
        U = np.ones((20, 30))[:, index]
        full = np.zeros((20, 30))
        np.add.at(full, (slice(None), index), U) if index.dtype != bool else full.__setitem__((slice(None), index), 1)
        pulled = decoder.vjp(X, U, cells=cells)
        assert abs(pulled - np.einsum("lmd,lm->ld", J, full)).max() <= 2000 * bound
    if name not in ("plain", "training"):
        assert (decoder.predict(X, cells=[4]) == 0).all() and (decoder.jacobian(X, cells=[4]) == 0).all()


def test_cells_for_huge_coefficients():
    # lambda = 0: coefficients of 1e8 and more, whose round-off the projection of the whole field takes
    # away; a part cannot know the round-off of the others, but its own is of that size too
    Y, F, C, weights = conservative_data(1, 3, True, 4)
    decoder = RANDSMAPDecoder(
        SigmoidFeatures(2.0, n_features=120), regularization=0.0, random_state=0, invariants=C, cell_weights=weights
    ).fit(Y, F)
    # A C is off by as much as after a change of type
    decoder.coef_[:, ~decoder.constant_cells_] *= 1 + 1e-9 * np.random.default_rng(2).normal(
        size=(~decoder.constant_cells_).sum()
    )
    X = np.random.default_rng(0).uniform(-1, 2, size=(30, 2))
    whole, cells = decoder.predict(X), np.arange(0, 25, 3)
    part = decoder.predict(X, cells=cells)
    Phi = np.abs(np.hstack([np.ones((30, 1)), decoder.features_.transform(X)]))
    roundoff = EPS * (Phi @ np.abs(decoder.coef_)).max(axis=1, keepdims=True)
    assert (abs(part - whole[:, cells]) <= 100 * roundoff).all()
    plain = np.hstack([np.ones((30, 1)), decoder.features_.transform(X)]) @ decoder.coef_[:, cells]
    assert abs(plain - whole[:, cells]).max() > 10 * abs(part - whole[:, cells]).max()


def test_cells_of_the_other_estimators():
    Y, F = problem()
    knn = KNNDecoder(4).fit(Y, F)
    regressor = ConservativeRegressor(LinearRegression()).fit(Y, F)
    model = ManifoldModel(DiffusionMaps(2), clone(DECODERS["gaussian"])).fit(F)
    inverse = ManifoldModel(POD(3, invariants="mass")).fit(F)
    latents = inverse.transform(F)
    cells = [5, -2, 5]
    for predict, X in (
        (knn.predict, Y),
        (regressor.predict, Y),
        (model.inverse_transform, Y[:, :2]),
        (inverse.inverse_transform, latents),
    ):
        whole = predict(X)
        out = np.empty((60, 3))
        assert predict(X, cells=cells, out=out) is out
        assert abs(out - whole[:, cells]).max() <= 1e-14
        assert predict(X, cells=np.zeros(30, bool)).shape == (60, 0)
        whole_out = np.empty_like(whole)
        assert predict(X, out=whole_out) is whole_out and (whole_out == whole).all()
    plain = ManifoldModel(PCA(2), LinearRegression()).fit(F)
    assert (plain.inverse_transform(Y, cells=cells) == plain.inverse_transform(Y)[:, cells]).all()


@pytest.mark.parametrize(
    "cells, error, message",
    [
        ([0, 30], ValueError, r"cells\[1\] is 30, out of range for 30 cells"),
        ([-31], ValueError, r"cells\[0\] is -31"),
        ([0.0], TypeError, "integer indices"),
        (["a"], (TypeError, ValueError), "cells"),
        (3, ValueError, "1 dimension"),
        ([[0]], ValueError, "1 dimension"),
        (np.ones(29, bool), ValueError, "mask must have length 30, got 29"),
        (np.array([2**63], np.uint64), ValueError, "out of range"),
    ],
)
def test_wrong_cells_are_refused(cells, error, message):
    Y, F = problem()
    for decoder in (
        clone(DECODERS["sigmoid"]).fit(Y, F),
        KNNDecoder(3).fit(Y, F),
        ConservativeRegressor(LinearRegression()).fit(Y, F),
    ):
        with pytest.raises(error, match=message):
            decoder.predict(Y, cells=cells)
    with pytest.raises(NotFittedError):
        clone(DECODERS["sigmoid"]).predict(Y, cells=[0])


def test_kept_cells_are_few_forgotten_at_fit_and_in_no_copy(tmp_path):
    Y, F = problem()
    decoder = clone(DECODERS["sigmoid"]).fit(Y, F)
    before = set(vars(decoder))
    parts = [decoder.predict(Y, cells=[k]) for k in range(10)]
    assert set(vars(decoder)) == before
    linear = decoder.linear_map
    part = linear.gather(np.array([9]))
    assert linear.gather(np.array([9])) is part
    for k in range(_linear_map._CACHED):
        linear.gather(np.array([k]))
    assert linear.gather(np.array([9])) is not part
    again = pickle.loads(pickle.dumps(decoder))
    assert "linear_map" not in vars(copy.deepcopy(decoder).fitted)
    assert (again.predict(Y, cells=[3]) == parts[3]).all()
    randsmap.persistence.save(decoder, tmp_path / "decoder.npz")
    loaded = randsmap.load(tmp_path / "decoder.npz")
    assert (loaded.predict(Y, cells=[3]) == parts[3]).all()
    decoder.fit(Y, F[:, ::-1])
    assert abs(decoder.predict(Y, cells=[9])[:, 0] - decoder.predict(Y)[:, 9]).max() <= 1e-13
    assert decoder.linear_map is not linear


def test_cells_from_many_threads():
    Y, F = problem()
    decoder = clone(DECODERS["gaussian"]).fit(Y, F)
    whole, errors = decoder.predict(Y), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            cells = rng.integers(0, 30, 2) if rng.uniform() < 0.5 else [seed]
            part = decoder.predict(Y, cells=cells)
            if abs(part - whole[:, cells]).max() > 1e-12:
                errors.append(cells)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# -- Bounds ----------------------------------------------------------------------------------------


def plain_bounded(z, lower, upper, w, v, m):
    """clip(z + t w/v) with w . f = m by bisection; no invariant: a clip."""
    if w is None:
        return np.clip(z, lower, upper)
    low, high = -1e4, 1e4
    for _ in range(200):
        t = (low + high) / 2
        low, high = (t, high) if w @ np.clip(z + t * w / v, lower, upper) < m else (low, t)
    return np.clip(z + t * w / v, lower, upper)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("invariant", [False, True])
def test_tangents_are_the_derivative_of_the_bounded_projection(seed, invariant):
    rng = np.random.default_rng(seed)
    M, d = 20, 3
    w = rng.uniform(0.5, 2, M) if invariant else None
    v = rng.uniform(0.5, 2, M)
    lower, upper = np.zeros(M), np.full(M, 0.8)
    z, J = rng.normal(size=M) * 0.7 + 0.2, rng.normal(size=(d, M))
    m = 0.3 * w.sum() if invariant else None
    f = plain_bounded(z, lower, upper, w, v, m)
    free = (f > lower) & (f < upper)
    assert 2 < free.sum() < M
    h = 1e-6
    expected = np.stack(
        [
            (plain_bounded(z + h * g, lower, upper, w, v, m) - plain_bounded(z - h * g, lower, upper, w, v, m))
            / (2 * h)
            for g in J
        ]
    )
    C, values = (np.zeros((M, 0)), np.zeros(0)) if w is None else (w[:, None], np.array([m]))
    invariants = AffineInvariants.of(C, values, np.zeros(M, bool), np.zeros(0), v, (lower, upper))
    projection = _linear_map.LinearMap(identity_basis(M), np.vstack([np.zeros(M), np.eye(M)]), invariants)
    Z = np.tile(z, (d, 1))
    T = projection.jvp(Z, J)
    assert abs(T - expected).max() <= 1e-7
    assert (T[:, ~free] == 0).all()
    if invariant:
        assert (abs(T @ w) <= 1e-13 * abs(T) @ w).all()
    U = rng.normal(size=(d, M))
    pulled = projection.vjp(Z, U)
    assert abs((T * U).sum(axis=1) - (pulled * J).sum(axis=1)).max() <= 200 * EPS * M
    assert abs(projection.jacobian(z[None])[0] @ J.T - T.T).max() <= 200 * EPS * M
    assert (projection.jvp(Z - 10, J) == 0).all() or invariant


def test_derivatives_of_a_field_with_one_cell_that_is_free_are_zero():
    Y, F = np.array([[0.0], [0.5], [1.0]]), np.array([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.0, 0.3, 0.7]])
    fitted = randsmap.KernelDecoder(invariants="mass", bounds="nonnegative", latent_scale=None).fit(Y, F)
    X = np.linspace(-1, 2, 301)[:, None]
    at_a_vertex = (fitted.predict(X) > 0).sum(axis=1) == 1
    assert at_a_vertex.any() and (fitted.jacobian(X)[at_a_vertex] == 0).all()
    assert (fitted.vjp(X, np.ones(3))[at_a_vertex] == 0).all()
