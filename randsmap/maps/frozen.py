"""Frozen decoders: one immutable block of memory, an image, that C decodes with (randsmap.h, rk_image.h)."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import BSpline, NdBSpline, make_interp_spline
from sklearn.base import clone

from randsmap._interface.arrays import as_array, empty_aligned
from randsmap._interface.callers import compiled
from randsmap._interface.fields import FieldOutputMixin, FieldShape, field_rows
from randsmap._interface.parameters import check_choice, check_count, check_number
from randsmap._interface.texts import shared_texts
from randsmap._io.files import expanded, write_atomically
from randsmap._kernels import linear_map as _kernel
from randsmap._linalg.rows import spread_rows
from randsmap._linalg.scales import error_scales, in_norm
from randsmap._linalg.svd import sufficient_rank
from randsmap.invariants import norm_weights
from randsmap.maps.error_bar import ErrorBar, with_error
from randsmap.maps.linear_map import LinearMap, jacobian, jvp, map_arrays, vjp
from randsmap.metrics import scaled_l2

OTHERWISE = "Pass distil=, a decoder of the package: it is fitted to the decoded fields and frozen instead"
MAX_BYTES = 256_000_000  # largest size of a table
_Values = NDArray[np.float64]


def library_path() -> str:
    """The shared library ``librandsmap``, or on Windows what a linker takes in its place; FileNotFoundError in a
    source tree, which has none."""
    folder = Path(__file__).resolve().parent.parent / "lib"
    for pattern in ("librandsmap*.so*", "librandsmap*.dylib", "*randsmap*.lib", "*randsmap*.dll.a"):
        for path in sorted(folder.glob(pattern)):
            return str(path)
    raise FileNotFoundError(f"no shared library in {folder}: install the package (pip install .)")


def get_include() -> str:
    """The folder of ``randsmap.h``, for the option ``-I`` of a compiler.

    Returns
    -------
    str
        The path of the folder, in which ``randsmap.hpp`` and ``randsmap.f90`` also lie.

    Examples
    --------
    >>> import os, randsmap
    >>> os.path.exists(os.path.join(randsmap.get_include(), "randsmap.h"))
    True
    """
    package = Path(__file__).resolve().parent.parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "src" / "randsmap" / "include")


# -- Images ----------------------------------------------------------------------------------------
_HEADER = np.dtype("S8, u4, u4, u8, u8, u4, 7u4")
_HEADER.names = "magic", "order", "version", "size", "checksum", "n_sections", "reserved"
_SECTION = np.dtype([("id", "u4"), ("type", "u4"), ("offset", "u8"), ("rows", "u8"), ("columns", "u8")])


def is_image(start: bytes) -> bool:
    """True if a file that starts with these bytes calls itself an image."""
    return start[: len(_kernel.MAGIC)] == _kernel.MAGIC


def assembled(arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """One image of named arrays, as rk_image.h describes it: read-only, aligned to a cache line."""
    alignment = _kernel.ALIGNMENT
    for name in arrays.keys() & {"parts", "input"}:
        maps: Any = arrays[name] if name == "parts" else (arrays[name],)
        if max(part.kernel.depth for part in maps) >= _kernel.MOST_DEPTH:
            most = f"an image holds maps within maps, such as blends of blends, to a depth of {_kernel.MOST_DEPTH}"
            raise TypeError(f"these decoders are nested too deeply: {most}. {OTHERWISE}")
        arrays = arrays | {name: np.concatenate([image_of(part) for part in maps]).view(np.int64)}
    matrices = {name: np.atleast_2d(array) for name, array in arrays.items()}
    table = np.zeros(len(matrices), _SECTION)
    end = _HEADER.itemsize + table.nbytes
    for entry, (name, array) in zip(table, matrices.items()):
        entry["id"], entry["type"] = _kernel.SECTIONS[name], _kernel.TYPES[array.dtype.name]
        entry["offset"] = -(-end // alignment) * alignment
        entry["rows"], entry["columns"] = array.shape
        end = int(entry["offset"]) + array.nbytes
    image = empty_aligned((-(-end // alignment) * alignment,), np.uint8)
    image[:] = 0
    header = image[: _HEADER.itemsize].view(_HEADER)
    header["magic"], header["order"], header["version"] = _kernel.MAGIC, _kernel.ORDER, _kernel.VERSION
    header["size"], header["n_sections"] = len(image), len(table)
    image[_HEADER.itemsize :][: table.nbytes] = table.view(np.uint8)
    for entry, array in zip(table, matrices.values()):
        image[int(entry["offset"]) :][: array.nbytes].view(array.dtype).reshape(array.shape)[:] = array
    header["checksum"] = _kernel.checksum(image)
    image.flags.writeable = False
    return image


def image_of(part):
    """The image of a map that is a part of another one, or that it was opened of."""
    if part.basis is None:
        return part.kernel.source
    return assembled(map_arrays(part.basis, part.coefficients, part.invariants))


def section_of(image: Any, name: str) -> NDArray[Any] | None:
    """A section (rows, columns) of an image that C has opened, which has checked where it lies; None: it has none."""
    memory = np.frombuffer(image, np.uint8)
    count = int(memory[: _HEADER.itemsize].view(_HEADER)["n_sections"][0])
    table = memory[_HEADER.itemsize :][: count * _SECTION.itemsize].view(_SECTION)
    types = {number: np.dtype(name) for name, number in _kernel.TYPES.items()}
    for entry in table[table["id"] == _kernel.SECTIONS[name]]:
        dtype, shape = types[int(entry["type"])], (int(entry["rows"]), int(entry["columns"]))
        part = memory[int(entry["offset"]) :][: dtype.itemsize * math.prod(shape)]
        return part.view(dtype).reshape(shape)
    return None


def field_shape_of(image: Any, n_cells: int) -> tuple[int, ...] | None:
    """The shape of a field that an image which C has opened names, if any; ValueError if it is forged."""
    found = section_of(image, "field_shape")
    if found is None:
        return None
    shape = tuple(found[:1, :33].ravel().tolist()) if found.dtype == np.int64 else ()  # NumPy's had at most 32 axes
    if not 2 <= len(shape) <= 32 or min(shape) < 1 or math.prod(shape) != n_cells:
        raise ValueError(f"the image is damaged: fields of {n_cells} cells do not have the shape {shape}")
    return shape


# -- Frozen decoders -------------------------------------------------------------------------------
def _of_kernel(name: str) -> Any:
    """An attribute of the structure that C decodes with."""
    return property(lambda self: getattr(self.linear_map.kernel, name))


@shared_texts
class FrozenDecoder(FieldOutputMixin):
    """A decoder as one immutable block of memory, the image, which ``decoder.freeze()`` returns and C programs read.

    Use it in time loops and in programs without Python; processes and threads share one image. It cannot be fitted.

    Parameters
    ----------
    image : bytes-like
        The image, as in a file; it is not copied. Usually ``decoder.freeze()`` or `load` returns the decoder.

    Attributes
    ----------
    n_components, n_cells, n_invariants, n_features : int
        d latent coordinates, M cells, q invariants (columns of C), P functions of the latent point.
    kind : {"features", "table"}
    precision : {"float64", "float32"}
    nbytes : int
        Size of the image, in memory and in a file.
    field_shape_ : tuple of int
        Shape of a field; (M,) for rows.

    Raises
    ------
    ValueError
        If the bytes are no image, or it is damaged, cut off, forged, of a later version or of the other byte order.

    Notes
    -----
    The file of `save` is the image. `load` maps the file, so that processes share its memory, and ``randsmap_open`` in
    C (randsmap.h) opens it. An image depends on the byte order, not on the platform. A file from an untrusted source
    can decode wrong fields, but runs no code. Any number of threads may use one decoder at once.

    Examples
    --------
    {curve}
    >>> decoder = randsmap.RANDSMAPDecoder(random_state=0).fit(latents, fields)
    >>> frozen = decoder.freeze()
    >>> bool(abs(frozen.predict([[0.3]]) - decoder.predict([[0.3]])).max() < 1e-13)
    True
    """

    def __init__(self, image: Any) -> None:
        self.linear_map = LinearMap.of(image)
        self._row = self.linear_map.kernel.row  # a bound method: one row takes microseconds
        self._n_cells = self.linear_map.n_cells
        shape = field_shape_of(image, self._n_cells)
        self._field_shape = FieldShape(shape or (() if self.linear_map.kernel.single else (self._n_cells,)))

    n_components = _of_kernel("n_components")
    n_cells = _of_kernel("n_cells")
    n_invariants = _of_kernel("n_invariants")
    n_features = _of_kernel("n_features")
    checked_latents = property(lambda self: self.linear_map.checked)

    @property
    def kind(self) -> str:
        return "table" if self.linear_map.kernel.kind == _kernel.TABLE else "features"

    @property
    def precision(self) -> str:
        return f"float{self.linear_map.kernel.precision}"

    @property
    def nbytes(self) -> int:
        return memoryview(self.linear_map.kernel.source).nbytes

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_components={self.n_components}, n_cells={self.n_cells}, kind={self.kind!r}, "
            f"precision={self.precision!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (bytes(self.linear_map.kernel.source),)

    # -- Files -------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the image to a file, which `load` and ``randsmap_open`` in C map.

        Parameters
        ----------
        path : path
            The file is written whole or not at all. One that is mapped is replaced: who has it open goes on with it.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_atomically(path, lambda file: file.write(memoryview(self.linear_map.kernel.source)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The decoder of a file, mapped into memory: nothing is copied, and processes share it.

        Parameters
        ----------
        path : str or path-like
            A file that `save` has written; ``~`` is expanded.

        Returns
        -------
        FrozenDecoder
            Or `FrozenModel`, called as ``FrozenModel.load``.

        Raises
        ------
        ValueError, OSError
            As the class, and if the file cannot be read.
        """
        path = expanded(path)
        if not path.stat().st_size:
            raise ValueError(f"{path} is empty, not the image of a frozen decoder")
        try:
            return cls(np.memmap(path, np.uint8, "r"))
        except ValueError as error:
            raise ValueError(f"{path} is not the image of a frozen decoder: {error}") from None

    # -- Fields ------------------------------------------------------------------------------------
    @compiled
    def predict(
        self,
        X: ArrayLike,
        *,
        invariant_values: float | ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
        return_error: bool | str = False,
        coverage: float = 0.9,
    ) -> Any:
        """Decode latent points.

        {latents} {invariant_values} {cells} {out} {return_error} {returns_fields} {raises}
        """
        if return_error is not False or coverage != 0.9:
            fields = self.predict(X, invariant_values=invariant_values, cells=cells, out=out)
            return with_error(fields, self, X, return_error, coverage)
        if invariant_values is None and cells is None and type(X) is np.ndarray and len(X) <= 8:
            fields = np.empty((len(X), self._n_cells)) if out is None else out
            try:
                if self._row(X, fields) == 0:
                    return fields if out is not None else self._in_shape(fields)
            except (BufferError, TypeError, ValueError):  # the layout differs: the general check accepts it or raises
                pass
        X, cells = self.checked_latents(X, invariant_values=invariant_values), self._checked_cells(cells)
        return self.linear_map.fields(X, invariant_values, cells, out, self.field_shape_)

    @property
    def cell_weights(self) -> _Values | None:
        """Weights (M,) of the norm of fields; None: ones."""
        found = section_of(self.linear_map.kernel.source, "cell_weights")
        return None if found is None else np.array(found, dtype=float).reshape(self.field_shape_)

    @cached_property
    def error_bar_(self) -> ErrorBar:
        """How far decoded fields may be off; AttributeError without ``freeze(error_bar=True)``."""
        matrix = section_of(self.linear_map.kernel.source, "error_bar")
        if matrix is None:
            raise AttributeError("the image has no error bar: decoder.freeze(error_bar=True) puts it there")
        return ErrorBar.of_matrix(np.array(matrix, dtype=float), self.n_components - self.linear_map.kernel.n_own)

    @property
    def distilled_error_(self) -> float:
        """Mean relative L2 error in the place of another decoder, by ``freeze(distil=...)``; 0: it is the decoder."""
        scalars: Any = np.ravel(section_of(self.linear_map.kernel.source, "scalars"))  # type: ignore[arg-type]
        return float(scalars[6]) if len(scalars) > 6 else 0.0

    jacobian = jacobian
    jvp = jvp
    vjp = vjp


