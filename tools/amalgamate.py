#!/usr/bin/env python3
"""Write the C library of frozen decoders as one file, which needs randsmap.h beside it and no build system.

    python tools/amalgamate.py randsmap.c

It is compiled for one instruction level, that of the compiler's flags, and with compilers that have no vector
extensions works on single doubles: any C99 compiler will do.
"""

import re
import sys
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent / "src" / "randsmap" / "_kernels"
FILES = ("dispatch", "features", "gradients", "distances", "decode", "projection", "bounds", "blend", "simplex")
FILES += ("registration", "image", "runtime")
START = """\
/* randsmap: decoded fields in a simulation loop. One file of the C library, made by tools/amalgamate.py; its interface
 * is randsmap.h.
 *
 *     cc -std=c99 -O3 -march=native -fopenmp-simd -fno-math-errno -fno-trapping-math -c randsmap.c
 *
 * All flags but the first may be left out: they are for speed.
 *
 * Sums are compensated: not with -ffast-math, whose parts do nothing here. With GCC in its own dialect (-std=gnu11) and
 * FMA only with -ffp-contract=off, which -std=c99 implies.
 *
@LICENSE@
 */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L /* mmap */
#endif
#ifdef __FAST_MATH__
#error "randsmap.c cannot be compiled with -ffast-math"
#endif
typedef char randsmap_c_cannot_be_compiled_with_fsingle_precision_constant[sizeof(0.1) == sizeof(double) ? 1 : -1];
#if defined(__clang__) /* what parts of -ffast-math allow, no macro tells of: it is taken back here */
#pragma float_control(precise, on)
#elif defined(__GNUC__)
#pragma GCC optimize("no-unsafe-math-optimizations", "no-finite-math-only", "signed-zeros", "no-associative-math", \
                     "no-reciprocal-math")
#endif
#if defined(__clang__) || !defined(__GNUC__)
#pragma STDC FP_CONTRACT OFF
#endif
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunknown-pragmas" /* hints for vectorisation, which -fopenmp-simd reads */
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define RK_LEVEL baseline
"""


def local_names(text: str) -> set[str]:
    """Functions, types and enumerators that belong to one C file."""
    names = set(re.findall(r"^(?:static|RK_INLINE) [^;={}]*?\b(\w+)\(", text, flags=re.MULTILINE))
    names |= set(re.findall(r"^\} (\w+);", text, flags=re.MULTILINE))
    for body in re.findall(r"^enum \{([^}]*)\}", text, flags=re.MULTILINE):
        names |= set(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)))
    return names


def inlined(text: str, seen: set[str]) -> str:
    """The text with the headers of this project in the place of their first inclusion."""

    def header(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return inlined((KERNELS / name).read_text(), seen)

    text = re.sub(r'^#include "([\w.]+)"\n', header, text, flags=re.MULTILINE)
    return text.replace("#include <randsmap.h>", '#include "randsmap.h"')


def amalgamated() -> str:
    """The one file."""
    licence = (KERNELS.parents[2] / "LICENSE").read_text().strip().splitlines()
    seen: set[str] = set()
    taken: set[str] = set()
    parts = [START.replace("@LICENSE@", "\n".join(f" * {line}".rstrip() for line in licence))]
    for name in FILES:
        text = (KERNELS / f"{name}.c").read_text()
        names = local_names(text)
        for local in names & taken:  # but not a member of a structure
            text = re.sub(rf"(?<![.>\w#]){local}\b", f"{name}_{local}", text)
        taken |= names
        macros = sorted(set(re.findall(r"^#define (\w+)", text, flags=re.MULTILINE)) - {"RK_MAPS_FILES"})
        parts += [f"\n/* ==== {name}.c ==== */\n", inlined(text, seen), *(f"#undef {macro}\n" for macro in macros)]
    return "".join(parts)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    Path(sys.argv[1]).write_text(amalgamated())
