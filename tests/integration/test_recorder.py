#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recorder in programs that reach the device in every way there is, and in programs that go wrong.

What is recorded is compared with the simulated device's own books, to the byte.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

BUILD = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", str(plimtest.ROOT / "build")))
TOYS = BUILD / "tests" / "integration" / "recorder"
MIB = 1 << 20
RUNTIME = 8  # PLIM_EVENT_RUNTIME
HOOKS = r"^(?:HOOK|LOOKUP)\(\w+, (\w+),"  # a row of hooks.def


def base(name):
    return re.sub(r"(_v\d)?(_pt[sd][sz])?$", "", name)


class Session:
    """One run of a program under the recorder, and the files it left."""

    def __init__(self, mode, stdin=None, **settings):
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = tempfile.mkdtemp(prefix="plimsoll-recorder-", dir=shm)
        self.mode = mode
        self.env = dict(os.environ)
        self.env["LD_PRELOAD"] = "libplimsoll_record.so"  # a path in it may have no space
        self.env["LD_LIBRARY_PATH"] = f"{BUILD}/runtime/recorder:{BUILD}/runtime/simgpu/shells:{TOYS}"
        self.env["PLIMSOLL_RECORD_DIR"] = self.dir
        self.env["PLIMSOLL_SIM_GPU"] = "24GiB*2"
        self.env.update(settings)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def command(self):
        return [str(TOYS / "recorder_program"), self.mode]

    def run(self):
        self.result = subprocess.run(self.command(), env=self.env, capture_output=True, timeout=120, check=False)
        return self

    def answer(self):
        return json.loads(self.result.stdout.decode().splitlines()[-1])

    def files(self):
        found = []
        for name in sorted(os.listdir(self.dir)):
            out = subprocess.run([str(TOYS / "recorder_dump"), os.path.join(self.dir, name)],
                                 capture_output=True, timeout=60, check=True)
            found.append(json.loads(out.stdout))
        return found


def charged(record, device=0, owner=None):
    return sum(t["charged"] for t in record["totals"]
               if t["device"] == device and owner in (None, t["owner"]))


