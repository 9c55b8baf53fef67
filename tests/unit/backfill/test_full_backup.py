"""BR's backupmeta: both versions, pairs of SST files, and what is refused by name."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from support import golden
from support.backup_files import Backup, file_message, nested, number, text
from tistream.errors import CorruptObject
from tistream.format.br.full_backup import (
    BackupFile,
    FullBackup,
    MetaFile,
    parse_backup,
    parse_meta_file,
    sst_pairs,
)
from tistream.schema.records import DatabaseChange, Record, TableChange
from tistream.schema.tidb.backup_snapshot import TEMPORARY, schema_snap
from tistream.schema.tidb.snapshot import parse_snapshot

S = 470596577375551488


def small(version: int) -> dict[str, bytes]:
    backup = Backup(S, version=version)
    backup.region("1/2_3_aa_9", b"t1_r1", b"t1_r5", [(b"t1_r1", S - 9, S - 5, b"short"), (b"t1_r2", 7, 8, b"x" * 256)])
    backup.region("1/3_3_bb_9", b"t1_r5", b"t1_s", [(b"t1_r5", 5, 6, b"")])
    backup.schema({"id": 1, "db_name": {"O": "shop", "L": "shop"}}, None)
    return backup.finish()


def leaves(objects: dict[str, bytes]) -> tuple[FullBackup, list[MetaFile]]:
    found = parse_backup("backupmeta", objects["backupmeta"])
    refs = (*found.file_index.children, *found.schema_index.children)
    return found, [found.inline, *(parse_meta_file(ref, ref.name, objects[ref.name]) for ref in refs)]


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_say_the_same(version: int) -> None:
    objects = small(version)
    found, nodes = leaves(objects)
    assert (found.cluster_id, found.cluster_version, found.end_version) == (7, "8.5.4", S)
    pairs = sst_pairs(file for node in nodes for file in node.files)
    assert [(pair.write.name, pair.default and pair.default.name, pair.rows) for pair in pairs] == [
        ("1/2_3_aa_9_write.sst", "1/2_3_aa_9_default.sst", 2),
        ("1/3_3_bb_9_write.sst", None, 1),
    ]
    assert [(pair.write.start_key, pair.write.end_key) for pair in pairs] == [(b"t1_r1", b"t1_r5"), (b"t1_r5", b"t1_s")]
    assert [schema.table for node in nodes for schema in node.schemas] == [b""]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (number(1, 7), "is the backupmeta of a log backup"),
        (number(6, S) + number(12, 2), "backupmeta version 2"),
        (number(6, S) + number(8, 1), "raw or transactional"),
        (number(6, S) + number(21, 1), "raw or transactional"),
        (number(6, S) + number(5, S - 1), "is an incremental backup since"),
        (number(6, S) + number(18, 2), "keyspace prefix"),
        (number(6, 1 << 63), "is not a TSO"),
        (b"\x93 encrypted bytes", "or it is encrypted"),
        (number(6, S) + nested(4, file_message("../../etc/passwd", b"x")), "is not a relative path"),
        (number(6, S) + nested(4, file_message("/etc/passwd", b"x")), "is not a relative path"),
        (number(6, S) + nested(4, file_message("a//b_write.sst", b"x")), "is not a relative path"),
        (number(6, S) + nested(4, file_message("a", b"x", b"k2", b"k1")), "is not below its end_key"),
        (number(6, S) + nested(4, text(1, "a") + text(2, b"abc")), "a SHA-256 of 3 bytes"),
        (number(6, S) + b"\x22" + b"\xff\xff\xff\x7f" + b"x", "is not a protobuf message BackupMeta"),
    ],
)
def test_what_is_no_full_backup_of_tables_is_refused_by_name(fields: bytes, reason: str) -> None:
    with pytest.raises(CorruptObject, match=reason):
        parse_backup("full/backupmeta", fields)


def test_a_full_backup_that_states_its_own_start_is_full() -> None:
    assert parse_backup("backupmeta", number(6, S) + number(5, S)).end_version == S


def test_a_metafile_is_checked_against_its_sha256() -> None:
    objects = small(1)
    ref = parse_backup("backupmeta", objects["backupmeta"]).file_index.children[0]
    body = bytearray(objects[ref.name])
    body[-1] ^= 1
    with pytest.raises(CorruptObject, match="fails its SHA-256"):
        parse_meta_file(ref, ref.name, bytes(body))
    with pytest.raises(CorruptObject, match=r"has \d+ bytes; the backup records"):
        parse_meta_file(ref, ref.name, bytes(body[:-1]))


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_is_refused_or_harmless(seed: int) -> None:
    rng = random.Random(seed)
    body = bytearray(small(0)["backupmeta"])
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    try:
        found = parse_backup("backupmeta", bytes(body[: rng.randint(1, len(body))]))
    except CorruptObject:
        return
    assert all(len(file.name) <= 2_048 for file in found.inline.files)


def file(name: str, start: bytes, end: bytes, cf: str = "write") -> BackupFile:
    return BackupFile(name, b"", start, end, 1, cf, 0)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([file("a_write.sst", b"a", b"c"), file("b_write.sst", b"b", b"d")], "a_write.sst and b_write.sst overlap"),
        ([file("a_write.sst", b"a", b""), file("b_write.sst", b"b", b"d")], "overlap at key 62"),
        ([file("a_default.sst", b"a", b"c", "default")], "has no file a_write.sst beside it"),
        ([file("a_write.sst", b"a", b"c"), file("a_write.sst", b"a", b"c")], "is named twice"),
        ([file("a_lock.sst", b"a", b"c", "lock")], "does not end in"),
        ([file("a_write.sst", b"a", b"c", "default")], "does not end in"),
    ],
)
def test_files_that_do_not_pair_are_named(files: list[BackupFile], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        sst_pairs(files)


def test_schema_snap_of_a_backup_equals_the_recorded_one() -> None:
    """A backup of the recorded cluster lists its tables in any order and renames system schemas."""
    loaded = golden.load("everything")
    recorded = orjson.loads(loaded.schema_snap.data)
    backup = Backup(loaded.snapshot_ts)
    entries: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    for entry in recorded["databases"]:
        info = dict(entry["db_info"])
        if info["db_name"]["O"] in ("mysql", "sys"):
            name = TEMPORARY + info["db_name"]["O"]
            info["db_name"] = {"O": name, "L": name.lower()}
        entries += [(info, table) for table in entry.get("tables") or ()] or [(info, None)]
    random.Random(1).shuffle(entries)
    for info, table in entries:
        backup.schema(info, table)
    objects = backup.finish()
    _, nodes = leaves(objects)
    pairs = [(schema.database, schema.table) for node in nodes for schema in node.schemas]
    made = parse_snapshot("made", schema_snap("backupmeta", loaded.snapshot_ts, pairs))
    wanted = parse_snapshot("recorded", loaded.schema_snap.data)
    assert made.snapshot_ts == wanted.snapshot_ts

    assert by_id(made.records) == by_id(wanted.records)


def by_id(records: Iterable[Record]) -> dict[tuple[int, int | None], Any]:
    """The JSON of each database and table."""
    out: dict[tuple[int, int | None], Any] = {}
    for record in records:
        change = record.change
        if isinstance(change, DatabaseChange):
            out[change.database_id, None] = change.info
        else:
            assert isinstance(change, TableChange)
            assert change.text is not None
            out[change.database_id, change.table_id] = change.text.info()
    return out


def test_a_malformed_schema_is_named() -> None:
    good = b'{"id":1,"db_name":{"O":"a","L":"a"}}'
    table = b'{"id":5,"name":{"O":"t","L":"t"},"cols":[]}'
    with pytest.raises(CorruptObject, match="malformed DBInfo"):
        schema_snap("b", S, [(b'{"id":"x"}', b"")])
    with pytest.raises(CorruptObject, match="database 1 has a malformed TableInfo"):
        schema_snap("b", S, [(good, b"[]")])
    with pytest.raises(CorruptObject, match="names table 5 of database 1 twice"):
        schema_snap("b", S, [(good, table), (good, table)])
