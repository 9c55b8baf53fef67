"""The changes and the rows that a call reads, in asyncio, as events, pages, record batches or DataFrames."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tistream_client import frames
from tistream_client.aio.lake_rows import AsyncLakeRows
from tistream_client.checkpoint import Checkpoint
from tistream_client.core import arrow, ndjson, points
from tistream_client.core.asking import Patience
from tistream_client.core.calls import ChangesCall
from tistream_client.core.events import ArrowPage, Event, Page, Row
from tistream_client.core.points import RowsQuery
from tistream_client.core.pull import ARROW, NDJSON, pull
from tistream_client.lake.snapshots import IcebergTable
from tistream_client.transport import AsyncTransport

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class AsyncChanges:
    """The changes of a range. Each method reads the range anew. `async for` gives its events, in commit order."""

    def __init__(self, call: ChangesCall, transport: AsyncTransport, patience: Patience) -> None:
        self._call = call
        self._transport = transport
        self._patience = patience

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for page in self.pages():
            for event in page.events:
                yield event

    def pages(self, *, follow: bool = False) -> AsyncIterator[Page]:
        """The events, page by page, each with its cursor. A page may have no events: store its cursor too, so that it
        does not fall behind retention. With `follow`, new pages come without end. Raises WrongArgument if `follow` is
        given and the read has an end."""
        query = self._call.of_events(follow=follow)
        return self._transport.run(pull(query, NDJSON, ndjson.page_of, self._patience, follow=follow))

    async def follow(self, checkpoint: Checkpoint | None = None) -> AsyncIterator[Event]:
        """Every event of the read, and then each new one, without end. Reconnects after a cut answer, waits after a
        temporary error for as long as it takes, and yields no event twice or out of order. With `checkpoint`, the read
        begins at the stored cursor; the cursor of a page is stored when the caller requests the event after the page.
        Raises WrongArgument if the read has an end."""
        call = self._call if checkpoint is None else self._call.at(checkpoint.load())
        async for page in AsyncChanges(call, self._transport, self._patience).pages(follow=True):
            for event in page.events:
                yield event
            if checkpoint is not None:
                checkpoint.save(page)

    def arrow_pages(self, *, follow: bool = False) -> AsyncIterator[ArrowPage]:
        """The row events of one table as record batches, page by page, each with its cursor. A page has one schema.
        Raises WrongArgument if the call names no table, or has DDL events only."""
        query = self._call.of_rows(follow=follow)
        return self._transport.run(pull(query, ARROW, arrow.page_of, self._patience, follow=follow))

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The row events of one table as record batches: op, commit_ts, commit_time, start_ts, schema_version, and the
        structs key, row, old_row. The schema may change from batch to batch."""
        async for page in self.arrow_pages():
            for batch in page.batches:
                yield batch

    async def to_arrow(self, *, flat: bool = False) -> pa.Table:
        """The batches as a table. With `flat`, the members of structs are columns, such as `row.total`. Raises
        SchemaChanged if a column changed its type."""
        return frames.table_of([page async for page in self.arrow_pages()], flat=flat)

    async def to_polars(self, *, flat: bool = False) -> pl.DataFrame:
        """Like to_arrow, as a DataFrame of Polars."""
        return frames.polars_of(await self.to_arrow(flat=flat))

    async def to_pandas(self) -> pd.DataFrame:
        """Like to_arrow(flat=True), as a DataFrame of pandas, which has no structs."""
        return frames.pandas_of(await self.to_arrow(flat=True))


class AsyncRows:
    """The rows of a table as of a time. Each method reads them anew. `async for` gives them in the order of raw
    keys."""

    def __init__(self, query: RowsQuery, transport: AsyncTransport, patience: Patience) -> None:
        self._query = query
        self._transport = transport
        self._patience = patience

    async def __aiter__(self) -> AsyncIterator[Row]:
        async for rows, _ in self.pages():
            for row in rows:
                yield row

    def pages(self) -> AsyncIterator[tuple[list[Row], int]]:
        """The rows, page by page, with the ts that all pages are of. `changes(since=ts)` continues from it."""
        return self._transport.run(points.rows(self._query, self._patience))

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows as record batches, whose columns are those of the table."""
        async for page in self._arrow_pages():
            for batch in page.batches:
                yield batch

    async def to_arrow(self) -> pa.Table:
        """The batches as a table. Its metadata has the ts as `tistream.ts`."""
        return frames.table_of([page async for page in self._arrow_pages()], flat=False)

    async def to_polars(self) -> pl.DataFrame:
        """Like to_arrow, as a DataFrame of Polars."""
        return frames.polars_of(await self.to_arrow())

    async def to_pandas(self) -> pd.DataFrame:
        """Like to_arrow, as a DataFrame of pandas."""
        return frames.pandas_of(await self.to_arrow())

    def over(self, lake: IcebergTable) -> AsyncLakeRows:
        """The same rows, most of them from an Iceberg table: see Rows.over."""
        return AsyncLakeRows(self._query, lake, self._transport, self._patience)

    def _arrow_pages(self) -> AsyncIterator[arrow.TablePage]:
        return self._transport.run(points.row_batches(self._query, self._patience))
