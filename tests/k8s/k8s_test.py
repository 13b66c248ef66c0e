#!/usr/bin/env python3
"""Tests the chart and jobs on a real Kubernetes cluster. `./dev k8s-test` runs this.

    k8s_test.py [--kubeconfig FILE] [--image-loader COMMAND --archives DIR] [--quick] [--only-ranks]

Steps, with the chart's default values:
- helm install, helm test
- examples/arithmetic.yaml must reach its accuracy while kubectl scales the rollouts 1, 4, 2; the same with
  `freshet scale`
- permissions of each user role; the status page
- a second job, while random pods of every role are deleted, one every 20 s for 5 minutes
- a third job, during a helm upgrade with changed settings for every role
- KEDA's scaler with grpcurl
- a helm upgrade with Python rewards and the sandbox, and a job that uses both
- a helm upgrade to `trainer.ranks: 2`, and a last job, whose rank 1 loses its pod and joins again
- `freshet ledger verify` after each job
- helm uninstall, which must leave only the claims that the chart's notes name
Prints one line per check and `N passed, N failed`. Exits with 0 if none failed. The test creates its namespace with Pod
Security "restricted" enforced and removes it at the end.

Cluster: --kubeconfig, else KUBECONFIG, else ~/.kube/config. To get one on this machine, use one of

    kind create cluster                 images:  --image-loader 'kind load image-archive {archive}'
    minikube start                      images:  --image-loader 'minikube image load {archive}'
    k3s server                          images:  --image-loader 'k3s ctr images import {archive}'
                                        config:  --kubeconfig /etc/rancher/k3s/k3s.yaml

The loader runs once per image of the chart, with {image} and {archive} filled in. `./dev image --archive DIR` creates
the archives. Without a loader the cluster must be able to pull the images: push them to a registry and use
--set image.registry=REGISTRY.
"""
import argparse
import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import images  # noqa: E402
import pod_chaos  # noqa: E402
import surface  # noqa: E402
from freshet_client import ENDED, FreshetClient, JobEnded  # noqa: E402
from kube import DrainWatch, Failure, Helm, Kubectl, wait_for  # noqa: E402
from report import Report, gather_evidence, say  # noqa: E402

WANT_CLUSTER = ("no Kubernetes cluster answers{}. Use --kubeconfig FILE or KUBECONFIG; `./dev k8s-test --help` shows "
                "how to get one on this machine")
# Settings that change the pods of every role, so an upgrade with them replaces all pods.
UPGRADE = ["controller.keepHours=48", "rollout.drainTimeoutSeconds=25", "reward.drainTimeoutSeconds=10",
           "env.maxEpisodes=512", "trainer.drainTimeoutSeconds=200", "redis.extraConfig=slowlog-max-len 64",
           # Makes the controller compute wanted replicas for the test of KEDA's scaler; nothing scales by them.
           "controller.extraArgs[0]=--pool-bounds=default=1..4"]
# Containers beside reward workers, and settings of arithmetic.yaml that use them.
# A node of two cores cannot promise a whole one to the sandbox.
OFFERED = ("reward.python.enabled=true", "reward.sandbox.enabled=true", "reward.sandbox.resources.requests.cpu=100m")
REWARDS = ("reward.timeout_ms=30000", "trainer.steps=5", "warmup.sft.steps=10", "eval=null",
           "reward.components={correct: {type: math}, runs: {type: code, text: assert True}}")
# Of arithmetic.yaml with two ranks: long enough for a pod to be replaced.
RANKS = ("trainer.ranks=2", "trainer.steps=200", "warmup.sft.steps=10", "eval=null")


@dataclasses.dataclass(frozen=True)
class Profile:
    job: str                  # example of the first and the last job
    overrides: tuple          # of that job
    accuracy: float           # that the job must reach
    scales: tuple             # successive replicas of the default pool
    chaos_seconds: float
    chaos_every: float
    chaos_overrides: tuple    # make arithmetic.yaml long enough
    upgrade_at: int           # step at which to upgrade
    job_seconds: float        # limit of a job


FULL = Profile(job="arithmetic", overrides=(), accuracy=0.90, scales=(4, 2), chaos_seconds=300, chaos_every=20,
               chaos_overrides=("trainer.steps=100000", "warmup.sft.steps=30", "checkpoint.every_steps=10",
                                "eval.every_steps=1000"), upgrade_at=40, job_seconds=1500)
