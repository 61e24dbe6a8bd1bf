#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots written in strange but valid ways must read as Python reads them.

usage: test_odd_pickles.py SNAPSHOT_FACTS FILE ROUNDS

An encoder with a random generator writes the same objects again and again: any opcode that fits a value,
lists and dicts in batches of random length or item by item, keys set twice, the memo under random keys,
overwritten and reused, values duplicated and dropped, marks set for nothing, shared objects or copies.
Each result is first read by Python's pickle (the judge), then by the library. Prints TAP.
"""
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_snapshots import expected  # noqa: E402


class OddEncoder:
    def __init__(self, rng):
        self.rng = rng
        self.out = io.BytesIO()
        self.memo = {}      # id or text -> key
        self.keys = {}      # key -> id or text
        self.noise = rng.choice([0, 0, 0.02, 0.1])
        self.share = rng.choice([0.3, 0.9, 1.0])
        self.keep = []      # objects stay alive, so that ids stay theirs

    def w(self, data):
        self.out.write(data)

    def chance(self, p):
        return self.rng.random() < p

    def put(self, name):
        """Memo the top of the stack, sometimes over an old entry."""
        r = self.rng.random()
        if r < 0.6:
            key = len(self.keys)
            if key in self.keys:
                key = max(self.keys) + 1
                self.w(b"r" + struct.pack("<I", key))
            else:
                self.w(b"\x94")
        else:
            key = self.rng.choice([self.rng.randrange(300), self.rng.randrange(5000), 1 << 20])
            self.w(b"q" + bytes([key]) if key < 256 and r < 0.8 else
                   b"r" + struct.pack("<I", key) if r < 0.9 else b"p%d\n" % key)
        old = self.keys.get(key)
        if old is not None:
            self.memo.pop(old, None)
        self.keys[key] = name
        self.memo[name] = key

    def get(self, key):
        if key < 256 and self.chance(0.9):
            self.w(b"h" + bytes([key]))
        else:
            self.w(b"j" + struct.pack("<I", key) if self.chance(0.8) else b"g%d\n" % key)

    def make_noise(self):
        while self.chance(self.noise):
            self.w(self.rng.choice([b"N0", b"K\x052\x30\x30", b"(1", b"(K\x01K\x021", b"]0", b"}0", b")0",
                                    b"\x95" + struct.pack("<Q", 0), b"(K\x07t0", b"G?\xf0" + b"\0" * 6 + b"0"]))

    def integer(self, v):
        raw = v.to_bytes((v.bit_length() >> 3) + 1, "little", signed=True)
        choices = [b"I%d\n" % v, b"L%dL\n" % v, b"\x8a" + bytes([len(raw)]) + raw,
                   b"\x8b" + struct.pack("<i", len(raw)) + raw]
        wide = raw + (b"\xff" if v < 0 else b"\0") * self.rng.randrange(3)
        choices.append(b"\x8a" + bytes([len(wide)]) + wide)
        if 0 <= v < 256:
            choices += [b"K" + bytes([v])] * 3
        if 0 <= v < 65536:
            choices += [b"M" + struct.pack("<H", v)] * 3
        if -(1 << 31) <= v < 1 << 31:
            choices += [b"J" + struct.pack("<i", v)] * 3
        self.w(self.rng.choice(choices))

    def text(self, s):
        if s in self.memo and self.chance(0.95):
            return self.get(self.memo[s])
        raw = s.encode()
        choices = [b"X" + struct.pack("<I", len(raw)) + raw, b"\x8d" + struct.pack("<Q", len(raw)) + raw]
        if len(raw) < 256:
            choices += [b"\x8c" + bytes([len(raw)]) + raw] * 4
        if raw.isalnum():
            choices += [b"V" + raw + b"\n", b"S'" + raw + b"'\n", b"U" + bytes([len(raw) % 256]) + raw]
        self.w(self.rng.choice(choices))
        if self.chance(0.95):
            self.put(s)

    def value(self, v):
        self.make_noise()
        if v is None:
            self.w(b"N")
        elif isinstance(v, bool):
            self.w(self.rng.choice([b"\x88" if v else b"\x89", b"I01\n" if v else b"I00\n"]))
        elif isinstance(v, int):
            self.integer(v)
        elif isinstance(v, float):
            self.w(self.rng.choice([b"G" + struct.pack(">d", v), b"F%r\n" % v]))
        elif isinstance(v, str):
            self.text(v)
        elif id(v) in self.memo and self.chance(self.share):
            self.get(self.memo[id(v)])
        else:
            self.keep.append(v)
            {tuple: self.tuple, list: self.list, dict: self.dict}[type(v)](v)

    def tuple(self, v):
        mark = len(v) == 0 or len(v) > 3 or self.chance(0.3)
        if mark:
            self.w(b"(")
        for item in v:
            self.value(item)
        self.w(b"t" if mark else bytes([0x84 + len(v)]))
        if self.chance(0.5):
            self.put(id(v))

    def batches(self, items, one, many, emit):
        i = 0
        while i < len(items):
            n = self.rng.choice([1, 2, 3, 10, 1000, len(items)])
            part = items[i:i + n]
            i += n
            if len(part) == 1 and self.chance(0.7):
                emit(part[0])
                self.w(one)
            else:
                self.w(b"(")
                for item in part:
                    emit(item)
                self.w(many)
                self.make_noise()

    def list(self, v):
        if self.chance(0.1):
            self.w(b"(")
            for item in v:
                self.value(item)
            self.w(b"l")
            return self.put(id(v)) if self.chance(0.9) else None
        self.w(self.rng.choice([b"]", b"(l"]))
        if self.chance(0.9):
            self.put(id(v))
        self.batches(v, b"a", b"e", self.value)

    def dict(self, v):
        items = list(v.items())
        if items and self.chance(0.05):     # an old value first, then the real one
            key = self.rng.choice(items)[0]
            items.insert(0, (key, v[key]))
        emit = lambda pair: (self.value(pair[0]), self.value(pair[1]))
        if self.chance(0.1):
            self.w(b"(")
            for pair in items:
                emit(pair)
            self.w(b"d")
            return self.put(id(v)) if self.chance(0.9) else None
        self.w(self.rng.choice([b"}", b"}", b"}", b"(d"]))
        if self.chance(0.9):
            self.put(id(v))
        if self.chance(0.85):
            self.w(b"(")
            for pair in items:
                emit(pair)
            self.w(b"u")
        else:
            self.batches(items, b"s", b"u", emit)


def encode(data, seed):
    e = OddEncoder(random.Random(seed))
    e.w(b"\x80" + bytes([e.rng.choice([2, 3, 4, 5])]))
    e.value(data)
    e.w(b"." + b"\0" * e.rng.choice([0, 0, 2048]))
    return e.out.getvalue()


def main():
    facts_program, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(path, "rb") as f:
        data = pickle.load(f)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for seed in range(rounds):
            raw = encode(data, seed)
            assert pickle.loads(raw) == data, "the encoder is wrong, seed %d" % seed
            names.append(os.path.join(folder, "%d.pickle" % seed))
            with open(names[-1], "wb") as f:
                f.write(raw)
        run = subprocess.run([facts_program] + names, capture_output=True, text=True)
        lines = run.stdout.splitlines() + ["{}"] * rounds
        want = expected(data)
        for seed in range(rounds):
            got = json.loads(lines[seed])
            different = {k: (want[k], got.get(k)) for k in want if want[k] != got.get(k)}
            failed += bool(different)
            print("%s %d - odd pickle of seed %d" % ("not ok" if different else "ok", seed + 1, seed))
            if different:
                print("# %s %s" % (json.dumps(different)[:800], json.dumps(got)[:300]))
                if os.environ.get("KEEP"):
                    os.rename(names[seed], os.path.join(os.environ["KEEP"], "%d.pickle" % seed))
    print("# %s" % run.stderr.replace("\n", " ")[:500] if run.stderr else "# done")
    print("1..%d" % rounds)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
