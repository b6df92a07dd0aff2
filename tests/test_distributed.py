"""`randsmap.distributed`: dask arrays, chunk by chunk, give what one process gives."""

import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA

import randsmap
from randsmap import (
    POD,
    DiffusionMaps,
    FourierFeatures,
    KernelDecoder,
    KNNDecoder,
    ManifoldModel,
    RANDSMAPDecoder,
    RFNNDecoder,
    SigmoidFeatures,
)

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")
dask_distributed = pytest.importorskip("distributed")
from randsmap import distributed  # noqa: E402

N, M = 4_200, 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two worker processes; in them and here BLAS has one thread."""
    randsmap.set_num_threads(1)
    settings = {"temporary-directory": str(tmp_path_factory.mktemp("dask")), "distributed.worker.daemon": True}
    with dask.config.set(settings):
        with dask_distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster:
            with dask_distributed.Client(cluster) as client:
                yield client
    randsmap.set_num_threads(None)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    Y = rng.uniform(size=(N, 2))
    F = np.exp(-(((np.linspace(0, 1, M) - 0.3 - 0.4 * Y[:, :1]) / (0.2 + 0.2 * Y[:, 1:])) ** 2))
    F[:, :3] = 0
    return Y, F / F.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module", params=["zarr", "npy", "npy stack"])
def stored(request, data, tmp_path_factory):
    """The fields on disk, as a dask array; chunks that are no multiples of 1024 rows."""
    folder, F = tmp_path_factory.mktemp("fields"), data[1]
    if request.param == "zarr":
        pytest.importorskip("zarr")
        da.from_array(F, chunks=(700, 13)).to_zarr(str(folder / "F.zarr"))
        return da.from_zarr(str(folder / "F.zarr"))
    if request.param == "npy stack":
        da.to_npy_stack(str(folder / "stack"), da.from_array(F, chunks=(900, M)), axis=0)
        return da.from_npy_stack(str(folder / "stack"))
    np.save(folder / "a.npy", F[:2000])
    np.save(folder / "b.npy", F[2000:])
    return distributed.from_npy([folder / "a.npy", folder / "b.npy"], rows=555)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(distributed, "_FEWEST_ROWS", 1024)


def test_fit_has_the_bits_of_one_process(cluster, data, stored):
    Y, F = data
    decoder = RANDSMAPDecoder(SigmoidFeatures(5.0, n_features=40), bounds="nonnegative", random_state=0)
    whole = clone(decoder).fit(Y, F)
    assert whole.solver_ == "cholesky"
    for latents in (Y, da.from_array(Y, chunks=(1600, 1))):
        fitted = distributed.fit(clone(decoder), latents, stored)
        assert isinstance(fitted, RANDSMAPDecoder) and fitted.n_samples_seen_ == N
        assert np.array_equal(fitted.solve().coef_, whole.coef_)
        assert np.array_equal(fitted.constant_cells_, whole.constant_cells_) and fitted.constant_cells_[:3].all()
        assert np.array_equal(fitted.invariant_values_, whole.invariant_values_)
        assert np.array_equal(fitted.predict(Y[:99]), whole.predict(Y[:99]))
    fitted.partial_fit(Y[:10], F[:10])
    assert fitted.n_samples_seen_ == N + 10


@pytest.mark.parametrize("stored", ["zarr"], indirect=True)  # which has chunks along the cells, too
def test_transform_inverse_transform_and_score(cluster, data, stored):
    Y, F = data
    model = ManifoldModel(POD(3), RANDSMAPDecoder(SigmoidFeatures(2.0, n_features=50), random_state=0)).fit(F[:2000])
    latents = distributed.transform(model, stored)
    assert isinstance(latents, da.Array) and latents.shape == (N, 3)
    expected = model.transform(F)
    assert abs(latents.compute() - expected).max() <= 1e-12 * abs(expected).max()
    fields = distributed.inverse_transform(model, latents)
    assert fields.shape == (N, M) and len(fields.chunks[1]) == 1
    assert abs(fields.compute() - model.inverse_transform(expected)).max() < 1e-10
    assert distributed.score(model, stored) == pytest.approx(model.score(F), rel=1e-10)
    decoder = model.decoder_
    unsolved = distributed.fit(clone(decoder), Y, stored)
    assert distributed.score(unsolved, Y, stored) == pytest.approx(unsolved.score(Y, F), rel=1e-10)
    assert distributed.score(decoder, latents, stored) == pytest.approx(decoder.score(expected, F), rel=1e-10)
    one_cell = RFNNDecoder(FourierFeatures(0.5, n_features=30), random_state=0).fit(Y[:500], F[:500, 12])
    assert distributed.inverse_transform(one_cell, Y).compute() == pytest.approx(one_cell.predict(Y), abs=1e-12)
    assert distributed.score(one_cell, Y, stored[:, 12]) == pytest.approx(one_cell.score(Y, F[:, 12]), rel=1e-10)


@pytest.mark.parametrize("stored", ["zarr"], indirect=True)
def test_fit_model_has_an_encoder_of_fields_from_all_chunks(cluster, data, stored):
    _, F = data
    decoder = RANDSMAPDecoder(SigmoidFeatures(2.0, n_features=30), random_state=0)
    seen = []

    class Recording(PCA):
        def fit(self, X, y=None):
            seen.append(X)
            return super().fit(X)

    distributed.fit_model(ManifoldModel(Recording(2), None, encoder_samples=21), stored)
    rows = [int(np.flatnonzero((F == field).all(axis=1))[0]) for field in seen[0]]
    assert [row // 200 for row in rows] == list(range(21))
    model = ManifoldModel(DiffusionMaps(2), decoder, encoder_samples=200)
    assert distributed.fit_model(model, stored) is model
    latents = model.transform(F)
    assert model.decoder_.n_samples_seen_ == N and model.n_features_in_ == M
    assert abs(model.decoder_.predict(latents[:50]).sum(axis=1) - 1).max() < 1e-14
    assert distributed.score(model, stored) == pytest.approx(model.score(F), rel=1e-8)
    assert model.score(F) > -0.1
    own = distributed.fit_model(ManifoldModel(POD(4)), stored)
    assert own.decoder_ is None and own.score(F) == pytest.approx(distributed.score(own, stored), rel=1e-10)


def test_the_lines_for_a_cluster_run(cluster, data, tmp_path, monkeypatch, capsys):
    """With the processes here in place of a cluster of dask-jobqueue's."""
    pytest.importorskip("zarr")
    text = (Path(__file__).parents[1] / "docs" / "distributed.md").read_text()
    lines = re.search(r"```py\n(import dask.*?)```", text, re.DOTALL)[1]
    lines = lines.replace("n_features=500", "n_features=50").replace("encoder_samples=2000", "encoder_samples=200")
    monkeypatch.setitem(
        sys.modules, "dask_jobqueue", types.SimpleNamespace(SLURMCluster=lambda **options: cluster.cluster)
    )
    lines = re.sub(
        r'"/scratch/(\w+\.zarr)"', lambda name: repr(str(tmp_path / name[1])), lines
    )  # workers run in another folder
    monkeypatch.chdir(tmp_path)
    da.from_array(data[1], chunks=(1600, M)).to_zarr(str(tmp_path / "snapshots.zarr"))
    names = {}
    exec(lines, names)
    names["client"].close()
    assert -0.1 < float(capsys.readouterr().out) < 0
    decoded = da.from_zarr(str(tmp_path / "decoded.zarr")).compute()
    assert abs(decoded.sum(axis=1) - 1).max() < 1e-14
    assert np.array_equal(randsmap.load("model.npz").transform(data[1][:5]), names["model"].transform(data[1][:5]))


