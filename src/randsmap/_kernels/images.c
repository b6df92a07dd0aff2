#include "rk_images.h"
#include "rk_simd.h"

enum { LANES = 8, STRIP = 128 };

static inline double clamp(double t, double high)
{
    t = t > 0 ? t : 0;
    return t < high ? t : high;
}

/* Two neighbouring pixels of a row. */
RK_INLINE rk_double2 load_pair(const double *p)
{
    rk_double2 pair;
    memcpy(&pair, p, sizeof pair);
    return pair;
}

/* A pixel takes the value at the point of the image that the rotation carries there. Clamped
 * coordinates fall on the frame of zeros; between the outermost pixels' centres and the frame the
 * value fades linearly, so that it is continuous in the angle. In strips: where to look is computed in
 * SIMD lanes, looking by pairs of pixels takes half the loads of gathers. */
static void rotate_row(const double *restrict padded, ptrdiff_t height, ptrdiff_t width, double r0,
                       double c0, double dr, double dc, double *restrict out)
{
    const double x0 = 0.5 * (double)(width - 1);
    const double last_row = (double)(height + 1), last_column = (double)(width + 1);
    /* 32 bits: AVX2 converts no longer integers */
    const int32_t stride = (int32_t)(width + RK_IMAGE_PAD_BEFORE + RK_IMAGE_PAD_AFTER);
    const double *restrict below = padded + stride;
    int32_t index[STRIP];
    double down[STRIP], right[STRIP];
    for (ptrdiff_t start = 0; start < width; start += STRIP) {
        const int32_t n = (int32_t)(width - start < STRIP ? width - start : STRIP);
        const double first = (double)start - x0;
#pragma omp simd
        for (int32_t j = 0; j < n; j++) {
            const double x = (double)j + first;
            const double r = clamp(r0 + dr * x, last_row);
            const double c = clamp(c0 + dc * x, last_column);
            const int32_t row = (int32_t)r, column = (int32_t)c;
            down[j] = r - (double)row;
            right[j] = c - (double)column;
            index[j] = row * stride + column;
        }
        for (int32_t j = 0; j < n; j++) {
            const rk_double2 upper = load_pair(padded + index[j]), lower = load_pair(below + index[j]);
            const rk_double2 between = upper + down[j] * (lower - upper);
            out[start + j] = between[0] + right[j] * (between[1] - between[0]);
        }
    }
}

/* In LANES partial sums, the same at every instruction level. */
static double sum(const double *restrict a, ptrdiff_t n)
{
    double lanes[LANES] = {0};
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES)
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            lanes[l] += a[k + l];
    for (int l = 0; k < n; k++, l++)
        lanes[l] += a[k];
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5]))
           + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

static double rotate(const double *padded, ptrdiff_t height, ptrdiff_t width, double cosine,
                     double sine, double *out)
{
    RK_ASSERT(height >= 1 && width >= 1);
    RK_ASSERT((height + 3) * (width + 3) <= INT32_MAX);
    const double y0 = 0.5 * (double)(height - 1), x0 = 0.5 * (double)(width - 1);
    for (ptrdiff_t i = 0; i < height; i++) {
        const double y = (double)i - y0;
        rotate_row(padded, height, width, cosine * y + y0 + RK_IMAGE_PAD_BEFORE,
                   -sine * y + x0 + RK_IMAGE_PAD_BEFORE, sine, cosine, out + i * width);
    }
    const double total = sum(out, height * width);
    if (total > 0) {
        const double scale = 1 / total;
        for (ptrdiff_t k = 0; k < height * width; k++)
            out[k] *= scale;
    }
    return total;
}

const rk_images_table RK_TABLE(images) = {.rotate = rotate};
