"""The RL mix of datastore_bench on TransferQueue. bench/datastore.py runs it with a Python that has it installed.

    transfer_queue_mix.py --samples N [--producers 4] [--group-size 16] [--groups-per-step 64] [--staleness 2]

Producers put groups with the same columns and lengths (ids, log-probs, loss mask), one call per group. The trainer
claims whole groups (GRPOGroupNSampler), reads them and clears them. TransferQueue has no staleness bound, so the
producers limit the outstanding groups themselves. Prints one JSON object.
"""
import argparse
import json
import math
import os
import random
import time

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict

POOL = 64  # groups that each producer cycles through
PARTITION, FIELDS = "train", ["response_ids", "behavior_logprobs", "loss_mask"]


def draw_tokens(dice):
    return max(1, min(16384, round(1500 * math.exp(dice.gauss(0, 1)))))


def make_group(size, seed):
    dice = random.Random(seed)
    lengths = [draw_tokens(dice) for _ in range(size)]

    def column(make):
        return torch.nested.as_nested_tensor([make(n) for n in lengths], layout=torch.jagged)

    return TensorDict({
        "response_ids": column(lambda n: torch.randint(0, 32000, (n,), dtype=torch.int32)),
        "behavior_logprobs": column(lambda n: -torch.rand(n)),
        "loss_mask": column(lambda n: torch.ones(n, dtype=torch.uint8)),
    }, batch_size=size)


@ray.remote(num_cpus=0)
class Gate:
    """Limits the outstanding groups, like the staleness bound."""

    def __init__(self):
        self.free = 0

    def take(self, most):
        taken = min(self.free, most)
        self.free -= taken
        return taken

    def give(self, groups):
        self.free += groups


@ray.remote(num_cpus=0)
def produce(number, groups, group_size, gate):
    tq.init()
    client = tq.get_client()
    pool = [make_group(group_size, number * POOL + i) for i in range(POOL)]
    put = 0
    yield "ready"
    while put < groups:
        taken = ray.get(gate.take.remote(min(8, groups - put)))
        if taken == 0:
            time.sleep(0.002)
        for _ in range(taken):
            client.put(pool[put % POOL], partition_id=PARTITION)
            put += 1
    yield "done"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=20480)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--groups-per-step", type=int, default=64)
    parser.add_argument("--staleness", type=int, default=2)
    args = parser.parse_args()
    per_step = args.groups_per_step * args.group_size
    steps = -(-args.samples // per_step)
    groups = steps * args.groups_per_step
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    conf = OmegaConf.create({"controller": {"sampler": tq.GRPOGroupNSampler(args.group_size), "polling_mode": True}},
                            flags={"allow_objects": True})
    tq.init(conf)
    client = tq.get_client()
    gate = Gate.remote()
    shares = [groups // args.producers + (p < groups % args.producers) for p in range(args.producers)]
    # Producers connect and build their pools before the timing starts.
    streams = [produce.options(num_returns="streaming").remote(p, share, args.group_size, gate)
               for p, share in enumerate(shares)]
    for stream in streams:
        ray.get(next(stream))
    begin, claims, batches, short = time.monotonic(), [], [], 0
    gate.give.remote((args.staleness + 1) * args.groups_per_step)
    for _ in range(steps):
        while True:
            start = time.monotonic()
            meta = client.get_meta(data_fields=FIELDS, batch_size=per_step, partition_id=PARTITION, task_name="train")
            claimed = time.monotonic()
            if meta.size == per_step:
                break
            time.sleep(0.001)
        data = client.get_data(meta)
        batches.append(time.monotonic() - start)
        claims.append(claimed - start)
        short += data["response_ids"].size(0) != per_step
        client.clear_samples(meta)
        gate.give.remote(args.groups_per_step)
    seconds = time.monotonic() - begin
    print(json.dumps({"samples": steps * per_step, "seconds": seconds, "claim_seconds": claims,
                      "batch_seconds": batches, "violations": short}))
    ray.shutdown()


if __name__ == "__main__":
    main()
