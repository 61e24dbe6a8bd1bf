# SPDX-License-Identifier: Apache-2.0
"""What the program is doing just now, as the program says it: the current request and its shape.

A note belongs to the current context (contextvars): an asyncio task, and what `asyncio.to_thread` or
`contextvars.copy_context().run` start from it, have their own. Where a thread runs no event loop, the note also
becomes PyTorch's `user_metadata` of the thread's allocations (torch 2.10 and later). In a thread with an event
loop it does not, because tasks take turns there and PyTorch knows only threads; the note of the task that
fails is in its snapshot all the same.

The text of a note is one JSON object: {"request_id": "r1", "shape": {"batch": 8, "prompt": 4096}}.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import json
import sys
import threading
import time
from typing import Any, Deque, Dict, Iterator, Mapping, Optional, Tuple, Union

from . import _settings, _share

Shape = Union[Mapping[str, Any], str, None]

LONGEST = 2000  # characters of a note; PyTorch keeps one copy for each event
RECENT = 100  # notes that a snapshot lists

current: contextvars.ContextVar[str] = contextvars.ContextVar("plimsoll_note", default="")
_number: contextvars.ContextVar[int] = contextvars.ContextVar("plimsoll_number", default=0)  # of note()
share: Optional[_share.Share] = None  # where other processes read notes; set by attach
recent: Deque[Tuple[int, str]] = collections.deque(maxlen=RECENT)
_told = threading.local()  # .text: what we last told PyTorch for this thread


def text_of(request_id: Optional[str], shape: Shape, more: Mapping[str, Any]) -> str:
    """The note as text; "" when there is nothing to say. What JSON has no form for is written with str(): a note
    is no reason to fail."""
    fields: Dict[str, Any] = {}
    if request_id is not None:
        fields["request_id"] = str(request_id)
    if shape is not None:
        fields["shape"] = dict(shape) if isinstance(shape, Mapping) else str(shape)
    fields.update(more)
    if not fields:
        return ""
    try:
        text = json.dumps(fields, default=str, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # keys that are no texts, nan, an object that holds itself
        text = json.dumps({name: str(value)[:200] for name, value in fields.items()})
    if len(text) > LONGEST:
        text = json.dumps({"request_id": str(request_id)[:200], "shape": "too long to note"})
    return text


def tell_torch(text: str) -> None:
    """Tag what this thread allocates from now on, unless somebody else tags it already."""
    torch = sys.modules.get("torch")
    core = getattr(torch, "_C", None)
    supported = getattr(core, "_cuda_memoryMetadataSupported", lambda: True)  # torch 2.10 cannot say no
    if core is None or not hasattr(core, "_cuda_setMemoryMetadata"):
        return
    events = sys.modules.get("asyncio.events")
    if events is not None and events._get_running_loop() is not None:
        return
    try:
        cuda = getattr(torch, "cuda", None)
        if cuda is None or not cuda.is_initialized() or not supported():
            return
        if core._cuda_getMemoryMetadata() not in ("", getattr(_told, "text", "")):
            return
        core._cuda_setMemoryMetadata(text)
        _told.text = text
    except Exception as error:
        _settings.say("note", f"requests are not noted in PyTorch's history: {error}")


def put(text: str) -> int:
    """Let a note hold in this context; its number for other processes, 0 when nobody is told."""
    current.set(text)
    tell_torch(text)
    number = 0
    if text:
        recent.append((time.time_ns(), text))
        number = tell_others(text)
    return number


def tell_others(text: str) -> int:
    """Put a note into the shared file; its number there, 0 when there is no file, or no longer."""
    try:
        return share.begin_note(text) if share is not None else 0
    except Exception:
        return 0


def end_others(number: int) -> None:
    try:
        if number and share is not None:
            share.end_note(number)
    except Exception:
        pass  # the file was closed just now


def note(request_id: Optional[str] = None, *, shape: Shape = None, **more: Any) -> None:
    """Say which request is being worked on; without arguments: none."""
    end_others(_number.get())
    _number.set(put(text_of(request_id, shape, more)))


@contextlib.contextmanager
def annotate(request_id: Optional[str] = None, *, shape: Shape = None, **more: Any) -> Iterator[None]:
    """The same for the length of a block, also within `async def`. Blocks may nest."""
    before = current.get()
    number = put(text_of(request_id, shape, more))
    try:
        yield
    finally:
        current.set(before)
        tell_torch(before)
        end_others(number)
