#include "rk_distances.h"
#include "rk_simd.h"

/* The GEMM form |x|^2 + |z|^2 - 2 x.z has an error of about u s, s = |x|^2 + |z|^2 of the centred
 * rows, whatever the distance. Below CANCELLED * s the distance is recomputed by differences, so the
 * relative error is at most about u / CANCELLED everywhere. */
#define CANCELLED 0x1p-9
/* In the Gaussian kernel the error u s / eps^2 of the exponent matters. Up to this value of s / eps^2 (2e-13) nothing
 * is recomputed, beyond it only exponents above NEGLIGIBLE: other kernel values are below 4e-18. */
#define EXPONENT_SAFE 0x1p10
#define NEGLIGIBLE (-40.)
#define ERROR 0x1p-44 /* ample bound of the relative error of x.z, times s / eps^2 in the exponent */

#define UNROLL 32 /* columns whose sums stay in registers in the direct tile */

/* Numbers of a row that are centred at a time. */
enum { CENTRED = 256 };

/* out = x - c; returns the sum of squares, whose bits are the same wherever it is called. */
RK_NOINLINE static double center_part(const double *restrict x, const double *restrict c, ptrdiff_t n, double *restrict out)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (ptrdiff_t k = 0; k < n; k++) {
        double d = x[k] - c[k];
        out[k] = d;
        s += d * d;
    }
    return s;
}

static void center(const double *restrict X, ptrdiff_t n, ptrdiff_t M, const double *restrict c,
                   double *restrict out, double *restrict norms)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double s = 0;
        for (ptrdiff_t k = 0; k < M; k += CENTRED)
            s += center_part(X + i * M + k, c + k, M - k < CENTRED ? M - k : CENTRED, out + i * M + k);
        if (norms) norms[i] = s;
    }
}

static double direct_pair(const double *restrict x, const double *restrict z, ptrdiff_t M)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t k = 0; k < M; k++) {
        double d = x[k] - z[k];
        sum += d * d;
    }
    return sum;
}

/* Terms that are summed in the type of the numbers; longer sums are in double precision. */
enum { SUMMED = 1024 };

/* A load of x serves four rows of Z, a row of Z all the rows of X. */
#define DIRECT(name, real)                                                                         \
    static inline void name##_four(const real *restrict x, const real *restrict z0,                \
                                   const real *restrict z1, const real *restrict z2,               \
                                   const real *restrict z3, ptrdiff_t M, double *sum)              \
    {                                                                                              \
        double a = 0, b = 0, c = 0, d = 0;                                                         \
        while (M > 0) {                                                                            \
            const ptrdiff_t width = M < SUMMED ? M : SUMMED;                                       \
            real s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                                   \
            _Pragma("omp simd reduction(+ : s0, s1, s2, s3)")                                      \
            for (ptrdiff_t k = 0; k < width; k++) {                                                \
                real d0 = x[k] - z0[k], d1 = x[k] - z1[k], d2 = x[k] - z2[k], d3 = x[k] - z3[k];   \
                s0 += d0 * d0;                                                                     \
                s1 += d1 * d1;                                                                     \
                s2 += d2 * d2;                                                                     \
                s3 += d3 * d3;                                                                     \
            }                                                                                      \
            a += s0, b += s1, c += s2, d += s3;                                                    \
            x += width, z0 += width, z1 += width, z2 += width, z3 += width, M -= width;            \
        }                                                                                          \
        sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;                                            \
    }                                                                                              \
                                                                                                   \
    static void name(const real *X, ptrdiff_t m, const real *Z, ptrdiff_t n, ptrdiff_t M,          \
                     double *tile, ptrdiff_t ld)                                                   \
    {                                                                                              \
        for (ptrdiff_t j = 0; j < n; j += 4) {                                                     \
            const ptrdiff_t last = n - j < 4 ? n - j - 1 : 3; /* past the end, the same sums */    \
            const real *z = Z + j * M, *z1 = z + (last < 1 ? last : 1) * M,                        \
                       *z2 = z + (last < 2 ? last : 2) * M;                                        \
            for (ptrdiff_t i = 0; i < m; i++) {                                                    \
                double sum[4];                                                                     \
                name##_four(X + i * M, z, z1, z2, z + last * M, M, sum);                           \
                for (ptrdiff_t a = 0; a <= last; a++)                                              \
                    tile[i * ld + j + a] = sum[a];                                                 \
            }                                                                                      \
        }                                                                                          \
    }
