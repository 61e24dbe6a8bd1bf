#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll history: what a monitor kept, in four forms, while it runs and after it was killed."""

import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

GIB = 1 << 30
DAY = 1795982712  # seconds: the day on which the made-up machine was looked at


def sample(second):
    """One look at two devices with two processes each; a process grows by 1 MiB a second."""
    devices, uses, processes = [], [], []
    for d in range(2):
        held = 0
        for p in range(2):
            pid = 1000 + 10 * d + p
            size = (4 + p) * GIB + (second << 20 if p == 0 else 0)
            held += size
            uses.append({"device": d, "pid": pid, "kinds": ["compute"], "bytes": size})
            processes.append({"pid": pid, "ppid": 1, "start_ticks": 77 + pid, "rss_bytes": GIB,
                              "name": "vllm" if p == 0 else "python3", "unit": "llm.service"})
        devices.append({"vendor": "nvidia", "name": "NVIDIA H100, 80GB", "uuid": f"GPU-{d}", "state": "ok",
                        "total_bytes": 80 * GIB, "used_bytes": held, "free_bytes": 80 * GIB - held,
                        "reserved_bytes": 0})
    return {"schema": "plimsoll.sample/1", "time_ns": (DAY + second) * 10**9, "devices": devices, "uses": uses,
            "processes": processes}


class History(unittest.TestCase):
    """One folder with a history of thirty looks, made once."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "samples.jsonl").write_text("".join(json.dumps(sample(s)) + "\n" for s in range(30)))
        plimtest.run("watch", "--samples", str(cls.path / "samples.jsonl"), "--db", str(cls.path / "h.db"), "--listen",
                     "none", "--interval", "100ms", "--steps", "30")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def history(self, *args, code=0):
        result = plimtest.run("history", *args, "--db", str(self.path / "h.db"))
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout.decode()

    def all(self, *args, **more):
        return self.history(*args, "--since", f"@{DAY - 86400}", **more)

    def test_json(self):
        """a document holds every second of a device, and keeps its schema"""
        document = json.loads(self.all("-f", "json", "--device", "1", "--step", "1s"))
        self.assertEqual(plimtest.schema_complaints(document), [])
        self.assertEqual([(s["key"], s["figure"]) for s in document["series"]], [("GPU-1", "used_bytes")])
        bins = document["series"][0]["bins"]
        self.assertEqual(sum(b["n"] for b in bins), 30)
        self.assertEqual(min(b["min"] for b in bins), 9 * GIB)
        self.assertEqual(bins[-1]["last"], 9 * GIB + (29 << 20))
        self.assertEqual(document["series"][0]["labels"]["name"], "NVIDIA H100, 80GB")

    def test_lines(self):
        """lines are documents of their own, and say the same"""
        lines = [json.loads(line) for line in self.all("-f", "jsonl", "--process", "vllm").splitlines()]
        self.assertTrue(lines)
        for line in lines:
            self.assertEqual(plimtest.schema_complaints(line), [])
        self.assertEqual({line["key"] for line in lines}, {"GPU-0/1000/1077", "GPU-1/1010/1087"})

    def test_csv(self):
        """CSV quotes what needs it"""
        rows = list(csv.DictReader(io.StringIO(self.all("subjects", "-f", "csv"))))
        device = next(row for row in rows if row["key"] == "GPU-0")
        self.assertEqual(json.loads(device["labels"])["name"], "NVIDIA H100, 80GB")
        rows = list(csv.DictReader(io.StringIO(self.all("-f", "csv", "--figure", "f*_bytes"))))
        self.assertEqual({row["figure"] for row in rows}, {"free_bytes"})

    def test_text(self):
        """text names the subject, draws the series and says its bounds"""
        text = self.all("--process", "1000")
        self.assertIn("process 1000 vllm on device 0, llm.service", text)
        self.assertIn("4.00 GiB to 4.03 GiB", text)
        self.assertIn("█", text)
        self.assertIn("no series in this time", self.history("--since", "@1000", "--to", "@2000"))

    def test_subjects_and_events(self):
        """subjects are listed by device, and events are there"""
        document = json.loads(self.all("subjects", "-f", "json", "--device", "0"))
        self.assertEqual(plimtest.schema_complaints(document), [])
        self.assertEqual([s["key"] for s in document["subjects"]],
                         ["GPU-0", "GPU-0/1000/1077", "GPU-0/1001/1078"])
        document = json.loads(self.all("events", "-f", "json"))
        self.assertEqual(plimtest.schema_complaints(document), [])

    def test_mistakes(self):
        """a time that is none, an empty range and a file that is not there are said"""
        self.history("--since", "yesterdayish", code=64)
        self.history("--since", "1h", "--last", "2h", code=64)
        self.history("--since", "@2000", "--to", "@1000", code=64)
        self.history("everything", code=64)
        self.assertEqual(plimtest.run("history", "--db", str(self.path / "none.db")).returncode, 66)
        (self.path / "text.db").write_text("not a database " * 100)
        self.assertEqual(plimtest.run("history", "--db", str(self.path / "text.db")).returncode, 65)


class Running(unittest.TestCase):
    """A monitor that runs meanwhile."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        (self.path / "samples.jsonl").write_text(
            "".join(json.dumps(sample(s)) + "\n" for s in range(600)))

    def tearDown(self):
        self.folder.cleanup()

    def start(self):
        return subprocess.Popen([plimtest.PROGRAM, "watch", "--samples", self.path / "samples.jsonl", "--db",
                                 self.path / "h.db", "--listen", "none", "--interval", "100ms"],
                                stderr=subprocess.PIPE, env=plimtest.clean_environment(self.folder.name))

    def points(self):
        result = plimtest.run("history", "--db", str(self.path / "h.db"), "--since", f"@{DAY - 86400}", "--device", "0",
                              "-f", "jsonl")
        return sum(json.loads(line)["n"] for line in result.stdout.splitlines()) if result.returncode == 0 else 0

    def wait_for(self, n):
        plimtest.wait_for("that the monitor keeps something", lambda: self.points() >= n)

    def test_killed(self):
        """the history is read while it is written; after kill -9 it is all there, and goes on"""
        for n in (5, 12):
            with self.start() as monitor:
                try:
                    self.wait_for(n)
                finally:
                    before = self.points()
                    monitor.send_signal(signal.SIGKILL)
            self.assertGreaterEqual(self.points(), before)

    def test_two(self):
        """a second monitor on the same history is refused, and says who has it"""
        with self.start() as monitor:
            try:
                self.wait_for(1)
                with self.start() as second:
                    said = second.stderr.read().decode()
                self.assertEqual(second.returncode, 71)
                self.assertIn(str(monitor.pid), said)
            finally:
                monitor.send_signal(signal.SIGTERM)

    def test_folder_that_may_not_be_written(self):
        """a history in a read-only folder can be read when nobody writes it"""
        with self.start() as monitor:
            self.wait_for(3)
            monitor.send_signal(signal.SIGTERM)
        before = self.points()
        for name in ("h.db-wal", "h.db-shm"):  # readers make them, and may not remove them
            (self.path / name).unlink(missing_ok=True)
        os.chmod(self.path, 0o500)
        try:
            self.assertEqual(self.points(), before)
        finally:
            os.chmod(self.path, 0o700)


