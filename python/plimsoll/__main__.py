# SPDX-License-Identifier: Apache-2.0
"""`python -m plimsoll ...` is `plimsoll ...`."""

import sys

from ._program import main

if __name__ == "__main__":
    sys.exit(main())
