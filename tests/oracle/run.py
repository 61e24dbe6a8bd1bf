#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the allocator model with the real PyTorch allocator, event by event.

    tests/oracle/run.py BUILD [--only TEXT] [--ops N] [--seed N] [--keep FOLDER]
    tests/oracle/run.py BUILD --settings      the settings parser, on random strings
    tests/oracle/run.py BUILD --bench         nanoseconds for each call, and the ratio

Needs the environment of tools/oracle_env.sh. The real side is compiled here, against the headers of
the wheel; it runs on the simulated device with the same clock, addresses and capacity as the model.
Prints TAP. A difference is shown with what came before it. Standard library only.
"""

import argparse
import itertools
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from simgpu_env import environment  # noqa: E402

GIB = 1 << 30
CONTEXT = 500 << 20
SEED = 1

# ---- what is compared -----------------------------------------------------------------------------

EXPAND = "expandable_segments:True"
ORDINARY = "expandable_segments:False"
SETTINGS = [
    "",
    EXPAND,
    "max_split_size_mb:64",
    f"max_split_size_mb:32,{EXPAND}",
    "garbage_collection_threshold:0.5",
    f"garbage_collection_threshold:0.5,{EXPAND}",
    "roundup_power2_divisions:4",
    f"roundup_power2_divisions:[1:8,4:2,16:4,>:8],{EXPAND}",
    "large_segment_size_mb:64",
    f"large_segment_size_mb:30,{EXPAND}",
    "max_non_split_rounding_mb:40,max_split_size_mb:40",
    "per_process_memory_fraction:0.7,throw_on_cudamalloc_oom:True",
]
RARE = {"empty": 1, "fraction": 2, "burst": 4, "reset": 8, "pools": 16, "capture": 32}
USUAL = 15
SHAPES = [
    {"sizes": "edge"},
    {"sizes": "small"},
    {"sizes": "shapes", "descending": 1},
    {"sizes": "huge"},
    {"sizes": "mixed", "streams": 3, "lag": 30, "descending": 1},
    {"sizes": "mixed", "streams": 6, "lag": 100},
    {"sizes": "edge", "streams": 3, "pools": 3, "external": 200 << 20},
]
# Pools that come and go. Not with expandable segments: there PyTorch 2.14.1 itself runs into an
# internal assertion (cudaMalloc_count > 0) or a crash, because a growth counts once for several unmaps.
POOLS = {"sizes": "mixed", "streams": 4, "pools": 3, "rare": USUAL | RARE["pools"]}
# Captures. Not with settings that give memory back before a request is retried: the driver forbids that
# while it captures, so the program would fail.
CAPTURE = {"sizes": "mixed", "streams": 3, "pools": 1, "rare": USUAL | RARE["capture"]}
SWITCH = [  # settings that change back and forth at run time
    {"conf": ORDINARY, "conf2": EXPAND},
    {"conf": ORDINARY, "conf2": EXPAND, "streams": 3, "pools": 3, "sizes": "edge"},
    {"conf": EXPAND, "conf2": f"garbage_collection_threshold:0.4,{ORDINARY}", "descending": 1},
    {"conf": f"{ORDINARY},roundup_power2_divisions:4", "conf2": EXPAND, "streams": 2, "pools": 2},
    {"conf": "", "conf2": "roundup_power2_divisions:8", "sizes": "shapes"},
]


def combinations():
    for shape, conf in itertools.product(SHAPES, SETTINGS):
        yield {**shape, "conf": conf}
    for conf in SETTINGS:
        if EXPAND not in conf:
            yield {**POOLS, "conf": conf}
        if "split_size" not in conf and "garbage" not in conf:
            yield {**CAPTURE, "conf": conf}
    yield from SWITCH


# ---- records --------------------------------------------------------------------------------------

TAGS = "? result call event text stat scalar segment block op".split()
CALLS = ("cudaMalloc cudaFree cudaMemGetInfo cuMemAddressReserve cuMemAddressFree cuMemCreate "
         "cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cudaStreamSynchronize cudaEventRecord "
         "cudaEventQuery cudaEventSynchronize").split()
ACTIONS = ("alloc free_requested free_completed segment_alloc segment_free segment_map "
           "segment_unmap snapshot oom annotate").split()
STATS = ("allocation allocated_bytes active active_bytes requested_bytes segment reserved_bytes "
         "inactive_split inactive_split_bytes oversize").split()


def words(record):
    tag, a, b, c, d = record
    if tag == 2:
        return f"call {CALLS[a]} {b:#x} {c} {'failed' if d else ''}"
    if tag == 3:
        return f"event {ACTIONS[a]} {b:#x} {c} stream {d >> 16} pool {d & 0xffff}"
    if tag == 4:
        text = struct.pack("<3Q", a, b, c).rstrip(b"\0").decode(errors="replace")
        return f"text '{text}'"
    return f"{TAGS[tag]} {a:#x} {b} {c} {d}"


def records(path):
    data = path.read_bytes()
    return list(struct.iter_unpack("<5Q", data[:len(data) // 40 * 40]))


def difference(real, model):
    """The first difference between two logs, in words; [] when they are equal."""
    if real.read_bytes() == model.read_bytes():
        return []
    a, b = records(real), records(model)
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    lines = [f"record {at} of {len(a)} (real) and {len(b)} (model)"]
    lines += ["        " + words(r) for r in a[max(0, at - 12):at]]
    lines += ["real    " + words(r) for r in a[at:at + 5]] + ["model   " + words(r) for r in b[at:at + 5]]
    first = at
    while first > 0 and a[first - 1][0] == 5:
        first -= 1
    if at < len(a) and a[at][0] == 5 and first < at:
        lines.append(f"statistic {STATS[min((at - first) // 3, len(STATS) - 1)]}")
    return lines


# ---- running --------------------------------------------------------------------------------------


def real_program(folder):
    """Compile the real side against the wheel; the path of the program."""
    python = subprocess.run([ROOT / "tools" / "oracle_env.sh"], check=True, stdout=subprocess.PIPE,
                            text=True).stdout.strip().splitlines()[-1]
    torch = subprocess.run([python, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"],
                           check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    torch = pathlib.Path(torch).parent
    out = pathlib.Path(folder) / "oracle_real"
    workload = pathlib.Path(folder) / "workload.o"
    subprocess.run(["cc", "-O2", "-g", "-c", HERE / "workload.c", "-o", workload], check=True)
    subprocess.run(["c++", "-std=c++20", "-O2", "-g", f"-I{HERE / 'cuda'}", f"-I{ROOT / 'include'}",
                    f"-I{HERE}", f"-isystem{torch / 'include'}", HERE / "real.cpp", workload,
                    f"-L{torch / 'lib'}", "-lc10_cuda", "-lc10", f"-Wl,-rpath,{torch / 'lib'}",
                    "-Wl,--allow-shlib-undefined", "-ldl", "-lm", "-pthread", "-o", out], check=True)
    return out


def real_environment(build, combo, bench=False):
    env = environment(build, gpu=combo.get("total", 2 * GIB), context=CONTEXT,
                      external=combo.get("external", 0), clock="manual", event_lag=combo.get("lag", 10),
                      addresses="descending" if combo.get("descending") else "ascending")
    if not bench:
        env["PLIMSOLL_SIM_LOG"] = "memory"
    env["PYTORCH_CUDA_ALLOC_CONF"] = combo.get("conf", "")
    return env


class Programs:
    def __init__(self, build, folder):
        self.build = build
        self.folder = pathlib.Path(folder)
        self.model = pathlib.Path(build) / "tests" / "oracle" / "oracle_model"
        self.real = real_program(folder)

    def both(self, combo, log=True):
        """Run both sides; their outputs and the paths of their logs. Raises RuntimeError."""
        arguments = [f"{key}={value}" for key, value in combo.items()]
        logs = [self.folder / "real.log", self.folder / "model.log"]
        errors = self.folder / "real.err"
        outputs = []
        with open(errors, "w", encoding="utf-8") as stderr:
            real = subprocess.Popen([self.real, logs[0] if log else "-", *arguments], text=True,
                                    env=real_environment(self.build, combo, not log),
                                    stdout=subprocess.PIPE, stderr=stderr, errors="replace")
            if not log:  # timing: one after the other
                outputs = [real.communicate()]
            model = subprocess.Popen([self.model, logs[1] if log else "-", *arguments], text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")
            outputs += [real.communicate()] if log else []
            outputs.append(model.communicate())
        if real.returncode:
            tail = errors.read_text(encoding="utf-8", errors="replace")
            what = [line for line in tail.splitlines() if "what()" in line]
            raise RuntimeError(f"the real side ended with {real.returncode}: {what or tail[-500:]}")
        if model.returncode:
            raise RuntimeError(f"the model ended with {model.returncode}: {outputs[1][1]}")
        return [output[0] for output in outputs], logs

    def real_alone(self, combo):
        """What the real side prints when nothing is compared: nanoseconds for each call."""
        return subprocess.run([self.real, "-", *[f"{key}={value}" for key, value in combo.items()]], text=True,
                              env=real_environment(self.build, combo, True), stdout=subprocess.PIPE, check=True).stdout

    def plugin(self, combo):
        """What the side of the plug-in prints: nanoseconds for each call."""
        env = real_environment(self.build, combo, True)
        env["PLIMSOLL_ALLOC_LIBRARY"] = str(pathlib.Path(self.build) / "runtime" / "allocator" / "libplimsoll_alloc.so")
        program = pathlib.Path(self.build) / "tests" / "oracle" / "oracle_plugin"
        return subprocess.run([program, "-", *[f"{key}={value}" for key, value in combo.items()]], env=env, text=True,
                              stdout=subprocess.PIPE, check=True).stdout


def compare(programs, options):
    chosen = [c for c in combinations() if not options.only or options.only in str(c)]
    print(f"1..{len(chosen) + 1}")
    failed = events = calls = 0
    for number, combo in enumerate(chosen, 1):
        combo = {"seed": options.seed + number, "ops": options.ops, **combo}
        name = " ".join(f"{k}={v}" for k, v in combo.items())
        try:
            outputs, logs = programs.both(combo)
            lines = difference(*logs)
            counts = outputs[0].split()
            events += int(counts[0])
            calls += int(counts[2])
        except RuntimeError as error:
            lines = [str(error)]
        failed += bool(lines)
        print(f"{'not ' if lines else ''}ok {number} - {name}")
        for line in lines:
            print(f"# {line}")
        sys.stdout.flush()
    enough = bool(options.only) or (events >= 2_000_000 and len(chosen) >= 60)
    print(f"{'' if enough else 'not '}ok {len(chosen) + 1} - enough was compared")
    print(f"# {events} events and {calls} driver calls in {len(chosen)} combinations")
    return 1 if failed or not enough else 0


# ---- the settings parser --------------------------------------------------------------------------

KEYS = ("max_split_size_mb garbage_collection_threshold roundup_power2_divisions expandable_segments "
        "max_non_split_rounding_mb large_segment_size_mb pinned_use_background_threads "
        "pinned_max_round_threshold_mb pinned_max_cached_size_mb backend release_lock_on_cudamalloc "
        "release_lock_on_hipmalloc pinned_use_cuda_host_register pinned_use_hip_host_register "
        "pinned_num_register_threads pinned_reserve_segment_size_mb pinned_free_catch_all "
        "graph_capture_record_stream_reuse per_process_memory_fraction throw_on_cudamalloc_oom foo "
        "expandable_segment").split()
LISTS = ("[1:2,4:8] [256:1,512:2,1024:4,>:8] [2:4,8:2] [>:4] [3:1] [1:3] [1:2 [1:2,] [] [1] [1:2,>] "
         "[100000:4] [1048576:2,>:4]").split()
VALUES = ("True False true 1 0 2 3 8 10 11 19 20 21 32 64 64.7 128 129 256 -1 0.5 0.0 1.0 0.99 1.5 x "
          "native 0x10 99999999999999999999 1e-3 nan").split() + LISTS + ["", " 64 ", "64 mb", "[1:2 4:8]"]


def random_setting(rng):
    parts = []
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        key = rng.choice(KEYS)
        likely = {
            "max_split_size_mb": str(rng.randint(18, 300)),
            "garbage_collection_threshold": f"{rng.random():.3f}",
            "roundup_power2_divisions": rng.choice(LISTS),
            "large_segment_size_mb": str(rng.randint(9, 64)),
            "max_non_split_rounding_mb": str(rng.randint(18, 100)),
            "pinned_num_register_threads": rng.choice(["1", "4", "128", "256", "5"]),
            "per_process_memory_fraction": f"{rng.random() * 1.1:.3f}",
            "backend": "native",
        }.get(key, rng.choice(["True", "False"]))
        value = likely if rng.random() < 0.6 else rng.choice(VALUES)
        parts.append(key + rng.choice([":"] * 8 + ["", " : ", ",", "::"]) + value)
    return rng.choice([","] * 4 + [", ", ";", " ", ",,"]).join(parts) + rng.choice([""] * 3 + [",", "]"])


def settings(programs, options):
    rng = random.Random(options.seed)
    path = programs.folder / "settings.txt"
    path.write_text("\n".join(random_setting(rng) for _ in range(50000)) + "\n", encoding="utf-8")
    outputs, _ = programs.both({"settings": path}, log=False)
    real, model = (output.splitlines() for output in outputs)
    wrong = [(x, y) for x, y in zip(real, model) if x != y]
    good = not wrong and len(real) == len(model) == 50000
    print("1..1")
    print(f"{'' if good else 'not '}ok 1 - {len(real)} settings strings give the same values or the same error")
    for x, y in wrong[:5]:
        print(f"# real  {x}\n# model {y}")
    return 0 if good else 1


# ---- the ratio ------------------------------------------------------------------------------------


def bench(programs, options):
    """The same request lists on all sides, one after the other, best of five: the real allocator, its model, and
    the allocator of libplimsoll_alloc.so (its ratio is to the real one)."""
    print(f"{'':8}{'real ns/call':>14}{'model ns/call':>15}{'ratio':>8}{'plug-in ns/call':>17}{'ratio':>8}")
    for sizes, slots in (("repeat", 1), ("mix", 2000), ("small", 2000)):
        best = [float("inf")] * 3
        combo = {"bench": 1, "sizes": f"bench-{sizes}", "slots": slots, "ops": options.ops * 50,
                 "total": 40 * GIB}
        for _ in range(5):
            outputs, _ = programs.both(combo, log=False)
            outputs.append(programs.plugin(combo))
            best = [min(b, float(o.split()[0])) for b, o in zip(best, outputs)]
        print(f"{sizes:8}{best[0]:14.1f}{best[1]:15.1f}{best[0] / best[1]:8.1f}{best[2]:17.1f}"
              f"{best[0] / best[2]:8.1f}")
    # Threads: the model has one only.
    combo = {"bench": 1, "sizes": "bench-mix", "slots": 2000, "ops": options.ops * 50, "total": 40 * GIB, "threads": 8}
    best = [float("inf")] * 2
    for _ in range(5):
        outputs = programs.real_alone(combo), programs.plugin(combo)
        best = [min(b, float(o.split()[0])) for b, o in zip(best, outputs)]
    print(f"{'8 at once':8}{best[0]:13.1f}{'':23}{best[1]:17.1f}{best[0] / best[1]:8.1f}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="combinations whose description contains this")
    parser.add_argument("--ops", type=int, default=16000, help="operations for each combination")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--keep", help="leave programs and logs in this folder")
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--bench", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        programs = Programs(options.build, folder)
        what = settings if options.settings else bench if options.bench else compare
        return what(programs, options)


if __name__ == "__main__":
    sys.exit(main())
