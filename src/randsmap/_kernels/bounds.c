/* The minimiser is f_i = clip(z_i + t d_i, lower_i, upper_i), d = w / v, where t makes the total
 * h(t) = w . f(t) - m vanish: h is piecewise linear and does not decrease. Newton's method from t = 0
 * takes a few branch-free passes; where it does not end soon, a search among the breakpoints of h
 * takes O(M) expected. */
#include "rk_bounds.h"
#include "rk_jacobi.h"
#include "rk_simd.h"
#include <float.h>

enum { MAX_NEWTON = 12, MAX_SIMPLEX = 60, MAX_REFINE = 3 };
enum { MAX_ROUNDS = 44 }; /* a round gains 50 binary digits of a total that is small beside the field: any that there are */
enum { SAMPLE = 9, SEARCH_ROUNDS = 1000 };
#define SEED 88172645463325252u /* the seed of the pivots: the same for every row */
/* the exact pass that follows is a step of Newton's method too, so the others may end this early */
#define CLOSE 1e-6

typedef struct {
    double sum;      /* w . f(t); of an exact pass m - w . f(t) */
    double size;     /* |w| . |f(t)|, of an exact and of a checked pass */
    double slope;    /* h'(t), a cell on its bound counted as free */
    int finite;      /* of a checked pass: f is */
    double top;      /* of a checked pass: the largest f */
} total;

typedef struct {
    rk_vec sum[RK_SUM_VECTORS], low[RK_SUM_VECTORS], size[RK_SUM_VECTORS];
    rk_vec slope[RK_SUM_VECTORS], odd[RK_SUM_VECTORS], top[RK_SUM_VECTORS];
    rk_ivec count[RK_SUM_VECTORS];
} sums;

enum { EXACT = 1, CHECKED = 2, UNIFORM = 4, NONNEGATIVE = 8, MASKED = 16 };

/* 16 cells. For UNIFORM, low and high are the bounds. For MASKED, `valid` are the lanes there are. */
RK_INLINE void add(sums *a, const double *z, const double *w, const double *d, const double *l,
                   const double *u, rk_vec low, rk_vec high, rk_vec t, const int64_t *valid, int mode)
{
    for (int v = 0; v < RK_SUM_VECTORS; v++) {
        const int i = v * RK_WIDTH;
        rk_vec zv = v_load(z + i), wv = {0}, dv = {0}, g, f, p;
        if (mode & UNIFORM) {
            g = zv + t;
        } else {
            wv = v_load(w + i), dv = v_load(d + i), low = v_load(l + i), high = v_load(u + i);
            g = zv + t * dv;
        }
        f = v_min(v_max(g, low), high);
        rk_ivec free = v_equal_bits(f, g);
        if (mode & MASKED) {
            rk_ivec there;
            memcpy(&there, valid + i, sizeof there);
            f = v_where(there, f);
            free &= there;
        }
        p = mode & UNIFORM ? f : wv * f;
        if (mode & EXACT) {
            rk_vec s, e;
            RK_TWO_SUM(s, e, a->sum[v], p);
            a->sum[v] = s;
            a->low[v] += mode & UNIFORM ? e : v_product_error(wv, f, p) + e;
        } else {
            a->sum[v] += p;
        }
        if ((mode & (EXACT | CHECKED)) && !(mode & NONNEGATIVE))
            a->size[v] += v_abs(p);
        if (mode & UNIFORM)
            a->count[v] -= free;
        else
            a->slope[v] += v_where(free, wv * dv);
        if (mode & CHECKED) {
            a->odd[v] += zv - zv; /* NaN if a cell is not finite */
            a->top[v] = v_max(a->top[v], zv);
        }
    }
}

