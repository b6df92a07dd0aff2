"""Model files: exact, and nothing but ValueError from a file that is not what `save` wrote."""

import copy
import enum
import fractions
import hashlib
import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import threading
import warnings
import zipfile
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures

import randsmap
from randsmap._interface.fields import FieldShape
from randsmap._interface.labels import Labels
from randsmap._interface.state import NOT_SAVED, is_computed
from randsmap._io.files import write_atomically
from randsmap.model._errors import held_out_errors
from randsmap.persistence import INNER, MANIFEST_BYTES, read_archive, save, seal, storable_class, write_archive

M, N = 12, 25


def fields(rng, constant=False):
    F = rng.uniform(0.5, 1.0, (N, M))
    if constant:
        F[:, 3], F[:, 7] = 0.0, 0.25
    free = [j for j in range(M) if not constant or j not in (3, 7)]
    F[:, free] *= ((1.0 - 0.25 * constant) / F[:, free].sum(axis=1))[:, None]
    return F


def models():
    """(name, fitted object): every class, in each configuration that stores other things."""
    rng = np.random.default_rng(0)
    Y, F = rng.uniform(-1, 1, (N, 2)), fields(rng)
    C = np.stack([np.ones(M), 2 * np.ones(M), np.zeros(M)], axis=1)
    weights = rng.uniform(0.5, 2, M)
    F_weighted = F / (F @ weights)[:, None]
    sigmoid = randsmap.SigmoidFeatures(slope=3.0, n_features=9)
    maps = {
        "sigmoid": sigmoid,
        "fourier": randsmap.FourierFeatures(0.3, n_features=0.4, random_state=1),
        "fourier array": randsmap.FourierFeatures(np.array([0.3, 0.7]), n_features=7),
        "fourier list": randsmap.FourierFeatures([0.3, 1 / 3], random_state=np.random.default_rng(3)),
        "matern": randsmap.MaternFeatures(0.5, nu=2.5, n_features=6, random_state=2),
        "monomials": randsmap.MonomialFeatures(3),
        "multiscale": randsmap.MultiscaleFourierFeatures(np.float64(1.1), n_scales=3, n_features=np.int64(8)),
    }
    for name, features in maps.items():
        yield name, features.fit(Y)
        yield f"RANDSMAP {name}", randsmap.RANDSMAPDecoder(features, random_state=2).fit(Y, F)
    decoder = randsmap.RANDSMAPDecoder
    yield "RFNN", randsmap.RFNNDecoder(random_state=np.random.RandomState(0)).fit(Y, F)
    yield "RFNN svd", randsmap.RFNNDecoder(sigmoid, regularization=0).fit(Y, F)
    yield "RFNN krylov", randsmap.RFNNDecoder(sigmoid, solver="krylov", tol=1e-5).fit(Y, F)
    yield "RFNN one cell", randsmap.RFNNDecoder(sigmoid).fit(Y, F[:, 0])
    yield "training", decoder(sigmoid, constraint="training").fit(Y, F)
    yield "no invariants", decoder(sigmoid, invariants=None).fit(Y, F)
    yield "array C", decoder(sigmoid, invariants=C, invariant_values=(1.0, 2.0, 0.0)).fit(Y, F)
    yield "integer C", decoder(sigmoid, invariants=np.asfortranarray(C.astype(np.int16))).fit(Y, F)
    yield "weights", decoder(sigmoid, cell_weights=weights).fit(Y, F_weighted)
    yield "constant cells", decoder(sigmoid).fit(Y, fields(rng, constant=True))
    yield "bounds", decoder(sigmoid, bounds="nonnegative").fit(Y, fields(rng, constant=True))
    yield "bounds only", decoder(sigmoid, invariants=None, bounds=(0, np.full(M, 1.5))).fit(Y, F)
    yield "POD bounds", randsmap.POD(2, invariants="mass", bounds=(None, 1.0)).fit(F)
    yield "all constant", decoder(sigmoid).fit(Y, np.ones((N, M)))
    yield "diffusion maps", randsmap.DiffusionMaps(2).fit(F)
    yield "sparse", randsmap.DiffusionMaps(2, n_neighbors=len(F) // 2, select="non-harmonic").fit(F)
    yield "Isomap", randsmap.Isomap(2, cell_weights=weights).fit(F)
    yield "selected", randsmap.DiffusionMaps(2, select=(3, 1), epsilon=0.5, diffusion_time=0.5).fit(F)
    yield "as features", decoder(randsmap.DiffusionMaps(3)).fit(Y, F)
    ddm = randsmap.DoubleDiffusionMapsDecoder
    yield "DDM harmonics", ddm(epsilon=1.0, rank=4, invariants="mass").fit(Y, F)
    yield "DDM product", ddm(cell_weights=weights[:2]).fit(Y, F[:, :2])
    yield "DDM bounds", ddm(invariants="mass", bounds=(0.0, np.arange(M) + 1.0)).fit(Y, F)
    yield "Gaussian", randsmap.KernelDecoder(length_scale=[0.3, 0.7], invariants="mass").fit(Y, F)
    yield "multi-Gaussian", randsmap.KernelDecoder("multi-gaussian", regularization=0).fit(Y, F)
    yield "POD", randsmap.POD(0.9, invariants=C).fit(fields(rng, constant=True))
    yield "POD model", randsmap.ManifoldModel(randsmap.POD(2), ddm(invariants="mass")).fit(F)
    judged = randsmap.ManifoldModel(randsmap.POD(2))
    held_out = held_out_errors(judged, F)
    judged.fit(F).held_out_ = held_out
    yield "cross-validation errors", judged
    yield "model", randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder(sigmoid)).fit(F)
    knn = randsmap.KNNDecoder
    yield "k-NN", knn(3).fit(Y, F)
    yield "k-NN in 8-D", knn(3).fit(rng.uniform(-1, 1, (N, 8)), F)
    yield "k-NN scaled", knn(3, latent_scale=[0.3, 2.0]).fit(Y, F)
    yield "k-NN grid", knn(3).fit(rng.uniform(-1, 1, (200, 2)), rng.uniform(0, 1, (200, M)))
    yield "k-NN model", randsmap.ManifoldModel(randsmap.DiffusionMaps(2), knn(3)).fit(F)
    yield "k-NN encoder", randsmap.ManifoldModel(randsmap.DiffusionMaps(2), knn(3, objective="encoder")).fit(F)
    kernel = randsmap.KernelDecoder
    yield "Matern", kernel("matern", nu=2.5, length_scale=[0.3, 0.7], degree=1, invariants="mass").fit(Y, F)
    yield "thin plate", kernel("thin-plate", degree=1).fit(Y, F)
    judged = kernel().fit(Y, F)
    judged.predict(Y, return_error=True)
    yield "error bar", judged
    yield "blend", randsmap.BlendedDecoder([kernel(), knn(2), kernel("matern")], limit=0.1, invariants="mass").fit(Y, F)
    yield "auto", randsmap.AutoDecoder(n_trials=4).fit(Y, F)
    shifted = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder(sigmoid))
    yield "shift", randsmap.ShiftRegistration(shifted).fit(F)
    parametric = randsmap.ParametricModel(randsmap.ManifoldModel(randsmap.POD(2)), randsmap.KernelDecoder())
    yield "parametric", parametric.fit(Y, F)
    quantiles = randsmap.QuantileRegistration(randsmap.ManifoldModel(randsmap.POD(2)))
    yield "quantiles", randsmap.ParametricModel(quantiles, randsmap.KernelDecoder()).fit(Y, np.abs(F))
    yield "forecast", randsmap.LatentForecast(randsmap.POD(2), lag=2).fit(F, np.arange(N) // 10)
    yield "invariants", decoder(sigmoid, cell_weights=weights).fit(Y, F_weighted).invariants_
    of_shape = F.reshape(N, 3, 4)
    yield "fields of a shape", decoder(sigmoid, cell_weights=np.ones((3, 4))).fit(Y, of_shape)
    yield "k-NN of a shape", knn(3).fit(Y, of_shape)
    yield "auto of a shape", randsmap.AutoDecoder(n_trials=4).fit(Y, of_shape)
    yield "POD of a shape", randsmap.POD(2).fit(of_shape)
    yield "model of a shape", randsmap.ManifoldModel(randsmap.DiffusionMaps(2), kernel()).fit(of_shape)
    yield "shift of a shape", randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2))).fit(of_shape)
    coords = [
        ("x", ("x",), "", np.arange(4), '{"units": "m"}'),
        ("day", ("y",), "datetime64[us]", ("2020-01-01", "2020-01-02", "2020-01-03"), "{}"),
        ("cell", ("x",), "levels", [("a", "str", ("p", "q"), np.array([0, 1, 0, 1]))], "{}"),
        ("a", ("x",), "level", (), "{}"),
        ("name", ("x",), "str", ("a", "b", "c", "d"), "{}"),
    ]
    yield "labels", Labels(("time", "y", "x"), "u", '{"title": "a run"}', coords)


