#include "rk_simplex.h"
#include "rk_jacobi.h"
#include "rk_simd.h"
#include "rk_vecmath_inline.h"
#include <float.h>

static double dot(const double *x, const double *y, ptrdiff_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (ptrdiff_t i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}

/* Exactly nonnegative, and the sum, taken in order, is 1 to an ulp. */
static void normalise(double *a, ptrdiff_t k)
{
    double sum = 0;
    ptrdiff_t largest = 0;
    for (ptrdiff_t j = 0; j < k; j++) {
        a[j] = a[j] > 0 ? a[j] : 0;
        sum += a[j];
        largest = a[j] > a[largest] ? j : largest;
    }
    for (ptrdiff_t j = 0; j < k; j++)
        a[j] = sum > 0 ? a[j] / sum : NAN; /* the points are too far apart */
    for (int again = 0; again < 2; again++) {
        sum = 0;
        for (ptrdiff_t j = 0; j < k; j++)
            sum += a[j];
        a[largest] += 1 - sum;
    }
}

/* -- Projection on a convex hull ------------------------------------------------------------------
 * A primal active set. On the set P of points allowed to have weight, the minimiser of least |a|^2
 * without sign constraint is a = 1/|P| + C^+T (t - mean), C the points of P less their mean. Walk
 * towards it, drop the point whose weight vanishes first, repeat; then add the points that would
 * lower the residual or, when none does, the norm. Both decrease lexicographically, so it ends. */

static ptrdiff_t hull_workspace(ptrdiff_t d, ptrdiff_t k)
{
    return (2 * k + d + 3) * d + 4 * d + 3 * k + k;
}

/* Weights a (k), feasible on entry, of the points w (k, d) for the target t (d). Singular values of
 * the points below `noise` are rounding errors of theirs. `work` has hull_workspace doubles. Returns
 * whether it ended by itself. */
static int hull(const double *w, const double *t, ptrdiff_t k, ptrdiff_t d, double noise,
                 double *work, double *a)
{
    double *B = work, *square = B + (k + d + 1) * d, *mean = square + d, *residual = mean + d;
    double *slope = residual + d, *goal = slope + d, *gain = goal + k;
    ptrdiff_t *set = (ptrdiff_t *) (gain + k), m = k;
    char *in = (char *) (set + k);
    double size = 0, far = sqrt(dot(t, t, d));
    for (ptrdiff_t j = 0; j < k; j++) {
        double r = sqrt(dot(w + j * d, w + j * d, d));
        size = r > size ? r : size;
        in[j] = 1;
    }
    double neutral = 64 * DBL_EPSILON * (far + size) * size;
    double best = INFINITY, best_norm = INFINITY;
    int ended = 0;
    for (ptrdiff_t step = 0; !ended && step < 20 * k + 50; step++) {
        m = 0;
        for (ptrdiff_t j = 0; j < k; j++)
            if (in[j])
                set[m++] = j;
        RK_ASSERT(m > 0);
        for (ptrdiff_t c = 0; c < d; c++) {
            mean[c] = 0;
            for (ptrdiff_t i = 0; i < m; i++)
                mean[c] += w[set[i] * d + c];
            mean[c] /= (double) m;
            for (ptrdiff_t i = 0; i < m; i++)
                B[i * d + c] = w[set[i] * d + c] - mean[c];
            B[m * d + c] = t[c] - mean[c];
            for (ptrdiff_t i = 0; i < d; i++)
                B[(m + 1 + i) * d + c] = i == c;
        }
        rk_orthogonalise(B, m, m + 1 + d, d, square);
        /* slope: the weights of the goal are affine functions of the points */
        for (ptrdiff_t c = 0; c < d; c++)
            slope[c] = 0;
        for (ptrdiff_t i = 0; i < m; i++)
            goal[i] = 1 / (double) m;
        double cut = noise * noise * (double) m;
        for (ptrdiff_t c = 0; c < d; c++) {
            if (!(square[c] > cut))
                continue;
            double f = B[m * d + c] / square[c];
            for (ptrdiff_t i = 0; i < m; i++)
                goal[i] += B[i * d + c] * f;
            for (ptrdiff_t i = 0; i < d; i++)
                slope[i] += B[(m + 1 + i) * d + c] * f;
        }
        /* to the goal, or to the first weight that vanishes on the way */
        double length = 1, steepest = 0;
        ptrdiff_t blocks = -1;
        for (ptrdiff_t i = 0; i < m; i++)
            if (goal[i] < 0) {
                double x = a[set[i]], reach = x > 0 ? x / (x - goal[i]) : 0;
                if (reach < length || (reach == length && goal[i] < steepest)) {
                    length = reach;
                    steepest = goal[i];
                    blocks = i;
                }
            }
        for (ptrdiff_t i = 0; i < m; i++) {
            double x = a[set[i]] + length * (goal[i] - a[set[i]]);
            a[set[i]] = blocks < 0 ? goal[i] : x > 0 ? x : 0;
        }
        if (blocks >= 0 && m > 1) {
            a[set[blocks]] = 0;
            in[set[blocks]] = 0;
            continue;
        }
        double norm = dot(a, a, k), level = 0, now;
        for (ptrdiff_t c = 0; c < d; c++) {
            residual[c] = t[c];
            for (ptrdiff_t i = 0; i < m; i++)
                residual[c] -= a[set[i]] * w[set[i] * d + c];
        }
        now = dot(residual, residual, d);
        if (!(now < best - 1e-13 * (best < INFINITY ? best : 0) - neutral * 1e-3)
            && !(norm < best_norm * (1 - 1e-13))) {
            ended = 1; /* the last addition gained nothing */
            break;
        }
        best = now;
        best_norm = norm;
        if (m == k) {
            ended = 1;
            break;
        }
        for (ptrdiff_t j = 0; j < k; j++)
            gain[j] = dot(residual, w + j * d, d);
        for (ptrdiff_t i = 0; i < m; i++)
            level += a[set[i]] * gain[set[i]];
        ptrdiff_t add = -1;
        for (ptrdiff_t j = 0; j < k; j++)
            if (!in[j] && gain[j] > level + neutral && (add < 0 || gain[j] > gain[add]))
                add = j;
        if (add >= 0) {
            in[add] = 1;
            continue;
        }
        ptrdiff_t added = 0;
        for (ptrdiff_t j = 0; j < k; j++) {
            if (in[j] || gain[j] < level - neutral)
                continue;
            double weight = 1 / (double) m, outside = 0;
            for (ptrdiff_t c = 0; c < d; c++)
                weight += (w[j * d + c] - mean[c]) * slope[c];
            for (ptrdiff_t c = 0; c < d; c++)
                if (!(square[c] > cut)) {
                    double x = 0; /* component that the points of the set cannot compensate */
                    for (ptrdiff_t i = 0; i < d; i++)
                        x += (w[j * d + i] - mean[i]) * B[(m + 1 + i) * d + c];
                    outside += x * x;
                }
            if (weight > 1e-12 || outside > cut) {
                in[j] = 2;
                added++;
            }
        }
        ended = !added;
    }
    normalise(a, k);
    return ended;
}

/* Points relative to the nearest one and, where there are fewer of them than coordinates, in an
 * orthonormal basis of their span. Returns the dimension; w (k, d), t (d). */
static ptrdiff_t gather(const double *Y, ptrdiff_t d, const double *y, const ptrdiff_t *neighbor,
                        ptrdiff_t k, double *basis, double *w, double *t, double *noise)
{
    const double *origin = Y + neighbor[0] * d;
    double largest = 0;
    for (ptrdiff_t j = 0; j < k; j++)
        for (ptrdiff_t c = 0; c < d; c++) {
            double x = Y[neighbor[j] * d + c], step = x - origin[c];
            largest = fabs(x) > largest ? fabs(x) : largest;
            w[j * d + c] = step;
        }
    for (ptrdiff_t c = 0; c < d; c++)
        t[c] = y[c] - origin[c];
    *noise = 4 * DBL_EPSILON * largest;
    if (d < k)
        return d;
    ptrdiff_t rank = 0;
    for (ptrdiff_t j = 1; j < k; j++) {
        double *b = basis + rank * d;
        memcpy(b, w + j * d, (size_t) d * sizeof *b);
        for (int again = 0; again < 2; again++)
            for (ptrdiff_t r = 0; r < rank; r++) {
                double s = dot(b, basis + r * d, d);
                for (ptrdiff_t c = 0; c < d; c++)
                    b[c] -= s * basis[r * d + c];
            }
        double s = sqrt(dot(b, b, d));
        if (!(s > *noise))
            continue;
        for (ptrdiff_t c = 0; c < d; c++)
            b[c] /= s;
        rank++;
    }
    double *out = basis + k * d; /* (k + 1, rank) */
    for (ptrdiff_t r = 0; r < rank; r++) {
        for (ptrdiff_t j = 0; j < k; j++)
            out[j * rank + r] = dot(w + j * d, basis + r * d, d);
        out[k * rank + r] = dot(t, basis + r * d, d);
    }
    memcpy(w, out, (size_t) (k * rank) * sizeof *w);
    memcpy(t, out + k * rank, (size_t) rank * sizeof *t);
    return rank;
}

static ptrdiff_t latent_workspace(ptrdiff_t d, ptrdiff_t k)
{
    return (k + 1) * d + (2 * k + 1) * d + hull_workspace(d, k);
}

static int latent_weights(const double *Y, ptrdiff_t d, const double *y, const ptrdiff_t *neighbor,
                          ptrdiff_t k, double *work, double *a)
{
    double *w = work, *t = w + k * d, *rest = t + d, noise;
    ptrdiff_t rank = gather(Y, d, y, neighbor, k, rest, w, t, &noise);
    for (ptrdiff_t j = 0; j < k; j++)
        a[j] = 1 / (double) k;
    if (rank)
        return hull(w, t, k, rank, noise, rest, a);
    normalise(a, k);
    return 1;
}

static ptrdiff_t latent(const double *Y, ptrdiff_t d, const double *y, const ptrdiff_t *neighbor,
                        ptrdiff_t m, ptrdiff_t k, double *work, double *weights)
{
    ptrdiff_t bad = -1;
    for (ptrdiff_t i = 0; i < m; i++)
        if (!latent_weights(Y, d, y + i * d, neighbor + i * k, k, work, weights + i * k) && bad < 0)
            bad = i;
    return bad;
}

/* -- The encoder's objective ------------------------------------------------------------------- */

typedef struct {
    const rk_nystroem *map;
    const double *y;
    const ptrdiff_t *row;
    ptrdiff_t k;
    double scale;  /* of the coordinates: residuals below 1e-14 of it are zero */
    double *p;     /* (n) probabilities */
    double *s;     /* (d, n) p (values - psi) */
    double *psi;   /* (d) */
    double *rho;   /* (d) psi - y */
    double *J;     /* (k, d) columns of the Jacobian, less their mean */
    double *mean;  /* (k) expectations of the rows */
} problem;

/* p = start + sum_r w_r x_r; start may be p. */
static void add_rows(const double *start, const double *const *x, const double *w, double *p,
                     ptrdiff_t n)
{
    const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    double w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        p[i] = start[i] + ((w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i]));
}

