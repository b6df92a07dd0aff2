"""Leverage: the hat matrix's diagonal anywhere, what is far from the training points, and the warning that says so."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap import (
    AutoDecoder,
    BlendedDecoder,
    ConservativeRegressor,
    DoubleDiffusionMapsDecoder,
    ExtrapolationWarning,
    FourierFeatures,
    KernelDecoder,
    KNNDecoder,
    RANDSMAPDecoder,
    RFNNDecoder,
    SigmoidFeatures,
)
from randsmap._linalg.gram import _SAMPLE
from randsmap.maps.extrapolation import DISTANCE_FACTOR, FACTOR, TrustRegion
from randsmap.persistence import save

pytestmark = pytest.mark.filterwarnings("error::randsmap.decoders.ExtrapolationWarning")

rng = np.random.default_rng(3)
N, M = 24, 5
Y = rng.standard_normal((N, 2))
F = rng.uniform(0.5, 1.5, (N, M))
F /= F.sum(axis=1, keepdims=True)
Z = np.vstack([1.5 * rng.standard_normal((6, 2)), Y[:2] + 0.01])
FAR = np.array([[60.0, -60.0]])
KERNELS = [
    ("gaussian", 0, True),
    ("gaussian", 0, False),
    ("gaussian", 1, True),
    ("multi-gaussian", 0, True),
    ("matern", 0, True),
    ("matern", 1, True),
    ("thin-plate", 1, True),
]
DECODERS = {
    "sigmoid": RFNNDecoder(SigmoidFeatures(), random_state=0),
    "RANDSMAP": RANDSMAPDecoder(FourierFeatures(0.7, n_features=60), random_state=0),
    "kernel": KernelDecoder(invariants="mass"),
    "thin plate": KernelDecoder("thin-plate", degree=1),
    "interpolation": KernelDecoder(regularization=0),
    "DDM": DoubleDiffusionMapsDecoder(),
    "DDM of low rank": DoubleDiffusionMapsDecoder(rank=5),
    "k-NN": KNNDecoder(3),
    "nearest": KNNDecoder(1),
    "blend": BlendedDecoder([KernelDecoder(), KNNDecoder(3), KernelDecoder("matern", degree=1)]),
    "auto": AutoDecoder(n_trials=8, families=["gaussian", "matern", "thin-plate", "k-nn"], random_state=0),
}


def ridge_leverage(Phi, phi, regularization, center):
    """phi^T (Phi^T Phi + lambda I)^-1 phi of rows phi, in 60 digits; centred, 1/n more."""
    with mpmath.workdps(60):
        Phi, phi = (mpmath.matrix(A.tolist()) for A in (Phi, phi))
        n, P = Phi.rows, Phi.cols
        offset = mpmath.mpf(0)
        if center:
            offset = mpmath.mpf(1) / n
            for j in range(P):
                mean = mpmath.fsum(Phi[:, j]) / n
                for A in (Phi, phi):
                    for i in range(A.rows):
                        A[i, j] -= mean
        inverse = mpmath.inverse(Phi.T * Phi + mpmath.mpf(regularization) * mpmath.eye(P))
        return np.array([float(offset + (phi[i, :] * inverse * phi[i, :].T)[0]) for i in range(phi.rows)])


def kriging_variance(K, T, k, t, own, regularization):
    """k(y, y) - [k; t]^T [K + lambda I, T; T^T, 0]^-1 [k; t] of rows k and t, in 60 digits."""
    with mpmath.workdps(60):
        n, m = T.shape
        A = mpmath.zeros(n + m, n + m)
        for i in range(n):
            for j in range(n):
                A[i, j] = mpmath.mpf(float(K[i, j])) + (mpmath.mpf(regularization) if i == j else 0)
            for j in range(m):
                A[i, n + j] = A[n + j, i] = mpmath.mpf(float(T[i, j]))
        inverse = mpmath.inverse(A)
        out = []
        for row in np.hstack([k, t]):
            b = mpmath.matrix(row.tolist())
            out.append(mpmath.mpf(own) - (b.T * inverse * b)[0])
        return out


# -- Ridge regression on features ------------------------------------------------------------------
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("n_features", [7, *(pytest.param(P, marks=pytest.mark.slow) for P in (24, 40))])
def test_of_features_is_the_formula_in_exact_arithmetic(n_features, center):
    for regularization in (1e-10, 1e-3, 10.0):
        features = SigmoidFeatures(3.0, n_features=n_features)
        expected = None
        for solver in ("auto", "svd", "krylov"):
            decoder = RANDSMAPDecoder(
                features, solver=solver, regularization=regularization, center=center, random_state=0
            ).fit(Y, F)
            if expected is None:  # of the same features, which takes longest
                Phi, phi = (decoder.features_.transform(A) for A in (Y, Z))
                if not center:
                    Phi, phi = (np.column_stack([np.ones(len(A)), A]) for A in (Phi, phi))
                expected = ridge_leverage(Phi, phi, regularization, center)
            # features are rounded: their error eps over sqrt(lambda) is what leverages this small lambda can show
            rtol = 1e-10 + 1e-14 / np.sqrt(regularization)
            np.testing.assert_allclose(decoder.leverage(Z), expected, rtol=rtol, err_msg=solver)
            assert decoder.leverage_ == pytest.approx(decoder.leverage(Y).max(), rel=1e-12), solver


@pytest.mark.parametrize("solver", ["auto", "svd"])
def test_at_training_points_it_is_the_diagonal_of_the_smoother(solver):
    for decoder in (
        RFNNDecoder(SigmoidFeatures(2.0, n_features=9), solver=solver, random_state=0),
        RFNNDecoder(FourierFeatures(0.5, n_features=50), solver=solver, random_state=0, center=False),
        RFNNDecoder(PolynomialFeatures(2, include_bias=False), solver=solver),
    ):
        np.testing.assert_allclose(
            decoder.fit(Y, F).leverage(Y), np.diag(decoder.smoother(Y, Y)), rtol=1e-9, err_msg=str(decoder)
        )


def test_without_regularisation_it_is_that_of_the_minimum_norm_solution():
    for n_features in (9, 60):
        decoder = RFNNDecoder(SigmoidFeatures(2.0, n_features=n_features), regularization=0, random_state=0).fit(Y, F)
        W = decoder.smoother(Y, Z)  # of noise in the fields, |w|^2 of its variance remains
        np.testing.assert_allclose(decoder.leverage(Z), np.square(W).sum(axis=1), rtol=1e-6)


def test_the_papers_form_has_the_bias_among_its_features():
    decoder = RANDSMAPDecoder(SigmoidFeatures(2.0, n_features=9), constraint="training", random_state=0).fit(Y, F)
    Phi, phi = (np.column_stack([np.ones(len(A)), decoder.features_.transform(A)]) for A in (Y, Z))
    np.testing.assert_allclose(decoder.leverage(Z), ridge_leverage(Phi, phi, 1e-3, False), rtol=1e-10)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("regularization", [1e-3, 0.0])
def test_of_batches_is_that_of_all_at_once(tmp_path, center, regularization):
    options = {"center": center, "latent_scale": None, "regularization": regularization, "random_state": 0}
    features = FourierFeatures(1.0, n_features=9)
    whole = RANDSMAPDecoder(features, **options).fit(Y, F)
    batches = RANDSMAPDecoder(features, **options)
    for a in range(0, N, 7):
        batches.partial_fit(Y[a : a + 7], F[a : a + 7])
    np.testing.assert_allclose(batches.leverage(Z), whole.leverage(Z), rtol=1e-6)
    assert batches.leverage_ == pytest.approx(whole.leverage_, rel=1e-6)
    save(batches, tmp_path / "model.npz")
    loaded = randsmap.load(tmp_path / "model.npz")
    assert (loaded.leverage(Z) == batches.leverage(Z)).all()
    assert loaded.leverage_ == batches.leverage_
    batches.partial_fit(Z[:3], F[:3])  # more points: less leverage everywhere
    assert (batches.leverage(Z) < loaded.leverage(Z) * (1 + 1e-9)).all()


def test_of_many_batches_some_points_are_kept():
    decoder = RFNNDecoder(FourierFeatures(1.0, n_features=4), latent_scale=None, random_state=0)
    points = np.random.default_rng(0).uniform(-1, 1, (3 * _SAMPLE + 5, 1))
    for a in range(0, len(points), 5000):
        decoder.partial_fit(points[a : a + 5000], points[a : a + 5000])
    kept = decoder._stream.sums.sample
    assert (kept == points[::4]).all()
    assert decoder.leverage_ <= decoder.leverage(points).max() < 2 * decoder.leverage_
    one_by_one = copy.deepcopy(decoder)
    for x in Y[:, :1]:
        one_by_one.partial_fit([x], [x])
    assert len(one_by_one._stream.sums.sample) == len(kept) + N // 4
    assert len(decoder._stream.sums.sample) == len(kept)


# -- Kernels ---------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("kernel, degree, center", KERNELS)
def test_of_kernels_is_kriging_in_exact_arithmetic(kernel, degree, center):
    for regularization in (1e-6, 1e-2, 10.0):
        decoder = KernelDecoder(
            kernel, degree=degree, center=center, regularization=regularization, latent_scale=None
        ).fit(Y, F)
        K, k = (decoder._fitted.radial.values(A, Y) for A in (Y, Z))
        own = 0.0 if kernel == "thin-plate" else 1.0
        if degree:
            T, t = (np.column_stack([np.ones(len(A)), A]) for A in (Y, Z))
        else:
            T, t = (np.ones((len(A), int(center))) for A in (Y, Z))
            K, k, own = K + (not center), k + (not center), own + (not center)
        expected = [float(v / regularization) for v in kriging_variance(K, T, k, t, own, regularization)]
        # the kernel's values are rounded: eps |w|_1^2 |K| over lambda
        atol = 50 * np.finfo(float).eps * max(1, np.abs(k).max()) / regularization
        np.testing.assert_allclose(decoder.leverage(Z), expected, rtol=1e-9, atol=atol)
        np.testing.assert_allclose(decoder.leverage(Y), np.diag(decoder.smoother(Y, Y)), rtol=1e-8, atol=atol)
        assert decoder.leverage_ == pytest.approx(decoder.leverage(Y).max(), rel=1e-8, abs=atol)


@pytest.mark.parametrize("kernel, degree, center", KERNELS)
def test_without_regularisation_it_is_the_variance(kernel, degree, center):
    decoder = (
        KernelDecoder(kernel, degree=degree, center=center, regularization=0, length_scale=0.5)
        if (kernel != "multi-gaussian")
        else KernelDecoder(kernel, max_frequency=4.0, regularization=0)
    )
    decoder.fit(Y, F)
    slightly = decoder.__sklearn_clone__().set_params(regularization=1e-9).fit(Y, F)
    np.testing.assert_allclose(decoder.leverage(Z), 1e-9 * slightly.leverage(Z), rtol=1e-3, atol=1e-7)
    assert decoder.leverage_ < 1e-7


def test_of_kernels_it_is_the_limit_of_many_features():
    Phi = FourierFeatures(1.0, n_features=40000)
    features = RFNNDecoder(Phi, regularization=0.1, random_state=0).fit(Y, F)
    kernel = KernelDecoder(regularization=0.1).fit(Y, F)
    np.testing.assert_allclose(features.leverage(Z), kernel.leverage(Z), rtol=0.1)


def test_small_regularisation_keeps_its_digits():
    """The variance is a difference of numbers near 1: over lambda = 1e-10 the naive one is wrong in the first digit."""
    decoder = KernelDecoder(regularization=1e-10, length_scale=2.0).fit(Y, F)
    fit = decoder._fitted
    K, k = fit.radial.values(fit.points), fit.kernel(Z)
    T, t = np.ones((N, 1)), np.ones((len(Z), 1))
    expected = [float(v / mpmath.mpf(1e-10)) for v in kriging_variance(K, T, k, t, 1.0, 1e-10)]
    np.testing.assert_allclose(decoder.leverage(Z), expected, rtol=1e-4, atol=1e-4)


def test_of_double_diffusion_maps():
    for decoder in (DoubleDiffusionMapsDecoder(rank=6), DoubleDiffusionMapsDecoder(rank=6, invariants="mass")):
        for fields in (F, np.repeat(F, 50, axis=1)):  # few cells: harmonics and coefficients in one product
            decoder.fit(Y, fields)
            X, Q = Y / Y.std(axis=0), Z / Y.std(axis=0)
            distance = np.linalg.norm(X[:, None] - X, axis=2)
            eigenvalues, V = np.linalg.eigh(np.exp(-((distance / decoder.epsilon_) ** 2)))
            k = np.exp(-((np.linalg.norm(Q[:, None] - X, axis=2) / decoder.epsilon_) ** 2))
            expected = 1 - np.square(k @ V[:, -6:]) @ (1 / eigenvalues[-6:])
            np.testing.assert_allclose(decoder.leverage(Z), expected, atol=1e-10)
            assert decoder.leverage_ == decoder.leverage(Y).max()
            assert decoder.leverage(FAR)[0] == 1 > decoder.leverage_limit_


# -- k-NN, blends ----------------------------------------------------------------------------------
def test_of_k_nn_is_a_ratio_of_distances():
    decoder = KNNDecoder(4).fit(Y, F)

    def nearest(X, k):
        distance = np.linalg.norm(X[:, None] - Y, axis=2)
        order = np.argsort(distance, axis=1)[:, :k]
        return np.take_along_axis(distance, order, axis=1), order

    own = nearest(Y, 5)[0][:, 1:].mean(axis=1)
    distance, order = nearest(Z, 4)
    np.testing.assert_allclose(decoder.leverage(Z), distance.mean(axis=1) / own[order].mean(axis=1), rtol=1e-12)
    assert decoder.leverage_ == decoder.leverage(Y).max()
    assert decoder.leverage_limit_ >= DISTANCE_FACTOR * decoder.leverage_


def test_of_k_nn_with_twins():
    twins = np.vstack([Y, Y])
    for k in (1, 2, 5, 2 * N):
        decoder = KNNDecoder(k).fit(twins, np.vstack([F, F]))
        decoder.predict(twins + 0.05)
        assert np.isfinite(decoder.leverage(Z)).all()
    same = KNNDecoder(1).fit(np.zeros((3, 1)), F[:3])
    assert same.leverage([[0.0], [1.0]]).tolist() == [0, np.inf]
    assert KNNDecoder(1).fit([[0.0]], F[:1]).leverage([[1.0]]).tolist() == [0]


def test_of_a_blend_is_the_middle_of_its_parts():
    decoder = BlendedDecoder([KernelDecoder(), KNNDecoder(3), KernelDecoder("matern", degree=1)]).fit(Y, F)
    shares = [part.leverage(Z) / part.leverage_limit_ for part in decoder.decoders_]
    shares[1] **= 2
    np.testing.assert_allclose(decoder.leverage(Z), FACTOR * np.median(shares, axis=0), rtol=1e-12)
    assert decoder.leverage_limit_ == FACTOR
    alone = BlendedDecoder([LinearRegression_with_outputs()]).fit(Y, F)
    with pytest.raises(AttributeError, match="no part of this blend has a leverage"):
        alone.leverage(Z)
    with pytest.warns(ExtrapolationWarning):
        alone.predict(FAR)


class LinearRegression_with_outputs(LinearRegression):
    @property
    def _n_outputs(self):
        return len(self.intercept_)


def test_auto_decoder_has_that_of_the_decoder_it_found():
    decoder = AutoDecoder(n_trials=8, random_state=0).fit(Y, F)
    assert (decoder.leverage(Z) == decoder.best_decoder_.leverage(Z)).all()
    assert decoder.leverage_ == decoder.best_decoder_.leverage_


def test_conservative_regressor_says_that_it_is_not_known():
    regressor = ConservativeRegressor(LinearRegression()).fit(Y, F)
    assert not hasattr(regressor, "leverage")
    for ask in (lambda: regressor.leverage(Z), lambda: regressor.leverage_, lambda: regressor.leverage_limit_):
        with pytest.raises(AttributeError) as refused:
            ask()
        assert "the leverage of a LinearRegression is not known" in str(refused.value.__cause__ or refused.value)
    known = ConservativeRegressor(KNNDecoder(3)).fit(Y, F)
    assert (known.leverage(Z) == known.estimator_.leverage(Z)).all()
    assert (known.leverage_, known.leverage_limit_) == (known.estimator_.leverage_, known.estimator_.leverage_limit_)


# -- All -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", DECODERS)
def test_what_holds_for_all(name, tmp_path):
    decoder = copy.deepcopy(DECODERS[name])
    with pytest.raises(NotFittedError):
        decoder.leverage(Z)
    decoder.fit(Y, F)
    h = decoder.leverage(Z)
    assert h.shape == (len(Z),) and h.dtype == np.float64 and (h >= 0).all()
    assert decoder.leverage(np.empty((0, 2))).shape == (0,)
    assert decoder.leverage_ == pytest.approx(decoder.leverage(Y).max(), rel=1e-9, abs=1e-12)
    assert decoder.leverage(FAR)[0] > decoder.leverage_limit_ > decoder.leverage_
    for i in range(len(Z)):
        np.testing.assert_allclose(decoder.leverage(Z[i : i + 1]), h[i], rtol=1e-6, atol=1e-12)
    with pytest.raises(ValueError):
        decoder.leverage(Z[:, :1])
    save(decoder, tmp_path / "model.npz")
    for again in (randsmap.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(decoder)), copy.deepcopy(decoder)):
        assert (again.leverage(Z) == h).all()
        assert (again.leverage_, again.leverage_limit_) == (decoder.leverage_, decoder.leverage_limit_)


@pytest.mark.parametrize("name", DECODERS)
def test_decoding_far_away_warns_whatever_was_called_before(name, tmp_path):
    decoder = copy.deepcopy(DECODERS[name]).fit(Y, F)
    save(decoder, tmp_path / "model.npz")
    for again in (decoder, pickle.loads(pickle.dumps(decoder)), randsmap.load(tmp_path / "model.npz")):
        again.predict(Y)
        again.predict(Y[:1] + 1e-3)
        for X, row in ((np.vstack([Y[:2], FAR]), 2), (FAR, 0), (np.tile(FAR, (50, 1)), 0)):
            for _ in range(2):
                with pytest.warns(ExtrapolationWarning, match=f"row {row} of X is far from the training points"):
                    again.predict(X)


@pytest.mark.parametrize("decoder", [RANDSMAPDecoder(random_state=0), AutoDecoder(n_trials=8, random_state=0)])
def test_fields_that_depend_on_the_latents_are_known_near_their_points_alone(decoder):
    """With noise for fields, as elsewhere here, cross-validation errors choose a mean that holds far away, too."""
    s = np.linspace(-2, 2, 30)
    fields = np.exp(-((s - Y[:, :1]) ** 2)) * (1 + 0.3 * np.tanh(Y[:, 1:]))
    decoder = decoder.fit(Y, fields / fields.sum(axis=1, keepdims=True))
    near, far, further = decoder.leverage(np.vstack([0.5 * Y[:1], [[6.0, 6.0]], FAR]))
    assert near < decoder.leverage_limit_ < min(far, further)
    with pytest.warns(ExtrapolationWarning):
        decoder.predict(FAR)


def test_filters_switch_the_warning():
    decoder = KernelDecoder().fit(Y, F)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        decoder.predict(FAR)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExtrapolationWarning)
        for _ in range(3):
            with pytest.raises(ExtrapolationWarning):
                decoder.predict(FAR)


def test_the_warning_names_the_line_of_the_call():
    decoder = KernelDecoder().fit(Y, F)
    with pytest.warns(ExtrapolationWarning) as found:
        decoder.predict(FAR)
    assert found[0].filename == __file__


@pytest.mark.parametrize("n, d", [(1, 1), (2, 3), (7, 1), (100, 2), (1000, 3), (3001, 2), (300, 12)])
def test_the_boxes_cover_the_training_points(n, d):
    points = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, d) + rng.integers(-5, 6, d)
    trust = TrustRegion(points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trust.warn(None, points)
    assert max(trust.boxes.distance(x) for x in points) == 0
    with pytest.warns(ExtrapolationWarning, match=f"row {min(n - 1, 4)} of X"):
        far = points[:5].copy()
        far[-1] += 1e3 * (np.ptp(points, axis=0) + 1)
        trust.warn(None, far)


def test_points_that_coincide_count_as_one():
    line = np.arange(20.0)[:, None]
    for points in (line, np.repeat(line, 30, axis=0)):
        trust = TrustRegion(points)
        gap = 1.5 / line.std()
        assert trust.limit == pytest.approx(max(0.6, gap))
        trust.warn(None, np.array([[-1.0], [10.5]]))
    TrustRegion(np.zeros((5, 2))).warn(None, np.array([[0.5, 0.0]]))


def test_a_point_in_a_hole_is_far():
    angle = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    with pytest.warns(ExtrapolationWarning, match="row 1 of X"):
        TrustRegion(ring).warn(None, np.array([[0.9, 0.0], [0.0, 0.0]]))


def test_searches_do_not_warn():
    X = np.vstack([Y, FAR])
    fields = np.vstack([F, F[:1]])
    AutoDecoder(n_trials=5, random_state=0).fit(X, fields, groups=np.arange(len(X)) // 6)
    randsmap.tune(KNNDecoder(), {"n_neighbors": [1, 2]}, Y, F, FAR, F[:1])
    randsmap.tune(KernelDecoder(bounds="nonnegative"), {"length_scale": [0.5, 1.0]}, Y, F, FAR, F[:1])


def test_points_too_far_for_numbers():
    for decoder in (
        RFNNDecoder(SigmoidFeatures(), random_state=0),
        KernelDecoder("thin-plate", degree=1),
        KNNDecoder(2),
    ):
        decoder.fit(Y, F)
        h = decoder.leverage([[1e139, -1e139], [0.0, 0.0]])
        assert h[0] > decoder.leverage_limit_ > h[1]


def test_an_interpolation_by_features_can_be_far_too():
    decoder = RFNNDecoder(PolynomialFeatures(6, include_bias=False), regularization=0).fit(Y, F)
    assert decoder.leverage_ == pytest.approx(1, rel=1e-6)
    with pytest.warns(ExtrapolationWarning):
        decoder.predict(FAR)


def test_threads():
    decoder = RFNNDecoder(random_state=0).fit(Y, F)
    expected = decoder.leverage(Z)
    fresh = RFNNDecoder(random_state=0).fit(Y, F)
    with ThreadPoolExecutor(8) as pool:
        for h in pool.map(lambda _: fresh.leverage(Z), range(32)):
            np.testing.assert_allclose(h, expected, rtol=1e-12)


def test_a_solver_that_forms_no_factor_warns_too():
    decoder = RFNNDecoder(SigmoidFeatures(n_features=9), solver="krylov", random_state=0).fit(Y, F)
    with pytest.warns(ExtrapolationWarning):
        decoder.predict(FAR)
    assert decoder.leverage(FAR)[0] > decoder.leverage_limit_


def test_parameters_set_after_fit_change_nothing():
    for decoder in (RFNNDecoder(SigmoidFeatures(), random_state=0), KernelDecoder()):
        expected = decoder.fit(Y, F).leverage(Z)
        decoder.set_params(regularization=1.0, center=False)
        assert (pickle.loads(pickle.dumps(decoder)).leverage(Z) == expected).all()


# -- Models ----------------------------------------------------------------------------------------
def test_models_pass_it_on(tmp_path):
    x = np.arange(40) / 40
    centre = np.linspace(0, 1, 60, endpoint=False)
    bumps = np.exp(-((((x - centre[:, None] + 0.5) % 1 - 0.5) / (0.08 + 0.05 * np.sin(7 * centre[:, None]))) ** 2))
    bumps /= bumps.sum(axis=1, keepdims=True)
    plain = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), RANDSMAPDecoder(random_state=0))
    for model in (plain, randsmap.ShiftRegistration(plain), randsmap.ParametricModel(plain, KernelDecoder())):
        if hasattr(model, "predict"):
            points, inner = centre, model.fit(centre, bumps).regressor_
            of = centre[:, None]
        else:
            points = of = model.fit(bumps).transform(bumps)
            inner = model.decoder_ if hasattr(model, "decoder_") else model.model_
            of = of[:, -2:]
        if hasattr(model, "predict"):  # the larger one, of parameters or of their latents, over its limit
            parts = (inner, of), (model.model_, model.latents(of))
            shares = [part.leverage(at) / part.leverage_limit_ for part, at in parts]
            assert (model.leverage(points) == 100 * np.maximum(*shares)).all()
            assert model.leverage_limit_ == 100
            assert (model.leverage([7.0]) > 100).all()
        else:
            assert (model.leverage(points) == inner.leverage(of)).all()
            assert (model.leverage_, model.leverage_limit_) == (inner.leverage_, inner.leverage_limit_)
        save(model, tmp_path / "model.npz")
        assert (randsmap.load(tmp_path / "model.npz").leverage(points) == model.leverage(points)).all()
    pod = randsmap.ManifoldModel(randsmap.POD(2)).fit(bumps)
    for model in (pod, randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2))).fit(bumps)):
        for name in ("leverage", "leverage_", "leverage_limit_"):
            with pytest.raises(AttributeError) as refused:
                getattr(model, name)
            reason = str(refused.value.__cause__ or refused.value)
            assert "leverage is that of a decoder, and the model has none: POD decodes by itself" in reason
    assert not hasattr(randsmap.ManifoldModel(randsmap.POD(2), LinearRegression()), "leverage")
    assert not hasattr(randsmap.ParametricModel(randsmap.POD(2), LinearRegression()), "leverage")
    far = randsmap.ParametricModel(plain, LinearRegression()).fit(centre, bumps)  # latents are far, where lines lead
    assert far.leverage([1e6])[0] > far.leverage_limit_


def test_isolated_points_inside_the_bounding_box_are_flagged():
    """Latents on an arc, a field decoded in its hollow: within their box, far from all."""
    angle = np.linspace(0, 1.5 * np.pi, 60)
    arc, fields = np.column_stack([np.cos(angle), np.sin(angle)]), np.column_stack([angle, angle**2])
    for decoder in (
        RFNNDecoder(SigmoidFeatures(10.0), regularization=1e-8, random_state=0),
        KernelDecoder("thin-plate", degree=1, regularization=1e-6),
        KernelDecoder(length_scale=0.5),
    ):
        with pytest.warns(ExtrapolationWarning, match="row 1 of"):
            decoder.fit(arc, fields).predict([[1.0, 0.01], [0.1, 0.1]])
