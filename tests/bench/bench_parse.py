#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times `plimsoll diagnose --no-replay` on big snapshots against Python's pickle.load alone.

usage: bench_parse.py PLIMSOLL [--events N]... [--rounds N] [--folder DIR] [--no-python]

For each size it writes a snapshot (gen_snapshot.py), then runs, alternating, so that a busy machine is
unfair to all of them: pickle.load as people call it, pickle.load with the garbage collector off, and the
program from its start to its end. Prints the best of the rounds by the clock and in processor time (user and
system; what counts on a busy machine), ratios, and peak memory against the file.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LOAD = ("import gc, pickle, sys, time\n"
        "if sys.argv[2] == 'off': gc.disable()\n"
        "f = open(sys.argv[1], 'rb'); t = time.perf_counter(); c = time.process_time(); x = pickle.load(f)\n"
        "print(time.perf_counter() - t, time.process_time() - c, flush=True)\n"
        "import os; os._exit(0)\n")


def python_seconds(path, collector):
    run = subprocess.run([sys.executable, "-c", LOAD, path, collector], check=True,
                         capture_output=True, text=True)
    wall, processor = run.stdout.split()
    return float(wall), float(processor)


def program(plimsoll, path):
    """((seconds, processor seconds), peak bytes) of one diagnosis, process start included."""
    start = time.perf_counter()
    process = subprocess.Popen([plimsoll, "diagnose", "--no-replay", path], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, "the program failed"
    return (seconds, usage.ru_utime + usage.ru_stime), usage.ru_maxrss * 1024


def best(pairs):
    """The smallest of each column."""
    return [min(column) for column in zip(*pairs)]


def bench(args, events, folder):
    path = os.path.join(folder, "bench.pickle")
    subprocess.run([sys.executable, os.path.join(HERE, "gen_snapshot.py"), "--events", str(events),
                    path], check=True)
    size = os.path.getsize(path)
    ours, peak, on, off = [], 0, [], []
    for _ in range(args.rounds):
        seconds, bytes_ = program(args.plimsoll, path)
        ours.append(seconds)
        peak = max(peak, bytes_)
        if not args.no_python:
            off.append(python_seconds(path, "off"))
            on.append(python_seconds(path, "on"))
    wall, processor = best(ours)
    print("%d entries, file of %.0f MB:        by the clock          processor time" % (events, size / 1e6))
    print("  plimsoll diagnose --no-replay    %7.3f s               %7.3f s  (%.0f ns an entry)" %
          (wall, processor, processor / events * 1e9))
    for name, runs in (("pickle.load", on), ("pickle.load, no gc", off)) if on else ():
        w, p = best(runs)
        print("  %-30s   %7.3f s %5.1f times   %7.3f s %5.1f times" % (name, w, w / wall, p, p / processor))
    print("  peak memory                      %7.0f MB  %.2f of the file" % (peak / 1e6, peak / size))
    os.unlink(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plimsoll")
    parser.add_argument("--events", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where the big file goes (a temporary folder)")
    parser.add_argument("--no-python", action="store_true", help="time the program alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for events in args.events or [1500000]:
            bench(args, events, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
