"""The version index of a task: the schema of its files ("runs"), and how a manifest refers to them (docs/adr/0028).

A *run object* is an immutable Parquet file of versions, sorted by ORDER. A *run* has all versions of a part of the
task's span with commit_ts in the window (low_ts, high_ts]; it has one or several objects with disjoint key ranges, in
key order. A *base run* (low_ts None) has, for each key, the newest version at or below the part's base_ts, and no
deletes. An object without rows is not written, so a window without changes has no run.

The index of a task is a sequence of parts (`IndexPart`), whose spans tile the task's span in key order. Usually it is
one part. A task that was merged has the parts of its parents, whose windows differ, until merges of runs have made
their windows equal. A reader works part by part:

versions of a key at or below T = base run + runs of the part, clipped to the part's span
                                      + rows of live segments with commit_ts in (indexed_ts of the part, T]

T must be at or above the part's base_ts. Objects are shared by split tasks, so a run object may have keys outside of
the part's span; they do not count. Rows of segments at or below the part's indexed_ts are in its runs already, and must
be ignored. Versions at or below `begins_ts` were not in the pool when the index began; only a backfill adds them.

A backfill adds `basis` objects. Each is a base run made of one base chunk, at the chunk's base_ts (docs/adr/0030). Its
rows are the oldest versions of their keys: no run or segment has a version at or below the object's high_ts. When the
base run is merged anew, the rows of these objects become part of it.

Format of an object: row groups of at most GROUP_ROWS rows and about GROUP_BYTES bytes (a larger row is alone), page
checksums, zstd. Each row group has the exact minimum and maximum of table_id, key and commit_ts as Parquet statistics.
Keys above 4 KiB have no statistics: a row group without them may hold any key between `first` and `last` of the
reference. Rows and objects are in the order of their keys. For the tables of TiDB that is also the order by table_id,
because a key begins with its table's id; the ids of RawKV descend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tistream.errors import InvariantBroken
from tistream.model.span import KeySpan

SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),  # segment.OP_PUT, OP_DELETE
        pa.field("value", pa.binary()),
        pa.field("txn_source", pa.int64()),
    ]
)
ORDER = ("key", "commit_ts", "start_ts")  # commit_ts descends, so the newest version of a key is first
GROUP_ROWS = 8_192
GROUP_BYTES = 8 << 20
OBJECT_BYTES = 64 << 20  # a run is cut into objects of about this size, between two keys
OBJECT_ROWS = 1 << 20  # and, above the base run, of about this number of rows: filters of keys are good for as many


@dataclass(frozen=True, slots=True)
class RunRef:
    """A manifest's reference to one object of a run.

    `size` is in bytes; `checksum` is the zlib CRC-32 of the whole object, eight hex digits. `low_ts` is None for an
    object of a base run; then `high_ts` is the base_ts. `first` and `last` are the lowest and highest (table_id, key)
    in the object, with keys that are not shortened.
    """

    key: str
    size: int
    checksum: str
    rows: int
    low_ts: int | None
    high_ts: int
    first: tuple[int, bytes]
    last: tuple[int, bytes]

    @property
    def window(self) -> tuple[int | None, int]:
        """The window of the object's run: (low_ts, high_ts). low_ts is exclusive, and None for a base run. All objects
        of a run have the same window."""
        return self.low_ts, self.high_ts

    def touches(self, span: KeySpan) -> bool:
        """Whether the object may have keys in `span`. Decided by its first and last key."""
        return span.touches(self.first[1], self.last[1])

    def to_json(self) -> dict[str, Any]:
        """Encode the reference as a JSON object; keys of rows are hexadecimal."""
        out: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        out["first"] = [self.first[0], self.first[1].hex()]
        out["last"] = [self.last[0], self.last[1].hex()]
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunRef:
        bounds = {name: (data[name][0], bytes.fromhex(data[name][1])) for name in ("first", "last")}
        return cls(**{**data, **bounds})


_PLAIN = ("key", "size", "checksum", "rows", "low_ts", "high_ts")


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The version index of one part of a task's span. All timestamps are TSO.

    begins_ts: versions at or below it are in the index only if they were backfilled. base_ts: the lowest ts that can be
    read; the base run has the state as of base_ts, and may be empty. indexed_ts: the runs have every change of the span
    in (base_ts, indexed_ts]. runs: base run first, then by window, each in key order. basis: the objects that backfills
    added, in the order of their first keys. No key is in two of them, but their key ranges may overlap.
    """

    span: KeySpan
    begins_ts: int
    base_ts: int
    indexed_ts: int
    runs: tuple[RunRef, ...] = ()
    basis: tuple[RunRef, ...] = ()

    @property
    def base(self) -> tuple[RunRef, ...]:
        """The objects of the base run, in key order."""
        return tuple(run for run in self.runs if run.low_ts is None)

    def by_window(self) -> list[tuple[RunRef, ...]]:
        """The runs above the base run, oldest first. Each run is a tuple of its objects in key order."""
        found: dict[tuple[int, int], list[RunRef]] = {}
        for run in self.runs:
            if run.low_ts is not None:
                found.setdefault((run.low_ts, run.high_ts), []).append(run)
        return [tuple(found[window]) for window in sorted(found)]

    def clipped(self, span: KeySpan) -> IndexPart | None:
        """Restrict this part to the keys in `span`, and drop the objects that have no key there. Returns None if part
        and span do not overlap."""
        piece = self.span.clip(span)
        if piece is None:
            return None
        runs, basis = (tuple(run for run in some if run.touches(piece)) for some in (self.runs, self.basis))
        return replace(self, span=piece, runs=runs, basis=basis)

    def to_json(self) -> dict[str, Any]:
        return {
            "span": [self.span.start.hex(), self.span.end.hex()],
            "begins_ts": self.begins_ts,
            "base_ts": self.base_ts,
            "indexed_ts": self.indexed_ts,
            "runs": [run.to_json() for run in self.runs],
            "basis": [run.to_json() for run in self.basis],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> IndexPart:
        span = KeySpan(*map(bytes.fromhex, data["span"]))
        runs, basis = (tuple(map(RunRef.from_json, data.get(name, ()))) for name in ("runs", "basis"))
        return cls(span, data["begins_ts"], data["base_ts"], data["indexed_ts"], runs, basis)


Index = tuple[IndexPart, ...]


def runs_of(index: Iterable[IndexPart]) -> tuple[RunRef, ...]:
    """The run objects of all parts of an index, each once."""
    return tuple({run.key: run for part in index for run in (*part.runs, *part.basis)}.values())


def indexed_ts(index: Sequence[IndexPart]) -> int:
    """The ts up to which the runs of every part have all changes; 0 without an index."""
    return min((part.indexed_ts for part in index), default=0)


def base_ts(index: Sequence[IndexPart]) -> int:
    """The lowest ts at which every key of the index can be read; 0 without an index."""
    return max((part.base_ts for part in index), default=0)


def check_index(index: Index, span: KeySpan, flushed_ts: int, before: Index) -> None:
    """Check the index of a manifest against `before`, the index that it replaces.

    Raises:
        InvariantBroken, numbered as in docs/invariants.md: 25 if the parts do not tile the span, or windows or objects
            of a part overlap; 27 if a run reaches above flushed_ts; 28 if base_ts or indexed_ts of some key decreases.
    """
    if not index:
        return
    spans = [part.span for part in index]
    tiled = spans[0].start == span.start and spans[-1].end == span.end
    if not tiled or any(left.end != right.start or not left.end for left, right in pairwise(spans)):
        raise InvariantBroken(25, f"the parts {spans} of an index do not tile {span}")
    for part in index:
        _check_part(part)
        if part.indexed_ts > flushed_ts:
            raise InvariantBroken(27, f"an index reaches {part.indexed_ts}, above flushed_ts {flushed_ts}")
        for run in part.basis:
            if run.high_ts > flushed_ts:
                raise InvariantBroken(27, f"{run.key}: a backfill at {run.high_ts}, above flushed_ts {flushed_ts}")
        for old in before:
            if old.span.overlaps(part.span) and (old.base_ts > part.base_ts or old.indexed_ts > part.indexed_ts):
                reason = f"({old.base_ts}, {old.indexed_ts}] to ({part.base_ts}, {part.indexed_ts}]"
                raise InvariantBroken(28, f"the index of {part.span} goes back from {reason}")


def _check_part(part: IndexPart) -> None:
    if not part.begins_ts <= part.base_ts <= part.indexed_ts:
        raise InvariantBroken(25, f"an index with begins_ts {part.begins_ts}, {part.base_ts}, {part.indexed_ts}")
    reached = part.base_ts
    for run in part.by_window():
        low, high = run[0].window
        if low is None or low < reached or not low < high <= part.indexed_ts:
            raise InvariantBroken(25, f"{run[0].key}: the window ({low}, {high}] overlaps another one or the base")
        reached = high
    if any(run.high_ts != part.base_ts for run in part.base):
        raise InvariantBroken(25, f"a base run of {part.span} is not at its base_ts {part.base_ts}")
    for base in part.basis:
        if base.low_ts is not None or base.high_ts < part.begins_ts:
            raise InvariantBroken(25, f"{base.key} is no base of {part.span}, which begins at {part.begins_ts}")
    for run in (part.base, *part.by_window()):
        for left, right in pairwise(run):
            if left.last[1] >= right.first[1]:
                raise InvariantBroken(25, f"{left.key} and {right.key} of one run overlap")
