"""KNNDecoder: the decoder's contract, and its weights against definitions in plain NumPy."""

import pickle
import tracemalloc

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsmap
from randsmap import DiffusionMaps, KNNDecoder, ManifoldModel

from helpers import random_problem
from oracles import encode

EPS = np.finfo(float).eps


def bumps(n, seed=0, n_cells=60):
    Y, F = random_problem(n, n_cells, seed=seed, place=(0.3, 0.7), width=(0.05, 0.15))
    return F, Y


@pytest.fixture(scope="module")
def encoded():
    F, _ = bumps(300)
    encoder = DiffusionMaps(2).fit(F)
    return F, encoder, encoder.transform(F), bumps(60, 1)[0]


@parametrize_with_checks([KNNDecoder(), KNNDecoder(n_neighbors=1)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def test_convex_weights():
    T = np.array([[0.0, 0], [1, 0], [0, 1]])
    X = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    m = KNNDecoder(3).fit(T, X)
    for y, a in (
        ([0.25, 0.25], [0.5, 0.25, 0.25]),
        ([1.0, 1.0], [0, 0.5, 0.5]),
        ([2.0, 0.0], [0, 1, 0]),
        ([1.0, 0.0], [0, 1, 0]),
    ):
        x = m.predict([y])[0]
        np.testing.assert_allclose(x, a @ X, atol=8 * EPS)
        assert abs(x.sum() - 1) < 4 * EPS


@pytest.mark.parametrize("exponent", [-400, -200, 250, 400])
def test_units_of_the_latents_change_nothing(exponent):
    rng = np.random.default_rng(0)
    Y, F, X = rng.normal(size=(30, 2)), rng.uniform(size=(30, 5)), 1.5 * rng.normal(size=(40, 2))
    unit = 2.0**exponent  # squares of squares of such latents over- or underflow
    expected = KNNDecoder(6).fit(Y, F).predict(X)
    np.testing.assert_allclose(KNNDecoder(6).fit(unit * Y, F).predict(unit * X), expected, rtol=0, atol=1e-14)


def test_interpolates_its_nodes():
    Y = np.linspace(0, 1, 6)[:, None]
    X = np.random.default_rng(0).normal(size=(6, 4))
    np.testing.assert_array_equal(KNNDecoder(1).fit(Y, X).predict(Y), X)
    np.testing.assert_allclose(KNNDecoder(2).fit(Y, X).predict(Y), X, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 30), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_mass_and_bounds_at_any_point(d, n, M, seed):
    rng = np.random.default_rng(seed)
    F = rng.uniform(size=(n, M)) ** 3
    F /= F.sum(axis=1, keepdims=True)
    k = int(rng.integers(1, n + 1))
    m = KNNDecoder(k).fit(rng.normal(size=(n, d)), F)
    fields = m.predict(rng.normal(size=(9, d)) * np.logspace(-3, 8, 9)[:, None])
    # one rounding a neighbour, one a cell in this sum
    assert abs(fields.sum(axis=1) - 1).max() <= (k + M + 4) * EPS
    assert fields.min() >= 0 and (fields <= F.max(axis=0) * (1 + (k + 4) * EPS)).all()


def test_k_equals_n_and_k_above():
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(9, 2)), rng.normal(size=(9, 4))
    m = KNNDecoder(9).fit(Y, F)
    np.testing.assert_allclose(m.predict(Y.mean(0, keepdims=True)), F.mean(0, keepdims=True), atol=1e-12)
    with pytest.raises(ValueError, match=r"training points \(n_samples = 9\), got 10"):
        KNNDecoder(10).fit(Y, F)
    for bad, error in ((0, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="n_neighbors"):
            KNNDecoder(bad).fit(Y, F)


def test_a_training_point_can_be_left_out():
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(80, 2)), rng.normal(size=(80, 3))
    Y[1] = Y[0]
    Y[5:20] = Y[5]  # more duplicates than neighbours: the point itself may not be among them
    m = KNNDecoder(4).fit(Y, F)
    neighbors, weights = m.neighbor_weights(Y, exclude=np.arange(80))
    fields = m.predict(Y, exclude=np.arange(80))
    for i in range(80):
        rest = np.delete(np.arange(80), i)
        other = KNNDecoder(4).fit(Y[rest], F[rest])
        expected, expected_weights = other.neighbor_weights(Y[i : i + 1])
        np.testing.assert_array_equal(neighbors[i], rest[expected[0]])
        np.testing.assert_array_equal(weights[i], expected_weights[0])
        np.testing.assert_array_equal(fields[i], other.predict(Y[i : i + 1])[0])
    np.testing.assert_array_equal(m.predict(Y, exclude=np.full(80, -1)), m.predict(Y))
    for bad in (np.zeros(3, int), np.zeros(80), np.full(80, 80), np.full(80, -2)):
        with pytest.raises(ValueError, match="exclude"):
            m.predict(Y, exclude=bad)
    with pytest.raises(ValueError, match="exclude leaves 79"):
        KNNDecoder(80).fit(Y, F).predict(Y, exclude=np.arange(80))


def test_encoder_objective_attains_the_latent_point(encoded):
    F, encoder, Y, G = encoded
    Z = encoder.transform(G)
    for k in (3, 6):
        m = KNNDecoder(k, objective="encoder", encoder=encoder).fit(Y, F)
        latent = KNNDecoder(k).fit(Y, F)
        _, weights = m.neighbor_weights(Z)
        assert weights.min() >= 0 and abs(weights.sum(axis=1) - 1).max() <= 4 * EPS
        fields = m.predict(Z)
        assert abs(fields.sum(axis=1) - 1).max() < 1e-14
        misfit = np.linalg.norm(encoder.transform(fields) - Z, axis=1)
        before = np.linalg.norm(encoder.transform(latent.predict(Z)) - Z, axis=1)
        assert (misfit <= before + 1e-12).all()
        assert np.median(misfit) < np.median(before)
        # solved to convergence: a zero is found to round-off or there is none
        assert ((misfit < 1e-10) | (misfit > 1e-6)).all() and (misfit < 1e-10).any()


def test_the_search_starts_from_each_neighbour(encoded):
    """A local minimum that only another start escapes from would depend on which neighbour comes first."""
    from randsmap._kernels import simplex as kernel

    F, encoder, Y, G = encoded
    Z = encoder.transform(G) * 1.3  # some of them out of reach: no zero ends the search
    k = 6
    m = KNNDecoder(k, objective="encoder", encoder=encoder).fit(Y, F)
    d = m._fitted
    neighbors, weights = m.neighbor_weights(Z)
    misfit, lowest = np.empty(len(Z)), np.full(len(Z), np.inf)
    for turn in range(k):
        rows = np.ascontiguousarray(np.roll(neighbors, turn, axis=1))
        a = np.empty(rows.shape)
        kernel.encoder(d.exponents, *d.nystroem, Y, Z, rows, rows, a)
        for i in range(len(Z)):
            psi, _ = encode(d.exponents, *d.nystroem, rows[i], a[i])
            lowest[i] = min(lowest[i], np.linalg.norm(psi - Z[i]))
            if turn == 0:
                psi, _ = encode(d.exponents, *d.nystroem, neighbors[i], weights[i])
                misfit[i] = np.linalg.norm(psi - Z[i])
    assert (lowest > 1e-6).sum() > 10
    assert (misfit <= lowest * (1 + 1e-6) + 1e-10).all()


def test_encoder_objective_is_the_encoder_at_the_mixture(encoded):
    F, encoder, Y, _ = encoded
    for other in (encoder, DiffusionMaps(2, alpha=0.0, diffusion_time=1, select=[2, 3]).fit(F)):
        d = KNNDecoder(5, objective="encoder", encoder=other).fit(other.transform(F), F)._fitted
        rng = np.random.default_rng(0)
        for _ in range(5):
            row, a = rng.integers(0, 300, 5), rng.dirichlet(np.ones(5))
            psi, _ = encode(d.exponents, *d.nystroem, row, a)
            np.testing.assert_allclose(psi, other.transform([a @ F[row]])[0], atol=1e-11)


def test_distances_by_blocks_give_the_same_weights(encoded, monkeypatch):
    from randsmap.decoders import _knn

    F, encoder, Y, G = encoded
    Z = encoder.transform(G)
    whole = KNNDecoder(3, objective="encoder", encoder=encoder).fit(Y, F)
    monkeypatch.setattr(_knn, "KEPT_DISTANCES", 0)
    monkeypatch.setattr(_knn, "BLOCK_DISTANCES", 3 * 300 * 7)
    blocks = KNNDecoder(3, objective="encoder", encoder=encoder).fit(Y, F)
    assert blocks._fitted.exponents is None and whole._fitted.exponents is not None
    np.testing.assert_allclose(blocks.predict(Z), whole.predict(Z), atol=1e-7)


def test_a_fitted_encoder_is_used_as_it_is_and_survives_clone(encoded):
    F, encoder, Y, _ = encoded
    decoder = KNNDecoder(3, objective="encoder", encoder=encoder)
    copy = clone(decoder)
    assert copy is not decoder and copy.encoder is encoder
    assert copy.fit(Y, F).encoder_ is encoder
    fitted_on_fewer = KNNDecoder(3, objective="encoder", encoder=encoder).fit(Y[:200], F[:200])
    assert fitted_on_fewer.encoder_ is encoder
    misfit = encoder.transform(fitted_on_fewer.predict(Y[:50])) - Y[:50]
    assert np.median(np.linalg.norm(misfit, axis=1)) < 1e-10


def test_an_unfitted_encoder_is_fitted_on_the_fields(encoded):
    F, encoder, Y, _ = encoded
    unfitted = DiffusionMaps(2)
    decoder = KNNDecoder(3, objective="encoder", encoder=unfitted)
    assert clone(decoder).encoder is not unfitted
    decoder.fit(Y, F)
    assert not hasattr(unfitted, "selected_")
    np.testing.assert_array_equal(decoder.encoder_.eigenvectors_, encoder.eigenvectors_)


def test_frozen_encoder(encoded):
    from sklearn.frozen import FrozenEstimator

    F, encoder, Y, _ = encoded
    decoder = clone(KNNDecoder(3, objective="encoder", encoder=FrozenEstimator(encoder))).fit(Y, F)
    assert decoder.encoder_ is encoder


def test_inside_a_model_the_encoder_is_the_models(encoded):
    F, encoder, Y, G = encoded
    decoder = KNNDecoder(3, objective="encoder")
    model = ManifoldModel(DiffusionMaps(2), decoder).fit(F)
    assert decoder.encoder is None
    assert model.decoder_.encoder_ is model.encoder_
    alone = KNNDecoder(3, objective="encoder", encoder=encoder).fit(Y, F)
    np.testing.assert_allclose(model.reconstruct(G), alone.predict(encoder.transform(G)), atol=1e-8)
    again = clone(model).fit(F[:100])
    assert again.decoder_.encoder_ is again.encoder_


def test_what_the_encoder_objective_refuses(encoded):
    F, encoder, Y, _ = encoded
    with pytest.raises(ValueError, match="needs an encoder"):
        KNNDecoder(3, objective="encoder").fit(Y, F)
    with pytest.raises(TypeError, match="DiffusionMaps"):
        KNNDecoder(3, objective="encoder", encoder=StandardScaler().fit(F)).fit(Y, F)
    with pytest.raises(ValueError, match="columns as the encoder's fields"):
        KNNDecoder(3, objective="encoder", encoder=encoder).fit(Y, F[:, :9])
    with pytest.raises(ValueError, match="as many columns as the encoder has coordinates"):
        KNNDecoder(3, objective="encoder", encoder=encoder).fit(Y[:, :1], F)
    with pytest.raises(ValueError, match="objective must be one of"):
        KNNDecoder(3, objective="both").fit(Y, F)


@pytest.mark.parametrize("objective", ["latent", "encoder"])
def test_threads_and_batches_change_nothing(encoded, objective):
    F, encoder, Y, G = encoded
    Z = encoder.transform(G)
    m = KNNDecoder(4, objective=objective, encoder=encoder).fit(Y, F)
    reference = m.predict(Z)
    try:
        for threads in (1, 3):
            randsmap.set_num_threads(threads)
            np.testing.assert_array_equal(m.predict(Z), reference)
    finally:
        randsmap.set_num_threads(None)
    np.testing.assert_array_equal(m.predict(Z[17:18]), reference[17:18])
    np.testing.assert_array_equal(m.predict(Z[::-3]), reference[::-3])


def test_any_layout_and_number_type_and_the_data_stay_as_they_are():
    rng = np.random.default_rng(0)
    Y, F = rng.integers(0, 50, (30, 6))[:, ::2], rng.integers(0, 9, (30, 8))[:, ::-1]
    reference = KNNDecoder(3).fit(Y.astype(float).copy(), F.astype(float).copy()).predict(Y)
    for convert in (
        np.asfortranarray,
        np.ndarray.tolist,
        lambda a: a.astype(np.float16),
        lambda a: a.astype(np.uint8),
        lambda a: a.astype(np.float32),
        lambda a: a,
    ):
        y, f = convert(Y), convert(F)
        np.testing.assert_array_equal(KNNDecoder(3).fit(y, f).predict(y), reference)
    y, f = Y.astype(float), F.astype(float)
    for a in (y, f):
        a.setflags(write=False)
    m = KNNDecoder(3).fit(y, f)
    np.testing.assert_array_equal(m.predict(y), reference)
    y, f = Y.astype(float), F.astype(float)
    m = KNNDecoder(3).fit(y, f)
    y[:] = f[:] = 0
    np.testing.assert_array_equal(m.predict(Y), reference)


def test_data_frames_keep_their_names():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    Y = pandas.DataFrame(rng.normal(size=(20, 2)), columns=["a", "b"])
    m = KNNDecoder(2).fit(Y, pandas.DataFrame(rng.normal(size=(20, 3))))
    assert m.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        m.predict(Y[["b", "a"]])


def test_one_dimensional_targets():
    Y = np.linspace(0, 1, 11)[:, None]
    m = KNNDecoder(2).fit(Y, 3 * Y[:, 0])
    np.testing.assert_allclose(m.predict([[0.33]]), [0.99], atol=1e-12)
    assert m.score(Y, 3 * Y[:, 0]) > -1e-12


def test_invalid_data():
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(10, 3)), rng.normal(size=(10, 4))
    m = KNNDecoder(2).fit(Y, F)
    for bad in (np.nan, np.inf):
        Z = Y.copy()
        Z[4, 1] = bad
        for call in (lambda: m.predict(Z), lambda: KNNDecoder(2).fit(Z, F), lambda: KNNDecoder(2).fit(Y, Z)):
            with pytest.raises(ValueError, match="finite|NaN|infinity"):
                call()
    for bad in (np.empty((4, 2)), np.zeros(3), np.array(1.0), np.empty((4, 4))):
        with pytest.raises(ValueError):
            m.predict(bad)
    with pytest.raises(ValueError, match="same number of rows"):
        KNNDecoder(2).fit(Y, F[:9])
    with pytest.raises(ValueError, match="got None"):
        KNNDecoder(2).fit(Y, None)
    with pytest.raises(NotFittedError):
        KNNDecoder(2).predict(Y)


