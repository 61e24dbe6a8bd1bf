#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package without PyTorch: what it does to a process (nothing, until asked), its settings, and the files
it keeps. The notes of a program, what it shares, and the verbs as functions: test_package.py.

Where PyTorch is needed, a module of a few lines stands for it; tests/integration/test_attach.py has the real one.
"""

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

PACKAGE = plimtest.ROOT / "python"
sys.path.insert(0, str(PACKAGE))
os.environ["PLIMSOLL_PROGRAM"] = plimtest.PROGRAM

import plimsoll  # noqa: E402
from plimsoll import _facts, _keep, _settings, _share  # noqa: E402

# Stands for PyTorch: an allocator that is only numbers, and which calls back as the real one does.
TORCH = '''
import os
class version: cuda = os.environ.get("FAKE_CUDA", "13.0") or None
__version__ = "2.14.1+fake"
class OutOfMemoryError(RuntimeError): pass
class _C:
    observers = []
    history = False
    metadata = ""
    def _cuda_getDeviceCount(): return 1
    def _cuda_memoryStats(device):
        one = {"current": 5 << 20, "peak": 6 << 20, "allocated": 0, "freed": 0}
        return {"allocated_bytes": {"all": one}, "reserved_bytes": {"all": one}, "num_ooms": 1}
    def _cuda_isHistoryEnabled(): return _C.history
    def _cuda_attach_out_of_memory_observer(f): _C.observers.append(f)
    def _cuda_memoryMetadataSupported(): return True
    def _cuda_getMemoryMetadata(): return _C.metadata
    def _cuda_setMemoryMetadata(text): _C.metadata = text
class Card:
    name, total_memory = "fake", 8 << 30
class memory:
    calls = []
    def _record_memory_history(enabled="all", **how):
        memory.calls.append((enabled, how)); _C.history = enabled is not None
    def _snapshot():
        return {"segments": [], "device_traces": [[{"action": "oom", "device_free": 1, "size": 7, "stream": 0}]]}
class cuda:
    memory = memory
    on, queue = False, []
    def is_initialized(): return cuda.on
    def get_device_properties(device): return Card
    def _lazy_call(f): cuda.queue.append(f)
    def init():
        for f in cuda.queue: f()
        cuda.on = True
def run_out():
    for f in _C.observers: f(0, 7 << 20, 8 << 30, 1 << 20)
    raise OutOfMemoryError("CUDA out of memory.")
'''


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.session = self.folder / "session"
        self.session.mkdir()
        self.out = self.folder / "out"

    def python(self, code, *args, code_wanted=0, **env):
        """Run code in a fresh interpreter that finds the package and the module that stands for PyTorch."""
        (self.folder / "torch.py").write_text(TORCH)
        full = plimtest.clean_environment(self.folder, PYTHONPATH=f"{PACKAGE}:{self.folder}",
                                          PLIMSOLL_RECORD_DIR=str(self.session), PLIMSOLL_ATTACH_DIR=str(self.out))
        full.update(env)
        result = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, args)], capture_output=True,
                                env=full, timeout=plimtest.PATIENCE + 30, check=False, cwd=self.folder)
        self.assertEqual(result.returncode, code_wanted, result.stderr.decode())
        self.err = result.stderr.decode()
        return result.stdout.decode()

    def snapshots(self):
        return sorted(self.out.glob("*.pickle"))


class QuietTest(Case):
    def test_importing_the_package_does_nothing(self):
        """importing the package imports neither torch nor what attach needs, and starts nothing"""
        out = self.python("""
            import sys, threading
            before = list(sys.meta_path)
            import plimsoll
            heavy = {"torch", "ctypes", "asyncio", "subprocess", "plimsoll._attach"}
            print(sorted(heavy & set(sys.modules)), threading.active_count(), sys.meta_path == before)
        """)
        self.assertEqual(out, "[] 1 True\n")

    def test_the_start_hook_waits_for_torch(self):
        """switched on, the start hook imports no torch, and records when the program uses CUDA"""
        out = self.python("""
            import sys
            print("plimsoll._attach" in sys.modules, "torch" in sys.modules)
            import torch
            print(torch.memory.calls, len(torch._C.observers))
            torch.cuda.init()
            print(torch.memory.calls, len(torch._C.observers))
        """, PLIMSOLL_ATTACH="1", PLIMSOLL_ATTACH_EVENTS="777")
        self.assertEqual(out.splitlines(), [
            "False False", "[] 0", "[('all', {'max_entries': 777, 'stacks': 'python'})] 1"])
        self.assertEqual(self.err, "")

    def test_switched_off_it_is_not_there(self):
        """without PLIMSOLL_ATTACH, or with 0, nothing is recorded"""
        for value in ("", "0", "off"):
            out = self.python("""
                import sys, torch
                torch.cuda.init()
                print(torch.memory.calls, len(torch._C.observers))
            """, PLIMSOLL_ATTACH=value)
            self.assertEqual(out, "[] 0\n", value)

    def test_a_torch_without_cuda_is_left_alone(self):
        """a build without CUDA is left alone, and looking for a module is not importing it"""
        out = self.python("""
            import importlib.util, sys
            print(importlib.util.find_spec("torch") is not None, "torch" in sys.modules)
            import torch
            print(torch.__spec__.loader.__class__.__module__)
            print(torch.cuda.queue)
        """, PLIMSOLL_ATTACH="1", FAKE_CUDA="")
        found, loader, queue = out.splitlines()
        self.assertEqual((found, queue), ("True False", "[]"))
        self.assertTrue(loader.endswith("importlib_external"), "the module keeps its own loader")


    def test_start_hooks_of_several_tools(self):
        """start hooks of several tools that hide each other all run, once each, in any order"""
        own = self.folder / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("print('own')")
        other = self.folder / "other"  # as dryrun has one
        other.mkdir()
        (other / "sitecustomize.py").write_text(textwrap.dedent("""
            import os, sys
            from plimsoll import _hooks
            sys.meta_path.insert(0, _hooks.AfterImport({"torch": lambda m: print("other")}, print))
            _hooks.run_hidden_sitecustomize(os.path.dirname(os.path.abspath(__file__)))
        """))
        for folders in ((PACKAGE, other, own), (other, PACKAGE, own)):
            out = self.python("import torch; torch.cuda.init(); print(len(torch._C.observers))", PLIMSOLL_ATTACH="1",
                              PYTHONPATH=":".join(map(str, [*folders, self.folder])))
            self.assertEqual(out.split(), ["own", "other", "1"], folders)
            self.assertEqual(self.err, "")


class TagTest(Case):
    PROGRAM = """
        import torch, plimsoll
        torch.cuda.init()
        if OLD:
            del torch._C._cuda_memoryMetadataSupported
        torch._C.metadata = BEFORE
        with plimsoll.annotate("r1"):
            print(torch._C.metadata)
        print(torch._C.metadata)
    """

    def test_allocations_are_tagged(self):
        """a block tags the thread's allocations, also on a torch that cannot say whether it can, and takes it back"""
        for old in ("0", "1"):
            out = self.python(self.PROGRAM.replace("OLD", old).replace("BEFORE", "''"))
            self.assertEqual(out, '{"request_id":"r1"}\n\n')

    def test_a_programs_own_tag_stays(self):
        """where the program tags its allocations itself, its tag stays"""
        self.assertEqual(self.python(self.PROGRAM.replace("OLD", "0").replace("BEFORE", "'mine'")), "mine\nmine\n")


