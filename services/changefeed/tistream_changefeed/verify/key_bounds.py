"""The range of keys of one table to which a comparison of messages is limited. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from tistream.errors import InvalidRequest
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.handle_key import handle_columns

_NUMBERS = frozenset({*t.INTEGERS, t.YEAR, t.FLOAT, t.DOUBLE, t.DECIMAL})


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The keys whose `column` is at least `low` and at most `high`; None: no bound. Numbers are compared as numbers,
    other values as texts."""

    column: str
    low: Any
    high: Any
    comparable: Callable[[Any], Any]

    def has(self, key: Mapping[str, Any]) -> bool:
        """Whether a key lies in the range. `key`: the values of the handle key by column, as a message has them."""
        value = key.get(self.column)
        if value is None:
            return False
        found = self.comparable(value)
        return (self.low is None or self.low <= found) and (self.high is None or found <= self.high)


def key_bounds(version: TableVersion, key_from: str | None, key_to: str | None) -> KeyBounds:
    """The range from `key_from` to `key_to`, both inclusive, of the first column of a table's handle key, in the order
    of the table. Raises InvalidRequest."""
    columns = handle_columns(version.table)
    if not columns:
        raise InvalidRequest(f"table {'.'.join(version.name)} has no key: leave out key_from and key_to")
    column = columns[0]
    comparable = _number if column.tp in _NUMBERS else str
    low, high = _bound(column, "key_from", key_from, comparable), _bound(column, "key_to", key_to, comparable)
    if low is not None and high is not None and low > high:
        raise InvalidRequest(
            f"key_from {key_from} is above key_to {key_to}: the range is empty", {"parameter": "key_to"}
        )
    return KeyBounds(column.name, low, high, comparable)


def _bound(column: Column, name: str, text: str | None, comparable: Callable[[Any], Any]) -> Any:
    try:
        return None if text is None else comparable(text)
    except InvalidOperation as error:
        raise InvalidRequest(f"{name} {text!r} is not a number, as {column.name} is", {"parameter": name}) from error


def _number(value: Any) -> Decimal:
    return Decimal(str(value))
