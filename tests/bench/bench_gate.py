#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the gate's middleware adds to a request and to a piece of a stream, in one process and one run.

    python3 tests/bench/bench_gate.py [BUILD]

Peers: the application alone, and a middleware that does nothing but pass receive and send on (the least that any ASGI
middleware which watches answers can cost). Requests of the three are sent in turn.
"""

import asyncio
import json
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build")
os.environ["PLIMSOLL_GATE_LIBRARY"] = str(BUILD / "runtime" / "gate" / "libplimsoll_gate.so")
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "integration")]
from asgi_engine import call  # noqa: E402
from plimsoll.gate import GateSettings, Middleware  # noqa: E402

PIECES = 200


async def application(scope, receive, send):
    """An engine that takes no time: answers with 200 pieces."""
    while (await receive()).get("more_body"):
        pass
    if scope["method"] == "GET":
        body = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100000"} 1\nvllm:kv_cache_usage_perc 0.1\n'
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for i in range(PIECES):
        await send({"type": "http.response.body", "body": b'data: {"choices":[{"text":"word"}]}\n\n',
                    "more_body": i + 1 < PIECES})


class PassOn:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def pass_on(message):
            await send(message)
        await self.app(scope, receive, pass_on)


async def timed(app, body):
    """Seconds until the first byte, and for each piece behind it."""
    began = time.perf_counter()
    marks = []

    async def inner(scope, receive, send):
        async def mark(message):
            if not marks or message["type"] == "http.response.start":
                marks.append(time.perf_counter())
            await send(message)
        await app(scope, receive, mark)

    await call(inner, "/v1/completions", body)
    ended = time.perf_counter()
    return marks[0] - began, (ended - marks[0]) / PIECES


def at(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1e6


async def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        gated = Middleware(application, GateSettings(ledger=os.path.join(folder, "ledger")))
        apps = {"application": application, "pass-on": PassOn(application), "gate": gated}
        body = json.dumps({"model": "m", "prompt": "word " * 800, "max_tokens": 300, "stream": True}).encode()
        first, piece = {name: [] for name in apps}, {name: [] for name in apps}
        for i in range(3000):
            for name, app in apps.items():
                a, b = await timed(app, body)
                if i >= 50:
                    first[name].append(a)
                    piece[name].append(b)
        gated.close()
    print(f"{'':14}{'first byte p50':>16}{'p99':>9}{'piece p50':>12}{'p99':>9}   (us, 4 kB prompts)")
    for name in apps:
        print(f"{name:14}{at(first[name], .5):16.1f}{at(first[name], .99):9.1f}{at(piece[name], .5):12.2f}"
              f"{at(piece[name], .99):9.2f}")
    print(f"the gate adds {at(first['gate'], .5) - at(first['application'], .5):.0f} us to a request (p99 of the gate less "
          f"p50 alone: {at(first['gate'], .99) - at(first['application'], .5):.0f} us), and to a piece "
          f"{at(piece['gate'], .5) / at(piece['pass-on'], .5):.2f} times what passing on alone costs")


asyncio.run(main())
