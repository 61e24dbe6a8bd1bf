#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a big memory snapshot in the layout of torch 2.14, as torch.cuda.memory._dump_snapshot does.

usage: gen_snapshot.py [--events N] [--frames N] [--devices N] [--seed N] OUT

The bytes are those of Python's pickler at protocol 4: keys and repeated strings from the memo, a new
dict, a new pool tuple and a new "N/A" for each entry, frames shared, entries in batches of 1000. They
are written directly, so that 40 million entries (5 GB) need no memory (pickle.dumps() of what
pickle.load() makes of the file has the same length but for a byte or two). The default, 1.5 million entries with stacks of
about 11 frames, is a file of 190 MB (127 bytes for each entry, as in real captures).

The workload is random: requests of 150 call sites, each in a slot of its own segment, with random
lifetimes. Every entry and block is consistent with the others.
"""
import argparse
import random
import struct
import sys

MIB = 1 << 20
SLOTS = 2000
SLOT_BYTES = 20 * MIB


class Writer:
    """The opcodes of protocol 4, with the memo's numbering."""

    def __init__(self, out):
        self.out = out
        self.memo = 0
        self.strings = {}
        self.buffer = [b"\x80\x04"]
        self.size = 2

    def put(self, data):
        self.buffer.append(data)
        self.size += len(data)
        if self.size > 64 * 1024:
            self.flush()

    def flush(self):
        """One frame: its opcode, its length, its bytes."""
        data = b"".join(self.buffer)
        head = b""
        if data.startswith(b"\x80\x04"):
            head, data = data[:2], data[2:]
        self.out.write(head + (b"\x95" + struct.pack("<Q", len(data)) if data else b"") + data)
        self.buffer, self.size = [], 0

    def memoize(self):
        self.memo += 1
        return self.memo - 1

    @staticmethod
    def get(index):
        return bytes((0x68, index)) if index < 256 else b"j" + struct.pack("<I", index)

    def string(self, text):
        """A string object that the whole program shares."""
        if text in self.strings:
            return self.get(self.strings[text])
        self.strings[text] = self.memoize()
        return self.fresh(text)

    @staticmethod
    def fresh(text):
        raw = text.encode()
        assert len(raw) < 256
        return bytes((0x8C, len(raw))) + raw + b"\x94"

    @staticmethod
    def integer(value):
        if 0 <= value < 256:
            return bytes((0x4B, value))
        if 0 <= value < 65536:
            return b"M" + struct.pack("<H", value)
        if -(1 << 31) <= value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        raw = value.to_bytes((value.bit_length() >> 3) + 1, "little", signed=True)
        return bytes((0x8A, len(raw))) + raw


class Stacks:
    """Call sites with their frames; frame dicts are written once and shared."""

    def __init__(self, rng, sites, depth):
        names = ["forward", "_call_impl", "step", "backward", "linear", "matmul", "softmax", "train",
                 "_wrapped_call_impl", "run", "main", "<module>", "attention", "mlp", "norm"]
        self.frames = [(rng.choice(names), "/opt/venv/lib/python3.11/site-packages/pkg%d/module_%d.py"
                        % (i % 17, i), 10 + 7 * i) for i in range(300)]
        self.sites = [[rng.randrange(len(self.frames)) for _ in range(max(1, depth + rng.randrange(-6, 7)))]
                      for _ in range(sites)]
        self.at = {}
        self.joined = {}

    def dump(self, w, site):
        """The items of a new list for this site."""
        if site in self.joined:
            return self.joined[site]
        parts, complete = [], all(f in self.at for f in self.sites[site])
        for f in self.sites[site]:
            if f in self.at:
                parts.append(w.get(self.at[f]))
                continue
            self.at[f] = w.memoize()
            name, file, line = self.frames[f]
            parts.append(b"}\x94(" + w.string("name") + w.string(name) + w.string("filename") +
                         w.string(file) + w.string("line") + w.integer(line) + b"u")
        data = b"(" + b"".join(parts) + b"e" if len(parts) > 1 else parts[0] + b"a"
        if complete:
            self.joined[site] = data
        return data


class Workload:
    """Random allocations in slots; yields (action, addr, size, time, site). Equal seeds do equal things."""

    def __init__(self, seed, sites, base):
        self.rng, self.sites, self.base = random.Random(seed), sites, base
        self.free, self.live = list(range(SLOTS)), []
        self.reserved = set()

    def addr(self, slot):
        return self.base + slot * SLOT_BYTES

    def entries(self, n):
        rng, time, done = self.rng, 1795964443000000, 0
        while done < n:
            time += rng.randrange(1, 40)
            if self.free and (len(self.live) < 20 or rng.random() < 0.5):
                slot = self.free.pop(rng.randrange(len(self.free)))
                site, size = rng.randrange(self.sites), rng.randrange(MIB, SLOT_BYTES)
                if slot not in self.reserved:
                    self.reserved.add(slot)
                    yield "segment_alloc", self.addr(slot), SLOT_BYTES, time, site
                    done += 1
                self.live.append((slot, size, site))
                yield "alloc", self.addr(slot), size, time, site
                done += 1
            else:
                slot, size, _ = self.live.pop(rng.randrange(len(self.live)))
                site = rng.randrange(self.sites)
                self.free.append(slot)
                yield "free_requested", self.addr(slot), size, time, site
                yield "free_completed", self.addr(slot), size, time, site
                done += 2

    def blocks(self):
        """(slot, [(address, size, requested, state, site)]) of each segment."""
        live = {slot: (size, site) for slot, size, site in self.live}
        for slot in sorted(self.reserved):
            at = self.addr(slot)
            if slot not in live:
                yield slot, [(at, SLOT_BYTES, 0, "inactive", None)]
                continue
            size, site = live[slot]
            rounded = (size + 511) // 512 * 512
            parts = [(at, rounded, size, "active_allocated", site)]
            if SLOT_BYTES > rounded:
                parts.append((at + rounded, SLOT_BYTES - rounded, 0, "inactive", None))
            yield slot, parts


