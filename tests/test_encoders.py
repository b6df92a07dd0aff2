"""Diffusion maps: conventions, extension to new points, robustness."""

import inspect
import pickle
import re
import subprocess
import sys
import textwrap
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsmap
from randsmap import DiffusionMaps
from randsmap._linalg import svd as _eigen
from randsmap._linalg.distances import far_values
from randsmap.datasets import make_s_curve, make_swiss_roll
from randsmap.encoders import _diffusion_maps as encoders

from helpers import random_problem

EPS = np.finfo(np.float64).eps


def bumps(n, n_cells=60, seed=0):
    return random_problem(n, n_cells, seed=seed, total=None, place=(0.2, 0.8), width=(0.1, 0.2))[1]


def markov_matrix(X, epsilon, alpha):
    """The paper's T^(a), literally."""
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / epsilon**2)
    q = K.sum(axis=1)
    K = K / np.outer(q, q) ** alpha
    return K / K.sum(axis=1, keepdims=True)


# -- conventions -------------------------------------------------------------------------------------
def test_two_points():
    for epsilon, argument in ((1.0, 0.5), (2.0, 0.125)):
        for alpha in (0.0, 1.0):
            encoder = DiffusionMaps(1, epsilon=epsilon, alpha=alpha).fit([[0.0], [1.0]])
            assert abs(encoder.eigenvalues_[0] - np.tanh(argument)) < 1e-14
    assert encoder.fit_transform([[0.0], [1.0]]).shape == (2, 1)


def test_three_points_with_unequal_degrees():
    X = np.array([[0.0], [1.0], [3.0]])
    encoder = DiffusionMaps(2, epsilon=1.0, alpha=0.0).fit(X)
    K = np.exp(-((X - X.T) ** 2))
    T = K / K.sum(axis=1, keepdims=True)
    V = encoder.fit_transform(X)
    assert np.allclose(T @ V, V * encoder.eigenvalues_, atol=1e-13)
    assert np.allclose(encoder.eigenvalues_, [0.9755087, 0.45877791], atol=1e-7)


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
@pytest.mark.parametrize("n", [60, pytest.param(700, marks=pytest.mark.slow)])  # full and Lanczos
def test_eigenvectors(n, alpha):
    X = bumps(n)
    encoder = DiffusionMaps(3, epsilon=0.9, alpha=alpha).fit(X)
    T = markov_matrix(X, 0.9, alpha)
    V, xi = encoder.eigenvectors_, encoder.eigenvalues_
    np.testing.assert_allclose(T @ V, V * xi, atol=1e-12)
    expected = np.sort(np.linalg.eigvals(T).real)[::-1]
    np.testing.assert_allclose(xi, expected[1:4], atol=1e-12)
    # norm 1 in the stationary measure, orthogonal to one another and to the trivial 1
    stationary = np.linalg.matrix_power(T, 4096)[0]
    W = np.column_stack([np.ones(n), V])
    np.testing.assert_allclose((W.T * stationary) @ W, np.eye(4), atol=1e-9)


def test_median_width():
    X = bumps(50)
    distances = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))[np.triu_indices(50, 1)]
    encoder = DiffusionMaps(2, epsilon_scale=0.7).fit(X)
    assert encoder.epsilon_ == pytest.approx(0.7 * np.median(distances), rel=1e-13)
    given = DiffusionMaps(2, epsilon=encoder.epsilon_).fit(X)
    np.testing.assert_allclose(given.fit_transform(X), encoder.fit_transform(X), rtol=1e-10, atol=1e-12)


