"""The faults of a run: drawn from a seed, and injected."""
import os
import random
import signal
import time

from cluster import CONTROLLERS, ROLLOUTS, WORKERS
from peek import PUT, Peek
from services import SERVICES

# Probability weights of the fault kinds, by role.
PROCESS = {"kill": 4, "stop": 3}
REDIS = {"cut": 1, "hold": 1, "lose": 1}  # connections to Redis
CALLS = {"cut_calls": 1, "hold_calls": 1, "lose_calls": 1}  # connections of others to the process
RANKS = {"kill_rank": 2, "hang_rank": 1}  # ranks 1 .. of the trainer
HANG_S = 6  # at least; the trainer replaces a rank that is silent for 5 s
EVERYTHING = "everything"  # like a power failure
JOB = "chaos"


def kinds_of(role):
    if role == EVERYTHING:
        return {"kill": 1}
    if role == "redis":
        return PROCESS
    kinds = dict(PROCESS)
    if role != "reward":  # reward workers are not called
        kinds.update(CALLS)
    if role in CONTROLLERS + WORKERS:
        kinds.update(REDIS)
    if role not in CONTROLLERS + SERVICES:
        kinds["zombie"] = 1
    if role in ROLLOUTS:
        kinds["late"] = 1
    return kinds


def draw(seed, members, stretch=1.0, begin=0.03, first=0.2, end=0.8, ranks=1):
    """Returns the faults of a seed (a number or text) in order: [(seconds after submit, kind, role, duration)].
    The first one occurs while the job is certainly running. With several ranks, most are on ranks; with services, half
    are on services."""
    dice = random.Random(seed)
    services = [role for role in members if role in SERVICES]
    roles = sorted([*members, EVERYTHING] + 2 * services)
    faults = []
    for number in range(dice.randint(2, 5) if ranks == 1 else dice.randint(0, 3)):
        role = dice.choice(roles)
        kinds = kinds_of(role)
        kind = dice.choices(list(kinds), weights=kinds.values())[0]
        at = dice.uniform(begin, end if number else first)
        faults.append((round(stretch * at, 3), kind, role, round(stretch * dice.uniform(0.05, 0.5), 3)))
    return sorted(faults + (draw_on_ranks(dice, ranks, stretch, begin, end) if ranks > 1 else []))


def draw_on_ranks(dice, ranks, stretch, begin, end):
    """Every second fault follows a kill closely, so a step may lose ranks twice."""
    faults, kind = [], ""
    for number in range(dice.randint(2, 5)):
        at = at + dice.uniform(0, 0.2) if number % 2 and kind == "kill_rank" else dice.uniform(begin, end)
        kind = dice.choices(list(RANKS), weights=RANKS.values())[0]
        role = f"rank-{dice.randrange(1, ranks)}"
        faults.append((round(stretch * at, 3), kind, role, round(stretch * dice.uniform(0.05, 0.5), 3)))
    return faults


def only_on_ranks(faults):
    return all(kind in RANKS for _, kind, _, _ in faults)


def signal_rank(pid, number):
    """Returns False if the process has ended."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


class Storm:
    """Injects the faults of a schedule and heals them."""

    def __init__(self, cluster, faults, done):
        self.cluster, self.faults, self.done = cluster, faults, done
        self.healing = []  # [(time, action)]
        self.hurt = []  # per attempted fault: a function that returns whether it had an effect
        self.killed_ranks = []  # when, in ns of the monotonic clock

    @property
    def inflicted(self):
        return sum(bool(hurt()) for hurt in self.hurt)

    def run(self):
        """Runs until all faults are healed. Skips faults that are still pending when the job is done."""
        begin = time.monotonic()
        for at, kind, role, length in self.faults:
            while time.monotonic() < begin + at:
                if self.done.wait(0.005):
                    break
                self._heal()
            if self.done.is_set():
                break
            hurt = self._inflict(kind, role, length)
            self.hurt.append(hurt if callable(hurt) else lambda hurt=hurt: hurt)
        while self.healing:
            time.sleep(0.005)
            self._heal()

    def _inflict(self, kind, role, length):
        """Injects a fault. Returns whether it had an effect, or a function that tells later."""
        cluster, later = self.cluster, time.monotonic() + length
        if kind == "kill":
            members = cluster.members if role == EVERYTHING else (role,)
            alive = [cluster.signal(member, signal.SIGKILL) for member in members]
            for member in members:
                cluster.kill(member)
                self.healing.append((later, lambda member=member: self._restart(member)))
            return any(alive)
        if kind == "stop":
            process = cluster.processes[role]
            self.healing.append((later, lambda: self._continue(process)))
            return cluster.signal(role, signal.SIGSTOP)
        if kind == "zombie":
            process = cluster.replace(role)
            self.healing.append((later, lambda: self._continue(process)))
            return process.poll() is None
        if kind == "late":
            return self._deliver_late(role, length)
        if kind in RANKS:
            return self._hurt_rank(kind, role, length)
        proxy = cluster.links[role] if kind.endswith("_calls") else cluster.proxies[role]
        if kind.startswith("cut"):
            return proxy.cut() > 0
        held, lost = proxy.held, proxy.lost
        if kind.startswith("lose"):
            proxy.lose(min(10, max(1, int(length * 10))))
        else:
            proxy.hold(length)
        return lambda: (proxy.held, proxy.lost) != (held, lost)

    def _deliver_late(self, role, length):
        """Replaces a rollout while its put is held back. The put arrives after another rollout's samples, or late.
        Returns False if there was no put."""
        proxy = self.cluster.proxies[role]
        request = proxy.catch(PUT, 1.0)
        if request is None:
            return False
        process = self.cluster.replace(role)
        try:
            Peek(self.cluster.redis_port, JOB).await_rival(request, length)
        except OSError:
            pass  # Redis is down, so the put is late anyway
        proxy.release()
        self.healing.append((time.monotonic() + 0.1, lambda: self._continue(process)))
        return True

    def _hurt_rank(self, kind, role, length):
        """Kills or stops a rank, if possible while it computes or exchanges gradients. Returns False if there is
        none."""
        pid = self.cluster.await_busy_rank(int(role.removeprefix("rank-")), 1.0)
        if pid is None:
            return False
        time.sleep(length / 200)
        if not signal_rank(pid, signal.SIGKILL if kind == "kill_rank" else signal.SIGSTOP):
            return False
        if kind == "kill_rank":
            self.killed_ranks.append(time.monotonic_ns())
        else:
            self.healing.append((time.monotonic() + HANG_S + length, lambda: signal_rank(pid, signal.SIGCONT)))
        return True

    def _restart(self, role):
        if self.cluster.processes[role].poll() is not None:
            self.cluster.start(role)

    @staticmethod
    def _continue(process):
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)

    def _heal(self):
        now = time.monotonic()
        for at, act in self.healing:
            if at <= now:
                act()
        self.healing = [(at, act) for at, act in self.healing if at > now]
