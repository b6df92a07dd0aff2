"""Images of linear maps (rk_image.h): the arrays of a map in one block of memory, or fewer and shorter numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from randsmap._interface.arrays import as_array
from randsmap._interface.parameters import check_choice, check_count, check_number
from randsmap._kernels import linear_map as _kernel
from randsmap._linalg.scales import error_scales, in_norm
from randsmap.maps.linear_map import Basis, LinearMap, map_arrays

MAX_BYTES = 256_000_000  # of a table
_Values = NDArray[np.float64]


@dataclass
class FrozenEncoder:
    """Encoder data stored in an image: coordinates z = (f - centre) modes, or without modes f - centre, of fields f.

    The latent point is z or, with rows (n, r), the Nystroem extension from them: a Gaussian kernel of that width, and
    weights (d + 1, n) of its sums.
    """

    centre: _Values
    modes: NDArray[Any] | None = None
    rows: NDArray[Any] | None = None
    weights: _Values | None = None
    width: float = 0.0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By the names of their sections."""
        arrays = {name: getattr(self, name) for name in ("centre", "modes", "rows", "weights")}
        return {f"encoder_{name}": array for name, array in arrays.items() if array is not None}


def is_image(start: bytes) -> bool:
    """True if a file that starts with these bytes calls itself an image."""
    return start[: len(_kernel.MAGIC)] == _kernel.MAGIC


def image_of(
    linear: LinearMap,
    *,
    precision: str = "float64",
    tol: float | None = None,
    kind: str = "features",
    latents: ArrayLike | None = None,
    box: _Values | None = None,
    max_bytes: int = MAX_BYTES,
    field_shape: tuple[int, ...] = (0,),
    encoder: FrozenEncoder | None = None,
    owner: str = "a map",
) -> NDArray[np.uint8]:
    """The image of a `LinearMap`, of an `owner`: `LinearMapHolder.freeze`, which describes the arguments.

    `box` (2, d) bounds the training points, for where no `latents` are given; `field_shape` is () of one-dimensional
    fields.
    """
    check_choice(precision, "precision", ("float64", "float32"))
    check_choice(kind, "kind", ("features", "table"))
    if tol is not None:
        check_number(tol, "tol", low=0, strict_low=True)
    check_count(max_bytes, "max_bytes")
    basis, dtype, is_table = linear.basis, np.dtype(precision), kind == "table"
    if not isinstance(basis, Basis):
        raise TypeError(f"{owner} cannot be frozen: {basis.not_frozen}")
    points = None
    if latents is not None:
        points = as_array(latents, "latents", (None, basis.n_components))
        box = np.stack([points.min(axis=0), points.max(axis=0)])
    rank_tol, weights = None if is_table else tol, getattr(linear.invariants, "cell_weights", None)
    approximate = is_table or precision == "float32" or rank_tol is not None
    A = in_norm(linear.A, weights) if approximate else linear.A  # errors are those in the norm of the cell weights
    unprojected, arrays = LinearMap(basis, A), basis.coefficients(A)
    if precision == "float32" or rank_tol is not None:
        arrays = _reduced(unprojected, arrays, _sample(points, box, linear.n_cells), dtype, rank_tol)
    if is_table:
        arrays.update(_table(unprojected, box, 1e-7 if tol is None else tol, max_bytes, dtype))
    if approximate and weights is not None:
        for name in arrays.keys() & {"bias", "coefficients", "modes", "table_values"}:
            arrays[name] = (arrays[name] / np.sqrt(weights)).astype(arrays[name].dtype)
    if encoder is not None:
        arrays.update(encoder.arrays())
    if len(field_shape) > 1:
        arrays["field_shape"] = np.array(field_shape, dtype=np.int64)
    return assembled(
        map_arrays(
            basis,
            arrays,
            linear.invariants,
            kind=_kernel.TABLE if is_table else _kernel.FEATURES,
            precision=8 * dtype.itemsize,
            single=field_shape == (),
            encoder_width=encoder.width if encoder else 0.0,
        )
    )


