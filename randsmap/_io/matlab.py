"""Arrays of MATLAB's .mat files of formats 4 and 5 (MathWorks, MAT-File Format).

Every length that a file states is compared with the bytes that are there before anything is allocated: a damaged or
forged file raises ValueError. An array takes at most nine times its (decompressed) bytes, since doubles may be stored
in one byte each.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NUMBERS = "numbers"
# names of MATLAB's numeric classes in files of -v7.3
NUMBER_CLASSES = {"double", "single", "logical", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))}

# element types -> types of the numbers
_MATRIX, _COMPRESSED = 14, 15
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
# array classes; numeric classes -> types of the numbers
_DTYPES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_OPAQUE = 17
_OTHERS = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 16: "function"}
_Elements = Iterator[tuple[int, memoryview]]


class MatArray(NamedTuple):
    """An array of a file: "numbers" or its other kind, its shape, and the function that reads numbers or text."""

    kind: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[Any]]


_Named = Iterator[tuple[str, MatArray]]


def mat_arrays(file: BufferedReader) -> dict[str, MatArray]:
    """The arrays of an open .mat file of format 4 or 5; what is in structs is struct/field. ValueError if damaged."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = file.read(128)
    if len(header) >= 4 and 0 in header[:4]:
        return dict(_arrays_of_format_4(file, end))
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    if order is None:
        raise ValueError("it does not begin as MATLAB's files do")
    return dict(_arrays_of_format_5(file, end, order))


# -- Format 5: nested elements; each has a type, a size in bytes and this many bytes ----------------------------
def _arrays_of_format_5(file: BufferedReader, end: int, order: str) -> Iterator[tuple[str, MatArray]]:
    start = 128
    while start < end:
        file.seek(start)
        kind, size = _tag(file.read(8), order)
        if kind not in (_MATRIX, _COMPRESSED) or size > end - start - 8:
            raise ValueError(f"the element at byte {start} is damaged (type {kind}, {size} bytes)")
        content = _inflated if kind == _COMPRESSED else _plain
        yield from _named_arrays(partial(content, file, start + 8, size, order), order)
        start += 8 + size


def _named_arrays(content: Callable[..., memoryview], order: str) -> Iterator[tuple[str, MatArray]]:
    """(name, array) of the array with this content, or of each in a struct."""
    # flags, shape and name take less than 500 bytes in what MATLAB writes
    name, array, _ = _array(content(limit=4096), order)
    if not name:  # empty, or what MATLAB keeps for opaque objects
        return
    if array.kind == "struct":
        yield from _members(*_array(content(), order), order)
    else:
        yield name, MatArray(array.kind, array.shape, lambda: _array(content(), order)[1].read())


def _tag(data: Any, order: str) -> tuple[int, int]:
    if len(data) < 8:
        raise ValueError("it is cut off")
    kind, size = np.frombuffer(data, order + "u4", 2).tolist()
    return kind, size


def _plain(file: BufferedReader, start: int, size: int, order: str, limit: int | None = None) -> memoryview:
    """The bytes of an array, at most `limit`."""
    content = bytearray(size if limit is None else min(size, limit))
    file.seek(start)
    if file.readinto(content) != len(content):
        raise ValueError("it is cut off")
    return memoryview(content)


def _inflated(file: BufferedReader, start: int, size: int, order: str, limit: int | None = None) -> memoryview:
    """The bytes of a compressed array, at most `limit` and at most the size that the array declares."""
    kind, length = _tag(_decompressed(file, start, size, 8)[0], order)
    if kind != _MATRIX:
        raise ValueError(f"a compressed element has type {kind}")
    if limit is not None:
        return memoryview(_decompressed(file, start, size, 8 + min(length, limit))[0])[8:]
    content, complete = _decompressed(file, start, size, 8 + length + 8)
    if not complete or len(content) < 8 + length:
        raise ValueError("a compressed element has another length than its array")
    return memoryview(content)[8 : 8 + length]