/* out[r] = s . x_r for count vectors x_r(j) = rows + at(j) n, four at a time: s is read once and
 * the four sums hide the latency of the additions. at NULL: consecutive rows. */
static void dots(const double *s, const double *rows, const ptrdiff_t *at, ptrdiff_t count,
                 ptrdiff_t n, double *out, ptrdiff_t stride)
{
    for (ptrdiff_t r = 0; r < count; r += 4) {
        const double *x[4];
        double d0 = 0, d1 = 0, d2 = 0, d3 = 0;
        for (ptrdiff_t l = 0; l < 4; l++) {
            ptrdiff_t j = r + l < count ? r + l : r;
            x[l] = rows + (at ? at[j] : j) * n;
        }
        const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
        if (count - r > 2) {
#pragma omp simd reduction(+ : d0, d1, d2, d3)
            for (ptrdiff_t i = 0; i < n; i++) {
                d0 += s[i] * x0[i];
                d1 += s[i] * x1[i];
                d2 += s[i] * x2[i];
                d3 += s[i] * x3[i];
            }
        } else {
#pragma omp simd reduction(+ : d0, d1)
            for (ptrdiff_t i = 0; i < n; i++) {
                d0 += s[i] * x0[i];
                d1 += s[i] * x1[i];
            }
        }
        const double d[4] = {d0, d1, d2, d3};
        for (ptrdiff_t l = 0; l < 4 && r + l < count; l++)
            out[(r + l) * stride] = d[l];
    }
}

