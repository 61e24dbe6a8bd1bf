# SPDX-License-Identifier: Apache-2.0
"""What must live at the same time does not fit, or a cap says no. None of these is a leak."""

import gc

import torch

from scenarios import in_file, mem, scene
from scenes.fragmentation import strand
from scenes.models import APP, DynamicCache, build, generate, tokens


@scene("capacity", gpu="40GiB")
@in_file(APP + "load.py")
def load_with_conversion():
    """Weights come as fp32 and stay as bf16: a temporary for each survivor, until the card is full."""
    weights = {}
    for i in range(2000):
        wide = torch.empty(1024 * (5 + i % 7 * 4), 1024, device="cuda")
        weights[i] = wide.to(torch.bfloat16)
    return weights


@scene("capacity", gpu="12GiB")
@in_file(APP + "quantize.py")
def load_and_quantize():
    """Quantisation at load: five temporaries for each pair of survivors."""
    weights = []
    for i in range(4000):
        w = torch.empty(2048, 2048 + 1024 * (i % 3), device="cuda")
        scale = w.abs().amax(dim=1, keepdim=True)
        q = (w / scale * 127).round().clamp(-127, 127).to(torch.int8)
        weights.append((q, scale))
    return weights


@scene("capacity", gpu="16GiB")
@in_file(APP + "build.py")
def model_larger_than_card():
    """A model is built layer by layer on a card that is too small."""
    return build(80, 4096)


@in_file(APP + "train.py")
def train(model, optimizer, batches):
    for batch, length in batches:
        x = tokens(batch, length)
        loss = model(x).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


@scene("capacity", gpu="24GiB")
def first_forward():
    """Training, and the batch is too large: memory runs out in the middle of the first forward pass."""
    model = build(60, 1024)
    train(model, sgd(model), [(64, 1024)])


@scene("capacity", gpu="24GiB", history={"context": None})
def first_forward_no_stacks():
    """The same, recorded without stacks."""
    model = build(60, 1024)
    train(model, sgd(model), [(64, 1024)])


@scene("capacity", gpu="24GiB", history={"max_entries": 700})
def first_forward_ring():
    """The same, of which only the last 700 events are known."""
    model = build(60, 1024)
    train(model, sgd(model), [(64, 1024)])


@scene("capacity", gpu="24GiB")
def first_forward_sequential():
    """The first pass through an nn.Sequential called from one line."""
    parts = []
    for _ in range(120):
        parts += [torch.nn.Linear(2048, 2048, device="cuda"), torch.nn.GELU(), torch.nn.LayerNorm(2048, device="cuda")]
    net = torch.nn.Sequential(*parts)
    net(torch.empty(9000, 2048, device="cuda")).sum().backward()


@scene("capacity", gpu="24GiB")
def first_backward():
    """The forward pass fits, the gradients of the weights do not."""
    model = build(48, 2048)
    x = tokens(10, 1024)
    loss = model(x).float().mean()
    loss.backward()


@scene("capacity", gpu="16GiB")
def first_adam_step():
    """Weights and gradients fit; Adam's two states, made at the first step, do not."""
    model = build(40, 2048)
    train(model, torch.optim.AdamW(model.parameters()), [(1, 128)])


@scene("capacity", gpu="16GiB")
def first_adam_step_loop():
    """The same with the optimizer that goes parameter by parameter, with temporaries for each."""
    model = build(40, 2048)
    train(model, torch.optim.Adam(model.parameters(), foreach=False), [(1, 128)])


