# SPDX-License-Identifier: Apache-2.0
"""Memory that grows because something keeps what it does not need any more."""

import torch

from scenarios import in_file, mem, scene
from scenes.fragmentation import capture
from scenes.models import APP, DynamicCache, build, generate, tokens


@scene("leak", gpu="24GiB")
@in_file(APP + "evaluate.py")
def outputs_kept():
    """An evaluation loop keeps each batch of logits on the device."""
    model = build(12, 1024)
    outputs = []
    with torch.no_grad():
        for _ in range(2000):
            batch = tokens(4, 512)
            outputs.append(model(batch))


@scene("leak", gpu="16GiB")
@in_file(APP + "evaluate.py")
def outputs_kept_one_line():
    """The same from a single line, which hides the loop from the stacks."""
    model, batch = build(12, 1024), tokens(4, 512)
    with torch.no_grad():
        return [model(batch) for _ in range(1000)]


@scene("leak", gpu="24GiB")
@in_file(APP + "train.py")
def loss_keeps_graph():
    """total += loss without detach(): each step's graph with its activations stays."""
    model = build(12, 512)
    total = 0
    for _ in range(1000):
        x = tokens(4, 512)
        loss = model(x).float().mean()
        total = total + loss
        torch.autograd.grad(loss, [model.head.weight], retain_graph=True)


@scene("leak", gpu="24GiB", history={"max_entries": 5000})
@in_file(APP + "train.py")
def loss_keeps_graph_ring():
    """The same, of which only the last 5,000 events are known."""
    model = build(12, 512)
    total = 0
    for _ in range(1000):
        x = tokens(4, 512)
        loss = model(x).float().mean()
        total = total + loss
        torch.autograd.grad(loss, [model.head.weight], retain_graph=True)


@in_file(APP + "serve.py")
def work(size=24):
    hidden = [mem(size), mem(size * 2), mem(size / 3)]
    for _ in range(4):
        hidden = [hidden[1], mem(size), mem(size / 2)]
    return hidden


@in_file(APP + "serve.py")
def handle(request, store, keep):
    hidden = work()
    out = mem(8)
    if request % 3 != 2:
        work(12)
    store[request] = mem(keep)
    return out, hidden


@scene("leak", gpu="24GiB")
@in_file(APP + "serve.py")
def dict_by_request():
    """Results are kept in a dict by request id, sizes by prompt length; nobody removes them."""
    weights = [mem(400) for _ in range(20)]
    results = {}
    for request in range(5000):
        handle(request, results, 4 + request * 7919 % 13)
    return weights


@scene("leak", gpu="24GiB", history={"context": None})
@in_file(APP + "serve.py")
def dict_by_request_no_stacks():
    """The same, recorded without stacks."""
    weights = [mem(400) for _ in range(20)]
    results = {}
    for request in range(5000):
        handle(request, results, 4 + request * 7919 % 13)
    return weights


@scene("leak", gpu="24GiB", history={"max_entries": 3000})
@in_file(APP + "serve.py")
def dict_by_request_ring():
    """The same, of which only the last 3,000 events are known."""
    weights = [mem(400) for _ in range(20)]
    results = {}
    for request in range(5000):
        handle(request, results, 4 + request * 7919 % 13)
    return weights


@scene("leak", gpu="24GiB", also=("capacity", "unknown"), history={"max_entries": 2500, "context": None},
       why="without stacks a short window shows little")
@in_file(APP + "serve.py")
def dict_ring_no_stacks():
    """The same with neither stacks nor the beginning."""
    weights = [mem(400) for _ in range(20)]
    results = {}
    for request in range(5000):
        handle(request, results, 4 + request * 7919 % 13)
    return weights


@scene("leak", gpu="8GiB")
@in_file(APP + "metrics.py")
def small_tensors():
    """A counter tensor of 40 KiB is kept for each of very many events; one in ten does real work."""
    weights, seen = [mem(300) for _ in range(20)], []
    for i in range(80000):
        seen.append(torch.empty(10240, device="cuda"))
        if i % 4 == 0:
            work(3 + i % 3)
    return weights, seen


