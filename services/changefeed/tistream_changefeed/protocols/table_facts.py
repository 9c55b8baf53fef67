"""Reads the facts about a table that messages contain and that decoding rows does not need: defaults, comments, keys,
the version. Its source is TiDB's TableInfo."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column, Index, Table
from tistream.schema.visible import TableVersion
from tistream_changefeed.protocols.type_names import type_name
from tistream_changefeed.rows.handle_key import handle_columns

FLAG_BINARY = 128
FLAG_ZEROFILL = 64
FLAG_AUTO_INCREMENT = 512
FLAG_ON_UPDATE_NOW = 8192
_CACHED_VERSIONS = 20_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column with its present default: a text as TiDB stores it, bytes for BIT, None for NULL or no default."""

    column: Column
    default: Any
    comment: str

    @property
    def type_name(self) -> str:
        """TiDB's name of the column's type, without length and sign, such as `varbinary`."""
        return type_name(self.column)

    @property
    def zerofill(self) -> bool:
        return bool(self.column.flag & FLAG_ZEROFILL)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts about one version of a table that schema messages and schema files contain. `columns` are those
    that SELECT shows, including virtual generated ones. `update_ts` is the TSO of the last change of the
    definition, which the protocol simple and the sink for files use as the version of the schema."""

    database: str
    table: Table
    columns: tuple[ColumnFacts, ...]
    charset: str
    update_ts: int

    def of(self, columns: Sequence[Column]) -> tuple[ColumnFacts, ...]:
        """The facts of the given columns, in the given order."""
        by_id = {facts.column.id: facts for facts in self.columns}
        return tuple(by_id[column.id] for column in columns)

    @property
    def indexes(self) -> tuple[Index, ...]:
        return tuple(index for index in self.table.indexes if index.public)

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns of the handle key, which TiCDC calls the primary key in schemas."""
        return handle_columns(self.table)


def table_facts(version: TableVersion) -> TableFacts:
    """Parse the facts of a table version from its TableInfo JSON."""
    info = version.stored.info()
    infos = {column["id"]: column for column in info.get("cols") or ()}
    shown = (column for column in version.table.columns if column.public and not column.hidden)
    return TableFacts(
        database=version.database,
        table=version.table,
        columns=tuple(
            ColumnFacts(column, _default(column, infos[column.id]), infos[column.id].get("comment") or "")
            for column in shown
        ),
        charset=info.get("charset") or "",
        update_ts=info.get("update_timestamp") or 0,
    )


class VersionCache(Generic[T]):
    """A cache of values that an encoder derives from table versions; it keeps the ones that were used last. Not
    thread-safe."""

    def __init__(self, make: Callable[[TableVersion], T], most: int = _CACHED_VERSIONS) -> None:
        self._make = make
        self._most = most
        self._known: OrderedDict[TableVersion, T] = OrderedDict()

    def of(self, version: TableVersion) -> T:
        """Return the value for a table version. It is computed at the first call, and kept."""
        found = self._known.get(version)
        if found is None:
            found = self._make(version)
            self._known[version] = found
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(version)
        return found


def _default(column: Column, info: dict[str, Any]) -> Any:
    bits = info.get("default_bit")
    if column.tp != t.BIT or bits is None:
        return info.get("default")
    try:
        return base64.b64decode(bits, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return None
