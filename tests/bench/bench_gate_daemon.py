#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a question to the gate's daemon costs over its Unix socket, beside nginx that answers 204 over one, in one run.

    python3 tests/bench/bench_gate_daemon.py [PROGRAM]

One connection, requests in turn, one of each: the client's own time is in all of them alike.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "plimsoll")
TIMES = 5000


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)

    def ask(self, path, body):
        """Seconds, and the body of the answer."""
        request = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n").encode() + body
        began = time.perf_counter()
        self.socket.sendall(request)
        got = self.socket.recv(65536)
        while b"\r\n\r\n" not in got:
            got += self.socket.recv(65536)
        head, _, rest = got.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        while len(rest) < length:
            rest += self.socket.recv(65536)
        return time.perf_counter() - began, rest


def at(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1e6


def main():
    with tempfile.TemporaryDirectory() as folder:
        gate = subprocess.Popen([PROGRAM, "gate", "--capacity-tokens", "100000000", "--listen", f"unix:{folder}/gate"],
                                stderr=subprocess.PIPE)
        conf = pathlib.Path(folder) / "nginx.conf"
        paths = "".join(f"{k}_temp_path {folder}/{k};" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        conf.write_text(f"daemon off; pid {folder}/pid; error_log /dev/null; events {{}}\nhttp {{ access_log off; {paths} keepalive_requests 1000000;"
                        f" server {{ listen unix:{folder}/nginx; location / {{ return 204; }} }} }}\n")
        peer = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-p", folder, "-c", str(conf)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while b"gate at" not in gate.stderr.readline():
                pass
            while not os.path.exists(f"{folder}/nginx"):
                time.sleep(0.01)
            ours, theirs = Connection(f"{folder}/gate"), Connection(f"{folder}/nginx")
            times = {"admit": [], "extend": [], "release": [], "nginx, 204": []}
            for i in range(10_000):  # live reservations while it is measured
                ours.ask("/v1/admit", b'{"prompt_tokens": 900, "max_tokens": 300, "class": "a", "lease_s": 3600}')
            for i in range(TIMES):
                t, answer = ours.ask("/v1/admit", b'{"prompt_tokens": 900, "max_tokens": 300, "class": "a"}')
                id = json.loads(answer)["id"]
                times["admit"].append(t)
                times["extend"].append(ours.ask("/v1/extend", b'{"id": %d, "generated": 64}' % id)[0])
                times["release"].append(ours.ask("/v1/release", b'{"id": %d, "generated": 200}' % id)[0])
                times["nginx, 204"].append(theirs.ask("/", b"{}")[0])
        finally:
            for process in (gate, peer):
                process.terminate()
                process.wait()
    print(f"{'over a Unix socket':22}{'p50 us':>9}{'p99 us':>9}{'p50 / nginx':>13}{'p99 / nginx':>13}   (10,000 live reservations)")
    for name, values in times.items():
        print(f"{name:22}{at(values, .5):9.1f}{at(values, .99):9.1f}{at(values, .5) / at(times['nginx, 204'], .5):13.2f}"
              f"{at(values, .99) / at(times['nginx, 204'], .99):13.2f}")


main()
