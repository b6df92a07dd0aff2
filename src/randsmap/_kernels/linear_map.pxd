from libc.stdint cimport uint32_t, uint64_t

from randsmap.c_api cimport RANDSMAP_FEATURES, RANDSMAP_OK, RANDSMAP_TABLE, randsmap_decoder, randsmap_info_t


cdef extern from "rk_blend.h" nogil:
    ctypedef struct rk_blend_table:
        void (*median)(double *P, Py_ssize_t stride, Py_ssize_t K, Py_ssize_t r, const double *near, double limit,
                       double smoothing, double *x, double *state) noexcept nogil
        Py_ssize_t (*state_size)(Py_ssize_t K, Py_ssize_t r) noexcept nogil
    const rk_blend_table *rk_blend_select()


cdef extern from "rk_image.h" nogil:
    const char *RK_IMAGE_MAGIC
    int RK_IMAGE_VERSION, RK_IMAGE_ORDER, RK_IMAGE_ALIGNMENT
    int RK_FLOAT64, RK_FLOAT32, RK_INT64
    int RK_SPLINE_ORDER, RK_TABLE_MARGIN
    int RK_IDENTITY, RK_FEATURE_MAP, RK_RADIAL_KERNEL, RK_MULTI_GAUSSIAN, RK_MONOMIALS, RK_MIXTURE, RK_MEDIAN
    int RK_SHIFT, RK_QUANTILES
    enum:
        RK_MOST_PARTS
    int RK_MOST_DEPTH, RK_MOST_NEIGHBORS, RK_MOST_ENCODED, RK_MOST_MIXED
    int RK_N_PARAMETERS
    enum:
        RK_SECTIONS
    ctypedef struct rk_section:
        uint32_t type
        uint64_t rows, columns
        const void *data
    ctypedef void (*rk_gemm)(bint transpose_a, bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, double alpha,
                             const double *A, Py_ssize_t lda, const double *B, Py_ssize_t ldb, double beta, double *C,
                             Py_ssize_t ldc) noexcept
    ctypedef void (*rk_single_gemm)(bint transpose_b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, const float *A,
                                    const float *B, Py_ssize_t ldb, float *C) noexcept
    const char *rk_section_name(int id)
    const char *rk_parameter_name(int number)
    void rk_in_units(const double *y, const double *centre, const double *lengths, Py_ssize_t d, double *x)
    double RK_FAR_SUM, RK_UNDERFLOWN_SUM, RK_FAR_WIDTHS
    ctypedef struct rk_matrix:
        Py_ssize_t rows, columns
        const double *wide
        const float *narrow
    void rk_far_values(const rk_matrix *F, const double *z, double width, double *k)
    void rk_geodesic(const rk_matrix *lengths, const double *weights, Py_ssize_t d, const double *distance,
                     const Py_ssize_t *neighbor, Py_ssize_t k, double *g, double *y)
    int rk_map_of(const rk_section *sections, rk_gemm gemm, rk_single_gemm single_gemm, randsmap_decoder *const *parts,
                  Py_ssize_t n_parts, randsmap_decoder *input, randsmap_decoder **out)
    int rk_decode(const randsmap_decoder *map, const double *y, const double *values, Py_ssize_t n, double *out,
                  double *work)
    int rk_registered(const randsmap_decoder *map, const double *f, double *own, double *inside, double *work)
    bint rk_is_registration(const randsmap_decoder *map)
    Py_ssize_t rk_registered_cells(const randsmap_decoder *map)
    int rk_tangents(const randsmap_decoder *map, const double *y, const double *v, Py_ssize_t n, Py_ssize_t p, double *T,
                    double *work)
    int rk_cotangents(const randsmap_decoder *map, const double *y, const double *u, Py_ssize_t n, double *out,
                      double *work)
    double RK_DAMPING, RK_LEAST_DAMPING
    int RK_MOST_STEPS
    void rk_nearest(const randsmap_decoder *map, const double *f, const double *weights, Py_ssize_t n, Py_ssize_t steps,
                    double *y, double *work)
    Py_ssize_t rk_nearest_work(const randsmap_decoder *map)
    Py_ssize_t rk_work(const randsmap_decoder *map, Py_ssize_t n)
    Py_ssize_t rk_tangents_work(const randsmap_decoder *map, Py_ssize_t n, Py_ssize_t p)
    Py_ssize_t rk_cotangents_work(const randsmap_decoder *map, Py_ssize_t n)
    bint rk_image_is_single(const randsmap_decoder *decoder)
    bint rk_image_is_affine(const randsmap_decoder *decoder)
    Py_ssize_t rk_image_own(const randsmap_decoder *decoder)
    int rk_image_depth(const randsmap_decoder *decoder)
    bint rk_image_has_encoder(const randsmap_decoder *decoder)
    int randsmap_abi()
    const char *randsmap_strerror(int status)
    int randsmap_open(const char *path, randsmap_decoder **out)
    int randsmap_view(const void *image, size_t size, randsmap_decoder **out)
    void randsmap_close(randsmap_decoder *decoder)
    int randsmap_info(const randsmap_decoder *decoder, randsmap_info_t *info)
    ptrdiff_t randsmap_work(const randsmap_decoder *decoder, ptrdiff_t n)
    int randsmap_decode(const randsmap_decoder *decoder, const double *y, ptrdiff_t n, double *out, double *work)
    int randsmap_decode_values(const randsmap_decoder *decoder, const double *y, const double *m, ptrdiff_t n,
                               double *out, double *work)
    int randsmap_encode(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, double *y, double *work)
    int randsmap_encode_steps(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, ptrdiff_t steps, double *y,
                              double *work)
    int randsmap_decode_jvp(const randsmap_decoder *decoder, const double *y, const double *v, ptrdiff_t p, double *f,
                            double *Jv, double *work)
    int randsmap_vjp(const randsmap_decoder *decoder, const double *y, const double *u, double *out, double *work)
    int randsmap_error(const randsmap_decoder *decoder, const double *y, const double *f, ptrdiff_t n, double coverage,
                       int absolute, double *out)
    uint64_t rk_image_checksum(const void *image, size_t size)


cdef class Map:
    cdef randsmap_decoder *map
    cdef Py_buffer buffers[RK_SECTIONS]
    cdef int n_buffers
    cdef readonly object source
    cdef readonly Py_ssize_t n_components, n_cells, n_invariants, n_features, n_own
    cdef readonly int kind, precision, depth
    cdef readonly bint single, has_encoder, is_affine
    cdef Py_buffer *hold(self, source, int flags) except NULL
    cdef int read_arrays(self, dict arrays) except -1
    cdef int check(self, bint fits) except -1
