"""Ridge regression: Gram matrices by SYRK, summed over row blocks, and their Cholesky solve."""

from randsmap._kernels.blas cimport gemm, potrf, syrk, trsm


def gram(const double[:, ::1] Phi, bint dual, bint accumulate, double[:, ::1] G):
    """Upper triangle of G = Phi^T Phi (dual: Phi Phi^T), added to what is there with accumulate."""
    cdef Py_ssize_t n = Phi.shape[0], p = Phi.shape[1]
    if G.shape[0] == 0 or n == 0 or p == 0:
        return
    with nogil:
        if dual:
            syrk(False, n, p, 1.0, &Phi[0, 0], p, accumulate, &G[0, 0], n)
        else:
            syrk(True, p, n, 1.0, &Phi[0, 0], p, accumulate, &G[0, 0], p)


def cross(const double[:, ::1] Phi, const double[:, ::1] F, bint accumulate, double[:, ::1] H):
    """H = Phi^T F, added to what is there with accumulate; Phi (n, p), F (n, M), H (p, M)."""
    cdef Py_ssize_t n = Phi.shape[0], p = Phi.shape[1], M = F.shape[1]
    if n == 0 or p == 0 or M == 0:
        return
    with nogil:
        gemm(True, False, p, M, n, 1.0, &Phi[0, 0], p, &F[0, 0], M, accumulate, &H[0, 0], M)


def solve(double[:, ::1] G, double regularization, double smallest_pivot, double[:, ::1] H):
    """H <- (G + regularization I)^-1 H by Cholesky; G (upper triangle read) is overwritten.

    Returns 0, or the 1-based pivot that is not above smallest_pivot (H is then unchanged).
    """
    cdef Py_ssize_t i, info, p = G.shape[0], M = H.shape[1]
    if p == 0 or M == 0:
        return 0
    with nogil:
        for i in range(p):
            G[i, i] += regularization
        info = potrf(p, &G[0, 0], p)
        for i in range(p if info == 0 else 0):
            # a pivot that is only the round-off of G solves nothing
            if not G[i, i] * G[i, i] > smallest_pivot:
                info = i + 1
                break
        if info == 0:
            trsm(True, p, M, &G[0, 0], p, &H[0, 0], M)
            trsm(False, p, M, &G[0, 0], p, &H[0, 0], M)
    return info
