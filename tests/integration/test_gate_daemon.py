#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gate's daemon as front doors and proxies use it: its interface by TCP and Unix socket, an engine's figures, kills,
HAProxy's agent checks and nginx' auth_request with the real programs."""

import http.client
import http.server
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
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402


class Engine(http.server.ThreadingHTTPServer):
    """Metrics of an engine, and 200 for everything else."""

    request_queue_size = 128

    def __init__(self, blocks=1001):
        self.usage, self.preemptions, self.blocks, self.served = 0.0, 0, blocks, 0
        self.labels = ""  # further ones of its cache
        super().__init__(("127.0.0.1", 0), EngineHandler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Health checks hang up before they have read everything."""


class EngineHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        e = self.server
        label = '{engine="0",model_name="m"}'
        body = (f"vllm:kv_cache_usage_perc{label} {e.usage}\nvllm:num_requests_running{label} 0.0\n"
                f"vllm:num_preemptions_total{label} {e.preemptions}\n"
                f'vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{e.blocks}"{e.labels}}} 1.0\n').encode()
        self.say(body, "text/plain; version=0.0.4")

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.served += 1
        self.say(b'{"ok": true}', "application/json")

    def say(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Daemon(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.running = []
        self.addCleanup(self.stop_all)

    def stop_all(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stderr:
                process.stderr.close()

    def start(self, *options, socket_path=None):
        """The daemon; waits until it listens."""
        listen = ["--listen", "127.0.0.1:0"] + (["--listen", f"unix:{socket_path}"] if socket_path else [])
        process = subprocess.Popen([plimtest.PROGRAM, "gate", *listen, *map(str, options)], stderr=subprocess.PIPE,
                                   env=plimtest.clean_environment(self.folder.name))
        self.running.append(process)
        lines, found = [], None
        for raw in process.stderr:
            lines.append(raw.decode())
            found = re.search(r"gate at http://127\.0\.0\.1:(\d+)/", lines[-1])
            if found:
                break
        self.assertTrue(found, lines)
        process.port, process.log = int(found[1]), lines
        threading.Thread(target=lambda: lines.extend(r.decode() for r in process.stderr), daemon=True).start()
        return process

    def ask(self, port, method, path, body=None, headers=None, connection=None):
        c = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=plimtest.PATIENCE)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body)
            c.request(method, path, data, {"Content-Type": "application/json", **(headers or {})} if data is not None
                      else headers or {})
            answer = c.getresponse()
            text = answer.read()
            kind = answer.headers.get("content-type", "")
            return answer.status, json.loads(text) if "json" in kind and text else text.decode(), answer.headers
        finally:
            if connection is None:
                c.close()

    def until(self, condition):
        return plimtest.wait_for("what the test waits for", condition)


class Interface(Daemon):
    def test_a_reservation_from_admit_to_release(self):
        path = os.path.join(self.folder.name, "gate.sock")
        gate = self.start("--capacity-tokens", 16000, "--max-length", 4096, socket_path=path)
        for connection in (None, plimtest.UnixConnection(path)):
            status, told, _ = self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 100, "max_tokens": 60, "class": "a"},
                                       connection=connection)
            self.assertEqual((status, told["verdict"], told["reason"], told["now_units"], told["peak_units"]),
                             (200, "admit", "fits", 7, 10))
            about = {"id": told["id"], "generated": 30}
            self.assertEqual(self.ask(gate.port, "POST", "/v1/extend", about, connection=connection)[0], 204)
            state = self.ask(gate.port, "GET", "/v1/pressure")[1]
            self.assertEqual((state["live"], state["held_units"], state["ready"]), (1, 9, True))
            self.assertEqual(plimtest.schema_complaints(state), [])
            self.assertEqual(self.ask(gate.port, "POST", "/v1/release", {**about, "outcome": "stopped"}, connection=connection)[0], 204)
            status, said, _ = self.ask(gate.port, "POST", "/v1/release", about, connection=connection)
            self.assertEqual((status, said["error"]["status"]), (404, "E_NOTFOUND"))
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["unknown_ids"], 2)

    def test_refusals_look_like_openai_s(self):
        gate = self.start("--capacity-tokens", 1600, "--max-length", 4096, "--policy", "conservative")
        status, told, headers = self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 5000})
        self.assertEqual((status, told["error"]["code"], headers["x-should-retry"]), (400, "context_length_exceeded", "false"))
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 800, "max_tokens": 300})[0], 200)
        status, told, headers = self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 800, "max_tokens": 300})
        self.assertEqual((status, told["error"]["type"], told["decision"]["reason"]), (429, "rate_limit_exceeded", "memory"))
        self.assertTrue(1 <= int(headers["retry-after"]) <= 60 and 1000 <= int(headers["retry-after-ms"]) <= 60000)

    def test_a_batch_is_one_reservation_and_refused_when_one_of_its_prompts_can_never_fit(self):
        gate = self.start("--capacity-tokens", 1600, "--max-length", 1024, "--policy", "conservative")
        batch = {"prompts": [100, 20, 60], "max_tokens": 20}
        status, told, _ = self.ask(gate.port, "POST", "/v1/admit", batch)
        self.assertEqual((status, told["now_units"], told["peak_units"]), (200, 3 * 4, 3 * 5))  # 60 tokens each, then 80
        twice = self.ask(gate.port, "POST", "/v1/admit", {**batch, "samples": 2})[1]
        self.assertEqual(twice["peak_units"], 2 * 3 * 5)
        state = self.ask(gate.port, "GET", "/v1/pressure")[1]
        self.assertEqual((state["live"], state["peak_units"]), (2, 45))
        status, told, _ = self.ask(gate.port, "POST", "/v1/admit", {"prompts": [15] * 56, "max_tokens": 1})
        self.assertEqual((status, told["decision"]["reason"]), (429, "memory"))  # 56 of the 55 blocks that are left
        status, told, headers = self.ask(gate.port, "POST", "/v1/admit", {"prompts": [1, 1, 1024], "max_tokens": 1})
        self.assertEqual((status, told["error"]["code"], headers["x-should-retry"]), (400, "context_length_exceeded", "false"))
        status, told, _ = self.ask(gate.port, "POST", "/v1/admit", {"prompts": [15] * 3000, "max_tokens": 1})
        self.assertEqual((status, told["decision"]["reason"], told["decision"]["peak_units"]), (400, "too_large", 3000))

    def test_bodies_that_make_no_sense_are_refused(self):
        gate = self.start("--capacity-tokens", 1600)
        for path, body in (("admit", b""), ("admit", b"[]"), ("admit", b"{"), ("admit", b'{"prompt_tokens": -1}'), ("admit", b"{}"),
                           ("admit", b'{"prompt_tokens": 1.5}'), ("admit", b'{"prompt_tokens": 99999999999}'),
                           ("admit", b'{"prompt_tokens": 1, "colour": 2}'), ("admit", b'{"prompt_tokens": 1, "lease_s": -1}'),
                           ("admit", b'{"prompt_tokens": 1, "prompt_tokens": 2}'), ("admit", b'{"prompt_tokens": 1, "class": 5}'),
                           ("release", b'{"id": 0}'), ("release", b'{"id": "x"}'), ("release", b'{"id": 1, "outcome": "great"}'),
                           ("extend", b'{"id": 1, "generated": -5}'), ("poll", b"{}"), ("drain", b"{}")):
            status, said, _ = self.ask(gate.port, "POST", f"/v1/{path}", body)
            self.assertIn(status, (400, 401) if path == "drain" else (400,), (path, body, said))
        self.assertEqual(self.ask(gate.port, "POST", "/v1/poll", b"x" * 5000)[0], 413)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", b'{"prompt_tokens":1}', {"Content-Type": "text/plain"})[0], 400)
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure", headers={"Host": "evil.example"})[0], 403)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 1})[0], 200)

    def test_draining_needs_the_token_and_turns_readiness_off(self):
        token = pathlib.Path(self.folder.name) / "token"
        token.write_text("0123456789abcdef0123")
        token.chmod(0o600)
        gate = self.start("--capacity-tokens", 1600, "--token-file", token)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/drain", {"on": True})[0], 401)
        known = {"Authorization": "Bearer 0123456789abcdef0123"}
        self.assertEqual(self.ask(gate.port, "GET", "/readyz")[0], 200)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/drain", {"on": True}, known)[0], 204)
        self.assertEqual(self.ask(gate.port, "GET", "/readyz")[:2], (503, "draining\n"))
        status, told, headers = self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 1})
        self.assertEqual((status, told["error"]["type"], "retry-after" in headers), (503, "service_unavailable", True))
        self.assertEqual(self.ask(gate.port, "POST", "/v1/drain", {"on": False}, known)[0], 204)
        self.assertEqual(self.ask(gate.port, "GET", "/readyz")[0], 200)
        self.assertEqual(self.ask(gate.port, "GET", "/healthz")[0], 200)

    def test_metrics_are_those_of_the_state(self):
        gate = self.start("--capacity-tokens", 16000)
        self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 100, "max_tokens": 60})
        text = self.ask(gate.port, "GET", "/metrics")[1]
        self.assertIn("\nplimsoll_gate_held_units 7\n", text)
        self.assertIn("\nplimsoll_gate_admitted_total 1\n", text)
        self.assertNotIn("figures_age", text)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((checked.returncode, checked.stdout), (0, b""))
        text = self.ask(gate.port, "GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})[1]
        self.assertTrue(text.endswith("# EOF\n") and "# TYPE plimsoll_gate_admitted counter\n" in text)

    def test_sigterm_first_turns_readiness_off(self):
        gate = self.start("--capacity-tokens", 1600)
        gate.send_signal(signal.SIGTERM)
        self.until(lambda: self.ask(gate.port, "GET", "/readyz")[0] == 503)
        self.assertEqual(gate.wait(timeout=plimtest.PATIENCE), 0)


class Description(Daemon):
    def test_the_description_has_the_routes_of_the_program(self):
        described = json.loads((plimtest.ROOT / "docs" / "schema" / "gate-api.json").read_text())["paths"]
        code = (plimtest.ROOT / "src" / "gate" / "daemon.c").read_text()
        routes = {(m, p.split("/{}")[0].replace("/authz/v1", "/authz")) for m, p in re.findall(r'\{"(GET|POST)", "([^"]+)"', code)}
        self.assertEqual({(m.upper(), p) for p, ways in described.items() for m in ways}, routes)

    def test_answers_are_as_described(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("python3-jsonschema is not installed")
        described = json.loads((plimtest.ROOT / "docs" / "schema" / "gate-api.json").read_text())

        def fits(value, name):
            jsonschema.Draft202012Validator({**described["components"]["schemas"][name], "components": described["components"]}).validate(value)

        gate = self.start("--capacity-tokens", 1600, "--max-length", 4096, "--policy", "conservative", "--queue", 4)
        request = {"prompt_tokens": 800, "max_tokens": 300, "class": "a", "priority": -1, "samples": 1, "lease_s": 30, "wait": False}
        fits(request, "request")
        fits({"prompts": [3, 4], "samples": 2}, "request")
        told = self.ask(gate.port, "POST", "/v1/admit", request)
        self.assertEqual(told[0], 200)
        fits(told[1], "decision")
        told = self.ask(gate.port, "POST", "/v1/admit", request)
        self.assertEqual(told[0], 429)
        fits(told[1], "refusal")
        told = self.ask(gate.port, "POST", "/v1/admit", {**request, "wait": True})
        self.assertEqual((told[0], told[1]["verdict"], told[1]["position"]), (200, "wait", 0))
        fits(told[1], "decision")
        polled = self.ask(gate.port, "POST", "/v1/poll", {"id": told[1]["id"]})
        self.assertEqual((polled[0], polled[1]["verdict"]), (200, "wait"))
        told = self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 5000})
        self.assertEqual(told[0], 400)
        fits(told[1], "refusal")
        told = self.ask(gate.port, "POST", "/v1/release", {"id": 77})
        self.assertEqual(told[0], 404)
        fits(told[1], "error")


