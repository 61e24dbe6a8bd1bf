#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes snapshots that a report must survive: make_hostile.py KIND OUT

    markup   names of functions, files, notes and settings that are HTML and script
    empty    no segments, an empty trace
    nothing  a list without segments
    many     200,000 live blocks at once, in 400 segments
    edges    addresses up to 2^64, times that go back, unknown actions, frees of nothing, streams below zero
    deep     a stack of 2,000 frames with names of 50,000 letters
"""

import pickle
import sys

MARKUP = ["<script>window.pwned = 1</script>", "\"><img src=x onerror=\"window.pwned=2\">",
          "</script><script>window.pwned = 3</script>", "<!--", "--><svg onload=window.pwned=4>", "]]>", "&lt;b&gt;",
          "' onmouseover='window.pwned=5", "\u202egnp.exe\u202c", "a\x00b\x1b[31mred", "{{constructor.constructor('x')()}}",
          "=cmd|' /C calc'!A0"]


def frame(name, file="model.py", line=1):
    return {"name": name, "filename": file, "line": line}


def segment(addr, blocks, size=None, stream=0, **more):
    total = size if size is not None else sum(b["size"] for b in blocks)
    live = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {"device": 0, "address": addr, "total_size": total, "allocated_size": live, "active_size": live,
            "requested_size": live, "stream": stream, "segment_type": "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": blocks, **more}


def block(addr, size, state="active_allocated", frames=()):
    return {"address": addr, "size": size, "requested_size": size, "state": state, "frames": list(frames)}


def event(action, addr, size, time, frames=(), **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": list(frames), **more}


def markup():
    base, size = 0x7F0000000000, 32 << 20
    blocks, trace = [], [event("segment_alloc", base, size * len(MARKUP), 10)]
    for i, text in enumerate(MARKUP):
        stack = [frame(text, "/srv/" + text + "/model.py", i), frame("main", text, 2)]
        blocks.append(block(base + i * size, size, frames=stack))
        trace.append(event("alloc", base + i * size, size, 20 + i, stack, user_metadata=text, compile_context=text))
    annotations = [{"stage": "START", "name": text, "device": 0, "time_us": 15} for text in MARKUP]
    return {"segments": [segment(base, blocks)], "device_traces": [trace], "external_annotations": annotations,
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": MARKUP[0]}}


def many():
    segments = []
    for s in range(400):
        base = 0x7F0000000000 + s * (2 << 30)
        pieces = [block(base + i * 4096, 4096, "inactive" if i % 3 == 2 else "active_allocated",
                        [frame(f"f{(s + i) % 50}")]) for i in range(750)]
        segments.append(segment(base, pieces))
    return {"segments": segments, "device_traces": [[]]}


def edges():
    top = (1 << 64) - (4 << 20)
    trace = [event("alloc", 0, 1 << 63, 50), event("free_completed", 12345, 77, 40), event("no_such_action", 1, 2, 30),
             event("segment_free", 99, 1 << 62, 20), event("segment_unmap", 1 << 40, 3, 10),
             event("alloc", top, 1 << 20, 5), event("oom", 0, 1 << 40, 4, device_free=1 << 63)]
    trace[-1].pop("addr")
    return {"segments": [segment(top, [block(top, 1 << 20), block(top + (1 << 20), 1 << 20, "inactive")], stream=-1)],
            "device_traces": [trace]}


def deep():
    base = 0x7F0000000000
    stack = [frame("n" * 50000 + str(i), "d/" * 20000 + f"{i}.py", i) for i in range(50)]
    stack += [frame(f"g{i}", "x.py", i) for i in range(2000)]
    return {"segments": [segment(base, [block(base, 2 << 20, frames=stack)])],
            "device_traces": [[event("alloc", base, 2 << 20, 1, stack)]]}


KINDS = {"markup": markup, "many": many, "edges": edges, "deep": deep, "nothing": lambda: [],
         "empty": lambda: {"segments": [], "device_traces": [[]]}}

if __name__ == "__main__":
    with open(sys.argv[2], "wb") as out:
        pickle.dump(KINDS[sys.argv[1]](), out, protocol=4)