MODELS = dict(models())
SEARCH = {"results_", "held_out_error_", "on_edge_", "chosen_invariants_"}  # AutoDecoder's record, in no file


def bits(array):
    """An array's type, shape and bytes, whatever the order in memory."""
    return array.dtype, array.shape, np.ascontiguousarray(array).tobytes()


def assert_same(a, b, path="model"):
    """Equal to the bit; NumPy scalars may have become Python's numbers and generators None."""
    a, b = (x.item() if isinstance(x, np.generic) else x for x in (a, b))
    if isinstance(a, (np.random.Generator, np.random.RandomState)):
        assert b is None, path
        return
    assert type(a) is type(b), path
    if isinstance(a, np.ndarray) and a.dtype == object:
        assert a.tolist() == b.tolist(), path
    elif isinstance(a, np.ndarray):
        assert bits(a) == bits(b), path
        assert b.flags.c_contiguous and b.flags.writeable and b.dtype.isnative, path
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b)):
            assert_same(x, y, f"{path}[{i}]")
    elif type(a).__module__.startswith("randsmap") and hasattr(a, "__dict__"):
        # what is made of the others is compared by `outputs`
        made = {name for name, how in getattr(type(a), "_state", {}).items() if how is NOT_SAVED}
        made |= {name for name in vars(a) | vars(b) if is_computed(type(a), name)}
        assert vars(a).keys() - SEARCH - made == vars(b).keys() - made, path
        for name in vars(b).keys() - made:
            assert_same(vars(a)[name], vars(b)[name], f"{path}.{name}")
    elif type(a).__name__ == "Projection":
        pass  # made of the arrays beside it; what it does is compared by `outputs`
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b), path
    else:
        assert a == b, path


