"""The connection to a cluster's controller."""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import yaml

from freshet import errors
from freshet.events import Event, event_of
from freshet.job_handle import Job
from freshet.job.v1 import job_service_pb2 as pb
from freshet.job.v1 import job_service_pb2_grpc

_MAX_MESSAGE_BYTES = 16 << 20
# A stream that lasts longer is opened again after its last event.
_STREAM_SECONDS = 600.0
# For workers of a job that has just ended.
_DELETE_SECONDS = 10.0
_LOOPBACK = ("127.", "localhost:", "[::1]:")


class Client:
    """Calls to a controller. Safe to use from several threads.

    address: HOST:PORT; by default the variable FRESHET_SERVER, else 127.0.0.1:7070.
    ca, cert, key: PEM files. With `ca` the connection is TLS, with all three mutual TLS.
    token: a bearer token; needs TLS.
    timeout: seconds that one call may take.
    patience: seconds for which a broken stream is opened again before it counts as lost.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        token: str | None = None,
        timeout: float = 15.0,
        patience: float = 60.0,
    ):
        self.address = address or os.environ.get("FRESHET_SERVER") or "127.0.0.1:7070"
        self._timeout = timeout
        self._patience = patience
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        options = [
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2_000),
        ]
        if ca:
            credentials = grpc.ssl_channel_credentials(
                root_certificates=pathlib.Path(ca).read_bytes(),
                private_key=pathlib.Path(key).read_bytes() if key else None,
                certificate_chain=pathlib.Path(cert).read_bytes() if cert else None,
            )
            self._channel = grpc.secure_channel(self.address, credentials, options)
        elif cert or key:
            raise ValueError("cert and key need ca, which says whom to believe")
        elif token:
            raise ValueError("a token is not sent over a connection without TLS; give ca")
        else:
            self._channel = grpc.insecure_channel(self.address, options)
        self._stub = job_service_pb2_grpc.JobServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        job: str | os.PathLike,
        *,
        id: str | None = None,
        set: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> Job:
        """Submits a job: the path of a job file, or its YAML text (recognised by a line break).

        id: the same id again is the same job. set: overrides, {"trainer.steps": 10}.
        Raises InvalidJob with one line per fault.
        """
        text, name = _job_text(job)
        overrides = [f"{key}={_scalar(value)}" for key, value in (set or {}).items()]
        request = pb.SubmitRequest(
            job_id=id or "",
            yaml=text,
            file_name=name,
            overrides=overrides + self._absolute_paths(text, overrides),
            priority=priority,
        )
        return Job(self, self._call("Submit", request, attempts=4 if id else 1))

    def validate(
        self, job: str | os.PathLike, *, set: Mapping[str, Any] | None = None
    ) -> str:
        """The resolved job as YAML; nothing is stored. Raises InvalidJob."""
        text, name = _job_text(job)
        overrides = [f"{key}={_scalar(value)}" for key, value in (set or {}).items()]
        request = pb.ValidateRequest(yaml=text, file_name=name, overrides=overrides)
        return self._call("Validate", request).yaml

    def get(self, id: str) -> Job:
        """The job of that id. Raises NotFound."""
        return Job(self, self._call("Get", pb.GetRequest(job_id=id), attempts=4))

    def list(self, *, states: tuple[str, ...] = (), name_prefix: str = "") -> list[Job]:
        """Jobs, newest first. states: any of "PENDING", "RUNNING", ..."""
        numbers = [pb.JobState.Value("JOB_STATE_" + state.upper()) for state in states]
        request = pb.ListRequest(states=numbers, name_prefix=name_prefix, page_size=500)
        jobs = []
        while True:
            reply = self._call("List", request, attempts=4)
            jobs += [Job(self, job) for job in reply.jobs]
            if not reply.next_page_token:
                return jobs
            request.page_token = reply.next_page_token

    def pause(self, id: str, reason: str = "") -> Job:
        return Job(self, self._call("Pause", pb.PauseRequest(job_id=id, reason=reason), attempts=4))

    def resume(self, id: str) -> Job:
        return Job(self, self._call("Resume", pb.ResumeRequest(job_id=id), attempts=4))

    def cancel(self, id: str, reason: str = "") -> Job:
        return Job(self, self._call("Cancel", pb.CancelRequest(job_id=id, reason=reason), attempts=4))

    def delete(self, id: str, *, keep_checkpoints: bool = False) -> None:
        """Removes a job that has ended, and its data.

        Waits up to 10 s for workers that still stop; then raises ConnectionLost, which names them.
        """
        request = pb.DeleteRequest(job_id=id, keep_checkpoints=keep_checkpoints)
        give_up = time.monotonic() + _DELETE_SECONDS
        while True:
            try:
                self._call("Delete", request, attempts=4)
                return
            except errors.ConnectionLost as error:
                if error.reason != "TRY_AGAIN" or time.monotonic() > give_up:
                    raise

    def scale(self, role: str, replicas: int) -> int:
        """Sets how many workers of "rollout", "rollout/POOL", "reward" or "env" there are.

        Returns how many were wanted before.
        """
        role, _, pool = role.partition("/")
        request = pb.ScaleRequest(role=role, pool=pool, replicas=replicas)
        return self._call("Scale", request, attempts=4).before

    def cluster(self) -> pb.Cluster:
        """Workers, what they do, and how many of them are wanted."""
        return self._call("GetCluster", pb.GetClusterRequest(), attempts=4)

    def watch(
        self, id: str, cursor: str = "", *, timeout: float | None = None
    ) -> Iterator[Event]:
        """Events of a job after `cursor` ("" is the beginning), until the job ends.

        A broken stream is opened again after the last event: none is lost, none comes twice.
        Raises TimedOut after `timeout` seconds, ConnectionLost when the server stays away.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        give_up = time.monotonic() + self._patience
        pause = 0.1
        while True:
            left = _STREAM_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise errors.TimedOut(f"job {id} has not ended within {timeout:g} s; it goes on")
            stream = self._stub.Watch(
                pb.WatchRequest(job_id=id, cursor=cursor),
                timeout=min(left, _STREAM_SECONDS),
                metadata=self._metadata,
            )
            try:
                for message in stream:
                    cursor = message.cursor
                    pause, give_up = 0.1, time.monotonic() + self._patience
                    yield event_of(message)
                # The job has ended, or the server goes down.
                if self.get(id).ended:
                    return
            except grpc.RpcError as error:
                code = error.code()
                if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                    give_up = time.monotonic() + self._patience
                    continue
                broken = code in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.INTERNAL,
                    grpc.StatusCode.UNKNOWN,
                    grpc.StatusCode.ABORTED,
                )
                if not broken or time.monotonic() > give_up:
                    raise errors.from_rpc(error, self.address) from None
            except errors.ConnectionLost:
                if time.monotonic() > give_up:
                    raise
            finally:
                stream.cancel()
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def checkpoints(self, id: str) -> list[pb.CheckpointInfo]:
        """Durable checkpoints, newest first."""
        request = pb.ListCheckpointsRequest(job_id=id)
        return list(self._call("ListCheckpoints", request, attempts=4).checkpoints)

    def samples(self, id: str, limit: int = 20) -> list[dict[str, Any]]:
        """The most recent samples that were trained on, as rows of samples.jsonl."""
        request = pb.ListSamplesRequest(job_id=id, limit=limit)
        return [json.loads(row) for row in self._call("ListSamples", request, attempts=4).samples_json]

    def metrics(self, id: str) -> list[dict[str, Any]]:
        """All rows of metrics.jsonl that there are now, oldest first."""
        job = self._call("Get", pb.GetRequest(job_id=id), attempts=4)
        cursors = [event.cursor for event in job.recent_events if event.cursor]
        rows = []
        for event in self.watch(id, timeout=60) if cursors else ():
            if event.kind in ("step", "eval"):
                rows.append(event.data)
            if event.cursor == cursors[-1]:
                break
        return rows

    def _call(self, method: str, request: Any, attempts: int = 1) -> Any:
        """One call; those that may be repeated are, while the server is not reached."""
        pause = 0.1
        while True:
            try:
                return getattr(self._stub, method)(
                    request, timeout=self._timeout, metadata=self._metadata
                )
            except grpc.RpcError as error:
                attempts -= 1
                if error.code() != grpc.StatusCode.UNAVAILABLE or attempts <= 0:
                    raise errors.from_rpc(error, self.address) from None
            time.sleep(pause)
            pause *= 2

    def _absolute_paths(self, text: str, overrides: list[str]) -> list[str]:
        """A server on this machine stands in another folder: relative paths become absolute."""
        if not self.address.startswith(_LOOPBACK):
            return []
        given = dict(entry.split("=", 1) for entry in overrides)
        result = []
        for block, key in (
            ("model", "path"),
            ("tokenizer", "path"),
            ("dataset", "path"),
            ("dataset", "eval_path"),
        ):
            path = given.get(f"{block}.{key}") or _value_in(text, block, key)
            if path and not path.startswith("/") and os.path.exists(path):
                result.append(f"{block}.{key}={os.path.abspath(path)}")
        return result


def _job_text(job: str | os.PathLike) -> tuple[str, str]:
    if isinstance(job, str) and "\n" in job:
        return job, "job.yaml"
    return pathlib.Path(job).read_text(encoding="utf-8"), os.fspath(job)


def _scalar(value: Any) -> str:
    """`value` as --set takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value)
    return str(value)


def _value_in(text: str, block: str, key: str) -> str:
    """The text of block.key in a job file; "" when it is absent."""
    try:
        job = yaml.safe_load(text)
    except yaml.YAMLError:
        return ""  # the server says what is wrong
    inner = job.get(block) if isinstance(job, dict) else None
    value = inner.get(key) if isinstance(inner, dict) else None
    return value if isinstance(value, str) else ""
