#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots whose cause is known by construction, made by the real PyTorch on a simulated GPU.

    python3 tests/integration/simgpu_env.py BUILD -- PYTHON tests/oracle/scenarios.py OUT [NAME ...]
    (or --part=I/N in the place of names: the I-th of N parts of all scenes)

Each scene is a small program in tests/oracle/scenes/ that ends in an out-of-memory error or not. For each,
OUT/NAME.pickle is what _dump_snapshot() writes and OUT/NAME.json tells the truth: the class that is right,
other classes that a careful reader may give from the same data (with the reason in `why`), the device's
size, what was free, and the error's message.

A scene runs in a forked child of a process that has imported torch but not touched a device.
"""

import ctypes
import gc
import importlib
import json
import os
import sys
import traceback

import torch

MIB, GIB = 1 << 20, 1 << 30
SCENES = {}
FAMILIES = ("capacity", "leak", "fragmentation", "external", "healthy", "later")


def scene(expect, also=(), gpu="24GiB", why="", conf="", device=0, history=None, give_external=False, **sim):
    """Register a scene: `expect` is the class by construction, `also` other acceptable ones.

    history: keyword arguments of _record_memory_history, or False for none. sim: PLIMSOLL_SIM_* settings.
    give_external: hand the external bytes to the reader as well.
    """
    def register(function):
        SCENES[function.__name__] = dict(
            run=function, expect=expect, also=list(also), gpu=gpu, why=why or function.__doc__, conf=conf,
            device=device, history=history, sim=sim, family=function.__module__.split(".")[-1],
            give_external=give_external)
        return function
    return register


def in_file(path):
    """Give a function's code another file name, as if it lay in that file of an application."""
    def move(code):
        consts = tuple(move(c) if hasattr(c, "co_filename") else c for c in code.co_consts)
        return code.replace(co_filename=path, co_consts=consts)

    def decorate(thing):
        for item in vars(thing).values() if isinstance(thing, type) else [thing]:
            if hasattr(item, "__code__"):
                item.__code__ = move(item.__code__)
        return thing
    return decorate


def mem(mib, device="cuda"):
    """A tensor of that many MiB."""
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=device)


def driver_alloc(size, device=0):
    """Device memory that PyTorch's allocator does not know of; never freed."""
    runtime = ctypes.CDLL(None)
    out = ctypes.c_void_p()
    torch.cuda.synchronize(device)
    if runtime.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(size)) != 0:
        raise RuntimeError("cudaMalloc failed")


def start_history(setting):
    if setting is not False:
        torch.cuda.memory._record_memory_history(**{"max_entries": 200000, "stacks": "python", **(setting or {})})


def perform(name, out):
    """Run one scene in this process and write its two files."""
    s = SCENES[name]
    torch.cuda.init()
    start_history(s["history"])
    message = None
    path = os.path.join(out, name + ".pickle")
    try:
        kept = s["run"]()
    except torch.OutOfMemoryError as e:
        message = str(e)
        torch.cuda.memory._dump_snapshot(path)
    else:
        if isinstance(kept, dict) and "message" in kept:
            message = kept["message"]
        torch.cuda.memory._dump_snapshot(path)
    free, total = torch.cuda.mem_get_info(s["device"])
    stats = torch.cuda.memory_stats(s["device"])
    reserved = stats["reserved_bytes.all.current"]
    truth = {k: s[k] for k in ("expect", "also", "why", "family", "device", "conf", "give_external")}
    truth.update(total=total, free=free, reserved=reserved, external=total - free - reserved, message=message,
                 ooms=stats["num_ooms"], retries=stats["num_alloc_retries"])
    with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(truth, f, indent=1)


def run_in_child(name, out):
    """True when the scene ran to its end."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            s = SCENES[name]
            os.environ["PLIMSOLL_SIM_GPU"] = s["gpu"]
            os.environ.update({"PLIMSOLL_SIM_" + k.upper(): str(v) for k, v in s["sim"].items()})
            if s["conf"]:
                os.environ["PYTORCH_ALLOC_CONF"] = s["conf"]
            perform(name, out)
            code = 0
        except BaseException:  # the child must never return into the parent's loop
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def load_scenes():
    sys.modules.setdefault("scenarios", sys.modules[__name__])
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    for family in FAMILIES:
        importlib.import_module("scenes." + family)


def main(argv):
    load_scenes()
    out = argv[1]
    os.makedirs(out, exist_ok=True)
    names = argv[2:] or list(SCENES)
    if names[0].startswith("--part="):
        part, parts = map(int, names[0][7:].split("/"))
        names = list(SCENES)[part::parts]
    gc.freeze()
    bad = [name for name in names if not run_in_child(name, out)]
    print(f"{len(names) - len(bad)} scenes in {out}" + (f"; failed: {' '.join(bad)}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
