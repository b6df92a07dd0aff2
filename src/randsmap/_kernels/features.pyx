"""Random feature maps: out[i, k] = scale * act(Y[i] . W[:, k] + b[k])."""

from cython cimport floating

cdef const rk_features_table *table = rk_features_select()

for activation in range(RK_ACTIVATIONS):  # COSINE, LOGISTIC, ...
    globals()[rk_activation_name(activation).decode()] = activation


def features(int activation, const double[:, ::1] Y, const double[:, ::1] W,
             const double[::1] b, double scale, floating[:, :] out):
    """Feature matrix of Y (n, d) into out (n, P); rows of out may be strided, columns not.

    A float32 out receives the float64 result, rounded once.
    """
    cdef FeatureMap feature_map
    cdef Py_ssize_t ld
    if out.shape[0] == 0 or out.shape[1] == 0:
        return
    feature_map.activation = activation
    feature_map.d = Y.shape[1]
    feature_map.P = W.shape[1]
    feature_map.W = &W[0, 0]
    feature_map.b = &b[0]
    feature_map.scale = scale
    ld = out.strides[0] // <Py_ssize_t> sizeof(floating)
    with nogil:
        if floating is double:
            feature_tile(table, &feature_map, &Y[0, 0], Y.shape[0], &out[0, 0], ld)
        else:
            table.fused_single(activation, &Y[0, 0], Y.shape[0], feature_map.d, feature_map.W, feature_map.b,
                               feature_map.P, scale, &out[0, 0], ld)
