/* The vector layer: a register of RK_WIDTH doubles at any instruction level, by the vector extensions of GCC and Clang
 * (operators work on rk_vec). Only this file has intrinsics, for operations that the extensions cannot express or
 * compilers do not recognise. Every operation is the correctly rounded IEEE one, so results do not depend on the level
 * unless a sum is taken in another order.
 *
 * A file that wants narrower registers defines RK_WIDTH_MAX before including this: 4 where roots and
 * divisions dominate (they take twice the time in 512 bits), 1 for plain doubles. */
#ifndef RK_SIMD_H
#define RK_SIMD_H
#include "rk_dispatch.h"
#include <math.h>
#include <string.h>
#ifndef RK_EXTENSIONS
#elif defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef RK_EXTENSIONS
#undef RK_WIDTH_MAX
#define RK_WIDTH_MAX 1
#endif
#ifndef RK_WIDTH_MAX
#define RK_WIDTH_MAX 8
#endif
#if defined(__AVX512F__) && RK_WIDTH_MAX >= 8
#define RK_WIDTH 8
#elif defined(__AVX2__) && defined(__FMA__) && RK_WIDTH_MAX >= 4
#define RK_WIDTH 4
#elif RK_WIDTH_MAX >= 2
#define RK_WIDTH 2
#else
#define RK_WIDTH 1
#endif

/* rk_mask: what comparisons give, combined by & and |; AVX-512 has registers of their own for it. */
#if RK_WIDTH == 1
typedef double rk_vec;
typedef int64_t rk_ivec;
typedef int rk_mask;
#else
typedef double rk_vec __attribute__((vector_size(8 * RK_WIDTH)));
typedef int64_t rk_ivec __attribute__((vector_size(8 * RK_WIDTH)));
#if RK_WIDTH == 8
typedef __mmask8 rk_mask;
#else
typedef rk_ivec rk_mask;
#endif
#endif

