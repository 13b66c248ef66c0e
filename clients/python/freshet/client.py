"""The connection to a cluster's controller."""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from freshet import errors
from freshet.checkpoint import write_checkpoint
from freshet.connection import Connection, read_token
from freshet.events import Event, LogLine, event_of, log_line_of
from freshet.job_files import absolute_paths, override_list, read_job
from freshet.job_handle import Job
from freshet.job.v1 import job_service_pb2 as pb
from freshet.streams import reopened
from freshet.team_submission import submit_requests, team_requests

_EXPORT_SECONDS = 4 * 3600.0
# How long delete waits for workers of a job that has just ended.
_DELETE_SECONDS = 10.0
_LOOPBACK = ("127.", "localhost:", "[::1]:")


class Client:
    """A client of a cluster's controller. Thread-safe.

    address: HOST:PORT, or several separated by commas if there are standby controllers; the client
        uses one that answers. Default: the variable FRESHET_SERVER, else 127.0.0.1:7070.
    ca, cert, key: PEM files. `ca` enables TLS, all three mutual TLS.
    token, token_file: a bearer token, or a file with the token in its first line. Default: the
        variable FRESHET_TOKEN. Without `ca`, the token is only sent over loopback, and a token from
        the variable is not sent at all. Clusters started by this user with `freshet cluster up` need
        no token: the client finds it if the address is the one that `cluster up` prints.
    timeout: limit of one call in seconds.
    patience: seconds to keep reopening a broken stream before ConnectionLost is raised.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        token: str | None = None,
        token_file: str | os.PathLike | None = None,
        timeout: float = 15.0,
        patience: float = 60.0,
    ):
        self.address = address or os.environ.get("FRESHET_SERVER") or "127.0.0.1:7070"
        self._patience = patience
        self._connection = Connection(
            self.address.split(","),
            ca=ca,
            cert=cert,
            key=key,
            token=read_token(token, token_file),
            token_is_given=token is not None or token_file is not None,
            timeout=timeout,
        )

    def close(self) -> None:
        self._connection.close()

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
        """Submits a job, given as the path of a job file or as YAML text (which has a line break).

        id: submitting the same id again returns the same job. set: overrides, {"trainer.steps": 10}.
        Raises InvalidJob with one line per fault. A file with `policies`: see submit_team.
        """
        text, name = read_job(job)
        overrides = override_list(set)
        request = pb.SubmitRequest(
            job_id=id or "",
            yaml=text,
            file_name=name,
            overrides=overrides + self._absolute_paths(text, overrides),
            priority=priority,
        )
        return Job(self, self._connection.call("Submit", request, attempts=4 if id else 1))

    def submit_team(
        self,
        job: str | os.PathLike,
        *,
        id: str | None = None,
        set: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> dict[str, Job]:
        """Submits the jobs of a file with `policies`. Returns them by policy.

        id: of the team; its jobs are ID-POLICY. Submitting the same id again returns the same jobs.
        set: overrides, for all policies or for one, {"policies.worker.trainer.steps": 10}.
        All jobs are validated first. If one is refused or not answered after that, those that this call has
        created are cancelled; the exception names those that could not be. Raises InvalidJob with one line
        per fault, and Refused if one of the jobs exists and has failed or was cancelled.
        """
        overrides = override_list(set)
        requests = team_requests(*read_job(job), id, overrides, self._absolute_paths, priority)
        return submit_requests(self, self._connection, requests)

    def validate(
        self, job: str | os.PathLike, *, set: Mapping[str, Any] | None = None, policy: str = ""
    ) -> str:
        """Returns the resolved job as YAML without storing it. Raises InvalidJob.

        policy: which job of a file with `policies`.
        """
        text, name = read_job(job)
        overrides = override_list(set)
        request = pb.ValidateRequest(yaml=text, file_name=name, overrides=overrides, policy=policy)
        return self._connection.call("Validate", request).yaml

    def get(self, id: str) -> Job:
        """Returns the job. Raises NotFound."""
        return Job(self, self._connection.call("Get", pb.GetRequest(job_id=id), attempts=4))

    def list(self, *, states: tuple[str, ...] = (), name_prefix: str = "") -> list[Job]:
        """Returns jobs, newest first. states: any of "PENDING", "RUNNING", ..."""
        numbers = [pb.JobState.Value("JOB_STATE_" + state.upper()) for state in states]
        request = pb.ListRequest(states=numbers, name_prefix=name_prefix, page_size=500)
        jobs = []
        while True:
            reply = self._connection.call("List", request, attempts=4)
            jobs += [Job(self, job) for job in reply.jobs]
            if not reply.next_page_token:
                return jobs
            request.page_token = reply.next_page_token

    def pause(self, id: str, reason: str = "") -> Job:
        return Job(self, self._connection.call("Pause", pb.PauseRequest(job_id=id, reason=reason), attempts=4))

    def resume(self, id: str, *, max_calls: dict[str, int] | None = None) -> Job:
        """max_calls: higher values of reward.components.NAME.max_calls, by NAME, for a job that has ended."""
        request = pb.ResumeRequest(job_id=id, max_calls=max_calls or {})
        return Job(self, self._connection.call("Resume", request, attempts=4))

    def cancel(self, id: str, reason: str = "") -> Job:
        return Job(self, self._connection.call("Cancel", pb.CancelRequest(job_id=id, reason=reason), attempts=4))

    def delete(self, id: str, *, keep_checkpoints: bool = False) -> None:
        """Deletes a job that has ended, and its data.

        Waits up to 10 s for workers that are still stopping, then raises ConnectionLost with their
        names. NotFound: there was no such job before the first try.
        """
        request = pb.DeleteRequest(job_id=id, keep_checkpoints=keep_checkpoints)
        found = True
        try:
            self.get(id)
        except errors.NotFound:
            found = False
        give_up = time.monotonic() + _DELETE_SECONDS
        while True:
            try:
                self._connection.call("Delete", request, attempts=4)
                return
            except errors.NotFound:
                if not found:
                    raise
                return  # deleted by a try whose answer was lost
            except errors.ConnectionLost as error:
                if error.reason != "TRY_AGAIN" or time.monotonic() > give_up:
                    raise

    def scale(self, role: str, replicas: int) -> int:
        """Sets the number of workers of "rollout", "rollout/POOL", "reward" or "env".

        Returns the number that was wanted before.
        """
        role, _, pool = role.partition("/")
        request = pb.ScaleRequest(role=role, pool=pool, replicas=replicas)
        return self._connection.call("Scale", request, attempts=4).before

    def cluster(self) -> pb.Cluster:
        """Returns the workers, their work, and how many of them are wanted."""
        return self._connection.call("GetCluster", pb.GetClusterRequest(), attempts=4)

    def watch(
        self, id: str, cursor: str = "", *, timeout: float | None = None
    ) -> Iterator[Event]:
        """Yields the events of a job after `cursor` ("" is the beginning) until the job ends.

        Reopens a broken stream after the last event; events are neither lost nor repeated.
        Raises TimedOut after `timeout` seconds, and ConnectionLost if the server stays unreachable.
        """

        def open_stream(seconds: float) -> Iterator[Event]:
            nonlocal cursor
            request = pb.WatchRequest(job_id=id, cursor=cursor)
            for message in self._connection.stream("Watch", request, seconds):
                cursor = message.cursor
                yield event_of(message)

        yield from reopened(open_stream, lambda: self.get(id).ended, f"job {id}", timeout, self._patience)

    def logs(
        self,
        id: str = "",
        *,
        role: str = "",
        worker: str = "",
        tail: int = 0,
        follow: bool = False,
        timeout: float | None = None,
    ) -> Iterator[LogLine]:
        """Yields log lines of a job, or of all jobs if id is "", optionally of one role or worker.

        tail: the number of most recent stored lines; 0: all. follow: also yields new lines until the
        caller stops or `timeout` seconds have passed. Reconnects without repeating lines.
        """
        newest: dict[str, float] = {}  # by worker
        first = float("-inf")

        def open_stream(seconds: float) -> Iterator[LogLine]:
            nonlocal first
            seen = dict(newest)
            request = pb.LogsRequest(
                job_id=id, role=role, worker=worker, tail=0 if seen else tail, follow=follow
            )
            for message in self._connection.stream("Logs", request, seconds):
                line = log_line_of(message)
                # A reopened stream repeats lines and can send lines older than the first one.
                if line.worker in seen:
                    old = line.time <= seen[line.worker]
                else:
                    old = bool(seen) and line.time < first
                if old:
                    continue
                if not newest:
                    first = line.time
                newest[line.worker] = max(line.time, newest.get(line.worker, 0.0))
                yield line

        try:
            yield from reopened(open_stream, lambda: not follow, "the log", timeout, self._patience)
        except errors.TimedOut:
            if not follow:
                raise

    def checkpoints(self, id: str) -> list[pb.CheckpointInfo]:
        """Returns the durable checkpoints, newest first."""
        request = pb.ListCheckpointsRequest(job_id=id)
        return list(self._connection.call("ListCheckpoints", request, attempts=4).checkpoints)

    def export_checkpoint(
        self, id: str, folder: str | os.PathLike, *, version: int = -1
    ) -> pathlib.Path:
        """Downloads a checkpoint (default: the newest) into a new folder, in Hugging Face layout.

        Checks every file against the checkpoint's manifest; the folder only appears when complete.
        Raises FileExistsError, NotFound if there is no such checkpoint, and ConnectionLost if the
        job's trainer is not available.
        """
        path = pathlib.Path(folder)
        request = pb.ExportCheckpointRequest(job_id=id, version=version)
        write_checkpoint(
            self._connection.stream("ExportCheckpoint", request, _EXPORT_SECONDS), path
        )
        return path

    def export_generated(
        self, id: str, folder: str | os.PathLike, *, after: int = 0
    ) -> pathlib.Path:
        """Downloads the files of a job of kind generate, of the steps after `after`, into a new folder.

        At most 9,999 files. Everything else is as for export_checkpoint.
        """
        path = pathlib.Path(folder)
        request = pb.ExportCheckpointRequest(job_id=id, generated_after=after)
        write_checkpoint(
            self._connection.stream("ExportCheckpoint", request, _EXPORT_SECONDS), path
        )
        return path

    def ledger(self, id: str) -> Iterator[dict[str, Any]]:
        """Yields the job's ledger, oldest row first: which samples were trained on, in which step."""
        seq = 0

        def open_stream(seconds: float) -> Iterator[dict[str, Any]]:
            nonlocal seq
            request = pb.ReadLedgerRequest(job_id=id, after_seq=seq)
            for chunk in self._connection.stream("ReadLedger", request, seconds):
                for text in chunk.rows:
                    row = json.loads(text)
                    yield row
                    seq = row["seq"]

        return reopened(open_stream, lambda: True, f"the ledger of job {id}", None, self._patience)

    def samples(self, id: str, limit: int = 20) -> list[dict[str, Any]]:
        """Returns the most recent trained samples, as rows of samples.jsonl."""
        request = pb.ListSamplesRequest(job_id=id, limit=limit)
        reply = self._connection.call("ListSamples", request, attempts=4)
        return [json.loads(row) for row in reply.samples_json]

    def metrics(self, id: str) -> list[dict[str, Any]]:
        """Returns all current rows of metrics.jsonl, oldest first."""
        job = self._connection.call("Get", pb.GetRequest(job_id=id), attempts=4)
        cursors = [event.cursor for event in job.recent_events if event.cursor]
        rows = []
        for event in self.watch(id, timeout=60) if cursors else ():
            if event.kind in ("step", "eval"):
                rows.append(event.data)
            if event.cursor == cursors[-1]:
                break
        return rows

    def _absolute_paths(self, text: str, overrides: list[str]) -> list[str]:
        """Overrides that make relative paths absolute, for a server on this machine, which runs in another folder."""
        here = all(each.startswith(_LOOPBACK) for each in self.address.split(","))
        return absolute_paths(text, overrides) if here else []
