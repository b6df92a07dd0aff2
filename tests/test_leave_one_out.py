"""Leave-one-out errors: against n refits, and what has none."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap._linalg import spectral
from randsmap._linalg.distances import Radial, polynomial_tail
from randsmap._linalg.dual import Dual
from randsmap.metrics import relative_l2

from helpers import FittedFeatures, random_invariants, with_common_invariants

N = 24
LAMBDAS = [1e-6, 1e-3, 1.0]


def problem(M, q, weights, constant, seed=0):
    """Latents, two of them equal, fields with q invariants, and the decoder's parameters."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N, 2))
    X[6] = X[5]
    F = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2, X[:, 0] * X[:, 1]], axis=1) @ rng.normal(size=(3, M))
    F += 3 + 0.01 * rng.normal(size=F.shape)
    fixed = np.zeros(M, dtype=bool)
    if constant:
        fixed[[3, 7]] = True
        F[:, fixed] = 0.5, 0.0
    options, C = random_invariants(rng, q, M, weights)
    return X, with_common_invariants(F, C, options["cell_weights"], fixed), options


def refits(decoder, X, F, lambdas):
    """The error at each point of the decoder fitted without it; features and invariants of all points."""
    invariants = getattr(clone(decoder).fit(X, F), "invariants_", None)
    decoded = np.empty((len(lambdas), *F.shape))
    decoder = clone(decoder)
    if hasattr(decoder, "features"):
        drawn = clone(decoder.features)
        if "random_state" in drawn.get_params():
            drawn.set_params(random_state=decoder.random_state)
        # by singular values: the normal equations lose digits at small lambda
        decoder.set_params(features=FittedFeatures(drawn.fit(X)), solver="svd", random_state=None)
    for k, value in enumerate(lambdas):
        for i in range(len(F)):
            others = np.arange(len(F)) != i
            weights = decoder.set_params(regularization=value).smoother(X[others], X[i : i + 1])
            decoded[k, i] = weights[0] @ F[others]
        if invariants is not None:
            invariants.project(decoded[k])
    weights = decoder.get_params().get("cell_weights")
    return np.stack([relative_l2(F, fields, cell_weights=weights) for fields in decoded])


MAPS = [
    randsmap.SigmoidFeatures(3.0, n_features=8),
    randsmap.FourierFeatures(1.0, n_features=60),
    PolynomialFeatures(2, include_bias=False),
]


