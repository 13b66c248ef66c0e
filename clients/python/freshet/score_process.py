"""One process of RewardProcesses: loads a reward function and answers one call at a time.

Run by path, not as a module, so that it loads nothing but the standard library and the function:

    score_process.py DESCRIPTOR MEMORY_BYTES SOURCE FUNCTION

SOURCE is a file, or "math" for Math-Verify. DESCRIPTOR is a connected socket. Every message is a
JSON text after its length in 4 bytes (little endian). What the function prints goes to standard
error.
"""

import importlib.util
import json
import math
import numbers
import os
import resource
import socket
import struct
import sys
import threading
import time

_MAX_ERROR_CHARACTERS = 500


def send(connection, message):
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


def end_with_parent():
    """Also in the middle of a call."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def limit(memory_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def math_verify_function():
    import math_verify

    def compute_score(data_source, solution_str, ground_truth, extra_info):
        # The arguments are not exchangeable: the gold answer comes first.
        gold = math_verify.parse(ground_truth) or math_verify.parse(f"${ground_truth}$")
        if not gold:
            raise ValueError(f"Math-Verify cannot parse the gold answer {ground_truth[:100]!r}")
        return float(math_verify.verify(gold, math_verify.parse(solution_str)))

    return compute_score


def load(source, name):
    if source == "math":
        return math_verify_function()
    spec = importlib.util.spec_from_file_location("reward_file", source)
    module = importlib.util.module_from_spec(spec)
    sys.modules["reward_file"] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


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
    descriptor, memory_bytes, source, name = sys.argv[1:]
    connection = socket.socket(fileno=int(descriptor))
    sys.stdout = sys.stderr
    try:
        end_with_parent()
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
