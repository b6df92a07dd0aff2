import itertools
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsmap
from randsmap.metrics import relative_l2


@pytest.fixture(scope="module")
def bumps():
    x = np.linspace(0, 1, 80)
    centre = np.random.default_rng(0).uniform(0.3, 0.7, 120)
    F = np.exp(-(((x - centre[:, None]) / 0.1) ** 2))
    return F / F.sum(axis=1, keepdims=True)


@pytest.fixture
def model():
    return randsmap.ManifoldModel(
        randsmap.DiffusionMaps(n_components=1),
        randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(slope=11.0), random_state=0),
    )


def test_the_main_job(model, bumps):
    model.fit(bumps[:100])
    latents = model.transform(bumps[100:])
    fields = model.inverse_transform(latents)
    assert latents.shape == (20, 1) and fields.shape == (20, 80)
    of_mean_field = relative_l2(bumps[100:], np.broadcast_to(bumps[:100].mean(axis=0), fields.shape))
    assert relative_l2(bumps[100:], fields).mean() < 0.1 * of_mean_field.mean()
    assert np.array_equal(model.reconstruct(bumps[100:]), fields)
    assert model.score(bumps[100:]) == -relative_l2(bumps[100:], fields).mean()


def test_mass_is_kept_far_outside_the_training_box(model, bumps):
    model.fit(bumps)
    latents = model.transform(bumps)
    low, high = latents.min(), latents.max()
    far = np.linspace(low - 100 * (high - low), high + 100 * (high - low), 501)[:, None]
    fields = model.inverse_transform(far)
    assert (abs(fields.sum(axis=1) - 1) <= 1e-14 * (abs(fields).sum(axis=1) + 1)).all()


def test_fit_transform_is_fit_then_transform(model, bumps):
    latents = model.fit_transform(bumps)
    np.testing.assert_allclose(model.transform(bumps), latents, rtol=0, atol=1e-11)


@pytest.mark.parametrize("decoder", [None, randsmap.KernelDecoder()], ids=["alone", "kernel"])
def test_an_encoder_may_be_a_pipeline_without_names_of_latents(bumps, decoder):
    pandas = pytest.importorskip("pandas")
    logarithm = FunctionTransformer(np.log1p, inverse_func=np.expm1)
    model = randsmap.ManifoldModel(make_pipeline(logarithm, PCA(3)), decoder).fit(bumps)
    Z = model.transform(bumps)
    assert np.array_equal(model.inverse_transform(pandas.DataFrame(Z, columns=list("abc"))), model.inverse_transform(Z))


def test_parts_are_cloned_and_any_scikit_learn_parts_will_do(bumps):
    encoder, decoder = PCA(3), LinearRegression()
    model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
    assert not hasattr(encoder, "components_") and not hasattr(decoder, "coef_")
    np.testing.assert_allclose(
        model.reconstruct(bumps), model.encoder_.inverse_transform(model.transform(bumps)), atol=1e-12
    )
    clone(model)


def test_without_decoder_the_encoder_inverts(bumps):
    model = randsmap.ManifoldModel(PCA(60)).fit(bumps)
    np.testing.assert_allclose(model.reconstruct(bumps), bumps, atol=1e-10)
    with pytest.raises(TypeError, match="decoder is None and DiffusionMaps has no inverse_transform"):
        randsmap.ManifoldModel(randsmap.DiffusionMaps()).fit(bumps)


def test_latents_without_rows_pass_through_both_directions(model, bumps):
    model.fit(bumps)
    latents = model.transform(bumps[:0])
    assert latents.shape == (0, 1)
    assert model.inverse_transform(latents).shape == model.reconstruct(bumps[:0]).shape == (0, 80)
    assert model.inverse_transform(latents, cells=[1, 2]).shape == (0, 2)
    with pytest.raises(ValueError, match="1 columns, got 3"):
        model.inverse_transform(np.empty((0, 3)))


