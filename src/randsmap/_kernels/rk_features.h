/* Random feature maps: out[i, k] = scale * act(Y[i] . W[:, k] + b[k]),
 * act by its number in rk_activations.h. */
#ifndef RK_FEATURES_H
#define RK_FEATURES_H
#include "rk_activations.h"

/* No product of matrices: a row's features do not depend on the other rows. */
typedef struct {
    /* Y (n, d), W (d, P), b (P), out (n, P) with row stride ld. */
    void (*fused)(int activation, const double *Y, ptrdiff_t n, ptrdiff_t d, const double *W,
                  const double *b, ptrdiff_t P, double scale, double *out, ptrdiff_t ld);
} rk_features_table;
RK_TABLES(features)

#endif
