#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alerts of a real monitor to real receivers on this machine: good ones, slow, hostile and absent ones."""

import email
import email.policy
import hashlib
import hmac
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import monitor  # noqa: E402
import plimtest  # noqa: E402

RULE = """
[watch]
default-alerts = no
alert-state = {where}/state/alerts.json
url = https://gpu.example.org
[alert full]
figure = device.used_ratio
above = 0.8
clear = 0.7
for = 200ms
clear-for = 200ms
next-step = Stop a replica.
runbook = https://wiki.example.org/full
"""


def hook_settings(name, url):
    """A webhook. Its time limit is none: a receiver on a busy machine is asked once, and whoever waits for one that hangs
    never comes to the end of a test."""
    return f"[notify {name}]\nkind = webhook\nurl = {url}/hook\ngroup-wait = 0\ntimeout = 10m\n"


def script(where, name, text):
    path = where / name
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return path


class AlertCase(unittest.TestCase):
    def setUp(self):
        keeper = monitor.folder()
        self.where = keeper.__enter__()
        self.addCleanup(keeper.__exit__, None, None, None)
        (self.where / "state").mkdir()

    def receiver(self, *args, **kwargs):
        r = monitor.Receiver(*args, **kwargs)
        self.addCleanup(r.server_close)
        self.addCleanup(r.shutdown)
        return r

    def watch(self, settings, *levels, **kwargs):
        monitor.write_samples(self.where / "samples", *levels)
        m = monitor.Monitor(self.where, RULE.format(where=self.where) + settings, **kwargs)
        self.addCleanup(m.__exit__)
        return m

    def state(self):
        return json.loads((self.where / "state" / "alerts.json").read_text(encoding="utf-8"))


class Delivery(AlertCase):
    def test_webhook(self):
        """A webhook gets one message when an alert fires and one when it ends, signed and as its schema says"""
        hook = self.receiver()
        (self.where / "key").write_text("secret-of-the-hook\n", encoding="utf-8")
        (self.where / "token").write_text("s3cr3t\n", encoding="utf-8")
        m = self.watch(hook_settings("hook", hook.url) + f"hmac-file = {self.where}/key\n"
                       f"token-file = {self.where}/token\n", (20, 5), (70, 20), (20, 1))
        plimtest.wait_for("the end of the alert", lambda: hook.alerts("resolved"))
        self.assertEqual([x["status"] for x in hook.messages()], ["firing", "resolved"])
        for (_, headers, body), message in zip(hook.got, hook.messages()):
            self.assertEqual(plimtest.schema_complaints(message), [])
            self.assertEqual(headers["X-Plimsoll-Signature"],
                             "sha256=" + hmac.new(b"secret-of-the-hook", body, hashlib.sha256).hexdigest())
            self.assertEqual(headers["Authorization"], "Bearer s3cr3t")
            self.assertEqual(headers["Idempotency-Key"], message["message"])
        fired, ended = (x["alerts"][0] for x in hook.messages())
        self.assertEqual(fired["next_step"], "Stop a replica.")
        self.assertIn("device.used_ratio is 0.875", fired["summary"])
        self.assertTrue(fired["url"].startswith("https://gpu.example.org/"))
        self.assertEqual(fired["fingerprint"], ended["fingerprint"])
        self.assertLess(ended["fired_at"], ended["resolved_at"])
        self.assertNotIn("s3cr3t", m.said())

    def test_mail(self):
        """A mail is whole MIME: text for people, the JSON attached, recipients behind --"""
        program = script(self.where, "sendmail", 'echo "$@" > args.part; cat > mail; mv args.part args\n')
        self.watch(f"[notify mail]\nkind = email\nto = oncall@example.org, b@example.org\nsendmail = {program}\n"
                   "group-wait = 0\n", (70, 1))
        plimtest.wait_for("the mail", (self.where / "args").exists)
        self.assertEqual((self.where / "args").read_text(encoding="utf-8").split(),
                         ["-i", "--", "oncall@example.org", "b@example.org"])
        mail = email.message_from_bytes((self.where / "mail").read_bytes(), policy=email.policy.default)
        self.assertEqual(mail["Auto-Submitted"], "auto-generated")
        self.assertIn("device.used_ratio is 0.875", mail["Subject"])
        self.assertEqual(list(mail.defects), [])
        text, attached = mail.iter_parts()
        self.assertIn("Stop a replica.", text.get_content())
        message = json.loads(attached.get_content())
        self.assertEqual(plimtest.schema_complaints(message), [])

    def test_script(self):
        """A script has the alert in its environment and on standard input"""
        program = script(self.where, "page", 'echo "$PLIMSOLL_ALERT_RULE $PLIMSOLL_ALERT_STATUS" > env\n'
                                             'cat > part; mv part json\n')
        self.watch(f"[notify page]\nkind = script\nprogram = {program}\ngroup-wait = 0\n", (70, 1))
        plimtest.wait_for("the script", (self.where / "json").exists)
        self.assertEqual((self.where / "env").read_text(encoding="utf-8"), "full firing\n")
        self.assertEqual(plimtest.schema_complaints(json.loads((self.where / "json").read_bytes())), [])

    def test_sample(self):
        """--test-alert sends a sample and says why one was not delivered"""
        hook = self.receiver()
        (self.where / "settings").write_text(hook_settings("hook", hook.url), encoding="utf-8")
        good = plimtest.run("watch", "--settings", self.where / "settings", "--test-alert", "hook")
        self.assertEqual((good.returncode, good.stdout), (0, b"hook: the sample alert was delivered\n"))
        self.assertTrue(hook.messages()[0]["test"])
        hook.answer = 500
        bad = plimtest.run("watch", "--settings", self.where / "settings", "--test-alert", "hook")
        self.assertEqual(bad.returncode, 74)
        self.assertIn(b"status 500", bad.stderr)


