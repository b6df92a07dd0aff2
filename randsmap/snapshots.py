"""Snapshots from the files that users have: NumPy's, MATLAB's, text, HDF5, netCDF and zarr."""

from __future__ import annotations

import csv
import errno
import itertools
import math
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.arrays import as_array
from randsmap._io.files import expanded, mapping_of, save_arrays, writable_target, write_atomically
from randsmap._io.matlab import NUMBERS, mat_arrays
from randsmap._linalg.rows import check_npy_header, load_npy

__all__ = ["read_snapshots"]

_MATLAB_NUMBERS = {
    "double",
    "single",
    "logical",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}

_TIME = re.compile(
    r"(t|times?)(_(s|ms|us|ns|sec|min|h|d)| ?[(\[].*[)\]])?", re.IGNORECASE
)  # names of a column of times

# numbers of other programs, such as 1.000,5 and 1 000 and 1d5, which are told and not passed over as names
_FOREIGN_NUMBER = re.compile(
    r"[-+\N{MINUS SIGN}]?\.?\d[\d.,'\N{RIGHT SINGLE QUOTATION MARK}\s]*([de][-+\N{MINUS SIGN}]?\d+)?", re.IGNORECASE
)

_MISSING = {"na", "n/a", "null", "none", "-", "--", "?", "."}  # what programs write for a value that is not there


def read_snapshots(path: str | os.PathLike[str], *, key: str | None = None, transpose: bool = False) -> Any:
    """Snapshots of a file, as `fit` and `transform` take them: the first axis counts them.

    Parameters
    ----------
    path : path
        What it is says its ending: ``.npy``, ``.npz``, ``.mat`` (all of MATLAB's formats; that of ``-v7.3`` needs
        h5py), ``.csv`` or ``.txt`` (numbers separated by commas, or with decimal commas by semicolons or white space,
        below a line of names or not; a first column that is named as times is left out), ``.h5`` or ``.hdf5`` (needs
        h5py), ``.nc`` (needs xarray), or a folder ``.zarr`` (needs zarr, and xarray if it is a group). ``pip install
        'randsmap[files]'`` brings these. Any other file has to be a .npy.
    key : str or None
        Name of the array in a file of several (``group/name`` in HDF5 and for MATLAB's structs), or of a column of
        text. None: the one that has numbers along at least two axes, or the only array that there is.
    transpose : bool, default=False
        Whether the last axis counts the snapshots, as the columns of a matrix do. It becomes the first; the
        others keep their order.

    Returns
    -------
    ndarray or xarray.DataArray (n_samples, ...)
        In the file's number type. A large .npy file is memory-mapped, with `transpose` too; netCDF and groups of
        zarr give a DataArray, with its coordinates. MATLAB's arrays have MATLAB's axes.

    Raises
    ------
    ValueError
        If the file is not what its ending says, does not hold numbers, or which array is meant is not clear: the
        message lists the arrays and their shapes.
    ImportError
        If a package is needed that is not installed; the message names it.
    OSError
        If it cannot be read.

    Warns
    -----
    UserWarning
        If a column of times is left out. If the columns (what the last axis counts), and not the rows, look like
        fields. One of three signs is needed: all columns have the same sum (to 1e-6 of their sizes) and the rows do
        not; or, of a matrix, there are at least 25 columns and 4 times as many rows, which go on smoothly from one to
        the next, and columns either do not, or their first and last differ while the first and last rows agree, as the
        two ends of a domain do. Of large memory-mapped files only a sample of the rows is looked at, and no sums.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, randsmap
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "run.npz")
    ...     np.savez(path, U=np.zeros((4, 5, 30)), t=np.arange(30.0))  # 30 fields of 4 x 5 cells
    ...     randsmap.read_snapshots(path, transpose=True).shape
    (30, 4, 5)
    """
    snapshots = read_array(path, key=key, transpose=transpose, fields=True)
    warn_of_columns(snapshots, path, transpose)
    return snapshots


