"""Reading snapshots from the files that users have: NumPy's, MATLAB's, text, HDF5, netCDF and zarr."""

from __future__ import annotations

import errno
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.arrays import as_array, as_labels
from randsmap._interface.callers import installed, public, warn_caller
from randsmap._io.files import expanded, mapping_of, save_arrays, writable_target, write_atomically
from randsmap._io.matlab import NUMBER_CLASSES, NUMBERS, mat_arrays
from randsmap._io.text import TIME, Table, read_label_column, read_table
from randsmap._linalg.rows import check_npy_header, load_npy

__all__ = ["read_snapshots"]

_Name = str | os.PathLike[str]


def read_snapshots(path: str | os.PathLike[str], *, key: str | None = None, transpose: bool = False) -> Any:
    """Read snapshots from a file, as `fit` and `transform` take them: the first axis counts the snapshots.

    Parameters
    ----------
    path : path
        The extension determines the format: ``.npy``, ``.npz``, ``.csv``, ``.txt``, ``.mat`` (``-v7.3`` needs h5py),
        ``.h5``, ``.hdf5`` or ``.jld2`` (need h5py), ``.nc`` (needs xarray), or a folder ``.zarr`` (needs zarr, a group
        also xarray). ``pip install 'randsmap[files]'`` installs these. A file without an extension is text, and others
        are .npy files. A folder, or a pattern such as ``steps/*.npy``, stands for its files, which hold one field each
        and are ordered by the numbers in their names.
    key : str or None, default=None
        Name of the array in a file of several (``group/name`` in HDF5 and MATLAB's structs), of a coordinate in netCDF
        and zarr, or of a column of text. None: the one with numbers along at least two axes, or the only array.
    transpose : bool, default=False
        Whether the last axis counts the snapshots, as the columns of a matrix do; it then becomes the first.

    Returns
    -------
    ndarray or xarray.DataArray (n_samples, ...)
        In the number type of the file, or float64 if values are packed by the netCDF conventions; missing values are
        NaN. A large .npy file is memory-mapped. netCDF and groups of zarr give a DataArray, text an array with names of
        rows and columns. Arrays of MATLAB, Octave and Julia have the same axes as in these programs.

    Raises
    ------
    ValueError, ImportError, OSError
        If the file does not have the format of its extension, holds no numbers, or cannot be read. If it has several
        arrays and there is no `key`, the message lists them. If a package is missing, the message names it.

    Warns
    -----
    UserWarning
        If the meaning of a text file is assumed, or the columns look like fields and the rows do not (docs/files.md).

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, randsmap
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "run.npz")
    ...     np.savez(path, U=np.zeros((4, 5, 30)), t=np.arange(30.0))  # 30 fields of 4 x 5 cells
    ...     randsmap.read_snapshots(path, transpose=True).shape
    (30, 4, 5)
    """
    snapshots = read_array(path, key=key, transpose=transpose, fields=True)
    warn_of_columns(snapshots, path, transpose)
    return snapshots


def warn_of_columns(snapshots: Any, path: _Name, transpose: bool) -> None:
    """Warn if the columns of snapshots, read with `transpose` or without, look like fields, and the rows do not."""
    evidence = None if _step_files(expanded(path)) else transposed_evidence(snapshots)
    if evidence is not None:
        taken = f"{len(snapshots)} snapshots of {' x '.join(map(str, snapshots.shape[1:]))} cells"
        remedy = "it needs no transposing" if transpose else "read it with transpose (--transpose)"
        warn_caller(f"{path} is read as {taken}, but {evidence}. If the columns are fields, {remedy}")


def read_array(path: _Name, *, key: str | None = None, transpose: bool = False, fields: bool = False) -> Any:
    """The snapshots of `read_snapshots`, without its warnings; of text with `fields` no column of times."""
    path = expanded(path)
    if fields and (files := _step_files(path)):
        if transpose:
            raise ValueError(f"{path} names one file per snapshot, which has no columns to transpose")
        return _stacked([read_array(file, key=key) for file in files], files)
    reader = _reader(path)
    array = _read_text(path, key, fields) if reader is _read_text else reader(path, key)
    if array.dtype.kind not in _NUMERIC:
        raise ValueError(f"{path} must hold real numbers, got {array.dtype}")
    if not transpose:
        return array
    if array.ndim < 2:
        raise ValueError(f"{path} holds an array of shape {array.shape}, which cannot be transposed")
    if isinstance(array, np.ndarray):
        return array.T if array.ndim == 2 else np.moveaxis(array, -1, 0)
    return array.transpose(array.dims[-1], ...)


