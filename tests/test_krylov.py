"""The Krylov solver against dense ones, its stopping rule, and what it does with hostile input."""

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from randsmap._io.progress import show_progress
from randsmap._linalg import krylov as _krylov
from randsmap._linalg import ridge as _ridge
from randsmap._linalg.krylov import Krylov
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows
from randsmap._linalg.svd import low_rank, nystroem
from randsmap.decoders import RANDSMAPDecoder, RFNNDecoder
from randsmap.features import FourierFeatures, MultiscaleFourierFeatures, SigmoidFeatures

from helpers import random_problem

PAPER = dict(center=False, latent_scale=None)  # the paper's form

EPS = np.finfo(float).eps
MAPS = [FourierFeatures(0.2), MultiscaleFourierFeatures(20.0), SigmoidFeatures(20.0)]


def problem(n=300, M=40):
    return random_problem(n, M, constant={4: 0.0})


def rows_of(features, Y, P):
    return FeatureRows(type(features)(**{**features.get_params(), "n_features": P, "random_state": 0}).fit(Y), Y)


def solve_ridge(rows, F, regularization, solver="auto", tol=None):
    return RidgeFactor(rows, [regularization], solver, tol=tol).solve(F, regularization)


def training_error(rows, A, B, F):
    return np.linalg.norm(rows.whole() @ (A - B)) / np.linalg.norm(F)


@pytest.mark.parametrize("features", MAPS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("n, P", [(300, 120), (150, 400), (200, 199), (3, 1)])
@pytest.mark.parametrize("regularization, tol", [(1e-6, 1e-7), (1e-3, 1e-9), (10.0, 1e-3)])
def test_the_error_is_below_tol(features, n, P, regularization, tol):
    Y, F = problem(n)
    rows = rows_of(features, Y, P)
    A, used, n_iter, *_ = solve_ridge(rows, F, regularization, "krylov", tol=tol)
    assert used == "krylov" and 1 <= n_iter < 100
    exact = solve_ridge(rows, F, regularization, "svd")[0]
    assert training_error(rows, A, exact, F) <= tol


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("M", [1, 90])
def test_without_a_good_preconditioner_and_for_fields_of_any_rank(monkeypatch, noise, M):
    Y, F = problem(200, M=90)
    F = np.ascontiguousarray(F[:, :M])
    F = F + noise * np.random.default_rng(5).normal(size=F.shape)
    rows = rows_of(MAPS[0], Y, 150)
    exact = solve_ridge(rows, F, 1e-4, "svd")[0]
    counts = []
    for rank in (1, 16, 100):
        krylov = Krylov(rows, F, 1e-4, 1e-8)
        assert (krylov.n_columns == M) == (noise > 0 or M == 1)
        monkeypatch.setattr(Krylov, "first_rank", rank)
        krylov.precondition(rank)
        A, _, n_iter, *_ = krylov.solve(500)
        counts.append(n_iter)
        assert training_error(rows, A, exact, F) <= 1e-8
    assert counts[0] >= counts[1] >= counts[2]
    assert M > 1 or counts[0] > 2 * counts[2]


@pytest.mark.parametrize("M", [200, 3000])
def test_more_cells_than_samples(M):
    Y, F = problem(120, M=M)
    rows = rows_of(MAPS[2], Y, 60)
    A, *_ = solve_ridge(rows, F, 1e-3, "krylov")
    assert A.shape == (61, M)
    assert training_error(rows, A, solve_ridge(rows, F, 1e-3)[0], F) <= 1e-7
    rough = np.random.default_rng(0).normal(size=F.shape)
    A, *_ = solve_ridge(rows, rough, 1e-3, "krylov")
    assert training_error(rows, A, solve_ridge(rows, rough, 1e-3)[0], rough) <= 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("M", [100, 1500])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-5, 1e-7])