DIRECT(direct_rows, double)
DIRECT(direct_rows_single, float)

/* `width` columns of the tile from column j on; a constant where this is inlined. */
RK_INLINE void direct_block(const double *restrict x, ptrdiff_t M, const double *restrict columns,
                            ptrdiff_t ld, ptrdiff_t width, double *restrict out)
{
    double sum[UNROLL] = {0};
    for (ptrdiff_t k = 0; k < M; k++) {
        const double xk = x[k], *z = columns + k * ld;
#pragma omp simd
        for (ptrdiff_t j = 0; j < width; j++) {
            double d = xk - z[j];
            sum[j] += d * d;
        }
    }
#pragma omp simd
    for (ptrdiff_t j = 0; j < width; j++)
        out[j] = sum[j];
}

static void direct_columns(const double *restrict X, ptrdiff_t m, const double *restrict columns, ptrdiff_t ldc,
                           ptrdiff_t n, ptrdiff_t M, double *restrict tile, ptrdiff_t ld)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        ptrdiff_t j = 0;
        for (; j + UNROLL <= n; j += UNROLL)
            direct_block(X + i * M, M, columns + j, ldc, UNROLL, tile + i * ld + j);
        if (j < n)
            direct_block(X + i * M, M, columns + j, ldc, n - j, tile + i * ld + j);
    }
}

static void direct(const double *restrict X, ptrdiff_t m, const double *restrict Z, ptrdiff_t n,
                   ptrdiff_t M, double *restrict block, double *restrict tile, ptrdiff_t ld)
{
    RK_ASSERT(ld % UNROLL == 0 && ld >= n);
    ptrdiff_t n_padded = (n + UNROLL - 1) / UNROLL * UNROLL;
    for (ptrdiff_t k = 0; k < M; k++) {
        for (ptrdiff_t j = 0; j < n; j++)
            block[k * ld + j] = Z[j * M + k];
        for (ptrdiff_t j = n; j < n_padded; j++)
            block[k * ld + j] = 0;
    }
    direct_columns(X, m, block, ld, n_padded, M, tile, ld);
}

/* -- Products of rows ------------------------------------------------------------------------------ */
/* 108 GFLOP/s (Xeon, 192 packed rows of 400 numbers; AVX2 60), OpenBLAS 84 (53) for such blocks: each row is packed once
 * a task, and few are read from memory unannounced. */
/* A block of products stays in registers: of so many rows X and as many rows Z as fill VECTORS registers. */
#if RK_WIDTH == 8 || defined(__aarch64__) /* 32 registers */
enum { BLOCK = 12 };
#else
enum { BLOCK = 6 };
#endif
enum { VECTORS = RK_WIDTH > 1 ? 2 : 4, GROUP = VECTORS * RK_WIDTH };
/* Terms of a sum at a time: those of a panel of Z stay in the second cache. */
enum { DEPTH = 384 };
/* Terms of one sum; the sums are then added. With 64 terms, fuzzing found errors of exponents of the Gaussian kernel of
 * 1.3 times the documented bound. */
enum { CHAIN = 16 };

/* Columns k .. k + width of `rows` <= GROUP rows, row stride M, and zeros for the others. */
static void pack_part(const double *restrict z, ptrdiff_t M, ptrdiff_t rows, ptrdiff_t width, double *restrict out)
{
    const ptrdiff_t fours = rows / 4 * 4, square = width / 4 * 4;
    for (ptrdiff_t k = 0; k < square; k += 4)
        for (ptrdiff_t a = 0; a < fours; a += 4) {
            const double *t = z + a * M + k;
            double *o = out + k * GROUP + a;
            for (ptrdiff_t q = 0; q < 4; q++) /* may point beyond the end, harmlessly */
                RK_PREFETCH(t + q * M + 64);
            rk_transpose4(t, t + M, t + 2 * M, t + 3 * M, o, o + GROUP, o + 2 * GROUP, o + 3 * GROUP);
        }
    for (ptrdiff_t a = 0; a < GROUP; a++)
        for (ptrdiff_t k = a < fours ? square : 0; k < width; k++)
            out[k * GROUP + a] = a < rows ? z[a * M + k] : 0;
}

