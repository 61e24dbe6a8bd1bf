# SPDX-License-Identifier: Apache-2.0
"""The file in which this process shows its allocator's figures to other processes, as it runs.

The layout is that of `struct plim_attach_file` in include/plimsoll/shm.h, little endian; a test compares the two.
The folder is the session of PLIMSOLL_RECORD_DIR, else `plimsoll-UID` on the memory file system. Rows are behind
sequence locks: odd while they are written. Times: nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import threading
import time
from typing import Any, Dict, Mapping, Optional

from . import _settings

MAGIC = b"PLIMATT1"
SUFFIX = ".plimattach"
LIVE, ENDED = 1, 2
NOT_ASKED = (1 << 64) - 1
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
NAME = re.compile(r"(\d+)-(\d+)\.(\d+)" + re.escape(SUFFIX))


class Device(ctypes.Structure):
    """struct plim_attach_device."""

    _fields_ = [
        ("lock", U32), ("valid", U32), ("time_ns", U64), ("allocated", U64), ("active", U64), ("requested", U64),
        ("reserved", U64), ("inactive_split", U64), ("peak_allocated", U64), ("peak_reserved", U64),
        ("segments", U64), ("num_alloc_retries", U64), ("num_ooms", U64), ("num_device_alloc", U64),
        ("num_device_free", U64), ("device_free", U64), ("device_total", U64), ("pad", U64 * 16),
    ]


class Note(ctypes.Structure):
    """struct plim_attach_note."""

    _fields_ = [
        ("lock", U32), ("bytes", U32), ("number", U64), ("time_ns", U64), ("end_ns", U64), ("thread", U32),
        ("device", U32), ("pad", U64 * 2), ("text", ctypes.c_char * 456),
    ]


class File(ctypes.Structure):
    """struct plim_attach_file."""

    _fields_ = [
        ("magic", ctypes.c_char * 8), ("version", U32), ("file_bytes", U32), ("pid", U32), ("rank", ctypes.c_int32),
        ("start_ticks", U64), ("real_offset_ns", ctypes.c_int64), ("heartbeat_ns", U64), ("notes", U64),
        ("state", U32), ("snapshot_asked", U32), ("snapshot_done", U32), ("snapshot_result", U32), ("ooms", U32),
        ("pad0", U32 * 5), ("snapshot_path", ctypes.c_char * 416), ("info", ctypes.c_char * 512),
        ("uuid", (ctypes.c_char * 64) * 16), ("pad1", ctypes.c_uint8 * 2048), ("device", Device * 16),
        ("note", Note * 16),
    ]


# Field of a row, and where PyTorch's nested statistics have it.
FIGURES = {
    "allocated": ("allocated_bytes", "all", "current"), "active": ("active_bytes", "all", "current"),
    "requested": ("requested_bytes", "all", "current"), "reserved": ("reserved_bytes", "all", "current"),
    "inactive_split": ("inactive_split_bytes", "all", "current"),
    "peak_allocated": ("allocated_bytes", "all", "peak"), "peak_reserved": ("reserved_bytes", "all", "peak"),
    "segments": ("segment", "all", "current"), "num_alloc_retries": ("num_alloc_retries",),
    "num_ooms": ("num_ooms",), "num_device_alloc": ("num_device_alloc",), "num_device_free": ("num_device_free",),
}


def figure(stats: Any, path: "tuple[str, ...]") -> int:
    """One figure of the statistics; 0 where this PyTorch does not keep it."""
    for key in path:
        stats = stats.get(key) if isinstance(stats, Mapping) else None
    return max(int(stats or 0), 0)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot. Errors: OSError when there is no such process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def folder() -> str:
    """Where this process puts its file. Errors: OSError."""
    return os.environ.get("PLIMSOLL_RECORD_DIR") or _settings.private_folder(
        "/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def sweep(where: str) -> None:
    """Remove files of processes that are gone."""
    for name in os.listdir(where):
        match = NAME.fullmatch(name)
        if match is None:
            continue
        try:
            gone = start_ticks(int(match[1])) != int(match[2])
        except OSError:
            gone = True
        if gone:
            try:
                os.unlink(os.path.join(where, name))
            except OSError:
                continue


class Share:
    """The file of this process. Errors of all calls but `abandon`: OSError."""

    def __init__(self, rank: int, info: str) -> None:
        where = folder()
        if "PLIMSOLL_RECORD_DIR" not in os.environ:
            sweep(where)
        pid = os.getpid()
        ticks = start_ticks(pid)
        number = 0
        while os.path.exists(self.named(where, pid, ticks, number)):
            number += 1
        self.path = self.named(where, pid, ticks, number)
        hidden = os.path.join(where, "." + os.path.basename(self.path))
        size = ctypes.sizeof(File)
        fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            self.file = File.from_buffer(mmap.mmap(fd, size))
            now = time.monotonic_ns()
            for name, value in (("magic", MAGIC), ("version", 1), ("file_bytes", size), ("pid", pid), ("rank", rank),
                                ("start_ticks", ticks), ("real_offset_ns", time.time_ns() - now),
                                ("heartbeat_ns", now), ("info", info.encode()[:511]), ("state", LIVE)):
                setattr(self.file, name, value)
            os.rename(hidden, self.path)
        except BaseException:
            os.unlink(hidden)
            raise
        finally:
            os.close(fd)
        self.lock = threading.Lock()  # guards writing rows

    @staticmethod
    def named(where: str, pid: int, ticks: int, number: int) -> str:
        return os.path.join(where, f"{pid}-{ticks}.{number}{SUFFIX}")

    def publish(self, device: int, stats: Mapping[str, Any], total: int, uuid: str = "") -> None:
        """The figures of one device. @uuid: "GPU-..." or without it, "" when not known. Cost: about 20 µs."""
        if device >= len(self.file.device):
            return
        row = self.file.device[device]
        with self.lock:
            if not row.valid:
                self.file.uuid[device].value = uuid.encode()[:63]
            row.lock += 1
            row.time_ns = time.monotonic_ns()
            for name, path in FIGURES.items():
                setattr(row, name, figure(stats, path))
            row.device_free = NOT_ASKED
            row.device_total = total
            row.valid = 1
            row.lock += 1
            self.file.heartbeat_ns = row.time_ns

    def begin_note(self, text: str) -> int:
        """A note that holds from now on; its number. Cost: about 10 µs."""
        data = text.encode("utf-8", "replace")
        with self.lock:
            number = int(self.file.notes) + 1
            row = self.file.note[number % len(self.file.note)]
            row.lock += 1
            row.number, row.time_ns, row.end_ns = number, time.monotonic_ns(), 0
            row.thread, row.device = threading.get_native_id(), 0xFFFFFFFF
            if len(data) > 456:
                data = b'{"shape":"too long to note"}'
            row.bytes = len(data)
            row.text = data
            row.lock += 1
            self.file.notes = number
            return number

    def end_note(self, number: int) -> None:
        with self.lock:
            row = self.file.note[number % len(self.file.note)]
            if row.number == number:
                row.lock += 1
                row.end_ns = time.monotonic_ns()
                row.lock += 1

    def asked(self) -> int:
        """The number of the latest request for a snapshot that is not answered; 0: none."""
        number = int(self.file.snapshot_asked)
        return number if number != self.file.snapshot_done else 0

    def wrote(self, path: Optional[str], error: int) -> None:
        """The latest snapshot: its path, or why there is none."""
        if path is not None:
            self.file.snapshot_path = os.fsencode(path)[:415]
        self.file.snapshot_result = error

    def answer(self, number: int) -> None:
        self.file.snapshot_done = number

    def abandon(self) -> None:
        """In a forked child: the file is the parent's."""
        del self.file

    def close(self) -> None:
        """The process ends in order. In a session the file stays for its reader."""
        self.file.state = ENDED
        del self.file
        if "PLIMSOLL_RECORD_DIR" not in os.environ:
            os.unlink(self.path)


