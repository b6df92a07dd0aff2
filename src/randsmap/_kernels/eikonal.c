/* One potential at a time: one lane is faster than eight of which seven are idle. */
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=256") /* columns are short: long vectors leave long tails */
#endif
#define RK_WIDTH_MAX 1
#include "rk_eikonal.h"

const rk_eikonal_table RK_TABLE(eikonal) = {.lanes = RK_LANES, .solve = solve};
