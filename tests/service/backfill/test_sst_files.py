"""SST files in TiKV's layout, written by RocksDB: their rows come back, and every contradiction is named."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from support.backup_files import Backup, descending, sst, varint
from tistream.errors import CorruptObject, NotFoundYet
from tistream.format.br.full_backup import SstPair, parse_backup, sst_pairs
from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import record_span
from tistream.schema.tidb.meta_key import encode_bytes
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_ingest.backfill.sst_files import fetch_pair, read_rows

S = 470596577375551488
TABLE = record_span(104)
Row = tuple[bytes, int, int, bytes]


def record_key(number: int) -> bytes:
    return TABLE.start + (number + (1 << 63)).to_bytes(8, "big")


def some_rows(count: int, seed: int) -> list[Row]:
    rng = random.Random(seed)
    out = []
    for number in range(count):
        size = rng.choice([0, 1, 40, 255, 256, 257, 3_000])
        commit_ts = rng.randrange(1 << 40, S)
        out.append((record_key(number), commit_ts - rng.randrange(1, 1 << 30), commit_ts, rng.randbytes(size)))
    return out


def bucket(rows: list[Row], end: bytes = TABLE.end) -> tuple[MemoryObjectStore, list[SstPair]]:
    """The objects of a backup with one region."""
    backup = Backup(S, version=0)
    backup.region("1/2_3_aa_9", TABLE.start, end, rows)
    objects = MemoryObjectStore()
    for name, body in backup.finish().items():
        objects.put(name, body)
    return objects, sst_pairs(parse_backup("backupmeta", backup.objects["backupmeta"]).inline.files)


def read(
    objects: MemoryObjectStore, pair: SstPair, folder: Path, span: KeySpan = TABLE
) -> list[tuple[bytes, int, bytes]]:
    local = fetch_pair(objects, pair, folder)
    tables = list(read_rows(local, span, S))
    return [(row["key"], row["commit_ts"], row["value"]) for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("count", [1, 300, 40_000])
def test_rows_come_back(tmp_path: Path, count: int) -> None:
    rows = some_rows(count, seed=count)
    objects, (pair,) = bucket(rows)
    assert read(objects, pair, tmp_path) == [(key, commit_ts, value) for key, _, commit_ts, value in rows]


def test_a_part_of_a_file_is_read_by_its_bounds(tmp_path: Path) -> None:
    rows = some_rows(1_000, seed=3)
    objects, (pair,) = bucket(rows)
    found = read(objects, pair, tmp_path, KeySpan(record_key(100), record_key(250)))
    assert found == [(key, commit_ts, value) for key, _, commit_ts, value in rows[100:250]]


def test_index_entries_are_left_out(tmp_path: Path) -> None:
    index = TABLE.start.replace(b"_r", b"_i")
    rows = [(index + b"\x80\0\0\0\0\0\0\1x", 5, 6, b"0"), *some_rows(10, seed=4)]
    objects, (pair,) = bucket(rows)
    found = read(objects, pair, tmp_path, KeySpan(index, TABLE.end))
    assert found == [(key, commit_ts, value) for key, _, commit_ts, value in rows[1:]]


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    objects, (pair,) = bucket(some_rows(300, seed=5))
    assert pair.default is not None
    key = pair.default.name
    body = objects.get(key)
    objects.put(key, body[:100] + bytes([body[100] ^ 1]) + body[101:])
    with pytest.raises(CorruptObject, match=r"1/2_3_aa_9_default\.sst: fails its SHA-256"):
        read(objects, pair, tmp_path)
    objects.put(key, body[:-1])
    with pytest.raises(CorruptObject, match=r"has \d+ bytes; the backup records"):
        read(objects, pair, tmp_path)
    objects.delete(key)
    with pytest.raises(NotFoundYet):
        read(objects, pair, tmp_path)


def test_a_damaged_block_is_found_without_a_sha256(tmp_path: Path) -> None:
    objects, (pair,) = bucket(some_rows(300, seed=6))
    bare = replace(pair, write=replace(pair.write, sha256=b""))
    key = pair.write.name
    body = objects.get(key)
    objects.put(key, body[:100] + bytes([body[100] ^ 1]) + body[101:])
    with pytest.raises(CorruptObject, match=r"1/2_3_aa_9_write\.sst"):
        read(objects, bare, tmp_path)


def test_an_encrypted_file_is_no_sst_file(tmp_path: Path) -> None:
    objects, (pair,) = bucket(some_rows(30, seed=7))
    bare = replace(pair, write=replace(pair.write, sha256=b"", size=0))
    objects.put(pair.write.name, random.Random(1).randbytes(4_000))
    with pytest.raises(CorruptObject, match="it is encrypted, or no SST file"):
        read(objects, bare, tmp_path)


def test_a_number_of_rows_that_the_backup_does_not_state_is_refused(tmp_path: Path) -> None:
    objects, (pair,) = bucket(some_rows(30, seed=8))
    other = replace(pair, write=replace(pair.write, total_kvs=pair.write.total_kvs + 1))
    with pytest.raises(CorruptObject, match="holds 30 rows; the backup states 31"):
        read(objects, other, tmp_path)


def prefix(number: int) -> bytes:
    return b"z" + encode_bytes(record_key(number))


@pytest.mark.parametrize(
    ("write", "default", "reason"),
    [
        ([(prefix(1) + descending(9), b"D" + varint(5))], [], "a write record that is not a put"),
        ([(prefix(1) + descending(9), b"R" + varint(9))], [], "a write record that is not a put"),
        ([(prefix(1) + descending(S + 1), b"P\x05v\0")], [], "was committed above the backup's ts"),
        ([(prefix(1) + descending(9), b"P\x05v\0"), (prefix(1) + descending(8), b"P\x04v\0")], [], "is not above"),
        ([(prefix(1) + descending(9), b"P\x05")], [], "at start_ts 5 is not in the default file"),
        ([(prefix(1) + descending(9), b"P\x05")], [(prefix(1) + descending(4), b"x")], "at start_ts 5 is not in"),
        ([(prefix(1) + descending(9), b"P\x05")], [(prefix(2) + descending(5), b"x")], "at start_ts 5 is not in"),
        ([(prefix(1) + descending(9), b"P\x05v\0")], [(prefix(1) + descending(5), b"x")], "that no write record needs"),
        ([(prefix(1) + descending(9), b"Q\x05")], [], "is not a write record"),
        ([(b"z" + record_key(1) + descending(9), b"P\x05v\0")], [], "is not a versioned key"),
    ],
)
def test_entries_that_no_full_backup_holds_are_refused(
    tmp_path: Path, write: list[tuple[bytes, bytes]], default: list[tuple[bytes, bytes]], reason: str
) -> None:
    objects, (pair,) = bucket([(record_key(1), 5, 9, b"x" * 300)])
    assert pair.default is not None
    objects.put(pair.write.name, sst(write))
    if default:
        objects.put(pair.default.name, sst(default))
    stated = replace(pair.write, sha256=b"", size=0)
    found = SstPair(stated, replace(pair.default, sha256=b"", size=0) if default else None)
    with pytest.raises(CorruptObject, match=reason):
        read(objects, found, tmp_path, KeySpan(b"", b""))
