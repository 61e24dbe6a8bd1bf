#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plimsoll's allocator against PyTorch's under its settings, on recorded and on simulated workloads, in one run.

    tests/bench/bench_alloc.py PLIMSOLL [NAME...]

Three tables. Recorded: the traces of tests/data/tune, replayed under all settings that `plimsoll tune` knows. Training: the
same with those of tests/data/training, on 80 GiB, and mode plan beside mode stitch. Simulated: `plimsoll soak --allocator
both` with SETTINGS below. For each workload:

  live       peak of the bytes in live blocks
  ours       peak reserved by Plimsoll's allocator, over the peak live of the same run
  best       least peak reserved of any setting that holds, over the peak live of its run
  frag       1 - peak live / peak reserved: default settings, then ours (the measure of GMLake)
  calls      driver calls for 1,000 requests in the second half: expandable segments, then ours
  OOM        the first failure, the latest of any setting, then ours; - is never. Recorded: number of the allocation, on
             the smallest device that the best setting needs; simulated: seconds, on a device that has beyond what is
             live a quarter of what the default settings reserve beyond it

Below the tables: where a ratio is above 1.05, or ours is above the best setting by more than a page, fails before it, or
makes more driver calls than expandable segments.
"""

import json
import lzma
import pathlib
import pickle
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "tests" / "data" / "models"
EXPANDABLE = "expandable_segments:True"
SETTINGS = ("", EXPANDABLE, "max_split_size_mb:128", "garbage_collection_threshold:0.8",
            "roundup_power2_divisions:8", "max_non_split_rounding_mb:64", EXPANDABLE + ",roundup_power2_divisions:8")
NEVER = float("inf")
PAGE = 32 << 20  # the largest that our allocator makes
GIB = 1 << 30

# name: arguments of soak.
DYNAMIC = ("-w", "dynamic")
SOAKS = {
    "dynamic 8B conv": ("Llama-3.1-8B", *DYNAMIC, "-t", "azure-conv", "--duration", "20s"),
    "dynamic 8B code": ("Llama-3.1-8B", *DYNAMIC, "-t", "azure-code", "--duration", "1m"),
    "dynamic 0.6B conv": ("Qwen3-0.6B", *DYNAMIC, "-t", "azure-conv", "--duration", "20s", "--device-memory", "24GiB"),
    "dynamic 0.6B bursts": ("Qwen3-0.6B", *DYNAMIC, "-t", "gamma:rate=2,cv=5,like=azure-code", "--duration", "1m",
                            "--device-memory", "24GiB"),
    "dynamic 8B edges": ("Qwen3-8B", *DYNAMIC, "-t", "azure-code", "--prompt-edges", "512,1024,2048,4096,8192",
                         "--duration", "1m"),
    "dynamic adapters": ("Qwen3-0.6B", *DYNAMIC, "-t", "azure-code", "--adapters", "64", "--duration", "1m",
                         "--device-memory", "24GiB"),
    "paged 8B conv": ("Llama-3.1-8B", "-t", "azure-conv", "--duration", "4m", "--kv-bytes", "8GiB"),
    "paged 8B eager": ("Llama-3.1-8B", "-t", "azure-code", "--eager", "--duration", "4m", "--kv-bytes", "8GiB"),
    "paged 30B mooncake": ("Qwen3-30B-A3B", "-t", "mooncake", "--duration", "4m", "--kv-bytes", "8GiB"),
    "paged adapters": ("Qwen3-0.6B", "-t", "azure-conv", "--adapters", "64", "--duration", "4m", "--kv-bytes", "8GiB"),
    "paged pictures in": ("Qwen3-VL-8B-Instruct", "-t", "azure-conv", "-t", "pictures", "--duration", "4m",
                          "--kv-bytes", "8GiB"),
    "pictures": ("-w", "pictures", "-t", "pictures", "--duration", "30m"),
}


def call(plimsoll, *arguments):
    done = subprocess.run([plimsoll, *map(str, arguments), "--format", "json"], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def model_file(folder, name):
    """config.json of a model out of tests/data/models."""
    config = json.loads((MODELS / (name + ".json")).read_text())["config"]
    config["architectures"] = [config.pop("architecture")]
    path = pathlib.Path(folder) / (name + ".json")
    path.write_text(json.dumps(config))
    return path


def soak(plimsoll, folder, arguments, *more):
    """One run of each setting and of ours: [(name, run)]."""
    model = [] if arguments[0].startswith("-") else [model_file(folder, arguments[0])]
    settings = [part for conf in SETTINGS for part in ("--conf", conf)]
    answer = call(plimsoll, "soak", *model, *arguments[len(model):], "--seeds", 1, "--allocator", "both", *settings,
                  *more)
    return [(s["conf"] if s["allocator"] == "pytorch" else None, s["runs"][0]) for s in answer["settings"]]


def oom_at(run):
    return run["first_oom"]["at_ns"] / 1e9 if run["first_oom"] else 0.0 if not run["started"] else NEVER


def per_thousand(run):
    return 1000 * run["late_driver_calls"] / max(1, run["late_allocations"])


def row(name, live, ours, best, frags, calls, ooms):
    when = ["-" if x == NEVER else f"{x:,.0f}" for x in ooms]
    best = "-" if best == NEVER else f"{best:.4f}"
    print(f"| {name} | {live / GIB:.2f} | {ours:.4f} | {best} | {frags[0]:.1%} | {frags[1]:.1%} | {calls[0]:.3f} | "
          f"{calls[1]:.3f} | {when[0]} | {when[1]} |", flush=True)


def head(title):
    print(f"\n{title}\n\n| workload | live, GiB | ours | best | frag default | frag ours | calls expandable | calls ours | "
          "OOM best | OOM ours |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)


def judge(name, live, ours, best, calls, ooms):
    """What the figures are below the aim in."""
    wrong = []
    if ours > 1.05:
        wrong.append(f"{name}: reserved is {ours:.4f} of live")
    if ours > best and (ours - best) * live > PAGE:
        wrong.append(f"{name}: {ours:.4f}, the best setting {best:.4f}")
    if ooms[1] < ooms[0]:
        wrong.append(f"{name}: fails at {ooms[1]}, the best setting at {ooms[0]}")
    if calls[1] > calls[0] and calls[1] > 0.01:
        wrong.append(f"{name}: {calls[1]:.3f} calls, expandable segments {calls[0]:.3f}")
    return wrong


def simulated(plimsoll, folder, name):
    runs = dict(soak(plimsoll, folder, SOAKS[name]))
    ours = runs[None]
    live = ours["most_active_bytes"]
    ratio = {conf: run["most_reserved_bytes"] / live for conf, run in runs.items()}
    good = [c for c, run in runs.items() if c is not None and run["started"] and not run["first_oom"]]
    # The tight device: what is live, and a quarter of what the default settings take beyond.
    external = 1 * GIB
    spare = (runs[""]["most_reserved_bytes"] - ours["most_active_bytes"]) // 4
    tight = dict(soak(plimsoll, folder, SOAKS[name], "--device-memory", external + ours["most_active_bytes"] + spare,
                      "--external", external, "--stop"))
    ooms = max(oom_at(run) for c, run in tight.items() if c is not None), oom_at(tight[None])
    best = min(ratio[c] for c in good)
    calls = per_thousand(runs[EXPANDABLE]), per_thousand(ours)
    row(name, ours["most_active_bytes"], ratio[None], best, (1 - 1 / ratio[""], 1 - 1 / ratio[None]), calls, ooms)
    return judge(name, ours["most_active_bytes"], ratio[None], best, calls, ooms)


def fails_at(run):
    return run["first_oom"]["alloc_index"] if run["first_oom"] else NEVER


def recorded(plimsoll, path):
    name = path.name.split(".")[0]
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(lzma.decompress(path.read_bytes()))
        file.flush()
        answer = call(plimsoll, "tune", file.name, "--device-memory", "24076MiB")
        ours, runs = answer["plimsoll_allocator"], answer["runs"]
        needs = min(r["needs_bytes"] for r in runs if r.get("needs_bytes")) if any(
            r.get("needs_bytes") for r in runs) else 24076 << 20
        tight = call(plimsoll, "replay", file.name, "--allocator", "plimsoll", "--device-memory", needs)
        base = call(plimsoll, "replay", file.name, "--device-memory", "24076MiB", "--go-on", "--conf", "")
        expandable = call(plimsoll, "replay", file.name, "--device-memory", "24076MiB", "--conf", EXPANDABLE)
    live = ours["peak"]["active_bytes"]
    ratio = ours["peak"]["reserved_bytes"] / live
    fits = [r for r in runs if not r["first_oom"]]
    best = min(r["peak"]["reserved_bytes"] for r in fits) / live if fits else NEVER
    ooms = max(fails_at(r) for r in runs), min(fails_at(ours), fails_at(tight) if fits else NEVER)
    default = base["peak"]["active_bytes"] / base["peak"]["reserved_bytes"]
    calls = tuple(1000 * r["driver"]["calls"] / r["allocations"] for r in (expandable, ours))
    row(name, live, ratio, best, (1 - default, 1 - 1 / ratio), calls, ooms)
    return judge(name, live, ratio, best, (NEVER, 0), ooms)


def late_calls(plimsoll, path, mode):
    """Driver calls of the last half of a run's requests, for 1,000 of them."""
    events = pickle.loads(path.read_bytes())
    trace = events["device_traces"][0]
    events["device_traces"][0] = trace[:len(trace) // 2]
    events["segments"] = []
    whole = call(plimsoll, "replay", path, "--allocator", mode[0], *mode[1:], "--device-memory", "80GiB")
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps(events, protocol=4))
        file.flush()
        half = call(plimsoll, "replay", file.name, "--allocator", mode[0], *mode[1:], "--device-memory", "80GiB")
    return 1000 * (whole["driver"]["calls"] - half["driver"]["calls"]) / (whole["allocations"] - half["allocations"])


