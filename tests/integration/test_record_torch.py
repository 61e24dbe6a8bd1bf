#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll record with real PyTorch on the simulated device: whose bytes they are, and that they add up.

The device keeps exact books, and the program prints what the driver says is in use: the owners of a trace must
add up to that, to a stated bound (BOUND).
"""

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
import simgpu_env  # noqa: E402
import test_simgpu_torch  # noqa: E402

MIB = 1 << 20
GIB = 1 << 30
BOUND = 2 * MIB  # one page: what lies between a call and the books of the device

PRELUDE = """
import sys, torch
def used():
    free, total = torch.cuda.mem_get_info()
    return total - free
"""

TRAIN = PRELUDE + """
net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
opt = torch.optim.Adam(net.parameters())
for step in range(5):
    net(torch.zeros(64, 1024, device="cuda")).sum().backward()
    opt.step()
    opt.zero_grad()
print(used(), torch.cuda.memory_reserved())
sys.stdout.flush()
import os; os._exit(0)
"""

OOM = PRELUDE + """
kept = [torch.empty(64 * 1024 * 1024, dtype=torch.uint8, device="cuda") for _ in range(40)]
print(used(), torch.cuda.memory_reserved())
sys.stdout.flush()
torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
"""

CHURN = PRELUDE + """
import random
random.seed(1)
blocks = []
for i in range(6000):
    blocks.append(torch.empty(random.randrange(1, 40) << 20, dtype=torch.uint8, device="cuda"))
    if len(blocks) > 20:
        del blocks[random.randrange(20)]
    torch.cuda.empty_cache()
"""

TWO = """
import os, sys, torch
if os.fork() == 0:
    kept = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    os.write(int(sys.argv[1]), b"x")
    os.read(int(sys.argv[2]), 1)
    os._exit(0)
os.read(int(sys.argv[3]), 1)
kept = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
try:
    torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
