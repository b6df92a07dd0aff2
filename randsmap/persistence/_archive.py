"""The bytes of a model file: an .npz archive in which nothing is free.

A file is a zip archive without compression: first ``manifest.json``, then one ``.npy`` member an
array, in the manifest's order, without a gap between them. The SHA-256 of each array stands in the
manifest; the archive's comment is the SHA-256 of everything else, up to itself. So a file that differs
from the written one in any bit is refused. `numpy.load` and any zip tool open it.

`zipfile` finds the members; the bytes of the arrays are read by this module, after their sizes are
known to agree with the manifest's and the file's, straight into the arrays: nothing expands, and a
file takes no more memory than it has bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from randsmap._interface.validation import empty_in_lines

__all__ = ["DTYPES", "read", "write"]

# what an array may hold; bytes in the file are little-endian
DTYPES = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
# Bounds the memory that parsing can take (about 30 times as much). Numbers in bulk are arrays.
MANIFEST_BYTES = 4 << 20
MAX_NDIM = 8
_MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
_ENTRY = {"name", "dtype", "shape", "sha256"}  # and, written by earlier versions, "crc32"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGEST_BYTES = 64
_LOCAL_HEADER = struct.Struct("<26x2H")  # of a zip member: lengths of the name and the extra field
_NPY_HEADER_BYTES = 1024
_CHUNK = 1 << 20  # bytes that are read or hashed at a time: they stay in cache


# -- Writing ---------------------------------------------------------------------------------------
def _chunks(array):
    """The bytes of a contiguous array, a chunk at a time."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[i : i + _CHUNK] for i in range(0, len(flat), _CHUNK))


def write(file: BinaryIO, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a manifest (JSON values) and arrays {name: array} to the binary file, at its start.

    The file must be open for reading, too.

    Raises
    ------
    TypeError
        If the elements of an array are no numbers of a standard type.
    ValueError
        If the manifest is too long.
    """
    stored, entries = [], []
    for name, array in arrays.items():
        little = array.dtype.newbyteorder("<")
        if little.str not in DTYPES:
            raise TypeError(f"{name} has elements of type {array.dtype}, which a model file cannot hold")
        array = np.asarray(array, dtype=little, order="C")
        digest = hashlib.sha256()
        for chunk in _chunks(array):
            digest.update(chunk)
        entries.append({"name": name, "dtype": little.str, "shape": list(array.shape), "sha256": digest.hexdigest()})
        stored.append((name, array))
    text = json.dumps({**manifest, "arrays": entries}, allow_nan=False).encode()
    if len(text) > MANIFEST_BYTES:
        raise ValueError(
            f"the parameters other than arrays take {len(text)} bytes, at most "
            f"{MANIFEST_BYTES} are allowed: pass long lists as NumPy arrays"
        )
    _write_members(file, text, stored)


def _write_members(file, text, arrays):
    """The archive of a manifest's bytes and (name, array) pairs."""
    spans = []  # of the arrays' bytes in the file
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open(_member(_MANIFEST, len(text)), "w") as member:
            member.write(text)
        for name, array in arrays:
            header = io.BytesIO()
            npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
            with archive.open(_member(name + ".npy", len(header.getvalue()) + array.nbytes), "w") as member:
                member.write(header.getvalue())
                spans.append((file.tell(), array.nbytes))
                for chunk in _chunks(array):
                    member.write(chunk)
        archive.comment = b" " * _DIGEST_BYTES  # in its place, since its length stands before it
    end = file.seek(0, os.SEEK_END) - _DIGEST_BYTES
    comment = _digest_outside(file, spans, end)
    file.seek(end)
    file.write(comment)


def _member(name, size):
    """A member's description without time, system or user: equal models have equal files."""
    member = zipfile.ZipInfo(name)
    member.file_size = size  # decides on the zip64 form
    member.create_system, member.external_attr = 3, 0o100644 << 16
    return member


def _digest_outside(file, spans, end):
    """SHA-256 of the file's bytes before `end`, without the (start, length) of the spans; ASCII."""
    digest, at = hashlib.sha256(), 0
    for start, length in [*spans, (end, 0)]:
        file.seek(at)
        while at < start:
            part = _exactly(file, min(start - at, _CHUNK))
            digest.update(part)
            at += len(part)
        at += length
    return digest.hexdigest().encode()


# -- Reading ---------------------------------------------------------------------------------------
def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The manifest and the arrays {name: array} of the file `path`.

    The arrays are C-contiguous, writeable and native-endian.

    Raises
    ------
    ValueError
        If any byte is not what `write` would have written. Nothing is said about what the manifest
        and the arrays mean: they can come from anyone.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for a writer
        raise ValueError("not a regular file")
    with open(path, "rb", buffering=0) as file:
        members, comment = _directory(file)
        start = _start_of_data(file, members[0], 0)
        end = start + members[0].file_size
        if end - start > MANIFEST_BYTES:
            raise ValueError(f"a manifest of {end - start} bytes")
        file.seek(start)
        text = _exactly(file, end - start)
        if zlib.crc32(text) != members[0].CRC:
            raise ValueError("the manifest is damaged")
        manifest = _parse(text)
        entries = manifest.pop("arrays", None)
        _check_entries(entries)
        if [member.filename for member in members[1:]] != [f"{entry['name']}.npy" for entry in entries]:
            raise ValueError("its members are not those that the manifest lists")

        headers, spans = [], []  # (start, length) of the .npy headers and of the arrays' bytes
        for member, entry in zip(members[1:], entries):
            start = _start_of_data(file, member, end)
            end = start + member.file_size
            length = math.prod(entry["shape"]) * int(entry["dtype"][2:])
            headers.append((start, member.file_size - length))
            spans.append((end - length, length))
            if not 0 < headers[-1][1] <= _NPY_HEADER_BYTES or entry.get("crc32", member.CRC) != member.CRC:
                raise ValueError(f"{entry['name']} is not what the manifest says")
        size = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
        file.seek(max(size, 0))
        if size < end or _exactly(file, _DIGEST_BYTES) != comment:
            raise ValueError(f"it has {size + _DIGEST_BYTES} bytes, another number is expected")
        # earlier versions have the manifest's digest there
        if comment not in (_digest_outside(file, spans, size), hashlib.sha256(text).hexdigest().encode()):
            raise ValueError("its directory is damaged")
        arrays = {}
        for header, entry in zip(headers, entries):
            _check_header(file, *header, entry)
            arrays[entry["name"]] = _read_array(file, entry)
    return manifest, arrays


class _Bounded:
    """A file for `zipfile`, which reads a directory whole, however long it says it is."""

    def __init__(self, file):
        self.seek, self.tell, self._file = file.seek, file.tell, file

    def read(self, size=-1):
        if size < 0:
            size = max(0, os.fstat(self._file.fileno()).st_size - self.tell())
        if size > MANIFEST_BYTES:  # a name takes more bytes in the manifest than in the directory
            raise ValueError(f"a directory of {size} bytes")
        return self._file.read(size)


def _directory(file):
    """The archive's members, the manifest first, and its comment."""
    if os.fstat(file.fileno()).st_size < 22:  # of an empty archive
        raise ValueError("too short")
    try:
        with zipfile.ZipFile(_Bounded(file)) as archive:
            members, comment = archive.infolist(), archive.comment
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, struct.error) as error:
        raise ValueError(f"no zip archive: {error}") from error
    if not members or members[0].filename != _MANIFEST:
        raise ValueError(f"it does not begin with {_MANIFEST}")
    return members, comment


