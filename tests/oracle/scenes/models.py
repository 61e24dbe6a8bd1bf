# SPDX-License-Identifier: Apache-2.0
"""Models and caches for the scenes, with the call structure of real programs."""

import torch
from torch import nn

from scenarios import in_file

APP = "/srv/app/"
LIB = "/opt/venv/lib/python3.11/site-packages/"


@in_file(APP + "model.py")
class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = torch.bmm(q, k.transpose(1, 2))
        return self.out(torch.bmm(scores.softmax(-1), v))


@in_file(APP + "model.py")
class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


@in_file(APP + "model.py")
class Transformer(nn.Module):
    def __init__(self, layers, dim, vocabulary=32000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@in_file(APP + "model.py")
def build(layers, dim, dtype=torch.bfloat16, device="cuda", vocabulary=32000):
    with torch.device(device):
        torch.set_default_dtype(dtype)
        model = Transformer(layers, dim, vocabulary)
        torch.set_default_dtype(torch.float32)
    return model


@in_file(APP + "model.py")
def tokens(batch, length, device="cuda"):
    return torch.zeros(batch, length, dtype=torch.long, device=device)


@in_file(LIB + "transformers/cache_utils.py")
class DynamicCache:
    """Keys and values that grow by concatenation, as in Hugging Face transformers."""

    def __init__(self, layers):
        self.keys = [None] * layers
        self.values = [None] * layers

    def update(self, k, v, layer):
        if self.keys[layer] is None:
            self.keys[layer], self.values[layer] = k, v
        else:
            self.keys[layer] = torch.cat([self.keys[layer], k], dim=1)
            self.values[layer] = torch.cat([self.values[layer], v], dim=1)
        return self.keys[layer], self.values[layer]


@in_file(LIB + "transformers/generation/utils.py")
def generate(cache, layers, batch, prompt, steps, width, device="cuda"):
    """One request: a prompt, then tokens one by one."""
    for step in range(steps + 1):
        length = prompt if step == 0 else 1
        for layer in range(layers):
            k = torch.empty(batch, length, width, dtype=torch.float16, device=device)
            v = torch.empty(batch, length, width, dtype=torch.float16, device=device)
            cache.update(k, v, layer)
        logits = torch.empty(batch, 32000, dtype=torch.float16, device=device)
        logits.softmax(-1)
    return cache
