#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the gate makes of a real vLLM under load, and what vLLM's own limits make of it: one table.

    python3 tests/bench/bench_gate_vllm.py [SECONDS [KERNEL_TIME [MOST [DOOR]]]]

The same clients for so many seconds (30) before each of: vLLM alone, with each of its limits, and behind the gate, on the
simulated device whose kernels take KERNEL_TIME (200us; 0: none). With MOST (0: no) all ask for so many tokens, and answers
end by themselves as before. With DOOR only the doors whose name has it in. Each server starts anew. Not part of `make check`: ten
minutes."""

import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
sys.path.insert(0, str(HERE.parent / "integration"))
import plimtest  # noqa: E402
import test_simgpu_torch  # noqa: E402
import tiny_model  # noqa: E402
import vllm_load  # noqa: E402

DOORS = {
    "vLLM alone": (),
    "`--max-num-queued-reqs 24`": ("--max-num-queued-reqs", "24"),
    "`--max-num-queued-tokens 256`": ("--max-num-queued-tokens", "256"),
    "fixed concurrency, `--max-num-seqs 24`": ("--max-num-seqs", "24"),
    "behind the gate": ("--middleware", "plimsoll.gate.Middleware"),
}


def measure(folder, python, options, seconds, kernel_time, most=0):
    port, ledger = plimtest.free_port(), folder / "gate.ledger"
    env = plimtest.clean_environment(folder / "home", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
                                     VLLM_CACHE_ROOT=str(folder / "vllm"), TRITON_CACHE_DIR=str(folder / "triton"))
    env["PATH"] = f"{pathlib.Path(python).parent}:{env['PATH']}"
    gated = "--middleware" in options
    if gated:
        env.update(vllm_load.gate_environment(test_simgpu_torch.BUILD, ledger))
    command = [plimtest.PROGRAM, "dryrun", "--gpu", "h100-80gb", "--kernel-time", kernel_time, "--snapshot",
               folder / "snapshot", "-o", folder / "report", "--", "vllm", "serve", folder / "model", "--load-format",
               "dummy", "--max-model-len", "2048", "--enforce-eager", "--num-gpu-blocks-override",
               vllm_load.POOL // 16 + 1, "--no-enable-prefix-caching", "--api-server-count", "2", "--host", "127.0.0.1",
               "--port", port, *options]
    return vllm_load.load(command, env, python, port, folder / "log", ledger if gated else None, seconds, most)


def main(argv):
    seconds = int(argv[1]) if len(argv) > 1 else 30
    kernel_time = argv[2] if len(argv) > 2 else "200us"
    most = int(argv[3]) if len(argv) > 3 else 0
    doors = {door: options for door, options in DOORS.items() if len(argv) < 5 or argv[4] in door}
    python = test_simgpu_torch.interpreter("--vllm")
    print("| | served | tokens | refused | preemptions for each served | ms a token, p50 | p99 | ledger off by |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        tiny_model.make(pathlib.Path(name) / "model", "1b")
        for door, options in doors.items():
            outcome = measure(pathlib.Path(name), python, options, seconds, kernel_time, most)
            got = outcome.got
            refused = sum(n for end, n in got["ends"].items() if end in ("429", "503"))
            drift = f"{100 * outcome.drift():.1f} %" if outcome.samples else ""
            print(f"| {door} | {outcome.served()} | {got['tokens']:.0f} | {refused} | {outcome.preempted():.3f} | "
                  f"{got['token_ms'][0]} | {got['token_ms'][1]} | {drift} |", flush=True)


if __name__ == "__main__":
    main(sys.argv)
