# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: running the program in a clean place, and unittest speaking TAP.

The environment variable PLIMSOLL names the program (Meson sets it). Tests see an environment without the
user's settings: no PLIMSOLL_*, no NO_COLOR, the C.UTF-8 locale, an empty home.
"""

import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("PLIMSOLL", str(ROOT / "build" / "plimsoll"))
SCHEMAS = ROOT / "docs" / "schema"
PATIENCE = 90  # seconds before a test says that something hangs: never how long a thing may take
KEPT = ("PATH", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LD_LIBRARY_PATH")


def clean_environment(home, **extra):
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    env.update(LC_ALL="C.UTF-8", HOME=str(home), PATH=f"{pathlib.Path(PROGRAM).parent}:{env.get('PATH', '')}")
    env.update(extra)
    return env


def run(*args, stdin=b"", cwd=None, timeout=120, **env):
    """Run the program; the result has returncode, stdout and stderr (bytes)."""
    with tempfile.TemporaryDirectory() as home:
        return subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True,
                              cwd=cwd or home, env=clean_environment(home, **env), timeout=timeout,
                              check=False)


def wait_for(what, condition, seconds=PATIENCE):
    """What condition() gives as soon as it is true; an error when it never is."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def lives(pid):
    """Whether there is such a process, and not only what is left of one."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, closed at the end of a with block."""

    def __init__(self, path, timeout=PATIENCE):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def free_port():
    """A port for a server that cannot choose one itself. None of those that the system gives to whoever asks for any, so
    that no connection made meanwhile gets it."""
    try:
        first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError):
        first = 32768
    for port in random.sample(range(10000, max(first, 20000)), 1000):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def schemas():
    """Every JSON Schema of docs/schema by the value of its "schema" key, as "plimsoll.explain/1"."""
    found = {}
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        if "openapi" in schema:  # describes an interface, not an output
            continue
        found[schema["properties"]["schema"]["const"]] = schema
    return found


def schema_complaints(document):
    """What is wrong with a JSON answer of the program, one line each; [] when it keeps its contract."""
    import jsonschema  # Debian package python3-jsonschema

    name = document.get("schema") if isinstance(document, dict) else None
    schema = schemas().get(name)
    if schema is None:
        return [f"no file in docs/schema describes {name!r}"]
    validator = jsonschema.validators.validator_for(schema)(schema)
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(document)]


class TapResult(unittest.TestResult):
    """Prints each test as a TAP point, with the reasons of failures as comments."""

    def __init__(self, stream):
        super().__init__()
        self.stream_out = stream
        self.count = 0

    def point(self, ok, test, note=""):
        self.count += 1
        name = (test.shortDescription() or test.id()).replace("#", "")
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}{note}", file=self.stream_out, flush=True)

    def reason(self, err, test):
        for line in self._exc_info_to_string(err, test).splitlines():
            print("# " + line, file=self.stream_out, flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.point(True, test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.point(False, test)
        self.reason(err, test)

    def addError(self, test, err):
        super().addError(test, err)
        self.point(False, test)
        self.reason(err, test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.point(True, test, f" # SKIP {reason}")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.point(False, subtest)
            self.reason(err, subtest)


def main():
    """Run the tests of the calling module in TAP; arguments select tests by name."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    chosen = sys.argv[1:]
    flat = [t for t in flatten(suite) if not chosen or any(word in t.id() for word in chosen)]
    result = TapResult(sys.stdout)
    unittest.TestSuite(flat).run(result)
    print(f"1..{result.count}", flush=True)
    sys.exit(0 if result.wasSuccessful() else 1)


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item