@pytest.mark.parametrize("M", [12, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "q, weights, constant", [(0, False, True), (1, False, False), (1, True, True), (2, True, True)]
)
@pytest.mark.parametrize("features", MAPS, ids=lambda features: type(features).__name__)
def test_random_features_agree_with_refits(features, q, weights, constant, M):
    X, F, parameters = problem(M, q, weights, constant)
    decoder = randsmap.RANDSMAPDecoder(features, random_state=0, **parameters, latent_scale=None)
    # 300 cells and a path of four lambdas go through coordinates
    lambdas = [*LAMBDAS, 30.0] if M == 300 else LAMBDAS
    result = randsmap.leave_one_out(decoder, X, F, regularizations=lambdas)
    expected = refits(decoder, X, F, lambdas)
    np.testing.assert_allclose(result.errors_, expected, rtol=1e-9)
    np.testing.assert_allclose(result.mean_errors_, expected.mean(axis=1), rtol=1e-9)
    assert result.best_regularization_ == lambdas[int(expected.mean(axis=1).argmin())]


@pytest.mark.parametrize("features", MAPS, ids=lambda features: type(features).__name__)
def test_without_a_penalty(features):
    # the limit of lambda to 0; the refits are minimum-norm solutions
    X, F, _ = problem(12, 0, False, False)
    decoder = randsmap.RFNNDecoder(features, regularization=0.0, random_state=0, latent_scale=None)
    np.testing.assert_allclose(randsmap.leave_one_out(decoder, X, F).errors_, refits(decoder, X, F, [0.0]), rtol=1e-7)


@pytest.mark.parametrize("q, weights, constant", [(0, False, True), (1, True, False), (2, False, True)])
@pytest.mark.parametrize(
    "kernel",
    [
        dict(length_scale=0.3),
        dict(length_scale=[0.5, 2.0]),
        dict(kernel="multi-gaussian", max_frequency=10.0),
        dict(length_scale=0.3, degree=1),
        dict(kernel="matern", nu=2.5, degree=1),
        dict(kernel="thin-plate", degree=1),
    ],
    ids=str,
)
def test_kernel_decoder_agrees_with_refits(kernel, q, weights, constant):
    X, F, parameters = problem(40, q, weights, constant)
    decoder = randsmap.KernelDecoder(**kernel, **parameters, latent_scale=None)
    lambdas = [1e-3, 1e-1, 10.0]  # the refits go through Cholesky
    result = randsmap.leave_one_out(decoder, X, F, regularizations=lambdas)
    np.testing.assert_allclose(result.errors_, refits(decoder, X, F, lambdas), rtol=1e-9)


def test_a_sample_with_leverage_near_1():
    # one far point that determines a feature alone: 1 - h is about 1e-11
    X, F, _ = problem(12, 0, False, False)
    X = X.copy()
    X[0] = 2e5
    decoder = randsmap.RFNNDecoder(PolynomialFeatures(1, include_bias=False), regularization=1e-9, latent_scale=None)
    result = randsmap.leave_one_out(decoder, X, F)
    np.testing.assert_allclose(result.errors_, refits(decoder, X, F, [1e-9]), rtol=1e-5)


def test_own_regularization_edges_and_one_cell():
    X, F, _ = problem(12, 0, False, False)
    decoder = randsmap.RFNNDecoder(MAPS[0], regularization=0.1, random_state=0)
    alone = randsmap.leave_one_out(decoder, X, F)
    assert alone.errors_.shape == (1, N) and not alone.on_edge_ and alone.best_regularization_ == 0.1
    path = randsmap.leave_one_out(decoder, X, F, regularizations=(1e6, 0.1, 1e7))
    np.testing.assert_allclose(path.errors_[1], alone.errors_[0], rtol=1e-12)
    assert not path.on_edge_
    assert randsmap.leave_one_out(decoder, X, F, regularizations=[0.1, 1e6, 1e7]).on_edge_
    single = randsmap.leave_one_out(decoder, X.tolist(), F[:, 0])
    np.testing.assert_allclose(single.errors_, randsmap.leave_one_out(decoder, X, F[:, :1]).errors_)
    assert not hasattr(decoder, "coef_")


def test_blocks_of_cells(monkeypatch):
    X, F, parameters = problem(100, 2, True, True)
    decoder = randsmap.RANDSMAPDecoder(MAPS[0], random_state=0, **parameters)
    whole = randsmap.leave_one_out(decoder, X, F).errors_
    monkeypatch.setattr(spectral, "_ENTRIES", 1)
    np.testing.assert_allclose(randsmap.leave_one_out(decoder, X, F).errors_, whole, rtol=1e-12)


def test_what_has_no_closed_form():
    X, F, _ = problem(12, 0, False, False)
    for decoder in (Ridge(), randsmap.KNNDecoder(), randsmap.DoubleDiffusionMapsDecoder(), randsmap.RFNNDecoder):
        with pytest.raises(TypeError, match="must be an RFNNDecoder, a RANDSMAPDecoder or a KernelDecoder"):
            randsmap.leave_one_out(decoder, X, F)
    with pytest.raises(ValueError, match="constraint='training' has no leave-one-out"):
        randsmap.leave_one_out(randsmap.RANDSMAPDecoder(constraint="training"), X, F)
    for wrong in ([], 1.0, [-1.0], [np.nan]):
        with pytest.raises(ValueError, match="regularization"):
            randsmap.leave_one_out(randsmap.RFNNDecoder(), X, F, regularizations=wrong)
    with pytest.raises(ValueError, match="do not satisfy invariant 0"):
        randsmap.leave_one_out(randsmap.RANDSMAPDecoder(invariants="mass"), X, F)


@pytest.mark.parametrize("factor", [0.0, 1e-12])
def test_an_empty_or_tiny_field_does_not_choose(factor):
    x, centres = np.linspace(0, 1, 50), np.linspace(0.3, 0.7, 40)[:, None]
    F = np.exp(-(((x - centres) / 0.1) ** 2))
    F /= F.sum(axis=1, keepdims=True)
    X = randsmap.DiffusionMaps(2).fit_transform(F)
    decoder = randsmap.RFNNDecoder(randsmap.SigmoidFeatures(5.0), random_state=0, latent_scale=None)
    lambdas = [1.0, 1e-3, 1e-6]
    whole = randsmap.leave_one_out(decoder, X, F, regularizations=lambdas)
    F[0] *= factor
    result = randsmap.leave_one_out(decoder, X, F, regularizations=lambdas)
    assert result.best_regularization_ == whole.best_regularization_ == 1e-6
    sizes = np.maximum(np.linalg.norm(F, axis=1), 1e-3 * np.median(np.linalg.norm(F[1:], axis=1)))
    drawn = clone(decoder.features).set_params(random_state=0).fit(X)
    weights = randsmap.RFNNDecoder(FittedFeatures(drawn), solver="svd", latent_scale=None).smoother(X[1:], X[:1])
    expected = np.linalg.norm(weights @ F[1:] - F[0]) / sizes[0]
    assert result.errors_[1, 0] == pytest.approx(expected, rel=1e-7)


def _latents(kind, n, d, rng):
    X = rng.uniform(-1, 1, (n, d))
    if kind == "far":
        X[0] += 1e3
    if kind == "alone":  # one point alone determines the last direction of a linear trend
        X[:, -1] = 0.0
        X[-1, -1] = 1.0
    if kind == "clusters":
        X = np.round(X) + 1e-3 * rng.normal(size=X.shape)
    return X


SETS = [
    ("far", 12, 2),
    ("alone", 12, 2),
    ("alone", 12, 1),
    ("clusters", 12, 2),
    ("few", 3, 2),
    ("few", 3, 3),
    ("few", 4, 1),
]


@pytest.mark.parametrize(("kind", "n", "d"), SETS)
@pytest.mark.parametrize("kernel", ["thin-plate", "gaussian", "matern"])
@pytest.mark.parametrize("center", [True, False])
def test_every_leverage_of_a_linear_trend_agrees_with_refits(kernel, center, kind, n, d):
    rng = np.random.default_rng(n + d)
    X, F = _latents(kind, n, d, rng), 1 + 0.1 * rng.normal(size=(n, 5))
    decoder = randsmap.KernelDecoder(kernel, degree=1, latent_scale=np.full(d, 0.5), center=center, invariants=None)
    lambdas = [1e-4, 1.0]
    found = randsmap.leave_one_out(decoder, X, F, regularizations=lambdas).errors_
    np.testing.assert_allclose(found, refits(decoder, X, F, lambdas), rtol=1e-6, atol=1e-6)


def test_two_points_do_not_determine_a_linear_trend_without_one_of_them():
    decoder = randsmap.KernelDecoder(degree=1)
    with pytest.raises(ValueError, match="X must have at least 3"):
        randsmap.leave_one_out(decoder, [[0.0], [1.0]], np.eye(2))


@pytest.mark.parametrize("regularization", [0.0, 1e-8, 1e-3])
@pytest.mark.parametrize(("n", "P"), [(3, 2), (4, 12), (12, 12), (12, 5)])
def test_features_of_few_points_agree_with_refits(n, P, regularization):
    rng = np.random.default_rng(n + P)
    X, F = rng.uniform(-1, 1, (n, 3)), 1 + 0.1 * rng.normal(size=(n, 5))
    decoder = randsmap.RFNNDecoder(randsmap.SigmoidFeatures(3.0, n_features=P), latent_scale=None, random_state=0)
    found = randsmap.leave_one_out(decoder, X, F, regularizations=[regularization]).errors_
    np.testing.assert_allclose(found, refits(decoder, X, F, [regularization]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "n", "d"), SETS)
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("sizes", ["halves", "all but one"])
def test_groups_held_out_agree_with_refits_in_all_forms(sizes, degree, kind, n, d):
    rng = np.random.default_rng(n + d)
    X, F, value = _latents(kind, n, d, rng), rng.normal(size=(n, 4)), 1e-3
    groups = np.split(np.arange(n), [n // 2 if sizes == "halves" else n - 1])
    K, T = Radial.gaussian(1.0).values(X), polynomial_tail(X - X.mean(axis=0), degree)
    expected = np.empty_like(F)
    for held in groups:
        rest = np.setdiff1d(np.arange(n), held)
        t = T - np.pad(T[rest, 1:].mean(axis=0), (1, 0))
        W = Dual(K[np.ix_(rest, rest)], t[rest]).weights(K[np.ix_(held, rest)], t[held], value)
        expected[held] = F[held] - W @ F[rest]
    for form in (Dual(K, T), Dual(K, T).hat(), Dual(K, T).complete_hat()):
        np.testing.assert_allclose(form.residuals(F, value, groups), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("farthest", [1.0, 1e6])
@pytest.mark.parametrize(
    ("kernel", "regularization", "uncertain"),
    [
        ({"length_scale": 1.0}, [1e-14], {1.0, 1e6}),
        ({"length_scale": 1.0}, [0.0], {1.0, 1e6}),
        ({"length_scale": 1.0}, [1e-10], set()),
        ({"length_scale": 0.02}, [0.0], set()),
        ({"kernel": "thin-plate", "degree": 1}, [1e-3], {1e6}),
        ({"kernel": "thin-plate", "degree": 1}, [1e2], set()),
    ],
)
def test_errors_that_the_round_off_of_a_kernel_decides_are_warned_of(kernel, regularization, uncertain, farthest):
    u = np.linspace(0, 1, 30)
    X, x = np.column_stack([u, np.sin(7 * u)]), np.linspace(0, 1, 12)
    X[-1] = farthest, 1.0
    F = np.exp(-(((x - 0.3 - 0.4 * u[:, None]) / 0.15) ** 2))
    decoder = randsmap.KernelDecoder(latent_scale=1.0, invariants=None, **kernel)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        randsmap.leave_one_out(decoder, X, F, regularizations=regularization)
    assert ["depend on round-off" in str(each.message) for each in caught] == [True] * (farthest in uncertain)


def test_a_row_far_larger_than_those_that_determine_it_is_named():
    u = np.linspace(0, 1, 30)
    X = np.column_stack([np.r_[u[:-1], 1e4], np.sin(7 * u)])
    decoder = randsmap.RFNNDecoder(
        randsmap.MonomialFeatures(), latent_scale=1.0, center=False, regularization=1e-6, random_state=0
    )
    with pytest.warns(UserWarning, match=r"errors of rows \[29\] depend on round-off"):
        randsmap.leave_one_out(decoder, X, np.column_stack([1 + u, np.cos(u)]))


def test_rows_that_round_off_decides_are_named():
    """A snapshot that alone determines features, which no regularization damps."""
    u = np.linspace(0, 1, 20)
    X, x = np.column_stack([u, np.r_[np.zeros(19), 1.0]]), np.linspace(0, 1, 15)
    F = np.exp(-(((x - 0.3 - 0.3 * u[:, None]) / 0.2) ** 2))
    features = randsmap.SigmoidFeatures(3.0, n_features=40, latent_box=(0.0, 1.0), random_state=0)
    decoder = randsmap.RFNNDecoder(features, latent_scale=1.0, regularization=0.0, random_state=0)
    with pytest.warns(UserWarning, match=r"errors of rows .*19\] depend on round-off"):
        randsmap.leave_one_out(decoder, X, F)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judged = randsmap.leave_one_out(decoder, X, F, regularizations=[1e-6]).errors_[0]
    for i in (3, 19):
        rest = np.delete(np.arange(20), i)
        alone = randsmap.RFNNDecoder(features, latent_scale=1.0, regularization=1e-6, random_state=0).fit(
            X[rest], F[rest]
        )
        missed = np.linalg.norm(alone.predict(X[i : i + 1]) - F[i]) / np.linalg.norm(F[i])
        np.testing.assert_allclose(judged[i], missed, rtol=1e-6)