@scene("leak", gpu="80GiB")
@in_file(APP + "render.py")
def few_big_tensors():
    """A frame of 2.5 GiB is kept for each job; 25 jobs fill the card."""
    weights, frames = [mem(500) for _ in range(30)], []
    for _ in range(100):
        work(300)
        frames.append(mem(2560))
        work(200)
    return weights


@scene("leak", gpu="24GiB", also=("capacity", "unknown"), why="six survivors show no pace")
@in_file(APP + "render.py")
def very_few_big_tensors():
    """Six survivors of 3 GiB each are all there is."""
    weights, frames = [mem(500) for _ in range(6)], []
    for _ in range(100):
        work(100)
        frames.append(mem(3072))
    return weights


@scene("leak", gpu="24GiB", history={"max_entries": 6000})
@in_file(APP + "serve.py")
def slow_among_heavy_traffic():
    """Every fortieth request leaves 24 MiB; the record shows only the last few of very many."""
    weights, left = [mem(400) for _ in range(24)], []
    for request in range(60000):
        a = mem(20 + request % 5)
        b = mem(30)
        del a, b
        if request % 40 == 0:
            left.append(mem(24))
    return weights


@scene("leak", gpu="24GiB")
@in_file(APP + "serve.py")
def not_failed_yet():
    """A leak that has eaten 6 GiB so far; nothing has failed."""
    weights, results = [mem(400) for _ in range(20)], {}
    for request in range(800):
        handle(request, results, 8)
    return weights, results


@scene("leak", gpu="24GiB", history={"max_entries": 4000})
@in_file(APP + "serve.py")
def not_failed_yet_ring():
    """The same with a short record."""
    weights, results = [mem(400) for _ in range(20)], {}
    for request in range(800):
        handle(request, results, 8)
    return weights, results


@scene("leak", gpu="16GiB")
@in_file(APP + "chat.py")
def sessions_never_closed():
    """Each session's key/value cache is kept after the session has ended."""
    weights, sessions = [mem(400) for _ in range(16)], {}
    for user in range(2000):
        cache = DynamicCache(8)
        sessions[user] = generate(cache, 8, 1, 600 + user * 31 % 400, 6, 2048)
    return weights


@scene("leak", gpu="24GiB")
@in_file(APP + "features.py")
def forward_hooks_collect():
    """A forward hook of each block stores its output, in a list that nobody empties."""
    model, features = build(10, 1024), []
    for layer in model.layers:
        layer.register_forward_hook(lambda m, i, o: features.append(o.clone()))
    with torch.no_grad():
        for _ in range(1000):
            x = tokens(8, 512)
            y = model(x)
            probabilities = y.softmax(-1)
            del x, y, probabilities


@scene("leak", gpu="24GiB")
@in_file(APP + "adapters.py")
def adapters_never_unloaded():
    """Each tenant's adapter is loaded on demand and never unloaded, between heavy traffic."""
    base, loaded = [mem(400) for _ in range(30)], {}

    def load_adapter(tenant):
        loaded[tenant] = [mem(16) for _ in range(8)]

    for request in range(3000):
        work(10 + request % 3)
        work(20)
        if request % 7 == 0:
            load_adapter(request)
    return base


@scene("leak", gpu="24GiB")
@in_file(APP + "serve.py")
def caught_again_and_again():
    """The service catches each failure and goes on; the leak makes ever more requests fail."""
    weights, results, message = [mem(400) for _ in range(40)], {}, None
    for request in range(1500):
        try:
            handle(request, results, 6)
        except torch.OutOfMemoryError as e:
            message = str(e)
    return {"message": message, "kept": (weights, results)}


@scene("leak", gpu="24GiB", conf="expandable_segments:True")
@in_file(APP + "serve.py")
def dict_expandable():
    """The dict by request, with expandable segments."""
    weights = [mem(400) for _ in range(20)]
    results = {}
    for request in range(5000):
        handle(request, results, 4 + request * 7919 % 13)
    return weights


