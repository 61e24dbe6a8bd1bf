# SPDX-License-Identifier: Apache-2.0
"""Programs that use the allocator with real PyTorch: python alloc_programs.py NAME WHERE, WHERE = global, pool or stock.

Each prints one line of JSON. Run by test_alloc.py on the simulated GPU.
"""

import contextlib
import json
import os
import pickle
import random
import sys
import tempfile

import tiny_model
import torch

MIB = 1 << 20


def start(where):
    """The allocator in place; the context that allocations are made in."""
    import plimsoll.alloc

    if where == "global":
        plimsoll.alloc.install()
    return plimsoll.alloc.use() if where == "pool" else contextlib.nullcontext()


def stats(where):
    import plimsoll.alloc

    return torch.cuda.memory_stats() if where == "stock" else plimsoll.alloc.memory_stats()


def train(where):
    with start(where):
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(6):
            x = torch.randn(32 + 31 * step, 1024, device="cuda")
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        del x
    parameters = sum(p.numel() * 4 for p in model.parameters())
    return {"parameters": parameters, "stats": stats(where)}


def generate(where):
    """Decoding with a cache that grows by concatenation, 40 tokens for two sequences."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**tiny_model.SMALLEST)
    with start(where), torch.no_grad():
        model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
        out = model(torch.zeros(2, 16, dtype=torch.long, device="cuda"), use_cache=True)
        for _ in range(24):
            token = torch.zeros(2, 1, dtype=torch.long, device="cuda")
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
        length = out.past_key_values.get_seq_length()
    return {"length": length, "stats": stats(where), "blocks": live_blocks() if where == "global" else []}


def graph(where):
    with start(where):
        model = torch.nn.Linear(512, 512).cuda()
        still = torch.zeros(64, 512, device="cuda")
        graphs = []
        for _ in range(3):
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                out = torch.relu(model(still)) + model(still)
            graphs.append(g)
        for g in graphs:
            g.replay()
        between = torch.empty(8 * MIB, device="cuda", dtype=torch.uint8)
    return {"replayed": len(graphs), "out": out.data_ptr() != between.data_ptr(), "stats": stats(where)}


def streams(where):
    with start(where):
        side = torch.cuda.Stream()
        first = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(side):
            held = first + 1
        first.record_stream(side)
        before = first.data_ptr()
        del first
        pending = snapshot_states()
        torch.cuda.synchronize()
        again = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")
    return {"pending": pending, "again": again.data_ptr() == before, "held": held.numel(), "stats": stats(where)}


def all_blocks():
    import plimsoll.alloc

    with tempfile.NamedTemporaryFile() as file:
        plimsoll.alloc.snapshot(file.name, 0)
        content = pickle.load(file)
    return [b for s in content["segments"] for b in s["blocks"]]


def snapshot_states():
    return [b["state"] for b in all_blocks()].count("active_pending_free")


def live_blocks():
    """[bytes asked for, bytes of the block] of each."""
    return [[b["requested_size"], b["size"]] for b in all_blocks() if b["state"] == "active_allocated"]


def oom(where):
    with start(where):
        keep = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
            text, kind = "", ""
        except torch.OutOfMemoryError as error:
            text, kind = str(error), type(error).__name__
        after = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    return {"text": text, "kind": kind, "after": after.numel() + keep.numel()}


def growth(where):
    """Caches that grow by concatenation, some of which end: the workload that fragments."""
    rng = random.Random(7)
    with start(where):
        live = {}
        failed = None
        for step in range(4000):
            key = rng.randrange(60)
            if key in live and rng.random() < 0.05:
                del live[key]
                continue
            rows = rng.randrange(20, 60) if key not in live else 4
            try:
                new = torch.empty(rows, 128, 1024, dtype=torch.bfloat16, device="cuda")
                live[key] = new if key not in live else torch.cat([live[key], new])
            except torch.OutOfMemoryError:
                failed = step
                break
            del new
    s = stats(where)
    return {"failed": failed, "live": s["allocated_bytes.all.peak"], "reserved": s["reserved_bytes.all.peak"],
            "asked": s["requested_bytes.all.peak"]}


def fork(where):
    with start(where):
        keep = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        pid = os.fork()
        if pid == 0:
            del keep  # the child has no device memory; giving it back does nothing
            os._exit(7)
        _, status = os.waitpid(pid, 0)
        after = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    return {"child": os.waitstatus_to_exitcode(status), "after": after.numel() + keep.numel()}


def snapshot(where):
    import plimsoll.alloc

    with start(where):
        keep = [torch.empty(n * MIB + 512, dtype=torch.uint8, device="cuda") for n in (1, 3, 9, 40)]
        del keep[1]
        plimsoll.alloc.snapshot(sys.argv[3])
    return {"live": sum(t.numel() for t in keep), "stats": stats(where)}


def pause(where):
    """Weights that leave the device for a time. (On a real device: with their contents.)"""
    import plimsoll.alloc

    with start(where):
        others = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    place = plimsoll.alloc.use() if where == "pool" else contextlib.nullcontext()
    with plimsoll.alloc.tag("weights"), place:
        weights = [torch.empty(40 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
    free = [torch.cuda.mem_get_info()[0]]
    address = [w.data_ptr() for w in weights]
    given = plimsoll.alloc.pause("weights", keep=True)
    free.append(torch.cuda.mem_get_info()[0])
    taken = torch.empty(free[1] - 64 * MIB, dtype=torch.uint8, device="cuda")
    try:
        plimsoll.alloc.resume("weights")
        refused = False
    except MemoryError:
        refused = True
    del taken
    torch.cuda.empty_cache()
    plimsoll.alloc.resume("weights")
    free.append(torch.cuda.mem_get_info()[0])
    after = [w.data_ptr() for w in weights]
    weights.clear()
    plimsoll.alloc.empty_cache()
    return {"address": address, "address_after": after, "given": given,
            "free_before": free[0], "free_paused": free[1], "free_after": free[2],
            "free_dropped": torch.cuda.mem_get_info()[0], "refused": refused, "others": others.numel() == 30 * MIB}


def asked_of_accelerator(where):
    """What programs ask PyTorch about memory without naming CUDA, and other questions."""
    ask = torch.accelerator
    with start(where):
        keep = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    out = {"names": sorted(ask.memory_stats()), "allocated": ask.memory_allocated(), "peak": ask.max_memory_allocated()}
    torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    out["peak_after"] = ask.max_memory_allocated()
    before = torch.cuda.mem_get_info()[0]
    ask.empty_cache()
    out["given"] = torch.cuda.mem_get_info()[0] - before
    ask.reset_peak_memory_stats()
    out["peak_reset"] = ask.max_memory_allocated()
    count = "allocation.all.allocated"
    out["count"] = [torch.cuda.memory_stats()[count]]
    torch.cuda.reset_accumulated_memory_stats()
    out["count"] += [torch.cuda.memory_stats()[count], ask.memory_stats()[count]]
    torch.cuda.set_per_process_memory_fraction(0.5)
    out["share"] = torch.cuda.get_per_process_memory_fraction()
    out["of_pool"] = len(torch.cuda.memory_snapshot((7, 0)))
    try:
        out["wrong"] = torch.cuda.memory_allocated(1)
    except RuntimeError as error:
        out["wrong"] = str(error)[:23]
    return {**out, "kept": keep.numel()}


def asked_of_torch(where):
    """What programs ask PyTorch about memory, and what it answers."""
    with start(where):
        keep = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
        torch.empty(60 * MIB, dtype=torch.uint8, device="cuda")
    peaks = [torch.cuda.max_memory_allocated()]
    torch.cuda.reset_peak_memory_stats()
    peaks.append(torch.cuda.max_memory_allocated())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "own.pickle")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as file:
            segments = pickle.load(file)["segments"]
    return {"peaks": peaks, "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
            "names": sorted(torch.cuda.memory_stats()), "kept": keep.numel(),
            "summary": torch.cuda.memory_summary(), "segments": sum(s["total_size"] for s in segments)}


def shown(where):
    """A snapshot with streams, a graph, a tag and pages that were moved, as PyTorch's own tools show it."""
    import plimsoll.alloc
    from torch.cuda import _memory_viz as viz

    def make(size):
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    with start(where):
        kept = [make(n * MIB + 700) for n in (1, 3, 9, 40)]
        before = torch.cuda.memory._snapshot()["segments"]
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            kept.append(make(5 * MIB))
        kept += [make(100) for _ in range(7)]
        del kept[1]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept.append(kept[0][:MIB].float() * 2)
        with plimsoll.alloc.tag("weights"):
            weights = make(20 * MIB)
            late = make(4 * MIB)
        live = {"all": torch.cuda.memory_allocated()}
        waiting = make(6 * MIB)
        waiting.record_stream(side)
        del waiting
        if where == "global":
            plimsoll.alloc.pause("weights")
            live["paused"] = torch.cuda.memory_allocated()
        content = torch.cuda.memory._snapshot()
        stats = torch.cuda.memory_stats()
        torch.cuda.memory._dump_snapshot(sys.argv[3])
        plimsoll.alloc.resume("weights") if where == "global" else None
        live["resumed"] = torch.cuda.memory_allocated()
    pages = [viz.trace_plot(content), viz.segment_plot(content)]
    texts = [viz.segsum(content), viz.trace(content), viz.segments(content, str), viz.memory(content, str),
             viz.compare(before, content["segments"], str)]
    return {"live": live, "lengths": [len(text) for text in texts + pages], "summary": texts[0].split("Legend")[0],
            "tagged": weights.numel() + late.numel(), "keys": [sorted(s) for s in content["segments"]],
            "block_keys": [sorted(b) for s in content["segments"] for b in s["blocks"]],
            "traces": len(content["device_traces"]), "stats": {k: v for k, v in stats.items() if k.endswith("all.current")},
            "sums": {k: sum(s[k] for s in content["segments"])
                     for k in ("total_size", "allocated_size", "active_size", "requested_size")},
            "pools": sorted({s["segment_pool_id"] for s in content["segments"]})}


