#include "rk_neighbors.h"
#include "rk_simd.h"
#include <stdlib.h>

#define W RK_WIDTH /* one query a lane */

RK_INLINE rk_mask before(rk_vec d, rk_vec i, rk_vec e, rk_vec j)
{
    return v_less(d, e) | (v_equal(d, e) & v_less(i, j));
}

/* -- Collecting many neighbours -------------------------------------------------------------------
 * Up to LISTED neighbours are kept as a sorted list; more go to a buffer of twice the size, which
 * is cut back to the k best when it is full. */
#define LISTED 32
#define CAPACITY(k) (2 * (k) + 16)

typedef struct {
    double d, i;
} pair;

RK_INLINE int pair_before(pair a, pair b) { return a.d < b.d || (a.d == b.d && a.i < b.i); }

static int compare_pairs(const void *a, const void *b)
{
    const pair x = *(const pair *) a, y = *(const pair *) b;
    return pair_before(y, x) - pair_before(x, y);
}

/* Moves the k lowest of n pairs (all different) to the front, the k-th among them last. */
static void select_pairs(pair *a, ptrdiff_t n, ptrdiff_t k)
{
    ptrdiff_t low = 0, high = n - 1, want = k - 1;
    while (low < high) {
        ptrdiff_t middle = low + (high - low) / 2;
        pair x = a[low], y = a[middle], z = a[high];
        pair pivot = pair_before(x, y) ? (pair_before(y, z) ? y : pair_before(x, z) ? z : x)
                                       : (pair_before(x, z) ? x : pair_before(y, z) ? z : y);
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (pair_before(a[i], pivot)) i++;
            while (pair_before(pivot, a[j])) j--;
            if (i <= j) {
                pair t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        if (want <= j)
            high = j;
        else if (want >= i)
            low = i;
        else
            break;
    }
}

/* Adds a pair to a buffer, full or not; returns the pair that the next one must precede. */
static pair collect(pair *buffer, ptrdiff_t *count, ptrdiff_t k, pair worst, double d, double i)
{
    pair x = {d, i};
    if (!pair_before(x, worst))
        return worst;
    buffer[(*count)++] = x;
    if (*count == CAPACITY(k)) {
        select_pairs(buffer, *count, k);
        *count = k;
        worst = buffer[k - 1];
    }
    return worst;
}

static void finish(pair *buffer, ptrdiff_t count, ptrdiff_t k, double *distance2, ptrdiff_t *index)
{
    RK_ASSERT(count >= k);
    if (count > k)
        select_pairs(buffer, count, k);
    if (k > LISTED)
        qsort(buffer, (size_t) k, sizeof *buffer, compare_pairs);
    for (ptrdiff_t j = 0; j < k; j++) {
        distance2[j] = buffer[j].d;
        index[j] = (ptrdiff_t) buffer[j].i;
    }
}

/* -- The tree -------------------------------------------------------------------------------------
 * `MAX_LEAF` bounds what the wrapper's choice of depth leaves in a leaf. */
#define MAX_LEAF 16
#define MAX_DEPTH 32 /* 2^32 leaves of 8 points: more than a memory holds */

/* floor(n leaf / 2^depth), in two parts so that no product overflows */
RK_INLINE ptrdiff_t leaf_begin(ptrdiff_t n, ptrdiff_t leaf, ptrdiff_t depth)
{
    const uint64_t whole = (uint64_t) n >> depth, rest = (uint64_t) n - (whole << depth);
    return (ptrdiff_t) (whole * (uint64_t) leaf + (rest * (uint64_t) leaf >> depth));
}

static void build_node(const double *X, ptrdiff_t n, ptrdiff_t d, ptrdiff_t depth, ptrdiff_t *order,
                       double *boxes, double *lowest, double *split, pair *pairs, ptrdiff_t node,
                       ptrdiff_t level, ptrdiff_t place)
{
    ptrdiff_t begin = leaf_begin(n, place << (depth - level), depth);
    ptrdiff_t end = leaf_begin(n, (place + 1) << (depth - level), depth);
    double *lo = boxes + node * 2 * d, *hi = lo + d;
    ptrdiff_t first = order[begin];
    RK_ASSERT(end > begin);
    memcpy(lo, X + first * d, (size_t) d * sizeof *lo);
    memcpy(hi, lo, (size_t) d * sizeof *lo);
    for (ptrdiff_t p = begin + 1; p < end; p++) {
        const double *x = X + order[p] * d;
        first = order[p] < first ? order[p] : first;
        for (ptrdiff_t j = 0; j < d; j++) {
            lo[j] = x[j] < lo[j] ? x[j] : lo[j];
            hi[j] = x[j] > hi[j] ? x[j] : hi[j];
        }
    }
    lowest[node] = (double) first;
    if (level == depth)
        return;
    ptrdiff_t wide = 0;
    for (ptrdiff_t j = 1; j < d; j++)
        if (hi[j] - lo[j] > hi[wide] - lo[wide])
            wide = j;
    ptrdiff_t middle = leaf_begin(n, (2 * place + 1) << (depth - level - 1), depth);
    for (ptrdiff_t p = begin; p < end; p++)
        pairs[p - begin] = (pair) {X[order[p] * d + wide], (double) order[p]};
    select_pairs(pairs, end - begin, middle - begin + 1); /* by index among duplicates, which would unbalance it */
    for (ptrdiff_t p = begin; p < end; p++)
        order[p] = (ptrdiff_t) pairs[p - begin].i;
    split[2 * node] = (double) wide;
    split[2 * node + 1] = X[order[middle] * d + wide];
    build_node(X, n, d, depth, order, boxes, lowest, split, pairs, 2 * node + 1, level + 1, 2 * place);
    build_node(X, n, d, depth, order, boxes, lowest, split, pairs, 2 * node + 2, level + 1, 2 * place + 1);
}

static void build(const double *X, ptrdiff_t n, ptrdiff_t d, ptrdiff_t depth, ptrdiff_t *order,
                  double *boxes, double *lowest, double *split, double *work)
{
    RK_ASSERT(depth <= MAX_DEPTH);
    for (ptrdiff_t i = 0; i < n; i++)
        order[i] = i;
    build_node(X, n, d, depth, order, boxes, lowest, split, (pair *) work, 0, 0, 0);
}

static void assign(const rk_tree *tree, const double *Q, ptrdiff_t m, ptrdiff_t *leaf)
{
    const double *split = tree->split;
    ptrdiff_t d = tree->d, inner = ((ptrdiff_t) 1 << tree->depth) - 1;
    for (ptrdiff_t i = 0; i < m; i++) {
        ptrdiff_t node = 0;
        while (node < inner)
            node = 2 * node + 1 + (Q[i * d + (ptrdiff_t) split[2 * node]] >= split[2 * node + 1]);
        leaf[i] = node - inner;
    }
}

/* Counting sort, stable. start: workspace of n_leaves + 1. */
static void sort(const ptrdiff_t *leaf, ptrdiff_t m, ptrdiff_t n_leaves, ptrdiff_t *start,
                 ptrdiff_t *order)
{
    memset(start, 0, (size_t) (n_leaves + 1) * sizeof *start);
    for (ptrdiff_t i = 0; i < m; i++)
        start[leaf[i] + 1]++;
    for (ptrdiff_t l = 1; l < n_leaves; l++)
        start[l] += start[l - 1];
    for (ptrdiff_t i = 0; i < m; i++)
        order[start[leaf[i]]++] = i;
}

/* Squared distances of the queries q[0..d) in lanes from n points. */
RK_INLINE void leaf_distances(const rk_vec *q, const double *x, ptrdiff_t n, ptrdiff_t d, rk_vec *out)
{
    for (ptrdiff_t p = 0; p < n; p++, x += d) {
        rk_vec t = q[0] - x[0], sum = t * t;
        for (ptrdiff_t j = 1; j < d; j++) {
            t = q[j] - x[j];
            sum += t * t;
        }
        out[p] = sum;
    }
}

RK_INLINE rk_vec box_distance(const rk_vec *q, const double *lo, ptrdiff_t d)
{
    rk_vec sum = {0};
    const double *hi = lo + d;
    for (ptrdiff_t j = 0; j < d; j++) {
        rk_vec t = v_max(v_max(lo[j] - q[j], q[j] - hi[j]), (rk_vec) {0});
        sum += t * t;
    }
    return sum;
}

/* Sorted lists of K pairs a lane: each new pair is compared with all of them at once and they move
 * up without a branch. Comparing indices as well doubles the work and matters only among equal
 * distances, so the search goes without (`insert`) and says in which lanes the order or the choice
 * may depend on them: a distance turned away or pushed out that equals the last one kept, or two
 * equal ones in the list at the end (`tree_query` looks). Those packets are searched again by
 * `insert_exact`. */
RK_INLINE rk_mask insert(rk_vec *bd, rk_vec *bi, const rk_vec *dist, const double *index, ptrdiff_t n,
                         const int K)
{
    rk_mask tie = {0};
    for (ptrdiff_t p = 0; p < n; p++) {
        rk_vec d = dist[p], last = bd[K - 1];
        if (!v_bits(v_less_equal(d, last)))
            continue;
        rk_vec i = v_all(index[p]);
        rk_mask here = v_less(d, last);
        tie |= v_equal(d, last);
        RK_UNROLL(16)
        for (int j = K - 1; j > 0; j--) {
            rk_mask above = v_less(d, bd[j - 1]);
            bi[j] = v_select(above, bi[j - 1], v_select(here, i, bi[j]));
            bd[j] = v_min(v_max(d, bd[j - 1]), bd[j]);
            here = above;
        }
        bi[0] = v_select(here, i, bi[0]);
        bd[0] = v_min(d, bd[0]);
        if (K > 1)
            tie |= v_less(d, last) & v_equal(last, bd[K - 1]) & v_less(last, v_all(INFINITY));
    }
    return tie;
}

/* A leaf's points inserted while the lists are in registers. */
#define INSERT_FIXED(K)                                                                            \
    static rk_mask insert_##K(rk_vec *bd, rk_vec *bi, const rk_vec *dist, const double *index,     \
                              ptrdiff_t n)                                                         \
    {                                                                                              \
        rk_vec d[K], i[K];                                                                         \
        for (int j = 0; j < K; j++) d[j] = bd[j], i[j] = bi[j];                                    \
        rk_mask tie = insert(d, i, dist, index, n, K);                                             \
        for (int j = 0; j < K; j++) bd[j] = d[j], bi[j] = i[j];                                    \
        return tie;                                                                                \
    }
