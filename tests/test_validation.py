import numpy as np
import pytest

import randsmap
from randsmap import _validation as v


@pytest.mark.parametrize("kind", [np.uint8, np.int32, bool, np.float16, np.float32, list])
def test_matrix_accepts_any_real_numbers(kind):
    X = np.array([[0, 1], [1, 0]])
    given = X.tolist() if kind is list else X.astype(kind)
    result = v.check_matrix(given, "X")
    assert result.dtype == np.float64 and result.flags.c_contiguous
    assert np.array_equal(result, X)


def test_matrix_does_not_copy_what_is_right_already():
    X = np.ones((2, 3))
    assert v.check_matrix(X, "X") is X


@pytest.mark.parametrize(
    "bad, message",
    [
        (np.zeros(3), r"2 dimensions.*got shape \(3,\)"),
        (np.array(1.0), r"2 dimensions.*got shape \(\)"),
        (np.zeros((0, 3)), r"at least 1 row\(s\), got shape \(0, 3\)"),
        (np.zeros((3, 0)), r"at least 1 column\(s\)"),
        ([["a", "b"]], "array of real numbers"),
        ([[1.0], [1.0, 2.0]], "array of real numbers"),
        (np.array([[1j]]), "complex"),
        (np.array([["2020-01-01"]], "M8[D]"), "datetime64"),
        ([[0.0, np.inf]], r"finite, got inf at \(0, 1\) \(1 such"),
        ([[np.nan, np.nan]], r"finite, got NaN at \(0, 0\) \(2 such"),
    ],
)
def test_matrix_errors_name_what_is_wrong(bad, message):
    with pytest.raises(ValueError, match="snapshots must.*" + message):
        v.check_matrix(bad, "snapshots")


def test_matrix_sum_may_overflow_without_harm():
    assert v.check_matrix([[1e308, 1e308]], "X").shape == (1, 2)


@pytest.mark.parametrize("what", ["X", "y", "invariants", "cell_weights", "DiffusionMaps", "metrics"])
def test_masked_values_are_refused(what):
    # under a mask lie values that mean nothing, such as netCDF's fill value
    Y, F = np.linspace(0, 1, 6)[:, None], np.full((6, 3), 1 / 3)
    args = {
        "X": Y,
        "y": F,
        "invariants": np.ones((3, 1)),
        "cell_weights": np.ones((1, 3)),
        "DiffusionMaps": F,
        "metrics": F,
    }
    bad = np.ma.masked_array(args[what], mask=False)
    bad[0, 0] = np.ma.masked
    with pytest.raises(ValueError, match=r"has 1 masked value\(s\)"):
        if what == "DiffusionMaps":
            randsmap.DiffusionMaps(1).fit(bad)
        elif what == "metrics":
            randsmap.metrics.relative_l2(bad, F)
        else:
            args = {**args, what: bad}
            randsmap.RANDSMAPDecoder(invariants=args["invariants"], cell_weights=args["cell_weights"][0]).fit(
                args["X"], args["y"]
            )


def test_a_mask_without_masked_values_is_harmless():
    X = np.ma.masked_array(np.ones((2, 2)), mask=False)
    assert type(v.check_matrix(X, "X")) is np.ndarray


def test_a_sum_that_overflows_is_no_warning():
    # filterwarnings = error turns the warning into one
    Y = np.array([[1.7e308], [1.7e308], [-1.7e308], [0.0]])
    features = randsmap.SigmoidFeatures(1e-300, random_state=0).fit(Y)
    assert np.isfinite(features.transform(Y)).all()


def test_sparse_is_refused():
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="X must be dense"):
        v.check_matrix(csr_array(np.eye(2)), "X")
    with pytest.raises(TypeError, match="invariants must be dense"):
        randsmap.RANDSMAPDecoder(invariants=csr_array(np.eye(2))).fit(np.eye(2), np.eye(2))


@pytest.mark.parametrize(
    "bad, error",
    [
        (-1.0, ValueError),
        (np.nan, ValueError),
        (np.inf, ValueError),
        (10**309, ValueError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (1j, TypeError),
    ],
)
def test_number(bad, error):
    with pytest.raises(error, match="regularization must be .*got"):
        v.check_number(bad, "regularization", low=0.0)
    assert v.check_number(np.float32(0.5), "x") == 0.5
    assert v.check_number(0, "x", low=0.0) == 0.0
    with pytest.raises(ValueError, match="> 0"):
        v.check_number(0, "x", low=0.0, strict_low=True)


@pytest.mark.parametrize("bad, error", [(0, ValueError), (7, ValueError), (1.0, TypeError), (True, TypeError)])
def test_count(bad, error):
    with pytest.raises(error, match="k must be .*got"):
        v.check_count(bad, "k", low=1, high=6)
    assert v.check_count(np.int16(6), "k", high=6) == 6


def test_out():
    X = np.empty((2, 3))
    assert v.check_out(X, (2, 3)) is X
    assert v.check_out(None, (2, 3)).shape == (2, 3)
    for bad, error in (
        (np.empty((3, 2)), ValueError),
        (np.empty((2, 3), np.float32), TypeError),
        (np.empty((2, 6))[:, ::2], ValueError),
        ([[0.0] * 3] * 2, TypeError),
    ):
        with pytest.raises(error, match="out must"):
            v.check_out(bad, (2, 3))
    X.setflags(write=False)
    with pytest.raises(ValueError, match="writeable"):
        v.check_out(X, (2, 3))


def test_random_state_accepts_numpy_generators():
    generator = np.random.default_rng(0)
    assert v.check_random_state(generator) is generator
    assert v.check_random_state(3).uniform() == np.random.RandomState(3).uniform()
