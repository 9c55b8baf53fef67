"""Objects of a tenant with a key of its own: encrypted with it whatever way they are put, and refused in words of their
own when it cannot be used. On a real MinIO whose keys are a real KES's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from support import kes as kes_server
from support import minio as minio_server
from support.kes import Kes
from support.minio import Minio
from tistream.errors import CommitConflict, KeyUnusable, NotFoundYet, Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.backends.s3 import S3ObjectStore
from tistream.storage.backends.tenant_keys import TenantKeys, keys_of
from tistream.storage.object_store import ObjectStore

ACME, BETA, PLAIN = TenantKey("7", "acme"), TenantKey("7", "beta"), TenantKey("7", "plain")
BODY = b"row" * 1000
LARGE = b"x" * (6 << 20)


@pytest.fixture(scope="module")
def kes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kes]:
    with kes_server.running(tmp_path_factory.mktemp("kes")) as server:
        yield server


@pytest.fixture(scope="module")
def keyed(kes: Kes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio_server.running(tmp_path_factory.mktemp("minio"), kms=kes.environ) as server:
        yield server


@pytest.fixture
def store(keyed: Minio, kes: Kes) -> S3ObjectStore:
    """A bucket, and tenants with new keys: acme-N, beta-N."""
    made = keyed.store(keyed.new_bucket(), "some/prefix/", multipart_bytes=5 << 20, part_bytes=5 << 20)
    number = len(list(kes.directory.glob("keys/*")))
    keys = {tenant: kes.create(f"{tenant.tenant_id}-{number}") for tenant in (ACME, BETA)}
    made.keys.update({**keys, PLAIN: None})
    return made


def key_of(keyed: Minio, store: S3ObjectStore, key: str) -> str | None:
    """What an object is encrypted with, as the store says."""
    found = keyed.client().head_object(**store._target(key)).get("SSEKMSKeyId")
    return None if found is None else str(found).rpartition(":")[2]


def manifest(tenant: TenantKey, number: int) -> str:
    return layout.manifest(tenant, 1, number)


def put_all_ways(store: ObjectStore, tenant: TenantKey) -> list[str]:
    """Each put that there is, small and in parts; the objects' keys."""
    keys = [manifest(tenant, number) for number in range(1, 6)]
    store.put(keys[0], BODY)
    store.put(keys[1], memoryview(LARGE))
    store.put_new(keys[2], BODY)
    store.put_new(keys[3], LARGE)
    store.put_new(keys[4], b"old")
    store.put_if(keys[4], BODY, store.head(keys[4]).version)
    return keys


def test_every_put_bears_the_tenants_key(keyed: Minio, store: S3ObjectStore) -> None:
    for tenant in (ACME, BETA, PLAIN):
        for key in put_all_ways(store, tenant):
            assert key_of(keyed, store, key) == store.keys.known(tenant), key
            assert store.get(key) in (BODY, LARGE)


def test_what_belongs_to_no_tenant_is_as_the_bucket_has_it(keyed: Minio, store: S3ObjectStore) -> None:
    store.put("a/b", BODY)
    assert key_of(keyed, store, "a/b") is None


def test_a_changed_key_concerns_new_objects_and_old_ones_stay_readable(
    keyed: Minio, store: S3ObjectStore, kes: Kes
) -> None:
    first = store.keys.known(ACME)
    store.put(manifest(ACME, 1), BODY)
    second = kes.create(f"{first}-next")
    store.keys.update({ACME: second})
    store.put(manifest(ACME, 2), BODY)
    assert [key_of(keyed, store, manifest(ACME, number)) for number in (1, 2)] == [first, second]
    assert store.get(manifest(ACME, 1)) == store.get(manifest(ACME, 2)) == BODY


@pytest.mark.parametrize("how", ["taken", "denied"])
def test_a_key_that_cannot_be_used_is_named_and_stops_its_tenant_alone(
    store: S3ObjectStore, kes: Kes, how: str
) -> None:
    for tenant in (ACME, BETA):
        put_all_ways(store, tenant)
    name = store.keys.known(ACME)
    assert name is not None
    {"taken": kes.take, "denied": kes.deny}[how](name)
    calls: list[Callable[[], object]] = [
        lambda: store.get(manifest(ACME, 1)),
        lambda: store.get_range(manifest(ACME, 1), 1, 2),
        lambda: store.get_tail(manifest(ACME, 2), 9),
        lambda: store.put(manifest(ACME, 11), BODY),
        lambda: store.put(manifest(ACME, 12), LARGE),
        lambda: store.put_new(manifest(ACME, 13), BODY),
        lambda: store.put_new(manifest(ACME, 14), LARGE),
        lambda: store.put_if(manifest(ACME, 5), b"new", '"0"'),
    ]
    for number, call in enumerate(calls):
        with pytest.raises((KeyUnusable, CommitConflict)) as told:
            call()
        if number != len(calls) - 1:  # a condition that does not hold may be found first
            assert isinstance(told.value, KeyUnusable), number
            assert f"encryption key {name} of tenant 7/acme cannot be used: " in str(told.value)
    with pytest.raises(NotFoundYet):  # to ask for what is not there takes no key
        store.get(manifest(ACME, 99))
    assert store.get(manifest(BETA, 1)) == BODY
    store.put_new(manifest(BETA, 13), BODY)
    {"taken": kes.give_back, "denied": kes.allow}[how](name)
    assert store.get(manifest(ACME, 1)) == BODY
    for number in (11, 12, 13, 14):
        with pytest.raises(NotFoundYet):  # what was refused did not happen
            store.get(manifest(ACME, number))
        store.put_new(manifest(ACME, number), BODY)


def test_a_head_of_an_object_whose_key_is_gone_does_not_say_that_the_object_is(store: S3ObjectStore, kes: Kes) -> None:
    store.put(manifest(ACME, 1), BODY)
    name = store.keys.known(ACME)
    assert name is not None
    kes.take(name)
    with contextlib.suppress(KeyUnusable):
        assert store.head(manifest(ACME, 1)).size > 0


def test_nothing_is_written_of_a_tenant_of_which_nothing_was_told(store: S3ObjectStore) -> None:
    other = TenantKey("7", "other")
    for put in (store.put, store.put_new):
        with pytest.raises(Unavailable, match="7/other has a key of its own is not known here"):
            put(manifest(other, 1), BODY)
    with pytest.raises(NotFoundYet):
        store.get(manifest(other, 1))


def test_only_a_store_that_encrypts_is_told() -> None:
    keys = keys_of(MemoryObjectStore())
    keys.update({ACME: "k"})
    assert keys.ids_of([ACME, BETA]) == {ACME: "k"}
    assert TenantKeys().of_object(manifest(ACME, 1)) is None


@pytest.mark.parametrize(
    ("key", "tenant"),
    [
        (layout.schema_snap(ACME), ACME),
        (layout.change_file(ACME, 1, 5), ACME),
        (layout.segment(ACME, 5, 1, "ab", 1), ACME),
        (layout.pending_part(ACME, 5, 1, "ab", 1), ACME),
        (layout.floor(BETA, 5), BETA),
        (layout.schema_log(BETA, 1), BETA),
        (layout.schema_floor(BETA), BETA),
        ("tistream-conditional-put", None),
        ("other/" + layout.schema_floor(BETA), None),
        ("schema/cluster-7/Tenant-acme", None),
        ("schema/cluster-7/Tenant-../log", None),
    ],
)
def test_whose_object_it_is(key: str, tenant: TenantKey | None) -> None:
    assert layout.tenant_of(key) == tenant
