"""The warm Python process of a sandbox worker: forks itself for every Python program.

    python3 -I -c TEXT_OF_THIS_FILE DESCRIPTOR LIBRARY

DESCRIPTOR is a socket of messages. First this process sends the paths, one per line, that Python programs
must be able to read. Then each message brings the control socket (confine.h) of a program, whose text is
main.py in the folder that it is confined to. When the program's process has ended, this process sends its
wait status and processor time.
"""

import array
import atexit
import ctypes
import gc
import os
import socket
import sys

# What most programs import: a fork is faster than an import. What few import would make every fork slower.
import bisect, collections, copy, functools, heapq, io, itertools, math, operator, random, re, string  # noqa: E401
import threading, time, traceback, types, typing  # noqa: E401


def receive(worker):
    """The next control socket; None: the worker is gone."""
    message, carried, _, _ = worker.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
    if not message:
        return None
    return array.array("i", carried[0][2])[0]


def serve(worker, confine):
    """Returns in the confined process of a program; otherwise when the worker is gone."""
    while True:
        control = receive(worker)
        if control is None:
            return False
        child = os.fork()
        if child == 0:
            confine(control)
            return True
        os.close(control)
        _, status, used = os.wait4(child, 0)
        worker.send(f"{status} {used.ru_utime + used.ru_stime:.6f}".encode())


def run():
    with open("main.py", "rb") as file:
        text = file.read()
    main = types.ModuleType("__main__")
    main.__file__ = "main.py"
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    sys.argv = ["main.py"]
    sys.path.insert(0, "")
    gc.enable()  # what is frozen stays shared with the parent
    try:
        exec(compile(text, "main.py", "exec"), main.__dict__)
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__.tb_next)
    return 1


def end(code):
    """Ends the process as the interpreter would, but leaves its memory to the system."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        code = code or 120
    try:
        sys.stderr.flush()
    finally:
        os._exit(code)


def warm_up():
    """Uses the compiler and what most programs use, whose first use takes longer than a fork."""
    program = (
        "import sys\nclass A:\n    def f(self, x=1, *y, **z):\n        return [f'{i:3}' for i in range(x)]\n"
        "try:\n    print(A().f(2), {1: (2, 3.0)}, file=out)\nexcept ValueError as e:\n    raise\n"
    )
    for _ in range(3):
        exec(compile(program, "main.py", "exec"), {"out": io.StringIO(), "__name__": "__main__"})
    with open(os.devnull, "rb") as file:
        file.read()


def main():
    worker = socket.socket(fileno=int(sys.argv[1]))
    confine = ctypes.CDLL(sys.argv[2]).FreshetConfine
    confine.argtypes, confine.restype = [ctypes.c_int], None
    paths = {sys.prefix, sys.base_prefix, *filter(os.path.isabs, sys.path)}
    worker.send("\n".join(sorted(filter(os.path.isdir, paths))).encode())
    warm_up()
    gc.collect()
    gc.disable()
    gc.freeze()
    if serve(worker, confine):
        end(run())


main()
