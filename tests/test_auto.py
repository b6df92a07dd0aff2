"""AutoDecoder, the blend it makes, and autotune."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import randsmap as rm
from randsmap import metrics
from randsmap._linalg.scales import error_scales
from randsmap._linalg.svd import principal_coordinates
from randsmap.datasets import make_swiss_roll
from randsmap.decoders._auto import Samples, Trial, bounded_errors, check_groups, score_of, starts_of
from randsmap.decoders._blended import BlendedDecoder, geometric_median, limited
from randsmap.reports import evaluate
from randsmap.tuning import FAMILIES

import oracles
from helpers import FittedFeatures


def pulses(n, seed=0, cells=60):
    """Densities of mass 1 on a ring, at random places and widths, and these two as latents."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(-1, 1, size=(n, 2))
    x = np.linspace(-2, 2, cells)
    F = np.exp(-(((x - Y[:, :1]) / (0.5 + 0.2 * Y[:, 1:])) ** 2))
    F[:, 7] = 0
    return Y, F / F.sum(axis=1, keepdims=True)


def relative(F, G):
    return np.linalg.norm(F - G, axis=1) / np.linalg.norm(F, axis=1)


def test_geometric_median_minimises_the_sum_of_distances():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(5, 20, 3))
    x = geometric_median(P, 1e-9)
    for i in range(20):

        def total(z, i=i):
            return np.linalg.norm(P[:, i] - z, axis=1).sum()

        found = minimize(total, x[i] + 0.1, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
        assert total(x[i]) <= found.fun + 1e-9


@pytest.mark.kernels
@pytest.mark.parametrize("count, size", [(3, 2), (12, 40), (7, 3), (2, 5), (4, 1)])
def test_geometric_median_is_that_of_numpy(count, size):
    P = np.random.default_rng(1).normal(size=(count, 20, size))
    P[-1, :5] = P[0, :5]
    assert np.abs(geometric_median(P, 1e-9) - oracles.geometric_median(P, 1e-9)).max() < 1e-12


def test_geometric_median_survives_points_that_coincide():
    P = np.ones((4, 3, 2))
    P[0, 1] = 1e6  # one of four that fails
    x = geometric_median(P, 1e-9)
    assert np.abs(x - 1).max() < 1e-5


def test_geometric_median_of_two_clusters_converges():
    """Almost nothing pulls from one pair of points to the other, so that Weiszfeld's iteration crawls."""
    rng = np.random.default_rng(0)
    P = rng.normal(scale=1e-2, size=(4, 1, 5))
    P[2:] += 1.0
    x = geometric_median(P, 1e-9)
    E = x - P
    gradient = (E / np.linalg.norm(E, axis=2, keepdims=True)).sum(axis=0)
    assert np.linalg.norm(gradient) < 1e-8


def test_derivatives_of_an_even_blend_on_a_line():
    """Fields of one direction: the median is the mean of the middle two, and moves with them."""
    rng = np.random.default_rng(2)
    Y = rng.uniform(size=(30, 2))
    F = 1 + np.outer(np.sin(3 * Y[:, 0]) + Y[:, 1] ** 2, rng.normal(size=6))
    parts = [rm.KernelDecoder(length_scale=s) for s in (0.1, 0.2, 0.4, 0.8)]
    blend = BlendedDecoder(parts, invariants=None).fit(Y, F)
    X = rng.uniform(size=(8, 2))
    J, step = blend.jacobian(X), 1e-5
    for j in range(2):
        e = step * np.eye(2)[j]
        difference = (blend.predict(X + e) - blend.predict(X - e)) / (2 * step)
        assert np.abs(J[:, :, j] - difference).max() < 1e-5 * np.abs(J).max()
    U = rng.normal(size=(8, 6))
    np.testing.assert_allclose(blend.vjp(X, U), np.einsum("ncd,nc->nd", J, U), rtol=1e-10, atol=1e-12)


def test_the_median_may_be_one_of_the_points():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(4, 30, 5))
    P[1, :10] = P[0, :10]  # two that coincide have the weight of the two others
    P[0, 10:] = P[1:, 10:].mean(axis=0) + 1e-3 * rng.normal(size=(20, 5))
    x = geometric_median(P, 1e-9)
    assert np.linalg.norm(x[:10] - P[0, :10], axis=1).max() < 1e-7
    E = P[1:, 10:] - P[0, 10:]
    inside = np.linalg.norm((E / np.linalg.norm(E, axis=2, keepdims=True)).sum(axis=0), axis=1) < 0.95
    assert inside.any() and np.linalg.norm(x - P[0], axis=1)[10:][inside].max() < 1e-8


