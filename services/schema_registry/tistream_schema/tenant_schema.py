"""One tenant's schema in memory. HTTP routes read it while the tenant's follower writes it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tistream.concurrency import new_condition
from tistream.errors import InvariantBroken, Unavailable
from tistream.model.ids import TenantKey
from tistream.schema.base import restated
from tistream.schema.history import History
from tistream.schema.log_format import BaseHead, LogObject, decode_record, encode_record
from tistream.schema.records import Record
from tistream.wire.sorter import Hold
from tistream_schema.record_log import RecordLog

_WAIT_SLICE_S = 0.25


@dataclass(frozen=True, slots=True)
class LogRead:
    """The result of one read of the schema log. `log_id` identifies the log: record numbers of logs with different ids
    have nothing in common. `lines`: the records after number `after`, as lines of JSON. `next_after`: the number of the
    last of them, or `after` if `lines` is empty. `more`: whether there are further records now. `begins`: the reader
    must drop its earlier records, because the log was restated."""

    log_id: str
    snapshot_ts: int
    base_ts: int
    resolved_ts: int
    begins: bool
    after: int
    next_after: int
    more: bool
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the schema log. `records`: the number of records that are kept. `records_ever`: the number of the newest
    record, which counts dropped ones, too. `log_objects`: the number of the newest object. `durable_ts`: the ts up to
    which the log has the history with that object."""

    records: int
    records_ever: int
    log_objects: int
    durable_ts: int


