"""Units for co-simulation, ONNX graphs, and functions of JAX and PyTorch: the same fields as in Python."""

import math
import os
import re
import zipfile

import numpy as np
import pytest

import randsmap
from randsmap.cli import main
from randsmap.decoders import library_path

from helpers import random_problem

SHAPE = (4, 10)
WEIGHTS = np.linspace(1, 2, 40)


def made(name):
    Y, F = random_problem(n=60, M=40, d=2, constant={3: 0.25})
    F = F.reshape(-1, *SHAPE)
    random = {"random_state": 0, "latent_scale": 1.0}
    decoders = {
        "logistic": randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(3.0, n_features=30), **random),
        "cosine": randsmap.RANDSMAPDecoder(randsmap.FourierFeatures(n_features=30), regularization=0.0, **random),
        "two factors": randsmap.RANDSMAPDecoder(output_rank=5, **random),
        "bounds": randsmap.KernelDecoder(invariants="mass", bounds="nonnegative"),
        "bounds alone": randsmap.KernelDecoder(invariants=None, bounds="nonnegative"),
        "monomials": randsmap.RANDSMAPDecoder(randsmap.MonomialFeatures(3), invariants="mass"),
        "multi-Gaussian": randsmap.KernelDecoder("multi-gaussian"),
        "k-NN": randsmap.KNNDecoder(3),
        **{f"Matern {nu}": randsmap.KernelDecoder("matern", nu=nu, invariants="mass") for nu in (0.5, 1.5, 2.5)},
        "thin plate": randsmap.KernelDecoder("thin-plate", degree=1, invariants="mass"),
        "Gaussian": randsmap.KernelDecoder(cell_weights=WEIGHTS, invariants="mass"),
        "varying": randsmap.KernelDecoder(invariants="mass", invariant_tol=1.0),
        "varying, bounds": randsmap.KernelDecoder(invariants="mass", invariant_tol=1.0, bounds="nonnegative"),
        "two": randsmap.KernelDecoder(invariants=np.stack([np.ones(40), np.arange(40) == 3], axis=1)),
    }
    if name == "POD":
        return randsmap.POD(2, invariants="mass").fit(F)
    if name == "parameters":
        return randsmap.ParametricModel(randsmap.ManifoldModel(randsmap.POD(2)), randsmap.KernelDecoder()).fit(Y, F)
    if name == "model":
        return randsmap.ManifoldModel(randsmap.Isomap(2), randsmap.KernelDecoder()).fit(F)
    if name.startswith("varying"):
        F = F * np.linspace(1, 2, len(F))[:, None, None]
    if name == "Gaussian":
        F = F / WEIGHTS.reshape(SHAPE)
    return decoders[name].fit(Y, F)


# -- FMI -------------------------------------------------------------------------------------------
@pytest.fixture
def fmpy():
    try:
        library_path()
    except FileNotFoundError:
        pytest.skip("needs an installed package with its shared library")
    return pytest.importorskip("fmpy")


def opened(fmpy, path, folder, token=None):
    from fmpy.fmi3 import FMU3Slave

    token = token or fmpy.read_model_description(path).guid
    unit = FMU3Slave(
        guid=token, unzipDirectory=fmpy.extract(path, folder), modelIdentifier="randsmap", instanceName="unit"
    )
    unit.instantiate(loggingOn=True)
    unit.enterInitializationMode(startTime=0.5)
    unit.exitInitializationMode()
    return unit


@pytest.mark.slow
def test_a_unit_of_a_thousand_steps_gives_the_fields_of_python(fmpy, tmp_path, capsys):
    from fmpy.validation import validate_fmu

    decoder, path = made("bounds"), str(tmp_path / "unit.fmu")
    decoder.freeze().save(tmp_path / "decoder.rsm")
    arguments = ["export", "fmu", str(tmp_path / "decoder.rsm"), "--out", path, "--step-size", "0.001"]
    assert main(arguments) == 0 and f"written: {path}" in capsys.readouterr().out
    assert validate_fmu(path) == []
    given = np.zeros(1001, dtype=[("time", float), ("latents", float, (2,))])
    given["time"] = np.linspace(0, 1, 1001)
    given["latents"] = np.stack([np.cos(6 * given["time"]), np.sin(6 * given["time"])], axis=1) / 3
    steps = fmpy.simulate_fmu(path, stop_time=1.0, input=given, output=["latents", "field"], output_interval=1e-3)
    assert len(steps) == 1001 and np.ptp(steps["latents"], axis=0).min() > 0.5
    fields = [decoder.predict(y[None])[0] for y in steps["latents"]]
    assert np.array_equal(steps["field"], fields)


