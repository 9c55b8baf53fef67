"""Partitions of rows: TiCDC's for every rule of the golden set, and those of a slow reference for random rows."""

from __future__ import annotations

import json
import math
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from support import golden_kafka
from support.effort import seeds
from support.feed_batches import event_keys, golden_windows
from support.feed_tables import Change, Key, batch, column, version
from support.plain_json import document
from tistream.errors import InvalidRequest
from tistream.schema.tidb import table as t
from tistream_changefeed.dispatch.partition_rule import PartitionBy, PartitionRule, UnfitTable
from tistream_changefeed.rows.row_batch import RowBatch

COUNTS = (3, 16)
NOT_NULL = t.FLAG_NOT_NULL


def golden_batches() -> Iterator[RowBatch]:
    for numbered in (False, True):
        for window in golden_windows(numbered=numbered):
            yield from window.rows


def rule_of(name: str, one: RowBatch) -> PartitionRule:
    """The rule of a golden event, by its name there."""
    kind, _, of = name.partition(":")
    if kind == "columns":
        columns = [column.name for column in one.columns]
        return PartitionRule.named(kind, columns=columns[-1:] if of == "last" else columns)
    return PartitionRule.named(kind, index=of or None)


def test_every_golden_event_has_ticdcs_partitions() -> None:
    lines = golden_kafka.rows()
    differing = [line["events"] for line in golden_kafka.lines("differs")]
    other_values = {number for found in differing for low, high in found for number in range(low, high + 1)}
    seen: set[str] = set()
    for one in golden_batches():
        found = [lines[key] for key in event_keys(one)]
        for name in found[0]["partitions"]:
            rule = rule_of(name, one)
            hashes = rule.hashes(one)
            for event, line in enumerate(found):
                if line["i"] in other_values and name.startswith("columns"):
                    continue
                *partitions, key = line["partitions"][name]
                context = (name, line["i"], line["table"])
                assert [int(hashes[event] % count) for count in COUNTS] == partitions, context
                if rule.by is not PartitionBy.TABLE:
                    assert str(hashes[event]) == key, context
            seen.add(name)
    assert seen == {"table", "ts", "index-value", "columns:last", "columns:all"} | {
        f"index-value:{name}" for name in ("PRIMARY", "a", "ab", "ub")
    }


# --- against a slow reference --------------------------------------------------------------------------------------

ENUM, SET = ("a", "b", "ä"), ("x", "y", "z")
COLUMNS = {
    "i": column("i"),
    "U": column("U", flag=t.FLAG_UNSIGNED),
    "f": column("f", t.FLOAT),
    "d": column("d", t.DOUBLE),
    "s": column("s", t.VARCHAR),
    "b": column("b", t.BLOB, Charset="binary", Collate="binary"),
    "e": column("e", t.ENUM, Elems=ENUM),
    "set": column("set", t.SET, Elems=SET),
    "j": column("j", t.JSON),
}


DOCUMENT = {"a:,": [1, 2.5, None, '\\"x, y: z'], "": {"\b": "\f\x1f\u2028 \u2029"}, "b": {"c": [[], 'q"', "\\"]}}
Draw = Callable[[random.Random], Any]
VALUES: dict[str, Draw] = {
    "i": lambda rng: rng.choice([0, -1, 7, -(1 << 63), rng.randrange(1 << 64) - (1 << 63)]),
    "U": lambda rng: rng.choice([0, 9, (1 << 64) - 1, rng.randrange(1 << 64)]),
    "f": lambda rng: rng.choice(
        [0.0, -0.0, 1.5, 0.1, 3e38, math.inf, math.nan, struct.unpack("f", rng.randbytes(4))[0]]
    ),
    "d": lambda rng: rng.choice(
        [-0.0, -2.25, 1e300, 5e-324, 123456.789, -math.inf, struct.unpack("d", rng.randbytes(8))[0]]
    ),
    "s": lambda rng: rng.choice(
        ["", "x", "名", "0123456789abcdef", "".join(map(chr, rng.choices(range(32, 900), k=20)))]
    ),
    "b": lambda rng: rng.randbytes(rng.randrange(20)),
    "e": lambda rng: rng.choice(["", *ENUM]),
    "set": lambda rng: ",".join(one for one in SET if rng.random() < 0.5),
    "j": lambda rng: json.dumps(rng.choice([DOCUMENT, [], 1, "a,b", None]), separators=(",", ":"), ensure_ascii=False),
}


