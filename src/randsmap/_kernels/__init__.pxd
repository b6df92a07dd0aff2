from libc.stdlib cimport malloc


cdef inline double *allocate(Py_ssize_t n) except NULL:
    cdef double *memory = <double *> malloc((<size_t> n + 1) * sizeof(double))
    if memory == NULL:
        raise MemoryError(f"no memory for {n} numbers")
    return memory
