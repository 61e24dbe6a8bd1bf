# SPDX-License-Identifier: Apache-2.0
"""What the start hook `plimsoll-attach.pth` imports when PLIMSOLL_ATTACH is set in the environment.

Nearly nothing, because most programs that inherit the variable use no PyTorch: it waits for the import of torch, and
loads the rest then.
"""

import sys
import types

from . import _hooks


def imported(torch: types.ModuleType) -> None:
    from . import _attach

    _attach.start()


def failed(error: Exception) -> None:
    sys.stderr.write(f"plimsoll: attach: nothing is recorded: {error!r}\n")


sys.meta_path.insert(0, _hooks.AfterImport({"torch": imported}, failed))
