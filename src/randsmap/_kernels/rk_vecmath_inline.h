/* cos, exp, log and the logistic function of one double, without branches: compilers turn a loop over them
 * into SIMD code at every level (it needs no rounding instruction and no 64-bit integer compare or
 * conversion, so SSE2 will do). Include it in a kernel's C file and mark the loop `omp simd`.
 *
 * All are within 2 ulp of the exact value (tests/test_vecmath.py measures it). FMA contraction
 * changes last bits only. Never compile this with -ffast-math: the order of operations matters. */
#ifndef RK_VECMATH_INLINE_H
#define RK_VECMATH_INLINE_H
#include "rk_dispatch.h"
#include <math.h>
#include <string.h>

/* Adding it rounds a double of magnitude below 2^51 to an integer n, which then stands, as two's
 * complement, in the low bits of the sum. */
#define RK_ROUND 0x1.8p52

RK_INLINE uint64_t rk_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

RK_INLINE double rk_from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* rk_cos is right for |x| <= RK_COS_REACH and gives NaN for NaN and infinities. Anything finite
 * beyond gets a finite wrong value or NaN: the caller must use libm there. */
#define RK_COS_REACH 1e7

#if defined(__FMA__) || defined(__aarch64__)
#define RK_HAS_FMA 1
#else
#define RK_HAS_FMA 0
#endif

/* sin(x - h pi), |x - h pi| <= pi/2, with the sign of bit 0 of `sign`, by Cody-Waite: whatever cancels
 * is exact: products of a part of 29 bits with h (24 bits) are; with FMA the first part may have 53. `low`
 * is what r lacks. */
RK_INLINE double rk_reduced_sine(double x, double h, uint64_t sign)
{
#if RK_HAS_FMA
    const double pi1 = 0x1.921fb54442d18p+1, pi2 = 0x1.1a62633p-53,
                 pi3 = 0x1.45c06e0e68948p-85;
    double s = __builtin_fma(-h, pi1, x); /* exact for |x| >= 1: a multiple of 2^-52 below 2 */
    double r = __builtin_fma(-h, pi2, s);
    double low = __builtin_fma(-h, pi3, __builtin_fma(-h, pi2, s - r));
#else
    const double pi1 = 0x1.921fb54p+1, pi2 = 0x1.10b4612p-29, pi3 = -0x1.676733bp-59,
                 pi4 = 0x1.701b839a25205p-91;
    double s = x - h * pi1;
    double a = h * pi2, u = s - a;
    double b = h * pi3, r = u - b;
    double low = (((s - u) - a) + ((u - r) - b)) - h * pi4;
#endif
    double z = r * r;
    /* minimax of (sin r - r) / r^3 in z = r^2, error 2^-61 */
    double p = 0x1.883c3203fc030p-49;
    p = p * z - 0x1.ae43dd5871d89p-41;
    p = p * z + 0x1.6123ce53bb1b9p-33;
    p = p * z - 0x1.ae6454d968eb1p-26;
    p = p * z + 0x1.71de3a52aac68p-19;
    p = p * z - 0x1.a01a01a014eb7p-13;
    p = p * z + 0x1.11111111110c9p-7;
    /* sin(r + low) = sin r + low cos r. With FMA the cubic term joins last, which saves the
     * rounding of its sum with the rest of the polynomial; without, its product would round. */
    double cube = z * r, correction = low * (1 - 0.5 * z);
#if RK_HAS_FMA
    double sine = r + (cube * -0x1.5555555555555p-3 + (cube * (p * z) + correction));
#else
    double sine = r + (cube * (p * z - 0x1.5555555555555p-3) + correction);
#endif
    return rk_from_bits(rk_bits(sine) ^ (sign << 63));
}

/* x = (n + 1/2) pi + r with |r| <= pi/2, so cos x = -(-1)^n sin r. The half-odd multiple is what keeps the
 * relative accuracy next to the zeros of cos. */
RK_INLINE double rk_cos(double x)
{
    const double inv_pi = 0x1.45f306dc9c883p-2;
    /* odd, so that the lowest bit of t is set for even n: the minus sign for free */
    const double odd_round = RK_ROUND + 1;
    double t = (x * inv_pi - 0.5) + odd_round;
    return rk_reduced_sine(x, (t - odd_round) + 0.5, rk_bits(t));
}

/* -sin x, with the reach of rk_cos: the derivative of cos. */
RK_INLINE double rk_minus_sin(double x)
{
    const double inv_pi = 0x1.45f306dc9c883p-2, odd_round = RK_ROUND + 1;
    double t = x * inv_pi + odd_round;
    return rk_reduced_sine(x, t - odd_round, rk_bits(t));
}

/* -746 and 710: beyond them e^x is 0 and inf. Defined in dispatch.c, where the loops cannot see
 * them: with literals the compiler folds the clamped branch to constants and blends, which costs
 * 60 %. */
extern const double rk_exp_bottom, rk_exp_top;

