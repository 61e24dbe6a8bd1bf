#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check who includes whom: every #include goes in the direction of the layers.

The table says, for each folder of src/, what it may include besides itself, the C library and other
people's libraries. runtime/ runs inside other people's processes and includes only its own headers.
Also: a header is included by its path from src/ ("base/arena.h"), and CONTRIBUTING.md's map has every layer.
watch does not know cli; cli knows of watch only how to start it.

    tools/check_layers.py [ROOT]      exit 1 and one line per violation when something is wrong
"""

import pathlib
import re
import sys

NOUNS = {"base", "heap"}
INPUT = NOUNS | {"format", "alloc"}
JUDGE = INPUT | {"replay", "serving"}
REPORT = JUDGE | {"diagnose"}
WORLD = {"detect", "device", "dryrun", "http", "incident", "observe", "record", "store"}

MAY_INCLUDE = {
    "base": set(),
    "heap": {"base"},
    "format": NOUNS,
    "alloc": NOUNS,
    "replay": INPUT,
    "serving": INPUT,
    "diagnose": JUDGE,
    "report": REPORT | {"detect", "device", "dryrun", "http", "incident", "observe", "record", "store"},
    "dryrun": REPORT | {"simgpu"},  # and the table of cards that the simulated device has
    "record": INPUT,
    "device": NOUNS | {"recorder"},  # the recorder's tables of entry points
    "store": NOUNS,
    "observe": INPUT | {"device", "http", "record"},
    "detect": NOUNS | {"device", "observe"},
    "http": {"base"},
    "gate": NOUNS | {"http", "observe", "report"},
    "run": REPORT | {"device", "http", "observe"},  # and judges the last words of what it runs
    "incident": REPORT | {"report", "device"},
    "cli": REPORT | {"report"} | WORLD,
    "top": REPORT | {"report"} | WORLD,
    "watch": REPORT | {"report"} | WORLD,
}

# A table of the runtime that a layer expands for itself, by its path, so that it needs no include folder of its own.
TABLES = {("serving", "../../runtime/simgpu/cards.def")}

# The one header of a layer that another may include: how the program starts the daemon.
ENTRIES = {("cli", "watch/watch.h"), ("cli", "top/top.h"), ("cli", "gate/gate.h"), ("cli", "run/run.h")}

# Public headers of the runtime's own objects: they need nothing but libc.
RUNTIME_PUBLIC = {"plimsoll/simgpu.h", "plimsoll/event.h", "plimsoll/shm.h", "plimsoll/engine.h",
                  "plimsoll/alloc.h", "plimsoll/gate.h", "plimsoll/seating.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def check_src(root, complaints):
    for path in sorted((root / "src").rglob("*.[ch]")) + sorted((root / "src").rglob("*.def")):
        layer = path.relative_to(root / "src").parts[0]
        if layer not in MAY_INCLUDE:
            complaints.append(f"{path}: folder src/{layer} is not in the table of layers")
            continue
        for number, quote, name in includes(path):
            target = name.split("/")[0]
            if (layer, name) in TABLES | ENTRIES:
                continue
            if quote == '"' and "/" not in name:
                complaints.append(f'{path}:{number}: include "{name}" by its path from src/')
            elif quote == '"' and target not in MAY_INCLUDE[layer] | {layer}:
                complaints.append(f"{path}:{number}: {layer} may not include {target} ({name})")


def check_runtime(root, complaints):
    for path in sorted((root / "runtime").rglob("*.[ch]")):
        for number, quote, name in includes(path):
            public = name in RUNTIME_PUBLIC
            if quote == '"' and not public and not resolves_inside(root, path, name):
                complaints.append(f"{path}:{number}: runtime may not include {name}")
            elif quote == "<" and name.startswith("plimsoll/") and not public:
                complaints.append(f"{path}:{number}: runtime may not include {name}")


def resolves_inside(root, path, name):
    runtime = (root / "runtime").resolve()
    for base in (path.parent, runtime):
        candidate = (base / name).resolve()
        if candidate.exists() and runtime in candidate.parents:
            return True
    return False


def check_public(root, complaints):
    for path in sorted((root / "include").rglob("*.h")):
        for number, quote, name in includes(path):
            if quote == '"' or (name.split("/")[0] in MAY_INCLUDE and "/" in name):
                complaints.append(f"{path}:{number}: a public header may not include {name}")


def check_map(root, complaints):
    page = root / "CONTRIBUTING.md"
    if page.exists():
        text = page.read_text(encoding="utf-8")
        rows = [f"`src/{layer}/`" for layer in sorted(MAY_INCLUDE)]
        rows += [f"`{part.name}`" for part in sorted((root / "runtime").iterdir()) if part.is_dir()]
        complaints += [f"{page}: its map has no {row}" for row in rows if row not in text]


def main(argv):
    root = pathlib.Path(argv[1] if len(argv) > 1 else pathlib.Path(__file__).parent.parent)
    complaints = []
    check_src(root, complaints)
    check_runtime(root, complaints)
    check_public(root, complaints)
    check_map(root, complaints)
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
