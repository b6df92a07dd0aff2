/* A time loop in C. Prints the last field, 16 hexadecimal digits of its bits a cell.
 *
 *     cc loop.c $(randsmap config --cflags --libs) -o loop && ./loop decoder.rsm
 */
#include <inttypes.h>
#include <randsmap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status)
{
    if (status != RANDSMAP_OK) {
        fprintf(stderr, "%s\n", randsmap_strerror(status));
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char **argv)
{
    randsmap_decoder *decoder;
    randsmap_info_t info = {.size = sizeof info};
    if (argc != 2) {
        fprintf(stderr, "usage: %s decoder.rsm\n", argv[0]);
        return EXIT_FAILURE;
    }
    check(randsmap_open(argv[1], &decoder));
    check(randsmap_info(decoder, &info));

    const size_t d = (size_t)info.n_components, M = (size_t)info.n_cells;
    double *z = malloc(d * sizeof *z), *field = malloc(M * sizeof *field);
    double *work = malloc((size_t)randsmap_work(decoder, 1) * sizeof *work);
    if (!z || !field || !work) {
        return EXIT_FAILURE;
    }
    for (size_t j = 0; j < d; j++) {
        z[j] = 0.25;
    }
    for (int step = 0; step < 256; step++) {
        for (size_t j = 0; j < d; j++) {
            z[j] += 1.0 / 1024; /* the reduced model's step */
        }
        check(randsmap_decode(decoder, z, 1, field, work));
    }
    for (size_t i = 0; i < M; i++) {
        uint64_t bits;
        memcpy(&bits, &field[i], sizeof bits);
        printf("%016" PRIx64 "\n", bits);
    }
    free(work);
    free(field);
    free(z);
    randsmap_close(decoder);
    return EXIT_SUCCESS;
}
