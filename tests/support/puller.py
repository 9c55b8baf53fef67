"""A small client of change streams for tests: it registers spans, follows errors, and matches commits with prewrites.

It does no I/O: the caller carries requests to stores and messages back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_upstream.emulator.model.region import encoded_bound, raw_bound

Row = cdcpb.Event.Row
Change = tuple[int, int, bytes, bytes, int]  # start_ts, op, value, old value, expire ts
Piece = tuple[bytes, bytes, int]  # raw start, raw end, checkpoint_ts
PREWRITE, COMMIT, ROLLBACK, COMMITTED, INITIALIZED = range(1, 6)


@dataclass
class Watched:
    """A subscription. `told`: its highest resolved ts; 0 before the first."""

    start: bytes
    end: bytes
    checkpoint: int
    store: int
    region: int
    initialized: bool = False
    told: int = 0
    prewrites: dict[tuple[bytes, int], Row] = field(default_factory=dict)
    commits: list[Row] = field(default_factory=list)


def joined(pieces: list[Piece]) -> list[Piece]:
    """Pieces that touch as one, from their lowest checkpoint on."""
    out: list[Piece] = []
    for start, end, checkpoint in sorted(pieces):
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], end, min(out[-1][2], checkpoint))
        else:
            out.append((start, end, checkpoint))
    return out


@dataclass
class Puller:
    """`scan_regions`: PD's answer for a range of encoded keys."""

    scan_regions: Callable[[bytes, bytes], Sequence[pdpb.Region]]
    cluster_id: int
    pieces: list[Piece]
    kv_api: int = 0
    version: str = "8.5.4"
    extra_op: int = 1
    whole: tuple[bytes, bytes] | None = None  # the span of a client that has one subscription of a region at most
    watched: dict[int, Watched] = field(default_factory=dict)  # by request_id
    changes: dict[tuple[bytes, int], Change] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    outside: int = 0  # rows outside of the subscribed span
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    def requests(self) -> list[tuple[int, cdcpb.ChangeDataRequest]]:
        """(store, request) for what is not registered, as far as PD knows its regions."""
        out = []
        pieces, self.pieces = (joined(self.pieces) if self.whole else self.pieces), []
        for start, end, checkpoint in pieces:
            at = start
            for found in self.scan_regions(encoded_bound(start), encoded_bound(end)):
                region = found.region
                low, high = raw_bound(region.start_key), raw_bound(region.end_key)
                if low > at:  # a hole
                    break
                stop = min(filter(None, (high, end)), default=b"")
                torn = self.whole is not None and (max(low, self.whole[0]) < at or stop != self._clipped_end(high))
                if found.leader.store_id and not torn:
                    out.append((found.leader.store_id, self._request(found, at, stop, checkpoint)))
                else:
                    self.pieces.append((at, stop, checkpoint))
                at = stop
                if not at or at == end:
                    break
            if at != end or (at == start and not (end == b"" and out and out[-1][1].end_key == b"")):
                self.pieces.append((at, end, checkpoint))
        return out

    def _clipped_end(self, high: bytes) -> bytes:
        return min(filter(None, (high, self.whole[1] if self.whole else b"")), default=b"")

    def _request(self, found: pdpb.Region, start: bytes, end: bytes, checkpoint: int) -> cdcpb.ChangeDataRequest:
        number, region = next(self._ids), found.region
        self.watched[number] = Watched(start, end, checkpoint, found.leader.store_id, region.id)
        return cdcpb.ChangeDataRequest(
            header=cdcpb.Header(cluster_id=self.cluster_id, ticdc_version=self.version),
            region_id=region.id,
            region_epoch=region.region_epoch,
            checkpoint_ts=checkpoint,
            start_key=encoded_bound(start),
            end_key=encoded_bound(end),
            request_id=number,
            extra_op=self.extra_op,  # type: ignore[arg-type]
            register=cdcpb.ChangeDataRequest.Register(),
            kv_api=self.kv_api,  # type: ignore[arg-type]
        )

    def lost(self, store: int) -> None:
        """The stream of a store ended."""
        for number, one in list(self.watched.items()):
            if one.store == store:
                self._again(number)

    def receive(self, store: int, message: cdcpb.ChangeDataEvent) -> None:
        """Take a message of a store's stream."""
        for event in message.events:
            kind = event.WhichOneof("event")
            if event.request_id not in self.watched:
                continue
            one = self.watched[event.request_id]
            assert event.region_id == one.region
            if kind == "error":
                (name,) = (field.name for field, _ in event.error.ListFields())
                self.errors[name] += 1
                self._again(event.request_id)
            elif kind == "entries":
                for row in event.entries.entries:
                    self._row(one, row)
            elif kind == "resolved_ts":
                self._resolved(one, event.resolved_ts)
        if message.HasField("resolved_ts"):
            told = message.resolved_ts
            for region in told.regions:
                for number, one in self.watched.items():
                    if one.store != store or one.region != region:
                        continue
                    # Without a request id it may be an earlier subscription's, whose end is still under way.
                    if told.request_id == number or (told.request_id == 0 and one.initialized):
                        self._resolved(one, told.ts)

    @property
    def resolved(self) -> int:
        """The lowest resolved ts of all spans; 0 while a span is not registered."""
        if self.pieces or not self.watched:
            return 0
        return min(max(one.told, one.checkpoint) if one.initialized else 0 for one in self.watched.values())

    def _again(self, number: int) -> None:
        one = self.watched.pop(number)
        self.pieces.append((one.start, one.end, max(one.checkpoint, one.told)))

    def _resolved(self, one: Watched, ts: int) -> None:
        assert one.initialized, "a resolved ts before INITIALIZED"
        assert ts >= one.told, "a resolved ts that falls"
        one.told = ts

    def _row(self, one: Watched, row: Row) -> None:
        if row.type == INITIALIZED:
            assert not one.initialized
            one.initialized = True
            for commit in one.commits:
                self._commit(one, commit)
            return
        if row.key < one.start or (one.end and row.key >= one.end):
            self.outside += 1
            return
        at = (row.key, row.start_ts)
        if row.type == PREWRITE:
            known = one.prewrites.get(at)
            if known is None or row.generation > known.generation or (row.value and row.generation == known.generation):
                one.prewrites[at] = row
        elif row.type == COMMITTED:
            self._put(one, row, row)
        elif row.type == COMMIT:
            if one.initialized:
                self._commit(one, row)
            else:
                one.commits.append(row)
        elif row.type == ROLLBACK:
            one.prewrites.pop(at, None)

    def _commit(self, one: Watched, row: Row) -> None:
        prewrite = one.prewrites.pop((row.key, row.start_ts), None)
        if prewrite is None:
            assert (row.key, row.commit_ts) in self.changes, "a commit without its prewrite"
        else:
            self._put(one, row, prewrite)

    def _put(self, one: Watched, row: Row, data: Row) -> None:
        assert row.commit_ts > one.told, "a commit at or below the resolved ts"
        change = (row.start_ts, data.op_type, data.value, data.old_value, data.expire_ts_unix_secs)
        assert self.changes.setdefault((row.key, row.commit_ts), change) == change