INSERT_FIXED(1) INSERT_FIXED(2) INSERT_FIXED(3) INSERT_FIXED(4) INSERT_FIXED(5) INSERT_FIXED(6)
INSERT_FIXED(7) INSERT_FIXED(8) INSERT_FIXED(9) INSERT_FIXED(10) INSERT_FIXED(11) INSERT_FIXED(12)
#define FIXED 12

static void insert_exact(rk_vec *bd, rk_vec *bi, const rk_vec *dist, const double *index,
                         ptrdiff_t n, ptrdiff_t k)
{
    for (ptrdiff_t p = 0; p < n; p++) {
        rk_vec d = dist[p];
        if (!v_bits(v_less_equal(d, bd[k - 1])))
            continue;
        rk_vec i = v_all(index[p]);
        rk_mask here = before(d, i, bd[k - 1], bi[k - 1]);
        for (ptrdiff_t j = k - 1; j > 0; j--) {
            if (!v_bits(here))
                break;
            rk_mask above = before(d, i, bd[j - 1], bi[j - 1]);
            bd[j] = v_select(above, bd[j - 1], v_select(here, d, bd[j]));
            bi[j] = v_select(above, bi[j - 1], v_select(here, i, bi[j]));
            here = above;
        }
        bd[0] = v_select(here, d, bd[0]);
        bi[0] = v_select(here, i, bi[0]);
    }
}