class Asked(unittest.TestCase):
    """A monitor that is asked for its history, beside the file itself."""

    ODD = "a,b &c=%41+ü?"

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def start(self, *options):
        looks = [sample(s) for s in range(30)]  # the last is seen again and again, at the same time
        for look in looks:
            look["processes"][3]["name"] = self.ODD
        (self.path / "samples.jsonl").write_text("".join(json.dumps(look) + "\n" for look in looks))
        monitor = subprocess.Popen([plimtest.PROGRAM, "watch", "--samples", self.path / "samples.jsonl", "--listen",
                                    self.address(), "--interval", "50ms", *options], stderr=subprocess.DEVNULL,
                                   env=plimtest.clean_environment(self.folder.name))
        self.addCleanup(monitor.wait)
        self.addCleanup(monitor.terminate)
        plimtest.wait_for("the monitor serves", lambda: plimtest.run("status", "--monitor", self.address()).returncode == 0)

    def address(self):
        return f"unix:{self.path}/watch.sock"

    def test_asked(self):
        """a monitor that is asked says byte for byte what its file says, in all forms, also of odd names"""
        self.start("--db", self.path / "h.db")
        within = ["--since", f"@{DAY}", "--to", f"@{DAY + 10}"]
        file, monitor = ["--db", self.path / "h.db"], ["--monitor", self.address()]
        plimtest.wait_for("the monitor keeps the last sample", lambda: f'"last_ns": {(DAY + 29) * 10**9}' in plimtest.run(
            "history", "subjects", "-f", "json", *within[:2], *file).stdout.decode())
        for words in (["series", "--device", "1"], ["subjects"], ["events"], ["findings"], ["--process", self.ODD],
                      ["--process", "vllm", "--process", "a,b*", "--figure", "process_*", "--figure", "used*", "--step", "2s"],
                      ["--serving", "*"], ["--points", "3"]):
            for form in ("text", "csv", "jsonl", "json"):
                asked = plimtest.run("history", *words, "-f", form, *within, *monitor)
                self.assertEqual(asked.returncode, 0, asked.stderr)
                self.assertEqual(asked.stdout, plimtest.run("history", *words, "-f", form, *within, *file).stdout)
        self.assertIn(self.ODD.encode(), plimtest.run("history", "--process", self.ODD, *within, *monitor).stdout)

    def test_no_history(self):
        """a monitor without a history says so, and so does an address where nobody answers"""
        self.start("--db", "none")
        result = plimtest.run("history", "--monitor", self.address())
        self.assertEqual(result.returncode, 65)
        self.assertIn(b"/api/v1/history with 404: no history is kept", result.stderr)
        self.assertIn(b"--db FILE", result.stderr)
        self.assertEqual(plimtest.run("history", "--monitor", f"unix:{self.path}/none.sock").returncode, 66)
        self.assertEqual(plimtest.run("history", "--monitor", self.address(), "--db", "x.db").returncode, 64)


if __name__ == "__main__":
    plimtest.main()
