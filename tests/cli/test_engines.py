#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`plimsoll plan --engine` for engines other than vLLM: their equations worked again here, and the contract."""

import json
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
         "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
WEIGHTS, TOKEN = 16060522496, 131072
TOTAL, CONTEXT = 80 * GIB, 500 * MIB
CARD = ["--device-memory", str(TOTAL), "--cc", "9.0", "--sms", "132", "--context", str(CONTEXT)]


def gguf(tensors, layers):
    """A llama of `layers` layers: names and sizes (fastest first) of tensors of Q8_0, no data."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def number(key, value):
        return text(key) + struct.pack("<II", 4, value)

    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama"), number("llama.block_count", layers),
            number("llama.embedding_length", 256), number("llama.attention.head_count", 4),
            number("llama.attention.head_count_kv", 2), number("llama.feed_forward_length", 512),
            number("llama.context_length", 8192)]
    out, offset = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys), 0
    for name, (cols, rows) in tensors.items():
        out += text(name) + struct.pack("<IQQIQ", 2, cols, rows, 8, offset)
        offset += (cols * rows // 32 * 34 + 31) // 32 * 32
    return out + bytes(-len(out) % 32) + bytes(offset)


class Engines(unittest.TestCase):
    def plan(self, engine, *flags, model=LLAMA, card=(), options=(), code=None):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / ("model.gguf" if isinstance(model, bytes) else "config.json")
            path.write_bytes(model if isinstance(model, bytes) else json.dumps(model).encode())
            done = plimtest.run("plan", path, "--engine", engine, "--format", "json", *(card or CARD), *options, "--",
                                *flags)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stderr)
        if done.returncode > 2:
            return done.stderr.decode()
        answer = json.loads(done.stdout)
        self.assertEqual(plimtest.schema_complaints(answer), [])
        self.assertEqual(answer["engine"]["name"], engine)
        lines = {line["name"]: line for line in answer["lines"]}
        rest = sum(line["bytes"] for line in answer["lines"] if line["when"] == "rest")
        self.assertEqual(answer["ledger"]["at_rest_bytes"], rest)
        return answer, lines

    def test_sglang(self):
        """SGLang: what is free before loading times the fraction, less the weights"""
        mib = TOTAL // MIB
        fraction = round((mib - (512 + 1.5 * 8192 + 1024 / 8 + 2 * 256)) / mib, 3)
        free = TOTAL - CONTEXT
        available = free - WEIGHTS - int(free * (1 - fraction))
        answer, _ = self.plan("sglang", code=0)
        self.assertAlmostEqual(answer["engine"]["available_kv_bytes"], available, delta=2)
        self.assertEqual(answer["engine"]["kv_tokens"], answer["engine"]["available_kv_bytes"] // TOKEN)
        half, _ = self.plan("sglang", "--kv-cache-dtype", "fp8_e5m2", "--context-length", "8192", code=0)
        self.assertEqual(half["engine"]["kv_tokens"], half["engine"]["available_kv_bytes"] // (TOKEN // 2))
        self.assertAlmostEqual(half["engine"]["max_concurrency"], half["engine"]["kv_tokens"] / 8192)
        capped, _ = self.plan("sglang", "--max-total-tokens=4096", "--context-length", "2048", code=0)
        self.assertEqual(capped["engine"]["kv_tokens"], 4096)

    def test_sglang_shares(self):
        """SGLang: two cards hold half of the weights and of the cache each"""
        answer, lines = self.plan("sglang", "--tp", "2", code=0)
        self.assertEqual(lines["weights"]["bytes"], WEIGHTS // 2 + 65 * 4096)
        self.assertEqual(answer["engine"]["kv_tokens"], answer["engine"]["available_kv_bytes"] // (TOKEN // 2))

    def test_trtllm(self):
        """TensorRT-LLM: a fraction of what weights and activations leave, in blocks of 32"""
        answer, lines = self.plan("tensorrt-llm", "--kv_cache_free_gpu_memory_fraction", "0.8", code=0)
        left = TOTAL - CONTEXT - WEIGHTS - lines["activations"]["bytes"]
        self.assertEqual(answer["engine"]["available_kv_bytes"], int(left * 0.8))
        self.assertEqual(answer["engine"]["block_size"], 32)
        self.assertEqual(answer["engine"]["num_blocks"], int(left * 0.8) // (32 * TOKEN))

    def test_tgi(self):
        """TGI: all of the device but a twentieth, after the warm-up's prefill"""
        answer, lines = self.plan("tgi", "--max-total-tokens", "8192", "--max-batch-prefill-tokens", "4096", code=0)
        left = TOTAL - CONTEXT - WEIGHTS - lines["activations"]["bytes"]
        self.assertAlmostEqual(answer["engine"]["available_kv_bytes"], left * 0.95, delta=2)
        self.assertEqual(lines["activations"]["how"], "estimated")

    def test_llamacpp(self):
        """llama.cpp: the cache is allocated whole for cells padded to 256, by the types of K and V"""
        answer, lines = self.plan("llama.cpp", "-c", "10000", "-ngl", "99", code=0)
        self.assertEqual(lines["kv_cache"]["bytes"], 10240 * TOKEN)
        _, mixed = self.plan("llama.cpp", "-c", "10240", "-ctk", "q8_0", "-ctv", "q4_0", code=0)
        self.assertEqual(mixed["kv_cache"]["bytes"], 10240 * 32 * 8 * (136 + 72))
        answer, _ = self.plan("llama.cpp", "-c", "32768", "-np", "4", code=0)
        self.assertEqual(answer["engine"]["max_model_len"], 8192)
        self.assertIn("flash attention", self.plan("llama.cpp", "-fa", "off", "-ctv", "q8_0", code=64))

    def test_llamacpp_windows(self):
        """llama.cpp: sliding layers get a window for each slot and a micro-batch more, unless --swa-full"""
        gemma = dict(LLAMA, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", num_hidden_layers=12,
                     head_dim=128, sliding_window=1024, tie_word_embeddings=True)
        _, lines = self.plan("llama.cpp", "-c", "32768", model=gemma, code=0)
        self.assertEqual(lines["kv_cache"]["bytes"], 4096 * (2 * 32768 + 10 * 1536))
        _, lines = self.plan("llama.cpp", "-c", "32768", "--swa-full", model=gemma, code=0)
        self.assertEqual(lines["kv_cache"]["bytes"], 4096 * 12 * 32768)

    def test_gguf_layers(self):
        """llama.cpp: the last layers go to the card; the embedding stays, unless it is the output too"""
        tied = {"token_embd.weight": (256, 1000), "output_norm.weight": (256, 1)}
        tied.update({f"blk.{i}.ffn_up.weight": (256, 512) for i in range(4)})
        layer, table, norm = 256 * 512 // 32 * 34, 256 * 1000 // 32 * 34, 256 // 32 * 34
        for ngl, want in ((99, 4 * layer + table + norm), (4, 4 * layer), (3, 3 * layer), (0, 0)):
            _, lines = self.plan("llama.cpp", "-ngl", str(ngl), model=gguf(tied, 4), code=0)
            self.assertEqual(lines["weights"]["bytes"], want, ngl)
        _, lines = self.plan("llama.cpp", "-ngl", "2", "-c", "512", model=gguf(tied, 4), code=0)
        self.assertEqual(lines["kv_cache"]["bytes"], 512 * 2 * 2 * 2 * 64 * 2)
        untied = dict(tied, **{"output.weight": (256, 1000)})
        _, lines = self.plan("llama.cpp", model=gguf(untied, 4), code=0)
        self.assertEqual(lines["weights"]["bytes"], 4 * layer + table + norm)

    def test_ollama(self):
        """Ollama: a context for each request, something kept free, types from its variables"""
        answer, lines = self.plan("ollama", "OLLAMA_CONTEXT_LENGTH=8192", "OLLAMA_NUM_PARALLEL=2",
                                  "OLLAMA_KV_CACHE_TYPE=q8_0", code=0)
        self.assertEqual(lines["kv_cache"]["bytes"], 16384 * 32 * 8 * 2 * 136)
        self.assertEqual(lines["set_aside"]["bytes"], 457 * MIB)
        self.assertEqual(answer["engine"]["max_num_seqs"], 2)

    def test_refusals(self):
        """what does not fit is said with bytes and with changes that were planned again"""
        small = ["--gpu", "rtx4090-24gb"]
        answer, _ = self.plan("sglang", card=small, code=2)
        self.assertEqual(answer["verdict"]["limiting"], "max_model_len")
        self.assertTrue(answer["changes"])
        self.plan("sglang", *answer["changes"][0]["flags"].split(), card=small)
        answer, _ = self.plan("llama.cpp", card=small, code=2)
        self.assertEqual(answer["verdict"]["limiting"], "device_memory")
        self.assertLess(answer["verdict"]["margin_bytes"], 0)
        large = dict(LLAMA, num_hidden_layers=80, hidden_size=8192, num_attention_heads=64, intermediate_size=28672)
        answer, _ = self.plan("tgi", model=large, code=2)
        self.assertEqual(answer["verdict"]["limiting"], "cache_blocks")

    def test_traffic(self):
        """traffic and the reverse questions are answered"""
        answer, _ = self.plan("sglang", "--context-length", "8192", code=2,
                              options=["--prompt", "3000", "--output-tokens", "1000", "--rate", "20", "--replicas",
                                       "--largest-batch", "--largest-context", "--smallest-gpu"])
        possible = min(answer["engine"]["kv_tokens"] / 4000, answer["engine"]["max_num_seqs"])
        self.assertAlmostEqual(answer["traffic"]["possible_concurrency"], possible)
        self.assertEqual(answer["verdict"]["limiting"], "concurrency")
        self.assertEqual(answer["answers"]["replicas"], -(-20 * 1000 / 30 // possible))
        self.assertEqual(answer["answers"]["largest_batch"], int(possible))

    def test_unknown_flags(self):
        """flags that the equation does not read are named"""
        answer, _ = self.plan("sglang", "--enable-lora", "--host", "::", "--context-length=4096", "-1", code=0)
        self.assertEqual(answer["unknown_flags"], ["--enable-lora"])
        self.assertTrue(any("--enable-lora" in text for text in answer["assumptions"]))

    def test_absurd_flags(self):
        """sizes that nobody has are refused or do not fit; nothing wraps around"""
        most = str(2**31 - 1)
        for engine, flags in (("sglang", ["--context-length", most, "--max-total-tokens", "1"]),
                              ("tensorrt-llm", ["--max_num_tokens", most, "--max_batch_size", most]),
                              ("tgi", ["--max-batch-prefill-tokens", most]), ("llama.cpp", ["-c", most, "-fa", "off"]),
                              ("ollama", [f"OLLAMA_CONTEXT_LENGTH={most}", "OLLAMA_NUM_PARALLEL=65536"])):
            answer, _ = self.plan(engine, *flags, code=2)
            self.assertLess(answer["verdict"]["margin_bytes"], 0, engine)
        self.plan("llama.cpp", "-np", most, code=65)

    def test_bad_flags(self):
        """values that are none, sizes that do not divide, releases that are not modelled"""
        self.assertIn("--mem-fraction-static", self.plan("sglang", "--mem-fraction-static", "1.5", code=64))
        self.assertIn("whole number", self.plan("sglang", "--context-length", "8k", code=64))
        self.assertIn("format of a cache", self.plan("tgi", "--kv-cache-dtype", "fp7", code=64))
        self.assertIn("divided", self.plan("sglang", "--tp", "3", code=65))
        self.assertIn("not modelled", self.plan("ollama", options=["--engine-version", "0.1"], code=69))


if __name__ == "__main__":
    plimtest.main()
