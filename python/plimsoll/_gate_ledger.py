# SPDX-License-Identifier: Apache-2.0
"""The gate's ledger for Python: include/plimsoll/gate.h through ctypes, names as there.

Layouts are compared with the library's own by the tests. All times are nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Dict, List, Optional, Tuple

GROUPS, NAME_BYTES, REFUSALS = 8, 48, 32

# enum plimsoll_gate_code, _verdict, _outcome; the words come from the library.
OK, UNKNOWN, BUSY, NO_FILE = 0, 1, 2, 7
ADMIT, LATER, NEVER, DRAINING, WAIT = range(5)
STOPPED, LENGTH, CANCELLED, FAILED, OOM = range(5)
POLICIES = ("expected", "conservative", "overcommit", "unlimited")

MAY_WAIT, WHOLE, APART = 1, 4, 8
HAS_USAGE, HAS_PREEMPTED, HAS_HEADROOM, HAS_STRANDED, HAS_ENGINE = 1, 2, 4, 8, 16

_U32, _I32, _U64, _I64, _F64 = ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_double


def _fields(text: str) -> List[Tuple[str, Any]]:
    """"u64 a b; f64 c" as ctypes fields; "u64[8] d" is an array."""
    kinds: Dict[str, Any] = {"u32": _U32, "i32": _I32, "u64": _U64, "i64": _I64, "f64": _F64}
    out: List[Tuple[str, Any]] = []
    for part in text.split(";"):
        kind, *names = part.split()
        base, _, count = kind.partition("[")
        made = kinds[base] * int(count[:-1]) if count else kinds[base]
        out += [(name, made) for name in names]
    return out


class Group(ctypes.Structure):
    _fields_ = _fields("u32 block_tokens cap_tokens units_per_block extra_blocks")


class Config(ctypes.Structure):
    _fields_ = [
        *_fields("u32 size flags; u64 capacity_units unit_bytes; u32 n_groups state_units"),
        ("groups", Group * GROUPS),
        *_fields("u32 max_length lookahead_tokens max_requests slots waiters policy; u64 lease_ns stale_ns;"
                 "f64 high low margin share long_part long_share; u64 first_token_ns token_ns;"
                 "u32 queued_tokens expected_output; f64 prefill_tokens_s; u64 work_token_bytes;"
                 "u32 step_tokens oom_limit; u64 work_image_bytes work_row_bytes work_limit_bytes; f64 work_margin;"
                 "u64 oom_window_ns; f64 stranded_limit; u64[8] reserved")]


class Request(ctypes.Structure):
    _fields_ = _fields("u32 prompt_tokens max_tokens cached_tokens shared_tokens samples image_tokens logprob_rows"
                       " class_id; i32 priority; u32 known_output flags longest_tokens; u64 lease_ns")


class Decision(ctypes.Structure):
    _fields_ = _fields("u64 id; u32 verdict reason http retry_after_ms now_units expected_units peak_units position;"
                       "u64 work_bytes first_token_ns; f64 pressure; u32 is_long reserved")


class Figures(ctypes.Structure):
    _fields_ = _fields("u32 has reserved; f64 usage; u64 preempted headroom_bytes; f64 stranded; u64 engine")


class State(ctypes.Structure):
    _fields_ = _fields(
        "u64 capacity_units held_units expected_units peak_units used_units foreign_units; i64 drift_units; f64 drift"
        " sharing pressure margin share prefill_tokens_s first_token_s token_s drain_units_s;"
        "u32 limit_requests live begun waiting processes full draining stale broken_by; u64 queued_tokens work_bytes"
        " headroom_bytes figures_age_ns admitted finished cancelled failed expired reclaimed; u64[32] refused;"
        "u64 unknown_ids preempted ooms repairs; u64[8] reserved")


class ClassLimits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * NAME_BYTES),
                *_fields("f64 weight budget; u32 max_requests live; u64 expected_units admitted refused finished;"
                         "f64 output_mean; u32 output_p50 output_p90 output_p99 reserved")]


STRUCTURES = {"config": Config, "request": Request, "decision": Decision, "figures": Figures, "state": State,
              "class": ClassLimits, "group": Group}


def library() -> str:
    """Path of libplimsoll_gate.so: PLIMSOLL_GATE_LIBRARY, else as plimsoll.alloc.library(). Errors: Unsupported."""
    from ._program import native_library

    return native_library("libplimsoll_gate.so", "PLIMSOLL_GATE_LIBRARY")


_loaded: List[ctypes.CDLL] = []


def load() -> ctypes.CDLL:
    """The library, loaded once. Errors: Unsupported, OSError."""
    if _loaded:
        return _loaded[0]
    lib = ctypes.CDLL(library(), use_errno=True)
    gate, u32, u64, at = ctypes.c_void_p, _U32, _U64, ctypes.POINTER
    for name, result, arguments in (
            ("defaults", None, [at(Config)]),
            ("wrong", ctypes.c_char_p, [at(Config)]),
            ("open", ctypes.c_int, [gate, ctypes.c_char_p, at(Config), u64]),
            ("close", None, [gate, u64]),
            ("config", None, [gate, at(Config)]),
            ("admit", ctypes.c_int, [gate, at(Request), at(Decision), u64]),
            ("poll", ctypes.c_int, [gate, u64, at(Decision), u64]),
            ("extend", ctypes.c_int, [gate, u64, u32, u64]),
            ("correct", ctypes.c_int, [gate, u64, u32, u64]),
            ("release", ctypes.c_int, [gate, u64, u32, u32, u64]),
            ("observe", ctypes.c_int, [gate, at(Figures), u64]),
            ("oom", ctypes.c_int, [gate, at(Request), u64, u64]),
            ("tick", ctypes.c_int, [gate, u64]),
            ("drain", ctypes.c_int, [gate, ctypes.c_bool, u64]),
            ("resize", ctypes.c_int, [gate, u64, u64]),
            ("class", u32, [gate, ctypes.c_char_p, u64]),
            ("class_set", ctypes.c_int, [gate, u32, at(ClassLimits), u64]),
            ("class_read", ctypes.c_int, [gate, u32, at(ClassLimits), u64]),
            ("read", ctypes.c_int, [gate, at(State), u64]),
            ("check", ctypes.c_char_p, [gate]),
            ("code_text", ctypes.c_char_p, [ctypes.c_int]),
            ("verdict_text", ctypes.c_char_p, [u32]),
            ("reason_text", ctypes.c_char_p, [u32]),
            ("reason_code", ctypes.c_char_p, [u32]),
            ("reason_message", ctypes.c_char_p, [u32])):
        function = getattr(lib, "plimsoll_gate_" + name)
        function.restype, function.argtypes = result, arguments
    _loaded.append(lib)
    return lib


def word(kind: str, number: int) -> str:
    """A fixed word of the library: kind is code, verdict, reason, reason_code or reason_message."""
    name = kind if kind.startswith("reason_") else kind + "_text"
    text: bytes = getattr(load(), "plimsoll_gate_" + name)(number)
    return text.decode()


class LedgerError(RuntimeError):
    """The ledger could not be opened. code: of enum plimsoll_gate_code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Ledger:
    """One process's handle on a ledger file. Open it after fork. Thread-safe. Methods return the library's codes."""

    def __init__(self, path: str, config: Optional[Config]) -> None:
        """config None: only a ledger that is there. Errors: LedgerError, Unsupported."""
        self._lib = load()
        self._handle = (_U64 * 128)()
        self._gate = ctypes.addressof(self._handle)
        code = self._lib.plimsoll_gate_open(self._gate, os.fsencode(path), ctypes.byref(config) if config else None,
                                            time.monotonic_ns())
        if code != OK:
            why = os.strerror(ctypes.get_errno()) if code == NO_FILE else word("code", code)
            why += f" ({config_wrong(config)})" if config and config_wrong(config) else ""
            raise LedgerError(code, f"{path}: {why}")
        self.path = path
        self._open = True

    def close(self) -> None:
        if self._open:
            self._open = False
            self._lib.plimsoll_gate_close(self._gate, time.monotonic_ns())

    def _do(self, name: str, *arguments: Any) -> int:
        """A function of the library on this handle, now. On a closed one nothing happens, and UNKNOWN is returned."""
        if not self._open:
            return UNKNOWN
        code: int = getattr(self._lib, "plimsoll_gate_" + name)(self._gate, *arguments, time.monotonic_ns())
        return code

    def admit(self, request: Request, out: Decision) -> int:
        return self._do("admit", request, out)

    def poll(self, id: int, out: Decision) -> int:
        return self._do("poll", id, out)

    def extend(self, id: int, generated: int) -> int:
        return self._do("extend", id, generated)

    def release(self, id: int, generated: int, outcome: int) -> int:
        return self._do("release", id, generated, outcome)

    def oom(self, request: Request, wanted: int) -> int:
        return self._do("oom", request, wanted)

    def observe(self, figures: Figures) -> int:
        return self._do("observe", figures)

    def tick(self) -> int:
        return self._do("tick")

    def resize(self, capacity_units: int) -> int:
        return self._do("resize", capacity_units)

    def drain(self, on: bool) -> int:
        return self._do("drain", on)

    def class_number(self, name: str) -> int:
        """0 when the table of classes is full."""
        return self._do("class", name.encode("utf-8", "replace")) if self._open else 0

    def class_set(self, number: int, weight: float, budget: float, requests: int) -> int:
        return self._do("class_set", number, ClassLimits(weight=weight, budget=budget, max_requests=requests))

    def config(self) -> Config:
        out = Config()
        if self._open:
            self._lib.plimsoll_gate_config(self._gate, out)
        return out

    def read(self) -> Optional[State]:
        """None when the ledger is busy or closed."""
        out = State()
        return out if self._do("read", out) == OK else None

    def check(self) -> Optional[str]:
        """What is wrong in it, for tests."""
        text: Optional[bytes] = self._lib.plimsoll_gate_check(self._gate) if self._open else None
        return None if text is None else text.decode()


def default_config() -> Config:
    out = Config()
    load().plimsoll_gate_defaults(out)
    return out


def config_wrong(config: Config) -> Optional[str]:
    """The name of the first field that makes no sense."""
    text: Optional[bytes] = load().plimsoll_gate_wrong(config)
    return None if text is None else text.decode()


def state_facts(state: State) -> Dict[str, Any]:
    """A state as plain data; figures that are not known are left out."""
    out: Dict[str, Any] = {}
    for name, *_ in State._fields_:
        if name == "reserved":
            continue
        value = getattr(state, name)
        if name == "refused":
            out[name] = {word("reason", i): int(n) for i, n in enumerate(value) if n}
        elif value not in ((1 << 64) - 1, (1 << 32) - 1):
            out[name] = value
    return out
