"""The options of the format `tistream`. A bad one is a WrongArgument that names it and shows a right one. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from tistream_client.core import arguments, calls
from tistream_client.core.errors import WrongArgument
from tistream_client.core.points import Key, KeyRange
from tistream_client.core.scope import Scope
from tistream_client.core.times import EARLIEST, NOW, Clock, ts_of
from tistream_client.core.ts import to_ts

ZERO_DATES = ("error", "null", "text")
PARTITIONS, PARTITIONS_MAX = 16, 10_000
_RETRY_FOR_S = 60.0
_RIGHT = {
    "url": "http://127.0.0.1:8000",
    "cluster": "7",
    "tenant": "acme",
    "table": "shop.orders",
    "token": "TOKEN",
    "tokenFile": "acme.token",
    "caFile": "ca.pem",
    "certFile": "client.pem",
    "keyFile": "client.key",
    "startingTs": "2026-11-20T14:03:00Z",
    "endingTs": "2026-11-20T15:00:00Z",
    "snapshot": "now",
    "asOf": "now",
    "where": "total > 100",
    "operations": "insert,update",
    "columns": "id,total",
    "fromKey": '{"id": 10}',
    "toKey": '{"id": 20}',
    "direct": "true",
    "zeroDates": "null",
    "partitions": "16",
    "pageSize": "100000",
    "maxBatchSpan": "1h",
    "retryFor": "60",
}
_DURATION = re.compile(r"[0-9]{1,9}(ms|s|m|h|d)")
_SWITCH = {"true": True, "false": False}
_REQUIRED = ("url", "cluster", "tenant", "table")


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options. A time is a TSO or "now", the newest ts that can be read. `starting` None: the earliest one.
    `ending` None: the newest one of a batch; a stream has no end. `snapshot`: the events begin with the rows as of it.
    `as_of`: the DataFrame is the table as of it, without events. `direct`: changes are read from the object store.
    `span`: the most that a batch of a stream covers, in TSO; None: no limit."""

    url: str
    token: str | None = field(repr=False)
    token_file: str | None
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    scope: Scope
    starting: int | str | None
    ending: int | str | None
    snapshot: int | str | None
    as_of: int | str | None
    where: str | None
    operations: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    keys: KeyRange
    direct: bool
    zero_dates: str
    partitions: int
    page_size: int
    span: int | None
    retry_for: float


def parsed(given: Mapping[str, str], clock: Clock) -> Options:
    """Check the options of a DataFrame or a stream. `given` has names in any case. Raises WrongArgument."""
    found = _named(given)
    for name in _REQUIRED:
        if name not in found:
            raise _wrong(name, "is missing")
    database, table = _table(found["table"])
    _check_times(found)
    start, end, snapshot = (_ts(name, found, clock) for name in ("startingTs", "endingTs", "snapshot"))
    for name, low in (("startingTs", start), ("snapshot", snapshot)):
        if isinstance(low, int) and isinstance(end, int) and end < low:
            raise _wrong("endingTs", f"{found['endingTs']!r} lies before {name} {found[name]!r}")
    zero_dates = found.get("zeroDates", ZERO_DATES[0])
    if zero_dates not in ZERO_DATES:
        raise _wrong("zeroDates", f"is {zero_dates!r}, and is one of {', '.join(ZERO_DATES)}")
    scope = Scope(
        arguments.platform_id("cluster", found["cluster"]),
        arguments.platform_id("tenant", found["tenant"]),
        database,
        table,
    )
    return Options(
        url=found["url"],
        token=found.get("token"),
        token_file=found.get("tokenFile"),
        ca_file=found.get("caFile"),
        cert_file=found.get("certFile"),
        key_file=found.get("keyFile"),
        scope=scope,
        starting=start,
        ending=end,
        snapshot=snapshot,
        as_of=_ts("asOf", found, clock),
        where=found.get("where"),
        operations=_operations(found.get("operations")),
        columns=_columns(found.get("columns")),
        keys=(_key("fromKey", found), _key("toKey", found)),
        direct=_direct(found),
        zero_dates=zero_dates,
        partitions=_number("partitions", found, PARTITIONS, PARTITIONS_MAX),
        page_size=_number("pageSize", found, calls.ROWS_A_PAGE, arguments.PAGE_SIZE_MAX),
        span=_span(found.get("maxBatchSpan"), clock),
        retry_for=_seconds(found),
    )


def check_batch(given: Mapping[str, str]) -> None:
    """Refuse the options that only a stream has. Raises WrongArgument."""
    if "maxBatchSpan" in _named(given):
        raise _wrong("maxBatchSpan", "is of spark.readStream, and this is spark.read", None)


