/* Sums in two numbers, high + low, as if in twice the working precision: what is added in another order
 * gives the same number after rounding. Compiled without contraction; the same bits at every level. */
#ifndef RK_SUMS_H
#define RK_SUMS_H
#include "rk_dispatch.h"

typedef struct {
    /* high + low += x + (a[0] + a[1]) b, over n entries; a and b NULL: without the product */
    void (*add)(double *high, double *low, const double *x, const double *a, const double *b, ptrdiff_t n);
    /* out = high + low - (a[0] + a[1]) (b_high + b_low), rounded; b_high NULL: without the product */
    void (*total)(const double *high, const double *low, const double *a, const double *b_high,
                  const double *b_low, ptrdiff_t n, double *out);
} rk_sums_table;
RK_TABLES(sums)

#endif
