"""The low-rank ridge solver against the ridge solution by a QR factorisation in plain NumPy."""

import pickle

import mpmath
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures

import randsmap
from randsmap import (
    FourierFeatures,
    MaternFeatures,
    MultiscaleFourierFeatures,
    RANDSMAPDecoder,
    RFNNDecoder,
    SigmoidFeatures,
)
from randsmap._linalg import low_rank_ridge as _low_rank
from randsmap._linalg.low_rank_ridge import LowRank, farthest_points
from randsmap._linalg.rows import FeatureRows
from randsmap._linalg.svd import orthonormalize_rows_against
from randsmap.persistence import save

EPS = np.finfo(float).eps
MAPS = [
    FourierFeatures(1.2, random_state=0),
    MultiscaleFourierFeatures(3.0, random_state=0),
    SigmoidFeatures(2.0, random_state=0),
    MaternFeatures(1.5, nu=2.5, random_state=0),
]


def problem(n, d=2, M=30, seed=0):
    rng = np.random.default_rng(seed)
    Y = rng.uniform(-1, 1, size=(n, d))
    F = 2 + np.sin(3 * Y @ rng.normal(size=(d, M)) + rng.uniform(0, 6, size=M)) + 1e-3 * rng.normal(size=(n, M))
    F[:, 0] = 0.25  # a constant cell
    F *= 7 / F.sum(axis=1, keepdims=True)
    F[:, 0] = 0.25
    return Y, F * np.where(np.arange(M), (7 - 0.25) / F[:, 1:].sum(axis=1, keepdims=True), 1)


def by_qr(Phi, F, regularization, center):
    """Ridge coefficients [bias; A] by a QR factorisation of the extended matrix."""
    if center:
        mean, field_mean = Phi.mean(axis=0), F.mean(axis=0)
        A = by_qr(Phi - mean, F - field_mean, regularization, None)
        return np.vstack([field_mean - mean @ A, A])
    if center is False:
        Phi = np.hstack([np.ones((len(Phi), 1)), Phi])
    p = Phi.shape[1]
    Q, R = np.linalg.qr(np.vstack([Phi, np.sqrt(regularization) * np.eye(p)]))
    return np.linalg.solve(R, Q[: len(F)].T @ F)


