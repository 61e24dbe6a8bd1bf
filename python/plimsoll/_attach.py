# SPDX-License-Identifier: Apache-2.0
"""Attach: what happens inside a program that asked for it.

    begin     look out for the import of torch, or take the one that is there
    imported  ask PyTorch to call us when it has initialised CUDA, which attach itself never does
    ready     once in each process that uses CUDA: history, out-of-memory observer, sampler
    end       stop what we started

Whatever somebody else has in hand stays theirs: a history that is already being recorded, a signal handler that
was not set from Python. A failure of attach is one line on standard error and nothing else; no exception of ours
reaches the program.

Forked and spawned workers: a spawned one starts as its parent did, from the environment. A forked one inherits
our hooks, and `forked` makes it forget what belonged to the parent. Threads: `take` may run in any; a lock lets
one snapshot be written at a time.
"""

from __future__ import annotations

import atexit
import dataclasses
import errno
import json
import os
import pickle
import signal
import sys
import threading
import time
import types
from typing import Any, Callable, Dict, Optional, Union

from . import _facts, _hooks, _keep, _notes, _settings, _share
from ._settings import say


class Attachment:
    """The one attachment of a process and, after a fork, of its children."""

    def __init__(self, settings: _settings.Settings) -> None:
        self.settings = settings
        self.torch: Any = None
        self.finder: Optional[_hooks.AfterImport] = None
        self.ended = False
        self.former: Any = None  # the signal handler before ours
        self.handler: Optional[Callable[[int, Optional[types.FrameType]], None]] = None
        self.fresh()

    def fresh(self) -> None:
        """Forget what belongs to one process."""
        self.pid = 0  # in which CUDA is in use and we are at work
        self.since_ns = 0
        self.history = "none"  # who records it: attach, program, none
        self.late = False  # the allocator held something already when we began
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.sampler: Optional[threading.Thread] = None
        self.share: Optional[_share.Share] = None  # once CUDA is in use; None too where it cannot be made
        self.asked = False  # by a signal
        self.taken = 0
        self.last_oom = -1e9
        self.skipped = 0  # out-of-memory errors without a snapshot of their own

    # ---- from the start of the program to CUDA

    def begin(self) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(getattr(torch, "cuda", None), "_lazy_call"):
            self.imported(torch)
        else:
            self.finder = _hooks.AfterImport(
                {"torch": self.imported}, lambda error: say("import", f"nothing is recorded: {error!r}"))
            sys.meta_path.insert(0, self.finder)
        os.register_at_fork(after_in_child=self.forked)

    def imported(self, torch: Any) -> None:
        if self.ended or torch.version.cuda is None:
            return
        self.torch = torch
        self.take_signal()
        if torch.cuda.is_initialized():
            self.ready()
        else:
            torch.cuda._lazy_call(self.ready)

    def ready(self) -> None:
        """CUDA is in use in this process. PyTorch turns an exception here into one of the program's. What an
        allocator cannot do (cudaMallocAsync, a pluggable one) does not keep the rest from being done."""
        if self.ended or self.pid == os.getpid():
            return
        self.pid = os.getpid()
        self.since_ns = time.time_ns()
        for step in (self.take_signal, self.record, self.observe, self.open_share, self.start_sampler):
            try:
                step()
            except Exception as error:
                say(step.__name__, f"not everything is recorded: {' '.join(str(error).split())[:200]}")
        atexit.register(self.finish)

    def forked(self) -> None:
        """In a child that has just been forked."""
        if self.share is not None:
            self.share.abandon()
        _notes.share = None
        self.fresh()

    # ---- history, observer

    def recorder(self) -> str:
        """Who records the history now: attach, program, none. A PyTorch that does not say whether one is recorded
        counts as one that does not, and so does an allocator that has none and refuses the question."""
        enabled = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
        try:
            return "program" if self.history == "none" and enabled is not None and enabled() else self.history
        except RuntimeError:
            return "none"

    def record(self) -> None:
        core = self.torch._C
        if self.settings.events == 0:
            return
        self.history = self.recorder()
        if self.history == "program":
            say("history", "the program records the allocator's history itself; its recording stays as it is")
            return
        self.late = any(_share.figure(core._cuda_memoryStats(i), ("allocation", "all", "allocated"))
                        for i in range(core._cuda_getDeviceCount()))
        stacks = {"context": None} if self.settings.stacks == "none" else {}
        try:
            self.torch.cuda.memory._record_memory_history(
                max_entries=self.settings.events, stacks="all" if self.settings.stacks == "native" else "python",
                **stacks)
        except TypeError:  # torch 2.0
            self.torch.cuda.memory._record_memory_history(
                True, trace_alloc_max_entries=self.settings.events,
                trace_alloc_record_context=self.settings.stacks != "none")
        self.history = "attach"

    def observe(self) -> None:
        """Observers add up: those of the program are called as before."""
        attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            say("observer", f"PyTorch {self.torch.__version__} tells nobody that memory ran out")
        elif self.settings.oom:
            attach(self.out_of_memory)

    def out_of_memory(self, device: int, size: int, device_total: int, device_free: int) -> None:
        """PyTorch calls this in the failing thread, with its lock released, before it raises the error."""
        try:
            if self.ended or self.pid != os.getpid():
                return
            if self.share is not None:
                self.share.file.ooms += 1
                self.sample()
            now = time.monotonic()
            if now - self.last_oom < self.settings.gap:
                self.skipped += 1
                return
            self.last_oom = now
            self.keep("oom", {"device": device, "request_bytes": size, "limit_bytes": device_total,
                              "device_free_bytes": device_free})
        except Exception as error:
            say("oom", f"no snapshot at an out-of-memory error: {error!r}")

    # ---- snapshots

    def facts(self, kind: str, failure: Optional[Dict[str, int]], snapshot: Dict[str, Any]) -> Dict[str, Any]:
        text = _notes.current.get()
        out = _facts.gather(self.torch, kind, failure, json.loads(text) if text else {})
        out["alloc_conf"] = snapshot.get("allocator_settings", {}).get("PYTORCH_CUDA_ALLOC_CONF", "")
        out["history"] = {"by": self.recorder(), "since_ns": self.since_ns}
        if self.history == "attach":
            longest = max((len(t) for t in snapshot.get("device_traces", [])), default=0)
            out["snapshot_complete"] = not self.late and longest < self.settings.events
        if failure is not None:
            out["skipped_before"], self.skipped = self.skipped, 0
        out["recent"] = [{"time_ns": at, "note": json.loads(text)} for at, text in list(_notes.recent)]
        return out

    def take(self, path: str, kind: str, failure: Optional[Dict[str, int]], limit: int) -> Dict[str, Any]:
        """Write a snapshot to `path`; its facts. Errors: OSError, and what PyTorch raises."""
        with self.lock:
            snapshot: Dict[str, Any] = self.torch.cuda.memory._snapshot()
            facts = self.facts(kind, failure, snapshot)
            snapshot["plimsoll"] = json.dumps(facts, default=str)
            _keep.write(path, limit, lambda file: pickle.dump(snapshot, file, protocol=4))
            return facts

    def keep(self, kind: str, failure: Optional[Dict[str, int]] = None) -> Optional[str]:
        """A snapshot within the limits: a drop where incidents are made, else a file in our folder. Its path, or
        None when it could not be written."""
        path, result = None, 0
        settings = self.settings
        try:
            self.taken += 1
            incidents = os.environ.get("PLIMSOLL_INCIDENT_DIR")
            if incidents:
                os.makedirs(incidents, exist_ok=True)
                with _keep.Drop(incidents, self.taken) as drop:
                    facts = self.take(drop.name("snapshot.pickle"), kind, failure, settings.bytes)
                    drop.facts({**facts, **_facts.private()})
                path = os.path.join(drop.path, "snapshot.pickle")
                told = f"left {drop.path}, of which an incident in {incidents} is made"
                _keep.prune(_keep.drops(incidents), settings.files, settings.bytes)
                _keep.finish_incidents(incidents)
            else:
                folder = settings.folder()
                path = os.path.join(folder, _keep.name_of(kind, self.taken))
                self.take(path, kind, failure, settings.bytes)
                told = f"wrote {path}; plimsoll diagnose reads it"
                _keep.prune(_keep.snapshots(folder), settings.files, settings.bytes)
            say(f"snapshot {self.taken}", told)
        except Exception as error:
            path, result = None, getattr(error, "errno", None) or errno.EIO
            say("write", f"no snapshot could be written: {error}")
        if self.share is not None:
            self.share.wrote(path, result)
        return path

    # ---- requests: a signal, or a word in the shared file

    def take_signal(self) -> None:
        number = self.settings.signal
        if number == 0 or self.handler is not None or threading.current_thread() is not threading.main_thread():
            return
        former = signal.getsignal(number)
        if former is None or (former == signal.SIG_DFL and caught_outside_python(number)):
            say("signal", f"{signal.Signals(number).name} has a handler that is not Python's; it stays")
            return

        def handler(received: int, frame: Optional[types.FrameType]) -> None:
            self.asked = True  # the sampler looks: the program may be in the middle of anything
            if callable(former):
                former(received, frame)

        self.former, self.handler = former, handler
        signal.signal(number, handler)
        signal.siginterrupt(number, False)

    def serve_requests(self) -> None:
        if self.asked:
            self.asked = False
            self.keep("signal")
        number = self.share.asked() if self.share is not None else 0
        if number and self.share is not None:
            self.keep("request")
            self.share.answer(number)

    # ---- sampler

    def start_sampler(self) -> None:
        self.stop = threading.Event()
        self.sampler = threading.Thread(target=self.sample_until, args=(self.stop,), name="plimsoll-attach",
                                        daemon=True)
        self.sampler.start()

    def sample_until(self, stop: threading.Event) -> None:
        """Once a second: statistics, requests, the limit of time. Sleeps in between without the interpreter."""
        settings = self.settings
        begin = time.monotonic()
        due = begin
        try:
            while not stop.wait(min(settings.every or 1.0, 1.0)):
                now = time.monotonic()
                if settings.every and now >= due:
                    due = max(due + settings.every, now)
                    self.sample()
                self.serve_requests()
                if settings.seconds and now - begin >= settings.seconds:
                    say("seconds", f"recording ends after {settings.seconds:g} s, as it was asked to")
                    self.end()
                    return
        except Exception as error:
            if not stop.is_set():  # else the interpreter goes down
                say("sampler", f"statistics and requests end: {error!r}")

    def open_share(self) -> None:
        rank = os.environ.get("RANK", "")
        info = {"torch": str(self.torch.__version__), "history": self.history, "entries": self.settings.events,
                "dir": self.settings.dir}
        try:
            self.share = _share.Share(int(rank) if rank.isdigit() else -1, json.dumps(info))
        except Exception as error:
            say("share", f"allocator statistics are not published: {error}")
        _notes.share = self.share

    def sample(self) -> None:
        """Show the statistics of every device whose allocator was used. Cost: about 60 µs for each."""
        if self.share is None:
            return
        core = self.torch._C
        try:
            for device in range(core._cuda_getDeviceCount()):
                stats = core._cuda_memoryStats(device)
                if _share.figure(stats, ("reserved_bytes", "all", "peak")):
                    about = self.torch.cuda.get_device_properties(device)
                    self.share.publish(device, stats, about.total_memory, str(getattr(about, "uuid", "")))
        except Exception as error:
            say("sample", f"allocator statistics are not published: {error!r}")

    # ---- the end

    def finish(self) -> None:
        """The interpreter of this process goes down."""
        if self.pid != os.getpid():
            return
        self.stop.set()
        if self.sampler is not None and self.sampler is not threading.current_thread():
            self.sampler.join(timeout=1.0)
        self.sample()
        share, self.share, _notes.share = self.share, None, None
        if share is not None:
            try:
                share.close()
            except OSError:
                pass  # somebody has removed the file

    def end(self) -> None:
        """Stop what we started. Observers cannot be taken back: ours does nothing from now on."""
        self.ended = True
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        if self.history == "attach" and self.pid == os.getpid():
            try:
                self.torch.cuda.memory._record_memory_history(enabled=None)
            except Exception as error:
                say("end", f"the history could not be stopped: {error!r}")
            self.history = "none"
        self.give_signal_back()
        self.finish()

    def give_signal_back(self) -> None:
        number = self.settings.signal
        if self.handler is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(number) is self.handler:
                signal.signal(number, self.former)
            self.handler = None


