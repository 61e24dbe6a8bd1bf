#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `soak` is: a day of conversation traffic, and the same allocation stream on the real allocator.

    tests/bench/bench_soak.py BUILD CONFIG

Prints seconds of one processor for 24 hours of Azure conversation traffic through a paged engine, then
nanoseconds for each allocation with its free: the whole simulation of a Hugging Face server on the model, and
PyTorch's allocator alone (libc10_cuda of torch 2.14.1, by its C++ entry points, on the simulated device)
playing the same stream. Needs the environment of tools/oracle_env.sh for the second part.
"""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from simgpu_env import environment  # noqa: E402


def peer(folder):
    """Compile the real side against the wheel; the path of the program."""
    python = subprocess.run([ROOT / "tools" / "oracle_env.sh"], check=True, stdout=subprocess.PIPE,
                            text=True).stdout.strip().splitlines()[-1]
    found = subprocess.run([python, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"],
                           check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    torch = pathlib.Path(found).parent
    out = pathlib.Path(folder) / "bench_soak_real"
    subprocess.run(["c++", "-std=c++20", "-O2", f"-I{ROOT / 'tests' / 'oracle' / 'cuda'}",
                    f"-isystem{torch / 'include'}", HERE / "bench_soak_real.cpp", f"-L{torch / 'lib'}", "-lc10_cuda",
                    "-lc10", f"-Wl,-rpath,{torch / 'lib'}", "-Wl,--allow-shlib-undefined", "-o", out], check=True)
    return out


def numbers(command, **options):
    return [float(x) for x in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                                             **options).stdout.split()]


def main():
    build, config = pathlib.Path(sys.argv[1]), sys.argv[2]
    bench = build / "tests" / "bench" / "bench_soak"
    seconds, arrivals, steps, allocations, _ = numbers([bench, "day", config])
    print(f"day     {seconds:.2f} s for 24 h: {arrivals:.0f} requests, {steps:.0f} steps, "
          f"{allocations:.0f} allocations (at most 10 s)")
    with tempfile.TemporaryDirectory() as folder:
        stream = pathlib.Path(folder) / "stream"
        model = numbers([bench, "stream", config, stream])[4]
        real, count = numbers([peer(folder), stream], env=environment(build, gpu="40GiB", context="500MiB"))
        print(f"stream  {count:.0f} allocations: soak {model:.1f} ns each, torch 2.14.1's allocator {real:.1f} ns; "
              f"ratio {real / model:.1f}")
    return 0 if seconds <= 10 else 1


if __name__ == "__main__":
    sys.exit(main())