@pytest.mark.parametrize("name", ["bounds", "model", "varying", "varying, bounds", "two"])
def test_units_give_derivatives_and_outlive_what_they_refuse(fmpy, tmp_path, capfd, name):
    decoder, path, y = made(name), str(tmp_path / "unit.fmu"), np.array([[0.2, 0.4]])
    frozen = getattr(decoder, "decoder_", decoder).freeze()
    randsmap.export.fmu(decoder, path)
    description, varies = zipfile.ZipFile(path).read("modelDescription.xml").decode(), name.startswith("varying")
    assert description.count('Derivatives="false"') == (2 if varies else 0)
    for what, of_values in (("Output", varies), ("InitialUnknown", frozen.n_invariants)):
        assert f'{what} valueReference="1" dependencies="{"0 3" if of_values else "0"}"' in description
    unit, M = opened(fmpy, path, tmp_path / "unit"), frozen.n_cells
    unit.setFloat64([0], y[0])
    given = {}
    v, u = np.array([1.0, -2.0]), np.arange(M) + 0.0
    derivatives = (
        lambda: unit.getDirectionalDerivative([1], [0], v, M),
        lambda: unit.getAdjointDerivative([1], [0], u, 2),
    )
    if name == "two":  # a number and NaN: the value of the fit
        m = frozen.invariants_.values if hasattr(frozen, "invariants_") else decoder.invariants_.values
        for given in ([np.nan, m[1]], [m[0], np.nan]):
            unit.setFloat64([3], given)
            np.testing.assert_allclose(unit.getFloat64([1], M), frozen.predict(y).ravel(), rtol=0, atol=1e-15)
        unit.setFloat64([3], [7.0, np.nan])
        given = {"invariant_values": [[7.0, m[1]]]}
    elif varies:
        with pytest.raises(Exception, match="discard"):
            unit.getFloat64([1], M)
        given = {"invariant_values": [7.0]}
        unit.setFloat64([3], [7.0])
    expected = np.ravel(frozen.predict(y, **given))
    assert np.array_equal(unit.getFloat64([2, 1], 1 + M), [0.5, *expected])
    unit.doStep(0.5, 0.25)
    assert unit.getFloat64([2]) == [0.75]
    if name == "varying, bounds":
        for derivative in derivatives:
            with pytest.raises(Exception, match="discard"):
                derivative()
    else:
        assert np.array_equal(derivatives[0](), frozen.jvp(y, v[None]).ravel())
        assert np.array_equal(derivatives[1](), frozen.vjp(y, u[None])[0])
    unit.setFloat64([0], [np.nan, 0.0])
    with pytest.raises(Exception, match="discard"):
        unit.getFloat64([1], M)
    assert "[DISCARD] a latent coordinate" in capfd.readouterr().out
    unit.setFloat64([0], y[0])
    assert np.array_equal(unit.getFloat64([1], M), expected)
    for refused in (
        lambda: unit.setFloat64([1], expected),
        lambda: unit.setFloat64([0], [0.0, 0.0, 0.0]),
        lambda: unit.getFloat64([1], M + 1),
        lambda: unit.getFloat64([4], 1),
        lambda: unit.getInt32([0], 1),
        lambda: unit.doStep(0.75, -1.0),
        unit.enterEventMode,
    ):
        with pytest.raises(Exception, match="error"):
            refused()
    unit.reset()
    assert np.array_equal(unit.getFloat64([0], 2), [0.0, 0.0])
    unit.terminate()
    unit.freeInstance()
    with pytest.raises(Exception, match="instantiate"):
        opened(fmpy, path, tmp_path / "unit", token="of another")


def test_units_of_other_machines_and_of_old_files(tmp_path, monkeypatch):
    library = tmp_path / "librandsmap.so.1"
    library.write_bytes(b"")
    os.utime(library, (0, 0))  # before 1980, where the dates of archives begin
    monkeypatch.setattr(randsmap.export, "library_path", lambda: str(library))
    for machine, name in {"i686": "x86", "armv7l": "aarch32", "ppc64le": "ppc64", "AMD64": "x86_64"}.items():
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        monkeypatch.setattr("platform.system", lambda: "Linux")
        randsmap.export.fmu(made("POD"), tmp_path / "unit.fmu")
        assert f"binaries/{name}-linux/randsmap.so" in zipfile.ZipFile(tmp_path / "unit.fmu").namelist()


