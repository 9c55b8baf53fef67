"""A pull: page after page from a time or a cursor, each delivered once and in order.

A page is delivered only if its answer is complete. The next request then names the cursor at the page's end. So the
client asks again for what was cut off, and never for what was delivered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from tistream_client.core.asking import Patience, json_of
from tistream_client.core.errors import BadRequest, Gone, NotSupported, TiStreamError, UnknownName, WrongArgument
from tistream_client.core.events import ArrowPage, Page, RawPage
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Answer, Asking, Fetch, Reading

AnyPage = TypeVar("AnyPage", bound=Page | ArrowPage | RawPage)
NDJSON: Mapping[str, str] = {"format": "ndjson"}
ARROW: Mapping[str, str] = {"format": "arrow"}
_FOLLOW_WAIT_MS = 30_000
_WAIT_MS = 10_000
_PLAIN = re.compile(r"\w+")  # a name that the server's rules of columns do not read as a pattern


@dataclass(frozen=True, slots=True)
class PullQuery:
    """What a pull reads. `since` is exclusive; None: from the beginning of what is retained. `until` is inclusive;
    None: up to the newest ts at the pull's beginning, or without end if the pull follows. A `cursor` replaces
    `since`."""

    scope: Scope
    since: int | None
    until: int | None
    cursor: str | None
    columns: tuple[str, ...] | None
    events: str
    page_size: int
    tables: tuple[str, ...] | None = None
    operations: tuple[str, ...] | None = None
    where: str | None = None

    @property
    def path(self) -> str:
        """The path of the call."""
        return self.scope.path("changes")

    @property
    def filter(self) -> dict[str, str]:
        """The query parameters that restrict the events: where, events, tables, operations, columns. `columns` is left
        out if a name could be a pattern for the server; the client then selects the columns itself."""
        plain = self.columns is not None and self.events != "ddl" and all(map(_PLAIN.fullmatch, self.columns))
        found = {"where": self.where, "events": self.events}
        lists = {"tables": self.tables, "operations": self.operations, "columns": self.columns if plain else None}
        for name, values in lists.items():
            found[name] = None if values is None else ",".join(values)
        return {name: value for name, value in found.items() if value is not None}

    def newest_ts(self, patience: Patience) -> Asking[int]:
        """The newest ts that can be read."""
        return newest_ts(self.scope, patience)


@dataclass(frozen=True, slots=True)
class RawQuery:
    """What a pull of a tenant of RawKV reads; `since`, `until` and `cursor` are as in PullQuery. `keyspace` None: every
    keyspace. `start_key` (inclusive) and `end_key` (exclusive) are a range of keys in the keyspace; empty: no bound."""

    scope: Scope
    since: int | None
    until: int | None
    cursor: str | None
    keyspace: int | None
    start_key: bytes
    end_key: bytes
    page_size: int
    columns: None = None

    @property
    def path(self) -> str:
        """The path of the call."""
        return self.scope.path("raw", "changes")

    @property
    def filter(self) -> dict[str, str]:
        """The query parameters that restrict the keys: keyspace, start_key and end_key (hexadecimal)."""
        keyspace = None if self.keyspace is None else str(self.keyspace)
        found = {"keyspace": keyspace, "start_key": self.start_key.hex(), "end_key": self.end_key.hex()}
        return {name: value for name, value in found.items() if value}

    def newest_ts(self, patience: Patience) -> Asking[int]:
        """The newest ts that can be read, from the tenant's status, because a tenant of RawKV has no databases to
        list."""
        found = yield from patience.ask(Fetch(self.scope.path("status"), {}), json_of)
        return int(str(found["resolved_ts"]))


def pull(
    query: PullQuery | RawQuery,
    form: Mapping[str, str],
    read: Callable[[Answer, str | None, tuple[str, ...] | None], AnyPage],
    patience: Patience,
    *,
    follow: bool,
) -> Reading[AnyPage]:
    """Yield the pages up to `until`; with `follow`, without end. `form` is NDJSON or ARROW. `read` converts an answer
    of that form to a page; its other arguments are the cursor at which the page begins, and the chosen columns. Raises
    ApiError, NoAnswer; WrongArgument if the table lacks a chosen column; NotSupported if the server has no filters."""
    since, cursor, chosen = query.since, query.cursor, query.filter
    end_ts = query.until
    if end_ts is None and not follow:
        end_ts = max((yield from query.newest_ts(patience)), since or 0)
    patience = patience.endless() if follow else patience
    if query.columns is not None and query.scope.table is not None:
        yield from _check_columns(query.scope, query.columns, patience)
    while True:
        params = {"start_ts": str(since or 0)} if cursor is None else {"cursor": cursor}
        params |= {"limit": str(query.page_size), **chosen, **form}
        params["wait_ms"] = str(_FOLLOW_WAIT_MS if end_ts is None else _WAIT_MS)
        if end_ts is not None:
            params["end_ts"] = str(end_ts)
        after = cursor
        try:
            page = yield from patience.ask(Fetch(query.path, params), lambda answer: read(answer, after, query.columns))  # noqa: B023
        except Gone as gone:
            earliest_ts = gone.earliest_ts
            if query.since is not None or cursor is not None or earliest_ts is None or earliest_ts <= (since or 0):
                raise
            since = earliest_ts  # again, if retention has moved since the last answer
            end_ts = None if end_ts is None else max(end_ts, since)
            continue
        except BadRequest as refused:
            if cursor is not None and refused.parameter == "end_ts":
                return  # the cursor is above end_ts: an earlier pull has everything
            if refused.parameter != "columns" or not chosen.pop("columns", None) or not _client_can(query, refused):
                raise not_known(refused, chosen) from None
            continue
        cursor = page.cursor
        yield page
        if end_ts is not None and page.resolved_ts is not None and page.resolved_ts >= end_ts:
            return


def not_known(refused: BadRequest, used: Mapping[str, str]) -> TiStreamError:
    """The exception to raise for a refused request. It is NotSupported if the server knows no parameter of a filter in
    `used`, otherwise `refused`."""
    name = refused.parameter or ""
    if name in used and refused.detail.startswith("unknown parameter"):
        return NotSupported(
            f"{name}={used[name]!r}: this server is of a version without filters. Filter what arrives, "
            'for example changes.to_polars().filter(pl.col("row").struct.field("total") > 100)'
        )
    return refused


def _client_can(query: PullQuery | RawQuery, refused: BadRequest) -> bool:
    """Whether a pull can continue without the parameter `columns`, which the server has refused, because the client
    drops the other columns itself: if one table is pulled, whose newest columns were checked before, or if the server
    does not know the parameter."""
    return query.scope.table is not None or refused.detail.startswith("unknown parameter")


def newest_ts(scope: Scope, patience: Patience) -> Asking[int]:
    """The newest ts that can be read. It is taken from the call ListDBs, which a token for any part of the tenant may
    use."""
    found = yield from patience.ask(Fetch(scope.whole_tenant.path("databases"), {}), json_of)
    return int(str(found["ts"]))


def earliest_ts(scope: Scope, patience: Patience) -> Asking[int]:
    """The lowest ts from which the scope's changes can be read. The server states it when it refuses a pull from 0. If
    it does not refuse that, the result is 0."""
    params = {"start_ts": "0", "end_ts": "0", "limit": "1", **NDJSON}
    try:
        yield from patience.ask(Fetch(scope.path("changes"), params), lambda _: None)
    except Gone as gone:
        return gone.earliest_ts or 0
    return 0


def _check_columns(scope: Scope, columns: tuple[str, ...], patience: Patience) -> Asking[None]:
    """Raise WrongArgument for a column that the table, in its newest shape, does not have. A table that is gone has no
    newest shape: its columns are not checked."""
    try:
        found: Any = yield from patience.ask(Fetch(scope.path("schema"), {}), json_of)
    except UnknownName:
        return
    names = [column["name"] for column in found["columns"]]
    for column in columns:
        if column not in names:
            near = get_close_matches(column.lower(), {name.lower(): name for name in names}, 1)
            shown = next((name for name in names if near and name.lower() == near[0]), names[0])
            raise WrongArgument(
                "columns", f"names {column!r}, and {scope} has {', '.join(names)}", f'columns=["{shown}"]'
            )
