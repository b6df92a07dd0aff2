"""Conservation and scikit-learn's conventions of every estimator that takes invariants, and of
ConservativeRegressor."""

import inspect
import pickle
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import Parallel, delayed, dump
from joblib import load as load_mapped
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from randsmap import (
    POD,
    ConservativeRegressor,
    DoubleDiffusionMapsDecoder,
    FourierFeatures,
    KernelDecoder,
    KNNDecoder,
    ManifoldModel,
    RANDSMAPDecoder,
    RFNNDecoder,
    load,
)

from helpers import random_problem, violation

EPS = np.finfo(float).eps
DDM = DoubleDiffusionMapsDecoder
# every decoder with invariants, in each of its forms
DECODERS = {
    "ddm": DDM(invariants="mass"),
    "ddm-narrow": DDM(epsilon_scale=0.05, invariants="mass"),
    "ddm-rank": DDM(rank=7, invariants="mass"),
    "gaussian": KernelDecoder(length_scale=0.2, invariants="mass"),
    "gaussian-interpolation": KernelDecoder(length_scale=0.2, regularization=0.0, invariants="mass"),
    "multi-gaussian": KernelDecoder("multi-gaussian", max_frequency=20.0, invariants="mass"),
    "ridge": ConservativeRegressor(Ridge(1e-6)),
    "knn": ConservativeRegressor(KNeighborsRegressor(3)),
    "randsmap": RANDSMAPDecoder(FourierFeatures(0.2), random_state=0),
}
BY_NAME = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)


problem = partial(random_problem, constant={4: 0.0})


# -- Conservation ----------------------------------------------------------------------------------


@BY_NAME
def test_mass_is_exact_near_and_far(decoder):
    Y, F = problem()
    decoder = clone(decoder).fit(Y, F)
    far = 0.5 + 100 * (Y - 0.5)
    latents = np.vstack([Y, far, 1e6 * far])
    fields = decoder.predict(latents)
    C, m = decoder.invariant_matrix_, decoder.invariant_values_
    assert violation(fields, C, m) <= 1e-14
    assert violation(np.vstack([decoder.predict(y[None]) for y in latents]), C, m) <= 1e-14
    assert (fields[:, 4] == 0).all()


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(DECODERS)), st.booleans(), st.booleans(), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_invariants_hold_for_any_matrix(seed, name, single, weighted, q):
    rng = np.random.default_rng(seed)
    n, M = 25, 30
    Y = rng.uniform(size=(n, 2))
    C = rng.normal(size=(M, q)) * 10.0 ** rng.integers(-6, 7, size=q)
    if q > 2:
        C[:, 1], C[:, 2] = 0, 2 * C[:, 0]
    constant = np.arange(7, 9)
    D = C / np.maximum(np.linalg.norm(C, axis=0), 1e-300)
    D[constant] = 0
    Q = np.linalg.qr(D)[0]
    basis = rng.normal(size=(2, M))
    basis -= basis @ Q @ Q.T  # cannot change an invariant
    basis[:, constant] = 0
    F = rng.uniform(1, 2, M) + np.sin(3 * Y) @ basis
    F[:, constant] = [0.75, -3.5]
    if single:
        Y, F = Y.astype(np.float32), F.astype(np.float32)
    V = rng.uniform(0.2, 5, M) if weighted else None
    decoder = clone(DECODERS[name]).set_params(invariants=C, cell_weights=V).fit(Y, F)
    fields = decoder.predict(np.vstack([Y, 100 * (Y - 0.5)]))
    assert fields.dtype == np.float64
    assert violation(fields, C, decoder.invariant_values_) <= 1e-14
    assert (fields[:, constant] == F[0, constant]).all()
    # the same data through the linear encoder
    pod = POD(5, invariants=C, cell_weights=V).fit(F)
    fields = pod.inverse_transform(
        np.vstack([pod.transform(F), rng.normal(size=(5, 2)) * 1e4]) if pod.n_components_ == 2 else pod.transform(F)
    )
    assert violation(fields, C, pod.invariant_values_) <= 1e-14
    assert (fields[:, constant] == F[0, constant]).all()


