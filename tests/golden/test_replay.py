#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays against what the real PyTorch allocator did, and the model against recordings.

tests/data/tune holds two workloads and what PyTorch 2.14.1 did with them under ten settings each: the replay of
the one recorded trace must give the same first failure, peaks, counters and number of trace entries under
all of them. Recordings with a complete history must be reproduced entry by entry.
"""

import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

PLIMSOLL = os.environ["PLIMSOLL"]
DATA = plimtest.ROOT / "tests" / "data"
TUNE = DATA / "tune"
SNAPSHOTS = DATA / "snapshots"
WORKLOADS = ("kv-growth", "streams")

# Physically impossible on purpose: its segments do not hold its blocks.
IMPOSSIBLE = {"mosaic-synthetic-expandable.pickle"}


def plimsoll(*args):
    done = subprocess.run([PLIMSOLL, *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, args))}: exit {done.returncode}: {done.stderr}")
    document = json.loads(done.stdout)
    complaints = plimtest.schema_complaints(document)
    if complaints:
        raise AssertionError(f"{' '.join(map(str, args))}: {complaints[:3]}")
    return document


class Replays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = {}
        for name in WORKLOADS:
            cls.trace[name] = pathlib.Path(cls.folder.name) / f"{name}.pickle"
            cls.trace[name].write_bytes(lzma.decompress((TUNE / f"{name}.pickle.xz").read_bytes()))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_setting_gives_what_the_real_allocator_did(self):
        """under every setting the replay equals what the real allocator did"""
        for name in WORKLOADS:
            truth = json.loads((TUNE / f"{name}.json").read_text(encoding="utf-8"))
            for run in truth["runs"]:
                got = plimsoll("replay", self.trace[name], "--conf", run["conf"], "--format", "json",
                               "--device-memory", truth["device_total_bytes"],
                               "--external", truth["driver_overhead_bytes"])
                for key in ("conf", "first_oom", "peak", "counters", "events"):
                    self.assertEqual(got[key], run[key], f"{name}, '{run['conf']}': {key}")
                # Without stacks, whose a release was is a guess.
                self.assertLessEqual({d["name"] for d in got["doubts"]}, {"unsure_bursts"}, name)

    def test_complete_recordings_are_reproduced(self):
        """recordings with a complete history are reproduced entry by entry"""
        complete = 0
        for path in [*self.trace.values(), *sorted(SNAPSHOTS.rglob("*.pickle"))]:
            if path.name in IMPOSSIBLE:
                continue
            got = plimsoll("replay", "--self-check", "--format", "json", path)
            self.assertEqual(got["differences"], 0, f"{path.name}: {got['first_difference']}")
            self.assertEqual(got["events_compared"], got["events_total"], path.name)
            self.assertEqual(got["final_heap"], "equal", path.name)
            complete += got["complete_history"]
        self.assertGreaterEqual(complete, 7)

    def test_an_impossible_recording_says_where_it_contradicts_itself(self):
        """a recording that contradicts itself gives a difference, not a failure"""
        for name in IMPOSSIBLE:
            got = plimsoll("replay", "--self-check", "--format", "json", SNAPSHOTS / name)
            self.assertEqual(got["differences"], 1)
            self.assertIn("text", got["first_difference"])

    def test_a_larger_device_serves_what_a_smaller_one_cannot(self):
        """the failing request of a trace is served on a larger device"""
        args = ("replay", self.trace["streams"], "--format", "json", "--external", "500MiB")
        self.assertIsNotNone(plimsoll(*args, "--device-memory", "24GiB")["first_oom"])
        self.assertIsNone(plimsoll(*args, "--device-memory", "80GiB")["first_oom"])

    def test_growing_requests_need_more(self):
        """requests scaled up need more memory, those that stay keep their size"""
        args = ("replay", self.trace["kv-growth"], "--format", "json")
        one = plimsoll(*args)["peak"]["requested_bytes"]
        more = plimsoll(*args, "--scale", "1.2")["peak"]["requested_bytes"]
        self.assertGreater(more, one)
        self.assertLess(more, one * 1.2)


if __name__ == "__main__":
    plimtest.main()
