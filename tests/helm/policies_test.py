#!/usr/bin/env python3
"""Checks the chart's authorization policies against the protos: rules name existing methods, and some role may call
every method. Exits 1 with one line per fault."""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
POLICIES = ROOT / "helm/freshet/policies"
ROLES = {"controller", "rollout", "reward", "env", "trainer"}
# The services of each role.
SERVED = {
    "controller": {"freshet.job.v1.JobService", "freshet.cluster.v1.WorkerService", "externalscaler.ExternalScaler"},
    "rollout": {"freshet.rollout.v1.RolloutService", "freshet.weights.v1.WeightService"},
    "reward": {"freshet.reward.v1.RewardService"},
    "env": {"freshet.env.v1.EnvService"},
    "trainer": {"freshet.trainer.v1.RankService", "freshet.trainer.v1.TrainerService", "freshet.weights.v1.WeightService"},
}
# Methods of gRPC's own services, health and reflection, whose protos are not in the tree.
FOREIGN = {
    "grpc.health.v1.Health": {"Check", "Watch"},
    "grpc.reflection.v1.ServerReflection": {"ServerReflectionInfo"},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo"},
}
# Methods that a role serves but nobody calls: engines receive weights, the trainer sends them.
NOT_CALLED = {
    "trainer": {"/freshet.weights.v1.WeightService/Prepare", "/freshet.weights.v1.WeightService/PrepareShared",
                "/freshet.weights.v1.WeightService/PrepareBroadcast", "/freshet.weights.v1.WeightService/Activate"},
    "reward": {"/freshet.reward.v1.RewardService/Score"},  # for clusters without the chart
}
# Clients try v1 first and fall back to v1alpha only on UNIMPLEMENTED, so denying v1 would break v1alpha.
REFLECTION = {f"/{service}/{method}" for service, methods in FOREIGN.items() if "reflection" in service for method in methods}
# Methods that only role:admin may call.
ADMIN_ONLY = {"/freshet.job.v1.JobService/Delete", "/freshet.job.v1.JobService/Scale"} | REFLECTION
# All API methods that viewers may call. Not Validate: it opens files that the caller's job names.
READ_ONLY = {"Get", "List", "Watch", "ListCheckpoints", "ListSamples", "ReadLedger", "Logs", "GetCluster"}


def methods():
    """Returns {service: names of its methods} for all protos in the tree."""
    found = {name: set(names) for name, names in FOREIGN.items()}
    for path in (ROOT / "proto").rglob("*.proto"):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        package = re.search(r"^package ([\w.]+);", text, re.M)
        for service in re.finditer(r"^service (\w+) \{(.*?)^\}", text, re.M | re.S):
            name = f"{package.group(1)}.{service.group(1)}"
            found[name] = set(re.findall(r"\brpc (\w+)\s*\(", service.group(2)))
    return found


def faults():
    known = methods()
    paths = {f"/{service}/{method}" for service, names in known.items() for method in names}
    if {path.stem for path in POLICIES.glob("*.json")} != ROLES:
        yield f"{POLICIES}: must have one policy for each of {', '.join(sorted(ROLES))}"
        return
    for role in sorted(ROLES):
        file = POLICIES / f"{role}.json"
        policy = json.loads(file.read_text(encoding="utf-8"))
        if set(policy) - {"name", "deny_rules", "allow_rules"} or policy["name"] != role:
            yield f"{file}: the policy must be named {role}"
        allowed, by_principal = set(), {}
        for rule in policy["allow_rules"]:
            principals = rule.get("source", {}).get("principals", [])
            if rule["name"] != "health" and not principals:
                yield f"{file}: rule {rule['name']} allows all callers"
            for principal in principals:
                if not re.fullmatch(r"@(controller|rollout|reward|env|trainer|keda)|role:(viewer|submitter|admin)", principal):
                    yield f"{file}: rule {rule['name']} names {principal}, which is no role"
            for path in rule["request"]["paths"]:
                if path not in paths:
                    yield f"{file}: rule {rule['name']} allows {path}, which is in no proto"
                allowed.add(path)
                for principal in principals:
                    by_principal.setdefault(principal, set()).add(path)
        for service in SERVED[role]:
            for method in known.get(service, set()):
                path = f"/{service}/{method}"
                if path not in allowed and path not in NOT_CALLED.get(role, set()):
                    yield f"{file}: {path}: nobody may call it"
        for path in sorted(allowed):
            if path.split("/")[1] not in SERVED[role] | set(FOREIGN):
                yield f"{file}: {path} is not served by {role}"
        if role != "controller":
            continue
        for user in ("role:viewer", "role:submitter"):
            for path in by_principal.get(user, set()) & ADMIN_ONLY:
                yield f"{file}: {path} is allowed to {user}"
        for path in REFLECTION - by_principal["role:admin"]:
            yield f"{file}: {path} is not allowed to role:admin"
        for path in by_principal["role:viewer"]:
            if path.rsplit("/", 1)[1] not in READ_ONLY:
                yield f"{file}: {path} is allowed to role:viewer, which must not read files or change anything"
        for path in by_principal["role:viewer"] - by_principal["role:submitter"]:
            yield f"{file}: {path} is allowed to a viewer but not to a submitter"
        for path in by_principal["role:submitter"] - by_principal["role:admin"]:
            yield f"{file}: {path} is allowed to a submitter but not to an admin"


def main():
    found = list(faults())
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
