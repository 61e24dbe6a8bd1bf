# SPDX-License-Identifier: Apache-2.0
"""What a request takes of a device besides keys and values, by the arithmetic of the model's config.json.

    row      for each prompt token whose log-probability is asked: one row of logits in the model's numbers, its
             logarithms as 32-bit floats, and one byte each for comparing them (vllm 0.33.0
             v1/worker/gpu_model_runner.py _get_prompt_logprobs_dict, v1/sample/sampler.py gather_logprobs)
    token    for each prompt token of a step: the moment of the wider half of a layer, attention (residual, normed,
             query, keys, values, output) or feed-forward (residual, normed, gate and up, their product)
    picture  the same of the vision tower, for each of its patches

Engines that run the largest step before they size their cache (vLLM) have the last two in it already; nothing runs
before them that asks for log-probabilities. Sizes are estimates until failures and measurements teach better.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
from typing import Any, Dict, Mapping, Optional

WIDTHS = {"float32": 4, "float": 4, "float64": 8}


@dataclasses.dataclass(frozen=True)
class Prices:
    """Bytes; 0: not known."""

    token: int = 0
    picture: int = 0
    row: int = 0


def _count(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32:
            return value
    return 0


def _moment(config: Mapping[str, Any], width: int) -> int:
    """Bytes for each position at the widest moment of a layer."""
    hidden = _count(config, "hidden_size", "n_embd", "d_model", "embed_dim")
    inner = _count(config, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    heads = _count(config, "num_attention_heads", "n_head", "num_heads") or 1
    each = _count(config, "head_dim") or hidden // heads
    kept = _count(config, "num_key_value_heads") or heads
    attention = 2 * hidden + 2 * heads * each + 2 * kept * each
    return width * max(attention, 2 * hidden + 3 * inner) if hidden else 0


def prices(config: Mapping[str, Any]) -> Prices:
    """Of a model's config.json."""
    inner = next((config[name] for name in ("text_config", "llm_config", "language_config")
                  if isinstance(config.get(name), dict)), config)
    kind = str(inner.get("dtype") or inner.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype") or "")
    width = WIDTHS.get(kind.rpartition(".")[2], 2)
    vocabulary = _count(inner, "vocab_size") or _count(config, "vocab_size")
    vision = config.get("vision_config")
    picture = 0
    if isinstance(vision, dict):
        side, patch = _count(vision, "image_size"), _count(vision, "patch_size", "spatial_patch_size")
        picture = (side // patch) ** 2 * _moment(vision, width) if side and patch else 0
    return Prices(_moment(inner, width), picture, vocabulary * (width + 4 + 1))


def _cached(name: str, environ: Mapping[str, str]) -> Optional[str]:
    """config.json of a model of Hugging Face's hub, where its cache has one."""
    home = environ.get("HF_HOME") or os.path.join(environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                                                  "huggingface")
    hub = environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(hub, "models--" + name.replace("/", "--"), "snapshots")
    found = glob.glob(os.path.join(glob.escape(folder), "*", "config.json"))
    return max(found, key=os.path.getmtime, default=None)


def find_config(name: str, environ: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """The config.json of a model: a file, a folder, or a name whose files are in the cache. None: not here."""
    path: Optional[str] = name
    if os.path.isdir(name):
        path = os.path.join(name, "config.json")
    elif not os.path.isfile(name):
        path = _cached(name, environ) if name and ".." not in name else None
    try:
        if path is None or os.path.getsize(path) > 16 << 20:
            return None
        with open(path, "rb") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
