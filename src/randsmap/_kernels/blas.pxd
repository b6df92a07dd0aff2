# Row-major shims over SciPy's BLAS and LAPACK: the one place that knows Fortran order, `const` and
# blas_int.
from scipy.linalg cimport cython_blas, cython_lapack

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
    bint transpose, Py_ssize_t n, Py_ssize_t k, double alpha, const double *A, Py_ssize_t lda,
    double beta, double *C, Py_ssize_t ldc,
) noexcept nogil:
    """Upper triangle of C = alpha A A^T (transpose: alpha A^T A) + beta C for row-major C (n, n)."""
    cdef blas_int n_ = n, k_ = k, lda_ = lda, ldc_ = ldc
    cdef char lower = b'L', trans = b'N' if transpose else b'T'
    cython_blas.dsyrk(&lower, &trans, &n_, &k_, &alpha, <double *> A, &lda_, &beta, C, &ldc_)


cdef inline Py_ssize_t potrf(Py_ssize_t n, double *A, Py_ssize_t lda) noexcept nogil:
    """A = U^T U in the upper triangle of row-major A; 0, or the 1-based pivot that is not > 0."""
    cdef blas_int n_ = n, lda_ = lda, info = 0
    cdef char lower = b'L'
    cython_lapack.dpotrf(&lower, &n_, A, &lda_, &info)
    return info


cdef inline void trsm(
    bint transpose, Py_ssize_t n, Py_ssize_t m, const double *U, Py_ssize_t ldu, double *B,
    Py_ssize_t ldb,
) noexcept nogil:
    """B = U^-1 B (transpose: U^-T B) for row-major upper-triangular U (n, n) and B (n, m)."""
    cdef blas_int n_ = n, m_ = m, ldu_ = ldu, ldb_ = ldb
    cdef double one = 1
    cdef char right = b'R', lower = b'L', no = b'N', trans = b'T' if transpose else b'N'
    cython_blas.dtrsm(&right, &lower, &trans, &no, &m_, &n_, &one, <double *> U, &ldu_, B, &ldb_)
