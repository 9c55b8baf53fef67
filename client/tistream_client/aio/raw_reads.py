"""The writes of a tenant of RawKV, in asyncio, as events, pages, record batches or DataFrames."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tistream_client import frames
from tistream_client.checkpoint import Checkpoint
from tistream_client.core import arrow, ndjson
from tistream_client.core.asking import Patience
from tistream_client.core.calls import EVENTS_A_PAGE, ROWS_A_PAGE, RawCall
from tistream_client.core.events import ArrowPage, RawEvent, RawPage
from tistream_client.core.pull import ARROW, NDJSON, pull
from tistream_client.transport import AsyncTransport

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class AsyncRawChanges:
    """The writes of a range. Each method reads the range anew. `async for` gives them in the order of their
    timestamps."""

    def __init__(self, call: RawCall, transport: AsyncTransport, patience: Patience) -> None:
        self._call = call
        self._transport = transport
        self._patience = patience

    async def __aiter__(self) -> AsyncIterator[RawEvent]:
        async for page in self.pages():
            for event in page.events:
                yield event

    def pages(self, *, follow: bool = False) -> AsyncIterator[RawPage]:
        """The writes, page by page, each with its cursor. A page may have no events. With `follow`, new pages come
        without end. Raises WrongArgument if `follow` is given and the read has an end."""
        query = self._call.of(EVENTS_A_PAGE, follow=follow)
        return self._transport.run(pull(query, NDJSON, ndjson.raw_page_of, self._patience, follow=follow))

    async def follow(self, checkpoint: Checkpoint | None = None) -> AsyncIterator[RawEvent]:
        """Every write of the range, and then each new one, without end: see AsyncChanges.follow."""
        call = self._call if checkpoint is None else self._call.at(checkpoint.load())
        async for page in AsyncRawChanges(call, self._transport, self._patience).pages(follow=True):
            for event in page.events:
                yield event
            if checkpoint is not None:
                checkpoint.save(page)

    def arrow_pages(self, *, follow: bool = False) -> AsyncIterator[ArrowPage]:
        """The writes as record batches, page by page, each with its cursor."""
        query = self._call.of(ROWS_A_PAGE, follow=follow)
        return self._transport.run(pull(query, ARROW, arrow.page_of, self._patience, follow=follow))

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The writes as record batches: op, commit_ts, commit_time, keyspace, key, value, expire_at."""
        async for page in self.arrow_pages():
            for batch in page.batches:
                yield batch

    async def to_arrow(self) -> pa.Table:
        """The batches as a table."""
        return frames.table_of([page async for page in self.arrow_pages()], flat=False)

    async def to_polars(self) -> pl.DataFrame:
        """Like to_arrow, as a DataFrame of Polars."""
        return frames.polars_of(await self.to_arrow())

    async def to_pandas(self) -> pd.DataFrame:
        """Like to_arrow, as a DataFrame of pandas."""
        return frames.pandas_of(await self.to_arrow())
