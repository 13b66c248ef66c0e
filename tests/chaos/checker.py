#!/usr/bin/env python3
"""Checks the invariants of a cluster run from its evidence.

    checker.py FOLDER

FOLDER holds
  job.json           {"eta", "policy", "groups_per_step", "group_size", "steps", "state"}; for a real model
                     also "weights_sha256" (expected; null: unknown) and "final_sha256" (actual); if all samples deserve
                     the same reward also "reward"; for several ranks
                     also "ranks": {"groups": formed, "killed": when ranks were killed, if only ranks were disturbed,
                     "notices": lost ranks in the job's events}
  ledger.jsonl       the exported ledger of the job
  history/*.jsonl    the recorded history of each process. Rollouts: leases taken, samples put and acknowledged,
                     versions loaded by engines. Trainers: steps trained and committed. Reward workers: leases
                     taken, scores put. Controllers: prompts fed, workers revoked, records written.
  weights.txt        final weights of the simulated model as lines "uid count"; absent for a real model

The job's filter must be off. Shares no code with the system. Prints one line per violation and exits 1, or prints a
summary and exits 0. Evidence without any acknowledged sample, load, score, prompt or record is a violation too.
"""
import collections
import glob
import hashlib
import json
import os
import sys


ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
FIRST_FAILURE = 2  # score outcomes: 0 ok, 1 wrong_format, 2 timeout, 3 infra_error


def read_lines(path):
    """Returns the JSON rows of a file without a torn last line."""
    rows = []
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                rows.append(json.loads(line))
    return rows


class Lineages:
    """The lineages in a ledger. A redo that produces different weights starts a new one."""

    def __init__(self, size, faults):
        self.size, self.faults = size, faults  # samples per step
        self.current, self.begun_in, self.ends = 0, 0, {}  # ends: last version on which later lineages build
        self.pending = None  # {"first", "epoch", "step", "uids"} during such a redo

    def add(self, row, trained, newest):
        """Checks the row of a sample. newest: the last step in the ledger so far."""
        lineage, redo = row.get("lineage", 0), row["event"] == "trained" and row.get("redo")
        if lineage == self.current + 1 and redo and row["step"] <= newest:
            self.diverge(row)
        elif lineage != self.current:
            self.faults.append(f"{row['uid']}: row of lineage {lineage} while {self.current} is the current one")
        if redo:
            if trained.get(row["uid"], {}).get("step") != row["step"]:
                self.faults.append(f"{row['uid']}: redone in step {row['step']}, which never trained on it")
            if self.pending:
                self.redo(row, newest)
        elif row["event"] == "trained":
            self.check_redone(f"step {row['step']} is trained", newest)

    def diverge(self, row):
        if self.current > 0 and row["epoch"] <= self.begun_in:
            self.faults.append(f"epoch {row['epoch']} began two lineages")
        last = row["step"] - 1
        self.ends = {lineage: min(end, last) for lineage, end in self.ends.items()}
        self.ends[self.current] = last
        self.current, self.begun_in = self.current + 1, row["epoch"]
        self.pending = self.pending or {"first": row["step"], "epoch": row["epoch"], "step": row["step"], "uids": set()}
        self.pending["first"] = min(self.pending["first"], row["step"])

    def redo(self, row, newest):
        """Checks that all steps from the start of the lineage to the newest are redone completely and in order."""
        pending = self.pending
        if row["epoch"] != pending["epoch"]:  # a new trainer, after one that left no checkpoint of the lineage
            if row["step"] > pending["first"]:
                self.faults.append(f"epoch {row['epoch']} redoes from step {row['step']}, not from {pending['first']}")
            pending.update(epoch=row["epoch"], step=row["step"], uids=set())
        elif row["step"] != pending["step"]:
            if row["step"] != pending["step"] + 1 or len(pending["uids"]) != self.size:
                self.faults.append(f"step {row['step']} redone after {len(pending['uids'])} samples of {pending['step']}")
            pending.update(step=row["step"], uids=set())
        pending["uids"].add(row["uid"])
        if pending["step"] == newest and len(pending["uids"]) == self.size:
            self.pending = None

    def check_redone(self, what, newest):
        if self.pending:
            self.faults.append(f"{what} while lineage {self.current} has redone step {self.pending['step']} of {newest}")
            self.pending = None

    def check_durable(self, row, newest):
        lineage = row.get("lineage", 0)
        if lineage == self.current:
            self.check_redone(f"version {row['version']} is durable", newest)
        elif row["version"] > self.ends.get(lineage, -1):
            self.faults.append(f"durable {row['version']} of lineage {lineage}: not where lineage {self.current} comes from")