def _step_files(path: Path) -> list[Path]:
    """The files, one per snapshot, of a pattern or of a folder, in the order of the numbers in their names; or none."""
    if path.exists() and (not path.is_dir() or any((path / name).exists() for name in _ZARR) or path.suffix == ".zarr"):
        return []
    found = path.iterdir() if path.is_dir() else map(Path, glob(str(path), recursive=True))
    files = [file for file in found if not file.name.startswith(".")]
    if not files and path.is_dir():
        raise ValueError(f"{path} is a folder without files: one file per snapshot is expected")
    if len({file.suffix for file in files}) > 1:
        endings = ", ".join(sorted({file.suffix or "none" for file in files}))
        raise ValueError(
            f"{path} has files of several endings ({endings}): name those of snapshots by a pattern, '*.npy'"
        )
    numbers = r"((?<!\d)(?<!\d\.)\d+(?:\.\d+)?(?:e[-+]\d+)?(?!\.?\d)|\d+)"  # three whole ones in 2020.1.5
    fractions = {digits for file in files for digits in re.findall(r"\d\.(\d+)", file.name)}
    if len(set(map(len, fractions))) > 1 and any(len(f) > 1 and f.endswith("0") for f in fractions):
        numbers = r"(\d+)"  # run1.9 and run1.10: no decimals are written so
    names = [enumerate(re.split(numbers, str(file))) for file in files]
    keys = [[int(word) if word.isdecimal() else float(word) if i % 2 else word for i, word in name] for name in names]
    return [files[k] for k in sorted(range(len(files)), key=keys.__getitem__)]


def _stacked(arrays: list[Any], files: list[Path]) -> NDArray[Any]:
    """One field per file (n, *shape), where axes of length 1 at the ends do not count."""
    fields = [np.asarray(array) for array in arrays]
    fields = [field.reshape(-1) if field.size == max(field.shape, default=1) else field for field in fields]
    for field, file in zip(fields, files, strict=True):
        if field.shape != fields[0].shape:
            raise ValueError(f"{file} holds a field of shape {field.shape}, and {files[0]} one of {fields[0].shape}")
    return np.stack(fields)


def read_columns(path: Path, *, key: str | None = None, width: int | None = None, transpose: bool = False) -> Any:
    """Parameters (n, p) by `read_array`, p = `width` if known; a vector, which MATLAB has as a row, is one column."""
    values = read_array(path, key=key)
    if transpose and values.ndim == 2:
        values = values.T
    if values.ndim == 2 and len(values) == 1 and values.shape[1] != width:
        values = values[0]
    if values.ndim == 1:
        values = values[:, None] if isinstance(values, np.ndarray) else values.expand_dims("", 1)
    checked = as_array(values, str(path), min_rows=0)
    return checked if type(values) is np.ndarray else values


def read_labels(path: Path, n: int, *, key: str | None = None) -> Any:
    """Labels of n rows from an array of a file with names (MATLAB's may be text), a .npy file, or a text."""
    ending = path.suffix.lower()
    if ending in HAVE_NAMES and key is not None:
        labels = _READERS[ending](path, key, "buifMmOSTU")
    elif ending in HAVE_NAMES or _start(path).startswith(_NPY):
        labels = read_array(path, key=key)
    else:
        try:
            labels = read_label_column(path, n, key)
        except UnicodeDecodeError:
            raise ValueError(f"{path} is neither a .npy file nor text") from None
    as_labels(labels, str(path))
    return labels


