#include "rk_decode.h"
#include "rk_simd.h"

/* COLUMNS at a time of few rows: those of eight rows of A stay in the second cache for the points, and are read ahead. For
 * more points DEPTH rows of A are read in a pass: sums of a TILE of columns and up to POINTS points are in registers
 * meanwhile, and SUMS in cache between passes. */
enum {
    COLUMNS = 1024,
    DEPTH = RK_WIDTH == 8 ? 16 : 8,
    TILE = 2 * RK_WIDTH,
    POINTS = RK_WIDTH == 8 ? RK_DECODE_FEW : 6,
    SUMS = RK_DECODE_FEW * 640
};

static ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

#define DEFINE(single, real)                                                                       \
    /* out[:n] += z[0:8] A[0:8, :n], rows of A apart by M */                                       \
    static inline void eight_rows##single(const double *z, const real *A, ptrdiff_t M,             \
                                          ptrdiff_t n, double *restrict out)                       \
    {                                                                                              \
        const real *restrict a0 = A, *restrict a1 = A + M, *restrict a2 = A + 2 * M,               \
                   *restrict a3 = A + 3 * M, *restrict a4 = A + 4 * M, *restrict a5 = A + 5 * M,   \
                   *restrict a6 = A + 6 * M, *restrict a7 = A + 7 * M;                             \
        const double z0 = z[0], z1 = z[1], z2 = z[2], z3 = z[3], z4 = z[4], z5 = z[5], z6 = z[6],  \
                     z7 = z[7];                                                                    \
        _Pragma("omp simd")                                                                        \
        for (ptrdiff_t j = 0; j < n; j++) {                                                        \
            double s = rk_add_product(out[j], z0, a0[j]);                                          \
            s = rk_add_product(s, z1, a1[j]);                                                      \
            s = rk_add_product(s, z2, a2[j]);                                                      \
            s = rk_add_product(s, z3, a3[j]);                                                      \
            s = rk_add_product(s, z4, a4[j]);                                                      \
            s = rk_add_product(s, z5, a5[j]);                                                      \
            s = rk_add_product(s, z6, a6[j]);                                                      \
            out[j] = rk_add_product(s, z7, a7[j]);                                                 \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static inline void one_row##single(double z, const real *restrict a, ptrdiff_t n,              \
                                       double *restrict out)                                       \
    {                                                                                              \
        for (ptrdiff_t j = 0; j < n; j++)                                                          \
            out[j] = rk_add_product(out[j], z, a[j]);                                              \
    }                                                                                              \
                                                                                                   \
    /* `rows_to` from column `first` on. Eight rows of A a pass over `out`: its loads and stores   \
     * vanish beside the read of A. Only the first latent point waits for memory; the others have  \
     * the eight rows in cache. */                                                                 \
    static void stream##single(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K,           \
                               const real *A, ptrdiff_t M, ptrdiff_t first, double *const *out)    \
    {                                                                                              \
        ptrdiff_t k = 0;                                                                           \
        const ptrdiff_t step = n > 1 ? COLUMNS : M;                                                \
        for (; k + 8 <= K; k += 8)                                                                 \
            for (ptrdiff_t j = first; j < M; j += step)                                            \
                for (ptrdiff_t i = 0; i < n; i++)                                                  \
                    eight_rows##single(Z + i * ldz + k, A + k * M + j, M, smaller(step, M - j),    \
                                       out[i] + j);                                                \
        for (; k < K; k++)                                                                         \
            for (ptrdiff_t i = 0; i < n; i++)                                                      \
                one_row##single(Z[i * ldz + k], A + k * M + first, M - first, out[i] + first);     \
    }                                                                                              \
                                                                                                   \
    /* Four rows of A per pass over u: a single sum would wait for its own additions. */           \
    static void adjoint##single(const real *restrict A, ptrdiff_t K, ptrdiff_t M,                  \
                                const double *restrict u, double *restrict out)                    \
    {                                                                                              \
        ptrdiff_t k = 0;                                                                           \
        for (; k + 4 <= K; k += 4) {                                                               \
            const real *restrict a = A + k * M, *restrict b = a + M, *restrict c = b + M, *restrict d = c + M; \
            double s = 0, t = 0, v = 0, w = 0;                                                     \
            _Pragma("omp simd reduction(+ : s, t, v, w)")                                          \
            for (ptrdiff_t j = 0; j < M; j++) {                                                    \
                s += a[j] * u[j], t += b[j] * u[j];                                                \
                v += c[j] * u[j], w += d[j] * u[j];                                                \
            }                                                                                      \
            out[k] = s, out[k + 1] = t, out[k + 2] = v, out[k + 3] = w;                            \
        }                                                                                          \
        for (; k < K; k++) {                                                                       \
            const real *restrict a = A + k * M;                                                    \
            double s = 0;                                                                          \
            _Pragma("omp simd reduction(+ : s)")                                                   \
            for (ptrdiff_t j = 0; j < M; j++)                                                      \
                s += a[j] * u[j];                                                                  \
            out[k] = s;                                                                            \
        }                                                                                          \
    }
