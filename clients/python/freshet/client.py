"""The connection to a cluster's controller."""

from __future__ import annotations

import json
import os
import pathlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import grpc
import yaml

from freshet import errors
from freshet.checkpoint import write_checkpoint
from freshet.connection import Connection, read_token
from freshet.events import Event, LogLine, event_of, log_line_of
from freshet.job_handle import Job
from freshet.job.v1 import job_service_pb2 as pb

# Longer streams are reopened after their last event.
_STREAM_SECONDS = 600.0
_EXPORT_SECONDS = 4 * 3600.0
# How long delete waits for workers of a job that has just ended.
_DELETE_SECONDS = 10.0
_LOOPBACK = ("127.", "localhost:", "[::1]:")
# Status codes of a broken stream. Proxies and crashing servers cause INTERNAL and UNKNOWN, a hanging
# server causes DEADLINE_EXCEEDED.
_BROKEN = (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.ABORTED,
)
# Keys of a job file that name files.
_FILE_BLOCKS = ("model", "tokenizer", "dataset")
_FILE_KEYS = ("path", "eval_path")
# Status codes of a Submit that created no job. After others, the job may exist.
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
)
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAX_JOB_ID = 63
_PATH_KEY = re.compile(r"(model|tokenizer|dataset)\.path|dataset\.eval_path|eval\.sets\.\d+\.path")
_Item = TypeVar("_Item")


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
        text, name = _job_text(job)
        overrides = [f"{key}={_scalar(value)}" for key, value in (set or {}).items()]
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
        text, name = _job_text(job)
        common, policies = _policies_in(text)
        team = id or _team_id((set or {}).get("name", common.get("name", "team")), policies)
        overrides = [f"{key}={_scalar(value)}" for key, value in (set or {}).items()]
        requests = {}
        for policy in policies:
            if not _JOB_ID.fullmatch(f"{team}-{policy}"):
                raise ValueError(
                    f"id: the job id {team}-{policy} must be 1 to {_MAX_JOB_ID} letters, digits, '.', '_' and '-', "
                    "beginning with a letter or digit"
                )
        for policy, keys in policies.items():
            paths = self._absolute_paths(yaml.safe_dump(_merged(common, keys)), _overrides_of(policy, overrides))
            requests[policy] = pb.SubmitRequest(
                job_id=f"{team}-{policy}",
                yaml=text,
                file_name=name,
                overrides=[*overrides, f"team={team}", *paths],
                priority=priority,
                policy=policy,
            )
        known = []  # ids of jobs that existed before this call
        for policy, request in requests.items():
            self._connection.call(
                "Validate",
                pb.ValidateRequest(yaml=text, file_name=name, overrides=request.overrides, policy=policy),
            )
            try:
                known.append(_usable(self.get(request.job_id)).id)
            except errors.NotFound:
                pass
        jobs = {}
        made = []  # ids of jobs that this call may have created
        try:
            for policy, request in requests.items():
                made.append(request.job_id)
                jobs[policy] = _usable(Job(self, self._connection.call("Submit", request, attempts=4)))
        except errors.FreshetError as fault:
            if fault.code is None or fault.code in _REFUSED:
                made.pop()
            left = self._cancel_all([one for one in made if one not in known], "another policy of its team was refused")
            if left:
                fault.args = (f"{fault}; these jobs may run, cancel them: {', '.join(left)}", *fault.args[1:])
            raise
        return jobs

    def _cancel_all(self, ids: list[str], reason: str) -> list[str]:
        """Cancels those of the jobs that exist. Returns the ids of those that could not be cancelled."""
        left = []
        for id in ids:
            try:
                self.cancel(id, reason)
            except errors.NotFound:
                pass
            except errors.FreshetError:
                left.append(id)
        return left

    def validate(
        self, job: str | os.PathLike, *, set: Mapping[str, Any] | None = None, policy: str = ""
    ) -> str:
        """Returns the resolved job as YAML without storing it. Raises InvalidJob.

        policy: which job of a file with `policies`.
        """
        text, name = _job_text(job)
        overrides = [f"{key}={_scalar(value)}" for key, value in (set or {}).items()]
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
        names.
        """
        request = pb.DeleteRequest(job_id=id, keep_checkpoints=keep_checkpoints)
        give_up = time.monotonic() + _DELETE_SECONDS
        while True:
            try:
                self._connection.call("Delete", request, attempts=4)
                return
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

        yield from self._again(open_stream, lambda: self.get(id).ended, f"job {id}", timeout)

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
            yield from self._again(open_stream, lambda: not follow, "the log", timeout)
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

        return self._again(open_stream, lambda: True, f"the ledger of job {id}", None)

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

    def _again(
        self,
        open_stream: Callable[[float], Iterator[_Item]],
        complete: Callable[[], bool],
        what: str,
        timeout: float | None,
    ) -> Iterator[_Item]:
        """Yields the items of a stream; reopens it with `open_stream(seconds)` when it breaks.

        complete: called when the server ends the stream; returns whether no more items will follow.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        give_up = time.monotonic() + self._patience
        pause = 0.1
        while True:
            left = _STREAM_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise errors.TimedOut(f"{what} has not ended within {timeout:g} s; it goes on")
            seconds = min(left, _STREAM_SECONDS)
            opened = time.monotonic()
            try:
                try:
                    for item in open_stream(seconds):
                        pause, give_up = 0.1, time.monotonic() + self._patience
                        yield item
                except errors.TimedOut:
                    if time.monotonic() - opened < 0.9 * seconds:
                        raise  # the stream's own time is not up
                    give_up = time.monotonic() + self._patience
                    continue
                if complete():
                    return
            except errors.FreshetError as fault:
                if fault.code not in _BROKEN or time.monotonic() > give_up:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _absolute_paths(self, text: str, overrides: list[str]) -> list[str]:
        """Makes relative paths absolute for a server on this machine, which runs in another folder."""
        if not all(each.startswith(_LOOPBACK) for each in self.address.split(",")):
            return []
        given = dict(entry.split("=", 1) for entry in overrides)
        result = []
        for key, path in {**_paths_in(text), **given}.items():
            if _PATH_KEY.fullmatch(key) and path and not path.startswith("/") and os.path.exists(path):
                result.append(f"{key}={os.path.abspath(path)}")
        return result


