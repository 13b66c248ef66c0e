#!/usr/bin/env python3
"""The theoretical speed of the pipeline: a workload, its bounds, and a simulation of the scheduling rules.

    pipeline_model.py     prints the speed of alternative rules for leasing and running groups

The workload is that of the simulated engine (tests/simulation): with b running sequences, each gets a token every
base_ms + per_sequence_ms * b milliseconds. Lengths are log-normal and depend only on (seed, ordinal, sample). Times are
unscaled milliseconds of the workload. In the simulation messages take no time, so only the rules of admission, batching
and disposition limit the speed.
"""
import collections
import dataclasses
import functools
import heapq
import math

MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def random_bits(seed, a, b=0, c=0):
    return mix64(mix64(mix64(mix64(seed) ^ a) ^ b) ^ c)


@functools.lru_cache(maxsize=None)
def draw_length(seed, ordinal, index, median, sigma, cap):
    """Tokens of a sample. Must match SimulatedEngine."""
    key = random_bits(seed, ordinal, index)
    u = max((random_bits(key, 1) >> 11) / 9007199254740992.0, 1e-12)
    v = (random_bits(key, 2) >> 11) / 9007199254740992.0
    normal = math.sqrt(-2.0 * math.log(u)) * math.cos(6.283185307179586 * v)
    return max(1, round(min(median * math.exp(sigma * normal), median * cap)))


@dataclasses.dataclass(frozen=True)
class Workload:
    """`engines` generate. The trainer has the capacity of `trainers` further engines."""
    engines: int = 16
    trainers: int = 8
    slots: int = 32
    base_ms: float = 10.0
    per_sequence_ms: float = 0.15
    median: float = 512
    sigma: float = 0.894  # p99 is 8 times the median
    cap: float = 8  # longest length over the median
    group_size: int = 8
    groups: int = 64  # per step: one sample for each slot of 16 engines
    train_over_generation: float = 0.5  # work of training a step over that of generating it
    seed: int = 1

    def token_ms(self, running):
        return self.base_ms + self.per_sequence_ms * running

    def length(self, ordinal, index):
        return draw_length(self.seed, ordinal, index, self.median, self.sigma, self.cap)

    def group_lengths(self, ordinal):
        return [self.length(ordinal, index) for index in range(self.group_size)]

    @functools.cached_property
    def mean_length(self):
        return sum(sum(self.group_lengths(ordinal)) for ordinal in range(1000)) / (1000 * self.group_size)

    @property
    def generation_ms(self):
        """Engine time of the samples of a step with all slots in use."""
        return self.groups * self.group_size * self.mean_length * self.token_ms(self.slots) / self.slots

    @functools.cached_property
    def training_ms(self):
        return self.train_over_generation * self.generation_ms / self.trainers

    @property
    def bubble_free_ms(self):
        """Time of a step if neither engines nor trainer ever wait."""
        return max(self.generation_ms / self.engines, self.training_ms)

    def ceiling_ms(self, eta):
        """The shortest step that the staleness bound allows without drops: (longest sample + training) / (eta + 1),
        where the longest sample shares its engine with as many others as this pace implies. At least
        bubble_free_ms."""
        step = self.bubble_free_ms
        for _ in range(200):
            tokens = self.groups * self.group_size * self.mean_length / self.engines / step  # per engine and ms
            running = min(self.slots, tokens * self.base_ms / max(1e-9, 1 - tokens * self.per_sequence_ms))
            longest = self.cap * self.median * self.token_ms(running)
            step = (step + max(self.bubble_free_ms, (longest + self.training_ms) / (eta + 1))) / 2
        return step

    def colocated(self):
        """Synchronous training on the same machines: all engines generate, then all train."""
        devices = self.engines + self.trainers
        return dataclasses.replace(self, engines=devices, trainers=devices)


class Engine:
    """Sequences that share an engine. `clock` is the number of tokens that each running sequence has received."""

    def __init__(self, workload):
        self.workload, self.running, self.clock, self.time, self.version, self.turn = workload, [], 0.0, 0.0, 0, 0
        self.waiting = collections.deque()  # sequences without a slot

    def advance(self, now):
        if self.running:
            self.clock += (now - self.time) / self.workload.token_ms(len(self.running))
        self.time = now

    def next_finish(self):
        return self.time + max(0.0, self.running[0][0] - self.clock) * self.workload.token_ms(len(self.running))