@BY_NAME
def test_no_field_is_decoded_worse_than_without_invariants(decoder):
    Y, F = problem(200)
    V = np.random.default_rng(1).uniform(0.5, 2, F.shape[1])
    F = F / (F @ V)[:, None]
    train = slice(0, 80)
    exact = clone(decoder).set_params(cell_weights=V).fit(Y[train], F[train])
    if isinstance(exact, ConservativeRegressor):
        plain = exact.estimator_
    elif isinstance(exact, RANDSMAPDecoder):
        plain = RFNNDecoder(exact.features, random_state=0).fit(Y[train], F[train])
    else:
        plain = clone(decoder).set_params(invariants=None).fit(Y[train], F[train])
    before = np.sqrt((V * (plain.predict(Y) - F) ** 2).sum(axis=1))
    after = np.sqrt((V * (exact.predict(Y) - F) ** 2).sum(axis=1))
    size = np.abs(exact.coef_).sum(axis=0).max() if hasattr(exact, "coef_") else 1
    if name_of(decoder).startswith("ddm"):  # harmonics are k(y) V / eigenvalue
        size *= len(Y) / exact.eigenvalues_[-1]
    assert (after <= before + 100 * EPS * size).all()


def name_of(decoder):
    return next(name for name, known in DECODERS.items() if known is decoder)


def test_without_invariants_mass_is_lost_but_constant_cells_are_kept():
    Y, F = problem()
    F[:, 9] = 0.25
    for decoder in (DDM(invariants=None), KernelDecoder(length_scale=0.2, invariants=None)):
        fields = decoder.fit(Y, F).predict(np.vstack([Y, 3 * Y]))
        assert np.abs(fields.sum(axis=1) - 1.25).max() > 1e-8
        assert (fields[:, [4, 9]] == [0, 0.25]).all()
        assert decoder.invariant_values_.shape == (0,)


# -- ConservativeRegressor -------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [Ridge(), KNeighborsRegressor(3), KNNDecoder(3)], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", ["DataArray", "table of numbers", "table of names"])
def test_latents_whose_columns_are_in_another_order_are_refused_with_both_labels(estimator, kind):
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    Y, F = problem()
    names = [7, 8] if kind == "table of numbers" else ["a", "b"]
    latents = pandas.DataFrame(Y, columns=names)
    swapped = latents[names[::-1]]
    if kind == "DataArray":
        latents, swapped = (
            xarray.DataArray(X, dims=("t", "k"), coords={"k": list(X.columns)}) for X in (latents, swapped)
        )
    regressor = ConservativeRegressor(estimator).fit(latents, F)
    assert regressor.predict(latents).shape == F.shape
    for method in (regressor.predict, lambda X: regressor.score(X, F)):
        with pytest.raises(ValueError, match="^X has other labels|^The feature names should match"):
            method(swapped)


