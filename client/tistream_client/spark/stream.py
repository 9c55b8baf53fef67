"""The reader of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from tistream_client.core import arrow, pull
from tistream_client.core.pull import ARROW
from tistream_client.core.steps import Fetch
from tistream_client.core.times import NOW
from tistream_client.spark import offsets
from tistream_client.spark.offsets import Offset
from tistream_client.spark.plan import Planned, changes_parts, events_of, read, rows_parts
from tistream_client.spark.server import Server, server_of

if TYPE_CHECKING:
    import pyarrow as pa

_WAIT_MS = 1_000


class EventStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table, batch after batch."""

    def __init__(self, plan: Planned) -> None:
        self._plan = plan
        self._target: int | None = None
        self._nothing_until = 0  # above the last offset there is no change up to it

    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins."""
        return offsets.first(self._plan.low, snapshot=self._plan.rows_ts is not None)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to what is resolved now, and not further."""
        with server_of(self._plan.options) as server:
            self._target = self._newest(server)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002 - Spark names it
        """The end of the next batch; `start` if there is nothing new."""
        if (snapshot := offsets.snapshot_after(start)) is not None:
            return snapshot
        with server_of(self._plan.options) as server:
            return offsets.changes_after(start, self._next(server, int(start["to"])))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of the batch that ends at `end`."""
        batch = offsets.batch(start, end)
        if batch is None:
            return []
        with server_of(self._plan.options) as server:
            if batch.low is None:
                return rows_parts(server, batch.high)
            return changes_parts(server, batch.low, batch.high)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        return read(self._plan, partition)

    def _next(self, server: Server, low: int) -> int:
        """The ts up to which, inclusive, the batch after the ts `low` reads; `low` if no batch is due. Waits at the
        server for a change, for about a second at most, unless the query ends with what is resolved now. The offset of
        an idle table moves too."""
        ending = self._plan.options.ending
        last = self._plan.high if isinstance(ending, int) or ending == NOW else None
        bounds = [ts for ts in (last, self._target) if ts is not None]
        if any(low >= ts for ts in bounds):
            return low
        begin = max(low, self._nothing_until)
        first, resolved = self._first_change(server, begin, wait=self._target is None)
        if first is None:
            self._nothing_until = resolved
            return offsets.end_without(low, resolved, bounds, at_once=self._target is not None)
        return offsets.end_with(first, self._newest(server), self._plan.options.span, bounds)

    def _first_change(self, server: Server, low: int, wait: bool) -> tuple[int | None, int]:
        """(the commit_ts of the first change above `low`, None without one; the ts up to which this holds)."""
        params = {"start_ts": str(low), "limit": "1", "events": "rows", **events_of(server.options).filter, **ARROW}
        params["wait_ms"] = str(_WAIT_MS if wait else 0)
        fetch = Fetch(server.options.scope.path("changes"), params)
        page = server.transport.ask(server.patience.ask(fetch, lambda answer: arrow.page_of(answer, None, None)))
        first = page.batches[0].column("commit_ts")[0].as_py() if page.batches else None
        return first, page.resolved_ts or low

    def _newest(self, server: Server) -> int:
        return server.transport.ask(pull.newest_ts(server.options.scope, server.patience))
