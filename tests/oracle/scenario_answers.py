#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `plimsoll diagnose` says about the scenes of scenarios.py, against the truth. Standard library only.

    python3 tests/oracle/scenario_answers.py PROGRAM FOLDER [--table] [NAME ...]

Each scene is asked in up to four ways: the snapshot alone, with the device's size, with the external bytes
as well, and with the error's message. Prints one line a scene (** marks a wrong answer), and with --table
the confusion tables in Markdown.
"""

import collections
import json
import pathlib
import subprocess
import sys

WAYS = ("alone", "device", "external", "message")
CLASSES = ("capacity", "leak", "fragmentation", "external", "healthy", "unknown")
UNSURE = 0.65  # an answer up to this confidence does not claim to know


def ask(program, snapshot, arguments):
    """The parsed answer, or the error text."""
    command = [str(program), "diagnose", str(snapshot), "--format", "json", "--no-replay", *arguments]
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
    owners = ledger["owners"]
    if "total" not in ledger or "free" not in owners:
        return 0
    return ledger["total"]["bytes"] - sum(amount["bytes"] for amount in owners.values())


def is_right(truth, way, answer):
    """Whether the class is acceptable. Without the device's size nobody can tell that others hold the rest
    of it: then an answer that does not claim to know is right."""
    verdict = answer["verdict"]
    if verdict["class"] in {truth["expect"], *truth["also"]}:
        return True
    unsure = verdict["class"] == "unknown" or verdict["confidence"] <= UNSURE
    return way == "alone" and truth["expect"] == "external" and unsure


def answers(program, folder, names=()):
    """(name, truth, {way: answer}) for each scene."""
    for path in sorted(folder.glob("*.json")):
        name = path.stem
        if names and name not in names:
            continue
        truth = json.loads(path.read_text(encoding="utf-8"))
        given = {way: arguments_of(way, truth, folder, name) for way in WAYS}
        yield name, truth, {way: ask(program, folder / (name + ".pickle"), arguments)
                            for way, arguments in given.items() if arguments is not None}


def cell(truth, way, answer):
    if answer is None:
        return ""
    if isinstance(answer, str):
        return "!! " + answer[:60]
    v = answer["verdict"]
    mark = "  " if is_right(truth, way, answer) else "**"
    gap = " LEDGER" if ledger_gap(answer) else ""
    return f"{mark}{v['class'][:5]}/{(v['subclass'] or '-')[:9]} {v['confidence']:.2f}{gap}"


def print_tables(counts):
    for way in WAYS:
        print(f"\n{way}\n\n| built as | " + " | ".join(CLASSES) + " |\n|---" + "|---" * len(CLASSES) + "|")
        for built in CLASSES[:5]:
            print(f"| {built} | " + " | ".join(str(counts[way][built, said] or "") for said in CLASSES) + " |")


def main(argv):
    program, folder, *names = [a for a in argv[1:] if not a.startswith("--")]
    counts = {way: collections.Counter() for way in WAYS}
    wrong = 0
    for name, truth, given in answers(program, pathlib.Path(folder), names):
        for way, answer in given.items():
            wrong += isinstance(answer, str) or not is_right(truth, way, answer)
            counts[way][truth["expect"], "error" if isinstance(answer, str) else answer["verdict"]["class"]] += 1
        print(f"{name:31} {truth['expect'][:6]:6} " +
              " ".join(f"{cell(truth, way, given.get(way)):24}" for way in WAYS))
    print(f"{wrong} wrong answers")
    if "--table" in argv:
        print_tables(counts)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
