#include "rk_sums.h"
#include "rk_simd.h"

/* What is left of n entries after the whole registers goes through copies of one register. */
enum { W = RK_WIDTH };

RK_INLINE void add_vector(double *high, double *low, const double *x, rk_vec a, rk_vec a_low, const double *b)
{
    rk_vec error = v_load(low), sum, s, e;
    RK_TWO_SUM(s, e, v_load(high), v_load(x));
    sum = s, error += e;
    if (b) {
        const rk_vec bv = v_load(b), p = a * bv;
        RK_TWO_SUM(s, e, sum, p);
        sum = s, error += e + (v_product_error(a, bv, p) + a_low * bv);
    }
    v_store(high, sum), v_store(low, error);
}

RK_INLINE void add_row(double *restrict high, double *restrict low, const double *restrict x, const double *a,
                       const double *restrict b, ptrdiff_t n)
{
    const rk_vec a_high = v_all(b ? a[0] : 0), a_low = v_all(b ? a[1] : 0);
    ptrdiff_t j = 0;
    for (; j + W <= n; j += W)
        add_vector(high + j, low + j, x + j, a_high, a_low, b ? b + j : NULL);
    if (j < n) {
        const size_t size = (size_t)(n - j) * sizeof(double);
        double h[W] = {0}, l[W] = {0}, xt[W] = {0}, bt[W] = {0};
        memcpy(h, high + j, size), memcpy(l, low + j, size), memcpy(xt, x + j, size);
        if (b)
            memcpy(bt, b + j, size);
        add_vector(h, l, xt, a_high, a_low, b ? bt : NULL);
        memcpy(high + j, h, size), memcpy(low + j, l, size);
    }
}

static void add(double *high, double *low, const double *x, const double *a, const double *b, ptrdiff_t n)
{
    if (b)
        add_row(high, low, x, a, b, n);
    else
        add_row(high, low, x, NULL, NULL, n);
}

RK_INLINE rk_vec total_vector(const double *high, const double *low, rk_vec a, rk_vec a_low, const double *b,
                              const double *b_low)
{
    rk_vec h = v_load(high), l = v_load(low), sum, error, s, e;
    RK_TWO_SUM(sum, error, h, l);
    if (b) {
        const rk_vec bv = v_load(b), p = a * bv;
        const rk_vec q = v_product_error(a, bv, p) + (a * v_load(b_low) + a_low * bv);
        RK_TWO_SUM(s, e, sum, -p);
        sum = s, error += e - q;
    }
    return sum + error;
}

static void total(const double *high, const double *low, const double *a, const double *b_high,
                  const double *b_low, ptrdiff_t n, double *out)
{
    const rk_vec av = v_all(b_high ? a[0] : 0), a_low = v_all(b_high ? a[1] : 0);
    ptrdiff_t j = 0;
    for (; j + W <= n; j += W)
        v_store(out + j, total_vector(high + j, low + j, av, a_low, b_high ? b_high + j : NULL,
                                      b_high ? b_low + j : NULL));
    if (j < n) {
        const size_t size = (size_t)(n - j) * sizeof(double);
        double h[W] = {0}, l[W] = {0}, bh[W] = {0}, bl[W] = {0};
        memcpy(h, high + j, size), memcpy(l, low + j, size);
        if (b_high)
            memcpy(bh, b_high + j, size), memcpy(bl, b_low + j, size);
        v_store(h, total_vector(h, l, av, a_low, b_high ? bh : NULL, b_high ? bl : NULL));
        memcpy(out + j, h, size);
    }
}

const rk_sums_table RK_TABLE(sums) = {.add = add, .total = total};
