"""Sparse Cholesky factors by nested dissection, and Lanczos on a shifted inverse, against dense solvers."""

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse import csr_array

from randsmap import DiffusionMaps
from randsmap._linalg import large_graphs
from randsmap._linalg.distances import centred_rows
from randsmap._linalg.large_graphs import SparseCholesky, step_coordinates
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.svd import leading_eigenpairs
from randsmap.encoders import _diffusion_maps as encoders
from randsmap.encoders._nystroem import neighbor_kernel


def markov(points, k=12):
    """S = D^-1/2 K D^-1/2 of a neighbour kernel, its eigenvector to 1, and the points less their mean."""
    centred = (*centred_rows(points, points.mean(axis=0)), points.mean(axis=0))
    rows, index = centred[0], NeighborIndex(centred[0])
    width = np.median(index.query(rows, k + 1)[0][:, -1])
    K, _ = neighbor_kernel(points, centred, index, k, width)
    degrees = K.sum(axis=1)
    scale = degrees**-0.5
    S = csr_array((K.data * np.repeat(scale, np.diff(K.indptr)) * scale[K.indices], K.indices, K.indptr), shape=K.shape)
    return S, np.sqrt(degrees / degrees.sum()), rows


def shapes():
    rng = np.random.default_rng(0)
    angle = np.arange(800) * 2 * np.pi / 800
    return {
        "plane": rng.random((900, 2)),
        "line": rng.random((700, 1)),
        "space": rng.random((600, 3)),
        "circle": np.column_stack([np.cos(angle), np.sin(angle)]),
        "components": np.vstack([rng.random((300, 2)), rng.random((400, 2)) + 5, rng.random((90, 2)) - 5]),
    }


@pytest.mark.parametrize("leaf", [7, 60, 2000])
@pytest.mark.parametrize("shape", ["plane", "line", "space", "components"])
def test_solutions(shape, leaf, monkeypatch):
    monkeypatch.setattr(large_graphs, "PART", leaf)
    S, _, points = markov(shapes()[shape])
    n = S.shape[0]
    A = csr_array(1.001 * np.eye(n) - S.toarray())
    # bad coordinates cost, but the solution is right
    for coordinates in (points, step_coordinates(S, 3), np.random.default_rng(2).random((n, 2))):
        factor = SparseCholesky(A, coordinates)
        assert np.array_equal(np.sort(factor.permutation), np.arange(n))
        factor.factor(A)
        X = np.random.default_rng(1).normal(size=(n, 3))
        np.testing.assert_allclose(factor.solve(A @ X), X, rtol=0, atol=1e-11)
    # no more entries than the dense factor, and those of A among them
    assert A.nnz // 2 <= factor.entries <= n * (n + 1) // 2


def test_size_of_the_factor_in_the_plane():
    """Nested dissection: n log n entries, where a band would have n^1.5."""
    entries = []
    for n in (2000, 8000):
        S, _, points = markov(np.random.default_rng(0).random((n, 2)))
        entries.append(SparseCholesky(S, points).entries)
    assert entries[1] < 5.5 * entries[0] and entries[1] < 0.05 * 8000**2 / 2


def test_indefinite_matrices_are_refused():
    S, _, points = markov(shapes()["plane"])
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        SparseCholesky(S, points).factor(csr_array(0.9 * np.eye(900) - S.toarray()))