def test_a_failed_fit_changes_nothing():
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(10, 3)), rng.normal(size=(10, 4))
    m = KNNDecoder(2).fit(Y, F)
    reference = m.predict(Y)
    for X, y in ((Y[:, :2], F[:1]), (Y[:1], F[:1]), (Y * np.nan, F)):
        with pytest.raises(ValueError):
            m.fit(X, y)
        np.testing.assert_array_equal(m.predict(Y), reference)
    m = KNNDecoder(20)
    with pytest.raises(ValueError):
        m.fit(Y, F)
    assert vars(m) == {"n_neighbors": 20, "objective": "latent", "encoder": None, "latent_scale": None, "copy": True}


def test_out():
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(10, 3)), rng.normal(size=(10, 3))
    m = KNNDecoder(2).fit(Y, F)
    out = np.full((10, 3), np.nan)
    assert m.predict(Y, out=out) is out
    np.testing.assert_array_equal(out, m.predict(Y))
    for bad in (np.empty((10, 2)), np.empty((3, 10)).T):
        with pytest.raises(ValueError, match="out"):
            m.predict(Y, out=bad)
    with pytest.raises(TypeError, match="out"):
        m.predict(Y, out=np.empty((10, 3), np.float32))
    with pytest.raises(ValueError, match="memory"):
        m.predict(Y, out=Y)


