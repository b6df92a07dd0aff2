"""Random feature maps: out[i, k] = scale * act(Y[i] . W[:, k] + b[k])."""

from cython cimport floating
from libc.stdlib cimport free, malloc

cdef const rk_features_table *table = rk_features_select()

for activation in range(RK_ACTIVATIONS):  # COSINE, LOGISTIC, ...
    globals()[rk_activation_name(activation).decode()] = activation
FUSED_DIM = RK_FUSED_DIM  # above it the kernel calls BLAS

# Rows formed together by GEMM on the way to a single-precision result above FUSED_DIM.
cdef enum:
    SINGLE_ROWS = 64


cdef int feature_tile_single(const FeatureMap *feature_map, const double *Y, Py_ssize_t n,
                             float *out, Py_ssize_t ld) noexcept nogil:
    """`feature_tile` into single precision; -1 if there is no memory for the buffer."""
    cdef Py_ssize_t d = feature_map.d, P = feature_map.P, i = 0, rows = SINGLE_ROWS
    cdef double *YW
    if d <= RK_FUSED_DIM:
        table.fused_single(feature_map.activation, Y, n, d, feature_map.W, feature_map.b, P,
                           feature_map.scale, out, ld)
        return 0
    YW = <double *> malloc(<size_t> min(n, rows) * <size_t> P * sizeof(double))
    if YW == NULL:
        return -1
    while i < n:
        rows = min(n - i, rows)
        gemm(False, False, rows, P, d, 1.0, Y + i * d, d, feature_map.W, P, 0.0, YW, P)
        table.activate_single(feature_map.activation, feature_map.b, YW, rows, P,
                              feature_map.scale, out + i * ld, ld)
        i += rows
    free(YW)
    return 0


def features(int activation, const double[:, ::1] Y, const double[:, ::1] W,
             const double[::1] b, double scale, floating[:, :] out):
    """Feature matrix of Y (n, d) into out (n, P); rows of out may be strided, columns not.

    A float32 out receives the float64 result, rounded once.
    """
    cdef FeatureMap feature_map
    cdef Py_ssize_t ld
    cdef int status = 0
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
            status = feature_tile_single(&feature_map, &Y[0, 0], Y.shape[0], &out[0, 0], ld)
    if status:
        raise MemoryError("no memory for the buffer of the feature kernel")
