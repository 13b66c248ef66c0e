"""Checks of the external interfaces of a release: user permissions, status page, KEDA's scaler. Each function returns a
summary and raises Failure if a check fails."""
import glob
import json
import os
import urllib.request

from kube import Failure, PortForward

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NO_RIGHT = 4  # exit code of the freshet command: refused by the server
STATUS_PORT = 8082  # as in the chart's values


def rights(client):
    """Checks that the server refuses what the role of a token does not permit."""
    if client.token_file("viewer") is None:
        return "no TLS, no users: nothing to check"
    client.call("list", user="viewer")
    for user, command in (("viewer", ("cancel", "first")), ("submitter", ("scale", "rollout", "1"))):
        done = client.call(*command, check=False, user=user)
        if done.returncode != NO_RIGHT:
            raise Failure(f"freshet {' '.join(command)} by a {user}: exit {done.returncode}, not {NO_RIGHT}: "
                          f"{done.stderr.strip()[-300:]}")
    return "a viewer lists and cannot cancel; a submitter cannot scale"


def status_page(kubectl, fullname):
    port = PortForward(kubectl, f"pod/{fullname}-controller-0", STATUS_PORT)
    try:
        port.await_listening(30)

        def get(path):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port.port}{path}", timeout=10) as answer:
                    return answer.read().decode()
            except OSError as error:
                raise Failure(f"{path}: {error}") from None
        if not get("/").startswith("<!doctype html>"):
            raise Failure("unexpected page")
        jobs = json.loads(get("/api/jobs"))["jobs"]
        workers = json.loads(get("/api/workers"))["workers"]
    finally:
        port.close()
    if "first" not in [job["id"] for job in jobs] or not workers:
        raise Failure(f"it shows {len(jobs)} jobs, {len(workers)} workers")
    return f"{len(jobs)} jobs, {len(workers)} workers"


def scaler(client, namespace):
    """Makes KEDA's calls with KEDA's own proto."""
    protos = glob.glob(os.path.join(REPOSITORY, "proto", "**", "externalscaler.proto"), recursive=True)
    if not protos:
        raise Failure("no externalscaler.proto below proto")

    def ask(method, message):
        return client.grpc(f"externalscaler.ExternalScaler/{method}", message, protos[0])
    target = {"name": f"{client.fullname}-rollout-default", "namespace": namespace,
              "scalerMetadata": {"pool": "default"}}
    active = ask("IsActive", target).get("result", False)
    specs = ask("GetMetricSpec", target).get("metricSpecs", [])
    if len(specs) != 1:
        raise Failure(f"GetMetricSpec names {len(specs)} metrics")
    values = ask("GetMetrics", {"scaledObjectRef": target, "metricName": specs[0]["metricName"]})["metricValues"]
    wanted = float(values[0].get("metricValueFloat", values[0].get("metricValue", 0)))
    if len(values) != 1 or not 1 <= wanted <= 4 or not active:
        raise Failure(f"active {active}, {values}: expected one value from 1 to 4 and an active pool")
    return f"{specs[0]['metricName']}: {wanted:g} rollouts are wanted"
