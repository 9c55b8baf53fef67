"""The registry's log under rivals, unknown answers and damage."""

from __future__ import annotations

import orjson
import pytest

from support.schema_records import name, version
from tistream.errors import CommitStateUnknown, CorruptObject, NotFoundYet, Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.memory import MemoryObjectStore
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
