/* Images of frozen decoders, whole, cut off, damaged, forged and spliced, without Python: run it under the address
 * sanitizer (tools/sanitize.sh). Every image and array is allocated to the exact length. */
#include "image_examples.h"

/* -- Use of a decoder that may come of a forged image ------------------------------------------------ */
/* Everything the interface does, with arrays of the exact length; returns the status of decoding. */
static int used(const randsmap_decoder *decoder, double *field)
{
    randsmap_info_t info;
    info.size = sizeof info;
    CHECK(randsmap_info(decoder, &info) == RANDSMAP_OK);
    const ptrdiff_t d = (ptrdiff_t)info.n_components, cells = (ptrdiff_t)info.n_cells, q = (ptrdiff_t)info.n_invariants;
    const ptrdiff_t rows = 15, directions = d < 15 ? d : 15;
    if (d > 4096 || cells > 4096)
        return RANDSMAP_OK;
    double *y = allocate((size_t)(rows * d) * sizeof *y), *u = allocate((size_t)cells * sizeof *u);
    double *f = allocate((size_t)(rows * cells) * sizeof *f), *J = allocate((size_t)(rows * cells) * sizeof *J);
    double *m = allocate((size_t)(rows * q) * sizeof *m), *gradient = allocate((size_t)d * sizeof *gradient);
    for (ptrdiff_t i = 0; i < rows * d; i++)
        y[i] = 0.1 * (double)i - 0.5;
    for (ptrdiff_t i = 0; i < cells; i++)
        u[i] = cos((double)i);
    for (ptrdiff_t i = 0; i < rows * q; i++)
        m[i] = i % q == 0 ? 1.5 : 3;
    double *work = allocate((size_t)randsmap_work(decoder, rows) * sizeof *work);
    const int status = randsmap_decode(decoder, y, rows, f, work);
    if (field)
        memcpy(field, f, (size_t)cells * sizeof *f);
    if (q)
        randsmap_decode_values(decoder, y, m, rows, f, work);
    double errors[15];
    randsmap_error(decoder, y, f, rows, 0.5, 0, errors);
    randsmap_error(decoder, y, NULL, rows, 0.99, 1, errors);
    randsmap_encode(decoder, f, rows, y, work);
    randsmap_encode_steps(decoder, f, rows, 3, y, work);
    free(work);
    work = allocate((size_t)randsmap_work(decoder, directions) * sizeof *work);
    randsmap_decode_jvp(decoder, y, y, directions, f, J, work);
    free(work);
    work = allocate((size_t)randsmap_work(decoder, 1) * sizeof *work);
    randsmap_decode(decoder, y, 1, f, work);
    randsmap_vjp(decoder, y, u, gradient, work);
    free(work), free(y), free(u), free(f), free(J), free(m), free(gradient);
    return status;
}

static int opened(const void *image, size_t size, double *field)
{
    randsmap_decoder *decoder;
    int status = randsmap_view(image, size, &decoder);
    CHECK(!decoder == (status != RANDSMAP_OK));
    if (!status)
        status = used(decoder, field);
    randsmap_close(decoder);
    return status;
}

/* A random functional u of the field, and g, its product with the Jacobian J (d, M) */
static void test_vjp(const randsmap_decoder *decoder, const double *y, const double *J, int d, double *u, double *g,
                     double *work)
{
    for (int i = 0; i < M; i++)
        u[i] = uniform(-1, 1);
    CHECK(randsmap_vjp(decoder, y, u, g, work) == RANDSMAP_OK);
    for (int j = 0; j < d; j++) {
        double sum = 0;
        for (int i = 0; i < M; i++)
            sum += u[i] * J[j * M + i];
        CHECK(fabs(sum - g[j]) <= 1e-12);
    }
}

