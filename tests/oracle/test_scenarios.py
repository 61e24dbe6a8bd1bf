#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plimsoll diagnose` on snapshots that the real PyTorch makes on a simulated GPU (suite oracle).

The scenes and their truth: scenarios.py and scenes/. Each must get a class that is acceptable for it, in
every way of asking, and a ledger that adds up to the byte.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "integration")]
import plimtest  # noqa: E402
import scenario_answers  # noqa: E402
import simgpu_env  # noqa: E402

BUILD = os.environ.get("PLIMSOLL_BUILD", str(plimtest.ROOT / "build"))
WORKERS = 2


def make_scenes(folder):
    """Run all scenes, in two processes; the log of those that failed to run."""
    python = subprocess.run([str(plimtest.ROOT / "tools" / "oracle_env.sh")], stdout=subprocess.PIPE,
                            check=True).stdout.decode().strip()
    env = simgpu_env.environment(BUILD)
    workers = [subprocess.Popen([python, str(HERE / "scenarios.py"), str(folder), f"--part={i}/{WORKERS}"],
                                env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for i in range(WORKERS)]
    logs = [worker.communicate()[0].decode(errors="replace") for worker in workers]
    return [log for log, worker in zip(logs, workers) if worker.returncode != 0]


class Scenes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.logs = make_scenes(cls.folder)
        cls.answers = list(scenario_answers.answers(plimtest.PROGRAM, cls.folder))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def each_answer(self):
        for name, truth, given in self.answers:
            for way, answer in given.items():
                yield name, way, truth, answer

    def test_all_run(self):
        """every scene runs to its end"""
        self.assertEqual(self.logs, [])
        self.assertGreater(len(self.answers), 100)

    def test_failures(self):
        """a scene about a failure has one, and a healthy one has none"""
        for name, truth, _ in self.answers:
            if truth["expect"] == "healthy":
                self.assertEqual(truth["ooms"], 0, name)
            elif not name.startswith(("not_failed", "stranded_but")):
                self.assertGreater(truth["ooms"], 0, name)

    def test_classes(self):
        """every answer is acceptable, in every way of asking"""
        wrong = [f"{name} ({way}): {answer if isinstance(answer, str) else answer['verdict']}"
                 for name, way, truth, answer in self.each_answer()
                 if isinstance(answer, str) or not scenario_answers.is_right(truth, way, answer)]
        self.assertEqual(wrong, [])

    def test_ledgers(self):
        """every ledger adds up to the device's size, to the byte"""
        gaps = {f"{name} ({way})": scenario_answers.ledger_gap(answer)
                for name, way, _, answer in self.each_answer() if not isinstance(answer, str)}
        self.assertEqual({k: v for k, v in gaps.items() if v}, {})

    def test_advice(self):
        """no advice names a setting that is on"""
        for name, way, truth, answer in self.each_answer():
            for advice in [] if isinstance(answer, str) else answer["advice"]:
                if "expandable_segments:True" in truth["conf"]:
                    self.assertNotIn("expandable_segments:True", advice["action"], f"{name} ({way})")


if __name__ == "__main__":
    plimtest.main()