RK_INLINE total pass(const rk_bounds *b, double m, const double *f, double t, int mode)
{
    const ptrdiff_t M = b->M;
    const rk_vec shift = v_all(t), low = v_all(b->lower[0]), high = v_all(b->upper[0]);
    const double *w = b->w, *d = b->direction, *l = b->lower, *u = b->upper;
    sums a;
    memset(&a, 0, sizeof a);
    for (int v = 0; v < RK_SUM_VECTORS; v++)
        a.top[v] = v_all(f[0]);
    ptrdiff_t i = 0;
    for (; i + RK_SUM_LANES <= M; i += RK_SUM_LANES)
        add(&a, f + i, w + i, d + i, l + i, u + i, low, high, shift, NULL, mode);
    if (i < M) {
        double x[5][RK_SUM_LANES] = {{0}};
        int64_t valid[RK_SUM_LANES] = {0};
        const double *from[5] = {f, w, d, l, u};
        for (int k = 0; k < (mode & UNIFORM ? 1 : 5); k++)
            memcpy(x[k], from[k] + i, (size_t)(M - i) * sizeof *f);
        for (ptrdiff_t k = 0; k < RK_SUM_LANES; k++) {
            valid[k] = k < M - i ? -1 : 0;
            x[0][k] = x[0][k < M - i ? k : 0]; /* the largest cell must be a valid one */
        }
        add(&a, x[0], x[1], x[2], x[3], x[4], low, high, shift, valid, mode | MASKED);
    }
    total r = {mode & EXACT ? m : 0, 0, 0, 1, f[0]};
    double low_part = 0, odd = 0;
    int64_t count = 0;
    for (int v = 0; v < RK_SUM_VECTORS; v++)
        for (int k = 0; k < RK_WIDTH; k++) {
            if (mode & EXACT) {
                double s, e;
                RK_TWO_SUM(s, e, r.sum, -v_lane(a.sum[v], k));
                r.sum = s;
                low_part += e - v_lane(a.low[v], k);
            } else {
                r.sum += v_lane(a.sum[v], k);
            }
            r.size += v_lane(a.size[v], k);
            r.slope += v_lane(a.slope[v], k);
            count += v_lane(a.count[v], k);
            odd += v_lane(a.odd[v], k);
            r.top = v_lane(a.top[v], k) > r.top ? v_lane(a.top[v], k) : r.top;
        }
    r.sum += low_part;
    if (mode & NONNEGATIVE)
        r.size = mode & EXACT ? fabs(m - r.sum) : r.sum;
    if (mode & UNIFORM)
        r.slope = (double)count;
    r.finite = odd == 0;
    return r;
}

static total first_pass(const rk_bounds *b, const double *f)
{
    if (!b->uniform)
        return pass(b, 0, f, 0, CHECKED);
    if (b->lower[0] >= 0)
        return pass(b, 0, f, 0, UNIFORM | CHECKED | NONNEGATIVE);
    return pass(b, 0, f, 0, UNIFORM | CHECKED);
}

static total quick_pass(const rk_bounds *b, const double *f, double t)
{
    return b->uniform ? pass(b, 0, f, t, UNIFORM) : pass(b, 0, f, t, 0);
}

static total exact_pass(const rk_bounds *b, double m, const double *f, double t)
{
    if (!b->uniform)
        return pass(b, m, f, t, EXACT);
    if (b->lower[0] >= 0) /* f is its own magnitude */
        return pass(b, m, f, t, UNIFORM | EXACT | NONNEGATIVE);
    return pass(b, m, f, t, UNIFORM | EXACT);
}

/* f = z + t d, clipped or not */
RK_INLINE void move_cells(const rk_bounds *b, double *restrict f, double t, int clipped)
{
    const double *restrict d = b->direction, *restrict l = b->lower, *restrict u = b->upper;
    const double low = l[0], high = u[0];
    if (b->uniform) {
#pragma omp simd
        for (ptrdiff_t i = 0; i < b->M; i++) {
            double g = f[i] + t;
            if (clipped) {
                g = g > low ? g : low;
                g = g < high ? g : high;
            }
            f[i] = g;
        }
        return;
    }
#pragma omp simd
    for (ptrdiff_t i = 0; i < b->M; i++) {
        double g = f[i] + t * d[i];
        if (clipped) {
            g = g > l[i] ? g : l[i];
            g = g < u[i] ? g : u[i];
        }
        f[i] = g;
    }
}

/* Newton from *t, h = sum - m there. False if it does not end soon, or leaves the bracket that it
 * found: with bounds on both sides it can run in circles. */
static int newton(const rk_bounds *b, double m, const double *f, total at, double *t)
{
    double slope = -1, before = INFINITY, left = -INFINITY, right = INFINITY, x = *t;
    for (int k = 0;; k++) {
        const double h = at.sum - m;
        if (!(at.slope > 0) || !(fabs(h) <= DBL_MAX))
            return 0;
        const double next = x - h / at.slope;
        if (h > 0)
            right = x;
        else
            left = x;
        if (!(fabs(next) <= DBL_MAX) || !(next >= left && next <= right))
            return 0;
        if ((at.slope == slope && fabs(h) <= before / 4)
            || fabs(h) <= CLOSE * (fabs(m) + fabs(at.sum))) {
            *t = next;
            return 1;
        }
        if (k == MAX_NEWTON || next == x)
            return 0;
        slope = at.slope;
        before = fabs(h);
        x = next;
        at = quick_pass(b, f, x);
    }
}

