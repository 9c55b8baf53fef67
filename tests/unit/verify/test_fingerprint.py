"""Fingerprints: the same for the same events in any order, different for anything else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tistream_verify.fingerprint import MODULUS, Sum, TableSums, TruthLine, event_hash, row_hash

EVENT: dict[str, Any] = {
    "type": "row",
    "op": "put",
    "commit_ts": "7",
    "start_ts": "5",
    "database": "d",
    "table": "t",
    "table_id": "104",
    "schema_version": "57",
    "key": {"id": "1"},
    "row": {"id": "1", "name": "x"},
    "old_row": None,
}


def test_an_event_hash_covers_what_the_event_says_and_not_how_its_members_are_ordered() -> None:
    shuffled = {name: EVENT[name] for name in sorted(EVENT, reverse=True)}
    shuffled["row"] = {"name": "x", "id": "1"}
    assert event_hash(shuffled) == event_hash(EVENT)
    others: list[dict[str, Any]] = [
        {"op": "delete"},
        {"commit_ts": "8"},
        {"start_ts": "6"},
        {"table_id": "105"},
        {"key": {"id": "2"}},
        {"row": {"id": "1", "name": "y"}},
        {"row": {"id": 1, "name": "x"}},
        {"old_row": {"id": "1", "name": "w"}},
    ]
    hashes = {event_hash({**EVENT, **other}) for other in others} | {event_hash(EVENT)}
    assert len(hashes) == len(others) + 1
    assert all(0 <= value < MODULUS for value in hashes)


def test_hashes_stay_what_they_are() -> None:
    """Truth files outlive a release."""
    assert f"{event_hash(EVENT):016x}" == "2929e5b78f226bc5"
    assert f"{row_hash(EVENT['key'], EVENT['row']):016x}" == "b9c3baaed6945d4c"


def test_sums_forget_the_order_and_can_be_taken_back() -> None:
    values = [random.Random(1).getrandbits(64) for _ in range(100)]
    one, other = Sum(), Sum()
    for value in values:
        one.add(value)
    for value in [*values[50:], 5, *values[:50]]:
        other.add(value)
    other.remove(5)
    assert one == other
    assert len(one.hex) == 16


def test_rows_are_what_events_leave() -> None:
    sums, expected = TableSums("d", "t"), Sum()
    second = {**EVENT, "row": {"id": "1", "name": "y"}, "old_row": EVENT["row"]}
    other = {**EVENT, "key": {"id": "2"}, "row": {"id": "2", "name": "z"}}
    for event in (EVENT, second, other, {**other, "op": "delete", "row": None, "old_row": other["row"]}):
        sums.see(event)
    expected.add(row_hash({"id": "1"}, {"id": "1", "name": "y"}))
    assert sums.rows == expected
    assert sums.events.count == 4


def test_a_truth_line_survives_its_text() -> None:
    sums = TableSums("d", "t")
    sums.see(EVENT)
    line = TruthLine(2**62, 3, {"104": sums.truth()})
    assert TruthLine.parse(line.encode()) == line


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"ts":"1","ddls":0,"tables":{"1":{}}}', b'{"ts":"x"', b"null"])
def test_what_is_no_truth_line_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="malformed truth line"):
        TruthLine.parse(text)
