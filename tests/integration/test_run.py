#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll run: servers that die, hang, ignore signals, leave children behind, and run out of memory; the gate's ledger and
its breaker; one start at a time; what systemd is told."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

# A server that answers /health, writes down its turns, and does what its folder says: see act().
SERVER = r"""
import http.server, os, pathlib, signal, subprocess, sys, threading, time
folder = pathlib.Path(sys.argv[1])
port = int(sys.argv[2])
with open(folder / "turns", "a") as turns:
    turns.write(f"{os.getpid()} {' '.join(sys.argv[3:])}\n")
number = len((folder / "turns").read_text().splitlines())
plan = (folder / f"turn{number}").read_text() if (folder / f"turn{number}").exists() else ""

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if "hang" in plan:
            time.sleep(1000)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer.allow_reuse_address = True
if "stubborn" in plan:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "child" in plan:
    child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"],
                             start_new_session=True)
    (folder / "child").write_text(str(child.pid))
if "oom" in plan:
    (folder / "incidents" / f"incident-20260801T000000Z-oom-{os.getpid()}").mkdir(parents=True)
if "silent" in plan:
    from plimsoll import _share
    share = _share.Share(-1, "{}")  # as attach does, but only once
    share.publish(0, {"allocated_bytes": {"all": {"current": 1 << 20}}, "reserved_bytes": {"all": {"current": 2 << 20}}}, 1 << 30)
if "words" in plan:
    print("ValueError: Free memory on device cuda:0 (59.6/79.65 GiB) on startup is less than desired GPU memory utilization (0.9, 71.68 GiB). "
          "Decrease GPU memory utilization or reduce GPU memory used by other processes.", file=sys.stderr)
if "fail" in plan:
    sys.exit(3)
if "well" in plan:
    sys.exit(0)
if "abort" in plan:
    os.abort()
if "late" not in plan:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
time.sleep(1000)
"""


