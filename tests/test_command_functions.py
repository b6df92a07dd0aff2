"""What the command line computes, called from Python."""

import functools

import numpy as np
import pytest

import randsmap
from randsmap import POD, KernelDecoder, ManifoldModel, ParametricModel, metrics
from randsmap._linalg import rows
from randsmap.invariants import Invariants, common_values
from randsmap.model import reconstruction_errors, sampled
from randsmap.tuning import advised_components, choose_parametric, search_summary


@pytest.fixture
def bumps():
    """Fields of mass 1 in two parameters on a grid."""
    x = np.linspace(0, 1, 60)
    grid = np.array([(place, width) for place in np.linspace(0.3, 0.7, 12) for width in (0.05, 0.08, 0.1)])
    F = np.exp(-(((x - grid[:, :1]) / grid[:, 1:]) ** 2))
    return F / F.sum(axis=1, keepdims=True), grid


def test_errors_are_those_of_metrics(bumps):
    F, _ = bumps
    decoder = randsmap.RANDSMAPDecoder(random_state=0, bounds=(0, None))
    model = ManifoldModel(randsmap.DiffusionMaps(2), decoder).fit(F)
    errors = reconstruction_errors(model, F)
    G = model.reconstruct(F)
    assert list(errors) == ["relative_l2", "relative_linf", "conservation_error", "outside_bounds"]
    assert np.array_equal(errors["relative_l2"], metrics.scaled_l2(F, G))
    assert np.array_equal(errors["relative_linf"], metrics.scaled_linf(F, G))
    C = model.decoder_.invariant_matrix_
    assert np.array_equal(errors["conservation_error"], metrics.conservation_error(F, G, invariants=C))
    assert not errors["outside_bounds"].any()
    assert errors["relative_l2"].mean() == pytest.approx(-model.score(F), rel=1e-12)
    with pytest.raises(ValueError, match="there are no snapshots"):
        reconstruction_errors(model, F[:0])


def test_errors_of_fields_of_a_shape_and_of_large_files_are_those_of_rows(bumps, tmp_path, monkeypatch):
    F, _ = bumps
    expected = reconstruction_errors(ManifoldModel(POD(2)).fit(F), F)
    planes = F.reshape(-1, 6, 10)
    np.save(tmp_path / "F.npy", F)
    mapped = np.load(tmp_path / "F.npy", mmap_mode="r")
    monkeypatch.setattr(rows, "LARGE", 1)
    for model, given in ((ManifoldModel(POD(2)).fit(planes), planes), (ManifoldModel(POD(2)).fit(F), mapped)):
        for name, errors in reconstruction_errors(model, given).items():
            np.testing.assert_allclose(errors, expected[name], rtol=1e-9, atol=1e-14)


def test_errors_at_parameters_are_those_of_the_predicted_fields(bumps):
    F, grid = bumps
    model = ParametricModel(ManifoldModel(POD(4)), KernelDecoder(length_scale=1.0)).fit(grid, F)
    errors = reconstruction_errors(model, F, parameters=grid)
    assert np.array_equal(errors["relative_l2"], metrics.scaled_l2(F, model.predict(grid)))


def test_the_model_that_predicts_clearly_better_is_chosen(bumps, monkeypatch):
    monkeypatch.setattr("randsmap.model._parametric.AutoDecoder", functools.partial(randsmap.AutoDecoder, n_trials=4))
    F, grid = bumps
    few, many = ManifoldModel(POD(1)), ManifoldModel(POD(12))
    result = choose_parametric([few, many], grid, F)
    assert result.best_index_ == 1 and result.best_model_.model_.encoder_.n_components == 12
    assert result.held_out_errors_[1] < 0.9 * result.held_out_errors_[0]
    assert result.repeated_values_ == {0: 12, 1: 3}
    again = choose_parametric([many, many], grid, F, groups=grid[:, 0])
    assert again.best_index_ == 0 and again.held_out_errors_[0] == again.held_out_errors_[1]


def test_samples_are_those_of_the_model_and_keep_shape_and_type(bumps, tmp_path, monkeypatch):
    F = bumps[0].astype(np.float32).reshape(-1, 6, 10)
    chosen, sample = sampled(F, 9)
    assert sample.dtype == np.float32 and np.array_equal(sample, F[chosen]) and (np.diff(chosen) > 0).all()
    model = ManifoldModel(POD(2), encoder_samples=9).fit(F)
    np.testing.assert_allclose(model.encoder_.mean_, sample.reshape(9, -1).mean(axis=0, dtype=float), atol=1e-15)
    np.save(tmp_path / "F.npy", F)
    monkeypatch.setattr(rows, "LARGE", 1)
    mapped = sampled(np.load(tmp_path / "F.npy", mmap_mode="r"), 9)
    assert np.array_equal(mapped[0], chosen) and np.array_equal(mapped[1], sample)
    assert not np.array_equal(sampled(F, 9, 1)[0], chosen)


def test_the_common_mass_or_the_reason_why_there_is_none(bumps):
    F, _ = bumps
    mass = Invariants.of(60)
    values, reason = common_values(F, mass)
    assert abs(values[0] - 1) < 1e-14 and not reason
    values, reason = common_values(F * np.linspace(1, 2, len(F))[:, None], mass)
    assert values is None and reason


def test_a_search_in_words(bumps):
    result = randsmap.autotune(bumps[0], n_components=2, n_trials=3, families="thin-plate")
    encoder, *decoders, error = search_summary(result)
    assert encoder.startswith("encoder: ") and all("thin-plate (" in line for line in decoders if line.startswith("  "))
    assert error == f"held-out relative L2 error {result.held_out_error_:.4g}"
    assert advised_components(result) is None  # of a number that was asked for
    result.error_with_one_more_component_ = 0.5 * result.held_out_error_
    assert advised_components(result) == 3
