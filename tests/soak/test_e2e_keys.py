"""Tenants with keys of their own, on a real MinIO whose key management is a real KES: what is written bears the key,
another key is for what comes after, and one that is taken away stops its tenant alone until it is back."""
# Attack: a tenant's KMS key revoked and restored at run time: other tenants continue; every object of the bucket is
#   checked

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from support import golden
from support import kes as kes_server
from support import minio as minio_server
from support.compare import shown, tenant_differences
from support.golden import GoldenSet
from support.kes import Kes
from support.minio import Minio
from support.pull import Consumer, Refused
from support.services import Services
from support.waiting import eventually
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.s3 import S3ObjectStore
from tistream.storage.object_store import ObjectStore

CACHE_MS = 1_000
SETTINGS = {
    "TISTREAM_SORTER__TICK__CHECKPOINT_EVERY": "4",
    "TISTREAM_SORTER__TICK__IDLE_MANIFEST_MS": "500",
    "TISTREAM_SORTER__COMPACT__FAN_IN": "2",
    "TISTREAM_API__KEYED_CACHE_MS": str(CACHE_MS),
}
OBJECTS = ("manifest/", "segment/", "pending/", "floor", "log/")


@pytest.fixture(scope="module")
def kes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kes]:
    with kes_server.running(tmp_path_factory.mktemp("kes")) as server:
        yield server


@dataclass
class Bucket:
    """One, and what is in it."""

    server: Minio
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def store(self) -> S3ObjectStore:
        """A writer of change files."""
        return self.server.store(self.name)

    def keys_of(self, tenant: TenantKey) -> dict[str, str | None]:
        """By object of a tenant's: what it is encrypted with."""
        client = self.server.client()
        found: dict[str, str | None] = {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.name):
            for one in page.get("Contents", ()):
                if layout.tenant_of(one["Key"]) == tenant:
                    try:
                        head = client.head_object(Bucket=self.name, Key=one["Key"])
                    except client.exceptions.ClientError as error:
                        if error.response["ResponseMetadata"]["HTTPStatusCode"] != httpx.codes.NOT_FOUND:
                            raise
                        continue  # it was deleted meanwhile
                    found[one["Key"]] = head.get("SSEKMSKeyId", "").rpartition(":")[2] or None
        return found


@pytest.fixture(scope="module")
def bucket(kes: Kes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with (
        minio_server.running(tmp_path_factory.mktemp("minio"), kms=kes.environ) as server,
        server.credentials(),
    ):
        yield Bucket(server, server.new_bucket())


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket) -> Iterator[Services]:
    services = Services(tmp_path_factory.mktemp("services"), ranges=2, objects_url=bucket.url, environ=SETTINGS)
    try:
        yield services.start()
        services.stop()
    except BaseException:
        print(services.report())
        raise
    finally:
        services.close()


@dataclass
class Tenant:
    """One whose golden set comes in parts; `source_key` is what its writers encrypt with."""

    up: Services
    objects: ObjectStore
    set: GoldenSet
    key: str | None
    source_key: str | None = None
    pushed: int = 0
    consumer: Consumer = field(init=False)  # which comes again when it is told to

    def __post_init__(self) -> None:
        if isinstance(self.objects, S3ObjectStore):
            self.objects.keys.update({self.set.tenant: self.source_key})
        self.objects.put(self.set.schema_snap.key, self.set.schema_snap.data)
        body = {"tenant_id": self.set.tenant.tenant_id, "kms_key_id": self.key}
        self.consumer = self.up.consumer(self.set.tenant)
        answer = self.consumer.client.post(f"{self.up.url}/v1/clusters/9/tenants", json=body)
        assert answer.status_code in (200, 201), answer.text  # 200: it was taken and answered 503, and asked again
        assert answer.json()["kms_key_id"] == self.key

    def push(self, until: float) -> None:
        """Up to this part of its files."""
        end = round(len(self.set.files) * until)
        for file in self.set.files[self.pushed : end]:
            self.objects.put(file.key, file.data)
        self.pushed = end

    def resolved_ts(self) -> int:
        return int(self.consumer.status()["resolved_ts"])

    def push_slowly(self, until: float, steps: int = 4) -> None:
        """The same, a step at a time, each of which its watermark follows: what is not settled waits in the store."""
        begin = self.pushed / len(self.set.files)
        for step in range(1, steps + 1):
            before = self.resolved_ts()
            self.push(begin + (until - begin) * step / steps)
            eventually(lambda before=before: self.resolved_ts() > before)  # type: ignore[misc]

    def is_as_far_as(self, other: Tenant) -> bool:
        """The same files have come of both."""
        assert self.pushed == other.pushed
        return self.resolved_ts() == other.resolved_ts()

    def level(self) -> None:
        """All its files are there, and every event is served."""
        eventually(lambda: self.resolved_ts() >= self.set.end_ts)
        self.check()

    def check(self) -> None:
        events = self.consumer.pull(until_ts=self.set.end_ts, start_ts=self.set.snapshot_ts, limit=100_000)
        problems = tenant_differences(self.set, events)
        assert not problems, shown(problems)

    def change_key(self, name: str | None) -> None:
        answer = self.consumer.client.put(f"{self.consumer.base}/encryption", json={"kms_key_id": name})
        assert (answer.status_code, answer.json()["kms_key_id"]) == (200, name), answer.text
        self.key = name

    def held_by_its_key(self) -> bool:
        """Whether status says so."""
        hold = self.consumer.status()["held_by"]
        return (
            hold is not None
            and f"encryption key {self.key} of tenant {self.set.tenant} cannot be used" in (hold["reason"])
        )


