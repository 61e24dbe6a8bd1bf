#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run every check there is, stage by stage, and sum up: what `make check` does after setting up.

A stage is a build, a test run in one build folder, or a linter. A failing stage does not stop the others,
but a stage that needs a build which failed is skipped and counts as failed. Logs go to build/check/NAME.log.

    tools/check.py                      all stages
    tools/check.py --list               their names
    tools/check.py STAGE ...            only these (and what they need)
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import ci_summary

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "check"
JOBS = str(os.cpu_count() or 2)
STAGE_SECONDS = int(os.environ.get("PLIMSOLL_STAGE_SECONDS", "2400"))
FUZZ_SECONDS = os.environ.get("PLIMSOLL_FUZZ_SECONDS", "15")


class Stage:
    """One step. `tests` is the build folder whose Meson test log counts; None: the stage counts as one."""

    def __init__(self, name, commands, needs=(), tools=(), tests=None):
        self.name = name
        self.commands = commands
        self.needs = needs
        self.tools = tools
        self.tests = tests


def setup(folder, *options):
    return f"[ -f {folder}/build.ninja ] || meson setup {folder} {' '.join(options)}"


def tests(folder, *suites):
    """The tests of these suites; without names all but those that need PyTorch or other large programs."""
    chosen = " ".join(f"--suite {s}" for s in suites) or "--no-suite oracle --no-suite vllm --no-suite web"
    return f"meson test -C {folder} --no-rebuild --print-errorlogs -t 4 {chosen}"


SANITIZE = "-Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debug -Doptimization=1"
THREADS = "-Db_sanitize=thread -Db_lundef=false -Dbuildtype=debug -Doptimization=1"

STAGES = [
    Stage("build", [setup("build", "-Dwerror=true"), f"ninja -C build -j {JOBS}"]),
    Stage("layers", ["tools/check_layers.py"]),
    Stage("headers", ["tools/check_headers.py"], needs=["build"]),
    Stage("size", ["tools/check_size.py --stats"]),
    Stage("format", ["tools/lint.sh format"], tools=["clang-format-16"]),
    Stage("shell", ["tools/lint.sh shell"], tools=["shellcheck"]),
    Stage("spelling", ["tools/lint.sh spelling"], tools=["codespell"]),
    Stage("python", ["tools/python_lint.sh"]),
    Stage("portable", ["tools/lint.sh portable"], needs=["build"]),
    Stage("deploy-env", ["tools/deploy_env.sh"]),
    Stage("tests", [tests("build")], needs=["build"], tests="build"),
    Stage("install", ["tools/check_install.sh build"], needs=["build"]),
    Stage("web-env", ["tools/web_env.sh"]),
    Stage("tests-web", [tests("build", "web")], needs=["build"], tests="build"),
    Stage("oracle-env", ["tools/oracle_env.sh --hf", "tools/oracle_env.sh --cuda12"]),
    Stage("tests-oracle", [tests("build", "oracle")], needs=["build", "oracle-env"], tests="build"),
    Stage("vllm-env", ["tools/oracle_env.sh --vllm"]),
    Stage("tests-vllm", [tests("build", "vllm")], needs=["build", "vllm-env"], tests="build"),
    Stage("build-asan", [setup("build-asan", SANITIZE), f"ninja -C build-asan -j {JOBS}"]),
    Stage("tests-asan", [tests("build-asan", "quick", "cli", "golden", "fuzz", "sanitize")],
          needs=["build-asan"], tests="build-asan"),
    Stage("build-tsan", [setup("build-tsan", THREADS), f"ninja -C build-tsan -j {JOBS}"]),
    Stage("tests-tsan", [tests("build-tsan", "threads")], needs=["build-tsan"], tests="build-tsan"),
    Stage("coverage", ["tools/coverage.sh 85"], tools=["gcovr"]),
    Stage("fuzz", [f"PLIMSOLL_FUZZ_SEED=1 tools/fuzz.sh {FUZZ_SECONDS}"], tools=["clang-14"]),
    Stage("tidy", ["tools/lint.sh tidy"], needs=["build"], tools=["clang-tidy-16"]),
    Stage("cppcheck", ["tools/lint.sh cppcheck"], needs=["build"], tools=["cppcheck"]),
]