@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(),
        KernelRidge(kernel="rbf"),
        RandomForestRegressor(5, random_state=0),
        make_pipeline(StandardScaler(), KNeighborsRegressor(4)),
        KNNDecoder(3),
        DDM(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_prediction_is_the_regressors_projected(estimator):
    Y, F = problem()
    V = np.linspace(1, 2, 30)
    F = F / (F @ V)[:, None]
    regressor = ConservativeRegressor(estimator, cell_weights=V).fit(Y, F)
    assert regressor.estimator_ is not estimator and regressor.n_features_in_ == 2
    P = estimator.fit(Y, F).predict(Y + 0.05)
    found = regressor.predict(Y + 0.05)
    # for mass weighted by V and the norm weighted by V: a uniform shift of the free cells
    free = np.arange(30) != 4
    P[:, 4] = 0
    expected = P + free * ((1 - P @ V) / V[free].sum())[:, None]
    assert np.abs(found - expected).max() <= 100 * EPS
    out = np.empty_like(found)
    assert regressor.predict(Y + 0.05, out=out) is out and np.array_equal(out, found)


@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_conservative_regressor_of_one_dimensional_fields():
    Y, _ = problem()
    y = np.sin(Y[:, 0])
    regressor = ConservativeRegressor(Ridge(), invariants=None).fit(Y, y)
    assert np.array_equal(regressor.predict(Y), Ridge().fit(Y, y).predict(Y))
    # the forest predicts (n,) for fields (n, 1)
    column = ConservativeRegressor(RandomForestRegressor(3), invariants=None).fit(Y, y[:, None])
    assert column.predict(Y).shape == (60, 1)


def test_conservative_regressor_refuses_what_it_cannot_project():
    class Bad(BaseEstimator):
        def __init__(self, shape=None, value=0.0):
            self.shape, self.value = shape, value

        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.full(self.shape or (len(X), 30), self.value)

    Y, F = problem()
    with pytest.raises(ValueError, match="prediction must have 30 columns, got 7"):
        ConservativeRegressor(Bad((60, 7))).fit(Y, F).predict(Y)
    with pytest.raises(ValueError, match="prediction must be finite, got NaN"):
        ConservativeRegressor(Bad(value=np.nan)).fit(Y, F).predict(Y)
    with pytest.raises(ValueError, match="do not satisfy invariant 0"):
        ConservativeRegressor(Ridge(), invariants="mass").fit(Y, F * np.linspace(1, 2, 60)[:, None])
    with pytest.raises(ValueError, match="same number of rows, got 59 and 60"):
        ConservativeRegressor(Ridge()).fit(Y[1:], F)


def test_failed_fit_of_the_regressor_changes_nothing():
    Y, F = problem()
    regressor = ConservativeRegressor(Ridge()).fit(Y, F)
    expected, state = regressor.predict(Y), set(vars(regressor))
    bad = Y.copy()
    bad[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        regressor.fit(bad, F)
    assert set(vars(regressor)) == state and np.array_equal(regressor.predict(Y), expected)


@pytest.mark.slow
def test_parameters_of_the_estimator_are_searched():
    Y, F = problem()
    search = GridSearchCV(
        ConservativeRegressor(KNeighborsRegressor()), {"estimator__n_neighbors": [2, 40]}, n_jobs=2, cv=3
    ).fit(Y, F)
    assert search.best_params_ == {"estimator__n_neighbors": 2}
    assert np.abs(search.predict(5 * Y).sum(axis=1) - 1).max() < 1e-14


# -- scikit-learn's conventions --------------------------------------------------------------------


@pytest.mark.slow
@parametrize_with_checks(
    [
        DDM(epsilon_scale=0.5),
        KernelDecoder(invariants=None),
        KernelDecoder("multi-gaussian", invariants=None),
        ConservativeRegressor(Ridge(), invariants=None),
        POD(1),
        POD(0.9),
        FourierFeatures(paired=True, orthogonal=True, random_state=0),
    ]
)
def test_scikit_learn_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", [DDM, KernelDecoder, ConservativeRegressor, POD, RANDSMAPDecoder])
def test_constructor_only_stores_and_documented_defaults_are_real(cls):
    marker = object()
    names = list(inspect.signature(cls).parameters)
    estimator = cls(**dict.fromkeys(names, marker))
    assert all(getattr(estimator, name) is marker for name in names)
    documented = dict(re.findall(r"^ *(\w+) : .*default=(.+)$", cls.__doc__, re.M))
    assert "invariants" in documented and "{" not in cls.__doc__.replace('{"', "")
    for name, text in documented.items():
        assert eval(text) == inspect.signature(cls).parameters[name].default


def fit_and_predict(decoder, Y, F):
    fitted = clone(decoder).fit(Y, F)
    return fitted.predict(Y), fitted


@pytest.mark.slow
@BY_NAME
def test_memory_mapped_input_in_two_processes(decoder, tmp_path):
    # Files of our own: those that joblib makes for max_nbytes=0 can be deleted by the first call's
    # workers while a second call of the same Parallel counts on them.
    def mapped(value, name):
        dump(value, tmp_path / name)
        return load_mapped(tmp_path / name, mmap_mode="r")

    Y, F = problem()
    reference = clone(decoder).fit(Y, F).predict(Y)
    Ym, Fm = mapped(Y, "Y"), mapped(F, "F")
    assert isinstance(Fm, np.memmap) and not Fm.flags.writeable
    parallel = Parallel(n_jobs=2, max_nbytes=None)
    fitted = parallel(delayed(clone(decoder).fit)(Ym, Fm) for _ in range(2))
    fitted = [mapped(one, f"decoder{i}") for i, one in enumerate(fitted)]
    for fields in parallel(delayed(one.predict)(Ym) for one in fitted):
        assert np.allclose(fields, reference, rtol=0, atol=1e-9)


@BY_NAME
def test_clone_pickle_pipeline_and_number_types(decoder):
    Y, F = problem()
    reference, fitted = fit_and_predict(decoder, Y, F)
    with pytest.raises(NotFittedError):
        clone(fitted).predict(Y)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(Y), reference)
    pipeline = make_pipeline(StandardScaler(), clone(decoder)).fit(Y, F)
    assert np.abs(pipeline.predict(10 * Y).sum(axis=1) - 1).max() < 1e-13
    Yr, Fr = Y.copy(), F.copy()
    Yr.setflags(write=False)
    Fr.setflags(write=False)
    for A, B in (
        (Yr, Fr),
        (np.asfortranarray(Y), np.asfortranarray(F)),
        (Y.tolist(), F.tolist()),
        (np.repeat(Y, 2, axis=1)[:, ::2], np.repeat(F, 2, axis=1)[:, ::2]),
    ):
        fields = fit_and_predict(decoder, A, B)[0]
        if isinstance(decoder, ConservativeRegressor):  # Ridge sees the layout of X
            assert np.allclose(fields, reference, rtol=0, atol=1e-12)
        else:
            assert np.array_equal(fields, reference)
    integers = np.array([[3, 1, 0], [1, 2, 1], [0, 2, 2], [4, 0, 0]], np.uint8)
    latents = np.arange(4, dtype=np.uint8)[:, None] * 80
    decoder = clone(decoder)
    if "rank" in decoder.get_params():
        decoder.set_params(rank="rule")
    as_float = clone(decoder).fit(latents.astype(float), integers.astype(float))
    assert np.array_equal(decoder.fit(latents, integers).predict(latents), as_float.predict(latents.astype(float)))


@pytest.mark.parametrize(
    "decoder", [d for d in DECODERS.values() if not isinstance(d, ConservativeRegressor)], ids=name_of
)
def test_model_files_give_the_same_fields(decoder, tmp_path):
    Y, F = problem()
    model = ManifoldModel(POD(2, invariants="mass"), clone(decoder)).fit(F)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert np.array_equal(again.reconstruct(F), model.reconstruct(F))
    assert np.array_equal(again.encoder_.inverse_transform(Y), model.encoder_.inverse_transform(Y))
    assert np.array_equal(again.decoder_.constant_cells_, model.decoder_.constant_cells_)


@BY_NAME
def test_the_callers_data_are_neither_changed_nor_kept(decoder):
    Y, F = problem()
    V, C, m = np.ones(30), np.ones((30, 1)), np.array([1.0])
    copies = [a.copy() for a in (Y, F, V, C, m)]
    decoder = clone(decoder).set_params(invariants=C, cell_weights=V, invariant_values=m)
    # parameters are stored as they are; what was fitted must not depend on them
    fitted = decoder.fit(Y, F)
    expected = fitted.predict(Y)
    for array, copy in zip((Y, F, V, C, m), copies):
        assert np.array_equal(array, copy)
        array[:] = 7
    if not isinstance(fitted, ConservativeRegressor):  # what the inner one keeps is its affair
        assert np.array_equal(fitted.predict(copies[0]), expected)


@BY_NAME
def test_bad_latents_are_refused(decoder):
    decoder = clone(decoder).fit(*problem())
    for bad in (np.empty((4, 3)), np.zeros(2), np.array(1.0), np.full((2, 2), np.nan), [["a", "b"]]):
        with pytest.raises(ValueError):
            decoder.predict(bad)


# -- pyMOR -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decoder", [DECODERS["ddm"], DECODERS["gaussian"], DECODERS["ridge"], DECODERS["randsmap"]], ids=name_of
)
def test_regressor_of_pymors_data_driven_reductor(decoder):
    pytest.importorskip("pymor")
    from pymor.parameters.base import Parameters
    from pymor.reductors.data_driven import DataDrivenReductor

    Y, F = problem()
    parameters = [Parameters({"y": 2}).parse(list(y)) for y in Y]
    reductor = DataDrivenReductor(parameters, F, regressor=clone(decoder))
    rom = reductor.reduce()
    solution = rom.solve(parameters[7]).to_numpy().ravel()
    assert np.allclose(solution, clone(decoder).fit(Y, F).predict(Y[7:8])[0], atol=1e-9)
    far = rom.solve(Parameters({"y": 2}).parse([3.0, -2.0])).to_numpy()
    assert abs(far.sum() - 1) < 1e-14