@pytest.fixture(scope="module")
def tenants(up: Services, bucket: Bucket, kes: Kes) -> list[Tenant]:
    """Two with a key each, of which the first has its source files under it too; and one without."""
    objects = bucket.store()
    made = []
    for name in ("first", "second", "plain"):
        key = None if name == "plain" else kes.create(f"key-{name}")
        loaded = golden.load_as("everything", "9", name)
        made.append(Tenant(up, objects, loaded, key, key if name == "first" else None))
    return made


def refusal(tenant: Tenant) -> tuple[int, str]:
    """Of a pull of what it had: the status, and which problem it was; (200, "") if there is none."""
    try:
        Consumer(tenant.up.url, tenant.set.tenant).page(start_ts=tenant.set.snapshot_ts, limit=10)
    except Refused as refused:
        return refused.status, refused.problem["type"]
    return 200, ""


def written_of(found: dict[str, str | None]) -> dict[str, str | None]:
    """What the platform has written."""
    return {key: kms for key, kms in found.items() if not key.startswith("data_change_buffer/")}


def lacking(found: dict[str, str | None]) -> list[str]:
    """Kinds of which there is no object."""
    return [kind for kind in OBJECTS if not any(kind in key for key in written_of(found))]


def everything_that_is_written_bears_its_tenants_key(bucket: Bucket, tenants: list[Tenant]) -> None:
    for tenant in tenants:
        tenant.push_slowly(0.4)
        eventually(lambda tenant=tenant: lacking(bucket.keys_of(tenant.set.tenant)) == [])  # type: ignore[misc]
        found = bucket.keys_of(tenant.set.tenant)
        written = written_of(found)
        assert set(written.values()) == {tenant.key}, written
        source = {kms for key, kms in found.items() if key not in written}
        assert source == {tenant.source_key}


def a_key_that_is_revoked_stops_its_tenant_alone_until_it_is_back(
    up: Services, kes: Kes, tenants: list[Tenant]
) -> None:
    held, *others = tenants
    assert held.key is not None
    assert len(held.consumer.page(start_ts=held.set.snapshot_ts, limit=10).events) == 10, "it is in the API's cache"
    kes.take(held.key)
    if isinstance(held.objects, S3ObjectStore):
        held.objects.keys.update({held.set.tenant: None})  # its writers have none any more
    for tenant in tenants:
        tenant.push(0.55)
    eventually(held.held_by_its_key)
    eventually(lambda: refusal(held) == (503, "tistream:key-unusable"))
    for tenant in others:
        eventually(lambda tenant=tenant: tenant.resolved_ts() > held.resolved_ts())  # type: ignore[misc]
    # What was on its way when the key went has come through while the others read more files.
    stands, reached = held.resolved_ts(), [tenant.resolved_ts() for tenant in others]
    for tenant in tenants:
        tenant.push(0.7)
    for tenant, before in zip(others, reached, strict=True):
        eventually(lambda tenant=tenant, before=before: tenant.resolved_ts() > before)  # type: ignore[misc]
        eventually(lambda tenant=tenant: refusal(tenant) == (200, ""))  # type: ignore[misc]
    assert held.resolved_ts() == stands
    kes.give_back(held.key)
    eventually(lambda: held.is_as_far_as(others[0]))
    eventually(lambda: refusal(held) == (200, ""))
    text = "\n".join((up.logs / f"{name}.log").read_text() for name in ("sorter", "schema", "dispatcher"))
    told = set(re.findall(r"encryption key (\S+) of tenant \S+ cannot be used", text))
    assert told == {held.key}, "the logs name that key and no other"


def another_key_is_for_what_comes_after_it(bucket: Bucket, kes: Kes, tenants: list[Tenant]) -> None:
    _, tenant, _ = tenants
    first, before = tenant.key, bucket.keys_of(tenant.set.tenant)
    tenant.change_key(kes.create(f"{first}-next"))
    # A process that knows a tenant which came later knows the key: both are told by the same table.
    later = Tenant(tenant.up, tenant.objects, golden.load_as("everything", "9", "later"), None)
    eventually(lambda: later.resolved_ts() >= later.set.snapshot_ts)
    tenant.push_slowly(1.0, steps=8)
    for one in tenants:
        one.push(1.0)
    for one in tenants:
        one.level()  # what the first key encrypts is read like the rest
    every = bucket.keys_of(tenant.set.tenant)
    for kind in ("manifest", "segment", "pending", "log"):
        came = {kms for key, kms in every.items() if f"/{kind}/" in key and key not in before}
        assert tenant.key in came, kind
        assert came <= {first, tenant.key}, kind
    found = {key: kms for key, kms in every.items() if "/manifest/" in key or "/log/" in key}
    assert set(found.values()) == {first, tenant.key}
    for task in {key.rpartition("/")[0] for key in found}:
        used = [kms for key, kms in sorted(found.items()) if key.startswith(task)]
        assert used == sorted(used, key=[first, tenant.key].index), "after the new one the old one is not used"


def test_the_life_of_tenants_keys(up: Services, bucket: Bucket, kes: Kes, tenants: list[Tenant]) -> None:
    """Each step pushes a part of the tenants' files."""
    everything_that_is_written_bears_its_tenants_key(bucket, tenants)
    a_key_that_is_revoked_stops_its_tenant_alone_until_it_is_back(up, kes, tenants)
    another_key_is_for_what_comes_after_it(bucket, kes, tenants)
