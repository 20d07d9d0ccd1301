"""page.py - how long the page takes to answer, action by action, in headless Chromium.

    make build/tests/test_page build/tests/test_serve && python3 bench/page.py [ROUNDS]

A saved page of 12 x 12 heads x 512 words, and 4,096 words served live, both made up by the
tests. For every action two times in milliseconds, the least and the median of all rounds:

    shown   from the action to the end of the frame that shows it: what a reader waits
    cpu     processor time of the page's thread meanwhile: what stays when nothing else runs

On a machine that does other things start it with `nice -n -10`.
"""
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tests", "browser"))

import browser  # noqa: E402
import run  # noqa: E402

LIVE = [("next head", run.press("]")), ("zoom", run.click("#zoom-in")), ("seen by", run.click("#gets")),
        ("beams", run.click("#tab-beams")), ("pick a word", run.click("#strip button")),
        ("all heads", run.click("#tab-all")), ("heat map", run.click("#tab-heat")),
        ("compare", run.click("#tab-compare")), ("dark", run.click("#theme-button"))]


def cpu(page):
    metrics = {m["name"]: m["value"] for m in page.call("Performance.getMetrics")["metrics"]}
    return 1000 * metrics["TaskDuration"]


def measure(page, actions, address, rounds):
    times = {name: ([], []) for name, _ in actions}
    for _ in range(rounds):
        page.go(address)
        for name, act in actions:
            page.js("document.activeElement.blur()")
            page.settle()
            before = cpu(page)
            times[name][0].append(page.js(run.timed(act)))
            times[name][1].append(cpu(page) - before)
    return times


def print_table(title, times):
    print(f"\n{title}\n\n| action | shown, least | median | cpu, least | median |\n| --- | --- | --- | --- | --- |")
    for name, (shown, spent) in times.items():
        row = [min(shown), statistics.median(shown), min(spent), statistics.median(spent)]
        print(f"| {name} | " + " | ".join(f"{ms:.0f}" for ms in row) + " |")


def main(rounds=5):
    chromium = browser.Browser(browser.find())
    try:
        page = chromium.open()
        page.call("Performance.enable", timeDomain="threadTicks")
        with tempfile.TemporaryDirectory() as pages:
            build = os.path.join(ROOT, os.environ.get("BUILD", "build"))
            subprocess.run([os.path.join(build, "tests", "test_page"), "--pages", pages], check=True)
            address = f"file://{pages}/long.html#lang=en&theme=light"
            print_table("12 x 12 heads x 512 words, a saved page", measure(page, run.ACTIONS, address, int(rounds)))
        with run.Served("longest") as served:
            times = measure(page, LIVE, served.address + "&lang=en&theme=light", int(rounds))
        print_table("4,096 words, live", times)
    finally:
        chromium.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