def test_values_of_invariants_for_a_decoder_without_are_refused_by_name(bumps):
    encoder = randsmap.DiffusionMaps(1)
    for decoder in (
        randsmap.KNNDecoder(3),
        randsmap.RFNNDecoder(),
        randsmap.RANDSMAPDecoder(invariants=None),
        randsmap.KernelDecoder(invariants=None),
        LinearRegression(),
    ):
        fitted = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
        with pytest.raises(ValueError, match="invariant"):
            fitted.inverse_transform([[0.1]], invariant_values=1.0)
    for pod in (randsmap.POD(2, invariants=None), PCA(2)):
        with pytest.raises(ValueError, match="invariant"):
            randsmap.ManifoldModel(pod).fit(bumps).inverse_transform([[0.1, 0.2]], invariant_values=1.0)


def test_parts_of_the_wrong_kind(bumps):
    encoder, decoder = randsmap.DiffusionMaps(1), randsmap.RANDSMAPDecoder()
    for model, message in (
        (randsmap.ManifoldModel(randsmap.DiffusionMaps, decoder), "encoder must be"),
        (randsmap.ManifoldModel(decoder, encoder), "encoder must be"),
        (randsmap.ManifoldModel(encoder, encoder), "decoder must be"),
    ):
        with pytest.raises(TypeError, match=message):
            model.fit(bumps)


def test_not_fitted(model, bumps):
    for call in (model.transform, model.inverse_transform, model.reconstruct, model.score):
        with pytest.raises(NotFittedError):
            call(bumps)


def test_a_failed_fit_leaves_the_model_as_it_was(model, bumps):
    model.set_params(decoder__invariants="mass").fit(bumps)
    before = model.reconstruct(bumps)
    broken = bumps.copy()
    broken[3] *= 2  # the mass of one sample is wrong
    with pytest.raises(ValueError, match="3"):
        model.fit(broken)
    assert np.array_equal(model.reconstruct(bumps), before)


def test_data_are_not_changed_nor_aliased(model, bumps):
    F = bumps.copy()
    model.fit(F)
    fields = model.reconstruct(bumps)
    assert np.array_equal(F, bumps)
    F[:] = 0
    assert np.array_equal(model.reconstruct(bumps), fields)


def test_latents_may_come_as_a_data_frame(bumps):
    pytest.importorskip("pandas")
    from sklearn import config_context

    encoder, decoder = randsmap.DiffusionMaps(1), randsmap.RANDSMAPDecoder(random_state=0)
    plain = randsmap.ManifoldModel(encoder, decoder).fit(bumps).reconstruct(bumps)
    with config_context(transform_output="pandas"):
        model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
        assert np.array_equal(model.reconstruct(bumps), plain)  # without a warning about names


@parametrize_with_checks(
    [
        randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.RFNNDecoder(random_state=0)),
        randsmap.ManifoldModel(PCA(1)),
    ]
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # some checks give data of several components
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


# -- The interface beyond fit, transform and inverse_transform -------------------------------------


@pytest.mark.parametrize("dtype", ["Int64", "Float64"])
def test_missing_values_in_latents_are_named(model, bumps, dtype):
    pandas = pytest.importorskip("pandas")
    model.fit(bumps)
    # pandas itself makes NaN of it in a frame of numbers
    named = r"X must be finite, got (NA, a missing value,|NaN) at \(1, 0\)"
    for latents in (
        pandas.DataFrame({"a": pandas.array([1, None], dtype=dtype)}),
        np.array([[1.0], [pandas.NA]], dtype=object),
        [[1.0], [pandas.NA]],
    ):
        with pytest.raises(ValueError, match=named):
            model.inverse_transform(latents)
    with pytest.raises(ValueError, match=r"got NA, a missing value, at \(1, 0\)"):
        model.decoder_.predict(latents)
    with pytest.raises(ValueError, match=r"got NA, a missing value, at \(1, 0\)"):
        model.inverse_transform(latents)
    pod = randsmap.ManifoldModel(randsmap.POD(1)).fit(bumps)
    with pytest.raises(ValueError, match=named):
        pod.inverse_transform(pandas.DataFrame({"a": pandas.array([1, None], dtype=dtype)}))


