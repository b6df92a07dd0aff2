/* Random feature maps: out[i, k] = scale * act(Y[i] . W[:, k] + b[k]),
 * act by its number in rk_activations.h. */
#ifndef RK_FEATURES_H
#define RK_FEATURES_H
#include "rk_activations.h"

/* Largest latent dimension of the fused loops; above it the caller forms Y W by GEMM first. */
enum { RK_FUSED_DIM = 16 };

typedef struct {
    /* Y (n, d), W (d, P), b (P), out (n, P) with row stride ld. d <= RK_FUSED_DIM. */
    void (*fused)(int activation, const double *Y, ptrdiff_t n, ptrdiff_t d, const double *W,
                  const double *b, ptrdiff_t P, double scale, double *out, ptrdiff_t ld);
    /* out holds Y W on entry. */
    void (*activate)(int activation, const double *b, ptrdiff_t n, ptrdiff_t P, double scale,
                     double *out, ptrdiff_t ld);
    /* The same in double precision inside, rounded once to a single-precision out. */
    void (*fused_single)(int activation, const double *Y, ptrdiff_t n, ptrdiff_t d, const double *W,
                         const double *b, ptrdiff_t P, double scale, float *out, ptrdiff_t ld);
    /* YW (n, P), contiguous. */
    void (*activate_single)(int activation, const double *b, const double *YW, ptrdiff_t n,
                            ptrdiff_t P, double scale, float *out, ptrdiff_t ld);
} rk_features_table;
RK_TABLES(features)

#endif