def plain(found: Any) -> str:
    """A float with its shortest digits and without an exponent."""
    return np.format_float_positional(found, unique=True, trim="-") if math.isfinite(found) else "0"


TEXTS: dict[str, Callable[[Any], bytes]] = {
    "f": lambda found: plain(np.float32(found)).encode(),
    "d": lambda found: plain(np.float64(found)).encode(),
    "b": bytes,
    "e": lambda found: str(ENUM.index(found) + 1 if found else 0).encode(),
    "set": lambda found: str(sum(1 << SET.index(one) for one in found.split(",") if one)).encode(),
    "j": lambda found: document(found).encode(),
}


def text(name: str, found: Any) -> bytes:
    """The text of a value that TiCDC hashes."""
    return TEXTS[name](found) if name in TEXTS else str(found).encode()


@pytest.mark.parametrize("seed", seeds(10, 500))
def test_random_rows_have_the_hashes_of_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(sorted(COLUMNS), rng.randrange(1, len(COLUMNS) + 1))
    of = version([COLUMNS[name] for name in names], name="Tä", database="D")

    def row() -> dict[str, Any]:
        return {name: None if rng.random() < 0.2 else VALUES[name](rng) for name in names}

    changes = [Change(*rng.choice([(None, row()), (row(), None), (row(), row())])) for _ in range(30)]
    hashed = rng.sample(names, rng.randrange(1, len(names) + 1))
    rule = PartitionRule.named("columns", columns=[name.upper() for name in hashed])
    expected = []
    for change in changes:
        known = zlib.crc32("DTä".encode())
        shown = change.new or change.old or {}
        for name in hashed:
            if shown[name] is not None:
                known ^= zlib.crc32(name.encode() + text(name, shown[name]))
        expected.append(known)
    assert rule.hashes(batch(of, changes)).tolist() == expected
    assert rule.partitions(batch(of, changes), 7).tolist() == [known % 7 for known in expected]


# --- rules -----------------------------------------------------------------------------------------------------------

TABLE = version([column("id", flag=NOT_NULL), column("u")], [Key("PRIMARY", ("id",), primary=True), Key("Uk", ("u",))])


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("default", PartitionBy.TABLE),
        ("table", PartitionBy.TABLE),
        ("what", PartitionBy.TABLE),
        ("TS", PartitionBy.TS),
        ("rowid", PartitionBy.INDEX),
    ],
)
def test_rules_are_found_by_ticdcs_names(name: str, by: PartitionBy) -> None:
    assert PartitionRule.named(name).by is by
    assert PartitionRule.known(name) == (name != "what")


def test_a_rule_refuses_what_it_does_not_use() -> None:
    with pytest.raises(InvalidRequest, match="uses no index"):
        PartitionRule.named("ts", index="a")
    with pytest.raises(InvalidRequest, match="uses no columns"):
        PartitionRule.named("table", columns=["a"])
    with pytest.raises(InvalidRequest, match="needs a list of columns"):
        PartitionRule.named("columns")


def test_an_index_or_column_that_a_table_lacks_is_named() -> None:
    with pytest.raises(UnfitTable, match=r"table d\.t has no unique index 'nope'"):
        PartitionRule.named("index-value", index="nope").hashed(TABLE)
    with pytest.raises(UnfitTable, match=r"table d\.t has no column 'x'"):
        PartitionRule.named("columns", columns=["id", "x"]).hashed(TABLE)


def test_a_virtual_column_cannot_be_hashed() -> None:
    virtual = {**column("v"), "generated_expr_string": "`id` + 1", "generated_stored": False}
    of = version([column("id"), virtual])
    with pytest.raises(UnfitTable, match=r"'v' of table d\.t is virtual"):
        PartitionRule.named("columns", columns=["v"]).hashed(of)


def test_an_index_hashes_its_own_columns_alone() -> None:
    one = batch(TABLE, [Change(None, {"id": 1, "u": 5}), Change(None, {"id": 2, "u": 5})])
    by_index = PartitionRule.named("index-value", index="uK").hashes(one)
    assert by_index[0] == by_index[1] == zlib.crc32(b"dt") ^ zlib.crc32(b"u5")
    by_handle = PartitionRule.named("index-value").hashes(one)
    assert by_handle.tolist() == [zlib.crc32(b"dt") ^ zlib.crc32(b"id%d" % at) for at in (1, 2)]
