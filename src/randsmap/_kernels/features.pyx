"""Random feature maps: out[i, k] = scale * act(Y[i] . W[:, k] + b[k])."""

cdef const rk_features_table *table = rk_features_select()

for activation in range(RK_ACTIVATIONS):  # COSINE, LOGISTIC, ...
    globals()[rk_activation_name(activation).decode()] = activation


def features(int activation, const double[:, ::1] Y, const double[:, ::1] W,
             const double[::1] b, double scale, double[:, :] out):
    """Feature matrix of Y (n, d) into out (n, P); rows of out may be strided, columns not."""
    cdef Py_ssize_t n = Y.shape[0], d = Y.shape[1], P = W.shape[1]
    cdef Py_ssize_t ld = out.strides[0] // <Py_ssize_t> sizeof(double)
    if out.shape[0] == 0 or out.shape[1] == 0:
        return
    with nogil:
        table.fused(activation, &Y[0, 0], n, d, &W[0, 0], &b[0], P, scale, &out[0, 0], ld)
