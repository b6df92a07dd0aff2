/* The linear map from latent points to fields and back, made of arrays in memory or of an image, which is a file.
 *
 * Either is a table of sections, arrays of rows x columns: what Python fits, and what a frozen decoder keeps.
 *
 * An image is a header of 64 bytes, `n_sections` entries of 32 bytes, and the sections, which start at multiples of 64
 * bytes. The checksum is of everything but itself. The meaning of a number never changes: new numbers are appended, and
 * readers ignore unknown sections. */
#ifndef RK_IMAGE_H
#define RK_IMAGE_H
#include <randsmap.h>
#include "rk_blend.h"
#include "rk_decode.h"
#include "rk_distances.h"
#include "rk_features.h"
#include "rk_gradients.h"
#include "rk_projection.h"
#include "rk_registration.h"
#include "rk_simplex.h"
#include "rk_spline.h"

#define RK_IMAGE_MAGIC "RANDSMAP"
enum { RK_IMAGE_VERSION = 1, RK_IMAGE_ORDER = 0x01020304, RK_IMAGE_ALIGNMENT = 64 };

typedef struct {
    char magic[8];
    uint32_t byte_order, version;
    uint64_t size, checksum;
    uint32_t n_sections, reserved[7];
} rk_image_header;

typedef struct {
    uint32_t id, type;
    uint64_t offset, rows, columns;
} rk_image_section;

/* A section in memory; without data there is none. */
typedef struct {
    uint32_t type;
    uint64_t rows, columns;
    const void *data;
} rk_section;

enum rk_section_type { RK_FLOAT64 = 1, RK_FLOAT32 = 2, RK_INT64 = 3 };

