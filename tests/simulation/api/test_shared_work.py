"""What many pulls want of a tenant is worked out once, and is for each what it would have been for it alone."""
# Attack: pulls that ask for work done for another scope, or for a tenant whose key is gone

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from support import golden
from support.effort import FULL, cases
from support.keyed_cache import KEEP_MS, KEYED, PLAIN, Locked, cache_of, group_of
from support.pull_world import World, committed, golden_world, history_of
from support.waiting import PATIENCE_S, eventually
from tistream.clock import ManualClock
from tistream.errors import Gone, KeyUnusable
from tistream.model.ts import MAX_TS, Window
from tistream.pool.rows import read_rows
from tistream.read import row_events, scan
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import Rows
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Budget, Scan
from tistream.read.shared_work import SharedResult, SharedWork
from tistream.read.source import TenantSource
from tistream.read.source_contract import Alive
from tistream_api.encode.ndjson import NdjsonEncoder


def never_over(until_ms: int | None) -> bool:
    return False


def pulled(source: TenantSource, world: World, start: Position, budget: Budget, *names: str) -> list[bytes]:
    found: list[bytes] = []
    for batch in Scan(source, Scope(world.tenant, *names), start, world.end_ts, budget).batches():
        found += b"".join(NdjsonEncoder().events(batch.events)).splitlines()
    return found


