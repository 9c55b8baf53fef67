"""A scan's source whose row groups are fetched by signed ranges, and whose table versions are those of the answer."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.errors import CorruptObject
from tistream.format.parquet_footer import NeedMore, ParquetFooter, read_footer
from tistream.format.segment import SCHEMA, RowGroupInfo, SegmentRef
from tistream.model.ts import Window
from tistream.pool.parquet_objects import OpenedObject, read_groups
from tistream.read.cursor import Scope
from tistream.read.events import Ddls
from tistream.read.plan import GroupRef
from tistream.read.row_events import Shapes
from tistream.read.signed.shown_shapes import shapes_of
from tistream.read.source_contract import Alive, DerivedResult, GroupIndex, GroupStatistics, T
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.signed import SignedChanges, SignedGroup, SignedObject

Fetch = Callable[[SignedGroup], bytes]
"""Fetches the bytes of a row group. Exceptions pass through a scan, except NotFoundYet."""

_NOTHING = MemoryObjectStore()  # a reader of signed ranges holds every byte that it decodes
CACHE_BYTES = 256 << 20  # decoded row groups of a scan, which reads a row group once for each chunk that it has rows of


@dataclass(frozen=True, slots=True)
class _Opened:
    segment: SegmentRef
    footer: ParquetFooter
    groups: tuple[SignedGroup, ...]


class SignedSource:
    """Implements ScanSource (source_contract.py) for the range of an answer with `direct`. `fetch` fetches row groups.
    For one thread. The constructor raises CorruptObject if a footer is not that of the row groups."""

    def __init__(self, answer: SignedChanges, fetch: Fetch) -> None:
        self._fetch = fetch
        self._shapes = shapes_of(answer)
        self._opened = {one.key: _opened(one) for one in answer.objects}
        self._held: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._bytes = 0

    def horizon(self, window: Window, rows: int) -> int:
        """Implement ScanSource.horizon: an answer has few row groups, so a scan looks at all of them."""
        del rows
        return window.high

    def segments(self, window: Window) -> Sequence[SegmentRef]:
        """Implement ScanSource.segments: every segment of the answer."""
        del window
        return [one.segment for one in self._opened.values()]

    def replan(self) -> None:
        """Implement ScanSource.replan: nothing changes, because another answer is another source."""

    def physical_ids(self, scope: Scope, window: Window) -> Int64s | None:
        """Implement ScanSource.physical_ids: all physical ids of the answer, for every scope and window."""
        del scope, window
        return np.array(sorted(self._shapes.intervals), np.int64)

    def shapes(self, scope: Scope, ids: Sequence[int], window: Window) -> Shapes:
        """Implement ScanSource.shapes: those of the answer."""
        del scope, ids, window
        return self._shapes

    def logical_id(self, physical_id: int, commit_ts: int) -> int:
        """Implement ScanSource.logical_id."""
        for one in self._shapes.intervals.get(physical_id, ()):
            if one.low < commit_ts <= one.high and one.version is not None:
                return one.version.table.id
        return physical_id

    def ddl_events(self, scope: Scope, window: Window) -> Ddls:
        """Implement ScanSource.ddl_events: a reader of signed ranges has row events alone."""
        del scope, window
        return Ddls(())

    def rows(self, group: GroupRef) -> pa.Table:
        """Implement ScanSource.rows. Raises CorruptObject, and the errors of `fetch`."""
        key = (group.segment.key, group.index)
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
            return found
        table = self._read(self._opened[group.segment.key], group.index).combine_chunks()
        self._held[key] = table
        self._bytes += table.nbytes
        while self._bytes > CACHE_BYTES and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes
        return table

    def index(self, group: GroupRef) -> GroupIndex:
        """Implement ScanSource.index: the whole row group is read, because its rows are needed next."""
        table = self.rows(group)
        return GroupIndex(table.column("table_id").to_numpy(), table.column("commit_ts").to_numpy(), table.nbytes)

    def statistics(self, group: GroupRef) -> GroupStatistics:
        """Implement ScanSource.statistics: footers of answers have none."""
        del group
        return GroupStatistics(None, None)

    def shared(self, key: Hashable, high: int, make: Callable[[Alive], DerivedResult[T]], alive: Alive) -> T:
        """Implement ScanSource.shared: there is one reader."""
        del key, high
        return make(alive).value

    def _read(self, opened: _Opened, index: int) -> pa.Table:
        group = opened.groups[index]
        body = self._fetch(group)
        if len(body) != group.length:
            raise CorruptObject(opened.segment.key, f"gave {len(body)} bytes in place of {group.length}")
        held = OpenedObject(opened.footer, ((group.start, body),))
        return read_groups(_NOTHING, opened.segment, held, [index], None, SCHEMA)


def _opened(one: SignedObject) -> _Opened:
    try:
        tail = base64.b64decode(one.footer, validate=True)
    except binascii.Error as error:
        raise CorruptObject(one.key, f"the answer's footer is not base64: {error}") from error
    footer = read_footer(one.key, tail, one.size)
    if isinstance(footer, NeedMore):
        raise CorruptObject(one.key, f"the answer's footer is {footer.length - len(tail)} bytes too short")
    infos = tuple(
        RowGroupInfo(
            group.rows, int(group.table_id), int(group.table_id), int(group.commit_ts_min), int(group.commit_ts_max)
        )
        for group in one.groups
    )
    stated = [(group.rows, (group.start, group.length)) for group in one.groups]
    if [(group.rows, group.range) for group in footer.groups] != stated:
        raise CorruptObject(one.key, "the answer's footer has other row groups than the answer")
    rows = sum(group.rows for group in one.groups)
    return _Opened(SegmentRef(one.key, one.size, "", rows, infos), footer, tuple(one.groups))