class Simulation:
    """Event simulation of the rules of datastore/staleness_policy.h, for the policies `wait` and `drop`. When leases
    become available, engines lease in turn, each at most its share of a step, or as many as fit if `greedy`. An engine
    takes a group when one of its sequences finds a slot, or if `whole` when all of them do."""

    def __init__(self, workload, eta, disposition, steps, greedy=False, whole=False):
        self.w, self.eta, self.disposition, self.steps = workload, eta, disposition, steps
        self.share = workload.groups if greedy else -(-workload.groups // workload.engines)
        self.wanted_slots = workload.group_size if whole else 1
        self.engines = [Engine(workload) for _ in range(workload.engines)]
        self.events, self.count = [], 0
        self.version = self.outstanding = self.leased = self.dropped = 0
        self.open, self.ready, self.left, self.holder = {}, {}, {}, {}  # by ordinal; the first two hold the min version
        self.training = False
        self.commits, self.trained = [], []

    def run(self):
        """Runs and returns self, with `commits` (times) and `trained` (ordinals) by step."""
        self.lease_all(0.0)
        while self.version < self.steps:
            now, _, kind, what = heapq.heappop(self.events)
            if kind == "finish":
                self.finish(now, *what)
            else:
                self.commit(now, what)
        return self

    def push(self, time, kind, what):
        self.count += 1
        heapq.heappush(self.events, (time, self.count, kind, what))

    def schedule(self, engine):
        engine.turn += 1
        if engine.running:
            self.push(engine.next_finish(), "finish", (engine, engine.turn))

    def admits(self, engine):
        w = self.w
        if engine.waiting or len(engine.running) + self.wanted_slots > w.slots:
            return False
        if self.version * w.groups + self.outstanding >= self.steps * w.groups:
            return False
        return self.outstanding < (self.eta + 1 - (self.version - engine.version)) * w.groups

    def fill(self, engine):
        while engine.waiting and len(engine.running) < self.w.slots:
            length, ordinal = engine.waiting.popleft()
            heapq.heappush(engine.running, (engine.clock + length, ordinal))

    def lease(self, now, engine, most):
        """Leases up to `most` groups. Returns the number."""
        engine.advance(now)
        before = self.leased
        while self.leased - before < most and self.admits(engine):
            ordinal, self.leased, self.outstanding = self.leased, self.leased + 1, self.outstanding + 1
            self.open[ordinal], self.holder[ordinal] = engine.version, engine
            self.left[ordinal] = self.w.group_size
            engine.waiting.extend((length, ordinal) for length in self.w.group_lengths(ordinal))
            self.fill(engine)
        if self.leased > before:
            self.schedule(engine)
        return self.leased - before

    def lease_all(self, now):
        while sum(self.lease(now, engine, self.share) for engine in self.engines) > 0:
            pass

    def finish(self, now, engine, turn):
        if turn != engine.turn:
            return
        engine.advance(now)
        while engine.running and engine.running[0][0] <= engine.clock + 1e-6:
            _, ordinal = heapq.heappop(engine.running)
            self.left[ordinal] -= 1
            if self.left[ordinal] == 0:
                self.ready[ordinal] = self.open.pop(ordinal)
        self.fill(engine)
        self.schedule(engine)
        while self.lease(now, engine, self.share) > 0:
            pass
        self.train(now)

    def batch(self):
        """The groups of the next step, or None. Mirrors DecideConsumption."""
        horizon = self.version - self.eta
        oldest = sorted((minimum, ordinal) for ordinal, minimum in self.ready.items() if minimum >= horizon)
        if len(oldest) < self.w.groups:
            return None
        if self.disposition == "wait":
            rest = sorted([minimum for minimum, _ in oldest[self.w.groups:]] + list(self.open.values()))
            for place, minimum in enumerate(rest):
                k = max(0, minimum - horizon)
                if k <= self.eta and place >= k * self.w.groups:
                    return None
        return [ordinal for _, ordinal in oldest[:self.w.groups]]

    def train(self, now):
        batch = None if self.training else self.batch()
        if batch is None:
            return
        for ordinal in batch:
            del self.ready[ordinal]
        self.training = True
        self.push(now + self.w.training_ms, "commit", batch)

    def commit(self, now, batch):
        self.training = False
        self.version += 1
        self.outstanding -= len(batch)
        self.commits.append(now)
        self.trained.append(batch)
        if self.disposition == "drop":
            self.drop_hopeless(now)
        for engine in self.engines:
            engine.version = self.version
        self.lease_all(now)
        self.train(now)

    def drop_hopeless(self, now):
        for groups in (self.ready, self.open):
            for ordinal in [o for o, minimum in groups.items() if self.version - minimum > self.eta]:
                del groups[ordinal]
                self.dropped += 1
                self.outstanding -= 1
                engine = self.holder[ordinal]
                engine.advance(now)
                engine.running = [entry for entry in engine.running if entry[1] != ordinal]
                heapq.heapify(engine.running)
                engine.waiting = collections.deque(entry for entry in engine.waiting if entry[1] != ordinal)
                self.fill(engine)
                self.schedule(engine)


def step_ms(commits, first, last):
    """Mean time of the steps after `first` up to `last`; commits[0] is the commit time of step 1."""
    return (commits[last - 1] - commits[first - 1]) / (last - first)


def window(eta, steps):
    """(first, last, total) steps of a run that measures about `steps` of them. Excludes the start, where the pipeline
    fills, and the end, where leasing stops. In between, steps come in bursts of eta + 1."""
    first = 2 + 4 * eta
    last = first + max(1, round(steps / (eta + 1))) * (eta + 1)
    return first, last, last + eta + 1


def main():
    print("share of the ceiling that the rules reach, nothing dropped")
    print("| slots | eta | greedy, whole groups | greedy | in shares, whole groups | in shares |\n|---|---|---|---|---|---|")
    plain = Workload()
    for slots in (32, 64, 128):
        # The bounds do not depend on the number of slots.
        workload = dataclasses.replace(plain, slots=slots)
        workload.__dict__["training_ms"] = plain.training_ms
        for eta in (0, 1, 2, 4, 8):
            first, last, steps = window(eta, 60)
            shares = []
            for greedy, whole in ((True, True), (True, False), (False, True), (False, False)):
                run = Simulation(workload, eta, "wait", steps, greedy, whole).run()
                shares.append(plain.ceiling_ms(eta) / step_ms(run.commits, first, last))
            print(f"| {slots} | {eta} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")


if __name__ == "__main__":
    main()
