"""Double diffusion maps and kernel decoders: the formulas, the limits of random features, edges."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import randsmap
from randsmap import DoubleDiffusionMapsDecoder, FourierFeatures, KernelDecoder, MultiscaleFourierFeatures, RFNNDecoder
from randsmap._linalg import distances as _distances
from randsmap._linalg import svd
from randsmap.maps import linear_map as _linear_map

from helpers import python
from helpers import random_problem as problem
from helpers import squared_distances as squared
from oracles import multi_gaussian

PAPER = dict(center=False, latent_scale=None)  # the paper's form
PLAIN = dict(PAPER, invariants=None)

pytestmark = pytest.mark.kernels

DDM = DoubleDiffusionMapsDecoder
EPS = np.finfo(float).eps


# -- Double diffusion maps -------------------------------------------------------------------------


def plain_ddm(Y, F, Z, epsilon, rank="rule"):
    """The paper's formula by a full eigenvalue decomposition; fields, rank, bound of round-off."""
    n = len(Y)
    K = np.exp(-squared(Y, Y) / epsilon**2)
    lam, V = scipy.linalg.eigh(K)
    lam, V = lam[::-1], V[:, ::-1]
    r = int((lam > n * lam[0] * 2.0**-53 * lam[0]).sum()) if rank == "rule" else rank
    A = V[:, :r] @ ((V[:, :r].T @ F) / lam[:r, None])
    k = np.exp(-squared(Z, Y) / epsilon**2)
    # the kernel matrix has an error of n eps lambda_1; so small a gap does not fix the modes kept
    error = n * EPS * lam[0]
    gap = lam[r - 1] - lam[r] if r < n else lam[r - 1]
    return k @ A, r, np.abs(F).max() * error / max(gap, error)


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("n", [30, 150, pytest.param(400, marks=pytest.mark.slow)])
def test_ddm_is_the_papers_formula(epsilon, n):
    Y, F = problem(n)
    Z = np.random.default_rng(1).uniform(-0.1, 1.1, size=(70, 2))
    expected, r, bound = plain_ddm(Y, F, Z, epsilon, rank=8)
    decoder = DDM(epsilon=epsilon, rank=8, **PLAIN).fit(Y, F)
    assert decoder.rank_ == 8 and decoder.coef_.shape == (9, 30)
    assert np.abs(decoder.predict(Z) - expected).max() <= 10 * bound
    decoder = DDM(epsilon=epsilon, **PLAIN).fit(Y, F)
    expected, r, bound = plain_ddm(Y, F, Z, epsilon)
    lam = decoder.eigenvalues_
    assert lam[-1] > n * lam[0] ** 2 * 2.0**-53
    assert abs(decoder.rank_ - r) <= 1  # an eigenvalue may lie on the threshold to round-off
    if decoder.rank_ == r:
        assert np.abs(decoder.predict(Z) - expected).max() <= 10 * bound


def test_ddm_at_full_rank_is_kernel_interpolation():
    Y, F = problem(80)
    Z = np.random.default_rng(1).uniform(size=(50, 2))
    epsilon = 0.05
    decoder = DDM(epsilon=epsilon, rank=80, **PLAIN).fit(Y, F)
    assert decoder.rank_ == 80
    K = np.exp(-squared(Y, Y) / epsilon**2)
    bound = 100 * EPS * np.linalg.cond(K)
    assert bound < 1e-9
    assert np.abs(decoder.predict(Y) - F).max() <= bound
    interpolant = np.exp(-squared(Z, Y) / epsilon**2) @ np.linalg.solve(K, F)
    assert np.abs(decoder.predict(Z) - interpolant).max() <= bound
    again = KernelDecoder(length_scale=epsilon / np.sqrt(2), regularization=0.0, **PLAIN).fit(Y, F)
    assert np.abs(again.predict(Y) - F).max() <= bound


def test_interpolation_hits_its_nodes_the_last_too():
    Y, F = np.linspace(0, 1, 6)[:, None], np.random.default_rng(0).normal(size=(6, 4))
    assert np.allclose(DDM(epsilon=0.3).fit(Y, F).predict(Y), F, rtol=0, atol=1e-12)
    decoder = KernelDecoder(length_scale=0.3, regularization=0.0).fit(Y, F)
    assert np.allclose(decoder.predict(Y), F, rtol=0, atol=1e-9)


