# SPDX-License-Identifier: Apache-2.0
"""What the vLLM tests run inside its environment: an engine in one process, and a client of a server."""

import json
import os
import sys


def trace():
    """Allocations ("+ bytes") and frees ("- n", the n-th allocation) in the allocator's history."""
    import torch
    lines, live, count = [], {}, 0
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        if entry["action"] == "alloc":
            lines.append(f"+ {entry['size']}")
            live[entry["addr"]] = count
            count += 1
        elif entry["action"] == "free_completed" and entry["addr"] in live:
            lines.append(f"- {live[entry['addr']]}")
    return lines


def engine(model):
    """vLLM in this process; prints what it reports, what PyTorch and the device hold, and the allocator's history."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import torch
    from vllm import LLM, SamplingParams
    llm = LLM(model=model, load_format="dummy", max_model_len=8192, gpu_memory_utilization=0.9,
              enforce_eager=True)
    sampling = SamplingParams(max_tokens=8, ignore_eos=True, temperature=0, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": [5 + i] * n} for i, n in enumerate((10, 300, 2000))], sampling,
                           use_tqdm=False)
    cache = llm.llm_engine.vllm_config.cache_config
    free, total = torch.cuda.mem_get_info()
    print("RESULT " + json.dumps({
        "lengths": [len(o.outputs[0].token_ids) for o in outputs],
        "blocks": cache.num_gpu_blocks, "block_size": cache.block_size, "free": free, "total": total,
        "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
        "trace": trace(),
    }))


def client(url):
    """OpenAI requests by the real client library; prints what came back."""
    import openai
    api = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
    model = api.models.list().data[0].id
    text = api.completions.create(model=model, prompt="hello world", max_tokens=8,
                                  extra_body={"ignore_eos": True})
    chat = api.chat.completions.create(model=model, max_tokens=5, extra_body={"ignore_eos": True},
                                       messages=[{"role": "user", "content": "hi"}])
    pieces = sum(1 for _ in api.completions.create(model=model, prompt="abc", max_tokens=6, stream=True,
                                                   extra_body={"ignore_eos": True}))
    try:
        api.completions.create(model=model, prompt=[5] * 9000, max_tokens=1)
        refused = None
    except openai.BadRequestError as error:
        refused = error.status_code
    print("RESULT " + json.dumps({
        "prompt": text.usage.prompt_tokens, "new": text.usage.completion_tokens,
        "finish": text.choices[0].finish_reason, "chat": chat.usage.completion_tokens, "pieces": pieces,
        "refused": refused,
    }))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
