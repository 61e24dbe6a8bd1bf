# SPDX-License-Identifier: Apache-2.0
"""Nothing failed and nothing is wrong."""

from collections import OrderedDict

import torch

from scenarios import in_file, mem, scene
from scenes.fragmentation import capture
from scenes.leak import work
from scenes.models import APP, DynamicCache, build, generate, tokens


@scene("healthy", gpu="24GiB")
@in_file(APP + "train.py")
def training():
    """A training loop with AdamW, from the start."""
    model = build(12, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(20):
        x = tokens(8, 512)
        loss = model(x).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model, optimizer


@scene("healthy", gpu="24GiB", history={"max_entries": 4000})
@in_file(APP + "train.py")
def training_ring():
    """The same with a short record, taken in the middle of a backward pass."""
    model = build(12, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(20):
        x = tokens(8, 512)
        loss = model(x).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model(tokens(8, 512)).float().mean(), model, optimizer


@scene("healthy", gpu="80GiB")
@in_file(APP + "train.py")
def in_first_forward():
    """Taken after the first forward pass of a deep model: everything alive is young."""
    model = build(80, 512)
    return model, model(tokens(8, 512))


@scene("healthy", gpu="80GiB")
@in_file(APP + "load.py")
def just_loaded():
    """Weights were loaded with a conversion; nothing has run yet."""
    weights = {}
    for i in range(600):
        wide = torch.empty(4096, 1024 + 512 * (i % 5), device="cuda")
        weights[i] = wide.to(torch.bfloat16)
    return weights


@scene("healthy", gpu="24GiB")
@in_file(APP + "serve.py")
def high_water():
    """A large request came and went; its segments stay cached."""
    weights = [mem(300) for _ in range(12)]
    for _ in range(300):
        work(12)
    big = [mem(900) for _ in range(12)]
    del big
    return weights


@scene("healthy", gpu="24GiB")
@in_file(APP + "cache.py")
def cache_with_plateau():
    """A cache fills up to 150 entries and stays there, while traffic goes on."""
    weights, cache = [mem(300) for _ in range(12)], {}
    for request in range(1500):
        work(6)
        if len(cache) < 150:
            cache[request] = mem(24)
    return weights, cache


@scene("healthy", gpu="24GiB")
@in_file(APP + "cache.py")
def lru_cache():
    """An LRU cache of 200 entries that evicts one for each new one."""
    weights, cache = [mem(300) for _ in range(12)], OrderedDict()
    for request in range(1500):
        work(6)
        cache[request] = mem(20)
        if len(cache) > 200:
            cache.popitem(last=False)
    return weights, cache


@scene("healthy", gpu="24GiB", history={"max_entries": 3000})
@in_file(APP + "cache.py")
def lru_cache_ring():
    """The same with a record shorter than an entry's life."""
    weights, cache = [mem(300) for _ in range(12)], OrderedDict()
    for request in range(1500):
        work(6)
        cache[request] = mem(20)
        if len(cache) > 200:
            cache.popitem(last=False)
    return weights, cache


@scene("healthy", gpu="24GiB", history={"context": None})
@in_file(APP + "cache.py")
def lru_cache_no_stacks():
    """The same without stacks."""
    weights, cache = [mem(300) for _ in range(12)], OrderedDict()
    for request in range(1500):
        work(6)
        cache[request] = mem(20)
        if len(cache) > 200:
            cache.popitem(last=False)
    return weights, cache


@scene("healthy", gpu="16GiB")
@in_file(APP + "serve.py")
def many_retries():
    """Odd sizes make the allocator release its cache again and again, but nothing fails."""
    weights = [mem(500) for _ in range(16)]
    for i in range(400):
        a = mem(1500 + i * 97 % 1900)
        b = mem(900 + i * 61 % 1300)
        del a, b
    return weights


@scene("healthy", gpu="24GiB", conf="expandable_segments:True")
@in_file(APP + "serve.py")
def expandable_service():
    """A service with expandable segments."""
    weights = [mem(300) for _ in range(20)]
    for i in range(600):
        work(8 + i % 9)
    return weights


@scene("healthy", gpu="24GiB", history=False)
@in_file(APP + "serve.py")
def no_history():
    """No history was recorded; a small heap on a large card."""
    weights = [mem(300) for _ in range(10)]
    work(20)
    return weights


@scene("healthy", gpu="80GiB")
@in_file(APP + "engine.py")
def engine_with_graphs():
    """An engine: weights, a cache allocated once, graphs that share one pool, then traffic."""
    weights, cache = [mem(300) for _ in range(40)], [mem(800) for _ in range(40)]
    graphs = [capture(160)]
    for size in (120, 80, 40, 20):
        graphs.append(capture(size, graphs[0][0].pool()))
    for i in range(400):
        work(10 + i % 5)
    return weights, cache, graphs


@scene("healthy", gpu="24GiB")
@in_file(APP + "train.py")
def metrics_kept():
    """A loop keeps one scalar for each step: growth, but of kilobytes."""
    weights, losses = [mem(300) for _ in range(12)], []
    for _ in range(2000):
        work(12)
        losses.append(torch.zeros(1, device="cuda"))
    return weights, losses


@scene("healthy", gpu="24GiB", history={"max_entries": 2500})
@in_file(APP + "chat.py")
def requests_in_flight():
    """Ten chats are running, each in its own phase; old ones end, new ones begin."""
    weights, running = [mem(300) for _ in range(20)], []
    for turn in range(200):
        running.append(generate(DynamicCache(8), 8, 1, 300 + turn * 37 % 500, 3, 4096))
        if len(running) > 10:
            running.pop(0)
    return weights, running


@scene("healthy", gpu="24GiB")
@in_file(APP + "serve.py")
def warm_up_then_steady():
    """Compiled buffers for each new shape appear in the first tenth, then never again."""
    weights, buffers = [mem(300) for _ in range(12)], {}
    for request in range(2000):
        shape = request * 7 % 60
        if shape not in buffers:
            buffers[shape] = mem(40)
        work(6)
    return weights, buffers


@scene("healthy", gpu="24GiB", history={"max_entries": 30})
@in_file(APP + "serve.py")
def few_events():
    """Only thirty events are known."""
    weights = [mem(300) for _ in range(20)]
    for _ in range(50):
        work(12)
    return weights


@scene("healthy", gpu="24GiB")
@in_file(APP + "evaluate.py")
def predictions_moved_to_host():
    """An evaluation loop that keeps its predictions on the host."""
    model, predictions = build(8, 1024), []
    with torch.no_grad():
        for _ in range(200):
            predictions.append(model(tokens(2, 64)).argmax(-1).cpu())
    return model


@scene("healthy", gpu="24GiB")
@in_file(APP + "train.py")
def accumulation():
    """Gradient accumulation over eight micro-batches, two epochs."""
    model = build(8, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(48):
        loss = model(tokens(4, 512)).float().mean() / 8
        loss.backward()
        if step % 8 == 7:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return model, optimizer


@scene("healthy", gpu="24GiB")
@in_file(APP + "train.py")
def averaged_weights():
    """A copy of the weights (EMA) is updated in place in each step."""
    model = build(8, 1024)
    average = [p.detach().clone() for p in model.parameters()]
    for _ in range(60):
        loss = model(tokens(4, 256)).float().mean()
        loss.backward()
        for a, p in zip(average, model.parameters()):
            a.mul_(0.99).add_(p.detach(), alpha=0.01)
        model.zero_grad(set_to_none=True)
    return model, average


@scene("healthy", gpu="24GiB", history={"max_entries": 1500})
@in_file(APP + "train.py")
def inside_an_epoch_ring():
    """Taken in the middle of a step's forward pass, of which the short record shows only a part."""
    model = build(60, 512)
    for _ in range(4):
        model(tokens(8, 512)).float().mean().backward()
    return model, model(tokens(8, 512))


@scene("healthy", gpu="24GiB")
@in_file(APP + "serve.py")
def nearly_full_on_purpose():
    """22.5 of 24 GiB are live in a steady service."""
    weights = [mem(500) for _ in range(45)]
    for _ in range(500):
        work(12)
    return weights


@scene("healthy", gpu="24GiB", conf="garbage_collection_threshold:0.6,max_split_size_mb:512")
@in_file(APP + "serve.py")
def tuned_service():
    """A service with tuned settings and mixed sizes."""
    weights = [mem(300) for _ in range(20)]
    for i in range(800):
        a, b = mem(40 + i * 7 % 600), mem(20 + i * 13 % 300)
        del a, b
    return weights


@scene("healthy", gpu="24GiB")
@in_file(APP + "train.py")
def train_then_evaluate():
    """An epoch of training and one of evaluation."""
    model = build(8, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(12):
        model(tokens(4, 512)).float().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for _ in range(30):
            model(tokens(8, 512))
    return model, optimizer


@scene("healthy", gpu="24GiB")
@in_file(APP + "adapters.py")
def adapters_swapped():
    """Adapters are loaded and unloaded; at most eight are there."""
    base, loaded = [mem(300) for _ in range(20)], OrderedDict()
    for request in range(2000):
        work(10)
        if request % 5 == 0:
            loaded[request] = [mem(16) for _ in range(4)]
            if len(loaded) > 8:
                loaded.popitem(last=False)
    return base, loaded


@scene("healthy", gpu="80GiB")
@in_file(APP + "serve.py")
def load_rises():
    """Half way through, twice as many requests are in flight; they come and go all the time."""
    weights, flight = [mem(300) for _ in range(40)], []
    for request in range(1200):
        flight.append([mem(30 + request % 9), mem(12)])
        if len(flight) > (20 if request < 600 else 40):
            flight.pop(0)
    return weights, flight
