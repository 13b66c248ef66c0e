"""Serves Python classes as environments."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import grpc

from freshet.env.v1 import env_service_pb2 as pb
from freshet.env.v1 import env_service_pb2_grpc
from freshet.environment_metrics import EnvironmentMetrics
from freshet.episode_places import Place, Places, frame_of
from freshet.serving import DRAIN_SECONDS, Server

_log = logging.getLogger("freshet.environment")
_MAX_ERROR_CHARACTERS = 500
_CLOSE_SECONDS = 10.0
HUNG_SECONDS = 30.0  # that a call may go on after its caller has given up
STUCK_EXIT_CODE = 75  # of a process whose environments hang; its supervisor should start it again
MAX_ANSWER_BYTES = 4 << 20
MAX_JSON_DEPTH = 64  # of what a policy writes for a server


def is_too_deep(value: Any) -> bool:
    """Whether lists and dicts are nested deeper than MAX_JSON_DEPTH."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            part
            for nested in level
            if isinstance(nested, (dict, list))
            for part in (nested.values() if isinstance(nested, dict) else nested)
        ]
        if not level:
            return False
    return any(isinstance(nested, (dict, list)) for nested in level)


class EnvironmentFull(Exception):
    """An environment has no room for another episode now; another worker may have."""


class NewContext(list):
    """An observation whose messages replace the conversation: the policy's next turn sees nothing else.

    From `reset` it replaces the row's messages. From `step` it ends a segment of the sample and begins another one,
    which needs a job with `environment.max_conversations` above 1.
    """


class _Fault(Exception):
    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


def _message(message: Any) -> pb.Message:
    if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
        raise TypeError("a message must be a dict with role and content")
    return pb.Message(**message)  # raises if a name or a type is wrong


def _cost(value: Any) -> float:
    try:
        cost = float(value)
    except (TypeError, ValueError, OverflowError):
        cost = math.nan
    if not 0 <= cost < math.inf:
        raise ValueError(
            f'info["cost"] is {value!r}; return a number of at least 0, or rename the key '
            "(environment.max_cost reads it)"
        )
    return cost


def _reply(observation: Any, info: Any, **fields: Any) -> pb.EpisodeReply:
    fields["cost"] = _cost((info or {}).get("cost", 0.0))
    texts = {str(name): str(value) for name, value in (info or {}).items()}
    if isinstance(observation, str):
        reply = pb.EpisodeReply(observation=observation, info=texts, **fields)
    elif isinstance(observation, list):
        reply = pb.EpisodeReply(messages=map(_message, observation), info=texts, **fields)
        reply.new_context = isinstance(observation, NewContext)
    else:
        raise TypeError(f"an observation must be a str or a list of messages, not {type(observation).__name__}")
    if reply.ByteSize() > MAX_ANSWER_BYTES:
        raise ValueError(f"an answer of {reply.ByteSize()} bytes; at most {MAX_ANSWER_BYTES} are allowed")
    return reply


class _Loop:
    """An event loop in a thread of its own, which ends with the process."""

    def __init__(self):
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._asked: float | None = None  # when the loop was asked whether it runs

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(_without_exit(coroutine), self._loop)

    def blocked(self, seconds: float) -> str:
        """Why coroutines have not been run for more than so long; "": they have. To be called now and then."""
        with self._lock:
            if self._loop is None:
                return ""
            now = time.monotonic()
            if self._asked is None:
                self._asked = now
                self._loop.call_soon_threadsafe(self._answer)
            if now - self._asked <= seconds:
                return ""
            where = frame_of(self._thread.ident)
        return f"an async environment blocks the shared event loop at {where}"

    def _answer(self) -> None:
        with self._lock:
            self._asked = None

    def _run(self) -> None:
        while True:
            try:
                self._loop.run_forever()
            except BaseException:  # a task that something else has started calls sys.exit()
                _log.exception("the event loop of environments was interrupted")


