# SPDX-License-Identifier: Apache-2.0
"""The allocator that moves pages, for stock PyTorch: less fragmentation where no setting helps.

    plimsoll.alloc.install()         before the first use of CUDA: all device memory of this process
    with plimsoll.alloc.use(): ...   only what is allocated in the block; PyTorch keeps its statistics and snapshots
    python -m plimsoll.alloc SCRIPT  a program that knows nothing of it
    PLIMSOLL_ALLOC=1                 in the environment: every Python process that imports PyTorch, with the wheel

Free memory between live blocks is taken from its place and put behind a contiguous range of addresses, so that holes
do not strand it. include/plimsoll/alloc.h describes the library behind this, docs/howto/alloc.md when to use it.

While it is installed for the whole process torch.cuda.memory_stats(), memory_allocated() and their like and snapshots
answer from here (_stand_in.py); PyTorch does not offer the history of allocations, MemPool, sharing of CUDA tensors
between processes and torch.compile(mode="reduce-overhead"). use() has none of these limits.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import sys
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from . import _stand_in

__all__ = ["empty_cache", "install", "installed", "library", "memory_stats", "pause", "reset_peak_memory_stats",
           "resume", "settings", "snapshot", "tag", "use"]

# As PyTorch takes them: an index, a torch.device, a name, None for the current one.
Device = Any

# Method of torch._C._cuda_CUDAAllocator to function of the library.
HOOKS = {
    "set_reset_fn": "plimsoll_alloc_reset",
    "set_memory_fraction_fn": "plimsoll_alloc_fraction",
    "set_base_alloc_fn": "plimsoll_alloc_base",
    "set_record_stream_fn": "plimsoll_alloc_record_stream",
    "set_begin_allocate_to_pool": "plimsoll_alloc_begin_pool",
    "set_end_allocate_to_pool_fn": "plimsoll_alloc_end_pool",
    "set_release_pool": "plimsoll_alloc_release_pool",
}
FIGURES = ("bytes", "total", "requested", "allocated", "reserved", "peak_requested", "peak_allocated", "peak_reserved",
           "releasable", "blocks", "allocs", "frees", "failures", "pages_made", "pages_freed", "pages_moved", "waits",
           "wrong_frees", "cap", "placed", "displaced", "astray", "active")
SWITCH = "PLIMSOLL_ALLOC"
LIVE, PENDING, FREE = 0, 1, 2
TAGS = 2 ** 63  # from here on pools are tags
PLAN_HEAD = b"plimsoll seating 1"
NOTHING_DONE = 2 ** 64 - 1
MOST_SIZES_TEXT = 8191  # bytes that the library reads
MOST_BYTES = 2 ** 63
MOST_MIB = 2 ** 44 - 2

_global: List[Any] = []  # the allocator given to PyTorch, which must outlive everything
_provider: List[Any] = []  # the allocator of the pools of use(), which must outlive them
_pools: Dict[Tuple[int, Optional[str]], List[Any]] = {}  # of use(), by device and tag; no thread is inside of them
_tags: Dict[str, int] = {}  # name -> number of the library


class _Thread(threading.local):
    """What this thread is inside of."""

    def __init__(self) -> None:
        self.tag: Optional[str] = None
        self.inside: List[Tuple[int, Optional[str]]] = []  # of use(), the innermost last


_thread = _Thread()


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in FIGURES]


_SEE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64,
                        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_bool)


def library() -> str:
    """Path of libplimsoll_alloc.so: PLIMSOLL_ALLOC_LIBRARY, else that of this package, else beside the program that
    is installed. Errors: plimsoll.Unsupported."""
    from ._program import native_library

    return native_library("libplimsoll_alloc.so", "PLIMSOLL_ALLOC_LIBRARY")


_loaded: List[ctypes.CDLL] = []


def _torch() -> Any:
    return importlib.import_module("torch")


def _library() -> ctypes.CDLL:
    if not _loaded:
        lib = ctypes.CDLL(library())
        lib.plimsoll_alloc_stats.restype = ctypes.c_bool
        lib.plimsoll_alloc_stats.argtypes = [ctypes.c_int, ctypes.POINTER(_Stats), ctypes.c_size_t]
        lib.plimsoll_alloc_walk.restype = None
        lib.plimsoll_alloc_walk.argtypes = [ctypes.c_int, _SEE, ctypes.c_void_p]
        lib.plimsoll_alloc_check.restype = ctypes.c_char_p
        lib.plimsoll_alloc_mode.restype = ctypes.c_char_p
        lib.plimsoll_alloc_tag.restype = ctypes.c_uint32
        lib.plimsoll_alloc_tag.argtypes = [ctypes.c_uint32]
        lib.plimsoll_alloc_pause.restype = ctypes.c_uint64
        lib.plimsoll_alloc_pause.argtypes = [ctypes.c_int, ctypes.c_uint32, ctypes.c_bool]
        lib.plimsoll_alloc_resume.restype = ctypes.c_bool
        lib.plimsoll_alloc_resume.argtypes = [ctypes.c_int, ctypes.c_uint32]
        _loaded.append(lib)
    return _loaded[0]


def _look_at_plan(path: Union[str, "os.PathLike[str]"]) -> None:
    """The library reads the whole file, later; what is no plan at all is said now."""
    with open(path, "rb") as file:
        lines = (line for line in file if line.strip() and not line.startswith(b"#"))
        if next(lines, b"").rstrip(b"\n") != PLAN_HEAD:
            raise ValueError(f"{os.fspath(path)} is no plan: its first line is not {PLAN_HEAD.decode()!r}")


Sizes = Union[Sequence[int], str, "os.PathLike[str]"]


def _whole(value: Any, most: int) -> bool:
    """A whole number from 1 to `most`; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _sizes(sizes: Sizes) -> str:
    """PLIMSOLL_ALLOC_SIZES for a list of sizes or the path of a file with one."""
    out, where, numbers = "", "", sizes
    if isinstance(sizes, (str, os.PathLike)):
        path = os.path.abspath(os.fspath(sizes))
        try:
            with open(path, "rb") as file:
                words = file.read(MOST_SIZES_TEXT + 1).replace(b",", b" ").split()
        except OSError as error:
            raise ValueError(f"no file of sizes can be read at {path}: {error.strerror}") from error
        out, where = "@" + path, f" in {path}"
        numbers = [int(word) if word.isdigit() else 0 for word in words]
    if not isinstance(numbers, Sequence) or not 1 <= len(numbers) <= 256 or \
            not all(_whole(size, MOST_BYTES) for size in numbers):
        raise ValueError(f"sizes are 1 to 256 numbers of bytes above 0{where}")
    return out or ",".join(map(str, numbers))


