"""Schema rows that no TiDB writes: what is decoded can be made durable and applied; all else is told, row by row.

Records become durable before history takes them, so one that history cannot take would end the tenant for good.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tistream.schema.history import History
from tistream.schema.log_format import encode_record
from tistream.schema.tidb.meta_change import (
    DDL_JOB_TABLE_ID,
    META_TABLE_ID,
    MetaDecoder,
    MetaRow,
    UndecodableMeta,
    record_span,
)

JUNK: list[Any] = [True, -1, 1.5, 2**64 - 1, "x", [], [1], {}, {"O": 5}, {"a": [{}]}, "\x00ü"]
JOB = {
    "id": 7,
    "type": 3,
    "state": 4,
    "schema_id": 1,
    "table_id": 98,
    "schema_name": "shop",
    "table_name": "t",
    "query": "CREATE TABLE t (a int)",
    "binlog": {"TableInfo": {"name": {"O": "t"}}},
}


def taken(row: MetaRow) -> bool:
    """Whether the row was decoded; then it must go all the way."""
    try:
        record = MetaDecoder().decode(row)
    except UndecodableMeta:
        return False
    assert record is not None
    encode_record(record)
    history = History(100)
    history.apply([record])
    history.advance(record.commit_ts)
    return True


def job_row(job: dict[str, Any]) -> MetaRow:
    text = orjson.dumps(job)
    value = b"\x80\x00\x01\x00\x00\x00\x05" + len(text).to_bytes(2, "little") + text
    key = record_span(DDL_JOB_TABLE_ID).start + (7 | 1 << 63).to_bytes(8, "big")
    return MetaRow(DDL_JOB_TABLE_ID, 102, 101, key, value, None)


def meta_string(name: bytes) -> bytes:
    """The key of a string of the `m` space: memcomparable name, then `s`."""
    out = b"m"
    for at in range(0, len(name) + 1, 8):
        piece = name[at : at + 8]
        out += piece.ljust(8, b"\0") + bytes([247 + len(piece)])
    return out + (115).to_bytes(8, "big")


def test_a_sound_job_is_taken():
    assert taken(job_row(JOB))


@pytest.mark.parametrize("name", JOB)
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_job_with_junk_in_it_is_taken_whole_or_refused(name, junk):
    for others in ({}, {"table_id": 0}, {"table_id": 0, "schema_id": 0, "type": 1}):
        taken(job_row({**JOB, **others, name: junk}))


@pytest.mark.parametrize("name", ["schema_name", "table_name", "query"])
def test_names_and_queries_are_text(name):
    assert not taken(job_row({**JOB, name: [1]}))


@pytest.mark.parametrize(("digits", "sound"), [(1, True), (18, True), (20, False), (40, False), (5_000, False)])
def test_versions_beyond_63_bits_are_refused(digits, sound):
    row = MetaRow(META_TABLE_ID, 102, 101, meta_string(b"Diff:" + b"9" * digits), b"{}", None)
    assert taken(row) is sound