@shared_texts
class FrozenModel(FrozenDecoder):
    """Encoder and decoder as one immutable block of memory, as ``model.freeze()`` makes it.

    A `FrozenDecoder` with `transform`. In C ``randsmap_encode`` and ``randsmap_decode`` use the same image.

    Parameters
    ----------
    image : bytes-like
        As of a `FrozenDecoder`.

    Raises
    ------
    ValueError
        As `FrozenDecoder`, and if the image has no encoder.

    Examples
    --------
    {bumps}
    >>> model = randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.KernelDecoder()).fit(bumps)
    >>> frozen = model.freeze()
    >>> bool(abs(frozen.transform(bumps) - model.transform(bumps)).max() < 1e-12)
    True
    """

    def __init__(self, image: Any) -> None:
        super().__init__(image)
        if not self.linear_map.kernel.has_encoder:
            raise ValueError("the image holds no encoder: open it as a FrozenDecoder")

    def transform(self, X: ArrayLike, *, projection: int | None = None) -> NDArray[np.float64]:
        """Latents of fields; also a ValueError if one is too large for its distances from the training fields.

        An image does not know the mass of the training fields: there is no warning of fields in other units.

        {fields} {projection} {returns_latents} {raises}
        """
        n_steps = -1 if projection is None else check_count(projection, "projection", low=0, high=_kernel.MOST_STEPS)
        return self.linear_map.encode(as_array(field_rows(self, X), "X", (None, self.n_cells), min_rows=0), n_steps)

    inverse_transform = FrozenDecoder.predict


