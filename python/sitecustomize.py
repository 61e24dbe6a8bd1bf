# SPDX-License-Identifier: Apache-2.0
"""What `plimsoll record` puts first on PYTHONPATH, so that a Python without the wheel attaches too.

Runs the sitecustomize that it hides, if there is one, and then does what the start hook of the wheel does.
"""

import os

from plimsoll import _hooks

_hooks.run_hidden_sitecustomize(os.path.dirname(os.path.abspath(__file__)))
if os.environ.get("PLIMSOLL_ATTACH"):
    from plimsoll import _start  # noqa: F401
