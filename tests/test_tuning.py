import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import ParameterGrid
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap._linalg.svd import FactoredRows
from randsmap.metrics import relative_l2, scaled_l2
from randsmap.tuning import _search as tuning

from helpers import random_invariants, with_common_invariants


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    Y = rng.uniform(-1, 1, (90, 2))
    F = np.stack([np.sin(3 * Y[:, 0]), Y[:, 1] ** 2, np.cos(Y.sum(axis=1)), np.ones(90)], axis=1) + 2
    return Y[:60], F[:60], Y[60:], F[60:]


def test_errors_are_the_direct_validation_errors(data):
    Y, F, Y_val, F_val = data
    decoder = randsmap.RFNNDecoder(randsmap.SigmoidFeatures(n_features=40), random_state=0)
    grid = {"features__slope": [0.1, 2.0, 9.0], "regularization": [1e-6, 1.0]}
    result = randsmap.tune(decoder, grid, Y, F, Y_val, F_val)
    assert len(result.candidates_) == len(result.errors_) == 6
    for params, error in zip(result.candidates_, result.errors_):
        fitted = randsmap.RFNNDecoder(
            randsmap.SigmoidFeatures(params["features__slope"], n_features=40),
            regularization=params["regularization"],
            random_state=0,
        ).fit(Y, F)
        assert error == pytest.approx(relative_l2(F_val, fitted.predict(Y_val)).mean(), rel=1e-10)
    best = int(np.argmin(result.errors_))
    assert result.best_params_ == result.candidates_[best]
    assert result.best_error_ == result.errors_[best]
    kept = relative_l2(F_val, result.best_decoder_.predict(Y_val)).mean()
    assert kept == pytest.approx(result.errors_[best], rel=1e-10)
    assert not hasattr(decoder, "coef_")  # the given decoder is left alone


@pytest.mark.parametrize("values, edge", [([1e-9, 1.0, 1e3], True), ([1e9, 1e-9, 1e6], False), ([1e-9, 1.0], False)])
def test_edge_of_the_grid(data, values, edge):
    Y, _, Y_val, _ = data
    linear = np.array([[1.0, 2.0], [3.0, -1.0]])  # ridge without a penalty is exact
    result = randsmap.tune(Ridge(), {"alpha": values}, Y, Y @ linear, Y_val, Y_val @ linear)
    assert result.best_params_ == {"alpha": 1e-9}
    assert result.on_edge_ == {"alpha": edge}


def test_callback_and_errors(data):
    calls = []
    randsmap.tune(Ridge(), {"alpha": [1.0, 2.0]}, *data, callback=lambda: calls.append(1))
    assert len(calls) == 2
    with pytest.raises(ValueError, match="grid must name"):
        randsmap.tune(Ridge(), {}, *data)
    with pytest.raises(ValueError, match="Invalid parameter 'slope'"):
        randsmap.tune(Ridge(), {"slope": [1.0]}, *data)


def test_estimators_in_the_grid_are_not_changed(data):
    features = randsmap.SigmoidFeatures(n_features=5)
    result = randsmap.tune(
        randsmap.RFNNDecoder(random_state=0), {"features": [features], "features__slope": [2.0, 3.0]}, *data
    )
    assert features.slope == 1.0
    assert result.best_params_["features"].slope == 1.0


def test_grids_that_make_no_sense_are_told(data):
    with pytest.raises(ValueError, match="features__slope cannot be tuned because .* features is None"):
        randsmap.tune(randsmap.RFNNDecoder(), {"features__slope": [1.0]}, *data)
    with pytest.raises(TypeError, match="grid must be a dict"):
        randsmap.tune(randsmap.RFNNDecoder(), [{"regularization": [1.0]}], *data)


# -- In coefficient space ------------------------------------------------------------------------------


