/* The C kernels against plain C, without Python: for cross-compiled, emulated and sanitised builds (the
 * numbers themselves are tested by tests/test_*.py). Arrays are allocated to the exact length, so that
 * a sanitizer sees one element too many. */
#include "rk_bounds.h"
#include "rk_crowd.h"
#include "rk_decode.h"
#include "rk_distances.h"
#include "rk_features.h"
#include "rk_gradients.h"
#include "rk_images.h"
#include "rk_neighbors.h"
#include "rk_projection.h"
#include "rk_simplex.h"
#include "rk_sums.h"
#include "rk_traffic.h"
#include "rk_vecmath.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(condition) && failures++ < 20)                                                       \
            printf("line %d: %s\n", __LINE__, #condition);                                         \
    } while (0)
#define CLOSE(got, expected, tolerance)                                                            \
    do {                                                                                           \
        const double got_ = (got), expected_ = (expected), tolerance_ = (tolerance);               \
        checks++;                                                                                  \
        if (!(fabs(got_ - expected_) <= tolerance_) && failures++ < 20)                            \
            printf("line %d: %s is %.17g, expected %.17g within %.1e\n", __LINE__, #got, got_,      \
                   expected_, tolerance_);                                                         \
    } while (0)

static double uniform(double low, double high)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return low + (high - low) * (double)(state >> 11) * 0x1p-53;
}

static void *allocate(ptrdiff_t count, size_t size)
{
    void *memory = malloc((size_t)count * size + (count == 0));
    if (!memory)
        abort();
    return memory;
}

static double *zeros(ptrdiff_t n)
{
    double *x = allocate(n, sizeof *x);
    for (ptrdiff_t i = 0; i < n; i++)
        x[i] = 0;
    return x;
}

static double *uniforms(ptrdiff_t n, double low, double high)
{
    double *x = zeros(n);
    for (ptrdiff_t i = 0; i < n; i++)
        x[i] = uniform(low, high);
    return x;
}

static double dot(const double *x, const double *y, ptrdiff_t n)
{
    double s = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}

static double logistic(double t) { return 1 / (1 + exp(-t)); }

static void test_vecmath(void)
{
    const rk_vecmath_table *k = rk_vecmath_select();
    const ptrdiff_t n = 1003;
    double *x = uniforms(n, -800, 800), *y = zeros(n);
    k->cos(x, y, n);
    for (ptrdiff_t i = 0; i < n; i++)
        CLOSE(y[i], cos(x[i]), 4 * DBL_EPSILON * fabs(cos(x[i])));
    k->logistic(x, y, n);
    for (ptrdiff_t i = 0; i < n; i++)
        CLOSE(y[i], logistic(x[i]), 8 * DBL_EPSILON * logistic(x[i]) + 1e-306);
    k->exp(x, y, n);
    for (ptrdiff_t i = 0; i < n; i++)
        CHECK(exp(x[i]) == y[i] || fabs(y[i] - exp(x[i])) <= 4 * DBL_EPSILON * exp(x[i]) + 1e-323);
    for (ptrdiff_t i = 0; i < n; i++)
        x[i] = exp(0.8 * x[i]);
    k->log(x, y, n);
    for (ptrdiff_t i = 0; i < n; i++)
        CHECK(log(x[i]) == y[i] || fabs(y[i] - log(x[i])) <= 4 * DBL_EPSILON * fabs(log(x[i])));
    free(x), free(y);
}

static double minus_sine(double t) { return -sin(t); }
static double logistic_slope(double t) { return logistic(t) * logistic(-t); }

static const struct {
    int activation;
    double (*value)(double), (*slope)(double);
} references[] = {{RK_COSINE, cos, minus_sine}, {RK_LOGISTIC, logistic, logistic_slope}};

static void test_features_and_gradients(void)
{
    const rk_features_table *k = rk_features_select();
    const rk_gradients_table *g = rk_gradients_select();
    const ptrdiff_t n = 5, P = 1301;
    for (size_t r = 0; r < sizeof references / sizeof *references; r++)
        for (ptrdiff_t d = 1; d <= 33; d += d < 5 ? 1 : 4) {
            double *Y = uniforms(n * d, -2, 2), *W = uniforms(d * P, -3, 3), *b = uniforms(P, 0, 6);
            double *out = zeros(n * P), *S = zeros(n * P), *H = zeros(n * P);
            double *V = uniforms(n * d, -1, 1), *C = zeros(n * d);
            const int a = references[r].activation;
            if (d == 4)
                Y[0] = 1e9; /* beyond the reach of the fast cosine */
            k->fused(a, Y, n, d, W, b, P, 0.7, out, P);
            g->slopes(a, Y, n, d, W, b, P, 0.7, S);
            g->directional(S, NULL, W, V, n, d, P, H);
            g->contract(S, NULL, W, S, n, d, P, C);
            for (ptrdiff_t i = 0; i < n; i++)
                for (ptrdiff_t j = 0; j < P; j++) {
                    double t = b[j], size = fabs(b[j]) + 1, along = 0;
                    for (ptrdiff_t l = 0; l < d; l++) {
                        const double p = Y[i * d + l] * W[l * P + j];
                        t += p, size += fabs(p), along += V[i * d + l] * W[l * P + j];
                    }
                    const double tolerance = (double)(d + 4) * DBL_EPSILON * size;
                    CLOSE(out[i * P + j], 0.7 * references[r].value(t), tolerance);
                    CLOSE(S[i * P + j], 0.7 * references[r].slope(t), tolerance);
                    CLOSE(H[i * P + j], S[i * P + j] * along, 1e-13);
                }
            for (ptrdiff_t i = 0; i < n; i++)
                for (ptrdiff_t l = 0; l < d; l++) {
                    double sum = 0;
                    for (ptrdiff_t j = 0; j < P; j++)
                        sum += S[i * P + j] * S[i * P + j] * W[l * P + j];
                    CLOSE(C[i * d + l], sum, 1e-11);
                }
            free(Y), free(W), free(b), free(out), free(S), free(H), free(V), free(C);
        }
}

