"""The registry's log under rivals, unknown answers and damage."""
# Attack: a `schema_snap` above the limit

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import orjson
import pytest

from support.faulty_store import Fault, FaultyObjectStore
from support.schema_records import name, table_info, version
from tistream.errors import CommitStateUnknown, CorruptObject, NotFoundYet, Unavailable
from tistream.model.ids import TenantKey
from tistream.schema.tidb import snapshot_cuts
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_schema.durable_log import DurableLog

TENANT = TenantKey("7", "acme")
SNAP = {"version": 1, "snapshot_ts": 10, "databases": [{"db_info": {"id": 1, "db_name": name("d")}, "tables": []}]}


class LosesAnswers(MemoryObjectStore):
    """The first `lost` conditional puts get no answer; `arrive` says whether they happened."""

    def __init__(self, lost: int, *, arrive: bool) -> None:
        super().__init__()
        self.lost = lost
        self.arrive = arrive

    def put_new(self, key: str, body: bytes) -> None:
        if self.lost == 0:
            super().put_new(key, body)
            return
        self.lost -= 1
        if self.arrive:
            self.arrive = False
            super().put_new(key, body)
        raise CommitStateUnknown(key)


def log_on(objects: MemoryObjectStore, nonce: str = "n1") -> DurableLog:
    objects.put(layout.schema_snap(TENANT), orjson.dumps(SNAP))
    return DurableLog(objects, TENANT, nonce, lambda _seconds: None)


def test_begin_append_and_read_again() -> None:
    objects = MemoryObjectStore()
    log = log_on(objects)
    (first,) = log.begin()
    assert (first.low_ts, first.high_ts, len(first.records)) == (9, 10, 1)
    log.append(20, (version(15, 1),))
    log.append(35, (version(30, 2), version(35, 3)))
    again = log_on(objects, "n2")
    found = list(again.catch_up())
    assert [(one.number, one.low_ts, one.high_ts, one.nonce) for one in found] == [
        (1, 9, 10, "n1"),
        (2, 10, 20, "n1"),
        (3, 20, 35, "n1"),
    ]
    assert (again.number, again.high_ts) == (3, 35)


def test_no_snapshot_yet() -> None:
    log = DurableLog(MemoryObjectStore(), TENANT, "n", lambda _seconds: None)
    with pytest.raises(NotFoundYet):
        log.begin()


def test_the_second_writer_takes_what_the_first_wrote() -> None:
    objects = MemoryObjectStore()
    one, two = log_on(objects, "one"), log_on(objects, "two")
    one.begin()
    assert [found.nonce for found in two.begin()] == ["one"]
    one.append(20, (version(15, 1),))
    (found,) = two.append(30, (version(15, 1), version(25, 2)))
    assert (found.nonce, found.high_ts) == ("one", 20)
    (mine,) = two.append(30, (version(25, 2),))
    assert (mine.nonce, mine.number, mine.low_ts) == ("two", 3, 20)


@pytest.mark.parametrize("arrive", [True, False])
def test_an_unknown_answer_is_asked_again(arrive: bool) -> None:
    objects = LosesAnswers(2, arrive=arrive)
    log = log_on(objects)
    assert [found.nonce for found in log.begin()] == ["n1"]
    assert (log.number, log.high_ts) == (1, 10)
    assert [one.number for one in log_on(objects, "n2").catch_up()] == [1]


def test_an_answer_that_stays_unknown_is_an_error_and_can_be_tried_again() -> None:
    log = log_on(LosesAnswers(5, arrive=True))
    with pytest.raises(Unavailable, match="unknown whether it was written"):
        log.begin()
    assert [found.number for found in log.begin()] == [1]


def test_a_store_that_refuses_ends_the_call_as_it_says_so_also_after_an_unknown_answer() -> None:
    """The tenant's loop has a backoff of its own, and shows a key that cannot be used as such."""
    for faults, slept in (([Fault.REFUSED], 0), ([Fault.DELAYED, Fault.REFUSED], 1)):
        objects, pauses = FaultyObjectStore(MemoryObjectStore(), faults), list[float]()
        objects.put(layout.schema_snap(TENANT), orjson.dumps(SNAP))
        log = DurableLog(objects, TENANT, "n", pauses.append)
        with pytest.raises(Unavailable, match=r"^refused$"):
            log.begin()
        assert (len(pauses), log.number) == (slept, 0)
        objects.deliver()
        assert [found.number for found in log.begin()] == [1]


