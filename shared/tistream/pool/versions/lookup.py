"""Reads single keys: the newest version of each as of a ts, and every version of a few keys.

Runs and segments are read newest first. Once the newest version of a key has been found, no older object is read for
that key. Of runs that do not have the key, only footers and filters are read (tistream.pool.key_filter).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.format.run import GROUP_ROWS, SCHEMA, RunRef
from tistream.model.ts import Window
from tistream.pool.versions import merge, plan
from tistream.pool.versions.merge import Ints
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.reader import OpenedGroups, Reader, RunGroups

GROUPS_AT_ONCE = 16  # row groups of a run whose rows are compared at once
FILTERED_KEYS = 16  # a run's filter is used for at most 16 keys, or for one for each of its row groups if it has more
_REST = ("table_id", "value", "txn_source")

PLACES = pa.schema([pa.field("table_id", pa.int64()), pa.field("key", pa.binary())])


def newest_at(shards: Sequence[IndexShard], reader: Reader, places: pa.Table, ts: int) -> pa.Table:
    """Find the newest version with commit_ts <= ts of each key.

    Args:
        shards: the tenant's pool, in key order.
        places: the keys to look up: the columns `table_id` (physical) and `key`, sorted by key. A key may occur several
            times.
        ts: at least 1. The runs and segments must hold every version up to it.

    Returns:
        run.SCHEMA with one row for each row of `places`, in the same order. If a key has no version, all columns but
        `table_id` and `key` are null. A deleted key has op 2 and a null value.

    Raises:
        NotFoundYet: an object is gone; plan again from newer shards.
        CorruptObject, Unavailable.
    """
    keys = one_array(places.column("key").cast(pa.binary()))
    first = merge.first_of_each(keys)
    unique = keys.filter(pa.array(first))
    best = _Best(len(unique))
    window = Window(0, ts)
    for shard, start, end in _spread(shards, unique):
        ids = _ids(places.column("table_id"), first, start, end)
        for match in _matches(shard, reader, window, ids, unique, start, end, best.open_below):
            best.keep_newest(match)
    return _answer(places, best, np.cumsum(first) - 1)


def versions_of(
    shards: Sequence[IndexShard], reader: Reader, places: pa.Table, window: Window, rows_max: int | None = None
) -> pa.Table:
    """Find every version with commit_ts in `window` of some keys. Returns run.SCHEMA, sorted by key, then newest first.
    `places` has the keys as in `newest_at`, each once. With `rows_max`, the result for a single key may end after that
    number of rows; then its oldest versions are missing."""
    keys = one_array(places.column("key").cast(pa.binary()))
    found: list[pa.Table] = []
    rows = 0
    for shard, start, end in _spread(shards, keys):
        ids = _ids(places.column("table_id"), np.ones(len(keys), np.bool_), start, end)
        for match in _matches(shard, reader, window, ids, keys, start, end, lambda low, high, _: np.arange(low, high)):
            found.append(match.whole(np.arange(len(match.wanted))))
            rows += len(found[-1])
            if rows_max is not None and rows > rows_max and len(keys) == 1:
                found = [_newest_first(found).slice(0, rows_max)]
                rows = rows_max
    return _newest_first(found) if found else SCHEMA.empty_table()


def _newest_first(found: Sequence[pa.Table]) -> pa.Table:
    whole = pa.concat_tables(found)
    return whole.take(pa.array(merge.ordered(whole)))


@dataclass(frozen=True, slots=True)
class _Match:
    """Versions in some row groups that have wanted keys: row `rows[i]` of `opened` has the key number `wanted[i]`."""

    wanted: Ints
    rows: Ints
    stamps: pa.Table  # these rows with the columns merge.STAMPS
    opened: OpenedGroups

    def whole(self, at: Ints) -> pa.Table:
        """Read all columns (run.SCHEMA) of the matches with these indexes."""
        rest = self.opened.read(_REST).take(pa.array(self.rows[at]))
        stamps = self.stamps.take(pa.array(at))
        columns = {name: table.column(name) for table in (stamps, rest) for name in table.column_names}
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


@dataclass(slots=True)
class _Best:
    """For each wanted key, the newest version that has been found so far."""

    keys: int
    commit_ts: Ints = field(init=False)
    start_ts: Ints = field(init=False)
    at: Ints = field(init=False)  # index into the rows of `found`; -1 if no version was found
    found: list[pa.Table] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        self.commit_ts, self.start_ts, self.at = np.full((3, self.keys), -1, np.int64)

    def open_below(self, low: int, high: int, commit_ts: int) -> Ints:
        """The numbers, from `low` to `high` (exclusive), of the keys for which a version up to `commit_ts` may be newer
        than the one found so far."""
        return np.flatnonzero(self.commit_ts[low:high] < commit_ts) + low

    def keep_newest(self, match: _Match) -> None:
        """Take over those versions of `match` that are newer than the ones found so far for their keys."""
        commit_ts, start_ts = merge.ints(match.stamps, "commit_ts"), merge.ints(match.stamps, "start_ts")
        order = np.lexsort((-start_ts, -commit_ts, match.wanted))
        wanted = match.wanted[order]
        order = order[np.diff(wanted, prepend=np.int64(-1)) != 0]
        wanted = match.wanted[order]
        before, started = self.commit_ts[wanted], self.start_ts[wanted]
        newer = (commit_ts[order] > before) | ((commit_ts[order] == before) & (start_ts[order] > started))
        order, wanted = order[newer], wanted[newer]
        if not len(order):
            return
        self.commit_ts[wanted], self.start_ts[wanted] = commit_ts[order], start_ts[order]
        self.at[wanted] = self.rows + np.arange(len(order))
        self.found.append(match.whole(order))
        self.rows += len(order)


def _answer(places: pa.Table, best: _Best, back: Ints) -> pa.Table:
    """Build the result, with one row for each row of `places`. `back` has, for each of them, the number of its key
    among the wanted keys."""
    rows = pa.concat_tables([*best.found, SCHEMA.empty_table()])
    at = best.at[back]
    found = rows.take(pa.array(at, mask=at < 0))
    columns = [places.column(name) if name in PLACES.names else found.column(name) for name in SCHEMA.names]
    nullable = pa.schema([column.with_nullable(True) for column in SCHEMA])
    return pa.table([one.cast(column.type) for one, column in zip(columns, nullable, strict=True)], schema=nullable)


def _spread(shards: Sequence[IndexShard], keys: pa.Array) -> Iterator[tuple[IndexShard, int, int]]:
    """Assign ascending keys to the shards whose span they are in. Yields each shard that has keys, with the range of
    their indexes: `start` (inclusive) to `end` (exclusive)."""
    for shard in shards:
        start = merge.below(keys, shard.span.start)
        end = merge.below(keys, shard.span.end) if shard.span.end else len(keys)
        if start < end:
            yield shard, start, end


def _ids(table_ids: pa.ChunkedArray, first: merge.Bools, start: int, end: int) -> list[int]:
    """The physical table ids of the unique keys `start` to `end`, ascending."""
    ids = table_ids.to_numpy()[first][start:end]
    return [int(one) for one in np.unique(ids)]


_Open = Callable[[int, int, int], Ints]


def _matches(
    shard: IndexShard,
    reader: Reader,
    window: Window,
    ids: list[int],
    keys: pa.Array,
    start: int,
    end: int,
    still: _Open,
) -> Iterator[_Match]:
    """Find the versions of `keys[start:end]` in the window, in the newest run or segments first. Before one of them is
    read, `still` is called with the range of key indexes and the highest commit_ts in it. It returns the keys that must
    still be looked up there."""
    for part in plan.groups_in_window(shard, window, ids):
        wanted = still(start, end, part.commit_ts_max)
        if len(wanted):
            yield from _match(reader.open_segment(part.segment, part.index), keys, wanted, part.window)
    texts: list[bytes] | None = None
    for run in chain.from_iterable(plan.runs_of(shard, window, shard.span)):
        texts = keys[start:end].to_pylist() if texts is None else texts
        low, high = bisect_left(texts, run.first[1]), bisect_right(texts, run.last[1])
        wanted = still(start + low, start + high, run.high_ts)
        if not len(wanted):
            continue
        asked = still
        if len(wanted) <= max(FILTERED_KEYS, run.rows // GROUP_ROWS) and (kept := reader.key_filter(run)) is not None:
            wanted = wanted[kept.may_hold(keys.take(pa.array(wanted)))]
            if not len(wanted):
                continue
            asked = _among(still, wanted)
        groups = reader.groups(run)
        touched = [
            (at, start + low, start + high)
            for at, low, high in _touched(groups, texts)
            if window.overlaps(int(groups.commit_ts_min[at]), int(groups.commit_ts_max[at]))
            and len(asked(start + low, start + high, _highest(run, groups, at)))
        ]
        for begin in range(0, len(touched), GROUPS_AT_ONCE):
            some = touched[begin : begin + GROUPS_AT_ONCE]
            wanted = np.unique(np.concatenate([asked(low, high, _highest(run, groups, at)) for at, low, high in some]))
            if len(wanted):
                yield from _match(reader.open_run(run, [at for at, _, _ in some]), keys, wanted, window)


def _among(still: _Open, some: Ints) -> _Open:
    """What `still` returns, without the keys that are not in `some`."""
    return lambda low, high, commit_ts: np.intersect1d(still(low, high, commit_ts), some, assume_unique=True)


def _highest(run: RunRef, groups: RunGroups, at: int) -> int:
    return min(run.high_ts, int(groups.commit_ts_max[at]))


def _touched(groups: RunGroups, keys: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Find which row groups may hold any of `keys`, which ascend. Returns (row group, index of its first key, end of
    its keys)."""
    if len(keys) > len(groups.rows):
        found = [
            (at, bisect_left(keys, first), bisect_right(keys, last))
            for at, (first, last) in enumerate(zip(groups.first_keys, groups.last_keys, strict=True))
        ]
        return [one for one in found if one[1] < one[2]]
    bounds: dict[int, tuple[int, int]] = {}
    for number, key in enumerate(keys):
        at = bisect_left(groups.last_keys, key)
        while at < len(groups.rows) and groups.first_keys[at] <= key:
            bounds[at] = (bounds.get(at, (number, 0))[0], number + 1)
            at += 1
    return [(at, low, high) for at, (low, high) in sorted(bounds.items())]


def _match(opened: OpenedGroups, keys: pa.Array, wanted: Ints, window: Window) -> Iterator[_Match]:
    stamps = opened.read(merge.STAMPS)
    place = pc.index_in(one_array(stamps.column("key")), value_set=keys.take(pa.array(wanted)))
    commit_ts = merge.ints(stamps, "commit_ts")
    hit = pc.fill_null(place, -1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero((hit >= 0) & (commit_ts > window.low) & (commit_ts <= window.high))
    if len(rows):
        yield _Match(wanted[hit[rows]], rows, stamps.take(pa.array(rows)), opened)