static double squared_distance(const double *x, const double *z, ptrdiff_t M)
{
    double s = 0;
    for (ptrdiff_t k = 0; k < M; k++)
        s += (x[k] - z[k]) * (x[k] - z[k]);
    return s;
}

static double gaussian(double t) { return exp(-t); }
static double gaussian_slope(double t) { return -2 * exp(-t); }
static double matern12(double t) { return exp(-sqrt(t)); }
static double matern12_slope(double t) { return -exp(-sqrt(t)) / sqrt(t); }
static double matern32(double t) { return (1 + sqrt(t)) * exp(-sqrt(t)); }
static double matern32_slope(double t) { return -exp(-sqrt(t)); }
static double matern52(double t) { return (1 + sqrt(t) + t / 3) * exp(-sqrt(t)); }
static double matern52_slope(double t) { return -(1 + sqrt(t)) * exp(-sqrt(t)) / 3; }
static double thin_plate(double t) { return 0.5 * t * log(t); }
static double thin_plate_slope(double t) { return log(t) + 1; }

static const struct {
    int kernel;
    double (*value)(double), (*slope)(double);
} radials[] = {{RK_GAUSSIAN, gaussian, gaussian_slope},
               {RK_MATERN_12, matern12, matern12_slope},
               {RK_MATERN_32, matern32, matern32_slope},
               {RK_MATERN_52, matern52, matern52_slope},
               {RK_THIN_PLATE, thin_plate, thin_plate_slope}};

/* of a sum of M squares below 9 */
static double sum_error(ptrdiff_t M) { return 9 * (double)M * (double)(M + 1) * DBL_EPSILON; }

