"""The query parameters of reads at a point in time (docs/points-in-time.md), as models for the OpenAPI document.

Every field is text. `parsed` converts the raw query string instead of the fields, because only the raw string shows
unknown and repeated parameters. Nothing is guessed: an unknown, repeated, empty or malformed parameter is a 400 that
names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

import orjson
from pydantic import BaseModel, ConfigDict, Field

from tistream.errors import InvalidRequest
from tistream.filters.event_choice import PARAMETERS, EventChoice
from tistream.model.ts import MAX_TS, from_physical_ms
from tistream_api.request.params import FORMATS, LIMIT_DEFAULT, LIMIT_MAX

HISTORY_LIMIT_DEFAULT = 100
HISTORY_LIMIT_MAX = 10_000
PARTS_DEFAULT, PARTS_MAX = 16, 10_000
KEY_TEXT_MAX = 16_384
SHOWN_MAX = 40

NOW: Literal["now"] = "now"
When = int | Literal["now"]
"""A TSO, or "now": the newest ts that can be read."""

_FIRST_TIME, _LAST_TIME = "1970-01-01T00:00:00Z", "3084-12-12T12:41:28.831Z"  # of a TSO in 63 bits
_TS_TEXT = "a TSO, an RFC 3339 time (in a URL, + is %2B), or now"
_DIGITS = re.compile(r"[0-9]{1,40}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


class _Query(BaseModel):
    model_config = ConfigDict(frozen=True)


class RowsQuery(_Query):
    """The query parameters of ListRows, as text."""

    ts: str | None = Field(default=None, description=f"read as of this time: {_TS_TEXT}; either this or cursor")
    cursor: str | None = Field(default=None, description="where an answer ended; either this or ts")
    key: str | None = Field(default=None, description='the key of one row, as in events: {"id":"1"}')
    from_key: str | None = Field(default=None, description="inclusive; a key, or its first columns")
    to_key: str | None = Field(default=None, description="exclusive; a key, or its first columns")
    limit: str | None = Field(default=None, description=f"rows in the answer, 1 to {LIMIT_MAX}; {LIMIT_DEFAULT}")
    columns: str | None = Field(default=None, description="names of the columns in `row`, with commas between")
    where: str | None = Field(
        default=None, description="only rows that fulfil this SQL expression over the table's columns"
    )
    format: str | None = Field(
        default=None, description="ndjson (lines of JSON), arrow (one IPC stream) or parquet (one file)"
    )
    until: str | None = Field(default=None, description="inclusive; the end of a part (RowParts). Goes with cursor")

    def parsed(self, raw: bytes) -> RowsRequest:
        """Parse the query string `raw`. Raises InvalidRequest, which names the parameter."""
        return rows_request(raw)


class RowPartsQuery(_Query):
    """The query parameters of RowParts, as text."""

    ts: str | None = Field(default=None, description=f"as of this time: {_TS_TEXT}")
    from_key: str | None = Field(default=None, description="inclusive; a key, or its first columns")
    to_key: str | None = Field(default=None, description="exclusive; a key, or its first columns")
    parts: str | None = Field(default=None, description=f"the most parts, 1 to {PARTS_MAX}; {PARTS_DEFAULT}")

    def parsed(self, raw: bytes) -> RowPartsRequest:
        """Parse the query string `raw`. Raises InvalidRequest, which names the parameter."""
        given = given_in(raw, RowPartsQuery)
        ts = when("ts", given.get("ts", NOW))
        return RowPartsRequest(
            ts, _key(given, "from_key"), _key(given, "to_key"), _limit(given, PARTS_DEFAULT, PARTS_MAX, "parts")
        )


class ChangePartsQuery(_Query):
    """The query parameters of ChangeParts, as text."""

    start_ts: str | None = Field(default=None, description=f"exclusive: {_TS_TEXT}")
    end_ts: str | None = Field(default=None, description=f"inclusive: {_TS_TEXT}; now")
    parts: str | None = Field(default=None, description=f"the most parts, 1 to {PARTS_MAX}; {PARTS_DEFAULT}")

    def parsed(self, raw: bytes) -> ChangePartsRequest:
        """Parse the query string `raw`. Raises InvalidRequest, which names the parameter."""
        given = given_in(raw, ChangePartsQuery)
        return ChangePartsRequest(*between(given), _limit(given, PARTS_DEFAULT, PARTS_MAX, "parts"))


class HistoryQuery(_Query):
    """The query parameters of RowHistory, as text."""

    key: str | None = Field(default=None, description='the key of one row, as in events: {"id":"1"}')
    from_: str | None = Field(default=None, alias="from", description=f"exclusive: {_TS_TEXT}; the earliest one kept")
    to: str | None = Field(default=None, description=f"inclusive: {_TS_TEXT}; now")
    limit: str | None = Field(
        default=None, description=f"versions in the answer, 1 to {HISTORY_LIMIT_MAX}; {HISTORY_LIMIT_DEFAULT}"
    )

    def parsed(self, raw: bytes) -> HistoryRequest:
        """Parse the query string `raw`. Raises InvalidRequest, which names the parameter."""
        return history_request(raw)


class DiffQuery(_Query):
    """The query parameters of DiffTable, as text."""

    from_: str | None = Field(default=None, alias="from", description=f"exclusive: {_TS_TEXT}; or cursor")
    to: str | None = Field(default=None, description=f"inclusive: {_TS_TEXT}; now")
    cursor: str | None = Field(default=None, description="where an answer ended; either this, or from and to")
    limit: str | None = Field(default=None, description=f"events in the answer, 1 to {LIMIT_MAX}; {LIMIT_DEFAULT}")
    format: str | None = Field(default=None, description="ndjson, arrow or parquet, as of pulls")

    def parsed(self, raw: bytes) -> DiffRequest:
        """Parse the query string `raw`. Raises InvalidRequest, which names the parameter."""
        return diff_request(raw)


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """The parsed parameters of ListRows. Exactly one of `ts` and `cursor` is set. Keys are objects with the values of
    the key's columns."""

    ts: When | None
    cursor: str | None
    key: dict[str, Any] | None
    from_key: dict[str, Any] | None
    to_key: dict[str, Any] | None
    limit: int
    columns: tuple[str, ...] | None
    format: str
    until: str | None = None
    choice: EventChoice | None = None