class Api(AlertCase):
    def test_silence_and_acknowledge(self):
        """What is silenced is not told until that ends, and both silence and acknowledgement outlive a crash"""
        hook = self.receiver()
        port = plimtest.free_port()
        api = f"http://127.0.0.1:{port}/api/v1"
        (self.where / "token").write_text("t0ken-of-sixteen-and-more\n", encoding="utf-8")
        known = {"Authorization": "Bearer t0ken-of-sixteen-and-more"}
        settings = hook_settings("hook", hook.url) + f"[watch]\ntoken-file = {self.where}/token\n"

        def state():
            try:
                return json.loads(monitor.fetch(api + "/alerts"))
            except OSError:
                return None

        def firing():
            found = state()
            return [a for a in found["alerts"] if a["status"] == "firing"] if found else None

        m = self.watch(settings, (20, 20), (70, 1), listen=f"127.0.0.1:{port}")
        plimtest.wait_for("the monitor", state)
        made = json.loads(monitor.fetch(api + "/silences", json.dumps({"seconds": 600, "device": "GPU-1111*"}).encode(),
                                        known))
        alert = plimtest.wait_for("the alert", firing)[0]
        self.assertEqual(plimtest.schema_complaints(state()), [])
        monitor.fetch(f"{api}/alerts/{alert['fingerprint']}/acknowledge", b"", known)
        plimtest.wait_for("the state", lambda: self.state()["alerts"] and self.state()["alerts"][0]["acknowledged"])
        m.process.kill()
        m.process.wait()
        self.watch(settings, (70, 1), listen=f"127.0.0.1:{port}")
        self.assertTrue(plimtest.wait_for("the alert again", firing)[0]["acknowledged"])
        self.assertEqual(state()["silences"][0]["id"], made["id"])
        self.assertEqual(hook.got, [])


