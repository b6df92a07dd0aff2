"""Row-major shims over SciPy's BLAS and LAPACK: the one place that knows Fortran order and BLAS's integers.

The functions are looked up when the module is imported, not declared by SciPy's .pxd files: nothing of SciPy is
needed to build, and one build runs with every SciPy, be its integers of 32 bits or (ILP64) of 64.
"""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int64_t

import re

from scipy.linalg import cython_blas, cython_lapack

cdef extern from *:
    """
    typedef union { int narrow; int64_t wide; } rk_blas_int;
    """
    ctypedef union rk_blas_int:
        int narrow
        int64_t wide

ctypedef void (*gemm_t)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *,
                        double *, int *) noexcept nogil
ctypedef void (*single_gemm_t)(char *, char *, int *, int *, int *, float *, float *, int *, float *, int *, float *,
                               float *, int *) noexcept nogil
ctypedef void (*syrk_t)(char *, char *, int *, int *, double *, double *, int *, double *, double *,
                        int *) noexcept nogil
ctypedef void (*potrf_t)(char *, int *, double *, int *, int *) noexcept nogil
ctypedef void (*trsm_t)(char *, char *, char *, char *, int *, int *, double *, double *, int *, double *,
                        int *) noexcept nogil

cdef gemm_t dgemm
cdef single_gemm_t sgemm
cdef syrk_t dsyrk
cdef potrf_t dpotrf
cdef trsm_t dtrsm
cdef bint wide_integers  # ILP64

SIGNATURES = {  # signatures in the names of the capsules, with `double` and `float` for SciPy's names of them
    "dgemm": "void (char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *, "
             "double *, int *)",
    "sgemm": "void (char *, char *, int *, int *, int *, float *, float *, int *, float *, int *, float *, "
             "float *, int *)",
    "dsyrk": "void (char *, char *, int *, int *, double *, double *, int *, double *, double *, int *)",
    "dpotrf": "void (char *, int *, double *, int *, int *)",
    "dtrsm": "void (char *, char *, char *, char *, int *, int *, double *, double *, int *, double *, int *)",
}


def bind(blas, lapack):
    """Take the functions from modules like scipy.linalg.cython_blas and cython_lapack; ImportError if they differ."""
    global dgemm, sgemm, dsyrk, dpotrf, dtrsm, wide_integers
    cdef dict pointers = {}
    widths = set()
    for name, signature in SIGNATURES.items():
        module = lapack if name == "dpotrf" else blas
        capsule = module.__pyx_capi__[name]
        declared = PyCapsule_GetName(capsule)
        given = re.sub(r"__pyx_t_\w+_d\b", "double", declared.decode())
        given = re.sub(r"__pyx_t_\w+_s\b", "float", given)
        if given == signature:
            widths.add(32)
        elif given == signature.replace("int *", "int64_t *"):
            widths.add(64)
        else:
            raise ImportError(f"{module.__name__}.{name} of the installed SciPy is {given!r}, not {signature!r}: "
                              "use a version of SciPy that this release of randsmap knows")
        pointers[name] = <size_t> PyCapsule_GetPointer(capsule, declared)
    if len(widths) > 1:
        raise ImportError("the installed SciPy has BLAS and LAPACK with integers of 32 and of 64 bits")
    wide_integers = widths == {64}
    dgemm = <gemm_t> <size_t> pointers["dgemm"]
    sgemm = <single_gemm_t> <size_t> pointers["sgemm"]
    dsyrk = <syrk_t> <size_t> pointers["dsyrk"]
    dpotrf = <potrf_t> <size_t> pointers["dpotrf"]
    dtrsm = <trsm_t> <size_t> pointers["dtrsm"]


bind(cython_blas, cython_lapack)


cdef inline rk_blas_int integer(Py_ssize_t value) noexcept nogil:
    cdef rk_blas_int result
    if wide_integers:
        result.wide = value
    else:
        result.narrow = <int> value
    return result


cdef void gemm(
    bint transpose_a, bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k,
    double alpha, const double *A, Py_ssize_t lda, const double *B, Py_ssize_t ldb,
    double beta, double *C, Py_ssize_t ldc,
) noexcept nogil:
    """C = alpha op(A) op(B) + beta C for row-major C (m, n), op(A) (m, k), op(B) (k, n)."""
    cdef rk_blas_int m_ = integer(m), n_ = integer(n), k_ = integer(k)
    cdef rk_blas_int lda_ = integer(lda), ldb_ = integer(ldb), ldc_ = integer(ldc)
    cdef char ta = b'T' if transpose_a else b'N'
    cdef char tb = b'T' if transpose_b else b'N'
    dgemm(&tb, &ta, &n_.narrow, &m_.narrow, &k_.narrow, &alpha, <double *> B, &ldb_.narrow, <double *> A,
          &lda_.narrow, &beta, C, &ldc_.narrow)


cdef void single_gemm(
    bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, const float *A, const float *B, Py_ssize_t ldb, float *C,
) noexcept nogil:
    """C = A op(B) for row-major C (m, n), A (m, k), op(B) (k, n)."""
    cdef rk_blas_int m_ = integer(m), n_ = integer(n), k_ = integer(k), ldb_ = integer(ldb)
    cdef char no = b'N', tb = b'T' if transpose_b else b'N'
    cdef float one = 1, zero = 0
    sgemm(&tb, &no, &n_.narrow, &m_.narrow, &k_.narrow, &one, <float *> B, &ldb_.narrow, <float *> A, &k_.narrow, &zero,
          C, &n_.narrow)


cdef void syrk(
    bint transpose, Py_ssize_t n, Py_ssize_t k, double alpha, const double *A, Py_ssize_t lda,
    double beta, double *C, Py_ssize_t ldc,
) noexcept nogil:
    """Upper triangle of C = alpha A A^T (transpose: alpha A^T A) + beta C for row-major C (n, n)."""
    cdef rk_blas_int n_ = integer(n), k_ = integer(k), lda_ = integer(lda), ldc_ = integer(ldc)
    cdef char lower = b'L', trans = b'N' if transpose else b'T'
    dsyrk(&lower, &trans, &n_.narrow, &k_.narrow, &alpha, <double *> A, &lda_.narrow, &beta, C, &ldc_.narrow)


cdef Py_ssize_t potrf(Py_ssize_t n, double *A, Py_ssize_t lda) noexcept nogil:
    """A = U^T U in the upper triangle of row-major A; 0, or the 1-based pivot that is not > 0."""
    cdef rk_blas_int n_ = integer(n), lda_ = integer(lda), info = integer(0)
    cdef char lower = b'L'
    dpotrf(&lower, &n_.narrow, A, &lda_.narrow, &info.narrow)
    return <Py_ssize_t> info.wide if wide_integers else info.narrow


cdef void trsm(
    bint transpose, Py_ssize_t n, Py_ssize_t m, const double *U, Py_ssize_t ldu, double *B,
    Py_ssize_t ldb,
) noexcept nogil:
    """B = U^-1 B (transpose: U^-T B) for row-major upper-triangular U (n, n) and B (n, m)."""
    cdef rk_blas_int n_ = integer(n), m_ = integer(m), ldu_ = integer(ldu), ldb_ = integer(ldb)
    cdef double one = 1
    cdef char right = b'R', lower = b'L', no = b'N', trans = b'T' if transpose else b'N'
    dtrsm(&right, &lower, &trans, &no, &m_.narrow, &n_.narrow, &one, <double *> U, &ldu_.narrow, B, &ldb_.narrow)