@dataclass(frozen=True, slots=True)
class RowPartsRequest:
    """The parsed parameters of RowParts."""

    ts: When
    from_key: dict[str, Any] | None
    to_key: dict[str, Any] | None
    parts: int


@dataclass(frozen=True, slots=True)
class ChangePartsRequest:
    """The parsed parameters of ChangeParts: the changes with low < commit_ts <= high, and the most parts."""

    low: When
    high: When
    parts: int


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """The parsed parameters of RowHistory: the key of the row, and the versions with low < commit_ts <= high. `low`
    None: from the earliest ts kept on."""

    key: dict[str, Any]
    low: When | None
    high: When
    limit: int


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """The parsed parameters of DiffTable, or of a squashed pull: the changes with low < commit_ts <= high. Exactly one
    of `low` and `cursor` is set; `high` does not count with a cursor."""

    low: When | None
    high: When
    cursor: str | None
    limit: int
    format: str
    events: str = "rows"


def rows_request(query: bytes) -> RowsRequest:
    """Parse the parameters of ListRows. Raises InvalidRequest, which names the parameter."""
    given = given_in(query, RowsQuery)
    if ("ts" in given) == ("cursor" in given):
        raise InvalidRequest("give either ts or cursor, and not both", {"parameter": "ts"})
    if "until" in given and "cursor" not in given:
        raise _bad("until", "is the end of a part, and goes with the part's cursor: give both, or leave it out")
    for name in ("from_key", "to_key"):
        if "key" in given and name in given:
            raise _bad(name, "is not allowed with key, which names one row: leave one of them out")
    columns = tuple(given["columns"].split(",")) if "columns" in given else None
    if columns is not None and (len(set(columns)) < len(columns) or "" in columns):
        raise _bad(
            "columns",
            f"is {given['columns'][:SHOWN_MAX]!r}, which has an empty name, or one twice: name each column once",
        )
    return RowsRequest(
        ts=when("ts", given["ts"]) if "ts" in given else None,
        cursor=given.get("cursor"),
        key=_key(given, "key"),
        from_key=_key(given, "from_key"),
        to_key=_key(given, "to_key"),
        limit=_limit(given, LIMIT_DEFAULT, LIMIT_MAX),
        columns=columns,
        format=_format(given),
        until=given.get("until"),
        choice=EventChoice.parse(None, None, None, given.get("where")),
    )


