# Row-major shims over SciPy's BLAS: the one place that knows Fortran order, `const` and blas_int.
from scipy.linalg cimport cython_blas

include "blas_int.pxi"


cdef inline void gemm(
    bint transpose_a, bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k,
    double alpha, const double *A, Py_ssize_t lda, const double *B, Py_ssize_t ldb,
    double beta, double *C, Py_ssize_t ldc,
) noexcept nogil:
    """C = alpha op(A) op(B) + beta C for row-major C (m, n), op(A) (m, k), op(B) (k, n)."""
    cdef blas_int m_ = m, n_ = n, k_ = k, lda_ = lda, ldb_ = ldb, ldc_ = ldc
    cdef char ta = b'T' if transpose_a else b'N'
    cdef char tb = b'T' if transpose_b else b'N'
    cython_blas.dgemm(&tb, &ta, &n_, &m_, &k_, &alpha, <double *> B, &ldb_, <double *> A, &lda_,
                      &beta, C, &ldc_)


cdef inline void gemm_f(
    bint transpose_a, bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k,
    float alpha, const float *A, Py_ssize_t lda, const float *B, Py_ssize_t ldb,
    float beta, float *C, Py_ssize_t ldc,
) noexcept nogil:
    """`gemm` in single precision."""
    cdef blas_int m_ = m, n_ = n, k_ = k, lda_ = lda, ldb_ = ldb, ldc_ = ldc
    cdef char ta = b'T' if transpose_a else b'N'
    cdef char tb = b'T' if transpose_b else b'N'
    cython_blas.sgemm(&tb, &ta, &n_, &m_, &k_, &alpha, <float *> B, &ldb_, <float *> A, &lda_,
                      &beta, C, &ldc_)


cdef inline void syrk(
    Py_ssize_t n, Py_ssize_t k, double alpha, const double *A, Py_ssize_t lda,
    double beta, double *C, Py_ssize_t ldc,
) noexcept nogil:
    """Upper triangle of C = alpha A A^T + beta C for row-major A (n, k), C (n, n)."""
    cdef blas_int n_ = n, k_ = k, lda_ = lda, ldc_ = ldc
    cdef char lower = b'L', transposed = b'T'  # in Fortran's order of the axes
    cython_blas.dsyrk(&lower, &transposed, &n_, &k_, &alpha, <double *> A, &lda_, &beta, C, &ldc_)
