"""Squared distances and Gaussian kernels against plain NumPy."""

import multiprocessing
import subprocess
import sys
import textwrap
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import randsmap
from randsmap._linalg import distances as _distances
from randsmap._linalg.distances import (
    fill_pairs,
    gaussian_in_place,
    gaussian_kernel,
    kernel_sums,
    median_distance,
    median_of_squared,
    squared_distances,
)

from helpers import python
from oracles import AT_ITSELF, RADIAL

pytestmark = pytest.mark.kernels

EPS = np.finfo(np.float64).eps


def oracle(X, Z=None):
    """Direct differences, a row at a time."""
    X = np.asarray(X, dtype=np.longdouble if getattr(X, "dtype", None) == np.longdouble else np.float64)
    Z = X if Z is None else np.asarray(Z, dtype=np.float64)
    return np.array([((x - Z) ** 2).sum(axis=1) for x in X]).reshape(len(X), len(Z))


def check_close(D, expected, dim):
    # direct sums of dim squares lose at most about dim eps; the product form is used only where
    # D >= 2^-9 (|x|^2 + |z|^2), so its error of about 2 eps (|x|^2 + |z|^2) is below 2^10 eps D
    assert (abs(D - expected) <= (dim + 1024) * EPS * expected).all()


# dimensions on both sides of the change from differences to products; row counts on both sides of
# the panel, the tile, and the few rows that are handled by differences
@pytest.mark.parametrize("dim", [1, 2, 5, 16, 17, 40, 1000])
@pytest.mark.parametrize("n", [1, 2, 7, 9, 192, 193, pytest.param(600, marks=pytest.mark.slow)])
def test_symmetric(n, dim):
    X = np.random.default_rng(n + dim).normal(size=(n, dim)) + 3
    D = squared_distances(X)
    check_close(D, oracle(X), dim)
    assert np.array_equal(D, D.T) and (np.diag(D) == 0).all() and (D >= 0).all()
    assert np.array_equal(squared_distances(X, X.copy()), D)
    K = gaussian_kernel(X, epsilon=dim**0.5)
    assert np.array_equal(K, K.T) and (np.diag(K) == 1).all()
    # exponents up to about 20 with errors of (dim + 1024) eps relative at the very worst
    np.testing.assert_allclose(K, np.exp(-oracle(X) / dim), rtol=0, atol=(dim + 1024) * EPS)
    assert np.array_equal(gaussian_kernel(X, X.copy(), epsilon=dim**0.5), K)
    np.testing.assert_allclose(gaussian_in_place(D, dim**0.5), K, rtol=0, atol=(dim + 1024) * EPS)


@pytest.mark.parametrize("dim", [1, 16, 17, 700])
@pytest.mark.parametrize(
    "n, m", [(1, 5), (8, 700), (9, 513), (200, 3), pytest.param(400, 1100, marks=pytest.mark.slow)]
)
def test_rectangular(n, m, dim):
    rng = np.random.default_rng(n + m + dim)
    X, Z = rng.normal(size=(n, dim)) + 5, rng.normal(size=(m, dim)) + 5
    check_close(squared_distances(X, Z), oracle(X, Z), dim)
    K = gaussian_kernel(X, Z, epsilon=2 * dim**0.5)
    np.testing.assert_allclose(K, np.exp(-oracle(X, Z) / (4 * dim)), rtol=0, atol=(dim + 1024) * EPS)


def test_bits_do_not_depend_on_other_rows():
    """Few rows are packed themselves, for many the others are; and X itself is centred by other calls."""
    rng = np.random.default_rng(0)
    for dim in (17, 400, 900):
        X, Z = rng.normal(size=(500, dim)), rng.normal(size=(300, dim))
        for scale in (0.0, 1 / dim, 1e3):
            out = fill_pairs(X, Z, scale, np.empty((500, 300)))
            for n in (9, 40, 192, 193):
                assert np.array_equal(fill_pairs(X[:n], Z, scale, np.empty((n, 300))), out[:n])
    D = squared_distances(rng.normal(size=(250, 3000)))
    assert np.array_equal(D, D.T)