static void test_whole(int kind)
{
    size_t size;
    void *image = example(kind, &size);
    randsmap_decoder *decoder;
    CHECK(randsmap_view(image, size, &decoder) == RANDSMAP_OK);
    double y[2 * D] = {0.3, -0.2, 0.1, 0.4}, f[2 * M], once[M], J[D * M], ahead[M], behind[M], g[D], u[M];
    double *work = allocate((size_t)randsmap_work(decoder, 2) * sizeof *work);
    CHECK(randsmap_decode(decoder, y, 2, f, work) == RANDSMAP_OK);
    CHECK(randsmap_decode(decoder, y + D, 1, once, work) == RANDSMAP_OK);
    CHECK(!memcmp(once, f + M, sizeof once));
    if (kind != 5) {
        double sum = 0;
        for (int i = 0; i < M; i++)
            sum += f[i];
        CHECK(fabs(sum - 1) <= 1e-14 * M);
        CHECK(f[3] == 0.25);
        double m[6] = {2, 4, 3, 6.5}, together[6] = {2, 4, 1, 3, 6.5, 1.5}, *last = m + 3;
        if (kind == TOGETHER)
            memcpy(m, together, sizeof m), last = m + 4;
        CHECK(randsmap_decode_values(decoder, y, m, 2, f, work) == RANDSMAP_ERROR_VALUES);
        *last = 6;
        CHECK(randsmap_decode_values(decoder, y, m, 2, f, work) == RANDSMAP_OK);
        sum = 0;
        for (int i = 0; i < M; i++)
            sum += f[M + i];
        CHECK(fabs(sum - 3) <= 3e-14 * M);
        for (int i = 0; kind == TOGETHER && i < M; i++)
            sum += ramp(i) * f[M + i];
        CHECK(fabs(sum - (kind == TOGETHER ? 4.5 : 3)) <= 4e-14 * M);
    } else {
        CHECK(randsmap_decode_values(decoder, y, y, 1, f, work) == RANDSMAP_ERROR_UNSUPPORTED);
    }
    CHECK(randsmap_decode(decoder, y, 1, once, work) == RANDSMAP_OK);
    CHECK(randsmap_decode_jvp(decoder, y, NULL, D, f, J, work) == RANDSMAP_OK);
    CHECK(!memcmp(once, f, sizeof once));
    for (int j = 0; j < D; j++) { /* central differences; with bounds, but where cells meet theirs */
        double near[D] = {y[0], y[1]};
        const double h = 1e-6;
        near[j] = y[j] + h;
        CHECK(randsmap_decode(decoder, near, 1, ahead, work) == RANDSMAP_OK);
        near[j] = y[j] - h;
        CHECK(randsmap_decode(decoder, near, 1, behind, work) == RANDSMAP_OK);
        for (int i = 0; i < M; i++)
            CHECK(fabs((ahead[i] - behind[i]) / (2 * h) - J[j * M + i]) <= (kind == ENCODED ? 1e-4 : 1e-6)); /* a search ends before its last digits */
    }
    test_vjp(decoder, y, J, D, u, g, work);
    if (has_encoder(kind)) {
        double z[2 * D], far[M];
        CHECK(randsmap_encode(decoder, f, 1, z, work) == RANDSMAP_OK);
        CHECK(fabs(z[0]) < 100 && fabs(z[1]) < 100);
        double before = INFINITY; /* what the encoder's latents leave of the field, and what steps of projection do */
        for (int steps = 0; steps <= 8; steps++) {
            double left = 0;
            CHECK(randsmap_encode_steps(decoder, f, 1, steps, z, work) == RANDSMAP_OK);
            CHECK(randsmap_decode(decoder, z, 1, once, work) == RANDSMAP_OK);
            for (int i = 0; i < M; i++)
                left += (once[i] - f[i]) * (once[i] - f[i]);
            CHECK(left <= before * (1 + 1e-12) + 1e-24);
            before = left;
        }
        CHECK(randsmap_encode(decoder, f, 1, z, work) == RANDSMAP_OK);
        for (int i = 0; i < M; i++)
            far[i] = 1e3 * u[i];
        CHECK(randsmap_encode(decoder, far, 1, z + D, work) == RANDSMAP_OK);
        CHECK(kind == 5 || kind == MONOMIALS || (fabs(z[D]) <= 2 && fabs(z[D + 1]) <= 2)); /* a mean of the values */
        far[3] = NAN;
        CHECK(randsmap_encode(decoder, far, 1, z, work) == RANDSMAP_ERROR_NOT_FINITE);
    } else {
        CHECK(randsmap_encode(decoder, f, 1, g, work) == RANDSMAP_ERROR_UNSUPPORTED);
        CHECK(randsmap_error(decoder, y, f, 1, 0.5, 0, g) == (kind == 1 || kind == BEHIND ? RANDSMAP_OK : RANDSMAP_ERROR_UNSUPPORTED));
        CHECK(randsmap_encode_steps(decoder, f, 1, 2, g, work) == RANDSMAP_ERROR_UNSUPPORTED);
    }
    y[1] = NAN;
    CHECK(randsmap_decode(decoder, y, 2, f, work) == RANDSMAP_ERROR_NOT_FINITE);
    CHECK(randsmap_vjp(decoder, y, u, g, work) == RANDSMAP_ERROR_NOT_FINITE);
    CHECK(randsmap_decode_jvp(decoder, y, NULL, D, f, J, work) == RANDSMAP_ERROR_NOT_FINITE);
    CHECK(randsmap_decode_jvp(decoder, y, NULL, D - 1, f, J, work) == RANDSMAP_ERROR_ARGUMENT);
    CHECK(randsmap_decode(decoder, NULL, 1, f, work) == RANDSMAP_ERROR_ARGUMENT);
    CHECK(randsmap_decode(decoder, NULL, 0, NULL, NULL) == RANDSMAP_OK);
    free(work);
    randsmap_close(decoder);
    free(image);
}

