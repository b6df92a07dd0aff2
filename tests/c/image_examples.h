/* Images of frozen decoders of every kind of section, written without Python: for the tests beside. */
#ifndef IMAGE_EXAMPLES_H
#define IMAGE_EXAMPLES_H
#include "rk_image.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(condition) && failures++ < 20)                                                       \
            printf("line %d: %s\n", __LINE__, #condition);                                         \
    } while (0)

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static double uniform(double low, double high)
{
    return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53;
}

static void *allocate(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (!memory)
        abort();
    return memory;
}

/* -- A writer of images ------------------------------------------------------------------------------ */
enum { MOST = 40, D = 2, M = 21, P = 13, N = 12, TOGETHER = 7, MONOMIALS, MIXTURE, ENCODED, MEDIAN, LIMITED, BEHIND, SHIFTED, SPREAD };

typedef struct {
    rk_image_section sections[MOST];
    void *arrays[MOST];
    uint32_t n;
} draft;

static void *add(draft *t, uint32_t id, uint32_t type, uint64_t rows, uint64_t columns)
{
    const size_t bytes = (size_t)(rows * columns) * (type == RK_FLOAT32 ? 4 : 8);
    t->sections[t->n] = (rk_image_section){id, type, 0, rows, columns};
    void *array = t->arrays[t->n++] = allocate(bytes);
    memset(array, 0, bytes);
    return array;
}

static double *add_uniform(draft *t, uint32_t id, uint64_t rows, uint64_t columns, double low, double high)
{
    double *x = add(t, id, RK_FLOAT64, rows, columns);
    for (uint64_t i = 0; i < rows * columns; i++)
        x[i] = uniform(low, high);
    return x;
}

static void seal(void *image, size_t size)
{
    rk_image_header *header = image;
    if (size >= sizeof *header)
        header->checksum = rk_image_checksum(image, size);
}

static void *assembled(draft *t, size_t *size)
{
    uint64_t end = sizeof(rk_image_header) + t->n * sizeof(rk_image_section);
    for (uint32_t i = 0; i < t->n; i++) {
        rk_image_section *s = t->sections + i;
        s->offset = (end + RK_IMAGE_ALIGNMENT - 1) / RK_IMAGE_ALIGNMENT * RK_IMAGE_ALIGNMENT;
        end = s->offset + s->rows * s->columns * (s->type == RK_FLOAT32 ? 4 : 8);
    }
    *size = (size_t)((end + 7) / 8 * 8);
    unsigned char *image = allocate(*size);
    memset(image, 0, *size);
    rk_image_header *header = (void *)image;
    memcpy(header->magic, RK_IMAGE_MAGIC, sizeof header->magic);
    header->byte_order = RK_IMAGE_ORDER, header->version = RK_IMAGE_VERSION;
    header->size = *size, header->n_sections = t->n;
    memcpy(image + sizeof *header, t->sections, t->n * sizeof *t->sections);
    for (uint32_t i = 0; i < t->n; i++) {
        const rk_image_section *s = t->sections + i;
        memcpy(image + s->offset, t->arrays[i], (size_t)(s->rows * s->columns) * (s->type == RK_FLOAT32 ? 4 : 8));
        free(t->arrays[i]);
    }
    seal(image, *size);
    return image;
}

static void parameters(draft *t, int kind, int basis, int function, int invariants)
{
    const int64_t values[RK_N_PARAMETERS] = {D, M, invariants ? invariants + 1 : 0, basis, function, kind, 64,
                                             invariants > 0, 0, 0, basis == RK_MIXTURE ? 3 : 0,
                                             basis == RK_MONOMIALS ? 3 : 0};
    memcpy(add(t, RK_PARAMETERS, RK_INT64, 1, RK_N_PARAMETERS), values, sizeof values);
    double *scalars = add(t, RK_SCALARS, RK_FLOAT64, 1, RK_N_SCALARS);
    scalars[RK_SCALE] = 0.5, scalars[RK_LOW] = 0.1, scalars[RK_HIGH] = 2, scalars[RK_ENCODER_WIDTH] = 1.5;
    scalars[RK_LIMIT] = INFINITY, scalars[RK_SMOOTHING] = 1e-9;
}

/* The sum of the cells is 1, twice the sum 2, and cell 3 is 0.25. With rank 2 the cells weighted by a ramp sum to 0.5. */
static double ramp(int i) { return (double)i / M; }

