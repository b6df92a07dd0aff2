"""Encoding by projection: latents whose decoded fields are nearest to the given ones, in C and in Python."""

import functools

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap import (
    POD,
    AutoDecoder,
    BlendedDecoder,
    ConservativeRegressor,
    DiffusionMaps,
    FrozenModel,
    KernelDecoder,
    KNNDecoder,
    ManifoldModel,
    RANDSMAPDecoder,
    RFNNDecoder,
)
from randsmap._kernels import linear_map as kernel
from randsmap.invariants import own_values
from randsmap.maps.frozen import assembled
from randsmap.maps.linear_map import LinearMap, map_arrays, nearest_latents

from helpers import random_problem

pytestmark = pytest.mark.filterwarnings("ignore::randsmap.ExtrapolationWarning")

M = 37
_, F = random_problem(90, M, 2, seed=3, constant={4: 0.02})
_, NEW = random_problem(40, M, 2, seed=9, constant={4: 0.02})
WEIGHTS = 10.0 ** np.random.default_rng(0).uniform(-1, 1, M)
BLEND = [KernelDecoder(length_scale=s, regularization=1e-8) for s in (0.5, 0.8, 1.2)]


class Quadratic(RegressorMixin, BaseEstimator):
    """A decoder of another package, which has derivatives."""

    def fit(self, X, y):
        self.decoder_ = RFNNDecoder(PolynomialFeatures(2, include_bias=False)).fit(X, y)
        return self

    def predict(self, X):
        return self.decoder_.predict(X)

    def jacobian(self, X):
        return self.decoder_.jacobian(X)


IN_C = {
    "kernel": (DiffusionMaps(2), KernelDecoder(invariants="mass")),
    "features": (POD(2), RANDSMAPDecoder(random_state=0)),
    "nonnegative": (DiffusionMaps(2), RANDSMAPDecoder(random_state=0, bounds="nonnegative")),
    "weighted": (DiffusionMaps(2, cell_weights=WEIGHTS), RFNNDecoder(random_state=0)),
    "weighted bounds": (POD(3), KernelDecoder(invariants=None, bounds=(0.001, 0.1), cell_weights=WEIGHTS)),
    "modes": (DiffusionMaps(2), RANDSMAPDecoder(random_state=0, output_rank=6)),
    "POD alone": (POD(3, invariants="mass"), None),
    "bounded POD": (POD(3, bounds="nonnegative"), None),
}
MODELS = {
    **IN_C,
    "conservative": (POD(2), ConservativeRegressor(KernelDecoder(), bounds="nonnegative")),
    "polynomials": (POD(2), RANDSMAPDecoder(PolynomialFeatures(2, include_bias=False))),
    "blend": (DiffusionMaps(2), BlendedDecoder([*BLEND, KNNDecoder(3)])),
    "search": (POD(2), AutoDecoder(n_trials=2)),
    "k-nn": (DiffusionMaps(2), KNNDecoder(3)),
    "k-nn, encoder": (DiffusionMaps(2), KNNDecoder(5, objective="encoder")),
    "of another package": (PCA(2), Quadratic()),
}


@functools.cache
def fitted(name):
    training = np.clip(F, 0.001, 0.1) if name == "weighted bounds" else F
    return ManifoldModel(*MODELS[name]).fit(training)


def norm_of(name):
    return np.sqrt(WEIGHTS) if "weighted" in name else np.ones(M)


def misfits(name, Y, fields):
    # few rows together have the bits of the steps, whose sums have another order in batches
    decoded = np.vstack([fitted(name).inverse_transform(Y[i : i + 8]) for i in range(0, len(Y), 8)])
    return np.linalg.norm((decoded - fields) * norm_of(name), axis=1)