def test_limited_fields_are_on_the_segment():
    P, near = np.array([[[3.0, 4.0], [0.1, 0.0]]]), np.zeros((2, 2))
    assert np.allclose(limited(P, near, 1.0), [[[0.6, 0.8], [0.1, 0.0]]])


def test_coordinates_keep_distances():
    F = np.random.default_rng(0).normal(size=(6, 30)) + 1e3
    for fields in (F, F.T):
        mean, G, B = principal_coordinates(fields)
        assert np.abs(mean + G @ B - fields).max() < 1e-10
        assert np.abs(B @ B.T - np.eye(len(B))).max() < 1e-12


@pytest.mark.parametrize("limit", [None, 0.02])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_blend_is_exact_and_differentiable(count, limit):
    Y, F = pulses(60)
    parts = [
        rm.KernelDecoder("matern", nu=nu, degree=degree, latent_scale=None, regularization=1e-4)
        for nu in (1.5, 2.5)
        for degree in (0, 1)
    ]
    decoder = BlendedDecoder(parts[:count], limit=limit, invariants="mass").fit(Y, F)
    Z = np.vstack([np.random.default_rng(1).uniform(-1, 1, size=(5, 2)), [[4.0, -3.0]]])
    G = decoder.predict(Z)
    assert np.abs(G.sum(axis=1) - 1).max() < 1e-15 * 60 and (G[:, 7] == 0).all()
    assert np.array_equal(decoder.predict(Z, cells=[7, 3]), G[:, [7, 3]]) or np.allclose(
        decoder.predict(Z, cells=[7, 3]), G[:, [7, 3]], atol=1e-15
    )
    step = 1e-6
    differences = np.stack(
        [(decoder.predict(Z + step * e) - decoder.predict(Z - step * e)) / (2 * step) for e in np.eye(2)], axis=2
    )
    J = decoder.jacobian(Z)
    assert np.abs(J - differences).max() < 1e-5 * np.abs(J).max()
    U = np.random.default_rng(2).normal(size=G.shape)
    assert np.allclose(decoder.vjp(Z, U), np.einsum("nmd,nm->nd", J, U), atol=1e-11)
    assert np.allclose(decoder.jvp(Z, [1.0, 2.0]), J @ [1.0, 2.0], atol=1e-11)


@pytest.mark.kernels
def test_the_last_rows_of_a_batch_have_room_for_many_functions():
    """Of 32 rows and 12 more the latter need all functions of a part at once: more numbers than 32 rows do."""
    Y, F = pulses(60)
    many = rm.RFNNDecoder(rm.FourierFeatures(0.5, n_features=2500, random_state=0), latent_scale=None)
    decoder = BlendedDecoder([many, rm.KernelDecoder()], invariants=None).fit(Y, F)
    Z = np.resize(Y, (44, 2))
    assert np.allclose(decoder.predict(Z), np.concatenate([decoder.predict(z[None]) for z in Z]), rtol=0, atol=1e-9)


def test_blend_without_derivatives_says_so():
    Y, F = pulses(20)
    decoder = BlendedDecoder([LinearRegression()]).fit(Y, F)
    with pytest.raises(AttributeError) as refused:
        decoder.jacobian(Y[:1])
    assert "the jacobian of a LinearRegression is not known" in str(refused.value.__cause__)