def test_latents_come_as_data_frames_with_the_encoders_names(model, bumps):
    pandas = pytest.importorskip("pandas")
    plain = model.fit(bumps).transform(bumps)
    assert model.get_feature_names_out().tolist() == ["diffusionmaps0"]
    frame = model.set_output(transform="pandas").transform(bumps)
    assert isinstance(frame, pandas.DataFrame) and frame.columns.tolist() == ["diffusionmaps0"]
    assert np.array_equal(frame, plain)
    assert np.array_equal(model.inverse_transform(frame), model.inverse_transform(plain))
    assert np.array_equal(model.reconstruct(bumps), model.inverse_transform(plain))
    assert model.score(bumps) == -relative_l2(bumps, model.inverse_transform(plain)).mean()
    assert model.fit_transform(bumps).columns.tolist() == ["diffusionmaps0"]


def parts_with_derivatives():
    return [
        (randsmap.DiffusionMaps(2), randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(3.0), random_state=0)),
        (randsmap.DiffusionMaps(2), randsmap.KernelDecoder(invariants="mass")),
        (PCA(2), randsmap.KernelDecoder(length_scale=0.1)),
        (randsmap.POD(2, invariants="mass"), None),
    ]


@pytest.mark.parametrize("encoder, decoder", parts_with_derivatives())
def test_derivatives_are_those_of_inverse_transform(encoder, decoder, bumps):
    model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
    latents = model.transform(bumps[:3])
    rng, step = np.random.default_rng(0), 1e-6 * np.abs(latents).max()
    V, U = rng.normal(size=latents.shape), rng.normal(size=(3, 80))
    difference = model.inverse_transform(latents + step * V) - model.inverse_transform(latents - step * V)
    tangents = model.jvp(latents, V)
    np.testing.assert_allclose(tangents, difference / (2 * step), atol=1e-6 * np.abs(tangents).max())
    J = model.jacobian(latents)
    np.testing.assert_allclose(np.einsum("lmd,ld->lm", J, V), tangents, atol=1e-12 * np.abs(tangents).max())
    pulled = np.einsum("lmd,lm->ld", J, U)
    np.testing.assert_allclose(model.vjp(latents, U), pulled, atol=1e-11 * np.abs(pulled).max())
    np.testing.assert_allclose(model.jvp(latents, V, cells=[3, -1]), tangents[:, [3, -1]], atol=1e-12)
    np.testing.assert_allclose(model.jacobian(latents, cells=[3, -1]), J[:, [3, -1]], atol=1e-12 * np.abs(J).max())
    assert model.vjp(latents, U[:, :2], cells=[3, -1]).shape == latents.shape


def test_methods_are_there_only_where_the_parts_have_them(bumps):
    without = randsmap.ManifoldModel(randsmap.DiffusionMaps(1))
    assert not any(hasattr(without, name) for name in ("inverse_transform", "reconstruct", "score", "jvp", "vjp"))
    linear = randsmap.ManifoldModel(PCA(3), LinearRegression())
    assert hasattr(linear, "inverse_transform") and not hasattr(linear, "jvp")
    assert not hasattr(randsmap.ManifoldModel(PCA(3)), "jacobian")
    with pytest.raises(NotFittedError):
        randsmap.ManifoldModel(randsmap.POD(1)).jvp([[0.0]], [1.0])


@pytest.mark.parametrize(
    "encoder, decoder",
    [
        *parts_with_derivatives(),
        (randsmap.DiffusionMaps(2, n_neighbors=20), randsmap.KNNDecoder(3)),
        (randsmap.DiffusionMaps(2), randsmap.KNNDecoder(3, objective="encoder")),
        (randsmap.DiffusionMaps(1), randsmap.RANDSMAPDecoder(bounds="nonnegative", random_state=0)),
        (randsmap.POD(2), randsmap.RFNNDecoder(randsmap.FourierFeatures(0.1), random_state=0)),
        (randsmap.DiffusionMaps(2), randsmap.ConservativeRegressor(randsmap.KernelDecoder())),
        (PCA(2), LinearRegression()),
        (PCA(2), None),
    ],
)
def test_no_rows_pass_both_ways(encoder, decoder, bumps):
    model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
    d = model.transform(bumps[:1]).shape[1]
    assert model.transform(np.empty((0, 80))).shape == (0, d)
    assert model.reconstruct(np.empty((0, 80))).shape == (0, 80)
    none = np.empty((0, d))
    assert model.inverse_transform(none).shape == (0, 80)
    if not isinstance(encoder, PCA) or isinstance(decoder, randsmap.KernelDecoder):
        assert model.inverse_transform(none, cells=[1, 2]).shape == (0, 2)
        assert model.inverse_transform(none, out=np.empty((0, 80))).shape == (0, 80)
    with pytest.raises(ValueError):
        model.transform(np.empty((0, 79)))
    with pytest.raises(ValueError):
        model.inverse_transform(np.empty((0, d + 1)))