def source_of(world: World, cache: GroupCache, retained: Callable[[], int] = lambda: 0) -> TenantSource:
    return TenantSource(threading.RLock(), lambda: world.history, lambda: world.indexes, cache, lambda: None, retained)


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that were rendered, batch by batch."""
    counts: list[int] = []

    def counting(rows, shapes, op=None, *, numbered=False, moving=None, needed=None):  # type: ignore[no-untyped-def]
        counts.append(len(rows))
        return row_events.render(rows, shapes, op, numbered=numbered, moving=moving, needed=needed)

    monkeypatch.setattr(scan, "render", counting)
    return counts


@pytest.mark.parametrize("name", cases(["large"], ["everything"]))
def test_every_pull_is_told_what_it_would_be_told_alone(name: str, rendered: list[int]) -> None:
    """Of any scope, from any place, with any budget, in whatever order they come, among them those within a commit."""
    world, rng = golden_world(name, tasks=3), random.Random(7)
    shared = source_of(world, GroupCache(world.objects, 256 << 20))
    alone = source_of(world, GroupCache(world.objects, 1))
    cursors = [Position(world.snapshot_ts)]
    for batch in Scan(alone, Scope(world.tenant), cursors[0], world.end_ts, Budget()).batches():
        at = sorted({rng.randrange(len(batch.events)) for _ in range(6)} if len(batch.events) else ())
        cursors += [batch.events.position(place) for place in at]
    names: list[tuple[str, ...]] = [()]
    for database in alone.databases(world.end_ts):
        tables = alone.tables(world.end_ts, database) or []
        names += [(database,), *((database, one.name) for one in tables[:2])]
    budgets = [Budget(), Budget(500, 100, 1 << 20, 500), Budget(2_000, 2_000, 1 << 20, 500)]
    starts = [cursors[0], *rng.sample(cursors, 3), *(one for one in cursors if one.place is Place.ROW)][:7]
    made = {shared: 0, alone: 0}
    for _ in range(60 if FULL else 20):
        asked, told = (rng.choice(starts), rng.choice(budgets), *rng.choice(names[:3])), []
        for source in (shared, alone):
            rendered.clear()
            told.append(pulled(source, world, *asked))
            made[source] += sum(rendered)
        assert told[0] == told[1], asked
    assert made[shared] < made[alone] * 0.7


def test_a_second_pull_of_the_same_window_renders_nothing(rendered: list[int]) -> None:
    world = golden_world("everything", tasks=2)
    source = source_of(world, GroupCache(world.objects, 256 << 20))
    first = pulled(source, world, Position(world.snapshot_ts), Budget())
    made = len(rendered)
    assert sum(rendered) > 1_000
    assert pulled(source, world, Position(world.snapshot_ts), Budget()) == first
    assert sum(rendered[made:]) == 0


def test_another_source_makes_its_own(rendered: list[int]) -> None:
    """A view that was built anew may know of another history."""
    world = golden_world("everything")
    cache = GroupCache(world.objects, 256 << 20)
    for _ in range(2):
        pulled(source_of(world, cache), world, Position(world.snapshot_ts), Budget())
    assert len(rendered) % 2 == 0
    assert rendered[: len(rendered) // 2] == rendered[len(rendered) // 2 :]


def test_a_history_that_is_read_anew_is_asked_anew(rendered: list[int]) -> None:
    """It may say something else of the same window; and one that does not know all of it yet says nothing for good."""
    world = golden_world("everything")
    history = [history_of(golden.load("everything"), committed("everything")[0])]
    source = TenantSource(
        threading.RLock(),
        lambda: history[0],
        lambda: world.indexes,
        GroupCache(world.objects, 256 << 20),
        lambda: None,
    )
    pulled(source, world, Position(world.snapshot_ts), Budget())
    once = sum(rendered)
    history[0] = history_of(golden.load("everything"), committed("everything")[0])
    history[0].resolved_ts = world.end_ts - 1
    for times in (2, 3):
        pulled(source, world, Position(world.snapshot_ts), Budget())
        assert sum(rendered) == times * once
    history[0].advance(world.end_ts)
    for _ in range(2):
        pulled(source, world, Position(world.snapshot_ts), Budget())
        assert sum(rendered) == 4 * once


def test_scans_that_want_numbers_of_enums_share_nothing_with_those_that_want_names() -> None:
    world = golden_world("everything", ticks=1)
    source, start = source_of(world, GroupCache(world.objects, 256 << 20)), Position(world.snapshot_ts)
    for numbered in (False, True, False, True):
        scan = Scan(source, Scope(world.tenant), start, world.end_ts, Budget(), numbered=numbered)
        sets = [one for batch in scan.batches() for one in batch.events.sets if isinstance(one, Rows) and one.new]
        found = {
            str(array.type)
            for rows in sets
            for column, array in zip(rows.version.table.visible_columns, rows.new.columns, strict=True)  # type: ignore[union-attr]
            if column.elems
        }
        assert found == {"uint64" if numbered else "large_string"}


def test_few_rows_count_for_all_that_they_keep_in_memory() -> None:
    """They are views of a row group whose bytes stay with them."""
    world = golden_world("everything", ticks=1)
    start, keys = Position(world.snapshot_ts), 0
    for index in world.indexes:
        for segment in index.overlapping(Window(world.snapshot_ts, world.end_ts)):
            keys += read_rows(world.objects, segment, Window(0, MAX_TS)).column("key").nbytes
    few = Budget(16, 16, 1 << 20, 1 << 17)
    batch = next(iter(Scan(world.source, Scope(world.tenant), start, world.end_ts, few).batches()))
    whole = next(iter(Scan(world.source, Scope(world.tenant), start, world.end_ts, Budget()).batches()))
    assert 0 < len(batch.events) < 100 < len(whole.events)
    assert batch.events.held_bytes > 2_048 * len(batch.events.sets)
    assert whole.events.held_bytes > keys
    slices = [one for one in batch.events.sets if isinstance(one, Rows)]
    for rows in slices:
        assert batch.events.held_bytes >= sum(buffer.size for buffer in rows.raw.buffers() if buffer is not None)


def test_retention_holds_for_what_is_in_memory_too() -> None:
    world, retained = golden_world("everything"), [0]
    source = source_of(world, GroupCache(world.objects, 256 << 20), lambda: retained[0])
    pulled(source, world, Position(world.snapshot_ts), Budget())
    retained[0] = world.end_ts
    with pytest.raises(Gone):
        pulled(source, world, Position(world.snapshot_ts), Budget())


def test_what_cannot_be_shown_yet_is_looked_at_again(rendered: list[int]) -> None:
    """Its schema may come."""
    world = golden_world("everything", change=lambda rows: rows.with_columns(table_id=rows["table_id"] + 1_000_000))
    source, start = source_of(world, GroupCache(world.objects, 256 << 20)), Position(world.snapshot_ts)
    found = []
    for _ in range(2):
        found += [one.barrier for one in Scan(source, Scope(world.tenant), start, world.end_ts, Budget()).batches()]
    assert [one is not None for one in found] == [True, True]
    assert len(rendered) == 2
    assert min(rendered) > 0


def test_those_who_come_while_it_is_made_wait_for_it() -> None:
    work, made, go = SharedWork(1 << 20, never_over), list[int](), threading.Event()

    def make(_: Alive) -> SharedResult:
        made.append(1)
        assert go.wait(PATIENCE_S)
        return SharedResult("made", 10)

    found: list[str] = []
    asking = [threading.Thread(target=lambda: found.append(work.get("key", make)), daemon=True) for _ in range(9)]
    for one in asking:
        one.start()
    eventually(lambda: len(made) == 1, pause_s=0)
    go.set()
    for one in asking:
        one.join(PATIENCE_S)
    assert (found, len(made)) == (["made"] * 9, 1)


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "is its own"])
def test_who_waited_for_what_does_not_come_makes_it(fails: bool) -> None:
    work, go, found = SharedWork(1 << 20, never_over), threading.Event(), list[str]()

    def first(_: Alive) -> SharedResult:
        assert go.wait(PATIENCE_S)
        if fails:
            raise KeyUnusable("denied")
        return SharedResult("mine", None)

    def asked() -> None:
        try:
            found.append(work.get("key", first))
        except KeyUnusable as error:
            found.append(str(error))

    threads = [threading.Thread(target=asked, daemon=True)]
    threads[0].start()
    eventually(lambda: "key" in work._making, pause_s=0)
    threads += [
        threading.Thread(target=lambda: found.append(work.get("key", lambda _: SharedResult("other", 10))), daemon=True)
        for _ in range(3)
    ]
    for one in threads[1:]:
        one.start()
    go.set()
    for one in threads:
        one.join(PATIENCE_S)
        assert not one.is_alive()
    assert sorted(found) == sorted(["denied" if fails else "mine", *["other"] * 3])
    assert not work._making


def test_room_is_bounded_and_what_was_used_last_stays() -> None:
    work, made = SharedWork(800, never_over), list[int]()

    def get(key: int, size: int) -> int:
        def make(_: Alive) -> SharedResult:
            made.append(key)
            return SharedResult(key, size)

        found: int = work.get(key, make)
        return found

    for key in range(8):
        assert get(key, 100) == key
    get(0, 100)
    get(8, 100)  # in the room of 1
    get(99, 201)  # more than a quarter: for nobody else
    made.clear()
    assert [get(key, 100) for key in (0, 8, 7)] == [0, 8, 7]
    assert made == []
    get(1, 100)
    get(99, 201)
    assert made == [1, 99]
    assert work._bytes <= 800


@pytest.mark.parametrize("tenant", [KEYED, PLAIN], ids=str)
def test_what_was_made_with_a_key_goes_when_its_rows_go(tenant: object) -> None:
    """They may be served for a stated time after the key was revoked, and not for that time once more."""
    assert tenant in (KEYED, PLAIN)
    objects, clock = Locked(), ManualClock()
    group = group_of(objects, KEYED if tenant == KEYED else PLAIN)
    cache = cache_of(objects, clock)
    made: list[int] = []

    def make(_: Alive) -> SharedResult:
        cache.rows(group)
        made.append(clock.monotonic_ms())
        return SharedResult("made", 10, cache.until_ms([group]))

    cache.rows(group)
    clock.advance(KEEP_MS - 1)
    assert cache.work.get("key", make) == cache.work.get("key", make) == "made"
    assert len(made) == 1
    clock.advance(1)
    objects.locked = True
    if tenant == PLAIN:
        assert cache.work.get("key", make) == "made"
        return
    with pytest.raises(KeyUnusable):
        cache.work.get("key", make)


def test_what_is_over_is_not_kept_in_memory_though_nobody_asks_for_it_again() -> None:
    objects, clock = Locked(), ManualClock()
    cache, keyed, plain = cache_of(objects, clock), group_of(objects, KEYED), group_of(objects, PLAIN)
    for key, group in (("keyed", keyed), ("plain", plain)):
        cache.rows(group)
        cache.work.get(key, lambda _, group=group: SharedResult("made", 10, cache.until_ms([group])))
    clock.advance(KEEP_MS)
    cache.work.get("another", lambda _: SharedResult("made", 10))
    assert set(cache.work._held) == {"plain", "another"}
    assert cache.work._bytes == 20


def test_who_waited_too_long_for_what_another_made_makes_it() -> None:
    """The other's store hung: meanwhile the key may be gone."""
    clock, go = ManualClock(), threading.Event()
    work = SharedWork(1 << 20, lambda until_ms: until_ms is not None and clock.monotonic_ms() >= until_ms)
    found: list[str] = []

    def slow(_: Alive) -> SharedResult:
        assert go.wait(PATIENCE_S)
        return SharedResult("old", 10, KEEP_MS)

    asking = threading.Thread(target=lambda: found.append(work.get("key", slow)), daemon=True)
    asking.start()
    eventually(lambda: "key" in work._making, pause_s=0)
    other = threading.Thread(
        target=lambda: found.append(work.get("key", lambda _: SharedResult("new", 10))), daemon=True
    )
    other.start()
    clock.advance(KEEP_MS)
    go.set()
    for one in (asking, other):
        one.join(PATIENCE_S)
    assert sorted(found) == ["new", "old"]


def test_what_was_made_of_rows_that_are_not_kept_any_more_is_not_kept() -> None:
    objects, clock = Locked(), ManualClock()
    keyed, plain, cache = group_of(objects, KEYED), group_of(objects, PLAIN), cache_of(objects, clock)
    assert cache.until_ms([plain]) is None
    assert cache.until_ms([keyed, plain]) == clock.monotonic_ms()
