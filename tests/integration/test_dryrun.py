#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll dryrun: real programs, every way they can end, and what the report says about them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
import test_simgpu_torch  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
GIB = 1 << 30


class DryrunCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()

    def run_it(self, *args, **env):
        env.setdefault("TMPDIR", str(self.temporary))
        return plimtest.run("dryrun", *args, cwd=self.folder, timeout=300, **env)

    def json(self, *args, code=0, **env):
        result = self.run_it("--format", "json", *args, **env)
        self.assertEqual(result.returncode, code, result.stderr.decode()[-3000:])
        document = json.loads(result.stdout)
        self.assertEqual(plimtest.schema_complaints(document), [])
        self.assertEqual(list(self.temporary.glob("plimsoll-dryrun-*")), [], "temporary folders were left")
        return document


class WithoutTorchTest(DryrunCase):
    def test_wrong_use_is_said(self):
        """a missing command, an unknown card and a command that is not there are said and have their codes"""
        result = self.run_it()
        self.assertEqual(result.returncode, 64)
        self.assertIn(b"needs a command", result.stderr)
        result = self.run_it("--gpu", "a100-80", "--", "true")
        self.assertEqual(result.returncode, 64)
        self.assertIn(b"did you mean 'a100-80gb'", result.stderr)
        result = self.run_it("--", "/no/such/program")
        self.assertEqual(result.returncode, 66)
        self.assertIn(b"cannot run '/no/such/program'", result.stderr)

    def test_a_program_that_uses_no_gpu(self):
        """a program that uses no GPU is reported as such, and its exit status is kept"""
        out = self.json("--", "sh", "-c", "echo hello; exit 0")
        self.assertEqual(out["runs"][0]["outcome"], "no_cuda")
        out = self.json("--check", "--", "sh", "-c", "exit 7", code=1)
        self.assertEqual((out["runs"][0]["outcome"], out["runs"][0]["exit_status"]), ("failed", 7))

    def test_a_signal_is_a_crash(self):
        """a command that is killed is a crash with its signal"""
        out = self.json("--", "sh", "-c", "kill -9 $$")
        self.assertEqual((out["runs"][0]["outcome"], out["runs"][0]["signal"]), ("crashed", 9))

    def test_a_time_limit_ends_the_whole_group(self):
        """a time limit ends the command and what it started"""
        out = self.json("--timeout", "1s", "--", "sh", "-c", "sleep 100 & echo $! > child; wait")
        self.assertEqual(out["runs"][0]["outcome"], "timed_out")
        child = int((self.folder / "child").read_text())
        self.assertFalse(pathlib.Path(f"/proc/{child}/fd").exists() and
                         "sleep" in pathlib.Path(f"/proc/{child}/cmdline").read_text())

    def test_a_cpu_build_is_named(self):
        """a PyTorch without CUDA is named as the reason"""
        package = self.folder / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("__version__ = '2.9.0+cpu'\nfrom . import version\n")
        (package / "version.py").write_text("cuda = None\nhip = None\n")
        out = self.json("--", sys.executable, "-c", "import torch", PYTHONPATH=str(self.folder))
        self.assertEqual(out["runs"][0]["outcome"], "cpu_build")
        text = self.run_it("--", sys.executable, "-c", "import torch", PYTHONPATH=str(self.folder))
        self.assertIn(b"torch 2.9.0+cpu is a CPU build", text.stdout)

    def test_looking_for_torch_is_not_importing_it(self):
        """a program that looks whether PyTorch is there before it imports it is seen all the same"""
        package = self.folder / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("__version__ = '2.9.0+cpu'\nfrom . import version\n")
        (package / "version.py").write_text("cuda = None\n")
        code = "import importlib.util; assert importlib.util.find_spec('torch'); import torch"
        out = self.json("--", sys.executable, "-c", code, PYTHONPATH=str(self.folder))
        self.assertEqual(out["runs"][0]["outcome"], "cpu_build")

    def test_the_users_own_sitecustomize_runs(self):
        """a sitecustomize that was there before still runs"""
        (self.folder / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 5\n")
        out = self.json("--", sys.executable, "-c", "import sys; sys.exit(mine)", PYTHONPATH=str(self.folder))
        self.assertEqual(out["runs"][0]["exit_status"], 5)

    def test_missing_functions_are_named(self):
        """a call of something that is not simulated is named in the report"""
        code = "import ctypes; ctypes.CDLL('libcudart.so.13').cudaMallocArray(0, 0, 0, 0, 0)"
        out = self.json("--", sys.executable, "-c", code)
        self.assertEqual(out["runs"][0]["missing"], ["cudaMallocArray"])
        text = self.run_it("--", sys.executable, "-c", code)
        self.assertIn(b"cudaMallocArray was called, which the simulated GPU does not have", text.stdout)


class WithTorchTest(DryrunCase):
    @classmethod
    def setUpClass(cls):
        cls.python = test_simgpu_torch.interpreter()

    def program(self, *args):
        return ["--", self.python, str(HERE / "programs.py"), *map(str, args)]

    def test_a_training_run_that_fits(self):
        """a training run that fits: peaks, ledger, headroom, snapshot"""
        out = self.json("--gpu", "24GiB", "--context", "500MiB", *self.program("train"))
        run = out["runs"][0]
        self.assertEqual(run["outcome"], "fits")
        self.assertEqual(run["total_bytes"], 24 * GIB)
        self.assertEqual(run["peak"]["device_bytes"], run["peak"]["reserved_bytes"] + 500 * MIB)
        self.assertEqual(run["headroom_bytes"], 24 * GIB - run["peak"]["device_bytes"])
        self.assertEqual(out["verdict"]["class"], "healthy")
        owners = out["ledger"]["owners"]
        self.assertEqual(sum(o["bytes"] for o in owners.values()), out["ledger"]["total"]["bytes"])
        self.assertEqual(out["ledger"]["allocated"]["bytes"], run["peak"]["allocated_bytes"])
        again = plimtest.run("diagnose", "--at", "peak", "--format", "json", self.folder / out["snapshot"])
        self.assertEqual(json.loads(again.stdout)["ledger"]["allocated"]["bytes"],
                         run["peak"]["allocated_bytes"])

    def test_running_out_of_memory(self):
        """running out of memory gives the failing request and the verdict"""
        out = self.json("--gpu", "4GiB", "--context", "256MiB", "--external", "1GiB", "--check",
                        *self.program("leak", 200), code=1)
        run = out["runs"][0]
        self.assertEqual(run["outcome"], "out_of_memory")
        # 2816 MiB are for the program: 14 pieces of 200 MiB.
        self.assertEqual(run["peak"]["allocated_bytes"], 14 * 200 * MIB)
        self.assertEqual(run["processes"][0]["oom_request_bytes"], 200 * MIB)
        self.assertEqual(run["processes"][0]["oom_free_bytes"], 16 * MIB)
        self.assertIn("OutOfMemoryError", run["processes"][0]["error"])
        self.assertEqual((out["verdict"]["class"], out["verdict"]["subclass"]), ("external", "other_process"))
        self.assertEqual(out["ledger"]["owners"]["other_processes"]["bytes"], GIB)
        out = self.json("--gpu", "4GiB", *self.program("leak", 5000, 1))
        self.assertEqual((out["verdict"]["class"], out["verdict"]["subclass"]), ("capacity", "single_request"))

    def test_settings_side_by_side(self):
        """several settings are run one after the other"""
        out = self.json("--gpu", "24GiB", "-c", "", "-c", "expandable_segments:True", *self.program("expandable"))
        self.assertEqual([r["conf"] for r in out["runs"]], ["", "expandable_segments:True"])
        self.assertTrue(all(r["fits"] for r in out["runs"]))

    def test_the_smallest_card_is_found(self):
        """the smallest card that fits is found, and the next smaller one was tried or cannot hold the peak"""
        out = self.json("--find-smallest", "--gpu", "a100-80gb", "--context", "500MiB",
                        *self.program("leak", 512, 10))
        # 5 GiB and the context: a card of 6 GiB has 5.9 usable.
        self.assertEqual(out["smallest_gib"], 6)
        tried = {r["nominal_gib"]: r["fits"] for r in out["runs"]}
        self.assertTrue(tried[6])
        self.assertNotIn(True, [fits for size, fits in tried.items() if size < 6])

    def test_processes_share_the_device(self):
        """two child processes share the device, and the report has both"""
        out = self.json("--gpu", "8GiB", *self.program("children", 1000))
        run = out["runs"][0]
        users = [p for p in run["processes"] if p["used_cuda"]]
        self.assertEqual(len(users), 2)
        self.assertEqual([p["peak_allocated_bytes"] for p in users], [1000 * MIB] * 2)
        self.assertGreaterEqual(run["peak"]["device_bytes"], 2000 * MIB + 2 * run["context_bytes"])

    def test_a_crash_is_reported_with_what_was_recorded(self):
        """a crash is reported with what was recorded until then"""
        out = self.json("--gpu", "8GiB", *self.program("crash"))
        run = out["runs"][0]
        self.assertEqual((run["outcome"], run["signal"]), ("crashed", 11))
        self.assertEqual(run["peak"]["allocated_bytes"], 100 * MIB)
        self.assertFalse(run["processes"][0]["ended"])
        self.assertIsNotNone(out["judged_run"])

    def test_a_program_that_waits_for_a_value(self):
        """a program that waits for a value of the device is ended by the time limit, and the report says why"""
        result = self.run_it("--timeout", "12s", *self.program("never"))
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"DID NOT END in the time given", result.stdout)
        self.assertIn(b"a value that only a real device computes", result.stdout)


if __name__ == "__main__":
    plimtest.main()
