"""The work of an executor in a release, which is one step of reading a log backup: measure a shard (a range of keys),
prepare its rows for each change file, write a change file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tistream.errors import CommitConflict, CorruptObject, InvariantBroken, NotFoundYet, SourceRefused, TiStreamError
from tistream.logbackup import entries
from tistream.logbackup.entries import VALUES
from tistream.logbackup.kernels import I64
from tistream.logbackup.release import STORE_ID
from tistream.model.span import WHOLE
from tistream.model.ts import Window
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs import joining, push_file
from tistream_ingest.jobs.joining import Joined
from tistream_ingest.jobs.old_values import OldValues
from tistream_ingest.jobs.reading import read
from tistream_ingest.jobs.work import ReleaseJob, ReleaseShard, WorkFailure, WrittenFile
from tistream_ingest.plan.cuts import BINS, Bin, FileLimits, Survey

Result = TypeVar("Result")
Prepared = tuple[int, pa.Table]  # number of a change file, and rows of it (joining.ROWS)


def guarded(work: Callable[[], Result]) -> Result | WorkFailure:
    """Call a function and return its result. A TiStreamError is returned as a WorkFailure, because an error that is
    raised would lose its type in Spark. Other errors are raised."""
    try:
        return work()
    except NotFoundYet as error:
        return WorkFailure("missing", str(error), error.key)
    except CorruptObject as error:
        return WorkFailure("damaged", error.reason, error.key)
    except InvariantBroken as error:
        return WorkFailure("broken", str(error), number=error.number)
    except SourceRefused as error:
        return WorkFailure("refused", str(error))
    except TiStreamError as error:
        return WorkFailure("unavailable", str(error))


def survey(log: ObjectStore, shard: ReleaseShard, limits: FileLimits, shards: int) -> Survey:
    """Measure how the sizes of the shard's changes are distributed over commit_ts. A value that is in a `default` slice
    counts with the mean size of all entries in the shard's `default` slices. `shards` is the number of all shards: the
    more there are, the finer are the bins of each, for files of the size `limits`."""
    stored = sum(one.entries for one in shard.values)
    mean = sum(one.plain for one in shard.values) // stored if stored else 0
    times, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for held in read(log, shard.writes, checked=False):  # `prepare` reads them again, and checks them
        ts, size, long = entries.commit_sizes(held, shard.window)
        times.append(ts)
        sizes.append(size + long * mean)
    ts, size = np.concatenate(times), np.concatenate(sizes)
    order = np.argsort(ts, kind="stable")
    ts, size = ts[order], size[order]
    bins: list[Bin] = []
    if len(ts):
        first = np.flatnonzero(np.diff(ts, prepend=ts[0] - 1))
        rows_each = max(1, limits.rows // (BINS * shards))
        bytes_each = max(1, limits.bytes // (BINS * shards))
        bins = _bins(ts, np.cumsum(size), first, rows_each, bytes_each)
    return Survey(shard.span, tuple(bins))


def _bins(ts: I64, total: I64, first: I64, rows_each: int, bytes_each: int) -> list[Bin]:
    """Group changes into bins, each of whole commit_ts, with about `rows_each` rows or `bytes_each` bytes. `ts`: the
    commit_ts of each row, in order. `total`: for each row, the sum of sizes up to it. `first`: the first row of each
    commit_ts."""
    out: list[Bin] = []
    start = 0
    while start < len(ts):
        before = int(total[start - 1]) if start else 0
        by_bytes = int(np.searchsorted(total, before + bytes_each, side="right"))
        wanted = max(start + 1, min(start + rows_each, by_bytes))
        next_ = int(np.searchsorted(first, wanted))
        end = int(first[next_]) if next_ < len(first) else len(ts)
        out.append(Bin(int(ts[start]), int(ts[end - 1]), end - start, int(total[end - 1]) - before))
        start = end
    return out


def prepare(log: ObjectStore, job: ReleaseJob, shard: ReleaseShard, old: OldValues) -> list[Prepared]:
    """Read the shard's changes, and prepare them for the change files of the release. Returns an element for each file
    for which the shard has rows.

    Raises:
        NotFoundYet, CorruptObject, SourceRefused: an object of the log is gone, damaged or of an unknown form.
        InvariantBroken: a value is missing (invariant 31), two changes contradict each other (30), or a commit comes
    after
            its release (5).
        Unavailable: an object store does not answer.
    """
    _check_late(log, shard, job, old)
    low = shard.window.low
    changes = joining.distinct(
        [
            joining.kept(
                entries.changes(held, shard.window), shard.span.start, shard.span.end, keep_index=shard.keep_index
            )
            for held in read(log, shard.writes)
        ]
    )
    changes = joining.with_values(changes, _values(log, shard, changes))
    complete = joining.with_old_values(changes, lambda keys: old.at(keys, low))
    return [(number, complete.rows(chosen)) for number, chosen in _parts(job, changes)]


def _values(log: ObjectStore, shard: ReleaseShard, changes: Joined) -> pa.Table:
    """Read the values of changes from `default` slices, for the changes whose value is not in the `write` entry. Values
    are found by key and start_ts."""
    starts = joining.long_starts(changes)
    if not len(starts):
        return VALUES.empty_table()
    wanted = [one for one in shard.values if one.min_ts <= starts[-1] and one.max_ts >= starts[0]]
    return pa.concat_tables([VALUES.empty_table(), *(entries.values(held, starts) for held in read(log, wanted))])


def _check_late(log: ObjectStore, shard: ReleaseShard, job: ReleaseJob, old: OldValues) -> None:
    """Check commits that belong to earlier releases: each must repeat a row in the pool. Raises InvariantBroken
    (invariant 5) if one does not: the log has broken the promise of its checkpoint."""
    if not shard.late or shard.window.low <= job.pool.floor_ts:
        return
    window = Window(job.pool.floor_ts, shard.window.low)
    late = [
        joining.kept(entries.changes(held, window), shard.span.start, shard.span.end, keep_index=False)
        for held in read(log, shard.late)
    ]
    changes = joining.distinct(late)
    there = old.commits(changes.keys, pa.array(changes.commit_ts)).to_numpy(zero_copy_only=False)
    new = np.flatnonzero(~there)
    if len(new):
        raise InvariantBroken(
            5,
            f"{len(new)} commits came at or below the released ts {shard.window.low}; the first is of "
            f"{changes.shown(new[0])}",
        )


def _parts(job: ReleaseJob, changes: Joined) -> Iterator[tuple[int, I64]]:
    """Divide changes between the change files of the release. Yields the numbers of the changes of each file that has
    some, in the order of keys."""
    ends = np.array([piece.high for piece in job.release.files])
    first = np.searchsorted(ends, changes.commit_ts)  # files of one commit_ts have the same end: the first of them
    by_file = np.argsort(first.astype(np.int32), kind="stable")
    bounds = np.searchsorted(first[by_file], np.arange(len(ends) + 1))
    for number, piece in enumerate(job.release.files):
        at = np.searchsorted(ends, piece.high)
        chosen = by_file[bounds[at] : bounds[at + 1]]
        if piece.span != WHOLE:
            chosen = joining.inside(changes, chosen, piece.span)
        if len(chosen):
            yield number, chosen


def write(target: ObjectStore, job: ReleaseJob, number: int, parts: Iterable[pa.Table]) -> WrittenFile:
    """Write change file `number` of the release, unless it exists because another process has executed the same
    release. `parts`: its rows in key order, without the marks of restores. Raises Unavailable, CommitStateUnknown."""
    rows = pa.concat_tables([joining.ROWS.empty_table(), *parts])
    body = push_file.encode(job.tenant, job.release, number, rows)
    ts = job.release.files[number].ts
    key = layout.change_file(job.tenant, STORE_ID, ts)
    fresh = True
    try:
        target.put_new(key, body)
    except CommitConflict:
        fresh = False
    return WrittenFile(key, ts, rows.num_rows, len(body), fresh)


def by_piece(prepared: Iterable[Sequence[Prepared]], pieces: int) -> list[list[pa.Table]]:
    """Regroup what all shards have prepared: for each of the `pieces` change files, the parts that the shards have for
    it."""
    out: list[list[pa.Table]] = [[] for _ in range(pieces)]
    for one in prepared:
        for number, part in one:
            out[number].append(part)
    return out
