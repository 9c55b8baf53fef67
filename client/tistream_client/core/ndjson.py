"""Reads complete NDJSON answers: events of a pull, rows of a table."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tistream_client.core.asking import CutOff
from tistream_client.core.events import DdlEvent, Event, Page, RawEvent, RawPage, Row, RowEvent, Transaction
from tistream_client.core.steps import Answer

Line = Mapping[str, Any]
_MARKS = ("snapshot_begin", "snapshot_end")  # lines of a snapshot that are no events


def page_of(answer: Answer, after: str | None, columns: tuple[str, ...] | None) -> Page:
    """Parse a page of a pull, which begins at the cursor `after`. With `columns`, `row` and `old_row` have only these,
    in this order. Raises CutOff if the answer is not complete."""
    lines, cursor, resolved_ts = _pulled(answer)
    return Page(cursor, resolved_ts, after, [_event(line, columns) for line in lines if line["type"] not in _MARKS])


def raw_page_of(answer: Answer, after: str | None, _: object) -> RawPage:
    """Parse a page of a pull of RawKV, which begins at the cursor `after`. Raises CutOff if the answer is not
    complete."""
    lines, cursor, resolved_ts = _pulled(answer)
    return RawPage(cursor, resolved_ts, after, list(map(_raw_event, lines)))


def _pulled(answer: Answer) -> tuple[list[Line], str, int | None]:
    """Parse a pull's page: (its lines, its cursor, its resolved_ts). The resolved_ts is None if the end of the page
    states none. Raises CutOff."""
    *lines, end = _lines(answer)
    if end.get("type") not in ("resolved", "continue"):
        raise CutOff
    return lines, str(end["cursor"]), _number(end.get("resolved_ts"))


def diff_of(answer: Answer) -> tuple[list[RowEvent], str | None]:
    """Parse a page of a diff: (its events, the cursor of the next page or None). Raises CutOff."""
    *lines, end = _ended(answer)
    return [_row_event(line, None) for line in lines], end["cursor"]


def transaction_of(answer: Answer) -> Transaction:
    """Parse the answer of a read of one transaction. Raises CutOff."""
    *lines, end = _ended(answer)
    return Transaction(int(end["start_ts"]), int(end["commit_ts"]), [_row_event(line, None) for line in lines])


def _ended(answer: Answer) -> list[Line]:
    lines = _lines(answer)
    if lines[-1].get("type") != "end":
        raise CutOff
    return lines


def rows_of(answer: Answer) -> tuple[list[Row], int, str | None]:
    """Parse a page of a table: (its rows, their ts, the cursor of the next page or None). Raises CutOff."""
    *lines, end = _lines(answer)
    if end.get("type") != "end":
        raise CutOff
    rows = [Row(line["key"], line["row"], _number(line["commit_ts"]), int(line["schema_version"])) for line in lines]
    return rows, int(end["ts"]), end["cursor"]


def _lines(answer: Answer) -> list[Line]:
    """The parsed lines of an answer, at least one. Raises CutOff if the answer does not end with a line end, or if a
    line is not JSON."""
    if not answer.body.endswith(b"\n"):
        raise CutOff
    try:
        return [json.loads(line) for line in answer.body.splitlines()]
    except ValueError as error:
        raise CutOff from error


def _event(line: Line, columns: tuple[str, ...] | None) -> Event:
    if line["type"] == "ddl":
        return DdlEvent(
            commit_ts=int(line["commit_ts"]),
            database=line["database"],
            table=line["table"],
            query=line["query"],
            action=line["action"],
            schema_version=int(line["schema_version"]),
            involved=tuple((one["database"], one["table"]) for one in line["involved"]),
        )
    return _row_event(line, columns)


def _row_event(line: Line, columns: tuple[str, ...] | None) -> RowEvent:
    return RowEvent(
        op=line["op"],
        commit_ts=int(line["commit_ts"] or 0),
        start_ts=int(line.get("start_ts") or 0),
        database=line["database"],
        table=line["table"],
        table_id=int(line["table_id"]),
        schema_version=int(line["schema_version"]),
        key=line["key"],
        row=_chosen(line["row"], columns),
        old_row=_chosen(line["old_row"], columns),
    )


def _raw_event(line: Line) -> RawEvent:
    value, expire_at = line["value"], line["expire_at"]
    return RawEvent(
        op=line["op"],
        commit_ts=int(line["commit_ts"]),
        keyspace=int(line["keyspace"]),
        key=b64decode(line["key"]),
        value=None if value is None else b64decode(value),
        expire_at=None if expire_at is None else datetime.fromisoformat(expire_at.replace("Z", "+00:00")),
    )


def _chosen(row: Line | None, columns: tuple[str, ...] | None) -> Line | None:
    if row is None or columns is None:
        return row
    return {column: row[column] for column in columns if column in row}


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)
