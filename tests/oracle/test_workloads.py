#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workload models against real programs (suite oracle): the same allocations and frees in the same order."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "integration")]
import plimtest  # noqa: E402
import simgpu_env  # noqa: E402

BUILD = os.environ.get("PLIMSOLL_BUILD", str(plimtest.ROOT / "build"))
LLAMA = {"program": "text", "layers": 2, "hidden": 256, "heads": 4, "kv_heads": 2, "head_dim": 64,
         "intermediate": 688, "vocab": 32000, "batch": 1, "length": 37, "steps": 3, "masked": 0}
CLIP = {"program": "vision", "layers": 3, "hidden": 256, "heads": 4, "intermediate": 1024, "side": 224,
        "patch": 14, "images": 2}
DECODER = {"program": "decoder", "c0": 256, "c1": 256, "c2": 128, "c3": 64, "height": 16, "width": 24}
CASES = [
    {"name": "one sequence with a growing cache", **LLAMA},
    {"name": "a batch, one layer, multi-query attention", **LLAMA, "layers": 1, "kv_heads": 1, "batch": 5},
    {"name": "every head with its own keys", **LLAMA, "kv_heads": 4, "length": 128, "steps": 4},
    {"name": "a padded batch", **LLAMA, "batch": 3, "masked": 1},
    {"name": "a padded batch without groups", **LLAMA, "batch": 2, "kv_heads": 4, "length": 64, "masked": 1},
    {"name": "a head dimension of its own", **LLAMA, "head_dim": 128, "batch": 2, "masked": 1},
    {"name": "a vision encoder on two pictures", **CLIP},
    {"name": "a vision encoder with other patches", **CLIP, "patch": 16, "images": 1, "layers": 1},
    {"name": "a picture decoded", **DECODER},
    {"name": "a wide picture decoded", **DECODER, "height": 8, "width": 40, "c0": 128},
]


def first_difference(real, model):
    at = next((i for i, (a, b) in enumerate(zip(real, model)) if a != b), min(len(real), len(model)))
    return f"entry {at} of {len(real)} (real) and {len(model)}: {real[at - 3:at + 4]} {model[at - 3:at + 4]}"


class Workloads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = subprocess.run([str(plimtest.ROOT / "tools" / "oracle_env.sh"), "--hf"], stdout=subprocess.PIPE,
                                check=True).stdout.decode().strip()
        result = subprocess.run([python, str(HERE / "workload_real.py"), json.dumps(CASES)], check=False,
                                env=simgpu_env.environment(BUILD, gpu="24GiB"), capture_output=True, timeout=600)
        if result.returncode:
            raise RuntimeError(result.stderr.decode(errors="replace")[-3000:])
        line = next(x for x in result.stdout.decode().splitlines() if x.startswith("RESULT "))
        cls.real = json.loads(line[len("RESULT "):])

    def compare(self, program):
        for case in CASES:
            if case["program"] != program:
                continue
            with self.subTest(case["name"]):
                words = [f"{k}={v}" for k, v in case.items() if k not in ("name", "program")]
                model = subprocess.run([f"{BUILD}/tests/oracle/workload_model", program, *words], check=True,
                                       stdout=subprocess.PIPE).stdout.decode().splitlines()
                real = self.real[case["name"]]
                self.assertGreater(len(real), 50)
                self.assertTrue(real == model, first_difference(real, model))

    def test_text(self):
        """text models with a growing cache allocate and free as transformers does"""
        self.compare("text")

    def test_vision(self):
        """vision encoders allocate and free as transformers does"""
        self.compare("vision")

    def test_decoder(self):
        """image decoders allocate and free as their layers do in PyTorch"""
        self.compare("decoder")


if __name__ == "__main__":
    plimtest.main()