def warn_of_columns(snapshots: Any, path: str | os.PathLike[str], transpose: bool) -> None:
    """Warn if the columns of snapshots, read with `transpose` or without, look like fields, and the rows do not."""
    evidence = transposed_evidence(snapshots)
    if evidence is not None:
        n, cells = len(snapshots), " x ".join(map(str, snapshots.shape[1:]))
        remedy = "it needs no transposing" if transpose else "read it with transpose (--transpose)"
        warnings.warn(
            f"{path} is taken for {n} snapshots of {cells} cells, but {evidence}: if the columns are fields, {remedy}",
            UserWarning,
            stacklevel=3,
        )


def read_array(
    path: str | os.PathLike[str], *, key: str | None = None, transpose: bool = False, fields: bool = False
) -> Any:
    """What `read_snapshots` reads, without a look at its values; text as a whole, unless it holds `fields`."""
    path = expanded(path)
    reader = _reader(path)
    array = _read_text(path, key, fields) if reader is _read_text else reader(path, key)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{path} must hold real numbers, got {array.dtype}")
    if not transpose:
        return array
    if array.ndim < 2:
        raise ValueError(f"{path} holds an array of shape {array.shape}, which has no other axis to come first")
    if isinstance(array, np.ndarray):
        return np.moveaxis(array, -1, 0)
    return array.transpose(array.dims[-1], ...)


def read_numbers(path: Path, *, key: str | None = None, transpose: bool = False) -> NDArray[Any]:
    """What `read_array` reads, as a plain array."""
    return np.asarray(read_array(path, key=key, transpose=transpose))


def read_columns(
    path: Path, *, key: str | None = None, width: int | None = None, transpose: bool = False
) -> NDArray[np.float64]:
    """Parameters (n, p) from a file as for `read_array`; a vector, which MATLAB has as a row, is one column.

    p is `width`, if that is known.
    """
    values = read_numbers(path, key=key)
    if transpose and values.ndim == 2:
        values = values.T
    if values.ndim == 2 and len(values) == 1 and values.shape[1] != width:
        values = values[0]
    return as_array(values[:, None] if values.ndim == 1 else values, str(path), min_rows=0)


def read_labels(path: Path, *, key: str | None = None) -> NDArray[Any]:
    """Labels from an array of a file with names, a .npy file, or the lines of a text."""
    if key is not None or path.suffix.lower() in HAVE_NAMES:
        return read_numbers(path, key=key)
    if _begins_like_npy(path):
        return load_npy(path)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").rstrip().splitlines()]
    except UnicodeDecodeError:
        raise ValueError(f"{path} is neither a .npy file nor text") from None
    if "" in lines:
        raise ValueError(f"line {lines.index('') + 1} of {path} is empty")
    return np.array(lines)


def _readers() -> dict[str, Callable[[Path, str | None], Any]]:
    return {
        ".npz": _read_npz,
        ".mat": _read_mat,
        ".csv": _read_text,
        ".txt": _read_text,
        ".h5": _read_hdf5,
        ".hdf5": _read_hdf5,
        ".nc": _read_netcdf,
        ".nc4": _read_netcdf,
        ".zarr": _read_zarr,
    }


_MOST_NAMED = 12  # columns of a text, in a message

# formats of several arrays with names
HAVE_NAMES = (".npz", ".mat", ".h5", ".hdf5", ".nc", ".nc4", ".zarr")
_WRITTEN = (".npy", ".npz", ".mat", ".csv", ".txt", ".h5", ".hdf5")
_LARGEST_MAT = 2**32  # bytes of an array in MATLAB's format 5


def is_npy_target(path: str | os.PathLike[str]) -> bool:
    """Whether `write_array` makes a .npy file of this path: one with no other known ending."""
    return expanded(path).suffix.lower() not in _readers()


