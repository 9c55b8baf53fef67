"""An emulated TiKV store: it handles registrations, and sends scans, changes and resolved timestamps. Pure.

The order of its checks and the messages that it sends follow TiKV's components/cdc.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tistream.model.ts import physical_ms
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import errorpb_pb2 as errorpb
from tistream.wire.tikv import metapb_pb2 as metapb
from tistream_upstream.emulator.model.counters import Counters
from tistream_upstream.emulator.model.feed import Feed, Subscription, not_found, wire_row
from tistream_upstream.emulator.model.mvcc import Mvcc
from tistream_upstream.emulator.model.quirks import Quirks
from tistream_upstream.emulator.model.region import Region, RegionTable, raw_bound
from tistream_upstream.emulator.model.timeline import COMMITTED, INITIALIZED, PREWRITE, Command, Row

_SCAN_BYTES, _SCAN_ROWS = 32 << 10, 1_024  # of one event of a scan
_SCAN_EVENTS = 8  # sent by one scan in one step, at most
_SHORT_VALUE = 255
QUOTA = 512 << 20  # bytes: TiKV's cdc.sink-memory-quota
_REQUIRED = "6.2.0"
_RAW_API = 2


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of all stores.

    `busy_rate`: the share of registrations that are refused as server_is_busy. `scans`: the number of concurrent scans
    of a store. `queued`: the number of registrations that may wait for a scan. `quota`: bytes that may be queued for a
    stream.
    """

    cluster_id: int
    api: int = 1
    busy_rate: float = 0.0
    scans: int = 6
    queued: int = 10_000
    quota: int = QUOTA


