#include "rk_registration.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

static ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

/* -- Shifts along a periodic axis -------------------------------------------------------------------
 * Cell averages are integrals of a parabola in each cell, of fourth-order edges: P. Colella and P. R. Woodward, J. Comput.
 * Phys. 54 (1984). It is scaled towards the average to keep within limits: X. Zhang and C.-W. Shu, ibid. 229 (2010). */

/* A line of N cells a (stride step) of a field, shifted by whole cells and part of one */
typedef struct {
    ptrdiff_t N, step, whole;
    double part;
    const double *a;
    double *right;                   /* (N): values at the right edges */
    double *scale;                   /* (N): what parabolas less the average are scaled by, */
    double *by_a, *by_left, *by_right; /* (N): and its derivatives by the average and the values at the edges */
    double *moved;                   /* (N) */
} line;

static ptrdiff_t axis_size(const rk_axis *axis)
{
    return 7 * axis->along;
}

static line laid_out(const rk_axis *axis, double angle, double *work)
{
    const ptrdiff_t N = axis->along;
    line z = {.N = N, .step = axis->behind};
    angle = fmod(angle, 2 * PI); /* less whole turns, exactly: an angle in [-pi, pi) does not change */
    angle += angle >= PI ? -2 * PI : angle < -PI ? 2 * PI : 0;
    const double cells = angle * ((double)N / (2 * PI)), whole = floor(cells);
    z.part = cells - whole;
    z.whole = (ptrdiff_t)whole + (whole < 0 ? N : 0);
    z.right = work, z.scale = work + N, z.by_a = z.scale + N, z.by_left = z.by_a + N, z.by_right = z.by_left + N;
    z.moved = z.by_right + N;
    return z;
}

static void edges(const double *a, ptrdiff_t N, ptrdiff_t step, double *right)
{
    for (ptrdiff_t i = 0; i < N; i++) {
        const ptrdiff_t back = i ? i - 1 : N - 1, next = i + 1 < N ? i + 1 : 0, after = next + 1 < N ? next + 1 : 0;
        right[i] = (7 * (a[i * step] + a[next * step]) - (a[back * step] + a[after * step])) / 12;
    }
}

/* Enters a limit into the scale of cell i, where the parabola's extreme value beyond it is the left (0) or right edge (1)
 * or at x inside (2). */
static void limit(const line *z, ptrdiff_t i, double bound, double worst, int where, double x)
{
    const double a = z->a[i * z->step], away = a - worst, k = x * (1 - x);
    if (worst == a)
        return;
    const double factor = (a - bound) / away > 0 ? (a - bound) / away : 0;
    if (!(factor < z->scale[i]))
        return;
    z->scale[i] = factor;
    const double of_a = factor > 0 ? (bound - worst) / away / away : 0, of_worst = factor > 0 ? factor / away : 0;
    z->by_a[i] = of_a + (where == 2 ? of_worst * 6 * k : 0);
    z->by_left[i] = of_worst * (where == 0 ? 1 : where == 2 ? 1 - x - 3 * k : 0);
    z->by_right[i] = of_worst * (where == 1 ? 1 : where == 2 ? x - 3 * k : 0);
}

/* The parabolas of the line, within low and high */
static void reconstruct(const line *z, double low, double high)
{
    edges(z->a, z->N, z->step, z->right);
    for (ptrdiff_t i = 0; i < z->N; i++) {
        const double a = z->a[i * z->step], left = z->right[i ? i - 1 : z->N - 1], right = z->right[i];
        const double curve = 6 * (a - (left + right) / 2), at = curve != 0 ? (right - left + curve) / (2 * curve) : 0;
        const double x = at > 0 && at < 1 ? at : 0, inside = left + x * (right - left + curve * (1 - x));
        const int least = left <= right ? (left <= inside ? 0 : 2) : right <= inside ? 1 : 2;
        const int most = left >= right ? (left >= inside ? 0 : 2) : right >= inside ? 1 : 2;
        const double value[3] = {left, right, inside};
        z->scale[i] = 1, z->by_a[i] = z->by_left[i] = z->by_right[i] = 0;
        if (value[least] < low)
            limit(z, i, low, value[least], least, x);
        if (value[most] > high)
            limit(z, i, high, value[most], most, x);
    }
}

