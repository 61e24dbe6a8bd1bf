#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What attach costs: at the start of Python, in a loop that only allocates, and in training steps; ratios of one run.

    python3 tests/bench/bench_attach.py BUILD

Real PyTorch on the simulated GPU, whose kernels take no time: on a real one the shares are smaller. Everything is
run in turns, and the least of some runs counts.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import simgpu_env  # noqa: E402

ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from wheel import HOOK  # noqa: E402

ROUNDS = 20000  # small tensors in a loop
EVENTS = 3  # of each: alloc, free_requested, free_completed


def children_seconds():
    """Processor seconds of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start_cost(rounds):
    """Least processor seconds of an interpreter start: without the start hook, with it, and with it switched on."""
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder)
        (site / "hook").mkdir()
        (site / "none").mkdir()
        (site / "hook" / "plimsoll-attach.pth").write_text(HOOK)
        best = {}
        cases = {"none": ("none", {}), "unset": ("hook", {}), "on": ("hook", {"PLIMSOLL_ATTACH": "1"})}
        for _ in range(rounds):
            for name, (where, more) in cases.items():
                code = f"import site; site.addsitedir({str(site / where)!r})"
                env = dict(os.environ, PYTHONPATH=str(ROOT / "python"), **more)
                begin = children_seconds()
                subprocess.run([sys.executable, "-c", code], env=env, check=True)
                best[name] = min(best.get(name, 9e9), children_seconds() - begin)
    return best


def loops(build):
    """Least seconds of each loop in each form of attach: attach_programs.py, cost."""
    with tempfile.TemporaryDirectory() as folder:
        env = simgpu_env.environment(build, gpu="24GiB")
        env.update(PYTHONPATH=str(pathlib.Path(build).resolve() / "python"), PLIMSOLL_RECORD_DIR=folder)
        python = subprocess.run([str(ROOT / "tools" / "oracle_env.sh")], stdout=subprocess.PIPE, check=True)
        result = subprocess.run([python.stdout.decode().strip(), str(HERE.parent / "integration" / "attach_programs.py"),
                                 "cost", str(ROUNDS)], stdout=subprocess.PIPE, env=env, check=True)
    return json.loads(result.stdout)


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PLIMSOLL_BUILD", str(ROOT / "build"))
    start = start_cost(40)
    print(f"start of Python: hook unset {start['unset'] / start['none']:.3f} of none ({start['none'] * 1e3:.1f} ms), "
          f"on {(start['on'] - start['none']) * 1e3:+.1f} ms")
    seconds = loops(build)
    for name in ("sampling", "history, no stacks", "history"):
        small, step = (seconds[f"{name}/{loop}"] / seconds[f"nothing/{loop}"] for loop in ("small", "step"))
        more = (seconds[f"{name}/small"] - seconds["nothing/small"]) / (ROUNDS * EVENTS)
        print(f"{name:20} small tensors {small:.2f} ({more * 1e6:+.2f} us an event), training step {step:.2f}")


if __name__ == "__main__":
    main()
