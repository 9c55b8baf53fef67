"""Strict parsing of query parameters from the raw query string (design.md 5).

Nothing is guessed: an unknown, repeated, empty or malformed parameter is a 400 that names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.ts import MAX_TS
from tistream.wire.audit import LIMIT_DEFAULT as AUDIT_LIMIT
from tistream.wire.audit import LIMIT_MAX as AUDIT_LIMIT_MAX

LIMIT_DEFAULT = 10_000
LIMIT_MAX = 1_000_000
WAIT_MS_MAX = 60_000
WALL_MS_MAX = 10**15  # the year 33658
KEY_MAX_BYTES = 16_384
FORMATS = ("ndjson", "arrow", "parquet")
ENDLESS_FORMATS = ("ndjson", "arrow")
ALL, ROWS, DDL = EVENTS = ("all", "rows", "ddl")

PULL_PARAMETERS = ("start_ts", "cursor", "end_ts", "limit", "wait_ms", "follow", "format", "events")
LIST_PARAMETERS = ("ts",)
USAGE_PARAMETERS = ("from", "to")
AUDIT_PARAMETERS = ("after", "limit", "cluster_id", "tenant_id")
COVERAGE_PARAMETERS = ("start_key", "end_key")
LAG_PARAMETERS = ("minutes",)
LAG_MINUTES_MAX = 60
DDL_PARAMETERS = ("before_ts", "limit")
DDL_LIMIT_DEFAULT = 100
DDL_LIMIT_MAX = 1_000
MAX_SEQ = (1 << 63) - 1

_DECIMAL = re.compile(r"[0-9]{1,40}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True)
class PullParams:
    """The parameters of PullTable, PullDB and PullTenant. Exactly one of `start_ts` and `cursor` is set."""

    start_ts: int | None
    cursor: str | None
    end_ts: int | None
    limit: int
    wait_ms: int
    follow: bool
    format: str = FORMATS[0]
    events: str = ALL
    coding: str | None = None  # the Content-Encoding of the answer, from the header Accept-Encoding; no query parameter


def parse_pull(query: bytes, *, one_table: bool = False) -> PullParams:
    """The parameters of a pull. `one_table` is True for PullTable. Raises InvalidRequest, naming the parameter."""
    given = _take_apart(query, PULL_PARAMETERS)
    if ("start_ts" in given) == ("cursor" in given):
        raise InvalidRequest("give either start_ts or cursor, and not both", {"parameter": "start_ts"})
    follow = _boolean("follow", given.get("follow", "false"))
    for name in ("limit", "end_ts"):
        if follow and name in given:
            raise InvalidRequest(f"follow=true is an endless stream: it does not go with {name}", {"parameter": name})
    form = given.get("format", FORMATS[0])
    if form not in FORMATS:
        raise _bad("format", f"is not one of {', '.join(FORMATS)}")
    if follow and form not in ENDLESS_FORMATS:
        raise _bad("format", f"{form} is made of whole files: it does not go with follow=true")
    start_ts = _number("start_ts", given["start_ts"], 0, MAX_TS) if "start_ts" in given else None
    end_ts = _number("end_ts", given["end_ts"], 0, MAX_TS) if "end_ts" in given else None
    if start_ts is not None and end_ts is not None and end_ts < start_ts:
        raise _bad("end_ts", f"{end_ts} lies below start_ts {start_ts}")
    return PullParams(
        start_ts=start_ts,
        cursor=given.get("cursor"),
        end_ts=end_ts,
        limit=_number("limit", given["limit"], 1, LIMIT_MAX) if "limit" in given else LIMIT_DEFAULT,
        wait_ms=_number("wait_ms", given["wait_ms"], 0, WAIT_MS_MAX) if "wait_ms" in given else 0,
        follow=follow,
        format=form,
        events=_events(given.get("events"), form, one_table=one_table),
    )


def _events(asked: str | None, form: str, *, one_table: bool) -> str:
    """The parameter `events`. A reader may take the first of several IPC streams for the whole answer, so with
    format=arrow a client must ask explicitly for several."""
    if asked is not None and asked not in EVENTS:
        raise _bad("events", f"is not one of {', '.join(EVENTS)}")
    if form != "arrow":
        return asked or ALL
    choices = (
        "events=rows (one table's rows, one IPC stream of one schema), "
        "events=ddl (DDL events, one IPC stream) or events=all (several IPC streams, one after the other)"
    )
    if asked is None:
        raise _bad("events", f"is wanted with format=arrow: {choices}")
    if asked == ROWS and not one_table:
        why = "goes with format=arrow where one table is pulled: several tables have no one schema"
        raise _bad("events=rows", f"{why}. Pull a table, or ask for events=all or format=parquet", "events")
    return asked


def parse_list(query: bytes) -> int | None:
    """The `ts` of ListDBs and ListTables; None means the newest. Raises InvalidRequest."""
    given = _take_apart(query, LIST_PARAMETERS)
    return _number("ts", given["ts"], 0, MAX_TS) if "ts" in given else None


def parse_coverage(query: bytes) -> tuple[bytes, bytes]:
    """The key range `[start, end)` of a coverage request; an empty end is unbounded. Raises InvalidRequest."""
    given = _take_apart(query, COVERAGE_PARAMETERS, empty=COVERAGE_PARAMETERS)
    start = _hex("start_key", given.get("start_key", ""))
    end = _hex("end_key", given.get("end_key", ""))
    if end and end <= start:
        raise _bad("end_key", "does not lie above start_key")
    return start, end


def parse_lag(query: bytes) -> int:
    """The number of minutes of TenantLag. Raises InvalidRequest."""
    given = _take_apart(query, LAG_PARAMETERS)
    return _number("minutes", given.get("minutes", str(LAG_MINUTES_MAX)), 1, LAG_MINUTES_MAX)


def parse_ddl(query: bytes) -> tuple[int | None, int]:
    """(before_ts, limit) of DdlHistory. Raises InvalidRequest."""
    given = _take_apart(query, DDL_PARAMETERS)
    before_ts = _number("before_ts", given["before_ts"], 1, MAX_TS) if "before_ts" in given else None
    return before_ts, _number("limit", given.get("limit", str(DDL_LIMIT_DEFAULT)), 1, DDL_LIMIT_MAX)


def parse_usage(query: bytes) -> dict[str, int]:
    """`from` and `to` of a usage request, if given, in milliseconds since the Unix epoch. Raises InvalidRequest."""
    given = _take_apart(query, USAGE_PARAMETERS)
    return {name: _number(name, text, 0, WALL_MS_MAX) for name, text in given.items()}


def parse_audit(query: bytes) -> dict[str, int | str]:
    """The parameters of AuditLog that are given, with the default of `limit`. Raises InvalidRequest."""
    given = _take_apart(query, AUDIT_PARAMETERS)
    asked: dict[str, int | str] = {"limit": _number("limit", given.get("limit", str(AUDIT_LIMIT)), 1, AUDIT_LIMIT_MAX)}
    if "after" in given:
        asked["after"] = _number("after", given["after"], 0, MAX_SEQ)
    if ("cluster_id" in given) != ("tenant_id" in given):
        raise InvalidRequest("cluster_id and tenant_id are given together", {"parameter": "tenant_id"})
    if "tenant_id" in given:
        tenant = TenantKey.parse(given["cluster_id"], given["tenant_id"])
        asked |= {"cluster_id": tenant.cluster_id, "tenant_id": tenant.tenant_id}
    return asked


def parse_none(query: bytes) -> None:
    """Check that a call has no parameters. Raises InvalidRequest if it has any."""
    _take_apart(query, ())


def _take_apart(query: bytes, known: tuple[str, ...], empty: tuple[str, ...] = ()) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in query.split(b"&"):
        if not part:
            continue
        raw_name, _, raw_value = part.partition(b"=")
        name, value = _text(raw_name), _text(raw_value)
        if name not in known:
            allowed = f"this call takes {', '.join(known)}" if known else "this call takes none"
            raise InvalidRequest(f"unknown parameter {name[:80]!r}; {allowed}", {"parameter": name[:80]})
        if name in given:
            raise _bad(name, "is given more than once")
        if not value and name not in empty:
            raise _bad(name, "is empty")
        given[name] = value
    return given


def _text(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the query is not UTF-8") from error


def _number(name: str, text: str, low: int, high: int) -> int:
    if not text.isascii() or not _DECIMAL.fullmatch(text):
        raise _bad(name, f"{text[:40]!r} is not a decimal number from {low} to {high}")
    number = int(text)
    if not low <= number <= high:
        raise _bad(name, f"{text} does not lie from {low} to {high}")
    return number


def _boolean(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise _bad(name, f"{text[:40]!r} is neither true nor false")
    return text == "true"


def _hex(name: str, text: str) -> bytes:
    if not text.isascii() or not _HEX.fullmatch(text):
        raise _bad(name, f"{text[:40]!r} is not hexadecimal, two digits a byte")
    if len(text) > 2 * KEY_MAX_BYTES:
        raise _bad(name, f"is longer than {KEY_MAX_BYTES} bytes")
    return bytes.fromhex(text)


def _bad(name: str, why: str, parameter: str | None = None) -> InvalidRequest:
    return InvalidRequest(f"{name} {why}", {"parameter": parameter or name})
