"""An OpenEnv server (pip install openenv-core) of a game in turns: server.py [PORT], 8000 by default.

Each turn shows a letter from a to d, and the right answer is the next one, after d again a. An episode has six turns, each
worth a sixth.
"""

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

LETTERS = "abcd"
TURNS = 6


class Answer(Action):
    letter: str


class Shown(Observation):
    letter: str
    blank: str = "-"  # what a policy sees that is not shown the letter


class Successor(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None):
        self._random = random.Random(seed)
        self._state = State(step_count=0)
        return self._show(reward=0.0)

    def step(self, action):
        self._state.step_count += 1
        right = LETTERS[(LETTERS.index(self._letter) + 1) % len(LETTERS)]
        return self._show(reward=(action.letter == right) / TURNS)

    @property
    def state(self):
        return self._state

    def _show(self, reward):
        self._letter = self._random.choice(LETTERS)
        return Shown(letter=self._letter, reward=reward, done=self._state.step_count == TURNS)


app = create_fastapi_app(Successor, Answer, Shown, max_concurrent_envs=1024)
if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, log_level="warning")
