"""Serves a Python class as an environment."""

from __future__ import annotations

import inspect
import json
import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from freshet.env.v1 import env_service_pb2 as pb
from freshet.env.v1 import env_service_pb2_grpc
from freshet.serving import Server

_log = logging.getLogger("freshet.environment")
_MAX_ERROR_CHARACTERS = 500


class _Fault(Exception):
    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


def _message(message: Any) -> pb.Message:
    if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
        raise TypeError("a message must be a dict with role and content")
    return pb.Message(**message)  # raises if a name or a type is wrong


def _reply(observation: Any, info: Any, **fields: Any) -> pb.EpisodeReply:
    texts = {str(name): str(value) for name, value in (info or {}).items()}
    if isinstance(observation, str):
        return pb.EpisodeReply(observation=observation, info=texts, **fields)
    if not isinstance(observation, list):
        raise TypeError(f"an observation must be a str or a list of messages, not {type(observation).__name__}")
    return pb.EpisodeReply(messages=map(_message, observation), info=texts, **fields)


class _Episodes:
    """The consecutive episodes of one stream."""

    def __init__(self, make: Callable[[], Any], name: str):
        self._make = make
        self._name = name
        self._environment: Any = None
        self._running = False

    def answer(self, request: pb.EpisodeRequest) -> pb.EpisodeReply:
        if request.HasField("reset"):
            return self._reset(request.reset)
        if request.HasField("step"):
            return self._step(request.step.action)
        raise _Fault(grpc.StatusCode.INVALID_ARGUMENT, "a request without reset, step or close")

    def _reset(self, reset: pb.Reset) -> pb.EpisodeReply:
        if reset.environment not in ("", self._name):
            raise _Fault(
                grpc.StatusCode.INVALID_ARGUMENT,
                f'environment "{reset.environment}" is not served here; this is "{self._name}"',
            )
        if self._environment is None:
            self._environment = self._make()
        observation, info = self._environment.reset(seed=reset.seed, options=dict(reset.options))
        self._running = True
        tools = getattr(self._environment, "tools", None) or []
        return _reply(observation, info, tools=[json.dumps(tool, ensure_ascii=False) for tool in tools])

    def _step(self, action: str) -> pb.EpisodeReply:
        if not self._running:
            raise _Fault(grpc.StatusCode.FAILED_PRECONDITION, "a step without a running episode")
        observation, reward, terminated, truncated, info = self._environment.step(action)
        reward = float(reward)
        if not math.isfinite(reward):
            raise ValueError(f"the environment returned the reward {reward}")
        self._running = not (terminated or truncated)
        return _reply(
            observation,
            info,
            reward=reward,
            terminated=bool(terminated),
            truncated=bool(truncated),
        )

    def close(self) -> None:
        close = getattr(self._environment, "close", None)
        if close is not None:
            close()


class _EnvService(env_service_pb2_grpc.EnvServiceServicer):
    def __init__(self, make: Callable[[], Any], name: str, description: str, max_episodes: int):
        self._make = make
        self._name = name
        self._description = description
        self._max_episodes = max_episodes
        self._lock = threading.Lock()
        self._open = 0

    def Episode(
        self, requests: Iterator[pb.EpisodeRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.EpisodeReply]:
        with self._lock:
            full = self._open >= self._max_episodes
            self._open += 0 if full else 1
        if full:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._max_episodes} episodes are open; try another worker",
            )
        episodes = _Episodes(self._make, self._name)
        fault = None
        try:
            for request in requests:
                if request.HasField("close"):
                    break
                yield episodes.answer(request)
        except _Fault as error:
            fault = (error.code, str(error))
        except Exception as error:  # whatever the user's class raises
            if context.is_active():
                _log.warning("the environment failed", exc_info=True)
            fault = (grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        finally:
            try:
                episodes.close()
            except Exception:
                _log.warning("the environment failed to close", exc_info=True)
            with self._lock:
                self._open -= 1
        if fault is not None:
            context.abort(fault[0], fault[1][:_MAX_ERROR_CHARACTERS])

    def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: grpc.ServicerContext
    ) -> pb.ListEnvironmentsReply:
        with self._lock:
            open_episodes = self._open
        return pb.ListEnvironmentsReply(
            environments=[pb.EnvironmentInfo(name=self._name, description=self._description)],
            open_episodes=open_episodes,
            max_episodes=self._max_episodes,
        )


class EnvironmentServer(Server):
    """Serves an environment (see serve_env) in background threads of this process."""

    def __init__(
        self,
        cls: Callable[[], Any],
        address: str = "127.0.0.1:7081",
        *,
        name: str | None = None,
        max_episodes: int = 64,
        **tls: Any,
    ):
        # Each open episode occupies a thread. The extra ones serve ListEnvironments and refusals.
        super().__init__(address, max_episodes + 4, **tls)
        description = (inspect.getdoc(cls) or "").split("\n", 1)[0]
        env_service_pb2_grpc.add_EnvServiceServicer_to_server(
            _EnvService(cls, name or getattr(cls, "name", None) or cls.__name__, description, max_episodes),
            self._server,
        )


def serve_env(
    cls: Callable[[], Any],
    address: str = "127.0.0.1:7081",
    *,
    name: str | None = None,
    max_episodes: int = 64,
    **tls: Any,
) -> None:
    """Serves `cls` as an environment until SIGTERM or Ctrl-C.

    cls() is called once per stream of episodes. It has Gymnasium's interface, with strings:
      reset(seed, options) -> (observation, info)
      step(action) -> (observation, reward, terminated, truncated, info)
      close(), optional.
    In jobs with `environment.observations: messages`, an observation may also be a list of messages,
    dicts with role (system, user or tool), content and perhaps name and tool_call_id; and the attribute
    tools, optional, is the list of OpenAI's function schemas that the policy gets with a reset.
    options contains the row's fields and the job's options. The same seed and actions must give the
    same results. An exception ends the episode as an infrastructure error: the episode is restarted
    on another worker and never scored as 0.

    name: the name that jobs use; default: cls.name, else the class name.
    max_episodes: maximum number of concurrent episodes. tls: as in serve_reward.
    """
    EnvironmentServer(cls, address, name=name, max_episodes=max_episodes, **tls).run("environment")
