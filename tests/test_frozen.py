"""Frozen decoders: what they decode, what they promise of invariants and bounds, and what becomes of images that are
damaged or forged (tests/c/test_image.c goes further, under the sanitizers)."""

import concurrent.futures
import math
import pickle
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sklearn.base
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap import (
    POD,
    BlendedDecoder,
    ConservativeRegressor,
    DiffusionMaps,
    DoubleDiffusionMapsDecoder,
    FourierFeatures,
    FrozenDecoder,
    FrozenModel,
    Isomap,
    KernelDecoder,
    KNNDecoder,
    ManifoldModel,
    MaternFeatures,
    MonomialFeatures,
    MultiscaleFourierFeatures,
    ParametricModel,
    QuantileRegistration,
    RANDSMAPDecoder,
    RFNNDecoder,
    ShiftRegistration,
)
from randsmap._kernels import linear_map as kernel
from randsmap.decoders import library_path
from randsmap.maps.frozen import assembled
from randsmap.maps.linear_map import LinearMap

from helpers import random_problem

pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore::randsmap.ExtrapolationWarning")]

M = 37
rng = np.random.default_rng(0)
WEIGHTS = 10.0 ** rng.uniform(-1, 1, M)
C = np.column_stack([np.ones(M), np.linspace(0, 1, M), 2 * np.ones(M)])  # the last depends on the first
MASS = {"invariants": "mass"}
DECODERS = {
    "sigmoid": RANDSMAPDecoder(random_state=0),
    "fourier": RANDSMAPDecoder(FourierFeatures(0.5), random_state=0, cell_weights=WEIGHTS),
    "fourier-paired": RANDSMAPDecoder(FourierFeatures(0.5, paired=True, orthogonal=True), random_state=0),
    "multi-scale": RANDSMAPDecoder(MultiscaleFourierFeatures(3.0), random_state=0, center=False, latent_scale=None),
    "matern-features": RFNNDecoder(MaternFeatures(0.7), random_state=0),
    "training": RANDSMAPDecoder(random_state=0, constraint="training"),
    "several": RANDSMAPDecoder(random_state=0, invariants=C, invariant_tol=2.0, invariant_values=[1.0, 0.5, 2.0]),
    "nonnegative": RANDSMAPDecoder(FourierFeatures(0.5), random_state=0, bounds="nonnegative"),
    "clipped": KernelDecoder(bounds=(0.01, 0.05), invariants=None),
    "weighted-bounds": KernelDecoder(**MASS, bounds=(0.0, 0.2), cell_weights=WEIGHTS),
    "gaussian": KernelDecoder(length_scale=[0.5, 0.8], **MASS),
    "gaussian-tail": KernelDecoder(degree=1, **MASS),
    "multi-gaussian": KernelDecoder("multi-gaussian", max_frequency=5.0, **MASS),
    "matern-1/2": KernelDecoder("matern", nu=0.5, **MASS),
    "matern-5/2": KernelDecoder("matern", nu=2.5, degree=1, latent_scale=None, **MASS),
    "thin-plate": KernelDecoder("thin-plate", degree=1, **MASS),
    "output-rank": RANDSMAPDecoder(random_state=0, output_rank=1e-6, cell_weights=WEIGHTS),
    "output-rank-bounds": RANDSMAPDecoder(FourierFeatures(0.5), random_state=0, output_rank=8, bounds="nonnegative"),
    "ddm-expanded": DoubleDiffusionMapsDecoder(**MASS),
    "ddm-harmonics": DoubleDiffusionMapsDecoder(rank=8, **MASS),
    "ddm-many-harmonics": DoubleDiffusionMapsDecoder(rank=21, center=False, **MASS),
    "monomials": RANDSMAPDecoder(MonomialFeatures(3), latent_scale="std"),
    "k-nn": KNNDecoder(4, latent_scale="std"),
    "blend": BlendedDecoder([KernelDecoder(), RFNNDecoder(random_state=0), KernelDecoder("matern")], **MASS),
    "blend-limited": BlendedDecoder(
        [KernelDecoder(), KNNDecoder(3), BlendedDecoder([KernelDecoder(degree=1)]), RFNNDecoder(random_state=1)],
        limit=0.02,
        bounds="nonnegative",
        **MASS,
    ),
}


def fitted(name, d=2, n=70):
    Y, F = random_problem(n, M, d, seed=3, constant={4: 0.02})
    if DECODERS[name].get_params().get("cell_weights") is not None:  # their mass is the same
        free = np.arange(M) != 4
        F[:, free] *= (1 - 0.02 * WEIGHTS[4]) / (F[:, free] @ WEIGHTS[free])[:, None]
    if name == "clipped":
        F = np.clip(F, 0.01, 0.05)
    return DECODERS[name].fit(Y, F), Y


def points(Y):
    """Training points, points between them, beyond them and far away."""
    d = Y.shape[1]
    return np.vstack([Y[:4], rng.uniform(size=(10, d)), rng.uniform(-1, 2, (10, d)), rng.normal(size=(2, d)) * 100])


def largest(X):
    return np.abs(X).max()


BY_NAME = pytest.mark.parametrize("name", DECODERS)


@BY_NAME
@pytest.mark.parametrize("d", [2, 3, 19])
def test_fields_are_those_of_predict_one_row_at_a_time(name, d):
    if name == "gaussian" and d != 2:
        pytest.skip("two length scales")
    decoder, Y = fitted(name, d)
    frozen = decoder.freeze()
    X = points(Y)
    expected = np.vstack([decoder.predict(x[None]) for x in X])
    F = frozen.predict(X)
    assert (F == expected).all()  # the same code
    assert (F[:12] == decoder.predict(X[:12])).all()
    # a row does not depend on the others, whatever their number
    assert (F == np.vstack([frozen.predict(x[None]) for x in X])).all()
    out = np.empty_like(F)
    assert frozen.predict(X, out=out) is out and (out == F).all()
    assert frozen.predict(X.tolist()).tobytes() == F.tobytes()
    assert frozen.predict(np.empty((0, d))).shape == (0, M)


@BY_NAME
def test_invariants_constants_and_bounds_hold_everywhere(name):
    decoder, Y = fitted(name)
    frozen, X = decoder.freeze(), points(Y)
    F = frozen.predict(X)
    invariants = getattr(decoder, "invariants_", None)
    if invariants is None or name == "training":
        assert frozen.n_invariants == 0
        return
    constant = invariants.constant
    assert (F[:, constant] == invariants.constant_values).all()
    matrix = invariants.matrix
    assert frozen.n_invariants == matrix.shape[1]
    size = np.abs(F) @ np.abs(matrix) + np.abs(invariants.values)
    assert (np.abs(F @ matrix - invariants.values) <= 1e-14 * size * np.sqrt(M)).all()
    if invariants.lower is not None:
        assert (invariants.lower <= F).all() and (F <= invariants.upper).all()
    J = frozen.jacobian(X[:-2])
    assert (J[:, constant] == 0).all()
    defect = np.einsum("mq,nmd->nqd", matrix, J)
    assert (np.abs(defect) <= 1e-13 * np.einsum("mq,nmd->nqd", np.abs(matrix), np.abs(J)) + 1e-300).all()


@pytest.mark.parametrize("name", ["sigmoid", "nonnegative", "several"])
def test_cells_are_those_of_whole_fields(name):
    decoder, Y = fitted(name)
    frozen, X, cells = decoder.freeze(), points(Y), [7, 4, -1, 7]
    V, U = rng.normal(size=X.shape), rng.normal(size=(len(X), len(cells)))
    out = np.empty((len(X), len(cells)))
    assert frozen.predict(X, cells=cells, out=out) is out
    np.testing.assert_array_equal(out, frozen.predict(X)[:, cells])
    np.testing.assert_array_equal(frozen.jacobian(X, cells=cells), frozen.jacobian(X)[:, cells])
    np.testing.assert_array_equal(frozen.jvp(X, V, cells=cells), frozen.jvp(X, V)[:, cells])
    whole = np.zeros((len(X), M))
    np.add.at(whole.T, cells, U.T)
    np.testing.assert_array_equal(frozen.vjp(X, U, cells=cells), frozen.vjp(X, whole))
    with pytest.raises(ValueError, match="out of range"):
        frozen.predict(X, cells=[M])


