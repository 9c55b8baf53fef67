"""SST files that are decoded without RocksDB have the entries that RocksDB wrote; other forms are left to RocksDB."""

from __future__ import annotations

import random
from typing import Any

import pytest
from rocksdict import BlockBasedIndexType, DataBlockIndexType

from support.backup_files import sst, sst_options
from tistream.decode.mvcc.sst_table import TableEntries, TableMalformed, open_table

Entries = list[tuple[bytes, bytes]]


def some(count: int, seed: int) -> Entries:
    """Entries with keys that begin alike, and some values larger than a block."""
    rng = random.Random(seed)
    keys = {
        b"z" + bytes(rng.choices(b"ab", k=rng.randrange(12))) + rng.randbytes(rng.randrange(3)) for _ in range(count)
    }
    return [(key, rng.randbytes(rng.choice([0, 1, 30, 300])) * rng.choice([1, 1, 40])) for key in sorted(keys)]


def read(body: bytes, first: bytes = b"", last: bytes = b"", step: int = 1_000) -> Entries:
    table = open_table(memoryview(body))
    assert table is not None
    entries, out = TableEntries(table, first, last), Entries()
    while True:
        keys, values = entries.next(step)
        if not len(keys):
            return out
        assert len(keys) == len(values) <= step
        out += zip(keys.to_pylist(), values.to_pylist(), strict=True)


@pytest.mark.parametrize("version", range(2, 6))
@pytest.mark.parametrize("compression", ["none", "snappy", "lz4", "lz4hc", "zstd"])
def test_the_entries_come_back(version: int, compression: str) -> None:
    rng = random.Random(f"{version} {compression}")
    entries = some(rng.choice([1, 40, 3_000]), seed=version)
    more = {"block_restart_interval": rng.choice([1, 3, 16]), "index_block_restart_interval": rng.choice([1, 4])}
    body = sst(entries, sst_options(version, rng.choice([100, 4_096, 1 << 20]), compression, **more))
    assert read(body, step=rng.choice([1, 700, 1 << 20])) == entries
    for _ in range(20):
        first, last = (rng.choice(entries)[0] + rng.choice([b"", b"\0"]) for _ in range(2))
        assert read(body, first, last) == [one for one in entries if first <= one[0] < last]
    assert read(body, b"{") == []


@pytest.mark.parametrize(
    "options",
    [
        sst_options(6),
        sst_options(2, compression="zlib"),
        sst_options(5, index_type=BlockBasedIndexType.two_level_index_search()),
        sst_options(5, data_block_index_type=DataBlockIndexType.binary_and_hash(), data_block_hash_ratio=0.75),
    ],
)
def test_other_forms_are_left_to_rocksdb(options: Any) -> None:
    assert open_table(memoryview(sst(some(300, seed=1), options))) is None


def test_damage_is_refused_or_has_no_effect_outside_of_it() -> None:
    rng = random.Random(1)
    entries = some(400, seed=2)
    for compression in ("none", "lz4"):
        body = sst(entries, sst_options(2, 200, compression))
        for _ in range(300):
            damaged = bytearray(body)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(body))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            try:
                table = open_table(memoryview(bytes(damaged)))
                if table is not None:
                    read(bytes(damaged))
            except TableMalformed:
                continue
