#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn the style sheet and the scripts of web/ into one C file, with the hashes that the page's policy needs.

    tools/embed.py OUT.c SYMBOL FILE ...

SYMBOL is the struct plim_web_assets that is made. Style sheets (.css) and scripts are joined in the order given. Bytes are checked to be ASCII or UTF-8 and not to contain "</script" or
"</style", which would end the element that they are put into.
"""

import base64
import hashlib
import pathlib
import sys


def c_array(name, data):
    lines = [f"static const unsigned char {name}[] = {{"]
    for at in range(0, len(data), 24):
        lines.append("    " + ",".join(str(b) for b in data[at:at + 24]) + ",")
    lines.append("};")
    return "\n".join(lines)


def digest(data):
    return base64.b64encode(hashlib.sha256(data).digest()).decode("ascii")


def read(paths):
    data = b"".join(pathlib.Path(p).read_bytes() for p in paths)
    data.decode("utf-8")
    for ending in (b"</script", b"</style", b"<!--"):
        if ending in data.lower():
            sys.exit(f"embed: {ending.decode()} in {' '.join(paths)}")
    return data


def main(argv):
    out, symbol, files = argv[1], argv[2], argv[3:]
    style = read([f for f in files if f.endswith(".css")])
    script = read([f for f in files if not f.endswith(".css")])
    pathlib.Path(out).write_text("\n".join([
        "/* Written by tools/embed.py from web/; do not edit. */",
        '#include "report/web_assets.h"',
        c_array("style", style),
        c_array("script", script),
        f"const struct plim_web_assets {symbol} = {{",
        "    {(const char *)style, sizeof(style)},",
        "    {(const char *)script, sizeof(script)},",
        f'    "{digest(style)}",',
        f'    "{digest(script)}",',
        "};",
    ]) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
