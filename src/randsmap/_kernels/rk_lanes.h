/* Eight float64 lanes (one with RK_SINGLE_LANE), one trajectory or field a lane, for kernels whose
 * loops run along dependent cells. Plain loops over lanes are not enough: min, select and "any
 * lane" must become one instruction each, and compilers see that only in some contexts. (Registers
 * of 512 bits would not help: roots and divisions take twice the time in them.) Every operation is
 * the correctly rounded IEEE one, so results do not depend on the instruction level. */
#ifndef RK_LANES_H
#define RK_LANES_H
#include <math.h>
#include <stddef.h>

#ifdef RK_SINGLE_LANE
enum { RK_LANES = 1 };
typedef double rk_native;
static inline rk_native native_if_less(rk_native x, rk_native y, rk_native a, rk_native b)
{
    return x < y ? a : b;
}
static inline int native_any_less(rk_native x, rk_native y) { return x < y; }
static inline rk_native native_min(rk_native a, rk_native b) { return a < b ? a : b; }
static inline rk_native native_max(rk_native a, rk_native b) { return a > b ? a : b; }
static inline rk_native native_sqrt(rk_native a) { return sqrt(a); }
#else
enum { RK_LANES = 8 };
#if defined(__AVX2__)
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
#endif

/* The parts are members with names, not an array: compilers keep those in registers. */
#if defined(RK_SINGLE_LANE)
typedef struct {
    rk_native a;
} lanes;
#define RK_PART_BY_PART(f) f(a, 0)
#elif defined(__AVX2__)
typedef struct {
    rk_native a, b;
} lanes;
#define RK_PART_BY_PART(f) f(a, 0), f(b, 4)
#else
typedef struct {
    rk_native a, b, c, d;
} lanes;
#define RK_PART_BY_PART(f) f(a, 0), f(b, 2), f(c, 4), f(d, 6)
#endif
typedef rk_native rk_unaligned __attribute__((aligned(sizeof(double)), may_alias));

#define RK_LANEWISE(f) return (lanes) { RK_PART_BY_PART(f) }

static inline lanes lanes_load(const double *from)
{
#define LOAD(part, offset) *(const rk_unaligned *)(from + offset)
    RK_LANEWISE(LOAD);
#undef LOAD
}
static inline void lanes_store(double *to, lanes x)
{
#define STORE(part, offset) (*(rk_unaligned *)(to + offset) = x.part)
    RK_PART_BY_PART(STORE);
#undef STORE
}
static inline lanes lanes_all(double x)
{
#define OP(part, offset) (rk_native){0} + x
    RK_LANEWISE(OP);
#undef OP
}
static inline lanes add(lanes x, lanes y)
{
#define OP(part, offset) x.part + y.part
    RK_LANEWISE(OP);
#undef OP
}
static inline lanes sub(lanes x, lanes y)
{
#define OP(part, offset) x.part - y.part
    RK_LANEWISE(OP);
#undef OP
}
static inline lanes mul(lanes x, lanes y)
{
#define OP(part, offset) x.part * y.part
    RK_LANEWISE(OP);
#undef OP
}
static inline lanes quotient(lanes x, lanes y)
{
#define OP(part, offset) x.part / y.part
    RK_LANEWISE(OP);
#undef OP
}
static inline lanes smaller(lanes x, lanes y)
{
#define OP(part, offset) native_min(x.part, y.part)
    RK_LANEWISE(OP);
#undef OP
}
static inline lanes larger(lanes x, lanes y)
{
#define OP(part, offset) native_max(x.part, y.part)
    RK_LANEWISE(OP);
#undef OP
}
static inline lanes root(lanes x)
{
#define OP(part, offset) native_sqrt(x.part)
    RK_LANEWISE(OP);
#undef OP
}
/* x < y ? u : v */
static inline lanes if_less(lanes x, lanes y, lanes u, lanes v)
{
#define OP(part, offset) native_if_less(x.part, y.part, u.part, v.part)
    RK_LANEWISE(OP);
#undef OP
}
static inline int any_less(lanes x, lanes y)
{
#define ANY(part, offset) native_any_less(x.part, y.part)
    const int any[] = {RK_PART_BY_PART(ANY)};
#undef ANY
    int result = 0;
    for (size_t k = 0; k < sizeof any / sizeof any[0]; k++)
        result |= any[k];
    return result;
}

/* n cells of RK_LANES fields <-> cells with the lanes innermost. */
#if defined(__AVX2__) && !defined(RK_SINGLE_LANE)
static inline void transpose_4x4(rk_native x[4])
{
    const rk_native a = _mm256_unpacklo_pd(x[0], x[1]), b = _mm256_unpackhi_pd(x[0], x[1]);
    const rk_native c = _mm256_unpacklo_pd(x[2], x[3]), d = _mm256_unpackhi_pd(x[2], x[3]);
    x[0] = _mm256_permute2f128_pd(a, c, 0x20);
    x[1] = _mm256_permute2f128_pd(b, d, 0x20);
    x[2] = _mm256_permute2f128_pd(a, c, 0x31);
    x[3] = _mm256_permute2f128_pd(b, d, 0x31);
}
#endif

static inline void lanes_from_fields(const double *const fields[RK_LANES], ptrdiff_t n,
                                     double *cells)
{
    ptrdiff_t k = 0;
#if defined(__AVX2__) && !defined(RK_SINGLE_LANE)
    for (; k + 4 <= n; k += 4)
        for (int half = 0; half < RK_LANES; half += 4) {
            rk_native x[4];
            for (int l = 0; l < 4; l++)
                x[l] = _mm256_loadu_pd(fields[half + l] + k);
            transpose_4x4(x);
            for (int l = 0; l < 4; l++)
                _mm256_storeu_pd(cells + (k + l) * RK_LANES + half, x[l]);
        }
#endif
    for (; k < n; k++)
        for (int l = 0; l < RK_LANES; l++)
            cells[k * RK_LANES + l] = fields[l][k];
}

/* Only the first n_fields of the fields are written. */
static inline void fields_from_lanes(const double *cells, ptrdiff_t n, ptrdiff_t n_fields,
                                     double *const fields[RK_LANES])
{
    ptrdiff_t k = 0;
#if defined(__AVX2__) && !defined(RK_SINGLE_LANE)
    for (; n_fields == RK_LANES && k + 4 <= n; k += 4)
        for (int half = 0; half < RK_LANES; half += 4) {
            rk_native x[4];
            for (int l = 0; l < 4; l++)
                x[l] = _mm256_loadu_pd(cells + (k + l) * RK_LANES + half);
            transpose_4x4(x);
            for (int l = 0; l < 4; l++)
                _mm256_storeu_pd(fields[half + l] + k, x[l]);
        }
#endif
    for (; k < n; k++)
        for (ptrdiff_t l = 0; l < n_fields; l++)
            fields[l][k] = cells[k * RK_LANES + l];
}

#endif
