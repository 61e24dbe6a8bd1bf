# SPDX-License-Identifier: Apache-2.0
"""Scenes written after the rules were settled, to see how the rules do on what they were not made for."""

import random

import torch

from scenarios import GIB, driver_alloc, in_file, mem, scene
from scenes.models import APP, DynamicCache, build, generate, tokens


@scene("leak", gpu="48GiB")
@in_file("/home/user/bot/worker.py")
def images_kept_in_history():
    """A chat bot keeps every user's images and embeddings in a history object."""
    model, history = build(16, 1280), {}
    dice = random.Random(1)

    def answer(user):
        image = mem(dice.randrange(3, 40))
        with torch.no_grad():
            features = model(tokens(1, dice.randrange(32, 400)))
        history.setdefault(user, []).append((image, features.mean()))
        return features.argmax(-1)

    for _ in range(6000):
        answer(dice.randrange(50))


@scene("leak", gpu="12GiB", history={"max_entries": 20000})
@in_file("/home/user/gan/train.py")
def gan_keeps_fakes():
    """A GAN's replay buffer of generated images is meant to be bounded, but is not."""
    net, critic, buffer = build(4, 768), build(4, 768), []
    for step in range(3000):
        x = tokens(8, 128)
        fake = net(x)
        buffer.append(fake.detach())
        loss = critic(x).float().mean()
        loss.backward()
        critic.zero_grad(set_to_none=True)


@scene("capacity", gpu="32GiB")
@in_file("/home/user/gan/train.py")
def two_networks_first_step():
    """Two networks are trained together; the second one's forward pass does not fit."""
    net, critic = build(24, 1536), build(24, 1536)
    x = tokens(40, 640)
    fake = net(x).float().mean()
    real = critic(x).float().mean()
    (fake - real).backward()


@scene("capacity", gpu="24GiB", history={"max_entries": 5000})
@in_file("/home/user/finetune.py")
def variable_lengths_one_too_long():
    """Fine-tuning with batches of random length; one in a thousand is far longer."""
    model, dice = build(16, 1024), random.Random(2)
    for step in range(40):
        loss = model(tokens(6, dice.randrange(64, 512))).float().mean()
        loss.backward()
        model.zero_grad(set_to_none=True)
    model(tokens(6, 12000)).float().mean().backward()


@scene("healthy", gpu="24GiB", history={"max_entries": 5000})
@in_file("/home/user/finetune.py")
def variable_lengths():
    """The same without the long one."""
    model, dice = build(16, 1024), random.Random(3)
    for step in range(60):
        loss = model(tokens(6, dice.randrange(64, 512))).float().mean()
        loss.backward()
        model.zero_grad(set_to_none=True)
    return model


@scene("healthy", gpu="40GiB")
@in_file("/home/user/rl/agent.py")
def replay_buffer_full():
    """A reinforcement learner's buffer of 300 episodes is full and overwritten in random order."""
    policy, buffer, dice = build(6, 768), [], random.Random(4)
    for episode in range(1500):
        with torch.no_grad():
            policy(tokens(1, 64))
        item = mem(16)
        if len(buffer) < 300:
            buffer.append(item)
        else:
            buffer[dice.randrange(300)] = item
    return policy, buffer


@scene("fragmentation", gpu="40GiB", also=("capacity",), why="many small keepers between large, changing work")
@in_file("/home/user/detect/serve.py")
def detections_between_images():
    """Images of ever new sizes; the detections of the last 400 images stay."""
    weights, recent, dice = [mem(600) for _ in range(20)], [], random.Random(5)
    for i in range(3000):
        image = mem(dice.randrange(80, 900))
        features = [mem(dice.randrange(20, 300)) for _ in range(3)]
        recent.append(mem(dice.choice((2, 3, 5, 8))))
        del image, features
        if len(recent) > 400:
            recent.pop(dice.randrange(100))
    return weights, recent, mem(26000)


