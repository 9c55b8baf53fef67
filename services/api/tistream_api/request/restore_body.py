"""Parses the body of a request for a restore (docs/restore.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tistream.errors import InvalidRequest
from tistream.schema.visible import SYSTEM_SCHEMAS, fold
from tistream.wire.bulk.restores import NAME_MAX, URL_MAX, WITHOUT_NUL, CreateRestore, MySqlPlace
from tistream_api.request.bodies import read
from tistream_api.request.point_queries import When, when

RESTORE_ID = re.compile("[0-9a-f]{32}")

_NAME = {"type": "string", "minLength": 1, "maxLength": NAME_MAX, "pattern": WITHOUT_NUL}
_URL = {"type": "string", "maxLength": URL_MAX}


def _place(kind: str, **members: dict[str, Any]) -> dict[str, Any]:
    required = ["kind", *(name for name, one in members.items() if "default" not in one)]
    properties = {"kind": {"type": "string", "enum": [kind]}, **members}
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


SCHEMA: dict[str, Any] = {
    "scope": {
        "type": "object",
        "properties": {"database": _NAME, "table": _NAME},
        "additionalProperties": False,
        "description": "a table, the tables of a database, or with {} all tables",
    },
    "ts": {"type": "string", "description": "a TSO, an RFC 3339 time, or now"},
    "target": {
        "oneOf": [
            _place("parquet", url=_URL),
            _place("sql-files", url=_URL, dialect={"enum": ["tidb", "mysql", "mariadb"], "default": "tidb"}),
            _place(
                "mysql",
                dsn_file=_URL,
                rename={"type": "object", "additionalProperties": _NAME, "default": {}, "description": "of databases"},
            ),
        ]
    },
    "if_exists": {"type": "string", "enum": ["fail", "replace"], "default": "fail"},
}


def restore_request(body: bytes) -> tuple[CreateRestore, When]:
    """Parse the body. Returns the request, and its `ts` as a TSO or `now`. Raises InvalidRequest, which names the
    member."""
    found = read(CreateRestore, body)
    if found.scope.table is not None and found.scope.database is None:
        raise InvalidRequest("scope.table needs scope.database: name the database of the table", {"parameter": "scope"})
    for name in _new_names(found):
        if fold(name) in SYSTEM_SCHEMAS:
            raise InvalidRequest(
                f"target.rename: {name} is a system schema of the server: use another name",
                {"parameter": "target.rename"},
            )
    return found, when("ts", found.ts)


def _new_names(found: CreateRestore) -> Iterator[str]:
    if isinstance(found.target, MySqlPlace):
        yield from found.target.rename.values()
