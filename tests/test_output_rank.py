"""Decoders whose coefficients are products of two factors, against the modes of a singular value decomposition."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import randsmap
from randsmap import FourierFeatures, RANDSMAPDecoder, RFNNDecoder
from randsmap._linalg import svd
from randsmap._linalg.rows import MappedRows
from randsmap.persistence import save

EPS = np.finfo(float).eps
Z = np.random.default_rng(5).uniform(-1, 1, size=(30, 2))


def problem(n=120, M=300, noise=0.0):
    rng = np.random.default_rng(0)
    Y = rng.uniform(-1, 1, size=(n, 2))
    F = 3 + np.sin(2 * Y @ rng.normal(size=(2, M)) + rng.uniform(0, 6, size=M)) + noise * rng.normal(size=(n, M))
    F[:, 4:9] = [0.0, 0.5, 0.0, 0.25, 0.0]
    free = np.ones(M, dtype=bool)
    free[4:9] = False
    F[:, free] *= 10 / F[:, free].sum(axis=1, keepdims=True)
    return Y, F


def decoder(**params):
    return RANDSMAPDecoder(FourierFeatures(1.0, n_features=80), random_state=0, **params)


@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-9, 1e-12])
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_an_accuracy_holds_for_every_training_field_with_few_modes(monkeypatch, tol, noise):
    Y, F = problem(noise=noise)
    monkeypatch.setattr(svd, "_ENTRIES", 16 * F.shape[1])
    reduced = decoder(output_rank=tol).fit(Y, F)
    U, mean = reduced.output_basis_, reduced.output_mean_
    r = U.shape[1]
    assert np.abs(U.T @ U - np.eye(r)).max() <= 1e-13
    centred = F - mean
    missed = np.linalg.norm(centred - centred @ U @ U.T, axis=1) / np.linalg.norm(F, axis=1)
    assert missed.max() <= tol
    # modes that a singular value decomposition needs for an eighth of it
    left = F - F.mean(axis=0)
    W, sigma, Vt = np.linalg.svd(left, full_matrices=False)
    for fewest in range(len(sigma)):
        if (np.linalg.norm((W * sigma)[:, fewest:], axis=1) <= tol / 8 * np.linalg.norm(F, axis=1)).all():
            break
    assert r <= fewest + 1
    full = decoder().fit(Y, F)
    error = np.linalg.norm(reduced.predict(Y) - full.predict(Y), axis=1) / np.linalg.norm(F, axis=1)
    assert error.max() <= tol


@pytest.mark.parametrize("rank", [1, 5, 20])
def test_a_count_keeps_the_leading_modes(rank):
    Y, F = problem(noise=1e-6)
    reduced = decoder(output_rank=rank).fit(Y, F)
    U = reduced.output_basis_
    centred = F - F.mean(axis=0)
    sigma = np.linalg.svd(centred, compute_uv=False)
    left = np.linalg.norm(centred - centred @ U @ U.T)
    assert U.shape == (300, rank)
    assert left <= 1.01 * np.sqrt((sigma[rank:] ** 2).sum())
    assert decoder(output_rank=500).fit(Y, F).output_basis_.shape[1] <= 120


def test_invariants_constant_cells_and_bounds_are_exact():
    Y, F = problem()
    C = np.column_stack([np.ones(300), np.arange(300.0)])
    far = 50 * Z
    for params, wanted in (
        ({}, F[:1] @ np.ones((300, 1))),
        ({"bounds": "nonnegative"}, None),
        ({"cell_weights": np.linspace(1, 2, 300), "invariants": np.ones(300)}, None),
        ({"invariants": C[:, :1]}, None),
    ):
        reduced = decoder(output_rank=1e-6, **params).fit(Y, F)
        fields = reduced.predict(far)
        total = F[0].sum()
        assert np.abs(fields.sum(axis=1) - total).max() <= 40 * EPS * np.abs(fields).sum(axis=1).max()
        assert (fields[:, 4:9] == [0.0, 0.5, 0.0, 0.25, 0.0]).all()
        assert wanted is None or np.allclose(wanted, total)
        if "bounds" in params:
            assert fields.min() >= 0
        U = reduced.output_basis_
        assert not U[4:9].any()
        assert np.abs(U.sum(axis=0)).max() <= 1e-13 * np.abs(U).sum(axis=0).max()
        assert (reduced.output_mean_[4:9] == [0.0, 0.5, 0.0, 0.25, 0.0]).all()
        assert abs(reduced.output_mean_.sum() - total) <= 40 * EPS * total
    given = decoder(output_rank=1e-6).fit(Y, F).predict(Z, invariant_values=7.0)
    assert np.abs(given.sum(axis=1) - 7).max() <= 1e-13 * 7


def test_fields_and_derivatives_are_those_of_the_product():
    Y, F = problem()
    reduced = decoder(output_rank=1e-8).fit(Y, F)
    phi = np.hstack([np.ones((30, 1)), reduced.features_.transform(Z)])
    expected = reduced.output_mean_ + phi @ reduced.output_coef_ @ reduced.output_basis_.T
    assert np.abs(reduced.predict(Z) - reduced.invariants_.project(expected)).max() <= 1e-13 * np.abs(F).max()
    full = decoder().fit(Y, F)
    J = reduced.jacobian(Z)
    assert np.abs(J - full.jacobian(Z)).max() <= 1e-5 * np.abs(J).max()
    assert np.abs(J.sum(axis=1)).max() <= 1e-13 * np.abs(J).sum(axis=1).max()
    rng = np.random.default_rng(1)
    V, W = rng.normal(size=(30, 2)), rng.normal(size=(30, 300))
    assert np.allclose(reduced.jvp(Z, V), np.einsum("nmd,nd->nm", J, V), atol=1e-12)
    assert np.allclose(reduced.vjp(Z, W), np.einsum("nmd,nm->nd", J, W), atol=1e-11)
    cells = [3, 5, 250]
    assert np.allclose(reduced.predict(Z, cells=cells), reduced.predict(Z)[:, cells], rtol=0, atol=1e-14)
    assert np.allclose(reduced.jacobian(Z, cells=cells), J[:, cells], atol=1e-12)
    assert np.abs(reduced.predict(Z[:1]) - reduced.predict(Z)[:1]).max() <= 1e-13
    one = RFNNDecoder(FourierFeatures(n_features=10), output_rank=1e-3, random_state=0).fit(Y, F[:, 0])
    assert one.predict(Z).shape == (30,)


def test_files_pickles_and_refits(tmp_path):
    Y, F = problem()
    reduced = decoder(output_rank=1e-6, bounds=(0, None)).fit(Y, F)
    fields = reduced.predict(Z)
    save(reduced, tmp_path / "d.npz")
    for other in (randsmap.load(tmp_path / "d.npz"), pickle.loads(pickle.dumps(reduced))):
        assert np.array_equal(other.predict(Z), fields)
        assert np.array_equal(other.output_basis_, reduced.output_basis_)
        Phi = np.hstack([np.ones((len(Z), 1)), other.features_.transform(Z)])
        assert np.allclose(Phi @ other.coef_, Phi @ other.output_coef_ @ other.output_basis_.T + other.output_mean_)
    reduced.set_params(output_rank=None).fit(Y, F)
    assert reduced.coef_.shape == (81, 300)
    assert reduced.output_coef_ is None and reduced.output_basis_ is None and reduced.output_mean_ is None
    assert not hasattr(decoder(), "coef_")
    again = reduced.set_params(output_rank=3).fit(Y, F)
    assert again.coef_.shape == (81, 300) and again.output_coef_.shape == (81, 3)


def test_large_memory_maps_are_read_by_blocks_to_the_same_fields(tmp_path, monkeypatch):
    Y, F = problem(noise=1e-5)
    path = tmp_path / "f.npy"
    np.save(path, F)
    mapped = np.load(path, mmap_mode="r")
    monkeypatch.setattr(randsmap._linalg.rows, "LARGE", 1)
    reduced = decoder(output_rank=1e-6)
    assert np.array_equal(clone(reduced).fit(Y, F).predict(Z), clone(reduced).fit(Y, mapped).predict(Z))
    fields = MappedRows(mapped, "y")
    synthesis, coordinates = svd.field_modes(fields, 1e-6, np.sqrt(fields.norms2()))
    assert synthesis.flags.owndata and synthesis.shape[0] == coordinates.shape[1] + 1


def test_fields_without_modes_and_of_zeros():
    Y, F = problem()
    equal = np.tile(F[:1], (len(Y), 1))
    assert np.abs(decoder(output_rank=1e-6).fit(Y, equal).predict(Z) - F[0]).max() <= 1e-13
    F = F * (np.arange(len(F)) > 2)[:, None]
    reduced = RFNNDecoder(FourierFeatures(1.0, n_features=80), output_rank=1e-3, random_state=0).fit(Y, F)
    assert np.isfinite(reduced.predict(Z)).all()


@pytest.mark.parametrize("solver", ["cholesky", "svd", "lowrank", "krylov"])
def test_every_solver_serves(solver):
    Y, F = problem()
    full, reduced = (decoder(solver=solver, output_rank=rank).fit(Y, F) for rank in (None, 1e-7))
    assert reduced.solver_ == full.solver_
    assert np.abs(reduced.predict(Z) - full.predict(Z)).max() <= 1e-5 * np.abs(F).max()


def test_what_it_does_not_take_is_refused():
    Y, F = problem()
    for rank in (0, -1, 1.5, 0.0, np.nan):
        with pytest.raises(ValueError, match="output_rank"):
            decoder(output_rank=rank).fit(Y, F)
    for rank in ("all", True):
        with pytest.raises(TypeError, match="output_rank"):
            decoder(output_rank=rank).fit(Y, F)
    for params in ({"center": False}, {"constraint": "training"}):
        with pytest.raises(ValueError, match="output_rank needs center=True"):
            decoder(output_rank=3, **params).fit(Y, F)
    with pytest.raises(AttributeError) as refused:
        decoder(output_rank=3).partial_fit(Y, F)
    assert "partial_fit needs output_rank=None, got 3" in str(refused.value.__cause__)
    assert not hasattr(decoder(output_rank=3), "smoother")


@pytest.mark.parametrize("unit", [1e-160, 1e160])
@pytest.mark.parametrize("rank", [3, 1e-3])
def test_units_in_which_squares_are_no_numbers_are_refused(unit, rank):
    rng = np.random.default_rng(0)
    Y, F = rng.uniform(size=(30, 2)), rng.uniform(1, 2, (30, 9))
    with pytest.raises(ValueError, match="unit"):
        RFNNDecoder(output_rank=rank, random_state=0).fit(Y, unit * F)
