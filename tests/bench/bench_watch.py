#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the monitor costs: 8 devices and 200 processes of a made-up driver, once a second; beside it, in the same run,
what two other ways of looking cost with the same driver.

    python3 tests/bench/bench_watch.py BUILD [--seconds 30] [--steps 3600] [--nvitop VENV]

  watch     plimsoll watch with its history on disk and its server
  polling   a new process each second that opens NVML, asks for everything, and prints (poll_nvml.c)
  nvitop    nvitop-exporter 1.7 in VENV, which is made when it is missing; without --nvitop left out

Shares are processor time of all threads (and children) by wall time. `hour` is so many steps one after another, every
10 ms: memory in use after them against that after a tenth of them. Exit 1 when a stated bound does not hold.
"""

import argparse
import http.client
import json
import os
import pathlib
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROCESSES = 200
BOUNDS = {"share_percent": 0.3, "resident_mib": 20.0, "scrape_ms": 5.0, "growth_mib": 1.0}


def precise_seconds(pid):
    """Of all threads, to the microsecond: utime and stime are whole ticks."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("it does not start")
        time.sleep(0.05)


def answers(connect, path):
    try:
        scrape(connect, path)
        return True
    except OSError:
        return False


def scrape(connect, path):
    """(seconds, bytes) of one scrape."""
    connection = connect()
    begin = time.perf_counter()
    connection.request("GET", path)
    body = connection.getresponse().read()
    took = time.perf_counter() - begin
    connection.close()
    return took, len(body)


def measure(pid, connect, path, seconds):
    """Share without anybody asking, then scrapes."""
    time.sleep(3)
    used, begin = precise_seconds(pid), time.monotonic()
    time.sleep(seconds)
    share = (precise_seconds(pid) - used) / (time.monotonic() - begin)
    times = [scrape(connect, path) for _ in range(30)]
    return {"share_percent": round(share * 100, 3), "resident_mib": round(resident_mib(pid), 1),
            "scrape_ms": round(statistics.median(t for t, _ in times) * 1e3, 2), "scrape_bytes": times[-1][1]}


def measure_first_scrapes(connect, path, n=10):
    """Scrapes of which each is the first of its second: the text must be made."""
    worst = []
    for _ in range(n):
        time.sleep(1.0)
        worst.append(scrape(connect, path)[0])
    return round(statistics.median(worst) * 1e3, 2)


def run_watch(build, folder, env, seconds):
    sock = f"{folder}/w.sock"
    words = [f"{build}/plimsoll", "watch", "--no-discover", "--listen", f"unix:{sock}", "--db", f"{folder}/history.db"]
    process = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
    try:
        connect = lambda: plimtest.UnixConnection(sock)  # noqa: E731
        wait_until(lambda: os.path.exists(sock) and answers(connect, "/metrics"))
        found = measure(process.pid, connect, "/metrics", seconds)
        found["first_scrape_ms"] = measure_first_scrapes(connect, "/metrics")
        return found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def run_hour(build, folder, env, steps):
    words = [f"{build}/plimsoll", "watch", "--no-discover", "--listen", "none", "--db", f"{folder}/hour.db", "--interval", "10ms",
             "--steps", str(steps)]
    process = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
    begin, early, late, settled = time.monotonic(), 0, 0, steps / 10 / 100
    while process.poll() is None:
        now = resident_mib(process.pid)
        if now == now:  # it may have ended meanwhile
            early = now if time.monotonic() - begin < settled else early
            late = now
        time.sleep(0.2)
    return {"steps": steps, "after_a_tenth_mib": round(early, 1), "after_all_mib": round(late, 1),
            "growth_mib": round(late - early, 1)}


def run_polling(build, env, seconds):
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    for i in range(seconds):
        subprocess.run([f"{build}/tests/bench/poll_nvml"], env=env, stdout=subprocess.DEVNULL, check=True)
        time.sleep(max(0, begin + i + 1 - time.monotonic()))
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return {"share_percent": round(spent / (time.monotonic() - begin) * 100, 3)}


def run_nvitop(venv, env, seconds):
    if not (venv / "bin" / "nvitop-exporter").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin" / "pip", "-q", "install", "nvitop==1.7.2", "nvitop-exporter==1.7.2"], check=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    process = subprocess.Popen([venv / "bin" / "nvitop-exporter", "--port", str(port), "--interval", "1"], env=env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        connect = lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=30)  # noqa: E731
        wait_until(lambda: answers(connect, "/metrics"), 120)
        return measure(process.pid, connect, "/metrics", seconds)
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--nvitop", type=pathlib.Path)
    arguments = parser.parse_args()
    sleepers = [subprocess.Popen(["sleep", "100000"]) for _ in range(PROCESSES)]
    with tempfile.TemporaryDirectory() as folder:
        pids = pathlib.Path(folder) / "pids"
        pids.write_text("".join(f"{p.pid}\n" for p in sleepers), encoding="ascii")
        env = dict(os.environ, LD_LIBRARY_PATH=str(arguments.build / "tests/fakes/many"), FAKE_NVML_PIDS=str(pids),
                   XDG_RUNTIME_DIR=folder)
        try:
            found = {"watch": run_watch(arguments.build, folder, env, arguments.seconds),
                     "polling": run_polling(arguments.build, env, arguments.seconds)}
            if arguments.nvitop:
                found["nvitop"] = run_nvitop(arguments.nvitop, env, arguments.seconds)
            found["hour"] = run_hour(arguments.build, folder, env, arguments.steps)
        finally:
            for sleeper in sleepers:
                sleeper.kill()
                sleeper.wait()
    for name in ("polling", "nvitop"):
        if name in found:
            found[name]["times_watch"] = round(found[name]["share_percent"] / found["watch"]["share_percent"], 1)
    print(json.dumps(found, indent=2))
    late = [f"{key} of {part} is above {bound}" for key, bound in BOUNDS.items() for part in ("watch", "hour")
            if found[part].get(key, 0) > bound]
    print("\n".join(late), end="\n" if late else "")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