/* psi, rho and p at a; returns |rho|^2. */
static double evaluate(problem *z, const double *a)
{
    const rk_nystroem *map = z->map;
    ptrdiff_t n = map->n;
    double *restrict p = z->p, sum = 0;
    const double *x[4], *start = map->offset;
    double w[4];
    int used = 0;
    for (ptrdiff_t j = 0; j < z->k; j++) {
        if (a[j] != 0) {
            x[used] = map->rows + z->row[j] * n;
            w[used++] = a[j];
        }
        if (used < 4 && j + 1 < z->k)
            continue;
        for (; used < 4; used++)
            x[used] = map->offset, w[used] = 0;
        add_rows(start, x, w, p, n);
        start = p;
        used = 0;
    }
    const double top = v_largest(p, n, 0);
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = 0; i < n; i++) {
        double e = p[i] - top; /* terms below e^-690 of the largest are negligible */
        p[i] = rk_exp_normal(e < -690. ? -690. : e);
        sum += p[i];
    }
    double f = 0;
    sum = sum > 0 ? sum : NAN; /* exponents are not finite */
    dots(p, map->values, NULL, map->d, n, z->psi, 1);
    for (ptrdiff_t c = 0; c < map->d; c++) {
        z->psi[c] /= sum;
        z->rho[c] = z->psi[c] - z->y[c];
        f += z->rho[c] * z->rho[c];
    }
    double f1 = 1 / sum;
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        p[i] *= f1;
    return f;
}

