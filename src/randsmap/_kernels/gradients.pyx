"""Derivatives of activations."""

cdef const rk_gradients_table *table = rk_gradients_select()


def slopes(int activation, const double[:, ::1] Y, const double[:, ::1] W, const double[::1] b,
           double scale, double[:, ::1] S):
    """S[i, k] = scale act'(Y[i] . W[:, k] + b[k])."""
    if S.shape[0] and S.shape[1]:
        with nogil:
            table.slopes(activation, &Y[0, 0], Y.shape[0], Y.shape[1], &W[0, 0], &b[0], W.shape[1],
                         scale, &S[0, 0])
