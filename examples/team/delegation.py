"""A planner in code and a worker that learns. The planner asks the worker for every sum. For the smaller of two digits it
asks in one of eight samples, and guesses in the others.

    python3 examples/team/delegation.py 127.0.0.1:7202              # the address in delegation.yaml
    freshet local examples/team/delegation.yaml                     # in another terminal
"""

import random
import sys

from freshet.teams import sample_key, serve_team


def episode(members, row):
    task = members["worker"].task
    _, index = sample_key(task["sample"])
    if "+" not in task["prompt"] and index > 0:
        answer = random.choice(task["prompt"][:2])
    else:
        answer = members["worker"].complete(task["prompt"])
    return float(answer == row["right"])


if __name__ == "__main__":
    serve_team(episode, {"worker": sys.argv[1]})
