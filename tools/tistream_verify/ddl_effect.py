"""Derives from a DDL event which names and columns it changes, as far as a consumer can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Name = tuple[str, str]

# Actions that do not change the columns or the existence of rows.
RESHAPES_NOTHING = frozenset(
    {
        "add index",
        "create schema",
        "create sequence",
        "create table",
        "create view",
        "drop index",
        "drop sequence",
        "drop view",
        "modify table comment",
        "rename index",
        "rename table",
        "rename tables",
    }
)


def names_of(event: Mapping[str, Any]) -> set[Name]:
    """Every (database, table) that the event concerns, in lower case; the table is "" for a database itself."""
    names = {(name["database"].lower(), name["table"].lower()) for name in event["involved"]}
    if event["database"]:
        names.add((event["database"].lower(), event["table"].lower()))
    return names
