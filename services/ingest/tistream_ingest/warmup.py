"""Compiles the kernels of log backups, full backups and SQL backfills by passing one row through each."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from tistream.decode.mvcc import sst_table
from tistream.decode.mvcc.mvcc_records import versioned_keys, write_records
from tistream.encode.rows import encode_keys, encode_values
from tistream.encode.table_encoding import encoding_of
from tistream.logbackup import entries
from tistream.logbackup.metadata import Slice
from tistream.model.ts import Window
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import parse_table

_VERSIONED_KEY = b"k" + bytes(7) + b"\xf8" + b"\xff" * 7 + b"\xfd"  # raw key `k` at ts 2
_PUT_RECORD = b"P\x01v\x01r"  # start_ts 1, short value `r`
_TEXTS = {t.VARCHAR: b"a", t.DECIMAL: b"1.5", t.DATETIME: b"2026-01-02 03:04:05", t.DURATION: b"01:02:03"}


def warm_kernels() -> None:
    """Compile every kernel, or load it from the cache. Without a cache it takes some 10 s."""
    _read_slice()
    versioned_keys(pa.array([_VERSIONED_KEY]))
    write_records(pa.array([_PUT_RECORD])).values()
    _read_block()
    _encode_row()


def _read_slice() -> None:
    plain = b"".join(len(one).to_bytes(4, "little") + one for one in (_VERSIONED_KEY, _PUT_RECORD))
    digest = hashlib.sha256(plain).digest()
    slice_ = Slice("warm-up", 0, len(plain), len(plain), 1, digest, False, "write", True, 1, b"k", b"k", 2, 2, 1)
    entries.changes([(slice_, plain)], Window(0, 2))
    entries.values([(slice_, plain)], np.array([2], np.int64))


def _read_block() -> None:
    trailer, restarts = b"\x01" + bytes(7), bytes(4)
    place = b"\x00\x05"
    sst_table.decoded([memoryview(b"\x00\x09\x01k" + trailer + b"v" + restarts)])
    sst_table.block_places(memoryview(b"\x00\x09\x02k" + trailer + place + restarts), delta=False)


def _encode_row() -> None:
    columns = [
        {
            "id": number,
            "name": {"O": f"c{number}", "L": f"c{number}"},
            "offset": number - 1,
            "type": {"Tp": tp, "Charset": "utf8mb4", "Collate": "utf8mb4_bin", "Flen": 10, "Decimal": 2},
            "state": t.STATE_PUBLIC,
        }
        for number, tp in enumerate(_TEXTS, 1)
    ]
    primary = {"id": 1, "idx_name": {"O": "p", "L": "p"}, "idx_cols": [{"name": {"O": "c1"}, "offset": 0}],
               "is_primary": True, "state": t.STATE_PUBLIC}  # fmt: skip
    table = parse_table(
        {"id": 1, "name": {"O": "t", "L": "t"}, "cols": columns, "index_info": [primary], "is_common_handle": True}
    )
    encoding = encoding_of(table, new_collations=True)
    texts = [pa.array([text], pa.binary()) for text in _TEXTS.values()]
    encode_values(encoding, dict(enumerate(texts, 1)), 1)
    encode_keys(encoding, 1, texts[:1], 1)
