"""Exact k nearest neighbours: a k-d tree searched by packets of queries, and exhaustive search."""
from libc.stdlib cimport free

from randsmap._kernels cimport allocate

cdef const rk_neighbors_table *table = rk_neighbors_select()

MAX_LEAF = 16  # points in a leaf, as in neighbors.c


def build(const double[:, ::1] X, Py_ssize_t depth, Py_ssize_t[::1] order, double[:, :, ::1] boxes,
          double[::1] lowest, double[:, ::1] split):
    """Tree of 2^depth leaves over X (n >= 2^depth, d): leaf order, boxes, lowest indices, splits."""
    cdef double *work = allocate(2 * X.shape[0])
    with nogil:
        table.build(&X[0, 0], X.shape[0], X.shape[1], depth, &order[0], &boxes[0, 0, 0], &lowest[0],
                    &split[0, 0] if depth else NULL, work)
    free(work)


cdef rk_tree _tree(const double[:, ::1] points, const double[::1] index, Py_ssize_t depth,
                   const double[:, :, ::1] boxes, const double[::1] lowest,
                   const double[:, ::1] split) noexcept nogil:
    cdef rk_tree tree
    tree.n, tree.d, tree.depth = points.shape[0], points.shape[1], depth
    tree.points, tree.index, tree.boxes = &points[0, 0], &index[0], &boxes[0, 0, 0]
    tree.lowest, tree.split = &lowest[0], &split[0, 0] if depth else NULL
    return tree


cdef class Grid:
    """Cells of the plane as the kernel sees them; keeps the arrays it points into."""

    cdef rk_cell_grid grid
    cdef object arrays

    def __init__(self, Py_ssize_t nx, Py_ssize_t ny, double x0, double y0, double sx, double sy,
                 const Py_ssize_t[::1] start, const double[:, ::1] points, const double[::1] index,
                 const double[::1] above_x, const double[::1] below_x, const double[::1] above_y,
                 const double[::1] below_y):
        self.arrays = start, points, index, above_x, below_x, above_y, below_y
        self.grid.nx, self.grid.ny = nx, ny
        self.grid.x0, self.grid.y0, self.grid.sx, self.grid.sy = x0, y0, sx, sy
        self.grid.start, self.grid.points, self.grid.index = &start[0], &points[0, 0], &index[0]
        self.grid.above_x, self.grid.below_x = &above_x[0], &below_x[0]
        self.grid.above_y, self.grid.below_y = &above_y[0], &below_y[0]


def cells(Grid grid, const double[:, ::1] Q, Py_ssize_t[::1] cell):
    """cell (m) = numbers of the grid's cells that the queries Q (m, 2) fall into."""
    if Q.shape[0]:
        with nogil:
            table.cells(&grid.grid, &Q[0, 0], Q.shape[0], &cell[0])


def assign(const double[:, ::1] points, const double[::1] index, Py_ssize_t depth,
           const double[:, :, ::1] boxes, const double[::1] lowest, const double[:, ::1] split,
           const double[:, ::1] Q, Py_ssize_t[::1] leaf):
    """leaf (m) = leaves that the queries Q (m, d) fall into."""
    cdef rk_tree tree
    if Q.shape[0]:
        with nogil:
            tree = _tree(points, index, depth, boxes, lowest, split)
            table.assign(&tree, &Q[0, 0], Q.shape[0], &leaf[0])


def sort(const Py_ssize_t[::1] leaf, Py_ssize_t[::1] start, Py_ssize_t[::1] order):
    """order (m) sorts the queries by leaf; start (number of leaves + 1) is workspace."""
    if leaf.shape[0]:
        with nogil:
            table.sort(&leaf[0], leaf.shape[0], start.shape[0] - 1, &start[0], &order[0])


def tree(const double[:, ::1] points, const double[::1] index, Py_ssize_t depth,
         const double[:, :, ::1] boxes, const double[::1] lowest, const double[:, ::1] split,
         Grid grid, const double[:, ::1] Q, const Py_ssize_t[::1] order, double[:, ::1] distance,
         Py_ssize_t[:, ::1] neighbor):
    """Neighbours of the queries Q[order] in the rows of Q; the grid may be None."""
    cdef rk_tree t
    cdef double *work
    cdef const rk_cell_grid *g = NULL if grid is None else &grid.grid
    cdef Py_ssize_t k = distance.shape[1]
    if order.shape[0] == 0:
        return
    work = allocate(table.tree_workspace(points.shape[1], depth, k))
    with nogil:
        t = _tree(points, index, depth, boxes, lowest, split)
        table.tree(&t, g, &Q[0, 0], &order[0], order.shape[0], k, work, &distance[0, 0],
                   &neighbor[0, 0])
    free(work)


def tiles(const double[:, ::1] X, const double[::1] center, double scale, float[:, :, ::1] out):
    """Single precision tiles of X (n, d) for `flat`, out (ceil(n/16), d, 16)."""
    with nogil:
        table.tiles(&X[0, 0], X.shape[0], X.shape[1], &center[0], scale, &out[0, 0, 0])


def flat(const double[:, ::1] points, const float[:, :, ::1] tiles, const double[::1] center,
         double scale, double radius, const double[:, ::1] Q, double[:, ::1] distance,
         Py_ssize_t[:, ::1] neighbor):
    """Neighbours of the rows Q (m, d) among points (n, d), all pairs compared."""
    cdef rk_flat f
    cdef double *work
    cdef Py_ssize_t k = distance.shape[1]
    if Q.shape[0] == 0:
        return
    work = allocate(table.flat_workspace(points.shape[1], Q.shape[0], k))
    with nogil:
        f.n, f.d = points.shape[0], points.shape[1]
        f.points, f.tiles = &points[0, 0], &tiles[0, 0, 0]
        f.center, f.scale, f.radius = &center[0], scale, radius
        table.flat(&f, &Q[0, 0], Q.shape[0], k, work, &distance[0, 0], &neighbor[0, 0])
    free(work)


def among(const double[:, ::1] points, const Py_ssize_t[::1] chosen, const double[:, ::1] Q,
          double[:, ::1] squared, Py_ssize_t[:, ::1] neighbor):
    """Enter some of the points (n, d) into the lists (m, k) of the nearest of the rows Q (m, d).

    A list is in ascending order of (squared distance, number); unfilled places hold (inf, the largest integer).
    No point may be entered twice.
    """
    cdef double *work
    if Q.shape[0] == 0 or chosen.shape[0] == 0:
        return
    work = allocate(table.among_workspace(points.shape[1]))
    with nogil:
        table.among(&points[0, 0], points.shape[1], &chosen[0], chosen.shape[0], &Q[0, 0], Q.shape[0],
                    squared.shape[1], work, &squared[0, 0], &neighbor[0, 0])
    free(work)