def test_diffusion_time_and_selection():
    X = bumps(80)
    V = DiffusionMaps(5).fit_transform(X)
    encoder = DiffusionMaps(5, diffusion_time=1).fit(X)
    np.testing.assert_allclose(encoder.fit_transform(X), V * encoder.eigenvalues_, atol=1e-13)
    np.testing.assert_allclose(encoder.transform(X), V * encoder.eigenvalues_, atol=1e-11)
    chosen = DiffusionMaps(2, select=[4, 2], diffusion_time=0.5).fit(X)
    assert chosen.selected_.tolist() == [4, 2] and chosen.eigenvalues_.shape == (4,)
    xi = chosen.eigenvalues_[chosen.selected_ - 1]
    np.testing.assert_allclose(chosen.fit_transform(X), V[:, [3, 1]] * xi**0.5, atol=1e-12)
    np.testing.assert_allclose(chosen.transform(X), V[:, [3, 1]] * xi**0.5, atol=1e-11)


def test_parameter_defaults_in_the_docstring():
    for name, parameter in inspect.signature(DiffusionMaps).parameters.items():
        line = re.search(rf"^ *{name} : (.*)$", DiffusionMaps.__doc__, re.M).group(1)
        if parameter.default is None:
            assert line.endswith("or None, default=None"), line
        else:
            default = repr(parameter.default).replace("'", '"')
            assert line.endswith(f"default={default}"), line


# -- determinism -------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [25, 500])
def test_repeatable_and_independent_of_row_order(n):
    X = np.random.default_rng(3).normal(size=(n, 3))
    p = np.random.default_rng(4).permutation(n)
    a = DiffusionMaps(3, epsilon=2.0).fit_transform(X)
    assert np.array_equal(a, DiffusionMaps(3, epsilon=2.0).fit_transform(X))
    assert np.allclose(DiffusionMaps(3, epsilon=2.0).fit_transform(X[p]), a[p], atol=1e-9)


def test_symmetric_data():
    X = np.array([[-1.0], [0.0], [1.0]])
    s = DiffusionMaps(1, epsilon=2.0).fit_transform(X)[:, 0]
    assert np.isclose(abs(s[0]), abs(s[2])) and abs(s[1]) < 1e-12
    assert s[2] > 0  # of the tied ends the one with the larger data value
    assert DiffusionMaps(1, epsilon=2.0).fit_transform(X[::-1])[0, 0] > 0


def test_sign_rule():
    X = np.array([[1.0, 2.0], [1.0, 3.0], [0.0, 9.0], [5.0, 0.0]])
    V = np.array([[1.0, 0.5], [-1.0 + 1e-9, 1.0], [1.0, 0.1], [0.9, -1.0 + 1e-7]])
    # first column: rows 0..2 tie, row 1 is the largest of them; second: row 1 alone
    assert encoders.eigenvector_signs(V, X).tolist() == [-1.0, 1.0]


def test_thread_counts():
    X = bumps(700)
    results = []
    for count in (1, 2, 4):
        randsmap.set_num_threads(count)
        try:
            encoder = DiffusionMaps(2)
            results.append((encoder.fit_transform(X), encoder.transform(X[:300])))
        finally:
            randsmap.set_num_threads(None)
    for latents, extended in results[1:]:
        assert np.array_equal(latents, results[0][0]) and np.array_equal(extended, results[0][1])


def test_translation():
    X = np.array([[0.0], [1], [3], [4]])
    near = DiffusionMaps(2, epsilon=2.0).fit(X).eigenvalues_
    far = DiffusionMaps(2, epsilon=2.0).fit(1e8 + X).eigenvalues_
    assert np.allclose(near, far, rtol=1e-12)


