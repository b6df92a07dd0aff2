"""Exact nearest neighbours against a plain NumPy search: the same bits, whatever the path."""

import pickle

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import randsmap
from randsmap._linalg import large_graphs as _projected
from randsmap._linalg import neighbors as _neighbors
from randsmap._linalg.large_graphs import ProjectedNeighbors, neighbor_index
from randsmap._linalg.neighbors import NeighborIndex

from helpers import python
from oracles import brute_force

pytestmark = pytest.mark.kernels


def check(points, queries, k, index=None):
    distances, indices = (index or NeighborIndex(points)).query(np.ascontiguousarray(queries), k)
    expected = brute_force(points, queries, k)
    np.testing.assert_array_equal(distances, expected[0])
    np.testing.assert_array_equal(indices, expected[1])
    return distances, indices


CLOUDS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "lattice": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
    "offset log-normal": lambda rng, shape: 1e4 + rng.lognormal(0, 3, shape),
    "line": lambda rng, shape: rng.normal(size=(shape[0], 1)) * np.arange(1, shape[1] + 1),
    "equal": lambda rng, shape: np.full(shape, 0.1),
}


# 1..6 use the tree (2 the grid too), the others compare all pairs
@pytest.mark.parametrize("d", [1, 2, 3, 5, 6, 7, 20, pytest.param(130, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_same_bits_as_brute_force(d, cloud):
    rng = np.random.default_rng(d)
    for n in (1, 2, 7, 8, 9, 17, 200, 1500):
        points = CLOUDS[cloud](rng, (n, d))
        queries = np.concatenate([points[:9], CLOUDS[cloud](rng, (14, d)), rng.normal(size=(5, d))])
        index = NeighborIndex(points)
        # on both sides of what is kept in registers, in lists, in buffers and in the grid
        for k in {1, 2, 6, 8, 9, 12, 13, 32, 33, 65, n}:
            if k <= n:
                check(points, queries, k, index)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.integers(1, 90), st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_ties_everywhere(d, n, seed, values):
    rng = np.random.default_rng(seed)
    points, queries = rng.integers(0, values, (n, d)), rng.integers(0, 2 * values, (11, d)) / 2
    check(points.astype(float), queries, int(rng.integers(1, n + 1)))


def test_ties_and_duplicates_by_index():
    A = np.array([[0.0], [1.0], [-1.0], [1.0], [-1.0]])
    distances, indices = NeighborIndex(A).query(np.zeros((1, 1)), 3)
    assert indices.tolist() == [[0, 1, 2]] and distances.tolist() == [[0, 1, 1]]
    full = NeighborIndex(A).query(A, 5)[1]
    for k in range(1, 6):
        indices = NeighborIndex(A).query(A, k)[1]
        assert indices.tolist() == full[:, :k].tolist()
        assert all(len(set(row)) == k for row in indices.tolist())


@pytest.mark.parametrize("d", [2, 3, 12])
def test_prefixes_agree_and_no_index_comes_twice(d):
    points = np.random.default_rng(0).integers(0, 5, (300, d)).astype(float)
    full = NeighborIndex(points).query(points, 300)[1]
    assert all(len(set(row)) == 300 for row in full.tolist())
    for k in (1, 5, 8, 9, 12, 13, 31, 32, 33, 150):
        np.testing.assert_array_equal(NeighborIndex(points).query(points, k)[1], full[:, :k])


@pytest.mark.parametrize("d", [2, 10])
def test_far_from_the_origin_no_digit_is_lost(d):
    rng = np.random.default_rng(0)
    steps = rng.integers(-1000, 1000, (400, d)).astype(float)
    near, far = NeighborIndex(steps).query(steps, 7), NeighborIndex(steps + 1e8).query(steps + 1e8, 7)
    np.testing.assert_array_equal(near[0], far[0])
    np.testing.assert_array_equal(near[1], far[1])


@pytest.mark.parametrize("d", [2, 9])
@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-30, 1e30, 1e139])
def test_extreme_scales(d, scale):
    points = np.random.default_rng(0).uniform(-1, 1, (80, d)) * scale
    with np.errstate(over="ignore", under="ignore"):  # squares overflow or vanish: ties by index
        check(points, points[:20], 5)


@pytest.mark.parametrize("d", [2, 9])
def test_queries_far_away(d):
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(500, d))
    queries = rng.normal(size=(40, d)) * np.logspace(0, 25, 40)[:, None]
    check(points, queries, 4)


def test_clusters_finer_than_single_precision():
    # the filter sees only ties here; the result must be exact nevertheless
    rng = np.random.default_rng(0)
    points = np.repeat(rng.normal(size=(6, 12)), 60, axis=0) + 1e-12 * rng.normal(size=(360, 12))
    check(points, points[::7], 10)


def test_uneven_points_have_no_grid_and_even_ones_do():
    rng = np.random.default_rng(0)
    assert NeighborIndex(rng.uniform(size=(2000, 2)))._grid_arrays is not None
    assert NeighborIndex(rng.lognormal(0, 2, (2000, 2)))._grid_arrays is None
    assert NeighborIndex(np.zeros((2000, 2)))._grid_arrays is None


@pytest.mark.parametrize("d", [2, 4, 11])
def test_threads_and_batches_change_nothing(d):
    rng = np.random.default_rng(0)
    points, queries = rng.normal(size=(900, d)), rng.normal(size=(2500, d))
    index = NeighborIndex(points)
    reference = index.query(queries, 6)
    try:
        for threads in (1, 3):
            randsmap.set_num_threads(threads)
            for a, b in zip(index.query(queries, 6), reference):
                np.testing.assert_array_equal(a, b)
    finally:
        randsmap.set_num_threads(None)
    for rows in (slice(7, 8), slice(3, 40), slice(None, None, 17)):
        for a, b in zip(index.query(queries[rows].copy(), 6), reference):
            np.testing.assert_array_equal(a, b[rows])


