#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a script with the Python that has transformers: in_env.py BUILD SCRIPT [ARG...]

The environment is that of tools/oracle_env.sh --hf, made when it is missing, on the simulated device, which
answers for the libraries of a GPU that PyTorch looks for when it is imported.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import simgpu_env  # noqa: E402


def main(build, *command):
    python = subprocess.run([str(ROOT / "tools" / "oracle_env.sh"), "--hf"], check=True,
                            stdout=subprocess.PIPE).stdout.decode().strip()
    os.execve(python, [python, *command], simgpu_env.environment(build))


if __name__ == "__main__":
    main(*sys.argv[1:])