def test_ddm_averages_duplicates():
    Y, F = np.array([[0.0], [0.0], [1.0]]), np.eye(3)
    decoder = DDM(epsilon=1.0, **PLAIN).fit(Y, F)
    assert decoder.rank_ == 2  # the third eigenvalue is 0, computed as -2e-16
    assert np.allclose(decoder.predict([[0.0]]), [[0.5, 0.5, 0]], rtol=0, atol=1e-12)
    assert np.allclose(decoder.predict([[1.0]]), [[0, 0, 1]], rtol=0, atol=1e-12)
    assert abs(decoder.predict([[0.5]]).sum() - 1.13869798703) < 1e-9
    assert DDM(epsilon=1.0, rank=3, **PLAIN).fit(Y, F).rank_ == 2
    mean = KernelDecoder(regularization=0.0, **PLAIN).fit(Y, F).predict(Y)
    assert np.allclose(mean, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("copies", [2, 10])
def test_many_duplicates_are_the_averaged_data(copies):
    Y, F = problem(40)
    noise = np.random.default_rng(2).normal(size=(copies, 40, 30)) * 0.01
    noise -= noise.mean(axis=0)
    single = DDM(epsilon=0.1, rank=20, **PLAIN).fit(Y, F)
    repeated = DDM(epsilon=0.1, rank=20, **PLAIN).fit(np.tile(Y, (copies, 1)), (F + noise).reshape(-1, 30))
    assert np.allclose(repeated.eigenvalues_, copies * single.eigenvalues_, rtol=1e-10)
    assert np.allclose(repeated.predict(Y + 0.01), single.predict(Y + 0.01), rtol=0, atol=1e-10)


def test_latents_that_all_coincide():
    Y, F = np.zeros((5, 2)), np.random.default_rng(0).uniform(size=(5, 3))
    assert np.allclose(DDM(epsilon=1.0).fit(Y, F).predict(Y), F.mean(axis=0), rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="median distance between samples is 0.*give epsilon"):
        DDM().fit(Y, F)
    fields = KernelDecoder(regularization=0.0).fit(Y, F).predict(Y)
    assert np.allclose(fields, F.mean(axis=0), rtol=0, atol=1e-14)


@pytest.mark.parametrize("d", [1, 2, 20])
def test_queries_beyond_the_kernels_reach(d):
    Y, F = problem(50, d=d)
    F = 0.875 * np.insert(F[:, 1:] / F[:, 1:].sum(axis=1, keepdims=True), 3, 0.125 / 0.875, axis=1)
    far = np.vstack([Y + 1e3, np.full((20, d), 1e100), np.full((1, d), -1e139)])
    plain = DDM(**PLAIN).fit(Y, F)
    for X in (far, far[:1], far[-1:]):
        fields = plain.predict(X)
        assert (np.delete(fields, 3, axis=1) == 0).all() and (fields[:, 3] == 0.125).all()
        exact = DDM(invariants="mass", **PAPER).fit(Y, F)
        fields = exact.predict(X)
        share = (exact.invariant_values_[0] - 0.125) / 29
        assert np.allclose(np.delete(fields, 3, axis=1), share, rtol=1e-14)
        for decoder in (
            KernelDecoder(length_scale=0.2, **PLAIN),
            KernelDecoder("multi-gaussian", max_frequency=5.0, min_frequency=1.0, **PLAIN),
        ):
            fields = decoder.fit(Y, F).predict(X)
            assert np.allclose(fields, decoder.coef_[0], rtol=0, atol=1e-3 if X is far else 1e-2)


def test_median_width_given_explicitly_changes_nothing():
    Y, F = problem()
    a = DDM(epsilon_scale=0.7, **PLAIN).fit(Y, F)
    pairs = np.sqrt(squared(Y, Y)[np.triu_indices(60, 1)])
    assert np.isclose(a.epsilon_, 0.7 * np.median(pairs), rtol=1e-14)
    b = DDM(epsilon=a.epsilon_, **PLAIN).fit(Y, F)
    assert a.rank_ == b.rank_ and np.allclose(a.predict(Y), b.predict(Y), rtol=0, atol=1e-9)


def test_ddm_with_few_cells_uses_the_product():
    Y, F = problem(60)
    few, many = DDM(rank=30).fit(Y, F[:, :5]), DDM(rank=30).fit(Y, np.tile(F, 10))
    assert few._fitted.weights is None and many._fitted.weights is not None
    assert np.allclose(few.predict(Y), many.predict(Y)[:, :5], rtol=0, atol=1e-8)


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.floats(0.01, 10), st.integers(1, 5))
@settings(deadline=None, max_examples=40)
def test_leading_modes_are_those_of_the_matrix(seed, n, epsilon, copies):
    rng = np.random.default_rng(seed)
    Y = np.tile(rng.uniform(size=(n, 2)), (copies, 1))
    K = np.exp(-squared(Y, Y) / epsilon**2)
    lam, V = svd.pivoted_cholesky(K)
    s, n = len(lam), len(K)
    bound = 10 * n * EPS * lam[0]
    assert (np.diff(lam) <= 0).all()
    assert np.abs(lam - np.linalg.eigvalsh(K)[::-1][:s]).max() <= bound
    assert np.abs(V.T @ V - np.eye(s)).max() <= 10 * n * EPS
    assert np.abs(K @ V - V * lam).max() <= bound
    assert np.linalg.norm(K - (V * lam) @ V.T, 2) <= bound