def settings(mode: str = "stitch", *, sizes: Optional[Sizes] = None, page_mb: Optional[int] = None,
             slack: Optional[float] = None, limit_mb: Optional[int] = None,
             plan: Union[None, str, "os.PathLike[str]"] = None) -> Dict[str, str]:
    """The environment variables that these settings are.

    mode      "stitch": blocks as asked for; "hybrid": small sizes by class; "pool": the next of `sizes`;
              "plan": what repeats itself goes where `plan` says
    sizes     bytes of the blocks of mode "pool", or the path of a file with them (plimsoll soak --write-sizes)
    page_mb   most MiB of a page of large blocks, a power of two, 2 to 512
    slack     percent that may be reserved beyond the highest live memory
    limit_mb  never reserve more MiB
    plan      file of mode "plan", made by `plimsoll replay SNAPSHOT --allocator plimsoll:plan --write-plan FILE`
    Errors: ValueError; OSError the plan cannot be read.
    """
    out = {"PLIMSOLL_ALLOC_MODE": mode}
    if mode not in ("stitch", "hybrid", "pool", "plan"):
        raise ValueError(f"mode is stitch, hybrid, pool or plan, not {mode!r}")
    if (mode == "pool") != (sizes is not None):
        raise ValueError("sizes belong to mode pool, which needs them")
    if (mode == "plan") != (plan is not None):
        raise ValueError("plan is a file of mode plan, which needs it")
    if plan is not None:
        _look_at_plan(plan)
        out["PLIMSOLL_ALLOC_PLAN"] = os.path.abspath(plan)
    if sizes is not None:
        out["PLIMSOLL_ALLOC_SIZES"] = _sizes(sizes)
    if page_mb is not None:
        if not _whole(page_mb, 512) or page_mb < 2 or page_mb & (page_mb - 1):
            raise ValueError(f"page_mb is a power of two from 2 to 512, not {page_mb!r}")
        out["PLIMSOLL_ALLOC_PAGE_MB"] = str(page_mb)
    if slack is not None:
        if isinstance(slack, bool) or not isinstance(slack, (int, float)) or not 0 < slack <= 100:
            raise ValueError(f"slack is a percentage above 0, at most 100, not {slack!r}")
        out["PLIMSOLL_ALLOC_SLACK"] = repr(float(slack))
    if limit_mb is not None:
        if not _whole(limit_mb, MOST_MIB):
            raise ValueError(f"limit_mb is a whole number of MiB above 0, not {limit_mb!r}")
        out["PLIMSOLL_ALLOC_LIMIT_MB"] = str(limit_mb)
    return out


