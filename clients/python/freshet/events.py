"""Events of a job, and log lines."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

from freshet.job.v1 import job_service_pb2

_PREFIX = "JOB_STATE_"


def state_name(state: int) -> str:
    """ "RUNNING" for JOB_STATE_RUNNING."""
    try:
        name = job_service_pb2.JobState.Name(state)
    except ValueError:
        return "UNKNOWN"
    return name[len(_PREFIX) :] if state else "UNKNOWN"


def has_ended(state: str) -> bool:
    return state in ("SUCCEEDED", "FAILED", "CANCELLED")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to a job."""

    kind: str  # "step", "eval", "state", "notice"
    cursor: str  # pass it to Job.watch to continue after this event
    time: float  # seconds since 1970
    # A row of metrics.jsonl for "step" and "eval"; {"state", "reason"} for "state"; {"severity",
    # "kind", "text"} for "notice".
    data: dict[str, Any]

    def __str__(self) -> str:
        if self.kind == "step":
            return (
                f"step {self.data.get('step')} reward {self.data.get('reward_mean', float('nan')):.3f}"
                f" staleness max {self.data.get('staleness_max')}"
            )
        if self.kind == "eval":
            return (
                f"eval {self.data.get('eval_name')} at version {self.data.get('policy_version')}: "
                f"{self.data.get('eval_accuracy', float('nan')):.3f}"
            )
        if self.kind == "state":
            reason = f": {self.data['reason']}" if self.data["reason"] else ""
            return f"state {self.data['state']}{reason}"
        return f"{self.data['severity']} {self.data['kind']}: {self.data['text']}"


@dataclasses.dataclass(frozen=True)
class LogLine:
    """A log line of a worker or of the controller."""

    time: float  # seconds since 1970
    role: str  # "rollout"
    worker: str  # "rollout-1"
    level: str  # "debug", "info", "warning", "error"
    text: str

    def __str__(self) -> str:
        clock = datetime.datetime.fromtimestamp(self.time).strftime("%H:%M:%S.%f")[:-3]
        return f"{clock} {self.worker} {self.level} {self.text}"


def log_line_of(message: job_service_pb2.LogEntry) -> LogLine:
    time = message.time.seconds + message.time.nanos / 1e9
    return LogLine(time, message.role, message.worker, message.level, message.text)


def event_of(message: job_service_pb2.Event) -> Event:
    time = message.time.seconds + message.time.nanos / 1e9
    which = message.WhichOneof("event")
    if which == "metrics_json":
        row = json.loads(message.metrics_json)
        row = {key: float("nan") if value is None else value for key, value in row.items()}
        return Event("eval" if "eval_name" in row else "step", message.cursor, time, row)
    if which == "state":
        data = {"state": state_name(message.state.state), "reason": message.state.reason}
        return Event("state", message.cursor, time, data)
    notice = message.notice
    data = {"severity": notice.severity, "kind": notice.kind, "text": notice.text}
    return Event("notice", message.cursor, time, data)
