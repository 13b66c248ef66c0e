#!/usr/bin/env python3
"""Uploads a checkpoint to s3://$FRESHET_S3_BUCKET/JOB/lineage-L/step-N: a hook for freshet-trainer.

Needs boto3, which reads the credentials (AWS_ACCESS_KEY_ID and others) of a user who may put and delete objects.
AWS_ENDPOINT_URL names other storage than Amazon's. manifest.json, which lists the other files, is uploaded last: where it exists, the checkpoint is complete.
"""
import json
import os
import pathlib
import sys

import boto3


def main() -> int:
    directory = pathlib.Path(sys.argv[1])
    bucket = os.environ["FRESHET_S3_BUCKET"]
    job, lineage, version = (os.environ[f"FRESHET_{name}"] for name in ("JOB", "LINEAGE", "VERSION"))
    prefix = f"{job}/lineage-{lineage}/step-{version}"
    manifest = json.loads((directory / "manifest.json").read_text())
    client = boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL"))
    client.delete_object(Bucket=bucket, Key=f"{prefix}/manifest.json")  # of an earlier upload
    for name in [*(file["name"] for file in manifest["files"]), "manifest.json"]:
        client.upload_file(str(directory / name), bucket, f"{prefix}/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
