"""A schema_snap is read piece by piece: it says what it says as a whole, and little is held, whatever is in it."""
# Attack: a `schema_snap` with millions of empty members

from __future__ import annotations

import pathlib
import random
import re
import tracemalloc
from collections.abc import Callable

import orjson
import pytest

from tistream.clock import ManualClock
from tistream.errors import CorruptObject
from tistream.model.ids import TenantKey
from tistream.schema.tidb import snapshot_cuts
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.in_pieces import PIECE_BYTES
from tistream_meta.tenants import tenant_start
from tistream_meta.tenants.pool_frontier import Frontier
from tistream_meta.tenants.snapshot import SnapshotFacts, parse
from tistream_meta.tenants.tenant_start import TenantStarts

GOLDEN = pathlib.Path(__file__).parents[2] / "data/golden/everything/objects/data_change_buffer/cluster-7/Tenant-acme"
BAD, GOOD = TenantKey("7", "bad"), TenantKey("7", "good")
HEAD = b'{"version":1,"snapshot_ts":42,"databases":['
SMALL = HEAD + b"]}"


def keep(found: dict[TenantKey, SnapshotFacts]) -> Callable[[TenantKey, SnapshotFacts, Frontier], None]:
    return lambda tenant, facts, _: found.__setitem__(tenant, facts)


def facts_of(body: bytes, cuts: list[int]) -> SnapshotFacts:
    return parse("snap", [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)])


def as_a_whole(body: bytes) -> tuple[int, ...]:
    found = set()
    for database in orjson.loads(body)["databases"]:
        for table in database["tables"] or ():
            found |= {table["id"]}
            found |= {one["id"] for one in (table.get("partition") or {}).get("definitions") or ()}
    return tuple(sorted(found))


def hard_to_cut() -> bytes:
    """Brackets, quotes and backslashes in strings; objects and lists where none are expected."""
    text = 'a"b\\"{[\\\\"}]\\', "\\\\", "\\", '"', "}{][", "\u6f22\U0001f600"
    tables = [{"id": 5 + at, text[at % 6]: text[(at + 1) % 6], "x": [[{"y": [{}]}], text]} for at in range(40)]
    tables[3]["partition"] = {"definitions": [{"id": 900, "name": {"O": "{"}}, {"id": 901}], "expr": '"'}
    info = {"id": 1, "db_name": {"O": "}\\", "L": '{"'}, "more": [{"z": {}}, [[{"id": 7}]]]}
    databases = [{"db_info": info, "tables": tables, "other": [{"id": 77}]}, {"db_info": {"id": 2}, "tables": None}]
    return orjson.dumps({"x": [[[[[{"id": 8}]]]], {}], "version": 1, "snapshot_ts": 42, "databases": databases})


@pytest.mark.parametrize("body", [hard_to_cut(), (GOLDEN / "schema_snap").read_bytes()], ids=["hard", "golden"])
def test_however_it_is_cut_it_says_what_it_says_as_a_whole(body: bytes) -> None:
    expected, rng = as_a_whole(body), random.Random(1)
    for count in (0, 1, 10, 100, 1_000):
        cuts = sorted(rng.randrange(len(body)) for _ in range(count))
        assert facts_of(body, cuts).physical_ids == expected
    if len(body) < 10_000:
        assert facts_of(body, list(range(1, len(body)))).physical_ids == expected


@pytest.mark.parametrize("seed", range(4))
def test_what_is_no_json_as_a_whole_is_refused_and_nothing_else(seed: int) -> None:
    body, rng = hard_to_cut(), random.Random(seed)
    for _ in range(300):
        at, spoilt = rng.randrange(len(body)), bytearray(body)
        if rng.random() < 0.5:
            spoilt[at] = rng.choice(b'{}[]",:\\0a')
        else:
            del spoilt[at]
        told = whole_or_none(bytes(spoilt))
        try:
            found: object = facts_of(bytes(spoilt), [at]).physical_ids
        except CorruptObject as refused:
            found = None if re.search("not (valid|a) JSON", refused.reason) or told is None else told
        assert found == told