@pytest.mark.parametrize("bounds", [None, (0.0, 0.7)])
@pytest.mark.parametrize("inner", ["kernel", "bounded", "k-nn", "modes"])
def test_derivatives_of_a_projected_decoder_are_those_of_its_fields(inner, bounds):
    Y, F = random_problem(40, 9, constant={4: 0.1})
    decoder = {
        "kernel": KernelDecoder(regularization=1e-3, invariants=None),
        "bounded": KernelDecoder(regularization=1e-3, invariants="mass", bounds=(0.0, 0.65)),
        "k-nn": KNNDecoder(4),
        "modes": RANDSMAPDecoder(FourierFeatures(n_features=20), output_rank=4, random_state=0),
    }[inner]
    weights = np.linspace(1, 2, 9)
    model = ConservativeRegressor(decoder, invariants=np.ones((9, 1)), bounds=bounds, cell_weights=weights).fit(Y, F)
    Z, h = Y[:12] + 0.01, 1e-7
    J = model.jacobian(Z)
    central = np.stack([(model.predict(Z + e) - model.predict(Z - e)) / (2 * h) for e in h * np.eye(2)], axis=2)
    smooth = np.abs(J - central).max(axis=(1, 2)) <= 1e-5 * np.abs(J).max()  # others cross a bound, or a neighbour
    assert smooth.mean() > 0.8 and (J[:, 4] == 0).all()
    assert np.abs(J.sum(axis=1)).max() <= 1e-12 * np.abs(J).sum(axis=1).max()
    rng = np.random.default_rng(0)
    V, U = rng.standard_normal(Z.shape), rng.standard_normal((12, 9))
    size = 1e-12 * np.abs(J).max()
    np.testing.assert_allclose(model.jvp(Z, V), np.einsum("nmd,nd->nm", J, V), rtol=0, atol=size)
    np.testing.assert_allclose(model.vjp(Z, U), np.einsum("nmd,nm->nd", J, U), rtol=0, atol=10 * size)
    np.testing.assert_allclose(model.jacobian(Z, cells=[7, 0]), J[:, [7, 0]], rtol=0, atol=size)
    if inner != "bounded":
        np.testing.assert_allclose(model.freeze().predict(Z), model.predict(Z), rtol=0, atol=1e-12)
    else:
        with pytest.raises(TypeError, match="cannot be frozen"):
            model.freeze()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).jacobian(Z), J)


