"""What a ddl event says about names and shapes, as far as a consumer can tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Name = tuple[str, str]

# After any other action the rows may show other columns, or be gone.
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
    """Every (database, table) that it touched, in lower case; the table is "" for a database itself."""
    names = {(name["database"].lower(), name["table"].lower()) for name in event["involved"]}
    if event["database"]:
        names.add((event["database"].lower(), event["table"].lower()))
    return names