/* Integral of the parabola of this average and edges over the first w of a cell; with exchanged edges, over the last. */
static double head(double a, double left, double right, double w)
{
    return w * (left + w / 2 * (right - left + (1 - 2 * w / 3) * 6 * (a - (left + right) / 2)));
}

/* The parabola at w */
static double value_at(double a, double left, double right, double w)
{
    return left + w * (right - left + (1 - w) * 6 * (a - (left + right) / 2));
}

/* Bounds of the line; a line without negative values has the lower bound 0. */
static void bounds_of(const rk_axis *axis, const line *z, int limited, ptrdiff_t start, double *low, double *high)
{
    *low = limited && axis->lower ? axis->lower[start] : -INFINITY;
    *high = limited && axis->upper ? axis->upper[start] : INFINITY;
    int negative = !(*low < 0);
    for (ptrdiff_t i = 0; i < z->N && !negative; i++)
        negative = !(z->a[i * z->step] >= 0);
    *low = negative ? *low : 0;
}

/* The mass that leaves a cell for the next one from its last `part`, and the rest */
static void shift(const rk_axis *axis, const double *f, double angle, int limited, double *out, double *work)
{
    line z = laid_out(axis, angle, work);
    const double w = z.part;
    for (ptrdiff_t l = 0; l < axis->before * axis->behind; l++) {
        const ptrdiff_t start = l / axis->behind * axis->along * axis->behind + l % axis->behind;
        double low, high, *to = z.moved;
        int within = 1;
        z.a = f + start;
        bounds_of(axis, &z, limited, start, &low, &high);
        reconstruct(&z, low, high);
        memset(to, 0, (size_t)z.N * sizeof *to);
        for (ptrdiff_t i = 0; i < z.N; i++) {
            const double a = z.a[i * z.step], s = z.scale[i];
            const double left = a + s * (z.right[i ? i - 1 : z.N - 1] - a), right = a + s * (z.right[i] - a);
            to[i] += head(a, left, right, 1 - w);
            to[i + 1 < z.N ? i + 1 : 0] += head(a, right, left, w);
            within &= a >= low && a <= high;
        }
        for (ptrdiff_t i = 0; i < z.N; i++) {
            const ptrdiff_t place = i + z.whole < z.N ? i + z.whole : i + z.whole - z.N;
            double value = to[i]; /* the limits are exceeded by round-off only */
            if (within)
                value = value < low ? low : value > high ? high : value;
            out[start + place * z.step] = value;
        }
    }
}

static void shift_tangents(const rk_axis *axis, const double *f, double angle, const double *F, const double *speeds,
                           ptrdiff_t p, double *out, double *work)
{
    line z = laid_out(axis, angle, work);
    double *slope = z.moved + z.N; /* of the values at the right edges */
    const double w = z.part, cells = (double)z.N / (2 * PI);
    const ptrdiff_t M = axis->before * axis->along * axis->behind;
    for (ptrdiff_t l = 0; l < axis->before * axis->behind; l++) {
        const ptrdiff_t start = l / axis->behind * axis->along * axis->behind + l % axis->behind;
        double low, high;
        z.a = f + start;
        bounds_of(axis, &z, 1, start, &low, &high);
        reconstruct(&z, low, high);
        for (ptrdiff_t j = 0; j < p; j++) {
            const double *da = F + j * M + start, speed = speeds[j] * cells;
            double *to = z.moved;
            edges(da, z.N, z.step, slope);
            memset(to, 0, (size_t)z.N * sizeof *to);
            for (ptrdiff_t i = 0; i < z.N; i++) {
                const ptrdiff_t back = i ? i - 1 : z.N - 1;
                const double a = z.a[i * z.step], s = z.scale[i], d = da[i * z.step];
                const double l0 = z.right[back] - a, r0 = z.right[i] - a, dl = slope[back] - d, dr = slope[i] - d;
                const double ds = z.by_a[i] * d + z.by_left[i] * slope[back] + z.by_right[i] * slope[i];
                const double left = a + s * l0, right = a + s * r0;
                const double d_left = d + ds * l0 + s * dl, d_right = d + ds * r0 + s * dr;
                to[i] += head(d, d_left, d_right, 1 - w) - speed * value_at(a, left, right, 1 - w);
                to[i + 1 < z.N ? i + 1 : 0] += head(d, d_right, d_left, w) + speed * value_at(a, right, left, w);
            }
            for (ptrdiff_t i = 0; i < z.N; i++)
                out[j * M + start + (i + z.whole < z.N ? i + z.whole : i + z.whole - z.N) * z.step] = to[i];
        }
    }
}

