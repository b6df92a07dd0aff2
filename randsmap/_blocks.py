"""Snapshots larger than memory: memory-mapped arrays read and written by blocks.

The pages of a mapping that were touched count as memory of the process until they are dropped. Here,
and only here, memory-mapped arrays are copied block by block, and their pages dropped at once.
"""

import mmap

import numpy as np

from randsmap._validation import check_matrix

__all__ = ["LARGE", "Snapshots", "block_rows", "filled", "is_large", "mapped_rows", "opened", "release",
           "row_blocks"]

LARGE = 1 << 26  # bytes (as float64) from which a memory-mapped array is handled by blocks
BLOCK = 1 << 23  # entries of a block (64 MB)


def _mapping(X):
    """The np.memmap that the array X is, or is a view of; None if there is none."""
    found = None
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            found = X  # the last one owns the mapping and knows its mode
        X = X.base
    return found


def is_large(X):
    """Whether X is (a view of) a two-dimensional memory-mapped array so large that it is not held whole."""
    return (isinstance(X, np.ndarray) and X.ndim == 2 and 8 * X.size >= LARGE
            and _mapping(X) is not None)


def release(X):
    """Drop the pages of the mapping behind X, if any: they stay in the file."""
    owner = _mapping(X)
    # of a private mapping the pages would be lost
    if owner is None or getattr(owner, "mode", "c") == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    try:
        owner._mmap.madvise(mmap.MADV_DONTNEED)
    except (AttributeError, OSError, ValueError):  # closed, or a system that cannot
        pass


class Snapshots:
    """A large memory-mapped array (n, M), read as blocks of finite, contiguous float64 rows.

    ``snapshots[a:b]`` is such a copy, so that its users need not tell it from an array.
    """

    ndim = 2

    def __init__(self, array, name):
        if array.dtype.kind not in "fiub":
            check_matrix(array[:1], name)  # raises
            raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}")
        self.array, self.name, self.shape, self.dtype = array, name, array.shape, array.dtype

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise IndexError("blocks of rows have no step")
        out = np.empty((max(0, stop - start), self.shape[1]))
        size = block_rows(self.shape[1])
        for a in range(start, stop, size):
            b = min(stop, a + size)
            part = out[a - start : b - start]
            part[:] = self.array[a:b]
            release(self.array)
            self._check(part, a, 0)
        return out

    def columns(self, start, stop, *, checked=False):
        """The cells start..stop of all rows, as a contiguous copy (n, stop - start)."""
        out = np.empty((len(self), min(stop, self.shape[1]) - start))
        size = max(1, BLOCK // out.shape[1])
        for a in range(0, len(self), size):
            out[a : a + size] = self.array[a : a + size, start:stop]
            release(self.array)
        if not checked:
            self._check(out, 0, start)
        return out

    def _check(self, block, row, column):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum()):
                return
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            i, j = (int(k) for k in bad[0])
            value = "NaN" if np.isnan(block[i, j]) else block[i, j]
            raise ValueError(f"{self.name} must be finite, got {value} at {(i + row, j + column)}")


def block_rows(M, width=0, most=None):
    """Rows of a block of rows with M entries, and `width` more of something else."""
    rows = max(32, BLOCK // max(1, M + width))
    return rows if most is None else min(rows, most)


def row_blocks(F):
    """(start, block) over the rows of F; an array in memory is one block."""
    if not isinstance(F, Snapshots):
        yield 0, F
        return
    size = block_rows(F.shape[1])
    for start in range(0, len(F), size):
        yield start, F[start : start + size]


def opened(X, name):
    """X as Snapshots if it is a large memory-mapped array, else as it is."""
    return Snapshots(X, name) if is_large(X) else X


def mapped_rows(function, X, name="X", progress=None):
    """function(rows of X), stacked: of a large memory-mapped X block by block.

    `progress(rows)` is called after each block.
    """
    if not is_large(X):
        return function(X)
    snapshots, out = Snapshots(X, name), None
    for start, block in row_blocks(snapshots):
        part = np.asarray(function(block))
        if out is None:
            out = np.empty((len(snapshots), *part.shape[1:]), part.dtype)
        out[start : start + len(block)] = part
        if progress is not None:
            progress(len(block))
    return out


def filled(task, out, progress=None):
    """Call task(a, b) over blocks of rows of `out` to fill; drop their pages if it is memory-mapped."""
    size = block_rows(out.shape[1]) if is_large(out) or progress is not None else max(1, len(out))
    for a in range(0, len(out), size):
        b = min(len(out), a + size)
        task(a, b)
        release(out)
        if progress is not None:
            progress(b - a)
    return out
