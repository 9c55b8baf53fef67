"""The reader of protobuf's wire format: what it reads, and that no input makes it read beyond the data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backup_files import nested, number, text, varint
from tistream.format.backfill.protobuf_wire import read_message


def test_fields_come_back_in_order() -> None:
    data = number(1, 300) + text(2, "one") + nested(3, b"\x08\x01") + text(2, "two") + b"\x25\x01\x00\x00\x00"
    found = read_message(data, {1, 2, 3, 4})
    assert found.uint(1) == 300
    assert [bytes(one) for one in found.all(2)] == [b"one", b"two"]
    assert found.text(2) == "two"
    assert read_message(found.all(3)[0], {1}).uint(1) == 1
    assert found.uint(4) == 1
    assert (found.uint(9), found.bytes(9), found.all(9)) == (0, b"", [])


def test_unwanted_fields_are_left_out() -> None:
    assert read_message(number(1, 5) + text(2, "x") + b"\x19" + bytes(8), {1}).values == {1: [5]}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x12\x05ab", "states 5 bytes, but only 2 follow"),
        (b"\x12" + varint(1 << 62), "states 4611686018427387904 bytes"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (b"\x08\x80", "cut short"),
        (b"\x0b", "wire type 3"),
        (b"\x0e", "wire type 6"),
        (b"\x0d\x01", "cut short"),
        (b"\x00\x01", "number 0"),
    ],
)
def test_malformed_input_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_message(data, {1, 2})


def test_the_number_of_fields_is_bounded() -> None:
    with pytest.raises(ValueError, match="more than 3 fields"):
        read_message(number(1, 1) * 4, {1}, fields_max=3)


def test_a_field_of_the_wrong_type_is_refused() -> None:
    found = read_message(number(1, 5) + text(2, "x"), {1, 2})
    with pytest.raises(ValueError, match="field 1 holds a number"):
        found.all(1)
    with pytest.raises(ValueError, match="field 2 holds 1 bytes"):
        found.uint(2)


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        found = read_message(data, range(1, 1 << 10))
    except ValueError:
        return
    assert sum(len(values) for values in found.values.values()) <= len(data)
