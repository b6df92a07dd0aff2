# Row-major BLAS and LAPACK: the functions of SciPy that `bind` found at import (blas.pyx).

cdef void gemm(
    bint transpose_a, bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k,
    double alpha, const double *A, Py_ssize_t lda, const double *B, Py_ssize_t ldb,
    double beta, double *C, Py_ssize_t ldc,
) noexcept nogil

cdef void single_gemm(
    bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, const float *A, const float *B, Py_ssize_t ldb, float *C,
) noexcept nogil

cdef void syrk(
    bint transpose, Py_ssize_t n, Py_ssize_t k, double alpha, const double *A, Py_ssize_t lda,
    double beta, double *C, Py_ssize_t ldc,
) noexcept nogil

cdef Py_ssize_t potrf(Py_ssize_t n, double *A, Py_ssize_t lda) noexcept nogil

cdef void trsm(
    bint transpose, Py_ssize_t n, Py_ssize_t m, const double *U, Py_ssize_t ldu, double *B,
    Py_ssize_t ldb,
) noexcept nogil