/* The sections by their numbers, from 1: the enumeration and the names that Python writes are made of this list. */
#define RK_FOR_SECTIONS(X) \
    X(PARAMETERS)          /* int64 (1, RK_FIRST_PARAMETERS or more), by the numbers below */                          \
    X(SCALARS)             /* float64 (1, RK_N_SCALARS or more) */                                                     \
    X(WEIGHTS)             /* (d, P) of a feature map */                                                               \
    X(OFFSETS)             /* (1, P); of monomials (1, d): the centre */                                               \
    X(COLUMNS)             /* (d, n): points of a kernel, in units of the lengths */                                   \
    X(POINTS)              /* (n, d): the same, where d > RK_DIRECT_DIM */                                             \
    X(LENGTHS)             /* (1, d) */                                                                                \
    X(TAIL_CENTRE)         /* (1, d): the functions (y - centre) / lengths follow */                                   \
    X(BIAS)                /* (1, M) */                                                                                \
    X(COEFFICIENTS)        /* (P, M) float64 or float32, or in their place: */                                         \
    X(FACTOR)              /* (P, r) float64 or float32 */                                                             \
    X(MODES)               /* (r, M) float64 or float32 */                                                             \
    X(START)               /* (1, r): coordinates in the modes to which the functions' are added */                    \
    X(INVARIANTS)          /* (rank, M): C^T, the independent columns */                                               \
    X(VALUES)              /* (1, rank): m; NaN where it is another in each field */                                   \
    X(DIRECTIONS)          /* (rank, M): W of rk_projection */                                                         \
    X(TRIANGLE)            /* (rank, rank): R of rk_projection */                                                      \
    X(CONSTANT_CELLS)      /* int64 (1, n) */                                                                          \
    X(CONSTANT_VALUES)     /* (1, n) */                                                                                \
    X(CELL_WEIGHTS)        /* (1, M) */                                                                                \
    X(LOWER)               /* (1, M), with the two below: bounds */                                                    \
    X(UPPER)                                                                                                           \
    X(BOUND_DIRECTION)                                                                                                 \
    X(KEPT)                /* int64 (1, rank): which columns of C are the independent ones */                          \
    X(DROPPED)             /* int64 (1, q - rank): the others, */                                                      \
    X(FIXED)               /* (2, q): what the constant cells contribute to all, and its magnitude */                  \
    X(IMPLIED)             /* (rank, q - rank): directions of the dropped in those of the kept */                      \
    X(TABLE_VALUES)        /* (product of the counts, M) float64 or float32: coefficients of B-splines, bias included */ \
    X(TABLE_COUNTS)        /* int64 (1, d): splines along each coordinate, d <= 2 */                                   \
    X(TABLE_BOX)           /* (2, d): where the grid starts, margin included, and the width of its cells */            \
    X(ENCODER_CENTRE)      /* (1, M): coordinates of fields f less it, */                                              \
    X(ENCODER_MODES)       /* (M, r) float64 or float32: z = (f - centre) modes; without them f - centre */            \
    X(ENCODER_ROWS)        /* (n, r or M) float64 or float32: training fields in z; without them z is the latent point */ \
    X(ENCODER_WEIGHTS)     /* (d + 1, n): of the Nystroem extension; with ENCODER_LENGTHS (d + 1, m): of rk_geodesic */ \
    X(FIELD_SHAPE)         /* int64 (1, k): lengths of a field's axes, row-major; for hosts, nothing here reads it */ \
    X(ERROR_BAR)           /* (1 + n, d + 3): a row of parameters; points, errors, norms, groups */ \
    X(POWERS)              /* int64 (P, d) of monomials */                                                             \
    X(NEAR_POINTS)         /* (n, d) in units of the lengths, by their first coordinate: whose nearest is looked for */ \
    X(NEAR_ORDER)          /* int64 (1, n): their numbers, by which those below, and coefficients, are ordered */      \
    X(NEAR_FIELDS)         /* (n, P): fields near which those of the parts of a median must be */                      \
    X(TREND)               /* (d, P): slopes of these fields in units of the lengths */                                \
    X(EXPONENTS)           /* (n, n'), of mixtures that an encoder chooses: rows of rk_nystroem */                     \
    X(NYSTROEM)            /* (1 + d, n'): its offset and values */                                                    \
    X(NEAR_LATENTS)        /* (n, d): the points as they are, in the order of NEAR_POINTS */                           \
    X(PARTS)               /* int64 (1, n): images of as many cells as a median has functions, one after the other */  \
    X(INPUT)               /* int64 (1, n): an image that decodes the input y of this one */                           \
    X(ENCODER_LENGTHS)     /* (n, m) float64 or float32: of the paths from training fields to landmarks */             \
    X(ENCODER_ROOT)        /* (1, M): z = f root - centre, of an encoder by paths */                                   \
    X(ERROR_LAW)           /* (2, RK_LAW + d + n), of relative, absolute errors: rk_law, units, what n errors exceed */ \
    X(AXIS)                /* int64 (1, 3): cells before, along and behind the axis of a shift */                      \
    X(EDGES)               /* (1, M + 1), of the cells, and */                                                         \
    X(LEVELS)              /* (1, 2 M + 1): shares of the mass of quantiles, both from 0 to 1 */

/* The entries of RK_PARAMETERS, int64, from 0 */
#define RK_FOR_PARAMETERS(X) \
    X(N_COMPONENTS)        /* d, M, q */                                                                               \
    X(N_CELLS)                                                                                                         \
    X(N_INVARIANTS)                                                                                                    \
    X(BASIS)               /* rk_basis */                                                                              \
    X(FUNCTION)            /* rk_activation or rk_radial */                                                            \
    X(KIND)                /* RANDSMAP_FEATURES or RANDSMAP_TABLE */                                                   \
    X(PRECISION)           /* 64 or 32 */                                                                              \
    X(PROJECTED)           /* 0: fields are not projected; 1: they are */                                              \
    X(SINGLE)              /* 1: Python's fields are one-dimensional */                                                 \
    X(PROJECTION)          /* steps of rk_nearest after encoding; images that end before it have none */               \
    X(NEIGHBORS)           /* k of a mixture */                                                                        \
    X(ENCODER_NEIGHBORS)   /* k of an encoder by paths */                                                              \
    X(OWN)                 /* coordinates of a registration: an angle, or a mass or none */