static void invariants(draft *t, int bounds, uint64_t rank)
{
    const double unit = 1 / sqrt(M - 1);
    double *C = add(t, RK_INVARIANTS, RK_FLOAT64, rank, M), *W = add(t, RK_DIRECTIONS, RK_FLOAT64, rank, M);
    double *m = add(t, RK_VALUES, RK_FLOAT64, 1, rank), *R = add(t, RK_TRIANGLE, RK_FLOAT64, rank, rank);
    double *fixed = add(t, RK_FIXED, RK_FLOAT64, 2, rank + 1), *implied = add(t, RK_IMPLIED, RK_FLOAT64, rank, 1);
    int64_t *kept = add(t, RK_KEPT, RK_INT64, 1, rank);
    for (int i = 0; i < M; i++)
        C[i] = 1, W[i] = i == 3 ? 0 : unit;
    m[0] = 1, R[0] = 1 / unit, kept[0] = 0, implied[0] = 2 / unit;
    fixed[0] = fixed[rank + 1] = 0.25, fixed[1] = fixed[rank + 2] = 0.5;
    if (rank == 2) {
        double square = 0;
        for (int i = 0; i < M; i++)
            C[M + i] = ramp(i), R[1] += W[i] * ramp(i);
        for (int i = 0; i < M; i++)
            W[M + i] = i == 3 ? 0 : ramp(i) - R[1] * W[i], square += W[M + i] * W[M + i];
        for (int i = 0; i < M; i++)
            W[M + i] /= sqrt(square);
        m[1] = 0.5, R[3] = sqrt(square), kept[1] = 2, fixed[2] = fixed[5] = 0.25 * ramp(3);
    }
    *(int64_t *)add(t, RK_CONSTANT_CELLS, RK_INT64, 1, 1) = 3;
    *(double *)add(t, RK_CONSTANT_VALUES, RK_FLOAT64, 1, 1) = 0.25;
    *(int64_t *)add(t, RK_DROPPED, RK_INT64, 1, 1) = 1;
    if (!bounds)
        return;
    double *lower = add(t, RK_LOWER, RK_FLOAT64, 1, M), *upper = add(t, RK_UPPER, RK_FLOAT64, 1, M);
    double *direction = add(t, RK_BOUND_DIRECTION, RK_FLOAT64, rank, M);
    for (int i = 0; i < M; i++)
        lower[i] = i == 3 ? 0.25 : 0, upper[i] = i == 3 ? 0.25 : INFINITY;
    for (int i = 0; i < (int)rank * M; i++)
        direction[i] = i % M == 3 ? 0 : C[i];
}

enum { KINDS = SPREAD + 1 };

static int has_encoder(int kind) { return kind == 0 || kind == 5 || kind == 6 || kind == MONOMIALS || kind >= SHIFTED; }

static void *example(int kind, size_t *size);

/* Points by their first coordinate, and their numbers */
static void near_points(draft *t)
{
    double *X = add_uniform(t, RK_NEAR_POINTS, N, D, -1, 1);
    int64_t *order = add(t, RK_NEAR_ORDER, RK_INT64, 1, N);
    for (int i = 0; i < N; i++)
        X[i * D] = 2. * i / N - 1, order[i] = (5 * i + 3) % N;
    add_uniform(t, RK_LENGTHS, 1, D, 0.5, 2);
}

/* The functions of the kinds from MONOMIALS on; returns their number. */
static int other_functions(draft *t, int kind)
{
    if (kind == MONOMIALS) {
        int64_t *powers = add(t, RK_POWERS, RK_INT64, P, D);
        for (int i = 0; i < P * D; i++)
            powers[i] = i % 4;
        add_uniform(t, RK_OFFSETS, 1, D, -1, 1);
        add_uniform(t, RK_LENGTHS, 1, D, 0.5, 2);
        return P;
    }
    if (kind == MIXTURE || kind == ENCODED) {
        near_points(t);
        if (kind == ENCODED) {
            add_uniform(t, RK_EXPONENTS, N, N, -2, 0);
            add_uniform(t, RK_NYSTROEM, D + 1, N, -1, 1);
            add_uniform(t, RK_NEAR_LATENTS, N, D, -1, 1);
        }
        return N;
    }
    /* a median: of the fields of other examples, or of a median of these */
    void *parts[4];
    size_t sizes[4], total = 0;
    const int n = kind == MEDIAN ? 4 : 3;
    for (int k = 0; k < n; k++) {
        parts[k] = example(kind == LIMITED && k == 2 ? MEDIAN : k == 0 ? 5 : k == 3 ? 3 : MONOMIALS + k - 1, sizes + k);
        total += sizes[k];
    }
    unsigned char *images = add(t, RK_PARTS, RK_INT64, 1, total / 8);
    for (int k = 0; k < n; images += sizes[k], k++) {
        memcpy(images, parts[k], sizes[k]);
        free(parts[k]);
    }
    if (kind == LIMITED) {
        near_points(t);
        add_uniform(t, RK_NEAR_FIELDS, N, M, -1, 1);
        add_uniform(t, RK_TREND, D, M, -1, 1);
    }
    return M;
}

