"""run.py - the page in a real browser, with the network off.

    python3 tests/browser/run.py PAGES SHOTS [NAME...]

PAGES: a folder filled by `test_page --pages`; SHOTS: where screenshots go (look at them
when you change the page); NAME: run only tests whose name contains it. The last line reads
"N passed, N failed" (", N skipped").
"""
import sys
import traceback

import test_controls
import test_first
import test_live
import test_numbers
import test_whole
from suite import Skip, Suite


def every_test():
    for module in (test_first, test_numbers, test_controls, test_live, test_whole):
        yield from ((name, f) for name, f in vars(module).items() if name.startswith("test_"))


def main(pages, shots, *wanted):
    suite = Suite(pages, shots)
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for name, test in every_test():
        if wanted and not any(part in name for part in wanted):
            continue
        try:
            test(suite)
            count["passed"] += 1
        except Skip as reason:
            count["skipped"] += 1
            print(f"  skip  {name}: {reason}")
        except AssertionError as reason:
            count["failed"] += 1
            print(f"  FAIL  {name}: {reason}")
        except Exception:  # the browser itself, or a test that is wrong
            count["failed"] += 1
            print(f"  FAIL  {name}: {traceback.format_exc(limit=3)}")
        sys.stdout.flush()
    suite.browser.close()
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{count['passed']} passed, {count['failed']} failed{skipped}")
    return count["failed"] > 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
