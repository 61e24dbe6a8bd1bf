#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ASGI middleware of the gate: around an engine that is simulated in the same process, with several processes that
share a ledger and are killed, and with clients of every bad kind."""

import asyncio
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
from asgi_engine import Engine, call  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "python"))
BUILD = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", plimtest.ROOT / "build"))
os.environ["PLIMSOLL_GATE_LIBRARY"] = str(BUILD / "runtime" / "gate" / "libplimsoll_gate.so")
from plimsoll import _gate_body as bodies  # noqa: E402
from plimsoll import _gate_engine as engines  # noqa: E402
from plimsoll import _gate_ledger as ledgers  # noqa: E402
from plimsoll import _gate_model as models  # noqa: E402
from plimsoll import _gate_settings  # noqa: E402
from plimsoll.gate import GateSettings, Middleware  # noqa: E402


def ask(tokens=10, new=16, really=None, **more):
    data = {"model": "m", "prompt": "word " * tokens, "max_tokens": new, **more}
    return data if really is None else {**data, "really": really}


async def until(condition):
    """Wait for what other tasks or processes do."""
    end = time.monotonic() + plimtest.PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it never came true")
        await asyncio.sleep(0.005)


def state_of(ledger):
    """The ledger's state. Another process may stand still inside it for a moment: then it is asked again."""
    return plimtest.wait_for("the state", ledger.read)


class Gated(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.ledger = os.path.join(self.folder.name, "ledger")

    def settings(self, **more):
        return GateSettings(**{"ledger": self.ledger, "scrape": 0.05, **more})

    def inside(self, work, engine=None, **settings):
        """Run work(app, engine) in an event loop; the ledger must be sound and empty when all is over."""
        engine = engine or Engine()
        app = Middleware(engine, self.settings(**settings))

        async def run():
            try:
                result = await asyncio.wait_for(work(app, engine), 10 * plimtest.PATIENCE)
                if app.ledger is not None:
                    self.assertIsNone(app.ledger.check())
                    self.assertEqual(app.ledger.read().live, 0, "something is still reserved")
                return result
            finally:
                app.close()

        return asyncio.run(run())


LLAMA = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
         "torch_dtype": "bfloat16"}
LLAVA = {"text_config": LLAMA, "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "image_size": 336,
                                                 "patch_size": 14}}
TOKEN, ROW, PICTURE = 2 * (2 * 4096 + 3 * 14336), 128256 * (2 + 4 + 1), 24 * 24 * 2 * (2 * 1024 + 3 * 4096)