@BY_NAME
def test_derivatives_are_those_of_the_decoder(name):
    decoder, Y = fitted(name)
    frozen = decoder.freeze()
    X = np.vstack([rng.uniform(size=(10, 2)), rng.uniform(-1, 2, (5, 2))])
    V, U = rng.normal(size=X.shape), rng.normal(size=(len(X), M))
    # sums are taken in another order, of terms as large as the coefficients
    loss = 1e-13 * max(10, largest(decoder.linear_map.A))
    for ours, theirs in (
        (frozen.jacobian(X), decoder.jacobian(X)),
        (frozen.jvp(X, V), decoder.jvp(X, V)),
        (frozen.jvp(X, V[0]), decoder.jvp(X, V[0])),
        (frozen.vjp(X, U), decoder.vjp(X, U)),
        (frozen.vjp(X, U[0]), decoder.vjp(X, U[0])),
    ):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=loss * max(largest(theirs), 1e-3))
    # the two products agree: u . (J v) = (J^T u) . v
    np.testing.assert_allclose(
        np.sum(frozen.jvp(X, V) * U, axis=1), np.sum(frozen.vjp(X, U) * V, axis=1), rtol=1e-9, atol=M * loss
    )


@pytest.mark.parametrize("name", ["sigmoid", "weighted-bounds", "gaussian-tail", "several"])
def test_values_of_the_invariants_for_each_row(name):
    decoder, Y = fitted(name)
    frozen, X = decoder.freeze(), points(Y)[:-2]
    values = rng.uniform(0.5, 1.5, len(X))
    if name == "several":
        values = np.column_stack([values, values / 2, 2 * values])
        with pytest.raises(ValueError, match="row 3 of X: .* dependent invariants are contradictory"):
            frozen.predict(X, invariant_values=np.where(np.arange(len(X))[:, None] == 3, [1.0, 1.0, 3.0], values))
    expected = decoder.predict(X, invariant_values=values)
    np.testing.assert_allclose(
        frozen.predict(X, invariant_values=values), expected, rtol=0, atol=1e-10 * largest(expected)
    )
    one = values[0]
    np.testing.assert_allclose(
        frozen.predict(X, invariant_values=one), decoder.predict(X, invariant_values=one), rtol=0, atol=1e-10
    )
    with pytest.raises(ValueError, match="invariant_values must have shape"):
        frozen.predict(X, invariant_values=np.ones(len(X) + 1))
    if name == "weighted-bounds":
        with pytest.raises(ValueError, match="row 0 of X: no field is found"):
            frozen.predict(X, invariant_values=1e6)


def test_values_need_invariants():
    frozen = fitted("matern-features")[0].freeze()
    with pytest.raises(ValueError, match="does not project"):
        frozen.predict([[0.0, 0.0]], invariant_values=1.0)


@pytest.mark.parametrize("bounds", [None, "nonnegative"])
def test_pod(bounds):
    _, F = random_problem(40, M, 2, constant={4: 0.02})
    pod = POD(5, **MASS, bounds=bounds).fit(F)
    frozen, X = pod.freeze(), 2 * pod.transform(F)
    np.testing.assert_allclose(frozen.predict(X), pod.inverse_transform(X), rtol=0, atol=1e-15)
    V, U = rng.normal(size=X.shape), rng.normal(size=F.shape)
    np.testing.assert_allclose(frozen.jvp(X, V), pod.inverse_jvp(X, V), rtol=0, atol=1e-13)
    np.testing.assert_allclose(frozen.vjp(X, U), pod.inverse_vjp(X, U), rtol=0, atol=1e-13)
    np.testing.assert_allclose(frozen.jacobian(X), pod.inverse_jacobian(X), rtol=0, atol=1e-13)


def test_any_regressor_that_c_knows_freezes_with_the_invariants_of_another():
    Y, F = random_problem(70, M, 2, seed=3, constant={4: 0.02})
    decoder = ConservativeRegressor(RFNNDecoder(MonomialFeatures(2)), bounds="nonnegative").fit(Y, F)
    frozen, X = decoder.freeze(), points(Y)
    assert (frozen.predict(X) == np.vstack([decoder.predict(x[None]) for x in X])).all()
    assert np.abs(frozen.predict(X).sum(axis=1) - 1).max() < 1e-13 and frozen.predict(X).min() >= 0


@pytest.mark.parametrize("decoder", [None, DECODERS["blend-limited"], DECODERS["several"]])
def test_parameters_to_fields(decoder):
    """The regressor, then the model, as one image: the bits of predict, and derivatives by the chain rule."""
    Y, F = random_problem(70, M, 2, seed=3, constant={4: 0.02})
    parameters = np.column_stack([Y, np.linspace(-1, 1, 70)])
    regressor = BlendedDecoder([KernelDecoder(), RFNNDecoder(random_state=0), KNNDecoder(4)], limit=0.1)
    model = ParametricModel(ManifoldModel(POD(2, **MASS), decoder), regressor).fit(parameters, F)
    frozen, X = model.freeze(), np.vstack([parameters[:3], rng.uniform(-1, 1, (20, 3))])
    assert (frozen.n_components, frozen.n_cells) == (3, M)
    expected = np.vstack([model.predict(x[None]) for x in X])
    assert (frozen.predict(X) == expected).all()
    J, inner = frozen.jacobian(X), model.regressor_.jacobian(X)
    outer = model.model_.jacobian(model.latents(X))
    np.testing.assert_allclose(J, outer @ inner, rtol=0, atol=1e-10 * largest(J))
    V, U = rng.normal(size=X.shape), rng.normal(size=expected.shape)
    np.testing.assert_allclose(frozen.jvp(X, V), np.einsum("nmd,nd->nm", J, V), rtol=0, atol=1e-11 * largest(J))
    np.testing.assert_allclose(frozen.vjp(X, U), np.einsum("nmd,nm->nd", J, U), rtol=0, atol=1e-10 * largest(J))
    with pytest.raises(ValueError, match="row 1 of X|finite|magnitude"):
        frozen.predict([[0, 0, 0], [1e200, 0, 0], [0, 0, 0]])
    near = frozen.linear_map.nearest(expected, X + 1e-3, 4, None)  # in parameters, whatever the input decodes them to
    misfit = np.linalg.norm(frozen.predict(near) - expected, axis=1)
    assert (misfit <= np.linalg.norm(frozen.predict(X + 1e-3) - expected, axis=1)).all() and misfit.min() < 1e-9


def test_what_c_does_not_know_is_distilled():
    Y, F = random_problem(200, M, 2, seed=3)
    foreign = ConservativeRegressor(Ridge()).fit(Y, F)
    with pytest.raises(TypeError, match="distil"):
        foreign.freeze()
    with pytest.raises(ValueError, match="latents="):
        foreign.freeze(distil=KernelDecoder())
    frozen = foreign.freeze(distil=KernelDecoder("thin-plate", degree=1, **MASS), latents=Y)
    assert frozen.distilled_error_ < 1e-8  # it is linear
    assert np.abs(frozen.predict(Y) - foreign.predict(Y)).max() < 1e-8
    blend = BlendedDecoder([Ridge(), RFNNDecoder(PCA(1))]).fit(Y, F)
    rough = blend.freeze(distil=KernelDecoder(length_scale=0.02, degree=0, regularization=1.0))
    errors = np.linalg.norm(rough.predict(Y) - blend.predict(Y), axis=1) / np.linalg.norm(blend.predict(Y), axis=1)
    assert 0.2 * rough.distilled_error_ < errors.mean() < 5 * rough.distilled_error_
    assert FrozenDecoder(bytes(rough.linear_map.kernel.source)).distilled_error_ == rough.distilled_error_
    assert fitted("sigmoid")[0].freeze().distilled_error_ == 0
    model = ManifoldModel(POD(2), Ridge()).fit(F)
    latents = model.transform(F)
    frozen = model.freeze(distil=RFNNDecoder(MonomialFeatures(1)), latents=latents)
    assert np.abs(frozen.inverse_transform(latents) - model.inverse_transform(latents)).max() < 1e-3
    assert np.abs(frozen.transform(F) - latents).max() < 1e-12


