# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own calls about memory answer while Plimsoll's allocator has all of a process's device memory.

PyTorch refuses them for any allocator that is not its own, and programs call them everywhere: training loops print
torch.cuda.max_memory_allocated(), engines size their caches by torch.accelerator.memory_stats(). All of them end in
a few functions of torch._C, which are replaced here: all of torch.cuda's and torch.accelerator's calls for statistics,
summaries, peaks and snapshots, the share of the device, and torch.accelerator.empty_cache(), which would reach
PyTorch's own allocator only, then speak of this allocator. What it does not count (retries, segments, the two pools
of PyTorch) is 0. The history of allocations stays refused.
"""

from __future__ import annotations

import types
from typing import Any, Callable, Dict, NamedTuple, Sequence, Tuple

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


class Source(NamedTuple):
    """What the allocator says of a device, by its number."""

    stats: Callable[[int], Dict[str, int]]  # its figures by PyTorch's names
    reset_peaks: Callable[[int], None]  # its peaks begin anew
    share: Callable[[int], float]  # of the device that may be reserved, 0 to 1
    content: Callable[[Sequence[int]], Dict[str, Any]]  # a snapshot of devices


class Answers:
    """The functions that stand in, by the names of torch._C."""

    def __init__(self, torch: types.ModuleType, source: Source) -> None:
        self._core = torch._C
        self._cuda = torch.cuda
        self._source = source
        self._before: Dict[int, Dict[str, int]] = {}  # accumulated figures when they were last reset

    def _checked(self, device: int) -> int:
        """In PyTorch's words, which programs may look for."""
        if not 0 <= device < self._core._cuda_getDeviceCount():
            raise RuntimeError("Invalid device argument : did you call init?")
        return device

    def stats(self, device: int) -> Dict[str, Any]:
        before = self._before.get(self._checked(device), {})
        return nested({key: value - before.get(key, 0) for key, value in self._source.stats(device).items()})

    def stats_of_any(self, device: int) -> Dict[str, Any]:
        """As torch.accelerator has them for devices of every kind."""
        figures = self.stats(device)
        del figures["num_oom_rejections"]
        return figures

    def reset_peaks(self, device: int) -> None:
        self._source.reset_peaks(self._checked(device))

    def reset_accumulated(self, device: int) -> None:
        figures = self._source.stats(self._checked(device))
        self._before[device] = {key: value for key, value in figures.items()
                                if key in COUNTERS or key.endswith((".allocated", ".freed"))}

    def share(self, device: int) -> float:
        return self._source.share(self._checked(device))

    def snapshot(self, pool: Tuple[int, ...] = (), *_: Any) -> Dict[str, Any]:
        """pool: newer releases ask for the segments of one; (0, 0) and nothing are all."""
        content = self._source.content(range(self._core._cuda_getDeviceCount()))
        if any((pool or ())[:2]):
            content["segments"] = [s for s in content["segments"] if s["segment_pool_id"] == tuple(pool[:2])]
        return content

    def initialized(self) -> bool:
        return bool(self._cuda.is_initialized())

    def empty_cache(self) -> None:
        self._core._cuda_emptyCache()


REPLACED = {
    "_cuda_memoryStats": "stats",
    "_cuda_resetPeakMemoryStats": "reset_peaks",
    "_cuda_resetAccumulatedMemoryStats": "reset_accumulated",
    "_cuda_getMemoryFraction": "share",
    "_cuda_memorySnapshot": "snapshot",
    "_accelerator_isAllocatorInitialized": "initialized",
    "_accelerator_getDeviceStats": "stats_of_any",
    "_accelerator_resetPeakStats": "reset_peaks",
    "_accelerator_resetAccumulatedStats": "reset_accumulated",
    "_accelerator_emptyCache": "empty_cache",
}


def put(torch: types.ModuleType, source: Source) -> None:
    """Replace those functions that this release of PyTorch has."""
    answers = Answers(torch, source)
    for name, method in REPLACED.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, getattr(answers, method))
