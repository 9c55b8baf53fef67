"""The rows of a table as of a time, page after page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tistream_client.core import arrow, ndjson
from tistream_client.core.arrow import TablePage
from tistream_client.core.asking import Patience
from tistream_client.core.events import Row
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Answer, Fetch, Reading
from tistream_client.core.times import NOW

Key = Mapping[str, str | int | float]
KeyRange = tuple[Key | None, Key | None]
"""The lowest key, and the key above the highest one; None: no bound."""


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """What is read. `at` is a ts, or None for the newest one. `key` is that of one row; `from_key` (inclusive) and
    `to_key` (exclusive) are a range. `after` and `until` are
    cursors of the call RowParts, and replace `at`."""

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
    """The parameters of a range of keys: (the lowest key, the key above the highest one)."""
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