@pytest.mark.parametrize("limit", [None, 0.02])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_blends_of_neighbours_have_derivatives(count, limit):
    Y, F = pulses(80)
    parts = [rm.KNNDecoder(k, latent_scale="std") for k in (3, 5)] + [rm.KernelDecoder(), rm.KNNDecoder(2)]
    decoder = BlendedDecoder(parts[:count], limit=limit, invariants="mass").fit(Y, F)
    Z = np.random.default_rng(1).uniform(-1.2, 1.2, size=(40, 2))
    J, step = decoder.jacobian(Z), 1e-7
    differences = np.stack(
        [(decoder.predict(Z + step * e) - decoder.predict(Z - step * e)) / (2 * step) for e in np.eye(2)], axis=2
    )
    assert (np.abs(J - differences).max(axis=(1, 2)) < 1e-5 * np.abs(J).max()).mean() >= 0.95  # others are at a kink
    assert np.abs(J.sum(axis=1)).max() < 1e-13 * np.abs(J).sum(axis=1).max() and (J[:, 7] == 0).all()
    U = np.random.default_rng(2).normal(size=(40, 60))
    assert np.allclose(decoder.vjp(Z, U), np.einsum("nmd,nm->nd", J, U), atol=1e-11)
    assert np.allclose(decoder.jvp(Z, [1.0, 2.0]), J @ [1.0, 2.0], atol=1e-11)


@pytest.mark.parametrize(
    ("part", "given"),
    [
        (rm.RANDSMAPDecoder(invariants="mass"), "invariants='mass'"),
        (rm.KernelDecoder(bounds="nonnegative"), "bounds='nonnegative'"),
    ],
)
def test_parts_with_invariants_or_bounds_are_refused(part, given):
    """The parts decode coordinates of the fields, which have other sums and signs."""
    Y, F = pulses(20)
    with pytest.raises(ValueError, match=rf"decoders\[1\] has {given}.*give \w+ to the BlendedDecoder"):
        BlendedDecoder([rm.KernelDecoder(), part]).fit(Y, F)


def test_one_lost_group_does_not_choose_alone():
    parts = np.array_split(np.arange(40), 4)
    lost = np.r_[np.full(10, 0.9), np.full(30, 1e-4)]
    other = np.r_[np.full(10, 0.85), np.full(30, 1e-2)]
    assert other.mean() < lost.mean() and score_of(lost, parts) < score_of(other, parts)


def test_score_survives_empty_fields():
    norms = np.r_[0.0, np.ones(9)]
    assert np.isfinite(bounded_errors(np.full((10, 3), 1e-3), error_scales(norms))).all()
    assert bounded_errors(np.full((10, 3), np.nan), error_scales(norms)).max() == 1


def test_held_out_errors_of_neighbours_are_refits():
    Y, F = pulses(30)
    labels = np.repeat(np.arange(3), 10)
    samples = Samples(Y, F, np.ones(30), labels, np.random.RandomState(0))
    residuals = samples.residuals(Trial("k-nn", None, None, np.ones(2), 3))
    rest = np.flatnonzero(labels != 1)
    assert np.allclose(residuals[10:20], F[10:20] - rm.KNNDecoder(3).fit(Y[rest], F[rest]).predict(Y[10:20]))


def test_auto_is_better_than_a_tuned_spline():
    Y, F = pulses(120)
    Z, G = pulses(60, seed=1)
    decoder = rm.AutoDecoder(random_state=0).fit(Y, F)
    spline = min(relative(G, RBFInterpolator(Y, F, smoothing=s)(Z)).mean() for s in (0, 1e-6, 1e-3))
    error = relative(G, decoder.predict(Z)).mean()
    assert error < 0.5 * spline
    assert 0.3 < decoder.held_out_error_ / error < 3  # it knows how good it is
    assert decoder.chosen_invariants_ == "mass"
    assert np.abs(decoder.predict(10 * Z).sum(axis=1) - 1).max() < 1e-13


def test_auto_is_deterministic_and_stored(tmp_path):
    Y, F = pulses(50)
    first, second = (rm.AutoDecoder(n_trials=12, random_state=3).fit(Y, F) for _ in range(2))
    assert np.array_equal(first.predict(Y), second.predict(Y))
    assert all(
        np.array_equal(first.results_[k], second.results_[k], equal_nan=first.results_[k].dtype.kind == "f")
        for k in first.results_
    )
    from randsmap.persistence import save

    save(first, tmp_path / "m.npz")
    assert np.array_equal(rm.load(tmp_path / "m.npz").predict(Y), first.predict(Y))


