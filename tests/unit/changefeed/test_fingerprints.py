"""Fingerprints of what a feed has sent: what they notice, and which windows can be compared."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa

from tistream.model.ids import TenantKey
from tistream.read.cursor import Position
from tistream_changefeed.core.outgoing import Outgoing
from tistream_changefeed.core.progress import Fence, Progress, encode, window_of
from tistream_changefeed.fingerprints.fingerprint import Fingerprint, by_table, summed
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.fingerprints.windows import (
    KEPT_WINDOWS,
    OTHERS,
    TABLES_MAX,
    ComparedWindows,
    FoundEvents,
    SentWindow,
    compared,
    newest,
    parse,
)

NAMES = (("d", "a"), ("d", "b"))
VALUES = [b"", b"x", b"1234567", b"12345678", b"123456789", bytes(range(75)), None]
STORED = [
    "174e30b4199434a7",
    "12f12fb114c680ad",
    "5a0838e687d63e5f",
    "6269525bdca3f503",
    "5eec9df7f8035283",
    "b8a39a39d5eba0e1",
    "c9dadc6fdba5479d",
]  # by a plain implementation


def hashed(stamps: list[int], values: list[bytes | None]) -> np.ndarray:
    return event_hashes(np.array(stamps, np.int64), (None, pa.array(values, pa.large_binary())))


def test_the_hash_of_an_event_is_the_same_in_each_release() -> None:
    assert [f"{one:016x}" for one in hashed([7] * len(VALUES), list(VALUES)).tolist()] == STORED
    same = event_hashes(
        np.array([7] * len(VALUES)), (pa.nulls(len(VALUES), pa.large_binary()), pa.array(VALUES, pa.binary()))
    )
    assert same.tolist() == hashed([7] * len(VALUES), list(VALUES)).tolist(), "whatever type the values have"


def test_events_that_differ_in_anything_have_other_hashes() -> None:
    one = pa.array([b"a"], pa.large_binary())
    stamp, number = np.array([7], np.int64), pa.array([97])
    seen = [
        event_hashes(stamp, columns, names).tolist()[0]
        for columns, names in (
            ((one,), ()), ((None, one), ()), ((one, None), ()), ((one, one), ()), ((number,), ()),
            ((pa.array([97.0]),), ()), ((pa.array([None], pa.int64()),), ("c",)), ((one,), ("c",)), ((one,), ("d",)),
        )
    ]  # fmt: skip
    seen += (
        event_hashes(stamp + 1, (one,)).tolist() + event_hashes(stamp, (pa.array([b"b"], pa.large_binary()),)).tolist()
    )
    assert len(set(seen)) == len(seen)


def test_fingerprints_of_parts_add_up_in_any_order() -> None:
    rng = Random(1)
    numbers = np.array([rng.randrange(2) for _ in range(100)])
    hashes = np.array([rng.getrandbits(64) for _ in range(100)], np.uint64)
    whole = by_table(hashes, numbers, NAMES)
    assert whole[NAMES[0]].total == sum(hashes[numbers == 0].tolist()) % (1 << 64)
    order = np.array(rng.sample(range(100), 100))
    assert summed(by_table(hashes[part], numbers[part], NAMES) for part in (order[:30], order[30:])) == whole
    assert by_table(hashes[:0], numbers[:0], NAMES) == {}


STAMPS = np.arange(100, 200)
FOUND = FoundEvents(NAMES, STAMPS, STAMPS % 2, STAMPS.astype(np.uint64) << np.uint64(40))


def window(after_ts: int, until_ts: int, *, late: bool = False, of: FoundEvents = FOUND) -> SentWindow:
    mine = (of.commit_ts > after_ts) & (of.commit_ts <= until_ts)
    return SentWindow(after_ts, until_ts, by_table(of.hashes[mine], of.table[mine], of.names), late)


def without(at: int) -> FoundEvents:
    kept = FOUND.commit_ts != at
    return FoundEvents(NAMES, FOUND.commit_ts[kept], FOUND.table[kept], FOUND.hashes[kept])


def test_a_window_is_equal_to_what_was_sent_or_names_its_table() -> None:
    windows = [window(99, 110), window(110, 130), window(130, 131), window(131, 160), window(160, 199)]
    assert compared(windows, FOUND, 99, 199) == ComparedWindows(4), "all but the oldest"
    lost = compared(windows, without(140), 99, 199)
    assert [(one.after_ts, one.until_ts, one.name, one.sent.events - one.found.events) for one in lost.differences] == [
        (131, 160, NAMES[0], 1)
    ]
    assert compared(windows, without(140), 99, 159) == ComparedWindows(2), "a window that lies in the range in part"
    assert compared(windows, without(140), 99, 199, NAMES[1]).differences == ()
    changed = FoundEvents(
        NAMES, FOUND.commit_ts, FOUND.table, FOUND.hashes + (FOUND.commit_ts == 141).astype(np.uint64)
    )
    assert [one.name for one in compared(windows, changed, 99, 199).differences] == [NAMES[1]]


def test_parts_of_a_commit_and_late_tables_are_compared_together() -> None:
    ahead = FoundEvents(NAMES, *(values[FOUND.table == 0] for values in (FOUND.commit_ts, FOUND.table, FOUND.hashes)))
    behind = FoundEvents(NAMES, *(values[FOUND.table == 1] for values in (FOUND.commit_ts, FOUND.table, FOUND.hashes)))
    first = window(99, 110)
    main = [window(110, 120, of=ahead), window(120, 150, of=ahead)]
    late = window(110, 150, late=True, of=behind)
    assert compared([first, *main, late, window(150, 199)], FOUND, 99, 199) == ComparedWindows(4)
    assert compared([main[1], late, window(150, 199)], FOUND, 99, 199) == ComparedWindows(1), "a record is gone"
    parts = [SentWindow(119, 120, window(119, 120).tables), SentWindow(119, 120)]
    assert compared([first, window(110, 119), *parts, window(120, 199)], FOUND, 99, 199) == ComparedWindows(4)


def test_many_tables_are_added_up() -> None:
    names = tuple(("d", f"t{number:03}") for number in range(TABLES_MAX + 5))
    stamps = np.full(len(names), 150)
    found = FoundEvents(names, stamps, np.arange(len(names)), np.arange(len(names), dtype=np.uint64))
    stored = [parse(window(after, until, of=found).members()) for after, until in ((99, 100), (100, 199))]
    assert stored[1].tables[OTHERS] == Fingerprint(5, sum(range(100, 105)), 100 ^ 101 ^ 102 ^ 103 ^ 104)
    again = [parse(one.members()) for one in stored]
    assert again == stored, "a holder that takes over stores the windows that it has read"
    assert compared(stored, found, 99, 199) == ComparedWindows(1)
    short = FoundEvents(names, stamps[1:], found.table[1:], found.hashes[1:])
    assert [one.name for one in compared(stored, short, 99, 199).differences] == [OTHERS]
    assert compared(stored, short, 99, 199, names[1]) == ComparedWindows()


def test_a_window_is_read_back_from_its_record() -> None:
    tenant, of = TenantKey("7", "acme"), window(99, 120, late=True)
    value = encode(tenant, Progress(Position(120), 0, Fence(3, 1), shards=2), of)
    stored = window_of(value)
    assert stored is not None
    assert (stored.generation, stored.shards, stored.window) == (3, 2, of)
    for other in (
        encode(tenant, Progress(Position(120), 0, Fence(3, 1))),
        b"",
        b"[]",
        b'{"generation":1,"window":[1]}',
    ):
        assert window_of(other) is None


def test_of_many_windows_the_newest_are_kept() -> None:
    many = [window(at, at + 1) for at in range(99, 199)] * 2
    assert newest(many) == many[-KEPT_WINDOWS:]
    names = tuple(("d", str(number)) for number in range(90))
    wide = SentWindow(1, 2, dict.fromkeys(names, Fingerprint(1, 1, 1)))
    assert len(newest([wide] * 20)) == 4
    assert newest([SentWindow(1, 2, dict.fromkeys((("d", str(n)) for n in range(900)), Fingerprint(1)))]) != []


def test_chosen_messages_keep_the_hashes_of_their_events() -> None:
    stamps, table = np.array([1, 2, 3]), np.array([0, 1, 1])
    values = pa.array([b"a", b"b", b"c"], pa.large_binary())
    hashes = event_hashes(stamps, (values,))
    sent = Outgoing(("t",), table * 0, table * 0, None, values, stamps, table, None, hashes, NAMES)
    chosen = sent.chosen(np.array([2, 0]))
    assert [one.value for one in chosen.each()] == [b"c", b"a"]
    assert chosen.fingerprints() == by_table(hashes[[2, 0]], table[[2, 0]], NAMES)