/* J at the last point evaluated: d psi_c / d a_k is the covariance of values_c and rows_k. */
static void jacobian(problem *z)
{
    const rk_nystroem *map = z->map;
    ptrdiff_t n = map->n, d = map->d;
    for (ptrdiff_t c = 0; c < d; c++) {
        double *restrict s = z->s + c * n;
        const double *restrict v = map->values + c * n, *restrict p = z->p;
        double psi = z->psi[c], mean = 0;
#pragma omp simd
        for (ptrdiff_t i = 0; i < n; i++)
            s[i] = p[i] * (v[i] - psi);
        dots(s, map->rows, z->row, z->k, n, z->J + c, d);
        for (ptrdiff_t j = 0; j < z->k; j++)
            mean += z->J[j * d + c];
        mean /= (double) z->k;
        for (ptrdiff_t j = 0; j < z->k; j++)
            z->J[j * d + c] -= mean;
    }
}

/* H (k, k) = sum_c rho_c d^2 psi_c / da^2, a third central moment under p; needs `jacobian`. */
static void curvature(problem *z, double *H)
{
    const rk_nystroem *map = z->map;
    ptrdiff_t n = map->n, d = map->d, k = z->k;
    double *restrict s = z->s;
    for (ptrdiff_t i = 0; i < n; i++)
        s[i] *= z->rho[0];
    for (ptrdiff_t c = 1; c < d; c++)
        for (ptrdiff_t i = 0; i < n; i++)
            s[i] += z->rho[c] * s[c * n + i];
    dots(z->p, map->rows, z->row, k, n, z->mean, 1);
    for (ptrdiff_t j = 0; j < k; j++)
        for (ptrdiff_t l = 0; l <= j; l++) {
            const double *restrict x = map->rows + z->row[j] * n;
            const double *restrict y = map->rows + z->row[l] * n;
            double h = 0, mx = z->mean[j], my = z->mean[l];
#pragma omp simd reduction(+ : h)
            for (ptrdiff_t i = 0; i < n; i++)
                h += s[i] * (x[i] - mx) * (y[i] - my);
            H[j * k + l] = H[l * k + j] = h;
        }
}

/* Cholesky factor of the m x m matrix A in place (lower, stride k); 0 if it is not positive. */
static int factor(double *A, ptrdiff_t m, ptrdiff_t k)
{
    for (ptrdiff_t j = 0; j < m; j++) {
        for (ptrdiff_t i = j; i < m; i++) {
            double s = A[i * k + j];
            for (ptrdiff_t l = 0; l < j; l++)
                s -= A[i * k + l] * A[j * k + l];
            if (i == j) {
                if (!(s > 0))
                    return 0;
                A[j * k + j] = sqrt(s);
            } else
                A[i * k + j] = s / A[j * k + j];
        }
    }
    return 1;
}

static void solve(const double *A, ptrdiff_t m, ptrdiff_t k, double *x)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        for (ptrdiff_t l = 0; l < i; l++)
            x[i] -= A[i * k + l] * x[l];
        x[i] /= A[i * k + i];
    }
    for (ptrdiff_t i = m - 1; i >= 0; i--) {
        for (ptrdiff_t l = i + 1; l < m; l++)
            x[i] -= A[l * k + i] * x[l];
        x[i] /= A[i * k + i];
    }
}

/* x minimises g.(x - a) + (x-a)^T B (x-a) / 2 over the simplex, from x = a; 0 if B is not positive
 * on a set of free weights that came up. work: k^2 + 5k. */
