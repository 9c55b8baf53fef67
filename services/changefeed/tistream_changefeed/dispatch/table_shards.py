"""Assigns tables to the shards of a feed, for sinks in which one shard writes all rows of a table. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from tistream.read.chosen_scope import TableChoice
from tistream.schema.visible import TableVersion


@dataclass(frozen=True, slots=True)
class TableShard:
    """The tables that shard `number` of `count` writes: each table has one shard, by a hash of its logical id. TiDB
    gives most tables even ids, so the ids themselves would leave half of the shards without a table."""

    number: int = 0
    count: int = 1

    def has(self, version: TableVersion) -> bool:
        """Whether this shard writes a table."""
        return zlib.crc32(str(version.head.id).encode()) % self.count == self.number


ALONE = TableShard()


@dataclass(frozen=True, slots=True)
class ShardTables:
    """Selects the tables whose rows one shard of a feed reads: those that `tables` selects and `shard` writes.
    Implements TableChoice."""

    tables: TableChoice
    shard: TableShard

    def chosen(self, versions: Sequence[TableVersion]) -> list[bool]:
        """For each table version, whether this shard sends rows of it."""
        found = self.tables.chosen(versions)
        return [bool(one) and self.shard.has(version) for one, version in zip(found, versions, strict=True)]
