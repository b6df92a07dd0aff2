"""Ridge solvers against the paper's formulas in plain NumPy."""

import mpmath
import numpy as np
import pytest

from randsmap._kernels import ridge as kernel
from randsmap._linalg import spectral as _spectral
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows
from randsmap._linalg.spectral import Spectral
from randsmap.features import FourierFeatures, SigmoidFeatures

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps


def problem(n, P, M=7, d=2, seed=0, kind=FourierFeatures, bias=True):
    rng = np.random.default_rng(seed)
    X, F = rng.uniform(size=(n, d)), rng.normal(size=(n, M))
    features = kind(n_features=P, random_state=seed).fit(X)
    Phi = np.hstack([np.ones((n, 1)), features.transform(X)])
    return FeatureRows(features, X, bias=bias), Phi, F


def ridge(rows, F, regularization, solver="auto"):
    return RidgeFactor(rows, [regularization], solver).solve(F, regularization)[:2]


@pytest.mark.parametrize("n, p, M", [(1, 1, 1), (5, 3, 2), (3, 5, 2), (70, 40, 9)])
def test_kernels_are_the_matrix_products(n, p, M):
    rng = np.random.default_rng(1)
    Phi, F = rng.normal(size=(n, p)), rng.normal(size=(n, M))
    bound = 4 * max(n, p) * EPS * np.abs(Phi).max() ** 2 * max(n, p)
    for dual, expected in ((False, Phi.T @ Phi), (True, Phi @ Phi.T)):
        G = np.full(expected.shape, np.nan)
        kernel.gram(Phi, dual, False, G)
        upper = np.triu_indices(len(G))
        assert np.abs(G[upper] - expected[upper]).max() <= bound
        kernel.gram(Phi, dual, True, G)
        assert np.abs(G[upper] - 2 * expected[upper]).max() <= 2 * bound
    H = np.full((p, M), np.nan)
    kernel.cross(Phi, F, False, H)
    assert np.allclose(H, Phi.T @ F, rtol=0, atol=4 * n * EPS * np.abs(Phi).max() * np.abs(F).max())


def test_kernel_solve_and_its_failing_pivot():
    rng = np.random.default_rng(2)
    B, H = rng.normal(size=(30, 12)), rng.normal(size=(12, 5))
    G = B.T @ B
    X = H.copy()
    assert kernel.solve(np.triu(G), 0.5, 0.0, X) == 0
    assert np.allclose((G + 0.5 * np.eye(12)) @ X, H, atol=1e-12)
    singular, X = np.diag([1.0, 1.0, 0.0, 1.0]), np.ones((4, 1))
    assert kernel.solve(singular.copy(), 0.0, 0.0, X) == 3
    assert (X == 1).all()
    assert kernel.solve(np.diag([1.0, 1e-18]), 0.0, 1e-15, np.ones((2, 1))) == 2


@pytest.mark.parametrize(
    "n, P, expected", [(80, 20, "cholesky"), (20, 60, "dual"), (20, 19, "cholesky"), (20, 20, "dual")]
)
@pytest.mark.parametrize("regularization", [1e-3, 1.0])
def test_cholesky_primal_and_dual_are_the_papers_formula(n, P, expected, regularization):
    rows, Phi, F = problem(n, P)
    A, used = ridge(rows, F, regularization)
    assert used == expected
    oracle = np.linalg.solve(Phi.T @ Phi + regularization * np.eye(P + 1), Phi.T @ F)
    # round-off of the Gram matrix, amplified by the condition of the shifted one
    condition = 1 + np.linalg.norm(Phi, 2) ** 2 / regularization
    assert np.abs(A - oracle).max() <= 50 * EPS * condition * np.abs(oracle).max()
    by_svd, used = ridge(rows, F, regularization, "svd")
    assert used == "svd"
    assert np.abs(A - by_svd).max() <= 50 * EPS * condition * np.abs(oracle).max()


@pytest.mark.parametrize("block", [1, 7, 32, 1000])
def test_row_blocks_do_not_change_the_result(monkeypatch, block):
    rows, Phi, F = problem(101, 17)
    reference = ridge(rows, F, 1e-3)[0]
    svd = ridge(rows, F, 0.0)[0]
    monkeypatch.setattr(_spectral, "_BLOCK", block)
    monkeypatch.setattr(FeatureRows.blocks, "__defaults__", (block,))
    round_off = np.linalg.cond(Phi) ** 2 * EPS
    change = np.abs(ridge(rows, F, 1e-3)[0] - reference).max()
    assert change <= 10 * round_off * np.abs(reference).max()
    assert np.abs(ridge(rows, F, 0.0)[0] - svd).max() <= 100 * round_off * np.abs(svd).max()


