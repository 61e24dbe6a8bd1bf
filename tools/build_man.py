#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fill the generated parts into a man page source and give it to scdoc.

    tools/build_man.py PROGRAM SCDOC PAGE.scd OUT

A line `@OPTIONS@` becomes the options of the verb that the page's name says (plimsoll-VERB.1.scd), `@VERBS@` the
list of verbs, `@EXIT@` and `@COMMON@` the text of docs/man/exit.inc and common.inc. OUT is the man page, or
the filled source when SCDOC is "-".
"""

import pathlib
import subprocess
import sys


def program_text(program, *words):
    return subprocess.run([program, "help", *words, "--format", "scdoc"], check=True, capture_output=True,
                          text=True, env={"LC_ALL": "C.UTF-8", "PLIMSOLL_CONFIG": ""}).stdout


def fill(program, page):
    verb = page.name.removesuffix(".1.scd").removeprefix("plimsoll").removeprefix("-")
    out = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line == "@OPTIONS@":
            out.append(program_text(program, verb).rstrip("\n"))
        elif line == "@VERBS@":
            out.append(program_text(program).rstrip("\n"))
        elif line in ("@EXIT@", "@COMMON@"):
            part = page.parent / (line.strip("@").lower() + ".inc")
            out.append(part.read_text(encoding="utf-8").rstrip("\n"))
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def main(argv):
    program, scdoc, page, out = argv[1], argv[2], pathlib.Path(argv[3]), pathlib.Path(argv[4])
    text = fill(program, page)
    if scdoc == "-":
        out.write_text(text, encoding="utf-8")
        return 0
    result = subprocess.run([scdoc], input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.stderr.write(f"{page}: {result.stderr}")
        return 1
    out.write_text(result.stdout, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
