"""Centring and units: an unpenalised bias, and latents divided by their spread."""

import pickle

import mpmath
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap import (
    DiffusionMaps,
    DoubleDiffusionMapsDecoder,
    FourierFeatures,
    KernelDecoder,
    MultiscaleFourierFeatures,
    RANDSMAPDecoder,
    RFNNDecoder,
    SigmoidFeatures,
)
from randsmap.decoders._base import fitted_scale
from randsmap.maps.linear_map import LinearMap

from helpers import fitted_invariants, random_problem, violation

EPS = np.finfo(float).eps
PAPER = dict(center=False, latent_scale=None)
DECODERS = {
    "sigmoid": RANDSMAPDecoder(SigmoidFeatures(3.0, n_features=40), random_state=0, invariants=None),
    "dual": RFNNDecoder(FourierFeatures(1.0, n_features=300), random_state=0),
    "qr": RFNNDecoder(FourierFeatures(1.0, n_features=300), random_state=0, regularization=1e-9),
    "svd": RFNNDecoder(SigmoidFeatures(3.0), random_state=0, solver="svd"),
    "krylov": RFNNDecoder(SigmoidFeatures(3.0), random_state=0, solver="krylov", tol=1e-12),
    "multiscale": RFNNDecoder(MultiscaleFourierFeatures(3.0), random_state=0),
    "polynomial": RFNNDecoder(PolynomialFeatures(3, include_bias=False)),
    "gaussian": KernelDecoder(length_scale=0.7, invariants=None),
    "small lambda": KernelDecoder(length_scale=0.7, regularization=1e-12, invariants=None),
    "multi-gaussian": KernelDecoder("multi-gaussian", max_frequency=4.0, invariants=None),
    "harmonics": DoubleDiffusionMapsDecoder(rank=15, invariants=None),
    "interpolation": DoubleDiffusionMapsDecoder(epsilon=0.6, invariants=None),
}
RANDOM = [name for name in DECODERS if isinstance(DECODERS[name], (RFNNDecoder, RANDSMAPDecoder))]


def bumps():
    """Bumps on a line, their latents, and every second row to fit on."""
    F = np.exp(-(((np.linspace(0, 1, 50) - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2))
    return DiffusionMaps(2).fit_transform(F / F.sum(axis=1, keepdims=True)), 10 * F


def rms(E):
    return np.sqrt((E**2).mean())


@pytest.mark.parametrize("background", ["constant", "profile"])
@pytest.mark.parametrize("name", [name for name in DECODERS if name not in ("polynomial", "multiscale")])
def test_a_background_costs_no_accuracy(name, background):
    Y, F = bumps()
    G = F + (101325.0 if background == "constant" else 1e5 * (1 + np.linspace(0, 1, 50)))
    mean = F[::2].mean(axis=0)
    error = {}
    for how, fields in (("background", G), ("less their mean", F - mean)):
        decoder = clone(DECODERS[name]).fit(Y[::2], fields[::2])
        error[how] = rms(decoder.predict(Y[1::2]) - fields[1::2])
    assert error["background"] == pytest.approx(error["less their mean"], rel=1e-6, abs=1e-9)
    assert error["background"] < 0.1
    if name in ("sigmoid", "gaussian"):  # what it is for
        paper = clone(DECODERS[name]).set_params(**PAPER).fit(Y[::2], G[::2])
        assert rms(paper.predict(Y[1::2]) - G[1::2]) > 100 * error["background"]


@pytest.mark.parametrize("name", DECODERS)
def test_a_constant_added_to_the_fields_is_added_to_what_is_decoded(name):
    Y, F = random_problem(60, 20)
    Z = np.random.default_rng(1).uniform(-0.5, 1.5, size=(20, 2))
    decoder = clone(DECODERS[name])
    plain = decoder.fit(Y, F).predict(Z)
    shifted = clone(decoder).fit(Y, F + 1e3).predict(Z)
    size = np.abs(decoder.coef_).sum(axis=0).max() if name != "harmonics" else 15 / decoder.eigenvalues_[-1]
    assert abs(shifted - 1e3 - plain).max() <= 1e-9 + 1e3 * EPS * size


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "polynomial"])
def test_a_cell_that_is_constant_but_for_one_ulp_stays_so(name):
    Y, F = bumps()
    F = np.hstack([F, np.ones((40, 1))])
    F[7, -1] += EPS
    decoder = clone(DECODERS[name]).fit(Y, F)
    assert not getattr(decoder, "constant_cells_", np.zeros(1))[-1]
    assert abs(decoder.predict(1.1 * Y)[:, -1] - 1).max() <= 1e-9


