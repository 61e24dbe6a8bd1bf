# SPDX-License-Identifier: Apache-2.0
"""What `plimsoll dryrun` puts at the start of every Python process of the program that it runs.

Python imports `sitecustomize` when it starts; `dryrun` puts this folder first on PYTHONPATH. It runs the
sitecustomize that it hides, if there is one, and waits for PyTorch to be imported. When CUDA is first used
it starts recording the memory history, and from then on keeps these files in PLIMSOLL_DRYRUN_DIR, each
replaced whole:

    PID.txt        what is known so far, one "key value" a line
    PID.pickle     the snapshot: at the end, and now and then before, in case there is no end
    PID.oom.txt    the same two at the last out-of-memory error
    PID.oom.pickle

An allocator that is not PyTorch's own (cudaMallocAsync, a pluggable one) records no history and tells nobody that
memory ran out: what it has is kept, and the error that ends the program is noticed when it does.

The program sees no difference, but for one repair: Hugging Face's `generate` reads from the device whether
it is done, which a device that computes nothing never says; the length limit is applied on the host instead.
Standard library only; works with Python 3.8 and later.
"""

import atexit
import os
import re
import sys
import threading
import time

import plimsoll_hooks

FOLDER = os.environ.get("PLIMSOLL_DRYRUN_DIR")
HISTORY = int(os.environ.get("PLIMSOLL_DRYRUN_HISTORY", "400000"))
HERE = os.path.dirname(os.path.abspath(__file__))

facts = {}
recorder = None  # of this program, once it has imported PyTorch


def note(key, value):
    facts[key] = " ".join(str(value).split())[:2000]
    write_text(path(".txt"), facts)


def path(suffix):
    return os.path.join(FOLDER, str(os.getpid()) + suffix)


def write_text(name, values):
    try:
        with open(name + ".part", "w", encoding="utf-8", errors="replace") as out:
            out.writelines(f"{k} {v}\n" for k, v in values.items())
        os.replace(name + ".part", name)
    except OSError:
        pass  # the folder is gone: dryrun has ended before this process


def remember_exception():
    """Note the exception that ends the program."""
    former = sys.excepthook

    def hook(kind, value, trace):
        note("error", f"{kind.__name__}: {value}")
        if kind.__name__ == "OutOfMemoryError" and recorder is not None:
            recorder.ended_by(str(value))
        former(kind, value, trace)

    sys.excepthook = hook


