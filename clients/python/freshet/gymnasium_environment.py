"""Environments of Gymnasium, with texts for observations and actions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class _Unreadable(Exception):
    """An action that the space does not contain."""


def gymnasium_environment(environment: str | Callable[..., Any], **arguments: Any) -> Callable[[], Any]:
    """An environment of Gymnasium, to be served by serve_env. Needs the package gymnasium.

        freshet.serve_env(freshet.gymnasium_environment("FrozenLake-v1", render_mode="ansi"))

    environment: a registered id, or a class or function; `arguments` are its keyword arguments.

    The policy sees what render() returns if render_mode is "ansi"; otherwise a text observation as it
    is, and other ones as JSON. It acts by JSON: a number for a Discrete space, lists for arrays and
    tuples, an object for a Dict; of a Text space any text. An action that the space does not contain
    is answered with what it must be, and changes nothing.
    """

    def make() -> _GymnasiumEnvironment:
        import gymnasium

        if isinstance(environment, str):
            return _GymnasiumEnvironment(gymnasium.make(environment, **arguments))
        return _GymnasiumEnvironment(environment(**arguments))

    make.__name__ = environment if isinstance(environment, str) else environment.__name__
    make.__doc__ = f"Gymnasium's {make.__name__}"
    return make


class _GymnasiumEnvironment:
    def __init__(self, environment: Any):
        self._environment = environment

    def reset(self, seed: int, options: dict[str, str]) -> tuple[str, dict[str, Any]]:
        observation, info = self._environment.reset(seed=seed, options=options)
        return self._text(observation), info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        try:
            parsed = _action(self._environment.action_space, action)
        except _Unreadable:
            return f"invalid action: {self._environment.action_space}\n", 0.0, False, False, {"invalid": True}
        observation, reward, terminated, truncated, info = self._environment.step(parsed)
        return self._text(observation), float(reward), terminated, truncated, info

    def close(self) -> None:
        self._environment.close()

    def _text(self, observation: Any) -> str:
        if self._environment.render_mode == "ansi":
            return self._environment.render()
        return observation if isinstance(observation, str) else json.dumps(_plain(observation))


def _plain(value: Any) -> Any:
    """Without arrays and numbers of NumPy, whose method `tolist` gives Python's."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _action(space: Any, text: str) -> Any:
    from gymnasium import spaces

    if isinstance(space, spaces.Text):
        action = text
    else:
        try:
            action = _of_space(space, json.loads(text))
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
            raise _Unreadable from None
    if not space.contains(action):
        raise _Unreadable
    return action


def _of_space(space: Any, value: Any) -> Any:
    import numpy
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {name: _of_space(part, value[name]) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        if len(value) != len(space):
            raise ValueError
        return tuple(_of_space(part, item) for part, item in zip(space, value))
    if isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)):
        return numpy.asarray(value, dtype=space.dtype)
    return value