static void test_registration(int kind)
{
    size_t size;
    void *image = example(kind, &size);
    randsmap_decoder *decoder;
    CHECK(randsmap_view(image, size, &decoder) == RANDSMAP_OK);
    enum { MOST_D = 3 };
    const int d = kind == SHIFTED ? 3 : 2;
    double y[2 * MOST_D] = {0.9, 0.3, -0.2, 1.2, 0.1, 0.4}, f[2 * M], once[M], J[MOST_D * M], ahead[M], behind[M], g[MOST_D], u[M];
    double z[MOST_D], *work = allocate((size_t)randsmap_work(decoder, 3) * sizeof *work);
    CHECK(randsmap_decode(decoder, y, 2, f, work) == RANDSMAP_OK);
    CHECK(randsmap_decode(decoder, y + d, 1, once, work) == RANDSMAP_OK);
    CHECK(!memcmp(once, f + M, sizeof once));
    CHECK(randsmap_decode_jvp(decoder, y, NULL, d, once, J, work) == RANDSMAP_OK);
    CHECK(!memcmp(once, f, sizeof once));
    for (int j = 0; j < d; j++) {
        const double h = 1e-7;
        y[j] += h;
        CHECK(randsmap_decode(decoder, y, 1, ahead, work) == RANDSMAP_OK);
        y[j] -= 2 * h;
        CHECK(randsmap_decode(decoder, y, 1, behind, work) == RANDSMAP_OK);
        y[j] += h;
        for (int i = 0; i < M; i++)
            CHECK(fabs((ahead[i] - behind[i]) / (2 * h) - J[j * M + i]) <= 1e-5);
    }
    test_vjp(decoder, y, J, d, u, g, work);
    double sum = 0, m[2] = {1.5, 3};
    for (int i = 0; i < M; i++)
        sum += f[i];
    if (kind == SPREAD) { /* the first coordinate, times the fit's */
        CHECK(fabs(sum - y[0]) <= 1e-13);
        CHECK(randsmap_decode_values(decoder, y, m, 1, once, work) == RANDSMAP_OK);
        for (int i = 0; i < M; i++)
            sum += once[i];
        CHECK(fabs(sum - y[0] - 1.5) <= 1e-13);
    } else {
        CHECK(randsmap_decode_values(decoder, y, m, 1, once, work) == RANDSMAP_ERROR_UNSUPPORTED);
    }
    CHECK(randsmap_encode(decoder, f, 1, z, work) == RANDSMAP_OK);
    CHECK(kind == SHIFTED || fabs(z[0] - y[0]) <= 1e-13);
    f[1] = NAN;
    CHECK(randsmap_encode(decoder, f, 1, z, work) == RANDSMAP_ERROR_NOT_FINITE);
    f[1] = -2;
    CHECK(randsmap_encode(decoder, f, 1, z, work) == (kind == SPREAD ? RANDSMAP_ERROR_FIELD : RANDSMAP_OK));
    y[0] = kind == SPREAD ? NAN : 1e308; /* too many turns to tell where the last one ends */
    CHECK(randsmap_decode(decoder, y, 2, f, work) == (kind == SPREAD ? RANDSMAP_ERROR_NOT_FINITE : RANDSMAP_OK));
    free(work);
    randsmap_close(decoder);
    free(image);
}

