# SPDX-License-Identifier: Apache-2.0
"""What `plimsoll watch` answers by HTTP, against its description in docs/schema/watch-api.json."""

import http.client
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

API = json.loads((plimtest.SCHEMAS / "watch-api.json").read_text(encoding="utf-8"))
MAKER = plimtest.ROOT / "tests" / "web" / "make_samples.py"
SNAPSHOT = plimtest.ROOT / "tests" / "data" / "snapshots" / "simulated" / "hf-llama8b-oom-24g.pickle"
TOKEN = "a-token-of-24-characters"


def complaints(schema, document):
    import jsonschema

    def load(uri):
        return json.loads((plimtest.SCHEMAS / uri.rsplit("/", 1)[-1]).read_text(encoding="utf-8"))

    resolver = jsonschema.RefResolver("file:///watch-api.json", API, handlers={"file": load})
    validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(document)]


class Monitor:
    """A monitor on made-up samples, in a folder of its own."""

    def __init__(self, test, settings="", db=True, kind="machine", words=()):
        self.home = tempfile.TemporaryDirectory()
        test.addCleanup(self.home.cleanup)
        folder = pathlib.Path(self.home.name)
        self.folder = folder
        (folder / "token").write_text(TOKEN, encoding="utf-8")
        subprocess.run([sys.executable, MAKER, kind, folder / "samples.jsonl"], check=True)
        (folder / "watch.conf").write_text(
            f"[watch]\ninterval = 100ms\ndiscover-engines = no\ndefault-alerts = no\ntoken-file = {folder}/token\n"
            f"incidents = {folder}/incidents\nalert-state = {folder}/alerts.json\n" + settings, encoding="utf-8")
        self.process = subprocess.Popen(
            [plimtest.PROGRAM, "watch", "--samples", folder / "samples.jsonl", "--listen", "127.0.0.1:0", "--db",
             folder / "history.db" if db else "none", "--settings", folder / "watch.conf", *words],
            stderr=subprocess.PIPE, text=True, env=plimtest.clean_environment(folder))
        test.addCleanup(self.stop)
        said = ""
        for line in self.process.stderr:
            said += line
            found = re.search(r"serving at http://127.0.0.1:(\d+)/", line)
            if found:
                self.port = int(found.group(1))
                self.until(lambda: self.ask("GET", "/readyz").status == 200)
                return
        raise AssertionError("the monitor did not start: " + said)

    def stop(self):
        self.process.terminate()
        said = self.process.communicate(timeout=plimtest.PATIENCE)[1]
        if self.process.returncode != 0:
            raise AssertionError("the monitor ended with a failure: " + said)

    def ask(self, method, path, body=None, token=False, **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=plimtest.PATIENCE)
        names = {k.replace("_", "-"): v for k, v in headers.items()}
        if token:
            names["Authorization"] = "Bearer " + TOKEN
        c.request(method, path, body=json.dumps(body) if body is not None else None, headers=names)
        answer = c.getresponse()
        answer.text = answer.read()
        c.close()
        return answer

    def get(self, path):
        answer = self.ask("GET", path)
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status} {answer.text[:300]}")
        return json.loads(answer.text)

    def until(self, what):
        plimtest.wait_for("what the test waits for", what)

    def after(self, samples):
        self.until(lambda: self.get("/api/v1/status")["monitor"]["samples"] >= samples)


