/* Bilinear rotation of an image about its centre. */
#ifndef RK_IMAGES_H
#define RK_IMAGES_H
#include "rk_dispatch.h"

/* Rows and columns of zeros around the image: so no pixel needs a branch at the border. */
enum { RK_IMAGE_PAD_BEFORE = 1, RK_IMAGE_PAD_AFTER = 2 };

typedef struct {
    /* padded (height + 3, width + 3): the image framed by zeros, fewer than 2^31 pixels; out
     * (height, width): counter-clockwise by the angle of that cosine and sine (rows count
     * downwards), zero outside the image, scaled to sum 1. Returns the sum before scaling; when it is not
     * positive, out is left unscaled. */
    double (*rotate)(const double *padded, ptrdiff_t height, ptrdiff_t width, double cosine,
                     double sine, double *out);
} rk_images_table;
RK_TABLES(images)

#endif
