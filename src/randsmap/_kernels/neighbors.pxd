cdef extern from "rk_neighbors.h" nogil:
    ctypedef struct rk_tree:
        Py_ssize_t n, d, depth
        const double *points
        const double *index
        const double *boxes
        const double *lowest
        const double *split
    ctypedef struct rk_cell_grid:
        Py_ssize_t nx, ny
        double x0, y0, sx, sy
        const Py_ssize_t *start
        const double *points
        const double *index
        const double *above_x
        const double *below_x
        const double *above_y
        const double *below_y
    ctypedef struct rk_flat:
        Py_ssize_t n, d
        const double *points
        const float *tiles
        const double *center
        double scale
        double radius
    ctypedef struct rk_neighbors_table:
        void (*build)(const double *X, Py_ssize_t n, Py_ssize_t d, Py_ssize_t depth,
                      Py_ssize_t *order, double *boxes, double *lowest, double *split,
                      double *work) noexcept nogil
        void (*assign)(const rk_tree *tree, const double *Q, Py_ssize_t m,
                       Py_ssize_t *leaf) noexcept nogil
        void (*sort)(const Py_ssize_t *leaf, Py_ssize_t m, Py_ssize_t n_leaves, Py_ssize_t *start,
                     Py_ssize_t *order) noexcept nogil
        void (*cells)(const rk_cell_grid *grid, const double *Q, Py_ssize_t m,
                      Py_ssize_t *cell) noexcept nogil
        void (*tree)(const rk_tree *tree, const rk_cell_grid *grid, const double *Q,
                     const Py_ssize_t *order, Py_ssize_t m, Py_ssize_t k,
                     double *work, double *distance, Py_ssize_t *index) noexcept nogil
        void (*tiles)(const double *X, Py_ssize_t n, Py_ssize_t d, const double *center,
                      double scale, float *tiles) noexcept nogil
        void (*flat)(const rk_flat *flat, const double *Q, Py_ssize_t m, Py_ssize_t k, double *work,
                     double *distance, Py_ssize_t *index) noexcept nogil
        void (*among)(const double *X, Py_ssize_t d, const Py_ssize_t *chosen, Py_ssize_t count,
                      const double *Q, Py_ssize_t m, Py_ssize_t k, double *work, double *distance2,
                      Py_ssize_t *index) noexcept nogil
        Py_ssize_t (*tree_workspace)(Py_ssize_t d, Py_ssize_t depth, Py_ssize_t k) noexcept nogil
        Py_ssize_t (*flat_workspace)(Py_ssize_t d, Py_ssize_t m, Py_ssize_t k) noexcept nogil
        Py_ssize_t (*among_workspace)(Py_ssize_t d) noexcept nogil
    const rk_neighbors_table *rk_neighbors_select() noexcept nogil
