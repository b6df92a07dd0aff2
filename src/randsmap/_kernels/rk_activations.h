/* Activations of random features. A new one is an entry of the list, its value and its slope: nothing
 * else in the kernels names them, and the module `features` gets its number under the list's name. */
#ifndef RK_ACTIVATIONS_H
#define RK_ACTIVATIONS_H
#include "rk_vecmath_inline.h"
#include <math.h>

#define RK_FOR_ACTIVATIONS(X) X(COSINE) X(LOGISTIC)

#define RK_ENUMERATE(name) RK_##name,
enum rk_activation { RK_FOR_ACTIVATIONS(RK_ENUMERATE) RK_ACTIVATIONS };

static inline const char *rk_activation_name(int activation)
{
#define RK_STRING(name) #name,
    static const char *const names[] = {RK_FOR_ACTIVATIONS(RK_STRING)};
    return names[activation];
}

/* Without branches within the reach: the loops over it become SIMD code. */
RK_INLINE double rk_activation_value(int activation, double t)
{
    switch ((enum rk_activation)activation) {
    case RK_COSINE: return rk_cos(t);
    case RK_LOGISTIC: return rk_logistic(t);
    case RK_ACTIVATIONS: break; /* no activation: its number is how many there are */
    }
    return NAN;
}

RK_INLINE double rk_activation_slope(int activation, double t)
{
    switch ((enum rk_activation)activation) {
    case RK_COSINE: return rk_minus_sin(t);
    case RK_LOGISTIC: return rk_logistic_slope(t);
    case RK_ACTIVATIONS: break; /* no activation: its number is how many there are */
    }
    return NAN;
}

/* Up to this |t| the functions above are right; beyond it those below, which are slow. */
RK_INLINE double rk_activation_reach(int activation)
{
    return activation == RK_COSINE ? RK_COS_REACH : INFINITY;
}

RK_INLINE double rk_activation_value_far(int activation, double t)
{
    return activation == RK_COSINE && !(fabs(t) <= RK_COS_REACH) ? cos(t)
                                                                 : rk_activation_value(activation, t);
}

RK_INLINE double rk_activation_slope_far(int activation, double t)
{
    return activation == RK_COSINE && !(fabs(t) <= RK_COS_REACH) ? -sin(t)
                                                                 : rk_activation_slope(activation, t);
}

/* out = scale * value(t), or slope(t), for arguments however large; activation and `slope` are constants. */
RK_INLINE void rk_activation_row(int activation, int slope, const double *t, ptrdiff_t m, double scale,
                                 double *restrict out)
{
    const double reach = rk_activation_reach(activation);
    ptrdiff_t beyond = 0;
    if (reach < INFINITY) {
#pragma omp simd reduction(+ : beyond)
        for (ptrdiff_t k = 0; k < m; k++)
            beyond += !(fabs(t[k]) <= reach);
    }
    if (beyond) {
        for (ptrdiff_t k = 0; k < m; k++)
            out[k] = scale * (slope ? rk_activation_slope_far(activation, t[k])
                                    : rk_activation_value_far(activation, t[k]));
    } else {
#pragma omp simd
        for (ptrdiff_t k = 0; k < m; k++)
            out[k] = scale * (slope ? rk_activation_slope(activation, t[k])
                                    : rk_activation_value(activation, t[k]));
    }
}

#endif
