/* Decoding by images: the kernels of `predict`, one after the other, in the caller's memory. */
#include "rk_image.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* Rows that one read of the coefficients serves; of a derivative, the field and the directions. */
enum { CHUNK = RK_DECODE_FEW };

static ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

static int all_finite(const double *x, ptrdiff_t n)
{
    double odd = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        odd += x[i] - x[i]; /* NaN of what is not finite */
    return odd == 0;
}

static ptrdiff_t n_coefficients(const randsmap_decoder *r)
{
    return r->n_functions + (r->tail_centre ? r->d : 0);
}

/* Doubles that `functions` and its derivatives need for n rows, beside their results. */
static ptrdiff_t basis_work(const randsmap_decoder *r, ptrdiff_t n)
{
    return n * (r->d + r->n_points) + 2 * r->n_points + (CHUNK + 3) * r->d;
}

static ptrdiff_t linear_work(const randsmap_decoder *r, ptrdiff_t n)
{
    return n * (n_coefficients(r) + r->modes.rows) + basis_work(r, n);
}

static ptrdiff_t encoder_work(const randsmap_decoder *r, ptrdiff_t n)
{
    return n * (r->M + r->encoder_modes.columns + r->encoder_rows.rows + r->encoder_rows.columns + r->d + 1);
}

ptrdiff_t randsmap_work(const randsmap_decoder *r, ptrdiff_t n)
{
    if (!r || n < 0)
        return -1;
    const ptrdiff_t rows = n < CHUNK ? n + 1 : CHUNK;
    const ptrdiff_t encoding = r->encoder_centre ? encoder_work(r, smaller(n, CHUNK)) : 0;
    const ptrdiff_t decoding =
        linear_work(r, rows) + (r->projected ? r->project->workspace(&r->projection) + r->q : 0) + 2 * r->M + 1;
    return encoding > decoding ? encoding : decoding;
}

/* -- Functions of the latent point ----------------------------------------------------------------- */

/* (y - centre) / lengths, no further than the largest number; centre and lengths may be NULL. */
static void in_units(const double *y, const double *centre, const double *lengths, ptrdiff_t d, double *x)
{
    for (ptrdiff_t j = 0; j < d; j++) {
        const double v = (centre ? y[j] - centre[j] : y[j]) / (lengths ? lengths[j] : 1);
        x[j] = v > DBL_MAX ? DBL_MAX : v < -DBL_MAX ? -DBL_MAX : v;
    }
}

static void squared_distances(const randsmap_decoder *r, const double *X, ptrdiff_t n, double *D, ptrdiff_t ld)
{
    if (r->points)
        r->distances->direct_rows(X, n, r->points, r->n_points, r->d, D, ld);
    else
        r->distances->direct_columns(X, n, r->columns, r->n_points, r->n_points, r->d, D, ld);
}

