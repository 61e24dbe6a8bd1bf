#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the middleware of the gate reads: bodies of requests and answers, pages of metrics, settings; and how its
structures are laid out."""

import ctypes
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
from asgi_engine import Engine  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "python"))
BUILD = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", plimtest.ROOT / "build"))
os.environ["PLIMSOLL_GATE_LIBRARY"] = str(BUILD / "runtime" / "gate" / "libplimsoll_gate.so")
from plimsoll import _gate_body as bodies  # noqa: E402
from plimsoll import _gate_engine as engines  # noqa: E402
from plimsoll import _gate_ledger as ledgers  # noqa: E402
from plimsoll import _gate_settings, _settings  # noqa: E402
from plimsoll.gate import GateSettings, Middleware  # noqa: E402


class Layout(unittest.TestCase):
    def test_structures_are_laid_out_as_in_the_header(self):
        lines, expected = [], []
        for name, kind in ledgers.STRUCTURES.items():
            c = f"struct plimsoll_gate_{name}"
            lines.append(f'printf("%zu\\n", sizeof({c}));')
            expected.append(ctypes.sizeof(kind))
            for field, *_ in kind._fields_:
                lines.append(f'printf("%zu\\n", offsetof({c}, {field}));')
                expected.append(getattr(kind, field).offset)
        lines.append('printf("%zu\\n", sizeof(struct plimsoll_gate));')
        expected.append(128 * 8)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "layout.c"
            source.write_text("#include <plimsoll/gate.h>\n#include <stdio.h>\nint main(void)\n{\n"
                              + "\n".join(lines) + "\nreturn 0;\n}\n")
            subprocess.run(["cc", f"-I{plimtest.ROOT}/include", source, "-o", f"{folder}/layout"], check=True)
            got = subprocess.run([f"{folder}/layout"], check=True, stdout=subprocess.PIPE).stdout.split()
        self.assertEqual(list(map(int, got)), expected)


class Bodies(unittest.TestCase):
    def test_requests_of_every_interface_are_read(self):
        chat = bodies.read_request(json.dumps({
            "model": "m", "max_completion_tokens": 7, "max_tokens": 9, "n": 2, "stream": True, "priority": -3,
            "messages": [{"role": "system", "content": "abcd"},
                         {"role": "user", "content": [{"type": "text", "text": "efg"},
                                                      {"type": "image_url", "image_url": {"url": "data:..."}}]}],
        }).encode())
        self.assertEqual((chat.text_bytes, chat.parts, chat.max_tokens, chat.samples, chat.streams, chat.priority),
                         (7, 1, 7, 2, True, -3))
        ids = bodies.read_request(b'{"prompt": [1, 2, 3], "max_tokens": 5}')
        self.assertEqual((ids.tokens, ids.text_bytes, ids.max_tokens, ids.prompts), (3, 0, 5, 1))
        many = bodies.read_request(b'{"prompt": [[1, 2], [3, 4, 5]]}')
        self.assertEqual((many.tokens, many.prompts, many.longest), (5, 2, 3))
        texts = bodies.read_request(json.dumps({"prompt": ["x" * 160, "x" * 16, "x"], "n": 2}).encode())
        self.assertEqual((texts.text_bytes, texts.prompts, texts.longest, texts.samples), (177, 3, 10, 2))
        self.assertEqual([bodies.read_request(b'{"prompt": "a", "truncate_prompt_tokens": %s}' % n).cut for n in (b"5", b"-1", b"0", b"null", b"-7")],
                         [5, bodies.MOST, 0, 0, 0])
        sglang = bodies.read_request(b'{"text": "hello", "sampling_params": {"max_new_tokens": 12, "n": 3}}')
        self.assertEqual((sglang.text_bytes, sglang.max_tokens, sglang.samples), (5, 12, 3))
        responses = bodies.read_request(json.dumps({"input": "h\u00e9", "instructions": "be brief", "max_output_tokens": 4}).encode())
        self.assertEqual((responses.text_bytes, responses.max_tokens), (11, 4))
        calls = bodies.read_request(b'{"input": [{"type": "function_call", "arguments": "{\\"a\\": 1}"}]}')
        self.assertGreaterEqual(calls.text_bytes, 8)
        tgi = bodies.read_request(b'{"inputs": "hello", "parameters": {"max_new_tokens": 12}}')
        self.assertEqual((tgi.text_bytes, tgi.max_tokens), (5, 12))
        ollama = bodies.read_request(b'{"prompt": "hello", "options": {"num_predict": 12}}')
        self.assertEqual((ollama.text_bytes, ollama.max_tokens), (5, 12))
        self.assertEqual(bodies.read_request(b'{"prompt": "hello", "options": {"num_predict": -1}}').max_tokens, 0)

    def test_answers_of_every_interface_are_read(self):
        for text, expected in (
                (b'{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":3,"output_tokens":4}}',
                 (3, 4, "max_output_tokens")),
                (b'{"status":"completed","incomplete_details":null,"usage":{"input_tokens":3,"output_tokens":4}}', (3, 4, "")),
                (b'{"done_reason":"length","done":true,"prompt_eval_count":3,"eval_count":4,"eval_duration":99}', (3, 4, "length")),
                (b'{"generated_text":"x","details":{"finish_reason":"length","generated_tokens":4}}', (0, 4, "length")),
                (b'{"meta_info":{"finish_reason":{"type":"length","length":4},"prompt_tokens":3,"completion_tokens":4}}', (3, 4, "length")),
                (b'{"stop_reason":"max_tokens","usage":{"input_tokens":3,"output_tokens":4}}', (3, 4, "max_tokens"))):
            self.assertEqual(bodies.read_answer(text), bodies.Answered(*expected), text)

    def test_odd_bodies_are_read_as_far_as_they_make_sense(self):
        for body in (b"", b"[]", b"{", b"\xff\xfe", b"[" * 100000, b"nul", b'"x"'):
            self.assertIsNone(bodies.read_request(body))
        for body in (b'{"prompt": {"a": 1}}', b'{"prompt": [[[1]]]}', b'{"messages": "x"}', b'{"messages": [1, null, {"content": 5}]}',
                     b'{"max_tokens": "many"}', b'{"max_tokens": -1, "n": -5}', b'{"max_tokens": 1e300}', b'{"max_tokens": true}',
                     b'{"prompt": [1, "a", null]}', b'{"n": NaN, "prompt": "x"}', b'{"input": [{}], "tools": {"a": [1]}}',
                     b'{"sampling_params": []}', b'{"priority": 1e99}', b'{"model": ["m"]}', b'{"prompt": []}'):
            asked = bodies.read_request(body)
            self.assertIsNotNone(asked, body)
            self.assertGreaterEqual(asked.samples, 1)
            self.assertTrue(0 <= asked.max_tokens <= bodies.MOST and 0 <= bodies.TokenRate().tokens(asked) <= bodies.MOST)

    def test_words_in_an_answer_are_not_taken_for_its_figures(self):
        text = json.dumps({"choices": [{"text": '"completion_tokens": 99, "finish_reason": "length"', "finish_reason": "stop"}],
                           "usage": {"prompt_tokens": 11, "completion_tokens": 5}}).encode()
        self.assertEqual(bodies.read_answer(text), bodies.Answered(11, 5, "stop"))
        self.assertEqual(bodies.read_answer(b"data: {}"), bodies.Answered())

    def test_the_rate_of_tokens_settles_above_most_prompts_of_its_language(self):
        rate = bodies.TokenRate()
        asked = bodies.Asked(text_bytes=1000)
        first = rate.tokens(asked)
        for i in range(400):
            rate.learn(asked, 200 + i % 21)  # 0.20 to 0.22
        self.assertLess(rate.tokens(asked), first)
        self.assertTrue(210 <= rate.tokens(asked) <= 235, rate.tokens(asked))

    def test_events_that_hold_several_tokens_are_counted_as_such(self):
        rate = bodies.EventRate()
        self.assertEqual(rate.tokens(10), 10)
        for _ in range(60):
            rate.learn(300, 100)
        rate.learn(5, 2)  # too short to say anything
        self.assertEqual(rate.tokens(10), 29 if rate.mean < 2.95 else 30)

    def test_pages_of_metrics_are_summed_over_ranks(self):
        page = engines.read_page(
            b'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.7\n'
            b'vllm:num_preemptions_total{engine="0"} 3.0\nvllm:num_preemptions_total{engine="1"} 4.0\n'
            b'vllm:num_preemptions_created{engine="1"} 1.7e9\n'
            b'vllm:cache_config_info{block_size="16",num_gpu_blocks="202",x="a\\"b"} 1.0\n'
            b'vllm:cache_config_info{block_size="16",num_gpu_blocks="202"} 1.0\n')
        self.assertAlmostEqual(page.usage, 0.6)
        self.assertEqual((page.preempted, page.cache), (7, engines.Cache(16, 202, 0, 2)))  # blocks of both on either's line
        self.assertEqual(page.cache.capacity(2048), 3200)
        self.assertEqual(engines.read_page(b"\xff\x00 nonsense {{{\n" * 100), engines.Page())
        endless = (b'sglang:context_len 1e999\nsglang:max_total_num_tokens 1e999\nvllm:num_preemptions_total 1e999\n'
                   b'vllm:cache_config_info{num_gpu_blocks="' + b"9" * 5000 + b'",block_size="16"} 1\n')
        self.assertEqual(engines.read_page(endless), engines.Page(cache=engines.Cache(16), profiles=True))
        sglang = engines.read_page(b'sglang:max_total_num_tokens{m="x"} 5000.0\nsglang:context_len{m="x"} 4096.0\n')
        self.assertEqual((sglang.capacity_tokens, sglang.length), (5000, 4096))

    def test_a_cache_whose_requests_take_several_blocks_at_once_holds_fewer_tokens(self):
        Cache = engines.Cache
        # 401 blocks of 16 tokens, one of them vLLM's own. It says 6365 where requests have 1000 tokens, in 63 blocks each.
        for said, length in ((0, 0), (0, 1000), (6416, 2048), (6365, 1000), (401 * 17 // 2, 17)):
            self.assertEqual(Cache(16, 401, said).capacity(length), 6400, (said, length))
        self.assertEqual(Cache(16, 401, 3208).capacity(2048), 3192)  # two kinds of layers
        self.assertEqual(Cache(16, 802, 3208, 2).capacity(2048), 6384)  # of two ranks
        self.assertEqual(Cache(16, 0, 3208).capacity(2048), 3192)
        self.assertEqual(Cache(0, 401, 3208).capacity(2048), 0)
        self.assertEqual(Cache(16, 1).capacity(2048), 0)


class Settings(unittest.TestCase):
    def test_what_the_gate_says_is_seen_whatever_level_others_gave_the_root(self):
        root, own = logging.getLogger(), logging.getLogger("plimsoll.gate")
        self.addCleanup(root.setLevel, root.level)
        self.addCleanup(own.setLevel, own.level)
        root.setLevel(logging.ERROR)
        for chosen, seen in ((logging.NOTSET, True), (logging.CRITICAL, False)):  # the user's own choice stays
            own.setLevel(chosen)
            Middleware(Engine(), GateSettings())
            self.assertEqual(own.isEnabledFor(logging.WARNING), seen)

    def test_the_documentation_has_the_table_of_settings(self):
        text = (plimtest.ROOT / "docs" / "howto" / "gate.md").read_text()
        self.assertIn("\n".join(_settings.table(GateSettings, _gate_settings.PREFIX)), text)

    def test_settings_come_from_the_environment_and_mistakes_are_survived(self):
        read = GateSettings.environment({"PLIMSOLL_GATE_WAIT": "2.5", "PLIMSOLL_GATE_POLICY": "generous", "PLIMSOLL_GATE_BODY": "1MiB",
                                         "PLIMSOLL_GATE_PATHS": "/a,/b", "PLIMSOLL_GATE_FAIL": "closed", "PLIMSOLL_GATE_HIGH": "7"})
        self.assertEqual((read.wait, read.policy, read.body, read.paths, read.fail, read.high),
                         (2.5, "expected", 1 << 20, ("/a", "/b"), "closed", 1.0))

    def test_settings_that_are_none_are_said(self):
        with unittest.mock.patch.object(_gate_settings, "say") as said:
            GateSettings.environment({"PLIMSOLL_GATE_WAITS": "20", "PLIMSOLL_GATE_LIBRARY": "/x", "PLIMSOLL_GATE_ON": "1", "PATH": "/"})
        self.assertEqual([call.args[1] for call in said.call_args_list],
                         ["PLIMSOLL_GATE_WAITS is no setting; did you mean PLIMSOLL_GATE_WAIT?"])

    def test_servers_on_different_ports_have_different_ledgers(self):
        paths = {GateSettings().ledger_path(s) for s in (("127.0.0.1", 8000), ("::", 8001), ("/run/a.sock", None), None)}
        self.assertEqual(len(paths), 4)
        self.assertEqual(GateSettings(ledger="/x").ledger_path(("h", 1)), "/x")


if __name__ == "__main__":
    plimtest.main()
