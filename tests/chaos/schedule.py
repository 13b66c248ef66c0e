"""What goes wrong in a run: drawn from a seed, and carried out."""
import random
import signal
import time

from cluster import CONTROLLERS, ROLLOUTS, WORKERS
from peek import PUT, Peek

# Weights of the kinds of fault, by role.
PROCESS = {"kill": 4, "stop": 3}
REDIS = {"cut": 1, "hold": 1, "lose": 1}  # connections to Redis
CALLS = {"cut_calls": 1, "hold_calls": 1, "lose_calls": 1}  # connections that others have to it
EVERYTHING = "everything"  # as when the power goes
JOB = "chaos"


def kinds_of(role):
    if role == EVERYTHING:
        return {"kill": 1}
    if role == "redis":
        return PROCESS
    kinds = dict(PROCESS)
    if role != "reward":  # which nobody calls
        kinds.update(CALLS)
    if role in CONTROLLERS + WORKERS:
        kinds.update(REDIS)
    if role not in CONTROLLERS:
        kinds["zombie"] = 1
    if role in ROLLOUTS:
        kinds["late"] = 1
    return kinds


def draw(seed, members, stretch=1.0, begin=0.03, first=0.2, end=0.8):
    """The faults of a seed (a number or text), [(seconds after submit, kind, role, seconds that it lasts)], in order.
    The first one comes while the job certainly runs."""
    dice = random.Random(seed)
    roles = sorted([*members, EVERYTHING])
    faults = []
    for number in range(dice.randint(2, 5)):
        role = dice.choice(roles)
        kinds = kinds_of(role)
        kind = dice.choices(list(kinds), weights=kinds.values())[0]
        at = dice.uniform(begin, end if number else first)
        faults.append((round(stretch * at, 3), kind, role, round(stretch * dice.uniform(0.05, 0.5), 3)))
    return sorted(faults)


class Storm:
    """Carries out a schedule and heals what it hurt."""

    def __init__(self, cluster, faults, done):
        self.cluster, self.faults, self.done = cluster, faults, done
        self.healing = []  # [(when, what to do)]
        self.hurt = []  # of every fault tried: whether it hurt anything, as a function

    @property
    def inflicted(self):
        return sum(bool(hurt()) for hurt in self.hurt)

    def run(self):
        """Returns when everything is healed. What is not yet inflicted when the job is done is left out."""
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
        """Whether it hurt anything, or a function that tells it later."""
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
        proxy = cluster.links[role] if kind.endswith("_calls") else cluster.proxies[role]
        if kind.startswith("cut"):
            return proxy.cut() > 0
        held, lost = proxy.held, proxy.lost
        if kind.startswith("lose"):
            proxy.lose(max(1, int(length * 10)))
        else:
            proxy.hold(length)
        return lambda: (proxy.held, proxy.lost) != (held, lost)

    def _deliver_late(self, role, length):
        """Replaces a rollout whose samples are on their way. They arrive when those of another are there, or late.
        False when it put none."""
        proxy = self.cluster.proxies[role]
        request = proxy.catch(PUT, 1.0)
        if request is None:
            return False
        process = self.cluster.replace(role)
        try:
            Peek(self.cluster.redis_port, JOB).await_rival(request, length)
        except OSError:
            pass  # Redis is down: then it is late enough
        proxy.release()
        self.healing.append((time.monotonic() + 0.1, lambda: self._continue(process)))
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
