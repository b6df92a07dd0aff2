import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap._linalg import low_rank_ridge
from randsmap._linalg.low_rank_ridge import ProjectionTable
from randsmap._linalg.products import multiply
from randsmap._linalg.ridge import FeatureRows

MAPS = {
    "cosine": randsmap.FourierFeatures([0.4, 0.8], n_features=400, random_state=0),
    "logistic": randsmap.SigmoidFeatures(3.0, n_features=400, random_state=0),
    "multi-scale": randsmap.MultiscaleFourierFeatures(4.0, n_features=400, random_state=0),
}


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(low_rank_ridge, "_LEAST_ROWS", 100)


def problem(name, d, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) * [1.0, 0.5][:d] + 100.0
    features = MAPS[name]
    if name == "cosine":
        features = randsmap.FourierFeatures([0.4, 0.8][:d], n_features=400, random_state=0)
    features.fit(X)
    V = np.linalg.qr(rng.normal(size=(400, 12)))[0].T.copy()
    rows = FeatureRows(features, X, bias=False)
    rows.mean = rows.take(slice(0, 50)).whole().mean(axis=0)
    return X, rows, V, lambda Y: multiply(rows.at(Y).whole(), V.T)


@pytest.mark.slow
@pytest.mark.parametrize("goal", [1e-6, 1e-10])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", MAPS)
def test_what_a_table_misses_is_below_the_goal_and_said(few_rows, name, d, goal):
    X, rows, V, values = problem(name, d, 30000)
    table, error = ProjectionTable.build_if_cheaper(rows.activation_parameters, X, len(V), values, goal)
    missed = np.linalg.norm(table.rows(X) - values(X), 2)
    assert missed <= error <= goal


def test_cells_that_miss_too_much_are_evaluated():
    X, rows, V, values = problem("cosine", 2, 3000)
    coarse = ProjectionTable(X, values, 3, 4, accuracy=np.inf)
    assert np.abs(coarse.rows(X) - values(X)).max() > 1e-4
    refused = ProjectionTable(X, values, 3, 4, accuracy=1e-6)
    np.testing.assert_allclose(refused.rows(X), values(X), rtol=0, atol=1e-13)


def test_no_table_where_it_does_not_pay_or_is_not_accurate(few_rows, monkeypatch):
    X, rows, V, values = problem("cosine", 2, 30000)
    parameters = rows.activation_parameters
    assert ProjectionTable.build_if_cheaper(parameters, X, len(V), values, 1e-6) is not None
    assert ProjectionTable.build_if_cheaper(None, X, len(V), values, 1e-6) is None  # another transformer
    assert ProjectionTable.build_if_cheaper(parameters, X, len(V), values, 1e-17) is None
    assert ProjectionTable.build_if_cheaper(parameters, X[:300], len(V), values, 1e-6) is None
    three = np.column_stack([X, X[:, 0]])
    assert ProjectionTable.build_if_cheaper(parameters, three, len(V), values, 1e-6) is None
    # a truncation that is expected to be small and is not: the sample of rows says so
    monkeypatch.setattr(low_rank_ridge, "_left_out", lambda activation, z, degree: 0 * z)
    calls = []

    class Blind(ProjectionTable):
        def __init__(self, X, values, cells, degree, accuracy):
            calls.append((cells, degree))
            super().__init__(X, values, cells, degree, np.inf)

    assert Blind.build_if_cheaper(parameters, X, len(V), values, 1e-6) is None and calls


def test_equal_latents_and_points_on_a_line(few_rows):
    X, rows, V, values = problem("cosine", 2, 20000)
    X[:, 1] = X[0, 1]
    table, error = ProjectionTable.build_if_cheaper(rows.activation_parameters, X, len(V), values, 1e-8)
    assert np.linalg.norm(table.rows(X) - values(X), 2) <= error <= 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("d", [1, 2])
def test_low_rank_fit_from_a_table(monkeypatch, d, stored):
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-1, 1, (22000, d)), rng.uniform(-1, 1, (50, d))
    F = np.sin(2 * X @ rng.normal(size=(d, 5))) @ rng.normal(size=(5, 8))
    made = []
    build_if_cheaper = ProjectionTable.build_if_cheaper.__func__

    def counted(cls, *arguments):
        found = build_if_cheaper(cls, *arguments)
        made.append(found is not None)
        return found

    monkeypatch.setattr(low_rank_ridge.ProjectionTable, "build_if_cheaper", classmethod(counted))
    if not stored:
        monkeypatch.setattr(low_rank_ridge, "_STORED", 0)
    decoder = randsmap.RFNNDecoder(
        randsmap.FourierFeatures(1.0, n_features=300), solver="lowrank", random_state=0, latent_scale=None
    )
    fitted = decoder.fit(X, F)
    assert made and any(made)
    assert fitted.solver_ == "lowrank" and 0 < fitted.error_bound_ <= 1e-8
    exact = randsmap.RFNNDecoder(**{**decoder.get_params(deep=False), "solver": "cholesky"}).fit(X, F)
    for points in X, Z:
        difference = np.linalg.norm(fitted.predict(points) - exact.predict(points))
        assert difference <= 1e-8 * np.linalg.norm(F)
    monkeypatch.setattr(low_rank_ridge, "_LEAST_ROWS", 10**9)
    plain = randsmap.RFNNDecoder(**decoder.get_params(deep=False)).fit(X, F)
    assert plain.error_bound_ <= fitted.error_bound_
    np.testing.assert_allclose(plain.predict(Z), fitted.predict(Z), rtol=0, atol=1e-9)


def test_other_transformers_need_no_table(few_rows):
    X, _, V, _ = problem("cosine", 2, 500)
    rows = FeatureRows(PolynomialFeatures(3).fit(X), X, bias=False)
    assert rows.activation_parameters is None and rows.points is X
