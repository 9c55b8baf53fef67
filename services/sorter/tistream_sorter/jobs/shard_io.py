"""Processes one shard in a Spark worker: reads row groups and pending parts, matches, and writes the output."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream import arrow_ipc
from tistream.concurrency import new_executor
from tistream.errors import CorruptObject, KeyUnusable, NotFoundYet, TiStreamError
from tistream.format.change_file import EXPIRE
from tistream.format.manifest import PendingPart
from tistream.format.source_file import SourceFile, SourceGroup
from tistream.format.unpacking import ADDED_BYTES_MAX, added_bytes
from tistream.model.span import KeySpan, shown_key
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.rows import read_rows
from tistream.storage.backends.tenant_keys import KeyIds, keys_of
from tistream.storage.change_reader import read_changes
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream.storage.write_behind import WriteBehind
from tistream_sorter.jobs.compact import rewrite_guarded
from tistream_sorter.jobs.index.base_runs import base_guarded
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.jobs.index.index_merge import merge_guarded
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.pending_parts import read_pointed, read_ready, read_unmatched, sealed_identities
from tistream_sorter.jobs.pointers import PointedFiles, pointers
from tistream_sorter.jobs.pruning import ReadRules, read_anyway, read_for_repeats
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardFile, ShardResult
from tistream_sorter.jobs.shard_output import OutputTarget, ShardOutput
from tistream_sorter.jobs.stages import Stages
from tistream_sorter.match.contracts import CHANGE_COLUMNS, UNMATCHED_SCHEMA, with_expiry
from tistream_sorter.match.kernel import IDENTITY, Matched, match
from tistream_sorter.match.key_range import inside
from tistream_sorter.match.sealing import in_order

EXAMPLES = 3
WRITERS, WRITING_BYTES = 2, 64 << 20
FOOTERS_BYTES = 32 << 20  # of the footers of change files that a worker process keeps: some 1,400 small ones


@lru_cache(maxsize=4)
def _objects(url: str) -> ObjectStore:
    """The client of the object store at `url`. A worker process has one, because Spark reuses its Python workers."""
    return open_objects(url)


@lru_cache(maxsize=4)
def _footers(_url: str) -> FooterCache:
    """The cache of the footers of change files in the object store at this URL. A worker process has one, because each
    shard of a job reads most files of its tick."""
    return FooterCache(FOOTERS_BYTES)


def process(url: str, keys: KeyIds, shards: list[Shard]) -> list[ShardResult]:
    """Run the shards of one Spark task. Returns their results in order. While the output of one shard is written, the
    next one is read and matched. `url`: that of the object store. Objects are encrypted with `keys`, the encryption key
    ids of the tenants."""
    objects = _objects_with(url, keys)
    with new_executor("put", WRITERS) as writers:
        begun = [_begun(objects, shard, writers, _footers(url)) for shard in shards]
        return [one.ended() for one in begun]


def rewrite(url: str, keys: KeyIds, unit: Rewrite) -> Rewritten:
    """Run one compaction in a Spark task. The output is encrypted with `keys`."""
    return rewrite_guarded(_objects_with(url, keys), unit)


def merge_index(url: str, keys: KeyIds, unit: IndexUnit) -> IndexResult:
    """Run one merge of the version index in a Spark task. The output is encrypted with `keys`."""
    return merge_guarded(_objects_with(url, keys), unit)


def base(url: str, keys: KeyIds, unit: BaseUnit) -> BaseResult:
    """Convert one base chunk to a base run in a Spark task. The output is encrypted with `keys`."""
    return base_guarded(_objects_with(url, keys), unit)


def _objects_with(url: str, keys: KeyIds) -> ObjectStore:
    objects = _objects(url)
    keys_of(objects).update(keys)
    return objects


def process_guarded(objects: ObjectStore, shard: Shard) -> ShardResult:
    """Run one shard in the calling thread, without background writes. A TiStreamError is returned in the shard's
    result, not raised."""
    return _begun(objects, shard, None, None).ended()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A shard whose rows are matched, and whose writes may still be in progress."""

    shard: Shard
    result: ShardResult
    counted: MeasuredObjectStore
    writes: WriteBehind | None
    stages: Stages

    def ended(self) -> ShardResult:
        """Wait until the writes have ended. Returns the shard's result, with its requests to the object store and its
        stages. A failed write is in the result."""
        result = self.result
        if self.writes is not None:
            writes = self.writes

            def settled() -> ShardResult:
                writes.settle()
                return self.result

            result = _guarded(self.shard, settled)
        self.stages.over("put")
        traffic = {kind: done for kind, done in self.counted.traffic().items() if done.requests}
        return replace(result, traffic=traffic, stages=self.stages.done)


