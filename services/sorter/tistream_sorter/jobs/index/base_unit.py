"""The input and the result of the job that converts a base chunk to a base run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.format.backfill.base_chunk import ChunkId
from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.model.base_cover import Base
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage import layout
from tistream.storage.measured import Traffic


@dataclass(frozen=True, slots=True)
class BaseUnit:
    """The input for the conversion of one base chunk.

    `planned` is the chunk's span in the backfill's plan. `span` is the part of it that lies in the task's span; its
    keys belong to the table table_id. `segments` and `runs` are objects with the rows of one part of the task's version
    index: the runs hold every version up to indexed_ts, the segments every version above it. `basis` are objects with
    the rows of earlier backfills. `flushed_ts` is the task's: changes in (base_ts, flushed_ts] are compared with the
    chunk, as `exact` and `old_values` say (base_rows.rows_that_count). `epoch` and `nonce` are in the
    object keys of the output.
    """

    tenant: TenantKey
    task_id: int
    chunk: ChunkId
    planned: KeySpan
    span: KeySpan
    table_id: int
    base_ts: int
    exact: bool
    old_values: bool
    flushed_ts: int
    segments: tuple[SegmentRef, ...]
    runs: tuple[RunRef, ...]
    indexed_ts: int
    basis: tuple[RunRef, ...]
    epoch: int
    nonce: str

    def key(self, part: int) -> str:
        """The object key of the output's object number `part`."""
        return layout.run(self.tenant, self.task_id, self.epoch, self.nonce, part)


@dataclass(frozen=True, slots=True)
class BaseResult:
    """The result for a BaseUnit. base: the keys whose rows are all known from now on, and the ts as of which they are
    known. runs: the written objects, with the rows that the log lacks, in key order. failed: the reason if there is no
    result. lasting: whether another attempt would fail in the same way; only a chunk of another backfill can then
    replace this one."""

    task_id: int
    chunk: ChunkId
    base: Base | None = None
    runs: tuple[RunRef, ...] = ()
    failed: str | None = None
    lasting: bool = False
    traffic: dict[str, Traffic] = field(default_factory=dict)
