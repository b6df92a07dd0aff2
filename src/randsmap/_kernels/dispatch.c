#include "rk_dispatch.h"
#include "rk_vecmath_inline.h"
#include <stdlib.h>
#include <string.h>

static int detected(void)
{
#ifdef RK_X86_LEVELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
            && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("avx512cd"))
            return RK_CPU_AVX512;
        return RK_CPU_AVX2;
    }
#endif
    return RK_CPU_BASELINE;
}

int rk_cpu_level(void)
{
    int level = detected();
    const char *wish = getenv("RANDSMAP_CPU");
    if (wish) {
        int limit = level;
        if (!strcmp(wish, "baseline")) limit = RK_CPU_BASELINE;
        else if (!strcmp(wish, "avx2")) limit = RK_CPU_AVX2;
        if (limit < level) level = limit;
    }
    return level;
}

const char *rk_cpu_name(void)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    return names[rk_cpu_level()];
}

const double rk_exp_bottom = -746., rk_exp_top = 710.;
