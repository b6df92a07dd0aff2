cdef extern from "rk_distances.h" nogil:
    cdef enum:
        RK_DIRECT_DIM
        RK_RADIALS
        RK_SQUARED_DISTANCE
        RK_GAUSSIAN
    const char *rk_radial_name(int kernel)
    ctypedef struct rk_distances_table:
        void (*center)(const double *X, Py_ssize_t n, Py_ssize_t M, const double *c, double *out,
                       double *norms) noexcept nogil
        void (*direct)(const double *X, Py_ssize_t m, const double *Z, Py_ssize_t n, Py_ssize_t M,
                       double *block, double *tile, Py_ssize_t ld) noexcept nogil
        void (*direct_rows)(const double *X, Py_ssize_t m, const double *Z, Py_ssize_t n,
                            Py_ssize_t M, double *tile, Py_ssize_t ld) noexcept nogil
        void (*pack)(const double *Z, Py_ssize_t n, Py_ssize_t M, const double *c, double *out,
                     double *norms) noexcept nogil
        void (*products)(const double *X, Py_ssize_t m, const double *packed, Py_ssize_t n, Py_ssize_t M,
                         double *tile, Py_ssize_t ld) noexcept nogil
        void (*distances)(double *tile, Py_ssize_t ld, const double *X, Py_ssize_t m,
                          const double *Z, Py_ssize_t n, Py_ssize_t M, const double *nx,
                          const double *nz) noexcept nogil
        void (*gaussian)(double *tile, Py_ssize_t ld, const double *X, Py_ssize_t m,
                         const double *Z, Py_ssize_t n, Py_ssize_t M, const double *nx,
                         const double *nz, double nz_max, double scale, double *out,
                         Py_ssize_t ldo) noexcept nogil
        void (*radial)(int kernel, int slopes, double *tile, Py_ssize_t ld, Py_ssize_t m,
                       Py_ssize_t n, double scale) noexcept nogil
        void (*multi_gaussian)(double *x, Py_ssize_t n, double low, double high, bint slope) noexcept nogil
        void (*store)(const double *tile, Py_ssize_t ld, Py_ssize_t m, Py_ssize_t n, double *out,
                      Py_ssize_t ldo) noexcept nogil
        void (*store_t)(const double *tile, Py_ssize_t ld, Py_ssize_t m, Py_ssize_t n,
                        double *out_t, Py_ssize_t ldo) noexcept nogil
        void (*weighted_sums)(const double *tile, Py_ssize_t ld, Py_ssize_t m, Py_ssize_t n,
                              const double *W, Py_ssize_t ldw, Py_ssize_t q,
                              double *sums) noexcept nogil
        void (*symmetric_product)(const double *K, Py_ssize_t n, Py_ssize_t i0, Py_ssize_t i1,
                                  const double *X, Py_ssize_t p, double *Y) noexcept nogil
        Py_ssize_t (*within)(const double *tile, Py_ssize_t ld, Py_ssize_t m, Py_ssize_t n,
                             Py_ssize_t i0, Py_ssize_t j0, const double *rx, const double *rz,
                             Py_ssize_t found, Py_ssize_t capacity, Py_ssize_t *rows,
                             Py_ssize_t *columns, double *values) noexcept nogil
    const rk_distances_table *rk_distances_select() noexcept nogil


cdef enum:
    PANEL_ROWS = 192   # rows of a tile; columns too, where products fill it
    TILE_COLUMNS = 1024  # of differences
    PADDING = 32       # of the tile's rows: no multiple of 4096 bytes (transposed reads); a multiple of 32
    CORNER = 48        # rows of a tile at the diagonal: half of its corner is not needed
    FEW_ROWS = 8       # up to here differences beat products, which would pack all the rows of Z
    SCRATCH = 1 << 20  # numbers of the centred rows of a task, if they are more than PANEL_ROWS
    LONGEST_TASK = 1024  # rows; the packed rows Z serve so many


cdef struct Rows:
    # One side of the pairs. Without `centred` rows they are centred on `centre` block by block.
    const double *raw
    const double *centred
    const double *norms
    const double *centre


cdef struct Pairs:
    Rows x
    Rows z
    Py_ssize_t dim
    int kernel         # its number in rk_radial.h
    bint slopes        # twice the kernel's derivative by the squared distance in its place
    double scale       # the kernel is a function of scale |x - z|^2
    bint differences   # direct differences instead of products
    bint symmetric     # x are z; the tasks are blocks of columns, else blocks of rows
    bint turned        # few rows x, of one tile: they are packed, and rows z pass by
    Py_ssize_t n       # number of rows x, and of rows of a task
    Py_ssize_t rows
    Py_ssize_t width   # columns of a tile, and their stride
    Py_ssize_t stride

