"""Missing and damaged files: the watermark stands still, status, log and metric say why, nothing is skipped, the other
tenants go on; the missing file, a repair in place, or a new chain heals it, and then every event is there."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from support import golden, plain_http
from support.compare import content, shown, tenant_differences
from support.effort import FULL, cases
from support.faults import DAMAGES, a_file_in_the_middle, replaced, whole_scan
from support.golden import Delivery, GoldenSet
from support.platform import Platform
from support.pull import Consumer
from support.waiting import PATIENCE_S, eventually

# Tests of the format, the dispatcher and the sorter show each damage. Here: one that the dispatcher finds, and one that
# the sorter finds.
FEW = ("truncated", "changes-flipped")
TRIED = cases(FEW, [damage for damage in DAMAGES if damage not in FEW])
SET = "everything" if FULL else "large"  # which takes a third of the time


def held_by(consumer: Consumer, stage: str, object_key: str) -> dict[str, Any]:
    """Wait until the status says that this object holds the tenant, at this stage; what it says."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        status = consumer.status()
        held = status["held_by"]
        if held is not None and (held["stage"], held["object"]) == (stage, object_key):
            assert set(held) == {"stage", "store_id", "region_id", "object", "reason"}
            assert held["reason"]
            return dict(held)
        assert time.monotonic() < deadline, status
        time.sleep(0.2)


def stands_below(consumer: Consumer, ts: int, seconds: float = 2.0) -> None:
    """The tenant's resolved_ts stays below ts, and so does everything that is pulled."""
    time.sleep(seconds)
    status = consumer.status()
    assert int(status["resolved_ts"]) < ts, status


def complete(loaded: GoldenSet, consumer: Consumer) -> None:
    """Everything is there, and right."""
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


def a_prefix(loaded: GoldenSet, consumer: Consumer, whole: list[str]) -> None:
    """What can be pulled now is the beginning of what will be."""
    now = content(consumer.page(start_ts=loaded.snapshot_ts, limit=100_000).events)
    assert now == whole[: len(now)]


@pytest.fixture(scope="module")
def healthy(up: Platform) -> list[str]:
    """A sound tenant, pushed beside the others: its content is what the others' must become."""
    loaded = golden.load_as(SET, "9", "healthy")
    golden.push(loaded.deliveries, up.objects)
    consumer = up.create_for(loaded)
    return content(consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000))


@pytest.fixture(scope="module")
def counted(up: Platform, healthy: list[str]) -> float:
    """Damages before any of these."""
    return damages_counted(up)


@pytest.fixture(scope="module")
def damaged(up: Platform, healthy: list[str], counted: float) -> dict[str, tuple[GoldenSet, Delivery, Consumer]]:
    """One tenant for each damage, with the damaged file's sound original; all pushed at once. In the soak a sound one
    is pushed after them: once the platform has worked through that, what it says of the others is not late."""
    tenants: dict[str, tuple[GoldenSet, Delivery, Consumer]] = {}
    for damage in TRIED:
        loaded = golden.load_as(SET, "9", f"damaged-{damage}")
        victim = a_file_in_the_middle(loaded)
        golden.push([loaded.schema_snap, *replaced(loaded.files, victim.key, DAMAGES[damage])], up.objects)
        tenants[damage] = loaded, victim, up.create_for(loaded)
    if FULL:
        last = golden.load_as(SET, "9", "last")
        golden.push(last.deliveries, up.objects)
        assert (
            content(up.create_for(last).pull(until_ts=last.end_ts, start_ts=last.snapshot_ts, limit=100_000)) == healthy
        )
    return tenants


def test_a_missing_file_is_named_and_waited_for(up: Platform, healthy: list[str]) -> None:
    loaded = golden.load_as(SET, "9", "missing")
    missing = a_file_in_the_middle(loaded)
    golden.push([loaded.schema_snap, *(file for file in loaded.files if file.key != missing.key)], up.objects)
    consumer = up.create_for(loaded)
    held = held_by(consumer, "push", missing.key)
    assert held["store_id"] == "2"
    stands_below(consumer, loaded.end_ts)
    a_prefix(loaded, consumer, healthy)
    golden.put(up.objects, missing)
    complete(loaded, consumer)
    eventually(lambda: (consumer.status()["held_by"] or {}).get("object") != missing.key)


def test_a_silent_store_holds_with_its_region(up: Platform) -> None:
    """The last files of a store never come: nobody can know their names, but a region is late."""
    loaded = golden.load_as("large", "9", "silent")
    tail = {file.key for file in loaded.chain(2)[-5:]}
    golden.push([loaded.schema_snap, *(file for file in loaded.files if file.key not in tail)], up.objects)
    consumer = up.create_for(loaded)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        held = consumer.status()["held_by"]
        if held is not None and held["stage"] == "push" and held["region_id"] is not None:
            break
        assert time.monotonic() < deadline, consumer.status()
        time.sleep(0.2)
    stands_below(consumer, loaded.end_ts)
    golden.push([file for file in loaded.files if file.key in tail], up.objects)
    complete(loaded, consumer)


