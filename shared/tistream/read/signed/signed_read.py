"""Reads a table's row events in the range of an answer of SignedChanges, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from tistream.errors import CorruptObject
from tistream.filters.event_choice import EventChoice
from tistream.model.ids import TenantKey
from tistream.read import cursor as cursors
from tistream.read.arrow.row_batches import row_batches
from tistream.read.cursor import Position, Scope
from tistream.read.filtered.chosen_events import chosen
from tistream.read.scan import Budget, Scan
from tistream.read.signed.signed_source import Fetch, SignedSource
from tistream.read.source_contract import Batch
from tistream.wire.signed import SignedChanges

BUDGET = Budget(rows=131_072, first_rows=131_072, chunk_bytes=32 << 20, decoded_bytes=64 << 20)


@dataclass(frozen=True, slots=True)
class Progress:
    """The position that a read has reached: `ts` is the highest ts for which every event at or below it was returned,
    and `cursor` the position as PullTable takes it. `blocked`: the next row cannot be decoded or filtered, and a pull
    says why."""

    ts: int
    cursor: str
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read of one table's row events, from a position on. `choice`: those that it returns; None: all."""

    scope: Scope
    at: Position
    choice: EventChoice | None = None

    @staticmethod
    def of(
        cluster: str,
        tenant: str,
        database: str,
        table: str,
        ts: int,
        operations: str | None = None,
        where: str | None = None,
    ) -> TableRead:
        """A read of the events above `ts` that a pull with these filters sends. Raises UnknownName for a name that no
        tenant can have, InvalidRequest for a filter that cannot be parsed."""
        choice = EventChoice.parse(None, operations, None, where)
        return TableRead(Scope(TenantKey.parse(cluster, tenant), database, table), Position(ts), choice)

    @property
    def progress(self) -> Progress:
        """The position."""
        return Progress(self.at.low_ts, cursors.encode(self.scope, self.at))

    def moved(self, ts: int) -> TableRead:
        """The read of the events above `ts`."""
        return replace(self, at=Position(ts))

    def batches(
        self, answer: Mapping[str, Any], fetch: Fetch
    ) -> Iterator[tuple[list[pa.RecordBatch], TableRead, Progress]]:
        """Yield record batches as PullTable has them, the read that continues after them, and its progress. The last
        progress is at the end of the answer's range, or `blocked`. `answer` is the JSON object of an answer with
        `direct`, whose range begins at or below the position, and which was requested with the same filters or with
        none.

        Raises:
            CorruptObject: bytes are damaged, or the answer is of another version.
            The errors of `fetch`: the read can continue after what was yielded, with another answer.
        """
        try:
            stated = SignedChanges.model_validate(answer)
        except ValidationError as error:
            raise CorruptObject("the answer of SignedChanges", f"is not that of this version: {error}") from error
        scan = Scan(SignedSource(stated, fetch), self.scope, self.at, int(stated.end_ts), BUDGET)
        read, seq = self, 0
        for batch in scan.batches() if self.choice is None else chosen(self.choice, scan.batches()):
            found = list(row_batches(batch.events, seq)) if len(batch.events) else []
            seq += len(batch.events)
            read = replace(read, at=_after(batch, read.at))
            progress = read.progress
            blocked = batch.barrier is not None or batch.last
            yield found, read, Progress(progress.ts, progress.cursor, blocked)


def _after(batch: Batch, at: Position) -> Position:
    """The position after a batch, which follows the position `at`."""
    reached = [at]
    if len(batch.events):
        reached.append(batch.events.position(len(batch.events) - 1))
    if batch.looked_at is not None:
        reached.append(batch.looked_at)
    if batch.through is not None:  # that of a batch inside of a commit_ts may lie below the position
        reached.append(Position(batch.through))
    return max(reached)
