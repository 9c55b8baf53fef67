"""The client for asyncio: an API server, and the reads of one tenant."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from tistream_client.aio.raw_reads import AsyncRawChanges
from tistream_client.aio.reads import AsyncChanges, AsyncRows
from tistream_client.core import arguments, calls, lists, points
from tistream_client.core.arguments import KeyLike
from tistream_client.core.asking import Patience
from tistream_client.core.events import Page, RowEvent, TableInfo, TenantStatus, Transaction, Version
from tistream_client.core.named import Reads, TableReads, TenantReads
from tistream_client.core.scope import Scope
from tistream_client.core.times import EARLIEST, NOW, Clock, TimeLike
from tistream_client.transport import AsyncTransport, Door, draw_number, utc_now

AsyncTable = TableReads[AsyncChanges, AsyncRows]


class AsyncTiStream:
    """A client of the API server at `url`. `token` is the API token, and `token_file` a file with the token, which is
    read before each request; without both, requests have no token. `ca_file`: the authority of the server's
    certificate; None: those that the system trusts. `cert_file`, `key_file`: the client's certificate and its key.

    A request without a complete answer, or with a temporary error such as 429 or 503, is sent again for up to
    `retry_for` seconds of waiting; None: for ever. Close the client, or use it with `async with`. The constructor
    raises WrongArgument for an argument that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: str | os.PathLike[str] | None = None,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        cert_file: str | os.PathLike[str] | None = None,
        key_file: str | os.PathLike[str] | None = None,
        retry_for: float | None = 60.0,
        clock: Clock = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = draw_number,
    ) -> None:
        door = Door.of(url, token, token_file, ca_file, cert_file, key_file)
        patience = Patience(door.url, arguments.retry_for(retry_for), draw)
        self._transport = AsyncTransport(door, sleep)
        self._patience = patience
        self._clock = clock

    def tenant(self, cluster: str | int, tenant: str) -> AsyncTenant:
        """A tenant of a cluster, such as `tenant("7", "acme")`."""
        return AsyncTenant(calls.tenant_scope(cluster, tenant), self._transport, self._patience, self._clock)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncTiStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncTenant(TenantReads[AsyncChanges, AsyncRows]):
    """Reads one tenant, which is one TiDB with its databases. Reads raise WrongArgument for an argument that cannot be
    used, ApiError if the server refuses a request, and NoAnswer if it gives no complete answer."""

    def __init__(self, scope: Scope, transport: AsyncTransport, patience: Patience, clock: Clock) -> None:
        super().__init__(
            Reads(
                clock,
                lambda call: AsyncChanges(call, transport, patience),
                lambda query: AsyncRows(query, transport, patience),
            ),
            scope,
        )
        self._transport = transport
        self._patience = patience

    async def databases(self, *, at: TimeLike = NOW) -> list[str]:
        """The names of the databases at the time `at`."""
        ts = calls.at_ts(at, self._reads.clock)
        return await self._transport.ask(lists.databases(self._scope, ts, self._patience))

    async def tables(self, database: str, *, at: TimeLike = NOW) -> list[TableInfo]:
        """The tables of a database at the time `at`."""
        scope, ts = calls.database_scope(self._scope, database), calls.at_ts(at, self._reads.clock)
        return await self._transport.ask(lists.tables(scope, ts, self._patience))

    async def status(self) -> TenantStatus:
        """The progress of the tenant, and the reason if it makes none."""
        return await self._transport.ask(lists.status(self._scope, self._patience))

    def raw_changes(
        self,
        *,
        since: TimeLike = EARLIEST,
        until: TimeLike | None = None,
        cursor: str | None = None,
        keyspace: int | None = None,
        start_key: bytes | None = None,
        end_key: bytes | None = None,
        page_size: int | None = None,
    ) -> AsyncRawChanges:
        """The writes of a tenant of RawKV after `since`, up to and with `until`, each once. Times and `cursor` are as
        for `changes`. `start_key` (inclusive) and `end_key` (exclusive) are a range of keys of one `keyspace`;
        `keyspace` None: every keyspace."""
        call = calls.raw_call(
            self._scope,
            self._reads.clock,
            since=since,
            until=until,
            cursor=cursor,
            keyspace=keyspace,
            start_key=start_key,
            end_key=end_key,
            page_size=page_size,
        )
        return AsyncRawChanges(call, self._transport, self._patience)

    def history(
        self,
        database: str,
        table: str | None = None,
        *,
        key: KeyLike,
        since: TimeLike = EARLIEST,
        until: TimeLike = NOW,
    ) -> AsyncIterator[Version]:
        """The versions of one row after `since`, up to and with `until`, newest first. `key` is the row's key by column
        name. Without `table`, `database` names both: `"shop.orders"`."""
        scope, range_ = calls.table_scope(self._scope, database, table), calls.range_of(since, until, self._reads.clock)
        return self._transport.run(points.history(scope, calls.row_key(key), range_, self._patience))

    async def transaction(self, start_ts: int) -> Transaction:
        """The changes of the transaction of an event: `transaction(event.start_ts)`."""
        reading = points.transaction(self._scope, calls.transaction_ts(start_ts), self._patience)
        return await self._transport.ask(reading)

    def diff(
        self,
        database: str,
        table: str | None = None,
        *,
        since: TimeLike,
        until: TimeLike = NOW,
        page_size: int | None = None,
    ) -> AsyncIterator[RowEvent]:
        """One event for each row of a table that differs between two times: `row` is the row at `until`, and `old_row`
        the row at `since`. Without `table`, `database` names both: `"shop.orders"`."""
        scope, range_ = calls.table_scope(self._scope, database, table), calls.range_of(since, until, self._reads.clock)
        return self._transport.run(points.diff(scope, range_, calls.page_of_events(page_size), self._patience))

    def squashed(
        self,
        database: str | None = None,
        table: str | None = None,
        *,
        since: TimeLike,
        until: TimeLike = NOW,
        cursor: str | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[Page]:
        """The net changes of a table, of a database or of the tenant after `since`, up to and with `until`: each row
        once, and the schema changes. `cursor` is that of an earlier page without `resolved_ts`, and replaces the times.
        Only the last page has a `resolved_ts`: `changes(cursor=page.cursor)` continues from it."""
        scope, size = calls.changes_scope(self._scope, database, table), calls.page_of_events(page_size)
        range_ = calls.range_of(since, until, self._reads.clock)
        return self._transport.run(points.squashed(scope, range_, cursor, size, self._patience))

    def snapshot(
        self,
        database: str | None = None,
        table: str | None = None,
        *,
        at: TimeLike = NOW,
        cursor: str | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[Page]:
        """All rows of a table, of a database or of the tenant as of a time, table by table, as events with the op
        `read`. `cursor` is that of an earlier page without `resolved_ts`, and replaces `at`. Only the last page has a
        `resolved_ts`: `changes(cursor=page.cursor)` has every change after it."""
        scope, size = calls.changes_scope(self._scope, database, table), calls.page_of_events(page_size)
        ts = calls.at_ts(at, self._reads.clock)
        return self._transport.run(points.snapshot(scope, ts, cursor, size, self._patience))
