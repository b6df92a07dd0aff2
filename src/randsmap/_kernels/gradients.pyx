"""Derivatives of features with respect to the latent point.

S (n, P) are slopes; Z (d, P) the weights (X None), or the points of a radial kernel, one a column, and
X (n, d) the latent points: see rk_gradients.h.
"""

cdef const rk_gradients_table *table = rk_gradients_select()

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