async def _without_exit(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """SystemExit and KeyboardInterrupt would end the event loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the environment raised {type(error).__name__}") from error


_loop = _Loop()


class _InLoop:
    """An environment whose methods are coroutines, called from a thread that waits for them."""

    def __init__(self, environment: Any, context: grpc.ServicerContext):
        self._environment = environment
        self._context = context
        self._call: Future | None = None
        context.add_callback(self._cancel)

    def _cancel(self) -> None:
        call = self._call
        if call is not None:
            call.cancel()

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._call = _loop.submit(coroutine)
        if not self._context.is_active():
            self._call.cancel()
        return self._call.result()

    def reset(self, seed: int, options: dict[str, str]) -> Any:
        return self._wait(self._environment.reset(seed=seed, options=options))

    def step(self, action: str) -> Any:
        return self._wait(self._environment.step(action))

    @property
    def tools(self) -> Any:
        return getattr(self._environment, "tools", None)

    def close(self) -> None:
        close = getattr(self._environment, "close", None)
        if close is not None:
            _loop.submit(close()).result(_CLOSE_SECONDS)


class _Episodes:
    """The consecutive episodes of one stream."""

    def __init__(
        self,
        kinds: Mapping[str, Callable[[], Any]],
        metrics: EnvironmentMetrics,
        context: grpc.ServicerContext,
        place: Place,
    ):
        self._kinds = kinds
        self._metrics = metrics
        self._context = context
        self._place = place
        self._row = ""
        self._name: str | None = None
        self._environment: Any = None
        self._running = False
        self._turns = 0

    def answer(self, request: pb.EpisodeRequest) -> pb.EpisodeReply:
        try:
            if request.HasField("reset"):
                return self._reset(request.reset)
            if request.HasField("step"):
                return self._step(request.step.action)
        except Exception:
            raise
        except BaseException as error:  # gRPC would not answer the call
            raise RuntimeError(f"the environment raised {type(error).__name__}: {error}") from error
        raise _Fault(grpc.StatusCode.INVALID_ARGUMENT, "a request without reset, step or close")

    def _named(self, name: str) -> str:
        if not name and len(self._kinds) == 1:
            return next(iter(self._kinds))
        if name in self._kinds:
            return name
        raise _Fault(
            grpc.StatusCode.INVALID_ARGUMENT,
            f'environment "{name[:100]}" is not served here, but: {", ".join(sorted(self._kinds))}',
        )

    def _reset(self, reset: pb.Reset) -> pb.EpisodeReply:
        name = self._named(reset.environment)
        self._end("abandoned")
        if name != self._name:
            self.close()
        self._row = f"seed {reset.seed}, row {dict(reset.options)}"
        with self._place.call(name, "reset", self._row):
            if name != self._name:
                make = self._kinds[name]
                self._environment = _InLoop(make(), self._context) if _is_async(make) else make()
                self._name = name
            self._running = True
            self._turns = 0
            with self._metrics.step(name):
                observation, info = self._environment.reset(seed=reset.seed, options=dict(reset.options))
            tools = getattr(self._environment, "tools", None) or []
        return _reply(observation, info, tools=[json.dumps(tool, ensure_ascii=False) for tool in tools])

    def _step(self, action: str) -> pb.EpisodeReply:
        if not self._running:
            raise _Fault(grpc.StatusCode.FAILED_PRECONDITION, "a step without a running episode")
        self._turns += 1
        with self._place.call(self._name, "step", self._row), self._metrics.step(self._name):
            observation, reward, terminated, truncated, info = self._environment.step(action)
        reward = float(reward)
        if not math.isfinite(reward):
            raise ValueError(f"the environment returned the reward {reward}")
        reply = _reply(
            observation,
            info,
            reward=reward,
            terminated=bool(terminated),
            truncated=bool(truncated),
            invalid=bool((info or {}).get("invalid")),
        )
        if terminated or truncated:
            self._end("terminated" if terminated else "truncated")
        return reply

    def _end(self, outcome: str | None) -> None:
        if self._running and outcome is not None:
            self._metrics.ended(self._name, outcome, self._turns)
        self._running = False

    def close(self, outcome: str | None = None) -> None:
        """outcome: of the running episode, if there is one; None: it does not count."""
        self._end(outcome)
        close = getattr(self._environment, "close", None)
        name = self._name
        self._environment = self._name = None
        try:
            if close is not None:
                with self._place.call(name, "close", self._row):
                    close()
        except BaseException:  # whatever the user's class raises
            _log.warning("the environment failed to close", exc_info=True)


def _what(make: Any) -> Any:
    """The class or function itself, without arguments that are bound to it."""
    return make.func if isinstance(make, functools.partial) else make


def _is_async(make: Any) -> bool:
    """Whether the environments that it makes have coroutines as methods."""
    return inspect.iscoroutinefunction(getattr(_what(make), "step", None))


class _EnvService(env_service_pb2_grpc.EnvServiceServicer):
    def __init__(self, kinds: Mapping[str, Callable[[], Any]], max_episodes: int, hung_seconds: float):
        self._kinds = kinds
        self.places = Places(max_episodes, hung_seconds, lambda name: self.metrics.hung(name))
        self.metrics = EnvironmentMetrics(self.places.open, max_episodes)

    def Episode(
        self, requests: Iterator[pb.EpisodeRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.EpisodeReply]:
        place = self.places.take()
        if place is None:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self.places.number} episodes are open; try another worker",
            )
        if not context.add_callback(place.leave):
            place.leave()
        episodes = _Episodes(self._kinds, self.metrics, context, place)
        fault = None
        outcome: str | None = "abandoned"
        try:
            for request in requests:
                if request.HasField("close"):
                    break
                yield episodes.answer(request)
        except _Fault as error:
            fault = (error.code, str(error))
        except EnvironmentFull as error:
            fault = (grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            outcome = None
        except Exception as error:  # whatever the user's class raises
            if context.is_active():
                _log.warning("the environment failed", exc_info=True)
                outcome = "failed"
            fault = (grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        finally:
            place.leave()  # nobody need wait for close
            episodes.close(outcome)
            self.places.give_back(place)
        if fault is not None:
            # No half of a surrogate pair.
            context.abort(fault[0], fault[1][:_MAX_ERROR_CHARACTERS].encode(errors="replace").decode())

    def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: grpc.ServicerContext
    ) -> pb.ListEnvironmentsReply:
        infos = [
            pb.EnvironmentInfo(name=name, description=(inspect.getdoc(_what(kind)) or "").split("\n", 1)[0])
            for name, kind in sorted(self._kinds.items())
        ]
        return pb.ListEnvironmentsReply(
            environments=infos, open_episodes=self.places.open(), max_episodes=self.places.number
        )


class EnvironmentServer(Server):
    """Serves an environment (see serve_env) in background threads of this process."""

    def __init__(
        self,
        cls: Callable[[], Any] | Mapping[str, Callable[[], Any]],
        address: str = "127.0.0.1:7081",
        *,
        name: str | None = None,
        max_episodes: int = 64,
        hung_seconds: float = HUNG_SECONDS,
        **tls: Any,
    ):
        if isinstance(cls, Mapping):
            if not cls:
                raise ValueError("there is no environment to serve")
            kinds = dict(cls)
        else:
            kinds = {name or getattr(cls, "name", None) or _what(cls).__name__: cls}
        service = _EnvService(kinds, max_episodes, hung_seconds)
        # Each open or hung episode occupies a thread. The extra ones serve ListEnvironments and refusals.
        super().__init__(address, max_episodes + service.places.most_hung + 4, **tls)
        self.metrics = service.metrics.shown
        self._places, self._hung_seconds = service.places, hung_seconds
        env_service_pb2_grpc.add_EnvServiceServicer_to_server(service, self._server)

    def stuck(self) -> str:
        return self._places.stuck() or _loop.blocked(self._hung_seconds)


def serve_env(
    cls: Callable[[], Any] | Mapping[str, Callable[[], Any]],
    address: str = "127.0.0.1:7081",
    *,
    name: str | None = None,
    max_episodes: int = 64,
    http_address: str = "",
    drain_seconds: float = DRAIN_SECONDS,
    hung_seconds: float = HUNG_SECONDS,
    **tls: Any,
) -> None:
    """Serves `cls` as an environment until SIGTERM or Ctrl-C.

    A call that runs `hung_seconds` after its caller has given up is hung; close may take 10 times as long. It keeps
    its thread and frees its place. When one call per four places hangs, and at least two, or a coroutine blocks the
    shared event loop, the server drains, and the process ends with STUCK_EXIT_CODE, so that its supervisor starts it
    again.

    cls() is called once per stream of episodes. It has Gymnasium's interface, with strings:
      reset(seed, options) -> (observation, info)
      step(action) -> (observation, reward, terminated, truncated, info)
      close(), optional.
    If `step` is a coroutine (`async def`), so must the others be; all of them run in one event loop.
    In jobs with `environment.observations: messages`, an observation may also be a list of messages,
    dicts with role (system, user or tool), content and perhaps name and tool_call_id; a NewContext of
    messages replaces the conversation; and the attribute tools, optional, is the list of OpenAI's
    function schemas that the policy gets with a reset.
    info with `invalid` means that the action was invalid (see `environment.mask_invalid_turns`); its `cost` is what
    the reset or step has cost (see `environment.max_cost`).
    options contains the row's fields and the job's options. The same seed and actions must give the
    same results. An exception ends the episode as an infrastructure error: the episode is restarted
    on another worker and never scored as 0. EnvironmentFull means that there is no room now.

    Instead of one class it may be a dict of several by name. Jobs then name one: environment.name.

    name: the name that jobs use; default: cls.name, else the class name.
    max_episodes: maximum number of concurrent episodes. http_address, drain_seconds: of Server.run.
    tls: as in serve_reward.
    """
    server = EnvironmentServer(cls, address, name=name, max_episodes=max_episodes, hung_seconds=hung_seconds, **tls)
    why = server.run("environment", http_address, drain_seconds)
    if why:
        text = f"environment: {why}; this process ends with exit code {STUCK_EXIT_CODE}, start it again"
        print(text, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(STUCK_EXIT_CODE)  # the interpreter would wait for the threads that hang
