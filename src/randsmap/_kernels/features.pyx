"""Random feature maps: out[i, k] = scale * act(Y[i] . W[:, k] + b[k])."""

cdef const rk_features_table *table = rk_features_select()

COSINE = RK_COSINE
LOGISTIC = RK_LOGISTIC


def features(int activation, const double[:, ::1] Y, const double[:, ::1] W,
             const double[::1] b, double scale, double[:, :] out):
    """Feature matrix of Y (n, d) into out (n, P); rows of out may be strided, columns not."""
    cdef FeatureMap feature_map
    if out.shape[0] == 0 or out.shape[1] == 0:
        return
    feature_map.activation = activation
    feature_map.d = Y.shape[1]
    feature_map.P = W.shape[1]
    feature_map.W = &W[0, 0]
    feature_map.b = &b[0]
    feature_map.scale = scale
    with nogil:
        feature_tile(table, &feature_map, &Y[0, 0], Y.shape[0], &out[0, 0],
                     out.strides[0] // <Py_ssize_t> sizeof(double))
