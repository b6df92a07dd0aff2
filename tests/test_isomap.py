"""Isomap: coordinates, those of new fields and their derivatives, beside plain formulas and scikit-learn's."""

import warnings

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.spatial.distance import cdist
from sklearn import manifold

import randsmap
from randsmap import Isomap

EPS = np.finfo(float).eps


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def walk(rng, n=70, n_cells=6):
    return np.cumsum(rng.normal(size=(n, n_cells)), axis=0)


def up_to_sign(a, b):
    return a * np.sign((a * b).sum(axis=0)), b


@pytest.mark.parametrize("n_neighbors", [4, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_coordinates_are_those_of_scikit_learn(rng, n_neighbors, weighted):
    F = walk(rng)
    w = rng.uniform(0.5, 2, F.shape[1]) if weighted else np.ones(F.shape[1])
    ours = Isomap(3, n_neighbors=n_neighbors, cell_weights=w if weighted else None).fit(F)
    theirs = manifold.Isomap(n_components=3, n_neighbors=n_neighbors).fit(F * np.sqrt(w))
    new = F[:20] + rng.normal(size=(20, F.shape[1])) / 4
    a, b = up_to_sign(ours.transform(np.vstack([F, new])), theirs.transform(np.vstack([F, new]) * np.sqrt(w)))
    # round-off of the squared lengths over the root of the eigenvalue, amplified by gaps between eigenvalues
    assert abs(a - b).max() <= 1e4 * EPS * abs(b).max()
    assert np.allclose(abs(a[: len(F)]), abs(theirs.embedding_), atol=1e4 * EPS * abs(b).max())
    assert ours.n_parts_ == 1


def test_of_all_pairs_it_is_principal_coordinates(rng):
    F = walk(rng)
    a, b = up_to_sign(Isomap(2, n_neighbors=len(F)).fit_transform(F), randsmap.POD(2).fit_transform(F))
    assert abs(a - b).max() <= 1e4 * EPS * abs(b).max()


def test_a_curve_is_unrolled_to_its_length():
    angle = np.sort(np.random.default_rng(1).uniform(0, 5, 50))
    F = np.column_stack([np.cos(angle), np.sin(angle)])
    y = (
        Isomap(1, n_neighbors=1, n_landmarks=50).fit(F).transform(F)[:, 0]
    )  # joined at their ends, all parts are one curve
    length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(F, axis=0), axis=1))])
    expected = length - length.mean()
    assert abs(abs(y) - abs(expected)).max() <= 1e4 * EPS * length[-1]


def test_landmarks_give_the_formula_of_de_silva(rng):
    F, m = walk(rng, 90), 20
    encoder = Isomap(2, n_neighbors=6, n_landmarks=m).fit(F)
    D = cdist(F, F)
    graph = np.where(D <= np.sort(D, axis=1)[:, 6:7], D, 0)
    lengths = shortest_path(graph, directed=False)[:, encoder.landmarks_]
    assert len(encoder.landmarks_) == m
    squared = lengths[encoder.landmarks_] ** 2
    J = np.eye(m) - 1 / m
    values, V = np.linalg.eigh(-J @ squared @ J / 2)
    values, V = values[:-3:-1], V[:, :-3:-1]
    new = F[::7] + 0.1
    nearest = np.argsort(cdist(new, F), axis=1)[:, :6]
    through = np.take_along_axis(cdist(new, F), nearest, axis=1)[:, :, None] + lengths[nearest]
    expected = (through.min(axis=1) ** 2 - squared.mean(axis=0)) @ V / (-2 * np.sqrt(values))
    a, b = up_to_sign(encoder.transform(new), expected)
    assert abs(a - b).max() <= 1e4 * EPS * abs(b).max()
    assert np.allclose(encoder.eigenvalues_, values, rtol=1e3 * EPS)