static void test_distances(void)
{
    const rk_distances_table *k = rk_distances_select();
    const ptrdiff_t m = 37, n = 45, ld = 64;
    for (ptrdiff_t M = 1; M <= 133; M = 3 * M + 1) {
        double *X = uniforms(m * M, -1, 1), *Z = uniforms(n * M, -1, 1), *tile = zeros(m * ld);
        double *block = zeros(M * ld), *nx = zeros(m), *nz = zeros(n), *XC = zeros(m * M);
        double *t = zeros(n * m), *s = zeros(m * 3), *W = uniforms(3 * n, -1, 1), *c = uniforms(M, -1, 1);
        memcpy(Z, X, (size_t)M * sizeof *Z); /* one pair that coincides */
        k->direct(X, m, Z, n, M, block, tile, ld);
        for (ptrdiff_t i = 0; i < m; i++)
            for (ptrdiff_t j = 0; j < n; j++)
                CLOSE(tile[i * ld + j], squared_distance(X + i * M, Z + j * M, M),
                      sum_error(M));
        k->direct_rows(X, m, Z, n, M, tile, ld);
        k->store_t(tile, ld, m, n, t, m);
        for (ptrdiff_t i = 0; i < m; i++)
            for (ptrdiff_t j = 0; j < n; j++) {
                CLOSE(tile[i * ld + j], squared_distance(X + i * M, Z + j * M, M),
                      sum_error(M));
                CHECK(t[j * m + i] == tile[i * ld + j]);
            }
        double *packed = zeros((n + RK_PACKED) * M), *centred = zeros(n * M), *norms = zeros(n), *again = zeros(n);
        for (int shifted = 0; shifted < 2; shifted++) {
            k->pack(Z, n, M, shifted ? c : NULL, packed, norms);
            k->center(Z, n, M, c, centred, again);
            k->products(X, m, packed, n, M, tile, ld);
            for (ptrdiff_t j = 0; j < n; j++) {
                CHECK(!shifted || norms[j] == again[j]);
                for (ptrdiff_t i = 0; i < m; i++)
                    CLOSE(tile[i * ld + j], dot(X + i * M, (shifted ? centred : Z) + j * M, M), sum_error(M));
            }
        }
        free(packed), free(centred), free(norms), free(again);
        k->direct_rows(X, m, Z, n, M, tile, ld);
        k->weighted_sums(tile, ld, m, n, W, n, 3, s);
        for (ptrdiff_t i = 0; i < m; i++)
            for (ptrdiff_t p = 0; p < 3; p++)
                CLOSE(s[i * 3 + p], dot(tile + i * ld, W + p * n, n), 1e-12 * (double)M);
        for (size_t r = 0; r < 2 * sizeof radials / sizeof *radials; r++) {
            const int slopes = (int)(r % 2);
            for (ptrdiff_t i = 0; i < m; i++)
                for (ptrdiff_t j = 0; j < n; j++)
                    tile[i * ld + j] = t[j * m + i];
            k->radial(radials[r / 2].kernel, slopes, tile, ld, m, n, 0.3);
            for (ptrdiff_t i = 0; i < m; i++)
                for (ptrdiff_t j = 0; j < n; j++) {
                    const double x = 0.3 * t[j * m + i];
                    CHECK(isfinite(tile[i * ld + j]));
                    if (!(x > 0)) continue; /* no reference there: 0 log 0 */
                    const double expected = slopes ? 0.3 * radials[r / 2].slope(x) : radials[r / 2].value(x);
                    CLOSE(tile[i * ld + j], expected, 1e-15 * (8 + x) * (1 + fabs(expected)));
                }
        }
        k->center(X, m, M, c, XC, nx);
        for (ptrdiff_t i = 0; i < m; i++)
            CLOSE(nx[i], squared_distance(X + i * M, c, M), sum_error(M));
        for (int gaussian = 0; gaussian < 3; gaussian++) { /* 2: far beyond the safe exponent */
            const double scale = gaussian == 2 ? 1e4 : 0.3;
            double largest = 0;
            for (ptrdiff_t j = 0; j < n; j++) {
                nz[j] = dot(Z + j * M, Z + j * M, M);
                largest = nz[j] > largest ? nz[j] : largest;
            }
            for (ptrdiff_t i = 0; i < m; i++) {
                nx[i] = dot(X + i * M, X + i * M, M);
                for (ptrdiff_t j = 0; j < n; j++)
                    tile[i * ld + j] = dot(X + i * M, Z + j * M, M);
            }
            if (gaussian)
                k->gaussian(tile, ld, X, m, Z, n, M, nx, nz, largest, scale, t, n);
            else
                k->distances(tile, ld, X, m, Z, n, M, nx, nz);
            for (ptrdiff_t i = 0; i < m; i++)
                for (ptrdiff_t j = 0; j < n; j++) {
                    const double d = squared_distance(X + i * M, Z + j * M, M);
                    CLOSE(tile[i * ld + j], gaussian ? exp(-scale * d) : d, 1e-13 * (double)(M + 4));
                }
        }
        free(X), free(Z), free(tile), free(block), free(nx), free(nz), free(XC), free(t), free(s);
        free(W), free(c);
    }

    const ptrdiff_t N = 777;
    double *x = uniforms(N, 0, 40), *mean = zeros(N), *mean_slope = zeros(N);
    x[0] = 0;
    memcpy(mean, x, (size_t)N * sizeof *x), memcpy(mean_slope, x, (size_t)N * sizeof *x);
    k->multi_gaussian(mean, N, 0.2, 1.5, 0);
    k->multi_gaussian(mean_slope, N, 0.2, 1.5, 1);
    for (ptrdiff_t i = 0; i < N; i += 7) {
        double value = 0, derivative = 0; /* Simpson's rule */
        const int steps = 400;
        for (int q = 0; q <= steps; q++) {
            const double weight = (q == 0 || q == steps ? 1 : q % 2 ? 4 : 2) / (3.0 * steps);
            const double s = 0.2 + 1.3 * q / steps, e = exp(-0.5 * s * s * x[i]);
            value += weight * e, derivative -= weight * s * s * e;
        }
        CLOSE(mean[i], value, 1e-10);
        CLOSE(mean_slope[i], derivative, 1e-10);
    }
    free(x), free(mean), free(mean_slope);

    double *K = uniforms(n * n, -1, 1), *V = uniforms(4 * n, -1, 1), *Y = zeros(4 * n);
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < i; j++)
            K[i * n + j] = K[j * n + i];
    k->symmetric_product(K, n, 0, 21, V, 4, Y);
    k->symmetric_product(K, n, 21, n, V, 4, Y);
    for (ptrdiff_t q = 0; q < 4; q++)
        for (ptrdiff_t i = 0; i < n; i++)
            CLOSE(Y[q * n + i], dot(V + q * n, K + i * n, n), 1e-13);
    ptrdiff_t rows[30], columns[30], expected_found = 0;
    double values[30], *reach = uniforms(n, -1, -0.9);
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < n; j++)
            expected_found += K[i * n + j] <= reach[i] || K[i * n + j] <= reach[j];
    CHECK(k->within(K, n, n, n, 0, 0, reach, reach, 0, 30, rows, columns, values) == expected_found);
    CHECK(values[0] == K[rows[0] * n + columns[0]]);
    free(K), free(V), free(Y), free(reach);
}

static void test_decode(void)
{
    const rk_decode_table *k = rk_decode_select();
    const ptrdiff_t n = 3, K = 21, M = 37;
    double *Z = uniforms(n * K, -1, 1), *A = uniforms(K * M, -1, 1), *out = zeros(n * M);
    double *const to[] = {out, out + M, out + 2 * M};
    k->rows_to(Z, n, K, K, A, M, to);
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < M; j++) {
            double sum = 0;
            for (ptrdiff_t l = 0; l < K; l++)
                sum += Z[i * K + l] * A[l * M + j];
            CLOSE(out[i * M + j], sum, 1e-14);
        }
    free(Z), free(A), free(out);
}

/* k nearest of n points by (distance, index): insertion into a sorted list */
static void brute_force(const double *X, ptrdiff_t n, ptrdiff_t d, const double *q, ptrdiff_t k,
                        double *distance, ptrdiff_t *index)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        double s = 0;
        for (ptrdiff_t j = 0; j < d; j++) {
            volatile double square = (q[j] - X[i * d + j]) * (q[j] - X[i * d + j]); /* no FMA */
            s += square;
        }
        ptrdiff_t j = count < k ? count++ : k;
        for (; j > 0 && s < distance[j - 1]; j--)
            if (j < k)
                distance[j] = distance[j - 1], index[j] = index[j - 1];
        if (j < k)
            distance[j] = s, index[j] = i;
    }
    for (ptrdiff_t j = 0; j < k; j++)
        distance[j] = sqrt(distance[j]);
}

static void compare_neighbors(const double *X, ptrdiff_t n, ptrdiff_t d, const double *Q, ptrdiff_t m,
                              ptrdiff_t k, const double *distance, const ptrdiff_t *index)
{
    double *expected = zeros(k);
    ptrdiff_t *number = allocate(k, sizeof *number);
    for (ptrdiff_t i = 0; i < m; i++) {
        brute_force(X, n, d, Q + i * d, k, expected, number);
        for (ptrdiff_t j = 0; j < k; j++)
            CHECK(index[i * k + j] == number[j] && distance[i * k + j] == expected[j]);
    }
    free(expected), free(number);
}