def _begun(objects: ObjectStore, shard: Shard, writers: Executor | None, footers: FooterCache | None) -> _Begun:
    counted = MeasuredObjectStore(objects)
    writes = None if writers is None else WriteBehind(counted, writers, WRITING_BYTES)
    stages, target = Stages(), counted if writes is None else writes
    result = _guarded(shard, lambda: process_shard(counted, shard, target, stages, footers))
    return _Begun(shard, result, counted, writes, stages)


def _guarded(shard: Shard, work: Callable[[], ShardResult]) -> ShardResult:
    """Call `work`, and return its result. A TiStreamError that it raises is returned as a failed result of this shard,
    so that the other shards of the job continue."""
    try:
        return work()
    except CorruptObject as error:
        return _broken(shard, 10, str(error))
    except KeyUnusable as error:
        return ShardResult(shard.task_id, shard.number, failed=str(error), key_unusable=True)
    except TiStreamError as error:
        return ShardResult(shard.task_id, shard.number, failed=str(error))


def process_shard(
    objects: ObjectStore, shard: Shard, target: OutputTarget, stages: Stages, footers: FooterCache | None = None
) -> ShardResult:
    """Read, match, sort and write one shard, and record the time of each stage in `stages`. `objects` is read; `target`
    is written, perhaps in the background. The written objects have no effect until a manifest names them. `footers`: a
    cache of the footers of change files; None: no cache. If a change file of this tick is damaged or missing, an
    invariant is broken, or segments must be looked up first, nothing is written and the result says so. Raises
    CorruptObject for other damaged objects, including earlier change files into which pending parts point, and the
    errors of the object store."""
    began = time.perf_counter_ns()
    book = PointedFiles.of([_source(file) for file in shard.files])
    changes, bad = _read_files(objects, shard, footers)
    stages.over("read")
    if bad:
        return ShardResult(shard.task_id, shard.number, bad_files=bad)
    history, scans = (arrow_ipc.from_bytes(data) for data in (shard.history, shard.scans))
    held = _read_pending(objects, shard, changes, book)
    stages.over("read pending")
    fresh = _without_sealed(changes, held.sealed)
    again = _rows_in(changes) - _rows_in(fresh) if len(fresh) < len(changes) else 0
    if not (len(fresh) or held.unmatched or held.ready):  # usually most shards have no new change
        return ShardResult(
            shard.task_id,
            shard.number,
            counters={"duplicate_rows": again},
            read_bytes=shard.weight,
            wall_ms=_ms_since(began),
        )
    matched = match(fresh, held.unmatched, held.ready, history, scans, shard.rules)
    stages.over("match")
    if len(matched.stranded):
        return _broken(shard, 6, f"commit without prewrite at or below the watermark: {_shown(matched.stranded)}")
    if len(matched.repeats):
        if shard.lookup is None:
            seen = matched.repeats["commit_ts"]
            window = (int(seen.min()), int(seen.max()))  # type: ignore[arg-type]
            return ShardResult(shard.task_id, shard.number, lookup_window=window)
        missing = _missing(objects, shard, matched.repeats)
        if len(missing):
            return _broken(shard, 5, f"change at or below {_limit(shard, missing)}: {_shown(missing)}")
        stages.over("look up")
    written = _write(objects, target, shard, matched, book)
    stages.over("write")
    pieces = [held.ready_parts[part] for part in matched.ready_parts]
    pieces += [held.unmatched_parts[part] for part in matched.unmatched_parts]
    counters = Counter(matched.counters)
    counters.update(duplicate_rows=again, repeated_rows=len(matched.repeats))
    return ShardResult(
        task_id=shard.task_id,
        number=shard.number,
        segments=tuple(written.segments),
        pending=tuple(written.pending),
        consumed=frozenset((piece.key, piece.span.start) for piece in pieces),
        counters=dict(counters),
        read_bytes=shard.weight,
        wall_ms=_ms_since(began),
    )