RK_INLINE rk_vec v_load(const double *p)
{
    rk_vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

RK_INLINE void v_store(double *p, rk_vec v)
{
    memcpy(p, &v, sizeof v);
}

RK_INLINE rk_vec v_all(double x)
{
#if RK_WIDTH == 1
    return x;
#else
    return x - (rk_vec){0}; /* a sum would turn -0 into 0 */
#endif
}

#if RK_WIDTH == 8
RK_INLINE rk_mask v_less(rk_vec a, rk_vec b)
{
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ);
}
RK_INLINE rk_mask v_less_equal(rk_vec a, rk_vec b)
{
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LE_OQ);
}
RK_INLINE rk_mask v_equal(rk_vec a, rk_vec b)
{
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_EQ_OQ);
}
RK_INLINE rk_vec v_select(rk_mask m, rk_vec a, rk_vec b)
{
    return (rk_vec)_mm512_mask_blend_pd(m, (__m512d)b, (__m512d)a);
}
RK_INLINE rk_vec v_min(rk_vec a, rk_vec b) { return (rk_vec)_mm512_min_pd((__m512d)a, (__m512d)b); }
RK_INLINE rk_vec v_max(rk_vec a, rk_vec b) { return (rk_vec)_mm512_max_pd((__m512d)a, (__m512d)b); }
RK_INLINE rk_vec v_sqrt(rk_vec a) { return (rk_vec)_mm512_sqrt_pd((__m512d)a); }
RK_INLINE unsigned v_bits(rk_mask m) { return m; }
#elif RK_WIDTH == 4
RK_INLINE rk_mask v_less(rk_vec a, rk_vec b)
{
    return (rk_mask)_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_LT_OQ);
}
RK_INLINE rk_mask v_less_equal(rk_vec a, rk_vec b)
{
    return (rk_mask)_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_LE_OQ);
}
RK_INLINE rk_mask v_equal(rk_vec a, rk_vec b)
{
    return (rk_mask)_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_EQ_OQ);
}
RK_INLINE rk_vec v_select(rk_mask m, rk_vec a, rk_vec b)
{
    return (rk_vec)_mm256_blendv_pd((__m256d)b, (__m256d)a, (__m256d)m);
}
RK_INLINE rk_vec v_min(rk_vec a, rk_vec b) { return (rk_vec)_mm256_min_pd((__m256d)a, (__m256d)b); }
RK_INLINE rk_vec v_max(rk_vec a, rk_vec b) { return (rk_vec)_mm256_max_pd((__m256d)a, (__m256d)b); }
RK_INLINE rk_vec v_sqrt(rk_vec a) { return (rk_vec)_mm256_sqrt_pd((__m256d)a); }
RK_INLINE unsigned v_bits(rk_mask m) { return (unsigned)_mm256_movemask_pd((__m256d)m); }
#elif RK_WIDTH == 2
RK_INLINE rk_mask v_less(rk_vec a, rk_vec b) { return (rk_mask)(a < b); }
RK_INLINE rk_mask v_less_equal(rk_vec a, rk_vec b) { return (rk_mask)(a <= b); }
RK_INLINE rk_mask v_equal(rk_vec a, rk_vec b) { return (rk_mask)(a == b); }
RK_INLINE rk_vec v_select(rk_mask m, rk_vec a, rk_vec b)
{
    return (rk_vec)((m & (rk_ivec)a) | (~m & (rk_ivec)b));
}
#if defined(__SSE2__)
RK_INLINE rk_vec v_min(rk_vec a, rk_vec b) { return (rk_vec)_mm_min_pd((__m128d)a, (__m128d)b); }
RK_INLINE rk_vec v_max(rk_vec a, rk_vec b) { return (rk_vec)_mm_max_pd((__m128d)a, (__m128d)b); }
RK_INLINE rk_vec v_sqrt(rk_vec a) { return (rk_vec)_mm_sqrt_pd((__m128d)a); }
RK_INLINE unsigned v_bits(rk_mask m) { return (unsigned)_mm_movemask_pd((__m128d)m); }
#else
/* not the machine's minimum, which treats NaN differently from x86 */
RK_INLINE rk_vec v_min(rk_vec a, rk_vec b) { return v_select(v_less(a, b), a, b); }
RK_INLINE rk_vec v_max(rk_vec a, rk_vec b) { return v_select(v_less(b, a), a, b); }
#if defined(__aarch64__)
RK_INLINE rk_vec v_sqrt(rk_vec a) { return (rk_vec)vsqrtq_f64((float64x2_t)a); }
#else
RK_INLINE rk_vec v_sqrt(rk_vec a) { return (rk_vec){sqrt(a[0]), sqrt(a[1])}; }
#endif
RK_INLINE unsigned v_bits(rk_mask m) { return (unsigned)((m[0] & 1) | (m[1] & 2)); }
#endif
#else
RK_INLINE rk_mask v_less(rk_vec a, rk_vec b) { return a < b; }
RK_INLINE rk_vec v_select(rk_mask m, rk_vec a, rk_vec b) { return m ? a : b; }
RK_INLINE rk_vec v_min(rk_vec a, rk_vec b) { return a < b ? a : b; }
RK_INLINE rk_vec v_max(rk_vec a, rk_vec b) { return a > b ? a : b; }
RK_INLINE rk_vec v_sqrt(rk_vec a) { return sqrt(a); }
RK_INLINE unsigned v_bits(rk_mask m) { return (unsigned)m; }
#endif

/* Lane l of a register, of doubles or of integers; all bits of a lane where a == b; v where bits are set, else 0. */
#if RK_WIDTH == 1
#define v_lane(v, l) ((void)(l), (v))
RK_INLINE rk_vec v_abs(rk_vec v) { return fabs(v); }
RK_INLINE rk_ivec v_equal_bits(rk_vec a, rk_vec b) { return -(int64_t)(a == b); }
RK_INLINE rk_vec v_where(rk_ivec bits, rk_vec v) { return bits ? v : 0; }
#else
#define v_lane(v, l) ((v)[l])
RK_INLINE rk_vec v_abs(rk_vec v) { return (rk_vec)((rk_ivec)v & INT64_MAX); }
RK_INLINE rk_ivec v_equal_bits(rk_vec a, rk_vec b) { return (rk_ivec)(a == b); }
RK_INLINE rk_vec v_where(rk_ivec bits, rk_vec v) { return (rk_vec)((rk_ivec)v & bits); }
#endif