typedef struct {
    ptrdiff_t k;
    int exact;            /* compare indices: k > FIXED, or the search without found ties */
    rk_mask tie;
    rk_vec *bd, *bi;      /* k <= LISTED: sorted lists */
    pair *buffer;         /* else one buffer a lane */
    ptrdiff_t count[W];
    rk_vec worst, worst_index;
} packet;

static void scan(packet *best, const rk_vec *dist, const double *index, ptrdiff_t n)
{
    ptrdiff_t k = best->k;
    rk_vec *bd = best->bd, *bi = best->bi;
    if (k <= LISTED) {
        switch (best->exact ? 0 : k) {
#define CASE(K) case K: best->tie |= insert_##K(bd, bi, dist, index, n); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11)
        CASE(12)
        default: insert_exact(bd, bi, dist, index, n, k);
        }
        best->worst = bd[k - 1];
        best->worst_index = bi[k - 1];
        return;
    }
    for (ptrdiff_t p = 0; p < n; p++) {
        unsigned lanes = v_bits(v_less_equal(dist[p], best->worst));
        for (; lanes; lanes &= lanes - 1) {
            int l = __builtin_ctz(lanes);
            pair worst = {best->worst[l], best->worst_index[l]};
            worst = collect(best->buffer + l * CAPACITY(k), &best->count[l], k, worst, dist[p][l],
                            index[p]);
            best->worst[l] = worst.d;
            best->worst_index[l] = worst.i;
        }
    }
}

typedef struct {
    rk_vec distance;
    ptrdiff_t node, place;
} pending;

RK_INLINE int may_improve(const packet *best, rk_vec distance, double lowest)
{
    return v_bits(v_less_equal(distance, best->worst)) != 0
           && (!best->exact
               || v_bits(before(distance, v_all(lowest), best->worst, best->worst_index)) != 0);
}

