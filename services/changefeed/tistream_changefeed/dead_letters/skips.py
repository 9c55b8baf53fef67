"""Finds the events that a feed leaves out because a person named them (invariant 47). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import fold
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.protocols.limits import MessageTooLarge
from tistream_changefeed.rows.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class SkippedEvents:
    """The events that a feed leaves out, as the skips `named`. `topic` is the dead letter topic, and `bytes_max`
    the maximum size of a letter."""

    named: Sequence[Skip]
    topic: str
    bytes_max: int

    def rows(self, batch: RowBatch) -> list[tuple[int, Skip]]:
        """Find the events of a batch that are left out. Returns a list of (the event's index in the batch, the skip
        that names it), in the order of the indexes."""
        wanted: dict[tuple[int, bytes], Skip] = {}
        for skip in self.named:
            if skip.key is not None and _names(skip, *batch.version.name):
                wanted.setdefault((skip.commit_ts, bytes.fromhex(skip.key)), skip)
        if not wanted:
            return []
        stamps = np.array([ts for ts, _ in wanted], np.int64)
        at: Int64s = np.flatnonzero(np.isin(batch.commit_ts, stamps))
        events = zip(batch.commit_ts[at].tolist(), batch.raw.take(pa.array(at)).to_pylist(), strict=True)
        return [(place, wanted[event]) for place, event in zip(at.tolist(), events, strict=True) if event in wanted]

    def ddl(self, event: DdlEvent) -> Skip | None:
        """The skip that names this DDL, by its job id and commit_ts; None if no skip names it."""
        for skip in self.named:
            if (skip.ddl_job, skip.commit_ts) == (event.job_id, event.commit_ts):
                return skip
        return None

    def of(self, error: MessageTooLarge) -> SkippedEvents:
        """Return the SkippedEvents that leave out the events of `error`, which are too large for a message. Their
        letters go to the same dead letter topic."""
        why = "its message is larger than max-message-bytes, and on-row-error is dead-letter"
        named = [Skip(commit_ts=ts, table=error.table, key=key.hex(), reason=why) for ts, key in error.events]
        return replace(self, named=named)


NO_SKIPS = SkippedEvents((), "", 0)


def without(batch: RowBatch, left_out: Sequence[tuple[int, Skip]]) -> Bools:
    """A mask that is True for each event of the batch that is not in `left_out`."""
    stay = np.ones(len(batch), bool)
    stay[[at for at, _ in left_out]] = False
    return stay


def _names(skip: Skip, database: str, table: str) -> bool:
    return fold(skip.table) == fold(f"{database}.{table}")
