"""Sends one answer to a pull: a page that ends as design.md 5 says, or an endless stream.

An answer is an iterator of bytes. An error before the first of them is answered with a status. After that, a retryable
error (an object store that does not answer) ends a page early, and only delays a stream. If retention passes the
position of an answer, the answer ends. If an answer ends for one of these reasons, its last line has the position. Any
other error cuts the answer off, so it never ends with a false `resolved`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tistream.clock import Clock
from tistream.errors import Gone, RetryableError, Undecodable
from tistream.read import cursor as cursors
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import Events
from tistream.read.row_events import Barrier
from tistream.read.source_contract import Batch
from tistream_api.admission.memory_budget import MemoryShare
from tistream_api.encode.encoding import Encoder
from tistream_api.encode.one_stream import OneStream
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece
from tistream_api.request.params import PullParams

INTERRUPTED_MS = 500  # pause of a stream whose input cannot be read
FILTERED_MS = 5_000  # an answer with a filter that has sent no bytes for so long ends where it is
IDLE_MS = 1_000  # interval of `resolved` events in a stream without other events


class PullableProgress(Protocol):
    """What a pull needs to know about the progress of a tenant."""

    def resolved_ts(self) -> int:
        """The ts up to which (inclusive) everything can be read now. It never decreases."""

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        """Wait until resolved_ts > `ts`, `timeout_ms` have passed, or the service stops. Returns whether resolved_ts >
        `ts`."""

    def stopping(self) -> bool:
        """Whether the answer must end: the service is stopping, or the caller may no longer read."""

    def record_barrier(self, barrier: Barrier) -> None:
        """Record a row that cannot be decoded and blocks a pull."""


ScanFrom = Callable[[Position, int, int | None], Iterator[Batch]]
"""(start, high, limit) -> batches: scan.Scan for one scope; with a limit, chunks need not be much larger."""


@dataclass(slots=True)
class Pull:
    """One pull: its scope, its position and the source from which it reads."""

    scope: Scope
    params: PullParams
    start: Position
    progress: PullableProgress
    scan: ScanFrom
    clock: Clock
    # Called with events, the rows among them, and bytes that are about to be sent.
    count: Callable[[int, int, int], None]
    encoder: Encoder
    one: OneStream | None = None  # the answer is a single Arrow stream
    room: MemoryShare | None = None  # its share of the memory budget; None: not limited
    _begun: bool = False

    def answer(self) -> Iterator[Piece]:
        """Yield the answer's bytes. An error before the first of them is raised, such as Undecodable, Gone or
        Unavailable. Later, a retryable error ends a page and only delays a stream, Gone ends the answer at its
        position, and any other error cuts the answer off."""
        for piece in self._stream() if self.params.follow else self._page():
            self.count(0, 0, len(piece))
            yield piece

    # ---- a page

    def _page(self) -> Iterator[Piece]:
        begun_ms = self.clock.monotonic_ms()
        deadline_ms, told_ms = begun_ms + self.params.wait_ms, begun_ms
        page = _Page(self.start, self.params.limit, self.one)
        while True:
            high = self._high()
            if page.at.low_ts < high:
                try:
                    for events in self._wanted(page.take(self._scanned(page.at, high, self.params.limit))):
                        for piece in self._bytes(events):
                            yield piece
                            told_ms = self.clock.monotonic_ms() if len(piece) else told_ms
                        if page.at > self.start and self._late(told_ms):
                            page.full = True
                            break
                except (RetryableError, Gone):
                    if not page.sent:  # after events were sent, the answer ends here and the next one continues
                        raise
            self._refuse(page.barrier, page.at, page.sent)
            ended = self.params.end_ts is not None and page.at >= Position(self.params.end_ts)
            if page.sent or page.full or page.barrier or ended:
                break
            left_ms = deadline_ms - self.clock.monotonic_ms()
            if left_ms <= 0 or self.progress.stopping():
                break
            self._leave()
            self.progress.wait_above(max(high, page.at.low_ts), left_ms)
        yield from self._page_end(page.at)
        yield from self.encoder.close()
        self._leave()

    def _scanned(self, at: Position, high: int, limit: int | None) -> Iterator[Batch]:
        """Take a share of the memory budget, and scan from `at`. Raises TooManyRequests if there is no memory for
        it."""
        if self.room is not None:
            self.room.take()
        return self.scan(at, high, limit)

    def _leave(self) -> None:
        """Release the share of the memory budget, because the pull holds no rows now."""
        if self.room is not None:
            self.room.give()

    def _wanted(self, batches: Iterator[Events]) -> Iterator[Events]:
        """Yield events until the service stops or the caller may no longer read. The cursor of the answer then
        continues after the last event that was sent."""
        for events in batches:
            yield events
            if self.progress.stopping():
                return

    def _late(self, since_ms: int) -> bool:
        """Whether the pull has a filter and FILTERED_MS have passed since `since_ms`, when it last sent bytes
        (monotonic clock): its client might give up."""
        return self.params.choice is not None and self.clock.monotonic_ms() - since_ms >= FILTERED_MS

    def _high(self) -> int:
        resolved_ts = self.progress.resolved_ts()
        return resolved_ts if self.params.end_ts is None else min(resolved_ts, self.params.end_ts)

    def _refuse(self, barrier: Barrier | None, at: Position, sent: int) -> None:
        """Record the row that cannot be decoded and that ends the answer, `barrier`; None: there is no such row. Raises
        Undecodable (422) if the answer has sent no event and its position `at` is still its start."""
        if barrier is None:
            return
        self.progress.record_barrier(barrier)
        if sent or at > self.start:
            return
        extra = {
            "table": barrier.table or "",
            "table_id": str(barrier.table_id),
            "key": barrier.key.hex(),
            "commit_ts": str(barrier.commit_ts),
            "reason": barrier.reason,
        }
        raise Undecodable(str(barrier), extra)

    def _page_end(self, at: Position) -> Iterator[Piece]:
        """Encode the position at the end of the answer: `resolved` after all events of a commit_ts, `continue` inside
        one."""
        resolved_ts = at.commit_ts if at.place is Place.DONE else None
        yield from self.encoder.end(PageEnd(cursors.encode(self.scope, at), resolved_ts))

    def _bytes(self, events: Events) -> Iterator[Piece]:
        # The response's headers are sent before rows are rendered: no error status is possible any more.
        if not self._begun and len(events):
            self._begun = True
            yield b""
        self.count(len(events), events.rows, 0)
        yield from self.encoder.events(events)

    # ---- an endless stream

    def _stream(self) -> Iterator[Piece]:
        page = _Page(self.start, None, self.one)
        begun_ms = self.clock.monotonic_ms()
        told_ms = None
        while not self.progress.stopping():
            high = self.progress.resolved_ts()
            before, interrupted = page.sent, False
            try:
                for events in (
                    self._wanted(page.take(self._scanned(page.at, high, None))) if page.at.low_ts < high else ()
                ):
                    yield from self._bytes(events)
                    quiet = not len(events) and not self._late(told_ms or begun_ms)
                    if page.at.place is Place.DONE and not page.barrier and not quiet:
                        yield from self._page_end(page.at)
                        told_ms = self.clock.monotonic_ms()
            except RetryableError:
                if told_ms is None and not page.sent:
                    raise
                interrupted = True
            except Gone:  # retention has overtaken the stream: its next request gets the error
                if told_ms is None and not page.sent:
                    raise
                break
            self._leave()
            self._refuse(page.barrier, page.at, page.sent if told_ms is None else 1)
            now_ms = self.clock.monotonic_ms()
            if page.barrier or told_ms is None or now_ms - told_ms >= IDLE_MS:
                yield from self._page_end(page.at)
                told_ms = now_ms
            if page.barrier or page.full:
                break
            if interrupted:
                self.progress.wait_above(high, INTERRUPTED_MS)  # then continue from the present position
            elif page.sent == before:
                self.progress.wait_above(max(high, page.at.low_ts), max(1, IDLE_MS - (now_ms - told_ms)))
        if not page.barrier:
            yield from self._page_end(page.at)
        yield from self.encoder.close()


class _Page:
    """Counts the events that a page sends, and ends the page at its limit."""

    def __init__(self, start: Position, limit: int | None, one: OneStream | None) -> None:
        self.at = start
        self.sent = 0
        self.full = False
        self.barrier: Barrier | None = None
        self._limit, self._one = limit, one

    def take(self, batches: Iterator[Batch]) -> Iterator[Events]:
        """Yield the events to send, which may be empty, and set `at` to the position after them. Sets `full` at the end
        of the page, and `barrier` if a row that cannot be decoded follows."""
        for batch in batches if self._one is None else self._one.until_change(batches):
            left = None if self._limit is None else self._limit - self.sent
            if batch.crowd is not None:
                self._reach(batch.through)
                if left is not None and self.sent and batch.crowd > left:
                    self.full = True  # it might not fit: the next answer begins with it
                    return
            events = batch.events
            if left is not None and len(events) > left:
                yield from self._cut(batch, left)
                self.full = True
                return
            if len(events):
                self.sent += len(events)
                self.at = events.position(len(events) - 1)
            if batch.looked_at is not None:
                self.at = max(self.at, batch.looked_at)
            self._reach(batch.through)
            self.barrier = batch.barrier
            yield events
            # Inside a commit_ts that is read in pieces, only the next piece shows whether anything is left.
            if batch.last or (left is not None and len(events) == left and batch.through is not None):
                self.full = True
                return

    def _cut(self, batch: Batch, left: int) -> Iterator[Events]:
        """Yield the events of a batch, at most `left`, up to the end of a commit_ts. If the page has sent nothing and
        its first commit_ts has more events than that, the cut is inside that commit_ts."""
        events = batch.events
        beyond = int(events.commit_ts[left])
        whole = events.before(beyond) if batch.through is not None else events.first(0)
        if len(whole) or (self.sent and self.at.low_ts < beyond and self.at.place is Place.DONE):
            self.sent += len(whole)
            self._reach(beyond - 1)
            yield whole
        elif left:
            self.sent += left
            self.at = events.position(left - 1)
            yield events.first(left)

    def _reach(self, through: int | None) -> None:
        if through is not None:
            self.at = max(self.at, Position(through))
