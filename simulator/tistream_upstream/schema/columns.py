"""Column types, and random values of them. Pure.

The values of a column are drawn from a list that is made once. Each value has its cell and its JSON text in API events
(design.md 5), so that no cells are encoded while the cluster runs.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson

from tistream.encode.json_binary import json_cell
from tistream.schema.tidb import table as types
from tistream_upstream.schema import codec

Cell = tuple[bytes | None, bytes]
"""A value as its cell in row format v2 (None: NULL), and as its JSON text."""

NULL: Cell = (None, b"null")
POOL = 64
_NOT_NULL = 1
_BINARY = 128
_WORDS = [
    "amber",
    "birch",
    "cedar",
    "dune",
    "ember",
    "fjord",
    "grove",
    "heath",
    "inlet",
    "jade",
    "knoll",
    "lagoon",
    "mesa",
    "north",
    "oasis",
    "prairie",
]
_STRANGE = ("", " ", "'", '"\\', "naïve", "日本語", "😀 emoji", "tab\tnew\nline", "ß", "%_")
_ELEMS = ("new", "paid", "shipped", "done")


@dataclass(frozen=True, slots=True)
class FieldType:
    """TiDB's FieldType, the type of a column as in TableInfo."""

    tp: int
    flag: int = 0
    flen: int = -1
    decimal: int = 0
    charset: str = "binary"
    elems: tuple[str, ...] | None = None

    def to_json(self, *, not_null: bool = False) -> dict[str, Any]:
        """Convert to the members that the type has in the JSON of ColumnInfo."""
        collate = "binary" if self.charset == "binary" else f"{self.charset}_bin"
        return {
            "Tp": self.tp,
            "Flag": self.flag | (_NOT_NULL if not_null else 0),
            "Flen": self.flen,
            "Decimal": self.decimal,
            "Charset": self.charset,
            "Collate": collate,
            "Elems": None if self.elems is None else list(self.elems),
            "ElemsIsBinaryLit": None,
            "Array": False,
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """A column type: its SQL name, how values are drawn and encoded, and a default value with its text."""

    sql: str
    type: FieldType
    draw: Callable[[random.Random], Any]
    cell: Callable[[Any], bytes]
    shown: Callable[[Any], Any]
    default: Any = None  # a value; None: NULL is the only default
    default_text: str | None = None

    def encode(self, value: Any) -> Cell:
        """Encode a value as its cell and its JSON text. A value of None is NULL."""
        if value is None:
            return NULL
        return self.cell(value), orjson.dumps(self.shown(value), option=orjson.OPT_SORT_KEYS)

    def pool(self, rng: random.Random, *, nullable: bool) -> tuple[Cell, ...]:
        """Draw POOL random values. Some of them are NULL if the column is nullable."""
        drawn = [self.encode(self.draw(rng)) for _ in range(POOL)]
        if nullable:
            for at in rng.sample(range(POOL), 6):
                drawn[at] = NULL
        return tuple(drawn)


def _same(value: Any) -> Any:
    return value


def _text_cell(value: str) -> bytes:
    return value.encode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _integer(bits: int) -> Callable[[random.Random], int]:
    edge = 1 << bits - 1

    def draw(rng: random.Random) -> int:
        if rng.random() < 0.1:
            return rng.choice([-edge, edge - 1, 0, -1])
        return rng.randrange(-edge, edge) >> rng.randrange(bits)

    return draw


def _words(low: int, high: int) -> Callable[[random.Random], str]:
    def draw(rng: random.Random) -> str:
        if rng.random() < 0.1:
            return rng.choice(_STRANGE)
        return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(low, high)))

    return draw


def _money(rng: random.Random) -> Decimal:
    return Decimal(rng.choice([0, 1, -1, 10**12 - 1, rng.randrange(-(10**9), 10**12)])).scaleb(-2)


def _double(rng: random.Random) -> float:
    return rng.choice([0.5, -1.25, 1e-7, rng.uniform(-1e6, 1e6), rng.gauss(0, 1)])


def _moment(micros: int) -> Callable[[random.Random], datetime]:
    def draw(rng: random.Random) -> datetime:
        micro = rng.randrange(10**6) // micros * micros
        return datetime(2000, 1, 1) + timedelta(seconds=rng.randrange(10**9), microseconds=micro)

    return draw


