#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The exported side of the simulated GPU: what hooks.def promises is there, and nothing else."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

SOURCE = plimtest.ROOT / "runtime" / "simgpu"
BUILT = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", plimtest.ROOT / "build")) / "runtime" / "simgpu"
CORE = BUILT / "libplimsoll-simgpu.so"
ROW = re.compile(r"^SIM_HOOK\((\w+), (\w+), (\w+), (\d+)\)$", re.MULTILINE)


def rows():
    return ROW.findall((SOURCE / "hooks.def").read_text(encoding="utf-8"))


def output(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout.decode()


def exported():
    lines = output("nm", "-D", "--defined-only", CORE).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] in "TtWiD"}


class SymbolsTest(unittest.TestCase):
    def test_rows_are_sorted_and_unique(self):
        """rows of the table are sorted by symbol within a library, and each symbol is there once"""
        by_library = {}
        for library, symbol, _, _ in rows():
            by_library.setdefault(library, []).append(symbol)
        self.assertGreater(len(rows()), 1500)
        for library, symbols in by_library.items():
            self.assertEqual(symbols, sorted(symbols), library)
        everything = [symbol for _, symbol, _, _ in rows()]
        self.assertEqual(len(everything), len(set(everything)))

    def test_exactly_the_table_is_exported(self):
        """the object exports exactly the table and the control functions"""
        table = {symbol for _, symbol, _, _ in rows()}
        extra = {s for s in exported() - table if not s.startswith("plimsoll_sim_")}
        self.assertEqual(extra, set())
        self.assertEqual(table - exported(), set())

    def test_only_the_c_library_is_needed(self):
        """the object needs nothing but the C library"""
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", CORE))
        self.assertEqual([n for n in needed if not n.startswith(("libc.so", "ld-linux"))], [])
        self.assertNotIn("libcudart.so", str(CORE))

    def test_shells_carry_sonames_and_version_nodes(self):
        """each shell has its SONAME, its version node where the vendor has one, and needs the object"""
        shells = [p for p in (BUILT / "shells").iterdir() if re.search(r"\.so\.\d+$", p.name)]
        self.assertGreater(len(shells), 20)
        for shell in shells:
            text = output("readelf", "-d", "-V", shell)
            self.assertIn(f"Library soname: [{shell.name}]", text)
            self.assertIn("libplimsoll-simgpu.so", text)
            if re.match(r"lib(cudart|cublas|cublasLt|cudnn|cusparse|cusolver|cufft|nvrtc|cupti)\.so", shell.name):
                self.assertIn(f"Name: {shell.name}", text)

    def test_stubs_write_the_outputs_that_callers_read(self):
        """a stub writes the argument that the table names, and a missing function is noted by name"""
        code = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
size = ctypes.c_size_t(77)
args = [ctypes.c_void_p(0)] * 6 + [ctypes.byref(size)]
assert lib.cudnnGetConvolutionForwardWorkspaceSize(*args) == 0 and size.value == 0
handle = ctypes.c_void_p(0)
assert lib.cublasCreate_v2(ctypes.byref(handle)) == 0 and handle.value
info = ctypes.c_int(9)
assert lib.cusolverDnSpotrf_bufferSize(0, 0, 0, ctypes.c_void_p(0), 0, ctypes.byref(info)) == 0
assert info.value == 0
assert lib.cudaMallocArray(0, 0, 0, 0, 0) == 801
assert lib.cudaGetLastError() == 801 and lib.cudaGetLastError() == 0
fn = ctypes.c_void_p(1)
status = ctypes.c_int(9)
assert lib.cuGetProcAddress_v2(b"cuNoSuchThing", ctypes.byref(fn), 13000, ctypes.c_uint64(0), ctypes.byref(status)) == 0
assert fn.value is None and status.value == 1
assert lib.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(fn), 13000, ctypes.c_uint64(0), ctypes.byref(status)) == 0
assert fn.value == ctypes.cast(lib.cuMemAlloc_v2, ctypes.c_void_p).value and status.value == 0
"""
        with open(os.devnull, "rb") as nothing:
            state = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"plimsoll-books-{os.getpid()}"
            try:
                subprocess.run([sys.executable, "-c", code, str(CORE)], stdin=nothing, check=True,
                               env=dict(os.environ, PLIMSOLL_SIM_GPU="1GiB", PLIMSOLL_SIM_STATE=str(state)))
                books = state.read_bytes()
            finally:
                state.unlink()
        self.assertEqual(books[:8], b"PLIMSIM1")
        self.assertIn(b"cudaMallocArray\0", books)


if __name__ == "__main__":
    plimtest.main()
