# SPDX-License-Identifier: Apache-2.0
"""Finding and running the program `plimsoll`, and its errors as exceptions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, Union

Option = Union[str, int, float, bool, None, "os.PathLike[str]", Sequence[str]]

# Exit code to name, as in include/plimsoll/status.h, of which two share 71 and several 65 and 66.
NAMES = {64: "E_USAGE", 65: "E_DATA", 66: "E_NOINPUT", 69: "E_UNSUPPORTED", 70: "E_INTERNAL", 71: "E_OS",
         73: "E_CREATE", 74: "E_IO"}


class PlimsollError(Exception):
    """The program could not give an answer.

    exit_code  its exit status, of sysexits.h
    status     the name that belongs to it, as "E_DATA"
    message    what is wrong, one sentence
    hint       what to do next, or ""
    """

    def __init__(self, exit_code: int, message: str, hint: str = "") -> None:
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.exit_code = exit_code
        self.status = NAMES.get(exit_code, "E_INTERNAL")
        self.message = message
        self.hint = hint

    def __reduce__(self) -> Tuple[Type[PlimsollError], Tuple[int, str, str]]:
        return type(self), (self.exit_code, self.message, self.hint)


class UsageError(PlimsollError, ValueError):
    """Wrong use: an option that is not there, a value that it does not take."""


class DataError(PlimsollError, ValueError):
    """The input is not what it should be."""


class InputMissing(PlimsollError, FileNotFoundError):
    """The input cannot be opened, or what was asked for is not in it."""


class Unsupported(PlimsollError):
    """This cannot be done here."""


class SystemFailure(PlimsollError, OSError):
    """The operating system refused: no memory, no space, no permission."""


KINDS: Dict[int, Type[PlimsollError]] = {
    64: UsageError, 65: DataError, 66: InputMissing, 69: Unsupported, 71: SystemFailure, 73: SystemFailure,
    74: SystemFailure,
}


def program() -> str:
    """The program of this package, else that of PLIMSOLL_PROGRAM, else the one on PATH. Errors: Unsupported."""
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native", "bin", "plimsoll")
    for path in (os.environ.get("PLIMSOLL_PROGRAM"), bundled):
        if path and os.access(path, os.X_OK):
            return path
    # Not the console script of this package, which would come back here.
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = shutil.which("plimsoll", path=folder) if folder else None
        if path is not None and is_binary(path):
            return path
    raise Unsupported(69, "the program plimsoll is not installed",
                      "install the wheel, or name the program in PLIMSOLL_PROGRAM")


def native_library(name: str, variable: str) -> str:
    """Path of a shared object: what the environment variable names, else that of this package, else beside the program
    that is installed. Errors: Unsupported."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.environ.get(variable, ""), os.path.join(here, "_native", "lib", "plimsoll", name)]
    try:
        places.append(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program()))), "lib", "plimsoll",
                                   name))
    except Unsupported:
        pass
    for path in places:
        if path and os.path.exists(path):
            return path
    raise Unsupported(69, f"{name} is not installed", f"install the wheel, or name the library in {variable}")


def is_binary(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def words(options: Dict[str, Option]) -> List[str]:
    """Keyword arguments as options: device_memory="24GiB" is --device-memory=24GiB, True is the option alone,
    False and None leave it out, a list gives it several times."""
    out: List[str] = []
    for name, value in options.items():
        word = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            out.append(word)
        elif isinstance(value, (list, tuple)):
            out.extend(f"{word}={item}" for item in value)
        else:
            out.append(f"{word}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return out


def ask(verb: str, arguments: Sequence[str], options: Dict[str, Option], text: Optional[str] = None,
        timeout: Optional[float] = None) -> Dict[str, Any]:
    """The JSON answer of a verb. Errors: PlimsollError, subprocess.TimeoutExpired."""
    for name in ("format", "output"):
        if name in options:
            raise UsageError(64, f"{name!r} is not for a function: the answer is what it returns")
    command = [program(), verb, "--format=json", "--output=-", *words(options), *arguments]
    result = subprocess.run(command, input=None if text is None else text.encode("utf-8", "replace"),
                            stdin=subprocess.DEVNULL if text is None else None, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, timeout=timeout, check=False)
    if result.returncode not in (0, 1, 2):
        raise error_of(result.returncode, result.stderr.decode("utf-8", "replace"))
    answer: Dict[str, Any] = json.loads(result.stdout)
    return answer


def error_of(code: int, stderr: str) -> PlimsollError:
    """What the program said about itself on standard error, behind what others may have written there."""
    message, hint = "", ""
    for line in stderr.splitlines():
        if line.startswith("plimsoll: hint: "):
            hint = line[len("plimsoll: hint: "):]
        elif line.startswith("plimsoll: "):
            message = line[len("plimsoll: "):]
    if code < 0:
        return SystemFailure(71, f"the program was ended by signal {-code}", hint)
    return KINDS.get(code, PlimsollError)(code, message or f"the program ended with status {code}", hint)


def main() -> int:
    """The console script: become the program."""
    try:
        path = program()
    except Unsupported as error:
        sys.stderr.write(f"plimsoll: {error.message}\nplimsoll: hint: {error.hint}\n")
        return error.exit_code
    os.execv(path, [path, *sys.argv[1:]])