@pytest.mark.parametrize(
    "decoder",
    [
        randsmap.RFNNDecoder(random_state=0),
        randsmap.KNNDecoder(3),
        randsmap.KernelDecoder(invariants=None),
        randsmap.ConservativeRegressor(LinearRegression(), invariants=None),
        LinearRegression(),
        None,
    ],
)
def test_values_for_a_decoder_without_invariants_are_refused_by_its_name(decoder, bumps):
    model = randsmap.ManifoldModel(PCA(2) if decoder is None else randsmap.DiffusionMaps(2), decoder).fit(bumps)
    name = "PCA" if decoder is None else type(decoder).__name__
    with pytest.raises(ValueError, match=f"invariant_values given, but .*{name}"):
        model.inverse_transform(np.zeros((1, 2)), invariant_values=1.0)
    if not isinstance(decoder, randsmap.ConservativeRegressor):  # it decodes all cells, some of which are selected
        whole, out = model.inverse_transform(np.zeros((2, 2))), np.empty((2, 2))
        assert model.inverse_transform(np.zeros((2, 2)), cells=[5, -1], out=out) is out
        np.testing.assert_array_equal(out, np.asarray(whole)[:, [5, -1]])
        np.testing.assert_array_equal(model.inverse_transform(np.zeros((2, 2)), consistency=1, cells=[5]).shape, (2, 1))


@pytest.mark.parametrize("kind", [list, np.asarray, "frame"])
def test_the_encoder_is_fitted_to_some_of_any_rows(bumps, kind):
    if kind == "frame":
        kind = pytest.importorskip("pandas").DataFrame
    decoder = randsmap.RANDSMAPDecoder(random_state=0)
    model = randsmap.ManifoldModel(PCA(2), decoder, encoder_samples=50).fit(kind(bumps))
    chosen = np.sort(np.random.default_rng(0).choice(120, 50, replace=False))
    np.testing.assert_allclose(model.encoder_.mean_, bumps[chosen].mean(axis=0), atol=1e-15)


def test_scores_say_what_they_are():
    assert "relative L2 error" in randsmap.ManifoldModel.score.__doc__
    assert "relative L2 error" in randsmap.RANDSMAPDecoder.score.__doc__


def test_consistency_brings_the_latents_of_decoded_fields_nearer():
    rng = np.random.default_rng(0)
    angle, height = rng.uniform(0, 4, (2, 120))
    x = np.linspace(0, 1, 40)
    fields = 1.5 + np.sin(3 * x + angle[:, None]) * np.exp(-height[:, None] * x)
    fields /= fields.sum(axis=1, keepdims=True)
    decoder = randsmap.RANDSMAPDecoder(random_state=0, bounds="nonnegative")
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder).fit(fields[:80])
    Y = model.transform(fields[80:])

    def missed(n):
        return np.linalg.norm(Y - model.transform(model.inverse_transform(Y, consistency=n)), axis=1)

    residuals = [missed(n) for n in range(4)]
    for before, after in zip(residuals, residuals[1:]):
        assert (after <= before * (1 + 1e-9)).all()
    assert residuals[3].mean() < 0.5 * residuals[0].mean()
    G = model.inverse_transform(Y, consistency=3)
    assert (G >= 0).all() and (np.abs(G.sum(axis=1) - 1) <= 2e-14).all()
    np.testing.assert_array_equal(model.inverse_transform(Y, consistency=0), model.inverse_transform(Y))
    np.testing.assert_allclose(
        model.inverse_transform(Y, consistency=2, cells=[3, -1]),
        model.inverse_transform(Y, consistency=2)[:, [3, -1]],
        rtol=0,
        atol=1e-14,
    )
    for wrong in (-1, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="consistency"):
            model.inverse_transform(Y, consistency=wrong)