class AttachTest(Case):
    PROGRAM = """
        import sys, torch, plimsoll
        plimsoll.attach()
        torch.cuda.init()
        try:
            with plimsoll.annotate("r1", shape={"batch": 8}):
                torch.run_out()
        except torch.OutOfMemoryError as error:
            print(error)
    """

    def test_a_snapshot_when_memory_runs_out(self):
        """when memory runs out a snapshot with the facts is there, and the program sees its own error"""
        self.assertEqual(self.python(self.PROGRAM), "CUDA out of memory.\n")
        path, = self.snapshots()
        self.assertEqual(self.err.count("\n"), 1)
        self.assertIn(str(path), self.err)
        snapshot = pickle.loads(path.read_bytes())
        facts = json.loads(snapshot["plimsoll"])
        self.assertEqual(facts["schema"], "plimsoll.drop/1")
        self.assertEqual((facts["device"], facts["request_bytes"], facts["device_free_bytes"],
                          facts["device_total_bytes"]), (0, 7 << 20, 1 << 20, 8 << 30))
        self.assertEqual(facts["tags"], {"request_id": "r1", "batch": 8})
        self.assertNotIn("environment", facts)
        judged = plimsoll.diagnose(path)
        self.assertEqual(judged["failure"]["work"], {"request_id": "r1", "batch": 8})
        self.assertEqual(judged["ledger"]["total"]["bytes"], 8 << 30)
        self.assertIn("at work on request_id r1, batch 8", judged["verdict"]["summary"])

    def test_where_incidents_are_made_a_drop_is_left(self):
        """where incidents are made a complete drop is left for their owner, with no secret in it"""
        place = self.folder / "incidents"
        self.python(self.PROGRAM, PLIMSOLL_INCIDENT_DIR=str(place), PLIMSOLL_INCIDENT_OWNER=str(os.getpid()),
                    HF_TOKEN="hf_x", VLLM_API_KEY="k", NCCL_DEBUG="INFO")
        drop, = place.iterdir()
        self.assertRegex(drop.name, r"^drop-\d+-1$")
        facts = json.loads((drop / "facts.json").read_text())
        self.assertEqual(facts["kind"], "oom")
        self.assertEqual(facts["environment"]["NCCL_DEBUG"], "INFO")
        self.assertEqual([n for n in facts["environment"] if "TOKEN" in n or "KEY" in n], [])
        self.assertTrue((drop / "snapshot.pickle").stat().st_size)
        self.assertEqual(self.snapshots(), [])

    def test_a_drop_of_the_same_name(self):
        """a drop that another process of that number left is not touched"""
        for n in (1, 2):
            (self.folder / f"drop-{os.getpid()}-{n}").mkdir()
        with _keep.Drop(str(self.folder), 1) as drop:
            drop.facts({"a": 1})
        self.assertEqual(drop.path, str(self.folder / f"drop-{os.getpid()}-3"))
        self.assertEqual([pathlib.Path(p).name[-1] for p in _keep.drops(str(self.folder))], ["1", "2", "3"])
        self.assertEqual(_keep.prune(_keep.drops(str(self.folder)), 1, 100), 2)

    def test_the_list_of_kept_names_is_that_of_the_documentation(self):
        """the environment that is written down is that of the incident's documentation"""
        text = (plimtest.ROOT / "docs" / "format" / "incident.md").read_text()
        part = text[text.index("## What is kept of the environment"):text.index("## What is removed")]
        names = [w.strip("`") for w in part.replace(",", " ").replace(".", " ").split() if w.startswith("`")]
        self.assertEqual(sorted(names), sorted(_facts.KEPT + _facts.KEPT_WHOLE + _facts.SECRET))

    def test_who_records_already_goes_on(self):
        """a history that the program records itself is neither restarted nor stopped; its observer stays"""
        out = self.python("""
            import torch, plimsoll
            torch._C._cuda_attach_out_of_memory_observer(lambda *a: print("theirs"))
            torch.memory._record_memory_history(max_entries=5)
            torch.cuda.init()
            plimsoll.attach()
            try:
                torch.run_out()
            except torch.OutOfMemoryError:
                pass
            plimsoll.detach()
            print(torch.memory.calls)
        """)
        self.assertEqual(out.splitlines(), ["theirs", "[('all', {'max_entries': 5})]"])
        self.assertIn("records the allocator's history itself", self.err)

    def test_detach_stops_what_attach_started(self):
        """detach stops the history, the thread and the signal; a later failure leaves nothing"""
        out = self.python("""
            import signal, threading, torch, plimsoll
            plimsoll.attach()
            torch.cuda.init()
            print(threading.active_count(), signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL)
            plimsoll.detach()
            print(threading.active_count(), signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL)
            print([c[0] for c in torch.memory.calls])
            try:
                torch.run_out()
            except torch.OutOfMemoryError:
                pass
        """)
        self.assertEqual(out.splitlines(), ["2 False", "1 True", "['all', None]"])
        self.assertEqual(self.snapshots(), [])

    def test_a_storm_of_failures_leaves_one_snapshot(self):
        """failures right after one another leave one snapshot, and the next one says how many had none"""
        self.python("""
            import torch, plimsoll
            from plimsoll import _attach
            plimsoll.attach()
            torch.cuda.init()
            def fail():
                try:
                    torch.run_out()
                except torch.OutOfMemoryError:
                    pass
            for _ in range(5):
                fail()
            _attach.the().last_oom -= 100
            fail()
        """)
        first, second = self.snapshots()
        self.assertEqual(json.loads(pickle.loads(second.read_bytes())["plimsoll"])["skipped_before"], 4)

    def test_a_folder_that_cannot_be_written(self):
        """a folder that cannot be made, and a snapshot over the limit, are one line each; the error is the program's"""
        (self.folder / "file").write_text("")
        self.assertEqual(self.python(self.PROGRAM, PLIMSOLL_ATTACH_DIR=str(self.folder / "file" / "x")),
                         "CUDA out of memory.\n")
        self.assertRegex(self.err, r"\Aplimsoll: attach \(pid \d+\): no snapshot could be written: .*\n\Z")
        self.assertEqual(self.python(self.PROGRAM, PLIMSOLL_ATTACH_BYTES="10"), "CUDA out of memory.\n")
        self.assertIn("larger than all that may be kept", self.err)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_a_full_disk(self):
        """on a full disk there is one line, no half file, and the program's own error"""
        code = self.PROGRAM.replace("torch.cuda.init()", """
        torch.cuda.init()
        import plimsoll._keep as keep
        def full(self, data): raise OSError(28, "No space left on device")
        keep.Bounded.write = full""")
        self.assertEqual(self.python(code), "CUDA out of memory.\n")
        self.assertIn("No space left", self.err)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_a_session_folder_that_is_gone(self):
        """statistics that cannot be published are one line; the rest works"""
        self.python(self.PROGRAM, PLIMSOLL_RECORD_DIR="/nonexistent")
        self.assertIn("statistics are not published", self.err)
        self.assertEqual(len(self.snapshots()), 1)

    def test_an_allocator_that_records_nothing(self):
        """an allocator that cannot record a history is said; its failure still leaves a snapshot"""
        code = self.PROGRAM.replace("torch.cuda.init()", """
        def refuse(*a, **k): raise RuntimeError("does not yet support recordHistory")
        torch.memory._record_memory_history = refuse
        torch.cuda.init()""")
        self.python(code)
        self.assertIn("does not yet support recordHistory", self.err)
        self.assertEqual(len(self.snapshots()), 1)

    def test_a_signal_and_a_handler_that_was_there(self):
        """the signal asks for a snapshot, and the handler that was there before is called too"""
        out = self.python("""
            import os, signal, time, torch, plimsoll
            signal.signal(signal.SIGUSR2, lambda *a: print("theirs", flush=True))
            plimsoll.attach(plimsoll.Settings(every=0.05, dir=os.environ["PLIMSOLL_ATTACH_DIR"]))
            torch.cuda.init()
            os.kill(os.getpid(), signal.SIGUSR2)
            end = time.monotonic() + 90
            while not os.path.isdir(os.environ["PLIMSOLL_ATTACH_DIR"]) or not [
                    n for n in os.listdir(os.environ["PLIMSOLL_ATTACH_DIR"]) if n.endswith(".pickle")]:
                assert time.monotonic() < end
                time.sleep(0.02)
        """)
        self.assertEqual(out, "theirs\n")
        self.assertIn("-signal-", self.snapshots()[0].name)

    def test_a_handler_that_is_not_pythons(self):
        """a handler that was not set from Python stays"""
        self.python("""
            import faulthandler, signal, torch, plimsoll
            faulthandler.register(signal.SIGUSR2)
            plimsoll.attach()
            assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
        """)
        self.assertIn("SIGUSR2 has a handler that is not Python's", self.err)

    def test_a_request_from_another_process(self):
        """another process asks for a snapshot by pid, and is told its path or why there is none"""
        code = """
            import os, sys, time, torch, plimsoll
            plimsoll.attach(plimsoll.Settings(every=0.05, dir=sys.argv[1]))
            torch.cuda.init()
            print(os.getpid(), flush=True)
            sys.stdin.read()
        """
        (self.folder / "torch.py").write_text(TORCH)
        env = plimtest.clean_environment(self.folder, PYTHONPATH=f"{PACKAGE}:{self.folder}",
                                         PLIMSOLL_RECORD_DIR=str(self.session))
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(self.out)], env=env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            pid = int(process.stdout.readline())
            first = _share.request(pid, plimtest.PATIENCE, str(self.session))
            self.assertTrue(os.path.exists(first))
            second = _share.request(pid, plimtest.PATIENCE, str(self.session))
            self.assertNotEqual(first, second)
            for path in self.out.iterdir():
                path.unlink()
            self.out.rmdir()
            self.out.write_text("in the way")
            with self.assertRaises(OSError):
                _share.request(pid, plimtest.PATIENCE, str(self.session))
            process.communicate(b"", timeout=plimtest.PATIENCE)
        with self.assertRaises(FileNotFoundError):
            _share.request(os.getpid(), 1, str(self.session))

    def test_forked_workers(self):
        """a forked worker records for itself, under its own pid, and leaves its parent's file alone"""
        out = self.python("""
            import os, sys, torch, plimsoll
            plimsoll.attach()
            child = os.fork()
            torch.cuda.init()
            try:
                torch.run_out()
            except torch.OutOfMemoryError:
                pass
            if child:
                assert os.waitpid(child, 0)[1] == 0
                print(len(os.listdir(os.environ["PLIMSOLL_RECORD_DIR"])))
        """)
        self.assertEqual(out, "2\n")
        self.assertEqual(len({p.name.split("-")[3] for p in self.snapshots()}), 2)

    def test_a_fork_after_cuda_was_used(self):
        """a child forked after CUDA was used does nothing of its own"""
        out = self.python("""
            import os, sys, threading, torch, plimsoll
            plimsoll.attach()
            torch.cuda.init()
            child = os.fork()
            if child == 0:
                try:
                    torch.run_out()
                except torch.OutOfMemoryError:
                    pass
                print(threading.active_count(), flush=True)
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            print(len(os.listdir(os.environ["PLIMSOLL_RECORD_DIR"])))
        """)
        self.assertEqual(out, "1\n1\n")
        self.assertEqual(self.snapshots(), [])

    def test_a_limit_of_time(self):
        """after the limit of time the history is stopped"""
        self.python("""
            import time, torch, plimsoll
            plimsoll.attach(plimsoll.Settings(every=0.02, seconds=0.1))
            torch.cuda.init()
            end = time.monotonic() + 90
            while [c[0] for c in torch.memory.calls] != ["all", None]:
                assert time.monotonic() < end
                time.sleep(0.02)
        """)


