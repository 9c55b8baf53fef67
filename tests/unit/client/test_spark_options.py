"""Options, types and columns of the Spark data source, without Spark and without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tistream_client import SchemaChanged, WrongArgument, to_ts
from tistream_client.core.lists import ColumnInfo, TableShape
from tistream_client.spark import direct
from tistream_client.spark.column_types import types_of
from tistream_client.spark.conversion import converted, matched
from tistream_client.spark.options import check_batch, check_stream, parsed

NOW = datetime(2026, 11, 20, 14, 3, tzinfo=UTC)
BASE = {"url": "http://127.0.0.1:8000", "cluster": "7", "tenant": "acme", "table": "shop.orders"}


def of(**options: str) -> dict[str, str]:
    return {**BASE, **options}


def test_names_of_options_are_of_any_case_and_times_of_any_form() -> None:
    found = parsed(of(STARTINGTS="2h", endingts="2026-11-20T13:00:00Z", maxBatchSpan="10m"), lambda: NOW)
    assert found.starting == to_ts(NOW - timedelta(hours=2))
    assert found.ending == to_ts(NOW - timedelta(minutes=63))
    assert found.span == 600_000 << 18
    assert parsed(of(startingTs="earliest"), lambda: NOW).starting is None
    ways = [parsed(of(**given), lambda: NOW).direct for given in ({}, {"direct": "False"}, {"direct": "true"})]
    assert ways == [False, False, True]
    filtered = parsed(of(direct="true", where="id > 1", operations="insert,delete"), lambda: NOW)
    assert (filtered.direct, filtered.where, filtered.operations) == (True, "id > 1", ("insert", "delete"))
    assert parsed(of(asOf="now", fromKey='{"id": 1}'), lambda: NOW).keys == ({"id": 1}, None)


WRONG = [
    ({"url": ""}, "url is empty"),
    ({"table": "orders"}, r'table is .* right: \.option\("table", "shop.orders"\)'),
    ({"tabel": "shop.orders"}, r'tabel is no option; .* right: \.option\("table"'),
    ({"starting": "1h"}, r'starting is no option; .* right: \.option\("startingTs"'),
    ({"startingTs": "yesterday"}, r"startingTs 'yesterday' is no time; right: \.option"),
    ({"startingTs": "1700000000"}, "startingTs .* looks like a Unix time"),
    ({"startingTs": "1h", "endingTs": "2h"}, "endingTs .* lies before startingTs"),
    ({"snapshot": "1h", "endingTs": "2h"}, "endingTs .* lies before snapshot"),
    ({"snapshot": "now", "startingTs": "now"}, "startingTs is given beside snapshot"),
    ({"asOf": "now", "endingTs": "now"}, "endingTs is given beside asOf"),
    ({"fromKey": '{"id": 1}'}, "fromKey is of the table as of one ts"),
    ({"asOf": "now", "toKey": "7"}, r"toKey is .* right: \.option\(\"toKey\", '\{\"id\": 20\}'\)"),
    ({"columns": "id,,total"}, "columns is .* empty name"),
    ({"operations": "insert,put"}, "operations is .* insert, update, delete"),
    ({"asOf": "now", "operations": "insert"}, "operations is given beside asOf"),
    ({"direct": "yes"}, r'direct is .* true or false; right: \.option\("direct", "true"\)'),
    ({"direct": "TRUE", "asOf": "now"}, r'asOf is given beside direct.* leave \.option\("asOf"'),
    ({"zeroDates": "maybe"}, "zeroDates is .* error, null, text"),
    ({"partitions": "0"}, "partitions is .* from 1 to"),
    ({"pageSize": "many"}, "pageSize is"),
    ({"maxBatchSpan": "now"}, "maxBatchSpan is .* no duration"),
    ({"maxBatchSpan": "2026-01-01T00:00:00Z"}, "maxBatchSpan is .* no duration"),
    ({"retryFor": "-1"}, "retryFor is"),
    ({"path": "shop.orders"}, r"load was called with .* right: \.option"),
    ({"availableNow": "true"}, r"availableNow is a trigger; right: writeStream\.trigger\(availableNow=True\)"),
    ({"cluster": "-"}, "cluster is"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_a_wrong_option_is_named_beside_a_right_one(options: dict[str, str], text: str) -> None:
    with pytest.raises(WrongArgument, match=text):
        parsed(of(**options), lambda: NOW)


def test_what_is_missing_and_what_is_of_the_other_kind_of_read() -> None:
    for name in BASE:
        with pytest.raises(WrongArgument, match=f"{name} is missing; right"):
            parsed({key: value for key, value in BASE.items() if key != name}, lambda: NOW)
    with pytest.raises(WrongArgument, match=r"maxBatchSpan is of spark\.readStream"):
        check_batch(of(maxBatchSpan="1h"))
    with pytest.raises(WrongArgument, match=r"asOf is of spark\.read;"):
        check_stream(of(asOf="now"))


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(parsed(of(token="secret"), lambda: NOW))


@pytest.mark.parametrize(
    ("sql_type", "spark"),
    [
        ("tinyint(1)", "bigint"),
        ("int unsigned", "bigint"),
        ("bigint", "bigint"),
        ("bigint unsigned", "decimal(20,0)"),
        ("year(4)", "bigint"),
        ("bit(63)", "bigint"),
        ("bit(64)", "decimal(20,0)"),
        ("float", "float"),
        ("double(8,2) unsigned", "double"),
        ("decimal(38,30)", "decimal(38,30)"),
        ("decimal(39,2)", "string"),
        ("date", "date"),
        ("datetime(6)", "timestamp_ntz"),
        ("timestamp", "timestamp"),
        ("time(3)", "string"),
        ("varbinary(3)", "binary"),
        ("longblob", "binary"),
        ("longtext", "string"),
        ("enum('date','int')", "string"),
        ("json", "string"),
        ("vector(3)", "string"),
    ],
)
def test_types(sql_type: str, spark: str) -> None:
    assert types_of(sql_type, "error")[0].simpleString() == spark
    if spark in ("date", "timestamp", "timestamp_ntz"):
        assert types_of(sql_type, "text")[0].simpleString() == "string"


def shape(*columns: tuple[int, str]) -> TableShape:
    return TableShape(1, 1, "table", 1, tuple(ColumnInfo(id_, name, "int", key=False) for id_, name in columns))


def test_columns_are_matched_by_id_and_else_by_name() -> None:
    now, then = shape((1, "b"), (3, "a"), (4, "c"), (5, "new")), shape((1, "a"), (2, "c"))
    assert matched(now.columns, then, same_table=True) == {"b": "a", "a": None, "c": "c", "new": None}
    assert matched(now.columns, then, same_table=False) == {"b": None, "a": "a", "c": "c", "new": None}


def test_a_date_that_spark_does_not_have_and_a_value_that_does_not_fit() -> None:
    dates = pa.array(["2026-01-01", "0000-00-00", "2026-00-01", None], pa.large_string())
    assert converted("d", dates, pa.date32(), "null").is_null().to_pylist() == [False, True, True, True]
    with pytest.raises(WrongArgument, match=r"zeroDates is .error., and column 'd' has a date .* \"text\""):
        converted("d", dates, pa.date32(), "error")
    with pytest.raises(SchemaChanged, match="a value of column 'n' does not fit decimal128"):
        converted("n", pa.array(["12.345"], pa.large_string()), pa.decimal128(4, 2), "error")


def test_direct_needs_the_platforms_package(monkeypatch: pytest.MonkeyPatch) -> None:
    direct.check_decoder()
    monkeypatch.setattr(direct, "find_spec", lambda name: None)  # what an executor with tistream-client alone sees
    with pytest.raises(
        WrongArgument, match=r"package `tistream`, .* every executor; right: .option.\"direct\", \"false\""
    ):
        direct.check_decoder()