class Run(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.addCleanup(self.holder.cleanup)
        self.folder = pathlib.Path(self.holder.name)
        (self.folder / "server.py").write_text(SERVER)
        (self.folder / "incidents").mkdir()
        self.port = plimtest.free_port()
        self.lines = []
        self.process = None
        self.addCleanup(self.end)

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.turn_pids():
            if plimtest.lives(pid):
                os.kill(pid, signal.SIGKILL)

    def turn_pids(self):
        path = self.folder / "turns"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def plan(self, **turns):
        for name, words in turns.items():
            (self.folder / name).write_text(words)

    def start(self, *options, health=True, misses=100, flags=(), bare=True, env=()):
        """misses: answers within 100 ms that must be missing in a row; many, so that no busy machine is taken for a hang."""
        asked = ["--health", f"http://127.0.0.1:{self.port}/health", "--health-every", "100ms", "--health-misses", misses] if health else []
        command = [plimtest.PROGRAM, "run", "--incidents", self.folder / "incidents", "--backoff", "100ms", *(["--bare"] if bare else []),
                   *asked, *options, "--", sys.executable, self.folder / "server.py", self.folder, self.port, *flags]
        self.process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, cwd=self.folder,
                                        env=plimtest.clean_environment(self.folder, **dict(env)))
        self.reader = threading.Thread(target=lambda: self.lines.extend(r.decode() for r in self.process.stderr), daemon=True)
        self.reader.start()
        return self.process

    def said(self):
        return "".join(self.lines)

    def until(self, text, times=1):
        deadline = time.monotonic() + plimtest.PATIENCE
        while self.said().count(text) < times:
            over = self.process.poll() is not None and not self.reader.is_alive()
            if time.monotonic() > deadline or (over and self.said().count(text) < times):
                self.fail(f"not said {times} times: {text}\n{self.said()}")
            time.sleep(0.02)

    def until_turns(self, count):
        """Wait until so many turns have begun: the server writes them down itself."""
        plimtest.wait_for(f"{count} turns", lambda: len(self.turn_pids()) >= count)
        self.assertEqual(len(self.turn_pids()), count, self.said())

    def ended(self, code):
        """Wait for its end with this status, and for all that it said."""
        self.assertEqual(self.process.wait(timeout=plimtest.PATIENCE), code, self.said())
        self.reader.join(plimtest.PATIENCE)
        self.process.stderr.close()

    def stop(self):
        self.process.terminate()
        self.ended(0)

    def test_serves_until_it_is_asked_to_end(self):
        """a healthy server is served until SIGTERM, and nothing is left of it"""
        self.start()
        self.until("serving after")
        self.stop()
        self.assertEqual(len(self.turn_pids()), 1)
        self.assertFalse(plimtest.lives(self.turn_pids()[0]))

    def test_failures_are_restarted_until_it_gives_up(self):
        """a server that fails is started anew with growing pauses, and the last status is ours when it gives up"""
        self.plan(**{f"turn{i}": "fail" for i in range(1, 10)})
        self.start("--restarts", 3)
        self.ended(3)
        self.assertEqual(len(self.turn_pids()), 4)
        self.assertIn("failed too often", self.said())

    def test_zero_restarts_are_none(self):
        """--restarts 0 gives up at the first failure, and notches that cannot help are named before it"""
        self.plan(turn1="oom fail")
        self.start("--restarts", 0, "--notch", "max-num-seqs=/2")
        self.ended(3)
        self.assertEqual(len(self.turn_pids()), 1)
        self.assertIn("--notch max-num-seqs will change nothing: the command has no such flag", self.lines[0])

    def test_a_good_end_is_an_end(self):
        """a command that ends well is not started again"""
        self.plan(turn1="well")
        self.start(health=False)
        self.ended(0)
        self.assertEqual(len(self.turn_pids()), 1)

    def test_a_server_that_leaves_the_foreground_is_told_so(self):
        """a start script that ends well while its server goes on is an end, and is said to be no way to start one"""
        self.plan(turn1="child well")
        self.start("--grace", "300ms", health=False)
        self.ended(0)
        self.assertIn("a server must stay in the foreground", self.said())
        self.assertFalse(plimtest.lives(int((self.folder / "child").read_text())))

    def test_evidence_that_cannot_be_kept_is_said_before_the_failure(self):
        """a folder of incidents that cannot be made is named when the command starts"""
        file = self.folder / "file"
        file.write_text("")
        for folder, said in ((file / "incidents", True), (self.folder / "new" / "incidents", False)):
            result = plimtest.run("run", "--no-lock", "--incidents", folder, "--", "true")
            self.assertEqual(result.returncode, 0)
            self.assertEqual(b"a failure will leave no evidence" in result.stderr, said, result.stderr)

    def test_a_server_that_hangs_is_found(self):
        """a server that is alive and does not answer is ended, killed when it will not, and started anew"""
        self.start("--grace", "300ms", misses=20)
        self.until("serving after")
        os.kill(self.turn_pids()[0], signal.SIGSTOP)
        self.until("is alive and does not answer")
        self.until("killing it")
        self.until("serving after", 2)
        self.assertFalse(plimtest.lives(self.turn_pids()[0]))
        self.stop()

    def test_one_that_never_becomes_healthy_is_restarted(self):
        """a start that takes too long counts as a failure"""
        self.plan(turn1="late")
        self.start("--start-timeout", "5s", "--restarts", 20)
        self.until("was not healthy in time")
        self.until("serving after")
        self.stop()

    def test_children_that_left_the_group_are_ended_too(self):
        """a child in a session of its own that ignores SIGTERM does not survive the turn"""
        self.plan(turn1="child")
        self.start("--grace", "300ms")
        self.until("serving after")
        child = int((self.folder / "child").read_text())
        self.assertTrue(plimtest.lives(child))
        os.kill(self.turn_pids()[0], signal.SIGKILL)
        self.until("signal 9 ended the command")
        self.until("serving after", 2)
        self.assertFalse(plimtest.lives(child))
        self.stop()

    def test_a_second_signal_kills(self):
        """a stubborn server is killed at the second signal, long before its grace is over"""
        self.plan(turn1="stubborn")
        self.start("--grace", "10m")
        self.until("serving after")
        self.process.terminate()
        self.until("asked to end")
        self.process.terminate()
        self.ended(0)
        self.assertFalse(plimtest.lives(self.turn_pids()[0]))

    def test_a_notch_lower_after_memory_ran_out(self):
        """after a failure for want of memory the next turn asks for less, by one flag after the other, and says so"""
        self.plan(turn1="oom fail", turn2="fail", turn3="oom fail")
        self.start("--notch", "max-model-len=/2:1000", "--notch", "gpu-memory-utilization=-0.05:0.5",
                   flags=["--max-model-len", "4096", "--gpu-memory-utilization=0.9"])
        self.until("serving after")
        flags = [line.split(" ", 1)[1] for line in (self.folder / "turns").read_text().splitlines()]
        self.assertEqual(flags, ["--max-model-len 4096 --gpu-memory-utilization=0.9",
                                 "--max-model-len 2048 --gpu-memory-utilization=0.9",
                                 "--max-model-len 2048 --gpu-memory-utilization=0.9",
                                 "--max-model-len 2048 --gpu-memory-utilization=0.85"])
        self.assertIn("ONE NOTCH LOWER because memory ran out: max-model-len 4096 -> 2048", self.said())
        self.stop()

    def test_a_notch_lower_by_the_command_s_own_words(self):
        """an engine that finds too little memory when it starts says so in its log only: that counts, and the log passes through"""
        self.plan(turn1="words fail")
        self.start("--notch", "gpu-memory-utilization=-0.1:0.5", flags=["--gpu-memory-utilization=0.9"])
        self.until("serving after")
        self.assertIn("\nValueError: Free memory on device cuda:0 (59.6/79.65 GiB)", self.said())
        self.assertIn("memory ran out, by its own words: 20.05 GiB of the device were in use", self.said())
        self.assertIn("ONE NOTCH LOWER because memory ran out: gpu-memory-utilization 0.9 -> 0.8", self.said())
        self.stop()

    def test_no_notch_without_such_a_failure(self):
        """other failures change nothing, and a limit is kept"""
        self.plan(turn1="fail", turn2="oom abort")
        self.start("--notch", "max-num-seqs=/2:64", flags=["--max-num-seqs", "100"])
        self.until("serving after")
        flags = [line.split(" ", 1)[1] for line in (self.folder / "turns").read_text().splitlines()]
        self.assertEqual(set(flags), {"--max-num-seqs 100"})
        self.assertIn("there is no lower notch", self.said())
        self.stop()

    def test_a_hangup_restarts(self):
        """SIGHUP asks for a restart"""
        self.start()
        self.until("serving after")
        self.process.send_signal(signal.SIGHUP)
        self.until("serving after", 2)
        self.assertEqual(len(self.turn_pids()), 2)
        self.stop()

    def test_recorded_by_default(self):
        """without --bare the command runs under the recorder, in whose place its end is seen"""
        self.plan(turn1="fail")
        self.start(bare=False)
        self.until("the command ended with status 3")
        self.until("serving after")
        self.stop()
        self.assertFalse(any(plimtest.lives(pid) for pid in self.turn_pids()))

    def test_an_engine_that_hangs_behind_a_front_that_answers(self):
        """a process of it that has told figures and tells none any more hangs, whatever the health address says"""
        self.plan(turn1="silent")
        self.start("--heartbeat", "3s", bare=False)
        self.until("serving after")
        self.until("has given no sign of life for ")
        self.assertIn(f"process {self.turn_pids()[0]} of it has given no sign of life for ", self.said())
        self.until("serving after", 2)
        self.stop()

    def test_a_killed_supervisor_takes_the_command_with_it(self):
        """when the supervisor is killed the command gets SIGTERM"""
        self.start()
        self.until("serving after")
        self.process.kill()
        self.process.wait()
        plimtest.wait_for("the command is gone", lambda: not plimtest.lives(self.turn_pids()[0]))

    def test_drains_by_the_ledger(self):
        """the gate's ledger is drained before the server is asked to end, and opened when the next turn serves"""
        ledger = self.folder / "ledger"
        gate_port = plimtest.free_port()
        gate = subprocess.Popen([plimtest.PROGRAM, "gate", "--capacity-tokens", "1600", "--ledger", ledger, "--listen", f"127.0.0.1:{gate_port}"],
                                stderr=subprocess.PIPE, env=plimtest.clean_environment(self.folder))
        self.addCleanup(gate.wait)
        self.addCleanup(gate.kill)
        while "gate at" not in gate.stderr.readline().decode():
            self.assertIsNone(gate.poll())
        self.addCleanup(gate.stderr.close)

        def ask(path, body=None):
            import urllib.error
            import urllib.request
            request = urllib.request.Request(f"http://127.0.0.1:{gate_port}{path}", json.dumps(body).encode() if body else None,
                                             {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=plimtest.PATIENCE) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        self.start("--ledger", ledger, "--drain", "60s")
        self.until("serving after")
        id = json.loads(ask("/v1/admit", {"prompt_tokens": 10})[1])["id"]
        self.process.send_signal(signal.SIGHUP)
        plimtest.wait_for("it is not ready", lambda: ask("/readyz")[0] != 200)
        self.assertEqual(ask("/v1/admit", {"prompt_tokens": 10})[0], 503)
        self.assertEqual(len(self.turn_pids()), 1)
        self.assertTrue(plimtest.lives(self.turn_pids()[0]), "a request is still running")
        ask("/v1/release", {"id": id})
        self.until("serving after", 2)
        plimtest.wait_for("it is ready again", lambda: ask("/readyz")[0] == 200)
        self.assertEqual(ask("/v1/admit", {"prompt_tokens": 10})[0], 200)
        for _ in range(3):
            ask("/v1/oom", {"prompt_tokens": 10})
        self.until("breaker tripped")
        self.process.terminate()
        self.until("asked to end")
        self.process.terminate()  # two at once may be one
        self.process.wait(timeout=plimtest.PATIENCE)

    def test_one_engine_starts_at_a_time(self):
        """two supervisors on one device: the second waits until the first serves, or is gone"""
        device = {"LD_LIBRARY_PATH": os.path.join(os.environ.get("PLIMSOLL_BUILD", str(plimtest.ROOT / "build")), "tests", "fakes")}
        seen = plimtest.run("status", "--format", "json", **device)
        self.assertIn("Pretend GPU", seen.stdout.decode(), "the made-up driver has a device")
        self.plan(turn1="late", turn2="late")
        first = self.start(env=device)
        self.until_turns(1)
        said, self.lines = self.lines, []
        self.start(env=device)
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        self.until("another engine starts on the device")
        self.until_turns(1)
        first.terminate()
        self.assertEqual(first.wait(timeout=plimtest.PATIENCE), 0, said)
        first.stderr.close()
        self.until_turns(2)
        self.stop()

    def test_systemd_is_told(self):
        """READY, STATUS, STOPPING and the watchdog's pings go to NOTIFY_SOCKET, which the command does not get"""
        path = str(self.folder / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(path)
            told.settimeout(plimtest.PATIENCE)
            self.start(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"})
            self.until("serving after")
            environment = pathlib.Path(f"/proc/{self.turn_pids()[0]}/environ").read_bytes()
            self.assertNotIn(b"NOTIFY_SOCKET", environment)
            got = []
            while "READY=1" not in got or got.count("WATCHDOG=1") < 3:
                got.append(told.recv(4096).decode())
            self.stop()
            told.setblocking(False)
            try:
                while True:
                    got.append(told.recv(4096).decode())
            except BlockingIOError:
                pass
        self.assertIn("STATUS=starting", got)
        self.assertIn("STATUS=serving", got)
        self.assertIn("STOPPING=1", got)

    def test_mistakes_are_said(self):
        """options that make no sense, and a command that is not there, end at once with the right code"""
        for options, code, text in ((["--notch", "x"], 64, "is no notch"), (["--notch", "a=/1"], 64, "no step"), (["--restart-window", "25:00-1"], 64, "is no time of day"),
                                    (["--health", "foo"], 64, "is no address"), (["--health", "ftp://x/health"], 64, "is no address"),
                                    (["--health-every", "0"], 64, "must be above 0"), (["--stranded", "20"], 64, "at most 1"),
                                    (["--bare", "--no-lock"], 66, "cannot run"), (["--no-lock"], 66, "cannot run '/nowhere/server': No such file")):
            result = plimtest.run("run", *options, "--", "/nowhere/server")
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(text, result.stderr.decode())
        result = plimtest.run("run")
        self.assertEqual(result.returncode, 64)
        self.assertTrue(re.search("no command", result.stderr.decode()))


if __name__ == "__main__":
    plimtest.main()
