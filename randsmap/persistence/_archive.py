"""The bytes of a model file: an .npz archive in one canonical form.

A file is a zip archive without compression: first ``manifest.json``, then one ``.npy`` member an
array, in the manifest's order; the archive's comment is the SHA-256 of the manifest, in which the
SHA-256 of each array stands. `numpy.load` and any zip tool open it.

Apart from the manifest and the arrays nothing in the file is free: sizes, offsets, headers and the
central directory follow from the manifest. So the reader parses no archive. It computes what the
file must look like, compares its size before it takes memory for an array, and compares every other
byte. Hence a file that differs from the written one in any bit is refused, and nothing expands.
"""

import hashlib
import json
import math
import os
import re
import stat
import struct
import sys
import zlib

import numpy as np

__all__ = ["DTYPES", "read", "write"]

# what an array may hold; bytes in the file are little-endian
DTYPES = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
# Bounds the memory that parsing can take (about 30 times as much). Numbers in bulk are arrays.
MANIFEST_BYTES = 4 << 20
MAX_NDIM = 8
_MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
_ENTRY = {"name", "dtype", "shape", "crc32", "sha256"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20  # bytes that are read or hashed at a time: they stay in cache
_NONE32 = 0xFFFFFFFF  # "see the zip64 field", which is always there: one form for any size


# -- Zip and .npy structures (PKWARE APPNOTE 6.3, sections 4.3 and 4.5.3; NumPy format 1.0) --------
def _local_header(name, size, crc):
    extra = struct.pack("<2H2Q", 1, 16, size, size)
    return (
        struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 0x21, crc, _NONE32, _NONE32, len(name), len(extra))
        + name.encode()
        + extra
    )


_LOCAL_BYTES = 30 + 20  # of a local header without the name


def _directory_entry(name, size, crc, offset):
    extra = struct.pack("<2H3Q", 1, 24, size, size, offset)
    return (
        struct.pack(
            "<4s6H3I5H2I",
            b"PK\1\2",
            (3 << 8) | 45,
            45,
            0,
            0,
            0,
            0x21,
            crc,
            _NONE32,
            _NONE32,
            len(name),
            len(extra),
            0,
            0,
            0,
            0o100644 << 16,
            _NONE32,
        )
        + name.encode()
        + extra
    )


def _directory(members, start, comment):
    """Central directory and end records; members are (name, size, crc), the first at offset 0."""
    entries, offset = [], 0
    for name, size, crc in members:
        entries.append(_directory_entry(name, size, crc, offset))
        offset += _LOCAL_BYTES + len(name) + size
    body = b"".join(entries)
    end64 = struct.pack(
        "<4sQ2H2I4Q", b"PK\6\6", 44, (3 << 8) | 45, 45, 0, 0, len(members), len(members), len(body), start
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, start + len(body), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _NONE32, _NONE32, len(comment))
    return body + end64 + locator + end + comment


def _npy_header(dtype, shape):
    """The header that `numpy.save` gives a C-contiguous array, the same from any NumPy version."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    padding = -(10 + len(text) + 1) % 64
    return struct.pack("<6s2BH", b"\x93NUMPY", 1, 0, len(text) + padding + 1) + text.encode() + b" " * padding + b"\n"


def _members(manifest_bytes, arrays):
    """(name, size, crc) of all members, from the manifest's bytes and its entries of arrays."""
    members = [(_MANIFEST, len(manifest_bytes), zlib.crc32(manifest_bytes))]
    for entry in arrays:
        header = _npy_header(entry["dtype"], entry["shape"])
        size = math.prod(entry["shape"]) * int(entry["dtype"][2:])
        members.append((entry["name"] + ".npy", len(header) + size, entry["crc32"]))
    return members


# -- Writing ---------------------------------------------------------------------------------------
def _chunks(array):
    """The bytes of a contiguous array, a chunk at a time."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[i : i + _CHUNK] for i in range(0, len(flat), _CHUNK))


def write(file, manifest, arrays):
    """Write a manifest (JSON values) and arrays {name: array} to the binary file, at its start.

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
        header = _npy_header(little.str, array.shape)
        digest, crc = hashlib.sha256(), zlib.crc32(header)
        for chunk in _chunks(array):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
        entries.append(
            {"name": name, "dtype": little.str, "shape": list(array.shape), "crc32": crc, "sha256": digest.hexdigest()}
        )
        stored.append((header, array))
    text = json.dumps({**manifest, "arrays": entries}, allow_nan=False).encode()
    if len(text) > MANIFEST_BYTES:
        raise ValueError(
            f"the parameters other than arrays take {len(text)} bytes, at most "
            f"{MANIFEST_BYTES} are allowed: pass long lists as NumPy arrays"
        )
    members = _members(text, entries)
    file.write(_local_header(*members[0]) + text)
    for member, (header, array) in zip(members[1:], stored):
        file.write(_local_header(*member) + header)
        for chunk in _chunks(array):
            file.write(chunk)
    comment = hashlib.sha256(text).hexdigest().encode()
    file.write(_directory(members, file.tell(), comment))


# -- Reading ---------------------------------------------------------------------------------------
def read(path):
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
        size = os.fstat(file.fileno()).st_size
        start = _exactly(file, min(size, _LOCAL_BYTES + len(_MANIFEST)))
        if len(start) < _LOCAL_BYTES + len(_MANIFEST):
            raise ValueError("too short")
        crc, length = struct.unpack("<I", start[14:18])[0], struct.unpack("<Q", start[-8:])[0]
        if start != _local_header(_MANIFEST, length, crc):
            raise ValueError(f"it does not begin with {_MANIFEST}")
        if length > min(size, MANIFEST_BYTES):
            raise ValueError(f"a manifest of {length} bytes")
        text = _exactly(file, length)
        if zlib.crc32(text) != crc:
            raise ValueError("the manifest is damaged")
        manifest = _parse(text)
        entries = manifest.pop("arrays", None)
        _check_entries(entries)

        members = _members(text, entries)
        data_end = sum(_LOCAL_BYTES + len(name) + n for name, n, _ in members)
        tail = _directory(members, data_end, hashlib.sha256(text).hexdigest().encode())
        if size != data_end + len(tail):
            raise ValueError(f"it has {size} bytes, {data_end + len(tail)} are expected")
        file.seek(data_end)
        if _exactly(file, len(tail)) != tail:
            raise ValueError("its directory is damaged")
        file.seek(len(start) + length)
        arrays = {}
        for member, entry in zip(members[1:], entries):
            header = _local_header(*member) + _npy_header(entry["dtype"], entry["shape"])
            if _exactly(file, len(header)) != header:
                raise ValueError(f"the header of {entry['name']} is damaged")
            arrays[entry["name"]] = _read_array(file, entry)
    return manifest, arrays


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
        if not isinstance(entry, dict) or set(entry) != _ENTRY:
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
        if not _is_count(entry["crc32"], 2**32 - 1):
            raise ValueError(f"{name} has a bad crc32")
        if not isinstance(entry["sha256"], str) or not _DIGEST.fullmatch(entry["sha256"]):
            raise ValueError(f"{name} has a bad sha256")
    total = sum(math.prod(entry["shape"]) * int(entry["dtype"][2:]) for entry in entries)
    if total > 2**60:
        raise ValueError(f"arrays of {total} bytes")


def _read_array(file, entry):
    array = np.empty(entry["shape"], dtype=entry["dtype"])
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