static void radial(const randsmap_decoder *r, int slopes, double *D, ptrdiff_t ld, ptrdiff_t n)
{
    if (r->basis == RK_RADIAL_KERNEL) {
        r->distances->radial(r->function, slopes, D, ld, n, r->n_points, r->scale);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        (slopes ? r->distances->multi_gaussian_slope : r->distances->multi_gaussian)(D + i * ld, r->n_points,
                                                                                    r->low, r->high);
}

/* Z (n, r) += K C, C the combinations. */
static void combine(const randsmap_decoder *r, const double *K, ptrdiff_t n, double *Z, ptrdiff_t ldz)
{
    double *to[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++) {
        to[i] = Z + i * ldz;
        memset(to[i], 0, (size_t)r->n_functions * sizeof **to);
    }
    r->decode->rows_to(K, n, r->n_points, r->n_points, r->combinations, r->n_functions, to);
}

/* Z (n, P) = phi(y) for n <= CHUNK rows. */
static void functions(const randsmap_decoder *r, const double *y, ptrdiff_t n, double *Z, double *work)
{
    const ptrdiff_t d = r->d, P = n_coefficients(r);
    double *X = work, *K = X + n * d;
    switch (r->basis) {
    case RK_IDENTITY:
        memcpy(Z, y, (size_t)(n * d) * sizeof *Z);
        return;
    case RK_FEATURE_MAP:
        r->features->fused(r->function, y, n, d, r->weights, r->offsets, P, r->scale, Z, P);
        return;
    default:
        break;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        in_units(y + i * d, NULL, r->lengths, d, X + i * d);
    double *D = r->combinations ? K : Z;
    const ptrdiff_t ld = r->combinations ? r->n_points : P;
    squared_distances(r, X, n, D, ld);
    radial(r, 0, D, ld, n);
    if (r->combinations)
        combine(r, K, n, Z, P);
    if (r->tail_centre)
        for (ptrdiff_t i = 0; i < n; i++)
            in_units(y + i * d, r->tail_centre, r->lengths, d, Z + i * P + r->n_functions);
}

/* What the gradient of function k is a multiple of: slopes S (n_points) at y, and X = y in units (NULL for a
 * feature map). */
static const double *slopes(const randsmap_decoder *r, const double *y, double *S, double *X)
{
    if (r->basis == RK_FEATURE_MAP) {
        r->gradients->slopes(r->function, y, 1, r->d, r->weights, r->offsets, r->n_points, r->scale, S);
        return NULL;
    }
    in_units(y, NULL, r->lengths, r->d, X);
    squared_distances(r, X, 1, S, r->n_points);
    radial(r, 1, S, r->n_points, 1);
    return X;
}

/* G (n, P): derivatives of the functions at one point along the rows of V (n, d). `S` from `slopes`. */
static void directional(const randsmap_decoder *r, const double *S, const double *X, const double *V, ptrdiff_t n,
                        double *G, double *work)
{
    const ptrdiff_t d = r->d, P = n_coefficients(r);
    double *v = work, *K = v + d;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (r->basis == RK_IDENTITY) {
            memcpy(G + i * P, V + i * d, (size_t)d * sizeof *G);
            continue;
        }
        in_units(V + i * d, NULL, r->lengths, d, v);
        r->gradients->directional(S, X, X ? r->columns : r->weights, v, 1, d, r->n_points,
                                  r->combinations ? K + i * r->n_points : G + i * P);
        if (r->tail_centre)
            memcpy(G + i * P + r->n_functions, v, (size_t)d * sizeof *G);
    }
    if (r->combinations)
        combine(r, K, n, G, P);
}

/* -- Tables ---------------------------------------------------------------------------------------- */
typedef struct {
    ptrdiff_t first[2]; /* of the splines along each coordinate */
    double value[2][RK_SPLINE_ORDER], slope[2][RK_SPLINE_ORDER];
} place;

/* Whether the point is in the table's box, and where. */
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

static void multiply(const randsmap_decoder *r, const double *Z, ptrdiff_t n, const rk_matrix *A, double *const *out)
{
    if (A->narrow)
        r->decode->rows_to_single(Z, n, A->rows, A->rows, A->narrow, A->columns, out);
    else
        r->decode->rows_to(Z, n, A->rows, A->rows, A->wide, A->columns, out);
}

/* out[i] += row i of Z (n, P) times the coefficients */
static void linear(const randsmap_decoder *r, const double *Z, ptrdiff_t n, double *const *out, double *work)
{
    if (!r->factor.rows) {
        multiply(r, Z, n, &r->coefficients, out);
        return;
    }
    double *to[CHUNK];
    memset(work, 0, (size_t)(n * r->modes.rows) * sizeof *work);
    for (ptrdiff_t i = 0; i < n; i++)
        to[i] = work + i * r->modes.rows;
    multiply(r, Z, n, &r->factor, to);
    multiply(r, work, n, &r->modes, out);
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
        multiply(r, w, field + n, &part, out);
    }
}

static int row_status(ptrdiff_t bad)
{
    return bad == -1 ? RANDSMAP_OK : bad < -1 ? RANDSMAP_ERROR_CONVERGENCE : RANDSMAP_ERROR_OVERFLOW;
}