def outputs(model):
    """What a fitted object computes, on input of its own width."""
    rng = np.random.default_rng(5)
    if isinstance(model, Labels):  # test_fields has what they make
        return [np.frombuffer(repr(vars(model)).encode(), np.uint8)]
    if isinstance(model, FieldShape):
        return [np.full(1, model.n_cells)]
    if not isinstance(model, BaseEstimator):
        return [model.project(rng.uniform(0, 1, (3, len(model.matrix))))]
    X = rng.uniform(-2, 2, (9, model.n_features_in_))
    if isinstance(model, randsmap.ManifoldModel):
        return [
            model.transform(X),
            model.inverse_transform(model.transform(X)),
            model.inverse_transform(model.transform(X[:1])),
        ]
    if isinstance(model, randsmap.LatentForecast):
        return list(model.forecast(X, 4, return_error=True, coverage=0.75))
    if hasattr(model, "predict"):
        return [model.predict(X), model.predict(X[:1])]
    return [model.transform(X)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


# -- Round trips -----------------------------------------------------------------------------------


def test_every_class_is_covered():
    def names(value):
        yield type(value).__name__
        for part in vars(value).values():
            if storable_class(type(part).__name__):
                yield from names(part)

    assert {name for model in MODELS.values() for name in names(model)} == {
        name for name in [*INNER, *randsmap.__all__] if storable_class(name)
    }


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_exact_to_the_bit(name, path):
    model = MODELS[name]
    save(model, path)
    loaded = randsmap.load(path)
    assert_same(model, loaded)
    for ours, theirs in zip(outputs(model), outputs(loaded)):
        assert bits(ours) == bits(theirs)
    first = path.read_bytes()
    save(loaded, path)
    if "list" not in name and name != "RFNN":  # a generator became None
        assert path.read_bytes() == first
    if isinstance(loaded, BaseEstimator):
        clone(loaded)


@pytest.mark.parametrize("name", MODELS)
def test_pickle_and_deepcopy_are_exact_to_the_bit(name):
    model = MODELS[name]
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        again = pickle.loads(pickle.dumps(model, protocol=protocol))
        for ours, theirs in zip(outputs(model), outputs(again)):
            assert bits(ours) == bits(theirs)
    assert bits(outputs(copy.deepcopy(model))[0]) == bits(outputs(model)[0])


def test_special_numbers_and_parameters(path):
    features = randsmap.SigmoidFeatures(n_features=5, random_state=0).fit([[0.0], [1.0]])
    for value in (
        -0.0,
        5e-324,
        1 / 3,
        float("inf"),
        float("-inf"),
        float("nan"),
        2**70,
        True,
        None,
        "\u00e9\ud800",
        [],
        (),
        [1, (2.5, [None])],
        np.float32(0.1),
        np.arange(3, dtype=">i4")[::-1],
        np.array(2.0),
        np.zeros((0, 3), np.float16),
        np.array([np.nan, 1]),
        np.array([True]),
    ):
        features.n_features = value
        save(features, path)
        loaded = randsmap.load(path)
        if isinstance(value, np.ndarray):
            assert_same(value.astype(value.dtype.newbyteorder("=")), loaded.n_features)
        else:
            assert_same(value, loaded.n_features)


def test_feature_names_are_kept(path):
    features = randsmap.SigmoidFeatures(n_features=5).fit(np.eye(2))
    # what scikit-learn sets after a fit on a data frame
    features.feature_names_in_ = np.array(["a", "b"], dtype=object)
    save(features, path)
    assert_same(features, randsmap.load(path))


def test_the_largest_blends_of_searches_fit_into_a_file(tmp_path):
    """Of 12 decoders each, for the fields and for the latents over parameters."""
    rng = np.random.default_rng(0)
    parameters = rng.uniform(size=(30, 2))
    F = np.column_stack([parameters, 1 - parameters])
    parts = [randsmap.RFNNDecoder(randsmap.SigmoidFeatures(n_features=5), random_state=i) for i in range(12)]
    model = randsmap.ManifoldModel(randsmap.POD(2), randsmap.BlendedDecoder(parts, invariants="mass"))
    parametric = randsmap.ParametricModel(model, randsmap.BlendedDecoder(parts)).fit(parameters, F)
    parametric.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(randsmap.load(tmp_path / "m.npz").predict(parameters), parametric.predict(parameters))


def test_parts_that_are_one_object_stay_one(path):
    MODELS["k-NN encoder"].save(path)
    loaded = randsmap.load(path)
    assert loaded.decoder_.encoder_ is loaded.encoder_


def test_arrays_beyond_the_old_limit_of_zip_files(path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)  # of 2 GB
    MODELS["model"].save(path)
    assert_same(MODELS["model"], randsmap.load(path))
    assert b"PK\6\6" in path.read_bytes()


def test_numpy_and_zip_tools_read_the_file(path):
    model = MODELS["model"]
    model.save(path)
    with np.load(path, allow_pickle=False) as arrays:
        assert bits(arrays["decoder_._fitted.coefficients"]) == bits(model.decoder_.coef_)
        assert len(arrays.files) > 10
        for name in arrays.files:
            arrays[name]
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("manifest.json"))["version"] == 1
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())


