/* Weights a >= 0, sum a = 1 of the k-NN decoder (paper App. B, Eq. LiftkNN). */
#ifndef RK_SIMPLEX_H
#define RK_SIMPLEX_H
#include "rk_dispatch.h"

/* A Nystroem extension at mixtures of training fields. Because sum a = 1,
 *     |sum_k a_k f_k - f_i|^2 = sum_k a_k D_ki - (1/2) a^T D a,
 * and what does not depend on i cancels in the normalised kernel: the logarithm of the transition
 * probability to i is offset[i] + sum_k a_k rows[k][i] up to a constant. */
typedef struct {
    ptrdiff_t n, d;
    const double *rows;   /* (., n): -D / eps^2, D from training fields to all of them */
    const double *offset; /* (n): -alpha log(degree) */
    const double *values; /* (d, n): the coordinates' eigenvectors times xi^(t - 1) */
} rk_nystroem;

typedef struct {
    /* Least |y - sum_k a_k y_k|, least |a|^2 among those, for m rows y (m, d); the y_k are the rows
     * neighbor (m, k) of Y. Returns the first row whose iteration did not end by itself, -1 without
     * one; so does `encoder`. */
    ptrdiff_t (*latent)(const double *Y, ptrdiff_t d, const double *y, const ptrdiff_t *neighbor,
                        ptrdiff_t m, ptrdiff_t k, double *work, double *weights);
    /* Least |y - encode(sum_k a_k f_k)|. row (m, k): where the neighbours' distances stand in
     * map->rows. */
    ptrdiff_t (*encoder)(const rk_nystroem *map, const double *Y, const double *y,
                         const ptrdiff_t *neighbor, const ptrdiff_t *row, ptrdiff_t m, ptrdiff_t k,
                         double *work, double *weights);
    /* out (M) = sum_k a_k F[neighbor_k] for m rows. */
    void (*mix)(const double *F, ptrdiff_t M, const ptrdiff_t *neighbor, const double *weights,
                ptrdiff_t m, ptrdiff_t k, double *out);
    ptrdiff_t (*latent_workspace)(ptrdiff_t d, ptrdiff_t k);
    ptrdiff_t (*encoder_workspace)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t k);
    /* slopes (k, d): derivatives of the weights a (k) of `latent` or `encoder` in y */
    void (*latent_slopes)(const double *Y, ptrdiff_t d, const ptrdiff_t *neighbor, const double *a, ptrdiff_t k,
                          double *work, double *slopes);
    void (*encoder_slopes)(const rk_nystroem *map, const double *y, const ptrdiff_t *row, const double *a, ptrdiff_t k,
                           double *work, double *slopes);
    /* n: of the map; 0 for `latent_slopes` */
    ptrdiff_t (*slopes_workspace)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t k);
} rk_simplex_table;
RK_TABLES(simplex)

#endif
