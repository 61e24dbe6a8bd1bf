# SPDX-License-Identifier: Apache-2.0
"""What a program calls about itself."""

from __future__ import annotations

import os
from typing import Optional, Union

from . import _attach, _share
from ._notes import annotate, note
from ._settings import Settings

__all__ = ["annotate", "attach", "detach", "note", "request", "snapshot"]


def attach(settings: Optional[Settings] = None, *, children: bool = True) -> None:
    """Record this program's memory from when it first uses CUDA, or from now. A second call does nothing.

    settings: what to record; None: as the environment says (PLIMSOLL_ATTACH_*).
    children: let processes that this one starts do the same, through the environment.
    """
    _attach.attach(settings, children=children)


def detach() -> None:
    """Stop recording what attach started; a history that the program records itself goes on."""
    _attach.detach()


def snapshot(path: Union[str, "os.PathLike[str]"]) -> str:
    """Write a snapshot of the allocator to `path`, whole or not at all; its absolute path.

    Works without attach(), then without a history unless the program records one. Limits do not apply.
    Errors: RuntimeError before CUDA is used; OSError. Cost: about 15 µs for each entry of the history.
    """
    return _attach.snapshot(path)


def request(pid: int, *, timeout: float = 60.0) -> str:
    """Ask another process, which is attached, for a snapshot, and wait for it; its path.

    Errors: FileNotFoundError it is not attached or does not use CUDA; TimeoutError; OSError with the reason why it
    could not write.
    """
    return _share.request(pid, timeout)
