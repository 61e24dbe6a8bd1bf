#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll record: what the command sees of it, how it ends, and kill -9 of either side at any moment.

The programs here write events themselves (record_toy.c), so neither a recorder nor a device is needed. What the
recorder sees is tested with real programs elsewhere. PLIMSOLL_TEST_KILLS: processes killed in each kill test (400).
"""

import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
import simgpu_env  # noqa: E402

HERE = pathlib.Path(os.environ["PLIMSOLL_BUILD"]) / "tests" / "integration"
TOY, CHECK = str(HERE / "record_toy"), str(HERE / "record_check")
KILLS = int(os.environ.get("PLIMSOLL_TEST_KILLS", "400"))
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


def published(path):
    """The number of events that a toy has published."""
    try:
        return int.from_bytes(pathlib.Path(path).read_bytes()[:8], "little")
    except FileNotFoundError:
        return 0


class RecordCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        recorder = self.folder / "recorder"
        recorder.mkdir()
        (recorder / "libplimsoll_record.so").symlink_to(HERE / "librecord_empty.so")
        self.env = dict(os.environ, PLIMSOLL_RECORDER_DIR=str(recorder), TMPDIR=str(self.folder))

    def start(self, *args, **popen):
        # A shell cannot trap what was ignored when it began, as SIGHUP is under nohup.
        popen.setdefault("preexec_fn", lambda: [signal.signal(s, signal.SIG_DFL) for s in PASSED_ON])
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([plimtest.PROGRAM, "record", "--no-attach", *args], cwd=self.folder,
                                env=self.env, **popen)

    def run_it(self, *args, **popen):
        process = self.start(*args, **popen)
        out, err = process.communicate(timeout=plimtest.PATIENCE)
        return process.returncode, out, err.decode()

    def check(self, trace="record.plt", toys=None):
        """What record_check says of a trace, as a dict of its numbers."""
        command = [CHECK, str(self.folder / trace)] + ([str(self.folder / toys)] if toys else [])
        done = subprocess.run(command, capture_output=True, text=True, timeout=plimtest.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        words = done.stdout.split()[1:]
        return dict(zip(words[::2], map(int, words[1::2])))


class TransparencyTest(RecordCase):
    def test_the_command_keeps_its_streams_and_exit_status(self):
        """standard input, output and exit status are those of the command; the summary goes to standard error"""
        code, out, err = self.run_it("--", "sh", "-c", "cat; exit 7", stdin=subprocess.DEVNULL)
        self.assertEqual((code, out), (7, b""))
        self.assertIn("recorded 0 events", err)
        process = self.start("-q", "--", "cat", stdin=subprocess.PIPE)
        out, err = process.communicate(b"hello\n", timeout=plimtest.PATIENCE)
        self.assertEqual((process.returncode, out, err), (0, b"hello\n", b""))

    def test_a_signal_that_ends_the_command_ends_us(self):
        """a command that is killed by a signal is seen to be by whoever started us"""
        code, _, _ = self.run_it("--", "sh", "-c", "kill -ABRT $$")
        self.assertEqual(code, -signal.SIGABRT)

    def test_signals_are_passed_on(self):
        """a signal sent to us alone reaches the command, whose answer to it counts"""
        for number in PASSED_ON:
            name = number.name[3:]
            with self.subTest(name):
                process = self.start("-q", "--", "sh", "-c",
                                     f"trap 'echo got; exit 3' {name}; echo ready; while :; do sleep 0.01; done")
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(number)
                out, _ = process.communicate(timeout=plimtest.PATIENCE)
                self.assertEqual((process.returncode, out), (3, b"got\n"))

    def test_wrong_use_and_places_have_their_codes(self):
        """a missing command, one that is not there, a trace that cannot be made, a recorder that is missing"""
        self.assertEqual(self.run_it()[0], 64)
        code, _, err = self.run_it("--", "/no/such/program")
        self.assertEqual(code, 66)
        self.assertIn("cannot run '/no/such/program'", err)
        self.assertEqual(list(self.folder.glob("*.plt")), [], "a command that was not started leaves no trace")
        code, _, err = self.run_it("-o", "no/such/folder.plt", "--", "true")
        self.assertEqual(code, 73)
        self.env["PLIMSOLL_RECORDER_DIR"] = str(self.folder)
        real = pathlib.Path(plimtest.PROGRAM).parent / "runtime" / "recorder" / "libplimsoll_record.so"
        self.assertEqual(self.run_it("--", "true")[0], 0 if real.exists() else 66)


class TraceTest(RecordCase):
    def test_every_event_is_in_the_trace(self):
        """the trace of a program that ended holds every event, and is sealed"""
        code, _, err = self.run_it("--", TOY, "write", "count", "20000", "500")
        self.assertEqual(code, 0, err)
        found = self.check()
        self.assertEqual((found["processes"], found["sealed"], found["torn"]), (1, 1, 0))
        self.assertGreaterEqual(found["events"] + found["lost"], 20000)
        size = (self.folder / "record.plt").stat().st_size
        self.assertLess(size / found["events"], 16)

    def test_a_trace_can_be_read_while_it_is_written(self):
        """a reader at any moment finds whole events"""
        process = self.start("-q", "--", TOY, "write", "count", "0", "20000")
        for goal in (1000, 50000, 100000):
            plimtest.wait_for("events are published", lambda g=goal: published(self.folder / "count") >= g)
            found = self.check()
            self.assertEqual(found["sealed"], 0)
        process.terminate()
        process.communicate(timeout=plimtest.PATIENCE)
        self.assertEqual(self.check()["sealed"], 1)

    def test_children_that_outlive_the_command(self):
        """a process that goes on is let go, and said; with --follow it is recorded to its end"""
        script = f"'{TOY}' write count 0 1000000 >/dev/null 2>&1 & echo $!; while [ ! -s count ]; do sleep 0.01; done"
        code, out, err = self.run_it("--", "sh", "-c", script, stdout=subprocess.PIPE)
        child = int(out.split()[0])
        self.addCleanup(lambda: os.kill(child, signal.SIGKILL))
        self.assertEqual(code, 0)
        self.assertIn("1 processes go on", err)
        self.assertEqual(self.check()["sealed"], 1)
        os.kill(child, 0)
        script = f"(sleep 0.3; exec '{TOY}' write count2 3000 100000) >/dev/null 2>&1 & exit 5"
        code, _, err = self.run_it("--follow", "-o", "b.plt", "--", "sh", "-c", script)
        self.assertEqual(code, 5)
        self.assertGreaterEqual(self.check("b.plt")["events"], 3000)

    def test_a_process_that_becomes_other_programs(self):
        """each program that a process becomes by exec is recorded, also behind one whose events were all read"""
        code, _, err = self.run_it("--", TOY, "chain", "count", "100", "4")
        self.assertEqual(code, 0, err)
        found = self.check()
        self.assertEqual((found["processes"], found["events"], found["sealed"]), (4, 400, 1))

    def test_a_limit_of_size_is_kept_and_said(self):
        """behind a limit the command goes on, events are counted, and the trace is whole"""
        code, _, err = self.run_it("--max-size", "40KiB", "--", TOY, "write", "count", "100000", "300")
        self.assertEqual(code, 0)
        self.assertIn("a limit of the recording is reached", err)
        self.assertIn("events not written: behind a limit", err)
        self.assertEqual(self.check()["sealed"], 1)
        self.assertLess((self.folder / "record.plt").stat().st_size, 80 << 10)

    def test_a_disk_that_fills_up_is_said_and_survived(self):
        """when the file may not grow the command goes on; when it may again, so does the trace"""
        process = self.start("--", TOY, "write", "count", "0", "5000")
        plimtest.wait_for("the trace grows", lambda: (self.folder / "record.plt").exists() and
                          (self.folder / "record.plt").stat().st_size > 1000)
        size = (self.folder / "record.plt").stat().st_size
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size + 7, resource.RLIM_INFINITY))
        before = published(self.folder / "count")
        plimtest.wait_for("the command goes on", lambda: published(self.folder / "count") > before + 400000)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        end = published(self.folder / "count") + 400000
        plimtest.wait_for("the command goes on", lambda: published(self.folder / "count") > end)
        process.terminate()
        _, err = process.communicate(timeout=plimtest.PATIENCE)
        self.assertIn(b"events are counted until there is room again", err)
        self.assertIn(b"events lost: the disk was full", err)
        done = subprocess.run([CHECK, str(self.folder / "record.plt")], capture_output=True, text=True)
        self.assertTrue(done.stdout.startswith("bad order"), done.stdout)  # a gap, and nothing worse

    def test_a_full_device_is_an_error_at_once(self):
        """a place that takes not even the head of a trace is refused before the command starts"""
        code, out, err = self.run_it("-o", "/dev/full", "--", "echo", "started")
        self.assertEqual((code, out), (74, b""))
        self.assertIn("cannot write the trace", err)


class KillTest(RecordCase):
    def test_kill_of_recorded_processes(self):
        """kill -9 of recorded processes at random moments: every published event is in the trace"""
        (self.folder / "toys").mkdir()
        process = self.start("--", "sh", "-c", f"echo $PLIMSOLL_RECORD_DIR && exec '{TOY}' kill toys {KILLS} 8 7")
        session = pathlib.Path(process.stdout.readline().decode().strip())
        most = self.most_files(process, session)
        out, err = process.communicate(timeout=plimtest.PATIENCE)
        self.assertEqual((process.returncode, int(out)), (0, KILLS), err)
        self.assertLess(most, KILLS // 2, "files of dead processes pile up")
        self.assertFalse(session.exists())
        found = self.check(toys="toys")
        self.assertGreaterEqual(found["processes"], KILLS // 8)  # every eighth one has begun before it dies
        self.assertEqual((found["sealed"], found["torn"]), (1, 0))

    def most_files(self, process, session):
        """The greatest number of files that were in the session's folder at once, until the process has ended."""
        most = 0
        end = time.monotonic() + plimtest.PATIENCE + KILLS / 50
        while process.poll() is None and time.monotonic() < end:
            try:
                most = max(most, len(os.listdir(session)))
            except FileNotFoundError:
                pass  # it is over
            time.sleep(0.005)
        return most

    def test_files_that_are_not_finished_go_with_their_process(self):
        """what a dead process left hidden is removed while the recording goes on; of the living nothing is"""
        script = 'echo "$PLIMSOLL_RECORD_DIR"; read line'
        process = self.start("-q", "--", "sh", "-c", script, stdin=subprocess.PIPE)
        session = pathlib.Path(process.stdout.readline().decode().strip())
        start = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
        dead = [".1-1.0.plimshm", ".999999999-5.0.plimshm", "1-1.0.plimattach"]
        kept = [f".{os.getpid()}-{start}.0.plimshm", f"{os.getpid()}-{start}.0.plimattach", "other", ".other"]
        for name in dead + kept:
            (session / name).write_bytes(b"x")
        plimtest.wait_for("the dead ones' files are removed", lambda: not any((session / name).exists() for name in dead))
        self.assertEqual([name for name in kept if not (session / name).exists()], [])
        process.communicate(b"\n", timeout=plimtest.PATIENCE)
        self.assertFalse(session.exists())

    def test_kill_of_processes_that_use_the_device(self):
        """kill -9 in the middle of calls to the simulated device, with the recorder in front of it"""
        del self.env["PLIMSOLL_RECORDER_DIR"]
        self.env = simgpu_env.environment(os.environ["PLIMSOLL_BUILD"], base=self.env, gpu="288GiB",
                                          state=self.folder / "books")
        code, out, err = self.run_it("--", TOY, "cuda", str(KILLS), "8", "7")
        self.assertEqual((code, int(out)), (0, KILLS), err)
        done = subprocess.run([CHECK, str(self.folder / "record.plt"), "any"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        found = dict(zip(done.stdout.split()[1::2], map(int, done.stdout.split()[2::2])))
        self.assertGreaterEqual(found["processes"], KILLS // 32)
        self.assertEqual((found["sealed"], found["torn"]), (1, 0))

    def kill_one(self, number, delay):
        """Start a recording, kill it after `delay`; the program goes on, and the trace is good up to then."""
        trace, count = f"{number}.plt", self.folder / f"count-{number}"
        process = self.start("-q", "-o", trace, "--", "sh", "-c",
                             f"echo $$; exec '{TOY}' write count-{number} 0 20000", stderr=subprocess.DEVNULL)
        toy = process.stdout.readline()
        time.sleep(delay)  # the moment is the point of the test
        process.kill()
        process.wait()
        if not toy:
            return  # killed before the program was started
        before = published(count)
        try:
            plimtest.wait_for("the program goes on", lambda: published(count) > before)
            if (self.folder / trace).stat().st_size >= 32:
                found = self.check(trace)
                self.assertEqual(found["sealed"], 0)
        finally:
            try:
                os.kill(int(toy), signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.stdout.close()

    def test_kill_of_the_recording(self):
        """kill -9 of plimsoll record at random moments: the program goes on, the trace is good up to then"""
        rng = random.Random(11)
        numbers = iter(range(KILLS // 4))
        failures = []
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    number, delay = next(numbers, None), rng.random() ** 2 * 0.12
                if number is None:
                    return
                try:
                    self.kill_one(number, delay)
                except BaseException as error:  # told below, by the thread of the test
                    failures.append(f"{number}: {error}")
                    return

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_what_a_killed_recording_leaves_is_removed_by_the_next(self):
        """files of a killed recording go when their processes have gone, and then its folder"""
        process = self.start("-q", "--", TOY, "write", "count", "0", "100000", stderr=subprocess.DEVNULL)
        plimtest.wait_for("it writes", lambda: published(self.folder / "count") > 0)
        toy = int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        process.kill()
        process.wait()
        process.stdout.close()
        left = [path.parent for parent in (pathlib.Path("/dev/shm"), self.folder)
                for path in parent.glob(f"plimsoll-record-*/{toy}-*.plimshm")]
        self.assertEqual(len(left), 1)
        self.run_it("-q", "--", "true")
        self.assertTrue(left[0].exists(), "it is in use")
        os.kill(toy, signal.SIGKILL)
        plimtest.wait_for("the program is gone", lambda: not plimtest.lives(toy))
        self.run_it("-q", "--", "true")
        self.assertEqual(os.listdir(left[0]), [])
        os.utime(left[0], (1, 1))  # a young one stays: its program may be about to begin
        self.run_it("-q", "--", "true")
        self.assertFalse(left[0].exists())


if __name__ == "__main__":
    plimtest.main()
