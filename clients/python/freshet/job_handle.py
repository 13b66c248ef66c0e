"""One job of a cluster."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from freshet import errors
from freshet.events import Event, LogLine, has_ended, state_name
from freshet.job.v1 import job_service_pb2 as pb

if TYPE_CHECKING:
    from freshet.client import Client


class Job:
    """A snapshot of a job; `refresh` updates it.

    id, name, state ("RUNNING"), reason, step, steps, reward_mean, eval_accuracy (or None), evaluations and
    waits_for are attributes; `message` is the whole freshet.job.v1.Job.
    """

    def __init__(self, client: Client, message: pb.Job):
        self._client = client
        self.message = message

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def name(self) -> str:
        return self.message.name

    @property
    def state(self) -> str:
        return state_name(self.message.state)

    @property
    def reason(self) -> str:
        return self.message.reason

    @property
    def ended(self) -> bool:
        return has_ended(self.state)

    @property
    def step(self) -> int:
        return self.message.step

    @property
    def steps(self) -> int:
        return self.message.steps

    @property
    def reward_mean(self) -> float:
        return self.message.reward_mean

    @property
    def eval_accuracy(self) -> float | None:
        return self.message.eval_accuracy if self.message.HasField("eval_accuracy") else None

    @property
    def evaluations(self) -> dict[str, pb.Evaluation]:
        """The newest evaluation of each set, by name: policy_version, accuracy, pass_at (k to pass@k), failed_samples."""
        return {evaluation.name: evaluation for evaluation in self.message.evaluations}

    @property
    def waits_for(self) -> str:
        return self.message.waits_for

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state} step {self.step}/{self.steps}>"

    def refresh(self) -> Job:
        self.message = self._client.get(self.id).message
        return self

    def watch(self, cursor: str = "", *, timeout: float | None = None) -> Iterator[Event]:
        """Yields events after `cursor` until the job ends; see Client.watch."""
        return self._client.watch(self.id, cursor, timeout=timeout)

    def wait(
        self,
        on_step: Callable[[Event], Any] | None = None,
        *,
        on_event: Callable[[Event], Any] | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Waits for the end of the job. Calls on_step with each step's event, on_event with all events.

        Raises JobFailed or JobCancelled if the job ends that way, and TimedOut after `timeout` seconds
        (the job continues).
        """
        for event in self.watch(timeout=timeout):
            if on_step is not None and event.kind == "step":
                on_step(event)
            if on_event is not None:
                on_event(event)
        self.refresh()
        if self.state == "FAILED":
            raise errors.JobFailed(f"job {self.id} failed: {self.reason}", self)
        if self.state == "CANCELLED":
            raise errors.JobCancelled(f"job {self.id} was cancelled: {self.reason}", self)
        return self

    def pause(self, reason: str = "") -> Job:
        self.message = self._client.pause(self.id, reason).message
        return self

    def resume(self, *, max_calls: dict[str, int] | None = None) -> Job:
        self.message = self._client.resume(self.id, max_calls=max_calls).message
        return self

    def cancel(self, reason: str = "") -> Job:
        self.message = self._client.cancel(self.id, reason).message
        return self

    def delete(self, *, keep_checkpoints: bool = False) -> None:
        self._client.delete(self.id, keep_checkpoints=keep_checkpoints)

    def logs(self, **filters: Any) -> Iterator[LogLine]:
        """Yields log lines of the job; see Client.logs."""
        return self._client.logs(self.id, **filters)

    def checkpoints(self) -> list[pb.CheckpointInfo]:
        return self._client.checkpoints(self.id)

    def export_checkpoint(self, folder: str | os.PathLike, *, version: int = -1) -> pathlib.Path:
        """Downloads a checkpoint into a new folder; see Client.export_checkpoint."""
        return self._client.export_checkpoint(self.id, folder, version=version)

    def ledger(self) -> Iterator[dict[str, Any]]:
        return self._client.ledger(self.id)

    def samples(self, limit: int = 20) -> list[dict[str, Any]]:
        return self._client.samples(self.id, limit)

    def metrics(self) -> list[dict[str, Any]]:
        return self._client.metrics(self.id)
