/* Decoding and encoding by a linear map, in the caller's memory: the one code of `predict`, its derivatives and frozen
 * decoders. */
#include "rk_image.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* CHUNK: rows that one read of the coefficients serves; of a derivative, the field and the directions. TOGETHER: points
 * whose medians wait for each other's parts. SUMMED: columns of which a cache holds what single precision has summed. */
enum { CHUNK = RK_DECODE_FEW, TOGETHER = 32, SUMMED = 768 };

static ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

static ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b)
{
    return a > b ? a : b;
}

/* By bits, since compiler options may exclude NaN: adding one to an exponent of ones carries to the sign. */
static int all_finite(const double *x, ptrdiff_t n)
{
    const uint64_t exponent = 0x7ff0000000000000u, one = 0x0010000000000000u;
    uint64_t carried = 0, bits;
    for (ptrdiff_t i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        carried |= (bits & exponent) + one;
    }
    return !(carried >> 63);
}

/* Status of a result x (n) that was computed with this status: a result that is not finite fails, and a failed result
 * is NaN, which marks its row. */
static int finished(double *x, ptrdiff_t n, int status)
{
    if (!status && !all_finite(x, n))
        status = RANDSMAP_ERROR_OVERFLOW;
    for (ptrdiff_t i = 0; status && i < n; i++)
        x[i] = NAN;
    return status;
}

/* The status of a call: that of the first row that fails. */
static void note(int *status, int of_row)
{
    if (!*status)
        *status = of_row;
}

/* Number of functions of a point that may differ from 0 */
static ptrdiff_t n_coefficients(const randsmap_decoder *r)
{
    return r->basis == RK_MIXTURE ? r->n_neighbors : r->n_functions + (r->tail_centre ? r->d : 0);
}

/* Vectors whose median is taken */
static ptrdiff_t n_fields(const randsmap_decoder *r)
{
    return r->n_parts ? r->n_parts : r->d / r->n_functions - 1;
}

/* Functions that are evaluated at a time: all for a few rows, else as many as a GEMM takes. */
static ptrdiff_t depth(const randsmap_decoder *r, ptrdiff_t n)
{
    return n > CHUNK && r->basis != RK_MEDIAN ? smaller(n_coefficients(r), RK_DECODE_DEPTH) : n_coefficients(r);
}

/* For products of n rows with coefficients in single precision */
static ptrdiff_t single_work(const randsmap_decoder *r, ptrdiff_t n)
{
    const int single = r->coefficients.narrow || r->factor.narrow || r->modes.narrow;
    return single && r->gemm && n > CHUNK ? n * (RK_DECODE_DEPTH + SUMMED) / 2 : 0;
}

static ptrdiff_t jvp_work(const randsmap_decoder *r, ptrdiff_t n);

/* For a mixture at a point: places and numbers of the neighbours, distances, weights and their slopes, the point. */
static ptrdiff_t mixture_work(const randsmap_decoder *r)
{
    const ptrdiff_t d = r->d, k = r->n_neighbors, n = r->nystroem.n;
    const ptrdiff_t weights = n ? r->simplex->encoder_workspace(n, d, k) : r->simplex->latent_workspace(d, k);
    return 4 * k + k * d + d + larger(weights, r->simplex->slopes_workspace(n, d, k));
}

/* For medians at n points, and with p > 0 their derivatives along p directions, or a gradient. */
static ptrdiff_t median_work(const randsmap_decoder *r, ptrdiff_t n, ptrdiff_t p)
{
    const ptrdiff_t K = n_fields(r), R = r->n_functions;
    ptrdiff_t of_part = 0;
    for (ptrdiff_t k = 0; k < r->n_parts; k++) {
        const randsmap_decoder *part = r->parts[k];
        of_part = larger(of_part, rk_work(part, n));
        if (p)
            of_part = larger(of_part, larger(larger(jvp_work(part, p + 1), rk_tangents_work(part, n, p)),
                                             rk_cotangents_work(part, n)));
    }
    return K * n * R * (1 + p) + 2 * R + (n + 3) * r->d + r->blend->state_size(K, R) + of_part;
}

/* Doubles for n rows of functions, what they are computed from, and the coordinates in few modes. */
static ptrdiff_t linear_work(const randsmap_decoder *r, ptrdiff_t n)
{
    const ptrdiff_t coordinates = n * r->factor.columns + single_work(r, n);
    switch (r->basis) {
    case RK_MIXTURE: return coordinates + mixture_work(r);
    case RK_MEDIAN: return coordinates + n * r->n_functions + median_work(r, smaller(n, TOGETHER), 0);
    case RK_MONOMIALS: return coordinates + depth(r, n) * n + (RK_MOST_POWER + 2) * r->d;
    default: return coordinates + depth(r, n) * (n + r->d) + n * r->d;
    }
}

/* Data of a point for derivatives along p directions at n points */
static ptrdiff_t state_work(const randsmap_decoder *r, ptrdiff_t n, ptrdiff_t p)
{
    return r->basis == RK_MIXTURE ? mixture_work(r) : r->basis == RK_MEDIAN ? median_work(r, smaller(n, TOGETHER), p)
                                                                            : r->n_functions;
}

/* For the slopes at a point, and directions. */
static ptrdiff_t slopes_work(const randsmap_decoder *r)
{
    return state_work(r, 1, CHUNK) + (CHUNK + 3) * r->d;
}

static ptrdiff_t encoder_work(const randsmap_decoder *r, ptrdiff_t n)
{
    if (r->encoder_lengths.rows)
        return r->M + r->encoder_lengths.columns + 2 * r->encoder_neighbors;
    return n * (r->M + r->encoder_modes.columns + r->encoder_rows.rows + r->encoder_rows.columns + r->d + 1);
}

/* For the projection of a row, and the values before it in `randsmap_decode_values` */
static ptrdiff_t projection_work(const randsmap_decoder *r)
{
    return r->projected ? r->project->workspace(&r->projection) + r->q : 0;
}

/* For the transformations of a field by registrations */
static ptrdiff_t registration_work(const randsmap_decoder *r)
{
    return r->basis == RK_SHIFT ? r->registration->axis_size(&r->axis) : r->registration->line_size(&r->line);
}

/* For n fields that a registration carries, and the points of its part */
static ptrdiff_t carried_work(const randsmap_decoder *r, ptrdiff_t n)
{
    const ptrdiff_t part = r->n_parts ? larger(rk_work(r->parts[0], n), rk_work(r->parts[0], 1)) : 0;
    return n * (rk_registered_cells(r) + r->d) + larger(part, registration_work(r) + projection_work(r)) + 1;
}

/* For a field and its derivatives along n - 1 directions */
static ptrdiff_t jvp_work(const randsmap_decoder *r, ptrdiff_t n)
{
    if (rk_is_registration(r)) {
        const ptrdiff_t part = r->n_parts ? jvp_work(r->parts[0], n) : 0, input = r->input ? n * r->d + jvp_work(r->input, n) : 0;
        return input + n * (rk_registered_cells(r) + r->d) + larger(part, r->M + registration_work(r) + projection_work(r)) + 1;
    }
    const ptrdiff_t input = r->input ? n * r->d + jvp_work(r->input, n) : 0;
    return input + slopes_work(r) + linear_work(r, smaller(n, CHUNK)) + projection_work(r);
}

ptrdiff_t rk_nearest_work(const randsmap_decoder *r)
{
    const ptrdiff_t n = rk_image_dimension(r) + 1;
    return (n + 1) * r->M + 3 * n * n + n - 1 + rk_projecting(r)->projection.q + jvp_work(r, n);
}

ptrdiff_t rk_work(const randsmap_decoder *r, ptrdiff_t n)
{
    const ptrdiff_t rows = r->gemm ? n : smaller(n, CHUNK);
    ptrdiff_t encoding = r->encoder_centre ? larger(encoder_work(r, smaller(n, CHUNK)), rk_nearest_work(r)) : 0, decoding;
    if (rk_is_registration(r)) {
        decoding = larger(carried_work(r, rows), carried_work(r, 1));
        encoding = carried_work(r, 1);
    } else {
        /* or fewer rows, few enough to hold all functions */
        decoding = larger(linear_work(r, rows), linear_work(r, smaller(rows, CHUNK))) + projection_work(r);
    }
    if (r->input)
        decoding += rows * r->d + rk_work(r->input, rows);
    return larger(encoding, decoding) + 1;
}

ptrdiff_t rk_tangents_work(const randsmap_decoder *r, ptrdiff_t n, ptrdiff_t p)
{
    if (!r->gemm || r->basis == RK_MIXTURE || r->input || rk_is_registration(r))
        return r->M + larger(jvp_work(r, p + 1), rk_work(r, 1));
    const ptrdiff_t fields = r->projection.bounds ? n * r->M + rk_work(r, n) : 0;
    const ptrdiff_t product = n * p * r->factor.columns + single_work(r, n * p);
    return state_work(r, n, p) + 3 * r->d + n * p * n_coefficients(r) + larger(product, fields + projection_work(r));
}

ptrdiff_t rk_cotangents_work(const randsmap_decoder *r, ptrdiff_t n)
{
    const ptrdiff_t input = r->input
        ? 2 * n * r->d + larger(rk_work(r->input, n), rk_cotangents_work(r->input, n)) : 0;
    if (rk_is_registration(r))
        return input + (r->d + 1) * r->M + jvp_work(r, r->d + 1);
    const ptrdiff_t fields = r->projection.bounds ? n * r->M + rk_work(r, n) : 0;
    const ptrdiff_t pulled = r->projected ? n * r->M + projection_work(r) : 0;
    const ptrdiff_t product = n * r->factor.columns + single_work(r, n);
    return input + state_work(r, n, 1) + 3 * r->d + n * n_coefficients(r) + product + fields + pulled;
}

ptrdiff_t randsmap_work(const randsmap_decoder *r, ptrdiff_t n)
{
    if (!r || n < 0)
        return -1;
    return larger(larger(rk_work(r, n), jvp_work(r, n + 1)), rk_cotangents_work(r, 1));
}

/* -- Functions of the latent point ----------------------------------------------------------------- */

