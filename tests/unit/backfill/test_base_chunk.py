"""Base chunks and plans: what is written is read, and every contradiction is refused by name."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import change_files
from tistream.errors import CorruptObject, InvalidRequest, InvariantBroken
from tistream.format.backfill.base_chunk import SCHEMA, ChunkId, check_span, write_chunk
from tistream.format.backfill.chunk_plan import (
    ChunkPlan,
    decode_done,
    decode_plan,
    encode_done,
    encode_plan,
    table_id_of,
)
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import record_span
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.chunk_reader import open_chunk, read_chunk, read_plan

TENANT = TenantKey("7", "acme")
ID = ChunkId(TENANT, "b1", 0)
KEY = layout.base_chunk(TENANT, "b1", 0)
SPAN = KeySpan(b"a", b"n")
S = 470596577375551488
T = record_span(104).start.hex()


def rows_of(rows: list[tuple[bytes, bytes, int | None]]) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)) or [[], [], []], schema=SCHEMA)


def read(body: bytes, identity: ChunkId = ID) -> list[dict[str, Any]]:
    objects = MemoryObjectStore()
    objects.put(layout.base_chunk(identity.tenant, identity.backfill_id, identity.number), body)
    return [row for table in read_chunk(objects, open_chunk(objects, identity)) for row in table.to_pylist()]


@given(
    st.dictionaries(
        st.binary(max_size=20), st.tuples(st.binary(max_size=40), st.none() | st.integers(1, S)), max_size=30
    )
)
def test_rows_come_back(rows: dict[bytes, tuple[bytes, int | None]]) -> None:
    ordered = sorted((b"b" + key, *more) for key, more in rows.items())
    body = write_chunk([rows_of(ordered)], ID, SPAN, S)
    assert [tuple(row.values()) for row in read(body)] == ordered


def test_a_chunk_of_many_row_groups_comes_back() -> None:
    table = rows_of([(b"b%08d" % number, random.Random(number).randbytes(400), None) for number in range(50_000)])
    body = write_chunk([table], ID, SPAN, S)
    objects = MemoryObjectStore()
    objects.put(KEY, body)
    chunk = open_chunk(objects, ID)
    assert len(chunk.groups) > 2
    assert (chunk.span, chunk.base_ts, chunk.rows) == (SPAN, S, 50_000)
    assert pa.concat_tables(read_chunk(objects, chunk)).equals(table)


def test_equal_rows_give_equal_bytes() -> None:
    table = rows_of([(b"b", b"1", 5), (b"c", b"2", None)])
    assert write_chunk([table], ID, SPAN, S) == write_chunk([table], ID, SPAN, S)


GOOD = {
    "tistream.base_version": "1",
    "tistream.start_key": "61",
    "tistream.end_key": "6e",
    "tistream.base_ts": str(S),
    "tistream.rows": "2",
}


def pushed(metadata: dict[str, str | None], *groups: list[tuple[bytes, bytes, int | None]]) -> bytes:
    """A chunk as another program writes it."""
    said = {name: value for name, value in (GOOD | metadata).items() if value is not None}
    return change_files.encode([rows_of(group) for group in groups], said)


TWO: list[tuple[bytes, bytes, int | None]] = [(b"b", b"1", None), (b"c", b"2", S)]


def test_a_pushed_chunk_with_the_contract_s_footer_alone_is_read() -> None:
    assert [row["key"] for row in read(pushed({}, TWO))] == [b"b", b"c"]
    assert [row["key"] for row in read(pushed({}, TWO[:1], TWO[1:]))] == [b"b", b"c"]
    assert [row["key"] for row in read(pushed({"tistream.end_key": "6E"}, TWO))] == [b"b", b"c"]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"tistream.base_version": "2"}, "push contract base_version '2'"),
        ({"tistream.base_version": None}, "tistream.base_version is missing"),
        ({"tistream.start_key": None}, "tistream.start_key is missing"),
        ({"tistream.start_key": "6"}, "tistream.start_key '6' is not hexadecimal"),
        ({"tistream.end_key": "ZZ"}, "tistream.end_key 'ZZ' is not hexadecimal"),
        ({"tistream.end_key": "61"}, "its start_key 61 is not below its end_key 61"),
        ({"tistream.base_ts": "x"}, "tistream.base_ts 'x' is not a decimal"),
        ({"tistream.base_ts": "0"}, "tistream.base_ts 0 is not a TSO"),
        ({"tistream.base_ts": str(S - 1)}, f"commit_ts {S} is above its base_ts {S - 1}"),
        ({"tistream.rows": "3"}, "tistream.rows is 3, but its row groups have 2 rows"),
        ({"tistream.end_key": "63"}, r"key 63 is not in \[61, 63\)"),
        ({"tistream.start_key": "6261"}, r"key 62 is not in \[6261, 6e\)"),
        ({"tistream.row_group_crc32": "00000000"}, "row group 0 fails its CRC-32"),
        ({"tistream.row_group_crc32": ""}, "has 0 entries for 1 row groups"),
        ({"tistream.tenant_id": "other"}, "wrong identity: its footer says tenant_id 'other'"),
        ({"tistream.cluster_id": "8"}, "wrong identity: its footer says cluster_id '8'"),
    ],
)
def test_a_wrong_footer_is_refused_by_name(metadata: dict[str, str | None], reason: str) -> None:
    with pytest.raises(CorruptObject, match=reason):
        read(pushed(metadata, TWO))


@pytest.mark.parametrize("groups", [[[TWO[1], TWO[0]]], [[TWO[0], TWO[0]]], [TWO[1:], TWO[:1]], [TWO[:1], TWO[:1]]])
def test_keys_out_of_order_are_refused(groups: list[list[tuple[bytes, bytes, int | None]]]) -> None:
    with pytest.raises(CorruptObject, match=r"key 6\d is not above the key before it"):
        read(pushed({}, *groups))


def test_a_column_of_another_type_is_refused() -> None:
    table = pa.table({"key": [b"b"], "value": [1]})
    with pytest.raises(CorruptObject, match="column value is int64"):
        read(change_files.encode([table], GOOD | {"tistream.rows": "1"}))
    with pytest.raises(CorruptObject, match="column value is missing"):
        read(change_files.encode([table.select(["key"])], GOOD | {"tistream.rows": "1"}))


def test_nulls_are_refused() -> None:
    table = pa.table({"key": [b"b", b"c"], "value": pa.array([b"1", None], pa.binary())})
    with pytest.raises(CorruptObject, match="column value holds nulls"):
        read(change_files.encode([table], GOOD))


@pytest.mark.parametrize("seed", range(60))
def test_any_flipped_bit_is_refused_or_harmless(seed: int) -> None:
    rng = random.Random(seed)
    body = write_chunk([rows_of(TWO)], ID, SPAN, S)
    damaged = change_files.flipped(body, rng.randrange(len(body)))
    try:
        found = read(damaged)
    except CorruptObject:
        return
    assert [row["key"] for row in found] == [b"b", b"c"]


def test_a_chunk_must_have_the_span_of_the_plan() -> None:
    objects = MemoryObjectStore()
    objects.put(KEY, write_chunk([rows_of(TWO)], ID, SPAN, S))
    chunk = open_chunk(objects, ID)
    check_span(chunk, SPAN)
    with pytest.raises(CorruptObject, match=r"its span \[61, 6e\) is not that of chunk 0 in the plan, \[61, \)"):
        check_span(chunk, KeySpan(b"a", b""))


def test_our_own_chunks_are_sound() -> None:
    for rows in ([(b"z", b"", None)], [(b"c", b"", None), (b"b", b"", None)]):
        with pytest.raises(InvariantBroken):
            write_chunk([rows_of([row]) for row in rows], ID, SPAN, S)


def test_a_plan_comes_back() -> None:
    first, second = record_span(104), record_span(105)
    spans = (KeySpan(first.start, first.start + b"x"), KeySpan(first.start + b"x", first.end), second)
    for exact in (True, False):
        plan = ChunkPlan(spans, S, exact)
        objects = MemoryObjectStore()
        objects.put_new(layout.backfill_plan(TENANT, "b1"), encode_plan(plan))
        assert read_plan(objects, TENANT, "b1") == plan
    assert [table_id_of(span) for span in spans] == [104, 104, 105]
    assert decode_done("k", encode_done(3)) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "plan version 2"),
        ({"spans": [[T, T + "05"], [T + "04", T + "06"]]}, f"span 1 from {T}04 overlaps"),
        ({"spans": [["62", "61"]]}, "span 0 ends at 61, not above its start 62"),
        ({"spans": [["61", "62"]]}, r"span 0, \[61, 62\), is not in the record keys"),
        ({"spans": [[T, ""]]}, "is not in the record keys"),
        ({"spans": [[T, T[:-2] + "74"]]}, "is not in the record keys"),
        ({"spans": [[T.replace("5f72", "5f69"), T]]}, "is not in the record keys"),
        ({"spans": [["6", "61"]]}, "is not a valid plan"),
        ({"exact": 1}, "is not a valid plan"),
        ({"spans": [["61"]]}, "is not a valid plan"),
        ({"spans": {}}, "not a list"),
        ({"min_ts": "0"}, "its min_ts 0 is not a TSO"),
        ({"min_ts": None}, "is not a valid plan"),
    ],
)
def test_a_wrong_plan_is_refused_by_name(change: dict[str, Any], reason: str) -> None:
    good = {"version": 1, "spans": [[T, T + "05"]], "min_ts": str(S)}
    with pytest.raises(CorruptObject, match=reason):
        decode_plan("plan", json.dumps(good | change).encode())


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"version":2,"chunks":1}', b'{"version":1,"chunks":-1}', b'{"version":1}']
)
def test_a_wrong_end_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptObject):
        decode_done("done", body)


def test_names_of_chunks() -> None:
    assert KEY == "base_buffer/cluster-7/Tenant-acme/backfill-b1/chunk-00000000"
    assert layout.parse_base_chunk(TENANT, "b1", KEY) == 0
    assert layout.parse_base_chunk(TENANT, "b2", KEY) is None
    assert layout.parse_base_chunk(TENANT, "b1", KEY + ".tmp") is None
    assert layout.tenant_of(KEY) == TENANT
    assert any(KEY.startswith(prefix) for prefix in layout.prefixes_of(TENANT))
    for name in ("", "../x", "a/b", "a" * 64):
        with pytest.raises(InvalidRequest, match="backfill_id"):
            layout.backfill_prefix(TENANT, name)