@scene("external", gpu="48GiB", external="30GiB", history={"max_entries": 8000})
@in_file("/home/user/finetune.py")
def training_beside_a_server():
    """A fine-tuning run shares the card with somebody's inference server."""
    model = build(24, 1536)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(50):
        loss = model(tokens(6, 512 + 64 * (step % 5))).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 30:
            mem(14000)


@scene("external", gpu="16GiB")
@in_file("/home/user/render/main.py")
def renderer_in_process():
    """A renderer in the same process took 9 GiB before the network starts."""
    driver_alloc(9 * GIB)
    net = build(12, 1024)
    with torch.no_grad():
        for _ in range(50):
            net(tokens(4, 256))
        net(tokens(200, 2048))


@scene("leak", gpu="16GiB", history={"max_entries": 10000, "context": "alloc"})
@in_file("/home/user/tts/serve.py")
def audio_sessions():
    """Streams of audio: chunks of a session are kept after the session ends, one session in four."""
    weights, zombies, open_sessions, dice = [mem(300) for _ in range(20)], [], {}, random.Random(6)
    for tick in range(60000):
        session = open_sessions.setdefault(dice.randrange(12), [])
        session.append(mem(1.5))
        mem(6)
        mem(11)
        if len(session) > 20:
            key = next(k for k, v in open_sessions.items() if v is session)
            done = open_sessions.pop(key)
            if tick % 2 == 0:
                zombies.append(done)
    return weights


@scene("capacity", gpu="80GiB")
@in_file("/home/user/llm/load.py")
def shards_to_device():
    """Shards of a checkpoint are read one by one into a model's parameters."""
    from torch import nn
    layers = nn.ModuleList()
    for shard in range(30):
        for _ in range(12):
            layer = nn.utils.skip_init(nn.Linear, 8192, 8192, bias=False)  # values do not matter
            layers.append(layer.to("cuda"))
    return layers


