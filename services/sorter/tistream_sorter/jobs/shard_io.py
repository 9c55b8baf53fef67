"""One shard in a Spark worker: fetch its row groups and parts, run the kernel, write what it says. Decides nothing."""

from __future__ import annotations

import io
import time
import zlib
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tistream.errors import CorruptObject, NotFoundYet, TiStreamError
from tistream.format.manifest import READY, UNMATCHED, PendingPart
from tistream.format.segment import SegmentRef
from tistream.model.span import KeySpan, shown_key
from tistream.model.ts import MAX_TS, Window
from tistream.pool.rows import read_rows
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.change_reader import read_changes
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream_sorter.jobs.contracts import CHANGE_COLUMNS, READY_SCHEMA, UNMATCHED_SCHEMA
from tistream_sorter.jobs.kernel import IDENTITY, Matched, match
from tistream_sorter.jobs.key_range import inside
from tistream_sorter.jobs.shard import Shard, ShardFile, ShardResult

EXAMPLES = 3


@lru_cache(maxsize=4)
def _objects(url: str) -> ObjectStore:
    """One client per worker process: Spark keeps its Python workers."""
    return open_objects(url)


def process(url: str, shards: list[Shard]) -> list[ShardResult]:
    """What a Spark task does with its bundle of shards."""
    objects = _objects(url)
    return [process_guarded(objects, shard) for shard in shards]


def process_guarded(objects: ObjectStore, shard: Shard) -> ShardResult:
    """process_shard, but trouble of this shard's own stays its own: the others of the job go on."""
    try:
        return process_shard(objects, shard)
    except CorruptObject as error:
        return _broken(shard, 10, str(error))
    except TiStreamError as error:
        return ShardResult(shard.task_id, shard.number, failed=str(error))


def process_shard(objects: ObjectStore, shard: Shard) -> ShardResult:
    """Read, match, sort and write one shard. Objects it wrote mean nothing before a manifest names them."""
    began = time.perf_counter_ns()
    changes, bad = _read_files(objects, shard)
    if bad:
        return ShardResult(shard.task_id, shard.number, bad_files=bad)
    unmatched = [_read_part(objects, part, UNMATCHED_SCHEMA) for part in shard.unmatched]
    ready = [_read_part(objects, part, READY_SCHEMA) for part in shard.ready]
    history, scans = (pa.ipc.open_stream(data).read_all() for data in (shard.history, shard.scans))
    matched = match(changes, unmatched, ready, history, scans, shard.rules)
    if len(matched.stranded):
        return _broken(shard, 6, f"commit without prewrite at or below the watermark: {_shown(matched.stranded)}")
    if len(matched.repeats):
        if shard.lookup is None:
            seen = matched.repeats["commit_ts"]
            window = (int(seen.min()), int(seen.max()))  # type: ignore[arg-type]
            return ShardResult(shard.task_id, shard.number, lookup_window=window)
        missing = _missing(objects, shard, matched.repeats)
        if len(missing):
            return _broken(shard, 5, f"change at or below flushed_ts that the pool does not hold: {_shown(missing)}")
    segments, pending = _write(objects, shard, matched)
    pieces = [shard.ready[part] for part in matched.ready_parts]
    pieces += [shard.unmatched[part] for part in matched.unmatched_parts]
    return ShardResult(
        task_id=shard.task_id,
        number=shard.number,
        segments=segments,
        pending=pending,
        consumed=frozenset((piece.key, piece.span.start) for piece in pieces),
        counters=matched.counters | {"repeated_rows": len(matched.repeats)},
        read_bytes=shard.weight,
        wall_ms=(time.perf_counter_ns() - began) // 1_000_000,
    )


def _read_files(objects: ObjectStore, shard: Shard) -> tuple[pa.Table, dict[int, str]]:
    """All wanted changes inside the shard's span, with `seq`; and which files are damaged, and why."""
    tables: list[pa.Table] = []
    bad: dict[int, str] = {}
    for file in shard.files:
        try:
            table = read_changes(objects, file, file.wanted, CHANGE_COLUMNS)
        except (CorruptObject, NotFoundYet) as error:
            bad[file.seq] = str(error)
            continue
        seq = pa.array(np.full(table.num_rows, file.seq, np.int32))
        table = table.select(CHANGE_COLUMNS).append_column("seq", seq)
        tables.append(table if _all_inside(file, shard.span) else _inside(table, shard.span))
    empty = UNMATCHED_SCHEMA.empty_table().drop_columns(["floor"]).append_column("seq", pa.array([], pa.int32()))
    return pa.concat_tables([empty, *tables]), bad


