#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that each header compiles alone: in C11 all of them, in C++17 the public ones.

    tools/check_headers.py [ROOT [BUILD]]    exit 1 and the compiler's words when one does not

BUILD (default ROOT/build) is where generated headers are. Headers of runtime/ are compiled with their own
folder in the search path.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]


def command(root, build, header, language):
    standard = "-std=gnu11" if language == "c" else "-std=c++17"
    compiler = os.environ.get("CC", "cc") if language == "c" else os.environ.get("CXX", "c++")
    search = [f"-I{root}/include", f"-I{root}/src", f"-I{build}/src", f"-I{root}/runtime"]
    return [compiler, "-x", language, standard, "-fsyntax-only", "-D_GNU_SOURCE", *WARNINGS, *search,
            "-include", str(header), os.devnull]


def jobs(root, build):
    for header in sorted((root / "include").rglob("*.h")):
        yield command(root, build, header, "c"), header
        yield command(root, build, header, "c++"), header
    for folder in ("src", "runtime"):
        for header in sorted((root / folder).rglob("*.h")):
            yield command(root, build, header, "c"), header


def run(job):
    words, header = job
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    return header, words[2], result.returncode, result.stderr


def main(argv):
    root = pathlib.Path(argv[1] if len(argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    build = pathlib.Path(argv[2] if len(argv) > 2 else root / "build").resolve()
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for header, language, code, text in pool.map(run, jobs(root, build)):
            if code != 0:
                bad += 1
                print(f"{header}: does not compile alone as {language}\n{text}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