def _hook(allocator: Any) -> None:
    lib = _library()
    for setter, name in HOOKS.items():
        if hasattr(allocator, setter):  # not in every release
            getattr(allocator, setter)(ctypes.cast(getattr(lib, name), ctypes.c_void_p).value)


def install(mode: str = "stitch", **options: Any) -> None:
    """Give all device memory of this process to the allocator. options: as settings(); without any those of the
    environment. Before the first use of CUDA; once more with the same settings does nothing.
    Errors: ValueError for the settings; RuntimeError when CUDA is in use, or another allocator, or this one with other
    settings; plimsoll.Unsupported."""
    environment = settings(mode, **options) if options or mode != "stitch" else {}
    torch = _torch()
    if _global:
        if any(os.environ.get(name) != value for name, value in environment.items()):
            raise RuntimeError("the allocator is installed already; it cannot be changed")
        return
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA is in use already: install the allocator before the first tensor on a device")
    if torch.cuda.memory.get_allocator_backend() == "pluggable":
        raise RuntimeError("another allocator has all of this process's device memory already")
    path = library()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "plimsoll_alloc", "plimsoll_free")
    torch.cuda.memory.change_current_allocator(allocator)
    os.environ.update(environment)  # the library reads it at the first request
    _global.append(allocator)
    _hook(allocator.allocator())
    _stand_in.put(torch, _stand_in.Source(memory_stats, reset_peak_memory_stats, _share, _content))


def installed() -> bool:
    """Has install() been called in this process?"""
    return bool(_global)


def use(device: Device = None) -> Any:
    """A context manager: device memory that this thread allocates inside comes from the allocator, as the segments of
    a torch.cuda.MemPool, one for each device and tag(), which keeps its segments until empty_cache(). Threads that are
    inside at the same time have one each, since PyTorch lets one thread allocate into a pool. Settings come from
    PLIMSOLL_ALLOC_*. Inside itself it does nothing more.
    Errors: RuntimeError when the whole process uses the allocator, or PyTorch has no MemPool; plimsoll.Unsupported."""
    torch = _torch()
    if _global:
        raise RuntimeError("the whole process uses the allocator already: use() is not needed")
    if not hasattr(torch.cuda, "MemPool"):
        raise RuntimeError(f"torch {torch.__version__} has no torch.cuda.MemPool (2.6 has)")
    if not _provider:
        _provider.append(torch.cuda.memory.CUDAPluggableAllocator(library(), "plimsoll_pool_alloc", "plimsoll_free"))
    return _inside(torch, _current(device))


