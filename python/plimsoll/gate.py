# SPDX-License-Identifier: Apache-2.0
"""Admission by memory in front of an inference server: a request starts when there will be room for it to its end.

    vllm serve MODEL --middleware plimsoll.gate.Middleware
    app = plimsoll.gate.Middleware(app)                       any ASGI application

Requests that can never fit get 400, those that do not fit now 429 with an honest Retry-After (or wait, by choice),
and 503 while the server drains. Everything else passes untouched, answers are not delayed or buffered. All processes of
a server share one ledger in shared memory, from which `plimsoll gate` reads and steers. docs/howto/gate.md says how to
use it, GateSettings (PLIMSOLL_GATE_*) what can be chosen.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import logging
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from . import _gate_body as body_of
from . import _gate_engine as engine_of
from . import _gate_ledger as ledger_of
from . import _gate_model as model_of
from ._gate_engine import App, Headers, Message, Receive, Scope, Send
from ._gate_settings import GateSettings

__all__ = ["GateSettings", "Middleware"]

log = logging.getLogger("plimsoll.gate")

TELL_EVERY = 8  # tokens between two reports of a stream's growth
SURE = 16  # requests whose tokens the engine counted, after which bytes are counted at the rate learned from them
QUESTIONS = 64  # most questions for them: a server that does not count is not asked for ever
LARGE = 256 << 10  # bytes of a body that is not read in the event loop
LONGEST = ("length", "max_tokens", "max_output_tokens")  # how answers end that max_tokens ended
EARLY_EVERY = 5  # seconds between two tries to open the ledger before the first request for tokens
KEEP_EVERY = 0.25  # seconds between two ticks: answers in one piece grow by them
CLASSES = 4096  # names of classes that are remembered
TYPES = {400: "invalid_request_error", 413: "invalid_request_error", 429: "rate_limit_exceeded",
         503: "service_unavailable"}


class Middleware:
    """The front door of one process. settings: None: of the environment."""

    def __init__(self, app: App, settings: Optional[GateSettings] = None) -> None:
        self.app = app
        self.settings = settings if settings is not None else GateSettings.environment(os.environ)
        if log.level == logging.NOTSET:  # else the root's, which in a vLLM server is ERROR by somebody's import
            log.setLevel(logging.WARNING)
        self.ledger: Optional[ledger_of.Ledger] = None
        self.flights: Dict[int, _Flight] = {}
        self.unjudged = 0  # requests that passed, or were refused, because the gate could not decide
        self._rate = body_of.TokenRate()
        self._questions = 0  # to the engine, from which the rate was to be learned
        self._events = body_of.EventRate()
        self._longest = 0  # tokens of a prompt that can never fit; 0: before the ledger was opened
        self._classes: Dict[str, int] = {}
        self._owed: List[Tuple[int, int, int]] = []  # arguments of releases that found the ledger locked
        self._keeper: Optional[asyncio.Task[None]] = None
        self._opening: Optional[asyncio.Lock] = None
        self._retry_open_ns = 0
        self._early: Optional[asyncio.Task[None]] = None
        self._retry_early_ns = 0
        self._tokenizer: Any = None
        self._said: Dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self.app(scope, receive, send)
            finally:
                self.close()
        elif scope["type"] != "http" or not self.settings.on:
            await self.app(scope, receive, send)
        elif scope["method"] == "POST" and _path(scope) in self.settings.paths:
            await self._request(scope, receive, send)
        elif self.settings.status and scope["method"] == "GET" and _path(scope) == self.settings.status:
            await _answer(send, 200, self._status())
        else:
            self._begin(scope)
            await self.app(scope, receive, send)

    def close(self) -> None:
        """Return what this process has reserved. The server calls it at its end."""
        for task in (self._keeper, self._early):
            if task is not None:
                task.cancel()
        self._keeper = self._early = None
        if self.ledger is not None:
            self.ledger.close()
            self.ledger = None

    # ---- one request

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = _Arrival(receive, self.settings.body)
        if not await arrived.read(scope):
            await _refuse(send, 413, "request_too_large", f"The request is longer than {self.settings.body} bytes.")
            return
        if arrived.gone:
            return
        flight: Optional[_Flight] = None
        try:
            ledger = await self._opened(scope)
            if ledger is not None:
                flight = await self._judge(ledger, scope, arrived, send)
                if flight is None:
                    return
        except _Undecided as why:
            self._say("undecided", f"cannot judge a request: {why}")
            ledger = None
        except Exception as error:  # whatever is wrong with us must not stop the server's requests
            self._say("error", f"error while judging a request: {error!r}")
            ledger = None
        if ledger is None or flight is None:
            self.unjudged += 1
            if self.settings.fail == "closed":
                await _refuse(send, 503, "service_unavailable", "The server cannot judge requests at the moment.", 5000)
            else:
                await self.app(scope, arrived.replay, send)
            return
        await self._fly(flight, ledger, scope, arrived, send)

    async def _judge(self, ledger: ledger_of.Ledger, scope: Scope, arrived: _Arrival, send: Send) -> Optional[_Flight]:
        """A flight that was admitted; None when the client has its refusal or left. Errors: _Undecided."""
        body = arrived.body
        if len(body) > LARGE:
            asked = await asyncio.get_running_loop().run_in_executor(None, body_of.read_request, body)
        else:
            asked = body_of.read_request(body)
        if asked is None:  # the server says itself what is wrong with it
            return _Flight(0, ledger_of.Request(), body_of.Asked())
        request = await self._price(ledger, scope, body, asked)
        decision = ledger_of.Decision()
        if ledger.admit(request, decision) != ledger_of.OK:
            raise _Undecided("the ledger is busy")
        if decision.verdict == ledger_of.WAIT and not await self._wait(ledger, decision, arrived):
            return None
        if decision.verdict == ledger_of.ADMIT:
            return _Flight(decision.id, request, asked)
        reason = decision.reason
        if decision.verdict == ledger_of.NEVER:
            self._say("never", f"refused for ever: {ledger_of.word('reason', reason)}, {request.prompt_tokens} prompt "
                               f"tokens, {request.max_tokens} at most, {request.samples} samples, "
                               f"{decision.peak_units} units of memory")
        await _refuse(send, decision.http, ledger_of.word("reason_code", reason),
                      ledger_of.word("reason_message", reason), decision.retry_after_ms,
                      ledger_of.word("reason", reason))
        return None

    async def _price(self, ledger: ledger_of.Ledger, scope: Scope, body: bytes,
                     asked: body_of.Asked) -> ledger_of.Request:
        shown = min(asked.parts * self.settings.part_tokens, body_of.MOST)
        tokens = await self._count(scope, body, asked, shown)
        if asked.cut:
            most = min(asked.cut, max(1, self._longest - 1))
            tokens, asked.longest = min(tokens, most * asked.prompts), min(asked.longest, most)
        request = ledger_of.Request(prompt_tokens=min(tokens, body_of.MOST), samples=asked.samples * asked.prompts,
                                    image_tokens=shown)
        if asked.prompts > 1:  # each has its own prompt: nothing of it is shared
            request.prompt_tokens = -(-request.prompt_tokens // asked.prompts)
            request.flags, request.longest_tokens = ledger_of.APART, asked.longest
        request.max_tokens = asked.max_tokens
        if "embeddings" in _path(scope):
            request.max_tokens = request.known_output = 1
        if asked.logprob_rows:
            request.logprob_rows = request.prompt_tokens
        name = _path(scope)
        if self.settings.trust:
            name = _header(scope, b"x-plimsoll-class").decode("utf-8", "replace") or name
            request.priority = asked.priority
            try:
                request.priority = int(_header(scope, b"x-plimsoll-priority") or asked.priority)
            except ValueError:
                pass
        request.class_id = self._class(ledger, name)
        request.flags |= ((ledger_of.MAY_WAIT if self.settings.wait > 0 else 0)
                          | (0 if asked.streams else ledger_of.WHOLE))
        return request

    async def _count(self, scope: Scope, body: bytes, asked: body_of.Asked, shown: int) -> int:
        """Tokens of all prompts together; shown: those of pictures. Nobody is refused for ever by a guess: what is too
        long by one is counted by the engine, and where it does not count, judged by it."""
        tokens = 0
        unsure = (self._rate.seen < SURE and self._questions < QUESTIONS and asked.text_bytes >= 64
                  and not self.settings.tokenizer)
        askable = asked.prompts == 1
        if askable and (self.settings.count == "tokenize" or unsure):
            self._questions += unsure
            tokens, askable = await self._by_engine(scope, body, asked), False
        elif self.settings.tokenizer:
            tokens = await self._tokenized(body, asked)
        if tokens:
            return tokens
        most = max(1, self._longest - 1) * asked.prompts
        guess = self._rate.tokens(asked) + shown
        if not self._longest or guess <= most or self._rate.least(asked) > most:
            return guess
        return (await self._by_engine(scope, body, asked) if askable else 0) or most

    async def _by_engine(self, scope: Scope, body: bytes, asked: body_of.Asked) -> int:
        """Prompt tokens by the engine's own tokenizer, from which the rate is learned; 0: it does not say."""
        tokens = await engine_of.ask_tokens(self.app, scope, body, _credentials(scope))
        if tokens:
            self._rate.learn(asked, tokens)
        return tokens

    async def _tokenized(self, body: bytes, asked: body_of.Asked) -> int:
        """Prompt tokens by a tokenizer of our own, 0: cannot be told."""
        if self._tokenizer is None:
            try:
                self._tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(self.settings.tokenizer)
            except Exception as error:  # the package raises bare Exception for a bad file
                self._say("tokenizer", f"{self.settings.tokenizer}: {error}; counting by bytes")
                self._tokenizer = False
        if not self._tokenizer:
            return 0

        def count() -> int:
            texts = body_of.texts(body)
            return asked.tokens + sum(len(one.ids) for one in self._tokenizer.encode_batch(texts))

        if len(body) > 16 << 10:
            return await asyncio.get_running_loop().run_in_executor(None, count)
        return count()

    def _class(self, ledger: ledger_of.Ledger, name: str) -> int:
        if name not in self._classes:
            if len(self._classes) >= CLASSES:
                return 0
            self._classes[name] = ledger.class_number(name)
        return self._classes[name]

    async def _wait(self, ledger: ledger_of.Ledger, decision: ledger_of.Decision, arrived: _Arrival) -> bool:
        """Until there is room or the time is over; False when the client left."""
        until = time.monotonic() + self.settings.wait
        id, settled = decision.id, False
        try:
            while decision.verdict == ledger_of.WAIT:
                left = until - time.monotonic()
                if left <= 0:
                    decision.verdict, decision.http = ledger_of.LATER, 429
                    decision.retry_after_ms = max(1000, decision.retry_after_ms)
                    return True
                if await arrived.leaves_within(min(left, 0.5, max(0.005, decision.retry_after_ms / 1000))):
                    return False
                if ledger.poll(id, decision) == ledger_of.UNKNOWN:
                    raise _Undecided("its place in the queue was lost")
            settled = True
            return True
        finally:
            if not settled:
                self._release(ledger, id, 0, ledger_of.CANCELLED)

    async def _fly(self, flight: _Flight, ledger: ledger_of.Ledger, scope: Scope, arrived: _Arrival,
                   send: Send) -> None:
        """Hand the request to the server, watch its answer go by, and return what it held."""
        if flight.id:
            self.flights[flight.id] = flight

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.body":
                flight.see(message, ledger, self._events)
            elif message["type"] == "http.response.start":
                flight.begin(message)
            await send(message)

        try:
            await self.app(scope, arrived.replay, pass_on)
        finally:
            if flight.id:
                self.flights.pop(flight.id, None)
                self._land(flight, ledger, arrived)

    def _land(self, flight: _Flight, ledger: ledger_of.Ledger, arrived: _Arrival) -> None:
        tail = body_of.tail_of(flight.tail)
        answered = body_of.read_answer(tail)
        total = answered.output_tokens
        if not total and answered.finish in LONGEST and flight.complete:
            total = flight.asked.max_tokens * flight.request.samples
        if flight.events and total:
            self._events.learn(total, flight.pieces)
        generated = -(-total // flight.request.samples) or flight.generated
        if flight.status == 200 and flight.complete:
            outcome = ledger_of.LENGTH if answered.finish in LONGEST else ledger_of.STOPPED
            if answered.prompt_tokens:
                self._rate.learn(flight.asked, answered.prompt_tokens)
        elif arrived.gone or flight.status in (0, 200, 499):
            outcome = ledger_of.CANCELLED
        else:
            failed, wanted = body_of.read_failure(tail) if flight.status >= 500 else (False, 0)
            outcome = ledger_of.OOM if failed else ledger_of.FAILED
            if failed:
                log.warning("plimsoll gate: the server ran out of memory on a request: %d prompt tokens, %d samples, "
                            "%d image tokens",
                            flight.request.prompt_tokens, flight.request.samples, flight.request.image_tokens)
                ledger.oom(flight.request, wanted)
        self._release(ledger, flight.id, generated, outcome)

    def _release(self, ledger: ledger_of.Ledger, id: int, generated: int, outcome: int) -> None:
        """Return what a request held. Where another process stands still in the ledger, the keeper does it later."""
        if ledger.release(id, generated, outcome) == ledger_of.BUSY:
            self._owed.append((id, generated, outcome))

    # ---- the ledger and its upkeep

    async def _opened(self, scope: Scope) -> Optional[ledger_of.Ledger]:
        """The ledger, opened when it was not; None: not possible now."""
        if self.ledger is not None:
            return self.ledger
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self.ledger is None and time.monotonic_ns() >= self._retry_open_ns:
                self._retry_open_ns = time.monotonic_ns() + 1_000_000_000
                try:
                    await self._open(scope)
                except (ledger_of.LedgerError, _Undecided, OSError) as error:
                    self._say("open", f"no ledger: {error}")
        return self.ledger

    def _begin(self, scope: Scope) -> None:
        """Open the ledger beside any request, a health check for example: proxies and probes that ask `plimsoll gate`
        whether this server is ready would else wait for the ledger, and it for the first request they let through."""
        now = time.monotonic_ns()
        if self.ledger is None and self._early is None and now >= self._retry_early_ns:
            self._retry_early_ns = now + _ns(EARLY_EVERY)
            self._early = asyncio.get_running_loop().create_task(self._open_early(scope))

    async def _open_early(self, scope: Scope) -> None:
        try:
            status = 0
            if not (self.settings.max_length or engine_of.read_config(self.app, scope).length):
                status, _ = await engine_of.ask(self.app, scope, "GET", "/v1/models", headers=_credentials(scope))
            if status not in (401, 403):  # else a request with a key will tell the longest request
                await self._opened(scope)
        except Exception as error:
            self._say("open", f"no ledger: {error!r}")
        finally:
            self._early = None

    async def _open(self, scope: Scope) -> None:
        page, told = await self._look(scope), engine_of.read_config(self.app, scope)
        length = (self.settings.max_length or told.length or page.length
                  or await engine_of.ask_length(self.app, scope, _credentials(scope)))
        cache = dataclasses.replace(told.cache, ranks=page.cache.ranks) if told.cache.blocks else page.cache
        block = self.settings.block_tokens or cache.block or 16
        capacity = self.settings.capacity_tokens or page.capacity_tokens or cache.capacity(length)
        if not capacity:
            raise _Undecided("the engine does not say how many tokens its KV cache holds; "
                             "PLIMSOLL_GATE_CAPACITY_TOKENS can")
        config = ledger_of.default_config()
        config.capacity_units = max(1, capacity // block)
        config.unit_bytes = 1
        config.n_groups = 1
        config.groups[0] = ledger_of.Group(block, 0, 1, 0)
        config.max_length = length
        self._longest = min(length or body_of.MOST, config.capacity_units * block)
        s = self.settings
        await self._price_work(config, scope, page, told)
        config.policy = ledger_of.POLICIES.index(s.policy)
        config.lease_ns, config.stale_ns = _ns(s.lease), _ns(s.stale if s.scrape > 0 else 0)
        config.first_token_ns, config.token_ns = _ns(s.first_token), _ns(s.token)
        config.max_requests, config.long_part = s.requests, s.long_part
        config.high, config.low = s.high, min(s.low, s.high)
        config.waiters = min(1024, s.queue) if s.wait > 0 else 0
        self.ledger = ledger_of.Ledger(s.ledger_path(scope.get("server")), config)
        for limits in s.classes:
            self.ledger.class_set(self._class(self.ledger, limits.name), limits.weight, limits.budget, limits.requests)
        self._observe(page)
        self._keeper = asyncio.get_running_loop().create_task(self._keep(engine_of.of_server(scope)))
        self._say("ledger", f"ledger {self.ledger.path}: {config.capacity_units} blocks of {block} tokens, requests of "
                            f"{f'at most {length}' if length else 'any number of'} tokens, policy {s.policy}")

    async def _price_work(self, config: ledger_of.Config, scope: Scope, page: engine_of.Page,
                          told: engine_of.Config) -> None:
        """Prices of workspace: chosen, or by the model's arithmetic."""
        s = self.settings
        name = s.model or told.model or await engine_of.ask_model(self.app, scope, _credentials(scope))
        found = model_of.find_config(name, os.environ) if name and name != "none" else None
        if s.model not in ("", "none") and not found:
            self._say("model", f"no config.json of a model at PLIMSOLL_GATE_MODEL={s.model}: it prices nothing")
        by_model = model_of.prices(found) if found else model_of.Prices()
        if page.profiles or told.profiles:  # its cache was sized beside its largest step
            by_model = dataclasses.replace(by_model, token=0, picture=0)
        part = by_model.picture if s.work_part < 0 else s.work_part
        config.work_token_bytes = by_model.token if s.work_token < 0 else s.work_token
        config.work_image_bytes = -(-part // max(1, s.part_tokens))
        config.work_row_bytes = by_model.row if s.work_row < 0 else s.work_row
        config.work_limit_bytes, config.step_tokens = s.work_room, min(s.step_tokens or told.step, body_of.MOST)
        config.stranded_limit = s.stranded

    async def _look(self, scope: Scope) -> engine_of.Page:
        """The engine's metrics; empty when it does not tell them."""
        status, body = await engine_of.ask(self.app, scope, "GET", "/metrics")
        return engine_of.read_page(body) if status == 200 else engine_of.Page()

    def _observe(self, page: engine_of.Page) -> None:
        figures = ledger_of.Figures()
        if page.usage is not None:
            figures.has |= ledger_of.HAS_USAGE
            figures.usage = page.usage
        if page.preempted is not None:
            figures.has |= ledger_of.HAS_PREEMPTED
            figures.preempted = int(page.preempted)
        if figures.has and self.ledger is not None:
            self.ledger.observe(figures)

    async def _keep(self, like: Scope) -> None:
        """A few times a second: growth, leases, the dead, and, in whichever process comes first, the engine's own
        figures."""
        renewed_ns = 0
        while self.ledger is not None:
            try:
                await asyncio.sleep(min(KEEP_EVERY, self.settings.scrape or KEEP_EVERY))
                ledger = self.ledger
                state = ledger.read() if ledger is not None else None
                if ledger is None or state is None:
                    continue
                if self.settings.scrape > 0 and state.figures_age_ns >= _ns(self.settings.scrape) * 9 // 10:
                    page = await self._look(like)
                    self._observe(page)
                if self.ledger is not None:
                    owed, self._owed = self._owed, []
                    for release in owed:
                        self._release(ledger, *release)
                    if time.monotonic_ns() - renewed_ns > _ns(self.settings.lease) // 4:
                        renewed_ns = time.monotonic_ns()
                        for flight in list(self.flights.values()):
                            ledger.extend(flight.id, flight.told)  # renews the lease
                    ledger.tick()  # behind the renewals: who stood still for a while lives all the same
            except asyncio.CancelledError:
                raise
            except Exception as error:  # the keeper must live as long as the server
                self._say("keeper", f"error while looking after the ledger: {error!r}")

    # ---- saying

    def _status(self) -> Dict[str, Any]:
        state = self.ledger.read() if self.ledger is not None else None
        return {"schema": "plimsoll.gate.door/1", "ledger": self.ledger.path if self.ledger else None,
                "in_flight": len(self.flights), "unjudged": self.unjudged,
                "tokens_per_byte": round(self._rate.mean, 4),
                "state": ledger_of.state_facts(state) if state is not None else None}

    def _say(self, kind: str, text: str) -> None:
        """At most one line a minute for each kind. A warning whatever it is: servers seldom show anything less of other
        people's loggers, and without a handler what is shown is the bare line."""
        now = time.monotonic_ns()
        if now - self._said.get(kind, -(1 << 62)) > 60_000_000_000:
            self._said[kind] = now
            log.warning("plimsoll gate: %s", text)


class _Undecided(Exception):
    """The gate cannot decide: settings.fail says what happens."""


@dataclasses.dataclass
class _Flight:
    """A request that the server works on."""

    id: int
    request: ledger_of.Request
    asked: body_of.Asked
    status: int = 0
    events: bool = False  # the answer is a stream of events
    generated: int = 0
    pieces: int = 0
    told: int = 0
    complete: bool = False
    tail: List[bytes] = dataclasses.field(default_factory=list)

    def begin(self, message: Message) -> None:
        self.status = message["status"]
        self.events = any(name.lower() == b"content-type" and value.startswith(b"text/event-stream")
                          for name, value in message.get("headers", ()))

    def see(self, message: Message, ledger: ledger_of.Ledger, rate: body_of.EventRate) -> None:
        """A piece of the answer goes by."""
        chunk = message.get("body", b"")
        if not message.get("more_body", False):
            self.complete = True
        if not chunk:
            return
        self.tail = [*self.tail[-2:], chunk[-8192:]]
        if not self.events or not self.id:
            return
        self.pieces += body_of.split_events(chunk)
        self.generated = max(1, rate.tokens(self.pieces) // self.request.samples)
        if self.told == 0 or self.generated - self.told >= TELL_EVERY:
            self.told = self.generated
            ledger.extend(self.id, self.told)


class _Arrival:
    """The body of a request, read before it is judged, and given to the server afterwards."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._given = False
        self._next: Optional[asyncio.Task[Message]] = None
        self.body = b""
        self.gone = False  # the client left

    async def read(self, scope: Scope) -> bool:
        """False: it is too long. When the client leaves meanwhile, `gone` is set."""
        said = _header(scope, b"content-length")
        if said.isdigit() and int(said) > self._limit:
            return False
        pieces: List[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                return True
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._limit:
                return False
            if not message.get("more_body", False):
                self.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                return True

    async def leaves_within(self, seconds: float) -> bool:
        """Wait so long, or until the client leaves: whether it did."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._receive())
        done, _ = await asyncio.wait({self._next}, timeout=seconds)
        self.gone = bool(done) and self._next.result()["type"] == "http.disconnect"
        return self.gone

    async def replay(self) -> Message:
        """What the server receives: the body in one piece, then what the client sends further."""
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        waiting, self._next = self._next, None
        message = await (waiting if waiting is not None else self._receive())
        self.gone = self.gone or message["type"] == "http.disconnect"
        return message


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root):] if root and path.startswith(root) else path


def _header(scope: Scope, name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope.get("headers", ()) if key.lower() == name), b"")


def _credentials(scope: Scope) -> Headers:
    """The client's own key, to ask the server on its behalf."""
    return [(key, value) for key, value in scope.get("headers", ()) if key.lower() in (b"authorization", b"x-api-key")]


async def _answer(send: Send, status: int, data: Dict[str, Any], headers: Tuple[Tuple[bytes, bytes], ...] = ()) -> None:
    body = json.dumps(data).encode()
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
                            *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _refuse(send: Send, status: int, code: str, message: str, retry_ms: int = 0, reason: str = "") -> None:
    """An error in the shape of OpenAI's. Clients that follow Retry-After are told in both forms they know."""
    headers: List[Tuple[bytes, bytes]] = []
    if status in (429, 503):
        retry_ms = min(60_000, max(1000, retry_ms))
        headers += [(b"retry-after", str(-(-retry_ms // 1000)).encode()), (b"retry-after-ms", str(retry_ms).encode())]
    else:
        headers.append((b"x-should-retry", b"false"))
    if status == 503:
        headers.append((b"connection", b"close"))
    if reason:
        headers.append((b"x-plimsoll-reason", reason.encode()))
    error = {"message": message, "type": TYPES.get(status, "server_error"), "param": None, "code": code}
    await _answer(send, status, {"error": error}, tuple(headers))
