# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own calls about memory answer while Plimsoll's allocator has all of a process's device memory.

PyTorch refuses them for any allocator that is not its own, and programs call them everywhere: training loops print
torch.cuda.max_memory_allocated(), engines size their caches by memory_stats(). All of them end in three functions of
torch._C, which are replaced here: torch.cuda.memory_stats(), memory_allocated(), max_memory_allocated(),
memory_reserved(), max_memory_reserved(), memory_summary(), reset_peak_memory_stats(), memory._snapshot() and
memory._dump_snapshot() then speak of this allocator. What it does not count (retries, segments, the two pools of
PyTorch) is 0. The history of allocations and accumulated counters stay refused.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence

# The layout of torch._C._cuda_memoryStats(), PyTorch 2.14.
METRICS = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
           "inactive_split_bytes", "requested_bytes")
POOLS = ("all", "large_pool", "small_pool")
FIGURES = ("current", "peak", "allocated", "freed")
OVERSIZE = ("oversize_allocations", "oversize_segments")
COUNTERS = ("num_alloc_retries", "num_ooms", "num_oom_rejections", "num_sync_all_streams", "num_device_alloc",
            "num_device_free")


def nested(flat: Dict[str, int]) -> Dict[str, Any]:
    """Keys like "allocated_bytes.all.peak" as tables in tables, with everything that PyTorch has."""
    out: Dict[str, Any] = {metric: {pool: dict.fromkeys(FIGURES, 0) for pool in POOLS} for metric in METRICS}
    out.update({metric: dict.fromkeys(FIGURES, 0) for metric in OVERSIZE})
    out.update(dict.fromkeys(COUNTERS, 0), max_split_size=-1)
    for key, value in flat.items():
        *path, last = key.split(".")
        table = out
        for name in path:
            table = table[name]
        table[last] = value
    return out


def put(core: Any, stats: Callable[[int], Dict[str, int]], reset_peaks: Callable[[int], None],
        content: Callable[[Sequence[int]], Dict[str, Any]]) -> None:
    """Replace the functions of torch._C.

    stats        the figures of a device by PyTorch's names
    reset_peaks  the peaks of a device begin anew
    content      a snapshot of devices
    """
    def snapshot(*_: Any) -> Dict[str, Any]:  # newer releases ask for a pool, of which there are none
        devices = core._cuda_getDeviceCount()
        return {**content(range(devices)), "device_traces": [[] for _ in range(devices)]}

    core._cuda_memoryStats = lambda device: nested(stats(device))
    core._cuda_resetPeakMemoryStats = reset_peaks
    core._cuda_memorySnapshot = snapshot
