#include "rk_blend.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* -- Neighbours ------------------------------------------------------------------------------------ */
static void nearest(const double *X, const int64_t *order, ptrdiff_t n, ptrdiff_t d, const double *y, ptrdiff_t k,
                    double *distance2, ptrdiff_t *place)
{
    ptrdiff_t above = 0, last = n, count = 0;
    while (above < last) {
        const ptrdiff_t middle = above + (last - above) / 2;
        if (X[middle * d] < y[0])
            above = middle + 1;
        else
            last = middle;
    }
    for (ptrdiff_t below = above - 1; below >= 0 || above < n;) {
        const double down = below >= 0 ? y[0] - X[below * d] : INFINITY, up = above < n ? X[above * d] - y[0] : INFINITY;
        const int lower = above >= n || (below >= 0 && down <= up);
        double sum = lower ? down * down : up * up;
        if (count == k && sum > distance2[k - 1])
            return; /* and so are all later points: rounding is monotone */
        const ptrdiff_t i = lower ? below-- : above++;
        for (ptrdiff_t j = 1; j < d; j++) {
            const double t = y[j] - X[i * d + j];
            sum += t * t;
        }
        if (count == k && !(sum < distance2[k - 1] || (sum == distance2[k - 1] && order[i] < order[place[k - 1]])))
            continue;
        ptrdiff_t j = count < k ? count++ : k - 1;
        for (; j > 0 && (sum < distance2[j - 1] || (sum == distance2[j - 1] && order[i] < order[place[j - 1]])); j--)
            distance2[j] = distance2[j - 1], place[j] = place[j - 1];
        distance2[j] = sum, place[j] = i;
    }
}

