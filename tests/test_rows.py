"""Tall matrices by blocks: the same numbers from an array, from a file and from features on demand."""

import numpy as np
import pytest

import randsmap
from randsmap._linalg import rows
from randsmap._linalg.rows import FeatureRows, MappedRows, Rows
from randsmap._linalg.svd import truncated_svd

rng = np.random.default_rng(0)
F = rng.normal(size=(90, 7)) + 3
MEAN, SCALE = F.mean(axis=0), rng.random(7)
NORMALS = np.linalg.qr(rng.normal(size=(7, 2)))[0].T.copy()
POINTS = rng.normal(size=(90, 2))
FEATURES = randsmap.FourierFeatures(1.0, n_features=7, random_state=0).fit(POINTS)


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    """F in a file, every map being large and 32 rows a block."""
    monkeypatch.setattr(rows, "LARGE", 1)
    monkeypatch.setattr(rows, "BLOCK", 7 * 20)
    np.save(tmp_path / "F.npy", F)
    return np.load(tmp_path / "F.npy", mmap_mode="r")


@pytest.fixture(params=["array", "map", "features"])
def tall(request, mapped):
    """Rows of each kind, and the matrix that they are."""
    if request.param == "features":
        found = FeatureRows(FEATURES, POINTS, bias=False)
        return found, FEATURES.transform(POINTS)
    found = Rows.of(F if request.param == "array" else mapped, "F")
    assert found.mapped == (request.param == "map") and Rows.of(found) is found
    return found, F


def test_reading(tall):
    found, A = tall
    assert found.shape == (len(found), found.width) == (found.n, 7) == A.shape
    assert found.mean is None and np.array_equal(found.whole(), A) and np.array_equal(found[:], A)
    some = np.array([2, 3, 50])
    assert np.array_equal(found[5:40], A[5:40]) and np.array_equal(found[some], A[some])
    for which in (some, slice(5, 40)):
        part = found.take(which)
        assert part.shape == A[which].shape and np.array_equal(part.whole(), A[which])
    for size in (None, 11):
        blocks = [(a, b, block.copy()) for a, b, block in found.blocks(size)]
        assert [a for a, _, _ in blocks] == [0, *(b for _, b, _ in blocks[:-1])]
        assert all(block.flags.c_contiguous and block.dtype == float for _, _, block in blocks)
        assert np.array_equal(np.vstack([block for _, _, block in blocks]), A)


def test_less_a_mean(tall):
    found, A = tall
    less = found.less(MEAN)
    assert found.mean is None and np.array_equal(less.whole(), A - MEAN)
    assert np.array_equal(less[3:9], A[3:9] - MEAN) and np.array_equal(less.take(slice(3, 9)).whole(), A[3:9] - MEAN)
    centred = found.centred()
    np.testing.assert_allclose(centred.mean, A.mean(axis=0), rtol=1e-14)
    assert abs(centred.whole().sum(axis=0)).max() < 1e-13 * 90
    assert np.array_equal(centred.mean, Rows(A).centred().mean)


def test_products(tall):
    found, A = tall
    for tall_rows, B in ((found, A), (found.less(MEAN), A - MEAN)):
        np.testing.assert_allclose(tall_rows.times(SCALE[:, None]), B @ SCALE[:, None], rtol=0, atol=1e-13)
        np.testing.assert_allclose(tall_rows.transposed_times(POINTS), B.T @ POINTS, rtol=0, atol=1e-12)
        np.testing.assert_allclose(tall_rows.norms2(), (B**2).sum(axis=1), rtol=1e-14)


@pytest.mark.parametrize("normals", [None, NORMALS])
def test_scale_normals_and_columns(mapped, normals):
    expected = (F - MEAN) * SCALE
    if normals is not None:
        expected = expected - (expected @ normals.T) @ normals
    for given in (F, mapped):
        found = Rows.of(given).less(MEAN, scale=SCALE, normals=normals)
        np.testing.assert_allclose(found.whole(), expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(found.columns(2, 5), expected[:, 2:5], rtol=0, atol=1e-14)
        assert np.array_equal(found.take(slice(30, 50)).columns(0, 7), found.columns(0, 7)[30:50])


def test_features_with_a_bias_and_at_other_points():
    found = FeatureRows(FEATURES, POINTS)
    Phi = np.hstack([np.ones((90, 1)), FEATURES.transform(POINTS)])
    assert found.width == 8 and np.array_equal(found.whole(), Phi)
    assert np.array_equal(found.without_bias().whole(), Phi[:, 1:])
    found.mean = Phi.mean(axis=0)
    assert found.at(POINTS[:3]).mean is found.mean and np.array_equal(
        found.at(POINTS[:3]).whole(), Phi[:3] - found.mean
    )


def test_values_of_a_file_are_checked_when_they_are_read(tmp_path, mapped):
    bad = F.copy()
    bad[40, 3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    found = Rows.of(np.load(tmp_path / "bad.npy", mmap_mode="r"), "fields")
    assert isinstance(found, MappedRows) and np.array_equal(found[:40], F[:40])
    with pytest.raises(ValueError, match=r"fields must be finite, got NaN at \(40, 3\)"):
        found.norms2()
    with pytest.raises(ValueError, match="fields must have at least 100 row"):
        Rows.of(mapped, "fields", min_rows=100)


def test_of_wide_rows_no_modes_may_be_wanted():
    sigma, modes, _ = truncated_svd(Rows(np.random.default_rng(0).normal(size=(3, 2000))), lambda *_: 0)
    assert len(sigma) == 3 and modes.shape == (0, 2000)