@pytest.mark.slow
@pytest.mark.parametrize("features", MAPS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("n, P", [(700, 300), (300, 700)])
@pytest.mark.parametrize("regularization, tol", [(1e-3, None), (1e-6, 1e-6), (1.0, 1e-10)])
def test_predictions_miss_the_exact_ones_by_less_than_the_bound(features, center, n, P, regularization, tol):
    Y, F = problem(n)
    decoder = RFNNDecoder(
        clone(features).set_params(n_features=P),
        regularization=regularization,
        center=center,
        solver="lowrank",
        tol=tol,
    ).fit(Y, F)
    Phi = decoder.features_.transform(Y)
    exact = by_qr(Phi, F, regularization, center)
    missed = np.linalg.norm(Phi @ (decoder.coef_ - exact)[1:] + (decoder.coef_ - exact)[0])
    size = np.linalg.norm(F - F.mean(axis=0) if center else F)
    norm = np.linalg.norm(Phi - Phi.mean(axis=0) if center else Phi, 2) ** 2
    round_off = 50 * EPS * norm / regularization
    if decoder.solver_ == "lowrank":
        assert decoder.rank_ <= max(128, min(n, P) // 6)
        assert decoder.error_bound_ <= (1e-8 if tol is None else tol)
        assert missed <= (decoder.error_bound_ + round_off) * size
    else:
        assert decoder.rank_ is None and decoder.error_bound_ is None
        assert missed <= (1e-10 + round_off) * size
        assert not isinstance(features, FourierFeatures)  # the smoothest: never given up


def test_low_rank_is_used_where_it_is_asked_for_and_serves():
    Y, F = problem(400)
    decoder = RFNNDecoder(FourierFeatures(0.7, n_features=300), solver="lowrank", random_state=0).fit(Y, F)
    assert decoder.solver_ == "lowrank" and 8 <= decoder.rank_ <= 128 and 0 < decoder.error_bound_ <= 1e-8
    flat = RFNNDecoder(FourierFeatures(0.02, n_features=900), solver="lowrank", random_state=0).fit(
        np.tile(Y, (3, 1)) + np.repeat(np.arange(3), 400)[:, None], np.tile(F, (3, 1))
    )
    assert flat.solver_ == "cholesky" and flat.rank_ is None


def test_a_space_of_all_points_has_no_more_columns():
    """So that where it does not meet its bound, as round-off may keep it from, another solver takes over."""
    Y = np.random.default_rng(0).normal(size=(33, 2))
    rows = FeatureRows(FourierFeatures(8.0, n_features=60, random_state=0).fit(Y), Y)
    space = LowRank(rows, 128, [], None, forced=True)
    assert space.grow(0.0, once=True) and space.rank == 33
    assert space.grow(0.0) and not space.grow(0.0, once=True) and space.rank == 33


def test_a_space_goes_on_where_round_off_made_a_step_too_short():
    Y = np.random.default_rng(0).normal(size=(14, 1))
    space = LowRank(
        FeatureRows(FourierFeatures(1.92, n_features=11, random_state=0).fit(Y), Y), 128, [], None, forced=True
    )
    assert space.grow(4e-18) and space.rank == 11


def test_the_bound_is_the_one_of_the_spectral_norm_left_out():
    Y, F = problem(300)
    rows = FeatureRows(FourierFeatures(0.7, n_features=200, random_state=0).fit(Y), Y, bias=False)
    space = LowRank(rows, 128, [1e-3], 0.04, forced=True)
    A, used, _, rank, bound = space.solve(F, 1e-3)
    V = space._Vt.T
    assert used == "lowrank" and rank == space.rank and bound <= 0.04
    assert np.allclose(V.T @ V, np.eye(space.rank), atol=20 * EPS)
    Phi = rows.whole()
    Phi -= Phi.mean(axis=0)
    norm = np.linalg.norm(Phi - Phi @ V @ V.T, 2) ** 2
    frobenius = np.linalg.norm(Phi - Phi @ V @ V.T) ** 2
    # probes: 20 times the Frobenius norm on the average, with a standard deviation of at most sqrt(2/10) of that
    assert norm <= space.tau <= 60 * frobenius
    exact = by_qr(rows.whole(), F, 1e-3, True)
    centred = F - F.mean(axis=0)
    residual = np.linalg.norm(centred - Phi @ exact[1:])
    t = space.tau / 1e-3
    assert t * (1 + t) * residual / np.linalg.norm(centred) <= bound * (1 + 1e-6)
    assert np.linalg.norm(Phi @ (A - exact)[1:]) <= bound * np.linalg.norm(centred)


def test_orthonormal_rows_stay_so_and_keep_their_order():
    rng = np.random.default_rng(0)
    old = np.linalg.qr(rng.normal(size=(90, 20)))[0].T.copy()
    new = rng.normal(size=(10, 20)) @ old + 1e-9 * rng.normal(size=(10, 90))  # nearly dependent
    Q = orthonormalize_rows_against(new.copy(), old)
    both = np.vstack([old, Q])
    assert np.abs(both @ both.T - np.eye(30)).max() <= 20 * EPS
    for k in (1, 4):
        inside = np.vstack([old, Q[:k]])
        rest = new[:k] - (new[:k] @ inside.T) @ inside
        assert np.abs(rest).max() <= 50 * EPS


def test_farthest_points_are_nested_and_end_with_the_distinct_ones():
    points = np.array([[0.0], [1.0], [0.4], [1.0], [0.1]])
    order = list(farthest_points(points - points.mean()))
    assert sorted(points[order].ravel()) == [0.0, 0.1, 0.4, 1.0]
    for k in range(1, 4):
        distances = np.abs(points - points[order[:k]].T).min(axis=1)
        assert distances[order[k]] == distances.max()


@pytest.mark.parametrize("center", [True, False])
def test_features_are_not_stored_where_they_are_many(monkeypatch, center):
    Y, F = problem(900)
    decoder = RFNNDecoder(FourierFeatures(0.7, n_features=200), solver="lowrank", center=center, random_state=0)
    stored = clone(decoder).fit(Y, F)
    monkeypatch.setattr(_low_rank, "_STORED", 1000)
    monkeypatch.setattr(_low_rank, "_CANDIDATES", 500)
    computed = clone(decoder).fit(Y, F)
    assert computed.solver_ == stored.solver_ == "lowrank"
    assert np.abs(computed.predict(Y) - stored.predict(Y)).max() <= 2e-8 * np.linalg.norm(F)
    again = clone(decoder).fit(Y, F)
    assert np.array_equal(computed.coef_, again.coef_)  # probes have a seed


def test_small_lambdas_are_solved_without_a_gram_matrix():
    Y, F = problem(400)
    regularization = 1e-9
    decoder = RFNNDecoder(
        FourierFeatures(2.0, n_features=300, random_state=0), regularization=regularization, solver="lowrank"
    ).fit(Y, F)
    assert decoder.solver_ == "lowrank"
    Phi = decoder.features_.transform(Y)
    exact = by_qr(Phi, F, regularization, True)
    missed = np.linalg.norm((Phi - Phi.mean(axis=0)) @ (decoder.coef_ - exact)[1:])
    # orthogonal factorisations amplify round-off by |Phi| / sqrt(lambda)
    round_off = 100 * EPS * np.linalg.norm(Phi, 2) / np.sqrt(regularization)
    assert missed <= (decoder.error_bound_ + round_off) * np.linalg.norm(F - F.mean(axis=0))


def test_invariants_bounds_derivatives_and_files_are_as_of_any_decoder(tmp_path):
    Y, F = problem(400)
    decoder = RANDSMAPDecoder(
        FourierFeatures(0.7, n_features=300), solver="lowrank", bounds="nonnegative", random_state=0
    ).fit(Y, F)
    assert decoder.solver_ == "lowrank"
    Z = np.random.default_rng(1).uniform(-2, 2, size=(50, 2))
    fields = decoder.predict(Z)
    assert np.abs(fields.sum(axis=1) - 7).max() <= 100 * EPS * 7 and fields.min() >= 0
    assert (fields[:, 0] == 0.25).all()
    free = clone(decoder).set_params(bounds=None).fit(Y, F)
    J, h = free.jacobian(Z), 1e-6
    for k in range(2):
        step = h * np.eye(2)[k]
        difference = (free.predict(Z + step) - free.predict(Z - step)) / (2 * h)
        assert np.abs(J[:, :, k] - difference).max() <= 1e-6 * np.abs(J).max()
    save(decoder, tmp_path / "d.npz")
    for other in (randsmap.load(tmp_path / "d.npz"), pickle.loads(pickle.dumps(decoder))):
        assert np.array_equal(other.predict(Z), fields)
        assert (other.rank_, other.error_bound_, other.solver_) == (decoder.rank_, decoder.error_bound_, "lowrank")


def test_another_transformer_and_repeated_latents():
    Y, F = problem(300)
    decoder = RFNNDecoder(PolynomialFeatures(6, include_bias=False), solver="lowrank").fit(Y, F)
    assert decoder.solver_ == "lowrank" and decoder.rank_ <= 27
    direct = RFNNDecoder(PolynomialFeatures(6, include_bias=False), solver="cholesky").fit(Y, F)
    assert np.abs(decoder.predict(Y) - direct.predict(Y)).max() <= 1e-8 * np.abs(F).max()
    few = np.repeat(Y[:5], 60, axis=0)
    decoder = RFNNDecoder(FourierFeatures(0.7, n_features=100), solver="lowrank", random_state=0).fit(few, F)
    assert decoder.solver_ == "lowrank" and decoder.rank_ <= 5
    groups = F.reshape(5, 60, -1).mean(axis=1)
    assert np.abs(decoder.predict(Y[:5]) - groups).max() <= 1e-3


def test_auto_takes_it_where_it_is_cheap_and_changes_nothing_beyond_its_accuracy():
    Y, F = problem(1800, M=100)
    decoder = RFNNDecoder(FourierFeatures(1.0, n_features=1300), random_state=0)
    auto = clone(decoder).fit(Y, F)
    assert auto.solver_ == "lowrank" and auto.error_bound_ <= 1e-8
    direct = clone(decoder).set_params(solver="cholesky").fit(Y, F)
    assert np.linalg.norm(auto.predict(Y) - direct.predict(Y)) <= 1e-8 * np.linalg.norm(F)
    loose = clone(decoder).set_params(tol=1e-3).fit(Y, F)  # a tolerance of the Krylov solver's
    assert loose.error_bound_ <= 1e-8
    assert clone(decoder).fit(Y[:300], F[:300]).solver_ == "dual"  # cheap anyway
    rough = RFNNDecoder(FourierFeatures(0.05, n_features=1300), random_state=0).fit(Y, F)
    assert rough.solver_ == "cholesky" and rough.rank_ is None


def test_what_it_does_not_take_is_refused():
    Y, F = problem(40)
    with pytest.raises(ValueError, match="solver='lowrank' needs regularization .lambda. > 0, got 0"):
        RFNNDecoder(FourierFeatures(), regularization=0, solver="lowrank").fit(Y, F)
    with pytest.raises(ValueError, match="max_iter is not read by solver='lowrank'"):
        RFNNDecoder(FourierFeatures(), max_iter=3, solver="lowrank").fit(Y, F)
    with pytest.raises(ValueError, match="constraint='training' needs singular values"):
        RANDSMAPDecoder(FourierFeatures(), constraint="training", solver="lowrank").fit(Y, F)
    decoder = RFNNDecoder(FourierFeatures(n_features=10), solver="lowrank", latent_scale=None)
    with pytest.raises(AttributeError) as refused:
        decoder.partial_fit(Y, F)
    assert "needs solver='auto' or 'cholesky', got 'lowrank'" in str(refused.value.__cause__)


@pytest.mark.slow
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("solver", ["lowrank", "auto", "cholesky", "svd"])
@pytest.mark.parametrize("n, P", [(300, 200), (150, 200)])
def test_a_path_of_lambdas_is_the_fits_one_by_one(solver, center, n, P):
    Y, F = problem(n)
    Z = np.random.default_rng(1).uniform(-1, 1, size=(20, 2))
    decoder = RANDSMAPDecoder(FourierFeatures(0.7, n_features=P), solver=solver, center=center, random_state=0)
    values = [1e-3, 1e-12, 1.0, 1e-3]
    fitted, weights = decoder.fit_path(Y, F, values), decoder.smoother_path(Y, Z, values)
    for value in values:
        alone = clone(decoder).set_params(regularization=value).fit(Y, F)
        one = fitted(value)
        assert one.regularization == value and not hasattr(decoder, "coef_")
        exact = by_qr(alone.features_.transform(Y), F, value, center)
        Phi = np.hstack([np.ones((20, 1)), alone.features_.transform(Z)])
        expected = alone.invariants_.project(Phi @ exact)
        slack = 1e-6 if value > 1e-9 else 1e-2
        for fields in (one.predict(Z), alone.predict(Z), alone.invariants_.project(weights(value) @ F)):
            assert np.abs(fields - expected).max() <= slack * np.abs(F).max()
        assert np.abs(one.predict(Y) - alone.predict(Y)).max() <= slack * np.abs(F).max()
    if solver == "lowrank":
        assert fitted(1.0).solver_ == "lowrank"


@pytest.mark.parametrize("center", [True, False])
def test_leave_one_out_needs_no_singular_values_that_lambda_drowns(center):
    Y, F = problem(300)
    decoder = RANDSMAPDecoder(FourierFeatures(1.0, n_features=250), center=center, solver="svd", random_state=0)
    values = [1e-4, 1e-2, 1.0]
    whole = randsmap.leave_one_out(decoder, Y, F, regularizations=values)
    reduced = randsmap.leave_one_out(clone(decoder).set_params(solver="lowrank"), Y, F, regularizations=values)
    _, squares = clone(decoder).set_params(solver="lowrank").spectrum(Y, least=1e-4)
    assert len(squares) <= 129 < len(decoder.spectrum(Y)[1])
    assert np.abs(reduced.errors_ / whole.errors_ - 1).max() <= 1e-6


@pytest.mark.parametrize("center", [True, False])
def test_latents_that_are_all_the_same(center):
    Y, F = problem(50)
    decoder = RFNNDecoder(FourierFeatures(), solver="lowrank", center=center, random_state=0).fit(Y * 0 + 1, F)
    assert np.allclose(decoder.predict([[1.0, 1.0]]), F.mean(axis=0), rtol=1e-3)


@pytest.mark.parametrize("seed", range(24))
def test_the_bound_includes_the_round_off_of_the_solution(seed):
    rng = np.random.default_rng(seed)
    n, P, value = int(rng.integers(20, 81)), int(rng.integers(30, 501)), 10 ** rng.uniform(-7, -5)
    Y = rng.uniform(-1, 1, (n, 1 + seed % 2))
    F = np.sin(2 * Y @ rng.normal(size=(Y.shape[1], 12)))
    options = {"random_state": seed, "regularization": value, "latent_scale": None, "invariants": None}
    features = randsmap.SigmoidFeatures(3.0, n_features=P)
    fitted = randsmap.RANDSMAPDecoder(features, solver="lowrank", **options).fit(Y, F)
    exact = randsmap.RANDSMAPDecoder(features, solver="svd", **options).fit(Y, F)
    if fitted.solver_ == "lowrank":  # otherwise there is no bound, and `fit` has taken another solver
        missed = np.linalg.norm(fitted.predict(Y) - exact.predict(Y)) / np.linalg.norm(F - F.mean(axis=0))
        assert missed <= fitted.error_bound_


@pytest.mark.parametrize("offset, regularization", [(0.0, 1e-9), (10.0, 1e-9), (100.0, 1e-9), (1000.0, 1e-6)])
def test_the_bound_includes_the_round_off_of_features_beside_their_mean(offset, regularization):
    rng = np.random.default_rng(0)
    Y, W, b = rng.uniform(-1, 1, (16, 1)), rng.normal(0, 0.2, (1, 30)), rng.uniform(0, 6, 30)
    F = np.exp(-(((np.linspace(0.3, 0.7, 4) - 0.5 - 0.2 * Y) / 0.2) ** 2))
    features = FunctionTransformer(lambda Y: offset + np.cos(Y @ W + b))
    decoder = RFNNDecoder(features, solver="lowrank", regularization=regularization, latent_scale=None, center=True)
    decoder.fit(Y, F)
    with mpmath.workdps(50):
        rest = mpmath.eye(16) - mpmath.ones(16) / 16
        Phi, G = (rest * mpmath.matrix(A.tolist()) for A in (features.transform(Y), F))
        K = Phi * Phi.T
        missed = mpmath.matrix(decoder.predict(Y).tolist()) - (mpmath.matrix(F.tolist()) - G)
        for j in range(4):
            missed[:, j] -= K * mpmath.lu_solve(K + mpmath.mpf(regularization) * mpmath.eye(16), G[:, j])
        missed = float(mpmath.norm(missed) / mpmath.norm(G))
    assert decoder.solver_ == "lowrank" and missed <= decoder.error_bound_
