/* Opening images of frozen decoders: every count is checked before a pointer is made of it, since a file may
 * be damaged or forged. What is read later is within the image, whatever its numbers are. */
#include "rk_image.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#define RK_MAPS_FILES 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

static uint64_t mixed(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Four chains, which hide the latency of the multiplication. */
uint64_t rk_image_checksum(const void *image, size_t size)
{
    const unsigned char *bytes = image;
    const size_t skipped = offsetof(rk_image_header, checksum) / 8;
    uint64_t h[4] = {1, 2, 3, 4}, word;
    for (size_t i = 0; i < size / 8; i++) {
        memcpy(&word, bytes + 8 * i, sizeof word);
        h[i % 4] = mixed(h[i % 4], i == skipped ? 0 : word);
    }
    return mixed(mixed(mixed(mixed(size, h[0]), h[1]), h[2]), h[3]);
}

#define RK_NAME(name) #name,

const char *rk_section_name(int id)
{
    static const char *const names[] = {"", RK_FOR_SECTIONS(RK_NAME)};
    return names[id];
}

const char *rk_parameter_name(int number)
{
    static const char *const names[] = {RK_FOR_PARAMETERS(RK_NAME)};
    return names[number];
}

/* The sections by their numbers; `bad` after any failed check. */
typedef struct {
    rk_section found[RK_SECTIONS];
    int bad, forgeable; /* of a file */
} sections;

static size_t element(uint32_t type)
{
    return type == RK_FLOAT32 ? 4 : type == RK_FLOAT64 || type == RK_INT64 ? 8 : 0;
}

/* RANDSMAP_OK if the image is whole, by the checksum of the outermost one, and each section lies within it. */
static int read_sections(const void *image, size_t size, int depth, sections *s)
{
    const rk_image_header *header = image;
    if (size < sizeof *header || memcmp(header->magic, RK_IMAGE_MAGIC, sizeof header->magic))
        return RANDSMAP_ERROR_IMAGE;
    if (header->byte_order != RK_IMAGE_ORDER)
        return header->byte_order == 0x04030201 ? RANDSMAP_ERROR_BYTE_ORDER : RANDSMAP_ERROR_IMAGE;
    if (header->version > RK_IMAGE_VERSION)
        return RANDSMAP_ERROR_VERSION;
    if (header->version == 0 || header->size != size || size % 8
        || header->n_sections > (size - sizeof *header) / sizeof(rk_image_section)
        || (!depth && header->checksum != rk_image_checksum(image, size)))
        return RANDSMAP_ERROR_IMAGE;
    const rk_image_section *table = (const rk_image_section *)((const unsigned char *)image + sizeof *header);
    const size_t start = sizeof *header + header->n_sections * sizeof *table;
    for (uint32_t i = 0; i < header->n_sections; i++) {
        const rk_image_section *t = table + i;
        const size_t bytes = element(t->type);
        if (t->id == 0 || t->id >= RK_SECTIONS)
            continue; /* of a later version that earlier ones may read without it */
        if (!bytes || t->offset % RK_IMAGE_ALIGNMENT || t->offset < start || t->offset > size
            || (t->columns && t->rows > (size - t->offset) / bytes / t->columns) || t->rows > size
            || t->columns > size || s->found[t->id].data)
            return RANDSMAP_ERROR_IMAGE;
        s->found[t->id] = (rk_section){t->type, t->rows, t->columns, (const unsigned char *)image + t->offset};
    }
    return RANDSMAP_OK;
}

/* The array of a section that must be there with that type and shape; -1: any. */
static const void *array(sections *s, int id, uint32_t type, ptrdiff_t rows, ptrdiff_t columns)
{
    const rk_section *t = s->found + id;
    if (!t->data || t->type != type || (rows >= 0 && t->rows != (uint64_t)rows)
        || (columns >= 0 && t->columns != (uint64_t)columns)) {
        s->bad = 1;
        return NULL;
    }
    return t->data;
}

static const double *doubles(sections *s, int id, ptrdiff_t rows, ptrdiff_t columns)
{
    return array(s, id, RK_FLOAT64, rows, columns);
}

static const double *optional(sections *s, int id, ptrdiff_t rows, ptrdiff_t columns)
{
    return s->found[id].data ? doubles(s, id, rows, columns) : NULL;
}

static rk_matrix matrix(sections *s, int id, ptrdiff_t rows, ptrdiff_t columns)
{
    rk_matrix A = {rows, columns, NULL, NULL};
    if (s->found[id].type == RK_FLOAT32)
        A.narrow = array(s, id, RK_FLOAT32, rows, columns);
    else
        A.wide = doubles(s, id, rows, columns);
    return A;
}

static ptrdiff_t columns_of(const sections *s, int id)
{
    return (ptrdiff_t)s->found[id].columns;
}

/* int64 (1, n), each in [0, limit) */
static const int64_t *indices(sections *s, int id, ptrdiff_t n, ptrdiff_t limit)
{
    const int64_t *index = array(s, id, RK_INT64, 1, n);
    for (ptrdiff_t i = 0; index && i < n; i++)
        s->bad |= index[i] < 0 || index[i] >= limit;
    return index;
}

/* Points (n, d) of which the nearest are looked for: finite, so that distances can be compared. */
static void read_points(sections *s, randsmap_decoder *r)
{
    const ptrdiff_t n = (ptrdiff_t)s->found[RK_NEAR_POINTS].rows;
    r->n_near = n;
    r->near_points = doubles(s, RK_NEAR_POINTS, n, r->d);
    r->near_order = indices(s, RK_NEAR_ORDER, n, n);
    r->lengths = optional(s, RK_LENGTHS, 1, r->d);
    s->bad |= n == 0;
    for (ptrdiff_t i = 0; !s->bad && i < n * r->d; i++)
        s->bad = !(fabs(r->near_points[i]) < INFINITY);
}

static void read_monomials(sections *s, randsmap_decoder *r)
{
    r->n_functions = (ptrdiff_t)s->found[RK_POWERS].rows;
    r->powers = array(s, RK_POWERS, RK_INT64, r->n_functions, r->d);
    r->centre = doubles(s, RK_OFFSETS, 1, r->d);
    r->lengths = optional(s, RK_LENGTHS, 1, r->d);
    s->bad |= r->n_functions == 0;
    for (ptrdiff_t i = 0; !s->bad && i < r->n_functions * r->d; i++)
        s->bad = r->powers[i] < 0 || r->powers[i] > RK_MOST_POWER;
}

static void read_mixture(sections *s, randsmap_decoder *r)
{
    read_points(s, r);
    r->n_functions = r->n_near;
    s->bad |= r->n_neighbors == 0 || r->n_neighbors > r->n_near;
    if (!s->found[RK_EXPONENTS].data) {
        const ptrdiff_t k = r->n_neighbors;
        s->bad |= s->forgeable && k * (k < r->d ? k : r->d) > RK_MOST_MIXED;
        return;
    }
    rk_nystroem *e = &r->nystroem;
    e->n = columns_of(s, RK_EXPONENTS), e->d = r->d;
    e->rows = doubles(s, RK_EXPONENTS, r->n_near, e->n);
    e->offset = doubles(s, RK_NYSTROEM, r->d + 1, e->n);
    e->values = e->offset ? e->offset + e->n : NULL;
    r->near_latents = doubles(s, RK_NEAR_LATENTS, r->n_near, r->d);
    s->bad |= e->n == 0 || (s->forgeable && r->n_neighbors > RK_MOST_ENCODED);
}

static void read_median(sections *s, randsmap_decoder *r)
{
    const ptrdiff_t size = (ptrdiff_t)s->found[s->found[RK_FACTOR].data ? RK_FACTOR : RK_COEFFICIENTS].rows;
    r->n_functions = size;
    s->bad |= size == 0 || !(r->limit >= 0) || !(r->smoothing >= 1e-150) || !(r->smoothing <= 1e150);
    for (ptrdiff_t k = 0; k < r->n_parts; k++)
        s->bad |= rk_image_dimension(r->parts[k]) != r->d || r->parts[k]->M != size;
    if (!r->n_parts) {
        s->bad |= size == 0 || r->d % size || r->d / size < 2 || r->d / size > RK_MOST_PARTS;
    } else if (r->limit < INFINITY) {
        read_points(s, r);
        r->near_fields = doubles(s, RK_NEAR_FIELDS, r->n_near, size);
        r->trend = doubles(s, RK_TREND, r->d, size);
    }
}

/* Numbers (n) that ascend */
static const double *ascending(sections *s, int id, ptrdiff_t n)
{
    const double *x = doubles(s, id, 1, n);
    for (ptrdiff_t i = 1; x && i < n; i++)
        s->bad |= !(x[i - 1] < x[i]) || !(fabs(x[i - 1]) < INFINITY) || !(fabs(x[i]) < INFINITY);
    return x;
}

static void read_registration(sections *s, randsmap_decoder *r)
{
    const ptrdiff_t M = r->M, cells = rk_registered_cells(r);
    r->n_functions = M;
    r->gemm = NULL; /* fields are transported one by one */
    s->bad |= r->n_own > 1 || r->n_own >= r->d || r->n_parts > 1 || (s->forgeable && !r->n_parts);
    if (s->bad)
        return;
    if (r->n_parts)
        s->bad |= r->parts[0]->M != cells || rk_image_dimension(r->parts[0]) != r->d - r->n_own;
    else
        s->bad |= cells != r->d - r->n_own;
    if (r->basis == RK_QUANTILES) {
        r->line.M = M;
        r->line.edges = ascending(s, RK_EDGES, M + 1);
        r->line.levels = ascending(s, RK_LEVELS, cells);
        r->line.weights = optional(s, RK_CELL_WEIGHTS, 1, M);
        s->bad |= !r->projected || !s->found[RK_LOWER].data || columns_of(s, RK_VALUES) != 1 || M < 2;
        return;
    }
    const int64_t *n = array(s, RK_AXIS, RK_INT64, 1, 3);
    s->bad |= !n || n[0] < 1 || n[1] < 1 || n[2] < 1 || n[0] > M || M % n[0] || M / n[0] % n[1] || M / n[0] / n[1] != n[2]
              || r->n_own != 1 || r->projected;
    if (s->bad)
        return;
    r->axis.before = (ptrdiff_t)n[0], r->axis.along = (ptrdiff_t)n[1], r->axis.behind = (ptrdiff_t)n[2];
    r->axis.lower = optional(s, RK_LOWER, 1, M);
    r->axis.upper = optional(s, RK_UPPER, 1, M);
    r->axis.weights = optional(s, RK_CELL_WEIGHTS, 1, M);
}

static void read_basis(sections *s, randsmap_decoder *r)
{
    const ptrdiff_t d = r->d;
    switch (r->basis) {
    case RK_IDENTITY:
        r->n_functions = d;
        return;
    case RK_FEATURE_MAP:
        r->n_functions = columns_of(s, RK_OFFSETS);
        r->weights = doubles(s, RK_WEIGHTS, d, r->n_functions);
        r->offsets = doubles(s, RK_OFFSETS, 1, r->n_functions);
        s->bad |= r->n_functions == 0 || r->function < 0 || r->function >= RK_ACTIVATIONS;
        return;
    case RK_MONOMIALS:
        read_monomials(s, r);
        break;
    case RK_MIXTURE:
        read_mixture(s, r);
        break;
    case RK_MEDIAN:
        read_median(s, r);
        break;
    case RK_SHIFT:
    case RK_QUANTILES:
        read_registration(s, r);
        return;
    default:
        r->n_functions = columns_of(s, RK_COLUMNS);
        r->columns = doubles(s, RK_COLUMNS, d, r->n_functions);
        if (d > RK_DIRECT_DIM)
            r->points = doubles(s, RK_POINTS, r->n_functions, d);
        r->lengths = optional(s, RK_LENGTHS, 1, d);
        r->tail_centre = optional(s, RK_TAIL_CENTRE, 1, d);
        s->bad |= r->n_functions == 0 || r->function < 0 || r->function >= RK_RADIALS
                  || (r->tail_centre && !r->lengths)
                  || (r->basis == RK_MULTI_GAUSSIAN && !(0 <= r->low && r->low < r->high && r->high < INFINITY));
    }
    for (ptrdiff_t j = 0; r->lengths && j < d; j++)
        s->bad |= !(r->lengths[j] > 0);
}

/* Bounds that the projection accepts; it gets no others. */
static int bounds_hold(const rk_bounds *b)
{
    for (ptrdiff_t i = 0; i < b->M; i++)
        if (!(b->lower[i] <= b->upper[i]))
            return 0;
    for (ptrdiff_t i = 0; i < b->q * b->M; i++)
        if (!(b->direction[i] >= 0) || b->direction[i] == INFINITY || !(fabs(b->w[i]) < INFINITY))
            return 0;
    return 1;
}

static void read_invariants(sections *s, randsmap_decoder *r)
{
    rk_projection *p = &r->projection;
    const ptrdiff_t M = r->M;
    p->M = M;
    p->q = columns_of(s, RK_VALUES);
    p->m = doubles(s, RK_VALUES, 1, p->q);
    p->C = doubles(s, RK_INVARIANTS, p->q, M);
    p->W = doubles(s, RK_DIRECTIONS, p->q, M);
    p->R = doubles(s, RK_TRIANGLE, p->q, p->q);
    for (ptrdiff_t j = 0; p->R && j < p->q; j++)
        s->bad |= !(fabs(p->R[j * p->q + j]) > 0);
    p->weights = r->cell_weights;
    p->n_constant = columns_of(s, RK_CONSTANT_CELLS);
    const int64_t *cells = indices(s, RK_CONSTANT_CELLS, p->n_constant, M);
    p->index = (const void *)cells;
    p->value = doubles(s, RK_CONSTANT_VALUES, 1, p->n_constant);
    r->kept = indices(s, RK_KEPT, p->q, r->q);
    r->dropped = indices(s, RK_DROPPED, r->q - p->q, r->q);
    r->fixed = doubles(s, RK_FIXED, 2, r->q);
    r->implied = doubles(s, RK_IMPLIED, p->q, r->q - p->q);
    if (!s->found[RK_LOWER].data)
        return;
    r->bounds.M = M, r->bounds.q = p->q;
    r->bounds.w = p->q ? p->C : NULL;
    r->bounds.W = p->W, r->bounds.R = p->R, r->bounds.v = p->weights;
    r->bounds.direction = doubles(s, RK_BOUND_DIRECTION, p->q, M);
    r->bounds.lower = doubles(s, RK_LOWER, 1, M);
    r->bounds.upper = doubles(s, RK_UPPER, 1, M);
    if (s->bad || !bounds_hold(&r->bounds) || !rk_bounds_prepare(&r->bounds)) {
        s->bad = 1;
        return;
    }
    p->bounds = &r->bounds;
}

static void read_table(sections *s, randsmap_decoder *r)
{
    if (r->d > 2) {
        s->bad = 1;
        return;
    }
    const int64_t *counts = array(s, RK_TABLE_COUNTS, RK_INT64, 1, r->d);
    const double *box = doubles(s, RK_TABLE_BOX, 2, r->d);
    ptrdiff_t rows = 1;
    r->counts[1] = 1;
    for (ptrdiff_t j = 0; !s->bad && j < r->d; j++) {
        /* a table has more entries than splines: no product of counts can overflow */
        s->bad = counts[j] < RK_SPLINE_ORDER + 2 * RK_TABLE_MARGIN || counts[j] > INT32_MAX || !(fabs(box[j]) < INFINITY)
                 || !(box[r->d + j] > 0) || !(box[r->d + j] < INFINITY);
        r->counts[j] = (ptrdiff_t)counts[j];
        r->origin[j] = box[j], r->step[j] = box[r->d + j];
        if (!s->bad)
            rows *= r->counts[j];
    }
    if (!s->bad)
        r->table = matrix(s, RK_TABLE_VALUES, rows, r->M);
}

static void read_encoder(sections *s, randsmap_decoder *r)
{
    const ptrdiff_t n = (ptrdiff_t)s->found[RK_ENCODER_ROWS].rows;
    ptrdiff_t width = r->M;
    r->encoder_centre = doubles(s, RK_ENCODER_CENTRE, 1, r->M);
    if (s->found[RK_ENCODER_MODES].data) {
        width = columns_of(s, RK_ENCODER_MODES);
        r->encoder_modes = matrix(s, RK_ENCODER_MODES, r->M, width);
    }
    if (s->found[RK_ENCODER_LENGTHS].data) {
        const ptrdiff_t m = columns_of(s, RK_ENCODER_LENGTHS);
        r->encoder_rows = matrix(s, RK_ENCODER_ROWS, n, r->M);
        r->encoder_lengths = matrix(s, RK_ENCODER_LENGTHS, n, m);
        r->encoder_weights = doubles(s, RK_ENCODER_WEIGHTS, r->d + 1, m);
        r->encoder_root = optional(s, RK_ENCODER_ROOT, 1, r->M);
        s->bad |= n == 0 || m == 0 || r->encoder_modes.rows || r->encoder_neighbors == 0 || r->encoder_neighbors > n
                  || r->encoder_neighbors > RK_MOST_NEIGHBORS;
    } else if (s->found[RK_ENCODER_ROWS].data) {
        r->encoder_rows = matrix(s, RK_ENCODER_ROWS, n, width);
        r->encoder_weights = doubles(s, RK_ENCODER_WEIGHTS, r->d + 1, n);
        s->bad |= n == 0 || width == 0 || !(r->encoder_width >= 1e-150) || !(r->encoder_width <= 1e150);
    } else {
        s->bad |= width != r->d;
    }
}

static void read_error_bar(sections *s, randsmap_decoder *r)
{
    const ptrdiff_t d = columns_of(s, RK_ERROR_BAR) - 3, n = (ptrdiff_t)s->found[RK_ERROR_BAR].rows - 1;
    const ptrdiff_t columns = RK_LAW + d + n;
    r->error_bar = doubles(s, RK_ERROR_BAR, n + 1, d + 3);
    r->error_law = doubles(s, RK_ERROR_LAW, 2, columns);
    r->n_judged = n, r->judged_d = d;
    s->bad |= n < 1 || d < 1 || d > rk_image_dimension(r);
    for (ptrdiff_t i = 0; !s->bad && i < (n + 1) * (d + 3); i++)
        s->bad = !(fabs(r->error_bar[i]) < 1e150);
    for (ptrdiff_t i = 0; !s->bad && i < 2 * columns; i++)
        s->bad = !(fabs(r->error_law[i]) < 1e150)
                 || (i % columns == RK_LAW_NEAR && !(r->error_law[i] >= 1 && r->error_law[i] <= RK_MOST_NEAR
                                                     && r->error_law[i] <= (double)n))
                 || (i % columns == RK_LAW_NORM && !(r->error_law[i] > 0))
                 || (i % columns >= RK_LAW && i % columns < RK_LAW + d && !(r->error_law[i] > 0));
}

/* The map of sections whose numbers are at most `limit`. */
static int read_map(sections *s, uint64_t limit, randsmap_decoder *r)
{
    const ptrdiff_t count = columns_of(s, RK_PARAMETERS);
    const ptrdiff_t n_scalars = columns_of(s, RK_SCALARS);
    if (count < RK_FIRST_PARAMETERS || n_scalars < RK_FIRST_SCALARS)
        return RANDSMAP_ERROR_IMAGE;
    const int64_t *given = array(s, RK_PARAMETERS, RK_INT64, 1, -1);
    const double *scalars = doubles(s, RK_SCALARS, 1, -1);
    if (s->bad)
        return RANDSMAP_ERROR_IMAGE;
    double scalar[RK_N_SCALARS] = {0};
    memcpy(scalar, scalars, (size_t)(n_scalars < RK_N_SCALARS ? n_scalars : RK_N_SCALARS) * sizeof *scalar);
    int64_t parameter[RK_N_PARAMETERS] = {0}; /* parameters that an earlier image lacks are 0 */
    for (int i = 0; i < RK_N_PARAMETERS && i < count; i++) {
        parameter[i] = given[i];
        const int neighbors = i == RK_NEIGHBORS || i == RK_ENCODER_NEIGHBORS;
        const uint64_t most = i == RK_PROJECTION ? RK_MOST_STEPS : neighbors && s->forgeable ? RK_MOST_NEIGHBORS
                              : i > RK_N_INVARIANTS && !neighbors ? 64 : limit;
        if (given[i] < 0 || (uint64_t)given[i] > most)
            return RANDSMAP_ERROR_IMAGE;
    }
    r->d = (ptrdiff_t)parameter[RK_N_COMPONENTS];
    r->M = (ptrdiff_t)parameter[RK_N_CELLS];
    r->q = (ptrdiff_t)parameter[RK_N_INVARIANTS];
    if (r->d == 0 || r->M == 0 || parameter[RK_BASIS] >= RK_BASES)
        return RANDSMAP_ERROR_IMAGE;
    r->basis = (enum rk_basis)parameter[RK_BASIS];
    r->function = (int)parameter[RK_FUNCTION];
    r->kind = (int)parameter[RK_KIND];
    r->precision = (int)parameter[RK_PRECISION];
    r->projected = (int)parameter[RK_PROJECTED];
    r->single = (int)parameter[RK_SINGLE];
    r->scale = scalar[RK_SCALE], r->low = scalar[RK_LOW], r->high = scalar[RK_HIGH];
    r->limit = scalar[RK_LIMIT], r->smoothing = scalar[RK_SMOOTHING];
    r->n_neighbors = (ptrdiff_t)parameter[RK_NEIGHBORS];
    r->n_own = (ptrdiff_t)parameter[RK_OWN];

    read_basis(s, r);
    r->bias = rk_is_registration(r) ? NULL : doubles(s, RK_BIAS, 1, r->M);
    const ptrdiff_t P = r->n_functions + (r->tail_centre ? r->d : 0);
    if (s->found[RK_FACTOR].data) {
        const ptrdiff_t rank = columns_of(s, RK_FACTOR);
        r->factor = matrix(s, RK_FACTOR, P, rank);
        r->modes = matrix(s, RK_MODES, rank, r->M);
        r->start = doubles(s, RK_START, 1, rank);
    } else if (!rk_is_registration(r)) {
        r->coefficients = matrix(s, RK_COEFFICIENTS, P, r->M);
    }
    r->encoder_width = scalar[RK_ENCODER_WIDTH];
    r->encoder_neighbors = (ptrdiff_t)parameter[RK_ENCODER_NEIGHBORS];
    r->steps = (ptrdiff_t)parameter[RK_PROJECTION];
    r->cell_weights = optional(s, RK_CELL_WEIGHTS, 1, r->M);
    for (ptrdiff_t k = 0; !s->bad && r->cell_weights && k < r->M; k++)
        s->bad = !(r->cell_weights[k] > 0) || !(r->cell_weights[k] < INFINITY);
    s->bad |= r->input && (r->input->M != r->d || s->found[RK_ENCODER_CENTRE].data);
    if (s->found[RK_ENCODER_CENTRE].data)
        read_encoder(s, r);
    if (s->found[RK_ERROR_LAW].data)
        read_error_bar(s, r);
    if (rk_is_registration(r))
        s->bad |= r->kind != RANDSMAP_FEATURES || r->factor.rows || r->encoder_centre;
    else if (r->kind == RANDSMAP_TABLE)
        read_table(s, r);
    else if (r->kind != RANDSMAP_FEATURES)
        s->bad = 1;
    if (r->projected)
        read_invariants(s, r);
    if (!s->bad && r->basis == RK_QUANTILES) /* masses are multiples of this number */
        s->bad = !(r->projection.m[0] > 0) || !(r->projection.m[0] < INFINITY);
    return s->bad ? RANDSMAP_ERROR_IMAGE : RANDSMAP_OK;
}

static void discard(randsmap_decoder *r)
{
    for (ptrdiff_t k = 0; r->owns_parts && k < r->n_parts; k++)
        randsmap_close(r->parts[k]);
    if (r->owns_parts)
        randsmap_close(r->input);
    free(r->parts);
    free(r);
}

static int opened(sections *s, uint64_t limit, randsmap_decoder *r, randsmap_decoder **out)
{
    const int status = read_map(s, limit, r);
    if (status) {
        discard(r);
        return status;
    }
    r->features = rk_features_select();
    r->gradients = rk_gradients_select();
    r->distances = rk_distances_select();
    r->decode = rk_decode_select();
    r->project = rk_projection_select();
    r->blend = rk_blend_select();
    r->simplex = rk_simplex_select();
    r->registration = rk_registration_select();
    for (ptrdiff_t k = 0; k < r->n_parts; k++)
        r->depth = r->parts[k]->depth >= r->depth ? r->parts[k]->depth + 1 : r->depth;
    if (r->input && r->input->depth >= r->depth)
        r->depth = r->input->depth + 1;
    *out = r;
    return RANDSMAP_OK;
}

/* A map that is not open yet, with room for so many parts */
static randsmap_decoder *closed(ptrdiff_t n_parts)
{
    randsmap_decoder *r = calloc(1, sizeof *r);
    if (r && n_parts) {
        r->parts = calloc((size_t)n_parts, sizeof *r->parts);
        if (!r->parts) {
            free(r);
            return NULL;
        }
    }
    return r;
}

int rk_map_of(const rk_section *table, rk_gemm gemm, rk_single_gemm single_gemm, randsmap_decoder *const *parts,
              ptrdiff_t n_parts, randsmap_decoder *input, randsmap_decoder **out)
{
    sections s = {.bad = 0};
    memcpy(s.found, table, sizeof s.found);
    randsmap_decoder *r = closed(n_parts);
    if (!r)
        return RANDSMAP_ERROR_MEMORY;
    for (; r->n_parts < n_parts; r->n_parts++)
        r->parts[r->n_parts] = parts[r->n_parts];
    r->input = input, r->gemm = gemm, r->single_gemm = single_gemm;
    return opened(&s, PTRDIFF_MAX, r, out);
}

/* The next of the images in `size` bytes, and how long it is; 0: there is none */
static size_t image_length(const unsigned char *images, size_t size)
{
    const rk_image_header *header = (const void *)images;
    return size < sizeof *header || header->size < sizeof *header || header->size > size || header->size % 8
        ? 0 : (size_t)header->size;
}

static int view(const void *image, size_t size, int depth, randsmap_decoder **out)
{
    sections s = {.forgeable = 1};
    const int status = depth > RK_MOST_DEPTH ? RANDSMAP_ERROR_IMAGE : read_sections(image, size, depth, &s);
    if (status)
        return status;
    const unsigned char *images = NULL;
    size_t length, bytes = 0;
    ptrdiff_t n_parts = 0;
    if (s.found[RK_PARTS].data) {
        images = array(&s, RK_PARTS, RK_INT64, 1, -1);
        bytes = 8 * (size_t)s.found[RK_PARTS].columns;
    }
    if (s.bad)
        return RANDSMAP_ERROR_IMAGE;
    for (size_t at = 0; at < bytes; at += length, n_parts++) {
        length = image_length(images + at, bytes - at);
        if (!length || n_parts == RK_MOST_PARTS)
            return RANDSMAP_ERROR_IMAGE;
    }
    randsmap_decoder *r = closed(n_parts);
    if (!r)
        return RANDSMAP_ERROR_MEMORY;
    r->owns_parts = 1;
    for (size_t at = 0; at < bytes; at += length, r->n_parts++) {
        length = image_length(images + at, bytes - at);
        const int of_part = view(images + at, length, depth + 1, r->parts + r->n_parts);
        if (of_part) {
            discard(r);
            return of_part;
        }
    }
    if (s.found[RK_INPUT].data) {
        const void *input = array(&s, RK_INPUT, RK_INT64, 1, -1);
        const int of_input = input ? view(input, 8 * (size_t)s.found[RK_INPUT].columns, depth + 1, &r->input)
                                   : RANDSMAP_ERROR_IMAGE;
        if (of_input) {
            discard(r);
            return of_input;
        }
    }
    return opened(&s, size, r, out);
}

int randsmap_view(const void *image, size_t size, randsmap_decoder **out)
{
    if (out)
        *out = NULL;
    if (!image || !out || (uintptr_t)image % 8)
        return RANDSMAP_ERROR_ARGUMENT;
    if (sizeof(ptrdiff_t) < sizeof(int64_t)) /* indices of 64 bits are used in place */
        return RANDSMAP_ERROR_UNSUPPORTED;
    return view(image, size, 0, out);
}

static void release(void *memory, size_t size, int mapped)
{
#ifdef RK_MAPS_FILES
    if (mapped) {
        munmap(memory, size);
        return;
    }
#endif
    (void)size, (void)mapped;
    free(memory);
}

#ifdef RK_MAPS_FILES
/* The file as memory of its own pages; NULL with *size 0 if it is empty. */
static int read_file(const char *path, void **memory, size_t *size)
{
    struct stat about;
    const int file = open(path, O_RDONLY
#ifdef O_CLOEXEC
                                    | O_CLOEXEC
#endif
    );
    if (file < 0)
        return RANDSMAP_ERROR_FILE;
    int status = RANDSMAP_OK;
    if (fstat(file, &about))
        status = RANDSMAP_ERROR_FILE;
    else if (!S_ISREG(about.st_mode) || about.st_size < (off_t)sizeof(rk_image_header)
             || (uint64_t)about.st_size > PTRDIFF_MAX)
        status = RANDSMAP_ERROR_IMAGE;
    if (!status) {
        *size = (size_t)about.st_size;
        *memory = mmap(NULL, *size, PROT_READ, MAP_SHARED, file, 0);
        if (*memory == MAP_FAILED)
            status = RANDSMAP_ERROR_MEMORY;
    }
    const int error = errno;
    close(file);
    errno = error;
    return status;
}
enum { MAPPED = 1 };
#else
static int read_file(const char *path, void **memory, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return RANDSMAP_ERROR_FILE;
    size_t capacity = 1 << 16, length = 0, got = 0;
    unsigned char *bytes = malloc(capacity);
    while (bytes && (got = fread(bytes + length, 1, capacity - length, file)) > 0) {
        length += got;
        if (length == capacity) {
            unsigned char *more = capacity <= PTRDIFF_MAX / 2 ? realloc(bytes, 2 * capacity) : NULL;
            if (!more)
                free(bytes);
            bytes = more, capacity *= 2;
        }
    }
    const int failed = ferror(file);
    fclose(file);
    if (!bytes || failed) {
        free(bytes);
        return failed ? RANDSMAP_ERROR_FILE : RANDSMAP_ERROR_MEMORY;
    }
    *memory = bytes, *size = length;
    return RANDSMAP_OK;
}
enum { MAPPED = 0 };
#endif

int randsmap_open(const char *path, randsmap_decoder **out)
{
    if (out)
        *out = NULL;
    if (!path || !out)
        return RANDSMAP_ERROR_ARGUMENT;
    void *memory = NULL;
    size_t size = 0;
    int status = read_file(path, &memory, &size);
    if (status)
        return status;
    status = randsmap_view(memory, size, out);
    if (status) {
        release(memory, size, MAPPED);
        return status;
    }
    (*out)->memory = memory, (*out)->memory_size = size, (*out)->mapped = MAPPED;
    return RANDSMAP_OK;
}

void randsmap_close(randsmap_decoder *decoder)
{
    if (!decoder)
        return;
    if (decoder->memory)
        release(decoder->memory, decoder->memory_size, decoder->mapped);
    discard(decoder);
}

int randsmap_info(const randsmap_decoder *r, randsmap_info_t *info)
{
    if (!r || !info || info->size < sizeof info->size)
        return RANDSMAP_ERROR_ARGUMENT;
    randsmap_info_t known;
    known.n_components = rk_image_dimension(r);
    known.n_cells = r->M;
    known.n_invariants = rk_projecting(r)->projected ? rk_projecting(r)->q : 0;
    while (rk_is_registration(r) && r->n_parts) /* the part decodes fields of this kind */
        r = r->parts[0];
    known.n_features = r->n_functions + (r->tail_centre ? r->d : 0);
    known.kind = r->kind;
    known.precision = r->precision;
    /* a caller of an earlier or later version has fewer or more members */
    known.size = info->size < sizeof known ? info->size : sizeof known;
    memcpy(info, &known, known.size);
    return RANDSMAP_OK;
}

int randsmap_abi(void)
{
    return RANDSMAP_ABI;
}

const char *randsmap_strerror(int status)
{
    switch (status) {
    case RANDSMAP_OK: return "success";
    case RANDSMAP_ERROR_ARGUMENT: return "a pointer is NULL or not aligned, or a count is out of range";
    case RANDSMAP_ERROR_MEMORY: return "no memory";
    case RANDSMAP_ERROR_FILE: return "the file cannot be read";
    case RANDSMAP_ERROR_IMAGE: return "no image of a frozen decoder, or a damaged one";
    case RANDSMAP_ERROR_VERSION: return "an image of a later version of randsmap";
    case RANDSMAP_ERROR_BYTE_ORDER: return "an image of a machine of the other byte order";
    case RANDSMAP_ERROR_NOT_FINITE: return "a latent coordinate, vector, field or value is not finite";
    case RANDSMAP_ERROR_OVERFLOW:
        return "a field, a derivative or a latent is too large for floating-point numbers, because its point is too far away";
    case RANDSMAP_ERROR_CONVERGENCE: return "no field is found that satisfies the invariants and bounds";
    case RANDSMAP_ERROR_VALUES:
        return "the invariants have another value in each field, which must be given (invariant_values; in C "
               "randsmap_decode_values), or values given for dependent invariants are contradictory";
    case RANDSMAP_ERROR_UNSUPPORTED: return "the image does not hold what this needs, or the platform has less than 64 bits";
    case RANDSMAP_ERROR_FIELD: return "a field is negative or has no mass, so that it has no quantiles";
    default: return "unknown status";
    }
}
