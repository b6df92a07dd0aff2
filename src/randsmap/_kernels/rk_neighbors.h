/* Exact k nearest neighbours in double precision, ordered by (squared distance, index).
 *
 * A squared distance is the sum of squared differences in the order of the coordinates, without
 * FMA, on every path and level; so results do not depend on the structure, the packets or the
 * threads. Box distances are formed by the same operations in the same order: rounding is monotone,
 * hence a box is never computed to be farther than a point in it, and pruning needs no slack. */
#ifndef RK_NEIGHBORS_H
#define RK_NEIGHBORS_H
#include "rk_dispatch.h"

/* Balanced k-d tree over n points in d dimensions with 2^depth leaves; leaf l holds the positions
 * [n l / 2^depth, n (l+1) / 2^depth). Node 0 is the root, the children of i are 2i+1 and 2i+2. */
typedef struct {
    ptrdiff_t n, d, depth;
    const double *points;  /* (n, d) in leaf order */
    const double *index;   /* (n) original indices, as doubles: they travel in the same lanes */
    const double *boxes;   /* (2^(depth+1) - 1, 2, d): lower and upper corners */
    const double *lowest;  /* (2^(depth+1) - 1) lowest original index below the node */
    const double *split;   /* (2^depth - 1, 2): coordinate and value that part the children */
} rk_tree;

/* Cells of a plane with about even occupancy: no descent, no boxes. Cell (ix, iy) holds the
 * positions [start[ix ny + iy], start[ix ny + iy + 1)). */
typedef struct {
    ptrdiff_t nx, ny;
    double x0, y0, sx, sy;     /* ix = floor((x - x0) sx), clamped to 0..nx-1 */
    const ptrdiff_t *start;    /* (nx ny + 1) */
    const double *points;      /* (n, 2) in cell order */
    const double *index;       /* (n) */
    /* (nx + 1): least x of all points in cells >= ix (inf at nx), largest in cells < ix (-inf at
     * 0); bounds by the points, so that rounding in the cell numbers has no effect */
    const double *above_x, *below_x;
    const double *above_y, *below_y; /* (ny + 1) */
} rk_cell_grid;

/* Points for the exhaustive search: rows, and the same points centred, scaled and rounded to single
 * precision in tiles (ceil(n/16), d, 16), padded with infinities. */
typedef struct {
    ptrdiff_t n, d;
    const double *points;
    const float *tiles;
    const double *center;  /* (d) */
    double scale;          /* a power of two */
    double radius;         /* at least every |scale (x - center)| */
} rk_flat;

typedef struct {
    /* order (n) permutes 0..n-1 into leaf order; boxes, lowest, split as in rk_tree; work: 2 n doubles. */
    void (*build)(const double *X, ptrdiff_t n, ptrdiff_t d, ptrdiff_t depth, ptrdiff_t *order,
                  double *boxes, double *lowest, double *split, double *work);
    /* leaf[i] = leaf that query i falls into. */
    void (*assign)(const rk_tree *tree, const double *Q, ptrdiff_t m, ptrdiff_t *leaf);
    /* order (m) sorts the queries by leaf, stable; start: workspace of n_leaves + 1. */
    void (*sort)(const ptrdiff_t *leaf, ptrdiff_t m, ptrdiff_t n_leaves, ptrdiff_t *start,
                 ptrdiff_t *order);
    void (*cells)(const rk_cell_grid *grid, const double *Q, ptrdiff_t m, ptrdiff_t *cell);
    /* Neighbours of the queries Q[order[0..m)], by the grid where it is not NULL; rows of distance
     * and index are those of Q. work: rk_tree_workspace doubles. */
    void (*tree)(const rk_tree *tree, const rk_cell_grid *grid, const double *Q,
                 const ptrdiff_t *order, ptrdiff_t m, ptrdiff_t k, double *work,
                 double *distance, ptrdiff_t *index);
    void (*tiles)(const double *X, ptrdiff_t n, ptrdiff_t d, const double *center, double scale,
                  float *tiles);
    /* Neighbours of the m rows Q. work: rk_flat_workspace doubles. */
    void (*flat)(const rk_flat *flat, const double *Q, ptrdiff_t m, ptrdiff_t k, double *work,
                 double *distance, ptrdiff_t *index);
    /* Enters the points X[chosen[0..count)], X (n, d), into the lists of the m rows Q: k squared distances each, in
     * ascending order, and the numbers of their points. A list that is not full ends with infinity and PTRDIFF_MAX.
     * work: rk_among_workspace doubles. */
    void (*among)(const double *X, ptrdiff_t d, const ptrdiff_t *chosen, ptrdiff_t count, const double *Q, ptrdiff_t m,
                  ptrdiff_t k, double *work, double *distance2, ptrdiff_t *index);
    ptrdiff_t (*tree_workspace)(ptrdiff_t d, ptrdiff_t depth, ptrdiff_t k);
    ptrdiff_t (*flat_workspace)(ptrdiff_t d, ptrdiff_t m, ptrdiff_t k);
    ptrdiff_t (*among_workspace)(ptrdiff_t d);
} rk_neighbors_table;
RK_TABLES(neighbors)

#endif