class Workspace(Gated):
    def model(self, config):
        path = pathlib.Path(self.folder.name) / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return str(path)

    def test_prices_follow_from_the_model_s_configuration(self):
        self.assertEqual(models.prices(LLAMA), models.Prices(TOKEN, 0, ROW))
        self.assertEqual(models.prices(LLAVA), models.Prices(TOKEN, PICTURE, ROW))
        self.assertEqual(models.prices({**LLAMA, "dtype": "float32"}).row, 128256 * 9)
        for odd in ({}, {"hidden_size": "x", "vocab_size": -1}, {"vocab_size": True}, {"text_config": 5, "vision_config": {"patch_size": 0}}):
            self.assertEqual(models.prices(odd), models.Prices())

    def test_a_model_that_is_not_there_is_said(self):
        async def work(app, engine):
            await call(app, "/v1/completions", ask(3, 3))
        with self.assertLogs("plimsoll.gate", "WARNING") as said:
            self.inside(work, model="/nowhere/model")
        self.assertIn("no config.json of a model at PLIMSOLL_GATE_MODEL=/nowhere/model", "".join(said.output))

    def test_a_model_is_found_as_a_file_a_folder_or_in_the_cache(self):
        path = self.model(LLAMA)
        snapshot = pathlib.Path(self.folder.name) / "hub" / "models--some--model" / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(LLAVA))
        cache = {"HF_HOME": self.folder.name}
        self.assertEqual(models.find_config(path, {}), LLAMA)
        self.assertEqual(models.find_config(self.folder.name, {}), LLAMA)
        self.assertEqual(models.find_config("some/model", cache), LLAVA)
        for name in ("other/model", "../..", "", "/dev/null", self.model("[1]"), self.model("{")):
            self.assertIsNone(models.find_config(name, cache))

    def config_with(self, engine=None, **settings):
        async def work(app, engine):
            await call(app, "/v1/completions", ask(5, 5))
            got = app.ledger.config()
            return got.work_token_bytes, got.work_image_bytes, got.work_row_bytes, got.work_limit_bytes, got.step_tokens
        self.ledger += "x"
        return self.inside(work, engine=engine, **settings)

    def test_an_engine_that_ran_its_largest_step_has_all_but_log_probabilities_in_its_size(self):
        self.assertEqual(self.config_with(model=self.model(LLAVA)), (0, 0, ROW, 0, 0))
        self.assertEqual(self.config_with(model="none"), (0, 0, 0, 0, 0))
        self.assertEqual(self.config_with(model="none", work_token=7, work_part=10240, work_row=9, work_room=1 << 30, step_tokens=512),
                         (7, 10, 9, 1 << 30, 512))

    def test_other_servers_are_priced_by_the_whole_model(self):
        engine = Engine()
        plain = engine.metrics
        engine.metrics = lambda: plain().replace("vllm:", "other:")
        self.assertEqual(self.config_with(engine, model=self.model(LLAVA), capacity_tokens=16000), (TOKEN, -(-PICTURE // 1024), ROW, 0, 0))

    def test_log_probabilities_of_a_long_prompt_wait_for_room(self):
        async def work(app, engine):
            await call(app, "/v1/completions", ask(5, 5))
            room = ledgers.Figures(has=ledgers.HAS_HEADROOM, headroom_bytes=100 * ROW)
            app.ledger.observe(room)
            self.assertEqual((await call(app, "/v1/completions", ask(500, 5)))[0], 200)
            status, headers, *_ = await call(app, "/v1/completions", ask(500, 5, prompt_logprobs=1))
            self.assertEqual((status, headers["x-plimsoll-reason"]), (429, "workspace"))
            room.headroom_bytes = 10000 * ROW
            app.ledger.observe(room)
            self.assertEqual((await call(app, "/v1/completions", ask(500, 5, prompt_logprobs=1)))[0], 200)
        self.inside(work, engine=Engine(blocks=1001), model=self.model(LLAMA))

    def test_pictures_videos_and_sounds_are_priced_each(self):
        def shown(count):
            parts = [{"type": kind, kind: {"url": "x"}} for kind in ("image_url", "video_url", "input_audio", "input_image")][:count]
            return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "what is it?"}]}], "prompt": "for the toy", "max_tokens": 4}

        async def work(app, engine):
            answers = [(await call(app, "/v1/chat/completions", shown(n)))[1].get("x-plimsoll-reason") for n in range(1, 5)]
            self.assertEqual(answers, [None, None, None, "workspace"])
        self.inside(work, engine=Engine(blocks=1001), model="none", work_part=100 << 20, work_room=400 << 20, part_tokens=64)


