# SPDX-License-Identifier: Apache-2.0
"""Environment in which a program runs on the simulated GPU. Standard library only.

    python3 tests/integration/simgpu_env.py BUILD [PLIMSOLL_SIM_X=...] -- COMMAND ...

runs a command there; tests import `environment`.
"""

import os
import sys


def environment(build, base=None, preload=None, **settings):
    """A copy of `base` (os.environ) that preloads the simulated GPU built in `build`.

    settings: gpu="24GiB" becomes PLIMSOLL_SIM_GPU, and so on. `preload` names the shells wanted;
    None means all.
    """
    root = os.path.join(os.path.abspath(build), "runtime", "simgpu")
    shells = os.path.join(root, "shells")
    names = sorted(n for n in os.listdir(shells) if ".so." in n and not n.endswith((".map", ".p")))
    names = [n for n in names if preload is None or n in preload]
    libraries = [os.path.join(root, "libplimsoll-simgpu.so")]
    libraries += [os.path.join(shells, n) for n in names]
    env = dict(os.environ if base is None else base)
    env["LD_PRELOAD"] = ":".join(libraries)
    env["LD_LIBRARY_PATH"] = shells + (":" + env["LD_LIBRARY_PATH"] if env.get("LD_LIBRARY_PATH") else "")
    env["TRITON_LIBCUDA_PATH"] = shells
    for key, value in settings.items():
        env["PLIMSOLL_SIM_" + key.upper()] = str(value)
    return env


def main(argv):
    at = argv.index("--")
    settings = dict(a.split("=", 1) for a in argv[2:at])
    env = environment(argv[1])
    env.update(settings)
    os.execvpe(argv[at + 1], argv[at + 1:], env)


if __name__ == "__main__":
    main(sys.argv)
