"""The range of keys of one table to which a comparison of messages is limited. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from tistream.errors import InvalidRequest
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.handle_key import handle_columns

_NUMBERS = frozenset({*t.INTEGERS, t.YEAR, t.FLOAT, t.DOUBLE, t.DECIMAL, t.BIT})
_TIMES = frozenset({t.DATE, t.NEWDATE, t.DATETIME, t.TIMESTAMP})
_NO_NUMBER = "not a number"
_REMEDY = "leave out key_from and key_to, or compare a later range"


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The keys whose `column` is at least `low` and at most `high`; None: no bound. Numbers are compared as numbers,
    members of an ENUM by their numbers, those of a SET and BITs by their bits, other values as texts. `comparable`
    converts a value of a message."""

    column: str
    low: Any
    high: Any
    comparable: Callable[[Any], Any]

    def has(self, key: Mapping[str, Any]) -> bool:
        """Whether a key lies in the range. `key`: the values of the handle key by column, as a message has them. Raises
        InvalidRequest if a message has no such column, or has it in another form, because the table was altered in
        the range of commit_ts: such events are neither inside nor outside."""
        value = key.get(self.column)
        if value is None:
            raise InvalidRequest(
                f"a message has no {self.column} in its key: the table had another key then, or the protocol does not "
                f"mark this key; {_REMEDY}"
            )
        try:
            found = self.comparable(value)
        except ValueError as error:
            raise InvalidRequest(
                f"a message has {self.column} as {value!r}, {error}: the column had another type then, or the protocol "
                f"writes it so; {_REMEDY}"
            ) from error
        return (self.low is None or self.low <= found) and (self.high is None or found <= self.high)


def key_bounds(
    version: TableVersion, key_from: str | None, key_to: str | None, *, dated: bool = True, numbered: bool = True
) -> KeyBounds:
    """The range from `key_from` to `key_to`, both inclusive, of the first column of a table's handle key, in the order
    of the table. `dated`: whether messages have dates and times as SELECT shows them. `numbered`: whether they have the
    numbers of ENUM, SET and BIT. Raises InvalidRequest."""
    columns = handle_columns(version.table)
    if not columns:
        raise InvalidRequest(f"table {'.'.join(version.name)} has no key: leave out key_from and key_to")
    column = columns[0]
    if column.tp == t.DURATION or (column.tp in _TIMES and not dated):
        reason = (
            f"texts of a TIME, as {column.name} is, have another order than its values"
            if column.tp == t.DURATION
            else f"messages of this protocol have the time {column.name} in a form of their own"
        )
        raise InvalidRequest(
            f"{reason}: leave out key_from and key_to, and compare a shorter range of commit_ts",
            {"parameter": "key_to" if key_from is None else "key_from"},
        )
    if column.tp == t.BIT and not numbered:
        raise InvalidRequest(
            f"messages of this protocol have the bits of {column.name} in a form of their own: leave out key_from and "
            "key_to, and compare a shorter range of commit_ts",
            {"parameter": "key_to" if key_from is None else "key_from"},
        )
    comparable, stated = _comparable(column, numbered=numbered)
    low, high = _bound(column, "key_from", key_from, stated), _bound(column, "key_to", key_to, stated)
    if low is not None and high is not None and low > high:
        raise InvalidRequest(
            f"key_from {key_from} is above key_to {key_to}: the range is empty", {"parameter": "key_to"}
        )
    return KeyBounds(column.name, low, high, comparable)


def _comparable(column: Column, *, numbered: bool) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Returns two functions that make a value comparable: one for a value of a message, and one for a value that a
    user states. For an ENUM or a SET, a user states its members or its number."""
    if column.tp in (t.ENUM, t.SET):
        number = _member if column.tp == t.ENUM else _members
        named = partial(number, tuple(column.elems))
        return (_number if numbered else partial(named, numbers=False)), named
    comparable = _number if column.tp in _NUMBERS else _text
    return comparable, comparable


def _member(elems: Sequence[str], value: Any, *, numbers: bool = True) -> Decimal:
    """The number of a member of an ENUM; 0 for "", which is no member. `numbers`: the number itself is taken, too.
    Raises ValueError."""
    text = str(value)
    if text in elems:
        return Decimal(elems.index(text) + 1)
    if not text:
        return Decimal(0)
    if not numbers or not (text.isascii() and text.isdigit()):
        raise ValueError(f"not one of {', '.join(elems)}")
    return Decimal(text)


def _members(elems: Sequence[str], value: Any, *, numbers: bool = True) -> Decimal:
    """The bits of a value of a SET. `numbers`: a number of the bits is taken, too. Raises ValueError."""
    text = str(value)
    names = text.split(",") if text else []
    if all(name in elems for name in names):
        return Decimal(sum({1 << elems.index(name) for name in names}))
    if not numbers or not (text.isascii() and text.isdigit()):
        raise ValueError(f"not of {', '.join(elems)}")
    return Decimal(text)


def _bound(column: Column, name: str, text: str | None, comparable: Callable[[Any], Any]) -> Any:
    try:
        return None if text is None else comparable(text)
    except ValueError as error:
        raise InvalidRequest(f"{name} {text!r} is {error}, as {column.name} is", {"parameter": name}) from error


def _number(value: Any) -> Decimal:
    """The value as a number that has an order. Raises ValueError."""
    try:
        found = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(_NO_NUMBER) from error
    if not found.is_finite():
        raise ValueError(_NO_NUMBER)
    return found


def _text(value: Any) -> str:
    """The value, which must be a text. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("not a text")  # of a message, not of a program
    return value