static double phase(const rk_axis *axis, const double *f, double *work)
{
    const ptrdiff_t N = axis->along, behind = axis->behind;
    double cosine = 0, sine = 0, size = 0, *profile = work;
    memset(profile, 0, (size_t)N * sizeof *profile);
    for (ptrdiff_t b = 0; b < axis->before; b++)
        for (ptrdiff_t i = 0; i < N; i++)
            for (ptrdiff_t k = 0; k < behind; k++) {
                const ptrdiff_t at = (b * N + i) * behind + k;
                const double x = axis->weights ? f[at] * axis->weights[at] : f[at];
                profile[i] += x, size += fabs(x);
            }
    for (ptrdiff_t i = 0; i < N; i++) {
        const double angle = 2 * PI * (double)i / (double)N;
        cosine += profile[i] * cos(angle), sine += profile[i] * sin(angle);
    }
    /* a first mode below 1e-12 of the sum of magnitudes is round-off, so it has no phase */
    if (!(hypot(cosine, sine) >= 1e-12 * size) || size == 0)
        return 0;
    const double theta = atan2(sine, cosine);
    return theta >= PI ? -PI : theta >= -PI ? theta : 0; /* both ends of the circle are one; of sums that overflow there is none */
}

/* -- Quantiles on a line ----------------------------------------------------------------------------
 * Monotone cubic splines: F. N. Fritsch and J. Butland, SIAM J. Sci. Stat. Comput. 5 (1984). */

/* Smaller and larger shares have the quantiles of these shares: a field ends where its mass exceeds the numerical
 * diffusion of a solver. The second is the least distance of knots, relative to the whole. */
static const double least_share = 1e-7, apart = 1e-9;

static ptrdiff_t line_size(const rk_line *z)
{
    const ptrdiff_t K = 2 * z->M + 1;
    return 6 * K;
}

/* Slopes m (n) of the spline through y (n) at x (n), both ascending; 0 next to a secant of slope 0 */
static double end_slope(double h0, double h1, double d0, double d1)
{
    const double m = ((2 * h0 + h1) * d0 - h0 * d1) / (h0 + h1), most = 3 * d0;
    return m < 0 ? 0 : m > most ? most : m == m ? m : 0;
}

static void slopes(const double *x, const double *y, ptrdiff_t n, double *m)
{
    for (ptrdiff_t i = 1; i < n - 1; i++) {
        const double h0 = x[i] - x[i - 1], h1 = x[i + 1] - x[i], d0 = y[i] - y[i - 1], d1 = y[i + 1] - y[i];
        const double left = 2 * h1 + h0, right = h1 + 2 * h0;
        const double sum = d0 > 0 && d1 > 0 ? left * h0 / d0 + right * h1 / d1 : 0;
        m[i] = sum > 0 ? (left + right) / sum : 0;
    }
    for (int last = 0; last < 2; last++) {
        const ptrdiff_t i = last ? n - 1 : 0, j = last ? n - 2 : 1, k = last ? n - 3 : 2;
        const double h0 = fabs(x[j] - x[i]), h1 = fabs(x[k] - x[j]);
        m[i] = h0 > 0 && h1 > 0 ? end_slope(h0, h1, fabs(y[j] - y[i]) / h0, fabs(y[k] - y[j]) / h1) : 0;
    }
}