def test_threads_in_one_process(data):
    Y, F = data
    decoder = RFNNDecoder(FourierFeatures(0.5, n_features=30), random_state=0)
    with dask.config.set(scheduler="threads", num_workers=2):
        fitted = distributed.fit(clone(decoder), Y, da.from_array(F, chunks=(1700, M)))
    assert np.array_equal(fitted.solve().coef_, clone(decoder).fit(Y, F).coef_)


def test_fields_of_a_shape_have_the_bits_of_rows(data, tmp_path):
    Y, F = data
    of_shape = F.reshape(N, 5, 6)
    shaped, rows = da.from_array(of_shape, chunks=(1500, 2, 6)), da.from_array(F, chunks=(1500, M))
    new = RANDSMAPDecoder(FourierFeatures(0.5, n_features=20), cell_weights=np.ones((5, 6)), random_state=0)
    decoder = distributed.fit(clone(new), Y, shaped)
    plain = distributed.fit(clone(new).set_params(cell_weights=np.ones(M)), Y, rows)
    assert decoder.field_shape_ == (5, 6)
    assert np.array_equal(distributed.inverse_transform(decoder, Y).compute().reshape(N, M), plain.predict(Y))
    models = [
        distributed.fit_model(ManifoldModel(encoder(2), None), X) for encoder in (POD, PCA) for X in (shaped, rows)
    ]
    for model, flat in (models[:2], models[2:]):
        assert model.field_shape_ == (5, 6)
        latents = distributed.transform(model, shaped)
        # scikit-learn's last bits depend on where a worker has put the fields
        np.testing.assert_allclose(latents.compute(), distributed.transform(flat, rows).compute(), rtol=0, atol=1e-13)
        assert distributed.inverse_transform(model, latents).compute().shape == of_shape.shape
        assert abs(distributed.score(model, shaped) - distributed.score(flat, rows)) < 1e-12
    np.save(tmp_path / "F.npy", of_shape)
    assert np.array_equal(distributed.from_npy(tmp_path / "F.npy").compute(), of_shape)


