#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the configuration classes of transformers take for keys that a config.json leaves out.

    tests/oracle/class_defaults.py            compare src/serving/class_defaults.json with the installed classes
    tests/oracle/class_defaults.py --refresh  write it

Needs the environment of tools/oracle_env.sh --hf. Only numbers, flags and short lists that decide sizes are
kept: one line for each model_type.
"""

import dataclasses
import json
import pathlib
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "src" / "serving" / "class_defaults.json"

TYPES = """
llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text qwen3_5_moe_text
qwen2_vl_text qwen2_5_vl_text qwen3_vl_text qwen3_vl_moe_text gemma gemma2 gemma3_text gemma3n_text gemma4_text
phi phi3 phimoe deepseek_v2 deepseek_v3 deepseek_v32 glm glm4 glm4_moe opt gpt2 gpt_neox gptj gpt_bigcode
falcon bloom mpt gpt_oss jamba nemotron_h mamba mamba2 falcon_mamba falcon_h1 bamba llama4_text cohere cohere2
olmo olmo2 olmo3 olmoe granite granitemoe granitemoehybrid granitemoeshared starcoder2 minicpm3 stablelm exaone4
smollm3 ernie4_5 ernie4_5_moe hunyuan_v1_dense hunyuan_v1_moe seed_oss mimo_v2_flash minimax minimax_m2 kimi_linear
glm_moe_dsa glm4_moe_lite solar_open hy_v3 exaone_moe cwm helium mellum jais2
lfm2 lfm2_moe arcee apertus whisper ministral ministral3 nemotron
qwen2_vl_vision qwen2_5_vl_vision qwen3_vl_vision qwen3_vl_moe_vision qwen3_5_vision qwen3_5_moe_vision
gemma3 gemma3n gemma4 llama4 llava llava_next mistral3 paligemma qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe
qwen3_5 qwen3_5_moe
siglip_vision_model clip_vision_model pixtral gemma4_vision llama4_vision_model
""".split()

# Not sizes: tokens, probabilities, epsilons, switches of kernels and losses.
DROP = """
_name_or_path architectures dtype torch_dtype transformers_version id2label label2id problem_type model_type
bos_token_id eos_token_id pad_token_id sep_token_id eod_token_id decoder_start_token_id cls_token_id
chunk_size_feed_forward output_attentions output_hidden_states return_dict is_encoder_decoder use_cache
is_decoder add_cross_attention pretraining_tp vocab_file
""".split()


def wanted(key, value):
    if key in DROP:
        return False
    if isinstance(value, (bool, int)):
        return True
    if isinstance(value, (list, tuple)):
        return key == "deepstack_visual_indexes"
    return isinstance(value, float) and key in ("partial_rotary_factor", "expansion_ratio")


def classes():
    from transformers import CONFIG_MAPPING
    for kind in TYPES:
        if kind in CONFIG_MAPPING:
            yield kind, CONFIG_MAPPING[kind]
        else:
            owner = kind.replace("_text", "").replace("_vision_model", "").replace("_vision", "")
            sub = "vision_config" if "vision" in kind else "text_config"
            yield kind, CONFIG_MAPPING[owner].sub_configs[sub]


def defaults(config_class):
    """As written in the class: what it derives from other keys is not a default."""
    for field in sorted(dataclasses.fields(config_class), key=lambda f: f.name):
        made = field.default_factory is not dataclasses.MISSING
        value = field.default_factory() if made else field.default
        if wanted(field.name, value):
            yield field.name, value


def table():
    warnings.filterwarnings("ignore")
    return {kind: dict(defaults(config_class)) for kind, config_class in classes()}


def text(rows):
    lines = [f"  {json.dumps(kind)}: {json.dumps(rows[kind])}" for kind in sorted(rows)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    now = text(table())
    if "--refresh" in sys.argv:
        TABLE.write_text(now, encoding="utf-8")
        return 0
    if TABLE.read_text(encoding="utf-8") != now:
        print("not ok 1 - class_defaults.json is what the installed classes take (run with --refresh)")
        print("1..1")
        return 1
    print("ok 1 - class_defaults.json is what the installed classes take")
    print("1..1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
