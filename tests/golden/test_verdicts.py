#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verdicts of `plimsoll diagnose` on the bundled snapshots with known causes, and the books behind them.

The statistics in truth.json are PyTorch's own, so the ledger is compared with them to the byte.
"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

SNAPSHOTS = plimtest.ROOT / "tests" / "data" / "snapshots"
SIMULATED = SNAPSHOTS / "simulated"
TRUTH = json.loads((SIMULATED / "truth.json").read_text(encoding="utf-8"))


def path_of(name):
    plain = SIMULATED / f"{name}.pickle"
    return plain if plain.exists() else SIMULATED / f"{name}.pickle.xz"


def diagnose(path, *args):
    run = plimtest.run("diagnose", path, "--format", "json", *args)
    if run.returncode != 0:
        raise AssertionError(f"exit {run.returncode}: {run.stderr.decode()}")
    answer = json.loads(run.stdout)
    complaints = plimtest.schema_complaints(answer)
    if complaints:
        raise AssertionError("\n".join(complaints))
    return answer


class Verdicts(unittest.TestCase):
    def check(self, name, answer):
        truth = TRUTH[name]
        verdict = answer["verdict"]
        self.assertEqual((verdict["class"], verdict["subclass"]), (truth["class"], truth["subclass"]), name)
        self.check_ledger(name, answer["ledger"], truth)

    def check_ledger(self, name, ledger, truth):
        owners = {key: amount["bytes"] for key, amount in ledger["owners"].items()}
        stats = truth["memory_stats"]
        self.assertEqual(ledger["reserved"]["bytes"], stats["reserved_bytes.all.current"], name)
        self.assertEqual(ledger["allocated"]["bytes"], stats["allocated_bytes.all.current"], name)
        self.assertEqual(owners["live"], stats["requested_bytes.all.current"], name)
        slack = sum(owners.get(key, 0) for key in ("stranded", "releasable", "private_pool_free"))
        self.assertEqual(owners["live"] + owners["rounding"] + slack, ledger["reserved"]["bytes"], name)
        if "total" in ledger and "free" in owners:
            self.assertEqual(sum(owners.values()), truth["device_total_bytes"], name)
        if truth["oom_message"]:
            self.assertEqual(owners["free"], truth["device_free_bytes"], name)

    def test_with_the_size_of_the_device(self):
        """every known cause is found from the snapshot and the device's size, and the ledger adds up"""
        for name, truth in TRUTH.items():
            with self.subTest(name):
                self.check(name, diagnose(path_of(name), "--device-memory", truth["device_total_bytes"]))

    def test_with_the_message(self):
        """every known cause of a failure is found from the snapshot and its message"""
        for name, truth in TRUTH.items():
            if truth["oom_message"] is None:
                continue
            with self.subTest(name), tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
                text.write(truth["oom_message"])
                text.flush()
                answer = diagnose(path_of(name), "--oom-text", text.name)
                self.check(name, answer)
                mismatch = [e for e in answer["evidence"] if "different moments" in e["text"]]
                self.assertEqual(mismatch, [], "message and snapshot are of one moment")

    def test_real_snapshots_are_healthy(self):
        """the public snapshots, in which nothing failed, are healthy; slack that is releasable is no fault"""
        for path in sorted(SNAPSHOTS.glob("*.pickle")):
            with self.subTest(path.name):
                self.assertEqual(diagnose(path)["verdict"]["class"], "healthy")

    def test_message_of_another_failure(self):
        """a message that does not belong to the snapshot is noticed"""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write(TRUTH["huge_request"]["oom_message"])
            text.flush()
            answer = diagnose(path_of("kv_cat"), "--oom-text", text.name)
        self.assertTrue(any("different moments" in e["text"] for e in answer["evidence"]))

    def test_text_without_failure(self):
        """a text that tells of no failure is refused with a hint"""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write("all is well\n")
            text.flush()
            run = plimtest.run("diagnose", path_of("kv_cat"), "--oom-text", text.name)
        self.assertEqual(run.returncode, 65)
        self.assertIn(b"no failure", run.stderr)


if __name__ == "__main__":
    plimtest.main()
