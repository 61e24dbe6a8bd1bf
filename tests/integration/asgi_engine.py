# SPDX-License-Identifier: Apache-2.0
"""An ASGI application that behaves like an inference server with a paged KV cache, and a client for it in one process.

The engine has `blocks` blocks of 16 tokens and gives every running request one token each `token_s` seconds. A request
that finds no block free is preempted: its blocks are freed and it begins again when there is room (counted). Nothing
is refused: that is the gate's work. As those of web frameworks do, handlers find what belongs to the server through the
scope's "app", and fail without it.
"""

import asyncio
import json

BLOCK = 16


class Engine:
    def __init__(self, blocks=100, token_s=0.001, max_length=2048, words_per_token=1.0):
        self.blocks, self.token_s, self.max_length = blocks, token_s, max_length
        self.words_per_token = words_per_token
        self.held, self.preemptions, self.running, self.generated, self.served = {}, 0, 0, 0, 0
        self.most_running = 0
        self.seen = []  # (path, bytes of the body) of every request that came through
        self.fail_with = None  # (status, body) for every generation

    def used(self):
        return sum(self.held.values())

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["path"]
        self.seen.append((path, len(body)))
        assert path not in ("/v1/models", "/tokenize") or scope["app"] is not None
        if path == "/metrics":
            await self._plain(send, 200, self.metrics().encode())
        elif path == "/v1/models":
            await self._plain(send, 200, json.dumps({"data": [{"id": "m", "max_model_len": self.max_length}]}).encode())
        elif path == "/tokenize":
            await self._plain(send, 200, json.dumps({"count": self.tokens(json.loads(body))}).encode())
        elif self.fail_with:
            await self._plain(send, *self.fail_with)
        elif path in ("/v1/completions", "/v1/chat/completions"):
            await self._generate(json.loads(body), receive, send)
        else:
            await self._plain(send, 404, b"{}")

    def metrics(self):
        label = '{engine="0",model_name="m"}'
        return (f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{label} {self.used() / self.blocks}\n"
                f"vllm:num_preemptions_total{label} {self.preemptions}\nvllm:num_requests_running{label} {self.running}\n"
                f"vllm:generation_tokens_total{label} {self.generated}\n"
                f'vllm:cache_config_info{{block_size="{BLOCK}",engine="0",num_gpu_blocks="{self.blocks + 1}"}} 1\n')

    def tokens(self, data):
        text = data.get("prompt") or " ".join(m["content"] for m in data.get("messages", ()))
        return len(text) if isinstance(text, list) else int(len(text.split()) / self.words_per_token)

    async def _plain(self, send, status, body):
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    async def _room(self, key, tokens):
        """Hold the blocks for so many tokens; False: there are not enough, and what was held is given back."""
        need = -(-tokens // BLOCK)
        if self.used() - self.held.get(key, 0) + need > self.blocks:
            self.held.pop(key, None)
            return False
        self.held[key] = need
        return True

    async def _generate(self, data, receive, send):
        key, prompt = object(), self.tokens(data)
        length = min(data.get("really", data.get("max_tokens", 16)), data.get("max_tokens", 16), self.max_length - prompt)
        gone = asyncio.ensure_future(receive())
        stream, done = data.get("stream", False), 0
        try:
            while not await self._room(key, prompt):
                await asyncio.sleep(self.token_s)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            if stream:
                await send({"type": "http.response.start", "status": 200,
                            "headers": [(b"content-type", b"text/event-stream; charset=utf-8")]})
            while done < length:
                await asyncio.sleep(self.token_s)
                if gone.done():
                    return
                if not await self._room(key, prompt + done + 1):
                    self.preemptions += 1
                    while not await self._room(key, prompt + done + 1):
                        await asyncio.sleep(self.token_s)
                done += 1
                self.generated += 1
                if stream:
                    await send({"type": "http.response.body", "more_body": True,
                                "body": b'data: {"choices":[{"text":"x","finish_reason":null}]}\n\n'})
            finish = "length" if done == data.get("max_tokens", 16) else "stop"
            usage = {"prompt_tokens": prompt, "completion_tokens": done}
            answer = {"choices": [{"text": "x " * done, "finish_reason": finish}], "usage": usage}
            self.served += 1
            if stream:
                await send({"type": "http.response.body", "more_body": True, "body": b"data: " + json.dumps(answer).encode() + b"\n\n"})
                await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
            else:
                await self._plain(send, 200, json.dumps(answer).encode())
        finally:
            self.held.pop(key, None)
            self.running -= done > 0 or self.running > 0
            gone.cancel()


async def call(app, path, body=None, method="POST", headers=(), pieces=None, leave_after=None, taken=None):
    """One request. leave_after: disconnect after so many pieces of the answer. taken: an event before which nothing of the answer is taken in.
    Returns (status, headers, body, pieces)."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    parts = list(pieces) if pieces is not None else [data]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
             "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
             "headers": [(b"content-type", b"application/json"), *headers], "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8000), "app": app}
    got, left = [], asyncio.Event()

    async def receive():
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if taken is not None:
            await taken.wait()
        got.append(message)
        if leave_after is not None and len(got) > leave_after:
            left.set()

    await app(scope, receive, send)
    if not got:
        return 0, {}, b"", 0
    bodies = [m.get("body", b"") for m in got[1:]]
    return got[0]["status"], {k.decode(): v.decode() for k, v in got[0]["headers"]}, b"".join(bodies), len(bodies)