/* Depth first, the nearer child first. d is a constant where it is 1, 2 or 3. */
RK_INLINE void search(const rk_tree *tree, const rk_vec *q, packet *best, pending *stack,
                      ptrdiff_t d)
{
    ptrdiff_t inner = ((ptrdiff_t) 1 << tree->depth) - 1, top = 0;
    rk_vec dist[MAX_LEAF];
    stack[top++] = (pending) {.distance = {0}, .node = 0};
    while (top) {
        pending now = stack[--top];
        if (!may_improve(best, now.distance, tree->lowest[now.node]))
            continue;
        ptrdiff_t node = now.node;
        int reached = 1;
        while (node < inner) {
            ptrdiff_t near = 2 * node + 1, far = near + 1;
            rk_vec a = box_distance(q, tree->boxes + near * 2 * d, d);
            rk_vec b = box_distance(q, tree->boxes + far * 2 * d, d);
            if (__builtin_popcount(v_bits(v_less(b, a)))
                > __builtin_popcount(v_bits(v_less(a, b)))) {
                ptrdiff_t t = near;
                near = far, far = t;
                rk_vec s = a;
                a = b, b = s;
            }
            if (may_improve(best, b, tree->lowest[far]))
                stack[top++] = (pending) {.distance = b, .node = far};
            if (!may_improve(best, a, tree->lowest[near])) {
                reached = 0;
                break;
            }
            node = near;
        }
        if (!reached)
            continue;
        ptrdiff_t begin = leaf_begin(tree->n, node - inner, tree->depth);
        ptrdiff_t count = leaf_begin(tree->n, node - inner + 1, tree->depth) - begin;
        RK_ASSERT(count <= MAX_LEAF);
        leaf_distances(q, tree->points + begin * d, count, d, dist);
        scan(best, dist, tree->index + begin, count);
    }
}

#define DOUBLES(type, count) \
    ((ptrdiff_t) (((size_t) (count) * sizeof(type) + sizeof(double) - 1) / sizeof(double)))

static ptrdiff_t tree_workspace(ptrdiff_t d, ptrdiff_t depth, ptrdiff_t k)
{
    return 8 + DOUBLES(rk_vec, d) + DOUBLES(pending, depth + 2)
           + (k <= LISTED ? DOUBLES(rk_vec, 2 * k) : DOUBLES(pair, W * CAPACITY(k)));
}

static void *aligned(double *work)
{
    return (void *) (((uintptr_t) work + 63) & ~(uintptr_t) 63);
}

static void restart(packet *best, int exact)
{
    best->exact = exact;
    best->tie = (rk_mask){0};
    best->worst = best->worst_index = v_all(INFINITY);
    if (best->k <= LISTED)
        for (ptrdiff_t j = 0; j < best->k; j++)
            best->bd[j] = best->bi[j] = v_all(INFINITY);
    memset(best->count, 0, sizeof best->count);
}

static void search_tree(const rk_tree *tree, const rk_vec *q, packet *best, pending *stack)
{
    switch (tree->d) {
    case 1: search(tree, q, best, stack, 1); break;
    case 2: search(tree, q, best, stack, 2); break;
    case 3: search(tree, q, best, stack, 3); break;
    default: search(tree, q, best, stack, tree->d);
    }
}

/* -- The grid -------------------------------------------------------------------------------------
 * A packet scans the cells around its own, ring by ring, until no point outside can matter. */
#define RINGS 3     /* beyond, the tree is used */
#define SPREAD 4    /* cells between the queries of a packet, above which the tree is better */
#define GRID_K 8    /* neighbours that the nearest cells can hold */

RK_INLINE ptrdiff_t cell_of(double x, double x0, double s, ptrdiff_t n)
{
    double c = (x - x0) * s;
    return c >= (double) (n - 1) ? n - 1 : c > 0 ? (ptrdiff_t) c : 0;
}

static void cells(const rk_cell_grid *grid, const double *Q, ptrdiff_t m, ptrdiff_t *cell)
{
    for (ptrdiff_t i = 0; i < m; i++)
        cell[i] = cell_of(Q[2 * i], grid->x0, grid->sx, grid->nx) * grid->ny
                  + cell_of(Q[2 * i + 1], grid->y0, grid->sy, grid->ny);
}

RK_INLINE void scan_cells(const rk_cell_grid *g, const rk_vec *q, packet *best, ptrdiff_t ix, ptrdiff_t iy0,
                       ptrdiff_t iy1)
{
    rk_vec dist[MAX_LEAF];
    rk_vec t = v_max(v_max(g->above_x[ix] - q[0], q[0] - g->below_x[ix + 1]), (rk_vec) {0});
    if (!v_bits(v_less_equal(t * t, best->worst)))
        return;
    ptrdiff_t p = g->start[ix * g->ny + iy0], end = g->start[ix * g->ny + iy1 + 1];
    while (p < end) {
        ptrdiff_t n = end - p < MAX_LEAF ? end - p : MAX_LEAF;
        leaf_distances(q, g->points + 2 * p, n, 2, dist);
        scan(best, dist, g->index + p, n);
        p += n;
    }
}