/* -- Damage and forgery ------------------------------------------------------------------------------ */
static void test_damaged(int kind)
{
    size_t size;
    unsigned char *image = example(kind, &size);
    for (size_t i = 0; i < size; i++) { /* every byte counts */
        image[i] ^= (unsigned char)(1u << (i % 8));
        CHECK(opened(image, size, NULL) != RANDSMAP_OK);
        image[i] ^= (unsigned char)(1u << (i % 8));
    }
    for (size_t length = 0; length < size; length += length < 3000 ? 1 : 97) { /* exactly so long */
        unsigned char *part = allocate(length);
        memcpy(part, image, length);
        CHECK(opened(part, length, NULL) != RANDSMAP_OK);
        if (length % 8 == 0 && length >= sizeof(rk_image_header)) {
            ((rk_image_header *)(void *)part)->size = length;
            seal(part, length);
            opened(part, length, NULL);
        }
        free(part);
    }
    free(image);
}

/* Values that a forger would try. */
static uint64_t interesting(size_t size)
{
    static const uint64_t values[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 1u << 16, UINT32_MAX, (uint64_t)1 << 32,
        (uint64_t)1 << 60, (uint64_t)1 << 61, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 63, INT64_MAX};
    const size_t n = sizeof values / sizeof *values;
    const uint64_t pick = random_bits() % (n + 4);
    return pick < n ? values[pick] : pick == n ? size : pick == n + 1 ? size / 8 : random_bits() % 100;
}

/* The checksums of the parts of an image, and its own */
static void seal_all(unsigned char *image, size_t size)
{
    const rk_image_header *header = (void *)image;
    const rk_image_section *table = (void *)(image + sizeof *header);
    for (size_t i = 0; i < header->n_sections && sizeof *header + (i + 1) * sizeof *table <= size; i++) {
        const size_t offset = (size_t)table[i].offset;
        if ((table[i].id != RK_PARTS && table[i].id != RK_INPUT) || offset > size || offset % 8 || table[i].columns > (size - offset) / 8)
            continue;
        size_t length, bytes = 8 * (size_t)table[i].columns;
        for (size_t at = 0; at + sizeof *header <= bytes; at += length) {
            length = (size_t)((rk_image_header *)(void *)(image + offset + at))->size;
            if (length % 8 || length < sizeof *header || length > bytes - at)
                break;
            seal_all(image + offset + at, length);
        }
    }
    seal(image, size);
}

/* A section of another image, of its size and content, in the place of one of this one */
static void splice(unsigned char *image, size_t size, const unsigned char *other, size_t other_size)
{
    const rk_image_header *header = (void *)image, *other_header = (const void *)other;
    rk_image_section *to = (rk_image_section *)(void *)(image + sizeof *header) + random_bits() % header->n_sections;
    const rk_image_section *from = (const rk_image_section *)(const void *)(other + sizeof *header);
    from += random_bits() % other_header->n_sections;
    const size_t offset = (size_t)to->offset, room = size - offset, content = (size_t)(8 * from->rows * from->columns);
    const size_t left = other_size - (size_t)from->offset, length = content < left ? content : left;
    memcpy(image + offset, other + from->offset, length < room ? length : room);
    if (random_bits() % 2)
        *to = *from, to->offset = offset;
}

static void test_forged(int kind, int attempts)
{
    size_t size, other_size;
    unsigned char *image = example(kind, &size), *forged = allocate(size);
    unsigned char *other = example((int)(random_bits() % KINDS), &other_size);
    const rk_image_header *header = (void *)image;
    const size_t table = sizeof *header + header->n_sections * sizeof(rk_image_section);
    int accepted = 0;
    for (int attempt = 0; attempt < attempts; attempt++) {
        memcpy(forged, image, size);
        const int spliced = random_bits() % 4 == 0;
        if (spliced)
            splice(forged, size, other, other_size);
        for (uint64_t change = random_bits() % 3 + !spliced; change--;) {
            const uint64_t how = random_bits() % 4;
            if (how == 0) { /* a count, an offset, a number of a section */
                const size_t place = 12 + random_bits() % (table - 12) / 4 * 4;
                const uint64_t value = interesting(size);
                const size_t width = place % 8 || place + 8 > table || random_bits() % 2 ? 4 : 8;
                memcpy(forged + place, &value, width);
            } else if (how == 1) { /* a parameter or an index */
                const uint64_t value = interesting(size);
                memcpy(forged + table + random_bits() % (size - table) / 8 * 8, &value, 8);
            } else if (how == 2) { /* a number that is none */
                static const double odd[] = {NAN, INFINITY, -INFINITY, 0, 1e308, -1e308, 5e-324, -1};
                memcpy(forged + table + random_bits() % (size - table) / 8 * 8, odd + random_bits() % 8, 8);
            } else {
                forged[random_bits() % size] ^= (unsigned char)(1u << random_bits() % 8);
            }
        }
        seal_all(forged, size);
        accepted += opened(forged, size, NULL) == RANDSMAP_OK;
    }
    CHECK(accepted > 0 && accepted < attempts); /* both paths are taken */
    free(image), free(forged), free(other);
}

