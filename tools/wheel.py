#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the wheel: the Python package, the program, and the shared objects for other people's processes.

    tools/wheel.py [--build FOLDER] [--out FOLDER]      default: build-wheel and dist

Needs no network and no build backend: a wheel is a zip file of a fixed layout (packaging.python.org, "Binary
distribution format"). The program carries its libraries in itself, so that it needs only the C library; the tag
`manylinux_2_N` is the newest version of the C library that any file in the wheel asks for, as readelf sees it.

    plimsoll/                       the package
    plimsoll/_native/bin/plimsoll   the program
    plimsoll/_native/lib/plimsoll/  what it puts into other processes, where it looks for it
    plimsoll-attach.pth             the start hook
    plimsoll-V.data/data/share/     manual pages and completions
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOOK = ('import os; (os.environ.get("PLIMSOLL_ATTACH") or os.environ.get("PLIMSOLL_ALLOC")) '
        'and __import__("plimsoll._start")\n')
# What every system with a C library has, as PEP 600 lists it.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1",
          "ld-linux-x86-64.so.2"}
# The libraries that the program carries, by the Debian package that has their licences.
CARRIED = ("libzstd-dev", "liblzma-dev", "zlib1g-dev", "libxxhash-dev", "libjansson-dev", "libinih-dev",
           "libmicrohttpd-dev", "libsqlite3-dev", "libncurses-dev")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the wheel is the same for the same inputs


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                            **options)
    text = result.stdout.decode(errors="replace")
    if result.returncode != 0:
        sys.exit(f"wheel: {' '.join(map(str, command))} failed:\n{text[-4000:]}")
    return text


def build(folder, stage):
    """Compile what is installed, and nothing else, and install it into `stage`."""
    if not (folder / "build.ninja").exists():
        run("meson", "setup", folder, "--prefix=/usr", "--libdir=lib", "--buildtype=release", "-Dprefer_static=true",
            cwd=ROOT)
    run("ninja", "-C", folder, "build.ninja")  # what is installed may have changed since
    targets = json.loads(run("meson", "introspect", "--targets", folder))
    wanted = [os.path.relpath(name, folder) for t in targets if t["installed"] for name in t["filename"]]
    run("ninja", "-C", folder, *wanted)
    run("meson", "install", "-C", folder, "--no-rebuild", "--strip", env=dict(os.environ, DESTDIR=str(stage)))


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needs(path):
    """(libraries by name, versions of the C library as (2, n)) that a file asks for."""
    text = run("readelf", "--wide", "--dynamic", "--version-info", path)
    names = re.findall(r"\(NEEDED\)\s+Shared library: \[([^]]+)\]", text)
    part = text[text.find("Version needs section"):] if "Version needs section" in text else ""
    return set(names), {tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([\d.]+)", part)}


def tag(files):
    """The platform tag, after checking that nothing but the C library and the wheel itself is needed."""
    own = {os.path.basename(name) for name in files}
    newest = (2, 17)
    for name, path in sorted(files.items()):
        if not is_elf(path):
            continue
        libraries, versions = needs(path)
        missing = libraries - SYSTEM - own
        if missing:
            sys.exit(f"wheel: {name} needs {', '.join(sorted(missing))}, which is not in the wheel")
        newest = max([newest, *(v[:2] for v in versions)])
    return f"py3-none-manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"


def contents(stage, version):
    """Name in the wheel to file: the package, and what was installed."""
    files = {}
    for path in sorted((ROOT / "python" / "plimsoll").iterdir()):
        if path.suffix in (".py", ".typed"):
            files[f"plimsoll/{path.name}"] = path
    usr = stage / "usr"
    for path in sorted(usr.rglob("*")):
        name = path.relative_to(usr).as_posix()
        if path.is_dir():
            continue
        if name.startswith(("bin/", "lib/plimsoll/")):
            files["plimsoll/_native/" + name] = path
        elif name.startswith("share/"):
            files[f"plimsoll-{version}.data/data/{name}"] = path
    for package in CARRIED:
        path = pathlib.Path("/usr/share/doc") / package / "copyright"
        if path.exists():
            files[f"plimsoll-{version}.dist-info/licenses/{package}.txt"] = path
    return files


def metadata(version):
    return (f"Metadata-Version: 2.1\nName: plimsoll\nVersion: {version}\n"
            "Summary: Why GPU memory ran out, what would have saved it, and evidence from a running program\n"
            "License: Apache-2.0\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n"
            "Classifier: Operating System :: POSIX :: Linux\nClassifier: Typing :: Typed\n\n"
            + (ROOT / "README.md").read_text(encoding="utf-8"))


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write(out, version, files):
    """The zip file, with its list of contents last."""
    name = tag(files)
    info = f"plimsoll-{version}.dist-info"
    texts = {
        "plimsoll-attach.pth": HOOK,
        f"{info}/METADATA": metadata(version),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: plimsoll\nRoot-Is-Purelib: false\nTag: {name}\n",
        f"{info}/entry_points.txt": "[console_scripts]\nplimsoll = plimsoll._program:main\n",
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
    }
    rows = []
    path = out / f"plimsoll-{version}-{name}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(entry, data, mode):
            item = zipfile.ZipInfo(entry, EPOCH)
            item.external_attr = (stat.S_IFREG | mode) << 16
            item.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(item, data)
            rows.append(f"{entry},{digest(data)},{len(data)}")

        for entry, source in files.items():
            add(entry, source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
        for entry, text in texts.items():
            add(entry, text.encode(), 0o644)
        rows.append(f"{info}/RECORD,,")
        add(f"{info}/RECORD", ("\n".join(rows) + "\n").encode(), 0o644)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build-wheel")
    parser.add_argument("--out", default="dist")
    chosen = parser.parse_args()
    out = pathlib.Path(chosen.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)
    with tempfile.TemporaryDirectory() as stage:
        build(pathlib.Path(chosen.build).resolve(), pathlib.Path(stage))
        print(write(out, version, contents(pathlib.Path(stage), version)))


if __name__ == "__main__":
    main()