/* nx by ny cells on the unit square, laid out as rk_cell_grid says */
static rk_cell_grid make_grid(const double *X, ptrdiff_t n, ptrdiff_t side)
{
    rk_cell_grid g = {.nx = side, .ny = side, .sx = (double)side, .sy = (double)side};
    const rk_neighbors_table *k = rk_neighbors_select();
    ptrdiff_t *cell = allocate(n, sizeof *cell), *start = allocate(side * side + 1, sizeof *start);
    ptrdiff_t *order = allocate(n, sizeof *order);
    double *points = zeros(2 * n), *index = zeros(n), *bound[4];
    k->cells(&g, X, n, cell);
    k->sort(cell, n, side * side, start, order);
    for (ptrdiff_t c = side * side; c > 0; c--)
        start[c] = start[c - 1];
    start[0] = 0;
    for (ptrdiff_t p = 0; p < n; p++) {
        points[2 * p] = X[2 * order[p]], points[2 * p + 1] = X[2 * order[p] + 1];
        index[p] = (double)order[p];
    }
    for (int b = 0; b < 4; b++) {
        bound[b] = zeros(side + 1);
        for (ptrdiff_t c = 0; c <= side; c++)
            bound[b][c] = b % 2 ? -INFINITY : INFINITY;
        for (ptrdiff_t p = 0; p < n; p++) {
            const double x = points[2 * p + b / 2];
            const ptrdiff_t at = b / 2 ? cell[order[p]] % side : cell[order[p]] / side;
            for (ptrdiff_t c = 0; c <= side; c++)
                if (b % 2 == 0 && at >= c)
                    bound[b][c] = fmin(bound[b][c], x);
                else if (b % 2 && at < c)
                    bound[b][c] = fmax(bound[b][c], x);
        }
    }
    g.start = start, g.points = points, g.index = index;
    g.above_x = bound[0], g.below_x = bound[1], g.above_y = bound[2], g.below_y = bound[3];
    free(cell), free(order);
    return g;
}

static void test_neighbors(void)
{
    const rk_neighbors_table *t = rk_neighbors_select();
    const ptrdiff_t n = 301, m = 41, depth = 6, ks[] = {1, 6, 15, 40};
    for (ptrdiff_t d = 1; d <= 20; d += d < 4 ? 1 : 8)
        for (int c = 0; c < 4; c++) {
            const ptrdiff_t k = ks[c], leaves = (ptrdiff_t)1 << depth;
            double *X = uniforms(n * d, 0, 1), *Q = uniforms(m * d, -0.1, 1.1);
            for (ptrdiff_t i = 0; i < 20; i++) /* ties */
                memcpy(X + i * d, X + (50 + i % 3) * d, (size_t)d * sizeof *X);
            memcpy(Q, X, (size_t)(10 * d) * sizeof *Q);
            double *boxes = zeros((2 * leaves - 1) * 2 * d), *lowest = zeros(2 * leaves - 1);
            double *split = zeros(2 * (leaves - 1)), *points = zeros(n * d), *numbers = zeros(n);
            ptrdiff_t *order = allocate(n, sizeof *order), *leaf = allocate(m, sizeof *leaf);
            ptrdiff_t *start = allocate(leaves + 1, sizeof *start), *by_leaf = allocate(m, sizeof *leaf);
            double *distance = zeros(m * k), *work = zeros(t->tree_workspace(d, depth, k));
            ptrdiff_t *index = allocate(m * k, sizeof *index);
            double *pairs = zeros(2 * n);
            t->build(X, n, d, depth, order, boxes, lowest, split, pairs);
            free(pairs);
            for (ptrdiff_t p = 0; p < n; p++) {
                memcpy(points + p * d, X + order[p] * d, (size_t)d * sizeof *X);
                numbers[p] = (double)order[p];
            }
            const rk_tree tree = {n, d, depth, points, numbers, boxes, lowest, split};
            t->assign(&tree, Q, m, leaf);
            t->sort(leaf, m, leaves, start, by_leaf);
            t->tree(&tree, NULL, Q, by_leaf, m, k, work, distance, index);
            compare_neighbors(X, n, d, Q, m, k, distance, index);
            if (d == 2) {
                const rk_cell_grid grid = make_grid(X, n, 9);
                t->tree(&tree, &grid, Q, by_leaf, m, k, work, distance, index);
                compare_neighbors(X, n, d, Q, m, k, distance, index);
                free((void *)grid.start), free((void *)grid.points), free((void *)grid.index);
                free((void *)grid.above_x), free((void *)grid.below_x);
                free((void *)grid.above_y), free((void *)grid.below_y);
            }
            float *tiles = allocate((n + 15) / 16 * 16 * d, sizeof *tiles);
            double *center = zeros(d), radius = 0;
            for (ptrdiff_t i = 0; i < n; i++)
                radius = fmax(radius, sqrt(dot(X + i * d, X + i * d, d)) * 1.01);
            t->tiles(X, n, d, center, 1, tiles);
            const rk_flat flat = {n, d, X, tiles, center, 1, radius};
            double *flat_work = zeros(t->flat_workspace(d, m, k));
            t->flat(&flat, Q, m, k, flat_work, distance, index);
            compare_neighbors(X, n, d, Q, m, k, distance, index);
            /* all points, in two parts of no order */
            double *among_work = zeros(t->among_workspace(d));
            for (ptrdiff_t i = 0; i < m * k; i++)
                distance[i] = INFINITY, index[i] = PTRDIFF_MAX;
            t->among(X, d, order, n / 3, Q, m, k, among_work, distance, index);
            t->among(X, d, order + n / 3, n - n / 3, Q, m, k, among_work, distance, index);
            for (ptrdiff_t i = 0; i < m * k; i++)
                distance[i] = sqrt(distance[i]);
            compare_neighbors(X, n, d, Q, m, k, distance, index);
            free(among_work);
            free(X), free(Q), free(boxes), free(lowest), free(split), free(points), free(numbers);
            free(order), free(leaf), free(start), free(by_leaf), free(distance), free(work);
            free(index), free(tiles), free(center), free(flat_work);
        }
}

