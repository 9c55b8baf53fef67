"""What the S3 client does beyond the contract: errors that help, parts, checksums, conditions that are not honoured."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import boto3
import pytest

from support.minio import Minio
from support.moto_server import Moto
from support.tls_wire import tls_wired
from support.wire import Fate, Wire, wired
from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject, InvalidRequest, NotFoundYet, Unavailable
from tistream.storage.backends import s3
from tistream.storage.backends.s3 import CONDITIONS_KEY, S3ObjectStore
from tistream.storage.measured import MeasuredObjectStore, Traffic

MIB = 1 << 20
PARTS = {"multipart_bytes": 5 * MIB, "part_bytes": 5 * MIB}
LARGE = random.Random(3).randbytes(11 * MIB)  # three parts
KEYS = {"region": "us-east-1", "access_key": "test", "secret_key": "test"}
Call = Callable[[S3ObjectStore], object]
CALLS: dict[str, Call] = {
    "GetObject": lambda store: store.get("a/b"),
    "HeadObject": lambda store: store.head("a/b"),
    "PutObject": lambda store: store.put("a/b", b"1"),
    "PutObject with IfNoneMatch": lambda store: store.put_new("a/b", b"1"),
    "PutObject with IfMatch": lambda store: store.put_if("a/b", b"1", '"etag"'),
    "PutObject in parts": lambda store: store.put("a/b", LARGE),
    "ListObjectsV2": lambda store: list(store.list_after("a/")),
    "DeleteObject": lambda store: store.delete("a/b"),
}


def test_a_prefix_ends_in_a_slash() -> None:
    with pytest.raises(InvalidRequest):
        S3ObjectStore("bucket", "env")


# --- errors tell what was asked for and the way out ------------------------------------------------------------------


@pytest.mark.parametrize("operation", CALLS)
def test_a_missing_bucket_is_no_missing_object(minio: Minio, operation: str) -> None:
    with pytest.raises(Unavailable, match=r"NoSuchBucket.*make the bucket, or correct the URL") as raised:
        CALLS[operation](minio.store("no-such-bucket", "env/", **PARTS))
    assert operation in str(raised.value)
    assert "s3://no-such-bucket/env/" in str(raised.value)
    assert minio.endpoint in str(raised.value)


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("wrong", [{"secret_key": "wrong-secret"}, {"access_key": "nobody"}], ids=["secret", "name"])
def test_wrong_credentials_are_said_to_be_wrong(minio: Minio, operation: str, wrong: dict[str, str]) -> None:
    bucket = minio.new_bucket()
    with pytest.raises(Unavailable, match="AWS_SECRET_ACCESS_KEY") as raised:
        CALLS[operation](minio.store(bucket, **wrong, **PARTS))
    assert operation in str(raised.value)


@pytest.mark.parametrize(("method", "operation"), [("GET", "GetObject"), ("PUT", "PutObject"), ("HEAD", "HeadObject")])
def test_what_may_not_be_done_is_named(minio: Minio, wire: Wire, method: str, operation: str) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint)
    wire.befall(method, Fate.REFUSED)
    with pytest.raises(Unavailable, match=rf"{operation} s3://.*\(403\).*grant s3:GetObject, s3:PutObject"):
        CALLS[operation](store)
    assert wire.made(method) == 1


def test_nobody_there_means_that_nothing_happened() -> None:
    store = S3ObjectStore("bucket", endpoint="http://127.0.0.1:9", connect_seconds=0.2, **KEYS)
    with pytest.raises(Unavailable, match="check that the URL's endpoint is right"):
        store.put_new("k", b"body")


def test_without_credentials_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, wire: Wire) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # The process's own session keeps the credentials of the first client that had some, a test before this one's say.
    monkeypatch.setattr(s3, "_session", boto3.session.Session)
    with pytest.raises(Unavailable, match="set AWS_ACCESS_KEY_ID"):
        S3ObjectStore("bucket", endpoint=wire.endpoint, region="us-east-1").put_new("k", b"body")
    assert wire.requests == []


# --- conditions that the store does not honour -----------------------------------------------------------------------


def test_a_store_that_ignores_conditions_is_found_out_before_anything_is_written(moto: Moto) -> None:
    """moto ignores If-Match at the end of a multipart upload."""
    store = moto.store(moto.new_bucket(), **PARTS)
    store.put_new("k", b"1")
    with pytest.raises(Unavailable, match="the store ignores IfMatch; TiStream commits by PUTs with If-None-Match"):
        store.put_if("k", LARGE, store.head("k").version)
    assert store.get("k") == b"1"


def test_a_store_that_drops_headers_is_found_out_before_anything_is_written(moto: Moto) -> None:
    bucket = moto.new_bucket()
    with wired(moto.port) as wire:
        wire.drop_headers = {"if-none-match", "if-match"}
        store = moto.store(bucket, endpoint=wire.endpoint)
        for put in (lambda: store.put_new("k", b"1"), lambda: store.put_if("k", b"1", '"etag"')):
            with pytest.raises(Unavailable, match="the store ignores If"):
                put()
    assert [info.key for info in moto.store(bucket).list_after("")] == [CONDITIONS_KEY]


def test_a_store_that_refuses_conditions_is_told(minio: Minio, wire: Wire) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint)
    wire.befall("PUT", Fate.NOT_IMPLEMENTED)
    with pytest.raises(Unavailable, match=r"NotImplemented \(501\).*TiStream commits by PUTs with If-None-Match"):
        store.put_new("k", b"1")
    store.put_new("k", b"1")  # and it is asked again


def test_conditions_are_tried_once_for_a_process(minio: Minio, wire: Wire) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint)
    for number in range(3):
        store.put_new(f"k{number}", b"1")
        store.put_if(f"k{number}", b"2", store.head(f"k{number}").version)
    assert wire.made("PUT", CONDITIONS_KEY) == 3  # one made it, one for each condition was refused
    another = minio.store(wire.requests[0].path.split("/")[1], endpoint=wire.endpoint)
    another.put_new("k3", b"1")
    assert wire.made("PUT", CONDITIONS_KEY) == 4


# --- parts -----------------------------------------------------------------------------------------------------------


def test_large_objects_go_in_parts_and_others_do_not(minio: Minio, wire: Wire) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint, **PARTS)
    store.put("small", LARGE[: 5 * MIB - 1])
    assert (wire.made("PUT"), wire.made("begin")) == (1, 0)
    store.put("large", LARGE)
    assert [wire.made(step) for step in ("PUT", "begin", "part", "complete", "abort")] == [1, 1, 3, 1, 0]
    assert store.get("large") == LARGE


@pytest.mark.parametrize("step", ["begin", "part", "complete"])
def test_an_upload_that_fails_leaves_nothing(minio: Minio, wire: Wire, step: str) -> None:
    bucket = minio.new_bucket()
    store = minio.store(bucket, endpoint=wire.endpoint, **PARTS)
    store.put_new("before", LARGE)  # the condition has been tried
    wire.befall(step, *[Fate.REFUSED] * 2)
    with pytest.raises(Unavailable, match="AccessDenied"):
        store.put("k", LARGE)
    with pytest.raises(Unavailable, match="AccessDenied"):
        store.put_new("k", LARGE)
    assert minio.uploads_left(bucket, "k") == []
    assert wire.made("complete", "k") == (2 if step == "complete" else 0)
    with pytest.raises(NotFoundYet):
        store.get("k")


def test_an_upload_that_lost_its_race_leaves_nothing(minio: Minio) -> None:
    bucket = minio.new_bucket()
    store = minio.store(bucket, **PARTS)
    store.put_new("k", b"first")
    with pytest.raises(CommitConflict):
        store.put_new("k", LARGE)
    with pytest.raises(CommitConflict):
        store.put_if("k", LARGE, f'"{"1" * 32}"')
    assert minio.uploads_left(bucket, "k") == []
    assert store.get("k") == b"first"


def test_an_upload_that_cannot_be_aborted_is_named(minio: Minio, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    bucket = minio.new_bucket()
    store = minio.store(bucket, endpoint=wire.endpoint, **PARTS)
    wire.befall("part", Fate.REFUSED)
    wire.befall("abort", Fate.REFUSED)
    with pytest.raises(Unavailable):
        store.put("k", LARGE)
    (left,) = minio.uploads_left(bucket, "k")
    (said,) = [record for record in caplog.records if "abort" in record.message]
    assert (said.Key, said.UploadId) == ("k", left["UploadId"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("multipart_bytes", [16 * MIB, 64 * MIB], ids=["in parts", "whole"])
def test_a_large_body_is_not_copied(minio: Minio, multipart_bytes: int) -> None:
    store = minio.store(minio.new_bucket(), multipart_bytes=multipart_bytes, part_bytes=8 * MIB)
    store.put("warm", b"up")
    body = memoryview(bytearray(32 * MIB))
    tracemalloc.start()
    try:
        store.put("k", body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * MIB
    assert store.head("k").size == len(body)


def test_over_tls_a_connection_is_used_again(guarded: Minio) -> None:
    with tls_wired(guarded.port) as wire:
        store = guarded.store(guarded.new_bucket(), endpoint=wire.endpoint, **PARTS)
        store.put("k", LARGE)
        store.put("k", memoryview(b"a view"))
        store.put_new("l", b"1")
        made = wire.connections
        for number in range(5):
            store.put("k", memoryview(b"a view"))
            store.put_new(f"l{number}", b"1")
        store.put("k", LARGE)
        assert wire.connections == made


# --- checksums -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"some bytes" * 100, LARGE], ids=["whole", "parts"])
def test_a_body_damaged_on_its_way_back_is_read_again(minio: Minio, wire: Wire, body: bytes) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint, **PARTS)
    store.put("k", body)
    wire.befall("GET", Fate.DAMAGED)
    assert store.get("k") == body
    assert wire.made("GET", "k") == 2


@pytest.mark.parametrize("body", [b"some bytes" * 100, LARGE], ids=["whole", "parts"])
def test_a_body_that_stays_damaged_is_corrupt(minio: Minio, wire: Wire, body: bytes) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint, **PARTS)
    store.put("k", body)
    wire.befall("GET", *[Fate.DAMAGED] * 3)
    with pytest.raises(CorruptObject, match="checksum"):
        store.get("k")


@pytest.mark.parametrize(("step", "body"), [("PUT", b"some bytes" * 100), ("part", LARGE)], ids=["whole", "parts"])
def test_a_body_damaged_on_its_way_there_is_refused(minio: Minio, wire: Wire, step: str, body: bytes) -> None:
    bucket = minio.new_bucket()
    store = minio.store(bucket, endpoint=wire.endpoint, **PARTS)
    store.put_new("before", b"1")
    wire.befall(step, *[Fate.SPOILT] * 4)
    with pytest.raises(Unavailable):
        store.put_new("k", body)
    with pytest.raises(NotFoundYet):
        minio.store(bucket).get("k")


@pytest.mark.parametrize("body", [b"some bytes" * 100, LARGE], ids=["whole", "parts"])
def test_the_checksum_goes_with_the_body_and_stays_with_the_object(minio: Minio, body: bytes) -> None:
    """Signatures are no checksums: over TLS bodies are not signed."""
    bucket = minio.new_bucket()
    minio.store(bucket, **PARTS).put("k", body)
    told = minio.client().head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (len(told["ChecksumCRC32"]), told["ChecksumType"]) == (8, "FULL_OBJECT")


@pytest.mark.parametrize("at", [100, 3 * MIB], ids=["before the answer", "within it"])
def test_a_disk_that_rots_is_noticed(minio: Minio, at: int) -> None:
    bucket = minio.new_bucket()
    store = minio.store(bucket, **PARTS)
    store.put("k", LARGE)
    (part,) = (minio.data / bucket / "k").glob("*/part.1")
    damaged = bytearray(part.read_bytes())
    damaged[at] ^= 1
    part.write_bytes(damaged)
    with pytest.raises(Unavailable, match="GetObject s3://"):  # MinIO looks by itself
        store.get("k")


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_requests_are_counted_as_they_went_over_the_wire(minio: Minio, wire: Wire) -> None:
    store = MeasuredObjectStore(minio.store(minio.new_bucket(), endpoint=wire.endpoint, list_page=2, **PARTS))
    store.put("k", LARGE)
    assert store.traffic()["put"] == Traffic(requests=5, written_bytes=len(LARGE))
    wire.befall("part", Fate.SLOWED, Fate.SLOWED)
    store.put("l", LARGE)
    assert store.traffic()["put"] == Traffic(requests=12, failures=2, written_bytes=2 * len(LARGE))
    store.put_new("m", b"1234")
    assert store.traffic()["put_new"] == Traffic(requests=3, failures=1, written_bytes=4)  # it tried the condition
    with pytest.raises(CommitConflict):
        store.put_new("m", b"1234")
    assert store.traffic()["put_new"] == Traffic(requests=4, failures=2, written_bytes=4)
    wire.befall("GET", Fate.CUT)
    store.get("m")
    assert store.traffic()["get"] == Traffic(requests=2, failures=1, read_bytes=4)
    listing = store.list_after("")
    for _ in range(3):
        store.get(next(listing).key)  # calls in between are not the listing's
    assert store.traffic()["list"] == Traffic(requests=2)
    assert store.traffic()["get"].requests == 5
    with pytest.raises(InvalidRequest):
        store.get("../x")
    assert sum(kind.requests for kind in store.traffic().values()) == len(wire.requests)


# --- what is asked again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("GET", lambda store: store.get("k")),
        ("HEAD", lambda store: store.head("k")),
        ("GET", lambda store: list(store.list_after(""))),
        ("PUT", lambda store: store.put("k", b"2")),
        ("DELETE", lambda store: store.delete("k")),
        ("part", lambda store: store.put("k", LARGE)),
    ],
    ids=["get", "head", "list", "put", "delete", "part"],
)
@pytest.mark.parametrize("fate", [Fate.SLOWED, Fate.LOST, Fate.UNANSWERED])
def test_what_may_be_repeated_is(minio: Minio, wire: Wire, operation: str, call: Call, fate: Fate) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint, **PARTS)
    store.put("k", b"1")
    before = wire.made(operation)
    wire.befall(operation, fate)
    call(store)
    assert wire.made(operation) == before + (4 if operation == "part" else 2)


def test_a_store_that_stays_slow_is_unavailable(minio: Minio, wire: Wire) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint)
    wire.befall("GET", *[Fate.SLOWED] * 4)
    with pytest.raises(Unavailable, match=r"SlowDown \(503\).*overloaded"):
        store.get("k")
    assert wire.made("GET") == 4


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        (Fate.SLOWED, CommitStateUnknown),
        (Fate.LOST, CommitStateUnknown),
        (Fate.UNANSWERED, CommitStateUnknown),
        (Fate.CONFLICTING, CommitStateUnknown),
        (Fate.REFUSED, Unavailable),
    ],
)
@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
def test_a_conditional_put_is_one_request(
    minio: Minio, wire: Wire, condition: str, fate: Fate, error: type[Exception]
) -> None:
    store = minio.store(minio.new_bucket(), endpoint=wire.endpoint)
    store.put_new("k", b"0")
    version = store.head("k").version
    store.put_if("k", b"1", version)
    version, before = store.head("k").version, len(wire.requests)
    wire.befall("PUT", fate)
    with pytest.raises(error):
        store.put_new("l", b"body") if condition == "If-None-Match" else store.put_if("k", b"body", version)
    assert [condition in request.headers for request in wire.requests[before:]] == [True]