class SettingsTest(Case):
    def test_values(self):
        """values have units and names, and one that cannot be read is said and ignored"""
        self.assertEqual([_settings.read_size(t) for t in ("10", "4GiB", "1.5 G", "2k", "0")],
                         [10, 4 << 30, 3 << 29, 2048, 0])
        self.assertEqual([_settings.read_signal(t) for t in ("usr1", "SIGUSR2", "12", "none", "")],
                         [signal.SIGUSR1, signal.SIGUSR2, 12, 0, 0])
        for read, text in ((_settings.read_size, "many"), (_settings.read_size, "-1"), (_settings.read_signal, "KILL"),
                           (_settings.read_signal, "999"), (_settings.read_count, "x"),
                           (_settings.read_seconds, "nan"), (_settings.read_stacks, "all")):
            with self.assertRaises(ValueError, msg=text):
                read(text)
        self.python("""
            import plimsoll
            s = plimsoll.Settings.environment({"PLIMSOLL_ATTACH_EVENTS": "lots", "PLIMSOLL_ATTACH_FILES": "3"})
            assert (s.events, s.files) == (100_000, 3)
        """)
        self.assertIn("cannot read PLIMSOLL_ATTACH_EVENTS='lots'", self.err)

    def test_children_get_what_differs(self):
        """what differs from the defaults survives the way through the environment"""
        settings = plimsoll.Settings(dir="/x", events=5, oom=False, every=0.5, signal=0, bytes=7)
        self.assertEqual(plimsoll.Settings.environment(settings.exported()), settings)

    def test_the_documentation_has_the_table(self):
        """the table of settings in the documentation is the one in the code"""
        text = (plimtest.ROOT / "docs" / "howto" / "attach.md").read_text()
        self.assertIn("\n".join(_settings.table()), text)


