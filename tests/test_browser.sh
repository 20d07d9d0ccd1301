#!/bin/sh
# test_browser.sh - the page in a real browser (tests/browser), on made-up reports.
#
# Screenshots land in build/screenshots: look at them when you change the page.

set -u
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
BUILD=${BUILD:-build}

skip() {
    echo "  skip  $*"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

command -v python3 >/dev/null 2>&1 || skip "browser tests: no python3"
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
(cd tests/browser && python3 -c 'import browser, sys; sys.exit(browser.find() is None)') ||
    skip "browser tests: no Chromium here, and none could be installed"

pages=$(mktemp -d) || exit 1
trap 'rm -rf "$pages"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$BUILD/tests/test_page" --pages "$pages" || exit 1
python3 tests/browser/run.py "$pages" build/screenshots