def _moment_text(digits: int) -> Callable[[datetime], str]:
    def shown(value: datetime) -> str:
        text = value.strftime("%Y-%m-%d %H:%M:%S.%f")
        return text[: 20 + digits] if digits else text[:19]

    return shown


def _document(rng: random.Random) -> Any:
    tags = [rng.choice(_WORDS) for _ in range(rng.randint(0, 3))]
    whole = {"k": rng.randrange(1 << rng.choice([4, 40, 62])), "ok": rng.random() < 0.5, "tags": tags}
    nested = {"a": {"b": [1, 2.5, None, "x"], "": rng.gauss(0, 1)}}
    return rng.choice([whole, nested, tags, "text", 7, -1.5, True, {}])


def _choices(rng: random.Random) -> int:
    return rng.randrange(1 << len(_ELEMS))


def _set_text(bits: int) -> str:
    return ",".join(name for at, name in enumerate(_ELEMS) if bits >> at & 1)


INT_TYPE = FieldType(types.LONG, 0, 11)
BIGINT_TYPE = FieldType(types.LONGLONG, 0, 20)
_BLOB_FLEN = 65535

KINDS: dict[str, Kind] = {
    "int": Kind("int", INT_TYPE, _integer(32), codec.int_cell, _same, 7, "7"),
    "bigint": Kind("bigint", BIGINT_TYPE, _integer(64), codec.int_cell, str, -(1 << 40), str(-(1 << 40))),
    "tinyint": Kind("tinyint", FieldType(types.TINY, 0, 4), _integer(8), codec.int_cell, _same, -3, "-3"),
    "ubigint": Kind(
        "bigint unsigned",
        FieldType(types.LONGLONG, types.FLAG_UNSIGNED, 20),
        lambda rng: rng.getrandbits(64) >> rng.randrange(64),
        codec.uint_cell,
        str,
    ),
    "decimal": Kind(
        "decimal(14,2)",
        FieldType(types.DECIMAL, 0, 14, 2),
        _money,
        lambda value: codec.decimal_cell(value, 14, 2),
        lambda value: f"{value:.2f}",
        Decimal("0.50"),
        "0.50",
    ),
    "varchar": Kind(
        "varchar(100)", FieldType(types.VARCHAR, 0, 100, 0, "utf8mb4"), _words(1, 8), _text_cell, _same, "none", "none"
    ),
    "text": Kind("text", FieldType(types.BLOB, 0, _BLOB_FLEN, 0, "utf8mb4"), _words(4, 30), _text_cell, _same),
    "datetime": Kind(
        "datetime(3)", FieldType(types.DATETIME, _BINARY, 23, 3), _moment(1000), codec.time_cell, _moment_text(3)
    ),
    "timestamp": Kind(
        "timestamp(6)", FieldType(types.TIMESTAMP, _BINARY, 26, 6), _moment(1), codec.time_cell, _moment_text(6)
    ),
    "date": Kind(
        "date",
        FieldType(types.DATE, _BINARY, 10),
        lambda rng: datetime(1970, 1, 1) + timedelta(days=rng.randrange(30_000)),
        codec.time_cell,
        lambda value: value.strftime("%Y-%m-%d"),
    ),
    "double": Kind("double", FieldType(types.DOUBLE, 0, 22, -1), _double, codec.float_cell, _same),
    "json": Kind("json", FieldType(types.JSON, _BINARY, 4294967295), _document, json_cell, _same),
    "blob": Kind(
        "blob", FieldType(types.BLOB, _BINARY, _BLOB_FLEN), lambda rng: rng.randbytes(rng.randrange(40)), bytes, _base64
    ),
    "enum": Kind(
        "enum('new','paid','shipped','done')",
        FieldType(types.ENUM, 0, 7, 0, "utf8mb4", _ELEMS),
        lambda rng: rng.randint(1, 4),
        codec.uint_cell,
        lambda value: _ELEMS[value - 1],
        1,
        "new",
    ),
    "set": Kind(
        "set('new','paid','shipped','done')",
        FieldType(types.SET, 0, 21, 0, "utf8mb4", _ELEMS),
        _choices,
        codec.uint_cell,
        _set_text,
    ),
    "year": Kind("year", FieldType(types.YEAR, 32 | 64, 4), lambda rng: rng.randint(1901, 2155), codec.int_cell, _same),
}