def check_stream(given: Mapping[str, str]) -> None:
    """Refuse the options that only a batch has. Raises WrongArgument."""
    if "asOf" in _named(given):
        raise _wrong("asOf", "is of spark.read; a stream begins with a table's rows by snapshot", "snapshot")


def _named(given: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in _RIGHT}
    found: dict[str, str] = {}
    for given_name, value in given.items():
        name = names.get(given_name.lower())
        if given_name.lower() == "path":
            raise WrongArgument("load", f"was called with {value!r}", '.option("table", "shop.orders").load()')
        if given_name.lower() == "availablenow":
            raise WrongArgument("availableNow", "is a trigger", "writeStream.trigger(availableNow=True)")
        if name is None:
            near = get_close_matches(given_name.lower(), names, 1)
            shown = names[near[0]] if near else "table"
            raise WrongArgument(given_name, f"is no option; they are {', '.join(_RIGHT)}", _shown(shown))
        if not value.strip():
            raise _wrong(name, "is empty")
        found[name] = value.strip()
    return found


def _table(value: str) -> tuple[str, str]:
    parts = value.split(".")
    if len(parts) != 2 or not all(parts):
        raise _wrong("table", f"is {value!r}, and not DATABASE.TABLE")
    return parts[0], parts[1]


def _columns(value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    found = tuple(name.strip() for name in value.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise _wrong("columns", f"is {value!r}, which has an empty name, or one twice")
    return found


def _check_times(found: Mapping[str, str]) -> None:
    if "snapshot" in found and "startingTs" in found:
        raise _wrong("startingTs", "is given beside snapshot, which says where the changes begin", "snapshot")
    for name in ("startingTs", "endingTs", "snapshot", "operations"):
        if "asOf" in found and name in found:
            raise _wrong(name, "is given beside asOf, which is the table as of one ts", "asOf")


def _direct(found: Mapping[str, str]) -> bool:
    value = found.get("direct", "false").lower()
    if value not in _SWITCH:
        raise _wrong("direct", f"is {value!r}, and is true or false")
    if _SWITCH[value] and "asOf" in found:
        raise _wrong("asOf", "is given beside direct, which reads changes", None)
    return _SWITCH[value]


def _operations(value: str | None) -> tuple[str, ...] | None:
    try:
        return arguments.operation_kinds(None if value is None else [one.strip() for one in value.split(",")])
    except WrongArgument:
        raise _wrong("operations", f"is {value!r}, and each is one of {', '.join(arguments.OPERATIONS)}") from None


def _key(name: str, found: Mapping[str, str]) -> Key | None:
    value = found.get(name)
    if value is None:
        return None
    if "asOf" not in found:
        raise _wrong(name, "is of the table as of one ts", "asOf")
    try:
        return arguments.key_of_row(name, json.loads(value))
    except ValueError:
        raise _wrong(name, f"is {value!r}, and not the columns of a key as JSON") from None


def _ts(name: str, found: Mapping[str, str], clock: Clock) -> int | str | None:
    value = found.get(name)
    if value is None or (name == "startingTs" and value == EARLIEST):
        return None
    if value == NOW:
        return NOW
    try:
        return ts_of(name, value, clock)
    except WrongArgument as error:
        raise _wrong(name, str(error).removeprefix(f"{name} ").split("; right: ")[0]) from None


def _span(value: str | None, clock: Clock) -> int | None:
    if value is None:
        return None
    now = clock()
    found = to_ts(now) - ts_of("maxBatchSpan", value, lambda: now) if _DURATION.fullmatch(value) else 0
    if found <= 0:
        raise _wrong("maxBatchSpan", f"is {value!r}, and no duration such as 30s, 10m or 1h")
    return found


def _number(name: str, found: Mapping[str, str], default: int, highest: int) -> int:
    value = found.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()) or not 1 <= int(value) <= highest:
        raise _wrong(name, f"is {value!r}, and no number from 1 to {highest}")
    return int(value)


def _seconds(found: Mapping[str, str]) -> float:
    value = found.get("retryFor")
    if value is None:
        return _RETRY_FOR_S
    if not (value.isascii() and value.isdigit()):
        raise _wrong("retryFor", f"is {value!r}, and no number of seconds")
    return float(value)


def _wrong(name: str, problem: str, right: str | None = "") -> WrongArgument:
    if right is None:
        return WrongArgument(name, problem, f'leave .option("{name}", …) out')
    return WrongArgument(name, problem, _shown(right or name))


def _shown(name: str) -> str:
    value = _RIGHT[name]
    return f".option(\"{name}\", '{value}')" if '"' in value else f'.option("{name}", "{value}")'