def load_image(path: str | os.PathLike[str]) -> FrozenDecoder:
    """A `FrozenModel` if the file holds an encoder, else a `FrozenDecoder`."""
    decoder = FrozenDecoder.load(path)
    return FrozenModel(decoder.linear_map.kernel.source) if decoder.linear_map.kernel.has_encoder else decoder


# -- Freezing --------------------------------------------------------------------------------------
def freeze(
    self: Any,
    *,
    precision: str = "float64",
    tol: float | None = None,
    kind: str = "features",
    latents: ArrayLike | None = None,
    max_bytes: int = MAX_BYTES,
    error_bar: bool | ErrorBar = False,
    encoder: Any = None,
    regressor: Any = None,
    distil: Any = None,
    distilled: float = 0.0,
) -> FrozenDecoder:
    """The decoder as one immutable block of memory, which decodes without Python: in C, or here with less overhead.

    Parameters
    ----------
    precision : {"float64", "float32"}, default="float64"
        Of the coefficients that are stored. "float32" decodes to 5e-6 of a field's norm. Sums have double
        precision, and invariants, constant cells and bounds hold as exactly, in both. A `KNNDecoder` mixes training
        fields and has no projection: it keeps them in float64.
    tol : float or None
        Relative L2 error that fields may have. kind="features": at `latents`, for a product of two smaller matrices
        instead of the coefficients; None: the coefficients themselves. Smooth fields have few modes, shocks many.
        kind="table": at the centres of its cells; None: 1e-7.
    kind : {"features", "table"}, default="features"
        "table", for one or two latent coordinates: tensor B-splines of degree 7 on a uniform grid over the
        bounding box of `latents`, refined until `tol` holds, at a cost independent of the number of features.
        Outside the box, and before bounds and invariants, the decoder itself.
    latents : array-like (n, d) or None
        Points such as those that will be decoded. None: the box of the training points, which POD does not know.
    max_bytes : int
        Largest table.
    error_bar : bool
        With what `predict` needs for return_error=True, and randsmap_error in C: d + 5 numbers for each of at most 2000
        training points. With `distil` those of this decoder, its errors and ``distilled_error_`` added in squares.
    encoder : fitted encoder or None
        What `ManifoldModel.freeze` adds.
    regressor : fitted ParametricModel or None
        What its own `freeze` adds: whose regressor decodes parameters to latents.
    distil : decoder or None
        Frozen in the place of this one: a clone, fitted to the fields that this one decodes at three of four of up to
        2048 points, `latents` or spread over their box. ``distilled_error_`` is what it misses at the others.
    distilled : float
        What is kept as that error.

    Returns
    -------
    FrozenDecoder, with an encoder FrozenModel
        In float64, without `tol` and table, it decodes up to 12 rows to the bits of `predict`, more to round-off.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        Before `fit`.
    TypeError
        If C does not support the features of another package's transformer, also in a part of a blend.
    ValueError
        If an argument is out of range, a table needs more than max_bytes, coefficients cancel too much for
        float32, or latents are needed and not given.

    Examples
    --------
    {curve}
    >>> decoder = randsmap.RANDSMAPDecoder(random_state=0).fit(latents, fields)
    >>> table = decoder.freeze(kind="table")
    >>> bool(abs(table.predict([[0.3]]) - decoder.predict([[0.3]])).max() < 1e-7)
    True
    """
    if steps := getattr(encoder or getattr(regressor, "model_", None), "consistency", 0):
        advice = "C does not support these steps. Decode without them, set_params(consistency=0)"
        raise TypeError(f"a model with consistency={steps} cannot be frozen: {advice}")
    around = getattr(getattr(getattr(self, "estimator_", self), "fitted", None), "training_points", None)
    if distil is not None:
        student, distilled = _distilled(self, distil, latents, around, encoder, regressor)
        if error_bar and (bar := (encoder or regressor or self).error_bar_):
            error_bar = replace(bar, errors=np.hypot(bar.errors, distilled))
        options = {"precision": precision, "tol": tol, "kind": kind, "latents": latents, "max_bytes": max_bytes}
        return student.freeze(**options, error_bar=error_bar, encoder=encoder, regressor=regressor, distilled=distilled)
    linear, is_table, points = self.linear_map, kind == "table", None
    check_choice(precision, "precision", ("float64", "float32"))
    check_choice(kind, "kind", ("features", "table"))
    if tol is not None:
        check_number(tol, "tol", low=0, strict_low=True)
    check_count(max_bytes, "max_bytes")
    if linear.basis.not_frozen:
        raise TypeError(f"{type(self).__name__} cannot be frozen: {linear.basis.not_frozen}. {OTHERWISE}")
    if linear.basis.kind == _kernel.MIXTURE:
        precision = "float64"  # rounded rows would have a different mass
    if linear.is_single:
        precision = "float32"
    if latents is not None:
        points = around = as_array(latents, "latents", (None, linear.basis.n_components))
    box = None if around is None else np.stack([around.min(axis=0), around.max(axis=0)])
    arrays, basis = dict(linear.coefficients), linear.basis
    if is_table or (precision == "float32" and not linear.is_single) or tol is not None:
        weights = getattr(linear.invariants, "cell_weights", None)
        # errors are those in the norm of the cell weights
        bias = in_norm(linear.coefficients["bias"][None], weights)[0]
        unprojected = LinearMap(linear.basis, in_norm(linear.A, weights), None, linear.combinations, bias)
        arrays, dtype = dict(unprojected.coefficients), np.dtype(precision)
        if precision == "float32" or not is_table:
            X = _sample(points, box, linear.n_cells)
            basis = _rounded_parts(basis, dtype)
            arrays = _reduced(unprojected, basis, arrays, X, dtype, None if is_table else tol)
        if is_table:
            arrays |= _table(unprojected, box, 1e-7 if tol is None else tol, max_bytes, dtype)
        if weights is not None:
            for name in arrays.keys() & {"bias", "coefficients", "modes", "table_values"}:
                arrays[name] = (arrays[name] / np.sqrt(weights)).astype(arrays[name].dtype)
    if len(self.field_shape_) > 1:
        arrays["field_shape"] = np.array(self.field_shape_, dtype=np.int64)
    if error_bar:
        bar = error_bar if isinstance(error_bar, ErrorBar) else (encoder or regressor or self).error_bar_
        arrays |= bar.sections
    behind = {} if encoder is None else encoder.frozen_encoder(precision, tol)
    if regressor is not None:
        behind = {"input": regressor.regressor_.linear_map}
    image = assembled(
        map_arrays(
            basis,
            arrays,
            linear.invariants,
            kind=_kernel.TABLE if is_table else _kernel.FEATURES,
            precision=int(precision[-2:]),
            single=self.field_shape_ == (),
            encoder={**behind, "distilled": distilled},
        )
    )
    return FrozenDecoder(image) if encoder is None else FrozenModel(image)


