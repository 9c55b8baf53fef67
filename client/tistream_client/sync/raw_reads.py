"""The writes of a tenant of RawKV, as events, pages, record batches or DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tistream_client import frames
from tistream_client.checkpoint import Checkpoint
from tistream_client.core import arrow, ndjson
from tistream_client.core.asking import Patience
from tistream_client.core.calls import EVENTS_A_PAGE, ROWS_A_PAGE, RawCall
from tistream_client.core.events import ArrowPage, RawEvent, RawPage
from tistream_client.core.pull import ARROW, NDJSON, pull
from tistream_client.transport import Transport

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class RawChanges:
    """The writes of a range. Each method reads the range anew. Iterating gives them in the order of their
    timestamps."""

    def __init__(self, call: RawCall, transport: Transport, patience: Patience) -> None:
        self._call = call
        self._transport = transport
        self._patience = patience

    def __iter__(self) -> Iterator[RawEvent]:
        for page in self.pages():
            yield from page.events

    def pages(self, *, follow: bool = False) -> Iterator[RawPage]:
        """The writes, page by page, each with its cursor. A page may have no events. With `follow`, new pages come
        without end. Raises WrongArgument if `follow` is given and the read has an end."""
        query = self._call.of(EVENTS_A_PAGE, follow=follow)
        return self._transport.run(pull(query, NDJSON, ndjson.raw_page_of, self._patience, follow=follow))

    def follow(self, checkpoint: Checkpoint | None = None) -> Iterator[RawEvent]:
        """Every write of the range, and then each new one, without end: see Changes.follow."""
        call = self._call if checkpoint is None else self._call.at(checkpoint.load())
        for page in RawChanges(call, self._transport, self._patience).pages(follow=True):
            yield from page.events
            if checkpoint is not None:
                checkpoint.save(page)

    def arrow_pages(self, *, follow: bool = False) -> Iterator[ArrowPage]:
        """The writes as record batches, page by page, each with its cursor."""
        query = self._call.of(ROWS_A_PAGE, follow=follow)
        return self._transport.run(pull(query, ARROW, arrow.page_of, self._patience, follow=follow))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The writes as record batches: op, commit_ts, commit_time, keyspace, key, value, expire_at."""
        for page in self.arrow_pages():
            yield from page.batches

    def reader(self) -> pa.RecordBatchReader:
        """A reader of the batches. This call fetches pages up to the first one with rows; the others are fetched as the
        reader is read."""
        return frames.reader_of(self.arrow_pages())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """The batches as a table."""
        return frames.table_of(list(self.arrow_pages()), flat=False)

    def to_polars(self) -> pl.DataFrame:
        """Like to_arrow, as a DataFrame of Polars."""
        return frames.polars_of(self.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """Like to_arrow, as a DataFrame of pandas."""
        return frames.pandas_of(self.to_arrow())
