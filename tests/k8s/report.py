"""The test's lines, and what is kept of a failure."""
import os
import time

from freshet_client import JobEnded
from kube import Failure


def say(text):
    print(text, flush=True)


class Report:
    """Checks, one line each as they end."""

    def __init__(self):
        self.rows = []

    def add(self, name, ok, seconds, text=""):
        self.rows.append({"check": name, "ok": ok, "seconds": round(seconds, 1), "text": text})
        say(f"{'ok    ' if ok else 'FAILED'} {name} ({seconds:.1f} s){': ' + text if text else ''}")

    def check(self, name, work):
        """Runs `work`; what it returns is shown. Returns whether it held."""
        begin = time.monotonic()
        try:
            text = work()
            self.add(name, True, time.monotonic() - begin, text or "")
            return True
        except (Failure, JobEnded) as failure:
            self.add(name, False, time.monotonic() - begin, str(failure))
            return False
        except (LookupError, ValueError) as error:  # an answer that has another form
            self.add(name, False, time.monotonic() - begin, f"{type(error).__name__}: {error}")
            return False

    def counts(self):
        failed = sum(not row["ok"] for row in self.rows)
        return len(self.rows) - failed, failed


def gather_evidence(kubectl, client, folder):
    """What a person wants to see of a failure."""
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
        for job in ("first", "chaos", "upgrade"):
            try:
                with open(os.path.join(folder, f"job-{job}.txt"), "w", encoding="utf-8") as file:
                    file.write(client.call("describe", job, patience=5, check=False).stdout)
            except Failure as failure:
                say(f"evidence of job {job}: {failure}")
