"""Decodes messages of canal-json with TiDB's extension. Without the extension a message has no commit_ts, and a topic
has no resolved ts, so its events cannot be put in order. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from tistream.consume.feed_events import DdlEvent, Event, Malformed, ResolvedEvent, RowEvent, Value, ValueKind

_WATERMARK = "TIDB_WATERMARK"
_BYTES = 2004  # java.sql.Types.BLOB: binary strings, read as ISO-8859-1
_NAMES = ("enum", "set")


def decode(_: bytes | None, value: bytes | None) -> list[Event]:
    """Decode the event of one message. The message's key is not used. Raises Malformed."""
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise Malformed("a value that is no JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("_tidb"), dict):
        raise Malformed("a message without `_tidb`; create the changefeed with enable-tidb-extension=true")
    extension = found["_tidb"]
    if found.get("type") == _WATERMARK:
        return [ResolvedEvent(_ts(extension, "watermarkTs"))]
    commit_ts = _ts(extension, "commitTs")
    database, table = str(found.get("database", "")), str(found.get("table", ""))
    if found.get("isDdl"):
        return [DdlEvent(commit_ts, database, table, str(found.get("sql", "")))]
    if extension.get("onlyHandleKey") or extension.get("claimCheckLocation"):
        raise Malformed(
            f"the row of {database}.{table} was too large for the topic, and the message has its key alone; "
            "raise max-message-bytes of the changefeed"
        )
    return [_row(commit_ts, database, table, found)]


def _ts(extension: dict[str, Any], member: str) -> int:
    found = extension.get(member)
    if not isinstance(found, int):
        raise Malformed(f"a message without its {member}")
    return found


def _row(commit_ts: int, database: str, table: str, found: dict[str, Any]) -> RowEvent:
    data, kind = _image(found, "data"), found.get("type")
    if data is None or kind not in ("INSERT", "UPDATE", "DELETE"):
        raise Malformed(f"a row of {database}.{table} of type {kind}, with no data or not INSERT, UPDATE or DELETE")
    old = _image(found, "old") if kind == "UPDATE" else data if kind == "DELETE" else None
    if kind == "UPDATE":
        old = {**data, **(old or {})}  # with only-output-updated-columns, `old` lacks the unchanged columns
    kinds = {name: _kind(str(tp)) for name, tp in _types(found, "mysqlType").items()}
    key = found.get("pkNames") or []
    if not isinstance(key, list):
        raise Malformed("`pkNames` is not a list of columns")
    return RowEvent(
        commit_ts,
        database,
        table,
        old,
        None if kind == "DELETE" else data,
        tuple(map(str, key)),
        {name: one for name, one in kinds.items() if one is not ValueKind.PLAIN},
    )


def _kind(tp: str) -> ValueKind:
    """The kind of a column, given its MySQL type as text, such as `bigint unsigned`."""
    word = re.split(r"[( ]", tp, maxsplit=1)[0]
    if word in _NAMES:
        return ValueKind.NUMBER_OF_NAME
    return {"bigint": ValueKind.WIDE, "bit": ValueKind.BITS, "json": ValueKind.JSON}.get(word, ValueKind.PLAIN)


def _image(found: dict[str, Any], member: str) -> dict[str, Value] | None:
    rows = found.get(member)
    if not rows:
        return None
    if not isinstance(rows, list) or not isinstance(rows[0], dict):
        raise Malformed(f"`{member}` is not a list of one row")
    sql_types, mysql_types = _types(found, "sqlType"), _types(found, "mysqlType")
    return {
        name: _value(name, value, sql_types.get(name), str(mysql_types.get(name, "")))
        for name, value in rows[0].items()
    }


def _types(found: dict[str, Any], member: str) -> dict[str, Any]:
    types = found.get(member) or {}
    if not isinstance(types, dict):
        raise Malformed(f"`{member}` has no type for each column")
    return types


def _value(name: str, value: Any, sql_type: Any, mysql_type: str) -> Value:
    if value is None:
        return None
    if not isinstance(value, str):
        raise Malformed(f"column {name} has a value that is no text")
    try:
        if sql_type == _BYTES:
            return value.encode("latin-1")
        if _kind(mysql_type) in (ValueKind.NUMBER_OF_NAME, ValueKind.BITS, ValueKind.WIDE):
            return int(value)
    except ValueError as error:
        raise Malformed(f"column {name} has a value that is not of its type {mysql_type}") from error
    return value
