"""Makes the bucket `BUCKET` at `ENDPOINT`, unless it is there."""

import os

import boto3  # noqa: TID251 (the platform itself makes no buckets)

s3 = boto3.client("s3", endpoint_url=os.environ["ENDPOINT"], region_name="us-east-1")
if os.environ["BUCKET"] not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]:
    s3.create_bucket(Bucket=os.environ["BUCKET"])