@scene("leak", gpu="24GiB", history={"stacks": "all", "max_entries": 20000})
@in_file(APP + "serve.py")
def dict_native_stacks():
    """The dict by request, with native frames in the stacks."""
    weights = [mem(400) for _ in range(40)]
    results = {}
    for request in range(5000):
        handle(request, results, 4 + request * 7919 % 13)
    return weights


@scene("leak", gpu="24GiB", also=("external",), external="8GiB", why="neighbours hold 8 GiB, the leak 9")
@in_file(APP + "serve.py")
def leak_beside_neighbours():
    """A leak on a card that is shared: it would have failed later without the neighbours."""
    weights, results = [mem(400) for _ in range(15)], {}
    for request in range(5000):
        handle(request, results, 10)
    return weights


@scene("leak", gpu="24GiB")
@in_file(APP + "train.py")
def training_keeps_batches():
    """A healthy training loop, but each batch stays in a replay list."""
    model, replay = build(8, 1024), []
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(600):
        x = tokens(4, 512)
        images = mem(64)
        replay.append(images)
        loss = model(x).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@scene("leak", gpu="24GiB")
@in_file(APP + "evaluate.py")
def few_big_outputs():
    """The outputs that are kept are large: thirty fill the card."""
    model, outputs = build(12, 1024), []
    with torch.no_grad():
        for _ in range(500):
            batch = tokens(22, 512)
            outputs.append(model(batch))


@scene("leak", gpu="24GiB")
@in_file(APP + "train.py")
def loss_keeps_large_graph():
    """losses.append(loss): some twenty steps' graphs fill the card."""
    model, losses = build(12, 1024), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(300):
        x = tokens(2, 512)
        loss = model(x).float().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)


@scene("leak", gpu="24GiB")
@in_file(APP + "limits.py")
def leak_under_a_cap():
    """A leak runs into a cap of half the card."""
    torch.cuda.set_per_process_memory_fraction(0.5)
    weights, results = [mem(400) for _ in range(10)], {}
    for request in range(5000):
        handle(request, results, 10)
    return weights


@scene("leak", gpu="24GiB", also=("capacity",), why="five generations are a burst, not a pace")
@in_file(APP + "reload.py")
def old_models_kept():
    """Every reload of the model keeps the old one alive, with traffic between."""
    models = []
    for version in range(10):
        models.append(build(48, 1536))
        for _ in range(60):
            work(20)
            with torch.no_grad():
                models[-1](tokens(2, 256))


@scene("leak", gpu="24GiB", also=("fragmentation", "capacity"), why="graphs hold private pools; nothing frees them")
@in_file(APP + "graphs.py")
def graph_for_every_request():
    """A new graph is captured for each shape that comes, and kept."""
    weights, graphs = [mem(300) for _ in range(20)], {}
    for request in range(4000):
        work(10)
        graphs[request] = capture(60 + request * 7 % 31)
    return weights


@scene("leak", gpu="24GiB", also=("capacity", "unknown"), history={"enabled": "state"},
       why="without a history growth cannot be seen")
@in_file(APP + "serve.py")
def dict_state_only():
    """The dict by request, with the state but no history."""
    weights = [mem(400) for _ in range(20)]
    results = {}
    for request in range(5000):
        handle(request, results, 4 + request * 7919 % 13)
    return weights


@scene("leak", gpu="24GiB", history={"max_entries": 8000})
@in_file(APP + "serve.py")
def leak_beside_lru():
    """An LRU cache that is full, and beside it a list that only grows."""
    weights, cache, left = [mem(300) for _ in range(12)], {}, []
    for request in range(6000):
        work(6)
        cache[request] = mem(20)
        if len(cache) > 200:
            del cache[request - 200]
        if request % 3 == 0:
            left.append(mem(11))
    return weights


@scene("leak", gpu="80GiB", history={"max_entries": 100000})
@in_file(APP + "serve.py")
def small_leak_on_a_large_card():
    """3 GiB leaked on a card of 80 GiB that was full but for that."""
    weights, left = [mem(1000) for _ in range(74)], []
    for request in range(20000):
        a = mem(20 + request % 5)
        b = mem(30)
        del a, b
        if request % 4 == 0:
            left.append(mem(2))
    return weights