def test_instruction_levels(level, tmp_path):
    """Each level has its own compiled loops."""
    code = """
import sys, numpy as np
from randsmap._linalg.distances import squared_distances, gaussian_kernel
X = np.load(sys.argv[1])
for dim in (3, 50):
    part = X[:, :dim].copy()
    D, K = squared_distances(part), gaussian_kernel(part, epsilon=7.0)
    R = ((X[:, None, :dim] - X[None, :, :dim]) ** 2).sum(axis=2)
    assert np.array_equal(D, D.T) and not np.diag(D).any()
    assert abs(D - R).max() <= 1e-13 * R.max()
    assert abs(K - np.exp(-R / 49)).max() <= 1e-13
"""
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(210, 50)))
    python(code, tmp_path / "X.npy", level=level)


# -- cancellation, overflow --------------------------------------------------------------------------
def test_far_from_the_origin():
    A = np.array([[1e8], [1e8 + 1], [1e8 + 3]])
    expected = [[0, 1, 9], [1, 0, 4], [9, 4, 0]]
    assert np.array_equal(squared_distances(A), expected)


@pytest.mark.parametrize("dim", [3, 64])
def test_translation_outliers_and_scale(dim):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(230, dim)) * 1e-3
    X[5:60] = X[4] + 1e-9 * rng.normal(size=(55, dim))  # distances far below the spread
    X[60] = X[61]
    for shift in (0.0, 1.0, 1e6):
        Y = X + shift  # what rounding makes of them are the data
        check_close(squared_distances(Y), oracle(Y), dim)
    X[7] = 1e8  # an outlier moves the mean away from all others
    D = squared_distances(X)
    check_close(D, oracle(X), dim)
    assert D[60, 61] == 0
    K = gaussian_kernel(X, epsilon=1e-3)
    np.testing.assert_allclose(K, np.exp(-oracle(X) / 1e-6), rtol=0, atol=1e-12)


def test_numbers_at_the_ends_of_the_domain():
    X = np.zeros((30, 20))
    X[:, 0] = 1e139
    X[:, 1] = np.arange(30.0)
    assert np.array_equal(squared_distances(X), oracle(X))
    X[3, 0] = -1e140
    X[4, 0] = 1e140
    with np.errstate(over="ignore"):
        expected = oracle(X)
    D = squared_distances(X)
    np.testing.assert_allclose(D, expected, rtol=2 * np.finfo(float).eps)
    K = gaussian_kernel(X, epsilon=3.0)
    assert not np.isnan(K).any() and (K[3, :3] == 0).all()
    np.testing.assert_allclose(K, np.exp(-expected / 9), atol=1e-15)


