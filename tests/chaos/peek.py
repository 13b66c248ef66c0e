"""Reads the store of a running job, to time a fault."""
import re
import socket
import time

PUT = re.compile(rb"\}:b:(\d+):")  # the lease token in a request that puts samples


class Peek:
    """A connection to redis-server for one job. Not thread-safe."""

    def __init__(self, port, job):
        self.file = socket.create_connection(("127.0.0.1", port), timeout=2).makefile("rwb")
        self.prefix = "{%s}:" % job

    def ask(self, *words):
        """Sends a command of words without blanks. Returns the reply as bytes, or None."""
        self.file.write((" ".join(words) + "\r\n").encode())
        self.file.flush()
        return self._read()

    def _read(self):
        line = self.file.readline().strip()
        if line[:1] == b"*":
            return [self._read() for _ in range(int(line[1:]))]
        if line[:1] != b"$":
            return line[1:]
        size = int(line[1:])
        return self.file.read(size + 2)[:size] if size >= 0 else None

    def await_rival(self, request, seconds):
        """Waits until another lease has put samples where the put `request` would put its own."""
        token = PUT.search(request).group(1)
        group = self.ask("HGET", self.prefix + "tokens", token.decode())
        deadline = time.monotonic() + seconds
        while group is not None and time.monotonic() < deadline:
            for sample in self.ask("HMGET", self.prefix + "g:" + group.decode(), "s0", "s1"):
                if sample is not None and sample.split()[0] != token:
                    return
            time.sleep(0.0005)
