"""The rows of a table as of a time, of which most come from an Iceberg table, in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tistream_client import frames
from tistream_client.core.asking import Patience
from tistream_client.core.points import RowsQuery
from tistream_client.core.steps import Asking, Reading
from tistream_client.lake.lake_rows import LakeRows, check
from tistream_client.lake.snapshots import IcebergTable
from tistream_client.transport import AsyncTransport

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _FromThread:
    """A transport for a thread beside the event loop, which executes its requests."""

    loop: asyncio.AbstractEventLoop
    transport: AsyncTransport

    def ask(self, asking: Asking[T]) -> T:
        return asyncio.run_coroutine_threadsafe(self.transport.ask(asking), self.loop).result()

    def run(self, reading: Reading[T]) -> Iterator[T]:
        async def found() -> list[T]:
            return [one async for one in self.transport.run(reading)]

        yield from asyncio.run_coroutine_threadsafe(found(), self.loop).result()


class AsyncLakeRows:
    """Like LakeRows, in asyncio. The Iceberg table is read in a thread, because pyiceberg blocks. A read that is
    cancelled continues in its thread."""

    def __init__(self, query: RowsQuery, table: IcebergTable, transport: AsyncTransport, patience: Patience) -> None:
        check(query, table)
        self._query, self._lake = query, table
        self._transport, self._patience = transport, patience

    async def to_arrow(self) -> pa.Table:
        """The rows as a table: see LakeRows.to_arrow."""
        server = _FromThread(asyncio.get_running_loop(), self._transport)
        return await asyncio.to_thread(LakeRows(self._query, self._lake, server, self._patience).to_arrow)

    async def to_polars(self) -> pl.DataFrame:
        """Like to_arrow, as a DataFrame of Polars."""
        return frames.polars_of(await self.to_arrow())

    async def to_pandas(self) -> pd.DataFrame:
        """Like to_arrow, as a DataFrame of pandas."""
        return frames.pandas_of(await self.to_arrow())