class Trouble(AlertCase):
    def test_absent(self):
        """What a receiver missed while it was away it gets when it is back; its secret URL is in no log"""
        port = plimtest.free_port()
        (self.where / "url").write_text(f"http://127.0.0.1:{port}/T0PS3CRET", encoding="utf-8")
        m = self.watch(f"[notify late]\nkind = webhook\nurl-file = {self.where}/url\ngroup-wait = 0\n", (70, 1))
        plimtest.wait_for("the failure", lambda: "not delivered" in m.said())
        hook = self.receiver(port=port)
        plimtest.wait_for("the alert", lambda: hook.alerts("firing"))
        plimtest.wait_for("the end of trouble", lambda: "delivered again" in m.said())
        self.assertNotIn("T0PS3CRET", m.said())
        self.assertEqual(len(hook.alerts("firing")), 1)

    def test_one_bad_receiver_holds_up_no_other(self):
        """Receivers that hang, answer without end or send elsewhere hold up neither others nor sampling"""
        def endless(handler):
            handler.send_response(200)
            handler.end_headers()
            try:
                while True:
                    handler.wfile.write(b"x" * 65536)
            except OSError:
                pass

        def elsewhere(handler):
            handler.send_response(302)
            handler.send_header("Location", good.url + "/stolen")
            handler.end_headers()

        good = self.receiver()
        end = threading.Event()
        hanging = self.receiver(lambda handler: end.wait())
        self.addCleanup(end.set)
        bad = [hanging, self.receiver(endless), self.receiver(elsewhere)]
        settings = "".join(hook_settings(f"bad{i}", r.url) for i, r in enumerate(bad))
        m = self.watch(settings + hook_settings("good", good.url), (70, 10), (20, 1))
        plimtest.wait_for("the end", lambda: good.alerts("resolved"))
        plimtest.wait_for("all were tried", lambda: all(r.got for r in bad))
        self.assertEqual({path for path, _, _ in good.got}, {"/hook"})
        m.__exit__()  # waits for none of them either
        self.assertEqual(m.process.returncode, 0)

    def test_refused(self):
        """A receiver that fails with 500 is asked again; the alert then arrives once"""
        hook = self.receiver(500)
        self.watch(hook_settings("hook", hook.url), (70, 1))
        plimtest.wait_for("two tries", lambda: len(hook.got) >= 2)
        hook.answer = 200
        n = len(hook.got)
        plimtest.wait_for("another", lambda: len(hook.got) > n)
        self.assertEqual(len({x["message"] for x in hook.messages()}), 1)

    def test_script_that_hangs(self):
        """A script that hangs is killed with all that it started, and tried again"""
        program = script(self.where, "hang", "sleep 1000 & echo $! >> pids\nwait\n")
        m = self.watch(f"[notify hang]\nkind = script\nprogram = {program}\ntimeout = 300ms\ngroup-wait = 0\n",
                       (70, 1))
        pids = self.where / "pids"
        plimtest.wait_for("the second try", lambda: pids.exists() and len(pids.read_text().split()) >= 2)
        self.assertIn("did not end in time", m.said())
        first = int(pids.read_text().split()[0])
        plimtest.wait_for("its child is gone", lambda: not plimtest.lives(first))

    def test_no_sendmail(self):
        """Without sendmail the failure is told, and sampling goes on"""
        m = self.watch("[notify mail]\nkind = email\nto = x@example.org\nsendmail = /nonexistent/sendmail\n"
                       "group-wait = 0\n", (70, 1))
        plimtest.wait_for("the failure", lambda: "cannot start /nonexistent/sendmail" in m.said())
        self.assertIsNone(m.process.poll())

    def test_full_disk(self):
        """Where the state cannot be written alerts are delivered all the same, and it is told"""
        hook = self.receiver()
        shutil.rmtree(self.where / "state")
        m = self.watch(hook_settings("hook", hook.url), (70, 1))
        plimtest.wait_for("the alert", lambda: hook.alerts("firing"))
        plimtest.wait_for("the trouble", lambda: "state is not kept" in m.said())

    def test_reload(self):
        """SIGHUP takes new rules and receivers, and leaves the old ones when the new ones are bad"""
        one, two = self.receiver(), self.receiver()
        m = self.watch(hook_settings("one", one.url), (70, 1))
        plimtest.wait_for("the alert", lambda: one.alerts("firing"))
        settings = self.where / "settings"
        good = settings.read_text(encoding="utf-8")
        settings.write_text(good + hook_settings("two", two.url).replace("hook\n", "pigeon\n"), encoding="utf-8")
        m.process.send_signal(signal.SIGHUP)
        plimtest.wait_for("the refusal", lambda: "stay as they were" in m.said())
        settings.write_text(good + hook_settings("two", two.url), encoding="utf-8")
        m.process.send_signal(signal.SIGHUP)
        plimtest.wait_for("the alert at the new receiver", lambda: two.alerts("firing"))
        self.assertEqual(len(one.alerts("firing")), 1)


