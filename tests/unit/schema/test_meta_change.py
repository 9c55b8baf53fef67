import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.schema_records import name, table_info
from tistream.schema.records import DatabaseChange, JobChange, Record, TableChange, TableText, VersionChange
from tistream.schema.tidb.meta_change import (
    DDL_JOB_SPAN,
    DDL_JOB_TABLE_ID,
    META_TABLE_ID,
    MetaDecoder,
    MetaRow,
    UndecodableMeta,
)
from tistream.schema.tidb.meta_key import encode_key


def meta(key: bytes, field: bytes | None, value: object) -> MetaRow:
    text = None if value is None else value if isinstance(value, bytes) else orjson.dumps(value)
    return MetaRow(META_TABLE_ID, 20, 19, encode_key(key, field), text, None)


def job_row(value: bytes | None, old_value: bytes | None = None) -> MetaRow:
    key = DDL_JOB_SPAN.start + (7 + 2**63).to_bytes(8, "big")
    return MetaRow(DDL_JOB_TABLE_ID, 20, 19, key, value, old_value)


def v1(column_id: int, text: bytes) -> bytes:
    def varint(number: int) -> bytes:
        number *= 2
        out = b""
        while number > 0x7F:
            out += bytes((number & 0x7F | 0x80,))
            number >>= 7
        return out + bytes((number,))

    return b"\x08\x02\x08\x0e" + b"\x08" + varint(column_id) + b"\x02" + varint(len(text)) + text


JOB = orjson.dumps({"id": 7, "type": 5, "state": 4, "schema_id": 1, "table_id": 100, "query": "q", "binlog": None})


def test_what_each_key_says() -> None:
    decode = MetaDecoder().decode
    info = {"id": 1, "db_name": name("d"), "state": 5}
    assert decode(meta(b"DBs", b"DB:1", info)) == Record(20, 19, DatabaseChange(1, info))
    assert decode(meta(b"DBs", b"DB:1", None)) == Record(20, 19, DatabaseChange(1, None))
    table = table_info(100, "t")
    found = decode(meta(b"DB:1", b"Table:100", table))
    assert found is not None
    assert isinstance(found.change, TableChange)
    assert found.change.text is not None
    assert found.change.text.info() == table
    assert decode(meta(b"DB:1", b"Table:100", None)) == Record(20, 19, TableChange(1, 100, None))
    assert decode(meta(b"Diff:57", None, {"version": 57})) == Record(20, 19, VersionChange(57))


@pytest.mark.parametrize(
    ("key", "field"),
    [
        (b"NextGlobalID", None),
        (b"SchemaVersionKey", None),
        (b"DB:1", b"TID:100"),
        (b"DB:1", b"SequenceCycle:5"),
        (b"DDLJobHistory", b"\0" * 8),
        (b"Policies", b"Policy:1"),
        (b"ResourceGroups", b"RG:1"),
    ],
)
def test_keys_that_say_nothing_of_the_schema(key: bytes, field: bytes | None) -> None:
    assert MetaDecoder().decode(meta(key, field, b"not JSON")) is None


def test_a_job_row() -> None:
    found = MetaDecoder().decode(job_row(v1(5, JOB), old_value=b"x"))
    assert found is not None
    assert isinstance(found.change, JobChange)
    assert found.change.job is not None
    assert (found.change.job.id, found.change.job.state, found.change.job.existed) == (7, 4, True)
    assert MetaDecoder().decode(job_row(None)) == Record(20, 19, JobChange(7, None))


def test_the_job_column_is_found_by_its_name() -> None:
    info = table_info(DDL_JOB_TABLE_ID, "tidb_ddl_job", ["job_id", "job_meta"])
    decoder = MetaDecoder()
    decoder.learn(Record(10, 0, TableChange(3, DDL_JOB_TABLE_ID, TableText.pack(orjson.dumps(info)))))
    assert decoder.decode(job_row(v1(2, JOB))) is not None
    with pytest.raises(UndecodableMeta, match="column 2"):
        decoder.decode(job_row(v1(5, JOB)))


def test_index_entries_of_the_job_table_are_ignored() -> None:
    row = job_row(b"whatever")
    index = MetaRow(row.table_id, 20, 19, row.key[:10] + b"i" + row.key[11:], row.value, None)
    assert MetaDecoder().decode(index) is None


@pytest.mark.parametrize(
    "row",
    [
        meta(b"DBs", b"DB:1", b"{"),
        meta(b"DBs", b"DB:x", {"id": 1, "db_name": name("d")}),
        meta(b"DBs", b"DB:1", {"id": 1, "db_name": "d"}),
        meta(b"DB:1", b"Table:100", {"id": 100}),
        meta(b"DB:1", b"Table:100", table_info(101, "t")),
        meta(b"DB:1", b"Table:100", b"[]"),
        meta(b"Diff:", None, b"{}"),
        MetaRow(META_TABLE_ID, 20, 19, b"mshort", b"", None),
        job_row(b""),
        job_row(v1(5, b"{")),
        job_row(v1(5, b'{"id":"7"}')),
        job_row(v1(6, JOB)),
    ],
)
def test_a_damaged_row_is_named_with_its_key(row: MetaRow) -> None:
    with pytest.raises(UndecodableMeta) as raised:
        MetaDecoder().decode(row)
    assert raised.value.commit_ts == 20
    assert row.key.hex() in str(raised.value)


@given(st.binary(max_size=40), st.binary(max_size=40), st.sampled_from([META_TABLE_ID, DDL_JOB_TABLE_ID]))
def test_hostile_rows_raise_nothing_else(key: bytes, value: bytes, table_id: int) -> None:
    prefix = b"m" if table_id == META_TABLE_ID else DDL_JOB_SPAN.start
    with contextlib.suppress(UndecodableMeta):
        MetaDecoder().decode(MetaRow(table_id, 20, 19, prefix + key, value, None))
