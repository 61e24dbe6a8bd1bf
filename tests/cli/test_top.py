#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll top in a terminal that the test drives: a pseudo-terminal, and an emulator that says what stands on it."""

import fcntl
import json
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

try:
    import pyte  # Debian package python3-pyte
except ImportError:
    pyte = None

GIB = 1 << 30


def sample(uses, time_ns=1_795_996_309_000_000_000):
    """One sample of two devices; uses are (device, pid, GiB)."""
    devices = []
    for index in range(2):
        used = sum(gib for device, _, gib in uses if device == index) * GIB
        devices.append({"vendor": "nvidia", "name": f"Test GPU {index}", "uuid": f"GPU-{index}", "state": "ok",
                        "total_bytes": 80 * GIB, "used_bytes": used, "free_bytes": 80 * GIB - used})
    return {"schema": "plimsoll.sample/1", "time_ns": time_ns, "devices": devices,
            "uses": [{"device": device, "pid": pid, "bytes": gib * GIB, "kinds": ["compute"]}
                     for device, pid, gib in uses]}


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *args, columns=110, lines=24, term="screen-256color", **env):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.sent = b""
        self.home = tempfile.TemporaryDirectory()
        self.master, slave = pty.openpty()
        self.resize(columns, lines, tell=False)
        self.process = subprocess.Popen(
            [plimtest.PROGRAM, "top", *map(str, args)], stdin=slave, stdout=slave, stderr=slave,
            env=plimtest.clean_environment(self.home.name, TERM=term, **env), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def resize(self, columns, lines, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.screen.resize(lines, columns)

    def read(self, seconds):
        """Take what the program sends within so long; False when nothing came."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        try:
            got = os.read(self.master, 65536) if ready else b""
        except OSError:  # the other side is closed
            got = b""
        self.sent += got
        self.stream.feed(got)
        return bool(got)

    def until(self, *wanted, absent=()):
        """Wait until all of these texts stand on the screen, and none of the absent ones."""
        deadline = time.monotonic() + plimtest.PATIENCE
        while time.monotonic() < deadline:
            text = self.text()
            if all(w in text for w in wanted) and not any(a in text for a in absent):
                return text
            if not self.read(0.2) and self.process.poll() is not None:
                break
        raise AssertionError(f"not on the screen: {wanted} without {absent}\n{self.text()}\n"
                             f"exit status {self.process.poll()}")

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def press(self, keys):
        os.write(self.master, keys if isinstance(keys, bytes) else keys.encode())

    def wait(self):
        """The exit status, with all output taken."""
        deadline = time.monotonic() + plimtest.PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.05)
        while self.read(plimtest.PATIENCE):  # until the terminal says that nobody is there any more
            pass
        return self.process.poll()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.master >= 0:
            os.close(self.master)
        self.home.cleanup()


@unittest.skipUnless(pyte, "python3-pyte is not installed")
class TopTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.samples = pathlib.Path(self.folder.name) / "samples.jsonl"
        self.write([sample([(0, 4242, 40), (0, 777, 20), (1, 4243, 70)])])

    def write(self, samples):
        self.samples.write_text("".join(json.dumps(s) + "\n" for s in samples))

    def start(self, *args, **options):
        terminal = Terminal("--samples", self.samples, "--interval", "100ms", *args, **options)
        self.addCleanup(terminal.close)
        return terminal

    def rows(self, text):
        """Pids of the list, from top to bottom."""
        lines = text.splitlines()
        head = next(i for i, line in enumerate(lines) if "PID" in line and "MEMORY" in line)
        return [int(line.split()[0]) for line in lines[head + 1:] if line.strip() and line.split()[0].isdigit()]

    def until_rows(self, top, wanted, *texts, absent=()):
        """Wait until the list shows these pids: what stands on the screen meanwhile may be half of two frames."""
        deadline = time.monotonic() + plimtest.PATIENCE
        while self.rows(top.until(*texts, absent=absent)) != wanted:
            self.assertLess(time.monotonic(), deadline, f"not {wanted}\n{top.text()}")
            top.read(0.2)

    def test_shows_devices_and_processes_and_ends(self):
        """devices, bars and processes stand on the screen; q ends it and gives the terminal back"""
        top = self.start()
        text = top.until("0 Test GPU 0", "60.00 GiB of 80.00 GiB", "1 Test GPU 1", "4243", "Help")
        self.assertEqual(self.rows(text), [4243, 4242, 777])
        self.assertIn("▓", text)
        self.assertIn(b"\x1b[?1049h", top.sent, "the alternate screen is used")
        top.press("q")
        self.assertEqual(top.wait(), 0)
        self.assertIn(b"\x1b[?1049l", top.sent, "the screen that was there before comes back")

    def test_keys(self):
        """keys sort, reverse, filter, select, open details and help"""
        top = self.start()
        top.until("4243")
        top.press("P")
        self.until_rows(top, [777, 4242, 4243], "PIDv")
        top.press("r")
        self.until_rows(top, [4243, 4242, 777], "PID^")
        top.press("/424")
        top.until("Filter: 424", absent=[" 777"])
        top.press("\r")
        top.until('only "424"', "Help")
        top.press("\x1b")
        top.until("777", absent=["only"])
        top.press("\x1bOB\x1bOB\x1bOA\r")  # down twice, up, Enter
        top.until("process 4243 on device 1", "device memory")
        top.press("i")
        top.until("Help", absent=["process 4243 on device"])
        top.press("\x1bOP")  # F1
        top.until("Keys and columns")
        top.press(" ")
        top.until("Help", absent=["Keys and columns"])
        top.press("1")
        self.until_rows(top, [4243], "4243", absent=[" 777"])
        top.press("a+")
        top.until(" 777", "every 0.1 s")
        top.press("-")
        top.until("every 0.25 s")
        top.press("p")
        top.until("PAUSED")
        top.press("\x0c")  # Ctrl-L
        top.until("PAUSED")
        top.press("\x1b[21~")  # F10
        self.assertEqual(top.wait(), 0)

    def test_a_storm_of_sizes(self):
        """the terminal may have any size, and change it at any time"""
        top = self.start()
        top.until("4243")
        for columns, lines in [(1, 1), (300, 100), (2, 50), (200, 2), (20, 5), (79, 24), (3, 3), (132, 43)] * 5:
            top.resize(columns, lines)
            top.read(0.01)
            top.press("\x1bOB?x")
        top.resize(110, 24)
        top.until("0 Test GPU 0", "777", "Help")
        top.press("q")
        self.assertEqual(top.wait(), 0)

    def test_processes_come_and_go(self):
        """processes that come and go leave the list in order"""
        self.write([sample([(k % 2, 1000 + (k * 7 + i) % 97, 1 + i % 5) for i in range(k % 11)],
                           1_795_996_309_000_000_000 + k * 100_000_000) for k in range(40)]
                   + [sample([(0, 5555, 7)])])
        top = self.start("--interval", "100ms", "--tree")
        for _ in range(30):
            top.press("j>k")
            top.read(0.05)
        self.until_rows(top, [5555], "5555", "1 process ")
        top.press("q")
        self.assertEqual(top.wait(), 0)

    def test_without_colours_and_unicode(self):
        """NO_COLOR sends no colour; a terminal that is not UTF-8 gets ASCII"""
        top = self.start(NO_COLOR="1", LC_ALL="C")
        text = top.until("4243", "Help")
        self.assertTrue(text.isascii(), text)
        self.assertIn("[ooo", text)
        self.assertNotRegex(top.sent.decode(errors="replace"), "\x1b\\[[0-9;]*3[0-7]m")
        coloured = self.start()
        coloured.until("4243", "Help")
        self.assertRegex(coloured.sent.decode(errors="replace"), "\x1b\\[[0-9;]*3[0-7]m")

    def test_signals_and_a_terminal_that_is_gone(self):
        """Ctrl-C, SIGTERM and a closed terminal end it at once"""
        top = self.start()
        top.until("4243")
        top.press("\x03")
        top.wait()
        self.assertIn(b"\x1b[?1049l", top.sent)
        top = self.start()
        top.until("4243")
        top.process.send_signal(signal.SIGTERM)
        top.wait()
        self.assertIn(b"\x1b[?1049l", top.sent)
        top = self.start()
        top.until("4243")
        os.close(top.master)
        top.master = -1
        self.assertIsNotNone(top.process.wait(timeout=plimtest.PATIENCE))

    def test_a_terminal_of_an_unknown_kind(self):
        """a terminal of an unknown kind, or none, is refused with the way out"""
        top = self.start(term="nonsense")
        self.assertEqual(top.wait(), 69)
        self.assertIn(b"--batch", top.sent)
        result = plimtest.run("top", "--samples", self.samples)
        self.assertEqual(result.returncode, 69)
        self.assertIn(b"no terminal", result.stderr)

    def test_batch(self):
        """--once and --batch print plain text, narrow or wide"""
        result = plimtest.run("top", "--once", "--samples", self.samples)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        text = result.stdout.decode()
        self.assertEqual(self.rows(text), [4243, 4242, 777])
        self.assertNotIn("\x1b", text)
        result = plimtest.run("top", "--batch", "--steps", "3", "--interval", "100ms", "--width", "60", "--sort", "pid",
                              "--ascii", "--samples", self.samples)
        screens = result.stdout.decode().split("\n\n")
        self.assertEqual(len(screens), 3)
        for text in screens:
            self.assertEqual(self.rows(text), [777, 4242, 4243])
            self.assertLessEqual(max(map(len, text.splitlines())), 60)

    def test_from_a_monitor(self):
        """--monitor shows what a running monitor sees, and says when it is gone"""
        socket = pathlib.Path(self.folder.name) / "watch.sock"
        with tempfile.TemporaryDirectory() as home:
            monitor = subprocess.Popen([plimtest.PROGRAM, "watch", "--samples", str(self.samples), "--listen",
                                        f"unix:{socket}", "--db", "none", "--interval", "100ms"],
                                       env=plimtest.clean_environment(home), stderr=subprocess.DEVNULL)
            try:
                plimtest.wait_for("the socket", socket.exists)
                top = Terminal("--monitor", f"unix:{socket}", "--interval", "100ms")
                self.addCleanup(top.close)
                self.until_rows(top, [4243, 4242, 777], "0 Test GPU 0", "4243", "Help")
            finally:
                monitor.terminate()
                monitor.wait()
        top.until("does not answer", "4243")
        top.press("q")
        self.assertEqual(top.wait(), 0)
        result = plimtest.run("top", "--once", "--monitor", f"unix:{socket}")
        self.assertEqual(result.returncode, 66)
        self.assertIn(b"plimsoll watch", result.stderr)


if __name__ == "__main__":
    plimtest.main()