def test_parameters_are_only_stored_and_round_trip():
    encoder = DiffusionMaps(2)
    m = KNNDecoder("x", objective=3, encoder=encoder)
    assert (m.n_neighbors, m.objective) == ("x", 3) and m.encoder is encoder
    assert KNNDecoder().set_params(**m.get_params()).get_params() == m.get_params()


@pytest.mark.slow
def test_grid_search_pipeline_pickle_and_memory_maps(encoded, tmp_path):
    F, encoder, Y, G = encoded
    big = np.tile(F, (1, 10))  # large enough for joblib to map it
    search = GridSearchCV(
        make_pipeline(StandardScaler(), KNNDecoder()), {"knndecoder__n_neighbors": [1, 4]}, cv=3, n_jobs=2
    ).fit(Y, big)
    assert search.best_params_["knndecoder__n_neighbors"] == 4
    search = GridSearchCV(KNNDecoder(objective="encoder", encoder=encoder), {"n_neighbors": [1, 3]}, cv=3).fit(Y, F)
    assert search.best_estimator_.encoder_ is encoder
    m = KNNDecoder(3, objective="encoder", encoder=encoder).fit(Y, F)
    Z = encoder.transform(G)
    joblib.dump(m, tmp_path / "m")
    for copy in (pickle.loads(pickle.dumps(m)), joblib.load(tmp_path / "m", mmap_mode="r")):
        np.testing.assert_array_equal(copy.predict(Z), m.predict(Z))