def test_every_instruction_level_gives_the_same_bits(level, tmp_path):
    code = (
        "import numpy as np, sys; from randsmap._linalg.neighbors import NeighborIndex\n"
        "rng = np.random.default_rng(0)\n"
        "out = []\n"
        "for d in (1, 2, 3, 5, 10):\n"
        "    A, Q = rng.normal(size=(700, d)), rng.normal(size=(90, d))\n"
        "    for k in (1, 6, 13, 40): out += NeighborIndex(A).query(Q, k)\n"
        "    out += NeighborIndex(np.round(A)).query(Q, 6)\n"
        "np.savez(sys.argv[1], *out)"
    )
    results = []
    for name in (level, None):
        path = tmp_path / f"{name or 'best'}.npz"
        python(code, path, level=name)
        results.append(np.load(path))
    for name in results[0].files:
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_the_points_are_copied_and_not_changed():
    for d in (2, 10):
        points = np.random.default_rng(0).normal(size=(50, d))
        queries, before = points + 0.1, points.copy()
        index = NeighborIndex(points)
        reference = index.query(queries, 4)
        np.testing.assert_array_equal(points, before)
        points[:] = 0
        np.testing.assert_array_equal(index.query(queries, 4)[1], reference[1])


def test_pickle_and_memory_maps(tmp_path):
    rng = np.random.default_rng(0)
    for d in (2, 3, 10):
        points = rng.uniform(size=(3000, d))
        index = NeighborIndex(points)
        reference = index.query(points[:50], 5)
        joblib.dump(index, tmp_path / "index")
        mapped = joblib.load(tmp_path / "index", mmap_mode="r")
        for copy in (pickle.loads(pickle.dumps(index)), mapped):
            for a, b in zip(copy.query(points[:50], 5), reference):
                np.testing.assert_array_equal(a, b)
        del mapped, copy  # an open map cannot be overwritten on every platform


@pytest.mark.parametrize("d", [3, 10])
def test_no_queries(d):
    distances, indices = NeighborIndex(np.zeros((4, d))).query(np.zeros((0, d)), 2)
    assert distances.shape == indices.shape == (0, 2)


def test_kernel_sizes_agree_with_the_python_side():
    assert _neighbors._LEAF <= _neighbors._kernel.MAX_LEAF


# -- searches in principal coordinates ------------------------------------------------------------------
def wide_fields(rng, n, n_cells, noise=0.0):
    place = rng.random((n, 2))
    fields = np.exp(-(((np.linspace(0, 1, n_cells) - 0.3 - 0.4 * place[:, :1]) / (0.1 + 0.1 * place[:, 1:])) ** 2))
    return fields + noise * rng.normal(size=fields.shape)


@pytest.mark.parametrize("kind", ["smooth", "noisy", "duplicates", "lattice", "outliers", "one direction"])
def test_projected_search_has_the_bits_of_brute_force(kind, monkeypatch):
    monkeypatch.setattr(_projected, "SMALLEST", 100)
    monkeypatch.setattr(_projected, "ALLOWED", np.inf)
    monkeypatch.setattr(_projected, "CHUNK", 300)
    rng = np.random.default_rng(0)
    n = 700
    points = {
        "smooth": lambda: wide_fields(rng, n, 40),
        "noisy": lambda: wide_fields(rng, n, 40, 0.05),
        "duplicates": lambda: np.repeat(wide_fields(rng, n // 5, 40), 5, axis=0),
        "lattice": lambda: rng.integers(0, 2, (n, 20)).astype(float),
        "outliers": lambda: wide_fields(rng, n, 40) * np.where(np.arange(n) % 100, 1.0, 1e9)[:, None],
        "one direction": lambda: rng.normal(size=(n, 1)) * np.arange(1.0, 41),
    }[kind]()
    points = points - np.median(points, axis=0)
    index = neighbor_index(points, 12)
    assert isinstance(index, ProjectedNeighbors)
    far = rng.normal(size=(6, points.shape[1])) * np.logspace(0, 130, 6)[:, None]  # ties by index
    queries = np.concatenate([points[:60], points[:40] + 1e-3, far])
    for k in (1, 12, 40):
        for Q in (points, queries):
            distances, indices = index.query(Q, k)
            with np.errstate(over="ignore"):
                expected = brute_force(points, Q, k)
            np.testing.assert_array_equal(distances, expected[0])
            np.testing.assert_array_equal(indices, expected[1])
    assert index.query(queries[:0], 3)[0].shape == (0, 3)
    copy = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(copy.query(queries, 5)[1], index.query(queries, 5)[1])


def test_projected_search_spares_comparisons(monkeypatch):
    rng = np.random.default_rng(0)
    points = wide_fields(rng, 6000, 100) - 0.3
    compared = []
    among = _projected._kernel.among

    def counted(points, chosen, Q, *lists):
        compared.append(len(chosen) * len(Q))
        among(points, chosen, Q, *lists)

    index = neighbor_index(points, 20)
    assert isinstance(index, ProjectedNeighbors)
    monkeypatch.setattr(_projected._kernel, "among", counted)
    index.query(points, 20)
    assert sum(compared) < 0.1 * 6000**2
    # white noise has no leading directions: all pairs are compared as before
    assert isinstance(neighbor_index(rng.normal(size=(6000, 60)), 20), NeighborIndex)
    # nor do few points, narrow ones, and those that are all the same
    for other in (points[:3000], points[:, :12], points * 0):
        assert isinstance(neighbor_index(np.ascontiguousarray(other), 20), NeighborIndex)