static double clip(double g, double l, double u)
{
    g = g > l ? g : l;
    return g < u ? g : u;
}

static uint64_t xorshift(uint64_t state)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

/* x among the first n of an ascending list */
static void insert(double *list, int n, double x)
{
    for (; n > 0 && list[n - 1] > x; n--)
        list[n] = list[n - 1];
    list[n] = x;
}

/* A root of h by bracketing it among the breakpoints (lower - z) / d and (upper - z) / d; each pivot is
 * the median of a random sample. w is scaled by `scale` against overflow. Infinite if h has no
 * root. */
static double search(const rk_bounds *b, double m, const double *f, double scale, double *work)
{
    const ptrdiff_t M = b->M;
    /* the breakpoints of undecided cells, and the numbers of these cells */
    double *from = work, *to = from + M, *z = to + M, *w = z + M, *d = w + M, *l = d + M, *u = l + M;
    rk_bounds part = {.q = 1, .w = w, .direction = d, .lower = l, .upper = u};
    double fixed = -scale * m, slope = 0, left = -INFINITY, right = INFINITY;
    uint64_t state = SEED;
    ptrdiff_t n = 0;
    for (ptrdiff_t i = 0; i < M; i++) {
        const double share = scale * b->w[i], step = b->direction[i];
        z[n] = f[i], w[n] = share, d[n] = step, l[n] = b->lower[i], u[n] = b->upper[i];
        if (step > 0) {
            from[n] = (l[n] - z[n]) / step;
            to[n] = (u[n] - z[n]) / step;
            n++;
        } else {
            fixed += share * clip(z[n], l[n], u[n]);
        }
    }
    /* a round halves the undecided cells, approximately; numbers at the ends of the range may stay undecided */
    for (int attempt = 0; attempt < SEARCH_ROUNDS; attempt++) {
        ptrdiff_t kept = 0;
        for (ptrdiff_t k = 0; k < n; k++) { /* branch-free: the outcome is not predictable */
            const double x = from[k], y = to[k], zk = z[k], wk = w[k], dk = d[k], lk = l[k];
            const double uk = u[k];
            const int low = x >= right, high = !low & (y <= left);
            const int free = !low & !high & (x <= left) & (y >= right);
            double g = low ? lk : 0;
            g = high ? uk : g;
            g = free ? zk : g;
            fixed += wk * g;
            slope += (free ? wk : 0) * dk;
            from[kept] = x, to[kept] = y, z[kept] = zk, w[kept] = wk, d[kept] = dk, l[kept] = lk;
            u[kept] = uk;
            kept += !(low | high | free);
        }
        n = part.M = kept;
        if (n == 0)
            break;
        double sample[SAMPLE];
        for (int i = 0; i < SAMPLE; i++) {
            state = xorshift(state);
            const ptrdiff_t pick = (ptrdiff_t)(state % (uint64_t)n);
            const int inner = from[pick] > left && from[pick] < right;
            insert(sample, i,
                   inner && (!(to[pick] < right) || state >> 63) ? from[pick] : to[pick]);
        }
        const double pivot = sample[SAMPLE / 2];
        const double h = fixed + slope * pivot + quick_pass(&part, z, pivot).sum;
        if (h == 0)
            return pivot;
        if (h > 0)
            right = pivot;
        else
            left = pivot;
    }
    if (slope > 0) {
        const double t = -fixed / slope;
        return t < left ? left : t > right ? right : t;
    }
    /* constant between left and right: by round-off, or beyond the last breakpoint */
    return fixed < 0 ? right : left;
}

static enum rk_row_status plain_clip(const rk_bounds *b, double *f)
{
    double odd = 0;
#pragma omp simd reduction(+ : odd)
    for (ptrdiff_t i = 0; i < b->M; i++) {
        double g = f[i], l = b->lower[i], u = b->upper[i];
        odd += g - g;
        g = g > l ? g : l;
        f[i] = g < u ? g : u;
    }
    return odd == 0 ? RK_ROW_PROJECTED : RK_NOT_FINITE;
}

