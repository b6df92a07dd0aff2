/* A frozen decoder as a unit for co-simulation, FMI 3.0 (fmi-standard.org): the shared library is the binary of the
 * unit, and the image, resources/TOKEN.rsm, all that units differ in. So exporting one needs no compiler.
 *
 * The unit is a function of its inputs without a state: a step moves the time, and the field is decoded when it is asked
 * for, if the inputs have changed. Types and the order of arguments are those of the standard; a boolean is C's bool. */
#include "rk_image.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { OK, WARNING, DISCARD, ERROR }; /* statuses; after DISCARD a unit goes on with other inputs */
/* The variables, as the model description numbers them. VALUES are those of the invariants; NaN: those of the fit. */
enum { LATENTS, FIELD, TIME, VALUES, N_VARIABLES };

typedef void (*log_message)(void *environment, int status, const char *category, const char *message);

typedef struct {
    randsmap_decoder *decoder, *step; /* step: from latents to those of the next step; NULL: they are an input */
    ptrdiff_t size[N_VARIABLES];
    double *value[N_VARIABLES], *next, *fit, *values, *work; /* fit: VALUES of the fit; values: those that a field is decoded with */
    bool given, decoded; /* some of VALUES are numbers; the field belongs to the present inputs */
    void *environment;
    log_message log;
} unit;

static int report(const unit *u, int status, const char *what)
{
    if (u && u->log)
        u->log(u->environment, status, "logStatusError", what);
    return status;
}

static int refuse(void *instance, const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "%s: this unit has nothing of the kind", name);
    return report(instance, ERROR, text);
}

/* -- A unit's life -------------------------------------------------------------------------------------------------- */
RANDSMAP_API const char *fmi3GetVersion(void)
{
    return "3.0";
}

RANDSMAP_API void fmi3FreeInstance(void *instance)
{
    unit *u = instance;
    if (!u)
        return;
    randsmap_close(u->decoder);
    randsmap_close(u->step);
    free(u->value[0]);
    free(u);
}

static void start(unit *u)
{
    for (int i = 0; i < N_VARIABLES; i++)
        for (ptrdiff_t k = 0; k < u->size[i]; k++)
            u->value[i][k] = i == VALUES ? NAN : 0;
    u->given = u->decoded = false;
}

static int open_image(const char *folder, const char *token, const char *ending, randsmap_decoder **out)
{
    const size_t length = strlen(folder), size = length + strlen(token) + strlen(ending) + sizeof "/";
    char *path = malloc(size);
    if (!path)
        return RANDSMAP_ERROR_MEMORY;
    const char *separator = length && (folder[length - 1] == '/' || folder[length - 1] == '\\') ? "" : "/";
    snprintf(path, size, "%s%s%s%s", folder, separator, token, ending);
    const int status = randsmap_open(path, out);
    free(path);
    return status;
}

static int open_unit(unit *u, const char *token, const char *folder)
{
    int status = open_image(folder, token, ".rsm", &u->decoder);
    if (status)
        return status;
    randsmap_info_t info = {sizeof info, 0, 0, 0, 0, 0, 0}, of_step = info;
    status = randsmap_info(u->decoder, &info);
    ptrdiff_t work = randsmap_work(u->decoder, 1);
    const int no_step = open_image(folder, token, ".step.rsm", &u->step);
    if (!no_step) {
        randsmap_info(u->step, &of_step);
        if (of_step.n_components != info.n_components || of_step.n_cells != info.n_components)
            return RANDSMAP_ERROR_IMAGE;
        work += randsmap_work(u->step, 1);
    } else if (no_step != RANDSMAP_ERROR_FILE) {
        return no_step;
    }
    u->size[LATENTS] = info.n_components;
    u->size[FIELD] = info.n_cells;
    u->size[TIME] = 1;
    u->size[VALUES] = info.n_invariants;
    ptrdiff_t numbers = work + u->size[LATENTS] + 2 * u->size[VALUES];
    for (int i = 0; i < N_VARIABLES; i++)
        numbers += u->size[i];
    double *memory = status ? NULL : malloc((size_t)numbers * sizeof *memory);
    if (!memory)
        return status ? status : RANDSMAP_ERROR_MEMORY;
    for (int i = 0; i < N_VARIABLES; memory += u->size[i++])
        u->value[i] = memory;
    u->next = memory, u->fit = u->next + u->size[LATENTS];
    u->values = u->fit + u->size[VALUES], u->work = u->values + u->size[VALUES];
    if (u->size[VALUES])
        rk_values_of_fit(u->decoder, u->fit, u->work);
    start(u);
    return RANDSMAP_OK;
}

