"""Plans the chunks of a restore, and finds those that must still be written. Pure.

The plan is made once and stored, because the pool changes. So each attempt, of whichever process, writes the same rows
under the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from tistream.errors import CorruptObject
from tistream.model.span import KeySpan
from tistream.pool.versions.plan import IndexShard, TableRange, records_of
from tistream.wire.bulk.restores import RestoreTable

CHUNK_BYTES = 32 << 20  # of stored values; TiDB refuses transactions above some 100 MB by default
PARTS_MAX = 64  # ranges of a shard that are counted at the same time
FAILURES_MAX = 8  # in a row, without a lot of chunks between them
_PAUSE_MAX_S = 30.0
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows that a restore writes as one transaction or one file. Numbers begin at 1 in each table. `rows`: the
    number of rows as of the ts."""

    number: int
    wanted: TableRange
    rows: int


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One table of a restore, with the chunks in which it is written, in key order."""

    database: str
    table: str
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.chunks)


def parts_of(shards: Sequence[IndexShard], physical_ids: Iterable[int]) -> list[TableRange]:
    """Cut the record keys of physical ids into ranges that can be read at the same time. Ranges begin where a shard
    begins, or where an object of its runs begins."""
    found: list[TableRange] = []
    for wanted in map(records_of, sorted(physical_ids)):
        for shard in shards:
            clipped = wanted.clip(shard.span)
            if clipped is not None:
                found += _cut(
                    clipped,
                    sorted({key for table_id, key in (run.first for run in shard.runs) if table_id == wanted.table_id}),
                )
    return found


def _cut(wanted: TableRange, firsts: Sequence[bytes]) -> Iterator[TableRange]:
    span = wanted.span
    inside = [key for key in firsts if span.start < key and (not span.end or key < span.end)]
    step = max(1, -(-len(inside) // PARTS_MAX))
    bounds = [span.start, *inside[::step], span.end]
    for start, end in pairwise(bounds):
        yield TableRange(wanted.table_id, KeySpan(start, end))


def shards_for(shards: Iterable[IndexShard], wanted: TableRange) -> tuple[IndexShard, ...]:
    """The shards of the pool that have keys of the range, so they are needed to read it."""
    return tuple(shard for shard in shards if shard.span.overlaps(wanted.span))


def cuts(
    sizes: Iterable[tuple[Sequence[Any], float]], rows_max: int, bytes_max: int = CHUNK_BYTES
) -> Iterator[tuple[bytes, int]]:
    """Cut rows into chunks. Yields the last key and the number of rows of each chunk.

    Args:
        sizes: for each batch of rows, in key order: its keys, as a binary array, and the bytes of all its rows.
        rows_max, bytes_max: the limits of a chunk. A single row may be larger.
    """
    rows, size, last = 0, 0.0, b""
    for keys, nbytes in sizes:
        each, at = nbytes / max(1, len(keys)), 0
        while at < len(keys):
            fits = min(rows_max - rows, int((bytes_max - size) / each) if each else rows_max)
            if fits <= 0 and rows:
                yield last, rows
                rows, size = 0, 0.0
                continue
            count = min(len(keys) - at, max(1, fits))
            at += count
            rows, size, last = rows + count, size + count * each, keys[at - 1].as_py()
    if rows:
        yield last, rows


def chunks_of(counted: Iterable[tuple[TableRange, Sequence[tuple[bytes, int]]]]) -> tuple[Chunk, ...]:
    """The chunks of a table, numbered in key order. `counted` has the parts of the table, in key order, each with the
    last key and the number of rows of each of its chunks (`cuts`)."""
    found: list[Chunk] = []
    for part, ends in counted:
        start = part.span.start
        for last, rows in ends:
            end = last + b"\0"
            found.append(Chunk(len(found) + 1, TableRange(part.table_id, KeySpan(start, end)), rows))
            start = end
    return tuple(found)


def encode(restore_id: str, tables: Sequence[PlannedTable]) -> bytes:
    """Encode a plan as the object that is stored."""
    entries = [
        {
            "database": one.database,
            "table": one.table,
            "chunks": [
                [chunk.wanted.table_id, chunk.wanted.span.start.hex(), chunk.wanted.span.end.hex(), chunk.rows]
                for chunk in one.chunks
            ],
        }
        for one in tables
    ]
    return orjson.dumps({"version": _VERSION, "restore_id": restore_id, "tables": entries})


def decode(key: str, restore_id: str, body: bytes) -> tuple[PlannedTable, ...]:
    """Decode the stored plan, the object `key`, which `encode` has made. Raises CorruptObject if it is malformed, or of
    another restore than `restore_id`."""
    try:
        found = orjson.loads(body)
        if (found["version"], found["restore_id"]) != (_VERSION, restore_id):
            raise ValueError("it is of another restore or version")
        return tuple(
            PlannedTable(
                one["database"],
                one["table"],
                tuple(
                    Chunk(at, TableRange(table_id, KeySpan(bytes.fromhex(start), bytes.fromhex(end))), rows)
                    for at, (table_id, start, end, rows) in enumerate(one["chunks"], 1)
                ),
            )
            for one in found["tables"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(
            key, f"is no plan of this restore: {error}; cancel the restore, and start another"
        ) from error


def missing_chunks(table: PlannedTable, there: Collection[int]) -> list[Chunk]:
    """The planned chunks of a table that the target does not have yet. `there`: the numbers of the chunks that it
    has."""
    return [one for one in table.chunks if one.number not in there]


def groups_of(chunks: Sequence[Chunk], size: int) -> Iterator[Sequence[Chunk]]:
    """Divide chunks into groups of `size`; the last group may have fewer. The restore reports its progress after each
    group."""
    for at in range(0, len(chunks), size):
        yield chunks[at : at + size]


def progress(
    tables: Sequence[PlannedTable], done: Mapping[tuple[str, str], int], checksums: Mapping[tuple[str, str], str]
) -> list[RestoreTable]:
    """The progress of each table, in the form of a report. `done`: by (database, table), the number of rows that the
    target has. `checksums`: by (database, table), the checksums of the tables that were compared."""
    return [
        RestoreTable(
            database=one.database,
            table=one.table,
            rows=one.rows,
            rows_done=done.get((one.database, one.table), 0),
            checksum=checksums.get((one.database, one.table)),
        )
        for one in tables
    ]


def pause_s(failures: int) -> float | None:
    """How long to wait after this number of failures in a row, in seconds; None if the restore must fail."""
    return None if failures >= FAILURES_MAX else min(2.0 ** (failures - 1), _PAUSE_MAX_S)
