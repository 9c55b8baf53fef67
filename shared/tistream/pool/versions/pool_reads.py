"""Reads versions of rows in a tenant's pool. If compaction deletes an object during the read, the list of objects is
refreshed and the read continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from tistream.errors import NotFoundYet, Unavailable
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.lookup import newest_at, versions_of
from tistream.pool.versions.net import read_net
from tistream.pool.versions.plan import IndexShard, TableRange
from tistream.pool.versions.reader import Reader
from tistream.pool.versions.scan import read_range

T = TypeVar("T")
REPLANS = 3


class ServedPool(Protocol):
    """The pool of one tenant, of which retention deletes the oldest changes."""

    def shards(self) -> list[IndexShard]:
        """The tenant's segments and runs by key range, as of the last refresh."""

    def replan(self) -> None:
        """Refresh the shards."""

    def check_served(self, ts: int) -> None:
        """Raise Gone if changes above `ts` may have been deleted from the shards that were returned before."""


@dataclass(frozen=True, slots=True)
class PoolReads:
    """Reads the pool of one tenant. `shards` returns the tenant's segments and runs by key range, and raises Gone if
    retention may have deleted versions that a read needs. `replan` refreshes them."""

    reader: Reader
    shards: Callable[[], list[IndexShard]]
    replan: Callable[[], None]

    @staticmethod
    def of(reader: Reader, pool: ServedPool, lowest_ts: int) -> PoolReads:
        """Read a pool whose changes above `lowest_ts`, and the state at it, are needed. Each read raises Gone once they
        may be deleted."""
        return PoolReads(reader, partial(_served, pool, lowest_ts), pool.replan)

    def scan(
        self, window: Window, ranges: Sequence[TableRange], *, deletes: bool = False, every: bool = False
    ) -> Iterator[pa.Table]:
        """Yield the newest version in `window` of each key in `ranges`, as versions.scan.read_range does; if an object
        has disappeared, refresh the objects and continue after the last key. `deletes`: also keys whose newest version
        is a delete. `every`: all versions in the window. Raises Gone, Unavailable, CorruptObject."""
        yield from self._resumed(
            ranges, lambda rest: read_range(self.shards(), self.reader, window, rest, deletes=deletes, every=every)
        )

    def net(self, window: Window, ranges: Sequence[TableRange]) -> Iterator[pa.Table]:
        """Yield the net change in `window` of each key in `ranges`, as versions.net.read_net does; if an object has
        disappeared, refresh the objects and continue after the last key. Raises the errors of `scan`."""
        yield from self._resumed(ranges, lambda rest: read_net(self.shards(), self.reader, window, rest))

    def _resumed(
        self, ranges: Sequence[TableRange], read: Callable[[Sequence[TableRange]], Iterator[pa.Table]]
    ) -> Iterator[pa.Table]:
        """Yield the tables of `read`. If an object has disappeared, call `read` again with the ranges after the last
        key."""
        rest, replans = list(ranges), 0
        while rest:
            try:
                for table in read(rest):
                    last = table.column("key")[-1].as_py()
                    yield table
                    rest, replans = _after(rest, last), 0
            except NotFoundYet as error:
                replans = self._again(error, replans)
            else:
                return

    def newest(self, places: pa.Table, ts: int) -> pa.Table:
        """Find the newest version at or below `ts` of each key in `places`, as versions.lookup.newest_at does; if an
        object has disappeared, refresh the objects and begin again. Raises the errors of `scan`."""
        return self.repeated(lambda: newest_at(self.shards(), self.reader, places, ts))

    def versions(self, places: pa.Table, window: Window, rows_max: int | None = None) -> pa.Table:
        """Find every version in `window` of the keys in `places`, as versions.lookup.versions_of does; if an object has
        disappeared, refresh the objects and begin again. With `rows_max` the result may end after this number of rows,
        without the oldest versions. Raises the errors of `scan`."""
        return self.repeated(lambda: versions_of(self.shards(), self.reader, places, window, rows_max))

    def repeated(self, read: Callable[[], T]) -> T:
        """Call `read`, and return its result. Each time `read` finds that an object has disappeared, refresh the
        objects and call it again, at most REPLANS times; after that, raise Unavailable. Raises the errors of `scan`."""
        replans = 0
        while True:
            try:
                return read()
            except NotFoundYet as error:
                replans = self._again(error, replans)

    def _again(self, error: NotFoundYet, replans: int) -> int:
        if replans >= REPLANS:
            raise Unavailable(
                f"{error}, although the newest manifests name it: retry; if it stays, an object was deleted by "
                "another program"
            ) from error
        self.replan()
        return replans + 1


def _served(pool: ServedPool, lowest_ts: int) -> list[IndexShard]:
    """The shards of the pool. Raises Gone if they may lack changes above `lowest_ts`."""
    shards = pool.shards()
    pool.check_served(lowest_ts)  # after the shards: retention may rise at any time, and with it what shards lack
    return shards


def _after(ranges: Sequence[TableRange], key: bytes) -> list[TableRange]:
    """The parts of `ranges` above `key`. The ranges must be in ascending order."""
    found = (one.clip(KeySpan(key + b"\0", b"")) for one in ranges)
    return [one for one in found if one is not None]
