"""Reads at points in time: the versions of a row, a transaction, net changes, rows before changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tistream_client.core import ndjson
from tistream_client.core.asking import Patience, json_of
from tistream_client.core.events import Page, RowEvent, Transaction, Version
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Asking, Fetch, Reading
from tistream_client.core.table_rows import Key
from tistream_client.core.times import NOW

_VERSIONS_A_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Range:
    """The changes after `since`, up to and with `until`; None: the earliest ts, and the newest one."""

    since: int | None
    until: int | None


def history(scope: Scope, key: Key, range_: Range, patience: Patience) -> Reading[Version]:
    """Yield the versions of one row, newest first. Raises ApiError, and NoAnswer."""
    to = NOW if range_.until is None else str(range_.until)
    while True:
        params = {"key": json.dumps(dict(key), ensure_ascii=False), "to": to, "limit": str(_VERSIONS_A_PAGE)}
        if range_.since is not None:
            params["from"] = str(range_.since)
        found: Any = yield from patience.ask(Fetch(scope.path("history"), params), json_of)
        for one in found["versions"]:
            yield Version(int(one["commit_ts"]), int(one["start_ts"]), one["op"], one["row"], one["old_row"])
        if found["next_to"] is None:
            return
        to = found["next_to"]


def transaction(scope: Scope, start_ts: int, patience: Patience) -> Asking[Transaction]:
    """The changes of one transaction. Raises ApiError, and NoAnswer."""
    request = Fetch(scope.path("transactions", str(start_ts)), {})
    return (yield from patience.ask(request, ndjson.transaction_of))


def diff(scope: Scope, range_: Range, page_size: int, patience: Patience) -> Reading[RowEvent]:
    """Yield the net change of each row between two times. Raises ApiError, and NoAnswer."""
    cursor: str | None = None
    while True:
        params = _between("from", "to", range_) if cursor is None else {"cursor": cursor}
        params["limit"] = str(page_size)
        events, cursor = yield from patience.ask(Fetch(scope.path("diff"), params), ndjson.diff_of)
        yield from events
        if cursor is None:
            return


def squashed(scope: Scope, range_: Range, cursor: str | None, page_size: int, patience: Patience) -> Reading[Page]:
    """Yield the pages of a squashed pull. The last one has a `resolved_ts`. Raises ApiError, and NoAnswer."""
    first = {"squash": "true", **_between("start_ts", "end_ts", range_)}
    yield from _pages(scope, first, {"squash": "true"}, cursor, page_size, patience)


def snapshot(scope: Scope, at: int | None, cursor: str | None, page_size: int, patience: Patience) -> Reading[Page]:
    """Yield the pages of the rows as of a time. The last one has a `resolved_ts`. Raises ApiError, and NoAnswer."""
    first = {"snapshot": NOW if at is None else str(at)}
    yield from _pages(scope, first, {}, cursor, page_size, patience)


def _pages(
    scope: Scope,
    first: Mapping[str, str],
    later: Mapping[str, str],
    cursor: str | None,
    page_size: int,
    patience: Patience,
) -> Reading[Page]:
    while True:
        params = dict(first) if cursor is None else {**later, "cursor": cursor}
        params["limit"] = str(page_size)
        after = cursor
        page = yield from patience.ask(
            Fetch(scope.path("changes"), params),
            lambda answer: ndjson.page_of(answer, after, None),  # noqa: B023
        )
        yield page
        if page.resolved_ts is not None:
            return
        cursor = page.cursor


def _between(low: str, high: str, range_: Range) -> dict[str, str]:
    return {low: str(range_.since or 0), high: NOW if range_.until is None else str(range_.until)}
