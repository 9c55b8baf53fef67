"""Writes the output of a shard: segments, SEALED and READY parts in chunks, and one UNMATCHED part (match/contracts.py
explains the parts)."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tistream.format.manifest import READY, SEALED, UNMATCHED, PendingPart
from tistream.format.segment import SegmentRef
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.object_store import Body, ObjectStore
from tistream_sorter.jobs.pending_parts import pointer_column, with_pointers, with_values
from tistream_sorter.jobs.pointers import NOWHERE, PointedFiles, rows_as_pointers, rows_to_copy, sources_of
from tistream_sorter.jobs.shard import Shard
from tistream_sorter.match.contracts import UNMATCHED_SCHEMA, widened
from tistream_sorter.match.sealing import ORDERED, in_order, split, value_bytes

NAMES_PER_SHARD = 10_000
# Values of a row group with fewer than point_bytes_min / FEW bytes are copied out, because they are not worth a source.
FEW = 4
PAGE_BYTES_SAFE = 1 << 30
ENCODINGS = {"key": "DELTA_BYTE_ARRAY", "pointer": "DELTA_BINARY_PACKED", "log_index": "DELTA_BINARY_PACKED"}


class OutputTarget(Protocol):
    """The object store, or a queue in front of it, to which a shard writes its objects."""

    def put(self, key: str, body: Body) -> None: ...


@dataclass(slots=True)
class ShardOutput:
    """Collects rows, writes them as objects to `target`, and lists the objects in `segments` and `pending`. The target
    may write in the background. The objects have no effect until a manifest names them. `objects`: the object store,
    from which the values behind pointers are read."""

    objects: ObjectStore
    target: OutputTarget
    shard: Shard
    segments: list[SegmentRef] = field(default_factory=list)
    pending: list[PendingPart] = field(default_factory=list)
    _committed: list[pa.Table] = field(default_factory=list)
    _ready: list[pa.Table] = field(default_factory=list)
    _names: int = 0

    def committed(self, rows: pa.Table) -> None:
        """Add rows to flush: those whose commit_ts lies inside the window. They have the columns of segment.SCHEMA (any
        binary types), in segment.ORDER."""
        if rows.num_rows:
            self._committed.append(rows)
            if _bytes(self._committed) >= self.shard.store.chunk_bytes:
                self._put_committed()

    def ready(self, rows: pa.Table) -> None:
        """Add committed rows above the window (READY_WIDE), which become pending parts."""
        sealed, rest = split(rows, self.shard.store.seal_bytes_min)
        for table in sealed:
            self._put_sealed(in_order(table))
        if rest.num_rows:
            self._ready.append(rest)
            if _bytes(self._ready) >= self.shard.store.chunk_bytes:
                self._put_ready()

    def unmatched(self, rows: pa.Table, book: PointedFiles) -> None:
        """Write rows of UNMATCHED_WIDE, whose pointers have the shard's numbers, as one part. The values of large row
        groups stay in their change files."""
        if not rows.num_rows:
            return
        rules = self.shard.store
        few = rows_to_copy(pointer_column(rows), book, rules.point_bytes_min // FEW)
        rows = with_values(self.objects, rows, few, book, rules.chunk_bytes)
        pointer, weight = pointer_column(rows), value_bytes(rows)
        points = rows_as_pointers(pointer, weight, book.at_hand, rules.point_bytes_min)
        pointer = np.where(points, pointer, NOWHERE)
        away = points & (sources_of(pointer) >= book.at_hand)
        per_row = np.asarray([*book.row_bytes, 0.0])[sources_of(pointer)]
        pointed_bytes = int(weight[points].sum() + per_row[away].sum())
        for name in ("value", "old_value"):
            rows = _without(rows, name, points)
        sources, own = book.named_by(pointer, weight)
        part = self._put_part(UNMATCHED, with_pointers(rows, own).select(UNMATCHED_SCHEMA.names))
        self.pending.append(replace(part, sources=sources, pointed_bytes=pointed_bytes))

    def finish(self) -> None:
        """Write the rows that are still collected."""
        self._put_committed()
        self._put_ready()

    def _put_committed(self) -> None:
        if self._committed:
            tables = self._committed
            ordered = (
                tables[0] if len(tables) == 1 else in_order(pa.concat_tables([widened(t, ORDERED) for t in tables]))
            )
            self._committed = []
            self.segments.append(self._put_segment(ordered))

    def _put_segment(self, ordered: pa.Table) -> SegmentRef:
        shard = self.shard
        key = layout.segment(shard.tenant, shard.task_id, shard.task_epoch, shard.nonce, self._name())
        body, segment = write_segment(ordered, key)
        self.target.put(key, body)
        return segment

    def _put_sealed(self, ordered: pa.Table) -> None:
        segment = self._put_segment(ordered)
        part = _part(SEALED, ordered, segment.key, segment.size, segment.checksum)
        self.pending.append(replace(part, row_groups=segment.row_groups))

    def _put_ready(self) -> None:
        if self._ready:
            rows = pa.concat_tables(self._ready)
            self._ready.clear()
            self.pending.append(self._put_part(READY, rows))

    def _put_part(self, kind: str, rows: pa.Table) -> PendingPart:
        shard = self.shard
        key = layout.pending_part(shard.tenant, shard.task_id, shard.task_epoch, shard.nonce, self._name())
        sink = io.BytesIO()
        encodings = {name: how for name, how in ENCODINGS.items() if name in rows.column_names}
        options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "column_encoding": encodings}
        # A page has at least this number of values, and a page of 2 GiB is an error.
        options["write_batch_size"] = 1_024 if rows.nbytes < PAGE_BYTES_SAFE else 8
        # The Arrow schema is not stored, so that a reader uses 32-bit offsets, chunk by chunk.
        pq.write_table(rows, sink, use_dictionary=False, write_statistics=False, store_schema=False, **options)
        body = sink.getvalue()
        self.target.put(key, body)
        return _part(kind, rows, key, len(body), f"{zlib.crc32(body):08x}")

    def _name(self) -> int:
        self._names += 1
        assert self._names < NAMES_PER_SHARD
        return self.shard.number * NAMES_PER_SHARD + self._names


def _part(kind: str, rows: pa.Table, key: str, size: int, checksum: str) -> PendingPart:
    """The entry of the next manifest for a written part."""
    keys, starts, commits = pl.Series(rows["key"]), pl.Series(rows["start_ts"]), pl.Series(rows["commit_ts"])
    lowest, highest = keys.min(), keys.max()
    assert isinstance(lowest, bytes)
    assert isinstance(highest, bytes)
    commit_ts_min = commits.min()
    return PendingPart(
        key=key,
        size=size,
        checksum=checksum,
        rows=rows.num_rows,
        kind=kind,
        start_ts_min=int(starts.min()),  # type: ignore[arg-type]
        start_ts_max=int(starts.max()),  # type: ignore[arg-type]
        commit_ts_min=MAX_TS if commit_ts_min is None else int(commit_ts_min),  # type: ignore[arg-type]
        span=KeySpan(lowest, highest + b"\x00"),
    )


def _bytes(tables: list[pa.Table]) -> int:
    return sum(table.nbytes for table in tables)


def _without(rows: pa.Table, name: str, gone: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Table:
    """The table with nulls in the column `name`, in the rows where `gone` is true."""
    if not gone.any():
        return rows
    at = rows.schema.get_field_index(name)
    kept = pa.compute.if_else(pa.array(gone), pa.scalar(None, rows.schema.field(at).type), rows[name])
    return rows.set_column(at, rows.schema.field(at), kept)
