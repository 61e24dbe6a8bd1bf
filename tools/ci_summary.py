#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sum up the results of tools/check.py: what failed and why, a few lines each, and one closing line
"N passed, N failed, N skipped".

    tools/ci_summary.py [RESULTS]     exit 1 when something failed or nothing ran

Tests are counted one by one: a Meson test that speaks TAP counts each of its points.
"""

import itertools
import json
import pathlib
import re
import sys

TAP_POINT = re.compile(r"^(not )?ok\b(.*)$")
REASON_LINES = 8  # of the end of what a failing test says, which has the exception
REASON_WIDTH = 300


def count_tap(text):
    """(passed, failed, skipped) of the points at the outermost level of a TAP text."""
    passed = failed = skipped = 0
    for line in text.splitlines():
        match = TAP_POINT.match(line)
        if not match:
            continue
        if re.search(r"#\s*skip", match.group(2), re.IGNORECASE):
            skipped += 1
        elif match.group(1):
            failed += 1
        else:
            passed += 1
    return passed, failed, skipped


def shortened(lines):
    return [line[:REASON_WIDTH] for line in lines if line.strip()][-REASON_LINES:]


def tap_failures(text):
    """The failing points of a TAP text: its line, then the end of the comments after it."""
    failures = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("not ok"):
            after = itertools.takewhile(lambda said: said.startswith("#"), lines[at + 1:])
            failures.append([line[:REASON_WIDTH], *shortened(said[2:] for said in after)])
    return failures


def tests_of(path):
    """The tests of a Meson testlog.json (one JSON object a line)."""
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())


def failures_of_testlog(path):
    """What failed, a list of lines each, of which the first names it."""
    failures = []
    for test in tests_of(path) if path.exists() else []:
        if test.get("result") in ("OK", "EXPECTEDFAIL", "SKIP"):
            continue
        said = test.get("stdout") or ""
        points = tap_failures(said) or [[test.get("result", ""), *shortened((said + (test.get("stderr") or "")).splitlines())]]
        failures += [[f"{test.get('name')}: {first}", *rest] for first, *rest in points]
    return failures


def count_testlog(path):
    """(passed, failed, skipped) over the tests of a Meson testlog.json."""
    total = [0, 0, 0]
    if not path.exists():
        return 0, 1, 0
    for test in tests_of(path):
        counts = list(count_tap(test.get("stdout") or ""))
        result = test.get("result", "")
        if sum(counts) == 0:
            counts = [int(result in ("OK", "EXPECTEDFAIL")), 0, int(result == "SKIP")]
        if result not in ("OK", "EXPECTEDFAIL", "SKIP") and counts[1] == 0:
            counts[1] = 1
        total = [a + b for a, b in zip(total, counts)]
    return tuple(total)


def main(argv):
    root = pathlib.Path(__file__).resolve().parent.parent
    path = pathlib.Path(argv[1]) if len(argv) > 1 else root / "build" / "check" / "results.json"
    total = [0, 0, 0]
    if path.exists():
        for stage in json.loads(path.read_text(encoding="utf-8")):
            total = [a + b for a, b in zip(total, stage["counts"])]
            for first, *rest in stage.get("failures", []):
                print("\n    ".join([f"failed in {stage['stage']}: {first}", *rest]))
    else:
        total[1] = 1
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped", flush=True)
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