@pytest.mark.parametrize("name", MODELS)
def test_no_step_takes_a_field_away(name):
    model = fitted(name)
    fields = np.vstack([NEW, F[:3], 1e3 * NEW[:2], -NEW[:2], np.zeros((1, M))])
    before = misfits(name, model.transform(fields), fields)
    assert (misfits(name, model.transform(fields, projection=0), fields) == before).all()
    for n in (1, 2, 3, 5, 12):
        latents = model.transform(fields, projection=n)
        assert np.isfinite(latents).all()
        after = misfits(name, latents, fields)
        assert (after <= before * (1 + 1e-12) + 1e-13).all()
        before = after


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("blend", "k-nn", "k-nn, encoder")])
def test_fields_of_the_manifold_get_their_latents_back(name):
    model = fitted(name)
    Y = model.transform(NEW)
    Y = Y + 1e-3 * np.std(Y, axis=0)
    fields = model.inverse_transform(Y)
    near = np.linalg.norm(model.encoder_.transform(fields) - Y, axis=1) < 0.1 * np.std(
        Y
    )  # others may have local minima
    assert near.sum() >= 5
    again = model.transform(fields[near], projection=60)
    size = np.linalg.norm(fields[near] * norm_of(name), axis=1)
    assert (misfits(name, again, fields[near]) <= 1e-10 * size).all()
    if "bound" not in name and name != "nonnegative":  # where a bound holds, other latents may have the same field
        np.testing.assert_allclose(again, Y[near], rtol=0, atol=1e-7 * np.abs(Y).max())


@pytest.mark.parametrize("name", ["kernel", "features", "weighted", "polynomials", "search"])
def test_the_misfit_ends_orthogonal_to_the_manifold_in_the_models_norm(name):
    model = fitted(name)
    Y = model.transform(NEW, projection=60)
    E = (NEW - model.inverse_transform(Y)) * norm_of(name)
    J = model.jacobian(Y) * norm_of(name)[:, None]
    cosines = np.einsum("nmd,nm->nd", J, E) / np.linalg.norm(J, axis=1)
    assert np.abs(cosines).max() <= 1e-5 * np.linalg.norm(NEW * norm_of(name), axis=1).max()


@pytest.mark.parametrize("name", IN_C)
def test_an_image_has_the_bits_of_the_decoder_and_a_row_those_it_has_alone(name, tmp_path):
    model = fitted(name)
    linear = (model.encoder_ if model.decoder_ is None else model.decoder_).linear_map
    frozen = model.freeze()
    weights = WEIGHTS if "weighted" in name else None
    Y = np.asarray(model.transform(NEW))
    moved = linear.nearest(NEW, Y, 5, weights)
    assert (frozen.linear_map.nearest(NEW, Y, 5, weights) == moved).all()
    assert (np.vstack([linear.nearest(f[None], y[None], 5, weights) for f, y in zip(NEW, Y)]) == moved).all()
    randsmap.set_num_threads(3)
    assert (linear.nearest(NEW, Y, 5, weights) == moved).all()
    randsmap.set_num_threads(None)
    assert (model.transform(NEW, projection=5) == moved).all()
    scale = np.abs(Y).max()
    np.testing.assert_allclose(frozen.transform(NEW, projection=5), moved, rtol=0, atol=1e-5 * scale)
    error = misfits(name, frozen.transform(NEW, projection=5), NEW)
    np.testing.assert_allclose(error, misfits(name, moved, NEW), rtol=1e-5, atol=1e-12)
    # Python's steps are the same, of which round-off makes others where they are hardly determined
    plain = nearest_latents(linear.fields, linear.jacobian, NEW, Y, 5, weights)
    np.testing.assert_allclose(misfits(name, plain, NEW), misfits(name, moved, NEW), rtol=1e-5, atol=1e-12)


def test_the_number_of_steps_is_in_model_files_and_images(tmp_path):
    model = ManifoldModel(*IN_C["kernel"], projection=3)
    latents = model.fit_transform(F)
    np.testing.assert_allclose(latents, model.transform(F), rtol=0, atol=1e-7)
    assert (latents != model.transform(F, projection=0)).any()
    assert (model.reconstruct(NEW) == model.inverse_transform(model.transform(NEW, projection=3))).all()
    model.save(tmp_path / "model.npz")
    loaded = randsmap.load(tmp_path / "model.npz")
    assert loaded.projection == 3 and (loaded.transform(NEW) == model.transform(NEW)).all()
    frozen = model.freeze()
    assert (frozen.transform(NEW) == frozen.transform(NEW, projection=3)).all()
    assert (frozen.transform(NEW) != frozen.transform(NEW, projection=0)).any()
    np.testing.assert_allclose(frozen.transform(NEW), model.transform(NEW), rtol=0, atol=1e-5)
    frozen.save(tmp_path / "model.rsm")
    assert (FrozenModel.load(tmp_path / "model.rsm").transform(NEW) == frozen.transform(NEW)).all()
    # an image that was written before there was this number
    encoder = model.encoder_.frozen_encoder("float64", None)
    linear = model.decoder_.linear_map
    arrays = map_arrays(linear.basis, linear.coefficients, linear.invariants, encoder=encoder)
    arrays["parameters"] = arrays["parameters"][:-1]
    earlier = FrozenModel(assembled(arrays))
    assert (earlier.transform(NEW) == frozen.transform(NEW, projection=0)).all()
    for wrong in (-1, kernel.MOST_STEPS + 1):
        arrays["parameters"] = np.append(arrays["parameters"][:9], wrong)
        with pytest.raises(ValueError, match="no image"):
            FrozenModel(assembled(arrays))


