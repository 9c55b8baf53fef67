"""Reads single keys: the newest version of each as of a ts, and every version of a few keys.

Runs and segments are read newest first. Once the newest version of a key has been found, no older rows are read for
that key. Footers and filters (tistream.pool.key_filter) of several runs are read at the same time, so a cold lookup
waits for the object store about twice: for these, and for the rows of one run. Before that it waits for segments above
the index, if there are any.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.format.run import GROUP_ROWS, SCHEMA, RunRef
from tistream.model.ts import Window
from tistream.pool.at_once import LOT, lots
from tistream.pool.versions import merge, plan
from tistream.pool.versions.merge import Ints
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.reader import OpenedGroups, OpenedRun, Reader, RunGroups

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
        sought = _Sought(shard, window, ids, unique, start, end, best.open_below)
        for match in _matches(sought, reader, every=False):
            best.keep_newest(match)
    return _answer(places, best, np.cumsum(first) - 1)


def versions_of(
    shards: Sequence[IndexShard], reader: Reader, places: pa.Table, window: Window, rows_max: int | None = None
) -> pa.Table:
    """Find every version with commit_ts in `window` of some keys. Returns run.SCHEMA, sorted by key, then newest first.
    `places` has the keys as in `newest_at`, each once. With `rows_max`, the result for a single key may end after that
    number of rows; then its oldest versions are missing. Raises the errors of `newest_at`."""
    keys = one_array(places.column("key").cast(pa.binary()))
    found: list[pa.Table] = []
    rows = 0
    for shard, start, end in _spread(shards, keys):
        ids = _ids(places.column("table_id"), np.ones(len(keys), np.bool_), start, end)
        sought = _Sought(shard, window, ids, keys, start, end, lambda low, high, _: np.arange(low, high))
        for match in _matches(sought, reader, every=True):
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
        """Read all columns (run.SCHEMA) of the matches whose indexes are in `at`."""
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
    """The physical table ids of the unique keys with the numbers `start` (inclusive) to `end` (exclusive), ascending.
    `first` marks the first row of each unique key in `table_ids`."""
    ids = table_ids.to_numpy()[first][start:end]
    return [int(one) for one in np.unique(ids)]


_Open = Callable[[int, int, int], Ints]


@dataclass(frozen=True, slots=True)
class _Sought:
    """Keys that are looked up in a shard: those with the numbers `start` (inclusive) to `end` (exclusive) of `keys`.
    `still` is called with a range of key numbers and the highest commit_ts of an object, and returns the keys that must
    still be looked up there. `ids`: the physical table ids of the keys, ascending."""

    shard: IndexShard
    window: Window
    ids: list[int]
    keys: pa.Array
    start: int
    end: int
    still: _Open


@dataclass(frozen=True, slots=True)
class _Part:
    """Row groups of a run that are fetched together. `groups` has, for each row group, its index, the number of the
    first key that it may hold, and the number after the last such key."""

    opened: OpenedRun
    groups: Sequence[tuple[int, int, int]]
    still: _Open

    @property
    def indexes(self) -> list[int]:
        return [at for at, _, _ in self.groups]

    def wanted(self) -> Ints:
        """The numbers of the keys that must still be looked up in these row groups."""
        found = [self.still(low, high, _highest(self.opened, at)) for at, low, high in self.groups]
        return np.unique(np.concatenate(found))


def _matches(sought: _Sought, reader: Reader, *, every: bool) -> Iterator[_Match]:
    """Find the versions of the keys in the window: first those in segments, then those in runs, newest first. Before
    row groups are read, `still` returns the keys for which they are read. If `every` is true, `still` must return all
    keys; the row groups of several runs are then fetched at the same time."""
    yield from _segment_matches(sought, reader)
    runs = [run for objects in plan.runs_of(sought.shard, sought.window, sought.shard.span) for run in objects]
    texts = sought.keys[sought.start : sought.end].to_pylist() if runs else []

    def asked(run: RunRef) -> Ints:
        low, high = bisect_left(texts, run.first[1]), bisect_right(texts, run.last[1])
        return sought.still(sought.start + low, sought.start + high, run.high_ts)

    needed = (run for run in runs if len(asked(run)))
    while lot := list(islice(needed, LOT)):
        parts = _parts(lot, reader, sought, texts, asked)
        for batch in _batches(list(parts)) if every else ([part] for part in parts):
            some = [(part, wanted) for part in batch if len(wanted := part.wanted())]
            fetched = reader.fetch([(part.opened, part.indexes) for part, _ in some])
            for (_, wanted), opened in zip(some, fetched, strict=True):
                yield from _match(opened, sought.keys, wanted, sought.window)


def _segment_matches(sought: _Sought, reader: Reader) -> Iterator[_Match]:
    for lot in lots(plan.groups_in_window(sought.shard, sought.window, sought.ids)):
        opened = reader.open_segments([(part.segment, part.index) for part in lot])
        for part in lot:  # a key that is not looked up in one of them is looked up in no later one
            wanted = sought.still(sought.start, sought.end, part.commit_ts_max)
            if not len(wanted):
                return
            yield from _match(next(opened), sought.keys, wanted, part.window)


def _parts(
    lot: Sequence[RunRef], reader: Reader, sought: _Sought, texts: list[bytes], asked: Callable[[RunRef], Ints]
) -> Iterator[_Part]:
    """Open runs at the same time, and choose their row groups that may hold keys, newest first. `texts` are the keys of
    the shard, and `asked` returns the numbers of the keys to look up in a run. Ends when no key must be looked up in
    the remaining runs."""
    few = (run for run in lot if len(asked(run)) <= max(FILTERED_KEYS, run.rows // GROUP_ROWS))
    coming = reader.open_runs(lot, {run.key for run in few})
    for number, run in enumerate(lot):
        if not any(len(asked(one)) for one in lot[number:]):
            return
        opened, wanted, still = next(coming), asked(run), sought.still
        if opened.key_filter is not None and len(wanted):
            wanted = wanted[opened.key_filter.may_hold(sought.keys.take(pa.array(wanted)))]
            still = _among(sought.still, wanted)
        if not len(wanted):
            continue
        groups, start, window = opened.groups, sought.start, sought.window
        touched = [
            (at, start + low, start + high)
            for at, low, high in _touched(groups, texts)
            if window.overlaps(int(groups.commit_ts_min[at]), int(groups.commit_ts_max[at]))
            and len(still(start + low, start + high, _highest(opened, at)))
        ]
        for begin in range(0, len(touched), GROUPS_AT_ONCE):
            yield _Part(opened, touched[begin : begin + GROUPS_AT_ONCE], still)


def _batches(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Put parts together, up to GROUPS_AT_ONCE row groups."""
    batch: list[_Part] = []
    for part in parts:
        if batch and sum(len(one.groups) for one in (*batch, part)) > GROUPS_AT_ONCE:
            yield batch
            batch = []
        batch.append(part)
    if batch:
        yield batch


def _among(still: _Open, some: Ints) -> _Open:
    """What `still` returns, without the keys that are not in `some`."""
    return lambda low, high, commit_ts: np.intersect1d(still(low, high, commit_ts), some, assume_unique=True)


def _highest(opened: OpenedRun, at: int) -> int:
    return min(opened.run.high_ts, int(opened.groups.commit_ts_max[at]))


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