def test_small_epsilon():
    """Exponents' errors are not those of squared norms 1e8 times larger than epsilon^2."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 50))
    X[1::2] = X[::2] + 1e-5 * rng.normal(size=(150, 50))
    np.testing.assert_allclose(gaussian_kernel(X, epsilon=1e-4), np.exp(-oracle(X) / 1e-8), rtol=1e-12, atol=1e-300)


def test_no_subnormal_values():
    X = np.sqrt(np.arange(600.0, 760.0))[:, None]
    K = gaussian_kernel(X, np.zeros((1, 1)), epsilon=1.0)[:, 0]
    assert ((K == 0) | (K >= 1e-300)).all()
    exact = np.exp(-(X[:, 0] ** 2))
    np.testing.assert_allclose(K, np.where(exact < 1e-300, 0, exact), rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 30),
    st.integers(1, 24),
    st.sampled_from([0, 1, 1e4, 1e8]),
    st.sampled_from([1e-12, 1e-3, 1, 1e5]),
    st.integers(0, 2**32 - 1),
)
def test_property(n, dim, offset, scale, seed):
    rng = np.random.default_rng(seed)
    X = offset + scale * rng.normal(size=(n, dim)).round(2)
    X[rng.integers(n)] = X[rng.integers(n)]
    D = squared_distances(X)
    check_close(D, oracle(X), dim)
    assert np.array_equal(D, D.T) and (np.diag(D) == 0).all()
    assert np.array_equal(squared_distances(X, X.copy()), D)
    Z = offset + scale * rng.normal(size=(7, dim))
    check_close(squared_distances(X, Z), oracle(X, Z), dim)


# -- radial kernels ----------------------------------------------------------------------------------
def radial_points():
    """Points X and Z, or None for X itself: both sides of panel and tile, all lanes, from direct sums to products."""
    rng = np.random.default_rng(0)
    for n, m, dim in ((1, 5, 2), (3, 1031, 2), (201, 40, 1), (9, 6, 16), (8, 30, 40), (201, 1031, 40)):
        spread = 10.0 ** rng.uniform(-6, 2.5, (n, 1))  # from nearly equal points to kernels that underflow
        X, Z = rng.normal(size=(n, dim)) * spread, rng.normal(size=(m, dim)) * spread[0]
        Z[::3] = X[:1]
        yield X, Z
    for n, dim in ((1, 2), (7, 2), (193, 3), (203, 16), (207, 17)):
        X = rng.normal(size=(n, dim)) * rng.choice([1e-3, 1.0, 30.0], (n, 1))
        X[n // 2 :: 5] = X[n // 2]
        yield X, None


@pytest.fixture(scope="module")
def radial(level, tmp_path_factory):
    """Kernels and slopes of `radial_points`, as one process at the level computes them."""
    folder = tmp_path_factory.mktemp(level)
    points = list(radial_points())
    np.savez(
        folder / "given.npz",
        **{f"{side}{i}": A for i, pair in enumerate(points) for side, A in zip("XZ", pair) if A is not None},
    )
    code = """
import sys, numpy as np
from randsmap._kernels import distances
from randsmap._linalg.distances import fill_pairs
given, results = np.load("given.npz"), {}
for i in range(int(sys.argv[1])):
    X, Z = given[f"X{i}"], given[f"Z{i}"] if f"Z{i}" in given else None
    for name, scale in zip(sys.argv[2::2], sys.argv[3::2]):
        for slopes in (False, True):
            out = np.full((len(X), len(X if Z is None else Z)), np.nan)
            results[f"{name}{i}{slopes}"] = fill_pairs(X, Z, float(scale), out, getattr(distances, name), slopes)
