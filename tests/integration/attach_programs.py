# SPDX-License-Identifier: Apache-2.0
"""The programs that test_attach.py runs with attach switched on. Run as `python attach_programs.py NAME [ARG...]`.

None of them knows of attach, but for `notes`. They import PyTorch, the tests do not.
"""

import json
import os
import sys


def fill(torch, mib=256):
    """Take memory until there is none; the number of tensors that fitted, and the error."""
    kept = []
    try:
        while True:
            kept.append(torch.empty(mib << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        return len(kept), str(error)


def plain():
    import torch
    count, text = fill(torch)
    print(json.dumps({"kept": count, "text": text[:40], "args": sys.argv[1:]}))


def uncaught():
    import torch
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")


def worker(_=None):
    import torch
    if os.environ.get("RANK"):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    fill(torch)


def children(method):
    """Workers that are forked or spawned, as an engine does it, before the parent has used CUDA."""
    import torch  # noqa: F401 - forked workers inherit the module
    import torch.multiprocessing as mp
    context = mp.get_context(method)
    workers = [context.Process(target=worker) for _ in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    print(json.dumps({"pids": [w.pid for w in workers], "codes": [w.exitcode for w in workers]}))


def notes():
    """Two requests; PyTorch keeps the note of each with its allocations, the snapshot that of the failing one."""
    import plimsoll
    import torch
    torch.cuda.init()
    with plimsoll.annotate("small", shape={"batch": 1}):
        kept = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    with plimsoll.annotate("large", shape={"batch": 64, "prompt": 4096}):
        fill(torch)
    print(json.dumps({"kept": kept.numel()}))


def own():
    """A program that records and observes by itself."""
    import torch
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(max_entries=7)
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *a: seen.append(a))
    fill(torch)
    entries = len(torch.cuda.memory._snapshot()["device_traces"][0])
    print(json.dumps({"seen": len(seen), "entries": entries}))


def lives(mib):
    """Holds memory until standard input ends."""
    import torch
    kept = torch.empty(int(mib) << 20, dtype=torch.uint8, device="cuda")
    print(json.dumps({"pid": os.getpid(), "kept": kept.numel()}), flush=True)
    sys.stdin.read()


def cost(rounds):
    """Processor seconds of a loop of small tensors, and of training steps, without attach and with it in several forms, in
    turns; the least of each."""
    import time
    import plimsoll
    import torch
    from torch import nn
    torch.cuda.init()
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(16)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.zeros(8, 256, device="cuda")

    def small():
        for _ in range(int(rounds)):
            torch.empty(1024, device="cuda")

    def step():
        for _ in range(20):
            model(data).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    cases = {"nothing": None, "sampling": plimsoll.Settings(events=0),
             "history, no stacks": plimsoll.Settings(stacks="none"), "history": plimsoll.Settings()}
    best = {}
    for _ in range(9):
        for name, settings in cases.items():
            if settings is not None:
                plimsoll.attach(settings)
            for loop in (small, step):
                begin = time.process_time()
                loop()
                key = f"{name}/{loop.__name__}"
                best[key] = min(best.get(key, 9e9), time.process_time() - begin)
            plimsoll.detach()
    print(json.dumps(best))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
