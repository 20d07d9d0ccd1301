#!/bin/sh
# test_mpi.sh - heads of a layer over several processes (examples/mpi). Needs mpicc, mpirun.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1

. tests/shell_bed.inc
one_thread

have mpicc && have mpirun || {
    skip "tensor parallel layers: no mpicc or no mpirun"
    finish
}

if ! mpicc -std=c11 -O2 -Wall -Wextra -Werror -Iinclude examples/mpi/tensor_parallel.c \
    "${BUILD:-build}"/libpolyhead.a -lm -lpthread -o "$tmp/parallel" >"$tmp/log" 2>&1; then
    bad "examples/mpi/tensor_parallel.c does not compile"
    cat "$tmp/log"
    finish
fi

# Open MPI refuses to run for root, or more processes than cores, unless told otherwise.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1

for ranks in 1 2 4; do
    mpirun -n $ranks "$tmp/parallel" >"$tmp/out" 2>&1
    same "status of $ranks processes" $? 0
    same "lines of $ranks processes" "$(grep -c 'the same bits$' "$tmp/out")" $ranks
done
mpirun -n 1 "$tmp/parallel" >"$tmp/out" 2>&1
same "one process is the whole layer" "$(grep -c 'out 0.0e+00, dx 0.0e+00' "$tmp/out")" 1
mpirun -n 3 "$tmp/parallel" >"$tmp/out" 2>&1
same "status of 3 processes" $? 2
same "what it says" "$(grep -c '3 processes cannot share 4 key heads' "$tmp/out")" 1

finish
