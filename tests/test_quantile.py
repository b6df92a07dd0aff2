"""Quantile registration: fields on a line as places of their mass."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

import randsmap
from randsmap import POD, ManifoldModel, ParametricModel, QuantileRegistration
from randsmap.tuning._parametric import _plain_models


def pulses(n=40, M=200, seed=0):
    """Parameters, and pulses of one mass that move and widen."""
    x = (np.arange(M) + 0.5) / M
    P = np.random.default_rng(seed).uniform([0.3, 0.03], [0.7, 0.08], (n, 2))
    F = np.exp(-(((x - P[:, :1]) / P[:, 1:]) ** 2))
    return P, F / F.sum(axis=1, keepdims=True)


def fronts(n=40, M=150, seed=1):
    """Parameters, and fields of growing mass that end at a shock."""
    edges = np.linspace(0, 1, M + 1)
    P = np.random.default_rng(seed).uniform([0.2, 0.5], [0.8, 2.0], (n, 2))
    cumulative = np.minimum(edges, P[:, :1]) + P[:, 1:] * np.minimum(edges, P[:, :1]) * P[:, :1]
    return P, np.diff(cumulative, axis=1) * M


def registration(modes=1.0, **options):
    return QuantileRegistration(ManifoldModel(POD(modes, invariants=None)), **options)


@pytest.mark.kernels
def test_splines_are_those_of_scipy_and_their_inverse():
    rng = np.random.default_rng(0)
    _, F = pulses(5, 30)
    model = registration().fit(F)
    basis, kept = model.basis, model.invariants_
    edges, levels = basis.arrays["edges"], basis.arrays["levels"]
    x = np.sort(rng.uniform(size=(5, 61)), axis=1)
    found = model.carrier.fields(np.ascontiguousarray(x[:, rng.permutation(61)]))
    for row, field in zip(x, found, strict=True):
        expected = PchipInterpolator(row, levels, extrapolate=False)(edges)
        expected = np.where(edges < row[0], 0, np.where(edges > row[-1], 1, expected))
        # knots are moved by 1e-9, over the smallest gap between them
        atol = 2e-8 / np.diff(row).min() * np.diff(levels).max()
        np.testing.assert_allclose(field / kept.values, np.diff(expected), rtol=0, atol=atol)
    F = np.where(rng.uniform(size=(5, 30)) < 0.3, 0, rng.uniform(size=(5, 30)))  # plateaus
    for field, places in zip(F, model.carrier.registered(F), strict=True):
        cumulative = np.append(0, np.cumsum(field) / field.sum())
        at = PchipInterpolator(edges, cumulative)(places)
        np.testing.assert_allclose(at, np.clip(levels, 1e-7, 1 - 1e-7), rtol=0, atol=1e-11)


@pytest.mark.kernels
@pytest.mark.parametrize("case", ["one mass", "masses", "masses at a bound", "bounds and widths"])
def test_derivatives_are_differences(case):
    F = fronts(30, 60)[1] if "masses" in case else pulses(30, 60)[1]
    options = {}
    if case == "masses at a bound":
        options["bounds"] = (0.0, 0.999 * float(F.max()))
        F = np.minimum(F, options["bounds"][1])
    elif case == "bounds and widths":
        options = {"bounds": (1e-3, float(F.max()) * 1.01 + 1e-3), "cell_weights": np.linspace(1, 3, 60)}
        F = F + 1e-3
        F *= 1 / (F @ options["cell_weights"])[:, None]
        options["bounds"] = (float(F.min()), float(F.max()))
    model = QuantileRegistration(ManifoldModel(POD(3, invariants=None)), **options).fit(F)
    latents = model.transform(F) * [1.02, *[1.1] * (model.transform(F).shape[1] - 1)]
    V = np.random.default_rng(1).normal(size=latents.shape) * latents.std(axis=0)
    moved, h = model.jvp(latents, V), 1e-7
    expected = (model.inverse_transform(latents + h * V) - model.inverse_transform(latents - h * V)) / (2 * h)
    size = np.abs(expected).max(axis=1)
    close = np.abs(moved - expected).max(axis=1) <= 1e-5 * size
    assert close.mean() > 0.8  # but where a cell comes to a bound
    if "bound" in case:  # which hold
        G, (lower, upper) = model.inverse_transform(latents), options["bounds"]
        assert ((G <= lower) | (G >= upper)).any(axis=1).mean() > 0.2
    widths = options.get("cell_weights", np.ones(60))
    masses = V[:, 0] * (F @ widths).mean() if model.n_own else 0
    np.testing.assert_allclose(moved @ widths, masses, rtol=1e-10, atol=1e-12 * size.max() * 60)
    J, U, some = model.jacobian(latents), np.random.default_rng(2).normal(size=F.shape), [3, -1]
    np.testing.assert_allclose((J @ V[:, :, None])[:, :, 0], moved, rtol=0, atol=1e-11 * np.abs(moved).max())
    np.testing.assert_allclose(model.vjp(latents, U), np.einsum("nm,nmd->nd", U, J), rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(model.jvp(latents, V, cells=some), moved[:, some])
    out = np.empty_like(J)
    assert model.jacobian(latents, out=out) is out and np.array_equal(out, J)


@pytest.mark.parametrize("M, most", [(50, 1e-3), (100, 2e-4), (200, 5e-5)])
def test_smooth_fields_come_back(M, most):
    _, F = pulses(10, M)
    assert randsmap.metrics.relative_l2(F, registration().fit(F).reconstruct(F)).max() < most


def test_atoms_plateaus_and_empty_cells_come_back():
    F = np.zeros((4, 120))
    F[0, 60], F[1, 30:90], F[2, [20, 100]], F[3] = 1, 1, 0.5, 1
    F /= F.sum(axis=1, keepdims=True)
    found = registration().fit(F).reconstruct(F)
    assert randsmap.metrics.relative_l2(F, found).max() < 0.03 and (found >= 0).all()


@pytest.mark.parametrize("case", ["cells of different width", "masses", "upper bound", "a column of cells", "float32"])
def test_decoded_fields_are_nonnegative_and_have_the_mass(case):
    P, F = fronts() if case == "masses" else pulses()
    options = {}
    if case == "cells of different width":
        options["cell_weights"] = np.linspace(1, 3, 200)
        F = F / (F @ options["cell_weights"])[:, None]
    elif case == "upper bound":
        options["bounds"] = (0.0, float(F.max()))
    fields = {"a column of cells": F[:, :, None], "float32": F.astype(np.float32)}.get(case, F)
    model = registration(4, **options).fit(fields)
    widths = options.get("cell_weights", np.ones(F.shape[1]))
    assert model.n_own == (case == "masses")
    latents = model.transform(fields)
    far = latents + np.random.default_rng(2).normal(size=latents.shape) * latents.std(axis=0) * 3
    G = model.inverse_transform(far)
    assert G.shape[1:] == fields.shape[1:]
    G = G.reshape(len(G), -1)
    masses = np.maximum(far[:, 0], 0) * (F @ widths).mean() if model.n_own else np.full(len(G), (F @ widths).mean())
    tolerance = 1e-6 if case == "float32" else 1e-14  # masses of float32 fields differ by as much
    assert (np.abs(G @ widths - masses) <= tolerance * masses + 1e-15).all()
    assert (G >= 0).all() and (G <= options.get("bounds", (0, np.inf))[1]).all()


def test_masses_of_rows_are_given_or_the_first_latent():
    P, F = fronts()
    model = registration().fit(F)
    latents = model.transform(F)
    np.testing.assert_allclose(latents[:, 0], F.sum(axis=1) / F.sum(axis=1).mean(), rtol=1e-14)
    given = model.inverse_transform(latents, invariant_values=2 * F.sum(axis=1))
    np.testing.assert_allclose(given, 2 * model.inverse_transform(latents), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(model.inverse_transform(latents, cells=[3, -1]), model.reconstruct(F)[:, [3, -1]])


@pytest.mark.parametrize("fields", [pulses, fronts])
def test_batches_have_the_quantiles_of_all_fields(fields):
    _, F = fields()
    inside = ManifoldModel(POD(3, invariants=None), randsmap.RANDSMAPDecoder(random_state=0))
    streamed, whole = QuantileRegistration(inside).partial_fit(F[:30]), QuantileRegistration(inside).fit(F)
    quantiles = whole.registered(F)[1]
    alone = ManifoldModel(inside.encoder, inside.decoder).partial_fit(quantiles[:30]).partial_fit(quantiles[30:])
    np.testing.assert_array_equal(streamed.partial_fit(F[30:]).model_.decoder_.coef_, alone.decoder_.coef_)
    np.testing.assert_allclose(streamed.reconstruct(F).sum(axis=1), F.sum(axis=1), rtol=1e-13)
    if not whole.n_own:
        with pytest.raises(ValueError, match="all earlier fields have one mass"):
            streamed.partial_fit(2 * F)
    with pytest.raises(ValueError, match="nonnegative"):
        streamed.partial_fit(-F)
    assert streamed.model_.decoder_.n_samples_seen_ == 40


def test_a_front_moves_into_cells_that_no_training_front_has_reached():
    ends = np.linspace(0.2, 0.8, 13)
    F = np.clip(ends[:, None] * 100 - np.arange(100), 0, 1)
    model = registration(1).fit(F)
    latents = model.transform(F)
    (front,) = model.inverse_transform(latents[-1:] + 2 * np.diff(latents[-2:], axis=0))  # at 0.9
    np.testing.assert_allclose(front, np.arange(100) < 90, rtol=0, atol=0.05)


@pytest.mark.parametrize(("lower", "factor"), [(0.2, 0.3), (0.0, 40.0), (0.0, -1.0)])
def test_masses_of_latents_are_limited_to_what_the_bounds_allow(lower, factor):
    F = lower + (1 - lower) * fronts(10, 40)[1] / 3
    F /= max(1, F.max())
    F = np.maximum(F, lower)
    model = registration(3, bounds=(lower, 1.0), cell_weights=np.linspace(1, 3, 40)).fit(F)
    latents = model.transform(F)
    latents[:, 0] *= factor
    np.testing.assert_allclose(model.inverse_transform(latents), 1.0 if factor > 1 else lower, rtol=1e-13)


def test_round_off_below_zero_is_nothing_and_none_as_a_bound_is_zero():
    _, F = pulses(12, 40)
    F[0, 0], F[1, -1] = -1e-18, 0
    kept = {"invariants": "auto", "cell_weights": None}
    for fields in (F, np.where(F > 0, F, -1e-9).astype(np.float32)):
        assert len(_plain_models(fields, {**kept, "bounds": None})) == 2
        model = registration().fit(fields)
        expected = model.transform(np.maximum(fields, 0))
        for each in (fields, fields.astype(float)):  # errors are found of blocks of float64
            np.testing.assert_array_equal(model.transform(each), expected)
    for bounds in (None, (None, 1.0), [None, np.ones(40)]):
        plain, quantiles = _plain_models(F, {**kept, "bounds": bounds})
        assert plain.encoder.bounds is bounds
        assert not quantiles.fit(F).invariants_.lower.any()
    with pytest.raises(ValueError, match="must be a pair"):
        randsmap.tuning.choose_parametric(None, np.arange(12), F, bounds=np.array([0, 1]))


def test_memory_is_that_of_some_fields_however_many():
    _, F = pulses(4000, 40)
    model = registration(3).fit(F[:20])
    latents = model.transform(F)

    def peak(function, data):
        tracemalloc.start()
        function(data)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    for function, data in ((model.transform, F), (model.inverse_transform, latents)):
        more = peak(function, data) - peak(function, data[:1500])  # both more than a block
        assert more < 8 * F[1500:].nbytes  # 2 of these are the quantiles, and 2 what encodes and decodes them


@pytest.mark.slow
@pytest.mark.parametrize("problem", [pulses, fronts])
def test_fields_at_parameters_are_those_of_quantiles_where_these_are_better(problem, tmp_path):
    (P, F), (new, truth) = problem(30, 80), problem(50, 80, 7)
    result = randsmap.tuning.choose_parametric(None, P, F)
    assert result.best_index_ == 1 and isinstance(result.best_model_.model_, QuantileRegistration)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)
        fields, bar = result.best_model_.predict(new, return_error=True)
        plain = ParametricModel(ManifoldModel(POD(1.0))).fit(P, F).predict(new)
    error = randsmap.metrics.relative_l2
    assert error(truth, fields).mean() < 0.3 * error(truth, plain).mean()
    assert (error(truth, fields) <= bar).mean() > 0.75
    result.best_model_.save(tmp_path / "m.npz")
    loaded = randsmap.load(tmp_path / "m.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)
        np.testing.assert_array_equal(loaded.predict(new), fields)


def test_fields_that_are_negative_or_of_a_plane_have_all_modes_of_pod_alone():
    _, F = pulses(12, 40)
    kept = {"invariants": "auto", "cell_weights": None, "bounds": None}
    for fields in (F - 0.01, F.reshape(12, 8, 5), np.where(np.arange(12)[:, None] == 3, 0, F)):
        assert len(_plain_models(fields, dict(kept))) == 1
    assert len(_plain_models(F, {**kept, "invariants": np.ones((40, 1))})) == 1
    plain, quantiles = _plain_models(F[:, :, None], {**kept, "bounds": (-1.0, 0.9)})
    assert plain.encoder.bounds == (-1.0, 0.9) and quantiles.bounds == (0.0, 0.9)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda F: F - 1e-3, {}, "must be nonnegative, as a density, got -0.001 in row 0"),
        (lambda F: F.reshape(40, 20, 10), {}, "cells of a plane have no order"),
        (lambda F: np.where(np.arange(40)[:, None] == 3, 0, F), {}, "row 3 has no mass"),
        (lambda F: np.where(F > 1e-9, F, -1e-9), {}, "must be nonnegative"),  # of float64 no round-off
        (lambda F: F, {"bounds": (-1.0, None)}, "bounds must be 0 or more, .*lower bound None means 0"),
        (lambda F: F, {"cell_weights": np.ones(7)}, "cell_weights"),
        (lambda F: F, {"bounds": (0.0, 1e-3)}, "bound"),
    ],
)
def test_what_has_no_quantiles_is_refused(change, options, message):
    estimator = registration(**options)
    with pytest.raises(ValueError, match=message):
        estimator.fit(change(pulses()[1]))
    assert not hasattr(estimator, "model_")


def test_what_is_new_is_checked_and_parts_inside_have_no_weights():
    _, F = pulses()
    model = registration().fit(F)
    with pytest.raises(ValueError, match="nonnegative"):
        model.transform(-F[:2])
    with pytest.raises(ValueError, match="row 1 has no mass"):
        model.transform(F[:2] * [[1], [0]])
    assert model.transform(F[:0]).shape == (0, model.transform(F).shape[1])
    assert model.inverse_transform(model.transform(F)[:0]).shape == (0, 200)
    for name, value in {"cell_weights": np.ones(401), "invariants": np.ones(401), "invariant_values": 1.0}.items():
        inside = ManifoldModel(POD(3, **{"invariants": "auto", name: value}))
        with pytest.raises(ValueError, match=f"^{name} of the inner POD"):
            QuantileRegistration(inside).fit(F)
    with pytest.raises(AttributeError, match="are those of quantiles, .*calibrate"):
        model.inverse_transform(model.transform(F), return_error=True)
    calibrated = randsmap.model.calibrate(model, F)
    assert calibrated.inverse_transform(model.transform(F), return_error=True)[1].shape == (40,)
