"""Derivatives of features with respect to the latent point, and their product with A.

S (n, P) are slopes; Z (d, P) the weights (X None), or the points of a radial kernel, one a column, and
X (n, d) the latent points: see rk_gradients.h.
"""

from libc.string cimport memset

from randsmap._kernels.blas cimport gemm
from randsmap._kernels.decode cimport rk_decode_select, rk_decode_table

cdef const rk_gradients_table *table = rk_gradients_select()
cdef const rk_decode_table *decode_table = rk_decode_select()

# Up to so many tangents the row loop is faster than a GEMM, which first packs A (measured for 400 and
# 16384 cells).
cdef enum:
    FEW_TANGENTS = 6


def slopes(int activation, const double[:, ::1] Y, const double[:, ::1] W, const double[::1] b,
           double scale, double[:, ::1] S):
    """S[i, k] = scale act'(Y[i] . W[:, k] + b[k])."""
    if S.shape[0] and S.shape[1]:
        with nogil:
            table.slopes(activation, &Y[0, 0], Y.shape[0], Y.shape[1], &W[0, 0], &b[0], W.shape[1],
                         scale, &S[0, 0])


def gradients(const double[:, ::1] S, const double[:, ::1] X, const double[:, ::1] Z,
              double[:, :, ::1] out):
    """out[i, j, k]: derivative of feature k at the point i in coordinate j."""
    cdef const double *x = NULL
    if S.shape[0] and S.shape[1] and Z.shape[0]:
        if X is not None:
            x = &X[0, 0]
        with nogil:
            table.gradients(&S[0, 0], x, &Z[0, 0], S.shape[0], Z.shape[0], S.shape[1],
                            &out[0, 0, 0])


def directional(const double[:, ::1] S, const double[:, ::1] X, const double[:, ::1] Z,
                const double[:, ::1] V, double[:, ::1] out):
    """out[i, k]: derivative of feature k at the point i along V[i]."""
    cdef const double *x = NULL
    if S.shape[0] and S.shape[1] and Z.shape[0]:
        if X is not None:
            x = &X[0, 0]
        with nogil:
            table.directional(&S[0, 0], x, &Z[0, 0], &V[0, 0], S.shape[0], Z.shape[0], S.shape[1],
                              &out[0, 0])


def contract(const double[:, ::1] S, const double[:, ::1] X, const double[:, ::1] Z,
             const double[:, ::1] H, double[:, ::1] out):
    """out[i, j] = sum_k H[i, k] times the derivative of feature k in coordinate j."""
    cdef const double *x = NULL
    if S.shape[0] and S.shape[1] and Z.shape[0]:
        if X is not None:
            x = &X[0, 0]
        with nogil:
            table.contract(&S[0, 0], x, &Z[0, 0], &H[0, 0], S.shape[0], Z.shape[0], S.shape[1],
                           &out[0, 0])


def product(const double[:, ::1] G, const double[:, ::1] A, double[:, ::1] out):
    """out (n, M) = G A[1:] for G (n, P), A (P + 1, M): tangents, without the bias row."""
    cdef Py_ssize_t n = G.shape[0], P = G.shape[1], M = A.shape[1]
    if n == 0 or M == 0:
        return
    with nogil:
        if P == 0 or n <= FEW_TANGENTS:
            memset(&out[0, 0], 0, <size_t> n * <size_t> M * sizeof(double))
        if P > 0 and n <= FEW_TANGENTS:
            decode_table.rows(&G[0, 0], n, P, P, &A[1, 0], M, &out[0, 0])
        elif P > 0:
            gemm(False, False, n, M, P, 1.0, &G[0, 0], P, &A[1, 0], M, 0.0, &out[0, 0], M)
