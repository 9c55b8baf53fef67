"""Converts the entries of a log backup to complete changes: it drops repeats, and fills in long values and old values.
Pure, on whole columns.

A change is identified by (key, commit_ts). The log repeats changes when a region's leader moves, and when TiKV rewrites
a record; such repeats are equal. If changes are sorted by (key, commit_ts), the old value of a change is the value of
the change before it. For the first change of a key, it is the value of the key's newest version in the pool.

Values are not moved until the end: each step adds positions, and `rows` copies each key and value once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Bools
from tistream.errors import InvariantBroken
from tistream.logbackup.entries import CHANGES
from tistream.logbackup.kernels import I64
from tistream.model.packed_sort import stable_order
from tistream.model.span import KeySpan, shown_key
from tistream.model.tidb_key import KeyKind, key_parts
from tistream.model.version_order import version_order

ROWS = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("old_value", pa.binary()),
        pa.field("txn_source", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Joined:
    """Distinct changes in the order of (key, commit_ts).

    read: the changes as they were read (entries.CHANGES without `value`), each column a single Arrow array. at: for
    each change, its row in `read`. same_key: whether the change before it has the same key. values: arrays of values,
    whose elements are numbered from one array to the next; value_at: for each change, the number of its value, which is
    null for a delete.
    """

    read: pa.RecordBatch
    at: I64
    same_key: Bools
    values: tuple[pa.Array, ...]
    value_at: I64

    def __len__(self) -> int:
        return len(self.at)

    @property
    def keys(self) -> pa.Array:
        """The key of each change."""
        return self.read["key"].take(pa.array(self.at))

    @property
    def commit_ts(self) -> I64:
        """The commit_ts of each change."""
        return self.numbers("commit_ts")

    def numbers(self, name: str) -> I64:
        """The values of a column of integers in `read`, such as a timestamp, one for each change."""
        found: I64 = self.read[name].to_numpy()[self.at]
        return found

    @property
    def value_count(self) -> int:
        """The number of values in all arrays of `values` together."""
        return sum(map(len, self.values))

    def shown(self, change: int) -> str:
        """The identity of a change, for messages."""
        one = self.read.slice(int(self.at[change]), 1).to_pylist()[0]
        return f"key {shown_key(one['key'])}, start_ts {one['start_ts']}, commit_ts {one['commit_ts']}"


def kept(table: pa.Table, start: bytes, end: bytes, *, keep_index: bool) -> pa.Table:
    """Keep the rows of the shard's span, start <= key < end (an empty end is unbounded), without index entries unless
    `keep_index`."""
    keep = np.ones(table.num_rows, np.bool_)
    if not keep_index:
        keep &= key_parts(table["key"]).kind != KeyKind.INDEX
    if start:
        keep &= pc.greater_equal(table["key"], pa.scalar(start, pa.binary())).to_numpy()
    if end:
        keep &= pc.less(table["key"], pa.scalar(end, pa.binary())).to_numpy()
    return table if keep.all() else table.filter(pa.array(keep))


def distinct(tables: list[pa.Table]) -> Joined:
    """Sort changes (entries.CHANGES) by (key, commit_ts), and drop repeats. Raises InvariantBroken if two entries of
    one (key, commit_ts) are different changes."""
    whole = pa.concat_tables([CHANGES.empty_table(), *tables])
    names = [name for name in CHANGES.names if name != "value"]
    read = pa.RecordBatch.from_arrays([_one(whole[name]) for name in names], names)
    commit_ts = read["commit_ts"].to_numpy()
    order = version_order(read["key"], commit_ts)
    at, again = order.rows, order.same_key.copy()
    again[1:] &= commit_ts[at[1:]] == commit_ts[at[:-1]]
    if again.any():
        for name in ("start_ts", "op"):
            column = read[name].to_numpy()[at]
            other = again[1:] & (column[1:] != column[:-1])
            if other.any():
                one = read.slice(int(at[1:][other][0]), 1).to_pylist()[0]
                raise InvariantBroken(
                    30, f"key {shown_key(one['key'])} has two different changes at commit_ts {one['commit_ts']}"
                )
        at = at[~again]
    return Joined(read, at, order.same_key[~again], tuple(whole["value"].chunks), at)


def long_starts(changes: Joined) -> I64:
    """The start_ts of the changes whose values are in the `default` column family, sorted and distinct."""
    return np.unique(changes.numbers("start_ts")[_long(changes)])


def with_values(changes: Joined, values: pa.Table) -> Joined:
    """Fill in the values of the puts whose column `long` is true. `values` has them: the entries of the log's `default`
    column family, with the schema entries.VALUES; repeats are allowed. Raises InvariantBroken if a value is missing,
    because the log's checkpoint promises that it exists."""
    long = np.flatnonzero(_long(changes))
    if not len(long):
        return changes
    keys = changes.read["key"].take(pa.array(changes.at[long]))
    found = _positions(_one(values["key"]), values["start_ts"].to_numpy(), keys, changes.numbers("start_ts")[long])
    lost = long[found < 0]
    if len(lost):
        raise InvariantBroken(
            31,
            f"{len(lost)} values are not in the log although its checkpoint covers their commits; the first is of "
            f"{changes.shown(lost[0])}",
        )
    value_at = changes.value_at.copy()
    value_at[long] = changes.value_count + found
    return replace(changes, values=(*changes.values, *values["value"].chunks), value_at=value_at)


