"""A cache of the log backup's metadata that later releases (steps of reading it) may need; a restart reads it again.
Not thread-safe.

A slice is a byte range of the log, with entries of one column family of TiKV. Slices of the column family `write` are
kept until their commits are released. Slices of `default`, which have long values, are kept from `horizon_ts` on,
because their transaction may commit later. If a release needs an older value, the caller loads the metadata again with
a lower horizon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tistream.logbackup.metadata import DEFAULT, WRITE, Metadata, Slice


@dataclass(slots=True)
class Catalog:
    """The slices of a log backup that later releases may need, each under the name of the metadata object that lists
    it. released_ts: commits at or below it have been released. horizon_ts: `default` slices whose timestamps are all
    below it are not kept. names: every metadata object that was read, or that its name or age excludes."""

    released_ts: int
    horizon_ts: int
    names: set[str] = field(default_factory=set)
    _slices: dict[str, tuple[Slice, ...]] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)

    def add(self, name: str, metadata: Metadata, *, fresh: bool) -> None:
        """Add a metadata object that was read. fresh: the object may name commits at or below released_ts that are in
        no release. The next release looks them up in the pool."""
        self.names.add(name)
        kept = tuple(one for one in metadata.slices if self._matters(one, fresh=fresh))
        if kept:
            self._slices[name] = kept
            if fresh:
                self._fresh.add(name)

    def skip(self, name: str) -> None:
        """Record a metadata object that need not be read."""
        self.names.add(name)

    def slices(self) -> Iterator[tuple[str, Slice]]:
        """The slices of all known metadata objects, each with the object's name, in the order of names."""
        for name in sorted(self._slices):
            for one in self._slices[name]:
                yield name, one

    def may_have_late_commits(self, name: str) -> bool:
        """Whether this metadata object may name commits at or below the catalog's released_ts that are in no release.
        The next release looks them up in the pool."""
        return name in self._fresh

    def released(self, released_ts: int, horizon_ts: int, compared: frozenset[str]) -> None:
        """Record that a release has been written, and drop slices that no later release needs. compared: the fresh
        metadata objects whose late commits the release has looked up in the pool."""
        self.released_ts, self.horizon_ts = released_ts, max(self.horizon_ts, horizon_ts)
        self._fresh -= compared
        for name in list(self._slices):
            kept = tuple(one for one in self._slices[name] if self._matters(one, fresh=name in self._fresh))
            if kept:
                self._slices[name] = kept
            else:
                del self._slices[name]
                self._fresh.discard(name)

    def forget_names(self, before: str) -> None:
        """Drop names that sort below `before`. Later LISTs begin there, so they never return these names."""
        self.names = {name for name in self.names if name >= before}

    def _matters(self, one: Slice, *, fresh: bool) -> bool:
        if not one.put:
            return False  # physical deletes: garbage collection and rollbacks, never a change of SQL
        if one.cf == WRITE:
            return fresh or one.max_ts > self.released_ts
        return one.cf == DEFAULT and one.max_ts >= self.horizon_ts
