/* Decoding f(y) = [1 | phi(y)] A of a few latent points, A read once from memory. */
#ifndef RK_DECODE_H
#define RK_DECODE_H
#include "rk_dispatch.h"

enum {
    /* Features a GEMM takes at a time: a multiple of the depth to which OpenBLAS packs its panels
     * (256 on AVX2, 384 on AVX-512), so that blocking costs no extra pass over the output. */
    RK_DECODE_DEPTH = 768,
    /* Up to this many latent points the row loop is faster than a GEMM, which first packs A. */
    RK_DECODE_FEW = 12,
    RK_MOST_BOXES = 64
};

/* Products with a matrix A (K, M) of doubles or, `_single`, of floats; sums are of doubles. */
typedef struct {
    /* out[i] (M) += row i of Z (n, K; row stride ldz) times A, for a few rows */
    void (*rows_to)(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, const double *A,
                    ptrdiff_t M, double *const *out);
    void (*rows_to_single)(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, const float *A,
                           ptrdiff_t M, double *const *out);
    /* out (K) = A u, u (M) */
    void (*adjoint)(const double *A, ptrdiff_t K, ptrdiff_t M, const double *u, double *out);
    void (*adjoint_single)(const float *A, ptrdiff_t K, ptrdiff_t M, const double *u, double *out);
    /* x (n) in single precision, and out (n) += x */
    void (*to_single)(const double *x, ptrdiff_t n, float *out);
    void (*add_single)(const float *x, ptrdiff_t n, double *out);
    /* The squared distance of y (d) from the nearest of n <= RK_MOST_BOXES boxes low, high (d, n), with weighted
     * coordinates */
    double (*box_distance)(const double *y, const double *weight, ptrdiff_t d, const double *low, const double *high,
                           ptrdiff_t n);
} rk_decode_table;
RK_TABLES(decode)

#endif