os.write(int(sys.argv[4]), b"x")
os.wait()
"""


class RecordTorchCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = test_simgpu_torch.interpreter()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env = simgpu_env.environment(os.environ["PLIMSOLL_BUILD"], gpu="4GiB", context="300MiB",
                                          state=self.folder / "books")

    def record(self, code, *options, conf="", **popen):
        """Run a program under record; its standard output and record's standard error."""
        env = dict(self.env, PYTORCH_ALLOC_CONF=conf, PYTORCH_CUDA_ALLOC_CONF=conf)
        done = subprocess.run([plimtest.PROGRAM, "record", "--no-attach", *options, "--", self.python, "-c", code,
                               *popen.pop("arguments", [])], cwd=self.folder, env=env, capture_output=True, text=True,
                              timeout=300, **popen)
        return done

    def diagnose(self, *args):
        done = plimtest.run("diagnose", "--format", "json", *args, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(plimtest.schema_complaints(document), [])
        return document

    def owners(self, document):
        return {p["owner"]: p["amount"]["bytes"] for p in document["ledger"].get("process_other_by_owner", [])}

    def check_sum(self, conf):
        done = self.record(TRAIN, conf=conf)
        self.assertEqual(done.returncode, 0, done.stderr)
        used, reserved = map(int, done.stdout.split())
        document = self.diagnose("--at", "end", "record.plt")
        owners = self.owners(document)
        self.assertEqual(document["ledger"]["reserved"]["bytes"], reserved)
        self.assertLessEqual(abs(reserved + sum(owners.values()) - used), BOUND, owners)
        self.assertEqual(owners["context"], 300 * MIB)
        return owners


class OwnersTest(RecordTorchCase):
    def test_owners_add_up_to_what_the_driver_counts(self):
        """segments, context and the rest add up to the device's own books"""
        self.check_sum("")

    def test_expandable_segments_add_up_too(self):
        """the same when the allocator maps pages"""
        self.check_sum("expandable_segments:True")

    def test_the_pool_of_cuda_malloc_async_adds_up_too(self):
        """the same when the driver's pool is the allocator"""
        done = self.record(TRAIN.replace("torch.cuda.memory_reserved()", "0"), conf="backend:cudaMallocAsync")
        self.assertEqual(done.returncode, 0, done.stderr)
        used = int(done.stdout.split()[0])
        self.assertIn("torch allocator", done.stderr)
        trace = self.diagnose("--at", "end", "record.plt")
        self.assertGreater(trace["ledger"]["reserved"]["bytes"] + sum(self.owners(trace).values()), used // 2)


class FailureTest(RecordTorchCase):
    def test_a_failure_in_a_trace_alone(self):
        """the failing request is found; what is live inside the allocator is said not to be known"""
        done = self.record(OOM)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the driver refused", done.stderr)
        document = self.diagnose("record.plt")
        self.assertEqual(document["failure"]["request_bytes"], 3 * GIB)
        self.assertEqual(document["failure"]["failures_in_trace"], 1)
        self.assertEqual(document["verdict"]["class"], "unknown")
        self.assertTrue(any("holds is live" in text for text in document["unknowns"]))
        known = self.diagnose("--device-memory", "4GiB", "record.plt")
        self.assertEqual(known["ledger"]["total"]["bytes"], 4 * GIB)

    def test_a_snapshot_and_its_trace(self):
        """with both, the outside is measured and the ledger adds up to the device"""
        code = OOM.replace("import sys, torch", "import sys, torch\ntorch.cuda.memory._record_memory_history()")
        code = code.replace("torch.empty(3 << 30", "try:\n    torch.empty(3 << 30")
        code += "except torch.cuda.OutOfMemoryError:\n    torch.cuda.memory._dump_snapshot('s.pickle')\n"
        done = self.record(code)
        self.assertEqual(done.returncode, 0, done.stderr)
        used, reserved = map(int, done.stdout.split())
        document = self.diagnose("--trace", "record.plt", "--device-memory", "4GiB", "s.pickle")
        ledger = document["ledger"]
        self.assertEqual(ledger["reserved"]["bytes"], reserved)
        self.assertEqual(ledger["owners"]["process_other"], {"bytes": 300 * MIB, "how": "measured"})
        self.assertEqual(self.owners(document), {"context": 300 * MIB})
        self.assertEqual(sum(o["bytes"] for o in ledger["owners"].values()), 4 * GIB)
        self.assertEqual(ledger["owners"]["free"]["bytes"], 4 * GIB - used)

    def test_two_processes_on_one_device(self):
        """the process that failed is judged, the other one is another process with its bytes"""
        a, b, c, d = *os.pipe(), *os.pipe()
        try:
            done = self.record(TWO, arguments=[str(b), str(c), str(a), str(d)], pass_fds=(a, b, c, d))
        finally:
            for fd in (a, b, c, d):
                os.close(fd)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of 2 processes", done.stderr)
        document = self.diagnose("record.plt")
        self.assertEqual(document["failure"]["request_bytes"], 64 * GIB)
        self.assertEqual(document["ledger"]["reserved"]["bytes"], 256 * MIB)
        self.assertEqual(document["ledger"]["owners"]["other_processes"]["bytes"], (300 + 512) * MIB)


class FormatTest(RecordTorchCase):
    def test_an_event_takes_less_than_16_bytes(self):
        """a trace of thousands of driver calls takes less than 16 bytes for each"""
        done = self.record(CHURN)
        self.assertEqual(done.returncode, 0, done.stderr)
        events = int(done.stderr.split("recorded ")[1].split()[0])
        size = (self.folder / "record.plt").stat().st_size
        self.assertGreater(events, 5000)
        self.assertLess(size / events, 16)
        print(f"# {events} events, {size / events:.2f} bytes each")

    def test_every_reader_of_snapshots_reads_a_trace(self):
        """diff, export and the interactive page take a trace; replay says what it needs"""
        self.record(OOM, "-o", "a.plt")
        self.record(TRAIN, "-o", "b.plt")
        self.assertEqual(plimtest.run("diff", "a.plt", "b.plt", cwd=self.folder).returncode, 0)
        for form in ("memory-viz", "perfetto", "folded", "sqlite"):
            done = plimtest.run("export", "-f", form, "-o", "out", "a.plt", cwd=self.folder)
            self.assertEqual((done.returncode, (self.folder / "out").stat().st_size > 100), (0, True), done.stderr)
        done = plimtest.run("diagnose", "--html", "page.html", "a.plt", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("– context", (self.folder / "page.html").read_text(encoding="utf-8"))
        done = plimtest.run("replay", "--device-memory", "8GiB", "--format", "json", "a.plt", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(json.loads(done.stdout)["first_oom"])

    def test_a_dry_run_is_recorded(self):
        """the recorder stands in front of the device of a dry run"""
        done = subprocess.run([plimtest.PROGRAM, "record", "--", plimtest.PROGRAM, "dryrun", "--gpu", "8GiB", "--",
                               self.python, "-c", TRAIN], cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = self.diagnose("--at", "end", "record.plt")
        self.assertIn("context", self.owners(document))
        self.assertGreater(document["ledger"]["reserved"]["bytes"], 100 * MIB)


if __name__ == "__main__":
    plimtest.main()