class KeepTest(Case):
    def test_the_oldest_goes_first(self):
        """the oldest snapshots go first, by number and by bytes; the newest and other files stay"""
        names = [f"plimsoll-20260101T00000{i}.000Z-oom-1-{i}.pickle" for i in range(5)]
        for name in names + ["mine.pickle"]:
            (self.folder / name).write_bytes(b"x" * 10)
        self.assertEqual(_keep.prune(_keep.snapshots(str(self.folder)), 4, 100), 1)
        self.assertEqual(_keep.prune(_keep.snapshots(str(self.folder)), 4, 25), 2)
        self.assertEqual(_keep.prune(_keep.snapshots(str(self.folder)), 0, 0), 1)
        self.assertEqual(sorted(p.name for p in self.folder.glob("*.pickle")), ["mine.pickle", names[4]])

    def test_a_name_is_one_of_ours(self):
        """the names that are given are names that are found"""
        name = _keep.name_of("oom", 3)
        (self.folder / name).write_bytes(b"")
        self.assertEqual(_keep.snapshots(str(self.folder)), [str(self.folder / name)])

    def test_whole_or_not_at_all(self):
        """a file that fails half way leaves nothing"""
        path = self.folder / "a"

        def fill(file):
            file.write(b"abc")
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            _keep.write(str(path), 100, fill)
        self.assertEqual([p for p in self.folder.iterdir() if p.name != "session"], [])


if __name__ == "__main__":
    plimtest.main()
