#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the recorder adds to a call, and to PyTorch: the same loops on the simulated device with it and without it.

    python3 tests/bench/bench_recorder.py BUILD PROGRAM [--torch]

PROGRAM is bench_recorder. Everything is run in turns, and the least of some runs counts: what others do on the machine
only makes a run slower. --torch adds real PyTorch (tools/oracle_env.sh). On a real device a call takes longer, by far:
what is added to it is the same, and its share is smaller. Exit status 1 when a limit is passed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import simgpu_env  # noqa: E402

RUNS = 7
PAIRS = "200"  # rounds of 100 pairs of calls
RING = str(1 << 18)  # events: all of a run find room
KINDS = {"off": {"PLIMSOLL_RECORD": "0"}, "no stacks": {}, "cached stacks": {"PLIMSOLL_RECORD_STACKS": "cached"},
         "full stacks": {"PLIMSOLL_RECORD_STACKS": "full"}}
TORCH_KINDS = ("off", "no stacks", "cached stacks")
LIMIT_NS = {"off": 20, "no stacks": 100, "cached stacks": 1000}
TORCH_LIMIT = 0.01  # of the time of a loop

TORCH = """
import json, os, time, torch
from torch import nn
torch.cuda.init()
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(16)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.zeros(8, 256, device="cuda")
def small():
    for _ in range(20000):
        torch.empty(1024, device="cuda")
def large():
    for i in range(5000):
        torch.empty(((i * 7919) % 64 + 1) << 20, dtype=torch.uint8, device="cuda")
def driver():
    for i in range(300):
        torch.empty(((i * 7919) % 64 + 1) << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()
def step():
    for _ in range(20):
        model(data).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
def events():
    where = os.environ.get("PLIMSOLL_RECORD_DIR", "/nowhere")
    for name in os.listdir(where) if os.path.isdir(where) else []:
        if name.startswith(f"{os.getpid()}-") and name.endswith(".plimshm"):
            with open(os.path.join(where, name), "rb") as file:
                file.seek(512)  # struct plim_shm_head, head
                return int.from_bytes(file.read(8), "little")
    return 0
best = {}
for _ in range(7):
    for loop in (small, large, step, driver):
        before, begin = events(), time.process_time()
        loop()
        seconds = time.process_time() - begin
        best[loop.__name__] = min(best.get(loop.__name__, 9e9), seconds)
        best["events of " + loop.__name__] = events() - before
print(json.dumps(best), flush=True)
os._exit(0)  # threads of the autograd engine may end a busy machine's interpreter with an abort, recorded or not
"""


def preload(env, build, kind, folder):
    """The environment with the recorder in front; kind None: without it."""
    env = dict(env)
    if kind is not None:
        recorder = pathlib.Path(build).resolve() / "runtime" / "recorder" / "libplimsoll_record.so"
        env["LD_PRELOAD"] = ":".join(filter(None, [str(recorder), env.get("LD_PRELOAD")]))
        env.update(KINDS[kind], PLIMSOLL_RECORD_DIR=folder, PLIMSOLL_RECORD_RING=RING)
    return env


def run(command, env, build, kind):
    """Standard output of a command under one kind of recording; its ring goes with it."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        done = subprocess.run(command, env=preload(env, build, kind, folder), stdout=subprocess.PIPE, check=True)
        if kind not in (None, "off") and not any(name.endswith(".plimshm") for name in os.listdir(folder)):
            sys.exit(f"nothing was recorded with {kind}")
    return done.stdout.decode()


def in_turns(command, env, build, kinds, read):
    """Least figure of each loop: {kind: {loop: figure}}."""
    best = {kind: {} for kind in kinds}
    for _ in range(RUNS):
        for kind in kinds:
            for name, figure in read(run(command, env, build, kind)).items():
                best[kind][name] = min(best[kind].get(name, 9e18), figure)
    return best


def lines(text):
    return {line.split()[0]: float(line.split()[2]) for line in text.splitlines()}


def calls(build, program):
    env = dict(os.environ, LD_LIBRARY_PATH=str(pathlib.Path(build).resolve() / "runtime" / "simgpu" / "shells"))
    best = in_turns([program, PAIRS], env, build, [None, *KINDS], lines)
    good = True
    for kind in KINDS:
        for name, bare in best[None].items():
            added = best[kind][name] - bare
            over = added > LIMIT_NS.get(kind, 1e9)
            good &= not over
            print(f"{name:14} {kind:14} {bare:7.1f} ns + {added:7.1f} ns  x{best[kind][name] / bare:.2f}"
                  f"{'  TOO SLOW' if over else ''}")
    return good


def torch_loops(build):
    """Ratios, which vary by some per cent with where the loader puts things, also of the object that is switched off;
    and what the recorded calls cost at most, which does not."""
    python = subprocess.run([str(HERE.parent.parent / "tools" / "oracle_env.sh")], stdout=subprocess.PIPE, check=True)
    env = simgpu_env.environment(build, gpu="24GiB")
    command = [python.stdout.decode().strip(), "-c", TORCH]
    best = in_turns(command, env, build, [None, *TORCH_KINDS], json.loads)
    good = True
    for kind in TORCH_KINDS:
        for name in ("small", "large", "step", "driver"):
            seconds, calls = best[None][name], best[kind]["events of " + name]
            share = calls * LIMIT_NS["no stacks"] * 1e-9 / seconds
            over = share >= TORCH_LIMIT and name != "driver"  # whose calls cost nothing here but what is added
            good &= not over
            print(f"torch {name:8} {kind:14} {seconds:.4f} s x{best[kind][name] / seconds:.3f}, {calls} calls: "
                  f"at most {share:.3%}{'  TOO SLOW' if over else ''}")
    return good


def main():
    build, program = sys.argv[1], sys.argv[2]
    good = calls(build, program)
    if "--torch" in sys.argv[3:]:
        good = torch_loops(build) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
