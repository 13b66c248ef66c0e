"""A custom environment: Nim against an opponent that plays randomly.

    ./dev python && . .venv/bin/activate                       # installs the client
    python3 examples/python/own_environment.py                 # serves the class below; keep it running
    freshet local examples/python/own_environment.yaml         # in another terminal; or freshet submit
"""

import random

import freshet


class Nim:
    """Players take 1 to 3 stones in turn; the player who takes the last one wins.

    "7:" shows the remaining stones; the policy answers with a digit. Leaving a multiple of four is a
    winning move.
    """

    def reset(self, seed, options):
        self.dice = random.Random(seed)  # the same seed and actions must give the same game
        self.stones = self.dice.choice([5, 6, 7, 9])
        return f"{self.stones}:", {}

    def step(self, action):
        if action not in ("1", "2", "3") or int(action) > self.stones:
            return "!", 0.0, True, False, {"end": "illegal move"}
        self.stones -= int(action)
        if self.stones == 0:
            return "=", 1.0, True, False, {"end": "won"}
        self.stones -= self.dice.randint(1, min(3, self.stones))
        if self.stones == 0:
            return "!", 0.0, True, False, {"end": "lost"}
        return f"{self.stones}:", 0.0, False, False, {}


if __name__ == "__main__":
    freshet.serve_env(Nim, "127.0.0.1:7081", max_episodes=256)