def fields_in_reach(kind, q, weights, constant, offset, n=60, n_val=30, M=500, seed=0):
    """Fields that a decoder can learn but for a noise of 1e-6; its parameters; latents."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(-1, 1, (n + n_val, 2))
    if kind == "features":
        maps = randsmap.FourierFeatures(0.5, n_features=12, random_state=0)
        Z = maps.fit(Y[:n]).transform(Y)
    else:
        Z = np.exp(-((Y[:, None] - Y[None, :15]) ** 2).sum(axis=2) / (2 * 0.15**2))
    F = Z @ rng.normal(size=(Z.shape[1], M)) + offset
    F += 1e-6 * np.sqrt((F**2).mean()) * rng.normal(size=F.shape)
    J0 = np.zeros(M, dtype=bool)
    if constant:
        J0[[3, 77]] = True
        F[:, J0] = 0.25, 0.0
    options, C = random_invariants(rng, q, M, weights)
    F = with_common_invariants(F, C, options["cell_weights"], J0)
    return (Y[:n], F[:n], Y[n:], F[n:]), options


def direct_errors(decoder, grid, Y, F, Y_val, F_val):
    norm = {"cell_weights": decoder.get_params().get("cell_weights")}
    return np.array(
        [
            scaled_l2(F_val, clone(decoder).set_params(**params).fit(Y, F).predict(Y_val), **norm)
            for params in ParameterGrid(grid)
        ]
    )


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(tuning, "_pays", lambda *sizes, few: True)


PENALTIES = {"regularization": [1e-9, 1e-3, 1.0]}
FEATURES = randsmap.FourierFeatures(0.5, n_features=12)


@pytest.mark.parametrize("offset", [pytest.param(0.0, marks=pytest.mark.slow), 1e3])
@pytest.mark.parametrize("constant", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("weights", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("q", [0, 1, 3])
@pytest.mark.parametrize("kind", ["svd", "training", "kernel", "harmonics"])
def test_coefficient_space_agrees_with_the_fields(always, kind, q, weights, constant, offset):
    decoder, grid = {
        "svd": (randsmap.RANDSMAPDecoder(FEATURES, solver="svd", random_state=0, latent_scale=None), PENALTIES),
        "training": (
            randsmap.RANDSMAPDecoder(FEATURES, constraint="training", random_state=0, latent_scale=None),
            PENALTIES,
        ),
        "kernel": (randsmap.KernelDecoder(length_scale=0.15, latent_scale=None), PENALTIES),
        "harmonics": (randsmap.DoubleDiffusionMapsDecoder(latent_scale=None), {"epsilon": [0.1, 0.15 * 2**0.5]}),
    }[kind]
    data, parameters = fields_in_reach(
        "features" if kind in ("svd", "training") else "kernel", q, weights, constant, offset
    )
    decoder.set_params(**parameters)
    result, direct = tuning.tune(decoder, grid, *data), direct_errors(decoder, grid, *data)
    # the paper's form has another correction at every point, so no weights of the fields
    assert result.evaluation_ == ("direct" if kind == "training" else "coefficients")
    np.testing.assert_allclose(result.errors_, direct.mean(axis=1), rtol=1e-10)
    # one field: the round-off of the fields themselves, 4 eps |f| and more with the weights' spread
    np.testing.assert_allclose(result.sample_errors_, direct, rtol=1e-10, atol=1e-15)
    if kind in ("svd", "training"):
        assert direct.mean(axis=1).min() < 2e-6
    best = clone(decoder).set_params(**result.best_params_).fit(*data[:2])
    np.testing.assert_array_equal(result.best_decoder_.coef_, best.coef_)


def test_coefficient_space_is_as_exact_as_the_normal_equations(always):
    # with Cholesky the round-off of the fit itself shows at these errors: compare with a second direct
    # evaluation, of the same fields in another unit
    (Y, F, Y_val, F_val), _ = fields_in_reach("features", 0, False, False, 0.0)
    decoder = randsmap.RFNNDecoder(FEATURES, random_state=0)
    result = tuning.tune(decoder, PENALTIES, Y, F, Y_val, F_val)
    direct = direct_errors(decoder, PENALTIES, Y, F, Y_val, F_val)
    again = direct_errors(decoder, PENALTIES, Y, F * np.pi, Y_val, F_val * np.pi)
    noise = np.abs(again - direct).max(axis=1)
    assert (np.abs(result.sample_errors_ - direct).max(axis=1) <= 10 * noise).all()
    np.testing.assert_allclose(result.errors_, direct.mean(axis=1), rtol=1e-9)


def test_features_without_a_seed_are_those_of_the_best_candidate(always):
    data, _ = fields_in_reach("features", 1, False, False, 0.0)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(n_features=20))
    result = tuning.tune(decoder, {"features__slope": [0.5, 2.0, 8.0]}, *data)
    assert result.evaluation_ == "coefficients"
    kept = relative_l2(data[3], result.best_decoder_.predict(data[2])).mean()
    assert kept == pytest.approx(result.errors_.min(), rel=1e-9)
    assert type(clone(result.best_decoder_).fit(*data[:2])) is randsmap.RANDSMAPDecoder


def test_features_as_values(always):
    data, _ = fields_in_reach("features", 0, False, False, 0.0)
    grid = {"features": [randsmap.SigmoidFeatures(n_features=12), FEATURES]}
    result = tuning.tune(randsmap.RFNNDecoder(random_state=0), grid, *data)
    assert result.evaluation_ == "coefficients"
    assert result.best_params_ == {"features": FEATURES}
    assert result.on_edge_ == {"features": False}  # estimators have no order


class Subclass(randsmap.RFNNDecoder):
    def predict(self, X):
        return np.abs(super().predict(X))


@pytest.mark.parametrize(
    "decoder, grid",
    [
        (Subclass(random_state=0), {"regularization": [1e-3, 1.0]}),
        (Ridge(), {"alpha": [1e-3, 1.0]}),
        (randsmap.KNNDecoder(), {"n_neighbors": [3, 6]}),
        (randsmap.KernelDecoder(), {"invariants": [None, "mass"]}),
        (randsmap.RFNNDecoder(FEATURES, solver="krylov", random_state=0), {"regularization": [1e-3, 1.0]}),
        (randsmap.RANDSMAPDecoder(bounds=(-1e6, None), random_state=0), {"regularization": [1e-3, 1.0]}),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_evaluated_directly(always, decoder, grid):
    data, _ = fields_in_reach("features", 1, False, False, 100.0)
    result = tuning.tune(decoder, grid, *data)
    assert result.evaluation_ == "direct"
    np.testing.assert_array_equal(result.sample_errors_, direct_errors(decoder, grid, *data))


def test_float32_fields_are_evaluated_directly(always):
    Y, F, Y_val, F_val = fields_in_reach("features", 0, False, False, 0.0)[0]
    for fields in (F.astype(np.float32), F_val), (F, F_val.astype(np.float32)):
        result = tuning.tune(randsmap.RFNNDecoder(random_state=0), PENALTIES, Y, fields[0], Y_val, fields[1])
        assert result.evaluation_ == "direct"


def test_coefficient_space_is_used_where_it_pays():
    assert tuning._pays(720, 720, 16384, 721, 10, few=False)
    assert not tuning._pays(2000, 2000, 400, 2001, 10, few=False)  # traffic
    assert not tuning._pays(720, 720, 16384, 721, 1, few=False)
    assert not tuning._pays(720, 720, 16384, 5, 10, few=False)  # a few modes: the fields are soon fitted
    assert tuning._pays(2000, 500, 400, 2000, 10, few=True)
    assert not tuning._pays(2000, 500, 400, 2, 2, few=True)  # two terms: the fields are soon fitted


def test_zero_validation_field_and_extreme_units(always):
    Y, F, Y_val, F_val = fields_in_reach("features", 0, False, False, 0.0)[0]
    decoder = randsmap.RFNNDecoder(FEATURES, random_state=0)
    expected = tuning.tune(decoder, PENALTIES, Y, F, Y_val, F_val).errors_
    for unit in 1e-100, 1e100:
        result = tuning.tune(decoder, PENALTIES, Y, unit * F, Y_val, unit * F_val)
        np.testing.assert_allclose(result.errors_, expected, rtol=1e-8)
    F_val = F_val.copy()
    F_val[0], F_val[1] = 0, 1e-12 * F_val[1]
    sizes = np.linalg.norm(F_val, axis=1)
    sizes[:2] = 1e-3 * np.median(sizes[1:])
    fitted = clone(decoder).set_params(regularization=PENALTIES["regularization"][0]).fit(Y, F)
    expected = np.linalg.norm(fitted.predict(Y_val) - F_val, axis=1) / sizes
    for unit in 1e-100, 1.0, 1e100:
        result = tuning.tune(decoder, PENALTIES, Y, unit * F, Y_val, unit * F_val)
        np.testing.assert_allclose(result.sample_errors_[0, :2], expected[:2], rtol=1e-8)
        np.testing.assert_allclose(result.sample_errors_[0], expected, rtol=1e-5)


def test_rows_that_do_not_fit_together(always):
    Y, F, Y_val, F_val = fields_in_reach("features", 0, False, False, 0.0)[0]
    decoder = randsmap.RFNNDecoder(FEATURES, random_state=0)
    with pytest.raises(ValueError, match="X_val and y_val must have the same number of rows, got 1 and 30"):
        tuning.tune(decoder, PENALTIES, Y, F, Y_val[:1], F_val)
    with pytest.raises(ValueError, match="must have the same shape"):
        tuning.tune(decoder, PENALTIES, Y, F, Y_val, F_val[:, :-1])


SMOOTHED = {
    "dual": randsmap.RFNNDecoder(randsmap.SigmoidFeatures(n_features=90), random_state=0),
    "primal": randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(n_features=20), random_state=0, solver="cholesky"),
    "svd": randsmap.RANDSMAPDecoder(randsmap.FourierFeatures(n_features=20), random_state=0, solver="svd"),
    "no penalty": randsmap.RFNNDecoder(PolynomialFeatures(3, include_bias=False), regularization=0.0),
    "kernel": randsmap.KernelDecoder(length_scale=[0.5, 2.0], invariants="mass"),
    "eigenvalues": randsmap.KernelDecoder("multi-gaussian", max_frequency=9.0, regularization=1e-16),
    "harmonics": randsmap.DoubleDiffusionMapsDecoder(rank=20, invariants="mass"),
}


@pytest.mark.parametrize("name", SMOOTHED)
def test_smoother_weighs_the_training_fields(name):
    X, F, Z, _ = fields_in_reach("features", 1, False, True, 3.0, M=100)[0]
    decoder = clone(SMOOTHED[name])
    W = decoder.smoother(X, Z)
    assert W.shape == (30, 60) and W.flags.c_contiguous
    assert not hasattr(decoder, "n_features_in_")
    fitted = decoder.fit(X, F)
    fields = W @ F
    if hasattr(fitted, "invariants_"):
        fitted.invariants_.project(fields)
    np.testing.assert_allclose(fields, fitted.predict(Z), atol=1e-9 * np.abs(F).max())
    # what it was fitted to does not matter, and is not forgotten
    np.testing.assert_array_equal(decoder.smoother(X.tolist(), Z), W)
    np.testing.assert_allclose(decoder.smoother(X[:30], Z[:1]), clone(decoder).smoother(X[:30], Z)[:1], atol=1e-9)
    assert decoder.predict(Z).shape == fields.shape


def test_what_has_no_smoother():
    X, F, Z, _ = fields_in_reach("features", 1, False, False, 3.0, M=100)[0]
    for decoder in (
        randsmap.RFNNDecoder(solver="krylov"),
        randsmap.RANDSMAPDecoder(constraint="training"),
        randsmap.KNNDecoder(),
        randsmap.ConservativeRegressor(Ridge()),
    ):
        assert not hasattr(decoder, "smoother")
    with pytest.raises(np.linalg.LinAlgError, match="lambda"):
        randsmap.RFNNDecoder(regularization=0.0, solver="cholesky", random_state=0).smoother(X, Z)
    with pytest.raises(ValueError, match="Z|X"):
        randsmap.KernelDecoder().smoother(X, Z[:, :1])
    with pytest.raises(ValueError, match="kernel must be one of"):
        randsmap.KernelDecoder("cubic").smoother(X, Z)


@pytest.mark.parametrize("random_state", [None, 3])
def test_seeds_that_are_given_stay(always, random_state):
    data, _ = fields_in_reach("features", 0, False, False, 0.0)
    features = randsmap.SigmoidFeatures(n_features=20, random_state=random_state)
    result = tuning.tune(randsmap.RFNNDecoder(features), {"features__slope": [0.5, 2.0]}, *data)
    params = result.best_decoder_.get_params()
    assert result.evaluation_ == "coefficients" and params["random_state"] is None
    assert isinstance(params["features__random_state"], int)
    assert random_state in (None, params["features__random_state"])
    again = clone(result.best_decoder_).fit(*data[:2])
    np.testing.assert_array_equal(again.coef_, result.best_decoder_.coef_)


# -- Candidates that fail, ties, progress ----------------------------------------------------------------


def test_failed_candidates(data):
    decoder = randsmap.DoubleDiffusionMapsDecoder()
    with pytest.warns(FitFailedWarning, match=r"candidate {'rank': 61} failed, its error is NaN: rank"):
        result = randsmap.tune(decoder, {"rank": [61, 5, 10]}, *data)
    assert np.isnan(result.errors_[0]) and np.isfinite(result.errors_[1:]).all()
    assert result.best_params_["rank"] in (5, 10)
    with pytest.raises(ValueError, match="rank must be at most"):
        randsmap.tune(decoder, {"rank": [61, 62]}, *data)
    with pytest.raises(TypeError, match="epsilon must be a real number"):  # a mistake, not a candidate
        randsmap.tune(decoder, {"epsilon": ["wide", 1.0]}, *data)


def test_of_equal_candidates_the_first_is_best(data):
    result = randsmap.tune(randsmap.DoubleDiffusionMapsDecoder(), {"rank": [5, np.int64(5), np.int32(5)]}, *data)
    assert type(result.best_params_["rank"]) is int
    assert result.on_edge_ == {"rank": True}


def test_arrays_as_values(data):
    result = randsmap.tune(
        randsmap.KernelDecoder(), {"length_scale": [np.ones(2), np.array([0.5, 2.0]), np.array([9.0, 9.0])]}, *data
    )
    assert result.on_edge_ == {"length_scale": False}


def test_progress_bar(data, capsys):
    randsmap.tune(Ridge(), {"alpha": [1.0, 2.0]}, *data, progress=True)
    assert "2/2" in capsys.readouterr().err
    randsmap.tune(Ridge(), {"alpha": [1.0, 2.0]}, *data)
    assert capsys.readouterr().err == ""


# -- Empty fields ------------------------------------------------------------------------------------------


def bumps(n=40, n_cells=50):
    x, centres = np.linspace(0, 1, n_cells), np.linspace(0.3, 0.7, n)[:, None]
    F = np.exp(-(((x - centres) / 0.1) ** 2))
    return F / F.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("factor", [0.0, 1e-12, 1e-300])
def test_an_empty_or_tiny_field_does_not_choose(factor):
    F = bumps()
    Y = randsmap.DiffusionMaps(2).fit_transform(F)
    decoder = randsmap.RFNNDecoder(randsmap.SigmoidFeatures(), random_state=0)
    grid = {"features__slope": [0.1, 1.0, 3.0, 10.0]}
    F_tiny = F.copy()
    F_tiny[0] *= factor
    for n_cells in 50, 400:  # directly, in coefficients
        wide = np.repeat(F_tiny, n_cells // 50, axis=1)
        result = randsmap.tune(decoder, grid, Y[1::2], wide[1::2], Y[::2], wide[::2])
        assert result.best_params_ == {"features__slope": 3.0}
        assert np.isfinite(result.errors_).all()
    assert randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder).fit(F).score(F_tiny) > -100
    none = randsmap.tune(decoder, grid, Y, F, Y[:1], 0 * F[:1])  # nothing but empty fields to judge on
    assert np.isfinite(none.errors_).all() and (none.errors_ > 0).all()


# -- Models ----------------------------------------------------------------------------------------------


class CountingPCA(PCA):
    fits = 0

    def fit_transform(self, X, y=None):
        type(self).fits += 1
        return super().fit_transform(X)


@pytest.mark.slow
@pytest.mark.parametrize("M", [40, 1000])
def test_model_with_its_encoder(M):
    x, centres = np.linspace(0, 1, M), np.random.default_rng(0).uniform(0.3, 0.7, (2, 80))
    F = np.exp(-(((x - centres[0][:, None]) / 0.1) ** 2)) * (1 + centres[1][:, None])
    F, F_val = F[:50], F[50:]
    model = randsmap.ManifoldModel(
        CountingPCA(1), randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0, invariants=None)
    )
    grid = {
        "encoder__n_components": [1, 2, 3],
        "decoder__features__slope": [0.1, 0.3, 1.0],
        "decoder__regularization": [1e-4, 1e-2],
    }
    CountingPCA.fits = 0
    result = randsmap.tune(model, grid, None, F, None, F_val)
    assert CountingPCA.fits == 3
    assert result.evaluation_ == ("direct" if M == 40 else "coefficients")
    assert result.candidates_ == list(ParameterGrid(grid))
    for params, error in zip(result.candidates_, result.errors_):
        expected = -clone(model).set_params(**params).fit(F).score(F_val)
        assert error == pytest.approx(expected, rel=1e-8)
    best = clone(model).set_params(**result.best_params_).fit(F)
    assert isinstance(result.best_decoder_, randsmap.ManifoldModel)
    # scikit-learn's PCA is not the same to the last bit twice
    np.testing.assert_allclose(result.best_decoder_.reconstruct(F_val), best.reconstruct(F_val), atol=1e-9)
    assert set(result.on_edge_) == set(grid)
    assert not hasattr(model, "encoder_") and not hasattr(model.encoder, "components_")


def test_model_with_every_kind_of_decoder(data):
    F, F_val = data[1], data[3]
    for encoder, decoders in (
        (randsmap.POD(2), [Ridge(), randsmap.KernelDecoder(), None]),
        (randsmap.DiffusionMaps(2), [randsmap.KNNDecoder(3, objective="encoder"), Ridge()]),
    ):
        model = randsmap.ManifoldModel(encoder, Ridge())
        result = randsmap.tune(model, {"decoder": decoders}, None, F, None, F_val)
        for decoder, error in zip(decoders, result.errors_):
            expected = -randsmap.ManifoldModel(encoder, decoder).fit(F).score(F_val)
            assert error == pytest.approx(expected, rel=1e-10)
        assert result.best_decoder_.reconstruct(F_val).shape == F_val.shape


@pytest.mark.parametrize("objective", ["latent", "encoder"])
def test_numbers_of_neighbours_share_what_does_not_depend_on_them(data, monkeypatch, objective):
    F, F_val = data[1], data[3]
    encoder = randsmap.DiffusionMaps(2).fit(F)
    Y, Y_val = encoder.transform(F), encoder.transform(F_val)
    decoder = randsmap.KNNDecoder(objective=objective, encoder=encoder if objective == "encoder" else None)
    values = [2, 7, 200, 4]
    expected = [
        np.nan
        if k > len(F)
        else relative_l2(F_val, clone(decoder).set_params(n_neighbors=k).fit(Y, F).predict(Y_val)).mean()
        for k in values
    ]
    fits = []
    fit = randsmap.KNNDecoder.fit
    monkeypatch.setattr(randsmap.KNNDecoder, "fit", lambda self, X, y: fits.append(self.n_neighbors) or fit(self, X, y))
    with pytest.warns(FitFailedWarning):
        result = randsmap.tune(decoder, {"n_neighbors": values}, Y, F, Y_val, F_val)
    np.testing.assert_array_equal(result.errors_, expected)
    assert fits == [2]
    best = result.best_decoder_
    assert best.n_neighbors == values[int(np.nanargmin(expected))]
    assert relative_l2(F_val, best.predict(Y_val)).mean() == np.nanmin(expected)


def test_encoder_that_fails_and_latents_that_are_given(data):
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), Ridge())
    grid = {"encoder__n_components": [2, 1000], "decoder__alpha": [1e-3, 1.0]}
    with pytest.warns(FitFailedWarning):
        result = randsmap.tune(model, grid, None, data[1], None, data[3])
    failed = [params["encoder__n_components"] == 1000 for params in result.candidates_]
    np.testing.assert_array_equal(np.isnan(result.errors_), failed)
    with pytest.raises(ValueError, match="must be None with a ManifoldModel"):
        randsmap.tune(model, grid, *data)


# -- Fields of few dimensions ------------------------------------------------------------------------------


def flat_fields(n=100, M=1200, modes=9, seed=0):
    """Fields with a common mass and a constant cell, that span few dimensions; latents; rows to judge on."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(size=(2 * n, 2))
    F = np.sin(3 * Y @ rng.normal(size=(2, modes))) @ rng.normal(size=(modes, M))
    F[:, 7] = 3.0
    F[:, 8:] += (100 * M - F.sum(axis=1, keepdims=True)) / (M - 8)
    return Y[:n], F[:n], Y[n:], F[n:]


