#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll explain on all messages of tests/data/oom: the JSON contract, the width of the text, the score."""

import collections
import functools
import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

OOM = plimtest.ROOT / "tests" / "data" / "oom"
LEAST_RIGHT = 0.95  # of the labelled reports; 0.43 is what a rule of keywords and the gap reaches


def messages():
    """(name, text) of each case in messages.txt."""
    for case in (OOM / "messages.txt").read_text(encoding="utf-8").split("\n@@ ")[1:]:
        head, text = case.split("\n", 1)
        yield head.split(" | ")[0], text


def reports():
    with open(OOM / "reports.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@functools.lru_cache(maxsize=None)
def explain(text, *args):
    return plimtest.run("explain", *args, "-", stdin=text.encode())


def is_right(report, said):
    """As the labels want it: see `text_decides` and `confidence` in reports.jsonl."""
    right = said == report["right_class"]
    right |= report["confidence"] < 0.8 and said == report["secondary_class"]
    if not report["text_decides"]:
        right |= said in ("unknown", report.get("text_class"))
    return right


class ExplainTest(unittest.TestCase):
    def test_schema(self):
        """every answer in JSON keeps the contract"""
        for name, text in messages():
            with self.subTest(name):
                result = explain(text, "--format", "json")
                self.assertEqual(result.returncode, 0, result.stderr)
                document = json.loads(result.stdout)
                self.assertEqual(plimtest.schema_complaints(document), [])
                for event in document["events"]:
                    self.assertTrue(event["evidence"])
                    if event["class"] == "unknown":
                        self.assertTrue(event["unknowns"], "unknown without what to collect")

    def test_ledger(self):
        """the owners of a ledger never exceed the device, unless the message says so itself"""
        for name, text in messages():
            document = json.loads(explain(text, "--format", "json").stdout)
            for event in document["events"]:
                ledger = event["ledger"]
                owners = sum(owner["bytes"] for owner in ledger["owners"].values())
                live = ledger["owners"].get("live", {"bytes": 0})["bytes"]
                free = ledger["owners"].get("free", {"bytes": 0})["bytes"]
                if "total" in ledger and max(live, free) <= ledger["total"]["bytes"]:
                    rounding = 40 << 20  # each figure is off by up to half a hundredth of a GiB
                    self.assertLessEqual(owners, ledger["total"]["bytes"] + rounding, name)

    def test_width(self):
        """text stays within 80 columns and Markdown has no raw markup of the input"""
        for name, text in messages():
            for line in explain(text).stdout.decode().splitlines():
                longest = max((len(word) for word in line.split()), default=0)
                self.assertTrue(len(line) <= 80 or longest > 60, f"{name}: {line}")
            self.assertNotRegex(explain(text, "--format", "markdown").stdout.decode(), r"<[a-z]", name)

    def test_score(self):
        """the labelled public reports get the class they are labelled with"""
        table, wrong = collections.Counter(), []
        for report in reports():
            document = json.loads(explain(report["error"], "--format", "json").stdout)
            said = document["verdict"]["class"]
            table[report["right_class"], said] += 1
            if not is_right(report, said):
                wrong.append(f"{report['id']}: said {said}, is {report['right_class']}")
        right = sum(table.values()) - len(wrong)
        self.assertGreaterEqual(right / sum(table.values()), LEAST_RIGHT, "\n".join(wrong))

    def test_numbers(self):
        """no text of an answer holds a printf directive, an empty number or a double blank"""
        for name, text in messages():
            output = explain(text).stdout.decode()
            output = re.sub(r"^  - Line \d+:.*\n(    .*\n)*", "", output, flags=re.M)  # words of the input
            self.assertNotRegex(output, r"%[sdlu]|nan|\binf\b|\(null\)", name)
            sentences = re.findall(r"^  - (.*)$", output, re.M)
            self.assertFalse([s for s in sentences if "  " in s], name)


if __name__ == "__main__":
    plimtest.main()
