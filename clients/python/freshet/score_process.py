"""One process of RewardProcesses: loads a reward function and answers one call at a time.

Run by path, not as a module, so that it loads nothing but the standard library and the function:

    score_process.py DESCRIPTOR PARENT_PID MEMORY_BYTES SOURCE FUNCTION

SOURCE is a file, or "math" for Math-Verify. DESCRIPTOR is a connected socket. Every message is a
JSON text after its length in 4 bytes (little endian). What the function prints goes to standard
error.
"""

import sys

del sys.path[0]  # this file's folder, whose modules are not meant for the function

import importlib.util  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import numbers  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

_MAX_ERROR_CHARACTERS = 500
_PROCESS = os.getpid()


def send(connection, message):
    if os.getpid() != _PROCESS:
        os._exit(1)  # forked by the function; its answer would be taken for that of the next call
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("<I", len(data)) + data)


def receive(connection):
    """The next message; None: the other side has closed."""
    size = connection.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        return None
    data = bytearray()
    (left,) = struct.unpack("<I", size)
    while left > 0:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            return None
        data += part
        left -= len(part)
    return json.loads(data)


def end_with(parent):
    """Ends this process and what it has started soon after process `parent`, also in the middle of a
    call that lets other threads run."""

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def limit(memory_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def math_verify_function():
    import logging

    import math_verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of calls without its own limits
    # The pool limits the time; with limits of its own the library would answer that nothing was found.
    def parse(text):
        return math_verify.parse(text, parsing_timeout=None)

    def compute_score(data_source, solution_str, ground_truth, extra_info):
        gold = parse(ground_truth) or parse(f"${ground_truth}$")
        if not gold:
            raise ValueError(f"Math-Verify cannot parse the gold answer {ground_truth[:100]!r}")
        answer = parse(solution_str)
        try:
            # The arguments are not exchangeable: the gold answer comes first.
            return float(math_verify.verify(gold, answer, timeout_seconds=None, raise_on_error=True))
        except MemoryError:
            raise
        except Exception:  # as the library: what it cannot compare is not equal
            return 0.0

    return compute_score


def load(source, name):
    if source == "math":
        return math_verify_function()
    sys.path.insert(0, os.path.dirname(source))
    spec = importlib.util.spec_from_file_location("reward_file", source)
    module = importlib.util.module_from_spec(spec)
    sys.modules["reward_file"] = module
    spec.loader.exec_module(module)
    function = getattr(module, name)
    if not callable(function):
        raise TypeError(f"{name} is not a function")
    return function


def number(value):
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"it returned {value}")
    return value


def result_of(value):
    """A number, or a dict with `score`, as verl's functions return; its other numbers are parts."""
    if not isinstance(value, dict):
        return {"reward": number(value), "parts": {}}
    if "score" not in value:
        raise ValueError("it returned a dict without 'score'")
    parts = {str(name): number(part) for name, part in value.items()
             if name != "score" and isinstance(part, numbers.Real)}
    return {"reward": number(value["score"]), "parts": parts}


def describe(error):
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARACTERS]


def main():
    descriptor, parent, memory_bytes, source, name = sys.argv[1:]
    connection = socket.socket(fileno=int(descriptor))
    sys.stdout = sys.stderr
    try:
        end_with(int(parent))
        limit(int(memory_bytes))
        function = load(source, name)
    except BaseException as error:  # whatever the file does when it is loaded
        send(connection, {"error": describe(error)})
        return
    send(connection, {"ready": True})
    while True:
        call = receive(connection)
        if call is None:
            return
        try:
            answer = result_of(function(*call["arguments"]))
        except BaseException as error:  # whatever the function raises
            answer = {"error": describe(error), "ends": isinstance(error, MemoryError)}
        send(connection, answer)
        if answer.get("ends"):
            return


if __name__ == "__main__":
    main()