def threads(where):
    """Threads with a stream each, which lend blocks to the default stream."""
    import threading

    import plimsoll.alloc

    def work(number):
        rng = random.Random(number)
        place = plimsoll.alloc.use() if where == "pool" else contextlib.nullcontext()
        live = []
        try:
            with torch.cuda.stream(torch.cuda.Stream()), place:
                for _ in range(200):
                    live.append(torch.empty(rng.randrange(1, 4 * MIB), dtype=torch.uint8, device="cuda"))
                    if len(live) > 30:
                        live.pop(rng.randrange(len(live))).record_stream(torch.cuda.default_stream())
            done.append(number)
        except RuntimeError as error:
            done.append(str(error))

    done = []
    with start(where):
        torch.empty(1, device="cuda")
    several = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    torch.cuda.synchronize()
    plimsoll.alloc.empty_cache()
    return {"done": sorted(map(str, done)), "left": plimsoll.alloc.figures(0)["reserved"]}


def retries(where):
    """Requests that fail, again and again, and what that leaves."""
    import plimsoll.alloc

    with start(where):
        held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(20)]
        free, before = torch.cuda.mem_get_info()[0], plimsoll.alloc.figures(0)
        failed = 0
        for step in range(300):
            try:
                torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                failed += 1
                if step % 7 == 0:
                    torch.cuda.empty_cache()
        after = plimsoll.alloc.figures(0)
        kept = torch.cuda.mem_get_info()[0]
        held.clear()
        held.append(torch.empty(20 << 30, dtype=torch.uint8, device="cuda"))
    return {"failed": failed, "free": [free, kept],
            "changed": sorted(name for name in before if before[name] != after[name])}


