/* One decoder and several threads, which may share it as it is: run it under the thread sanitizer
 * (tools/sanitize.sh --threads). Each thread also opens decoders of its own from the same image. */
#include "image_examples.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 40, ROWS = 9, MOST_D = D + 1, NUMBERS = (2 * ROWS + 1 + MOST_D) * M + (ROWS + 1) * MOST_D };

typedef struct {
    const randsmap_decoder *decoder;
    const void *image;
    size_t size;
    const double *expected;
    int failures;
} job;

/* All that a decoder computes, one after the other into `out` (NUMBERS). */
static void compute(const randsmap_decoder *decoder, double *out)
{
    randsmap_info_t info;
    info.size = sizeof info;
    randsmap_info(decoder, &info);
    double y[ROWS * MOST_D], u[M], *m = allocate((size_t)(ROWS * info.n_invariants + 1) * sizeof *m);
    for (int i = 0; i < ROWS * MOST_D; i++)
        y[i] = 0.1 * i - 0.7;
    for (int i = 0; i < ROWS * info.n_invariants; i++)
        m[i] = i % info.n_invariants == 0 ? 1.5 : 3;
    for (int i = 0; i < M; i++)
        u[i] = cos(i);
    memset(out, 0, NUMBERS * sizeof *out);
    double *fields = out, *valued = fields + ROWS * M, *one = valued + ROWS * M, *J = one + M, *z = J + MOST_D * M;
    double *work = allocate((size_t)randsmap_work(decoder, ROWS) * sizeof *work);
    randsmap_decode(decoder, y, ROWS, fields, work);
    randsmap_decode_values(decoder, y, m, ROWS, valued, work);
    randsmap_decode_jvp(decoder, y, NULL, (ptrdiff_t)info.n_components, one, J, work);
    randsmap_encode(decoder, fields, ROWS, z, work);
    randsmap_vjp(decoder, y, u, z + ROWS * MOST_D, work);
    free(work), free(m);
}

static void *run(void *argument)
{
    job *j = argument;
    double *found = allocate(NUMBERS * sizeof *found);
    for (int round = 0; round < ROUNDS; round++) {
        compute(j->decoder, found);
        j->failures += memcmp(found, j->expected, NUMBERS * sizeof *found) != 0;
        randsmap_decoder *own;
        j->failures += randsmap_view(j->image, j->size, &own) != RANDSMAP_OK;
        compute(own, found);
        j->failures += memcmp(found, j->expected, NUMBERS * sizeof *found) != 0;
        randsmap_close(own);
    }
    free(found);
    return NULL;
}

int main(void)
{
    const char *wanted = getenv("RANDSMAP_CPU");
    if (wanted && strcmp(wanted, rk_cpu_name())) {
        printf("this processor has no %s\n", wanted);
        return 77; /* skipped */
    }
    for (int kind = 0; kind < KINDS; kind++) {
        size_t size;
        void *image = example(kind, &size);
        randsmap_decoder *decoder;
        CHECK(randsmap_view(image, size, &decoder) == RANDSMAP_OK);
        double *expected = allocate(NUMBERS * sizeof *expected);
        compute(decoder, expected);
        pthread_t threads[THREADS];
        job jobs[THREADS];
        for (int i = 0; i < THREADS; i++) {
            jobs[i] = (job){decoder, image, size, expected, 0};
            CHECK(!pthread_create(threads + i, NULL, run, jobs + i));
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK(!jobs[i].failures);
        }
        randsmap_close(decoder);
        free(image), free(expected);
    }
    printf("%s: %d of %d checks failed\n", rk_cpu_name(), failures, checks);
    return failures != 0;
}