# formats with several named arrays
HAVE_NAMES = (".npz", ".mat", ".h5", ".hdf5", ".jld2", ".nc", ".nc4", ".zarr")
_NUMERIC = "buif"  # kinds of NumPy's types that are numbers
_WRITTEN = (".npy", ".npz", ".mat", ".csv", ".txt", ".h5", ".hdf5")
_LARGEST_MAT = 2**32  # bytes of an array in MATLAB's format 5
_ZARR = "zarr.json", ".zarray", ".zgroup"  # files of a folder that is a store of zarr
_NPY, _HDF5 = b"\x93NUMPY", b"\x89HDF"


def is_npy_target(path: Path) -> bool:
    """True if `write_array` makes a .npy file of this path: one with no other known ending."""
    return path.suffix.lower() not in _READERS


def check_target(path: Path, n_values: int = 0) -> None:
    """Raise what `write_array` would raise for so many values, before the work is done."""
    ending = path.suffix.lower()
    if ending in _READERS and ending not in _WRITTEN:
        raise ValueError(f"{path}: arrays are not written as {ending}, but as {', '.join(_WRITTEN)}")
    if ending in (".h5", ".hdf5"):
        installed("h5py", path, "files")
    if ending == ".mat" and 8 * n_values >= _LARGEST_MAT:
        size = f"less than 4 GB, the array has {8 * n_values} bytes"
        raise ValueError(f"{path}: a .mat file holds {size}: write .h5 or .npy")
    writable_target(path)


def write_array(path: Path, array: NDArray[np.float64], name: str, *, transpose: bool = False) -> None:
    """Write an array (n, ...), with that name in .mat, .npz and HDF5, in the format of the ending, .npy without one."""
    check_target(path, array.size)
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
        with installed("h5py", name, "files").File(file, "w") as hdf5:
            hdf5[name] = array
    else:
        np.save(file, array, allow_pickle=False)


def _reader(path: Path) -> Callable[..., Any]:
    ending = path.suffix.lower()
    if ending == ".zarr":
        if not path.exists():
            raise FileNotFoundError(2, os.strerror(2), str(path))
        return _read_zarr
    if any((path / name).is_file() for name in _ZARR):  # a.zarr/U
        return _read_zarr
    start = _start(path)
    if ending in _READERS:
        return _READERS[ending]
    if ending == ".npy" or start.startswith(_NPY):
        return _read_npy
    # the model files, archives and images that a file without an ending may be begin with zeros
    if not ending and (b"\0" not in start or start[:2] in (b"\xff\xfe", b"\xfe\xff")):
        return _read_text
    raise ValueError(f"{path} is not a .npy file, and its ending is none of {', '.join(_READERS)}")


def _start(path: Path) -> bytes:
    """The first bytes of a file. Python's errors for a missing file, a folder and missing permission."""
    with open(path, "rb") as file:
        return file.read(4096)


# what stands next to "data" in files of SciPy, PyData, anndata, MATLAB and Octave that hold a sparse matrix
_SPARSE = [two.split() for two in ("indices indptr", "row col", "offsets shape", "coords shape", "ir jc", "ridx cidx")]
# kinds of arrays that hold no fields: another array next to them is read without a message
_NO_FIELDS = {*"char string sq_string labels function function_handle datetime duration categorical".split()}


