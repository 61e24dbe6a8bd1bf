# SPDX-License-Identifier: Apache-2.0
"""The settings of attach: one field each, which is also `PLIMSOLL_ATTACH_<NAME>` in the environment.

A value that cannot be read is said in one line and the default is taken: a typing error in a diagnostic
switch must not stop a server. Units: sizes in bytes, written as 4096 or 4GiB; times in seconds.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import stat
import sys
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Type, TypeVar

PREFIX = "PLIMSOLL_ATTACH"
SWITCH = PREFIX  # PLIMSOLL_ATTACH=1 asks for it

UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_said: Set[str] = set()


def say(kind: str, text: str, who: str = "attach") -> None:
    """One line on standard error, once for each kind in a process; never raises."""
    if kind in _said:
        return
    _said.add(kind)
    try:
        os.write(2, f"plimsoll: {who} (pid {os.getpid()}): {' '.join(text.split())}\n".encode())
    except OSError:
        pass


def is_on(text: Optional[str]) -> bool:
    """What a switch in the environment means."""
    return (text or "").strip().lower() not in ("", "0", "no", "off", "false")


def read_size(text: str) -> int:
    """"4GiB" as bytes. Errors: ValueError."""
    word = text.strip()
    digits = word.rstrip("KMGTiBkmgtb ")
    unit = word[len(digits):].strip().upper().replace("IB", "").rstrip("B")
    if unit not in UNITS:
        raise ValueError(text)
    value = float(digits) * UNITS[unit]
    if not 0 <= value < 1 << 62:
        raise ValueError(text)
    return int(value)


def read_signal(text: str) -> int:
    """"SIGUSR2", "USR2" or "12" as a number; 0 for "none". Errors: ValueError."""
    word = text.strip().upper()
    if word in ("", "NONE", "OFF", "0"):
        return 0
    try:
        number = int(word) if word.isdigit() else int(signal.Signals["SIG" + word.replace("SIG", "", 1)])
    except KeyError:
        raise ValueError(text) from None
    if number not in (int(s) for s in signal.Signals) or number in (signal.SIGKILL, signal.SIGSTOP):
        raise ValueError(text)
    return number


def read_count(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 40:
        raise ValueError(text)
    return value


def read_seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError(text)
    return value


def read_stacks(text: str) -> str:
    if text not in ("python", "none", "native"):
        raise ValueError(text)
    return text


def setting(default: Any, read: Callable[[str], Any], text: str, shown: str = "") -> Any:
    """A field. shown: the default as a user would write it, where that is not str()."""
    return dataclasses.field(default=default, metadata={"read": read, "text": text, "shown": shown})


_T = TypeVar("_T")


def from_environment(cls: Type[_T], prefix: str, who: str, environ: Mapping[str, str]) -> _T:
    """A dataclass of setting() fields from PREFIX_NAME variables; what cannot be read is said."""
    values: Dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = f"{prefix}_{field.name.upper()}"
        text = environ.get(name)
        if text is None:
            continue
        try:
            values[field.name] = field.metadata["read"](text)
        except ValueError:
            say(field.name, f"cannot read {name}={text!r}; taking {field.default!r}", who)
    return cls(**values)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to record and how much of it to keep."""

    dir: str = setting("", str, "folder for snapshots; empty: `plimsoll-UID` in the temporary folder")
    events: int = setting(100_000, read_count, "most entries of the allocator's history, for each device; "
                                               "0: record none")
    stacks: str = setting("python", read_stacks, "`python`, `none`, or `native` too: writing those can take minutes")
    every: float = setting(1.0, read_seconds, "seconds between samples of the allocator's statistics; 0: none")
    seconds: float = setting(0.0, read_seconds, "stop recording so long after CUDA was first used; 0: never")
    files: int = setting(16, read_count, "most snapshots in the folder; the oldest are removed first")
    bytes: int = setting(4 << 30, read_size, "most bytes of all snapshots in the folder; the oldest are removed first",
                         "4GiB")
    oom: bool = setting(True, is_on, "write a snapshot when the allocator runs out of memory", "1")
    gap: float = setting(10.0, read_seconds, "least seconds between two such snapshots of one process")
    signal: int = setting(int(signal.SIGUSR2), read_signal, "signal that asks for a snapshot; `none`: no signal",
                          "SIGUSR2")

    @classmethod
    def environment(cls, environ: Mapping[str, str]) -> Settings:
        """The settings that the environment asks for."""
        return from_environment(cls, PREFIX, "attach", environ)

    def exported(self) -> Dict[str, str]:
        """As environment variables for child processes: those that differ from the defaults."""
        out = {SWITCH: "1"}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                out[variable(field.name)] = str(int(value)) if isinstance(value, bool) else str(value)
        return out

    def folder(self) -> str:
        """The folder for snapshots, made when it is not there. Errors: OSError."""
        if self.dir:
            os.makedirs(self.dir, exist_ok=True)
            return os.path.abspath(self.dir)
        return private_folder(None)


def private_folder(parent: Optional[str]) -> str:
    """`plimsoll-UID` in `parent` or the temporary folder, made for this user alone. Errors: OSError, also when
    somebody else has made a thing of that name."""
    name = os.path.join(parent or tempfile.gettempdir(), f"plimsoll-{os.getuid()}")
    try:
        os.mkdir(name, 0o700)
    except FileExistsError:
        found = os.lstat(name)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "belongs to somebody else", name) from None
    return name


def variable(name: str) -> str:
    return f"{PREFIX}_{name.upper()}"


def variables() -> List[str]:
    """All of them, without the switch."""
    return [variable(field.name) for field in dataclasses.fields(Settings)]


def table(cls: Any = Settings, prefix: str = PREFIX) -> List[str]:
    """The settings as the rows of a Markdown table, for the documentation and its test."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for field in dataclasses.fields(cls):
        default = field.metadata.get("shown") or (
            f"{field.default:g}" if isinstance(field.default, float) else str(field.default))
        rows.append(f"| `{prefix}_{field.name.upper()}` | {f'`{default}`' if default else ''} | "
                    f"{field.metadata['text']} |")
    return rows


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
