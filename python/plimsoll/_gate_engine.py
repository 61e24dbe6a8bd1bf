# SPDX-License-Identifier: Apache-2.0
"""What a front door learns of the server that it stands in front of, without a network: from the engine's
configuration, where the server keeps it with its application, and by calling the ASGI application.

Names of metrics: vLLM v1/metrics/loggers.py (0.6 to 0.33), SGLang srt/metrics/collector.py (0.4 to 0.5). Of
configurations: vLLM 0.33.0 entrypoints/launchers/api_server/app_state.py init_app_state and config/, SGLang
srt/entrypoints/http_server.py (`app.server_args`).
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
    "length": ("sglang:context_len",),
}
_HOME = {name.encode(): figure for figure, names in NAMES.items() for name in names}
_LINE = re.compile(rb"^(" + b"|".join(map(re.escape, sorted(_HOME, key=len, reverse=True)))
                   + rb")(?:\{[^\n]*\})? ([0-9.eE+-]{1,40})(?: \d+)?$", re.MULTILINE)
_CACHE = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\} ", re.MULTILINE)
_WHOLE = re.compile(rb"[0-9]{1,12}")
_LABEL = re.compile(rb'(\w+)="([^"\\]*)"')


@dataclasses.dataclass
class Cache:
    """A KV cache as vLLM tells of it; 0: not told."""

    block: int = 0  # tokens of a block
    blocks: int = 0  # of all ranks together (v1/engine/core_client.py)
    tokens: int = 0  # of each rank: what requests of the greatest length can have
    ranks: int = 1

    def capacity(self, length: int) -> int:
        """Tokens that requests can have; each rank keeps a block for itself (block_pool.py). length: of the longest
        request, 0: not known. Where layers are of several kinds a request takes several blocks at once: then requests
        of the greatest length can have less than all blocks by more than is left over in the last block of each."""
        if not self.block:
            return 0
        whole = self.block * self.blocks
        known = self.tokens * self.ranks
        if known and (not whole or whole * length > (known + self.ranks) * (length + self.block)):
            whole = known
        return max(0, whole - self.block * self.ranks)


@dataclasses.dataclass
class Page:
    """An engine's metrics. None: not told. Ranks of one server are summed, their usage is averaged."""

    usage: Optional[float] = None
    preempted: Optional[float] = None
    capacity_tokens: int = 0  # that it tells as such
    length: int = 0  # of the longest request
    cache: Cache = dataclasses.field(default_factory=Cache)
    profiles: bool = False  # it ran its largest step before it took the memory for its cache


def read_page(body: bytes) -> Page:
    found: Dict[str, List[float]] = {}
    for name, value in _LINE.findall(body):
        try:
            number = float(value)
        except ValueError:
            continue
        if number < 1e15:
            found.setdefault(_HOME[name], []).append(number)
    page = Page()
    if "preempted" in found:
        page.preempted = sum(found["preempted"])
    if found.get("usage"):
        page.usage = min(1.0, max(0.0, sum(found["usage"]) / len(found["usage"])))
    page.capacity_tokens = int(sum(found.get("capacity", ())))
    page.length = int(max(found.get("length", (0,))))
    page.profiles = b"vllm:" in body
    lines = [dict(_LABEL.findall(labels)) for labels in _CACHE.findall(body)]
    if lines:  # one for each rank, and all say the same
        block, blocks, tokens = (max(int(line[name]) if _WHOLE.fullmatch(line.get(name, b"")) else 0 for line in lines)
                                 for name in (b"block_size", b"num_gpu_blocks", b"kv_cache_size_tokens"))
        page.cache = Cache(block, blocks, tokens, len(lines))
    return page


@dataclasses.dataclass
class Config:
    """An engine's configuration as far as the server keeps it in this process; 0 and "": it does not."""

    length: int = 0  # tokens of the longest request
    step: int = 0  # prompt tokens of a step at most
    model: str = ""  # folder or name
    cache: Cache = dataclasses.field(default_factory=Cache)
    profiles: bool = False  # as of a Page


def _at(root: Any, *names: str) -> Any:
    """An attribute of an attribute; None where there is none, or something goes wrong in getting it."""
    try:
        for name in names:
            root = getattr(root, name, None)
    except Exception:  # properties of other people's objects may raise anything
        return None
    return root


def _number(root: Any, *names: str) -> int:
    value = _at(root, *names)
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31
    return value if good else 0


def read_config(inner: App, scope: Scope) -> Config:
    """What the server's application keeps of its engine's configuration: the one of a request's scope, else `inner`,
    which a gate around the whole server calls. Nobody is asked, so that no key is needed."""
    app = scope.get("app") or inner
    vllm = _at(app, "state", "vllm_config") or _at(app, "state", "engine_client", "vllm_config")
    model = _at(vllm, "model_config", "model")
    return Config(
        _number(vllm, "model_config", "max_model_len"),
        _number(vllm, "scheduler_config", "max_num_scheduled_tokens")
        or _number(vllm, "scheduler_config", "max_num_batched_tokens")
        or _number(app, "server_args", "chunked_prefill_size"),  # SGLang
        model if isinstance(model, str) else "",
        Cache(*(_number(vllm, "cache_config", name)
                for name in ("block_size", "num_gpu_blocks", "kv_cache_size_tokens"))),
        _number(vllm, "cache_config", "num_gpu_blocks") > 0)


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