def _chosen(arrays: Mapping[str, Any], key: str | None, path: Path) -> str:
    """The name of the array to read. `arrays`: name -> shape, or the reason why it is no array of real numbers."""
    prefixes = [name.removesuffix("data") for name in arrays if name.endswith("data")]  # S/ of S/data, a_ of a_data
    for at in [at for at in prefixes if any({at + a, at + b} <= arrays.keys() for a, b in _SPARSE)]:
        if not at:
            raise ValueError(f"{path} holds a sparse matrix, which has to be written dense (toarray)")
        arrays = {name: what for name, what in arrays.items() if not name.startswith(at)} | {at.rstrip("/_."): "sparse"}
    shapes = {name: what for name, what in arrays.items() if not isinstance(what, str)}
    others = {name: what for name, what in arrays.items() if isinstance(what, str)}
    listed = ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "none"
    rest = ", ".join(f"{name} ({kind})" for name, kind in others.items())
    besides = f", besides {rest}" if rest else ""
    if key is not None:
        path_of_key = key.replace(".", "/").strip("/")
        for name in shapes:
            if name == key or name.strip("/") == path_of_key:
                return name
        raise ValueError(f"{path} has no array {key!r} of numbers; it has {listed}{besides}")
    wide = [name for name, shape in shapes.items() if sum(length > 1 for length in shape) >= 2]
    candidates = wide or list(shapes)
    if len(candidates) > 1:
        raise ValueError(f"{path} has several arrays: {listed}{besides}. Name one of them with key (--key)")
    if not candidates:
        dense = " (a sparse matrix has to be written dense)" if "sparse" in rest else ""
        raise ValueError(f"{path} has no array of numbers{besides}{dense}")
    rest = ", ".join(f"{name} ({kind})" for name, kind in others.items() if kind.split()[-1] not in _NO_FIELDS)
    (name,) = candidates
    if rest:
        warn_caller(f"{path}: {name} is read; ignored: {rest}. key (--key) {name!r} confirms this")
    return name


