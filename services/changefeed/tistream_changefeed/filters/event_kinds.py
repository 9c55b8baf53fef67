"""The kinds of events, with the names that TiCDC's `ignore-event` gives them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tistream.errors import InvalidRequest
from tistream.schema.ddl_event import DdlEvent

ROW_KINDS = ("delete", "update", "insert")
"""Kinds of row events, at the numbers of rows.split.kinds."""

_UNDONE = "rollback of "
_ALTER = re.compile(r"\s*alter\s+(ignore\s+)?table\b", re.IGNORECASE)
_INDEXES = frozenset({"add index", "add columnar index"})
_DROPPED_INDEXES = frozenset({"drop index", "drop multi-indexes"})
_ACTIONS: dict[str, frozenset[str]] = {
    "create schema": frozenset({"create schema"}),
    "create database": frozenset({"create schema"}),
    "drop schema": frozenset({"drop schema"}),
    "drop database": frozenset({"drop schema"}),
    "create table": frozenset({"create table", "create tables"}),
    "drop table": frozenset({"drop table"}),
    "truncate table": frozenset({"truncate table"}),
    "rename table": frozenset({"rename table", "rename tables"}),
    "recover table": frozenset({"recover table"}),
    "create view": frozenset({"create view"}),
    "drop view": frozenset({"drop view"}),
    "create index": _INDEXES,
    "add index": _INDEXES,
    "drop index": _DROPPED_INDEXES,
    "rename index": frozenset({"rename index"}),
    "alter index visibility": frozenset({"alter index visibility"}),
    "add primary key": frozenset({"add primary key"}),
    "drop primary key": frozenset({"drop primary key"}),
    "add foreign key": frozenset({"add foreign key"}),
    "drop foreign key": frozenset({"drop foreign key"}),
    "add column": frozenset({"add column", "add multi-columns"}),
    "drop column": frozenset({"drop column", "drop multi-columns"}),
    "modify column": frozenset({"modify column"}),
    "set default value": frozenset({"set default value"}),
    "rebase auto id": frozenset({"rebase auto_increment ID", "rebase auto_random ID"}),
    "shard row id": frozenset({"shard row ID"}),
    "modify table comment": frozenset({"modify table comment"}),
    "modify table charset and collate": frozenset({"modify table charset and collate"}),
    "modify schema charset and collate": frozenset({"modify schema charset and collate"}),
    "multi schema change": frozenset({"alter table multi-schema change"}),
    "add table partition": frozenset({"add partition"}),
    "drop table partition": frozenset({"drop partition"}),
    "truncate table partition": frozenset({"truncate partition"}),
    "exchange table partition": frozenset({"exchange partition"}),
    "exchange partition": frozenset({"exchange partition"}),
    "reorganize table partition": frozenset({"alter table reorganize partition"}),
    "reorganize partition": frozenset({"alter table reorganize partition"}),
    "alter table partitioning": frozenset({"alter table partition by"}),
    "remove table partitioning": frozenset({"alter table remove partitioning"}),
    "alter ttl info": frozenset({"alter table ttl"}),
    "alter ttl remove": frozenset({"alter table no_ttl"}),
}
_ALL_DML, _ALL_DDL, _ALTER_TABLE = "all dml", "all ddl", "alter table"
_KNOWN = frozenset({_ALL_DML, _ALL_DDL, _ALTER_TABLE, *ROW_KINDS, *_ACTIONS})
_ALTERS = (
    "rename index", "alter index visibility", "add primary key", "drop primary key", "add foreign key",
    "drop foreign key", "add column", "drop column", "modify column", "set default value", "rebase auto id",
    "shard row id", "modify table comment", "modify table charset and collate", "multi schema change",
    "add table partition", "drop table partition", "truncate table partition", "exchange partition",
    "reorganize partition", "alter table partitioning", "remove table partitioning", "alter ttl info",
    "alter ttl remove",
)  # fmt: skip
_ALTERATIONS = frozenset(action for name in _ALTERS for action in _ACTIONS[name])


def parse_kinds(names: Iterable[str]) -> frozenset[str]:
    """Normalize the names of event kinds: lower case, single blanks. Raises InvalidRequest for a name that TiCDC does
    not know."""
    found = [" ".join(name.lower().split()) for name in names]
    unknown = [name for name in found if name not in _KNOWN]
    if unknown:
        raise InvalidRequest(f"ignore-event {unknown[0]!r} is not a kind of event: use {', '.join(sorted(_KNOWN))}")
    return frozenset(found)


def ignored_rows(kinds: frozenset[str]) -> list[int]:
    """The kinds of row events that `kinds` names, as numbers: 0 delete, 1 update, 2 insert."""
    return [at for at, name in enumerate(ROW_KINDS) if name in kinds or _ALL_DML in kinds]


def ignores_ddl(kinds: frozenset[str], event: DdlEvent) -> bool:
    """Whether a DDL event is of one of these kinds. The kind `alter table` has every DDL that alters a table, by its
    action or by the text of its statement, except a rename. A DDL that was rolled back has the kind of the DDL that it
    reverts."""
    action = event.action.removeprefix(_UNDONE)
    if _ALL_DDL in kinds or any(action in _ACTIONS.get(name, ()) for name in kinds):
        return True
    if _ALTER_TABLE not in kinds or action in _ACTIONS["rename table"]:
        return False
    return action in _ALTERATIONS or _ALTER.match(event.query) is not None