def _all_inside(file: ShardFile, span: KeySpan) -> bool:
    """Whether the keys of the wanted row groups lie in `span`, by their bounds, which reading has checked."""
    bounds = [(group.key_min, group.key_max) for group in file.wanted_groups]
    return all(low is not None and high is not None and low in span and high in span for low, high in bounds)


def _inside(table: pa.Table, span: KeySpan) -> pa.Table:
    """The rows with keys in `span`."""
    chosen = inside(pl.Series(table["key"]), span.start, span.end)
    return table if chosen.all() else table.filter(chosen.to_arrow())


def _read_part(objects: ObjectStore, part: PendingPart, schema: pa.Schema) -> pa.Table:
    """A pending part, checked, clipped to what is left of it. A damaged one fails the job: nothing can replace it."""
    body = objects.get(part.key)
    if len(body) != part.size or f"{zlib.crc32(body):08x}" != part.checksum:
        raise CorruptObject(part.key, "does not have the size and checksum that its manifest states (invariant 10)")
    return _inside(pq.read_table(io.BytesIO(body)).cast(schema), part.span)


def _missing(objects: ObjectStore, shard: Shard, repeats: pl.DataFrame) -> pl.DataFrame:
    """The repeats that no segment holds."""
    missing = repeats
    for segment in shard.lookup or ():
        if not len(missing):
            break
        window = Window(int(missing["commit_ts"].min()) - 1, int(missing["commit_ts"].max()))  # type: ignore[arg-type]
        rows = read_rows(objects, segment, window, None, columns=["key", "start_ts", "commit_ts"])
        held = pl.from_arrow(rows.select([*IDENTITY, "commit_ts"]))
        assert isinstance(held, pl.DataFrame)
        missing = missing.join(held, on=[*IDENTITY, "commit_ts"], how="anti")
    return missing


def _write(
    objects: ObjectStore, shard: Shard, matched: Matched
) -> tuple[tuple[SegmentRef, ...], tuple[PendingPart, ...]]:
    segments: list[SegmentRef] = []
    if matched.committed.num_rows:
        key = layout.segment(shard.tenant, shard.task_id, shard.task_epoch, shard.nonce, shard.number)
        body, segment = write_segment(matched.committed, key)
        objects.put(key, body)
        segments.append(segment)
    parts = [
        _write_part(objects, shard, kind, number, table)
        for number, (kind, table) in enumerate(((UNMATCHED, matched.unmatched), (READY, matched.ready)))
        if table.num_rows
    ]
    return tuple(segments), tuple(parts)


def _write_part(objects: ObjectStore, shard: Shard, kind: str, number: int, table: pa.Table) -> PendingPart:
    key = layout.pending_part(shard.tenant, shard.task_id, shard.task_epoch, shard.nonce, 2 * shard.number + number)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=False, write_statistics=False)
    body = sink.getvalue()
    objects.put(key, body)
    keys, starts, commits = pl.Series(table["key"]), pl.Series(table["start_ts"]), pl.Series(table["commit_ts"])
    lowest, highest = keys.min(), keys.max()
    assert isinstance(lowest, bytes)
    assert isinstance(highest, bytes)
    commit_ts_min = commits.min()
    return PendingPart(
        key=key,
        size=len(body),
        checksum=f"{zlib.crc32(body):08x}",
        rows=table.num_rows,
        kind=kind,
        start_ts_min=int(starts.min()),  # type: ignore[arg-type]
        start_ts_max=int(starts.max()),  # type: ignore[arg-type]
        commit_ts_min=MAX_TS if commit_ts_min is None else int(commit_ts_min),  # type: ignore[arg-type]
        span=KeySpan(lowest, highest + b"\x00"),
    )


def _broken(shard: Shard, invariant: int, reason: str) -> ShardResult:
    return ShardResult(shard.task_id, shard.number, broken=(invariant, reason))


def _shown(rows: pl.DataFrame) -> str:
    shown = [
        f"key {shown_key(key)} start_ts {start} commit_ts {commit}" for start, key, commit in rows.head(EXAMPLES).rows()
    ]
    return f"{len(rows)} rows, such as {'; '.join(shown)}"
