"""Files of snapshots in every format: what was written comes back, what is damaged is told."""

from __future__ import annotations

import struct
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
from scipy.io import netcdf_file, savemat

from randsmap import read_snapshots

from fuzz_targets.files import damaged
from fuzz_targets.inputs import laid_out, numbers, same_bits, size

try:
    import h5py
except ImportError:  # its two formats are left out
    h5py = None
try:
    import xarray
except ImportError:
    xarray = None

MATLAB_HEADER = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
KINDS = ["f8", "f4", "i8", "i4", "i2", "u1", "u2", "?", ">f8", ">i4"]


def snapshots(rng):
    """read_snapshots: any format, number type and order of axes as it was written, damage is told. A file an input."""
    shape = tuple(size(rng, (1, 1), (2, 9)) for _ in range(size(rng, (2, 2), (2, 4))))
    U = _values(rng, shape, KINDS[rng.integers(len(KINDS))])
    write = WRITERS[rng.integers(len(WRITERS))]
    path, expected, key = write(rng, U)
    options = {} if key is None else {"key": key}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that look like fields
        try:
            if rng.integers(4) == 0 and path.suffix not in HDF5:
                damage = damaged_mat if path.suffix == ".mat" and rng.integers(2) else damaged
                path.write_bytes(damage(rng, path.read_bytes()))
                try:
                    found = read_snapshots(path, **options)
                except (ValueError, MemoryError):
                    return 1
                assert np.asarray(found).dtype.kind in "buif"
                return 1
            found = read_snapshots(path, **options)
            turned = read_snapshots(path, transpose=True, **options)
        finally:
            path.unlink()
    assert same_bits(np.asarray(found), expected), f"{path.suffix} by {write.__name__}"
    assert same_bits(np.asarray(turned), np.moveaxis(expected, -1, 0)), f"{path.suffix} by {write.__name__}, transposed"
    return 1


def damaged_mat(rng, data):
    """A .mat file whose arrays are damaged before they are compressed, so that their checksums are right."""
    damages = rng.integers(1, 4)
    parts, start = [data[:128]], 128
    while start + 8 <= len(data):
        kind, length = struct.unpack_from("=2I", data, start)
        content = data[start + 8 : start + 8 + length]
        content = bytearray(zlib.decompress(content) if kind == 15 else data[start : start + 8 + length])
        for place in rng.integers(0, max(len(content) - 4, 1), damages):
            content[place : place + 4] = struct.pack("=I", (0, 1, 9, 14, 2**31, rng.integers(2**32))[rng.integers(6)])
        packed = zlib.compress(content)
        parts.append(struct.pack("=2I", 15, len(packed)) + packed)
        start += 8 + length
    return b"".join(parts)


HDF5 = (".h5", ".hdf5")  # damaged ones are for those who fuzz HDF5


def native(U):
    return U.astype(U.dtype.newbyteorder("="))


def _values(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return numbers(rng, shape, 1e30).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, np.int64, endpoint=True).astype(dtype)


def _path(ending):
    return Path(tempfile.gettempdir()) / f"snapshots{ending}"


# -- Writers: the path, the array that must be read, the key it needs ----------------------------------
def npy(rng, U):
    path = _path((".npy", ".dat")[rng.integers(2)])
    U = np.array(U, order=("C", "F")[rng.integers(2)])
    with open(path, "wb") as file:
        np.lib.format.write_array(file, U, version=((1, 0), (2, 0), (3, 0))[rng.integers(3)])
    return path, U, None  # in the file's order of bytes, which can be mapped


def npz(rng, U):
    path = _path(".npz")
    several = rng.integers(3) == 0
    others = {"t": np.arange(3.0), "label": np.array("text"), "z": np.ones(2) * 1j}
    if several:
        others["V"] = np.ones((2, 2))
    (np.savez, np.savez_compressed)[rng.integers(2)](path, U=laid_out_array(rng, U), **others)
    return path, native(U), "U" if several or sum(n > 1 for n in U.shape) < 2 else None


def mat(rng, U):
    path = _path(".mat")
    U = native(U)
    if U.dtype.kind == "b":
        U = U.astype(np.uint8)
    kind = rng.integers(3)
    if kind == 0 and U.ndim == 2:
        U = U.astype(float)
        savemat(path, {"U": U}, format="4")
    elif kind == 1:
        savemat(path, {"run": {"U": U, "name": "a run"}}, do_compression=bool(rng.integers(2)))
        return path, U, ("run/U", "run.U")[rng.integers(2)]
    else:
        savemat(path, {"U": U, "title": "a run"}, do_compression=bool(rng.integers(2)))
    return path, U, "U"


def text(rng, U):
    path = _path((".csv", ".txt")[rng.integers(2)])
    U = U.reshape(len(U), -1).astype(float)
    mark = (",", ";", " ", "\t")[rng.integers(4)]
    lines = [mark.join(repr(x) for x in row) for row in U.tolist()]
    kind = rng.integers(4)
    if kind == 1:
        lines.insert(0, mark.join(f"x{j}" for j in range(U.shape[1])))
    elif kind == 2 and mark in ",;":  # as pandas writes it
        lines = [mark.join([f'"{i}"', line]) for i, line in enumerate(lines)]
        lines.insert(0, mark.join(["", *(f'"x {j}"' for j in range(U.shape[1]))]))
    elif kind == 3:
        lines[:0] = ["# made by hand", "", "% of numbers"]
        lines.append("")
    start = "\N{ZERO WIDTH NO-BREAK SPACE}" if rng.integers(4) == 0 else ""
    path.write_bytes((start + ("\n", "\r\n")[rng.integers(2)].join(lines) + "\n").encode())
    return path, U, None


def hdf5(rng, U):
    path = _path(HDF5[rng.integers(2)])
    compressed = {"compression": "gzip"} if rng.integers(2) else {}
    with h5py.File(path, "w") as file:
        file.create_dataset("run/U", data=U, **compressed)
        file["run/t"], file["title"] = np.arange(3.0), "a run"
    return path, native(U), "run/U"


def mat73(rng, U):
    path = _path(".h5").with_suffix(".mat")
    classes = {"f8": "double", "f4": "single", "i8": "int64", "i4": "int32", "i2": "int16", "u1": "uint8"}
    classes.update(u2="uint16", b1="logical")
    U = native(U)
    with h5py.File(path, "w", userblock_size=512) as file:
        kind = classes[U.dtype.str[1:]]
        U = U.astype(np.uint8) if kind == "logical" else U
        file.create_dataset("U", data=U.T).attrs["MATLAB_class"] = np.bytes_(kind)
    with open(path, "r+b") as file:
        file.write(MATLAB_HEADER)
    return path, U, "U"


def netcdf(rng, U):
    path = _path(".nc")
    U = native(U)
    U = U.astype(np.int32) if U.dtype.str[1:] in ("i8", "u1", "u2", "b1") else U  # what its version 3 has
    with netcdf_file(path, "w") as file:
        for axis, length in enumerate(U.shape):
            file.createDimension(f"x{axis}", length)
        file.createVariable("U", U.dtype, tuple(f"x{axis}" for axis in range(U.ndim)))[:] = U
    return path, U, "U"


def laid_out_array(rng, U):
    return np.asarray(laid_out(rng, U), dtype=U.dtype)


WRITERS = [npy, npz, mat, text]
if h5py is not None:
    WRITERS += [hdf5, mat73]
if xarray is not None:
    WRITERS.append(netcdf)

TARGETS = (snapshots,)