def whole_or_none(body: bytes) -> object:
    """The ids, or why there are none; None: it is no JSON."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    try:
        return as_a_whole(body)
    except (KeyError, TypeError, AttributeError) as error:
        return str(error)


def one_table(inside: bytes) -> bytes:
    return HEAD + b'{"db_info":{"id":1},"tables":[{"id":5,"x":[' + inside + b"]}]}]}"


HOSTILE = {
    "many-tables": (lambda: HEAD + b'{"db_info":{"id":1},"tables":[' + b"{}," * 2_000_000 + b"{}]}]}", "tables"),
    "one-table": (lambda: one_table(b"{}," * 2_500_000 + b"{}"), "a part of"),
    "one-long-table": (lambda: one_table(b'"' + b"x" * (33 << 20) + b'"'), "in one table"),
    "no-tables": (lambda: b'{"x":[' + b"{}," * 2_000_000 + b"{}]," + SMALL[1:], "values"),
    "a-long-string": (lambda: b'{"x":"' + b"x" * (17 << 20) + b'",' + SMALL[1:], "beside its tables"),
    "no-end": (lambda: HEAD + b"[" * (5 << 20), "values"),
}


@pytest.mark.parametrize("make", HOSTILE)
def test_little_is_held_of_a_hostile_one_and_another_tenant_starts(monkeypatch: pytest.MonkeyPatch, make: str) -> None:
    monkeypatch.setattr(snapshot_cuts, "PARTS_MAX", 50_000)  # all of them take longer
    body, told = HOSTILE[make][0](), HOSTILE[make][1]
    assert len(body) > PIECE_BYTES
    objects, clock, found, missing = Counting(), ManualClock(1_000), {}, {}
    objects.put(layout.schema_snap(BAD), body)
    objects.put(layout.schema_snap(GOOD), SMALL)
    starts = TenantStarts(objects, clock, 2_000)
    tracemalloc.start()
    try:
        for _ in range(5):
            starts.look([BAD, GOOD], keep(found), missing.__setitem__)
            clock.advance(5_000)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert found[GOOD].snapshot_ts == 42
    assert told in missing[BAD]
    assert layout.schema_snap(BAD) in missing[BAD]
    assert objects.read < 2 * len(body) + (8 << 20), "it is not read again and again"
    objects.put(layout.schema_snap(BAD), SMALL)
    starts.look([BAD], keep(found), missing.__setitem__)
    assert found[BAD].snapshot_ts == 42


class Counting(MemoryObjectStore):
    """How many bytes of BAD's snapshot were read. `meanwhile` runs before each range of it."""

    read = 0
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.meanwhile()
        self.read += length
        return super().get_range(key, start, length)

    def get(self, key: str) -> bytes:
        assert not key.endswith("schema_snap"), "an object that outsiders wrote is not read whole"
        return super().get(key)


def large(tables: int) -> bytes:
    some = [b'{"id":%d,"comment":"%b"}' % (one, b"x" * 4_000) for one in range(1, tables + 1)]
    return HEAD + b'{"db_info":{"id":1},"tables":[' + b",".join(some) + b"]}]}"


def test_an_honest_one_is_read_however_large_it_is() -> None:
    objects, found, missing = Counting(), {}, {}
    objects.put(layout.schema_snap(BAD), large(5_000))
    tracemalloc.start()
    try:
        TenantStarts(objects, ManualClock(1_000), 2_000).look([BAD], keep(found), missing.__setitem__)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()
    assert found[BAD] == SnapshotFacts(42, tuple(range(1, 5_001)))
    assert missing == {}


def test_one_that_changes_while_it_is_read_is_read_again() -> None:
    objects, clock, found, missing = Counting(), ManualClock(1_000), {}, {}
    name = layout.schema_snap(BAD)
    objects.put(name, large(2_000))
    starts = TenantStarts(objects, clock, 2_000)
    objects.meanwhile = lambda: objects.put(name, large(2_001))
    starts.look([BAD], keep(found), missing.__setitem__)
    assert found == {}
    assert name in missing[BAD]
    objects.meanwhile = lambda: None
    clock.advance(5_000)
    starts.look([BAD], keep(found), missing.__setitem__)
    assert len(found[BAD].physical_ids) == 2_001


def test_one_of_gigabytes_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_start, "BYTES_MAX", 5 << 20)
    objects, found, missing = Counting(), {}, {}
    objects.put(layout.schema_snap(BAD), large(2_000))
    TenantStarts(objects, ManualClock(1_000), 2_000).look([BAD], keep(found), missing.__setitem__)
    assert objects.read == 0
    assert "no more than 5242880 are read" in missing[BAD]


def test_a_small_one_is_refused_with_the_same_words_as_before() -> None:
    with pytest.raises(CorruptObject, match="table id -1"):
        parse("snap", one_table(b"").replace(b'"id":5', b'"id":-1'))
