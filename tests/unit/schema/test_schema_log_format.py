import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.schema_records import DONE, database, drop, job, job_gone, table, table_info, version
from tistream.errors import CorruptObject
from tistream.model.ids import TenantKey
from tistream.schema import log_format
from tistream.schema.log_format import LogObject

RECORDS = (
    database(20, 1, "d"),
    database(20, 2, None),
    table(21, 1, table_info(100, "日本\n\"t'", ["id", "v"])),
    drop(22, 1, 100),
    version(22, 57),
    job(23, 7, 5, DONE, table_id=100, query="alter table `a`\nadd column x int"),
    job_gone(24, 7),
)
LOG = LogObject(TenantKey("7", "acme"), 3, 10, 30, "abcdef", RECORDS)


def test_there_and_back() -> None:
    assert log_format.decode("k", log_format.encode(LOG)) == LOG
    empty = LogObject(TenantKey("7", "acme"), 4, 30, 40, "abcdef", ())
    assert log_format.decode("k", log_format.encode(empty)) == empty


def test_the_same_object_gives_the_same_bytes() -> None:
    assert log_format.encode(LOG) == log_format.encode(log_format.decode("k", log_format.encode(LOG)))


@given(st.data())
def test_any_flipped_bit_is_found(data: st.DataObject) -> None:
    body = bytearray(log_format.encode(LOG))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptObject):
        log_format.decode("k", bytes(body))


@given(st.integers(0, 200))
def test_a_cut_object_is_found(length: int) -> None:
    with pytest.raises(CorruptObject):
        log_format.decode("k", log_format.encode(LOG)[:length])


def test_an_unknown_version_is_refused() -> None:
    body = log_format.encode(LOG)
    newer = body[:4] + struct.pack("<II", 3, zlib.crc32(body[12:])) + body[12:]
    with pytest.raises(CorruptObject, match="version 3; this program knows 1 and 2"):
        log_format.decode("k", newer)