def test_what_is_distilled_for_a_model_has_its_norm_its_shape_and_its_error():
    _, F = random_problem(60, M, 2, seed=3)
    fitted_model = ManifoldModel(POD(2, cell_weights=WEIGHTS), Ridge()).fit(F * (1 / (F @ WEIGHTS))[:, None])
    latents = fitted_model.encoder_.transform(F)
    frozen = fitted_model.freeze(distil=KernelDecoder(**MASS), latents=latents)
    masses = frozen.predict(latents) @ WEIGHTS
    assert np.abs(masses - masses[0]).max() < 1e-12 * abs(masses[0])
    shaped = ManifoldModel(POD(2, invariants=None), Ridge()).fit(F[:, :36].reshape(-1, 4, 9))
    latents = shaped.transform(F[:, :36].reshape(-1, 4, 9))
    frozen = shaped.freeze(distil=RFNNDecoder(MonomialFeatures(1)), latents=latents)
    assert frozen.inverse_transform(latents).shape == (60, 4, 9)
    Y = np.random.default_rng(0).uniform(size=(60, 2))
    decoder = KernelDecoder(length_scale=0.3).fit(Y, F)
    rough = decoder.freeze(distil=RFNNDecoder(MonomialFeatures(1)), error_bar=True)
    errors = np.hypot(decoder.error_bar_.errors, rough.distilled_error_)
    np.testing.assert_allclose(rough.error_bar_.errors, errors)
    with pytest.raises(ValueError, match="needs latents=: at least 8"):
        decoder.freeze(distil=KernelDecoder(), latents=Y[:7])


def test_steps_of_consistency_are_not_frozen():
    fitted_model = ManifoldModel(POD(1), KernelDecoder(), consistency=2).fit(random_problem(30, M)[1])
    with pytest.raises(TypeError, match=r"consistency=2 cannot be frozen: .* set_params\(consistency=0\)"):
        fitted_model.freeze()
    assert fitted_model.set_params(consistency=0).freeze().n_components == 1


def test_mixtures_keep_the_mass_in_every_precision():
    decoder, Y = fitted("k-nn")
    assert (decoder.freeze(precision="float32").predict(Y) == decoder.freeze().predict(Y)).all()


def test_derivatives_of_blends_whose_parts_no_cache_holds():
    """BLAS reads their coefficients, and the field of a part lies elsewhere than its derivatives."""
    Y, F = random_problem(50, 70, 4, seed=3)
    blend = BlendedDecoder([RFNNDecoder(random_state=seed) for seed in range(2)]).fit(Y, F)
    basis, X = blend.linear_map.basis, Y[:1] + 0.01
    parts = []
    for part in basis.parts:
        P, r = part.A.shape
        times = (1 << 21) // ((P - 1) * r) + 2
        arrays = {name: np.concatenate([a] * times, axis=-1) for name, a in part.basis.arrays.items()}
        A = np.vstack([part.A[:1], np.tile(part.A[1:] / times, (times, 1))])
        parts.append(LinearMap(replace(part.basis, arrays=arrays), A, part.invariants))
    many = LinearMap(replace(basis, parts=tuple(parts)), blend.linear_map.A, blend.linear_map.invariants)
    expected = blend.linear_map.jacobian(X)
    np.testing.assert_allclose(many.jacobian(X), expected, rtol=0, atol=1e-9 * largest(expected))


