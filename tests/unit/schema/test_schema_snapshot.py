from typing import Any

import orjson
import pytest

from support.schema_records import name, table_info
from tistream.errors import CorruptObject
from tistream.schema.records import DatabaseChange, TableChange
from tistream.schema.tidb.snapshot import parse_snapshot


def snap(**changes: Any) -> bytes:
    databases = [{"db_info": {"id": 1, "db_name": name("d"), "state": 5}, "tables": [table_info(100, "t")]}]
    return orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": databases, **changes})


def test_records_of_a_snapshot() -> None:
    found = parse_snapshot("k", snap())
    assert found.snapshot_ts == 42
    assert {(record.commit_ts, record.start_ts) for record in found.records} == {(42, 0)}
    changes = [record.change for record in found.records]
    assert isinstance(changes[0], DatabaseChange)
    assert isinstance(changes[1], TableChange)
    assert (changes[1].database_id, changes[1].table_id) == (1, 100)


def test_null_lists_and_unknown_members_are_taken() -> None:
    info = {"id": 1, "db_name": name("d"), "state": 5, "novelty": {}}
    body = snap(databases=[{"db_info": info, "tables": None, "more": 1}], later=True)
    assert len(parse_snapshot("k", body).records) == 1
    bare = {"id": 7, "name": name("s"), "cols": None, "index_info": None, "state": 5}
    assert len(parse_snapshot("k", snap(databases=[{"db_info": info, "tables": [bare]}])).records) == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a JSON object"),
        (snap(version=2), "version 2; this program knows 1"),
        (snap(version=True), "version True"),
        (snap(snapshot_ts="42"), "snapshot_ts"),
        (snap(snapshot_ts=0), "snapshot_ts"),
        (snap(snapshot_ts=2**63), "snapshot_ts"),
        (snap(databases=None), "databases"),
        (snap(databases=[1]), r"databases\[0\]"),
        (snap(databases=[{"db_info": {"id": "1", "db_name": name("d")}}]), r"databases\[0\]"),
        (snap(databases=[{"db_info": {"id": 1, "db_name": name("d")}, "tables": [{"id": 5}]}]), "'d', tables"),
    ],
)
def test_damage_is_told_with_the_object_and_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(CorruptObject, match=reason) as raised:
        parse_snapshot("bucket/schema_snap", body)
    assert raised.value.key == "bucket/schema_snap"


@pytest.mark.parametrize(
    "damage",
    [
        {"id": None},
        {"name": {"O": 5}},
        {"cols": [{"id": 1, "name": {"O": "a"}, "type": {"Tp": "int"}}]},
        {"cols": [{"name": {"O": "a"}}]},
        {"cols": 5},
        {"partition": {"enable": True, "definitions": [{"id": "x"}]}},
        {"index_info": [{"id": 1, "idx_name": {"O": "i"}, "idx_cols": [{"name": {"O": "a"}, "offset": 9}]}]},
        {"is_common_handle": True},
    ],
)
def test_a_table_that_could_not_be_read_later_is_refused_now(damage: dict[str, Any]) -> None:
    info = {"id": 1, "db_name": name("d"), "state": 5}
    body = snap(databases=[{"db_info": info, "tables": [{**table_info(100, "t"), **damage}]}])
    with pytest.raises(CorruptObject, match=r"database 'd', tables\[0\]"):
        parse_snapshot("k", body)