/* Four rows at a time, whose sums are independent, until all are farther than the points found */
#define DEFINE_NEAREST(single, real)                                                               \
    static void nearest_rows##single(const real *X, ptrdiff_t n, ptrdiff_t d, const double *y,     \
                                     ptrdiff_t k, double *distance2, ptrdiff_t *place)             \
    {                                                                                              \
        ptrdiff_t count = 0;                                                                       \
        for (ptrdiff_t first = 0; first < n; first += 4) {                                         \
            const real *x[4];                                                                      \
            double sum[4] = {0};                                                                   \
            for (ptrdiff_t l = 0; l < 4; l++)                                                      \
                x[l] = X + (first + l < n ? first + l : n - 1) * d;                                \
            for (ptrdiff_t j = 0; j < d;) {                                                        \
                const ptrdiff_t last = j + 16 < d ? j + 16 : d;                                    \
                for (; j < last; j++)                                                              \
                    for (int l = 0; l < 4; l++) {                                                  \
                        const double t = y[j] - (double)x[l][j];                                   \
                        sum[l] += t * t;                                                           \
                    }                                                                              \
                const double most = count < k ? INFINITY : distance2[k - 1];                       \
                if (sum[0] >= most && sum[1] >= most && sum[2] >= most && sum[3] >= most)          \
                    break;                                                                         \
            }                                                                                      \
            for (ptrdiff_t i = first; i < first + 4 && i < n; i++) {                               \
                const double s = sum[i - first];                                                   \
                if (count == k && !(s < distance2[k - 1]))                                         \
                    continue;                                                                      \
                ptrdiff_t j = count < k ? count++ : k - 1;                                         \
                for (; j > 0 && s < distance2[j - 1]; j--)                                         \
                    distance2[j] = distance2[j - 1], place[j] = place[j - 1];                      \
                distance2[j] = s, place[j] = i;                                                    \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_NEAREST(, double)
DEFINE_NEAREST(_single, float)

static void nearest_of(const double *wide, const float *narrow, ptrdiff_t n, ptrdiff_t d, const double *y, ptrdiff_t k,
                       double *distance2, ptrdiff_t *place)
{
    if (wide)
        nearest_rows(wide, n, d, y, k, distance2, place);
    else
        nearest_rows_single(narrow, n, d, y, k, distance2, place);
}

/* -- Vectors --------------------------------------------------------------------------------------- */
/* The order of the sum is the same at every instruction level. */
static double dot(const double *x, const double *y, ptrdiff_t n)
{
    double s[8] = {0};
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            s[l] += x[i + l] * y[i + l];
    for (; i < n; i++)
        s[0] += x[i] * y[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void add(double *restrict x, double a, const double *restrict y, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        x[i] += a * y[i];
}

/* -- State at a median ---------------------------------------------------------------------------- */
/* With e_k = x - p_k and d_k = sqrt(|e_k|^2 + smoothing^2), in an orthonormal basis Q of the span of the differences
 * of the fields, of m <= K - 1 vectors. */
typedef struct {
    ptrdiff_t most;  /* K - 1 */
    double *m, *sum; /* m, and the sum of 1 / d_k */
    double *factor;  /* (K): factors by which the distances of fields from `near` were multiplied */
    double *inverse; /* (K): 1 / d_k */
    double *away;    /* (K, r): unit vectors from `near`, where the factor is less than 1 */
    double *Q;       /* (K - 1, r) */
    double *C;       /* (K, K - 1): the fields less the first, in the basis */
    double *u;       /* (K, K - 1): e_k / d_k */
    double *L;       /* (K - 1, K - 1): Cholesky factor of the Hessian H */
    double *point, *next, *trial, *step, *gradient; /* (K - 1) */
    double *rest, *moved; /* (r) */
} known;

static ptrdiff_t state_size(ptrdiff_t K, ptrdiff_t r)
{
    const ptrdiff_t most = K - 1;
    return 2 + 2 * K + (K + most) * r + 2 * K * most + most * most + 5 * most + 2 * r;
}

static known laid_out(double *state, ptrdiff_t K, ptrdiff_t r)
{
    known z = {.most = K - 1};
    z.m = state, z.sum = state + 1, z.factor = state + 2, z.inverse = z.factor + K, z.away = z.inverse + K;
    z.Q = z.away + K * r, z.C = z.Q + z.most * r, z.u = z.C + K * z.most, z.L = z.u + K * z.most;
    z.point = z.L + z.most * z.most, z.next = z.point + z.most, z.trial = z.next + z.most, z.step = z.trial + z.most;
    z.gradient = z.step + z.most, z.rest = z.gradient + z.most, z.moved = z.rest + r;
    return z;
}

/* Q and C by Gram and Schmidt, twice, without vectors that are round-off of a difference. Returns m, or -1 if a square
 * overflows. */
static ptrdiff_t span(const known *z, const double *P, ptrdiff_t stride, ptrdiff_t K, ptrdiff_t r)
{
    ptrdiff_t m = 0;
    memset(z->C, 0, (size_t)(K * z->most) * sizeof *z->C);
    for (ptrdiff_t k = 1; k < K; k++) {
        double *v = z->Q + m * r, *c = z->C + k * z->most;
        for (ptrdiff_t i = 0; i < r; i++)
            v[i] = P[k * stride + i] - P[i];
        const double square = dot(v, v, r);
        if (!(square <= DBL_MAX))
            return -1;
        for (int again = 0; again < 2; again++)
            for (ptrdiff_t j = 0; j < m; j++) {
                const double s = dot(z->Q + j * r, v, r);
                c[j] += s;
                add(v, -s, z->Q + j * r, r);
            }
        const double left = sqrt(dot(v, v, r));
        if (!(left > 32 * DBL_EPSILON * sqrt(square)))
            continue;
        for (ptrdiff_t i = 0; i < r; i++)
            v[i] /= left;
        c[m++] = left;
    }
    return m;
}

/* 1 / d_k and e_k / d_k at a point; returns the mean of d_k. */
static double unit_vectors(const known *z, ptrdiff_t K, ptrdiff_t m, const double *point, double smoothing)
{
    double total = 0;
    *z->sum = DBL_MIN; /* distances overflow */
    for (ptrdiff_t k = 0; k < K; k++) {
        double *u = z->u + k * z->most, square = smoothing * smoothing;
        for (ptrdiff_t i = 0; i < m; i++)
            u[i] = point[i] - z->C[k * z->most + i], square += u[i] * u[i];
        const double d = sqrt(square);
        for (ptrdiff_t i = 0; i < m; i++)
            u[i] /= d;
        total += d, z->inverse[k] = 1 / d, *z->sum += 1 / d;
    }
    return total / (double)K;
}

/* out (m) += W t, with W = (I - e e^T / d^2) / d of field k: no difference of nearly equal numbers. */
static void across(const known *z, ptrdiff_t k, ptrdiff_t m, double smoothing, const double *t, double *out)
{
    const double *u = z->u + k * z->most, q = z->inverse[k], own = smoothing * q * (smoothing * q);
    for (ptrdiff_t i = 0; i < m; i++) {
        double s = own * t[i];
        for (ptrdiff_t j = 0; j < m; j++)
            s += u[j] * (u[j] * t[i] - u[i] * t[j]);
        out[i] += q * s;
    }
}

/* The Cholesky factor of H = sum_k (I - e_k e_k^T / d_k^2) / d_k; pivots that are round-off are enlarged. */
static void factorise(const known *z, ptrdiff_t K, ptrdiff_t m, double smoothing)
{
    const ptrdiff_t ld = z->most;
    double *L = z->L, trace = 0;
    memset(L, 0, (size_t)(ld * ld) * sizeof *L);
    for (ptrdiff_t k = 0; k < K; k++) {
        const double *u = z->u + k * ld, q = z->inverse[k];
        for (ptrdiff_t i = 0; i < m; i++) {
            double others = smoothing * q * (smoothing * q);
            for (ptrdiff_t j = 0; j < m; j++)
                others += j == i ? 0 : u[j] * u[j];
            for (ptrdiff_t j = 0; j < i; j++)
                L[i * ld + j] -= q * u[i] * u[j];
            L[i * ld + i] += q * others;
        }
    }
    for (ptrdiff_t i = 0; i < m; i++)
        trace += L[i * ld + i];
    const double least = (m > 1 ? 1e-17 * trace : 0) + DBL_MIN;
    for (ptrdiff_t i = 0; i < m; i++)
        for (ptrdiff_t j = 0; j <= i; j++) {
            double s = L[i * ld + j];
            for (ptrdiff_t l = 0; l < j; l++)
                s -= L[i * ld + l] * L[j * ld + l];
            if (j < i)
                L[i * ld + j] = s / L[j * ld + j];
            else
                L[i * ld + i] = sqrt(s > least ? s : least);
        }
}

/* t (m) becomes H^-1 t. */
static void solve(const known *z, ptrdiff_t m, double *t)
{
    const ptrdiff_t ld = z->most;
    const double *L = z->L;
    for (ptrdiff_t i = 0; i < m; i++) {
        for (ptrdiff_t l = 0; l < i; l++)
            t[i] -= L[i * ld + l] * t[l];
        t[i] /= L[i * ld + i];
    }
    for (ptrdiff_t i = m - 1; i >= 0; i--) {
        for (ptrdiff_t l = i + 1; l < m; l++)
            t[i] -= L[l * ld + i] * t[l];
        t[i] /= L[i * ld + i];
    }
}

static double sum_of_distances(const known *z, ptrdiff_t K, ptrdiff_t m, const double *point, double smoothing)
{
    double total = 0;
    for (ptrdiff_t k = 0; k < K; k++) {
        double square = smoothing * smoothing;
        for (ptrdiff_t i = 0; i < m; i++) {
            const double e = point[i] - z->C[k * z->most + i];
            square += e * e;
        }
        total += sqrt(square);
    }
    return total;
}

/* The better of two points, by their sums */
static void keep(const known *z, ptrdiff_t m, const double *point, double sum, double *best)
{
    if (!(sum < *best))
        return;
    *best = sum;
    memcpy(z->next, point, (size_t)m * sizeof *point);
}

/* `next`: the mean of the fields, or a field that is the median to the order of the smoothing: the sum of the unit
 * vectors to the others is no longer than the number of fields that coincide with it. */
static void start(const known *z, ptrdiff_t K, ptrdiff_t m, double smoothing)
{
    double best = INFINITY;
    memset(z->trial, 0, (size_t)m * sizeof *z->trial);
    for (ptrdiff_t k = 0; k < K; k++)
        add(z->trial, 1 / (double)K, z->C + k * z->most, m);
    memcpy(z->next, z->trial, (size_t)m * sizeof *z->trial);
    keep(z, m, z->trial, sum_of_distances(z, K, m, z->trial, smoothing), &best);
    for (ptrdiff_t j = 0; j < K; j++) {
        const double *c = z->C + j * z->most;
        double together = 0;
        memset(z->step, 0, (size_t)m * sizeof *z->step);
        for (ptrdiff_t k = 0; k < K; k++) {
            double square = 0;
            for (ptrdiff_t i = 0; i < m; i++)
                square += (z->C[k * z->most + i] - c[i]) * (z->C[k * z->most + i] - c[i]);
            const double d = sqrt(square);
            if (!(d > smoothing)) {
                together++;
                continue;
            }
            for (ptrdiff_t i = 0; i < m; i++)
                z->step[i] += (z->C[k * z->most + i] - c[i]) / d;
        }
        double left = together * together;
        for (ptrdiff_t i = 0; i < m; i++)
            left -= z->step[i] * z->step[i];
        if (!(left > 0))
            continue;
        for (ptrdiff_t i = 0; i < m; i++)
            z->trial[i] = c[i] + z->step[i] * (smoothing / sqrt(left));
        keep(z, m, z->trial, sum_of_distances(z, K, m, z->trial, smoothing), &best);
    }
}

/* Steps of Newton's method, damped where that is better, or of Weiszfeld's iteration x = sum_k w_k p_k with w_k ~ 1 / d_k:
 * E. Weiszfeld, Tohoku Math. J. 43 (1937); Y. Vardi and C.-H. Zhang, PNAS 97 (2000). */
static void minimise(const known *z, ptrdiff_t K, ptrdiff_t m, double smoothing)
{
    static const double damping[] = {1, 0.3, 0.1, 0.03};
    start(z, K, m, smoothing);
    memcpy(z->point, z->next, (size_t)m * sizeof *z->point);
    for (int step = 0; step < 50; step++) { /* a limit */
        const double size = unit_vectors(z, K, m, z->point, smoothing);
        double best = INFINITY, change = 0;
        factorise(z, K, m, smoothing);
        memset(z->step, 0, (size_t)m * sizeof *z->step);
        for (ptrdiff_t k = 0; k < K; k++)
            add(z->step, 1, z->u + k * z->most, m);
        solve(z, m, z->step);
        for (int t = 0; t < 4; t++) {
            for (ptrdiff_t i = 0; i < m; i++)
                z->trial[i] = z->point[i] - damping[t] * z->step[i];
            const double sum = sum_of_distances(z, K, m, z->trial, smoothing);
            keep(z, m, z->trial, t ? sum : sum * (1 - 1e-14), &best); /* Newton's step if round-off would decide */
        }
        memset(z->trial, 0, (size_t)m * sizeof *z->trial);
        for (ptrdiff_t k = 0; k < K; k++)
            add(z->trial, z->inverse[k] / *z->sum, z->C + k * z->most, m);
        keep(z, m, z->trial, sum_of_distances(z, K, m, z->trial, smoothing), &best);
        for (ptrdiff_t i = 0; i < m; i++)
            change += (z->next[i] - z->point[i]) * (z->next[i] - z->point[i]);
        memcpy(z->point, z->next, (size_t)m * sizeof *z->point);
        if (!(sqrt(change) >= 1e-11 * size))
            break;
    }
    unit_vectors(z, K, m, z->point, smoothing);
    factorise(z, K, m, smoothing);
}

/* Of an even number of fields on a line all points between the middle two are medians: their mean, as of two fields. */
static void middle(const known *z, ptrdiff_t K)
{
    *z->m = 0, *z->sum = 1;
    for (ptrdiff_t k = 0; k < K; k++) {
        const double c = z->C[k * z->most];
        ptrdiff_t place = 0;
        for (ptrdiff_t j = 0; j < K; j++)
            place += z->C[j * z->most] < c || (z->C[j * z->most] == c && j < k);
        z->inverse[k] = place == K / 2 - 1 || place == K / 2 ? 0.5 : 0;
    }
}

static void median(double *P, ptrdiff_t stride, ptrdiff_t K, ptrdiff_t r, const double *near, double limit,
                   double smoothing, double *x, double *state)
{
    const known z = laid_out(state, K, r);
    for (ptrdiff_t k = 0; k < K; k++) {
        double *p = P + k * stride, *away = z.away + k * r;
        z.factor[k] = 1;
        if (!near)
            continue;
        for (ptrdiff_t i = 0; i < r; i++)
            away[i] = p[i] - near[i];
        const double distance = sqrt(dot(away, away, r));
        if (!(distance > limit))
            continue;
        z.factor[k] = distance <= DBL_MAX ? limit / distance : NAN;
        for (ptrdiff_t i = 0; i < r; i++) {
            p[i] = near[i] + away[i] * z.factor[k];
            away[i] /= distance;
        }
    }
    if (K <= 2) { /* the mean of one or two points is a median */
        for (ptrdiff_t i = 0; i < r; i++)
            x[i] = K == 1 ? P[i] : (P[i] + P[stride + i]) / 2;
        return;
    }
    const ptrdiff_t m = span(&z, P, stride, K, r);
    *z.m = (double)m;
    if (m < 0) {
        *z.m = 0;
        for (ptrdiff_t i = 0; i < r; i++)
            x[i] = NAN;
    } else {
        memset(x, 0, (size_t)r * sizeof *x);
    }
    m == 1 && K % 2 == 0 ? middle(&z, K) : minimise(&z, K, m < 0 ? 0 : m, smoothing);
    for (ptrdiff_t k = 0; k < K; k++)
        add(x, z.inverse[k] / *z.sum, P + k * stride, r);
}

/* -- Derivatives ------------------------------------------------------------------------------------
 * x solves sum_k e_k / d_k = 0, so H dx = sum_k W_k dp_k with W_k = (I - e_k e_k^T / d_k^2) / d_k and H = sum_k W_k; of
 * one or two fields W_k = I / K and H = I. A field q_k that was moved to p_k has dp_k = S_k dq_k + (I - S_k) dnear, with
 * S_k = c_k (I - a_k a_k^T) of its factor c_k and its direction a_k. */

/* moved (r) = S_k t */
static const double *limited(const known *z, ptrdiff_t k, const double *t, ptrdiff_t r, double *moved)
{
    const double c = z->factor[k], *a = z->away + k * r, along = dot(a, t, r);
    for (ptrdiff_t i = 0; i < r; i++)
        moved[i] = c * (t[i] - a[i] * along);
    return moved;
}

static void push(double *state, const double *T, ptrdiff_t stride, ptrdiff_t K, ptrdiff_t r, const double *towards,
                 double smoothing, double *out)
{
    const known z = laid_out(state, K, r);
    const ptrdiff_t m = K > 2 ? (ptrdiff_t)*z.m : 0;
    double *sum = z.rest, *t = z.trial, *h = z.gradient;
    memset(sum, 0, (size_t)r * sizeof *sum);
    memset(h, 0, (size_t)m * sizeof *h);
    for (ptrdiff_t k = 0; k < K; k++) {
        const double *p = T + k * stride;
        if (z.factor[k] < 1) {
            limited(&z, k, towards, r, out);
            limited(&z, k, p, r, z.moved);
            for (ptrdiff_t i = 0; i < r; i++)
                z.moved[i] += towards[i] - out[i];
            p = z.moved;
        }
        add(sum, K > 2 ? z.inverse[k] : 1 / (double)K, p, r);
        for (ptrdiff_t j = 0; j < m; j++)
            t[j] = dot(z.Q + j * r, p, r);
        across(&z, k, m, smoothing, t, h);
    }
    if (K <= 2) {
        memcpy(out, sum, (size_t)r * sizeof *out);
        return;
    }
    solve(&z, m, h);
    for (ptrdiff_t j = 0; j < m; j++)
        t[j] = dot(z.Q + j * r, sum, r);
    for (ptrdiff_t i = 0; i < r; i++)
        out[i] = sum[i] / *z.sum;
    for (ptrdiff_t j = 0; j < m; j++)
        add(out, h[j] - t[j] / *z.sum, z.Q + j * r, r);
}

static void pull(double *state, const double *g, ptrdiff_t K, ptrdiff_t r, double smoothing, double *S, ptrdiff_t stride,
                 double *back)
{
    const known z = laid_out(state, K, r);
    const ptrdiff_t m = K > 2 ? (ptrdiff_t)*z.m : 0;
    double *outside = z.rest, *t = z.trial, *h = z.gradient;
    memcpy(outside, g, (size_t)r * sizeof *g);
    memset(back, 0, (size_t)r * sizeof *back);
    for (ptrdiff_t j = 0; j < m; j++)
        h[j] = dot(z.Q + j * r, g, r);
    for (ptrdiff_t j = 0; j < m; j++)
        add(outside, -h[j], z.Q + j * r, r);
    solve(&z, m, h);
    for (ptrdiff_t k = 0; k < K; k++) {
        double *s = S + k * stride;
        const double factor = K > 2 ? z.inverse[k] / *z.sum : 1 / (double)K;
        for (ptrdiff_t i = 0; i < r; i++)
            s[i] = outside[i] * factor;
        memset(t, 0, (size_t)m * sizeof *t);
        across(&z, k, m, smoothing, h, t);
        for (ptrdiff_t j = 0; j < m; j++)
            add(s, t[j], z.Q + j * r, r);
        if (!(z.factor[k] < 1))
            continue;
        limited(&z, k, s, r, z.moved);
        for (ptrdiff_t i = 0; i < r; i++) {
            back[i] += s[i] - z.moved[i];
            s[i] = z.moved[i];
        }
    }
}

const rk_blend_table RK_TABLE(blend) = {
    .nearest = nearest, .nearest_rows = nearest_of, .median = median, .push = push, .pull = pull, .state_size = state_size};
