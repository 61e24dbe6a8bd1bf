#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll watch and status against drivers that break, and status against a live scrape.

The driver is the NVML of the simulated device, scripted from a file (runtime/simgpu/nvml_fault.c).
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import monitor  # noqa: E402
import plimtest  # noqa: E402

SIMGPU = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", plimtest.ROOT / "build")) / "runtime/simgpu/libplimsoll-simgpu.so"
OPEN = "application/openmetrics-text; version=1.0.0"
ABOUT_ITSELF = re.compile(r"plimsoll_(samples|sample_|devices_hung|monitor_|source_|store_|alerts_|http_|happenings|finding|series)")


class Watched(unittest.TestCase):
    """A folder for each test, with a driver in it."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "libnvidia-ml.so.1").symlink_to(SIMGPU)
        self.script = self.folder / "nvml.txt"
        self.script.write_text("")
        self.socket = self.folder / "plimsoll-watch.sock"
        self.env = {"LD_LIBRARY_PATH": str(self.folder), "PLIMSOLL_SIM_GPU": "h100-80gb*2",
                    "PLIMSOLL_SIM_NVML": str(self.script), "XDG_RUNTIME_DIR": str(self.folder)}

    @contextlib.contextmanager
    def watch(self, *options, code=0, db=("--db", "none")):
        words = [plimtest.PROGRAM, "watch", "--listen", f"unix:{self.socket}", *db, "--no-discover", "--interval",
                 "100ms", *map(str, options)]
        process = subprocess.Popen(words, env=plimtest.clean_environment(self.folder, **self.env), stderr=subprocess.PIPE)
        try:
            plimtest.wait_for("the monitor answers", lambda: self.socket.exists() and self.status() is not None)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            self.log = process.communicate(timeout=plimtest.PATIENCE)[1].decode()
        self.assertEqual(process.returncode, code, self.log)

    def get(self, path, **headers):
        connection = plimtest.UnixConnection(self.socket)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.read() if answer.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    def status(self):
        text = self.get("/api/v1/status")
        return json.loads(text) if text is not None else None

    def until(self, what, condition):
        """The first status of which the condition holds."""
        def look():
            status = self.status()
            return status if status is not None and condition(status) else None
        return plimtest.wait_for(what, look)

    def said(self, process, what):
        """Read what the monitor has said until it says this."""
        line = b""
        while what not in line:
            line = process.stderr.readline()
            self.assertNotEqual(line, b"")
        return line

    def once(self, *options, **env):
        done = plimtest.run("status", "--monitor", "none", *options, **{**self.env, **env})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def figures(self):
        status = json.loads(self.once("--format", "json"))
        self.assertEqual(plimtest.schema_complaints(status), [])
        return status["devices"]


class FaultTest(Watched):
    def test_what_the_driver_does_not_support_is_absent(self):
        """a call that is not supported leaves its figures out, and older forms of it are asked"""
        self.script.write_text("DeviceGetMemoryInfo_v2 3\nDeviceGetPowerUsage 3\n")
        for device in self.figures():
            self.assertEqual(device["state"], "ok")
            self.assertNotIn("power_milliwatts", device)
            self.assertEqual(device["used_bytes"] + device["free_bytes"], device["total_bytes"])

    def test_permission_denied_is_a_state(self):
        """a device that only privileged users may ask says so, and the other one goes on"""
        self.script.write_text("1 DeviceGetMemoryInfo* 4\n")
        devices = self.figures()
        self.assertEqual([d["state"] for d in devices], ["ok", "denied"])
        self.assertNotIn("used_bytes", devices[1])
        self.assertIn("its memory is not known", self.once().decode())

    def test_a_lost_device_is_told_and_comes_back(self):
        """a device that falls off the bus is lost, its loss is a finding, and its return is told"""
        with self.watch():
            self.until("both are well", lambda s: [d["state"] for d in s["devices"]] == ["ok", "ok"])
            self.script.write_text("1 * 15\n")
            status = self.until("one is lost", lambda s: s["devices"][1]["state"] == "lost")
            self.assertEqual(status["devices"][0]["state"], "ok")
            self.until("a finding of it", lambda s: any(f["class"] == "device_trouble" for f in s["findings"]))
            self.script.write_text("")
            self.until("it is back", lambda s: s["devices"][1]["state"] == "ok")
            self.assertIn(b'plimsoll_happenings_total{kind="device_lost"} 1\n', self.get("/metrics"))
            self.assertIn(b'plimsoll_happenings_total{kind="device_back"} 1\n', self.get("/metrics"))

    def test_a_driver_that_hangs_stops_nothing(self):
        """a call that does not return leaves the devices marked as hung; samples go on, and they come back"""
        with self.watch():
            self.script.write_text("DeviceGetMemoryInfo_v2 hang 6\n")
            status = self.until("they hang", lambda s: [d["state"] for d in s["devices"]] == ["hung", "hung"])
            self.assertIn(b"plimsoll_devices_hung 2\n", self.get("/metrics"))
            samples = status["monitor"]["samples"]
            self.until("samples go on", lambda s: s["monitor"]["samples"] > samples + 5)
            self.script.write_text("")
            self.until("they are back", lambda s: [d["state"] for d in s["devices"]] == ["ok", "ok"])

    def test_a_monitor_ends_while_its_driver_hangs(self):
        """SIGTERM ends a monitor whose driver does not return"""
        with self.watch():
            self.script.write_text("* hang 600\n")  # longer than the test waits for the end
            self.until("they hang", lambda s: s["monitor"]["devices_hung"] == 2)

    def test_a_reloaded_driver_is_started_again(self):
        """after a reload every call fails until NVML is started anew: it is, and that is told"""
        with self.watch():
            self.script.write_text("Init* 9\nDeviceGet* 1\nSystem* 1\n")
            self.until("all are gone", lambda s: all(d["state"] == "lost" for d in s["devices"]))
            self.script.write_text("")
            self.until("they are back", lambda s: [d["state"] for d in s["devices"]] == ["ok", "ok"])
            self.assertIn(b'plimsoll_happenings_total{kind="driver_restarted"} 1\n', self.get("/metrics"))

    def test_critical_errors_are_counted(self):
        """an XID is a happening with its number, and a counter"""
        with self.watch():
            self.script.write_text("xid 1 79\n")
            status = self.until("the error", lambda s: s["devices"][1].get("xids") == 1)
            self.assertEqual(status["devices"][1]["last_xid"], 79)
            self.assertIn(b'plimsoll_happenings_total{kind="xid"} 1\n', self.get("/metrics"))


class SettingsTest(Watched):
    def test_a_signal_brings_other_engines_logs_and_sizes(self):
        """SIGHUP takes engines, logs and the size of the history from the file, keeps what stays the same, and refuses a bad file"""
        one, two = monitor.Engine(), monitor.Engine()
        logs = [self.folder / name for name in ("one.log", "two.log")]
        for gib, log in enumerate(logs, 3):
            log.write_text(f"INFO Model loading took {gib}.0 GiB and 1 seconds\n")
        settings = self.folder / "settings"
        db = self.folder / "kept" / "history.db"
        db.parent.mkdir()

        def say(size, engine, log, extra=""):
            url = f"http://127.0.0.1:{engine.server_port}/metrics"
            settings.write_text(f"[watch]\ndb = {db}\nincidents = {self.folder / 'kept'}\nmax-bytes = {size}\n"
                                f"[engine e]\nurl = {url}\n[log a]\npath = {log}\n{extra}")

        def engines(status):
            return {e["name"]: e for e in status["engines"]}

        say("64MiB", one, logs[0])
        with self.watch("--settings", settings, db=()) as process:
            both = self.until("engine and log", lambda s: {"e", "a"} <= engines(s).keys() and engines(s)["e"]["up"])
            self.assertEqual(engines(both)["a"]["components"]["weights"], 3 << 30)
            say("15MiB", two, logs[1])
            process.send_signal(signal.SIGHUP)
            say_again = f"[log b]\npath = {logs[1]}\n[engine f]\nurl = http://127.0.0.1:{one.server_port}/metrics\n"
            self.said(process, b"a history needs at least 16 MiB")
            still = self.status()
            self.assertEqual(engines(still)["a"]["components"]["weights"], 3 << 30)
            say("32MiB", two, logs[0], say_again)
            process.send_signal(signal.SIGHUP)
            now = self.until("the other ones", lambda s: {"e", "f", "a", "b"} <= engines(s).keys()
                             and engines(s)["e"]["up"] and engines(s)["f"]["up"])
            self.assertEqual(engines(now)["b"]["components"]["weights"], 4 << 30)
            plimtest.wait_for("the other engine is asked", lambda: two.asked > 0)
            plimtest.wait_for("the other size", lambda: f"plimsoll_store_limit_bytes {32 << 20}\n".encode() in self.get("/metrics"))
            settings.write_text(f"[watch]\ndb = {db}\n")
            process.send_signal(signal.SIGHUP)
            self.until("none is left", lambda s: not s["engines"])
            plimtest.wait_for("the default size", lambda: f"plimsoll_store_limit_bytes {1 << 30}\n".encode() in self.get("/metrics"))
            kept = plimtest.wait_for("the history", lambda: json.loads(self.get("/api/v1/subjects"))["subjects"])
            self.assertIn("e/0", [s["key"] for s in kept])

    def test_a_settings_file_is_checked_for_its_sources(self):
        """--check-settings finds what is no address of an engine, and a history that is too small"""
        settings = self.folder / "settings"
        for text, said in (("[engine e]\nurl = ftp://x\n", "settings:2 e: 'ftp://x'"),
                           ("[watch]\nmax-bytes = 1MiB\n", "settings:2: a history needs at least 16 MiB")):
            settings.write_text(text)
            done = plimtest.run("watch", "--check-settings", "--settings", settings, **self.env)
            self.assertEqual(done.returncode, 64, text)
            self.assertIn(said, done.stderr.decode())


class StatusTest(Watched):
    def setUp(self):
        super().setUp()
        self.samples = self.folder / "samples.jsonl"
        line = monitor.sample(40, name='a "b\\c\n')
        line["time_ns"] = 1700000000 * 10**9
        self.samples.write_text(json.dumps(line) + "\n")

    def test_status_is_what_a_scrape_gives(self):
        """asked for metrics, status prints the very bytes that the monitor serves, in both forms"""
        with self.watch("--samples", self.samples) as process:
            process.send_signal(signal.SIGSTOP)  # between two scrapes nothing may change: look at one step
            process.send_signal(signal.SIGCONT)
            for form, accept in (("prometheus", "text/plain"), ("openmetrics", OPEN)):
                for _ in range(20):
                    before = self.get("/metrics", Accept=accept)
                    done = plimtest.run("status", "--format", form, **self.env)
                    if done.stdout == before == self.get("/metrics", Accept=accept):
                        break
                    lines = [{l for l in text.decode().splitlines() if not ABOUT_ITSELF.match(l)} for text in (before, done.stdout)]
                    self.assertEqual(lines[0], lines[1])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.endswith(b"# EOF\n"), form == "openmetrics")

    def test_status_without_a_monitor_says_the_same_of_the_devices(self):
        """what is observed is the same with and without a monitor; only what needs time is missing"""
        with self.watch("--samples", self.samples):
            for form, accept in (("prometheus", "text/plain"), ("openmetrics", OPEN)):
                alone = self.once("--samples", self.samples, "--format", form).decode().splitlines()
                live = self.get("/metrics", Accept=accept).decode().splitlines()
                keep = lambda lines: [l for l in lines if l[0] != "#" and not ABOUT_ITSELF.match(l)]  # noqa: E731
                self.assertEqual(keep(alone), keep(live))
            one, other = json.loads(self.once("--samples", self.samples, "--format", "json")), self.status()
            for status in (one, other):
                self.assertEqual(plimtest.schema_complaints(status), [])
                del status["monitor"], status["findings"]
                status["happenings"] = []
            self.assertEqual(one, other)

    def test_status_shows_findings_of_the_monitor(self):
        """the text of a running monitor has its findings; without one there are none to show"""
        with self.watch("--samples", self.samples):
            done = plimtest.run("status", **self.env)
            self.assertIn(b"no findings", done.stdout)
        self.assertNotIn(b"findings", self.once("--samples", self.samples))

    def test_metrics_pass_the_checker_of_prometheus(self):
        """promtool finds nothing to say about the metrics"""
        if shutil.which("promtool") is None:
            self.skipTest("no promtool")
        with self.watch("--samples", self.samples):
            done = subprocess.run(["promtool", "check", "metrics"], input=self.get("/metrics"), capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_an_address_where_nobody_answers_is_an_error(self):
        """status says where nobody answered; a socket that was left behind is no monitor"""
        done = plimtest.run("status", "--monitor", "127.0.0.1:1")
        self.assertEqual(done.returncode, 66, done.stderr)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(self.socket))
        self.assertEqual(plimtest.run("status", **self.env).returncode, 0)


if __name__ == "__main__":
    plimtest.main()
