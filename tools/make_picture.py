#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A picture of what a command shows in a terminal: runs it on a pseudo-terminal and writes an SVG.

    tools/make_picture.py OUT.svg LINES COMMAND...     the first LINES lines of its output

Each run of characters is placed by its column, so that the picture keeps its alignment in any monospaced
font. Understands the colours and attributes that the program uses (SGR 0, 1, 2, 31 to 36).
"""

import html
import os
import pty
import re
import sys

COLUMNS = 80
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 16
COLORS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea"}
FOREGROUND, BACKGROUND, DIM = "#e6edf3", "#0d1117", "#8b949e"
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def run_on_terminal(command):
    """The output of a command that believes it writes to a colour terminal."""
    os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LC_ALL="C.UTF-8")
    os.environ.pop("NO_COLOR", None)
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    out = bytearray()
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the child closed its side
            break
        if not data:
            break
        out.extend(data)
    os.waitpid(child, 0)
    return out.decode("utf-8", "replace").replace("\r\n", "\n")


def runs(line, style):
    """(column, text, style) of each run of one style; a style is (colour, bold)."""
    column, at = 0, 0
    for match in [*SGR.finditer(line), None]:
        text = line[at:match.start() if match else len(line)]
        if text:
            yield column, text, dict(style)
            column += len(text)
        if match is None:
            return
        at = match.end()
        for code in (int(c or 0) for c in match.group(1).split(";")):
            if code == 0:
                style.update(color=FOREGROUND, bold=False)
            elif code == 1:
                style["bold"] = True
            elif code == 2:
                style["color"] = DIM
            else:
                style["color"] = COLORS.get(code, FOREGROUND)


def svg(lines):
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    height = len(lines) * CELL_HEIGHT + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
           f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="terminal output of plimsoll">',
           f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>',
           '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
           'font-size="14" xml:space="preserve">']
    style = {"color": FOREGROUND, "bold": False}
    for number, line in enumerate(lines):
        y = MARGIN + (number + 0.75) * CELL_HEIGHT
        for column, text, how in runs(line, style):
            for part in re.finditer(r"\S+(?: \S+)*", text):
                x = MARGIN + (column + part.start()) * CELL_WIDTH
                weight = ' font-weight="bold"' if how["bold"] else ""
                out.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{how["color"]}"{weight} '
                           f'textLength="{len(part.group()) * CELL_WIDTH:.1f}">{html.escape(part.group())}</text>')
    return "\n".join(out + ["</g>", "</svg>"]) + "\n"


def main(argv):
    command = argv[3:]
    text = run_on_terminal(command)
    shown = " ".join(["$", *command]).replace("build/plimsoll", "plimsoll")
    lines = [f"\x1b[1m{shown}\x1b[0m"] + text.split("\n")[:int(argv[2])]
    with open(argv[1], "w", encoding="utf-8") as out:
        out.write(svg(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
