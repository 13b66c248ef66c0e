"""A custom reward: how well a completion sorts the digits of its prompt.

    ./dev python && . .venv/bin/activate                       # installs the client
    python3 examples/python/own_reward.py                      # serves the function below; keep it running
    freshet local examples/python/own_reward.yaml              # in another terminal; or freshet submit
"""

import freshet


def sortedness(prompt: str, completion: str) -> float:
    """Share of digits in the right place: for "742=", "247" gets 1 and "277" two thirds."""
    wanted = sorted(prompt.rstrip("="))
    right = sum(have == want for have, want in zip(completion, wanted))
    return right / max(len(wanted), len(completion))


if __name__ == "__main__":
    freshet.serve_reward(sortedness, "127.0.0.1:7080")
