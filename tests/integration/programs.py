# SPDX-License-Identifier: Apache-2.0
"""The programs that the tests run on the simulated GPU. Run as `python programs.py NAME [ARG...]`.

Each prints one line of JSON with what the test compares. They import PyTorch, the tests do not.
"""

import json
import sys


def tensors():
    import torch
    out = {"name": torch.cuda.get_device_name(0), "count": torch.cuda.device_count()}
    free, total = torch.cuda.mem_get_info()
    out.update(free=free, total=total)
    x = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
    out["used_by_30MiB"] = free - torch.cuda.mem_get_info()[0]
    out["zero"] = x[:4].cpu().tolist()
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        out["oom"] = str(error)
    out["after"] = torch.randn(64, 64, device="cuda").matmul(torch.ones(64, 64, device="cuda")).shape[0]
    return out


def train(steps="2"):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
            self.norm = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x):
            h = self.norm(x)
            x = x + self.attention(h, h, h, need_weights=False)[0]
            return x + self.down(nn.functional.gelu(self.up(x)))

    with torch.device("cuda"):
        model = nn.Sequential(nn.Embedding(32000, 512), *[Block(512, 8) for _ in range(4)],
                              nn.Linear(512, 32000, bias=False))
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    after_model = torch.cuda.memory_allocated()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(int(steps)):
        tokens = torch.zeros(4, 256, dtype=torch.long, device="cuda")
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = logits = None
    states = sum(v.numel() * v.element_size() for s in optimizer.state.values() for v in s.values()
                 if v.is_cuda)
    return {"parameters": parameters, "after_model": after_model, "states": states,
            "allocated": torch.cuda.memory_allocated(), "peak": torch.cuda.max_memory_allocated(),
            "logits": 4 * 256 * 32000 * 4}


GEOMETRIES = {  # hidden, intermediate, layers, heads, KV heads, width of a head, tied
    "1b": (2048, 8192, 16, 32, 8, 64, True),
    "8b": (4096, 14336, 32, 32, 8, 128, False),
}


def generate(geometry, batch, prompt, new):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    hidden, inner, layers, heads, kv, head, tied = GEOMETRIES[geometry]
    config = LlamaConfig(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=kv, head_dim=head, vocab_size=128256,
                         tie_word_embeddings=tied, max_position_embeddings=131072, bos_token_id=1,
                         eos_token_id=2, pad_token_id=0)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cuda").eval()
    model.tie_weights()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    allocated = torch.cuda.memory_allocated()
    seen = {}
    forward = model.forward

    def spy(*args, **kwargs):
        seen["cache"] = kwargs.get("past_key_values")
        return forward(*args, **kwargs)

    model.forward = spy
    ids = torch.full((int(batch), int(prompt)), 5, dtype=torch.long, device="cuda")
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=int(new),
                         do_sample=False)
    kv_bytes = sum(t.numel() * t.element_size() for layer in seen["cache"].layers
                   for t in (layer.keys, layer.values))
    return {"weights": weights, "allocated": allocated, "kv": kv_bytes, "length": out.shape[1],
            "kv_formula": 2 * layers * kv * head * 2 * int(batch) * (int(prompt) + int(new) - 1)}


def graph(refused="yes"):
    import torch
    x = torch.randn(1024, 1024, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = x @ x
        big = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        z = y + 1
    pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
    for _ in range(3):
        captured.replay()
    torch.cuda.synchronize()
    reserved = torch.cuda.memory_reserved()
    forked = torch.cuda.CUDAGraph()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.graph(forked, stream=first):
        a = x + 1
        second.wait_stream(first)
        with torch.cuda.stream(second):
            b = a * 2
        first.wait_stream(second)
        c = b + 1
    error = None
    try:
        if refused == "yes":
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.cuda.synchronize()
    except Exception as e:
        error = str(e)
    del y, big, z, a, b, c
    captured.reset()
    forked.reset()
    torch.cuda.empty_cache()
    return {"pools": len(pools), "reserved": reserved, "after": torch.cuda.memory_reserved(),
            "refused": error}


def streams():
    """A tensor used on another stream is not reused before that stream's work is complete."""
    import ctypes
    import torch
    sim = ctypes.CDLL(None)
    sim.plimsoll_sim_advance.argtypes = [ctypes.c_uint64]
    side = torch.cuda.Stream()
    tensor = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
    address = tensor.data_ptr()
    tensor.record_stream(side)
    del tensor
    early = torch.empty(30 << 20, dtype=torch.uint8, device="cuda").data_ptr()
    sim.plimsoll_sim_advance(1000)
    late = torch.empty(30 << 20, dtype=torch.uint8, device="cuda").data_ptr()
    return {"early": early == address, "late": late == address}


def loader():
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    data = TensorDataset(torch.arange(64.0).view(32, 2))
    pinned, values = [], []
    for (batch,) in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
        pinned.append(batch.is_pinned())
        batch.cuda(non_blocking=True)
        values.append(batch[0, 0].item())
    return {"pinned": all(pinned), "values": values}


def layers():
    """What needs more than a status from the math libraries."""
    import torch
    from torch import nn
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)).cuda()
    net(torch.randn(4, 3, 32, 32, device="cuda", requires_grad=True)).sum().backward()
    q = torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.float16, requires_grad=True)
    nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    return {"scan": torch.cumsum(torch.ones(1000, device="cuda"), 0).shape[0],
            "fft": torch.fft.fft(torch.randn(16, device="cuda")).shape[0],
            "svd": torch.linalg.svd(torch.randn(8, 8, device="cuda"))[0].shape[0],
            "sort": torch.sort(torch.randn(1000, device="cuda"))[0].shape[0]}


def expandable():
    import torch
    kept = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
    free = torch.cuda.mem_get_info()[0]
    del kept[1]
    torch.cuda.empty_cache()
    return {"segments": len(torch.cuda.memory_snapshot()), "given_back": torch.cuda.mem_get_info()[0] - free,
            "expandable": all(s["is_expandable"] for s in torch.cuda.memory_snapshot())}


def leak(mib, count="1000"):
    import torch
    kept = []
    for _ in range(int(count)):
        kept.append(torch.empty(int(mib) << 20, dtype=torch.uint8, device="cuda"))
    return {"kept": len(kept)}


def children(mib):
    """Two processes share the device."""
    import multiprocessing
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=hold, args=(int(mib),)) for _ in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return {"codes": [w.exitcode for w in workers]}


def hold(mib):
    import time
    import torch
    kept = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
    deadline = time.monotonic() + 300
    while torch.cuda.mem_get_info()[0] > torch.cuda.mem_get_info()[1] - 2 * kept.numel():
        if time.monotonic() > deadline:
            raise RuntimeError("the other process never came")
        time.sleep(0.05)


def crash():
    import os
    import signal
    import time
    import torch
    kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    deadline = time.monotonic() + 90
    name = os.path.join(os.environ["PLIMSOLL_DRYRUN_DIR"], f"{os.getpid()}.pickle")
    while not os.path.exists(name) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGSEGV)
    return {"kept": kept.numel()}


def never():
    import torch
    x = torch.ones(1, device="cuda")
    while x.item() < 1:  # a value that a kernel should have computed
        x += 1
    return {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