void rk_in_units(const double *y, const double *centre, const double *lengths, ptrdiff_t d, double *x)
{
    for (ptrdiff_t j = 0; j < d; j++) {
        const double v = (centre ? y[j] - centre[j] : y[j]) / (lengths ? lengths[j] : 1);
        x[j] = v > DBL_MAX ? DBL_MAX : v < -DBL_MAX ? -DBL_MAX : v;
    }
}

/* D (n, count; row stride ld) of the points X (n, d), in units, from the points `first` and following of the kernel */
static void squared_distances(const randsmap_decoder *r, const double *X, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count,
                              double *D, ptrdiff_t ld)
{
    if (r->points)
        r->distances->direct_rows(X, n, r->points + first * r->d, count, r->d, D, ld);
    else
        r->distances->direct_columns(X, n, r->columns + first, r->n_functions, count, r->d, D, ld);
}

static void radial(const randsmap_decoder *r, int slopes, double *D, ptrdiff_t ld, ptrdiff_t n, ptrdiff_t count)
{
    if (r->basis == RK_RADIAL_KERNEL) {
        r->distances->radial(r->function, slopes, D, ld, n, count, r->scale);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        r->distances->multi_gaussian(D + i * ld, count, r->low, r->high, slopes);
}

/* W (d, count): those weights of a feature map, which the kernel wants without a stride */
static const double *some_weights(const randsmap_decoder *r, ptrdiff_t first, ptrdiff_t count, double *W)
{
    if (count == r->n_functions)
        return r->weights;
    for (ptrdiff_t j = 0; j < r->d; j++)
        memcpy(W + j * count, r->weights + j * r->n_functions + first, (size_t)count * sizeof *W);
    return W;
}

/* x = y in units, less the centre of the monomials */
static void centred(const randsmap_decoder *r, const double *y, double *x)
{
    rk_in_units(y, NULL, r->lengths, r->d, x);
    for (ptrdiff_t j = 0; j < r->d; j++)
        x[j] -= r->centre[j];
}

static double power(double x, int64_t exponent)
{
    double product = 1;
    for (; exponent > 0; exponent--)
        product *= x;
    return product;
}

/* Z (n, count): monomials `first` and following; work: RK_MOST_POWER + 2 times d */
static void monomials(const randsmap_decoder *r, const double *y, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count,
                      double *Z, double *work)
{
    const ptrdiff_t d = r->d, step = RK_MOST_POWER + 1;
    double *x = work, *powers = x + d;
    int64_t most = 0;
    for (ptrdiff_t i = 0; i < count * d; i++)
        most = r->powers[first * d + i] > most ? r->powers[first * d + i] : most;
    for (ptrdiff_t i = 0; i < n; i++) {
        centred(r, y + i * d, x);
        for (ptrdiff_t j = 0; j < d; j++) {
            powers[j * step] = 1;
            for (int64_t p = 1; p <= most; p++)
                powers[j * step + p] = powers[j * step + p - 1] * x[j];
        }
        for (ptrdiff_t k = 0; k < count; k++) {
            double product = 1;
            for (ptrdiff_t j = 0; j < d; j++)
                product *= powers[j * step + r->powers[(first + k) * d + j]];
            Z[i * count + k] = product;
        }
    }
}

/* The derivative of monomial k in coordinate j at x, centred */
static double monomial_slope(const randsmap_decoder *r, ptrdiff_t k, ptrdiff_t j, const double *x)
{
    const int64_t *p = r->powers + k * r->d;
    double product = (double)p[j];
    for (ptrdiff_t l = 0; p[j] && l < r->d; l++)
        product *= power(x[l], l == j ? p[l] - 1 : p[l]);
    return product;
}

/* The numbers (k) of a point's neighbours, their weights, and how these move (k, d) */
typedef struct {
    ptrdiff_t *row;
    double *weights, *moves;
} mixture;

static mixture mixed(const randsmap_decoder *r, const double *y, int slopes, double *work)
{
    const ptrdiff_t d = r->d, k = r->n_neighbors;
    ptrdiff_t *place = (ptrdiff_t *)(void *)work, *row = place + k;
    double *weights = work + 2 * k, *distances = weights + k, *x = distances + k;
    mixture found = {row, weights, x + d};
    double *rest = found.moves + k * d;
    rk_in_units(y, NULL, r->lengths, d, x);
    r->blend->nearest(r->near_points, r->near_order, r->n_near, d, x, k, distances, place);
    for (ptrdiff_t j = 0; j < k; j++)
        row[j] = (ptrdiff_t)r->near_order[place[j]];
    if (r->nystroem.n) {
        r->simplex->encoder(&r->nystroem, r->near_latents, y, place, row, 1, k, rest, weights);
        if (slopes)
            r->simplex->encoder_slopes(&r->nystroem, y, row, weights, k, rest, found.moves);
        return found;
    }
    r->simplex->latent(r->near_points, d, x, place, 1, k, rest, weights);
    if (slopes)
        r->simplex->latent_slopes(r->near_points, d, place, weights, k, rest, found.moves);
    for (ptrdiff_t i = 0; slopes && r->lengths && i < k * d; i++)
        found.moves[i] /= r->lengths[i % d];
    return found;
}

/* The field that the fields of a median must be near at y, and the `place` of the nearest point; NULL: no limit */
static const double *near_field(const randsmap_decoder *r, const double *y, double *near, double *x)
{
    const ptrdiff_t d = r->d, R = r->n_functions;
    if (!(r->limit < INFINITY))
        return NULL;
    if (!r->n_parts)
        return y + d - R;
    double distance;
    ptrdiff_t place;
    rk_in_units(y, NULL, r->lengths, d, x);
    r->blend->nearest(r->near_points, r->near_order, r->n_near, d, x, 1, &distance, &place);
    memcpy(near, r->near_fields + r->near_order[place] * R, (size_t)R * sizeof *near);
    for (ptrdiff_t j = 0; j < d; j++)
        for (ptrdiff_t i = 0; i < R; i++)
            near[i] += (x[j] - r->near_points[place * d + j]) * r->trend[j * R + i];
    return near;
}

static int decode_jvp(const randsmap_decoder *r, const double *y, const double *values, const double *v, ptrdiff_t p,
                      double *f, double *Jv, double *work);

/* X (n, P), or NULL: medians at points y (n, d), and with p > 0 G (n, p, P): their derivatives along v (n, p, d), or with NULL
 * along the coordinates. A part that fails makes them NaN. */
static void medians(const randsmap_decoder *r, const double *y, ptrdiff_t n, const double *v, ptrdiff_t p, double *X,
                    double *G, double *work)
{
    const ptrdiff_t d = r->d, R = r->n_functions, K = n_fields(r), size = n * R;
    double *P = work, *T = P + K * size, *near = T + K * size * p, *towards = near + R, *x = towards + R;
    double *state = x + d, *rest = state + r->blend->state_size(K, R);
    for (ptrdiff_t k = 0; k < K; k++) {
        double *fields = P + k * size, *tangents = T + k * size * p;
        if (r->n_parts && n == 1 && p) {
            randsmap_decoder part = *r->parts[k];
            part.gemm = r->gemm ? part.gemm : NULL; /* as `rk_nearest` wants it */
            decode_jvp(&part, y, NULL, v, p, fields, tangents, rest);
        } else if (r->n_parts) {
            rk_decode(r->parts[k], y, NULL, n, fields, rest);
            if (p)
                rk_tangents(r->parts[k], y, v, n, p, tangents, rest);
        } else {
            for (ptrdiff_t i = 0; i < n; i++)
                memcpy(fields + i * R, y + i * d + k * R, (size_t)R * sizeof *fields);
            for (ptrdiff_t i = 0; i < n * p; i++)
                for (ptrdiff_t j = 0; j < R; j++)
                    tangents[i * R + j] = v ? v[i * d + k * R + j] : i % p == k * R + j;
        }
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *close = near_field(r, y + i * d, near, x);
        r->blend->median(P + i * R, size, K, R, close, r->limit, r->smoothing, X ? X + i * R : towards, state);
        for (ptrdiff_t q = 0; q < p; q++) {
            const double *along = v ? v + (i * p + q) * d : NULL;
            memset(towards, 0, (size_t)R * sizeof *towards);
            for (ptrdiff_t j = 0; close && !r->n_parts && j < R; j++)
                towards[j] = along ? along[d - R + j] : q == d - R + j;
            for (ptrdiff_t l = 0; close && r->n_parts && l < d; l++) {
                const double speed = (along ? along[l] : q == l) / (r->lengths ? r->lengths[l] : 1);
                for (ptrdiff_t j = 0; j < R; j++)
                    towards[j] += speed * r->trend[l * R + j];
            }
            r->blend->push(state, T + (i * p + q) * R, size * p, K, R, towards, r->smoothing, G + (i * p + q) * R);
        }
    }
}

/* out (n, d): gradients of H (n, P) times the medians at y */
static void pull_medians(const randsmap_decoder *r, const double *y, ptrdiff_t n, const double *H, double *out,
                         double *work)
{
    const ptrdiff_t d = r->d, R = r->n_functions, K = n_fields(r), size = n * R;
    double *P = work, *S = P + K * size, *near = S + K * size, *back = near + R, *x = back + R, *gradient = x + d;
    double *median = gradient + n * d, *rest = median + r->blend->state_size(K, R);
    for (ptrdiff_t k = 0; k < K; k++) {
        if (r->n_parts)
            rk_decode(r->parts[k], y, NULL, n, P + k * size, rest);
        for (ptrdiff_t i = 0; !r->n_parts && i < n; i++)
            memcpy(P + k * size + i * R, y + i * d + k * R, (size_t)R * sizeof *P);
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        double *g = out + i * d, *s = S + i * R;
        const double *close = near_field(r, y + i * d, near, x);
        /* x, which is not needed, to the place of the first gradient */
        r->blend->median(P + i * R, size, K, R, close, r->limit, r->smoothing, s, median);
        r->blend->pull(median, H + i * R, K, R, r->smoothing, s, size, back);
        memset(g, 0, (size_t)d * sizeof *g);
        for (ptrdiff_t k = 0; !r->n_parts && k < K; k++)
            memcpy(g + k * R, s + k * size, (size_t)R * sizeof *g);
        for (ptrdiff_t j = 0; !r->n_parts && j < R; j++)
            g[K * R + j] = back[j];
        for (ptrdiff_t l = 0; close && r->n_parts && l < d; l++) {
            r->decode->adjoint(r->trend + l * R, 1, R, back, g + l);
            g[l] /= r->lengths ? r->lengths[l] : 1;
        }
    }
    for (ptrdiff_t k = 0; k < r->n_parts; k++) {
        rk_cotangents(r->parts[k], y, S + k * size, n, gradient, rest);
        for (ptrdiff_t i = 0; i < n * d; i++)
            out[i] += gradient[i];
    }
}

/* Z (n, count) = the functions `first` and following at n points, those of the tail last */
static void functions(const randsmap_decoder *r, const double *y, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count,
                      double *Z, double *work)
{
    const ptrdiff_t d = r->d, own = smaller(first + count, r->n_functions) - first, tail = first + count - r->n_functions;
    if (r->basis == RK_IDENTITY) {
        for (ptrdiff_t i = 0; i < n; i++)
            memcpy(Z + i * count, y + i * d + first, (size_t)count * sizeof *Z);
        return;
    }
    if (r->basis == RK_FEATURE_MAP) {
        r->features->fused(r->function, y, n, d, some_weights(r, first, count, work), r->offsets + first, count, r->scale,
                           Z, count);
        return;
    }
    if (r->basis == RK_MONOMIALS) {
        monomials(r, y, n, first, count, Z, work);
        return;
    }
    for (ptrdiff_t i = 0; r->basis == RK_MEDIAN && i < n; i += TOGETHER)
        medians(r, y + i * d, smaller(TOGETHER, n - i), NULL, 0, Z + i * count, NULL, work);
    if (r->basis == RK_MEDIAN)
        return;
    if (own > 0) {
        for (ptrdiff_t i = 0; i < n; i++)
            rk_in_units(y + i * d, NULL, r->lengths, d, work + i * d);
        squared_distances(r, work, n, first, own, Z, count);
        radial(r, 0, Z, count, n, own);
    }
    for (ptrdiff_t i = 0; tail > 0 && i < n; i++) {
        rk_in_units(y + i * d, r->tail_centre, r->lengths, d, work);
        memcpy(Z + i * count + larger(own, 0), work + larger(-own, 0), (size_t)smaller(tail, count) * sizeof *Z);
    }
}

/* What the gradient of function k is a multiple of: slopes S (n_functions) at y, and X = y in units (NULL for a
 * feature map). Of monomials X alone, of a mixture the slopes of the weights. */
static const double *slopes(const randsmap_decoder *r, const double *y, double *S, double *X)
{
    if (r->basis == RK_IDENTITY)
        return NULL;
    if (r->basis == RK_FEATURE_MAP) {
        r->gradients->slopes(r->function, y, 1, r->d, r->weights, r->offsets, r->n_functions, r->scale, S);
        return NULL;
    }
    if (r->basis == RK_MONOMIALS) {
        centred(r, y, X);
        return X;
    }
    if (r->basis == RK_MIXTURE)
        return mixed(r, y, 1, S).moves;
    rk_in_units(y, NULL, r->lengths, r->d, X);
    squared_distances(r, X, 1, 0, r->n_functions, S, r->n_functions);
    radial(r, 1, S, r->n_functions, 1, r->n_functions);
    return X;
}

/* G (n, P): derivatives of the functions at one point along the rows of V (n, d), or with NULL along the coordinates from
 * `first` on. S and X from `slopes`. */
static void directional(const randsmap_decoder *r, const double *S, const double *X, const double *V, ptrdiff_t first,
                        ptrdiff_t n, double *G, double *work)
{
    const ptrdiff_t d = r->d, P = n_coefficients(r);
    double *unit = work, *v = unit + d;
    for (ptrdiff_t i = 0; i < n; i++, G += P) {
        memset(unit, 0, (size_t)d * sizeof *unit);
        unit[first + (V ? 0 : i)] = 1;
        rk_in_units(V ? V + i * d : unit, NULL, r->basis == RK_MIXTURE ? NULL : r->lengths, d, v);
        if (r->basis == RK_MIXTURE)
            r->decode->adjoint(X, P, d, v, G);
        else if (r->basis == RK_MONOMIALS)
            for (ptrdiff_t k = 0; k < P; k++) {
                G[k] = 0;
                for (ptrdiff_t j = 0; j < d; j++)
                    G[k] += v[j] != 0 ? v[j] * monomial_slope(r, k, j, X) : 0;
            }
        else if (r->basis == RK_IDENTITY)
            memcpy(G, v, (size_t)d * sizeof *G);
        else
            r->gradients->directional(S, X, X ? r->columns : r->weights, v, 1, d, r->n_functions, G);
        if (r->tail_centre)
            memcpy(G + r->n_functions, v, (size_t)d * sizeof *G);
    }
}

/* -- Tables ---------------------------------------------------------------------------------------- */
typedef struct {
    ptrdiff_t first[2]; /* of the splines along each coordinate */
    double value[2][RK_SPLINE_ORDER], slope[2][RK_SPLINE_ORDER];
} place;

/* True if the point is in the box of the table; its cell and position. */
static int in_table(const randsmap_decoder *r, const double *y, place *at)
{
    if (!r->table.rows)
        return 0;
    for (ptrdiff_t j = 0; j < r->d; j++) {
        const double t = (y[j] - r->origin[j]) / r->step[j];
        const ptrdiff_t cells = r->counts[j] - RK_SPLINE_DEGREE;
        if (!(t >= RK_TABLE_MARGIN && t <= (double)(cells - RK_TABLE_MARGIN)))
            return 0;
        at->first[j] = (ptrdiff_t)t;
        rk_spline_weights(t - (double)at->first[j], at->value[j], at->slope[j]);
    }
    return 1;
}

/* The (RK_SPLINE_ORDER, M) coefficients that lie side by side, of the a-th spline along the first of two coordinates. */
static rk_matrix table_part(const randsmap_decoder *r, const place *at, int a)
{
    const ptrdiff_t row = r->d == 1 ? at->first[0] : (at->first[0] + a) * r->counts[1] + at->first[1];
    rk_matrix part = {RK_SPLINE_ORDER, r->M, r->table.wide ? r->table.wide + row * r->M : NULL,
                      r->table.narrow ? r->table.narrow + row * r->M : NULL};
    return part;
}

/* The coordinate directions of a table, which has at most two */
static const double unit_directions[2][2] = {{1, 0}, {0, 1}};

/* w (RK_SPLINE_ORDER) of those: the field's, or with v (d) the derivative's along v. */
static void table_weights(const randsmap_decoder *r, const place *at, int a, const double *v, double *w)
{
    for (int b = 0; b < RK_SPLINE_ORDER; b++) {
        if (r->d == 1)
            w[b] = v ? at->slope[0][b] * (v[0] / r->step[0]) : at->value[0][b];
        else
            w[b] = v ? at->slope[0][a] * (v[0] / r->step[0]) * at->value[1][b]
                           + at->value[0][a] * at->slope[1][b] * (v[1] / r->step[1])
                     : at->value[0][a] * at->value[1][b];
    }
}

/* -- Fields ---------------------------------------------------------------------------------------- */

/* out (n, columns) += Z (n, count) op(A): products in single precision, whose sums over some columns of Z are added in
 * double. work: see `single_work` */
static void multiply_single(const randsmap_decoder *r, const double *Z, ptrdiff_t n, ptrdiff_t count, int transpose,
                            const float *A, ptrdiff_t lda, ptrdiff_t columns, double *out, double *work)
{
    float *z = (float *)work, *sums = z + n * RK_DECODE_DEPTH;
    for (ptrdiff_t first = 0; first < count; first += RK_DECODE_DEPTH) {
        const ptrdiff_t some = smaller(RK_DECODE_DEPTH, count - first);
        for (ptrdiff_t i = 0; i < n; i++)
            r->decode->to_single(Z + i * count + first, some, z + i * some);
        for (ptrdiff_t j = 0; j < columns; j += SUMMED) {
            const ptrdiff_t width = smaller(SUMMED, columns - j);
            r->single_gemm(transpose, n, width, some, z, A + (transpose ? j * lda + first : first * lda + j), lda, sums);
            for (ptrdiff_t i = 0; i < n; i++)
                r->decode->add_single(sums + i * width, width, out + i * columns + j);
        }
    }
}

/* out[i] += row i of Z (n, count) times the rows `first` and following of A. More rows than CHUNK are left to `gemm`,
 * the BLAS of the caller that opened the map (none for an image), and are contiguous from out[0] on. */
static void multiply(const randsmap_decoder *r, const double *Z, ptrdiff_t n, const rk_matrix *A, ptrdiff_t first,
                     ptrdiff_t count, double *const *out, double *work)
{
    const ptrdiff_t columns = A->columns;
    if (n == 0 || columns == 0)
        return;
    if (A->narrow && n > CHUNK)
        multiply_single(r, Z, n, count, 0, A->narrow + first * columns, columns, columns, out[0], work);
    else if (A->narrow)
        r->decode->rows_to_single(Z, n, count, count, A->narrow + first * columns, columns, out);
    else if (n <= CHUNK)
        r->decode->rows_to(Z, n, count, count, A->wide + first * columns, columns, out);
    else
        r->gemm(0, 0, n, columns, count, 1, Z, count, A->wide + first * columns, columns, 1, out[0], columns);
}

/* The same for `count` rows of A that a mixture has, one after the other */
static void multiply_rows(const randsmap_decoder *r, const double *Z, const rk_matrix *A, const ptrdiff_t *row,
                          ptrdiff_t count, double *out)
{
    for (ptrdiff_t k = 0; k < count; k++) {
        if (Z[k] == 0)
            continue;
        if (A->narrow)
            r->decode->rows_to_single(Z + k, 1, 1, 1, A->narrow + row[k] * A->columns, A->columns, &out);
        else
            r->decode->rows_to(Z + k, 1, 1, 1, A->wide + row[k] * A->columns, A->columns, &out);
    }
}

/* The same if the sum of Z (count) is 0: rows less the first, so that their common part leaves no round-off */
static void multiply_differences(const double *Z, const rk_matrix *A, const ptrdiff_t *row, ptrdiff_t count, double *out)
{
    const ptrdiff_t columns = A->columns, start = row[0] * columns;
    for (ptrdiff_t k = 1; k < count; k++) {
        const ptrdiff_t first = row[k] * columns;
        for (ptrdiff_t i = 0; A->wide && i < columns; i++)
            out[i] += Z[k] * (A->wide[first + i] - A->wide[start + i]);
        for (ptrdiff_t i = 0; A->narrow && i < columns; i++)
            out[i] += Z[k] * ((double)A->narrow[first + i] - (double)A->narrow[start + i]);
    }
}

/* h (count): u times those rows less the first */
static void transpose_differences(const double *u, const rk_matrix *A, const ptrdiff_t *row, ptrdiff_t count, double *h)
{
    const ptrdiff_t columns = A->columns, start = row[0] * columns;
    for (ptrdiff_t k = 0; k < count; k++) {
        const ptrdiff_t first = row[k] * columns;
        h[k] = 0;
        for (ptrdiff_t i = 0; A->wide && i < columns; i++)
            h[k] += u[i] * (A->wide[first + i] - A->wide[start + i]);
        for (ptrdiff_t i = 0; A->narrow && i < columns; i++)
            h[k] += u[i] * ((double)A->narrow[first + i] - (double)A->narrow[start + i]);
    }
}

/* Where row i of n rows X (n, columns) begins; of more than CHUNK the first alone */
static void rows_of(double *X, ptrdiff_t n, ptrdiff_t columns, double **to)
{
    for (ptrdiff_t i = 0; i < (n <= CHUNK ? n : 1); i++)
        to[i] = X + i * columns;
}

/* out[i] += the functions Z (n, P), of which the first are of `fields`, or derivatives of them, times the coefficients. Of
 * a mixture those of its `row`s. */
static void linear(const randsmap_decoder *r, const double *Z, ptrdiff_t n, const ptrdiff_t *row, ptrdiff_t fields,
                   double *const *out, double *work)
{
    double *to[CHUNK];
    const ptrdiff_t P = n_coefficients(r);
    const rk_matrix *A = r->factor.rows ? &r->factor : &r->coefficients;
    if (!r->factor.rows && !row) {
        multiply(r, Z, n, A, 0, P, out, work);
        return;
    }
    if (r->factor.rows) {
        memset(work, 0, (size_t)(n * r->modes.rows) * sizeof *work);
        for (ptrdiff_t i = 0; i < fields; i++)
            memcpy(work + i * r->modes.rows, r->start, (size_t)r->modes.rows * sizeof *work);
        rows_of(work, n, r->modes.rows, to);
    }
    for (ptrdiff_t i = 0; row && i < n; i++) {
        double *sum = r->factor.rows ? to[i] : out[i];
        if (i < fields)
            multiply_rows(r, Z + i * P, A, row, P, sum);
        else
            multiply_differences(Z + i * P, A, row, P, sum);
    }
    if (!r->factor.rows)
        return;
    double *rest = work + n * r->modes.rows;
    if (!row)
        multiply(r, Z, n, A, 0, P, to, rest);
    multiply(r, work, n, &r->modes, 0, r->modes.rows, out, rest);
}

/* out[i] += the functions at row i of y (n, d) times the coefficients, some functions at a time */
static void linear_at(const randsmap_decoder *r, const double *y, ptrdiff_t n, double *const *out, double *work)
{
    const ptrdiff_t P = n_coefficients(r), step = depth(r, n), rank = r->factor.columns;
    double *coordinates = work, *Z = work + n * rank, *to[CHUNK];
    const int factored = r->factor.rows > 0;
    for (ptrdiff_t i = 0; factored && i < n; i++)
        memcpy(coordinates + i * rank, r->start, (size_t)rank * sizeof *work);
    rows_of(coordinates, n, rank, to);
    for (ptrdiff_t i = 0; r->basis == RK_MIXTURE && i < n; i++) {
        const mixture found = mixed(r, y + i * r->d, 0, Z);
        double *row = factored ? coordinates + i * rank : n <= CHUNK ? out[i] : out[0] + i * r->M;
        multiply_rows(r, found.weights, factored ? &r->factor : &r->coefficients, found.row, P, row);
    }
    for (ptrdiff_t first = 0; r->basis != RK_MIXTURE && first < P; first += step) {
        const ptrdiff_t count = smaller(step, P - first);
        functions(r, y, n, first, count, Z, Z + n * count);
        multiply(r, Z, n, factored ? &r->factor : &r->coefficients, first, count, factored ? to : out,
                 Z + n * count);
    }
    if (factored)
        multiply(r, coordinates, n, &r->modes, 0, rank, out, Z);
}

/* From the table: with `field`, the field to out[0], and the derivatives along the rows of v (n, d) to those after it. */
static void table_rows(const randsmap_decoder *r, const place *at, const double *v, ptrdiff_t field, ptrdiff_t n,
                       double *const *out)
{
    double w[CHUNK * RK_SPLINE_ORDER];
    for (ptrdiff_t i = 0; i < field + n; i++)
        memset(out[i], 0, (size_t)r->M * sizeof **out);
    for (int a = 0; a < (r->d == 1 ? 1 : RK_SPLINE_ORDER); a++) {
        const rk_matrix part = table_part(r, at, a);
        if (field)
            table_weights(r, at, a, NULL, w);
        for (ptrdiff_t i = 0; i < n; i++)
            table_weights(r, at, a, v + i * r->d, w + (field + i) * RK_SPLINE_ORDER);
        multiply(r, w, field + n, &part, 0, RK_SPLINE_ORDER, out, NULL);
    }
}

static int row_status(ptrdiff_t bad)
{
    return bad == -1 ? RANDSMAP_OK : bad < -1 ? RANDSMAP_ERROR_CONVERGENCE : RANDSMAP_ERROR_OVERFLOW;
}

/* Values m (rank) of the independent invariants to coordinates z = T^-T (m - C_J0^T c), which may be in the same place. */
static void coordinates(const randsmap_decoder *r, const double *m, double *z)
{
    const ptrdiff_t rank = r->projection.q;
    const double *R = r->projection.R;
    for (ptrdiff_t j = 0; j < rank; j++) {
        z[j] = m[j] - r->fixed[r->kept[j]];
        for (ptrdiff_t k = 0; k < j; k++)
            z[j] -= R[k * rank + j] * z[k];
        z[j] /= R[j * rank + j];
    }
}

/* The value of the i-th of the dropped invariants, which is R' z, and the magnitude of what it is a sum of */
static double implied(const randsmap_decoder *r, const double *z, ptrdiff_t i, double *size)
{
    const ptrdiff_t rank = r->projection.q, dropped = r->q - rank, column = (ptrdiff_t)r->dropped[i];
    double value = r->fixed[column];
    *size = r->fixed[r->q + column];
    for (ptrdiff_t k = 0; k < rank; k++) {
        value += z[k] * r->implied[k * dropped + i];
        *size += fabs(z[k] * r->implied[k * dropped + i]);
    }
    return value;
}

/* Values m (q) of all invariants to those of the independent ones, which is what the projection takes. */
static int independent_values(const randsmap_decoder *r, const double *m, double *kept)
{
    const ptrdiff_t rank = r->projection.q, dropped = r->q - rank;
    if (!all_finite(m, r->q))
        return RANDSMAP_ERROR_NOT_FINITE;
    for (ptrdiff_t j = 0; j < rank; j++)
        kept[j] = m[r->kept[j]];
    if (dropped)
        coordinates(r, kept, kept);
    for (ptrdiff_t i = 0; i < dropped; i++) {
        double size, value = implied(r, kept, i, &size), given = m[r->dropped[i]];
        if (!(fabs(given - value) <= 1e-6 * size + 8 * DBL_EPSILON * fabs(given)))
            return RANDSMAP_ERROR_VALUES;
    }
    for (ptrdiff_t j = 0; dropped && j < rank; j++)
        kept[j] = m[r->kept[j]];
    return RANDSMAP_OK;
}

void rk_values_of_fit(const randsmap_decoder *r, double *m, double *work)
{
    r = rk_projecting(r);
    const ptrdiff_t rank = r->projection.q;
    double size;
    coordinates(r, r->projection.m, work);
    for (ptrdiff_t j = 0; j < rank; j++)
        m[r->kept[j]] = r->projection.m[j];
    for (ptrdiff_t i = 0; i < r->q - rank; i++)
        m[r->dropped[i]] = implied(r, work, i, &size);
}

/* Rows outside the table, from out[0] on if they are more than CHUNK */
static void decode_block(const randsmap_decoder *r, const double *y, ptrdiff_t n, double *out, double *work)
{
    double *to[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++)
        memcpy(out + i * r->M, r->bias, (size_t)r->M * sizeof *out);
    rows_of(out, n, r->M, to);
    linear_at(r, y, n, to, work);
}

/* -- Registrations --------------------------------------------------------------------------------- */

/* The mass of a density at a point, and in *slope how it moves with its coordinate. */
static double mass_of(const randsmap_decoder *r, const double *y, const double *values, double *slope)
{
    const double mean = r->projection.m[0], mass = r->n_own ? y[0] * mean : mean;
    *slope = 0;
    if (values)
        return values[0];
    if (!r->n_own)
        return mean;
    if (mass > r->low && mass < r->high)
        *slope = mean;
    return mass < r->low ? r->low : mass > r->high ? r->high : mass;
}

/* The field of a registration from the field or quantiles g at the point y */
static int carried(const randsmap_decoder *r, const double *y, const double *g, const double *values, double *out,
                   double *work)
{
    double slope, mass;
    if (r->basis == RK_SHIFT) {
        r->registration->shift(&r->axis, g, y[0], 1, out, work);
        return finished(out, r->M, RANDSMAP_OK);
    }
    mass = mass_of(r, y, values, &slope);
    r->registration->density(&r->line, g, out, work);
    for (ptrdiff_t i = 0; i < r->M; i++)
        out[i] *= mass;
    const double *m = values || r->n_own ? &mass : NULL;
    return finished(out, r->M, row_status(r->project->project(&r->projection, m, out, 1, r->M, work)));
}

static int decode_carried(const randsmap_decoder *r, const double *y, const double *values, ptrdiff_t n, double *out,
                          double *work)
{
    const ptrdiff_t d = r->d, own = r->n_own, cells = rk_registered_cells(r), rank = rk_projecting(r)->projection.q;
    const double *inside = values && r->basis == RK_SHIFT ? values : NULL;
    double *g = work, *z = g + n * cells, *rest = z + n * d;
    int of_part = RANDSMAP_OK, status;
    for (ptrdiff_t i = 0; i < n; i++)
        memcpy(r->n_parts ? z + i * (d - own) : g + i * cells, y + i * d + own, (size_t)(d - own) * sizeof *z);
    if (r->n_parts)
        of_part = rk_decode(r->parts[0], z, inside, n, g, rest);
    status = of_part;
    for (ptrdiff_t i = 0; i < n; i++) {
        const int whole = all_finite(g + i * cells, cells);
        note(&status, !whole ? finished(out + i * r->M, r->M, of_part ? of_part : RANDSMAP_ERROR_OVERFLOW)
                             : carried(r, y + i * d, g + i * cells, values ? values + i * rank : NULL, out + i * r->M, rest));
    }
    return status;
}

/* Tangents T (p, M) of a density become those of its projection f. The mass of the density changes by a slope times the
 * speeds (p); the projection has a fixed mass, so that its derivative excludes this change. */
static int push_density(const randsmap_decoder *r, const double *f, double slope, const double *speeds, ptrdiff_t p,
                        double *T, double *work)
{
    const double *w = r->line.weights, *lower = r->bounds.lower, *upper = r->bounds.upper;
    double free_width = 0;
    int status = RANDSMAP_OK;
    for (ptrdiff_t i = 0; i < r->M; i++)
        if (lower[i] < f[i] && f[i] < upper[i])
            free_width += w ? w[i] : 1;
    for (ptrdiff_t j = 0; j < p; j++, T += r->M) {
        const double along = slope != 0 && free_width > 0 ? slope * speeds[j] / free_width : 0;
        for (ptrdiff_t i = 0; along != 0 && i < r->M; i++)
            T[i] -= along;
        int s = row_status(r->project->push(&r->projection, f, T, work));
        for (ptrdiff_t i = 0; along != 0 && i < r->M; i++)
            if (lower[i] < f[i] && f[i] < upper[i])
                T[i] += along;
        note(&status, finished(T, r->M, s));
    }
    return status;
}

static int carried_jvp(const randsmap_decoder *r, const double *y, const double *values, const double *v, ptrdiff_t p,
                       double *f, double *Jv, double *work)
{
    const ptrdiff_t d = r->d, M = r->M, own = r->n_own, cells = rk_registered_cells(r);
    double *g = work, *G = g + cells, *V = G + p * cells, *rest = V + p * d;
    int status = RANDSMAP_OK;
    if (!all_finite(y, d) || (v && !all_finite(v, p * d))) {
        finished(Jv, p * M, RANDSMAP_ERROR_NOT_FINITE);
        return finished(f, M, RANDSMAP_ERROR_NOT_FINITE);
    }
    for (ptrdiff_t j = 0; j < p; j++)
        for (ptrdiff_t k = own; k < d; k++)
            (r->n_parts ? V + j * (d - own) : G + j * cells)[k - own] = v ? v[j * d + k] : j == k;
    if (r->n_parts)
        status = decode_jvp(r->parts[0], y + own, r->basis == RK_SHIFT ? values : NULL, V, p, g, G, rest);
    else
        memcpy(g, y + own, (size_t)cells * sizeof *g);
    if (status || !all_finite(g, cells) || !all_finite(G, p * cells)) {
        status = status ? status : RANDSMAP_ERROR_OVERFLOW;
        finished(Jv, p * M, status);
        return finished(f, M, status);
    }
    double *speeds = V;
    for (ptrdiff_t j = 0; j < p; j++)
        speeds[j] = v ? v[j * d] : j == 0;
    status = carried(r, y, g, values, f, rest);
    if (r->basis == RK_SHIFT) {
        r->registration->shift_tangents(&r->axis, g, y[0], G, speeds, p, Jv, rest);
        for (ptrdiff_t j = 0; j < p; j++)
            note(&status, finished(Jv + j * M, M, status));
        return status;
    }
    double slope, *rho = rest;
    const double mass = mass_of(r, y, values, &slope);
    rest += M;
    r->registration->density(&r->line, g, rho, rest);
    r->registration->density_tangents(&r->line, g, G, p, Jv, rest);
    for (ptrdiff_t j = 0; j < p; j++)
        for (ptrdiff_t i = 0; i < M; i++)
            Jv[j * M + i] = mass * Jv[j * M + i] + (slope ? slope * speeds[j] * rho[i] : 0);
    if (status) {
        finished(Jv, p * M, status);
        return status;
    }
    return push_density(r, f, slope, speeds, p, Jv, rest);
}

int rk_registered(const randsmap_decoder *r, const double *f, double *own, double *inside, double *work)
{
    const ptrdiff_t M = r->M;
    if (r->basis == RK_SHIFT) {
        own[0] = r->registration->phase(&r->axis, f, work);
        r->registration->shift(&r->axis, f, -own[0], 0, inside, work);
        return RANDSMAP_OK;
    }
    double lowest = 0, highest = 0;
    for (ptrdiff_t i = 0; i < M; i++)
        lowest = f[i] < lowest ? f[i] : lowest, highest = f[i] > highest ? f[i] : highest;
    if (!(lowest >= -r->scale * highest) || !(highest > 0))
        return RANDSMAP_ERROR_FIELD;
    const double mass = r->registration->quantiles(&r->line, f, inside, work);
    if (r->n_own)
        own[0] = mass / r->projection.m[0];
    return RANDSMAP_OK;
}

static int decode_rows(const randsmap_decoder *r, const double *y, const double *values, ptrdiff_t n, double *out,
                       double *work)
{
    const ptrdiff_t d = r->d, M = r->M, rank = r->projection.q;
    place at;
    int status = RANDSMAP_OK;
    if (!all_finite(y, n * d)) {
        if (n == 1)
            return finished(out, M, RANDSMAP_ERROR_NOT_FINITE);
        for (ptrdiff_t i = 0; i < n; i++) /* the others one by one */
            note(&status, decode_rows(r, y + i * d, values ? values + i * rank : NULL, 1, out + i * M, work));
        return status;
    }
    if (rk_is_registration(r))
        return decode_carried(r, y, values, n, out, work);
    if (!r->table.rows)
        decode_block(r, y, n, out, work);
    for (ptrdiff_t i = 0; r->table.rows && i < n; i++) {
        double *to = out + i * M;
        if (in_table(r, y + i * d, &at))
            table_rows(r, &at, NULL, 1, 0, &to);
        else
            decode_block(r, y + i * d, 1, to, work);
    }
    for (ptrdiff_t i = 0; i < n; i++, out += M) {
        const double *m = values ? values + i * rank : NULL;
        note(&status, finished(out, M, r->projected ? row_status(r->project->project(&r->projection, m, out, 1, M, work))
                                                    : RANDSMAP_OK));
    }
    return status;
}

/* True if each field has its own values of the invariants, which must be given */
static int values_vary(const randsmap_decoder *r)
{
    r = rk_projecting(r);
    return r->projected && r->projection.q && !all_finite(r->projection.m, 1);
}

int rk_decode(const randsmap_decoder *r, const double *y, const double *values, ptrdiff_t n, double *out, double *work)
{
    if (!values && values_vary(r))
        return n ? finished(out, n * r->M, RANDSMAP_ERROR_VALUES) : RANDSMAP_OK;
    const ptrdiff_t step = r->gemm ? larger(n, 1) : CHUNK;
    int status = RANDSMAP_OK;
    for (ptrdiff_t i = 0; i < n; i += step) {
        const ptrdiff_t rows = smaller(step, n - i);
        const double *z = y + i * rk_image_dimension(r);
        double *rest = work;
        if (r->input) {
            rest += rows * r->d;
            note(&status, rk_decode(r->input, z, NULL, rows, work, rest));
            z = work;
        }
        note(&status, decode_rows(r, z, values ? values + i * rk_projecting(r)->projection.q : NULL, rows, out + i * r->M, rest));
    }
    return status;
}

int randsmap_decode(const randsmap_decoder *r, const double *y, ptrdiff_t n, double *out, double *work)
{
    if (!r || n < 0 || (n && (!y || !out || !work)))
        return RANDSMAP_ERROR_ARGUMENT;
    return rk_decode(r, y, NULL, n, out, work);
}

int randsmap_decode_values(const randsmap_decoder *r, const double *y, const double *m, ptrdiff_t n, double *out,
                           double *work)
{
    if (!r || n < 0 || (n && (!y || !m || !out || !work)))
        return RANDSMAP_ERROR_ARGUMENT;
    const randsmap_decoder *own = rk_projecting(r);
    if (!own->projected || !own->q)
        return RANDSMAP_ERROR_UNSUPPORTED;
    int status = RANDSMAP_OK;
    for (ptrdiff_t i = 0; i < n; i++) {
        const int s = independent_values(own, m + i * own->q, work);
        note(&status, s ? finished(out + i * r->M, r->M, s)
                        : rk_decode(r, y + i * rk_image_dimension(r), work, 1, out + i * r->M, work + own->q));
    }
    return status;
}

/* -- Encoding -------------------------------------------------------------------------------------- */
static double entry(const rk_matrix *A, ptrdiff_t i, ptrdiff_t j)
{
    return A->wide ? A->wide[i * A->columns + j] : (double)A->narrow[i * A->columns + j];
}

void rk_far_values(const rk_matrix *F, const double *z, double width, double *k)
{
    double size = 1, most = -INFINITY;
    for (ptrdiff_t i = 0; i < F->columns; i++)
        size = fabs(z[i]) > size ? fabs(z[i]) : size;
    for (ptrdiff_t j = 0; j < F->rows; j++) {
        double dot = 0, norm = 0;
        for (ptrdiff_t i = 0; i < F->columns; i++) {
            const double f = entry(F, j, i);
            dot += f * (z[i] / size), norm += f * f;
        }
        k[j] = 2 * dot - norm / size;
        most = k[j] > most ? k[j] : most;
    }
    double factor = size / width / width;
    factor = factor < DBL_MAX ? factor : DBL_MAX;
    for (ptrdiff_t j = 0; j < F->rows; j++)
        k[j] = exp((k[j] - most) * factor);
}

static int is_far(const randsmap_decoder *r, const double *z, double total)
{
    double square = 0;
    if (!(total < RK_FAR_SUM))
        return 0;
    for (ptrdiff_t i = 0; i < r->encoder_rows.columns; i++)
        square += (z[i] / r->encoder_width) * (z[i] / r->encoder_width);
    return total < RK_UNDERFLOWN_SUM || square > RK_FAR_WIDTHS * RK_FAR_WIDTHS;
}

void rk_geodesic(const rk_matrix *lengths, const double *weights, ptrdiff_t d, const double *distance,
                 const ptrdiff_t *neighbor, ptrdiff_t k, double *g, double *y)
{
    const ptrdiff_t m = lengths->columns;
    double shortest = INFINITY;
    for (ptrdiff_t l = 0; l < m; l++)
        g[l] = INFINITY;
    for (ptrdiff_t j = 0; j < k; j++)
        for (ptrdiff_t l = 0; l < m; l++) {
            const double length = entry(lengths, neighbor[j], l) + distance[j];
            g[l] = length < g[l] ? length : g[l];
        }
    for (ptrdiff_t l = 0; l < m; l++)
        shortest = g[l] < shortest ? g[l] : shortest;
    for (ptrdiff_t l = 0; l < m; l++)
        g[l] = (g[l] - shortest) * (g[l] + shortest) - weights[l];
    rk_decode_select()->adjoint(weights + m, d, m, g, y);
}

static void encode_by_paths(const randsmap_decoder *r, const double *f, ptrdiff_t n, double *y, double *work)
{
    const ptrdiff_t M = r->M, k = r->encoder_neighbors;
    double *z = work, *distance = z + M, *g = distance + k;
    ptrdiff_t *neighbor = (ptrdiff_t *)(void *)(g + r->encoder_lengths.columns);
    for (ptrdiff_t i = 0; i < n; i++) {
        for (ptrdiff_t j = 0; j < M; j++)
            z[j] = (r->encoder_root ? f[i * M + j] * r->encoder_root[j] : f[i * M + j]) - r->encoder_centre[j];
        r->blend->nearest_rows(r->encoder_rows.wide, r->encoder_rows.narrow, r->encoder_rows.rows, M, z, k, distance,
                               neighbor);
        for (ptrdiff_t j = 0; j < k; j++)
            distance[j] = sqrt(distance[j]);
        rk_geodesic(&r->encoder_lengths, r->encoder_weights, r->d, distance, neighbor, k, g, y + i * r->d);
    }
}

static void encode_rows(const randsmap_decoder *r, const double *f, ptrdiff_t n, double *y, double *work)
{
    if (r->encoder_lengths.rows) {
        encode_by_paths(r, f, n, y, work);
        return;
    }
    const ptrdiff_t M = r->M, d = r->d, training = r->encoder_rows.rows, q = d + 1;
    double *X = work, *Z = X + n * M, *K = Z + n * r->encoder_modes.columns, *sums = K + n * training;
    double *to[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t k = 0; k < M; k++)
            X[i * M + k] = f[i * M + k] - r->encoder_centre[k];
    if (r->encoder_modes.rows) {
        if (!training)
            Z = y;
        memset(Z, 0, (size_t)(n * r->encoder_modes.columns) * sizeof *Z);
        for (ptrdiff_t i = 0; i < n; i++)
            to[i] = Z + i * r->encoder_modes.columns;
        multiply(r, X, n, &r->encoder_modes, 0, M, to, NULL);
    } else {
        Z = X;
    }
    if (!training) {
        if (!r->encoder_modes.rows)
            memcpy(y, Z, (size_t)(n * d) * sizeof *y);
        return;
    }
    const ptrdiff_t width = r->encoder_rows.columns;
    if (r->encoder_rows.narrow) {
        float *narrow = (float *)(sums + n * q);
        for (ptrdiff_t i = 0; i < n * width; i++)
            narrow[i] = (float)Z[i];
        r->distances->direct_rows_single(narrow, n, r->encoder_rows.narrow, training, width, K, training);
    } else {
        r->distances->direct_rows(Z, n, r->encoder_rows.wide, training, width, K, training);
    }
    r->distances->radial(RK_GAUSSIAN, 0, K, training, n, training, 1 / (r->encoder_width * r->encoder_width));
    memset(sums, 0, (size_t)(n * q) * sizeof *sums);
    r->distances->weighted_sums(K, training, n, training, r->encoder_weights, training, q, sums);
    for (ptrdiff_t i = 0; i < n; i++) {
        double *sum = sums + i * q;
        if (is_far(r, Z + i * width, sum[0])) {
            rk_far_values(&r->encoder_rows, Z + i * width, r->encoder_width, K);
            memset(sum, 0, (size_t)q * sizeof *sum);
            r->distances->weighted_sums(K, training, 1, training, r->encoder_weights, training, q, sum);
        }
        for (ptrdiff_t j = 0; j < d; j++)
            y[i * d + j] = sum[0] != 0 ? sum[j + 1] / sum[0] : NAN;
    }
}

/* -- Derivatives ----------------------------------------------------------------------------------- */

/* The projection's derivative at the field f, whose own status is given, of n tangents T (n, M) */
static int push(const randsmap_decoder *r, const double *f, int status, ptrdiff_t n, double *const *T, double *work)
{
    const int of_field = status;
    for (ptrdiff_t i = 0; i < n; i++) {
        const int s = of_field || !r->projected ? of_field : row_status(r->project->push(&r->projection, f, T[i], work));
        note(&status, finished(T[i], r->M, s));
    }
    return status;
}

/* `decode_jvp` of a map whose input is y itself */
static int own_jvp(const randsmap_decoder *r, const double *y, const double *values, const double *v, ptrdiff_t p,
                      double *f, double *Jv, double *work)
{
    const ptrdiff_t d = r->d, M = r->M, P = n_coefficients(r);
    if (!all_finite(y, d) || (v && !all_finite(v, p * d))) {
        finished(Jv, p * M, RANDSMAP_ERROR_NOT_FINITE);
        return finished(f, M, RANDSMAP_ERROR_NOT_FINITE);
    }
    double *S = work, *X = S + state_work(r, 1, CHUNK), *scratch = X + d, *own = scratch + 2 * d, *Z = own + CHUNK * d;
    const double *X_at = NULL;
    const ptrdiff_t *row = NULL;
    mixture found;
    place at;
    const int tabulated = in_table(r, y, &at);
    if (!tabulated && r->basis == RK_MIXTURE) {
        found = mixed(r, y, p > 0, S);
        row = found.row, X_at = found.moves;
    } else if (!tabulated && p && r->basis != RK_MEDIAN) {
        X_at = slopes(r, y, S, X);
    }
    int status = RANDSMAP_OK, of_field = RANDSMAP_OK;
    for (ptrdiff_t start = 0, first = 1; first || start < p; first = 0) {
        const ptrdiff_t n = smaller(CHUNK - first, p - start); /* directions, in the first pass with the field */
        double *to[CHUNK], *rest = Z + (n + first) * P;
        to[0] = f;
        for (ptrdiff_t i = 0; i < n; i++)
            to[first + i] = Jv + (start + i) * M;
        if (tabulated) {
            table_rows(r, &at, v ? v + start * d : unit_directions[0], first, n, to);
        } else {
            if (first)
                memcpy(f, r->bias, (size_t)M * sizeof *f);
            for (ptrdiff_t i = first; i < first + n; i++)
                memset(to[i], 0, (size_t)M * sizeof *f);
            if (r->basis == RK_MEDIAN) {
                memset(own, 0, (size_t)(n * d) * sizeof *own);
                for (ptrdiff_t i = 0; i < n; i++)
                    own[i * d + (v ? 0 : start + i)] = 1;
                rest += first ? 0 : P;
                medians(r, y, 1, v ? v + start * d : own, n, Z, Z + P, S);
            } else {
                if (row && first)
                    memcpy(Z, found.weights, (size_t)P * sizeof *Z);
                else if (first)
                    functions(r, y, 1, 0, P, Z, rest);
                directional(r, S, X_at, v ? v + start * d : NULL, start, n, Z + first * P, scratch);
            }
            linear(r, Z + (r->basis == RK_MEDIAN && !first ? P : 0), n + first, row, first, to, rest);
        }
        if (first)
            of_field = finished(f, M, !values && values_vary(r) ? RANDSMAP_ERROR_VALUES
                                      : r->projected
                                          ? row_status(r->project->project(&r->projection, values, f, 1, M, Z))
                                          : RANDSMAP_OK);
        /* without bounds derivatives do not depend on the values */
        const int of_slope = of_field == RANDSMAP_ERROR_VALUES && !r->projection.bounds ? RANDSMAP_OK : of_field;
        note(&status, push(r, f, of_slope, n, to + first, Z));
        note(&status, of_field); /* after the rows of the derivatives, which a caller may need alone */
        start += n;
    }
    return status;
}

/* `randsmap_decode_jvp` of a field with these values (rank) of the independent invariants, or NULL */
static int decode_jvp(const randsmap_decoder *r, const double *y, const double *values, const double *v, ptrdiff_t p,
                      double *f, double *Jv, double *work)
{
    if (rk_is_registration(r) && !r->input)
        return carried_jvp(r, y, values, v, p, f, Jv, work);
    if (!r->input)
        return own_jvp(r, y, values, v, p, f, Jv, work);
    double *z = work, *V = z + r->d, *rest = V + p * r->d;
    int status = decode_jvp(r->input, y, NULL, v, p, z, V, rest);
    note(&status, (rk_is_registration(r) ? carried_jvp : own_jvp)(r, z, values, V, p, f, Jv, rest));
    return status;
}

int randsmap_decode_jvp(const randsmap_decoder *r, const double *y, const double *v, ptrdiff_t p, double *f,
                        double *Jv, double *work)
{
    if (!r || p < 0 || !y || !f || !work || (p && !Jv) || (!v && p != rk_image_dimension(r)))
        return RANDSMAP_ERROR_ARGUMENT;
    return decode_jvp(r, y, NULL, v, p, f, Jv, work);
}

/* The fields at y, where the derivatives of the projection depend on them: f (n, M) and what follows it in `work` */
static int fields_of_bounds(const randsmap_decoder *r, const double *y, ptrdiff_t n, double **work)
{
    double *f = *work;
    if (!r->projection.bounds)
        return RANDSMAP_OK;
    *work += n * r->M;
    if (values_vary(r))
        return n ? finished(f, n * r->M, RANDSMAP_ERROR_VALUES) : RANDSMAP_OK;
    int status = RANDSMAP_OK;
    const ptrdiff_t step = r->gemm ? larger(n, 1) : CHUNK;
    for (ptrdiff_t i = 0; i < n; i += step) /* not by `rk_decode`: y is the decoded field of the input */
        note(&status, decode_rows(r, y + i * r->d, NULL, smaller(step, n - i), f + i * r->M, *work));
    return status;
}

int rk_tangents(const randsmap_decoder *r, const double *y, const double *v, ptrdiff_t n, ptrdiff_t p, double *T,
                double *work)
{
    const ptrdiff_t d = rk_image_dimension(r), M = r->M, P = n_coefficients(r);
    int status = RANDSMAP_OK;
    if (!r->gemm || r->basis == RK_MIXTURE || r->input || rk_is_registration(r)) { /* the field is cheap here */
        for (ptrdiff_t i = 0; i < n; i++) {
            const int s = randsmap_decode_jvp(r, y + i * d, v ? v + i * p * d : NULL, p, work, T + i * p * M, work + M);
            note(&status, s == RANDSMAP_ERROR_VALUES && !rk_values_matter(r) ? RANDSMAP_OK : s);
        }
        return status;
    }
    double *S = work, *X = S + state_work(r, n, p), *scratch = X + d, *G = scratch + 2 * d, *rest = G + n * p * P;
    double *to[CHUNK], *f = rest;
    for (ptrdiff_t i = 0; r->basis == RK_MEDIAN && i < n; i += TOGETHER)
        medians(r, y + i * d, smaller(TOGETHER, n - i), v ? v + i * p * d : NULL, p, NULL, G + i * p * P, S);
    for (ptrdiff_t i = 0; r->basis != RK_MEDIAN && i < n; i++) {
        const double *X_at = slopes(r, y + i * d, S, X);
        directional(r, S, X_at, v ? v + i * p * d : NULL, 0, p, G + i * p * P, scratch);
    }
    memset(T, 0, (size_t)(n * p * M) * sizeof *T);
    rows_of(T, n * p, M, to);
    linear(r, G, n * p, NULL, 0, to, rest);
    status = fields_of_bounds(r, y, n, &rest);
    for (ptrdiff_t i = 0; !status && i < n * p; i++) {
        double *t = T + i * M;
        note(&status, push(r, f + i / p * M, RANDSMAP_OK, 1, &t, rest));
    }
    return status;
}

/* out (n, A->rows) = u A^T for u (n, A->columns) */
static void transpose_multiply(const randsmap_decoder *r, const rk_matrix *A, const double *u, ptrdiff_t n, double *out,
                               double *work)
{
    const ptrdiff_t rows = A->rows, columns = A->columns;
    if (r->gemm && A->narrow && n > CHUNK && rows && columns) {
        memset(out, 0, (size_t)(n * rows) * sizeof *out);
        multiply_single(r, u, n, columns, 1, A->narrow, columns, rows, out, work);
        return;
    }
    if (r->gemm && A->wide && n > 1 && rows && columns) {
        r->gemm(0, 1, n, rows, columns, 1, u, columns, A->wide, columns, 0, out, rows);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        if (A->narrow)
            r->decode->adjoint_single(A->narrow, rows, columns, u + i * columns, out + i * rows);
        else
            r->decode->adjoint(A->wide, rows, columns, u + i * columns, out + i * rows);
    }
}

static void table_gradient(const randsmap_decoder *r, const place *at, const double *u, double *out)
{
    memset(out, 0, (size_t)r->d * sizeof *out);
    for (int a = 0; a < (r->d == 1 ? 1 : RK_SPLINE_ORDER); a++) {
        const rk_matrix part = table_part(r, at, a);
        double h[RK_SPLINE_ORDER], w[RK_SPLINE_ORDER];
        transpose_multiply(r, &part, u, 1, h, NULL);
        for (ptrdiff_t j = 0; j < r->d; j++) {
            table_weights(r, at, a, unit_directions[j], w);
            for (int b = 0; b < RK_SPLINE_ORDER; b++)
                out[j] += w[b] * h[b];
        }
    }
}

/* out (d) = the gradient of H (P) times the functions at y */
static void contract(const randsmap_decoder *r, const double *y, const double *H, double *out, double *work)
{
    double *S = work, *X = S + state_work(r, 1, 1);
    if (r->basis == RK_IDENTITY) {
        memcpy(out, H, (size_t)r->d * sizeof *out);
        return;
    }
    const double *at = slopes(r, y, S, X);
    memset(out, 0, (size_t)r->d * sizeof *out);
    for (ptrdiff_t k = 0; r->basis == RK_MIXTURE && k < r->n_neighbors; k++)
        for (ptrdiff_t j = 0; j < r->d; j++)
            out[j] += H[k] * at[k * r->d + j];
    if (r->basis == RK_MIXTURE)
        return;
    if (r->basis == RK_MONOMIALS)
        for (ptrdiff_t k = 0; k < r->n_functions; k++)
            for (ptrdiff_t j = 0; j < r->d; j++)
                out[j] += H[k] * monomial_slope(r, k, j, at);
    else
        r->gradients->contract(S, at, at ? r->columns : r->weights, H, 1, r->d, r->n_functions, out);
    for (ptrdiff_t j = 0; j < r->d; j++) {
        if (r->tail_centre)
            out[j] += H[r->n_functions + j];
        if (r->lengths)
            out[j] /= r->lengths[j];
    }
}

static int own_cotangents(const randsmap_decoder *r, const double *y, const double *u, ptrdiff_t n, double *out,
                          double *work)
{
    const ptrdiff_t d = r->d, M = r->M, P = n_coefficients(r);
    if (rk_is_registration(r)) { /* there is no transposed derivative of a shift or a spline: products with the derivatives */
        double *J = work + M;
        int status = RANDSMAP_OK;
        for (ptrdiff_t i = 0; i < n; i++) {
            const int s = carried_jvp(r, y + i * d, NULL, NULL, d, work, J, J + d * M);
            r->decode->adjoint(J, d, M, u + i * M, out + i * d);
            note(&status, finished(out + i * d, d, s));
        }
        return status;
    }
    double *slopes_at = work, *H = slopes_at + state_work(r, n, 1) + 3 * d, *coordinates = H + n * P;
    double *rest = coordinates + n * r->factor.columns, *f = rest;
    place cell;
    int status = RANDSMAP_OK;
    if ((r->table.rows || r->basis == RK_MIXTURE) && n > 1) { /* some, or none, of the coefficients are needed */
        for (ptrdiff_t i = 0; i < n; i++)
            note(&status, own_cotangents(r, y + i * d, u + i * M, 1, out + i * d, work));
        return status;
    }
    status = fields_of_bounds(r, y, n, &rest);
    if (status)
        return finished(out, n * d, status);
    if (r->projected) {
        double *g = rest, *own = g + n * M;
        memcpy(g, u, (size_t)(n * M) * sizeof *g);
        for (ptrdiff_t i = 0; i < n; i++)
            r->project->pull(&r->projection, f + i * M, g + i * M, own);
        u = g, rest = own;
    }
    if (n == 1 && in_table(r, y, &cell)) {
        table_gradient(r, &cell, u, out);
        return finished(out, d, RANDSMAP_OK);
    }
    const rk_matrix *A = r->factor.rows ? &r->factor : &r->coefficients;
    if (r->factor.rows) {
        transpose_multiply(r, &r->modes, u, n, coordinates, rest);
        u = coordinates;
    }
    if (r->basis == RK_MIXTURE) {
        transpose_differences(u, A, mixed(r, y, 0, slopes_at).row, P, H);
    } else {
        transpose_multiply(r, A, u, n, H, rest);
    }
    for (ptrdiff_t i = 0; r->basis == RK_MEDIAN && i < n; i += TOGETHER)
        pull_medians(r, y + i * d, smaller(TOGETHER, n - i), H + i * P, out + i * d, slopes_at);
    for (ptrdiff_t i = 0; i < n; i++) {
        if (r->basis != RK_MEDIAN)
            contract(r, y + i * d, H + i * P, out + i * d, slopes_at);
        note(&status, finished(out + i * d, d, RANDSMAP_OK));
    }
    return status;
}

int rk_cotangents(const randsmap_decoder *r, const double *y, const double *u, ptrdiff_t n, double *out, double *work)
{
    if (r->input) {
        double *z = work, *g = z + n * r->d, *rest = g + n * r->d;
        const ptrdiff_t d = rk_image_dimension(r);
        int status = rk_decode(r->input, y, NULL, n, z, rest);
        if (status && n == 1)
            return finished(out, d, status);
        if (!status) {
            status = own_cotangents(r, z, u, n, g, rest);
            note(&status, rk_cotangents(r->input, y, g, n, out, rest));
            return status;
        }
        for (ptrdiff_t i = 0; i < n; i++) /* maps with an input */
            note(&status, rk_cotangents(r, y + i * d, u + i * r->M, 1, out + i * d, work));
        return status;
    }
    return own_cotangents(r, y, u, n, out, work);
}

int randsmap_vjp(const randsmap_decoder *r, const double *y, const double *u, double *out, double *work)
{
    if (!r || !y || !u || !out || !work)
        return RANDSMAP_ERROR_ARGUMENT;
    if (!all_finite(y, rk_image_dimension(r)) || !all_finite(u, r->M))
        return finished(out, rk_image_dimension(r), RANDSMAP_ERROR_NOT_FINITE);
    return rk_cotangents(r, y, u, 1, out, work);
}

/* -- Encoding by projection ------------------------------------------------------------------------ */

/* G (d + 1, d + 1), its lower triangle: products, in the norm of the weights, of the rows of E: the misfit of a field,
 * then its derivatives. */
static void misfit_products(const randsmap_decoder *r, const double *weights, const double *E, double *G, double *work)
{
    const ptrdiff_t n = rk_image_dimension(r) + 1, M = r->M;
    memset(G, 0, (size_t)(n * n) * sizeof *G);
    for (ptrdiff_t a = 0; a < n; a++) {
        for (ptrdiff_t k = 0; k < M; k++)
            work[k] = weights ? weights[k] * E[a * M + k] : E[a * M + k];
        r->decode->adjoint(E, a + 1, M, work, G + a * n);
    }
}

/* x (d) = (J^T J + damping diag(J^T J))^-1 J^T e by Cholesky, with more damping where it fails; L (d + 1, d + 1) */
static void damped_step(const double *G, ptrdiff_t d, double *damping, double *L, double *x)
{
    const ptrdiff_t n = d + 1;
    for (ptrdiff_t j = 1; j < n; j++) {
        double *row = L + j * n;
        x[j - 1] = G[j * n];
        for (ptrdiff_t k = 1; k <= j; k++) {
            row[k] = G[j * n + k] * (k == j ? 1 + *damping : 1);
            for (ptrdiff_t l = 1; l < k; l++)
                row[k] -= row[l] * L[k * n + l];
            if (k < j)
                row[k] /= L[k * n + k], x[j - 1] -= row[k] * x[k - 1];
        }
        if (G[j * n + j] == 0) { /* nothing depends on this coordinate */
            row[j] = 1;
        } else if (!(row[j] > 0)) {
            *damping *= 10, j = 0; /* from the first row again */
            continue;
        }
        row[j] = sqrt(row[j]);
        x[j - 1] /= row[j];
    }
    for (ptrdiff_t j = d; j > 0; j--) {
        for (ptrdiff_t k = j + 1; k < n; k++)
            x[j - 1] -= L[k * n + j] * x[k - 1];
        x[j - 1] /= L[j * n + j];
    }
}

static void nearest(const randsmap_decoder *r, const double *f, const double *weights, ptrdiff_t steps, double *y,
                    double *work)
{
    const ptrdiff_t d = rk_image_dimension(r), M = r->M, n = d + 1;
    double *E = work, *scratch = E + n * M, *G = scratch + M, *new = G + n * n, *L = new + n * n, *trial = L + n * n;
    const rk_projection *kept = &rk_projecting(r)->projection;
    double *own = trial + d, *rest = own + kept->q, damping = RK_DAMPING;
    const double *values = NULL;
    if (values_vary(r))
        r->decode->adjoint(kept->C, kept->q, M, f, own), values = own;
    G[0] = DBL_MAX; /* the field is not finite */
    memcpy(trial, y, (size_t)d * sizeof *y);
    for (ptrdiff_t step = 0; step <= steps; step++) {
        new[0] = DBL_MAX;
        if (!decode_jvp(r, trial, values, NULL, d, E, E + M, rest)) {
            for (ptrdiff_t k = 0; k < M; k++)
                E[k] = f[k] - E[k];
            misfit_products(r, weights, E, new, scratch);
        }
        if (new[0] < G[0] && all_finite(new, n * n)) {
            memcpy(y, trial, (size_t)d * sizeof *y);
            memcpy(G, new, (size_t)(n * n) * sizeof *G);
            damping = damping > RK_LEAST_DAMPING ? damping / 10 : damping;
        } else {
            damping *= 10;
        }
        if (G[0] == DBL_MAX)
            return;
        damped_step(G, d, &damping, L, trial);
        int moves = 0;
        for (ptrdiff_t j = 0; j < d; j++) {
            trial[j] += y[j];
            moves |= trial[j] != y[j];
        }
        if (!moves)
            return;
    }
}

void rk_nearest(const randsmap_decoder *r, const double *f, const double *weights, ptrdiff_t n, ptrdiff_t steps,
                double *y, double *work)
{
    randsmap_decoder alone = *r;
    alone.gemm = NULL; /* rows are independent, and an image gives the same bits */
    for (ptrdiff_t i = 0; steps > 0 && i < n; i++)
        nearest(&alone, f + i * r->M, weights, steps, y + i * rk_image_dimension(r), work);
}

int randsmap_encode_steps(const randsmap_decoder *r, const double *f, ptrdiff_t n, ptrdiff_t steps, double *y,
                          double *work)
{
    if (!r || n < 0 || (n && (!f || !y || !work)))
        return RANDSMAP_ERROR_ARGUMENT;
    if (!rk_image_has_encoder(r))
        return RANDSMAP_ERROR_UNSUPPORTED;
    int status = RANDSMAP_OK;
    for (ptrdiff_t i = 0; rk_is_registration(r) && i < n; i++) {
        const ptrdiff_t cells = rk_registered_cells(r);
        double *own = y + i * r->d;
        int s = all_finite(f + i * r->M, r->M) ? RANDSMAP_OK : RANDSMAP_ERROR_NOT_FINITE;
        s = s ? s : rk_registered(r, f + i * r->M, own, work, work + cells);
        s = s ? s : randsmap_encode_steps(r->parts[0], work, 1, steps, own + r->n_own, work + cells);
        note(&status, finished(own, r->d, s));
    }
    if (rk_is_registration(r))
        return status;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (i % CHUNK == 0)
            encode_rows(r, f + i * r->M, smaller(CHUNK, n - i), y + i * r->d, work);
        const int finite = all_finite(f + i * r->M, r->M);
        const int s = finished(y + i * r->d, r->d, finite ? RANDSMAP_OK : RANDSMAP_ERROR_NOT_FINITE);
        if (!s)
            rk_nearest(r, f + i * r->M, r->cell_weights, 1, steps < 0 ? r->steps : steps, y + i * r->d, work);
        note(&status, s);
    }
    return status;
}