/* 0 if the search has to be done by the tree. */
static int search_grid(const rk_cell_grid *g, const rk_vec *q, packet *best)
{
    ptrdiff_t x0 = g->nx, x1 = 0, y0 = g->ny, y1 = 0;
    for (int l = 0; l < W; l++) {
        ptrdiff_t ix = cell_of(((const double *) q)[l], g->x0, g->sx, g->nx);
        ptrdiff_t iy = cell_of(((const double *) (q + 1))[l], g->y0, g->sy, g->ny);
        x0 = ix < x0 ? ix : x0, x1 = ix > x1 ? ix : x1;
        y0 = iy < y0 ? iy : y0, y1 = iy > y1 ? iy : y1;
    }
    if (x1 - x0 > 1 || y1 - y0 > SPREAD)
        return 0;
    ptrdiff_t cy0 = y0 > 0 ? y0 - 1 : 0, cy1 = y1 + 1 < g->ny ? y1 + 1 : y1;
    for (ptrdiff_t ix = x0; ix <= x1; ix++)
        scan_cells(g, q, best, ix, cy0, cy1);
    if (x0 > 0)
        scan_cells(g, q, best, --x0, cy0, cy1);
    if (x1 + 1 < g->nx)
        scan_cells(g, q, best, ++x1, cy0, cy1);
    for (int ring = 1;; ring++) {
        y0 = cy0, y1 = cy1;
        rk_vec t = v_min(v_min(q[0] - g->below_x[x0], g->above_x[x1 + 1] - q[0]),
                       v_min(q[1] - g->below_y[y0], g->above_y[y1 + 1] - q[1]));
        t = v_max(t, (rk_vec) {0});
        if (!v_bits(v_less_equal(t * t, best->worst)))
            return 1;
        if (ring == RINGS)
            return 0;
        cy0 = y0 > 0 ? y0 - 1 : 0, cy1 = y1 + 1 < g->ny ? y1 + 1 : y1;
        for (ptrdiff_t ix = x0; ix <= x1; ix++) {
            if (cy0 < y0)
                scan_cells(g, q, best, ix, cy0, cy0);
            if (cy1 > y1)
                scan_cells(g, q, best, ix, cy1, cy1);
        }
        if (x0 > 0)
            scan_cells(g, q, best, --x0, cy0, cy1);
        if (x1 + 1 < g->nx)
            scan_cells(g, q, best, ++x1, cy0, cy1);
    }
}

static int tied(const packet *best)
{
    rk_mask tie = best->tie;
    for (ptrdiff_t j = 1; j < best->k; j++)
        tie |= v_equal(best->bd[j - 1], best->bd[j]);
    return v_bits(tie) != 0;
}

static void tree_query(const rk_tree *tree, const rk_cell_grid *grid, const double *Q,
                       const ptrdiff_t *order, ptrdiff_t m, ptrdiff_t k, double *work,
                       double *distance, ptrdiff_t *index)
{
    ptrdiff_t d = tree->d;
    rk_vec *q = aligned(work);
    pending *stack = (pending *) (q + d);
    packet best = {.k = k};
    void *rest = stack + tree->depth + 2;
    best.bd = rest, best.bi = best.bd + k, best.buffer = rest;
    ptrdiff_t n_tied = 0;
    for (ptrdiff_t i = 0; i < m; i += W) {
        ptrdiff_t lanes = m - i < W ? m - i : W;
        for (ptrdiff_t l = 0; l < W; l++) {
            const double *row = Q + order[i + (l < lanes ? l : 0)] * d;
            for (ptrdiff_t j = 0; j < d; j++)
                ((double *) (q + j))[l] = row[j];
        }
        /* many ties: do not search twice */
        restart(&best, k > FIXED || 4 * n_tied > i / W + 4);
        if (!grid || k > GRID_K || !search_grid(grid, q, &best)) {
            if (grid)
                restart(&best, best.exact);
            search_tree(tree, q, &best, stack);
        }
        if (k <= FIXED && tied(&best)) {
            n_tied++;
            if (!best.exact) {
                restart(&best, 1);
                search_tree(tree, q, &best, stack);
            }
        }
        if (k <= LISTED)
            for (ptrdiff_t j = 0; j < k; j++) {
                best.bd[j] = v_sqrt(best.bd[j]);
                best.bi[j] += 0x1p52; /* the index stands in the low bits */
            }
        for (ptrdiff_t l = 0; l < lanes; l++) {
            double *od = distance + order[i + l] * k;
            ptrdiff_t *oi = index + order[i + l] * k;
            if (k <= LISTED)
                for (ptrdiff_t j = 0; j < k; j++) {
                    int64_t number;
                    memcpy(&number, (double *) (best.bi + j) + l, sizeof number);
                    od[j] = ((double *) (best.bd + j))[l];
                    oi[j] = (ptrdiff_t) (number & (((int64_t) 1 << 52) - 1));
                }
            else {
                finish(best.buffer + l * CAPACITY(k), best.count[l], k, od, oi);
                for (ptrdiff_t j = 0; j < k; j++)
                    od[j] = sqrt(od[j]);
            }
        }
    }
}