static int quadratic(const double *g, const double *B, const double *a, ptrdiff_t k, double *work,
                     double *x)
{
    double *A = work, *u = A + k * k, *v = u + k, *q = v + k, size = 0;
    ptrdiff_t *free_ = (ptrdiff_t *) (q + k);
    char *in = (char *) (free_ + k);
    memcpy(x, a, (size_t) k * sizeof *x);
    for (ptrdiff_t j = 0; j < k; j++) {
        in[j] = a[j] > 0;
        size = fabs(g[j]) > size ? fabs(g[j]) : size;
    }
    for (ptrdiff_t step = 0; step < 10 * k + 20; step++) {
        ptrdiff_t m = 0;
        for (ptrdiff_t j = 0; j < k; j++)
            if (in[j])
                free_[m++] = j;
        for (ptrdiff_t j = 0; j < k; j++) { /* gradient at x */
            q[j] = g[j];
            for (ptrdiff_t l = 0; l < k; l++)
                q[j] += B[j * k + l] * (x[l] - a[l]);
        }
        for (ptrdiff_t i = 0; i < m; i++) {
            for (ptrdiff_t l = 0; l <= i; l++)
                A[i * k + l] = B[free_[i] * k + free_[l]];
            u[i] = -q[free_[i]];
            v[i] = 1;
        }
        if (!m || !factor(A, m, k))
            return 0;
        solve(A, m, k, u);
        solve(A, m, k, v);
        double su = 0, sv = 0, nu;
        for (ptrdiff_t i = 0; i < m; i++)
            su += u[i], sv += v[i];
        nu = sv > 0 ? su / sv : NAN;
        double length = 1;
        ptrdiff_t blocks = -1;
        for (ptrdiff_t i = 0; i < m; i++) {
            u[i] -= nu * v[i];
            if (x[free_[i]] + u[i] < 0) {
                double reach = x[free_[i]] / -u[i];
                if (reach < length || blocks < 0)
                    length = reach, blocks = i;
            }
        }
        for (ptrdiff_t i = 0; i < m; i++) {
            double w = x[free_[i]] + length * u[i];
            x[free_[i]] = w > 0 ? w : 0;
        }
        if (blocks >= 0 && m > 1) {
            x[free_[blocks]] = 0;
            in[free_[blocks]] = 0;
            continue;
        }
        ptrdiff_t add = -1;
        double worst = -1e-14 * size;
        for (ptrdiff_t j = 0; j < k; j++) {
            if (in[j])
                continue;
            double r = g[j] + nu;
            for (ptrdiff_t l = 0; l < k; l++)
                r += B[j * k + l] * (x[l] - a[l]);
            if (r < worst)
                worst = r, add = j;
        }
        if (add < 0)
            break;
        in[add] = 1;
    }
    return 1;
}

#define NEGLIGIBLE 1e-13 /* of the coordinates: a residual that is zero to rounding */
enum { MAX_DESCENT = 400 };

/* Levenberg-Marquardt on the simplex from a, with Gauss-Newton's Hessian until progress is slow and
 * then the exact one where that is convex. Gives up on the way to the minimiser `known` (NULL:
 * none), whose |rho|^2 is `known_f`. Returns |rho|^2; *ended says whether it stopped by itself. */
