#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check sizes and small manners of the C code.

Hard limits: a function has at most 100 lines, a file at most 1000 (LONG_FILES lists the exceptions with the
reason). Every C file names its licence in the first line; nothing is left "to do".

    tools/check_size.py [--stats] [ROOT]
"""

import pathlib
import re
import statistics
import sys

FUNCTION_LINES = 100
FILE_LINES = 1000
LONG_FILES = {
    "runtime/simgpu/hooks.def": "the one table of the answered calls, a row for each",
}
FOLDERS = ("include", "src", "runtime", "tests")
LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
LICENCE = "/* SPDX-License-Identifier: Apache-2.0 */"


def functions(lines):
    """(name, first line, number of lines) of each function: the format puts its braces in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            yield name_before(lines, start), start, number - start + 1
            start = None


def name_before(lines, brace):
    for line in reversed(lines[max(0, brace - 8):brace - 1]):
        match = re.match(r"^\w[\w\s\*]*?\b(\w+)\(", line)
        if match:
            return match.group(1)
    return "?"


def check_file(root, path, sizes, complaints):
    name = path.relative_to(root).as_posix()
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) > FILE_LINES and name not in LONG_FILES:
        complaints.append(f"{name}: {len(lines)} lines, more than {FILE_LINES}")
    if not lines or lines[0] != LICENCE:
        complaints.append(f"{name}:1: the first line must be {LICENCE}")
    for number, line in enumerate(lines, 1):
        if LEFTOVER.search(line):
            complaints.append(f"{name}:{number}: something is left to do: {line.strip()}")
    for function, line, size in functions(lines):
        sizes.append(size)
        if size > FUNCTION_LINES:
            complaints.append(f"{name}:{line}: {function}() has {size} lines, more than {FUNCTION_LINES}")


def main(argv):
    words = [a for a in argv[1:] if a != "--stats"]
    root = pathlib.Path(words[0] if words else pathlib.Path(__file__).parent.parent).resolve()
    sizes, complaints = [], []
    for folder in FOLDERS:
        for pattern in ("*.c", "*.h", "*.h.in", "*.def"):
            for path in sorted((root / folder).rglob(pattern)):
                check_file(root, path, sizes, complaints)
    for line in complaints:
        print(line)
    if "--stats" in argv and sizes:
        share = 100.0 * sum(s <= 60 for s in sizes) / len(sizes)
        print(f"{len(sizes)} functions: median {statistics.median(sizes):.0f} lines, longest {max(sizes)}, "
              f"{share:.1f} % within 60")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
