# SPDX-License-Identifier: Apache-2.0
"""The settings of the gate: one field each, which is also `PLIMSOLL_GATE_<NAME>` in the environment.

A middleware is made by the server without arguments, so the environment is where its settings come from. As with
attach, a value that cannot be read is said in one line and the default is taken. Times in seconds.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from typing import List, Mapping, Tuple

from ._settings import from_environment, is_on, read_count, read_seconds, read_size, say, setting

PREFIX = "PLIMSOLL_GATE"

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/generate",
         "/inference/v1/generate", "/invocations", "/completions", "/chat/completions")


def _word(*allowed: str):  # type: ignore[no-untyped-def]
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text
    return read


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(text)
    return value


def _bytes_or_model(text: str) -> int:
    return -1 if text == "model" else read_size(text)


@dataclasses.dataclass(frozen=True)
class ClassLimits:
    """What a class of requests may take."""

    name: str
    weight: float = 1.0
    budget: float = 0.0
    requests: int = 0


def _classes(text: str) -> Tuple[ClassLimits, ...]:
    """"tenant-a: weight=2, budget=0.25; tenant-b: requests=8"."""
    made: List[ClassLimits] = []
    for part in () if text == "none" else filter(None, (part.strip() for part in text.split(";"))):
        name, colon, limits = part.rpartition(":")
        words = dict(word.strip().split("=") for word in limits.split(","))
        one = ClassLimits(name.strip(), float(words.pop("weight", 1)), float(words.pop("budget", 0)),
                          read_count(words.pop("requests", "0")))
        if not colon or not one.name or words or not 0.001 <= one.weight <= 1e6 or not 0 <= one.budget <= 1:
            raise ValueError(text)
        made.append(one)
    return tuple(made)


def _paths(text: str) -> Tuple[str, ...]:
    paths = tuple(part.strip() for part in text.split(",") if part.strip())
    if not paths or any(not path.startswith("/") for path in paths):
        raise ValueError(text)
    return paths


@dataclasses.dataclass(frozen=True)
class GateSettings:
    """How a front door behaves, and what it cannot ask the engine."""

    on: bool = setting(True, is_on, "0: everything passes and nothing is booked", "1")
    ledger: str = setting("", str, "the file that all processes of a server share; empty: one in /dev/shm, named for "
                                   "the user and the port")
    policy: str = setting("expected", _word("expected", "conservative", "overcommit", "unlimited"),
                          "how memory is judged: `expected`, `conservative`, `overcommit` or `unlimited`")
    fail: str = setting("open", _word("open", "closed"), "what happens to requests while the gate cannot decide: "
                                                         "`open` lets them pass, `closed` answers 503")
    wait: float = setting(0.0, read_seconds, "longest time that a request waits for room before it gets 429; 0: none "
                                             "waits")
    queue: int = setting(256, read_count, "most requests that wait, of all processes; at most 1024")
    first_token: float = setting(0.0, read_seconds, "target for the first token: what would wait longer is refused; 0: "
                                                    "not guarded")
    token: float = setting(0.0, read_seconds, "target for each further token; 0: not guarded")
    requests: int = setting(0, read_count, "most requests at once; 0: no limit")
    high: float = setting(1.0, _ratio, "share of the KV pool up to which requests are let in")
    low: float = setting(0.995, _ratio, "after a refusal for want of memory, share below which they are let in again")
    long_part: float = setting(0.0, read_seconds, "a request that needs more than this share of the pool is a long "
                                                  "one; all long ones together get half of it; 0: none is")
    lease: float = setting(60.0, read_seconds, "a reservation that nobody renews for so long ends")
    stale: float = setting(15.0, read_seconds, "engine figures that are older count as a full engine; 0: never")
    scrape: float = setting(1.0, read_seconds, "seconds between looks at the engine's own figures; 0: never")
    count: str = setting("bytes", _word("bytes", "tokenize"), "how prompts are counted: `bytes` by a rate learned from "
                                                              "answers, `tokenize` by the engine's /tokenize")
    tokenizer: str = setting("", str, "a tokenizer.json to count prompts with (needs the package `tokenizers`)")
    capacity_tokens: int = setting(0, read_count, "tokens that the KV pool has room for; 0: ask the engine")
    block_tokens: int = setting(0, read_count, "tokens of a block of it; 0: ask the engine, else 16")
    max_length: int = setting(0, read_count, "most tokens of one request; 0: ask the engine")
    model: str = setting("", str, "config.json of the model, its folder or its name, for prices of workspace; empty: "
                                  "what /v1/models says, where its files are here; `none`: no arithmetic")
    step_tokens: int = setting(0, read_count, "prompt tokens that the engine computes in a step at most "
                                              "(max_num_batched_tokens, chunked_prefill_size); 0: as its configuration "
                                              "says, else whole prompts")
    work_token: int = setting(-1, _bytes_or_model, "workspace for each prompt token of a step; `model`: by its "
                                                   "arithmetic, and 0 where the engine has run its largest step "
                                                   "already (vLLM)", "model")
    work_part: int = setting(-1, _bytes_or_model, "workspace for each picture, video or sound while it is encoded; "
                                                  "`model`: likewise", "model")
    work_row: int = setting(-1, _bytes_or_model, "workspace for each prompt token whose log-probability is asked; "
                                                 "`model`: by its arithmetic", "model")
    work_room: int = setting(0, read_size, "memory for workspace while nobody tells what the device has free; 0: not "
                                           "judged until memory has run out")
    part_tokens: int = setting(1024, read_count, "tokens that a picture, video or sound counts as", "1024")
    stranded: float = setting(0.0, read_seconds, "share of the allocator's memory stranded, and not getting less, at "
                                                 "which the breaker trips; 0: never")
    body: int = setting(64 << 20, read_size, "longest body of a request; longer ones get 413", "64MiB")
    trust: bool = setting(False, is_on, "believe the headers x-plimsoll-class and x-plimsoll-priority, and `priority` "
                                        "in bodies: only behind a proxy that sets them", "0")
    classes: Tuple[ClassLimits, ...] = setting(
        (), _classes, "what classes may take, as `a: weight=2, budget=0.25; /v1/embeddings: requests=8`: share when "
                      "the cache is full, largest part of it, most requests at once", "none")
    paths: Tuple[str, ...] = setting(PATHS, _paths, "paths of requests that need memory, by commas",
                                     ",".join(PATHS))
    status: str = setting("", str, "a path where the state of the ledger can be read, as `/plimsoll/gate`; empty: none")

    @classmethod
    def environment(cls, environ: Mapping[str, str]) -> GateSettings:
        """The settings that the environment asks for; names that are none are said."""
        known = {f"{PREFIX}_{field.name.upper()}" for field in dataclasses.fields(cls)} | {f"{PREFIX}_LIBRARY"}
        for name in sorted(name for name in environ if name.startswith(f"{PREFIX}_") and name not in known):
            near = difflib.get_close_matches(name, known, 1)
            say(name, f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else ""), "gate")
        return from_environment(cls, PREFIX, "gate", environ)

    def ledger_path(self, server: object) -> str:
        """The ledger's file. server: of the ASGI scope, (host, port) or (path, None) or None."""
        if self.ledger:
            return self.ledger
        name = "server"
        if isinstance(server, (tuple, list)) and len(server) == 2:
            name = str(server[1]) if server[1] is not None else str(server[0]).strip("/").replace("/", "-")[-80:]
        return os.path.join("/dev/shm", f"plimsoll-gate-{os.getuid()}-{name or 'server'}")