# -- Fewer or shorter numbers ----------------------------------------------------------------------
def _sample(points, box, M):
    """Latent points at which errors are measured: some of those given, or spread over the box; None without both."""
    n = int(np.clip((1 << 26) // M, 64, 2048))  # at most 512 MB of fields, unless 64 of them are more
    if points is not None:
        return points[np.unique(np.linspace(0, len(points) - 1, n).astype(np.intp))]
    if box is None:
        return None
    return box[0] + np.random.default_rng(0).uniform(size=(n, box.shape[1])) * (box[1] - box[0])


def _fields_of(functions, coefficients, X):
    """Fields of these coefficients of the functions of a basis."""
    return LinearMap.of(map_arrays(functions, coefficients)).fields(X)


def _relative_errors(F, exact):
    """|f - exact| / |exact| of rows; small fields count as a thousandth of the median."""
    sizes = np.linalg.norm(exact, axis=1)
    return np.linalg.norm(F - exact, axis=1) / error_scales(sizes)


def _reduced(unprojected, coefficients, X, dtype, tol):
    """Coefficients of that type, or factors of them, whose fields at X agree to `tol` (None: to round-off of the
    type)."""
    if X is None:
        if tol is not None:
            raise ValueError("a rank by tolerance needs to know where: give latents=, points such as those to decode")
        return _rounded(coefficients, dtype)
    basis, exact = unprojected.basis, unprojected.fields(X)
    if basis.combinations is not None:
        basis = replace(basis, size=len(basis.combinations) - 1, combinations=None)
    # float32 may add less than half of the 5e-6 that are promised
    allowed = (0.0 if tol is None else tol) + (2e-6 if dtype == np.float32 else 0.0)
    best = np.inf
    for candidate in _candidates(basis, coefficients, X, exact, dtype, tol):
        error = _relative_errors(_fields_of(basis, candidate, X), exact).max()
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
    P, M = functions.size, exact.shape[1]
    size = sum(array.size for array in coefficients.values()) - M
    if rank < min(len(X) - 1, M) and rank * (P + M) < size:
        if "modes" in coefficients:
            factor = coefficients["factor"] @ (coefficients["modes"] @ modes.T)
        else:
            factor = coefficients["coefficients"] @ modes.T
        coordinates = _fields_of(functions, {"bias": np.zeros(rank), "coefficients": factor}, X)
        bias = mean - coordinates.mean(axis=0) @ modes
        yield from _roundings({"bias": bias, "factor": factor, "modes": modes}, dtype)
    if tol is not None:
        yield from _roundings(coefficients, dtype)


def _rounded(coefficients, dtype, kept=("bias",)):
    """The same in numbers of this type, but for the bias."""
    return {name: a if name in kept else a.astype(dtype, copy=False) for name, a in coefficients.items()}


def _roundings(coefficients, dtype):
    """The coefficients in numbers of the type; then, if they are factors, the modes alone: what combines the functions
    may cancel."""
    yield _rounded(coefficients, dtype)
    if "modes" in coefficients and dtype == np.float32:
        yield _rounded(coefficients, dtype, kept=("bias", "factor"))


def _modes(G, sizes, tol):
    """Number and modes (r, M) of the fewest principal components that leave at most `tol` of the size of each row of G,
    and of a few more: a multiple of eight."""
    U, sigma, Vt = scipy.linalg.svd(G, full_matrices=False, check_finite=False)
    left = np.sqrt(np.cumsum(((U * sigma) ** 2)[:, ::-1], axis=1))[:, ::-1] / error_scales(sizes)[:, None]
    enough = np.flatnonzero(left.max(axis=0) <= tol / 2)
    rank = int(enough[0]) if len(enough) else len(sigma)
    rank = min(-(-max(rank, 1) // 8) * 8, len(sigma))
    return rank, Vt[:rank]


# -- Tables ----------------------------------------------------------------------------------------
def _table(unprojected, box, tol, max_bytes, dtype):
    """Tensor B-splines of degree 7 on a uniform grid over the box, by collocation, whose cells are halved until the
    fields at their centres are those of the decoder, before bounds and projection, to `tol`."""
    d = unprojected.basis.n_components
    if d > 2:
        raise ValueError(f"kind='table' needs at most 2 latent coordinates, got {d}: a table would be too large")
    if box is None:
        raise ValueError("kind='table' needs to know where: give latents=, points whose bounding box the table covers")
    low, width = box[0], box[1] - box[0]
    width = np.maximum(width, np.maximum(np.abs(low), 1) * 1e-9)  # of a coordinate that does not vary
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


def _collocated(unprojected, low, step, cells):
    """Coefficients (cells + 7, ..., M) of the splines that are the decoder's linear part at as many points: the grid's
    nodes, and the middle of the three outermost cells at each end."""
    middles = np.array([0.5, 1.5, 2.5])
    points = [np.sort(np.concatenate([np.arange(n + 1.0), middles, n - middles])) for n in cells]
    values = unprojected.fields(_grid(low, step, points)).reshape(*(cells + 7), -1)
    for axis, (t, n) in enumerate(zip(points, cells)):
        B = _splines(t, n).tocoo()
        above, below = int((B.col - B.row).max()), int((B.row - B.col).max())
        bands = np.zeros((above + below + 1, n + 7))
        bands[above + B.row - B.col, B.col] = B.data
        values = _along(lambda F: scipy.linalg.solve_banded((below, above), bands, F, check_finite=False), axis, values)
    return np.ascontiguousarray(values)


def _table_errors(unprojected, coefficients, low, step, cells, tol):
    """Largest relative error at the centres of the cells within the margin; if that is more than `tol`, one a
    coordinate: the error of its own refinement."""
    centres = [np.arange(_kernel.MARGIN, n - _kernel.MARGIN) + 0.5 for n in cells]
    values = coefficients.astype(np.float64, copy=False)
    for axis, (t, n) in enumerate(zip(centres, cells)):
        values = _along(lambda F: _splines(t, n) @ F, axis, values)
    exact = unprojected.fields(_grid(low, step, centres))
    error = float(_relative_errors(values.reshape(exact.shape), exact).max())
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


def field_shape_of(image: Any, n_cells: int) -> tuple[int, ...] | None:
    """The shape of a field that an image which C has opened names, if any; ValueError if it is forged."""
    memory = np.frombuffer(image, np.uint8)
    count = int(memory[:64].view(_HEADER)["n_sections"][0])
    table = memory[64 : 64 + count * _SECTION.itemsize].view(_SECTION)
    for entry in table[table["id"] == _kernel.SECTIONS["field_shape"]]:
        start, axes = int(entry["offset"]), int(entry["columns"])
        # NumPy's arrays had at most 32 axes; a forged number must not become memory
        part = memory[start : start + 8 * axes] if 2 <= axes <= 32 else memory[:0]
        shape = tuple(part.view(np.int64).tolist()) if len(part) == 8 * axes else ()
        if len(shape) < 2 or min(shape) < 1 or math.prod(shape) != n_cells:
            raise ValueError(f"the image is damaged: fields of {n_cells} cells do not have the shape {shape}")
        return shape
    return None