def test_a_damaged_or_foreign_object_is_refused() -> None:
    objects = MemoryObjectStore()
    log = log_on(objects)
    log.begin()
    key = layout.schema_log(TENANT, 2)
    objects.put(key, b"TSSL")
    with pytest.raises(CorruptObject, match=key):
        list(log.catch_up())
    objects.put(key, objects.get(layout.schema_log(TENANT, 1)))
    with pytest.raises(CorruptObject, match="belongs to 7/acme, number 1"):
        list(log.catch_up())


class Whole(MemoryObjectStore):
    """`meanwhile` runs before each range."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.meanwhile()
        return super().get_range(key, start, length)


def large_snap(tables: int) -> bytes:
    some = [{**table_info(100 + at, f"t{at}"), "comment": "x" * 2_000} for at in range(tables)]
    databases = [{"db_info": {"id": 1, "db_name": name("d"), "state": 5}, "tables": some}]
    return orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": databases})


def test_a_large_snapshot_is_read_piece_by_piece_and_begins_the_log_as_if_it_was_read_whole() -> None:
    objects, body = Whole(), large_snap(3_000)
    assert len(body) > 5 << 20
    objects.put(layout.schema_snap(TENANT), body)
    tracemalloc.start()
    try:
        (first,) = DurableLog(objects, TENANT, "n", lambda _seconds: None).begin()
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body) + (50 << 20)
    finally:
        tracemalloc.stop()
    assert first.records == parse_snapshot("k", body).records
    assert len(first.records) == 3_001


def test_a_snapshot_above_the_limit_is_refused_with_the_way_out_and_read_once_the_limit_is_raised() -> None:
    objects = Whole()
    objects.put(layout.schema_snap(TENANT), large_snap(3_000))
    objects.meanwhile = lambda: pytest.fail("it is not read")
    small = DurableLog(objects, TENANT, "n", lambda _seconds: None, snapshot_bytes=5 << 20)
    with pytest.raises(CorruptObject, match=r"no more than 5242880 are read.*TISTREAM_SCHEMA__SNAPSHOT_BYTES") as told:
        small.begin()
    assert told.value.key == layout.schema_snap(TENANT)
    objects.meanwhile = lambda: None
    assert DurableLog(objects, TENANT, "n", lambda _seconds: None, snapshot_bytes=50 << 20).begin()


def test_a_snapshot_that_changes_while_it_is_read_is_refused() -> None:
    objects, key = Whole(), layout.schema_snap(TENANT)
    objects.put(key, large_snap(3_000))
    objects.meanwhile = lambda: objects.put(key, large_snap(3_001))
    log = DurableLog(objects, TENANT, "n", lambda _seconds: None)
    with pytest.raises(CorruptObject):
        log.begin()
    assert log.number == 0
    objects.meanwhile = lambda: None
    assert len(log.begin()[0].records) == 3_002


HOSTILE = {
    "many-tables": lambda: b'{"databases":[{"tables":[' + b"{}," * 1_500_000 + b"{}]}]}",
    "one-table": lambda: b'{"databases":[{"tables":[{"x":[' + b"{}," * 2_500_000 + b"{}]}]}]}",
    "no-tables": lambda: b'{"x":[' + b"{}," * 2_000_000 + b"{}]}",
}


@pytest.mark.parametrize("make", HOSTILE)
def test_of_a_hostile_snapshot_little_is_made(monkeypatch: pytest.MonkeyPatch, make: str) -> None:
    """A parser makes some 24 bytes of each of its bytes."""
    monkeypatch.setattr(snapshot_cuts, "PARTS_MAX", 50_000)  # all of them take longer
    objects, body = Whole(), HOSTILE[make]()
    objects.put(layout.schema_snap(TENANT), body)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptObject, match="no more"):
            DurableLog(objects, TENANT, "n", lambda _seconds: None).begin()
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
