# SPDX-License-Identifier: Apache-2.0
"""Asking geometry_dump, and turning the files of tests/data/models back into configurations."""

import json
import subprocess


def ask(program, questions):
    """The answers to a list of {"config": ..., "placement": ..., "kv": ..., "assume": ...}."""
    lines = "".join(json.dumps(q) + "\n" for q in questions)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True, timeout=100)
    return [json.loads(line) for line in done.stdout.splitlines()]


def config_of(entry):
    """config.json of a file of tests/data/models: facts of one model, flattened and shortened there."""
    inner = dict(entry["config"])
    vision = inner.pop("vision", None)
    nested = inner.pop("nested_under", None)
    quantization = inner.pop("quantization", None)
    top = {"architectures": [inner.pop("architecture")], "model_type": inner["model_type"]}
    runs = inner.pop("layer_types_run_length", None)
    inner.pop("layer_type_counts", None)
    if runs:
        inner["layer_types"] = [kind for kind, count in runs for _ in range(count)]
    if entry["derived"].get("ssm_state_dtype_bytes") == 4:
        inner["mamba_ssm_dtype"] = "float32"
    if nested:
        del inner["model_type"]
        top[nested] = inner
    else:
        top.update(inner)
    if vision:
        top["vision_config"] = vision
    if quantization:
        top["quantization_config"] = quantization
    return top