@pytest.mark.parametrize("scale", [1.0, 300.0, 2e3, 1e-4])
def test_fields_in_other_units_are_warned_of(bumps, scale):
    """Fields whose mass is 1000 times that of the fit, or a thousandth; nothing of the usual spread."""
    F = bumps / bumps.sum(axis=1, keepdims=True)
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), randsmap.RANDSMAPDecoder(random_state=0)).fit(F)
    pod = randsmap.POD(2, invariants="mass").fit(F)
    for encode in (model.transform, model.reconstruct, model.score, pod.transform):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            encode(scale * F)
        units = [str(each.message) for each in found if "units different" in str(each.message)]
        assert len(units) == (not 1e-3 < scale < 1e3), (encode, units)


@pytest.mark.parametrize("kind", ["durations", "dates", "masked", "text"])
def test_other_packages_parts_get_numbers_alone(bumps, kind):
    def wrong(X):
        masked = np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) == 0)
        words = {"durations": (1e6 * X).astype("m8[s]"), "dates": (1e6 * X).astype("M8[s]"), "text": X.astype(str)}
        return words.get(kind, masked)

    model = randsmap.ManifoldModel(PCA(2), LinearRegression()).fit(bumps)
    latents = model.transform(bumps)
    regressor = randsmap.ConservativeRegressor(LinearRegression()).fit(latents, bumps)
    calls = [(model.transform, bumps), (model.inverse_transform, latents), (model.fit, bumps)]
    if kind != "text":  # which a pipeline may take
        calls += [(regressor.predict, latents), (lambda X: clone(regressor).fit(X, bumps), latents)]
    for call, X in calls:
        with pytest.raises(ValueError, match="X must be an array of real numbers|X has 1 masked value"):
            call(wrong(X))


@pytest.mark.parametrize(
    "model",
    [
        randsmap.ManifoldModel(randsmap.DiffusionMaps(2), randsmap.KNNDecoder(3)),
        randsmap.ManifoldModel(randsmap.DiffusionMaps(2), randsmap.RFNNDecoder(random_state=0)),
        randsmap.ManifoldModel(randsmap.POD(2, invariants=None), randsmap.KernelDecoder(invariants=None)),
        randsmap.ManifoldModel(PCA(2), LinearRegression()),
        randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2, invariants=None))),
    ],
    ids=lambda model: type(getattr(model, "decoder", None)).__name__,
)
def test_other_units_are_warned_of_without_invariants_too(bumps, model, tmp_path):
    F = bumps * np.linspace(1, 5, len(bumps))[:, None]
    models = [clone(model).fit(F)]
    if not isinstance(getattr(model, "encoder", None), PCA):
        models[0].save(tmp_path / "m.npz")
        models.append(randsmap.load(tmp_path / "m.npz"))
    for fitted, scale in itertools.product(models, (1.0, 200.0, 1e3, 1e-3)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            fitted.transform(scale * F)
        assert sum("units different" in str(each.message) for each in found) == (scale in (1e3, 1e-3)), scale


def test_a_decoder_is_not_given_an_angle_for_a_number(bumps):
    shift = randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2)))
    decoder = randsmap.KernelDecoder()
    for encoder in (shift, randsmap.ManifoldModel(shift)):
        model = randsmap.ManifoldModel(encoder, decoder)
        for call in (
            lambda model=model: model.fit(bumps),
            lambda model=model: randsmap.autotune(bumps, model=model, n_trials=1),
            lambda model=model: randsmap.tune(model, {"decoder__regularization": [1.0]}, None, bumps, None, bumps),
        ):
            with pytest.raises(TypeError, match="is an angle, .*ShiftRegistration.ManifoldModel.encoder, decoder"):
                call()
        assert randsmap.ManifoldModel(encoder).fit(bumps).reconstruct(bumps).shape == bumps.shape
