#!/bin/sh
# test_peers.sh - the comparisons in bench/ say so where there is no PyTorch. Needs python3.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1

. tests/shell_bed.inc

have python3 || {
    skip "comparisons of bench/: no python3"
    finish
}

# -S: without the packages of this machine.
for script in peers variant_peers train_peers generate_peers text_peers; do
    out=$(env -u PYTHONPATH python3 -S bench/$script.py 2>&1)
    status=$?
    case $status-$out in
    "0-PyTorch is not here"*) good ;;
    *) bad "$script.py without PyTorch: status $status, '$out'" ;;
    esac
done

finish