# -- Kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "low, high", [(0.0, 1.0), (1e-3, 20.0), (1e-3, 300.0), (0.999, 1.0), (1 - 1e-9, 1.0), (3.0, 4.0)]
)
def test_multi_gaussian_kernel_against_high_precision(low, high):
    D = 10.0 ** np.random.default_rng(0).uniform(-12, 4, 200)
    found, r = D.copy(), np.sqrt(D)
    _distances.multi_gaussian_in_place(found, low, high)
    exact = np.array([float(multi_gaussian(x, low, high)[0]) for x in D])
    # the exponent of the slowest Gaussian, (low r)^2 / 2, carries its rounding into the value
    bound = (12 + 2 * (low * r) ** 2) * EPS * exact
    normal = exact > 1e-299
    assert (np.abs(found - exact) <= bound)[normal].all()
    assert (found[~normal] <= 1e-298).all()


def test_multi_gaussian_kernel_at_every_instruction_level(level):
    code = """
import numpy as np
from scipy.special import erf
from randsmap._linalg import distances as _distances
r = np.linspace(0.5, 9, 5003); found = r**2
_distances.multi_gaussian_in_place(found, 0.01, 4.0)
exact = np.sqrt(np.pi / 2) * (erf(4 * r / 2**.5) - erf(.01 * r / 2**.5)) / (r * 3.99)
assert (abs(found - exact) <= 4e-15 * exact).all()
"""
    python(code, level=level)


def test_multi_gaussian_kernel_at_the_ends():
    D = np.array([[0.0, 1e-320, np.inf, 1e300, 1e-12]])
    _distances.multi_gaussian_in_place(D, 0.5, 2.0)
    series = 1 - 1e-12 * (2.0**2 + 2.0 * 0.5 + 0.5**2) / 6
    assert np.array_equal(D[0, :4], [1, 1, 0, 0]) and abs(D[0, 4] - series) <= EPS
    D = np.array([np.inf, 1e300, 4.0])
    _distances.multi_gaussian_in_place(D, 0.0, 2.0)
    assert D[0] == 0 and np.isclose(D[1], np.sqrt(np.pi / 2) / 2e150, rtol=1e-14)


def plain_kernel_ridge(K, K_new, F, regularization):
    """Dual ridge regression with a penalised bias: the kernel is 1 + k."""
    return (K_new + 1) @ np.linalg.solve(K + 1 + regularization * np.eye(len(K)), F)


@pytest.mark.parametrize("d, length_scale", [(1, 0.2), (2, 0.3), (2, [0.2, 3.0]), (20, 1.5)])
@pytest.mark.parametrize("regularization", [1e-6, 1e-3, 1.0])
def test_gaussian_decoder_is_kernel_ridge_with_a_penalised_bias(d, length_scale, regularization):
    Y, F = problem(100, d=d)
    Z = np.random.default_rng(1).uniform(-0.2, 1.2, size=(90, d))
    K = np.exp(-squared(Y / length_scale, Y / length_scale) / 2)
    K_new = np.exp(-squared(Z / length_scale, Y / length_scale) / 2)
    decoder = KernelDecoder(length_scale=length_scale, regularization=regularization, **PLAIN).fit(Y, F)
    assert decoder.solver_ == "cholesky" and decoder.coef_.shape == (101, 30)
    expected = plain_kernel_ridge(K, K_new, F, regularization)
    bound = 10 * 100 * EPS * 200 / regularization
    assert np.abs(decoder.predict(Z) - expected).max() <= bound
    one = np.vstack([decoder.predict(z[None]) for z in Z])
    assert np.abs(one - expected).max() <= bound