def pools(where):
    """use() inside itself, on a second device, beside tags, and its memory given back."""
    import plimsoll.alloc

    def held(device=0):
        return plimsoll.alloc.figures(device)["reserved"]

    def make(size, device="cuda"):
        return torch.empty(size * MIB, dtype=torch.uint8, device=device)

    with start(where):
        first = make(100)
        with plimsoll.alloc.use():
            second = make(100)
    with plimsoll.alloc.use(1):
        other = make(50, "cuda:1")
    out = {"held": held(), "held_other": held(1)}
    del first
    with plimsoll.alloc.tag("weights"), plimsoll.alloc.use():
        weights = make(80)
    out["given"] = plimsoll.alloc.pause("weights")
    plimsoll.alloc.resume("weights")
    plimsoll.alloc.empty_cache()
    out["first_gone"] = held()
    live = second.numel() + weights.numel()
    del second, weights, other
    plimsoll.alloc.empty_cache()
    return {**out, "live": live, "all_gone": held() + held(1)}


def hooks(where):
    """What PyTorch itself asks of an allocator: a limit, the cache given back, figures under its names."""
    with start(where):
        held = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
        free = [torch.cuda.mem_get_info()[0]]
        cached = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        del cached
        free.append(torch.cuda.mem_get_info()[0])
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info()[0])
        torch.cuda.set_per_process_memory_fraction(0.01)
        try:
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
            text = ""
        except torch.OutOfMemoryError as error:
            text = str(error)
        torch.cuda.set_per_process_memory_fraction(1.0)
        after = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    return {"free": free, "text": text, "after": after.numel() + held.numel(), "stats": stats(where)}


