import numpy as np
import pytest

import randsmap
from randsmap._interface import arrays as v
from randsmap._interface import parameters


@pytest.mark.parametrize("kind", [np.uint8, np.int32, bool, np.float16, np.float32, list])
def test_matrix_accepts_any_real_numbers(kind):
    X = np.array([[0, 1], [1, 0]])
    given = X.tolist() if kind is list else X.astype(kind)
    result = v.as_array(given, "X")
    assert result.dtype == np.float64 and result.flags.c_contiguous
    assert np.array_equal(result, X)


def test_matrix_does_not_copy_what_is_right_already():
    X = np.ones((2, 3))
    assert v.as_array(X, "X") is X


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
        (np.array([[0.0, None]], object), r"finite, got None, a missing value, at \(0, 1\)"),
        ([[0.0, np.inf]], r"finite, got inf at \(0, 1\) \(1 such"),
        ([[np.nan, np.nan]], r"finite, got NaN at \(0, 0\) \(2 such"),
    ],
)
def test_matrix_errors_name_what_is_wrong(bad, message):
    with pytest.raises(ValueError, match="snapshots must.*" + message):
        v.as_array(bad, "snapshots")


def test_numbers_beyond_the_domain_are_refused_and_large_ones_accepted():
    with pytest.raises(ValueError, match="X must be 0 or of magnitude 1e-140 to 1e\\+140, got 1e\\+308: use a unit"):
        v.as_array([[1e308, 1e308]], "X")
    for shape in ((2, 3), (50, 80)):
        assert v.as_array(np.full(shape, -1e140), "X").shape == shape
        assert v.as_array(np.full(shape, 1e-320), "X").shape == shape
    with pytest.raises(ValueError, match="X must be 0 or of magnitude .* got 1e-320"):
        randsmap.POD(1).fit([[1e-320, 0.0], [0.0, 0.0]])


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
    assert type(v.as_array(X, "X")) is np.ndarray


def test_a_sum_that_overflows_is_no_warning():
    # filterwarnings = error turns the warning into one
    Y = np.array([[1e139], [1e139], [-1e139], [0.0]])
    features = randsmap.SigmoidFeatures(1e-130, random_state=0).fit(Y)
    assert np.isfinite(features.transform(Y)).all()


def test_sparse_is_refused():
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="X must be dense"):
        v.as_array(csr_array(np.eye(2)), "X")
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
        parameters.check_number(bad, "regularization", low=0.0)
    assert parameters.check_number(np.float32(0.5), "x") == 0.5
    assert parameters.check_number(0, "x", low=0.0) == 0.0
    with pytest.raises(ValueError, match="> 0"):
        parameters.check_number(0, "x", low=0.0, strict_low=True)


@pytest.mark.parametrize("bad, error", [(0, ValueError), (7, ValueError), (1.0, TypeError), (True, TypeError)])
def test_count(bad, error):
    with pytest.raises(error, match="k must be .*got"):
        parameters.check_count(bad, "k", low=1, high=6)
    assert parameters.check_count(np.int16(6), "k", high=6) == 6


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
    assert parameters.check_random_state(generator) is generator
    assert parameters.check_random_state(3).uniform() == np.random.RandomState(3).uniform()


def misaligned(shape, values=0.0):
    """An array whose numbers do not lie at multiples of 8 bytes."""
    size = 8 * int(np.prod(shape))
    X = np.ndarray(shape, float, np.zeros(size + 1, np.uint8)[1:].data)
    X[:] = values
    assert not X.flags.aligned
    return X


def test_misaligned_arrays_are_copied_on_input_and_refused_for_output():
    X, F = np.linspace(0, 1, 10).reshape(5, 2), np.full((5, 3), 1 / 3)
    F[:, 0] += 0.1 * X[:, 0]
    F[:, 1] -= 0.1 * X[:, 0]
    odd = {name: misaligned(values.shape, values) for name, values in (("X", X), ("F", F))}
    for check in (lambda a: v.as_array(a, "X"), lambda a: v.as_array(a, "V", (5, 2), repeat=True)):
        assert check(odd["X"]).flags.aligned and np.array_equal(check(odd["X"]), X)
    assert v.as_array(misaligned(4, 2.0), "x", (4,)).flags.aligned
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(n_features=5), random_state=0).fit(odd["X"], odd["F"])
    fields = decoder.fit(X, F).predict(X)
    assert np.array_equal(decoder.predict(odd["X"]), fields)
    assert np.array_equal(decoder.jvp(odd["X"], misaligned(2, 1.0)), decoder.jvp(X, np.ones(2)))
    for out in (misaligned((5, 3)), misaligned((5, 3, 2))):
        with pytest.raises(ValueError, match="out must be C-contiguous, aligned and writeable"):
            decoder.predict(X, out=out) if out.ndim == 2 else decoder.jacobian(X, out=out)
    with pytest.raises(ValueError, match="aligned"):
        decoder.predict(X, cells=[0], out=misaligned((5, 1)))
    for encoder in (randsmap.DiffusionMaps(1), randsmap.POD(1)):
        assert np.array_equal(encoder.fit(odd["F"]).transform(odd["F"]), encoder.fit(F).transform(F))
    assert np.array_equal(decoder.features_.transform(odd["X"]), decoder.features_.transform(X))
    assert np.array_equal(randsmap.metrics.relative_l2(odd["F"], fields), randsmap.metrics.relative_l2(F, fields))


def test_misaligned_fields_and_weights_are_projected_on_bounds():
    F, w = np.array([[0.5, 1.0, -0.5], [2.0, 0.0, 0.0]]), np.array([1.0, 2.0, 3.0])
    right = randsmap.project_bounds(F, weights=w, cell_weights=w, lower=w / 10, total=[2.0, 3.0])
    odd = {name: misaligned(3, w) for name in ("weights", "cell_weights")}
    got = randsmap.project_bounds(
        misaligned((2, 3), F), lower=misaligned(3, w / 10), total=misaligned(2, [2.0, 3.0]), **odd
    )
    assert np.array_equal(got, right)
    with pytest.raises(ValueError, match="aligned"):
        randsmap.project_bounds(F, out=misaligned((2, 3)))


def test_rows_of_numbers_take_the_short_path():
    import timeit

    class Fitted:
        n_features_in_ = 3

    from randsmap._interface.arrays import validate_data

    fitted, row = Fitted(), np.ones((1, 3))
    assert validate_data(fitted, row, reset=False) is row
    seconds = min(timeit.repeat(lambda: validate_data(fitted, row, reset=False), number=1000, repeat=5)) / 1000
    assert seconds < 2e-5  # 2e-6 on an idle machine; scikit-learn's takes 1e-4


@pytest.mark.parametrize("name", ["transform", "reconstruct", "score"])
def test_transposed_samples_are_hinted_at(name):
    F = np.random.default_rng(0).random((6, 4))
    model = randsmap.ManifoldModel(randsmap.POD(2)).fit(F)
    with pytest.raises(ValueError, match="X has 6 features, .* X has 4 rows: if its columns are the samples, give X.T"):
        getattr(model, name)(F.T)
    with pytest.raises(ValueError, match="expecting 4 features as input.$"):
        getattr(model, name)(np.ones((3, 6)))