def relative_difference(A, B):
    return np.linalg.norm(A - B) / np.linalg.norm(B)


def slope(counts, errors):
    return np.polyfit(np.log(counts), np.log(errors), 1)[0]


COUNTS = [64, 256, 1024, 4096]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, dict(paired=True), dict(orthogonal=True), dict(paired=True, orthogonal=True)], ids=str
)
def test_fourier_fields_converge_to_the_gaussian_decoder(options):
    Y, F = problem(80)
    Z = np.random.default_rng(1).uniform(size=(40, 2))
    regularization = 0.1 * np.linalg.norm(np.exp(-squared(Y, Y) / (2 * 0.3**2)), 2)
    limit = KernelDecoder(length_scale=0.3, regularization=regularization).fit(Y, F).predict(Z)
    errors = [
        np.sqrt(
            np.mean(
                [
                    relative_difference(
                        RFNNDecoder(
                            FourierFeatures(0.3, n_features=P, **options),
                            random_state=seed,
                            regularization=regularization,
                        )
                        .fit(Y, F)
                        .predict(Z),
                        limit,
                    )
                    ** 2
                    for seed in range(12)
                ]
            )
        )
        for P in COUNTS
    ]
    assert -0.6 < slope(COUNTS, errors) < -0.4


@pytest.mark.slow
@pytest.mark.parametrize("Q", ["P", 10])
def test_multiscale_fields_converge_to_their_kernel(Q):
    """With a scale for each feature to the multi-Gaussian (Theorem 1), ten: their mixture."""
    Y, F = problem(80)
    Z = np.random.default_rng(1).uniform(size=(40, 2))
    low, high = 1e-3, 8.0
    decoder = KernelDecoder("multi-gaussian", max_frequency=high, min_frequency=low, **PLAIN).fit(Y, F)
    norm = np.linalg.norm(decoder._fitted.radial.values(Y), 2)
    decoder.set_params(regularization=0.1 * norm)
    theorem = decoder.fit(Y, F).predict(Z)

    def error(P, seed):
        features = MultiscaleFourierFeatures(high, min_frequency=low, n_scales=P if Q == "P" else Q, n_features=P)
        fitted = RFNNDecoder(features, random_state=seed, regularization=0.1 * norm, **PAPER).fit(Y, F)
        limit = theorem
        if Q == 10:
            scales = fitted.features_.scales_
            mixture = [np.mean([np.exp(-(s**2) * squared(A, Y) / 2) for s in scales], axis=0) for A in (Y, Z)]
            limit = plain_kernel_ridge(*mixture, F, 0.1 * norm)
        fields = fitted.predict(Z)
        return relative_difference(fields, limit) ** 2, relative_difference(fields, theorem) ** 2

    errors, to_theorem = np.sqrt([np.mean([error(P, seed) for seed in range(12)], axis=0) for P in COUNTS]).T
    if Q == 10:
        assert to_theorem[-1] > 1.1 * errors[-1]
    assert -0.6 < slope(COUNTS, errors) < -0.4


@pytest.mark.parametrize(
    "decoder", [KernelDecoder(length_scale=0.2), KernelDecoder("multi-gaussian", max_frequency=10.0)], ids=str
)
def test_singular_kernels_have_a_minimum_norm_solution(decoder):
    Y, F = problem(60)
    Y, F = np.vstack([Y, Y]), np.vstack([F, F + 0.01])
    fields = []
    for regularization in (0.0, 1e-18, 1e-10):
        decoder = clone(decoder).set_params(regularization=regularization).fit(Y, F)
        assert decoder.solver_ == "eigenvalues"
        fields.append(decoder.predict(Y[:60]))
        assert np.abs(fields[-1] - (F[:60] + 0.005)).max() < 1e-4
    assert np.array_equal(fields[0], fields[1]) or np.allclose(fields[0], fields[1], atol=1e-9)


# -- Tiles, threads, memory ------------------------------------------------------------------------