/* -- The simplex: cells of one weight, one lower bound ------------------------------------------ */

/* The cells of x that are above low for the shift t, in order; returns their number. x == y is fine. */
static ptrdiff_t cells_above(const double *x, ptrdiff_t n, double t, double low, double *y)
{
    ptrdiff_t kept = 0, i = 0;
    const rk_vec shift = v_all(t), bound = v_all(low);
    for (; i + RK_SUM_LANES <= n; i += RK_SUM_LANES) {
        rk_mask any = {0};
        for (int v = 0; v < RK_SUM_VECTORS; v++)
            any |= v_less(bound, v_load(x + i + v * RK_WIDTH) + shift);
        if (v_bits(any))
            for (ptrdiff_t k = i; k < i + RK_SUM_LANES; k++) {
                const double z = x[k];
                y[kept] = z;
                kept += z + t > low;
            }
    }
    for (; i < n; i++) {
        const double z = x[i];
        y[kept] = z;
        kept += z + t > low;
    }
    return kept;
}

/* t for the cells f, `at` the first pass: Newton from the right of the root, where h is convex, so that
 * a cell on its bound stays there: when few are left, they alone are visited. Their number goes to
 * *n, they to `work` and their share of m to *rest; this holds for t <= *cut. False without a t. */
static int simplex(const rk_bounds *b, double m, const double *f, total at, double *work, double *t,
                   ptrdiff_t *n, double *rest, double *cut)
{
    const double low = b->lower[0], M = (double)b->M;
    /* the largest cell has at most all the mass above the bounds */
    const double right = (low - at.top) + (m - M * low);
    const double *x = f;
    rk_bounds part = *b;
    double slope = -1;
    *rest = m;
    *t = 0;
    *cut = INFINITY;
    for (int k = 0;; k++) {
        const double h = at.sum - *rest;
        const int close = at.slope == slope || fabs(h) <= CLOSE * (fabs(*rest) + fabs(at.sum));
        double next = at.slope > 0 && fabs(h) <= DBL_MAX ? *t - h / at.slope : right;
        if (k == 0 && !(next < right))
            next = right;
        if (!(fabs(next) <= DBL_MAX))
            return 0;
        slope = at.slope, *t = next;
        if (close)
            break;
        if (k > 0 && part.M > 256 && at.slope < 0.55 * (double)part.M) {
            part.M = cells_above(x, part.M, next, low, work);
            x = work;
            *cut = next;
            *rest = m - (M - (double)part.M) * low;
            if (part.M == 0)
                return 0;
        }
        if (k == MAX_SIMPLEX)
            return 0;
        at = quick_pass(&part, x, *t);
    }
    *n = part.M;
    return fabs(*t) <= DBL_MAX;
}

/* Round-off of w . f; for numbers so small that it underflows, one unit per cell. */
static double round_off(const rk_bounds *b, double size, double ulps)
{
    return ulps * DBL_EPSILON * size + (double)b->M * DBL_TRUE_MIN;
}

/* m - w . f(t) of the exact pass vanishes but for round-off; *t is improved if need be, and never worse than before:
 * where z + t d rounds to a bound, the step is that of a slope without this cell, and may lead far beyond. */
static int refine(const rk_bounds *b, double m, const double *f, double *t, total *at)
{
    double before = INFINITY, last = *t;
    for (int k = 0;; k++) {
        *at = exact_pass(b, m, f, *t);
        if (fabs(at->sum) <= round_off(b, at->size + fabs(m), 8))
            return 1;
        if (!(fabs(at->sum) < before / 4)) {
            *t = fabs(at->sum) < before ? *t : last;
            return 0;
        }
        if (k == MAX_REFINE || !(at->slope > 0))
            return 0;
        before = fabs(at->sum), last = *t;
        *t += at->sum / at->slope;
    }
}

