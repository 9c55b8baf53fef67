"""A small TiKV cluster on a virtual clock, with the change stream's semantics: keys, locks, regions, leaders, scans.

It streams what upstream-formats 6 states: before INITIALIZED, scan rows and applied commands interleave. A
resolved_ts is the smallest live lock's start_ts or now. `committed` is the truth. All randomness comes from one seed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support import cdcpb
from tistream_agent.core import steps
from tistream_agent.core.keys import Region, encoded_bound, raw_bound

KEYS = [b"t" + (1 << 63 | 100).to_bytes(8, "big") + b"_r" + (1 << 63 | n).to_bytes(8, "big") for n in range(24)]
STORES = (1, 2, 3)


@dataclass(slots=True)
class ModelRegion:
    """A region; an empty end is +infinity."""

    region_id: int
    start: bytes
    end: bytes
    version: int
    leader: int

    def holds(self, key: bytes) -> bool:
        return key >= self.start and (not self.end or key < self.end)


@dataclass(slots=True)
class Sub:
    """A subscription at TiKV: `scan` and `deltas` are the two queues that one stream interleaves."""

    request: steps.Register
    region: ModelRegion
    start: bytes
    end: bytes
    scan: deque[Any]
    deltas: deque[Any] = field(default_factory=deque)
    initialized: bool = False
    resolved_ts: int = 0

    def holds(self, key: bytes) -> bool:
        """Whether the key is in the subscribed range, and in the region: a region knows no keys but its own."""
        return key >= self.start and (not self.end or key < self.end) and self.region.holds(key)


@dataclass(slots=True)
class Stream:
    """A stream to a store. `out`: messages that the client has not read; they are lost when it ends."""

    store: int
    subs: dict[tuple[int, int], Sub] = field(default_factory=dict)  # by request_id and region
    out: deque[bytes] = field(default_factory=deque)


class ModelCluster:
    """The cluster: `advance` applies random work; `register` and `read` are the client's side."""

    keys = KEYS

    def __init__(self, rng: random.Random, base_ms: int = 1_000) -> None:
        self.rng, self.now_ms, self._logical = rng, base_ms, 0
        self.base_ts = self.tso()
        self.regions = [ModelRegion(1, b"", b"", 1, 1)]
        self.locks: dict[bytes, tuple[int, int, bytes, bytes]] = {}  # key -> start_ts, op, value, old value
        self.writes: dict[bytes, list[tuple[int, int, int, bytes, bytes]]] = {key: [] for key in self.keys}
        self.committed: set[tuple[bytes, int, int, int, bytes]] = set()
        self.streams: dict[tuple[object, int], Stream] = {}
        self.scans_below_hold = 0
        self.hold_ts = 0
        self.unfiltered = rng.random() < 0.4  # an old TiKV: rows of the region outside of the range are sent too
        self.registered: list[tuple[int, bytes, bytes, int]] = []  # checkpoint, start, end, now
        self._txns: list[tuple[int, list[bytes], int]] = []  # start_ts, keys not settled, commit_ts or 0
        self._next_region = 2

    def tso(self, count: int = 1) -> int:
        """The last of `count` timestamps."""
        self._logical += count
        return (self.now_ms << 18) + self._logical

    # -- work ---------------------------------------------------------------------------------------------------------

    def advance(self, ms: int, work: bool = True) -> None:
        self.now_ms += ms
        rng = self.rng
        for _ in range(rng.randint(0, 4) if work else 0):
            rng.choice([self._prewrite, self._prewrite, self._settle, self._settle, self._one_phase])()
        if not work:
            while self._txns:
                self._settle()
        for _, stream in sorted(self.streams.items(), key=lambda one: repr(one[0])):
            told = [sub for sub in list(stream.subs.values()) if self._stream_some(stream, sub)]
            self._tell(stream, told)

    def churn(self) -> None:
        """One thing that happens to regions."""
        self.rng.choice([self._split, self._merge, self._move, self._move])()

    def _begin(self, key: bytes) -> tuple[int, int, bytes, bytes]:
        old = self.writes[key][-1] if self.writes[key] else None
        old_value = old[3] if old is not None and old[2] == 1 else b""
        op = self.rng.choice([1, 1, 1, 2])
        value = b"v%d" % self.rng.getrandbits(30) if op == 1 else b""
        return op, self.tso(), value, old_value

    def _prewrite(self) -> None:
        keys = [key for key in self.rng.sample(self.keys, self.rng.randint(1, 4)) if key not in self.locks]
        if not keys:
            return
        # A late lock: its start_ts lies below what was resolved already.
        start_ts = self.tso() if self.rng.random() < 0.7 else max(self.base_ts + 1, self.tso() - (400 << 18))
        taken = {start for start, _, _ in self._txns}
        newest = max((w[1] for key in keys for w in self.writes[key][-1:]), default=0)
        if start_ts in taken or newest >= start_ts:
            start_ts = self.tso()
        for key in keys:
            op, _, value, old = self._begin(key)
            self.locks[key] = (start_ts, op, value, old)
            self._apply(
                key, {"type": 1, "op_type": op, "key": key, "value": value, "old_value": old, "start_ts": start_ts}
            )
        self._txns.append((start_ts, keys, 0))

    def _settle(self) -> None:
        if not self._txns:
            return
        at = self.rng.randrange(len(self._txns))
        start_ts, keys, commit_ts = self._txns[at]
        if not commit_ts:
            commit_ts = -1 if self.rng.random() < 0.2 else self.tso()
        some = keys[: self.rng.randint(1, len(keys))]
        for key in some:
            _, op, value, old = self.locks.pop(key)
            if commit_ts < 0:
                self._apply(key, {"type": 3, "key": key, "start_ts": start_ts})
                continue
            self.writes[key].append((start_ts, commit_ts, op, value, old))
            self.committed.add((key, start_ts, commit_ts, op, value))
            self._apply(key, {"type": 2, "op_type": op, "key": key, "start_ts": start_ts, "commit_ts": commit_ts})
        rest = keys[len(some) :]
        self._txns[at : at + 1] = [(start_ts, rest, commit_ts)] if rest else []

    def _one_phase(self) -> None:
        key = self.rng.choice(self.keys)
        if key in self.locks:
            return
        op, start_ts, value, old = self._begin(key)
        commit_ts = self.tso()
        self.writes[key].append((start_ts, commit_ts, op, value, old))
        self.committed.add((key, start_ts, commit_ts, op, value))
        row = {
            "type": 4,
            "op_type": op,
            "key": key,
            "value": value,
            "old_value": old,
            "start_ts": start_ts,
            "commit_ts": commit_ts,
        }
        self._apply(key, row)

    def _apply(self, key: bytes, row: dict[str, Any]) -> None:
        for stream in self.streams.values():
            for sub in stream.subs.values():
                if sub.holds(key) or (self.unfiltered and sub.region.holds(key)):
                    sub.deltas.append(row)

    # -- regions ------------------------------------------------------------------------------------------------------

    def _split(self) -> None:
        region, key = self.rng.choice(self.regions), self.rng.choice(self.keys)
        if not region.holds(key) or key == region.start or len(self.regions) > 9:
            return
        self._end_region(region, "epoch_not_match")
        right = ModelRegion(self._next_region, key, region.end, region.version + 1, region.leader)
        self._next_region += 1
        at = self.regions.index(region)
        left = ModelRegion(region.region_id, region.start, key, region.version + 1, region.leader)
        self.regions[at : at + 1] = [left, right]

    def _merge(self) -> None:
        if len(self.regions) < 2:
            return
        at = self.rng.randrange(len(self.regions) - 1)
        left, right = self.regions[at : at + 2]
        self._end_region(left, "epoch_not_match")
        self._end_region(right, "region_not_found")
        version = max(left.version, right.version) + 1
        self.regions[at : at + 2] = [ModelRegion(left.region_id, left.start, right.end, version, left.leader)]

    def _move(self) -> None:
        region = self.rng.choice(self.regions)
        new = self.rng.choice(STORES)
        if new != region.leader:
            self._end_region(region, "not_leader", new if self.rng.random() < 0.5 else 0)
            region.leader = new

    def _end_region(self, region: ModelRegion, error: str, leader: int = 0) -> None:
        for stream in self.streams.values():
            for request in [one for one, sub in stream.subs.items() if sub.region.region_id == region.region_id]:
                sub = stream.subs.pop(request)
                # What was applied is streamed before the error, or lost with it.
                while sub.initialized and sub.deltas and self.rng.random() < 0.8:
                    self._send(stream, sub, [sub.deltas.popleft()])
                self._error(stream, sub.request, error, leader)

    def _error(self, stream: Stream, request: steps.Register, error: str, leader: int = 0) -> None:
        message = cdcpb.ChangeDataEvent()
        event = message.events.add(region_id=request.region_id, request_id=request.request_id)
        getattr(event.error, error).SetInParent()
        if leader:
            event.error.not_leader.leader.store_id = leader
        stream.out.append(message.SerializeToString())

    # -- the client's side --------------------------------------------------------------------------------------------

    def pd_regions(self, start: bytes, end: bytes) -> list[Region]:
        """PD's answer: sometimes with a hole, sometimes without a leader or with a wrong one."""
        out = []
        for region in self.regions:
            if self.rng.random() < 0.05:
                continue
            leader = self.rng.choice([region.leader] * 12 + [0, *STORES])
            bounds = encoded_bound(region.start), encoded_bound(region.end)
            out.append(Region(region.region_id, *bounds, 1, region.version, leader))
        del start, end
        return out

    def open_stream(self, client: object, stream: int, store: int) -> None:
        self.streams[client, stream] = Stream(store)

    def close(self, client: object, stream: int | None = None) -> None:
        for one in [one for one in self.streams if one[0] == client and stream in (None, one[1])]:
            del self.streams[one]

    def register(self, client: object, request: steps.Register, counts: bool = True) -> None:
        stream = self.streams[client, request.stream]
        self.registered.append((request.checkpoint_ts, request.encoded_start, request.encoded_end, self.now_ms))
        if counts and request.checkpoint_ts <= self.hold_ts:
            self.scans_below_hold += 1
        region = next((one for one in self.regions if one.region_id == request.region_id), None)
        if self.rng.random() < 0.06:
            return self._error(stream, request, self.rng.choice(["server_is_busy", "congested"]))
        if region is None:
            return self._error(stream, request, "region_not_found")
        if region.version != request.version:
            return self._error(stream, request, "epoch_not_match")
        if (request.request_id, request.region_id) in stream.subs:
            return self._error(stream, request, "duplicate_request")
        if region.leader != stream.store:
            return self._error(stream, request, "not_leader", region.leader)
        start, end = raw_bound(request.encoded_start), raw_bound(request.encoded_end)
        sub = Sub(request, region, start, end, deque())
        for key in self.scanned(sub):
            if key in self.locks:
                start_ts, op, value, old = self.locks[key]
                row = {"type": 1, "op_type": op, "key": key, "value": value, "old_value": old, "start_ts": start_ts}
                sub.scan.append(row)
            for start_ts, commit_ts, op, value, old in reversed(self.writes[key]):
                if commit_ts > request.checkpoint_ts:
                    body = {"value": value, "old_value": old, "start_ts": start_ts, "commit_ts": commit_ts}
                    sub.scan.append(dict(type=4, op_type=op, key=key, **body, **self.expiry(op, commit_ts)))
        sub.scan.append({"type": 5})
        stream.subs[request.request_id, request.region_id] = sub
        return None

    def scanned(self, sub: Sub) -> list[bytes]:
        """The keys that a scan walks over."""
        return [key for key in self.keys if sub.holds(key)]

    def expiry(self, op: int, commit_ts: int) -> dict[str, int]:
        """Members that a committed row has besides."""
        del op, commit_ts
        return {}

    def _stream_some(self, stream: Stream, sub: Sub) -> bool:
        """Send some rows. Returns whether the subscription is told a resolved_ts then."""
        rng = self.rng
        for _ in range(rng.randint(0, 4)):
            queue = sub.deltas if sub.initialized or (sub.deltas and rng.random() < 0.5) else sub.scan
            rows = [queue.popleft() for _ in range(min(len(queue), rng.randint(1, 3)))]
            if rows:
                self._send(stream, sub, rows)
            if any(row["type"] == 5 for row in rows):
                sub.initialized = True
        if sub.initialized and not sub.deltas and rng.random() < 0.5:
            held = [start for key, (start, *_) in self.locks.items() if sub.holds(key)]
            sub.resolved_ts = max(sub.resolved_ts, min([self.tso(), *held]) - 1)
            return True
        return False

    def _tell(self, stream: Stream, subs: list[Sub]) -> None:
        """Send one resolved_ts, that of the slowest, for up to three regions of a request."""
        subs.sort(key=lambda sub: (sub.request.request_id, sub.resolved_ts))
        while subs:
            request_id = subs[0].request.request_id
            some = [sub for sub in subs[:3] if sub.request.request_id == request_id]
            del subs[: len(some)]
            message = cdcpb.ChangeDataEvent()
            message.resolved_ts.regions.extend(sub.request.region_id for sub in some)
            message.resolved_ts.ts, message.resolved_ts.request_id = some[0].resolved_ts, request_id
            stream.out.append(message.SerializeToString())

    def _send(self, stream: Stream, sub: Sub, rows: list[dict[str, Any]]) -> None:
        message = cdcpb.ChangeDataEvent()
        event = message.events.add(region_id=sub.request.region_id, request_id=sub.request.request_id)
        for row in rows:
            event.entries.entries.add(**row)
        stream.out.append(message.SerializeToString())

    def read(self, client: object, stream: int, most: int) -> list[bytes]:
        out = self.streams[client, stream].out
        return [out.popleft() for _ in range(min(most, len(out)))]


class RawCluster(ModelCluster):
    """RawKV of API V2: every write is committed at once, its value may expire, and a scan walks the whole region."""

    keys = [b"r\0\0\0" + b"k%02d" % n for n in range(24)]  # noqa: RUF012

    def _one_phase(self) -> None:
        key, op, ts = self.rng.choice(self.keys), self.rng.choice([1, 1, 1, 2]), self.tso()
        value = b"v%d" % self.rng.getrandbits(30) if op == 1 else b""
        self.writes[key].append((ts, ts, op, value, b""))
        self.committed.add((key, ts, ts, op, value))
        body = {"key": key, "value": value, "start_ts": ts, "commit_ts": ts}
        self._apply(key, {"type": 4, "op_type": op, **body, **self.expiry(op, ts)})

    _prewrite = _settle = _one_phase

    def scanned(self, sub: Sub) -> list[bytes]:
        return [key for key in self.keys if sub.region.holds(key)]

    def expiry(self, op: int, commit_ts: int) -> dict[str, int]:
        return {"expire_ts_unix_secs": 1_700_000_000 + commit_ts % 1_000} if op == 1 and commit_ts % 3 else {}


Reader = Callable[[int], list[bytes]]