def test_a_unit_takes_the_steps_of_a_forecast(fmpy, tmp_path):
    from fmpy.validation import validate_fmu

    x, t = np.linspace(0, 1, 40), np.arange(60) * 0.1
    waves = 1 + np.sin(2 * np.pi * x) * np.cos(t)[:, None] + np.cos(2 * np.pi * x) * np.sin(t)[:, None]
    monomials = randsmap.RFNNDecoder(randsmap.MonomialFeatures(2), regularization=1e-9)
    for regressor in (None, monomials):
        forecast = randsmap.LatentForecast(randsmap.POD(2), regressor).fit(waves[:50], times=t[:50])
        path = str(tmp_path / "waves.fmu")
        randsmap.export.fmu(forecast, path)
        assert validate_fmu(path) == []
        now = forecast.model_.transform(waves[49:50])[0]
        options = {"stop_time": 10.0, "output_interval": 0.1, "start_values": {"latents": now}}
        steps = fmpy.simulate_fmu(path, output=["latents", "field"], **options)
        assert (steps["latents"][0] == now).all() and np.ptp(steps["latents"], axis=0).min() > 1
        np.testing.assert_allclose(steps["field"][1:], forecast.forecast(waves[:50], 100), rtol=0, atol=1e-11)
    with pytest.raises(ValueError, match="step_size is that of the forecast"):
        randsmap.export.fmu(forecast, path, step_size=0.2)
    for refused in ({"regressor": randsmap.KNNDecoder(2)}, {"lag": 2}):
        with pytest.raises(TypeError, match="lag=1, equal steps and a regressor with linear functions"):
            randsmap.export.fmu(randsmap.LatentForecast(randsmap.POD(2), **refused).fit(waves), path)


# -- ONNX ------------------------------------------------------------------------------------------
ONNX = ["logistic", "cosine", "two factors", "Matern 0.5", "Matern 1.5", "Matern 2.5", "thin plate", "Gaussian", "POD"]
ONNX += ["monomials", "bounds alone"]


@pytest.mark.parametrize("name", [*ONNX, "varying"])
def test_graphs_give_the_fields_and_their_mass(tmp_path, name):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    decoder, path, n = made(name), tmp_path / "decoder.onnx", 7
    randsmap.export.onnx(decoder, path)
    y = np.random.default_rng(1).uniform(-2, 2, size=(n, 2))
    given = {"invariant_values": np.linspace(1, 9, n)[:, None]} if name == "varying" else {}
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (f,) = session.run(None, {"latents": y, **given})
    expected = (decoder.inverse_transform if name == "POD" else decoder.predict)(y, **given)
    assert f.shape == (n, *SHAPE) and f.dtype == np.float64
    np.testing.assert_allclose(f, expected, rtol=0, atol=1e-11 * abs(expected).max())
    kept = decoder.invariants_
    if name == "bounds alone":
        assert f.min() == 0
        return
    C, m = kept.matrix[:, 0], np.broadcast_to(given.get("invariant_values", kept.values), (n, 1))
    for row, total in zip(f.reshape(n, -1), m[:, 0]):
        # a rounded sum of 40 terms, and the round-off of each cell that the correction changes
        assert abs(math.fsum(C * row) - total) <= 40 * np.finfo(float).eps * (abs(C * row).sum() + abs(total))
    if kept.constant.any():
        rounded = [{"precision": "float32"}] if name == "logistic" else []  # others cancel
        for options in ({"tol": 1e-8, "latents": y}, *rounded):
            randsmap.export.onnx(decoder.freeze(**options), path)
            session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            (f,) = session.run(None, {"latents": y, **given})
            assert (f.reshape(n, -1)[:, kept.constant] == kept.constant_values).all()


@pytest.mark.parametrize(
    "name, message",
    [
        ("bounds", "a decoder with bounds and invariants has no ONNX"),
        ("multi-Gaussian", "kernels other than multi-Gaussian"),
        ("k-NN", "as medians, mixtures, registrations and models at parameters"),
        ("parameters", "as medians, mixtures, registrations and models at parameters"),
    ],
)
def test_what_has_no_graph_is_refused(tmp_path, name, message):
    pytest.importorskip("onnx")
    with pytest.raises((TypeError, ValueError), match=message):
        randsmap.export.onnx(made(name), tmp_path / "decoder.onnx")
    assert not [*tmp_path.iterdir()]