@contextmanager
def _as_value_error(path: Path, what: str) -> Iterator[None]:
    """Turn what readers raise at damaged files, which may be anything, into a ValueError that names the file."""
    try:
        yield
    except (ImportError, Warning):
        raise
    except MemoryError:
        raise MemoryError(f"{path} declares more data than fit into memory") from None
    except Exception as error:
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        # EINVAL: a place before the file's start
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise ValueError(f"{path} cannot be read as {what}: {error}") from error


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """The array in this machine's order of bytes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_npy(path: Path, key: str | None) -> NDArray[Any]:
    _refuse_key(key, str(path))
    return load_npy(path)


def _refuse_key(key: str | None, what: str) -> None:
    if key is not None:
        raise ValueError(f"{what} holds one array, which has no name: leave key (--key) {key!r} out")


def _read_npz(path: Path, key: str | None, kinds: str = _NUMERIC) -> NDArray[Any]:
    with _as_value_error(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        arrays = {}
        for name, member in members.items():  # only the headers of the arrays are read
            with archive.open(member) as file:
                shape, dtype = check_npy_header(file, archive.getinfo(member).file_size)
                words = dtype.name + " labels" * (dtype.kind in "USMm" and len(shape) < 2)
                arrays[name] = shape if dtype.kind in kinds else words
        with archive.open(members[_chosen(arrays, key, path)]) as file:
            return _native(np.lib.format.read_array(file, allow_pickle=False))


def _read_mat(path: Path, key: str | None, kinds: str = _NUMERIC) -> NDArray[Any]:
    with open(path, "rb") as file:
        start = file.read(512)
        if start.startswith((b"MATLAB 7.3", _HDF5)):
            return _read_hdf5(path, key, kinds)
        with _as_value_error(path, "a .mat file"):
            if not re.search(rb"[^\t-\r -~]", start):
                written = "of Octave's save" if b"Octave" in start else "of MATLAB's save -ascii"
                raise ValueError(f"it is text {written}: save it with -v7, or rename it to .txt")
            arrays = mat_arrays(file)
            read = (NUMBERS,) if kinds == _NUMERIC else (NUMBERS, "char", "cell")
            found = {name: array.shape if array.kind in read else array.kind for name, array in arrays.items()}
            return arrays[_chosen(found, key, path)].read()


# types of Octave's that are stored as arrays of their numbers
_OCTAVE_NUMBERS = re.compile(r"bool|((float|bool|u?int\d+) )?(matrix|scalar)")


def _read_hdf5(path: Path, key: str | None, kinds: str = _NUMERIC) -> NDArray[Any]:
    h5py, start = installed("h5py", path, "files"), _start(path)
    # these programs write columns first, which HDF5 has as an array of reversed axes
    by_columns = start.startswith(b"MATLAB 7.3") or b"Julia" in start[:64]
    with _as_value_error(path, "an HDF5 file"), h5py.File(path, "r") as file:
        found: dict[str, tuple[str, bool]] = {}
        others: dict[str, str] = {}

        def word(value: Any) -> str:
            return str(np.ravel(value).astype(str)[0])

        def note(path: str, node: Any) -> None:
            if path.startswith("#") or any(path.startswith(f"{other}/") for other in others):
                return  # MATLAB keeps contents of cells in #refs#
            octave = "OCTAVE_NEW_FORMAT" in (node.parent if path.endswith("/value") else node).attrs
            name = re.sub(r"/value\b", "", path) if octave else path
            kind = word(node.attrs.get("MATLAB_class", ""))
            if octave and path.endswith("/value") and "type" in node.parent:
                kind = word(node.parent["type"][()])
            if not isinstance(node, h5py.Dataset):
                frame = word(node.attrs.get("pandas_type", ""))
                if "MATLAB_sparse" in node.attrs:
                    others[name] = "sparse"
                elif frame.endswith("table") or frame == "frame" and node.attrs.get("nblocks", 1) > 1:
                    others[name] = "pandas table: write numbers of one type, with format='fixed'"
            elif node.shape is None or "MATLAB_empty" in node.attrs or "OCTAVE_EMPTY_MATRIX" in node.attrs:
                return  # HDF5's empty data space, or the shape of an empty array
            elif node.dtype.kind in "buif" and (not kind or kind in NUMBER_CLASSES or _OCTAVE_NUMBERS.fullmatch(kind)):
                found[name] = path, by_columns or bool(kind) or octave or "rhdf5-NA.OK" in node.attrs
            elif kinds != _NUMERIC and h5py.check_string_dtype(node.dtype):
                found[name] = path, False
            elif node.dtype.kind == "c" or node.dtype.names in (("real", "imag"), ("r", "i")):
                others[name] = "complex"
            elif kind or node.dtype.kind != "S" and not h5py.check_string_dtype(node.dtype):
                others[name] = kind or ("table" if node.dtype.names else node.dtype.name)

        file.visititems(note)
        shapes = {name: file[at].shape[:: -1 if turned else 1] for name, (at, turned) in found.items()}
        at, turned = found[_chosen({**shapes, **others}, key, path)]
        node = file[at]
        if h5py.check_string_dtype(node.dtype):
            return np.asarray(node.asstr()[()])
        if path.suffix == ".mat" and not turned:
            warn_caller(f"{path}: its axes are in the order of HDF5, as the file does not state that MATLAB wrote it")
        _refuse_missing(h5py, path, node)
        values = _unpacked(_native(np.asarray(node[()])), node.attrs, path, node.fillvalue)
        return values.T if turned else values


def _refuse_missing(h5py: Any, path: Path, node: Any) -> None:
    gone = [*dict.fromkeys(_missing_sources(h5py, path, node))] if isinstance(node, h5py.Dataset) else []
    if gone:
        at = node.name.strip("/")
        raise ValueError(f"{at} is virtual, and of the sources of its values these are missing: {', '.join(gone)}")


def _missing_sources(h5py: Any, path: Path, node: Any) -> Iterator[str]:
    """The missing files of a virtual array of HDF5, which returns its fill value instead without a message."""
    for source in node.virtual_sources() if node.is_virtual else []:
        name, key = source.file_name, source.dset_name
        own = [name, os.path.basename(name)] if os.path.isabs(name) else [name]
        folders = [path.parent, path.resolve().parent, Path(os.environ.get("HDF5_VDS_PREFIX", "")), Path()]
        place = path if name == "." else next(filter(Path.is_file, (at / part for part in own for at in folders)), None)
        if place is not None:
            with h5py.File(place, "r") as file:
                yield from _missing_sources(h5py, place, file[key]) if key in file else [f"{name}/{key}"]
        elif "%" not in name:  # not a pattern: the array of a pattern has as many rows as there are files
            yield name


def _unpacked(values: NDArray[Any], attributes: Mapping[str, Any], path: Path, unwritten: Any) -> NDArray[Any]:
    """Physical values, with a warning of attributes that may say how they are stored, but have no common meaning."""
    names = sorted(name for name in attributes if _UNCERTAIN.fullmatch(name.replace("_", "")) and name not in _PACKING)
    if names:
        warn_caller(f"{path}: values are read as stored, and these attributes are ignored: {', '.join(names)}")
    return _physical(values, attributes, unwritten)


def _read_text(path: Path, key: str | None, fields: bool = False) -> Table:
    with _as_value_error(path, "text with one row of numbers per line"):
        return read_table(path, key, fields=fields)


def _read_netcdf(path: Path, key: str | None, kinds: str = _NUMERIC) -> Any:
    xarray = installed("xarray", path, "files")
    with _as_value_error(path, "a netCDF file"):
        options = {"mask_and_scale": False, "decode_timedelta": False}
        try:
            if _start(path).startswith(_HDF5):
                with suppress(ImportError):  # unknown for files that only netCDF4 reads
                    h5py = installed("h5py", path, "files")
                    with h5py.File(path, "r") as file:
                        file.visititems(lambda _, node: _refuse_missing(h5py, path, node))
                groups = xarray.open_groups(path, **options)
            else:
                groups = {"": xarray.open_dataset(path, **options)}
        except ValueError as error:
            if "IO backends" not in str(error) and "netcdf4" not in str(error).lower():
                raise
            with open(path, "rb") as file:
                if file.read(4) not in (b"\x89HDF", b"CDF\x01", b"CDF\x02", b"CDF\x05"):
                    raise ValueError("its first bytes are of another format") from None
            needed = "h5netcdf or netCDF4 in addition to xarray"
            raise ImportError(f"{path} needs {needed}: pip install 'randsmap[files]'") from None
        return _variable(groups, {}, key, path, kinds)


def _read_zarr(path: Path, key: str | None, kinds: str = _NUMERIC) -> Any:
    zarr = installed("zarr", path, "files")
    with _as_value_error(path, "a zarr store"):
        node = zarr.open(str(path), mode="r")

        def plain(array: Any) -> NDArray[Any]:
            return _unpacked(_native(np.asarray(array[...])), array.attrs, path, array.fill_value)

        if isinstance(node, zarr.Array):
            _refuse_key(key, "it")
            return plain(node)
        xarray = installed("xarray", path, "files")
        options = {"consolidated": False, "mask_and_scale": False, "decode_timedelta": False}
        groups: dict[str, Any] = {}
        others: dict[str, str] = {}
        nodes = [("", node)]
        for at, group in nodes:
            nodes += [(f"{at}/{name}", member) for name, member in group.groups()]
            try:
                groups[at] = xarray.open_zarr(str(path), group=at or None, **options)
            except KeyError:
                others |= {f"{at}/{name}".strip("/"): "array of axes without names" for name in group.array_keys()}
                continue
            for name, array in group.arrays():
                own = array.attrs.get("_FillValue", array.fill_value or None)
                if not isinstance(own, str):  # format 3, which xarray decodes
                    groups[at].variables[name].attrs["_FillValue"] = own
        if key in others or not any(map(len, groups.values())):
            return plain(node[_chosen(_described({name: node[name] for name in others}, kinds), key, path)])
        return _variable(groups, others, key, path, kinds)


def _described(arrays: Mapping[str, Any], kinds: str) -> dict[str, Any]:
    """Shapes of arrays of these kinds, and what complex and compound ones are; no others."""
    shapes = {name: array.shape for name, array in arrays.items() if array.dtype.kind in kinds}
    return shapes | {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind in "cV"}


def _units(array: Any) -> str:
    return str({**array.encoding, **array.attrs}.get("units"))


def _as_stored(array: Any) -> Any:
    """A variable of dates as the numbers since a date that a file holds."""
    if array.dtype.kind in "buif":
        return array
    import xarray

    stored = xarray.conventions.encode_cf_variable(array.variable)
    return xarray.DataArray(stored.values, array.coords, array.dims, array.name)


def _variable(groups: Mapping[str, Any], others: dict[str, str], key: str | None, path: Path, kinds: str) -> Any:
    """A variable in groups (datasets) that are not decoded, or that a key names a coordinate, in physical values."""

    def physical(stored: Any) -> Any:
        values, attributes = _native(stored.values), {k: v for k, v in stored.attrs.items() if v is not None}
        unwritten = None if "_FillValue" in stored.attrs else _UNWRITTEN.get(values.dtype.str[1:])
        array = stored.copy(data=_unpacked(values, attributes, path, unwritten))
        array.attrs = {name: value for name, value in attributes.items() if name not in _PACKING}
        return array

    found = {
        f"{at}/{name}".strip("/"): array
        for at, group in groups.items()
        for name, array in (group.data_vars if key is None else {**group.coords, **group.data_vars}).items()
    }
    if key is not None and kinds == _NUMERIC:  # dates as the numbers in the file
        found |= {name: _as_stored(array) for name, array in found.items() if " since " in _units(array)}
    try:
        array = physical(found[_chosen(_described(found, kinds) | others, key, path)].load())
    finally:
        for group in groups.values():
            group.close()
    places = ((name, place) for name, place in array.coords.items() if place.dtype.kind in "buif")
    return array.assign_coords({name: physical(place.variable) for name, place in places if _PACKING & {*place.attrs}})


_READERS: dict[str, Callable[..., Any]] = {
    ".npz": _read_npz,
    ".mat": _read_mat,
    **dict.fromkeys((".csv", ".txt"), _read_text),
    **dict.fromkeys((".h5", ".hdf5", ".jld2"), _read_hdf5),
    **dict.fromkeys((".nc", ".nc4"), _read_netcdf),
    ".zarr": _read_zarr,
}


# -- Physical values by the netCDF conventions (CF 2.5 and 8.1, NetCDF Users Guide) ---------------
_PACKING = {*"_FillValue missing_value scale_factor add_offset valid_min valid_max valid_range _Unsigned".split()}
_UNCERTAIN = re.compile(
    r"(?i)(scal(e|ing))?(factor|slope|offset)|scal(e|ing)|addoffset|intercept|gain|multiplier|unsigned"
    r"|valid(min|max|range)|(code)?(fill|missing|nodata|undef)(val(ue)?s?)?"
)
# the netCDF library writes these where a program has written nothing
_UNWRITTEN = {
    **dict.fromkeys(("f4", "f8"), 9.969209968386869e36),
    **{"i2": -(2**15) + 1, "i4": -(2**31) + 1, "i8": -(2**63) + 2, "u2": 2**16 - 1, "u4": 2**32 - 1, "u8": 2**64 - 2},
}


def _physical(values: NDArray[Any], attributes: Mapping[str, Any], unwritten: Any = None) -> NDArray[Any]:
    """The physical values, in float64 if they are packed; NaN where they are missing, not valid or `unwritten`."""
    given = {name: np.ravel(value) for name, value in attributes.items() if name in _PACKING}
    if unwritten is not None and unwritten == unwritten and unwritten:  # 0 is a valid value
        given["unwritten"] = np.ravel(unwritten)
    unsigned = str(given.pop("_Unsigned", np.array([""])).astype(str)[0]).lower()
    integers = values.dtype.kind in "iu"
    if integers and unsigned in ("true", "false"):
        values = values.view(f"{'u' if unsigned == 'true' else 'i'}{values.itemsize}")
    for name, numbers in given.items():
        if numbers.dtype.kind not in "buif" or len(numbers) != 1 + (name == "valid_range") and name != "missing_value":
            raise ValueError(f"its attribute {name} is {attributes[name]!r}, expected a number")
        if integers and numbers.dtype.kind in "iu" and name not in ("scale_factor", "add_offset"):
            given[name] = numbers.astype(values.dtype)  # unsigned bytes: -1 is 255
    missing, result = np.zeros(values.shape, bool), values
    for fill in [fill for name in ("_FillValue", "missing_value", "unwritten") for fill in given.get(name, ())]:
        if values.dtype.kind == "f" and (4 in (values.itemsize, fill.itemsize) or abs(fill) > 1e10):  # 1e20 in float32
            with np.errstate(over="ignore"):
                missing |= values.astype("f4") == np.float32(fill)
        else:
            missing |= values == fill
    for name, operation in (("scale_factor", np.multiply), ("add_offset", np.add)):
        if name in given:
            result = operation(result, given[name][0], dtype=np.float64)
    low, high = given.get("valid_range", (None, None))
    low, high = given.get("valid_min", [low])[0], given.get("valid_max", [high])[0]
    for limit, beyond in ((low, np.less), (high, np.greater)):
        if limit is not None:  # of a packed array, in units of the type that it has
            missing |= beyond(result if integers and limit.dtype.kind == "f" else values, limit)
    if missing.any():
        result = result.astype(np.float64 if result.dtype.kind != "f" else result.dtype)
        result[missing] = np.nan
    return result


# -- Rows or columns -------------------------------------------------------------------------------
def transposed_evidence(F: Any) -> str | None:
    """The sign that the columns of F are the fields, not its rows, or None: see `read_snapshots`."""
    axes: Any = getattr(F, "dims", ())
    times = [axis for axis in axes if TIME.fullmatch(str(axis))]
    places = getattr(F, "coords", {}).items()
    times += [place.dims[0] for name, place in places if place.ndim == 1 and _are_times(name, place)]
    if times and axes[0] not in times:
        return f"its axis {str(times[0])!r} is not the first"
    if not isinstance(F, np.ndarray) or F.ndim < 2 or min(F.shape) < 2:
        return None
    with np.errstate(all="ignore"):  # values that are not finite raise where they are used
        if mapping_of(F) is None:
            columns, rows = F.reshape(-1, F.shape[-1]), F.reshape(len(F), -1)
            if _equal_sums(columns, 0) and not _equal_sums(rows, 1):
                return "all its columns have the same sum, and its rows do not"
        if F.ndim > 2 or F.shape[1] < 25 or len(F) < 4 * F.shape[1]:  # smoothness is chance
            return None
        return _evidence_of_smoothness(F)


def _are_times(name: object, place: Any) -> bool:
    """True for a coordinate of times, by its name or type or the attributes of CF (4.4)."""
    about = {**place.encoding, **place.attrs}
    says = about.get("axis") == "T" or about.get("standard_name") == "time" or " since " in _units(place)
    return says or place.dtype.kind == "M" or TIME.fullmatch(str(name)) is not None


def _equal_sums(F: NDArray[Any], axis: int) -> bool:
    """True if the sums along an axis are one number, which is not 0 to round-off."""
    sums, sizes = F.sum(axis=axis, dtype=float), np.abs(F).sum(axis=axis, dtype=float)
    tol = 1e-4 if F.dtype == np.float32 else 1e-6
    return bool(np.ptp(sums) <= tol * sizes.max() and np.abs(sums).min() > 1e-3 * sizes.max())


def _evidence_of_smoothness(F: NDArray[Any]) -> str | None:
    # limits, relative to the squared differences of two random lines: with these no data set of `randsmap.datasets`
    # looks transposed, and the transposes of travelling and growing bumps do (tests/test_snapshots.py)
    smooth, rough = 0.05, 0.5
    at = np.unique(np.linspace(0, len(F) - 2, 200).astype(int))  # this sample is read from a large file in a second
    rows, following = np.asarray(F[at], float), np.asarray(F[at + 1], float)
    # mean squared distances of two rows, and of two columns, at random
    of_rows, of_columns = 2 * rows.var(axis=0).sum(), 2 * rows.var(axis=1).sum()
    if not _mean_square(following - rows, 1) < smooth * of_rows:
        return None
    if _mean_square(np.diff(rows, axis=1), 0) > rough * of_columns > 0:
        return "its rows go on smoothly from one to the next, and its columns do not"
    ends, sides = np.asarray(F[[0]], float) - np.asarray(F[[-1]], float), rows[:, [0]] - rows[:, [-1]]
    if _mean_square(ends, 1) < smooth * of_rows and _mean_square(sides, 0) > rough * of_columns > 0:
        return "its first and last rows agree, as the ends of a domain do, and its first and last columns do not"
    return None


def _mean_square(differences: NDArray[np.float64], axis: int) -> float:
    return float((differences**2).sum(axis=axis).mean())


public(globals())
