"""A time loop through ctypes, for a host that has Python but not NumPy. Prints the last field, 16 hexadecimal digits
of its bits a cell.

    python loop_ctypes.py decoder.rsm "$(python -c 'from randsmap.decoders import library_path as p; print(p())')"
"""

import ctypes
import struct
import sys
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_ssize_t, c_void_p


class Info(ctypes.Structure):
    """randsmap_info_t"""

    _fields_ = [
        ("size", c_size_t),
        *((name, c_int64) for name in ("n_components", "n_cells", "n_invariants", "n_features", "kind", "precision")),
    ]


def library(path):
    """The functions of randsmap.h that a loop needs, with the types of their arguments."""
    lib, doubles = ctypes.CDLL(path), POINTER(c_double)
    lib.randsmap_strerror.argtypes, lib.randsmap_strerror.restype = (c_int,), c_char_p
    lib.randsmap_open.argtypes = c_char_p, POINTER(c_void_p)
    lib.randsmap_info.argtypes = c_void_p, POINTER(Info)
    lib.randsmap_work.argtypes, lib.randsmap_work.restype = (c_void_p, c_ssize_t), c_ssize_t
    lib.randsmap_decode.argtypes = c_void_p, doubles, c_ssize_t, doubles, doubles
    lib.randsmap_close.argtypes, lib.randsmap_close.restype = (c_void_p,), None
    return lib


def last_field(path, library_path):
    lib = library(library_path)

    def check(status):
        if status:
            raise RuntimeError(lib.randsmap_strerror(status).decode())

    decoder, info = c_void_p(), Info(size=ctypes.sizeof(Info))
    check(lib.randsmap_open(path.encode(), ctypes.byref(decoder)))
    check(lib.randsmap_info(decoder, ctypes.byref(info)))
    z, field = (c_double * info.n_components)(*[0.25] * info.n_components), (c_double * info.n_cells)()
    work = (c_double * lib.randsmap_work(decoder, 1))()
    for _ in range(256):
        for j in range(len(z)):
            z[j] += 1 / 1024  # the reduced model's step
        check(lib.randsmap_decode(decoder, z, 1, field, work))
    lib.randsmap_close(decoder)
    return field


if __name__ == "__main__":
    for value in last_field(*sys.argv[1:]):
        print(struct.pack(">d", value).hex())
