/* Decoding f(y) = [1 | phi(y)] A of a few latent points, A read once from memory. */
#ifndef RK_DECODE_H
#define RK_DECODE_H
#include "rk_dispatch.h"

enum {
    /* Features a GEMM takes at a time: a multiple of the depth to which OpenBLAS packs its panels
     * (256 on AVX2, 384 on AVX-512), so that blocking costs no extra pass over the output. */
    RK_DECODE_DEPTH = 768,
    /* Up to this many latent points the row loop is faster than a GEMM, which first packs A. */
    RK_DECODE_FEW = 12
};

typedef struct {
    /* out (n, M) += Z (n, K; row stride ldz) A (K, M), for a few rows */
    void (*rows)(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, const double *A,
                 ptrdiff_t M, double *out);
} rk_decode_table;
RK_TABLES(decode)

#endif