def test_auto_parameters():
    Y, F = pulses(40)
    decoder = rm.AutoDecoder(n_trials=6, bounds="nonnegative", random_state=0).fit(Y, F)
    G = decoder.predict(3 * Y)
    assert G.min() >= 0 and np.abs(G.sum(axis=1) - 1).max() < 1e-14
    assert len(decoder.results_.family) >= 6 and decoder.results_.chosen.any()
    assert rm.AutoDecoder(n_trials=3).fit(Y, F * np.linspace(1, 2, 40)[:, None]).chosen_invariants_ is None
    single = rm.AutoDecoder(n_trials=3).fit(Y, F[:, 3])
    assert single.predict(Y).shape == (40,)
    with pytest.raises(ValueError, match="at least two groups"):
        clone(decoder).fit(Y, F, groups=np.zeros(40))
    with pytest.raises(ValueError, match="one label for each"):
        clone(decoder).fit(Y, F, groups=[1, 2])


def test_results_as_a_frame():
    pandas = pytest.importorskip("pandas")
    Y, F = pulses(20)
    frame = rm.AutoDecoder(n_trials=3).fit(Y, F).results_.frame
    assert isinstance(frame, pandas.DataFrame) and "length_scale_2" in frame


def test_results_print_as_a_table():
    table = rm.decoders._auto.Results(family=np.array(["k-nn", "matern"]), error=np.array([0.123456, np.nan]))
    assert repr(table) == "  family  error\n0   k-nn 0.1235\n1 matern    nan"
    lines = repr(rm.decoders._auto.Results(rank=np.arange(500))).splitlines()
    assert len(lines) < 70 and lines[1].split() == ["0", "0"] and lines[-1].split() == ["499", "499"]
    assert lines[-3].split() == ["...", "..."]


