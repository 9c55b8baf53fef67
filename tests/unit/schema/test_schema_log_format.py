import struct
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from support.schema_records import DONE, database, drop, job, job_gone, table, table_info, version
from tistream.errors import CorruptObject
from tistream.model.ids import TenantKey
from tistream.schema import log_format
from tistream.schema.log_format import BaseHead, LogObject
from tistream.schema.records import BaseState, JobMark, Record, VersionChange
from tistream_cli.commands.describe import describe

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


@settings(deadline=None)
@given(st.data())
def test_any_flipped_bit_is_found(data: st.DataObject) -> None:
    body = bytearray(log_format.encode(LOG))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptObject):
        log_format.decode("k", bytes(body))


@settings(deadline=None)
@given(st.integers(0, 200))
def test_a_cut_object_is_found(length: int) -> None:
    with pytest.raises(CorruptObject):
        log_format.decode("k", log_format.encode(LOG)[:length])


def test_an_unknown_version_is_refused() -> None:
    body = log_format.encode(LOG)
    newer = body[:4] + struct.pack("<II", 5, zlib.crc32(body[12:])) + body[12:]
    with pytest.raises(CorruptObject, match="version 5; this program knows 1 to 4"):
        log_format.decode("k", newer)


RESTATED = (
    Record(22, 0, BaseState((3, 100, 2**62), (JobMark(7, settled=True, before_history=False),))),
    Record(22, 0, VersionChange(57)),
)
BASE = LogObject(
    TenantKey("7", "acme"),
    9,
    23,
    40,
    "abcdef",
    (*RESTATED, *RECORDS[5:]),
    BaseHead(base_ts=22, restated=2, begin=812, log_id="a1", snapshot_ts=10),
)


def test_a_base_there_and_back() -> None:
    body = log_format.encode(BASE)
    assert log_format.decode("k", body) == BASE
    assert struct.unpack_from("<I", body, 4) == (2,)
    assert struct.unpack_from("<I", log_format.encode(LOG), 4) == (1,)  # older programs read what is no base


def test_what_a_base_adds_is_what_lies_above_the_object_before_it() -> None:
    assert BASE.new_records == RECORDS[6:]
    assert LOG.new_records == RECORDS


def test_a_base_with_an_unknown_head_is_damaged() -> None:
    (_, *records) = zstandard.decompress(log_format.encode(BASE)[12:]).split(b"\n")
    body = zstandard.compress(b"\n".join([b'{"cluster_id":"7","tenant_id":"acme"}', *records]))
    damaged = b"TSSL" + struct.pack("<II", 2, zlib.crc32(body)) + body
    with pytest.raises(CorruptObject, match="KeyError"):
        log_format.decode("k", damaged)


def test_a_base_is_described() -> None:
    found = describe("k", log_format.encode(BASE), 20)
    assert found.facts["base_ts"] == 22
    assert found.facts["restated"] == "2 records, of 812"