@contextlib.contextmanager
def _inside(torch: Any, device: int) -> Iterator[None]:
    key = (device, _thread.tag)
    if _thread.inside and _thread.inside[-1] == key:
        yield
        return
    try:
        pool = _pools.setdefault(key, []).pop()
    except IndexError:
        with torch.cuda.device(device):  # a pool serves the device that is current when it is made
            pool = torch.cuda.MemPool(_provider[0].allocator())
    try:
        with torch.cuda.use_mem_pool(pool, device):
            _thread.inside.append(key)
            try:
                yield
            finally:
                _thread.inside.pop()
    finally:
        _pools.setdefault(key, []).append(pool)


def empty_cache() -> None:
    """torch.cuda.empty_cache(), and what is free in the pools of use() goes back to the device too; what is live in
    them goes back with the next call after it is free. Call it outside of use(): inside, the pool in use is kept.
    Errors: plimsoll.Unsupported."""
    _pools.clear()
    _torch().cuda.empty_cache()
    _library().plimsoll_alloc_reset()


@contextlib.contextmanager
def tag(name: str) -> Iterator[None]:
    """What this thread allocates inside carries the tag: pause() and resume() name it. No page of it is shared with
    anything else while it lives. In a process that allocates by use(), enter use() inside: it has a pool for each tag.
    Inside install() nothing else is needed. Errors: plimsoll.Unsupported."""
    before = _thread.tag, _library().plimsoll_alloc_tag(_tags.setdefault(name, len(_tags) + 1))
    _thread.tag = name
    try:
        yield
    finally:
        _thread.tag = before[0]
        _library().plimsoll_alloc_tag(before[1])


def pause(name: str, device: Device = None, *, keep: bool = False) -> int:
    """Give the memory of everything with that tag back to the driver and keep the addresses: tensors, and graphs that
    were captured over them, stay valid and must not be used until resume(). Waits for the device.

    keep  what is in the tensors comes back, and is kept in host memory meanwhile; otherwise it is lost
    Returns the bytes given back. Errors: KeyError no such tag; MemoryError no host memory, or no copy could be made."""
    given = int(_library().plimsoll_alloc_pause(_current(device), _tags[name], keep))
    if given == NOTHING_DONE:
        raise MemoryError(f"what is tagged {name!r} could not be copied to the host")
    return given


def resume(name: str, device: Device = None) -> None:
    """Memory behind the tag's tensors again, at the addresses they had. Errors: KeyError no such tag; MemoryError the
    device has not enough memory; all stays paused and may be tried again."""
    if not _library().plimsoll_alloc_resume(_current(device), _tags[name]):
        raise MemoryError(f"the device has no room for what is tagged {name!r}")


def _current(device: Device) -> int:
    if isinstance(device, int):
        return device
    torch = _torch()
    index = None if device is None else torch.device(device).index
    return int(torch.cuda.current_device() if index is None else index)


def figures(device: Device = None) -> Dict[str, int]:
    """The library's own figures of a device (include/plimsoll/alloc.h); empty when it has not been used."""
    stats = _Stats()
    if not _library().plimsoll_alloc_stats(_current(device), ctypes.byref(stats), ctypes.sizeof(stats)):
        return {}
    return {name: getattr(stats, name) for name in FIGURES[1:]}


def memory_stats(device: Device = None) -> Dict[str, int]:
    """What torch.cuda.memory_stats() would say, under its names, as far as it applies; bytes unless the name says
    otherwise. Keys that mean nothing here are absent."""
    f = figures(device)
    if not f:
        return {}
    out = {
        "num_ooms": f["failures"],
        "num_device_alloc": f["pages_made"],
        "num_device_free": f["pages_freed"],
        "allocation.all.current": f["blocks"],
        "allocation.all.allocated": f["allocs"],
        "allocation.all.freed": f["frees"],
        "inactive_split_bytes.all.current": f["reserved"] - f["active"] - f["releasable"],
    }
    for key, name in (("allocated_bytes", "allocated"), ("active_bytes", "allocated"), ("reserved_bytes", "reserved"),
                      ("requested_bytes", "requested")):
        out[f"{key}.all.current"] = f[name]
        out[f"{key}.all.peak"] = f[f"peak_{name}"]
    out["active_bytes.all.current"] = f["active"]
    return out