@scene("capacity", gpu="24GiB", also=("fragmentation",), why="sampling with a growing cache also leaves holes")
@in_file("/home/user/llm/beam.py")
def beams_multiply():
    """Beam search with more beams than fit: each reordering copies the cache."""
    weights = [mem(500) for _ in range(20)]
    cache = [(mem(20), mem(20)) for _ in range(32)]
    for beams in range(2, 40):
        cache = [(torch.cat([k, k[: k.numel() // beams]]), torch.cat([v, v[: v.numel() // beams]]))
                 for k, v in cache]
    return weights


@scene("healthy", gpu="24GiB", history={"max_entries": 3000})
@in_file("/home/user/llm/chat.py")
def chats_of_all_lengths():
    """Requests with growing caches come and go."""
    weights, dice = [mem(500) for _ in range(24)], random.Random(7)
    for _ in range(60):
        generate(DynamicCache(6), 6, 1, dice.randrange(50, 900), dice.randrange(5, 40), 2048)
    return weights


@scene("leak", gpu="80GiB", history={"max_entries": 6000})
@in_file("/home/user/llm/serve.py")
def aborted_requests_keep_cache():
    """A request that is aborted (one in six) keeps its key/value cache."""
    weights, aborted, dice = [mem(900) for _ in range(30)], [], random.Random(8)
    for request in range(4000):
        cache = generate(DynamicCache(6), 6, 1, dice.randrange(50, 900), 2, 8192)
        if request % 6 == 0:
            aborted.append(cache)
    return weights


@scene("fragmentation", gpu="24GiB", history={"max_entries": 3000})
@in_file("/home/user/graphs/engine.py")
def graph_pools_of_many_models():
    """Five models, each with graphs for four batch sizes in pools of their own."""
    from scenes.fragmentation import capture
    weights = [mem(700) for _ in range(10)]
    graphs = [capture(150 + 60 * size + 10 * model) for model in range(5) for size in range(4)]
    for i in range(300):
        mem(100 + i % 13)
    return weights, graphs, mem(10000)


@scene("leak", gpu="16GiB")
@in_file("/home/user/search/batch.py")
def exception_is_kept():
    """A search for the largest batch keeps the last exception to report it, and with it the failed attempt."""
    net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(40)]).cuda()

    def forward(n):
        x = torch.randn(n, 4096, device="cuda")
        return net(x)

    n, kept = 65536, None
    while n > 4096:
        try:
            return forward(n)
        except torch.OutOfMemoryError as error:
            kept = error
            torch.cuda.empty_cache()
        n //= 2
    raise kept


@scene("leak", gpu="16GiB")
@in_file("/home/user/search/halves.py")
def retry_inside_the_handler():
    """A function that fails calls itself for the two halves while it still handles the failure."""
    net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(40)]).cuda()

    def forward(n):
        try:
            x = torch.randn(n, 4096, device="cuda")
            return net(x).sum()
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if n < 128:
                raise
            return forward(n // 2) + forward(n // 2)

    forward(60000)


@scene("leak", gpu="24GiB")
@in_file("/home/user/search/engine.py")
def retry_of_halves_by_a_method():
    """The same by a method that lets go of its input and makes all else from few lines."""
    net = [torch.nn.Linear(4096, 4096, bias=False).cuda() for _ in range(30)]

    def forward(n):
        kept, x = [], torch.empty(n, 4096, device="cuda")
        for layer in net:
            x = layer(x)
            kept.append(x)
        return kept

    def run(n):
        try:
            return forward(n)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if n < 1000:
                raise
            return [run(n // 2), run(n - n // 2)]

    for _ in range(20):
        run(2000)
    run(90000)


@scene("capacity", gpu="8GiB")
@in_file("/home/user/search/batch.py")
def halved_until_the_backward_pass_fails():
    """Failures are handled as they should be; what fits forward does not fit backward."""
    net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(60)]).cuda()
    n, out = 32768, None
    while out is None:
        try:
            out = net(torch.randn(n, 4096, device="cuda"))
        except torch.OutOfMemoryError:
            pass
        n //= 2
    out.sum().backward()


@scene("leak", gpu="24GiB", also=("capacity",), why="a list of losses that is summed at the end of many micro-batches")
@in_file("/home/user/train/accumulate.py")
def losses_are_summed_at_the_end():
    """Each micro-batch's graph lives until its loss is used, and nothing else is freed meanwhile."""
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU())
                                for _ in range(12)]).cuda()
    losses = []
    for _ in range(64):
        x = torch.randn(2048, 4096, device="cuda")
        losses.append(net(x).pow(2).mean())
    torch.stack(losses).sum().backward()


@scene("leak", gpu="8GiB")
@in_file("/home/user/train/metrics.py")
def one_metric_beside_one_temporary():
    """Each round makes one large temporary, and keeps one tensor of 117 KiB."""
    base, log = mem(5 * 1024), []
    for i in range(30000):
        work = mem(8 + (i * 13) % 40)
        log.append(torch.empty(30000, device="cuda"))
        del work
    del base


@scene("fragmentation", gpu="16GiB", also=("capacity",), why="holes of a full pool; the large request is rare")
@in_file("/home/user/serve/pool.py")
def full_pool_evicts_at_random():
    """A pool at its limit replaces entries at random; now and then a large temporary is needed."""
    torch.cuda.set_per_process_memory_fraction(0.9)
    base, pool, dice, size = mem(5 * 1024), [], random.Random(2), 0
    for i in range(3000):
        pool.append(mem(dice.randint(8, 300)))
        size += pool[-1].numel()
        while size > 6 * GIB:
            size -= pool.pop(dice.randrange(len(pool))).numel()
        if i % 50 == 49:
            mem(2200)
    del base


@scene("leak", gpu="24GiB")
@in_file("/home/user/train/epochs.py")
def evaluation_after_training_keeps_losses():
    """Some steps of training are well; the evaluation behind them keeps each loss with its graph."""
    model, history = build(12, 1024), []
    for _ in range(10):
        model(tokens(2, 512)).float().mean().backward()
        model.zero_grad(set_to_none=True)

    def evaluate():
        for step in range(500):
            loss = model(tokens(2, 512)).float().mean()
            history.append({"loss": loss, "step": step})

    evaluate()
