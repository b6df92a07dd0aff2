/* Squared Euclidean distances and radial kernels of them, tile by tile.
 *
 * A tile holds the pairs (i, j) of m rows X and n rows Z, row stride ld. In large dimension it is
 * filled with the products x.z of centred rows and finished while it is in cache; in small dimension it is filled by direct differences. `scale`: the kernel
 * is a function of scale |x - z|^2, 1/eps^2 for the Gaussian one. */
#ifndef RK_DISTANCES_H
#define RK_DISTANCES_H
#include "rk_radial.h"

/* Up to this dimension direct differences are as fast as GEMM, and exact where the data allow it. */
enum { RK_DIRECT_DIM = 16 };
/* The size of groups of packed rows divides this at every instruction level. */
enum { RK_PACKED = 16 };

typedef struct {
    /* out (n, M) = X - c, norms (n) = squared norms of its rows; norms may be NULL. */
    void (*center)(const double *X, ptrdiff_t n, ptrdiff_t M, const double *c, double *out,
                   double *norms);
    /* tile = |x - z|^2 by differences; `block`: workspace of M * ld doubles, ld a multiple of 32. */
    void (*direct)(const double *X, ptrdiff_t m, const double *Z, ptrdiff_t n, ptrdiff_t M,
                   double *block, double *tile, ptrdiff_t ld);
    /* The same with Z given by columns (M, n), row stride ldc; ld need not be a multiple. */
    void (*direct_columns)(const double *X, ptrdiff_t m, const double *columns, ptrdiff_t ldc, ptrdiff_t n,
                           ptrdiff_t M, double *tile, ptrdiff_t ld);
    /* The same for a few rows of large dimension; needs no workspace. */
    void (*direct_rows)(const double *X, ptrdiff_t m, const double *Z, ptrdiff_t n, ptrdiff_t M,
                        double *tile, ptrdiff_t ld);
    /* in single precision, sums beyond 1024 terms in double */
    void (*direct_rows_single)(const float *X, ptrdiff_t m, const float *Z, ptrdiff_t n, ptrdiff_t M,
                               double *tile, ptrdiff_t ld);
    /* n rows Z in the order that `products` reads: out (n up to a multiple of RK_PACKED, M). With c, Z - c instead, and
     * norms as `center`. */
    void (*pack)(const double *Z, ptrdiff_t n, ptrdiff_t M, const double *c, double *out, double *norms);
    /* tile = x.z; n up to a multiple of RK_PACKED is at most ld, and columns up to there are overwritten. */
    void (*products)(const double *X, ptrdiff_t m, const double *packed, ptrdiff_t n, ptrdiff_t M, double *tile,
                     ptrdiff_t ld);
    /* Products -> squared distances. nx, nz: squared norms of the centred rows; X, Z: the rows that
     * the distances which cancel are recomputed from. */
    void (*distances)(double *tile, ptrdiff_t ld, const double *X, ptrdiff_t m, const double *Z,
                      ptrdiff_t n, ptrdiff_t M, const double *nx, const double *nz);
    /* Products -> Gaussian kernel; nz_max is at least every nz[j]. The values go to out (row stride
     * ldo) too, unless it is NULL. */
    void (*gaussian)(double *tile, ptrdiff_t ld, const double *X, ptrdiff_t m, const double *Z,
                     ptrdiff_t n, ptrdiff_t M, const double *nx, const double *nz, double nz_max,
                     double scale, double *out, ptrdiff_t ldo);
    /* Squared distances -> kernel by its number in rk_radial.h, or twice its derivative by them. */
    void (*radial)(int kernel, int slopes, double *tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,
                   double scale);
    /* Squared distances -> mean of exp(-s^2 x / 2) over s in [low, high], or with `slope` twice its derivative, minus
     * the mean of s^2 exp(-s^2 x / 2), in place. */
    void (*multi_gaussian)(double *x, ptrdiff_t n, double low, double high, int slope);
    /* out[i, j] = tile[i, j]; out_t[j, i] = tile[i, j]. */
    void (*store)(const double *tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n, double *out,
                  ptrdiff_t ldo);
    void (*store_t)(const double *tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n, double *out_t,
                    ptrdiff_t ldo);
    /* sums (m, q) += tile W^T for W (q, ldw): weighted sums over the training points. */
    void (*weighted_sums)(const double *tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,
                          const double *W, ptrdiff_t ldw, ptrdiff_t q, double *sums);
    /* Y (p, n) += the part that rows i0 <= i < i1 of the upper triangle of a symmetric K (n, n) and
     * their mirror image have in X K, X (p, n); p is even. */
    void (*symmetric_product)(const double *K, ptrdiff_t n, ptrdiff_t i0, ptrdiff_t i1,
                              const double *X, ptrdiff_t p, double *Y);
    /* Pairs (i0 + i, j0 + j) of a tile of squared distances that are <= rx[i] or <= rz[j], appended
     * to the `found` ones so far; returns their new number, of which `capacity` are kept. */
    ptrdiff_t (*within)(const double *tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n, ptrdiff_t i0,
                        ptrdiff_t j0, const double *rx, const double *rz, ptrdiff_t found,
                        ptrdiff_t capacity, ptrdiff_t *rows, ptrdiff_t *columns, double *values);
} rk_distances_table;
RK_TABLES(distances)

#endif