/* Groups of GROUP rows, each by columns. */
static void pack(const double *Z, ptrdiff_t n, ptrdiff_t M, const double *c, double *out, double *norms)
{
    double part[GROUP * CENTRED];
    for (ptrdiff_t j = 0; j < n; j += GROUP) {
        const ptrdiff_t rows = n - j < GROUP ? n - j : GROUP;
        for (ptrdiff_t k = 0; k < M; k += CENTRED) {
            const ptrdiff_t width = M - k < CENTRED ? M - k : CENTRED;
            const double *z = Z + j * M + k;
            double *o = out + j * M + k * GROUP;
            for (ptrdiff_t a = 0; c && a < rows; a++)
                norms[j + a] = (k ? norms[j + a] : 0) + center_part(z + a * M, c + k, width, part + a * CENTRED);
            if (c)
                pack_part(part, CENTRED, rows, width, o);
            else
                pack_part(z, M, rows, width, o);
        }
    }
}

/* Each product is one sum in order, whatever the block: its bits depend on the two rows alone. `rows` and `add` are
 * constants where this is inlined. */
RK_INLINE void product_block(const int rows, const int add, const double *restrict x, ptrdiff_t M,
                             const double *next, const double *restrict z, ptrdiff_t depth, double *restrict tile,
                             ptrdiff_t ld)
{
    rk_vec sum[BLOCK][VECTORS];
    RK_UNROLL_ALL
    for (int i = 0; i < BLOCK; i++) /* all, for GCC to see that none is read before */
        RK_UNROLL_ALL
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = v_all(0);
    for (ptrdiff_t k = 0; k < depth; k++) {
        rk_vec column[VECTORS];
        RK_PREFETCH(next + k);
        RK_UNROLL_ALL
        for (int v = 0; v < VECTORS; v++)
            column[v] = v_load(z + k * GROUP + v * RK_WIDTH);
        RK_UNROLL_ALL
        for (int i = 0; i < rows; i++) {
            const rk_vec a = v_all(x[i * M + k]);
            RK_UNROLL_ALL
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] += a * column[v];
        }
    }
    RK_UNROLL_ALL
    for (int i = 0; i < rows; i++)
        RK_UNROLL_ALL
        for (int v = 0; v < VECTORS; v++)
            v_store(tile + i * ld + v * RK_WIDTH, add ? v_load(tile + i * ld + v * RK_WIDTH) + sum[i][v] : sum[i][v]);
}

RK_INLINE void product_rows(const int rows, const double *x, ptrdiff_t M, const double *packed, ptrdiff_t n,
                            ptrdiff_t depth, int add, double *tile, ptrdiff_t ld)
{
    for (ptrdiff_t j = 0; j < n; j += GROUP) {
        const double *next = x + (rows + j / GROUP % rows) * M; /* may point beyond the end, harmlessly */
        for (ptrdiff_t k = 0; k < depth; k += CHAIN) {
            const ptrdiff_t some = depth - k < CHAIN ? depth - k : CHAIN;
            const double *z = packed + j * M + k * GROUP;
            if (add || k)
                product_block(rows, 1, x + k, M, next + k, z, some, tile + j, ld);
            else
                product_block(rows, 0, x + k, M, next + k, z, some, tile + j, ld);
        }
    }
}

static void products(const double *X, ptrdiff_t m, const double *packed, ptrdiff_t n, ptrdiff_t M, double *tile,
                     ptrdiff_t ld)
{
    RK_ASSERT(ld >= (n + GROUP - 1) / GROUP * GROUP);
    const ptrdiff_t parts = (M + DEPTH - 1) / DEPTH;
    for (ptrdiff_t p = 0; p < parts; p++) {
        const ptrdiff_t k = M * p / parts, depth = M * (p + 1) / parts - k;
        const double *z = packed + k * GROUP;
        ptrdiff_t i = 0;
        for (; i + BLOCK <= m; i += BLOCK)
            product_rows(BLOCK, X + i * M + k, M, z, n, depth, k > 0, tile + i * ld, ld);
        for (; i + 3 <= m; i += 3)
            product_rows(3, X + i * M + k, M, z, n, depth, k > 0, tile + i * ld, ld);
        for (; i < m; i++)
            product_rows(1, X + i * M + k, M, z, n, depth, k > 0, tile + i * ld, ld);
    }
}

static void distances(double *restrict tile, ptrdiff_t ld, const double *X, ptrdiff_t m,
                      const double *Z, ptrdiff_t n, ptrdiff_t M, const double *restrict nx,
                      const double *restrict nz)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        double *restrict row = tile + i * ld;
        double a = nx[i];
        int cancelled = 0;
