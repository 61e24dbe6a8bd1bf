# SPDX-License-Identifier: Apache-2.0
"""Enough bytes are free inside the allocator, but not where the request could use them."""

import torch

from scenarios import in_file, mem, scene
from scenes.models import APP, DynamicCache, generate


@in_file(APP + "holes.py")
def strand(count, size):
    """That many segments of `size` MiB, each free but for one block of 4 MiB: those blocks."""
    pins, fillers = [], []
    for _ in range(count):
        work = mem(size)
        del work
        pins.append(mem(4))
        fillers.append(mem(size - 4))
    return pins


@scene("fragmentation", gpu="24GiB")
@in_file(APP + "holes.py")
def pinned_by_small_blocks():
    """Large segments are free but for one small long-lived tensor each."""
    weights = [mem(1000) for _ in range(8)]
    return weights, strand(12, 1200), mem(4000)


@scene("fragmentation", gpu="8GiB")
@in_file(APP + "holes.py")
def checkerboard():
    """Pairs of 9 MiB share segments of 20 MiB; one of each pair is freed; 12 MiB do not fit anywhere."""
    pairs = [mem(9) for _ in range(760)]
    del pairs[1::2]
    more = []
    while True:
        more.append(mem(12))


@scene("fragmentation", gpu="12GiB")
@in_file(APP + "holes.py")
def small_pool_pins():
    """Hundreds of thousands of small tensors, of which one in 40 survives: every small segment is pinned."""
    weights = [mem(500) for _ in range(10)]
    many = [torch.empty(12800, device="cuda") for _ in range(120000)]
    many = many[::40]
    return weights, many, mem(3000)


@scene("fragmentation", gpu="24GiB", also=("capacity",), why="the classic case; some of it is plain load")
@in_file(APP + "serve.py")
def concatenation():
    """Caches grow by concatenation, requests of many lengths interleave."""
    weights = [mem(400) for _ in range(20)]
    running = []
    for round_ in range(4000):
        if len(running) < 14:
            running.append([DynamicCache(8), 200 + round_ * 389 % 1500])
        for item in running:
            if item[0].keys[0] is None:
                generate(item[0], 8, 1, item[1], 0, 8 * 4096)
            else:
                k = torch.empty(1, 64, 8 * 4096, dtype=torch.float16, device="cuda")
                for layer in range(8):
                    item[0].update(k, k, layer)
            item[1] += 64
        running = [r for r in running if r[1] < 2600 + round_ % 5 * 300]
    return weights


@scene("fragmentation", gpu="24GiB")
@in_file(APP + "vision.py")
def mixed_lifetimes():
    """Images of many sizes are worked on and go; the features that stay lie where the images were."""
    features, weights = [], [mem(300) for _ in range(20)]
    for i in range(60):
        batch = [mem(40 + (i * 37 + k * 53) % 240) for k in range(70)]
        del batch[::9]
        features += [mem(2 + k % 5) for k in range(4)]
        del batch
    return weights, features, mem(9000)


@scene("fragmentation", gpu="24GiB", also=("capacity",), conf="roundup_power2_divisions:2",
       why="the rounding is a setting; without it everything fits")
@in_file(APP + "round.py")
def rounding_to_powers():
    """roundup_power2_divisions:2 rounds 1030 MiB up to 1536 MiB each."""
    kept = []
    for _ in range(18):
        kept.append(mem(1030))
    return kept


@scene("fragmentation", gpu="24GiB", conf="max_split_size_mb:20",
       why="38 MiB blocks serve requests of 23 MiB whole; without the limit everything fits")
@in_file(APP + "blocks.py")
def split_limit_wastes():
    """Blocks above max_split_size_mb are handed out whole, up to 20 MiB larger than what is asked for."""
    first, kept = [mem(38) for _ in range(550)], []
    first.clear()
    for _ in range(900):
        kept.append(mem(23))
    return kept


@in_file(APP + "graphs.py")
def capture(size, pool=None):
    graph = torch.cuda.CUDAGraph()
    static = mem(4)
    with torch.cuda.graph(graph, pool=pool):
        a = mem(size)
        b = mem(size / 2)
        del a
        c = mem(size / 4)
        del b
    return graph, static, c


@scene("fragmentation", gpu="24GiB")
@in_file(APP + "graphs.py")
def graph_per_shape():
    """A CUDA graph for each batch size, each with a pool of its own that keeps its high-water mark."""
    weights = [mem(300) for _ in range(20)]
    graphs = [capture(200 + 40 * i) for i in range(16)]
    return weights, graphs, mem(8000)


