from __future__ import annotations

import io
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.format.byte_ranges import coalesce
from tistream.format.sparse_file import SparseFile


def test_gives_what_it_holds_and_nothing_else() -> None:
    file = SparseFile(100, [(50, b"fifty"), (10, b"ten")])
    assert bytes(file.view(10, 3)) == b"ten"
    assert bytes(file.view(51, 2)) == b"if"
    assert bytes(file.view(99, 0)) == b""
    for start, length in ((9, 2), (12, 2), (0, 1), (54, 2), (99, 1)):
        with pytest.raises(ValueError, match="not available"):
            file.view(start, length)


def test_reads_across_adjacent_pieces() -> None:
    assert bytes(SparseFile(9, [(3, b"345"), (0, b"012"), (6, b"678")]).view(1, 7)) == b"1234567"


def test_is_a_file_to_pyarrow() -> None:
    file = pa.PythonFile(SparseFile(10, [(4, b"456789")]), mode="r")
    assert file.size() == 10
    assert file.read_at(3, 5) == b"567"
    file.seek(-2, io.SEEK_END)
    assert file.read() == b"89"


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40))), st.integers(0, 20))
def test_coalescing_covers_the_same_bytes_in_fewer_ranges(ranges: list[tuple[int, int]], gap: int) -> None:
    merged = coalesce(ranges, gap)
    wanted = {at for start, length in ranges for at in range(start, start + length)}
    fetched = {at for start, length in merged for at in range(start, start + length)}
    assert wanted <= fetched
    assert len(merged) <= len(ranges)
    for (start, length), (following, _) in pairwise(merged):
        assert start + length + gap < following
    if not gap:
        assert wanted == fetched