def _ms_since(began: int) -> int:
    return (time.perf_counter_ns() - began) // 1_000_000


def _source(file: ShardFile) -> SourceFile:
    groups = tuple(SourceGroup(g.index, g.offset, g.length, g.rows, g.crc32, g.unpacked) for g in file.wanted_groups)
    return SourceFile(file.key, file.size, file.footer_start, groups)


def _read_files(objects: ObjectStore, shard: Shard, footers: FooterCache | None) -> tuple[pa.Table, dict[int, str]]:
    """Read the changes inside the shard's span from its change files. Returns (the changes, with the columns `seq`, the
    file's position in the tick, and `pointer`; by `seq`, the reason for each file that is damaged or missing)."""
    tables: list[pa.Table] = []
    columns = (*CHANGE_COLUMNS, EXPIRE.name) if shard.rules.raw else CHANGE_COLUMNS
    bad: dict[int, str] = {}
    added_max = ADDED_BYTES_MAX  # shared by all files: a file that needs more than the rest is retried after the others
    for number, file in enumerate(shard.files):
        try:
            table = read_changes(objects, file, file.wanted, columns, added_max, footers)
        except (CorruptObject, NotFoundYet) as error:
            bad[file.seq] = str(error)
            continue
        added_max -= added_bytes(table, file.wanted_groups)
        seq = pa.array(np.full(table.num_rows, file.seq, np.int32))
        pointer = pa.array(pointers(number, [(group.index, group.rows) for group in file.wanted_groups]))
        if shard.rules.raw:
            table = with_expiry(table)
        table = table.select(CHANGE_COLUMNS).append_column("seq", seq).append_column("pointer", pointer)
        tables.append(table if _all_inside(file, shard.span) else _inside(table, shard.span))
    empty = UNMATCHED_SCHEMA.empty_table().select([*CHANGE_COLUMNS, "pointer"])
    empty = empty.add_column(len(CHANGE_COLUMNS), "seq", pa.array([], pa.int32()))
    return pa.concat_tables([empty, *tables]), bad


def _all_inside(file: ShardFile, span: KeySpan) -> bool:
    """Whether all keys of the wanted row groups lie in `span`, according to their key bounds, which the reader has
    verified."""
    bounds = [(group.key_min, group.key_max) for group in file.wanted_groups]
    return all(low is not None and high is not None and low in span and high in span for low, high in bounds)


def _inside(table: pa.Table, span: KeySpan) -> pa.Table:
    """The rows with keys in `span`."""
    chosen = inside(pl.Series(table["key"]), span.start, span.end)
    return table if chosen.all() else table.filter(chosen.to_arrow())


@dataclass(frozen=True, slots=True)
class _Held:
    """The pending parts that the shard has read in this tick, and their rows."""

    unmatched_parts: list[PendingPart]
    unmatched: list[pa.Table]
    ready_parts: list[PendingPart]
    ready: list[pa.Table]
    sealed: list[pl.DataFrame]


def _read_pending(objects: ObjectStore, shard: Shard, changes: pa.Table, book: PointedFiles) -> _Held:
    """Read the pending parts that this tick can affect, as jobs/pruning.py decides. `changes`: the new changes of the
    tick. The change files to which the parts point are added to `book`."""
    rules = ReadRules(shard.rules.window.high, shard.rules.rows_small, shard.scanned, shard.swept)
    sure, sure_ready = read_anyway(shard.unmatched, rules), read_anyway(shard.ready, rules)
    first = [part for part, read in zip(shard.unmatched, sure, strict=True) if read]
    unmatched = [read_unmatched(objects, part, book) for part in first]
    if all(sure) and all(sure_ready) and not shard.sealed:
        return _Held(first, unmatched, list(shard.ready), [read_ready(objects, part) for part in shard.ready], [])
    at_hand = _at_hand(changes, unmatched, rules.high)
    met = read_for_repeats(shard.unmatched, sure, at_hand)
    too = [part for part, read in zip(shard.unmatched, met, strict=True) if read]
    unmatched += [read_unmatched(objects, part, book) for part in too]
    met = read_for_repeats(shard.ready, sure_ready, at_hand)
    ready = [part for part, *why in zip(shard.ready, sure_ready, met, strict=True) if any(why)]
    met = read_for_repeats(shard.sealed, [False] * len(shard.sealed), at_hand)
    sealed = [sealed_identities(objects, part) for part, read in zip(shard.sealed, met, strict=True) if read]
    return _Held([*first, *too], unmatched, ready, [read_ready(objects, part) for part in ready], sealed)