@scene("fragmentation", gpu="24GiB")
@in_file(APP + "pools.py")
def memory_pool_keeps():
    """A MemPool keeps what its user has freed."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        scratch = [mem(700) for _ in range(20)]
    del scratch
    weights = [mem(300) for _ in range(24)]
    return pool, weights, mem(6000)


@scene("fragmentation", gpu="24GiB")
@in_file(APP + "streams.py")
def streams_strand():
    """Each of four streams keeps a small tensor in its large free segment; the default stream needs one."""
    weights, kept = [mem(300) for _ in range(22)], []
    for _ in range(4):
        with torch.cuda.stream(torch.cuda.Stream()):
            work = mem(3600)
            del work
            kept.append(mem(2))
    return weights, kept, mem(3590)


@scene("fragmentation", gpu="16GiB", also=("unknown", "healthy"), why="nothing failed; much is stranded")
@in_file(APP + "holes.py")
def stranded_but_alive():
    """6 GiB of 11 are stranded, and nothing has failed."""
    return [mem(500) for _ in range(8)], strand(6, 1100)


@scene("fragmentation", gpu="16GiB", history={"context": None})
@in_file(APP + "holes.py")
def pinned_no_stacks():
    """Large segments pinned by small blocks, recorded without stacks."""
    return [mem(1000) for _ in range(5)], strand(8, 1100), mem(3000)


@scene("fragmentation", gpu="16GiB", history={"max_entries": 40})
@in_file(APP + "holes.py")
def pinned_short_record():
    """The same with a record of 40 events."""
    weights, kept = [mem(1000) for _ in range(5)], strand(8, 1100)
    for _ in range(30):
        mem(1)
    return weights, kept, mem(3000)


@scene("fragmentation", gpu="24GiB", conf="expandable_segments:True", also=("capacity",),
       why="pages of 20 MiB with one small block each cannot be unmapped")
@in_file(APP + "holes.py")
def expandable_pinned_pages():
    """Expandable segments do not help when every page holds one live block."""
    many = [mem(4) for _ in range(5600)]
    many = many[::5]
    return many, mem(14000)


@scene("fragmentation", gpu="24GiB", conf="max_split_size_mb:256")
@in_file(APP + "holes.py")
def with_max_split_size():
    """max_split_size_mb is set, and holes below it are still stranded."""
    return [mem(1000) for _ in range(10)], strand(60, 200), mem(5000)


@scene("fragmentation", also=("external",), gpu="24GiB", external="6GiB", why="neighbours hold 6 GiB, 8 GiB are stranded")
@in_file(APP + "holes.py")
def holes_beside_neighbours():
    """Stranded bytes on a card that is shared."""
    return [mem(1000) for _ in range(6)], strand(8, 1100), mem(4000)

@scene("fragmentation", gpu="16GiB", history={"enabled": "state"}, also=("unknown",),
       why="without a history only the message tells that anything failed")
@in_file(APP + "holes.py")
def pinned_state_only():
    """Large segments pinned by small blocks, the state without a history."""
    weights, pins = [mem(1000) for _ in range(5)], strand(8, 1100)
    return weights, pins, mem(3000)


@scene("fragmentation", gpu="80GiB")
@in_file(APP + "holes.py")
def pinned_on_a_large_card():
    """14 of 80 GiB are stranded; a request of 6 GiB fails."""
    return [mem(1000) for _ in range(62)], strand(14, 1000), mem(6000)


@scene("fragmentation", gpu="24GiB", also=("capacity",), why="2 GiB stranded are little, but the request needs only 1.5")
@in_file(APP + "holes.py")
def few_holes():
    """2 GiB of 24 are stranded and a request of 1.5 GiB fails."""
    return [mem(1000) for _ in range(21)], strand(4, 500), mem(1500)


@scene("fragmentation", gpu="24GiB")
@in_file(APP + "serve.py")
def failed_then_went_on():
    """A request fails because of holes; the service drops it and goes on until it ends."""
    weights, pins, message = [mem(1000) for _ in range(8)], strand(12, 1200), None
    try:
        mem(4000)
    except torch.OutOfMemoryError as e:
        message = str(e)
    pins.clear()
    for _ in range(500):
        mem(700)
    return {"message": message, "kept": (weights, pins)}
