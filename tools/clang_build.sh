#!/usr/bin/env bash
# A second compiler: the package built with Clang (CC=clang-14, say) into a folder of its own, without a
# warning, and the tests of the kernels on it.
#
#     [CC=clang] tools/clang_build.sh [PYTHON]
#
# PYTHON is an interpreter with the packages that build and test randsmap (pip install .[dev,test] does it).
set -euo pipefail
cd "$(dirname "$0")/.."
export CC=${CC:-clang}
python=${1:-python3}
command -v "${CC##* }" >/dev/null || { echo "missing: $CC (apt install clang)" >&2; exit 2; }
$CC --version | head -1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$python" -m pip install --quiet --no-deps --no-build-isolation --target "$folder" -Csetup-args=--werror .
tests=$(realpath tests) configuration=$(realpath pyproject.toml)
cd "$folder" # away from the checkout, whose randsmap has no kernels
PYTHONPATH=. "$python" -m pytest -q -p no:cacheprovider -c "$configuration" \
  "$tests"/test_{vecmath,features,distances,neighbors,simplex,bounds,invariants,traffic,crowd,eikonal,jacobian}.py
