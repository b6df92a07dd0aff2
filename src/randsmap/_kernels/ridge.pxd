from randsmap._kernels.blas cimport gemm, potrf, syrk, trsm


cdef Py_ssize_t solve_core(
    double *G, Py_ssize_t p, double regularization, double smallest_pivot, double *H, Py_ssize_t M,
) noexcept nogil