RANDSMAP_API void *fmi3InstantiateCoSimulation(const char *name, const char *token, const char *folder, bool visible,
                                               bool logging, bool event_mode, bool early_return,
                                               const uint32_t *intermediate, size_t n, void *environment,
                                               log_message log, void *update)
{
    unit *u = calloc(1, sizeof *u);
    if (!u)
        return NULL;
    u->environment = environment;
    u->log = log;
    int status = token && folder ? open_unit(u, token, folder) : RANDSMAP_ERROR_ARGUMENT;
    if (!status)
        return u;
    report(u, ERROR, randsmap_strerror(status));
    fmi3FreeInstance(u);
    return NULL;
}

RANDSMAP_API void *fmi3InstantiateModelExchange(const char *name, const char *token, const char *folder, bool visible,
                                                bool logging, void *environment, log_message log)
{
    return NULL;
}

RANDSMAP_API void *fmi3InstantiateScheduledExecution(const char *name, const char *token, const char *folder,
                                                     bool visible, bool logging, void *environment, log_message log,
                                                     void *update, void *lock, void *unlock)
{
    return NULL;
}

RANDSMAP_API int fmi3SetDebugLogging(void *instance, bool on, size_t n, const char *const *categories)
{
    return instance ? OK : ERROR;
}

RANDSMAP_API int fmi3EnterInitializationMode(void *instance, bool tolerant, double tolerance, double first, bool ends,
                                             double last)
{
    unit *u = instance;
    if (!u)
        return ERROR;
    *u->value[TIME] = first;
    return OK;
}

RANDSMAP_API int fmi3ExitInitializationMode(void *instance)
{
    return instance ? OK : ERROR;
}

RANDSMAP_API int fmi3Terminate(void *instance)
{
    return instance ? OK : ERROR;
}

RANDSMAP_API int fmi3Reset(void *instance)
{
    if (!instance)
        return ERROR;
    start(instance);
    return OK;
}

RANDSMAP_API int fmi3DoStep(void *instance, double time, double step, bool no_return, bool *event, bool *terminate,
                            bool *early, double *reached)
{
    unit *u = instance;
    if (!u || !event || !terminate || !early || !reached)
        return ERROR;
    *event = *terminate = *early = false;
    *reached = time;
    if (!(step >= 0 && time + step < INFINITY))
        return report(u, ERROR, "fmi3DoStep: the step is negative, or not finite");
    if (u->step && step > 0) {
        const int status = randsmap_decode(u->step, u->value[LATENTS], 1, u->next, u->work);
        if (status)
            return report(u, DISCARD, randsmap_strerror(status));
        memcpy(u->value[LATENTS], u->next, (size_t)u->size[LATENTS] * sizeof *u->next);
        u->decoded = false;
    }
    *reached = *u->value[TIME] = time + step;
    return OK;
}

/* -- Variables ------------------------------------------------------------------------------------------------------ */
static int decode(unit *u)
{
    if (u->decoded)
        return OK;
    const double *y = u->value[LATENTS];
    int status = RANDSMAP_OK;
    for (ptrdiff_t k = 0; u->given && k < u->size[VALUES]; k++) {
        u->values[k] = isnan(u->value[VALUES][k]) ? u->fit[k] : u->value[VALUES][k];
        if (isnan(u->values[k])) /* the fit has no values: they vary */
            status = RANDSMAP_ERROR_VALUES;
    }
    if (!status)
        status = u->given ? randsmap_decode_values(u->decoder, y, u->values, 1, u->value[FIELD], u->work)
                          : randsmap_decode(u->decoder, y, 1, u->value[FIELD], u->work);
    u->decoded = !status;
    return status ? report(u, DISCARD, randsmap_strerror(status)) : OK;
}

/* True if all these variables exist, are inputs if they are set, and have this number of values. */
static bool fits(const unit *u, const uint32_t *variables, size_t n, bool inputs, const double *values, size_t n_values)
{
    size_t numbers = 0;
    if (!u || (n && !variables) || (n_values && !values))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (variables[i] >= N_VARIABLES || (inputs && variables[i] != LATENTS && variables[i] != VALUES))
            return false;
        numbers += (size_t)u->size[variables[i]];
    }
    return numbers == n_values;
}

