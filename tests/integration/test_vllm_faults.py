#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What breaks in the field, with the real vLLM on the simulated GPU: plimsoll run and the gate keep it alive.

One supervised server lives through it all, because a start of vLLM is what takes the time: a neighbour that has too much of
the device, a killed API server, a killed engine, a killed daemon in front, and an end while answers are on their way."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
import simgpu_env  # noqa: E402
import test_gate_daemon  # noqa: E402
import test_simgpu_torch  # noqa: E402
import tiny_model  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "python"))
from plimsoll import _gate_ledger  # noqa: E402

BUILD = pathlib.Path(test_simgpu_torch.BUILD)
GIB = 1 << 30


def parent(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def named(name, root):
    """Processes below `root` that vLLM named so."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            pid = int(path.name) if (path / "cmdline").read_bytes().startswith(b"VLLM::" + name.encode()) else 0
        except OSError:
            continue
        above = pid
        while above > 1 and above != root:
            above = parent(above)
        if pid and above == root:
            found.append(pid)
    return found


def complete(port, model, tokens, stream, **more):
    """How a request ended: served, cut off, lost, or the status of a refusal and why."""
    body = {"model": model, "prompt": "x" * 50, "max_tokens": tokens, "ignore_eos": True, "stream": stream, **more}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            return f"{answer.status} {answer.getheader('x-plimsoll-reason', '')}".strip()
        return "served" if (b"[DONE]" if stream else b'"usage"') in text else "cut off"
    except (OSError, http.client.HTTPException):
        return "lost"
    finally:
        connection.close()


class Clients:
    """Clients that each send one request after the other, streams and others in turn, until they are told to stop."""

    def __init__(self, count, *what):
        self.ends, self.stopping = {}, False
        self.threads = [threading.Thread(target=self.work, args=(i, what)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, turn, what):
        while not self.stopping:
            turn += 1
            end = complete(*what, turn % 2 == 0)
            self.ends[end] = self.ends.get(end, 0) + 1
            if end != "served":
                time.sleep(0.2)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()
        return self.ends


class VllmFaults(test_gate_daemon.Daemon):
    def setUp(self):
        super().setUp()
        python = test_simgpu_torch.interpreter("--vllm")
        self.root = pathlib.Path(self.folder.name)
        self.model = str(tiny_model.make(self.root / "model", "1b"))
        self.port = plimtest.free_port()
        self.ledger = str(self.root / "gate.ledger")
        library = str(BUILD / "runtime" / "gate" / "libplimsoll_gate.so")
        os.environ["PLIMSOLL_GATE_LIBRARY"] = library
        base = plimtest.clean_environment(
            self.root / "home", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_CACHE_ROOT=str(self.root / "vllm"),
            TRITON_CACHE_DIR=str(self.root / "triton"), VLLM_USE_V2_MODEL_RUNNER="0", VLLM_USE_FLASHINFER_SAMPLER="0",
            PLIMSOLL_GATE_LIBRARY=library, PLIMSOLL_GATE_LEDGER=self.ledger, PYTHONPATH=str(BUILD / "python"))
        base["PATH"] = f"{pathlib.Path(python).parent}:{base['PATH']}"
        # Ten gigabytes are a neighbour's: less is left than vLLM asks for at first.
        self.env = simgpu_env.environment(BUILD, base, gpu="h100-80gb", context="500MiB", state=self.root / "books", external=10 * GIB)
        self.lines = []

    def supervise(self, *options):
        command = [plimtest.PROGRAM, "run", "--incidents", self.root / "incidents", "--backoff", "100ms", "--no-lock", "--drain", "60s", "--grace", "3s",
                   "--health", f"http://127.0.0.1:{self.port}/health", "--health-every", "500ms", "--health-misses", "10", "--ledger",
                   self.ledger,
                   "--notch", "gpu-memory-utilization=-0.1:0.5", *options, "--",
                   "vllm", "serve", self.model, "--load-format", "dummy", "--max-model-len", "8192", "--enforce-eager", "--host", "127.0.0.1",
                   "--port", self.port, "--gpu-memory-utilization", "0.92", "--api-server-count", "2",
                   "--no-enable-prefix-caching", "--middleware", "plimsoll.gate.Middleware"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.env)
        self.running.append(process)
        reader = threading.Thread(target=lambda: self.lines.extend(r.decode(errors="replace") for r in process.stderr), daemon=True)
        reader.start()
        return process

    def said(self, whole=False):
        return "".join(line for line in self.lines if whole or line.startswith("plimsoll: "))

    def until_said(self, text, times=1, seconds=300):
        deadline = time.monotonic() + seconds
        while self.said().count(text) < times:
            if time.monotonic() > deadline or self.running[0].poll() is not None:
                self.fail(f"not said {times} times: {text}\n{self.said()}\n{self.said(True)[-3000:]}")
            time.sleep(0.05)

    def state(self):
        ledger = _gate_ledger.Ledger(self.ledger, None)
        try:
            self.assertIsNone(ledger.check())
            return ledger.read()
        finally:
            ledger.close()

    def until_empty(self, seconds):
        """Nothing is reserved any more, after so many seconds at most."""
        deadline = time.monotonic() + seconds
        while self.state().live > 0:
            self.assertLess(time.monotonic(), deadline, f"{self.state().live} reservations are left\n{self.said()}")
            time.sleep(0.1)
        self.assertEqual(self.state().held_units, 0)

    def asking(self, count, tokens):
        """(ends to come, threads) of so many streams that have begun to be asked for."""
        ends = []
        threads = [threading.Thread(target=lambda: ends.append(complete(self.port, self.model, tokens, True))) for _ in range(count)]
        for thread in threads:
            thread.start()
        return ends, threads

    def loaded(self):
        """Clients at work, at the moment when every one of them has something reserved."""
        clients = Clients(16, self.port, self.model, 400)
        deadline = time.monotonic() + 60
        while not os.path.exists(self.ledger) or self.state().live < 16:
            self.assertLess(time.monotonic(), deadline, self.said(True)[-3000:])
            time.sleep(0.05)
        return clients

    def test_lives_through_it_all(self):
        """vLLM under plimsoll run: a notch lower beside a neighbour; back after a killed API server and engine; drained at the end"""
        supervisor = self.supervise()
        self.until_said("memory ran out, by its own words: 10.")
        self.until_said("ONE NOTCH LOWER because memory ran out: gpu-memory-utilization 0.92 -> 0.82")
        self.until_said("serving after", 1)
        self.kill_in_front()
        self.refuse_what_would_run_out_of_memory()
        self.kill("APIServer_0", turn=2)
        self.kill("EngineCore", turn=3)
        self.end_with_answers_on_their_way(supervisor)
        seen = subprocess.run([plimtest.PROGRAM, "status", "--format", "json"], stdout=subprocess.PIPE, env=self.env, check=True)
        device = json.loads(seen.stdout)["devices"][0]
        self.assertEqual(device["used_bytes"], 10 * GIB, "the neighbour's alone")

    def kill(self, name, turn):
        """kill -9 of a process under load: nothing stays reserved, and the next turn serves."""
        clients = self.loaded()
        (victim,) = named(name, self.running[0].pid)
        os.kill(victim, signal.SIGKILL)
        self.until_empty(90)  # the other API server may wait for the dead one's engine until it is killed
        self.until_said("started vllm", turn + 1)
        ends = clients.stop()
        self.assertGreater(ends.get("lost", 0) + ends.get("cut off", 0) + ends.get("500", 0), 0, ends)
        self.assertEqual(set(ends) - {"served", "lost", "cut off", "500", "503", "503 drain"}, set())
        self.until_said("serving after", turn)
        self.assertEqual(complete(self.port, self.model, 5, False), "served")
        self.assertNotIn("giving up", self.said())

    def kill_in_front(self):
        """A router asks a daemon of its own; the daemon is killed with what it let in still running, and comes back."""
        front = str(self.root / "front.ledger")
        options = ("--engine-url", f"127.0.0.1:{self.port}", "--ledger", front)
        gate = self.start(*options)
        self.until(lambda: self.ask(gate.port, "GET", "/readyz")[0] == 200)
        capacity = self.ask(gate.port, "GET", "/v1/pressure")[1]["capacity_units"]
        self.assertTrue(50 * GIB < capacity * 16 * tiny_model.kv_bytes_per_token("1b") < 65 * GIB, capacity)
        ids = [self.ask(gate.port, "POST", "/v1/admit", {"prompt_tokens": 60, "max_tokens": 400})[1]["id"] for _ in range(4)]
        ends, threads = self.asking(4, 400)
        gate.kill()
        gate.wait()
        for thread in threads:
            thread.join()
        self.assertEqual(ends, ["served"] * 4, "who runs goes on")
        gate = self.start(*options)
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["live"], 4)
        for id in ids:
            self.assertEqual(self.ask(gate.port, "POST", "/v1/release", {"id": id, "generated": 400})[0], 204)
        self.assertEqual(self.ask(gate.port, "GET", "/v1/pressure")[1]["held_units"], 0)
        gate.terminate()
        gate.wait()

    def refuse_what_would_run_out_of_memory(self):
        """Log-probabilities of a long prompt: more than the supervisor sees on the device, by the model's arithmetic."""
        deadline = time.monotonic() + 30
        while self.state().headroom_bytes == (1 << 64) - 1:
            self.assertLess(time.monotonic(), deadline, "nobody told what the device has free")
            time.sleep(0.1)
        self.assertTrue(1 * GIB < self.state().headroom_bytes < 6 * GIB, self.state().headroom_bytes)
        ends = [complete(self.port, self.model, 1, False, prompt=[5] * n, **more)
                for n, more in ((8000, {}), (1000, {"prompt_logprobs": 1}), (8000, {"prompt_logprobs": 1}))]
        self.assertEqual(ends, ["served", "served", "429 workspace"])

    def end_with_answers_on_their_way(self, supervisor):
        """SIGTERM: what runs gets its answer to the end, what is new is refused, and then all of it is gone."""
        ends, threads = self.asking(8, 1500)
        deadline = time.monotonic() + 30
        while self.state().begun < 8:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        supervisor.terminate()
        self.until_said("asked to end")
        while self.state().draining == 0:
            time.sleep(0.01)
        self.assertIn(complete(self.port, self.model, 5, True), ("503 drain", "lost"))
        for thread in threads:
            thread.join()
        self.assertEqual(ends, ["served"] * 8)
        self.assertEqual(supervisor.wait(timeout=60), 0, self.said())
        self.assertNotIn("stopping all the same", self.said())
        self.until_empty(0.1)


if __name__ == "__main__":
    plimtest.main()
