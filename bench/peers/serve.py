"""What the peers of rollout.py share: they answer requests, one JSON object a line, on stdin and stdout."""
import argparse
import json
import os
import random
import sys
import time


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", help="model directory")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--format", default="", help="of the weights, if the peer has several")
    return parser.parse_args()


def serve(load, **workloads):
    """Calls `load`, then answers requests {"workload": NAME, ...} with workloads[NAME](loaded, **rest). Other output
    goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    loaded = load()
    answer({})
    for line in sys.stdin:
        request = json.loads(line)
        answer(workloads[request.pop("workload")](loaded, **request))


_random = random.Random(1)


def prompts(count, length, vocab_size):
    """Random prompts that were not used before."""
    return [[_random.randrange(3, vocab_size) for _ in range(length)] for _ in range(count)]


class Stopwatch:
    def __init__(self, limit_s=float("inf")):
        self.start, self.limit_s = time.perf_counter(), limit_s

    def seconds(self):
        return time.perf_counter() - self.start

    def expired(self):
        return self.seconds() > self.limit_s
