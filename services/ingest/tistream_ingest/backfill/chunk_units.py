"""Cuts the tables of a BR full backup into base chunks: all rows of a span of keys as of one ts (docs/backfill.md).
Pure.

A chunk lies in the record span of one physical id and in the range of at most one pair of SST files, so that one Spark
task writes it from one pair. The keys between two pairs have no rows: BR writes backupmeta only after its ranges are
covered. So a chunk reaches from the start of its pair to the start of the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tistream.format.backfill.chunk_plan import ChunkPlan
from tistream.format.br.full_backup import SstPair
from tistream.model.span import KeySpan


@dataclass(frozen=True, slots=True)
class ChunkUnit:
    """The work of one Spark task: the chunks that are read from one pair of SST files, as (number, span). pair: None if
    no file has keys of the chunk; the chunk is then empty."""

    pair: SstPair | None
    chunks: tuple[tuple[int, KeySpan], ...]


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """The plan of a backfill from a full backup: all chunks, and the units of work that write them."""

    plan: ChunkPlan
    units: tuple[ChunkUnit, ...]


def plan_backup(spans: Iterable[KeySpan], pairs: Sequence[SstPair], base_ts: int) -> BackupPlan:
    """Plan the chunks of a backfill and the units of work that write them.

    Args:
        spans: the record spans of the requested tables, which do not overlap.
        pairs: the backup's pairs of SST files, in key order (full_backup.sst_pairs).
        base_ts: the ts of all rows in the backup.

    Equal arguments give the same plan, whichever process makes it.
    """
    starts = [pair.write.start_key for pair in pairs]
    chunks: list[KeySpan] = []
    of_pair: dict[int, list[tuple[int, KeySpan]]] = {}
    empty: list[tuple[int, KeySpan]] = []
    for span in sorted(spans, key=lambda span: span.start):
        pieces = _pieces(span, pairs, starts)
        for at, piece in pieces:
            (of_pair.setdefault(at, []) if at is not None else empty).append((len(chunks), piece))
            chunks.append(piece)
    units = [ChunkUnit(pairs[at], tuple(listed)) for at, listed in sorted(of_pair.items())]
    units += [ChunkUnit(None, (one,)) for one in empty]
    return BackupPlan(ChunkPlan(tuple(chunks), base_ts), tuple(units))


def _pieces(span: KeySpan, pairs: Sequence[SstPair], starts: Sequence[bytes]) -> list[tuple[int | None, KeySpan]]:
    """Cut a span at the start keys of the pairs that overlap it. Returns the parts, each with the index of its pair;
    None for a part without a pair."""
    first = max(0, bisect_left(starts, span.start) - 1)
    last = bisect_left(starts, span.end) if span.end else len(starts)
    found = [at for at in range(first, last) if _range(pairs[at]).overlaps(span)]
    if not found:
        return [(None, span)]
    cuts = [span.start, *(starts[at] for at in found[1:]), span.end]
    return [(at, KeySpan(cuts[place], cuts[place + 1])) for place, at in enumerate(found)]


def _range(pair: SstPair) -> KeySpan:
    return KeySpan(pair.write.start_key, pair.write.end_key)
