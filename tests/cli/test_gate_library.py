#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libplimsoll_gate.so as a front door in Python loads it: what it exports, and a request from start to end."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))

import plimtest  # noqa: E402

ROOT = plimtest.ROOT
LIBRARY = pathlib.Path(os.environ["PLIMSOLL_BUILD"]) / "runtime" / "gate" / "libplimsoll_gate.so"
HEADER = ROOT / "include" / "plimsoll" / "gate.h"
OTHER_CONFIG = 5
ADMIT, LATER, NEVER = 0, 1, 2


class Group(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in
                ("block_tokens", "cap_tokens", "units_per_block", "extra_blocks")]


def fields(struct):
    """The fields of a struct of the header, as ctypes has them: so that the header is the only list."""
    text = HEADER.read_text(encoding="utf-8")
    body = re.search(r"struct %s \{(.*?)\n\};" % struct, text, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    types = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "uint64_t": ctypes.c_uint64,
             "int64_t": ctypes.c_int64, "double": ctypes.c_double, "struct plimsoll_gate_group": Group}
    sizes = {"PLIMSOLL_GATE_GROUPS": 8}
    out = []
    for line in body.split(";"):
        match = re.match(r"\s*(struct \w+|\w+)\s+(.*)", line.strip(), re.S)
        for name in match.group(2).split(",") if match else []:
            name, _, count = name.strip().partition("[")
            kind = types[match.group(1)]
            count = count.rstrip("]")
            out.append((name, kind * int(sizes.get(count, count or 0)) if count else kind))
    return out


class Config(ctypes.Structure):
    _fields_ = fields("plimsoll_gate_config")


class Request(ctypes.Structure):
    _fields_ = fields("plimsoll_gate_request")


class Decision(ctypes.Structure):
    _fields_ = fields("plimsoll_gate_decision")


class State(ctypes.Structure):
    _fields_ = fields("plimsoll_gate_state")


class Gate(ctypes.Structure):
    _fields_ = [("word", ctypes.c_uint64 * 128)]


NOW = ctypes.c_uint64


def now():
    return NOW(time.monotonic_ns())


class GateLibrary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lib = ctypes.CDLL(str(LIBRARY))
        cls.lib.plimsoll_gate_wrong.restype = ctypes.c_char_p
        cls.lib.plimsoll_gate_reason_text.restype = ctypes.c_char_p

    def config(self, blocks):
        config = Config()
        self.lib.plimsoll_gate_defaults(ctypes.byref(config))
        self.assertEqual(config.size, ctypes.sizeof(Config))
        config.capacity_units = blocks
        config.n_groups = 1
        config.groups[0].block_tokens = 16
        config.groups[0].units_per_block = 1
        config.max_length = 8192
        self.assertIsNone(self.lib.plimsoll_gate_wrong(ctypes.byref(config)))
        return config

    def test_exports_are_the_functions_of_the_header(self):
        """Nothing is exported but the functions of the header, and all of them."""
        declared = set(re.findall(r"\b(plimsoll_gate_\w+)\(", HEADER.read_text(encoding="utf-8")))
        listed = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
        self.assertEqual({line.split()[2] for line in listed.stdout.splitlines()}, declared)

    def test_needs_libc_and_libm_only(self):
        """The library needs nothing but libc and libm."""
        out = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", out))
        sanitizers = {n for n in needed if re.match(r"lib(asan|ubsan|tsan|gcov)", n)}
        self.assertLessEqual(needed - sanitizers, {"libc.so.6", "libm.so.6"})

    def test_two_processes_share_a_file(self):
        """A request that one handle admitted fills the pool of the other."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ledger").encode()
            one, two, decision, state = Gate(), Gate(), Decision(), State()
            config = self.config(100)
            self.assertEqual(self.lib.plimsoll_gate_open(ctypes.byref(one), path, ctypes.byref(config), now()), 0)
            self.assertEqual(self.lib.plimsoll_gate_open(ctypes.byref(two), path, None, now()), 0)
            request = Request(prompt_tokens=1500, max_tokens=50)
            self.assertEqual(self.lib.plimsoll_gate_admit(ctypes.byref(one), ctypes.byref(request),
                                                          ctypes.byref(decision), now()), 0)
            self.assertEqual(decision.verdict, ADMIT)
            first = decision.id
            self.lib.plimsoll_gate_admit(ctypes.byref(two), ctypes.byref(request), ctypes.byref(decision), now())
            self.assertEqual((decision.verdict, decision.http), (LATER, 429))
            self.assertEqual(self.lib.plimsoll_gate_reason_text(decision.reason), b"memory")
            self.assertTrue(1000 <= decision.retry_after_ms <= 60000)
            self.assertEqual(self.lib.plimsoll_gate_release(ctypes.byref(two), ctypes.c_uint64(first), 20, 0, now()), 0)
            self.assertEqual(self.lib.plimsoll_gate_read(ctypes.byref(one), ctypes.byref(state), now()), 0)
            self.assertEqual((state.live, state.held_units, state.admitted), (0, 0, 1))
            other = self.config(200)
            self.assertEqual(self.lib.plimsoll_gate_open(ctypes.byref(Gate()), path, ctypes.byref(other), now()),
                             OTHER_CONFIG)
            request.prompt_tokens = 9000
            self.lib.plimsoll_gate_admit(ctypes.byref(one), ctypes.byref(request), ctypes.byref(decision), now())
            self.assertEqual((decision.verdict, decision.http), (NEVER, 400))
            self.lib.plimsoll_gate_close(ctypes.byref(two), now())
            self.lib.plimsoll_gate_close(ctypes.byref(one), now())


if __name__ == "__main__":
    plimtest.main()
