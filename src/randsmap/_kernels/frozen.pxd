from libc.stdint cimport uint64_t

from randsmap.c_api cimport RANDSMAP_FEATURES, RANDSMAP_OK, RANDSMAP_TABLE, randsmap_decoder, randsmap_info_t


cdef extern from "rk_image.h" nogil:
    bint rk_image_is_single(const randsmap_decoder *decoder)
    bint rk_image_has_encoder(const randsmap_decoder *decoder)
    int randsmap_abi()
    const char *randsmap_strerror(int status)
    int randsmap_open(const char *path, randsmap_decoder **out)
    int randsmap_view(const void *image, size_t size, randsmap_decoder **out)
    void randsmap_close(randsmap_decoder *decoder)
    int randsmap_info(const randsmap_decoder *decoder, randsmap_info_t *info)
    ptrdiff_t randsmap_work(const randsmap_decoder *decoder, ptrdiff_t n)
    int randsmap_decode(const randsmap_decoder *decoder, const double *y, ptrdiff_t n, double *out, double *work)
    int randsmap_decode_values(const randsmap_decoder *decoder, const double *y, const double *m, ptrdiff_t n,
                               double *out, double *work)
    int randsmap_encode(const randsmap_decoder *decoder, const double *f, ptrdiff_t n, double *y, double *work)
    int randsmap_decode_jvp(const randsmap_decoder *decoder, const double *y, const double *v, ptrdiff_t p, double *f,
                            double *Jv, double *work)
    int randsmap_vjp(const randsmap_decoder *decoder, const double *y, const double *u, double *out, double *work)
    uint64_t rk_image_checksum(const void *image, size_t size)