DEFINE(, double)
DEFINE(_single, float)

/* Doubles or, if `wide` is NULL, floats, with rows apart by `ld` */
typedef struct {
    const double *wide;
    const float *narrow;
    ptrdiff_t ld;
} operand;

/* sums (count, points, TILE) += z (K, points) times that many tiles of A. The products of a sum are added in order, each
 * fused where the level has it: its bits are the same whatever is computed beside it. Rows of the next pass are prefetched. */
RK_INLINE void tiles(const ptrdiff_t points, const int wide, const double *z, ptrdiff_t K, operand A, ptrdiff_t count,
                     double *sums)
{
    for (ptrdiff_t tile = 0; tile < count; tile++, sums += points * TILE) {
        rk_vec s[RK_DECODE_FEW], t[RK_DECODE_FEW];
        RK_UNROLL_ALL
        for (ptrdiff_t i = 0; i < points; i++)
            s[i] = v_load(sums + i * TILE), t[i] = v_load(sums + i * TILE + RK_WIDTH);
        for (ptrdiff_t k = 0; k < K; k++) {
            const ptrdiff_t at = k * A.ld + tile * TILE;
            const rk_vec a = wide ? v_load(A.wide + at) : v_load_floats(A.narrow + at);
            const rk_vec b = wide ? v_load(A.wide + at + RK_WIDTH) : v_load_floats(A.narrow + at + RK_WIDTH);
            if (wide)
                RK_PREFETCH(A.wide + at + K * A.ld), RK_PREFETCH(A.wide + at + K * A.ld + RK_WIDTH);
            else
                RK_PREFETCH(A.narrow + at + K * A.ld);
            RK_UNROLL_ALL
            for (ptrdiff_t i = 0; i < points; i++) {
                const rk_vec x = v_all(z[k * points + i]);
                s[i] = v_add_product(s[i], x, a), t[i] = v_add_product(t[i], x, b);
            }
        }
        RK_UNROLL_ALL
        for (ptrdiff_t i = 0; i < points; i++)
            v_store(sums + i * TILE, s[i]), v_store(sums + i * TILE + RK_WIDTH, t[i]);
    }
}

/* The same for any number of points and both types, not known to the compiler */
static void some_tiles(ptrdiff_t points, const double *z, ptrdiff_t K, operand A, ptrdiff_t count, double *sums)
{
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (n <= POINTS && A.wide)                                                                 \
            tiles(n, 1, z, K, A, count, sums);                                                     \
        else if (n <= POINTS)                                                                      \
            tiles(n, 0, z, K, A, count, sums);                                                     \
        break;
    switch (points) {
        CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
    }
#undef CASE
}

