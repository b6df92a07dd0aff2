/* Units of FMI of images on disk, used as an importer may use them, well and badly: run it under the address sanitizer
 * (tools/sanitize.sh). Every array is allocated to the exact length. */
#include "image_examples.h"
#include "fmu.c"

enum { INVALID = 7 }; /* a variable that no unit has */

static const char *token(void)
{
    static char name[64];
    const char *level = getenv("RANDSMAP_CPU"); /* whose tests run beside each other */
    snprintf(name, sizeof name, "test_fmu_%s", level ? level : "any");
    return name;
}

static unit *made(int kind)
{
    size_t size;
    void *image = example(kind, &size);
    char path[80];
    snprintf(path, sizeof path, "%s.rsm", token());
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(image, 1, size, file) != size || fclose(file))
        abort();
    unit *u = fmi3InstantiateCoSimulation("unit", token(), ".", false, false, false, false, NULL, 0, NULL, NULL, NULL);
    CHECK(u);
    remove(path);
    free(image);
    return u;
}

static void test_steps(int kind)
{
    unit *u = made(kind);
    const uint32_t latents = LATENTS, field = FIELD, time = TIME, values = VALUES, invalid = INVALID;
    const ptrdiff_t d = u->size[LATENTS], cells = u->size[FIELD], q = u->size[VALUES];
    double *y = allocate((size_t)d * sizeof *y), *f = allocate((size_t)cells * sizeof *f), now, reached;
    double *g = allocate((size_t)cells * sizeof *g), *m = allocate((size_t)q * sizeof *m);
    bool event, terminate, early;
    for (ptrdiff_t i = 0; i < d; i++)
        y[i] = kind == SPREAD && i == 0 ? 1 : 0.1 * (double)i - 0.05; /* the fit's mass, where it is a latent */
    CHECK(fmi3EnterInitializationMode(u, false, 0, 0.5, false, 0) == OK && fmi3ExitInitializationMode(u) == OK);
    CHECK(fmi3SetFloat64(u, &latents, 1, y, (size_t)d) == OK);
    CHECK(fmi3DoStep(u, 0.5, 0.25, false, &event, &terminate, &early, &reached) == OK && reached == 0.75);
    CHECK(fmi3DoStep(u, 0.5, -1, false, &event, &terminate, &early, &reached) == ERROR);
    CHECK(fmi3GetFloat64(u, &time, 1, &now, 1) == OK && now == 0.75);
    const int decoded = fmi3GetFloat64(u, &field, 1, f, (size_t)cells);
    CHECK(decoded == OK || decoded == DISCARD);
    for (ptrdiff_t given = 0; given < q; given++) { /* each alone, of the values of the fit */
        for (ptrdiff_t k = 0; k < q; k++)
            m[k] = k == given ? u->fit[k] : NAN;
        CHECK(fmi3SetFloat64(u, &values, 1, m, (size_t)q) == OK);
        CHECK(fmi3GetFloat64(u, &field, 1, g, (size_t)cells) == decoded);
        for (ptrdiff_t i = 0; decoded == OK && i < cells; i++)
            CHECK(fabs(f[i] - g[i]) <= 1e-12);
        const int derived = fmi3GetDirectionalDerivative(u, &field, 1, &latents, 1, y, (size_t)d, g, (size_t)cells);
        CHECK(derived == (u->decoder->projection.bounds ? DISCARD : OK));
    }
    const uint32_t both[] = {FIELD, INVALID};
    /* wrong references, wrong sizes, and nothing where something is expected */
    CHECK(fmi3GetFloat64(u, &invalid, 1, f, 1) == ERROR && fmi3GetFloat64(u, both, 2, f, (size_t)cells) == ERROR);
    CHECK(fmi3GetFloat64(u, &field, 1, f, (size_t)cells - 1) == ERROR && fmi3SetFloat64(u, &field, 1, f, (size_t)cells) == ERROR);
    CHECK(fmi3GetFloat64(u, NULL, 1, f, (size_t)cells) == ERROR && fmi3GetFloat64(u, &field, 1, NULL, (size_t)cells) == ERROR);
    CHECK(fmi3SetFloat64(u, NULL, 1, y, (size_t)d) == ERROR && fmi3SetFloat64(u, &latents, 1, NULL, (size_t)d) == ERROR);
    CHECK(fmi3GetFloat64(u, NULL, 0, NULL, 0) == OK && fmi3SetFloat64(u, NULL, 0, NULL, 0) == OK);
    CHECK(fmi3GetFloat64(NULL, &field, 1, f, (size_t)cells) == ERROR && fmi3Reset(NULL) == ERROR);
    for (int i = 0; i < 4; i++) {
        const uint32_t *of = i == 0 ? NULL : &field, *in = i == 1 ? NULL : &latents;
        double *v = i == 2 ? NULL : y, *u_of_f = i == 2 ? NULL : f, *out = i == 3 ? NULL : g;
        CHECK(fmi3GetDirectionalDerivative(u, of, 1, in, 1, v, (size_t)d, out, (size_t)cells) == ERROR);
        CHECK(fmi3GetAdjointDerivative(u, of, 1, in, 1, u_of_f, (size_t)cells, out ? y : NULL, (size_t)d) == ERROR);
    }
    CHECK(fmi3GetAdjointDerivative(u, &field, 1, &values, 1, f, (size_t)cells, y, (size_t)d) == ERROR);
    CHECK(fmi3Reset(u) == OK && fmi3Terminate(u) == OK);
    for (ptrdiff_t i = 0; i < cells; i++)
        f[i] = 1;
    CHECK(fmi3GetAdjointDerivative(u, &field, 1, &latents, 1, f, (size_t)cells, y, (size_t)d) != ERROR);
    fmi3FreeInstance(u);
    free(y), free(f), free(g), free(m);
}

int main(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        test_steps(kind);
    CHECK(!fmi3InstantiateCoSimulation("unit", token(), "", false, false, false, false, NULL, 0, NULL, NULL, NULL));
    CHECK(!fmi3InstantiateCoSimulation("unit", NULL, NULL, false, false, false, false, NULL, 0, NULL, NULL, NULL));
    fmi3FreeInstance(NULL);
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