def test_the_format_is_frozen():
    # the same bytes from any NumPy version
    file = io.BytesIO()
    write_archive(file, {"format": "x"}, {"a.b_": np.arange(6.0).reshape(2, 3), "c": np.array([True])})
    digest = hashlib.sha256(file.getvalue()).hexdigest()
    assert digest == "a5e51a7f9c0584e7607389bbbcdd66f9710c0096dbd5b771814eda6a3d6adc4d"


# -- What cannot be saved --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts, named",
    [
        ((PCA(2), None), "encoder is of class sklearn.decomposition._pca.PCA"),
        (
            (randsmap.DiffusionMaps(2), LinearRegression()),
            "decoder is of class sklearn.linear_model._base.LinearRegression",
        ),
        (
            (randsmap.DiffusionMaps(2), randsmap.RANDSMAPDecoder(PolynomialFeatures(2, include_bias=False))),
            "decoder.features is of class sklearn.preprocessing._polynomial.PolynomialFeatures",
        ),
        (
            (randsmap.POD(2), randsmap.ConservativeRegressor(KernelRidge())),
            "decoder.estimator is of class sklearn.kernel_ridge.KernelRidge",
        ),
        (
            (randsmap.POD(2), randsmap.ConservativeRegressor(randsmap.KernelDecoder())),
            "_conservative.ConservativeRegressor, which a model file cannot hold (it holds estimators of randsmap, but",
        ),
    ],
)
def test_scikit_learn_parts_are_refused_before_anything_is_written(parts, named, path, tmp_path):
    model = randsmap.ManifoldModel(*parts).fit(fields(np.random.default_rng(0)))
    with pytest.raises(TypeError, match=re.escape(named)):
        model.save(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_other_things_that_are_refused(path):
    class Own(randsmap.SigmoidFeatures):
        pass

    fitted = randsmap.SigmoidFeatures(n_features=4).fit(np.eye(2))
    with pytest.raises(TypeError, match="Own"):
        save(Own().fit(np.eye(2)), path)
    with pytest.raises(NotFittedError):
        save(randsmap.SigmoidFeatures(), path)
    with pytest.raises(NotFittedError):
        randsmap.ManifoldModel(randsmap.DiffusionMaps()).save(path)
    fitted.note = 1
    with pytest.raises(TypeError, match="note"):
        save(fitted, path)
    del fitted.note
    loop = []
    loop.append(loop)
    for value, message in (
        (loop, "nested"),
        (object(), "slope"),
        ({}, "dict"),
        (1j, "complex"),
        (np.array([{}], dtype=object), "object"),
        (np.ones(2, "D"), "complex"),
        (np.ma.ones(2), "MaskedArray"),
    ):
        fitted.slope = value
        with pytest.raises(TypeError, match=message):
            save(fitted, path)
    fitted.slope = [0.1] * 10**6
    with pytest.raises(ValueError, match="NumPy arrays"):
        save(fitted, path)
    fitted.slope = 1.0
    fitted.offsets_ = fitted.offsets_[:-1]
    with pytest.raises(ValueError, match="offsets_: length P is 3, not 4"):
        save(fitted, path)
    del fitted.offsets_
    with pytest.raises(ValueError, match="offsets_ is missing"):
        save(fitted, path)
    assert not path.exists()


def test_a_failed_save_leaves_the_old_file(path, tmp_path):
    save(MODELS["sigmoid"], path)
    before = path.read_bytes()

    def fail(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    with pytest.raises(OSError):
        save(MODELS["sigmoid"], tmp_path / "no folder" / "model.npz")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits")
def test_a_full_disk_leaves_the_old_file(path, tmp_path):
    save(MODELS["sigmoid"], path)
    code = (
        "import resource, sys, randsmap\n"
        "from randsmap.persistence import save\n"
        "features = randsmap.SigmoidFeatures(n_features=5000).fit([[0.0], [1.0]])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "try: save(features, sys.argv[1])\n"
        "except OSError: print('refused')"
    )
    result = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, cwd=tmp_path)
    assert result.stdout == "refused\n", result.stderr
    assert_same(randsmap.load(path), MODELS["sigmoid"])
    assert list(tmp_path.iterdir()) == [path]


def test_many_threads_save_to_one_path(path, tmp_path):
    a, b = MODELS["model"], MODELS["sigmoid"]
    threads = [threading.Thread(target=save, args=(m, path)) for m in [a, b] * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    randsmap.load(path)
    assert list(tmp_path.iterdir()) == [path]


# -- Damaged files ---------------------------------------------------------------------------------


def refused(path, data, match=None):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=match):
        randsmap.load(path)


def test_not_a_model_file(path, tmp_path):
    refused(path, b"", "not a valid model file: it is too short")
    refused(path, b"\x80\x04junk" * 100)
    refused(path, b"PK\3\4" * 100)
    np.savez(path, coef_=np.eye(3))
    refused(path, path.read_bytes(), "digest")
    with pytest.raises(FileNotFoundError):
        randsmap.load(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="not a regular file"):
        randsmap.load(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="not a regular file"):
            randsmap.load(tmp_path / "pipe")


def overwrite(file, offset, byte):
    file.seek(offset)
    file.write(bytes([byte]))


@pytest.mark.slow
def test_every_flipped_bit_is_found(path):
    save(randsmap.SigmoidFeatures(n_features=3, random_state=0).fit(np.eye(2)), path)
    data = path.read_bytes()
    with open(path, "r+b", buffering=0) as file:
        for i, byte in enumerate(data):
            for bit in range(8):
                overwrite(file, i, byte ^ 1 << bit)
                with pytest.raises(ValueError):
                    randsmap.load(path)
            overwrite(file, i, byte)
    randsmap.load(path)


@pytest.mark.slow
def test_a_flipped_bit_in_every_byte_of_a_whole_model(path):
    MODELS["model"].save(path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    with open(path, "r+b", buffering=0) as file:
        for i in range(0, len(data), 3):
            overwrite(file, i, data[i] ^ 1 << int(rng.integers(8)))
            with pytest.raises(ValueError):
                randsmap.load(path)
            overwrite(file, i, data[i])
    randsmap.load(path)


@pytest.mark.slow
def test_every_truncation_and_trailing_bytes(path):
    save(randsmap.SigmoidFeatures(n_features=3, random_state=0).fit(np.eye(2)), path)
    data = path.read_bytes()
    for length in range(len(data)):
        refused(path, data[:length])
    refused(path, data + b"\0", "digest")
    refused(path, data + data)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_random_damage(data):
    path, whole = _whole_file()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        length = data.draw(st.integers(0, 40))
        new = data.draw(
            st.one_of(
                st.binary(max_size=40),
                st.just(b"\xff" * 8),
                st.just(b"\0" * 8),
                st.just(b"PK\5\6" + bytes(18)),
                st.just(b"PK\1\2"),
            )
        )
        damaged[at : at + length] = new
    path.write_bytes(damaged)
    if damaged == whole:
        randsmap.load(path)
    else:
        with pytest.raises(ValueError):
            randsmap.load(path)


@pytest.fixture(autouse=True, scope="module")
def _fuzz_folder(tmp_path_factory):
    global _FOLDER
    _FOLDER = tmp_path_factory.mktemp("fuzz")


def _whole_file():
    whole = _FOLDER / "whole.npz"
    if not whole.exists():
        MODELS["model"].save(whole)
    return _FOLDER / "damaged.npz", whole.read_bytes()


def test_the_same_members_in_another_archive_are_refused(path):
    MODELS["model"].save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        comment = archive.comment
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.comment = comment
            for name, content in members.items():
                archive.writestr(name, content)
        with pytest.raises(ValueError):
            randsmap.load(path)


# -- Forged files: consistent checksums, wrong contents --------------------------------------------


def forge(path, manifest, arrays):
    with open(path, "w+b") as file:
        write_archive(file, manifest, arrays)


def forged(path, change):
    """The model's file with a change(manifest, arrays) and right checksums."""
    manifest, arrays = read_archive(path)
    change(manifest, arrays)
    forge(path, manifest, arrays)
    with pytest.raises(ValueError, match="is not a valid model file") as error:
        randsmap.load(path)
    return str(error.value)


def set_array(name, make):
    return lambda manifest, arrays: arrays.__setitem__(name, make(arrays[name]))


@pytest.mark.parametrize(
    "change, message",
    [
        (set_array("decoder_._fitted.coefficients", lambda a: a[:-1]), "coefficients: length P"),
        (set_array("decoder_._fitted.coefficients", lambda a: a[:, :-1]), "coefficients of 11 cells"),
        (set_array("decoder_._fitted.coefficients", lambda a: a.astype(np.float16)), "float64, got float16"),
        (set_array("decoder_._fitted.points", lambda a: a.astype(np.float32)), "float64, got float32"),
        (set_array("decoder_._fitted.coefficients", lambda a: np.where(a == a[2, 3], np.nan, a)), "finite"),
        (set_array("decoder_._fitted.coefficients", lambda a: np.where(a == a[2, 3], -np.inf, a)), "finite"),
        (set_array("decoder_._fitted.coefficients", lambda a: a.ravel()), "2 dimension"),
        (set_array("decoder_._fitted.coefficients", lambda a: a.view(np.int64)), "float64, got int64"),
        (set_array("decoder_._fitted.features.weights_", lambda a: a.T), "length d"),
        (set_array("decoder_._fitted.features.weights_", lambda a: a[:, :0]), "length P is 0"),
        (set_array("decoder_._fitted.features.offsets_", lambda a: a[:-1]), "length P"),
        (set_array("decoder_._fitted.invariants.independent", lambda a: a + 1), "independent names a column"),
        (set_array("decoder_._fitted.invariants.independent", lambda a: a - 1), "independent: its values must be in"),
        (set_array("decoder_._fitted.invariants.constant", lambda a: ~a), "constant_values has not one value"),
        (set_array("decoder_._fitted.invariants.constant", lambda a: a.astype(np.uint8)), "of bool"),
        (set_array("decoder_._fitted.invariants.triangle", lambda a: 0 * a), "singular"),
        (set_array("decoder_._fitted.invariants.directions", lambda a: a[:, :-1]), "length M"),
        (set_array("decoder_._fitted.invariants.directions", lambda a: a.repeat(2, axis=0)), "length rank"),
        (set_array("encoder_.selected_", lambda a: a + 5), "selected_"),
        (set_array("encoder_.selected_", lambda a: a * 0), "selected_"),
        (set_array("encoder_._encoding.rows", lambda a: a[:-1]), "length n"),
        (set_array("encoder_._encoding.norms", lambda a: a * np.nan), "must be finite"),
        (set_array("encoder_._encoding.weights", lambda a: a[:-1]), "length d is"),
        (lambda m, a: a.pop("decoder_._fitted.coefficients"), "decoder_._fitted.coefficients"),
        (lambda m, a: m.update(version=2, randsmap="9.0"), "version 2, written by randsmap '9.0'"),
        (lambda m, a: m.update(version=True), "version True"),
        (lambda m, a: m.update(format="other"), "format"),
        (lambda m, a: m.pop("objects"), "objects"),
        (lambda m, a: m.update(objects=[]), "no fitted model"),
        (lambda m, a: m["objects"][-1].update(state=None), "no fitted model"),
        (lambda m, a: m.update(objects=m["objects"] * 40), "no fitted model"),
        (lambda m, a: m["objects"][-1].update({"class": "system"}), "unknown class 'system'"),
        (lambda m, a: m["objects"][-1].update({"class": ["SigmoidFeatures"]}), ""),
        (lambda m, a: m["objects"][-1]["params"].update(evil=1), "no parameter evil"),
        (lambda m, a: m["objects"][-1]["state"].update(__class__=1), "other attributes"),
        (lambda m, a: m["objects"][-1]["state"].update(transform=1), "other attributes"),
        (lambda m, a: m["objects"][-1]["state"].update(feature_names_in_=["a"]), "string a feature"),
        (lambda m, a: m["objects"][-1]["state"].update(decoder_=None), "no inverse_transform"),
        (lambda m, a: m["objects"][-1]["state"].update(decoder_={"object": 1}), "fitted estimator with predict"),
        (lambda m, a: m["objects"][-1]["state"].update(encoder_={"object": 99}), "tagged 'object'"),
        (lambda m, a: m["objects"][-1]["state"].update(encoder_={"object": -1}), "tagged 'object'"),
        (lambda m, a: m["objects"][-1]["state"].update(encoder_={"pickle": "gASV"}), "tagged 'pickle'"),
        (lambda m, a: m["objects"][-1]["state"].update(encoder_={}), ""),
        (lambda m, a: m["objects"][-1]["state"].update(n_features_in_=10**30), "length M"),
        (lambda m, a: m["objects"][-1]["state"].update(n_features_in_=1.0), "int"),
    ],
)
def test_forged_contents_are_refused(change, message, path):
    MODELS["model"].save(path)
    assert re.search(message, forged(path, change))


def structure(manifest, *members):
    """Bytes of a file with this manifest and these (name, content) members, with a right digest."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in (("manifest.json", manifest), *members):
            archive.writestr(name, content)
    seal(file)
    return file.getvalue()


def npy(shape="(1,)", descr="'<f8'", order="False", magic=b"\x93NUMPY\x01\x00", data=bytes(8)):
    """A .npy file with a header of a forger's choice."""
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n".encode()
    return magic + struct.pack("<H", len(header)) + header + data


EMPTY = b'{"format": "randsmap model", "version": 1, "objects": []}'
SHAPES = ["(2**48, 100)", f"({2**30},)", f"({2**62}, {2**62})", f"(0, {2**62})", f"(0, {2**47}, {2**47})", "(-1,)"]
NASTY = [
    *((EMPTY, ("a.npy", npy(shape))) for shape in (*SHAPES, "(True,)", "(1.0,)", str((1,) * 70), "'1'", "1")),
    *((EMPTY, ("a.npy", npy(descr=descr))) for descr in ("'|O'", "'>f8'", "'<f16'", "['<f8']", "'<M8[s]'", "'V8'")),
    (EMPTY, ("a.npy", npy(order="True"))),
    (EMPTY, ("a.npy", npy(magic=b"\x93NUMPY\x02\x00"))),
    (EMPTY, ("a.npy", npy(data=b""))),
    (EMPTY, ("a.npy", npy(data=bytes(9)))),
    (EMPTY, ("a.npy", b"")),
    (EMPTY, ("a.npy", npy("(" * 5000 + ")" * 5000))),
    (EMPTY, ("../a.npy", npy()), ("a" * 60000, npy())),
    (b"[" * 10**6,),
    (b'{"a":' * 10**6,),
    (b"",),
    (b"null",),
    (b"[]",),
    (b"\xff\xfe",),
    (b'{"objects":NaN}',),
    (b'{"objects":' + b"9" * 10**6 + b"}",),
    (b"[" + b"[]," * 10**6 + b"[]]",),
    (b'{"objects":1e999}',),
    (b'{"a":"' + b" " * MANIFEST_BYTES + b'"}',),
]


def test_members_that_occur_twice_or_are_compressed_are_refused(path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = structure(EMPTY, ("a.npy", npy()), ("a.npy", npy()))
    refused(path, twice, "occurs twice")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", EMPTY)
    seal(file)
    refused(path, file.getvalue(), "compressed")


def test_what_a_file_need_not_hold_has_a_default(path):
    save(MODELS["bounds"], path)
    manifest, arrays = read_archive(path)
    for entry in manifest["objects"]:
        if entry["class"] == "AffineInvariants":
            del entry["state"]["cell_weights"]
    forge(path, manifest, arrays)
    loaded, X = randsmap.load(path), np.zeros((2, 2))
    assert np.array_equal(loaded.jacobian(X), MODELS["bounds"].jacobian(X))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits")
def test_no_file_makes_memory_blow_up(tmp_path):
    for i, parts in enumerate(NASTY):
        (tmp_path / f"{i:02}.npz").write_bytes(structure(*parts))
    # headers that claim a manifest of 2^40 bytes, and one of 0.5 GB in a (sparse) file that has them
    for i, size in enumerate((2**40, 2**29)):
        with open(tmp_path / f"long{i}.npz", "wb") as file:
            info = zipfile.ZipInfo("manifest.json")
            info.file_size, info.compress_size, info.CRC = size, size, 0
            file.write(info.FileHeader(zip64=True))
            file.truncate(2**29 + 2**20)
    # one whose directory is said to take 0.5 GB
    with open(tmp_path / "directory.npz", "wb") as file:
        file.write(structure(EMPTY))
        file.truncate(2**29)
    with open(tmp_path / "directory.npz", "r+b") as file:
        file.seek(0, 2)
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 2**29 - 100, 100, 0))
        seal(file)
    code = (
        "import pathlib, resource, sys, randsmap, randsmap.persistence\n"
        "before = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()"
        "\n"
        "resource.setrlimit(resource.RLIMIT_AS, (before + 2**28,) * 2)\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    try: randsmap.load(path); print('loaded', path)\n"
        "    except ValueError: pass\n"
        "print('done')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=120, cwd=tmp_path.parent
    )
    assert result.stdout == "done\n", result.stdout + result.stderr[-2000:]
    assert result.returncode == 0


VALUES = [
    None,
    True,
    0,
    -1,
    1,
    2,
    3,
    2**40,
    10**30,
    0.5,
    -1e308,
    "",
    "mass",
    "svd",
    [],
    [1],
    {},
    {"array": "x"},
    {"array": "encoder_.selected_"},
    {"array": "decoder_._fitted.coefficients"},
    {"object": 0},
    {"object": 3},
    {"float": "nan"},
    {"float": "inf"},
    {"tuple": [1, {"object": 1}]},
]
ARRAYS = [
    lambda a: a[:-1],
    lambda a: a[..., :-1],
    lambda a: a.T,
    lambda a: a[:0],
    lambda a: a.ravel(),
    lambda a: a[None],
    lambda a: np.concatenate([a, a]),
    lambda a: np.zeros_like(a),
    lambda a: ~a if a.dtype == bool else -a,
    lambda a: a.astype(float),
    lambda a: a.astype(np.intp),
    lambda a: a.astype(bool),
    lambda a: a.astype(np.float32),
    lambda a: a * 1e300,
    lambda a: a.astype(np.intp) + 10**12,
    lambda a: np.full(a.shape, np.nan),
    lambda a: np.full(a.shape, np.inf),
    lambda a: np.array(1.0),
    lambda a: np.zeros((0, 0)),
    lambda a: np.ones_like(a),
]


def nodes(value):
    """All (container, key) places of a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from nodes(value[key])


@pytest.mark.slow
@settings(deadline=None, max_examples=500, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.data(),
    st.sampled_from(["model", "constant cells", "array C", "weights", "as features", "k-NN grid", "k-NN encoder"]),
)
def test_forged_files_load_or_give_valueerror_and_never_crash(data, name):
    path = _FOLDER / "forged.npz"
    manifest, arrays = copy.deepcopy(_contents(name))
    with np.errstate(all="ignore"):
        _change(data, manifest, arrays)
    forge(path, manifest, arrays)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = randsmap.load(path)
        except ValueError:
            return
        try:
            results = outputs(model)
        except ValueError as error:  # latents that are NaN, invariants that overflow or that no field can have
            assert any(
                words in str(error)
                for words in ("must be finite", "too large", "does not converge", "no field is found")
            )
            return
        except AttributeError as error:  # a model that the file gives no decoder
            assert model.decoder is None and "inverse_transform" in str(error)
            return
        for result in results:  # right shapes; the numbers may be nonsense
            assert result.shape[0] in (1, 3, 9)


@cache
def _contents(name):
    save(MODELS[name], _FOLDER / "contents.npz")
    return read_archive(_FOLDER / "contents.npz")


def _change(data, manifest, arrays):
    for _ in range(data.draw(st.integers(1, 2))):
        if data.draw(st.booleans()):
            container, key = data.draw(st.sampled_from(list(nodes(manifest))))
            what = data.draw(st.sampled_from(["replace", "delete", "copy"]))
            if what == "replace":
                container[key] = copy.deepcopy(data.draw(st.sampled_from(VALUES)))
            elif what == "delete":
                del container[key]
            else:
                other, place = data.draw(st.sampled_from(list(nodes(manifest))))
                container[key] = copy.deepcopy(other[place])
        else:
            key = data.draw(st.sampled_from(sorted(arrays)))
            try:
                arrays[key] = data.draw(st.sampled_from(ARRAYS))(arrays[key])
            except (IndexError, ValueError, TypeError):
                pass  # no such change of that array
        if not manifest:
            break


# -- Two environments ------------------------------------------------------------------------------


@pytest.mark.skipif(
    "RANDSMAP_OTHER_PYTHON" not in os.environ,
    reason="RANDSMAP_OTHER_PYTHON does not name another environment's interpreter",
)
def test_models_travel_between_environments(tmp_path):
    """Pickles and model files, there and back: attributes equal to the bit."""
    models = {name.replace(" ", "_"): model for name, model in MODELS.items()}
    for name, model in models.items():
        save(model, tmp_path / f"{name}.npz")
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(model))
    code = (
        "import pathlib, pickle, sys, warnings, randsmap\n"
        "from randsmap.persistence import save\n"
        "warnings.simplefilter('ignore')  # InconsistentVersionWarning\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir():\n"
        "    if path.suffix == '.npz': save(randsmap.load(path), path)\n"
        "    else: path.write_bytes(pickle.dumps(pickle.loads(path.read_bytes())))\n"
        "print('done')"
    )
    result = subprocess.run(
        [os.environ["RANDSMAP_OTHER_PYTHON"], "-c", code, tmp_path], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.stdout == "done\n", result.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in models.items():
            for again in (
                randsmap.load(tmp_path / f"{name}.npz"),
                pickle.loads((tmp_path / f"{name}.pickle").read_bytes()),
            ):
                for ours, theirs in zip(outputs(model), outputs(again)):
                    assert bits(ours) == bits(theirs)


@pytest.mark.parametrize(
    "name, value, wanted",
    [
        ("regularization", fractions.Fraction(1, 8), 0.125),
        ("degree", enum.IntEnum("Degree", ["LINEAR"]).LINEAR, 1),
        ("length_scale", np.array([0.5, 0.25], object), np.array([0.5, 0.25])),
        ("kernel", np.str_("matern"), "matern"),
        ("nu", np.float32(2.5), 2.5),
        ("degree", np.int8(1), 1),
        ("length_scale", np.longdouble(0.5), 0.5),
        ("length_scale", np.array([0.5, 0.25], np.longdouble), np.array([0.5, 0.25])),
        ("center", np.True_, True),
        ("bounds", (np.float32(-9), None), (-9.0, None)),
        ("bounds", np.str_("nonnegative"), "nonnegative"),
    ],
)
def test_parameters_that_are_not_pythons_own_are_saved(tmp_path, name, value, wanted):
    """As they come out of a grid or an array; what is loaded decodes the same fields."""
    Y, F = np.random.default_rng(0).uniform(size=(20, 2)), np.random.default_rng(1).uniform(size=(20, 5))
    decoder = randsmap.KernelDecoder(**{"kernel": "matern", "nu": 2.5, name: value}).fit(Y, F)
    randsmap.persistence.save(decoder, tmp_path / "decoder.npz")
    again = randsmap.load(tmp_path / "decoder.npz")
    found = again.get_params()[name]
    assert type(found) is type(wanted) and np.all(np.asarray(found == wanted))
    np.testing.assert_array_equal(again.predict(Y), decoder.predict(Y))
    families = np.array(["gaussian"])
    found = randsmap.AutoDecoder(n_trials=1, families=families).fit(Y, F)
    randsmap.persistence.save(found, tmp_path / "auto.npz")
    assert randsmap.load(tmp_path / "auto.npz").families == ["gaussian"]


@pytest.mark.parametrize("kind", ["Series", "Index", "DataArray", "Float64"])
@pytest.mark.parametrize("name", ["cell_weights", "invariants", "bounds"])
def test_labelled_parameters_are_saved_as_arrays(path, kind, name):
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    F, w = fields(np.random.default_rng(0)), np.ones(fields(np.random.default_rng(0)).shape[1])
    made = {"DataArray": lambda w: xarray.DataArray(w, dims="x"), "Float64": lambda w: pandas.Series(w, dtype=kind)}
    w = made.get(kind, getattr(pandas, kind, None))(w)
    given = (None, w * 9) if name == "bounds" else w
    model = randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder(**{name: given})).fit(F)
    model.save(path)
    again = randsmap.load(path)
    assert type(again.decoder.get_params()[name][-1 if name == "bounds" else slice(None)]) is np.ndarray
    np.testing.assert_array_equal(again.reconstruct(F), model.reconstruct(F))
