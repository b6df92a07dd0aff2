# cython: language_level=3, boundscheck=False, wraparound=False
"""A time loop in Cython that holds no GIL; ``randsmap.c_api`` brings the functions, there is no library to link."""

from libc.stdlib cimport free, malloc
from randsmap.c_api cimport (
    RANDSMAP_OK, randsmap_close, randsmap_decode, randsmap_decoder, randsmap_info, randsmap_info_t, randsmap_open,
    randsmap_strerror, randsmap_work,
)


cdef int check(int status) except -1:
    if status != RANDSMAP_OK:
        raise RuntimeError(randsmap_strerror(status).decode())
    return 0


cdef class Decoder:
    """The decoder of a file."""

    cdef randsmap_decoder *decoder
    cdef double *work

    def __cinit__(self, str path):
        check(randsmap_open(path.encode(), &self.decoder))
        self.work = <double *> malloc(<size_t> randsmap_work(self.decoder, 1) * sizeof(double))
        if self.work == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.work)
        randsmap_close(self.decoder)

    def last_field(self, double[::1] z, double[::1] field, int n_steps):
        """Move the latent point z (d,) by so many steps and decode each time into field (M,)."""
        cdef randsmap_info_t info
        cdef Py_ssize_t j
        cdef int step, status = RANDSMAP_OK
        info.size = sizeof(info)
        check(randsmap_info(self.decoder, &info))
        if z.shape[0] != info.n_components or field.shape[0] != info.n_cells:
            raise ValueError(f"z and field must have lengths {info.n_components} and {info.n_cells}")
        with nogil:
            for step in range(n_steps):
                for j in range(z.shape[0]):
                    z[j] += 1.0 / 1024  # the reduced model's step
                status = randsmap_decode(self.decoder, &z[0], 1, &field[0], self.work)
                if status != RANDSMAP_OK:
                    break
        check(status)