QUICK = Profile(job="smoke", overrides=("trainer.steps=150",), accuracy=0.5, scales=(2, 1), chaos_seconds=60,
                chaos_every=10, chaos_overrides=("trainer.steps=100000", "warmup.sft.steps=10",
                                                 "checkpoint.every_steps=10", "eval.every_steps=1000"),
                upgrade_at=15, job_seconds=600)


class Scenario:
    def __init__(self, options, profile, folder):
        self.options, self.profile, self.folder = options, profile, folder
        self.release = options.release
        # The prefix of the chart's names.
        self.fullname = options.release if "freshet" in options.release else f"{options.release}-freshet"
        self.kubectl = Kubectl(options.kubectl, options.kubeconfig, options.context, options.namespace)
        self.helm = Helm(options.helm, options.kubeconfig, options.context, options.namespace)
        self.client = None
        self.notes = ""
        self.before = set()
        self.versions = {}
        self.report = Report()

    # Before the installation.

    def look_at_cluster(self):
        done = self.kubectl.run("version", "-o", "json", timeout=20, check=False)
        found = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
        if "serverVersion" not in found:
            where = f" ({done.stderr.strip().splitlines()[-1]})" if done.stderr.strip() else ""
            raise Failure(WANT_CLUSTER.format(where))
        self.versions = {"kubernetes": found["serverVersion"]["gitVersion"],
                         "kubectl": found["clientVersion"]["gitVersion"],
                         "helm": self.helm.run("version", "--short").stdout.strip()}
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def chart_flags(self):
        return [flag for value in self.options.set or [] for flag in ("--set", value)]

    def load_images(self):
        offered = [flag for value in OFFERED for flag in ("--set", value)]
        rendered = self.helm.run("template", self.release, self.options.chart, *self.chart_flags(), *offered).stdout
        named = images.images_of(rendered)
        if not self.options.image_loader:
            return f"{len(named)} images, which the cluster must have or pull"
        loaded = images.load_images(named, self.options.archives, self.options.image_loader, say)
        return f"{len(loaded)} of {len(named)} images loaded"

    def make_namespace(self):
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
        manifest = {"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": self.options.namespace, "labels": labels}}
        self.kubectl.run("create", "-f", "-", input_text=json.dumps(manifest))
        # The cluster creates these objects in a new namespace asynchronously.
        wait_for("the namespace's service account", 60,
                 lambda: self.kubectl.run("get", "serviceaccount", "default", check=False).returncode == 0)
        wait_for("the namespace's root certificate", 60,
                 lambda: self.kubectl.run("get", "configmap", "kube-root-ca.crt", check=False).returncode == 0)
        self.before = self.kubectl.inventory()

    # The parts of the test.

    def install(self):
        self.helm.run("install", self.release, self.options.chart, *self.chart_flags(), "--wait", "--timeout", "10m",
                      timeout=660)
        self.notes = self.helm.run("get", "notes", self.release).stdout
        self.client = FreshetClient(self.options.freshet, self.kubectl, self.fullname, self.folder)
        self.client.forward.await_listening(60)
        wait_for("a worker of every role", 60, lambda: all(
            self.client.workers(role) for role in ("rollout", "reward", "env", "trainer")))
        return f"{len(self.client.cluster()['workers'])} workers registered"

    def helm_test(self):
        begin = time.monotonic()
        self.helm.run("test", self.release, "--timeout", "5m", timeout=330)
        seconds = time.monotonic() - begin
        if seconds > self.options.helm_test_bound:
            raise Failure(f"passed, but took {seconds:.0f} s; its bound is {self.options.helm_test_bound:.0f} s")

    def start_job(self, job, example, overrides):
        self.client.submit(os.path.join(REPOSITORY, "examples", f"{example}.yaml"), job, overrides)

    def submit_first(self):
        self.start_job("first", self.profile.job, self.profile.overrides)
        return f"at step {self.client.await_step('first', 1, 300)['step']}"

    def scale(self):
        """Scales with kubectl while the job runs, like a user or an autoscaler."""
        pool = f"deployment/{self.fullname}-rollout-default"
        lines, drained = [], []
        for replicas in self.profile.scales:
            selector = f"app.kubernetes.io/instance={self.release},app.kubernetes.io/component=rollout"
            watches = [DrainWatch(self.kubectl, pod["metadata"]["name"], "rollout")
                       for pod in self.kubectl.items("pods", selector)]
            begin = time.monotonic()
            try:
                self.kubectl.run("scale", pool, f"--replicas={replicas}")
                wait_for(f"{replicas} rollouts", 180, lambda: len(self.client.workers("rollout")) == replicas and
                         not self.client.workers("rollout", "draining"))
                lines.append(f"{replicas} after {time.monotonic() - begin:.1f} s")
                wait_for(f"the end of all pods but {replicas}", 90,
                         lambda: len(self.kubectl.items("pods", selector)) == replicas)
            finally:
                for watch in watches:
                    watch.close()
            drained += [watch.seconds for watch in watches if watch.seconds is not None]
        state = self.client.job("first")
        if state["state"] not in ("STARTING", "RUNNING"):
            raise Failure(f"the job was {state['state']} before the scaling was over, so it proves nothing")
        lost = [event["notice"]["text"] for event in state.get("recent_events", [])
                if event.get("notice", {}).get("kind") == "worker_lost"]
        if lost:
            raise Failure(f"workers were lost instead of drained: {'; '.join(lost)}")
        ended = f"; pods ended {min(drained):.1f} to {max(drained):.1f} s after SIGTERM" if drained else ""
        return ", ".join(lines) + f", at step {state['step']}" + ended

    def first_ends(self):
        end = self.client.await_end("first", self.profile.job_seconds)
        if end["state"] != "SUCCEEDED":
            raise Failure(f"job first is {end['state']}: {end['reason']}")
        accuracy = end.get("eval_accuracy")
        if accuracy is None or accuracy < self.profile.accuracy:
            raise Failure(f"accuracy {accuracy} after {end['step']} steps, required is {self.profile.accuracy}")
        return f"accuracy {accuracy:.3f} after {end['step']} steps"

    def scale_by_freshet(self):
        """Scales with `freshet scale`: the controller calls the Kubernetes API."""
        lines = []
        for replicas in (self.profile.scales[-1] + 1, self.profile.scales[-1]):
            begin = time.monotonic()
            self.client.call("scale", "rollout", str(replicas))
            spec = self.kubectl.json("get", f"deployment/{self.fullname}-rollout-default")["spec"]["replicas"]
            if spec != replicas:
                raise Failure(f"the Deployment has {spec} replicas after freshet scale rollout {replicas}")
            wait_for(f"{replicas} rollouts", 180, lambda: len(self.client.workers("rollout")) == replicas)
            lines.append(f"{replicas} after {time.monotonic() - begin:.1f} s")
        return ", ".join(lines)

    def chaos(self):
        self.start_job("chaos", "arithmetic", self.profile.chaos_overrides)
        before = self.client.await_step("chaos", 3, 300)["step"]
        deletions = pod_chaos.plan(self.options.seed, pod_chaos.ROLES, self.profile.chaos_seconds,
                                   self.profile.chaos_every)
        chaos = pod_chaos.PodChaos(self.kubectl, self.release, deletions, say)
        try:
            chaos.join()
        finally:
            chaos.stop()
        hit = {role for _, role, _, _ in chaos.deleted}
        if not hit >= set(pod_chaos.ROLES):
            raise Failure(f"no pod was deleted of: {', '.join(sorted(set(pod_chaos.ROLES) - hit))} ({chaos.missed})")
        self.await_pods_ready(240)
        under = self.client.await_step("chaos", 0, 60)["step"]
        after = self.client.await_step("chaos", under + 5, 240)["step"]
        return (f"seed {self.options.seed}: {len(chaos.deleted)} pods deleted, step {before} before, {under} at the end, "
                f"{after} a little later")

    def chaos_job_ends(self):
        wait_for("the cancellation", 60, lambda: self.client.call("cancel", "chaos"))
        end = self.client.await_end("chaos", 300)
        if end["state"] != "CANCELLED":
            raise Failure(f"job chaos is {end['state']}: {end['reason']}")
        return f"cancelled at step {end['step']}"

    def upgrade(self):
        self.start_job("upgrade", self.profile.job, self.profile.overrides)
        before = self.client.await_step("upgrade", self.profile.upgrade_at, 600)
        if before["state"] == "SUCCEEDED":
            raise Failure("the job ended before the upgrade, so it proves nothing")
        begin = time.monotonic()
        pods = self.pod_ids()
        flags = [flag for value in UPGRADE for flag in ("--set", value)]
        self.helm.run("upgrade", self.release, self.options.chart, "--reset-then-reuse-values", *flags, "--wait", "--timeout",
                      "15m", timeout=930)
        # For a Deployment helm waits only for the minimum of available pods.
        kept = pods
        end = time.monotonic() + 180
        while kept and time.monotonic() < end:
            time.sleep(0.5)
            kept = {name: uid for name, uid in self.pod_ids().items() if pods.get(name) == uid}
        if kept:
            raise Failure(f"pods still run with the old settings: {', '.join(sorted(kept))}")
        seconds = time.monotonic() - begin
        end = self.client.await_end("upgrade", self.profile.job_seconds)
        if end["state"] != "SUCCEEDED":
            raise Failure(f"job upgrade is {end['state']}: {end['reason']}")
        return f"upgraded at step {before['step']} in {seconds:.0f} s; the job succeeded"

    def offer_rewards(self):
        flags = [flag for value in OFFERED for flag in ("--set", value)]
        self.helm.run("upgrade", self.release, self.options.chart, "--reset-then-reuse-values", *flags, "--wait", "--timeout",
                      "10m", timeout=660)

        def look():
            pods = self.kubectl.items("pods", f"app.kubernetes.io/instance={self.release},app.kubernetes.io/component=reward")
            return len(pods) == 1 and len(pods[0]["spec"].get("initContainers", [])) == 2
        wait_for("the reward worker with both containers", 120, look)
        log = self.kubectl.run("logs", f"deployment/{self.fullname}-reward", "-c", "sandbox").stdout
        layers = re.search(r'event=sandbox_isolation layers="([^"]*)"', log)
        if not layers:
            raise Failure(f"the sandbox names no layers: {log[-300:]}")
        return layers.group(1)

    def train_with_rewards(self):
        self.start_job("rewards", "arithmetic", REWARDS)
        end = self.client.await_end("rewards", self.profile.job_seconds)
        if end["state"] != "SUCCEEDED":
            raise Failure(f"job rewards is {end['state']}: {end['reason']}")
        text = self.client.call("samples", "rewards").stdout
        if "correct" not in text or "runs" not in text:
            raise Failure(f"the samples lack a component: {text[:300]}")
        return f"{end['step']} steps"

    def use_ranks(self):
        self.helm.run("upgrade", self.release, self.options.chart, "--reset-then-reuse-values",
                      "--set", "trainer.ranks=2", "--wait", "--timeout", "10m", timeout=660)
        # Rank 1 is not known to the controller.
        wait_for("rank 0 as the only trainer", 60, lambda: [
            worker["name"] for worker in self.client.workers("trainer")] == [f"{self.fullname}-trainer-0"])

    def train_with_ranks(self):
        self.start_job("ranks", "arithmetic", RANKS)
        return self.await_ranks(3, 300)

    def await_ranks(self, step, deadline_s):
        """Waits until `freshet describe` shows that both ranks have begun `step`. Returns those lines."""
        def look():
            text = self.client.call("describe", "ranks").stdout
            steps = {int(rank): int(at) for rank, at in re.findall(r"^rank (\d+) .*\bstep (\d+)", text, re.M)}
            if set(steps) == {0, 1} and min(steps.values()) >= step:
                return "; ".join(re.sub(" +", " ", line) for line in re.findall(r"^rank .*$", text, re.M))
            now = self.client.job("ranks")
            if now["state"] in ENDED:
                raise JobEnded(f"job ranks is {now['state']} without both ranks at step {step}: {now['reason']}")
            return None
        return wait_for(f"both ranks at step {step}", deadline_s, look)

    def lose_rank(self):
        """Kills the pod of rank 1. Rank 0 notices it, and the new pod must train with it."""
        begin = time.monotonic()
        self.kubectl.run("delete", "pod", f"{self.fullname}-trainer-0-rank-1", "--force", "--grace-period=0")
        lost = wait_for("the loss in the log of rank 0", 60, lambda: re.search(
            r"event=rank_lost step=(\d+)", self.kubectl.run("logs", f"{self.fullname}-trainer-0").stdout))
        # The former rank 1 did not begin a later step.
        lines = self.await_ranks(int(lost.group(1)) + 1, 180)
        return f"lost in step {lost.group(1)}, back after {time.monotonic() - begin:.1f} s: {lines}"

    def ranks_end(self):
        end = self.client.await_end("ranks", self.profile.job_seconds)
        if end["state"] != "SUCCEEDED":
            raise Failure(f"job ranks is {end['state']}: {end['reason']}")
        log = self.kubectl.run("logs", f"{self.fullname}-trainer-0").stdout
        formed = log.count("event=ranks_formed ranks=2")
        if formed < 2:
            raise Failure(f"rank 0 has formed {formed} groups of both ranks in the life of its process")
        if "event=tokens_sent" in log:
            raise Failure("rank 1 has not read its samples from Redis: see event=samples_not_read in its log")
        return f"{end['step']} steps, {formed} groups of both ranks, which read their samples"

    def verify(self, job):
        text = self.client.verify(job)
        found = re.search(r"^ok: .*$", text, re.M)
        if not found:
            raise Failure(f"ledger verify says: {text.strip()[-300:]}")
        return found.group(0)

    def uninstall(self):
        self.client.close()
        self.helm.run("uninstall", self.release, "--wait", "--timeout", "10m", timeout=660)
        claims = {f"persistentvolumeclaim/{item['metadata']['name']}" for item in self.kubectl.items("pvc")}
        wait_for("the end of all pods", 300, lambda: not self.kubectl.items("pods"))
        # Dependents of deleted objects disappear a little later.
        left, end = {"all"}, time.monotonic() + 60
        while left and time.monotonic() < end:
            left = self.kubectl.inventory() - self.before - claims
        if left:
            raise Failure(f"still there: {', '.join(sorted(left))}")
        unnamed = [claim for claim in sorted(claims) if claim.split("/")[1] not in self.notes]
        if unnamed:
            raise Failure(f"claims that the notes did not name: {', '.join(unnamed)}")
        return f"{len(claims)} claims are left, as the notes say"

    # Shared by the parts.

    def clear(self, job):
        """Cancels the job, so that it frees its trainer even if its part of the test failed."""
        try:
            if self.client.job(job)["state"] not in ("SUCCEEDED", "FAILED", "CANCELLED"):
                self.client.call("cancel", job)
                self.client.await_end(job, 120)
        except Failure as failure:
            say(f"job {job}: {failure}")

    def pod_ids(self):
        selector = f"app.kubernetes.io/instance={self.release},app.kubernetes.io/component"
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.kubectl.items("pods", selector)
                if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") in ("Pending", "Running")}

    def await_pods_ready(self, deadline_s):
        def ready(pod):
            conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
            return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]

        def look():
            pods = [pod for pod in self.kubectl.items("pods", f"app.kubernetes.io/instance={self.release}")
                    if pod["status"].get("phase") not in ("Succeeded", "Failed")]
            return bool(pods) and all(ready(pod) for pod in pods)
        wait_for("all pods ready again", deadline_s, look, every_s=1)

    def remove_namespace(self):
        self.kubectl.run("delete", "namespace", self.options.namespace, "--timeout=300s", timeout=330)

    def check_jobs(self):
        report = self.report
        report.check("helm test", self.helm_test)
        if report.check("a job begins", self.submit_first):
            report.check(f"scale 1 -> {' -> '.join(map(str, self.profile.scales))} while it runs", self.scale)
            report.check(f"{self.profile.job} reaches its accuracy", self.first_ends)
            report.check("its ledger", lambda: self.verify("first"))
            self.clear("first")
            report.check("freshet scale does the same", self.scale_by_freshet)
            report.check("who may do what", lambda: surface.rights(self.client))
            report.check("the status page", lambda: surface.status_page(self.kubectl, self.fullname))
        report.check(f"pods of every role deleted for {self.profile.chaos_seconds:.0f} s", self.chaos)
        report.check("that job ends", self.chaos_job_ends)
        report.check("its ledger", lambda: self.verify("chaos"))
        self.clear("chaos")
        report.check("helm upgrade in mid-job", self.upgrade)
        report.check("its ledger", lambda: self.verify("upgrade"))
        report.check("KEDA's scaler, by grpcurl", lambda: surface.scaler(self.client, self.options.namespace))
        self.clear("upgrade")

    def check_rewards(self):
        report = self.report
        if report.check("helm upgrade with Python rewards and the sandbox", self.offer_rewards):
            report.check("a job is rewarded by both", self.train_with_rewards)
            report.check("its ledger", lambda: self.verify("rewards"))
        self.clear("rewards")

    def check_ranks(self):
        report = self.report
        if not report.check("helm upgrade to two ranks", self.use_ranks):
            return
        if report.check("a job trains with both", self.train_with_ranks):
            report.check("the pod of rank 1 is killed, a new one joins", self.lose_rank)
            report.check("that job ends", self.ranks_end)
            report.check("its ledger", lambda: self.verify("ranks"))
        self.clear("ranks")

    def run(self):
        report = self.report
        if not report.check("a Kubernetes answers", self.look_at_cluster):
            return
        if not report.check("images", self.load_images) or not report.check("namespace, restricted", self.make_namespace):
            return
        installed = report.check("helm install", self.install)
        if installed and not self.options.only_ranks:
            self.check_jobs()
            self.check_rewards()
        if installed:
            self.check_ranks()
        if report.counts()[1] and self.options.evidence:
            gather_evidence(self.kubectl, self.client, self.options.evidence)
            say(f"evidence: {self.options.evidence}")
        if self.options.keep:
            say(f"kept: release {self.release} in namespace {self.options.namespace}")
            return
        if installed:
            report.check("helm uninstall", self.uninstall)
        report.check("the namespace goes", self.remove_namespace)


