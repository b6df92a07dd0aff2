"""Fields of any shape: their numbers are those of rows, and shape and labels come back as they were given."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.utils import get_tags

import randsmap
from randsmap import metrics
from randsmap._interface.fields import flattened
from randsmap._interface.labels import Labels
from randsmap.model._errors import cautions_in_words
from randsmap.persistence import save

N, NY, NX = 40, 4, 6
SHAPE = (NY, NX)
Y = np.random.default_rng(0).uniform(0.3, 0.7, (N, 2))


def bumps():
    """(n, ny, nx), of mass 1."""
    y, x = np.mgrid[0 : 1 : NY * 1j, 0 : 1 : NX * 1j]
    F = np.exp(-((x - Y[:, :1, None]) ** 2 + (y - Y[:, 1:, None]) ** 2) / 0.05)
    return F / F.sum(axis=(1, 2), keepdims=True)


F = bumps()
ROWS = F.reshape(N, -1)
KERNEL = randsmap.KernelDecoder(length_scale=1.0, invariants="mass")
DECODERS = {
    "random features": randsmap.RANDSMAPDecoder(random_state=0),
    "without invariants": randsmap.RFNNDecoder(random_state=0),
    "bounds": randsmap.RANDSMAPDecoder(bounds="nonnegative", random_state=0),
    "modes": randsmap.RANDSMAPDecoder(output_rank=5, random_state=0),
    "kernel": KERNEL,
    "harmonics": randsmap.DoubleDiffusionMapsDecoder(rank=8),
    "k-NN": randsmap.KNNDecoder(3),
    "blend": randsmap.BlendedDecoder([randsmap.KernelDecoder(), randsmap.KNNDecoder(3)], invariants="mass"),
    "auto": randsmap.AutoDecoder(n_trials=3),
    "conservative": randsmap.ConservativeRegressor(Ridge()),
}
MODELS = {
    "diffusion maps": randsmap.ManifoldModel(randsmap.DiffusionMaps(2), KERNEL),
    "POD alone": randsmap.ManifoldModel(randsmap.POD(3)),
    "some of the fields": randsmap.ManifoldModel(randsmap.POD(2), KERNEL, encoder_samples=20),
    "k-NN through the encoder": randsmap.ManifoldModel(
        randsmap.DiffusionMaps(2), randsmap.KNNDecoder(3, objective="encoder")
    ),
    "scikit-learn's encoder": randsmap.ManifoldModel(PCA(2), KERNEL),
    "scikit-learn's decoder": randsmap.ManifoldModel(randsmap.POD(2), Ridge()),
    "scikit-learn alone": randsmap.ManifoldModel(PCA(2)),
    "shift": randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2))),
}


def same(shaped, rows):
    """Whether an array is that of rows, in the shape of the fields."""
    assert shaped.shape == (len(rows), *SHAPE, *rows.shape[2:])
    return np.array_equal(shaped.reshape(rows.shape), rows)


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_decoders_return_the_shape_with_the_bits_of_rows(decoder):
    shaped, rows = clone(decoder).fit(Y, F), clone(decoder).fit(Y, ROWS)
    assert shaped.field_shape_ == SHAPE and rows.field_shape_ == (NY * NX,)
    for X in (Y, Y[:1]):
        assert same(shaped.predict(X), rows.predict(X))
    assert shaped.score(Y, F) == shaped.score(Y, ROWS) == rows.score(Y, ROWS)
    for shape in (F.shape, ROWS.shape):  # fields may go to rows, too
        out = np.empty(shape)
        assert shaped.predict(Y, out=out) is out and np.array_equal(out.reshape(N, -1), rows.predict(Y))
    mask = np.zeros(SHAPE, bool)
    mask[1, 2] = mask[3, 0] = True
    expected = rows.predict(Y, cells=[NX + 2, 3 * NX])
    for cells in (mask, mask.ravel(), [NX + 2, 3 * NX]):
        assert np.array_equal(shaped.predict(Y, cells=cells), expected)
    for again in (pickle.loads(pickle.dumps(shaped)), copy.deepcopy(shaped)):
        assert same(again.predict(Y), rows.predict(Y))
    assert shaped.fit(Y, ROWS).field_shape_ == (NY * NX,)  # nothing is left of the first fit


@pytest.mark.parametrize("decoder", [DECODERS[name] for name in ("random features", "bounds", "kernel", "harmonics")])
def test_derivatives_have_the_shape(decoder):
    shaped, rows = clone(decoder).fit(Y, F), clone(decoder).fit(Y, ROWS)
    assert same(shaped.jacobian(Y), rows.jacobian(Y))
    out = np.empty((N, *SHAPE, 2))
    assert shaped.jacobian(Y, out=out) is out and same(out, rows.jacobian(Y))
    assert same(shaped.jvp(Y, [1.0, 2.0]), rows.jvp(Y, [1.0, 2.0]))
    for U, flat in ((F, ROWS), (F[0], ROWS[0]), (ROWS, ROWS), (ROWS[0], ROWS[0])):
        assert np.array_equal(shaped.vjp(Y, U), rows.vjp(Y, flat))
    # of a few cells, what looks like a field is a batch
    assert np.array_equal(shaped.vjp(Y[:NY], F[0], cells=range(NX)), rows.vjp(Y[:NY], F[0], cells=range(NX)))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_models_return_the_shape_with_the_bits_of_rows(model, tmp_path):
    flat = clone(model).set_params(**({"shape": SHAPE} if hasattr(model, "shape") else {})).fit(ROWS)
    shaped = clone(model).fit(F)
    assert shaped.field_shape_ == SHAPE
    latents = shaped.transform(F)
    assert np.array_equal(latents, flat.transform(ROWS)) and np.array_equal(latents, shaped.transform(ROWS))
    assert same(np.asarray(shaped.reconstruct(F)), np.asarray(flat.reconstruct(ROWS)))
    assert same(shaped.inverse_transform(latents[:0]), np.empty((0, NY * NX)))
    assert same(shaped.inverse_transform(latents, consistency=1), flat.inverse_transform(latents, consistency=1))
    assert shaped.score(F) == flat.score(ROWS)
    if "scikit" not in str(model) and not any(isinstance(p, (PCA, Ridge)) for p in model.get_params().values()):
        for shape in (F.shape, ROWS.shape):
            out = np.empty(shape)
            assert shaped.inverse_transform(latents, out=out) is out
        shaped.save(tmp_path / "m.npz")
        loaded = randsmap.load(tmp_path / "m.npz")
        assert loaded.field_shape_ == SHAPE
        assert same(loaded.inverse_transform(latents), flat.inverse_transform(latents))
    if hasattr(shaped, "jacobian"):
        assert same(shaped.jacobian(latents), flat.jacobian(latents))
        assert np.array_equal(shaped.vjp(latents, F), flat.vjp(latents, ROWS))
        of_cells = [each.vjp(latents[:NY], F[0], cells=range(NX)) for each in (shaped, flat)]
        assert np.array_equal(*of_cells)
    if hasattr(shaped, "jvp"):
        assert same(shaped.jvp(latents, latents), flat.jvp(latents, latents))


@pytest.mark.parametrize("encoder", [randsmap.DiffusionMaps(2), randsmap.POD(2)], ids=["diffusion maps", "POD"])
def test_derivatives_of_encoders_have_the_shape(encoder):
    shaped, rows = clone(encoder).fit(F), clone(encoder).fit(ROWS)
    latents = shaped.transform(F)
    for V, flat in ((F, ROWS), (F[0], ROWS[0])):
        assert np.array_equal(shaped.jvp(F, V), rows.jvp(ROWS, flat))
    assert same(shaped.vjp(F, latents), rows.vjp(ROWS, latents))
    assert shaped.jacobian(F).shape == (N, 2, *SHAPE)
    assert np.array_equal(shaped.jacobian(F).reshape(N, 2, -1), rows.jacobian(ROWS))
    if hasattr(shaped, "squared_distances"):
        assert np.array_equal(shaped.squared_distances(F), rows.squared_distances(ROWS))
    else:
        assert same(shaped.inverse_jacobian(latents), rows.inverse_jacobian(latents))
        assert same(shaped.inverse_jvp(latents, latents), rows.inverse_jvp(latents, latents))
        assert np.array_equal(shaped.inverse_vjp(latents, F), rows.inverse_vjp(latents, ROWS))


def test_parameters_of_cells_may_have_the_shape():
    volumes = np.random.default_rng(1).uniform(0.5, 1, SHAPE)
    weighted = F / (F * volumes).sum(axis=(1, 2), keepdims=True)
    upper = np.full(SHAPE, 2.0)
    C = np.stack([np.ones(SHAPE), volumes**0 * 2], axis=-1)
    for options, data in (
        ({"cell_weights": volumes, "bounds": (np.zeros(SHAPE), upper)}, weighted),
        ({"bounds": (None, upper)}, F),
        ({"invariants": C}, F),
        ({"invariants": np.ones(SHAPE)}, F),
    ):
        flat = {
            "cell_weights": lambda w: w.ravel(),
            "bounds": lambda pair: tuple(None if b is None else b.ravel() for b in pair),
            "invariants": lambda C: C.reshape(NY * NX, -1),
        }
        as_rows = {name: flat[name](value) for name, value in options.items()}
        decoder = randsmap.RANDSMAPDecoder(random_state=0)
        expected = clone(decoder).set_params(**as_rows).fit(Y, data.reshape(N, -1)).predict(Y)
        for given in (options, as_rows):
            assert same(clone(decoder).set_params(**given).fit(Y, data).predict(Y), expected)
        pod = randsmap.POD(2).set_params(**options).fit(data)
        assert pod.inverse_transform(pod.transform(data)).shape == data.shape
        found = randsmap.AutoDecoder(n_trials=2).set_params(**options).fit(Y, data)
        assert found.predict(Y).shape == data.shape
    for decoder in (randsmap.RANDSMAPDecoder(cell_weights=volumes), randsmap.KernelDecoder(cell_weights=volumes)):
        judged = randsmap.leave_one_out(decoder.set_params(regularization=1e-3), Y, weighted).errors_
        rows = decoder.set_params(cell_weights=volumes.ravel())
        assert judged.shape == randsmap.leave_one_out(rows, Y, weighted.reshape(N, -1)).errors_.shape
    for wrong in (volumes.T, volumes[None], volumes[:2]):
        with pytest.raises(
            ValueError, match=r"cell_weights must have one value per cell, of shape \(4, 6\) as the fields"
        ):
            randsmap.RANDSMAPDecoder(cell_weights=wrong).fit(Y, F)
    with pytest.raises(
        ValueError, match=r"of shape \(n_cells,\) as the fields, got shape \(4, 6\). Reshape .*reshape\(-1\)"
    ):
        randsmap.RANDSMAPDecoder(cell_weights=volumes).fit(Y, ROWS)
    bounded = randsmap.project_bounds(F - 0.01, upper=upper, weights=volumes, total=0.5)
    assert same(bounded, randsmap.project_bounds(ROWS - 0.01, upper=upper.ravel(), weights=volumes.ravel(), total=0.5))


@pytest.mark.parametrize(
    "estimator", [MODELS["diffusion maps"], randsmap.DiffusionMaps(2), randsmap.POD(2), MODELS["shift"]]
)
def test_errors_tell_the_reshape(estimator):
    shaped, rows = clone(estimator).fit(F), clone(estimator).fit(ROWS)
    for X, message in (
        (
            F.transpose(0, 2, 1),
            r"X must have shape \(n_samples, 4, 6\), as in fit, got \(40, 6, 4\).*reshape\(40, 4, 6\)",
        ),
        (F[:, :2], r"X must have shape \(n_samples, 4, 6\), as in fit, got \(40, 2, 6\)$"),
        (F[None], r"got \(1, 40, 4, 6\)"),
        (F[0], r"X is one field of shape \(4, 6\).*X\[None\]"),
        (ROWS[:, 1:], "23"),
    ):
        with pytest.raises(ValueError, match=message):
            shaped.transform(X)
    with pytest.raises(ValueError, match=r"\(n_samples, n_cells\), as in fit, got \(40, 4, 6\).*reshape\(40, -1\)"):
        rows.transform(F)
    with pytest.raises(ValueError, match="finite"):
        clone(estimator).fit(np.where(F > F.mean(), np.nan, F))


def test_batches_are_of_one_shape():
    features = randsmap.SigmoidFeatures(3.0, n_features=9, latent_box=(0.0, 1.0))
    decoder = randsmap.RANDSMAPDecoder(features, latent_scale=None, cell_weights=np.ones(SHAPE), random_state=0)
    one = clone(decoder).partial_fit(Y, F)
    two = clone(decoder).partial_fit(Y[:20], F[:20]).partial_fit(Y[20:], ROWS[20:])
    assert np.array_equal(one.predict(Y), two.predict(Y)) and two.field_shape_ == SHAPE
    with pytest.raises(ValueError, match=r"y must have shape \(n_samples, 4, 6\)"):
        two.partial_fit(Y, F.transpose(0, 2, 1))
    other = clone(decoder).partial_fit(Y, F)
    assert two.merge(other).predict(Y).shape == F.shape
    flat = clone(decoder).set_params(cell_weights=None)
    with pytest.raises(ValueError, match="differ in the shape of the fields"):
        clone(flat).partial_fit(Y, F).merge(clone(flat).partial_fit(Y, ROWS))


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_images_keep_the_shape(tmp_path, precision):
    decoder = randsmap.RANDSMAPDecoder(regularization=0.1, random_state=0)
    frozen = clone(decoder).fit(Y, F).freeze(precision=precision)
    frozen.save(tmp_path / "d.rsm")
    rows = clone(decoder).fit(Y, ROWS).freeze(precision=precision)
    assert rows.field_shape_ == (NY * NX,)
    for image in (frozen, randsmap.load(tmp_path / "d.rsm"), pickle.loads(pickle.dumps(frozen))):
        assert image.field_shape_ == SHAPE
        for X in (Y, Y[:2]):
            assert same(image.predict(X), rows.predict(X))
        for shape in (F.shape, ROWS.shape):
            out = np.empty(shape)
            assert image.predict(Y, out=out) is out and np.array_equal(out.reshape(N, -1), rows.predict(Y))
        assert same(image.jacobian(Y), rows.jacobian(Y)) and same(image.jvp(Y, [1.0, 0]), rows.jvp(Y, [1.0, 0]))
        assert np.array_equal(image.vjp(Y, F[0]), rows.vjp(Y, ROWS[0]))
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder).fit(F).freeze(precision=precision)
    latents = model.transform(F)
    assert np.array_equal(latents, model.transform(ROWS)) and model.inverse_transform(latents).shape == F.shape
    with pytest.raises(ValueError, match=r"as in fit, got \(40, 6, 4\)"):
        model.transform(F.transpose(0, 2, 1))


def test_a_forged_shape_in_an_image_is_refused():
    from randsmap._kernels import linear_map as kernel
    from randsmap.maps import frozen as _frozen

    whole = randsmap.RANDSMAPDecoder(random_state=0).fit(Y, F).freeze()
    image = np.frombuffer(bytes(whole.linear_map.kernel.source), np.uint8)
    count = int(image[:64].view(_frozen._HEADER)["n_sections"][0])
    sections = image[64 : 64 + count * _frozen._SECTION.itemsize].view(_frozen._SECTION)
    (section,) = sections[sections["id"] == kernel.SECTIONS["field_shape"]]
    for shape in ((3, 6), (-4, -6), (24, 1 << 40)):
        forged = image.copy()
        forged[section["offset"] : section["offset"] + 16].view(np.int64)[:] = shape
        header = forged[:64].view(_frozen._HEADER)
        header["checksum"] = kernel.checksum(forged)
        with pytest.raises(ValueError, match="do not have the shape"):
            randsmap.FrozenDecoder(forged)


def test_searches_give_models_of_the_shape():
    grid = {"regularization": [1e-6, 1e-3]}
    for decoder in (randsmap.RANDSMAPDecoder(random_state=0), KERNEL, randsmap.ConservativeRegressor(Ridge())):
        names = {f"estimator__{k}" if hasattr(decoder, "estimator") else k: v for k, v in grid.items()}
        names = {k.replace("regularization", "alpha") if "__" in k else k: v for k, v in names.items()}
        shaped = randsmap.tune(decoder, names, Y[::2], F[::2], Y[1::2], F[1::2])
        rows = randsmap.tune(decoder, names, Y[::2], ROWS[::2], Y[1::2], ROWS[1::2])
        assert np.array_equal(shaped.sample_errors_, rows.sample_errors_) and shaped.best_decoder_.field_shape_ == SHAPE
    few = randsmap.tune(KERNEL, {"length_scale": [0.3, 1.0, 3.0, 9.0] * 3}, Y[:4], F[:4], Y[4:8], F[4:8])
    assert few.evaluation_ == "coefficients" and few.best_decoder_.predict(Y).shape == F.shape
    for model in (MODELS["diffusion maps"], randsmap.ManifoldModel(PCA(2), Ridge())):
        found = randsmap.tune(model, {"encoder__n_components": [1, 2]}, None, F[::2], None, F[1::2])
        assert found.best_decoder_.reconstruct(F).shape == F.shape
    shaped, rows = (
        randsmap.autotune(X, model=MODELS["POD alone"], n_trials=2, families="gaussian", random_state=0)
        for X in (F, ROWS)
    )
    assert shaped.held_out_error_ == rows.held_out_error_
    model = shaped.best_model_
    assert model.field_shape_ == model.encoder_.field_shape_ == model.decoder_.field_shape_ == SHAPE
    assert same(model.reconstruct(F), rows.best_model_.reconstruct(ROWS))


def test_models_of_parameters_and_sampled_models():
    model = randsmap.ParametricModel(MODELS["diffusion maps"], randsmap.KernelDecoder()).fit(Y, F)
    rows = randsmap.ParametricModel(MODELS["diffusion maps"], randsmap.KernelDecoder()).fit(Y, ROWS)
    assert model.field_shape_ == SHAPE and same(model.predict(Y), rows.predict(Y))
    decoder, flat = clone(KERNEL).fit(Y, F), clone(KERNEL).fit(Y, ROWS)
    cells = randsmap.sample_cells(decoder, Y, 6)
    assert np.array_equal(cells, randsmap.sample_cells(flat, Y, 6))
    rates = [randsmap.SampledModel(part, lambda t, f: f - 1, cells).velocity(0.0, Y[0]) for part in (decoder, flat)]
    assert np.array_equal(*rates)


def test_metrics_take_fields_of_any_shape():
    other = F + 0.01
    for metric in (metrics.relative_l2, metrics.relative_linf, metrics.scaled_l2, metrics.conservation_error):
        expected = metric(ROWS, other.reshape(N, -1))
        assert np.array_equal(metric(F, other), expected) and np.array_equal(metric(F, other.reshape(N, -1)), expected)
        with pytest.raises(ValueError, match=r"same shape, got fields of shape \(4, 6\) and \(6, 4\)"):
            metric(F, other.transpose(0, 2, 1))
    C = np.arange(NY * NX)
    of_rows = metrics.conservation_error(ROWS, other.reshape(N, -1), invariants=C)
    assert np.array_equal(metrics.conservation_error(F, other, invariants=C), of_rows)


def test_scikit_learn_is_told():
    for name, estimator in {**MODELS, "POD": randsmap.POD(2), "maps": randsmap.DiffusionMaps(2)}.items():
        assert get_tags(estimator).input_tags.three_d_array, name
    assert not get_tags(KERNEL).input_tags.three_d_array


def test_one_cell_and_lists_stay_as_they_were():
    single = randsmap.KernelDecoder().fit(Y, ROWS[:, 3])
    assert single.field_shape_ == () and single.predict(Y).shape == (N,)
    assert randsmap.KernelDecoder().fit(Y, F.tolist()).predict(Y).shape == F.shape
    with pytest.raises(AttributeError):
        randsmap.KernelDecoder().field_shape_  # noqa: B018


def test_maps_of_files_are_not_copied(tmp_path):
    np.save(tmp_path / "F.npy", F)
    mapped = np.load(tmp_path / "F.npy", mmap_mode="r")
    columns = np.moveaxis(np.lib.format.open_memmap(tmp_path / "G.npy", "w+", float, (NY, NX, N)), -1, 0)
    for X in (mapped, columns):
        rows, layout = flattened(X, "X")
        assert np.shares_memory(rows, X) and rows.shape == (N, NY * NX) and layout.shape == SHAPE


# -- xarray --------------------------------------------------------------------------------------------
@pytest.fixture
def labelled():
    xarray = pytest.importorskip("xarray")
    y, x = np.linspace(0, 1, NY), np.linspace(0, 2, NX)
    return xarray.DataArray(
        F,
        dims=("time", "y", "x"),
        name="density",
        attrs={"units": "kg", "n": np.int64(3), "range": np.array([0.0, 1.0]), "made": np.datetime64("2020-01-01")},
        coords={
            "time": np.arange("2020-01", "2023-05", dtype="datetime64[M]").astype("datetime64[ns]"),
            "step": ("time", np.arange(N)),
            "x": ("x", x, {"units": "m"}),
            "distance": (("y", "x"), np.hypot(*np.meshgrid(y, x, indexing="ij"))),
            "name": ("y", ["a", "b", "c", "dd"]),
            "start": np.datetime64("2020-01-01", "ns"),
            "height": 2.5,
        },
    )


def of_field(X):
    """What a DataArray of decoded fields is to have of the one that was given."""
    part = X.drop_vars(["time", "step"])
    part.attrs = {"units": "kg", "n": 3, "range": [0.0, 1.0], "made": "2020-01-01"}
    return part


@pytest.mark.parametrize("name", ["diffusion maps", "POD alone", "scikit-learn alone", "shift"])
def test_models_give_back_coordinates(labelled, tmp_path, name):
    model, plain = clone(MODELS[name]).fit(labelled), clone(MODELS[name]).fit(F)
    latents = model.transform(labelled)
    assert type(latents) is np.ndarray and np.array_equal(latents, plain.transform(F))
    fields = model.inverse_transform(latents)
    assert fields.identical(of_field(labelled).copy(data=np.asarray(plain.inverse_transform(latents))))
    again = model.reconstruct(labelled)  # keeps its own, those of the samples and the attributes too
    assert again.identical(labelled.copy(data=np.asarray(fields)))
    assert plain.reconstruct(labelled).identical(again)
    assert model.inverse_transform(latents[:0]).shape == (0, *SHAPE)
    assert model.score(labelled) == plain.score(F)
    restored = [pickle.loads(pickle.dumps(model))]
    if "scikit" not in name:
        assert type(model.inverse_transform(latents, cells=[1])) is np.ndarray
        out = np.empty(F.shape)
        assert model.inverse_transform(latents, out=out) is out
        model.save(tmp_path / "m.npz")
        restored.append(randsmap.load(tmp_path / "m.npz"))
    for other in restored:
        assert other.inverse_transform(latents).identical(fields)
    with pytest.raises(TypeError, match="is an xarray Dataset: give one of its variables"):
        model.transform(labelled.to_dataset())


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_decoders_give_back_coordinates(labelled, tmp_path, decoder):
    fitted = clone(decoder).fit(Y, labelled)
    fields = fitted.predict(Y)
    plain = clone(decoder).fit(Y, F)
    assert fields.identical(of_field(labelled).copy(data=plain.predict(Y)))
    assert fitted.score(Y, labelled) == plain.score(Y, F)
    if "Conservative" not in str(decoder):
        save(fitted, tmp_path / "d.npz")
        assert randsmap.load(tmp_path / "d.npz").predict(Y).identical(fields)


@pytest.mark.parametrize("name", ["diffusion maps", "POD alone"])
def test_the_axes_of_fit_in_another_order_are_refused(name):
    """On a square grid shapes cannot tell."""
    xarray = pytest.importorskip("xarray")
    fields = F.reshape(len(F), -1)[:, :9]
    fields = (fields / fields.sum(axis=1, keepdims=True)).reshape(-1, 3, 3)
    square = xarray.DataArray(fields, dims=("time", "y", "x"))
    model = clone(MODELS[name]).fit(square)
    expected = model.transform(square)
    for same in (square.rename(time="run"), square.rename(y="lat", x="lon"), square.values):
        np.testing.assert_array_equal(model.transform(same), expected)
    for other in (square.transpose("time", "x", "y"), square[:3].transpose("y", "x", "time")):
        for method in (model.transform, model.reconstruct, model.score):
            with pytest.raises(ValueError, match=r"those of fit were \('time', 'y', 'x'\): transpose it"):
                method(other)


def test_cells_that_lie_elsewhere_than_in_fit_are_refused():
    """Latitudes that run the other way have the right shape and the wrong cells."""
    xarray = pytest.importorskip("xarray")
    x = np.linspace(10.0, 20.0, F.reshape(len(F), -1).shape[1])
    fields = xarray.DataArray(F.reshape(len(F), -1), dims=("time", "x"), coords={"x": x, "time": np.arange(len(F))})
    model = clone(MODELS["POD alone"]).fit(fields)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in (fields[:3], fields.assign_coords(x=x * (1 + 1e-8)), fields.drop_vars("x"), fields.values):
            model.transform(same)
    for other, labels in ((fields[:, ::-1], "20.0 at place 0"), (fields.assign_coords(x=x + 0.1), "10.1 at place 0")):
        with pytest.raises(ValueError, match=f"other labels along 'x' than the fields of fit, {labels} instead of 10"):
            model.transform(other)


def coordinates():
    """Labels of 24 cells of every kind that xarray and pandas have, by name."""
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2020-01-01", periods=24)
    product = pandas.MultiIndex.from_product([[3.0, 2.0, 1.0], list("abcdefgh")], names=["lat", "site"])
    return {
        "numbers": np.arange(24) * 0.5 - 3,
        "integers": 10**9 + np.arange(24),  # float32 cannot tell these
        "names": [f"S{i}" for i in range(24)],
        "dates": days,
        "durations": days - days[0],
        "dates of a zone": days.tz_localize("Europe/Berlin"),
        "periods": pandas.period_range("2020-01", periods=24, freq="M"),
        "categories": pandas.CategoricalIndex(list("abcdefghijkl") * 2),
        "levels": product,
        "intervals": pandas.interval_range(0.0, 24.0, periods=24, closed="left"),
        "masked integers": pandas.Index([5, 3, None, *range(10, 31)], dtype="Int64"),
        "truth values": pandas.Index([True, False, True, True] * 6, dtype="boolean"),
        "ordered categories": pandas.CategoricalIndex(list("ab") * 12, categories=list("cba"), ordered=True),
        "missing categories": pandas.CategoricalIndex([None, "a"] * 12),
        "levels of intervals": pandas.MultiIndex.from_arrays([pandas.interval_range(0, 24), np.arange(24)]),
        "levels of dates": pandas.MultiIndex.from_arrays([days, np.arange(24)], names=["day", "number"]),
    }


def with_labels(index, dim="cell"):
    import pandas
    import xarray

    is_product = isinstance(index, pandas.MultiIndex)
    coords = xarray.Coordinates.from_pandas_multiindex(index, dim) if is_product else {dim: index}
    return xarray.DataArray(ROWS, dims=("time", dim), coords=coords, name="u").assign_coords(time=np.arange(N))


KINDS = (
    "numbers, integers, names, dates, durations, dates of a zone, periods, categories, levels, levels of dates, "
    "intervals, masked integers, truth values, ordered categories, missing categories, levels of intervals"
)


@pytest.mark.parametrize("kind", [*KINDS.split(", "), "dates of a calendar"])
def test_labels_of_every_kind_survive_and_are_compared(tmp_path, kind):
    xarray = pytest.importorskip("xarray")
    if kind == "dates of a calendar":
        pytest.importorskip("cftime")
        index = xarray.date_range("2000-02-27", periods=24, calendar="noleap", use_cftime=True)
    else:
        index = coordinates()[kind]
    X = with_labels(index)
    model = clone(MODELS["POD alone"]).fit(X)
    model.save(tmp_path / "m.npz")
    latents = model.transform(X)
    for other in (model, pickle.loads(pickle.dumps(model)), randsmap.load(tmp_path / "m.npz")):
        fields = other.inverse_transform(latents)
        assert fields.identical(X.drop_vars("time").copy(data=fields.values))
        assert type(fields.indexes["cell"]) is type(X.indexes["cell"])
        assert fields.indexes["cell"].dtype == X.indexes["cell"].dtype
        if "levels" in kind:
            assert fields.unstack("cell").identical(X.drop_vars("time").copy(data=fields.values).unstack("cell"))
        np.testing.assert_array_equal(other.transform(X), latents)
        swapped = np.arange(24)
        swapped[[0, 1]] = 1, 0
        with pytest.raises(ValueError, match="X has other labels along '.*' than the fields of fit, .* at place 0"):
            other.transform(X[:, swapped])
        with pytest.raises(ValueError, match="U has other labels along"):
            other.vjp(latents[:2], X[:2, swapped])


def test_dates_of_another_unit_and_rows_of_stacked_axes_are_the_same(labelled):
    xarray = pytest.importorskip("xarray")
    X = with_labels(coordinates()["dates"].as_unit("ns"))
    model = clone(MODELS["POD alone"]).fit(X)
    np.testing.assert_array_equal(model.transform(with_labels(coordinates()["dates"].as_unit("s"))), model.transform(X))
    grid = xarray.DataArray(F, dims=("time", "y", "x"), coords={"y": list("abcd"), "x": np.arange(NX)})
    model = clone(MODELS["POD alone"]).fit(grid)
    rows = grid.stack(cell=("y", "x"))
    np.testing.assert_array_equal(model.transform(rows), model.transform(grid))
    for other in (rows[:, ::-1], grid.stack(cell=("x", "y"))):
        with pytest.raises(ValueError, match="other labels along '[xy]' than the fields of fit"):
            model.transform(other)
    # one value that all cells share, and what was measured beside an index, need not be the same
    labelled = labelled.assign_coords(y=np.arange(NY))
    other = labelled.assign_coords(start=np.datetime64("2021-01-01", "ns"), distance=labelled.distance + 1)
    model = clone(MODELS["POD alone"]).fit(labelled)
    np.testing.assert_array_equal(model.transform(other), model.transform(labelled))


def test_equal_labels_of_other_types_are_equal_and_missing_ones_only_each_other():
    X = with_labels(np.arange(24))
    model = clone(MODELS["POD alone"]).fit(X)
    np.testing.assert_array_equal(model.transform(X.assign_coords(cell=np.arange(24.0))), model.transform(X))
    for last in (np.nan, np.inf):
        X = with_labels(np.r_[np.arange(23.0), last])
        model = clone(MODELS["POD alone"]).fit(X)
        np.testing.assert_array_equal(model.transform(X), model.transform(ROWS))
        for other in (X[:, ::-1], X.assign_coords(cell=np.r_[np.arange(23.0), 23.0])):
            with pytest.raises(ValueError, match="X has other labels along 'cell'"):
                model.transform(other)


def test_cells_are_compared_however_axes_are_stacked_and_coordinates_kept():
    """Stacked axes, their coordinates without an index (as in netCDF files), and axes of other names."""
    xarray = pytest.importorskip("xarray")
    y = np.linspace(-40, 40, NY)
    grid = xarray.DataArray(F, dims=("time", "y", "x"), coords={"y": y, "x": np.linspace(0, 90, NX)})
    rows = grid.stack(cell=("y", "x"))
    renamed = xarray.DataArray(F, dims=("time", "j", "i"), coords={"y": ("j", y)})
    reversed_rows = grid[:, ::-1].stack(cell=("y", "x"))
    for fields, same, wrong in (
        (grid, rows, reversed_rows),
        (grid, rows.reset_index("cell"), reversed_rows.reset_index("cell")),
        (rows, rows.reset_index("cell"), rows[:, ::-1].reset_index("cell")),
        (grid, renamed, renamed.assign_coords(y=("j", y[::-1]))),
        (grid, grid.variable, grid.variable.transpose("time", "x", "y")),
        (grid.variable, grid, grid.transpose("time", "x", "y")),
    ):
        model = clone(MODELS["diffusion maps"]).fit(fields)
        latents = model.transform(fields)
        np.testing.assert_array_equal(model.transform(same), latents)
        flat = wrong[0] if wrong.ndim == 2 else wrong[:1]
        weighted = randsmap.KernelDecoder(cell_weights=wrong[0])
        for call, *given in (
            (model.transform, wrong),
            (model.vjp, latents[:1], flat),
            (metrics.relative_l2, fields, wrong),
            (weighted.fit, Y, fields),
        ):
            with pytest.raises(ValueError, match="has other labels along '[xy]'|has the dimens|(have|of) shape"):
                call(*given)


def test_lists_of_labelled_arrays_are_refused(labelled):
    for parts in (list(labelled.transpose("time", "x", "y")), tuple(labelled.variable), [labelled[0], F[1]]):
        with pytest.raises(TypeError, match="X is a .* of labelled arrays, .*: give one array, from xarray.concat"):
            randsmap.POD(2).fit(parts)


def test_labels_that_are_bytes_come_back_as_their_text():
    X = with_labels(np.array([f"S{i}" for i in range(24)], "S3"))
    model = clone(MODELS["POD alone"]).fit(X)
    assert list(model.inverse_transform(model.transform(X)).cell.values) == [f"S{i}" for i in range(24)]
    assert len(model.transform(X.assign_coords(cell=X.cell.astype(str)))) == N


def test_one_date_of_a_calendar_is_saved(tmp_path):
    cftime, X = pytest.importorskip("cftime"), with_labels(np.arange(24))
    X = X.assign_coords(when=cftime.DatetimeNoLeap(2000, 2, 28))
    clone(MODELS["POD alone"]).fit(X).save(tmp_path / "m.npz")
    assert randsmap.load(tmp_path / "m.npz").inverse_transform(np.zeros((1, 3))).when.item() == X.when.item()


def test_values_and_directions_of_samples_in_another_order_are_refused():
    """By models too, whose parts are given latents without labels."""
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    varying, index = ROWS * np.linspace(1, 2, N)[:, None], [f"r{i}" for i in range(N)]
    decoder = randsmap.KernelDecoder(invariants="mass", invariant_tol=1.0)
    model = randsmap.ManifoldModel(randsmap.POD(2), decoder).fit(varying)
    latents = pandas.DataFrame(model.transform(varying), index, model.get_feature_names_out())
    parametric = randsmap.ParametricModel(model, randsmap.KernelDecoder()).fit(pandas.Series(Y[:, 0], index), varying)
    mass = pandas.Series(varying.sum(axis=1), index)
    labelled = pandas.DataFrame(latents).rename_axis("index").to_xarray().to_dataarray("latent").T
    for call, X in ((model.inverse_transform, latents), (parametric.predict, pandas.Series(Y[:, 0], index))):
        np.testing.assert_allclose(call(X, invariant_values=mass).sum(axis=1), mass)
        with pytest.raises(ValueError, match="invariant_values has other labels along 'index' than "):
            call(X, invariant_values=mass[::-1])
    with pytest.raises(ValueError, match="invariant_values has other labels along 'index' than X"):
        model.inverse_transform(labelled, invariant_values=mass[::-1], consistency=1)
    for part in (model, model.decoder_):
        with pytest.raises(ValueError, match="V has other labels along 'index' than X"):
            part.jvp(latents, latents[::-1])


LATENT_PARAMETERS = {
    "length_scale": lambda s: randsmap.KernelDecoder(length_scale=s),
    "latent_scale": lambda s: randsmap.KNNDecoder(3, latent_scale=s),
    "length_scale of a part": lambda s: randsmap.BlendedDecoder([randsmap.KernelDecoder(length_scale=s)]),
    "features__length_scale": lambda s: randsmap.RFNNDecoder(randsmap.FourierFeatures(s), random_state=0),
    "features__latent_box": lambda s: randsmap.RFNNDecoder(
        randsmap.SigmoidFeatures(2.0, n_features=9, latent_box=(0 * s, s)), random_state=0
    ),
    "features__latent_box as a table": lambda s: randsmap.RFNNDecoder(
        randsmap.SigmoidFeatures(2.0, n_features=9, latent_box=s.to_frame().dot([[0.0, 1.0]]).T), random_state=0
    ),
}


@pytest.mark.parametrize("name", LATENT_PARAMETERS)
def test_parameters_of_each_latent_have_the_order_of_its_columns(name):
    pandas = pytest.importorskip("pandas")
    latents, scales = pandas.DataFrame(Y, columns=["a", "b"]), pandas.Series([1.0, 2.0], index=["a", "b"])
    expected = LATENT_PARAMETERS[name](scales).fit(Y, ROWS).predict(Y)
    np.testing.assert_array_equal(LATENT_PARAMETERS[name](scales).fit(latents, ROWS).predict(latents), expected)
    with pytest.raises(ValueError, match=f"{name.split()[0]} has other labels than the columns of X, b at place 0"):
        LATENT_PARAMETERS[name](scales[::-1]).fit(latents, ROWS)


def test_a_box_of_latents_may_be_a_table():
    pandas = pytest.importorskip("pandas")
    box = [[0.1, 0.2], [5.0, 10.0]]
    one, two = (
        randsmap.SigmoidFeatures(2.0, n_features=9, latent_box=b, random_state=0).fit(Y)
        for b in (box, pandas.DataFrame(box))
    )
    np.testing.assert_array_equal(one.transform(Y), two.transform(Y))


def test_tables_are_compared_and_give_arrays(tmp_path):
    pandas = pytest.importorskip("pandas")
    names = [f"S{i}" for i in range(24)]
    frame = pandas.DataFrame(ROWS, columns=names)
    weights = pandas.Series(np.linspace(1, 2, 24), index=names)
    decoder = randsmap.KernelDecoder(cell_weights=weights).fit(Y, frame)
    plain = randsmap.KernelDecoder(cell_weights=weights.values).fit(Y, ROWS)
    assert type(decoder.predict(Y)) is np.ndarray and np.array_equal(decoder.predict(Y), plain.predict(Y))
    save(decoder.set_params(cell_weights=weights.values), tmp_path / "d.npz")
    for fitted in (decoder, randsmap.load(tmp_path / "d.npz")):
        with pytest.raises(
            ValueError, match="y has other labels along 'columns' than the fields of fit, S23 at place 0"
        ):
            fitted.score(Y, frame[names[::-1]])
    for name, wrong in (
        ("cell_weights", weights[::-1]),
        ("invariants", pandas.DataFrame({"mass": weights, "more": weights**2})[::-1]),
        ("bounds", (None, weights[::-1])),
    ):
        with pytest.raises(ValueError, match=f"{name} has other labels along '.*' than the fields of fit, S23"):
            randsmap.KernelDecoder(**{name: wrong}).fit(Y, frame)
        with pytest.raises(ValueError, match=f"{name} has other labels"):  # the model's decoder is told the labels
            randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder(**{name: wrong})).fit(frame)
    # samples: an index that nobody gave is compared where the other is an order of it
    for index in (np.arange(N)[::-1], np.arange(N)):
        latents = pandas.DataFrame(Y[index], index=index)
        if index[0]:
            with pytest.raises(ValueError, match="y has other labels along 'index' than X, 0 at place 0 instead of 39"):
                clone(KERNEL).fit(latents, frame)
        else:
            clone(KERNEL).fit(latents, frame)
    with pytest.raises(ValueError, match="groups has other labels along 'index' than snapshots"):
        randsmap.autotune(frame, groups=pandas.Series(np.arange(N) % 4)[::-1])
    latents = pandas.DataFrame(Y, columns=[10, 20])
    with pytest.raises(ValueError, match="feature names should match"):
        clone(KERNEL).fit(latents, frame).predict(latents[[20, 10]])


def test_decoders_are_merged_only_with_the_same_labels():
    X = with_labels(coordinates()["names"])
    start = randsmap.RFNNDecoder(randsmap.MonomialFeatures(2).fit(Y), latent_scale=1.0, regularization=1e-3)
    one, two, other = (
        clone(start, safe=False).set_params(features=start.features).partial_fit(Y, part) for part in (X, X, X[:, ::-1])
    )
    one.merge(two)
    with pytest.raises(ValueError, match="the other decoder's y has other labels along 'cell' than this decoder's"):
        one.merge(other)
    with pytest.raises(ValueError, match="y has other labels"):
        one.partial_fit(Y, X[:, ::-1])


def test_masks_and_parameters_of_a_model_have_its_labels(labelled):
    model = clone(MODELS["diffusion maps"]).fit(labelled)
    latents, mask = model.transform(labelled)[:3], labelled[0] > labelled[0].mean()
    np.testing.assert_array_equal(
        model.inverse_transform(latents, cells=mask), model.inverse_transform(latents, cells=mask.values)
    )
    with pytest.raises(ValueError, match="cells has other labels along 'x'"):
        model.inverse_transform(latents, cells=mask[:, ::-1])
    weights = abs(labelled[0]) + 1
    for wrong in (weights[:, ::-1], weights.T):
        with pytest.raises(ValueError, match="cell_weights has "):
            randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder(cell_weights=wrong)).fit(labelled)
        with pytest.raises(ValueError, match="weights (has|must have) "):
            randsmap.project_bounds(labelled, weights=wrong, total=None)
    weighted = randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder(cell_weights=weights)).fit(labelled)
    assert weighted.inverse_transform(latents[:, :2]).dims == labelled.dims


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("decoder", [None, KERNEL, DECODERS["k-NN"], DECODERS["auto"]], ids=lambda d: type(d).__name__)
def test_the_parts_of_a_model_know_its_labels(labelled, tmp_path, decoder, stored):
    model = randsmap.ManifoldModel(randsmap.POD(2), decoder).fit(labelled)
    if stored:
        model.save(tmp_path / "model.npz")
        model = randsmap.load(tmp_path / "model.npz")
    latents, mask, other = model.transform(labelled), labelled[0] > labelled[0].mean(), labelled[:, :, ::-1]
    if decoder is None:
        part = model.encoder_
        decodes, compared = [part.inverse_transform], [(part.inverse_vjp, latents, other), (part.transform, other)]
    else:
        part = model.decoder_
        decodes = [each.predict for each in (part, getattr(part, "best_decoder_", part))]
        compared = [(part.vjp, latents, other), (part.score, latents, other)]
    for decode in decodes:
        np.testing.assert_array_equal(decode(latents, cells=mask), decode(latents, cells=mask.values))
        for wrong in (mask[:, ::-1], mask.T):
            with pytest.raises(ValueError, match="cells has "):
                decode(latents, cells=wrong)
    for method, *given in compared:
        with pytest.raises(ValueError, match="has other labels along 'x'"):
            method(*given)


@pytest.mark.parametrize("part", [slice(10, None), np.random.default_rng(0).permutation(N)[:30]], ids=["part", "split"])
def test_what_fits_as_a_whole_fits_as_a_part(part):
    """The numbers that pandas counts are no labels of a part either, but tell where it has another order."""
    pandas = pytest.importorskip("pandas")
    latents, fields, groups = pandas.DataFrame(Y), pandas.DataFrame(ROWS), pandas.Series(np.arange(N) % 4)
    latents, fields, groups = (table.iloc[part] for table in (latents, fields, groups))
    words, times = [f"r{k}" for k in latents.index], latents.index / 10 + 0.05
    auto = randsmap.AutoDecoder(n_trials=2, random_state=0).fit(latents, fields, groups=groups)
    for index in (words, times, range(30)):
        clone(auto).fit(latents, fields.set_axis(index), groups=groups.set_axis(index))
    other = np.random.default_rng(1).permutation(30)
    for call, name in (
        (lambda: clone(auto).fit(latents, fields, groups=groups.iloc[other]), "groups"),
        (lambda: clone(KERNEL).fit(latents, fields.iloc[other]), "y"),
        (lambda: clone(KERNEL).fit(latents.set_axis(times), fields.set_axis(times[other])), "y"),
    ):
        with pytest.raises(ValueError, match=f"{name} has other labels along 'index' than X"):
            call()
    cells = pandas.Series(1.0, index=[f"S{k}" for k in range(20)])
    randsmap.KernelDecoder(cell_weights=cells, invariants=None).fit(latents, fields.iloc[:, 4:])


@pytest.mark.parametrize("names", [None, [None, "a"], ["a", "a"]], ids=str)
@pytest.mark.parametrize("inner", [[0.1, 0.2, 0.3], [0.1, None, 0.3], "dates", [1, 2, 3]], ids=str)
def test_columns_of_two_levels_need_no_names(tmp_path, inner, names):
    pandas = pytest.importorskip("pandas")
    inner = pandas.date_range("2020", periods=3) if inner == "dates" else inner
    table = pandas.DataFrame(ROWS[:, :6], columns=pandas.MultiIndex.from_product([["u", "v"], inner], names=names))
    model = randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder()).fit(table)
    model.save(tmp_path / "model.npz")
    renamed = table.set_axis(table.columns.set_names(["b", "c"]), axis=1)
    for again in (model, pickle.loads(pickle.dumps(model)), randsmap.load(tmp_path / "model.npz")):
        np.testing.assert_array_equal(again.transform(table), model.transform(renamed))
        with pytest.raises(ValueError, match="other labels along '.*v at place 0 instead of u"):
            again.transform(table.iloc[:, ::-1])


def test_searches_and_metrics_take_labelled_fields(labelled):
    found = randsmap.autotune(labelled, model=MODELS["POD alone"], n_trials=2, families="gaussian", random_state=0)
    assert found.best_model_.inverse_transform(np.zeros((2, 3))).dims == labelled.dims
    tuned = randsmap.tune(MODELS["diffusion maps"], {"encoder__n_components": [1, 2]}, None, labelled, None, labelled)
    assert (
        tuned.best_decoder_.inverse_transform(Y[:, : tuned.best_params_["encoder__n_components"]]).dims == labelled.dims
    )
    assert np.array_equal(metrics.relative_l2(labelled, labelled * 2), metrics.relative_l2(F, F * 2))
    parametric = randsmap.ParametricModel(MODELS["POD alone"], randsmap.KernelDecoder()).fit(Y, labelled)
    assert parametric.predict(Y[:3]).dims == labelled.dims


def test_lazy_arrays_are_refused(labelled):
    pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="dask"):
        randsmap.POD(2).fit(labelled.chunk({"time": 5}))


def test_without_xarray_fields_go_to_an_array(labelled, monkeypatch):
    import sys

    model = clone(MODELS["POD alone"]).fit(labelled)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match="pip install xarray, or pass an array as out="):
        model.inverse_transform(np.zeros((2, 3)))
    assert model.inverse_transform(np.zeros((2, 3)), out=np.empty((2, *SHAPE))).shape == (2, *SHAPE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dims", ["time", "x"]),
        ("dims", ("x", "x")),
        ("name", 3),
        ("attrs", "[]"),
        ("attrs", "{"),
        ("coords", [("x", ("x",), "", [1, 2], "{}")]),
        ("coords", [("x", ("x",), "<f8", np.arange(2), "{}")]),
        ("coords", [("x", ("x", "y"), "", np.arange(2), "{}")]),
        ("coords", [("x", ("x",), "str", (1, 2), "{}")]),
        ("coords", [("x", ("x",), "")]),
        ("coords", [("x", ("x",), "levels", [("a", "", np.arange(2.0), [0, 1])], "{}")]),
        ("coords", [("x", ("x",), "categories", [("", "", np.arange(2.0), np.array([0, 7]))], "{}")]),
    ],
)
def test_forged_labels_are_refused(tmp_path, name, value):
    labels = Labels(**{"dims": ("time", "x"), "name": None, "attrs": "{}", "coords": [], name: value})
    save(labels, tmp_path / "labels.npz")
    with pytest.raises(ValueError, match="not a valid model file"):
        randsmap.load(tmp_path / "labels.npz")


@pytest.mark.parametrize("encoder", [randsmap.POD(2), PCA(2)])
def test_a_model_of_a_table_needs_no_names_from_itself(encoder, tmp_path, no_pictures):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=[f"S{i}" for i in range(24)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = randsmap.ManifoldModel(encoder, randsmap.KernelDecoder(), consistency=1).fit(frame)
        assert model.inverse_transform(model.transform(frame)).shape == model.reconstruct(frame).shape == ROWS.shape
        assert model.score(frame) < 0
        assert randsmap.model.reconstruction_errors(model, frame)["relative_l2"].shape == (N,)
        assert list(cautions_in_words(model, frame, np.arange(N))) == []
        pytest.importorskip("jinja2")
        randsmap.reports.write_model_report(model, frame, tmp_path / "r.html")
        parametric = randsmap.ParametricModel(model, randsmap.KernelDecoder(invariants=None)).fit(Y, frame)
        assert parametric.predict(Y[:0]).shape == (0, 24)


@pytest.mark.parametrize("kind", ["pandas", "xarray"])
def test_labels_of_latents_and_parameters_are_those_of_the_values_of_invariants(kind):
    package, index = pytest.importorskip(kind), [f"run {i}" for i in range(N)]

    def table(values):
        if kind == "pandas":
            return package.DataFrame(values, index=index)
        return package.DataArray(values, {"run": index, "of": [f"{kind}{j}" for j in range(values.shape[1])]})

    fields = ROWS * (1 + Y[:, :1])
    decoder = randsmap.KernelDecoder(invariants="mass", invariant_tol=1.0)
    model = randsmap.ManifoldModel(randsmap.POD(2, invariants=None), decoder).fit(fields)
    parametric = randsmap.ParametricModel(model, randsmap.KernelDecoder(invariants=None)).fit(table(Y), fields)
    masses, latents = table(fields.sum(axis=1)[:, None]), model.transform(fields)
    latents = table(latents) if kind == "xarray" else package.DataFrame(latents, index, ["pod0", "pod1"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call, X, name in ((model.inverse_transform, latents, "X"), (parametric.predict, table(Y), "parameters")):
            assert call(X, invariant_values=masses).shape == (N, 24)
            with pytest.raises(ValueError, match=f"invariant_values has other labels along '.*' than {name}"):
                call(X, invariant_values=masses[::-1])


# -- Columns -------------------------------------------------------------------------------------------
def tables():
    """Latents and fields as data frames with names, and the latter with its columns in another order."""
    pandas = pytest.importorskip("pandas")
    fields = pandas.DataFrame(ROWS, columns=[f"S{i}" for i in range(24)])
    return pandas.DataFrame(Y, columns=["a", "b"]), fields, fields[fields.columns[::-1]]


def test_fields_whose_columns_have_another_order_are_refused_at_every_door():
    """Where the latents have names, too, and by functions of a model."""
    latents, fields, wrong = tables()
    features = randsmap.SigmoidFeatures(2.0, n_features=9, latent_box=(0.0, 1.0))
    batches = randsmap.RANDSMAPDecoder(features, latent_scale=1.0, random_state=0).partial_fit(latents, fields)
    decoder, encoder = clone(KERNEL).fit(latents, fields), randsmap.DiffusionMaps(2).fit(fields)
    model = clone(MODELS["POD alone"]).fit(fields)
    parametric = randsmap.ParametricModel(MODELS["POD alone"], randsmap.KernelDecoder(invariants=None))
    parametric.fit(latents, fields)
    errors = randsmap.model.reconstruction_errors
    for call, name in (
        (lambda: batches.partial_fit(latents, wrong), "y"),
        (lambda: decoder.score(latents, wrong), "y"),
        (lambda: encoder.squared_distances(wrong), "X"),
        (lambda: model.score(wrong), "X"),
        (lambda: errors(model, wrong), "snapshots"),
        (lambda: errors(parametric, wrong, parameters=latents), "snapshots"),
        (lambda: parametric.score(latents, wrong), "snapshots"),
    ):
        with pytest.raises(ValueError, match=f"{name} has other labels along 'columns' than .*, S23 at place 0"):
            call()


def test_names_of_columns_in_a_text_are_those_of_later_texts(tmp_path):
    _, fields, wrong = tables()
    for name, table in (("a", fields), ("b", wrong), ("c", fields.set_axis(np.linspace(0, 1, 24), axis=1))):
        table.to_csv(tmp_path / f"{name}.csv", index_label="id")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the column id
        X, other, positions = (randsmap.read_snapshots(tmp_path / f"{name}.csv") for name in "abc")
    model = clone(MODELS["POD alone"]).fit(X)
    model.save(tmp_path / "m.npz")
    for fitted in (model, pickle.loads(pickle.dumps(model)), randsmap.load(tmp_path / "m.npz")):
        latents = fitted.transform(X)
        np.testing.assert_array_equal(fitted.transform(np.asarray(other)[:, ::-1]), latents)
        np.testing.assert_allclose(fitted.transform(X[5:7]), latents[5:7], atol=1e-14)
        assert type(fitted.inverse_transform(latents)) is np.ndarray
        for rows in (other, other[:3], positions):
            with pytest.raises(ValueError, match="X has other labels along 'columns' than the fields of fit"):
                fitted.transform(rows)
    weighted = randsmap.KernelDecoder(cell_weights=X[:1].ravel() + 1).fit(Y, X)
    save(weighted, tmp_path / "d.npz")
    np.testing.assert_array_equal(randsmap.load(tmp_path / "d.npz").predict(Y), weighted.predict(Y))
    for searched in (
        randsmap.autotune(X, n_components=1, n_trials=1, families="gaussian", random_state=0).best_model_,
        randsmap.ManifoldModel(randsmap.POD(2), KERNEL, encoder_samples=20).fit(X),
    ):
        with pytest.raises(ValueError, match="X has other labels along 'columns' than the fields of fit"):
            searched.transform(other)
    # what is computed of them, or chosen of the columns, has no names
    for plain in (X[:, ::-1], 2 * X, X[0]):
        assert Labels.of(np.atleast_2d(plain)) is None


def test_directions_and_values_have_the_columns_of_the_points_and_invariants():
    pandas = pytest.importorskip("pandas")
    latents, fields, _ = tables()
    wrong, model = latents[["b", "a"]], clone(MODELS["POD alone"]).fit(fields)
    decoder, Z = clone(KERNEL).fit(latents, fields), pandas.DataFrame(model.transform(fields))
    Z.columns = model.get_feature_names_out()
    C = pandas.DataFrame({"mass": np.ones(24), "more": np.arange(24.0)}, index=fields.columns)
    values = pandas.DataFrame(ROWS @ C.values, columns=C.columns)[["more", "mass"]]
    options = {"invariants": C, "invariant_tol": 1.0}
    keeps, pod = randsmap.KernelDecoder(**options).fit(Y, fields), model.encoder_
    swapped = Z[Z.columns[::-1]]
    for call, name in (
        (lambda: decoder.jvp(latents, wrong), "V"),
        (lambda: decoder.jvp(Y, wrong), "V"),
        (lambda: decoder.jvp(Y, wrong.iloc[0]), "V"),
        (lambda: decoder.freeze().jvp(latents, wrong), "V"),
        (lambda: model.jvp(Z, swapped), "V"),
        (lambda: model.jvp(swapped, Z.values), "X"),
        (lambda: pod.inverse_transform(swapped), "X"),
        (lambda: pod.inverse_jvp(Z, swapped), "V"),
        (lambda: pod.vjp(fields, swapped), "U"),
        (lambda: model.inverse_transform(swapped.rename_axis("n").to_xarray().to_dataarray("latent").T), "X"),
        (lambda: keeps.predict(Y, invariant_values=values), "invariant_values"),
        (lambda: clone(keeps).set_params(invariant_values=values.iloc[0]).fit(Y, fields), "invariant_values"),
        (lambda: randsmap.project_bounds(ROWS, weights=C, total=values), "total"),
    ):
        with pytest.raises(ValueError, match=f"{name} has (other labels than the columns of|the columns)"):
            call()
    np.testing.assert_array_equal(decoder.jvp(latents, latents), clone(KERNEL).fit(Y, ROWS).jvp(Y, Y))
    assert keeps.predict(Y, invariant_values=values[["mass", "more"]]).shape == ROWS.shape


@pytest.mark.parametrize("name", LATENT_PARAMETERS)
def test_parameters_of_each_latent_in_a_model_have_the_order_of_the_latents(name):
    pandas = pytest.importorskip("pandas")
    scales = pandas.Series([1.0, 2.0], index=["pod0", "pod1"])
    encoder = randsmap.POD(2)
    randsmap.ManifoldModel(encoder, LATENT_PARAMETERS[name](scales)).fit(ROWS)
    with pytest.raises(ValueError, match=f"{name.split()[0]} has other labels than the columns of the latents, pod1"):
        randsmap.ManifoldModel(encoder, LATENT_PARAMETERS[name](scales[::-1])).fit(ROWS)


def test_a_column_of_labels_that_reset_index_makes_is_no_number_of_a_sample():
    """An index that pandas counted is no label: it says nothing beside others."""
    latents, fields, _ = tables()
    named = fields.set_axis([f"r{i}" for i in range(N)])
    np.testing.assert_array_equal(
        clone(KERNEL).fit(latents, named).predict(latents), clone(KERNEL).fit(Y, ROWS).predict(Y)
    )
    for call, name in (
        (lambda: clone(KERNEL).fit(latents.reset_index(), fields), "X"),
        (lambda: randsmap.POD(2).fit(fields.reset_index()), "X"),
        (lambda: randsmap.KernelDecoder(cell_weights=fields.loc[0].reset_index()).fit(Y, fields), "cell_weights"),
    ):
        with pytest.raises(ValueError, match=f"{name} has a column 'index' next to others.*set_index.*drop"):
            call()
