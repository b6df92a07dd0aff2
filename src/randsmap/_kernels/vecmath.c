#include "rk_vecmath.h"
#include <math.h>

static void vec_cos(const double *x, double *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = cos(x[i]);
}

static void vec_exp(const double *x, double *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = exp(x[i]);
}

static void vec_logistic(const double *x, double *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = 1 / (1 + exp(-x[i]));
}

const rk_vecmath_table RK_TABLE(vecmath) = {
    .cos = vec_cos, .exp = vec_exp, .logistic = vec_logistic};
