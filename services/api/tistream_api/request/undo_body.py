"""Parses the body of a request for an undo (docs/restore.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from tistream.errors import InvalidRequest
from tistream.model.ts import MAX_TS
from tistream.restore.table_names import TableNames, distinct, parse_names
from tistream.schema.tidb.create_table import Dialect
from tistream.wire.bulk.restores import WITHOUT_NUL
from tistream_api.request.bodies import read
from tistream_api.request.point_queries import NOW, When, when

TRANSACTIONS_MAX = 100
TABLES_MAX = 100
COLUMNS_MAX = 16  # that a row is chosen by
NAME_MAX = 64  # characters of a database's name
_TEXT_MAX = 600

Text = Annotated[str, Field(max_length=_TEXT_MAX)]


def _scalar(value: Any) -> str | int | float | None:
    """Check that a value is null, a number or a text of at most _TEXT_MAX characters, and return it. Raises
    PydanticCustomError for others, such as a boolean. It is a validator with one error text, because a union type would
    give an error for each of its members."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise PydanticCustomError("scalar", "a value is a string, a number or null")
    if isinstance(value, str) and len(value) > _TEXT_MAX:
        raise PydanticCustomError("scalar", f"a string has at most {_TEXT_MAX} characters")
    return value


Scalar = Annotated[str | int | float | None, PlainValidator(_scalar)]


class _Between(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    low: Text = Field(alias="from")
    high: Text | None = Field(default=None, alias="to")


class UndoBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    start_ts: Annotated[list[Text], Field(min_length=1, max_length=TRANSACTIONS_MAX)] | None = None
    window: _Between | None = None
    tables: Annotated[list[Text], Field(min_length=1, max_length=TABLES_MAX)] | None = None
    where: Annotated[dict[Text, Scalar], Field(min_length=1, max_length=COLUMNS_MAX)] | None = None
    mode: Literal["plan", "sql"] | None = None
    dialect: Literal["tidb", "mysql", "mariadb"] | None = None
    into_database: Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=WITHOUT_NUL)] | None = None


SCHEMA: dict[str, Any] = {
    "start_ts": {
        "type": ["array", "null"],
        "minItems": 1,
        "maxItems": TRANSACTIONS_MAX,
        "items": {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "description": "transactions, by their start_ts; either this or window",
    },
    "window": {
        "type": ["object", "null"],
        "required": ["from"],
        "properties": {"from": {"type": "string"}, "to": {"type": "string", "description": "default: now"}},
        "additionalProperties": False,
        "description": "every transaction with from < commit_ts <= to",
    },
    "tables": {
        "type": ["array", "null"],
        "minItems": 1,
        "maxItems": TABLES_MAX,
        "items": {"type": "string"},
        "description": "only changes of these: shop.orders, shop.*; default: all",
    },
    "where": {
        "type": ["object", "null"],
        "minProperties": 1,
        "maxProperties": COLUMNS_MAX,
        # anyOf, because generators of clients do not know a list of types
        "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
        "description": "only rows that have had all of these values, in the form of events, before or after a change",
    },
    "mode": {"type": ["string", "null"], "enum": ["plan", "sql", None], "description": "sql adds the statements"},
    "dialect": {
        "type": ["string", "null"],
        "enum": [*(one.value for one in Dialect), None],
        "description": "the server that runs the statements; default: tidb",
    },
    "into_database": {
        "type": ["string", "null"],
        "maxLength": NAME_MAX,
        "pattern": WITHOUT_NUL,
        "description": "the database that the statements name; default: each table's own",
    },
}


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """The parsed body of an undo. The transactions are those with the given `start_ts`, or all with a commit_ts in
    (window[0], window[1]]; exactly one of the two is set. If `dialect` is None, the plan has no SQL statements. `where`
    maps columns to values in the form of events and selects rows; None selects every row."""

    start_ts: tuple[int, ...]
    window: tuple[When, When] | None
    names: tuple[TableNames, ...]
    dialect: Dialect | None
    into_database: str | None
    where: Mapping[str, str | int | float | None] | None = None


def undo_request(body: bytes) -> UndoRequest:
    """Parse the body. Raises InvalidRequest, which names the member."""
    found = read(UndoBody, body)
    if (found.start_ts is None) == (found.window is None):
        raise InvalidRequest("give either start_ts or window, and not both", {"parameter": "start_ts"})
    dialect = Dialect(found.dialect or Dialect.TIDB.value) if found.mode == "sql" else None
    if dialect is None and (found.dialect is not None or found.into_database is not None):
        raise InvalidRequest(
            "dialect and into_database need mode sql: set it, or leave them out", {"parameter": "mode"}
        )
    return UndoRequest(
        tuple(sorted({_start_ts(one) for one in found.start_ts or ()})),
        None if found.window is None else _window(found.window),
        tuple(_names(found.tables)),
        dialect,
        found.into_database,
        found.where,
    )


def _start_ts(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MAX_TS:
        raise InvalidRequest(
            f"start_ts {text[:40]!r} is not a ts: events and RowHistory have the start_ts of transactions",
            {"parameter": "start_ts"},
        )
    return int(text)


def _window(given: _Between) -> tuple[When, When]:
    low, high = when("window.from", given.low), when("window.to", given.high or NOW)
    if isinstance(low, int) and isinstance(high, int) and high < low:
        raise InvalidRequest(
            f"window.to {high} lies below window.from {low}: the range is empty", {"parameter": "window"}
        )
    return low, high


def _names(given: list[str] | None) -> list[TableNames]:
    try:
        return distinct(parse_names(one) for one in given or ["*"])
    except ValueError as error:
        raise InvalidRequest(f"tables: {error}", {"parameter": "tables"}) from error