def reset_peak_memory_stats(device: Device = None) -> None:
    """As torch.cuda.reset_peak_memory_stats()."""
    _library().plimsoll_alloc_reset_peaks(_current(device))


def _share(device: int) -> float:
    """Of the device that may be reserved."""
    f = figures(device)
    return min(1.0, f["cap"] / f["total"]) if f else 1.0


def _segments(device: int) -> List[Dict[str, Any]]:
    """Runs of memory without a gap, as PyTorch describes segments. What is paused has no memory. Of a tag, whose free
    pages serve everybody, PyTorch knows nothing: it is no pool."""
    segments: List[Dict[str, Any]] = []
    latest: Tuple[int, ...] = ()

    def see(_: Any, address: int, size: int, requested: int, stream: int, pool: int, state: int, large: bool) -> bool:
        nonlocal latest
        if state > FREE:
            return True
        if (address, stream, pool, large) != latest:
            segments.append({
                "device": device, "address": address, "total_size": 0, "allocated_size": 0, "active_size": 0,
                "requested_size": 0, "stream": stream, "segment_type": "large" if large else "small",
                "segment_pool_id": (0, 0) if pool >= TAGS else (pool // 2, 0) if pool % 2 else (0, pool // 2),
                "is_expandable": True, "frames": [], "blocks": [],
            })
        segment = segments[-1]
        latest = address + size, stream, pool, large
        segment["total_size"] += size
        if state != FREE:
            segment["active_size"] += size
            segment["requested_size"] += requested
        if state == LIVE:
            segment["allocated_size"] += size
        segment["blocks"].append({
            "address": address, "size": size, "requested_size": requested, "frames": [],
            "state": ("active_allocated", "active_pending_free", "inactive")[state]})
        return True

    _library().plimsoll_alloc_walk(device, _SEE(see), None)
    return segments


def _content(devices: Sequence[int]) -> Dict[str, Any]:
    """What torch.cuda.memory._snapshot() would return; there is no history in it."""
    return {"segments": [segment for device in devices for segment in _segments(device)],
            "device_traces": [[] for _ in range(max(devices, default=-1) + 1)],
            "allocator_settings": {"plimsoll": _library().plimsoll_alloc_mode().decode()}}


def snapshot(path: Union[str, "os.PathLike[str]"], device: Device = None) -> None:
    """Write the blocks of a device in the layout of torch.cuda.memory._dump_snapshot(), which `plimsoll diagnose` and
    pytorch.org/memory_viz read. There is no history in it. Errors: OSError."""
    with open(path, "wb") as file:
        pickle.dump(_content([_current(device)]), file, protocol=4)


def main(argv: Sequence[str]) -> int:
    """python -m plimsoll.alloc [-m MODULE | SCRIPT] ARGS: run a program with the allocator installed."""
    import runpy

    asked = bool(argv) and argv[0] in ("-h", "--help")
    if asked or not argv or argv[0].startswith("-") and (argv[0] != "-m" or len(argv) == 1):
        print("usage: python -m plimsoll.alloc [-m MODULE | SCRIPT] [ARG...]\n"
              "Runs a program with Plimsoll's allocator for its device memory, and its worker processes where the\n"
              "wheel is installed. Settings: PLIMSOLL_ALLOC_MODE (stitch, hybrid, pool, plan), _SIZES, _PLAN,\n"
              "_PAGE_MB, _SLACK, _LIMIT_MB.",
              file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 64
    os.environ[SWITCH] = "1"
    install()
    if argv[0] == "-m" and len(argv) > 1:
        sys.argv = list(argv[1:])
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(argv)
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    # By the module that others import, not by the copy that -m made.
    sys.exit(importlib.import_module("plimsoll.alloc").main(sys.argv[1:]))
