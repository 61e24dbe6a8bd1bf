#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters and bytes that the library counts from a config.json against the real classes of transformers.

usage: test_model_weights.py GEOMETRY_DUMP DATA

Each class is built on PyTorch's meta device (no memory) from exactly the configuration that the library
reads: the models of DATA, and made-up geometries of every family: defaults of the class, and sizes, biases,
ties and layer patterns that no published model has. Equality is to the parameter. The one thing counted
besides parameters are stored buffers (score corrections, layer scalars). Needs the environment of
tools/oracle_env.sh --hf; in_env.py runs it there. Prints TAP.
"""

import json
import os
import pathlib
import re
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import geometry  # noqa: E402

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import CONFIG_MAPPING  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

VISION = re.compile("vision|visual|multi_modal")
STORED_BUFFERS = ("e_score_correction_bias", "layer_scalar", "expert_bias")
SMALL = {"pad_token_id": None, "vocab_size": 1003, "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 5,
         "num_attention_heads": 6, "num_key_value_heads": 2}
EVEN = dict(SMALL, head_dim=40)
GPT = {"vocab_size": 777, "n_embd": 96, "n_layer": 3, "n_head": 6, "n_positions": 64}
MOE = dict(EVEN, moe_intermediate_size=24, num_experts_per_tok=2)
LATENT = dict(SMALL, num_key_value_heads=6, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20,
              moe_intermediate_size=24, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2)
HYBRID = dict(EVEN, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4)
STATES = dict(SMALL, mamba_n_heads=12, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=24)

# (model_type, keys of the configuration beyond the defaults of its class)
CASES = [
    ("llama", {}), ("llama", SMALL), ("llama", dict(EVEN, attention_bias=True, mlp_bias=True)),
    ("llama", dict(EVEN, tie_word_embeddings=True)),
    ("mistral", {}), ("mistral", dict(EVEN, sliding_window=None)), ("mistral", dict(SMALL, tie_word_embeddings=True)),
    ("ministral", EVEN), ("ministral3", EVEN),
    ("mixtral", {}), ("mixtral", dict(SMALL, num_local_experts=3)),
    ("qwen2", {}), ("qwen2", dict(SMALL, tie_word_embeddings=True)),
    ("qwen2_moe", {}), ("qwen2_moe", dict(SMALL, num_experts=6, moe_intermediate_size=24,
                                          shared_expert_intermediate_size=56, decoder_sparse_step=2)),
    ("qwen2_moe", dict(SMALL, num_experts=6, moe_intermediate_size=24, shared_expert_intermediate_size=56,
                       mlp_only_layers=[0, 3], qkv_bias=False)),
    ("qwen3", {}), ("qwen3", dict(EVEN, attention_bias=True)), ("qwen3", dict(EVEN, tie_word_embeddings=True)),
    ("qwen3_moe", {}), ("qwen3_moe", dict(MOE, num_experts=5, decoder_sparse_step=2, mlp_only_layers=[1])),
    ("qwen3_next", {}), ("qwen3_next", dict(HYBRID, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                                            shared_expert_intermediate_size=32, full_attention_interval=2)),
    ("qwen3_5_text", {}), ("qwen3_5_text", HYBRID), ("qwen3_5_moe_text", {}),
    ("gemma", {}), ("gemma", dict(EVEN, attention_bias=True)), ("gemma2", {}), ("gemma2", EVEN),
    ("gemma3_text", {}), ("gemma3_text", dict(EVEN, attention_bias=True)), ("gemma3n_text", {}), ("gemma4_text", {}),
    ("gemma4_text", dict(EVEN, global_head_dim=64, num_global_key_value_heads=1, attention_k_eq_v=True,
                         enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=24,
                         hidden_size_per_layer_input=0)),
    ("gemma4_text", dict(EVEN, num_hidden_layers=8, num_kv_shared_layers=3, use_double_wide_mlp=True)),
    ("phi", {}), ("phi", dict(SMALL, qk_layernorm=True)), ("phi3", {}), ("phi3", SMALL),
    ("phimoe", {}), ("phimoe", dict(SMALL, num_local_experts=3, attention_bias=True, lm_head_bias=True)),
    ("deepseek_v2", dict(num_experts_per_tok=2)), ("deepseek_v2", dict(LATENT, q_lora_rank=None, first_k_dense_replace=1)),
    ("deepseek_v2", dict(LATENT, q_lora_rank=16, attention_bias=True)),
    ("deepseek_v3", {}), ("deepseek_v3", dict(LATENT, q_lora_rank=16, first_k_dense_replace=2, n_group=2, topk_group=1)),
    ("deepseek_v32", {}), ("deepseek_v32", dict(LATENT, q_lora_rank=16, index_n_heads=4, index_head_dim=16)),
    ("glm", {}), ("glm", dict(EVEN, attention_bias=False)), ("glm4", {}), ("glm4", EVEN),
    ("glm4_moe", {}), ("glm4_moe", dict(MOE, n_routed_experts=6, n_shared_experts=2, first_k_dense_replace=2,
                                        use_qk_norm=True, attention_bias=True)),
    ("opt", {}), ("opt", dict(vocab_size=501, hidden_size=96, num_attention_heads=6, num_hidden_layers=3, ffn_dim=200,
                              word_embed_proj_dim=48, max_position_embeddings=64)),
    ("gpt2", {}), ("gpt2", dict(GPT, n_inner=200)), ("gpt_neox", {}), ("gpt_neox", dict(SMALL, attention_bias=False)),
    ("gptj", {}), ("gptj", dict(GPT, rotary_dim=8)), ("gpt_bigcode", {}), ("gpt_bigcode", dict(GPT, multi_query=False)),
    ("falcon", {}), ("falcon", dict(vocab_size=501, hidden_size=96, num_attention_heads=6, num_hidden_layers=3,
                                    new_decoder_architecture=True, num_kv_heads=2, bias=True)),
    ("falcon", dict(vocab_size=501, hidden_size=96, num_attention_heads=6, num_hidden_layers=3, multi_query=False,
                    parallel_attn=False, alibi=True)),
    ("bloom", {}), ("bloom", dict(vocab_size=501, hidden_size=96, n_head=6, n_layer=3)),
    ("mpt", {}), ("mpt", dict(d_model=96, n_heads=6, n_layers=3, vocab_size=501)),
    ("gpt_oss", {}), ("gpt_oss", dict(EVEN, num_local_experts=6, num_experts_per_tok=2)),
    ("jamba", {}), ("jamba", dict(SMALL, num_experts=4, mamba_d_state=8, mamba_expand=3, num_hidden_layers=9)),
    ("nemotron_h", dict(EVEN, hybrid_override_pattern="M-M*E", mamba_num_heads=12, mamba_head_dim=16,
                                            n_groups=2, ssm_state_size=24, n_routed_experts=4, moe_intermediate_size=20,
                                            moe_shared_expert_intermediate_size=28)),
    ("mamba", {}), ("mamba", dict(hidden_size=96, num_hidden_layers=3, state_size=8, expand=3, vocab_size=500,
                                  time_step_rank=5, tie_word_embeddings=False, use_bias=True)),
    ("mamba2", {}), ("mamba2", dict(hidden_size=96, num_hidden_layers=3, num_heads=12, head_dim=16, state_size=24,
                                    n_groups=2, vocab_size=500, use_bias=True)),
    ("falcon_mamba", {}), ("falcon_h1", {}),
    ("falcon_h1", dict(STATES, mamba_d_ssm=192, mamba_rms_norm=True, head_dim=16)),
    ("bamba", {}), ("bamba", dict(STATES, attn_layer_indices=[1, 4])),
    ("granitemoehybrid", {}), ("granitemoehybrid", dict(
        STATES, layer_types=["mamba", "attention", "mamba", "mamba", "attention"], num_local_experts=0,
        num_experts_per_tok=0, shared_intermediate_size=64)),
    ("llama4_text", {}), ("llama4_text", dict(EVEN, intermediate_size_mlp=304, num_local_experts=3, interleave_moe_layer_step=2)),
    ("cohere", {}), ("cohere", dict(SMALL, use_qk_norm=True, attention_bias=True)), ("cohere2", {}), ("cohere2", EVEN),
    ("olmo", {}), ("olmo", SMALL), ("olmo2", {}), ("olmo2", SMALL), ("olmo3", {}), ("olmo3", SMALL),
    ("olmoe", {}), ("olmoe", dict(SMALL, num_experts=4, num_experts_per_tok=2)),
    ("granite", {}), ("granite", dict(SMALL, attention_bias=True, mlp_bias=True)),
    ("granitemoe", {}), ("granitemoe", dict(SMALL, num_local_experts=3)),
    ("granitemoeshared", dict(SMALL, num_local_experts=3, shared_intermediate_size=40)),
    ("starcoder2", {}), ("starcoder2", dict(SMALL, use_bias=False)),
    ("minicpm3", {}), ("minicpm3", dict(SMALL, num_key_value_heads=6, q_lora_rank=16, kv_lora_rank=24, qk_nope_head_dim=12,
                                        qk_rope_head_dim=8, v_head_dim=20)),
    ("stablelm", {}), ("stablelm", dict(SMALL, use_qkv_bias=True, qk_layernorm=True)),
    ("stablelm", dict(SMALL, use_parallel_residual=True)),
    ("exaone4", {}), ("exaone4", dict(SMALL, sliding_window=None, layer_types=["full_attention"] * 5)), ("smollm3", {}), ("smollm3", dict(SMALL, mlp_bias=True)),
    ("ernie4_5", {}), ("ernie4_5", dict(EVEN, use_bias=True)),
    ("ernie4_5_moe", {}), ("ernie4_5_moe", dict(SMALL, moe_num_experts=4, moe_k=2, moe_intermediate_size=24,
                                                moe_layer_interval=2, moe_layer_start_index=1, moe_layer_end_index=3)),
    ("hunyuan_v1_dense", dict(EVEN)), ("hunyuan_v1_moe", dict(EVEN, num_experts=3, moe_topk=2)),
    ("seed_oss", {}), ("seed_oss", dict(EVEN, attention_out_bias=True, attention_bias=False)),
    ("mimo_v2_flash", {}), ("minimax", {}), ("minimax", dict(EVEN, num_local_experts=3)),
    ("minimax_m2", {}), ("minimax_m2", dict(EVEN, num_local_experts=3, num_experts_per_tok=2)),
    ("kimi_linear", {}), ("lfm2", {}), ("lfm2", dict(SMALL, full_attn_idxs=[1, 3], conv_bias=True)),
    ("lfm2_moe", dict(SMALL, layer_types=["conv", "full_attention", "conv", "conv", "full_attention"], num_experts=4,
                      moe_intermediate_size=24, num_dense_layers=1, num_experts_per_tok=2)),
    ("arcee", {}), ("arcee", SMALL), ("apertus", {}), ("apertus", SMALL),
    ("nemotron", dict(SMALL, head_dim=16)), ("nemotron", dict(SMALL, head_dim=16, attention_bias=True, mlp_bias=True)),
    ("glm_moe_dsa", {}), ("glm_moe_dsa", dict(LATENT, q_lora_rank=16, index_n_heads=4, index_head_dim=16)),
    ("glm4_moe_lite", {}), ("solar_open", {}), ("hy_v3", {}), ("hy_v3", dict(MOE, num_experts=4)), ("exaone_moe", {}),
    ("exaone_moe", dict(MOE, num_experts=4, num_shared_experts=2)), ("cwm", {}), ("helium", {}),
    ("mellum", {}), ("jais2", {}), ("jais2", SMALL),
    ("whisper", {}), ("whisper", dict(d_model=96, encoder_layers=3, decoder_layers=2, encoder_attention_heads=6,
                                      decoder_attention_heads=6, encoder_ffn_dim=200, decoder_ffn_dim=180,
                                      num_mel_bins=128, max_source_positions=200, vocab_size=501)),
    ("qwen2_vl", {}), ("qwen2_5_vl", {}), ("qwen3_vl", {}), ("qwen3_vl_moe", {}), ("qwen3_5", {}), ("qwen3_5_moe", {}),
    ("gemma3", {}), ("llama4", {}), ("llava", {}), ("mistral3", {}), ("gemma4", {"vision_config": {}}), ("paligemma", {}),
]


def class_of(model_type):
    tables = (modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
              modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    names = [t[model_type] for t in tables if model_type in t]
    return getattr(transformers, names[0] if isinstance(names[0], str) else names[0][0])


def real_parameters(config_class, model_class, keys, text_only=False):
    config = config_class(**keys)
    with torch.device("meta"):
        model = model_class(config)
    # a tied output matrix is the embedding itself, and named once
    seen = {id(p): p.numel() for n, p in model.named_parameters() if not (text_only and VISION.search(n))}
    stored = sum(b.numel() for n, b in model.named_buffers() if n.endswith(STORED_BUFFERS))
    return sum(seen.values()) + stored


def case_of(model_type, keys):
    model_class = class_of(model_type)
    config = dict(keys, model_type=model_type, architectures=[model_class.__name__])
    if "vision_config" in keys or model_type in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5",
                                                  "qwen3_5_moe", "gemma3", "llama4", "llava", "mistral3", "paligemma"):
        made = CONFIG_MAPPING[model_type](**keys).to_dict()
        config.update(text_config=made["text_config"], vision_config=made["vision_config"],
                      tie_word_embeddings=made["tie_word_embeddings"])
    return config, lambda: real_parameters(CONFIG_MAPPING[model_type], model_class, keys)


def published(data):
    """The models of DATA that the installed transformers has a class for, whole."""
    for path in sorted(pathlib.Path(data).glob("*.json")):
        config = geometry.config_of(json.loads(path.read_text(encoding="utf-8")))
        config.pop("quantization_config", None)
        model_type = {"kimi_k2": "deepseek_v3"}.get(config["model_type"], config["model_type"])
        if model_type not in CONFIG_MAPPING:
            continue
        keys = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
        if model_type == "gemma4":  # switches that the file of facts leaves out
            keys["text_config"] = dict(keys["text_config"], enable_moe_block=True, attention_k_eq_v=True,
                                       top_k_experts=8, hidden_size_per_layer_input=0)
            config["text_config"] = keys["text_config"]
        keys = {k: v for k, v in keys.items() if v is not None}
        # files of facts leave out encoders that the class then makes up
        alone = "text_config" in config and "vision_config" not in config
        yield (path.stem, config,
               lambda t=model_type, k=keys, a=alone: real_parameters(CONFIG_MAPPING[t], class_of(t), k, a))


def cases(data):
    for model_type, keys in CASES:
        shown = " ".join(f"{k}={v}" for k, v in keys.items())
        config, real = case_of(model_type, keys)
        yield f"{model_type} {shown or '(defaults of its class)'}", config, real
    yield from published(data)


def main(program, data):
    todo = list(cases(data))
    answers = geometry.ask(program, [{"config": c, "placement": {}} for _, c, _ in todo])
    failed = 0
    for number, ((name, _, real), answer) in enumerate(zip(todo, answers), 1):
        try:
            want = real()
        except Exception as error:  # the class itself refuses
            print(f"ok {number} - {name} # SKIP the class refuses: {type(error).__name__} {error}"[:160])
            continue
        got = answer.get("parameters")
        failed += got != want
        print(f"{'ok' if got == want else 'not ok'} {number} - {name[:120]}")
        if got != want:
            print(f"# got {got} want {want} difference {(got or 0) - want} {answer.get('message', '')}")
    print(f"1..{len(todo)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
