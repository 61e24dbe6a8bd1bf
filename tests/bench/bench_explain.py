#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times `plimsoll explain`: one pasted message against starting Python, a large log against grep.

usage: bench_explain.py PLIMSOLL [--log-bytes N] [--rounds N] [--folder DIR]

All runs alternate, so that a busy machine is unfair to all of them; the best of the rounds counts. Process
start is included everywhere. Prints seconds and ratios.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

MESSAGE = pathlib.Path(__file__).resolve().parent.parent / "data" / "oom" / "pytorch-fragmented.txt"

# Lines of servers and trainers in the proportions of a busy vLLM node.
LINES = [
    "INFO 05-01 12:{m:02d}:{s:02d} [loggers.py:116] Engine 000: Avg prompt throughput: {a:.1f} tokens/s, "
    "Avg generation throughput: {b:.1f} tokens/s, Running: {r} reqs, Waiting: 0 reqs, GPU KV cache usage: "
    "{c:.1f}%, Prefix cache hit rate: 0.0%\n",
    "INFO:     10.0.{r}.{s}:{a:.0f} - \"POST /v1/chat/completions HTTP/1.1\" 200 OK\n",
    "(EngineCore_DP0 pid=4242) INFO 05-01 12:{m:02d}:{s:02d} [scheduler.py:{r}] Added request "
    "chatcmpl-{h:032x} with {r} tokens\n",
    "2026-05-01 12:{m:02d}:{s:02d},123 - trainer - INFO - step {r} loss={c:.4f} lr=1e-4 memory allocated "
    "23.1GB reserved 30.2GB\n",
]


def run(command, stdin=None):
    """(wall seconds, CPU seconds) of one process, start to end."""
    with open(stdin or os.devnull, "rb") as source:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=source, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command[0]} failed"
    return seconds, usage.ru_utime + usage.ru_stime


def race(rows, rounds):
    """Best wall and CPU seconds of each command, alternating."""
    best = {name: (float("inf"), float("inf")) for name in rows}
    for _ in range(rounds):
        for name, (command, stdin) in rows.items():
            best[name] = tuple(map(min, best[name], run(command, stdin)))
    return best


def report(title, best, ours):
    print(title)
    for name, (wall, cpu) in best.items():
        print("  %-24s %8.4f s wall  %8.4f s CPU  %6.2f times as long" %
              (name, wall, cpu, wall / best[ours][0]))


def write_log(path, size):
    """`size` bytes of ordinary lines with one failure at the end."""
    rng = random.Random(1)
    block = "".join(rng.choice(LINES).format(m=rng.randrange(60), s=rng.randrange(60),
                                             a=rng.random() * 9999, b=rng.random() * 99,
                                             c=rng.random() * 100, r=rng.randrange(256),
                                             h=rng.getrandbits(128)) for _ in range(20000)).encode()
    with open(path, "wb") as log:
        for _ in range(size // len(block) + 1):
            log.write(block)
        log.write(MESSAGE.read_bytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plimsoll")
    parser.add_argument("--log-bytes", type=int, default=1_000_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder")
    args = parser.parse_args()
    small = race({
        "plimsoll explain": ([args.plimsoll, "explain", "-"], MESSAGE),
        "python3 -c pass": (["/usr/bin/python3", "-c", "pass"], None),
        "grep -c": (["grep", "-c", "out of memory"], MESSAGE),
    }, args.rounds * 20)
    report("one pasted message, process start included:", small, "plimsoll explain")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        log = os.path.join(folder, "server.log")
        write_log(log, args.log_bytes)
        words = "out of memory|failed to allocate|killed|cuda error|not enough memory"
        large = race({
            "plimsoll explain": ([args.plimsoll, "explain", log], None),
            "grep -ciE of 5 phrases": (["grep", "-ciE", words, log], None),
            "wc -l": (["wc", "-l", log], None),
        }, args.rounds)
        report("a log of %.0f MB, page cache warm:" % (os.path.getsize(log) / 1e6), large,
               "plimsoll explain")
    limit = 0.005
    seconds = small["plimsoll explain"][0]
    print("one message in %.2f ms, limit %.0f ms: %s" %
          (seconds * 1e3, limit * 1e3, "ok" if seconds < limit else "too slow"))
    return 0 if seconds < limit else 1


if __name__ == "__main__":
    sys.exit(main())