def _at_hand(changes: pa.Table, unmatched: list[pa.Table], high: int) -> pl.DataFrame:
    """The (start_ts, key) of the new changes, and of pending commits at or below `high`, the upper end of the
    window."""
    reached = [table.filter(pc.less_equal(table["commit_ts"], high)) for table in unmatched]
    found = pl.from_arrow(pa.concat_tables([table.select(list(IDENTITY)) for table in (changes, *reached)]))
    assert isinstance(found, pl.DataFrame)
    return found


def _without_sealed(changes: pa.Table, sealed: list[pl.DataFrame]) -> pa.Table:
    """The changes without those that a SEALED part contains already. `sealed`: the identities (start_ts, key) of the
    rows of each SEALED part that was read."""
    if not sealed:
        return changes
    fresh = pl.from_arrow(changes.select(list(IDENTITY)))
    assert isinstance(fresh, pl.DataFrame)
    known = pl.concat(sealed).with_columns(pl.lit(True).alias("known"))
    found = fresh.join(known, on=IDENTITY, how="left", maintain_order="left")["known"].is_not_null()
    return changes.filter((~found).to_arrow()) if found.any() else changes


def _rows_in(changes: pa.Table) -> int:
    """The number of distinct changed rows. The prewrite, the commit and all copies of one change count as one."""
    identities = pl.from_arrow(changes.select(list(IDENTITY)))
    assert isinstance(identities, pl.DataFrame)
    return identities.n_unique()


def _missing(objects: ObjectStore, shard: Shard, repeats: pl.DataFrame) -> pl.DataFrame:
    """The changes in `repeats` that are in none of the segments `shard.lookup`, compared by (start_ts, key,
    commit_ts)."""
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


def _limit(shard: Shard, missing: pl.DataFrame) -> str:
    """The name and the value of the ts at or below which the missing rows lie, for the error's text."""
    rules = shard.rules
    if int(missing["commit_ts"].max()) <= rules.window.low:  # type: ignore[arg-type]
        return "flushed_ts that the pool does not hold"
    return f"{rules.served_ts}, a resolved_ts that readers have received, that the pool does not hold"


def _write(
    objects: ObjectStore, target: OutputTarget, shard: Shard, matched: Matched, book: PointedFiles
) -> ShardOutput:
    """Write the matched rows to `target`. Returns the ShardOutput, which lists the written objects. Values behind
    pointers into the change files of `book` are read in chunks, so that the memory stays bounded."""
    output = ShardOutput(objects, target, shard)
    output.unmatched(matched.unmatched, book)
    output.committed(matched.committed)
    output.ready(matched.ready)
    for rows in read_pointed(objects, matched.pointed, book, shard.store.chunk_bytes):
        flushed = pc.less_equal(rows["commit_ts"], shard.rules.window.high)
        output.committed(in_order(rows.filter(flushed)))
        output.ready(rows.filter(pc.invert(flushed)))
    output.finish()
    return output


def _broken(shard: Shard, invariant: int, reason: str) -> ShardResult:
    return ShardResult(shard.task_id, shard.number, broken=(invariant, reason))


def _shown(rows: pl.DataFrame) -> str:
    shown = [
        f"key {shown_key(key)} start_ts {start} commit_ts {commit}" for start, key, commit in rows.head(EXAMPLES).rows()
    ]
    return f"{len(rows)} rows, such as {'; '.join(shown)}"
