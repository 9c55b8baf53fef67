"""Keys of RawKV and their table ids, beside keys of TiDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tistream.model import raw_row
from tistream.model.tidb_key import KeyKind, key_parts

ROW = b"t" + (1 << 63 | 9).to_bytes(8, "big") + b"_r" + (1 << 63 | 4).to_bytes(8, "big")


@pytest.mark.parametrize("keyspace", [0, 5, 0x010203, raw_row.KEYSPACE_MAX])
@pytest.mark.parametrize("user", [b"", b"k", b"_r" * 20, bytes(19), b"\xff" * 300])
def test_a_raw_key_has_the_table_id_of_its_keyspace(keyspace: int, user: bytes) -> None:
    key = raw_row.prefix(keyspace) + user
    parts = key_parts(pa.array([b"m1", key, ROW, b"r\0\0", key], pa.binary()))
    assert parts.kind.tolist() == [KeyKind.META, KeyKind.RAW, KeyKind.RECORD, KeyKind.OTHER, KeyKind.RAW]
    assert parts.table_id.tolist() == [0, raw_row.table_id(keyspace), 9, 0, raw_row.table_id(keyspace)]
    assert not parts.exact[1]
    assert raw_row.keyspace_of(raw_row.table_id(keyspace)) == keyspace
