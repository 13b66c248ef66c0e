"""Exit codes and messages of the modules that `freshet` runs as its commands."""

from __future__ import annotations

import sys

# As in base/exit_code.h.
INTERNAL = 1
COMMAND_LINE = 2
CONTENT = 3
REFUSED = 4
NO_CONNECTION = 7
TIMEOUT = 8
INTERRUPTED = 130


def say(line: str) -> None:
    print(f"freshet: {line}", file=sys.stderr)


def fail(fault: object, code: int) -> int:
    """Prints `fault`, with the file's name if it is of the operating system. Returns `code`."""
    if isinstance(fault, OSError) and fault.strerror:
        fault = f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror
    for line in str(fault).splitlines():
        say(line)
    return code


def missing_package(fault: ModuleNotFoundError, packages: str) -> int:
    """Says how to install the missing packages. `packages`: arguments of `pip install`."""
    install = f"{sys.executable} -m pip install {packages}"
    return fail(f"{sys.executable}: {fault}; install it with {install}", INTERNAL)
