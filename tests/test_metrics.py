import numpy as np
import pytest

from randsmap import metrics


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 5)), rng.normal(size=(7, 5))


def test_values_follow_the_definitions(pair):
    F, G = pair
    l2 = [np.sqrt(((g - f) ** 2).sum() / (f**2).sum()) for f, g in zip(F, G)]
    linf = [abs(g - f).max() / abs(f).max() for f, g in zip(F, G)]
    mass = [abs(g.sum() - f.sum()) for f, g in zip(F, G)]
    np.testing.assert_allclose(metrics.relative_l2(F, G), l2, rtol=1e-14)
    np.testing.assert_allclose(metrics.relative_linf(F, G), linf, rtol=1e-14)
    np.testing.assert_allclose(metrics.conservation_error(F, G), mass, rtol=0, atol=1e-14)


def test_several_invariants_give_the_largest_error(pair):
    F, G = pair
    C = np.random.default_rng(1).normal(size=(5, 3))
    expected = abs((G - F) @ C).max(axis=1)
    np.testing.assert_allclose(metrics.conservation_error(F, G, invariants=C), expected, atol=1e-13)
    one = metrics.conservation_error(F, G, invariants=np.ones(5))
    np.testing.assert_allclose(one, metrics.conservation_error(F, G), atol=1e-14)


def test_zero_fields():
    F, G = np.zeros((2, 3)), np.array([[0.0, 0, 0], [0, 1, 0]])
    for error in (metrics.relative_l2, metrics.relative_linf):
        assert error(F, G).tolist() == [0.0, np.inf]


@pytest.mark.parametrize("scale", [1e-139, 1e-100, 1e100, 1e139])
def test_relative_errors_do_not_depend_on_the_unit(scale):
    F, G = np.array([[1.0, -0.5, 0.25]]), np.array([[-1.0, 0.5, 0.0]])
    for error in (metrics.relative_l2, metrics.relative_linf):
        np.testing.assert_allclose(error(F * scale, G * scale), error(F, G), rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("name", metrics.__all__)
def test_numbers_outside_the_domain_are_refused(name, scale):
    F = np.eye(3)
    with pytest.raises(ValueError, match="y_true must be 0 or of magnitude 1e-140 to 1e\\+140"):
        getattr(metrics, name)(F * scale, F)
    if scale > 1:
        with pytest.raises(ValueError, match="y_pred must be 0 or of magnitude"):
            getattr(metrics, name)(F, F * scale)
    else:  # a prediction may vanish
        np.testing.assert_array_equal(getattr(metrics, name)(F, F * scale), getattr(metrics, name)(F, 0 * F))


def test_unsigned_integers_do_not_wrap_round():
    F, G = np.array([[10, 0]], np.uint8), np.array([[200, 0]], np.uint8)
    assert metrics.relative_l2(F, G).tolist() == [19.0]
    assert metrics.conservation_error(F, G).tolist() == [190.0]


@pytest.mark.parametrize("name", metrics.__all__)
def test_bad_input(name, pair):
    F, G = pair
    error = getattr(metrics, name)
    with pytest.raises(ValueError, match="same shape"):
        error(F, G[:, :3])
    with pytest.raises(ValueError, match="2 dimensions"):
        error(F[0], G[0])
    with pytest.raises(ValueError, match=r"y_pred must be finite, got NaN at \(2, 1\)"):
        G[2, 1] = np.nan
        error(F, G)


def test_bad_invariants(pair):
    with pytest.raises(ValueError, match="invariants must be 'mass' or an array"):
        metrics.conservation_error(*pair, invariants="energy")
    with pytest.raises(ValueError, match="row for each of 5 cells"):
        metrics.conservation_error(*pair, invariants=np.ones(4))


def test_relative_errors_have_the_whole_domain():
    np.testing.assert_allclose(metrics.relative_l2([[1e-140]], [[1e140]]), 1e280, rtol=1e-14)
    np.testing.assert_allclose(metrics.relative_linf([[1e-140, 1e-300]], [[1e100, 0.0]]), 1e240)
    assert metrics.relative_l2([[1.0]], [[1e-140]]).tolist() == [1.0]
    assert metrics.relative_l2([[1.0, 1e-300]], [[1.0, 0.0]]).tolist() == [0.0]


@pytest.mark.parametrize("scaled, order", [(metrics.scaled_l2, 2), (metrics.scaled_linf, np.inf)])
def test_scaled_errors_follow_the_definition(pair, scaled, order):
    F, G = pair
    F[0], F[1] = 0, 1e-12 * F[1]
    norms = np.linalg.norm(F, ord=order, axis=1)
    expected = np.linalg.norm(G - F, ord=order, axis=1) / np.maximum(norms, 1e-3 * np.median(norms[1:]))
    for unit in 1.0, 1e-100, 1e100:
        np.testing.assert_allclose(scaled(unit * F, unit * G), expected, rtol=1e-13)
    half = scaled(F[:3], G[:3], reference=F)  # the other fields say what is usual
    np.testing.assert_array_equal(half, scaled(F, G)[:3])
    np.testing.assert_array_equal(half, scaled(F[:3], G[:3], reference=np.median(norms[1:])))
    assert scaled(F, F).tolist() == [0.0] * 7
    assert scaled(0 * F, G).tolist() == [np.inf] * 7  # nothing to compare with
    for wrong in -1.0, np.nan, "F":
        with pytest.raises((ValueError, TypeError), match="reference"):
            scaled(F, G, reference=wrong)


def test_scaled_errors_of_mapped_fields(pair, tmp_path, monkeypatch):
    F, G = pair
    F[2] = 0
    expected = metrics.scaled_l2(F, G)
    np.save(tmp_path / "F.npy", F)
    monkeypatch.setattr("randsmap._linalg.rows.LARGE", 1)
    np.testing.assert_array_equal(metrics.scaled_l2(np.load(tmp_path / "F.npy", mmap_mode="r"), G), expected)