@pytest.mark.parametrize("name", DECODERS)
def test_the_bias_row_is_the_mean_less_what_the_mean_features_give(name):
    Y, F = random_problem(60, 20)
    decoder = clone(DECODERS[name]).fit(Y, F)
    linear = decoder.linear_map
    if name in RANDOM:
        phi = decoder.features_.transform(Y)
    else:
        size = len(linear.A) - 1
        eye = np.vstack([np.zeros(size), np.eye(size)])
        phi = LinearMap(linear.basis, eye, combinations=linear.combinations).fields(Y)
    expected = F.mean(axis=0) - phi.mean(axis=0) @ linear.A[1:]
    free = ~getattr(decoder, "constant_cells_", np.zeros(20, bool))
    bound = 1e3 * EPS * (1 + np.abs(linear.A[1:]).sum(axis=0).max() * np.abs(phi).max())
    assert abs(linear.A[0] - expected)[free].max() <= bound
    if name != "krylov":
        assert abs(decoder.predict(Y).mean(axis=0) - F.mean(axis=0)).max() <= bound


@pytest.mark.parametrize("name", ["sigmoid", "dual", "svd"])
@pytest.mark.parametrize("regularization", [1e-3, 1.0])
def test_it_is_ridge_regression_with_an_unpenalised_bias(name, regularization):
    Y, F = random_problem(60, 20)
    decoder = clone(DECODERS[name]).set_params(regularization=regularization).fit(Y, F)
    Phi = np.hstack([np.ones((60, 1)), decoder.features_.transform(Y)])
    penalty = regularization * np.eye(Phi.shape[1])
    penalty[0, 0] = 0
    expected = np.linalg.lstsq(
        np.vstack([Phi, np.sqrt(penalty)]), np.vstack([F, np.zeros((len(penalty), 20))]), rcond=None
    )[0]
    assert abs(decoder.coef_ - expected).max() <= 1e-8 * abs(expected).max()