#define RK_ENUM(name) RK_##name,
enum rk_section_id { RK_NO_SECTION, RK_FOR_SECTIONS(RK_ENUM) RK_SECTIONS /* how many numbers are known */ };
enum rk_parameter { RK_FOR_PARAMETERS(RK_ENUM) RK_N_PARAMETERS, RK_FIRST_PARAMETERS = RK_SINGLE + 1 };

enum rk_scalar {
    RK_SCALE, RK_LOW, RK_HIGH,
    RK_ENCODER_WIDTH, /* epsilon of the Nystroem extension */
    RK_LIMIT,         /* of a median: largest distance of its fields from the nearest one; infinite: none */
    RK_SMOOTHING,     /* of its distances */
    RK_DISTILLED,     /* relative L2 error as what another decoder is frozen by; 0: it stands for none; for Python alone */
    RK_N_SCALARS,
    RK_FIRST_SCALARS = RK_ENCODER_WIDTH + 1
};

/* Of an error bar: neighbours, least distance, the constant; powers of two means of logarithms of errors and of three
 * distances, and the least and largest of these; the usual distance; the least error; the smallest or largest norm */
enum rk_law {
    RK_LAW_NEAR, RK_LAW_LEAST, RK_LAW_CONSTANT, RK_LAW_POWERS, RK_LAW_LOW = RK_LAW_POWERS + 5, RK_LAW_HIGH = RK_LAW_LOW + 5,
    RK_LAW_USUAL = RK_LAW_HIGH + 5, RK_LAW_FLOOR, RK_LAW_NORM, RK_LAW, RK_MOST_NEAR = 6
};

/* phi: the coordinates; scale act(y . w + b); g(scale |x - z|^2); the mean of exp(-s^2 |x - z|^2 / 2) over s in
 * [low, high]; monomials; the convex weights of the nearest of n points, 0 of the others; the geometric median of what
 * the parts decode, or where there are none of K vectors, which are y, and then what these must be near.
 * Registrations, whose functions are the field itself, without bias and coefficients: what the one part decodes, or where
 * there is none the rest of y, shifted by the angle y_0; or turned from quantiles into a density of the mass y_0 times that
 * of VALUES, within [low, high], or with no coordinate of its own of that of VALUES. */
enum rk_basis {
    RK_IDENTITY, RK_FEATURE_MAP, RK_RADIAL_KERNEL, RK_MULTI_GAUSSIAN, RK_MONOMIALS, RK_MIXTURE, RK_MEDIAN, RK_SHIFT,
    RK_QUANTILES, RK_BASES
};
/* What an image may ask for: parts, parts of parts, neighbours k, the same where an encoder chooses their weights, k times
 * the smaller of k and d of others, whose weights then take about a second, powers */
enum {
    RK_MOST_PARTS = 256, RK_MOST_DEPTH = 4, RK_MOST_NEIGHBORS = 1024, RK_MOST_ENCODED = 64, RK_MOST_MIXED = 8100,
    RK_MOST_POWER = 100
};

/* A matrix of doubles or of floats. */
typedef struct {
    ptrdiff_t rows, columns;
    const double *wide;
    const float *narrow;
} rk_matrix;

/* C = alpha op(A) op(B) + beta C of row-major matrices, op(A) (m, k) and op(B) (k, n) with their row strides */
typedef void (*rk_gemm)(int transpose_a, int transpose_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
                        const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C,
                        ptrdiff_t ldc);
/* C = A op(B) in single precision, of contiguous A (m, k) and C (m, n) */
typedef void (*rk_single_gemm)(int transpose_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, const float *A, const float *B,
                               ptrdiff_t ldb, float *C);

struct randsmap_decoder {
    ptrdiff_t d, M, q;
    int kind, precision, projected, single;

    enum rk_basis basis;
    int function;
    ptrdiff_t n_functions; /* of the basis, without the tail */
    const double *weights, *offsets;
    const double *columns, *points, *lengths, *tail_centre;
    double scale, low, high;

