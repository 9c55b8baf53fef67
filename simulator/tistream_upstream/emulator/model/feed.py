"""One client's change stream: the negotiated features, the subscriptions, and the queued messages. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import errorpb_pb2 as errorpb
from tistream_upstream.emulator.model.quirks import Features, parse_version
from tistream_upstream.emulator.model.timeline import Row

EVENTS_MAX = 64  # of one message
MESSAGE_BYTES = 6 << 20
_FIRST_BATCH, _GROWTH = 8, 4  # region ids of the batches of resolved timestamps

Key = tuple[int, int]  # request_id (0 without multiplexing) and region_id


@dataclass(slots=True, eq=False)
class Subscription:
    """A client's subscription to a region. `start`, `end`: raw keys.

    `scan` are the events of its scan that have not been sent; None before the scan begins, and once `initialized` was
    sent. `deltas` are the rows that were applied since the scan began and have not been sent.
    """

    request: cdcpb.ChangeDataRequest
    start: bytes
    end: bytes
    initialized: bool = False
    resolved_ts: int = 0
    scan: deque[cdcpb.Event] | None = None
    deltas: deque[cdcpb.Event] = field(default_factory=deque)

    def wants(self, row: Row, clips: bool) -> bool:
        """Whether the stream sends a row of the region to this subscription. Rows whose txn_source has bits above the
        lowest eight are never sent, nor are rows with a txn_source if the request has filter_loop. `clips`: it leaves
        out rows outside of the requested range."""
        if row.txn_source >> 8 or (self.request.filter_loop and row.txn_source & 0xFF):
            return False
        return not clips or (row.key >= self.start and (not self.end or row.key < self.end))

    def event(self, rows: Iterable[cdcpb.Event.Row] = (), index: int = 0) -> cdcpb.Event:
        """Make an event of this subscription with these rows. `index`: the Raft log index of the rows' command; 0: the
        event has none."""
        request = self.request
        entries = cdcpb.Event.Entries(entries=rows)
        return cdcpb.Event(region_id=request.region_id, request_id=request.request_id, index=index, entries=entries)


class Feed:
    """A change stream between a client and a store. Its first request sets the features."""

    def __init__(self, multiplexing: bool) -> None:
        self.subscriptions: dict[Key, Subscription] = {}
        self.closed = ""  # why the store ended the stream
        self.queued_bytes = 0
        self._multiplexing = multiplexing
        self._features: Features | None = None
        self._queue: deque[cdcpb.Event | cdcpb.ResolvedTs] = deque()

    def features(self, request: cdcpb.ChangeDataRequest) -> Features:
        """The features of the stream, which its first request determines."""
        if self._features is None:
            self._features = Features(self._multiplexing, parse_version(request.header.ticdc_version))
        return self._features

    def key(self, request: cdcpb.ChangeDataRequest) -> Key:
        """Return the key by which this stream finds the subscription of a request: its region, and with EventFeedV2
        also its request_id."""
        return (request.request_id if self._multiplexing else 0, request.region_id)

    def of_region(self, region_id: int) -> list[Subscription]:
        """The stream's subscriptions to a region."""
        return [one for (_, region), one in self.subscriptions.items() if region == region_id]

    def send(self, event: cdcpb.Event) -> None:
        """Queue an event."""
        self._put(event)

    def refuse(self, request: cdcpb.ChangeDataRequest, error: cdcpb.Error) -> None:
        """Refuse a request: queue an error for it."""
        self._put(cdcpb.Event(region_id=request.region_id, request_id=request.request_id, error=error))

    def end(self, one: Subscription, error: cdcpb.Error) -> None:
        """End a subscription with an error. Rows that were not sent are dropped."""
        if self.subscriptions.pop(self.key(one.request), None) is not None:
            self.refuse(one.request, error)

    def resolve(self, resolved: Iterable[tuple[Subscription, int]]) -> int:
        """Queue the resolved timestamps of subscriptions, `resolved`, in the form that the client's version accepts.
        Returns the number of messages; 0, and nothing is queued, if that version gets none."""
        features = self._features
        if features is None or features.silent:
            return 0
        groups: dict[int, list[tuple[int, int]]] = {}
        for one, ts in resolved:
            request = one.request
            if not features.batched:
                event = cdcpb.Event(region_id=request.region_id, request_id=request.request_id, resolved_ts=ts)
                self._put(event)
                groups[-request.region_id] = []
                continue
            groups.setdefault(self.key(request)[0], []).append((ts, request.region_id))
        messages = 0
        for request_id, found in groups.items():
            found.sort()
            at, size = 0, _FIRST_BATCH
            while at < len(found):
                batch = found[at : at + size]
                self._put(
                    cdcpb.ResolvedTs(regions=[region for _, region in batch], ts=batch[0][0], request_id=request_id)
                )
                at, size = at + size, size * _GROWTH
                messages += 1
            messages += not found
        return messages

    def take(self) -> Iterator[cdcpb.ChangeDataEvent]:
        """The queued messages, each with at most EVENTS_MAX events and about MESSAGE_BYTES, or with a resolved ts.

        A message leaves the queue when the iterator returns it, so that messages which the client does not read count
        as queued.
        """
        while self._queue:
            yield self._next()

    @property
    def waiting(self) -> bool:
        """Whether messages are queued."""
        return bool(self._queue)

    def _next(self) -> cdcpb.ChangeDataEvent:
        first = self._queue.popleft()
        size = first.ByteSize()
        if isinstance(first, cdcpb.ResolvedTs):
            self.queued_bytes -= size
            return cdcpb.ChangeDataEvent(resolved_ts=first)
        events = [first]
        while self._queue and len(events) < EVENTS_MAX:
            following = self._queue[0]
            if isinstance(following, cdcpb.ResolvedTs) or size + following.ByteSize() > MESSAGE_BYTES:
                break
            size += following.ByteSize()
            events.append(following)
            self._queue.popleft()
        self.queued_bytes -= size
        return cdcpb.ChangeDataEvent(events=events)

    def _put(self, message: cdcpb.Event | cdcpb.ResolvedTs) -> None:
        self.queued_bytes += message.ByteSize()
        self._queue.append(message)


def not_found(region_id: int) -> cdcpb.Error:
    """Make the error for a region that is not on the store, for a cancelled scan, and for a deregistration."""
    return cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=region_id))


def wire_row(row: Row) -> cdcpb.Event.Row:
    """Convert a row to its message on the wire."""
    return cdcpb.Event.Row(
        start_ts=row.start_ts,
        commit_ts=row.commit_ts,
        type=row.type,  # type: ignore[arg-type]  # the enumeration is open
        op_type=row.op,  # type: ignore[arg-type]
        key=row.key,
        value=row.value,
        old_value=row.old_value,
        expire_ts_unix_secs=row.expire_ts,
        txn_source=row.txn_source,
        generation=row.generation,
    )
