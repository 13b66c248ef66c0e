"""Serves Python functions as rewards."""

from __future__ import annotations

import contextvars
import inspect
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from freshet.exposition import Counter, Histogram
from freshet.reward.v1 import reward_service_pb2 as pb
from freshet.reward.v1 import reward_service_pb2_grpc
from freshet.serving import DRAIN_SECONDS, Server
from freshet.trajectory.v1 import trajectory_pb2

_log = logging.getLogger("freshet.reward")
_MAX_ITEMS = 1024
_MAX_ERROR_CHARACTERS = 500
# Limits of one score.
_MAX_PARTS = 64
_MAX_PART_NAME_BYTES = 64
# Concurrent calls of one reward worker: the default of the job key reward.parallel.
_WORKERS = 16


# When the caller of the reward function stops waiting, on the monotonic clock.
_deadline: contextvars.ContextVar[float] = contextvars.ContextVar("deadline", default=math.inf)


class RewardTimeout(Exception):
    """A reward function took too long."""


def seconds_left() -> float:
    """How long the caller of the running reward function still waits; infinite if there is none."""
    return _deadline.get() - time.monotonic()


def make_score(reward: float, parts: Mapping[str, float]) -> trajectory_pb2.Score:
    """Raises ValueError if the parts are too many, or a number is not finite."""
    if len(parts) > _MAX_PARTS:
        raise ValueError(
            f"the reward function returned {len(parts)} parts; return at most {_MAX_PARTS}"
        )
    for name in parts:
        if not 1 <= len(name.encode()) <= _MAX_PART_NAME_BYTES:
            raise ValueError(
                f"the name {name[:80]!r} of a part does not have 1 to {_MAX_PART_NAME_BYTES} bytes"
            )
    for name, part in [("reward", reward), *parts.items()]:
        if not math.isfinite(part):
            raise ValueError(f"the reward function returned {part} for {name}")
    return trajectory_pb2.Score(
        reward=reward, components=parts, outcome=trajectory_pb2.SCORE_OUTCOME_OK
    )


def score_of(value: Any) -> trajectory_pb2.Score:
    """Converts the result of a reward function to a score. Raises TypeError or ValueError."""
    if isinstance(value, trajectory_pb2.Score):
        return value
    if isinstance(value, Mapping):
        if not value:
            raise ValueError("the reward function returned no parts")
        parts = {str(name): float(part) for name, part in value.items()}
        return make_score(sum(parts.values()), parts)
    if value is None:
        raise TypeError("the reward function returned None")
    return make_score(float(value), {})


def _failed(outcome: int, error: str) -> trajectory_pb2.Score:
    text = error[:_MAX_ERROR_CHARACTERS].encode(errors="replace").decode()  # no half of a surrogate pair
    return trajectory_pb2.Score(outcome=outcome, error=text)


