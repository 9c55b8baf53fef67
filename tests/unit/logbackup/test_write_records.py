"""The entries of slices: framing, keys, write records, and what a damaged slice is refused for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.log_bytes import DELETE, LOCK, PUT, ROLLBACK, Entry, framed, record, row_key, streamed
from tistream.errors import CorruptObject
from tistream.logbackup import entries, memcomparable
from tistream.logbackup.entries import OP_DELETE, OP_PUT
from tistream.logbackup.metadata import Slice
from tistream.model.ts import MAX_TS, Window

START = 400036290571534337
ALL = Window(0, MAX_TS)


def slice_of(held: list[Entry], plain: bytes | None = None) -> tuple[Slice, bytes]:
    """A slice of these entries, and its plain bytes."""
    data = framed(held) if plain is None else plain
    keys, times = sorted(key for key, _, _ in held), [ts for _, ts, _ in held]
    found = Slice(
        "v1/x.log",
        0,
        len(data),
        len(data),
        len(held),
        hashlib.sha256(data).digest(),
        False,
        "write",
        True,
        5,
        keys[0],
        keys[-1],
        min(times),
        max(times),
        1,
    )
    return found, data


def changes_of(*values: bytes, window: Window = ALL) -> Any:
    held = [(row_key(5, number), 10 + number, value) for number, value in enumerate(values)]
    return entries.changes([slice_of(held)], window).to_pylist()


@pytest.mark.parametrize(
    ("text", "kind", "start_ts", "value", "source"),
    [
        (
            "50 81 80 a0 a6 b0 dc cd c6 05 76 07 70 69 6e 67 43 41 50 6c 00 00 00 00 00 00 25 37 a7 e8 05",
            OP_PUT,
            START,
            b"pingCAP",
            None,
        ),
        ("50 81 80 a0 a6 b0 dc cd c6 05 53 b7 4a", OP_PUT, START, None, 9527),
        (
            "50 c8 03 76 0b 73 68 6f 72 74 5f 76 61 6c 75 65 52 46 00 00 00 00 00 23 ca ce",
            OP_PUT,
            456,
            b"short_value",
            None,
        ),
        ("44 80 80 40", OP_DELETE, 1 << 20, None, None),
        ("50 c8 03 76 00", OP_PUT, 456, b"", None),
        ("50 c8 03 76 00 51 99 99", OP_PUT, 456, b"", None),  # an unknown option: reading stops there
    ],
)
def test_records_of_tidb_and_tikv(text: str, kind: int, start_ts: int, value: bytes | None, source: int | None) -> None:
    [found] = changes_of(bytes.fromhex(text))
    assert (found["op"], found["start_ts"], found["value"], found["txn_source"]) == (kind, start_ts, value, source)
    assert found["long"] == (kind == OP_PUT and value is None)


@pytest.mark.parametrize(
    "text", ["52 80 80 80 80 80 20 76 01 70", "52 80 80 80 80 80 40", "4c c8 03 6c" + " 00" * 8 + " 01"]
)
def test_rollbacks_and_locks_are_no_changes(text: str) -> None:
    assert changes_of(bytes.fromhex(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "50",
        "51 c8 03",  # unknown type
        "50 ff ff ff ff ff ff ff ff ff ff",  # a varint without an end
        "50 ff ff ff ff ff ff ff ff ff 7f",  # above 64 bits
        "50 c8 03 76",
        "50 c8 03 76 05 61",
        "50 c8 03 46 00 00",
        "50 c8 03 6c 00 00 00 00 00 00 00 00",
        "50 c8 03 53",
    ],
)
def test_a_malformed_record_damages_its_slice(text: str) -> None:
    with pytest.raises(CorruptObject, match="write record of entry 1 of 3"):
        changes_of(record(PUT, 5, b"a"), bytes.fromhex(text), record(PUT, 5, b"b"))


def test_only_commits_of_the_window_come() -> None:
    values = [record(PUT, 5, b"%d" % number) for number in range(10)]
    found = changes_of(*values, window=Window(12, 15))
    assert [one["commit_ts"] for one in found] == [13, 14, 15]
    assert [one["value"] for one in found] == [b"3", b"4", b"5"]


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=40),
            st.integers(1, MAX_TS),
            st.sampled_from([PUT, DELETE, LOCK, ROLLBACK]),
            st.integers(1, MAX_TS),
            st.none() | st.binary(max_size=255),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_is_framed_is_read(written: list[tuple[bytes, int, bytes, int, bytes | None]]) -> None:
    held = [(key, ts, record(kind, start, short)) for key, ts, kind, start, short in written]
    slice_, plain = slice_of(held)
    stored = streamed(plain)
    packed = replace(slice_, length=len(stored), compressed=True)
    assert entries.Unpacker().unpacked(packed, stored) == plain
    found = [
        (one["key"], one["commit_ts"], one["start_ts"], one["value"])
        for one in entries.changes([(slice_, plain)], ALL).to_pylist()
    ]
    assert found == [
        (key, ts, start, short if kind == PUT else None)
        for key, ts, kind, start, short in written
        if kind in (PUT, DELETE)
    ]
    assert entries.shown_keys(slice_, plain, 3) == [(key, ts) for key, ts, _ in held[:3]]
    times, _, long = entries.commit_sizes([(slice_, plain)], ALL)
    assert times.tolist() == [ts for _, ts, kind, _, _ in written if kind in (PUT, DELETE)]
    assert long.sum() == sum(kind == PUT and short is None for _, _, kind, _, short in written)


@given(st.binary(max_size=60), st.integers(0, MAX_TS))
def test_versioned_keys_are_taken_apart(raw: bytes, ts: int) -> None:
    assert memcomparable.split(memcomparable.versioned_key(raw, ts)) == (raw, ts)


@given(st.binary(max_size=60), st.integers(0, MAX_TS), st.binary(max_size=60), st.integers(0, MAX_TS))
def test_versioned_keys_sort_as_raw_keys_the_newest_first(a: bytes, a_ts: int, b: bytes, b_ts: int) -> None:
    assert (memcomparable.versioned_key(a, a_ts) < memcomparable.versioned_key(b, b_ts)) == ((a, -a_ts) < (b, -b_ts))


@given(st.binary(max_size=80))
def test_no_bytes_but_those_of_a_key_are_one(noise: bytes) -> None:
    found = memcomparable.split(noise)
    assert found is None or memcomparable.versioned_key(*found) == noise


def test_values_come_by_start_ts() -> None:
    held = [(row_key(5, number), number, b"v%d" % number) for number in range(1, 9)]
    slice_, plain = slice_of(held)
    found = entries.values([(slice_, plain)], np.array([2, 5, 77], np.int64))
    assert found.to_pylist() == [
        {"key": row_key(5, number), "start_ts": number, "value": b"v%d" % number} for number in (2, 5)
    ]
    assert entries.values([(slice_, plain)], np.zeros(0, np.int64)).num_rows == 0


HELD = [(row_key(5, 1), 7, record(PUT, 5, b"a")), (row_key(5, 2), 9, record(PUT, 5, b"b"))]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"entries": 3}, "framing"),
        ({"entries": 1}, "framing"),
        ({"min_ts": 8}, "timestamp outside"),
        ({"max_ts": 8}, "timestamp outside"),
        ({"low": row_key(5, 2)}, "key outside"),
        ({"high": row_key(5, 1)}, "key outside"),
    ],
)
def test_a_slice_that_its_metadata_does_not_describe_is_damaged(changed: dict[str, Any], reason: str) -> None:
    slice_, plain = slice_of(HELD)
    with pytest.raises(CorruptObject, match=reason):
        entries.changes([(slice_, plain), (replace(slice_, **changed), plain)], ALL)


def test_a_slice_is_checked_before_it_is_read() -> None:
    slice_, plain = slice_of(HELD)
    stored = streamed(plain)
    packed = replace(slice_, length=len(stored), compressed=True)
    for broken, found, reason in (
        (packed, stored[:-1], "cut off"),
        (replace(packed, plain=len(plain) - 1), stored, "zstd"),
        (replace(packed, plain=len(plain) + 1), stored, "unpacks to"),
        (replace(packed, sha256=bytes(32)), stored, "SHA-256"),
        (packed, stored[:-4] + b"\0\0\0\0", "zstd|unpacks|SHA-256"),
        (replace(slice_, compressed=True), plain, "zstd"),
        (slice_, plain[:-1] + b"x", "SHA-256"),
    ):
        with pytest.raises(CorruptObject, match=reason):
            entries.Unpacker().unpacked(broken, found)


def test_a_bomb_is_not_unpacked() -> None:
    stored = streamed(bytes(64 << 20))
    slice_ = replace(slice_of(HELD)[0], length=len(stored), plain=100, compressed=True)
    with pytest.raises(CorruptObject, match="zstd"):
        entries.Unpacker().unpacked(slice_, stored)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_reads_other_entries(at: int, byte: int) -> None:
    slice_, plain = slice_of(HELD)
    broken = bytearray(plain)
    broken[at % len(plain)] = byte
    try:
        found = entries.changes([(slice_, bytes(broken))], ALL)
    except CorruptObject:
        return
    assert found.num_rows <= slice_.entries
