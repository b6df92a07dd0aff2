"""POD: the decomposition, its precision, conservation of the inverse, bad input."""

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import randsmap
from randsmap import POD, ConservativeRegressor, ManifoldModel
from randsmap._linalg.rows import Rows
from randsmap._linalg.svd import _by_block_iteration

from helpers import random_problem

EPS = np.finfo(float).eps


def bumps(n=60, M=40, seed=0, constant=True):
    """Positive fields of mass 1; cell 3 is always 0 and cell 8 always 1/4."""
    return random_problem(n, M, seed=seed, constant={3: 0.0, 8: 0.25} if constant else None)[1]


@pytest.mark.parametrize("n, M", [(60, 40), (40, 40), (20, 300), (2, 50), (300, 7), (5, 1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_modes_and_singular_values_are_those_of_the_plain_svd(n, M, weighted):
    rng = np.random.default_rng(n)
    F = rng.normal(size=(n, M)) + 5
    V = rng.uniform(0.5, 2, M) if weighted else np.ones(M)
    k = min(n - 1, M, 4)
    pod = POD(k, cell_weights=V if weighted else None).fit(F)
    G = (F - F.mean(axis=0)) * np.sqrt(V)
    _, s, Vt = np.linalg.svd(G, full_matrices=False)
    assert np.allclose(pod.mean_, F.mean(axis=0), rtol=1e-15 * 4)
    assert np.abs(pod.singular_values_ - s[:k]).max() <= 10 * max(n, M) * EPS * s[0]
    assert np.allclose(pod.energies_, s[:k] ** 2 / (s**2).sum(), rtol=1e-12)
    U = pod.components_
    assert np.abs((U * V) @ U.T - np.eye(k)).max() <= 100 * EPS
    projector = U.T @ (U * V)
    plain = (Vt[:k].T @ Vt[:k]) * np.sqrt(V) / np.sqrt(V)[:, None]
    assert np.abs(projector - plain).max() <= 1e4 * max(n, M) * EPS
    assert (U[np.arange(k), np.abs(U).argmax(axis=1)] > 0).all()
    latents = pod.transform(F)
    assert latents.shape == (n, k)
    assert np.allclose(latents, ((F - pod.mean_) * V) @ U.T, rtol=0, atol=1e-12)
    assert np.allclose(pod.inverse_transform(latents), pod.mean_ + latents @ U, rtol=0, atol=1e-12)
    assert np.allclose(np.linalg.norm(latents, axis=0), pod.singular_values_, rtol=1e-12)


def test_few_snapshots_of_many_cells_keep_small_modes():
    """The Gram matrix of the snapshots would lose what is below sigma_1 sqrt(eps) = 1.5e-8."""
    rng = np.random.default_rng(0)
    n, M = 12, 20_000
    U = np.linalg.qr(rng.normal(size=(M, 11)))[0].T
    left = np.linalg.qr(rng.normal(size=(n, 11)) - rng.normal(size=(n, 11)).mean(axis=0))[0]
    left -= left.mean(axis=0)
    left = np.linalg.qr(left)[0]
    sigma = 10.0 ** -np.arange(11.0)
    pod = POD(11).fit((left * sigma) @ U)
    assert pod.n_components_ == 11
    # backward stable: an absolute error of a few eps sigma_1
    assert np.abs(pod.singular_values_ - sigma).max() <= 100 * EPS
    overlap = np.abs(np.einsum("km,km->k", pod.components_, U))
    assert (1 - overlap <= 1e-9).all()


def test_energy_fraction_is_of_squares():
    F = bumps(constant=False)
    every = POD(1.0).fit(F)
    energy = np.cumsum(every.energies_)
    assert abs(energy[-1] - 1) <= 1e-14
    for fraction in (0.5, 0.9, 0.99, 1 - 1e-9):
        pod = POD(fraction).fit(F)
        k = int(np.argmax(energy >= fraction)) + 1
        assert pod.n_components_ == k
        assert np.allclose(pod.components_, every.components_[:k], rtol=0, atol=1e-12)
    assert POD(1).fit(F).n_components_ == 1
    pca = PCA(0.9, svd_solver="full").fit(F)
    assert pca.n_components_ == POD(0.9).fit(F).n_components_


def test_modes_at_noise_level_are_dropped():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 20))
    for n_components in (10, 20, 1.0):
        pod = POD(n_components).fit(F)
        assert pod.n_components_ == 3 and pod.transform(F).shape == (30, 3)
        assert np.allclose(pod.inverse_transform(pod.transform(F)), F, rtol=0, atol=1e-13)
    X = np.array([[0.2, 0.3, 0.5], [0.3, 0.3, 0.4], [0.1, 0.6, 0.3]])
    pod = POD(3).fit(X)
    assert np.allclose(pod.inverse_transform(pod.transform(X)), X, rtol=0, atol=1e-15)


def test_the_mean_is_added_back():
    X = np.array([[0.2, 0.3, 0.5], [0.3, 0.3, 0.4], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
    for invariants in (None, "mass"):
        pod = POD(1, invariants=invariants).fit(X)
        assert np.allclose(pod.inverse_transform([[0.0]]), X.mean(axis=0), rtol=0, atol=1e-16)
        reconstructed = pod.inverse_transform(pod.transform(X))
        assert np.abs(reconstructed.sum(axis=1) - 1).max() < 1e-15
        assert abs(pod.inverse_transform([[1e6]]).sum() - 1) < 1e-9


@pytest.mark.parametrize("n_components", [1, 3, 1.0])
def test_inverse_conserves_for_any_latents(n_components):
    F = bumps()
    V = np.random.default_rng(1).uniform(0.5, 2, 40)
    for C, weights in (("mass", None), (np.stack([np.ones(40), 2 * np.ones(40)], 1), V)):
        pod = POD(n_components, invariants=C, cell_weights=weights).fit(F)
        C, m = pod.invariant_matrix_, pod.invariant_values_
        # each mode by itself, the last too, to its own round-off
        assert np.abs(pod.components_ @ C).max() <= 1e-14 * np.abs(C).sum()
        assert (pod.components_[:, [3, 8]] == 0).all()
        latents = np.random.default_rng(0).normal(size=(50, pod.n_components_))
        for scale in (1, 100, 1e8):
            fields = pod.inverse_transform(scale * latents)
            size = np.abs(fields) @ np.abs(C) + np.abs(m)
            defect = np.abs(fields.astype(np.longdouble) @ C - m)
            assert (defect <= 1e-14 * size).all()
            assert (fields[:, [3, 8]] == [0, 0.25]).all()


def test_noise_along_the_invariant_is_no_mode():
    rng = np.random.default_rng(0)
    F = bumps(constant=False)
    F *= 1 + 1e-8 * rng.normal(size=(60, 1))  # within the tolerance of float64 data
    pod = POD(1.0, invariants="mass").fit(F)
    U = pod.components_
    assert np.abs(U @ U.T - np.eye(len(U))).max() <= 100 * EPS
    assert np.abs(U.sum(axis=1)).max() <= 1e-13
    loose = POD(1.0, invariants=None).fit(F)
    assert np.abs(loose.components_.sum(axis=1)).max() > 0.1  # some mode there is mostly mass


def test_projection_never_harms():
    F = bumps(200, constant=False)
    plain, exact = POD(4, invariants=None).fit(F[:50]), POD(4, invariants="mass").fit(F[:50])
    latents = plain.transform(F) + 0.01
    before = np.linalg.norm(plain.inverse_transform(latents) - F, axis=1)
    after = np.linalg.norm(exact.inverse_transform(exact.transform(F) + 0.01) - F, axis=1)
    assert (after <= before + 1e-13).all()


def test_rows_threads_and_tiles_agree():
    F = bumps(700, M=300)
    pod = POD(5, invariants="mass").fit(F[:100])
    latents, fields = pod.transform(F), pod.inverse_transform(pod.transform(F))
    for threads in (1, 3):
        randsmap.set_num_threads(threads)
        try:
            assert np.array_equal(pod.transform(F), latents)
            assert np.array_equal(pod.inverse_transform(latents), fields)
        finally:
            randsmap.set_num_threads(None)
    for part in (slice(0, 1), slice(3, 15), slice(100, 113)):
        assert np.allclose(pod.transform(F[part]), latents[part], rtol=0, atol=1e-13)
        assert np.allclose(pod.inverse_transform(latents[part]), fields[part], rtol=0, atol=1e-13)
    out = np.empty_like(fields)
    assert pod.inverse_transform(latents, out=out) is out and np.array_equal(out, fields)


@pytest.mark.slow
def test_input_of_every_kind_and_untouched():
    F = bumps()
    reference = POD(3).fit(F)
    kept = F.copy()
    locked = F.copy()
    locked.setflags(write=False)
    for X in (locked, np.asfortranarray(F), F.tolist(), np.repeat(F, 2, axis=1)[:, ::2]):
        assert np.array_equal(POD(3).fit(X).components_, reference.components_)
        assert np.array_equal(reference.transform(X), reference.transform(F))
    images = (np.arange(24).reshape(8, 3) ** 2 % 23).astype(np.uint8)
    assert np.array_equal(POD(2).fit_transform(images), POD(2).fit_transform(images.astype(float)))
    single = POD(2, invariants="mass").fit(F.astype(np.float32))
    assert single.transform(F.astype(np.float32)).dtype == np.float64
    fitted = POD(3).fit(F)
    expected = fitted.transform(kept)
    assert np.array_equal(F, kept)
    F[:] = 7
    assert np.array_equal(fitted.transform(kept), expected)
    a, b = Parallel(n_jobs=2, max_nbytes=0)(delayed(POD(3).fit_transform)(kept) for _ in range(2))
    assert np.array_equal(a, b) and np.allclose(a, expected, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_pod_in_a_model_a_pipeline_and_a_search():
    F = bumps(120)
    model = ManifoldModel(POD(4, invariants="mass")).fit(F)
    assert np.abs(model.reconstruct(F).sum(axis=1) - 1).max() < 1e-14
    assert np.abs(model.inverse_transform(np.full((1, 4), 50.0)).sum() - 1) < 1e-12
    target = F[:, [10, 20]]
    pipeline = make_pipeline(POD(2), ConservativeRegressor(Ridge(), invariants=None))
    search = GridSearchCV(pipeline, {"pod__n_components": [1, 6]}, n_jobs=2, cv=3).fit(F, target)
    assert search.best_params_ == {"pod__n_components": 6}
    assert list(POD(2).fit(F).get_feature_names_out()) == ["pod0", "pod1"]


@pytest.mark.parametrize(
    "n_components, error, message",
    [
        (0, ValueError, "n_components must be at least 1, got 0"),
        (41, ValueError, r"n_components must be at most min\(n_samples, n_cells\), got 41"),
        (1.5, ValueError, "n_components must be finite and > 0 and <= 1, got 1.5"),
        (-0.1, ValueError, "n_components must be finite and > 0"),
        (0.0, ValueError, "n_components"),
        (np.nan, ValueError, "n_components"),
        (True, TypeError, "n_components must be (an integer|a real number), got True"),
        ("all", TypeError, "n_components must be a real number, got 'all'"),
    ],
)
def test_bad_number_of_modes(n_components, error, message):
    pod = POD(n_components)
    with pytest.raises(error, match=message):
        pod.fit(bumps())
    assert not [name for name in vars(pod) if name.endswith("_")]


def test_bad_data():
    F = bumps()
    pod = POD(3, invariants="mass").fit(F)
    expected, state = pod.transform(F), set(vars(pod))
    bad = F.copy()
    bad[2, 5] = np.inf
    for X, message in (
        (bad, r"X must be finite, got inf at \(2, 5\)"),
        (F[:1], "minimum of 2"),
        (np.ones((5, 4)), "all the same"),
        (F[:, :0], "minimum of 1"),
        (F * np.linspace(1, 2, 60)[:, None], "do not satisfy invariant 0"),
    ):
        with pytest.raises(ValueError, match=message):
            pod.fit(X)
    assert set(vars(pod)) == state and np.array_equal(pod.transform(F), expected)
    for X in (np.empty((4, 3)), np.zeros(40), np.array(1.0), bad):
        with pytest.raises(ValueError):
            pod.transform(X)
    for X in (np.empty((4, 2)), np.zeros(3), np.array(1.0), np.full((1, 3), np.nan)):
        with pytest.raises(ValueError):
            pod.inverse_transform(X)
    latents = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"out must have shape \(2, 40\)"):
        pod.inverse_transform(latents, out=np.empty((2, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(200, 700), (700, 200)])
@pytest.mark.parametrize(
    "spectrum",
    [0.7 ** np.arange(150), 1 / np.arange(1.0, 151), np.r_[3.0, 3.0, 1e-9], np.r_[1.0, 0.5, 1e-15]],
    ids=["fast", "slow", "rank 3", "round-off"],
)
def test_a_few_leading_modes_are_those_of_the_whole_decomposition(shape, spectrum):
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(size, len(spectrum))))[0] for size in shape)
    G = (U * spectrum) @ V.T
    sigma, modes, energy = _by_block_iteration(Rows(G), 3)
    assert np.abs(sigma - spectrum[:3]).max() <= 1e-14 * spectrum[0]
    assert energy == pytest.approx(np.sum((spectrum / spectrum[0]) ** 2), rel=1e-13)
    assert np.abs(modes @ modes.T - np.eye(3)).max() <= 1e-13
    assert np.linalg.norm(G.T @ (G @ modes.T) - modes.T * sigma**2, axis=0).max() <= 1e-13 * spectrum[0] ** 2
    assert [value.tobytes() for value in (sigma, modes)] == [
        value.tobytes() for value in _by_block_iteration(Rows(G), 3)[:2]
    ]


def test_block_iteration_gives_up():
    flat = np.linalg.qr(np.random.default_rng(0).normal(size=(300, 200)))[0]
    assert _by_block_iteration(Rows(flat + 0.01 * np.random.default_rng(1).normal(size=flat.shape)), 3) is None
    assert _by_block_iteration(Rows(0 * flat), 3) is None
    F = 1e-130 * np.abs(flat)
    kept = POD(3).fit(F)
    assert np.abs(np.linalg.norm(kept.components_, axis=1) - 1).max() <= 1e-13
    assert kept.energies_.sum() <= 1


def test_complex_fields_are_refused_in_one_line():
    with pytest.raises(ValueError, match=r"^X must be an array of real numbers, got complex128 \(Complex data") as told:
        POD(2).fit(np.ones((30, 40), complex))
    assert "\n" not in str(told.value)