FLAT = [
    (randsmap.RANDSMAPDecoder(randsmap.FourierFeatures(), random_state=0), {"regularization": [1e-6, 1e-3]}),
    (randsmap.RFNNDecoder(randsmap.SigmoidFeatures(), random_state=0, center=False), {"features__slope": [1.0, 3.0]}),
    (randsmap.KernelDecoder(invariants="mass"), {"length_scale": [0.5, 1.0]}),
    (randsmap.KernelDecoder(center=False), {"length_scale": [0.5, 1.0]}),
    (randsmap.KernelDecoder("thin-plate", degree=1), {"regularization": [1e-6, 1e-3]}),
    (randsmap.DoubleDiffusionMapsDecoder(invariants="mass", rank=30), {"epsilon_scale": [1.0, 2.0]}),
]


@pytest.mark.parametrize("decoder, grid", FLAT, ids=lambda value: type(value).__name__)
def test_fields_of_few_dimensions_are_compared_and_fitted_by_their_coordinates(always, decoder, grid):
    Y, F, Y_val, F_val = flat_fields()
    fields = tuning._Validation((None, F), (None, F_val), 2, grid, decoder, None)
    fields.begin([decoder])
    fields.errors(clone(decoder), Y, Y_val)
    assert isinstance(fields.basis, FactoredRows) and fields.basis.coordinates.shape[1] < 20
    result = tuning.tune(decoder, grid, Y, F, Y_val, F_val)
    np.testing.assert_allclose(result.sample_errors_, direct_errors(decoder, grid, Y, F, Y_val, F_val), atol=1e-11)
    best, plain = result.best_decoder_, clone(decoder).set_params(**result.best_params_).fit(Y, F)
    assert vars(best).keys() == vars(plain).keys()
    assert getattr(best, "solver_", None) == getattr(plain, "solver_", None)
    np.testing.assert_allclose(best.predict(Y_val), plain.predict(Y_val), rtol=0, atol=1e-11 * np.abs(F).max())
    np.testing.assert_allclose(best.predict(3 * Y_val), plain.predict(3 * Y_val), rtol=0, atol=1e-9 * np.abs(F).max())
    if getattr(best, "invariants_", None) is not None:
        assert (best.predict(Y_val)[:, 7] == 3.0).all()
    if hasattr(best, "leverage_"):
        assert best.leverage_ == pytest.approx(plain.leverage_, rel=1e-9)
    images = [fields.reshape(-1, 30, 40) for fields in (F, F_val)]
    shaped = tuning.tune(decoder, grid, Y, images[0], Y_val, images[1]).best_decoder_.predict(Y_val)
    np.testing.assert_array_equal(shaped, best.predict(Y_val).reshape(-1, 30, 40))


