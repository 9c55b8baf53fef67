"""Which rows of a chunk count, and what contradicts the log: against a dictionary model of one table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream_sorter.match.base_rows import CHUNK, FIRST, LOGGED, Disagreement, rows_that_count

S = 100


@dataclass(frozen=True)
class Change:
    key: bytes
    ts: int
    value: bytes | None  # None: a delete


def model(before: dict[bytes, bytes], changes: list[Change], ts: int) -> dict[bytes, bytes]:
    """The rows as of `ts`."""
    rows = dict(before)
    for change in sorted(changes, key=lambda change: change.ts):
        if change.ts <= ts:
            rows.pop(change.key, None) if change.value is None else rows.update({change.key: change.value})
    return rows


def tables(before: dict[bytes, bytes], changes: list[Change], read_ts: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """A chunk that says S and was read at `read_ts`, and what the log has of its keys."""
    chunk = [
        {"key": key, "value": value, "commit_ts": None}
        for key, value in sorted(model(before, changes, read_ts).items())
    ]
    logged, first = {}, {}
    for change in sorted(changes, key=lambda change: change.ts):
        if change.ts <= S:
            put = change.value is not None
            logged[change.key] = {"key": change.key, "put": put, "logged": change.value, "at_ts": change.ts}
        elif change.key not in first:
            old = model(before, changes, change.ts - 1).get(change.key)
            first[change.key] = {"key": change.key, "old_value": old, "first_ts": change.ts}
    return (
        pa.Table.from_pylist(chunk, CHUNK),
        pa.Table.from_pylist([logged[key] for key in sorted(logged)], LOGGED),
        pa.Table.from_pylist([first[key] for key in sorted(first)], FIRST),
    )


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.binary(min_size=1, max_size=1)
befores = st.dictionaries(keys, values)
changes_of = st.lists(
    st.builds(Change, keys, st.integers(50, 150), st.none() | values), max_size=8, unique_by=lambda change: change.ts
)


@given(befores, changes_of)
def test_a_true_chunk_adds_exactly_the_rows_that_the_log_lacks(
    before: dict[bytes, bytes], changes: list[Change]
) -> None:
    found = rows_that_count(*tables(before, changes, S), S, exact=True)
    kept = {row["key"]: row["value"] for row in found.to_pylist()}
    touched = {change.key for change in changes if change.ts <= S}
    assert kept == {key: value for key, value in before.items() if key not in touched}
    assert found.column("key").to_pylist() == sorted(kept)
    for ts in (S, 120, 150):
        log = [change for change in changes if change.ts <= ts]
        assert model(kept, log, ts) == model(before, changes, ts), "the base and the log are the table at every T >= S"


@given(befores, changes_of, st.integers(50, 150))
def test_a_chunk_of_another_ts_is_caught_if_a_row_differs(
    before: dict[bytes, bytes], changes: list[Change], read_ts: int
) -> None:
    same = model(before, changes, read_ts) == model(before, changes, S)
    try:
        rows_that_count(*tables(before, changes, read_ts), S, exact=True)
    except Disagreement:
        assert not same
    else:
        assert same


def test_a_change_of_a_log_backup_without_an_old_value_proves_nothing() -> None:
    rows = pa.Table.from_pylist([{"key": b"a", "value": b"2", "commit_ts": None}], CHUNK)
    first = pa.Table.from_pylist([{"key": b"a", "old_value": None, "first_ts": 120}], FIRST)
    found = rows_that_count(rows, LOGGED.empty_table(), first, S, exact=True, old_values=False)
    assert found.to_pylist() == rows.to_pylist()
    with pytest.raises(Disagreement, match="is in the chunk; its change at 120 has no old value"):
        rows_that_count(rows, LOGGED.empty_table(), first, S, exact=True)
    there = pa.Table.from_pylist([{"key": b"a", "old_value": b"1", "first_ts": 120}], FIRST)
    with pytest.raises(Disagreement, match="has another value than the old value"):
        rows_that_count(rows, LOGGED.empty_table(), there, S, exact=True, old_values=False)


@pytest.mark.parametrize(
    ("change", "chunk", "said"),
    [
        (Change(b"a", 90, b"1"), {}, "key 61 is not in the chunk; the log has a row of it from 90"),
        (Change(b"a", 90, None), {b"a": b"1"}, "key 61 is in the chunk; the log deletes it at 90"),
        (Change(b"a", 90, b"1"), {b"a": b"2"}, "key 61 has another value in the log, committed at 90"),
    ],
)
def test_each_contradiction_is_named(change: Change, chunk: dict[bytes, bytes], said: str) -> None:
    rows = pa.Table.from_pylist([{"key": k, "value": v, "commit_ts": None} for k, v in chunk.items()], CHUNK)
    _, logged, first = tables({}, [change], S)
    with pytest.raises(Disagreement, match=f"not as of its base_ts 100: {said}"):
        rows_that_count(rows, logged, first, S, exact=True)


def test_the_old_value_of_the_first_change_above_is_compared() -> None:
    first = pa.Table.from_pylist([{"key": b"a", "old_value": b"1", "first_ts": 120}], FIRST)
    rows = pa.Table.from_pylist([{"key": b"a", "value": b"2", "commit_ts": 5}], CHUNK)
    none = LOGGED.empty_table()
    with pytest.raises(Disagreement, match="another value than the old value of its change at 120"):
        rows_that_count(rows, none, first, S, exact=True)
    assert rows_that_count(rows, none, first, S, exact=False).to_pylist() == rows.to_pylist()
    with pytest.raises(Disagreement, match="is not in the chunk; its change at 120 has an old value"):
        rows_that_count(CHUNK.empty_table(), none, first, S, exact=False)
