"""Environments of OpenEnv servers, each episode in a session of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from freshet.environments import MAX_JSON_DEPTH, EnvironmentFull, is_too_deep

_MAX_MESSAGE_BYTES = 16 << 20
_OPEN_SECONDS = 60.0
# Fields of an observation that the policy does not see.
_HIDDEN = ("done", "reward", "metadata")
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
# Of the server's error codes: the action is not what the environment takes.
_INVALID = "VALIDATION_ERROR"
_FULL = "CAPACITY_REACHED"


def openenv_environment(
    url: str,
    *,
    action: str | None = None,
    observation: str | None = None,
    reset: Sequence[str] = (),
    seconds: float = 4.0,
) -> Callable[[], Any]:
    """An environment of an OpenEnv server, to be served by serve_env. Needs the package websockets.

        freshet.serve_env(freshet.openenv_environment("http://127.0.0.1:8000", action="message"))

    url: of the server, http(s) or ws(s). Each episode has a session, so the server must allow as many
    (max_concurrent_envs).
    action: the field of the action that the policy's text becomes; without it the policy writes the whole
    action as a JSON object. What the server does not accept as an action is answered with the reason, and
    changes nothing.
    observation: the field of the observation that the policy sees; without it all of them, as JSON.
    reset: the row's fields that are passed to the environment's reset, besides the seed.
    seconds: how long the server may take to answer; must be below the job's environment.step_timeout_ms.
    """
    # Errors leave out the URL, which may hold a password.
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise ValueError("openenv is no URL of a server; give http(s)://HOST:PORT") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("openenv is a URL with a user, query or fragment; give http(s)://HOST:PORT without them")
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ValueError("openenv is no URL of a server; give http(s)://HOST:PORT")
    try:
        parts.port
    except ValueError:
        raise ValueError("openenv has no valid port; give http(s)://HOST:PORT") from None
    if isinstance(reset, str):
        raise ValueError(f"reset is {reset!r}; give a list of fields")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds!r}; give a number above 0")
    socket = f"{_SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}/ws"
    return functools.partial(OpenEnvEnvironment, socket, action, observation, tuple(reset), seconds)


class _Refused(Exception):
    """The server does not accept the action."""


class OpenEnvEnvironment:
    """An environment of an OpenEnv server"""

    def __init__(
        self, url: str, action: str | None, observation: str | None, reset: tuple[str, ...], seconds: float
    ):
        self._url = url
        self._action = action
        self._observation = observation
        self._reset = reset
        self._seconds = seconds
        self._socket: Any = None

    async def reset(self, seed: int, options: dict[str, str]) -> tuple[str, dict[str, Any]]:
        from websockets.asyncio.client import connect

        if self._socket is None:
            self._socket = await connect(
                self._url, open_timeout=_OPEN_SECONDS, max_size=_MAX_MESSAGE_BYTES, proxy=None
            )
        # Servers of JavaScript or with 32-bit generators take smaller seeds than Freshet's.
        data = {name: options[name] for name in self._reset if name in options} | {"seed": seed % (1 << 31)}
        try:
            answer = await self._ask("reset", data)
        except _Refused as error:
            raise ValueError(f"the server refuses the reset: {error}") from None
        return self._text(answer), {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        try:
            answer = await self._ask("step", self._action_of(action))
        except _Refused as error:
            return f"invalid action: {error}\n", 0.0, False, False, {"invalid": True}
        reward, done = answer.get("reward"), answer.get("done")
        if not isinstance(done, (bool, type(None))):
            raise TypeError(f"done is {str(done)[:50]!r} in the server's answer; it must be true or false")
        return self._text(answer), 0.0 if reward is None else float(reward), bool(done), False, {}

    async def close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    def _action_of(self, text: str) -> dict[str, Any]:
        if self._action is not None:
            return {self._action: text}
        try:
            action = json.loads(text)
        except (RecursionError, ValueError):
            action = None
        if not isinstance(action, dict):
            raise _Refused("it must be a JSON object")
        if is_too_deep(action):
            raise _Refused(f"it is nested deeper than {MAX_JSON_DEPTH}")
        return action

    def _text(self, answer: dict[str, Any]) -> str:
        shown = answer.get("observation")
        if not isinstance(shown, dict):
            raise TypeError("the server's answer has no observation")
        if self._observation is not None:
            if self._observation not in shown:
                raise KeyError(f"the observation has no field {self._observation}")
            text = shown[self._observation]
            return text if isinstance(text, str) else json.dumps(text)
        return json.dumps({name: value for name, value in shown.items() if name not in _HIDDEN})

    async def _early(self) -> str | bytes | None:
        """What the server has sent without a request. Answers have no ids, so it would be taken for the next one."""
        received = asyncio.ensure_future(self._socket.recv())
        try:
            await asyncio.wait([received], timeout=0)
            if received.done():
                return received.result()
        finally:
            received.cancel()
        await asyncio.wait([received])  # another recv() may begin only then
        return None

    async def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        from websockets.exceptions import ConnectionClosed

        early = await self._early()
        if early is None:
            with contextlib.suppress(ConnectionClosed):  # a full server has already said why, which is read next
                await self._socket.send(json.dumps({"type": kind, "data": data}))
            try:
                text = await asyncio.wait_for(self._socket.recv(), self._seconds)
            except asyncio.TimeoutError:
                raise RuntimeError(f"{self._url}: no answer within {self._seconds} s") from None
        reply = json.loads(text if early is None else early)
        if not isinstance(reply, dict):
            raise TypeError("the server's answer is not an object")
        kind, answer = reply.get("type"), reply.get("data")
        if not isinstance(answer, dict):
            raise TypeError("the server's answer has no data")
        if kind == "observation":
            if early is not None:
                raise RuntimeError(f"{self._url}: the server sent an observation without a request")
            return answer
        if kind != "error":
            raise TypeError(f"the server answers with the type {str(kind)[:50]!r}")
        text = f"{answer.get('message', '')}"[:300]
        if answer.get("code") == _FULL:
            raise EnvironmentFull(f"{self._url}: {text}")
        if early is not None:
            raise RuntimeError(f"{self._url}: the server sent an error without a request: {text}")
        if answer.get("code") == _INVALID:
            raise _Refused(_validation_errors(answer.get("errors")) or text)
        raise RuntimeError(f"{self._url}: {answer.get('code')}: {text}")


def _validation_errors(errors: Any) -> str:
    """From Pydantic's list of errors."""
    if not isinstance(errors, list):
        return ""
    found = [e for e in errors[:8] if isinstance(e, dict)]
    return "; ".join(f"{'.'.join(map(str, e.get('loc', ())))}: {e.get('msg', '')}" for e in found)[:300]
