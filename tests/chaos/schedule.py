"""What goes wrong in a run: drawn from a seed, and carried out."""
import random
import signal
import time

from cluster import CONTROLLERS, ROLLOUTS, WORKERS
from peek import PUT, Peek

# Weights of the kinds of fault, by role.
PROCESS = {"kill": 3, "stop": 2}
CONNECTION = {"cut": 1, "hold": 1, "lose": 1}
KINDS = {
    "redis": PROCESS,
    **{name: {**PROCESS, **CONNECTION} for name in CONTROLLERS},
    **{name: {**PROCESS, **CONNECTION, "zombie": 1} for name in WORKERS},
}
for _rollout in ROLLOUTS:
    KINDS[_rollout]["late"] = 1
EVERYTHING = "everything"  # as when the power goes
KINDS[EVERYTHING] = {"kill": 1}
JOB = "chaos"


def draw(seed, stretch=1.0, begin=0.05, end=0.9):
    """The faults of a seed, [(seconds after submit, kind, role, seconds that it lasts)], in order."""
    dice = random.Random(seed)
    faults = []
    for _ in range(dice.randint(2, 5)):
        role = dice.choice(sorted(KINDS))
        kinds = KINDS[role]
        kind = dice.choices(list(kinds), weights=kinds.values())[0]
        faults.append((round(stretch * dice.uniform(begin, end), 3), kind, role, round(stretch * dice.uniform(0.05, 0.5), 3)))
    return sorted(faults)


class Storm:
    """Carries out a schedule and heals what it hurt."""

    def __init__(self, cluster, faults, done):
        self.cluster, self.faults, self.done = cluster, faults, done
        self.healing = []  # [(when, what to do)]
        self.inflicted = 0

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
            self._inflict(kind, role, length)
            self.inflicted += 1
        while self.healing:
            time.sleep(0.005)
            self._heal()

    def _inflict(self, kind, role, length):
        cluster, later = self.cluster, time.monotonic() + length
        if kind == "kill":
            members = ("redis", *CONTROLLERS, *WORKERS) if role == EVERYTHING else (role,)
            for member in members:
                cluster.signal(member, signal.SIGKILL)
            for member in members:
                cluster.kill(member)
                self.healing.append((later, lambda member=member: self._restart(member)))
        elif kind == "stop":
            process = cluster.processes[role]
            cluster.signal(role, signal.SIGSTOP)
            self.healing.append((later, lambda: self._continue(process)))
        elif kind == "zombie":
            process = cluster.replace(role)
            self.healing.append((later, lambda: self._continue(process)))
        elif kind == "late":
            self._deliver_late(role, length)
        elif kind == "cut":
            cluster.proxies[role].cut()
        elif kind == "lose":
            cluster.proxies[role].lose(max(1, int(length * 10)))
        else:
            cluster.proxies[role].hold(length)

    def _deliver_late(self, role, length):
        """Replaces a rollout whose samples are on their way. They arrive when those of another are there, or late."""
        proxy = self.cluster.proxies[role]
        request = proxy.catch(PUT, 1.0)
        if request is None:
            return
        process = self.cluster.replace(role)
        try:
            Peek(self.cluster.redis_port, JOB).await_rival(request, length)
        except OSError:
            pass  # Redis is down: then it is late enough
        proxy.release()
        self.healing.append((time.monotonic() + 0.1, lambda: self._continue(process)))

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