def test_one_dimensional_fields():
    Y = np.linspace(0, 1, 30)[:, None]
    decoder = RFNNDecoder(random_state=0).fit(Y, np.sin(3 * Y[:, 0]))
    frozen = decoder.freeze()
    for again in (frozen, pickle.loads(pickle.dumps(frozen))):
        np.testing.assert_allclose(again.predict(Y), decoder.predict(Y), rtol=0, atol=1e-13)
        np.testing.assert_allclose(again.predict(Y[:1]), decoder.predict(Y[:1]), rtol=0, atol=1e-13)
        np.testing.assert_allclose(again.jacobian(Y), decoder.jacobian(Y), rtol=0, atol=1e-12)
        np.testing.assert_allclose(again.jvp(Y, [1.0]), decoder.jvp(Y, [1.0]), rtol=0, atol=1e-12)
        np.testing.assert_allclose(again.vjp(Y, np.ones(30)), decoder.vjp(Y, np.ones(30)), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_mass_of_a_million_cells():
    rows = 1_000_000
    Y = rng.uniform(size=(30, 1))
    F = 1 + 0.3 * np.sin(6 * Y + np.linspace(0, 9, rows))
    F *= 1000 / F.sum(axis=1, keepdims=True)
    frozen = RANDSMAPDecoder(FourierFeatures(0.5, n_features=20), random_state=0).fit(Y, F).freeze()
    X = np.array([[0.4], [7.0]])
    J = frozen.jacobian(X)[..., 0]
    exact = [abs(math.fsum(j)) for j in J]
    assert (exact <= 1e-13 * np.abs(J).sum(axis=1)).all()
    assert abs(math.fsum(frozen.predict(X[1:])[0]) - 1000) <= 1e-14 * 1000


# -- Fewer or shorter numbers, tables --------------------------------------------------------------
SMOOTH = RANDSMAPDecoder(FourierFeatures(0.5, n_features=300), random_state=0)


def relative(F, exact):
    return (np.linalg.norm(F - exact, axis=1) / np.linalg.norm(exact, axis=1)).max()


@pytest.fixture(scope="module")
def smooth():
    Y, F = random_problem(120, 90, 2, seed=5, constant={4: 0.0})
    inside = Y.min(axis=0) + rng.uniform(size=(400, 2)) * np.ptp(Y, axis=0)
    return SMOOTH.fit(Y, F), inside


@pytest.mark.parametrize(
    "options, promised, smaller",
    [
        ({"precision": "float32"}, 5e-6, 0.7),
        ({"tol": 1e-4}, 1e-4, 0.5),
        ({"tol": 1e-9}, 1e-9, 1.1),
        ({"tol": 1e-15}, 1e-13, 1.1),
        ({"precision": "float32", "tol": 1e-4}, 1.05e-4, 0.35),
        ({"kind": "table"}, 1e-7, None),
        ({"kind": "table", "tol": 1e-4}, 1e-4, None),
        ({"kind": "table", "precision": "float32"}, 5e-6, None),
    ],
    ids=str,
)
def test_reduced_decoders_keep_their_tolerance_and_the_invariants(smooth, options, promised, smaller):
    decoder, X = smooth
    frozen, whole = decoder.freeze(**options), decoder.freeze()
    exact = decoder.predict(X)
    assert relative(frozen.predict(X), exact) <= promised
    assert frozen.precision == options.get("precision", "float64")
    assert frozen.kind == options.get("kind", "features")
    if smaller:
        assert frozen.nbytes < smaller * whole.nbytes
    everywhere = np.vstack([X, rng.uniform(-1, 2, (20, 2)), rng.normal(size=(5, 2)) * 100])
    F = frozen.predict(everywhere)
    assert np.abs(F.sum(axis=1) - 1).max() <= 1e-14 * np.abs(F).sum(axis=1).max()
    assert (F[:, 4] == 0).all()
    V, U = rng.normal(size=X.shape), rng.normal(size=exact.shape)
    loss = 3e3 * promised if frozen.kind == "table" else 30 * promised  # a derivative of the error: 1 / cell width
    assert relative(frozen.jvp(X, V), decoder.jvp(X, V)) <= loss
    J = frozen.jacobian(X)
    assert (np.abs(J.sum(axis=1)) <= 1e-13 * np.abs(J).sum(axis=1)).all()
    np.testing.assert_allclose(np.einsum("nmd,nd->nm", J, V), frozen.jvp(X, V), rtol=0, atol=1e-12 * largest(J))
    np.testing.assert_allclose(np.einsum("nmd,nm->nd", J, U), frozen.vjp(X, U), rtol=0, atol=1e-9 * largest(J))
    assert (pickle.loads(pickle.dumps(frozen)).predict(X) == frozen.predict(X)).all()


@pytest.mark.parametrize(
    "options, promised, smaller",
    [
        ({}, 1e-13, 1),
        ({"precision": "float32"}, 5e-6, 0.7),
        ({"tol": 1e-3}, 1e-3, 0.9),
        ({"tol": 1e-15}, 1e-13, 1.01),
        ({"precision": "float32", "tol": 1e-3}, 1.005e-3, 0.6),
        ({"kind": "table"}, 1e-7, None),
    ],
    ids=str,
)
def test_coefficients_that_are_factors_already_stay_factors(smooth, options, promised, smaller):
    full, X = smooth
    Y, F = random_problem(120, 90, 2, seed=5, constant={4: 0.0})
    decoder = sklearn.base.clone(full).set_params(output_rank=1e-8).fit(Y, F)
    (P, r), frozen = decoder.output_coef_[1:].shape, decoder.freeze(**options)
    assert relative(frozen.predict(X), decoder.predict(X)) <= promised
    if smaller:  # of the numbers of U and B, and what goes with every image
        assert frozen.nbytes <= smaller * 8 * r * (P + 90) + 8 * (3 * P + 9 * 90) + 4096
    everywhere = np.vstack([X, rng.normal(size=(5, 2)) * 100])
    G = frozen.predict(everywhere)
    assert np.abs(G.sum(axis=1) - 1).max() <= 1e-14 * np.abs(G).sum(axis=1).max()
    assert (G[:, 4] == 0).all()


def test_outside_its_box_a_table_is_the_decoder_itself(smooth):
    decoder, _ = smooth
    table, beyond = decoder.freeze(kind="table"), rng.uniform(1.2, 2, (20, 2))
    expected = np.vstack([decoder.predict(x[None]) for x in beyond])
    np.testing.assert_allclose(table.predict(beyond), expected, rtol=0, atol=1e-14)
    box = np.array([[0.2, 0.2], [0.4, 0.3]])
    small = decoder.freeze(kind="table", latents=box)
    assert small.nbytes < table.nbytes
    within = rng.uniform(box[0], box[1], (200, 2))
    assert relative(small.predict(within), decoder.predict(within)) <= 1e-7
    assert (small.predict(beyond) == table.predict(beyond)).all()


def test_a_table_in_one_coordinate_with_bounds():
    Y, F = random_problem(60, M, 1, seed=2, constant={4: 0.02})
    decoder = KernelDecoder(length_scale=0.5, **MASS, bounds="nonnegative").fit(Y, F)
    table = decoder.freeze(kind="table", tol=1e-8)
    X = np.linspace(Y.min(), Y.max(), 501)[:, None]
    assert relative(table.predict(X), decoder.predict(X)) <= 1e-8
    assert (table.predict(X) >= 0).all()
    # where cells meet their bounds, the derivative jumps
    wrong = np.abs(table.jvp(X, [1.0]) - decoder.jvp(X, [1.0])).max(axis=1) > 1e-4 * largest(decoder.jvp(X, [1.0]))
    assert wrong.mean() < 0.02


def test_tables_that_cannot_be():
    Y, F = random_problem(40, M, 3)
    decoder = RFNNDecoder(random_state=0).fit(Y, F)
    with pytest.raises(ValueError, match="at most 2 latent coordinates, got 3"):
        decoder.freeze(kind="table")
    Y, F = random_problem(40, M, 2)
    decoder = RFNNDecoder(FourierFeatures(0.02), random_state=0).fit(Y, F)
    with pytest.raises(ValueError, match="needs more than max_bytes=200000"):
        decoder.freeze(kind="table", max_bytes=200_000)
    with pytest.raises(ValueError, match="latents"):
        POD(2).fit(F).freeze(kind="table")
    with pytest.raises(ValueError, match="latents"):
        POD(2).fit(F).freeze(tol=1e-3)
    for tol in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="tol must be"):
            decoder.freeze(tol=tol)
    with pytest.raises(ValueError, match="latents must have 2 columns"):
        decoder.freeze(tol=1e-3, latents=[[1.0]])
    for kinked in (KNNDecoder(3), BlendedDecoder([KernelDecoder(), KNNDecoder(3)])):
        with pytest.raises(ValueError, match="is for smooth fields"):
            kinked.fit(Y, F).freeze(kind="table")


def test_shocks_keep_the_modes_they_need():
    # fronts that move: fifty modes would leave percents
    Y = np.linspace(0, 1, 150)[:, None]
    F = 0.5 * (1 - np.tanh((np.linspace(0, 1, 200) - Y) / 0.004))
    decoder = KernelDecoder("matern", nu=1.5, length_scale=0.3, regularization=1e-10).fit(Y, F)
    for tol in (1e-2, 1e-4):
        assert relative(decoder.freeze(tol=tol, latents=Y).predict(Y), decoder.predict(Y)) <= tol


def test_float32_where_coefficients_cancel():
    Y, F = random_problem(100, M, 2, seed=3)
    for decoder in (
        KernelDecoder(length_scale=2.0, regularization=1e-11, **MASS).fit(Y, F),
        DoubleDiffusionMapsDecoder(**MASS).fit(Y, F),
    ):
        exact = decoder.predict(Y)
        try:
            frozen = decoder.freeze(precision="float32")
        except ValueError as error:
            assert "the coefficients cancel" in str(error)
        else:
            assert relative(frozen.predict(Y), exact) <= 5e-6


def test_batches_tell_the_box():
    Y, F = random_problem(200, M, 2)
    decoder = RANDSMAPDecoder(FourierFeatures(0.5, n_features=40), latent_scale=None, random_state=0)
    for part in np.array_split(np.argsort(Y[:, 0]), 4):
        decoder.partial_fit(Y[part], F[part])
    table = decoder.freeze(kind="table")
    assert relative(table.predict(Y), decoder.predict(Y)) <= 1e-7


# -- Models ----------------------------------------------------------------------------------------
def model(encoder, decoder, n=90):
    steps = 2 if isinstance(decoder, BlendedDecoder) else 0
    return ManifoldModel(encoder, decoder, projection=steps).fit(random_problem(n, M, 2, seed=3, constant={4: 0.02})[1])


