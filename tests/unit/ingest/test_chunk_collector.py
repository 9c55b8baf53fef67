"""Objects of backfills that have ended are deleted a day later, and those of running ones never."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from tistream.clock import ManualClock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.deleting import Deleter
from tistream.storage.object_store import ObjectInfo
from tistream.wire.bulk.backfills import BackfillRow, BackfillSource, State
from tistream_ingest.backfill.chunk_collector import ChunkCollector
from tistream_ingest.backfill.chunk_garbage import AGE_MS, garbage
from tistream_ingest.metrics import IngestMetrics

TENANT = TenantKey("7", "acme")


def backfill(backfill_id: str, state: State, ended_ms: int | None) -> BackfillRow:
    return BackfillRow(
        cluster_id="7", tenant_id="acme", backfill_id=backfill_id, source=BackfillSource(kind="push"),
        tables=["*.*"], state=state, created_ms=0, ended_ms=ended_ms,
    )  # fmt: skip


class FlakyStore(MemoryObjectStore):
    """Does not answer LISTs below `deaf`; records the keys that are deleted, in order, and the LISTs."""

    deaf = "nothing"

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.deleted: list[str] = []
        self.lists = 0

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        self.lists += 1
        if prefix.startswith(self.deaf):
            raise Unavailable("no answer")
        return super().list_after(prefix, after, delimiter)

    def delete(self, key: str) -> None:
        self.deleted.append(key)
        super().delete(key)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(1_000)
        self.objects = FlakyStore(self.clock)
        self.rows: list[BackfillRow] = []
        self.deleter = Deleter(self.objects)
        self.collector = ChunkCollector(
            self.objects, lambda: self.rows, self.deleter, self.clock, IngestMetrics(CollectorRegistry())
        )

    def write(self, backfill_id: str, *numbers: int) -> None:
        for number in numbers:
            self.objects.put(layout.base_chunk(TENANT, backfill_id, number), b"x")
        self.objects.put(layout.backfill_plan(TENANT, backfill_id), b"x")
        self.objects.put(layout.refused_chunk(TENANT, backfill_id, 0), b"x")

    def left(self, backfill_id: str) -> int:
        return len(list(self.objects.list_after(layout.backfill_prefix(TENANT, backfill_id))))


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.deleter.close()


@pytest.mark.parametrize("state", ["finished", "failed", "cancelled"])
def test_a_backfill_is_collected_a_day_after_its_end_and_the_plan_goes_first(world: World, state: State) -> None:
    world.write("b1", 0, 1)
    world.rows = [backfill("b1", state, 5_000)]
    world.clock.advance(AGE_MS + 3_999)
    world.collector.step()
    assert world.left("b1") == 4, "jobs that began before its end may still read its chunks"
    world.clock.advance(1)
    world.collector.step()
    assert world.left("b1") == 0
    assert world.objects.deleted[0] == layout.backfill_plan(TENANT, "b1")


def test_objects_of_a_running_backfill_stay_whatever_their_age(world: World) -> None:
    world.write("b1", 0)
    world.write("b10", 0)  # its prefix begins with the name of another one
    world.rows = [backfill("b1", "cancelled", 0), backfill("b10", "running", None)]
    world.clock.advance(100 * AGE_MS)
    world.collector.step()
    assert (world.left("b1"), world.left("b10")) == (0, 3)


def test_a_chunk_that_is_pushed_after_the_end_is_collected_when_it_is_a_day_old(world: World) -> None:
    world.write("b1", 0)
    world.rows = [backfill("b1", "cancelled", 0)]
    world.clock.advance(AGE_MS)
    world.objects.put(layout.base_chunk(TENANT, "b1", 7), b"x")
    world.collector.step()
    assert world.left("b1") == 1
    world.clock.advance(AGE_MS)
    world.collector.step()
    assert world.left("b1") == 0


def test_what_is_empty_is_not_listed_again_and_errors_of_one_do_not_stop_the_others(world: World) -> None:
    world.write("b1", 0)
    world.write("b2", 0)
    world.rows = [backfill("b1", "failed", 0), backfill("b2", "failed", 0)]
    world.clock.advance(AGE_MS)
    world.objects.deaf = layout.backfill_prefix(TENANT, "b1")
    world.collector.step()
    world.objects.deaf = "nothing"
    assert (world.left("b1"), world.left("b2")) == (3, 0)
    before = world.objects.lists
    world.collector.step()
    world.collector.step()
    assert world.left("b1") == 0
    assert world.objects.lists == before + 2, "one LIST of b1 here, one by the assertion"


def test_objects_of_a_store_without_a_clock_stay() -> None:
    assert garbage([("k", 0)], 1 << 50) == []