# -- new points --------------------------------------------------------------------------------------
@pytest.mark.parametrize("n, n_cells", [(40, 5), (250, 60), (600, 60)])
@pytest.mark.parametrize("alpha", [0, 1])
@pytest.mark.parametrize("epsilon_scale", [0.1, 1.0])
def test_extension_at_the_training_points(n, n_cells, alpha, epsilon_scale):
    X = bumps(n, n_cells) + 100.0
    encoder = DiffusionMaps(2, alpha=alpha, epsilon_scale=epsilon_scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # isolated samples at the small scale
        latents = encoder.fit_transform(X)
    error = abs(encoder.transform(X) - latents) / abs(latents).max(axis=0)
    assert (error <= 1e-12 / encoder.eigenvalues_).all()


@pytest.mark.parametrize("n_cells", [10, 60])
def test_rows_do_not_influence_one_another(n_cells):
    encoder = DiffusionMaps(3).fit(bumps(300, n_cells))
    X = bumps(450, n_cells, seed=1)
    X[10] += 50  # far from all training points
    together = encoder.transform(X)
    assert np.isfinite(together).all()
    scale = abs(together).max()
    for rows in ([0], [10], [5, 10, 449], range(8), range(9), range(200)):
        np.testing.assert_allclose(encoder.transform(X[list(rows)]), together[list(rows)], rtol=0, atol=1e-12 * scale)


def test_extension_formula():
    X, new = bumps(100), bumps(20, seed=5)
    for alpha in (0, 1):
        encoder = DiffusionMaps(3, alpha=alpha, epsilon=0.8).fit(X)
        K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 0.64)
        p = np.exp(-((new[:, None] - X[None]) ** 2).sum(axis=2) / 0.64) * K.sum(axis=1) ** -alpha
        p /= p.sum(axis=1, keepdims=True)
        expected = p @ encoder.eigenvectors_ / encoder.eigenvalues_
        np.testing.assert_allclose(encoder.transform(new), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_cells", [3, 60])
def test_far_points_get_their_nearest_neighbours_coordinates(n_cells):
    X = bumps(80, n_cells)
    encoder = DiffusionMaps(2, epsilon_scale=0.5).fit(X)
    direction = np.random.default_rng(0).normal(size=(30, n_cells))
    for distance in (1e3, 1e6, 1e139):
        far = X.mean(axis=0) + distance * direction
        latents = encoder.transform(far)
        assert np.isfinite(latents).all()
        nearest = (direction @ X.T).argmax(axis=1)  # in the limit
        if distance >= 1e6:
            np.testing.assert_allclose(latents, encoder.eigenvectors_[nearest] / encoder.eigenvalues_, rtol=1e-6)
    # the two ways to sum agree where both work
    near = X[:1] + 0.9 * encoder.epsilon_
    rows, norms, centre = encoder._encoding.points
    sums = encoder._encoding.weights @ far_values(near[0] - centre, rows, encoder.epsilon_)
    np.testing.assert_allclose(sums[1:] / sums[0], encoder.transform(near)[0], rtol=1e-11)


def test_points_between_near_and_far_are_continuous():
    encoder = DiffusionMaps(1, epsilon=0.5).fit(bumps(80))
    X = bumps(1) + np.linspace(0, 3, 400)[:, None] * np.sign(np.arange(60) % 2 - 0.5)
    assert abs(np.diff(encoder.transform(X)[:, 0])).max() < 0.2


# -- selection of eigenvectors that are new directions --------------------------------------------------
def resolved(latents, coordinate, n_neighbors=6):
    """R^2 of a coordinate predicted by its mean over the nearest other points in the latent plane."""
    latents = latents / latents.std(axis=0)
    distance = ((latents[:, None] - latents[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :n_neighbors]
    error = coordinate[nearest].mean(axis=1) - coordinate
    return 1 - (error**2).sum() / ((coordinate - coordinate.mean()) ** 2).sum()


@pytest.mark.slow
@pytest.mark.parametrize("n_neighbors", [None, 20])
def test_swiss_roll_keeps_the_leading_pair(n_neighbors):
    roll = make_swiss_roll(1500, random_state=0)
    encoder = DiffusionMaps(2, epsilon_scale=0.12, select="non-harmonic", n_neighbors=n_neighbors)
    latents = encoder.fit_transform(roll.data)
    if n_neighbors is None:
        assert encoder.selected_.tolist() == [1, 2]
        leading = DiffusionMaps(2, epsilon_scale=0.12).fit_transform(roll.data)
        np.testing.assert_allclose(latents, leading, atol=1e-10)
    else:  # the graph follows the roll, which is long: the width comes after harmonics of the length
        assert encoder.selected_[0] == 1
    for coordinate in roll.coordinates.T:
        assert resolved(latents, coordinate) > 0.9
    error = abs(encoder.transform(roll.data) - latents) / abs(latents).max(axis=0)
    assert (error <= 1e-12 / encoder.eigenvalues_[encoder.selected_ - 1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_s_curve_pair_resolves_the_width(seed):
    curve = make_s_curve(1000, random_state=seed)
    assert curve.data.shape[1] == 20
    encoder = DiffusionMaps(2, epsilon_scale=0.15, select="non-harmonic").fit(curve.data)
    first, second = encoder.selected_
    assert first == 1 and 8 <= second <= encoders.CANDIDATES
    assert encoder.eigenvalues_.shape == (second,) and encoder.eigenvectors_.shape == (1000, second)
    width = curve.coordinates[:, 1]
    assert resolved(encoder.transform(curve.data), width) > 0.7
    caption = DiffusionMaps(2, epsilon_scale=0.15, select=[1, 3]).fit_transform(curve.data)
    assert resolved(caption, width) < 0.1


def test_candidates():
    X = bumps(40)
    # modes below 1e-8 are no candidates
    encoder = DiffusionMaps(2, epsilon=8.0, select="non-harmonic").fit(X)
    assert (encoder.eigenvalues_ >= 1e-8).all() and encoder.selected_[0] == 1
    with pytest.raises(ValueError, match=r"eigenvalue \d+ is .* below 1e-08"):
        DiffusionMaps(12, epsilon=1e4, select="non-harmonic").fit(X)
    # nothing to choose from
    assert DiffusionMaps(1, select="non-harmonic").fit(X[:2]).selected_.tolist() == [1]
    assert DiffusionMaps(9, epsilon=1.0, select="non-harmonic").fit(X[:10]).selected_[-1] == 9
    # more candidates for more components
    assert DiffusionMaps(8, epsilon=1.0, select="non-harmonic").fit(X).transform(X).shape == (40, 8)


# -- nearest neighbours only -----------------------------------------------------------------------------
def neighbor_kernel(X, k, epsilon):
    """The union rule, literally: r_i is the distance to the k-th nearest other sample."""
    D = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    reach = np.sort(D, axis=1)[:, k]
    joined = D <= (1 + 1e-10) * np.maximum(reach[:, None], reach)
    return np.where(joined, np.exp(-(D**2) / epsilon**2), 0), D, reach


@pytest.mark.parametrize(
    "n_cells", [pytest.param(2, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow), 60]
)
@pytest.mark.parametrize("n", [60, 500])  # full solver and Lanczos
@pytest.mark.parametrize("alpha", [0, 1])
def test_neighbor_kernel(n, n_cells, alpha):
    plane, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(n_cells, 2)))
    X = np.random.default_rng(0).normal(size=(n, 2)) @ plane.T
    encoder = DiffusionMaps(3, n_neighbors=12, epsilon=1.5, alpha=alpha).fit(X)
    K, D, reach = neighbor_kernel(X, 12, 1.5)
    q = K.sum(axis=1) ** -alpha
    T = q[:, None] * K * q
    T /= T.sum(axis=1, keepdims=True)
    V, xi = encoder.eigenvectors_, encoder.eigenvalues_
    np.testing.assert_allclose(T @ V, V * xi, atol=1e-11)
    np.testing.assert_allclose(xi, np.sort(np.linalg.eigvals(T).real)[::-1][1:4], atol=1e-10)
    # new points: joined to what reaches them or what they reach
    new = X[:40] + 0.05 * np.random.default_rng(2).normal(size=(40, n_cells))
    E = np.sqrt(((new[:, None] - X[None]) ** 2).sum(axis=2))
    p = np.exp(-(E**2) / 1.5**2) * (E <= np.maximum(np.sort(E, axis=1)[:, 12:13], reach)) * q
    expected = p @ V / xi / p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.transform(new), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [100, 700])
@pytest.mark.parametrize("kind", ["fields", "plane", "lattice", "duplicates"])
def test_neighbor_kernel_extension_at_the_training_points(n, kind):
    X = {
        "fields": lambda: bumps(n) + 100.0,
        "plane": lambda: np.random.default_rng(0).random((n, 2)),
        "lattice": lambda: np.stack(np.meshgrid(np.arange(n // 10), np.arange(10.0)), -1).reshape(-1, 2),
        "duplicates": lambda: np.repeat(bumps(n // 5, 20), 5, axis=0),
    }[kind]()
    encoder = DiffusionMaps(2, n_neighbors=7, epsilon_scale=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # duplicates: separate components
        latents = encoder.fit_transform(X)
    error = abs(encoder.transform(X) - latents) / abs(latents).max(axis=0)
    assert (error <= 1e-12 / encoder.eigenvalues_).all()
    some = encoder.transform(X[5:9])
    np.testing.assert_allclose(some, latents[5:9], rtol=0, atol=1e-11 * abs(latents).max())


@pytest.mark.parametrize("n_neighbors", [399, 400, 1000])
def test_all_neighbors_are_the_full_kernel(n_neighbors):
    X, new = bumps(400), bumps(30, seed=5)
    full = DiffusionMaps(3, epsilon_scale=0.5).fit(X)
    encoder = DiffusionMaps(3, epsilon_scale=0.5, n_neighbors=n_neighbors).fit(X)
    assert encoder.epsilon_ == full.epsilon_
    np.testing.assert_allclose(encoder.eigenvectors_, full.eigenvectors_, atol=1e-10)
    np.testing.assert_allclose(encoder.transform(new), full.transform(new), atol=1e-10)


@pytest.mark.slow
def test_neighbors_beyond_the_kernel_change_nothing():
    X, new = bumps(400), bumps(30, seed=5)
    full = DiffusionMaps(3, epsilon=0.2, alpha=0.5).fit(X)
    encoder = DiffusionMaps(3, epsilon=0.2, alpha=0.5, n_neighbors=398).fit(X)
    np.testing.assert_allclose(encoder.eigenvalues_, full.eigenvalues_, atol=1e-10)
    np.testing.assert_allclose(encoder.eigenvectors_, full.eigenvectors_, atol=1e-9)
    np.testing.assert_allclose(encoder.transform(new), full.transform(new), atol=1e-9)


def test_neighbor_kernel_far_from_the_samples():
    X = bumps(400)
    encoder = DiffusionMaps(2, n_neighbors=15, epsilon_scale=0.3).fit(X)
    direction = np.random.default_rng(0).normal(size=(20, 60))
    nearest = (direction @ X.T).argmax(axis=1)  # in the limit
    for distance in (1e3, 1e6, 1e9, 1e100):
        latents = encoder.transform(X.mean(axis=0) + distance * direction)
        assert np.isfinite(latents).all()
        if distance == 1e6:
            np.testing.assert_allclose(latents, encoder.eigenvectors_[nearest] / encoder.eigenvalues_, rtol=1e-6)


def test_separate_components_of_the_neighbors():
    X = np.vstack([bumps(40), bumps(40) + 3, bumps(400) + 9])
    with pytest.warns(UserWarning, match="n_neighbors = 6 nearest neighbours has 3 separate components"):
        encoder = DiffusionMaps(2, n_neighbors=6, epsilon=1.0).fit(X)
    np.testing.assert_allclose(encoder.eigenvalues_, 1, atol=1e-12)
    for part in (slice(40), slice(40, 80), slice(80, None)):
        assert np.ptp(encoder.eigenvectors_[part], axis=0).max() < 1e-10


def test_neighbor_kernel_does_not_depend_on_threads_rows_or_order():
    X = bumps(900, 30)
    results = []
    for count in (1, 2, 4):
        randsmap.set_num_threads(count)
        try:
            encoder = DiffusionMaps(2, n_neighbors=20, epsilon_scale=0.3)
            results.append((encoder.fit_transform(X), encoder.transform(X[:300])))
        finally:
            randsmap.set_num_threads(None)
    for latents, extended in results[1:]:
        assert np.array_equal(latents, results[0][0]) and np.array_equal(extended, results[0][1])
    latents = results[0][0]
    p = np.random.default_rng(0).permutation(900)
    again = DiffusionMaps(2, n_neighbors=20, epsilon=encoder.epsilon_).fit_transform(X[p])
    np.testing.assert_allclose(again, latents[p], atol=1e-9)
    new = bumps(250, 30, seed=3)
    together = encoder.transform(new)
    for rows in ([0], range(8), range(9), range(200)):
        np.testing.assert_allclose(
            encoder.transform(new[list(rows)]), together[list(rows)], rtol=0, atol=1e-12 * abs(latents).max()
        )
    assert encoder.transform(new[:0]).shape == (0, 2)
    copy = pickle.loads(pickle.dumps(encoder))
    assert np.array_equal(copy.transform(new), together)


@pytest.mark.slow
def test_memory_of_the_neighbor_kernel():
    n, k = 8000, 10
    X = make_swiss_roll(n, random_state=0).data
    DiffusionMaps(2, n_neighbors=k).fit(X[:500])  # imports
    tracemalloc.start()
    DiffusionMaps(2, n_neighbors=k, epsilon_scale=0.1).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # neighbour lists and their union while it is made, Lanczos basis, pairs for the median
    assert peak < 8 * n * (20 * k + 2 * 90) + 1e7 < 8 * n * n / 10  # the full kernel is 8 n^2


# -- the solver -------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 7, 30])
@pytest.mark.parametrize("basis", [20, 160])  # with and without compression
def test_leading_eigenpairs(count, basis, monkeypatch):
    monkeypatch.setattr(_eigen, "BASIS", basis)
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(500, 500)))
    values = np.r_[1.0, 0.99, np.sort(rng.uniform(-0.3, 0.97, 498))[::-1]]
    S = (Q * values) @ Q.T
    S = (S + S.T) / 2
    found, U = _eigen.leading_eigenpairs(lambda X: S @ X, 500, count, Q[:, 0])
    np.testing.assert_allclose(found, values[1 : count + 1], atol=1e-13)
    np.testing.assert_allclose(S @ U, U * found, atol=5e-14)
    np.testing.assert_allclose(U.T @ U, np.eye(count), atol=1e-13)


def test_repeated_eigenvalues_are_all_found():
    """The circle has every eigenvalue twice, the sphere's first one three times."""
    angle = np.arange(600) * 2 * np.pi / 600
    circle = DiffusionMaps(4).fit(np.column_stack([np.cos(angle), np.sin(angle)]))
    xi = circle.eigenvalues_
    assert abs(xi[0] - xi[1]) < 1e-13 and abs(xi[2] - xi[3]) < 1e-13 and xi[1] > xi[2] + 0.1
    np.testing.assert_allclose((circle.eigenvectors_[:, :2] ** 2).sum(axis=1), 2, atol=1e-9)
    signs = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), -1).reshape(-1, 3)
    cube = np.unique(
        (np.random.default_rng(0).random((15, 3))[:, None] * signs)[
            ..., [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]]
        ].reshape(-1, 3),
        axis=0,
    )
    assert len(cube) == 15 * 48  # every symmetry of the cube
    np.testing.assert_allclose(np.ptp(DiffusionMaps(3).fit(cube).eigenvalues_), 0, atol=1e-13)


def test_noise_modes():
    """More modes than the kernel's numerical rank are found and refused, not waited for."""
    with pytest.raises(ValueError, match="below 1e-08"):
        DiffusionMaps(30, epsilon=1e3).fit(bumps(400))


# -- trouble -----------------------------------------------------------------------------------------
def test_separate_components():
    X = np.vstack([bumps(40), bumps(40) + 100])
    with pytest.warns(UserWarning, match="separate components"):
        encoder = DiffusionMaps(2, epsilon=1.0).fit(X)
    assert abs(encoder.eigenvalues_[0] - 1) < 1e-12
    first = encoder.eigenvectors_[:, 0]
    assert np.ptp(first[:40]) < 1e-10 and np.ptp(first[40:]) < 1e-10
    with pytest.warns(UserWarning, match="separate components") as record:
        DiffusionMaps(2, epsilon_scale=0.1).fit_transform(np.vstack([bumps(400), bumps(1) + 1e8]))
    assert record[0].filename == __file__  # not a line of scikit-learn, which has `fit_transform`


def test_modes_without_information_are_refused():
    with pytest.raises(ValueError, match=r"eigenvalue \d+ is .* below 1e-08"):
        DiffusionMaps(20, epsilon=100.0).fit(bumps(50))
    encoder = DiffusionMaps(2, select=[1, 2], epsilon=3.0).fit(bumps(50))
    assert encoder.eigenvalues_[1] >= 1e-8


@pytest.mark.parametrize(
    "parameters, error, match",
    [
        (dict(n_components=0), ValueError, "n_components"),
        (dict(n_components=30), ValueError, "n_components must be at most n_samples - 1 = 29"),
        (dict(n_components=1.5), TypeError, "n_components"),
        (dict(n_components=True), TypeError, "n_components"),
        (dict(alpha=-0.1), ValueError, "alpha"),
        (dict(alpha=1.1), ValueError, "alpha"),
        (dict(alpha=np.nan), ValueError, "alpha"),
        (dict(epsilon=0), ValueError, "epsilon"),
        (dict(epsilon=-1.0), ValueError, "epsilon"),
        (dict(epsilon=np.inf), ValueError, "epsilon"),
        (dict(epsilon="wide"), TypeError, "epsilon"),
        (dict(epsilon_scale=0.0), ValueError, "epsilon_scale"),
        (dict(epsilon_scale=np.nan), ValueError, "epsilon_scale"),
        (dict(diffusion_time=-1), ValueError, "diffusion_time"),
        (dict(diffusion_time=np.inf), ValueError, "diffusion_time"),
        (dict(select="trailing"), ValueError, "select"),
        (dict(select=[1]), ValueError, "select"),
        (dict(select=[1, 1]), ValueError, "select"),
        (dict(select=[0, 1]), ValueError, "select"),
        (dict(select=[1, 30]), ValueError, "select"),
        (dict(select=[1.0, 2.0]), TypeError, "select"),
        (dict(select=3), TypeError, "select"),
        (dict(n_components=30, select="non-harmonic"), ValueError, "n_components must be at most n_samples"),
        (dict(n_neighbors=0), ValueError, "n_neighbors must be at least 1, got 0"),
        (dict(n_neighbors=-3), ValueError, "n_neighbors"),
        (dict(n_neighbors=2.0), TypeError, "n_neighbors"),
        (dict(n_neighbors=True), TypeError, "n_neighbors"),
    ],
)
def test_bad_parameters(parameters, error, match):
    encoder = DiffusionMaps(**parameters)
    with pytest.raises(error, match=match):
        encoder.fit(bumps(30))
    assert not hasattr(encoder, "n_features_in_")  # nothing half-written


def test_bad_data():
    X = bumps(10, 3)
    encoder = DiffusionMaps(2).fit(X)
    before = encoder.transform(X)
    for bad in (np.nan, np.inf, -np.inf):
        Z = X.copy()
        Z[4, 1] = bad
        for call in (encoder.fit, encoder.transform, encoder.fit_transform):
            with pytest.raises(ValueError, match="finite|NaN|infinity"):
                call(Z)
    for bad in (np.zeros((4, 2)), np.zeros((4, 4)), np.zeros(3), np.array(1.0)):
        with pytest.raises(ValueError):
            encoder.transform(bad)
    with pytest.raises(ValueError, match="1 sample"):
        encoder.fit(X[:1])
    with pytest.raises(ValueError, match="median distance"):
        encoder.fit(np.ones((5, 3)))
    with pytest.raises(TypeError, match="(?i)sparse"):
        from scipy.sparse import csr_array

        encoder.fit(csr_array(X))
    assert np.array_equal(encoder.transform(X), before)  # failed fits left it as it was
    assert encoder.transform(np.empty((0, 3))).shape == (0, 2)


def test_identical_points_with_a_width():
    with pytest.raises(ValueError, match="eigenvalue 1 is"):
        DiffusionMaps(1, epsilon=1.0).fit(np.ones((5, 3)))


# -- conventions of NumPy and scikit-learn -----------------------------------------------------------
def test_array_kinds():
    X = np.random.default_rng(0).normal(size=(30, 4))
    expected = DiffusionMaps(2).fit_transform(X)
    read_only = X.copy()
    read_only.setflags(write=False)
    for V in (read_only, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X.tolist()):
        assert np.array_equal(DiffusionMaps(2).fit_transform(V), expected)
    whole = (np.arange(24).reshape(8, 3) ** 2) % 23
    for dtype in (np.uint8, np.int32, np.float16, np.float32):
        assert np.allclose(
            DiffusionMaps(2).fit_transform(whole.astype(dtype)), DiffusionMaps(2).fit_transform(whole.astype(float))
        )


def test_data_are_neither_changed_nor_aliased():
    X = np.random.default_rng(0).normal(size=(20, 40))
    before = X.copy()
    encoder = DiffusionMaps(2).fit(X)
    latents = encoder.transform(X)
    assert np.array_equal(X, before)
    X[:] = 0
    assert np.array_equal(encoder.transform(before), latents)


def test_parameters_clone_and_names():
    encoder = DiffusionMaps(n_components=3, select=[1, 2, 5], epsilon_scale=0.5)
    assert encoder.select is encoder.get_params()["select"]
    assert clone(encoder).get_params() == encoder.get_params()
    with pytest.raises(NotFittedError):
        encoder.transform(np.zeros((2, 2)))
    encoder.fit(bumps(30))
    names = encoder.get_feature_names_out()
    assert names.tolist() == ["diffusionmaps0", "diffusionmaps1", "diffusionmaps2"]


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    X = bumps(30, 4)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    encoder = DiffusionMaps(2).set_output(transform="pandas")
    latents = encoder.fit_transform(frame)
    assert encoder.feature_names_in_.tolist() == list("abcd")
    assert latents.columns.tolist() == encoder.get_feature_names_out().tolist()
    with pytest.raises(ValueError, match="feature names"):
        encoder.transform(frame[list("dcba")])


@parametrize_with_checks(
    [DiffusionMaps(n_components=1), DiffusionMaps(1, select="non-harmonic"), DiffusionMaps(1, n_neighbors=5)]
)
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():  # some checks give data of several components or hardly any sample
        warnings.simplefilter("ignore", UserWarning)
        check(estimator)


@pytest.mark.slow
def test_memory(tmp_path):
    """No n x n x M temporaries: a fit stays below the data plus four kernel matrices."""
    script = tmp_path / "memory.py"
    script.write_text(
        textwrap.dedent("""
        import tracemalloc
        import numpy as np
        import randsmap
        from randsmap._kernels.distances import tasks
        randsmap.set_num_threads(2)
        n, n_cells = 600, 2000  # the proportions of 3000 samples of 10000 cells
        X = np.random.default_rng(0).random((n, n_cells))
        randsmap.DiffusionMaps(2).fit(X[:20])  # imports
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        encoder = randsmap.DiffusionMaps(2).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
        # scratch of two threads: it grows with neither n nor n_cells * n
        scratch = 2 * 8 * tasks(n, n_cells, True)[1]
        # either the kernel and the scratch, or later the copy of the data
        assert peak - before <= max(X.nbytes, 8 * n * n + scratch) + 2e6, peak - before
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        encoder.transform(np.broadcast_to(X[:1], (1500, n_cells)))
        peak = tracemalloc.get_traced_memory()[1] - before
        scratch = 2 * 8 * tasks(1500, n_cells, False)[1]
        assert peak <= 1500 * n_cells * 8 + scratch + 4e6, peak
    """)
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=120, cwd=tmp_path)