def parse(arguments=None):
    description, rest = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(prog="./dev k8s-test", description=description, epilog=rest,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few minutes: smoke.yaml, one minute of deletions")
    parser.add_argument("--only-ranks", action="store_true", help="install, and only the part with two ranks")
    parser.add_argument("--kubeconfig", help="kubeconfig of the cluster (default: KUBECONFIG, else ~/.kube/config)")
    parser.add_argument("--context", help="context in the kubeconfig")
    parser.add_argument("--namespace", default="freshet-test", help="namespace to create (default freshet-test)")
    parser.add_argument("--release", default="freshet", help="name of the release (default freshet)")
    parser.add_argument("--chart", default=os.path.join(REPOSITORY, "helm", "freshet"))
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="chart value (default: none)")
    parser.add_argument("--image-loader", metavar="COMMAND", help="loads an image into the cluster; see below")
    parser.add_argument("--archives", default=os.path.join(REPOSITORY, "build", "images"), metavar="DIR",
                        help="folder of ./dev image --archive (default build/images)")
    parser.add_argument("--freshet", default=os.path.join(REPOSITORY, "build", "bin", "freshet"), help="the command")
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--seed", type=int, default=1, help="seed of the deletions (default 1)")
    parser.add_argument("--helm-test-bound", type=float, default=60, metavar="S",
                        help="limit of helm test in seconds (default 60)")
    parser.add_argument("--evidence", metavar="DIR", help="folder for logs if a check fails")
    parser.add_argument("--report", metavar="FILE", help="write checks, times and versions as JSON")
    parser.add_argument("--keep", action="store_true", help="keep the release and the namespace")
    return parser.parse_args(arguments)


def main():
    options = parse()
    if shutil.which(options.kubectl) is None:
        sys.exit(f"dev k8s-test: {options.kubectl} not found: https://kubernetes.io/docs/tasks/tools, or a script that "
                 "calls the one of your cluster (k3s kubectl, minikube kubectl --) by --kubectl")
    for tool in (options.helm, options.freshet, "grpcurl"):
        if shutil.which(tool) is None:
            sys.exit(f"dev k8s-test: {tool} not found; ./dev k8s-test builds it")
    folder = tempfile.mkdtemp(prefix="freshet-k8s-")
    scenario = Scenario(options, QUICK if options.quick else FULL, folder)
    begin = time.monotonic()
    try:
        scenario.run()
    finally:
        if scenario.client is not None:
            scenario.client.close()
        shutil.rmtree(folder, ignore_errors=True)
    passed, failed = scenario.report.counts()
    if options.report:
        with open(options.report, "w", encoding="utf-8") as file:
            json.dump({"versions": scenario.versions, "seconds": round(time.monotonic() - begin, 1),
                       "checks": scenario.report.rows}, file, indent=1)
    say(f"{passed} passed, {failed} failed")
    sys.exit(0 if failed == 0 else 1)


if __name__ == "__main__":
    main()