def test_some_of_many_samples_are_as_many_as_asked_and_of_all_groups():
    rng, X = np.random.RandomState(0), np.random.default_rng(0).normal(size=(3000, 1))
    pairs, uneven = np.arange(3000) // 2, np.minimum(np.arange(3000), 200) // 4
    for labels in (pairs, uneven, np.arange(3000), None):
        samples = Samples(X, X, np.ones(3000), labels, rng)
        for count in (300, 1600):
            some = samples.at_most(count, rng)
            assert len(some.X) == count and len(np.unique(some.X)) == count
            if labels is not None:
                groups = len(np.unique(labels))
                assert len(some.groups) == min(groups, count)
                own = np.bincount(some.labels)[200 // 4 if labels is uneven else some.labels[0]]
                assert labels is not uneven or abs(own - count * 2800 / 3000) < 50
        rest, held = samples.split(0.9999, rng)
        assert len(rest) in (300, 2800)  # the last group of the uneven ones is too large to hold out
        assert np.array_equal(np.sort(np.concatenate([rest, held])), np.arange(3000))


def test_held_out_fits_have_the_centres_of_the_fit_to_all(monkeypatch):
    monkeypatch.setattr(rm.decoders._auto, "_EXACT", 9)
    X, rng, parts = np.arange(11.0)[:, None], np.random.RandomState(0), []
    monkeypatch.setattr(rm.decoders._auto, "BlendedDecoder", lambda of, **more: parts.extend(of) or BlendedDecoder(of))
    trial = Trial("thin-plate", None, 1, np.ones(1), strength=1e-6)
    rm.AutoDecoder()._held_out(Samples(X, X, np.ones(11), None, rng), [trial], None, np.ones(1), rng)
    assert parts[0].n_centers == 1500  # though the others are 9


@pytest.mark.slow
def test_large_sets_are_searched_on_a_part():
    Y, F = pulses(1100, cells=30)
    Z, G = pulses(50, seed=1, cells=30)
    groups = np.repeat(np.arange(55), 20)
    for labels in (None, groups):
        decoder = rm.AutoDecoder(families="thin-plate", n_trials=2, random_state=0).fit(Y, F, groups=labels)
        error = relative(G, decoder.predict(Z)).mean()
        assert error < 1e-3 and 0.3 < decoder.held_out_error_ / error < 3
        assert set(decoder.results_.n_samples) <= {300, 400, 700}


@pytest.mark.slow
def test_of_very_many_kernels_are_fitted_at_some(monkeypatch):
    monkeypatch.setattr(rm.decoders._auto, "_EXACT", 1600)
    Y, F = pulses(2200, cells=30)
    Z, G = pulses(200, seed=1, cells=30)
    decoder = rm.AutoDecoder(families="thin-plate", n_trials=1, random_state=0).fit(Y, F)
    assert [part.n_centers for part in decoder.best_decoder_.decoders] == [1500]
    found, bar = decoder.predict(Z, return_error=True)  # the bar is made of a fit to 2000 of them, too
    error = relative(G, found)
    assert error.mean() < 1e-3 and 0.3 < decoder.held_out_error_ / error.mean() < 3
    assert (error <= bar).mean() > 0.8


def test_a_path_downhill_finds_the_lambda_of_all():
    Y, F = pulses(60)
    samples = Samples(Y / Y.std(axis=0), F, np.ones(60), None, np.random.RandomState(0))
    for trial in (members[0] for members in starts_of(["matern", "gaussian", "sigmoid"], 2)):
        every = list(samples.path(trial))
        for value in (every[0].value, every[-1].value):
            some = list(samples.path(replace(trial, value=value)))
            best = min(some, key=lambda new: new.score)
            neighbors = [new.score for new in every if 0.05 < new.value / best.value < 20]
            assert best.score == min(neighbors) and len({new.value for new in some}) == len(some)


@pytest.mark.slow
def test_autotune_takes_the_encoder_that_generalises():
    """Fields that are linear in two parameters: POD knows them exactly."""
    rng = np.random.default_rng(0)
    F = 3 + rng.normal(size=(60, 2)) @ rng.normal(size=(2, 40))
    result = rm.autotune(F, n_components=2, n_trials=12, random_state=0)
    assert result.results_.encoder[result.results_.chosen] == ["POD"]
    assert relative(F, result.best_model_.reconstruct(F)).max() < 1e-6


def test_autotune_of_a_model_keeps_its_encoder():
    Y, F = pulses(60)
    model = rm.ManifoldModel(rm.DiffusionMaps(2, epsilon_scale=0.7))
    result = rm.autotune(F, model=model, n_trials=5, groups=np.repeat(np.arange(6), 10), random_state=0)
    assert result.best_model_.encoder_.epsilon_scale == 0.7 and result.results_ is None
    assert np.abs(result.best_model_.reconstruct(F).sum(axis=1) - 1).max() < 1e-14
    with pytest.raises(TypeError, match="ManifoldModel"):
        rm.autotune(F, model=rm.POD(2))


@pytest.mark.parametrize("family", FAMILIES)
def test_families_restrict_the_search(family):
    Y, F = pulses(60)
    decoder = rm.AutoDecoder(n_trials=4, families=family, random_state=0).fit(Y, F)
    assert set(decoder.results_.family) == {family}
    # polynomials of degree 4 cannot follow a pulse
    assert relative(F, decoder.predict(Y)).mean() < (0.15 if family == "polynomial" else 0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_held_out_errors_are_those_of_decoders_fitted_anew(family):
    """Groups held out in closed form, and by fits of the decoder that the search would return."""
    Y, F = pulses(60)
    labels = np.repeat(np.arange(6), 10)
    Y /= Y.std(axis=0)
    samples = Samples(Y, F, np.ones(60), labels, np.random.RandomState(0))
    trial = replace(starts_of([family], 2)[0][0], value=3, strength=1e-4)
    residuals = samples.residuals(trial)
    decoder = trial.decoder(np.ones(2), 60, samples.seed)
    kept = labels != 4
    if hasattr(decoder, "features"):  # drawn for all samples
        decoder.features.fit(Y, **({} if family == "polynomial" else {"latent_scale": trial.scales}))
        decoder.set_params(features=FittedFeatures(decoder.features), latent_scale=None)
    assert np.allclose(residuals[~kept], F[~kept] - decoder.fit(Y[kept], F[kept]).predict(Y[~kept]), atol=1e-8)


def test_unknown_families_are_refused():
    Y, F = pulses(20)
    for families, given in (("spline", "'spline'"), (["gaussian", 3], "3"), ([], "none")):
        with pytest.raises(ValueError, match=f"names {given}: .* thin-plate"):
            rm.AutoDecoder(families=families).fit(Y, F)
    decoder = rm.AutoDecoder(families=iter(["gaussian"]))  # which a second fit would find empty
    for fit in (lambda: decoder.fit(Y, F), lambda: rm.ManifoldModel(rm.POD(2), decoder).fit(F)):
        with pytest.raises(TypeError, match="families must be a list, a tuple or an array, got the iterator"):
            fit()
    with pytest.raises(ValueError, match="kriging.*matern"):
        rm.autotune(F, families="kriging")


@pytest.mark.slow
def test_autotune_finds_the_number_of_components():
    search = {"n_components": "auto", "families": "thin-plate", "n_trials": 2, "random_state": 0}
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 80)
    ring = np.exp(-((np.linspace(-1, 1, 25) - 0.6 * np.cos(angle)[:, None]) ** 2) * 9) * (2 + np.sin(angle))[:, None]
    place = rng.uniform(-1, 1, (80, 1))
    one = 2 + place * np.linspace(-1, 1, 25)
    found = rm.autotune(ring, **search)
    assert found.best_model_.encoder_.n_components == 2
    assert {1, 2} == set(found.results_.n_components) and found.results_.chosen.sum() == 1
    # one coordinate says all, so that more do not help
    found = rm.autotune(one, max_components=2, **search)
    assert found.best_model_.encoder_.n_components == 1
    found = rm.autotune(ring, max_components=1, **search)
    assert found.best_model_.transform(ring).shape[1] == 1
    with pytest.raises(ValueError, match="max_components goes with"):
        rm.autotune(ring, n_components=2, max_components=3)
    with pytest.raises(ValueError, match="n_components must be one of 'auto', got 'all'"):
        rm.autotune(ring, n_components="all")


@pytest.mark.slow
def test_autotune_tries_widths_beside_the_best():
    F = make_swiss_roll(80, random_state=0).data
    result = rm.autotune(F, n_components=2, families="thin-plate", n_trials=2, alpha=0.5, random_state=0)
    widths = result.results_.epsilon_scale[result.results_.encoder == "DiffusionMaps"]
    chosen = result.best_model_.encoder_
    assert chosen.alpha == 0.5
    beside = widths[(widths != chosen.epsilon_scale) & (abs(np.log(widths / chosen.epsilon_scale)) < 0.4)]
    assert len(beside) >= 2
    scores = result.results_.score
    assert np.argmin(scores) == np.flatnonzero(result.results_.chosen)[0]
    assert np.isnan(result.results_.error[np.isinf(scores)]).all()


@pytest.mark.slow
def test_consistency_is_chosen_by_held_out_errors(tmp_path):
    rng = np.random.default_rng(0)
    F = rm.datasets.make_swiss_roll(150, random_state=0).data
    result = rm.autotune(F, model=rm.ManifoldModel(rm.DiffusionMaps(2)), n_trials=2, consistency="auto")
    model = result.best_model_
    assert model.consistency in (0, 1, 2, 3)
    chosen, others = (
        model.reconstruct(F),
        [model.inverse_transform(model.transform(F), consistency=n) for n in range(4)],
    )
    assert np.array_equal(chosen, others[model.consistency])
    model.save(tmp_path / "model")
    loaded = rm.load(tmp_path / "model")
    assert loaded.consistency == model.consistency and np.array_equal(loaded.reconstruct(F), chosen)
    # fields of an encoder that is linear decode to themselves: no step pays
    plane = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 9))
    fixed = rm.autotune(plane, model=rm.ManifoldModel(rm.POD(2)), n_trials=2, consistency="auto").best_model_
    assert fixed.consistency == 0
    assert rm.autotune(plane, model=rm.ManifoldModel(rm.POD(2)), n_trials=2, consistency=2).best_model_.consistency == 2
    for wrong in (-1, "most", 1.5):
        with pytest.raises((ValueError, TypeError), match="consistency"):
            rm.autotune(plane, consistency=wrong)