class Engines(Daemon):
    def test_the_engine_s_figures_make_and_correct_the_ledger(self):
        engine = Engine()
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        gate = self.start("--engine-url", f"127.0.0.1:{engine.port}")
        self.until(lambda: self.ask(gate.port, "GET", "/readyz")[0] == 200)
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["capacity_units"], 1000)
        engine.usage = 0.99
        self.until(lambda: self.ask(gate.port, "GET", "/v1/pressure")[1].get("used_units") == 990)
        # One is let in where nothing else runs, so that figures that are wrong cannot stop everything.
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 200, "max_tokens": 50})[0], 200)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 200, "max_tokens": 50})[0], 429)
        engine.usage = 0.0
        self.until(lambda: self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 200, "max_tokens": 50})[0] == 200)

    def test_the_longest_request_is_the_engine_s_without_a_key_for_its_models(self):
        engine = Engine()
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        engine.labels = ',kv_cache_max_concurrency="7.8203125",kv_cache_size_tokens="16016"'
        gate = self.start("--engine-url", f"127.0.0.1:{engine.port}")
        self.until(lambda: self.ask(gate.port, "GET", "/readyz")[0] == 200)
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["capacity_units"], 1000)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 2047})[0], 200)
        status, told, _ = self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 2048})
        self.assertEqual((status, told["decision"]["reason"]), (400, "too_long"))

    def test_classes_have_limits_and_are_shown(self):
        path = os.path.join(self.folder.name, "sock")
        token = pathlib.Path(self.folder.name) / "token"
        token.write_text("0123456789abcdef0123")
        token.chmod(0o600)
        known = {"Authorization": "Bearer 0123456789abcdef0123"}
        gate = self.start("--capacity-tokens", 1600, "--policy", "conservative", "--token-file", token, socket_path=path)
        request = {"prompt_tokens": 300, "max_tokens": 20, "class": "batch"}
        self.assertIn(self.ask(gate.port, "POST", "/v1/classes", {"class": "batch"})[0], (401, 403))
        self.assertEqual(self.ask(gate.port, "POST", "/v1/classes", {"class": "batch", "weight": 0.5, "budget": 0.3}, known)[0], 204)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/classes", {"class": "few", "max_requests": 1}, known)[0], 204)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", request)[0], 200)
        status, told, _ = self.ask(gate.port, "POST", "/v1/admit", request)
        self.assertEqual((status, told["decision"]["reason"]), (429, "budget"))
        few = {**request, "class": "few"}
        self.assertEqual([self.ask(gate.port, "POST", "/v1/admit", few)[0] for _ in range(2)], [200, 429])
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", {**request, "class": "other"})[0], 200)
        said = self.ask(gate.port, "GET", "/v1/classes")[1]
        described = json.loads((plimtest.ROOT / "docs" / "schema" / "gate-api.json").read_text())
        import jsonschema
        jsonschema.Draft202012Validator({**described["components"]["schemas"]["classes"], "components": described["components"]}).validate(said)
        by_name = {c["class"]: c for c in said["classes"]}
        self.assertEqual(set(by_name), {"", "batch", "few", "other"})
        self.assertEqual((by_name["batch"]["weight"], by_name["batch"]["budget"], by_name["batch"]["live"], by_name["batch"]["refused"]), (0.5, 0.3, 1, 1))
        for body in ({}, {"class": "x" * 48}, {"class": "x", "weight": 0}, {"class": "x", "budget": 2}, {"class": "x", "more": 1}, []):
            self.assertEqual(self.ask(gate.port, "POST", "/v1/classes", body, known)[0], 400, body)

    def test_workspace_is_priced_judged_and_learned(self):
        gate = self.start("--capacity-tokens", 160000, "--work-row", "1MiB", "--work-room", "2GiB", "--step-tokens", 512)
        rows = {"prompt_tokens": 1000, "max_tokens": 10, "logprob_rows": 1000}
        first = self.ask(gate.port, "POST", "/v1/admit", rows)[1]
        self.assertEqual(first["work_bytes"], 512 << 20)
        ids = [first["id"], *(self.ask(gate.port, "POST", "/v1/admit", rows)[1]["id"] for _ in range(2))]
        status, told, _ = self.ask(gate.port, "POST", "/v1/admit", rows)
        self.assertEqual((status, told["decision"]["reason"]), (429, "workspace"))
        self.ask(gate.port, "POST", "/v1/extend", {"id": ids[0], "generated": 1})  # its prompt is computed
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", rows)[0], 200)
        # A monitor's word is worth more than what was chosen.
        self.assertEqual(self.ask(gate.port, "POST", "/v1/figures", {"headroom_bytes": 1 << 20, "stranded": 0.5})[0], 204)
        state = self.ask(gate.port, "GET", "/v1/pressure")[1]
        self.assertEqual((state["headroom_bytes"], state["work_bytes"]), (1 << 20, 3 * 512 << 20))
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", rows)[0], 429)
        self.ask(gate.port, "POST", "/v1/figures", {"headroom_bytes": 1 << 40})
        plain = {"prompt_tokens": 1000, "max_tokens": 10}
        self.assertEqual(self.ask(gate.port, "POST", "/v1/worked", {**plain, "bytes": 7 << 20})[0], 204)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", plain)[1]["work_bytes"], 7 << 20)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/oom", {**rows, "bytes": 1 << 41})[0], 204)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/oom", {})[0], 204)  # within a minute: the same
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["ooms"], 1)
        self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", rows)[1]["decision"]["work_bytes"], 1 << 41)
        for path, body in (("worked", plain), ("worked", {"bytes": 1}), ("worked", {**plain, "bytes": -1}), ("oom", {"bytes": "1"}),
                           ("figures", {"headroom_bytes": 1.5}), ("figures", {"stranded": 2}), ("figures", {"more": 1}), ("figures", [])):
            self.assertEqual(self.ask(gate.port, "POST", "/v1/" + path, body)[0], 400, (path, body))

    def test_an_engine_that_is_away_makes_the_gate_not_ready_and_decides_by_choice(self):
        for fail, code in (("closed", 503), ("open", 200)):
            gate = self.start("--engine-url", f"127.0.0.1:{plimtest.free_port()}", "--fail", fail)
            self.assertEqual(self.ask(gate.port, "GET", "/readyz")[0], 503)
            self.assertEqual(self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 5})[0], code)

    def test_a_killed_daemon_loses_no_reservation(self):
        ledger = os.path.join(self.folder.name, "ledger")
        request = {"prompt_tokens": 100, "max_tokens": 60}
        ids = []
        for n in range(5):  # requests run in the engine, and so on after the daemon that let them in
            gate = self.start("--capacity-tokens", 16000, "--ledger", ledger, "--lease", "60s")
            self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["live"], n)
            ids.append(self.ask(gate.port, "POST", "/v1/admit", request)[1]["id"])
            self.ask(gate.port, "POST", "/v1/extend", {"id": ids[0], "generated": n})
            gate.kill()
            gate.wait()
        gate = self.start("--capacity-tokens", 16000, "--ledger", ledger)
        time.sleep(1.1)  # a look after the dead
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["live"], 5)
        for id in ids:
            self.assertEqual(self.ask(gate.port, "POST", "/v1/release", {"id": id, "generated": 20})[0], 204)
        short = self.ask(gate.port, "POST", "/v1/admit", {**request, "lease_s": 2})[1]["id"]
        gate.kill()
        gate.wait()
        gate = self.start("--ledger", ledger)
        self.until(lambda: self.ask(gate.port, "GET", "/v1/pressure")[1]["live"] == 0)  # for no longer than its lease
        self.assertEqual(self.ask(gate.port, "POST", "/v1/release", {"id": short})[0], 404)

    def test_files_of_others_are_neither_written_over_nor_removed(self):
        path = os.path.join(self.folder.name, "notes")
        for options, status, says in ((("--ledger", path), 64, "is not a ledger, and is left as it is"),
                                      (("--listen", f"unix:{path}"), 71, "a file of another kind"),
                                      (("--ledger", os.path.join(self.folder.name, "none", "ledger")), 66, "/dev/shm/NAME")):
            with open(path, "w") as file:
                file.write("precious\n")
            done = subprocess.run([plimtest.PROGRAM, "gate", "--capacity-tokens", "16000", "--steps", "1", *options], timeout=60,
                                  stderr=subprocess.PIPE, text=True, env=plimtest.clean_environment(self.folder.name))
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(says, done.stderr)
            with open(path) as file:
                self.assertEqual(file.read(), "precious\n")

    def test_who_cannot_judge_says_so_alike_in_type_and_code(self):
        gate = self.start("--engine-url", f"127.0.0.1:{plimtest.free_port()}")
        status, told, _ = self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 10})
        self.assertEqual((status, told["error"]["type"], told["error"]["code"]), (503, "service_unavailable", "service_unavailable"))

    def test_what_is_waited_for_is_said(self):
        path = os.path.join(self.folder.name, "notes")
        gate = self.start("--ledger", path)
        self.assertIn("waiting for a server to make the ledger\n", gate.log[0])
        with open(path, "w") as file:
            file.write("precious\n")
        gate = self.start("--ledger", path)
        self.assertIn("make the ledger: what is there is no ledger of this version", gate.log[0])

    def test_an_engine_that_comes_back_with_another_cache_has_another_pool(self):
        engine = Engine()
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        gate = self.start("--engine-url", f"127.0.0.1:{engine.port}", "--ledger", os.path.join(self.folder.name, "ledger"))
        self.until(lambda: self.ask(gate.port, "GET", "/readyz")[0] == 200)
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["capacity_units"], 1000)
        engine.blocks = 501
        self.until(lambda: self.ask(gate.port, "GET", "/v1/pressure")[1]["capacity_units"] == 500)

    def test_a_ledger_that_a_server_made_anew_is_followed(self):
        ledger = os.path.join(self.folder.name, "ledger")
        first = self.start("--capacity-tokens", 16000, "--ledger", ledger)
        looks = self.start("--ledger", ledger)
        self.assertEqual(self.ask(looks.port, "GET", "/v1/pressure")[1]["capacity_units"], 1000)
        first.terminate()
        first.wait()
        # As plimsoll.gate.Middleware opens it: with the configuration of its server.
        os.environ["PLIMSOLL_GATE_LIBRARY"] = os.path.join(os.environ.get("PLIMSOLL_BUILD", str(plimtest.ROOT / "build")), "runtime", "gate",
                                                           "libplimsoll_gate.so")
        sys.path.insert(0, str(plimtest.ROOT / "python"))
        from plimsoll import _gate_ledger
        config = _gate_ledger.default_config()
        config.capacity_units, config.n_groups = 700, 1
        config.groups[0] = _gate_ledger.Group(16, 0, 1, 0)
        door = _gate_ledger.Ledger(ledger, config)
        self.addCleanup(door.close)
        self.until(lambda: self.ask(looks.port, "GET", "/v1/pressure")[1]["capacity_units"] == 700)
        self.assertEqual(self.ask(looks.port, "POST", "/v1/admit", {"prompt_tokens": 10})[0], 200)
        self.assertEqual(door.read().live, 1)


