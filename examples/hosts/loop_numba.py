"""A time loop compiled by numba, which calls librandsmap without Python. Prints the last field, 16 hexadecimal digits
of its bits a cell.

    python loop_numba.py decoder.rsm
"""

import ctypes
import sys
from ctypes import c_char_p, c_int, c_ssize_t, c_void_p

import numba
import numpy as np

from randsmap import FrozenDecoder
from randsmap.decoders import library_path

# numba passes the address of an array, `array.ctypes`, where an argument is a c_void_p
lib = ctypes.CDLL(library_path())
decode = lib.randsmap_decode
decode.argtypes, decode.restype = (c_void_p, c_void_p, c_ssize_t, c_void_p, c_void_p), c_int
work_size = lib.randsmap_work
work_size.argtypes, work_size.restype = (c_void_p, c_ssize_t), c_ssize_t
lib.randsmap_open.argtypes = c_char_p, ctypes.POINTER(c_void_p)
lib.randsmap_close.argtypes, lib.randsmap_close.restype = (c_void_p,), None


@numba.njit
def last_field(decoder, z, field, work, n_steps):
    """Move the latent point z (d,) by so many steps and decode each time into field (M,); returns the status."""
    for _ in range(n_steps):
        for j in range(len(z)):
            z[j] += 1 / 1024  # the reduced model's step
        status = decode(decoder, z.ctypes, 1, field.ctypes, work.ctypes)
        if status != 0:
            return status
    return 0


def main(path):
    shape = FrozenDecoder.load(path)
    decoder = c_void_p()
    if lib.randsmap_open(path.encode(), ctypes.byref(decoder)):
        raise RuntimeError(f"{path} is no decoder")
    z, field = np.full(shape.n_components, 0.25), np.empty(shape.n_cells)
    status = last_field(decoder.value, z, field, np.empty(work_size(decoder, 1)), 256)
    lib.randsmap_close(decoder)
    if status:
        raise RuntimeError(f"status {status}: see randsmap.h")
    return field


if __name__ == "__main__":
    for bits in main(sys.argv[1]).view(np.uint64):
        print(f"{bits:016x}")