def test_pod_leaves_no_more_than_stated(M, tolerance):
    F = problem(600, M=M)[1]
    norm, given = np.linalg.norm(F), F.copy()
    B, Vt = low_rank(F, tolerance * norm)
    np.testing.assert_array_equal(F, given)  # an array is read by blocks that are views of it
    assert np.linalg.norm(given - B @ Vt) <= tolerance * norm
    assert np.abs(Vt @ Vt.T - np.eye(len(Vt))).max() <= 1e-12
    sigma = np.linalg.svd(F, compute_uv=False)
    best = np.searchsorted(-np.sqrt(np.cumsum(sigma[::-1] ** 2))[::-1], -tolerance * norm)
    assert len(Vt) <= best + 3
    rough = np.random.default_rng(0).normal(size=(600, M))
    assert low_rank(rough, tolerance)[0] is rough


@pytest.mark.slow
def test_pod_gives_up_beyond_the_modes_asked_for():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(600, 200)) @ rng.normal(size=(200, 1500))
    tolerance = 1e-6 * np.linalg.norm(F)
    assert low_rank(F, tolerance)[0].shape == (600, 200)
    assert low_rank(F, tolerance, 100)[0].shape == (600, 200)
    kept, modes = low_rank(F, tolerance, 10)
    assert kept is F and modes is None


def test_nystroem_is_below_the_matrix_and_exact_at_its_rank():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    for values in (10.0 ** -np.arange(60), np.r_[np.ones(5), np.zeros(55)]):
        G = (Q * values) @ Q.T
        sketch = np.linalg.qr(rng.normal(size=(60, 20)))[0]
        U, eigenvalues = nystroem(sketch.T.copy(), G @ sketch)
        rest = np.linalg.eigvalsh(G - (U * eigenvalues) @ U.T)
        assert rest.min() >= -1e3 * EPS
        assert rest.max() <= 1e-9


def test_it_warns_how_far_it_got_when_it_does_not_converge():
    Y, F = problem()
    decoder = RFNNDecoder(
        FourierFeatures(0.02), solver="krylov", regularization=1e-7, max_iter=1, tol=1e-12, random_state=0
    )
    with pytest.warns(
        ConvergenceWarning,
        match=r"tol = 1e-12 in 1 iterations \(max_iter = 1\).*"
        r"below \d.*larger max_iter",
    ) as record:
        decoder.fit(Y, F)
    assert decoder.n_iter_ == 1
    assert np.isfinite(decoder.coef_).all()
    assert record[0].filename == __file__  # the caller's line


@pytest.mark.slow
@pytest.mark.parametrize("regularization", [1e-300, 1e-20, 1e-13])
def test_a_lambda_lost_in_round_off_ends_in_a_warning(regularization):
    Y, F = problem()
    features = SigmoidFeatures()
    decoder = RANDSMAPDecoder(features, solver="krylov", regularization=regularization, random_state=0, **PAPER)
    with pytest.warns(ConvergenceWarning):
        decoder.fit(Y, F)
    assert decoder.n_iter_ <= 500
    fields = decoder.predict(Y)
    assert np.abs(fields.sum(axis=1) - 1).max() <= 1e-14 * (1 + np.abs(fields).sum(axis=1).max())


def test_lambda_zero_is_refused():
    with pytest.raises(ValueError, match="lambda.* > 0, got 0.*svd"):
        RFNNDecoder(solver="krylov", regularization=0).fit(*problem())


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("tol", 0.0, ValueError),
        ("tol", -1, ValueError),
        ("tol", "small", TypeError),
        ("tol", np.nan, ValueError),
        ("max_iter", 0, ValueError),
        ("max_iter", 2.5, TypeError),
    ],
)
def test_bad_parameters(name, value, error):
    with pytest.raises(error, match=name):
        RFNNDecoder(**{name: value}).fit(*problem())