class Proxies(Daemon):
    def test_haproxy_takes_weight_and_drain_from_the_agent(self):
        agent, front, stats = plimtest.free_port(), plimtest.free_port(), os.path.join(self.folder.name, "stats")
        token = pathlib.Path(self.folder.name) / "token"
        token.write_text("0123456789abcdef0123")
        token.chmod(0o600)
        engine = Engine()
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        gate = self.start("--capacity-tokens", 16000, "--agent", f"127.0.0.1:{agent}", "--policy", "conservative", "--token-file", token)
        with socket.create_connection(("127.0.0.1", agent)) as s:
            self.assertEqual(s.makefile().read(), "up ready 100%\n")
        config = (plimtest.ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
        config = config.replace("127.0.0.1:8080", f"127.0.0.1:{front}").replace("9756", str(agent)).replace("agent-inter 1s", "agent-inter 100ms")
        config = config.replace("127.0.0.1:8000", f"127.0.0.1:{engine.port}").replace("    server engine2 127.0.0.2:8000\n", "")
        config = config.replace("global\n", f"global\n    stats socket {stats}\n")
        path = pathlib.Path(self.folder.name) / "haproxy.cfg"
        path.write_text(config)
        checked = subprocess.run([shutil.which("haproxy") or "/usr/sbin/haproxy", "-c", "-f", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(checked.returncode, 0, checked.stdout.decode())
        self.running.append(subprocess.Popen([shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", path],
                                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        def server():
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(stats)
                    s.sendall(b"show stat\n")
                    rows = s.makefile().read().splitlines()
            except OSError:
                return {}
            names = rows[0].lstrip("# ").split(",")
            return next((dict(zip(names, r.split(","))) for r in rows if r.startswith("engines,engine1,")), {})

        self.until(lambda: server().get("status", "").startswith("UP") and server().get("weight") == "100")
        status, *_ = self.ask(front, "POST", "/v1/completions", {"prompt": "x"})
        self.assertEqual((status, engine.served), (200, 1))
        self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 8000, "max_tokens": 4000})
        self.until(lambda: 0 < int(server().get("weight") or 0) < 60)
        known = {"Authorization": "Bearer 0123456789abcdef0123"}
        self.ask(gate.port, "POST", "/v1/drain", {"on": True}, known)
        self.until(lambda: "DRAIN" in server().get("status", "").upper() or server().get("weight") == "0")
        self.ask(gate.port, "POST", "/v1/drain", {"on": False}, known)
        self.until(lambda: server().get("status", "").startswith("UP") and int(server()["weight"]) > 0)

    def nginx(self, engine, gate, fail=None, patience="100ms"):
        """The shipped configuration before an engine and a gate. fail: the choice in it, None: as shipped. Returns the port."""
        front = plimtest.free_port()
        site = (plimtest.ROOT / "deploy" / "nginx" / "plimsoll-gate.conf").read_text()
        site = site.replace("127.0.0.1:8000", f"127.0.0.1:{engine.port}").replace("127.0.0.1:9755", f"127.0.0.1:{gate.port}")
        site = site.replace("127.0.0.1:8080", f"127.0.0.1:{front}")
        site = site.replace("timeout 100ms;", f"timeout {patience};")
        if fail is not None:
            self.assertEqual(site.count("default open;"), 1)
            site = site.replace("default open;", f"default {fail};")
        root = pathlib.Path(self.folder.name)
        (root / "site.conf").write_text(site)
        temporary = "".join(f"{kind}_temp_path {root}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (root / "nginx.conf").write_text(f"daemon off; master_process off; pid {root}/pid; error_log {root}/error.log; events {{}}\n"
                                         f"http {{ access_log off; {temporary} include {root}/site.conf; }}\n")
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        command = [nginx, "-p", str(root), "-c", str(root / "nginx.conf")]
        checked = subprocess.run([*command, "-t"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(checked.returncode, 0, checked.stdout.decode())
        self.running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", front)) == 0

        self.until(listens)
        return front

    def test_nginx_passes_on_what_fits_and_tells_the_rest_when_to_come_again(self):
        engine = Engine(blocks=101)
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        gate = self.start("--engine-url", f"127.0.0.1:{engine.port}", "--max-length", 2048, "--authz-lease", "10m")
        self.until(lambda: self.ask(gate.port, "GET", "/readyz")[0] == 200)
        front = self.nginx(engine, gate, patience="10s")  # a gate that is slow for once must not look like one that is away
        # By its bytes alone it is too long: a guess, so the engine judges it.
        self.assertEqual(self.ask(front, "POST", "/v1/completions", {"prompt": "word " * 1100})[:2], (200, {"ok": True}))
        self.assertEqual(engine.served, 1)
        status, told, headers = self.ask(front, "POST", "/v1/completions", {"prompt": "word"}, {"X-Plimsoll-Prompt-Tokens": "5000"})
        self.assertEqual((status, told["error"]["type"], headers["x-plimsoll-reason"]), (400, "invalid_request_error", "too_long"))
        engine.usage = 1.0
        self.until(lambda: self.ask(gate.port, "GET", "/v1/pressure")[1].get("used_units") == 100)
        status, told, headers = self.ask(front, "POST", "/v1/completions", {"prompt": "word " * 20})
        self.assertEqual((status, told["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertTrue(1 <= int(headers["retry-after"]) <= 60)
        self.assertEqual(engine.served, 1)
        self.assertEqual(self.ask(front, "GET", "/v1/models")[0], 200)  # asks for no tokens, and is none of the gate's

    def test_nginx_lets_pass_or_refuses_by_choice_while_the_gate_is_away(self):
        engine = Engine()
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        token = pathlib.Path(self.folder.name) / "token"
        token.write_text("0123456789abcdef0123")
        token.chmod(0o600)
        known = {"Authorization": "Bearer 0123456789abcdef0123"}
        for fail, status, told in ((None, 200, {"ok": True}), ("closed", 503, "The server cannot judge requests at the moment.")):
            gate = self.start("--capacity-tokens", 16000, "--token-file", token)
            front = self.nginx(engine, gate, fail)

            def asked():
                code, text, headers = self.ask(front, "POST", "/v1/completions", {"prompt": "word"})
                return code, text["error"]["message"] if "error" in text else text, headers.get("retry-after")

            # What is refused stays refused, whatever the choice.
            self.ask(gate.port, "POST", "/v1/drain", {"on": True}, known)
            self.until(lambda: asked()[:2] == (503, "The server takes no new requests now."))
            self.ask(gate.port, "POST", "/v1/drain", {"on": False}, known)
            self.until(lambda: asked()[:2] == (200, {"ok": True}))
            gate.send_signal(signal.SIGSTOP)  # hangs: it is connected to, and does not answer
            os.waitid(os.P_PID, gate.pid, os.WSTOPPED)
            try:
                self.assertEqual(asked()[:2], (status, told), fail)
            finally:
                gate.send_signal(signal.SIGCONT)
            gate.kill()
            gate.wait()
            code, text, after = asked()
            self.assertEqual((code, text, after), (status, told, None if status == 200 else "5"), fail)
            self.assertEqual(self.ask(front, "GET", "/v1/models")[0], status)  # nobody says that it needs no room
            self.stop_all()

    def test_envoy_s_questions_are_answered_with_the_status_that_the_client_gets(self):
        gate = self.start("--capacity-tokens", 1600, "--max-length", 2048, "--authz-lease", "1s")
        headers = {"X-Plimsoll-Prompt-Tokens": "100", "X-Plimsoll-Max-Tokens": "100", "X-Plimsoll-Class": "a"}
        for path in ("/authz", "/authz/v1/completions", "/authz/v1/chat/completions"):
            status, _, said = self.ask(gate.port, "POST", path, b"{}", headers)
            self.assertEqual((status, int(said["x-plimsoll-id"]) > 0), (200, True))
        self.until(lambda: self.ask(gate.port, "GET", "/v1/pressure")[1]["live"] == 0)  # for no longer than their lease
        state = self.ask(gate.port, "GET", "/v1/pressure")[1]
        self.assertEqual((state["admitted"], state["expired"]), (3, 3))
        # Envoy asks with the host, method and path of the request. Only a POST can be for tokens.
        host = {"Host": "api.example.org"}
        for method, path in (("GET", "/authz/v1/models"), ("GET", "/authz/health"), ("OPTIONS", "/authz/v1/chat/completions"),
                             ("DELETE", "/authz/v1/files/5"), ("HEAD", "/authz/a/b/c/d/e")):
            self.assertEqual(self.ask(gate.port, method, path, headers=host)[0], 200, (method, path))
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["admitted"], 3)
        self.assertEqual(self.ask(gate.port, "POST", "/authz/v1/chat/completions", b"{}", host)[0], 200)
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure", headers=host)[0], 403)  # what shows something does not
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["admitted"], 4)
        status, told, said = self.ask(gate.port, "GET", "/authz", headers={"X-Plimsoll-Prompt-Tokens": "3000"})
        self.assertEqual((status, told["error"]["code"]), (400, "context_length_exceeded"))
        text = (plimtest.ROOT / "deploy" / "envoy" / "ext_authz.yaml").read_text()
        self.assertEqual(re.findall(r"path_prefix: (\S+)", text), ["/authz"])


if __name__ == "__main__":
    plimtest.main()
