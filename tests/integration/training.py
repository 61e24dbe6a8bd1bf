# SPDX-License-Identifier: Apache-2.0
"""Training programs that repeat themselves, with real PyTorch: python training.py KIND WHERE STEPS BATCH [FILE]

KIND is made of words: lm (a transformer) or conv (a residual network), and any of
  large         more and wider layers
  bf16          autocast
  checkpointed  activations are computed again
  accumulated   gradients of four batches
  loops         the optimizer goes from tensor to tensor
  streams       batches are made on another stream
  varying       every step has another length
such as lm-bf16-checkpointed. WHERE: record (PyTorch's allocator, its history goes to FILE) or global (Plimsoll's
allocator, by PLIMSOLL_ALLOC_*). Prints one line of JSON. tests/data/training was made with it on the simulated GPU.
"""

import contextlib
import json
import os
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LENGTH, WORDS = 512, 32000


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
        seen = ((q @ k.transpose(-1, -2)) / 8).softmax(-1) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    def __init__(self, width, layers, checkpointed):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.checkpointed = checkpointed

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        y = torch.relu(self.norms[0](self.convs[0](x)))
        return torch.relu(x + self.norms[1](self.convs[1](y)))


class Conv(nn.Module):
    def __init__(self, large):
        super().__init__()
        parts = [nn.Conv2d(3, 64, 7, 2, 3)]
        for channels in (64, 128, 256, 512):
            parts += [Residual(channels) for _ in range(4 if large else 2)]
            parts += [nn.Conv2d(channels, 2 * channels, 3, 2, 1)] if channels < 512 else []
        self.parts, self.head = nn.Sequential(*parts), nn.Linear(512, 1000)

    def forward(self, x):
        return self.head(self.parts(x).mean((2, 3)))


def batch_of(words, size, step):
    if "conv" in words:
        return torch.empty(size, 3, 224, 224, device="cuda"), torch.zeros(size, dtype=torch.long, device="cuda")
    length = LENGTH - 64 * (step % 4) if "varying" in words else LENGTH
    return (torch.zeros(size, length, dtype=torch.long, device="cuda"),
            torch.zeros(size * length, dtype=torch.long, device="cuda"))


def made_aside(side, words, size, step):
    """A batch that another stream makes."""
    with torch.cuda.stream(side):
        pair = batch_of(words, size, step)
    torch.cuda.current_stream().wait_stream(side)
    for tensor in pair:
        tensor.record_stream(torch.cuda.current_stream())
    return pair


def train(words, steps, size):
    large = "large" in words
    with torch.device("cuda"):
        model = Conv(large) if "conv" in words else Transformer(2048 if large else 1024, 24 if large else 8,
                                                                "checkpointed" in words)
    optimizer = torch.optim.AdamW(model.parameters(), foreach="loops" not in words)
    side = torch.cuda.Stream()
    for step in range(steps):
        for _ in range(4 if "accumulated" in words else 1):
            pair = made_aside(side, words, size, step) if "streams" in words else batch_of(words, size, step)
            with torch.autocast("cuda", torch.bfloat16) if "bf16" in words else contextlib.nullcontext():
                loss = functional.cross_entropy(model(pair[0]), pair[1])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()


def main(kind, where, steps, size, path=None):
    if where == "record":
        torch.cuda.memory._record_memory_history(context=None, max_entries=sys.maxsize)
        train(kind.split("-"), int(steps), int(size))
        torch.cuda.memory._dump_snapshot(path)
        return {}
    from plimsoll import alloc

    alloc.install()
    train(kind.split("-"), int(steps), int(size))
    wrong = alloc._library().plimsoll_alloc_check(0)
    return {"figures": alloc.figures(0), "check": wrong.decode() if wrong else None}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)
    # PyTorch's thread for the backward pass may still hold its last task. If it gives that up while the
    # interpreter ends, it waits for the interpreter's lock, and CPython 3.11 ends such a thread by unwinding it
    # through C++ destructors: std::terminate(), once in some hundred runs, under any allocator.
    os._exit(0)
