/* Eight float64 lanes, one trajectory or field a lane, for kernels whose loops run along dependent
 * cells; with RK_WIDTH_MAX 1, one lane. Lanes do not influence one another, to the last bit. */
#ifndef RK_LANES_H
#define RK_LANES_H
#include "rk_simd.h"

/* The parts are named members instead of an array, so that compilers keep them in registers. */
#if RK_WIDTH == 1
enum { RK_LANES = 1 };
typedef struct {
    rk_vec a;
} lanes;
#define RK_PART_BY_PART(f) f(a, 0)
#else
enum { RK_LANES = 8 };
#if RK_WIDTH == 4
typedef struct {
    rk_vec a, b;
} lanes;
#define RK_PART_BY_PART(f) f(a, 0), f(b, 4)
#else
typedef struct {
    rk_vec a, b, c, d;
} lanes;
#define RK_PART_BY_PART(f) f(a, 0), f(b, 2), f(c, 4), f(d, 6)
#endif
#endif

#define LOAD(part, offset) v_load(from + offset)
#define STORE(part, offset) v_store(to + offset, x.part)
#define ALL(part, offset) v_all(x)
#define ADD(part, offset) x.part + y.part
#define SUB(part, offset) x.part - y.part
#define MUL(part, offset) x.part * y.part
#define DIV(part, offset) x.part / y.part
#define MIN(part, offset) v_min(x.part, y.part)
#define MAX(part, offset) v_max(x.part, y.part)
#define SQRT(part, offset) v_sqrt(x.part)
#define IF_LESS(part, offset) v_select(v_less(x.part, y.part), u.part, v.part)
#define LESS(part, offset) v_bits(v_less(x.part, y.part))

RK_INLINE lanes lanes_load(const double *from) { return (lanes){RK_PART_BY_PART(LOAD)}; }
RK_INLINE void lanes_store(double *to, lanes x) { RK_PART_BY_PART(STORE); }
RK_INLINE lanes lanes_all(double x) { return (lanes){RK_PART_BY_PART(ALL)}; }
RK_INLINE lanes add(lanes x, lanes y) { return (lanes){RK_PART_BY_PART(ADD)}; }
RK_INLINE lanes sub(lanes x, lanes y) { return (lanes){RK_PART_BY_PART(SUB)}; }
RK_INLINE lanes mul(lanes x, lanes y) { return (lanes){RK_PART_BY_PART(MUL)}; }
RK_INLINE lanes quotient(lanes x, lanes y) { return (lanes){RK_PART_BY_PART(DIV)}; }
RK_INLINE lanes smaller(lanes x, lanes y) { return (lanes){RK_PART_BY_PART(MIN)}; }
RK_INLINE lanes larger(lanes x, lanes y) { return (lanes){RK_PART_BY_PART(MAX)}; }
RK_INLINE lanes root(lanes x) { return (lanes){RK_PART_BY_PART(SQRT)}; }
/* x < y ? u : v */
RK_INLINE lanes if_less(lanes x, lanes y, lanes u, lanes v)
{
    return (lanes){RK_PART_BY_PART(IF_LESS)};
}
RK_INLINE int any_less(lanes x, lanes y)
{
    const unsigned any[] = {RK_PART_BY_PART(LESS)};
    unsigned result = 0;
    for (size_t k = 0; k < sizeof any / sizeof any[0]; k++)
        result |= any[k];
    return result != 0;
}

#undef LOAD
#undef STORE
#undef ALL
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef MIN
#undef MAX
#undef SQRT
#undef IF_LESS
#undef LESS

/* n cells of RK_LANES fields <-> cells with the lanes innermost. */
RK_INLINE void lanes_from_fields(const double *const fields[RK_LANES], ptrdiff_t n, double *cells)
{
    ptrdiff_t k = 0;
    for (; RK_LANES > 1 && k + 4 <= n; k += 4)
        for (int half = 0; half < RK_LANES; half += 4) {
            double *const to = cells + k * RK_LANES + half;
            rk_transpose4(fields[half] + k, fields[half + 1] + k, fields[half + 2] + k, fields[half + 3] + k,
                          to, to + RK_LANES, to + 2 * RK_LANES, to + 3 * RK_LANES);
        }
    for (; k < n; k++)
        for (int l = 0; l < RK_LANES; l++)
            cells[k * RK_LANES + l] = fields[l][k];
}

/* Only the first n_fields of the fields are written. */
RK_INLINE void fields_from_lanes(const double *cells, ptrdiff_t n, ptrdiff_t n_fields,
                                 double *const fields[RK_LANES])
{
    ptrdiff_t k = 0;
    for (; RK_LANES > 1 && n_fields == RK_LANES && k + 4 <= n; k += 4)
        for (int half = 0; half < RK_LANES; half += 4) {
            const double *const from = cells + k * RK_LANES + half;
            rk_transpose4(from, from + RK_LANES, from + 2 * RK_LANES, from + 3 * RK_LANES, fields[half] + k,
                          fields[half + 1] + k, fields[half + 2] + k, fields[half + 3] + k);
        }
    for (; k < n; k++)
        for (ptrdiff_t l = 0; l < n_fields; l++)
            fields[l][k] = cells[k * RK_LANES + l];
}

#endif
