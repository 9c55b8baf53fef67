"""A pull whose client has gone reads no further row group, unless another pull waits for the same rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from starlette.requests import ClientDisconnect

from support.pull_world import World, golden_world
from support.waiting import PATIENCE_S, eventually
from tistream.read import group_cache
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Budget
from tistream.read.source import TenantSource
from tistream.read.source_contract import Alive, Batch
from tistream_api.pull.wanted import wanted
from tistream_api.request.params import ALL

WHOLE, CROWDED = Budget(), Budget(512, 512)  # two transactions of the set have more rows


class Client:
    """A client that may leave."""

    def __init__(self) -> None:
        self.left = False

    def alive(self) -> None:
        if self.left:
            raise ClientDisconnect


class Reads:
    """The row groups that were read from segments; `hook` is called with their number so far, before each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.hook, self._lock = 0, lambda number: None, threading.Lock()
        read = group_cache.read_row_group

        def counting(*asked):  # type: ignore[no-untyped-def]
            with self._lock:
                self.count += 1
                number = self.count
            self.hook(number)
            return read(*asked)

        monkeypatch.setattr(group_cache, "read_row_group", counting)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything", tasks=2, ticks=4)


def batches(world: World, alive: Alive, budget: Budget = WHOLE) -> Iterator[Batch]:
    """Of a pull of everything, with a cache of its own that holds one row group."""
    return scanned(source_of(world, GroupCache(world.objects, 1)), world, alive, budget)


def source_of(world: World, cache: GroupCache) -> TenantSource:
    return TenantSource(threading.RLock(), lambda: world.history, lambda: world.indexes, cache, lambda: None)


def scanned(source: TenantSource, world: World, alive: Alive, budget: Budget = WHOLE) -> Iterator[Batch]:
    start = Position(world.snapshot_ts)
    return wanted(ALL, source, Scope(world.tenant), start, world.end_ts, budget, alive)


def leaves_at(client: Client, number: int) -> Callable[[int], None]:
    def hook(count: int) -> None:
        client.left = client.left or count >= number

    return hook


@pytest.mark.parametrize("budget", [WHOLE, CROWDED], ids=["chunks", "pieces of transactions"])
def test_no_row_group_is_read_after_the_client_has_gone(world: World, reads: Reads, budget: Budget) -> None:
    """Nor of a transaction that is read piece by piece, all of which is checked before its first event."""
    crowds = [reads.count for batch in batches(world, Client().alive, budget) if batch.crowd is not None]
    assert bool(crowds) == (budget is CROWDED)
    whole = reads.count
    for last in (1, whole // 2, whole - 1, *(at + step for at in crowds[:1] for step in (-1, 1))):
        client, reads.count = Client(), 0
        reads.hook = leaves_at(client, last)
        with pytest.raises(ClientDisconnect):
            list(batches(world, client.alive, budget))
        assert reads.count == last


class Pull:
    """A pull on a thread of its own, which ends with the number of its batches, or because its client has gone."""

    def __init__(self, source: TenantSource, world: World) -> None:
        self.client, self.ended = Client(), list[int | type[BaseException]]()
        self._source, self._world = source, world
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.ended.append(sum(1 for _ in scanned(self._source, self._world, self.client.alive)))
        except ClientDisconnect as error:
            self.ended.append(type(error))


class Shared:
    """Pulls of the same, of which the first begins to read its second row group and waits there until it is told."""

    def __init__(self, world: World, reads: Reads) -> None:
        self.reads, self.go = reads, threading.Event()
        reads.hook = lambda number: None if number == 1 or self.go.wait(PATIENCE_S) else pytest.fail("nothing is told")
        cache = GroupCache(world.objects, 1)
        source = source_of(world, cache)
        self.first = Pull(source, world)
        eventually(lambda: reads.count == 2, pause_s=0)
        self.second = Pull(source, world)
        eventually(lambda: [one.waiting for one in cache.work._making.values()] == [1], pause_s=0)

    def end(self) -> None:
        self.go.set()
        for one in (self.first, self.second):
            one.thread.join(PATIENCE_S)


def test_rows_are_read_on_for_the_pull_that_waits_for_them(world: World, reads: Reads) -> None:
    whole = sum(1 for _ in batches(world, Client().alive))
    alone, reads.count = reads.count, 0
    shared = Shared(world, reads)
    shared.first.client.left = True
    shared.end()
    assert shared.first.ended == [ClientDisconnect]
    assert shared.second.ended == [whole]
    assert reads.count == alone


def test_of_two_pulls_of_the_same_that_have_both_gone_nothing_is_read(world: World, reads: Reads) -> None:
    shared = Shared(world, reads)
    shared.first.client.left = shared.second.client.left = True
    eventually(lambda: shared.second.ended == [ClientDisconnect], pause_s=0)
    assert not shared.first.ended, "it reads still"
    shared.end()
    assert shared.first.ended == [ClientDisconnect]
    assert reads.count == 2