#pragma omp simd reduction(| : cancelled)
        for (ptrdiff_t j = 0; j < n; j++) {
            double s = a + nz[j], d = s - 2 * row[j];
            int bad = !(d >= CANCELLED * s && d <= 1.7976931348623157e308); /* NaN, inf too */
            cancelled |= bad;
            row[j] = bad ? -1 : d;
        }
        if (cancelled)
            for (ptrdiff_t j = 0; j < n; j++)
                if (row[j] < 0) row[j] = direct_pair(X + i * M, Z + j * M, M);
    }
}

static void gaussian(double *restrict tile, ptrdiff_t ld, const double *X, ptrdiff_t m,
                     const double *Z, ptrdiff_t n, ptrdiff_t M, const double *restrict nx,
                     const double *restrict nz, double nz_max, double scale, double *restrict out,
                     ptrdiff_t ldo)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        double *restrict row = tile + i * ld;
        double a = nx[i];
        double *restrict o = out ? out + i * ldo : NULL;
        int safe = (a + nz_max) * scale <= EXPONENT_SAFE;
        if (safe && o) { /* arithmetic hides the latency of the writes */
#pragma omp simd
            for (ptrdiff_t j = 0; j < n; j++) {
                double e = (2 * row[j] - (a + nz[j])) * scale;
                row[j] = o[j] = rk_exp_flushed(e < 0 ? e : 0);
            }
            continue;
        }
        if (safe) {
#pragma omp simd
            for (ptrdiff_t j = 0; j < n; j++) {
                double e = (2 * row[j] - (a + nz[j])) * scale;
                row[j] = rk_exp_flushed(e < 0 ? e : 0);
            }
            continue;
        }
        for (ptrdiff_t j = 0; j < n; j++) {
            double s = a + nz[j], e = (2 * row[j] - s) * scale;
            /* written so that NaN, from overflow, is recomputed too */
            int bad = !(s * scale <= EXPONENT_SAFE) && !(e + ERROR * (s * scale) <= NEGLIGIBLE);
            row[j] = bad ? 1 : (e < 0 ? e : 0);
        }
        for (ptrdiff_t j = 0; j < n; j++)
            if (row[j] > 0) row[j] = -direct_pair(X + i * M, Z + j * M, M) * scale;
#pragma omp simd
        for (ptrdiff_t j = 0; j < n; j++)
            row[j] = rk_exp_flushed(row[j]);
        if (o) memcpy(o, row, (size_t) n * sizeof *o);
    }
}

/* `kernel` and `slopes` are constants where this is inlined. */
RK_INLINE void radial_rows(int kernel, int slopes, double *restrict tile, ptrdiff_t ld, ptrdiff_t m,
                           ptrdiff_t n, double scale)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        double *restrict row = tile + i * ld;
        if (slopes) {
#pragma omp simd
            for (ptrdiff_t j = 0; j < n; j++)
                row[j] = rk_radial_slope(kernel, row[j] * scale) * scale;
        } else {
#pragma omp simd
            for (ptrdiff_t j = 0; j < n; j++)
                row[j] = rk_radial_value(kernel, row[j] * scale);
        }
    }
}

static void radial(int kernel, int slopes, double *tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,
                   double scale)
{
    switch (2 * kernel + !!slopes) {
#define RADIAL_CASE(name)                                                                          \
    case 2 * RK_##name: radial_rows(RK_##name, 0, tile, ld, m, n, scale); break;                   \
    case 2 * RK_##name + 1: radial_rows(RK_##name, 1, tile, ld, m, n, scale); break;
        RK_FOR_RADIALS(RADIAL_CASE)
    }
}

/* erfc(x) for x >= 0, to 4 (1 + x^2) ulp: e^(-x^2) / (x + 3.75) times a polynomial in
 * t = (x - 3.75) / (x + 3.75) (M. Shepherd and J. Laframboise, Math. Comp. 36 (1981)); Chebyshev
 * fit, relative error 2^-56. */
