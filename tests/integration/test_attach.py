#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attach in real PyTorch programs on the simulated GPU: scripts, ranks, forked and spawned workers, and the plimsoll
verbs on what they leave."""

import json
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
import simgpu_env  # noqa: E402
import test_simgpu_torch  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "python"))
from plimsoll import _share  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BUILD = test_simgpu_torch.BUILD
MIB = 1 << 20
GIB = 1 << 30


class AttachCase(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.python = test_simgpu_torch.interpreter(*cls.options)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        self.session = self.folder / "session"
        self.session.mkdir()

    def environment(self, gpu="4GiB", **settings):
        env = simgpu_env.environment(BUILD, plimtest.clean_environment(self.folder), gpu=gpu, context="500MiB")
        env.update(PYTHONPATH=str(pathlib.Path(BUILD) / "python"), PLIMSOLL_ATTACH="1",
                   PLIMSOLL_ATTACH_DIR=str(self.out), PLIMSOLL_RECORD_DIR=str(self.session), **settings)
        return env

    def run_it(self, *command, code=0, **env):
        result = subprocess.run([self.python, *map(str, command)], capture_output=True, timeout=300, check=False,
                                env=self.environment(**env))
        self.err = result.stderr.decode()
        self.assertEqual(result.returncode, code, self.err[-3000:])
        lines = result.stdout.decode().splitlines()
        return json.loads(lines[-1]) if lines else None

    def program(self, name, *args, **env):
        return self.run_it(HERE / "attach_programs.py", name, *args, **env)

    def snapshots(self):
        """(pid, facts, path) of each snapshot, by pid."""
        found = []
        for path in self.out.glob("*.pickle"):
            facts = json.loads(pickle.loads(path.read_bytes())["plimsoll"])
            found.append((facts["pid"], facts, path))
        return sorted(found, key=lambda row: row[0])

    def diagnose(self, path):
        result = plimtest.run("diagnose", "--format", "json", path)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        judged = json.loads(result.stdout)
        self.assertEqual(plimtest.schema_complaints(judged), [])
        return judged


class AttachTest(AttachCase):
    def test_an_unmodified_program(self):
        """an unmodified program that runs out of memory leaves a snapshot that diagnose understands whole"""
        out = self.program("plain")
        self.assertEqual(out, {"kept": 14, "text": "CUDA out of memory. Tried to allocate 256.00 MiB"[:40], "args": ["plain"]})
        (_, facts, path), = self.snapshots()
        self.assertEqual((facts["request_bytes"], facts["device_total_bytes"]), (256 * MIB, 4 * GIB))
        self.assertTrue(facts["snapshot_complete"])
        judged = self.diagnose(path)
        self.assertEqual(judged["verdict"]["class"], "capacity")
        self.assertEqual(judged["ledger"]["total"], {"bytes": 4 * GIB, "how": "measured"})
        self.assertTrue(judged["trace"]["complete"])
        self.assertIn("fill", judged["blame"][0]["site"])
        self.assertEqual(judged["blame"][0]["bytes"], 14 * 256 * MIB)

    def test_the_exception_is_the_programs(self):
        """an exception that ends the program is PyTorch's, with its traceback and exit status"""
        self.run_it(HERE / "attach_programs.py", "uncaught", code=1)
        self.assertRegex(self.err.strip().splitlines()[-1], r"^torch.OutOfMemoryError: CUDA out of memory")
        self.assertNotIn("plimsoll/_attach.py", self.err)
        self.assertEqual(len(self.snapshots()), 1)

    def test_notes(self):
        """notes are in PyTorch's history of their allocations, and the failing request is named by the verdict"""
        self.program("notes")
        (_, facts, path), = self.snapshots()
        self.assertEqual(facts["tags"], {"request_id": "large", "batch": 64, "prompt": 4096})
        trace = pickle.loads(path.read_bytes())["device_traces"][0]
        marks = [e["user_metadata"] for e in trace if e["action"] == "alloc"]
        self.assertEqual([json.loads(m)["request_id"] for m in marks], ["small"] + ["large"] * (len(marks) - 1))
        judged = self.diagnose(path)
        self.assertEqual(judged["failure"]["work"], {"request_id": "large", "batch": 64, "prompt": 4096})
        self.assertIn("request_id large, batch 64, prompt 4096", judged["verdict"]["summary"])

    def test_a_program_that_records_by_itself(self):
        """a program's own history keeps its length, and its observer is called"""
        out = self.program("own")
        self.assertEqual(out, {"seen": 1, "entries": 7})
        self.assertEqual(len(self.snapshots()), 1)

    def check_workers(self, method):
        out = self.program("children", method)
        self.assertEqual(out["codes"], [0, 0])
        self.assertEqual([pid for pid, _, _ in self.snapshots()], sorted(out["pids"]))
        self.assertEqual(len(list(self.session.glob("*.plimattach"))), 2)

    def test_forked_workers(self):
        """workers forked before CUDA was used each leave their snapshot"""
        self.check_workers("fork")

    def test_spawned_workers(self):
        """spawned workers each leave their snapshot"""
        self.check_workers("spawn")

    def test_ranks_of_torchrun(self):
        """both ranks of torchrun leave a snapshot that names the rank and its device"""
        self.run_it("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                    "--master-port", "0", HERE / "attach_programs.py", "worker", gpu="4GiB*2")
        facts = [f for _, f, _ in self.snapshots()]
        self.assertEqual(sorted((f["rank"], f["world_size"], f["device"]) for f in facts), [(0, 2, 0), (1, 2, 1)])

    def test_what_is_seen_from_outside(self):
        """another process sees the figures, gets a snapshot on request, and sees the end"""
        env = self.environment()
        env["PLIMSOLL_ATTACH_EVERY"] = "0.05"
        with subprocess.Popen([self.python, str(HERE / "attach_programs.py"), "lives", "300"], env=env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            pid = json.loads(process.stdout.readline())["pid"]
            path = _share.request(pid, 60, str(self.session))
            name, = self.session.glob("*.plimattach")
            seen = _share.File.from_buffer_copy(name.read_bytes())
            process.communicate(b"", timeout=60)
        row = seen.device[0]
        self.assertEqual((row.valid, row.allocated, row.reserved, row.device_total),
                         (1, 300 * MIB, 300 * MIB, 4 * GIB))
        self.assertEqual(seen.state, 1)
        self.assertEqual(_share.File.from_buffer_copy(name.read_bytes()).state, 2)
        self.assertEqual(self.diagnose(path)["verdict"]["class"], "healthy")


class TogetherTest(AttachCase):
    def test_record_brings_attach_along(self):
        """under record a Python without the wheel attaches too, and keeps its own path"""
        env = self.environment()
        for name in ("PLIMSOLL_ATTACH", "PLIMSOLL_RECORD_DIR"):
            env.pop(name)
        env.update(PYTHONPATH=str(self.folder), TMPDIR=str(self.folder))
        (self.folder / "sitecustomize.py").write_text("print('own')")
        result = subprocess.run([plimtest.PROGRAM, "record", "-o", str(self.folder / "t.plt"), "--", self.python,
                                 str(HERE / "attach_programs.py"), "worker"], capture_output=True, timeout=300,
                                env=env, check=False, cwd=self.folder)
        err = result.stderr.decode()
        self.assertEqual(result.returncode, 0, err[-3000:])
        self.assertEqual(result.stdout, b"own\n")
        self.assertRegex(err, r"plimsoll: attach \(pid \d+\): (wrote|left) ")
        judged = self.diagnose(self.folder / "t.plt")
        self.assertEqual(judged["trace"]["peak_reserved_bytes"], 14 * 256 * MIB)

    def test_an_incident_without_an_owner(self):
        """where nobody owns the incidents, the failing process lets the program finish its own"""
        place = self.folder / "incidents"
        self.program("notes", PLIMSOLL_INCIDENT_DIR=str(place), PLIMSOLL_PROGRAM=plimtest.PROGRAM)
        deadline = time.monotonic() + 60
        while not list(place.glob("incident-*/incident.json")):
            self.assertLess(time.monotonic(), deadline, list(place.rglob("*")))
            time.sleep(0.05)
        incident, = place.iterdir()
        facts = json.loads((incident / "incident.json").read_text())
        self.assertEqual(plimtest.schema_complaints(facts), [])
        self.assertEqual(facts["tags"], {"request_id": "large", "batch": 64, "prompt": 4096})
        self.assertEqual(facts["verdict"]["class"], "capacity")


class OlderTest(AttachCase):
    options = ("--cuda12",)

    def test_a_torch_of_two_years_ago(self):
        """torch 2.5, which has no notes, leaves the same evidence"""
        self.program("plain")
        (_, facts, path), = self.snapshots()
        self.assertTrue(facts["versions"]["torch"].startswith("2.5."))
        judged = self.diagnose(path)
        self.assertEqual(judged["verdict"]["class"], "capacity")
        self.assertEqual(judged["ledger"]["total"]["bytes"], 4 * GIB)
        self.program("notes")


if __name__ == "__main__":
    plimtest.main()