def training(plimsoll, folder, path):
    name = path.name.split(".")[0]
    file = pathlib.Path(folder) / (name + ".pickle")
    file.write_bytes(lzma.decompress(path.read_bytes()))
    plan = pathlib.Path(folder) / "plan"
    answer = call(plimsoll, "tune", file, "--device-memory", "80GiB")
    ours = call(plimsoll, "replay", file, "--device-memory", "80GiB", "--allocator", "plimsoll:plan", "--write-plan", plan)
    default = call(plimsoll, "replay", file, "--device-memory", "80GiB", "--conf", "")
    live = ours["peak"]["active_bytes"]

    def over(run):
        return run["peak"]["reserved_bytes"] / live

    best = min(over(r) for r in answer["runs"] if not r["first_oom"])
    stitch, seating = answer["plimsoll_allocator"], ours["seating"]
    calls = [late_calls(plimsoll, file, mode) for mode in (
        ("pytorch", "--conf", EXPANDABLE), ("plimsoll",), ("plimsoll:plan", "--plan", plan))]
    print(f"| {name} | {live / GIB:.2f} | {over(default):.4f} | {best:.4f} | {over(stitch):.4f} | {over(ours):.4f} | "
          f"{seating['height_bytes'] / seating['least_bytes']:.4f} | {ours['plan']['placed'] / ours['allocations']:.1%} | "
          + " | ".join(f"{c:.1f}" for c in calls) + " |", flush=True)
    wrong = [f"{name}: mode plan reserves {over(ours):.4f} of live, mode stitch {over(stitch):.4f}, the best setting {best:.4f}"
             ] if over(ours) > min(best, over(stitch)) else []
    return wrong + ([f"{name}: {calls[2]:.1f} calls, expandable segments {calls[0]:.1f}"] if calls[2] > calls[0] else [])


def main():
    plimsoll, only = sys.argv[1], sys.argv[2:]
    wrong = []
    head("Recorded (best: of all settings of tune; OOM ours: on the smallest device that the best setting needs)")
    for path in sorted((ROOT / "tests" / "data" / "tune").glob("*.xz")):
        if not only or path.name.split(".")[0] in only:
            wrong += recorded(plimsoll, path)
    print("\nTraining (reserved over live: default settings, the best of all of tune, modes stitch and plan; height of the places "
          "over the least there can be; requests at their place; driver calls for 1,000 requests of the second half)\n\n"
          "| workload | live, GiB | default | best | stitch | plan | height | placed | calls expandable | calls stitch | "
          "calls plan |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((ROOT / "tests" / "data" / "training").glob("*.xz")):
            name = path.name.split(".")[0]
            if "varying" not in name and (not only or name in only):
                wrong += training(plimsoll, folder, path)
    head("Simulated")
    with tempfile.TemporaryDirectory() as folder:
        for name in SOAKS:
            if not only or name in only:
                wrong += simulated(plimsoll, folder, name)
    print("\n" + "\n".join(wrong or ["all aims are met"]))


if __name__ == "__main__":
    main()