class _Function:
    """A reward function, and which fields of a row it takes."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        self._takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        self._names = {p.name for p in parameters}

    def score(self, item: pb.ScoreItem) -> trajectory_pb2.Score:
        attributes = {
            name: text
            for name, text in item.attributes.items()
            if name not in ("prompt", "completion") and (self._takes_all or name in self._names)
        }
        if item.group and (self._takes_all or "group" in self._names):
            attributes["group"] = list(item.group)
        if item.group and (self._takes_all or "group_index" in self._names):
            attributes["group_index"] = item.index
        try:
            return score_of(self._function(item.prompt, item.completion, **attributes))
        except RewardTimeout as error:
            return _failed(trajectory_pb2.SCORE_OUTCOME_TIMEOUT, str(error))
        except BaseException as error:  # whatever the user's function raises; gRPC would not answer the call
            _log.warning("the reward function failed", exc_info=True)
            return _failed(
                trajectory_pb2.SCORE_OUTCOME_INFRA_ERROR, f"{type(error).__name__}: {error}"
            )


class _RewardService(reward_service_pb2_grpc.RewardServiceServicer):
    def __init__(self, functions: Mapping[str, Callable[..., Any]]):
        if not functions:
            raise ValueError("there is no function to serve")
        self._functions = {name: _Function(function) for name, function in functions.items()}
        self._scores = Counter(
            "freshet_reward_function_scores_total", "Scores of a function by outcome.", "function", "outcome"
        )
        self._seconds = Histogram(
            "freshet_reward_function_seconds",
            "Seconds that a function took for one sample, the wait for a free process included.",
            (0.001, 0.01, 0.1, 1, 10, 60),
            "function",
        )
        self.metrics = [self._scores, self._seconds]

    def _named(self, name: str, context: grpc.ServicerContext) -> str:
        if not name and len(self._functions) == 1:
            return next(iter(self._functions))
        if name not in self._functions:
            offered = ", ".join(sorted(filter(None, self._functions))) or "one without a name"
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"no function {name[:63]!r} is offered here, but: {offered}"
            )
        return name

    def _score(self, name: str, item: pb.ScoreItem) -> trajectory_pb2.Score:
        start = time.monotonic()
        score = self._functions[name].score(item)
        self._seconds.observe(time.monotonic() - start, name)
        outcome = trajectory_pb2.ScoreOutcome.Name(score.outcome)
        self._scores.add(name, outcome.removeprefix("SCORE_OUTCOME_").lower())
        return score

    def Score(self, request: pb.ScoreRequest, context: grpc.ServicerContext) -> pb.ScoreReply:
        if not 1 <= len(request.items) <= _MAX_ITEMS:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{len(request.items)} items; send 1 to {_MAX_ITEMS}",
            )
        name = self._named(request.function, context)
        remaining = context.time_remaining()
        token = _deadline.set(math.inf if remaining is None else time.monotonic() + remaining)
        try:
            scores = []
            for item in request.items:
                if seconds_left() <= 0:
                    error = "no time was left for this item"
                    scores.append(_failed(trajectory_pb2.SCORE_OUTCOME_TIMEOUT, error))
                    continue
                scores.append(self._score(name, item))
            return pb.ScoreReply(scores=scores)
        finally:
            _deadline.reset(token)


class RewardServer(Server):
    """Serves reward functions (see serve_reward) in background threads of this process.

        with freshet.RewardServer(fn, "127.0.0.1:0") as server:
            client.submit("job.yaml", set={"reward.components.mine.address": server.address})
    """

    def __init__(
        self,
        function: Callable[..., Any] | Mapping[str, Callable[..., Any]],
        address: str = "127.0.0.1:7080",
        *,
        workers: int = _WORKERS,
        **tls: Any,
    ):
        functions = function if isinstance(function, Mapping) else {"": function}
        super().__init__(address, workers, **tls)
        service = _RewardService(functions)
        self.metrics = service.metrics
        reward_service_pb2_grpc.add_RewardServiceServicer_to_server(service, self._server)


def serve_reward(
    function: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    address: str = "127.0.0.1:7080",
    *,
    workers: int = _WORKERS,
    http_address: str = "",
    drain_seconds: float = DRAIN_SECONDS,
    **tls: Any,
) -> None:
    """Serves `function` as a reward until SIGTERM or Ctrl-C.

    function(prompt, completion, **attributes) receives strings. attributes are the fields of the
    dataset's row (including `answer`), restricted to those that the function declares. It returns a
    number, or a dict of up to 64 parts whose sum is the reward; samples and metrics show each part as
    "COMPONENT/PART". It is called from several threads. An exception is an infrastructure error of
    that sample, which is rescored or given up, but never gets reward 0.

    If the job's component has `group: true`, the attribute `group` is a list of the completions of all
    samples of the group, and `group_index` the index of this one; an evaluation has neither.

    A job uses it with:  reward: {components: {mine: {type: grpc, address: "127.0.0.1:7080"}}}

    Instead of one function it may be a dict of several by name, for reward workers whose flag
    --python-rewards is this address. Jobs then name one:  {type: python, function: NAME}

    workers: number of concurrent calls, one thread each. Further calls queue while their time limit
    (reward.timeout_ms) runs. A job makes up to reward.parallel concurrent calls, 16 by default.
    http_address, drain_seconds: of Server.run. tls: cert, key, ca (PEM files), insecure, as in
    freshet.serving.Server.
    """
    RewardServer(function, address, workers=workers, **tls).run("reward", http_address, drain_seconds)
