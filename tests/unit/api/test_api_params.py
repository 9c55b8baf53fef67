"""Query parameters: everything that is not exactly right is a 400 that names it."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from support.query import parse
from tistream.errors import InvalidRequest
from tistream_api.request.queries import (
    AtQuery,
    AuditQuery,
    CoverageQuery,
    DdlQuery,
    LagQuery,
    PullQuery,
    TablePullQuery,
    UsageQuery,
)
from tistream_api.request.query_string import check, parameters

WRONG = {
    b"": "start_ts",
    b"start_ts=1&cursor=x": "start_ts",
    b"start_ts=": "start_ts",
    b"start_ts=-1": "start_ts",
    b"start_ts=%2B1": "start_ts",
    b"start_ts=+1": "start_ts",
    b"start_ts=1.0": "start_ts",
    b"start_ts=1e3": "start_ts",
    b"start_ts=0x10": "start_ts",
    b"start_ts=%D9%A1": "start_ts",
    b"start_ts=9223372036854775808": "start_ts",
    b"start_ts=" + b"9" * 5000: "start_ts",
    b"start_ts=1&start_ts=1": "start_ts",
    b"start_ts=5&end_ts=4": "end_ts",
    b"start_ts=5&end_ts=x": "end_ts",
    b"start_ts=5&limit=0": "limit",
    b"start_ts=5&limit=1000001": "limit",
    b"start_ts=5&limit=ten": "limit",
    b"start_ts=5&wait_ms=60001": "wait_ms",
    b"start_ts=5&wait_ms=-5": "wait_ms",
    b"start_ts=5&follow=yes": "follow",
    b"start_ts=5&follow=TRUE": "follow",
    b"start_ts=5&follow=true&limit=5": "limit",
    b"start_ts=5&follow=true&end_ts=5": "end_ts",
    b"start_ts=5&format=json": "format",
    b"start_ts=5&Limit=5": "Limit",
    b"start_ts=5&x=1": "x",
    b"start_ts=5&ts=1": "ts",
}


@pytest.mark.parametrize(("query", "parameter"), WRONG.items())
def test_wrong_pull_parameters_are_named(query: bytes, parameter: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse(PullQuery, query)
    assert error.value.extra["parameter"] == parameter
    assert parameter in str(error.value)


def test_right_pull_parameters() -> None:
    found = parse(PullQuery, b"start_ts=05&end_ts=9223372036854775807&limit=7&wait_ms=60000&follow=false&format=ndjson")
    assert (found.start_ts, found.cursor, found.end_ts) == (5, None, 2**63 - 1)
    assert (found.limit, found.wait_ms, found.follow) == (7, 60_000, False)
    default = parse(PullQuery, b"cursor=a%2Db")
    assert (default.cursor, default.limit, default.wait_ms, default.follow) == ("a-b", 10_000, 0, False)
    assert parse(PullQuery, b"start_ts=5&follow=true&wait_ms=5").follow
    assert parse(PullQuery, b"&start_ts=5&").start_ts == 5


MODELS = (AtQuery, AuditQuery, CoverageQuery, DdlQuery, LagQuery, PullQuery, TablePullQuery, UsageQuery)


@given(st.sampled_from(MODELS), st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(model: type[BaseModel], query: bytes) -> None:
    with suppress(InvalidRequest):
        parse(model, query)


@given(st.sampled_from(MODELS), st.data())
def test_any_value_of_a_known_parameter_is_parsed_or_refused(model: type[BaseModel], data: st.DataObject) -> None:
    given = data.draw(st.dictionaries(st.sampled_from(parameters(model)), st.text(max_size=50)))
    try:
        query = urlencode(given).encode()
    except UnicodeEncodeError:
        return
    with suppress(InvalidRequest):
        parse(model, query)


@pytest.mark.parametrize(
    ("model", "query", "detail"),
    [
        (PullQuery, b"start_ts=x", "start_ts 'x' is not a decimal number from 0 to 9223372036854775807"),
        (PullQuery, b"start_ts=1&limit=0", "limit 0 does not lie from 1 to 1000000"),
        (PullQuery, b"start_ts=", "start_ts is empty"),
        (PullQuery, b"cursor=", "cursor is empty"),
        (PullQuery, b"start_ts=1&format=", "format is empty"),
        (PullQuery, b"start_ts=1&start_ts=1", "start_ts is given more than once"),
        (PullQuery, b"start_ts=1&follow=on", "follow 'on' is neither true nor false"),
        (PullQuery, b"start_ts=1&format=json", "format is not one of ndjson, arrow, parquet"),
        (PullQuery, b"start_ts=1&events=row", "events is not one of all, rows, ddl"),
        (PullQuery, b"start_ts=5&end_ts=4", "end_ts 4 lies below start_ts 5: the range is empty"),
        (
            PullQuery,
            b"start_ts=5&follow=true&format=parquet",
            "format parquet is made of whole files, and follow=true is an endless stream: use ndjson or arrow",
        ),
        (AtQuery, b"at=1", "unknown parameter 'at'; this call takes ts"),
        (CoverageQuery, b"start_key=7", "start_key '7' is not hexadecimal: write two digits for each byte"),
        (CoverageQuery, b"start_key=" + b"7" * 32_770, "start_key has 16385 bytes, and a key has at most 16384"),
        (CoverageQuery, b"start_key=74&end_key=74", "end_key does not lie above start_key: the range is empty"),
        (LagQuery, b"minutes=61", "minutes 61 does not lie from 1 to 60"),
        (DdlQuery, b"before_ts=0", "before_ts 0 does not lie from 1 to 9223372036854775807"),
        (UsageQuery, b"from=yesterday", "from 'yesterday' is not a decimal number from 0 to 1000000000000000"),
        (UsageQuery, b"from_ms=1", "unknown parameter 'from_ms'; this call takes from, to"),
        (
            AuditQuery,
            b"cluster_id=7",
            "cluster_id and tenant_id are needed together: give the other one too, or neither",
        ),
        (AuditQuery, b"cluster_id=7&tenant_id=..", "tenant_id '..' is not of the form [A-Za-z0-9][A-Za-z0-9_-]{0,62}"),
        (AtQuery, b"ts=%ff", "the query is not UTF-8: percent-encode the UTF-8 bytes of names and values"),
        (AtQuery, "ts=\u00e9".encode(), "the query is not UTF-8: percent-encode the UTF-8 bytes of names and values"),
    ],
)
def test_details_name_the_parameter_and_a_right_value(model: type[BaseModel], query: bytes, detail: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse(model, query)
    assert str(error.value) == detail


def test_numbers_that_pydantic_would_read_are_refused() -> None:
    for text in (b"%205", b"5%20", b"1_000", b"%2B5", b"5.0", b"0x5", b"true", b"%D9%A5"):
        with pytest.raises(InvalidRequest, match="limit"):
            parse(PullQuery, b"start_ts=1&limit=" + text)


def test_queries_for_the_meta_server_hold_what_was_given() -> None:
    assert parse(AuditQuery, b"").text() == "limit=100"
    assert parse(AuditQuery, b"after=4&cluster_id=7&tenant_id=acme").text() == (
        "after=4&limit=100&cluster_id=7&tenant_id=acme"
    )
    assert parse(UsageQuery, b"").text() == ""
    assert parse(UsageQuery, b"to=9&from=07").text() == "from=7&to=9"


def test_lists_and_coverage() -> None:
    assert parse(AtQuery, b"").ts is None
    assert parse(AtQuery, b"ts=12").ts == 12
    for query, keys in (
        (b"", (b"", b"")),
        (b"start_key=7480&end_key=", (b"t\x80", b"")),
        (b"start_key=aB&end_key=Ac", (b"\xab", b"\xac")),
    ):
        asked = parse(CoverageQuery, query)
        assert (asked.start_key, asked.end_key) == keys
    for wrong in (b"start_key=7", b"start_key=zz", b"start_key=74&end_key=74", b"start_key=74&end_key=73", b"key=1"):
        with pytest.raises(InvalidRequest):
            parse(CoverageQuery, wrong)
    for wrong in (b"ts=x", b"ts=", b"ts=1&ts=2", b"start_ts=1"):
        with pytest.raises(InvalidRequest):
            parse(AtQuery, wrong)
    with pytest.raises(InvalidRequest):
        check(b"a=1", ())


def test_a_filter_is_parsed_by_the_endpoint_and_not_by_the_model_that_the_event_loop_makes() -> None:
    query = parse(PullQuery, b"start_ts=1&where=sleep(5)")
    with pytest.raises(InvalidRequest, match=r"where: .*is not supported") as refused:
        query.parsed()
    assert refused.value.extra == {"parameter": "where"}
