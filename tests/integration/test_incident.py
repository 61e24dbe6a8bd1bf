#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `plimsoll record` leaves behind when programs on the simulated GPU end badly: ran out of memory, killed, aborted.

WithoutTorch: programs that call the CUDA runtime themselves. WithTorch: real PyTorch, whose attach leaves snapshots.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
sys.path.insert(0, str(HERE))
import plimtest  # noqa: E402
import simgpu_env  # noqa: E402

BUILD = pathlib.Path(os.environ["PLIMSOLL_BUILD"])
GIB = 1 << 30

PLAIN = """
import ctypes, os, signal, sys, time
rt = ctypes.CDLL("libcudart.so.13")
p = ctypes.c_void_p()
def take(gib):
    return rt.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(gib << 30))
take(3)
time.sleep(float(os.environ.get("WAIT", "2.5")))  # a sample is taken each second
"""


class Case(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def record(self, python, program, *options, **settings):
        """Run a Python program under record; the finished process, and its incidents' manifests by kind."""
        (self.folder / "program.py").write_text(program)
        env = simgpu_env.environment(BUILD, gpu="24GiB", state=self.folder / "books")
        env.update(settings)
        done = subprocess.run([plimtest.PROGRAM, "record", "-q", *options, "--", str(python), "program.py"], cwd=self.folder,
                              env=env, capture_output=True, timeout=300, check=False)
        self.place = self.folder / "plimsoll-incidents"
        found = sorted(self.place.iterdir()) if self.place.exists() else []
        return done, found

    def one(self, found):
        self.assertEqual(len(found), 1, found)
        result = plimtest.run("incident", "--format", "json", found[0])
        self.assertEqual(result.returncode, 0, result.stderr)
        manifest = json.loads(result.stdout)
        self.assertEqual(plimtest.schema_complaints(manifest), [])
        return manifest

    def samples(self, incident):
        lines = [json.loads(line) for line in (incident / "samples.jsonl").read_text().splitlines()]
        for line in lines:
            self.assertEqual(plimtest.schema_complaints(line), [])
        return lines


class WithoutTorch(Case):
    def test_ways_to_end_badly(self):
        """abort, a fault, kill -9 and _exit each leave an incident of their kind, and the exit is the program's"""
        for code, kind, returned in (("os.abort()", "crash", -signal.SIGABRT),
                                     ("os.kill(os.getpid(), signal.SIGSEGV)", "crash", -signal.SIGSEGV),
                                     ("os.kill(os.getpid(), signal.SIGKILL)", "signal", -signal.SIGKILL),
                                     ("os._exit(3)", "exit", 3)):
            with self.subTest(code):
                done, found = self.record(sys.executable, PLAIN + code, WAIT="0")
                self.assertEqual(done.returncode, returned, done.stderr)
                manifest = self.one(found)
                self.assertEqual(manifest["kind"], kind)
                self.assertIn("trace.plt", [f["name"] for f in manifest["files"]])
                subprocess.run(["rm", "-r", self.place], check=True)

    def test_ends_that_are_no_incident(self):
        """an orderly end, SIGTERM, and a failing program without a device leave nothing"""
        for program in (PLAIN, PLAIN + "os.kill(os.getpid(), signal.SIGTERM)", "import sys; sys.exit(4)"):
            _, found = self.record(sys.executable, program, WAIT="0")
            self.assertEqual(found, [])
        _, found = self.record(sys.executable, PLAIN + "os.abort()", "--no-incidents", WAIT="0")
        self.assertEqual(found, [])

    def test_a_refused_request_is_judged_by_the_recording(self):
        """a program without PyTorch that runs out of memory: the trace gives the verdict, samples say who held what"""
        done, found = self.record(sys.executable, PLAIN + "sys.exit(5 if take(30) else 0)")
        self.assertEqual(done.returncode, 5, done.stderr)
        manifest = self.one(found)
        self.assertEqual((manifest["kind"], manifest["verdict"]["class"]), ("oom", "capacity"))
        last = self.samples(found[0])[-1]
        device, = last["devices"]
        context = device["used_bytes"] - 3 * GIB
        self.assertTrue(0 < context < GIB, device)
        self.assertEqual([u["bytes"] for u in last["uses"]], [device["used_bytes"]])
        self.assertEqual(device["used_bytes"] + device["free_bytes"] + device["reserved_bytes"], device["total_bytes"])

    def test_what_breaks_in_nvml_is_a_state_and_no_more(self):
        """not supported, denied, lost and slow drivers are told of, and the program and its incident are as ever"""
        script = self.folder / "nvml"
        for lines, state in (("DeviceGetMemoryInfo* 4\n", "denied"), ("DeviceGetMemoryInfo* 15\n", "lost"),
                             ("DeviceGetMemoryInfo* 999\n", "error"), ("DeviceGetCompute* 3\nxid 0 79\n", "ok")):
            with self.subTest(lines):
                script.write_text(lines)
                _, found = self.record(sys.executable, PLAIN + "os.abort()", PLIMSOLL_SIM_NVML=str(script))
                self.one(found)
                device, = self.samples(found[0])[-1]["devices"]
                self.assertEqual(device["state"], state)
                self.assertEqual("used_bytes" in device, state == "ok")
                if state == "ok":
                    self.assertEqual((device["xids"], device["last_xid"]), (1, 79))
                subprocess.run(["rm", "-r", self.place], check=True)

    def test_a_driver_that_hangs_holds_nobody_up(self):
        """NVML that never answers: the program ends when it ends, the incident is made without samples"""
        script = self.folder / "nvml"
        script.write_text("DeviceGetCount* hang 600\n")
        done, found = self.record(sys.executable, PLAIN + "os.abort()", PLIMSOLL_SIM_NVML=str(script), WAIT="0")
        self.assertEqual(done.returncode, -signal.SIGABRT)
        self.assertEqual(self.one(found)["kind"], "crash")


class WithTorch(Case):
    @classmethod
    def setUpClass(cls):
        made = subprocess.run([str(plimtest.ROOT / "tools" / "oracle_env.sh")], stdout=subprocess.PIPE, check=True)
        cls.torch = made.stdout.decode().strip().splitlines()[-1]

    def test_out_of_memory_is_judged_by_its_snapshot(self):
        """stranded memory under record: snapshot, recording and samples together name the class"""
        program = """
import torch
def row(n):
    return torch.empty(n << 20, dtype=torch.uint8, device="cuda")
blocks = [row(9) for _ in range(2300)]  # two in each segment of 20 MiB
del blocks[::2]
row(5000)
"""
        done, found = self.record(self.torch, program, PYTORCH_ALLOC_CONF="", PYTORCH_CUDA_ALLOC_CONF="")
        self.assertEqual(done.returncode, 1, done.stderr)
        manifest = self.one(found)
        self.assertEqual(manifest["kind"], "oom")
        self.assertEqual((manifest["verdict"]["class"], manifest["verdict"]["subclass"]), ("fragmentation", "stranded"))
        self.assertEqual(manifest["snapshots"][0]["request_bytes"], 5000 << 20)
        self.assertIn("torch", manifest["versions"])
        text = (found[0] / "diagnosis.md").read_text()
        self.assertIn("context", text)
        for word in (str(self.folder), "program.py"):
            self.assertNotIn(word, manifest["process"]["command"])
        for file in found[0].iterdir():
            self.assertNotIn(str(self.folder).encode(), file.read_bytes(), file.name)

    def test_a_failure_that_is_caught_is_told_while_the_program_goes_on(self):
        """a server that survives has its incident before it ends"""
        program = """
import os, time, torch
x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
for _ in range(600):
    time.sleep(0.1)
    if any("incident.json" in os.listdir(os.path.join("plimsoll-incidents", d))
           for d in os.listdir("plimsoll-incidents") if d.endswith(str(os.getpid()))):
        os._exit(0)
os._exit(9)
"""
        done, found = self.record(self.torch, program)
        self.assertEqual(done.returncode, 0, done.stderr)
        manifest = self.one(found)
        self.assertEqual((manifest["verdict"]["class"], manifest["verdict"]["subclass"]), ("capacity", "single_request"))
        self.assertNotIn("exit_status", manifest["process"])


if __name__ == "__main__":
    plimtest.main()