def _decompressed(file: BufferedReader, start: int, size: int, limit: int) -> tuple[bytearray, bool]:
    """At most `limit` bytes; True if these are all and the checksum is right."""
    stream, content = zlib.decompressobj(), bytearray()
    file.seek(start)
    step = 1 << 16  # compressed bytes at a time, which hold 64 MB at most
    try:
        while size > 0 and len(content) < limit and not stream.eof:
            part = file.read(min(size, step))
            content += stream.decompress(part, limit - len(content))
            size -= step
    except zlib.error as error:
        raise ValueError(f"a compressed element is damaged ({error})") from None
    return content, stream.eof


def _array(content: memoryview, order: str) -> tuple[str, MatArray, _Elements]:
    """Name and array from the bytes of an array and the elements behind the header."""
    elements = _elements(content, order)
    if not content:
        return "", MatArray("empty", (0, 0), lambda: np.empty((0, 0))), elements
    flags = int(_integers(elements, order)[:1].sum())
    code, shape = flags & 0xFF, (0, 0)
    if code != _OPAQUE:
        shape = tuple(_integers(elements, order).tolist())
        if len(shape) < 2 or min(shape) < 0:
            raise ValueError(f"an array has the shape {shape}")
    name = bytes(next(elements)[1]).decode("latin1")
    kind = _OTHERS.get(code, f"class {code}")
    if code == _OPAQUE:  # "MCOS" and the name of the class
        kind = next(elements) and f"class {bytes(next(elements)[1]).decode('latin1')}"
    if code in _DTYPES:
        is_complex = flags & 0x800
        kind = np.result_type(_DTYPES[code], np.complex64).name if is_complex else NUMBERS
    read = {"char": _text, "cell": _cells}.get(kind, partial(_numbers, dtype=np.dtype(_DTYPES.get(code, "f8"))))
    return name, MatArray(kind, shape, lambda: read(elements, order, shape)), elements


def _elements(rest: memoryview, order: str) -> _Elements:
    """Type and bytes of one element after the other; ValueError after the last."""
    while True:
        kind, size = _tag(rest, order)
        body, following = 8, 8 + size + -size % 8
        if kind >> 16:  # a small element: size and type in one word, and at most four bytes
            kind, size, body, following = kind & 0xFFFF, kind >> 16, 4, 8
        if body + size > min(len(rest), following):
            raise ValueError(f"an element of type {kind} declares {size} bytes, which are missing")
        element, rest = rest[body : body + size], rest[following:]
        yield kind, element


def _integers(elements: _Elements, order: str) -> NDArray[Any]:
    kind, element = next(elements)
    if kind not in (5, 6) or len(element) % 4:
        raise ValueError(f"an element of type {kind} stands where integers are expected")
    return np.frombuffer(element, order + "i4")


