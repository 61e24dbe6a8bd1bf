# SPDX-License-Identifier: Apache-2.0
"""What a process knows when a snapshot of it is taken, as the facts of docs/format/incident.md ("a drop").

They go into the snapshot itself, as JSON text under the key `plimsoll`, without what may be private; and in full
into the `facts.json` of a drop. Nothing here asks the driver for anything.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, List, Mapping, Optional

from . import _share

SCHEMA = "plimsoll.drop/1"
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
ENGINES = ("vllm", "sglang", "transformers", "diffusers", "deepspeed", "triton")

# The names that an incident keeps; nothing else is written down.
KEPT = ("PYTORCH_", "TORCH_", "CUDA_", "NVIDIA_", "NCCL_", "CUBLAS_", "CUDNN_", "VLLM_", "SGLANG_", "SGL_",
        "TRITON_", "HIP_", "HSA_", "ROCR_", "PLIMSOLL_", "OMP_", "XLA_", "GGML_", "OLLAMA_")
KEPT_WHOLE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TF_FORCE_GPU_ALLOW_GROWTH", "LD_PRELOAD")
SECRET = ("TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH")


def started_ns() -> int:
    """When this process started, in Unix nanoseconds."""
    ticks = _share.start_ticks(os.getpid())
    age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - age


def versions(torch: Any) -> Dict[str, str]:
    out = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda), "python": sys.version.split()[0]}
    for name in ENGINES:
        text = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(text, str):
            out[name] = text
    return out


def ranks(environ: Mapping[str, str]) -> Dict[str, int]:
    return {name.lower(): int(environ[name]) for name in RANKS if environ.get(name, "").isdigit()}


def tags(note: Mapping[str, Any]) -> Dict[str, Any]:
    """A note without its inner objects: their members stand beside the request's name."""
    out: Dict[str, Any] = {}
    for name, value in note.items():
        for key, inner in value.items() if isinstance(value, Mapping) else [(name, value)]:
            out.setdefault(str(key), inner if isinstance(inner, (int, float, str)) else str(inner))
    return out


def used_devices(torch: Any, failed: Optional[int]) -> List[Dict[str, Any]]:
    """The devices on which the allocator has ever held something, and the one where it failed."""
    core = torch._C
    found = []
    for index in range(core._cuda_getDeviceCount()):
        if index == failed or _share.figure(core._cuda_memoryStats(index), ("reserved_bytes", "all", "peak")):
            card = torch.cuda.get_device_properties(index)
            found.append({"index": index, "name": card.name, "total_bytes": card.total_memory})
    return found


def gather(torch: Any, kind: str, failure: Optional[Mapping[str, int]], note: Mapping[str, Any]) -> Dict[str, Any]:
    """The facts that are not private. failure: device, request_bytes, limit_bytes, device_free_bytes."""
    out: Dict[str, Any] = {"schema": SCHEMA, "kind": kind, "pid": os.getpid(), "ppid": os.getppid(),
                           "time_ns": time.time_ns(), "started_ns": started_ns(), "versions": versions(torch),
                           **ranks(os.environ)}
    out["devices"] = used_devices(torch, None if failure is None else failure["device"])
    if failure is not None:
        out.update(failure)
        totals = [d["total_bytes"] for d in out["devices"] if d["index"] == failure["device"]]
        out["device_total_bytes"] = totals[0] if totals else failure["limit_bytes"]
    if note:
        out["tags"] = tags(note)
    return out


def private() -> Dict[str, Any]:
    """What only the facts of a drop hold, from which an incident takes out what must not leave the house."""
    return {"argv": list(getattr(sys, "orig_argv", sys.argv)),
            "environment": {k: v for k, v in os.environ.items()
                            if (k.startswith(KEPT) or k in KEPT_WHOLE) and not any(s in k for s in SECRET)}}