class TenantSchema:
    """The schema of one tenant: its history, its numbered records, and the holds (reasons why it does not advance). Any
    thread may read it; only the tenant's loop may call `apply`, `advance`, `rebased` and `set_holds`."""

    def __init__(self, tenant: TenantKey) -> None:
        self.tenant = tenant
        self._changed = new_condition()
        self._history: History | None = None
        self._log_id = ""
        self._records = RecordLog()
        self._begin = 0  # number of the last record at or below base_ts
        self._log_objects = 0
        self._durable_ts = 0
        self._holds: list[Hold] = []

    @property
    def resolved_ts(self) -> int | None:
        """The ts up to which the history is complete; None until the snapshot was read."""
        with self._changed:
            return self._history.resolved_ts if self._history else None

    @property
    def snapshot_ts(self) -> int | None:
        """The tenant's snapshot_ts; None until the snapshot was read."""
        with self._changed:
            return self._history.snapshot_ts if self._history else None

    @property
    def holds(self) -> list[Hold]:
        """Why the schema does not advance; empty if nothing holds it."""
        with self._changed:
            return list(self._holds)

    @property
    def base_ts(self) -> int | None:
        """The lowest ts that may be requested; None until the snapshot was read."""
        with self._changed:
            return self._history.base_ts if self._history else None

    @property
    def sizes(self) -> Sizes:
        """The sizes of the part of the log that has been read."""
        with self._changed:
            return Sizes(len(self._records), self._records.end, self._log_objects, self._durable_ts)

    def apply(self, log_object: LogObject) -> None:
        """Apply the next object of the durable log, or a base that replaces all before it. Raises InvariantBroken if it
        contradicts records that were returned to readers."""
        lines = [encode_record(record) for record in log_object.records]
        with self._changed:
            follows = self._history is not None and log_object.number == self._log_objects + 1
            if follows:
                self._apply_new(log_object.new_records)
            elif log_object.base is not None:
                self._begin_at(log_object.base, log_object.records)
            else:
                assert self._history is None, f"object {log_object.number} after {self._log_objects}"
                self._history, self._log_id = History(log_object.high_ts), log_object.nonce
                self._history.apply(log_object.records)
            assert self._history is not None
            if log_object.base is not None:
                self._history.forget(log_object.base.base_ts)
                self._begin = log_object.base.begin
                self._records = RecordLog(self._begin - log_object.base.restated)
            self._records.append(lines)
            self._history.advance(log_object.high_ts)
            self._log_objects, self._durable_ts = log_object.number, log_object.high_ts
            self._changed.notify_all()

    def _apply_new(self, records: Sequence[Record]) -> None:
        assert self._history is not None
        if records and records[0].commit_ts <= self._history.resolved_ts:
            reason = f"schema record at {records[0].commit_ts}, although it was reported as resolved to "
            raise InvariantBroken(5, f"{self.tenant}: {reason}{self._history.resolved_ts}")
        self._history.apply(records)

    def _begin_at(self, base: BaseHead, records: Sequence[Record]) -> None:
        """Begin again at a base, because objects before it, which another process has written, were deleted before this
        process read them."""
        earlier, known = self._history, self._records.end
        history = History(base.snapshot_ts)
        history.apply(records)
        if earlier is not None:
            later = records[base.restated :]
            count = base.begin + bisect_right(later, earlier.resolved_ts, key=lambda record: record.commit_ts)
            if base.base_ts <= earlier.resolved_ts and count != known:
                reason = f"{count} schema records up to {earlier.resolved_ts}, where {known} were reported"
                raise InvariantBroken(5, f"{self.tenant}: {reason}")
            history.advance(earlier.resolved_ts)
        self._history, self._log_id = history, base.log_id

    def rebased(self, base_ts: int) -> tuple[BaseHead, tuple[Record, ...]]:
        """Build a base as of `base_ts` from all records that were read from the log. Returns its head, and its records:
        those that restate the schema as of `base_ts`, then the records above it. `base_ts` must lie in the known
        history. Only the one thread that writes the log may call it."""
        with self._changed:
            history, kept = self._history, self._records
            assert history is not None
            state, snapshot_ts = history.base(base_ts), history.snapshot_ts
        records: list[Record] = []
        while len(records) < len(kept):
            records += map(decode_record, kept.read(kept.first + len(records)))
        at = bisect_right(records, base_ts, key=lambda record: record.commit_ts)
        early = restated(records[:at], base_ts, state)
        head = BaseHead(base_ts, len(early), kept.first + at, self._log_id, snapshot_ts)
        return head, (*early, *records[at:])

    def advance(self, resolved_ts: int) -> None:
        """Raise resolved_ts to `resolved_ts`, because no further record lies at or below it. Does nothing if it is not
        higher."""
        with self._changed:
            assert self._history is not None
            if resolved_ts > self._history.resolved_ts:
                self._history.advance(resolved_ts)
                self._changed.notify_all()

    def set_holds(self, holds: Sequence[Hold]) -> None:
        """Replace the reasons why the schema does not advance."""
        with self._changed:
            self._holds = list(holds)

    @contextmanager
    def reading(self) -> Iterator[History]:
        """Run a `with` block that reads the history, with the lock held. Raises Unavailable while the snapshot has not
        been read."""
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
        known_base_ts: int = 0,
        stopping: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> LogRead:
        """The records after number `after`. Waits up to `wait_ms` for a record, or for a resolved_ts above
        `known_resolved_ts`; the wait also ends once `stopping` returns True. `now_ms`: the monotonic clock.

        If some of those records are not kept any more, the answer has all records that are kept and sets `begins`: the
        reader must drop its earlier records. A reader that has read a part of a base (as of `known_base_ts`) gets the
        rest, unless the log was restated again. An `after` beyond the end is from another log; the reader sees that by
        the answer's log_id. Raises Unavailable while the snapshot has not been read.
        """
        until = now_ms() + wait_ms
        with self._changed:
            while not self._news(after, known_resolved_ts) and now_ms() < until and not stopping():
                self._changed.wait(_WAIT_SLICE_S)
            if self._history is None:
                raise self._not_read()
            history, first = self._history, self._records.first
            begins = after < self._begin and (after <= first or known_base_ts != history.base_ts)
            after = first if begins else after
            lines = self._records.read(after)
            next_after = after + len(lines)
            return LogRead(
                log_id=self._log_id,
                snapshot_ts=history.snapshot_ts,
                base_ts=history.base_ts,
                resolved_ts=history.resolved_ts,
                begins=begins,
                after=after,
                next_after=next_after,
                more=next_after < self._records.end,
                lines=lines,
            )

    def _news(self, after: int, known_resolved_ts: int) -> bool:
        if self._history is None:
            return False
        return after != self._records.end or self._history.resolved_ts > known_resolved_ts

    def _not_read(self) -> Unavailable:
        reason = self._holds[0].reason if self._holds else "its snapshot has not been read yet"
        return Unavailable(f"schema of {self.tenant}: {reason}")
