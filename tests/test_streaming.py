"""`partial_fit`: batches give the decoder that one fit gives."""

import copy
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsmap
from randsmap import FourierFeatures, MultiscaleFourierFeatures, RANDSMAPDecoder, RFNNDecoder, SigmoidFeatures
from randsmap._kernels import sums as _kernel
from randsmap._linalg import gram as _sums
from randsmap._linalg.gram import NormalEquations

EPS = np.finfo(float).eps
BOX = [[0.0, 0.0], [1.0, 1.0]]
MAPS = [
    FourierFeatures(0.3, n_features=40),
    MultiscaleFourierFeatures(8.0, n_features=40),
    SigmoidFeatures(5.0, n_features=40, latent_box=BOX),
]


def problem(n=300, M=25, seed=0, offset=0.0):
    """Latents, bumps of mass 1 (plus an offset a cell) and latents in and around the box."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(size=(n, 2))
    F = np.exp(-(((np.linspace(0, 1, M) - 0.3 - 0.4 * Y[:, :1]) / (0.2 + 0.2 * Y[:, 1:])) ** 2))
    F[:, 3] = 0.25
    F[:, :3] = 0
    F[:, 4:] *= 0.75 / F[:, 4:].sum(axis=1, keepdims=True)
    return Y, F + offset, rng.uniform(-0.5, 1.5, size=(50, 2))


def streamed(decoder, Y, F, cuts, order=None):
    decoder = clone(decoder)
    batches = list(zip(np.split(Y, cuts), np.split(F, cuts)))
    for i in range(len(batches)) if order is None else order:
        decoder.partial_fit(*batches[i])
    return decoder


def relative(a, b):
    return abs(a - b).max() / abs(b).max()


@pytest.mark.parametrize("features", MAPS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("cls", [RFNNDecoder, RANDSMAPDecoder])
@pytest.mark.parametrize("n_batches", [1, 2, 7, 50])
@pytest.mark.parametrize("offset", [pytest.param(0.0, marks=pytest.mark.slow), 1e4])
def test_batches_in_any_order_give_the_predictions_of_one_fit(cls, features, n_batches, offset):
    Y, F, there = problem(offset=offset)
    rng = np.random.default_rng(n_batches)
    cuts = np.sort(rng.choice(np.arange(1, len(Y)), n_batches - 1, replace=False))
    decoder = cls(features, random_state=0, latent_scale=None)
    whole = clone(decoder).fit(Y, F).predict(there)
    for order in (None, rng.permutation(n_batches)):
        batches = streamed(decoder, Y, F, cuts, order)
        assert batches.n_samples_seen_ == len(Y)
        assert relative(batches.predict(there), whole) < 1e-8
        if order is None:
            assert np.array_equal(batches.predict(there), whole)  # the same sums


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_cuts_give_the_bits_of_one_fit(data):
    n = data.draw(st.integers(60, 200))
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=20)))
    regularization = data.draw(st.sampled_from([1e-3, 1e-5, 1e-8]))
    Y, F, there = problem(n)
    decoder = RANDSMAPDecoder(
        MAPS[2], random_state=0, regularization=regularization, solver="cholesky", latent_scale=None
    )
    whole = clone(decoder).fit(Y, F)
    batches = streamed(decoder, Y, F, cuts)
    assert whole.solver_ == batches.solve().solver_ == "cholesky"
    assert np.array_equal(batches.predict(there), whole.predict(there))
    assert np.array_equal(batches.constant_cells_, whole.constant_cells_)
    assert np.array_equal(batches.invariant_values_, whole.invariant_values_)


def test_more_samples_than_a_block_and_rows_one_by_one(monkeypatch):
    monkeypatch.setattr(_sums, "_BLOCK", 64)
    Y, F, there = problem(200)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None)
    rows = streamed(decoder, Y, F, np.arange(1, 200))
    assert np.array_equal(rows.predict(there), clone(decoder).fit(Y, F).predict(there))


def test_reordered_batches_are_as_near_as_a_reordered_fit_at_tiny_regularization():
    """Round-off of Phi^T Phi, amplified by 1 / lambda, is there in `fit` as well."""
    Y, F, there = problem(600)
    decoder = RANDSMAPDecoder(MAPS[2], random_state=0, regularization=1e-8, solver="cholesky", latent_scale=None)
    whole = clone(decoder).fit(Y, F).predict(there)
    rng = np.random.default_rng(0)
    own = max(
        relative(clone(decoder).fit(Y[p], F[p]).predict(there), whole) for p in (rng.permutation(600) for _ in range(5))
    )
    for _ in range(3):
        batches = streamed(decoder, Y, F, np.arange(20, 600, 20), rng.permutation(30))
        assert relative(batches.predict(there), whole) < 10 * own + 1e-8


def test_fewer_samples_than_features():
    Y, F, there = problem(20)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None)
    whole = clone(decoder).fit(Y, F)
    batches = streamed(decoder, Y, F, [7])
    assert whole.solver_ == "dual" and batches.solve().solver_ == "cholesky"
    assert relative(batches.predict(there), whole.predict(there)) < 1e-8


def test_minimum_norm_below_the_rule():
    """Singular values of Phi below sqrt(P eps) of the largest are lost, and what they decode with them."""
    Y, F, _ = problem(300)
    decoder = RANDSMAPDecoder(FourierFeatures(0.1, n_features=40), random_state=0, regularization=0, latent_scale=None)
    whole = clone(decoder).fit(Y, F)
    batches = streamed(decoder, Y, F, [100, 200])
    assert whole.solver_ == "svd" and batches.solve().solver_ == "eigh"
    assert relative(batches.predict(Y), whole.predict(Y)) < np.sqrt(40 * EPS)
    polynomial = PolynomialFeatures(3).fit(np.ones((1, 2)))
    doubled = RFNNDecoder(polynomial, regularization=0, solver="cholesky", latent_scale=None).partial_fit(Y, F)
    with pytest.raises(np.linalg.LinAlgError, match="regularization .lambda. = 0: .* solver='auto'"):
        doubled.predict(Y)  # its own column of ones and ours


def test_a_fitted_map_is_used_as_given_and_stays_the_users():
    Y, F, there = problem()
    features = SigmoidFeatures(5.0, random_state=3).fit(Y[:40])
    decoder = RFNNDecoder(features, random_state=0, latent_scale=None).partial_fit(Y, F)
    assert decoder.features_ is not features and np.array_equal(decoder.features_.weights_, features.weights_)
    before = decoder.predict(there)
    features.set_params(random_state=4).fit(Y)
    assert np.array_equal(decoder.partial_fit(Y, F).predict(there).shape, before.shape)
    polynomial = RANDSMAPDecoder(PolynomialFeatures(2, include_bias=False).fit(Y[:1]), latent_scale=None)
    np.testing.assert_allclose(
        streamed_fitted(polynomial, Y, F).predict(there),
        clone(polynomial).fit(Y, F).predict(there),
        rtol=1e-9,
        atol=1e-9,
    )


def streamed_fitted(decoder, Y, F):
    for i in range(0, len(Y), 50):
        decoder.partial_fit(Y[i : i + 50], F[i : i + 50])
    return decoder


@pytest.mark.parametrize(
    "decoder, message",
    [
        (RFNNDecoder(latent_scale=None), "give FourierFeatures.n_features"),
        (RFNNDecoder(SigmoidFeatures(n_features=5), latent_scale=None), "latent_box"),
        (RFNNDecoder(FourierFeatures(), latent_scale=None), "integer n_features, got 1.0"),
        (
            RFNNDecoder(SigmoidFeatures(n_features=0.5, latent_box=(0, 1)), latent_scale=None),
            "integer n_features, got 0.5",
        ),
        (RFNNDecoder(PolynomialFeatures(2), latent_scale=None), "fit it before"),
        (RANDSMAPDecoder(MAPS[0], constraint="training", latent_scale=None), "constraint='everywhere'"),
        (RFNNDecoder(MAPS[0], solver="svd", latent_scale=None), "solver='auto' or 'cholesky'"),
        (RFNNDecoder(MAPS[0], solver="krylov", latent_scale=None), "solver='auto' or 'cholesky'"),
    ],
)
def test_what_cannot_be_streamed_says_what_to_do(decoder, message):
    Y, F, _ = problem(10)
    with pytest.raises(AttributeError, match="partial_fit") as error:
        decoder.partial_fit(Y, F)
    assert isinstance(error.value.__cause__, ValueError) and re.search(message, str(error.value.__cause__))
    assert not hasattr(decoder, "partial_fit")


def test_a_failing_batch_leaves_the_state_unchanged():
    Y, F, there = problem()
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None).partial_fit(Y[:100], F[:100])
    one_fit = clone(decoder).fit(Y[:100], F[:100]).predict(there)
    bad = F[100:110].copy()
    bad[4] *= 1.5
    nan = F[100:110].copy()
    nan[2, 3] = np.nan
    for y, message in (
        (bad, "field 4 of this batch has the value 1.5"),
        (nan, r"NaN at \(2, 3\)"),
        (F[100:110, 1:], "25 columns, as in the first batch, got 24"),
        (F[100:109], "same number of rows"),
    ):
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                decoder.partial_fit(Y[100:110], y)
            assert decoder.n_samples_seen_ == 100
            assert np.array_equal(decoder.predict(there), one_fit)
    with pytest.raises(ValueError, match="2 features"):
        decoder.partial_fit(Y[:, :1], F)
    fresh = RANDSMAPDecoder(MAPS[0], latent_scale=None)
    with pytest.raises(ValueError):
        fresh.partial_fit(Y[:10], nan)
    assert not hasattr(fresh, "n_features_in_") and not hasattr(fresh, "coef_")
    fresh.partial_fit(Y[:3, :1], F[:3])  # nothing of the failed batch binds it


def test_the_invariants_are_those_of_all_the_samples():
    """The mean moves with the batches; every sample is checked against the last one."""
    Y, F, _ = problem(30)
    masses = 1 + np.linspace(-4e-7, 4e-7, 30)
    G = F * masses[:, None]
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None)
    for cuts in ([1], [10, 20], range(1, 30)):
        assert streamed(decoder, Y, G, cuts).invariant_values_ == clone(decoder).fit(Y, G).invariant_values_
    # each batch agrees with itself, all of them do not
    decoder.invariants = "mass"
    G = F * np.repeat([1.0, 1.0 + 3e-6], [29, 1])[:, None]
    with pytest.raises(ValueError):
        clone(decoder).fit(Y, G)
    with pytest.raises(ValueError, match="field 0 of this batch"):
        streamed(decoder, Y, G, [29])
    with pytest.raises(ValueError, match="field 0 of this batch.* earlier fields|field 0 of this batch"):
        streamed(decoder, Y[::-1], G[::-1], range(1, 30))
    given = RANDSMAPDecoder(MAPS[0], invariant_values=1.0, latent_scale=None)
    streamed(given, Y, F, [3])
    with pytest.raises(ValueError, match="invariant 0"):
        streamed(given, Y, G, [3])


def test_cells_that_cease_to_be_constant():
    Y, F, there = problem(40)
    F[:, 10] = F[0, 10]
    F[35, 10] += 1e-3
    F[:, 11] += 1 - F.sum(axis=1)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None).partial_fit(Y[:30], F[:30])
    assert decoder.constant_cells_[10] and (decoder.predict(there)[:, 10] == F[0, 10]).all()
    decoder.partial_fit(Y[30:], F[30:])
    assert np.array_equal(decoder.constant_cells_, clone(decoder).fit(Y, F).constant_cells_)
    assert not decoder.constant_cells_[10] and decoder.constant_cells_[:4].all()


def test_pickle_and_copies_go_on_and_a_model_file_decodes(tmp_path):
    Y, F, there = problem()
    for seen_before_use in (True, False):
        decoder = RANDSMAPDecoder(MAPS[2], random_state=0, latent_scale=None).partial_fit(Y[:200], F[:200])
        if not seen_before_use:
            decoder.predict(there)
        for again in (pickle.loads(pickle.dumps(decoder)), copy.deepcopy(decoder)):
            assert np.array_equal(again.predict(there), decoder.predict(there))
            again.partial_fit(Y[200:], F[200:])
            assert np.array_equal(again.predict(there), clone(decoder).fit(Y, F).predict(there))
        assert decoder.n_samples_seen_ == 200
    decoder.partial_fit(Y[200:250], F[200:250])
    randsmap.persistence.save(decoder, tmp_path / "decoder.npz")
    loaded = randsmap.load(tmp_path / "decoder.npz")
    assert np.array_equal(loaded.predict(there), decoder.predict(there))
    for fitted in (loaded, clone(decoder).fit(Y, F)):
        with pytest.warns(UserWarning, match="partial_fit discards that fit"):
            fitted.partial_fit(Y[:90], F[:90])
        assert fitted.n_samples_seen_ == 90
        assert np.array_equal(fitted.predict(there), clone(decoder).fit(Y[:90], F[:90]).predict(there))
    assert not hasattr(clone(decoder), "n_samples_seen_")


def test_fit_starts_anew():
    Y, F, there = problem()
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None).partial_fit(Y[:, :1], F)
    decoder.fit(Y, F)
    assert decoder.n_samples_seen_ == len(Y)
    assert np.array_equal(decoder.predict(there), clone(decoder).fit(Y, F).predict(there))


def test_memory_does_not_grow_with_the_samples():
    Y, F, _ = problem(4096)  # whole blocks: no samples wait for others, which a pickle would hold
    decoder = RFNNDecoder(MAPS[0], random_state=0, latent_scale=None)
    sizes = [len(pickle.dumps(decoder.partial_fit(Y, F))) for _ in range(9)]
    points = 8 * 2 * 8192  # some latent points are kept, at most 8192
    assert max(sizes) - sizes[0] < points


def test_one_dimensional_fields_and_weights():
    Y, F, there = problem()
    y = F[:, 12]
    decoder = (
        RFNNDecoder(MAPS[0], random_state=0, latent_scale=None).partial_fit(Y[:9], y[:9]).partial_fit(Y[9:], y[9:])
    )
    assert np.array_equal(decoder.predict(there), clone(decoder).fit(Y, y).predict(there))
    weights = np.linspace(1, 2, 25)
    G = F / (F @ weights)[:, None]
    decoder = RANDSMAPDecoder(MAPS[0], cell_weights=weights, random_state=0, latent_scale=None)
    assert np.array_equal(streamed(decoder, Y, G, [50]).predict(there), clone(decoder).fit(Y, G).predict(there))


def test_nothing_is_solved_before_it_is_used(monkeypatch):
    Y, F, there = problem(60)
    decoder = RFNNDecoder(MAPS[0], random_state=0, latent_scale=None).partial_fit(Y, F)
    assert decoder._fitted is None
    monkeypatch.setattr(decoder, "regularization", 1e-2)
    assert np.array_equal(decoder.predict(there), clone(decoder).fit(Y, F).predict(there))
    assert decoder._fitted is not None and decoder.solver_ == "cholesky"
    with pytest.raises(AttributeError, match="no_such"):
        decoder.no_such  # noqa: B018


def test_latent_box():
    Y, _, _ = problem()
    box = np.stack([Y.min(axis=0), Y.max(axis=0)])
    features = SigmoidFeatures(3.0, n_features=20, random_state=0)
    with_box = clone(features).set_params(latent_box=box).fit(Y[:5])
    assert np.array_equal(with_box.offsets_, features.fit(Y).offsets_)
    numbers = clone(features).set_params(latent_box=(0, 1)).fit(Y[:1])
    assert np.array_equal(numbers.offsets_, clone(features).set_params(latent_box=BOX).fit(Y).offsets_)
    for bad, message in (
        ((1, 0), "low <= high"),
        ((0, np.nan), "latent_box"),
        (3, "must be .low, high."),
        (((0, 0, 0), (1, 1, 1)), "length 2"),
        ((0, "a"), "latent_box"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            clone(features).set_params(latent_box=bad).fit(Y)


@parametrize_with_checks(
    [
        RFNNDecoder(FourierFeatures(5.0, n_features=20), random_state=0, latent_scale=None),
        RANDSMAPDecoder(
            SigmoidFeatures(n_features=20, latent_box=(-1, 1)), invariants=None, random_state=0, latent_scale=None
        ),
    ]
)
def test_scikit_learn_estimator(estimator, check):
    assert hasattr(estimator, "partial_fit")
    check(estimator)


@pytest.mark.parametrize(
    "features, far", [(FourierFeatures(1e-3, n_features=20), 1.7e308), (PolynomialFeatures(2), 1e130)]
)
def test_a_batch_whose_features_overflow_is_refused_and_leaves_the_sums(features, far):
    rng = np.random.default_rng(0)
    X, F = rng.uniform(-1, 1, (50, 2)), rng.random((50, 4))
    if isinstance(features, PolynomialFeatures):
        features = features.fit(X)
    decoder = RFNNDecoder(features, random_state=0, latent_scale=None).partial_fit(X, F)
    before = decoder.predict(X)
    with pytest.raises(ValueError, match="too large|of magnitude"):
        decoder.partial_fit(X[:3] * far, F[:3])
    assert (decoder.predict(X) == before).all() and decoder.n_samples_seen_ == 50


def test_an_interrupted_batch_is_not_counted_in_silence(monkeypatch):
    rng = np.random.default_rng(0)
    X, F = rng.uniform(-1, 1, (50, 2)), rng.random((50, 4))
    decoder = RFNNDecoder(FourierFeatures(0.5, n_features=20), random_state=0, latent_scale=None).partial_fit(X, F)

    def interrupted(self, sums):
        raise KeyboardInterrupt

    monkeypatch.setattr(NormalEquations, "_sum", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decoder.partial_fit(np.tile(X, (100, 1)), np.tile(F, (100, 1)))
    monkeypatch.undo()
    with pytest.raises(ValueError, match="interrupted"):
        decoder.partial_fit(X, F)
    with pytest.raises(ValueError, match="interrupted"):
        decoder.predict(X)


BLOCK = 256


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(_sums, "_BLOCK", BLOCK)


def whole_blocks(n_blocks=6, rest=0, offset=0.0, dtype=float):
    Y, F, there = problem(n_blocks * BLOCK + rest, offset=offset)
    return Y, F.astype(dtype), there


def merged_in_a_random_tree(decoders, rng):
    decoders = list(decoders)
    while len(decoders) > 1:
        i, j = rng.choice(len(decoders), 2, replace=False)
        decoders[i].merge(decoders[j])
        del decoders[j]
    return decoders[0]


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("rest", [0, 300])
@pytest.mark.parametrize("scale", [None, "std"])
def test_order_and_tree_of_whole_blocks_change_no_bit(offset, center, rest, scale, small_blocks):
    Y, F, there = whole_blocks(rest=rest, offset=offset)
    rng = np.random.default_rng(int(offset) + rest)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, solver="cholesky", center=center, latent_scale=scale)
    whole = clone(decoder).fit(Y, F)
    blocks = np.split(np.arange(len(Y)), range(BLOCK, 6 * BLOCK + 1, BLOCK))
    last = blocks.pop()  # what fills no block comes last
    shuffled = np.concatenate([blocks[i] for i in rng.permutation(6)] + [last])
    again = clone(decoder).fit(Y[shuffled], F[shuffled])
    assert np.array_equal(again.coef_, whole.coef_)
    decoder.set_params(latent_scale=whole.latent_scale_)
    for _ in range(2):
        cuts = np.sort(rng.choice(np.arange(1, len(Y)), 5, replace=False))
        assert np.array_equal(streamed(decoder, Y[shuffled], F[shuffled], cuts).solve().coef_, whole.coef_)
        groups = [
            np.concatenate([blocks[i] for i in group])
            for group in np.split(rng.permutation(6), np.sort(rng.choice(np.arange(1, 6), 3, replace=False)))
        ]
        groups[0] = np.concatenate([groups[0], last])
        tree = merged_in_a_random_tree([clone(decoder).partial_fit(Y[rows], F[rows]) for rows in groups], rng)
        assert tree.n_samples_seen_ == len(Y)
        assert np.array_equal(tree.solve().coef_, whole.coef_)
        assert np.array_equal(tree.invariant_values_, whole.invariant_values_)
        assert np.array_equal(tree.constant_cells_, whole.constant_cells_)
        assert np.array_equal(tree.predict(there), whole.predict(there))


def test_a_merged_decoder_goes_on_and_leaves_the_other(small_blocks):
    Y, F, there = whole_blocks(4, rest=500)
    F[: 3 * BLOCK, 10] = F[0, 10]  # not constant in the last block alone
    F[:, 11] += 1 - F.sum(axis=1)
    F[BLOCK:, 0] = -0.0
    decoder = RANDSMAPDecoder(MAPS[2], random_state=0, latent_scale=None)
    whole = clone(decoder).fit(Y, F)
    parts = [clone(decoder).partial_fit(Y[a : a + BLOCK], F[a : a + BLOCK]) for a in range(0, 3 * BLOCK, BLOCK)]
    before = parts[1].predict(there)
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert merged is parts[0] and merged.constant_cells_[10] and merged.constant_cells_[0]
    assert np.array_equal(parts[1].predict(there), before) and parts[1].n_samples_seen_ == BLOCK
    merged = pickle.loads(pickle.dumps(merged)).partial_fit(Y[3 * BLOCK :], F[3 * BLOCK :])
    assert np.array_equal(merged.solve().coef_, whole.coef_)
    assert np.array_equal(merged.constant_cells_, whole.constant_cells_) and not merged.constant_cells_[10]
    assert np.signbit(merged.predict(there)[:, 0]).any() == np.signbit(whole.predict(there)[:, 0]).any()
    as_one = clone(decoder).partial_fit(Y, F)
    assert np.array_equal(merged.leverage(there), as_one.leverage(there))
    assert merged.leverage_ == pytest.approx(as_one.leverage_, rel=0.5)  # the largest of the points kept, not of all
    tails = [clone(decoder).partial_fit(Y[a : a + 180], F[a : a + 180]) for a in (0, 180)]
    assert np.array_equal(
        tails[0].merge(tails[1]).predict(there), streamed(decoder, Y[:360], F[:360], [180]).predict(there)
    )
    itself = clone(decoder).partial_fit(Y[:BLOCK], F[:BLOCK])
    twice = clone(decoder).partial_fit(np.tile(Y[:BLOCK], (2, 1)), np.tile(F[:BLOCK], (2, 1)))
    assert np.array_equal(itself.merge(itself).solve().coef_, twice.solve().coef_)


def test_fields_that_do_not_go_together_are_not_merged():
    Y, F, there = problem(100)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None)
    one, other = clone(decoder).partial_fit(Y, F), clone(decoder).partial_fit(Y, F * (1 + 5e-6))
    before = one.predict(there)
    with pytest.raises(ValueError, match="different values of invariant 0"):
        one.merge(other)
    assert one.n_samples_seen_ == 100 and np.array_equal(one.predict(there), before)
    with pytest.raises(ValueError, match="within the bounds"):  # as every batch is checked
        clone(decoder).set_params(bounds=(0, 0.01)).partial_fit(Y, F)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"features": FourierFeatures(0.31, n_features=40)}, "the weights of their features"),
        ({"features": MAPS[2]}, "the class of their features"),
        ({"features": FourierFeatures(0.3, n_features=41)}, "the weights of their features"),
        ({"random_state": 1}, "the weights of their features"),
        ({"latent_scale": 2.0}, "latent_scale"),
        ({"regularization": 1e-4}, r"regularization.*0\.001 and 0\.0001"),
        ({"center": False}, "center"),
        ({"solver": "cholesky"}, "solver"),
        ({"invariants": None}, "invariants"),
        ({"invariants": np.linspace(1, 1 + 1e-9, 25)}, "invariants"),
        ({"invariant_values": 1.0}, "invariant_values"),
        ({"invariant_tol": 1e-5}, "invariant_tol"),
        ({"cell_weights": np.linspace(1, 2, 25), "invariants": np.ones(25)}, "cell_weights"),
        ({"bounds": "nonnegative"}, "bounds"),
        ({"bounds": (-1, 2)}, "bounds"),
    ],
)
def test_decoders_that_differ_are_not_merged(changes, named):
    Y, F, there = problem(60)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None)
    one, other = clone(decoder).partial_fit(Y, F), clone(decoder).set_params(**changes).partial_fit(Y, F)
    before = one.predict(there)
    for a, b in ((one, other), (other, one)):
        with pytest.raises(ValueError, match=f"differ in {named}" if a is one else "differ in"):
            a.merge(b)
        assert a.n_samples_seen_ == 60
    assert np.array_equal(one.predict(there), before)


def test_parts_that_decided_otherwise_are_not_merged():
    """What counts is how the sums were made: "auto" found a mass or none, and parameters may be set in between."""
    Y, F, _ = problem(60)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None)
    common = clone(decoder).partial_fit(Y, F)
    varying = clone(decoder).partial_fit(Y, F * np.linspace(1, 2, 60)[:, None])
    uncentred = clone(decoder).partial_fit(Y, F).set_params(center=False)
    others = varying, uncentred, clone(decoder).set_params(center=False).partial_fit(Y, F)
    for name, ours, theirs in (("invariants", common, others[0]), ("center", others[1], others[2])):
        for a, b in ((ours, theirs), (theirs, ours)):
            with pytest.raises(ValueError, match=f"differ in {name}"):
                a.merge(b)


def test_parameters_set_after_fit_features_hold_for_the_batches():
    Y, F, there = problem(60)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, constraint="training", center=False, latent_scale=None)
    decoder = decoder.fit_features(Y).set_params(constraint="everywhere", center=True).partial_fit(Y, F)
    expected = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None).partial_fit(Y, F)
    assert np.array_equal(decoder.predict(there), expected.predict(there))


def test_what_has_no_sums_is_not_merged():
    Y, F, _ = problem(60)
    decoder = RANDSMAPDecoder(MAPS[0], random_state=0, latent_scale=None)
    streamed_one = clone(decoder).partial_fit(Y, F)
    for other, message in ((clone(decoder).fit(Y, F), "the other .* comes from fit"), (clone(decoder), "has no sums")):
        with pytest.raises(ValueError, match=message):
            streamed_one.merge(other)
        with pytest.raises(ValueError, match="this RANDSMAPDecoder"):
            other.merge(streamed_one)
    with pytest.raises(TypeError, match="another RANDSMAPDecoder, got RFNNDecoder"):
        streamed_one.merge(RFNNDecoder(MAPS[0], latent_scale=None).partial_fit(Y, F))
    with pytest.raises(ValueError, match="number of latent coordinates"):
        streamed_one.merge(clone(decoder).partial_fit(Y[:, :1], F))
    with pytest.raises(ValueError, match="number of cells"):
        streamed_one.merge(clone(decoder).set_params(invariants=None).partial_fit(Y, F[:, 1:]))


@pytest.mark.parametrize("other_degree", [2, 3])
def test_other_transformers_are_compared_by_what_they_have_learned(other_degree):
    Y, F, there = problem(60)
    decoders = [
        RFNNDecoder(PolynomialFeatures(degree).fit(Y), latent_scale=None).partial_fit(Y, F)
        for degree in (2, other_degree)
    ]
    if other_degree == 3:
        with pytest.raises(ValueError, match="degree of their features"):
            decoders[0].merge(decoders[1])
    else:
        assert decoders[0].merge(decoders[1]).n_samples_seen_ == 120


def test_features_fitted_before_the_batches(small_blocks):
    Y, F, there = problem(2 * BLOCK)
    decoder = RANDSMAPDecoder(SigmoidFeatures(5.0, n_features=0.02), random_state=0, solver="cholesky")
    assert not hasattr(decoder, "partial_fit")
    whole = clone(decoder).fit(Y, F)
    parts = [clone(decoder).fit_features(Y).partial_fit(Y[rows], F[rows]) for rows in (np.s_[BLOCK:], np.s_[:BLOCK])]
    merged = parts[0].merge(parts[1]).solve()
    assert np.array_equal(merged.latent_scale_, whole.latent_scale_)
    assert np.array_equal(merged.coef_, whole.coef_)
    again = whole.fit_features(Y[:100])
    assert not hasattr(again, "coef_")
    with pytest.raises(ValueError, match="2 features"):
        again.partial_fit(Y[:, :1], F)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_sums_in_two_numbers_are_those_of_exact_arithmetic(data):
    """Against rational numbers, for entries of any size and blocks that nearly cancel."""
    n = data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    X = rng.normal(size=(n, 1, 7)) * 2.0 ** rng.integers(-20, 20, (n, 1, 7))
    a, b = rng.normal(size=(n, 1, 2)) * [1, 2.0**-54], rng.normal(size=(n, 7))
    exact = [
        sum(Fraction(X[i, 0, j]) + (Fraction(a[i, 0, 0]) + Fraction(a[i, 0, 1])) * Fraction(b[i, j]) for i in range(n))
        for j in range(7)
    ]
    size = np.abs(X[:, 0]).sum(axis=0) + np.abs(a[:, 0, :1] * b).sum(axis=0)
    pairs = [(np.zeros((1, 7)), np.zeros((1, 7))) for _ in range(2)]
    for i in rng.permutation(n):
        _kernel.add(*pairs[i % 2], 0, 1, False, X[i], a[i], b[i])
    _kernel.add(*pairs[0], 0, 1, False, pairs[1][0], None, None)
    pairs[0][1][:] += pairs[1][1]
    out = np.empty((1, 7))
    _kernel.total(*pairs[0], 0, 1, False, None, None, out)
    for j in range(7):
        assert abs(Fraction(out[0, j]) - exact[j]) <= abs(exact[j]) * Fraction(EPS) / 2 + Fraction(size[j] * n) / 2**100
    left, right = rng.normal(size=(1, 2)) * [1, 2.0**-54], rng.normal(size=(2, 7)) * [[1], [2.0**-54]]
    _kernel.total(*pairs[0], 0, 1, False, left, right, out)
    for j in range(7):
        product = sum(map(Fraction, left[0])) * sum(map(Fraction, right[:, j]))
        slack = Fraction(size[j] * n + abs(float(product))) / 2**100
        assert abs(Fraction(out[0, j]) - (exact[j] - product)) <= abs(exact[j] - product) * Fraction(EPS) / 2 + slack
