#!/usr/bin/env bash
# The C kernels under the address and undefined-behaviour sanitizers, floating-point division by zero and
# overflowing conversions included: the C tests at every level that this machine has.
#
#     CC=clang tools/sanitize.sh              # CC: gcc (default) or clang
#     tools/sanitize.sh --python PYTHON       # GCC: also pytest -m kernels, with extension modules built so
#
# PYTHON is an interpreter with the packages that build and test randsmap (pip install .[dev,test] does it).
set -euo pipefail
cd "$(dirname "$0")/.."
export CC=${CC:-gcc}
checks="-fsanitize=float-divide-by-zero,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer"
for tool in "${CC##* }" meson ninja; do
  command -v "$tool" >/dev/null || { echo "missing: $tool" >&2; exit 2; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

meson setup -Dkernel_tests=true -Dbounds_check=true -Db_sanitize=address,undefined -Db_lundef=false \
  -Dc_args="$checks" -Dc_link_args="$checks" "$folder/c" . >/dev/null
meson compile -C "$folder/c"
meson test -C "$folder/c" --print-errorlogs

[ "${1:-}" = --python ] || exit 0
python=$2
# The address sanitizer would see NumPy's and the interpreter's own allocations: undefined behaviour alone.
"$python" -m pip install --quiet --no-deps --no-build-isolation --target "$folder/site" . \
  -Csetup-args=-Db_sanitize=undefined -Csetup-args=-Db_lundef=false \
  -Csetup-args=-Dc_args="$checks" -Csetup-args=-Dc_link_args="$checks"
tests=$(realpath tests) configuration=$(realpath pyproject.toml)
cd "$folder/site" # away from the checkout, whose randsmap has no kernels
LD_PRELOAD=$($CC -print-file-name=libubsan.so) UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=$folder/site \
  "$python" -m pytest -q -p no:cacheprovider -c "$configuration" -m kernels "$tests"