/* Columns of the rows `out` to sums (tiles, n, TILE), with `gather`, or back */
static void exchange(int gather, ptrdiff_t n, ptrdiff_t j, ptrdiff_t columns, double *const *out, double *sums)
{
    for (ptrdiff_t first = j; first < j + columns; first += TILE)
        for (ptrdiff_t i = 0; i < n; i++, sums += TILE)
            memcpy(gather ? sums : out[i] + first, gather ? out[i] + first : sums, TILE * sizeof *sums);
}

/* As `rows_to` of the whole tiles of columns; their number. Gathering is not worthwhile for few rows of A, nor for
 * tiles of single doubles, where GCC 12 with AVX reads beyond A. */
static ptrdiff_t gathered(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, operand A, double *const *out)
{
    double sums[SUMS], z[POINTS * DEPTH];
    const ptrdiff_t columns = RK_WIDTH > 1 && n > 2 && K >= 8 ? A.ld / TILE * TILE : 0, step = n ? SUMS / n / TILE * TILE : 1;
    const ptrdiff_t groups = (n + POINTS - 1) / POINTS, size = groups ? (n + groups - 1) / groups : 1;
    for (ptrdiff_t j = 0; j < columns; j += step) {
        const ptrdiff_t some = smaller(step, columns - j);
        for (ptrdiff_t i = 0; i < n; i += size)
            exchange(1, smaller(size, n - i), j, some, out + i, sums + i * some);
        for (ptrdiff_t k = 0; k < K; k += DEPTH) {
            const ptrdiff_t rows = smaller(DEPTH, K - k), first = k * A.ld + j;
            const operand part = {A.wide ? A.wide + first : NULL, A.wide ? NULL : A.narrow + first, A.ld};
            for (ptrdiff_t i = 0; i < n; i += size) {
                const ptrdiff_t points = smaller(size, n - i);
                for (ptrdiff_t l = 0; l < rows; l++)
                    for (ptrdiff_t p = 0; p < points; p++)
                        z[l * points + p] = Z[(i + p) * ldz + k + l];
                some_tiles(points, z, rows, part, some / TILE, sums + i * some);
            }
        }
        for (ptrdiff_t i = 0; i < n; i += size)
            exchange(0, smaller(size, n - i), j, some, out + i, sums + i * some);
    }
    return columns;
}

static void rows_to(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, const double *A, ptrdiff_t M,
                    double *const *out)
{
    stream(Z, n, ldz, K, A, M, gathered(Z, n, ldz, K, (operand){A, NULL, M}, out), out);
}

static void rows_to_single(const double *Z, ptrdiff_t n, ptrdiff_t ldz, ptrdiff_t K, const float *A, ptrdiff_t M,
                           double *const *out)
{
    stream_single(Z, n, ldz, K, A, M, gathered(Z, n, ldz, K, (operand){NULL, A, M}, out), out);
}

static void to_single(const double *restrict x, ptrdiff_t n, float *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = (float)x[i];
}

static void add_single(const float *restrict x, ptrdiff_t n, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] += x[i];
}

static double box_distance(const double *y, const double *weight, ptrdiff_t d, const double *low, const double *high,
                           ptrdiff_t n)
{
    double squares[RK_MOST_BOXES] = {0}, least;
    for (ptrdiff_t j = 0; j < d; j++) {
        const double x = y[j], w = weight[j], *restrict a = low + j * n, *restrict b = high + j * n;
#pragma omp simd
        for (ptrdiff_t k = 0; k < n; k++) {
            double below = a[k] - x, above = x - b[k];
            double out = below > above ? below : above;
            out = out > 0 ? w * out : 0;
            squares[k] += out * out;
        }
    }
    least = squares[0];
    for (ptrdiff_t k = 1; k < n; k++)
        least = squares[k] < least ? squares[k] : least;
    return least;
}

const rk_decode_table RK_TABLE(decode) = {.rows_to = rows_to, .rows_to_single = rows_to_single,
    .adjoint = adjoint, .adjoint_single = adjoint_single,
    .to_single = to_single, .add_single = add_single, .box_distance = box_distance};
