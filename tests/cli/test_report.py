#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""diagnose --html as a file: where it goes, how large it is, what it holds without a browser."""

import base64
import pathlib
import re
import struct
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

DATA = plimtest.ROOT / "tests" / "data" / "snapshots"
OOM = DATA / "simulated" / "hf-llama8b-oom-24g.pickle"
TYPES = {1: "B", 2: "H", 3: "I", 4: "d"}


def columns(page):
    """The columns of a page, read by the layout of docs/format/report-data.md alone."""
    text = re.search(r'id="plimsoll-data">([^<]*)<', page).group(1)
    data = zlib.decompress(base64.b64decode(text))
    magic, number, zero = struct.unpack_from("<8sII", data)
    assert magic == b"PLIMRPT1" and zero == 0
    found = {}
    for i in range(number):
        name, kind, count, offset = struct.unpack_from("<20sIII", data, 16 + 40 * i)
        found[name.rstrip(b"\0").decode()] = struct.unpack_from(f"<{count}{TYPES[kind]}", data, offset)
    return found


class ReportTest(unittest.TestCase):
    def test_the_text_is_printed_and_the_file_written(self):
        """the text goes to standard output as ever, the page to its file, at most 5 MB"""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "report.html"
            result = plimtest.run("diagnose", OOM, "--html", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, plimtest.run("diagnose", OOM).stdout)
            self.assertLess(out.stat().st_size, 5_000_000)
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["report.html"])

    def test_a_dash_writes_the_page_instead_of_the_text(self):
        """with - the page is the answer"""
        result = plimtest.run("diagnose", OOM, "--html", "-")
        self.assertTrue(result.stdout.startswith(b"<!DOCTYPE html>"))
        self.assertTrue(result.stdout.endswith(b"</html>\n"))

    def test_a_folder_that_does_not_exist_is_told(self):
        """a page that cannot be written is an error, and nothing is printed as if all were well"""
        result = plimtest.run("diagnose", OOM, "--html", "/nowhere/at/all.html")
        self.assertEqual(result.returncode, 73)
        self.assertEqual(result.stdout, b"")
        self.assertIn(b"/nowhere/at/all.html", result.stderr)

    def test_the_documented_layout_is_enough_to_read_the_data(self):
        """the columns are read by their documented layout, and add up to the ledger of the JSON answer"""
        import json
        page = plimtest.run("diagnose", OOM, "--html", "-").stdout.decode()
        answer = json.loads(plimtest.run("diagnose", OOM, "--format", "json").stdout)
        found = columns(page)
        meta = json.loads(bytes(found["page.meta"]))
        self.assertEqual(meta["schema"], "plimsoll.report-data/1")
        self.assertTrue(meta["all_blocks"] and meta["all_events"])
        at = meta["moments"]["judged"]
        live = sum(r for r, s, e in zip(found["bl.requested"], found["bl.start"], found["bl.end"]) if s <= at < e)
        owners = {o["owner"]: o["bytes"] for o in answer["ledger"]["owners"]} if isinstance(
            answer["ledger"]["owners"], list) else {k: v["bytes"] for k, v in answer["ledger"]["owners"].items()}
        self.assertEqual(live, owners["live"])
        self.assertEqual(len(found["ev.index"]), meta["events"])

    def test_equal_input_gives_equal_pages(self):
        """the same snapshot gives the same bytes: nothing of the time or the machine is in the page"""
        first = plimtest.run("diagnose", OOM, "--html", "-").stdout
        self.assertEqual(first, plimtest.run("diagnose", OOM, "--html", "-").stdout)


if __name__ == "__main__":
    plimtest.main()
