#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `plimsoll diagnose` says about the scenes, against the truth. Standard library only.

    python3 tests/oracle/judge_scenarios.py PROGRAM FOLDER [--table] [NAME ...]

Each scene is asked in up to four ways: the snapshot alone, with the device's size, with the external bytes
as well, and with the error's message. Prints one line a scene, and with --table the confusion tables.
"""

import collections
import json
import pathlib
import subprocess
import sys

WAYS = ("alone", "device", "external", "message")


def ask(program, snapshot, arguments):
    """The parsed answer, or the error text."""
    command = [program, "diagnose", str(snapshot), "--format", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stderr.strip()[:200]}"
    return json.loads(done.stdout)


def arguments_of(way, truth, folder, name):
    """Options for one way of asking, or None when it makes no sense for this scene."""
    device = ["--device", str(truth["device"])] if truth["device"] else []
    size = ["--device-memory", str(truth["total"])]
    if way == "alone":
        return device
    if way == "device":
        return device + size
    if way == "external":
        return device + size + ["--external", str(truth["external"])] if truth["give_external"] else None
    if truth["message"] is None:
        return None
    text = folder / (name + ".txt")
    text.write_text("torch.OutOfMemoryError: " + truth["message"] + "\n", encoding="utf-8")
    return device + ["--oom-text", str(text)]


def ledger_gap(answer):
    """Bytes by which the waterfall misses the total; 0 when it adds up or the total is not known."""
    ledger = answer["ledger"]
    total, owners = ledger.get("total"), ledger.get("owners", {})
    def size(x):
        return x["bytes"] if isinstance(x, dict) else x
    if not total or "free" not in owners:
        return 0
    return size(total) - sum(size(v) for v in owners.values() if v is not None)


def acceptable(truth, way):
    """The classes that are right when asked in this way."""
    classes = {truth["expect"], *truth["also"]}
    if way == "alone" and truth["expect"] == "external":
        classes |= {"unknown"}  # without the device's size nobody can tell
    return classes


def judge(program, folder, names):
    """(name, truth, {way: answer}) for each scene."""
    for path in sorted(folder.glob("*.json")):
        name = path.stem
        if names and name not in names:
            continue
        truth = json.loads(path.read_text(encoding="utf-8"))
        answers = {}
        for way in WAYS:
            arguments = arguments_of(way, truth, folder, name)
            if arguments is not None:
                answers[way] = ask(program, folder / (name + ".pickle"), arguments)
        yield name, truth, answers


def show(answer, good):
    if isinstance(answer, str):
        return "!! " + answer[:60]
    v = answer["verdict"]
    return f"{'  ' if good else '**'}{v['class'][:5]}/{(v['subclass'] or '-')[:9]} {v['confidence']:.2f}"


def main(argv):
    options = [a for a in argv[1:] if a.startswith("--")]
    program, folder, *names = [a for a in argv[1:] if not a.startswith("--")]
    folder = pathlib.Path(folder)
    wrong = 0
    tables = {way: collections.Counter() for way in WAYS}
    for name, truth, answers in judge(program, folder, names):
        cells = []
        for way in WAYS:
            answer = answers.get(way)
            if answer is None:
                cells.append("")
                continue
            bad = isinstance(answer, str)
            said = "error" if bad else answer["verdict"]["class"]
            good = said in acceptable(truth, way)
            wrong += not good
            tables[way][truth["expect"], said] += 1
            cell = show(answer, good)
            if not bad and ledger_gap(answer) != 0:
                cell += " LEDGER"
            cells.append(cell)
        print(f"{name:28} {truth['expect'][:6]:6} " + " ".join(f"{c:24}" for c in cells))
    print(f"{wrong} wrong answers")
    if "--table" in options:
        for way in WAYS:
            print(way, dict(tables[way]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