def dump_entry(w, stacks, entry, last):
    """One trace entry; `last` is the memo index of the list that free_completed shares."""
    action, addr, size, time, site = entry
    me = w.memoize()
    head = (b"}\x94(" + w.string("action") + w.string(action) + w.string("addr") + w.integer(addr) +
            w.string("size") + w.integer(size) + w.string("stream") + b"K\x00" +
            w.string("time_us") + w.integer(time) + w.string("compile_context") + w.fresh("N/A"))
    w.memoize()
    head += w.string("user_metadata") + w.string("") + w.string("pool_id") + b"K\x00K\x00\x86\x94"
    w.memoize()
    head += w.string("frames")
    if action == "free_completed":
        w.put(head + w.get(last) + b"u")
        return last
    last = w.memoize()
    w.put(head + b"]\x94" + stacks.dump(w, site) + b"u")
    return last


def dump_list(w, items, dump):
    """A list whose items `dump` writes, in batches of 1000 as the pickler does."""
    w.memoize()
    w.put(b"]\x94")
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == 1000:
            dump_batch(w, batch, dump)
            batch = []
    dump_batch(w, batch, dump)


def dump_batch(w, batch, dump):
    if not batch:
        return
    if len(batch) > 1:
        w.put(b"(")
    for item in batch:
        dump(item)
    w.put(b"e" if len(batch) > 1 else b"a")


def dump_segment(w, stacks, device, load, slot, parts):
    live = sum(p[1] for p in parts if p[3] != "inactive")
    requested = sum(p[2] for p in parts if p[3] != "inactive")
    w.memoize()
    w.put(b"}\x94(")
    for key, value in (("device", device), ("address", load.addr(slot)), ("total_size", SLOT_BYTES),
                       ("allocated_size", live), ("active_size", live),
                       ("requested_size", requested), ("stream", 0)):
        w.put(w.string(key) + w.integer(value))
    w.put(w.string("segment_type") + w.string("large") + w.string("segment_pool_id") +
          b"K\x00K\x00\x86\x94")
    w.memoize()
    w.put(w.string("is_expandable") + b"\x89" + w.string("frames"))
    w.memoize()
    w.put(b"]\x94" + w.string("blocks"))

    def block(part):
        w.memoize()
        w.put(b"}\x94(" + w.string("address") + w.integer(part[0]) + w.string("size") +
              w.integer(part[1]) + w.string("requested_size") + w.integer(part[2]) +
              w.string("state") + w.string(part[3]) + w.string("frames"))
        w.memoize()
        w.put(b"]\x94")
        if part[4] is not None:
            w.put(stacks.dump(w, part[4]))
        w.put(b"u")

    dump_list(w, parts, block)
    w.put(b"u")


def dump(out, args):
    """The whole snapshot. The segments come first, as in real ones, so the workload is run twice."""
    w = Writer(out)
    stacks = Stacks(random.Random(args.seed), 150, args.frames)
    new_loads = lambda: [Workload(args.seed + d, 150, 0x7F0000000000 + d * (1 << 40))
                         for d in range(args.devices)]
    loads = new_loads()
    for load in loads:
        for _ in load.entries(args.events // args.devices):
            pass
    w.memoize()
    w.put(b"}\x94(" + w.string("segments"))
    segments = [(d, load, slot, parts) for d, load in enumerate(loads) for slot, parts in load.blocks()]
    dump_list(w, segments, lambda s: dump_segment(w, stacks, *s))
    w.put(w.string("device_traces"))

    def trace(load):
        last = 0

        def entry(item):
            nonlocal last
            last = dump_entry(w, stacks, item, last)

        dump_list(w, load.entries(args.events // args.devices), entry)

    dump_list(w, new_loads(), trace)
    w.put(w.string("allocator_settings"))
    w.memoize()
    w.put(b"}\x94(" + w.string("PYTORCH_CUDA_ALLOC_CONF") + w.string("") +
          w.string("max_split_size") + w.integer(-1) + w.string("expandable_segments") + b"\x89u")
    for key in ("external_annotations", "host_segments", "host_traces"):
        w.put(w.string(key))
        w.memoize()
        w.put(b"]\x94")
    w.put(b"u.")
    w.flush()


def main():
    parser = argparse.ArgumentParser(description="Write a big memory snapshot.")
    parser.add_argument("--events", type=int, default=1500000, help="trace entries (1,500,000)")
    parser.add_argument("--frames", type=int, default=11, help="frames of a stack, on average (11)")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("out")
    args = parser.parse_args()
    with open(args.out, "wb") as out:
        dump(out, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