@pytest.mark.parametrize("n, P", [(40, 10), (10, 40)])
def test_zero_lambda_is_the_minimum_norm_solution(n, P):
    rows, Phi, F = problem(n, P, kind=SigmoidFeatures)
    A, used = ridge(rows, F, 0.0)
    assert used == "svd"
    cut = max(n, P + 1) * EPS
    oracle = np.linalg.pinv(Phi, rcond=cut) @ F
    fitted, expected = Phi @ A, Phi @ oracle
    assert np.abs(fitted - expected).max() <= 1e-6
    assert np.linalg.norm(A) <= np.linalg.norm(oracle) * (1 + 1e-6)


def test_spectral_is_a_singular_value_decomposition_also_by_blocks(monkeypatch):
    rows, Phi, F = problem(300, 12)
    monkeypatch.setattr(_spectral, "_BLOCK", 50)
    hat = Spectral(rows).hat()
    expected = np.linalg.svd(Phi, compute_uv=False)
    assert np.allclose(np.sqrt(hat.squares), expected, rtol=0, atol=100 * EPS * expected[0])
    for regularization in (0.5, 1e-3):
        A = Spectral(rows, always=True).solve(F, regularization).coefficients
        exact = np.linalg.solve(Phi.T @ Phi + regularization * np.eye(13), Phi.T @ F)
        assert np.allclose(A, exact, atol=1e-11 / regularization)
        H = (hat.U * (hat.squares / (hat.squares + regularization))) @ hat.U.T
        assert np.allclose(H @ F, Phi @ exact, atol=1e-10)


@pytest.mark.parametrize("n, P, cholesky", [(50, 30, "cholesky"), (30, 50, "dual")])
def test_auto_leaves_cholesky_before_lambda_drowns_in_the_gram_matrix(n, P, cholesky):
    rows, Phi, F = problem(n, P)
    trace, norm = (Phi**2).sum(), np.linalg.norm(Phi - Phi.mean(axis=0), 2) ** 2
    assert ridge(rows, F, 9 * EPS * trace)[1] == "svd"
    assert ridge(rows, F, 11 * EPS * trace)[1] == "qr"
    for bias in (True, False):
        rows, _, _ = problem(n, P, bias=bias)
        assert ridge(rows, F, 0.99e6 * EPS * norm)[1] == "qr"
        assert ridge(rows, F, 1.01e6 * EPS * norm)[1] == cholesky


@pytest.mark.slow
@pytest.mark.parametrize("n, P", [(40, 25), (25, 40)])
@pytest.mark.parametrize("kind", [FourierFeatures, SigmoidFeatures])
def test_small_regularizations_are_right_to_1e_8_off_the_data_too(n, P, kind):
    """Beside 50 digits, which see the same features; Cholesky is off by up to 1e-4 there."""
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(size=(n, 2)), rng.uniform(-0.3, 1.3, size=(20, 2))
    features = kind(3.0, n_features=P, random_state=0).fit(X)
    F = np.column_stack([np.sin(3 * X[:, 0]), X.prod(axis=1)])
    with mpmath.workdps(50):
        Phi, there = (mpmath.matrix(features.transform(Y).tolist()) for Y in (X, Z))
        mean = [mpmath.fsum(Phi[:, k]) / n for k in range(P)]
        for M in (Phi, there):
            for i in range(M.rows):
                for k in range(P):
                    M[i, k] -= mean[k]
        dual = P > n
        G, field_mean = (Phi * Phi.T if dual else Phi.T * Phi), F.mean(axis=0)
        right = mpmath.matrix((F - field_mean).tolist())
        for regularization in (1e-8, 1e-10, 1e-12):
            lu, order = mpmath.mp.LU_decomp(G + mpmath.mpf(regularization) * mpmath.eye(G.rows))
            for j in range(2):
                b = right[:, j] if dual else Phi.T * right[:, j]
                x = mpmath.mp.U_solve(lu, mpmath.mp.L_solve(lu, b, order))
                exact = np.array((there * (Phi.T * x if dual else x)).tolist(), float)[:, 0] + field_mean[j]
                for solver in ("auto", "svd"):
                    A, used = ridge(FeatureRows(features, X, bias=False), F[:, j : j + 1], regularization, solver)
                    found = A[0] + features.transform(Z) @ A[1:, 0]
                    bound = 1e-8 if used in ("qr", "svd") else 1e-6
                    assert abs(found - exact).max() <= bound * abs(exact).max()
                    if regularization == 1e-12:
                        assert used in ("qr", "svd")


def test_explicit_cholesky_that_fails_names_lambda():
    X = np.zeros((6, 1))
    features = SigmoidFeatures(n_features=3, random_state=0).fit(X)
    with pytest.raises(np.linalg.LinAlgError, match=r"regularization \(lambda\) = 1e-18"):
        ridge(FeatureRows(features, X), np.ones((6, 2)), 1e-18, "cholesky")


def test_explicit_cholesky_accepts_a_well_conditioned_system_without_lambda():
    rows, Phi, F = problem(200, 5)
    A, used = ridge(rows, F, 0.0, "cholesky")
    assert used == "cholesky"
    assert np.allclose(
        A, np.linalg.lstsq(Phi, F, rcond=None)[0], atol=100 * EPS * np.linalg.cond(Phi) ** 2 * np.abs(A).max()
    )