/* A registration: of example 5 shifted, which has no invariants, or of quantiles of the mass 1, both with their encoders */
static void *registration(int kind, size_t *size)
{
    draft t;
    memset(&t, 0, sizeof t);
    void *part;
    size_t length;
    const int shifted = kind == SHIFTED, K = 2 * M + 1;
    parameters(&t, RANDSMAP_FEATURES, shifted ? RK_SHIFT : RK_QUANTILES, 0, shifted ? 0 : 1);
    int64_t *given = t.arrays[0];
    double *scalars = t.arrays[1];
    scalars[RK_LOW] = 0.25, scalars[RK_HIGH] = 4, scalars[RK_SCALE] = 1e-3;
    given[RK_OWN] = 1;
    if (shifted) {
        part = example(5, &length);
        const int64_t axis[] = {1, 7, 3};
        memcpy(add(&t, RK_AXIS, RK_INT64, 1, 3), axis, sizeof axis);
        add_uniform(&t, RK_LOWER, 1, M, -9, -9), add_uniform(&t, RK_UPPER, 1, M, 0.1, 9);
        given[RK_N_COMPONENTS] = 1 + D;
    } else { /* POD of quantiles, whose mean is a density */
        draft q;
        memset(&q, 0, sizeof q);
        parameters(&q, RANDSMAP_FEATURES, RK_IDENTITY, 0, 0);
        ((int64_t *)q.arrays[0])[RK_N_COMPONENTS] = 1, ((int64_t *)q.arrays[0])[RK_N_CELLS] = K;
        double *mean = add(&q, RK_BIAS, RK_FLOAT64, 1, (uint64_t)K), *centre = add(&q, RK_ENCODER_CENTRE, RK_FLOAT64, 1, (uint64_t)K);
        for (int k = 0; k < K; k++)
            centre[k] = mean[k] = 0.1 + 0.8 * k / (K - 1) + 0.02 * sin(k);
        add_uniform(&q, RK_COEFFICIENTS, 1, (uint64_t)K, -0.01, 0.01);
        add_uniform(&q, RK_ENCODER_MODES, (uint64_t)K, 1, -0.1, 0.1);
        part = assembled(&q, &length);
        double *edges = add(&t, RK_EDGES, RK_FLOAT64, 1, M + 1), *levels = add(&t, RK_LEVELS, RK_FLOAT64, 1, (uint64_t)K);
        for (int i = 0; i <= M; i++)
            edges[i] = (double)i / M;
        for (int k = 0; k < K; k++)
            levels[k] = (1 - cos(acos(-1) * k / (K - 1))) / 2;
        invariants(&t, 1, 1);
        given[RK_N_COMPONENTS] = 2;
    }
    memcpy(add(&t, RK_PARTS, RK_INT64, 1, length / 8), part, length);
    free(part);
    return assembled(&t, size);
}

