#!/bin/sh
# test_cuda_host.sh - the plain GPU kernels without a GPU: compiled for the CPU, run as fibers by
# a libcuda.so.1 of our own, judged by the same oracle as on the GPU.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
build=${BUILD:-build} passed=0 failed=0
folder=$build/cuda_host
flags="-std=c++17 -O1 -fPIC -ffp-contract=off -w"
include="-Itests/cuda_host -Iinclude -Isrc -include tests/cuda_host/cuda_host.h"

skip() {
    echo "skipped: $*"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

make_library() {
    mkdir -p "$folder" || return 1
    for source in src/cuda/plain*.cu tests/cuda_host/cuda_host.cpp; do
        # shellcheck disable=SC2086
        g++ $flags $include -x c++ -c "$source" -o "$folder/$(basename "$source").o" || return 1
    done
    g++ -shared -o "$folder/libcuda.so.1" "$folder"/*.o -lm
}

check() { # PROGRAM ARGUMENTS...
    program=$1
    shift
    if LD_LIBRARY_PATH=$folder "$build/tests/$program" "$@" >"$folder/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$program $*:"
        cat "$folder/log"
    fi
}

[ "$build" = build ] || skip "fibers are not for sanitizers"
command -v g++ >/dev/null 2>&1 || skip "there is no g++"
LD_LIBRARY_PATH= "$build/tests/test_cuda" opening 2>&1 | grep -q '^1 passed' || skip "no test_cuda"
[ -n "$(ls build/kernels/*.fatbin 2>/dev/null)" ] || skip "this build has no GPU kernels"
make_library || { echo "0 passed, 1 failed"; exit 1; }

for n in 1 3 5 7 12 17; do check test_grad random --device=cuda "--case=$n"; done
for n in 1 2 4 9; do check test_ragged random --device=cuda "--case=$n"; done
for n in 0 2; do check test_masked unseen --device=cuda "--case=$n"; done
check test_masked empty_rows zero_sizes --device=cuda
check test_cuda opening refusals checked program
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
