"""Where a feed into Iceberg writes, and the names of its tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tistream.model.ids import TenantKey
from tistream.schema.visible import Name
from tistream_changefeed.sinks.iceberg.table_schema import Shape
from tistream_changefeed.sinks.iceberg.upkeep import Keeping

KEEPING = Keeping()
OWN_NAMESPACE = "tistream"
DATABASE = "{database}"
Identifier = tuple[str, ...]
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_PLACE = re.compile(r"[A-Za-z0-9_.-]+-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """The tables of a feed. `where` names the catalog in errors. `namespace` is a pattern: a dot separates levels.
    `file_bytes`: the size of files before compression. `delta_share`: changes of a table wait in a delta until
    their rows are more than this percentage of the rows of the files that they change; 0: the feed has no
    deltas. `loads`: the feed begins with the rows of its tables."""

    where: str
    namespace: str = DATABASE
    shapes: Sequence[Shape] = ("changes",)
    flush_interval_ms: int = 60_000
    file_bytes: int = 64 << 20
    keeping: Keeping = KEEPING
    delta_share: int = 0
    loads: bool = False

    def identifier(self, name: Name, shape: Shape) -> Identifier:
        """The name of the Iceberg table of this shape for a table of TiDB."""
        table = {"table": name[1], "changes": f"{name[1]}__changes", "delta": f"{name[1]}_delta"}[shape]
        return (*self.namespace.replace(DATABASE, name[0]).split("."), table)


def own_table(tenant: TenantKey, feed_id: str) -> tuple[str, str]:
    """The name of a feed's own table, whose snapshots have its progress."""
    return (OWN_NAMESPACE, f"{tenant.cluster_id}__{tenant.tenant_id}__{feed_id}")


def letter_table(tenant: TenantKey, feed_id: str) -> Identifier:
    """The name of the table of a feed's dead letters."""
    namespace, name = own_table(tenant, feed_id)
    return (namespace, f"{name}__dead_letters")


def location(warehouse: str, identifier: Identifier, name: str) -> str:
    """The URL below which the files of a new table will be. `name` must be unique, because a rename moves no files: a
    new table with the old name must get another location. Characters that might lead out of the warehouse are
    replaced."""
    return f"{warehouse.rstrip('/')}/{_UNSAFE.sub('_', '.'.join(identifier))}-{name}"


def is_location(warehouse: str, place: str) -> bool:
    """Whether the URL `place` may be one of `location`, with a name of `random_id`. Only the files below such a place
    belong to one table, so that those without a snapshot can be deleted: a property of a table may name any place."""
    base = f"{warehouse.rstrip('/')}/"
    return place.startswith(base) and _PLACE.fullmatch(place, len(base)) is not None


def version_of(identifier: Identifier, number: int) -> Identifier:
    """The name of a version of the Iceberg table `identifier`. The first version has the name itself."""
    return identifier if number == 1 else (*identifier[:-1], f"{identifier[-1]}__v{number}")


def number_of(identifier: Identifier, version: Identifier) -> int:
    """The number of a version of the Iceberg table `identifier`; 1 if `version` is not the name of a later one."""
    digits = version[-1].removeprefix(f"{identifier[-1]}__v")
    found = int(digits) if digits.isdecimal() and digits.isascii() else 1
    return found if found > 1 and version_of(identifier, found) == version else 1


def delta_of(identifier: Identifier) -> Identifier:
    """The name of the delta of an Iceberg table."""
    return (*identifier[:-1], f"{identifier[-1]}_delta")


def now_of(identifier: Identifier) -> Identifier:
    """The name of the view that joins an Iceberg table with its delta."""
    return (*identifier[:-1], f"{identifier[-1]}_now")


def set_aside(identifier: Identifier, ts: int) -> Identifier:
    """The new name of an Iceberg table whose table of TiDB was dropped at `ts`, when a new table needs its name."""
    prefix = set_aside_prefix(identifier)
    return (*prefix[:-1], f"{prefix[-1]}{ts}")


def set_aside_prefix(identifier: Identifier) -> Identifier:
    """The beginning of the names that `set_aside` gives to a table."""
    return (*identifier[:-1], f"{identifier[-1]}__dropped_")


def contents_of(identifier: Identifier, source: str) -> str:
    """What the Iceberg table `identifier` has of the table `source` (DATABASE.TABLE) of TiDB, in words for errors."""
    name, table = identifier[-1], source.rpartition(".")[2]
    if name == f"{table}__changes":
        return f"the changes of {source}"
    if name.endswith("_delta") and name != table:
        return f"the changes of {source} that wait (delta-share)"
    if name != table:
        return f"the rows of {source} since a type has changed"
    return f"the rows of {source}"
