/* Vectorised cos, exp, log and logistic over contiguous arrays; out may be x itself. */
#ifndef RK_VECMATH_H
#define RK_VECMATH_H
#include "rk_dispatch.h"

typedef struct {
    void (*cos)(const double *x, double *out, ptrdiff_t n);
    void (*exp)(const double *x, double *out, ptrdiff_t n);
    void (*log)(const double *x, double *out, ptrdiff_t n);
    void (*logistic)(const double *x, double *out, ptrdiff_t n);
} rk_vecmath_table;
RK_TABLES(vecmath)

#endif