def test_what_is_wrong_is_named_and_the_decoder_kept(data):
    Y, F = data
    fields = da.from_array(F, chunks=(1500, M))
    sigmoids = SigmoidFeatures(5.0, n_features=10)
    decoder = RANDSMAPDecoder(sigmoids, invariants="mass", random_state=0).fit(Y[:100], F[:100])
    before = decoder.coef_
    broken = F.copy()
    broken[4100] *= 2
    with dask.config.set(scheduler="sync"):
        for latents, wrong, message in (
            (Y, da.from_array(broken, chunks=(1500, M)), "rows 4096 to .*field 4 .*value 2"),
            (Y[:-1], fields, "same number of rows, got 4199 and 4200"),
            (Y[:, 0], fields, "2 dimensions"),
            (Y, fields[fields[:, 5] > 0.01], "compute_chunk_sizes"),
        ):
            with pytest.raises(ValueError, match=message):
                distributed.fit(decoder, latents, wrong)
            assert decoder.coef_ is before
        with pytest.raises(TypeError, match="as a dask array, got ndarray"):
            distributed.fit(decoder, Y, F)
        with pytest.raises(TypeError, match="can be merged"):
            distributed.fit(KernelDecoder(), Y, fields)
        with pytest.raises(TypeError, match="must be a ManifoldModel"):
            distributed.fit_model(randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(1))), fields)
        with pytest.raises(ValueError, match="got 'svd'"):
            distributed.fit(RFNNDecoder(solver="svd"), Y, fields)
        with pytest.raises(ValueError, match="same number of rows"):
            distributed.score(decoder, Y[1:], fields)


