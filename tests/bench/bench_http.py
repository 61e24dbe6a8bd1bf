#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shared HTTP server against others that serve the same bytes, in one run on one machine.

    bench_http.py HTTP_TOY [--seconds S]

A body of 100 kB (a scrape of a large machine) is fetched over kept connections, by one client and by fifty at once, from
the server, from Python's http.server with threads, and from nginx where it is installed. Clients are the same program; the
figures of interest are the ratios. Then a hundred readers follow the events while the single client goes on.
"""

import argparse
import contextlib
import http.client
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BYTES = 100_000


@contextlib.contextmanager
def ours(toy):
    process = subprocess.Popen([toy, str(BYTES), "0"], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline().rsplit(":", 1)[1].strip("/\n"))
    yield port, "/fast"
    process.terminate()
    process.wait()


@contextlib.contextmanager
def python(folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    code = ("import http.server as h, sys; h.SimpleHTTPRequestHandler.protocol_version = 'HTTP/1.1'; "
            "h.SimpleHTTPRequestHandler.log_message = lambda *a: None; "
            "h.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()")
    process = subprocess.Popen([sys.executable, "-c", code, str(port)], cwd=folder)
    wait(port)
    yield port, "/body"
    process.terminate()
    process.wait()


@contextlib.contextmanager
def nginx(folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    conf = pathlib.Path(folder, "nginx.conf")
    conf.write_text(f"daemon off; pid {folder}/pid; error_log /dev/null; worker_processes 1; events {{}}\n"
                    f"http {{ access_log off; keepalive_requests 10000000; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n",
                    encoding="utf-8")
    process = subprocess.Popen(["nginx", "-c", conf, "-p", folder], stderr=subprocess.DEVNULL)
    wait(port)
    yield port, "/body"
    process.terminate()
    process.wait()


def wait(port):
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)


def client(port, path, seconds, times):
    c = http.client.HTTPConnection("127.0.0.1", port)
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        c.request("GET", path, headers={"Accept-Encoding": "identity"})
        c.getresponse().read()
        times.append(time.perf_counter() - begin)
    c.close()


def measure(port, path, clients, seconds):
    """Requests a second, and the median time of one in ms."""
    times = []
    threads = [threading.Thread(target=client, args=(port, path, seconds, times)) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(times) / seconds, 1e3 * statistics.median(times)


def follow(port, stop):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        s.settimeout(0.5)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                s.recv(65536)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("toy")
    parser.add_argument("--seconds", type=float, default=3)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "body").write_bytes(b"x" * BYTES)
        servers = [("plimsoll", ours(o.toy)), ("Python http.server", python(folder))]
        if shutil.which("nginx"):
            servers.append(("nginx", nginx(folder)))
        found = {}
        print(f"{BYTES} bytes, kept connections, {o.seconds:g} s each; requests a second, median ms")
        for name, server in servers:
            with server as (port, path):
                found[name] = [measure(port, path, n, o.seconds) for n in (1, 50)]
                print(f"{name:20} 1 client {found[name][0][0]:8.0f}/s {found[name][0][1]:7.3f} ms    "
                      f"50 clients {found[name][1][0]:8.0f}/s {found[name][1][1]:7.3f} ms", flush=True)
        for name in list(found)[1:]:
            print(f"plimsoll / {name}: {found['plimsoll'][0][0] / found[name][0][0]:.2f} with 1 client, "
                  f"{found['plimsoll'][1][0] / found[name][1][0]:.2f} with 50")
        with ours(o.toy) as (port, path):
            stop = threading.Event()
            readers = [threading.Thread(target=follow, args=(port, stop)) for _ in range(100)]
            for r in readers:
                r.start()
            rate, median = measure(port, path, 1, o.seconds)
            stop.set()
            for r in readers:
                r.join()
            print(f"with 100 readers of an event each 100 ms: {rate:.0f}/s, median {median:.3f} ms "
                  f"({median / found['plimsoll'][0][1]:.2f} times that without)")


if __name__ == "__main__":
    main()
