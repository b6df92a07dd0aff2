/* Derivatives of features with respect to the latent point.
 *
 * The gradient of a feature is a slope times a vector: of act(y . w_k + b_k) it is act' w_k, of a
 * radial kernel g(|x - z_k|^2) it is 2 g' (x - z_k). Everything here takes the slopes S (n, P), and Z
 * (d, P), which are the weights if X is NULL, else the points z_k (one a column) of X (n, d). */
#ifndef RK_GRADIENTS_H
#define RK_GRADIENTS_H
#include "rk_activations.h"

typedef struct {
    /* S[i, k] = scale * act'(Y[i] . W[:, k] + b[k]); activations as in rk_activations.h */
    void (*slopes)(int activation, const double *Y, ptrdiff_t n, ptrdiff_t d, const double *W,
                   const double *b, ptrdiff_t P, double scale, double *S);
    /* out[i, k]: derivative of feature k along V[i]; out may be S */
    void (*directional)(const double *S, const double *X, const double *Z, const double *V,
                        ptrdiff_t n, ptrdiff_t d, ptrdiff_t P, double *out);
    /* out[i, j] = sum_k H[i, k] times the derivative of feature k in coordinate j */
    void (*contract)(const double *S, const double *X, const double *Z, const double *H,
                     ptrdiff_t n, ptrdiff_t d, ptrdiff_t P, double *out);
} rk_gradients_table;
RK_TABLES(gradients)

#endif