def test_what_does_not_freeze_is_not_exported(tmp_path):
    for export in (randsmap.export.fmu, randsmap.export.onnx):
        with pytest.raises(TypeError, match="decoder must be frozen, or have a method"):
            export(object(), tmp_path / "file")


# -- JAX and PyTorch -------------------------------------------------------------------------------
def points_of(decoder):
    """Latents (5, 2), their fields, and the derivatives; the gradients of |f|^2, and round-off of them."""
    y = np.random.default_rng(1).uniform(0.2, 0.8, size=(5, 2))
    decode = getattr(decoder, "predict", None) or decoder.inverse_transform
    jacobian = getattr(decoder, "inverse_jacobian", None) or decoder.jacobian
    fields, J = np.asarray(decode(y)), np.asarray(jacobian(y))
    f, rows = fields.reshape(5, -1), J.reshape(5, -1, 2)
    gradients = 2 * np.einsum("nk,nkd->nd", f, rows)
    return y, fields, J, gradients, 1e-14 * np.einsum("nk,nkd->", abs(f), abs(rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "model", "POD", "k-NN", "frozen"])
def test_jax_compiles_batches_and_differentiates(name):
    jax = pytest.importorskip("jax")
    decoder = made("bounds").freeze() if name == "frozen" else made(name)
    y, fields, J, gradients, small = points_of(decoder)
    decode = randsmap.jax.decoder(decoder)
    with jax.enable_x64(True):
        for function in (decode, jax.jit(decode), jax.vmap(decode)):
            assert np.array_equal(function(y), fields)
        for derivative in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(jax.vmap(derivative(decode))(y), J, rtol=1e-14, atol=1e-14 * abs(J).max())
        gradient = jax.jit(jax.vmap(jax.grad(lambda y: (decode(y) ** 2).sum())))(y)
        np.testing.assert_allclose(gradient, gradients, rtol=0, atol=small)
        some = randsmap.jax.decoder(decoder, cells=[7, -1])(y[0])
        np.testing.assert_allclose(some, np.ravel(fields[0])[[7, -1]], rtol=0, atol=1e-14 * abs(fields).max())
        with pytest.raises(Exception, match="must be finite"):
            decode(np.full(2, np.nan)).block_until_ready()
        with pytest.raises(ValueError, match=r"latents must have shape \(2,\) or \(n, 2\), got \(3,\)"):
            decode(np.zeros(3))
    assert decode(jax.numpy.asarray(y, "float32")).dtype == np.float32


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # of its own functions
@pytest.mark.parametrize("name", ["logistic", "model", "POD", "k-NN", "frozen"])
def test_pytorch_differentiates(name):
    torch = pytest.importorskip("torch")
    decoder = made("bounds").freeze() if name == "frozen" else made(name)
    y, fields, J, gradients, small = points_of(decoder)
    decode, Y = randsmap.torch.decoder(decoder), torch.tensor(y, requires_grad=True)
    assert np.array_equal(decode(Y).detach(), fields) and np.array_equal(torch.func.vmap(decode)(Y.detach()), fields)
    (decode(Y) ** 2).sum().backward()
    np.testing.assert_allclose(Y.grad, gradients, rtol=0, atol=small)
    for derivative in (torch.func.jacfwd, torch.func.jacrev):
        found = torch.func.vmap(derivative(decode))(Y.detach())
        np.testing.assert_allclose(found, J, rtol=0, atol=1e-13 * abs(J).max())
    some = randsmap.torch.decoder(decoder, cells=[7, -1])(Y[0]).detach()
    np.testing.assert_allclose(some, np.ravel(fields[0])[[7, -1]], rtol=0, atol=1e-14 * abs(fields).max())
    assert decode(Y.float()).dtype == torch.float32
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        torch.autograd.functional.hessian(lambda y: decode(y).sum(), Y[0].detach())
    with pytest.raises(ValueError, match=r"latents must have shape \(2,\) or \(n, 2\), got \(3,\)"):
        decode(torch.zeros(3))


@pytest.mark.parametrize("name", ["jax", "torch", "onnx"])
def test_a_missing_package_is_named(monkeypatch, tmp_path, name):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    decoder = made("logistic")
    with pytest.raises(ImportError, match=re.escape(f"needs the package {name}: pip install {name}")):
        if name == "onnx":
            randsmap.export.onnx(decoder, tmp_path / "decoder.onnx")
        else:
            getattr(randsmap, name).decoder(decoder)
