"""A reward of your own: how well a completion sorts the digits of its prompt.

    ./dev python && . .venv/bin/activate                       # installs the client
    python3 examples/python/own_reward.py                      # serves the function below; leave it running
    freshet local examples/python/own_reward.yaml              # in another terminal; or freshet submit
"""

import freshet


def sortedness(prompt: str, completion: str) -> float:
    """Share of the digits that are in their place: 1 for "742=" -> "247", two thirds for "277"."""
    wanted = sorted(prompt.rstrip("="))
    right = sum(have == want for have, want in zip(completion, wanted))
    return right / max(len(wanted), len(completion))


if __name__ == "__main__":
    freshet.serve_reward(sortedness, "127.0.0.1:7080")