/* Values m (q) of all invariants to those of the independent ones, which is what the projection takes. */
static int independent_values(const randsmap_decoder *r, const double *m, double *kept)
{
    const ptrdiff_t rank = r->projection.q, dropped = r->q - rank;
    const double *R = r->projection.R;
    if (!all_finite(m, r->q))
        return RANDSMAP_ERROR_NOT_FINITE;
    if (dropped) { /* z = T^-T (m - C_J0^T c), in which the dropped are R' z */
        for (ptrdiff_t j = 0; j < rank; j++) {
            kept[j] = m[r->kept[j]] - r->fixed[r->kept[j]];
            for (ptrdiff_t k = 0; k < j; k++)
                kept[j] -= R[k * rank + j] * kept[k];
            kept[j] /= R[j * rank + j];
        }
        for (ptrdiff_t i = 0; i < dropped; i++) {
            const ptrdiff_t column = (ptrdiff_t)r->dropped[i];
            double implied = r->fixed[column], size = r->fixed[r->q + column];
            for (ptrdiff_t k = 0; k < rank; k++) {
                implied += kept[k] * r->implied[k * dropped + i];
                size += fabs(kept[k] * r->implied[k * dropped + i]);
            }
            if (!(fabs(m[column] - implied) <= 1e-6 * size + 8 * DBL_EPSILON * fabs(m[column])))
                return RANDSMAP_ERROR_VALUES;
        }
    }
    for (ptrdiff_t j = 0; j < rank; j++)
        kept[j] = m[r->kept[j]];
    return RANDSMAP_OK;
}

static int decode_rows(const randsmap_decoder *r, const double *y, const double *m, ptrdiff_t n, double *out,
                       double *work)
{
    const ptrdiff_t d = r->d, M = r->M, P = n_coefficients(r);
    double *to[CHUNK], *Z = work, *rest = Z + n * P;
    int status = all_finite(y, n * d) ? RANDSMAP_OK : RANDSMAP_ERROR_NOT_FINITE;
    if (status) {
        if (n == 1)
            return status;
        for (ptrdiff_t i = 0; i < n; i++) { /* the others one by one */
            const int s = decode_rows(r, y + i * d, m ? m + i * r->q : NULL, 1, out + i * M, work);
            status = i == 0 || status == RANDSMAP_OK ? s : status;
        }
        return status;
    }
    ptrdiff_t left = 0; /* rows that no table has */
    for (ptrdiff_t i = 0; i < n; i++) {
        place at;
        to[left] = out + i * M;
        if (in_table(r, y + i * d, &at)) {
            table_rows(r, &at, NULL, 1, 0, to + left);
            continue;
        }
        memcpy(to[left], r->bias, (size_t)M * sizeof *out);
        if (r->table.rows)
            functions(r, y + i * d, 1, Z + left * P, rest);
        left++;
    }
    if (!r->table.rows)
        functions(r, y, n, Z, rest);
    linear(r, Z, left, to, rest);
    for (ptrdiff_t i = 0; r->projected && i < n; i++) {
        const double *values = NULL;
        int s = RANDSMAP_OK;
        if (m) {
            s = independent_values(r, m + i * r->q, work);
            values = work;
        }
        if (!s)
            s = row_status(r->project->project(&r->projection, values, out + i * M, 1, M, work + r->q));
        status = status ? status : s;
    }
    return status;
}

static int decode(const randsmap_decoder *r, const double *y, const double *m, ptrdiff_t n, double *out, double *work)
{
    int status = RANDSMAP_OK;
    for (ptrdiff_t i = 0; i < n; i += CHUNK) {
        const int s = decode_rows(r, y + i * r->d, m ? m + i * r->q : NULL, smaller(CHUNK, n - i), out + i * r->M, work);
        status = status ? status : s;
    }
    return status;
}

int randsmap_decode(const randsmap_decoder *r, const double *y, ptrdiff_t n, double *out, double *work)
{
    if (!r || n < 0 || (n && (!y || !out || !work)))
        return RANDSMAP_ERROR_ARGUMENT;
    return decode(r, y, NULL, n, out, work);
}

int randsmap_decode_values(const randsmap_decoder *r, const double *y, const double *m, ptrdiff_t n, double *out,
                           double *work)
{
    if (!r || n < 0 || (n && (!y || !m || !out || !work)))
        return RANDSMAP_ERROR_ARGUMENT;
    if (!r->projected || !r->q)
        return RANDSMAP_ERROR_UNSUPPORTED;
    return decode(r, y, m, n, out, work);
}

