"""What the command line computes, called from Python."""

import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import randsmap
from randsmap import POD, DiffusionMaps, KernelDecoder, ManifoldModel, ParametricModel, metrics
from randsmap._linalg import rows
from randsmap.cli import main
from randsmap.invariants import InvariantParameters, RunningInvariants, common_values
from randsmap.model import reconstruction_errors, sampled
from randsmap.model._errors import cautions_in_words, folds_in_words, held_out_errors, trajectories_in_words
from randsmap.tuning import advised_components, choose_parametric, search_summary


@pytest.fixture
def bumps():
    """Fields of mass 1 in two parameters on a grid."""
    x = np.linspace(0, 1, 60)
    grid = np.array([(place, width) for place in np.linspace(0.3, 0.7, 12) for width in (0.05, 0.08, 0.1)])
    F = np.exp(-(((x - grid[:, :1]) / grid[:, 1:]) ** 2))
    return F / F.sum(axis=1, keepdims=True), grid


DECODED = (randsmap.DiffusionMaps(2), randsmap.RANDSMAPDecoder(random_state=0, bounds=(0, None)))


@pytest.mark.parametrize("parts", [DECODED, (randsmap.POD(3, bounds=(0, None)),)], ids=["decoder", "POD alone"])
def test_errors_are_those_of_metrics(bumps, parts):
    F, _ = bumps
    model = ManifoldModel(*parts).fit(F)
    errors = reconstruction_errors(model, F)
    G = model.reconstruct(F)
    assert list(errors) == ["relative_l2", "relative_linf", "conservation_error", "outside_bounds"]
    assert np.array_equal(errors["relative_l2"], metrics.scaled_l2(F, G))
    assert np.array_equal(errors["relative_linf"], metrics.scaled_linf(F, G))
    C = (model.encoder_ if model.decoder_ is None else model.decoder_).invariant_matrix_
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


def test_the_model_that_predicts_clearly_better_is_chosen(bumps):
    F, grid = bumps
    few, many = ManifoldModel(POD(1)), ManifoldModel(POD(12))
    result = choose_parametric([few, many], grid, F, n_trials=4)
    assert result.best_model_.regressor.n_trials == 4
    assert result.best_index_ == 1 and result.best_model_.model_.encoder_.n_components == 12
    assert result.held_out_errors_[1] < 0.9 * result.held_out_errors_[0]
    assert result.repeated_values_ == {0: 12, 1: 3}
    again = choose_parametric([many, many], grid, F, groups=grid[:, 0], n_trials=4)
    assert again.best_index_ == 0 and again.held_out_errors_[0] == again.held_out_errors_[1]
    for name, value in {"invariants": None, "cell_weights": np.ones(F.shape[1]), "bounds": "nonnegative"}.items():
        with pytest.raises(ValueError, match=f"^{name} is for models=None"):
            choose_parametric([few], grid, F, **{name: value})


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
    mass = RunningInvariants.of(InvariantParameters(invariants="mass"), 60)
    values, reason = common_values(F, mass)
    assert abs(values[0] - 1) < 1e-14 and not reason
    values, reason = common_values(F * np.linspace(1, 2, len(F))[:, None], mass)
    assert values is None and reason


def test_a_search_in_words(bumps):
    result = randsmap.autotune(bumps[0], n_components=2, n_trials=3, families="thin-plate")
    encoder, *decoders, error = search_summary(result)
    assert encoder.startswith("encoder: ") and all("thin-plate (" in line for line in decoders if line.startswith("  "))
    assert error == result.best_model_.held_out_.in_words
    assert advised_components(result) is None  # of a number that was asked for
    for share, advised in ((0.5, 3), (0.8, None)):
        result.error_with_one_more_component_ = share * result.results_.error[result.results_.chosen].item()
        assert advised_components(result) == advised


@pytest.mark.parametrize("at_parameters", [False, True])
def test_held_out_errors_are_those_of_fits_without_these_snapshots(bumps, at_parameters):
    F, grid = bumps
    groups = np.arange(36) // 12  # as many folds, each of one group
    model = ManifoldModel(POD(2), KernelDecoder(length_scale=1.0))
    if at_parameters:
        model = ParametricModel(model, randsmap.AutoDecoder(n_trials=2, invariants=None))
    given = {"parameters": grid} if at_parameters else {}
    found = held_out_errors(model, F, groups=groups, **given)
    assert (found.n_groups, found.n_turns, found.n_snapshots, found.at_parameters) == (3, 3, 36, at_parameters)
    assert np.array_equal(found.rows, np.arange(36)) and not found.along_trajectories
    for g in range(3):
        held, rest = groups == g, groups != g
        fitted = (
            clone(model).fit(grid[rest], F[rest], groups=groups[rest]) if at_parameters else clone(model).fit(F[rest])
        )
        decoded = fitted.predict(grid[held]) if at_parameters else fitted.reconstruct(F[held])
        expected = metrics.scaled_l2(F[held], decoded, reference=np.median(np.linalg.norm(F, axis=1)))
        np.testing.assert_allclose(found.errors[held], expected, rtol=1e-9)
    spread = np.std([found.errors[groups == g].mean() for g in range(3)], ddof=1) / np.sqrt(3)
    assert found.standard_error == pytest.approx(spread, rel=1e-9)
    assert (
        f"{100 * found.mean:.3g} % +- {100 * spread:.1g} % by whole groups"
        f"{' of fields at parameters' * at_parameters}; median {100 * np.median(found.errors):.3g} %"
    ) in found.in_words
    assert f"largest {100 * found.errors.max():.3g} % (row {found.errors.argmax()}); each of 36" in found.in_words