RK_INLINE double erfc_positive(double x)
{
    double r = 1 / (x + 3.75), t = 1 - 7.5 * r;
    double p = 0x1.e44c9877fcdcfp-32;
    p = p * t - 0x1.f9949d7755526p-33;
    p = p * t - 0x1.70f12e0dbca96p-28;
    p = p * t + 0x1.7d5f294df5245p-29;
    p = p * t + 0x1.59620d6eee845p-25;
    p = p * t - 0x1.bd59dee63ab3cp-26;
    p = p * t - 0x1.1acbf7c687e5dp-22;
    p = p * t + 0x1.2b34b6c16293dp-22;
    p = p * t + 0x1.bc6aee44affd3p-20;
    p = p * t - 0x1.b962700fd9bfbp-19;
    p = p * t - 0x1.2ac192436371dp-17;
    p = p * t + 0x1.3a5506e41bdfap-15;
    p = p * t + 0x1.63789f48d18afp-17;
    p = p * t - 0x1.6d9525967bef6p-12;
    p = p * t + 0x1.a0b75abc44d89p-11;
    p = p * t + 0x1.029006d831689p-10;
    p = p * t - 0x1.9ac69568edf24p-7;
    p = p * t + 0x1.92618b78f8be3p-5;
    p = p * t - 0x1.0e3ea224ba9a9p-3;
    p = p * t + 0x1.1dc271189e21fp-2;
    p = p * t - 0x1.f63dd8119622ep-2;
    p = p * t + 0x1.78fecb4e81b0cp-1;
    p = p * t - 0x1.eae02d0a1456ap-1;
    p = p * t + 0x1.178842825349dp+0;
    return p * r * rk_exp(-x * x);
}

enum { NODES = 10 };
/* Gauss-Legendre rule on [0, 1] */
static const double node[NODES] = {
    0x1.ab83f3aa1a507p-7, 0x1.1459a858d3435p-4, 0x1.4848dbae43cd1p-3, 0x1.2219ffb7f4a92p-2,
    0x1.b3c6be1db8762p-2, 0x1.261ca0f123c4fp-1, 0x1.6ef3002405ab7p-1, 0x1.adedc9146f0ccp-1,
    0x1.dd74caf4e5979p-1, 0x1.f951f0315796cp-1};
static const double node_weight[NODES] = {
    0x1.1115f8b62dc1fp-5, 0x1.32138c878efe5p-4, 0x1.c0b059d00bc31p-4, 0x1.13baa7a559bfep-3,
    0x1.2e9de7014d6efp-3, 0x1.2e9de7014d6efp-3, 0x1.13baa7a559bfep-3, 0x1.c0b059d00bc31p-4,
    0x1.32138c878efe5p-4, 0x1.1115f8b62dc1fp-5};

/* The mean of exp(-s^2 d / 2), or of s^2 exp(-s^2 d / 2), by the rule; `slope` is a constant where this is inlined. */
RK_INLINE double by_quadrature(double d, double low, double high, int slope)
{
    double sum = 0;
    for (ptrdiff_t k = 0; k < NODES; k++) {
        double s = low + (high - low) * node[k];
        sum += (slope ? node_weight[k] * (s * s) : node_weight[k]) * rk_exp(-0.5 * d * (s * s));
    }
    return sum;
}

/* Columns whose distances are stored until all are known to be far. */
enum { MULTI_BLOCK = 512 };

/* By parts, the mean of s^2 exp(-s^2 x / 2) is [low e_low - high e_high + (high - low) mean] / (x (high -
 * low)) with the kernel itself for mean; near x = 0, where differences cancel, the quadrature. */
RK_INLINE void multi_gaussian_rows(double *restrict x, ptrdiff_t n, double low, double high, int slope)
{
    const double a = low * 0x1.6a09e667f3bcdp-1, b = high * 0x1.6a09e667f3bcdp-1; /* / sqrt 2 */
    const double root = 0x1.40d931ff62706p+0;                                     /* sqrt(pi/2) */
    const double factor = slope ? root : root / (high - low);
    double d[MULTI_BLOCK];
    for (ptrdiff_t start = 0; start < n; start += MULTI_BLOCK) {
        ptrdiff_t m = n - start < MULTI_BLOCK ? n - start : MULTI_BLOCK, near = 0;
        double *restrict y = x + start;
        memcpy(d, y, (size_t) m * sizeof *d);
#pragma omp simd reduction(+ : near)
        for (ptrdiff_t j = 0; j < m; j++) {
            double r = sqrt(d[j]), from = a > 0 ? a * r : 0, to = b * r;
            double value = (erfc_positive(from) - erfc_positive(to)) * factor / (r > 0 ? r : 1);
            if (slope) {
                double ends = low * rk_exp(-from * from) - high * rk_exp(-to * to);
                value = (ends + value) / (high - low) / (d[j] > 0 ? d[j] : 1);
            }
            value = value >= RK_RADIAL_SMALLEST ? value : 0;
            y[j] = slope ? -value : value;
            near += to * to - from * from <= 0.5;
        }
        for (ptrdiff_t j = 0; near && j < m; j++) {
            double from = a > 0 ? a * sqrt(d[j]) : 0, to = b * sqrt(d[j]);
            if (to * to - from * from <= 0.5) {
                double value = by_quadrature(d[j], low, high, slope);
                value = value >= RK_RADIAL_SMALLEST ? value : 0;
                y[j] = slope ? -value : value;
            }
        }
    }
}

