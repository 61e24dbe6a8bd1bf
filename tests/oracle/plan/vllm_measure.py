# SPDX-License-Identifier: Apache-2.0
"""One start of the real vLLM, in this process, on the simulated GPU; prints one JSON object.

    python3 vllm_measure.py CASE.json OUT.json [TRACE.json]

CASE: {"id", "config": config.json of the model, "args": keywords of LLM(), "env", "usage"}. Weights are dummies.
OUT: what the engine resolved and what it had allocated at each step (see README.md here). TRACE: every
allocation from before the load to the end of the profile run, with a few frames of Python. Runs inside the vLLM
environment with the simulated device preloaded; run.py starts it.
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import time
import traceback


def state(torch):
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    return {"allocated": stats["allocated_bytes.all.current"], "peak": stats["allocated_bytes.all.peak"],
            "reserved": stats["reserved_bytes.all.current"], "free": free, "total": total}


def frames_of(entry, limit=8):
    out = []
    for f in entry.get("frames", ()):
        name = f["filename"]
        if ".py" not in name or "/torch/" in name and len(out) == 0:
            continue
        out.append(f"{name.rsplit('site-packages/', 1)[-1]}:{f['line']}:{f['name']}")
        if len(out) == limit:
            break
    return out


def hook(exact, out, trace_path):
    import torch
    from vllm.v1.worker import gpu_worker
    worker = gpu_worker.Worker
    marks = []

    def mark(name):
        exact[name] = state(torch)
        if trace_path:
            marks.append([name, len(torch.cuda.memory._snapshot()["device_traces"][0])])

    def wrap(owner, name, before, after):
        real = getattr(owner, name)

        def call(self, *args, **kwargs):
            if before:
                mark(before)
            value = real(self, *args, **kwargs)
            if after:
                mark(after)
            return value
        setattr(owner, name, call)

    real_init = worker._init_workspace_and_model_runner

    def init_runner(self):
        exact["init"] = {"free": self.init_snapshot.free_memory, "total": self.init_snapshot.total_memory}
        exact["requested_bytes"] = self.requested_memory
        if trace_path:
            torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python",
                                                     max_entries=10_000_000)
        mark("before_runner_init")
        real_init(self)
        mark("after_runner_init")
        runner = type(self.model_runner)
        wrap(runner, "profile_run", "before_profile_run", "after_profile_run")
        wrap(runner, "_dummy_sampler_run", "before_sampler", "after_sampler")
        if hasattr(runner, "profile_cudagraph_memory"):
            wrap(runner, "profile_cudagraph_memory", "before_graph_estimate", "after_graph_estimate")
        out["runner"] = "V2" if self.use_v2_model_runner else "V1"
    worker._init_workspace_and_model_runner = init_runner
    wrap(worker, "load_model", "before_load", "after_load")

    real_determine = worker.determine_available_memory

    def determine(self):
        value = real_determine(self)
        mark("after_determine")
        exact["available_kv_bytes"] = int(value)
        exact["model_memory_usage_bytes"] = int(self.model_runner.model_memory_usage)
        exact["total_consumed_bytes"] = getattr(self, "total_consumed", None)
        exact["graph_estimate_bytes"] = getattr(self, "cudagraph_memory_estimate", 0)
        parameters = {id(p): p.untyped_storage().nbytes() for p in self.model_runner.model.parameters()}
        exact["parameters"] = {"tensors": len(parameters), "bytes": sum(parameters.values())}
        if trace_path:
            events = torch.cuda.memory._snapshot()["device_traces"][0]
            with open(trace_path, "w", encoding="utf-8") as f:
                json.dump({"marks": marks, "events": [[e["action"], e["addr"], e["size"], frames_of(e)]
                                                      for e in events]}, f)
            torch.cuda.memory._record_memory_history(enabled=None)
        return value
    worker.determine_available_memory = determine
    wrap(worker, "initialize_from_config", None, "after_kv_init")
    wrap(worker, "compile_or_warm_up_model", None, "final")


def groups_of(kv):
    out = []
    for g in kv.kv_cache_groups:
        spec = g.kv_cache_spec
        out.append({"layers": len(g.layer_names), "type": type(spec).__name__, "block_size": spec.block_size,
                    "page_size_bytes": spec.page_size_bytes})
    return out


def blocks_hook(out):
    from vllm.v1.core import kv_cache_planning
    from vllm.v1.engine import core
    real = kv_cache_planning.get_kv_cache_configs

    def configs(*args, **kwargs):
        result = real(*args, **kwargs)
        kv = result[0]
        out["kv_cache"] = {"num_blocks": kv.num_blocks, "groups": groups_of(kv)}
        return result
    kv_cache_planning.get_kv_cache_configs = configs
    core.get_kv_cache_configs = configs


def main(case_path, out_path, trace_path=None):
    case = json.loads(pathlib.Path(case_path).read_text(encoding="utf-8"))
    os.environ.update(case.get("env", {}))
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    out = {"id": case["id"], "config": case["config"], "args": case["args"], "env": case.get("env", {}),
           "usage": case.get("usage", "llm"), "exact": {}, "error": None}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        from vllm import LLM
        from vllm.usage.usage_lib import UsageContext
        if case.get("usage") == "serve":
            UsageContext.LLM_CLASS = UsageContext.OPENAI_API_SERVER
        hook(out["exact"], out, trace_path)
        blocks_hook(out)
        try:
            llm = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, **case["args"])
            config = llm.llm_engine.vllm_config
            cache = config.cache_config
            out["resolved"] = {
                "max_model_len": config.model_config.max_model_len, "block_size": cache.block_size,
                "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
                "max_num_seqs": config.scheduler_config.max_num_seqs, "dtype": str(config.model_config.dtype),
                "kv_cache_size_tokens": getattr(cache, "kv_cache_size_tokens", None),
                "kv_cache_max_concurrency": getattr(cache, "kv_cache_max_concurrency", None),
                "max_in_flight_tokens": getattr(config, "max_in_flight_tokens", None),
                "quantization": config.model_config.quantization,
                "cudagraph_mode": str(config.compilation_config.cudagraph_mode),
                "num_gpu_blocks": cache.num_gpu_blocks,
            }
            layers = config.compilation_config.static_forward_context
            backends = {}
            for layer in layers.values():
                backend = getattr(layer, "attn_backend", None)
                name = backend.get_name() if backend is not None and hasattr(backend, "get_name") else None
                backends[name] = backends.get(name, 0) + 1
            out["resolved"]["attention_backends"] = {str(k): v for k, v in backends.items()}
        except BaseException as error:  # the engine's refusal is the result
            chain = []
            while error is not None:
                chain.append(f"{type(error).__name__}: {error}")
                error = error.__cause__ or error.__context__
            out["error"] = re.sub(r"/tmp/\S+", "MODEL", " | ".join(chain))
            out["traceback"] = traceback.format_exc()[-1500:]
    out["seconds"] = round(time.monotonic() - began, 1)
    pathlib.Path(out_path).write_text(json.dumps(out), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
