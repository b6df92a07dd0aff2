"""Bilinear rotation of an image about its centre, each rotated image scaled to sum 1."""

cdef const rk_images_table *table = rk_images_select()

PAD_BEFORE = RK_IMAGE_PAD_BEFORE
PAD_AFTER = RK_IMAGE_PAD_AFTER


def rotate(const double[:, ::1] padded, const double[::1] cosines, const double[::1] sines,
           double[:, ::1] out, double[::1] sums):
    """Rotations of one image, framed by zeros, by n angles into out (n, height * width).

    sums (n): the sum of each before it was scaled; a row whose sum is not positive is not scaled.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t height = padded.shape[0] - (RK_IMAGE_PAD_BEFORE + RK_IMAGE_PAD_AFTER)
    cdef Py_ssize_t width = padded.shape[1] - (RK_IMAGE_PAD_BEFORE + RK_IMAGE_PAD_AFTER)
    if out.shape[0] == 0:
        return
    with nogil:
        for i in range(out.shape[0]):
            sums[i] = table.rotate(&padded[0, 0], height, width, cosines[i], sines[i], &out[i, 0])
