"""Puts the events of a topic's partitions in order. Pure.

Rows are buffered until every partition has a resolved ts at or above their commit_ts. Then `Reorder.ready` returns them
in the order of commit_ts: all rows of one commit_ts together, and a DDL after the rows of its own commit_ts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream.consume.feed_events import AdminEvent, DdlEvent, Event, ResolvedEvent, RowEvent

Partition = tuple[str, int]
"""(topic, number) of a partition."""


class OutOfOrder(Exception):
    """Raised if a message contradicts an earlier resolved ts of its partition. The text states that ts."""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """The progress of a target: it has applied all events with a commit_ts at or below `ts`. Reading continues at
    `offsets`, and skips events with a commit_ts at or below `ts`. `ddls` are the digests of the DDLs with a commit_ts
    of exactly `ts` that were applied, because such a DDL may arrive after the resolved ts."""

    ts: int = 0
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    ddls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Transaction:
    """All rows of one commit_ts, partition by partition. `progress` is the reader's progress once they are applied."""

    commit_ts: int
    rows: tuple[RowEvent, ...]
    progress: ReadProgress


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL, to be applied after all rows that were returned before it. `progress` is the reader's progress once it is
    applied."""

    event: DdlEvent
    progress: ReadProgress


@dataclass(frozen=True, slots=True)
class Resolved:
    """States that no event at or below `progress.ts` follows, except a DDL of exactly this ts."""

    progress: ReadProgress


Step = Transaction | Ddl | Resolved


@dataclass(slots=True)
class _Held:
    """One buffered event, with the offset and the size in bytes of its message."""

    event: RowEvent | DdlEvent
    offset: int
    size: int


@dataclass(slots=True)
class _Seen:
    """What was seen of one table in one partition: its newest commit_ts, and the digests of the rows with that
    commit_ts."""

    commit_ts: int = 0
    digests: set[bytes] = field(default_factory=set)


class _PartitionState:
    def __init__(self, ts: int, offset: int) -> None:
        self.resolved_ts = ts
        self.next_offset = offset
        self.held: list[_Held] = []
        self.held_bytes = 0
        self.seen: dict[tuple[str, str], _Seen] = {}

    @property
    def position(self) -> int:
        """The offset at which reading would continue after a restart: that of the oldest buffered event."""
        return min((one.offset for one in self.held), default=self.next_offset)


class Reorder:
    """Buffers the events of all partitions of a feed, and returns them in order once they are complete.

    With `repeats`, the producer may send messages again. Rows below the newest commit_ts of their table in the
    partition are then skipped, and so are equal rows at that commit_ts if the table has a key. Without `repeats`, a row
    at or below the partition's resolved ts raises OutOfOrder.
    """

    def __init__(self, partitions: Iterable[Partition], start: ReadProgress, *, repeats: bool = False) -> None:
        """`start` is the last progress that the target stored. Empty progress means that reading begins at the oldest
        messages."""
        self._start_ts = self._ts = start.ts
        self._done = set(start.ddls)
        self._repeats = repeats
        self._states = {one: _PartitionState(start.ts, start.offsets.get(one, 0)) for one in sorted(partitions)}

    @property
    def ts(self) -> int:
        """The ts up to which `ready` has returned every event."""
        return self._ts

    @property
    def held_bytes(self) -> int:
        """The total size of the buffered messages, in bytes."""
        return sum(state.held_bytes for state in self._states.values())

    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that are read, in order."""
        return tuple(self._states)

    def ahead(self) -> frozenset[Partition]:
        """The partitions whose resolved ts is above the lowest one. They may be paused without delaying any event,
        because events wait for the partitions with the lowest one."""
        low = min(state.resolved_ts for state in self._states.values())
        return frozenset(one for one, state in self._states.items() if state.resolved_ts > low)

    def add_partition(self, partition: Partition) -> None:
        """Begin to wait for a partition that was added to the topic. Its resolved ts begins at the current `ts`,
        because it has no older events."""
        self._states.setdefault(partition, _PartitionState(self._ts, 0))

    def add(self, partition: Partition, offset: int, size: int, events: Iterable[Event]) -> None:
        """Buffer the events of the message at `offset`, which has `size` bytes. Without `repeats`, raises OutOfOrder if
        an event contradicts an earlier resolved ts of the partition."""
        state = self._states[partition]
        state.next_offset = offset + 1
        for event in events:
            if isinstance(event, AdminEvent):
                continue  # it concerns the partitions that are read, not the order of events
            if isinstance(event, ResolvedEvent):
                self._resolve(state, event.ts)
            elif self._is_new(state, event):
                state.held.append(_Held(event, offset, size))
                state.held_bytes += size
                size = 0  # the first event of a message counts all of its bytes

    def _resolve(self, state: _PartitionState, ts: int) -> None:
        if ts < state.resolved_ts and ts > self._start_ts and not self._repeats:
            raise OutOfOrder(f"resolved ts {ts} follows {state.resolved_ts}")
        state.resolved_ts = max(state.resolved_ts, ts)

    def _is_new(self, state: _PartitionState, event: RowEvent | DdlEvent) -> bool:
        if isinstance(event, DdlEvent):  # it may follow a resolved ts of its own commit_ts
            return event.commit_ts > self._ts or (event.commit_ts == self._ts and _digest(event) not in self._done)
        if event.commit_ts <= self._start_ts:
            return False
        if self._repeats:
            return event.commit_ts > state.resolved_ts and _first_time(state, event)
        if event.commit_ts <= state.resolved_ts:
            raise OutOfOrder(
                f"a row of {event.database}.{event.table} with commit_ts {event.commit_ts} "
                f"follows resolved ts {state.resolved_ts}; if the producer may repeat messages, read with repeats"
            )
        return True

    def ready(self) -> list[Step]:
        """Remove and return the steps that are complete: those at or below the resolved ts of every partition, in
        order. The last step is Resolved, unless the list is empty."""
        resolved = min(state.resolved_ts for state in self._states.values())
        ddls = self._ddls(resolved)
        if resolved <= self._ts and not ddls:
            return []
        offsets = self._offsets()
        steps: list[Step] = []
        rows = self._rows(resolved)
        for ts in sorted({*rows, *ddls}):
            if ts > self._ts:
                self._ts, self._done = ts, set()
            if ts in rows:
                # The DDLs of this ts are not in `ddls` yet.
                steps.append(Transaction(ts, tuple(rows[ts]), self._at(offsets)))
            for digest, event in ddls.get(ts, {}).items():
                self._done.add(digest)
                steps.append(Ddl(event, self._at(offsets)))
        if resolved > self._ts:
            self._ts, self._done = resolved, set()
        self._release(resolved)
        steps.append(Resolved(self._at(self._offsets())))
        return steps

    def _at(self, offsets: Mapping[Partition, int]) -> ReadProgress:
        return ReadProgress(self._ts, offsets, frozenset(self._done))

    def _offsets(self) -> dict[Partition, int]:
        return {one: state.position for one, state in self._states.items()}

    def _rows(self, resolved: int) -> dict[int, list[RowEvent]]:
        rows: dict[int, list[RowEvent]] = {}
        for state in self._states.values():
            for one in state.held:
                if isinstance(one.event, RowEvent) and one.event.commit_ts <= resolved:
                    rows.setdefault(one.event.commit_ts, []).append(one.event)
        return rows

    def _ddls(self, resolved: int) -> dict[int, dict[str, DdlEvent]]:
        """The buffered DDLs at or below `resolved` that have not been returned yet, by commit_ts and digest. Every
        partition has a copy of each DDL; one of them is returned."""
        ddls: dict[int, dict[str, DdlEvent]] = {}
        for state in self._states.values():
            for one in state.held:
                if isinstance(one.event, DdlEvent) and one.event.commit_ts <= resolved:
                    digest = _digest(one.event)
                    if one.event.commit_ts > self._ts or digest not in self._done:
                        ddls.setdefault(one.event.commit_ts, {}).setdefault(digest, one.event)
        return ddls

    def _release(self, resolved: int) -> None:
        for state in self._states.values():
            state.held = [one for one in state.held if one.event.commit_ts > resolved]
            state.held_bytes = sum(one.size for one in state.held)


def _first_time(state: _PartitionState, event: RowEvent) -> bool:
    """Record the row in `state`. Returns False if it is a repeat: it is below the newest commit_ts of its table in the
    partition, or the table has a key and an equal row was recorded at that commit_ts."""
    seen = state.seen.setdefault(event.name, _Seen())
    if event.commit_ts < seen.commit_ts:
        return False
    if event.commit_ts > seen.commit_ts:
        seen.commit_ts, seen.digests = event.commit_ts, set()
    if not event.key:
        return True  # two equal rows of a table without a key are two rows
    digest = hashlib.sha256(repr((event.old, event.new)).encode()).digest()
    if digest in seen.digests:
        return False
    seen.digests.add(digest)
    return True


def _digest(event: DdlEvent) -> str:
    return hashlib.sha256(repr((event.database, event.table, event.query)).encode()).hexdigest()[:16]
