#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plimsoll's allocator against PyTorch's on a real GPU: the same programs, their results checked, in one run.

    tests/oracle/alloc_gpu.py BUILD [--simulated] [--rounds N]

Each program runs in a process of its own under the default settings, expandable segments, Plimsoll's allocator for the
whole process, and as a memory pool. Results must be those of the default settings: equal where whole numbers are
moved about, within a thousandth where sums may come in another order. Prints one table, and exits with 1 when a
result differs or a program fails. With --simulated (BUILD's simulated GPU, kernels do nothing) results are not
compared: it shows that the script itself works.

Needs PyTorch with CUDA in the interpreter that runs it, and a build (`meson setup build && ninja -C build`).
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIDES = ("default", "expandable", "plimsoll", "pool")
MIB = 1 << 20


# ---- programs: each gives numbers that say whether memory was sound ----


def train(torch, rounds):
    """Transformer layers, batches of many lengths: the losses, and a sum over the parameters."""
    torch.manual_seed(1)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for step in range(20 * rounds):
        x = torch.randn(4, 64 + 37 * (step % 13), 512, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [sum(losses), sum(p.abs().sum().item() for p in model.parameters())]


def caches(torch, rounds):
    """Caches that grow by concatenation, some of which end; each holds its own number in every element."""
    live, wrong, seed = {}, 0, 12345
    for step in range(1500 * rounds):
        seed = (seed * 1103515245 + 12345) % (1 << 31)
        key = (seed >> 8) % 40
        if key in live and (seed >> 16) % 20 == 0:
            wrong += int((live.pop(key) != key).sum())
            continue
        new = torch.full(((8 if key in live else 40 + step % 30) * 16384,), key, dtype=torch.int16, device="cuda")
        live[key] = torch.cat([live[key], new]) if key in live else new
    return [wrong + sum(int((cache != key).sum()) for key, cache in live.items())]


def streams(torch, rounds):
    """Blocks that other streams still read when they are freed."""
    side = [torch.cuda.Stream() for _ in range(3)]
    sums = []
    for step in range(200 * rounds):
        block = torch.full(((1 + step % 9) * MIB,), step % 7, dtype=torch.int32, device="cuda")
        stream = side[step % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            block.record_stream(stream)
            sums.append((block.sum(), block.numel() * (step % 7)))
        del block
    torch.cuda.synchronize()
    return [sum(int(got) != want for got, want in sums)]


def graph(torch, rounds):
    """A captured graph, replayed while the rest of the memory is in use."""
    x = torch.ones(1 << 20, device="cuda")
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        (x * 2 + 1).relu_()
    torch.cuda.current_stream().wait_stream(warm)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = (x * 2 + 1).relu_()
    wrong = 0
    for step in range(50 * rounds):
        x.fill_(step)
        noise = [torch.full((n * MIB,), -1.0, device="cuda") for n in (1, 3, 5)]
        captured.replay()
        wrong += int((y != 2 * step + 1).sum())
        del noise
    return [wrong]


PROGRAMS = {"train": train, "caches": caches, "streams": streams, "graph": graph}
EXACT = ("caches", "streams", "graph")


# ---- one program in its process ----


def worker(name, side, rounds):
    import torch

    from plimsoll import alloc

    if side == "plimsoll":
        alloc.install()
    place = alloc.use() if side == "pool" else contextlib.nullcontext()
    start = time.monotonic()
    with place:
        result = PROGRAMS[name](torch, rounds)
        torch.cuda.synchronize()
    stats = alloc.memory_stats() if side == "plimsoll" else torch.cuda.memory_stats()
    print(json.dumps({"result": result, "seconds": time.monotonic() - start,
                      "live": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"]}))


def environment(build, side, simulated):
    if simulated:
        sys.path.insert(0, str(ROOT / "tests" / "integration"))
        import simgpu_env

        env = dict(simgpu_env.environment(str(build), gpu="24GiB"))
    else:
        env = dict(os.environ)
    env["PYTHONPATH"] = str(build / "python")
    env["PLIMSOLL_ALLOC_LIBRARY"] = str(build / "runtime" / "allocator" / "libplimsoll_alloc.so")
    env.pop("PYTORCH_ALLOC_CONF", None)
    env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if side == "expandable":
        env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return env


def run(options, name, side):
    command = [sys.executable, __file__, str(options.build), "--worker", name, side, "--rounds", str(options.rounds)]
    done = subprocess.run(command, env=environment(options.build, side, options.simulated), stdout=subprocess.PIPE,
                          text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def differs(name, got, want):
    """What a program gave against what it gave under the default settings, which must be sound itself."""
    if name in EXACT:
        return any(got) or any(want)
    return any(abs(a - b) > 1e-3 * abs(b) for a, b in zip(got, want))


def compare(options):
    bad = []
    print("| program | allocator | seconds | live, MiB | reserved, MiB | reserved / live | result |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for name in PROGRAMS:
        base = None
        for side in SIDES:
            out = run(options, name, side)
            base = base or out
            if out is None or base is None:
                verdict = "failed"
            elif options.simulated:
                verdict = "not compared"
            else:
                verdict = "differs" if differs(name, out["result"], base["result"]) else "same"
            if verdict in ("failed", "differs"):
                bad.append(f"{name} under {side}: {verdict}")
            figures = out or {"seconds": 0, "live": 0, "reserved": 0}
            ratio = figures["reserved"] / max(1, figures["live"])
            print(f"| {name} | {side} | {figures['seconds']:.2f} | {figures['live'] / MIB:.0f} | "
                  f"{figures['reserved'] / MIB:.0f} | {ratio:.3f} | {verdict} |", flush=True)
    print("\n" + "\n".join(bad or ["all programs ran"]))
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.build = options.build.resolve()
    if options.worker:
        worker(*options.worker, options.rounds)
        return 0
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
