# SPDX-License-Identifier: Apache-2.0
"""A real vLLM server under load: started, asked by the clients of vllm_programs.py, and watched meanwhile, the gate's
ledger beside the engine's own figures. What the tests and the bench of the gate before vLLM share."""

import http.client
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
import typing
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "python"))
from plimsoll import _gate_ledger  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parent / "vllm_programs.py"
CLIENTS = 48  # each asks for 50 to 350 tokens after a prompt of 20 to 200
POOL = 6400  # tokens of the KV cache: two thirds of what the clients would take
SETTLING = 3.0  # seconds of load after which the ledger is compared with the engine


class Sample(typing.NamedTuple):
    """One look at both, in units of the pool. held: by the ledger, the mean of just before and after the engine was asked."""

    after: float  # seconds of load
    used: float
    held: float
    capacity: int


class Outcome(typing.NamedTuple):
    got: typing.Dict[str, typing.Any]  # what vllm_programs.load printed
    samples: typing.List[Sample]

    def served(self):
        return self.got["ends"].get("200", 0)

    def preempted(self):
        """Preemptions for each request that was served."""
        return self.got["preemptions"] / max(1, self.served())

    def hardly_preempted(self):
        """Whether the preemptions are what a rate under one in a hundred makes of so few requests: up to three more by chance."""
        return self.got["preemptions"] < 3 + 0.01 * self.served()

    def drift(self):
        """Half of the time the ledger was nearer to the engine than this share of the pool."""
        return statistics.median(abs(s.held - s.used) / s.capacity for s in self.samples if s.after > SETTLING)


def wait_until_healthy(server, port, log):
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text(errors="replace")[-4000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server was not ready in time:\n" + log.read_text(errors="replace")[-4000:])


def stop(server):
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=120)
    except subprocess.TimeoutExpired:
        server.kill()
        raise


def result_of(text):
    lines = [t for t in text.splitlines() if t.startswith("RESULT ")]
    assert len(lines) == 1, text[-4000:]
    return json.loads(lines[0][len("RESULT "):])


def gate_environment(build, ledger):
    """What the middleware needs in a server's environment. The test's own process uses the same library."""
    os.environ["PLIMSOLL_GATE_LIBRARY"] = str(pathlib.Path(build) / "runtime" / "gate" / "libplimsoll_gate.so")
    return {"PLIMSOLL_GATE_LEDGER": str(ledger), "PLIMSOLL_GATE_LIBRARY": os.environ["PLIMSOLL_GATE_LIBRARY"],
            "PYTHONPATH": str(pathlib.Path(build) / "python")}


def look(port, ledger, since):
    """A sample; None before the engine's first step, or when it did not answer."""
    before = ledger.read()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            used = re.search(r"^vllm:kv_cache_usage_perc\S* (\S+)$", answer.read().decode(), re.MULTILINE)
    except (OSError, http.client.HTTPException):
        return None
    after = ledger.read()
    if not (used and before and after):
        return None
    return Sample(time.monotonic() - since, float(used.group(1)) * after.capacity_units,
                  (before.held_units + after.held_units) / 2, after.capacity_units)


def load(command, env, python, port, log, ledger=None, seconds=30, most=0):
    """The outcome of so many seconds of load on the server that `command` starts. ledger: path, to be watched four times
    a second. most: as in vllm_programs.load."""
    with open(log, "wb") as sink:
        server = subprocess.Popen(list(map(str, command)), stdout=sink, stderr=sink, env=env)
    samples, watched = [], None
    try:
        wait_until_healthy(server, port, log)
        client = subprocess.Popen([python, str(PROGRAMS), "load", f"http://127.0.0.1:{port}", str(CLIENTS), str(seconds),
                                   str(most)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={k: v for k, v in env.items() if not k.startswith("LD_")})
        since = time.monotonic()
        with client.stdout:
            while client.poll() is None:
                if ledger and os.path.exists(ledger) and watched is None:
                    try:
                        watched = _gate_ledger.Ledger(str(ledger), None)
                    except _gate_ledger.LedgerError:
                        pass  # it is being made
                sample = look(port, watched, since) if watched else None
                samples += [sample] if sample else []
                time.sleep(0.25)
            return Outcome(result_of(client.stdout.read().decode()), samples)
    finally:
        if watched:
            watched.close()
        stop(server)
