"""Finds the handle key: the columns that identify a row for a sink, by TiCDC's rules. Pure. They are not always the
columns of an event's `key` (tistream.schema.tidb.table.Table.key_columns), which is the first key in the order of the
table's indexes."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.schema.tidb.table import FLAG_PRIMARY, Column, Index, Table

_FLAG_UNIQUE = 4


def handle_columns(table: Table) -> tuple[Column, ...]:
    """The columns of the handle key, in the table's order; empty if the table has no handle key. It is the primary key,
    clustered or not. Without a primary key it is, of the unique indexes whose columns are all NOT NULL, the one with
    the fewest columns and then with the smallest id. An index over a column that is not sent, such as an expression,
    does not count, because its values are unknown."""
    if table.pk_is_handle:
        return table.handle_columns
    primary = next((index for index in table.indexes if index.primary and index.public), None)
    if primary is not None:
        return _in_order(table, [primary])
    fit = [index for index in table.indexes if index.unique and index.public and index.plain and _sent(table, index)]
    least = min(fit, key=lambda index: (len(index.columns), index.id), default=None)
    return () if least is None else _in_order(table, [least])


def eligible(table: Table) -> bool:
    """Whether TiCDC replicates the table without `force-replicate`: it is a base table with a handle key."""
    return table.kind == "table" and bool(handle_columns(table))


def unique_columns(table: Table) -> tuple[Column, ...]:
    """The columns whose change splits an update: those of the handle key and of every unique index, nullable or not.
    Columns whose values are not in changes (virtual or hidden) are left out."""
    unique = [index for index in table.indexes if (index.unique or index.primary) and index.public]
    keyed = {*_in_order(table, unique), *handle_columns(table)}
    flagged = {column for column in table.columns if column.flag & (FLAG_PRIMARY | _FLAG_UNIQUE)}
    return tuple(column for column in table.visible_columns if column in keyed | flagged)


def index_columns(table: Table, name: str) -> tuple[Column, ...] | None:
    """The columns of the unique index or primary key with this name, without regard to upper and lower case; None if
    the table has no such index. `primary` also names a primary key that is the integer handle."""
    for index in table.indexes:
        if index.public and (index.unique or index.primary) and index.name.lower() == name.lower():
            return _in_order(table, [index])
    if table.pk_is_handle and name.lower() == "primary":
        return table.handle_columns
    return None


def _sent(table: Table, index: Index) -> bool:
    columns = [table.columns[part.offset] for part in index.columns]
    return all(column.not_null and column.visible for column in columns)


def _in_order(table: Table, indexes: Iterable[Index]) -> tuple[Column, ...]:
    offsets = {part.offset for index in indexes for part in index.columns}
    return tuple(table.columns[offset] for offset in sorted(offsets))