static void check_simplex_weights(const double *a, ptrdiff_t k)
{
    double sum = 0;
    for (ptrdiff_t j = 0; j < k; j++) {
        CHECK(a[j] >= 0);
        sum += a[j];
    }
    CLOSE(sum, 1, 4 * DBL_EPSILON);
}

/* psi (d) = encode(sum_k a_k f_k), see rk_simplex.h */
static void encode(const rk_nystroem *map, const ptrdiff_t *row, const double *a, ptrdiff_t k, double *psi)
{
    double sum = 0;
    memset(psi, 0, (size_t)map->d * sizeof *psi);
    for (ptrdiff_t l = 0; l < map->n; l++) {
        double e = map->offset[l];
        for (ptrdiff_t j = 0; j < k; j++)
            e += a[j] * map->rows[row[j] * map->n + l];
        sum += exp(e);
        for (ptrdiff_t c = 0; c < map->d; c++)
            psi[c] += exp(e) * map->values[c * map->n + l];
    }
    for (ptrdiff_t c = 0; c < map->d; c++)
        psi[c] /= sum;
}

static void test_simplex(void)
{
    const rk_simplex_table *t = rk_simplex_select();
    const ptrdiff_t n = 60, m = 25;
    for (ptrdiff_t d = 1; d <= 5; d += 2)
        for (ptrdiff_t k = 1; k <= 7; k += 3) {
            double *Y = uniforms(n * d, -1, 1), *y = uniforms(m * d, -1, 1), *weights = zeros(m * k);
            double *work = zeros(t->latent_workspace(d, k)), *F = uniforms(n * 1030, 0, 1);
            double *mixed = zeros(m * 1030);
            ptrdiff_t *neighbor = allocate(m * k, sizeof *neighbor);
            for (ptrdiff_t i = 0; i < m * k; i++)
                neighbor[i] = (7 * (i / k) + 11 * (i % k)) % n;
            CHECK(t->latent(Y, d, y, neighbor, m, k, work, weights) == -1);
            t->mix(F, 1030, neighbor, weights, m, k, mixed);
            for (ptrdiff_t i = 0; i < m; i++) {
                double *r = zeros(d), level = 0, field = 0;
                check_simplex_weights(weights + i * k, k);
                for (ptrdiff_t c = 0; c < d; c++) {
                    r[c] = y[i * d + c];
                    for (ptrdiff_t j = 0; j < k; j++)
                        r[c] -= weights[i * k + j] * Y[neighbor[i * k + j] * d + c];
                }
                for (ptrdiff_t j = 0; j < k; j++) {
                    level += weights[i * k + j] * dot(r, Y + neighbor[i * k + j] * d, d);
                    field += weights[i * k + j] * F[neighbor[i * k + j] * 1030 + 1029];
                }
                for (ptrdiff_t j = 0; j < k; j++) /* no point is further along the residual */
                    CHECK(dot(r, Y + neighbor[i * k + j] * d, d) <= level + 1e-12);
                CLOSE(mixed[i * 1030 + 1029], field, 1e-15);
                free(r);
            }
            free(Y), free(y), free(weights), free(work), free(F), free(mixed), free(neighbor);
        }

    const ptrdiff_t d = 2, k = 4;
    double *rows = uniforms(n * n, -3, 0), *offset = uniforms(n, -1, 1), *values = uniforms(d * n, -1, 1);
    double *Y = uniforms(n * d, -1, 1), *y = uniforms(m * d, -0.3, 0.3), *weights = zeros(m * k);
    double *first = zeros(m * k), psi[2], start[2];
    double *work = zeros(t->encoder_workspace(n, d, k)), *latent_work = zeros(t->latent_workspace(d, k));
    const rk_nystroem map = {n, d, rows, offset, values};
    ptrdiff_t *neighbor = allocate(m * k, sizeof *neighbor);
    for (ptrdiff_t i = 0; i < m * k; i++)
        neighbor[i] = (7 * (i / k) + 11 * (i % k)) % n;
    CHECK(t->encoder(&map, Y, y, neighbor, neighbor, m, k, work, weights) == -1);
    t->latent(Y, d, y, neighbor, m, k, latent_work, first);
    for (ptrdiff_t i = 0; i < m; i++) {
        check_simplex_weights(weights + i * k, k);
        encode(&map, neighbor + i * k, weights + i * k, k, psi);
        encode(&map, neighbor + i * k, first + i * k, k, start);
        CHECK(squared_distance(psi, y + i * d, d) <= squared_distance(start, y + i * d, d) + 1e-14);
    }
    free(rows), free(offset), free(values), free(Y), free(y), free(weights), free(first);
    free(work), free(latent_work), free(neighbor);
}

