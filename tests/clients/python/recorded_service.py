"""A JobService on a loopback port with recorded answers."""

import collections
import unittest
from concurrent import futures
from unittest import mock

import freshet
import grpc

from freshet.job.v1 import job_service_pb2 as pb
from freshet.job.v1 import job_service_pb2_grpc


class Fault(Exception):
    """An answer that ends the call with this status. details: bytes of a google.rpc.Status."""

    def __init__(self, code, message="", details=b""):
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class RecordedService(job_service_pb2_grpc.JobServiceServicer):
    """Uses the answers of a method in turn and repeats the last one.

    An answer of a unary method is a message or a Fault; of a stream, a list of them.
    """

    def __init__(self):
        self.requests = collections.defaultdict(list)
        self.metadata = {}
        self._answers = collections.defaultdict(collections.deque)
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        job_service_pb2_grpc.add_JobServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def answer(self, method, *answers):
        self._answers[method].extend(answers)

    def stop(self):
        self._server.stop(None).wait()

    def _next(self, method, request, context):
        self.requests[method].append(request)
        self.metadata = dict(context.invocation_metadata())
        answers = self._answers[method]
        if not answers:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no answer to {method} is recorded")
        return answers.popleft() if len(answers) > 1 else answers[0]

    @staticmethod
    def _checked(answer, context):
        if not isinstance(answer, Fault):
            return answer
        if answer.details:
            context.set_trailing_metadata([("grpc-status-details-bin", answer.details)])
        context.abort(answer.code, answer.message)

    def _stream(self, method, request, context):
        for answer in self._next(method, request, context):
            yield self._checked(answer, context)


class RecordedCase(unittest.TestCase):
    """A client of a RecordedService, without pauses between retries."""

    def setUp(self):
        self.service = RecordedService()
        self.addCleanup(self.service.stop)
        self.client = freshet.Client(self.service.address, timeout=10.0, patience=10.0)
        self.addCleanup(self.client.close)
        self.pauses = mock.patch("freshet.client.time.sleep").start()
        self.addCleanup(mock.patch.stopall)


def _unary(method):
    def call(self, request, context):
        return self._checked(self._next(method, request, context), context)

    return call


def _streaming(method):
    def call(self, request, context):
        yield from self._stream(method, request, context)

    return call


for _name, _method in pb.DESCRIPTOR.services_by_name["JobService"].methods_by_name.items():
    _make = _streaming if _method.server_streaming else _unary
    setattr(RecordedService, _name, _make(_name))


def _field(number, value):
    """Serializes one field: bytes, text or a small integer."""
    if isinstance(value, int):
        return bytes([number << 3]) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def _detail(kind, body):
    return _field(3, _field(1, f"type.googleapis.com/google.rpc.{kind}") + _field(2, body))


def error_details(reason="", retry_seconds=None, violations=(), leader=""):
    """A google.rpc.Status with ErrorInfo, RetryInfo and BadRequest."""
    details = b""
    if reason:
        entry = _field(3, _field(1, "leader") + _field(2, leader)) if leader else b""
        details += _detail("ErrorInfo", _field(1, reason) + _field(2, "freshet") + entry)
    if retry_seconds is not None:
        details += _detail("RetryInfo", _field(1, _field(1, retry_seconds)))
    if violations:
        body = b"".join(_field(1, _field(1, name) + _field(2, text)) for name, text in violations)
        details += _detail("BadRequest", body)
    return details


def job(id="a", state=pb.JOB_STATE_RUNNING, **fields):
    return pb.Job(id=id, name=id, state=state, steps=3, **fields)


def step(number):
    row = f'{{"step": {number}, "reward_mean": 0.{number}, "staleness_max": 1, "kl": null}}'
    return pb.Event(cursor=f"c{number}", metrics_json=row)


def state(cursor, value, reason=""):
    return pb.Event(cursor=cursor, state=pb.StateChange(state=value, reason=reason))