@pytest.mark.parametrize("solver", ["cholesky", "svd"])
@pytest.mark.parametrize("name, value", [("tol", 1e-9), ("max_iter", 7)])
def test_values_that_the_solver_does_not_read_are_refused(solver, name, value):
    decoder = RANDSMAPDecoder(SigmoidFeatures(n_features=9, latent_box=(0, 1)), solver=solver, **{name: value})
    with pytest.raises(ValueError, match=f"{name} is not read by solver='{solver}'.*got {value}"):
        decoder.fit(*problem())
    if solver == "cholesky":
        with pytest.raises(ValueError, match=f"{name} is not read"):
            decoder.partial_fit(*problem())


@pytest.mark.parametrize("tol", [1e-1, 1e-7])
def test_invariants_are_exact_whatever_the_tolerance(tol):
    Y, F = problem()
    decoder = RANDSMAPDecoder(SigmoidFeatures(20.0), solver="krylov", tol=tol, random_state=0)
    fields = decoder.fit(Y, F).predict(np.vstack([Y, 1e3 * Y]))
    assert decoder.solver_ == "krylov"
    assert (np.abs(fields.sum(axis=1) - 1) <= 1e-14 * (np.abs(fields).sum(axis=1) + 1)).all()
    assert (fields[:, 4] == 0).all()


def test_fits_are_equal_to_the_bit_and_do_not_touch_the_global_generator():
    Y, F = problem()
    before = np.random.get_state()[1].copy()
    fits = [RANDSMAPDecoder(solver="krylov", random_state=0).fit(Y, F) for _ in range(2)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].n_iter_ == fits[1].n_iter_
    assert np.array_equal(np.random.get_state()[1], before)


def test_zero_fields_take_no_iteration():
    Y, F = problem()
    decoder = RFNNDecoder(solver="krylov", random_state=0).fit(Y, np.zeros_like(F))
    assert decoder.n_iter_ == 0 and not decoder.coef_.any()


def test_one_cell_and_one_dimensional_fields():
    Y, F = problem()
    for y in (F[:, 7], F[:, 7:8]):
        krylov = RFNNDecoder(solver="krylov", random_state=0).fit(Y, y)
        direct = RFNNDecoder(random_state=0).fit(Y, y)
        assert krylov.predict(Y).shape == y.shape
        assert np.abs(krylov.predict(Y) - direct.predict(Y)).max() <= 1e-6 * np.abs(y).max()


@pytest.mark.parametrize(
    "hostile", ["one latent point", "duplicate rows", "constant fields", "huge", "tiny", "dependent cells"]
)
def test_degenerate_data(hostile):
    Y, F = problem(200)
    if hostile == "one latent point":
        Y = np.zeros_like(Y)
    elif hostile == "duplicate rows":
        Y, F = np.repeat(Y[:4], 50, axis=0), np.repeat(F[:4], 50, axis=0)
    elif hostile == "constant fields":
        F = np.ones_like(F)
    elif hostile == "huge":
        F = 1e130 * F
    elif hostile == "tiny":
        F = 1e-130 * F
    else:
        F = np.repeat(F[:, :1], 40, axis=1)
    fits = [
        RFNNDecoder(FourierFeatures(0.3), solver=solver, random_state=0).fit(Y, F).predict(Y)
        for solver in ("krylov", "svd")
    ]
    scale = np.abs(F).max()
    assert np.linalg.norm((fits[0] - fits[1]) / scale) <= 1e-7 * np.linalg.norm(F / scale)


@pytest.mark.parametrize("degree", [0, 3])
def test_any_transformer_and_dependent_features(degree):
    Y, F = problem()
    Y = np.hstack([Y, Y])  # its features repeat, and one of them is the bias
    fits = [RFNNDecoder(PolynomialFeatures(degree), solver=solver).fit(Y, F).predict(Y) for solver in ("krylov", "svd")]
    assert np.linalg.norm(fits[0] - fits[1]) <= 1e-7 * np.linalg.norm(F)


