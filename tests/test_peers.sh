#!/bin/sh
# test_peers.sh - the comparisons in bench/ call the library from Python: their structs are
# those of the headers, field by field, and without PyTorch they say so. Needs python3 and a
# compiler.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1

. tests/shell_bed.inc

have python3 || {
    skip "structs of bench/polyhead_c.py: no python3"
    finish
}

# What is misread does not compile or shows in the numbers.
export PYTHONDONTWRITEBYTECODE=1
if python3 bench/polyhead_c.py --c >"$tmp/layout.c" &&
    python3 bench/polyhead_c.py --layout >"$tmp/python" && [ -s "$tmp/python" ] &&
    ${CC:-cc} -Iinclude "$tmp/layout.c" -o "$tmp/layout" && "$tmp/layout" >"$tmp/c"; then
    good
else
    bad "bench/polyhead_c.py finds fields that the headers do not have"
fi
if diff "$tmp/c" "$tmp/python" >"$tmp/moved"; then
    good
else
    bad "bench/polyhead_c.py differs from the headers (<) in:"
    cat "$tmp/moved"
fi

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