int randsmap_encode(const randsmap_decoder *r, const double *f, ptrdiff_t n, double *y, double *work)
{
    return randsmap_encode_steps(r, f, n, -1, y, work);
}

/* -- Error bars ------------------------------------------------------------------------------------ */
/* Scaled distance of y (d) from the mean of the points of k places */
static double from_middle(const double *bar, const double *unit, ptrdiff_t d, const double *y, const ptrdiff_t *place,
                          ptrdiff_t k)
{
    double square = 0;
    for (ptrdiff_t j = 0; j < d; j++) {
        double mean = 0;
        for (ptrdiff_t i = 0; i < k; i++)
            mean += bar[place[i] * (d + 3) + j] / unit[j];
        const double t = y[j] / unit[j] - mean / (double)k;
        square += t * t;
    }
    return sqrt(square);
}

/* The logarithm of the usual error at y (d), with its growth: see ErrorBar in Python. */
static double usual_error(const randsmap_decoder *r, const double *law, int absolute, const double *y)
{
    const ptrdiff_t d = r->judged_d, k = (ptrdiff_t)law[RK_LAW_NEAR], two = smaller(2, k);
    const double *bar = r->error_bar, *unit = law + RK_LAW;
    double square[RK_MOST_NEAR], given[6] = {0};
    ptrdiff_t place[RK_MOST_NEAR], count = 0;
    for (ptrdiff_t i = 1; i <= r->n_judged; i++) { /* the first of equal errors */
        const double *point = bar + i * (d + 3);
        double sum = 0;
        for (ptrdiff_t j = 0; j < d; j++) {
            const double t = y[j] / unit[j] - point[j] / unit[j];
            sum += t * t;
        }
        if (count == k && !(sum < square[k - 1]))
            continue;
        ptrdiff_t at = count < k ? count++ : k - 1;
        for (; at > 0 && sum < square[at - 1]; at--)
            square[at] = square[at - 1], place[at] = place[at - 1];
        square[at] = sum, place[at] = i;
    }
    for (ptrdiff_t i = 0; i < k; i++) {
        const double *errors = bar + place[i] * (d + 3) + d;
        const double error = absolute ? errors[0] * errors[1] : errors[0];
        const double known = log(error > law[RK_LAW_FLOOR] ? error : law[RK_LAW_FLOOR]);
        given[0] += known / (double)k;
        given[1] += i < two ? known / (double)two : 0;
    }
    given[2] = sqrt(square[0]), given[3] = sqrt(square[two - 1]);
    given[4] = from_middle(bar, unit, d, y, place, two), given[5] = from_middle(bar, unit, d, y, place, k);
    double found = given[0] + law[RK_LAW_CONSTANT];
    for (int i = 2; i < 6; i++)
        given[i] = log(given[i] > law[RK_LAW_LEAST] ? given[i] : law[RK_LAW_LEAST]);
    for (int i = 0; i < 5; i++) {
        const double low = law[RK_LAW_LOW + i], high = law[RK_LAW_HIGH + i];
        found += law[RK_LAW_POWERS + i] * (given[i] < low ? low : given[i] > high ? high : given[i]);
    }
    const double away = given[5] > law[RK_LAW_USUAL] ? given[5] - law[RK_LAW_USUAL] : 0, twice = away / 0.6931471805599453;
    return found + bar[0] * away + bar[1] * (twice < 1 ? twice : 1);
}

