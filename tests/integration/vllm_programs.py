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


def load(url, clients, seconds, most="0"):
    """Clients that each send one request after the other, streams and others in turn, and come again when they are told
    to, after a second when they are told nothing. Answers get as long as was asked for; with `most` each asks for that
    many tokens, and they end by themselves long before. Prints how the requests ended, how long each token of those that were
    served took (ms; half of them less, all but one in a hundred less), and what the engine counted. A connection is not
    used twice: one that a client keeps while it waits is closed by the server after five seconds, just when many come
    again."""
    import asyncio
    import random
    import re
    import time

    import aiohttp

    ends, waits, paces = {}, [], []

    async def client(session, number, until):
        random_of = random.Random(number)
        turn = number
        while time.monotonic() < until:
            turn += 1
            prompt, length = "x" * random_of.randint(20, 200), random_of.randint(50, 350)
            body = {"model": model, "prompt": prompt, "temperature": 0, "stream": turn % 2 == 0, **lasting(length)}
            began = time.monotonic()
            end, wait = await ask(session, body)
            ends[end] = ends.get(end, 0) + 1
            if end == "200":
                paces.append((time.monotonic() - began) * 1000 / length)
            elif wait:
                waits.append(wait)
                await asyncio.sleep(min(wait, max(0.0, until - time.monotonic())))

    def lasting(length):
        """What makes an answer that long. A model that computes nothing repeats itself, which ends an answer as soon as it may."""
        if not int(most):
            return {"max_tokens": length, "ignore_eos": True}
        return {"max_tokens": int(most), "min_tokens": length,
                "repetition_detection": {"max_pattern_size": 1, "min_count": 2}}

    async def ask(session, body):
        """How a request ended, in a word, and the seconds that the client is to stay away."""
        try:
            async with session.post(url + "/v1/completions", json=body) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            return type(error).__name__, 1
        if answer.status == 200 and not ("[DONE]" in text if body["stream"] else '"usage"' in text):
            return "cut off", 0
        return str(answer.status), float(answer.headers.get("retry-after", 1)) if answer.status in (429, 503) else 0

    async def all_of_them():
        nonlocal model
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(300), connector=connector,
                                         headers={"Authorization": "Bearer none"}) as session:
            async with session.get(url + "/v1/models") as answer:
                model = (await answer.json())["data"][0]["id"]
            until = time.monotonic() + float(seconds)
            await asyncio.gather(*(client(session, i, until) for i in range(int(clients))))
            async with session.get(url + "/metrics") as answer:
                return await answer.text()

    model = ""
    page = asyncio.run(all_of_them())

    def total(name):
        return sum(float(v) for v in re.findall(rf"^{name}{{[^\n]*}} (\S+)$", page, re.MULTILINE))

    paces.sort()
    print("RESULT " + json.dumps({
        "ends": ends, "waits": [min(waits, default=0), max(waits, default=0)],
        "token_ms": [round(paces[len(paces) * part // 100], 1) for part in (50, 99)] if paces else [],
        "preemptions": total("vllm:num_preemptions_total"), "tokens": total("vllm:generation_tokens_total")}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