def test_few_cells_of_few_dimensions_are_compared_by_coordinates(monkeypatch):
    monkeypatch.setattr(tuning, "_pays", lambda *sizes, few: True)
    Y, F, Y_val, F_val = flat_fields(n=150, M=80)
    decoder = randsmap.RFNNDecoder(randsmap.FourierFeatures(n_features=100), random_state=0)
    grid = {"features__length_scale": [0.5, 1.0], "regularization": [1e-6, 1e-4, 1e-2, 1.0]}
    result = tuning.tune(decoder, grid, Y, F, Y_val, F_val)
    assert result.evaluation_ == "coefficients"
    direct = direct_errors(decoder, grid, Y, F, Y_val, F_val)
    order = [list(ParameterGrid(grid)).index(candidate) for candidate in result.candidates_]
    np.testing.assert_allclose(result.sample_errors_, direct[order], rtol=1e-6, atol=1e-11)
    noisy = F + 1e-6 * np.random.default_rng(0).normal(size=F.shape)
    assert tuning.tune(decoder, grid, Y, noisy, Y_val, F_val).evaluation_ == "direct"


def test_winner_among_full_fields_has_the_bits_of_a_fit(always):
    Y, F, Y_val, F_val = flat_fields(n=60, modes=70)
    F = F + 1e-3 * np.random.default_rng(1).normal(size=F.shape)
    decoder = randsmap.RFNNDecoder(FEATURES, random_state=0)
    result = tuning.tune(decoder, PENALTIES, Y, F, Y_val, F_val)
    plain = clone(decoder).set_params(**result.best_params_).fit(Y, F)
    np.testing.assert_array_equal(result.best_decoder_.coef_, plain.coef_)


