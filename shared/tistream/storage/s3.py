"""An S3 bucket (or MinIO, or anything that speaks it) as an object store. The only module that knows boto3."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
)

from tistream.errors import CommitConflict, CommitStateUnknown, InvalidRequest, NotFoundYet, TiStreamError, Unavailable
from tistream.storage.keys import MAX_KEY_BYTES, check_key
from tistream.storage.object_store import Body, ObjectInfo

READ_ATTEMPTS = 4
BODY_ATTEMPTS = 3  # botocore does not retry a body that breaks off
CONNECTIONS = 32
_MISSING = ("NoSuchKey", "404", "NotFound")
_NEVER_SENT = (EndpointConnectionError, ConnectTimeoutError, NoCredentialsError, ParamValidationError)

_SESSION_LOCK = threading.Lock()  # clients may be shared by threads, but not made by several at once


@functools.cache
def _session() -> boto3.session.Session:
    """One for the process: each parses S3's description anew, which takes a quarter of a second."""
    return boto3.session.Session()


class S3ObjectStore:
    """Implements ObjectStore; keys are kept below `prefix` (empty, or ending in "/"). Safe for many threads.

    Reads, listings, deletions and unconditional puts are retried by botocore; a conditional put is one request,
    since a hidden second one would answer 412 to its own first.
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
        list_page: int = 1000,
    ) -> None:
        if prefix and (not prefix.endswith("/") or len(prefix.encode()) > MAX_KEY_BYTES // 2):
            raise InvalidRequest(f"S3 prefix {prefix!r} must be short and end in a slash")
        self._bucket, self._prefix, self._list_page = bucket, prefix, list_page

        def client(attempts: int) -> Any:
            config = Config(
                retries={"total_max_attempts": attempts, "mode": "standard"},
                connect_timeout=connect_seconds,
                read_timeout=read_seconds,
                max_pool_connections=CONNECTIONS,
                s3={"addressing_style": "path"} if endpoint else None,
            )
            return _session().client(
                "s3",
                endpoint_url=endpoint,
                region_name=region,
                aws_access_key_id=access_key,
                aws_secret_access_key=secret_key,
                config=config,
            )

        with _SESSION_LOCK:
            self._client, self._once = client(READ_ATTEMPTS), client(1)

    def get(self, key: str) -> bytes:
        return self._read(key, None)[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if not length:
            self.head(key)
            return b""
        return self._read(key, f"bytes={start}-{start + length - 1}")[0]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        if not length:
            return b"", self.head(key).size
        return self._read(key, f"bytes=-{length}")

    def head(self, key: str) -> ObjectInfo:
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except (ClientError, BotoCoreError) as error:
            raise _read_error(key, error) from error
        return ObjectInfo(key, answer["ContentLength"], answer["ETag"])

    def put(self, key: str, body: Body) -> None:
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._name(key), Body=bytes(body))
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"cannot write {key}: {error}") from error

    def put_new(self, key: str, body: bytes) -> None:
        self._put_conditionally(key, body, {"IfNoneMatch": "*"})

    def put_if(self, key: str, body: bytes, version: str) -> None:
        self._put_conditionally(key, body, {"IfMatch": version})

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
                found = [ObjectInfo(o["Key"], o["Size"], o["ETag"]) for o in page.get("Contents", ())]
                found += [ObjectInfo(common["Prefix"], -1, "") for common in page.get("CommonPrefixes", ())]
                for info in sorted(found, key=lambda item: item.key):
                    key = info.key[len(self._prefix) :]
                    if key > after:  # stores differ on whether StartAfter concerns common prefixes
                        yield ObjectInfo(key, info.size, info.version)
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"cannot list {prefix!r}: {error}") from error

    def delete(self, key: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._name(key))
        except (ClientError, BotoCoreError) as error:
            raise Unavailable(f"cannot delete {key}: {error}") from error

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _read(self, key: str, byte_range: str | None) -> tuple[bytes, int]:
        """The body and the size of the whole object."""
        name = self._name(key)
        extra: dict[str, Any] = {"Range": byte_range} if byte_range else {}
        for attempt in range(1, BODY_ATTEMPTS + 1):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=name, **extra)
            except (ClientError, BotoCoreError) as error:
                if _status(error) == 416:  # the range begins at or beyond the end
                    return b"", self.head(key).size
                raise _read_error(key, error) from error
            try:
                body = answer["Body"].read()
            except (BotoCoreError, OSError) as error:
                if attempt == BODY_ATTEMPTS:
                    raise Unavailable(f"cannot read {key}: {error}") from error
                continue
            stated = answer.get("ContentRange", "").rpartition("/")[2]
            return body, int(stated) if stated.isdigit() else len(body)
        raise AssertionError("not reached")

    def _put_conditionally(self, key: str, body: bytes, condition: dict[str, Any]) -> None:
        try:
            self._once.put_object(Bucket=self._bucket, Key=self._name(key), Body=body, **condition)
        except (ClientError, BotoCoreError) as error:
            raise _conditional_error(key, error) from error


def _status(error: Exception) -> int:
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _read_error(key: str, error: Exception) -> TiStreamError:
    if isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") in _MISSING:
        return NotFoundYet(key)
    return Unavailable(f"cannot read {key}: {error}")


def _conditional_error(key: str, error: Exception) -> TiStreamError:
    """What an unsuccessful conditional put means: it lost, it did not happen, or nobody knows."""
    if not isinstance(error, ClientError):
        known = isinstance(error, _NEVER_SENT)
        return Unavailable(f"cannot write {key}: {error}") if known else CommitStateUnknown(key)
    code, status = error.response.get("Error", {}).get("Code", ""), _status(error)
    if status == 412 or code in _MISSING:  # If-Match on a key that is gone answers 404
        return CommitConflict(key)
    if 400 <= status < 500 and status not in (408, 409, 429):
        return Unavailable(f"cannot write {key}: {error}")
    return CommitStateUnknown(key)