def _start_of_data(file, member, offset):
    """Where the bytes of a member are that must begin at `offset`, as they are."""
    if (member.header_offset, member.compress_type, member.flag_bits, member.compress_size) != (
        offset,
        zipfile.ZIP_STORED,
        0,
        member.file_size,
    ):
        raise ValueError("a member is compressed or not where it should be")
    file.seek(offset)
    return offset + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(_exactly(file, _LOCAL_HEADER.size)))


def _exactly(file, length):
    data = bytearray(length)
    _fill(file, memoryview(data))
    return bytes(data)


def _fill(file, memory):
    done = 0
    while done < len(memory):
        n = file.readinto(memory[done:])
        if not n:
            raise ValueError("it ends too early")
        done += n


def _parse(text):
    def pairs(items):
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("a name occurs twice in the manifest")
        return found

    def constant(name):
        raise ValueError(f"{name} in the manifest")

    try:
        manifest = json.loads(text.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise ValueError("the manifest is nested too deeply") from None
    if not isinstance(manifest, dict):
        raise ValueError("the manifest is no JSON object")
    return manifest


def _is_count(value, high):
    return type(value) is int and 0 <= value <= high


def _check_entries(entries):
    names = set()
    if not isinstance(entries, list):
        raise ValueError("the manifest lists no arrays")
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) - {"crc32"} != _ENTRY:
            raise ValueError("the manifest describes an array badly")
        name, shape = entry["name"], entry["shape"]
        # the length limits keep every field of the headers in its range
        if not isinstance(name, str) or len(name) > 1000 or not _NAME.fullmatch(name):
            raise ValueError("an array has a bad name")
        if name in names:
            raise ValueError(f"{name} occurs twice")
        names.add(name)
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{name} has the type {entry['dtype']!r}")
        if (
            not isinstance(shape, list)
            or len(shape) > MAX_NDIM
            or not all(_is_count(length, 2**48) for length in shape)
        ):
            raise ValueError(f"{name} has the shape {shape!r}")
        # an empty array has no large dimension either: no product of dimensions overflows
        if math.prod(max(length, 1) for length in shape) > 2**56:
            raise ValueError(f"{name} has the shape {shape!r}")
        if not isinstance(entry["sha256"], str) or not _DIGEST.fullmatch(entry["sha256"]):
            raise ValueError(f"{name} has a bad sha256")
    total = sum(math.prod(entry["shape"]) * int(entry["dtype"][2:]) for entry in entries)
    if total > 2**60:
        raise ValueError(f"arrays of {total} bytes")


def _check_header(file, start, length, entry):
    """The array's .npy header, up to its bytes, says what the manifest says."""
    file.seek(start)
    header = io.BytesIO(_exactly(file, length))
    try:
        version, (shape, fortran, dtype) = npy.read_magic(header), npy.read_array_header_1_0(header)
    except Exception as error:  # a forged one makes the parsers raise nearly anything
        raise ValueError(f"the header of {entry['name']} is damaged: {error}") from error
    if (version, list(shape), fortran, dtype.str, header.read()) != (
        (1, 0),
        entry["shape"],
        False,
        entry["dtype"],
        b"",
    ):
        raise ValueError(f"the header of {entry['name']} is not what the manifest says")


def _read_array(file, entry):
    array = empty_in_lines(tuple(entry["shape"]), entry["dtype"])
    digest = hashlib.sha256()
    for chunk in _chunks(array):
        _fill(file, memoryview(chunk))
        digest.update(chunk)
    if digest.hexdigest() != entry["sha256"]:
        raise ValueError(f"{entry['name']} is damaged")
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ValueError(f"{entry['name']} has truth values other than 0 and 1")
    if sys.byteorder == "big":
        array = array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
    return array