def _positions(keys: pa.Array, start_ts: I64, wanted: pa.Array, wanted_ts: I64) -> I64:
    """For each pair of `wanted` and `wanted_ts`, the position of the first equal pair of `keys` and `start_ts`, or
    -1."""
    ts = np.concatenate([start_ts, wanted_ts])
    order = version_order(pa.concat_arrays([keys, wanted]), ts)
    again = order.same_key
    again[1:] &= ts[order.rows[1:]] == ts[order.rows[:-1]]
    first = order.rows[np.maximum.accumulate(np.where(again, 0, np.arange(len(ts))))]
    out = np.empty(len(wanted), np.int64)
    asked = order.rows >= len(keys)  # equal rows are in the order of their numbers: what was read comes first
    out[order.rows[asked] - len(keys)] = np.where(first[asked] < len(keys), first[asked], -1)
    return out


@dataclass(frozen=True, slots=True)
class Completed:
    """Changes with old values. values: the values of `changes`, and after them the old values that come from the pool,
    in one array. old_at: for each change, the number of its old value in `values`, which is null for a key without an
    older version."""

    changes: Joined
    values: pa.Array
    old_at: I64

    def rows(self, chosen: I64) -> pa.Table:
        """Copy the changes with the numbers `chosen`. Returns a table with the schema ROWS."""
        read, at = self.changes.read, pa.array(self.changes.at[chosen])
        numbers = {"value": self.changes.value_at, "old_value": self.old_at}
        columns = [
            self.values.take(pa.array(numbers[name][chosen])).cast(pa.binary())
            if name in numbers
            else read[name].take(at)
            for name in ROWS.names
        ]
        return pa.Table.from_arrays(columns, schema=ROWS)


def with_old_values(changes: Joined, newest: Callable[[pa.Array], pa.Array]) -> Completed:
    """Add old values. `newest` gets sorted, distinct keys, and returns for each the value of its newest version at or
    below the window's low end; null where the key did not exist."""
    first = ~changes.same_key
    older = newest(changes.read["key"].take(pa.array(changes.at[first])))
    old_at = np.roll(changes.value_at, 1)
    old_at[first] = changes.value_count + np.arange(len(older))
    values = pa.concat_arrays([one.cast(pa.large_binary()) for one in (*changes.values, older)])
    return Completed(changes, values, old_at)


def inside(changes: Joined, chosen: I64, span: KeySpan) -> I64:
    """Those of the change numbers `chosen` whose keys are in the span. `chosen` must ascend."""

    def position(key: bytes) -> int:
        return bisect_left(chosen, key, key=lambda one: changes.read["key"][int(changes.at[one])].as_py())

    end = position(span.end) if span.end else len(chosen)
    return chosen[position(span.start) : end]


def in_order(rows: pa.Table) -> pa.Table:
    """Sort ROWS by (commit_ts, start_ts, key). The input is in key order, so a stable sort by the timestamps
    suffices."""
    order = stable_order(rows["start_ts"].to_numpy())
    order = order[stable_order(rows["commit_ts"].to_numpy()[order])]
    return rows.combine_chunks().take(pa.array(order))


def _long(changes: Joined) -> Bools:
    found: Bools = changes.read["long"].to_numpy(zero_copy_only=False)[changes.at]
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Convert a column to a single Arrow array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
