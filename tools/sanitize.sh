#!/usr/bin/env bash
# The compiled code under sanitizers, at every instruction level that this machine has.
#
#     CC=clang tools/sanitize.sh                        # C tests; CC: gcc (default) or clang
#     tools/sanitize.sh --python PYTHON                 # GCC: also pytest -m kernels (highest level), with modules built so
#     tools/sanitize.sh --python PYTHON --fuzz SECONDS  # and tools/fuzz.py for so long, shared by the levels
#     tools/sanitize.sh --threads --python PYTHON       # GCC: races, see below
#
# Address and undefined behaviour (division by zero and overflowing conversions of floating-point numbers included) by
# default; with --threads races instead, at the highest level: of C threads that share frozen decoders
# (tests/c/test_threads.c), and of Python's that share kernels, decoders and the pool (tests/test_threads.py). Python, NumPy
# and BLAS are not built so: what they read and write is not seen, what the kernels do is, and the interpreter's locks are
# understood.
# PYTHON is an interpreter with the packages that build and test randsmap (pip install .[dev,test] does it).
set -euo pipefail
cd "$(dirname "$0")/.."
export CC=${CC:-gcc}
kind=address python='' seconds=0
while [ $# -gt 0 ]; do
  case $1 in
    --python) python=$2; shift ;;
    --fuzz) seconds=$2; shift ;;
    --threads) kind=thread ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
for tool in "${CC##* }" meson ninja; do
  command -v "$tool" >/dev/null || { echo "missing: $tool" >&2; exit 2; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [ $kind = address ]; then
  sanitizers=address,undefined libraries='libasan.so libubsan.so libstdc++.so'
  checks="-fsanitize=float-divide-by-zero,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer"
  run=()
else
  sanitizers=thread libraries='libtsan.so'
  checks=-fno-omit-frame-pointer
  # its memory lies at fixed places, which random addresses may take
  run=(setarch "$(uname -m)" -R)
  "${run[@]}" true || { echo "cannot run without random addresses (setarch -R), as the thread sanitizer must" >&2; exit 2; }
fi
options=(-Db_sanitize=$sanitizers -Db_lundef=false "-Dc_args=$checks" "-Dc_link_args=$checks")

meson setup -Dkernel_tests=true -Dbounds_check=true "${options[@]}" "$folder/c" . >/dev/null
meson compile -C "$folder/c"
if [ $kind = address ]; then
  meson test -C "$folder/c" --print-errorlogs
else
  "${run[@]}" meson test -C "$folder/c" --print-errorlogs --suite test_threads
fi

[ -n "$python" ] || exit 0
"$python" -m pip install --quiet --no-deps --no-build-isolation --target "$folder/site" . \
  "${options[@]/#/-Csetup-args=}"
tests=$(realpath tests) tools=$(realpath tools) configuration=$(realpath pyproject.toml)
cd "$folder/site" # away from the checkout, whose randsmap has no kernels
preload=$(for library in $libraries; do $CC -print-file-name="$library"; done | tr '\n' ' ')

# What is not built with them is loaded first. The interpreter frees nothing at its end, and asks for more memory than
# there is where a test wants it; malloc in place of Python's own pools, so that each object has its own bounds.
sanitized() { # LEVEL COMMAND ...
  "${run[@]}" env LD_PRELOAD="$preload" PYTHONMALLOC=malloc PYTHONPATH="$folder/site" RANDSMAP_CPU="$1" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    TSAN_OPTIONS="halt_on_error=1 report_signal_unsafe=0" OPENBLAS_NUM_THREADS=1 "${@:2}"
}
# what a sanitizer says before it ends the process is not captured; without programs in C that have their own allocator
pytest=("$python" -m pytest -q --capture=sys -p no:cacheprovider -c "$configuration" -k "not one_file and not test_a_host")
levels=()
for level in avx512 avx2 baseline; do # the highest first
  found=$(sanitized "$level" "$python" -c \
    'from randsmap._kernels import vecmath; print(vecmath.cpu_level())')
  if [ "$found" = "$level" ]; then levels+=("$level"); else echo "no $level here: not run"; fi
  [ $kind = address ] || [ ${#levels[@]} -eq 0 ] || break # which threads share what is the same at every level
done
for level in "${levels[@]}"; do
  echo "+ -- $level"
  if [ $kind = thread ]; then
    sanitized "$level" "${pytest[@]}" "$tests/test_threads.py"
    continue
  fi
  if [ "$level" = "${levels[0]}" ]; then # the loops of the others have the tests in C, `level` in these, and the inputs below
    sanitized "$level" "${pytest[@]}" -m kernels "$tests"
  fi
  if [ "$seconds" != 0 ]; then
    sanitized "$level" "$python" "$tools/fuzz.py" --seconds $((seconds / ${#levels[@]}))
  fi
done