/* The t of clip(z + t d, l, u) with w . f = m, by bisection */
static double dual_variable(const rk_bounds *b, double m, const double *z)
{
    double low = -1e4, high = 1e4;
    for (int step = 0; step < 200; step++) {
        const double t = 0.5 * (low + high);
        double sum = 0;
        for (ptrdiff_t i = 0; i < b->M; i++)
            sum += b->w[i] * fmin(fmax(z[i] + t * b->direction[i], b->lower[i]), b->upper[i]);
        if (sum < m)
            low = t;
        else
            high = t;
    }
    return 0.5 * (low + high);
}

static void test_projection_and_bounds(void)
{
    const rk_projection_table *p = rk_projection_select();
    const rk_bounds_table *t = rk_bounds_select();
    for (ptrdiff_t M = 2; M < 900; M = 2 * M + 1) {
        double *C = uniforms(2 * M, 0.5, 1.5), *W = zeros(2 * M), *f = uniforms(3 * M, -1, 1);
        double *work = zeros(7 * M + 2), value[2], scale[2], R[4] = {0}, m[2];
        for (ptrdiff_t j = 0; j < 2; j++) { /* Gram-Schmidt: C = R^T Q^T, W = Q^T */
            memcpy(W + j * M, C + j * M, (size_t)M * sizeof *W);
            for (ptrdiff_t k = 0; k < j; k++) {
                R[k * 2 + j] = dot(W + k * M, C + j * M, M);
                for (ptrdiff_t i = 0; i < M; i++)
                    W[j * M + i] -= R[k * 2 + j] * W[k * M + i];
            }
            R[j * 2 + j] = sqrt(dot(W + j * M, W + j * M, M));
            for (ptrdiff_t i = 0; i < M; i++)
                W[j * M + i] /= R[j * 2 + j];
            m[j] = dot(C + j * M, f, M) + 0.1 * (double)(j + 1);
        }
        const rk_projection projection = {.M = M, .q = 2, .C = C, .m = m, .W = W, .R = R};
        CHECK(p->workspace(&projection) <= 7 * M + 2);
        CHECK(p->project(&projection, NULL, f, 3, M, work) == -1);
        for (ptrdiff_t i = 0; i < 3; i++) {
            p->dots(C, 2, M, f + i * M, value, scale);
            for (int j = 0; j < 2; j++) {
                CLOSE(value[j], m[j], 3 * DBL_EPSILON * (scale[j] + fabs(m[j])));
                CLOSE(value[j], dot(C + j * M, f + i * M, M), 1e-14 * scale[j]);
            }
        }
        f[M + 1] = INFINITY;
        CHECK(p->project(&projection, NULL, f, 3, M, work) == 1);

        double *one = zeros(M), *low = zeros(M), *high = zeros(M), *z = uniforms(M, -1, 2), *g = zeros(M);
        for (int kind = 0; kind < 3; kind++) {
            for (ptrdiff_t i = 0; i < M; i++) {
                one[i] = 1;
                low[i] = kind == 2 ? -0.1 : 0;
                high[i] = kind ? 0.6 : INFINITY;
            }
            const double *w = kind == 2 ? C : one, *d = kind == 2 ? C + M : one;
            rk_bounds b = {.M = M, .q = 1, .w = w, .direction = d, .lower = low, .upper = high};
            CHECK(rk_bounds_prepare(&b) && b.uniform == (kind < 2) && !b.apart);
            const double total = 0.3 * (double)M;
            memcpy(g, z, (size_t)M * sizeof *g);
            CHECK(t->workspace(&b) <= 7 * M + 2);
            CHECK(t->row(&b, &total, g, work) == RK_ROW_PROJECTED);
            const double step = dual_variable(&b, total, z);
            CLOSE(dot(w, g, M), total, 1e-13 * (double)M);
            for (ptrdiff_t i = 0; i < M; i++)
                CLOSE(g[i], fmin(fmax(z[i] + step * d[i], low[i]), high[i]), 1e-11);
            const double beyond = 1e3 * (double)M;
            if (kind)
                CHECK(t->row(&b, &beyond, g, work) == RK_NO_CONVERGENCE);
        }
        rk_bounds both = {.M = M, .q = 2, .w = C, .direction = C, .lower = low, .upper = high, .W = W, .R = R};
        CHECK(rk_bounds_prepare(&both) && both.apart && both.together == 2 && both.group[1] == 0);
        double *more = zeros(t->workspace(&both));
        memcpy(g, z, (size_t)M * sizeof *g);
        for (int j = 0; j < 2; j++) { /* what a field within the bounds has */
            m[j] = 0;
            for (ptrdiff_t i = 0; i < M; i++)
                m[j] += C[j * M + i] * (i % 3 ? low[i] : high[i] / 2);
        }
        CHECK(t->row(&both, m, g, more) == RK_ROW_PROJECTED);
        for (int j = 0; j < 2; j++)
            CLOSE(dot(C + j * M, g, M), m[j], 1e-14 * (double)M);
        for (ptrdiff_t i = 0; i < M; i++)
            CHECK(low[i] <= g[i] && g[i] <= high[i]);
        g[M - 1] = NAN;
        CHECK(t->row(&both, m, g, more) == RK_NOT_FINITE);
        rk_bounds simplex = {.M = M, .q = 1, .w = one, .direction = one, .lower = low, .upper = high};
        rk_bounds_prepare(&simplex);
        CHECK(t->row(&simplex, one, g, work) == RK_NOT_FINITE);
        free(C), free(W), free(f), free(work), free(more), free(one), free(low), free(high), free(z), free(g);
    }
}

static double van_leer(double r) { return r > 0 ? 2 * r / (1 + r) : 0; }

