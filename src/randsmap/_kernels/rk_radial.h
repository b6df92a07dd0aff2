/* Radial kernels g(t) of t = scale |x - z|^2. A new one is an entry of the list, its value and its slope:
 * nothing else in the kernels names them, and the module `distances` gets its number under the list's name.
 * The first is t itself. */
#ifndef RK_RADIAL_H
#define RK_RADIAL_H
#include "rk_vecmath_inline.h"
#include <math.h>

#define RK_FOR_RADIALS(X)                                                                          \
    X(SQUARED_DISTANCE) X(GAUSSIAN) X(MATERN_12) X(MATERN_32) X(MATERN_52) X(THIN_PLATE)

#define RK_ENUMERATE_RADIAL(name) RK_##name,
enum rk_radial { RK_FOR_RADIALS(RK_ENUMERATE_RADIAL) RK_RADIALS };

static inline const char *rk_radial_name(int radial)
{
#define RK_RADIAL_STRING(name) #name,
    static const char *const names[] = {RK_FOR_RADIALS(RK_RADIAL_STRING)};
    return names[radial];
}

/* Smaller magnitudes become 0, which keeps subnormal numbers out of products. */
#define RK_RADIAL_SMALLEST 1e-300
/* log(RK_RADIAL_SMALLEST) */
#define RK_RADIAL_FLUSH (-690.7755278982137)

/* e^x for x <= 0 */
RK_INLINE double rk_exp_flushed(double x)
{
    double k = rk_exp_normal(x < RK_RADIAL_FLUSH ? RK_RADIAL_FLUSH : x);
    return x < RK_RADIAL_FLUSH ? 0 : k;
}

/* s = sqrt(t), and e^-s. Polynomials times e^-s are below RK_RADIAL_SMALLEST where s is cut off, which keeps
 * them finite. */
RK_INLINE double rk_exp_of_root(double t, double *s)
{
    double root = sqrt(t);
    *s = root < 708 ? root : 708;
    return rk_exp_normal(-*s);
}

/* of k >= 0 */
RK_INLINE double rk_flushed(double k)
{
    return k < RK_RADIAL_SMALLEST ? 0 : k;
}

/* Without branches: the loops over it become SIMD code. t >= 0 may be infinite. */
RK_INLINE double rk_radial_value(int radial, double t)
{
    double s, e;
    switch ((enum rk_radial)radial) {
    case RK_SQUARED_DISTANCE: return t;
    case RK_GAUSSIAN: return rk_exp_flushed(-t);
    case RK_MATERN_12: e = rk_exp_of_root(t, &s); return rk_flushed(e);
    case RK_MATERN_32: e = rk_exp_of_root(t, &s); return rk_flushed((1 + s) * e);
    case RK_MATERN_52: e = rk_exp_of_root(t, &s); return rk_flushed((1 + s * (1 + s * (1. / 3))) * e);
    case RK_THIN_PLATE: /* sqrt(t)^2 log sqrt(t) */
        e = rk_log(t < RK_RADIAL_SMALLEST ? RK_RADIAL_SMALLEST : t);
        return t < RK_RADIAL_SMALLEST ? 0 : 0.5 * t * e;
    case RK_RADIALS: break; /* no kernel: its number is how many there are */
    }
    return NAN;
}

/* 2 g'(t), so that the gradient in x is that times scale (x - z); 0 where t = 0 and g has none. */
RK_INLINE double rk_radial_slope(int radial, double t)
{
    double s, e;
    switch ((enum rk_radial)radial) {
    case RK_SQUARED_DISTANCE: return 2;
    case RK_GAUSSIAN: return -2 * rk_exp_flushed(-t);
    case RK_MATERN_12: e = rk_exp_of_root(t, &s); return -rk_flushed(s > 0 ? e / s : 0);
    case RK_MATERN_32: e = rk_exp_of_root(t, &s); return -rk_flushed(e);
    case RK_MATERN_52: e = rk_exp_of_root(t, &s); return rk_flushed((1 + s) * e) * (-1. / 3);
    case RK_THIN_PLATE:
        e = rk_log(t < RK_RADIAL_SMALLEST ? RK_RADIAL_SMALLEST : t);
        return t < RK_RADIAL_SMALLEST ? 0 : e + 1;
    case RK_RADIALS: break; /* no kernel: its number is how many there are */
    }
    return NAN;
}

#endif
