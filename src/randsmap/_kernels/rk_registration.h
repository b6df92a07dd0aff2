/* The position of a field is removed and restored, one field at a time: by a shift along a periodic axis, or by
 * quantiles, the places below which given shares of the mass lie. Tangents are derivatives along a direction. */
#ifndef RK_REGISTRATION_H
#define RK_REGISTRATION_H
#include "rk_dispatch.h"

typedef struct {
    ptrdiff_t before, along, behind;  /* cells before, along and behind the axis, in the order of a field; their product M */
    const double *lower, *upper;      /* (M): bounds of shifted fields, or NULL */
    const double *weights;            /* (M): of the norm, or NULL: ones */
} rk_axis;

typedef struct {
    ptrdiff_t M;
    const double *edges;   /* (M + 1): of the cells, from 0 to 1 */
    const double *levels;  /* (2 M + 1): shares of the mass, from 0 to 1 */
    const double *weights; /* (M): widths of the cells, or NULL: ones */
} rk_line;

typedef struct {
    /* out (M): the field f shifted by an angle, conservatively, within the bounds if it is to be limited. For p tangents
     * F (p, M) and speeds of the angle (p) their images out (p, M). work: axis_size(axis) */
    void (*shift)(const rk_axis *axis, const double *f, double angle, int limited, double *out, double *work);
    void (*shift_tangents)(const rk_axis *axis, const double *f, double angle, const double *F, const double *speeds,
                           ptrdiff_t p, double *out, double *work);
    /* The angle of the first Fourier mode of f along the axis, in [-pi, pi); 0 where it is round-off */
    double (*phase)(const rk_axis *axis, const double *f, double *work);
    ptrdiff_t (*axis_size)(const rk_axis *axis);

    /* Quantiles x (2 M + 1) of a field f; returns its mass. work: line_size(line) */
    double (*quantiles)(const rk_line *line, const double *f, double *x, double *work);
    /* out (M): the field of mass 1 whose quantiles are those of x, in any order, within [0, 1]; for p tangents X (p,
     * 2 M + 1) of these their images out (p, M) */
    void (*density)(const rk_line *line, const double *x, double *out, double *work);
    void (*density_tangents)(const rk_line *line, const double *x, const double *X, ptrdiff_t p, double *out,
                             double *work);
    ptrdiff_t (*line_size)(const rk_line *line);
} rk_registration_table;
RK_TABLES(registration)

#endif