static void multi_gaussian(double *x, ptrdiff_t n, double low, double high, int slope)
{
    if (slope)
        multi_gaussian_rows(x, n, low, high, 1);
    else
        multi_gaussian_rows(x, n, low, high, 0);
}

static void store(const double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n, double *restrict out,
                  ptrdiff_t ldo)
{
    for (ptrdiff_t i = 0; i < m; i++)
        memcpy(out + i * ldo, tile + i * ld, (size_t) n * sizeof *out);
}

RK_INLINE void transpose_block(const double *restrict t, ptrdiff_t ld, double *restrict o, ptrdiff_t ldo)
{
    rk_transpose4(t, t + ld, t + 2 * ld, t + 3 * ld, o, o + ldo, o + 2 * ldo, o + 3 * ldo);
}

/* Eight rows of the output at a time, each written from left to right: few pages are open at once,
 * and cache lines are filled whole. */
static void store_t(const double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,
                    double *restrict out_t, ptrdiff_t ldo)
{
    ptrdiff_t m8 = m & ~(ptrdiff_t) 7, n8 = n & ~(ptrdiff_t) 7;
    for (ptrdiff_t j = 0; j < n8; j += 8) {
        for (ptrdiff_t i = 0; i < m8; i += 8) {
            const double *t = tile + i * ld + j;
            double *o = out_t + j * ldo + i;
            for (int k = 8; k < 16; k++) /* the next rows; may point beyond the end, harmlessly */
                RK_PREFETCH_TO_WRITE(o + k * ldo);
            transpose_block(t, ld, o, ldo);
            transpose_block(t + 4 * ld, ld, o + 4, ldo);
            transpose_block(t + 4, ld, o + 4 * ldo, ldo);
            transpose_block(t + 4 * ld + 4, ld, o + 4 * ldo + 4, ldo);
        }
        for (ptrdiff_t i = m8; i < m; i++)
            for (ptrdiff_t k = j; k < j + 8; k++)
                out_t[k * ldo + i] = tile[i * ld + k];
    }
    for (ptrdiff_t j = n8; j < n; j++)
        for (ptrdiff_t i = 0; i < m; i++)
            out_t[j * ldo + i] = tile[i * ld + j];
}

static void weighted_sums(const double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,
                          const double *restrict W, ptrdiff_t ldw, ptrdiff_t q,
                          double *restrict sums)
{
    /* A load of W serves four rows, four chains hide the latency. The last rows pass through the same loop, some of them
     * more than once: compilers order the additions of another loop otherwise, and a row's bits would depend on its place. */
    for (ptrdiff_t i = 0; i < m; i += 4) {
        const ptrdiff_t last = m - i < 4 ? m - i - 1 : 3;
        const double *k0 = tile + i * ld, *k1 = k0 + (last < 1 ? last : 1) * ld,
                     *k2 = k0 + (last < 2 ? last : 2) * ld, *k3 = k0 + last * ld;
        for (ptrdiff_t p = 0; p < q; p++) {
            const double *w = W + p * ldw;
            double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
            for (ptrdiff_t j = 0; j < n; j++) {
                s0 += k0[j] * w[j];
                s1 += k1[j] * w[j];
                s2 += k2[j] * w[j];
                s3 += k3[j] * w[j];
            }
            const double sum[4] = {s0, s1, s2, s3};
            for (ptrdiff_t a = 0; a <= last; a++)
                sums[(i + a) * q + p] += sum[a];
        }
    }
}

#define CHUNK 512 /* columns of four rows of K that stay in the first-level cache for all of X */

