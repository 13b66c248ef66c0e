"""Trains several policies on the same episodes: each is a job of its own, and a team plays their tasks together.

    from freshet.teams import serve_team

    def episode(members, row):
        plan = members["planner"].complete(row["question"])         # or use OpenAI's client with members["planner"].task
        answer = members["worker"].complete(plan + "=")
        return 1.0 if answer == row["answer"] else 0.0              # or {"planner": 1.0, "worker": 0.5}

    serve_team(episode, {"planner": "127.0.0.1:7201", "worker": "127.0.0.1:7202"})

Every member is a job with `environment: {type: openai_agent}` and the member's address, all with the same group_size. A
task of one member waits for those of the others with the same numbers of prompt and sample; then the episode is played
once, and every member's sample gets its reward, also if the member was not asked: then it bears no loss. `row` is the
row of the first member. Only rewards cross between the
jobs: each has its own model, trainer, engines, loss and staleness bound.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import hmac
import http.client
import json
import math
import signal
import ssl
import threading
import time
import typing
import urllib.parse

from freshet.plain_http import Handler, Listener
from freshet.serving import is_loopback

_MAX_TASK_BYTES = 16 << 20
_MAX_ANSWER_BYTES = 64 << 20
_PATIENCE = 300.0
_PATIENCE_AGAIN = 10.0  # seconds, for a sample that has had its reward
_MAX_WAITING = 4096
_MAX_REWARDED = 1 << 16
_READ_SECONDS = 60.0
_MARGIN = 2.0  # seconds of a task's time limit that are left for the way back

Reward = typing.Union[float, collections.abc.Mapping]


class EpisodeFailed(Exception):
    """The episode has no reward; every member's sample is tried again."""