static void *example(int kind, size_t *size)
{
    if (kind >= SHIFTED)
        return registration(kind, size);
    draft t;
    memset(&t, 0, sizeof t);
    const int rank = kind == 5 ? 0 : kind == TOGETHER ? 2 : 1;
    kind = kind == TOGETHER ? 3 : kind;
    const int is_map = kind < 3 || kind == 6;
    const int basis = kind == MONOMIALS ? RK_MONOMIALS : kind <= ENCODED ? RK_MIXTURE : kind == BEHIND ? RK_IDENTITY : RK_MEDIAN;
    parameters(&t, kind == 6 ? RANDSMAP_TABLE : RANDSMAP_FEATURES, kind >= MONOMIALS ? basis : kind == 5 ? RK_IDENTITY : is_map ? RK_FEATURE_MAP : kind == 3 ? RK_RADIAL_KERNEL : RK_MULTI_GAUSSIAN,
               is_map ? kind % RK_ACTIVATIONS : kind == 3 ? RK_MATERN_32 : 0, rank);
    int functions = P;
    if (kind == LIMITED)
        ((double *)t.arrays[1])[RK_LIMIT] = 3;
    if (kind == BEHIND) { /* a map of M coordinates, which another one decodes */
        size_t length;
        void *input = example(MIXTURE, &length);
        memcpy(add(&t, RK_INPUT, RK_INT64, 1, length / 8), input, length);
        free(input);
        ((int64_t *)t.arrays[0])[RK_N_COMPONENTS] = functions = M;
    } else if (kind >= MONOMIALS) {
        functions = other_functions(&t, kind);
    } else if (kind == 5) {
        functions = D;
    } else if (is_map) {
        add_uniform(&t, RK_WEIGHTS, D, P, -2, 2);
        add_uniform(&t, RK_OFFSETS, 1, P, -2, 2);
    } else {
        add_uniform(&t, RK_COLUMNS, D, P, -2, 2);
        add_uniform(&t, RK_LENGTHS, 1, D, 0.5, 2);
        if (kind == 3) {
            add_uniform(&t, RK_TAIL_CENTRE, 1, D, -1, 1);
            functions += D;
        } else {
            add_uniform(&t, RK_FACTOR, P, 5, -1, 1); /* combinations of a kernel */
            add_uniform(&t, RK_MODES, 5, M, -1, 1);
            *(double *)add(&t, RK_START, RK_FLOAT64, 1, 5) = 0.5;
        }
    }
    add_uniform(&t, RK_BIAS, 1, M, 0, 1);
    if (kind == 2) {
        float *factor = add(&t, RK_FACTOR, RK_FLOAT32, (uint64_t)functions, 4), *modes = add(&t, RK_MODES, RK_FLOAT32, 4, M);
        *(double *)add(&t, RK_START, RK_FLOAT64, 1, 4) = 0.5;
        for (int i = 0; i < functions * 4; i++)
            factor[i] = (float)uniform(-1, 1);
        for (int i = 0; i < 4 * M; i++)
            modes[i] = (float)uniform(-1, 1);
    } else if (kind != 4) {
        add_uniform(&t, RK_COEFFICIENTS, (uint64_t)functions, M, -1, 1);
    }
    if (kind == 6) {
        int64_t *counts = add(&t, RK_TABLE_COUNTS, RK_INT64, 1, D);
        double *box = add(&t, RK_TABLE_BOX, RK_FLOAT64, 2, D);
        counts[0] = 15, counts[1] = 17;
        box[0] = -2.5, box[1] = -2, box[2] = 0.6, box[3] = 0.4;
        add_uniform(&t, RK_TABLE_VALUES, 15 * 17, M, -1, 1);
    }
    if (kind == MONOMIALS) { /* encoders: by paths; */
        add_uniform(&t, RK_ENCODER_CENTRE, 1, M, 0, 1);
        add_uniform(&t, RK_ENCODER_ROWS, 9, M, -1, 1);
        add_uniform(&t, RK_ENCODER_LENGTHS, 9, 4, 0, 1);
        add_uniform(&t, RK_ENCODER_WEIGHTS, D + 1, 4, -1e-2, 1e-2);
        add_uniform(&t, RK_ENCODER_ROOT, 1, M, 0.5, 1);
    } else if (has_encoder(kind)) { /* all pairs in float32; modes alone; Nystroem in coordinates of modes */
        add_uniform(&t, RK_ENCODER_CENTRE, 1, M, 0, 1);
        if (kind != 0)
            add_uniform(&t, RK_ENCODER_MODES, M, kind == 5 ? D : 4, -1, 1);
        if (kind == 0) {
            float *rows = add(&t, RK_ENCODER_ROWS, RK_FLOAT32, 9, M);
            for (int i = 0; i < 9 * M; i++)
                rows[i] = (float)uniform(-1, 1);
        } else if (kind == 6) {
            add_uniform(&t, RK_ENCODER_ROWS, 9, 4, -1, 1);
        }
        if (kind != 5)
            add_uniform(&t, RK_ENCODER_WEIGHTS, D + 1, 9, 0.5, 1);
    }
    if (kind == 1 || kind == BEHIND) {
        add_uniform(&t, RK_ERROR_BAR, 6, D + 3, 0, 1);
        double *law = add_uniform(&t, RK_ERROR_LAW, 2, RK_LAW + D + 5, 0.5, 1);
        law[RK_LAW_NEAR] = law[RK_LAW + D + 5] = 3;
    }
    if (rank)
        invariants(&t, kind == 1 || kind == 3 || kind == BEHIND, (uint64_t)rank);
    return assembled(&t, size);
}

#endif
