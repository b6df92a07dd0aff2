"""Frozen decoders in the formats of others: units for co-simulation (FMI 3.0), and ONNX graphs."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import scipy.linalg

from randsmap._interface.callers import installed, public
from randsmap._interface.parameters import check_number
from randsmap._io.files import write_atomically
from randsmap._kernels import distances, features
from randsmap._kernels import linear_map as _kernel
from randsmap.maps.frozen import FrozenDecoder, image_of, library_path, section_of
from randsmap.model import LatentForecast, ManifoldModel

__all__ = ["fmu", "onnx"]

_LARGEST_GRAPH = (1 << 31) - (1 << 20)  # bytes: protobuf's limit, less the names


def _frozen(decoder: Any) -> Any:
    if isinstance(decoder, FrozenDecoder):
        return decoder
    if isinstance(decoder, ManifoldModel):  # the encoder is not used: an export only decodes
        decoder = getattr(decoder, "decoder_", None) or decoder
    if not hasattr(decoder, "freeze"):
        raise TypeError(f"decoder must be frozen, or have a method freeze(), got {type(decoder).__name__}")
    return decoder.freeze()


def _varies(frozen: FrozenDecoder) -> bool:
    """True if the values of the invariants differ between the training fields."""
    values = section_of(frozen.linear_map.kernel.source, "values")
    return values is not None and bool(np.isnan(values).any())


# -- FMI -------------------------------------------------------------------------------------------
# The numbers of the variables are those of fmu.c
_DESCRIPTION = """\
<?xml version="1.0" encoding="UTF-8"?>
<fmiModelDescription fmiVersion="3.0" modelName={name} instantiationToken="{token}"
    description="Fields at latent coordinates" generationTool="randsmap">
  <CoSimulation modelIdentifier="randsmap" canHandleVariableCommunicationStepSize="{variable}"
      providesDirectionalDerivatives="{derivatives}" providesAdjointDerivatives="{derivatives}"/>
  <LogCategories><Category name="logStatusError"/></LogCategories>
  {experiment}
  <ModelVariables>
    <Float64 name="latents" valueReference="0" causality="{role} start="{zeros}">{latents}</Float64>
    <Float64 name="field" valueReference="1" causality="output">{field}</Float64>
    <Float64 name="time" valueReference="2" causality="independent"/>
    {values}
  </ModelVariables>
  <ModelStructure>
    {state}<Output valueReference="1" dependencies="{inputs}"/>
    <InitialUnknown valueReference="1" dependencies="{initial}"/>
  </ModelStructure>