static void test_statuses(void)
{
    size_t size;
    unsigned char *image = example(0, &size);
    rk_image_header *header = (void *)image;
    randsmap_decoder *decoder;
    CHECK(randsmap_abi() == RANDSMAP_ABI);
    CHECK(randsmap_view(NULL, size, &decoder) == RANDSMAP_ERROR_ARGUMENT);
    CHECK(randsmap_view(image, size, NULL) == RANDSMAP_ERROR_ARGUMENT);
    CHECK(randsmap_view(image + 1, size - 1, &decoder) == RANDSMAP_ERROR_ARGUMENT);
    CHECK(randsmap_open("/no/such/file", &decoder) == RANDSMAP_ERROR_FILE && !decoder);
    header->version = RK_IMAGE_VERSION + 1, seal(image, size);
    CHECK(opened(image, size, NULL) == RANDSMAP_ERROR_VERSION);
    header->version = RK_IMAGE_VERSION, header->byte_order = 0x04030201;
    CHECK(opened(image, size, NULL) == RANDSMAP_ERROR_BYTE_ORDER);
    header->byte_order = RK_IMAGE_ORDER, seal(image, size);
    for (int status = 0; status <= RANDSMAP_ERROR_FIELD + 1; status++)
        CHECK(strlen(randsmap_strerror(status)) > 5);

    /* through a file */
    double from_memory[M], from_file[M];
    CHECK(opened(image, size, from_memory) == RANDSMAP_OK);
    const char *level = getenv("RANDSMAP_CPU"); /* whose tests run beside each other */
    char path[80];
    snprintf(path, sizeof path, "test_image_%s.rsm", level ? level : "any");
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(image, 1, size, file) == size && !fclose(file));
    CHECK(randsmap_open(path, &decoder) == RANDSMAP_OK);
    if (decoder)
        used(decoder, from_file);
    CHECK(!memcmp(from_memory, from_file, sizeof from_file));
    randsmap_close(decoder);
    file = fopen(path, "wb");
    CHECK(file && !fclose(file));
    CHECK(randsmap_open(path, &decoder) == RANDSMAP_ERROR_IMAGE && !decoder);
    remove(path);
    randsmap_close(NULL);

    randsmap_info_t info;
    struct { size_t size; int64_t d; } earlier = {sizeof earlier, -1};
    CHECK(randsmap_view(image, size, &decoder) == RANDSMAP_OK);
    info.size = sizeof info;
    CHECK(randsmap_info(decoder, &info) == RANDSMAP_OK && info.n_cells == M && info.n_features == P);
    CHECK(randsmap_info(decoder, (randsmap_info_t *)(void *)&earlier) == RANDSMAP_OK);
    CHECK(earlier.d == D && earlier.size == sizeof earlier);
    info.size = 0;
    CHECK(randsmap_info(decoder, &info) == RANDSMAP_ERROR_ARGUMENT);
    randsmap_close(decoder);
    free(image);
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("RANDSMAP_CPU");
    const int attempts = argc > 1 ? atoi(argv[1]) : 1000;
    if (wanted && strcmp(wanted, rk_cpu_name())) {
        printf("this processor has no %s\n", wanted);
        return 77; /* skipped */
    }
    test_statuses();
    for (int kind = 0; kind < KINDS; kind++) {
        (kind >= SHIFTED ? test_registration : test_whole)(kind);
        test_damaged(kind);
    }
    for (const char *c = rk_cpu_name(); *c; c++) /* other forgeries at each level */
        for (int i = *c; i; i--)
            random_bits();
    for (int kind = 0; kind < KINDS; kind++)
        test_forged(kind, attempts);
    printf("%s: %d of %d checks failed\n", rk_cpu_name(), failures, checks);
    return failures != 0;
}
