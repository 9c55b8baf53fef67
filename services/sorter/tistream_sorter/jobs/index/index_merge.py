"""Merges segments and runs into a run of the version index, in a Spark worker (docs/adr/0028). The driver has selected
the inputs.

A merge that fits into memory and into one object is done as a whole. Otherwise the result is a list of shards: spans
of keys with about equal bytes or rows, found from the statistics of the runs' row groups and from a sample of the
segments' keys. A second job then merges each shard by itself. A shard reads only row groups that may have its keys, and
writes one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.concurrency import new_executor
from tistream.errors import CorruptObject, RetryableError, TiStreamError
from tistream.format.run import OBJECT_ROWS, SCHEMA, RunRef
from tistream.format.segment import SegmentRef
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.parquet_objects import OpenedObject
from tistream.pool.rows import open_segment, read_opened_groups, row_groups_touching
from tistream.pool.run_rows import group_bounds, open_run, read_run_groups
from tistream.pool.run_writer import write_run
from tistream.storage import layout
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.match.contracts import wide
from tistream_sorter.match.key_range import inside
from tistream_sorter.match.versions import folded, version_order

READERS = 4
SAMPLES = 64  # sampled keys of each row group of a segment
READ_BYTES = 16 << 20  # unpacked bytes of the row groups in one read, unless one group is larger


@dataclass(frozen=True, slots=True)
class _Source:
    """One input of the merge, and its row groups that may have rows for it. `bounds`: the lowest and highest key of
    each row group, if they are known. `unpacked`: bytes of each row group in memory. `weights`: the same, or more if it
    has many small rows; a merge of more than `unpacked_max` is cut."""

    of: SegmentRef | RunRef
    opened: OpenedObject
    groups: tuple[int, ...]
    unpacked: tuple[int, ...]
    weights: tuple[int, ...]
    bounds: tuple[tuple[bytes, bytes], ...] | None


def merge_guarded(objects: ObjectStore, unit: IndexUnit) -> IndexResult:
    """Run one merge, or one shard of it. A TiStreamError is returned in the result, so that the other merges of the job
    continue."""
    counted = MeasuredObjectStore(objects)
    try:
        done = _merged(counted, unit)
    except CorruptObject as error:
        done = IndexResult(unit.task_id, unit.number, failed=str(error), damaged=(error.key,))
    except RetryableError as error:
        done = IndexResult(unit.task_id, unit.number, failed=str(error))
    except TiStreamError as error:
        done = IndexResult(unit.task_id, unit.number, failed=str(error), damaged=tuple(sorted(unit.inputs)))
    return replace(done, traffic={kind: count for kind, count in counted.traffic().items() if count.requests})


def _merged(objects: ObjectStore, unit: IndexUnit) -> IndexResult:
    with new_executor("get", READERS) as readers:
        sources = list(readers.map(lambda one: _source(objects, unit, one), (*unit.segments, *unit.runs)))
        if unit.shard is None and sum(sum(source.weights) for source in sources) > unit.unpacked_max:
            points = [point for found in readers.map(lambda one: _points(objects, one), sources) for point in found]
            spans = cut(unit.span, points, unit.unpacked_max)
            if len(spans) > 1:
                return IndexResult(unit.task_id, shards=spans)
        tables = list(readers.map(lambda source: _read(objects, unit, source), sources))
    rows = pa.concat_tables([wide(SCHEMA).empty_table(), *(table.cast(wide(SCHEMA)) for table in tables)])
    rows = rows.take(pa.array(version_order(rows.column("key"), rows.column("commit_ts").to_numpy())))
    if unit.low_ts is None:
        rows = folded(rows)
    if not rows.num_rows:
        return IndexResult(unit.task_id, unit.number)
    key = layout.run(unit.tenant, unit.task_id, unit.task_epoch, unit.nonce, unit.number)
    body, written = write_run(rows, key, unit.low_ts, unit.high_ts)
    objects.put(key, body)
    return IndexResult(unit.task_id, unit.number, (written,))


def cut(span: KeySpan, points: Sequence[tuple[bytes, int]], most: int) -> tuple[KeySpan, ...]:
    """Cut `span` into spans of about the weight `most`. `points`: keys, each with the weight of the rows between it and
    the next point."""
    bounds: list[bytes] = []
    size = 0
    for key, weight in sorted(points):
        if size + weight > most and size and key > (bounds[-1] if bounds else span.start):
            bounds.append(key)
            size = 0
        size += weight
    edges = [span.start, *(key for key in bounds if key in span), span.end]
    return tuple(KeySpan(low, high) for low, high in pairwise(edges))


def _source(objects: ObjectStore, unit: IndexUnit, one: SegmentRef | RunRef) -> _Source:
    if isinstance(one, SegmentRef):
        assert unit.low_ts is not None, "only runs are folded"
        opened = open_segment(objects, one)
        groups = tuple(row_groups_touching(one, Window(unit.low_ts, unit.high_ts), None))
        unpacked = [
            sum(chunk.decoded for chunk in group.chunks if chunk.column != "old_value")
            for group in opened.footer.groups
        ]
        sizes = tuple(unpacked[at] for at in groups)
        rows = [opened.footer.groups[at].rows for at in groups]
        return _Source(one, opened, groups, sizes, _weights(unit, sizes, rows), None)
    span = unit.shard or unit.span
    opened = open_run(objects, one)
    found = group_bounds(one, opened)
    groups = tuple(at for at, group in enumerate(found) if span.touches(group.first_key, group.last_key))
    bounds = tuple((found[at].first_key, found[at].last_key) for at in groups)
    sizes = tuple(found[at].decoded for at in groups)
    return _Source(one, opened, groups, sizes, _weights(unit, sizes, [found[at].rows for at in groups]), bounds)


def _weights(unit: IndexUnit, unpacked: Sequence[int], rows: Sequence[int]) -> tuple[int, ...]:
    """The share of a merge that each row group is, in bytes of `unpacked_max`. OBJECT_ROWS rows weigh as much as that
    many bytes, except in a base run, which has no filter of keys."""
    row = 0.0 if unit.low_ts is None else unit.unpacked_max / OBJECT_ROWS
    return tuple(max(size, int(count * row)) for size, count in zip(unpacked, rows, strict=True))


def _points(objects: ObjectStore, source: _Source) -> list[tuple[bytes, int]]:
    """Sample the keys of an input. Returns (key, approximate weight of the rows between this key and the next one)."""
    if source.bounds is not None:
        return [(first, size) for (first, _), size in zip(source.bounds, source.weights, strict=True)]
    assert isinstance(source.of, SegmentRef)
    out: list[tuple[bytes, int]] = []
    for at, size in zip(source.groups, source.weights, strict=True):
        keys = read_opened_groups(objects, source.of, source.opened, [at], ["key"]).column("key")
        chosen = np.unique(np.linspace(0, len(keys) - 1, SAMPLES).astype(np.int64))
        out += [(key, size // len(chosen)) for key in keys.take(pa.array(chosen)).to_pylist()]
    return out


def _batches(source: _Source) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for at, unpacked in zip(source.groups, source.unpacked, strict=True):
        if batch and size + unpacked > READ_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += unpacked
    if batch:
        yield batch


def _read(objects: ObjectStore, unit: IndexUnit, source: _Source) -> pa.Table:
    """The rows of an input that belong to the merge, or to its shard."""
    span = unit.shard or unit.span
    piece = unit.span.clip(span)
    assert piece is not None, "a shard is a part of its unit"
    tables = [SCHEMA.empty_table()]
    # Few row groups are read at once and filtered, so that rows of other shards do not accumulate in memory.
    for groups in _batches(source):
        if isinstance(source.of, RunRef):
            rows = read_run_groups(objects, source.of, source.opened, groups)
        else:
            found = read_opened_groups(objects, source.of, source.opened, groups, SCHEMA.names)
            assert unit.low_ts is not None
            commit_ts = found.column("commit_ts")
            window = pc.and_(pc.greater(commit_ts, unit.low_ts), pc.less_equal(commit_ts, unit.high_ts))
            rows = found.filter(window).select(SCHEMA.names)
        mine = inside(pl.Series(rows.column("key")), piece.start, piece.end)
        tables.append(rows if mine.all() else rows.filter(mine.to_arrow()))
    return pa.concat_tables(tables)
