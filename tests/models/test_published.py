#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published and worked-out numbers of real models against the library: parameters, weights, KV bytes.

usage: test_published.py GEOMETRY_DUMP DATA

Every number that a file of DATA derives is compared; a key that this test doesn't know is a failure, so that
nothing is passed over. Then what needs more than one device or another element format. Prints TAP.
"""

import json
import pathlib
import sys

import geometry

PROGRAM, DATA = sys.argv[1], pathlib.Path(sys.argv[2])
MODELS = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in sorted(DATA.glob("*.json"))}
NO_NUMBER = {"note", "parameters_basis", "ssm_state_dtype_bytes"}


# How each derived number follows from an answer: f(answer at 16 bit, its other answers, the file's numbers).
KNOWN = {
    # a repository holds headers and a tokenizer too: some ten megabytes of 689 GB
    "repository_artifact_bytes_reported":
        lambda a, o, d: o["mtp"]["weight_bytes"] + max(0, min(16 << 20, d["repository_artifact_bytes_reported"]
                                                              - o["mtp"]["weight_bytes"])),
    "parameters": lambda a, o, d: a["parameters"] - a["parts"]["vision"] - o["index_parameters"],
    "weights_bytes": lambda a, o, d: a["weight_bytes"],
    "weights_bytes_bf16": lambda a, o, d: a["weight_bytes"],
    "weights_bytes_16bit": lambda a, o, d: a["weight_bytes"],
    "kv_bytes_per_token_16bit": lambda a, o, d: a["token_bytes"] + a["windowed_token_bytes"] * (
        "kv_bytes_16bit_steady_per_seq" in d) - a["index_bytes"],
    "kv_bytes_per_token_8bit": lambda a, o, d: o["fp8"]["token_bytes"] - a["index_bytes"],
    "kv_bytes_per_token_fp8_ds_mla": lambda a, o, d: o["fp8_ds_mla"]["token_bytes"] - a["index_bytes"],
    "indexer_bytes_per_token_fp8": lambda a, o, d: a["index_bytes"],
    "kv_bytes_per_token_16bit_full_layers": lambda a, o, d: a["token_bytes"],
    "kv_bytes_per_token_16bit_if_no_window_saving":
        lambda a, o, d: a["token_bytes"] + a["windowed_token_bytes"],
    "kv_bytes_16bit_sliding_layers_steady_per_seq": lambda a, o, d: a["window_cap_bytes"],
    "kv_bytes_16bit_window_layers_steady_per_seq": lambda a, o, d: a["window_cap_bytes"],
    "kv_bytes_16bit_local_layers_cap_per_seq": lambda a, o, d: a["window_cap_bytes"],
    "kv_bytes_16bit_steady_per_seq": lambda a, o, d: a["window_cap_bytes"],
    "kv_bytes_per_token_per_layer_16bit":
        lambda a, o, d: (a["token_bytes"] + a["windowed_token_bytes"]) // a["kv_layers"],
    "kv_bytes_per_token_per_full_layer_16bit": lambda a, o, d: a["token_bytes"] // d["full_layers"],
    "kv_bytes_per_token_per_sliding_layer_16bit":
        lambda a, o, d: a["windowed_token_bytes"] // d["sliding_layers"],
    "state_bytes_per_seq": lambda a, o, d: a["state_bytes"],
    "state_bytes_per_seq_16bit": lambda a, o, d: a["state_bytes"],
    "state_bytes_per_seq_per_mamba_layer": lambda a, o, d: a["state_bytes"] // d["mamba_layers"],
    "state_bytes_per_seq_per_mamba_layer_16bit": lambda a, o, d: a["state_bytes"] // d["mamba_layers"],
    "state_bytes_per_seq_per_linear_layer": lambda a, o, d: a["state_bytes"] // d["linear_layers"],
    "state_bytes_per_seq_per_linear_layer_16bit": lambda a, o, d: a["state_bytes"] // d["linear_layers"],
    "kv_bytes_per_token_16bit_self": lambda a, o, d: a["token_bytes"],
    "cross_kv_bytes_per_seq_16bit": lambda a, o, d: a["cross_bytes"],
    "full_layers": lambda a, o, d: a["full_layers"],
    "full_attention_layers": lambda a, o, d: a["full_layers"],
    "attention_layers": lambda a, o, d: a["full_layers"],
    "sliding_layers": lambda a, o, d: a["window_layers"],
    "chunked_local_layers": lambda a, o, d: a["window_layers"],
    "mamba_layers": lambda a, o, d: a["state_layers"],
    "linear_layers": lambda a, o, d: a["state_layers"],
}

# More than one device: (model, placement, format, key, bytes). Worked out by hand from the formulas of
# docs/design/models.md.
PLACED = [
    ("Llama-3.1-8B", {}, "auto", "sequence_8192", 1073741824),
    ("Llama-3.1-70B", {"tp": 8}, "auto", "token_bytes", 40960),
    ("Qwen2.5-7B", {"tp": 7}, "auto", "error", "E_RANGE"),
    ("Qwen2.5-7B", {"tp": 4}, "auto", "token_bytes", 14336),
    ("DeepSeek-V3", {"tp": 8}, "auto", "token_bytes", 70272),
    ("DeepSeek-V3", {"mtp": True}, "auto", "token_bytes", 71424),
    ("DeepSeek-V3", {}, "nvfp4_ds_mla", "token_bytes", 61 * 352),
    ("Llama-3.1-8B", {"pp": 3, "pp_rank": 2}, "auto", "token_bytes", 10 * 4096),
    ("Llama-3.1-8B", {"pp": 3, "pp_rank": 1}, "auto", "token_bytes", 11 * 4096),
    ("Llama-3.1-8B", {}, "fp8_per_token_head", "token_bytes", 32 * 8 * (256 + 8)),
    ("Llama-3.1-8B", {}, "int4_per_token_head", "token_bytes", 32 * 8 * (128 + 8)),
    ("Llama-3.1-8B", {}, "nvfp4", "token_bytes", 32 * 8 * 144),
    ("Llama-3.1-8B", {}, "turboquant_k8v4", "token_bytes", 8 * (28 * (128 + 68) + 4 * 512)),
    ("Llama-3.1-8B", {}, "turboquant_4bit_nc", "token_bytes", 8 * (28 * 134 + 4 * 512)),
    ("Llama-3.1-8B", {}, "turboquant_k3v4_nc", "token_bytes", 8 * (28 * (50 + 68) + 4 * 512)),
    ("Llama-3.1-8B", {}, "turboquant_3bit_nc", "token_bytes", 8 * (28 * (50 + 52) + 4 * 512)),
    ("Llama-3.1-8B", {}, "q8_0", "token_bytes", 32 * 8 * 2 * 136),
    ("Llama-3.1-8B", {}, "q4_0", "token_bytes", 32 * 8 * 2 * 72),
    ("Llama-3.1-8B", {}, "fp8_ds_mla", "error", "E_USAGE"),
    ("Llama-3.1-8B", {"tp": 2, "dcp": 3}, "auto", "error", "E_USAGE"),
    ("Nemotron-H-56B-Base-8K", {"tp": 8}, "auto", "state_bytes", 54 * (3 * (2048 + 2 * 256) * 2 + 32 * 64 * 256 * 2)),
    ("Llama-3.1-8B", {"tp": 2}, "auto", "weight_bytes", 16060522496 // 2 + 65 * 4096),
    ("Llama-3.1-8B", {"pp": 2}, "auto", "parameters", 16 * 218112000 + 128256 * 4096),
    ("Llama-3.1-8B", {"pp": 2, "pp_rank": 1}, "auto", "parameters", 16 * 218112000 + 128256 * 4096 + 4096),
    ("Qwen3-0.6B", {"pp": 2, "pp_rank": 1}, "auto", "parameters",
     14 * (2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 3072 + 2 * 1024 + 256) + 151936 * 1024 + 1024),
    ("Qwen3-30B-A3B", {"ep": 4, "tp": 4}, "auto", "expert_parameters", 48 * 32 * 3 * 2048 * 768),
    ("Qwen3-30B-A3B", {"tp": 4}, "auto", "expert_parameters", 48 * 128 * 3 * 2048 * 192),
    ("Qwen2.5-7B", {"tp": 4, "vocab_pad": 64}, "auto", "parts.head", 3584 * 152064 // 4),
    ("gpt-oss-20b", {"tp": 2, "vocab_pad": 64}, "auto", "parts.embedding", 2880 * 201088 // 2),
    ("Qwen3-VL-8B-Instruct", {"no_vision": True}, "auto", "parameters", 8190735360),
    ("Mixtral-8x7B-v0.1", {}, "auto", "active_parameters", 12879925248),
]


class Points:
    def __init__(self):
        self.n = self.failed = 0

    def check(self, name, got, want):
        self.n += 1
        ok = got == want
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.n} - {name}")
        if not ok:
            print(f"# got {got!r}, want {want!r}")


def look(answer, key):
    if key == "expert_parameters":
        return answer["parts"]["experts"]
    for step in key.split("."):
        answer = answer.get(step) if isinstance(answer, dict) else None
    return answer


def published(points):
    names = list(MODELS)
    questions = [{"config": geometry.config_of(MODELS[n]), "kv": f} for n in names for f in ("auto", "fp8")]
    latent = [n for n in names if "kv_lora_rank" in MODELS[n]["config"]]
    questions += [{"config": geometry.config_of(MODELS[n]), "kv": "fp8_ds_mla"} for n in latent]
    questions += [{"config": geometry.config_of(MODELS[n]), "placement": {"mtp": True}} for n in latent]
    answers = geometry.ask(PROGRAM, questions)
    loaded = dict(zip(latent, answers[2 * len(names) + len(latent):]))
    packed = dict(zip(latent, answers[2 * len(names):]))
    for i, name in enumerate(names):
        base, other = answers[2 * i], {"fp8": answers[2 * i + 1], "fp8_ds_mla": packed.get(name), "mtp": loaded.get(name)}
        if "error" in base:
            points.check(f"{name} can be read", base["message"], None)
            continue
        config = MODELS[name]["config"]
        # the published total of V3.2 leaves out its sparse indexer
        index = config.get("index_n_heads", 0) * config.get("index_head_dim", 0) * config.get("q_lora_rank", 0)
        if index:
            index += config["index_head_dim"] * (config["hidden_size"] + 2)
            index += config["index_n_heads"] * config["hidden_size"]
        other["index_parameters"] = index * config["num_hidden_layers"] if index else 0
        derived = MODELS[name]["derived"]
        for key, want in derived.items():
            if key in NO_NUMBER:
                continue
            if key not in KNOWN:
                points.check(f"{name}: {key} is known to this test", key, None)
                continue
            points.check(f"{name}: {key}", KNOWN[key](base, other, derived), want)


def placed(points):
    questions = [{"config": geometry.config_of(MODELS[m]), "placement": p, "kv": f} for m, p, f, _, _ in PLACED]
    for (model, place, form, key, want), answer in zip(PLACED, geometry.ask(PROGRAM, questions)):
        where = " ".join(f"{k} {v}" for k, v in place.items()) or "one device"
        points.check(f"{model}, {where}, {form}: {key}", look(answer, key), want)


def main():
    points = Points()
    published(points)
    placed(points)
    print(f"1..{points.n}")
    return 1 if points.failed else 0


if __name__ == "__main__":
    sys.exit(main())
