"""Model files: fitted models on disk, exact to the bit, safe to load from anyone.

A file is an ``.npz`` without pickles or compression: first a manifest in JSON (the classes by name, their parameters),
then the arrays, named by the attribute that holds them (``decoder_.coef_``). The archive's comment, the last 64 bytes,
is the SHA-256 of everything before it, so that a file with any bit changed is refused. Before memory is taken for an
array, its length is compared with the bytes that the file has.

Parameters are numbers, strings, None, arrays of numbers, lists and tuples of these, and other stored objects; NumPy
scalars and strings come back as Python's, a random generator as None. Loading makes classes of the package only, and
checks each parameter and fitted attribute against its declaration. A class declares all its fitted attributes in
``_state`` (`randsmap._interface.state`), and has a line in `INNER` unless it is a public name of `randsmap`. Rules:

- ``__init__`` only stores its arguments, as scikit-learn asks. Other classes have no parameters, only ``_state``.
- An attribute that is declared NOT_SAVED is made from the others by a method ``_restore()``, which also makes the
  checks that a declaration cannot express (ValueError). The result of a BLAS is stored, not recomputed.
- A transformer has `_n_features_out` and a regressor `_n_outputs`, so that the parts of a model are known to fit.
- A parameter that is missing in a file takes its default. If anything else changes, `VERSION` grows.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import math
import numbers
import os
import stat
import struct
import sys
import zipfile
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import randsmap
from randsmap._interface.arrays import empty_aligned
from randsmap._interface.callers import public
from randsmap._interface.parameters import document
from randsmap._interface.state import NOT_SAVED, check_state, declared_state, is_computed, is_optional
from randsmap._io.files import CHUNK, expanded, write_atomically
from randsmap.maps.frozen import is_image, load_image

__all__ = ["load", "save"]

FORMAT, VERSION = "randsmap model", 1
# classes with `_state` that are not public -> their modules
INNER = {
    "AffineInvariants": "invariants",
    "ErrorBar": "maps.error_bar",
    "FieldShape": "_interface.fields",
    "HarmonicFit": "decoders._kernel",
    "HeldOutErrors": "model._base",
    "KernelFit": "decoders._kernel",
    "GeodesicExtension": "encoders._isomap",
    "NystroemExtension": "encoders._nystroem",
    "ModeCoordinates": "encoders._pod",
    "RidgeFit": "decoders._ridge_fit",
    "KNNFit": "decoders._knn",
    "BlendFit": "decoders._blended",
    "TransformerBasis": "maps.linear_map",
    "Labels": "_interface.labels",
}
_MAX_DEPTH = 20  # of parameters within parameters: a list may hold itself
_MAX_OBJECTS = 400  # blends of 12 decoders of random features, of fields and of latents over parameters, are 230
_NAMES = "feature_names_in_"  # of scikit-learn, in an estimator that was fitted on a data frame


_documented = partial(
    document,
    texts={
        "example": """\
