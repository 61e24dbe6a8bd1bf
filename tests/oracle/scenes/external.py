# SPDX-License-Identifier: Apache-2.0
"""Memory of the device that this process's allocator does not hold."""

import torch

from scenarios import GIB, driver_alloc, in_file, mem, scene
from scenes.models import APP, build, tokens


@scene("external", gpu="24GiB", external="14GiB")
@in_file(APP + "serve.py")
def neighbour_holds_most():
    """Another process holds 14 GiB; this service is small."""
    weights = [mem(200) for _ in range(25)]
    for _ in range(200):
        mem(300)
    return weights, mem(5000)


@scene("external", gpu="80GiB", external="50GiB", history={"max_entries": 1000})
@in_file(APP + "serve.py")
def neighbour_on_a_large_card():
    """50 of 80 GiB belong to others."""
    weights = [mem(500) for _ in range(36)]
    for i in range(800):
        mem(300 + i % 17)
    while True:
        weights.append(mem(1100))


@scene("external", gpu="16GiB", external="9GiB")
@in_file(APP + "train.py")
def neighbour_during_training():
    """A training run that fits 16 GiB starts on a card with a neighbour."""
    model = build(24, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        x = tokens(12, 1024)
        loss = model(x).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@scene("external", gpu="24GiB", external="15GiB", history=False,
       also=("unknown", "healthy"), why="no history: the snapshot does not know that anything failed")
@in_file(APP + "serve.py")
def neighbour_no_history():
    """The same without any history."""
    weights = [mem(200) for _ in range(20)]
    return weights, mem(6000)


@scene("external", gpu="24GiB", give_external=True)
@in_file(APP + "native.py")
def library_in_this_process():
    """A native library of the same process holds 12 GiB that it got from the driver."""
    driver_alloc(12 * GIB)
    weights = [mem(200) for _ in range(20)]
    for _ in range(100):
        mem(100)
    return weights, mem(8000)


@scene("external", gpu="24GiB")
@in_file(APP + "native.py")
def library_grows():
    """A native library takes more with every request, until PyTorch gets nothing."""
    weights = [mem(400) for _ in range(20)]
    for _ in range(1000):
        mem(700)
        torch.cuda.empty_cache()
        driver_alloc(GIB // 8)
    return weights


@scene("capacity", gpu="24GiB", also=("external",), external="3GiB", why="3 GiB of others matter little, but would do")
@in_file(APP + "serve.py")
def small_neighbour():
    """Others hold 3 GiB of 24; this process fills the rest."""
    weights = [mem(500) for _ in range(38)]
    return weights, mem(2500)


@scene("capacity", gpu="24GiB", external="1GiB")
@in_file(APP + "serve.py")
def desktop_on_the_card():
    """A desktop's 1 GiB is not why a 4 GiB request fails on a full card."""
    weights = [mem(500) for _ in range(40)]
    return weights, mem(4000)


@scene("capacity", gpu="24GiB", context="1GiB")
@in_file(APP + "serve.py")
def heavy_context():
    """A context of 1 GiB is usual for a process with many libraries."""
    weights = [mem(500) for _ in range(42)]
    return weights, mem(3000)


@scene("external", gpu="24GiB", external="14GiB")
@in_file(APP + "serve.py")
def large_request_beside_neighbour():
    """A request of 12 GiB would fit the card, but not beside its neighbour."""
    weights = [mem(200) for _ in range(5)]
    return weights, mem(12000)


@scene("external", gpu="24GiB", external="16GiB", conf="expandable_segments:True")
@in_file(APP + "serve.py")
def neighbour_and_expandable():
    """A neighbour holds most of the card, with expandable segments."""
    weights = [mem(200) for _ in range(20)]
    for i in range(300):
        mem(100 + i % 50)
    return weights, mem(6000)


@scene("healthy", gpu="24GiB", external="10GiB")
@in_file(APP + "serve.py")
def neighbour_without_harm():
    """A neighbour holds 10 GiB; nothing failed."""
    weights = [mem(200) for _ in range(20)]
    for _ in range(300):
        mem(300)
    return weights
