#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports are read back: pickles by Python and by this project's own reader, databases by SQLite, JSON by Python.

usage: test_export.py SNAPSHOT_FACTS FOLDER     (PLIMSOLL names the program)

Only files of this project's own test data, and what the program made of them, are unpickled. Prints TAP.
"""

import json
import lzma
import pathlib
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

FACTS, DATA = sys.argv[1], pathlib.Path(sys.argv[2])
SNAPSHOTS = ["attn-peak-full-history-t26.pickle", "lm-windows-highwater-t211.pickle",
             "mosaic-synthetic-expandable.pickle", "tiny-no-history-t25.pickle", "llm-state-only-16gib-t22.pickle",
             "simulated/hf-llama8b-oom-24g.pickle", "simulated/leak_list.pickle.xz", "simulated/graph_pool.pickle.xz",
             "simulated/streams_cache.pickle.xz"]
NO_NOTE = {"compile_context": ("N/A", ""), "user_metadata": ("",)}


def load(path):
    data = path.read_bytes()
    found = pickle.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
    return {"segments": found} if isinstance(found, list) else found


def events_of(snapshot):
    """The longest trace, with what means nothing left out."""
    trace = max(snapshot.get("device_traces", [[]]), key=len)
    return [{k: v for k, v in e.items() if v not in NO_NOTE.get(k, ())} for e in trace]


def live_bytes(snapshot):
    return sum(b["size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive")


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def export(self, name, form, *options):
        out = self.folder / ("out." + form)
        result = plimtest.run("export", "--format", form, "-o", out, *options, DATA / name)
        self.assertEqual(result.returncode, 0, result.stderr)
        return out

    def facts(self, path):
        out = json.loads(subprocess.run([FACTS, str(path)], check=True, capture_output=True).stdout)
        # Sums of segments are written as they are: contradictions of the original ("findings") are gone.
        for key in ("container", "layout", "unknown_keys", "bytes", "findings"):
            out.pop(key, None)
        return out

    def test_our_reader_reads_back_the_same(self):
        """a memory-viz pickle holds for this project's reader what the original holds"""
        for name in SNAPSHOTS:
            with self.subTest(name):
                self.assertEqual(self.facts(self.export(name, "memory-viz")), self.facts(DATA / name))

    def test_python_reads_the_same_events(self):
        """Python finds in a memory-viz pickle the events of the original, key by key"""
        for name in SNAPSHOTS:
            with self.subTest(name):
                original, copy = load(DATA / name), load(self.export(name, "memory-viz"))
                self.assertEqual(events_of(copy), events_of(original))
                self.assertEqual(live_bytes(copy), live_bytes(original))

    def test_the_facts_of_attach_come_along(self):
        """what attach added to a snapshot is in its export too"""
        snapshot = load(DATA / "simulated/hf-llama8b-oom-24g.pickle")
        snapshot["plimsoll"] = json.dumps({"schema": "plimsoll.drop/1", "kind": "oom", "device": 0, "pid": 1,
                                           "time_ns": 1, "tags": {"text": "x" * 300}})
        path = self.folder / "with.pickle"
        path.write_bytes(pickle.dumps(snapshot))
        self.assertEqual(load(self.export(path, "memory-viz"))["plimsoll"], snapshot["plimsoll"])

    def test_it_is_protocol_4_and_small(self):
        """a memory-viz pickle is of protocol 4 and no larger than what PyTorch wrote"""
        name = "lm-windows-highwater-t211.pickle"
        data = self.export(name, "memory-viz").read_bytes()
        self.assertEqual(data[:2], b"\x80\x04")
        self.assertLess(len(data), (DATA / name).stat().st_size)

    def test_a_window_has_its_events_and_its_heap(self):
        """a window of the trace holds just those events and the heap behind the last of them"""
        name = "simulated/leak_list.pickle.xz"
        original = load(DATA / name)
        copy = load(self.export(name, "memory-viz", "--from", 3000, "--until", 5000))
        self.assertEqual(events_of(copy), events_of(original)[3000:5000])
        change = 0
        for e in events_of(original)[5000:]:
            rounded = -(-e["size"] // 512) * 512
            change += rounded if e["action"] == "alloc" else -rounded if e["action"] == "free_completed" else 0
        self.assertEqual(live_bytes(copy) + change, live_bytes(original))

    def test_a_window_outside_the_trace_is_refused(self):
        """a window outside the trace is refused with its length"""
        result = plimtest.run("export", "--from", 10, "--until", 99999999, DATA / SNAPSHOTS[0])
        self.assertEqual(result.returncode, 65)
        self.assertIn(b"the trace has", result.stderr)

    def test_counters_end_at_what_is_reserved(self):
        """the last Perfetto counters add up to the reserved bytes, and times never go back"""
        name = "simulated/leak_list.pickle.xz"
        original = load(DATA / name)
        trace = json.loads(self.export(name, "perfetto").read_text())
        counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
        self.assertEqual(len(counters), len(events_of(original)))
        self.assertEqual(sum(counters[-1]["args"].values()), sum(s["total_size"] for s in original["segments"]))
        times = [e["ts"] for e in counters]
        self.assertEqual(times, sorted(times))
        self.assertEqual(sum(e["name"] == "oom" for e in trace["traceEvents"]),
                         sum(e["action"] == "oom" for e in events_of(original)))

    def test_folded_lines_add_up(self):
        """folded stacks add up to the live bytes and have one frame more than separators"""
        for name in SNAPSHOTS:
            with self.subTest(name):
                lines = self.export(name, "folded").read_text().splitlines()
                sums = [line.rsplit(" ", 1) for line in lines]
                self.assertEqual(sum(int(n) for _, n in sums), live_bytes(load(DATA / name)))
                self.assertEqual(len({stack for stack, _ in sums}), len(sums))

    def test_the_database_answers(self):
        """the database is sound, has all events and blocks, and its live blocks add up"""
        for name in SNAPSHOTS:
            with self.subTest(name):
                original = load(DATA / name)
                db = sqlite3.connect(self.export(name, "sqlite"))
                self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
                self.assertEqual(db.execute("PRAGMA foreign_key_check").fetchall(), [])
                events = sum(len(t) for t in original.get("device_traces", []))
                self.assertEqual(db.execute("SELECT count(*) FROM event").fetchone()[0], events)
                live = db.execute("SELECT coalesce(sum(size), 0) FROM live_at_end").fetchone()[0]
                self.assertEqual(live, live_bytes(original))
                reserved = db.execute("SELECT sum(size) FROM segment WHERE end IS NULL").fetchone()[0]
                self.assertEqual(reserved, sum(s["total_size"] for s in original["segments"]))
                db.close()

    def test_the_database_keeps_stacks_in_order(self):
        """a stack of the database lists its frames innermost first, as the snapshot does"""
        name = "simulated/hf-llama8b-oom-24g.pickle"
        original = load(DATA / name)
        index, event = next((i, e) for i, e in enumerate(events_of(original)) if len(e.get("frames", [])) > 3)
        db = sqlite3.connect(self.export(name, "sqlite"))
        rows = db.execute("SELECT f.name, f.file, f.line FROM event e JOIN stack_frame s ON s.stack = e.stack "
                          "JOIN frame f ON f.id = s.frame WHERE e.event = ? ORDER BY s.depth", (index,)).fetchall()
        self.assertEqual(rows, [(f["name"], f["filename"], f["line"]) for f in event["frames"]])
        db.close()


if __name__ == "__main__":
    del sys.argv[1:]
    plimtest.main()
