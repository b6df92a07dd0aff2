"""The bytes of a model file: an .npz archive with one digest.

A file is a zip archive without compression: first ``manifest.json``, then one ``.npy`` member for each array. The
archive's comment, the last 64 bytes of the file, is the SHA-256 of everything before it, so that a file with any bit
changed is refused. Before memory is taken for an array, its length is compared with the bytes that the file has.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import stat
import struct
import sys
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from randsmap._interface.arrays import empty_aligned
from randsmap._io.files import CHUNK

# what an array may hold; bytes in the file are little-endian
DTYPES = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
# JSON takes about 30 times its bytes as objects, a zip directory about 10 times: numbers in bulk are arrays
MANIFEST_BYTES = 4 << 20
_MANIFEST = "manifest.json"
_DIGEST_BYTES = 64  # hexadecimal
# what `zipfile` raises for directories that are damaged or forged
_BAD_ZIP = (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, RuntimeError, struct.error)


def write(file: BinaryIO, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a manifest (JSON values) and arrays {name: array} of `DTYPES` to an empty file, open for reading too."""
    text = json.dumps(manifest, allow_nan=False).encode()
    if len(text) > MANIFEST_BYTES:
        raise ValueError(
            f"the parameters other than arrays take {len(text)} bytes, at most "
            f"{MANIFEST_BYTES} are allowed: pass long lists as NumPy arrays"
        )
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
    member.file_size = size  # decides on the zip64 form
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


# -- Reading ---------------------------------------------------------------------------------------
class _File(io.FileIO):
    """A file for `zipfile`, which reads a directory at once, however long the file declares it to be."""

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        size = left if size is None or size < 0 else min(size, left)
        if size > MANIFEST_BYTES:
            raise ValueError(f"a directory of {size} bytes")
        return super().read(size) or b""


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Manifest and arrays, native and C-contiguous; ValueError (or RecursionError) unless `write` wrote the file."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for a writer
        raise ValueError("not a regular file")
    with _File(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _DIGEST_BYTES:
            raise ValueError("too short")
        if file.read(4) != b"PK\3\4":
            raise ValueError("no zip archive")
        if _digest(file, size - _DIGEST_BYTES) != file.read(_DIGEST_BYTES):
            raise ValueError("its digest is wrong: it is damaged, cut off, or no model was saved to it")
        try:
            with zipfile.ZipFile(file) as archive:
                return _members(archive, size)
        except _BAD_ZIP as error:
            raise ValueError(f"no zip archive: {error}") from error


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
