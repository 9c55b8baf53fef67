"""Query parameters: everything that is not exactly right is a 400 that names it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.errors import InvalidRequest
from tistream_api.request.params import parse_coverage, parse_list, parse_none, parse_pull

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
        parse_pull(query)
    assert error.value.extra["parameter"] == parameter
    assert parameter in str(error.value)


def test_right_pull_parameters() -> None:
    found = parse_pull(b"start_ts=05&end_ts=9223372036854775807&limit=7&wait_ms=60000&follow=false&format=ndjson")
    assert (found.start_ts, found.cursor, found.end_ts) == (5, None, 2**63 - 1)
    assert (found.limit, found.wait_ms, found.follow) == (7, 60_000, False)
    default = parse_pull(b"cursor=a%2Db")
    assert (default.cursor, default.limit, default.wait_ms, default.follow) == ("a-b", 10_000, 0, False)
    assert parse_pull(b"start_ts=5&follow=true&wait_ms=5").follow
    assert parse_pull(b"&start_ts=5&").start_ts == 5


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(query: bytes) -> None:
    for parse in (parse_pull, parse_list, parse_coverage, parse_none):
        try:
            parse(query)
        except InvalidRequest:
            continue


def test_lists_and_coverage() -> None:
    assert parse_list(b"") is None
    assert parse_list(b"ts=12") == 12
    assert parse_coverage(b"") == (b"", b"")
    assert parse_coverage(b"start_key=7480&end_key=") == (b"t\x80", b"")
    assert parse_coverage(b"start_key=aB&end_key=Ac") == (b"\xab", b"\xac")
    for wrong in (b"start_key=7", b"start_key=zz", b"start_key=74&end_key=74", b"start_key=74&end_key=73", b"key=1"):
        with pytest.raises(InvalidRequest):
            parse_coverage(wrong)
    for wrong in (b"ts=x", b"ts=", b"ts=1&ts=2", b"start_ts=1"):
        with pytest.raises(InvalidRequest):
            parse_list(wrong)
    with pytest.raises(InvalidRequest):
        parse_none(b"a=1")
