#!/usr/bin/env python3
"""The launcher stops what it started, and says why a process does not get ready."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import launcher

# Starts redis-server and a process with a child, prints their process group IDs, then does what follows.
PROGRAM = """
import sys, time, launcher
processes = launcher.Processes(sys.argv[1])
processes.start_redis()
processes.start("parent-0", "sh", "-c", "sleep 100 & echo started; wait")
processes.await_ready("parent-0", lambda: processes.log("parent-0"))
print(*(process.pid for process in processes.processes.values()), flush=True)
"""


def is_running(group):
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            state, _, of = path.read_text().rsplit(")", 1)[1].split()[:3]
            if state != "Z" and int(of) == group:
                return True
    return False


class LauncherTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def groups_after(self, ending, end=lambda process: None):
        with subprocess.Popen([sys.executable, "-c", PROGRAM + ending, self.folder], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, cwd=os.path.dirname(launcher.__file__)) as process:
            groups = [int(word) for word in process.stdout.readline().split()]
            end(process)
            process.wait(launcher.SECONDS)
        self.assertEqual(len(groups), 2)
        return groups

    def test_nothing_runs_after_an_error(self):
        for group in self.groups_after("raise RuntimeError"):
            launcher.await_true("the end", lambda: not is_running(group), seconds=10)

    def test_nothing_runs_after_sigterm(self):
        for group in self.groups_after("time.sleep(100)", lambda process: process.send_signal(signal.SIGTERM)):
            launcher.await_true("the end", lambda: not is_running(group), seconds=10)

    def test_a_start_that_fails_is_explained(self):
        with launcher.Processes(self.folder) as processes:
            processes.start("role-0", "sh", "-c", "echo no such file; exit 3")
            with self.assertRaisesRegex(RuntimeError, "role-0 ended; log of role-0: no such file"):
                processes.await_ready("role-0", lambda: False)
            processes.start("role-1", "sh", "-c", "echo loading; sleep 100")
            with mock.patch.object(launcher, "SECONDS", 0.2):
                with self.assertRaisesRegex(RuntimeError, "role-1 ready: not within 0.2 s; log of role-1: loading"):
                    processes.await_ready("role-1", lambda: False)
        with self.assertRaisesRegex(RuntimeError, "role-2 is not started"):
            processes.start("role-2", "true")

    def test_redis_users_have_the_rights_of_their_roles(self):
        with launcher.Processes(self.folder, users=True) as processes:
            processes.start_redis()
            with socket.create_connection(("127.0.0.1", processes.redis_port), timeout=10) as connection:
                connection.sendall(b"AUTH rollout rollout\r\nGET {job}:a\r\nFLUSHALL\r\nGET {freshet}:a\r\nQUIT\r\n")
                answers = connection.makefile("r").read().splitlines()
        self.assertEqual([answer.split()[0] for answer in answers], ["+OK", "$-1", "-NOPERM", "-NOPERM", "+OK"])


if __name__ == "__main__":
    unittest.main()
