#include "rk_features.h"
#include <math.h>

static inline double act(int activation, double t)
{
    return activation == RK_COSINE ? cos(t) : 1 / (1 + exp(-t));
}

static void fused(int activation, const double *Y, ptrdiff_t n, ptrdiff_t d, const double *W,
                  const double *b, ptrdiff_t P, double scale, double *out, ptrdiff_t ld)
{
    RK_ASSERT(d >= 1 && d <= RK_FUSED_DIM);
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t k = 0; k < P; k++) {
            double t = b[k];
            for (ptrdiff_t j = 0; j < d; j++)
                t += Y[i * d + j] * W[j * P + k];
            out[i * ld + k] = scale * act(activation, t);
        }
}

static void activate(int activation, const double *b, ptrdiff_t n, ptrdiff_t P, double scale,
                     double *out, ptrdiff_t ld)
{
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t k = 0; k < P; k++)
            out[i * ld + k] = scale * act(activation, out[i * ld + k] + b[k]);
}

const rk_features_table RK_TABLE(features) = {.fused = fused, .activate = activate};