@scene("leak", gpu="24GiB")
@in_file(APP + "chat.py")
def prefix_cache_without_bound():
    """A prefix cache keeps the blocks of every prompt, among requests that come and go."""
    weights, prefix_cache = [mem(400) for _ in range(30)], {}
    for request in range(3000):
        hidden = work(16)
        prefix_cache[request] = [mem(5), mem(5)]
        logits = mem(12)
        del hidden, logits
    return weights


@scene("leak", gpu="24GiB")
@in_file(APP + "serve.py")
def errors_kept():
    """Failed requests store their exception, whose frames hold the request's tensors."""
    weights, errors = [mem(400) for _ in range(24)], []

    def request(i):
        hidden = mem(40)
        scores = mem(24)
        if i % 5 == 0:
            raise ValueError("bad request")
        return hidden, scores

    for i in range(3000):
        work(12)
        try:
            request(i)
        except ValueError as e:
            errors.append(e)
    return weights


@scene("leak", gpu="24GiB")
@in_file(APP + "pools.py")
def leak_in_a_memory_pool():
    """The list that grows is allocated in a MemPool."""
    weights, results, pool = [mem(400) for _ in range(24)], [], torch.cuda.MemPool()
    for request in range(3000):
        work(14)
        with torch.cuda.use_mem_pool(pool):
            results.append(mem(12))
    return weights


@scene("leak", gpu="24GiB")
@in_file(APP + "streams.py")
def leak_on_side_streams():
    """Requests run on four streams; each leaves its output."""
    weights, results = [mem(400) for _ in range(24)], []
    streams = [torch.cuda.Stream() for _ in range(4)]
    for request in range(4000):
        with torch.cuda.stream(streams[request % 4]):
            work(10)
            results.append(mem(6))
    return weights


@scene("leak", gpu="24GiB*2", device=1, history={"max_entries": 30000})
@in_file(APP + "split.py")
def leak_on_second_device():
    """Device 0 is busy and fine, device 1 fills with results that are kept."""
    weights = [mem(400, "cuda:0") for _ in range(40)] + [mem(400, "cuda:1") for _ in range(30)]
    results = []
    for request in range(4000):
        hidden = [mem(30, "cuda:0"), mem(50, "cuda:0")]
        scratch = [mem(20, "cuda:1"), mem(25, "cuda:1"), mem(12, "cuda:1")]
        results.append(mem(9, "cuda:1"))
        del hidden, scratch
    return weights


@scene("leak", gpu="16GiB")
@in_file(APP + "rnn.py")
def states_of_finished_sequences():
    """A recurrent model's last states are kept for every sequence."""
    cell, states = torch.nn.GRUCell(2048, 2048).cuda(), []
    with torch.no_grad():
        for sequence in range(6000):
            h = torch.zeros(512, 2048, device="cuda")
            for _ in range(5):
                h = cell(torch.empty(512, 2048, device="cuda"), h)
            states.append(h)


@scene("leak", gpu="24GiB", also=("capacity",), why="a queue that grows because its reader is slow")
@in_file(APP + "queue.py")
def backlog():
    """Batches are prefetched faster than they are consumed; three come, two go."""
    weights, queue = [mem(400) for _ in range(24)], []
    for step in range(3000):
        queue += [mem(16) for _ in range(3)]
        for _ in range(2):
            batch = queue.pop(0)
            hidden = mem(40)
            del batch, hidden
    return weights


@scene("leak", gpu="24GiB")
def two_sites():
    """Two places leak the same number of bytes."""
    weights, inputs, outputs = [mem(400) for _ in range(24)], [], []
    for request in range(3000):
        inputs.append(mem(4))
        work(9)
        outputs.append(mem(4))
    return weights


@scene("leak", gpu="24GiB", history={"max_entries": 4000})
@in_file(APP + "evaluate.py")
def outputs_kept_ring():
    """The evaluation that keeps its logits, of which a short record shows a few passes."""
    model = build(12, 1024)
    outputs = []
    with torch.no_grad():
        for _ in range(2000):
            batch = tokens(4, 512)
            outputs.append(model(batch))