def test_a_regressor_of_another_package_has_no_derivatives():
    Y, F = random_problem(20, 5)
    model = ConservativeRegressor(Ridge(), invariants=None).fit(Y, F)
    assert not hasattr(model, "jvp")
    with pytest.raises(TypeError, match="of a Ridge cannot be frozen"):
        model.freeze()


def test_batches_give_what_all_fields_give():
    Y, F = random_problem(60, 9, constant={4: 0.1})
    F[:40, 2] = 0.3  # until the last batch
    F /= F.sum(axis=1, keepdims=True)
    F[:, 4], F[:, 0] = 0.1, F[:, 0] + F[:, 4] - 0.1
    features = FourierFeatures(0.5, n_features=20, random_state=0)
    inner = RANDSMAPDecoder(features, latent_scale=None, invariants=None)
    model = ConservativeRegressor(inner, bounds=(-1.0, 2.0))
    for rows in np.split(np.arange(60), 3):
        assert model.partial_fit(Y[rows], F[rows]) is model
    whole = clone(model).fit(Y, F)
    np.testing.assert_allclose(model.predict(5 * Y), whole.predict(5 * Y), rtol=0, atol=1e-9)
    assert (model.constant_cells_ == whole.constant_cells_).all() and model.constant_cells_.sum() == 1
    before = pickle.loads(pickle.dumps(model)).partial_fit(Y[:5], F[:5]).predict(Y)
    with pytest.raises(ValueError, match="do not satisfy invariant 0"):
        model.partial_fit(Y[:5], 2 * F[:5])
    assert (model.partial_fit(Y[:5], F[:5]).predict(Y) == before).all()  # the regressor had not got that batch
    with pytest.warns(UserWarning, match="fitted by fit: partial_fit discards that fit"):
        whole.partial_fit(Y[:9], F[:9])
    assert whole.estimator_.n_samples_seen_ == 9


def test_a_network_is_trained_by_batches_inside_a_model():
    F = random_problem(60, 9)[1]
    model = ManifoldModel(POD(2), ConservativeRegressor(MLPRegressor(hidden_layer_sizes=5, random_state=0)))
    for batch in np.split(F, 3):
        model.partial_fit(batch)
    assert model.decoder_.estimator_.t_ == 60
    assert np.abs(model.reconstruct(F).sum(axis=1) - F[0].sum()).max() < 1e-14
    assert not hasattr(ConservativeRegressor(Ridge()), "partial_fit")
