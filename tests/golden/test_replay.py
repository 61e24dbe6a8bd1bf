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
import pickle
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

    def test_odd_pages(self):
        """expandable segments of pages that the driver refuses are refused, and tune does not try them"""
        wrong = "expandable_segments:True,large_segment_size_mb:13"
        done = subprocess.run([str(plimtest.PROGRAM), "replay", str(self.trace["kv-growth"]), "--conf", wrong],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 69)
        self.assertIn("multiple of its 2 MiB pages", done.stderr)
        for run in self.tune("kv-growth")["runs"]:
            if "expandable_segments:True" in run["conf"]:
                self.assertNotRegex(run["conf"], r"large_segment_size_mb:\d*[13579]\b")

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

    def test_a_failure_that_its_own_settings_serve_is_said_to_be_unexplained(self):
        """a recorded failure that the recorded settings serve is said to be not reproduced; others are not"""
        where = {"addr": 0x7f0000000000, "stream": 0, "frames": []}
        trace = [{"action": "segment_alloc", "size": 20 << 20, **where},
                 {"action": "alloc", "size": 9 << 20, **where},
                 {"action": "free_requested", "size": 9 << 20, **where},
                 {"action": "free_completed", "size": 9 << 20, **where},
                 {"action": "oom", "size": 8 << 20, "device_free": 0, "stream": 0, "frames": []}]
        segment = {"device": 0, "address": where["addr"], "total_size": 20 << 20, "stream": 0, "segment_type": "large",
                   "allocated_size": 0, "active_size": 0, "requested_size": 0, "is_expandable": False,
                   "segment_pool_id": (0, 0),
                   "blocks": [{"address": where["addr"], "size": 20 << 20, "requested_size": 0, "state": "inactive"}]}
        path = pathlib.Path(self.folder.name) / "unexplained.pickle"
        path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [trace]}))
        got = plimsoll("replay", path, "--format", "json")
        self.assertEqual(got["recorded_failure"], {"event": 4, "request_bytes": 8 << 20, "room_bytes": 20 << 20,
                                                   "reproduced": False})
        for form in ("text", "markdown"):
            said = " ".join(subprocess.run([PLIMSOLL, "replay", path, "--format", form], capture_output=True, text=True,
                                           check=True).stdout.split())
            self.assertIn("The failure in the recording", said)
            self.assertIn("It is not reproduced", said)
        known = [path for path in SNAPSHOTS.rglob("*.pickle") if path.name not in IMPOSSIBLE]
        failures = [plimsoll("replay", path, "--format", "json")["recorded_failure"] for path in known]
        self.assertTrue(any(failures))
        self.assertTrue(all(failure is None or failure["reproduced"] for failure in failures), failures)

    def test_growing_requests_need_more(self):
        """requests scaled up need more memory, those that stay keep their size"""
        args = ("replay", self.trace["kv-growth"], "--format", "json")
        one = plimsoll(*args)["peak"]["requested_bytes"]
        more = plimsoll(*args, "--scale", "1.2")["peak"]["requested_bytes"]
        self.assertGreater(more, one)
        self.assertLess(more, one * 1.2)

    def tune(self, name, *args):
        truth = json.loads((TUNE / f"{name}.json").read_text(encoding="utf-8"))
        return plimsoll("tune", self.trace[name], "--format", "json",
                        "--device-memory", truth["device_total_bytes"],
                        "--external", truth["driver_overhead_bytes"], *args)

    def test_the_search_ranks_and_bounds(self):
        """tune tries at least 64 settings, finds those that fit, and bounds them"""
        got = self.tune("kv-growth")
        runs = got["runs"]
        self.assertGreaterEqual(len(runs), 64)
        self.assertEqual(len({run["conf"] for run in runs if run["conf"]}), len([r for r in runs if r["conf"]]))
        fits = [run["fits"] for run in runs]
        self.assertEqual(fits, sorted(fits, reverse=True))
        self.assertIn("expandable_segments:True", {r["conf"] for r in runs if r["fits"]})
        self.assertLessEqual(got["bound"]["live_bytes"], got["bound"]["packed_bytes"])
        for run in runs:
            if run["fits"]:
                self.assertGreaterEqual(run["peak"]["reserved_bytes"], got["bound"]["live_bytes"], run["conf"])
            if "needs_bytes" in run:
                self.assertGreaterEqual(run["needs_bytes"], got["bound"]["live_bytes"], run["conf"])

    def test_runs_of_a_search_are_replays(self):
        """a run of tune is what replay says about the same settings"""
        truth = json.loads((TUNE / "kv-growth.json").read_text(encoding="utf-8"))
        runs = {run["conf"]: run for run in self.tune("kv-growth")["runs"]}
        known = [run for run in truth["runs"] if run["conf"] in runs]
        self.assertGreaterEqual(len(known), 5)
        for run in known:
            for key in ("first_oom", "peak", "counters"):
                self.assertEqual(runs[run["conf"]][key], run[key], f"{run['conf']}: {key}")

    def test_when_nothing_helps_it_says_so(self):
        """tune says that no setting helps when more is wanted at once than there is"""
        got = self.tune("streams")
        self.assertIsNone(got["recommended"])
        self.assertIn("No setting helps", got["summary"])
        self.assertGreater(got["bound"]["live_bytes"], 24 * 2**30 - 524288000)

    def test_a_failure_that_no_setting_explains_is_not_called_served(self):
        """tune does not say that all is well of a run that leaked until it failed, though a fresh heap serves it"""
        got = plimsoll("tune", plimtest.ROOT / "tests" / "data" / "snapshots" / "simulated" / "leak_list.pickle.xz",
                       "--format", "json")
        self.assertIsNone(got["recommended"])
        self.assertTrue(got["summary"].startswith("No setting helps much"), got["summary"])
        self.assertIn("fresh heap", got["summary"])

    def test_the_number_of_threads_changes_nothing(self):
        """one thread and four give the same answer"""
        self.assertEqual(self.tune("kv-growth", "--threads", 1), self.tune("kv-growth", "--threads", 4))

    def test_the_smallest_card_is_tight(self):
        """the smallest card that fits serves the run, the next smaller one does not"""
        got = plimsoll("tune", self.trace["kv-growth"], "--format", "json", "--vary", "device-memory",
                       "--external", 524288000)
        best = got["recommended"]["run"]
        self.assertTrue(got["runs"][best]["fits"])
        self.assertFalse(any(run["fits"] for run in got["runs"][:best]))
        self.assertGreater(best, 0)

    def test_the_moving_allocator_stands_beside_the_settings(self):
        """what tune says of Plimsoll's allocator is what a replay on it says; reserved stays within 5 % of live"""
        own = self.tune("kv-growth")["plimsoll_allocator"]
        replayed = plimsoll("replay", self.trace["kv-growth"], "--format", "json", "--allocator", "plimsoll",
                            "--device-memory", own["capacity_bytes"], "--external", own["external_bytes"])
        self.assertEqual((own["peak"], own["counters"]), (replayed["peak"], replayed["counters"]))
        self.assertTrue(own["fits"])
        self.assertLessEqual(own["peak"]["reserved_bytes"], 1.05 * own["peak"]["requested_bytes"])
        expandable = plimsoll("replay", self.trace["kv-growth"], "--format", "json", "--conf",
                              "expandable_segments:True")
        self.assertLess(own["peak"]["reserved_bytes"], expandable["peak"]["reserved_bytes"])

    def test_the_moving_allocator_goes_on_where_room_is_short(self):
        """with 1.6 % more than is live at most, Plimsoll's allocator serves everything"""
        tight = plimsoll("replay", self.trace["kv-growth"], "--format", "json", "--allocator", "plimsoll",
                         "--device-memory", "21GiB")
        self.assertIsNone(tight["first_oom"])
        self.assertLess(21 * 2**30, 1.017 * tight["peak"]["requested_bytes"])

    def test_modes_of_the_moving_allocator_round_as_they_say(self):
        """a mode rounds what is live up, by no more than it says, and tune says the same of it as replay"""
        def run(mode, *args):
            got = plimsoll("replay", self.trace["kv-growth"], "--format", "json", "--allocator", "plimsoll:" + mode, *args)
            self.assertEqual((got["allocator"], got["mode"]), ("plimsoll", mode))
            return got

        stitch, hybrid = run("stitch"), run("hybrid")
        pool = run("pool", "--sizes", "1048576,4194304,33554432")
        requested = stitch["peak"]["requested_bytes"]
        self.assertEqual(stitch["peak"], plimsoll("replay", self.trace["kv-growth"], "--format", "json", "--allocator",
                                                  "plimsoll")["peak"])
        for got in (hybrid, pool):
            self.assertEqual(got["peak"]["requested_bytes"], requested)
            self.assertEqual(got["allocations"], stitch["allocations"])
        self.assertGreater(pool["peak"]["allocated_bytes"], stitch["peak"]["allocated_bytes"])
        self.assertTrue(stitch["peak"]["allocated_bytes"] <= hybrid["peak"]["allocated_bytes"] < 1.125 * requested)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("33554432\n4194304\n1048576\n")
            file.flush()
            self.assertEqual(run("pool", "--sizes", "@" + file.name), pool)
        tuned = plimsoll("tune", self.trace["kv-growth"], "--format", "json", "--allocator", "plimsoll:hybrid")
        self.assertEqual(tuned["plimsoll_mode"], "hybrid")
        self.assertEqual(tuned["plimsoll_allocator"]["peak"], hybrid["peak"])

    def test_one_key_varies_and_the_rest_stays(self):
        """with --vary only that key differs between the runs"""
        got = self.tune("kv-growth", "--vary", "max_split_size_mb", "--conf", "roundup_power2_divisions:8")
        for run in got["runs"]:
            keys = {pair.split(":")[0] for pair in run["conf"].split(",")}
            self.assertLessEqual(keys, {"roundup_power2_divisions", "max_split_size_mb"})
            self.assertIn("roundup_power2_divisions:8", run["conf"])

    def test_the_diagnosis_says_what_a_replay_found(self):
        """advice carries the replayed effect, which a replay confirms; --no-replay leaves an estimate"""
        oom = SNAPSHOTS / "simulated" / "hf-llama8b-oom-24g.pickle"

        def expandable(*args):
            advice = plimsoll("diagnose", oom, "--format", "json", *args)["advice"]
            return next(a for a in advice if "expandable_segments:True" in a["action"])

        self.assertEqual(expandable()["effect"]["how"], "replayed")
        self.assertEqual(expandable("--no-replay")["effect"]["how"], "estimated")
        got = plimsoll("replay", oom, "--conf", "expandable_segments:True", "--format", "json")
        self.assertIsNone(got["first_oom"])

    def test_advice_that_does_nothing_is_not_given(self):
        """a setting that the replay shows to fail too is not advised, and the evidence says so"""
        oom = SNAPSHOTS / "simulated" / "capacity_load.pickle"
        got = plimsoll("diagnose", oom, "--format", "json")
        self.assertFalse([a for a in got["advice"] if "PYTORCH_ALLOC_CONF" in a["action"]])


if __name__ == "__main__":
    plimtest.main()