def caught_outside_python(number: int) -> bool:
    """Whether the process catches the signal, as the kernel sees it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError):
        pass
    return False


_the: Optional[Attachment] = None


def the() -> Optional[Attachment]:
    """The attachment of this process that is at work, if there is one."""
    return _the if _the is not None and not _the.ended else None


def attach(settings: Optional[_settings.Settings] = None, *, children: bool = True) -> None:
    global _the
    if the() is not None:
        return
    chosen = settings if settings is not None else _settings.Settings.environment(os.environ)
    if chosen.dir:
        chosen = dataclasses.replace(chosen, dir=os.path.abspath(chosen.dir))
    if children:
        for name in _settings.variables():
            os.environ.pop(name, None)
        os.environ.update(chosen.exported())
    _the = Attachment(chosen)
    _the.begin()


def detach() -> None:
    found = the()
    os.environ.pop(_settings.SWITCH, None)
    if found is not None:
        found.end()


def snapshot(path: Union[str, "os.PathLike[str]"]) -> str:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        raise RuntimeError("this program has not used CUDA yet: there is nothing to take a snapshot of")
    found = the()
    if found is None or found.torch is None:
        found = Attachment(_settings.Settings())
        found.torch = torch
    name = os.path.abspath(os.fspath(path))
    found.take(name, "request", None, sys.maxsize)
    return name


def start() -> None:
    """From the start hook, when torch was imported: never raises."""
    try:
        if _settings.is_on(os.environ.get(_settings.SWITCH)):
            attach()
    except Exception as error:
        say("start", f"nothing is recorded: {error!r}")