class Member:
    """One policy in one episode. `task` is the agent's task (docs/agents.md)."""

    def __init__(self, name: str, task: dict, deadline: float, context: ssl.SSLContext | None = None):
        self.name = name
        self.task = task
        self._deadline = deadline
        self._context = context

    def complete(self, prompt: str, **parameters) -> str:
        """The completion of `prompt` by this member's policy. Other parameters are those of /v1/completions."""
        body = {"model": self.task["model"], "prompt": prompt, **parameters}
        return self._post("/completions", body)["choices"][0]["text"]

    def chat(self, messages: list, **parameters) -> dict:
        """The assistant's message that follows `messages`. Other parameters are those of /v1/chat/completions."""
        body = {"model": self.task["model"], "messages": messages, **parameters}
        return self._post("/chat/completions", body)["choices"][0]["message"]

    def _post(self, path: str, body: dict) -> dict:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise EpisodeFailed(f"{self.name}: the episode's time is used up")
        url = urllib.parse.urlsplit(self.task["base_url"])
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(url.netloc, timeout=left, context=self._context)
        else:
            connection = http.client.HTTPConnection(url.netloc, timeout=left)
        try:
            connection.request(
                "POST",
                url.path.rstrip("/") + path,
                json.dumps(body),
                {"Content-Type": "application/json", "Authorization": f"Bearer {self.task['api_key']}"},
            )
            answer = connection.getresponse()
            text = answer.read(_MAX_ANSWER_BYTES + 1)
            if answer.status != 200:
                raise EpisodeFailed(f"{self.name}: status {answer.status}: {text[:300].decode(errors='replace')}")
            if len(text) > _MAX_ANSWER_BYTES:
                raise EpisodeFailed(f"{self.name}: the answer has more than {_MAX_ANSWER_BYTES} bytes")
            return json.loads(text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EpisodeFailed(f"{self.name}: {error}") from error
        finally:
            connection.close()


def sample_key(uid: str) -> tuple[int, int]:
    """The prompt's number and the sample's index in its group, from a uid JOB/ORDINAL/ATTEMPT/INDEX."""
    parts = uid.rsplit("/", 3)
    if len(parts) != 4:
        raise ValueError(f"sample: {uid!r} is no uid of a training sample")
    return int(parts[1]), int(parts[3])


def _job(uid: str) -> str:
    return uid.rsplit("/", 3)[0]


class _Waiting:
    """A member's task that waits for those of the others, or for the episode's end."""

    def __init__(self, task: dict, deadline: float):
        self.task = task
        self.deadline = deadline
        self.ended = threading.Event()
        self.answer: tuple[int, dict] = (503, {"error": "the episode did not end"})

    def end(self, status: int, answer: dict) -> None:
        self.answer = (status, answer)
        self.ended.set()


@dataclasses.dataclass
class _Rewarded:
    """A sample with a reward."""

    jobs: dict[str, str]  # of the members
    # By member: number and time of its first task for this sample after the reward.
    returned: dict[str, tuple[int, float]] = dataclasses.field(default_factory=dict)


class Team:
    """Joins the members' tasks and plays their episodes. Thread-safe.

    `trained` are the names of the members with a job. `frozen` maps the names of others to an endpoint,
    {"base_url": ..., "model": ..., "api_key": ...}, whose policy does not learn here.
    """

    def __init__(
        self,
        episode: collections.abc.Callable[[dict, dict], Reward],
        trained: collections.abc.Iterable[str],
        frozen: collections.abc.Mapping[str, dict] | None = None,
        patience: float = _PATIENCE,
        context: ssl.SSLContext | None = None,
        clock: collections.abc.Callable[[], float] = time.monotonic,
    ):
        self._episode = episode
        self._clock = clock
        self._trained = tuple(trained)
        self._frozen = {name: {"api_key": "none", **endpoint} for name, endpoint in (frozen or {}).items()}
        if not self._trained:
            raise ValueError("trained: name at least one member")
        both = set(self._trained) & set(self._frozen)
        if both:
            raise ValueError(f"frozen: {min(both)} is also trained")
        self._patience = patience
        self._context = context
        self._lock = threading.Lock()
        self._waiting: dict[tuple[int, int], dict[str, _Waiting]] = {}
        self._tasks = 0
        self._latest: dict[str, tuple[int, int]] = {}  # by member: its latest task's number, and that of the prompt
        # The newest samples with a reward, by (ordinal, index).
        self._rewarded: collections.OrderedDict[tuple[int, int], _Rewarded] = collections.OrderedDict()

    @property
    def waiting(self) -> int:
        """The number of samples whose members have not all come."""
        with self._lock:
            return len(self._waiting)

    def on_waiting(self) -> None:
        """Called when a task begins to wait, on its thread."""

    def play(self, name: str, task: dict) -> tuple[int, dict]:
        """HTTP status and body of the answer to a member's task. Returns when the episode has ended."""
        try:
            key = sample_key(str(task.get("sample", "")))
            limit = float(task["timeout_s"])
        except (KeyError, TypeError, ValueError) as error:
            return 400, {"error": f"{name}: {error}; a team plays training samples only, so leave out `eval`"}
        mine = _Waiting(task, time.monotonic() + max(limit - _MARGIN, limit / 2))
        with self._lock:
            # Either its sample was lost while those of its partners are stored, so that they do not come again, or the
            # jobs have started again, and all of them come.
            self._tasks += 1
            self._latest[name] = (self._tasks, key[0])
            rewarded = self._rewarded.get(key)
            again = rewarded is not None and rewarded.jobs[name] == _job(task["sample"]) and len(self._trained) > 1
            since, returned = rewarded.returned.setdefault(name, (self._tasks, self._clock())) if again else (0, 0.0)
            if len(self._waiting) >= _MAX_WAITING:
                return 429, {"error": f"{_MAX_WAITING} samples wait for their partners"}
            members = self._waiting.setdefault(key, {})
            earlier = members.pop(name, None)
            members[name] = mine
            complete = len(members) == len(self._trained)
            if complete:
                del self._waiting[key]
        patience = min(self._patience, _PATIENCE_AGAIN) if again else self._patience
        if earlier is not None:  # its rollout has given it up
            earlier.end(503, {"error": "another task for the same sample has come"})
        if not complete:
            self.on_waiting()
        if complete:
            self._play(key, members)
        elif not mine.ended.wait(min(patience, mine.deadline - time.monotonic())):
            with self._lock:
                alone = self._waiting.get(key, {}).get(name) is mine
                if alone:
                    missing = [other for other in self._trained if other not in self._waiting[key]]
                    # A job that has not started again yet may still come with the sample, and so may one of which a
                    # faster rollout is at later prompts.
                    lost = (
                        again
                        and self._clock() - returned >= self._patience
                        and all(self._is_past(other, key[0], since) for other in missing)
                    )
                    del self._waiting[key][name]
                    if not self._waiting[key]:
                        del self._waiting[key]
            if alone and lost:
                return 422, {
                    "error": f"the sample of {name} for prompt {key[0]}, sample {key[1]} was lost after the episode, "
                    "and its partners are at later prompts: it is not played again"
                }
            if alone:
                return 503, {"error": f"no task of {', '.join(missing)} for prompt {key[0]}, sample {key[1]}"}
            mine.ended.wait(max(mine.deadline + _MARGIN / 2 - time.monotonic(), 0))  # it is being played
        return mine.answer

    def _is_past(self, name: str, ordinal: int, since: int) -> bool:
        """The member's latest task came after the one with the number `since`, and is of a later prompt."""
        number, prompt = self._latest[name]
        return number > since and prompt > ordinal

    def _play(self, key: tuple[int, int], waiting: dict[str, _Waiting]) -> None:
        deadline = min(one.deadline for one in waiting.values())
        members = {name: Member(name, one.task, deadline, self._context) for name, one in waiting.items()}
        for name, endpoint in self._frozen.items():
            members[name] = Member(name, endpoint, deadline, self._context)
        try:
            rewards = self._rewards(self._episode(members, dict(waiting[self._trained[0]].task["row"])))
            if time.monotonic() > deadline:
                raise EpisodeFailed("the episode's time is used up")
        except Exception as error:  # of the user's function too: the episode is played again
            text = f"{type(error).__name__}: {error}"[:500]
            for one in waiting.values():
                one.end(503, {"error": text})
            return
        with self._lock:
            self._rewarded.pop(key, None)
            self._rewarded[key] = _Rewarded({name: _job(one.task["sample"]) for name, one in waiting.items()})
            while len(self._rewarded) > _MAX_REWARDED:
                self._rewarded.popitem(last=False)
        for name, one in waiting.items():
            one.end(200, {"reward": rewards[name], "requests_optional": True})

    def _rewards(self, reward: Reward) -> dict[str, float]:
        if isinstance(reward, collections.abc.Mapping):
            rewards = {name: float(reward[name]) for name in self._trained}
        else:
            rewards = dict.fromkeys(self._trained, float(reward))
        for name, value in rewards.items():
            if not math.isfinite(value):
                raise EpisodeFailed(f"{name}: the reward is {value}, which is not finite")
        return rewards


class TeamServer:
    """Serves a team: one address per member, each HOST:PORT; port 0 takes a free one.

    With a host that is not a loopback address it needs insecure=True, because tasks come in plaintext. With `token`,
    jobs name the address http://HOST:PORT/TOKEN, and others get 404.
    """

    def __init__(
        self, team: Team, addresses: collections.abc.Mapping[str, str], insecure: bool = False, token: str = ""
    ):
        self._servers: dict[str, Listener] = {}
        for name, address in addresses.items():
            if not is_loopback(address) and not insecure:
                self.stop()
                raise ValueError(f"{address}: listens on other than loopback without TLS; give insecure=True to allow it")
            self._servers[name] = Listener(address, _handler(team, name, "/" + token))
        self._threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in self._servers.values()]
        for thread in self._threads:
            thread.start()

    @property
    def addresses(self) -> dict[str, str]:
        return {name: server.address for name, server in self._servers.items()}

    def stop(self) -> None:
        """Stops listening. Episodes that are being played end by themselves."""
        for server in self._servers.values():
            if getattr(self, "_threads", None):
                server.shutdown()
            server.server_close()


