# SPDX-License-Identifier: Apache-2.0
"""Lists the flags that `vllm serve` takes, one a line: kind, destination, how many values, names, type.

    python3 vllm_flags.py          with the interpreter of the vLLM environment

src/serving/vllm_flags.def is held against this list when a release of vLLM is added.
"""

from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main():
    for action in make_arg_parser(FlexibleArgumentParser())._actions:
        if action.option_strings:
            kind = getattr(action.type, "__name__", action.type) if action.type else ""
            print(type(action).__name__, action.dest, action.nargs, ",".join(action.option_strings), kind, sep="\t")


if __name__ == "__main__":
    main()
