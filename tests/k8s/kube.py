"""Wrappers of kubectl, helm and port-forwards, with deadlines and one-line errors."""
import json
import os
import socket
import subprocess
import threading
import time


class Failure(Exception):
    """A failed check or command, with a human-readable message."""


def run(command, *, timeout, check=True, input_text=None, environment=None):
    """Runs a command. Returns the finished process. With `check`, raises Failure if it failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, input=input_text,
                              timeout=timeout, env={**os.environ, **(environment or {})})
    except FileNotFoundError:
        raise Failure(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command[:6])} took longer than {timeout:.0f} s") from None
    if check and done.returncode != 0:
        text = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failure(f"{' '.join(command[:8])}: exit {done.returncode}: {' | '.join(text[-4:])}")
    return done


def wait_for(what, deadline_s, look, *, every_s=0.5):
    """Calls `look` until it returns a true value, and returns that. Retries when `look` raises Failure."""
    end = time.monotonic() + deadline_s
    last = ""
    while True:
        try:
            found = look()
            if found:
                return found
        except Failure as failure:
            last = str(failure)
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {deadline_s:.0f} s" + (f"; last: {last}" if last else ""))
        time.sleep(every_s)


class Kubectl:
    """One namespace of one cluster."""

    def __init__(self, binary, kubeconfig, context, namespace):
        self.namespace = namespace
        self.environment = {"KUBECONFIG": kubeconfig} if kubeconfig else {}
        self.base = [binary] + (["--context", context] if context else [])

    def run(self, *arguments, timeout=60.0, check=True, input_text=None):
        return run([*self.base, "-n", self.namespace, *arguments], timeout=timeout, check=check, input_text=input_text,
                   environment=self.environment)

    def json(self, *arguments, timeout=60.0):
        return json.loads(self.run(*arguments, "-o", "json", timeout=timeout).stdout)

    def items(self, kind, selector=""):
        return self.json("get", kind, *(["-l", selector] if selector else []))["items"]

    def secret(self, name):
        """Returns the secret's data as {key: bytes}, or None if there is no such secret."""
        done = self.run("get", "secret", name, "-o", "json", check=False)
        if done.returncode != 0:
            if "NotFound" in done.stderr:
                return None
            raise Failure(f"secret {name}: {done.stderr.strip()}")
        import base64
        return {key: base64.b64decode(value) for key, value in json.loads(done.stdout).get("data", {}).items()}

    def inventory(self):
        """Returns KIND/NAME of all objects in the namespace except events and objects maintained by the cluster."""
        kinds = self.run("api-resources", "--namespaced", "--verbs=list", "-o", "name").stdout.split()
        skipped = {"events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io",
                   "controllerrevisions.apps", "leases.coordination.k8s.io"}
        # Metrics APIs store no objects.
        kinds = [kind for kind in kinds if kind not in skipped and not kind.endswith("metrics.k8s.io")]
        listed = self.run("get", ",".join(kinds), "-o", "name", "--ignore-not-found", timeout=120).stdout.split()
        return set(listed)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PortForward:
    """Forwards localhost:port to a service for the lifetime of this object, reconnecting when pods change."""

    def __init__(self, kubectl, target, remote_port):
        self.port = free_port()
        self._command = [*kubectl.base, "-n", kubectl.namespace, "port-forward", "--address", "127.0.0.1", target,
                         f"{self.port}:{remote_port}"]
        self._environment = {**os.environ, **kubectl.environment}
        self._closed = threading.Event()
        self._process = None
        self._lock = threading.Lock()
        self.starts = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._closed.is_set():
            with self._lock:
                if self._closed.is_set():
                    return
                self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                 text=True, env=self._environment)
            self.starts += 1
            for line in self._process.stdout:
                # The pod is gone, but kubectl would keep listening.
                if "lost connection" in line or "error forwarding" in line or "unable to do" in line:
                    self._process.terminate()
            self._process.wait()
            self._closed.wait(0.3)

    def await_listening(self, deadline_s):
        def look():
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            except OSError:
                return False
        wait_for(f"port-forward to port {self.port}", deadline_s, look, every_s=0.2)

    def close(self):
        with self._lock:
            self._closed.set()
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
        self._thread.join(timeout=10)


class DrainWatch:
    """Follows the log of a container and measures how long it ran after SIGTERM."""

    def __init__(self, kubectl, pod, container):
        self.pod = pod
        self.seconds = None  # from the line event=drain to the end of the log; None: not drained
        command = [*kubectl.base, "-n", kubectl.namespace, "logs", "-f", "--tail=1", pod, "-c", container]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                         env={**os.environ, **kubectl.environment})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        told = None
        for line in self._process.stdout:
            if told is None and "event=drain" in line.split():
                told = time.monotonic()
        if told is not None:
            self.seconds = time.monotonic() - told
        self._process.wait()

    def close(self):
        """Stops following, after a short wait for the end of the log."""
        self._thread.join(timeout=0 if self._process.poll() is None else 5)
        if self._process.poll() is None:
            self._process.terminate()
        self._thread.join(timeout=5)


class Helm:
    def __init__(self, binary, kubeconfig, context, namespace):
        self.binary = binary
        self.environment = {"KUBECONFIG": kubeconfig} if kubeconfig else {}
        self.scope = ["--namespace", namespace] + (["--kube-context", context] if context else [])

    def run(self, *arguments, timeout=120.0, check=True):
        return run([self.binary, *arguments, *self.scope], timeout=timeout, check=check, environment=self.environment)