/* -- Exhaustive search ----------------------------------------------------------------------------
 * A filter in single precision decides which pairs need their exact distance. With u = 2^-24, the
 * rounded, scaled coordinates are off by u |q| and u |x|, so their differences by at most
 * u (|q| + |x| + |q-x|) in norm, and the sum of squares by (d + 1) u relative. A pair whose exact
 * squared distance is at most T therefore passes D32 <= (sqrt T + 4u(|q| + |x|))^2 (1 + 2(d + 4)u),
 * with room for the double rounding and for underflow. Points are visited in the order of their
 * indices, which settles ties. */
#define TILE 16
/* Tiles whose points and distances stay in the second-level cache while the queries pass. Long
 * chunks pay: the first bound, taken over a whole chunk, spares nearly all exact distances of
 * non-neighbours. */
RK_INLINE ptrdiff_t chunk_of(ptrdiff_t d)
{
    return d <= 16 ? 256 : d <= 128 ? 4096 / d : 32;
}
/* Queries that share the loads of a tile: as many as there are registers for their sums. */
#if RK_WIDTH == 2
#define GROUP 4
#else
#define GROUP 8
#endif
/* Scaled coordinates beyond this would overflow; such a query is compared exactly throughout. */
#define FAR 1e15

static void tiles(const double *X, ptrdiff_t n, ptrdiff_t d, const double *center, double scale,
                  float *out)
{
    for (ptrdiff_t t = 0; t * TILE < n; t++)
        for (ptrdiff_t j = 0; j < d; j++)
            for (ptrdiff_t l = 0; l < TILE; l++) {
                ptrdiff_t i = t * TILE + l;
                out[(t * d + j) * TILE + l] =
                    i < n ? (float) ((X[i * d + j] - center[j]) * scale) : INFINITY;
            }
}

RK_INLINE double exact(const double *q, const double *x, ptrdiff_t d)
{
    double sum = 0;
    for (ptrdiff_t j = 0; j < d; j++) {
        double t = q[j] - x[j];
        sum += t * t;
    }
    return sum;
}

typedef struct {
    const double *q;
    pair *best;          /* k <= LISTED: sorted list of k, else buffer */
    ptrdiff_t count;
    pair worst;
    double slack;        /* 4u(|q| + |x|) in scaled units; infinite: no filter */
} candidates;

/* Largest filtered distance of a point at the exact, scaled distance r. */
static float limit_of(const candidates *s, const rk_flat *flat, double r)
{
    r += s->slack;
    double t = r * r * (1 + 2 * (double) (flat->d + 4) * 0x1p-24) + 0x1p-100;
    return t < 1e38 ? (float) (t * (1 + 0x1p-22)) : INFINITY;
}

static float threshold(const candidates *s, const rk_flat *flat)
{
    if (!(s->worst.d < INFINITY) || !(s->slack < INFINITY))
        return INFINITY;
    return limit_of(s, flat, sqrt(s->worst.d) * flat->scale);
}

/* True if the list changed. */
static int consider(candidates *s, const rk_flat *flat, ptrdiff_t k, ptrdiff_t i)
{
    double d = exact(s->q, flat->points + i * flat->d, flat->d);
    if (k > LISTED) {
        s->worst = collect(s->best, &s->count, k, s->worst, d, (double) i);
        return s->count == k;
    }
    if (!(d < s->worst.d) && s->count == k)
        return 0;
    ptrdiff_t j = s->count < k ? s->count++ : k - 1;
    for (; j > 0 && d < s->best[j - 1].d; j--)
        s->best[j] = s->best[j - 1];
    s->best[j] = (pair) {d, (double) i};
    if (s->count == k)
        s->worst = s->best[k - 1];
    return 1;
}

/* Single precision squared distances of a group of queries from the tiles first..last. */
RK_INLINE void filter(const rk_flat *flat, const float *q, ptrdiff_t first, ptrdiff_t last, float *out)
{
    ptrdiff_t d = flat->d, chunk = chunk_of(d);
    for (ptrdiff_t t = first; t < last; t++)
        for (ptrdiff_t part = 0; part < TILE; part += RK_FLOAT_WIDTH) {
            const float *x = flat->tiles + t * d * TILE + part;
            rk_vecf sum[GROUP];
            for (int g = 0; g < GROUP; g++)
                sum[g] = (rk_vecf) {0};
            for (ptrdiff_t j = 0; j < d; j++) {
                rk_vecf xj;
                memcpy(&xj, x + j * TILE, sizeof xj);
                RK_UNROLL(8)
                for (int g = 0; g < GROUP; g++) {
                    rk_vecf e = xj - q[j * GROUP + g];
                    sum[g] = vf_add_square(sum[g], e);
                }
            }
            RK_UNROLL(8)
            for (int g = 0; g < GROUP; g++)
                memcpy(out + (g * chunk + t - first) * TILE + part, &sum[g], sizeof sum[g]);
        }
}

