#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll view without a browser: who may ask, and that each answer is what the trace holds."""

import http.client
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
from test_report import unpacked  # noqa: E402

GENERATOR = plimtest.ROOT / "tests" / "bench" / "gen_snapshot.py"
EVENTS = 6000  # of each of the two devices


class Server:
    """The program serving a snapshot, until the block ends; `code` is then its exit status."""

    def __init__(self, snapshot, *options):
        self.words = [plimtest.PROGRAM, "view", "--no-browser", *options, str(snapshot)]

    def __enter__(self):
        self.home = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, env=plimtest.clean_environment(self.home.name))
        self.url = urllib.parse.urlsplit(self.process.stdout.readline().decode().strip())
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.home.cleanup()

    def ask(self, what="", method="GET", path=None, **headers):
        """(status, headers, body) of an answer below the token, or of another path."""
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        connection.request(method, path or self.url.path + what, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def columns(self, what):
        status, headers, body = self.ask(what)
        assert status == 200 and headers["Content-Type"] == "application/octet-stream", (status, body)
        return unpacked(body)


class ViewTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.snapshot = pathlib.Path(cls.folder.name) / "two.pickle"
        subprocess.run([sys.executable, GENERATOR, "--devices", "2", "--events", str(2 * EVENTS), cls.snapshot], check=True,
                       stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_only_the_address_with_the_token_is_answered(self):
        """without the token, with half of it, for another host, or with another method there is nothing; Ctrl-C ends"""
        with Server(self.snapshot) as server:
            self.assertRegex(server.url.geturl(), r"^http://127\.0\.0\.1:\d+/[0-9a-f]{32}/$")
            self.assertEqual(server.ask()[0], 200)
            for path in ("/", "/x", "/" + "0" * 32 + "/", server.url.path[:-2] + "/", server.url.path[:20], server.url.path[:-1]):
                self.assertEqual(server.ask(path=path)[0], 404, path)
            self.assertEqual(server.ask("nothing")[0], 404)
            self.assertEqual(server.ask(Host="evil.example")[0], 403)
            self.assertEqual(server.ask(Host=f"localhost:{server.url.port}")[0], 200)
            self.assertEqual(server.ask(method="POST")[0], 405)
            status, headers, body = server.ask(method="HEAD")
            self.assertEqual((status, body), (200, b""))
            self.assertEqual([headers[n] for n in ("X-Frame-Options", "X-Content-Type-Options", "Cache-Control", "Referrer-Policy")],
                             ["DENY", "nosniff", "no-store", "no-referrer"])
        self.assertEqual(server.code, 0)

    def test_questions_that_make_no_sense_are_refused(self):
        """missing, negative, enormous and contradictory numbers have a status of their own, and the server lives on"""
        wrong = {"series": 400, "series?from=0&to=10": 400, "series?from=5&to=5&bins=3": 422, "series?from=0&to=9&bins=0": 422,
                 "series?from=0&to=9&bins=20001": 400, "series?from=-1&to=9&bins=3": 400, "series?from=&to=9&bins=3": 400,
                 "events?from=1": 400, "events?from=9&to=3": 422, "events?from=0&to=99999999999999": 400,
                 "heap": 400, f"heap?at={EVENTS + 100}": 422, "heap?at=1&device=2": 422, "heap?at=1&device=x": 422}
        with Server(self.snapshot) as server:
            for question, status in wrong.items():
                got, headers, body = server.ask(question)
                self.assertEqual(got, status, question)
                self.assertEqual(headers["Content-Type"], "application/json", question)
                self.assertTrue(json.loads(body)["error"]["message"], question)
            self.assertEqual(server.ask("events?from=0&to=1")[0], 200)

    def test_a_window_of_the_ledger_is_exact(self):
        """bins of one event add up to the heap at that moment; wider ones hold the highest point of theirs"""
        with Server(self.snapshot) as server:
            fine = server.columns("series?from=1000&to=1200&bins=200")
            self.assertEqual(fine["se.range"], (1000, 1200, 1))
            wide = server.columns("series?from=1000&to=1200&bins=10")
            self.assertEqual(wide["se.range"][2], 20)
            allocated = [a + b for a, b in zip(fine["se.live"], fine["se.rounding"])]
            highest = [a + b for a, b in zip(wide["se.live"], wide["se.rounding"])]
            self.assertEqual(highest, [max(allocated[i:i + 20]) for i in range(0, 200, 20)])
            for position in (1001, 1100, 1200):
                heap = server.columns(f"heap?at={position}")
                self.assertTrue(all(s <= position < e for s, e in zip(heap["bl.start"], heap["bl.end"])))
                self.assertEqual(sum(heap["bl.requested"]), fine["se.live"][position - 1001])
                self.assertEqual(sum(heap["sg.size"]), sum(fine[f"se.{n}"][position - 1001] for n in
                                                           ("live", "rounding", "private", "stranded", "releasable")))

    def test_events_come_with_their_stacks(self):
        """the events asked for, in order, and of the last ones as many as there are; each stack they name is there"""
        with Server(self.snapshot) as server:
            found = server.columns("events?from=100&to=160")
            self.assertEqual(found["ev.index"], tuple(range(100, 160)))
            named = {s for s in found["ev.stack"] if s != 0xffffffff}
            self.assertTrue(named and named <= set(found["st.id"]))
            last = server.columns("events?from=5990&to=9999")["ev.index"]
            self.assertEqual((last[0], last[-1] - last[0] + 1), (5990, len(last)))

    def test_each_device_is_answered_for_itself(self):
        """the page holds both devices; device=N asks about that one, and without it about the one shown first"""
        with Server(self.snapshot) as server:
            page = server.ask()[2].decode()
            self.assertEqual(page.count('id="plimsoll-data"'), 2)
            self.assertIn("connect-src 'self'", page)
            first = page.split('aria-current="page"')[0].rsplit('data-device="', 1)[1][0]
            answers = {d: server.columns(f"events?from=0&to=50&device={d}")["ev.addr"] for d in "01"}
            self.assertNotEqual(answers["0"], answers["1"])
            self.assertEqual(server.columns("events?from=0&to=50")["ev.addr"], answers[first])
        with Server(self.snapshot, "--device", "1") as server:
            self.assertEqual(server.ask()[2].decode().count('id="plimsoll-data"'), 1)
            self.assertEqual(server.columns("events?from=0&to=50")["ev.addr"], answers["1"])

    def test_a_port_that_is_taken_or_is_none_is_told(self):
        """a second server on the same port ends with what to do; a number that is no port is wrong usage"""
        with Server(self.snapshot) as server:
            result = plimtest.run("view", "--no-browser", "--port", server.url.port, self.snapshot)
            self.assertEqual(result.returncode, 71)
            self.assertIn(b"--port 0 takes a free one", result.stderr)
        self.assertEqual(plimtest.run("view", "--port", "70000", self.snapshot).returncode, 64)


if __name__ == "__main__":
    plimtest.main()
