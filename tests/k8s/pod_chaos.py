"""Deletes random pods of a release while a job runs."""
import random
import threading
import time

from kube import Failure

ROLES = ("controller", "rollout", "reward", "env", "trainer", "redis")


def plan(seed, roles, seconds, every_s):
    """Returns the deletions as a list of (second, role, grace, draw).

    Roles are drawn from a shuffled deck that is refilled when empty, so each role gets its turn. `grace` is "drain"
    (the pod's own grace period) or "kill" (none). `draw` in [0, 1) selects among the pods that exist at that time.
    """
    source = random.Random(seed)
    deletions, deck = [], []
    second = every_s
    while second <= seconds:
        if not deck:
            deck = list(roles)
            source.shuffle(deck)
        deletions.append((second, deck.pop(), source.choice(["drain", "kill"]), source.random()))
        second += every_s
    return deletions


class PodChaos:
    """Executes the plan in its own thread."""

    def __init__(self, kubectl, release, deletions, say):
        self.deleted = []  # (second, role, grace, pod)
        self.missed = []   # (second, role, reason) of skipped deletions
        self._kubectl, self._release, self._deletions, self._say = kubectl, release, deletions, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        begin = time.monotonic()
        for second, role, grace, draw in self._deletions:
            if self._stop.wait(max(0.0, begin + second - time.monotonic())):
                return
            try:
                self._delete(second, role, grace, draw)
            except Failure as failure:
                self.missed.append((second, role, str(failure)))

    def _delete(self, second, role, grace, draw):
        selector = f"app.kubernetes.io/instance={self._release},app.kubernetes.io/component={role}"
        pods = sorted(pod["metadata"]["name"] for pod in self._kubectl.items("pods", selector)
                      if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Running")
        if not pods:
            self.missed.append((second, role, "no pod of the role runs"))
            return
        pod = pods[int(draw * len(pods))]
        flags = ["--grace-period=1"] if grace == "kill" else []
        self._say(f"  {second:4.0f} s: deleting {pod} ({grace})")
        self._kubectl.run("delete", "pod", pod, "--wait=false", *flags)
        self.deleted.append((second, role, grace, pod))

    def join(self):
        self._thread.join()

    def stop(self):
        self._stop.set()
        self._thread.join(timeout=90)
