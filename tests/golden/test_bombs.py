#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files made to be expensive: each must be answered in little time and little memory.

usage: test_bombs.py SNAPSHOT_FACTS

Each is a few MB of pickle or JSON in which shared lists, joins, appends, pairs or nesting would cost the
square of the size, or memory without bound, if they were followed naively. The bounds are generous: 10 s
of processor time, and 64 MiB and four times the file (the reader's rule) and 96 MiB beyond. Prints TAP.
"""
import os
import struct
import subprocess
import sys
import tempfile
import zlib

FRAME = b"}(\x8c\x04nameK\x01\x8c\x04lineK\x01u"
EVENT = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x01\x8c\x04addrK\x01u"
BLOCK = b"}(\x8c\x04sizeK\x01\x8c\x05state\x8c\x08inactiveu"


def i32(v):
    return b"J" + struct.pack("<i", v)


def get(key):
    return b"j" + struct.pack("<I", key)


def put(key):
    return b"r" + struct.pack("<I", key)


def words(*texts):
    """Put texts into the memo, in order, from key 1 on."""
    return b"".join(b"\x8c" + bytes([len(t)]) + t + put(k) + b"0" for k, t in enumerate(texts, 1))


def shared_by_segments(items):
    """One list of blocks, or of what is none, that 100,000 segments name."""
    return (b"\x80\x04](" + items + b"e" + put(0) + b"0" + words(b"total_size", b"blocks", b"address") + b"](" +
            b"".join(b"}(" + get(1) + b"K\xff" + get(3) + i32(i * 1000) + get(2) + get(0) + b"u"
                     for i in range(100000)) + b"e.")


def scattered():
    blocks = b"".join(BLOCK + put(10 + i) + b"0" for i in range(1000))
    order = b"".join(get(10 + 999 - i % 1000) for i in range(100000))
    body = shared_by_segments(order)
    return body[:2] + blocks + body[2:]


def nearly_frames():
    return (b"\x80\x04" + FRAME + put(9) + b"0](" + get(9) * 200000 + b"Ne" + put(0) + b"0" +
            words(b"action", b"alloc", b"frames") + b"](" +
            (b"}(" + get(1) + get(2) + get(3) + get(0) + b"u") * 100000 + b"e.")


def joins():
    return (b"\x80\x04" + FRAME + put(9) + b"0](" + get(9) * 1000 + b"e" + put(0) + b"0" +
            words(b"action", b"alloc", b"frames", b"cpp_frames", b"name", b"line") + b"](" +
            b"".join(b"}(" + get(1) + get(2) + get(4) + get(0) + get(3) + b"](}(" + get(5) + i32(i) +
                     get(6) + i32(i) + b"ueu" for i in range(50000)) + b"e.")


def laughs():
    out = b"\x80\x04]\x94"
    for i in range(200):
        out += b"](h" + bytes([i]) + b"h" + bytes([i]) + b"e\x94"
    return out + b"."


def compressed(head, filler, megabytes):
    """gzip of head and so much filler, made in pieces: a child's peak memory counts that of its parent."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(head)] + [packer.compress(filler * 1000000) for _ in range(megabytes)]
    return b"".join(parts) + packer.flush()


def bombs():
    yield "numbers instead of blocks, shared by many segments", shared_by_segments(b"K\x01" * 300000)
    yield "blocks shared by many segments", shared_by_segments(BLOCK * 50000)
    yield "scattered blocks shared by many segments", scattered()
    yield "a list that is almost one of frames, used by many entries", nearly_frames()
    yield "frames appended one by one", b"\x80\x04" + FRAME + b"\x940]" + b"h\x00a" * 1000000 + b"."
    yield "a long stack joined with many short ones", joins()
    yield "many different pairs", b"\x80\x04](" + b"".join(i32(i) + b"K\x01\x86" for i in range(400000)) + b"e."
    yield "one trace named for many devices", (b"\x80\x04](" + EVENT * 30000 + b"e" + put(0) + b"0}(\x8c\rdevice_traces](" +
                                               get(0) * 4000 + b"eu.")
    yield "lists of lists of lists, each twice", laughs()
    yield "empty dicts", b"\x80\x04]" + b"}" * 5000000
    yield "the same value again and again", b"\x80\x04N" + b"2" * 5000000
    yield "memo entries far apart", b"\x80\x04N" + b"".join(put(i * 4099 % (1 << 32)) for i in range(800000))
    yield "marks", b"\x80\x04" + b"(" * 5000000
    yield "different strings", b"\x80\x04" + b"".join(b"\x8c\x06%06d0" % i for i in range(600000)) + b"]."
    yield "nested JSON", b"[" * 3000000
    yield "JSON with many keys", b"{" + b",".join(b'"k%d":1' % i for i in range(400000)) + b"}"
    yield "a compressed pickle of empty dicts", compressed(b"\x80\x04]", b"}", 50)
    yield "compressed nothing", compressed(b"\x80\x04].", b"\0", 200)
    yield "a web page without end", b"<html>" + b"base64" * 1000000


def main():
    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bomb")
        for count, (name, raw) in enumerate(bombs(), 1):
            with open(path, "wb") as f:
                f.write(raw)
            process = subprocess.Popen([sys.argv[1], path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            room = (64 + 96) * 1024 * 1024 + 4 * len(raw)
            ok = (process.returncode == 0 and usage.ru_utime + usage.ru_stime < 10 and
                  usage.ru_maxrss * 1024 < room)
            failed += not ok
            print("%s %d - %s" % ("ok" if ok else "not ok", count, name))
            if not ok:
                print("# rc %d, %.1f s, %d MiB of %d" % (process.returncode, usage.ru_utime + usage.ru_stime,
                                                        usage.ru_maxrss // 1024, room >> 20))
    print("1..%d" % count)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
