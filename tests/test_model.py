import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
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
        randsmap.KernelDecoder(),
        LinearRegression(),
    ):
        fitted = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
        with pytest.raises(ValueError, match="invariant"):
            fitted.inverse_transform([[0.1]], invariant_values=1.0)
    for pod in (randsmap.POD(2), PCA(2)):
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
    model.fit(bumps)
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
