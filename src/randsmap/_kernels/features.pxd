cdef extern from "rk_features.h" nogil:
    cdef enum:
        RK_ACTIVATIONS
    const char *rk_activation_name(int activation)
    ctypedef struct rk_features_table:
        void (*fused)(int activation, const double *Y, Py_ssize_t n, Py_ssize_t d,
                      const double *W, const double *b, Py_ssize_t P, double scale,
                      double *out, Py_ssize_t ld) noexcept nogil
        void (*fused_single)(int activation, const double *Y, Py_ssize_t n, Py_ssize_t d,
                             const double *W, const double *b, Py_ssize_t P, double scale,
                             float *out, Py_ssize_t ld) noexcept nogil
    const rk_features_table *rk_features_select() noexcept nogil


cdef struct FeatureMap:
    # A feature map as the kernels see it: scale * act(y . W[:, k] + b[k]), k < P; y has length d.
    int activation
    Py_ssize_t d
    Py_ssize_t P
    const double *W
    const double *b
    double scale


cdef inline void feature_tile(
    const rk_features_table *table, const FeatureMap *feature_map, const double *Y, Py_ssize_t n,
    double *out, Py_ssize_t ld,
) noexcept nogil:
    """Features of n latent points Y (n, d) into out (n, P) with row stride ld."""
    table.fused(feature_map.activation, Y, n, feature_map.d, feature_map.W, feature_map.b,
                feature_map.P, feature_map.scale, out, ld)
