#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of the man pages and of README.md run, and say what the page says they say.

A code block (``` in a man page source, ```console in Markdown) whose lines start with `$ ` is an example. The
commands of one block run one after the other in an empty folder that holds the files of EXAMPLE_FILES; in
Markdown, paths below tests/data work too. Lines without `$ ` after a command are its output: they must match, with
`...` alone on a line for any lines and `*` for any text. A block with `# exit N` behind its last command, or on a line
of its own, must exit with N. A block after a line that holds "plimsoll: no test" (a comment of the format) is only read by people.

    test_examples.py             run all
    test_examples.py --refresh   write the program's present answers into the README's blocks; read the diff!
"""

import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plimtest  # noqa: E402
import run_cases  # noqa: E402

DATA = plimtest.ROOT / "tests" / "data"
SNAPSHOTS = DATA / "snapshots"

# What a reader's own files are called in the examples, and what stands for them here.
EXAMPLE_FILES = {
    "oom.pickle": SNAPSHOTS / "simulated" / "hf-llama8b-oom-24g.pickle",
    "steps.pickle": DATA / "training" / "lm-streams.pickle.xz",
    "snapshot.pickle": SNAPSHOTS / "lm-windows-highwater-t211.pickle",
    "before.pickle": SNAPSHOTS / "simulated" / "healthy.pickle.xz",
    "after.pickle": SNAPSHOTS / "simulated" / "leak_list.pickle.xz",
    "config.json": DATA / "plan" / "llama-3.1-8b.json",
    "traffic.csv": DATA / "traffic" / "azure-conv.csv",
    "serve.plt": DATA / "traces" / "serve.plt",
    "serve.pickle": DATA / "traces" / "serve.pickle.xz",
    "oom.txt": DATA / "oom" / "pytorch-fragmented.txt",
    "server.log": DATA / "oom" / "vllm-server.log",
}

# What a failed program left behind, in the folder "incidents"; "incident" is the same, finished.
DROP = {"schema": "plimsoll.drop/1", "kind": "oom", "pid": 4711, "time_ns": 1795982712000000000,
        "started_ns": 1795976112000000000, "device": 0, "device_total_bytes": 25769803776,
        "device_free_bytes": 318767104, "tags": {"request_id": "r-17", "batch": 8, "prompt": 4096},
        "versions": {"torch": "2.14.1+cu130"}, "environment": {"CUDA_VISIBLE_DEVICES": "0"},
        "argv": ["/usr/bin/python3", "serve.py", "--batch", "8", "--model", "/srv/models/private"]}

# One look at one device, for a monitor without drivers.
SAMPLE = {"schema": "plimsoll.sample/1", "time_ns": 1795982712000000000, "devices": [
    {"vendor": "nvidia", "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-5dd5a1c5", "pci": "0000:41:00.0", "state": "ok",
     "total_bytes": 85520809984, "used_bytes": 40265318400, "free_bytes": 44649807872, "reserved_bytes": 605683712}],
    "uses": [{"device": 0, "pid": 4711, "kinds": ["compute"], "bytes": 40265318400}],
    "processes": [{"pid": 4711, "ppid": 1, "start_ticks": 88123, "rss_bytes": 3221225472, "name": "python3"}]}

MARKDOWN = ["README.md"] + sorted(str(p.relative_to(plimtest.ROOT)) for p in
                                  (plimtest.ROOT / "docs" / "howto").glob("*.md"))


class Example:
    """One code block: where it is, its commands, each with the lines shown below it, and the exit status."""

    def __init__(self, path, line):
        self.path = path
        self.line = line
        self.steps = []  # [command, [output lines]]
        self.exit = 0

    def name(self):
        return f"{self.path}:{self.line}: {self.steps[0][0]}"


def blocks(path):
    """(first line number, lines) of each code block that is to be run."""
    runnable = "```console" if path.suffix == ".md" else "```"
    fence, skip, start, lines = None, False, 0, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if fence is None and line.startswith("```"):
            fence, start, lines = line, number + 1, []
        elif fence is None:
            skip = skip or "plimsoll: no test" in line
        elif line == "```":
            if fence == runnable and not skip:
                yield start, lines
            fence, skip = None, False
        else:
            lines.append(line)


def examples(path):
    for start, lines in blocks(path):
        example = Example(os.path.relpath(path, plimtest.ROOT), start)
        for line in lines:
            if line.startswith("$ "):
                status = re.search(r"\s+# exit (\d+)$", line)
                example.exit = int(status.group(1)) if status else 0
                command = line[2:status.start()] if status else line[2:]
                if example.steps and example.steps[-1][0].endswith("\\"):
                    command = example.steps.pop()[0][:-1] + command
                example.steps.append([command, []])
            elif re.fullmatch(r"# exit (\d+)", line):
                example.exit = int(line[7:])
            elif example.steps:
                example.steps[-1][1].append(line)
        if example.steps:
            yield example


def all_examples():
    pages = sorted((plimtest.ROOT / "docs" / "man").glob("*.scd"))
    for path in pages + [plimtest.ROOT / name for name in MARKDOWN]:
        if path.exists():
            yield from examples(path)


def run_step(command, folder):
    """One command in the example's folder; `build/plimsoll` means the program under test."""
    env = plimtest.clean_environment(folder, DATA=str(DATA), PYTHONPATH=str(plimtest.ROOT / "python"))
    command = command.replace("build/plimsoll", "plimsoll").replace("make demo", "true").replace("make check", "true")
    return subprocess.run(["bash", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=300, check=False)


def make_folder():
    folder = tempfile.TemporaryDirectory()
    for name, source in EXAMPLE_FILES.items():
        if source.exists():
            shutil.copy(source, pathlib.Path(folder.name) / name)
    os.symlink(plimtest.ROOT / "tests", pathlib.Path(folder.name) / "tests")
    drop = pathlib.Path(folder.name) / "incidents" / "drop-4711-1"
    drop.mkdir(parents=True)
    shutil.copy(EXAMPLE_FILES["oom.pickle"], drop / "snapshot.pickle")
    (drop / "facts.json").write_text(json.dumps(DROP), encoding="utf-8")
    (pathlib.Path(folder.name) / "samples.jsonl").write_text(json.dumps(SAMPLE) + "\n", encoding="utf-8")
    shutil.copytree(finished(), pathlib.Path(folder.name) / "incident")
    return folder


@functools.lru_cache(maxsize=None)
def finished():
    """A finished incident, made once."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    drop = pathlib.Path(folder.name) / "drop-4711-1"
    drop.mkdir()
    shutil.copy(EXAMPLE_FILES["oom.pickle"], drop / "snapshot.pickle")
    (drop / "facts.json").write_text(json.dumps(DROP), encoding="utf-8")
    return plimtest.run("incident", "--finish", folder.name).stdout.decode().strip()


class ExamplesTest(unittest.TestCase):
    def check(self, example):
        folder = make_folder()
        self.addCleanup(folder.cleanup)
        for number, (command, shown) in enumerate(example.steps, 1):
            result = run_step(command, folder.name)
            text = result.stdout.decode("utf-8", "replace")
            wanted = example.exit if number == len(example.steps) else 0
            self.assertEqual(result.returncode, wanted, f"$ {command}\n{text}{result.stderr.decode()}")
            shown = [line.rstrip() for line in shown]
            while shown and not shown[-1]:
                shown.pop()
            if shown:
                lines = "".join(line.rstrip() + "\n" for line in text.splitlines())
                self.assertTrue(run_cases.glob_regex(shown + ["..."]).fullmatch(lines),
                                f"{example.path} shows another answer than the program gives now; when the new one is "
                                "right, run tests/cli/test_examples.py --refresh\n"
                                f"$ {command}\nshown:\n" + "\n".join(shown) + f"\nsaid:\n{text}")


class RefreshTest(unittest.TestCase):
    def test_a_refreshed_block_has_new_answers_and_its_old_commands(self):
        """a refreshed block has new answers and its commands as they stood"""
        block = ["$ echo one \\", "$   two", "old", "...", "$ echo three; exit 2  # exit 2", "older"]
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("\n".join(["```console", *block, "```"]) + "\n", encoding="utf-8")
            self.assertEqual(refreshed(next(examples(page)), block),
                             [*block[:2], "one two", "...", block[4], "three"])


def add_tests():
    for number, example in enumerate(all_examples(), 1):
        def test(self, example=example):
            self.check(example)
        test.__doc__ = example.name()
        setattr(ExamplesTest, f"test_{number:03}", test)


def refreshed(example, lines):
    """The lines of a block with present outputs, its commands as they stand; a block cut by `...` keeps as many lines."""
    folder = make_folder()
    out = []
    steps = iter(example.steps)
    for line in lines:
        if line.startswith("$ ") or re.fullmatch(r"# exit \d+", line):
            out.append(line)
        if not line.startswith("$ ") or line.endswith("\\"):
            continue
        command, shown = next(steps)
        if shown:
            text = run_step(command, folder.name).stdout.decode("utf-8", "replace").splitlines()
            cut = "..." in shown
            keep = shown.index("...") if cut else len(text)
            out += [line.rstrip() for line in text[:keep]] + (["..."] if cut else [])
    folder.cleanup()
    return out if any(shown for _, shown in example.steps) else lines


def refresh():
    for name in MARKDOWN:
        path = plimtest.ROOT / name
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8").splitlines()
        for example in reversed(list(examples(path))):
            first = example.line - 1
            last = first + text[first:].index("```")
            text[first:last] = refreshed(example, text[first:last])
        path.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--refresh"]:
        refresh()
    else:
        add_tests()
        plimtest.main()