def history_request(query: bytes) -> HistoryRequest:
    """Parse the parameters of RowHistory. Raises InvalidRequest, which names the parameter."""
    given = given_in(query, HistoryQuery)
    key = _key(given, "key")
    if key is None:
        raise _bad("key", 'is required: the key of a row as in events, such as {"id":"1"}')
    low = when("from", given["from"]) if "from" in given else None
    high = when("to", given.get("to", NOW))
    _check_order(low, high, "to", "from")
    return HistoryRequest(key, low, high, _limit(given, HISTORY_LIMIT_DEFAULT, HISTORY_LIMIT_MAX))


def diff_request(query: bytes) -> DiffRequest:
    """Parse the parameters of DiffTable. Raises InvalidRequest, which names the parameter."""
    given = given_in(query, DiffQuery)
    return _between(given, "from", "to")


def squash_request(query: bytes) -> DiffRequest:
    """Parse the parameters of a pull with squash=true. Raises InvalidRequest."""
    given = _taken(query, (*SQUASH_PARAMETERS, *PLAIN_PULL_PARAMETERS))
    for name in PLAIN_PULL_PARAMETERS:
        if name in given:
            raise _bad(name, "is not allowed with squash=true: leave one of them out")
    if given.get("format") == "arrow" and "events" not in given:
        raise _bad("events", "is required with format=arrow: rows or all, as several IPC streams")
    return _between(given, "start_ts", "end_ts")


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The parsed parameters of a pull that begins with a snapshot. `cursor` is the cursor of an earlier answer of the
    same pull."""

    ts: When
    cursor: str | None
    limit: int


def snapshot_request(query: bytes, is_snapshot: Callable[[str], bool]) -> SnapshotRequest | None:
    """Parse the parameters of a pull that begins with a snapshot: it has `snapshot`, or a cursor of such a pull
    (`is_snapshot` returns True for it). None for any other pull, valid or not. Raises InvalidRequest."""
    raw = dict(part.partition(b"=")[::2] for part in query.split(b"&"))
    begun = b"cursor" in raw and is_snapshot(_text(raw[b"cursor"]))
    if b"snapshot" not in raw and not begun:
        return None
    given = _taken(query, (*SNAPSHOT_PARAMETERS, *NOT_WITH_SNAPSHOT))
    ts = when("snapshot", given.get("snapshot", NOW))
    for name in NOT_WITH_SNAPSHOT:
        if name in given:
            raise _bad(name, "is not allowed with a snapshot: use it with the cursor that follows the snapshot's end")
    if "snapshot" in given and "cursor" in given:
        raise _bad("snapshot", "is not allowed with cursor, which has the snapshot's ts: leave snapshot out")
    if _format(given) != FORMATS[0]:
        raise _bad("format", f"of a snapshot is {FORMATS[0]} only; ListRows has the other formats")
    return SnapshotRequest(ts, given.get("cursor"), _limit(given, LIMIT_DEFAULT, LIMIT_MAX))


SNAPSHOT_PARAMETERS = ("snapshot", "cursor", "limit", "format")
NOT_WITH_SNAPSHOT = ("start_ts", "end_ts", "wait_ms", "follow", "events", "squash", *PARAMETERS)
SQUASH_PARAMETERS = ("squash", "start_ts", "end_ts", "cursor", "limit", "format", "events")
PLAIN_PULL_PARAMETERS = ("wait_ms", "follow", "snapshot", *PARAMETERS)
SQUASH_EVENTS = ("all", "rows")


def _between(given: dict[str, str], low_name: str, high_name: str) -> DiffRequest:
    if (low_name in given) == ("cursor" in given):
        raise InvalidRequest(f"give either {low_name} or cursor, and not both", {"parameter": low_name})
    if "cursor" in given and high_name in given:
        raise _bad(high_name, f"is not allowed with cursor, which has it: leave {high_name} out")
    low = when(low_name, given[low_name]) if low_name in given else None
    high = when(high_name, given.get(high_name, NOW))
    _check_order(low, high, high_name, low_name)
    events = given.get("events", SQUASH_EVENTS[0])
    if events not in SQUASH_EVENTS:
        raise _bad(
            "events", f"{events[:SHOWN_MAX]!r} is not one of {', '.join(SQUASH_EVENTS)}, which go with squash=true"
        )
    return DiffRequest(low, high, given.get("cursor"), _limit(given, LIMIT_DEFAULT, LIMIT_MAX), _format(given), events)


def between(given: dict[str, str]) -> tuple[When, When]:
    """The parameters start_ts (required) and end_ts (`now`, if absent) of a query. Raises InvalidRequest, which names
    the parameter."""
    if "start_ts" not in given:
        raise _bad("start_ts", f"is required: {_TS_TEXT}")
    low, high = when("start_ts", given["start_ts"]), when("end_ts", given.get("end_ts", NOW))
    _check_order(low, high, "end_ts", "start_ts")
    return low, high


def _check_order(low: When | None, high: When, high_name: str, low_name: str) -> None:
    if isinstance(low, int) and isinstance(high, int) and high < low:
        raise _bad(high_name, f"{high} lies below {low_name} {low}: the range is empty")


def when(name: str, text: str) -> When:
    """Parse the value `text` of the parameter `name` as a time: decimal digits (a TSO), an RFC 3339 time (which means
    the first ts of its millisecond), or `now`. Raises InvalidRequest."""
    if text == NOW:
        return NOW
    if text.isascii() and _DIGITS.fullmatch(text):
        if int(text) > MAX_TS:
            raise _bad(name, f"{text[:SHOWN_MAX]} is not a ts: one lies from 0 to {MAX_TS}")
        return int(text)
    found = _TIME.fullmatch(text) if text.isascii() else None
    try:
        if found is None:
            raise ValueError
        zone = "+00:00" if found[4] in "Zz" else found[4]
        at = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}").astimezone(UTC)
        ms = int(at.timestamp()) * 1000 + int(((found[3] or ".0")[1:] + "00")[:3])
    except (ValueError, OverflowError):
        raise _bad(name, f"{text[:SHOWN_MAX]!r} is not {_TS_TEXT}") from None
    if not 0 <= ms <= MAX_TS >> 18:
        raise _bad(name, f"{text} lies outside {_FIRST_TIME} to {_LAST_TIME}, the range of timestamps")
    return from_physical_ms(ms)


def _key(given: dict[str, str], name: str) -> dict[str, Any] | None:
    if name not in given:
        return None
    if len(given[name]) > KEY_TEXT_MAX:
        raise _bad(name, f"has {len(given[name])} characters, and a key has at most {KEY_TEXT_MAX}")
    try:
        key = orjson.loads(given[name])
    except orjson.JSONDecodeError as error:
        raise _bad(name, f'is not JSON, such as {{"id":"1"}}: {error}') from error
    scalars = isinstance(key, dict) and key and all(isinstance(one, str | int | float) for one in key.values())
    if not scalars or any(isinstance(one, bool) for one in key.values()):
        raise _bad(name, 'is not an object of strings and numbers, such as {"id":"1"}')
    found: dict[str, Any] = key
    return found


def _limit(given: dict[str, str], default: int, most: int, name: str = "limit") -> int:
    if name not in given:
        return default
    text = given[name]
    if not text.isascii() or not _DIGITS.fullmatch(text):
        raise _bad(name, f"{text[:SHOWN_MAX]!r} is not a decimal number from 1 to {most}")
    if not 1 <= int(text) <= most:
        raise _bad(name, f"{text[:SHOWN_MAX]} does not lie from 1 to {most}")
    return int(text)


def _format(given: dict[str, str]) -> str:
    found = given.get("format", FORMATS[0])
    if found not in FORMATS:
        raise _bad("format", f"{found[:SHOWN_MAX]!r} is not one of {', '.join(FORMATS)}")
    return found


def given_in(query: bytes, model: type[BaseModel]) -> dict[str, str]:
    """The parameters of a query string that are fields of `model`, as text. Raises InvalidRequest, which names the
    parameter."""
    return _taken(query, [field.alias or name for name, field in model.model_fields.items()])


def _taken(query: bytes, known: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in filter(None, query.split(b"&")):
        raw_name, _, raw_value = part.partition(b"=")
        name, value = _text(raw_name), _text(raw_value)
        if name not in known:
            allowed = f"this call takes {', '.join(known)}" if known else "this call takes none"
            raise InvalidRequest(f"unknown parameter {name[:80]!r}; {allowed}", {"parameter": name[:80]})
        if name in given:
            raise _bad(name, "is given more than once")
        if not value:
            raise _bad(name, "is empty: give a value, or leave it out")
        given[name] = value
    return given


def _text(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw.decode("ascii").replace("+", " ")).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the query is not UTF-8: percent-encode the UTF-8 bytes of names and values") from error


def _bad(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{name} {why}", {"parameter": name})
