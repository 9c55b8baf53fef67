"""Tables that are read by signed ranges of a store in memory: its URLs name the bytes that they are good for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from support.pull_world import World
from tistream.filters.event_choice import EventChoice
from tistream.format.segment import SCHEMA, SegmentRef
from tistream.model.ts import Window
from tistream.pool.rows import read_row_groups
from tistream.pool.writer import write_segment
from tistream.read.arrow.row_batches import row_batches
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import Events
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget
from tistream.read.signed.signed_read import TableRead
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.signed import SignedGroup
from tistream_api.pull.wanted import wanted
from tistream_api.signed.signed_answer import SignedAnswers, Signing
from tistream_api.signed.stretch import StretchLimits

_URL = re.compile(r"memory:(.*)#([0-9]+)\+([0-9]+)")
EACH = StretchLimits(rows_min=1)  # of sets that have few rows
Pull = Callable[[Position, int], Iterator[Events]]


class Expired(Exception):
    """A URL that is no longer good."""


@dataclass(frozen=True)
class Filter:
    """The filters of a read, as text."""

    operations: str | None = None
    where: str | None = None

    @property
    def choice(self) -> EventChoice | None:
        return EventChoice.parse(None, self.operations, None, self.where)


EVERY = Filter()


def sign(key: str, start: int, length: int, seconds: int) -> str:
    assert seconds > 0
    return f"memory:{key}#{start}+{length}"


def fetch_from(objects: MemoryObjectStore) -> Callable[[SignedGroup], bytes]:
    """What a URL is good for."""

    def fetch(group: SignedGroup) -> bytes:
        found = _URL.fullmatch(group.url)
        assert found is not None
        return objects.get_range(found[1], int(found[2]), int(found[3]))

    return fetch


def with_own_groups(world: World, keys: set[str] | None = None) -> World:
    """The world, in which each table has row groups of its own, as large tables do; `keys`: in these segments alone."""
    for index in world.indexes:
        index.update(tuple(_rewritten(world, one) for one in index.segments if keys is None or one.key in keys))
    return world


def _rewritten(world: World, segment: SegmentRef) -> SegmentRef:
    rows = read_row_groups(world.objects, segment, range(len(segment.row_groups)))
    body, ref = write_segment(rows.cast(SCHEMA), f"{segment.key}x", packed_rows=0)
    world.objects.put(ref.key, bytes(body))
    return ref


def segments_of(world: World) -> list[SegmentRef]:
    return [segment for index in world.indexes for segment in index.segments]


def pulled(
    world: World, scope: Scope, at: Position, high: int, filters: Filter = EVERY
) -> Iterator[tuple[Events, Barrier | None]]:
    """What a pull of row events sends."""
    for batch in wanted("rows", world.source, scope, at, high, Budget(), choice=filters.choice):
        yield batch.events, batch.barrier


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Events as they are, in order, without their numbers."""
    found = [row for batch in batches for row in batch.drop_columns(["seq"]).to_pylist()]
    return [{**row, "of": dict(batches[0].schema.metadata)[b"tistream.table"]} for row in found]


def batches_of(events: Events) -> list[pa.RecordBatch]:
    return list(row_batches(events, 0)) if len(events) else []


def answers_of(world: World) -> SignedAnswers:
    return SignedAnswers(world.objects, Signing(sign, 60))


class Reader:
    """Reads a table as a client does; `fetch` fetches row groups. Counts row groups and what was pulled."""

    def __init__(
        self,
        world: World,
        scope: Scope,
        limits: StretchLimits,
        fetch: Callable[[SignedGroup], bytes] | None = None,
        filters: Filter = EVERY,
    ) -> None:
        self._world, self._scope, self._limits, self._filters = world, scope, limits, filters
        self._fetch = fetch or fetch_from(world.objects)
        self._answers = answers_of(world)
        self.answers = self.pulls = self.groups = self.expired = 0
        self.given = set[tuple[str, int]]()  # the row groups of which it got URLs: object and offset
        self.blocked = False
        self.inside = 0  # how many of the expired ones were met inside of a commit_ts
        self.barrier: Barrier | None = None

    def rows(self) -> list[dict[str, Any]]:
        tenant, world = self._scope.tenant, self._world
        read = TableRead.of(
            tenant.cluster_id,
            tenant.tenant_id,
            self._scope.database or "",
            self._scope.table or "",
            world.snapshot_ts,
            self._filters.operations,
            self._filters.where,
        )
        found: list[pa.RecordBatch] = []
        while read.progress.ts < world.end_ts and not self.blocked and self.barrier is None:
            window = Window(read.progress.ts, world.end_ts)
            choice = self._filters.choice
            answer = self._answers.answer(world.source, self._scope, window, world.end_ts, self._limits, choice)
            self.answers += 1
            self.given |= {(one.key, group.start) for one in answer.objects for group in one.groups}
            end = int(answer.end_ts)
            assert end > window.low
            if not answer.direct:
                self.pulls += 1
                found += self._pulled(read.at, end)
                read = read.moved(end)
                continue
            try:
                for batches, later, reached in read.batches(answer.model_dump(mode="json"), self._counted):
                    found += batches
                    read = later
                    if reached.blocked:
                        self.blocked = True
                        found += self._pulled(read.at, world.end_ts)
                        break
            except Expired:
                self.expired += 1
                self.inside += read.at.place is not Place.DONE
        return rows_of(found)

    def _pulled(self, at: Position, high: int) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        for events, barrier in pulled(self._world, self._scope, at, high, self._filters):
            self.barrier = barrier
            found += batches_of(events)
        return found

    def _counted(self, group: SignedGroup) -> bytes:
        self.groups += 1
        return self._fetch(group)


def expected(world: World, scope: Scope, filters: Filter = EVERY) -> list[dict[str, Any]]:
    """The events of one pull."""
    found: list[pa.RecordBatch] = []
    for events, _ in pulled(world, scope, Position(world.snapshot_ts), world.end_ts, filters):
        found += batches_of(events)
    return rows_of(found)