def _distilled(taught, decoder, latents, around, encoder, regressor):
    """A clone fitted to the fields of another decoder, in its norm, and the mean relative L2 error elsewhere."""
    points = None if latents is None else as_array(latents, "latents")
    around = around if points is None else points
    if around is None or len(around) < 8:
        raise ValueError("distil needs latents=: at least 8 points like those that will be decoded")
    X = _sample(points, np.stack([around.min(axis=0), around.max(axis=0)]), np.size(taught.predict(around[:1])))
    F, left = np.asarray(taught.predict(X), dtype=float), np.arange(len(X)) % 4 == 3
    student, F = clone(decoder), F.reshape(-1, *getattr(encoder or regressor or taught, "field_shape_", F.shape[1:]))
    weights = norm_weights(F.shape[1:], encoder or regressor or taught)
    if weights is not None and getattr(student, "cell_weights", weights) is None:
        student.cell_weights = np.reshape(weights, F.shape[1:])
    student.fit(X[~left], F[~left])
    weights = getattr(student.linear_map.invariants, "cell_weights", None)
    both = (in_norm(np.reshape(each, (left.sum(), -1)), weights) for each in (F[left], student.predict(X[left])))
    return student, float(np.mean(scaled_l2(*both)))


# -- Fewer or shorter numbers ----------------------------------------------------------------------
def _sample(points, box, M):
    """Latent points at which errors are measured: some of those given, or spread over the box; None without both."""
    n = int(np.clip((1 << 26) // M, 64, 2048))  # at most 512 MB of fields, unless 64 of them are more
    if points is not None:
        return points[spread_rows(len(points), n)]
    if box is None:
        return None
    return box[0] + np.random.default_rng(0).uniform(size=(n, box.shape[1])) * (box[1] - box[0])


def _rounded_parts(basis, dtype):
    """The functions, with parts whose coefficients are numbers of that type."""
    if not basis.parts or dtype == np.float64:
        return basis
    parts = []
    for part in basis.parts:
        of_part = _rounded_parts(part.basis, dtype), _rounded(part.coefficients, dtype), part.invariants
        parts.append(LinearMap.of(assembled(map_arrays(*of_part, precision=32))))
    return replace(basis, parts=tuple(parts))


def _reduced(unprojected, basis, coefficients, X, dtype, tol):
    """Coefficients of that type, or factors of them, whose fields at X agree to `tol` (None: to round-off of the
    type)."""
    if X is None:
        if tol is not None:
            raise ValueError("tol needs points like those that will be decoded: give latents= (--latents)")
        return _rounded(coefficients, dtype)
    exact = unprojected.fields(X)
    # float32 may add less than half of the documented 5e-6
    allowed = (0.0 if tol is None else tol) + (2e-6 if dtype == np.float32 else 0.0)
    best = np.inf
    for candidate in _candidates(basis, coefficients, X, exact, dtype, tol):
        arrays: Any = map_arrays(basis, candidate)
        image = arrays if dtype == np.float64 else assembled(arrays)  # all sums of the kernels are in double precision
        error = scaled_l2(exact, LinearMap.of(image).fields(X)).max()
        if error <= allowed:
            return candidate
        best = min(best, error)
    if dtype == np.float64:
        return coefficients
    raise ValueError(
        f"precision='float32' decodes these fields to {best:.1e} of their norm at best, expected {allowed:.1e}: the "
        "coefficients cancel. Use precision='float64', or a larger regularization"
    )


def _candidates(functions, coefficients, X, exact, dtype, tol):
    """Coefficients, the cheapest first."""
    if tol is None:
        yield from _roundings(coefficients, dtype)
    mean = exact.mean(axis=0)
    rank, modes = _modes(exact - mean, np.linalg.norm(exact, axis=1), 1e-7 if tol is None else tol)
    P, M = len(coefficients["factor" if "modes" in coefficients else "coefficients"]), exact.shape[1]
    size = sum(array.size for array in coefficients.values()) - M
    if rank < min(len(X) - 1, M) and rank * (P + M) < size:
        if "modes" in coefficients:
            factor = coefficients["factor"] @ (coefficients["modes"] @ modes.T)
        else:
            factor = coefficients["coefficients"] @ modes.T
        coordinates = LinearMap.of(map_arrays(functions, {"bias": np.zeros(rank), "coefficients": factor})).fields(X)
        start = -coordinates.mean(axis=0)
        yield from _roundings({"bias": mean, "start": start, "factor": factor, "modes": modes}, dtype)
    if tol is not None:
        yield from _roundings(coefficients, dtype)


def _rounded(coefficients, dtype, kept=("bias", "start")):
    """The coefficients in numbers of this type; the bias and the start keep theirs."""
    return {name: a if name in kept else a.astype(dtype, copy=False) for name, a in coefficients.items()}


def _roundings(coefficients, dtype):
    """The coefficients in numbers of the type; then, if they are factors, the modes alone: the combinations of the
    functions may cancel."""
    yield _rounded(coefficients, dtype)
    if "modes" in coefficients and dtype == np.float32:
        yield _rounded(coefficients, dtype, kept=("bias", "start", "factor"))


def _modes(G, sizes, tol):
    """Number and modes (r, M) of the fewest principal components that leave at most `tol` of the size of each row of G,
    and of a few more: a multiple of eight."""
    U, sigma, Vt = scipy.linalg.svd(G, full_matrices=False, check_finite=False)
    enough = sufficient_rank(U * sigma, tol / 2 * error_scales(sizes)) or 1
    rank = min(-(-enough // 8) * 8, len(sigma))
    return rank, Vt[:rank]


# -- Tables ----------------------------------------------------------------------------------------
def _table(unprojected, box, tol, max_bytes, dtype):
    """Tensor B-splines of degree 7 on a uniform grid over the box, by collocation, whose cells are halved until the
    fields at their centres are those of the decoder, before bounds and projection, to `tol`."""
    d = unprojected.basis.n_components
    if d > 2:
        raise ValueError(f"kind='table' needs at most 2 latent coordinates, got {d}: a table would be too large")
    if box is None:
        raise ValueError("kind='table' needs points in the box that it covers: give latents= (--latents)")
    if not unprojected.basis.smooth:
        raise ValueError(
            "kind='table' is for smooth fields: mixtures of neighbours have kinks, which splines do not follow. Use "
            "kind='features'"
        )
    low, width = box[0], box[1] - box[0]
    width = np.maximum(width, np.maximum(np.abs(low), 1) * 1e-9)  # the width of a constant coordinate would be 0
    M, cells = unprojected.n_cells, np.full(d, 8)
    error = np.inf
    while True:
        grid = cells + 2 * _kernel.MARGIN
        nbytes = int(np.prod(grid + 7)) * M * dtype.itemsize
        if nbytes > max_bytes:
            reached = "" if error == np.inf else f" (a coarser one errs by {error:.1e} of a field's norm)"
            raise ValueError(
                f"a table to tol={tol:.1e} needs more than max_bytes={max_bytes}: {nbytes} bytes for "
                f"{' x '.join(map(str, cells))} cells{reached}. Use a larger tol, kind='features' or more memory"
            )
        step = width / cells
        start = low - _kernel.MARGIN * step
        coefficients = _collocated(unprojected, start, step, grid).astype(dtype, copy=False)
        errors = _table_errors(unprojected, coefficients, start, step, grid, tol)
        error = max(errors)
        if error <= tol:
            break
        coarse = [j for j in range(d) if errors[j] > tol / 4] or range(d)
        cells[coarse] *= 2
    return {
        "table_values": coefficients.reshape(-1, M),
        "table_counts": np.asarray(grid + 7, dtype=np.int64),
        "table_box": np.stack([start, step]),
    }


def _grid(low, step, coordinates):
    """Points (n, d) of the tensor product of coordinates in units of the cells."""
    axes = np.meshgrid(*coordinates, indexing="ij")
    return low + np.stack([a.ravel() for a in axes], axis=1) * step


def _knots(cells):
    """Knots of the splines of a grid, in units of its cells."""
    return np.arange(-7.0, cells + 8)


def _collocated(unprojected, low, step, cells):
    """Coefficients (cells + 7, ..., M) of the splines that are the decoder's linear part at as many points: the grid's
    nodes, and the middle of the three outermost cells at each end."""
    middles = np.array([0.5, 1.5, 2.5])
    points = [np.sort(np.concatenate([np.arange(n + 1.0), middles, n - middles])) for n in cells]
    values = unprojected.fields(_grid(low, step, points)).reshape(*(cells + 7), -1)
    for axis, (t, n) in enumerate(zip(points, cells)):
        spline = make_interp_spline(t, values, 7, _knots(n), axis=axis, check_finite=False)
        values = np.moveaxis(spline.c, 0, axis)
    return np.ascontiguousarray(values)


def _table_errors(unprojected, coefficients, low, step, cells, tol):
    """Largest relative error at the centres of the cells within the margin; if that is more than `tol`, one a
    coordinate: the error of its own refinement."""
    centres = [np.arange(_kernel.MARGIN, n - _kernel.MARGIN) + 0.5 for n in cells]
    knots, values = tuple(map(_knots, cells)), coefficients
    for axis, t in enumerate(centres):
        values = BSpline(knots[axis], values, 7, axis=axis)(t)
    exact = unprojected.fields(_grid(low, step, centres))
    error = float(scaled_l2(exact, values.reshape(exact.shape)).max())
    if error <= tol or len(cells) == 1:
        return [error]
    errors = []
    rng = np.random.default_rng(0)
    for axis in range(len(cells)):  # centres along one axis, nodes along the others: a sample of them
        t = np.stack(
            [rng.integers(_kernel.MARGIN, n - _kernel.MARGIN, 256) + 0.5 * (j == axis) for j, n in enumerate(cells)],
            axis=1,
        )
        exact = unprojected.fields(low + t * step)
        errors.append(float(scaled_l2(exact, NdBSpline(knots, coefficients, 7)(t)).max()))
    return [max(e, error if e == max(errors) else 0.0) for e in errors]
