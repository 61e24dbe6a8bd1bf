#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the command-line cases: what a user types, and what the program must answer.

A case file (tests/cli/cases/*.case) holds cases of this form, with `@@` at the start of each marker:

    @@ case says what is wrong with an unknown verb
    $ plimsoll completon
    @@ exit 64
    @@ stdout
    @@ stderr
    plimsoll: unknown verb 'completon'
    plimsoll: hint: ...
    @@ end

Lines with `$` are run by `sh` one after the other in an empty folder with the program on the PATH; $DATA is
tests/data, $SRC the source tree. `@@ exit N` is the status of the last one (0 when left out). A block that is
left out is not compared. In a block marked `glob` a `*` stands for any text and a line `...` for any lines.
`@@ stdout file PATH` compares with a file below tests/. A JSON answer on standard output is always checked
against its schema in docs/schema.

    run_cases.py FILE...            run the cases, TAP on standard output
    run_cases.py --refresh FILE...  write what the program says into the exact blocks; read the diff!
"""

import atexit
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parent.parent


class Block:
    """Expected text of one stream: exact, glob, or in a file."""

    def __init__(self, stream, how, path):
        self.stream = stream
        self.how = how
        self.path = path
        self.lines = []


class Case:
    def __init__(self, name):
        self.name = name
        self.commands = []
        self.exit = 0
        self.blocks = []


def parse(path):
    """The file as a list of Case, and text between cases as plain strings (kept by --refresh)."""
    items, case, block = [], None, None
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], 1):
        words = line.split()
        if line.startswith("@@ case "):
            case, block = Case(line[8:]), None
            items.append(case)
        elif line == "@@ end":
            case = block = None
        elif line.startswith("@@ exit ") and case:
            case.exit, block = int(words[2]), None
        elif line.startswith(("@@ stdout", "@@ stderr")) and case:
            how = words[2] if len(words) > 2 else "exact"
            block = Block(words[1], how, words[3] if how == "file" else None)
            case.blocks.append(block)
        elif line.startswith("@@"):
            sys.exit(f"{path}:{number}: unknown marker: {line}")
        elif block is not None:
            block.lines.append(line)
        elif case is not None and line.startswith("$ "):
            case.commands.append(line[2:])
        elif case is not None and line:
            sys.exit(f"{path}:{number}: a command starts with '$ '")
        elif case is None:
            items.append(line)
    return items


def unparse(items):
    out = []
    for item in items:
        if isinstance(item, str):
            out.append(item)
            continue
        out.append(f"@@ case {item.name}")
        out += [f"$ {c}" for c in item.commands]
        if item.exit:
            out.append(f"@@ exit {item.exit}")
        for block in item.blocks:
            tail = "" if block.how == "exact" else f" {block.how}"
            out.append(f"@@ {block.stream}{tail}{' ' + block.path if block.path else ''}")
            out += block.lines
        out.append("@@ end")
    return "\n".join(out) + "\n"


@functools.cache
def plain_root():
    """The source tree by a path without spaces: cases do not quote $DATA."""
    if not re.search(r"\s", str(plimtest.ROOT)):
        return plimtest.ROOT
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    link = pathlib.Path(folder.name) / "plimsoll"
    link.symlink_to(plimtest.ROOT)
    return link


def run_case(case):
    script = "\n".join(case.commands)
    with tempfile.TemporaryDirectory() as folder:
        env = plimtest.clean_environment(folder, DATA=str(plain_root() / "tests" / "data"), SRC=str(plain_root()))
        return subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, cwd=folder,
                              env=env, timeout=300, check=False)


def glob_regex(lines):
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(p) for p in line.split("*")) + r"\n")
    return re.compile("".join(parts))


def expected_text(block):
    if block.how == "file":
        return (TESTS / block.path).read_text(encoding="utf-8")
    return "".join(line + "\n" for line in block.lines)


def matches(block, text):
    if block.how == "glob":
        return glob_regex(block.lines).fullmatch(text) is not None
    return expected_text(block) == text


def json_complaints(text):
    if not (text.startswith("{") and text.endswith("}\n")):
        return []
    try:
        document = json.loads(text)
    except ValueError as error:
        return [f"standard output looks like JSON but is not: {error}"]
    return plimtest.schema_complaints(document) if "schema" in document else []


def complaints_of(case, result, texts):
    complaints = []
    if result.returncode != case.exit:
        complaints.append(f"exit status {result.returncode}, not {case.exit}")
    for block in case.blocks:
        if not matches(block, texts[block.stream]):
            complaints.append(f"{block.stream} differs; expected ({block.how}):")
            complaints += ["  | " + line for line in expected_text(block).splitlines()]
            complaints.append("got:")
            complaints += ["  | " + line for line in texts[block.stream].splitlines()[:200]]
    if complaints and not any("stderr" in c for c in complaints) and texts["stderr"]:
        complaints += ["stderr:"] + ["  | " + line for line in texts["stderr"].splitlines()[:40]]
    return complaints + json_complaints(texts["stdout"])


def refresh(case, result, texts):
    case.exit = result.returncode
    for block in case.blocks:
        if block.how == "exact":
            block.lines = texts[block.stream].split("\n")[:-1]
        elif block.how == "file":
            (TESTS / block.path).parent.mkdir(parents=True, exist_ok=True)
            (TESTS / block.path).write_text(texts[block.stream], encoding="utf-8")


def main(argv):
    refreshing = "--refresh" in argv
    count = failed = 0
    for path in (pathlib.Path(a) for a in argv[1:] if a != "--refresh"):
        items = parse(path)
        for case in (i for i in items if isinstance(i, Case)):
            result = run_case(case)
            texts = {"stdout": result.stdout.decode("utf-8", "replace"),
                     "stderr": result.stderr.decode("utf-8", "replace")}
            if refreshing:
                refresh(case, result, texts)
            complaints = complaints_of(case, result, texts)
            count += 1
            failed += bool(complaints)
            print(f"{'not ok' if complaints else 'ok'} {count} - {path.stem}: {case.name}")
            for line in complaints:
                print("# " + line)
            sys.stdout.flush()
        if refreshing:
            path.write_text(unparse(items), encoding="utf-8")
    print(f"1..{count}")
    return 1 if failed else 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv))
