"""Puts the events of a topic's partitions in order. Pure.

Rows wait until every partition is resolved at or above their commit_ts. Then they leave in the order of commit_ts, all
rows of one commit_ts together, and a DDL behind the rows of its own commit_ts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tistream.consume.feed_events import DdlEvent, Event, ResolvedEvent, RowEvent

Partition = tuple[str, int]
"""(topic, number)."""


class OutOfOrder(Exception):
    """A message breaks what the partition promised before. The text says which promise."""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Everything at or below `ts` was taken. Reading goes on at `offsets`, and leaves out what has a commit_ts at or
    below `ts`. `ddls` are the digests of the DDLs taken at `ts` itself: a DDL may follow a resolved ts of its own
    commit_ts."""

    ts: int = 0
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    ddls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Transaction:
    """All rows of one commit_ts, in the order of their partitions. After them, `progress` is true."""

    commit_ts: int
    rows: tuple[RowEvent, ...]
    progress: ReadProgress


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL whose rows have all left. After it, `progress` is true."""

    event: DdlEvent
    progress: ReadProgress


@dataclass(frozen=True, slots=True)
class Resolved:
    """Nothing at or below `progress.ts` follows, except a DDL of exactly this ts."""

    progress: ReadProgress


Step = Transaction | Ddl | Resolved


@dataclass(slots=True)
class _Held:
    """One event that waits."""

    event: RowEvent | DdlEvent
    offset: int
    size: int


@dataclass(slots=True)
class _Seen:
    """The newest commit_ts of a table in a partition, and the messages of it."""

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
        """Where reading goes on: at the oldest event that waits."""
        return min((one.offset for one in self.held), default=self.next_offset)


class Reorder:
    """The buffers of all partitions of a feed.

    With `repeats`, the producer may send messages again: what falls behind the newest commit_ts of its table in the
    partition is left out, and so is the same message at that commit_ts, if its table has a key. Without, a message
    below the partition's resolved ts raises OutOfOrder.
    """

    def __init__(self, partitions: Iterable[Partition], start: ReadProgress, *, repeats: bool = False) -> None:
        """`start` is the last progress that was stored; an empty one: from the beginning of the topics."""
        self._start_ts = self._ts = start.ts
        self._done = set(start.ddls)
        self._repeats = repeats
        self._states = {one: _PartitionState(start.ts, start.offsets.get(one, 0)) for one in sorted(partitions)}

    @property
    def ts(self) -> int:
        """What has a commit_ts at or below it has left."""
        return self._ts

    @property
    def held_bytes(self) -> int:
        """The bytes of the messages that wait."""
        return sum(state.held_bytes for state in self._states.values())

    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that it reads, in order."""
        return tuple(self._states)

    def ahead(self) -> frozenset[Partition]:
        """The partitions that others wait for least: all whose resolved ts is above the lowest one. Reading them can
        pause without holding anything."""
        low = min(state.resolved_ts for state in self._states.values())
        return frozenset(one for one, state in self._states.items() if state.resolved_ts > low)

    def join(self, partition: Partition) -> None:
        """Read another partition, which the topic has grown by. It holds nothing at or below `ts`."""
        self._states.setdefault(partition, _PartitionState(self._ts, 0))

    def add(self, partition: Partition, offset: int, size: int, events: Iterable[Event]) -> None:
        """Take the events of the message at `offset`; `size` is its bytes. Raises OutOfOrder."""
        state = self._states[partition]
        state.next_offset = offset + 1
        for event in events:
            if isinstance(event, ResolvedEvent):
                self._resolve(state, event.ts)
            elif self._is_new(state, event):
                state.held.append(_Held(event, offset, size))
                state.held_bytes += size
                size = 0  # of a batch of events, the first counts

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
        """What every partition has passed, in order. The last step is Resolved, if anything moved."""
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
                steps.append(Transaction(ts, tuple(rows[ts]), self._at(offsets)))  # its DDLs are not in `ddls` yet
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
        """The DDLs to take, each once although every partition has it, by commit_ts in the order of arrival."""
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
    """Whether the partition has not had this row before, as far as its table's order shows."""
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