static double descend(problem *z, double *a, const double *known, double known_f, double *work,
                      int *ended)
{
    ptrdiff_t k = z->k, d = z->map->d;
    double *g = work, *B = g + k, *H = B + k * k, *damped = H + k * k, *x = damped + k * k;
    double *rest = x + k;
    double f = evaluate(z, a), lambda = 1e-10, zero = NEGLIGIBLE * z->scale * NEGLIGIBLE * z->scale;
    int exact = 0;
    *ended = 1;
    for (int step = 0; f > zero; step++) {
        if (step == MAX_DESCENT) {
            *ended = 0;
            break;
        }
        double trace = 0, now = INFINITY;
        jacobian(z);
        for (ptrdiff_t j = 0; j < k; j++) {
            g[j] = dot(z->J + j * d, z->rho, d);
            for (ptrdiff_t l = 0; l < k; l++)
                B[j * k + l] = dot(z->J + j * d, z->J + l * d, d);
            trace += B[j * k + j];
        }
        if (exact)
            curvature(z, H);
        if (!(trace > 0))
            return f;
        int accepted = 0;
        for (int attempt = 0; attempt < 20 && !accepted; attempt++) {
            for (ptrdiff_t j = 0; j < k * k; j++)
                damped[j] = B[j] + (exact ? H[j] : 0) + (j % (k + 1) ? 0 : lambda * trace);
            if (!quadratic(g, damped, a, k, rest, x)) {
                if (!exact)
                    lambda = lambda < 1e-4 ? 1e-3 : 8 * lambda;
                exact = 0;
                continue;
            }
            double model = 0;
            for (ptrdiff_t j = 0; j < k; j++) {
                double curved = 0;
                for (ptrdiff_t l = 0; l < k; l++)
                    curved += damped[j * k + l] * (x[l] - a[l]);
                model -= (g[j] + 0.5 * curved) * (x[j] - a[j]);
            }
            if (!(model > 1e-16 * f))
                return f;
            normalise(x, k);
            now = evaluate(z, x);
            double ratio = 0.5 * (f - now) / model;
            if (ratio > 1e-4) {
                accepted = 1;
                if (ratio > 0.7)
                    lambda = lambda > 1e-12 ? lambda / 10 : lambda;
                else if (ratio < 0.2)
                    lambda *= 8;
            } else
                lambda = lambda < 1e-4 ? 1e-3 : 8 * lambda;
        }
        if (!accepted)
            return f;
        memcpy(a, x, (size_t) k * sizeof *a);
        exact = now > 0.3 * f;
        int still = f - now <= 1e-11 * f;
        f = now;
        if (still)
            break;
        if (known && fabs(f - known_f) <= 0.05 * known_f) {
            double apart = 0;
            for (ptrdiff_t j = 0; j < k; j++)
                apart = fabs(a[j] - known[j]) > apart ? fabs(a[j] - known[j]) : apart;
            if (apart <= 0.02)
                break;
        }
    }
    return f;
}

/* Starts at the latent weights; finds the zero of rho with (to first order in the encoder's curvature) the least |a|^2.
 * Each step projects on the hull of the linearised encoder. Returns |rho|^2, or infinity if steps do not contract. */
static double approach(problem *z, double *a, double *work)
{
    ptrdiff_t k = z->k, d = z->map->d;
    double *t = work, *x = t + d, *rest = x + k;
    double f = evaluate(z, a), before = INFINITY;
    double zero = NEGLIGIBLE * z->scale * NEGLIGIBLE * z->scale;
    for (int step = 0; step < 20; step++) {
        jacobian(z);
        double largest = 0, move = 0;
        for (ptrdiff_t i = 0; i < k * d; i++)
            largest = fabs(z->J[i]) > largest ? fabs(z->J[i]) : largest;
        for (ptrdiff_t c = 0; c < d; c++) {
            t[c] = -z->rho[c];
            for (ptrdiff_t j = 0; j < k; j++)
                t[c] += a[j] * z->J[j * d + c];
        }
        memcpy(x, a, (size_t) k * sizeof *x);
        hull(z->J, t, k, d, 1e-10 * largest, rest, x);
        for (ptrdiff_t j = 0; j < k; j++)
            move = fabs(x[j] - a[j]) > move ? fabs(x[j] - a[j]) : move;
        if (move > 0.7 * before)
            return f <= zero ? f : INFINITY;
        if (move <= 1e-6 && f <= zero)
            return f;
        memcpy(a, x, (size_t) k * sizeof *a);
        f = evaluate(z, a);
        if (move <= 1e-8)
            break;
        before = move;
    }
    return f;
}

static ptrdiff_t encoder_workspace(ptrdiff_t n, ptrdiff_t d, ptrdiff_t k)
{
    ptrdiff_t a = hull_workspace(d, k) + d + k, b = 4 * k * k + 8 * k, c = latent_workspace(d, k);
    ptrdiff_t most = a > b ? a : b;
    return n + d * n + 2 * d + k * d + 2 * k + 2 * k + (most > c ? most : c);
}