np.savez("results.npz", **results)
"""
    python(code, len(points), *(v for name in RADIAL for v in (name, RADIAL[name][0])), level=level, cwd=folder)
    results = np.load(folder / "results.npz")
    return [
        (X, Z, {k: results[f"{k[0]}{i}{k[1]}"] for k in product(RADIAL, (False, True))})
        for i, (X, Z) in enumerate(points)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("slopes", [False, True])
@pytest.mark.parametrize("name", RADIAL)
def test_radial_kernels(radial, name, slopes):
    scale, function = np.longdouble(RADIAL[name][0]), RADIAL[name][1 + slopes]
    for X, Z, results in radial:
        got, dim = results[name, slopes], X.shape[1]
        t = scale * oracle(X.astype(np.longdouble), Z)
        distinct = t > 0
        itself = AT_ITSELF[name][slopes]
        assert (np.abs(got[~distinct] - itself) <= 2 * slopes * EPS * abs(itself)).all()
        t, values = t[distinct], got[distinct]
        exact = function(t) * (scale if slopes else 1)
        # what a relative error of t does to the result, by differences
        condition = np.abs(function(t * (1 + 1e-6)) * (scale if slopes else 1) - exact) / 1e-6
        error_of_t = dim + 3 + 1024 * (dim > 16)
        if dim > 16 and name == "GAUSSIAN" and not slopes:  # its exponents have an error of their own
            condition += np.abs(exact) * 1024
        limit = 1e-300 * (abs(itself) or 1)
        small, near = np.abs(exact) < limit, (np.abs(exact) > 0.999 * limit) & (np.abs(exact) < 1.001 * limit)
        assert (values[small & ~near] == 0).all()
        assert ((values == 0) | (np.abs(values) > 0.999 * limit)).all()
        wrong = np.abs(values - exact) > (error_of_t * condition + 8 * np.abs(exact)) * EPS
        assert not wrong[~small & ~near].any()
        if Z is None:
            assert np.array_equal(got, got.T)


@pytest.mark.parametrize("name", RADIAL)
def test_radial_kernels_of_extreme_distances(name):
    """Squared distances that are subnormal, or overflow."""
    X, Z = np.zeros((1, 1)), np.array([[0.0], [1e-162], [1e-155], [1e-100], [1e155], [1e170]])
    kernel = getattr(_distances._kernels, name)
    K = _distances.fill_pairs(X, Z, 1.0, np.empty((1, 6)), kernel)[0]
    expected = [0, 0, 0, -100 * np.log(10) * 1e-200, np.inf, np.inf] if name == "THIN_PLATE" else [1, 1, 1, 1, 0, 0]
    np.testing.assert_allclose(K, expected, rtol=1e-13)
    slopes = _distances.fill_pairs(X, Z, 1.0, np.empty((1, 6)), kernel, slopes=True)[0]
    assert not np.isnan(slopes).any()


# -- input -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dim", [6, 30])
def test_arguments_are_not_changed_and_may_be_read_only(dim):
    X = np.random.default_rng(0).normal(size=(40, dim))
    before = X.copy()
    X.setflags(write=False)
    squared_distances(X, X[:3])
    gaussian_kernel(X, epsilon=1.0)
    assert np.array_equal(X, before)


def test_widths_out_of_range_and_no_points():
    X = np.zeros((3, 2))
    for epsilon in (0, -1, np.nan, np.inf, 1e-200, 1e200):
        with pytest.raises(ValueError, match="epsilon"):
            gaussian_kernel(X, epsilon=epsilon)
    assert squared_distances(np.empty((0, 2)), X).shape == (0, 3)
    assert squared_distances(X, np.empty((0, 2))).shape == (3, 0)


# -- weighted sums, median ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "n, m, dim, n_sums", [(1, 700, 40, 3), (8, 20, 3, 1), (500, 700, 40, 6), (193, 1030, 300, 2), (0, 5, 4, 2)]
)
def test_kernel_sums(n, m, dim, n_sums):
    rng = np.random.default_rng(0)
    X, Z, weights = rng.normal(size=(n, dim)), rng.normal(size=(m, dim)), rng.normal(size=(n_sums, m))
    sums = kernel_sums(X, _distances.centred_points(Z), weights, dim**0.5)
    expected = np.exp(-oracle(X, Z) / dim) @ weights.T
    assert sums.shape == (n, n_sums)
    np.testing.assert_allclose(sums, expected, rtol=0, atol=m * dim * EPS)


@pytest.mark.parametrize("n", [2, 3, 4, 100, 401, 500])
def test_median(n):
    rng = np.random.default_rng(n)
    for X in (
        rng.normal(size=(n, 3)),
        np.repeat(rng.normal(size=(n, 3)), 2, axis=0)[:n],
        rng.integers(0, 3, size=(n, 2)).astype(float),
        np.eye(n),
    ):
        D = squared_distances(X)
        expected = np.median(np.sqrt(D[np.triu_indices(n, 1)]))
        assert median_of_squared(D) == pytest.approx(expected, rel=2 * EPS)


def test_sampled_median():
    X = np.random.default_rng(0).normal(size=(1000, 20))
    exact = median_distance(X)
    sampled = median_distance(X, exact_rows=999)
    # density of the distances at the median, from their standard deviation of about 1:
    # 0.4, so that the sample's median has a deviation of 0.5 / 0.4 / sqrt(pairs); 5 of them
    assert 0 < abs(sampled - exact) < 5 * 1.25 / _distances.MEDIAN_SAMPLED_PAIRS**0.5
    assert sampled == median_distance(X, exact_rows=999)


# -- threads, processes ------------------------------------------------------------------------------
@pytest.mark.parametrize("dim", [4, 100])
def test_same_bits_for_any_number_of_threads(dim):
    X = np.random.default_rng(0).normal(size=(900, dim))
    results = []
    for count in (1, 2, 5):
        randsmap.set_num_threads(count)
        try:
            results.append((squared_distances(X), gaussian_kernel(X, X[:300], epsilon=2.0)))
        finally:
            randsmap.set_num_threads(None)
    for D, K in results[1:]:
        assert np.array_equal(D, results[0][0]) and np.array_equal(K, results[0][1])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(method, tmp_path):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this platform")
    script = tmp_path / "processes.py"
    script.write_text(
        textwrap.dedent(f"""
        import multiprocessing
        import numpy as np
        import randsmap
        from randsmap._linalg.distances import squared_distances

        def work(seed):
            X = np.random.default_rng(seed).normal(size=(600, 50))
            encoder = randsmap.DiffusionMaps(2).fit(X[:100])
            return squared_distances(X).sum(), encoder.transform(X).sum()

        if __name__ == "__main__":
            randsmap.set_num_threads(2)
            squared_distances(np.random.default_rng(0).normal(size=(2000, 50)))
            expected = [work(seed) for seed in range(4)]
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                got = pool.map(work, range(4))
            assert np.allclose(got, expected, rtol=1e-12), (got, expected)
    """)
    )
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(script)], check=True, timeout=60, cwd=tmp_path
    )


@pytest.mark.slow
def test_joblib_memory_maps():
    from joblib import Parallel, delayed

    X = np.random.default_rng(0).normal(size=(3000, 50))  # above joblib's 1 MB: memory-mapped
    kernels = Parallel(n_jobs=2)(delayed(squared_distances)(X, X[:20]) for _ in range(2))
    assert all(np.array_equal(D, squared_distances(X, X[:20])) for D in kernels)


@pytest.mark.parametrize("n, p", [(1, 2), (7, 4), (403, 2), (1001, 8)])
def test_symmetric_product_reads_the_upper_triangle(n, p):
    rng = np.random.default_rng(0)
    K, X = rng.random((n, n)), rng.standard_normal((p, n))
    symmetric = np.triu(K) + np.triu(K, 1).T
    K[np.tril_indices(n, -1)] = np.nan
    # n products of numbers up to about 5
    np.testing.assert_allclose(
        _distances.symmetric_product(K, X), X @ symmetric, rtol=0, atol=8 * n * np.finfo(float).eps
    )


@pytest.mark.parametrize(
    "n, m, dim", [(500, 1300, 3), pytest.param(500, 1300, 40, marks=pytest.mark.slow), (5, 300, 40), (0, 300, 3)]
)
def test_pairs_within_reach(n, m, dim):
    rng = np.random.default_rng(0)
    X, Z = rng.random((n, dim)), rng.random((m, dim))
    exact = ((X[:, None] - Z[None]) ** 2).sum(axis=2)
    x_reach, z_reach = np.quantile(exact, [0.01, 0.05]) if n else (1.0, 1.0)
    x_reach, z_reach = x_reach * rng.random(n), z_reach * rng.random(m)
    x_reach[::7] = np.inf  # more than the buffer holds at first
    z_reach[0] = -1
    i, j, d = _distances.pairs_within(X, _distances.centred_points(Z), x_reach, z_reach)
    expected = np.nonzero((exact <= x_reach[:, None]) | (exact <= z_reach))
    assert np.array_equal(i, expected[0]) and np.array_equal(j, expected[1])
    np.testing.assert_allclose(d, exact[expected], rtol=1e-12)
