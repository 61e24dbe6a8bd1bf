#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plimsoll plan` against tables of what the real vLLM 0.33.0 reported at its start (tests/data/plan/README.md):
available bytes within 1 % or 64 MiB, blocks of requests and sizes exactly, refusals with their kind."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

TABLES = pathlib.Path(__file__).resolve().parent.parent / "data" / "plan"
MIB = 1 << 20
# Beginning of the engine's message, what limits.
REFUSALS = [
    ("ValueError: Free memory on device", "free_memory"),
    ("OutOfMemoryError: CUDA out of memory", "load"),
    ("ValueError: No available memory for the cache blocks", "cache_blocks"),
    ("ValueError: To serve at least one request", "max_model_len"),
    ("ValueError: Cannot auto-fit max_model_len", "auto_fit"),
]


def flags(row):
    """The command line that means the same as the keywords of LLM()."""
    words = [f"{name}={value}" for name, value in row["env"].items()]
    for name, value in row["args"].items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def plan(row, folder):
    card = row["card"]
    path = pathlib.Path(folder) / "config.json"
    path.write_text(json.dumps(row["config"]), encoding="utf-8")
    result = plimtest.run("plan", path, "--engine", "vllm", "--engine-version", "0.33", "--device-memory",
                          card["total_bytes"], "--cc", card["cc"], "--sms", card["sms"], "--gpu-name",
                          card["name"], "--context", card["context_bytes"], "--external",
                          card["external_bytes"], "--format", "json", "--", *flags(row),
                          XDG_STATE_HOME=folder)
    return result, json.loads(result.stdout) if result.stdout else None


class Plan(unittest.TestCase):
    def close(self, got, want, row):
        self.assertLessEqual(abs(got - want), max(64 * MIB, abs(want) // 100),
                             f"{row['id']}: {got} planned, {want} reported")

    def near(self, got, want, slack, row):
        """a count that follows from the bytes: within 1 %, or what 64 MiB of cache are"""
        self.assertLessEqual(abs(got - want), max(slack, want / 100), f"{row['id']}: {got} planned, {want} reported")

    def refused(self, out, row):
        error = row["want"]["error"]
        kinds = [kind for start, kind in REFUSALS if error.startswith(start)]
        self.assertEqual([out["verdict"]["limiting"]], kinds, f"{row['id']}: {error}")
        self.assertFalse(out["verdict"]["fits"])

    def compare(self, row, folder):
        result, out = plan(row, folder)
        self.assertIsNotNone(out, result.stderr)
        self.assertEqual(plimtest.schema_complaints(out), [])
        want, engine = dict(row["want"]), out["engine"]
        if "error" in want:
            self.assertEqual(result.returncode, 2)
            self.refused(out, row)
        else:
            self.assertIn(result.returncode, (0, 1), row["id"])
        for key in ("block_size", "max_num_batched_tokens", "max_num_seqs"):
            if key in want:
                self.assertEqual(engine[key], want[key], f"{row['id']}: {key}")
        if "available_kv_bytes" in want:
            self.close(engine["available_kv_bytes"], want["available_kv_bytes"], row)
            print(f"# {row['id']}: {(engine['available_kv_bytes'] - want['available_kv_bytes']) / MIB:+.2f} MiB of "
                  f"{want['available_kv_bytes'] / MIB:.0f}")
        if "num_blocks" in want and "max_concurrency" in want:
            self.assertEqual(engine["request_blocks"], round(want["num_blocks"] / want["max_concurrency"]),
                             row["id"])
            self.close(engine["num_blocks"] * engine["block_bytes"],
                       want["num_blocks"] * engine["block_bytes"], row)
            self.assertEqual(engine["max_model_len"], want["max_model_len"], row["id"])
            requests = 64 * MIB / engine["block_bytes"] / engine["request_blocks"]
            self.near(engine["max_concurrency"], want["max_concurrency"], requests, row)
            self.near(engine["kv_tokens"], want["kv_tokens"], requests * want["max_model_len"] + 1, row)

    def table(self, name, least):
        rows = [json.loads(line) for line in (TABLES / name).read_text(encoding="utf-8").splitlines()]
        self.assertGreaterEqual(len(rows), least)
        with tempfile.TemporaryDirectory() as folder:
            for row in rows:
                with self.subTest(row["id"]):
                    self.compare(row, folder)

    def test_first_table(self):
        """76 starts of twelve models on four cards come out as the engine reported them"""
        self.table("vllm-0.33-first.jsonl", 76)

    def test_second_table(self):
        """starts of other models, quantized, compiled and on other cards come out as the engine reported them"""
        self.table("vllm-0.33-second.jsonl", 15)

    def test_third_table(self):
        """starts that were planned before they were measured come out as the engine reported them"""
        self.table("vllm-0.33-third.jsonl", 27)


if __name__ == "__main__":
    plimtest.main()