@dataclass(slots=True)
class Store:
    """One TiKV store. `regions` and `mvcc` are those of the whole cluster."""

    id: int
    version: str
    config: StoreConfig
    regions: RegionTable
    mvcc: Mvcc
    rng: random.Random
    counters: Counters
    labels: dict[str, str] = field(default_factory=dict)
    up: bool = True
    feeds: list[Feed] = field(default_factory=list)
    _waiting: deque[tuple[Feed, Subscription]] = field(default_factory=deque)
    _scanning: list[tuple[Feed, Subscription]] = field(default_factory=list)

    @property
    def quirks(self) -> Quirks:
        """The behaviour of the store's TiKV version."""
        return Quirks.of(self.version)

    # -- registrations --------------------------------------------------------------------------------------------

    def open(self, multiplexing: bool) -> Feed:
        """Open a change stream of the store. `multiplexing`: the client calls EventFeedV2, not EventFeed."""
        feed = Feed(multiplexing)
        self.feeds.append(feed)
        self.counters.streams += 1
        return feed

    def close(self, feed: Feed) -> None:
        """Forget a stream that its client or the store has closed."""
        if feed in self.feeds:
            self.feeds.remove(feed)
        feed.subscriptions.clear()

    def request(self, feed: Feed, request: cdcpb.ChangeDataRequest, now_ts: int, safe_point: int) -> None:
        """Handle a request that a client has sent on a stream. `now_ts` and `safe_point` (TSO) are used by the counters
        only."""
        features = feed.features(request)
        kind = request.WhichOneof("request")
        if kind == "deregister":
            self._deregister(feed, request)
            return
        if kind == "notify_txn_status":
            return
        self.counters.registrations += 1
        error = self._refusal(feed, request, features.checks_cluster)
        if error is not None:
            self.counters.errors[_kind(error)] += 1
            feed.refuse(request, error)
            return
        one = Subscription(request, raw_bound(request.start_key), raw_bound(request.end_key))
        feed.subscriptions[feed.key(request)] = one
        self._waiting.append((feed, one))
        if request.checkpoint_ts < safe_point:
            self.counters.scans_below_safe_point += 1
        age = physical_ms(now_ts) - physical_ms(request.checkpoint_ts)
        self.counters.oldest_scan_ms = max(self.counters.oldest_scan_ms, age)

    def _refusal(self, feed: Feed, request: cdcpb.ChangeDataRequest, checks_cluster: bool) -> cdcpb.Error | None:
        config, header = self.config, request.header
        if checks_cluster and header.cluster_id != config.cluster_id:
            wrong = cdcpb.ClusterIDMismatch(current=config.cluster_id, request=header.cluster_id)
            return cdcpb.Error(cluster_id_mismatch=wrong)
        if request.kv_api == cdcpb.ChangeDataRequest.TxnKV or (
            request.kv_api == cdcpb.ChangeDataRequest.RawKV and config.api != _RAW_API
        ):
            return cdcpb.Error(compatibility=cdcpb.Compatibility(required_version=_REQUIRED))
        if len(self._waiting) >= config.queued or self.rng.random() < config.busy_rate:
            return cdcpb.Error(server_is_busy=errorpb.ServerIsBusy(reason="too many scans are queued"))
        return self._region_refusal(feed, request)

    def _region_refusal(self, feed: Feed, request: cdcpb.ChangeDataRequest) -> cdcpb.Error | None:
        region = self.regions.by_id.get(request.region_id)
        if region is None or self.id not in region.peers:
            return not_found(request.region_id)
        if feed.key(request) in feed.subscriptions:
            return cdcpb.Error(duplicate_request=cdcpb.DuplicateRequest(region_id=request.region_id))
        if request.region_epoch.version != region.version:
            return epoch_not_match([region])
        if region.store != self.id:
            return not_leader(region.id, region.leader)
        return None

    def _deregister(self, feed: Feed, request: cdcpb.ChangeDataRequest) -> None:
        self.counters.deregistrations += 1
        for one in list(feed.subscriptions.values()):
            asked = one.request
            if asked.request_id == request.request_id and request.region_id in (0, asked.region_id):
                feed.end(one, not_found(asked.region_id))

    # -- what happens ---------------------------------------------------------------------------------------------

    def fail(self, region_id: int, error: cdcpb.Error) -> None:
        """End the subscriptions to a region on all streams, with an error."""
        for feed in self.feeds:
            for one in feed.of_region(region_id):
                self.counters.errors[_kind(error)] += 1
                feed.end(one, error)

    def end_streams(self, why: str) -> None:
        """End all streams."""
        for feed in list(self.feeds):
            feed.closed = why
            self.counters.errors["stream_ended"] += 1
            self.close(feed)

    def send_applied(self, command: Command, repeated: Sequence[bool]) -> None:
        """Send the rows of an applied command to the subscriptions of its region. `repeated` says for each row whether
        it writes an existing lock again."""
        quirks = self.quirks
        rows = list(_delta_rows(command.rows, repeated, quirks.repeats_long))
        self.rng.shuffle(rows)  # rows of one command come in hash order
        index = command.index if quirks.index or self.config.api == _RAW_API else 0
        for feed in self.feeds:
            for one in feed.of_region(command.region_id):
                if one.scan is None and not one.initialized:
                    continue  # it waits for its scan, which will show this
                wanted = [wire_row(row) for row in rows if one.wants(row, quirks.clips)]
                if not wanted:
                    continue
                self.counters.delta_rows += len(wanted)
                event = one.event(wanted, index)
                if one.initialized and not one.deltas:
                    feed.send(event)
                else:
                    one.deltas.append(event)

    # -- time -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Begin scans that wait, and send the next events of the running ones, together with the rows that were applied
        since they began."""
        while self._waiting and len(self._scanning) < self.config.scans:
            feed, one = self._waiting.popleft()
            if feed.subscriptions.get(feed.key(one.request)) is one:
                one.scan = deque(self._scan(one))
                self._scanning.append((feed, one))
        for feed, one in list(self._scanning):
            if feed.subscriptions.get(feed.key(one.request)) is not one or self._send_scan(feed, one):
                self._scanning.remove((feed, one))
        for feed in self.feeds:
            if feed.queued_bytes > self.config.quota:
                for one in list(feed.subscriptions.values())[:1]:
                    self.counters.errors["congested"] += 1
                    feed.end(one, congested(one.request.region_id))

    def _send_scan(self, feed: Feed, one: Subscription) -> bool:
        assert one.scan is not None
        for _ in range(self.rng.randint(1, _SCAN_EVENTS)):
            while one.deltas and self.rng.random() < 0.5:
                feed.send(one.deltas.popleft())
            feed.send(one.scan.popleft())
            if not one.scan:
                one.scan, one.initialized = None, True
                while one.deltas:
                    feed.send(one.deltas.popleft())
                return True
        return False

    def _scan(self, one: Subscription) -> Iterator[cdcpb.Event]:
        region = self.regions.by_id[one.request.region_id]
        raw = one.request.kv_api == cdcpb.ChangeDataRequest.RawKV
        start, end = raw_bound(region.start), raw_bound(region.end)
        if not raw and self.quirks.clips:
            start, end = max(start, one.start), min(filter(None, (end, one.end)), default=b"")
        self.counters.scans += 1
        rows: list[cdcpb.Event.Row] = []
        size = 0
        for row in self.mvcc.changes(start, end, one.request.checkpoint_ts):
            if not one.wants(row, clips=False):
                continue
            rows.append(wire_row(row))
            size += rows[-1].ByteSize()
            self.counters.scanned_rows += 1
            if size >= _SCAN_BYTES or len(rows) >= _SCAN_ROWS:
                yield one.event(rows)
                rows, size = [], 0
        yield one.event([*rows, cdcpb.Event.Row(type=INITIALIZED)])  # type: ignore[arg-type]

    def resolve(self, limit: int) -> None:
        """Send resolved timestamps to all streams. `limit` (TSO): the caller guarantees that no lock in memory and no
        later commit of the store is at or below it."""
        if not self.up:
            return
        for feed in self.feeds:
            resolved = []
            for one in feed.subscriptions.values():
                if not one.initialized:
                    continue
                lock = self.mvcc.lowest_lock(one.start, one.end) if self.mvcc.locks else None
                one.resolved_ts = max(one.resolved_ts, limit if lock is None else min(lock, limit))
                resolved.append((one, one.resolved_ts))
            self.counters.resolved_regions += len(resolved)
            self.counters.resolved_messages += feed.resolve(resolved)


def _delta_rows(rows: Sequence[Row], repeated: Sequence[bool], repeats_long: bool) -> Iterator[Row]:
    for row, again in zip(rows, repeated, strict=True):
        if again and row.type == PREWRITE and (len(row.value) > _SHORT_VALUE or not row.value):
            if repeats_long:
                yield row._replace(value=b"")
        elif row.type != COMMITTED and len(row.value) > _SHORT_VALUE and row.type != PREWRITE:
            yield row._replace(value=b"")  # a commit carries a short value only
        else:
            yield row


def not_leader(region_id: int, leader: metapb.Peer | None) -> cdcpb.Error:
    """Make the error of a store that does not lead a region. `leader` is None if the store knows no leader."""
    return cdcpb.Error(not_leader=errorpb.NotLeader(region_id=region_id, leader=leader))


def epoch_not_match(regions: Sequence[Region]) -> cdcpb.Error:
    """Make the error for a request whose epoch is not the region's. It contains the present regions."""
    return cdcpb.Error(epoch_not_match=errorpb.EpochNotMatch(current_regions=[region.meta for region in regions]))


def congested(region_id: int) -> cdcpb.Error:
    """Make the error for a region whose events exceed the store's memory quota."""
    return cdcpb.Error(congested=cdcpb.Congested(region_id=region_id))


def _kind(error: cdcpb.Error) -> str:
    return next(field.name for field, _ in error.ListFields())