def test_the_names_of_groups_change_nothing(tmp_path, bumps, capsys):
    """Integers as text are sorted otherwise: 0, 1, 10, 11, 2, ..."""
    F, grid = bumps
    model, search = ManifoldModel(POD(2), KernelDecoder(length_scale=1.0)), randsmap.AutoDecoder(n_trials=2)
    runs, found = np.arange(36) // 3, []
    texts, mixed = [str(g) for g in runs], [0.5 if g == 3 else f"run {-g}" for g in runs]
    for groups in (runs, texts, mixed):
        parametric = ParametricModel(model, search).fit(grid, F, groups=groups)
        chosen = randsmap.autotune(F, model=model, groups=groups, n_trials=1, families="thin-plate")
        errors = [
            held_out_errors(model, F, groups=groups).errors,
            chosen.held_out_error_,
            chosen.best_model_.held_out_.errors,
        ]
        found.append([search.fit(grid, F, groups=groups).results_.error, *errors, parametric.predict(grid)])
        np.savetxt(tmp_path / "g.csv", np.array(groups, dtype=str), fmt="%s")
        np.save(tmp_path / "F.npy", F)
        fit = ("fit", tmp_path / "F.npy", "--groups", tmp_path / "g.csv", "--features", "sigmoid", "--components", 2)
        assert main([*map(str, fit), "--out", str(tmp_path / "m")]) == 0
        found[-1].append(capsys.readouterr().out.rpartition(", ")[0])  # without the seconds
    for a, *others in zip(*found, strict=True):
        for b in others:
            np.testing.assert_array_equal(a, b)


def test_of_many_snapshots_some_are_left_out_and_fits_may_fail():
    found = held_out_errors(ManifoldModel(POD(1)), np.random.default_rng(0).uniform(1, 2, (3000, 3)))
    assert found.n_turns == 1 and len(found.rows) == 600 and found.n_snapshots == 3000
    failed = held_out_errors(ManifoldModel(POD(1)), np.ones((1, 3)) * [[1], [2]])
    assert failed.n_turns == 0 and np.isnan(failed.mean) and failed.in_words.startswith("no cross-validation error")


def test_models_are_fitted_and_searched_for_where_no_part_of_the_snapshots_can_be_left_out(tmp_path):
    rng = np.random.default_rng(0)
    F = np.exp(-((np.linspace(0, 1, 40) - rng.uniform(0.2, 0.8, (30, 1))) ** 2) / 0.02)
    F /= F.sum(axis=1, keepdims=True)
    np.save(tmp_path / "two.npy", F[:2])
    fit = ("fit", tmp_path / "two.npy", "--features", "sigmoid", "--value", 1, "--components", 1)
    assert main([*map(str, fit), "--out", str(tmp_path / "m")]) == 0
    labels = np.repeat([0, 1], [20, 10])
    found = randsmap.autotune(F, model=ManifoldModel(DiffusionMaps(12)), groups=labels, n_trials=2)
    assert found.best_model_.projection == 0  # of 10 snapshots there are no 12 coordinates


def test_a_refit_forgets_the_errors_of_the_fit_before(bumps):
    F, grid = bumps
    result = choose_parametric([ManifoldModel(POD(3))], grid, F)
    assert result.best_model_.held_out_.mean == result.held_out_errors_[0]
    assert result.best_model_.fit(grid, F).held_out_ is None


def runs(count, length, cells=40):
    """Fields along trajectories (count, length, cells) of pulses that differ in width, height and place."""
    rng, x = np.random.default_rng(3), np.linspace(0, 1, cells)
    place, width, height = rng.uniform((0.2, 0.05, 1), (0.4, 0.15, 2), (count, 3)).T[:, :, None, None]
    t = np.linspace(0, 0.4, length)[:, None]
    return height * np.exp(-(((x - place - t) / width) ** 2))


