#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same snapshot in every form must read the same.

usage: test_snapshot_forms.py SNAPSHOT_FACTS FILE...

Forms: pickle protocols 0 to 5, Python's own slow pickler, JSON (whole, and the list of segments), gzip, xz,
zstd (where Python or a program can write it), the viewer's HTML page, and wrappings inside wrappings.
Then old layouts, derived from the same data. Prints TAP.
"""
import base64
import copy
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_snapshots import expected  # noqa: E402

count = failures = 0


def result(ok, name, detail=""):
    global count, failures
    count += 1
    failures += not ok
    print("%s %d - %s" % ("ok" if ok else "not ok", count, name))
    if not ok:
        print("# %s" % str(detail)[:2000])


def slow_pickle(data, protocol):
    out = io.BytesIO()
    pickle._Pickler(out, protocol).dump(data)
    return out.getvalue()


def html_page(data):
    """As torch/cuda/_memory_viz.py, _format_viz(): the pickle, NULs behind it, as base64 in a script."""
    raw = pickle.dumps(data)
    raw += b"\x00" * (3 - len(raw) % 3)
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(raw).decode()}])
    return ("<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<img src=\"data:image/png;base64,iVBORw0K\">\n"
            "<script type=\"module\">\nimport {add_local_files} from \"https://example.org/MemoryViz.js\"\n"
            "const local_files = %s\nadd_local_files(local_files, 'Active Memory Timeline')\n</script>\n"
            "</body>\n</html>\n" % files).encode()


def viewer_page(inner):
    return b"<html><script>x = {base64: '" + base64.b64encode(inner) + b"'}</script></html>"


def zstd(data):
    program = shutil.which("zstd")
    if not program:
        return None
    return subprocess.run([program, "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


def forms(data):
    """(name, bytes, words of the container) of every form of a whole snapshot."""
    for protocol in range(6):
        yield "pickle protocol %d" % protocol, pickle.dumps(data, protocol), "pickle protocol"
        yield ("Python's pickler, protocol %d" % protocol, slow_pickle(data, protocol),
               "pickle protocol")
    plain = pickle.dumps(data, 4)
    yield "NULs behind the pickle", plain + b"\x00" * 17, "pickle protocol 4"
    yield "JSON", json.dumps(data).encode(), "JSON"
    yield "indented JSON with a byte order mark", b"\xef\xbb\xbf" + json.dumps(
        data, indent=1, ensure_ascii=False).encode(), "JSON"
    yield "gzip", gzip.compress(plain, 1), "gzip, pickle protocol 4"
    half = len(plain) // 2
    yield "gzip in two members", gzip.compress(plain[:half]) + gzip.compress(plain[half:]), "gzip, pickle"
    yield "xz", lzma.compress(plain, preset=0), "xz, pickle protocol 4"
    yield "gzip of JSON", gzip.compress(json.dumps(data).encode(), 1), "gzip, JSON"
    yield "xz of gzip", lzma.compress(gzip.compress(plain, 1), preset=0), "xz, gzip, pickle"
    yield "the viewer's HTML page", html_page(data), "HTML, pickle protocol 4"
    yield "HTML around gzip", viewer_page(gzip.compress(plain, 1)), "HTML, gzip, pickle"
    packed = zstd(plain)
    if packed is not None:
        yield "zstd", packed, "zstd, pickle protocol 4"
        yield "zstd in two frames", zstd(plain[:half]) + zstd(plain[half:]), "zstd, pickle"


def without(data, *keys):
    """A copy in which no dict below has these keys."""
    if isinstance(data, dict):
        return {k: without(v, *keys) for k, v in data.items() if k not in keys}
    if isinstance(data, list):
        return [without(v, *keys) for v in data]
    return data


def old_history(data):
    """torch 2.0: no addresses or requested sizes of blocks, a history on each instead of frames."""
    data = copy.deepcopy(data)
    for s in data["segments"]:
        for key in ("requested_size", "segment_pool_id", "is_expandable", "frames"):
            s.pop(key, None)
        for b in s["blocks"]:
            frames, addr = b.pop("frames", None), b.pop("address")
            size = b.pop("requested_size", b["size"])
            if b["state"] != "inactive":
                b["history"] = [{"addr": addr, "real_size": size, "frames": frames or []},
                                {"addr": addr, "real_size": 1, "frames": []}]
    return without({"segments": data["segments"], "device_traces": data["device_traces"]},
                   "time_us", "compile_context", "user_metadata", "pool_id")


def layouts(data):
    """(name, data, words of the layout) of older versions."""
    yield "torch 2.0 with history", old_history(data), "dict of torch 2.0"
    yield "torch 2.4", without(data, "compile_context", "user_metadata", "pool_id", "host_segments",
                               "host_traces", "external_annotations"), "dict of torch 2.2"
    yield "list of segments", data["segments"], "list of segments of torch 2.1"
    yield "list of segments with history", old_history(data)["segments"], "list of segments of torch 1.13"
    two = copy.deepcopy(data)
    second = copy.deepcopy(two["segments"])
    for s in second:
        s["device"] = 2
    two["segments"] += second
    two["device_traces"] = [two["device_traces"][0], [], copy.deepcopy(two["device_traces"][0]), []]
    yield "four devices, two of them used", two, "dict"
    backwards = copy.deepcopy(data)
    backwards["segments"].reverse()
    yield "segments in descending order", backwards, "dict"
    unknown = copy.deepcopy(data)
    unknown["novelty"] = {"a": [1, 2, {"b": None}]}
    for e in unknown["device_traces"][0]:
        e["novelty"] = 1.5
    yield "keys of a version to come", unknown, "dict"


def read(facts_program, folder, raw):
    path = os.path.join(folder, "snapshot")
    with open(path, "wb") as f:
        f.write(raw)
    run = subprocess.run([facts_program, path], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr}


def check(facts_program, folder, name, raw, data, key, words):
    want, got = expected(data), read(facts_program, folder, raw)
    different = {k: (want[k], got.get(k)) for k in want if want[k] != got.get(k)}
    if words not in got.get(key, ""):
        different[key] = (words, got)
    result(not different, name, different)


def main():
    facts_program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[2:]:
            with open(path, "rb") as f:
                data = pickle.load(f)
            base = os.path.basename(path)
            for name, raw, words in forms(data):
                check(facts_program, folder, "%s as %s" % (base, name), raw, data, "container", words)
            for name, changed, words in layouts(data):
                for protocol in (1, 4):
                    check(facts_program, folder, "%s as %s, protocol %d" % (base, name, protocol),
                          pickle.dumps(changed, protocol), changed, "layout", words)
                check(facts_program, folder, "%s as %s, JSON" % (base, name),
                      json.dumps(changed).encode(), changed, "layout", words)
    print("1..%d" % count)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