RANDSMAP_API int fmi3GetFloat64(void *instance, const uint32_t *variables, size_t n, double *values, size_t n_values)
{
    unit *u = instance;
    if (!fits(u, variables, n, false, values, n_values))
        return report(u, ERROR, "fmi3GetFloat64: no such variables, or not as many numbers as they have");
    for (size_t i = 0; i < n; values += u->size[variables[i++]]) {
        int status = variables[i] == FIELD ? decode(u) : OK;
        if (status)
            return status;
        memcpy(values, u->value[variables[i]], (size_t)u->size[variables[i]] * sizeof *values);
    }
    return OK;
}

RANDSMAP_API int fmi3SetFloat64(void *instance, const uint32_t *variables, size_t n, const double *values,
                                size_t n_values)
{
    unit *u = instance;
    if (!fits(u, variables, n, true, values, n_values))
        return report(u, ERROR, "fmi3SetFloat64: no such inputs, or not as many numbers as they have");
    for (size_t i = 0; i < n; values += u->size[variables[i++]]) {
        memcpy(u->value[variables[i]], values, (size_t)u->size[variables[i]] * sizeof *values);
    }
    u->given = false;
    for (ptrdiff_t k = 0; k < u->size[VALUES]; k++)
        u->given |= !isnan(u->value[VALUES][k]);
    u->decoded = false;
    return OK;
}

#define DERIVATIVES "there are those of the field by the latents alone, with a seed and a result of their sizes"
static bool is_derivative(const unit *u, const uint32_t *of, size_t n_of, const uint32_t *in, size_t n_in, int seeded,
                          const double *seed, size_t n_seed, const double *out, size_t n_out)
{
    return u && of && in && seed && out && n_of == 1 && n_in == 1 && *of == FIELD && *in == LATENTS &&
           (ptrdiff_t)n_seed == u->size[seeded] && (ptrdiff_t)n_out == u->size[LATENTS + FIELD - seeded];
}

/* With bounds, derivatives depend on the values of the invariants, here those of the fit; otherwise they do not. */
static int derived(const unit *u, int status)
{
    const bool bounds = rk_values_matter(u->decoder);
    if (bounds && u->given)
        return report(u, DISCARD, "with bounds, shifts or quantiles there are derivatives at the fit's invariant_values alone");
    return !status || (status == RANDSMAP_ERROR_VALUES && !bounds) ? OK : report(u, DISCARD, randsmap_strerror(status));
}

RANDSMAP_API int fmi3GetDirectionalDerivative(void *instance, const uint32_t *of, size_t n_of, const uint32_t *in,
                                              size_t n_in, const double *seed, size_t n_seed, double *out, size_t n_out)
{
    unit *u = instance;
    if (!is_derivative(u, of, n_of, in, n_in, LATENTS, seed, n_seed, out, n_out))
        return report(u, ERROR, "fmi3GetDirectionalDerivative: " DERIVATIVES);
    u->decoded = false; /* a field's bits are those of randsmap_decode */
    return derived(u, randsmap_decode_jvp(u->decoder, u->value[LATENTS], seed, 1, u->value[FIELD], out, u->work));
}

RANDSMAP_API int fmi3GetAdjointDerivative(void *instance, const uint32_t *of, size_t n_of, const uint32_t *in,
                                          size_t n_in, const double *seed, size_t n_seed, double *out, size_t n_out)
{
    unit *u = instance;
    if (!is_derivative(u, of, n_of, in, n_in, FIELD, seed, n_seed, out, n_out))
        return report(u, ERROR, "fmi3GetAdjointDerivative: " DERIVATIVES);
    return derived(u, randsmap_vjp(u->decoder, u->value[LATENTS], seed, out, u->work));
}

