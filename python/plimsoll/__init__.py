# SPDX-License-Identifier: Apache-2.0
"""Plimsoll: why GPU memory ran out, what would have saved it, and evidence from inside a running program.

Inside a program that uses PyTorch:

    attach()      record the allocator's history, write a snapshot when memory runs out
    detach()      stop what attach started
    snapshot(p)   write a snapshot now
    request(pid)  ask another process, which is attached, for one
    note(...)     say which request is being worked on
    annotate(...) the same for the length of a block

About a snapshot or a message, as plain data: explain, diagnose, diff, replay, tune, dryrun.

Importing the package does nothing to the program, and does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from ._api import Diagnosis, Difference, DryRun, Explanation, Replay, Tuning, Verdict
    from ._api import diagnose, diff, dryrun, explain, replay, tune
    from ._inside import annotate, attach, detach, note, request, snapshot
    from ._program import DataError, InputMissing, PlimsollError, SystemFailure, Unsupported, UsageError, program
    from ._settings import Settings

__all__ = [
    "DataError", "Diagnosis", "Difference", "DryRun", "Explanation", "InputMissing", "PlimsollError", "Replay",
    "Settings", "SystemFailure", "Tuning", "Unsupported", "UsageError", "Verdict", "annotate", "attach", "detach",
    "diagnose", "diff", "dryrun", "explain", "note", "program", "replay", "request", "snapshot",
    "tune",
]

_HOME = {
    "_inside": ("annotate", "attach", "detach", "note", "request", "snapshot"),
    "_program": ("DataError", "InputMissing", "PlimsollError", "SystemFailure", "Unsupported", "UsageError",
                 "program"),
    "_settings": ("Settings",),
}


def __getattr__(name: str) -> Any:
    """What was asked for is imported then: the start hook must not pay for what it does not use."""
    import importlib

    if name not in __all__:
        raise AttributeError(f"module 'plimsoll' has no attribute {name!r}")
    home = next((module for module, names in _HOME.items() if name in names), "_api")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(__all__)
