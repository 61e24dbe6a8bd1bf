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
DATA = plimtest.ROOT / "tests" / "data" / "snapshots" / "simulated"

STAND_IN = """
import os, re, shutil, sys
need, expandable, good, bad = sys.argv[1:]
if "expandable_segments:True" in os.environ.get("PYTORCH_ALLOC_CONF", ""):
    need = expandable
number, unit = re.search(r"(\\d+)([GM])iB$", os.environ["PLIMSOLL_SIM_GPU"].replace("a100-80gb@", "")).groups()
total = int(number) << (30 if unit == "G" else 20)
fits = int(need) <= total
peak = min(int(need), total)
facts = {"torch": "2.9.0", "build": "cuda 13.0", "used_cuda": 1, "device_total": total, "device_free": total - peak,
         "peak_allocated": peak - (1 << 28), "peak_reserved": peak, "allocated": peak, "reserved": peak}
base = os.path.join(os.environ["PLIMSOLL_DRYRUN_DIR"], str(os.getpid()))
def leave(suffix, snapshot, **more):
    with open(base + suffix + ".txt", "w") as out:
        out.writelines(f"{k} {v}\\n" for k, v in {**facts, **more}.items())
    shutil.copy(snapshot, base + suffix + ".pickle")
if not fits:
    leave(".oom", bad, ooms=1, oom_request=1 << 29, oom_free=1 << 20)
leave("", good, ended=1, ooms=0 if fits else 1, **({} if fits else {"error": "OutOfMemoryError: CUDA out of memory"}))
sys.exit(0 if fits else 1)
"""


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
        out = self.json("--timeout", "3s", "--", "sh", "-c", "sleep 100 & echo $! > child; wait")
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


    def stand_in(self, need, conf_need=None):
        """
        The command of a program that leaves behind what the start hook leaves of a PyTorch program which needs so many bytes:
        facts and a snapshot, and at a failure those of the failure. With `conf_need` another size under expandable segments.
        """
        program = self.folder / "stand_in.py"
        program.write_text(STAND_IN)
        return ["--", sys.executable, program, str(need), str(conf_need or need), str(DATA / "healthy.pickle.xz"),
                str(DATA / "hf-llama8b-oom-24g.pickle")]

    def test_the_smallest_card_is_found_by_few_runs(self):
        """the largest size first, none below what is needed, then halves; the card asked for keeps its name"""
        out = self.json("--gpu", "a100-80gb", "--find-smallest", *self.stand_in(21 * GIB))
        self.assertEqual(out["smallest_gib"], 24)
        sizes = [run["nominal_gib"] for run in out["runs"]]
        self.assertEqual(sizes[0], 288)
        self.assertTrue(len(sizes) <= 6 and min(sizes) == 24, sizes)
        self.assertTrue(all(run["gpu"].startswith("a100-80gb@") for run in out["runs"]))
        judged = out["runs"][out["judged_run"]]
        self.assertEqual((judged["nominal_gib"], judged["fits"]), (24, True))
        self.assertTrue((self.folder / "dryrun.pickle").is_file())

    def test_sizes_above_the_bound_that_do_not_fit_are_passed_over(self):
        """what a program needs besides its peak is only seen by running: the next size that fits is found"""
        out = self.json("--gpu", "24GiB", "--find-smallest", *self.stand_in(45 * GIB))
        self.assertEqual(out["smallest_gib"], 48)
        self.assertTrue(all("@" not in run["gpu"] for run in out["runs"]))
        text = self.run_it("--gpu", "24GiB", "--find-smallest", *self.stand_in(45 * GIB))
        self.assertIn(b"48", text.stdout)

    def test_nothing_fits(self):
        """a program that is too large for the largest card has no smallest one, after one run"""
        out = self.json("--find-smallest", "--check", *self.stand_in(300 * GIB), code=1)
        self.assertEqual((out["smallest_gib"], len(out["runs"])), (None, 1))
        self.assertEqual(out["runs"][0]["outcome"], "out_of_memory")

    def test_settings_side_by_side(self):
        """each --conf is a run of its own; the one that failed is explained, and its snapshot kept"""
        out = self.json("--gpu", "24GiB", "--conf", "expandable_segments:True", "--conf", "max_split_size_mb:64",
                        "--snapshot", "kept.pickle", *self.stand_in(30 * GIB, 20 * GIB))
        self.assertEqual([run["outcome"] for run in out["runs"]], ["fits", "out_of_memory"])
        self.assertEqual([run["conf"] for run in out["runs"]], ["expandable_segments:True", "max_split_size_mb:64"])
        self.assertEqual(out["judged_run"], 1)
        self.assertEqual((self.folder / "kept.pickle").read_bytes(), (DATA / "hf-llama8b-oom-24g.pickle").read_bytes())
        self.assertEqual(out["verdict"]["class"], "fragmentation")

    def test_a_snapshot_that_cannot_be_read_or_kept(self):
        """a damaged snapshot leaves the run without a verdict; a place that cannot be written to is an error"""
        command = self.stand_in(10 * GIB)
        damaged = self.folder / "damaged.pickle"
        damaged.write_bytes(b"no pickle")
        out = self.json("--gpu", "24GiB", *command[:5], damaged, command[6])
        self.assertEqual((out["judged_run"], out["runs"][0]["fits"]), (None, True))
        result = self.run_it("--gpu", "24GiB", "--snapshot", "/no/such/folder/a.pickle", *command)
        self.assertEqual(result.returncode, 73)
        self.assertEqual(list(self.temporary.glob("plimsoll-dryrun-*")), [])


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

    def test_allocators_that_record_no_history(self):
        """Plimsoll's allocator and cudaMallocAsync record nothing: the program runs all the same, and so does its end"""
        build = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", plimtest.ROOT / "build"))
        ours = {"PYTHONPATH": str(build / "python"),
                "PLIMSOLL_ALLOC_LIBRARY": str(build / "runtime" / "allocator" / "libplimsoll_alloc.so")}
        programs = str(HERE / "programs.py")
        out = self.json("--gpu", "24GiB", "--", self.python, "-m", "plimsoll.alloc", programs, "leak", "200", "10",
                        **ours)
        run = out["runs"][0]
        self.assertEqual((run["outcome"], run["peak"]["allocated_bytes"]), ("fits", 10 * 200 * MIB))
        self.assertEqual(run["peak"]["device_bytes"], run["peak"]["reserved_bytes"] + run["context_bytes"])
        self.assertGreater(out["ledger"]["total"]["bytes"], 0)
        small = ["--gpu", "4GiB", "--context", "256MiB", "--external", "1GiB"]
        out = self.json(*small, "--", self.python, "-m", "plimsoll.alloc", programs, "leak", "200", "200", **ours)
        run = out["runs"][0]
        self.assertEqual((run["outcome"], run["peak"]["allocated_bytes"]), ("out_of_memory", 14 * 200 * MIB))
        self.assertEqual(run["processes"][0]["oom_request_bytes"], 200 * MIB)
        out = self.json(*small, "-c", "backend:cudaMallocAsync", *self.program("leak", 200))
        self.assertEqual(out["runs"][0]["outcome"], "out_of_memory")

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
        for limit in ("12s", "60s"):  # PyTorch itself may need the shorter one on a busy machine
            result = self.run_it("--timeout", limit, *self.program("never"))
            self.assertEqual(result.returncode, 0)
            if b"a value that only a real device computes" in result.stdout:
                break
        self.assertIn(b"DID NOT END in the time given", result.stdout)
        self.assertIn(b"a value that only a real device computes", result.stdout)


if __name__ == "__main__":
    plimtest.main()
