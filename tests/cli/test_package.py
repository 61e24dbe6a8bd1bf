#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package without PyTorch: the notes of a program, the layout it shares with other processes, and the
verbs as functions.
"""

import asyncio
import json
import os
import pathlib
import pickle
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_python import PACKAGE, Case, plimsoll, plimtest  # noqa: E402
from plimsoll import _notes, _share  # noqa: E402

SNAPSHOT = plimtest.ROOT / "tests" / "data" / "snapshots" / "simulated" / "hf-llama8b-oom-24g.pickle"


class NotesTest(unittest.TestCase):
    def test_tasks_have_their_own(self):
        """tasks of an event loop that take turns each have their own note, and threads they start inherit it"""

        async def work(name):
            with plimsoll.annotate(name):
                for _ in range(3):
                    await asyncio.sleep(0)
                inside = _notes.current.get()
                thread = await asyncio.to_thread(_notes.current.get)
            return inside, thread, _notes.current.get()

        async def all_of_them():
            return await asyncio.gather(*(work(f"r{i}") for i in range(4)))

        for i, (inside, thread, after) in enumerate(asyncio.run(all_of_them())):
            self.assertEqual(inside, json.dumps({"request_id": f"r{i}"}, separators=(",", ":")))
            self.assertEqual(thread, inside)
            self.assertEqual(after, "")

    def test_blocks_nest(self):
        """a block restores the note of the block around it, also when it fails"""
        with plimsoll.annotate("a", shape="x"):
            with self.assertRaises(KeyError), plimsoll.annotate("b"):
                raise KeyError
            self.assertIn('"a"', _notes.current.get())
        self.assertEqual(_notes.current.get(), "")
        plimsoll.note("c", stage="prefill")
        self.assertEqual(json.loads(_notes.current.get()), {"request_id": "c", "stage": "prefill"})
        plimsoll.note()
        self.assertEqual(_notes.current.get(), "")

    def test_anything_can_be_noted(self):
        """what JSON has no form for is written as text, and what is too long is cut, not refused"""
        plimsoll.note("x", shape={"dtype": object})
        self.assertIn("class", _notes.current.get())
        loop = {}
        loop["loop"] = loop
        for shape in ({("a", 1): 2}, {"x": float("nan")}, loop):
            plimsoll.note("x", shape=shape)
            self.assertEqual(json.loads(_notes.current.get())["request_id"], "x")
        plimsoll.note("y" * 5000)
        self.assertLess(len(_notes.current.get()), _notes.LONGEST)
        plimsoll.note()


class ShareTest(Case):
    HEADER = plimtest.ROOT / "include" / "plimsoll" / "shm.h"

    def c_offsets(self):
        """Every member of the three structures and its offset, as the C compiler sees them."""
        lines = []
        for name, kind in (("device", _share.Device), ("note", _share.Note), ("file", _share.File)):
            lines += [f'printf("{name}.{m} %zu\\n", offsetof(struct plim_attach_{name}, {m}));'
                      for m, _ in kind._fields_]
            lines.append(f'printf("{name} %zu\\n", sizeof(struct plim_attach_{name}));')
        source = self.folder / "offsets.c"
        source.write_text("#include <plimsoll/shm.h>\n#include <stdio.h>\nint main(void){" + "".join(lines) + "}")
        program = self.folder / "offsets"
        subprocess.run(["cc", "-std=gnu11", f"-I{plimtest.ROOT / 'include'}", str(source), "-o", str(program)],
                       check=True)
        return dict(line.split() for line in subprocess.run([str(program)], stdout=subprocess.PIPE, check=True)
                    .stdout.decode().splitlines())

    def test_the_layout_is_that_of_the_header(self):
        """sizes and offsets in Python are those of include/plimsoll/shm.h"""
        import ctypes
        wanted = {}
        for name, kind in (("device", _share.Device), ("note", _share.Note), ("file", _share.File)):
            wanted.update({f"{name}.{m}": str(getattr(kind, m).offset) for m, _ in kind._fields_})
            wanted[name] = str(ctypes.sizeof(kind))
        self.assertEqual(self.c_offsets(), wanted)

    def test_what_other_processes_see(self):
        """figures, notes and the end of the process are in the file; a second one does not overwrite it"""
        os.environ["PLIMSOLL_RECORD_DIR"] = str(self.session)
        self.addCleanup(os.environ.pop, "PLIMSOLL_RECORD_DIR")
        share = _share.Share(3, "{}")
        share.publish(1, {"allocated_bytes": {"all": {"current": 5, "peak": 9}}, "num_ooms": 2}, 100)
        number = share.begin_note('{"request_id":"r"}')
        for i in range(20):
            share.end_note(share.begin_note(f'{{"request_id":"{i}"}}'))
        share.end_note(number)  # its slot is long another's
        seen = _share.File.from_buffer_copy(pathlib.Path(share.path).read_bytes())
        row = seen.device[1]
        self.assertEqual((seen.magic, seen.pid, seen.rank, seen.state), (b"PLIMATT1", os.getpid(), 3, 1))
        self.assertEqual((row.valid, row.lock, row.allocated, row.peak_allocated, row.num_ooms, row.device_total),
                         (1, 2, 5, 9, 2, 100))
        self.assertEqual(row.device_free, _share.NOT_ASKED)
        self.assertEqual(sorted(n.number for n in seen.note), list(range(6, 22)))
        self.assertTrue(all(n.end_ns >= n.time_ns for n in seen.note))
        another = _share.Share(-1, "{}")
        self.assertNotEqual(another.path, share.path)
        another.close()
        self.assertEqual(_share.File.from_buffer_copy(pathlib.Path(another.path).read_bytes()).state, 2)

    def test_files_of_dead_processes_are_swept(self):
        """files of processes that are gone are removed, those of the living stay"""
        living = f"{os.getpid()}-{_share.start_ticks(os.getpid())}.0.plimattach"
        for name in (living, f"{os.getpid()}-1.0.plimattach", "4194304-5.0.plimattach", "other"):
            (self.session / name).write_text("")
        _share.sweep(str(self.session))
        self.assertEqual(sorted(p.name for p in self.session.iterdir()), sorted([living, "other"]))


class VerbsTest(Case):
    def test_answers_are_the_programs(self):
        """each verb as a function gives the answer that the program prints, and options are keywords"""
        told = plimsoll.explain((plimtest.ROOT / "tests/data/oom/pytorch-fragmented.txt").read_text())
        self.assertEqual(plimtest.schema_complaints(told), [])
        self.assertEqual(told["verdict"]["class"], "fragmentation")
        judged = plimsoll.diagnose(SNAPSHOT, device_memory="24GiB", rows=1, no_replay=True)
        self.assertEqual(plimtest.schema_complaints(judged), [])
        self.assertEqual((judged["ledger"]["total"]["bytes"], len(judged["blame"])), (24 << 30, 1))
        again = plimsoll.replay(SNAPSHOT, "expandable_segments:True")
        self.assertEqual(plimtest.schema_complaints(again), [])
        self.assertIsNone(again["first_oom"])
        self.assertEqual(plimtest.schema_complaints(plimsoll.diff(str(SNAPSHOT), str(SNAPSHOT))), [])
        tuned = plimsoll.tune(SNAPSHOT, vary="max_split_size_mb")
        self.assertEqual(plimtest.schema_complaints(tuned), [])

    def test_the_types_name_what_is_always_there(self):
        """the typed answers name only keys that the schemas have"""
        from plimsoll import _api
        for verb, kind in (("explain", _api.Explanation), ("diagnose", _api.Diagnosis), ("replay", _api.Replay),
                           ("tune", _api.Tuning), ("diff", _api.Difference), ("dryrun", _api.DryRun)):
            schema = json.loads((plimtest.SCHEMAS / f"{verb}.json").read_text())
            self.assertLessEqual(set(kind.__annotations__), set(schema["properties"]), verb)

    def test_errors_are_exceptions(self):
        """errors have the exit status, its name, a message and a hint, and are of the kinds Python knows"""
        with self.assertRaises(plimsoll.InputMissing) as caught:
            plimsoll.diagnose("/nonexistent")
        self.assertIsInstance(caught.exception, FileNotFoundError)
        self.assertEqual((caught.exception.exit_code, caught.exception.status), (66, "E_NOINPUT"))
        self.assertIn("cannot open '/nonexistent'", caught.exception.message)
        self.assertTrue(caught.exception.hint)
        with self.assertRaises(plimsoll.DataError):
            plimsoll.diagnose(__file__)
        with self.assertRaises(plimsoll.UsageError) as caught:
            plimsoll.diagnose(SNAPSHOT, colour="blue")
        self.assertIn("--colour", caught.exception.message)
        self.assertEqual(pickle.loads(pickle.dumps(caught.exception)).message, caught.exception.message)
        with self.assertRaises(plimsoll.InputMissing):
            plimsoll.diagnose("--help")
        with self.assertRaises(plimsoll.UsageError):
            plimsoll.diagnose(SNAPSHOT, output="file")

    def test_the_names_of_exit_codes_are_those_of_the_header(self):
        """the names of exit codes are those of include/plimsoll/status.h"""
        import re
        from plimsoll import _program
        rows = re.findall(r"^\s+X\((E_\w+), \"[^\"]+\", (\d+),", (plimtest.ROOT / "include/plimsoll/status.h").read_text(),
                          re.MULTILINE)
        first = {}
        for name, code in rows:
            first.setdefault(int(code), name)
        self.assertEqual(_program.NAMES, first)

    def test_python_m_is_the_program(self):
        """python -m plimsoll is the program"""
        result = subprocess.run([sys.executable, "-m", "plimsoll", "version"], capture_output=True, check=True,
                                env=dict(os.environ, PYTHONPATH=str(PACKAGE)))
        self.assertTrue(result.stdout.startswith(b"plimsoll "))


if __name__ == "__main__":
    plimtest.main()
