#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plimsoll doctor: made-up driver libraries, a made-up Python with PyTorch, settings that conflict."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import plimtest  # noqa: E402

FAKES = os.environ.get("PLIMSOLL_FAKES", str(plimtest.ROOT / "build" / "tests" / "fakes"))


class DoctorTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def python(self, **packages):
        """A python3 that says it has these packages; the folder to put on the PATH."""
        lines = ["executable /opt/venv/bin/python3", "python 3.12.1"]
        lines += [f"{name} {version}" for name, version in packages.items()]
        program = pathlib.Path(self.folder.name) / "python3"
        program.write_text("#!/bin/sh\nprintf '%s\\n' " + " ".join(f"'{line}'" for line in lines) + "\n",
                           encoding="utf-8")
        program.chmod(0o755)
        return f"{self.folder.name}:/usr/bin:/bin"

    def doctor(self, *args, **env):
        """The checks by their ids. What is said of the host is the host's own: it may warn, as of a small /dev/shm."""
        env.setdefault("LD_LIBRARY_PATH", "")  # the test runner has the fakes on it
        result = plimtest.run("doctor", "--format", "json", *args, **env)
        document = json.loads(result.stdout)
        warned = any(c["status"] == "warn" for c in document["checks"])
        self.assertEqual(result.returncode, 1 if warned and "--check" in args else 0, result.stderr)
        self.assertEqual(plimtest.schema_complaints(document), [])
        checks = {}
        for check in document["checks"]:
            checks.setdefault(check["id"], []).append(check)
        for status, count in document["summary"].items():
            self.assertEqual(count, sum(c["status"] == status for c in document["checks"]))
        return checks

    def test_without_a_gpu_it_says_so(self):
        """without a GPU it says what is missing, and that is not an error"""
        checks = self.doctor("--check", LD_LIBRARY_PATH="", PATH=self.python())
        if checks["gpu.nvml"][0]["status"] == "ok":
            self.skipTest("this machine has a driver")
        self.assertEqual(checks["gpu.nvml"][0]["status"], "missing")
        self.assertIn("no GPU", checks["gpu.nvml"][0]["advice"])

    def test_entry_points_that_the_recorder_does_not_know_are_named(self):
        """entry points of the driver that the recorder does not know are named"""
        check = self.doctor(LD_LIBRARY_PATH=FAKES, PATH=self.python())["recorder.driver"][0]
        self.assertEqual(check["status"], "warn")
        self.assertIn("has 1 of the", check["detail"])
        self.assertIn("1 more that may change device memory: cuMemAllocFromTheMoon_v2", check["detail"])

    def test_driver_and_devices_are_listed(self):
        """the driver's version and each device with its memory are listed"""
        checks = self.doctor(LD_LIBRARY_PATH=FAKES, PATH=self.python())
        self.assertIn("550.54.15", checks["gpu.nvml"][0]["detail"])
        self.assertIn("12.4", checks["gpu.nvml"][0]["detail"])
        self.assertIn("12.4", checks["gpu.cuda"][0]["detail"])
        first, second = checks["gpu.device"]
        self.assertIn("24.00 GiB", first["detail"])
        self.assertIn("2.00 GiB in use", first["detail"])
        self.assertIn("memory not reported", second["detail"])

    def test_a_lost_device_is_a_warning(self):
        """a device that does not answer is a warning"""
        checks = self.doctor("--check", LD_LIBRARY_PATH=FAKES, FAKE_NVML_GPUS="3", PATH=self.python())
        self.assertEqual([c["status"] for c in checks["gpu.device"]], ["ok", "ok", "warn"])

    def test_a_driver_that_does_not_start_says_why(self):
        """a driver that does not start is a warning with the reason and the remedy"""
        checks = self.doctor("--check", LD_LIBRARY_PATH=FAKES, FAKE_NVML_INIT="18", PATH=self.python())
        self.assertEqual(checks["gpu.nvml"][0]["status"], "warn")
        self.assertIn("mismatch", checks["gpu.nvml"][0]["detail"])
        self.assertIn("reboot", checks["gpu.nvml"][0]["advice"])

    def test_hidden_devices_are_a_warning(self):
        """CUDA_VISIBLE_DEVICES that hides everything is a warning"""
        for value in ("", "-1"):
            checks = self.doctor(CUDA_VISIBLE_DEVICES=value, PATH=self.python())
            self.assertEqual(checks["gpu.visible"][0]["status"], "warn")
        checks = self.doctor(CUDA_VISIBLE_DEVICES="1,0", PATH=self.python())
        self.assertEqual(checks["gpu.visible"][0]["status"], "ok")

    def test_a_pytorch_too_new_for_the_driver_is_a_warning(self):
        """a PyTorch built for a newer CUDA than the driver supports is a warning"""
        path = self.python(torch="2.14.1+cu130")
        checks = self.doctor(LD_LIBRARY_PATH=FAKES, PATH=path)
        self.assertEqual(checks["python.torch_driver"][0]["status"], "warn")
        checks = self.doctor(LD_LIBRARY_PATH=FAKES, FAKE_CUDA_VERSION="13000", PATH=path)
        self.assertEqual(checks["python.torch_driver"][0]["status"], "ok")

    def test_a_newer_minor_version_is_fine(self):
        """a newer minor version of the same CUDA is no warning"""
        checks = self.doctor(LD_LIBRARY_PATH=FAKES, PATH=self.python(torch="2.8.0+cu128"))
        self.assertEqual(checks["python.torch_driver"][0]["status"], "ok")

    def test_two_settings_that_differ_are_a_warning(self):
        """the setting that PyTorch ignores is named when both variables are set"""
        checks = self.doctor(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64",
                             PYTORCH_ALLOC_CONF="expandable_segments:True", PATH=self.python(torch="2.14.1"))
        self.assertEqual(checks["alloc.names"][0]["status"], "warn")
        self.assertIn("PYTORCH_CUDA_ALLOC_CONF", checks["alloc.names"][0]["advice"])
        self.assertIn("max_split_size_mb:64", checks["alloc.settings"][0]["detail"])

    def test_two_equal_settings_are_fine(self):
        """the same settings under both names are no warning"""
        checks = self.doctor("--check", LD_LIBRARY_PATH="", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
                             PYTORCH_ALLOC_CONF="expandable_segments:True", PATH=self.python(torch="2.14.1"))
        self.assertEqual(checks["alloc.names"][0]["status"], "ok")

    def test_a_setting_that_pytorch_would_refuse_is_a_warning(self):
        """a setting that PyTorch would refuse is a warning with its words"""
        for value in ("expandable_segments:true", "max_split_size_mb:1", "expandable_segment:True"):
            checks = self.doctor(PYTORCH_ALLOC_CONF=value, PATH=self.python(torch="2.14.1"))
            self.assertEqual(checks["alloc.settings"][0]["status"], "warn", value)
            self.assertTrue(checks["alloc.settings"][0]["advice"], value)

    def test_settings_that_do_nothing_together_are_a_warning(self):
        """expandable segments with the asynchronous backend are a warning"""
        checks = self.doctor(PYTORCH_ALLOC_CONF="backend:cudaMallocAsync,expandable_segments:True",
                             PATH=self.python(torch="2.14.1"))
        self.assertEqual(checks["alloc.settings"][0]["status"], "warn")

    def test_expandable_segments_with_vllm_are_a_warning(self):
        """expandable segments are a warning where vLLM is installed, and only there"""
        for packages, status in (({"torch": "2.14.1"}, "ok"), ({"torch": "2.14.1", "vllm": "0.20.0"}, "warn")):
            checks = self.doctor(PYTORCH_ALLOC_CONF="expandable_segments:True", PATH=self.python(**packages))
            self.assertEqual(checks["alloc.settings"][0]["status"], status)

    def test_caching_switched_off_is_a_warning(self):
        """caching switched off is a warning"""
        checks = self.doctor(PYTORCH_NO_CUDA_MEMORY_CACHING="1", PATH=self.python())
        self.assertEqual(checks["alloc.no_caching"][0]["status"], "warn")

    def test_a_python_that_hangs_or_talks_nonsense_is_survived(self):
        """a python3 that talks nonsense counts as none"""
        path = self.python()
        program = pathlib.Path(self.folder.name) / "python3"
        program.write_text("#!/bin/sh\nhead -c 100000 /dev/zero\n", encoding="utf-8")
        checks = self.doctor(PATH=path)
        self.assertEqual(checks["python"][0]["status"], "missing")

    def test_the_text_fits_a_terminal(self):
        """the text is at most 80 columns wide, but where a word is too long for that"""
        text = plimtest.run("doctor", LD_LIBRARY_PATH=FAKES, PATH=self.python(torch="2.14.0")).stdout.decode()
        wide = [line for line in text.splitlines() if len(line) > 80 and len(max(line.split(), key=len)) <= 45]
        self.assertEqual([], wide)

    def test_the_text_says_the_same_as_the_json(self):
        """the text has a line for each check of the JSON"""
        checks = self.doctor(LD_LIBRARY_PATH=FAKES, PATH=self.python())
        text = plimtest.run("doctor", LD_LIBRARY_PATH=FAKES, PATH=self.python()).stdout.decode()
        for group in checks.values():
            for check in group:
                self.assertRegex(text, rf"(?m)^{check['status']} +")
                self.assertIn(check["title"], text)


if __name__ == "__main__":
    plimtest.main()