/* Each element of K is read once, for its place and for its mirror image, and used for all p rows. */
static void symmetric_product(const double *restrict K, ptrdiff_t n, ptrdiff_t i0, ptrdiff_t i1,
                              const double *restrict X, ptrdiff_t p, double *restrict Y)
{
    RK_ASSERT(p % 2 == 0 && 0 <= i0 && i1 <= n);
    ptrdiff_t i = i0;
    for (; i + 4 <= i1; i += 4) {
        for (ptrdiff_t a = i; a < i + 4; a++) /* the corner on the diagonal */
            for (ptrdiff_t q = 0; q < p; q++) {
                Y[q * n + a] += K[a * n + a] * X[q * n + a];
                for (ptrdiff_t j = a + 1; j < i + 4; j++) {
                    Y[q * n + a] += K[a * n + j] * X[q * n + j];
                    Y[q * n + j] += K[a * n + j] * X[q * n + a];
                }
            }
        const double *k0 = K + i * n, *k1 = k0 + n, *k2 = k1 + n, *k3 = k2 + n;
        for (ptrdiff_t j1, j0 = i + 4; j0 < n; j0 = j1) {
            j1 = j0 + CHUNK < n ? j0 + CHUNK : n;
            for (ptrdiff_t q = 0; q < p; q += 2) {
                const double *restrict x = X + q * n, *restrict z = x + n;
                double *restrict y = Y + q * n, *restrict w = y + n;
                double x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
                double z0 = z[i], z1 = z[i + 1], z2 = z[i + 2], z3 = z[i + 3];
                double s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3, t0, t1, t2, t3)
                for (ptrdiff_t j = j0; j < j1; j++) {
                    double a = x[j], b = z[j];
                    s0 += k0[j] * a;
                    s1 += k1[j] * a;
                    s2 += k2[j] * a;
                    s3 += k3[j] * a;
                    t0 += k0[j] * b;
                    t1 += k1[j] * b;
                    t2 += k2[j] * b;
                    t3 += k3[j] * b;
                    y[j] += (k0[j] * x0 + k1[j] * x1) + (k2[j] * x2 + k3[j] * x3);
                    w[j] += (k0[j] * z0 + k1[j] * z1) + (k2[j] * z2 + k3[j] * z3);
                }
                y[i] += s0, y[i + 1] += s1, y[i + 2] += s2, y[i + 3] += s3;
                w[i] += t0, w[i + 1] += t1, w[i + 2] += t2, w[i + 3] += t3;
            }
        }
    }
    for (; i < i1; i++)
        for (ptrdiff_t q = 0; q < p; q++) {
            double s = K[i * n + i] * X[q * n + i];
            for (ptrdiff_t j = i + 1; j < n; j++) {
                s += K[i * n + j] * X[q * n + j];
                Y[q * n + j] += K[i * n + j] * X[q * n + i];
            }
            Y[q * n + i] += s;
        }
}

static ptrdiff_t within(const double *restrict tile, ptrdiff_t ld, ptrdiff_t m, ptrdiff_t n,
                        ptrdiff_t i0, ptrdiff_t j0, const double *restrict rx,
                        const double *restrict rz, ptrdiff_t found, ptrdiff_t capacity,
                        ptrdiff_t *restrict rows, ptrdiff_t *restrict columns,
                        double *restrict values)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        const double *row = tile + i * ld;
        for (ptrdiff_t j1, j = 0; j < n; j = j1) {
            j1 = j + UNROLL < n ? j + UNROLL : n;
            int any = 0;
#pragma omp simd reduction(| : any)
            for (ptrdiff_t k = j; k < j1; k++)
                any |= (row[k] <= rx[i]) | (row[k] <= rz[k]);
            if (!any) continue;
            for (ptrdiff_t k = j; k < j1; k++) {
                if (!(row[k] <= rx[i] || row[k] <= rz[k])) continue;
                if (found < capacity) {
                    rows[found] = i0 + i;
                    columns[found] = j0 + k;
                    values[found] = row[k];
                }
                found++;
            }
        }
    }
    return found;
}

const rk_distances_table RK_TABLE(distances) = {
    .center = center,
    .direct = direct,
    .direct_columns = direct_columns,
    .direct_rows = direct_rows,
    .direct_rows_single = direct_rows_single,
    .distances = distances,
    .gaussian = gaussian,
    .radial = radial,
    .multi_gaussian = multi_gaussian,
    .pack = pack,
    .products = products,
    .store = store,
    .store_t = store_t,
    .weighted_sums = weighted_sums,
    .symmetric_product = symmetric_product,
    .within = within,
};
