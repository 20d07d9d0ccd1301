#!/bin/sh
# test_python.sh - the Python package (python/): its structs are those of the headers, and
# its tests, where there is a Python with NumPy and pytest.
#
# POLYHEAD_PYTHON names another Python; parts for a framework (PyTorch, transformers, JAX)
# run where that one can import it.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1

. tests/shell_bed.inc

have python3 || {
    skip "the Python package: no python3"
    finish
}
export PYTHONDONTWRITEBYTECODE=1

# What is misread does not compile or shows in the numbers.
if python3 python/polyhead/_c.py --c >"$tmp/layout.c" &&
    python3 python/polyhead/_c.py --layout >"$tmp/python" && [ -s "$tmp/python" ] &&
    ${CC:-cc} -Iinclude "$tmp/layout.c" -o "$tmp/layout" && "$tmp/layout" >"$tmp/c"; then
    good
else
    bad "python/polyhead/_c.py finds fields that the headers do not have"
fi
if diff "$tmp/c" "$tmp/python" >"$tmp/moved"; then
    good
else
    bad "python/polyhead/_c.py differs from the headers (<) in:"
    cat "$tmp/moved"
fi

case ${BUILD:-build} in
build) ;;
*)
    skip "tests of the Python package: a library with sanitizers cannot be loaded into Python"
    finish
    ;;
esac

for python in ${POLYHEAD_PYTHON:-build/venv/bin/python python3}; do
    if "$python" -c 'import numpy, pytest' 2>/dev/null; then
        "$python" -m pytest -q -rs -p no:cacheprovider python/tests >"$tmp/log" 2>&1
        status=$?
        cat "$tmp/log"
        # the last line reads "98 passed, 3 skipped in 5.16s"
        count() {
            number=$(sed -n "s/.*\\b\([0-9][0-9]*\) $1.*/\1/p" "$tmp/log" | tail -n 1)
            echo "${number:-0}"
        }
        passed=$((passed + $(count passed)))
        skipped=$((skipped + $(count skipped)))
        failed=$((failed + $(count failed) + $(count error)))
        [ $status = 0 ] || [ $failed -gt 0 ] || bad "pytest ended with status $status"
        finish
    fi
done
skip "tests of the Python package: no Python with NumPy and pytest (tools/deps test)"
finish