/* -- Encoding -------------------------------------------------------------------------------------- */
/* Sums of a kernel below which a field is far from the training fields, and what then must hold, as in
 * DiffusionMaps: the kernel says nothing, and the limit of the ratio is taken. */
#define FAR_SUM 1e-15
#define UNDERFLOWN_SUM 1e-280
#define FAR_EXPONENT 1024.

static double entry(const rk_matrix *A, ptrdiff_t i, ptrdiff_t j)
{
    return A->wide ? A->wide[i * A->columns + j] : (double)A->narrow[i * A->columns + j];
}

/* The kernel k (n) at z up to a common factor, where it underflows: a softmax of (2 z.f_j - |f_j|^2) / epsilon^2. */
static void far_values(const randsmap_decoder *r, const double *z, double *k)
{
    const rk_matrix *F = &r->encoder_rows;
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
    double factor = size / r->encoder_width / r->encoder_width;
    factor = factor < DBL_MAX ? factor : DBL_MAX;
    for (ptrdiff_t j = 0; j < F->rows; j++)
        k[j] = exp((k[j] - most) * factor);
}

static int is_far(const randsmap_decoder *r, const double *z, double total)
{
    double square = 0;
    if (!(total < FAR_SUM))
        return 0;
    for (ptrdiff_t i = 0; i < r->encoder_rows.columns; i++)
        square += (z[i] / r->encoder_width) * (z[i] / r->encoder_width);
    return total < UNDERFLOWN_SUM || square > FAR_EXPONENT;
}

static void encode_rows(const randsmap_decoder *r, const double *f, ptrdiff_t n, double *y, double *work)
{
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
        multiply(r, X, n, &r->encoder_modes, to);
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
            far_values(r, Z + i * width, K);
            memset(sum, 0, (size_t)q * sizeof *sum);
            r->distances->weighted_sums(K, training, 1, training, r->encoder_weights, training, q, sum);
        }
        for (ptrdiff_t j = 0; j < d; j++)
            y[i * d + j] = sum[0] != 0 ? sum[j + 1] / sum[0] : NAN;
    }
}

int randsmap_encode(const randsmap_decoder *r, const double *f, ptrdiff_t n, double *y, double *work)
{
    if (!r || n < 0 || (n && (!f || !y || !work)))
        return RANDSMAP_ERROR_ARGUMENT;
    if (!r->encoder_centre)
        return RANDSMAP_ERROR_UNSUPPORTED;
    int status = RANDSMAP_OK;
    for (ptrdiff_t i = 0; i < n; i += CHUNK) {
        const ptrdiff_t rows = smaller(CHUNK, n - i);
        if (!all_finite(f + i * r->M, rows * r->M))
            status = RANDSMAP_ERROR_NOT_FINITE; /* and so are the latents of these fields */
        encode_rows(r, f + i * r->M, rows, y + i * r->d, work);
        if (!status && !all_finite(y + i * r->d, rows * r->d))
            status = RANDSMAP_ERROR_OVERFLOW;
    }
    return status;
}

/* -- Derivatives ----------------------------------------------------------------------------------- */

int randsmap_decode_jvp(const randsmap_decoder *r, const double *y, const double *v, ptrdiff_t p, double *f,
                        double *Jv, double *work)
{
    if (!r || p < 0 || !y || !f || !work || (p && !Jv) || (!v && p != r->d))
        return RANDSMAP_ERROR_ARGUMENT;
    const ptrdiff_t d = r->d, M = r->M, P = n_coefficients(r);
    if (!all_finite(y, d) || (v && !all_finite(v, p * d)))
        return RANDSMAP_ERROR_NOT_FINITE;
    double *S = work, *X = S + r->n_points, *units = X + d, *Z = units + CHUNK * d;
    const double *slopes_at = NULL;
    place at;
    const int tabulated = in_table(r, y, &at);
    if (!tabulated && p && r->basis != RK_IDENTITY)
        slopes_at = slopes(r, y, S, X);
    int status = RANDSMAP_OK;
    for (ptrdiff_t start = 0, first = 1; first || start < p; first = 0) {
        const ptrdiff_t n = smaller(CHUNK - first, p - start); /* directions beside, at first, the field */
        double *to[CHUNK], *rest = Z + (n + first) * P;
        const double *directions = v ? v + start * d : units;
        if (!v) {
            memset(units, 0, (size_t)(n * d) * sizeof *units);
            for (ptrdiff_t i = 0; i < n; i++)
                units[i * d + start + i] = 1;
        }
        to[0] = f;
        for (ptrdiff_t i = 0; i < n; i++)
            to[first + i] = Jv + (start + i) * M;
        if (tabulated) {
            table_rows(r, &at, directions, first, n, to);
        } else {
            if (first) {
                memcpy(f, r->bias, (size_t)M * sizeof *f);
                functions(r, y, 1, Z, rest);
            }
            for (ptrdiff_t i = first; i < first + n; i++)
                memset(to[i], 0, (size_t)M * sizeof *f);
            directional(r, S, slopes_at, directions, n, Z + first * P, rest);
            linear(r, Z, n + first, to, rest);
        }
        if (r->projected) {
            if (first)
                status = row_status(r->project->project(&r->projection, NULL, f, 1, M, Z));
            for (ptrdiff_t i = first; i < n + first; i++) {
                const int s = row_status(r->project->push(&r->projection, f, to[i], Z));
                status = status ? status : s;
            }
        }
        start += n;
    }
    return status;
}