/* -- What this unit has not, and importers look up all the same ----------------------------------------------------- */
#define NONE(name, ...)                        \
    RANDSMAP_API int fmi3##name(__VA_ARGS__)   \
    {                                          \
        return refuse(instance, "fmi3" #name); \
    }
#define NO_VARIABLES(type, number)                                                                 \
    RANDSMAP_API int fmi3Get##type(void *instance, const uint32_t *of, size_t n, number *x, size_t n_x) \
    {                                                                                              \
        return n ? refuse(instance, "fmi3Get" #type) : OK;                                         \
    }                                                                                              \
    RANDSMAP_API int fmi3Set##type(void *instance, const uint32_t *of, size_t n, const number *x, size_t n_x) \
    {                                                                                              \
        return n ? refuse(instance, "fmi3Set" #type) : OK;                                         \
    }
NO_VARIABLES(Float32, float)
NO_VARIABLES(Int8, int8_t)
NO_VARIABLES(UInt8, uint8_t)
NO_VARIABLES(Int16, int16_t)
NO_VARIABLES(UInt16, uint16_t)
NO_VARIABLES(Int32, int32_t)
NO_VARIABLES(UInt32, uint32_t)
NO_VARIABLES(Int64, int64_t)
NO_VARIABLES(UInt64, uint64_t)
NO_VARIABLES(Boolean, bool)
NO_VARIABLES(String, char *)
NONE(GetBinary, void *instance, const uint32_t *of, size_t n, size_t *sizes, const uint8_t **x, size_t n_x)
NONE(SetBinary, void *instance, const uint32_t *of, size_t n, const size_t *sizes, const uint8_t *const *x, size_t n_x)
NONE(GetClock, void *instance, const uint32_t *of, size_t n, bool *x)
NONE(SetClock, void *instance, const uint32_t *of, size_t n, const bool *x)
NONE(GetNumberOfVariableDependencies, void *instance, uint32_t of, size_t *n)
NONE(GetVariableDependencies, void *instance, uint32_t of, size_t *elements, uint32_t *in, size_t *in_elements,
     int *kinds, size_t n)
NONE(GetFMUState, void *instance, void **state)
NONE(SetFMUState, void *instance, void *state)
NONE(FreeFMUState, void *instance, void **state)
NONE(SerializedFMUStateSize, void *instance, void *state, size_t *size)
NONE(SerializeFMUState, void *instance, void *state, uint8_t *bytes, size_t size)
NONE(DeserializeFMUState, void *instance, const uint8_t *bytes, size_t size, void **state)
NONE(EnterConfigurationMode, void *instance)
NONE(ExitConfigurationMode, void *instance)
NONE(EnterEventMode, void *instance)
NONE(EnterStepMode, void *instance)
NONE(GetIntervalDecimal, void *instance, const uint32_t *of, size_t n, double *intervals, int *qualifiers)
NONE(GetIntervalFraction, void *instance, const uint32_t *of, size_t n, uint64_t *counters, uint64_t *resolutions,
     int *qualifiers)
NONE(GetShiftDecimal, void *instance, const uint32_t *of, size_t n, double *shifts)
NONE(GetShiftFraction, void *instance, const uint32_t *of, size_t n, uint64_t *counters, uint64_t *resolutions)
NONE(SetIntervalDecimal, void *instance, const uint32_t *of, size_t n, const double *intervals)
NONE(SetIntervalFraction, void *instance, const uint32_t *of, size_t n, const uint64_t *counters,
     const uint64_t *resolutions)
NONE(SetShiftDecimal, void *instance, const uint32_t *of, size_t n, const double *shifts)
NONE(SetShiftFraction, void *instance, const uint32_t *of, size_t n, const uint64_t *counters,
     const uint64_t *resolutions)
NONE(EvaluateDiscreteStates, void *instance)
NONE(UpdateDiscreteStates, void *instance, bool *again, bool *terminate, bool *nominals, bool *states, bool *next,
     double *time)
NONE(EnterContinuousTimeMode, void *instance)
NONE(CompletedIntegratorStep, void *instance, bool no_return, bool *event, bool *terminate)
NONE(SetTime, void *instance, double time)
NONE(SetContinuousStates, void *instance, const double *x, size_t n)
NONE(GetContinuousStateDerivatives, void *instance, double *x, size_t n)
NONE(GetEventIndicators, void *instance, double *x, size_t n)
NONE(GetContinuousStates, void *instance, double *x, size_t n)
NONE(GetNominalsOfContinuousStates, void *instance, double *x, size_t n)
NONE(GetNumberOfEventIndicators, void *instance, size_t *n)
NONE(GetNumberOfContinuousStates, void *instance, size_t *n)
NONE(GetOutputDerivatives, void *instance, const uint32_t *of, size_t n, const int *orders, double *x, size_t n_x)
NONE(ActivateModelPartition, void *instance, uint32_t clock, double time)
