"""An S3 bucket (or MinIO, or another compatible store) as an object store. The only module that uses boto3."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import boto3
from botocore.config import Config
from urllib3.exceptions import HTTPError

from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject, InvalidRequest, NotFoundYet
from tistream.storage.backends.keys import MAX_KEY_BYTES, check_key
from tistream.storage.backends.s3_errors import CONDITIONS, BucketPlace, S3Error, status_of
from tistream.storage.backends.s3_parts import PartsMissing, PartsUpload, ViewFile, crc32_of
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.storage.multipart import MULTIPART_BYTES, PART_BYTES
from tistream.storage.object_store import Body, ObjectInfo, RangeSigner, range_header

ATTEMPTS = 4
BODY_ATTEMPTS = 3  # botocore does not retry a body that breaks off, or that fails its checksum
CONNECTIONS = 32
CONDITIONS_KEY = "tistream-conditional-put"  # an object without content; probes of conditional puts use it
CONDITIONS_BODY = b"Written by the S3 client; no process reads it.\n"
NO_VERSION = f'"{"0" * 32}"'  # an ETag that no object has
Condition = tuple[str, str]  # botocore's name of the condition, and its value
ABSENT: Condition = ("IfNoneMatch", "*")

_SESSION_LOCK = threading.Lock()  # clients may be shared by threads, but not created by several at once


@functools.cache
def _session() -> boto3.session.Session:
    """The boto3 session that all stores of the process share. A new session would parse S3's description again, which
    needs a quarter of a second."""
    return boto3.session.Session()


class _Requests(threading.local):
    """Counters of the HTTP requests that the calling thread has made. Every attempt counts, because S3 bills every
    attempt."""

    made = 0
    failed = 0
    probing = 0  # how many of `made` probed whether the store honours conditions

    def sent(self, **_: object) -> None:
        self.made += 1

    def answered(self, response_dict: dict[str, Any] | None = None, **_: object) -> None:
        self.failed += response_dict is None or response_dict["status_code"] >= 300


def _ask_for_checksum(params: dict[str, Any], **_: object) -> None:
    """Ask S3 to send the checksum of an object that is read whole. This hook of botocore does so because botocore's own
    way fails on errors that have a checksum (an AttributeError), such as MinIO's error for a damaged disk."""
    if "Range" not in params["headers"]:
        params["headers"]["x-amz-checksum-mode"] = "ENABLED"