def run_stage(stage, log):
    if stage.tests is not None:
        (ROOT / stage.tests / "meson-logs" / "testlog.json").unlink(missing_ok=True)
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1",
                       UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1")
    with open(log, "w", encoding="utf-8") as out:
        for command in stage.commands:
            out.write(f"$ {command}\n")
            out.flush()
            if not run_command(command, out, environment):
                return False
    return True


def run_command(command, out, environment):
    """Run in a process group of its own, so that nothing of it is left when its time is over."""
    with subprocess.Popen(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                          stderr=subprocess.STDOUT, env=environment, start_new_session=True) as process:
        try:
            return process.wait(timeout=STAGE_SECONDS) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out.write(f"\nstopped after {STAGE_SECONDS} s\n")
            return False
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            raise


def show_log(log):
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines[-60:]:
        print("    " + line)


def counts_of(stage, good):
    """(passed, failed, skipped) of a stage that ran; its tests where it has some, else the stage as one."""
    if stage.tests is None:
        return (1, 0, 0) if good else (0, 1, 0)
    log = ROOT / stage.tests / "meson-logs" / "testlog.json"
    if good and not log.exists():
        return 0, 0, 1  # no test of these suites
    found = ci_summary.count_testlog(log)
    if not good and found[1] == 0:
        return found[0], 1, found[2]
    return found


def failures_of(stage, log):
    """What failed in a stage: its tests where it has some and they say it, else the end of its log."""
    found = ci_summary.failures_of_testlog(ROOT / stage.tests / "meson-logs" / "testlog.json") if stage.tests else []
    return found or [["", *ci_summary.shortened(log.read_text(encoding="utf-8", errors="replace").splitlines())]]


def run(stages):
    LOGS.mkdir(parents=True, exist_ok=True)
    results = []
    broken = set()
    for stage in stages:
        log = LOGS / f"{stage.name}.log"
        log.unlink(missing_ok=True)  # exists from now on when the stage ran
        start = time.monotonic()
        absent = [t for t in stage.tools if shutil.which(t) is None]
        if absent:
            state, counts = f"skipped: no {', '.join(absent)}", (0, 0, 1)
        elif broken.intersection(stage.needs):
            state, counts = "FAILED: what it needs is broken", (0, 1, 0)
        else:
            good = run_stage(stage, log)
            counts = counts_of(stage, good)
            state = "ok" if good and counts[1] == 0 else f"FAILED, see {log.relative_to(ROOT)}"
        if counts[1]:
            broken.add(stage.name)
        seconds = time.monotonic() - start
        results.append({"stage": stage.name, "counts": counts, "seconds": round(seconds, 1),
                        "failures": failures_of(stage, log) if counts[1] and log.exists() else []})
        print(f"{stage.name:12} {seconds:7.1f} s  {counts[0]:5} passed  {state}", flush=True)
        if counts[1] and log.exists():
            show_log(log)
    print(f"{'all':12} {sum(r['seconds'] for r in results):7.1f} s", flush=True)
    (LOGS / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")


def with_needs(names):
    known = {s.name: s for s in STAGES}
    wanted = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in known:
            sys.exit(f"check: no stage '{name}'; one of: {' '.join(known)}")
        wanted.add(name)
        todo.extend(known[name].needs)
    return [s for s in STAGES if s.name in wanted]


def main(argv):
    if argv[1:] == ["--list"]:
        print("\n".join(s.name for s in STAGES))
        return 0
    run(with_needs(argv[1:]) if argv[1:] else STAGES)
    return ci_summary.main(["ci_summary.py", str(LOGS / "results.json")])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