class Classes(Gated):
    def test_limits_of_classes_are_read(self):
        read = GateSettings.environment({"PLIMSOLL_GATE_CLASSES": "batch: weight=0.2, budget=0.5; /v1/embeddings: requests=16;"}).classes
        self.assertEqual(read, (_gate_settings.ClassLimits("batch", 0.2, 0.5, 0), _gate_settings.ClassLimits("/v1/embeddings", 1.0, 0.0, 16)))
        for odd in ("x", "x:", ": weight=1", "x: weight=0", "x: budget=2", "x: requests=-1", "x: more=1", "x: weight"):
            self.assertEqual(GateSettings.environment({"PLIMSOLL_GATE_CLASSES": odd}).classes, (), odd)

    def test_a_class_gets_no_more_than_it_may(self):
        async def work(app, engine):
            headers = [(b"x-plimsoll-class", b"batch")]
            ends = await asyncio.gather(*(call(app, "/v1/completions", ask(5, 50), headers=headers) for _ in range(5)),
                                        *(call(app, "/v1/completions", ask(5, 50)) for _ in range(5)))
            self.assertEqual([end[0] for end in ends], [200] * 2 + [429] * 3 + [200] * 5)
            self.assertEqual(ends[4][1]["x-plimsoll-reason"], "budget")
        self.inside(work, trust=True, engine=Engine(blocks=1001), classes=(_gate_settings.ClassLimits("batch", requests=2),))