@pytest.mark.parametrize("damage", TRIED)
def test_a_damaged_file_holds_its_store(
    up: Platform, healthy: list[str], damaged: dict[str, tuple[GoldenSet, Delivery, Consumer]], damage: str
) -> None:
    loaded, victim, consumer = damaged[damage]
    held = held_by(consumer, "damaged", victim.key)
    assert held["store_id"] == "2"
    stands_below(consumer, loaded.end_ts, seconds=0.5)
    a_prefix(loaded, consumer, healthy)
    eventually(lambda: [line for line in up.log_text().splitlines() if victim.key in line])


def test_damaged_files_are_counted(
    up: Platform, damaged: dict[str, tuple[GoldenSet, Delivery, Consumer]], counted: float
) -> None:
    eventually(lambda: damages_counted(up) >= counted + len(damaged))


@pytest.fixture(scope="module")
def repaired(
    up: Platform, damaged: dict[str, tuple[GoldenSet, Delivery, Consumer]]
) -> dict[str, tuple[GoldenSet, Consumer]]:
    """The damaged files replaced by sound ones, in place."""
    for _, victim, _ in damaged.values():
        golden.put(up.objects, victim)
    return {damage: (loaded, consumer) for damage, (loaded, _, consumer) in damaged.items()}


@pytest.mark.parametrize("damage", TRIED)
def test_a_repair_in_place_heals_the_store(repaired: dict[str, tuple[GoldenSet, Consumer]], damage: str) -> None:
    complete(*repaired[damage])


def damages_counted(up: Platform) -> float:
    """Quarantines and damaged files that the services have counted so far."""
    urls = [f"http://127.0.0.1:{port}/metrics" for port in up.ports().values()]
    texts = [plain_http.get(url, headers=up.service_headers()).text for url in urls]
    found = re.findall(r"^tistream_\w+_(?:quarantines|damaged_files)_total (\S+)$", "\n".join(texts), re.MULTILINE)
    assert len(found) == 2, "the dispatcher's and the sorter's"
    return sum(map(float, found))


def test_a_new_chain_ends_a_quarantine(up: Platform, healthy: list[str]) -> None:
    """The damaged file is lost for good: a scan of everything, as a new chain of the store, closes the gap."""
    loaded = golden.load_as(SET, "9", "new-chain")
    victim = a_file_in_the_middle(loaded)
    golden.push([loaded.schema_snap, *replaced(loaded.files, victim.key, DAMAGES["truncated"])], up.objects)
    consumer = up.create_for(loaded)
    held_by(consumer, "damaged", victim.key)
    golden.put(up.objects, whole_scan(loaded, store_id=2, ts=loaded.end_ts + 1_000))
    complete(loaded, consumer)
    deadline = time.monotonic() + PATIENCE_S
    while (held := consumer.status()["held_by"]) is not None and held["stage"] == "damaged":
        assert time.monotonic() < deadline, held
        time.sleep(0.2)


def test_a_scan_of_what_is_there_already_changes_nothing(up: Platform, healthy: list[str]) -> None:
    loaded = golden.load_as(SET, "9", "healthy")
    consumer = up.consumer(loaded.tenant)
    scan = whole_scan(loaded, store_id=5, ts=loaded.end_ts + 1_000)
    golden.put(up.objects, scan)
    read = {"store_id": "5", "last_file_ts": str(scan.store_and_ts[1])}
    eventually(lambda: any(read.items() <= store.items() for store in consumer.get("/placement")["stores"]))
    time.sleep(3)  # whatever it changes has had its time
    complete(loaded, consumer)
    eventually(lambda: (consumer.status()["held_by"] or {"stage": "push"})["stage"] == "push")


# One that is missing: e2e/test_e2e_arrival.py too.
@pytest.mark.parametrize("damage", cases(["no-json"], ["missing", "wrong-version"]))
def test_a_schema_snapshot_that_is_missing_or_damaged(up: Platform, damage: str) -> None:
    loaded = golden.load_as("large", "9", f"snap-{damage}")
    golden.push(loaded.files, up.objects)
    if damage != "missing":
        data = b"{" if damage == "no-json" else loaded.schema_snap.data.replace(b'"version":1', b'"version":9', 1)
        assert data != loaded.schema_snap.data
        golden.put(up.objects, golden.Delivery(0, loaded.schema_snap.key, data))
    consumer = up.create_for(loaded)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        held = consumer.status()["held_by"]
        if held is not None and held["object"] == loaded.schema_snap.key:
            break
        assert time.monotonic() < deadline, consumer.status()
        time.sleep(0.2)
    golden.put(up.objects, loaded.schema_snap)
    complete(loaded, consumer)
