# SPDX-License-Identifier: Apache-2.0
"""Real forward passes whose allocations are recorded. Runs in the oracle's environment, on a simulated GPU.

    python workload_real.py CASES     JSON list of {"name", "program", parameters}; prints a JSON object of
                                      name -> list of "+ bytes" and "- n" (the n-th allocation)
"""

import json
import sys

import torch
import torch.nn.functional as F
from torch import nn


def recorded(program):
    """What `program` asks of the allocator when it runs for the second time."""
    program()
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(context=None)
    program()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    lines, live, count = [], {}, 0
    for entry in trace:
        if entry["action"] == "alloc":
            lines.append(f"+ {entry['size']}")
            live[entry["addr"]] = count
            count += 1
        elif entry["action"] == "free_completed":
            lines.append(f"- {live[entry['addr']]}")
    return lines


def on_device(cls, config):
    with torch.device("meta"):
        model = cls(config).to(torch.bfloat16)
    return model.to_empty(device="cuda").eval()


def text(p):
    """A greedy loop over LlamaForCausalLM with a DynamicCache; inputs are made beforehand."""
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=p["hidden"], intermediate_size=p["intermediate"],
                         num_hidden_layers=p["layers"], num_attention_heads=p["heads"],
                         num_key_value_heads=p["kv_heads"], head_dim=p["head_dim"], vocab_size=p["vocab"],
                         max_position_embeddings=8192)
    model = on_device(LlamaForCausalLM, config)
    lengths = [p["length"]] + [1] * (p["steps"] - 1)
    ids = [torch.zeros((p["batch"], n), dtype=torch.long, device="cuda") for n in lengths]
    masks = [torch.zeros((p["batch"], p["length"] + i), dtype=torch.long, device="cuda")
             for i in range(p["steps"])]

    def run():
        cache = DynamicCache(config=config)
        out = None
        with torch.no_grad():
            for step, mask in zip(ids, masks):
                out = model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1,
                            attention_mask=mask if p["masked"] else None).logits
        del cache, out
    return run


def vision(p):
    from transformers import CLIPVisionConfig, CLIPVisionModel
    config = CLIPVisionConfig(hidden_size=p["hidden"], intermediate_size=p["intermediate"],
                              num_hidden_layers=p["layers"], num_attention_heads=p["heads"],
                              image_size=p["side"], patch_size=p["patch"])
    model = on_device(CLIPVisionModel, config)

    def run():
        x = torch.zeros(p["images"], 3, p["side"], p["side"], dtype=torch.bfloat16, device="cuda")
        with torch.no_grad():
            out = model(x)
        del x, out
    return run


class Residual(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
        self.shortcut = nn.Conv2d(i, o, 1) if i != o else None

    def forward(self, x):
        h = self.norm1(x)
        h = F.silu(h)
        h = self.conv1(h)
        h = self.norm2(h)
        h = F.silu(h)
        h = self.conv2(h)
        if self.shortcut is not None:
            x = self.shortcut(x)
        return x + h


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.GroupNorm(32, c)
        self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))

    def forward(self, x):
        b, c, h, w = x.shape
        y = self.norm(x.view(b, c, h * w)).transpose(1, 2)
        q, k, v = self.q(y), self.k(y), self.v(y)
        a = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return self.out(a).transpose(1, 2).reshape(b, c, h, w) + x


class Upsample(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return self.conv(x)


class Decoder(nn.Module):
    """The layers of AutoencoderKL's decoder, in their order."""

    def __init__(self, channels):
        super().__init__()
        c = channels[0]
        stack = [nn.Conv2d(4, c, 3, padding=1), Residual(c, c), Attention(c), Residual(c, c)]
        for level, o in enumerate(channels):
            stack += [Residual(c if i == 0 else o, o) for i in range(3)]
            c = o
            if level + 1 < len(channels):
                stack.append(Upsample(c))
        stack += [nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1)]
        self.stack = nn.Sequential(*stack)

    def forward(self, x):
        return self.stack(x)


def decoder(p):
    model = Decoder([p["c0"], p["c1"], p["c2"], p["c3"]]).to(torch.bfloat16).cuda().eval()
    latent = torch.zeros(1, 4, p["height"], p["width"], dtype=torch.bfloat16, device="cuda")

    def run():
        with torch.no_grad():
            model(latent)
    return run


def main():
    cases = json.loads(sys.argv[1])
    print("RESULT " + json.dumps({c["name"]: recorded(globals()[c["program"]](c)) for c in cases}))


if __name__ == "__main__":
    main()
