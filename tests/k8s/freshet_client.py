"""Runs the freshet command on a release, through a port-forward, with the chart's certificate and tokens."""
import json
import os

from kube import Failure, PortForward, run, wait_for

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
NO_CONNECTION = 7


class FreshetClient:
    """Retries commands while the connection is down, because pods behind the port-forward come and go."""

    def __init__(self, binary, kubectl, fullname, folder, user="admin"):
        self.binary, self.kubectl, self.fullname, self.folder, self.user = binary, kubectl, fullname, folder, user
        self.forward = PortForward(kubectl, f"service/{fullname}-controller", 7070)
        # The controller's certificate is valid for localhost.
        self.server = f"localhost:{self.forward.port}"
        certificate = kubectl.secret(f"{fullname}-tls-user")
        self.files = {}  # files of the shared user certificate, by key of the secret
        for key in ("ca.crt", "tls.crt", "tls.key") if certificate is not None else ():
            if key not in certificate:
                raise Failure(f"secret {fullname}-tls-user has no {key}")
            self.files[key] = self._write(folder, key, certificate[key])
        self.tokens = {}  # token file by user; None: no token
        # Ignore contexts and variables of the person who runs the test.
        self.environment = {"FRESHET_SERVER": "", "XDG_CONFIG_HOME": folder, "HOME": folder}

    def token_file(self, user):
        if user not in self.tokens:
            name = f"{self.fullname}-user-{user}"
            secret = self.kubectl.secret(name)
            if secret is not None and "token" not in secret:
                raise Failure(f"secret {name} has no key token")
            self.tokens[user] = None if secret is None else self._write(self.folder, f"token-{user}", secret["token"])
        return self.tokens[user]

    def flags(self, user):
        flags = ["--server", self.server]
        for key, flag in (("ca.crt", "--ca"), ("tls.crt", "--cert"), ("tls.key", "--key")):
            flags += [flag, self.files[key]] if self.files else []
        token = self.token_file(user)
        return flags + (["--token-file", token] if token else [])

    @staticmethod
    def _write(folder, name, content):
        path = os.path.join(folder, name)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        return path

    def close(self):
        self.forward.close()

    def call(self, *arguments, timeout=60.0, patience=90.0, check=True, user=None):
        """Runs `freshet ARGUMENTS`. Retries for `patience` seconds while the server is unreachable."""
        def once():
            done = run([self.binary, *arguments, *self.flags(user or self.user)], timeout=timeout, check=False,
                       environment=self.environment)
            if done.returncode == NO_CONNECTION:
                raise Failure(done.stderr.strip() or "no connection")
            return done
        done = wait_for(f"freshet {arguments[0]}", patience, once, every_s=1)
        if check and done.returncode != 0:
            raise Failure(f"freshet {' '.join(arguments[:3])}: exit {done.returncode}: {done.stderr.strip()[-600:]}")
        return done

    def grpc(self, method, message, proto):
        """Calls a method with grpcurl. Returns the answer as protobuf JSON."""
        command = ["grpcurl", "-max-time", "20", "-import-path", os.path.dirname(proto), "-proto", os.path.basename(proto)]
        if self.files:
            command += ["-cacert", self.files["ca.crt"], "-cert", self.files["tls.crt"], "-key", self.files["tls.key"]]
        else:
            command += ["-plaintext"]
        token = self.token_file(self.user)
        if token:
            # grpcurl expands environment variables, which keeps the token out of the process list.
            with open(token, encoding="ascii") as file:
                self.environment["FRESHET_TEST_TOKEN"] = file.read().strip()
            command += ["-expand-headers", "-H", "authorization: Bearer ${FRESHET_TEST_TOKEN}"]
        command += ["-d", json.dumps(message), self.server, method]
        return json.loads(run(command, timeout=30, environment=self.environment).stdout)

    def submit(self, path, job, overrides):
        flags = [flag for override in overrides for flag in ("--set", override)]
        self.call("submit", path, "--id", job, *flags)

    def job(self, job):
        return json.loads(self.call("get", job, "-o", "json").stdout)

    def cluster(self):
        return json.loads(self.call("top", "--json").stdout)

    def workers(self, role, state="ready"):
        return [worker for worker in self.cluster()["workers"] if worker["role"] == role and worker["state"] == state]

    def await_step(self, job, step, deadline_s):
        """Waits until the job has finished `step`. Raises JobEnded if it fails or is cancelled."""
        def look():
            now = self.job(job)
            if now["state"] in ("FAILED", "CANCELLED"):
                raise JobEnded(f"job {job} is {now['state']}: {now['reason']}")
            return now if now["step"] >= step or now["state"] == "SUCCEEDED" else None
        return wait_for(f"job {job} at step {step}", deadline_s, look, every_s=1)

    def await_end(self, job, deadline_s):
        return wait_for(f"the end of job {job}", deadline_s,
                        lambda: (lambda now: now if now["state"] in ENDED else None)(self.job(job)), every_s=1)

    def verify(self, job):
        """Returns the output of `freshet ledger verify`. Raises Failure on a violation."""
        done = self.call("ledger", "verify", job, timeout=300, check=False)
        if done.returncode != 0:
            raise Failure(f"ledger verify {job}: exit {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}")
        return done.stdout


class JobEnded(Exception):
    """The job ended while a step was awaited, so further waiting is pointless."""
