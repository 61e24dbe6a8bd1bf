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
TORCH_RUNS = 12  # a process has its luck with addresses: it may be 2 % faster or slower throughout
PAIRS = "200"  # rounds of 100 pairs of calls
RING = str(1 << 18)  # events: all of a run find room
KINDS = {"off": {"PLIMSOLL_RECORD": "0"}, "no stacks": {}, "cached stacks": {"PLIMSOLL_RECORD_STACKS": "cached"},
         "full stacks": {"PLIMSOLL_RECORD_STACKS": "full"}}
LIMIT_NS = {"off": 20, "no stacks": 100, "cached stacks": 1000}
TORCH_LIMIT = 1.01

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
best = {}
for _ in range(7):
    for loop in (small, large, step, driver):
        begin = time.process_time()
        loop()
        best[loop.__name__] = min(best.get(loop.__name__, 9e9), time.process_time() - begin)
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


def in_turns(command, env, build, kinds, read, runs=RUNS):
    """Least figure of each loop: {kind: {loop: figure}}."""
    best = {kind: {} for kind in kinds}
    for _ in range(runs):
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
    python = subprocess.run([str(HERE.parent.parent / "tools" / "oracle_env.sh")], stdout=subprocess.PIPE, check=True)
    env = simgpu_env.environment(build, gpu="24GiB")
    best = in_turns([python.stdout.decode().strip(), "-c", TORCH], env, build, [None, "no stacks", "cached stacks"],
                    json.loads, TORCH_RUNS)
    good = True
    for kind in ("no stacks", "cached stacks"):
        for name, bare in best[None].items():
            ratio = best[kind][name] / bare
            over = ratio >= TORCH_LIMIT and name != "driver"  # whose calls cost nothing here but what is added
            good &= not over
            print(f"torch {name:8} {kind:14} {bare:.4f} s x{ratio:.4f}{'  TOO SLOW' if over else ''}")
    return good


def main():
    build, program = sys.argv[1], sys.argv[2]
    good = calls(build, program)
    if "--torch" in sys.argv[3:]:
        good = torch_loops(build) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
