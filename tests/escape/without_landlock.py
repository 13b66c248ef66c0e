#!/usr/bin/env python3
"""Runs a program as on a kernel without Landlock: a seccomp filter answers its first call with ENOSYS.

    without_landlock.py PROGRAM [ARGUMENT...]
"""
import ctypes
import os
import struct
import sys

CREATE_RULESET = 444
SET_NO_NEW_PRIVS = 38
SET_SECCOMP, MODE_FILTER = 22, 2
# Loads the call's number; ENOSYS if it is CREATE_RULESET, else allowed.
FILTER = [(0x20, 0, 0, 0), (0x15, 0, 1, CREATE_RULESET), (0x06, 0, 0, 0x50000 | 38), (0x06, 0, 0, 0x7FFF0000)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in FILTER))
    program = Program(len(FILTER), ctypes.cast(code, ctypes.c_void_p).value)
    if libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(SET_SECCOMP, MODE_FILTER, ctypes.byref(program)) != 0:
        sys.exit(f"without_landlock: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


main()