def check_ledger(job, ledger, faults):
    """Checks: B*G samples in every step, each uid once, none above the staleness bound, digests agree."""
    lineages, newest = Lineages(job["groups_per_step"] * job["group_size"], faults), 0
    trained, ended, epoch = {}, {}, 0
    per_step = collections.defaultdict(list)
    digest = hashlib.sha256(b"").hexdigest()
    digests, seq = {0: digest}, 0
    for row in ledger:
        if row["seq"] <= seq:
            faults.append(f"ledger: seq {row['seq']} after {seq}")
        seq = row["seq"]
        event = row["event"]
        if "uid" in row:
            lineages.add(row, trained, newest)
        elif event == "durable":
            lineages.check_durable(row, newest)
        if event == "trained":
            if row["epoch"] < epoch:
                faults.append(f"ledger: step {row['step']} of epoch {row['epoch']} after epoch {epoch}")
            epoch = row["epoch"]
        if event == "trained" and not row.get("redo"):
            uid = row["uid"]
            if uid in trained:
                faults.append(f"{uid}: trained in step {trained[uid]['step']} and in {row['step']}")
            trained[uid] = row
            per_step[row["step"]].append(row)
            digest = hashlib.sha256((digest + uid).encode()).hexdigest()
            digests[row["step"]] = digest
            newest = max(newest, row["step"])
            if row["train_version"] != row["step"] - 1:
                faults.append(f"{uid}: step {row['step']} trains at {row['train_version']}")
            if row["train_version"] - row["min_version"] > job["eta"]:
                faults.append(f"{uid}: age {row['train_version'] - row['min_version']} above the bound")
        elif event == "durable":
            if digests.get(row["version"]) != row["digest"]:
                faults.append(f"durable {row['version']}: digest differs from the ledger's")
        elif event in ("filtered", "dropped", "dead", "requeued"):
            ended[row["uid"]] = row
            if job["policy"] == "wait" and event != "requeued":
                faults.append(f"{row['uid']}: {event} ({row.get('reason', '')}), though training waits for every group")
    for step in range(1, job["steps"] + 1):
        rows = per_step.get(step, [])
        groups = collections.Counter(row["prompt"] for row in rows)
        if len(groups) != job["groups_per_step"] or set(groups.values()) != {job["group_size"]}:
            faults.append(f"step {step}: {len(rows)} samples of {len(groups)} groups")
    return trained, ended


def check_samples(job, histories, trained, ended, faults):
    """Checks that no acknowledged sample is lost and that training used the accepted bytes. Under policy wait, a
    requeued group keeps its finished samples, and all of them are trained on."""
    accepted = {}
    for rows in histories.values():
        for row in rows:
            if row["event"] == "put" and row["code"] == 0:
                known = accepted.setdefault(row["uid"], row["hash"])
                if known != row["hash"]:
                    faults.append(f"{row['uid']}: acknowledged twice with different bytes")
    for uid in accepted:
        if uid in trained:
            continue
        if uid not in ended:
            faults.append(f"{uid}: acknowledged, and lost")
        elif job["policy"] == "wait":
            faults.append(f"{uid}: acknowledged, and {ended[uid]['event']}")
    seen = {}
    for rows in histories.values():
        for row in rows:
            if row["event"] != "train":
                continue
            for uid, digest, _ in row["samples"]:
                if accepted.get(uid, digest) != digest:
                    faults.append(f"{uid}: step {row['step']} trained on bytes that were not accepted")
                if seen.setdefault(uid, digest) != digest:
                    faults.append(f"{uid}: redone with other bytes")
    return accepted


