#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real, unmodified vLLM on the simulated GPU: in one process, as a server in its default process layout with a
real client, and on cards that are too small. Dummy weights, a model folder made here."""

import contextlib
import json
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
import test_simgpu_torch  # noqa: E402
import tiny_model  # noqa: E402
import vllm_load  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "python"))
from plimsoll import _gate_ledger, _share  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
GIB = 1 << 30
H100 = 81008 * MIB
CONTEXT = 500 * MIB


def step_of(name, **step):
    """Allocations of one step as `soak` has them (tests/oracle/workload_model.c), from the attention's inputs on."""
    g = tiny_model.GEOMETRIES[name]
    words = {"layers": g["num_hidden_layers"], "hidden": g["hidden_size"], "heads": g["num_attention_heads"],
             "kv_heads": g["num_key_value_heads"], "head_dim": g["head_dim"], "vocab": tiny_model.VOCABULARY,
             "intermediate": g["intermediate_size"], **step}
    lines = subprocess.run([f"{test_simgpu_torch.BUILD}/tests/oracle/workload_model", "step", *(f"{k}={v}" for k, v in words.items())],
                           stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    return shifted(lines[8:], -4)  # without the eight entries that prepare the batch, which hold four pieces


def shifted(lines, by):
    return [line if line[0] == "+" else f"- {int(line[2:]) + by}" for line in lines]


def occurrences(wanted, trace):
    """Where `wanted` stands in a trace as one unbroken run; its numbers count from the run's first allocation."""
    found, allocations = [], 0
    for at, line in enumerate(trace):
        if line == wanted[0] and shifted(trace[at:at + len(wanted)], -allocations) == wanted:
            found.append(at)
        allocations += line[0] == "+"
    return found


class VllmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = test_simgpu_torch.interpreter("--vllm")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        root = pathlib.Path(cls.folder.name)
        cls.model = str(tiny_model.make(root / "model", "1b"))
        # Compiled kernels are kept from one test to the next.
        cls.env = plimtest.clean_environment(root / "home", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
                                             DO_NOT_TRACK="1", VLLM_CACHE_ROOT=str(root / "vllm"),
                                             TORCHINDUCTOR_CACHE_DIR=str(root / "inductor"),
                                             TRITON_CACHE_DIR=str(root / "triton"))
        cls.env["PATH"] = f"{pathlib.Path(cls.python).parent}:{cls.env['PATH']}"

    def dryrun(self, gpu, *command, kernel_time=None):
        """The command line of a dry run whose report goes to a file in the test's folder."""
        self.report = pathlib.Path(self.folder.name) / f"{self._testMethodName}.json"
        snapshot = pathlib.Path(self.folder.name) / f"{self._testMethodName}.pickle"
        return [plimtest.PROGRAM, "dryrun", "--gpu", gpu, "--context", str(CONTEXT), "--format", "json",
                "-o", str(self.report), "--snapshot", str(snapshot), "--timeout", "400s",
                *(["--kernel-time", kernel_time] if kernel_time else []), "--", *map(str, command)]

    def finish(self, *command):
        """Run to the end; (exit status of the program, its output)."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.env,
                                timeout=450, check=False)
        text = result.stdout.decode(errors="replace")
        self.assertEqual(result.returncode, 0, text[-3000:])
        self.out = json.loads(self.report.read_text())
        self.assertEqual(plimtest.schema_complaints(self.out), [])
        return self.out["runs"][0], text

    def check_cache(self, tokens, total):
        """The cache is what is left of 0.9 of the card after weights, context and activations."""
        cache = tokens * tiny_model.kv_bytes_per_token("1b")
        rest = total * 0.9 - cache - tiny_model.weight_bytes("1b") - CONTEXT
        self.assertTrue(0 < rest < 3 * GIB, rest)
        return cache

    def test_in_one_process(self):
        """in one process: requests are answered; weights, cache and device add up to the byte"""
        run, text = self.finish(*self.dryrun("h100-80gb", self.python, HERE / "vllm_programs.py", "engine",
                                             self.model))
        out = vllm_load.result_of(text)
        self.assertEqual(out["lengths"], [8, 8, 8])
        self.assertEqual(out["total"], H100)
        cache = self.check_cache(out["blocks"] * out["block_size"], H100)
        self.assertGreaterEqual(out["allocated"], cache + tiny_model.weight_bytes("1b"))
        self.assertLess(out["allocated"], cache + tiny_model.weight_bytes("1b") + GIB)
        self.assertEqual(out["total"] - out["free"], out["reserved"] + CONTEXT)
        self.assertEqual(run["outcome"], "fits")
        # One step with the three prompts and seven of one token for each, as the soak's model of a step has them.
        step = step_of("1b", tokens=2310, rows=3, splits=1, plan_bytes=36)
        self.assertEqual(len(occurrences(step, out["trace"])), 1)
        # FlashAttention 3 splits keys and values in ten on this card, and plans that in 36 bytes.
        step = step_of("1b", tokens=3, rows=3, splits=10, plan_bytes=36)
        self.assertEqual(len(occurrences(step, out["trace"])), 7)

    def attached(self):
        """The environment with attach switched on, and a session folder."""
        root = pathlib.Path(self.folder.name)
        (root / "session").mkdir()
        return dict(self.env, PLIMSOLL_ATTACH="1", PLIMSOLL_ATTACH_DIR=str(root / "snapshots"),
                    PLIMSOLL_RECORD_DIR=str(root / "session"),
                    PYTHONPATH=str(pathlib.Path(test_simgpu_torch.BUILD) / "python"))

    def look_from_outside(self, env):
        """(pid of the one process that shows its allocator, the snapshot that it took when it was asked)."""
        names = list(pathlib.Path(env["PLIMSOLL_RECORD_DIR"]).glob("*.plimattach"))
        self.assertEqual(len(names), 1, names)
        seen = _share.File.from_buffer_copy(names[0].read_bytes())
        self.assertGreater(seen.device[0].reserved, tiny_model.weight_bytes("1b"))
        self.assertEqual(seen.device[0].device_total, H100)
        return seen.pid, _share.request(seen.pid, 120, env["PLIMSOLL_RECORD_DIR"])

    def monitored(self, log, pid):
        """What a monitor says of the engine that it finds through this one process that uses a device, and whose log
        it follows."""
        root = pathlib.Path(self.folder.name)
        (root / "samples.jsonl").write_text(json.dumps({
            "schema": "plimsoll.sample/1",
            "devices": [{"vendor": "nvidia", "name": "simulated", "state": "ok", "total_bytes": H100,
                         "used_bytes": H100 // 2, "free_bytes": H100 - H100 // 2}],
            "uses": [{"device": 0, "pid": pid, "bytes": H100 // 2, "kinds": ["compute"]}]}) + "\n")
        monitor = subprocess.Popen([plimtest.PROGRAM, "watch", "--samples", root / "samples.jsonl", "--engine-log", log,
                                    "--listen", f"unix:{root}/watch.sock", "--db", "none"], env=self.env,
                                   stderr=subprocess.DEVNULL)
        engine = None
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not (engine and "generation_tokens" in engine):
                time.sleep(0.2)
                asked = subprocess.run([plimtest.PROGRAM, "top", "--once", "--width", "300", "--monitor",
                                        f"unix:{root}/watch.sock"], stdout=subprocess.PIPE, check=False, env=self.env)
                with contextlib.suppress(OSError), plimtest.UnixConnection(f"{root}/watch.sock") as connection:
                    connection.request("GET", "/api/v1/status")
                    engines = json.loads(connection.getresponse().read())["engines"]
                    engine = engines[0] if engines else None
        finally:
            monitor.terminate()
            self.assertEqual(monitor.wait(30), 0)
        self.assertIsNotNone(engine, "no engine was found")
        return engine, asked.stdout.decode()

    def check_monitored(self, engine, port, pid, page, log):
        """The monitor's figures are the engine's own: of its page, and of its log."""
        def said(name):
            return float(re.search(rf"^vllm:{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE).group(1))

        def logged(pattern):
            return float(re.search(pattern, log).group(1).replace(",", ""))

        self.assertEqual((engine["name"], engine["kind"], engine["model"], engine["rank"]),
                         (f"127.0.0.1:{port}", "vllm", self.model, "0"))
        self.assertEqual(engine["workers"], [pid])
        self.assertNotEqual(engine["pid"], pid, "the API server answers, the engine uses the device")
        self.assertEqual(engine["generation_tokens"], said("generation_tokens_total"))
        self.assertEqual(engine["prompt_tokens"], said("prompt_tokens_total"))
        self.assertEqual(engine["prefix_queried_tokens"], said("prefix_cache_queries_total"))
        self.assertEqual((engine["kv_usage_ratio"], engine["requests_running"], engine["asleep"]), (0, 0, 0))
        self.assertEqual(engine["kv_capacity_tokens"], logged(r"GPU KV cache size: ([\d,]+) tokens"))
        self.assertEqual(engine["max_context_tokens"], 8192)
        for part, pattern in (("weights", r"Model loading took ([\d.]+) GiB"),
                              ("kv_cache", r"Available KV cache memory: ([\d.]+) GiB"),
                              ("activations", r"([\d.]+) GiB for peak activation")):
            self.assertAlmostEqual(engine["components"][part] / GIB, logged(pattern), places=2, msg=part)

    def test_server_in_its_default_process_layout(self):
        """as a server with its own processes: a real client is answered, and the engine's memory is seen"""
        port = plimtest.free_port()
        log = pathlib.Path(self.folder.name) / "server.log"
        command = self.dryrun("h100-80gb", "vllm", "serve", self.model, "--load-format", "dummy",
                              "--max-model-len", "8192", "--enforce-eager", "--gpu-memory-utilization", "0.9", "--host",
                              "127.0.0.1", "--port", port)
        env = self.attached()
        with open(log, "wb") as sink:
            server = subprocess.Popen(command, stdout=sink, stderr=sink, env=env)
        try:
            vllm_load.wait_until_healthy(server, port, log)
            client = subprocess.run([self.python, str(HERE / "vllm_programs.py"), "client",
                                     f"http://127.0.0.1:{port}"], capture_output=True, env=self.env, timeout=200,
                                    check=False)
            answers = vllm_load.result_of(client.stdout.decode() + client.stderr.decode())
            self.assertEqual(answers["prompt"], len("hello world"))
            self.assertEqual((answers["new"], answers["finish"], answers["chat"]), (8, "length", 5))
            self.assertGreaterEqual(answers["pieces"], 2)  # how many is a matter of timing
            self.assertEqual(answers["refused"], 400)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                page = answer.read().decode()
            attached, snapshot = self.look_from_outside(env)
            engine, screen = self.monitored(log, attached)
            self.check_monitored(engine, port, attached, page, log.read_text(errors="replace"))
            self.assertIn(f"127.0.0.1:{port} vllm", screen)
        finally:
            vllm_load.stop(server)
        self.assertEqual(server.returncode, 0, log.read_text(errors="replace")[-3000:])
        out = json.loads(self.report.read_text())
        self.assertEqual(plimtest.schema_complaints(out), [])
        run = out["runs"][0]
        self.assertEqual(run["outcome"], "fits")
        engines = [p for p in run["processes"] if p["used_cuda"]]
        self.assertEqual(len(engines), 1, run["processes"])
        self.assertGreater(len(run["processes"]), 1, "API server and engine are processes of their own")
        self.assertEqual(attached, engines[0]["pid"], "only the engine shows figures")
        facts = json.loads(pickle.loads(pathlib.Path(snapshot).read_bytes())["plimsoll"])
        self.assertEqual((facts["pid"], facts["kind"]), (attached, "request"))
        self.assertEqual(facts["versions"]["vllm"], "0.33.0")
        judged = plimtest.run("diagnose", "--format", "json", snapshot)
        self.assertEqual(json.loads(judged.stdout)["verdict"]["class"], "healthy", judged.stderr)
        tokens = int(re.search(r"GPU KV cache size: ([\d,]+) tokens", log.read_text(errors="replace"))
                     .group(1).replace(",", ""))
        cache = self.check_cache(tokens, H100)
        self.assertGreaterEqual(engines[0]["peak_reserved_bytes"], cache + tiny_model.weight_bytes("1b"))
        self.assertLess(run["peak"]["device_bytes"], H100)

    def loaded(self, *options, ledger=None, **env):
        """What 30 s of clients get of a server whose steps take as long as on a card (some 25 ms), with a KV cache of
        400 blocks."""
        port = plimtest.free_port()
        command = self.dryrun("h100-80gb", "vllm", "serve", self.model, "--load-format", "dummy", "--max-model-len",
                              "2048", "--enforce-eager", "--num-gpu-blocks-override", vllm_load.POOL // 16 + 1, "--host",
                              "127.0.0.1", "--no-enable-prefix-caching", "--port", port, *options,
                              kernel_time="200us")
        return vllm_load.load(command, dict(self.env, **env), self.python, port,
                              pathlib.Path(self.folder.name) / f"loaded{port}.log", ledger)

    def test_behind_the_gate(self):
        """behind the gate, in two API servers, next to nothing is preempted where without it most are, and the ledger goes with the engine"""
        path = str(pathlib.Path(self.folder.name) / "gate.ledger")
        gated = self.loaded("--middleware", "plimsoll.gate.Middleware", "--api-server-count", "2", "--api-key", "none",
                            ledger=path, **vllm_load.gate_environment(test_simgpu_torch.BUILD, path))
        bare = self.loaded()
        ledger = _gate_ledger.Ledger(path, None)
        state = ledger.read()
        self.assertIsNone(ledger.check())
        logs = "".join(log.read_text(errors="replace") for log in pathlib.Path(self.folder.name).glob("loaded*.log"))
        self.assertIn(f"plimsoll gate: ledger {path}: 400 blocks", logs)
        config = ledger.config()
        step = int(re.search(r"max_num_batched_tokens=(\d+)", logs)[1])
        self.assertEqual((config.max_length, config.step_tokens), (2048, step), "as the engine's configuration says")
        ledger.close()
        self.assertEqual((state.live, state.held_units), (0, 0), "everything was given back")
        self.assertEqual(set(gated.got["ends"]) - {"200", "429"}, set(), "no other error")
        self.assertIn("429", gated.got["ends"], "together they ask for more than there is")
        waits = gated.got["waits"]
        self.assertTrue(1 <= waits[0] and waits[1] <= 60, waits)
        self.assertEqual({s.capacity for s in gated.samples}, {400}, "as the engine says, less its own block")
        self.assertLess(gated.drift(), 0.05)
        self.assertGreater(bare.preempted(), 0.1, bare.got)
        self.assertTrue(gated.hardly_preempted(), (gated.got, bare.got))

    def test_a_card_that_is_too_small(self):
        """on a card that is too small the server fails with its own words"""
        run, text = self.finish(*self.dryrun("h100-80gb@3GiB", "vllm", "serve", self.model, "--load-format",
                                             "dummy", "--max-model-len", "8192", "--enforce-eager", "--host",
                                             "127.0.0.1", "--port", plimtest.free_port()))
        self.assertRegex(text, r"Free memory on device \S* ?\(2\.\d+/3\.0 GiB\) on startup is less than desired GPU "
                               r"memory utilization")
        self.assertIn(run["outcome"], ("failed", "out_of_memory"))
        self.assertNotEqual(run.get("exit_status"), 0)

    def test_a_cache_that_is_too_small(self):
        """when the weights fit and one sequence does not, the engine says how much cache it needs"""
        run, text = self.finish(*self.dryrun("h100-80gb@6GiB", "vllm", "serve", self.model, "--load-format",
                                             "dummy", "--max-model-len", "131072", "--enforce-eager", "--host",
                                             "127.0.0.1", "--gpu-memory-utilization", "0.9", "--port",
                                             plimtest.free_port()))
        # 131,072 tokens of 32,768 bytes.
        self.assertRegex(text, r"4\.0 GiB KV cache is needed, which is larger than the available KV cache memory")
        self.assertIn(run["outcome"], ("failed", "out_of_memory"))


if __name__ == "__main__":
    plimtest.main()
