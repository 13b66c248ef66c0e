"""A planner and a worker on the same episodes: the planner names the digits to add, the worker adds them.

    python3 examples/team/team.py 127.0.0.1:7201 127.0.0.1:7202     # the addresses in team.yaml
    freshet local examples/team/team.yaml                           # in another terminal
"""

import sys

from freshet.teams import serve_team


def episode(members, row):
    call = members["planner"].complete(row["question"])
    answer = members["worker"].complete(call + "=")
    return float(call == row["call"] and answer == row["sum"])


if __name__ == "__main__":
    serve_team(episode, {"planner": sys.argv[1], "worker": sys.argv[2]})
