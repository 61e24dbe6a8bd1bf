# SPDX-License-Identifier: Apache-2.0
"""What the start hook `plimsoll-attach.pth` imports when PLIMSOLL_ATTACH is set in the environment."""

from . import _attach

_attach.start()
