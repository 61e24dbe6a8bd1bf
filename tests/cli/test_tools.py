#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The project's own checkers find what they are for: each is shown a small tree with one fault in it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

TOOLS = plimtest.ROOT / "tools"
LICENCE = "/* SPDX-License-Identifier: Apache-2.0 */\n"


class ToolsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("include/plimsoll", "src", "runtime", "tests", "build/src"):
            (self.root / name).mkdir(parents=True)

    def put(self, path, text):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")

    def tool(self, name, *args):
        return subprocess.run([sys.executable, TOOLS / name, *map(str, args)], capture_output=True, text=True,
                              check=False)

    def refuses(self, name, word):
        result = self.tool(name, self.root)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(word, result.stdout)

    def accepts(self, name):
        result = self.tool(name, self.root)
        self.assertEqual(result.returncode, 0, result.stdout)


class LayersTest(ToolsTest):
    def test_forward_is_accepted(self):
        """check_layers: includes in the direction of the layers are accepted"""
        self.put("src/diagnose/a.c", '#include "heap/heap.h"\n#include "diagnose/b.h"\n#include <stdio.h>\n')
        self.put("runtime/shm/a.c", '#include "shm.h"\n')
        self.put("runtime/shm/shm.h", "")
        self.accepts("check_layers.py")

    def test_backward_is_refused(self):
        """check_layers: an include against the direction is refused with its line"""
        self.put("src/heap/a.c", '\n#include "diagnose/verdict.h"\n')
        self.refuses("check_layers.py", "a.c:2: heap may not include diagnose")

    def test_neighbours_are_refused(self):
        """check_layers: format and alloc do not know each other, nor do cli and watch"""
        self.put("src/format/a.c", '#include "alloc/conf.h"\n')
        self.put("src/watch/a.c", '#include "cli/verbs.h"\n')
        self.refuses("check_layers.py", "format may not include alloc")
        self.refuses("check_layers.py", "watch may not include cli")

    def test_runtime_stands_alone(self):
        """check_layers: runtime may not include the library"""
        self.put("src/base/arena.h", "")
        self.put("runtime/shm/a.c", '#include "base/arena.h"\n')
        self.refuses("check_layers.py", "runtime may not include base/arena.h")

    def test_unknown_folder_is_refused(self):
        """check_layers: a folder that the table does not know is refused"""
        self.put("src/misc/a.c", "")
        self.refuses("check_layers.py", "src/misc is not in the table")

    def test_include_without_folder_is_refused(self):
        """check_layers: a header is included by its path from src/"""
        self.put("src/base/a.c", '#include "arena.h"\n')
        self.refuses("check_layers.py", "by its path")


class HeadersTest(ToolsTest):
    def test_a_header_that_needs_another_is_refused(self):
        """check_headers: a header that does not compile alone is refused"""
        self.put("src/base/good.h", "#include <stdint.h>\nuint64_t f(void);\n")
        self.accepts("check_headers.py")
        self.put("src/base/bad.h", "uint64_t g(void);\n")
        self.refuses("check_headers.py", "bad.h: does not compile alone as c")

    def test_a_public_header_must_be_cpp(self):
        """check_headers: a public header that is no C++ is refused"""
        self.put("include/plimsoll/bad.h", "int class(int new);\n")
        self.refuses("check_headers.py", "as c++")


class SizeTest(ToolsTest):
    def test_long_functions_and_files_are_refused(self):
        """check_size: a function over 100 lines and a file over 1000 are refused"""
        self.put("src/base/a.c", LICENCE + "int f(void)\n{\n" + "    x();\n" * 98 + "}\n")
        self.accepts("check_size.py")
        self.put("src/base/b.c", LICENCE + "int g(void)\n{\n" + "    x();\n" * 99 + "}\n")
        self.refuses("check_size.py", "g() has 101 lines")
        self.put("src/base/c.c", LICENCE + "\n" * 1000)
        self.refuses("check_size.py", "1001 lines")

    def test_leftovers_and_missing_licences_are_refused(self):
        """check_size: something left to do, or a file without a licence, is refused"""
        self.put("src/base/a.c", LICENCE + "/* TO" "DO: later */\n")
        self.refuses("check_size.py", "left to do")
        self.put("src/base/a.c", "int x;\n")
        self.refuses("check_size.py", "first line")


