#!/usr/bin/env python3
"""Trains in a cluster whose trainer uploads its checkpoints to an S3 server with examples/checkpoint_hook_s3.py, and
compares what the server has with the trainer's disk.

usage: check_checkpoint_hook.py PROGRAMS REPOSITORY
Exits with 77 (skipped) if the package moto is missing. The variable FRESHET_TEST_PYTHON selects the interpreter.
"""
import hashlib
import json
import logging
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from launcher import Processes, await_true  # noqa: E402

SKIPPED = 77
TIMEOUT_S = 240
BUCKET = "checkpoints"
LAST = "step-100"
OVERRIDES = ["trainer.steps=100", "prompts_per_step=8", "warmup.sft.steps=5", "checkpoint.every_steps=20",
             "checkpoint.keep_last=1", "checkpoint.keep_best=1", "eval.every_steps=20", "eval.rows=16"]


class UploadingCluster(Processes):
    def flags(self, name):
        return ["--checkpoint-hook", self.folder / "hook"] if name == "trainer-0" else []


def digests(files):
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def check(programs, repository, folder, client, environment):
    hook = folder / "hook"
    hook.write_text(f'#!/bin/sh\nexec {sys.executable} {repository}/examples/checkpoint_hook_s3.py "$@"\n')
    hook.chmod(0o700)
    with UploadingCluster(folder, programs, environment=environment) as cluster:
        cluster.start_redis()
        cluster.start_roles("controller-0")
        cluster.start_roles("rollout-0", "reward-0", "trainer-0")

        def job():
            return json.loads(cluster.freshet("get", "sums", "-o", "json"))

        def describe():
            return f"\n{cluster.freshet('describe', 'sums')}\n{cluster.log('trainer-0')[-2000:]}"

        settings = [word for override in OVERRIDES for word in ("--set", override)]
        cluster.freshet("submit", str(repository / "examples" / "arithmetic.yaml"), "--id", "sums", *settings)
        await_true("the end", lambda: job()["state"] in ("SUCCEEDED", "FAILED"), TIMEOUT_S, describe)
        if job()["state"] != "SUCCEEDED":
            sys.exit(describe())
        checkpoints = folder / "state" / "jobs" / "sums" / "checkpoints"
        kept = {path.name: path for path in checkpoints.iterdir()}
        if LAST not in kept:
            sys.exit(f"checkpoints: {kept}{describe()}")
        # The last checkpoint is always uploaded.
        objects = client.list_objects_v2(Bucket=BUCKET, Prefix=f"sums/lineage-0/{LAST}/")["Contents"]
        uploaded = {entry["Key"].rsplit("/", 1)[1]: client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
                    for entry in objects}
        on_disk = {path.name: path.read_bytes() for path in kept[LAST].iterdir()}
        on_disk.pop("evaluation.json", None)
        if digests(uploaded) != digests(on_disk) or "manifest.json" not in uploaded:
            sys.exit(f"uploaded: {digests(uploaded)}\non disk: {digests(on_disk)}{describe()}")
        print(f"{len(uploaded)} files uploaded; kept: {', '.join(sorted(kept))}")


def main():
    interpreter = os.environ.pop("FRESHET_TEST_PYTHON", "")
    if interpreter:
        os.execv(interpreter, [interpreter, *sys.argv])
    try:
        import boto3
        from moto.server import ThreadedMotoServer
    except ImportError:
        print("skipped: the packages moto and boto3 are missing")
        return SKIPPED
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.get_host_and_port()[1]}", "AWS_ACCESS_KEY_ID": "key",
                   "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1", "FRESHET_S3_BUCKET": BUCKET}
    os.environ.update(environment)
    client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
    client.create_bucket(Bucket=BUCKET)
    with tempfile.TemporaryDirectory() as folder:
        check(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(folder), client,
              environment)
    server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