def check_target(path: str | os.PathLike[str], n_values: int = 0) -> None:
    """Raise what `write_array` would for an array of so many values, before the work is done.

    Raises
    ------
    ValueError
        If arrays are not written in the format that the ending says, or it cannot hold so many.
    ImportError
        If a package is needed that is not installed.
    OSError
        As `writable_target`.
    """
    path = expanded(path)
    ending = path.suffix.lower()
    if ending in _readers() and ending not in _WRITTEN:
        raise ValueError(f"{path}: arrays are not written as {ending}, but as {', '.join(_WRITTEN)}")
    if ending in (".h5", ".hdf5"):
        _imported("h5py", path)
    if ending == ".mat" and 8 * n_values >= _LARGEST_MAT:
        raise ValueError(
            f"{path}: a .mat file holds less than 4 GB, the array has {8 * n_values} bytes: write .h5 or .npy"
        )
    writable_target(path)


def write_array(
    path: str | os.PathLike[str], array: NDArray[np.float64], name: str, *, transpose: bool = False
) -> None:
    """Write a file from which `read_snapshots` reads the values of this array, whole or not at all.

    Parameters
    ----------
    path : path
        Its ending says the format, as for `read_snapshots`; .npy if it is none of those.
    array : ndarray (n, ...)
        Text holds rows (n, n_cells), whatever the shape of a field; every other format has it.
    name : str
        Of the variable in .mat, .npz and HDF5.
    transpose : bool
        Whether the first axis, which counts the entries, becomes the last.

    Raises
    ------
    ValueError, ImportError, OSError
        As `check_target`, or if a write fails.
    """
    check_target(path, array.size)
    path = expanded(path)
    ending = path.suffix.lower()
    if ending in (".csv", ".txt"):
        array = array.reshape(len(array), math.prod(array.shape[1:]))
    if transpose:
        array = np.moveaxis(array, 0, -1)
    write_atomically(path, lambda file: _write(file, array, name, ending))


def _write(file: BinaryIO, array: NDArray[np.float64], name: str, ending: str) -> None:
    if ending == ".npz":
        save_arrays(file, {name: array})
    elif ending == ".mat":
        from scipy.io import savemat

        savemat(file, {name: array})
    elif ending in (".csv", ".txt"):
        np.savetxt(file, array, fmt="%.17g", delimiter="," if ending == ".csv" else " ")
    elif ending in (".h5", ".hdf5"):
        with _imported("h5py", Path(name)).File(file, "w") as hdf5:
            hdf5[name] = array
    else:
        np.save(file, array, allow_pickle=False)


def _reader(path: Path) -> Callable[[Path, str | None], Any]:
    readers = _readers()
    reader = readers.get(path.suffix.lower())
    if reader is not None:
        if reader is not _read_zarr:
            with open(path, "rb"):  # no such file, a folder, no permission: as Python says it
                pass
        elif not path.exists():
            raise FileNotFoundError(2, os.strerror(2), str(path))
        return reader
    if path.suffix.lower() != ".npy" and path.is_file() and not _begins_like_npy(path):
        if not path.suffix and _is_text(path):
            return _read_text
        raise ValueError(f"{path} is not a .npy file, and its ending is none of {', '.join(readers)}")
    return _read_npy


def _begins_like_npy(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(6) == b"\x93NUMPY"


def _is_text(path: Path) -> bool:
    """False for the model files, archives and images that a file without an ending may be: they begin with zeros."""
    with open(path, "rb") as file:
        return b"\0" not in file.read(4096)


def _imported(name: str, path: Path) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{path} needs the package {name}, which cannot be imported ({error}): pip install "
            f"'randsmap[files]', or {name} alone"
        ) from None


def _chosen(shapes: Mapping[str, tuple[int, ...]], key: str | None, path: Path, others: str = "") -> str:
    """The name of the array that is meant, of those with these shapes."""
    listed = ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "none"
    if key is not None:
        found = [name for name in shapes if name.strip("/") == key.replace(".", "/").strip("/")] or [
            name for name in shapes if name == key
        ]
        if found:
            return found[0]
        raise ValueError(f"{path} has no array {key!r} of numbers; it has {listed}{others}")
    wide = [name for name, shape in shapes.items() if sum(length > 1 for length in shape) >= 2]
    candidates = wide or list(shapes)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise ValueError(f"{path} has no array of numbers{others}")
    raise ValueError(f"{path} has several arrays: {listed}. Name one of them with key (--key)")


@contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    """What readers raise at damaged files, which may be anything, as a ValueError that names the file."""
    try:
        yield
    except (ImportError, Warning):
        raise
    except MemoryError:
        raise MemoryError(f"{path} says that it holds more than there is memory for") from None
    except Exception as error:
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # that is a place before the file
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise ValueError(f"{path} cannot be read as {what}: {error}") from error


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """In this machine's order of bytes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_npy(path: Path, key: str | None) -> NDArray[Any]:
    if key is not None:
        raise ValueError(f"{path} holds one array, which has no name: leave key (--key) {key!r} out")
    return load_npy(path)


def _read_npz(path: Path, key: str | None) -> NDArray[Any]:
    with _told(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        shapes = {}
        for name, member in members.items():  # of all arrays the headers alone are read
            with archive.open(member) as file:
                shape, dtype = check_npy_header(file, archive.getinfo(member).file_size)
                if dtype.kind in "buif":
                    shapes[name] = shape
        with archive.open(members[_chosen(shapes, key, path)]) as file:
            return _native(np.lib.format.read_array(file, allow_pickle=False))


def _read_mat(path: Path, key: str | None) -> NDArray[Any]:
    with open(path, "rb") as file:
        start = file.read(10)
        if start == b"MATLAB 7.3" or start[:4] == b"\x89HDF":
            return _read_hdf5(path, key, matlab=True)
        with _told(path, "a .mat file"):
            arrays = mat_arrays(file)
            shapes = {name: array.shape for name, array in arrays.items() if array.kind == NUMBERS}
            rest = ", ".join(f"{name} ({array.kind})" for name, array in arrays.items() if array.kind != NUMBERS)
            return arrays[_chosen(shapes, key, path, f", besides {rest}" if rest else "")].read()


def _read_hdf5(path: Path, key: str | None, matlab: bool = False) -> NDArray[Any]:
    h5py = _imported("h5py", path)
    with _told(path, "an HDF5 file"), h5py.File(path, "r") as file:
        shapes: dict[str, tuple[int, ...]] = {}

        def note(name: str, node: Any) -> None:
            if not isinstance(node, h5py.Dataset) or node.dtype.kind not in "buif" or name.startswith("#"):
                return
            if node.shape is None:  # HDF5's empty data space
                return
            kind = node.attrs.get("MATLAB_class")
            kind = kind.decode() if isinstance(kind, bytes) else kind
            if kind is None or (kind in _MATLAB_NUMBERS and not node.attrs.get("MATLAB_empty")):
                reversed_axes = matlab or kind is not None
                shapes[name] = tuple(node.shape[::-1] if reversed_axes else node.shape)

        file.visititems(note)
        node = file[_chosen(shapes, key, path)]
        array = _native(np.asarray(node[()]))
        # MATLAB writes columns first, which HDF5 has as an array of reversed axes
        return array.T if matlab or "MATLAB_class" in node.attrs else array


def _read_text(path: Path, key: str | None, fields: bool = False) -> NDArray[np.float64]:
    """The numbers of a text; with `fields` without a first column of times, if it is called so."""
    with _told(path, "text with one row of numbers a line"):
        first, second = [*itertools.islice(_text_lines(path), 2), "", ""][:2]
        separator, decimal_commas = _separator(second or first)
        n_columns = len(_words(second, separator))
        rows_named = second.lstrip()[:1] in ('"', "'")
        words = _words(first, separator, *range(n_columns, n_columns - rows_named - 1, -1))
        above = _are_names([w.replace(",", ".") for w in words] if decimal_commas else words)
        if above and rows_named and len(words) == n_columns - 1:
            words = ["", *words]  # R numbers the rows, in quotes, and has no name for that
        names = words if above and len(words) == n_columns else []  # not of words with blanks
        if key is not None and key not in names:
            some = names if len(names) <= _MOST_NAMED else [*names[: _MOST_NAMED - 2], "...", names[-1]]
            told = f"whose columns are {', '.join(some)}" if names else "which has no names"
            raise ValueError(f"{path} is text, {told}: leave key (--key) {key!r} out")
        columns = None
        if names:
            columns = _columns_of_cells(names, path, fields) if key is None else [names.index(key)]
        lines = itertools.islice(_text_lines(path), int(above), None)
        if decimal_commas:
            lines = (line.replace(",", ".") for line in lines)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of no numbers, which are told below
            array = np.loadtxt(lines, delimiter=separator, ndmin=2, encoding=None, quotechar='"', usecols=columns)
        if not array.size:
            raise ValueError("it holds no numbers")
        return array


def _separator(line: str) -> tuple[str | None, bool]:
    """What separates the numbers of a line, None for white space, and whether they may have decimal commas."""
    line = line.partition("#")[0].strip()
    if ";" in line:
        return ";", True
    words = line.split()
    if len(words) > 1 and all(re.fullmatch(r"[^,]+(,[^,]+)?", word) for word in words):
        return None, True
    return ("," if "," in line else None), False


def _words(line: str, separator: str | None, *counts: int) -> list[str]:
    """What a line holds; beside white space names may hold blanks, where tabs or quotes leave one of `counts`."""
    line = line.partition("#")[0].rstrip("\r\n")
    if separator is None:
        readings = [_split(line, mark) for mark in "\t "]
        words = next((words for count in counts for words in readings if len(words) == count), line.split())
    else:
        words = _split(line, separator)
    return [word.strip().strip("\"'") for word in words]


def _split(line: str, separator: str) -> list[str]:
    return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])


def _columns_of_cells(names: list[str], path: Path, fields: bool) -> list[int] | None:
    """The columns that are no numbers or times of the rows; None for all."""
    # what numbers the rows has no name: pandas and R's write.csv write it so
    columns = list(range(not names[0], len(names)))
    if fields and len(columns) > 1 and _TIME.fullmatch(names[columns[0]]):
        name = names[columns.pop(0)]
        warnings.warn(
            f"{path}: the first column, {name!r}, is taken for the times of the snapshots and left out of the fields; "
            f"key {name!r} reads it (--parameters {path} --parameters-key {name!r}). Rename it if it is a cell",
            UserWarning,
            stacklevel=2,
        )
    return None if len(columns) == len(names) else columns


def _are_names(words: list[str]) -> bool:
    """Whether the first line has names: of columns, which may be numbers behind that of the rows. A snapshot of which
    values are missing or not real begins with a value: it must be told, not left out."""
    if not words or _is_value(words[0]):
        return False
    if words[0] or not all(map(_is_value, words[1:])):
        return True
    # nothing, then values: the numbers of the columns as pandas writes them, or a snapshot without its first value
    if words[1:] and words[1:] in ([str(k + start) for k in range(len(words) - 1)] for start in (0, 1)):
        return True
    raise ValueError(
        "its first line begins with an empty value. If it is a line of names, begin it with one, or with #"
    )


def _is_value(word: str) -> bool:
    try:
        complex(word)
    except ValueError:
        return word.lower() in _MISSING or word[:2].lower() == "0x" or _FOREIGN_NUMBER.fullmatch(word) is not None
    return True


def _text_lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8-sig") as file:  # Excel begins with a mark of the encoding
        yield from (line for line in file if line.strip() and not line.lstrip().startswith(("#", "%")))


def _read_netcdf(path: Path, key: str | None) -> Any:
    xarray = _imported("xarray", path)
    with _told(path, "a netCDF file"):
        try:
            opened = xarray.open_dataset(path)
        except ValueError as error:
            if "IO backends" not in str(error) and "netcdf4" not in str(error).lower():
                raise
            with open(path, "rb") as file:
                if file.read(4) not in (b"\x89HDF", b"CDF\x01", b"CDF\x02", b"CDF\x05"):
                    raise ValueError("it does not begin like one") from None
            raise ImportError(
                f"{path} needs h5netcdf or netCDF4 beside xarray: pip install 'randsmap[files]'"
            ) from None
        with opened:
            return _variable(opened, key, path)


def _read_zarr(path: Path, key: str | None) -> Any:
    zarr = _imported("zarr", path)
    with _told(path, "a zarr store"):
        node = zarr.open(str(path), mode="r")
        if isinstance(node, zarr.Array):
            if key is not None:
                raise ValueError(f"it holds one array, which has no name: leave key (--key) {key!r} out")
            return np.asarray(node[...])
        xarray = _imported("xarray", path)
        with xarray.open_zarr(str(path), consolidated=False) as opened:
            return _variable(opened, key, path)


def _variable(dataset: Any, key: str | None, path: Path) -> Any:
    shapes = {str(name): value.shape for name, value in dataset.data_vars.items() if value.dtype.kind in "buif"}
    array = dataset[_chosen(shapes, key, path)].load()
    return array.copy(data=_native(array.values)) if not array.dtype.isnative else array


# -- Rows or columns -------------------------------------------------------------------------------
_SMOOTH, _ROUGH = 0.05, 0.5  # shares of the squared differences of lines drawn at random
_FEWEST, _MORE = 25, 4  # columns, and times as many rows, for what smoothness shows
_SAMPLE = 200  # rows whose differences are looked at


def transposed_evidence(F: Any) -> str | None:
    """What says that the columns of F are the fields, not its rows; None if nothing does.

    The rule is in the docstring of `read_snapshots`.
    """
    if not isinstance(F, np.ndarray) or F.ndim < 2 or min(F.shape) < 2:
        return None
    with np.errstate(all="ignore"):  # values that are not finite are told by who uses them
        if mapping_of(F) is None:
            columns, rows = F.reshape(-1, F.shape[-1]), F.reshape(len(F), -1)
            if _equal_sums(columns, 0) and not _equal_sums(rows, 1):
                return "all its columns have the same sum, and its rows have not"
        n, M = F.shape[0], F.shape[-1]
        if F.ndim > 2 or M < _FEWEST or n < _MORE * M:
            return None
        return _evidence_of_smoothness(F)


def _equal_sums(F: NDArray[Any], axis: int) -> bool:
    """Whether the sums along an axis are one number, which is not 0 but for round-off."""
    sums, sizes = F.sum(axis=axis, dtype=float), np.abs(F).sum(axis=axis, dtype=float)
    tol = 1e-4 if F.dtype == np.float32 else 1e-6
    return bool(np.ptp(sums) <= tol * sizes.max() and np.abs(sums).min() > 1e-3 * sizes.max())


def _evidence_of_smoothness(F: NDArray[Any]) -> str | None:
    n = len(F)
    rows = np.unique(np.linspace(0, n - 2, _SAMPLE).astype(int))
    here, after = np.asarray(F[rows], float), np.asarray(F[rows + 1], float)
    scatter = 2 * here.var(axis=0).sum()  # mean squared distance of rows at random
    if not scatter > 0 or not ((after - here) ** 2).sum(axis=1).mean() < _SMOOTH * scatter:
        return None
    columns = 2 * here.var(axis=1).sum()
    if ((here[:, 1:] - here[:, :-1]) ** 2).sum(axis=0).mean() > _ROUGH * columns > 0:
        return "its rows go on smoothly from one to the next, and its columns do not"
    ends = ((np.asarray(F[0], float) - np.asarray(F[-1], float)) ** 2).sum()
    sides = ((here[:, 0] - here[:, -1]) ** 2).sum()
    if ends < _SMOOTH * scatter and sides > _ROUGH * columns > 0:
        return "its first and last rows agree, as the ends of a domain do, and its first and last columns do not"
    return None
