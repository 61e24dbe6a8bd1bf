#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel, as a user gets it: built, installed into a fresh environment, and into a root with nothing but Python and
the C library."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

BUILD = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", str(plimtest.ROOT / "build")))
SNAPSHOT = plimtest.ROOT / "tests" / "data" / "snapshots" / "simulated" / "hf-llama8b-oom-24g.pickle"
MESSAGE = plimtest.ROOT / "tests" / "data" / "oom" / "pytorch-fragmented.txt"

USE = """
import json, sys, plimsoll
told = plimsoll.explain(open(sys.argv[2]).read())["verdict"]
judged = plimsoll.diagnose(sys.argv[1])["verdict"]
print(json.dumps([plimsoll.program(), told["class"], judged["class"]]))
"""

TINY = """
import ctypes
cuda = ctypes.CDLL("libcudart.so.13")
p = ctypes.c_void_p()
assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(64 << 20)) == 0
assert cuda.cudaFree(p) == 0
print("done")
"""


def libraries_of(path):
    """Files that a program is loaded with, the loader among them."""
    text = subprocess.run(["ldd", str(path)], stdout=subprocess.PIPE, check=True).stdout.decode()
    return set(re.findall(r"(/\S+) \(0x", text))


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([sys.executable, str(plimtest.ROOT / "tools" / "wheel.py"), "--build", str(BUILD / "wheel"),
                        "--out", str(cls.folder)], check=True, timeout=600)
        cls.wheel, = cls.folder.glob("*.whl")
        cls.venv = cls.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(cls.venv)], check=True, timeout=120)
        cls.install(cls.venv)

    @classmethod
    def install(cls, venv):
        subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                        "--disable-pip-version-check", str(cls.wheel)], check=True, timeout=120)

    def run_it(self, *command, code=0, **env):
        """Run in an environment that knows nothing of this tree."""
        full = dict(PATH="/usr/bin:/bin", HOME=str(self.folder), LC_ALL="C.UTF-8", **env)
        result = subprocess.run([str(c) for c in command], capture_output=True, env=full, cwd=self.folder, timeout=120,
                                check=False)
        self.assertEqual(result.returncode, code, result.stdout.decode() + result.stderr.decode())
        return result.stdout.decode()

    def test_the_tag_is_what_the_files_need(self):
        """the tag names a C library that is not newer than this system's, and the wheel says it is not pure"""
        match = re.fullmatch(r"plimsoll-[\d.]+-py3-none-manylinux_2_(\d+)_x86_64\.whl", self.wheel.name)
        self.assertIsNotNone(match, self.wheel.name)
        self.assertLessEqual(int(match[1]), int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[1]))
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            info = next(n for n in names if n.endswith("/WHEEL"))
            self.assertIn(self.wheel.name[:-4].split("-", 2)[2], archive.read(info).decode())
        self.assertIn("plimsoll/py.typed", names)
        self.assertIn("plimsoll/_native/lib/plimsoll/simgpu/libplimsoll-simgpu.so", names)
        self.assertTrue(any(n.endswith("man1/plimsoll-diagnose.1") for n in names))
        self.assertEqual(len(names), len(set(names)))

    def test_a_second_build_is_the_same(self):
        """the same tree gives the same bytes"""
        again = self.folder / "again"
        subprocess.run([sys.executable, str(plimtest.ROOT / "tools" / "wheel.py"), "--build", str(BUILD / "wheel"),
                        "--out", str(again)], check=True, timeout=600)
        self.assertEqual((again / self.wheel.name).read_bytes(), self.wheel.read_bytes())

    def test_installed_in_a_fresh_environment(self):
        """in a fresh environment the console script, python -m and the functions use the program of the wheel"""
        self.assertTrue(self.run_it(self.venv / "bin" / "plimsoll", "version").startswith("plimsoll "))
        self.assertTrue(self.run_it(self.venv / "bin" / "python", "-m", "plimsoll", "version").startswith("plimsoll "))
        program, told, judged = json.loads(self.run_it(self.venv / "bin" / "python", "-c", USE, SNAPSHOT, MESSAGE))
        self.assertTrue(program.startswith(str(self.venv)), program)
        self.assertEqual((told, judged), ("fragmentation", "fragmentation"))
        self.run_it(self.venv / "bin" / "plimsoll", "diagnose", "/nonexistent", code=66)

    def test_the_simulated_gpu_is_found(self):
        """dryrun finds the simulated GPU that came along"""
        out = json.loads(self.run_it(self.venv / "bin" / "plimsoll", "dryrun", "--format", "json", "--", "true"))
        self.assertEqual(out["runs"][0]["outcome"], "no_cuda")

    def test_a_tiny_program_is_recorded(self):
        """record finds its recorder, and the trace holds the calls of a program that takes device memory"""
        shells = next((self.venv / "lib").glob("python*/site-packages/plimsoll/_native/lib/plimsoll/simgpu/shells"))
        (self.folder / "tiny.py").write_text(TINY)
        trace = self.folder / "tiny.plt"
        out = self.run_it(self.venv / "bin" / "plimsoll", "record", "--quiet", "-o", trace, "--",
                          self.venv / "bin" / "python", self.folder / "tiny.py", LD_LIBRARY_PATH=str(shells))
        self.assertEqual(out, "done\n")
        judged = json.loads(self.run_it(self.venv / "bin" / "plimsoll", "diagnose", "--format", "json", trace))
        self.assertEqual(judged["trace"]["peak_reserved_bytes"], 64 << 20)

    def test_the_start_hook(self):
        """the start hook loads nothing while it is not asked"""
        code = "import sys; print([n for n in sys.modules if 'plimsoll' in n])"
        python = self.venv / "bin" / "python"
        self.assertEqual(self.run_it(python, "-c", code), "[]\n")
        self.assertEqual(self.run_it(python, "-c", code, PLIMSOLL_ATTACH="1"),
                         "['plimsoll', 'plimsoll._hooks', 'plimsoll._start']\n")

    def bare_root(self):
        """A root folder with this Python, the C library, what these two are loaded with, and the wheel."""
        root = self.folder / "root"
        python = pathlib.Path(os.path.realpath(sys.executable))
        stdlib = pathlib.Path(sysconfig.get_path("stdlib"))
        ctypes_file = next(stdlib.glob("lib-dynload/_ctypes.*.so"))
        for path in {str(python)} | libraries_of(python) | libraries_of(ctypes_file):
            to = root / path.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
        shutil.copytree(stdlib, root / str(stdlib).lstrip("/"),
                        ignore=shutil.ignore_patterns("test", "site-packages", "dist-packages", "config-*", "idlelib",
                                                      "lib2to3", "__pycache__", "ensurepip", "tkinter"))
        site = root / "site"
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(site)
            for item in archive.infolist():
                os.chmod(site / item.filename, item.external_attr >> 16)
        shutil.copy(SNAPSHOT, root / "oom.pickle")
        shutil.copy(MESSAGE, root / "oom.txt")
        (root / "dev").mkdir()
        (root / "dev" / "null").write_text("")
        return root, python

    def test_in_a_bare_root(self):
        """in a root with only Python and the C library everything is there"""
        if "venv" in sys.prefix or not os.path.realpath(sys.executable).startswith("/usr/"):
            self.skipTest("needs the system's own Python")
        root, python = self.bare_root()
        enter = ["chroot", str(root)] if os.geteuid() == 0 else ["unshare", "--map-root-user", f"--root={root}"]
        tried = subprocess.run([*enter, str(python), "-c", "1"], capture_output=True, check=False)
        if tried.returncode != 0:
            self.skipTest(f"cannot change the root: {tried.stderr.decode()[:200]}")
        out = subprocess.run([*enter, str(python), "-c", USE, "/oom.pickle", "/oom.txt"], capture_output=True,
                             env={"PYTHONPATH": "/site", "PATH": "/usr/sbin:/usr/bin:/bin"}, check=False)
        self.assertEqual(out.returncode, 0, out.stderr.decode())
        self.assertEqual(json.loads(out.stdout)[1:], ["fragmentation", "fragmentation"])


if __name__ == "__main__":
    plimtest.main()
