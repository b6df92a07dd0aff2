import numpy as np
import pytest
from sklearn.linear_model import Ridge

import randsmap
from randsmap.metrics import relative_l2


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    Y = rng.uniform(-1, 1, (90, 2))
    F = np.stack([np.sin(3 * Y[:, 0]), Y[:, 1] ** 2, np.cos(Y.sum(axis=1)), np.ones(90)], axis=1) + 2
    return Y[:60], F[:60], Y[60:], F[60:]


def test_errors_are_the_direct_validation_errors(data):
    Y, F, Y_val, F_val = data
    decoder = randsmap.RFNNDecoder(randsmap.SigmoidFeatures(n_features=40), random_state=0)
    grid = {"features__slope": [0.1, 2.0, 9.0], "regularization": [1e-6, 1.0]}
    result = randsmap.tune(decoder, grid, Y, F, Y_val, F_val)
    assert len(result.candidates_) == len(result.errors_) == 6
    for params, error in zip(result.candidates_, result.errors_):
        fitted = randsmap.RFNNDecoder(
            randsmap.SigmoidFeatures(params["features__slope"], n_features=40),
            regularization=params["regularization"], random_state=0).fit(Y, F)
        assert error == pytest.approx(relative_l2(F_val, fitted.predict(Y_val)).mean(), rel=1e-10)
    best = int(np.argmin(result.errors_))
    assert result.best_params_ == result.candidates_[best]
    kept = relative_l2(F_val, result.best_decoder_.predict(Y_val)).mean()
    assert kept == pytest.approx(result.errors_[best], rel=1e-10)
    assert not hasattr(decoder, "coef_")  # the given decoder is left alone


@pytest.mark.parametrize("values, edge", [([1e-9, 1.0, 1e3], True), ([1e9, 1e-9, 1e6], False),
                                          ([1e-9, 1.0], False)])
def test_edge_of_the_grid(data, values, edge):
    Y, _, Y_val, _ = data
    linear = np.array([[1.0, 2.0], [3.0, -1.0]])  # ridge without a penalty is exact
    result = randsmap.tune(Ridge(), {"alpha": values}, Y, Y @ linear, Y_val, Y_val @ linear)
    assert result.best_params_ == {"alpha": 1e-9}
    assert result.on_edge_ == {"alpha": edge}


def test_callback_and_errors(data):
    calls = []
    randsmap.tune(Ridge(), {"alpha": [1.0, 2.0]}, *data, callback=lambda: calls.append(1))
    assert len(calls) == 2
    with pytest.raises(ValueError, match="grid must name"):
        randsmap.tune(Ridge(), {}, *data)
    with pytest.raises(ValueError, match="Invalid parameter 'slope'"):
        randsmap.tune(Ridge(), {"slope": [1.0]}, *data)


def test_estimators_in_the_grid_are_not_changed(data):
    features = randsmap.SigmoidFeatures(n_features=5)
    result = randsmap.tune(randsmap.RFNNDecoder(random_state=0),
                           {"features": [features], "features__slope": [2.0, 3.0]}, *data)
    assert features.slope == 1.0
    assert result.best_params_["features"].slope == 1.0


def test_grids_that_make_no_sense_are_told(data):
    with pytest.raises(ValueError, match="features__slope cannot be tuned because .* features is None"):
        randsmap.tune(randsmap.RFNNDecoder(), {"features__slope": [1.0]}, *data)
    with pytest.raises(TypeError, match="grid must be a dict"):
        randsmap.tune(randsmap.RFNNDecoder(), [{"regularization": [1.0]}], *data)