def test_units_change_nothing():
    rng = np.random.default_rng(0)
    for options in ({}, {"degree": 1}):
        for unit in (2.0**-60, 2.0**80):
            Y = rng.normal(size=(40, 2))
            fields = np.cos(Y @ rng.normal(size=(2, 9)))
            plain = KernelDecoder(**options).fit(Y, fields).linear_map
            other = KernelDecoder(**options).fit(Y * [unit, 1 / unit], fields * unit).linear_map
            start, wanted = Y + 0.1, fields + 0.01 * rng.normal(size=fields.shape)
            moved = plain.nearest(wanted, start, 4, None)
            again = other.nearest(wanted * unit, start * [unit, 1 / unit], 4, None)
            np.testing.assert_allclose(again / [unit, 1 / unit], moved, rtol=1e-9)


def test_fields_with_values_of_their_own():
    fields = F * np.random.default_rng(0).uniform(1, 2, (90, 1))
    new = NEW * np.random.default_rng(1).uniform(1, 2, (40, 1))
    options = {"invariants": "mass", "invariant_tol": 1.0}
    for decoder in (KernelDecoder(**options), RANDSMAPDecoder(PolynomialFeatures(2), **options)):
        model = ManifoldModel(POD(2), decoder).fit(fields)

        def missed(Y, model=model):
            return np.linalg.norm(model.inverse_transform(Y, **own_values(model, new)) - new, axis=1)

        before, after = missed(model.transform(new)), missed(model.transform(new, projection=5))
        assert (after <= before * (1 + 1e-12)).all() and (after < 0.999 * before).any()
    frozen = ManifoldModel(POD(2), KernelDecoder(**options), projection=5).fit(fields).freeze()
    assert np.isfinite(frozen.transform(new)).all()


def test_hostile_fields_and_latents():
    model = fitted("kernel")
    fields = NEW.copy()
    fields[3, 5] = np.nan
    with pytest.raises(ValueError, match="finite|NaN"):
        model.transform(fields, projection=2)
    with pytest.raises(ValueError, match="finite|NaN"):
        model.freeze().transform(fields, projection=2)
    assert model.transform(np.empty((0, M)), projection=2).shape == (0, 2)
    assert model.freeze().transform(np.empty((0, M)), projection=2).shape == (0, 2)
    for wrong in (-1, 1.5, True, "auto", 10**9):
        for each in (model, model.freeze()):
            with pytest.raises((TypeError, ValueError), match="projection"):
                each.transform(NEW, projection=wrong)
        with pytest.raises((TypeError, ValueError), match="projection"):
            ManifoldModel(POD(2), projection=wrong).fit(F)
    # latents at which no field can be decoded stay what they are, and others are not held up by them
    Y, near = random_problem(30, M, 2, seed=3)
    far = KernelDecoder("thin-plate", degree=1, invariants=None).fit(Y, 1e120 * near)
    blend = BlendedDecoder([far, KernelDecoder(invariants=None)], invariants=None).fit(Y, 1e120 * near)
    start = Y[:12] + 0.01
    start[4] = 1e139
    for decoder in (far, blend):
        moved = decoder.linear_map.nearest(1e120 * near[:12], start, 5, None)
        assert (moved[4] == 1e139).all() and np.isfinite(moved).all()
        rest = np.delete(np.arange(12), 4)
        alone = decoder.linear_map.nearest(1e120 * near[rest], start[rest], 5, None)
        np.testing.assert_allclose(moved[rest], alone, rtol=1e-7)
        assert (moved[rest] != start[rest]).any(axis=1).all()


