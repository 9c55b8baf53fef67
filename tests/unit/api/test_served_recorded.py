"""What readers were told is written for the sorters: seldom, and never lower than before."""

from __future__ import annotations

import pytest

from support.faulty_store import Fault, FaultyObjectStore
from tistream.clock import ManualClock
from tistream.follow.served_progress import EVERY_MS, ServedProgress
from tistream.format.served import Served, decode, encode
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore

TENANT = TenantKey("7", "acme")
KEY = layout.served(TENANT)
SNAPSHOT = 100


class World:
    """Some API servers that serve one tenant."""

    def __init__(self, servers: int = 1) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.objects = FaultyObjectStore(MemoryObjectStore())
        self.servers = [ServedProgress(self.objects, TENANT, self.clock) for _ in range(servers)]

    def tell(
        self, resolved_ts: int, flushed_ts: int = SNAPSHOT, *, server: int = 0, snapshot_ts: int = SNAPSHOT
    ) -> None:
        self.servers[server].record(snapshot_ts, resolved_ts, flushed_ts)

    @property
    def told(self) -> int | None:
        found = list(self.objects.list_after(KEY.rpartition("/")[0]))
        return decode(KEY, self.objects.get(KEY)).resolved_ts if found else None


def test_it_is_written_at_once_and_then_once_a_minute() -> None:
    world = World()
    world.tell(200)
    assert world.told == 200
    world.clock.advance(EVERY_MS - 1)
    world.tell(300)
    assert world.told == 200
    world.clock.advance(1)
    world.tell(300)
    assert world.told == 300


def test_what_a_manifest_holds_is_not_written() -> None:
    world = World()
    world.tell(200, flushed_ts=200)
    assert world.told is None
    world.tell(201, flushed_ts=200)
    assert world.told == 201


def test_of_several_servers_one_writes_and_none_lowers_it() -> None:
    world = World(servers=2)
    world.tell(300)
    world.tell(200, server=1)
    world.tell(400, server=1)
    assert world.told == 300
    world.clock.advance(EVERY_MS)
    world.tell(200, server=1)
    assert world.told == 300
    world.clock.advance(EVERY_MS)
    world.tell(400, server=1)
    world.tell(500)
    assert world.told == 400, "the other has just written"


def test_of_an_earlier_tenant_of_that_name_and_a_damaged_one_are_replaced() -> None:
    world = World()
    world.objects.put_new(KEY, encode(Served(900, 1_000, world.clock.now_ms())))
    world.tell(200)
    assert world.told == 200
    world.objects.put(KEY, b"damaged")
    world.clock.advance(EVERY_MS)
    world.tell(300)
    assert world.told == 300


@pytest.mark.parametrize("fault", list(Fault))
def test_a_write_that_fails_is_made_again_a_minute_later(fault: Fault) -> None:
    world = World()
    world.objects.plan.append(fault)
    world.tell(200)
    world.objects.deliver()
    world.clock.advance(EVERY_MS)
    world.tell(300)
    world.clock.advance(EVERY_MS)
    world.tell(400)
    assert world.told == 400
