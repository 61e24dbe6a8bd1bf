#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a request pays on its way through HAProxy and nginx alone, and with the gate asked, in one run.

    python3 tests/bench/bench_gate_proxies.py [PROGRAM]

The configurations are those of deploy/, before a toy engine that answers at once; one connection of a client, the ways in turn.
HAProxy takes its weights from the gate beside the requests; nginx asks before each of them.
"""

import asyncio
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "plimsoll")
DEPLOY = ROOT / "deploy"
TIMES = 4000
BODY = json.dumps({"model": "m", "prompt": "word " * 200, "max_tokens": 100}).encode()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Toy(asyncio.Protocol):
    """HTTP/1.1: 200 and a few bytes for every request."""

    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"ok\": true}"

    def connection_made(self, transport):
        self.transport, self.got = transport, b""

    def data_received(self, data):
        self.got += data
        while (end := self.got.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"content-length: *(\d+)", self.got[:end].lower())
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self.got) < whole:
                return
            self.got = self.got[whole:]
            self.transport.write(self.ANSWER)


def serve_toy(port):
    async def run():
        server = await asyncio.get_running_loop().create_server(Toy, "127.0.0.1", port)
        await server.serve_forever()
    asyncio.run(run())


def ask(connection):
    """Seconds until the answer is there."""
    request = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n").encode() + BODY
    began = time.perf_counter()
    connection.sendall(request)
    got = connection.recv(65536)
    while b"{\"ok\": true}" not in got:
        more = connection.recv(65536)
        assert more and b" 200 " in (got + more).split(b"\r\n", 1)[0], got + more
        got += more
    return time.perf_counter() - began


def connect(port):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.02)
    sys.exit(f"nothing listens on {port}")


def haproxy(folder, front, engine, agent):
    text = (DEPLOY / "haproxy" / "haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{front}")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{engine}").replace("    server engine2 127.0.0.2:8000\n", "")
    text = text.replace("agent-check agent-port 9756 agent-inter 1s", f"agent-check agent-port {agent} agent-inter 100ms" if agent else "")
    path = folder / f"haproxy{front}.cfg"
    path.write_text(text)
    return [shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", str(path)]


def nginx(folder, front, engine, gate):
    text = (DEPLOY / "nginx" / "plimsoll-gate.conf").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{front}")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{engine}").replace("127.0.0.1:9755", f"127.0.0.1:{gate}")
    if not gate:  # the same upstream and location, and nothing else
        text = (text[text.index("upstream engine"):text.index("upstream gate")] + text[text.index("server {\n    listen"):text.index("    location = /_gate")]
                + "}\n")
        text = re.sub(r"        (auth_request|error_page).*\n", "", text)
    root = folder / f"nginx{front}"
    root.mkdir()
    (root / "site.conf").write_text(text)
    paths = "".join(f"{k}_temp_path {root}/{k};" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (root / "nginx.conf").write_text(f"daemon off; pid {root}/pid; error_log /dev/null; events {{}}\n"
                                     f"http {{ access_log off; keepalive_requests 1000000; {paths} include {root}/site.conf; }}\n")
    return [shutil.which("nginx") or "/usr/sbin/nginx", "-p", str(root), "-c", str(root / "nginx.conf")]


def at(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1e6


def main():
    engine, gate, agent, *fronts = (free_port() for _ in range(7))
    threading.Thread(target=serve_toy, args=(engine,), daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        daemon = subprocess.Popen([PROGRAM, "gate", "--capacity-tokens", "100000000", "--listen", f"127.0.0.1:{gate}", "--agent", f"127.0.0.1:{agent}"],
                                  stderr=subprocess.PIPE)
        commands = [haproxy(folder, fronts[0], engine, 0), haproxy(folder, fronts[1], engine, agent), nginx(folder, fronts[2], engine, 0),
                    nginx(folder, fronts[3], engine, gate)]
        running = [daemon]
        try:
            while b"gate at" not in daemon.stderr.readline():
                pass
            running += [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for c in commands]
            names = ["the toy engine", "HAProxy alone", "HAProxy, the gate's weights", "nginx alone", "nginx asks the gate"]
            ways = {n: (connect(port), []) for n, port in zip(names, [engine, *fronts])}
            for i in range(TIMES):
                for connection, times in ways.values():
                    seconds = ask(connection)
                    if i >= TIMES // 10:  # the first ones make connections
                        times.append(seconds)
        finally:
            for process in running:
                process.terminate()
                process.wait()
    print(f"{'a request of 1 kB':30}{'p50 us':>9}{'p99 us':>9}{'p50 / HAProxy alone':>22}{'p99 / HAProxy alone':>22}")
    alone = ways["HAProxy alone"][1]
    for way, (connection, times) in ways.items():
        connection.close()
        print(f"{way:30}{at(times, .5):9.1f}{at(times, .99):9.1f}{at(times, .5) / at(alone, .5):22.2f}{at(times, .99) / at(alone, .99):22.2f}")
    os._exit(0)  # the toy engine's loop has no end


main()
