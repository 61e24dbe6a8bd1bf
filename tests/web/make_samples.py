#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write samples of a made-up machine for `plimsoll watch --samples`: make_samples.py [KIND] OUT.jsonl

machine: two devices, five processes of which one grows, one comes and goes, one draws.
hostile: names, pods and units that are markup, scripts, control characters, right-to-left text, or very long.
large:   eight devices, two hundred processes.
"""

import json
import sys

GIB = 1 << 30
MIB = 1 << 20
EVIL = ["<img src=x onerror=a()>", "</script><b>x", "'\"><svg/onload=1", "\u202egnp.exe", "a\x1b[31mb", "=cmd|'/c'!A1",
        "&lt;b&gt;", "x" * 15]


def device(i, used, total=80 * GIB, name="NVIDIA H100 80GB HBM3"):
    reserved = 600 * MIB
    return {"vendor": "nvidia", "name": name, "uuid": f"GPU-{i:08x}-aaaa-bbbb-cccc-{i:012x}", "pci": f"0000:{65 + i:02x}:00.0",
            "state": "ok", "total_bytes": total, "used_bytes": used, "free_bytes": total - reserved - used,
            "reserved_bytes": reserved, "busy_percent": (used // MIB * 7 + i) % 101, "temperature_celsius": 50 + i,
            "power_milliwatts": 350000 + 1000 * i, "sm_clock_mhz": 1980, "memory_clock_mhz": 2619}


def process(pid, name, **more):
    return {"pid": pid, "ppid": 1, "start_ticks": 1000 + pid, "rss_bytes": 2 * GIB + pid * MIB, "name": name[:15], **more}


def use(index, pid, size, kinds=("compute",)):
    return {"device": index, "pid": pid, "bytes": size, "kinds": list(kinds)}


def sample(t, devices, uses, processes):
    return {"schema": "plimsoll.sample/1", "time_ns": 1_700_000_000_000_000_000 + t * 1_000_000_000,
            "host_total_bytes": 512 * GIB, "host_available_bytes": 300 * GIB - t * MIB, "devices": devices,
            "uses": uses, "processes": processes}


def machine(t, names=("vllm", "train", "Xorg", "notebook", "batch")):
    grows = 20 * GIB + min(t, 900) * 50 * MIB
    uses = [use(0, 101, grows), use(0, 103, 300 * MIB, ("graphics",)), use(1, 102, 30 * GIB), use(1, 104, 5 * GIB)]
    processes = [process(101, names[0], unit="vllm.service", container="4f5e" * 16, pod="0a1b2c3d-0000-1111-2222-333344445555"),
                 process(102, names[1]), process(103, names[2]), process(104, names[3])]
    if t // 30 % 2:
        uses.append(use(1, 105, 8 * GIB))
        processes.append(process(105, names[4]))
    totals = [sum(u["bytes"] for u in uses if u["device"] == i) + 400 * MIB for i in (0, 1)]
    return sample(t, [device(i, used) for i, used in enumerate(totals)], uses, processes)


def hostile(t):
    s = machine(t, EVIL[:5])
    for i, p in enumerate(s["processes"]):
        p["unit"] = EVIL[(i + 1) % len(EVIL)] + ".service"
        p["container"] = EVIL[(i + 2) % len(EVIL)]
        p["pod"] = EVIL[(i + 3) % len(EVIL)]
    for i, d in enumerate(s["devices"]):
        d["name"] = EVIL[i] + " " + EVIL[i + 3]
    return s


def large(t):
    uses = [use(i % 8, 1000 + i, (1 + i % 5) * GIB // 4 + t * MIB) for i in range(200)]
    processes = [process(1000 + i, f"worker-{i}", unit=f"worker@{i}.service") for i in range(200)]
    totals = [sum(u["bytes"] for u in uses if u["device"] == i) + 500 * MIB for i in range(8)]
    return sample(t, [device(i, used) for i, used in enumerate(totals)], uses, processes)


def main(argv):
    kinds = {"machine": machine, "hostile": hostile, "large": large}
    kind, out = argv[1:] if len(argv) == 3 else ("machine", argv[1])
    with open(out, "w", encoding="utf-8") as f:
        for t in range(120 if kind == "large" else 900):
            f.write(json.dumps(kinds[kind](t)) + "\n")


if __name__ == "__main__":
    main(sys.argv)
