"""Frozen decoders: one immutable block of memory that C decodes with (src/randsmap/include/randsmap.h)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse import csr_array

from randsmap._interface.fields import FieldOutputMixin, FieldShape, field_rows, output
from randsmap._interface.validation import (
    check_choice,
    check_count,
    check_matrix,
    check_number,
    check_out,
    check_vectors,
)
from randsmap._io.files import expanded, write_atomically
from randsmap._kernels import frozen as _kernel
from randsmap._linalg.rows import filled
from randsmap._parallel import for_tiles

__all__ = ["FrozenDecoder", "FrozenEncoder", "FrozenModel", "get_include", "image_of", "is_image"]

MAX_BYTES = 256_000_000  # of a table
_SAMPLE_ROWS, _SAMPLE_ENTRIES = 2048, 1 << 26  # fields at which errors are measured
_SINGLE_ERROR = 2e-6  # relative, that float32 may add: half of what is promised
_FEWEST_CELLS, _PROBES = 8, 256
_MOST_AXES = 32


def library_path() -> str:
    """The shared library ``librandsmap``, or on Windows what a linker takes in its place.

    Raises
    ------
    FileNotFoundError
        In a source tree, which has none: it is built when the package is installed.
    """
    folder = Path(__file__).resolve().parent.parent / "lib"
    for pattern in ("librandsmap*.so*", "librandsmap*.dylib", "*randsmap*.lib", "*randsmap*.dll.a"):
        for path in sorted(folder.glob(pattern)):
            return str(path)
    raise FileNotFoundError(f"no shared library in {folder}: install the package (pip install .)")


def is_image(start: bytes) -> bool:
    """Whether a file that starts with these bytes calls itself an image."""
    return start[: len(_kernel.MAGIC)] == _kernel.MAGIC


def get_include() -> str:
    """The folder of ``randsmap.h``, for a compiler's ``-I``.

    Returns
    -------
    str
        The path of the folder, in which ``randsmap.hpp`` and ``randsmap.f90`` lie, too.

    Examples
    --------
    >>> import os, randsmap
    >>> os.path.exists(os.path.join(randsmap.get_include(), "randsmap.h"))
    True
    """
    package = Path(__file__).resolve().parent.parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "src" / "randsmap" / "include")


@dataclass
class FrozenEncoder:
    """An encoder as images hold it: coordinates z = (f - centre) modes, or without modes f - centre, of fields f; the
    latent point is z or, with rows (n, r), the Nystroem extension from them: a Gaussian kernel of that width, weights
    (d + 1, n) of its sums."""

    centre: NDArray[np.float64]
    modes: NDArray[Any] | None = None
    rows: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None
    width: float = 0.0


def image_of(
    linear: Any,
    *,
    precision: str = "float64",
    tol: float | None = None,
    kind: str = "features",
    latents: ArrayLike | None = None,
    box: NDArray[np.float64] | None = None,
    max_bytes: int = MAX_BYTES,
    single: bool = False,
    field_shape: tuple[int, ...] | None = None,
    encoder: FrozenEncoder | None = None,
) -> NDArray[np.uint8]:
    """The image of a `LinearMap`, see `LinearMapHolder.freeze`.

    Parameters
    ----------
    linear : LinearMap
    box : ndarray (2, d) or None
        Smallest and largest of the training points' coordinates, if known: where `latents` None means.
    single : bool
        Its fields are one-dimensional.
    field_shape : tuple of int or None
        Shape of a field, if it is no row of cells.
    encoder : FrozenEncoder or None
        What the image encodes fields with.
    """
    check_choice(precision, "precision", ("float64", "float32"))
    check_choice(kind, "kind", ("features", "table"))
    if tol is not None:
        check_number(tol, "tol", low=0, strict_low=True)
    check_count(max_bytes, "max_bytes")
    basis, A, invariants = linear.basis.frozen(), linear.A, linear.invariants
    dtype, d = np.dtype(precision), basis.n_components
    points = None
    if latents is not None:
        points = check_matrix(latents, "latents", n_columns=d)
        box = np.stack([points.min(axis=0), points.max(axis=0)])
    arrays: dict[str, NDArray[Any] | None] = dict(basis.arrays)
    rank_tol = tol if kind == "features" else None
    coefficients = _Coefficients.of(A, basis.output_coef)
    if precision == "float32" or rank_tol is not None:
        coefficients = _reduced(linear, coefficients, _sample(points, box, A.shape[1]), dtype, rank_tol)
    arrays.update(coefficients.arrays())
    if kind == "table":
        arrays.update(_table(linear, d, box, 1e-7 if tol is None else tol, max_bytes, dtype))
    q = 0
    if invariants is not None:
        arrays.update(invariants.frozen())
        q = invariants.matrix.shape[1]
    parameters = {
        "n_components": basis.n_components,
        "n_cells": A.shape[1],
        "n_invariants": q,
        "basis": basis.kind,
        "function": basis.function,
        "kind": _kernel.TABLE if kind == "table" else _kernel.FEATURES,
        "precision": 8 * dtype.itemsize,
        "projected": invariants is not None,
        "single": single,
    }
    arrays["parameters"] = np.array([parameters[name] for name in _kernel.PARAMETERS], dtype=np.int64)
    if field_shape is not None:
        arrays["field_shape"] = np.array(field_shape, dtype=np.int64)
    arrays["scalars"] = np.array([basis.scale, basis.low, basis.high, encoder.width if encoder else 0.0])
    if encoder is not None:
        arrays.update(
            encoder_centre=encoder.centre,
            encoder_modes=encoder.modes,
            encoder_rows=encoder.rows,
            encoder_weights=encoder.weights,
        )
    return assembled({name: array for name, array in arrays.items() if array is not None})


# -- Fewer or shorter numbers ----------------------------------------------------------------------
def _sample(points, box, M):
    """Latent points at which errors are measured: some of those given, or spread over the box; None without both."""
    n = int(np.clip(_SAMPLE_ENTRIES // M, 64, _SAMPLE_ROWS))
    if points is not None:
        return points[np.unique(np.linspace(0, len(points) - 1, n).astype(np.intp))]
    if box is None:
        return None
    return box[0] + np.random.default_rng(0).uniform(size=(n, box.shape[1])) * (box[1] - box[0])


class _Coefficients(NamedTuple):
    """Fields bias + phi factor modes, or without modes bias + phi factor: what an image has of them."""

    bias: NDArray[np.float64]
    factor: NDArray[Any]
    modes: NDArray[Any] | None = None

    @classmethod
    def of(cls, A: NDArray[np.float64], B: NDArray[np.float64] | None) -> _Coefficients:
        """Those of [1 | phi] A, or of [1 | [1 | phi] B] A."""
        return cls(A[0], A[1:]) if B is None else cls(A[0] + B[0] @ A[1:], B[1:], A[1:])

    def rounded(self, dtype: DTypeLike) -> _Coefficients:
        """The same in numbers of this type, but for the bias."""
        modes = None if self.modes is None else self.modes.astype(dtype, copy=False)
        return _Coefficients(self.bias, self.factor.astype(dtype, copy=False), modes)

    def times(self, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """The coefficients without bias, (P, M), times `directions` (M, k)."""
        return self.factor @ (directions if self.modes is None else self.modes @ directions)

    @property
    def size(self) -> int:
        return self.factor.size + (0 if self.modes is None else self.modes.size)

    def fields(self, functions: Any, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fields at X of these coefficients of a basis."""
        if self.modes is None:
            return _decoded(functions, X, np.vstack([self.bias, self.factor]))
        return self.bias + _without_bias(functions, X, self.factor) @ self.modes

    def arrays(self) -> dict[str, NDArray[Any]]:
        if self.modes is None:
            return {"bias": self.bias, "coefficients": self.factor}
        return {"bias": self.bias, "factor": self.factor, "modes": self.modes}


