"""Kernels with a polynomial tail: against SciPy's interpolator, refits without samples, and finite differences."""

import mpmath
import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator

from randsmap import KernelDecoder
from randsmap._linalg.distances import Radial, polynomial_tail
from randsmap._linalg.dual import Dual

KERNELS = [Radial.gaussian(0.5), *(Radial.named("matern", nu) for nu in (0.5, 1.5, 2.5)), Radial.named("thin-plate")]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 2)), rng.normal(size=(40, 5)), rng.normal(size=(7, 2))


@pytest.mark.parametrize("smoothing", [0.0, 1e-8, 1e-2])
def test_thin_plate_is_scipy(data, smoothing):
    Y, F, Z = data
    decoder = KernelDecoder("thin-plate", degree=1, latent_scale=None, regularization=smoothing).fit(Y, F)
    expected = RBFInterpolator(Y, F, kernel="thin_plate_spline", smoothing=smoothing, degree=1)(Z)
    assert np.abs(decoder.predict(Z) - expected).max() < 1e-9


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("degree", [0, 1])
def test_held_out_is_a_refit(data, kernel, degree):
    if kernel is KERNELS[-1] and degree == 0:
        pytest.skip("thin plate needs a linear tail")
    Y, F, _ = data
    T, K = polynomial_tail(Y, degree), kernel.values(Y)
    groups = np.array_split(np.arange(len(Y)), 4)
    for held, residuals in (
        ([3], Dual(K, T).complete_hat().residuals(F, 1e-3)),
        ([3], Dual(K, T).hat().residuals(F, 1e-3)),
        ([3], Dual(K, T).residuals(F, 1e-3)),
        (groups[1], Dual(K, T).complete_hat().residuals(F, 1e-3, groups)),
        (groups[1], Dual(K, T).hat().residuals(F, 1e-3, groups)),
        (groups[1], Dual(K, T).residuals(F, 1e-3, groups)),
    ):
        rest = np.setdiff1d(np.arange(len(Y)), held)
        C = F[rest]
        b, _ = Dual(K[np.ix_(rest, rest)], T[rest]).solve(C, 1e-3)
        missed = F[held] - K[np.ix_(held, rest)] @ C - T[held] @ b
        assert np.abs(residuals[held] - missed).max() < 1e-9 * np.abs(missed).max()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("width, regularization", [(1e-6, 1e-10), (1e-5, 1e-8)])
def test_a_nearly_dependent_tail_costs_no_digits(kernel, width, regularization):
    """Latents in two tight clusters, where T^+ has entries of 1 / width; up to the round-off of K alone."""
    rng = np.random.default_rng(0)
    Y = np.vstack([rng.normal(0, width, (9, 2)), rng.normal(1, width, (8, 2))])
    F, mean = rng.random((16, 3)), Y[1:].mean(axis=0)
    T, K = polynomial_tail(Y - mean, 1), kernel.values(Y)
    with mpmath.workdps(60):
        A = mpmath.matrix(np.block([[K[1:, 1:], T[1:]], [T[1:].T, np.zeros((3, 3))]]).tolist())
        A += mpmath.mpf(regularization) * mpmath.diag([1] * 16 + [0] * 3)
        k = mpmath.matrix([*K[0, 1:], *T[0]])
        w = mpmath.lu_solve(A, k)
        leverage = float((K[0, 0] - (k.T * w)[0]) / regularization)
        expected = np.array(w.tolist(), dtype=float)[:16, 0]
    dual, C = Dual(K[1:, 1:], T[1:]), F.copy()
    b, _ = dual.solve(C, regularization)
    W = dual.weights(K[:1, 1:], T[:1], regularization)[0]
    tol = 10 * np.finfo(float).eps * np.linalg.norm(K) / regularization
    assert abs(K[0, 1:] @ C + T[0] @ b - expected @ F).max() < tol
    assert abs(W - expected).max() < tol
    assert dual.leverage(regularization)[0](K[:1, 1:], T[:1], K[0, 0])[0] == pytest.approx(leverage, rel=tol)


def test_a_dependent_tail_takes_the_least_norm(data):
    """Latents on a line: the tail's two coordinates are one."""
    Y, F, _ = data
    Y = Y[:, :1] * [1.0, 2.0]
    T = polynomial_tail(Y, 1)
    assert Dual(np.eye(len(Y)), T).Q.shape == (len(Y), 2)
    decoder = KernelDecoder("matern", degree=1, latent_scale=None, regularization=1e-3).fit(Y, F)
    alone = KernelDecoder("matern", degree=1, latent_scale=None, regularization=1e-3, length_scale=1 / np.sqrt(5)).fit(
        Y[:, :1], F
    )
    assert np.abs(decoder.predict(Y) - alone.predict(Y[:, :1])).max() < 1e-10


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "matern", "nu": 1.5},
        {"kernel": "matern", "nu": 2.5, "degree": 1},
        {"kernel": "gaussian", "degree": 1},
        {"kernel": "gaussian", "center": True},
        {"kernel": "thin-plate", "degree": 1},
    ],
)
def test_derivatives(data, options):
    Y, F, Z = data
    decoder = KernelDecoder(length_scale=[0.7, 2.0], regularization=1e-4, invariants=None, **options).fit(Y, F)
    step = 1e-6
    differences = np.stack(
        [(decoder.predict(Z + step * e) - decoder.predict(Z - step * e)) / (2 * step) for e in np.eye(2)], axis=2
    )
    J = decoder.jacobian(Z)
    assert np.abs(J - differences).max() < 1e-6 * np.abs(J).max()
    V, U = np.ones(2), np.ones(5)
    assert np.allclose(decoder.jvp(Z, V), J.sum(axis=2), atol=1e-12 * np.abs(J).max())
    assert np.allclose(decoder.vjp(Z, U), J.sum(axis=1), atol=1e-12 * np.abs(J).max())


@pytest.mark.parametrize("options", [{}, {"degree": 1}])
def test_a_constant_background_costs_nothing(data, options):
    """With an unpenalised constant, fields on a background of 101325 decode as those without."""
    Y, F, Z = data
    decoder = KernelDecoder(center=True, regularization=1e-6, **options)
    without = decoder.fit(Y, F).predict(Z)
    assert np.abs(decoder.fit(Y, F + 101325).predict(Z) - 101325 - without).max() < 1e-6


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kernel": "thin-plate"}, "needs degree=1"),
        ({"kernel": "matern", "nu": 2}, "nu must be"),
        ({"nu": 2.5}, "nu is not read"),
        ({"degree": 2}, "degree must be"),
    ],
)
def test_parameters_are_checked(data, options, message):
    Y, F, _ = data
    with pytest.raises(ValueError, match=message):
        KernelDecoder(**options).fit(Y, F)


def test_latents_that_repeat_cannot_be_interpolated():
    Y, F = np.random.default_rng(0).uniform(size=(2, 20, 2))
    decoder = KernelDecoder("thin-plate", degree=1, regularization=0)
    with pytest.raises(ValueError, match="must differ, got 1 repetition"):
        decoder.fit(np.vstack([Y, Y[:1]]), np.vstack([F, F[:1]]))
    decoder.fit(Y, F)
