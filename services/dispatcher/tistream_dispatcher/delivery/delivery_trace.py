"""Records a batch of files that is sent to a sorter as a trace span (docs/operations/traces.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tistream import trace
from tistream.model.ids import TenantKey
from tistream.trace import Attributes, Span
from tistream_dispatcher.delivery.window import RoutedFile

FILES_MAX = 32  # files whose arrival times are recorded


@contextmanager
def delivery_trace(tenant: TenantKey, files: Sequence[RoutedFile], tasks: int) -> Iterator[Span]:
    """A context manager around the sending of a batch, which `tasks` tasks get. Its trace span begins with the arrival
    of the oldest file, and ends when the sorter has received the batch or the request has failed. A batch that is sent
    again has another span."""
    began_ns = min(file.ref.arrived_ms for file in files) * 1_000_000
    sent: Attributes = {"tistream.tenant": str(tenant), "tistream.files": len(files), "tistream.tasks": tasks}
    with trace.root("dispatch", began_ns=began_ns, attributes=sent) as span:
        now_ns = trace.now_ns()
        for file in files[:FILES_MAX]:
            said: Attributes = {
                "tistream.store": str(file.ref.store_id),
                "tistream.file_ts": str(file.ref.ts),
                "tistream.bytes": file.ref.size,
            }
            trace.record("file routed", file.ref.arrived_ms * 1_000_000, now_ns, span.context, attributes=said)
        yield span