def _decoded(basis, X, A):
    """Fields [1 | phi(X)] A before any projection."""
    A = np.ascontiguousarray(A)
    out = np.empty((len(X), A.shape[1]))
    filled(lambda a, b: basis.decode(X[a:b], A, None, out[a:b], a), out)
    return out


def _without_bias(basis, X, factor):
    return _decoded(basis, X, np.vstack([np.zeros((1, factor.shape[1])), factor]))


def _linear_part(linear, X):
    """Fields of a `LinearMap` at X before any projection."""
    return _decoded(linear.basis, X, linear.A)


def _relative_errors(F, exact):
    """|f - exact| / |exact| of rows; small fields count as a thousandth of the median."""
    sizes = np.linalg.norm(exact, axis=1)
    floor = 1e-3 * np.median(sizes[sizes > 0]) if sizes.any() else 1.0
    return np.linalg.norm(F - exact, axis=1) / np.maximum(sizes, floor)


def _reduced(linear, coefficients, X, dtype, tol):
    """Coefficients of that type, or factors of them, whose fields at X agree to `tol` (None: to round-off of the
    type)."""
    if X is None:
        if tol is not None:
            raise ValueError("a rank by tolerance needs to know where: give latents=, points such as those to decode")
        return coefficients.rounded(dtype)
    exact, functions = _linear_part(linear, X), getattr(linear.basis, "functions", linear.basis)
    allowed = (0.0 if tol is None else tol) + (_SINGLE_ERROR if dtype == np.float32 else 0.0)
    best = np.inf
    for candidate in _candidates(functions, coefficients, X, exact, dtype, tol):
        error = _relative_errors(candidate.fields(functions, X), exact).max()
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
    P, M = len(coefficients.factor), exact.shape[1]
    if rank < min(len(X) - 1, M) and rank * (P + M) < coefficients.size:
        factor = coefficients.times(modes.T)
        bias = mean - _without_bias(functions, X, factor).mean(axis=0) @ modes
        yield from _roundings(_Coefficients(bias, factor, modes), dtype)
    if tol is not None:
        yield from _roundings(coefficients, dtype)


