"""SST files that are decoded without RocksDB have the entries that RocksDB wrote; other forms are left to RocksDB."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from rocksdict import BlockBasedIndexType, DataBlockIndexType

from support.backup_files import sst, sst_options, varint
from tistream.decode.mvcc.sst_table import (
    GROUP_BYTES,
    SstTable,
    TableEntries,
    TableMalformed,
    block_places,
    open_table,
)

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


def index_of(places: list[tuple[int, int]]) -> bytes:
    """An index block that names data blocks by offset and size, without compression."""
    entries = b""
    for offset, size in places:
        place = varint(offset) + varint(size)
        entries += b"\0\x09" + varint(len(place)) + b"k" + bytes(8) + place
    return entries + bytes(4) + (1).to_bytes(4, "little")


def table_of(blocks: list[bytes]) -> SstTable:
    """A table of data blocks that end with their type of compression."""
    body, places = b"", []
    for block in blocks:
        places.append((len(body), len(block) - 1))
        body += block + bytes(4)
    offsets, sizes = block_places(memoryview(index_of(places)), delta=False)
    return SstTable(memoryview(body), offsets, sizes)


def test_blocks_that_unpack_to_much_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, value = 4, bytes(8 << 20)
    blocks = []
    for row in range(rows):
        key = bytes([97 + row]) + b"\x01" + bytes(7)
        plain = b"\0" + varint(len(key)) + varint(len(value)) + key + value + bytes(4) + (1).to_bytes(4, "little")
        blocks.append(varint(len(plain)) + pa.Codec("zstd").compress(plain).to_pybytes() + b"\x07")
    assert sum(map(len, blocks)) < GROUP_BYTES
    entries, unpacked, block = TableEntries(table_of(blocks * 3), b"", b""), list[int](), SstTable.block

    def counted(table: SstTable, number: int) -> memoryview:
        unpacked.append(number)
        return block(table, number)

    monkeypatch.setattr(SstTable, "block", counted)
    assert len(entries.next(1)[0]) == 1
    assert unpacked == [0, 1, 2, 3]  # 32 MiB
    taken = 1
    while count := len(entries.next(5)[0]):
        taken += count
    assert taken == 3 * rows


def test_a_key_that_is_repeated_for_ever_is_refused() -> None:
    key = b"k" * (1 << 16) + b"\x01" + bytes(7)
    repeated = varint(len(key)) + b"\0\0"
    plain = b"\0" + varint(len(key)) + b"\0" + key + repeated * 40_000 + bytes(4) + (1).to_bytes(4, "little")
    with pytest.raises(TableMalformed, match="bytes of keys"):
        TableEntries(table_of([plain + b"\0"]), b"", b"").next(1)


def test_an_empty_block_is_malformed() -> None:
    table = table_of([b"\0"])
    with pytest.raises(TableMalformed):
        TableEntries(table, b"", b"").next(1)