def find(pid: int, where: Optional[str] = None) -> str:
    """The file of a process. Errors: FileNotFoundError."""
    place = folder() if where is None else where
    found: Dict[int, str] = {}
    for name in os.listdir(place):
        match = NAME.fullmatch(name)
        if match is not None and int(match[1]) == pid and int(match[2]) == start_ticks(pid):
            found[int(match[3])] = os.path.join(place, name)
    if not found:
        raise FileNotFoundError(errno.ENOENT, f"process {pid} shows nothing: is it attached, and does it use CUDA?",
                                place)
    return found[max(found)]


def request(pid: int, timeout: float, where: Optional[str] = None) -> str:
    """Ask a process for a snapshot and wait for it; its path. Errors: FileNotFoundError; TimeoutError; OSError
    with what kept the process from writing it."""
    with open(find(pid, where), "r+b") as file:
        shared = File.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(File)))
    if shared.magic != MAGIC or shared.version != 1:
        raise OSError(errno.EBADMSG, "the file of the process has another layout", where)
    number = int(shared.snapshot_asked) + 1
    shared.snapshot_asked = number
    deadline = time.monotonic() + timeout
    while (int(shared.snapshot_done) - number) & 0xFFFFFFFF >= 1 << 31:
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"process {pid} has written no snapshot in {timeout:g} s")
        time.sleep(0.05)
    if shared.snapshot_result:
        raise OSError(int(shared.snapshot_result), f"process {pid} could not write a snapshot")
    return os.fsdecode(bytes(shared.snapshot_path))