@in_file(APP + "lion.py")
class Lion(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["master"] = p.detach().float()
                state["momentum"] = torch.zeros_like(p, dtype=torch.float32)
            update = state["momentum"] * 0.9 + p.grad.float() * 0.1
            state["master"].add_(update.sign(), alpha=-0.1)
            p.data.copy_(state["master"])


@scene("capacity", gpu="16GiB")
def custom_optimizer_first_step():
    """An optimizer of the user's own builds its state in its first step."""
    model = build(40, 2048)
    train(model, Lion(list(model.parameters())), [(1, 128)])


@scene("capacity", gpu="24GiB")
def larger_batch_after_many():
    """Thirty steps of training, then one larger batch."""
    model = build(24, 1024)
    train(model, sgd(model), [(16, 512)] * 30 + [(100, 1024)])


@scene("capacity", gpu="24GiB", history={"max_entries": 3000})
def larger_batch_ring():
    """The same, of which only the last 3,000 events are known."""
    model = build(24, 1024)
    train(model, sgd(model), [(16, 512)] * 30 + [(100, 1024)])


@scene("capacity", gpu="8GiB")
def attention_scores():
    """One request for all attention scores of a long sequence: more than the card."""
    x = torch.empty(16, 32768, 128, dtype=torch.float16, device="cuda")
    return torch.bmm(x, x.transpose(1, 2))


@scene("capacity", gpu="80GiB", also=("fragmentation",), why="growth by concatenation also leaves holes")
@in_file(APP + "serve.py")
def kv_ramp_up():
    """One large batch generates: its cache grows in each step until the card is full."""
    weights = [mem(1600) for _ in range(40)]
    cache = DynamicCache(48)
    generate(cache, 48, 32, 2500, 500, 1024)
    return weights


@scene("capacity", also=("leak",), why="pages of running sequences; only the program knows that they end")
@in_file(APP + "engine/kv_cache.py")
def kv_pages_ramp_up():
    """Pages of a cache are taken as sequences grow, all sequences still running."""
    weights = [mem(400) for _ in range(40)]
    pages = []
    for step in range(2000):
        hidden = [mem(6) for _ in range(4)]
        logits = mem(8)
        if step % 8 == 0:
            pages.append(mem(48))
    return weights, pages, hidden, logits


@scene("capacity")
@in_file(APP + "limits.py")
def cap_by_call():
    """set_per_process_memory_fraction(0.4): the device has room, the cap has not."""
    torch.cuda.set_per_process_memory_fraction(0.4)
    state = [mem(300) for _ in range(28)]
    while True:
        state.append(mem(200))


@scene("capacity", conf="per_process_memory_fraction:0.5", gpu="16GiB")
@in_file(APP + "limits.py")
def cap_by_conf():
    """The cap comes from the settings."""
    state = [mem(300) for _ in range(20)]
    return state, mem(3000)


@scene("capacity", limit="10GiB")
@in_file(APP + "limits.py")
def cap_by_quota():
    """A quota outside PyTorch lets this process have 10 GiB; the device says that more is free."""
    state = [mem(500) for _ in range(12)]
    while True:
        state.append(mem(700))


@scene("capacity", also=("fragmentation",), gpu="24GiB", why="with a cap, holes within it count as well")
@in_file(APP + "limits.py")
def cap_and_holes():
    """A cap of 9.6 GiB with 8 GiB stranded below it: both alone would have saved it."""
    torch.cuda.set_per_process_memory_fraction(0.4)
    return strand(8, 1024), mem(3000)


@scene("capacity", gpu="24GiB*2", device=1)
@in_file(APP + "split.py")
def second_device_full():
    """Two cards: the first is large and fine, the second runs out."""
    first = [mem(500, "cuda:0") for _ in range(40)]
    for _ in range(400):
        mem(300, "cuda:0")
    second = [mem(500, "cuda:1") for _ in range(30)]
    while True:
        second.append(mem(900, "cuda:1"))
    return first


@scene("capacity", gpu="16GiB")
@in_file(APP + "retry.py")
def caught_and_halved():
    """A batch is too large, the program catches the error, halves it and goes on for long."""
    weights = [mem(500) for _ in range(20)]
    size, message = 8000, None
    for _ in range(300):
        try:
            work = [mem(size), mem(size / 8)]
        except torch.OutOfMemoryError as e:
            message = str(e)
            size /= 2
        work = None
    return {"message": message, "kept": (weights, work)}


@scene("capacity", gpu="16GiB")
def dumped_after_cleanup():
    """The error is handled, everything is dropped and the cache emptied before the snapshot is taken."""
    message = None
    try:
        model = build(24, 1024)
        train(model, sgd(model), [(64, 1024)])
    except torch.OutOfMemoryError as e:
        message = str(e)
    model = None
    gc.collect()
    torch.cuda.empty_cache()
    return {"message": message}


@scene("capacity", gpu="16GiB", conf="expandable_segments:True")
def first_forward_expandable():
    """The first forward pass with expandable segments."""
    model = build(60, 1024)
    train(model, sgd(model), [(48, 1024)])


@scene("capacity", gpu="24GiB", conf="expandable_segments:True")
@in_file(APP + "serve.py")
def long_prompt_expandable():
    """A steady service with expandable segments, then one prompt that needs too much."""
    weights = [mem(700) for _ in range(28)]
    for i in range(500):
        a, b = mem(30 + i % 11), mem(90 + i % 7)
        del a, b
    return weights, mem(5000)


@scene("capacity", gpu="24GiB", history={"max_entries": 2000, "context": None})
@in_file(APP + "serve.py")
def long_prompt_ring_no_stacks():
    """The same without expandable segments, the last 2,000 events, no stacks."""
    weights = [mem(700) for _ in range(28)]
    for i in range(1500):
        a, b = mem(30 + i % 11), mem(90 + i % 7)
        del a, b
    return weights, mem(5000)


@scene("capacity", gpu="48GiB")
@in_file(APP + "sample.py")
def decode_of_a_large_image():
    """A diffusion service: steps are fine, the decoder's workspace for one large image is not."""
    unet = [mem(100) for _ in range(300)]
    for i in range(400):
        latents = mem(64)
        noise = [mem(256) for _ in range(6)]
        del latents, noise
    decoded = []
    for scale in range(12):
        decoded.append(mem(1024 + 256 * scale))
    return unet, decoded


@scene("capacity", gpu="24GiB", also=("leak",), why="all are still running; only the program knows that they end")
@in_file(APP + "serve.py")
def many_requests_at_once():
    """Forty requests are admitted at the same time, each with its cache; all are still running."""
    weights = [mem(500) for _ in range(28)]
    running = [DynamicCache(24) for _ in range(40)]
    for cache in running:
        generate(cache, 24, 1, 4000, 4, 4 * 1024)
    return weights


@in_file(APP + "rnn.py")
class Cell(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.x2h, self.h2h = torch.nn.Linear(dim, dim), torch.nn.Linear(dim, dim)

    def forward(self, x, h):
        return torch.tanh(self.x2h(x) + self.h2h(h))


@in_file(APP + "rnn.py")
class Recurrent(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = torch.nn.Linear(dim, dim)
        self.cell = Cell(dim)

    def forward(self, x):
        x = self.embed(x)
        h, outputs = torch.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
            outputs.append(h * 0.5)
        return torch.stack(outputs)


@scene("capacity", gpu="16GiB")
@in_file(APP + "rnn.py")
def unrolled_recurrent_net():
    """One sequence of 3,000 steps is unrolled for training: every step's activations must stay."""
    net = Recurrent(2048).cuda()
    net(torch.empty(256, 3000, 2048, dtype=torch.float32, device="cuda")).sum().backward()


@scene("capacity", gpu="24GiB")
@in_file(APP + "train.py")
def very_deep_first_forward():
    """A first forward pass through 300 layers."""
    model = build(300, 512)
    return model(tokens(32, 1024))


@scene("capacity", gpu="24GiB", history={"max_entries": 2500})
@in_file(APP + "serve.py")
def long_prompt_beside_lru():
    """A service with an LRU cache at its limit; one prompt is too long; a short record."""
    weights, cache = [mem(300) for _ in range(50)], {}
    for request in range(1500):
        a, b = mem(60), mem(30)
        del a, b
        cache[request] = mem(20)
        if len(cache) > 200:
            del cache[request - 200]
    return weights, mem(6000)


@scene("fragmentation", gpu="24GiB", also=("capacity",), why="5 GiB of holes that ever larger requests left")
@in_file(APP + "train.py")
def curriculum():
    """Sequences grow from step to step; every step frees all it took; the last one is too long."""
    model = build(12, 1024)
    train(model, sgd(model), [(16, 64 * i) for i in range(2, 60)])


@scene("fragmentation", gpu="24GiB", also=("capacity",), history={"max_entries": 6000}, why="the same")
def curriculum_ring():
    """The same with a short record."""
    model = build(12, 1024)
    train(model, sgd(model), [(16, 64 * i) for i in range(2, 60)])


@scene("capacity", gpu="24GiB", history={"enabled": "state"}, also=("unknown",),
       why="without a history only the message tells that anything failed")
def first_forward_state_only():
    """The first forward pass, with the state but no history."""
    model = build(60, 1024)
    train(model, sgd(model), [(64, 1024)])


@scene("capacity", gpu="24GiB", also=("leak",), why="sequences in flight; only the program knows that they end")
def engine_ramp_up():
    """An engine with pages on demand, ten steps of decoding for each new sequence."""
    weights = [mem(400) for _ in range(36)]
    manager = BlockManager()
    for sequence in range(900):
        manager.allocate(sequence)
        for _ in range(3):
            execute_model()
    return weights


LIB = "/opt/venv/lib/python3.11/site-packages/vllm/"


@in_file(LIB + "core/block_manager.py")
class BlockManager:
    def __init__(self):
        self.kv_cache = {}

    def allocate(self, sequence):
        self.kv_cache[sequence] = [mem(4) for _ in range(4)]


@in_file(LIB + "v1/worker/gpu_model_runner.py")
def execute_model():
    hidden = mem(12)
    logits = mem(30)
    return hidden, logits


@scene("capacity", gpu="24GiB", history={"stacks": "all"})
def first_forward_native_stacks():
    """The first forward pass with native frames in the stacks."""
    model = build(60, 1024)
    train(model, sgd(model), [(64, 1024)])


@scene("capacity", gpu="24GiB")
@in_file(APP + "limits.py")
def request_beyond_the_cap():
    """One request is larger than the cap, though not than the card."""
    torch.cuda.set_per_process_memory_fraction(0.25)
    weights = [mem(200) for _ in range(10)]
    return weights, mem(9000)


@scene("capacity", gpu="24GiB", conf="per_process_memory_fraction:0.99")
@in_file(APP + "limits.py")
def cap_is_not_the_limit():
    """A cap of 99 % is set, but the card itself is what runs out."""
    weights = [mem(500) for _ in range(42)]
    return weights, mem(3200)


@scene("capacity", gpu="16GiB")
@in_file(APP + "load.py")
def state_dict_on_device_too():
    """A checkpoint is loaded to the card, and then copied into a model that is there as well."""
    checkpoint = {i: mem(60) for i in range(150)}
    model = {}
    for name, tensor in checkpoint.items():
        model[name] = tensor.clone()
    return model


@scene("capacity", gpu="24GiB")
@in_file(APP + "evaluate.py")
def evaluation_with_gradients():
    """After ten steps of training a long evaluation batch runs without no_grad()."""
    model = build(32, 1024)
    train(model, sgd(model), [(8, 512)] * 10)
    return model(tokens(70, 1024))


@scene("capacity", gpu="24GiB")
@in_file(APP + "serve.py")
def peak_beside_a_small_leak():
    """A leak of 200 MiB is there, but what fails is one request of 7 GiB on a full card."""
    weights, left = [mem(500) for _ in range(38)], []
    for i in range(600):
        a, b = mem(60), mem(20)
        del a, b
        if i % 3 == 0:
            left.append(mem(1))
    return weights, mem(7000)


@scene("capacity", gpu="24GiB", history={"max_entries": 12})
@in_file(APP + "serve.py")
def twelve_events():
    """Only twelve events are known."""
    weights = [mem(500) for _ in range(46)]
    return weights, mem(2000)


@scene("capacity", gpu="24GiB", conf="garbage_collection_threshold:0.8")
@in_file(APP + "serve.py")
def long_prompt_with_collection():
    """garbage_collection_threshold is set; a long prompt is simply too long."""
    weights = [mem(500) for _ in range(36)]
    for i in range(300):
        a, b = mem(100 + i % 31), mem(70)
        del a, b
    return weights, mem(7000)


@scene("capacity", gpu="24GiB")
@in_file(APP + "engine.py")
def engine_without_room_for_graphs():
    """Cache and weights take nearly all; capturing the third graph fails."""
    from scenes.fragmentation import capture
    weights, cache = [mem(300) for _ in range(40)], [mem(500) for _ in range(20)]
    graphs = [capture(400)]
    for size in (600, 900, 1200):
        graphs.append(capture(size, graphs[0][0].pool()))
    return weights, cache, graphs


@scene("capacity", gpu="24GiB")
@in_file(APP + "train.py")
def checkpointed_first_backward():
    """Activation checkpointing: the backward pass computes the layers again and runs out."""
    from torch.utils.checkpoint import checkpoint
    model = build(40, 1024)
    x = model.embed(tokens(250, 1024))
    for layer in model.layers:
        x = checkpoint(layer, x, use_reentrant=False)
    loss = x.float().mean()
    loss.backward()
