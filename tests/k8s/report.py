"""The output of the test, and the evidence of failures."""
import os
import time

from freshet_client import JobEnded
from kube import Failure


def say(text):
    print(text, flush=True)


class Report:
    """Prints one line per finished check."""

    def __init__(self):
        self.rows = []

    def add(self, name, ok, seconds, text=""):
        self.rows.append({"check": name, "ok": ok, "seconds": round(seconds, 1), "text": text})
        say(f"{'ok    ' if ok else 'FAILED'} {name} ({seconds:.1f} s){': ' + text if text else ''}")

    def check(self, name, work):
        """Runs `work` and shows its result. Returns whether it succeeded."""
        begin = time.monotonic()
        try:
            text = work()
            self.add(name, True, time.monotonic() - begin, text or "")
            return True
        except (Failure, JobEnded) as failure:
            self.add(name, False, time.monotonic() - begin, str(failure))
            return False
        except (LookupError, ValueError) as error:  # an answer of an unexpected form
            self.add(name, False, time.monotonic() - begin, f"{type(error).__name__}: {error}")
            return False

    def counts(self):
        failed = sum(not row["ok"] for row in self.rows)
        return len(self.rows) - failed, failed


def gather_evidence(kubectl, client, folder):
    """Saves logs and states for the analysis of a failure."""
    os.makedirs(folder, exist_ok=True)

    def keep(name, *arguments):
        try:
            done = kubectl.run(*arguments, check=False, timeout=60)
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(done.stdout + done.stderr)
        except Failure as failure:
            say(f"evidence {name}: {failure}")
    keep("objects.txt", "get", "all,pvc,secrets,configmaps,networkpolicies", "-o", "wide")
    keep("events.txt", "get", "events", "--sort-by=.lastTimestamp")
    keep("describe.txt", "describe", "pods")
    try:
        names = [pod["metadata"]["name"] for pod in kubectl.items("pods")]
    except Failure:
        names = []
    for name in names:
        keep(f"{name}.log", "logs", name, "--all-containers", "--timestamps")
        keep(f"{name}.previous.log", "logs", name, "--all-containers", "--timestamps", "--previous")
    if client is not None:
        for job in ("first", "chaos", "upgrade", "ranks"):
            try:
                with open(os.path.join(folder, f"job-{job}.txt"), "w", encoding="utf-8") as file:
                    file.write(client.call("describe", job, patience=5, check=False).stdout)
            except Failure as failure:
                say(f"evidence of job {job}: {failure}")