class Answers(unittest.TestCase):
    def fits(self, path, document, query=""):
        schema = API["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        self.assertEqual(complaints(schema, document), [], path + query)
        return document

    def test_every_answer_in_json_is_as_described(self):
        rule = "[alert full]\nfigure = device.used_ratio\nabove = 0.1\nfor = 0s\n[peer gone]\nurl = http://127.0.0.1:1\n"
        m = Monitor(self, rule)
        m.after(40)
        m.until(lambda: m.get("/api/v1/subjects")["subjects"] and m.get("/api/v1/alerts")["alerts"])
        for path in ("status", "findings", "subjects", "events", "alerts", "incidents", "fleet"):
            self.fits("/api/v1/" + path, m.get("/api/v1/" + path))
        device = next(s for s in m.get("/api/v1/subjects")["subjects"] if s["kind"] == "device")
        figures = self.fits("/api/v1/subjects", m.get(f"/api/v1/subjects?subject={device['id']}"))["figures"]
        self.assertIn("used_bytes", figures)
        series = self.fits("/api/v1/series", m.get(f"/api/v1/series?subject={device['id']}&figures=used_bytes,others_bytes&points=20"))
        used, others = series["series"]
        self.assertEqual(len(used["mean"]), len(used["time_ns"]))
        self.assertTrue(all(a <= b <= c for a, b, c in zip(used["min"], used["mean"], used["max"], strict=True)))
        self.assertEqual(used["time_ns"], others["time_ns"])
        self.assertEqual(m.get("/api/v1/fleet")["peers"][0]["name"], "gone")
        kinds = {e["kind"] for e in m.get("/api/v1/events?kind=process_started")["events"]}
        self.assertLessEqual(kinds, {"process_started"})

    def test_history_is_shown_in_each_form(self):
        m = Monitor(self)
        m.until(lambda: m.get("/api/v1/history?form=json&figure=used_bytes&figure=free_*")["series"])
        document = self.fits("/api/v1/history", m.get("/api/v1/history?form=json&figure=used_bytes&figure=free_*&points=5"))
        self.assertLessEqual({s["figure"] for s in document["series"]}, {"used_bytes", "free_bytes"})
        self.assertTrue(all(1 <= len(s["bins"]) <= 6 for s in document["series"]), document)
        for form, kind in (("text", "text/plain; charset=utf-8"), ("csv", "text/csv; charset=utf-8"),
                           ("jsonl", "application/jsonl"), ("json", "application/json")):
            answer = m.ask("GET", f"/api/v1/history?what=subjects&form={form}")
            self.assertEqual((answer.status, answer.getheader("Content-Type")), (200, kind))
        for query in ("what=all", "form=xml", "step=soon", "from=2&to=1"):
            self.assertEqual(m.ask("GET", "/api/v1/history?" + query).status, 400, query)
        for query in ("&".join(["process=x"] * 65), "form=csv&form=json"):
            self.assertEqual(m.ask("GET", "/api/v1/history?" + query).status, 422, query)

    def test_every_route_that_is_described_is_there(self):
        m = Monitor(self, db=False)
        for path, methods in API["paths"].items():
            for method in methods:
                concrete = path.replace("{fingerprint}", "0" * 16).replace("{id}", "1")
                if path == "/api/v1/live":
                    continue
                answer = m.ask(method.upper(), concrete, body={} if method == "post" else None, token=True)
                self.assertNotIn(answer.status, (401, 403, 405, 500), f"{method} {path}")
                if answer.status >= 400:
                    error = json.loads(answer.text)
                    self.assertEqual(complaints(API["components"]["schemas"]["error"], error), [], path)
                    self.assertNotEqual(error["error"]["message"], "there is nothing here", path)

    def test_nothing_is_changed_without_the_token(self):
        m = Monitor(self, db=False)
        for path, methods in API["paths"].items():
            if "post" in methods:
                concrete = path.replace("{fingerprint}", "0" * 16).replace("{id}", "1")
                self.assertEqual(m.ask("POST", concrete, body={}).status, 401, path)

    def test_the_ledger_of_each_device_adds_up_to_its_total(self):
        m = Monitor(self, db=False)
        m.after(5)
        for d in m.get("/api/v1/status")["devices"]:
            self.assertEqual(sum(d["ledger"].values()), d["total_bytes"])

    def test_metrics_come_in_the_form_that_is_asked_for_and_equal_the_program_s_own(self):
        m = Monitor(self, db=False)
        m.after(2)
        text = m.ask("GET", "/metrics")
        self.assertIn("version=0.0.4", text.getheader("Content-Type"))
        opened = m.ask("GET", "/metrics", Accept="application/openmetrics-text;version=1.0.0")
        self.assertIn("application/openmetrics-text", opened.getheader("Content-Type"))
        self.assertTrue(opened.text.endswith(b"# EOF\n"))

    def test_events_are_the_state_each_step(self):
        m = Monitor(self, db=False)
        with socket.create_connection(("127.0.0.1", m.port), plimtest.PATIENCE) as c:
            c.sendall(b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            data = b""
            while data.count(b"\nevent: status\n") < 4:
                piece = c.recv(65536)
                self.assertTrue(piece, "the stream has ended")
                data += piece
        ids = [int(i) for i in re.findall(rb"\nid: (\d+)\n", data)]
        self.assertEqual(ids, sorted(set(ids)))

    def test_an_alert_is_acknowledged_and_silenced(self):
        m = Monitor(self, "[alert full]\nfigure = device.used_ratio\nabove = 0.1\nfor = 0s\n", db=False)
        m.until(lambda: [a for a in m.get("/api/v1/alerts")["alerts"] if a["status"] == "firing"])
        print_ = m.get("/api/v1/alerts")["alerts"][0]["fingerprint"]
        self.assertEqual(m.ask("POST", f"/api/v1/alerts/{print_}/acknowledge", body={}, token=True).status, 204)
        self.assertTrue(m.get("/api/v1/alerts")["alerts"][0]["acknowledged"])
        made = m.ask("POST", "/api/v1/silences", body={"rule": "full", "seconds": 60, "comment": "<b>"}, token=True)
        silence = json.loads(made.text)["id"]
        self.assertEqual(m.get("/api/v1/alerts")["silences"][0]["comment"], "<b>")
        for bad in ({}, {"seconds": 0}, {"seconds": "1"}, {"seconds": 5, "rule": "x" * 500}, {"seconds": 5, "else": 1}, [], 7):
            answer = m.ask("POST", "/api/v1/silences", body=bad, token=True)
            self.assertIn(answer.status, (400, 422), bad)
        self.assertEqual(m.ask("POST", f"/api/v1/silences/{silence}/end", body={}, token=True).status, 204)
        self.assertEqual(m.get("/api/v1/alerts")["silences"], [])
        for bad in ("zz" * 8, "0", "../../etc/passwd"):
            self.assertIn(m.ask("POST", f"/api/v1/alerts/{bad}/acknowledge", body={}, token=True).status, (400, 404), bad)

    def test_an_incident_is_listed_downloaded_and_reported(self):
        m = Monitor(self, db=False)
        drop = m.folder / "incidents" / "drop-4711-1"
        drop.mkdir(parents=True)
        (drop / "snapshot.pickle").write_bytes(SNAPSHOT.read_bytes())
        (drop / "facts.json").write_text(json.dumps(
            {"schema": "plimsoll.drop/1", "kind": "oom", "pid": 4711, "time_ns": 1700000000000000000, "device": 0}), encoding="utf-8")
        self.assertEqual(plimtest.run("incident", "--finish", m.folder / "incidents").returncode, 0)
        listed = self.fits("/api/v1/incidents", m.get("/api/v1/incidents"))["incidents"]
        self.assertEqual(len(listed), 1)
        path = "/api/v1/incidents/" + listed[0]["id"]
        bundle = m.ask("GET", path + "/bundle")
        self.assertEqual((bundle.status, bundle.text[:4]), (200, b"\x28\xb5\x2f\xfd"))
        self.assertEqual(m.ask("GET", path + "/bundle", Range="bytes=0-3").text, bundle.text[:4])
        report = m.ask("GET", path + "/report")
        self.assertEqual(report.status, 200)
        self.assertIn(b"<h1", report.text)
        self.assertIn("sandbox", report.getheader("Content-Security-Policy"))
        self.assertEqual(m.ask("GET", "/api/v1/incidents/..%2f..%2fetc%2fpasswd/bundle").status, 404)

    def test_a_fleet_is_asked_with_its_token(self):
        far = Monitor(self, "token-always = yes\n", db=False)
        plain = Monitor(self, db=False)
        near = Monitor(self, f"[peer far]\nurl = http://127.0.0.1:{far.port}\ntoken-file = {far.folder}/token\n", db=False,
                       words=("--peer", f"http://localhost:{plain.port}"))
        near.until(lambda: all("status" in p for p in near.get("/api/v1/fleet")["peers"]))
        peers = self.fits("/api/v1/fleet", near.get("/api/v1/fleet"))["peers"]
        self.assertEqual([(p["name"], len(p["status"]["devices"])) for p in peers],
                         [(f"localhost:{plain.port}", 2), ("far", 2)])

    def test_the_monitor_says_whether_it_lives_and_is_ready(self):
        m = Monitor(self, "token-always = yes\n", db=False)
        self.assertEqual(m.ask("GET", "/healthz").text, b"ok\n")
        self.assertEqual(m.ask("GET", "/api/v1/status").status, 401)
        self.assertEqual(m.ask("GET", "/").status, 200)


if __name__ == "__main__":
    plimtest.main()