@pytest.mark.parametrize("cells, d", [(1, 1), (1, 3), (2, 3), (3, 2)])
def test_few_cells_and_more_latents_than_cells(cells, d):
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(60, d))
    fields = np.cos(Y @ rng.normal(size=(d, cells)))
    decoder = KernelDecoder(invariants=None).fit(Y, fields)
    wanted = decoder.predict(Y[:20] + 0.02)
    for linear in (decoder.linear_map, LinearMap.of(decoder.freeze().linear_map.kernel.source)):
        moved = linear.nearest(wanted, Y[:20].copy(), 30, None)
        assert np.quantile(np.abs(linear.fields(moved) - wanted).max(axis=1), 0.9) <= 1e-9
        plain = nearest_latents(linear.fields, linear.jacobian, wanted, Y[:20].copy(), 30, None)
        assert np.quantile(np.abs(linear.fields(plain) - wanted).max(axis=1), 0.9) <= 1e-9
    # a field that depends on one of two latents alone, and one that depends on none
    one = KernelDecoder(invariants=None).fit(np.column_stack([Y[:, 0], np.zeros(60)]), fields)
    moved = one.linear_map.nearest(fields[:5], np.column_stack([Y[:5, 0] + 0.1, np.ones(5)]), 5, None)
    assert np.isfinite(moved).all()
    flat = KernelDecoder(invariants=None).fit(Y, np.ones((60, cells)))
    assert (flat.linear_map.nearest(fields[:5], Y[:5], 5, None) == Y[:5]).all()


def test_decoders_without_derivatives_are_named():
    for decoder, reason in (
        (LinearRegression(), "LinearRegression"),
        (ConservativeRegressor(LinearRegression()), "LinearRegression is not known"),
    ):
        model = ManifoldModel(PCA(2), decoder).fit(F)
        with pytest.raises(
            TypeError, match=f"projection=2 needs the derivatives of a {type(decoder).__name__}.*{reason}"
        ):
            model.transform(NEW, projection=2)


def test_fields_of_a_shape_and_labels_and_files(tmp_path):
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    model = ManifoldModel(*IN_C["kernel"], projection=2).fit(F)
    latents = model.transform(NEW)
    frame = ManifoldModel(*IN_C["kernel"], projection=2).fit(pandas.DataFrame(F).rename(columns=str))
    assert (frame.transform(pandas.DataFrame(NEW).rename(columns=str)) == latents).all()
    named = frame.set_output(transform="pandas").transform(pandas.DataFrame(NEW).rename(columns=str))
    assert list(named.columns) == ["diffusionmaps0", "diffusionmaps1"] and (named.to_numpy() == latents).all()
    cube = xarray.DataArray(F[:, :36].reshape(-1, 6, 6), dims=["t", "y", "x"])
    shaped = ManifoldModel(DiffusionMaps(2), KernelDecoder(invariants=None), projection=2).fit(cube)
    assert shaped.transform(cube[:5]).shape == (5, 2) and shaped.reconstruct(cube[:5]).shape == (5, 6, 6)
    assert (shaped.freeze().transform(cube[:5]) == shaped.freeze().transform(cube[:5].to_numpy())).all()
    np.save(tmp_path / "fields.npy", NEW)
    assert (model.transform(np.load(tmp_path / "fields.npy", mmap_mode="r")) == latents).all()
    shift = randsmap.ShiftRegistration(ManifoldModel(POD(2), KernelDecoder(), projection=2)).fit(F)
    assert np.isfinite(shift.transform(NEW)).all()
    times = np.linspace(0, 1, 90)
    assert randsmap.ParametricModel(model, KernelDecoder()).fit(times, F).predict([0.5]).shape == (1, M)


@pytest.mark.slow
def test_autotune_decides_by_held_out_errors():
    data = randsmap.datasets.make_swiss_roll(150, random_state=0).data
    result = randsmap.autotune(data, model=ManifoldModel(DiffusionMaps(2)), n_trials=2, projection="auto")
    assert result.best_model_.projection == 5
    plane = np.random.default_rng(0).normal(size=(40, 2)) @ np.random.default_rng(1).normal(size=(2, 9))
    options = {"model": ManifoldModel(POD(2)), "n_trials": 2}
    both = randsmap.autotune(plane, **options, projection="auto", consistency="auto").best_model_
    assert (both.projection, both.consistency) == (0, 0)
    assert randsmap.autotune(plane, **options, projection=2).best_model_.projection == 2
    for wrong in (-1, "most", 1.5):
        with pytest.raises((ValueError, TypeError), match="projection"):
            randsmap.autotune(plane, projection=wrong)