@pytest.mark.parametrize("count, length", [(1, 40), (4, 30), (60, 50)])
def test_trajectories_are_recognised_in_any_order_but_a_random_one(count, length):
    F = runs(count, length)
    one_by_one, alternating = F.reshape(-1, 40), F.swapaxes(0, 1).reshape(-1, 40)
    shuffled = np.random.default_rng(0).permutation(one_by_one)
    for ordered in (one_by_one, alternating) if len(F) <= 4 else (one_by_one,):
        assert "Groups are needed" in trajectories_in_words(ordered)
        assert trajectories_in_words(3 + ordered.reshape(-1, 5, 8)) is not None
    assert trajectories_in_words(shuffled) is None
    model = ManifoldModel(POD(2, invariants=None)).fit(one_by_one)
    assert not [text for text in cautions_in_words(model, one_by_one, np.arange(count * length)) if "Groups" in text]


@pytest.mark.parametrize("n", [1, 2, 7, 10, 30, 200])
def test_fields_in_random_order_are_no_trajectories(n):
    places = np.random.default_rng(n).uniform(0.3, 0.7, (50, n, 1))
    for place in places:
        assert trajectories_in_words(np.exp(-(((np.linspace(0, 1, 30) - place) / 0.1) ** 2))) is None


def test_folded_embeddings_are_named_with_their_rows():
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 90)
    x = np.linspace(-1, 1, 25)
    ring = np.exp(-((x - 0.6 * np.cos(angle)[:, None]) ** 2) * 9) * (2 + np.sin(angle))[:, None]
    folded = ManifoldModel(randsmap.DiffusionMaps(1), KernelDecoder()).fit(ring)
    words = folds_in_words(folded, ring)
    pairs = np.array(re.findall(r"(\d+) and (\d+)", words), dtype=int)
    Y = folded.transform(ring)
    assert 1 <= len(pairs) <= 3
    for i, j in pairs:
        assert abs(Y[i] - Y[j]).max() < 0.01 * Y.std()
        assert np.linalg.norm(ring[i] - ring[j]) > 0.25 * np.linalg.norm(ring - ring.mean(axis=0), axis=1).mean()
    with pytest.warns(UserWarning, match="nearly equal latents.*rows"):
        randsmap.autotune(ring, model=ManifoldModel(randsmap.DiffusionMaps(1)), n_trials=1, families="k-nn")
    assert folds_in_words(ManifoldModel(POD(2)).fit(ring), ring) is None
    bumps = np.exp(-(((x - angle[:, None] / 4) / 0.3) ** 2))  # one coordinate, unfolded: no two fields are equal
    unfolded = ManifoldModel(randsmap.DiffusionMaps(1, epsilon_scale=0.12), KernelDecoder()).fit(bumps)
    assert (
        np.diff(unfolded.transform(bumps)[np.argsort(angle), 0] * np.sign(unfolded.transform(bumps)[angle.argmax()]))
        > 0
    ).all()
    assert folds_in_words(unfolded, bumps) is None


def test_autotune_warns_of_trajectories_without_groups_and_gives_no_advice():
    F = runs(4, 12).reshape(-1, 40)
    options = {"n_components": "auto", "n_trials": 1, "families": "k-nn", "random_state": 0}
    with pytest.warns(UserWarning, match="snapshots follow each other.*Groups are needed"):
        found = randsmap.autotune(F, **options)
    assert found.best_model_.held_out_.along_trajectories and np.isnan(found.error_with_one_more_component_)
    assert found.held_out_error_ == found.best_model_.held_out_.mean and advised_components(found) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)
        grouped = randsmap.autotune(F, model=ManifoldModel(POD(2)), groups=np.arange(48) // 12, n_trials=2)
    assert grouped.best_model_.held_out_.n_groups == 4 and "groups are needed" not in search_summary(grouped)[-1]


def test_cautions_measure_fields_in_the_norm_of_the_model():
    place = np.tile(np.linspace(0, 1, 30), 2)
    bumps = np.exp(-(((np.linspace(0, 1, 40) - 0.2 - 0.5 * place[:, None]) / 0.1) ** 2))
    fields = np.column_stack([bumps, np.repeat([0.0, 1.0], 30)])  # the last cell tells equal bumps apart
    weights, words = np.full(41, 1 / 40), []
    for parts in (1, 400):
        cells = np.repeat(np.arange(41), [1] * 40 + [parts])
        split = np.where(cells == 40, weights[cells] / parts, weights[cells])
        model = ManifoldModel(POD(1, cell_weights=split, invariants=None), KernelDecoder(invariants=None))
        words.append(list(cautions_in_words(model.fit(fields[:, cells]), fields[:, cells])))
    assert words[0] == words[1]