    const double *centre; /* of monomials */
    const int64_t *powers;
    const double *near_points, *near_fields, *trend, *near_latents;
    const int64_t *near_order;
    ptrdiff_t n_near, n_neighbors;
    rk_nystroem nystroem; /* n = 0: a mixture is nearest to the point itself */
    double limit, smoothing;
    randsmap_decoder **parts;
    ptrdiff_t n_parts;
    int owns_parts; /* and the input */
    randsmap_decoder *input;
    int depth; /* of maps within maps: 0, if there are none */

    ptrdiff_t n_own; /* of a registration */
    rk_axis axis;
    rk_line line;

    const double *bias;
    rk_matrix coefficients, factor, modes; /* either the first, or the two others and `start` */
    const double *start;

    rk_matrix table; /* the splines of a table; outside its box the functions above decode */
    ptrdiff_t counts[2];
    double origin[2], step[2];

    rk_projection projection;
    rk_bounds bounds;
    const int64_t *kept, *dropped;
    const double *fixed, *implied;

    const double *encoder_centre, *encoder_weights;
    rk_matrix encoder_modes, encoder_rows;
    double encoder_width;
    rk_matrix encoder_lengths; /* without rows: the kernel of that width */
    const double *encoder_root;
    ptrdiff_t encoder_neighbors;
    const double *cell_weights; /* of the norm of fields; NULL: ones */
    ptrdiff_t steps;            /* of rk_nearest after encoding */

    const double *error_bar, *error_law; /* NULL: there is none */
    ptrdiff_t n_judged, judged_d; /* numbers of its points, and of the last coordinates that it uses */

    rk_gemm gemm; /* for more than RK_DECODE_FEW rows; NULL: loops, and no row depends on the others */
    rk_single_gemm single_gemm;
    const rk_features_table *features;
    const rk_gradients_table *gradients;
    const rk_distances_table *distances;
    const rk_decode_table *decode;
    const rk_projection_table *project;
    const rk_blend_table *blend;
    const rk_simplex_table *simplex;
    const rk_registration_table *registration;

    void *memory; /* of the image, if it is the decoder's own */
    size_t memory_size;
    int mapped;
};

static inline int rk_image_is_single(const randsmap_decoder *r)
{
    return r->single;
}

static inline int rk_image_is_affine(const randsmap_decoder *r)
{
    return r->basis == RK_IDENTITY && !r->projection.bounds && !r->table.rows
           && (!r->input || (r->input->basis == RK_IDENTITY && !r->input->projection.bounds && !r->input->input));
}

/* Number of coordinates of a point */
static inline ptrdiff_t rk_image_dimension(const randsmap_decoder *r)
{
    for (; r->input; r = r->input)
        ;
    return r->d;
}

static inline int rk_is_registration(const randsmap_decoder *r)
{
    return r->basis == RK_SHIFT || r->basis == RK_QUANTILES;
}

/* Number of coordinates of a registration itself */
static inline ptrdiff_t rk_image_own(const randsmap_decoder *r)
{
    return rk_is_registration(r) && !r->input ? r->n_own : 0;
}

/* Whether derivatives depend on the values of the invariants: by the bounds that hold, or the field that is registered. */
static inline int rk_values_matter(const randsmap_decoder *r)
{
    return r->projection.bounds || rk_is_registration(r);
}

/* The map that projects fields: the part of a shift projects them. */
static inline const randsmap_decoder *rk_projecting(const randsmap_decoder *r)
{
    while (r->basis == RK_SHIFT && r->n_parts)
        r = r->parts[0];
    return r;
}

static inline int rk_image_has_encoder(const randsmap_decoder *r)
{
    while (rk_is_registration(r) && !r->input && r->n_parts)
        r = r->parts[0];
    return r->encoder_centre != NULL;
}

/* Number of cells of the fields, or of quantiles, that a registration transports */
static inline ptrdiff_t rk_registered_cells(const randsmap_decoder *r)
{
    return r->basis == RK_SHIFT ? r->M : 2 * r->M + 1;
}

static inline int rk_image_depth(const randsmap_decoder *r)
{
    return r->depth;
}

/* The name of a section or parameter in the lists above. */
const char *rk_section_name(int id);
const char *rk_parameter_name(int number);