/* The cubic on [0, 1] with these values and slopes at its ends */
static double cubic(double t, double y0, double y1, double d0, double d1)
{
    return y0 + t * (d0 + t * (3 * (y1 - y0) - 2 * d0 - d1 + t * (2 * (y0 - y1) + d0 + d1)));
}

static double quantiles(const rk_line *z, const double *f, double *x, double *work)
{
    const ptrdiff_t M = z->M, K = 2 * M + 1;
    double *sums = work, *m = sums + M + 1, mass = 0;
    sums[0] = 0;
    for (ptrdiff_t i = 0; i < M; i++)
        sums[i + 1] = mass += (f[i] > 0 ? f[i] : 0) * (z->weights ? z->weights[i] : 1);
    for (ptrdiff_t i = 1; i <= M; i++)
        sums[i] /= mass;
    slopes(z->edges, sums, M + 1, m);
    for (ptrdiff_t k = 0, j = 0; k < K; k++) {
        const double level = z->levels[k], at = level < least_share ? least_share
                                              : level > 1 - least_share ? 1 - least_share : level;
        while (j < M - 1 && sums[j + 1] <= at)
            j++;
        const double h = z->edges[j + 1] - z->edges[j], y0 = sums[j], y1 = sums[j + 1], d0 = m[j] * h, d1 = m[j + 1] * h;
        double a = 0, b = 1;
        for (int step = 0; step < 20; step++) {
            const double middle = (a + b) / 2;
            if (cubic(middle, y0, y1, d0, d1) < at)
                a = middle;
            else
                b = middle;
        }
        const double first = cubic(a, y0, y1, d0, d1), last = cubic(b, y0, y1, d0, d1);
        double share = last > first ? (at - first) / (last - first) : 0.5; /* a secant */
        share = share < 0 ? 0 : share > 1 ? 1 : share;
        x[k] = z->edges[j] + h * (a + (b - a) * share);
    }
    return mass;
}

/* The knots (K) of these quantiles: sorted by merging, within [0, 1], and apart; returns their numbers, in `spare` (2 K) */
static const ptrdiff_t *knots(const double *x, ptrdiff_t K, double *to, double *spare)
{
    ptrdiff_t *from = (ptrdiff_t *)(void *)spare, *into = from + K;
    for (ptrdiff_t k = 0; k < K; k++)
        from[k] = k;
    for (ptrdiff_t run = 1; run < K; run *= 2) {
        for (ptrdiff_t start = 0; start < K; start += 2 * run) {
            const ptrdiff_t middle = smaller(start + run, K), end = smaller(start + 2 * run, K);
            for (ptrdiff_t i = start, j = middle, k = start; k < end; k++)
                into[k] = i < middle && (j == end || !(x[from[j]] < x[from[i]])) ? from[i++] : from[j++];
        }
        ptrdiff_t *swapped = from;
        from = into, into = swapped;
    }
    for (ptrdiff_t k = 0; k < K; k++) {
        const double q = x[from[k]], inside = q < 0 ? 0 : q > 1 ? 1 : q;
        to[k] = inside * (1 - apart) + apart * ((double)k / (double)(K - 1));
    }
    return from;
}

/* out (M) = differences of these values at the edges, over the widths */
static void differences(const rk_line *z, const double *at_edges, double *out)
{
    for (ptrdiff_t i = 0; i < z->M; i++)
        out[i] = (at_edges[i + 1] - at_edges[i]) / (z->weights ? z->weights[i] : 1);
}

/* The piece after j between knots x (K) in which `at` is */
static ptrdiff_t piece(const double *x, ptrdiff_t K, ptrdiff_t j, double at)
{
    while (j < K - 2 && x[j + 1] <= at)
        j++;
    return j;
}

static void density(const rk_line *z, const double *given, double *out, double *work)
{
    const ptrdiff_t M = z->M, K = 2 * M + 1;
    const double *y = z->levels;
    double *x = work, *m = x + K, *sums = m + K;
    knots(given, K, x, sums + K);
    slopes(x, y, K, m);
    for (ptrdiff_t i = 0, j = 0; i <= M; i++) {
        j = piece(x, K, j, z->edges[i]);
        const double h = x[j + 1] - x[j], at = z->edges[i] - x[j], t = !(at > 0) ? 0 : at < h ? at / h : 1;
        const double value = cubic(t, y[j], y[j + 1], m[j] * h, m[j + 1] * h);
        sums[i] = value < y[0] ? y[0] : value > y[K - 1] ? y[K - 1] : value;
    }
    differences(z, sums, out);
}

