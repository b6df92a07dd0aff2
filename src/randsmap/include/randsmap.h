/* randsmap: decoded fields in a simulation loop, without Python.
 *
 * `decoder.freeze().save("decoder.rsm")` in Python writes an image; this interface decodes with it. The file
 * is the image: it is mapped, not copied, and processes that open the same file share its pages.
 *
 *     randsmap_decoder *decoder;
 *     int status = randsmap_open("decoder.rsm", &decoder);
 *     if (status != RANDSMAP_OK) { fputs(randsmap_strerror(status), stderr); exit(1); }
 *     randsmap_info_t info = {sizeof info};
 *     randsmap_info(decoder, &info);
 *     double *work = malloc(randsmap_work(decoder, 1) * sizeof *work);
 *     status = randsmap_decode(decoder, z, 1, field, work);        (z: info.n_components, field: info.n_cells)
 *     randsmap_close(decoder);
 *
 * A function returns RANDSMAP_OK (0) or a status below. Between randsmap_open and randsmap_close nothing is
 * allocated or locked, and a decoder is only read: any number of threads may use one, each with its own
 * workspace. Arrays are of doubles, contiguous, with one point or field per row; results may not overlap
 * inputs. A row's result does not depend on the other rows of a call.
 *
 * The interface only grows: what is here stays, and images of this version will be read by later ones.
 */
#ifndef RANDSMAP_H
#define RANDSMAP_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RANDSMAP_API
#if defined(RANDSMAP_EXPORTS) && defined(_WIN32)
#define RANDSMAP_API __declspec(dllexport)
#elif defined(RANDSMAP_EXPORTS) && defined(__GNUC__)
#define RANDSMAP_API __attribute__((visibility("default")))
#else
#define RANDSMAP_API
#endif
#endif

/* Version of this interface; randsmap_abi() is that of the library, equal or higher where both fit. */
#define RANDSMAP_ABI 1

enum {
    RANDSMAP_OK = 0,
    RANDSMAP_ERROR_ARGUMENT = 1,    /* a pointer is NULL or not aligned to 8 bytes, a count or the coverage is out of range */
    RANDSMAP_ERROR_MEMORY = 2,      /* no memory, on opening */
    RANDSMAP_ERROR_FILE = 3,        /* the file cannot be read: see errno */
    RANDSMAP_ERROR_IMAGE = 4,       /* no image, or one that is damaged, cut off or forged */
    RANDSMAP_ERROR_VERSION = 5,     /* an image of a later version */
    RANDSMAP_ERROR_BYTE_ORDER = 6,  /* written on a machine of the other byte order */
    RANDSMAP_ERROR_NOT_FINITE = 7,  /* a latent coordinate, vector, field or invariant's value is not finite */
    RANDSMAP_ERROR_OVERFLOW = 8,    /* a field, derivative or latent is no finite number */
    RANDSMAP_ERROR_CONVERGENCE = 9, /* no field satisfies the invariants and bounds */
    RANDSMAP_ERROR_VALUES = 10,     /* values of the invariants must be given, or contradict each other */
    RANDSMAP_ERROR_UNSUPPORTED = 11, /* the image holds no encoder, error bar, or invariants whose values could be given;
                                      * or the platform has less than 64 bits */
    RANDSMAP_ERROR_FIELD = 12        /* a field that has no quantiles: negative, or without mass */
};

typedef struct randsmap_decoder randsmap_decoder;

enum { RANDSMAP_FEATURES = 0, RANDSMAP_TABLE = 1 };

typedef struct {
    size_t size; /* sizeof of this structure, set by the caller: later versions append members */
    int64_t n_components; /* d, latent coordinates; of a ParametricModel its parameters */
    int64_t n_cells;      /* M */
    int64_t n_invariants; /* q, columns of C; 0: fields have no invariants */
    int64_t n_features;   /* P, functions of the latent point */
    int64_t kind;         /* RANDSMAP_FEATURES or RANDSMAP_TABLE */
    int64_t precision;    /* 64 or 32: bits of the stored numbers; sums have 64 */
} randsmap_info_t;

RANDSMAP_API int randsmap_abi(void);
/* What a status means, in English. */
RANDSMAP_API const char *randsmap_strerror(int status);

/* The decoder of an image, in a file or in memory; *out is NULL unless it succeeds. The memory (aligned to 8
 * bytes) must stay until the decoder is closed. Every count and the checksum are verified. */
RANDSMAP_API int randsmap_open(const char *path, randsmap_decoder **out);
RANDSMAP_API int randsmap_view(const void *image, size_t size, randsmap_decoder **out);
/* NULL does nothing. */
RANDSMAP_API void randsmap_close(randsmap_decoder *decoder);
RANDSMAP_API int randsmap_info(const randsmap_decoder *decoder, randsmap_info_t *info);

/* Doubles of workspace for decoding or encoding n rows, n directions of randsmap_decode_jvp, or randsmap_vjp
 * (n >= 1). It stops growing at a few rows, but not at a few directions if the model has parameters or registers its
 * fields. -1: NULL, or n negative. */
RANDSMAP_API ptrdiff_t randsmap_work(const randsmap_decoder *decoder, ptrdiff_t n);

/* Fields out (n, M) of latent points z (n, d). Every row is attempted; the status is that of the first row that
 * fails. A row is finite or it fails, and a row that fails is NaN, in this and the functions below. */
RANDSMAP_API int randsmap_decode(const randsmap_decoder *decoder, const double *z, ptrdiff_t n, double *out,
                                 double *work);
/* The same with the values m (n, q) of the invariants of each row: C^T f = m. */
RANDSMAP_API int randsmap_decode_values(const randsmap_decoder *decoder, const double *z, const double *m,
                                        ptrdiff_t n, double *out, double *work);

/* Latent points z (n, d) of fields f (n, M), if the image holds an encoder. Registration of the model (alignment or
 * quantiles) is included. */
RANDSMAP_API int randsmap_encode(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, double *z,
                                 double *work);
/* The same with a given number of projection steps, which bring the decoded field nearer to f. A negative number means
 * that of the image, which randsmap_encode uses. */
RANDSMAP_API int randsmap_encode_steps(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, ptrdiff_t steps,
                                       double *z, double *work);

/* The field f (M) at one point z (d) and its derivatives Jv (p, M) along the p rows of v (p, d), which may be NULL
 * for the coordinate directions (then p must be d): row j of Jv is df/dy_j. */
RANDSMAP_API int randsmap_decode_jvp(const randsmap_decoder *decoder, const double *z, const double *v,
                                     ptrdiff_t p, double *f, double *Jv, double *work);
/* out (d) = J^T u, the gradient of u . f, at one point z (d), for u (M). */
RANDSMAP_API int randsmap_vjp(const randsmap_decoder *decoder, const double *z, const double *u, double *out,
                              double *work);

/* Error bars out (n) of fields decoded at points z (n, d): relative L2 errors (with `absolute`: L2 errors) that are not
 * exceeded with the probability `coverage`. The decoded fields f (n, M) limit them by their sizes; f may be NULL. They
 * are infinite if the data do not support the coverage. The image must have been made with error_bar=True. */
RANDSMAP_API int randsmap_error(const randsmap_decoder *decoder, const double *z, const double *f, ptrdiff_t n,
                                double coverage, int absolute, double *out);

#ifdef __cplusplus
}
#endif
#endif
