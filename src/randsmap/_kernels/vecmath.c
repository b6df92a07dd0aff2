#include "rk_vecmath.h"
#include "rk_vecmath_inline.h"
#include <math.h>

/* Elements looked at together: one beyond rk_cos's reach costs the others of its block only. */
enum { BLOCK = 256 };

static void vec_cos(const double *x, double *out, ptrdiff_t n)
{
    for (ptrdiff_t start = 0; start < n; start += BLOCK) {
        ptrdiff_t stop = start + BLOCK < n ? start + BLOCK : n;
        ptrdiff_t beyond = 0;
#pragma omp simd reduction(+ : beyond)
        for (ptrdiff_t i = start; i < stop; i++)
            beyond += !(fabs(x[i]) <= RK_COS_REACH);
        if (beyond) {
            for (ptrdiff_t i = start; i < stop; i++)
                out[i] = fabs(x[i]) <= RK_COS_REACH ? rk_cos(x[i]) : cos(x[i]);
        } else {
#pragma omp simd
            for (ptrdiff_t i = start; i < stop; i++)
                out[i] = rk_cos(x[i]);
        }
    }
}

static void vec_exp(const double *x, double *out, ptrdiff_t n)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = rk_exp(x[i]);
}

static void vec_log(const double *x, double *out, ptrdiff_t n)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = rk_log(x[i]);
}

static void vec_logistic(const double *x, double *out, ptrdiff_t n)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = rk_logistic(x[i]);
}

const rk_vecmath_table RK_TABLE(vecmath) = {
    .cos = vec_cos, .exp = vec_exp, .log = vec_log, .logistic = vec_logistic};