@pytest.mark.parametrize("seed", [0, 3, 4, 5])
def test_few_fields_on_a_line(seed):
    """The sum of distances that the median makes least is flat along it."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(-1, 1, (6, 2))
    F = np.exp(-((np.linspace(-1, 1, 30) - 0.5 * Y[:, :1]) ** 2) * 9) * (1 + 0.2 * Y[:, 1:])
    decoder = rm.AutoDecoder(families="k-nn", n_trials=2, random_state=0).fit(Y, F)
    assert np.isfinite(decoder.predict(Y)).all()


@pytest.mark.slow
def test_fewer_coordinates_than_are_tried():
    noise = np.abs(np.random.default_rng(0).normal(size=(24, 12)))
    result = rm.autotune(noise, n_components="auto", families="thin-plate", n_trials=2, random_state=0)
    assert result.best_model_.encoder_.n_components >= 1


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of two samples, held out of each other
def test_no_more_coordinates_are_advised_than_a_search_would_try():
    F = np.random.default_rng(0).random((4, 6))
    found = rm.autotune(F, n_components="auto", n_trials=2, random_state=0)
    assert found.best_model_.encoder_.n_components == 1 and found.held_out_error_ > 0.01
    assert np.isnan(found.error_with_one_more_component_)


# -- The norm of the cells' weights ----------------------------------------------------------------------------------
_CELLS = np.random.default_rng(3).uniform(0.3, 3, 24) / 24  # volumes
_PARTS = np.where(np.arange(24) % 5 == 2, 9, 1)  # into which the cells are split
_PLACES = np.random.default_rng(0).uniform(size=(48, 2))


def _pulses_of_mass_1(places):
    x = (np.arange(24) + 0.5) / 24
    F = 1e-3 + np.exp(-(((x - 0.3 - 0.4 * places[:, :1]) / (0.1 + 0.1 * places[:, 1:])) ** 2))
    return F / (F @ _CELLS)[:, None]


def _model(model):
    def figures(F, T, whole):
        fitted = model(whole.weights).fit(F)
        errors = rm.model.reconstruction_errors(fitted, T)["relative_l2"]
        return fitted.transform(T), fitted.score(T), errors, evaluate(fitted, T).l2, whole(fitted.reconstruct(T))

    return figures


def _decoder(decoder):
    def figures(F, T, whole):
        fitted = decoder(whole.weights).fit(_PLACES[:36], F)
        return fitted.score(_PLACES[36:], T), whole(fitted.predict(_PLACES[36:]))

    return figures


def _tuned(decoder, grid):
    def figures(F, T, whole):
        X, Z = (None, None) if isinstance(decoder, rm.ManifoldModel) else (_PLACES[:36], _PLACES[36:])
        result = rm.tune(decoder, grid, X, F, Z, T, cell_weights=whole.weights)
        direct = metrics.scaled_l2(T, result.best_decoder_.predict(Z), reference=T, cell_weights=whole.weights)
        assert np.allclose(direct.mean(), result.best_error_, rtol=1e-9)
        return result.sample_errors_, whole(result.best_decoder_.predict(Z))

    return figures


def _autotuned(**options):
    def figures(F, T, whole):
        result = rm.autotune(F, n_trials=4, cell_weights=whole.weights, **options)
        chosen = [] if result.results_ is None else result.results_.chosen
        return result.held_out_error_, chosen, whole(result.best_model_.reconstruct(T))

    return figures


def _left_out(F, T, whole):
    decoder = rm.KernelDecoder(cell_weights=whole.weights, invariants="mass")
    return (rm.leave_one_out(decoder, _PLACES[:36], F, regularizations=[1e-6, 1e-3, 0.1, 1.0]).errors_,)


def _parametric(F, T, whole):
    models = [rm.ManifoldModel(rm.POD(d, cell_weights=whole.weights)) for d in (1, 4)]
    result = rm.tuning.choose_parametric(models, _PLACES[:36], F)
    return result.held_out_errors_, result.best_model_.score(_PLACES[36:], T)


def _frozen(F, T, whole):
    model = rm.ManifoldModel(rm.DiffusionMaps(2), rm.RANDSMAPDecoder(random_state=0, cell_weights=whole.weights))
    frozen = model.fit(F).freeze(tol=1e-3)
    return frozen.transform(T), whole(frozen.inverse_transform(frozen.transform(T)))


def _velocity(F, T, whole):
    decoder = rm.KernelDecoder(cell_weights=whole.weights).fit(_PLACES[:36], F)
    model = rm.SampledModel(decoder, lambda t, f: f**2, np.arange(F.shape[1]))
    return (model.velocity(0.0, [0.4, 0.6]),)


_DOORS = {
    "diffusion maps": _model(lambda w: rm.ManifoldModel(rm.DiffusionMaps(2, cell_weights=w), rm.KernelDecoder())),
    "from the decoder": _model(lambda w: rm.ManifoldModel(rm.DiffusionMaps(2), rm.KernelDecoder(cell_weights=w))),
    "neighbours": _model(
        lambda w: rm.ManifoldModel(
            rm.DiffusionMaps(1, n_neighbors=15, epsilon_scale=3), rm.KernelDecoder(cell_weights=w)
        )
    ),
    "encoder's k-NN": _model(
        lambda w: rm.ManifoldModel(rm.DiffusionMaps(2, cell_weights=w), rm.KNNDecoder(2, objective="encoder"))
    ),
    "POD": _model(lambda w: rm.ManifoldModel(rm.POD(3, cell_weights=w))),
    "from POD": _model(lambda w: rm.ManifoldModel(rm.POD(2, cell_weights=w), rm.AutoDecoder(n_trials=4))),
    "features": _decoder(lambda w: rm.RANDSMAPDecoder(random_state=0, cell_weights=w)),
    "modes": _decoder(lambda w: rm.RANDSMAPDecoder(random_state=0, cell_weights=w, output_rank=0.01)),
    "few modes": _decoder(lambda w: rm.RANDSMAPDecoder(random_state=0, cell_weights=w, output_rank=3)),
    "search": _decoder(lambda w: rm.AutoDecoder(n_trials=4, cell_weights=w)),
    "blend": _decoder(
        lambda w: BlendedDecoder([rm.KernelDecoder(length_scale=s) for s in (0.3, 1, 3)], limit=0.1, cell_weights=w)
    ),
    "tune": _tuned(rm.KernelDecoder(), {"length_scale": [0.1, 1.0]}),
    "tune k-NN": _tuned(rm.KNNDecoder(), {"n_neighbors": [1, 3]}),
    "autotune": _autotuned(n_components="auto", families=["gaussian"]),
    "autotune groups": _autotuned(groups=np.arange(36) // 9, families=["gaussian"]),
    "autotune model": _autotuned(model=rm.ManifoldModel(rm.DiffusionMaps(1)), consistency="auto"),
    "leave one out": _left_out,
    "parameters": _parametric,
    "frozen": _frozen,
    "velocity": _velocity,
    "number of coordinates": lambda F, T, whole: (rm.encoders.estimate_n_components(F, cell_weights=whole.weights),),
    "metrics": lambda F, T, whole: (metrics.relative_l2(T, T[::-1], cell_weights=whole.weights),),
}


_SLOW = ("autotune", "autotune groups", "autotune model", "parameters", "search", "from POD")


@pytest.mark.parametrize("door", [pytest.param(d, marks=pytest.mark.slow if d in _SLOW else ()) for d in _DOORS])
def test_cells_that_are_split_change_nothing(door):
    # parts of a cell with its value and its weight in all are the same function
    F = _pulses_of_mass_1(_PLACES)

    def of_cells(fields):
        return fields

    def of_parts(fields):
        return fields[:, np.cumsum(_PARTS) - _PARTS]

    split = np.repeat(np.arange(24), _PARTS)
    of_cells.weights, of_parts.weights = _CELLS, (_CELLS / _PARTS)[split]
    figures = _DOORS[door]
    for plain, parts in zip(figures(F[:36], F[36:], of_cells), figures(F[:36, split], F[36:, split], of_parts)):
        # lambda down to 1e-12 of the kernel amplifies round-off
        np.testing.assert_allclose(parts, plain, rtol=1e-4, atol=1e-6 * np.abs(plain).max(initial=0))


@pytest.mark.parametrize("missing", ["", " ", "NA ", None, np.nan, np.datetime64("NaT", "D"), "pandas"])
def test_a_label_that_is_missing_is_no_group(missing):
    if missing == "pandas":
        missing = pytest.importorskip("pandas").NA
    for labels in ([1, missing, 2], [missing, "b"], np.array([2.5, missing], dtype=object)):
        with pytest.raises(ValueError, match=r"groups\[\d\] is .*no label: give these samples a group"):
            check_groups(labels, len(labels))
