# SPDX-License-Identifier: Apache-2.0
"""What the tests of the monitor share: samples on demand, and receivers on this machine."""

import contextlib
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

GIB = 1 << 30


def sample(used_gib, name="python"):
    """One moment of one device of 80 GiB with one process."""
    used = int(used_gib * GIB)
    device = {"vendor": "nvidia", "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-11111111-2222-3333-4444-555555555555",
              "pci": "0000:41:00.0", "state": "ok", "total_bytes": 80 * GIB, "used_bytes": used,
              "free_bytes": 80 * GIB - used, "reserved_bytes": 0, "busy_percent": 50, "temperature_celsius": 60,
              "power_milliwatts": 300000}
    return {"schema": "plimsoll.sample/1", "host_total_bytes": 512 * GIB, "host_available_bytes": 300 * GIB,
            "devices": [device], "uses": [{"device": 0, "pid": 101, "bytes": used, "kinds": ["compute"]}],
            "processes": [{"pid": 101, "ppid": 1, "start_ticks": 1101, "rss_bytes": 2 * GIB, "name": name}]}


def write_samples(path, *levels):
    """Each level is (GiB in use, samples); the last one stays."""
    lines = [json.dumps(sample(used)) for used, times in levels for _ in range(times)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def fetch(url, body=None, headers=None):
    request = urllib.request.Request(url, data=body, headers=headers or {})
    with urllib.request.urlopen(request, timeout=plimtest.PATIENCE) as answer:
        return answer.read()


class Receiver(http.server.ThreadingHTTPServer):
    """A receiver of webhooks; `answer` says what it answers: a status, or a function of the handler."""

    daemon_threads = True

    def __init__(self, answer=200, port=0):
        self.got = []
        self.answer = answer

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.server.got.append((self.path, dict(self.headers), body))
                if callable(self.server.answer):
                    self.server.answer(self)
                    return
                self.send_response(self.server.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def messages(self):
        return [json.loads(body) for _, _, body in self.got]

    def alerts(self, status):
        """Alerts with this status, of all messages so far."""
        return [a for m in self.messages() for a in m["alerts"] if a["status"] == status]


class Engine(http.server.ThreadingHTTPServer):
    """Something that speaks like vLLM's /metrics; each answer counts on."""

    daemon_threads = True

    def __init__(self):
        self.asked = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.server.asked += 1
                n = self.server.asked
                labels = '{model_name="m",engine="0"}'
                rows = {"num_requests_running": 3, "num_requests_waiting": 1, "kv_cache_usage_perc": 0.5,
                        "num_preemptions_total": n, "prompt_tokens_total": 100 * n, "generation_tokens_total": 50 * n,
                        "request_success_total": n, "prefix_cache_queries_total": 100 * n, "prefix_cache_hits_total": 25 * n}
                body = "".join(f"# TYPE vllm:{k} {'counter' if k.endswith('_total') else 'gauge'}\nvllm:{k}{labels} {v}\n"
                               for k, v in rows.items()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@contextlib.contextmanager
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-monitor-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Monitor:
    """`plimsoll watch` on a samples file, ten samples a second."""

    def __init__(self, where, settings, *args, listen="none", interval="100ms"):
        self.where = where
        (where / "settings").write_text(settings, encoding="utf-8")
        self.log = open(where / "log", "ab")
        self.process = subprocess.Popen(
            [plimtest.PROGRAM, "watch", "--settings", where / "settings", "--samples", where / "samples", "--interval",
             interval, "--listen", listen, "--db", "none", "--no-discover", *args], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log, env=plimtest.clean_environment(where), cwd=where)

    def said(self):
        return (self.where / "log").read_text(encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.process.terminate()
        try:
            self.process.wait(timeout=plimtest.PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
