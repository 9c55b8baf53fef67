"""Binary JSON to text (upstream-formats 4.4, 7): every kind of value, and documents that lie."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.row_bytes import column, record_key, row_v2, table, uvarint
from tistream.decode.rows import decode_rows
from tistream.schema.tidb import table as t


class Opaque(bytes):
    """A value of MySQL type 253."""


def encode(value: Any) -> bytes:
    """Type byte and binary value."""
    if value is None or isinstance(value, bool):
        return bytes([4, 0 if value is None else 2 - value])
    if isinstance(value, int):
        kind, form = (9, "<q") if value < 1 << 63 else (10, "<Q")
        return bytes([kind]) + struct.pack(form, value)
    if isinstance(value, float):
        return b"\x0b" + struct.pack("<d", value)
    if isinstance(value, str):
        return b"\x0c" + uvarint(len(value.encode())) + value.encode()
    if isinstance(value, Opaque):
        return b"\x0d\xfd" + uvarint(len(value)) + value
    return _container(value)


def _container(value: Any) -> bytes:
    names = sorted(name.encode() for name in value) if isinstance(value, dict) else []
    members = [value[name.decode()] for name in names] if isinstance(value, dict) else value
    at = 8 + 6 * len(names) + 5 * len(members)
    entries = b""
    for name in names:
        entries += struct.pack("<IH", at, len(name))
        at += len(name)
    body = b"".join(names)
    for member in members:
        raw = encode(member)
        if raw[0] == 4:
            entries += bytes([4, raw[1], 0, 0, 0])
            continue
        entries += bytes([raw[0]]) + struct.pack("<I", at)
        body += raw[1:]
        at += len(raw) - 1
    kind = 1 if isinstance(value, dict) else 3
    return bytes([kind]) + struct.pack("<II", len(members), at) + entries + body


def decode(*documents: bytes) -> tuple[list[str | None], dict[int, str]]:
    of = column(t.JSON)
    keys = pa.array([record_key(1, 1)] * len(documents), pa.binary())
    decoded = decode_rows(table(of), [of], keys, pa.array([row_v2({1: raw}) for raw in documents], pa.binary()))
    return decoded.batch.column(0).to_pylist(), decoded.errors


def text(document: bytes) -> str:
    (out,), errors = decode(document)
    assert errors == {}
    assert out is not None
    return out


def core_time(*parts: int) -> bytes:
    year, month, day, hour, minute, second, micro = parts
    bits = year << 50 | month << 46 | day << 41 | hour << 36 | minute << 30 | second << 24 | micro << 4
    return struct.pack("<Q", bits)


def test_the_published_document() -> None:
    raw = bytes.fromhex("01010000001c0000001300000003000c160000006b65790576616c7565")
    assert raw == encode({"key": "value"})
    assert text(raw) == '{"key":"value"}'


def test_the_published_opaque_values() -> None:
    assert text(bytes.fromhex("0de90139")) == '"base64:type233:OQ=="'
    assert text(bytes.fromhex("0de98001") + bytes(128)) == f'"base64:type233:{base64.b64encode(bytes(128)).decode()}"'
    assert text(encode(Opaque(b""))) == '"base64:type253:"'


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (None, "null"), (True, "true"), (False, "false"), (0, "0"), (-(1 << 63), "-9223372036854775808"),
        ((1 << 64) - 1, "18446744073709551615"), (1.0, "1.0"), (-0.0, "-0.0"), (1e15, "1e15"), (1e-16, "1e-16"),
        (100.0, "100.0"), (999999999999999.0, "999999999999999.0"), (2.5, "2.5"), (float("inf"), "null"), ("", '""'),
        ('q"\\\x01\n<&>', '"q\\"\\\\\\u0001\\n<&>"'), ([], "[]"), ({}, "{}"), ([[], [{}], None], "[[],[{}],null]"),
        ({"": "", "a": [1, 2.5, True], "b": {"c": {}}}, '{"":"","a":[1,2.5,true],"b":{"c":{}}}'),
    ],
)  # fmt: skip
def test_values(value: Any, printed: str) -> None:
    assert text(encode(value)) == printed


def test_dates_and_times_print_as_tidb_does() -> None:
    whole = (2024, 1, 2, 3, 4, 5, 600_000)
    assert text(b"\x0e" + core_time(*whole)) == '"2024-01-02"'
    assert text(b"\x0f" + core_time(*whole)) == '"2024-01-02 03:04:05.600000"'
    assert text(b"\x10" + core_time(*whole)) == '"2024-01-02 03:04:05.600000"'
    assert text(b"\x0f" + bytes(8)) == '"0000-00-00 00:00:00.000000"'
    assert text(b"\x11" + struct.pack("<qI", -36_672_000_000_000, 0)) == '"-10:11:12.000000"'


scalars = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False)
)  # fmt: skip
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)


def kinds(value: Any) -> Any:
    """Tell 1 from 1.0 and from true."""
    if isinstance(value, dict):
        return {name: kinds(member) for name, member in value.items()}
    return [kinds(member) for member in value] if isinstance(value, list) else (type(value), value)


@given(documents)
def test_any_document(value: Any) -> None:
    assert kinds(json.loads(text(encode(value)))) == kinds(value)


@given(documents, st.data())
def test_a_damaged_document_is_an_error_or_still_json(value: Any, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    texts, errors = decode(bytes(raw), cut, encode("after"))
    assert texts[2] == '"after"'
    for row in (0, 1):
        if row not in errors:
            json.loads(texts[row] or "")


def test_a_document_deeper_than_tidb_allows() -> None:
    value: Any = []
    for _ in range(99):
        value = [value]
    assert text(encode(value)) == "[" * 100 + "]" * 100
    assert decode(encode([value]))[1] == {0: "column c: not a binary JSON document"}


def test_a_document_that_points_at_one_string_again_and_again() -> None:
    """10,000 entries of one string of 60 KB would print 600 MB."""
    count, string = 10_000, b"\x0c"
    at = 8 + 5 * count
    body = uvarint(60_000) + b"x" * 60_000
    bomb = b"\x03" + struct.pack("<II", count, at + len(body)) + (string + struct.pack("<I", at)) * count + body
    assert decode(bomb)[1] == {0: "column c: not a binary JSON document"}


def test_a_document_that_contains_itself() -> None:
    assert decode(b"\x03" + struct.pack("<II", 1, 13) + b"\x03" + bytes(4))[1] != {}
    twice = b"\x03" + struct.pack("<II", 2, 18) + (b"\x03" + bytes(4)) * 2
    assert decode(twice)[1] != {}


@pytest.mark.parametrize(
    "raw", ["", "04", "0403", "05" + "00" * 8, "09" + "00" * 7, "0c05", "0c0561", "0d", "0dfd", "11" + "00" * 8, "01"]
)
def test_what_is_no_document(raw: str) -> None:
    assert decode(bytes.fromhex(raw))[1] == {0: "column c: not a binary JSON document"}


def test_text_that_is_no_utf8_inside_is_replaced() -> None:
    assert text(b"\x0c\x02a\xff") == '"a\ufffd"'