@pytest.mark.parametrize("name", ["gaussian", "multi-gaussian"])
def test_kernels_solve_the_bordered_system(name):
    Y, F = random_problem(60, 20)
    decoder = clone(DECODERS[name]).fit(Y, F)
    K = decoder._fitted.radial.values(decoder._fitted.points)
    system = np.block([[K + 1e-3 * np.eye(60), np.ones((60, 1))], [np.ones((1, 60)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.vstack([F, np.zeros((1, 20))]))
    assert abs(decoder.coef_ - np.vstack([solution[-1], solution[:-1]])).max() <= 1e-8 * abs(solution).max()


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_invariants_and_constant_cells_are_exact(name, weighted):
    rng = np.random.default_rng(0)
    Y, F = random_problem(60, 20, constant={4: 0.1, 9: 0.0})
    C = np.column_stack([np.ones(20), rng.normal(size=20)])
    weights = rng.uniform(0.5, 2, 20) if weighted else None
    F = fitted_invariants(F, invariants=C, values=[1.0, 0.3], tol=1.0, cell_weights=weights).project(F)
    decoder = clone(DECODERS[name])
    if type(decoder) is RFNNDecoder:
        params = {k: v for k, v in decoder.get_params(deep=False).items() if k != "progress"}
        decoder = RANDSMAPDecoder(**params)
    decoder.set_params(invariants=C, cell_weights=weights).fit(Y, F + 1e-9 * rng.normal(size=F.shape) * (F != F[0]))
    Z = np.vstack([Y, 0.5 + 1e3 * (Y - 0.5)])
    fields = decoder.predict(Z)
    assert violation(fields, C, decoder.invariant_values_) <= 1e-14
    assert (fields[:, 4] == F[0, 4]).all() and (fields[:, 9] == F[0, 9]).all()
    e_bias = np.zeros((len(decoder.coef_), 2))
    e_bias[0] = decoder.invariant_values_
    size = np.abs(decoder.coef_) @ np.abs(C)
    assert (abs(decoder.coef_ @ C - e_bias) <= 1e-13 * (size + 1)).all()
    T = decoder.jvp(Y, np.ones(2))
    assert (abs(T @ C) <= 1e-13 * (np.abs(T) @ np.abs(C)) + 1e-300).all()


# -- Units -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "krylov"])
def test_units_of_the_latents_do_not_matter(name):
    Y, F = random_problem(60, 20)
    Z = np.random.default_rng(1).uniform(size=(20, 2))
    units = np.array([2.0**20, 2.0**-9])  # powers of two: to the bit
    decoder = clone(DECODERS[name])
    fields = decoder.fit(Y, F).predict(Z)
    other = clone(decoder).fit(Y * units, F)
    assert np.array_equal(other.latent_scale_, decoder.latent_scale_ * units)
    assert abs(other.predict(Z * units) - fields).max() <= 1e-8
    V = np.random.default_rng(2).normal(size=(20, 2))
    assert abs(other.jvp(Z * units, V * units) - decoder.jvp(Z, V)).max() <= 1e-6


@pytest.mark.parametrize("name", DECODERS)
def test_a_scale_is_a_division_of_the_latents(name):
    Y, F = random_problem(60, 20)
    Z = np.random.default_rng(1).uniform(size=(20, 2))
    scale = np.array([0.25, 2.0])
    decoder = clone(DECODERS[name]).set_params(latent_scale=scale).fit(Y, F)
    assert np.array_equal(decoder.latent_scale_, scale)
    divided = clone(decoder).set_params(latent_scale=None).fit(Y / scale, F)
    assert (divided.latent_scale_ == 1).all()
    assert abs(decoder.predict(Z) - divided.predict(Z / scale)).max() <= 1e-8
    if hasattr(decoder, "features_") and hasattr(decoder.features_, "weights_"):
        # what the features take are latents as they are
        assert np.array_equal(decoder.features_.weights_, divided.features_.weights_ / scale[:, None])
        assert abs(decoder.features_.transform(Z) - divided.features_.transform(Z / scale)).max() <= 1e-12
    number = clone(decoder).set_params(latent_scale=0.5).fit(Y, F)
    assert (number.latent_scale_ == 0.5).all()


def test_the_spread_and_where_there_is_none():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6)) * [1, 1e200, 1e-200, 1, 1, 0] + [0, 0, 0, 1e6, 1e14, 3]
    X[:, 4] = 1e14 * (1 + 1e-14 * rng.normal(size=50))
    scale = fitted_scale("std", X)
    np.testing.assert_allclose(scale[[0, 1, 3]], [X[:, 0].std(), (X[:, 1] / 1e200).std() * 1e200, X[:, 3].std()])
    np.testing.assert_allclose(scale[2], (X[:, 2] * 1e200).std() * 1e-200)
    assert scale[4] == scale[5] == 1
    decoder = RANDSMAPDecoder(SigmoidFeatures(latent_box=None), random_state=0)
    Y, F = random_problem(30, 10)
    assert np.isfinite(decoder.fit(np.ones((30, 2)), F).predict([[1.0, 1.0]])).all()


def test_a_latent_box_is_in_latents_as_they_are():
    Y, F = random_problem(60, 20)
    Y = 1000 * Y
    box = np.stack([Y.min(axis=0), Y.max(axis=0)])
    a, b = (
        RFNNDecoder(SigmoidFeatures(3.0, latent_box=given), random_state=0).fit(Y, F).predict(Y)
        for given in (box, None)
    )
    np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("cls", [RFNNDecoder, RANDSMAPDecoder, KernelDecoder, DoubleDiffusionMapsDecoder])
@pytest.mark.parametrize(
    "parameters, error, message",
    [
        (dict(center=1), TypeError, "center must be a bool, got 1"),
        (dict(center=None), TypeError, "center must be a bool"),
        (dict(latent_scale="mad"), ValueError, "latent_scale must be one of 'std', got 'mad'"),
        (dict(latent_scale=0.0), ValueError, "latent_scale must be finite and > 0"),
        (dict(latent_scale=[1.0]), ValueError, "latent_scale must have length 2, got 1"),
        (dict(latent_scale=[1.0, -1.0]), ValueError, "latent_scale must be > 0 in each coordinate"),
        (dict(latent_scale=[1.0, np.nan]), ValueError, "latent_scale"),
    ],
)
def test_bad_values_are_refused(cls, parameters, error, message):
    with pytest.raises(error, match=message):
        cls(**parameters).fit(*random_problem(20, 5))


def test_the_papers_constraint_knows_neither():
    Y, F = random_problem(60, 20)
    decoder = RANDSMAPDecoder(FourierFeatures(0.5, n_features=20), constraint="training", random_state=0)
    fits = [clone(decoder).set_params(**params).fit(Y, F) for params in ({}, PAPER)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_) and (fits[0].latent_scale_ == 1).all()


# -- Batches, files, pickles -----------------------------------------------------------------------


def test_batches_need_a_unit_that_does_not_depend_on_them():
    Y, F = random_problem(60, 20)
    features = FourierFeatures(1.0, n_features=20)
    with pytest.raises(ValueError, match="latent_scale=None, or a number"):
        RFNNDecoder(features).partial_fit(Y, F)
    for scale in (None, 0.3, [0.3, 2.0]):
        decoder = RFNNDecoder(features, latent_scale=scale, random_state=0)
        batches = clone(decoder).partial_fit(Y[:10], F[:10]).partial_fit(Y[10:], F[10:])
        whole = decoder.fit(Y, F)
        assert np.array_equal(batches.latent_scale_, whole.latent_scale_)
        assert np.array_equal(batches.predict(Y), whole.predict(Y))


@pytest.mark.parametrize("drift", [0.0, 1e6])
def test_sums_lose_nothing_to_a_drifting_mean(drift):
    """The first blocks have another mean than the last: sums about a fixed point would cancel."""
    rng = np.random.default_rng(0)
    Y = np.sort(rng.uniform(size=(3000, 1)), axis=0)
    F = np.hstack([np.sin(3 * Y), drift * Y])
    features = PolynomialFeatures(3, include_bias=False).fit(Y[:1])
    decoder = RFNNDecoder(features, latent_scale=None, regularization=1e-6)
    batches = RFNNDecoder(features, latent_scale=None, regularization=1e-6)  # a clone would not be fitted
    for part in np.array_split(np.arange(3000), 40):
        batches.partial_fit(Y[part], F[part])
    reference = clone(decoder).set_params(solver="svd").fit(Y, F).predict(Y)
    for fitted in (batches, decoder.fit(Y, F)):
        assert (abs(fitted.predict(Y) - reference).max(axis=0) <= 1e-9 * abs(reference).max(axis=0) + 1e-12).all()


@pytest.mark.parametrize("name", ["sigmoid", "gaussian", "multi-gaussian", "harmonics", "interpolation"])
def test_files_and_pickles_keep_them(name, tmp_path):
    Y, F = random_problem(60, 20)
    for given in (clone(DECODERS[name]).fit(Y, F), clone(DECODERS[name]).set_params(**PAPER).fit(Y, F)):
        randsmap.persistence.save(given, tmp_path / "decoder.npz")
        loaded, copied = randsmap.load(tmp_path / "decoder.npz"), pickle.loads(pickle.dumps(given))
        for again in (loaded, copied):
            assert again.center == given.center and np.array_equal(again.latent_scale_, given.latent_scale_)
            assert np.array_equal(again.predict(Y), given.predict(Y))


# -- Fifty digits ----------------------------------------------------------------------------------


def _centred(M):
    for j in range(M.cols):
        mean = mpmath.fsum(M[:, j]) / M.rows
        for i in range(M.rows):
            M[i, j] -= mean
    return M


def _solved(G, right):
    lu, order = mpmath.mp.LU_decomp(G)
    X = mpmath.matrix(right.rows, right.cols)
    for j in range(right.cols):
        X[:, j] = mpmath.mp.U_solve(lu, mpmath.mp.L_solve(lu, right[:, j], order))
    return X


def _fields(Y):
    F = np.exp(-(((np.linspace(0, 1, 4) - 0.3 - 0.4 * Y[:, :1]) / (0.2 + 0.2 * Y[:, 1:])) ** 2))
    return F / F.sum(axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("length_scale", [0.3, 1.0, 3.0])
def test_kernels_at_the_smallest_lambda_decode_as_fifty_digits_do(length_scale):
    rng = np.random.default_rng(0)
    Y, Z = rng.uniform(size=(36, 2)), rng.uniform(size=(15, 2))
    F, G = _fields(Y), _fields(Z)
    lengths = [mpmath.mpf(float(x)) for x in length_scale * Y.std(axis=0)]
    with mpmath.workdps(50):

        def kernel(A, B):
            out = mpmath.matrix(len(A), len(B))
            for i, a in enumerate(A):
                for j, b in enumerate(B):
                    out[i, j] = mpmath.exp(-mpmath.fsum([((x - y) / s) ** 2 for x, y, s in zip(a, b, lengths)]) / 2)
            return out

        A, B = ([[mpmath.mpf(float(x)) for x in y] for y in points] for points in (Y, Z))
        K, there, fields = kernel(A, A), kernel(B, A), mpmath.matrix(F.tolist())
        for j in range(36):
            mean = mpmath.fsum(K[:, j]) / 36
            for i in range(15):
                there[i, j] -= mean
        K = _centred(_centred(K).T)
        regularization = 1e-12 * np.linalg.norm(np.array(K.tolist(), float), 2)
        solution = there * _solved(K + mpmath.mpf(regularization) * mpmath.eye(36), _centred(fields.copy()))
        exact = np.array(solution.tolist(), float) + F.mean(axis=0)
    decoder = KernelDecoder(length_scale=length_scale, regularization=regularization, invariants="mass").fit(Y, F)
    decoded = decoder.predict(Z)
    assert violation(decoded, np.ones((4, 1)), decoder.invariant_values_) <= 1e-14
    assert np.linalg.norm(decoded - G) <= 1.05 * np.linalg.norm(exact - G)


@pytest.mark.slow
@pytest.mark.parametrize("features", [SigmoidFeatures(3.0), FourierFeatures(1.0), FourierFeatures(1.0, n_features=40)])
@pytest.mark.parametrize("solver", ["auto", "svd"])
def test_features_at_the_smallest_lambda_decode_as_fifty_digits_do(features, solver):
    rng = np.random.default_rng(0)
    Y, Z = rng.uniform(size=(36, 2)), rng.uniform(size=(15, 2))
    F, G = _fields(Y), _fields(Z)
    decoder = RANDSMAPDecoder(features, random_state=0, solver=solver).fit(Y, F)
    W, b = decoder.features_.weights_, decoder.features_.offsets_
    with mpmath.workdps(50):
        scale = mpmath.sqrt(mpmath.mpf(2) / W.shape[1])

        def phi(X):
            out = mpmath.matrix(len(X), W.shape[1])
            for i in range(len(X)):
                for k in range(W.shape[1]):
                    t = mpmath.fdot(map(float, X[i]), map(float, W[:, k])) + mpmath.mpf(float(b[k]))
                    sigmoid = isinstance(features, SigmoidFeatures)
                    out[i, k] = 1 / (1 + mpmath.exp(-t)) if sigmoid else scale * mpmath.cos(t)
            return out

        Phi, there = phi(Y), phi(Z)
        for k in range(W.shape[1]):
            mean = mpmath.fsum(Phi[:, k]) / 36
            for i in range(15):
                there[i, k] -= mean
        Phi = _centred(Phi)
        regularization = 1e-12 * np.linalg.norm(np.array(Phi.tolist(), float), 2) ** 2
        H = _solved(Phi * Phi.T + mpmath.mpf(regularization) * mpmath.eye(36), _centred(mpmath.matrix(F.tolist())))
        exact = np.array((there * (Phi.T * H)).tolist(), float) + F.mean(axis=0)
    decoder.set_params(regularization=regularization).fit(Y, F)
    decoded = decoder.predict(Z)
    assert violation(decoded, np.ones((4, 1)), decoder.invariant_values_) <= 1e-14
    assert np.linalg.norm(decoded - G) <= 1.05 * np.linalg.norm(exact - G)
    assert abs(decoded - exact).max() <= 1e-8
