# SPDX-License-Identifier: Apache-2.0
"""The verbs of the program as functions. Each returns the program's JSON answer, which docs/schema describes.

Keyword arguments are the verb's options by name: `diagnose(path, device_memory="24GiB", rows=5)`. The path "-"
is not offered: give a file. A judgement that is bad is an answer, no error; what cannot be answered raises
PlimsollError or one of its subclasses. Cost: a process, a few ms, and the verb's own.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, TypedDict, Union, cast

from ._program import Option, ask

Path = Union[str, "os.PathLike[str]"]


Verdict = TypedDict("Verdict", {"class": str, "subclass": Optional[str], "confidence": float, "summary": str})
"""What is wrong: `class` is a word of a fixed list, such as "fragmentation"; confidence is 0 to 1."""


class Explanation(TypedDict, total=False):
    """docs/schema/explain.json; sizes in bytes."""

    schema: str
    verdict: Verdict
    verdict_event: Optional[int]
    input: Dict[str, int]
    events: List[Dict[str, Any]]


class Diagnosis(TypedDict, total=False):
    """docs/schema/diagnose.json; sizes in bytes."""

    schema: str
    layout: str
    device: int
    verdict: Verdict
    ledger: Dict[str, Any]
    counterfactuals: List[Dict[str, Any]]
    evidence: List[Dict[str, Any]]
    advice: List[Dict[str, Any]]
    unknowns: List[Any]
    failure: Optional[Dict[str, Any]]
    blame: List[Dict[str, Any]]
    leak_suspects: List[Dict[str, Any]]


class Replay(TypedDict, total=False):
    """docs/schema/replay.json; sizes in bytes."""

    schema: str
    conf: str
    allocator: str
    capacity_bytes: Optional[int]
    events: int
    first_oom: Optional[Dict[str, int]]
    recorded_failure: Optional[Dict[str, Any]]
    peak: Dict[str, int]
    counters: Dict[str, int]


class Tuning(TypedDict, total=False):
    """docs/schema/tune.json; sizes in bytes."""

    schema: str
    summary: str
    recommended: Optional[Dict[str, Any]]
    bound: Dict[str, Any]
    runs: List[Replay]


class Difference(TypedDict, total=False):
    """docs/schema/diff.json; sizes in bytes."""

    schema: str
    summary: str
    before: Dict[str, Any]
    after: Dict[str, Any]
    sites: List[Dict[str, Any]]


class DryRun(TypedDict, total=False):
    """docs/schema/dryrun.json; sizes in bytes."""

    schema: str
    command: List[str]
    runs: List[Dict[str, Any]]
    smallest_gib: Optional[int]


def file_name(path: Path) -> str:
    """A path that is no option and not standard input."""
    name = os.fspath(path)
    return os.path.join(".", name) if name.startswith("-") else name


def explain(text: str, **options: Option) -> Explanation:
    """What an out-of-memory message or a whole log means."""
    return cast(Explanation, ask("explain", ["-"], options, text))


def diagnose(path: Path, **options: Option) -> Diagnosis:
    """Why memory ran out, from a snapshot."""
    return cast(Diagnosis, ask("diagnose", [file_name(path)], options))


def diff(before: Path, after: Path, **options: Option) -> Difference:
    """What grew between two snapshots."""
    return cast(Difference, ask("diff", [file_name(before), file_name(after)], options))


def replay(path: Path, conf: Optional[str] = None, **options: Option) -> Replay:
    """The trace of a snapshot under other allocator settings, as in PYTORCH_ALLOC_CONF, or on another device."""
    return cast(Replay, ask("replay", [file_name(path)], {"conf": conf, **options}))


def tune(path: Path, **options: Option) -> Tuning:
    """The settings under which the trace of a snapshot runs best."""
    return cast(Tuning, ask("tune", [file_name(path)], options))


def dryrun(command: Sequence[Path], *, gpu: Optional[str] = None, **options: Option) -> DryRun:
    """Whether a program fits a card, by running it on a simulated one. Its output goes to standard error."""
    return cast(DryRun, ask("dryrun", ["--", *[os.fspath(word) for word in command]], {"gpu": gpu, **options}))
