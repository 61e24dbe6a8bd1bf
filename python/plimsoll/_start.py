# SPDX-License-Identifier: Apache-2.0
"""What the start hook `plimsoll-attach.pth` imports when PLIMSOLL_ATTACH or PLIMSOLL_ALLOC is set in the environment.

Nearly nothing, because most programs that inherit the variables use no PyTorch: it waits for the import of torch, and
loads the rest then.
"""

import os
import sys
import types

from . import _hooks


def imported(torch: types.ModuleType) -> None:
    if os.environ.get("PLIMSOLL_ALLOC"):
        allocate()
    if os.environ.get("PLIMSOLL_ATTACH"):
        from . import _attach

        _attach.start()


def allocate() -> None:
    """The allocator that moves pages, for all device memory of this process."""
    try:
        from . import alloc

        alloc.install()
    except Exception as error:
        sys.stderr.write(f"plimsoll: alloc: PyTorch's own allocator stays: {error!r}\n")


def failed(error: Exception) -> None:
    sys.stderr.write(f"plimsoll: attach: nothing is recorded: {error!r}\n")


sys.meta_path.insert(0, _hooks.AfterImport({"torch": imported}, failed))
