"""Keys: table ids, kinds, integer handles (upstream-formats 3.1)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from support.row_bytes import bytes_datum, common_key, comparable_int, record_key
from tistream.decode.keys import int_handles, is_index_key, is_record_key, table_ids
from tistream.schema.tidb.meta_key import encode_key

ROW = bytes.fromhex("7480000000000000685f728000000000000001")
COMMON = bytes.fromhex("7480000000000000685f7201616200000000000 0f9038000000000000005".replace(" ", ""))
INDEX = bytes.fromhex("7480000000000000685f698000000000000001038000000000000007")
DDL_JOB = bytes.fromhex("748000fffffffffffe5f728000000000000002")
META = encode_key(b"DBs", b"DB:1")


def keys(*raw: bytes) -> pa.Array:
    return pa.array(raw, pa.binary())


def test_the_published_keys() -> None:
    assert record_key(104, 1) == ROW
    assert common_key(104, bytes_datum(b"ab"), b"\x03" + comparable_int(5)) == COMMON
    every = keys(ROW, COMMON, INDEX, DDL_JOB, META)
    assert table_ids(every).tolist() == [104, 104, 104, 0x0000FFFFFFFFFFFE, 0]
    assert is_record_key(every).tolist() == [True, True, False, True, False]
    assert is_index_key(every).tolist() == [False, False, True, False, False]
    handles, present = int_handles(every)
    assert present.tolist() == [True, False, False, True, False]
    assert handles[present].tolist() == [1, 2]


def test_what_is_no_table_key() -> None:
    odd = keys(b"", b"t", b"t" + bytes(7), b"x" + ROW[1:], b"t" + comparable_int(0), b"t" + comparable_int(-4), b"m")
    assert table_ids(odd).tolist() == [-1, -1, -1, -1, -1, -1, 0]
    assert not is_record_key(odd).any()
    assert not is_index_key(odd).any()


def test_slices_chunks_and_nothing() -> None:
    every = keys(META, ROW, INDEX, ROW)
    assert table_ids(every.slice(1, 2)).tolist() == [104, 104]
    assert table_ids(pa.chunked_array([every, every.slice(3)])).tolist() == [0, 104, 104, 104, 104]
    assert table_ids(keys()).tolist() == []
    assert is_record_key(every.cast(pa.large_binary())).tolist() == [False, True, False, True]


@given(st.lists(st.tuples(st.integers(1, (1 << 47)), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=20))
def test_ids_and_handles_come_back(pairs: list[tuple[int, int]]) -> None:
    made = keys(*(record_key(*pair) for pair in pairs))
    handles, present = int_handles(made)
    assert table_ids(made).tolist() == [table_id for table_id, _ in pairs]
    assert handles.tolist() == [handle for _, handle in pairs]
    assert present.all()


@given(st.lists(st.binary(max_size=24), max_size=20))
def test_any_bytes_are_told_apart_as_python_does(raw: list[bytes]) -> None:
    made = keys(*raw)
    assert is_record_key(made).tolist() == [key[:1] == b"t" and key[9:11] == b"_r" for key in raw]
    assert is_index_key(made).tolist() == [key[:1] == b"t" and key[9:11] == b"_i" for key in raw]