class Requests(Gated):
    def test_a_request_that_fits_passes_and_gives_back_what_it_held(self):
        async def work(app, engine):
            status, _, body, _ = await call(app, "/v1/completions", ask(20, 8))
            self.assertEqual((status, json.loads(body)["usage"]["completion_tokens"]), (200, 8))
            state = app.ledger.read()
            self.assertEqual((state.admitted, state.finished, state.capacity_units), (1, 1, 100))
            self.assertEqual(app.ledger.config().max_length, 2048)
        self.inside(work)

    def test_a_stream_is_passed_on_piece_by_piece_and_unchanged(self):
        async def work(app, engine):
            plain = await call(engine, "/v1/completions", ask(5, 40, stream=True))
            gated = await call(app, "/v1/completions", ask(5, 40, stream=True))
            self.assertEqual(gated, plain)
            self.assertEqual(gated[3], 42)
        self.inside(work)

    def test_what_can_never_fit_is_refused_for_ever(self):
        async def work(app, engine):
            status, headers, body, _ = await call(app, "/v1/completions", {"model": "m", "prompt": [5] * 3000, "max_tokens": 5})
            self.assertEqual(status, 400)
            error = json.loads(body)["error"]
            self.assertEqual((error["code"], error["type"], error["param"]), ("context_length_exceeded", "invalid_request_error", None))
            self.assertEqual(headers["x-should-retry"], "false")
            self.assertNotIn("retry-after", headers)
            status, _, body, _ = await call(app, "/v1/completions", {"prompt": [5] * 1900, "max_tokens": 5, "n": 1})
            self.assertEqual((status, json.loads(body)["error"]["code"]), (400, "request_too_large"))  # 119 of 100 blocks
            self.assertEqual([p for p, _ in engine.seen if p == "/v1/completions"], [])
        self.inside(work)

    def test_nobody_is_refused_for_ever_by_a_guess(self):
        text = "internationalisation " * 300  # 300 tokens of the engine; 6,300 bytes, which look like 2,520
        engine = Engine(blocks=200)

        async def work(app, engine):
            app._rate.seen = 1000  # nothing is counted any more
            self.assertGreater(app._rate.tokens(bodies.Asked(text_bytes=len(text))), engine.max_length)
            self.assertEqual((await call(app, "/v1/completions", {"prompt": "a", "max_tokens": 4}))[0], 200)
            self.assertEqual((await call(app, "/v1/completions", {"prompt": text, "max_tokens": 4}))[0], 200)
            self.assertEqual([p for p, _ in engine.seen].count("/tokenize"), 1)
            app._rate = bodies.TokenRate()
            app._rate.seen = 1000
            batch = {"prompt": [text, text], "max_tokens": 4}  # which /tokenize does not count: the server judges it
            self.assertNotEqual((await call(app, "/v1/completions", batch))[0], 400)
            status, headers, _, _ = await call(app, "/v1/completions", {"prompt": "x" * 16 * 2048, "max_tokens": 4})
            self.assertEqual((status, headers["x-plimsoll-reason"]), (400, "too_long"))  # by any tokenizer
            self.assertEqual([p for p, _ in engine.seen].count("/tokenize"), 1)
        self.inside(work, engine)

    def test_each_prompt_of_a_batch_is_reserved(self):
        held = []

        async def work(app, engine):
            generate = engine._generate

            async def look(*arguments):
                held.append(app.ledger.read().held_units)
                return await generate(*arguments)
            engine._generate = look
            for prompt in ([5] * 150, [[5] * 150] * 6):  # in ten blocks each, the answer with it
                await call(app, "/v1/completions", {"prompt": prompt, "max_tokens": 4})
            for prompt in ([[5] * 2048, [5]], ["x" * 16 * 2048, "x"]):  # the server would refuse all for the one
                status, headers, _, _ = await call(app, "/v1/completions", {"prompt": prompt, "max_tokens": 4})
                self.assertEqual((status, headers["x-plimsoll-reason"]), (400, "too_long"))
        self.inside(work)
        self.assertEqual(held, [10, 60])

    def test_a_prompt_that_the_server_cuts_counts_as_what_is_left_of_it(self):
        async def work(app, engine):
            await call(app, "/v1/completions", ask(5, 5))
            ten, most = {"truncate_prompt_tokens": 10}, {"truncate_prompt_tokens": -1}  # most: what fits, here into the pool
            for prompt, more, tokens, longest in (([5] * 5000, ten, 10, 0), ([5] * 5, ten, 6, 0), ([[5] * 5000, [5]], ten, 10, 10),
                                                  ([5] * 5000, most, 1599, 0), ([5] * 5000, {"truncate_prompt_tokens": "x"}, 5001, 0)):
                asked = bodies.read_request(json.dumps({"prompt": prompt, **more}).encode())
                request = await app._price(app.ledger, {"path": "/v1/completions", "headers": []}, b"{}", asked)
                self.assertEqual((request.prompt_tokens, request.longest_tokens), (tokens, longest), more)
        self.inside(work)

    def test_a_full_engine_answers_429_with_retry_after_and_recovers(self):
        async def work(app, engine):
            answers = await asyncio.gather(*(call(app, "/v1/completions", ask(100, 300, stream=True)) for _ in range(40)))
            refused = [a for a in answers if a[0] == 429]
            self.assertEqual(len(refused) + sum(a[0] == 200 for a in answers), 40)
            self.assertGreater(len(refused), 20)
            for _, headers, body, _ in refused:
                self.assertTrue(1 <= int(headers["retry-after"]) <= 60)
                self.assertTrue(1000 <= int(headers["retry-after-ms"]) <= 60000)
                self.assertEqual(json.loads(body)["error"]["type"], "rate_limit_exceeded")
            self.assertEqual(engine.preemptions, 0)
            self.assertEqual((await call(app, "/v1/completions", ask(10, 5)))[0], 200)
        self.inside(work, policy="conservative")

    def test_requests_wait_for_room_when_that_is_chosen(self):
        async def work(app, engine):
            answers = await asyncio.gather(*(call(app, "/v1/completions", ask(100, 100)) for _ in range(30)))
            self.assertEqual([a[0] for a in answers], [200] * 30)
            self.assertLessEqual(engine.most_running, 8)
            self.assertEqual(engine.preemptions, 0)
        self.inside(work, policy="conservative", wait=600.0, queue=64)

    def test_who_waits_too_long_is_told_to_come_again_and_who_leaves_loses_the_place(self):
        async def work(app, engine):
            long = asyncio.ensure_future(call(app, "/v1/completions", ask(100, 1200)))
            await until(lambda: app.ledger is not None and app.ledger.read().live)
            status, headers, _, _ = await call(app, "/v1/completions", ask(100, 1100))
            self.assertEqual((status, "retry-after" in headers), (429, True))
            self.assertEqual(app.ledger.read().waiting, 0)
            long.cancel()
            await asyncio.gather(long, return_exceptions=True)
        self.inside(work, policy="conservative", wait=0.3)

    def test_clients_that_leave_in_the_middle_hold_nothing(self):
        async def work(app, engine):
            await asyncio.gather(*(call(app, "/v1/completions", ask(20, 500, stream=True), leave_after=i % 9 + 1) for i in range(8)))
            self.assertEqual(app.ledger.read().cancelled, 8)
            self.assertEqual(engine.used(), 0)
        self.inside(work, engine=Engine(blocks=1000))

    def test_tasks_that_are_cancelled_hold_nothing(self):
        async def work(app, engine):
            tasks = [asyncio.ensure_future(call(app, "/v1/completions", ask(20, 1000))) for _ in range(5)]
            await until(lambda: app.ledger is not None and app.ledger.read().live)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.inside(work)

    def test_the_server_itself_answers_bodies_that_make_no_sense(self):
        async def work(app, engine):
            engine.fail_with = (400, b"{}")
            for body in (b"", b"{", b"[1]"):
                self.assertEqual((await call(app, "/v1/completions", body))[0], 400)
            self.assertEqual([n for p, n in engine.seen if p == "/v1/completions"], [0, 1, 3])
        self.inside(work)

    def test_bodies_of_a_hundred_megabytes_are_refused_before_they_are_read(self):
        async def work(app, engine):
            status, _, body, _ = await call(app, "/v1/completions", b"x", headers=[(b"content-length", b"104857600")])
            self.assertEqual((status, json.loads(body)["error"]["code"]), (413, "request_too_large"))
            status, *_ = await call(app, "/v1/completions", pieces=[b"x" * 65536] * 32)  # without a length
            self.assertEqual(status, 413)
            big = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "A" * 900000}},
                                                             {"type": "text", "text": "what is it?"}]}], "max_tokens": 4}
            self.assertEqual((await call(app, "/v1/chat/completions", big))[0], 500)  # the engine has no such messages
        self.inside(lambda app, engine: work(app, engine), engine=Failing(), body=1 << 20)

    def test_other_paths_and_methods_pass_untouched(self):
        async def work(app, engine):
            self.assertEqual((await call(app, "/v1/models", method="GET"))[0], 200)
            self.assertEqual((await call(app, "/nothing", b"raw"))[0], 404)
            self.assertEqual(app.flights, {})
        self.inside(work)

    def test_the_ledger_is_there_before_the_first_request_for_tokens(self):
        """Readiness is asked of the ledger: who waits for it lets no request through that would make it."""
        async def opened(app):
            while app._early is not None:
                await asyncio.sleep(0.001)
            return app.ledger is not None

        async def probed(app, engine):
            self.assertEqual((await call(app, "/metrics", method="GET"))[0], 200)
            self.assertTrue(await opened(app))
            self.assertEqual(app.ledger.config().max_length, engine.max_length)
        self.inside(probed)

        async def with_key(app, engine):
            plain = engine._plain

            async def guarded(send, status, body):  # as vLLM with --api-key: nobody is told the length without it
                await plain(send, *((401, b"{}") if b"max_model_len" in body else (status, body)))
            engine._plain = guarded
            await call(app, "/metrics", method="GET")
            self.assertFalse(await opened(app))
            engine._plain = plain
            self.assertEqual((await call(app, "/v1/completions", ask(5, 5)))[0], 200)
            self.assertEqual(app.ledger.config().max_length, engine.max_length)
        self.ledger += "x"
        self.inside(with_key)

    def configured(self, length=1024, step=512, blocks=51):
        """What vLLM keeps in its application's state."""
        make = types.SimpleNamespace
        return make(vllm_config=make(model_config=make(max_model_len=length, model="m"), cache_config=make(block_size=16, num_gpu_blocks=blocks),
                                     scheduler_config=make(max_num_scheduled_tokens=None, max_num_batched_tokens=step)))

    def test_a_server_that_wants_a_key_is_known_from_its_first_health_check(self):
        """What the engine was told is read where the server keeps it: no key is needed, and none gets about."""
        key = "sesame-0123456789"

        async def work(app, engine):
            app.state, plain = self.configured(), app.app

            async def guarded(scope, receive, send):
                if scope["path"].startswith("/v1/") and (b"authorization", b"Bearer " + key.encode()) not in scope["headers"]:
                    await engine._plain(send, 401, b"{}")
                else:
                    await plain(scope, receive, send)
            app.app = guarded
            await call(app, "/health", method="GET")
            await until(lambda: app.ledger is not None)
            got = app.ledger.config()
            self.assertEqual((got.max_length, got.step_tokens, got.capacity_units, got.groups[0].block_tokens), (1024, 512, 50, 16))
            self.assertNotIn("/v1/models", [path for path, _ in engine.seen])
            self.assertEqual((await call(app, "/v1/completions", ask(5, 5)))[0], 401)  # the server's own word
            headers = [(b"authorization", b"Bearer " + key.encode())]
            self.assertEqual((await call(app, "/v1/completions", ask(5, 5), headers=headers))[0], 200)
            told = await call(app, "/state", method="GET")
            self.assertEqual(told[0], 200)
            self.assertNotIn(key, told[2].decode())
        with self.assertLogs("plimsoll.gate") as logs:
            self.inside(work, status="/state")
        self.assertNotIn(key, "".join(logs.output))
        self.assertNotIn(key.encode(), pathlib.Path(self.ledger).read_bytes())

    def test_what_is_chosen_comes_before_what_the_server_keeps(self):
        async def work(app, engine):
            app.state = self.configured()
            self.assertEqual((await call(app, "/v1/completions", ask(5, 5)))[0], 200)
            got = app.ledger.config()
            self.assertEqual((got.max_length, got.step_tokens, got.capacity_units, got.groups[0].block_tokens), (700, 64, 10, 32))
        self.inside(work, max_length=700, step_tokens=64, capacity_tokens=320, block_tokens=32)

    def test_a_configuration_of_any_other_kind_is_as_good_as_none(self):
        class Raises:
            def __getattr__(self, name):
                raise RuntimeError(name)

        odd = types.SimpleNamespace
        for state in (None, 5, Raises(), odd(vllm_config=None), odd(vllm_config=Raises()), unittest.mock.MagicMock(), self.configured("1024", True, 2.5),
                      self.configured(-1, 1 << 40, None), odd(vllm_config={"model_config": {"max_model_len": 5}})):
            got = engines.read_config(None, {"app": odd(state=state)})
            self.assertEqual((got.length, got.step, got.cache.blocks, got.cache.tokens), (0, 0, 0, 0), state)
        self.assertEqual(engines.read_config(None, {}), engines.Config())
        whole = odd(state=self.configured(), server_args=odd(chunked_prefill_size=64))  # the gate wraps all of the server
        self.assertEqual(engines.read_config(whole, {}), engines.Config(1024, 512, "m", engines.Cache(16, 51), True))
        self.assertEqual(engines.read_config(whole, {"app": odd()}), engines.Config())
        self.assertEqual(engines.read_config(odd(server_args=odd(chunked_prefill_size=64)), {}), engines.Config(step=64))  # SGLang

        async def work(app, engine):
            app.state = Raises()
            self.assertEqual((await call(app, "/v1/completions", ask(5, 5)))[0], 200)
            self.assertEqual((app.ledger.config().max_length, app.ledger.config().capacity_units), (engine.max_length, engine.blocks))
        self.inside(work)

    def test_wrong_token_counts_do_not_starve_or_flood(self):
        async def work(app, engine):
            answers = await asyncio.gather(*(call(app, "/v1/completions", ask(60, 60)) for _ in range(12)))
            self.assertGreaterEqual(sum(a[0] == 200 for a in answers), 3)
            self.assertLess(engine.preemptions, 12)
        for words_per_token in (1 / 3, 3.0):
            with self.subTest(words_per_token=words_per_token):
                self.ledger += "x"
                self.inside(work, engine=Engine(words_per_token=words_per_token))

    def test_prompts_can_be_counted_by_the_engine(self):
        async def work(app, engine):
            await call(app, "/v1/completions", ask(50, 4))
            self.assertEqual([p for p, _ in engine.seen].count("/tokenize"), 1)
            self.assertEqual(app.ledger.config().max_length, engine.max_length)
        self.inside(work, count="tokenize")

    def test_a_server_that_does_not_count_is_not_asked_for_ever(self):
        async def work(app, engine):
            plain, asked = app.app, []

            async def silent(scope, receive, send):  # no /tokenize, and no word of what was used
                if scope["method"] == "GET":
                    await plain(scope, receive, send)
                    return
                asked.append(scope["path"])
                await engine._plain(send, 404 if scope["path"] == "/tokenize" else 200, b"{}")
            app.app = silent
            for _ in range(100):
                self.assertEqual((await call(app, "/v1/completions", ask(50, 4)))[0], 200)
            self.assertEqual(asked.count("/v1/completions"), 100)
            self.assertTrue(16 <= asked.count("/tokenize") < 100)
        self.inside(work)

    def test_running_out_of_memory_is_learned_and_trips_the_breaker(self):
        async def work(app, engine):
            await call(app, "/v1/completions", ask(5, 5))
            engine.fail_with = (500, b'{"error": {"message": "CUDA out of memory. Tried to allocate 2.00 GiB"}}')
            for _ in range(3):
                self.assertEqual((await call(app, "/v1/completions", ask(5, 5)))[0], 500)
            status, headers, body, _ = await call(app, "/v1/completions", ask(5, 5))
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "service_unavailable"))
            self.assertEqual(headers["connection"], "close")
            self.assertEqual(app.ledger.read().ooms, 3)
        with self.assertLogs("plimsoll.gate", "WARNING") as said:  # what servers show of it
            self.inside(work)
        self.assertRegex(said.output[0], f"plimsoll gate: ledger {self.ledger}: 100 blocks of 16 tokens, requests of at most 2048 tokens")
        self.assertEqual(sum("plimsoll gate: the server ran out of memory on a request: " in line for line in said.output), 3)

    def test_an_engine_that_tells_nothing_is_open_or_closed_by_choice(self):
        async def mute(scope, receive, send):
            await receive()
            await send({"type": "http.response.start", "status": 404 if scope["method"] == "GET" else 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async def work(app, engine):
            return (await call(app, "/v1/completions", ask()))[0], app.unjudged

        async def configured(app, engine):  # vLLM with --disable-log-stats
            app.state = self.configured()
            got = await work(app, engine)
            self.assertEqual((app.ledger.config().capacity_units, app.ledger.config().max_length), (50, 1024))
            return got

        self.assertEqual(self.inside(configured, engine=mute), (200, 0))
        self.ledger += "x"
        self.assertEqual(self.inside(work, engine=mute), (200, 1))
        self.assertEqual(self.inside(work, engine=mute, fail="closed"), (503, 1))
        self.assertEqual(self.inside(work, engine=mute, capacity_tokens=10000), (200, 0))

    def test_answers_in_one_piece_keep_their_lease(self):
        async def work(app, engine):
            slow = asyncio.ensure_future(call(app, "/v1/completions", ask(10, 400)))
            self.assertEqual((await slow)[0], 200)  # four leases later
            self.assertEqual((app.ledger.read().finished, app.ledger.read().expired), (1, 0))
        self.inside(work, engine=Engine(token_s=0.005), lease=0.5)

    def test_slow_readers_keep_what_they_hold_and_stop_nobody(self):
        async def work(app, engine):
            go_on = asyncio.Event()
            slow = [asyncio.ensure_future(call(app, "/v1/completions", ask(10, 60, stream=True), taken=go_on)) for _ in range(4)]
            await until(lambda: app.ledger is not None and app.ledger.read().live == 4)
            quick = await asyncio.gather(*(call(app, "/v1/completions", ask(10, 20, stream=True)) for _ in range(8)))
            self.assertEqual({a[0] for a in quick}, {200})
            await asyncio.sleep(1.5)  # three leases
            self.assertEqual(app.ledger.read().live, 4)
            go_on.set()
            await asyncio.gather(*slow)
            self.assertEqual((app.ledger.read().expired, app.ledger.read().finished), (0, 12))
        self.inside(work, engine=Engine(blocks=1001), lease=0.5)

    def test_what_cannot_be_given_back_at_once_is_given_back_later(self):
        async def work(app, engine):
            await call(app, "/v1/completions", ask(5, 5))
            release = app.ledger.release

            def locked(*_):
                app.ledger.release = release
                return ledgers.BUSY

            app.ledger.release = locked  # as when another process stands still in the ledger
            self.assertEqual((await call(app, "/v1/completions", ask(5, 5)))[0], 200)
            self.assertEqual(app.ledger.read().live, 1)
            await until(lambda: app.ledger.read().live == 0)
            self.assertEqual((app.ledger.read().finished, app.ledger.read().expired), (2, 0))
        self.inside(work)

    def test_ten_thousand_streams_at_once_leave_nothing_behind(self):
        async def work(app, engine):
            answers = await asyncio.gather(*(call(app, "/v1/completions", ask(3, 3, stream=True)) for _ in range(10_000)))
            self.assertEqual({a[0] for a in answers}, {200})
            self.assertEqual(app.ledger.read().admitted, 10_000)
        self.inside(work, engine=Engine(blocks=200_000, token_s=0.05))


class Failing(Engine):
    async def _generate(self, data, receive, send):
        await self._plain(send, 500, b'{"error": {"message": "no"}}')


def hold(path, library, ready):
    """A process with reservations, for killing."""
    os.environ["PLIMSOLL_GATE_LIBRARY"] = library
    app = Middleware(Engine(token_s=10), GateSettings(ledger=path))

    async def run():
        tasks = [asyncio.ensure_future(call(app, "/v1/completions", ask(20, 100))) for _ in range(4)]
        await until(lambda: app.ledger is not None and state_of(app.ledger).live == 4)
        ready.set()
        await asyncio.gather(*tasks)
    asyncio.run(run())


class Processes(Gated):
    def test_a_killed_server_process_loses_its_reservations_and_the_others_go_on(self):
        context = multiprocessing.get_context("spawn")

        async def work(app, engine):
            self.assertEqual((await call(app, "/v1/completions", ask(5, 3)))[0], 200)
            for _ in range(5):
                ready = context.Event()
                child = context.Process(target=hold, args=(self.ledger, os.environ["PLIMSOLL_GATE_LIBRARY"], ready), daemon=True)
                child.start()
                self.assertTrue(await asyncio.to_thread(ready.wait, plimtest.PATIENCE))
                self.assertEqual(state_of(app.ledger).live, 4)
                os.kill(child.pid, signal.SIGKILL)
                await asyncio.to_thread(child.join)
                await until(lambda: app.ledger.read().live == 0)  # the keeper's next tick returns them
            self.assertEqual(app.ledger.read().reclaimed, 20)
            self.assertEqual((await call(app, "/v1/completions", ask(5, 3)))[0], 200)
        self.inside(work)

    def test_the_end_of_a_server_returns_what_it_held(self):
        async def run():
            app = Middleware(Engine(token_s=10), self.settings())
            task = asyncio.ensure_future(call(app, "/v1/completions", ask(20, 100)))
            await until(lambda: app.ledger is not None and app.ledger.read().live)
            app.close()
            watcher = ledgers.Ledger(self.ledger, None)
            self.assertEqual((watcher.read().admitted, watcher.read().live), (1, 0))
            watcher.close()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        asyncio.run(run())


if __name__ == "__main__":
    plimtest.main()
