import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.schema.tidb.row_cell import read_bytes_cell

SMALL = bytes.fromhex(
    "80000b0001000103060708090c0d0e0f1021"
    "02000300 0b000e0010001800190021002400 4100 4500"
    "e80303 4003333333333333 616263 ff7f bffccccccccccccd 02 0000008733e69e19 010081"
    "0101000000 1c00000013000000 03000c16000000 6b657905 76616c7565 00ca9a3b".replace(" ", "")
)
LARGE = bytes.fromhex(
    "8001040001000100000003000000080000000c0000004f0100000200000003000000050000000600 0000e80303ff7f02"
)


def test_v2_small_vector() -> None:
    assert read_bytes_cell(SMALL, 7) == b"abc"
    assert read_bytes_cell(SMALL, 1) == b"\xe8\x03"
    assert read_bytes_cell(SMALL, 33) is None  # NULL
    assert read_bytes_cell(SMALL, 99) is None  # absent


def test_v2_large_vector() -> None:
    assert read_bytes_cell(LARGE, 8) == b"\xff\x7f"
    assert read_bytes_cell(LARGE, 335) is None


def test_v1() -> None:
    old_row = bytes.fromhex("080208020804080408060806080800")
    assert read_bytes_cell(old_row, 4) is None
    assert read_bytes_cell(old_row, 5) is None
    assert read_bytes_cell(b"\x00", 1) is None
    text = b"\x08\x02\x08\x02" + b"\x08\x0a\x02\x0ahello"
    assert read_bytes_cell(text, 5) == b"hello"
    with pytest.raises(ValueError, match="holds no bytes"):
        read_bytes_cell(old_row, 1)


@pytest.mark.parametrize(
    "value", [b"", b"\x80", b"\x80\x00\xff\xff\x00\x00", b"\x08\x02", b"\x08\x02\x02\x7fx", b"\x05", b"\x08\x02\xfa"]
)
def test_damage_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_bytes_cell(value, 5)


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x80\x00", b"\x80\x01", b"\x08\x0a"]))
def test_hostile_rows_never_read_out_of_bounds(tail: bytes, head: bytes) -> None:
    try:
        cell = read_bytes_cell(head + tail, 5)
    except ValueError:
        return
    assert cell is None or cell in head + tail