/* One invariant, of weights >= 0 */
static enum rk_row_status single(const rk_bounds *b, double m, double *f, double *work)
{
    total at = first_pass(b, f);
    if (!at.finite)
        return RK_NOT_FINITE;
    double t = 0;
    /* nothing to do for a field that satisfies it all: the exact pass says so, where plain sums cannot tell */
    const double size = at.size + fabs(m), terms = (double)(b->M / RK_SUM_LANES);
    int found = size <= DBL_MAX && fabs(at.sum - m) <= (16 + terms) * DBL_EPSILON * size;
    if (!found && b->uniform && b->upper[0] == INFINITY && b->lower[0] > -INFINITY) {
        ptrdiff_t n;
        double rest, cut;
        found = simplex(b, m, f, at, work, &t, &n, &rest, &cut);
        if (!found)
            t = 0;
        else if (n < b->M) {
            rk_bounds part = *b;
            total part_at;
            part.M = n;
            const int done = refine(&part, rest, work, &t, &part_at);
            if (done && t <= cut) {
                move_cells(b, f, t, 1);
                return RK_ROW_PROJECTED;
            }
            if (!done && t < cut) { /* t is too large relative to f to be rounded: its remainder apart */
                double step = 0;
                const double low = b->lower[0];
                const double below = low - (cut - t) / 2; /* an upper bound of the other cells */
                move_cells(&part, work, t, 0);
                if (refine(&part, rest, work, &step, &part_at) && below + step <= low) {
                    move_cells(b, f, t, 0);
                    move_cells(b, f, step, 1);
                    return RK_ROW_PROJECTED;
                }
            }
        }
    }
    for (int attempt = 0; attempt < MAX_ROUNDS; attempt++) {
        if (!found && (attempt > 2 || !newton(b, m, f, at, &t))) {
            t = search(b, m, f, 1, work);
            if (isnan(t) || isinf(t)) /* out of reach, or the sums overflow */
                t = search(b, m, f, 0x1p-80, work);
            if (isnan(t))
                return RK_NOT_FINITE;
            if (isinf(t))
                break;
        }
        if (refine(b, m, f, &t, &at)) {
            move_cells(b, f, t, 1);
            return RK_ROW_PROJECTED;
        }
        if (!(at.size <= DBL_MAX))
            return RK_NOT_FINITE;
        /* t is too large relative to f to be rounded: start again from the resulting field */
        move_cells(b, f, t, 0);
        at = quick_pass(b, f, t = 0);
        found = 0;
    }
    /* all cells at one end, if m is the total there to round-off */
    if (isinf(t))
        for (ptrdiff_t i = 0; i < b->M; i++)
            if (b->direction[i] > 0)
                f[i] = t > 0 ? b->upper[i] : b->lower[i];
    move_cells(b, f, 0, 1);
    at = exact_pass(b, m, f, 0);
    if (!(at.size <= DBL_MAX))
        return RK_NOT_FINITE;
    return fabs(at.sum) <= round_off(b, at.size + fabs(m), 64) ? RK_ROW_PROJECTED : RK_NO_CONVERGENCE;
}

/* -- Several invariants ------------------------------------------------------------------------- */

/* The minimiser is clip(z + sum_j mu_j W_j), a field f whose total of each invariant is right. These are the equations
 * of a convex dual, piecewise quadratic, whose slope is what is left of the totals: Newton's method with an exact
 * search along each step, which is the problem of one invariant above, ends after finitely many. z moves, and the rest
 * is computed anew from it in twice the precision, so round-off does not add up. */
enum { MAX_STEPS = 200, SETTLED = 4, STALLED = 40, MOST = RK_MOST_TOGETHER };
#define DEPENDENT 1e-13 /* eigenvalue of invariants, scaled, that depend on each other on the free cells */
#define UNMOVED 1e-28 /* relative to 1, the value of an invariant whose cells are all free: the round-off of W */
#define NOTHING 0x1p-80 /* as in the projection without bounds */

/* The multipliers x (k) of a step for what is left of the totals: H^-1 rest where H, of the free cells, determines
 * them; where most of the rest is in directions that move no free cell, these alone (returns 1), up to where one does. */
static int multipliers(double (*H)[MOST], const double *rest, ptrdiff_t k, double *x)
{
    double scale[MOST], square[MOST], part[MOST], still = 0, moved = 0;
    double B[2 * MOST * MOST] = {0}, *const U = B + k * k; /* of the scaled H: H U, and the eigenvectors U */
    for (ptrdiff_t i = 0; i < k; i++)
        scale[i] = H[i][i] > UNMOVED ? 1 / sqrt(H[i][i]) : 1, U[i * k + i] = 1;
    for (ptrdiff_t i = 0; i < k; i++)
        for (ptrdiff_t j = 0; j <= i; j++)
            B[i * k + j] = B[j * k + i] = H[i][j] * scale[i] * scale[j];
    rk_orthogonalise(B, k, 2 * k, k, square);
    for (ptrdiff_t j = 0; j < k; j++) {
        part[j] = 0;
        for (ptrdiff_t i = 0; i < k; i++)
            part[j] += U[i * k + j] * scale[i] * rest[i];
        *(sqrt(square[j]) > DEPENDENT ? &moved : &still) += part[j] * part[j];
    }
    const int beyond = still > moved;
    for (ptrdiff_t i = 0; i < k; i++) {
        x[i] = 0;
        for (ptrdiff_t j = 0; j < k; j++)
            if ((sqrt(square[j]) > DEPENDENT) != beyond)
                x[i] += scale[i] * U[i * k + j] * (beyond ? part[j] : part[j] / sqrt(square[j]));
    }
    return beyond;
}

