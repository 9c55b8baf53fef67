"""Counts the rows of a base run by the footers of its objects.

A base run has each key once, and no deletes. So if nothing is above it, the row groups inside the range are counted
without being read. Their keys are read only if they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import pyarrow as pa

from tistream.format.run import RunRef
from tistream.model.span import KeySpan
from tistream.pool.versions import merge
from tistream.pool.versions.reader import OpenedRun, Reader


@dataclass(slots=True)
class GroupKeys(Sequence[Any]):
    """The keys of row group `group` of an object of a run, in order, as Arrow scalars. The last one is known; if the
    caller takes another one, all are read."""

    reader: Reader
    opened: OpenedRun
    group: int
    rows: int
    last: bytes
    read: Any = field(default=None, init=False)  # the keys as an Arrow array, after they have been read

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if at == self.rows - 1:
            return pa.scalar(self.last, pa.binary())
        if self.read is None:
            self.read = _keys(self.reader, self.opened, self.group)
        return self.read[at]


def base_keys(reader: Reader, run: RunRef, span: KeySpan) -> Iterator[tuple[Sequence[Any], float]]:
    """Read the keys of a base run's object that lie in `span`. Yields, for each row group, (its keys, the estimated
    bytes of their rows after decoding). Raises CorruptObject, NotFoundYet, Unavailable."""
    (opened,) = reader.open_runs([run])
    groups = opened.groups
    bounds = (run.first[1], run.last[1])
    for at, (first, last) in enumerate(zip(groups.first_keys, groups.last_keys, strict=True)):
        if not span.touches(first, last):
            continue
        rows, size = int(groups.rows[at]), float(groups.bytes[at])
        # A group whose keys are too long for statistics is known by the bounds of the whole run.
        stated = len(groups.rows) == 1 or (first, last) != bounds
        if stated and first in span and last in span:
            yield GroupKeys(reader, opened, at, rows, last), size
            continue
        keys = _keys(reader, opened, at)
        start = merge.below(keys, span.start)
        end = merge.below(keys, span.end) if span.end else len(keys)
        if start < end:
            yield keys.slice(start, end - start), size * (end - start) / rows


def _keys(reader: Reader, opened: OpenedRun, at: int) -> Any:
    (fetched,) = reader.fetch([(opened, [at])])
    return merge.key_array(fetched.read(("key",)))
