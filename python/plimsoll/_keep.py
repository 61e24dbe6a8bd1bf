# SPDX-License-Identifier: Apache-2.0
"""Files and folders that are written whole or not at all, in a place of bounded size.

A snapshot's name is `plimsoll-TIME-KIND-PID-N.pickle`; only what has such a name, or that of a drop, is ever
removed. Several processes may share a folder: each removes what is too much when it has added something.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Type

from . import _program

OURS = re.compile(r"plimsoll-\d{8}T\d{6}\.\d{3}Z-[a-z]+-\d+-\d+\.pickle")


class TooLarge(OSError):
    """The file would pass the limit of the folder."""


class Bounded:
    """A binary file that refuses to grow beyond `limit` bytes."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self.file = file
        self.left = limit

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.left -= size
        if self.left < 0:
            raise TooLarge(27, "the snapshot is larger than all that may be kept")
        return self.file.write(data)


def name_of(reason: str, number: int) -> str:
    now = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    return f"plimsoll-{stamp}.{int(now % 1 * 1000):03d}Z-{reason}-{os.getpid()}-{number}.pickle"


def write(path: str, limit: int, fill: Callable[[Bounded], object]) -> None:
    """Let `fill` write the file `path`, which appears only when it is complete. Errors: those of `fill`, OSError."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            fill(Bounded(file, limit))
        os.replace(part, path)
    except BaseException:
        try:
            os.unlink(part)
        except OSError:
            pass
        raise


class Drop:
    """A folder that gets its name when it is complete: docs/format/incident.md. A context manager; removed again
    when its block fails."""

    def __init__(self, folder: str, number: int) -> None:
        self.path = os.path.join(folder, f"drop-{os.getpid()}-{number}")
        while os.path.exists(self.path) or os.path.exists(self.path + ".part"):  # of another process of that number
            number += 1
            self.path = os.path.join(folder, f"drop-{os.getpid()}-{number}")

    def __enter__(self) -> Drop:
        os.mkdir(self.path + ".part", 0o700)
        return self

    def name(self, file: str) -> str:
        return os.path.join(self.path + ".part", file)

    def facts(self, values: Dict[str, Any]) -> None:
        text = json.dumps(values, default=str).encode()
        write(self.name("facts.json"), 1 << 20, lambda file: file.write(text))

    def __exit__(self, kind: Optional[Type[BaseException]], error: object, trace: object) -> None:
        if kind is None:
            os.rename(self.path + ".part", self.path)
        else:
            shutil.rmtree(self.path + ".part", ignore_errors=True)


def snapshots(folder: str) -> List[str]:
    """Our snapshots in a folder, oldest first: the time is part of the name."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if OURS.fullmatch(name)]


def drops(folder: str) -> List[str]:
    """Complete drops that nobody has taken yet, oldest first."""
    found = []
    for name in os.listdir(folder):
        if re.fullmatch(r"drop-\d+-\d+", name):
            try:
                found.append((os.stat(os.path.join(folder, name)).st_mtime_ns, os.path.join(folder, name)))
            except OSError:
                continue  # its owner has taken it
    return [path for _, path in sorted(found)]


def size_of(path: str) -> int:
    """Bytes of a file, or of the files in a folder; 0 for what is gone."""
    try:
        inside = os.listdir(path) if os.path.isdir(path) else []
        return sum(os.stat(os.path.join(path, name)).st_size for name in inside) if inside else os.stat(path).st_size
    except OSError:
        return 0


def prune(paths: List[str], files: int, total: int) -> int:
    """Of these, oldest first, remove the oldest until at most `files` and `total` bytes are left; how many were
    removed. The newest stays in any case."""
    sizes = [size_of(path) for path in paths]
    left, size, removed = len(paths), sum(sizes), 0
    for path, n in zip(paths[:-1], sizes):
        if left <= max(files, 1) and size <= total:
            break
        left, size = left - 1, size - n
        try:
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            removed += 1
        except OSError:
            continue  # another process was faster
    return removed


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def finish_incidents(folder: str) -> None:
    """Let the program make an incident of the drops, unless their owner lives, who will. Does not wait for it; does
    nothing where there is no program: the drops stay for whoever looks."""
    owner = os.environ.get("PLIMSOLL_INCIDENT_OWNER", "")
    if owner.isdigit() and alive(int(owner)):
        return
    try:
        program = _program.program()
    except _program.Unsupported:
        return
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PLIMSOLL_ATTACH")}
    # The shell ends at once and is waited for: the program is nobody's zombie.
    subprocess.run(["/bin/sh", "-c", '"$0" incident --finish "$1" &', program, folder], env=env,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   start_new_session=True, check=False)
