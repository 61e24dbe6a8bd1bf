#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mode plan of Plimsoll's allocator on recorded training runs: plans made of them, followed, and followed by others.

    tests/golden/test_seating.py        PLIMSOLL is the program under test
"""

import json
import lzma
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

PLIMSOLL = os.environ.get("PLIMSOLL", str(plimtest.ROOT / "build" / "plimsoll"))
DATA = plimtest.ROOT / "tests" / "data" / "training"
STEADY = ("lm-streams", "lm-large-bf16", "lm-large-bf16-checkpointed", "lm-accumulated-loops", "conv-large")


def run(*args):
    return subprocess.run([PLIMSOLL, *map(str, args)], capture_output=True, text=True, check=False)


class SeatingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = {}
        for path in DATA.glob("*.xz"):
            name = path.name.split(".")[0]
            cls.trace[name] = pathlib.Path(cls.folder.name) / f"{name}.pickle"
            cls.trace[name].write_bytes(lzma.decompress(path.read_bytes()))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def replay(self, trace, mode, *args):
        done = run("replay", trace, "--format", "json", "--allocator", mode, *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(plimtest.schema_complaints(document), [])
        if document["capacity_bytes"]:
            room = document["capacity_bytes"] - document["external_bytes"]
            self.assertLessEqual(document["least_headroom_bytes"], room - document["peak"]["active_bytes"])
        return document

    def test_a_run_follows_its_own_plan(self):
        """every request gets its place, and reserved stays within 1 % of live, below the best of the others"""
        for name in STEADY:
            got = self.replay(self.trace[name], "plimsoll:plan", "--device-memory", "80GiB")
            stitch = self.replay(self.trace[name], "plimsoll", "--device-memory", "80GiB")
            with self.subTest(name):
                self.assertEqual(got["plan"], {"placed": got["allocations"], "displaced": 0, "astray": 0})
                self.assertLess(got["peak"]["reserved_bytes"], 1.01 * got["peak"]["active_bytes"])
                self.assertLess(got["peak"]["reserved_bytes"], stitch["peak"]["reserved_bytes"])
                self.assertLess(got["driver"]["calls"], 1.1 * stitch["driver"]["calls"])  # warm-up included
                self.assertEqual(got["peak"]["active_bytes"], stitch["peak"]["active_bytes"])
                seating = got["seating"]
                self.assertLessEqual(seating["height_bytes"], 1.005 * seating["least_bytes"])
                self.assertEqual(seating["repeats"], 5)

    def test_a_plan_goes_through_a_file(self):
        """a plan that is written and read again does the same; tune says the same of it as replay"""
        trace, plan = self.trace["lm-streams"], pathlib.Path(self.folder.name) / "plan"
        made = self.replay(trace, "plimsoll:plan", "--device-memory", "80GiB", "--write-plan", plan)
        read = self.replay(trace, "plimsoll:plan", "--device-memory", "80GiB", "--plan", plan)
        self.assertEqual(made.pop("seating")["requests"], int(plan.read_text().split()[6]))
        self.assertEqual(made, read)
        done = run("tune", trace, "--format", "json", "--allocator", "plimsoll:plan", "--plan", plan, "--device-memory",
                   "80GiB")
        tuned = json.loads(done.stdout)
        self.assertEqual(plimtest.schema_complaints(tuned), [])
        self.assertEqual(tuned["plimsoll_mode"], "plan")
        for key in ("peak", "plan", "driver"):
            self.assertEqual(tuned["plimsoll_allocator"][key], made[key])

    def test_a_recording_that_begins_in_the_middle_gives_a_plan_without_prologue(self):
        """from then on requests get their places once a whole period was as planned"""
        content = pickle.loads(self.trace["lm-accumulated-loops"].read_bytes())
        events = content["device_traces"][0]
        content["device_traces"][0] = events[len(events) // 4:]
        late = pathlib.Path(self.folder.name) / "late.pickle"
        late.write_bytes(pickle.dumps(content, protocol=4))
        got = self.replay(late, "plimsoll:plan", "--device-memory", "80GiB")
        seating, plan = got["seating"], got["plan"]
        self.assertEqual(seating["once"], 0)
        self.assertGreater(plan["placed"], got["allocations"] - 2 * seating["period"])
        self.assertIsNone(got["first_oom"])

    def test_other_programs_are_served_with_any_plan(self):
        """with the plan of another run nothing fails where mode stitch has room, and hardly more is reserved"""
        plan = pathlib.Path(self.folder.name) / "other"
        self.replay(self.trace["lm-streams"], "plimsoll:plan", "--device-memory", "80GiB", "--write-plan", plan)
        for name in ("lm-varying", "conv-large", "lm-large-bf16-checkpointed"):
            stitch = self.replay(self.trace[name], "plimsoll")
            room = int(stitch["peak"]["active_bytes"] * 1.06)
            for memory in ("80GiB", room):
                got = self.replay(self.trace[name], "plimsoll:plan", "--plan", plan, "--device-memory", memory)
                own = self.replay(self.trace[name], "plimsoll", "--device-memory", memory)
                with self.subTest(name, memory=memory):
                    self.assertGreater(got["plan"]["astray"], got["allocations"] // 2)
                    self.assertEqual(got["first_oom"], own["first_oom"])
                    self.assertLess(got["peak"]["reserved_bytes"], 1.05 * own["peak"]["reserved_bytes"])

    def test_what_cannot_be_done_is_said(self):
        """no period, no plan file, a wrong one, another mode"""
        trace, wrong = self.trace["lm-varying"], pathlib.Path(self.folder.name) / "wrong"
        wrong.write_text("plimsoll seating 1\nlanes 1\nrequests 1\nrepeat 0\n0 100 0\nend\n")
        for args, code, text in (
                (("plimsoll:plan",), 66, "do not repeat themselves"),
                (("plimsoll:plan", "--plan", "/nowhere"), 66, "/nowhere"),
                (("plimsoll:plan", "--plan", wrong), 65, "wrong:5: a size is a multiple of 512 bytes"),
                (("plimsoll:stitch", "--plan", wrong), 64, "--plan is about mode plan"),
                (("pytorch", "--write-plan", wrong), 64, "--write-plan is about mode plan")):
            done = run("replay", trace, "--allocator", *args)
            self.assertEqual((done.returncode, text in done.stderr), (code, True), done.stderr)


if __name__ == "__main__":
    plimtest.main()