def derivatives_of(decoder, X, step):
    return np.stack(
        [(decoder.predict(X + step * e) - decoder.predict(X - step * e)) / (2 * step) for e in np.eye(X.shape[1])], -1
    )


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("objective", ["latent", "encoder"])
def test_derivatives_are_those_of_differences(encoded, objective, k):
    F, encoder, Y, G = encoded
    decoder = KNNDecoder(k, objective=objective, encoder=encoder, latent_scale=[0.7, 1.3]).fit(Y, F)
    X = encoder.transform(G)
    X = np.vstack([X, 1.3 * X, 3 * X[:5]])  # within reach of mixtures, and out of it
    J = decoder.jacobian(X)
    errors = np.abs(J - derivatives_of(decoder, X, 1e-6)).max(axis=(1, 2)) / max(np.abs(J).max(), 1e-12)
    assert (errors < 1e-5).mean() >= 0.95  # others are at a kink
    V, U = np.random.default_rng(0).normal(size=X.shape), np.random.default_rng(1).normal(size=(len(X), 60))
    size = np.abs(J).max()
    np.testing.assert_allclose(decoder.jvp(X, V), np.einsum("nmd,nd->nm", J, V), rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(decoder.vjp(X, U), np.einsum("nmd,nm->nd", J, U), rtol=0, atol=1e-11 * size)
    assert np.abs(J.sum(axis=1)).max() <= 1e-13 * np.abs(J).sum(axis=1).max() + 1e-15  # the mass


def test_derivatives_of_cells_and_of_fields_in_a_file(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(200, 3)), rng.uniform(size=(200, 40))
    F[:, 5] = 1e6 / 3
    X = 1.5 * rng.normal(size=(70, 3))
    decoder = KNNDecoder(6).fit(Y, F)
    J = decoder.jacobian(X)
    assert (J[:, 5] == 0).all()  # exactly, in a constant cell
    for cells in ([3, -1, 3, 5], [], np.arange(40) % 7 == 0):
        part = np.asarray(cells, dtype=None if len(cells) else int)
        np.testing.assert_allclose(decoder.jacobian(X, cells=cells), J[:, part], rtol=0, atol=1e-13)
        U = rng.normal(size=J[:, part].shape[:2])
        expected = np.einsum("nmd,nm->nd", J[:, part], U)
        np.testing.assert_allclose(decoder.vjp(X, U, cells=cells), expected, rtol=0, atol=1e-12)
        assert decoder.jvp(X, np.ones(3), cells=cells).shape == U.shape
    assert decoder.jacobian(X[:0]).shape == (0, 40, 3) and decoder.vjp(X[:0], F[:0]).shape == (0, 3)
    out = np.empty((70, 40, 3))
    assert decoder.jacobian(X, out=out) is out and (out == J).all()
    with pytest.raises(ValueError, match="V must have"):
        decoder.jvp(X, np.ones(2))
    np.save(tmp_path / "fields.npy", F)
    monkeypatch.setattr("randsmap._linalg.rows.LARGE", 1)
    mapped = KNNDecoder(6, copy=False).fit(Y, np.load(tmp_path / "fields.npy", mmap_mode="r"))
    assert (mapped.jacobian(X) == J).all()
    np.testing.assert_allclose(mapped.jacobian(X, cells=[3, 1]), J[:, [3, 1]], rtol=0, atol=1e-13)
    # of fields of one cell, and of latents in other units
    single = KNNDecoder(6).fit(Y, F[:, 0])
    assert single.jacobian(X).shape == (70, 3) and single.vjp(X, np.ones(70)).shape == (70, 3)
    for unit in (2.0**-200, 2.0**200):
        np.testing.assert_allclose(KNNDecoder(6).fit(unit * Y, F).jacobian(unit * X) * unit, J, rtol=0, atol=1e-12)


def test_no_temporary_of_rows_times_neighbours_times_cells():
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(60, 2)), rng.uniform(size=(60, 5000))
    m = KNNDecoder(10).fit(Y, F)
    X = rng.normal(size=(500, 2))
    out = np.empty((500, 5000))
    m.predict(X, out=out)
    tracemalloc.start()
    m.predict(X, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 * 10 * 8 * 20  # a few (L, k) arrays, not one (L, M)


@pytest.mark.parametrize("objective", ["latent", "encoder"])
def test_latent_scale_is_that_of_latents_divided_by_it(objective):
    rng = np.random.default_rng(0)
    F = rng.uniform(size=(60, 8))
    encoder = randsmap.DiffusionMaps(2, epsilon_scale=2.0)
    X = encoder.fit_transform(F)
    scale = np.array([0.1, 3.0])
    decoder = KNNDecoder(5, objective=objective, encoder=encoder, latent_scale=scale).fit(X, F)
    plain = KNNDecoder(5).fit(X / scale, F)
    neighbors, weights = decoder.neighbor_weights(X, exclude=range(60))
    others, their_weights = plain.neighbor_weights(X / scale, exclude=range(60))
    assert np.array_equal(neighbors, others) and not np.array_equal(
        neighbors, KNNDecoder(5).fit(X, F).neighbor_weights(X, exclude=range(60))[0]
    )
    if objective == "latent":
        assert np.allclose(weights, their_weights, atol=1e-12)
    std = KNNDecoder(5, latent_scale="std").fit(X, F)
    assert np.allclose(std.latent_scale_, X.std(axis=0))
    with pytest.raises(ValueError, match="latent_scale"):
        KNNDecoder(5, latent_scale=-1.0).fit(X, F)


def test_a_decoder_that_decoded_cells_can_be_pickled(encoded):
    F, _, Y, _ = encoded
    decoder = KNNDecoder(3).fit(Y, F)
    some = decoder.predict(Y[:4], cells=[1, 2])
    assert np.array_equal(pickle.loads(pickle.dumps(decoder)).predict(Y[:4], cells=[1, 2]), some)