/* A step of z along p, which is W^T x of the multipliers x with x . rest = gain: where the dual is least on the line.
 * 0 if that is nowhere. */
static double step_length(const rk_bounds *b, const double *z, const double *p, double gain, double *work)
{
    const ptrdiff_t M = b->M;
    double *y = work, *w = y + M, *d = w + M, *l = d + M, *u = l + M;
    double last = 0;
    for (ptrdiff_t i = 0; i < M; i++) { /* the change of f, of cells that do not decrease */
        const double f = clip(z[i], b->lower[i], b->upper[i]), sign = p[i] < 0 ? -1 : 1;
        y[i] = sign * (z[i] - f);
        d[i] = sign * p[i];
        w[i] = b->v ? b->v[i] * d[i] : d[i];
        l[i] = sign * ((sign > 0 ? b->lower[i] : b->upper[i]) - f);
        u[i] = sign * ((sign > 0 ? b->upper[i] : b->lower[i]) - f);
        const double end = d[i] > 0 ? (u[i] - y[i]) / d[i] : 0;
        last = end > last && end <= DBL_MAX ? end : last;
    }
    const rk_bounds line = {.M = M, .q = 1, .w = w, .direction = d, .lower = l, .upper = u};
    double t = 1;
    if (!newton(&line, gain, y, quick_pass(&line, y, t), &t))
        t = search(&line, gain, y, 1, u + M);
    return isnan(t) ? 0 : t > last && isinf(t) ? last : t;
}

/* The cells of b alone, for which b->w and b->W have b->q <= MOST rows that share cells */
static enum rk_row_status several(const rk_bounds *b, const double *m, double *z, double *work)
{
    const ptrdiff_t M = b->M, k = b->q;
    double *p = work, terms[MOST] = {0}, top = 0;
    for (int step = 0;; step++) {
        double rest[MOST], x[MOST], H[MOST][MOST] = {{0}}, gain = 0, length = 0, odd = 0;
        int over = 0, far = 0;
        for (ptrdiff_t i = 0; step >= SETTLED && i < M; i++) { /* cells that the invariants determine to be 0 */
            int nothing = 1;
            for (ptrdiff_t j = 0; j < k; j++)
                nothing &= fabs(b->w[j * M + i] * z[i])
                           <= NOTHING * (step < STALLED ? terms[j] : fabs(b->w[j * M + i]) * top);
            z[i] = nothing ? 0 : z[i];
        }
        for (ptrdiff_t j = 0; j < k; j++) {
            rk_bounds one = *b;
            one.w = b->w + j * M, one.direction = b->W + j * M;
            const total at = exact_pass(&one, m[j], z, 0);
            const double size = at.size + fabs(m[j]);
            rest[j] = at.sum;
            terms[j] = at.size > terms[j] ? at.size : terms[j];
            over |= !(fabs(at.sum) <= round_off(b, size, 8));
            far |= !(fabs(at.sum) <= round_off(b, size, 40));
            odd += size - size;
        }
        for (ptrdiff_t i = 0; i < M; i++)
            odd += z[i] - z[i], top = fmax(top, fabs(clip(z[i], b->lower[i], b->upper[i])));
        if (odd != 0)
            return RK_NOT_FINITE;
        if (!over)
            break;
        for (ptrdiff_t j = 0; j < k; j++) { /* by R^T */
            for (ptrdiff_t i = 0; i < j; i++)
                rest[j] -= b->R[i * k + j] * rest[i];
            rest[j] /= b->R[j * k + j];
        }
        for (ptrdiff_t i = 0; i < M; i++)
            if (b->lower[i] <= z[i] && z[i] <= b->upper[i] && b->lower[i] < b->upper[i])
                for (ptrdiff_t j = 0; j < k; j++) {
                    const double share = (b->v ? b->v[i] : 1) * b->W[j * M + i];
                    for (ptrdiff_t l = 0; l <= j; l++)
                        H[j][l] += share * b->W[l * M + i];
                }
        const int beyond = multipliers(H, rest, k, x);
        memset(p, 0, (size_t)M * sizeof *p);
        for (ptrdiff_t j = 0; j < k; j++) {
            gain += x[j] * rest[j];
            for (ptrdiff_t i = 0; i < M; i++)
                p[i] += x[j] * b->W[j * M + i];
        }
        /* a residual that the free cells cannot remove is round-off of the given values, if it is as small */
        if (step < MAX_STEPS && gain > 0 && (far || !beyond))
            length = step_length(b, z, p, gain, p + M);
        if (length == 0 || isinf(length)) {
            if (far)
                return RK_NO_CONVERGENCE;
            break;
        }
        for (ptrdiff_t i = 0; i < M; i++)
            z[i] += length * p[i];
    }
    move_cells(b, z, 0, 1);
    return RK_ROW_PROJECTED;
}

