"""Reads at points in time: the rows of a table, the versions of a row, a transaction, net changes, a snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tistream_client.core import arrow, ndjson
from tistream_client.core.arrow import DiffPage, TablePage
from tistream_client.core.asking import Patience, json_of
from tistream_client.core.events import Page, Row, RowEvent, Transaction, Version
from tistream_client.core.pull import earliest_ts
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Answer, Asking, Fetch, Reading
from tistream_client.core.times import NOW

Key = Mapping[str, str | int | float]
KeyRange = tuple[Key | None, Key | None]
"""The lowest key, and the key above the highest one; None: no bound."""
_VERSIONS_A_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """The rows of a table that a call reads. `at` is a ts; None: the newest one. `key` selects one row; `from_key`
    (inclusive) and `to_key` (exclusive) select a range of keys. `after` and `until` are cursors that the call RowParts
    has returned; they replace `at`."""

    scope: Scope
    at: int | None
    columns: tuple[str, ...] | None
    key: Key | None
    from_key: Key | None
    to_key: Key | None
    page_size: int
    where: str | None = None
    after: str | None = None
    until: str | None = None

    def request(self, cursor: str | None, form: str) -> Fetch:
        """The request of the page at `cursor`; None: of the first one."""
        params = {"ts": NOW if self.at is None else str(self.at)} if cursor is None else {"cursor": cursor}
        params |= {"limit": str(self.page_size), "format": form}
        if self.where is not None:
            params["where"] = self.where
        if self.until is not None:
            params["until"] = self.until
        if self.columns is not None:
            params["columns"] = ",".join(self.columns)
        if self.key is not None:
            params["key"] = _json(self.key)
        params |= key_params((self.from_key, self.to_key))
        return Fetch(self.scope.path("rows"), params)


def key_params(keys: KeyRange) -> dict[str, str]:
    """Convert a range of keys, (the lowest key, the key above the highest one), to query parameters."""
    return {name: _json(key) for name, key in zip(("from_key", "to_key"), keys, strict=True) if key is not None}


def _json(key: Key) -> str:
    return json.dumps(dict(key), ensure_ascii=False)


def rows(query: RowsQuery, patience: Patience) -> Reading[tuple[list[Row], int]]:
    """Yield pages of (rows, the ts that they are of). Raises ApiError, and NoAnswer."""
    cursor = query.after
    while True:
        found, ts, cursor = yield from patience.ask(query.request(cursor, "ndjson"), ndjson.rows_of)
        yield found, ts
        if cursor is None:
            return


def row_batches(
    query: RowsQuery, patience: Patience, read: Callable[[Answer], TablePage] = arrow.rows_of
) -> Reading[TablePage]:
    """Yield pages of record batches. Raises ApiError, and NoAnswer."""
    cursor = query.after
    while True:
        page = yield from patience.ask(query.request(cursor, "arrow"), read)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


@dataclass(frozen=True, slots=True)
class Range:
    """The changes after `since`, up to and with `until`. None means the earliest ts for `since`, and the newest one for
    `until`."""

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
    range_ = yield from _placed(scope, range_, patience)
    cursor: str | None = None
    while True:
        params = _between("from", "to", range_) if cursor is None else {"cursor": cursor}
        params["limit"] = str(page_size)
        events, cursor = yield from patience.ask(Fetch(scope.path("diff"), params), ndjson.diff_of)
        yield from events
        if cursor is None:
            return


def diff_batches(scope: Scope, range_: Range, page_size: int, patience: Patience) -> Reading[DiffPage]:
    """Yield pages of net changes as record batches. Raises ApiError, and NoAnswer."""
    range_ = yield from _placed(scope, range_, patience)
    cursor: str | None = None
    while True:
        params = _between("from", "to", range_) if cursor is None else {"cursor": cursor}
        params |= {"limit": str(page_size), "format": "arrow"}
        page = yield from patience.ask(Fetch(scope.path("diff"), params), arrow.diff_of)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


def squashed(scope: Scope, range_: Range, cursor: str | None, page_size: int, patience: Patience) -> Reading[Page]:
    """Yield the pages of a squashed pull. The last one has a `resolved_ts`. Raises ApiError, and NoAnswer."""
    if cursor is None:
        range_ = yield from _placed(scope, range_, patience)
    first = {"squash": "true", **_between("start_ts", "end_ts", range_)}
    yield from _pages(scope, first, {"squash": "true"}, cursor, page_size, patience)


def snapshot(scope: Scope, at: int | None, cursor: str | None, page_size: int, patience: Patience) -> Reading[Page]:
    """Yield the pages of the rows as of the ts `at`; None: as of the newest one. The last page has a `resolved_ts`.
    Raises ApiError, and NoAnswer."""
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


def _placed(scope: Scope, range_: Range, patience: Patience) -> Asking[Range]:
    """The range, which begins at the earliest ts if it states no other beginning."""
    if range_.since is not None:
        return range_
    return Range((yield from earliest_ts(scope, patience)), range_.until)


def _between(low: str, high: str, range_: Range) -> dict[str, str]:
    return {low: str(range_.since or 0), high: NOW if range_.until is None else str(range_.until)}