/* e^x = (1 + v) 2^n with n in the low bits of *t; returns v. For x within [-746, 710]. */
RK_INLINE double rk_exp_reduced(double x, double *t)
{
    const double inv_ln2 = 0x1.71547652b82fep+0, ln2_hi = 0x1.62e42fefa4p-1,
                 ln2_lo = -0x1.8432a1b0e2634p-43;
    *t = x * inv_ln2 + RK_ROUND;
    double n = *t - RK_ROUND;
    double r = (x - n * ln2_hi) - n * ln2_lo; /* |r| <= ln(2)/2; the first difference is exact */
    /* minimax of (e^r - 1 - r) / r^2, relative error of e^r 2^-57.9 */
    double q = 0x1.ad9dc93248a7bp-26;
    q = q * r + 0x1.28adf50832dcbp-22;
    q = q * r + 0x1.71df119e073e5p-19;
    q = q * r + 0x1.a0199966a5457p-16;
    q = q * r + 0x1.a01a0133712abp-13;
    q = q * r + 0x1.6c16c18474964p-10;
    q = q * r + 0x1.111111112600dp-7;
    q = q * r + 0x1.55555555506c4p-5;
    q = q * r + 0x1.5555555555501p-3;
    q = q * r + 0x1.000000000000ap-1;
    return r + (r * r) * q;
}

/* e^x = (1 + v) first second for x already clamped to about [-746, 710]. The scale 2^n comes in two
 * factors, so that the first is a normal number down to the last denormal and up to overflow:
 * 2^(n-1) * 2, or 2^(n+64) * 2^-64; the product with the second is the only one that rounds. */
RK_INLINE double rk_exp_parts(double x, double *first, double *second)
{
    double t, v = rk_exp_reduced(x, &t);
    uint64_t tiny = x < -700. ? 65 : 0; /* written so that no blend is needed: those are slow */
    *first = rk_from_bits((rk_bits(t) + 1022 + tiny) << 52);
    *second = rk_from_bits(rk_bits(2.) - (tiny << 52));
    return v;
}

/* e^x for x known to be within [-708, 709]: the result and 2^n are normal numbers. */
RK_INLINE double rk_exp_normal(double x)
{
    double t, v = rk_exp_reduced(x, &t);
    return (1 + v) * rk_from_bits((rk_bits(t) + 1023) << 52);
}

/* Overflows to inf and underflows gradually, to 0 below -745.13...; NaN stays NaN. */
RK_INLINE double rk_exp(double x)
{
    x = x > rk_exp_top ? rk_exp_top : x;
    x = x < rk_exp_bottom ? rk_exp_bottom : x;
    double first, second, v = rk_exp_parts(x, &first, &second);
    return ((1 + v) * first) * second;
}

/* log(x) for a normal x > 0: x = (1 + f) 2^k with 1 + f in [1/sqrt 2, sqrt 2) to round-off, and log(1 + f)
 * = 2 atanh(s) = f - s (f - R), s = f / (2 + f), R = 2 s^2 / 3 + 2 s^4 / 5 + ... */
RK_INLINE double rk_log(double x)
{
    const double ln2_hi = 0x1.62e42fefa4p-1, ln2_lo = -0x1.8432a1b0e2634p-43;
    const uint64_t root_half = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000, mantissa = 0xfffffffffffff;
    uint64_t u = rk_bits(x) + (one - root_half);
    /* u >> 52 is k + 1023; in the low bits of 2^52 it becomes a double */
    double k = rk_from_bits(u >> 52 | rk_bits(0x1p52)) - (0x1p52 + 1023);
    double f = rk_from_bits((u & mantissa) + root_half) - 1;
    double s = f / (2 + f), z = s * s;
    /* minimax of R / z in z, relative error of the logarithm 2^-59.5 */
    double p = 0x1.2f0634596ccf8p-3;
    p = p * z + 0x1.39a1a70c4652ap-3;
    p = p * z + 0x1.74663fa07a01fp-3;
    p = p * z + 0x1.c71c520615de0p-3;
    p = p * z + 0x1.24924941f4e05p-2;
    p = p * z + 0x1.999999997fd7ap-2;
    p = p * z + 0x1.5555555555592p-1;
    return k * ln2_hi + (f - (s * (f - p * z) - k * ln2_lo)); /* the first product is exact */
}

/* 1 / (1 + e^-x), as e^x / (1 + e^x) for negative x: no overflow, and full relative accuracy down
 * to the denormals. */
RK_INLINE double rk_logistic(double x)
{
    double a = rk_from_bits(rk_bits(x) | (uint64_t) 1 << 63); /* -|x| */
    a = a < rk_exp_bottom ? rk_exp_bottom : a;
    double first, second, v = rk_exp_parts(a, &first, &second);
    double w = 1 + v, scale = first * second, e = w * scale;
    uint64_t negative = -(rk_bits(x) >> 63); /* all bits */
    double numerator = rk_from_bits(rk_bits(1.) ^ ((rk_bits(1.) ^ rk_bits(e)) & negative));
    /* The denominator 1 + scale + scale v is rounded once, and absorbs what the rounding of w took
     * from a numerator e (three roundings in a row would exceed 2 ulp). */
    double lost = rk_from_bits(rk_bits(v - (w - 1)) & negative);
    double one_scale = 1 + scale;
    return numerator / (one_scale + (scale * v - lost * one_scale));
}

/* The derivative of the logistic function, s (1 - s) = e / (1 + e)^2 with e = e^-|x|: no overflow, no
 * cancellation. */
RK_INLINE double rk_logistic_slope(double x)
{
    double e = rk_exp(rk_from_bits(rk_bits(x) | (uint64_t) 1 << 63));
    return e / ((1 + e) * (1 + e));
}

#endif