def check_scores(job, histories, accepted, faults):
    """Checks that each sample has one score, of the accepted bytes, and trains with it. Returns the score count."""
    deserved = job.get("reward")
    scores = {}
    for rows in histories.values():
        for row in rows:
            if row["event"] != "score" or row["code"] != 0:
                continue
            uid = row["uid"]
            if row["outcome"] >= FIRST_FAILURE:
                faults.append(f"{uid}: a failure to score it became a reward")
            if deserved not in (None, row["reward"]):
                faults.append(f"{uid}: scored {row['reward']}, deserves {deserved}")
            if accepted.get(uid, row["hash"]) != row["hash"]:
                faults.append(f"{uid}: scored bytes that were not accepted")
            token, reward = scores.setdefault(uid, (row["token"], row["reward"]))
            if token != row["token"]:
                faults.append(f"{uid}: scored under the leases {token} and {row['token']}")
            elif reward != row["reward"]:
                faults.append(f"{uid}: scored {reward} and {row['reward']} under one lease")
    for rows in histories.values():
        for row in rows:
            if row["event"] != "train":
                continue
            for uid, _, reward in row["samples"]:
                if reward is None:
                    faults.append(f"{uid}: step {row['step']} trained on it without a score")
                elif uid in scores and scores[uid][1] != reward:
                    faults.append(f"{uid}: step {row['step']} trained with {reward}, scored {scores[uid][1]}")
    return len(scores)


def check_leases(histories, faults):
    """Checks that each fencing token belongs to one worker and that revoked workers get no new ones."""
    revoked, holders = {}, {}
    for rows in histories.values():
        for row in rows:
            if row["event"] == "revoke":
                revoked[row["worker"]] = min(row["t"], revoked.get(row["worker"], row["t"]))
    for name, rows in histories.items():
        for row in rows:
            if row["event"] != "lease":
                continue
            # Requested after the revocation was answered, yet granted.
            if row["begin"] > revoked.get(row["worker"], row["begin"]):
                faults.append(f"{name}: {row['worker']} took a lease of {row['kind']} after it was revoked")
            for token in row["tokens"]:
                holder = holders.setdefault((row["kind"], token), row["worker"])
                if holder != row["worker"]:
                    faults.append(f"token {token} of {row['kind']}: held by {holder} and by {row['worker']}")


def check_prompts(histories, trained, faults):
    """Checks that every trained prompt was fed, always with the same content. Returns the number of prompts."""
    fed = {}
    for rows in histories.values():
        for row in rows:
            for ordinal, digest in row["prompts"] if row["event"] == "feed" else ():
                if fed.setdefault(ordinal, digest) != digest:
                    faults.append(f"prompt {ordinal}: fed with two contents")
    for prompt in {row["prompt"] for row in trained.values()}:
        if prompt not in fed:
            faults.append(f"prompt {prompt}: trained on, and never fed")
    return len(fed)


def check_records(job, histories, faults):
    """Checks that only one controller acts at a time and that job records form one sequence. Returns their number."""
    writes = [(row, name) for name, rows in histories.items() for row in rows if row["event"] == "record"]
    leaders, revisions = {}, {}
    newest, seen = -1, sorted((row["t"], row["fence"]) for row, _ in writes)
    answered = 0
    for row, name in sorted(writes, key=lambda write: write[0]["begin"]):
        # newest: the largest fence of the writes that ended before this one began.
        while answered < len(seen) and seen[answered][0] < row["begin"]:
            newest, answered = max(newest, seen[answered][1]), answered + 1
        if row["fence"] < newest:
            faults.append(f"{name}: wrote {row['id']} under fence {row['fence']} after one under {newest}")
        leader = leaders.setdefault(row["fence"], name)
        if leader != name:
            faults.append(f"fence {row['fence']}: {leader} and {name} both led under it")
        if row["revision"] > 0:
            other = revisions.setdefault(row["revision"], (row["id"], row["state"], name))
            if other != (row["id"], row["state"], name):
                faults.append(f"revision {row['revision']}: written by {other[2]} and by {name}")
    ended = None
    for revision, (record, state, _) in sorted(revisions.items()):
        if not state:
            continue
        if ended and state != ended:
            faults.append(f"{record}: {ended}, and {state} at revision {revision}")
        ended = state if state in ENDED else ended
    if ended and ended != job["state"]:
        faults.append(f"the job is {job['state']}, and was written as {ended}")
    return len(revisions)


