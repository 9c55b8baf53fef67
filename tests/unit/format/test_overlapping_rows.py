"""How much a file's watermark rows may overlap each other: more than those of any store, less than holds others up."""
# Attack: files whose watermark rows overlap more than those of any store

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.change_files import table
from support.small_files import watermark
from tistream.errors import CorruptObject
from tistream.format import change_rows
from tistream.format.change_file import WATERMARK_COLUMNS

KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"d"])


def key(number: int) -> bytes:
    return b"k%08d" % number


def checked(*spans: tuple[bytes, bytes]) -> int:
    """How many rows of these spans come out."""
    one = table([watermark()]).select(WATERMARK_COLUMNS)
    rows = one.take(pa.array([0] * len(spans), pa.int32()))
    for name, values in (("key", [start for start, _ in spans]), ("end_key", [end for _, end in spans])):
        at = rows.column_names.index(name)
        rows = rows.set_column(at, rows.schema.field(name), pa.chunked_array([pa.array(values, pa.binary())]))
    return change_rows.watermarks("the-key", rows).num_rows


@given(spans=st.lists(st.tuples(KEYS, KEYS).filter(lambda span: not span[1] or span[0] < span[1]), max_size=12))
def test_pairs_that_overlap_are_counted(spans: list[tuple[bytes, bytes]]) -> None:
    def overlap(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> bool:
        return (not other[1] or one[0] < other[1]) and (not one[1] or other[0] < one[1])

    expected = sum(overlap(one, other) for at, one in enumerate(spans) for other in spans[:at])
    columns = [pa.chunked_array([pa.array([span[at] for span in spans], pa.binary())]) for at in (0, 1)]
    assert change_rows.overlaps(*columns) == expected


def test_what_no_store_has_is_damaged() -> None:
    """20,000 rows that all reach to the last key: each overlaps all others."""
    with pytest.raises(CorruptObject, match="its 20000 watermark rows overlap each other in 199990000 pairs") as raised:
        checked(*((key(number), b"") for number in range(20_000)))
    assert raised.value.key == "the-key"


def test_whatever_order_they_come_in_and_wherever_they_begin() -> None:
    with pytest.raises(CorruptObject, match="overlap each other"):
        checked(*((key(number % 7), key(7 + number % 5)) for number in range(3_000)))


def test_a_hundred_thousand_regions_with_a_few_rows_each_are_taken() -> None:
    spans = [(key(number), key(number + 1)) for number in range(100_000) for _ in range(5)]
    assert checked(*spans) == 500_000


def test_a_region_that_was_split_a_thousand_times_in_one_push_is_taken() -> None:
    """Each time its left part is another's, and it keeps what is right of that: its own rows all overlap."""
    own = [(key(number), b"") for number in range(1_000)]
    parts = [(key(number), key(number + 1)) for number in range(1_000)]
    assert checked(*own, *parts) == 2_000


def test_a_table_that_was_cut_beforehand_into_ten_thousand_regions_is_taken() -> None:
    """Eighty splits of one region, each into 128: every part overlaps the rows that it had before them."""
    own = [(key(128 * number), b"") for number in range(80)]
    parts = [(key(number), key(number + 1)) for number in range(128 * 80)]
    assert checked(*own, *parts) == 80 + 128 * 80
