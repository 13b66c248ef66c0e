"""Exceptions of the client."""

from __future__ import annotations

import dataclasses

import grpc
from google.protobuf.internal import decoder


class FreshetError(Exception):
    """Base class. `reason` is the server's error reason such as "NOT_LEADER", or ""; `code` is the
    gRPC status code of the call, or None."""

    code: grpc.StatusCode | None = None

    def __init__(self, message: str, reason: str = "", retry_after: float | None = None):
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class ConnectionLost(FreshetError):
    """The server is unreachable, or cannot serve the call now; then `reason` says why."""


class TimedOut(FreshetError):
    """No answer or no end of a job in time. The operation may still take effect."""


class Refused(FreshetError):
    """The server refused: wrong state, missing permission or exhausted resources."""


class NotFound(Refused):
    """No such job or checkpoint."""


class InvalidJob(Refused):
    """The job is invalid; `faults` has one line per fault."""

    def __init__(self, message: str, faults: list[str] | None = None, **kwargs):
        super().__init__(message, **kwargs)
        self.faults = faults or [message]


class JobFailed(FreshetError):
    """The job failed. The message has the reason; `job` is the Job, or None."""

    def __init__(self, message: str, job=None):
        super().__init__(message)
        self.job = job


class JobCancelled(JobFailed):
    """The job was cancelled."""


def _fields(data: bytes):
    """Yields (field number, value) of a serialized message; bytes if length-delimited, else int."""
    at = 0
    while at < len(data):
        key, at = decoder._DecodeVarint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = decoder._DecodeVarint(data, at)
        elif kind == 2:
            size, at = decoder._DecodeVarint(data, at)
            value = data[at : at + size]
            at += size
        elif kind == 1:
            value, at = data[at : at + 8], at + 8
        elif kind == 5:
            value, at = data[at : at + 4], at + 4
        else:
            raise ValueError("unknown wire type")
        yield number, value


@dataclasses.dataclass
class _Details:
    """The google.rpc details of an error."""

    reason: str = ""
    leader: str = ""  # address of the leading controller
    retry_after: float | None = None  # seconds
    faults: list[str] = dataclasses.field(default_factory=list)  # one line per invalid field


def _details(error: grpc.RpcError) -> _Details:
    result = _Details()
    metadata = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    for key, value in metadata or ():
        if key != "grpc-status-details-bin":
            continue
        try:
            for number, detail in _fields(value):
                if number != 3:  # google.rpc.Status.details
                    continue
                parts = dict(_fields(detail))
                kind, body = parts.get(1, b"").decode(), parts.get(2, b"")
                if kind.endswith("google.rpc.ErrorInfo"):
                    result.reason = dict(_fields(body)).get(1, b"").decode()
                    for entry in [dict(_fields(v)) for n, v in _fields(body) if n == 3]:
                        if entry.get(1) == b"leader":
                            result.leader = entry.get(2, b"").decode()
                elif kind.endswith("google.rpc.RetryInfo"):
                    delay = dict(_fields(dict(_fields(body)).get(1, b"")))
                    result.retry_after = delay.get(1, 0) + delay.get(2, 0) / 1e9
                elif kind.endswith("google.rpc.BadRequest"):
                    for _, violation in _fields(body):
                        texts = dict(_fields(violation))
                        field = texts.get(1, b"").decode()
                        text = texts.get(2, b"").decode()
                        result.faults.append(text if field in text else f"{field}: {text}")
        except (ValueError, IndexError, UnicodeDecodeError, TypeError, AttributeError):
            continue  # malformed details; code and message remain
    return result


def reason_and_leader(error: grpc.RpcError) -> tuple[str, str]:
    """Returns the error reason and the address of the leading controller, each "" if absent."""
    details = _details(error)
    return details.reason, details.leader


def from_rpc(error: grpc.RpcError, address: str) -> FreshetError:
    """Returns the exception for a failed call."""
    fault = _fault(error, address)
    fault.code = error.code()
    return fault


def _fault(error: grpc.RpcError, address: str) -> FreshetError:
    code = error.code()
    message = error.details() or code.name
    details = _details(error)
    faults = details.faults
    extra = {"reason": details.reason, "retry_after": details.retry_after}
    if code == grpc.StatusCode.UNAVAILABLE and details.reason:
        return ConnectionLost(message, **extra)  # the server is reachable but cannot serve the call now
    if code == grpc.StatusCode.UNAVAILABLE:
        return ConnectionLost(
            f"no connection to {address}: {message}; start a cluster with: freshet cluster up", **extra
        )
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(f"no answer from {address} in time", **extra)
    if code == grpc.StatusCode.NOT_FOUND:
        return NotFound(message, **extra)
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidJob("\n".join(faults) or message, faults=faults, **extra)
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS):
        return FreshetError(message, **extra)
    return Refused(message, **extra)
