"""Rewards that are computed in processes of their own, with limits of time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import signal
import socket
import struct
import subprocess
import sys
import time

from freshet.rewards import RewardTimeout, make_score, seconds_left
from freshet.trajectory.v1 import trajectory_pb2

_PROGRAM = pathlib.Path(__file__).with_name("score_process.py")
_MAX_REQUEST_BYTES = 64 << 20
_MAX_REPLY_BYTES = 1 << 20
_START_SECONDS = 60.0
_END_SECONDS = 5.0
_FREE_SECONDS = 60.0


class _Lost(Exception):
    """A process ended or sent something else than an answer."""


class _Process:
    def __init__(self, source: str, function: str, memory_bytes: int):
        ours, theirs = socket.socketpair()
        self._connection = ours
        command = [sys.executable, str(_PROGRAM), str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [*command, str(memory_bytes), source, function],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            ready = self._receive(time.monotonic() + _START_SECONDS)
        except BaseException:
            self.kill()
            raise
        if "error" in ready:
            self.kill()
            raise RuntimeError(f"cannot load {source}: {ready['error']}")

    def call(self, data: bytes, seconds: float) -> dict:
        """The answer of the function. Raises TimeoutError or _Lost; the process is then of no use."""
        deadline = time.monotonic() + seconds
        try:
            self._connection.settimeout(seconds)
            self._connection.sendall(struct.pack("<I", len(data)) + data)
        except socket.timeout:
            raise TimeoutError from None
        except OSError as error:
            raise _Lost(str(error)) from None
        return self._receive(deadline)

    def _receive(self, deadline: float) -> dict:
        (size,) = struct.unpack("<I", self._read(4, deadline))
        if size > _MAX_REPLY_BYTES:
            raise _Lost(f"an answer of {size} bytes")
        try:
            answer = json.loads(self._read(size, deadline))
        except ValueError:
            raise _Lost("an answer that is not JSON") from None
        if not isinstance(answer, dict):
            raise _Lost("an answer that is not an object")
        return answer

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            try:
                part = self._connection.recv(size - len(data))
            except socket.timeout:
                raise TimeoutError from None
            except OSError as error:
                raise _Lost(str(error)) from None
            if not part:
                raise _Lost(self._ending())
            data += part
        return bytes(data)

    def _ending(self) -> str:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        return f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"

    def kill(self) -> None:
        """Ends it and the processes of its group."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._connection.close()


class RewardProcesses:
    """A reward function in a pool of processes, to be served by serve_reward or RewardServer.

        freshet.serve_reward(freshet.RewardProcesses("my_reward.py"))

    source: "math" for Math-Verify (needs the package math-verify), or a Python file with the function
    compute_score(data_source, solution_str, ground_truth, extra_info), as verl calls it. data_source
    is the row's field of that name ("" without one), ground_truth its field `answer`, and extra_info a
    dict of `prompt` and the other fields; all are strings. The function returns a number, or a dict
    with `score`; other numbers in the dict are parts.

    Each process answers one call at a time; a call waits up to a minute for one that is free. One that
    takes longer than `seconds`, or than its caller waits, is killed with its process group, and so is
    one that ends; another one takes its place. `memory_bytes` limits the address space of each.
    Whatever goes wrong is an error of that sample, never a reward of 0.
    """

    def __init__(
        self,
        source: str,
        function: str = "compute_score",
        *,
        processes: int = os.cpu_count() or 1,
        seconds: float = 10.0,
        memory_bytes: int = 2 << 30,
    ):
        if source != "math" and not pathlib.Path(source).is_file():
            raise FileNotFoundError(f"{source} is not a file, nor 'math'")
        self._source = source if source == "math" else str(pathlib.Path(source).resolve())
        self._function = function
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        # The processes that wait for a call; None: one that has not been started.
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(processes - 1):
            self._idle.put(None)
        self._idle.put(self._start())  # a source that cannot be loaded is an error at once

    def _start(self) -> _Process:
        try:
            return _Process(self._source, self._function, self._memory_bytes)
        except TimeoutError:
            raise RuntimeError(f"loading {self._source} takes longer than {_START_SECONDS:.0f} s") from None
        except _Lost as error:
            raise RuntimeError(f"cannot load {self._source}: {error}") from None

    def __call__(self, prompt: str, completion: str, /, **attributes: str) -> trajectory_pb2.Score:
        if "answer" not in attributes:
            raise ValueError("the row has no field answer")
        extra = {k: v for k, v in attributes.items() if k not in ("answer", "data_source")}
        arguments = [attributes.get("data_source", ""), completion, attributes["answer"],
                     {**extra, "prompt": prompt}]
        data = json.dumps({"arguments": arguments}, ensure_ascii=False).encode()
        if len(data) > _MAX_REQUEST_BYTES:
            raise ValueError(f"the sample has {len(data)} bytes, more than {_MAX_REQUEST_BYTES}")
        answer = self._call(data)
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return make_score(answer["reward"], answer["parts"])

    def _call(self, data: bytes) -> dict:
        patience = min(_FREE_SECONDS, max(seconds_left(), 0.0))
        try:
            process = self._idle.get(timeout=patience)
        except queue.Empty:
            raise RewardTimeout(f"no process was free within {patience:.3g} s") from None
        seconds = self._seconds
        usable = False
        try:
            if process is None:
                process = self._start()
            if seconds_left() <= 0:
                usable = True
                raise RewardTimeout("no time was left after a process had been started")
            seconds = min(seconds, max(seconds_left(), 0.001))
            answer = process.call(data, seconds)
            usable = not answer.get("ends")
            return answer
        except TimeoutError:
            raise RewardTimeout(f"it took longer than {seconds:.3g} s") from None
        except _Lost as error:
            raise RuntimeError(f"the process of the reward function was lost: {error}") from None
        finally:
            try:
                if process is not None and not usable:
                    process.kill()
            finally:
                self._idle.put(process if usable else None)

    def close(self) -> None:
        """Ends the processes that wait. No call may be in progress."""
        while True:
            try:
                process = self._idle.get_nowait()
            except queue.Empty:
                return
            if process is not None:
                process.kill()