class S3ObjectStore:
    """Implements ObjectStore in an S3 bucket. Keys are stored below `prefix` (empty, or ending in "/"). Thread-safe.

    Botocore retries reads, listings, deletions and unconditional puts. A conditional put is one request, because a
    hidden second one would get a 412 caused by the first. Before the first conditional put of each kind, this class
    checks that the store obeys conditions. Objects of `multipart_bytes` or more are written in parts. Every object is
    encrypted with its tenant's key (SSE-KMS), which `keys` chooses.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        connect_seconds: float = 3,
        read_seconds: float = 20,
        attempts: int = ATTEMPTS,
        list_page: int = 1000,
        multipart_bytes: int = MULTIPART_BYTES,
        part_bytes: int = PART_BYTES,
    ) -> None:
        if prefix and (not prefix.endswith("/") or len(prefix.encode()) > MAX_KEY_BYTES // 2):
            raise InvalidRequest(f"S3 prefix {prefix!r} must be short and end in a slash")
        self._bucket, self._prefix, self._list_page = bucket, prefix, list_page
        self._multipart_bytes, self._part_bytes = multipart_bytes, part_bytes
        self.keys = TenantKeys()
        self._place = BucketPlace(bucket, prefix, endpoint, self.keys)
        self._honoured: set[str] = set()
        self._requests = _Requests()
        self._named: dict[str, Any] = {
            "endpoint_url": endpoint,
            "region_name": region,
            "aws_access_key_id": access_key,
            "aws_secret_access_key": secret_key,
        }

        def client(attempts: int) -> Any:
            config = Config(
                retries={"total_max_attempts": attempts, "mode": "standard"},
                connect_timeout=connect_seconds,
                read_timeout=read_seconds,
                max_pool_connections=CONNECTIONS,
                s3={"addressing_style": "path"} if endpoint else None,
                request_checksum_calculation="when_required",  # set explicitly where it is needed
                response_checksum_validation="when_required",
            )
            made = _session().client("s3", **self._named, config=config)
            made.meta.events.register("before-send.s3", self._requests.sent)
            made.meta.events.register("before-call.s3.GetObject", _ask_for_checksum)
            made.meta.events.register("response-received.s3", self._requests.answered)
            return made

        with _SESSION_LOCK:
            self._client, self._once = client(attempts), client(1)

    def requests_made(self) -> tuple[int, int]:
        """The number of requests that the calling thread has made so far, and how many of them failed."""
        return self._requests.made, self._requests.failed

    def probes_made(self) -> int:
        """How many of the calling thread's requests belong to no tenant, because they only tested whether the store
        obeys conditional puts."""
        return self._requests.probing

    def get(self, key: str) -> bytes:
        return self._read(key, {})[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if not length:
            self.head(key)
            return b""
        return self._read(key, {"Range": f"bytes={start}-{start + length - 1}"})[0]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        if not length:
            return b"", self.head(key).size
        return self._read(key, {"Range": f"bytes=-{length}"})

    def head(self, key: str) -> ObjectInfo:
        try:
            answer = self._client.head_object(**self._target(key))
        except S3Error as error:
            problem = self._place.read_error("HeadObject", key, error)
            if isinstance(problem, NotFoundYet):
                self._check_bucket(key)
            raise problem from error
        return ObjectInfo(key, answer["ContentLength"], answer["ETag"], _ms(answer["LastModified"]))

    def put(self, key: str, body: Body) -> None:
        target, sealed = self._target(key), self._sealed(key)
        try:
            if len(body) < self._multipart_bytes:
                stated = body if isinstance(body, bytes) else ViewFile(memoryview(body))
                self._client.put_object(**target, **sealed, Body=stated, ChecksumCRC32=crc32_of(body))
            else:
                self._parts(target, sealed).put(memoryview(body), {})
        except PartsMissing as error:
            raise self._place.unavailable("PutObject in parts", key, error.__cause__) from error
        except S3Error as error:
            raise self._place.unavailable("PutObject", key, error) from error

    def put_new(self, key: str, body: bytes) -> None:
        self._put_conditionally(key, body, ABSENT)

    def put_if(self, key: str, body: bytes, version: str) -> None:
        self._put_conditionally(key, body, ("IfMatch", version))

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket,
            Prefix=self._prefix + prefix,
            Delimiter=delimiter,
            PaginationConfig={"PageSize": self._list_page},
            **({"StartAfter": self._prefix + after} if after else {}),
        )
        try:
            for page in pages:
                listed = page.get("Contents", ())
                found = [ObjectInfo(o["Key"], o["Size"], o["ETag"], _ms(o["LastModified"])) for o in listed]
                found += [ObjectInfo(common["Prefix"], -1, "") for common in page.get("CommonPrefixes", ())]
                for info in sorted(found, key=lambda item: item.key):
                    key = info.key[len(self._prefix) :]
                    if key > after:  # stores differ on whether StartAfter applies to common prefixes
                        yield replace(info, key=key)
        except S3Error as error:
            raise self._place.unavailable("ListObjectsV2", prefix, error) from error

    def delete(self, key: str) -> None:
        try:
            self._client.delete_object(**self._target(key))
        except S3Error as error:
            raise self._place.unavailable("DeleteObject", key, error) from error

    def range_signer(self, endpoint: str | None) -> RangeSigner:
        """Implement SignsRanges.range_signer. Version 4 of the signature covers the header Range, and version 2, which
        botocore may choose for URLs, does not."""
        named = self._named if endpoint is None else {**self._named, "endpoint_url": endpoint}
        config = Config(
            signature_version="s3v4", s3={"addressing_style": "path" if named["endpoint_url"] else "virtual"}
        )
        with _SESSION_LOCK:
            signing = _session().client("s3", **named, config=config)

        def sign(key: str, start: int, length: int, seconds: int) -> str:
            wanted = {**self._target(key), "Range": range_header(start, length)}
            try:
                url: str = signing.generate_presigned_url("get_object", Params=wanted, ExpiresIn=seconds)
            except S3Error as error:
                raise self._place.unavailable("GetObject, signed", key, error) from error
            return url

        return sign

    def _target(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _sealed(self, key: str) -> dict[str, str]:
        """The parameters that encrypt an object with its tenant's key; empty if the tenant has none."""
        kms_key_id = self.keys.of_object(key)
        return {} if kms_key_id is None else {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key_id}

    def _parts(self, target: dict[str, str], sealed: dict[str, str]) -> PartsUpload:
        return PartsUpload(self._client, self._once, target, self._part_bytes, sealed)

    def _check_bucket(self, key: str) -> None:
        """Check that the bucket exists, after a HEAD of an object answered 404, which may mean either. Raises
        Unavailable if the bucket is missing."""
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except S3Error as error:
            if status_of(error) == 404:
                raise self._place.missing_bucket("HeadObject", key) from error

    def _read(self, key: str, how: dict[str, Any]) -> tuple[bytes, int]:
        """Read an object, or a range of it if `how` says so. Returns the bytes, and the size of the whole object."""
        target = self._target(key)
        for attempt in range(1, BODY_ATTEMPTS + 1):
            try:
                answer = self._client.get_object(**target, **how)
            except S3Error as error:
                if status_of(error) == 416:  # the range begins at or beyond the end
                    return b"", self.head(key).size
                raise self._place.read_error("GetObject", key, error) from error
            try:
                body = answer["Body"].read()
            except (*S3Error, HTTPError, OSError) as error:  # botocore does not convert some of urllib3's exceptions
                self._requests.failed += 1
                if attempt == BODY_ATTEMPTS:
                    raise self._place.unavailable("GetObject", key, error) from error
                continue
            if _is_sound(body, answer):
                stated = answer.get("ContentRange", "").rpartition("/")[2]
                return body, int(stated) if stated.isdigit() else len(body)
            self._requests.failed += 1
        raise CorruptObject(key, f"fails the checksum that the store keeps, {BODY_ATTEMPTS} times")

    def _put_conditionally(self, key: str, body: bytes, condition: Condition) -> None:
        check_key(key)
        in_parts = len(body) >= self._multipart_bytes
        self._check_honoured(condition[0], in_parts=in_parts)
        self._send_conditionally(key, body, condition, in_parts=in_parts)

    def _send_conditionally(self, key: str, body: bytes, condition: Condition, *, in_parts: bool) -> None:
        target, sealed, named = self._target(key), self._sealed(key), dict([condition])
        try:
            if in_parts:
                self._parts(target, sealed).put(memoryview(body), named)
            else:
                self._once.put_object(**target, **sealed, Body=body, ChecksumCRC32=crc32_of(body), **named)
        except PartsMissing as error:
            raise self._place.unavailable("PutObject in parts", key, error.__cause__) from error
        except S3Error as error:
            raise self._place.conditional_error(condition[0], key, error) from error

    def _check_honoured(self, name: str, *, in_parts: bool) -> None:
        """Check that the store refuses a conditional put whose condition does not hold. The check runs once for each
        kind of conditional put.

        A store that ignores conditions answers 200, and two writers would both succeed. Raises Unavailable.
        """
        kind = f"{name} of {'CompleteMultipartUpload' if in_parts else 'PutObject'}"
        if kind in self._honoured:
            return
        key, wrong = CONDITIONS_KEY, ABSENT if name == ABSENT[0] else (name, NO_VERSION)
        before = self._requests.made
        try:
            for _ in range(1 + (wrong is ABSENT)):  # the first process creates the object
                self._send_conditionally(key, CONDITIONS_BODY, wrong, in_parts=in_parts)
        except CommitConflict:
            self._honoured.add(kind)
        except CommitStateUnknown as error:
            raise self._place.unavailable(kind, key, error.__cause__ or error) from error
        else:
            raise self._place.refused(kind, key, f"the store ignores {name}", CONDITIONS)
        finally:
            self._requests.probing += self._requests.made - before


def _ms(moment: datetime) -> int:
    """Convert a time to milliseconds since the Unix epoch."""
    return int(moment.timestamp() * 1_000)


def _is_sound(body: bytes, answer: dict[str, Any]) -> bool:
    """Whether the body matches the checksum of the whole object. Also True if the answer is a range, or has no such
    checksum: one of parts ("…-3") cannot be compared."""
    stated = answer.get("ChecksumCRC32", "-")
    return "ContentRange" in answer or "-" in stated or stated == crc32_of(body)
