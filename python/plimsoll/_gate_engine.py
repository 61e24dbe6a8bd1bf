# SPDX-License-Identifier: Apache-2.0
"""What a front door asks the server that it stands in front of, without a network: by calling the ASGI application.

Names of metrics: vLLM v1/metrics/loggers.py (0.6 to 0.33), SGLang srt/metrics/collector.py (0.4 to 0.5).
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from typing import Any, Awaitable, Callable, Dict, List, MutableMapping, Optional, Tuple

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = List[Tuple[bytes, bytes]]

# Figure to the names that engines have for it.
NAMES = {
    "usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    "preempted": ("vllm:num_preemptions_total", "vllm:num_preemptions", "sglang:num_retracted_requests_total"),
    "capacity": ("sglang:max_total_num_tokens",),
}
_HOME = {name.encode(): figure for figure, names in NAMES.items() for name in names}
_LINE = re.compile(rb"^(" + b"|".join(map(re.escape, sorted(_HOME, key=len, reverse=True)))
                   + rb")(?:\{[^\n]*\})? ([0-9.eE+-]{1,40})(?: \d+)?$", re.MULTILINE)
_CACHE = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\} ", re.MULTILINE)
_LABEL = re.compile(rb'(\w+)="([^"\\]*)"')


@dataclasses.dataclass
class Page:
    """An engine's metrics. None: not told. Ranks of one server are summed, their usage is averaged."""

    usage: Optional[float] = None
    preempted: Optional[float] = None
    capacity_tokens: int = 0
    block_tokens: int = 0
    profiles: bool = False  # it ran its largest step before it took the memory for its cache


def read_page(body: bytes) -> Page:
    found: Dict[str, List[float]] = {}
    for name, value in _LINE.findall(body):
        try:
            found.setdefault(_HOME[name], []).append(float(value))
        except ValueError:
            continue
    page = Page()
    if "preempted" in found:
        page.preempted = sum(found["preempted"])
    if found.get("usage"):
        page.usage = min(1.0, max(0.0, sum(found["usage"]) / len(found["usage"])))
    page.capacity_tokens = int(sum(found.get("capacity", ())))
    page.profiles = b"vllm:" in body
    for labels in _CACHE.findall(body):
        facts = dict(_LABEL.findall(labels))
        block, blocks = facts.get(b"block_size", b""), facts.get(b"num_gpu_blocks", b"")
        if block.isdigit() and blocks.isdigit() and int(block) > 0:
            page.block_tokens = int(block)
            page.capacity_tokens += int(block) * max(0, int(blocks) - 1)  # one block is vLLM's own
    return page


def of_server(scope: Scope) -> Scope:
    """What later questions need of a request's scope. Frameworks put the outer application into it ("app"), where
    their own handlers find what belongs to the server."""
    return {key: scope[key] for key in ("scheme", "server", "app", "state") if key in scope}


async def ask(app: App, like: Scope, method: str, path: str, body: bytes = b"", headers: Optional[Headers] = None,
              timeout: float = 5.0) -> Tuple[int, bytes]:
    """Ask the application itself. like: a scope with what belongs to the server. Returns (status, body); status 0:
    it did not answer within the time, or answered with an error of its own."""
    scope: Dict[str, Any] = {
        "scheme": "http", "server": None, "state": {}, **of_server(like),
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 0),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()), *(headers or [])]}
    status, pieces, gone = 0, [], asyncio.Event()
    told = False

    async def receive() -> Message:
        nonlocal told
        if not told:
            told = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            pieces.append(message.get("body", b""))

    try:
        await asyncio.wait_for(app(scope, receive, send), timeout)
    except Exception:  # an application may raise anything; the caller learns that there is no answer
        return 0, b""
    finally:
        gone.set()
    return status, b"".join(pieces)


async def _models(app: App, like: Scope, headers: Headers) -> List[Dict[str, Any]]:
    """What /v1/models lists. headers: the client's own key."""
    status, body = await ask(app, like, "GET", "/v1/models", headers=headers)
    try:
        data = json.loads(body)["data"] if status == 200 else []
        return [model for model in data if isinstance(model, dict)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


async def ask_length(app: App, like: Scope, headers: Headers) -> int:
    """Most tokens of one request by /v1/models, 0: not told."""
    lengths = [model.get("max_model_len") for model in await _models(app, like, headers)]
    return max((n for n in lengths if isinstance(n, int) and n > 0), default=0)


async def ask_model(app: App, like: Scope, headers: Headers) -> str:
    """Folder or name of the model by /v1/models, "": not told."""
    names = [model.get("root") or model.get("id") for model in await _models(app, like, headers)]
    return next((name for name in names if isinstance(name, str)), "")


async def ask_tokens(app: App, like: Scope, body: bytes, headers: Headers) -> int:
    """Tokens of a request's prompt by the engine's /tokenize, 0: it does not say."""
    try:
        data = json.loads(body)
        keys = ("model", "prompt", "messages", "tools", "chat_template_kwargs")
        wanted = {key: data[key] for key in keys if key in data}
    except (ValueError, TypeError, RecursionError):
        return 0
    if not isinstance(wanted.get("prompt", ""), str) or data.get("system"):  # which /tokenize does not know
        return 0
    status, answer = await ask(app, like, "POST", "/tokenize", json.dumps(wanted).encode(), headers)
    try:
        return max(0, int(json.loads(answer)["count"])) if status == 200 else 0
    except (ValueError, TypeError, KeyError):
        return 0
