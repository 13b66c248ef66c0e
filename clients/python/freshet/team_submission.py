"""Submits the jobs of a file with `policies`."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
import yaml

from freshet import errors
from freshet.connection import Connection
from freshet.job_handle import Job
from freshet.job.v1 import job_service_pb2 as pb

if TYPE_CHECKING:
    from freshet.client import Client

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAX_JOB_ID = 63
# Status codes of a Submit that created no job. After others, the job may exist.
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
)


def team_requests(
    text: str,
    file_name: str,
    team: str | None,
    overrides: list[str],
    paths_of: Callable[[str, list[str]], list[str]],
    priority: int,
) -> dict[str, pb.SubmitRequest]:
    """Returns a request for each policy of a job file.

    team: the id of the team; None makes one. paths_of: further overrides for the text of a policy's job and
    the overrides for it. Raises ValueError for a file without policies, and for an id that no job may have.
    """
    common, policies = _policies_in(text)
    team = team or _team_id(_name_of(common, overrides), policies)
    for policy in policies:
        if not _JOB_ID.fullmatch(f"{team}-{policy}"):
            raise ValueError(
                f"id: the job id {team}-{policy} must be 1 to {_MAX_JOB_ID} letters, digits, '.', '_' and '-', "
                "beginning with a letter or digit"
            )
    requests = {}
    for policy, keys in policies.items():
        paths = paths_of(yaml.safe_dump(_merged(common, keys)), _overrides_of(policy, overrides))
        requests[policy] = pb.SubmitRequest(
            job_id=f"{team}-{policy}",
            yaml=text,
            file_name=file_name,
            overrides=[*overrides, f"team={team}", *paths],
            priority=priority,
            policy=policy,
        )
    return requests


def submit_requests(
    client: Client, connection: Connection, requests: Mapping[str, pb.SubmitRequest]
) -> dict[str, Job]:
    """Submits the jobs of a team, after all were validated. Returns them by policy; see Client.submit_team."""
    known = _known(client, connection, requests)
    jobs = {}
    made = []  # ids of jobs that this call may have created
    try:
        for policy, request in requests.items():
            made.append(request.job_id)
            jobs[policy] = _usable(Job(client, connection.call("Submit", request, attempts=4)))
    except errors.FreshetError as fault:
        if fault.code is None or fault.code in _REFUSED:
            made.pop()
        left = _cancel_all(client, [one for one in made if one not in known], fault.code)
        if left:
            fault.args = (f"{fault}; these jobs may run, cancel them: {', '.join(left)}", *fault.args[1:])
        raise
    return jobs


def _known(client: Client, connection: Connection, requests: Mapping[str, pb.SubmitRequest]) -> set[str]:
    """Validates the jobs. Returns the ids of those that exist."""
    known = set()
    agents: dict[str, int] = {}  # group_size by policy
    for request in requests.values():
        reply = connection.call(
            "Validate",
            pb.ValidateRequest(
                yaml=request.yaml,
                file_name=request.file_name,
                overrides=request.overrides,
                policy=request.policy,
            ),
        )
        if reply.spec.environment.type == "openai_agent":
            agents[request.policy] = reply.spec.group_size
        try:
            known.add(_usable(client.get(request.job_id)).id)
        except errors.NotFound:
            pass
    if len(set(agents.values())) > 1:
        sizes = ", ".join(f"{policy} has {size}" for policy, size in agents.items())
        raise errors.InvalidJob(
            f"group_size: must be the same for all policies with agents, which play each sample together; {sizes}"
        )
    return known


def _cancel_all(client: Client, ids: list[str], code: grpc.StatusCode | None) -> list[str]:
    """Cancels those of the jobs that exist. Returns the ids of those that may run.

    code: of the Submit of the last one. Not found means that this one will not be created either (see
    JobService.Submit), except after UNAVAILABLE: a server that was lost may still have the call.
    """
    left = []
    for id in ids:
        try:
            client.cancel(id, "another policy of its team was refused")
        except errors.NotFound:
            if code == grpc.StatusCode.UNAVAILABLE:
                left.append(id)
        except errors.FreshetError:
            left.append(id)
    return left


def _usable(job: Job) -> Job:
    """Returns the job of a team. Raises Refused if it has failed or was cancelled, as the others would be then."""
    if job.state in ("FAILED", "CANCELLED"):
        how = "has failed" if job.state == "FAILED" else "was cancelled"
        raise errors.Refused(f"job {job.id} {how}; choose another id, or delete it with client.delete({job.id!r})")
    return job


def _policies_in(text: str) -> tuple[dict, dict[str, Any]]:
    """Returns the keys of a job file that its policies share, and the keys of each."""
    try:
        job = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"the job file is not valid YAML: {error}") from error
    policies = job.get("policies") if isinstance(job, dict) else None
    if not isinstance(policies, dict) or not policies:
        raise ValueError("the job file has no map `policies`; submit a file with one job with submit()")
    for name in policies:
        if not isinstance(name, str):
            raise ValueError(f"policies: YAML reads the name {name!r} as no text: quote the policy's name")
    return {key: value for key, value in job.items() if key != "policies"}, policies


def _team_id(name: Any, policies: Mapping[str, Any]) -> str:
    """Returns NAME-xxxxxxxx, short enough for the ids of the jobs, NAME-xxxxxxxx-POLICY."""
    suffix = f"-{secrets.token_hex(4)}"
    room = _MAX_JOB_ID - len(suffix) - 1 - max(len(policy) for policy in policies)
    return str(name)[: max(room, 1)] + suffix


def _name_of(common: dict, overrides: list[str]) -> Any:
    names = [entry.removeprefix("name=") for entry in overrides if entry.startswith("name=")]
    return names[-1] if names else common.get("name", "team")


def _merged(common: dict, own: Any) -> dict:
    """Merges a policy's maps into those of the file."""
    result = dict(common)
    for key, value in (own if isinstance(own, dict) else {}).items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def _overrides_of(policy: str, overrides: list[str]) -> list[str]:
    mine = f"policies.{policy}."
    return [entry.removeprefix(mine) for entry in overrides if entry.startswith(mine) or not entry.startswith("policies.")]