@pytest.mark.parametrize("name", SMOOTHED)
def test_smoother_of_fields_is_that_of_the_weights(name):
    X, F, Z, _ = fields_in_reach("features", 1, False, True, 3.0, M=100)[0]
    decoder = clone(SMOOTHED[name])
    weighed = decoder.smoother(X, Z, fields=F)
    np.testing.assert_allclose(weighed, decoder.smoother(X, Z) @ F, atol=1e-9 * np.abs(F).max())
    with pytest.raises(ValueError, match="same number of rows, got 60 and 59"):
        decoder.smoother(X, Z, fields=F[1:])


@pytest.mark.parametrize("options", [{}, {"invariants": None}, {"invariants": "mass"}])
def test_constant_fields(options):
    """They span nothing but constant cells: there are no coordinates to compare in."""
    Y, F = np.random.default_rng(0).uniform(size=(40, 2)), np.ones((40, 900))
    decoder = randsmap.KernelDecoder("gaussian", regularization=1e-8, **options)
    found = tuning.tune(decoder, {"length_scale": [0.3, 1.0]}, Y[:30], F[:30], Y[30:], F[30:])
    np.testing.assert_allclose(found.best_decoder_.predict(Y[30:]), 1.0, rtol=1e-6)
    assert found.errors_.max() < 1e-6
