"""The plan of a BR full backup, and the tables that a backfill asks for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pull_world import committed
from tistream.errors import InvalidRequest
from tistream.format.br.full_backup import BackupFile, SstPair
from tistream.model.span import KeySpan
from tistream_ingest.backfill.chunk_units import plan_backup
from tistream_ingest.plan.requested_tables import RequestedTable, parse_patterns, requested_tables

KEYS = [bytes([one]) for one in range(1, 30)]


def pair(start: bytes, end: bytes) -> SstPair:
    return SstPair(BackupFile(f"{start.hex()}_write.sst", b"", start, end, 1, "write", 1), None)


@st.composite
def disjoint(draw: st.DrawFn) -> list[KeySpan]:
    cuts = sorted(draw(st.sets(st.sampled_from(KEYS), max_size=12)))
    spans = [KeySpan(low, high) for low, high in zip(cuts[::2], cuts[1::2], strict=False)]
    if cuts and draw(st.booleans()):
        spans.append(KeySpan(cuts[-1], b"")) if len(cuts) % 2 else None
    return spans


@given(disjoint(), disjoint())
def test_chunks_tile_the_spans_and_each_key_of_a_pair_is_read_once(spans: list[KeySpan], ranges: list[KeySpan]) -> None:
    found = plan_backup(spans, [pair(one.start, one.end) for one in ranges], 5)
    chunks = found.plan.spans
    assert found.plan.min_ts == 5
    for key in KEYS:
        assert sum(key in chunk for chunk in chunks) == sum(key in span for span in spans)
    assert all(left.end and left.end <= right.start for left, right in itertools.pairwise(chunks))
    numbers = sorted(number for unit in found.units for number, _ in unit.chunks)
    assert numbers == list(range(len(chunks)))
    for unit in found.units:
        for number, span in unit.chunks:
            assert chunks[number] == span
            touching = [one for one in ranges if one.overlaps(span)]
            assert touching == ([KeySpan(unit.pair.write.start_key, unit.pair.write.end_key)] if unit.pair else [])


def test_a_table_without_a_file_is_one_empty_chunk() -> None:
    found = plan_backup([KeySpan(b"b", b"c")], [pair(b"d", b"e")], 5)
    assert [(unit.pair, unit.chunks) for unit in found.units] == [(None, ((0, KeySpan(b"b", b"c")),))]


def test_patterns_match_names_without_regard_to_case() -> None:
    _, history = committed("everything")
    ts = history.resolved_ts
    visible = [version for name in history.databases(ts) for version in history.visible_tables(ts, name)]
    every = requested_tables(["*.*"], visible)
    assert {(one.database, one.table) for one in every} == {
        (version.database, version.head.name) for version in visible if version.head.kind == "table"
    }
    first = every[0]
    assert requested_tables([f"{first.database.upper()}.{first.table.upper()}"], visible) == [first]
    assert any(len(one.physical_ids) > 1 for one in every), "a partitioned table"
    assert all(one.database not in ("mysql", "sys") for one in every)


def test_a_pattern_without_a_table_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"no table of the backup matches 'shop\.nothing': no name is like it"):
        requested_tables(["shop.nothing"], [])
    assert requested_tables(["*.*"], []) == [], "an empty cluster"
    for bad in ([], ["shop"], [".t"], ["a."], ["a.[b]"]):
        with pytest.raises(InvalidRequest):
            parse_patterns(bad)


def test_the_spans_of_a_partitioned_table_are_those_of_its_partitions() -> None:
    spans = RequestedTable("d", "t", (5, 6)).spans
    assert [span.start[:9] for span in spans] == [b"t\x80" + bytes(6) + bytes([one]) for one in (5, 6)]
