#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads snapshots with Python's own pickle module and with the library, and compares everything.

usage: test_snapshots.py SNAPSHOT_FACTS FILE_OR_FOLDER_OR_generated:ENTRIES:DEVICES...

SNAPSHOT_FACTS is the program built from snapshot_facts.c. For each snapshot the totals, the number of
entries by action, and checksums over every field of every entry, block, segment, stack and annotation
must be equal. Only files of this project's own test data are unpickled: they hold plain data.
Prints TAP.
"""
import json
import os
import pickle
import subprocess
import sys
import tempfile
import zlib

KNOWN = ["unknown", "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
         "segment_map", "segment_unmap", "snapshot", "oom", "annotate"]
STATES = {"inactive": 0, "active_allocated": 1, "active_pending_free": 2}


def text(value):
    """A note's text as the library keeps it: "", "N/A" and an absent key are no text."""
    return "-|" if value in (None, "", "N/A") else value + "|"


def stack(frames):
    if frames is None:
        return "none\n"
    parts = []
    for f in frames:
        name, file = f.get("name"), f.get("filename")
        parts.append("%s%s%d|" % ("-|" if name is None else name + "|",
                                  "-|" if file is None else file + "|", f.get("line", 0)))
    return "".join(parts) + "\n"


def pool(value):
    return "-|" if value is None else "%d|%d|" % tuple(value)


def unsigned(value):
    return value % (1 << 64)


def event_text(e):
    action = e["action"] if e["action"] in KNOWN else "unknown"
    addr = e["device_free"] if action == "oom" else e.get("addr", 0)
    return "%s%d|%d|%d|%d|%s%s%s%s" % (
        action, addr, e.get("size", 0), e.get("time_us", 0), unsigned(e.get("stream", 0)),
        pool(e.get("pool_id")), text(e.get("compile_context")), text(e.get("user_metadata")),
        stack(e.get("frames")))


def heap_text(segment):
    out = ["%d|%d|%d|%d|%d|%s%s" % (
        segment["address"], segment["total_size"], unsigned(segment.get("stream", 0)),
        segment["segment_type"] == "small", segment.get("is_expandable", False),
        pool(segment.get("segment_pool_id", (0, 0))), stack(segment.get("frames")))]
    at = segment["address"]
    for b in segment["blocks"]:
        at = b.get("address", at)
        past = (b.get("history") or [{}])[0]
        requested = b.get("requested_size", past.get("real_size", b["size"]))
        out.append("%d|%d|%d|%d|%s" % (at, b["size"], requested, STATES[b["state"]],
                                       stack(b.get("frames", past.get("frames")))))
        at += b["size"]
    return "".join(out)


def crc(parts):
    total = 0
    for part in parts:
        total = zlib.crc32(part.encode("utf-8", "surrogateescape"), total)
    return total


def device_facts(segments, trace):
    actions = {}
    for e in trace:
        name = e["action"] if e["action"] in KNOWN else "unknown"
        actions[name] = actions.get(name, 0) + 1
    blocks = [b for s in segments for b in s["blocks"]]
    of = lambda state: sum(b["size"] for b in blocks if b["state"] == state)
    return {
        "segments": len(segments), "blocks": len(blocks),
        "reserved": sum(s["total_size"] for s in segments), "inactive": of("inactive"),
        "allocated": of("active_allocated"), "pending": of("active_pending_free"),
        "events": len(trace), "actions": actions,
        "has_times": any("time_us" in e for e in trace),
        "heap_crc": crc(map(heap_text, segments)), "trace_crc": crc(map(event_text, trace)),
    }


def expected(data):
    """The facts that SNAPSHOT_FACTS prints, from Python objects."""
    if isinstance(data, list):
        data = {"segments": data}
    traces = data.get("device_traces", [])
    n = max([len(traces)] + [s.get("device", 0) + 1 for s in data["segments"]])
    devices = []
    for d in range(n):
        segments = sorted((s for s in data["segments"] if s.get("device", 0) == d),
                          key=lambda s: s["address"])
        devices.append(device_facts(segments, traces[d] if d < len(traces) else []))
    notes = ["%s%d|%d|%d|" % (text(a["name"]), a["device"], a["time_us"], a["stage"] == "END")
             for a in data.get("external_annotations", [])]
    settings = data.get("allocator_settings")
    conf = None if settings is None else settings.get("PYTORCH_CUDA_ALLOC_CONF")
    return {"devices": devices, "annotations": len(notes), "annotations_crc": crc(notes),
            "conf_crc": 0 if settings is None else crc([text(conf)])}


def compare(facts_program, path):
    """None when equal, else what differs."""
    with open(path, "rb") as f:
        want = expected(pickle.load(f))
    got = json.loads(subprocess.run([facts_program, path], check=True, capture_output=True,
                                    text=True).stdout)
    different = [key for key in want if want[key] != got.get(key)]
    return None if not different else {key: (want[key], got.get(key)) for key in different}


def generate(folder, request):
    """A file of tests/bench/gen_snapshot.py, as the benchmark uses it."""
    _, entries, devices = request.split(":")
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(folder, "generated-%s-%s.pickle" % (entries, devices))
    subprocess.run([sys.executable, os.path.join(here, "..", "bench", "gen_snapshot.py"), "--events", entries,
                    "--devices", devices, path], check=True)
    return path


def main():
    with tempfile.TemporaryDirectory() as folder:
        return compare_all(folder)


def compare_all(folder):
    facts_program, files = sys.argv[1], []
    for path in sys.argv[2:]:
        if path.startswith("generated:"):
            files.append(generate(folder, path))
        elif os.path.isdir(path):
            for root, _, names in sorted(os.walk(path)):
                files += [os.path.join(root, name) for name in sorted(names)
                          if name.endswith(".pickle")]
        else:
            files.append(path)
    print("1..%d" % len(files))
    failed = 0
    for i, path in enumerate(files, 1):
        difference = compare(facts_program, path)
        failed += difference is not None
        print("%s %d - %s equals what Python reads" % ("not ok" if difference else "ok", i,
                                                       os.path.basename(path)))
        if difference:
            print("# %s" % json.dumps(difference)[:2000])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
