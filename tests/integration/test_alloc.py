#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The allocator that moves pages under real PyTorch on the simulated GPU: globally and as a memory pool."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402
import simgpu_env  # noqa: E402
import tiny_model  # noqa: E402
from test_simgpu_torch import interpreter  # noqa: E402

sys.path.insert(0, str(plimtest.ROOT / "tools"))
from wheel import HOOK  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BUILD = os.environ.get("PLIMSOLL_BUILD", str(plimtest.ROOT / "build"))
MIB = 1 << 20
WHERE = ("global", "pool")


class AllocTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = interpreter("--hf")

    def command(self, command, gpu="24GiB", code=0, **env):
        full = simgpu_env.environment(BUILD, gpu=gpu)
        full["PYTHONPATH"] = str(pathlib.Path(BUILD) / "python")
        full["PLIMSOLL_ALLOC_LIBRARY"] = str(pathlib.Path(BUILD) / "runtime" / "allocator" / "libplimsoll_alloc.so")
        full.update(env)
        result = subprocess.run([self.python, *command], capture_output=True, env=full, timeout=300, check=False)
        self.assertEqual(result.returncode, code, result.stderr.decode()[-3000:])
        return result

    def program(self, name, where, *args, **options):
        result = self.command([str(HERE / "alloc_programs.py"), name, where, *map(str, args)], **options)
        out = json.loads(result.stdout.decode().splitlines()[-1])
        self.assertIsNone(out.get("check"))
        if "figures" in out:
            self.assertEqual(out["figures"]["wrong_frees"], 0)
            self.assertGreater(out["figures"]["allocs"], 0)
        return out

    def test_training_runs(self):
        """training with AdamW holds parameters and states, and its memory comes from the allocator"""
        for where in WHERE:
            out = self.program("train", where)
            self.assertGreaterEqual(out["stats"]["allocated_bytes.all.current"], 3 * out["parameters"])

    def test_generation_runs(self):
        """a transformer generates with a growing cache"""
        for where in WHERE:
            self.assertEqual(self.program("generate", where)["length"], 40)

    def test_graphs_are_captured_and_replayed(self):
        """graphs are captured into memory that nobody else gets"""
        for where in WHERE:
            out = self.program("graph", where)
            self.assertEqual((out["replayed"], out["out"]), (3, True))

    def test_memory_used_on_another_stream_waits_for_it(self):
        """a block that another stream uses comes back when that stream is done, not before"""
        out = self.program("streams", "global")
        self.assertEqual(out["pending"], 1)
        self.assertTrue(out["again"])

    def test_a_failure_is_torchs_own_exception(self):
        """a request that cannot be met raises torch.OutOfMemoryError, whose text explain understands"""
        for where in WHERE:
            out = self.program("oom", where)
            self.assertEqual(out["kind"], "OutOfMemoryError")
            self.assertEqual(out["after"], 200 * MIB)
            explained = plimtest.run("explain", "--format", "json", stdin=out["text"].encode())
            events = json.loads(explained.stdout)["events"]
            self.assertEqual((len(events), events[0]["request_bytes"]), (1, 1 << 40))

    def test_torchs_own_calls_reach_it(self):
        """empty_cache() gives free memory back, a memory fraction is a limit, figures have the names of memory_stats()"""
        out = self.program("hooks", "global")
        self.assertGreaterEqual(out["free"][0] - out["free"][1], 300 * MIB)
        self.assertLess(out["free"][0] - out["free"][2], 32 * MIB)
        self.assertEqual(out["after"], 50 * MIB + (1 << 30))
        self.assertIn("allowed", out["text"])
        explained = plimtest.run("explain", "--format", "json", stdin=out["text"].encode())
        event = json.loads(explained.stdout)["events"][0]
        self.assertEqual(event["request_bytes"], 1 << 30)
        self.assertIn("ledger", event)
        self.assertLessEqual(set(out["stats"]), set(self.program("names", "stock")["names"]))

    def test_what_programs_ask_torch_about_memory_is_answered(self):
        """PyTorch's statistics, summary and snapshot speak of the allocator that has the memory"""
        out = self.program("asked_of_torch", "global")
        self.assertEqual(out["peaks"], [100 * MIB, 40 * MIB])
        self.assertEqual((out["allocated"], out["reserved"]), (40 * MIB, out["figures"]["reserved"]))
        self.assertEqual(out["segments"], out["reserved"])
        self.assertIn("40960 KiB", out["summary"])
        stock = self.program("asked_of_torch", "stock")
        self.assertEqual(out["names"], stock["names"])

    def test_what_programs_ask_without_naming_cuda_is_answered(self):
        """torch.accelerator's statistics and empty_cache() reach the allocator, and answers are those of PyTorch's own"""
        ours, theirs = (self.program("asked_of_accelerator", where) for where in ("global", "stock"))
        self.assertEqual(ours["names"], theirs["names"])
        for key in ("allocated", "peak", "peak_after", "peak_reset", "share", "of_pool", "wrong"):
            self.assertEqual(ours[key], theirs[key], key)
        self.assertGreaterEqual(ours["given"], 100 * MIB)
        self.assertGreater(ours["count"][0], 0)
        self.assertEqual(ours["count"][1:], [0, 0])

    def test_pytorchs_own_tools_show_a_snapshot(self):
        """PyTorch's tools show a snapshot, whose sums are the statistics', also of streams, graphs and while a tag is paused"""
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, where) for where in ("global", "stock")]
            ours, stock = (self.program("shown", os.path.basename(path), path) for path in paths)
            again = os.path.join(folder, "again")
            self.assertEqual(plimtest.run("export", paths[0], "-o", again).returncode, 0)
            self.assertIn(b"(unchanged)", plimtest.run("diff", paths[0], again).stdout)
            self.assertEqual(plimtest.run("diff", paths[1], paths[0]).returncode, 0)
            ledger = json.loads(plimtest.run("diagnose", "--format", "json", paths[0]).stdout)["ledger"]
        self.assertEqual((ours["keys"][0], ours["block_keys"][0]), (stock["keys"][0], stock["block_keys"][0]))
        self.assertEqual(ours["traces"], stock["traces"])
        self.assertEqual((ours["live"]["all"], ours["live"]["resumed"]), (stock["live"]["all"], stock["live"]["resumed"]))
        self.assertEqual(ours["live"]["all"] - ours["live"]["paused"], ours["tagged"])
        self.assertEqual(ledger["allocated"]["bytes"], ours["stats"]["active_bytes.all.current"])
        self.assertEqual(ours["pools"], [[0, 0], [1, 0]])
        for out in (ours, stock):
            stats, sums = out["stats"], out["sums"]
            self.assertEqual(sums["total_size"], stats["reserved_bytes.all.current"])
            self.assertEqual(sums["allocated_size"], stats["allocated_bytes.all.current"])
            self.assertEqual(sums["active_size"], stats["active_bytes.all.current"])
            self.assertEqual(sums["requested_size"], stats["requested_bytes.all.current"])
            self.assertGreaterEqual(stats["inactive_split_bytes.all.current"], 0)
            self.assertEqual(stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"], 6 * MIB)
            self.assertIn("total_reserved:", out["summary"])
            self.assertTrue(all(out["lengths"][i] for i in (0, 2, 3, 4, 5, 6)))

    def test_threads_allocate_at_the_same_time(self):
        """several threads are served at the same time, each on its stream, and all of it can be given back"""
        for where in WHERE:
            out = self.program("threads", where)
            self.assertEqual(out["done"], ["0", "1", "2", "3", "4", "5"])
            self.assertLessEqual(out["left"], 2 * MIB)

    def test_failing_again_and_again_changes_nothing(self):
        """hundreds of requests that fail leave the books, the peaks and the device's free memory as they were"""
        out = self.program("retries", "global")
        self.assertEqual((out["failed"], out["free"][1] - out["free"][0]), (300, 0))
        self.assertEqual(out["changed"], ["failures", "pages_freed", "pages_made"])

    def test_pools_are_one_for_each_device_and_tag(self):
        """use() nests, serves the device it is given, keeps tags apart, and its memory can be given back"""
        out = self.program("pools", "pool", gpu="24GiB,24GiB")
        self.assertGreaterEqual(out["held"], 200 * MIB)
        self.assertGreaterEqual(out["held_other"], 50 * MIB)
        self.assertGreaterEqual(out["given"], 80 * MIB)
        self.assertEqual(out["live"], 180 * MIB)
        self.assertTrue(180 * MIB <= out["first_gone"] < 280 * MIB)
        self.assertEqual(out["all_gone"], 0)

    def test_growth_does_not_strand(self):
        """where caches grow by concatenation, less is reserved than by PyTorch, and as much as the setting allows"""
        stock = self.program("growth", "stock")
        ours = self.program("growth", "global")
        told = self.program("growth", "global", PLIMSOLL_ALLOC_SLACK="4.5", PLIMSOLL_ALLOC_PAGE_MB="2")
        self.assertIsNone(ours["failed"])
        self.assertLess(ours["reserved"], stock["reserved"])
        self.assertLessEqual(told["reserved"], 1.05 * told["live"])

    def train(self, plan, kind, steps, batch):
        """A training program with that plan: its figures."""
        out = self.command([str(HERE / "training.py"), kind, "global", str(steps), str(batch)], gpu="24GiB",
                           PLIMSOLL_ALLOC_MODE="plan", PLIMSOLL_ALLOC_PLAN=plan).stdout
        out = json.loads(out.decode().splitlines()[-1])
        self.assertIsNone(out["check"])
        self.assertEqual((out["figures"]["failures"], out["figures"]["wrong_frees"]), (0, 0))
        return out["figures"]

    def test_a_recorded_run_gives_a_plan_that_the_next_one_follows(self):
        """with the plan of a recorded run all of the next is as predicted, to the byte; longer and other runs work too"""
        with tempfile.TemporaryDirectory() as folder:
            trace, plan = os.path.join(folder, "trace.pickle"), os.path.join(folder, "plan")
            self.command([str(HERE / "training.py"), "lm-streams", "record", "5", "4", trace])

            def predict(total):
                result = plimtest.run("replay", trace, "--format", "json", "--allocator", "plimsoll:plan",
                                      "--device-memory", total, "--write-plan", plan)
                return json.loads(result.stdout)

            predict("24GiB")
            same = self.train(plan, "lm-streams", 5, 4)
            told = predict(str(same["total"]))
            self.assertEqual((same["placed"], same["displaced"], same["astray"]), (same["allocs"], 0, 0))
            self.assertEqual((same["peak_reserved"], same["peak_allocated"], same["pages_made"]),
                             (told["peak"]["reserved_bytes"], told["peak"]["active_bytes"],
                              told["counters"]["num_device_alloc"]))
            self.assertEqual(told["plan"]["placed"], same["placed"])
            self.assertLess(same["peak_reserved"], 1.01 * same["peak_allocated"])
            longer = self.train(plan, "lm-streams", 9, 4)
            self.assertEqual(longer["placed"], longer["allocs"])
            for key in ("peak_reserved", "pages_made", "pages_moved"):  # not one more
                self.assertEqual(longer[key], same[key])
            other = self.train(plan, "lm-streams", 5, 5)
            self.assertTrue(0 < other["placed"] < other["allocs"] // 2)
            self.assertLess(other["peak_reserved"], 1.1 * other["peak_allocated"])

    def test_sizes_of_a_soak_are_the_blocks_of_mode_pool(self):
        """sizes that soak finds for a model are the blocks that the model's program has in mode pool"""
        with tempfile.TemporaryDirectory() as folder:
            config, sizes = os.path.join(folder, "config.json"), os.path.join(folder, "sizes")
            with open(config, "w", encoding="utf-8") as file:
                json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
                           **tiny_model.SMALLEST}, file)
            done = plimtest.run("soak", config, "-w", "dynamic", "-t", "poisson:rate=1,prompt=16~40,output=24~40",
                                "--duration", "1m", "--seeds", "1", "--device-memory", "24GiB", "--write-sizes", sizes)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(sizes, encoding="utf-8") as file:
                listed = [int(line) for line in file]
            out = self.program("generate", "global", PLIMSOLL_ALLOC_MODE="pool", PLIMSOLL_ALLOC_SIZES="@" + sizes)
        self.assertEqual(out["length"], 40)
        self.assertGreater(len(out["blocks"]), 30)
        for asked, size in out["blocks"]:
            up = min((s for s in listed if s >= asked), default=-(-asked // 512) * 512)
            self.assertEqual(size, up)
        asked, held = (sum(column) for column in zip(*out["blocks"]))
        self.assertLess(held, 1.05 * asked)
        self.assertEqual(out["stats"]["requested_bytes.all.current"], asked)

    def test_a_file_of_sizes_that_is_none_is_named(self):
        """a file of sizes that cannot be read, or has none in it, is named and the mode ignored"""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("4096 many")
            file.flush()
            for path, why in ((file.name, b"wanted sizes in bytes"), (file.name + ".none", b"that can be read")):
                result = self.command([str(HERE / "alloc_programs.py"), "fork", "global"], PLIMSOLL_ALLOC_MODE="pool",
                                      PLIMSOLL_ALLOC_SIZES="@" + path)
                self.assertIn(why, result.stderr)
                self.assertIn(b"PLIMSOLL_ALLOC_MODE=pool is ignored", result.stderr)

    def test_tagged_memory_can_be_given_back_for_a_time(self):
        """pause() gives the memory of what is tagged back, resume() the same addresses, dropping it the memory for good"""
        for where in WHERE:
            out = self.program("pause", where)
            self.assertEqual(out["address"], out["address_after"])
            self.assertGreaterEqual(out["given"], 100 * MIB)
            self.assertEqual(out["free_paused"] - out["free_before"], out["given"])
            self.assertEqual(out["free_after"], out["free_before"])
            self.assertEqual(out["free_dropped"], out["free_paused"])
            self.assertTrue(out["refused"] and out["others"])

    def test_a_forked_child_does_no_harm(self):
        """a forked child gives nothing back that is not its own"""
        for where in WHERE:
            out = self.program("fork", where)
            self.assertEqual((out["child"], out["after"]), (7, 2 * MIB))

    def test_a_snapshot_is_read_by_diagnose(self):
        """the snapshot has PyTorch's layout: diagnose reads it and finds the same bytes"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "own.pickle")
            out = self.program("snapshot", "global", path)
            result = plimtest.run("diagnose", "--format", "json", path)
            ledger = json.loads(result.stdout)["ledger"]
        self.assertEqual(ledger["allocated"]["bytes"],
                         out["stats"]["allocated_bytes.all.current"])

    def test_it_is_refused_when_it_is_too_late(self):
        """install() after the first use of CUDA says why it cannot"""
        self.assertIn("before the first tensor", self.program("late", "stock")["refused"])

    def test_installing_it_twice_changes_nothing(self):
        """install() again with the same settings does nothing, with others it says why it cannot"""
        for mode, shown in (("hybrid", "hybrid"), ("sew", "stitch")):  # the mode in force, not the one asked for
            out = self.program("again", "global", PLIMSOLL_ALLOC_MODE=mode)
            self.assertIn("installed already", out["refused"])
            self.assertEqual(out["mode"], shown)
        out = self.program("other", "stock")
        self.assertIn("another allocator", out["refused"])
        self.assertIsNone(out["mode"])

    def test_worker_processes_have_it_too(self):
        """with the wheel's start hook and PLIMSOLL_ALLOC=1 spawned processes have it, and python -m plimsoll.alloc sets that"""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "plimsoll-attach.pth").write_text(HOOK, encoding="ascii")
            pathlib.Path(folder, "sitecustomize.py").write_text(f"import site\nsite.addsitedir({folder!r})\n", encoding="ascii")
            path = f"{folder}:{pathlib.Path(BUILD) / 'python'}"
            script = str(HERE / "alloc_programs.py")
            for command, more in (([script, "spawn", "stock"], {"PLIMSOLL_ALLOC": "1"}),
                                  (["-m", "plimsoll.alloc", script, "spawn", "stock"], {})):
                out = self.command(command, PYTHONPATH=path, **more).stdout.decode()
                self.assertIn(f"CHILD True {4 * MIB} {4 * MIB}\n", out)
            wrong = self.command(["-c", "import torch; torch.empty(9, device='cuda')"], PYTHONPATH=path, PLIMSOLL_ALLOC="1",
                                 PLIMSOLL_ALLOC_LIBRARY="/none/such.so")
            self.assertIn(b"PyTorch's own allocator stays", wrong.stderr)

    def test_settings_are_checked(self):
        """settings that make no sense are refused in Python and ignored, by name, in the environment"""
        code = ("import plimsoll.alloc as a\n"
                "for bad in (dict(mode='x'), dict(mode='pool'), dict(mode='pool', sizes='/none/such'), dict(page_mb=3),\n"
                "            dict(slack=0), dict(limit_mb=-1), dict(mode='plan'), dict(plan='x'),\n"
                "            dict(mode='plan', plan=a.__file__), dict(limit_mb=1.5), dict(limit_mb='7'), dict(slack='5'),\n"
                "            dict(limit_mb=1 << 70), dict(page_mb='4'), dict(mode='pool', sizes=[True]),\n"
                "            dict(mode='pool', sizes=5), dict(mode='pool', sizes=a.__file__), dict(mode='pool', sizes='/')):\n"
                "    try: a.settings(**bad); print('taken', bad)\n"
                "    except ValueError: pass\n")
        self.assertEqual(self.command(["-c", code]).stdout, b"")
        result = self.command([str(HERE / "alloc_programs.py"), "fork", "global"], PLIMSOLL_ALLOC_MODE="sew",
                              PLIMSOLL_ALLOC_PAGE_MB="3")
        self.assertIn(b"PLIMSOLL_ALLOC_MODE=sew is ignored: wanted stitch, hybrid, pool or plan", result.stderr)
        self.assertIn(b"PLIMSOLL_ALLOC_PAGE_MB=3 is ignored", result.stderr)
        result = self.command([str(HERE / "alloc_programs.py"), "fork", "global"], PLIMSOLL_ALLOC_MOED="hybrid")
        self.assertIn(b"PLIMSOLL_ALLOC_MOED is no setting", result.stderr)
        result = self.command([str(HERE / "alloc_programs.py"), "fork", "global"], PLIMSOLL_ALLOC_SLACK="-1",
                              PLIMSOLL_ALLOC_LIMIT_MB="much", PLIMSOLL_ALLOC_SIZES="12,x")
        for name, wanted in ((b"SLACK=-1", b"a percentage above 0"), (b"LIMIT_MB=much", b"a number of MiB"),
                             (b"SIZES=12,x", b"sizes in bytes")):
            self.assertIn(b"PLIMSOLL_ALLOC_" + name + b" is ignored: wanted " + wanted, result.stderr)
        result = self.command([str(HERE / "alloc_programs.py"), "fork", "global"], PLIMSOLL_ALLOC_MODE="plan",
                              PLIMSOLL_ALLOC_PLAN=__file__, PLIMSOLL_ALLOC_SIZES="512")
        self.assertIn(b"is ignored: wanted a plan; line 3: the first line is not", result.stderr)
        self.assertIn(b"SIZES=512 is ignored: wanted PLIMSOLL_ALLOC_MODE=pool beside it", result.stderr)
        self.assertNotIn(b"wanted PLIMSOLL_ALLOC_MODE=plan", result.stderr)
        result = self.command([str(HERE / "alloc_programs.py"), "fork", "global"], PLIMSOLL_ALLOC_PLAN="steps.plan")
        self.assertIn(b"PLAN=steps.plan is ignored: wanted PLIMSOLL_ALLOC_MODE=plan beside it", result.stderr)

    def test_a_limit_holds(self):
        """PLIMSOLL_ALLOC_LIMIT_MB is never exceeded: the program runs out of memory there"""
        out = self.program("growth", "global", PLIMSOLL_ALLOC_LIMIT_MB="256")
        self.assertIsNotNone(out["failed"])
        self.assertLessEqual(out["reserved"], 256 * MIB)

    def test_a_program_that_knows_nothing_of_it(self):
        """python -m plimsoll.alloc runs a script with it"""
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write("import sys, torch, plimsoll.alloc as a\n"
                           "x = torch.zeros(4 << 20, device='cuda')\n"
                           "print(sys.argv[1:], a.installed(), a.memory_stats()['allocated_bytes.all.current'])\n")
            out = self.command(["-m", "plimsoll.alloc", script, "one", "--two"]).stdout.decode().split("\n")[-2]
        self.assertEqual(out, f"['one', '--two'] True {16 * MIB}")
        for wrong in ([], ["-m"], ["-c", "print(1)"]):
            result = self.command(["-m", "plimsoll.alloc", *wrong], code=64)
            self.assertEqual((result.stdout, result.stderr[:6]), (b"", b"usage:"))

    def test_an_attached_program_can_have_it(self):
        """attach says what the allocator does not record, and its snapshots have the allocator's blocks"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "own.pickle")
            code = ("import sys, torch, plimsoll, plimsoll.alloc\nplimsoll.alloc.install()\n"
                    "x = torch.zeros(4 << 20, device='cuda')\nplimsoll.snapshot(sys.argv[1])\n")
            result = self.command(["-c", code, path], PLIMSOLL_ATTACH="1", PLIMSOLL_ATTACH_DIR=folder)
            self.assertIn(b"does not yet support recordHistory", result.stderr)
            done = plimtest.run("diagnose", "--format", "json", path)
            self.assertEqual(json.loads(done.stdout)["ledger"]["allocated"]["bytes"], 16 * MIB)


if __name__ == "__main__":
    plimtest.main()
