"""What is settled by packed sorts is exactly what joins would settle, and rows come in the segment's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.kernel_ticks import CHANGES, NOTHING_KNOWN, Entry, Ticks, entry, record_key, rows_of, states
from tistream.model.packed_sort import stable_order
from tistream.model.tidb_key import KeyKind, key_parts
from tistream_sorter.match.contracts import COMMIT, COMMITTED, PREWRITE, READY_SCHEMA, ROLLBACK, UNMATCHED_SCHEMA
from tistream_sorter.match.contracts import SCANS_SCHEMA as SCANS
from tistream_sorter.match.exact_match import ExactMatch, resolve
from tistream_sorter.match.fast_match import CLASS_BITS, _hashes, settle
from tistream_sorter.match.order import segment_order
from tistream_sorter.match.shard_entries import ShardEntries

HANDLE = b"\x80\x00\x00\x00\x00\x00\x00"
EXACT = [record_key(HANDLE + bytes([n])) for n in range(3)]  # 19 bytes
LONG = [record_key(HANDLE + b"\x00" + tail) for tail in (b"a", b"b", b"a\x00")]  # alike in 19 bytes
SHORT = [record_key(b""), record_key(b"\x00"), record_key(b"\x00\x00")]  # alike when padded
OTHERS = [record_key(b"x" * 8, table_id=8), b"mDB:1", b"mDB:10", record_key(b"x" * 8, 7).replace(b"_r", b"_i")]
KEYS = EXACT + LONG + SHORT + OTHERS
HIGH = 60

entries = st.builds(
    lambda kind, key, start, generation, index, valued, seq: {
        **entry(kind, b"", start, start + 50 if kind in (COMMIT, COMMITTED) else None, log_index=index, seq=seq),
        "key": key,
        "generation": generation if kind == PREWRITE else None,
        "value": b"%d" % index if valued and kind in (PREWRITE, COMMITTED) else None,
    },
    kind=st.sampled_from([PREWRITE, PREWRITE, COMMIT, COMMIT, ROLLBACK, COMMITTED]),
    key=st.sampled_from(KEYS),
    start=st.integers(1, 20) | st.just(2**62),
    generation=st.sampled_from([None, None, None, 0, 1, 2]),
    index=st.integers(1, 30),
    valued=st.booleans(),
    seq=st.integers(0, 1),
)
# Mostly plain changes, whose halves lie anywhere; then the unusual, on the same keys and start_ts.
pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 40)), max_size=25, unique=True)


def tables(rows: list[Entry], parts: int, fresh_share: int) -> tuple[pa.Table, list[pa.Table]]:
    fresh = rows[: len(rows) * fresh_share // 4]
    carried = [{**row, "floor": None} for row in rows[len(fresh) :] if row["type"] != COMMITTED]
    step = max(1, -(-len(carried) // parts))
    unmatched = [
        pa.Table.from_pylist([{k: v for k, v in row.items() if k != "seq"} for row in piece], schema=UNMATCHED_SCHEMA)
        for piece in (carried[at : at + step] for at in range(0, len(carried), step))
    ]
    return pa.Table.from_pylist(fresh, schema=CHANGES), unmatched


def settled(found: pl.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(found.select("row", "part", "start_ts", "key", "commit_ts").rows())


def by_joins(shard: ShardEntries, rows: np.ndarray[Any, Any], history: pa.Table) -> ExactMatch:
    facts, matched = shard.facts(rows[rows < shard.pending]), shard.matched(rows[rows >= shard.pending])
    return resolve(facts, matched, HIGH, history, SCANS.empty_table(), {})


@settings(max_examples=examples(400, few=40), deadline=None)
@given(
    plain=pairs,
    unusual=st.lists(entries, max_size=12),
    ready=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 40)), max_size=4, unique=True),
    parts=st.integers(1, 3),
    fresh_share=st.integers(0, 4),
    data=st.data(),
)
def test_the_fast_path_and_the_joins_agree(
    plain: list[tuple[bytes, int]],
    unusual: list[Entry],
    ready: list[tuple[bytes, int]],
    parts: int,
    fresh_share: int,
    data: st.DataObject,
) -> None:
    halves = [
        {**entry(kind, b"", start, start + 50 if kind == COMMIT else None), "key": key}
        for key, start in plain
        for kind in (PREWRITE, COMMIT)
    ]
    changes, unmatched = tables(data.draw(st.permutations(halves + unusual)), parts, fresh_share)
    rows = [
        {"key": key, "start_ts": start, "commit_ts": start + 50, "op": 1, "value": b"r", "old_value": None}
        for key, start in ready
    ]
    carried = pa.Table.from_pylist([{**row, "txn_source": None} for row in rows], schema=READY_SCHEMA)
    history = states((-1, 1, 10, 5, -1, -1, -1, -1), (0, 1, 15, 12, 1, 15, 12, -1), (1, 1, 25, 30, 1, 25, 30, -1))
    shard = ShardEntries(changes, unmatched, [carried] if rows else [])
    everything = np.arange(len(shard))
    expected = by_joins(shard, everything, history)
    fast = settle(shard.plain(everything))
    rest = by_joins(shard, np.sort(fast.rest), history)
    new = fast.values_at != fast.commit_at
    quick = shard.matched(fast.values_at).with_columns(
        pl.Series("commit_ts", shard.commit_ts[fast.commit_at]),
        pl.Series("part", np.where(new, -1, shard.part[fast.values_at]).astype(np.int32)),
    )
    assert settled(pl.concat([quick, rest.settled])) == settled(expected.settled)
    assert sorted(rest.waiting.rows()) == sorted(expected.waiting.rows())
    assert sorted(rest.commits.rows()) == sorted(expected.commits.rows())


def test_plain_changes_take_the_fast_path() -> None:
    """Or nothing above would say anything: also several rows of one transaction, and rows that were ready before."""
    rows = [entry(kind, b"%08d" % n, 5 + n // 3, 99 if kind == COMMIT else None) for n in range(9) for kind in (1, 2)]
    whole = [entry(COMMITTED, b"w%07d" % n, 50, 60) for n in range(3)]
    fast = settle(ShardEntries(pa.Table.from_pylist(rows + whole, schema=CHANGES), [], []).plain(np.arange(21)))
    assert (len(fast.values_at), len(fast.rest)) == (12, 0)


@pytest.mark.parametrize("keys", [EXACT[:2], LONG[:2], SHORT[1:], OTHERS[1:3]], ids=["19 bytes", "long", "short", "m"])
def test_a_commit_of_another_key_of_the_transaction_is_no_partner(keys: list[bytes]) -> None:
    mine, other = keys
    lock, commit = {**entry(PREWRITE, b"", 5), "key": mine}, {**entry(COMMIT, b"", 5, 20), "key": other}
    world = Ticks()
    out = world.tick([lock, commit], high=0)
    assert (rows_of(out), world.waiting()) == ([], [(PREWRITE, 5), (COMMIT, 5)])
    mates = [{**entry(COMMIT, b"", 5, 20), "key": mine}, {**entry(PREWRITE, b"", 5), "key": other}]
    assert [key for key, *_ in rows_of(world.tick(mates, high=20))] == sorted(keys)


@settings(max_examples=examples(300), deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(KEYS), st.integers(1, 3) | st.just(2**62), st.integers(1, 3) | st.just(2**62)),
        min_size=1,
        max_size=30,
        unique=True,
    )
)
def test_rows_are_in_the_segments_order(rows: list[tuple[bytes, int, int]]) -> None:
    keys = pa.array([key for key, _, _ in rows], pa.binary())
    start, commit = (np.array([row[at] for row in rows], np.int64) for at in (1, 2))
    parts = key_parts(keys)
    order = segment_order(commit, start, parts, pl.Series(keys), np.arange(len(rows)))
    found = [(int(parts.table_id[at]), rows[at][2], rows[at][1], rows[at][0]) for at in order]
    assert found == sorted(found)
    assert sorted(order.tolist()) == list(range(len(rows)))


@settings(max_examples=examples(300), deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=40), classed=st.booleans())
def test_packed_order_is_a_stable_order(values: list[int], classed: bool) -> None:
    classes = np.array([value % 3 for value in values], np.int8)
    order = stable_order(np.array(values, np.int64), classes if classed else None, 2)
    expected = sorted(range(len(values)), key=lambda at: (values[at], classes[at] if classed else 0, at))
    assert order.tolist() == expected


@settings(max_examples=examples(200), deadline=None)
@given(keys=st.lists(st.sampled_from(KEYS) | st.binary(max_size=24), max_size=12), skip=st.integers(0, 3))
def test_key_parts_say_what_the_bytes_say(keys: list[bytes], skip: int) -> None:
    """However the keys lie in their buffers."""
    chunks = [pa.array(keys, pa.binary()).slice(skip), pa.array(keys, pa.large_binary()).cast(pa.binary())]
    found = key_parts(pa.chunked_array(chunks, pa.binary()))
    for at, key in enumerate(keys[skip:] + keys):
        padded = key.ljust(19, b"\x00")
        table = int.from_bytes(padded[1:9], "big") - 2**63 if padded[:1] == b"t" else 0
        assert (found.table_id[at], found.tail[at]) == (table, int.from_bytes(padded[11:19], "big"))
        record = padded[:1] == b"t" and padded[9:11] == b"_r"
        assert found.exact[at] == (record and len(key) == 19)
        assert (found.kind[at] == KeyKind.RECORD) == record


def test_nothing_is_nothing() -> None:
    assert NOTHING_KNOWN.num_rows == 1
    assert len(settle(ShardEntries(CHANGES.empty_table(), [], []).plain(np.arange(0))).rest) == 0


def test_a_hash_that_two_transactions_share_makes_no_pair() -> None:
    """Of one key the one's prewrite and the other's commit are there, and their hashes begin with the same bits."""
    one, other = 450_000_000_000_000_001, 710_336_291_949_260_577
    key, second = record_key((5).to_bytes(8, "big")), record_key((6).to_bytes(8, "big"))
    rows = [(PREWRITE, key, one, None), (COMMIT, key, other, other + 10)]
    rows += [(PREWRITE, second, one, None), (COMMIT, second, one, other + 20)]  # so that the second pass has them
    made = [{**entry(kind, b"", start, commit), "key": at} for kind, at, start, commit in rows]
    shard = ShardEntries(pa.Table.from_pylist(made, schema=CHANGES), [], [])
    bits = CLASS_BITS + (len(made) - 1).bit_length()
    hashed = _hashes(shard.plain(np.arange(4)), np.arange(2)) >> np.uint64(bits)
    assert hashed[0] == hashed[1], "no collision any more: look for another pair"
    ticks = Ticks()
    ticks.tick(made, 0)
    assert ticks.waiting() == [(PREWRITE, one), (COMMIT, other)]
    assert ticks.above() == 1