static ptrdiff_t encoder(const rk_nystroem *map, const double *Y, const double *y,
                         const ptrdiff_t *neighbor, const ptrdiff_t *row, ptrdiff_t m, ptrdiff_t k,
                         double *work, double *weights)
{
    ptrdiff_t bad = -1;
    const ptrdiff_t n = map->n, d = map->d;
    problem z = {.map = map, .k = k, .scale = v_largest(map->values, n * d, 1)};
    z.p = work, z.s = z.p + n, z.psi = z.s + d * n, z.rho = z.psi + d, z.J = z.rho + d, z.mean = z.J + k * d;
    double *first = z.mean + k, *trial = first + k, *rest = trial + k;
    double zero = NEGLIGIBLE * z.scale * NEGLIGIBLE * z.scale;
    for (ptrdiff_t i = 0; i < m; i++) {
        double *a = weights + i * k;
        z.y = y + i * d;
        z.row = row + i * k;
        latent_weights(Y, d, z.y, neighbor + i * k, k, rest, a);
        if (k == 1)
            continue;
        memcpy(first, a, (size_t) k * sizeof *a);
        double best = approach(&z, a, rest);
        if (best <= zero)
            continue; /* no start gives less */
        if (best == INFINITY)
            memcpy(a, first, (size_t) k * sizeof *a);
        int ended, trial_ended;
        best = descend(&z, a, NULL, 0, rest, &ended);
        double norm = dot(a, a, k);
        for (ptrdiff_t start = 0; start <= k && best > zero; start++) {
            for (ptrdiff_t j = 0; j < k; j++)
                trial[j] = start ? j == start - 1 : 1 / (double) k; /* uniform; each neighbour */
            double f = descend(&z, trial, a, best, rest, &trial_ended), size = dot(trial, trial, k);
            if (f < best * (1 - 1e-10) || (f <= best * (1 + 1e-10) && size < norm)) {
                memcpy(a, trial, (size_t) k * sizeof *a);
                best = f < best ? f : best;
                norm = size;
                ended = trial_ended;
            }
        }
        normalise(a, k);
        if (!ended && bad < 0)
            bad = i;
    }
    return bad;
}

/* -- Derivatives of the weights ------------------------------------------------------------------
 * The neighbours, and the ones with weight, are fixed, which is right almost everywhere. */

/* out (m, d) = the transposed pseudo-inverse of the first m rows of B (m + d, d), of singular values above `cut`, or
 * above -cut times the largest */
static void pseudo_inverse(double *B, ptrdiff_t m, ptrdiff_t d, double cut, double *square, double *out)
{
    for (ptrdiff_t i = 0; i < d * d; i++)
        B[m * d + i] = i % (d + 1) == 0;
    rk_orthogonalise(B, m, m + d, d, square);
    memset(out, 0, (size_t) (m * d) * sizeof *out);
    for (ptrdiff_t c = 0; c < d; c++) {
        if (!(square[c] > (cut < 0 ? cut * cut * v_largest(square, d, 0) : cut * cut)))
            continue;
        for (ptrdiff_t i = 0; i < m; i++)
            for (ptrdiff_t j = 0; j < d; j++)
                out[i * d + j] += B[i * d + c] * B[(m + j) * d + c] / square[c];
    }
}

/* slopes (k, d): derivatives of the weights of the active rows of P (k, d) by the weighted mean, without round-off of
 * P; 0 for other rows. work: (2k + d + 2) d */
static void affine_slopes(const double *P, const double *a, ptrdiff_t k, ptrdiff_t d, double *work, double *slopes)
{
    double *B = work, *square = B + (k + d) * d, *mean = square + d, *found = mean + d;
    double noise = 4 * DBL_EPSILON * v_largest(P, k * d, 1);
    const double *origin = P;
    ptrdiff_t m = 0;
    memset(mean, 0, (size_t) d * sizeof *mean);
    for (ptrdiff_t j = 0; j < k; j++)
        for (ptrdiff_t c = 0; a[j] > 0 && c < d; c++) {
            B[m * d + c] = P[j * d + c] - origin[c];
            mean[c] += B[m * d + c];
            m += c + 1 == d;
        }
    for (ptrdiff_t i = 0; i < m * d; i++)
        B[i] -= mean[i % d] / (double) m;
    pseudo_inverse(B, m, d, noise * sqrt((double) m), square, found);
    for (ptrdiff_t j = 0, i = 0; j < k; j++)
        for (ptrdiff_t c = 0; c < d; c++)
            slopes[j * d + c] = a[j] > 0 ? found[i++] : 0;
}

static void latent_slopes(const double *Y, ptrdiff_t d, const ptrdiff_t *neighbor, const double *a, ptrdiff_t k,
                          double *work, double *slopes)
{
    double *P = work;
    for (ptrdiff_t j = 0; j < k; j++)
        memcpy(P + j * d, Y + neighbor[j] * d, (size_t) d * sizeof *P);
    affine_slopes(P, a, k, d, P + k * d, slopes);
}

