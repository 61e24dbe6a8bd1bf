#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plimsoll diagnose` on the small snapshots of tests/data/scenes, whose causes are known; needs no PyTorch."""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "oracle")]
import plimtest  # noqa: E402
import scenario_answers  # noqa: E402

SCENES = HERE.parent / "data" / "scenes"


class Scenes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.truth = json.loads((SCENES / "truth.json").read_text(encoding="utf-8"))
        cls.given = {name: cls.ask(name, truth) for name, truth in cls.truth.items()}

    @staticmethod
    def ask(name, truth):
        """The answers in every way of asking that makes sense."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            shutil.copy(SCENES / (name + ".pickle.xz"), folder / name)
            ways = {way: scenario_answers.arguments_of(way, truth, folder, name) for way in scenario_answers.WAYS}
            return {way: scenario_answers.ask(plimtest.PROGRAM, folder / name, arguments)
                    for way, arguments in ways.items() if arguments is not None}

    def test_classes(self):
        """snapshots with known causes get an acceptable class, with and without the device's size or the message"""
        for name, given in self.given.items():
            for way, answer in given.items():
                self.assertIsInstance(answer, dict, f"{name} ({way}): {answer}")
                self.assertTrue(scenario_answers.is_right(self.truth[name], way, answer),
                                f"{name} ({way}): {answer['verdict']}")

    def test_ledgers(self):
        """their ledgers add up to the byte"""
        for name, given in self.given.items():
            for way, answer in given.items():
                self.assertEqual(scenario_answers.ledger_gap(answer), 0, f"{name} ({way})")

    def test_contract(self):
        """the answers keep the JSON contract"""
        for name, given in self.given.items():
            for way, answer in given.items():
                self.assertEqual(plimtest.schema_complaints(answer), [], f"{name} ({way})")

    def test_places(self):
        """a leak is named by the place that keeps"""
        verdict = self.given["dict_by_request_ring"]["device"]["verdict"]
        self.assertIn("app/serve.py", verdict["summary"])
        verdict = self.given["outputs_kept_ring"]["device"]["verdict"]
        self.assertIn("app/evaluate.py", verdict["summary"])


if __name__ == "__main__":
    plimtest.main()
