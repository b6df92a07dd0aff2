/* A host of tests/test_frozen.py: reads latent points (all components) from the arguments after the image's name, and
 * prints field, derivatives, gradient of the sum of the cells, and latents of the field, exactly. The last line is how
 * often memory was asked for or a lock taken meanwhile, where glibc tells (else -1). */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "randsmap.h"
#include <stdio.h>
#include <stdlib.h>

static long counted = -1;

#if defined(__GLIBC__)
#include <pthread.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static int counting;
void *malloc(size_t n) { counted += counting; return __libc_malloc(n); }
void *calloc(size_t n, size_t size) { counted += counting; return __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { counted += counting; return __libc_realloc(p, n); }
int pthread_mutex_lock(pthread_mutex_t *m) { (void)m; counted += counting; return 0; }
#define COUNT(on) (counted = on ? 0 : counted, counting = on)
#else
#define COUNT(on) ((void)0)
#endif

static void print(const double *x, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        printf("%a%c", x[i], i + 1 < n ? ' ' : '\n');
}

int main(int argc, char **argv)
{
    randsmap_decoder *decoder;
    randsmap_info_t info;
    int status = argc > 1 ? randsmap_open(argv[1], &decoder) : RANDSMAP_ERROR_ARGUMENT;
    if (status) {
        fprintf(stderr, "%s\n", randsmap_strerror(status));
        return status;
    }
    info.size = sizeof info;
    randsmap_info(decoder, &info);
    const ptrdiff_t d = (ptrdiff_t)info.n_components, M = (ptrdiff_t)info.n_cells, n = (argc - 2) / d;
    double *y = malloc((size_t)(n * d + d) * sizeof *y), *f = malloc((size_t)(n * M) * sizeof *f);
    double *J = malloc((size_t)(d * M) * sizeof *J), *ones = malloc((size_t)M * sizeof *ones), *g = y + n * d;
    const ptrdiff_t most = n > d ? n : d;
    double *work = malloc((size_t)randsmap_work(decoder, most) * sizeof *work), *z = malloc((size_t)(n * d) * sizeof *z);
    for (ptrdiff_t i = 0; i < n * d; i++)
        y[i] = strtod(argv[2 + i], NULL);
    for (ptrdiff_t i = 0; i < M; i++)
        ones[i] = 1;
    COUNT(1);
    for (ptrdiff_t i = 0; i < n && !status; i++)
        status = randsmap_decode_jvp(decoder, y + i * d, NULL, d, f + i * M, J, work);
    status = status ? status : randsmap_decode(decoder, y, n, f, work);
    status = status ? status : randsmap_vjp(decoder, y, ones, g, work);
    const int encoded = randsmap_encode(decoder, f, n, z, work);
    COUNT(0);
    print(f, n * M);
    print(J, d * M);
    print(g, d);
    if (encoded == RANDSMAP_OK)
        print(z, n * d);
    printf("%ld\n", counted);
    randsmap_close(decoder);
    free(y), free(f), free(J), free(ones), free(work), free(z);
    return status;
}
