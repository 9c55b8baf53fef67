"""The comparison finds what it is for: each way of being wrong, made by hand, is told."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator

import pytest

from support import compare, golden
from support.compare import ACTIONS, Event, expected_changes, expected_ddl
from support.golden import GoldenSet


def ideal(loaded: GoldenSet) -> list[Event]:
    """Events made from the expectation itself: every removed row a delete, every added one a put."""
    return sorted(
        [*_rows(loaded), *_ddl(loaded)],
        key=lambda e: (int(e["commit_ts"]), e["type"] == "ddl", e.get("op", ""), e.get("table_id", "")),
    )


def _rows(loaded: GoldenSet) -> Iterator[Event]:
    shapes = loaded.expected("columns")
    number = 0
    for commit in loaded.expected("rows"):
        for table in commit["tables"]:
            names = [column["name"] for column in shapes[table["columns"]]["columns"]]
            types = [column["type"] for column in shapes[table["columns"]]["columns"]]
            for op, rows in (("delete", table["removed"]), ("put", table["added"])):
                for row in rows:
                    number += 1
                    shown = {name: _json(sql, text) for name, sql, text in zip(names, types, row, strict=True)}
                    yield {
                        "type": "row",
                        "op": op,
                        "commit_ts": commit["commit_ts"],
                        "start_ts": commit["start_ts"],
                        "database": table["database"],
                        "table": table["table"],
                        "table_id": table["database"] + table["table"],
                        "schema_version": "1",
                        "key": {"_tidb_rowid": str(number)},
                        "row": shown if op == "put" else None,
                        "old_row": shown if op == "delete" else None,
                    }


def _json(sql: str, text: object) -> object:
    kind = sql.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    if text is None or isinstance(text, dict):
        if kind == "bit" and isinstance(text, dict):
            return str(compare.from_text(sql, text))
        return None if text is None else text["b64"]
    assert isinstance(text, str)
    if kind in ("tinyint", "smallint", "mediumint", "int", "year"):
        return int(text)
    if kind in ("float", "double"):
        return float(text)
    return json.loads(text) if kind in ("json", "vector") else text


def _ddl(loaded: GoldenSet) -> Iterator[Event]:
    jobs = {job["job_id"]: job for job in loaded.expected("ddl")}
    for position in expected_ddl(loaded):
        job = jobs[position.job_id]
        name = {"database": job["database"], "table": job["table"]}
        yield {
            "type": "ddl",
            "commit_ts": str(position.commit_ts),
            **name,
            "query": position.query,
            "action": ACTIONS[position.action_type],
            "schema_version": str(position.schema_version),
            "involved": [name],
        }


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return ideal(golden.load("large"))


def test_the_expectation_itself_has_no_differences(events: list[Event]) -> None:
    assert compare.tenant_differences(golden.load("large"), events) == []


def test_the_values_of_every_type_have_no_differences() -> None:
    loaded = golden.load("everything")
    rows = [event for event in ideal(loaded) if event["type"] == "row"]
    assert compare.row_differences(loaded, rows) == []
    assert len(expected_changes(loaded)) > 1_000


def _row(events: list[Event], op: str = "put") -> int:
    return next(at for at, event in enumerate(events) if event.get("op") == op)


def _drop(events: list[Event]) -> None:
    del events[_row(events)]


def _twice(events: list[Event]) -> None:
    at = _row(events)
    events.insert(at, events[at])


def _value(events: list[Event]) -> None:
    events[_row(events)]["row"]["id"] += 1


def _text_for_number(events: list[Event]) -> None:
    row = events[_row(events)]["row"]
    row["id"] = str(row["id"])


def _column_order(events: list[Event]) -> None:
    event = events[_row(events)]
    event["row"] = dict(reversed(event["row"].items()))


def _column_missing(events: list[Event]) -> None:
    del events[_row(events)]["row"]["id"]


def _old_row(events: list[Event]) -> None:
    events[_row(events, "delete")]["old_row"]["id"] += 1


def _late(events: list[Event]) -> None:
    events.append(events.pop(_row(events)))


def _table(events: list[Event]) -> None:
    events[_row(events)]["table"] = "elsewhere"


def _start_ts(events: list[Event]) -> None:
    for event in events:
        if event["commit_ts"] == events[_row(events)]["commit_ts"] and event["type"] == "row":
            event["start_ts"] = "1"


def _no_ddl(events: list[Event]) -> None:
    del events[next(at for at, event in enumerate(events) if event["type"] == "ddl")]


def _ddl_at(events: list[Event]) -> None:
    ddl = next(event for event in events if event["type"] == "ddl")
    ddl["commit_ts"] = str(int(ddl["commit_ts"]) + 1)


def _resolved_too_high(events: list[Event]) -> None:
    at = _row(events)
    events.insert(at, {"type": "resolved", "resolved_ts": events[at]["commit_ts"], "cursor": "c"})


def _put_before_delete(events: list[Event]) -> None:
    at = _row(events, "delete")
    put = copy.deepcopy(events[at])
    put.update(op="put", row=put["old_row"], old_row=None)
    events.insert(at, put)


def own(event: Event) -> Event:
    """A copy that may be spoiled."""
    return {name: dict(value) if isinstance(value, dict) else value for name, value in event.items()}


SPOILED: list[Callable[[list[Event]], None]] = [
    *(_drop, _twice, _value, _text_for_number, _column_order, _column_missing, _old_row, _late, _table, _start_ts),
    *(_no_ddl, _ddl_at, _resolved_too_high, _put_before_delete),
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_each_way_of_being_wrong_is_told(events: list[Event], spoil: Callable[[list[Event]], None]) -> None:
    spoiled = [own(event) for event in events]
    spoil(spoiled)
    assert compare.tenant_differences(golden.load("large"), spoiled)