def test_derivatives_by_complex_steps(rng):
    F = walk(rng)
    w = rng.uniform(0.5, 2, F.shape[1])
    encoder = Isomap(2, n_neighbors=5, cell_weights=w).fit(F)
    new, V, U = F[:9] + 0.3, rng.normal(size=(9, F.shape[1])), rng.normal(size=(9, 2))
    part, h = encoder._encoding, 1e-100

    def plain(X, near):
        through = np.sqrt((w * (X[:, None] - F[near]) ** 2).sum(axis=2))[:, :, None] + part.lengths[near]
        best = through.real.argmin(axis=1)
        return np.take_along_axis(through, best[:, None], axis=1)[:, 0] ** 2 @ part.weights[1:].T

    near = np.argsort(cdist(new * np.sqrt(w), F * np.sqrt(w)), axis=1)[:, :5]
    expected = plain(new + 1j * h * V, near).imag / h
    size = 1e4 * EPS * abs(expected).max()
    assert abs(encoder.jvp(new, V) - expected).max() <= size
    assert abs(np.einsum("ndm,nm->nd", encoder.jacobian(new), V) - expected).max() <= size
    assert abs((encoder.vjp(new, U) * V).sum(axis=1) - (expected * U).sum(axis=1)).max() <= 10 * size
    # at a training field: along its paths by other fields, of which that to itself has the slope 0
    near = np.argsort(cdist(F * np.sqrt(w), F * np.sqrt(w)), axis=1)[:, 1:6]
    V = rng.normal(size=F.shape)
    through = (
        np.sqrt((w * (F[:, None] + 1j * h * V[:, None] - F[near]) ** 2).sum(axis=2))[:, :, None] + part.lengths[near]
    )
    shortest = np.take_along_axis(through, through.real.argmin(axis=1)[:, None], axis=1)[:, 0] ** 2
    np.fill_diagonal(shortest, 0)
    expected = (shortest @ part.weights[1:].T).imag / h
    assert abs(encoder.jvp(F, V) - expected).max() <= 1e4 * EPS * abs(expected).max()
    angle = np.linspace(0, 3, 60)  # the length of a curve grows with its own speed
    arc, along = np.column_stack([np.cos(angle), np.sin(angle)]), np.column_stack([-np.sin(angle), np.cos(angle)])
    assert abs(abs(Isomap(1).fit(arc).jvp(arc, along)) - 1).max() < 0.01
    same = np.repeat(F[:5], 4, axis=0)
    assert not Isomap(1, n_neighbors=3).fit(same).jacobian(same).any()
    for empty in (encoder.transform(F[:0]), encoder.jvp(F[:0], F[:0]), encoder.vjp(F[:0], U[:0])):
        assert len(empty) == 0


def test_parts_are_joined_by_their_shortest_edges(rng):
    F = np.vstack([rng.normal(size=(30, 3)), rng.normal(size=(25, 3)) + 30])
    encoder = Isomap(2, n_neighbors=4).fit(F)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are two parts, and of how it joins them
        theirs = manifold.Isomap(n_components=2, n_neighbors=4).fit(F)
    a, b = up_to_sign(encoder.transform(F), theirs.embedding_)
    assert encoder.n_parts_ == 2
    assert abs(a - b).max() <= 1e4 * EPS * abs(b).max()
    repeated = np.repeat(rng.normal(size=(12, 3)), 4, axis=0)  # edges of length 0 are edges
    encoder = Isomap(2, n_neighbors=3).fit(repeated)
    latents = encoder.transform(repeated).reshape(12, 4, 2)
    assert encoder.n_parts_ == 12 and (latents == latents[:, :1]).all()
    assert len(np.unique(latents[:, 0], axis=0)) == 12
    # all parts of single nearest neighbours are joined by the edges of the shortest tree
    F = rng.normal(size=(60, 20))
    encoder = Isomap(2, n_neighbors=1).fit(F)
    tree = shortest_path(minimum_spanning_tree(cdist(F, F)), directed=False)
    assert encoder.n_parts_ > 8 and np.allclose(encoder._encoding.lengths, tree, rtol=1e-12)