def _numbers(elements: _Elements, order: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of an array, in the type of its class."""
    kind, element = next(elements)
    if kind not in _STORED:
        raise ValueError(f"an element of type {kind} stands where numbers are expected")
    stored = np.dtype(order + _STORED[kind])
    if len(element) != stored.itemsize * math.prod(shape):
        raise ValueError(f"an array of shape {shape} has {len(element)} bytes of {stored.name}")
    values = np.frombuffer(element, stored).reshape(shape, order="F")
    # MATLAB stores numbers in the smallest type that represents them; a number without such a type is not cast
    values = values.astype(dtype if np.can_cast(stored, dtype, "same_kind") else stored.newbyteorder("="), copy=False)
    return np.require(values, requirements=("A", "W"))


def _text(elements: _Elements, order: str, shape: tuple[int, ...]) -> NDArray[np.object_]:
    """The rows of a matrix of characters: objects, since a fixed width would be that of the longest row."""
    kind, element = next(elements)
    utf16 = f"utf-16-{'le' if order == '<' else 'be'}"
    text = bytes(element).decode({4: utf16, 17: utf16, 16: "utf-8"}.get(kind, "latin1"))
    if len(text) != math.prod(shape):
        raise ValueError(f"text of shape {shape} has {len(text)} characters")
    return np.array([text[k :: shape[0]].rstrip() for k in range(min(shape[0], len(text)))] or [""], dtype=object)


def _cells(elements: _Elements, order: str, shape: tuple[int, ...]) -> NDArray[np.object_]:
    """The texts in an array of cells that holds nothing else."""
    texts = []
    for kind, content in islice(elements, math.prod(shape)):
        _, cell, _ = _array(content, order)
        if kind != _MATRIX or cell.kind != "char":
            raise ValueError(f"a cell holds {cell.kind}, expected text")
        texts.append("\n".join(cell.read()))
    return np.array(texts, dtype=object)


def _members(name: str, struct: MatArray, elements: _Elements, order: str, depth: int = 0) -> _Named:
    """(name/field, array) of the fields of a struct, named as in HDF5; an array of structs is one struct."""
    length = int(_integers(elements, order)[:1].sum())
    fields = bytes(next(elements)[1])
    # each struct in a struct is a call, of which Python allows about 1000
    if depth > 50 or (fields and (length < 1 or len(fields) % length)):
        raise ValueError(f"the struct {name} is damaged")
    if math.prod(struct.shape) > 1 and fields:
        yield name, struct
    if math.prod(struct.shape) != 1:
        return
    for start in range(0, len(fields), length):
        kind, content = next(elements)
        if kind != _MATRIX:
            raise ValueError(f"the struct {name} is damaged")
        _, member, inner = _array(content, order)
        path = f"{name}/{fields[start : start + length].partition(bytes(1))[0].decode('latin1')}"
        if member.kind == "struct":
            yield from _members(path, member, inner, order, depth + 1)
        elif member.kind != "empty":
            yield path, member


# -- Format 4: arrays with headers of five integers ------------------------------------------------------------
_STORED_4 = ("f8", "f4", "i4", "i2", "u2", "u1")
_KINDS_4 = ("numbers", "char", "sparse")


def _arrays_of_format_4(file: BufferedReader, end: int) -> Iterator[tuple[str, MatArray]]:
    start = 0
    while start < end:
        file.seek(start)
        header = file.read(20)
        if len(header) < 20:
            raise ValueError("it is cut off")
        # the first integer is below 5000: its decimal digits are the order of bytes, 0, the type and the kind
        order = "<" if int.from_bytes(header[:4], "little") < 5000 else ">"
        code, rows, columns, is_complex, length = np.frombuffer(header, order + "i4").tolist()
        machine, zero, stored, kind = (code // digit % 10 for digit in (1000, 100, 10, 1))
        of_others = machine != (order == ">") or zero or stored > 5 or kind > 2
        if of_others or not 0 <= code < 5000 or min(rows, columns) < 0:
            raise ValueError(f"the header of the array at byte {start} is damaged, or of a VAX or a Cray")
        dtype = np.dtype(order + _STORED_4[stored])
        size = dtype.itemsize * rows * columns * (1 + (is_complex != 0))
        start += 20 + length
        if length < 1 or start + size > end:
            raise ValueError(f"the array at byte {start} declares {size} bytes, which are missing")
        name = file.read(length).partition(bytes(1))[0].decode("latin1")
        kind = "complex128" if is_complex and kind == 0 else _KINDS_4[kind]
        yield name, MatArray(kind, (rows, columns), partial(_values_of_format_4, file, start, (rows, columns), dtype))
        start += size


def _values_of_format_4(file: BufferedReader, start: int, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    content = _plain(file, start, dtype.itemsize * math.prod(shape), "")
    return np.frombuffer(content, dtype).reshape(shape, order="F").astype(dtype.newbyteorder("="), copy=False)
