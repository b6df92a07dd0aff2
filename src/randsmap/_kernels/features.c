#include "rk_features.h"
#include "rk_simd.h"

/* Columns are taken in tiles whose part of W and b stays in the first-level cache while the rows of
 * Y pass over it. */
enum { TILE_DOUBLES = 2048, TILE_MAX = 1024, TILE_MIN = 32 };
/* Products y_j W[j] added in one loop; more latent dimensions pass through a buffer. */
enum { UNROLL = 4 };
/* Latent dimensions up to which a bound of the arguments is cheaper than a check of each. */
enum { BOUNDED_DIM = 16 };

/* base[k] + y . W[:, k] for d <= UNROLL, d a constant where this is inlined. */
RK_INLINE double argument(int d, const double *base, const double *y, const double *W, ptrdiff_t ld,
                          ptrdiff_t k)
{
    double t = base[k];
    for (int j = 0; j < d; j++)
        t += y[j] * W[j * ld + k];
    return t;
}

RK_INLINE void argument_row(int d, const double *base, const double *y, const double *W,
                            ptrdiff_t ld, ptrdiff_t m, double *out)
{
#pragma omp simd
    for (ptrdiff_t k = 0; k < m; k++)
        out[k] = argument(d, base, y, W, ld, k);
}

RK_INLINE void feature_row(int activation, int d, const double *base, const double *y,
                           const double *W, ptrdiff_t ld, ptrdiff_t m, double scale, double *out)
{
#pragma omp simd
    for (ptrdiff_t k = 0; k < m; k++)
        out[k] = scale * rk_activation_value(activation, argument(d, base, y, W, ld, k));
}

#define SWITCH_DIM(d, call)                                                                        \
    switch (d) {                                                                                   \
    case 1: call(1); break;                                                                        \
    case 2: call(2); break;                                                                        \
    case 3: call(3); break;                                                                        \
    default: call(4);                                                                              \
    }

static void features_within_reach(int activation, ptrdiff_t d, const double *base, const double *y,
                                  const double *W, ptrdiff_t ld, ptrdiff_t m, double scale,
                                  double *out)
{
#define ROW(D) feature_row(constant, D, base, y, W, ld, m, scale, out)
#define CASE(name)                                                                                 \
    case RK_##name: {                                                                              \
        const int constant = RK_##name;                                                            \
        SWITCH_DIM(d, ROW)                                                                         \
        break;                                                                                     \
    }
    switch (activation) {
        RK_FOR_ACTIVATIONS(CASE)
    }
#undef CASE
}

static void arguments(ptrdiff_t d, const double *base, const double *y, const double *W,
                      ptrdiff_t ld, ptrdiff_t m, double *out)
{
#define ARGUMENT_ROW(D) argument_row(D, base, y, W, ld, m, out)
    SWITCH_DIM(d, ARGUMENT_ROW)
}

/* out = scale * act(t), for arguments however large. */
static void activate(int activation, const double *t, ptrdiff_t m, double scale, double *out)
{
#define CASE(name)                                                                                 \
    case RK_##name: rk_activation_row(RK_##name, 0, t, m, scale, out); break;
    switch (activation) {
        RK_FOR_ACTIVATIONS(CASE)
    }
#undef CASE
}

static void fused(int activation, const double *Y, ptrdiff_t n, ptrdiff_t d, const double *W,
                  const double *b, ptrdiff_t P, double scale, double *out, ptrdiff_t ld)
{
    double buffer[TILE_MAX], largest[BOUNDED_DIM];
    const double reach = rk_activation_reach(activation);
    const int bounded = reach < INFINITY && d <= BOUNDED_DIM;
    ptrdiff_t tile = TILE_DOUBLES / (d + 1) / 32 * 32;
    if (tile < TILE_MIN)
        tile = TILE_MIN;
    for (ptrdiff_t start = 0; start < P; start += tile) {
        ptrdiff_t m = P - start < tile ? P - start : tile;
        const double *W_tile = W + start, *b_tile = b + start;
        double bound_b = 0;
        if (bounded) {
            bound_b = v_largest(b_tile, m, 1);
            for (ptrdiff_t j = 0; j < d; j++)
                largest[j] = v_largest(W_tile + j * P, m, 1);
        }
        for (ptrdiff_t i = 0; i < n; i++) {
            const double *y = Y + i * d, *base = b_tile;
            double *row = out + i * ld + start;
            ptrdiff_t j = 0;
            for (; d - j > 2 * UNROLL; j += 2 * UNROLL) { /* fewer passes over the buffer with the same sums */
                argument_row(2 * UNROLL, base, y + j, W_tile + j * P, P, m, buffer);
                base = buffer;
            }
            for (; d - j > UNROLL; j += UNROLL) {
                arguments(UNROLL, base, y + j, W_tile + j * P, P, m, buffer);
                base = buffer;
            }
            /* A bound of the row's arguments tells whether they are all within reach. */
            double bound = bounded ? bound_b : reach < INFINITY ? INFINITY : 0;
            if (bounded)
                for (ptrdiff_t l = 0; l < d; l++)
                    bound += fabs(y[l]) * largest[l];
            if (bound <= reach) {
                features_within_reach(activation, d - j, base, y + j, W_tile + j * P, P, m, scale,
                                      row);
            } else {
                arguments(d - j, base, y + j, W_tile + j * P, P, m, buffer);
                activate(activation, buffer, m, scale, row);
            }
        }
    }
}

const rk_features_table RK_TABLE(features) = {.fused = fused};