@pytest.mark.parametrize(
    "estimator",
    [RFNNDecoder(), RANDSMAPDecoder(), KernelDecoder(), KNNDecoder(), randsmap.AutoDecoder()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_plain_decoders_point_here(estimator, data):
    Y, F = (X[:50] for X in data)

    def loaded(block):
        raise AssertionError("loaded")

    lazy = da.from_array(F, chunks=(10, M)).map_blocks(loaded, meta=np.empty((0, 0)))
    lazy_latents = da.from_array(Y, chunks=(10, 2)).map_blocks(loaded, meta=np.empty((0, 0)))
    for X, y in ((Y, lazy), (lazy_latents, F), (lazy_latents, lazy)):
        with pytest.raises(TypeError, match="randsmap.distributed"):
            clone(estimator).fit(X, y)
    if hasattr(estimator, "fit_features"):
        with pytest.raises(TypeError, match="randsmap.distributed"):
            clone(estimator).fit_features(lazy_latents)
    fitted = clone(estimator).fit(Y, F)
    with pytest.raises(TypeError, match="randsmap.distributed"):
        fitted.predict(lazy_latents)


@pytest.mark.parametrize(
    "estimator",
    [DiffusionMaps(2), POD(2), ManifoldModel(POD(2), RFNNDecoder()), ManifoldModel(PCA(2), encoder_samples=20)],
    ids=lambda estimator: type(estimator).__name__,
)
def test_plain_encoders_and_models_point_here(estimator, data):
    F = data[1][:50]

    def loaded(block):
        raise AssertionError("loaded")

    lazy = da.from_array(F, chunks=(10, M)).map_blocks(loaded, meta=np.empty((0, 0)))
    for method in ("fit", "fit_transform"):
        with pytest.raises(TypeError, match="randsmap.distributed"):
            getattr(clone(estimator), method)(lazy)
    fitted = clone(estimator).fit(F)
    with pytest.raises(TypeError, match="randsmap.distributed"):
        fitted.transform(lazy)
    for function in (lambda X: randsmap.metrics.relative_l2(X, X),):
        with pytest.raises(TypeError, match="randsmap.distributed"):
            function(lazy)


@pytest.mark.slow
def test_mpi_example_has_the_bits_of_one_process():
    pytest.importorskip("mpi4py")
    mpiexec = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(mpiexec) if mpiexec.exists() else shutil.which("mpiexec")
    example = Path(__file__).parents[1] / "examples" / "mpi_fit.py"
    if mpiexec is None or not example.exists():
        pytest.skip("no mpiexec, or not a checkout")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RANDSMAP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # Open MPI's; others do not read them
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    run = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, str(example)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if run.returncode and "There are not enough slots" in run.stderr:
        pytest.skip("mpiexec starts no two processes here")
    assert run.returncode == 0, run.stderr
    assert "the bits of one process: True" in run.stdout


def test_a_search_among_some_rows_is_fitted_to_all(tmp_path, data):
    F, groups = data[1], np.arange(N) // 650  # the last group is smaller
    options = {"model": ManifoldModel(POD(2), RANDSMAPDecoder()), "n_trials": 2, "projection": 0, "n_samples": 80}
    options |= {"families": ["fourier", "gaussian"], "groups": groups, "random_state": 0}
    with dask.config.set(scheduler="sync"):
        result = randsmap.autotune(da.from_array(F, chunks=(1500, M)), **options)
    best = result.best_model_
    assert set(result.decoder_results_.family) == {"fourier"}  # a kernel takes no batches
    latents = best.transform(F)
    expected = clone(best.decoder_).fit(latents, F).predict(latents)
    np.testing.assert_allclose(best.decoder_.predict(latents), expected, rtol=0, atol=1e-6)
    assert best.decoder_.n_samples_seen_ == N and len(best.held_out_.rows) and best.held_out_.n_snapshots == N
    assert set(groups[best.held_out_.rows]) == set(range(7))  # each group has its share
    assert np.abs(best.reconstruct(F).sum(axis=1) - 1).max() < 1e-14
    np.save(tmp_path / "F.npy", F)
    of_file = randsmap.autotune(np.load(tmp_path / "F.npy", mmap_mode="r"), **options)
    assert set(of_file.decoder_results_.family) == {"fourier", "gaussian"}
    model, sample = of_file.best_model_, np.isin(np.arange(N), of_file.best_model_.held_out_.rows)
    assert sample.sum() == 80 and model.held_out_.n_snapshots == N
    again = clone(model.decoder_).fit(latents, F).predict(latents)  # of all rows
    np.testing.assert_allclose(model.decoder_.predict(latents), again, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="no decoder of the families k-nn"):
        randsmap.autotune(da.from_array(F, chunks=(3000, M)), **{**options, "families": "k-nn"})
    with pytest.raises(ValueError, match="n_samples"):
        randsmap.autotune(F, n_samples=2)


def test_a_search_for_a_decoder_is_fitted_to_all(data, monkeypatch):
    X, F = data
    monkeypatch.setattr(distributed, "one_of_each", lambda n: np.arange(0, n, n // 150))
    with dask.config.set(scheduler="sync"):
        auto = randsmap.AutoDecoder(n_trials=2, families=("fourier", "gaussian"), random_state=0)
        found = distributed.fit(auto, X, da.from_array(F, chunks=(3000, M)))
    assert found is auto and auto.families == ("fourier", "gaussian") and auto.best_decoder_.n_samples_seen_ == N
    expected = clone(auto.best_decoder_).fit(X, F).predict(X)
    np.testing.assert_allclose(auto.predict(X), expected, rtol=0, atol=1e-6)
    assert auto.chosen_invariants_ == "mass" and auto.held_out_error_ < 0.1
    assert (auto.freeze().predict(X[:1]) == auto.predict(X[:1])).all()


@pytest.mark.parametrize("shape", [(M,), (5, 6)])
def test_models_take_batches_with_the_encoder_of_the_first(data, shape):
    F = data[1][:400].reshape(400, *shape)
    model = ManifoldModel(POD(2), RANDSMAPDecoder(SigmoidFeatures(n_features=30), random_state=0))
    for rows in np.split(F, 4):
        assert model.partial_fit(rows) is model
    encoder = POD(2).fit(F[:100])
    features = clone(model.decoder).fit_features(encoder.transform(F[:100]))
    latents = encoder.transform(F)
    for rows, X in zip(np.split(F, 4), np.split(latents, 4)):
        features.partial_fit(X, rows)
    np.testing.assert_array_equal(model.inverse_transform(latents), features.predict(latents))
    assert model.decoder_.n_samples_seen_ == 400 and model.field_shape_ == shape
    with pytest.warns(UserWarning, match="comes from fit or a file, without sums of batches: partial_fit discards it"):
        again = clone(model).fit(F[:300]).partial_fit(F[300:])
    assert again.decoder_.n_samples_seen_ == 100
    assert not hasattr(ManifoldModel(POD(2)), "partial_fit")
    assert not hasattr(ManifoldModel(POD(2), KernelDecoder()), "partial_fit")