/* The largest of x or, with `magnitudes`, of |x|, n >= 1. */
RK_INLINE double v_largest(const double *x, ptrdiff_t n, int magnitudes)
{
    double largest = magnitudes ? fabs(x[0]) : x[0];
    ptrdiff_t i = 0;
    if (n >= 4 * RK_WIDTH) { /* four chains hide the latency */
        rk_vec most[4] = {v_all(largest), v_all(largest), v_all(largest), v_all(largest)};
        for (; i + 4 * RK_WIDTH <= n; i += 4 * RK_WIDTH)
            for (int k = 0; k < 4; k++) {
                const rk_vec v = v_load(x + i + k * RK_WIDTH);
                most[k] = v_max(magnitudes ? v_abs(v) : v, most[k]);
            }
        const rk_vec all = v_max(v_max(most[0], most[1]), v_max(most[2], most[3]));
        for (int l = 0; l < RK_WIDTH; l++)
            largest = v_lane(all, l) > largest ? v_lane(all, l) : largest;
    }
    for (; i < n; i++) {
        const double v = magnitudes ? fabs(x[i]) : x[i];
        largest = v > largest ? v : largest;
    }
    return largest;
}

/* -- Sums of which every instruction level gives the same bits: 16 interleaved lanes -------------- */
enum { RK_SUM_LANES = 16, RK_SUM_VECTORS = RK_SUM_LANES / RK_WIDTH };

/* sum + a b, fused where the level has it */
RK_INLINE double rk_add_product(double sum, double a, double b)
{
#if defined(__FMA__) || defined(__aarch64__)
    return fma(a, b, sum);
#else
    return sum + a * b;
#endif
}

RK_INLINE rk_vec v_add_product(rk_vec sum, rk_vec a, rk_vec b)
{
#if RK_WIDTH == 8
    return (rk_vec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)sum);
#elif RK_WIDTH == 4
    return (rk_vec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)sum);
#elif RK_WIDTH == 2 && defined(__aarch64__)
    return (rk_vec)vfmaq_f64((float64x2_t)sum, (float64x2_t)a, (float64x2_t)b);
#elif RK_WIDTH == 2 && defined(__FMA__)
    return (rk_vec)_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)sum);
#elif RK_WIDTH == 1
    return rk_add_product(sum, a, b);
#else
    return sum + a * b;
#endif
}

/* a * b - p for p = fl(a * b), exactly (barring under- and overflow). */
RK_INLINE rk_vec v_product_error(rk_vec a, rk_vec b, rk_vec p)
{
#if RK_WIDTH >= 4 || (RK_WIDTH == 2 && defined(__aarch64__))
    return v_add_product(-p, a, b);
#else
    /* Dekker 1971: halves of 26 bits multiply without error */
    const double split = 134217729.0; /* 2^27 + 1 */
    rk_vec ta = split * a, tb = split * b;
    rk_vec ah = ta - (ta - a), bh = tb - (tb - b);
    rk_vec al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}

/* RK_WIDTH floats as doubles */
RK_INLINE rk_vec v_load_floats(const float *p)
{
#if RK_WIDTH == 8
    return (rk_vec)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif RK_WIDTH == 4
    return (rk_vec)_mm256_cvtps_pd(_mm_loadu_ps(p));
#elif RK_WIDTH == 2 && defined(__SSE2__)
    return (rk_vec)_mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)p)));
#elif RK_WIDTH == 2
    return (rk_vec){p[0], p[1]};
#else
    return *p;
#endif
}

#if RK_WIDTH > 1
/* -- Registers of floats --------------------------------------------------------------------------- */
enum { RK_FLOAT_WIDTH = 2 * RK_WIDTH };
typedef float rk_vecf __attribute__((vector_size(8 * RK_WIDTH)));

/* sum + e e, fused where the level has it */
RK_INLINE rk_vecf vf_add_square(rk_vecf sum, rk_vecf e)
{
#if RK_WIDTH == 8
    return (rk_vecf)_mm512_fmadd_ps((__m512)e, (__m512)e, (__m512)sum);
#elif RK_WIDTH == 4
    return (rk_vecf)_mm256_fmadd_ps((__m256)e, (__m256)e, (__m256)sum);
#elif defined(__aarch64__)
    return (rk_vecf)vfmaq_f32((float32x4_t)sum, (float32x4_t)e, (float32x4_t)e);
#else
    return sum + e * e;
#endif
}