/* The map that RK_SECTIONS arrays and the parts describe, which must stay where they are. Every shape is verified. */
int rk_map_of(const rk_section *sections, rk_gemm gemm, rk_single_gemm single_gemm, randsmap_decoder *const *parts,
              ptrdiff_t n_parts, randsmap_decoder *input, randsmap_decoder **out);

/* x = (y - centre) / lengths (d), no further than the largest number; centre and lengths may be NULL. */
void rk_in_units(const double *y, const double *centre, const double *lengths, ptrdiff_t d, double *x);

/* Sums of a Gaussian kernel below which a field may be far from the training fields, and below which it is for sure;
 * distance from the centre, in widths, from which such a sum has lost its digits. */
#define RK_FAR_SUM 1e-15
#define RK_UNDERFLOWN_SUM 1e-280
#define RK_FAR_WIDTHS 32.
/* The kernel k (n) of that width at z, up to a common factor, where it underflows: a softmax of
 * (2 z.f_j - |f_j|^2) / width^2 over the rows f_j of F, in which the terms of z alone cancel. */
void rk_far_values(const rk_matrix *F, const double *z, double width, double *k);

/* y (d) = w (g^2 - s), w the rows of `weights` (d + 1, m) but for the first, s, and g (m) the lengths of the shortest paths
 * to m landmarks through k neighbours (rows of `lengths`) at these distances. The square of the least of g is left out, as
 * each w has the sum 0: far points keep their digits. */
void rk_geodesic(const rk_matrix *lengths, const double *weights, ptrdiff_t d, const double *distance,
                 const ptrdiff_t *neighbor, ptrdiff_t k, double *g, double *y);

/* Coordinates `own` (n_own) and the field or quantiles `inside` (rk_registered_cells) of a field f (M), of a registration.
 * Needs rk_work(map, 1) doubles. */
int rk_registered(const randsmap_decoder *map, const double *f, double *own, double *inside, double *work);

/* Fields out (n, M) of points y (n, d), with values (n, rank) of the independent invariants or NULL. */
int rk_decode(const randsmap_decoder *map, const double *y, const double *values, ptrdiff_t n, double *out,
              double *work);
/* Values m (q) of all invariants that the fit had, NaN if they vary, of a map that has invariants. work (q) */
void rk_values_of_fit(const randsmap_decoder *map, double *m, double *work);
/* Derivatives T (n, p, M) of the fields at points y (n, d) along v (n, p, d), or with NULL along the coordinates. */
int rk_tangents(const randsmap_decoder *map, const double *y, const double *v, ptrdiff_t n, ptrdiff_t p, double *T,
                double *work);
/* Products out (n, d) = J^T u, u (n, M). */
int rk_cotangents(const randsmap_decoder *map, const double *y, const double *u, ptrdiff_t n, double *out,
                  double *work);
/* Ten times the damping of the first step of rk_nearest, relative to diag(J^T J), and the least. */
#define RK_DAMPING 0.1
#define RK_LEAST_DAMPING 1e-12
enum { RK_MOST_STEPS = 1000 }; /* that an image may ask for */
/* Points y (n, d) moved so that their decoded fields are nearer to f (n, M), in the norm of these weights (M) or NULL:
 * steps of Gauss-Newton, with Levenberg's and Marquardt's damping. A step is taken if the misfit falls, so that a point
 * at which there is none is left where it was. Needs rk_nearest_work doubles. */
void rk_nearest(const randsmap_decoder *map, const double *f, const double *weights, ptrdiff_t n, ptrdiff_t steps,
                double *y, double *work);
ptrdiff_t rk_nearest_work(const randsmap_decoder *map);
/* Doubles of workspace for each of these, and for randsmap_encode. */
ptrdiff_t rk_work(const randsmap_decoder *map, ptrdiff_t n);
ptrdiff_t rk_tangents_work(const randsmap_decoder *map, ptrdiff_t n, ptrdiff_t p);
ptrdiff_t rk_cotangents_work(const randsmap_decoder *map, ptrdiff_t n);

/* Of an image of that many bytes, a multiple of 8. */
uint64_t rk_image_checksum(const void *image, size_t size);

#endif
