/* Eight float64 lanes, one trajectory (or field) a lane, for kernels whose loops run along dependent
 * cells. Plain loops over lanes are not enough: min, select and "any lane" must become one instruction
 * each, and compilers see that only in some contexts. Every operation is the correctly rounded IEEE
 * one, so results do not depend on the instruction level. */
#ifndef RK_LANES_H
#define RK_LANES_H
#include <math.h>
#include <string.h>

enum { RK_LANES = 8 };

#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512d rk_native;
static inline rk_native native_min(rk_native a, rk_native b) { return _mm512_min_pd(a, b); }
static inline rk_native native_max(rk_native a, rk_native b) { return _mm512_max_pd(a, b); }
static inline rk_native native_sqrt(rk_native a) { return _mm512_sqrt_pd(a); }
static inline rk_native native_if_less(rk_native x, rk_native y, rk_native a, rk_native b)
{
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(x, y, _CMP_LT_OQ), b, a);
}
static inline int native_any_less(rk_native x, rk_native y)
{
    return _mm512_cmp_pd_mask(x, y, _CMP_LT_OQ);
}
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256d rk_native;
static inline rk_native native_min(rk_native a, rk_native b) { return _mm256_min_pd(a, b); }
static inline rk_native native_max(rk_native a, rk_native b) { return _mm256_max_pd(a, b); }
static inline rk_native native_sqrt(rk_native a) { return _mm256_sqrt_pd(a); }
static inline rk_native native_if_less(rk_native x, rk_native y, rk_native a, rk_native b)
{
    return _mm256_blendv_pd(b, a, _mm256_cmp_pd(x, y, _CMP_LT_OQ));
}
static inline int native_any_less(rk_native x, rk_native y)
{
    return _mm256_movemask_pd(_mm256_cmp_pd(x, y, _CMP_LT_OQ));
}
#else
typedef double rk_native __attribute__((vector_size(16)));
typedef long long rk_native_mask __attribute__((vector_size(16)));
static inline rk_native native_if_less(rk_native x, rk_native y, rk_native a, rk_native b)
{
    const rk_native_mask less = x < y;
    return (rk_native)((less & (rk_native_mask)a) | (~less & (rk_native_mask)b));
}
static inline int native_any_less(rk_native x, rk_native y)
{
    const rk_native_mask less = x < y;
    return (less[0] | less[1]) != 0;
}
static inline rk_native native_min(rk_native a, rk_native b) { return native_if_less(a, b, a, b); }
static inline rk_native native_max(rk_native a, rk_native b) { return native_if_less(b, a, a, b); }
static inline rk_native native_sqrt(rk_native a) { return (rk_native){sqrt(a[0]), sqrt(a[1])}; }
#endif

enum { RK_PARTS = RK_LANES * sizeof(double) / sizeof(rk_native) };
typedef struct {
    rk_native part[RK_PARTS];
} lanes;

#define RK_EACH_PART(expression)                                                                   \
    lanes r;                                                                                       \
    _Pragma("GCC unroll 4") for (int k = 0; k < RK_PARTS; k++) r.part[k] = (expression);           \
    return r

static inline lanes lanes_load(const double *x)
{
    lanes r;
    memcpy(&r, x, sizeof r);
    return r;
}
static inline void lanes_store(double *x, lanes a) { memcpy(x, &a, sizeof a); }
static inline lanes lanes_all(double x) { RK_EACH_PART((rk_native){0} + x); }
static inline lanes add(lanes a, lanes b) { RK_EACH_PART(a.part[k] + b.part[k]); }
static inline lanes sub(lanes a, lanes b) { RK_EACH_PART(a.part[k] - b.part[k]); }
static inline lanes mul(lanes a, lanes b) { RK_EACH_PART(a.part[k] * b.part[k]); }
static inline lanes quotient(lanes a, lanes b) { RK_EACH_PART(a.part[k] / b.part[k]); }
static inline lanes smaller(lanes a, lanes b) { RK_EACH_PART(native_min(a.part[k], b.part[k])); }
static inline lanes larger(lanes a, lanes b) { RK_EACH_PART(native_max(a.part[k], b.part[k])); }
static inline lanes root(lanes a) { RK_EACH_PART(native_sqrt(a.part[k])); }
/* x < y ? a : b */
static inline lanes if_less(lanes x, lanes y, lanes a, lanes b)
{
    RK_EACH_PART(native_if_less(x.part[k], y.part[k], a.part[k], b.part[k]));
}
static inline int any_less(lanes x, lanes y)
{
    int any = 0;
    _Pragma("GCC unroll 4") for (int k = 0; k < RK_PARTS; k++)
        any |= native_any_less(x.part[k], y.part[k]);
    return any;
}

#endif