def test_steps():
    n = 90
    ring = np.roll(np.eye(n), 1, axis=0)
    apart = np.zeros((n + 5, n + 5))
    apart[:n, :n] = ring + ring.T
    apart[n:, n:] = 1
    steps = step_coordinates(csr_array(apart), 3)
    place = np.arange(n)
    for column in steps.T[1:] if steps[0, 0] > n else steps.T:
        start = int(np.argmin(column))
        if start < n:
            around = np.minimum((place - start) % n, (start - place) % n)
            assert np.array_equal(column[:n], around)
        assert (column[n:] > column[:n].max()).all() or (column[:n] > column[n:].max()).all()


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("shape", ["plane", "line", "space", "circle", "components"])
def test_inverted_eigenpairs(shape, count, monkeypatch):
    for name, value in (("share", np.inf), ("dissection", 0), ("entries", np.inf)):
        monkeypatch.setitem(large_graphs.LIMITS, name, value)
    monkeypatch.setattr(large_graphs, "PART", 60)
    S, trivial, points = markov(shapes()[shape])
    found, U = large_graphs.inverted_eigenpairs(S, count, trivial)
    expected = eigh(S.toarray(), eigvals_only=True)[::-1][1 : count + 1]  # 1 is repeated for several components
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-14)
    np.testing.assert_allclose(S @ U, U * found, rtol=0, atol=1e-13)
    np.testing.assert_allclose(U.T @ U, np.eye(count), rtol=0, atol=1e-12)
    np.testing.assert_allclose(trivial @ U, 0, atol=1e-12)
    again = large_graphs.inverted_eigenpairs(S, count, trivial)
    assert np.array_equal(again[1], U)
    # the bound that the decision rests on
    basis = large_graphs._eigenspace_of_one(S, trivial)
    if basis.shape[1] <= count:
        assert large_graphs._gap(S, trivial, basis, points) >= 1 - expected[basis.shape[1] - 1] - 1e-14


def test_where_the_inverse_does_not_pay():
    """Few samples of a wide gap, and factors that are nearly full."""
    rng = np.random.default_rng(0)
    S, trivial, points = markov(rng.random((2000, 5)), 20)
    assert large_graphs.inverted_eigenpairs(S, 2, trivial) is None
    S, trivial, points = markov(rng.random((4000, 2)), 20)
    assert large_graphs.inverted_eigenpairs(S, 2, trivial) is not None


@pytest.mark.parametrize("n_cells", [2, 40])
def test_encoder_with_and_without_the_inverse(n_cells, monkeypatch):
    place = np.random.default_rng(0).random((4000, 2))
    X = place
    if n_cells > 2:
        X = np.exp(-(((np.linspace(0, 1, n_cells) - 0.3 - 0.4 * place[:, :1]) / (0.1 + 0.1 * place[:, 1:])) ** 2))
    calls = []

    def counted(*arguments):
        calls.append(large_graphs.inverted_eigenpairs(*arguments))
        return calls[-1]

    monkeypatch.setattr(encoders, "inverted_eigenpairs", counted)
    inverted = DiffusionMaps(2, n_neighbors=16, epsilon_scale=0.1).fit(X)
    assert calls[0] is not None
    monkeypatch.setattr(encoders, "inverted_eigenpairs", lambda *arguments: None)
    direct = DiffusionMaps(2, n_neighbors=16, epsilon_scale=0.1).fit(X)
    np.testing.assert_allclose(inverted.eigenvalues_, direct.eigenvalues_, rtol=1e-13)
    np.testing.assert_allclose(inverted.eigenvectors_, direct.eigenvectors_, rtol=0, atol=1e-9)


def test_leading_pairs_of_an_operator_without_gap():
    """Lanczos itself, on the inverse of a path's Laplacian, whose eigenvalues are known."""
    n = 400
    path = csr_array(np.diag(np.full(n, 2.0)) - np.diag(np.ones(n - 1), 1) - np.diag(np.ones(n - 1), -1))
    factor = SparseCholesky(path, np.arange(n, dtype=float)[:, None])
    factor.factor(path)
    known = 2 - 2 * np.cos(np.pi * np.arange(1, 5) / (n + 1))
    ends = np.zeros(n)
    # an eigenvector to leave out: the first
    ends = np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
    found, _ = leading_eigenpairs(lambda X: known[1] * factor.solve(X), n, 3, ends / np.linalg.norm(ends))
    np.testing.assert_allclose(known[1] / found, known[1:], rtol=1e-10)
