"""Connects Spark's driver and executors to the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tistream_client.core import arrow, lists, pull
from tistream_client.core.asking import Patience
from tistream_client.core.errors import Gone, UnknownName
from tistream_client.core.lists import TableShape
from tistream_client.core.pull import ARROW, PullQuery
from tistream_client.spark.options import Options
from tistream_client.transport import Door, Transport, draw_number

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Server:
    """Connections to the API server, and the rules for retries of requests. `sleep` waits some seconds."""

    options: Options
    transport: Transport
    patience: Patience
    sleep: Callable[[float], None] = time.sleep

    def shape_at(self, ts: int) -> TableShape | None:
        """The columns of the table as of a ts; None if the server does not have them any more."""
        try:
            return self.transport.ask(lists.table_shape(self.options.scope, ts, self.patience))
        except (Gone, UnknownName):
            return None

    def pulled(self, query: PullQuery) -> Iterator[Sequence[pa.RecordBatch]]:
        """Yield the pages of a pull of row events, each as its record batches. Those of a page have one schema; another
        page may have another, and a page without rows has no batch."""
        for page in self.transport.run(pull.pull(query, ARROW, arrow.page_of, self.patience, follow=False)):
            yield page.batches


@contextmanager
def server_of(options: Options) -> Iterator[Server]:
    """Open connections to the API server for a `with` block. Raises WrongArgument if an option cannot be used, such as
    a token file that cannot be read."""
    door = Door.of(options.url, options.token, options.token_file, options.ca_file, options.cert_file, options.key_file)
    transport = Transport(door, time.sleep)
    try:
        yield Server(options, transport, Patience(door.url, options.retry_for, draw_number))
    finally:
        transport.close()
