"""Ridge regression: Gram matrices by SYRK, summed over row blocks, and their Cholesky solve."""


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


cdef Py_ssize_t solve_core(
    double *G, Py_ssize_t p, double regularization, double smallest_pivot, double *H, Py_ssize_t M,
) noexcept nogil:
    cdef Py_ssize_t i, info
    for i in range(p):
        G[i * p + i] += regularization
    info = potrf(p, G, p)
    if info:
        return info
    for i in range(p):
        # a pivot that is only the round-off of G solves nothing
        if not G[i * p + i] * G[i * p + i] > smallest_pivot:
            return i + 1
    trsm(True, p, M, G, p, H, M)
    trsm(False, p, M, G, p, H, M)
    return 0


def solve(double[:, ::1] G, double regularization, double smallest_pivot, double[:, ::1] H):
    """H <- (G + regularization I)^-1 H by Cholesky; G (upper triangle read) is overwritten.

    Returns 0, or the 1-based pivot that is not above smallest_pivot (H is then unchanged).
    """
    cdef Py_ssize_t info
    if G.shape[0] == 0 or H.shape[1] == 0:
        return 0
    with nogil:
        info = solve_core(&G[0, 0], G.shape[0], regularization, smallest_pivot, &H[0, 0],
                          H.shape[1])
    return info