def test_far_fields_keep_their_digits(rng):
    F = walk(rng)
    encoder = Isomap(2).fit(F)
    far = F[:1] + 1e9 * np.array([[1.0, -1, 0, 0, 0, 0]])
    # the slope along the way out is constant there, up to the change of direction (1e-9 relative)
    y, dy = encoder.transform(far), encoder.jvp(far, far - F[:1])
    assert np.allclose(y, dy, rtol=1e-5)


def test_what_cannot_be_encoded_is_refused(rng):
    F = walk(rng, 8)
    with pytest.raises(ValueError, match="at most the number of samples or landmarks less 1 = 7, got 8"):
        Isomap(8).fit(F)
    with pytest.raises(ValueError, match="determine 1 coordinates, not 2. Ask for fewer"):
        Isomap(2).fit(np.outer(np.arange(8.0), np.ones(3)))
    with pytest.raises(ValueError, match="all fields are the same"):
        Isomap(2).fit(np.ones((8, 3)))
    with pytest.raises(ValueError, match="the 2 landmarks are the same; raise n_landmarks"):
        Isomap(1, n_landmarks=2).fit(np.vstack([F, F[:1]]))


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{}, {"n_landmarks": 20, "cell_weights": np.arange(1.0, 7)}])
def test_an_image_encodes_to_the_same_bits(rng, options):
    F = walk(rng)
    model = randsmap.ManifoldModel(Isomap(2, **options), randsmap.KernelDecoder(regularization=1.0), projection=2).fit(
        F
    )
    new = np.vstack([F[:9], F[:20] + rng.normal(size=(20, F.shape[1])) / 4, 1e9 * F[:2]])
    frozen = model.freeze()
    for steps in (0, 2):
        assert np.array_equal(frozen.transform(new, projection=steps), model.transform(new, projection=steps))
    single = model.freeze(precision="float32")
    expected = model.transform(new[:-2], projection=0)
    assert abs(single.transform(new[:-2], projection=0) - expected).max() <= 1e-5 * abs(expected).max()
    assert single.nbytes < 0.7 * frozen.nbytes
    many = Isomap(1, n_neighbors=1100, n_landmarks=3).fit(rng.normal(size=(1102, 1)))
    with pytest.raises(TypeError, match="Isomap with n_neighbors=1100 cannot be frozen: an image holds at most 1024"):
        many.frozen_encoder("float64", None)


def test_encoders_of_a_search_can_be_named(rng):
    F, options = walk(rng, 24), {"families": "thin-plate", "n_trials": 1, "random_state": 0}
    found = randsmap.autotune(F, encoders=["POD"], **options)
    assert set(found.results_.encoder) == {"POD"}
    with pytest.raises(
        ValueError, match="encoders must be among 'DiffusionMaps', 'Isomap', 'POD', or None for all, got 'PCA'"
    ):
        randsmap.autotune(F, encoders="PCA", **options)
    with pytest.raises(
        ValueError, match="12 snapshots are too few for Isomap with 2 coordinates: allow other encoders"
    ):
        randsmap.autotune(F[:12], encoders="Isomap", **options)


@pytest.mark.slow
def test_an_encoder_by_projection_is_chosen_where_it_is_better():
    a, b = np.random.default_rng(0).uniform(0.3, 0.7, (2, 90, 1))
    x = (np.arange(30) + 0.5) / 30
    pulses = np.hstack(
        [np.exp(-(((x - centre) / 0.05) ** 2)) for centre in (a, b)]
    )  # a plane that bends in all directions
    result = randsmap.autotune(pulses, n_components=2, n_trials=1, families="thin-plate", random_state=0)
    table, model = result.results_, result.best_model_
    (chosen,) = np.flatnonzero(table.chosen)
    assert table.score[chosen] == table.score.min() and set(table.encoder) == {"DiffusionMaps", "Isomap", "POD"}
    assert (model.projection, table.encoder[chosen]) == (5, "Isomap") and table.projection[chosen] == 5
    assert model.encoder_.n_neighbors == table.n_neighbors[chosen] > 0