class RecorderTest(unittest.TestCase):
    def recorded(self, mode, **settings):
        """The answer of a program and its only file; both sides' books agree."""
        with Session(mode, **settings) as session:
            session.run()
            self.assertEqual(session.result.returncode, 0, session.result.stderr.decode())
            answer = session.answer()
            files = session.files()
        self.assertEqual(len(files), 1)
        self.agree(files[0], answer["used"])
        return answer, files[0]

    def agree(self, record, used):
        for device, books in enumerate(used):
            self.assertEqual(charged(record, device), books, f"device {device}: {record['totals']}")
        if record["counters"]["lost"] == 0:
            self.assertEqual(sum(e["charge"] for e in record["events"]), sum(used))
        seqs = [e["seq"] for e in record["events"] if e["kind"] != "lost"]
        self.assertEqual(seqs, list(range(1, len(seqs) + 1)))

    def events(self, record, kind):
        return [e for e in record["events"] if e["kind"] == kind]

    # ---- ways to a call

    def test_linked_calls_are_recorded_once(self):
        """calls of a linked program are recorded once, with their owner"""
        answer, record = self.recorded("linked")
        self.assertEqual([e["size"] for e in self.events(record, "alloc")], [1000, 5 * MIB, 20 * MIB])
        self.assertEqual(len(self.events(record, "free")), 2)
        self.assertEqual(charged(record, owner="application"), 20 * MIB)
        self.assertEqual([e["size"] for e in self.events(record, "host_free")], [4096])
        self.assertEqual(answer["null"], 0)
        self.assertEqual(record["events"][-1]["kind"], "exit")
        self.assertEqual(record["state"], 2)

    def test_dlsym_gives_hooks_and_everything_else_as_before(self):
        """functions found by dlsym are recorded; everything else is found as before"""
        answer, record = self.recorded("dlsym")
        self.assertEqual({k: v for k, v in answer.items() if k != "used"},
                         {"alloc": 0, "free": 0, "missing": 1, "error": 1, "default": 1, "strlen": 1, "next": 1})
        self.assertEqual([e["call"] for e in self.events(record, "alloc")],
                         ["cudaMalloc", "cuMemAlloc_v2", "cuMemAlloc_v2"])
        self.assertEqual([e["flags"] & RUNTIME for e in self.events(record, "alloc")], [RUNTIME, 0, 0])

    def test_cugetprocaddress_gives_hooks_itself_included(self):
        """cuGetProcAddress gives hooks, also when asked for itself, and says not-found as before"""
        answer, record = self.recorded("proc_address")
        self.assertEqual(answer["unknown_null"], 1)
        self.assertEqual(answer["unknown"], 0)
        self.assertEqual(answer["unknown_status"], 1)
        self.assertEqual([e["size"] for e in self.events(record, "alloc")], [2 * MIB, 8 * MIB, 10 * MIB])
        self.assertEqual([e["size"] for e in self.events(record, "free")], [8 * MIB])
        self.assertEqual(record["counters"]["unhooked"], 0)

    def test_libraries_with_their_own_runtime_own_their_memory(self):
        """a library that carries its own runtime is the owner of what it allocates"""
        _, record = self.recorded("libraries")
        self.assertEqual(charged(record, owner="cuBLAS"), 4 * MIB)
        self.assertEqual(charged(record, owner="NCCL"), 8 * MIB)
        self.assertEqual(charged(record, owner="other library"), 12 * MIB)
        self.assertEqual(charged(record, owner="application"), 2 * MIB)
        self.assertIn("libunheard_of.so", {os.path.basename(e["library"]) for e in self.events(record, "alloc")})

    # ---- sorts of memory

    def test_physical_memory_goes_with_its_last_use(self):
        """physical memory is charged once and goes with its last reference or mapping"""
        _, record = self.recorded("mapped")
        self.assertEqual(charged(record, owner="application"), 6 * MIB)
        releases = [(e["size"], e["call"]) for e in self.events(record, "release")]
        self.assertEqual(releases, [(0, "cuMemRelease"), (4 * MIB, "cuMemUnmap"), (4 * MIB, "cuMemRelease")])
        self.assertEqual(len(self.events(record, "map")), 3)
        self.assertEqual(len(self.events(record, "unmap")), 3)
        self.assertEqual([e["size"] for e in self.events(record, "unreserve")], [64 * MIB])

    def test_pools_cost_what_they_reserve(self):
        """a pool costs what it has reserved, not what was handed out of it"""
        _, record = self.recorded("pooled")
        self.assertEqual(len(self.events(record, "pool_alloc")), 5)
        self.assertEqual(len(self.events(record, "pool_grow")), 2)
        self.assertEqual([e["aux"] for e in self.events(record, "pool_shrink")], [0])
        self.assertEqual([e["size"] for e in self.events(record, "managed_free")], [4 * MIB])

    # ---- wrong programs

    def test_wrong_frees_are_counted_and_pass_through(self):
        """wrong releases are counted; the caller gets the error it would have got"""
        with Session("wrong_frees") as session:
            answer, record = session.run().answer(), session.files()[0]
        with Session("wrong_frees", PLIMSOLL_RECORD="0") as session:
            self.assertEqual(session.run().answer(), answer)
            self.assertEqual(session.files(), [])
        self.agree(record, answer["used"])
        self.assertEqual(charged(record, owner="application"), 4 * MIB)
        self.assertEqual(record["counters"]["double_frees"], 1)
        self.assertEqual(record["counters"]["unknown_frees"], 5)
        refused = [e for e in record["events"] if e["result"] != 0]
        self.assertEqual(len(refused), 6)
        self.assertEqual(refused[-1]["kind"], "alloc")
        self.assertEqual(refused[-1]["size"], 1 << 45)
        self.assertTrue(all(t["charged"] < 1 << 40 for t in record["totals"]))

    def test_devices_have_their_own_books(self):
        """each device has its own books, and a release on the wrong one is counted"""
        _, record = self.recorded("two_devices")
        self.assertEqual(charged(record, 0, "application"), 0)
        self.assertEqual(charged(record, 1, "application"), 12 * MIB)
        self.assertEqual(record["counters"]["wrong_device"], 1)

    # ---- processes and threads

    def test_children_have_files_of_their_own(self):
        """each forked child has a file of its own"""
        with Session("forked_before") as session:
            session.run()
            files = session.files()
        self.assertEqual(len(files), 4)
        self.assertEqual(sorted(charged(f, owner="application") for f in files),
                         [2 * MIB, 8 * MIB, 8 * MIB, 8 * MIB])

    def test_a_child_of_a_process_with_a_device_leaves_the_parents_books_alone(self):
        """a child forked after the first call records its failures in its own file"""
        with Session("forked_after") as session:
            answer, files = session.run().answer(), session.files()
        self.assertEqual(answer["child"], 3)
        parent = next(f for f in files if charged(f, owner="application"))
        child = next(f for f in files if f is not parent)
        self.agree(parent, answer["used"])
        self.assertEqual(child["events"][0]["kind"], "fork")
        self.assertEqual(child["events"][0]["addr"], parent["pid"])
        self.assertEqual([e["result"] for e in child["events"][1:]], [3])

    def test_a_program_started_by_exec_has_a_file_of_its_own(self):
        """a program that the process becomes has a file of its own"""
        with Session("exec") as session:
            session.run()
            files = session.files()
        self.assertEqual([f["program"] for f in files], [0, 1])
        self.assertEqual(len({f["pid"] for f in files}), 1)
        self.assertEqual(files[1]["events"][0]["kind"], "exec")

    def test_threads_agree_with_the_device(self):
        """calls of many threads add up to the device's books"""
        _, record = self.recorded("threads")
        self.assertEqual(record["counters"]["unknown_frees"], 0)
        self.assertGreater(len({e["thread"] for e in record["events"]}), 7)

    def test_forks_of_a_threaded_program_do_no_harm(self):
        """a threaded program may fork at any moment"""
        with Session("threads_that_fork") as session:
            answer = session.run().answer()
            files = session.files()
        self.assertEqual(answer["crashed_children"], 0)
        parent = max(files, key=lambda f: f["counters"]["events"])
        self.agree(parent, answer["used"])

    def test_signal_handlers_may_call(self):
        """calls from a signal handler are recorded like others"""
        _, record = self.recorded("signals")
        self.assertEqual(len(self.events(record, "alloc")), 2000)

    # ---- ends

    def test_late_releases_are_recorded(self):
        """a release from an exit handler is recorded"""
        with Session("frees_at_exit") as session:
            session.run()
            record = session.files()[0]
        self.assertEqual(charged(record, owner="application"), 0)
        self.assertEqual(len(self.events(record, "free")), 1)

    def test_a_process_may_end_in_any_way(self):
        """what was recorded is there after _exit, abort and kill"""
        for mode, status in (("_exit", 3), ("abort", -signal.SIGABRT)):
            with self.subTest(mode), Session(mode) as session:
                session.run()
                self.assertEqual(session.result.returncode, status)
                record = session.files()[0]
                self.assertEqual(charged(record, owner="application"), 4 * MIB)
        with Session("wait") as session:
            process = subprocess.Popen(session.command(), env=session.env, stdout=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.kill()
            process.wait()
            process.stdout.close()
            self.assertEqual(charged(session.files()[0], owner="application"), 4 * MIB)

    # ---- places that have no room

    def test_a_ring_that_is_too_small_loses_events_but_not_totals(self):
        """a full ring loses events and says so; the totals stay right"""
        _, record = self.recorded("fill", PLIMSOLL_RECORD_RING="64")
        lost = self.events(record, "lost")
        self.assertEqual(len(lost), 1)
        self.assertEqual(lost[0]["size"], record["counters"]["lost"])
        self.assertEqual(record["counters"]["events"], 64 + lost[0]["size"])

    def test_without_a_place_to_write_programs_run_as_before(self):
        """a session folder that is missing, read-only or full changes nothing for the program"""
        with Session("linked", PLIMSOLL_RECORD="0") as session:
            plain = session.run().answer()
        for settings in ({"PLIMSOLL_RECORD_DIR": "/nowhere/at/all"}, {"PLIMSOLL_RECORD_DIR": "/proc"},
                         {"PLIMSOLL_RECORD_DIR": ""}):
            with self.subTest(**settings), Session("linked", **settings) as session:
                self.assertEqual(session.run().answer(), plain)
                self.assertEqual(session.result.stderr, b"")
        with Session("linked") as session:
            command = ["/bin/sh", "-c", 'ulimit -f 64; exec "$@"', "sh", *session.command()]
            result = subprocess.run(command, env=session.env, capture_output=True, timeout=60, check=False)
            self.assertEqual(json.loads(result.stdout), plain)
            self.assertEqual(os.listdir(session.dir), [])

    # ---- stacks

    def test_stacks_are_kept_when_asked_for(self):
        """native stacks are recorded when asked for, cached or walked each time"""
        for how in ("cached", "full"):
            _, record = self.recorded("linked", PLIMSOLL_RECORD_STACKS=how)
            self.assertTrue(all(e["frames"] >= 3 for e in self.events(record, "alloc")))
        _, record = self.recorded("linked")
        self.assertTrue(all(e["frames"] == 0 for e in self.events(record, "alloc")))

    def test_programs_without_a_device_leave_no_file(self):
        """a program that never touches a device leaves no file"""
        with Session("linked") as session:
            subprocess.run(["/bin/ls", "/"], env=session.env, check=True, stdout=subprocess.DEVNULL, timeout=60)
            self.assertEqual(os.listdir(session.dir), [])

    def test_functions_that_are_nowhere_are_not_found(self):
        """without a driver a search for its functions fails as it does without us, and dlerror says so"""
        code = """if True:
            import ctypes
            c = ctypes.CDLL(None)
            c.dlsym.restype, c.dlsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
            c.dlerror.restype = ctypes.c_char_p
            for name in (b"cudaMalloc", b"cuMemAlloc_v2", b"strlen"):
                print(c.dlsym(None, name) is not None, name in (c.dlerror() or b""))
            """
        with Session("linked") as session:
            done = subprocess.run([sys.executable, "-c", code], env=session.env, capture_output=True, timeout=60)
            self.assertEqual(done.stdout.split(), [b"False", b"True", b"False", b"True", b"True", b"False"],
                             done.stderr.decode())


class SymbolsTest(unittest.TestCase):
    def test_nothing_but_hooks_is_exported(self):
        """the recorder exports the rows of its table and dlsym, and nothing else"""
        out = subprocess.run(["nm", "-D", "--defined-only", str(BUILD / "runtime/recorder/libplimsoll_record.so")],
                             capture_output=True, check=True, timeout=60).stdout.decode()
        table = (plimtest.ROOT / "runtime" / "recorder" / "hooks.def").read_text()
        rows = set(re.findall(HOOKS, table, re.M))
        self.assertEqual({line.split()[-1] for line in out.splitlines()}, rows | {"dlsym"})

    def test_every_entry_point_that_touches_memory_is_hooked_or_has_a_reason(self):
        """every entry point of CUDA 13.0 that touches memory is hooked, or listed with the reason why not"""
        runtime = plimtest.ROOT / "runtime"
        hooks = set(re.findall(HOOKS, (runtime / "recorder" / "hooks.def").read_text(), re.M))
        coverage = (runtime / "recorder" / "coverage.def").read_text()
        words = re.findall(r'^WORD\("(\w+)"\)', coverage, re.M)
        passed = set(re.findall(r"^PASSED\((\w+),", coverage, re.M))
        # All names of the CUDA 13.0 headers, and those of CUDA 12 that differ.
        every = re.findall(r"^SIM_HOOK\((?:cuda|cudart), (\w+),", (runtime / "simgpu" / "hooks.def").read_text(),
                           re.M)
        self.assertGreater(len(every), 700)
        touching = {n for n in every if any(w in n for w in words)}
        self.assertEqual({n for n in touching if n not in hooks and base(n) not in passed}, set())
        self.assertEqual(hooks & passed, set())
        bases = {base(n) for n in every}
        self.assertEqual({n for n in hooks if base(n) not in bases}, set())
        self.assertEqual({n for n in passed if n not in bases}, set())
        self.assertEqual({n for n in hooks | passed if not any(w in n for w in words)}, set())


if __name__ == "__main__":
    plimtest.main()