static void transpose_multiply(const randsmap_decoder *r, const rk_matrix *A, const double *u, double *out)
{
    if (A->narrow)
        r->decode->adjoint_single(A->narrow, A->rows, A->columns, u, out);
    else
        r->decode->adjoint(A->wide, A->rows, A->columns, u, out);
}

static void table_gradient(const randsmap_decoder *r, const place *at, const double *u, double *out)
{
    const double unit[2][2] = {{1, 0}, {0, 1}};
    memset(out, 0, (size_t)r->d * sizeof *out);
    for (int a = 0; a < (r->d == 1 ? 1 : RK_SPLINE_ORDER); a++) {
        const rk_matrix part = table_part(r, at, a);
        double h[RK_SPLINE_ORDER], w[RK_SPLINE_ORDER];
        transpose_multiply(r, &part, u, h);
        for (ptrdiff_t j = 0; j < r->d; j++) {
            table_weights(r, at, a, unit[j], w);
            for (int b = 0; b < RK_SPLINE_ORDER; b++)
                out[j] += w[b] * h[b];
        }
    }
}

int randsmap_vjp(const randsmap_decoder *r, const double *y, const double *u, double *out, double *work)
{
    if (!r || !y || !u || !out || !work)
        return RANDSMAP_ERROR_ARGUMENT;
    const ptrdiff_t d = r->d, M = r->M, P = n_coefficients(r);
    double *f = work, *g = f + M, *S = g + M, *X = S + r->n_points, *H = X + d, *rest = H + P;
    if (!all_finite(y, d) || !all_finite(u, M))
        return RANDSMAP_ERROR_NOT_FINITE;
    if (r->projected) {
        if (r->projection.bounds) {
            const int status = decode(r, y, NULL, 1, f, g);
            if (status)
                return status;
        }
        memcpy(g, u, (size_t)M * sizeof *g);
        r->project->pull(&r->projection, f, g, S);
        u = g;
    }
    place cell;
    if (in_table(r, y, &cell)) {
        table_gradient(r, &cell, u, out);
        return RANDSMAP_OK;
    }
    if (r->factor.rows) {
        transpose_multiply(r, &r->modes, u, rest);
        transpose_multiply(r, &r->factor, rest, H);
    } else {
        transpose_multiply(r, &r->coefficients, u, H);
    }
    if (r->basis == RK_IDENTITY) {
        memcpy(out, H, (size_t)d * sizeof *out);
        return RANDSMAP_OK;
    }
    const double *at = slopes(r, y, S, X), *h = H;
    if (r->combinations) {
        r->decode->adjoint(r->combinations, r->n_points, r->n_functions, H, rest);
        h = rest;
    }
    r->gradients->contract(S, at, at ? r->columns : r->weights, h, 1, d, r->n_points, out);
    for (ptrdiff_t j = 0; j < d; j++) {
        if (r->tail_centre)
            out[j] += H[r->n_functions + j];
        if (r->lengths)
            out[j] /= r->lengths[j];
    }
    return RANDSMAP_OK;
}
