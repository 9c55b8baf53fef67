"""What tenants have used, as the meta database keeps it: reports come twice, late, in any order, and add up."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.storage.measured import KINDS
from tistream.wire.usage import HOUR_MS, CountedUsage, Intake, StoredUsage, Usage, UsageReport
from tistream_meta.database.repository import Repository
from tistream_meta.database.usage_book import UsageBook

ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")
TEN, ELEVEN = 10 * HOUR_MS, 11 * HOUR_MS


@pytest.fixture
def usage(database_url: str) -> Iterator[UsageBook]:
    repository = Repository.open(database_url, "meta-1")
    repository.prepare()
    repository.take_ownership(60_000, "http://here")
    for key in (ACME, OTHER):
        repository.create_tenant(key)
    yield repository.usage
    repository.close()


def counted(served: int, hour_ms: int = TEN, tenant: TenantKey = ACME, **requests: int) -> CountedUsage:
    return CountedUsage(
        cluster_id=tenant.cluster_id,
        tenant_id=tenant.tenant_id,
        hour_ms=hour_ms,
        bytes_served=served,
        rows_served=served // 10,
        requests=requests,
    )


def intake(size: int, hour_ms: int = TEN) -> Intake:
    return Intake(cluster_id="7", tenant_id="acme", hour_ms=hour_ms, bytes_in=size)


def stored(task: int, manifest: int, bytes_of: dict[int, int], hour_ms: int = TEN) -> StoredUsage:
    names = {"cluster_id": "7", "tenant_id": "acme", "hour_ms": hour_ms}
    return StoredUsage(**names, task_id=task, manifest=manifest, bytes_of=bytes_of)


def report(node: str = "api-1", instance: str = "i1", **told: list) -> UsageReport:
    return UsageReport(node_id=node, instance=instance, **told)


def of(usage: UsageBook, tenant: TenantKey = ACME, from_ms: int = 0, to_ms: int = 100 * HOUR_MS) -> Usage:
    return usage.of_tenant(tenant, from_ms, to_ms)


def test_each_start_of_each_process_adds(usage: UsageBook) -> None:
    usage.take(report(counted=[counted(100, get=5, put_if=2), counted(30, ELEVEN), counted(7, tenant=OTHER)]))
    usage.take(report(instance="i2", counted=[counted(1, get=1)]))  # started again under its name
    usage.take(report("api-2", "i3", counted=[counted(2, list=4)]))
    found = of(usage)
    assert [(hour.hour, hour.bytes_served) for hour in found.hours] == [
        ("1970-01-01T10:00:00Z", "103"),
        ("1970-01-01T11:00:00Z", "30"),
    ]
    assert found.hours[0].requests == {**dict.fromkeys(KINDS, "0"), "get": "6", "put_if": "2", "list": "4"}
    assert (found.total.bytes_served, found.total.rows_served) == ("133", "13")
    assert of(usage, OTHER).total.bytes_served == "7"


def test_repeats_and_late_reports_change_nothing(usage: UsageBook) -> None:
    told = [report(counted=[counted(size, get=size)], intake=[intake(size)]) for size in (10, 20, 30, 40)]
    order = [*told, *told]
    random.Random(5).shuffle(order)
    for one in order:
        usage.take(one)
    total = of(usage).total
    assert (total.bytes_served, total.rows_served, total.bytes_in, total.requests["get"]) == ("40", "4", "40", "40")


def test_what_manifests_tell_counts_once_whoever_tells_it(usage: UsageBook) -> None:
    usage.take(report("sorter-1", "i1", intake=[intake(500)]))
    usage.take(report("sorter-2", "i9", intake=[intake(700), intake(5, ELEVEN)]))  # it has the task now
    usage.take(report("sorter-1", "i1", intake=[intake(600)]))  # late
    found = of(usage)
    assert [hour.bytes_in for hour in found.hours] == ["700", "5"]
    assert found.total.bytes_in == "705"


def test_of_what_is_stored_the_newest_manifest_tells(usage: UsageBook) -> None:
    usage.take(report(stored=[stored(1, 4, {1: 100}), stored(2, 9, {2: 50})]))
    usage.take(report(stored=[stored(1, 5, {1: 80})]))
    usage.take(report(stored=[stored(1, 3, {1: 999})]))  # late
    usage.take(report(stored=[stored(1, 6, {}, ELEVEN), stored(2, 9, {2: 50}, ELEVEN)]))
    found = of(usage)
    assert [hour.bytes_stored for hour in found.hours] == ["130", "50"]
    assert found.total.bytes_stored == "180"  # byte-hours
    usage.take(report(counted=[counted(1, 12 * HOUR_MS)]))
    assert of(usage).hours[2].bytes_stored is None  # nobody told


def test_what_heirs_share_is_stored_once(usage: UsageBook) -> None:
    shared = {1: 1_000}
    usage.take(report("sorter-1", "i1", stored=[stored(1, 20, shared), stored(2, 2, shared | {2: 7})]))
    usage.take(report("sorter-2", "i2", stored=[stored(3, 2, shared | {3: 9})]))
    assert of(usage).total.bytes_stored == "1016"
    usage.take(report("sorter-2", "i2", stored=[stored(3, 3, {1: 400, 3: 9})]))  # retention takes some of it
    assert of(usage).total.bytes_stored == "1016"
    usage.take(report("sorter-1", "i1", stored=[stored(2, 3, {2: 7}, ELEVEN)]))
    usage.take(report("sorter-2", "i2", stored=[stored(3, 4, {1: 400, 3: 9}, ELEVEN)]))
    assert of(usage).hours[1].bytes_stored == "416"


def test_only_the_hours_that_are_asked_for(usage: UsageBook) -> None:
    hours = [number * HOUR_MS for number in range(1, 6)]
    usage.take(report(counted=[counted(10, hour) for hour in hours], stored=[stored(1, 1, {1: 5}, h) for h in hours]))
    found = of(usage, from_ms=hours[1], to_ms=hours[3])
    assert [int(hour.hour_ms) for hour in found.hours] == hours[1:3]
    assert (found.total.bytes_served, found.total.bytes_stored) == ("20", "10")
    assert of(usage, from_ms=hours[1] + 1, to_ms=hours[1] + 1).hours == []
    with pytest.raises(UnknownName):
        of(usage, TenantKey("7", "nobody"))


def test_old_hours_are_forgotten(usage: UsageBook) -> None:
    hours = [number * HOUR_MS for number in range(1, 5)]
    usage.take(report(counted=[counted(10, hour) for hour in hours], stored=[stored(1, 1, {1: 5}, h) for h in hours]))
    assert usage.forget(hours[2]) == 4
    assert usage.forget(hours[2]) == 0
    assert [int(hour.hour_ms) for hour in of(usage).hours] == hours[2:]


def test_what_is_stored_now(usage: UsageBook) -> None:
    assert usage.stored_now(ACME, TEN) is None
    usage.take(report(stored=[stored(1, 4, {1: 100}), stored(1, 5, {1: 70}, ELEVEN)]))
    assert usage.stored_now(ACME, ELEVEN + 5) == 70
    assert usage.stored_now(ACME, ELEVEN + 50 * HOUR_MS) is None


def test_what_is_stored_now_has_every_task_though_an_hour_begins_with_one_report(usage: UsageBook) -> None:
    usage.take(report(stored=[stored(1, 4, {1: 100}), stored(2, 7, {2: 50})]))
    usage.take(report("sorter-2", "i2", stored=[stored(1, 5, {1: 70}, ELEVEN)]))
    assert usage.stored_now(ACME, ELEVEN + 5) == 120
    usage.take(report(stored=[stored(2, 8, {}, ELEVEN)]))
    assert usage.stored_now(ACME, ELEVEN + 10_000) == 70, "retention has dropped all of it"


def test_what_children_share_is_stored_once_now_too(usage: UsageBook) -> None:
    usage.take(report(stored=[stored(1, 20, {1: 1_000})]))
    usage.take(report(stored=[stored(2, 2, {1: 1_000, 2: 7}, ELEVEN)]))
    assert usage.stored_now(ACME, ELEVEN + 5) == 1_007, "the other child has not been reported yet"
    usage.take(report("sorter-2", "i2", stored=[stored(3, 2, {1: 400, 3: 9}, ELEVEN)]))
    assert usage.stored_now(ACME, ELEVEN + 10_000) == 1_016