/* Each group of invariants that share movable cells, on its cells; the others are clipped. A single invariant has
 * cells of negative weight turned round. */
static int reached(const rk_bounds *b, const ptrdiff_t *member, ptrdiff_t k, ptrdiff_t i)
{
    int there = 0;
    for (ptrdiff_t j = 0; j < k; j++)
        there |= b->w[member[j] * b->M + i] != 0;
    return there;
}

static enum rk_row_status groups(const rk_bounds *b, const double *m, double *f, double *work)
{
    const ptrdiff_t M = b->M;
    for (ptrdiff_t first = 0; first < b->q; first++) {
        ptrdiff_t member[MOST], k = 0, n = 0, at = 0;
        double R[MOST * MOST], values[MOST];
        for (ptrdiff_t j = first; j < b->q; j++)
            if (b->group[j] == first)
                member[k++] = j;
        for (ptrdiff_t i = 0; i < M; i++)
            n += reached(b, member, k, i);
        if (!n)
            continue;
        double *z = work, *l = z + n, *u = l + n, *v = u + n, *w = v + n, *W = w + k * n, *rest = W + k * n;
        for (ptrdiff_t i = 0; i < M; i++) {
            if (!reached(b, member, k, i))
                continue;
            const int turned = k == 1 && b->w[first * M + i] < 0;
            z[at] = turned ? -f[i] : f[i];
            l[at] = turned ? -b->upper[i] : b->lower[i];
            u[at] = turned ? -b->lower[i] : b->upper[i];
            v[at] = b->v ? b->v[i] : 1;
            for (ptrdiff_t j = 0; j < k; j++) {
                w[j * n + at] = turned ? -b->w[first * M + i] : b->w[member[j] * M + i];
                W[j * n + at] = (k == 1 ? b->direction : b->W)[member[j] * M + i];
            }
            at++;
        }
        for (ptrdiff_t j = 0; j < k; j++) {
            values[j] = m[member[j]];
            for (ptrdiff_t i = 0; i < k; i++)
                R[i * k + j] = b->R[member[i] * b->q + member[j]];
        }
        rk_bounds part = {.M = n, .q = k, .w = w, .direction = W, .lower = l, .upper = u, .W = W, .R = R, .v = v};
        rk_bounds_prepare(&part);
        const enum rk_row_status status =
            k == 1 ? single(&part, values[0], z, rest) : several(&part, values, z, rest);
        if (status != RK_ROW_PROJECTED)
            return status;
        at = 0;
        for (ptrdiff_t i = 0; i < M; i++)
            if (reached(b, member, k, i)) {
                f[i] = k == 1 && b->w[first * M + i] < 0 ? -z[at] : z[at];
                at++;
            }
    }
    return plain_clip(b, f);
}

static enum rk_row_status row(const rk_bounds *b, const double *m, double *f, double *work)
{
    return b->apart ? groups(b, m, f, work) : b->w ? single(b, *m, f, work) : plain_clip(b, f);
}

static ptrdiff_t workspace(const rk_bounds *b)
{
    return (b->apart ? 4 + 2 * b->together + (b->together > 1 ? 13 : 7) : b->w ? 7 : 0) * b->M;
}

const rk_bounds_table RK_TABLE(bounds) = {.workspace = workspace, .row = row};