class Recorder:
    """Keeps the files of one process up to date."""

    def __init__(self, torch):
        self.torch = torch
        self.pid = None
        self.ooms = 0
        self.observes = False
        self.lock = threading.Lock()
        self.saved_at = 0.0
        self.save_cost = 0.0

    def start(self):
        """CUDA was initialised: record, and have somebody look now and then."""
        if self.pid == os.getpid():
            return
        self.pid = os.getpid()
        facts["used_cuda"] = 1
        for step in (self.record, self.observe):
            try:
                step()
            except RuntimeError as error:  # not every allocator can
                note("hook_failed", repr(error))
        note("history", HISTORY)
        atexit.register(self.finish)
        from multiprocessing import util
        util.Finalize(None, self.finish, exitpriority=-100)
        threading.Thread(target=self.watch, name="plimsoll-dryrun", daemon=True).start()

    def record(self):
        memory = self.torch.cuda.memory
        try:
            memory._record_memory_history(max_entries=HISTORY, stacks="python")
        except TypeError:  # PyTorch 2.0
            memory._record_memory_history(True, trace_alloc_max_entries=HISTORY, trace_alloc_record_context=True)

    def observe(self):
        if hasattr(self.torch._C, "_cuda_attach_out_of_memory_observer"):
            self.torch._C._cuda_attach_out_of_memory_observer(self.out_of_memory)
            self.observes = True

    def statistics(self, device):
        """Those of an allocator that has none are empty."""
        try:
            return self.torch.cuda.memory_stats(device)
        except RuntimeError:
            return {}

    def numbers(self):
        """What to write about the device with the highest peak."""
        cuda = self.torch.cuda
        best = None
        for device in range(cuda.device_count()):
            stats = self.statistics(device)
            peak = stats.get("reserved_bytes.all.peak", 0)
            if best is None or peak > best["peak_reserved"]:
                best = {
                    "device": device,
                    "peak_reserved": peak,
                    "peak_allocated": stats.get("allocated_bytes.all.peak", 0),
                    "allocated": stats.get("allocated_bytes.all.current", 0),
                    "reserved": stats.get("reserved_bytes.all.current", 0),
                    "alloc_retries": stats.get("num_alloc_retries", 0),
                    "num_ooms": stats.get("num_ooms", 0),
                }
        if best is not None:
            free, total = cuda.mem_get_info(best["device"])
            best.update(device_free=free, device_total=total)
        return best or {}

    def save(self, suffix, with_snapshot):
        with self.lock:
            values = dict(facts, **self.numbers())
            if with_snapshot:
                name = path(suffix + ".pickle")
                self.torch.cuda.memory._dump_snapshot(name + ".part")
                os.replace(name + ".part", name)
            write_text(path(suffix + ".txt"), values)

    def out_of_memory(self, device, size, device_size, device_free):
        self.ooms += 1
        facts["ooms"] = self.ooms
        facts["oom_request"] = size
        facts["oom_free"] = device_free
        facts["oom_device"] = device
        try:
            self.save(".oom", True)
        except Exception as error:
            note("hook_failed", repr(error))

    def ended_by(self, message):
        """The program ends by running out of memory: what nobody told us is in the message."""
        if self.observes or self.pid != os.getpid():
            return
        asked = re.search(r"Tried to allocate ([\d.]+) ([KMG]?)i?B", message)
        size = float(asked[1]) * 1024 ** " KMG".index(asked[2] or " ") if asked else 0
        device = self.torch.cuda.current_device()
        free, total = self.torch.cuda.mem_get_info(device)
        self.out_of_memory(device, int(size), total, free)

    def watch(self):
        """Numbers each second; a snapshot when that costs no more than a fiftieth of the time."""
        while True:
            time.sleep(1)
            now = time.monotonic()
            try:
                due = now - self.saved_at > 50 * self.save_cost + 5
                self.save("", due)
                if due:
                    self.saved_at = time.monotonic()
                    self.save_cost = self.saved_at - now
            except Exception:
                return  # the interpreter is going down

    def finish(self):
        if self.pid == os.getpid():
            try:
                facts["ended"] = 1
                self.save("", True)
            except Exception as error:
                note("hook_failed", repr(error))


def after_torch(torch):
    facts["torch"] = torch.__version__
    facts["command"] = " ".join(sys.argv)
    if torch.version.cuda is None:
        note("build", "rocm" if getattr(torch.version, "hip", None) else "cpu")
        return
    note("build", "cuda " + torch.version.cuda)
    global recorder
    recorder = Recorder(torch)
    torch.cuda._lazy_call(recorder.start)


class Lengths:
    """Whether the last length limit that was asked said "done", for each thread."""

    def __init__(self):
        self.of_thread = threading.local()

    def after_criteria(self, module):
        def wrap(cls):
            original = cls.__call__

            def call(criterion, ids, scores, **kwargs):
                done = original(criterion, ids, scores, **kwargs)
                limit = getattr(criterion, "max_length", None)
                if limit is not None and ids.shape[-1] >= limit:
                    self.of_thread.done = True
                return done

            cls.__call__ = call

        wrap(module.MaxLengthCriteria)

    def after_utils(self, module):
        original = module.GenerationMixin._has_unfinished_sequences

        def unfinished(model, *args, **kwargs):
            if getattr(self.of_thread, "done", False):
                self.of_thread.done = False
                return False
            return original(model, *args, **kwargs)

        module.GenerationMixin._has_unfinished_sequences = unfinished


def main():
    if FOLDER and "PLIMSOLL_SIM_STATE" in os.environ:
        lengths = Lengths()
        sys.meta_path.insert(0, plimsoll_hooks.AfterImport({
            "torch": after_torch,
            "transformers.generation.stopping_criteria": lengths.after_criteria,
            "transformers.generation.utils": lengths.after_utils,
        }, lambda error: note("hook_failed", repr(error))))
        remember_exception()
    plimsoll_hooks.run_hidden_sitecustomize(HERE)


main()
