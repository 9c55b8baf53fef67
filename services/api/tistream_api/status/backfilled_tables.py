"""Computes the progress of each table of a backfill from its plan, its chunks, and the bases in the pool. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tistream.format.backfill.chunk_plan import ChunkPlan, table_id_of
from tistream.model.base_cover import Hole
from tistream.model.span import shown_key
from tistream.schema.visible import TableVersion
from tistream.wire.bulk.backfills import BackfilledTable

GONE = "it was dropped, truncated or exchanged since: its rows are not needed"
UNKNOWN = "no table has this physical id"


@dataclass(frozen=True, slots=True)
class Chunks:
    """What is known about the chunks of a backfill, by chunk number. `sizes`: the bytes of each chunk that exists.
    `rows`: the number of rows of each chunk whose footer has been read. `refused`: why a chunk is never accepted."""

    sizes: Mapping[int, int]
    rows: Mapping[int, int]
    refused: Mapping[int, str]


def backfilled_tables(
    plan: ChunkPlan,
    chunks: Chunks,
    now: Sequence[TableVersion],
    then: Sequence[TableVersion],
    complete_from: Callable[[Sequence[int]], int | Hole],
) -> list[BackfilledTable]:
    """Compute the progress of each table of a plan, ordered by name. `now` are the tenant's tables, and `then` those at
    the plan's min_ts, from which tables that no longer exist get their names. `complete_from` returns the ts from which
    on all rows of these physical ids are known."""
    named = {one: version for version in (*then, *now) for one in version.head.physical_ids}
    live = {one for version in now for one in version.head.physical_ids}
    numbers: dict[int, list[int]] = {}
    for number, span in enumerate(plan.spans):
        numbers.setdefault(table_id_of(span), []).append(number)
    found: dict[tuple[str, str, bool], list[int]] = {}
    for table_id in numbers:
        version = named.get(table_id)
        name = ("", f"(physical id {table_id})") if version is None else (version.database, version.head.name)
        found.setdefault((*name, table_id in live), []).append(table_id)
    out = []
    for (database, table, is_live), ids in sorted(found.items()):
        mine = [number for one in ids for number in numbers[one]]
        there = [number for number in mine if number in chunks.sizes]
        known = complete_from(named[ids[0]].head.physical_ids) if is_live else Hole(plan.spans[mine[0]])
        held_by = _held_by(mine, chunks, known) if is_live else (GONE if ids[0] in named else UNKNOWN)
        counted = [chunks.rows[number] for number in there if number in chunks.rows]
        out.append(
            BackfilledTable(
                database=database,
                table=table,
                base_ts=None if isinstance(known, Hole) else str(known),
                rows=sum(counted) if len(counted) == len(there) else None,
                bytes=sum(chunks.sizes[number] for number in there),
                chunks_done=len(there),
                chunks=len(mine),
                held_by=held_by,
            )
        )
    return out


def _held_by(mine: Sequence[int], chunks: Chunks, known: int | Hole) -> str | None:
    """The reason why a table is not complete; None if it is complete."""
    if not isinstance(known, Hole):
        return None
    refused = [number for number in mine if number in chunks.refused]
    if refused:
        first = f"chunk {refused[0]}: {chunks.refused[refused[0]]}"
        return f"{len(refused)} of {len(mine)} chunks were refused; {first}: run another backfill of it"
    missing = [number for number in mine if number not in chunks.sizes]
    if missing:
        return f"{len(missing)} of {len(mine)} chunks are not written yet; the first is {missing[0]}"
    return f"all chunks are written; the sorters have not taken those from key {shown_key(known.span.start)} on"
