/* One potential at a time: in one lane the chains are shorter than in eight of which seven are idle. */
#define RK_SINGLE_LANE
#include "rk_eikonal.h"

const rk_eikonal_table RK_TABLE(eikonal) = {.lanes = RK_LANES, .solve = solve};
