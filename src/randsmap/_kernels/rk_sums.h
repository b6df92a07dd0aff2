/* Sums of which every instruction level gives the same bits: 16 interleaved lanes, and what
 * compensated sums are made of. For files compiled without contraction. */
#ifndef RK_SUMS_H
#define RK_SUMS_H
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 8
#elif defined(__AVX2__) && defined(__FMA__)
#define WIDTH 4
#else
#define WIDTH 2
#endif
enum { LANES = 16, VECTORS = LANES / WIDTH };
typedef double vec __attribute__((vector_size(8 * WIDTH)));
typedef int64_t ivec __attribute__((vector_size(8 * WIDTH)));

static inline vec load(const double *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline vec absolute(vec v)
{
    return (vec)((ivec)v & INT64_MAX);
}

/* a * b - p for p = fl(a * b), exactly (barring under- and overflow). */
static inline vec product_error(vec a, vec b, vec p)
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)p);
#elif defined(__AVX2__) && defined(__FMA__)
    return (vec)_mm256_fmsub_pd((__m256d)a, (__m256d)b, (__m256d)p);
#else
    /* Dekker 1971: halves of 26 bits multiply without error */
    const double split = 134217729.0; /* 2^27 + 1 */
    vec ta = split * a, tb = split * b;
    vec ah = ta - (ta - a), bh = tb - (tb - b);
    vec al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}

/* s + x = sum + error exactly (Knuth's two-sum). */
#define TWO_SUM(sum, error, s, x)                                                                  \
    do {                                                                                           \
        (sum) = (s) + (x);                                                                         \
        __typeof__(sum) z_ = (sum) - (s);                                                          \
        (error) = ((s) - ((sum) - z_)) + ((x) - z_);                                               \
    } while (0)

#endif