def test_direct_solvers_report_one_iteration():
    Y, F = problem(50)
    for solver in ("auto", "svd", "cholesky"):
        assert RFNNDecoder(solver=solver).fit(Y, F).n_iter_ == 1
    assert RANDSMAPDecoder(constraint="training").fit(Y, F).n_iter_ == 1
    with pytest.raises(ValueError, match="constraint='training'"):
        RANDSMAPDecoder(constraint="training", solver="krylov").fit(Y, F)


@pytest.mark.slow
def test_features_are_never_stored(monkeypatch):
    Y, F = problem(2000)
    rows = rows_of(MAPS[2], Y, 2000)
    monkeypatch.setattr(_krylov, "_BLOCK_BYTES", 2**21)
    tracemalloc.start()
    try:
        solve_ridge(rows, F, 1e-2, "krylov")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2000 * 2001 / 1.25


def used(F, Y, P=800, regularization=1e-3, features=MAPS[0]):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve_ridge(rows_of(features, Y, P), F, regularization, "auto")[1]


@pytest.mark.slow
def test_auto_chooses_by_size_cost_and_memory(monkeypatch):
    Y, F = problem(900)
    assert used(F, Y) == "cholesky"  # small
    monkeypatch.setattr(_ridge, "_WORTHWHILE", np.inf)
    monkeypatch.setattr(_ridge, "_KRYLOV_SIZE", 700)
    monkeypatch.setattr(Krylov, "first_rank", 64)
    smooth = FourierFeatures(2.0)
    few = F[:, [0, 20]].copy()
    assert used(few, Y, features=smooth) == "krylov"
    assert used(few, Y, features=smooth, regularization=1e-14) == "svd"
    assert used(few, Y, features=FourierFeatures(0.01)) == "cholesky"  # its spectrum is flat
    rough = np.random.default_rng(0).normal(size=F.shape)
    assert used(rough, Y, features=smooth) == "cholesky"  # too many right-hand sides
    monkeypatch.setattr(_ridge, "available_memory", lambda: 10_000)
    assert used(rough, Y, features=smooth) == "krylov"
    assert used(rough, Y, features=smooth, regularization=1e-14) == "svd"
    assert used(rough[:50], Y[:50], P=100) == "krylov"
    monkeypatch.setattr(_ridge, "available_memory", lambda: None)
    assert used(rough, Y, features=smooth) == "cholesky"


def test_available_memory_is_a_number_of_bytes():
    memory = _krylov.available_memory()
    assert memory is None or 2**20 < memory < 2**50


def test_memory_of_a_control_group_counts(monkeypatch, tmp_path):
    for name, text in (
        ("memory.max", "1000000"),
        ("memory.current", "700000"),
        ("memory.stat", "anon 5\ninactive_file 100000\n"),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(_krylov, "_cgroups", lambda: [(tmp_path, "memory.max", "memory.current")])
    assert _krylov.available_memory() == 400_000
    (tmp_path / "memory.max").write_text("max")
    assert _krylov.available_memory() != 400_000


def test_progress_bar(capsys):
    with show_progress():
        RFNNDecoder(solver="krylov", random_state=0).fit(*problem())
    assert "passes" in capsys.readouterr().err
    RFNNDecoder(solver="krylov", random_state=0).fit(*problem())
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@parametrize_with_checks(
    [RFNNDecoder(solver="krylov", random_state=0), RANDSMAPDecoder(solver="krylov", invariants=None, random_state=0)],
    expected_failed_checks=lambda decoder: {
        "check_sample_weight_equivalence_on_dense_data": "by default features are as many as rows"
    },
)
def test_scikit_learn_estimator(estimator, check):
    check(estimator)


def test_a_tolerance_below_round_off_is_reported():
    rng = np.random.default_rng(0)
    Y = rng.uniform(-1, 1, (60, 2))
    decoder = RANDSMAPDecoder(
        FourierFeatures(1.0, n_features=80),
        solver="krylov",
        regularization=1e-14,
        tol=1e-9,
        invariants=None,
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="did not reach tol"):
        decoder.fit(Y, np.sin(Y @ rng.normal(size=(2, 5))))
