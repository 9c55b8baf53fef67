"""A dispatcher's work on a second of files, without the network."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
from prometheus_client import CollectorRegistry

from bench.inputs.changes import TENANT, Load, seconds
from bench.up import put
from tistream.clock import SystemClock
from tistream.model.span import KeySpan
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.wire import file_batch
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_dispatcher.delivery.window import batch_for
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.change_source import route
from tistream_dispatcher.stores.store_feed import StoreFeed

TASKS = 4


class Routing:
    """Each call finds, reads, routes and encodes what `next` has put."""

    def __init__(self, load: Load, root: Path) -> None:
        self._root = root
        self._seconds = seconds(load)
        self._objects = MeasuredObjectStore(DirectoryObjectStore(root))
        metrics = DispatcherMetrics(CollectorRegistry())
        self._stores = [
            StoreFeed(TENANT, store + 1, (), self._objects, SystemClock(), metrics) for store in range(load.stores)
        ]
        bounds = [
            b"",
            *(b"t" + (101 + (1 << 63) + at * load.tables // TASKS).to_bytes(8, "big") for at in (1, 2, 3)),
            b"",
        ]
        spans = [KeySpan(start, end) for start, end in pairwise(bounds)]
        self._router = Router([TaskSpan(number, span) for number, span in enumerate(spans, 1)])
        self._chains: dict[int, int] = {}
        self.keys: list[str] = []
        self.rows = self.routed_bytes = self.files = 0
        self._forgotten = (0, 0)
        self.next()

    def forget(self) -> None:
        """Count from here: of each store's first file more is read, as it is not known how long its footer is."""
        self.routed_bytes = self.files = 0
        self._forgotten = (0, 0)
        self._forgotten = (self.read_bytes, self.requests)

    @property
    def read_bytes(self) -> int:
        """Of all calls since `forget`."""
        return sum(traffic.read_bytes for traffic in self._objects.traffic().values()) - self._forgotten[0]

    @property
    def requests(self) -> int:
        """Of all calls since `forget`."""
        return sum(traffic.requests for traffic in self._objects.traffic().values()) - self._forgotten[1]

    def next(self) -> None:
        """The stores push their files of the next second."""
        self.keys = []
        for key, body in next(self._seconds).files:
            put(self._root, key, body)
            self.keys.append(key)

    def __call__(self) -> None:
        self.rows = 0
        routed = []
        for store, key in zip(self._stores, self.keys, strict=True):
            named = layout.parse_change_file(key)
            assert named is not None
            store.announced([named[2]])
            found = store.next_file()
            assert found is not None
            ready, file = found
            routed.append(route(file, ready.chain_ts, self._router))
            store.advance(ready)
            self.rows += sum(group.rows for group in file.groups) + file.watermarks.num_rows
            self.routed_bytes += file.change_bytes
            self.files += 1
        file_batch.encode(batch_for(1, routed, range(1, TASKS + 1)))


class PlainFooters:
    """The same files' footers by pyarrow: what any reader must do."""

    def __init__(self, ours: Routing) -> None:
        self._ours = ours
        self.rows = 0

    def __call__(self) -> None:
        self.rows = sum(pq.read_metadata(self._ours._root / key).num_rows for key in self._ours.keys)