ALL = [
    DDM(),
    DDM(epsilon_scale=0.05),
    KernelDecoder(length_scale=0.2),
    KernelDecoder("multi-gaussian", max_frequency=9.0),
]


@pytest.mark.parametrize("decoder", ALL)
def test_tiles_and_threads_do_not_change_the_fields(decoder, monkeypatch):
    Y, F = problem(150)
    X = np.random.default_rng(3).uniform(size=(700, 2))
    fitted = clone(decoder).fit(Y, F)
    whole = fitted.predict(X)
    for threads in (1, 3):
        randsmap.set_num_threads(threads)
        try:
            assert np.array_equal(fitted.predict(X), whole)
        finally:
            randsmap.set_num_threads(None)
    size = np.abs(fitted.coef_).sum(axis=0).max()
    if fitted.coef_.shape[0] != 151:
        size = 150 / fitted.eigenvalues_[-1]
    monkeypatch.setattr(_linear_map, "TILE_ENTRIES", 1)
    assert np.abs(fitted.predict(X) - whole).max() <= 100 * EPS * size
    for part in (slice(0, 1), slice(5, 17), slice(100, 113)):
        assert np.abs(fitted.predict(X[part]) - whole[part]).max() <= 100 * EPS * size


@pytest.mark.parametrize("decoder", ALL[::2] + ALL[3:])
def test_the_kernel_of_all_queries_is_never_stored(decoder):
    rng = np.random.default_rng(0)
    Y, F = rng.uniform(size=(1000, 2)), rng.uniform(size=(1000, 3))
    fitted = clone(decoder).fit(Y, F)
    X, out = rng.uniform(size=(20_000, 2)), np.empty((20_000, 3))
    tracemalloc.start()
    try:
        fitted.predict(X, out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # two tiles a thread (distances, harmonics) of 16 MB; the kernel would take 160 MB
    assert peak < 100e6


# -- Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decoder, error, message",
    [
        (DDM(epsilon=0.0), ValueError, "epsilon must be finite and > 0, got 0.0"),
        (DDM(epsilon=np.nan), ValueError, "epsilon must be"),
        (DDM(epsilon_scale=-1.0), ValueError, "epsilon_scale must be finite and > 0, got -1.0"),
        (DDM(rank="all"), ValueError, "rank must be one of 'rule', got 'all'"),
        (DDM(rank=0), ValueError, "rank must be at least 1, got 0"),
        (DDM(rank=61), ValueError, r"rank must be at most n_samples, got 61 \(n_samples is 60\)"),
        (DDM(rank=2.5), TypeError, "rank must be an integer, got 2.5"),
        (KernelDecoder("cauchy"), ValueError, "kernel must be one of 'gaussian', 'multi-gaussian'"),
        (KernelDecoder(length_scale=0.0), ValueError, "length_scale must be finite and > 0"),
        (KernelDecoder(length_scale=[1.0, 0.0]), ValueError, "length_scale must be > 0 in each"),
        (KernelDecoder(length_scale=[1.0] * 3), ValueError, "length_scale must have length 2, got 3"),
        (KernelDecoder(regularization=-1e-3), ValueError, "regularization must be finite and >= 0"),
        (KernelDecoder("multi-gaussian", max_frequency=1e-3), ValueError, "above min_frequency"),
        (KernelDecoder("multi-gaussian", min_frequency=-1.0), ValueError, "min_frequency must be"),
        (KernelDecoder("multi-gaussian", length_scale=-5), ValueError, "length_scale is not read .*got -5"),
        (KernelDecoder("multi-gaussian", length_scale=[1.0, 1.0]), ValueError, "length_scale is not read"),
        (KernelDecoder(max_frequency=-1), ValueError, "max_frequency is not read .*got -1"),
        (KernelDecoder(min_frequency=np.nan), ValueError, "min_frequency is not read .*got nan"),
        (KernelDecoder(invariants="momentum"), ValueError, "invariants must be 'auto', 'mass', None or"),
        (KernelDecoder(invariants=None, invariant_values=1.0), ValueError, "invariant_values given without invariants"),
    ],
)
def test_bad_parameters_leave_the_estimator_unfitted(decoder, error, message):
    decoder = clone(decoder)
    with pytest.raises(error, match=message):
        decoder.fit(*problem())
    assert not [name for name in vars(decoder) if name.endswith("_")]


