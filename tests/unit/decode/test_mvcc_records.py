"""Versioned keys and write records, by the vectors of docs/upstream-formats.md and against plain Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backup_files import descending, varint
from tistream.decode.mvcc import mvcc_kernel as k
from tistream.decode.mvcc.mvcc_records import versioned_keys, write_records
from tistream.schema.tidb.meta_key import encode_bytes

START = 400036290571534337


@pytest.mark.parametrize(
    ("record", "kind", "start_ts", "value", "source"),
    [
        (
            "508180a0a6b0dccdc605760770696e674341506c0000000000002537a7e805",
            k.PUT, START, b"pingCAP", 0,
        ),
        ("508180a0a6b0dccdc60553b74a", k.PUT, START, None, 9527),
        ("50c803760b73686f72745f76616c7565524600000000 0023cace", k.PUT, 456, b"short_value", 0),
        ("44808040", k.DELETE, 1 << 20, None, 0),
        ("52808080808020760170", k.ROLLBACK, 1 << 40, b"p", 0),
        ("52808080808040", k.ROLLBACK, 1 << 41, None, 0),
        ("4cc8036c000000000000000001", k.LOCK, 456, None, 0),
        ("50017600", k.PUT, 1, b"", 0),
        ("500176016178ffff", k.PUT, 1, b"a", 0),
    ],
)  # fmt: skip
def test_write_records(record: str, kind: int, start_ts: int, value: bytes | None, source: int) -> None:
    found = write_records(pa.array([bytes.fromhex(record)] * 2, pa.binary()))
    assert found.kind.tolist() == [kind] * 2
    assert found.start_ts.tolist() == [start_ts] * 2
    assert found.values().to_pylist() == [value] * 2
    assert found.has_value.tolist() == [value is not None] * 2
    assert found.txn_source.tolist() == [source] * 2


@pytest.mark.parametrize(
    "record", ["", "51", "50", "5080", "500176", "50017602 61", "5001460000", "50016c00", "500153", "5001538080"]
)
def test_malformed_write_records_are_named(record: str) -> None:
    with pytest.raises(ValueError, match=f"value {record.replace(' ', '')} is not a write record"):
        write_records(pa.array([b"\x50\x01", bytes.fromhex(record)], pa.binary()))


def test_the_key_of_the_fact_sheet() -> None:
    key = bytes.fromhex("7480000000000000ff685f728000000000ff0000010000000000fafa72c91cfb37fffe")
    found = versioned_keys(pa.array([key], pa.binary()))
    assert found.keys.to_pylist() == [bytes.fromhex("7480000000000000685f728000000000000001")]
    assert found.ts.tolist() == [START]


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"short",
        encode_bytes(b"abc"),
        encode_bytes(b"abc")[:-1] + descending(5),
        encode_bytes(b"abc") + b"x" + descending(5),
        b"abc\x01\x00\x00\x00\x00\xfa" + descending(5),
        b"abc\x00\x00\x00\x00\x00\x0a" + descending(5),
        b"abcdefgh\xff" + descending(5),
    ],
)
def test_malformed_keys_are_named(key: bytes) -> None:
    with pytest.raises(ValueError, match=f"key {key.hex()} is not a versioned key"):
        versioned_keys(pa.array([encode_bytes(b"good") + descending(1), key], pa.binary()))


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**63 - 1)), max_size=20),
    st.sampled_from([b"", b"z"]),
    st.booleans(),
)
def test_keys_come_back(rows: list[tuple[bytes, int]], prefix: bytes, large: bool) -> None:
    column = pa.array(
        [prefix + encode_bytes(key) + descending(ts) for key, ts in rows], pa.large_binary() if large else pa.binary()
    )
    found = versioned_keys(column, len(prefix))
    assert list(zip(found.keys.to_pylist(), found.ts.tolist(), strict=True)) == rows


@given(st.lists(st.tuples(st.sampled_from("PDLR"), st.integers(0, 2**63 - 1), st.none() | st.binary(max_size=255))))
def test_records_come_back(rows: list[tuple[str, int, bytes | None]]) -> None:
    column = [
        kind.encode() + varint(ts) + (b"" if value is None else b"v" + bytes((len(value),)) + value)
        for kind, ts, value in rows
    ]
    found = write_records(pa.array(column, pa.binary()))
    assert list(zip(map(chr, found.kind), found.start_ts.tolist(), found.values().to_pylist(), strict=True)) == rows


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_any_bytes_are_parsed_or_refused(rows: list[bytes]) -> None:
    for parse in (versioned_keys, write_records):
        try:
            parse(pa.array(rows, pa.binary()))
        except ValueError as error:
            assert "is not a" in str(error)  # noqa: PT017  # both outcomes are right