int randsmap_error(const randsmap_decoder *r, const double *y, const double *f, ptrdiff_t n, double coverage, int absolute,
                   double *out)
{
    if (!r || n < 0 || (n && (!y || !out)) || !(coverage > 0) || !(coverage <= 1))
        return RANDSMAP_ERROR_ARGUMENT;
    if (!r->error_law)
        return RANDSMAP_ERROR_UNSUPPORTED;
    const ptrdiff_t D = rk_image_dimension(r), d = r->judged_d, N = r->n_judged;
    const double *law = r->error_law + (absolute ? RK_LAW + d + N : 0), rank = ceil((double)(N + 1) * coverage - 5e-10);
    int status = RANDSMAP_OK;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (!all_finite(y + i * D, D) || (f && !all_finite(f + i * r->M, r->M))) {
            note(&status, finished(out + i, 1, RANDSMAP_ERROR_NOT_FINITE));
            continue;
        }
        out[i] = INFINITY;
        if (rank > (double)N)
            continue;
        out[i] = exp(usual_error(r, law, absolute, y + (i + 1) * D - d) + law[RK_LAW + d + (ptrdiff_t)rank - 1]);
        double square = 0;
        for (ptrdiff_t j = 0; f && j < r->M; j++)
            square += (r->cell_weights ? r->cell_weights[j] : 1) * f[i * r->M + j] * f[i * r->M + j];
        const double most = absolute ? sqrt(square) + law[RK_LAW_NORM] : 1 + sqrt(square) / law[RK_LAW_NORM];
        out[i] = f && most < out[i] ? most : out[i];
    }
    return status;
}