def _roundings(coefficients, dtype):
    """The coefficients in numbers of the type; then, if they are factors, the modes alone: what combines the functions
    may cancel."""
    yield coefficients.rounded(dtype)
    if coefficients.modes is not None and dtype == np.float32:
        yield coefficients._replace(modes=coefficients.modes.astype(dtype))


def _modes(G, sizes, tol):
    """Number and modes (r, M) of the fewest principal components that leave at most `tol` of the size of each row of G.

    A few more are kept, to a multiple of eight, which costs nothing.
    """
    U, sigma, Vt = scipy.linalg.svd(G, full_matrices=False, check_finite=False)
    floor = 1e-3 * np.median(sizes[sizes > 0]) if sizes.any() else 1.0
    left = np.sqrt(np.cumsum(((U * sigma) ** 2)[:, ::-1], axis=1))[:, ::-1] / np.maximum(sizes, floor)[:, None]
    enough = np.flatnonzero(left.max(axis=0) <= tol / 2)
    rank = int(enough[0]) if len(enough) else len(sigma)
    rank = min(-(-max(rank, 1) // 8) * 8, len(sigma))
    return rank, Vt[:rank]


# -- Tables ----------------------------------------------------------------------------------------
def _table(linear, d, box, tol, max_bytes, dtype):
    """Tensor B-splines of degree 7 on a uniform grid over the box, by collocation at points within it.

    The width of the cells is halved until the fields at their centres are those of the decoder, before bounds and
    projection, to `tol`.
    """
    if d > 2:
        raise ValueError(f"kind='table' needs at most 2 latent coordinates, got {d}: a table would be too large")
    if box is None:
        raise ValueError("kind='table' needs to know where: give latents=, points whose bounding box the table covers")
    low, width = box[0], box[1] - box[0]
    width = np.maximum(width, np.maximum(np.abs(low), 1) * 1e-9)  # of a coordinate that does not vary
    M, cells = linear.A.shape[1], np.full(d, _FEWEST_CELLS)
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
        coefficients = _collocated(linear, start, step, grid).astype(dtype, copy=False)
        errors = _table_errors(linear, coefficients, start, step, grid, tol)
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


def _splines(t, cells):
    """Values (len(t), cells + 7) of the splines at coordinates t in [0, cells], sparse."""
    first = np.minimum(t.astype(np.intp), cells - 1)
    weights = np.empty((len(t), _kernel.ORDER_OF_SPLINES))
    _kernel.spline_weights(t - first, weights)
    columns = first[:, None] + np.arange(weights.shape[1])
    return csr_array(
        (weights.ravel(), columns.ravel(), np.arange(len(t) + 1) * weights.shape[1]), shape=(len(t), cells + 7)
    )


def _along(operator, axis, values):
    """operator (a function of matrices) applied along one axis of an array."""
    moved = np.moveaxis(values, axis, 0)
    result = operator(np.ascontiguousarray(moved.reshape(len(moved), -1)))
    return np.moveaxis(result.reshape(len(result), *moved.shape[1:]), 0, axis)


def _collocated(linear, low, step, cells):
    """Coefficients (cells + 7, ..., M) of the splines that are the decoder's linear part at as many points: the grid's
    nodes, and the middle of the three outermost cells at each end."""
    middles = np.array([0.5, 1.5, 2.5])
    points = [np.sort(np.concatenate([np.arange(n + 1.0), middles, n - middles])) for n in cells]
    values = _linear_part(linear, _grid(low, step, points)).reshape(*(cells + 7), -1)
    for axis, (t, n) in enumerate(zip(points, cells)):
        B = _splines(t, n).tocoo()
        above, below = int((B.col - B.row).max()), int((B.row - B.col).max())
        bands = np.zeros((above + below + 1, n + 7))
        bands[above + B.row - B.col, B.col] = B.data
        values = _along(lambda F: scipy.linalg.solve_banded((below, above), bands, F, check_finite=False), axis, values)
    return np.ascontiguousarray(values)


def _table_errors(linear, coefficients, low, step, cells, tol):
    """Largest relative error at the centres of the cells within the margin; if that is more than `tol`, one a
    coordinate: the error of its own refinement."""
    centres = [np.arange(_kernel.MARGIN, n - _kernel.MARGIN) + 0.5 for n in cells]
    values = coefficients.astype(np.float64, copy=False)
    for axis, (t, n) in enumerate(zip(centres, cells)):
        values = _along(lambda F: _splines(t, n) @ F, axis, values)
    exact = _linear_part(linear, _grid(low, step, centres))
    error = float(_relative_errors(values.reshape(exact.shape), exact).max())
    if error <= tol or len(cells) == 1:
        return [error]
    errors = []
    rng = np.random.default_rng(0)
    for axis in range(len(cells)):  # centres along one axis, nodes along the others: a sample of them
        t = np.stack(
            [
                rng.integers(_kernel.MARGIN, n - _kernel.MARGIN, _PROBES) + 0.5 * (j == axis)
                for j, n in enumerate(cells)
            ],
            axis=1,
        )
        exact = _linear_part(linear, low + t * step)
        splines = [_splines(t[:, j], n) for j, n in enumerate(cells)]
        values = _row_products(*splines) @ coefficients.reshape(-1, exact.shape[1])
        errors.append(float(_relative_errors(values, exact).max()))
    return [max(e, error if e == max(errors) else 0.0) for e in errors]


def _row_products(A, B):
    """Row by row the Kronecker product of two sparse matrices of eight entries a row."""
    n, k = A.shape[0], _kernel.ORDER_OF_SPLINES
    columns = A.indices.reshape(n, k, 1).astype(np.int64) * B.shape[1] + B.indices.reshape(n, 1, k)
    data = A.data.reshape(n, k, 1) * B.data.reshape(n, 1, k)
    return csr_array((data.ravel(), columns.ravel(), np.arange(n + 1) * k * k), shape=(n, A.shape[1] * B.shape[1]))


def assembled(arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """One image of named arrays, as rk_image.h describes it: read-only, aligned to a cache line."""
    alignment = _kernel.ALIGNMENT
    matrices = {name: np.atleast_2d(array) for name, array in arrays.items()}
    offsets, end = [], 64 + 32 * len(matrices)
    for array in matrices.values():
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + array.nbytes
    size = -(-end // alignment) * alignment
    memory = np.zeros(size + alignment, np.uint8)
    image = memory[-memory.ctypes.data % alignment :][:size]
    header = np.zeros(1, _HEADER)
    header["magic"], header["order"], header["version"] = _kernel.MAGIC, _kernel.ORDER, _kernel.VERSION
    header["size"], header["n_sections"] = size, len(matrices)
    table = np.zeros(len(matrices), _SECTION)
    for entry, offset, (name, array) in zip(table, offsets, matrices.items()):
        entry["id"], entry["type"], entry["offset"] = _kernel.SECTIONS[name], _kernel.TYPES[array.dtype.name], offset
        entry["rows"], entry["columns"] = array.shape
        image[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)[:] = array
    image[64 : 64 + table.nbytes] = table.view(np.uint8)
    image[:64] = header.view(np.uint8)
    header["checksum"] = _kernel.checksum(image)
    image[:64] = header.view(np.uint8)
    image.flags.writeable = False
    return image


_HEADER = np.dtype(
    {
        "names": ["magic", "order", "version", "size", "checksum", "n_sections"],
        "formats": ["S8", "u4", "u4", "u8", "u8", "u4"],
        "offsets": [0, 8, 12, 16, 24, 32],
        "itemsize": 64,
    }
)
_SECTION = np.dtype([("id", "u4"), ("type", "u4"), ("offset", "u8"), ("rows", "u8"), ("columns", "u8")])


def _field_shape(image: Any, n_cells: int) -> tuple[int, ...] | None:
    """The shape of a field that an image which C has opened names, if any; ValueError if it is forged."""
    memory = np.frombuffer(image, np.uint8)
    count = int(memory[:64].view(_HEADER)["n_sections"][0])
    table = memory[64 : 64 + count * _SECTION.itemsize].view(_SECTION)
    for entry in table[table["id"] == _kernel.SECTIONS["field_shape"]]:
        start, axes = int(entry["offset"]), int(entry["columns"])
        part = memory[start : start + 8 * axes] if 2 <= axes <= _MOST_AXES else memory[:0]
        shape = tuple(part.view(np.int64).tolist()) if len(part) == 8 * axes else ()
        if len(shape) < 2 or min(shape) < 1 or math.prod(shape) != n_cells:
            raise ValueError(f"the image is damaged: fields of {n_cells} cells do not have the shape {shape}")
        return shape
    return None


class FrozenDecoder(FieldOutputMixin):
    """A decoder as one immutable block of memory, as ``decoder.freeze()`` makes it and C decodes with it.

    Parameters
    ----------
    image : bytes-like
        The image, as a file holds it; it is not copied. ``decoder.freeze()`` and `load` are the usual ways to one.

    Attributes
    ----------
    n_components, n_cells, n_invariants, n_features : int
        d latent coordinates, M cells, q invariants (columns of C), P functions of the latent point.
    kind : {"features", "table"}
    precision : {"float64", "float32"}
    nbytes : int
        Size of the image, in memory and in a file.
    field_shape_ : tuple of int
        Shape of a field, (M,) of rows; it is in the image.

    Raises
    ------
    ValueError
        If it is no image, damaged, cut off or forged, of a later version or of the other byte order.

    Notes
    -----
    The image is the file: `load` maps it, so that processes that load the same file share its memory, and
    ``randsmap_open`` in C (randsmap.h) opens what `save` has written. It depends on the byte order alone, not on
    the platform. A file from an untrusted source cannot do more than decode nonsense.

    One decoder may be used by any number of threads at once.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> fields = np.hstack([latents**2, 1 - latents**2])
    >>> decoder = randsmap.RANDSMAPDecoder(random_state=0).fit(latents, fields)
    >>> frozen = decoder.freeze()
    >>> bool(abs(frozen.predict([[0.3]]) - decoder.predict([[0.3]])).max() < 1e-13)
    True
    """

    def __init__(self, image: Any) -> None:
        self._decoder = _kernel.Decoder(image)
        self._row = self._decoder.row  # bound: one row must cost microseconds
        self._n_cells = self._decoder.n_cells
        shape = _field_shape(self._decoder.image, self._n_cells)
        self._field_shape = FieldShape(shape or (() if self._decoder.single else (self._n_cells,)))

    @property
    def n_components(self) -> int:
        return self._decoder.n_components

    @property
    def n_cells(self) -> int:
        return self._decoder.n_cells

    @property
    def n_invariants(self) -> int:
        return self._decoder.n_invariants

    @property
    def n_features(self) -> int:
        return self._decoder.n_features

    @property
    def kind(self) -> str:
        return "table" if self._decoder.kind == _kernel.TABLE else "features"

    @property
    def precision(self) -> str:
        return f"float{self._decoder.precision}"

    @property
    def nbytes(self) -> int:
        return memoryview(self._decoder.image).nbytes

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_components={self.n_components}, n_cells={self.n_cells}, kind={self.kind!r}, "
            f"precision={self.precision!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (bytes(self._decoder.image),)

    # -- Files -------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the image to a file, which `load` and ``randsmap_open`` in C map.

        Parameters
        ----------
        path : path
            The file is there whole or, if writing fails, as it was before. A file that is mapped is replaced, not
            overwritten: who has it open goes on with what was there.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_atomically(path, lambda file: file.write(memoryview(self._decoder.image)))

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
        ValueError
            If it is no image, damaged, cut off or forged, of a later version or of the other byte order.
        OSError
            If it cannot be read.
        """
        path = expanded(path)
        if not path.stat().st_size:
            raise ValueError(f"{path} is empty, not the image of a frozen decoder")
        try:
            return cls(np.memmap(path, np.uint8, "r"))
        except ValueError as error:
            raise ValueError(f"{path} is not the image of a frozen decoder: {error}") from None

    # -- Fields ------------------------------------------------------------------------------------
    def predict(
        self, X: ArrayLike, *, invariant_values: float | ArrayLike | None = None, out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Decode latent points.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates.
        invariant_values : float, array (q,), (n,) if q is 1, or (n, q), or None
            m of these rows in place of the fitted one, as in the decoder's own `predict`.
        out : ndarray (n, M), float64, C-contiguous, or None
            Where to put the fields, in their shape or as rows.

        Returns
        -------
        fields : ndarray (n, M), float64
            `out` if given; otherwise (n, *field_shape_), (n,) if the decoder was fitted to one-dimensional y. A row's
            result does not depend on the other rows.

        Raises
        ------
        ValueError, TypeError
            If X is not a finite array (n, d), out has the wrong shape, type or layout or shares memory with X,
            invariant_values do not fit or contradict each other or the bounds, or a field that has invariants to
            satisfy overflows.
        """
        if invariant_values is None and type(X) is np.ndarray and len(X) <= 8:
            fields = np.empty((len(X), self._n_cells)) if out is None else out
            try:
                if self._row(X, fields) == 0:
                    return fields if out is not None else self._in_shape(fields)
            except (BufferError, TypeError, ValueError):  # of another layout: taken, or refused in its own words
                pass
        return self._predict(X, invariant_values, out)

    def _predict(self, X, invariant_values, out):
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        n, M = len(X), self.n_cells
        if out is not None and np.may_share_memory(out, X):
            raise ValueError("out must not share memory with X")
        out = output(out, None, (n, *self.field_shape_))
        values = None if invariant_values is None else self._values(invariant_values, n)
        rows = out.reshape(n, M)

        def task(a, b):
            given = None if values is None else values[a:b]
            status = self._decoder.decode(X[a:b], given, rows[a:b])
            if status:
                self._refuse(
                    status,
                    a,
                    b,
                    lambda i: self._decoder.decode(
                        X[i : i + 1], None if values is None else values[i : i + 1], rows[i : i + 1]
                    ),
                )

        for_tiles(task, n)
        return out

    @staticmethod
    def _refuse(status, start, stop, again):
        """ValueError that names the first row of a failed tile; `again(i)`: the status of row i alone."""
        row = next((i for i in range(start, stop) if again(i)), start)
        raise ValueError(f"row {row} of X: {_kernel.message(status)}")

    def _values(self, values, n):
        """Values m (n, q) of each row, of the shapes that a decoder's `predict` takes."""
        q = self.n_invariants
        if q == 0:
            raise ValueError("invariant_values given, but this decoder does not project its fields on invariants")
        shape = np.shape(values)
        if shape not in {(), (q,), (n, q)} | ({(n,)} if q == 1 else set()) or (shape == () and q > 1):
            raise ValueError(
                f"invariant_values must have shape ({q},) for all rows, or ({n}, {q}) for each"
                + (f", or be a number or ({n},)" if q == 1 else "")
                + f", got {shape}"
            )
        values = np.asarray(values)
        values = values[:, None] if shape == (n,) and q == 1 and n != 1 else np.atleast_2d(values)
        return np.ascontiguousarray(np.broadcast_to(check_matrix(values, "invariant_values", min_rows=0), (n, q)))

    # -- Derivatives -------------------------------------------------------------------------------
    def jacobian(self, X: ArrayLike, *, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Derivatives of the fields with respect to the latents.

        Parameters
        ----------
        X : array-like (n, d)
            Latent points; there may be no rows.
        out : ndarray (n, *field_shape_, d), float64, C-contiguous, or None
            Where to put them.

        Returns
        -------
        ndarray (n, *field_shape_, d)
            `out` if it is given. With invariants C^T J = 0.

        Raises
        ------
        ValueError, TypeError
            As `predict`.
        """
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        n, d = X.shape
        out = check_out(out, (n, *self.field_shape_, d))
        out.reshape(n, self.n_cells, d)[:] = self._tangents(X, None, d).transpose(0, 2, 1)
        return out

    def jvp(self, X: ArrayLike, V: ArrayLike) -> NDArray[np.float64]:
        """Products J v of the derivatives with directions in the latent space.

        Parameters
        ----------
        X : array-like (n, d)
            Latent points.
        V : array-like (n, d) or (d,)
            A direction a point, or one for all.

        Returns
        -------
        ndarray (n, *field_shape_)
            C^T J v = 0 with invariants.

        Raises
        ------
        ValueError, TypeError
            As `predict`, and if V does not fit.
        """
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        V = np.ascontiguousarray(check_vectors(V, "V", *X.shape))
        out = self._tangents(X, V[:, None], 1)[:, 0]
        return out.reshape(len(X), *self.field_shape_)

    def _tangents(self, X, V, p):
        n, M = len(X), self.n_cells
        out = np.empty((n, p, M))

        def task(a, b):
            given = None if V is None else V[a:b]
            status = self._decoder.decode_jvp(X[a:b], given, np.empty((b - a, M)), out[a:b])
            if status:
                self._refuse(
                    status,
                    a,
                    b,
                    lambda i: self._decoder.decode_jvp(
                        X[i : i + 1], None if V is None else V[i : i + 1], np.empty((1, M)), out[i : i + 1]
                    ),
                )

        for_tiles(task, n)
        return out

    def vjp(self, X: ArrayLike, U: ArrayLike) -> NDArray[np.float64]:
        """Products J^T u: gradients of u . f with respect to the latents.

        Parameters
        ----------
        X : array-like (n, d)
            Latent points.
        U : array-like (n, M), (n, *field_shape_) or (M,)
            A functional a point, or one for all.

        Returns
        -------
        ndarray (n, d)

        Raises
        ------
        ValueError, TypeError
            As `predict`, and if U does not fit.
        """
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        if self._decoder.single:
            U = np.asarray(U)[..., None] if np.ndim(U) else U
        U = np.ascontiguousarray(check_vectors(self._vectors(U), "U", len(X), self.n_cells))
        out = np.empty(X.shape)

        def task(a, b):
            status = self._decoder.vjp(X[a:b], U[a:b], out[a:b])
            if status:
                self._refuse(status, a, b, lambda i: self._decoder.vjp(X[i : i + 1], U[i : i + 1], out[i : i + 1]))

        for_tiles(task, len(X))
        return out


class FrozenModel(FrozenDecoder):
    """Encoder and decoder as one immutable block of memory, as ``model.freeze()`` makes it.

    A `FrozenDecoder` with `transform`. In C ``randsmap_encode`` and ``randsmap_decode`` use the same image.

    Parameters
    ----------
    image : bytes-like
        The image, as a file holds it; it is not copied. ``model.freeze()`` and `load` are the usual ways to one.

    Raises
    ------
    ValueError
        As `FrozenDecoder`, and if the image has no encoder.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x = np.linspace(0, 1, 50)
    >>> bumps = np.exp(-((x - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2)
    >>> model = randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.KernelDecoder()).fit(bumps)
    >>> frozen = model.freeze()
    >>> bool(abs(frozen.transform(bumps) - model.transform(bumps)).max() < 1e-12)
    True
    """

    def __init__(self, image: Any) -> None:
        super().__init__(image)
        if not self._decoder.has_encoder:
            raise ValueError("the image holds no encoder: open it as a FrozenDecoder")

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Latents of fields.

        Parameters
        ----------
        X : array-like (n, M) or (n, *field_shape_)
            Fields; there may be no rows.

        Returns
        -------
        ndarray (n, d)

        Raises
        ------
        ValueError
            If X is not a finite array (n, M), or a field is too large for its distances from the training fields.
        """
        X = check_matrix(field_rows(self, X), "X", n_columns=self.n_cells, min_rows=0)
        out = np.empty((len(X), self.n_components))

        def task(a, b):
            status = self._decoder.encode(X[a:b], out[a:b])
            if status:
                self._refuse(status, a, b, lambda i: self._decoder.encode(X[i : i + 1], out[i : i + 1]))

        for_tiles(task, len(X))
        return out

    def inverse_transform(
        self, X: ArrayLike, *, invariant_values: float | ArrayLike | None = None, out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Fields at latents: `predict` under the name that models give it.

        Parameters
        ----------
        X : array-like (n, d)
            Latent points.
        invariant_values, out
            As for `predict`.

        Returns
        -------
        ndarray (n, M)

        Raises
        ------
        ValueError, TypeError
            As `predict`.
        """
        return self.predict(X, invariant_values=invariant_values, out=out)


def load_image(path: str | os.PathLike[str]) -> FrozenDecoder:
    """A `FrozenModel` if the file holds an encoder, else a `FrozenDecoder`."""
    decoder = FrozenDecoder.load(path)
    return FrozenModel(decoder._decoder.image) if decoder._decoder.has_encoder else decoder
