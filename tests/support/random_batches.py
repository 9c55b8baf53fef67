"""Random tables with columns of all types, and random batches of their row events."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from support.feed_tables import Key, column, version
from tistream.decode.cells.kinds import Kind, arrow_type, kind_of
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.row_batch import RowBatch

_BYTES = {"Charset": "binary", "Collate": "binary"}
_SHAPES: list[tuple[int, int, dict[str, Any]]] = [
    *((tp, flag, {}) for tp in sorted(t.INTEGERS) for flag in (0, t.FLAG_UNSIGNED)),
    (t.FLOAT, 0, {}),
    (t.DOUBLE, 0, {}),
    (t.DECIMAL, 0, {"Flen": 12, "Decimal": 3}),
    (t.DATE, 128, {}),
    (t.DATETIME, 128, {"Decimal": 6}),
    (t.TIMESTAMP, 128, {"Decimal": 0}),
    (t.DURATION, 128, {"Decimal": 2}),
    (t.YEAR, t.FLAG_UNSIGNED, {"Flen": 4}),
    (t.BIT, t.FLAG_UNSIGNED, {"Flen": 10}),
    (t.ENUM, 0, {"Elems": ["a", "it's", "<b>"]}),
    (t.SET, 0, {"Elems": ["x", "y", "z"]}),
    (t.VARCHAR, 0, {"Flen": 40}),
    (t.STRING, 0, {"Flen": 9}),
    (t.BLOB, 0, {"Charset": "utf8mb4"}),
    (t.MEDIUMBLOB, 128, _BYTES),
    (t.VARCHAR, 128, {"Flen": 40, **_BYTES}),
    (t.STRING, 128, {"Flen": 9, **_BYTES}),
    (t.JSON, 128, {}),
    (t.VECTOR, 128, {}),
]
# Of a float32, with the shortest digits and without exponents, as TiDB writes the numbers of vectors.
_LARGEST = np.format_float_positional(np.float32(3.4028235e38), trim="-")
_LEAST = np.format_float_positional(np.float32(1e-45), trim="-")
_PIECES = ["a", "Zz", "é", "日本", "😀", '"', "\\", "\n", "\t", "\b", "\x00", "\x7f", "<&>", "\u2028", "\u2029",
           "\u00ad", "\u200b", "\U000e0001", "plain text of some length "]  # fmt: skip
_BAD = [b"\xff", b"\xc3", b"\xe2\x80", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80", b"\xf5", b"\xe2\x80\xa8"]


def random_version(rng: random.Random) -> TableVersion:
    """A table of up to 14 columns; most have a key."""
    shapes = rng.choices(_SHAPES, k=rng.randint(1, 14))
    columns = [
        column(f"{rng.choice(['c', 'ß', '<', 'q`'])}{at}", *shape[:2], **shape[2]) for at, shape in enumerate(shapes)
    ]
    names = [one["name"]["O"] for one in columns]
    keys = []
    if rng.random() < 0.8:
        chosen = rng.sample(names, rng.randint(1, min(3, len(names))))
        primary = rng.random() < 0.6
        for one in columns:
            if one["name"]["O"] in chosen:
                one["type"]["Flag"] |= t.FLAG_NOT_NULL | (t.FLAG_PRIMARY if primary else 0)
        keys.append(Key("k", tuple(chosen), primary=primary))
    return version(columns, keys, name=rng.choice(["t", "we`ird 名", "a<b>&"]), database="d\u2028b")


def random_batch(rng: random.Random, of: TableVersion, rows: int) -> RowBatch:
    """Events of all ops.

    Old and new rows stand at random places of the arrays. Updates leave some columns as they are.
    """
    columns = of.table.visible_columns
    handle = handle_columns(of.table)
    room = rows + rng.randint(1, 3)
    ops = rng.choices(["insert", "update", "delete"], k=rows)
    places = [rng.sample(range(room), rows) for _ in range(2)]
    new_at = np.array([-1 if op == "delete" else at for op, at in zip(ops, places[0], strict=True)], np.int64)
    old_at = np.array([-1 if op == "insert" else at for op, at in zip(ops, places[1], strict=True)], np.int64)
    new: list[pa.Array] = []
    old: list[pa.Array] = []
    for one in columns:
        news, olds = ([_value(rng, one) for _ in range(room)] for _ in range(2))
        for op, at, before in zip(ops, new_at.tolist(), old_at.tolist(), strict=True):
            if op == "update" and (one in handle or rng.random() < 0.5):
                olds[before] = news[at]
        kind = arrow_type(kind_of(one, numbered=True))
        new.append(pa.array(news, kind))
        old.append(pa.array(olds, kind))
    ts = np.sort(np.array([rng.getrandbits(62) for _ in range(rows)], np.int64))
    raw = pa.array([rng.randbytes(12) for _ in range(rows)], pa.binary())
    return RowBatch(of, 100, columns, handle, new, old, new_at, old_at, ts, ts - 1, np.zeros(rows, np.int64), raw,
                    np.arange(rows))  # fmt: skip


def text(rng: random.Random) -> str:
    """Letters of all kinds, and what JSON escapes."""
    return "".join(rng.choices(_PIECES, k=rng.randrange(6)))


def _value(rng: random.Random, one: Column) -> Any:  # noqa: PLR0911  # a kind each
    if not one.not_null and rng.random() < 0.2:
        return None
    match kind_of(one, numbered=True):
        case Kind.INT:
            return rng.getrandbits(64) - (1 << 63) >> rng.randrange(64)
        case Kind.UINT | Kind.SET_NUMBER | Kind.ENUM_NUMBER:
            return rng.getrandbits(64) >> rng.randrange(64)
        case Kind.FLOAT:
            return _finite("<f", rng.randbytes(4)) if rng.random() < 0.5 else _round_number(rng, 30)
        case Kind.DOUBLE:
            return _finite("<d", rng.randbytes(8)) if rng.random() < 0.5 else _round_number(rng, 300)
        case Kind.DECIMAL:
            return f"{rng.choice(['', '-'])}{rng.randrange(10**9)}.{rng.randrange(1000):03}"
        case Kind.TIME:
            return rng.choice(["0000-00-00", "2024-02-29", "2024-02-29 12:34:56.000001"])
        case Kind.DURATION:
            return rng.choice(["00:00:00.00", "-838:59:59.25", "12:00:00.10"])
        case Kind.BINARY:
            return b"".join(rng.choice([text(rng).encode(), rng.choice(_BAD)]) for _ in range(rng.randrange(4)))
        case Kind.JSON:
            return json.dumps(_document(rng, 0), ensure_ascii=False, separators=(",", ":"))
        case Kind.VECTOR:
            return (
                "["
                + ",".join(
                    rng.choices(
                        ["0", "1.5", "-100000000000000000000", "0.000000123", _LARGEST, _LEAST], k=rng.randrange(4)
                    )
                )
                + "]"
            )
        case _:
            return text(rng)


def _finite(form: str, data: bytes) -> float:
    (value,) = struct.unpack(form, data)
    return float(value) if np.isfinite(value) else 0.0


def _round_number(rng: random.Random, power: int) -> float:
    return rng.choice([0.0, 1.0, -2.5, 10.0 ** rng.randint(-power, power), float(rng.randrange(10**6))])


def _document(rng: random.Random, depth: int) -> Any:
    chance = rng.random()
    if depth < 3 and chance < 0.3:
        return [_document(rng, depth + 1) for _ in range(rng.randrange(4))]
    if depth < 3 and chance < 0.6:
        return {text(rng): _document(rng, depth + 1) for _ in range(rng.randrange(4))}
    return rng.choice([None, True, False, 1.5, -3, 1 << 63, text(rng)])