def names(where):
    """The keys of torch.cuda.memory_stats()."""
    with start(where):
        torch.empty(1, device="cuda")
    return {"names": sorted(torch.cuda.memory_stats()), "where": where}


def again(where):
    """install() a second time, with the same settings and with others."""
    import plimsoll.alloc

    with start(where):
        plimsoll.alloc.install()
        plimsoll.alloc.install(mode="hybrid") if os.environ.get("PLIMSOLL_ALLOC_MODE") == "hybrid" else None
        mode = torch.cuda.memory._snapshot()["allocator_settings"]["plimsoll"]
        held = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    try:
        plimsoll.alloc.install(slack=9)
    except RuntimeError as error:
        return {"refused": str(error), "mode": mode, "held": held.numel()}
    return {}


def other(where):
    """Another pluggable allocator has the device memory already."""
    import plimsoll.alloc

    theirs = torch.cuda.memory.CUDAPluggableAllocator(plimsoll.alloc.library(), "plimsoll_alloc", "plimsoll_free")
    torch.cuda.memory.change_current_allocator(theirs)
    try:
        plimsoll.alloc.install("hybrid")
    except RuntimeError as error:
        return {"refused": str(error), "where": where, "mode": os.environ.get("PLIMSOLL_ALLOC_MODE")}
    return {}


def child():
    import plimsoll.alloc

    held = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    print("CHILD", plimsoll.alloc.installed(), held.numel(), plimsoll.alloc.figures(0).get("allocated"), flush=True)


def spawn(where):
    """A process of its own, as servers start their workers."""
    import multiprocessing

    worker = multiprocessing.get_context("spawn").Process(target=child)
    worker.start()
    worker.join()
    return {"code": worker.exitcode, "where": where}


def late(where):
    import plimsoll.alloc

    torch.cuda.init()
    try:
        plimsoll.alloc.install()
    except RuntimeError as error:
        return {"refused": str(error), "where": where}
    return {}


if __name__ == "__main__":
    result = globals()[sys.argv[1]](sys.argv[2])
    if sys.argv[2] != "stock":
        from plimsoll import alloc

        wrong = alloc._library().plimsoll_alloc_check(0)
        result["check"] = wrong.decode() if wrong else None
        result["figures"] = alloc.figures(0)
    print(json.dumps(result))
