"""How far each table of a backfill has come, in words that name what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from support.cut_set import CutSet, commit_timestamps, cut
from tistream.format.backfill.chunk_plan import ChunkPlan
from tistream.model.base_cover import Hole
from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import record_span
from tistream.wire.bulk.backfills import BackfilledTable
from tistream_api.status.backfilled_tables import GONE, UNKNOWN, Chunks, backfilled_tables

MADE: CutSet = cut("everything", commit_timestamps("everything")[900])
NOW: list[Any] = MADE.tables(MADE.t0)
PARTED = next(one for one in NOW if len(one.head.physical_ids) > 1)
PLAIN = next(one for one in NOW if len(one.head.physical_ids) == 1)
NEVER = 1 << 40  # no table has this id


def halves(table_id: int) -> list[KeySpan]:
    span = record_span(table_id)
    middle = span.start + b"\x80"
    return [KeySpan(span.start, middle), KeySpan(middle, span.end)]


def shown(ids: list[int], chunks: Chunks, known: int | Hole, now: list[Any] | None = None) -> list[BackfilledTable]:
    spans = tuple(span for one in sorted(ids) for span in halves(one))
    return backfilled_tables(ChunkPlan(spans, MADE.t0), chunks, NOW if now is None else now, NOW, lambda _: known)


HOLE = Hole(record_span(PLAIN.head.physical_ids[0]))
ID = PLAIN.head.physical_ids[0]


@pytest.mark.parametrize(
    ("chunks", "rows", "reason"),
    [
        (Chunks({}, {}, {}), 0, "2 of 2 chunks are not written yet; the first is 0"),
        (Chunks({0: 5}, {0: 3}, {}), 3, "1 of 2 chunks are not written yet; the first is 1"),
        (Chunks({0: 5, 1: 6}, {0: 3}, {}), None, "all chunks are written; the sorters have not taken those from key"),
        (Chunks({0: 5, 1: 6}, {0: 3, 1: 4}, {1: "fails its CRC"}), 7, "1 of 2 chunks were refused; chunk 1: fails its"),
    ],
)
def test_what_a_table_waits_for(chunks: Chunks, rows: int | None, reason: str) -> None:
    (table,) = shown([ID], chunks, HOLE)
    assert (table.database, table.table) == (PLAIN.database, PLAIN.head.name)
    assert (table.rows, table.bytes, table.chunks_done, table.chunks) == (
        rows,
        sum(chunks.sizes.values()),
        len(chunks.sizes),
        2,
    )
    assert table.base_ts is None
    assert (table.held_by or "").startswith(reason)


def test_a_complete_table_waits_for_nothing() -> None:
    (table,) = shown([ID], Chunks({0: 5, 1: 6}, {0: 3, 1: 4}, {}), 77)
    assert (table.base_ts, table.held_by, table.rows) == ("77", None, 7)


def test_partitions_are_one_table() -> None:
    ids = list(PARTED.head.physical_ids)
    (table,) = shown(ids, Chunks({0: 1}, {0: 9}, {}), HOLE)
    assert (table.table, table.chunks, table.chunks_done) == (PARTED.head.name, 2 * len(ids), 1)


def test_a_table_that_is_gone_and_an_id_that_never_was_are_named() -> None:
    gone, never = sorted(
        shown([ID, NEVER], Chunks({}, {}, {}), 77, [one for one in NOW if one is not PLAIN]),
        key=lambda one: one.held_by == UNKNOWN,
    )
    assert (gone.table, gone.held_by, gone.base_ts) == (PLAIN.head.name, GONE, None)
    assert (never.table, never.held_by) == (f"(physical id {NEVER})", UNKNOWN)
