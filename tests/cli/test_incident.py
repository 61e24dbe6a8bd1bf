#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Incidents: made of what failed programs left behind, at any interruption, without anything private in them."""

import json
import os
import pathlib
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

SNAPSHOT = plimtest.ROOT / "tests" / "data" / "snapshots" / "simulated" / "hf-llama8b-oom-24g.pickle"
DEAD = 4194301  # no process has this number: the kernel's highest is 4194304, and few machines get there
TIME = 1795982712000000000

# Planted everywhere; none of it may be found anywhere in a bundle.
SECRETS = ["annika", "gpu17", "corp.example", "hf_abcdefghijklmnopqrstuv", "acmecorp", "sk-proj-0123456789abcdef",
           "10.77.3.4", "hunter2", "GPU-8f2c1a34-1111-2222-3333-0123456789ab", "quokka"]


def load():
    with open(SNAPSHOT, "rb") as file:
        return pickle.load(file)  # our own file


def facts(**more):
    return {"schema": "plimsoll.drop/1", "kind": "oom", "pid": 4711, "time_ns": TIME, "started_ns": TIME - 6600 * 10**9,
            "device": 0, "device_total_bytes": 25769803776, "device_free_bytes": 318767104, **more}


def drop(folder, name="drop-4711-1", snapshot=SNAPSHOT, message=None, **more):
    path = folder / name
    path.mkdir(parents=True)
    if isinstance(snapshot, pathlib.Path):
        shutil.copy(snapshot, path / "snapshot.pickle")
    elif snapshot is not None:
        (path / "snapshot.pickle").write_bytes(snapshot)
    if message:
        (path / "message.txt").write_text(message, encoding="utf-8")
    (path / "facts.json").write_text(json.dumps(facts(**more)), encoding="utf-8")
    return path


class IncidentTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = pathlib.Path(holder.name) / "incidents"

    def finish(self, *options, **env):
        result = plimtest.run("incident", "--finish", *options, self.dir, **env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [pathlib.Path(line) for line in result.stdout.decode().splitlines()]

    def one(self, *options, **env):
        paths = self.finish(*options, **env)
        self.assertEqual(len(paths), 1)
        return paths[0]

    def manifest(self, path):
        result = plimtest.run("incident", "--format", "json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(plimtest.schema_complaints(document), [])
        return document

    def check_whole(self, path):
        """A finished incident: nothing of the making is left, and the manifest lists what is there."""
        manifest = self.manifest(path)
        names = sorted(p.name for p in path.iterdir())
        self.assertEqual(names, sorted([f["name"] for f in manifest["files"]] + ["incident.json"]))
        for file in manifest["files"]:
            self.assertEqual((path / file["name"]).stat().st_size, file["bytes"])
            if shutil.which("xxh128sum"):
                said = subprocess.run(["xxh128sum", path / file["name"]], capture_output=True, check=True)
                self.assertEqual(said.stdout.split()[0].decode(), file["xxh128"])
        removed = json.loads((path / "removed.json").read_text())
        self.assertEqual(plimtest.schema_complaints(removed), [])
        return manifest

    def test_a_drop_becomes_a_judged_incident(self):
        """a drop becomes an incident with the diagnosis of its snapshot"""
        drop(self.dir, tags={"request_id": "r-17", "batch": 8}, versions={"torch": "2.14.1+cu130"}, rank=3)
        path = self.one()
        manifest = self.check_whole(path)
        self.assertEqual(path.name, "incident-20261129T200512Z-oom-4711")
        self.assertEqual(manifest["verdict"]["class"], "fragmentation")
        self.assertEqual(manifest["tags"], {"request_id": "r-17", "batch": 8})
        self.assertEqual(manifest["snapshots"][0]["rank"], 3)
        self.assertEqual(manifest["uptime_ns"], 6600 * 10**9)
        text = (path / "diagnosis.md").read_text()
        for words in ("after 1 h 50 min 0 s", "request_id r-17, batch 8", "fragmentation/stranded", "torch 2.14.1+cu130"):
            self.assertIn(words, text)
        self.assertEqual(list(self.dir.iterdir()), [path])

    def test_masking_a_snapshot_does_not_change_its_diagnosis(self):
        """the cleaned snapshot gives the same figures as the original"""
        drop(self.dir)
        path = self.one()
        ours, theirs = (json.loads(plimtest.run("diagnose", "--format", "json", p).stdout)
                        for p in (path, SNAPSHOT))
        for key in ("class", "subclass"):
            self.assertEqual(ours["verdict"][key], theirs["verdict"][key])
        self.assertEqual([b["bytes"] for b in ours["blame"]], [b["bytes"] for b in theirs["blame"]])

    def test_ranks_that_fail_together_are_one_incident(self):
        """drops of several ranks are judged together, the first failure gives the verdict"""
        healthy = pickle.dumps({"segments": [], "device_traces": [[]]}, 4)
        drop(self.dir, "drop-20-1", pid=20, rank=1, time_ns=TIME + 5, snapshot=healthy)
        drop(self.dir, "drop-21-1", pid=21, rank=0, time_ns=TIME)
        drop(self.dir, "drop-20-2", pid=20, rank=1, time_ns=TIME + 9, snapshot=healthy)
        manifest = self.check_whole(self.one())
        self.assertEqual([s.get("file") for s in manifest["snapshots"]],
                         ["snapshot-21.pickle", "snapshot-20.pickle", "snapshot-20-2.pickle"])
        self.assertEqual([p["pid"] for p in manifest["processes"]], [21, 20])
        self.assertEqual(manifest["verdict"]["class"], "fragmentation")

    def plant(self):
        snapshot = load()
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                for frame in block.get("frames") or []:
                    frame["filename"] = "/home/annika/acmecorp/" + frame["filename"].rsplit("/", 1)[-1]
        for trace in snapshot["device_traces"]:
            for event in trace:
                event["user_metadata"] = "for quokka hf_abcdefghijklmnopqrstuv annika@corp.example /srv/acmecorp/quokka"
        message = ("annika@gpu17:~$ python /srv/acmecorp/serve.py\n"
                   "Connecting to postgres://annika:hunter2@db.corp.example/x from 10.77.3.4\n"
                   "OPENAI_API_KEY=sk-proj-0123456789abcdef\n"
                   "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 876.00 MiB. GPU 0 has a total capacity "
                   "of 24.00 GiB of which 304.00 MiB is free.\n")
        path = drop(self.dir, snapshot=pickle.dumps(snapshot, 4), message=message, user="annika", host="gpu17.corp.example",
                    home="/home/annika", cwd="/home/annika/acmecorp",
                    argv=["/home/annika/bin/python", "serve.py", "--token", "hunter2", "--batch", "8", "--for=acmecorp"],
                    environment={"HF_TOKEN": "hf_abcdefghijklmnopqrstuv", "HOME": "/home/annika",
                                 "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "VLLM_API_KEY": "hunter2",
                                 "NCCL_TOPO_FILE": "/srv/acmecorp/topo.xml"},
                    tags={"request_id": "annika-1", "prompt_file": "/srv/acmecorp/quokka.txt"})
        part = self.dir / "incident-20261129T200512Z-oom-4711.part" / "raw"
        part.mkdir(parents=True)
        path.rename(part / path.name)
        (part / "parts.json").write_text(json.dumps(facts(schema="plimsoll.parts/1", user="annika",
                                                          host="gpu17.corp.example", cwd="/home/annika/acmecorp",
                                                          exit_status=1, argv=["python", "/srv/acmecorp/x.py"])))
        sample = {"schema": "plimsoll.sample/1", "time_ns": TIME - 1, "devices": [
            {"vendor": "nvidia", "name": "A card", "uuid": "GPU-8f2c1a34-1111-2222-3333-0123456789ab", "state": "ok",
             "total_bytes": 25769803776, "free_bytes": 318767104}],
            "uses": [{"device": 0, "pid": 4711, "kinds": ["compute"], "bytes": 24000000000},
                     {"device": 0, "pid": 99, "kinds": ["compute"], "bytes": 1000000000}],
            "processes": [{"pid": 4711, "name": "annika"}]}
        (part / "samples.jsonl").write_text(json.dumps(sample) + "\n")

    def test_nothing_private_is_left_anywhere(self):
        """planted names, paths, secrets and addresses are in no file of the bundle, nor inside the snapshot"""
        self.plant()
        path = self.one()
        self.check_whole(path)
        for file in path.iterdir():
            data = file.read_bytes().lower()
            for secret in SECRETS:
                if file.suffix == ".pickle" and secret == "quokka":
                    continue  # a word of its own in free text is nobody's; as part of a path it must be gone
                self.assertNotIn(secret.lower().encode(), data, file.name)
        self.assertNotIn(b"/quokka", (path / "snapshot-4711.pickle").read_bytes())
        manifest = self.manifest(path)
        self.assertEqual(manifest["environment"], [
            {"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"},
            {"name": "NCCL_TOPO_FILE", "value": "<path>"}])
        text = (path / "diagnosis.md").read_text()
        self.assertIn("Tried to allocate 876.00 MiB", text)
        self.assertIn("| 0 A card | 24.00 GiB |", text)
        self.assertIn("other processes", text)
        kinds = {r["kind"] for r in json.loads((path / "removed.json").read_text())["removed"]}
        self.assertLessEqual({"secret", "credentials", "user", "host", "path", "project_path", "argument"}, kinds)
        packed = plimtest.run("incident", "--pack", path)
        self.assertEqual(packed.returncode, 0, packed.stderr)
        listing = subprocess.run(["tar", "--zstd", "-xOf", packed.stdout.decode().strip()], capture_output=True, check=True)
        for secret in SECRETS[:-1]:
            self.assertNotIn(secret.lower().encode(), listing.stdout.lower())

    def test_keep_private_keeps_and_says_so(self):
        """--keep-private leaves everything but secret variables, and says that it did"""
        self.plant()
        path = self.one("--keep-private")
        self.assertIn(b"annika", (path / "message.txt").read_bytes())
        self.assertIn(b"/home/annika/acmecorp", (path / "snapshot-4711.pickle").read_bytes())
        self.assertFalse(self.manifest(path)["redacted"])
        self.assertIn("Nothing was removed", (path / "diagnosis.md").read_text())

    def test_a_snapshot_that_cannot_be_cleaned_is_judged_and_left_out(self):
        """a snapshot with unknown content is not given away"""
        drop(self.dir, snapshot=SNAPSHOT.read_bytes()[:-200])
        manifest = self.check_whole(self.one())
        self.assertNotIn("file", manifest["snapshots"][0])
        self.assertTrue(any("left out" in n for n in manifest["notes"]), manifest["notes"])

    def test_a_message_alone_is_judged(self):
        """without a snapshot the message gives the verdict"""
        text = (plimtest.ROOT / "tests" / "data" / "oom" / "pytorch-fragmented.txt").read_text()
        drop(self.dir, snapshot=None, message=text)
        manifest = self.check_whole(self.one())
        self.assertEqual(manifest["verdict"]["class"], "fragmentation")

    def test_folder_and_archive_are_read_alike(self):
        """diagnose gives one answer for the folder and for the archive; the list has both"""
        drop(self.dir)
        path = self.one()
        plimtest.run("incident", "--pack", path)
        packed = path.with_name(path.name + ".tar.zst")
        a, b = (plimtest.run("diagnose", "--format", "json", p) for p in (path, packed))
        self.assertEqual((a.returncode, b.returncode), (0, 0), a.stderr + b.stderr)
        self.assertEqual(json.loads(a.stdout)["verdict"], json.loads(b.stdout)["verdict"])
        listed = json.loads(plimtest.run("incident", "--format", "json", self.dir).stdout)
        self.assertEqual(plimtest.schema_complaints(listed), [])
        self.assertEqual([i["path"] for i in listed["incidents"]], [str(path), str(packed)])

    def test_packing_while_finishing(self):
        """--finish --pack leaves only the archive"""
        drop(self.dir)
        path = self.one("--pack")
        self.assertEqual(list(self.dir.iterdir()), [path])
        self.assertEqual(self.manifest(path)["verdict"]["class"], "fragmentation")

    def test_drops_of_the_living_are_left_and_of_the_dead_taken(self):
        """a half-written drop is taken when its process is gone, and not before"""
        drop(self.dir, f"drop-{os.getpid()}-1.part", pid=os.getpid())
        self.assertEqual(self.finish(), [])
        (self.dir / f"drop-{DEAD}-1.part").mkdir()
        (self.dir / f"drop-{DEAD}-1.part" / "snapshot.pickle").write_bytes(SNAPSHOT.read_bytes()[:5000])
        manifest = self.check_whole(self.one())
        self.assertTrue(any("died while" in n for n in manifest["notes"]), manifest["notes"])
        self.assertTrue((self.dir / f"drop-{os.getpid()}-1.part").exists())

    def test_drops_of_a_living_owner_are_left_to_it(self):
        """what another process said that it would finish is not taken while that lives"""
        drop(self.dir, "drop-20-1", pid=20, environment={"PLIMSOLL_INCIDENT_OWNER": str(os.getpid())})
        self.assertEqual(self.finish(), [])
        shutil.rmtree(self.dir)
        drop(self.dir, "drop-20-1", pid=20, environment={"PLIMSOLL_INCIDENT_OWNER": str(DEAD)})
        self.check_whole(self.one())

    def test_interrupted_work_is_finished_later(self):
        """killed at any moment, finishing can be repeated, and nothing is lost"""
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        started = time.monotonic()
        drop(self.dir)
        self.one()
        takes = time.monotonic() - started
        for round_ in range(25):
            shutil.rmtree(self.dir)
            drop(self.dir)
            child = subprocess.Popen([plimtest.PROGRAM, "incident", "--finish", str(self.dir)], stdout=subprocess.DEVNULL)
            time.sleep(rng.random() * takes)
            child.send_signal(signal.SIGKILL)
            child.wait()
            self.finish()
            left = list(self.dir.iterdir())
            self.assertEqual(len(left), 1, f"seed {seed} round {round_}: {left}")
            self.assertEqual(self.check_whole(left[0])["verdict"]["class"], "fragmentation", f"seed {seed}")

    def test_a_full_disk_is_an_error_and_no_loss(self):
        """when the disk is full the pieces stay, and are finished when there is room"""
        drop(self.dir)

        def little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

        result = subprocess.run([plimtest.PROGRAM, "incident", "--finish", str(self.dir)], capture_output=True,
                                preexec_fn=little_room, check=False)
        self.assertIn(result.returncode, (73, 74), result.stderr)
        listed = json.loads(plimtest.run("incident", "--format", "json", self.dir).stdout)
        self.assertEqual((listed["unfinished"], listed["incidents"]), (1, []))
        self.assertEqual(self.check_whole(self.one())["verdict"]["class"], "fragmentation")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_read_only_folder_is_an_error(self):
        """a folder that cannot be written is said so"""
        drop(self.dir)
        self.dir.chmod(0o500)
        self.addCleanup(self.dir.chmod, 0o700)
        self.assertEqual(plimtest.run("incident", "--finish", self.dir).returncode, 73)

    def test_the_oldest_incidents_go_first(self):
        """limits on number and bytes remove the oldest, never the newest"""
        for day in range(4):
            drop(self.dir, time_ns=TIME + day * 86400 * 10**9)
            self.one("--max-incidents", "3")
        names = sorted(p.name for p in self.dir.iterdir())
        self.assertEqual([n[9:17] for n in names], ["20261130", "20261201", "20261202"])
        drop(self.dir, time_ns=TIME + 5 * 86400 * 10**9)
        path = self.one("--max-bytes", "1KiB")
        self.assertEqual(list(self.dir.iterdir()), [path])

    def test_two_finishers_do_not_disturb_each_other(self):
        """at the same time, each drop ends in exactly one incident"""
        for n in range(4):
            drop(self.dir, f"drop-{100 + n}-1", pid=100 + n, snapshot=None, message="x", time_ns=TIME + n)
        children = [subprocess.Popen([plimtest.PROGRAM, "incident", "--finish", str(self.dir)],
                                     stdout=subprocess.DEVNULL) for _ in range(4)]
        self.assertEqual([c.wait() for c in children], [0] * 4)
        pids = [p["pid"] for i in self.dir.iterdir() for p in self.manifest(i)["processes"]]
        self.assertEqual(sorted(pids), [100, 101, 102, 103])

    def test_facts_of_strangers_do_no_harm(self):
        """facts with wrong types, odd names and huge values are taken or left, never trusted"""
        for n, text in enumerate(["{", "[]", '{"kind":"oom"}', '{"kind":"oom","pid":-5,"argv":[1,null]}',
                                  '{"kind":"oom","tags":{"a":{"b":1}},"time_ns":1e400}',
                                  '{"kind":"oom","pid":7,"environment":{"CUDA_X":"\\u0000"}}']):
            path = self.dir / f"drop-{n + 1}-1"
            path.mkdir(parents=True)
            (path / "facts.json").write_text(text)
            os.symlink("/etc/passwd", path / "snapshot.pickle")
        manifest = self.check_whole(self.one())
        self.assertEqual(manifest["snapshots"], [])


if __name__ == "__main__":
    plimtest.main()
