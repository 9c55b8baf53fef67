"""The body of an undo: nothing is guessed, and each error names the member."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tistream.errors import InvalidRequest
from tistream.restore.table_names import TableNames
from tistream.schema.tidb.create_table import Dialect
from tistream_api.request.undo_body import TRANSACTIONS_MAX, UndoRequest, undo_request

TS = "470597720332304384"


def ask(**members: Any) -> UndoRequest:
    return undo_request(json.dumps(members).encode())


def test_a_plan_of_transactions() -> None:
    found = ask(start_ts=["7", TS, "7"])
    assert found == UndoRequest((7, int(TS)), None, (TableNames(),), None, None)


def test_the_statements_of_a_window_of_some_tables() -> None:
    found = ask(window={"from": TS}, tables=["shop.*", "shop.orders"], mode="sql", dialect="mariadb", into_database="x")
    assert found == UndoRequest((), (int(TS), "now"), (TableNames("shop"),), Dialect.MARIADB, "x")
    assert ask(start_ts=[TS], mode="sql", dialect=None).dialect is Dialect.TIDB


def test_rows_are_chosen_by_values_of_columns() -> None:
    assert ask(start_ts=[TS], where={"id": "1", "note": None}).where == {"id": "1", "note": None}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"start_ts": [TS], "where": {}}, "where"),
        ({"start_ts": [TS], "where": {"id": [1]}}, "where"),
        ({"start_ts": [TS], "where": {"id": {"gt": 1}}}, "where"),
        ({"start_ts": [TS], "where": "id = 1"}, "where"),
        ({"start_ts": [TS], "where": {str(one): 1 for one in range(17)}}, "where"),
        ({}, "start_ts or window"),
        ({"start_ts": [TS], "window": {"from": TS}}, "start_ts or window"),
        ({"start_ts": []}, "start_ts"),
        ({"start_ts": [5]}, "start_ts"),
        ({"start_ts": TS}, "start_ts"),
        ({"start_ts": ["-1"]}, "start_ts"),
        ({"start_ts": ["9" * 30]}, "start_ts"),
        ({"start_ts": [TS] * (TRANSACTIONS_MAX + 1)}, "start_ts"),
        ({"window": {"to": TS}}, "window.from"),
        ({"window": {"from": TS, "to": "5"}}, "window.to"),
        ({"window": {"from": "yesterday"}}, "window.from"),
        ({"start_ts": [TS], "tables": ["mysql.user"]}, "system schema"),
        ({"start_ts": [TS], "tables": ["a.b.c"]}, "tables"),
        ({"start_ts": [TS], "tables": []}, "tables"),
        ({"start_ts": [TS], "mode": "apply"}, "mode"),
        ({"start_ts": [TS], "dialect": "mariadb"}, "mode sql"),
        ({"start_ts": [TS], "mode": "sql", "dialect": "oracle"}, "dialect"),
        ({"start_ts": [TS], "mode": "sql", "into_database": ""}, "into_database"),
        ({"start_ts": [TS], "mode": "sql", "into_database": "a\0b"}, "into_database"),
        ({"start_ts": [TS], "where": {"id": True}}, "where.id: a value is a string, a number or null"),
    ],
)
def test_bad_bodies_are_refused(members: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        ask(**members)