/* Before anything is known of a query: the least of each of 64 lanes (16 in each fourth tile) are
 * distances of different points, so the k-th of them bounds the k-th neighbour's. */
static float first_limit(const candidates *s, const rk_flat *flat, ptrdiff_t k, const float *sums,
                         ptrdiff_t n_tiles)
{
    enum { LANES = 4 * TILE };
    float least[LANES], lowest[LANES];
    if (k > LANES || !(s->slack < INFINITY))
        return INFINITY;
    for (int l = 0; l < LANES; l++)
        least[l] = INFINITY;
    ptrdiff_t t = 0;
    for (; t + 4 <= n_tiles; t += 4)
        for (int l = 0; l < LANES; l++) {
            float x = sums[t * TILE + l];
            least[l] = x < least[l] ? x : least[l];
        }
    for (ptrdiff_t l = 0; l < (n_tiles - t) * TILE; l++) {
        float x = sums[t * TILE + l];
        least[l] = x < least[l] ? x : least[l];
    }
    ptrdiff_t count = 0;
    for (int i = 0; i < LANES; i++) {
        float x = least[i];
        if (count == k && !(x < lowest[k - 1]))
            continue;
        ptrdiff_t j = count < k ? count++ : k - 1;
        for (; j > 0 && x < lowest[j - 1]; j--)
            lowest[j] = lowest[j - 1];
        lowest[j] = x;
    }
    /* the bound turned round: |q-x| <= sqrt(D32) (1 + 2(d + 4)u) + slack */
    double r = sqrt((double) lowest[k - 1] + 0x1p-100) * (1 + 2 * (double) (flat->d + 4) * 0x1p-24);
    return limit_of(s, flat, r + s->slack);
}

/* Considers the points whose single precision distance does not rule them out. */
static void examine(candidates *s, const rk_flat *flat, ptrdiff_t k, const float *sums, ptrdiff_t first,
                 ptrdiff_t last)
{
    float limit = first ? threshold(s, flat) : first_limit(s, flat, k, sums, last);
    for (ptrdiff_t t = first; t < last; t++)
        for (ptrdiff_t part = 0; part < TILE; part += RK_FLOAT_WIDTH) {
            rk_vecf sum;
            memcpy(&sum, sums + (t - first) * TILE + part, sizeof sum);
            unsigned hits = vf_not_above(sum, limit);
            for (; hits; hits &= hits - 1) {
                ptrdiff_t i = t * TILE + part + __builtin_ctz(hits);
                if (i >= flat->n)
                    break;
                if (consider(s, flat, k, i)) {
                    float now = threshold(s, flat);
                    limit = now < limit ? now : limit;
                }
            }
        }
}

static ptrdiff_t padded(ptrdiff_t m) { return (m + GROUP - 1) / GROUP * GROUP; }

static ptrdiff_t flat_workspace(ptrdiff_t d, ptrdiff_t m, ptrdiff_t k)
{
    ptrdiff_t p = padded(m);
    return 8 + DOUBLES(candidates, p) + DOUBLES(pair, p * (k <= LISTED ? k : CAPACITY(k)))
           + DOUBLES(float, p * d + GROUP * chunk_of(d) * TILE);
}

static void flat_query(const rk_flat *flat, const double *Q, ptrdiff_t m, ptrdiff_t k, double *work,
                       double *distance, ptrdiff_t *index)
{
    ptrdiff_t d = flat->d, p = padded(m), size = k <= LISTED ? k : CAPACITY(k);
    ptrdiff_t n_tiles = (flat->n + TILE - 1) / TILE, chunk = chunk_of(d);
    candidates *s = aligned(work);
    pair *pairs = (pair *) (s + p);
    float *q = (float *) (pairs + p * size), *sums = q + p * d;
    for (ptrdiff_t i = 0; i < p; i++) {
        const double *row = Q + (i < m ? i : m - 1) * d;
        double square = 0, largest = 0;
        for (ptrdiff_t j = 0; j < d; j++) {
            double x = (row[j] - flat->center[j]) * flat->scale;
            square += x * x;
            largest = fabs(x) > largest ? fabs(x) : largest;
            q[(i / GROUP * d + j) * GROUP + i % GROUP] = fabs(x) < FAR ? (float) x : 0;
        }
        s[i] = (candidates) {.q = row, .best = pairs + i * size, .worst = {INFINITY, INFINITY}};
        s[i].slack = largest < FAR ? 0x1p-22 * (sqrt(square) + flat->radius) + 0x1p-60 : INFINITY;
    }
    /* a chunk of points serves all queries of the call while it is in cache */
    for (ptrdiff_t t = 0; t < n_tiles; t += chunk) {
        ptrdiff_t last = t + chunk < n_tiles ? t + chunk : n_tiles;
        for (ptrdiff_t i = 0; i < m; i += GROUP) {
            filter(flat, q + i * d, t, last, sums);
            for (ptrdiff_t g = 0; g < GROUP && i + g < m; g++)
                examine(s + i + g, flat, k, sums + g * chunk * TILE, t, last);
        }
    }
    for (ptrdiff_t i = 0; i < m; i++)
        finish(s[i].best, s[i].count, k, distance + i * k, index + i * k);
    for (ptrdiff_t i = 0; i < m * k; i++)
        distance[i] = sqrt(distance[i]);
}