/* With psi(a) the encoder of the mixture, J and D2 its derivatives, the multipliers l, mu and e = psi - y:
 * least |a|^2 where psi = y: a + J l + mu = 0, so (1 + l.D2) da + J dl + dmu = 0 and J^T da = dy;
 * least |e|^2 where no mixture has the latents y: J e + mu = 0, so e.D2 da + J de + dmu = 0 and J^T da - de = dy. */
static void encoder_slopes(const rk_nystroem *map, const double *y, const ptrdiff_t *row, const double *a, ptrdiff_t k,
                           double *work, double *slopes)
{
    const ptrdiff_t n = map->n, d = map->d, size = k + d + 1;
    problem z = {.map = map, .y = y, .row = row, .k = k};
    z.p = work, z.s = z.p + n, z.psi = z.s + d * n, z.rho = z.psi + d, z.J = z.rho + d, z.mean = z.J + k * d;
    double *H = z.mean + k, *K = H + k * k, *square = K + 2 * size * size, *found = square + size;
    const double most = v_largest(map->values, n * d, 1), unit = most > 0 ? most : 1;
    const int met = sqrt(evaluate(&z, a)) <= 1e-11 * unit; /* a search ends at 1e-13 */
    jacobian(&z);
    for (ptrdiff_t i = 0; i < k * d; i++)
        z.J[i] = a[i / d] > 0 ? z.J[i] / unit : 0;
    if (met) {
        affine_slopes(z.J, a, k, d, found, slopes);
        for (ptrdiff_t c = 0; c < d; c++) {
            z.rho[c] = 0;
            for (ptrdiff_t j = 0; j < k; j++)
                z.rho[c] -= slopes[j * d + c] * a[j];
        }
    }
    for (ptrdiff_t c = 0; c < d; c++)
        z.rho[c] /= met ? unit : unit * unit;
    curvature(&z, H);
    memset(K, 0, (size_t) (size * size) * sizeof *K);
    for (ptrdiff_t j = 0; j < k; j++) {
        for (ptrdiff_t l = 0; l < k; l++)
            K[j * size + l] = (a[j] > 0 && a[l] > 0 ? H[j * k + l] : 0) + (j == l && (met || !(a[j] > 0)));
        for (ptrdiff_t c = 0; c < d; c++)
            K[j * size + k + c] = K[(k + c) * size + j] = z.J[j * d + c];
        K[j * size + k + d] = K[(k + d) * size + j] = a[j] > 0;
    }
    for (ptrdiff_t c = 0; !met && c < d; c++)
        K[(k + c) * size + k + c] = -1;
    pseudo_inverse(K, size, size, -1e-13, square, found);
    for (ptrdiff_t j = 0; j < k; j++)
        for (ptrdiff_t c = 0; c < d; c++)
            slopes[j * d + c] = found[j * size + k + c] / unit;
}

static ptrdiff_t slopes_workspace(ptrdiff_t n, ptrdiff_t d, ptrdiff_t k)
{
    const ptrdiff_t size = k + d + 1, affine = (3 * k + d + 2) * d;
    if (!n)
        return affine;
    return n + d * n + 2 * d + k * d + k + k * k + 2 * size * size + size + (affine > size * size ? affine : size * size);
}

/* -- The decoded field (Eq. convexinterpol) ---------------------------------------------------- */
#define BLOCK 1024

static void mix(const double *F, ptrdiff_t M, const ptrdiff_t *neighbor, const double *weights,
                ptrdiff_t m, ptrdiff_t k, double *out)
{
    for (ptrdiff_t i = 0; i < m; i++)
        for (ptrdiff_t b = 0; b < M; b += BLOCK) {
            ptrdiff_t size = M - b < BLOCK ? M - b : BLOCK;
            double *restrict x = out + i * M + b;
            memset(x, 0, (size_t) size * sizeof *x);
            for (ptrdiff_t j = 0; j < k; j++) {
                const double *restrict f = F + neighbor[i * k + j] * M + b;
                double w = weights[i * k + j];
                if (w == 0)
                    continue;
#pragma omp simd
                for (ptrdiff_t c = 0; c < size; c++)
                    x[c] += w * f[c];
            }
        }
}

const rk_simplex_table RK_TABLE(simplex) = {
    .latent = latent,
    .encoder = encoder,
    .mix = mix,
    .latent_workspace = latent_workspace,
    .encoder_workspace = encoder_workspace,
    .latent_slopes = latent_slopes,
    .encoder_slopes = encoder_slopes,
    .slopes_workspace = slopes_workspace,
};
