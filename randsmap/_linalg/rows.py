"""Tall matrices, read by blocks of rows: arrays, memory-mapped files larger than memory, features on demand.

Pages of a mapping count as memory of the process until they are dropped. Here alone are memory-mapped arrays copied,
block by block, and their pages dropped at once.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from randsmap._interface.arrays import as_array, check_finite, in_domain, real_numbers, validate_data
from randsmap._io.files import expanded, mapping_of, replaced_atomically, reserve
from randsmap._io.progress import steps
from randsmap._kernels import features as _features_kernel
from randsmap._linalg.products import multiply
from randsmap._linalg.scales import standard_deviations
from randsmap._parallel import blas_threads, parallel_rows

_Values = NDArray[np.float64]

# Bytes (as float64) from which a memory-mapped array is handled by blocks
LARGE = 1 << 26
# Entries of a block (32 MB)
BLOCK = 1 << 22
# Rows of a block at least, for products of matrices at full speed
_FEWEST = 32
# Rows of features, or of one sum of a mean: enough for SYRK and GEMM to run at full speed
_SUMMED = 2048


def is_large(X: object) -> TypeGuard[NDArray[Any]]:
    """True if X is (a view of) a two-dimensional memory-mapped array too large to be held whole."""
    return (
        isinstance(X, np.ndarray)
        and not isinstance(X, np.ma.MaskedArray)  # refused elsewhere
        and X.ndim == 2
        and 8 * X.size >= LARGE
        and mapping_of(X) is not None
    )


def load_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a .npy file, memory-mapped if it is large; a ValueError if it is no .npy file of numbers."""
    path = expanded(path)
    with open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError(f"{path} is not a .npy file (numpy.save writes one)")
        file.seek(0)
        try:
            shape, _ = check_npy_header(file, os.path.getsize(path))
            mode: Any = "r" if len(shape) > 1 and 8 * math.prod(shape) >= LARGE else None
            return np.load(path, mmap_mode=mode, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is not a .npy file of numbers: {error}") from None


def check_npy_header(file: Any, size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type that the header of an open .npy file of `size` bytes declares; afterwards `file` is behind it. A
    ValueError if there is no such header, or it declares more bytes, for which reading would ask for the memory."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(file)
    except (ValueError, EOFError, OSError):
        raise
    except Exception as error:  # of Python's parser, which NumPy does not catch
        raise ValueError(f"its header cannot be read: {error}") from error
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"its header declares the shape {shape}")
    expected = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and size - file.tell() != expected:
        several = ". Write several arrays as .npz (np.savez)" if size - file.tell() > expected else ""
        raise ValueError(f"its header declares {expected} bytes of shape {shape}, it has {size - file.tell()}{several}")
    if max((*shape, 0)) > np.iinfo(np.intp).max:
        raise ValueError(f"its header declares the shape {shape}, which is too large")
    return shape, dtype


def release(X: NDArray[Any]) -> None:
    """Drop the pages of the mapping behind X, if any: they stay in the file."""
    owner: Any = mapping_of(X)
    # the pages of a private mapping would be lost
    if owner is None or owner.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = getattr(owner, "base", None)
    try:
        if owner is not None:
            owner.madvise(mmap.MADV_DONTNEED)
    except (OSError, ValueError):  # closed, or a system that cannot
        pass


class Rows:
    """A tall matrix F (n, M) that is read by blocks of its rows, perhaps less a mean: an array in memory.

    `Rows.of` makes one of what a caller gives, and chooses the class; `Rows(array)` takes a checked float64 array,
    C-contiguous, which is not copied. The other classes are `MappedRows`, of a memory-mapped file, `FeatureRows`,
    computed on demand, and `FactoredRows` (`randsmap._linalg.svd`). Blocks, products and slices serve all of them.
    """

    ndim = 2
    mapped = False  # True if each access reads a file, so that passes are expensive

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.mean: _Values | None = None  # the mean that is subtracted from all rows
        self._scale = self._normals = self._seen = None

    @staticmethod
    def of(X: Any, name: str = "X", **requirements: Any) -> Rows:
        """Rows of what a caller gives as `name`, checked by `as_array`; blocks of a file when they are read."""
        if isinstance(X, Rows):
            return X
        if is_large(X):
            as_array(X[: max(1, requirements.get("min_rows", 1))], name, **requirements)
            return MappedRows(X, name)
        return Rows(as_array(X, name, **requirements))

    @staticmethod
    def validated(estimator: Any, X: Any, *, reset: bool, min_samples: int | None = None) -> Rows:
        """Rows of the argument X of an estimator's method, checked by `validate_data`; see `of`."""
        if is_large(X):
            validate_data(estimator, X[: max(1, min_samples or 1)], reset=reset, min_samples=min_samples)
            return MappedRows(X, "X")
        return Rows(validate_data(estimator, X, reset=reset, min_samples=min_samples))

    # -- Shape -----------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self.shape[0]

    n = property(lambda self: self.shape[0])
    width = property(lambda self: self.shape[1])

    def _with(self, **changes: Any) -> Self:
        """The same rows with some attributes changed."""
        other = object.__new__(type(self))  # copy.copy would ask for a pickle
        other.__dict__.update(self.__dict__, _seen=None, **changes)
        return other

    # -- Other rows ------------------------------------------------------------------------------------
    def less(self, mean: _Values | None, *, scale: _Values | None = None, normals: _Values | None = None) -> Self:
        """(F - mean) diag(scale) (I - N^T N) for orthonormal rows N = `normals` (q, M); F itself is not changed."""
        return self._with(mean=mean, _scale=scale, _normals=normals if normals is not None and len(normals) else None)

    def centred(self, size: int = _SUMMED) -> Self:
        """The rows less their mean, which is right to the last digits: of sums over `size` rows, twice. Of a file fewer
        rows at a time are in memory; their order, and so the bits, are those of an array."""
        n, M = self.shape
        piece, mean = block_rows(M, 1) if self.mapped else size, np.zeros(M)
        for _ in range(2):  # the second pass corrects the round-off of the first
            total = np.zeros(M)
            for start in range(0, n, size):
                stop, before = min(start + size, n), None
                for a in range(start, stop, piece):
                    part = self[a : min(a + piece, stop)] - mean
                    if before is not None:
                        part[0] += before
                    before = part.sum(axis=0)
                total += before
            mean += total / n
        return self.less(mean)

    def take(self, rows: Any) -> Rows:
        """Some of the rows, by a slice or their indices, less the same mean."""
        array = self.array[rows]
        return self._with(array=array, shape=array.shape)

    # -- Numbers ---------------------------------------------------------------------------------------
    def __getitem__(self, rows: Any) -> _Values:
        """Rows by a slice or their indices: a view where nothing is to be computed, else a new array."""
        if self.mean is None:
            return self.read(rows) if self.mapped else self.array[rows]
        F = self._scaled(rows, slice(None))
        if self._normals is not None:
            F -= (F @ self._normals.T) @ self._normals
        return F

    def whole(self) -> _Values:
        """All of the matrix; see ``[]``."""
        return self[:]

    def columns(self, start: int, stop: int) -> _Values:
        """Columns start..stop of all rows."""
        if self._normals is not None and self._seen is None:
            self._seen = self._with(_normals=None).times(self._normals.T)
        cells = slice(start, stop)
        F = self._scaled(slice(None), cells)
        if self._normals is not None:
            F -= self._seen @ self._normals[:, cells]
        return F

    def blocks(self, size: int | None = None, what: str = "reading") -> Iterator[tuple[int, int, _Values]]:
        """(start, stop, rows) over all rows, `size` at a time, with a progress bar named `what`. None: as many as BLOCK
        numbers, but all of an array that is taken as it is."""
        if size is None:
            size = block_rows(self.width) if self.mapped or self.mean is not None else max(1, len(self))
        for start, stop in steps(len(self), size, what):
            yield start, stop, self[start:stop]

    def read(self, rows: Any, cells: Any = slice(None)) -> _Values:
        """Rows and columns of F as it is, without the mean, as a new array."""
        return self.array[rows, cells].copy()

    def _scaled(self, rows, cells):
        """Centred and scaled rows and cells, not projected along `normals`."""
        F = self.read(rows, cells)
        if self.mean is not None:
            F -= self.mean[cells]
        if self._scale is not None:
            F *= self._scale[cells]
        return F

    # -- Products --------------------------------------------------------------------------------------
    def times(self, B: _Values) -> _Values:
        """F B (n, k)."""
        out = np.empty((len(self), B.shape[1]))
        for start, stop, block in self.blocks():
            multiply(block, B, out[start:stop])
        return out

    def transposed_times(self, B: _Values) -> _Values:
        """F^T B (M, k), whose transpose is C-contiguous: k combinations of the rows."""
        out = np.zeros((B.shape[1], self.shape[1]))
        for start, stop, block in self.blocks():
            dgemm(1.0, block.T, B[start:stop].T, beta=1.0, c=out.T, trans_b=1, overwrite_c=1)
        return out.T

    def norms2(self) -> _Values:
        """Squared norms of the rows (n,)."""
        return np.concatenate([np.einsum("ij,ij->i", block, block) for _, _, block in self.blocks()])


class MappedRows(Rows):
    """Rows of a large memory-mapped array, of any real type: finite, contiguous float64 blocks, read when asked for.
    `name` is for messages. A pickle holds the name of the file."""

    mapped = True

    def __init__(self, array: Any, name: str) -> None:
        real_numbers(array[:0], name)
        super().__init__(array)
        self.name = name
        self._rows: Any = None  # indices of the selected rows; None: all

    def take(self, rows: Any) -> MappedRows:
        """Some of the rows, by a slice or their indices in ascending order, less the same mean."""
        taken = np.arange(len(self))[rows] if self._rows is None else self._rows[rows]
        return self._with(_rows=taken, shape=(len(taken), self.shape[1]))

    def read(self, rows: Any, cells: Any = slice(None)) -> _Values:  # noqa: D102
        where = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        where = where if self._rows is None else self._rows[where]
        columns = np.arange(self.shape[1])[cells]
        together = self._rows is None and isinstance(rows, slice) and rows.step in (None, 1)
        out = np.empty((len(where), len(columns)))
        size = max(1, BLOCK // max(1, len(columns)))
        if len(columns) < self.shape[1]:  # the system maps more of each row than is read
            size = min(size, _FEWEST)
        for a in range(0, len(out), size):
            part, chosen = out[a : a + size], where[a : a + size]
            if not isinstance(cells, slice):
                part[:] = self.array[np.ix_(chosen, columns)]
            else:
                part[:] = self.array[slice(chosen[0], chosen[-1] + 1) if together else chosen, cells]
            release(self.array)
            if in_domain(part):
                continue
            bad = np.argwhere(~np.isfinite(part))
            if len(bad):
                i, j = bad[0]
                value = "NaN" if np.isnan(part[i, j]) else part[i, j]
                raise ValueError(f"{self.name} must be finite, got {value} at {(int(where[a + i]), int(columns[j]))}")
            check_finite(part, self.name)
        return out

    def __deepcopy__(self, memo):
        return self  # never copy the mapped file

    def __reduce__(self):
        owner, array = mapping_of(self.array), self.array
        whole = self._rows is None and (array.flags.c_contiguous or array.flags.f_contiguous)
        if owner.filename is None or not whole:
            raise TypeError(
                f"{self.name} is a slice of a memory-mapped file, which cannot be pickled: map the whole file, or copy "
                "the slice to memory"
            )
        order = "C" if array.flags.c_contiguous else "F"
        offset = owner.offset + array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        adjusted = {key: self.__dict__[key] for key in ("mean", "_scale", "_normals")}
        return _reopened, (str(owner.filename), array.dtype, array.shape, offset, order, self.name), adjusted


def _reopened(filename, dtype, shape, offset, order, name):
    return MappedRows(np.memmap(filename, dtype, "r", offset, shape, order), name)


class FeatureRows(Rows):
    """Rows of Phi = [1 | features of the latents `points`] (paper Eq. 11); without `bias` the features alone.

    They are computed block by block, so that Phi need not be stored whole: the package's own maps by their kernel, any
    other transformer by its `transform`. With `weights` (n,) of the points their mean is weighted, and what is read are
    the rows, less that, times the `root` of their weights.
    """

    def __init__(self, features: Any, X: _Values, *, bias: bool = True, weights: _Values | None = None) -> None:
        self.bias, self.dtype, self.mean = bias, np.dtype(np.float64), None
        self.root = None if weights is None else np.sqrt(weights)
        self.points, self._features, self.activation_parameters = X, features, None
        if hasattr(features, "activation_parameters"):
            self.activation_parameters = features.activation_parameters()
            width = self.activation_parameters[1].shape[1]
        else:
            width = feature_matrix(features, X[:1]).shape[1]
        self.shape = len(X), width + bias

    def take(self, rows: Any) -> FeatureRows:
        """The rows of some of the points, by their indices or a slice, less the same mean."""
        return self._like(self.points[rows], self.bias, self.mean, None if self.root is None else self.root[rows])

    def at(self, X: _Values) -> FeatureRows:
        """The rows of other points (m, d), less the same mean."""
        return self._like(X, self.bias, self.mean)

    def without_bias(self) -> FeatureRows:
        """The features alone, as they are."""
        return self._like(self.points, False, None, self.root)

    def _like(self, X, bias, mean, root=None):
        return self._with(points=X, bias=bias, mean=mean, root=root, shape=(len(X), self.width + bias - self.bias))

    def metric_points(self, points: NDArray[np.intp]) -> _Values:
        """The points with these indices in coordinates whose distances are |W^T (x - y)|; in standard deviations for
        another transformer."""
        X = self.points[points] - self.points[points].mean(axis=0)
        if self.activation_parameters is None:
            return X / standard_deviations(X)
        squares, axes = np.linalg.eigh(self.activation_parameters[1] @ self.activation_parameters[1].T)
        return X @ (axes * np.sqrt(np.maximum(squares, 0)))

    @property
    def total(self) -> float:
        """Sum of the weights; n without."""
        return float(self.n) if self.root is None else float(self.root @ self.root)

    def __getitem__(self, rows: Any) -> _Values:
        some = self.take(rows)
        out = np.empty(some.shape)
        some.fill(0, some.n, out)
        return out

    def fill(self, start: int, stop: int, out: _Values) -> None:
        """Rows start..stop into out (stop - start, width)."""
        first = int(self.bias)
        out[:, :first] = 1
        if self.activation_parameters is None:
            out[:, first:] = feature_matrix(self._features, self.points[start:stop], self.width - first)
        else:
            activation, weights, offsets, scale = self.activation_parameters
            X = self.points[start:stop]

            def task(rows):
                _features_kernel.features(activation, X[rows], weights, offsets, scale, out[rows, first:])

            with blas_threads(1):
                parallel_rows(task, len(X), 64)
        if self.mean is not None:
            out -= self.mean
        if self.root is not None:
            out *= self.root[start:stop, None]

    def blocks(self, size: int | None = None, what: str = "fitting") -> Iterator[tuple[int, int, _Values]]:
        """(start, stop, block of Phi) over all rows; the block's memory is reused."""
        size = _SUMMED if size is None else size
        memory = np.empty((min(size, self.n), self.width))
        for start, stop in steps(self.n, size, what):
            block = memory[: stop - start]
            self.fill(start, stop, block)
            yield start, stop, block


def centre(rows: Any) -> None:
    """Take the mean off all rows that have `blocks` from now on, unless there is a bias."""
    if rows.bias or rows.mean is not None:
        return
    total = np.zeros(rows.width)
    for start, stop, block in rows.blocks():
        total += block.sum(axis=0) if rows.root is None else rows.root[start:stop] @ block
    rows.mean = total / rows.total


def less_means(rows: Any, F: Any) -> tuple[Any, _Values | None]:
    """Fields F less their mean, and that, with feature rows that become less theirs; with a bias F itself, and None.
    With weights the fields are an array, and the means and what is returned are weighted as the rows are."""
    root = rows.root
    if rows.bias:
        return F if root is None else F * root[:, None], None
    centre(rows)
    if root is None:
        F = (F if isinstance(F, Rows) else Rows(F)).centred()
        return F, F.mean
    shares = root**2 / rows.total
    mean = shares @ F
    mean += shares @ (F - mean)  # the round-off of the first pass
    return (F - mean) * root[:, None], mean


def feature_matrix(features: Any, X: _Values, P: int | None = None) -> _Values:
    """Features (n, P) by the transformer's own `transform`, as contiguous float64."""
    Z = as_array(features.transform(X), "the features' transform(X)", (None, P))
    if len(Z) != len(X):
        raise ValueError(f"the features' transform(X) must have {len(X)} rows, got {len(Z)}")
    return Z


def block_rows(M: int, fewest: int = _FEWEST) -> int:
    """Rows of a block whose rows have M entries; products of matrices want some, at the price of memory."""
    return max(fewest, BLOCK // max(1, M))


def spread_rows(n: int, most: int) -> NDArray[np.intp]:
    """Indices of all of n rows, or of more than `most` of so many, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def taken(X: Any, rows: NDArray[np.intp], name: str) -> Any:
    """Rows of the array-like X by their ascending indices; of a large memory-mapped array as checked float64."""
    if is_large(X):
        return MappedRows(X, name)[rows]
    return X.iloc[rows] if hasattr(X, "iloc") else (X if hasattr(X, "shape") else np.asarray(X))[rows]


def by_blocks(function: Callable[[NDArray[Any]], NDArray[Any]], X: Any) -> NDArray[Any]:
    """function(rows of X), stacked: of a large memory-mapped X block by block."""
    if not is_large(X):
        return function(X)
    out = np.empty(0)
    for start, stop, block in MappedRows(X, "X").blocks(what="encoding"):
        part = np.asarray(function(block))
        if start == 0:
            out = np.empty((len(X), *part.shape[1:]), part.dtype)
        out[start:stop] = part
    return out


def blocks_to_fill(out: _Values) -> Iterator[tuple[int, int]]:
    """Blocks (start, stop) of the rows of `out`; after each the pages of a memory-mapped one are dropped."""
    if not is_large(out):
        yield 0, len(out)
        return
    for start, stop in steps(len(out), block_rows(out.shape[1]), "decoding"):
        yield start, stop
        release(out)


def write_npy(path: str | os.PathLike[str], shape: tuple[int, ...], fill: Callable[[_Values], object]) -> None:
    """Make the .npy file `path` of float64 by ``fill(array)`` on its memory map, whole or not at all. Without space for
    it on the disk there is an OSError before anything is computed."""
    with replaced_atomically(path) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.float64, shape)
        reserve(array)
        fill(array)
        array.flush()
        del array  # a file that is mapped cannot be renamed on Windows