/* One bit a lane: !(a > b), so NaN passes. */
RK_INLINE unsigned vf_not_above(rk_vecf a, float b)
{
#if RK_WIDTH == 8
    return _mm512_cmp_ps_mask((__m512)a, _mm512_set1_ps(b), _CMP_NGT_UQ);
#elif RK_WIDTH == 4
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, _mm256_set1_ps(b), _CMP_NGT_UQ));
#elif defined(__SSE2__)
    return (unsigned)_mm_movemask_ps(_mm_cmpngt_ps((__m128)a, _mm_set1_ps(b)));
#else
    unsigned bits = 0;
    for (int l = 0; l < RK_FLOAT_WIDTH; l++)
        bits |= (unsigned)!(a[l] > b) << l;
    return bits;
#endif
}
#endif

/* s + x = sum + error exactly (Knuth's two-sum), of doubles or registers. */
#define RK_TWO_SUM(sum, error, s, x)                                                               \
    do {                                                                                           \
        (sum) = (s) + (x);                                                                         \
        RK_TYPEOF(sum) z_ = (sum) - (s);                                                          \
        (error) = ((s) - ((sum) - z_)) + ((x) - z_);                                               \
    } while (0)

#ifdef RK_EXTENSIONS
/* -- Two and four doubles, whatever the register --------------------------------------------------- */
typedef double rk_double2 __attribute__((vector_size(16)));
typedef double rk_double4 __attribute__((vector_size(32)));

#if defined(__clang__) || __GNUC__ >= 12
#define RK_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int64_t rk_index4 __attribute__((vector_size(32)));
#define RK_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (rk_index4){__VA_ARGS__})
#endif

/* Four doubles at each of a, b, c, d, transposed to p, q, r, s. Named, not in arrays: those are spilled. */
RK_INLINE void rk_transpose4(const double *a, const double *b, const double *c, const double *d, double *p,
                             double *q, double *r, double *s)
{
    rk_double4 x, y, z, w;
    memcpy(&x, a, sizeof x), memcpy(&y, b, sizeof y), memcpy(&z, c, sizeof z), memcpy(&w, d, sizeof w);
    const rk_double4 xy0 = RK_SHUFFLE(x, y, 0, 4, 2, 6), xy1 = RK_SHUFFLE(x, y, 1, 5, 3, 7);
    const rk_double4 zw0 = RK_SHUFFLE(z, w, 0, 4, 2, 6), zw1 = RK_SHUFFLE(z, w, 1, 5, 3, 7);
    x = RK_SHUFFLE(xy0, zw0, 0, 1, 4, 5), y = RK_SHUFFLE(xy1, zw1, 0, 1, 4, 5);
    z = RK_SHUFFLE(xy0, zw0, 2, 3, 6, 7), w = RK_SHUFFLE(xy1, zw1, 2, 3, 6, 7);
    memcpy(p, &x, sizeof x), memcpy(q, &y, sizeof y), memcpy(r, &z, sizeof z), memcpy(s, &w, sizeof w);
}

#else
RK_INLINE void rk_transpose4(const double *a, const double *b, const double *c, const double *d, double *p,
                             double *q, double *r, double *s)
{
    const double x[4][4] = {{a[0], b[0], c[0], d[0]}, {a[1], b[1], c[1], d[1]},
                            {a[2], b[2], c[2], d[2]}, {a[3], b[3], c[3], d[3]}};
    memcpy(p, x[0], sizeof x[0]), memcpy(q, x[1], sizeof x[1]), memcpy(r, x[2], sizeof x[2]);
    memcpy(s, x[3], sizeof x[3]);
}
#endif

/* Makes the compiler forget what the pointer p equals. Clang carries p[i - 1] over from the iteration
 * before, where it was p[i], and then cannot vectorise the loop. */
#define RK_FORGET(p) __asm__("" : "+r"(p))

/* Unrolls the loop that follows n times; all of it, before arrays become registers. */
#define RK_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define RK_UNROLL(n) RK_PRAGMA(clang loop unroll_count(n))
#define RK_UNROLL_ALL RK_PRAGMA(clang loop unroll(full))
#else
#define RK_UNROLL_ALL RK_PRAGMA(GCC unroll 16)
#define RK_UNROLL(n) RK_PRAGMA(GCC unroll n)
#endif

#endif
