#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--html of diagnose, tune and diff as a file: where it goes, how large it is, what it holds without a browser."""

import base64
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

DATA = plimtest.ROOT / "tests" / "data" / "snapshots"
OOM = DATA / "simulated" / "hf-llama8b-oom-24g.pickle"
TYPES = {1: "B", 2: "H", 3: "I", 4: "d"}


def unpacked(data):
    """Columns by name, read by the layout of docs/format/report-data.md alone."""
    magic, number, zero = struct.unpack_from("<8sII", data)
    assert magic == b"PLIMRPT1" and zero == 0
    found = {}
    for i in range(number):
        name, kind, count, offset = struct.unpack_from("<20sIII", data, 16 + 40 * i)
        found[name.rstrip(b"\0").decode()] = struct.unpack_from(f"<{count}{TYPES[kind]}", data, offset)
    return found


def columns(page):
    """The columns of a page."""
    text = re.search(r'id="plimsoll-data">([^<]*)<', page).group(1)
    return unpacked(zlib.decompress(base64.b64decode(text)))


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

    def test_tune_and_diff_write_pages_beside_their_text(self):
        """tune and diff print what they print without --html, and with - the page instead"""
        early, late = DATA / "simulated" / "healthy.pickle.xz", DATA / "simulated" / "leak_list.pickle.xz"
        for words in (["tune", "--vary", "max_split_size_mb", OOM], ["diff", early, late]):
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "page.html"
                result = plimtest.run(*words, "--html", out)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, plimtest.run(*words).stdout)
                self.assertEqual(out.read_bytes(), plimtest.run(*words, "--html", "-").stdout)

    def test_the_table_of_tune_has_the_numbers_of_its_json(self):
        """each run of the page is the run of the JSON answer: peaks, counters, and the first failing request"""
        words = ["tune", OOM, "--vary", "max_split_size_mb", "--device-memory", "22GiB"]
        runs = json.loads(plimtest.run(*words, "--format", "json").stdout)["runs"]
        page = plimtest.run(*words, "--html", "-").stdout.decode()
        table = re.search(r'aria-label="Settings, table">(.*?)</table>', page, re.S).group(1)
        raw = [re.findall(r'data-v="([^"]*)"', row) for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", table, re.S)]
        self.assertEqual(len(raw), len(runs))
        for cells, run in zip(raw, runs):
            oom, peak, counters = run["first_oom"], run["peak"], run["counters"]
            self.assertEqual(cells[1:3], [str(oom["alloc_index"] + 1), str(oom["request_bytes"])] if oom else ["", ""])
            self.assertEqual(cells[5:9], [str(peak[k + "_bytes"]) for k in ("reserved", "allocated", "active", "requested")])
            self.assertEqual(cells[12:16], [str(counters[k]) for k in (
                "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")])

    def test_the_earlier_snapshot_of_a_difference_is_read_by_the_documented_layout(self):
        """bf.* of a page of diff add up to the live bytes of the earlier snapshot"""
        early, late = DATA / "simulated" / "healthy.pickle.xz", DATA / "simulated" / "leak_list.pickle.xz"
        found = columns(plimtest.run("diff", early, late, "--html", "-").stdout.decode())
        ledger = json.loads(plimtest.run("diagnose", early, "--format", "json").stdout)["ledger"]
        self.assertEqual(sum(found["bf.bytes"]), ledger["allocated"]["bytes"])
        self.assertTrue(set(found["bf.stack"]) <= set(found["bst.id"]) | {0xffffffff})
        self.assertEqual(json.loads(bytes(found["page.meta"]))["before"], early.name)

    def test_all_devices_are_in_the_file_unless_one_is_named(self):
        """a snapshot of two devices makes a page of both, with the columns of each; --device leaves one"""
        with tempfile.TemporaryDirectory() as folder:
            two = pathlib.Path(folder) / "two.pickle"
            subprocess.run([sys.executable, plimtest.ROOT / "tests" / "bench" / "gen_snapshot.py", "--devices", "2", "--events",
                            "2000", two], check=True, stderr=subprocess.DEVNULL)
            page = plimtest.run("diagnose", two, "--html", "-").stdout.decode()
            self.assertEqual(page.count('id="plimsoll-data"'), 2)
            self.assertEqual(page.count("<template "), 1)
            one = plimtest.run("diagnose", two, "--device", "1", "--html", "-").stdout.decode()
            self.assertEqual(one.count('id="plimsoll-data"'), 1)
            self.assertEqual(json.loads(bytes(columns(one)["page.meta"]))["device"], 1)

    def test_equal_input_gives_equal_pages(self):
        """the same snapshot gives the same bytes: nothing of the time or the machine is in the page"""
        first = plimtest.run("diagnose", OOM, "--html", "-").stdout
        self.assertEqual(first, plimtest.run("diagnose", OOM, "--html", "-").stdout)


if __name__ == "__main__":
    plimtest.main()