/* The derivative of the slope m of `slopes` at knot i as the knots move by X */
static double slope_tangent(const double *x, const double *y, const double *X, ptrdiff_t n, ptrdiff_t i, double m)
{
    if (!(m > 0))
        return 0;
    if (i > 0 && i < n - 1) {
        const double h0 = x[i] - x[i - 1], h1 = x[i + 1] - x[i], H0 = X[i] - X[i - 1], H1 = X[i + 1] - X[i];
        const double d0 = y[i] - y[i - 1], d1 = y[i + 1] - y[i], left = 2 * h1 + h0, right = h1 + 2 * h0;
        const double sum = left * h0 / d0 + right * h1 / d1;
        const double moved = ((2 * H1 + H0) * h0 + left * H0) / d0 + ((H1 + 2 * H0) * h1 + right * H1) / d1;
        return (3 * (H0 + H1) - m * moved) / sum;
    }
    const ptrdiff_t j = i ? n - 2 : 1, k = i ? n - 3 : 2;
    const double sign = i ? -1 : 1, h0 = sign * (x[j] - x[i]), h1 = sign * (x[k] - x[j]);
    const double H0 = sign * (X[j] - X[i]), H1 = sign * (X[k] - X[j]);
    const double d0 = sign * (y[j] - y[i]) / h0, d1 = sign * (y[k] - y[j]) / h1, D0 = -d0 * H0 / h0, D1 = -d1 * H1 / h1;
    if (m == 3 * d0)
        return 3 * D0;
    return ((2 * H0 + H1) * d0 + (2 * h0 + h1) * D0 - H0 * d1 - h0 * D1 - m * (H0 + H1)) / (h0 + h1);
}

static void density_tangents(const rk_line *z, const double *given, const double *given_tangents, ptrdiff_t p,
                             double *out, double *work)
{
    const ptrdiff_t M = z->M, K = 2 * M + 1;
    const double *y = z->levels;
    double *x = work, *m = x + K, *X = m + K, *sums = X + K;
    const ptrdiff_t *from = knots(given, K, x, sums + K);
    slopes(x, y, K, m);
    for (ptrdiff_t q = 0; q < p; q++) {
        for (ptrdiff_t k = 0; k < K; k++)
            X[k] = given[from[k]] > 0 && given[from[k]] < 1 ? given_tangents[q * K + from[k]] * (1 - apart) : 0;
        for (ptrdiff_t i = 0, j = 0; i <= M; i++) {
            j = piece(x, K, j, z->edges[i]);
            const double h = x[j + 1] - x[j], H = X[j + 1] - X[j], at = z->edges[i] - x[j];
            sums[i] = 0;
            if (!(at > 0 && at < h))
                continue;
            const double t = at / h, u = 1 - t;
            const double d0 = m[j] * h, d1 = m[j + 1] * h, rise = y[j + 1] - y[j];
            const double D0 = slope_tangent(x, y, X, K, j, m[j]) * h + m[j] * H;
            const double D1 = slope_tangent(x, y, X, K, j + 1, m[j + 1]) * h + m[j + 1] * H;
            const double speed = -(X[j] + t * H) / h; /* of t */
            sums[i] = (6 * t * u * rise + d0 * u * (1 - 3 * t) + d1 * t * (3 * t - 2)) * speed + D0 * t * u * u
                      - D1 * t * t * u;
        }
        differences(z, sums, out + q * M);
    }
}

const rk_registration_table RK_TABLE(registration) = {.shift = shift, .shift_tangents = shift_tangents, .phase = phase,
    .axis_size = axis_size, .quantiles = quantiles, .density = density, .density_tangents = density_tangents,
    .line_size = line_size};