>>> import pathlib, tempfile, randsmap
>>> model = randsmap.ManifoldModel(randsmap.POD(1)).fit([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
>>> with tempfile.TemporaryDirectory() as folder:
...     randsmap.persistence.save(model, pathlib.Path(folder, "model.npz"))
...     randsmap.load(pathlib.Path(folder, "model.npz"))
ManifoldModel(encoder=POD(n_components=1))"""
    },
)


@_documented
def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file.

    Parameters
    ----------
    model : fitted estimator of this package
    path : path
        Usually with the ending ``.npz``. The file is written whole or not at all.

    Raises
    ------
    sklearn.exceptions.NotFittedError, TypeError, OSError
        If the model is not fitted, a part or parameter (named) needs a pickle, or the file cannot be written.

    {example}
    """
    writer = _Writer()
    writer.add(model, "", 0)
    if writer.objects[-1]["state"] is None:
        check_is_fitted(model, next(iter(declared_state(type(model)))))
    if len(writer.objects) > _MAX_OBJECTS:
        raise TypeError(f"the model has {len(writer.objects)} parts, at most {_MAX_OBJECTS} fit")
    manifest = {"format": FORMAT, "version": VERSION, "randsmap": randsmap.__version__, "objects": writer.objects}
    write_atomically(path, lambda file: write_archive(file, manifest, writer.arrays))


@_documented
def load(path: str | os.PathLike[str]) -> Any:
    """Load a model from a file; safe for files from untrusted sources.

    Parameters
    ----------
    path : path
        A file written by `ManifoldModel.save`, `save`, or by the `save` of a frozen decoder or model.

    Returns
    -------
    model
        Bit-identical to the saved model; its arrays are C-contiguous and writeable.

    Raises
    ------
    ValueError, OSError
        If the file is not a model file, is damaged, cut off, forged or of another format version, or cannot be read.

    Notes
    -----
    The file contains no code, and loading takes no more memory than its size. A forged file may hold a model that
    decodes wrong fields: the digest detects damage, not the author of the file.

    {example}
    """
    path = expanded(path)
    if os.path.isfile(path):  # never wait for a pipe
        with open(path, "rb") as file:
            if is_image(file.read(8)):
                return load_image(path)
    try:
        return _restored(*read_archive(path))
    # errors of a forged manifest, which may hold any value in any place
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a valid model file: {error}") from error


def storable_class(name: str) -> Any:
    """The class of this name that a file can hold; None if there is none."""
    if name in INNER:
        return getattr(import_module(f"randsmap.{INNER[name]}"), name)
    found = getattr(randsmap, name) if name in dir(randsmap) else None
    return found if isinstance(found, type) and hasattr(found, "_state") else None


def _stored(kind: Any) -> dict[str, Any]:
    """The fitted attributes of a class that a file holds, by name, with their declarations."""
    return {name: how for name, how in declared_state(kind).items() if how is not NOT_SAVED}


# -- Objects to a manifest -------------------------------------------------------------------------
class _Writer:
    """Objects and arrays in the order in which they go into a file, each once."""

    def __init__(self):
        self.objects, self.arrays = [], {}
        self._known = {}  # id -> place in the file, and the object, so that no other object gets its id

    def add(self, value, path, depth):
        """Index of an object in the list; the objects that it refers to come before it."""
        name = type(value).__name__
        if type(value) is not storable_class(name):
            params = value.get_params(deep=False) if type(value) is getattr(randsmap, name, None) else {}
            for key, part in params.items():  # the error names the innermost part that no file can hold
                self._value(part, f"{path}{key}", depth + 1)
            what = f"{path.strip('.') or 'the model'} is of class {type(value).__module__}.{name}"
            held = "it holds estimators of randsmap, but no ConservativeRegressor"
            remedy = "use pickle, for files that only you and those who trust you load"
            raise TypeError(f"{what}, which a model file cannot hold ({held}); {remedy}")
        if id(value) in self._known:
            return self._known[id(value)][0]
        params = value.get_params(deep=False) if isinstance(value, BaseEstimator) else {}
        # for batches the solution is stored instead of the sums
        stored = value.storable() if hasattr(value, "storable") else value
        entry = {"class": name}
        for part, values in (("params", params), ("state", self._state(stored, path, params))):
            entry[part] = values and {k: self._value(v, path + k, depth) for k, v in values.items()}
        if entry["state"] is not None:  # after the parts, so that an error names a part first
            check_state(stored)
        self._known[id(value)] = len(self.objects), (value, stored)
        self.objects.append(entry)
        return len(self.objects) - 1

    def _state(self, value, path, params):
        """The fitted attributes of an object by name; None if it is not fitted."""
        attributes, stored = vars(value), _stored(type(value))
        unknown = attributes.keys() - params.keys() - declared_state(type(value)).keys() - {_NAMES}
        unknown = sorted(name for name in unknown if not is_computed(type(value), name))
        if unknown:
            what = f"{path}{unknown[0]}: a model file does not keep attributes that {type(value).__name__}"
            raise TypeError(f"{what} does not declare, got {', '.join(unknown)}")
        state = {name: attributes[name] for name in stored if name in attributes}
        if state and _NAMES in attributes:
            state[_NAMES] = attributes[_NAMES].tolist()
        return state or None

    def _value(self, value, path, depth):
        """A parameter or attribute as JSON."""
        if depth > _MAX_DEPTH:
            raise TypeError(f"{path} is nested too deeply for a model file")
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = float(value) if value.dtype.kind == "f" else value.item()
        elif isinstance(value, numbers.Real) and not isinstance(value, (bool, np.generic)):  # fractions too
            value = int(value) if isinstance(value, numbers.Integral) else float(value)
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:  # its repr, as JSON has it, is exact
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, (np.random.RandomState, np.random.Generator)):
            return None
        if hasattr(value, "__array__") and not isinstance(value, (np.memmap, np.ma.MaskedArray)):  # labelled arrays too
            value = np.asarray(value)
            value = np.array(value.tolist()) if value.dtype.kind == "O" else value
        if type(value) is np.ndarray and value.dtype.char in "Ug":  # strings and long doubles by their values
            value = value.tolist() if value.dtype.char == "U" else value.astype(float)
        if type(value) in (np.ndarray, np.memmap):
            if value.dtype.newbyteorder("<").str not in DTYPES:
                raise TypeError(f"{path} has elements of type {value.dtype}, which a model file cannot hold")
            name, _ = self._known.setdefault(id(value), (path, value))
            self.arrays.setdefault(name, value)
            return {"array": name}
        if type(value) in (list, tuple):
            items = [self._value(v, f"{path}.{i}", depth + 1) for i, v in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        return {"object": self.add(value, f"{path}.", depth + 1)}


# -- A manifest to objects -------------------------------------------------------------------------
def _restored(manifest, arrays):
    """The last object of a manifest, which may be forged."""
    if manifest["format"] != FORMAT:
        raise ValueError(f"its format is {manifest['format']!r}, not {FORMAT!r}")
    if manifest["version"] != VERSION or type(manifest["version"]) is not int:
        version = f"version {manifest['version']!r}, written by randsmap {manifest.get('randsmap')!r}"
        raise ValueError(f"its format has {version}; this one reads version {VERSION}")
    entries, objects = manifest["objects"], []
    if not 1 <= len(entries) <= _MAX_OBJECTS or entries[-1]["state"] is None:
        raise ValueError("it holds no fitted model")
    for entry in entries:
        if set(entry) != {"class", "params", "state"}:
            raise ValueError("an object is described badly")
        objects.append(_restored_object(entry, objects, arrays))
    return objects[-1]


def _restored_object(entry, objects, arrays):
    kind = storable_class(entry["class"])
    if kind is None:
        raise ValueError(f"unknown class {entry['class']!r}")
    value = _new_object(kind, {k: _restored_value(v, objects, arrays) for k, v in entry["params"].items()})
    if entry["state"] is None:
        return value
    state = {k: _restored_value(v, objects, arrays) for k, v in entry["state"].items()}
    names, stored = state.pop(_NAMES, None), _stored(kind)
    if not {k for k, how in stored.items() if not is_optional(how)} <= state.keys() <= stored.keys():
        raise ValueError(f"{kind.__name__} has other attributes: {', '.join(sorted(state))}")
    vars(value).update(state)
    check_state(value)
    if names is not None:
        if type(names) is not list or len(names) != value.n_features_in_ or {*map(type, names)} != {str}:
            raise ValueError(f"{kind.__name__}.{_NAMES} is not one string a feature")
        vars(value)[_NAMES] = np.array(names, dtype=object)
    if hasattr(value, "_restore"):
        value._restore()
    return value


def _new_object(kind, params):
    """An object with these parameters, which are checked as far as its class declares them."""
    if not issubclass(kind, BaseEstimator):
        if params:
            raise ValueError(f"{kind.__name__} has no parameters")
        return kind.__new__(kind)
    unknown = set(params) - set(inspect.signature(kind).parameters)
    if unknown:
        raise ValueError(f"{kind.__name__} has no parameter {min(unknown)}")
    for name, declared in getattr(kind, "_parameters", {}).items():
        if name in params:
            declared.check(params[name], name)
    return kind(**params)


def _restored_value(value, objects, arrays):
    """A parameter or attribute from JSON."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError("a number is too large")
        return value
    if type(value) is list:
        return [_restored_value(v, objects, arrays) for v in value]
    ((tag, content),) = value.items()
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "tuple" and type(content) is list:
        return tuple(_restored_value(content, objects, arrays))
    if tag == "array" and type(content) is str:
        return arrays[content]
    if tag == "object" and type(content) is int and 0 <= content < len(objects):
        return objects[content]
    raise ValueError(f"a value is tagged {tag!r}")


# -- The bytes of a file: an archive with one digest -----------------------------------------------
# types of arrays; bytes in the file are little-endian
DTYPES = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
# JSON takes about 30 times its bytes as objects, a zip directory about 10 times: numbers in bulk are arrays
MANIFEST_BYTES = 4 << 20
_MANIFEST = "manifest.json"
_DIGEST_BYTES = 64  # hexadecimal
# what `zipfile` raises for directories that are damaged or forged
_BAD_ZIP = (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, RuntimeError, struct.error)


def write_archive(file: BinaryIO, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a manifest (JSON values) and arrays {name: array} of `DTYPES` to an empty file, open for reading too."""
    text = json.dumps(manifest, allow_nan=False).encode()
    if len(text) > MANIFEST_BYTES:
        allowed = f"at most {MANIFEST_BYTES} are allowed: pass long lists as NumPy arrays"
        raise ValueError(f"the parameters other than arrays take {len(text)} bytes, {allowed}")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_member(_MANIFEST, len(text)), text)
        for name, array in arrays.items():
            array = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
            with archive.open(_member(f"{name}.npy", array.nbytes + CHUNK), "w") as member:
                npy.write_array(member, array, version=(1, 0), allow_pickle=False)
    seal(file)


def _member(name: str, size: int) -> zipfile.ZipInfo:
    """A member's description without time, system or user: equal models have equal files."""
    member = zipfile.ZipInfo(name)
    member.file_size = size  # this size selects the zip64 form
    member.create_system, member.external_attr = 3, 0o100644 << 16
    return member


def seal(file: BinaryIO) -> None:
    """Make the digest of an archive its comment."""
    file.seek(-2, os.SEEK_END)  # the length of the comment is the last field of an archive without one
    file.write(struct.pack("<H", _DIGEST_BYTES))
    file.write(_digest(file, file.tell()))


def _digest(file: BinaryIO, length: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    for start in range(0, length, CHUNK):
        digest.update(file.read(min(CHUNK, length - start)))
    return digest.hexdigest().encode()


class _File(io.FileIO):
    """A file for `zipfile`, which reads a directory at once, however long the file declares it to be."""

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        size = left if size is None or size < 0 else min(size, left)
        if size > MANIFEST_BYTES:
            raise ValueError(f"its directory takes {size} bytes")
        return super().read(size) or b""


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Manifest and arrays, native and C-contiguous; ValueError (or RecursionError) unless `write` wrote the file."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for a writer
        raise ValueError("it is not a regular file")
    with _File(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _DIGEST_BYTES:
            raise ValueError("it is too short")
        if file.read(4) != b"PK\3\4":
            raise ValueError("it is no zip archive")
        if _digest(file, size - _DIGEST_BYTES) != file.read(_DIGEST_BYTES):
            raise ValueError("its digest is wrong: it is damaged, cut off, or no model was saved to it")
        try:
            with zipfile.ZipFile(file) as archive:
                return _members(archive, size)
        except _BAD_ZIP as error:
            raise ValueError(f"it is no zip archive: {error}") from error


def _members(archive: zipfile.ZipFile, size: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    members = archive.infolist()
    if not members or members[0].filename != _MANIFEST or members[0].file_size > MANIFEST_BYTES:
        raise ValueError(f"it does not begin with {_MANIFEST} of at most {MANIFEST_BYTES} bytes")
    if any(m.compress_type != zipfile.ZIP_STORED or m.flag_bits or m.file_size != m.compress_size for m in members):
        raise ValueError("a member is compressed or encrypted")
    if sum(member.file_size for member in members) > size:  # members that overlap would be read twice
        raise ValueError("its members have more bytes than the file")
    manifest = json.loads(archive.read(members[0]).decode())
    arrays: dict[str, NDArray[Any]] = {}
    for member in members[1:]:
        name = member.filename.removesuffix(".npy")
        if name in arrays:
            raise ValueError(f"{name} occurs twice")
        with archive.open(member) as content:
            arrays[name] = _read_array(content, name, member.file_size)
    return manifest, arrays


def _read_array(file: Any, name: str, size: int) -> NDArray[Any]:
    """The array of a .npy member of `size` bytes."""
    try:
        version, (shape, fortran, dtype) = npy.read_magic(file), npy.read_array_header_1_0(file)
    except Exception as error:  # a forged header makes the parsers raise nearly anything
        raise ValueError(f"the header of {name} is damaged: {error}") from error
    if version != (1, 0) or fortran or dtype.str not in DTYPES or not all(0 <= length < 2**48 for length in shape):
        raise ValueError(f"{name} has the type {dtype.str} and the shape {shape}")
    if math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"{name} has not the bytes of an array of shape {shape}")
    array = empty_aligned(shape, dtype)
    memory = array.reshape(-1).view(np.uint8)
    for start in range(0, len(memory), CHUNK):
        part = memory[start : start + CHUNK]
        if file.readinto(part) != len(part):
            raise ValueError(f"{name} ends too early")
    if dtype.kind == "b" and len(memory) and memory.max() > 1:
        raise ValueError(f"{name} has truth values other than 0 and 1")
    if sys.byteorder == "big":
        array = array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
    return array


public(globals())