class Restart(AlertCase):
    def test_killed(self):
        """Killed at any moment, the monitor tells each receiver at least once, and repeats nothing it knows of"""
        hook = self.receiver()
        chance = random.Random(7)
        for _ in range(25):
            m = self.watch(hook_settings("hook", hook.url), (70, 1))
            time.sleep(chance.uniform(0.02, 0.9))
            m.process.kill()
            m.process.wait()
            path = self.where / "state" / "alerts.json"
            if path.exists():
                json.loads(path.read_text(encoding="utf-8"))
        m = self.watch(hook_settings("hook", hook.url), (70, 1))
        plimtest.wait_for("the alert", lambda: hook.alerts("firing"))
        plimtest.wait_for("the state", lambda: self.state()["alerts"][0]["told"])
        self.assertNotIn("set aside", m.said())
        self.assertEqual(len({a["fingerprint"] for a in hook.alerts("firing")}), 1)
        m.__exit__()
        told = len(hook.got)
        m = self.watch(hook_settings("hook", hook.url), (70, 1))
        plimtest.wait_for("a second of samples", lambda: m.process.poll() is None)
        time.sleep(1)
        self.assertEqual(len(hook.got), told)

    def test_broken_state(self):
        """A state file that is no state is set aside, and the monitor begins anew"""
        (self.where / "state" / "alerts.json").write_text('{"schema": "plims', encoding="utf-8")
        hook = self.receiver()
        m = self.watch(hook_settings("hook", hook.url), (70, 1))
        plimtest.wait_for("the alert", lambda: hook.alerts("firing"))
        self.assertIn("set aside", m.said())
        self.assertTrue((self.where / "state" / "alerts.json.bad").exists())


@unittest.skipIf(shutil.which("prometheus-alertmanager") is None, "no prometheus-alertmanager here")
class Alertmanager(AlertCase):
    def test_alertmanager(self):
        """Alertmanager takes alerts and their ends, and amtool shows them"""
        port = plimtest.free_port()
        config = plimtest.ROOT / "deploy" / "prometheus" / "alertmanager.yml"
        manager = subprocess.Popen(
            ["prometheus-alertmanager", f"--config.file={config}", f"--storage.path={self.where}/am",
             f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(manager.wait)
        self.addCleanup(manager.kill)
        url = f"http://127.0.0.1:{port}"

        def ready():
            try:
                return monitor.fetch(url + "/-/ready")
            except OSError:
                return None

        def alerts():
            return json.loads(monitor.fetch(url + "/api/v2/alerts?active=true"))

        plimtest.wait_for("Alertmanager", ready)
        self.watch(f"[notify am]\nkind = alertmanager\nurl = {url}/\ngroup-wait = 0\n", (70, 60), (20, 1))
        alert = plimtest.wait_for("the alert", alerts)[0]
        self.assertEqual(alert["labels"]["alertname"], "full")
        self.assertEqual(alert["labels"]["severity"], "warning")
        self.assertEqual(alert["annotations"]["next_step"], "Stop a replica.")
        listed = subprocess.run(["amtool", f"--alertmanager.url={url}", "alert"], capture_output=True, check=True)
        self.assertIn(b"full", listed.stdout)
        plimtest.wait_for("its end", lambda: not alerts())


if __name__ == "__main__":
    plimtest.main()