def _job_text(job: str | os.PathLike) -> tuple[str, str]:
    if isinstance(job, str) and "\n" in job:
        return job, "job.yaml"
    return pathlib.Path(job).read_text(encoding="utf-8"), os.fspath(job)


def _scalar(value: Any) -> str:
    """Formats `value` for --set."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value)
    return str(value)


def _policies_in(text: str) -> tuple[dict, dict[str, Any]]:
    """Returns the keys of a job file that its policies share, and the keys of each."""
    try:
        job = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"the job file is not valid YAML: {error}") from error
    policies = _get(job, "policies")
    if not isinstance(policies, dict) or not policies:
        raise ValueError("the job file has no map `policies`; submit a file with one job with submit()")
    for name in policies:
        if not isinstance(name, str):
            raise ValueError(f"policies: YAML reads the name {name!r} as no text: quote the policy's name")
    return {key: value for key, value in job.items() if key != "policies"}, policies


def _team_id(name: Any, policies: Mapping[str, Any]) -> str:
    """Returns NAME-xxxxxxxx, short enough for the ids of the jobs, NAME-xxxxxxxx-POLICY."""
    suffix = f"-{secrets.token_hex(4)}"
    room = _MAX_JOB_ID - len(suffix) - 1 - max(len(policy) for policy in policies)
    return str(name)[: max(room, 1)] + suffix


def _usable(job: Job) -> Job:
    """Returns the job of a team. Raises Refused if it has failed or was cancelled, as the others would be then."""
    if job.state in ("FAILED", "CANCELLED"):
        how = "has failed" if job.state == "FAILED" else "was cancelled"
        raise errors.Refused(f"job {job.id} {how}; choose another id, or delete it with client.delete({job.id!r})")
    return job


def _merged(common: dict, own: Any) -> dict:
    """Merges a policy's maps into those of the file."""
    result = dict(common)
    for key, value in (own if isinstance(own, dict) else {}).items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def _overrides_of(policy: str, overrides: list[str]) -> list[str]:
    mine = f"policies.{policy}."
    return [entry.removeprefix(mine) for entry in overrides if entry.startswith(mine) or not entry.startswith("policies.")]


def _paths_in(text: str) -> dict[str, str]:
    """Returns the paths of files in a job file, by key."""
    try:
        job = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}  # the server reports the fault
    job = job if isinstance(job, dict) else {}
    found = {f"{block}.{key}": _get(job.get(block), key) for block in _FILE_BLOCKS for key in _FILE_KEYS}
    sets = _get(job.get("eval"), "sets")
    for index, one in enumerate(sets if isinstance(sets, list) else []):
        found[f"eval.sets.{index}.path"] = _get(one, "path")
    return {key: path for key, path in found.items() if isinstance(path, str)}


def _get(block: Any, key: str) -> Any:
    return block.get(key) if isinstance(block, dict) else None
