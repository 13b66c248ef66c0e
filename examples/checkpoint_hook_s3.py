#!/usr/bin/env python3
"""Uploads a checkpoint to s3://$FRESHET_S3_BUCKET/JOB/step-N: a hook for freshet-trainer.

Needs boto3, which reads the credentials (AWS_ACCESS_KEY_ID and others). AWS_ENDPOINT_URL names other storage than
Amazon's. manifest.json is uploaded last, so an object of that name means that the checkpoint is complete.
"""
import os
import pathlib
import sys

import boto3


def main() -> int:
    directory = pathlib.Path(sys.argv[1])
    bucket = os.environ["FRESHET_S3_BUCKET"]
    prefix = f"{os.environ['FRESHET_JOB']}/step-{os.environ['FRESHET_VERSION']}"
    client = boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL"))
    files = [file for file in directory.iterdir() if file.is_file()]
    for file in sorted(files, key=lambda file: file.name == "manifest.json"):
        client.upload_file(str(file), bucket, f"{prefix}/{file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