/* -- Some pairs ----------------------------------------------------------------------------------
 * Exact distances with a query a lane; two vectors of them share the loads of a few points. */
#define SHARED 4  /* points per pass: enough sums to hide the latency of an addition */
#define STRETCH 64 /* columns per check for sums that are already too large */

static ptrdiff_t among_workspace(ptrdiff_t d) { return 8 + DOUBLES(rk_vec, 2 * d); }

/* Inserts (d, i) into a sorted list of k pairs; it precedes the last one. */
RK_INLINE void enter(double *distance2, ptrdiff_t *index, ptrdiff_t k, double d, ptrdiff_t i)
{
    ptrdiff_t j = k - 1;
    for (; j > 0 && (d < distance2[j - 1] || (d == distance2[j - 1] && i < index[j - 1])); j--) {
        distance2[j] = distance2[j - 1];
        index[j] = index[j - 1];
    }
    distance2[j] = d;
    index[j] = i;
}

static void among(const double *X, ptrdiff_t d, const ptrdiff_t *chosen, ptrdiff_t count,
                  const double *Q, ptrdiff_t m, ptrdiff_t k, double *work, double *distance2,
                  ptrdiff_t *index)
{
    rk_vec *q = aligned(work);
    for (ptrdiff_t i0 = 0; i0 < m; i0 += 2 * W) {
        ptrdiff_t lanes = m - i0 < 2 * W ? m - i0 : 2 * W;
        double worst[2 * W];
        for (ptrdiff_t l = 0; l < 2 * W; l++) {
            const double *row = Q + (i0 + (l < lanes ? l : 0)) * d;
            for (ptrdiff_t j = 0; j < d; j++)
                ((double *) q)[j * 2 * W + l] = row[j];
            worst[l] = l < lanes ? distance2[(i0 + l) * k + k - 1] : -1;
        }
        for (ptrdiff_t c = 0; c < count; c += SHARED) {
            ptrdiff_t n = count - c < SHARED ? count - c : SHARED;
            const double *x[SHARED];
            rk_vec sum[SHARED][2];
            for (int p = 0; p < SHARED; p++) {
                x[p] = X + chosen[c + (p < n ? p : 0)] * d;
                sum[p][0] = sum[p][1] = (rk_vec) {0};
            }
            int within = 1;
            for (ptrdiff_t start = 0; start < d && within; start += STRETCH) {
                ptrdiff_t stop = start + STRETCH < d ? start + STRETCH : d;
                for (ptrdiff_t j = start; j < stop; j++) {
                    rk_vec a = q[2 * j], b = q[2 * j + 1];
                    RK_UNROLL(4)
                    for (int p = 0; p < SHARED; p++) {
                        rk_vec y = v_all(x[p][j]), s = a - y, t = b - y;
                        sum[p][0] += s * s;
                        sum[p][1] += t * t;
                    }
                }
                within = 0;
                for (int p = 0; p < SHARED; p++)
                    within |= v_bits(v_less_equal(sum[p][0], v_load(worst)))
                              | v_bits(v_less_equal(sum[p][1], v_load(worst + W)));
            }
            for (ptrdiff_t p = 0; p < n; p++)
                for (int half = 0; half < 2; half++) {
                    unsigned hits = v_bits(v_less_equal(sum[p][half], v_load(worst + half * W)));
                    for (; hits; hits &= hits - 1) {
                        ptrdiff_t l = half * W + __builtin_ctz(hits), i = chosen[c + p];
                        double dist = v_lane(sum[p][half], l - half * W);
                        double *list = distance2 + (i0 + l) * k;
                        ptrdiff_t *numbers = index + (i0 + l) * k;
                        if (dist == list[k - 1] && i > numbers[k - 1])
                            continue;
                        enter(list, numbers, k, dist, i);
                        worst[l] = list[k - 1];
                    }
                }
        }
    }
}

const rk_neighbors_table RK_TABLE(neighbors) = {
    .build = build,
    .assign = assign,
    .sort = sort,
    .cells = cells,
    .tree = tree_query,
    .tiles = tiles,
    .flat = flat_query,
    .among = among,
    .tree_workspace = tree_workspace,
    .flat_workspace = flat_workspace,
    .among_workspace = among_workspace,
};