class SummaryTest(ToolsTest):
    def log(self, *tests):
        self.put("testlog.json", "".join(json.dumps(t) + "\n" for t in tests))
        sys.path.insert(0, str(TOOLS))
        import ci_summary

        return ci_summary.count_testlog(self.root / "testlog.json")

    def test_tap_points_are_counted_one_by_one(self):
        """ci_summary: every TAP point counts"""
        text = "TAP version 13\nok 1 - a\nnot ok 2 - b\nok 3 # SKIP no torch\nok 4\n  ok 1 - inner\n1..4\n"
        self.assertEqual(self.log({"name": "x", "result": "FAIL", "stdout": text}), (2, 1, 1))

    def test_a_test_that_dies_is_a_failure(self):
        """ci_summary: a test that dies after good points is a failure"""
        self.assertEqual(self.log({"result": "ERROR", "stdout": "ok 1\nok 2\n"}), (2, 1, 0))
        self.assertEqual(self.log({"result": "TIMEOUT", "stdout": ""}), (0, 1, 0))

    def test_a_plain_program_counts_as_one(self):
        """ci_summary: a test without TAP counts as one"""
        self.assertEqual(self.log({"result": "OK", "stdout": ""}, {"result": "SKIP"}), (1, 0, 1))

    def test_a_missing_log_is_a_failure(self):
        """ci_summary: a missing log is a failure, and so are results of nothing"""
        result = self.tool("ci_summary.py", self.root / "none.json")
        self.assertEqual((result.returncode, result.stdout), (1, "0 passed, 1 failed, 0 skipped\n"))
        self.put("results.json", "[]")
        self.assertEqual(self.tool("ci_summary.py", self.root / "results.json").returncode, 1)

    def test_the_closing_line_sums_the_stages(self):
        """ci_summary: the closing line is the sum of the stages"""
        self.put("results.json", json.dumps([{"counts": [3, 0, 1]}, {"counts": [4, 0, 0]}]))
        result = self.tool("ci_summary.py", self.root / "results.json")
        self.assertEqual((result.returncode, result.stdout), (0, "7 passed, 0 failed, 1 skipped\n"))

    def test_what_failed_stands_before_the_closing_line(self):
        """ci_summary: each failing point is named with the end of its reason, and so is a test that just stopped"""
        text = "ok 1 - a\nnot ok 2 - b\n# Traceback\n# " + "x" * 999 + "\n# AssertionError: 3 != 4\nok 3 - c\n1..3\n"
        self.log({"name": "t", "result": "ERROR", "stdout": text}, {"name": "good", "result": "OK", "stdout": "ok 1\n"},
                 {"name": "u", "result": "TIMEOUT", "stdout": "ok 1 - d\nlast words\n"})
        import ci_summary

        failures = ci_summary.failures_of_testlog(self.root / "testlog.json")
        self.assertEqual(failures, [["t: not ok 2 - b", "Traceback", "x" * 300, "AssertionError: 3 != 4"],
                                    ["u: TIMEOUT", "ok 1 - d", "last words"]])
        self.put("results.json", json.dumps([{"stage": "tests", "counts": [3, 2, 0], "failures": failures}]))
        result = self.tool("ci_summary.py", self.root / "results.json")
        self.assertEqual(result.stdout.splitlines(), [
            "failed in tests: t: not ok 2 - b", "    Traceback", "    " + "x" * 300, "    AssertionError: 3 != 4",
            "failed in tests: u: TIMEOUT", "    ok 1 - d", "    last words", "3 passed, 2 failed, 0 skipped"])


class CasesTest(ToolsTest):
    CASES = ("@@ case a\n$ printf 'one\\ntwo 2\\nthree\\n'\n@@ stdout{}\n{}@@ end\n")

    def run_cases(self, how, lines, *flags):
        self.put("x.case", self.CASES.format(how, lines))
        return subprocess.run([sys.executable, plimtest.ROOT / "tests" / "cli" / "run_cases.py", *flags,
                               self.root / "x.case"], capture_output=True, text=True, check=False)

    def test_exact_and_glob_blocks_compare(self):
        """run_cases: exact blocks want every byte, glob blocks know * and ..."""
        self.assertEqual(self.run_cases("", "one\ntwo 2\nthree\n").returncode, 0)
        self.assertEqual(self.run_cases("", "one\ntwo 2\n").returncode, 1)
        self.assertEqual(self.run_cases(" glob", "one\ntwo *\n...\n").returncode, 0)
        self.assertEqual(self.run_cases(" glob", "...\nthree\n").returncode, 0)
        self.assertEqual(self.run_cases(" glob", "one\nthree\n").returncode, 1)

    def test_refresh_writes_what_was_said(self):
        """run_cases: --refresh writes the present answer and leaves the rest of the file"""
        self.assertEqual(self.run_cases("", "wrong\n", "--refresh").returncode, 0)
        self.assertEqual((self.root / "x.case").read_text(), self.CASES.format("", "one\ntwo 2\nthree\n"))


if __name__ == "__main__":
    plimtest.main()
