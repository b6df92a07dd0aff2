import numpy as np
import pytest

from randsmap._linalg.svd import FactoredRows

EPS = np.finfo(float).eps


def fields(rank, offset, *, n=120, M=1500, decay=0.0, seed=0):
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(k, rank)))[0] for k in (n, M))
    return (left * np.exp(-decay * np.arange(rank))) @ right.T + offset, rng


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("rank, decay", [(5, 0.0), (50, 0.0), (55, 0.8)])
def test_fields_and_others_are_their_coordinates_to_round_off(rank, decay, offset):
    F, rng = fields(rank, offset, decay=decay)
    free = np.ones(F.shape[1], dtype=bool)
    free[[3, 9]] = False
    F[:, ~free] = 0.0
    beside = free[None] / np.sqrt(free.sum())
    factored = FactoredRows.factor(F, beside, free)
    Q, G = factored.basis, factored.coordinates
    assert len(Q) <= rank + 10 and (Q[:, ~free] == 0).all()
    np.testing.assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=50 * EPS)
    sizes = np.linalg.norm(F, axis=1)
    assert (np.linalg.norm(G @ Q - F, axis=1) <= 100 * EPS * np.maximum(sizes, np.median(sizes))).all()
    np.testing.assert_allclose(beside @ Q.T @ Q, beside, atol=50 * EPS)
    inside = rng.normal(size=(7, len(F))) @ F
    others = np.vstack([inside, inside + rng.normal(size=inside.shape) * free])
    X, rest = factored.of_others(others)
    missed = np.linalg.norm(others - X @ Q, axis=1)
    np.testing.assert_allclose(rest[7:], missed[7:], rtol=1e-9)
    assert (rest[:7] <= 300 * EPS * np.linalg.norm(inside, axis=1)).all()


def test_a_row_that_is_unlike_the_others_is_not_missed():
    F, rng = fields(6, 1.0)
    F[77] += 1e-9 * rng.normal(size=F.shape[1])
    factored = FactoredRows.factor(F, F[:0], np.ones(F.shape[1], dtype=bool))
    np.testing.assert_allclose(factored.coordinates @ factored.basis, F, rtol=0, atol=1e-13)


@pytest.mark.parametrize("F", [fields(100, 0.0)[0], 1e-200 * fields(3, 0.0)[0], np.zeros((30, 90))])
def test_full_rank_and_extreme_units_are_left_alone(F):
    assert FactoredRows.factor(F, F[:0], np.ones(F.shape[1], dtype=bool)) is None


def test_rows_and_shape_are_those_of_the_fields():
    F, _ = fields(4, 0.0)
    factored = FactoredRows.factor(F, F[:0], np.ones(F.shape[1], dtype=bool))
    assert factored.shape == F.shape and len(factored) == len(F) and factored.ndim == 2
    np.testing.assert_array_equal(factored[3:5], F[3:5])
