"""One tenant's schema in memory, as routes read it while its follower writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tistream.concurrency import new_condition
from tistream.errors import InvariantBroken, Unavailable
from tistream.model.ids import TenantKey
from tistream.schema.history import History
from tistream.schema.log_format import LogObject, encode_record
from tistream.wire.sorter import Hold
from tistream_schema.record_log import RecordLog

_WAIT_SLICE_S = 0.25


@dataclass(frozen=True, slots=True)
class LogRead:
    """What one read of the log gives; `lines` are records as JSON."""

    log_id: str
    snapshot_ts: int
    resolved_ts: int
    next_after: int
    more: bool
    lines: list[bytes]


class TenantSchema:
    """History, its records by number, and what holds it. Every method takes the lock."""

    def __init__(self, tenant: TenantKey) -> None:
        self.tenant = tenant
        self._changed = new_condition()
        self._history: History | None = None
        self._log_id = ""
        self._records = RecordLog()
        self._log_objects = 0
        self._holds: list[Hold] = []

    @property
    def resolved_ts(self) -> int | None:
        """None until the snapshot was read."""
        with self._changed:
            return self._history.resolved_ts if self._history else None

    @property
    def snapshot_ts(self) -> int | None:
        """None until the snapshot was read."""
        with self._changed:
            return self._history.snapshot_ts if self._history else None

    @property
    def holds(self) -> list[Hold]:
        """What keeps the schema from going on; empty if nothing does."""
        with self._changed:
            return list(self._holds)

    @property
    def sizes(self) -> tuple[int, int]:
        """(records, log objects)."""
        with self._changed:
            return len(self._records), self._log_objects

    def take(self, log_object: LogObject) -> None:
        """Take the next object of the durable log. Raises InvariantBroken if it says other than what was told."""
        lines = [encode_record(record) for record in log_object.records]
        with self._changed:
            if self._history is None:
                self._history, self._log_id = History(log_object.high_ts), log_object.nonce
            elif log_object.records and log_object.records[0].commit_ts <= self._history.resolved_ts:
                reason = f"schema record at {log_object.records[0].commit_ts}, told to be resolved to "
                raise InvariantBroken(5, f"{self.tenant}: {reason}{self._history.resolved_ts}")
            self._history.apply(log_object.records)
            self._history.advance(log_object.high_ts)
            self._records.append(lines)
            self._log_objects = log_object.number
            self._changed.notify_all()

    def advance(self, resolved_ts: int) -> None:
        """No record lies between the last one taken and `resolved_ts`."""
        with self._changed:
            assert self._history is not None
            if resolved_ts > self._history.resolved_ts:
                self._history.advance(resolved_ts)
                self._changed.notify_all()

    def set_holds(self, holds: Sequence[Hold]) -> None:
        """Replace what holds the schema."""
        with self._changed:
            self._holds = list(holds)

    @contextmanager
    def reading(self) -> Iterator[History]:
        """The history, locked. Raises Unavailable while the snapshot has not been read."""
        with self._changed:
            if self._history is None:
                raise self._not_read()
            yield self._history

    def read_log(
        self,
        after: int,
        known_resolved_ts: int,
        wait_ms: int,
        *,
        stopping: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> LogRead:
        """Records behind number `after`; waits up to wait_ms for a record or a resolved_ts above the known one.

        `after` behind the end belongs to another log: the answer's log_id tells. Raises Unavailable, as `reading`.
        """
        until = now_ms() + wait_ms
        with self._changed:
            while not self._news(after, known_resolved_ts) and now_ms() < until and not stopping():
                self._changed.wait(_WAIT_SLICE_S)
            if self._history is None:
                raise self._not_read()
            lines = self._records.read(after)
            next_after = after + len(lines)
            more = next_after < len(self._records)
            history = self._history
            return LogRead(self._log_id, history.snapshot_ts, history.resolved_ts, next_after, more, lines)

    def _news(self, after: int, known_resolved_ts: int) -> bool:
        if self._history is None:
            return False
        return after != len(self._records) or self._history.resolved_ts > known_resolved_ts

    def _not_read(self) -> Unavailable:
        reason = self._holds[0].reason if self._holds else "its snapshot has not been read yet"
        return Unavailable(f"schema of {self.tenant}: {reason}")
