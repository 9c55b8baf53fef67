"""Selects which slices of a log backup a release reads. Pure.

A release is one step of reading a log backup. A slice is a byte range of the log, with entries of one column family of
TiKV: `write` has the commits, `default` the long values.
"""

from __future__ import annotations

from dataclasses import dataclass

from tistream.logbackup.metadata import DEFAULT, WRITE, Slice
from tistream.model.ts import Window
from tistream_ingest.plan.catalog import Catalog


@dataclass(frozen=True, slots=True)
class NeedsOlder:
    """The result of `take` if transactions of the window began as early as `ts`, for which the catalog has no metadata.
    The caller must load older metadata first."""

    ts: int


@dataclass(frozen=True, slots=True)
class ReleaseInput:
    """The input of a release.

    writes: the slices with commits in the window. values: the slices of `default` that may hold values of these
    commits. late: slices with commits at or below the window's low end, from metadata that earlier releases did not
    have. metas: the names of the metadata objects of all these slices. compared: the names of the metadata objects of
    the slices in `late`.
    """

    window: Window
    writes: tuple[Slice, ...]
    values: tuple[Slice, ...]
    late: tuple[Slice, ...]
    metas: tuple[str, ...]
    compared: frozenset[str]

    @property
    def rows_max(self) -> int:
        """An upper bound of the number of changes in the window. A change that the log repeats counts each time."""
        return sum(one.entries for one in self.writes)

    @property
    def bytes_max(self) -> int:
        """An approximate upper bound of the bytes of keys and values of the changes in the window."""
        return sum(one.plain for one in (*self.writes, *self.values))


def take(catalog: Catalog, low: int, high: int) -> ReleaseInput | NeedsOlder:
    """Select the slices for the changes with low < commit_ts <= high. The log has a value at the start_ts of its
    transaction, perhaps hours before the commit. So values are needed from the smallest start_ts of the window's
    `write` slices on. If a slice does not state it (0), any value may be needed. Returns NeedsOlder if the catalog does
    not have the metadata from that start_ts on."""
    writes: list[Slice] = []
    late: list[Slice] = []
    metas: set[str] = set()
    compared: set[str] = set()
    for name, one in catalog.slices():
        if one.cf != WRITE or one.min_ts > high:
            continue
        if one.max_ts > low:
            writes.append(one)
            metas.add(name)
        if one.min_ts <= low and catalog.may_have_late_commits(name):
            late.append(one)
            metas.add(name)
            compared.add(name)
    begin = min((one.min_begin_ts for one in writes), default=high)
    if 0 < begin < catalog.horizon_ts:
        return NeedsOlder(begin)
    tables = {one.table_id for one in writes}
    values: list[Slice] = []
    for name, one in catalog.slices():
        if one.cf == DEFAULT and one.table_id in tables and one.min_ts <= high and one.max_ts >= begin:
            values.append(one)
            metas.add(name)
    return ReleaseInput(
        Window(low, high), tuple(writes), tuple(values), tuple(late), tuple(sorted(metas)), frozenset(compared)
    )