@pytest.mark.parametrize("decoder", ALL)
def test_failed_fit_leaves_the_estimator_as_it_was(decoder):
    Y, F = problem()
    fitted = clone(decoder).fit(Y, F)
    expected, state = fitted.predict(Y), set(vars(fitted))
    bad = F.copy()
    bad[3, 1] = np.nan
    for A, B in ((Y, bad), (Y[:-1], F), (Y[:1], F[:1]), (Y[:, :0], F), (Y, F[:, :0])):
        with pytest.raises(ValueError):
            fitted.fit(A, B)
    assert set(vars(fitted)) == state and np.array_equal(fitted.predict(Y), expected)


@pytest.mark.parametrize(("kernel", "degree"), [("matern", 1), ("thin-plate", 1), ("gaussian", 0)])
def test_kernels_at_some_points_are_least_squares_over_all(kernel, degree):
    Y, F, Z = problem(60, 7, 2, seed=3)[:2] + (np.random.default_rng(0).uniform(-1, 1, (5, 2)),)
    decoder = KernelDecoder(kernel, degree=degree, n_centers=20, regularization=1e-3, invariants=None).fit(Y, F)
    fit = decoder.fitted
    centers = fit.training_points
    assert len(centers) == 20 and decoder.solver_ == "sums"
    # C = N a: of thin plates the sums with the tail at the centres are 0
    N = scipy.linalg.null_space(fit.tail(centers).T)
    root = np.sqrt(1e-3) * scipy.linalg.cholesky(N.T @ fit.kernel(centers) @ N + 1e-13 * np.eye(N.shape[1]))
    K, T = fit.kernel(Y) @ N, fit.tail(Y)
    A = np.block([[T, K], [np.zeros((len(root), T.shape[1])), root]])
    found = np.linalg.lstsq(A, np.vstack([F, np.zeros((len(root), F.shape[1]))]), rcond=None)[0]
    want = np.hstack([fit.tail(Z), fit.kernel(Z) @ N]) @ found
    # sums of products lose the square of the condition, sqrt(|K|^2 / lambda) = 1e3
    assert np.abs(decoder.predict(Z) - want).max() < 1e-8 * np.abs(F).max()
    assert np.abs(decoder.smoother(Y, Z) @ F - want).max() < 1e-8 * np.abs(F).max()
    assert np.array_equal(
        clone(decoder).set_params(n_centers=60).fit(Y, F).coef_,
        clone(decoder).set_params(n_centers=None).fit(Y, F).coef_,
    )
    with pytest.raises(ValueError, match="n_centers=20 accepts no sample_weight"):
        clone(decoder).fit(Y, F, sample_weight=np.arange(1, 61))
    with pytest.raises(ValueError, match="spectrum needs kernels at all samples, got n_centers=20"):
        decoder.spectrum(Y)
    with pytest.raises(AttributeError, match="no cross-validation errors in closed form"):
        decoder.predict(Z, return_error=True)
    with pytest.raises(AttributeError, match="no cross-validation errors .*calibrate"):
        fit.left_out(F)


@pytest.mark.parametrize("length_scale", [1e-3, 1.0, 1e5])
def test_a_tail_beside_kernels_at_some_points_is_not_penalised(length_scale):
    Y = np.column_stack([np.random.default_rng(0).uniform(-1, 1, (60, 2)), np.full(60, 0.1), np.zeros(60)])
    options = {"length_scale": length_scale, "degree": 1, "latent_scale": None, "invariants": None, "n_centers": 20}
    F = 1 + Y[:, :2] @ [[1.0, -2.0, 0.5], [3.0, 1.0, 0.0]]
    decoder = KernelDecoder("thin-plate", **options).fit(Y, F)
    assert np.abs(decoder.predict(Y) - F).max() < 1e-9
    beside = decoder.predict(Y + [0, 0, 1e-3, 1e-3])  # in directions that no latent point spans
    assert np.abs(beside - F).max() < 1e-2


def test_one_dimensional_fields_stay_one_dimensional():
    Y, F = problem()
    for decoder in ALL:
        single = clone(decoder).fit(Y, F[:, 3])
        assert single.predict(Y).shape == (60,)
        assert np.array_equal(single.predict(Y), clone(decoder).fit(Y, F[:, 3:4]).predict(Y)[:, 0])