def check_versions(histories, epochs, faults):
    """Checks that engines load only committed weights in ascending order, and only the open epoch's trainer commits."""
    commits, first = {}, {}
    for name, rows in histories.items():
        for row in rows:
            if row["event"] == "commit":
                key = (row["lineage"], row["step"])
                first[key] = min(row["t"], first.get(key, row["t"]))
                if (row["epoch"], row["step"]) not in epochs:
                    faults.append(f"{name}: step {row['step']} committed under epoch {row['epoch']}, which was not open")
                if commits.setdefault(key, row["hash"]) != row["hash"]:
                    faults.append(f"version {key}: committed with two sets of weights")
    loads = 0
    for name, rows in histories.items():
        last, last_epoch = None, 0
        for row in rows:
            if row["event"] != "load":
                continue
            loads += 1
            key = (row["lineage"], row["version"])
            if last is not None and key < last:
                faults.append(f"{name}: loaded version {key} after {last}")
            if row["epoch"] < last_epoch:
                faults.append(f"{name}: loaded version {key} of the fenced trainer {row['epoch']}")
            last, last_epoch = key, max(last_epoch, row["epoch"])
            if key[1] == 0:  # the initial weights
                continue
            # A trainer records its commit before it publishes.
            if key not in commits or first[key] > row["t"]:
                faults.append(f"{name}: version {key} loaded before it was committed")
            elif commits[key] != row["hash"]:
                faults.append(f"{name}: version {key} has weights that were not committed")
    return loads


def check_ranks(ranks, histories, faults):
    """Checks that a rank that was killed before the last step began is reported. Returns the number of groups."""
    last = max((row["t"] for rows in histories.values() for row in rows if row["event"] == "train"), default=0)
    if any(killed < last for killed in ranks["killed"]) and ranks["notices"] == 0:
        faults.append("a rank was killed, and no event says so")
    return ranks["groups"]


def read_weights(folder):
    weights = {}
    with open(os.path.join(folder, "weights.txt")) as file:
        for line in file.read().splitlines()[1:]:
            uid, count = line.rsplit(" ", 1)
            weights[uid] = int(count)
    return weights


def check_weights(weights, trained, faults):
    """Checks that the final weights contain each trained uid exactly once."""
    for uid, count in weights.items():
        if count != 1:
            faults.append(f"{uid}: {count} times in the final weights")
        if uid not in trained:
            faults.append(f"{uid}: in the final weights, but not in the ledger")
    for uid in trained:
        if uid not in weights:
            faults.append(f"{uid}: in the ledger, but not in the final weights")


def check(folder):
    """Returns (faults, summary)."""
    with open(os.path.join(folder, "job.json")) as file:
        job = json.load(file)
    faults = []
    if job["state"] != "SUCCEEDED":
        faults.append(f"the job ended as {job['state']}")
    ledger = read_lines(os.path.join(folder, "ledger.jsonl"))
    histories = {
        os.path.basename(path): read_lines(path)
        for path in sorted(glob.glob(os.path.join(folder, "history", "*.jsonl")))
    }
    trained, ended = check_ledger(job, ledger, faults)
    accepted = check_samples(job, histories, trained, ended, faults)
    counts = {
        "samples acknowledged": len(accepted),
        "scores put": check_scores(job, histories, accepted, faults),
        "prompts fed": check_prompts(histories, trained, faults),
        "records written": check_records(job, histories, faults),
    }
    check_leases(histories, faults)
    epochs = {(row["epoch"], row["step"]) for row in ledger if row["event"] == "trained"}
    counts["versions loaded"] = check_versions(histories, epochs, faults)
    if "ranks" in job:
        counts["groups of ranks formed"] = check_ranks(job["ranks"], histories, faults)
    for what, count in counts.items():
        if count == 0:
            faults.append(f"no {what}: the evidence proves nothing")
    if "weights_sha256" in job:
        if job["weights_sha256"] not in (None, job["final_sha256"]):
            faults.append(f"the final weights are {job['final_sha256']}, not {job['weights_sha256']}")
    else:
        check_weights(read_weights(folder), trained, faults)
    summary = (f"{len(trained)} samples trained, {len(ended)} ended otherwise, "
               + ", ".join(f"{count} {what}" for what, count in counts.items()) + f", {len(histories)} processes")
    return faults, summary


def main():
    if len(sys.argv) != 2:
        print("usage: checker.py FOLDER", file=sys.stderr)
        return 2
    faults, summary = check(sys.argv[1])
    for fault in faults[:20]:
        print("violation:", fault)
    if len(faults) > 20:
        print(f"and {len(faults) - 20} more")
    print(summary)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