</fmiModelDescription>
"""
_VALUES = """<Float64 name="invariant_values" valueReference="3" {kind} start="{start}"
        description="values of the invariants; NaN: those of the fit">{length}</Float64>"""


def _binary() -> tuple[str, Path]:
    """Where FMI has the shared library for this machine, and the library."""
    path, system = Path(library_path()), platform.system().lower()
    if system == "windows":
        (path,) = path.parent.glob("*randsmap*.dll")
    machine = platform.machine().lower()
    names = {"amd64": "x86_64", "arm64": "aarch64", "armv7l": "aarch32", "ppc64le": "ppc64"}  # of FMI 3.0, 2.5.1.4.1
    machine = "x86" if re.fullmatch("i[3-6]86", machine) else names.get(machine, machine)
    suffix = {"windows": ".dll", "darwin": ".dylib"}.get(system, ".so")
    return f"binaries/{machine}-{system}/randsmap{suffix}", path


def fmu(decoder: Any, path: str | os.PathLike[str], *, step_size: float | None = None) -> None:
    """Write a unit for co-simulation (FMI 3.0) that decodes latents to fields.

    Parameters
    ----------
    decoder : fitted decoder or model that freezes, `FrozenDecoder`, or `LatentForecast`
    path : path
        Usually with the ending ``.fmu``. The file is written whole or not at all.
    step_size : float or None, default=None
        Default time between two communications; the unit accepts any other. For a forecast, it is `step_`.

    Raises
    ------
    TypeError, ValueError
        If the decoder cannot be frozen, or an argument is not as described.
    OSError
        If the file cannot be written, or the package has no shared library (in a source tree).

    Notes
    -----
    The input is ``latents`` (d,), the output ``field`` (*shape) at the time of the communication, with the bits of
    `FrozenDecoder.predict` for a single row. The unit has no states. ``invariant_values`` (q,) is a tunable parameter,
    or an input if the values vary; NaN stands for the value of the fit. Directional and adjoint derivatives with
    respect to the latents are available if the values do not vary. Latents that cannot be decoded return the status
    discard. Derivatives with bounds and other values than in the fit also do. The unit continues afterwards. The
    encoder of a model is not exported. The binary is the shared library of this machine's system and processor type,
    and needs no Python.

    A forecast needs lag=1, equal steps and a regressor with linear functions (None). Each step of its unit, of any
    length, is one step of the forecast; ``latents`` is an output with a start value, and there are no derivatives.

    References
    ----------
    Modelica Association, Functional Mock-up Interface 3.0 (2022).

    Examples
    --------
    >>> import randsmap
    >>> decoder = randsmap.KernelDecoder().fit([[0.0], [0.5], [1.0]], [[1.0, 0], [0.5, 0.5], [0, 1.0]])
    >>> randsmap.export.fmu(decoder, "decoder.fmu", step_size=0.01)  # doctest: +SKIP
    """
    steps, experiment = decoder if isinstance(decoder, LatentForecast) else None, ""
    step = b"" if steps is None else bytes(image_of(steps.step_map))
    frozen = _frozen(decoder if steps is None else steps.model_)
    if step_size is not None:
        if steps is not None:
            raise ValueError(f"step_size is that of the forecast, {steps.step_}, got {step_size}: give None")
        check_number(step_size, "step_size", low=0, strict_low=True)
    elif steps is not None:
        step_size = steps.step_
    if step_size is not None:
        experiment = f'<DefaultExperiment stepSize="{float(step_size)!r}"/>'
    image = memoryview(frozen.linear_map.kernel.source).cast("B")
    token, q, varying = hashlib.sha256(bytes(image) + step).hexdigest()[:32], frozen.n_invariants, _varies(frozen)
    kind = 'causality="input"' if varying else 'causality="parameter" variability="tunable"'

    def dimensions(*lengths: int) -> str:
        return "".join(f'<Dimension start="{length}"/>' for length in lengths)

    description = _DESCRIPTION.format(
        name=quoteattr(re.sub(r"[^\x20-\ud7ff]", "_", Path(path).stem)),
        token=token,
        experiment=experiment,
        zeros=" ".join(["0"] * frozen.n_components),
        latents=dimensions(frozen.n_components),
        field=dimensions(*frozen.field_shape_),
        values=_VALUES.format(kind=kind, start=" ".join(["NaN"] * q), length=dimensions(q)) if q else "",
        role='input"' if steps is None else 'output" initial="exact"',
        state="" if steps is None else '<Output valueReference="0" dependencies=""/>\n    ',
        inputs=" ".join(["0"] * (steps is None) + ["3"] * varying),
        initial="0 3" if q else "0",
        # by all inputs or none
        derivatives="false" if varying or steps is not None else "true",
        variable="true" if steps is None else "false",
    )
    place, library = _binary()

    def write(file: Any) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            archive.writestr("modelDescription.xml", description)
            archive.write(library, place)
            archive.writestr(f"resources/{token}.rsm", image)
            if step:
                archive.writestr(f"resources/{token}.step.rsm", step)

    write_atomically(path, write)


# -- ONNX ------------------------------------------------------------------------------------------
def _functions(add: Any, part: Any, basis: int, function: int) -> str:
    """The functions of the latents (n, P) of which fields are linear combinations, as rk_image.h has them."""
    scale, phi = part("scalars")[0, 0], "latents"
    if basis == _kernel.FEATURE_MAP:
        t = add("Add", add("MatMul", "latents", part("weights")), part("offsets"))
        phi = add("Mul", add("Cos" if function == features.COSINE else "Sigmoid", t), scale)
    elif basis == _kernel.RADIAL_KERNEL:
        x = add("Unsqueeze", add("Div", "latents", part("lengths")), [1])
        apart = add("Sub", x, np.ascontiguousarray(part("columns").T)[None])
        phi = _radial(add, function, add("Mul", add("ReduceSum", add("Mul", apart, apart), [2], keepdims=0), scale))
    elif basis == _kernel.MONOMIALS:
        lengths = part("lengths")
        x = add("Sub", "latents" if lengths is None else add("Div", "latents", lengths), part("offsets"))
        for j, column in enumerate(part("powers").T.astype(float)):
            powers = add("Pow", add("Gather", x, [j], axis=1), column)
            phi = add("Mul", phi, powers) if j else powers
    elif basis != _kernel.IDENTITY:
        raise TypeError(
            "the decoder has no ONNX graph: features, monomials, POD and kernels other than multi-Gaussian have one"
        )
    if part("tail_centre") is None:
        return phi
    return add("Concat", phi, add("Div", add("Sub", "latents", part("tail_centre")), part("lengths")), axis=1)


def _radial(add: Any, function: int, t: str) -> str:
    """g(t) of rk_radial.h."""
    if function == distances.GAUSSIAN:
        return add("Exp", add("Neg", t))
    if function == distances.THIN_PLATE:  # t log(t) / 2, and 0 at t = 0
        return add("Mul", add("Mul", t, 0.5), add("Log", add("Max", t, 1e-300)))
    s = add("Sqrt", t)
    decay = add("Exp", add("Neg", s))
    if function == distances.MATERN_12:
        return decay
    polynomial = add("Add", s, 1.0)
    if function == distances.MATERN_52:
        polynomial = add("Add", polynomial, add("Mul", t, 1 / 3))
    return add("Mul", polynomial, decay)


def onnx(decoder: Any, path: str | os.PathLike[str]) -> None:
    """Write an ONNX graph that decodes latents (n, d) to fields (n, *shape), both in float64.

    Parameters
    ----------
    decoder : fitted decoder or model that freezes, or `FrozenDecoder`
    path : path
        ``.onnx`` is customary. The file is written whole or not at all.

    Raises
    ------
    TypeError, ValueError
        If the decoder cannot be frozen, is no linear map of features or kernels (a blend, a mixture of neighbours), has
        bounds and invariants, or a multi-Gaussian kernel, whose error function no operator has in float64, or takes
        more than 2 GB.
    ImportError, OSError
        Without the package onnx, or if the file cannot be written.

    Notes
    -----
    The graph contains the functions of the latents, the coefficients, and the projection on the invariants, applied
    twice. It has no sums in twice the precision: the mass is exact to about 1e-15 of the sum of magnitudes, instead of
    a few ulp (docs/exporting.md has measurements). Latents that are not finite or too far away are no error. For a
    table, the graph has the functions that the table approximates. If the invariants vary, ``invariant_values`` (n, q)
    is a second input.

    References
    ----------
    ONNX, Open Neural Network Exchange, onnx.ai.

    Examples
    --------
    >>> import randsmap
    >>> decoder = randsmap.KernelDecoder().fit([[0.0], [0.5], [1.0]], [[1.0, 0], [0.5, 0.5], [0, 1.0]])
    >>> randsmap.export.onnx(decoder, "decoder.onnx")  # doctest: +SKIP
    """
    frozen, library = _frozen(decoder), installed("onnx", "randsmap.export.onnx")
    make = library.helper
    nodes: list[Any] = []
    constants: list[Any] = []
    shape, inputs = list(frozen.field_shape_), {"latents": ["n", frozen.n_components]}

    def add(operator: str, *given: Any, **attributes: Any) -> str:
        names = [x if isinstance(x, str) else f"c{len(nodes)}_{i}" for i, x in enumerate(given)]
        constants.extend(library.numpy_helper.from_array(np.array(x), c) for c, x in zip(names, given) if c is not x)
        nodes.append(make.make_node(operator, names, [f"x{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def part(name: str) -> Any:
        found = section_of(frozen.linear_map.kernel.source, name)
        return found.astype(np.float64) if found is not None and found.dtype == np.float32 else found

    last, known = _kernel.SECTIONS["error_bar"], ("encoder", "error", "powers")
    others = [name for name, n in _kernel.SECTIONS.items() if n > last and name.partition("_")[0] not in known]
    if any(part(name) is not None for name in others):
        raise TypeError(
            "the decoder has no ONNX graph, as medians, mixtures, registrations and models at parameters. Fit a linear "
            "map of features: KernelDecoder() or, on the command line, --features"
        )
    lower, C = part("lower"), part("invariants")
    if lower is not None and C is not None and len(C):
        raise ValueError(
            "a decoder with bounds and invariants has no ONNX graph: ONNX has no operator for the "
            "projection. Use bounds=None or invariants=None"
        )
    numbers = dict(zip(_kernel.PARAMETERS, part("parameters")[0].tolist()))
    f = _functions(add, part, numbers["basis"], numbers["function"])
    bias, cells = np.array(part("bias")), part("constant_cells")
    if cells is not None:  # exact for coefficients of any precision
        bias[:, cells[0]] = part("constant_values")
    for name in filter(lambda name: part(name) is not None, ("coefficients", "factor", "start", "modes")):
        matrix = np.array(part(name))
        if cells is not None and name not in ("factor", "start"):
            matrix[:, cells[0]] = 0
        f = add("Add" if name == "start" else "MatMul", f, matrix)
    f = add("Add", f, bias)
    values = part("values")
    if C is not None and len(C):
        if _varies(frozen):
            inputs["invariant_values"] = ["n", frozen.n_invariants]
            values = add("Gather", "invariant_values", part("kept")[0], axis=1)
        back = scipy.linalg.solve_triangular(part("triangle"), part("directions"))
        for _ in range(2):
            defect = add("Sub", values, add("MatMul", f, np.ascontiguousarray(C.T)))
            f = add("Add", f, add("MatMul", defect, back))
    if lower is not None:
        f = add("Max", add("Min", f, part("upper")), lower)
    add("Reshape", f, [-1, *shape])
    nodes[-1].output[0] = "field"
    if sum([len(constant.raw_data) for constant in constants]) > _LARGEST_GRAPH:
        raise ValueError("the coefficients need more than 2 GB, the limit of an ONNX file: freeze with tol=")
    double = library.TensorProto.DOUBLE
    ends = [
        make.make_tensor_value_info(name, double, size) for name, size in {**inputs, "field": ["n", *shape]}.items()
    ]
    graph = make.make_graph(nodes, "randsmap", ends[:-1], ends[-1:], constants)
    # onnxruntime 1.15 also reads this version
    model = make.make_model(graph, producer_name="randsmap", opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    library.checker.check_model(model)
    write_atomically(path, lambda file: file.write(model.SerializeToString()))


public(globals())