MODELS = {
    "diffusion maps": (DiffusionMaps(2), KernelDecoder(**MASS)),
    "diffusion maps, alpha = 0": (DiffusionMaps(2, alpha=0.0, select=[1, 3]), RANDSMAPDecoder(random_state=0)),
    "POD": (POD(3, **MASS), RFNNDecoder(random_state=0)),
    "POD alone": (POD(4, **MASS), None),
    "mixtures that the encoder chooses": (DiffusionMaps(2), KNNDecoder(4, objective="encoder")),
    "Isomap": (Isomap(2), KernelDecoder(**MASS)),
    "blend, projected": (POD(2, **MASS), BlendedDecoder([KernelDecoder(), KNNDecoder(3), KernelDecoder("matern")])),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_encode_and_decode(name, tmp_path):
    fitted_model = model(*MODELS[name])
    frozen = fitted_model.freeze()
    _, F = random_problem(20, M, 2, seed=9, constant={4: 0.02})
    F = np.vstack([F, 1e3 * F[:2], -50 * F[:2]])  # far away, too
    latents = fitted_model.transform(F)
    scale = np.abs(fitted_model.transform(F[:20])).max()
    np.testing.assert_allclose(frozen.transform(F[:20]), latents[:20], rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(frozen.transform(F[20:]), latents[20:], rtol=1e-10, atol=1e-10 * scale)
    assert (frozen.transform(F[:1]) == frozen.transform(F)[:1]).all()
    assert frozen.transform(np.empty((0, M))).shape == (0, frozen.n_components)
    expected = fitted_model.inverse_transform(latents[:20])
    np.testing.assert_allclose(frozen.inverse_transform(latents[:20]), expected, rtol=0, atol=1e-11)
    frozen.save(tmp_path / "model.rsm")
    for again in (
        FrozenModel.load(tmp_path / "model.rsm"),
        randsmap.load(tmp_path / "model.rsm"),
        pickle.loads(pickle.dumps(frozen)),
    ):
        assert isinstance(again, FrozenModel)
        assert (again.transform(F) == frozen.transform(F)).all()
    assert (FrozenDecoder.load(tmp_path / "model.rsm").predict(latents[:3]) == frozen.predict(latents[:3])).all()
    with pytest.raises(ValueError, match=f"{M} columns"):
        frozen.transform(F[:, 1:])
    with pytest.raises(ValueError, match="finite"):
        frozen.transform(np.full((1, M), np.nan))


def pulses(n, M, growing=False):
    """Pulses on a line, of one mass or of several."""
    parameters = np.random.default_rng(2).uniform([0.3, 0.08, 0.5], [0.7, 0.16, 2], (n, 3))
    F = np.exp(-((((np.arange(M) + 0.5) / M - parameters[:, :1]) / parameters[:, 1:2]) ** 2))
    F /= F.sum(axis=1, keepdims=True)
    return parameters, F * parameters[:, 2:] if growing else F


_X, _G = pulses(60, 24)
REGISTRATIONS = {
    "shift": (ShiftRegistration(ManifoldModel(POD(2), KernelDecoder(**MASS))), _G),
    "shift, blend, bounds": (
        ShiftRegistration(
            ManifoldModel(Isomap(2), BlendedDecoder([KernelDecoder(), KNNDecoder(3)], **MASS, bounds=(0, 0.35)))
        ),
        _G,
    ),
    "shift in a plane": (
        ShiftRegistration(ManifoldModel(DiffusionMaps(2), KernelDecoder(cell_weights=np.ones((24, 3)))), axis=0),
        _G[:, :, None] * [1.0, 2.0, 0.5],
    ),
    "values of their own": (
        ShiftRegistration(ManifoldModel(POD(2, invariants=None), KernelDecoder(**MASS, invariant_tol=1.0))),
        pulses(60, 24, True)[1],
    ),
    "quantiles": (QuantileRegistration(ManifoldModel(POD(3, invariants=None), RFNNDecoder(random_state=0))), _G),
    "masses": (
        QuantileRegistration(ManifoldModel(POD(3, invariants=None)), cell_weights=np.linspace(1, 2, 24), bounds=(0, 1)),
        pulses(60, 24, True)[1],
    ),
}


@pytest.mark.parametrize("name", REGISTRATIONS)
def test_registrations(name, tmp_path):
    """The bits of one row, encoding and derivatives, of what is shifted and of quantiles."""
    (estimator, F), rng = REGISTRATIONS[name], np.random.default_rng(0)  # the same points in whatever order tests run
    fitted_model = sklearn.base.clone(estimator).fit(F)
    frozen, X = fitted_model.freeze(), fitted_model.transform(F)
    assert (frozen.n_components, frozen.n_cells, frozen.field_shape_) == (X.shape[1], F[0].size, F[0].shape)
    np.testing.assert_allclose(frozen.transform(F), X, rtol=0, atol=1e-12 * largest(X))
    X = X + 0.1 * X.std(axis=0) * rng.normal(size=X.shape)
    values = {}
    if name == "values of their own":
        values = {"invariant_values": F.sum(axis=1) * 1.1}
        for method in (frozen.predict, frozen.jacobian):
            with pytest.raises(ValueError, match="invariant_values"):
                method(X[:2])
    elif name == "masses":
        given = {"invariant_values": 0.7}
        assert (frozen.predict(X[:5], **given) == fitted_model.inverse_transform(X[:5], **given)).all()
    rows = [slice(i, i + 1) for i in range(len(X))]
    decoded = [fitted_model.inverse_transform(X[i], **{k: v[i] for k, v in values.items()}) for i in rows]
    assert (frozen.predict(X, **values) == np.vstack(decoded)).all()
    frozen.save(tmp_path / "model.rsm")
    assert (FrozenModel.load(tmp_path / "model.rsm").predict(X, **values) == np.vstack(decoded)).all()
    expected = np.vstack(decoded).reshape(len(F), -1)[:, [3, 1]]
    assert (frozen.predict(X, cells=[3, 1], **values) == expected).all()
    if not values:
        J, V, U = fitted_model.jacobian(X), rng.normal(size=X.shape), rng.normal(size=F.shape)
        size = largest(J)
        np.testing.assert_allclose(frozen.jacobian(X), J, rtol=0, atol=1e-9 * size)
        expected = np.einsum("n...d,nd->n...", J, V)
        np.testing.assert_allclose(frozen.jvp(X, V), expected, rtol=0, atol=1e-9 * size)
        expected = np.einsum("nm,nmd->nd", U.reshape(len(U), -1), J.reshape(len(J), -1, J.shape[-1]))
        np.testing.assert_allclose(frozen.vjp(X, U), expected, rtol=0, atol=1e-8 * size)
    if name == "shift":
        single, table = fitted_model.freeze(precision="float32"), fitted_model.freeze(kind="table", latents=X, tol=1e-5)
        assert (single.precision, table.kind) == ("float32", "table") and single.nbytes < frozen.nbytes
        for other in (single, table):
            np.testing.assert_allclose(other.predict(X), frozen.predict(X), rtol=0, atol=2e-5)
        calibrated = randsmap.model.calibrate(fitted_model, F)
        bar = calibrated.freeze(error_bar=True).predict(X, return_error=True)[1]
        np.testing.assert_array_equal(bar, calibrated.inverse_transform(X, return_error=True)[1])


@pytest.mark.filterwarnings("ignore:theta of neighbouring parameters")
@pytest.mark.parametrize("name", ["shift", "shift in a plane", "masses"])
def test_parameters_to_registered_fields(name):
    (estimator, F), parameters = REGISTRATIONS[name], pulses(60, 24)[0]
    fitted_model = ParametricModel(estimator, KernelDecoder()).fit(parameters, F)
    frozen, X = fitted_model.freeze(), parameters + 0.01
    assert (frozen.n_components, frozen.linear_map.kernel.has_encoder) == (3, False)
    assert (frozen.predict(X) == np.vstack([fitted_model.predict(x[None]) for x in X])).all()
    J = fitted_model.jacobian(X)
    np.testing.assert_allclose(frozen.jacobian(X), J, rtol=0, atol=1e-9 * largest(J))
    U = rng.normal(size=F.shape)
    np.testing.assert_allclose(frozen.vjp(X, U), fitted_model.vjp(X, U), rtol=0, atol=1e-8 * largest(J))


def test_fields_without_quantiles_are_a_status():
    estimator, F = REGISTRATIONS["quantiles"]
    frozen = estimator.fit(F).freeze()
    for field in (np.zeros(24), F[0] - 1e-3):
        with pytest.raises(ValueError, match="row 1 of X: a field is negative or has no mass"):
            frozen.transform([F[0], field])


def test_fields_that_have_no_latent_point_are_refused():
    fitted_model = model(POD(2), KernelDecoder())
    frozen, fields = fitted_model.freeze(), np.ones((30, M))
    fields[17] = 1.7e308 * np.sign(fitted_model.encoder_.components_[0])
    with pytest.raises(ValueError, match="X must be 0 or of magnitude 1e-140 to"):
        frozen.transform(fields)
    assert np.isfinite(frozen.transform(fields[:17])).all()


@pytest.mark.parametrize(
    "options, promised",
    [({"precision": "float32"}, 1e-5), ({"tol": 1e-3}, 2e-3), ({"tol": 1e-6, "precision": "float32"}, 2e-5)],
)
def test_shorter_encoders(options, promised):
    fitted_model = model(DiffusionMaps(2), KernelDecoder(**MASS), n=400)
    frozen = fitted_model.freeze(**options)
    _, F = random_problem(50, M, 2, seed=9, constant={4: 0.02})
    latents = fitted_model.transform(F)
    assert np.abs(frozen.transform(F) - latents).max() <= promised * np.abs(latents).max()
    assert frozen.nbytes < fitted_model.freeze().nbytes


def test_models_that_cannot_be_frozen_say_why():
    for encoder, decoder, message in (
        (PCA(2), RFNNDecoder(random_state=0), r"a model with a PCA cannot be frozen: .* by decoder_\.freeze\(\)$"),
        (DiffusionMaps(2), Ridge(), r"a model with a Ridge cannot be frozen: .* decoders\. .* Pass distil="),
        (PCA(2), None, r"a model with a PCA cannot be frozen: .* decoders.* Models of randsmap fit have only these$"),
        (DiffusionMaps(2, n_neighbors=20), KernelDecoder(), "an encoder with n_neighbors"),
    ):
        with pytest.raises(TypeError, match=message):
            model(encoder, decoder).freeze()
    with pytest.raises(NotFittedError):
        ManifoldModel(POD(2)).freeze()
    with pytest.raises(ValueError, match="holds no encoder"):
        FrozenModel(fitted("sigmoid")[0].freeze().linear_map.kernel.source)


# -- Errors ----------------------------------------------------------------------------------------
def test_what_cannot_be_frozen_says_why():
    Y, F = random_problem(30, M)
    with pytest.raises(NotFittedError):
        RANDSMAPDecoder().freeze()
    for part, reason in ((Ridge(), "C does not support it"), (KernelDecoder(**MASS, bounds=(0, 1)), ": C ")):
        with pytest.raises(TypeError, match=f"ConservativeRegressor.* cannot be frozen.*{reason}"):
            ConservativeRegressor(part).fit(Y, F).freeze()
    twice = ConservativeRegressor(ConservativeRegressor(KernelDecoder(invariants=None), **MASS), invariants=None)
    with pytest.raises(TypeError, match="C supports one projection only"):
        twice.fit(Y, F).freeze()
    for features in (PolynomialFeatures(2, include_bias=False), PCA(1)):
        reason = f"RFNNDecoder cannot be frozen: .* the features of {type(features).__name__}. Fit and freeze a decoder"
        with pytest.raises(TypeError, match=reason):
            RFNNDecoder(features).fit(Y, F).freeze()
    for part in (Ridge(), RFNNDecoder(PCA(1))):
        with pytest.raises(TypeError, match=f"BlendedDecoder cannot be frozen: .* its parts, {type(part).__name__}"):
            BlendedDecoder([KernelDecoder(), part]).fit(Y, F).freeze()
    nested = KernelDecoder()
    for depth in range(6):
        nested = BlendedDecoder([nested])
        if depth == kernel.MOST_DEPTH - 1:
            assert nested.fit(Y, F).freeze().linear_map.kernel.depth == kernel.MOST_DEPTH
    with pytest.raises(TypeError, match="maps within maps, such as blends of blends, to a depth of 4"):
        nested.fit(Y, F).freeze()
    for k, d, most in ((1100, 2, 1024), (100, 95, 90)):
        reason = f"KNNDecoder cannot be frozen: an image mixes at most {most} fields in {d} coordinates"
        with pytest.raises(TypeError, match=reason):
            KNNDecoder(k).fit(rng.normal(size=(1200, d)), rng.normal(size=(1200, 5))).freeze()
    with pytest.raises(TypeError, match="a model with a Ridge cannot be frozen"):
        ShiftRegistration(ManifoldModel(POD(1), Ridge())).fit(F).freeze(tol=1e-3)
    for model_, regressor, named in (
        (ManifoldModel(POD(1)), Ridge(), "Ridge"),
        (ManifoldModel(POD(1), Ridge()), KernelDecoder(), r"Ridge\. Pass distil="),
    ):
        foreign = ParametricModel(model_, regressor).fit(Y, F)
        with pytest.raises(TypeError, match=f"ParametricModel cannot be frozen: C does not support a {named}"):
            foreign.freeze()
    taught = foreign.freeze(distil=KernelDecoder("thin-plate", degree=1, invariants=None), latents=foreign.latents(Y))
    np.testing.assert_allclose(taught.predict(Y), foreign.predict(Y), rtol=0, atol=1e-10)  # lines are lines
    with pytest.raises(ValueError, match="precision must be"):
        RFNNDecoder(random_state=0).fit(Y, F).freeze(precision="float16")
    with pytest.raises(ValueError, match="kind must be"):
        RFNNDecoder(random_state=0).fit(Y, F).freeze(kind="spline")


def test_arguments_are_checked():
    decoder, _ = fitted("sigmoid")
    frozen = decoder.freeze()
    with pytest.raises(ValueError, match="2 columns"):
        frozen.predict([[1.0, 2.0, 3.0]])
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            frozen.predict(np.array([[0.0, bad]]))
        with pytest.raises(ValueError, match="finite"):
            frozen.predict(np.array([[0.0, 0.0]] * 20 + [[0.0, bad]]))
    with pytest.raises(ValueError, match="shape"):
        frozen.predict(np.zeros((1, 2)), out=np.empty((2, M)))
    with pytest.raises(TypeError, match="float64"):
        frozen.predict(np.zeros((1, 2)), out=np.empty((1, M), np.float32))
    with pytest.raises(ValueError, match="V must"):
        frozen.jvp([[0.0, 0.0]], [1.0, 2.0, 3.0])
    shared = np.zeros((3, M))
    with pytest.raises(ValueError, match="share memory"):
        frozen.predict(shared.reshape(-1)[:2].reshape(1, 2), out=shared[:1])
    expected = frozen.predict(np.array([[0.25, 1.0]]))
    for same in (np.array([[0.25, 1.0]], np.float32), np.asfortranarray([[0.25, 1.0]]), [[0.25, 1]]):
        assert (frozen.predict(same) == expected).all()
    far = KernelDecoder("thin-plate", degree=1, **MASS).fit(*random_problem(30, M)).freeze()
    with pytest.raises(ValueError, match="X must be 0 or of magnitude 1e-140 to"):
        far.predict([[0.0, 0.0], [1e308, 0.0]])


# -- Files and images ------------------------------------------------------------------------------
def test_the_image_is_the_file(tmp_path):
    decoder, Y = fitted("weighted-bounds")
    frozen, X = decoder.freeze(), points(Y)
    path = tmp_path / "decoder.rsm"
    frozen.save(path)
    assert path.stat().st_size == frozen.nbytes
    loaded = FrozenDecoder.load(path)
    assert isinstance(loaded.linear_map.kernel.source, np.memmap)  # nothing was copied
    for again in (loaded, randsmap.load(path), pickle.loads(pickle.dumps(loaded)), FrozenDecoder(path.read_bytes())):
        assert (again.predict(X) == frozen.predict(X)).all()
        assert repr(again) == repr(frozen)
    loaded.save(path)  # over the file that is mapped
    assert (loaded.predict(X) == frozen.predict(X)).all()
    with pytest.raises(ValueError, match="read-only"):
        loaded.linear_map.kernel.source[0] = 0
    assert (frozen.n_components, frozen.n_cells, frozen.n_invariants, frozen.n_features) == (2, M, 1, len(Y))
    assert (frozen.kind, frozen.precision) == ("features", "float64")


def test_damaged_files(tmp_path):
    path = tmp_path / "decoder.rsm"
    fitted("several")[0].freeze().save(path)
    image = path.read_bytes()
    for damaged in (b"", b"x", image[:-8], image[:1000], image + bytes(8), b"randsmap" + image[8:], bytes(4096)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not the image of a frozen decoder"):
            FrozenDecoder.load(path)
    for place in rng.integers(0, len(image), 200):
        path.write_bytes(image[:place] + bytes([image[place] ^ 1 << place % 8]) + image[place + 1 :])
        with pytest.raises(ValueError, match="not the image of a frozen decoder"):
            FrozenDecoder.load(path)
    with pytest.raises(OSError):
        FrozenDecoder.load(tmp_path / "missing")


def test_memory_of_an_image_is_held():
    decoder, Y = fitted("sigmoid")
    image = bytearray(decoder.freeze().linear_map.kernel.source)
    frozen = FrozenDecoder(image)
    with pytest.raises(BufferError):
        image.clear()
    expected = frozen.predict(Y[:1])
    del frozen
    image.clear()
    assert expected.shape == (1, M)


def test_few_rows_of_any_layout_are_taken():
    decoder, Y = fitted("sigmoid")
    frozen = decoder.freeze()
    for rows in (np.column_stack([Y, Y])[:2, :2], np.asfortranarray(Y[:8]), Y[:2][::-1], Y[:3].astype(np.float32)):
        assert (frozen.predict(rows) == frozen.predict(np.array(rows, dtype=np.float64, order="C"))).all()
    for out, message in (
        ([0.0], "NumPy array"),
        (np.empty((2, M), order="F"), "C-contiguous"),
        (np.empty((2, M), dtype=np.float32), "float64"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            frozen.predict(Y[:2], out=out)


def test_forged_counts_are_refused():
    # what the image of a decoder of one cell, one coordinate and one function looks like, and a lie about each count
    good = {
        "parameters": np.array([1, 1, 0, kernel.FEATURE_MAP, 0, kernel.FEATURES, 64, 0, 0]),
        "scalars": np.zeros(4),
        "weights": np.ones((1, 1)),
        "offsets": np.ones((1, 1)),
        "bias": np.ones((1, 1)),
        "coefficients": np.ones((1, 1)),
    }
    assert FrozenDecoder(assembled(good)).predict([[0.0]]).shape == (1, 1)
    for name, entry in (("d", 0), ("M", 1), ("basis", 3), ("activation", 4)):
        for value in (-1, 0 if name in "dM" else 9, 2, 2**40, 2**63 - 1):
            parameters = good["parameters"].copy()
            parameters[entry] = value
            if name == "basis" and value in (0, 2, 3):
                continue
            with pytest.raises(ValueError, match="no image"):
                FrozenDecoder(assembled({**good, "parameters": parameters}))
    for name in good:
        with pytest.raises(ValueError, match="no image"):
            FrozenDecoder(assembled({k: v for k, v in good.items() if k != name}))
        with pytest.raises(ValueError, match="no image"):
            FrozenDecoder(assembled({**good, name: good[name].reshape(-1)[:0]}))


# -- Fields that overflow --------------------------------------------------------------------------
KERNELS_FAR = [KernelDecoder("thin-plate", degree=1, invariants=None), KernelDecoder(degree=1, invariants=None)]
FAR = {
    "thin-plate": KERNELS_FAR[0],
    "conserved": KernelDecoder("thin-plate", degree=1, **MASS),
    "bounds": KernelDecoder("thin-plate", degree=1, bounds=(0.0, None)),
    "monomials": RFNNDecoder(randsmap.MonomialFeatures(3)),
    "monomials-conserved": RANDSMAPDecoder(randsmap.MonomialFeatures(2)),
    "blend": BlendedDecoder(KERNELS_FAR, invariants=None),
    "limited": BlendedDecoder([*KERNELS_FAR, KNNDecoder(3)], limit=1e119),
    "neighbours": KNNDecoder(3),
    "any": ConservativeRegressor(Ridge(), invariants=None),
    "harmonics": DoubleDiffusionMapsDecoder(),
    "sigmoid": RFNNDecoder(random_state=0),
}


def finite_or_named(call):
    """Whether a call was refused by a message that names row 1; all that it returns is finite otherwise."""
    try:
        result = call()
    except ValueError as error:
        assert "row 1 of X" in str(error) or "(1, " in str(error), error
        return True
    assert np.isfinite(np.asarray(result)).all()
    return False


def far_doors(decoder, X):
    """All that is computed at latents X, along very long directions too."""
    large = 1e139
    yield lambda: decoder.predict(X)
    yield lambda: decoder.predict(np.vstack([X, np.tile(X[0], (20, 1))]))
    if not isinstance(decoder, FrozenDecoder):
        yield lambda: decoder.predict(X, cells=[3, 1])
    if hasattr(decoder, "vjp"):
        yield lambda: decoder.jacobian(X)
        yield lambda: decoder.jvp(X, np.stack([np.ones(2), np.full(2, large)]))
        yield lambda: decoder.vjp(X, np.stack([np.zeros(M), np.full(M, large)]))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", FAR)
def test_what_is_decoded_is_finite_or_names_its_row(name):
    Y, F = random_problem(30, M, 2, seed=3)
    decoder = sklearn.base.clone(FAR[name]).fit(Y, 1e120 * F)
    X = np.vstack([Y[:1], [[-1e139, 1e139]]])
    forms = [decoder]
    if name != "any":
        forms.append(decoder.freeze())
    if name in ("thin-plate", "conserved", "bounds", "harmonics", "sigmoid"):
        forms.append(decoder.freeze(kind="table", tol=1e-2))
    refused = [finite_or_named(door) for form in forms for door in far_doors(form, X)]
    assert any(refused) or name in ("neighbours", "harmonics", "sigmoid", "limited")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_models_give_finite_fields_and_latents_or_name_the_row():
    class Steep(Ridge):
        def predict(self, X):
            with np.errstate(all="ignore"):
                return np.exp(np.minimum(X[:, :1], 1e3)) * np.ones(M)

    Y, F = random_problem(40, M, 2, seed=3)
    far = np.vstack([Y[:1], np.full((1, 2), 1e139)])
    assert finite_or_named(lambda: ManifoldModel(PCA(2), Steep()).fit(F).inverse_transform(far))
    fields = np.vstack([F[:1], np.full((1, M), 1e139)])
    for encoder in (POD(2, invariants=None), DiffusionMaps(2), PCA(2)):
        finite_or_named(lambda encoder=encoder: encoder.fit(F).transform(fields))
    shifted = ShiftRegistration(ManifoldModel(POD(2, invariants=None), KERNELS_FAR[0])).fit(1e120 * F)
    theta = np.column_stack([[0.0, 1e139], far])
    finite_or_named(lambda: shifted.inverse_transform(theta))
    finite_or_named(lambda: shifted.jvp(theta, np.full(theta.shape, 1e139)))
    theta[:, 1:] = theta[0, 1:]  # so many turns are some shift
    assert np.isfinite(shifted.inverse_transform(theta)).all()
    parametric = ParametricModel(ManifoldModel(POD(2), KERNELS_FAR[0]), KERNELS_FAR[0]).fit(Y, F)
    finite_or_named(lambda: parametric.predict(far))


def sections(frozen):
    """The arrays of an image by their names."""
    memory = np.frombuffer(frozen.linear_map.kernel.source, np.uint8)
    names, types = ({number: name for name, number in d.items()} for d in (kernel.SECTIONS, kernel.TYPES))
    entry = [("id", "u4"), ("type", "u4"), ("offset", "u8"), ("rows", "u8"), ("columns", "u8")]
    table = memory[64 : 64 + 32 * int(memory[32:36].view(np.uint32)[0])].view(entry)
    return {
        names[t["id"]]: np.frombuffer(memory, types[t["type"]], t["rows"] * t["columns"], t["offset"]).reshape(
            t["rows"], t["columns"]
        )
        for t in (dict(zip(table.dtype.names, row)) for row in table.tolist())
    }


@pytest.mark.parametrize("weight", [-1.0, 0.0, math.nan, math.inf])
def test_forged_weights_of_cells_are_refused(weight):
    F, weights = random_problem(30, 8, 2, seed=0)[1], np.linspace(1, 2, 8)
    model = randsmap.ManifoldModel(POD(2, cell_weights=weights), KernelDecoder(), projection=2).fit(F)
    image = np.frombuffer(bytes(model.freeze().linear_map.kernel.source), np.uint8).copy()
    place = bytes(image).index(weights.tobytes())
    image[place : place + 64].view(float)[:] = weight
    image[24:32].view(np.uint64)[0] = kernel.checksum(image)
    with pytest.raises(ValueError, match="image"):
        FrozenModel(image)


@pytest.mark.parametrize("options", [{}, {"kind": "table"}, {"precision": "float32"}])
def test_numbers_of_a_forged_image_that_are_not_finite_are_told(options):
    decoder, Y = fitted("gaussian")
    good = sections(decoder.freeze(**options))
    section = "table_values" if options.get("kind") == "table" else "coefficients"
    for name in (section, "bias", "constant_values"):
        for value in (np.nan, np.inf):
            forged = FrozenDecoder(assembled({**good, name: np.full_like(good[name], value)}))
            inside = name == "bias" and section == "table_values"  # the table has it
            X = Y[:2] + (100.0 if inside else 0.0)
            for call in (forged.predict, forged.jacobian if name == section else forged.predict):
                with pytest.raises(ValueError, match="row 0 of X: .* too large"):
                    call(X)


def test_rows_that_fail_are_nan_and_others_are_fields():
    decoder, Y = fitted("gaussian")
    frozen = decoder.freeze()
    X = np.ascontiguousarray(Y[:20])
    expected, out = frozen.predict(X), np.zeros((20, M))
    X[[3, 17]] = np.nan
    assert frozen.linear_map.kernel.decode(X, None, out) == 7
    assert np.isnan(out[[3, 17]]).all()
    kept = np.setdiff1d(np.arange(20), [3, 17])
    assert (out[kept] == expected[kept]).all()


ROOT = Path(__file__).resolve().parent.parent
CLANG = next((c for c in ("clang", "clang-14") if shutil.which(c)), "clang")
COMPILERS = [c for c in ("cc", CLANG, "tcc") if shutil.which(c)]


def outputs(host, path, X):
    lines = subprocess.run(
        [host, path, *map(float.hex, X.ravel().tolist())], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [np.array([float.fromhex(x) for x in line.split()]) for line in lines[:-1]], int(lines[-1])


def check_host(host, tmp_path, atol):
    """A host decodes what Python does, and neither allocates nor locks meanwhile."""
    for options in ({}, {"kind": "table"}, {"precision": "float32", "tol": 1e-5}):
        frozen = model(DiffusionMaps(2), KernelDecoder(**MASS, bounds="nonnegative")).freeze(**options)
        frozen.save(tmp_path / "model.rsm")
        X = frozen.transform(random_problem(15, M, 2, seed=9, constant={4: 0.02})[1])
        X = np.vstack([X, 3 * X[:2]])
        F = frozen.predict(X)
        J = frozen.jacobian(X[-1:])[0].T
        expected = F.ravel(), J.ravel(), frozen.vjp(X[:1], np.ones(M))[0], frozen.transform(F).ravel()
        got, allocations = outputs(host, tmp_path / "model.rsm", X)
        # an encoder in float32 adds in float32: in another order with other vectors, to what float32 promises
        encoded = 5e-6 if atol and options.get("precision") == "float32" else atol
        for ours, theirs, part in zip(got, expected, (atol, atol, atol, encoded), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=part * largest(theirs))
        assert allocations == (0 if sys.platform == "linux" else -1)


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
@pytest.mark.parametrize(
    "compiler, flags", [(c, "-O2") for c in COMPILERS] + [(c, "-O2 -DRK_PLAIN_C") for c in COMPILERS[:1]]
)
def test_one_file_builds_alone(compiler, flags, tmp_path):
    command = [sys.executable, ROOT / "tools" / "amalgamate.py", tmp_path / "randsmap.c"]
    subprocess.run(command, check=True)
    shutil.copy(Path(randsmap.get_include()) / "randsmap.h", tmp_path)
    shutil.copy(ROOT / "tests" / "c" / "host.c", tmp_path)
    warnings = [] if compiler == "tcc" else ["-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [compiler, "-std=c99", *flags.split(), *warnings, "randsmap.c", "host.c", "-o", "host", "-lm"],
        cwd=tmp_path,
        check=True,
    )
    check_host(tmp_path / "host", tmp_path, 1e-9)


SINGLE = "-fsingle-precision-constant"  # which Clang does not know
FAST_MATH = ["-ffinite-math-only -fno-math-errno", "-funsafe-math-optimizations -freciprocal-math -fno-signed-zeros"]


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
@pytest.mark.parametrize("compiler", [c for c in COMPILERS if c != "tcc"])
@pytest.mark.parametrize("flags", [*FAST_MATH, " ".join(FAST_MATH), "-ffast-math", "-Ofast", SINGLE])
def test_one_file_refuses_fast_math_and_keeps_its_word_under_parts_of_it(compiler, flags, tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "amalgamate.py", tmp_path / "randsmap.c"], check=True)
    shutil.copy(Path(randsmap.get_include()) / "randsmap.h", tmp_path)
    command = [compiler, "-std=c99", "-O2", *flags.split(), "-shared", "-fPIC", "randsmap.c", "-o", "library.so", "-lm"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "fast" in flags or built.returncode:  # all the parts are -ffast-math to Clang
        told = "cannot_be_compiled_with_fsingle" if flags == SINGLE else "#error"
        assert built.returncode and told in built.stderr and flags not in FAST_MATH, built.stderr
        return
    for name in ("sigmoid", "nonnegative", "thin-plate"):
        decoder, Y = fitted(name)
        decoder.freeze().save(tmp_path / "decoder.rsm")
        X = np.vstack([points(Y)[:3], np.full((1, Y.shape[1]), 0.5)])
        X = np.vstack([X, [np.full(Y.shape[1], odd) for odd in (np.nan, np.inf, -np.inf)]])
        expected = decoder.predict(X[:4])
        path = str(tmp_path / "decoder.rsm")
        code = HOST.format(library=str(tmp_path / "library.so"), path=path, X=X.tolist())
        lines = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
        assert list(map(int, lines[: len(X)])) == [0] * 4 + [7] * 3
        fields = np.array(list(map(float.fromhex, lines[len(X) :]))).reshape(len(X), -1)
        np.testing.assert_allclose(fields[:4], expected, rtol=0, atol=1e-9 * largest(expected))
        totals = np.abs(fields[:4].sum(1) - expected.sum(1)) if name != "thin-plate" else 0
        assert np.max(totals) <= 8 * np.finfo(float).eps * np.abs(fields[:4]).sum(1).max()
        assert np.isnan(fields[4:]).all()


# a process of its own: a library that is linked with -funsafe-math-optimizations flushes denormals of the whole process
HOST = """
import ctypes
from math import nan, inf
library = ctypes.CDLL({library!r})
library.randsmap_work.restype = ctypes.c_ssize_t
decoder, X, statuses, fields = ctypes.c_void_p(), {X}, [], []
assert library.randsmap_open({path!r}.encode(), ctypes.byref(decoder)) == 0
work = (ctypes.c_double * library.randsmap_work(decoder, ctypes.c_ssize_t(1)))()
for x in X:
    y, field = (ctypes.c_double * len(x))(*x), (ctypes.c_double * M)()
    statuses.append(library.randsmap_decode(decoder, y, ctypes.c_ssize_t(1), field, work))
    fields += field
print(*statuses, *map(float.hex, fields))
""".replace("* M)", f"* {M})")


@pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
def test_a_host_of_the_shared_library(tmp_path):
    try:
        library = library_path()
    except FileNotFoundError:
        pytest.skip("a source tree has no librandsmap")
    flags = [f"-I{randsmap.get_include()}", library, f"-Wl,-rpath,{Path(library).parent}"]
    subprocess.run([COMPILERS[0], ROOT / "tests" / "c" / "host.c", *flags, "-o", tmp_path / "host"], check=True)
    check_host(tmp_path / "host", tmp_path, 0.0)


def test_threads_get_the_same_bits():
    decoder, Y = fitted("nonnegative")
    frozen, X = decoder.freeze(), np.tile(points(Y), (20, 1))
    expected = frozen.predict(X)
    start = threading.Barrier(8)

    def work(i):
        start.wait()
        return np.vstack([frozen.predict(x[None]) for x in np.roll(X, i, axis=0)])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for i, F in enumerate(pool.map(work, range(8))):
            assert (np.roll(F, -i, axis=0) == expected).all()