static void test_traffic(void)
{
    const rk_traffic_table *t = rk_traffic_select();
    for (ptrdiff_t n = 2; n < 1200; n = 3 * n + 1) {
        const ptrdiff_t left = RK_LWR_GHOSTS_LEFT, size = left + n + RK_LWR_GHOSTS_RIGHT;
        const double courant = 0.7, rho_max = 1;
        double *q = uniforms(size, 0, 0.9), *old = zeros(n), *flux = zeros(n), before = 0, after = 0;
        for (ptrdiff_t i = 0; i < n; i++) {
            q[left + i] = rint(q[left + i] * 0x1p53) * 0x1p-53; /* multiples of a quantum */
            old[i] = q[left + i], before += old[i];
        }
        for (int step = 0; step < 3; step++) {
            for (ptrdiff_t i = 0; i < n; i++) {
                const double a = old[(i + n - 1) % n], b = old[i];
                const double speed = courant * (1 - (a + b) / rho_max), jump = b - a;
                const double upwind = speed > 0 ? a - old[(i + 2 * n - 2) % n] : old[(i + 1) % n] - b;
                /* Godunov: the smaller of demand and supply */
                const double r = fmin(a, 0.5), s = fmax(b, 0.5);
                const double demand = r * (1 - r), supply = s * (1 - s);
                flux[i] = courant * fmin(demand, supply);
                if (jump != 0)
                    flux[i] += 0.5 * fabs(speed) * (1 - fabs(speed)) * van_leer(upwind / jump) * jump;
            }
            for (ptrdiff_t i = 0; i < n; i++)
                old[i] += flux[i] - flux[(i + 1) % n];
        }
        t->advance(q + left, n, 3, courant, rho_max, 0.5 * (1 + 0x1p-10));
        for (ptrdiff_t i = 0; i < n; i++) {
            CLOSE(q[left + i], old[i], 1e-13);
            after += q[left + i];
        }
        if (n < 500) /* few enough terms that the sums are exact */
            CLOSE(after, before, 1e-12);
        free(q), free(old), free(flux);
    }
}

/* First-order upwind potential by Gauss-Seidel in one order until nothing falls */
static void reference_potential(const double *slowness, const unsigned char *kind, ptrdiff_t nx,
                                ptrdiff_t ny, double dx, double aspect, double *T)
{
    for (ptrdiff_t k = 0; k < nx * ny; k++)
        T[k] = kind[k] == RK_SOURCE ? 0 : INFINITY;
    for (int changed = 1; changed;) {
        changed = 0;
        for (ptrdiff_t k = 0; k < nx * ny; k++) {
            if (kind[k] != RK_FREE)
                continue;
            const ptrdiff_t i = k / ny, j = k % ny;
            const double a = fmin(i ? T[k - ny] : INFINITY, i + 1 < nx ? T[k + ny] : INFINITY);
            const double b = fmin(j ? T[k - 1] : INFINITY, j + 1 < ny ? T[k + 1] : INFINITY);
            const double h = dx * slowness[k], q = 1 / (aspect * aspect);
            double value = fmin(a + h, b + aspect * h);
            if (a < INFINITY && b < INFINITY) {
                const double D = (1 + q) * h * h - q * (a - b) * (a - b);
                const double both = D >= 0 ? (a + q * b + sqrt(D)) / (1 + q) : INFINITY;
                if (both >= fmax(a, b))
                    value = fmin(value, both);
            }
            if (value < T[k] * (1 - 1e-15)) {
                T[k] = value;
                changed = 1;
            }
        }
    }
}

static void test_eikonal(void)
{
    const rk_eikonal_table *solvers[] = {rk_eikonal_select(), &rk_crowd_select()->potentials};
    const ptrdiff_t nx = 17, ny = 13, cells = nx * ny;
    unsigned char *kind = allocate(cells, 1), *exits = allocate(2 * ny + 2, 1);
    memset(exits, 0, (size_t)(2 * ny + 2));
    for (ptrdiff_t k = 0; k < cells; k++)
        kind[k] = k == 3 * ny + 2 ? RK_SOURCE : (k / ny == 9 && k % ny < 8 ? RK_WALL : RK_FREE);
    for (int s = 0; s < 2; s++)
        for (int square = 0; square < 2; square++)
            for (int sweeping = 0; sweeping < 2; sweeping++) {
                const rk_grid grid = {nx, ny, square ? 1 : 0.7};
                const ptrdiff_t n = solvers[s]->lanes;
                double *slowness = uniforms(n * cells, 0.5, 3), *out = zeros(n * cells);
                double *work = zeros(rk_eikonal_work(n, nx, ny)), *T = zeros(cells);
                solvers[s]->solve(&grid, 0.5, slowness, kind, exits, 4, n, sweeping, work, out);
                for (ptrdiff_t f = 0; f < n; f++) {
                    reference_potential(slowness + f * cells, kind, nx, ny, 0.5, grid.aspect, T);
                    for (ptrdiff_t k = 0; k < cells; k++)
                        CHECK(out[f * cells + k] == T[k] || fabs(out[f * cells + k] - T[k]) < 1e-12);
                }
                free(slowness), free(out), free(work), free(T);
            }
    free(kind), free(exits);
}

