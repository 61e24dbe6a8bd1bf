# SPDX-License-Identifier: Apache-2.0
"""A model folder with the geometry of a real model, no weights, and a tokenizer of single bytes.

    python3 tiny_model.py FOLDER [1b|8b|nano]

nano is no real model's: it is small enough to be computed.
"""

import json
import pathlib
import sys

GEOMETRIES = {
    "nano": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True, "vocab_size": 512},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False},
}
# One that a test of the allocator runs and soaks.
SMALLEST = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
            "num_key_value_heads": 4, "vocab_size": 8192}
VOCABULARY = 128256
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def weight_bytes(name):
    """Parameters times two bytes, from the shapes of the Llama architecture."""
    g = GEOMETRIES[name]
    hidden, inner = g["hidden_size"], g["intermediate_size"]
    q, kv = g["num_attention_heads"] * g["head_dim"], g["num_key_value_heads"] * g["head_dim"]
    layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * inner + 2 * hidden
    embeddings = VOCABULARY * hidden * (1 if g["tie_word_embeddings"] else 2)
    return 2 * (g["num_hidden_layers"] * layer + embeddings + hidden)


def kv_bytes_per_token(name):
    g = GEOMETRIES[name]
    return 2 * g["num_hidden_layers"] * g["num_key_value_heads"] * g["head_dim"] * 2


def byte_letters():
    """The printable character that byte-level tokenizers write for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [b for b in range(256) if b not in plain]
    return sorted([chr(b) for b in plain] + [chr(256 + i) for i in range(len(other))])


def tokenizer():
    special = ["<s>", "</s>", "<pad>"]
    vocabulary = {letter: i for i, letter in enumerate(byte_letters() + special)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": vocabulary[s], "content": s, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for s in special]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": False, "vocab": vocabulary, "merges": []}}


def make(folder, name="1b"):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
              "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
              "torch_dtype": "bfloat16", "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 258,
              "hidden_act": "silu", **GEOMETRIES[name]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                "pad_token": "<pad>", "model_max_length": 131072, "chat_template": TEMPLATE}
    for file, content in (("config.json", config), ("tokenizer.json", tokenizer()),
                          ("tokenizer_config.json", settings)):
        (folder / file).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder


if __name__ == "__main__":
    make(*sys.argv[1:3])
