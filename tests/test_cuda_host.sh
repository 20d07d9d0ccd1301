#!/bin/sh
# test_cuda_host.sh - the GPU kernels without a GPU: compiled for the CPU, run as fibers by a
# libcuda.so.1 of our own, judged by the same oracle as on the GPU.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
build=${BUILD:-build} passed=0 failed=0
folder=$build/cuda_host
flags="-std=c++17 -O2 -fPIC -ffp-contract=off -w -Wno-psabi"
include="-Itests/cuda_host -Iinclude -Isrc -include tests/cuda_host/cuda_host.h"

skip() {
    echo "skipped: $*"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

make_library() {
    mkdir -p "$folder" || return 1
    printf '%s\n' src/cuda/*.cu tests/cuda_host/cuda_host.cpp |
        xargs -P 2 -I{} sh -c "g++ $flags $include -x c++ -c {} -o $folder/\$(basename {}).o" ||
        return 1
    g++ -shared -o "$folder/libcuda.so.1" "$folder"/*.o -lm
}

check() { # PROGRAM ARGUMENTS...
    program=$1
    shift
    if LD_LIBRARY_PATH=$folder "$build/tests/$program" "$@" >"$folder/log" 2>&1 &&
        ! tail -n 1 "$folder/log" | grep -q skipped; then
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

for n in 1 3 5 7 12 17 471; do check test_grad random --device=cuda "--case=$n"; done
for n in 1 2 4 9; do check test_ragged random --device=cuda "--case=$n"; done
for n in 0 2 377 499; do check test_masked unseen --device=cuda "--case=$n"; done
check test_masked empty_rows zero_sizes --device=cuda
check test_cuda opening refusals checked program

# The number of SMs decides how work is cut: into pairs of CTAs, single ones, tiles of one head.
for sms in 3 132; do
    CUDA_HOST_SMS=$sms
    export CUDA_HOST_SMS
    check test_cuda_fast fast_company
done
check test_cuda_fast fast_behind fast_described
check test_cuda_fast fast_values
CUDA_HOST_SMS=7 check test_cuda_fast fast_forward
CUDA_HOST_SMS=1 check test_cuda_gates fast_gates
CUDA_HOST_SMS=3
for n in 3 13 17 20 26 37 59; do check test_cuda_grads grads_judged "--case=$n"; done
check test_cuda_grads grads_values grads_company
check test_cuda_grads grads_ragged --case=1
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