static void test_crowd(void)
{
    const rk_crowd_table *t = rk_crowd_select();
    const ptrdiff_t nx = 21, ny = 9, cells = nx * ny, L = RK_CROWD_LANES;
    unsigned char *kind = allocate(cells, 1), *exits = allocate(2 * ny + 2, 1);
    double *open_x = zeros((nx + 1) * ny), *open_y = zeros(nx * (ny + 1)), *rho = zeros(cells * L);
    double *p = zeros((nx + 2) * (ny + 2) * L), *h = zeros(cells * L), *work = zeros(rk_crowd_work(ny));
    double *field = zeros(cells), before = 0, after = 0;
    memset(kind, RK_FREE, (size_t)cells), memset(exits, 0, (size_t)(2 * ny + 2));
    memset(exits + ny, 1, (size_t)ny);
    for (ptrdiff_t i = 0; i < (nx + 1) * ny; i++)
        open_x[i] = i >= ny;
    for (ptrdiff_t i = 0; i < nx; i++)
        for (ptrdiff_t j = 1; j < ny; j++)
            open_y[i * (ny + 1) + j] = 1;
    for (ptrdiff_t k = 0; k < cells; k++) {
        const double density = uniform(0, 2);
        before += density;
        for (ptrdiff_t l = 0; l < L; l++)
            rho[k * L + l] = density;
    }
    const rk_crowd crowd = {{nx, ny, 1}, 2, 5, 1e-3, 1, 0.1, 0.1, open_x, open_y};
    t->prepare(&crowd.grid, kind, exits, 0, p);
    t->advance(&crowd, rho, 40, p, h, work);
    for (ptrdiff_t k = 0; k < cells; k++) {
        for (ptrdiff_t l = 1; l < L; l++)
            CHECK(rho[k * L + l] == rho[k * L]);
        CHECK(rho[k * L] >= 0 && rho[k * L] <= 5);
        after += rho[k * L];
    }
    CLOSE(after, before, 1e-10); /* what leaves by the exit enters at the other end */
    t->extract(rho, nx, ny, L - 1, 1, field);
    CLOSE(field[cells - 1], rho[cells * L - 1] / after, 1e-14);
    free(kind), free(exits), free(open_x), free(open_y), free(rho), free(p), free(h), free(work);
    free(field);
}

static double pixel(const double *image, ptrdiff_t h, ptrdiff_t w, ptrdiff_t i, ptrdiff_t j)
{
    return i < 0 || j < 0 || i >= h || j >= w ? 0 : image[i * w + j];
}

static void test_images(void)
{
    const rk_images_table *t = rk_images_select();
    const ptrdiff_t h = 23, w = 31, H = h + 3, W = w + 3;
    double *image = uniforms(h * w, 0, 1), *padded = zeros(H * W), *out = zeros(h * w);
    const double c = cos(0.7), s = sin(0.7);
    for (ptrdiff_t i = 0; i < h; i++)
        memcpy(padded + (i + RK_IMAGE_PAD_BEFORE) * W + RK_IMAGE_PAD_BEFORE, image + i * w,
               (size_t)w * sizeof *image);
    const double total = t->rotate(padded, h, w, c, s, out);
    for (ptrdiff_t i = 0; i < h; i++)
        for (ptrdiff_t j = 0; j < w; j++) {
            const double y = (double)i - 0.5 * (double)(h - 1), x = (double)j - 0.5 * (double)(w - 1);
            const double r = c * y + s * x + 0.5 * (double)(h - 1);
            const double q = -s * y + c * x + 0.5 * (double)(w - 1);
            const ptrdiff_t a = (ptrdiff_t)floor(r), b = (ptrdiff_t)floor(q);
            const double u = r - (double)a, v = q - (double)b;
            const double value = (1 - u) * (1 - v) * pixel(image, h, w, a, b)
                                 + (1 - u) * v * pixel(image, h, w, a, b + 1)
                                 + u * (1 - v) * pixel(image, h, w, a + 1, b)
                                 + u * v * pixel(image, h, w, a + 1, b + 1);
            CLOSE(out[i * w + j] * total, value, 1e-13);
        }
    free(image), free(padded), free(out);
}

static void test_sums(void)
{
    const rk_sums_table *t = rk_sums_select();
    for (ptrdiff_t n = 1; n < 20; n++) {
        double *high = zeros(n), *low = zeros(n), *b = uniforms(n, -1, 1), *b_low = zeros(n), *x = zeros(n);
        const double a[2] = {1 + 0x1p-40, 0x1p-60}, minus_a[2] = {-a[0], -a[1]};
        for (ptrdiff_t j = 0; j < n; j++)
            x[j] = 0x1p40 * b[j];
        /* what cancels leaves a b - b, to 106 bits of what has cancelled */
        t->add(high, low, x, a, b, n);
        for (ptrdiff_t j = 0; j < n; j++)
            x[j] = -x[j];
        t->add(high, low, x, NULL, NULL, n);
        for (ptrdiff_t j = 0; j < n; j++)
            x[j] = -b[j];
        t->add(high, low, x, NULL, NULL, n);
        for (ptrdiff_t j = 0; j < n; j++)
            low[j] += b_low[j];
        t->total(high, low, NULL, NULL, NULL, n, x);
        for (ptrdiff_t j = 0; j < n; j++)
            CLOSE(x[j], b[j] * (0x1p-40 + 0x1p-60), 0x1p-64);
        t->total(high, low, minus_a, b, b_low, n, x);
        for (ptrdiff_t j = 0; j < n; j++)
            CLOSE(x[j], b[j] * (1 + 0x1p-39), 0x1p-52);
        free(high), free(low), free(b), free(b_low), free(x);
    }
}

int main(void)
{
    const char *wanted = getenv("RANDSMAP_CPU");
    if (wanted && strcmp(wanted, rk_cpu_name())) {
        printf("this processor has no %s\n", wanted);
        return 77; /* skipped */
    }
    test_vecmath();
    test_features_and_gradients();
    test_distances();
    test_decode();
    test_neighbors();
    test_simplex();
    test_sums();
    test_projection_and_bounds();
    test_traffic();
    test_eikonal();
    test_crowd();
    test_images();
    printf("%s: %d of %d checks failed\n", rk_cpu_name(), failures, checks);
    return failures != 0;
}
