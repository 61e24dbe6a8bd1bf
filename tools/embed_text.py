#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn a file into a C array: tools/embed_text.py OUT.c NAME FILE

Defines `const char NAME[]` (the bytes, then a NUL) and `const size_t NAME_bytes` (without the NUL).
"""

import pathlib
import sys


def main(out, name, source):
    data = pathlib.Path(source).read_bytes()
    rows = [",".join(str(b) for b in data[at:at + 24]) + "," for at in range(0, len(data), 24)]
    pathlib.Path(out).write_text(
        "/* Made by tools/embed_text.py. */\n#include <stddef.h>\n\n"
        f"extern const char {name}[];\nextern const size_t {name}_bytes;\n"
        f"const char {name}[] = {{\n" + "\n".join(rows) + "\n0};\n"
        f"const size_t {name}_bytes = {len(data)};\n", encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:4])
