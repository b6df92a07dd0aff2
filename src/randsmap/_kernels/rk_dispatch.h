/* Choice of the instruction level when a module is loaded, and for a linear map when it is opened (CPUID; no ifunc,
 * no target_clones).
 *
 * A kernel header declares `typedef struct {...} rk_NAME_table;` and then RK_TABLES(NAME). Its C file
 * is compiled once per level with -DRK_LEVEL=<level> and defines
 *     const rk_NAME_table RK_TABLE(NAME) = {...};
 * and the .pyx keeps the pointer that rk_NAME_select() returns. */
#ifndef RK_DISPATCH_H
#define RK_DISPATCH_H
#include <float.h>
#include <stddef.h>
#include <stdint.h>

#ifndef DBL_TRUE_MIN /* of C11 */
#define DBL_TRUE_MIN 0x1p-1074
#endif

/* Without vector extensions registers are single doubles: plain C99, which -DRK_PLAIN_C asks for too. */
#if defined(__GNUC__) && !defined(RK_PLAIN_C)
#define RK_EXTENSIONS 1
#define RK_INLINE static inline __attribute__((always_inline))
#define RK_NOINLINE __attribute__((noinline))
#define RK_PREFETCH_TO_WRITE(p) __builtin_prefetch(p, 1)
#define RK_PREFETCH(p) __builtin_prefetch(p, 0, 2) /* to the second cache */
#define RK_TYPEOF(x) __typeof__(x)
#else
#define RK_INLINE static inline
#define RK_NOINLINE
#define RK_PREFETCH(p) ((void)(p))
#define RK_PREFETCH_TO_WRITE(p) ((void)(p))
#define RK_TYPEOF(x) double
#endif

enum rk_cpu { RK_CPU_BASELINE = 0, RK_CPU_AVX2 = 1, RK_CPU_AVX512 = 2 };

/* Highest level this processor and the environment variable RANDSMAP_CPU
 * (baseline | avx2 | avx512) allow; an unknown value of the variable is ignored. */
int rk_cpu_level(void);
const char *rk_cpu_name(void);

#define RK_CONCAT_(kernel, level) rk_##kernel##_##level
#define RK_CONCAT(kernel, level) RK_CONCAT_(kernel, level)
#define RK_TABLE(kernel) RK_CONCAT(kernel, RK_LEVEL)

#ifdef RK_X86_LEVELS
#define RK_TABLES(kernel)                                                                          \
    extern const rk_##kernel##_table rk_##kernel##_baseline, rk_##kernel##_avx2,                   \
        rk_##kernel##_avx512;                                                                      \
    static inline const rk_##kernel##_table *rk_##kernel##_select(void)                            \
    {                                                                                              \
        switch (rk_cpu_level()) {                                                                  \
        case RK_CPU_AVX512: return &rk_##kernel##_avx512;                                          \
        case RK_CPU_AVX2: return &rk_##kernel##_avx2;                                              \
        default: return &rk_##kernel##_baseline;                                                   \
        }                                                                                          \
    }
#else
#define RK_TABLES(kernel)                                                                          \
    extern const rk_##kernel##_table rk_##kernel##_baseline;                                       \
    static inline const rk_##kernel##_table *rk_##kernel##_select(void)                            \
    {                                                                                              \
        return &rk_##kernel##_baseline;                                                            \
    }
#endif

/* Checks of the debug build (meson option bounds_check). */
#ifdef RK_DEBUG
#include <stdio.h>
#include <stdlib.h>
#define RK_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "randsmap: %s:%d: %s\n", __FILE__, __LINE__, #cond);                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#else
#define RK_ASSERT(cond) ((void)0)
#endif

#endif