def _handler(team: Team, name: str, path: str) -> type[Handler]:
    class Tasks(Handler):
        protocol_version = "HTTP/1.1"
        timeout = _READ_SECONDS

        def do_POST(self):
            try:
                if not hmac.compare_digest(self.path.encode(), path.encode()):
                    self.close_connection = True
                    return self._answer(404, {"error": "no member has this path"})
                size = int(self.headers.get("Content-Length", ""))
                if not 0 <= size <= _MAX_TASK_BYTES:
                    raise ValueError(f"Content-Length is not between 0 and {_MAX_TASK_BYTES}")
                task = json.loads(self.rfile.read(size))
                if not isinstance(task, dict):
                    raise ValueError("the task is no object")
            except (ValueError, RecursionError) as error:
                self.close_connection = True
                return self._answer(400, {"error": str(error)})
            self._answer(*team.play(name, task))

        def _answer(self, status: int, answer: dict) -> None:
            self.answer(status, "application/json", json.dumps(answer).encode())

    return Tasks


def serve_team(
    episode: collections.abc.Callable[[dict, dict], Reward],
    addresses: collections.abc.Mapping[str, str],
    frozen: collections.abc.Mapping[str, dict] | None = None,
    insecure: bool = False,
    token: str = "",
) -> None:
    """Serves a team until SIGTERM or Ctrl-C."""
    server = TeamServer(Team(episode, addresses, frozen), addresses, insecure, token)
    print("team on", ", ".join(f"{name}={address}" for name, address in server.addresses.items()), flush=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(1.0):
        pass
    server.stop()
