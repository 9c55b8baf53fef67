"""Admits reads. Each read takes one of the slots for concurrent reads and a part of the memory budget; the events, rows
and bytes that it sends are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect

from tistream.clock import Clock
from tistream.errors import TooManyRequests
from tistream.follow.tenant_view import TenantView
from tistream.trace import Span
from tistream_api.admission.memory_budget import MemoryBudget, MemoryShare
from tistream_api.admission.tenant_limits import Tenant, TenantLimits
from tistream_api.encode.piece import Piece
from tistream_api.encode.shown_names import MayRead
from tistream_api.metrics import ApiMetrics
from tistream_api.pull.dropped_answers import DroppedAnswers
from tistream_api.pull.guarded_progress import GuardedProgress, RateLimitedPieces


@dataclass(frozen=True, slots=True)
class ReadCaller:
    """What a read must know about its caller.

    `still` returns whether the caller may still read; the answer ends when it returns False. `rows` is called with the
    number of rows about to be sent. `has_slot` is called once the read has a slot: the caller then gives back
    the slot of the request (RequestSlot.end). `may_read` returns whether a name may be shown to the caller; None: all
    may. When `gone` returns True, because the client has disconnected, the answer ends with ClientDisconnect.
    """

    still: Callable[[], bool]
    rows: Callable[[int], None] = lambda _: None
    has_slot: Callable[[], None] = lambda: None
    may_read: MayRead | None = None
    gone: Callable[[], bool] = lambda: False

    def alive(self) -> None:
        """Check that the client is connected. Raises ClientDisconnect."""
        if self.gone():
            raise ClientDisconnect


class Answer:
    """The bytes of an answer, and its slot among the concurrent reads. The slot is released when the answer ends or is
    closed; an HTTP response closes it. If an answer is dropped without either, its finalizer has the slot released a
    moment later (dropped_answers.py)."""

    def __init__(self, chunks: Iterator[Piece], release: Callable[[], None], dropped: DroppedAnswers) -> None:
        self._chunks = chunks
        self._release: Callable[[], None] | None = release
        self._dropped = dropped
        self._first: Piece | None = None

    def begin(self) -> None:
        """Make the first bytes, which iteration then yields first. It is called before the status line is sent, so that
        an error can still be answered with its status."""
        self._first = next(self._chunks, None)

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            return next(self._chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the slot, and yield nothing from now on. Idempotent."""
        release, self._release = self._release, None
        self._chunks = iter(())
        if release is not None:
            release()

    def __del__(self) -> None:
        if self._release is not None:
            self._dropped.add(self._release)


@dataclass(slots=True)
class Admission:
    """The limits of reads of all tenants. Thread-safe. `slots` limits the concurrent reads of all tenants, `limits`
    those of one tenant, and `memory` the memory that they hold. `dropped`: the slots of answers that were dropped
    without being closed; each new read releases them first."""

    clock: Clock
    slots: threading.Semaphore
    limits: TenantLimits
    metrics: ApiMetrics
    memory: MemoryBudget
    dropped: DroppedAnswers

    def begin(self, view: TenantView, call: str, read_caller: ReadCaller, request: Span) -> Admitted:
        """Take a slot for a read. The caller must call `release` or `answer` of the result. `call` is the operation's
        name in metrics. Raises TooManyRequests."""
        self.dropped.release()
        tenant = (view.tenant.cluster_id, view.tenant.tenant_id)
        self.limits.begin_pull(tenant)
        if not self.slots.acquire(blocking=False):
            self.limits.end_pull(tenant)
            raise TooManyRequests(
                f"{self.limits.pulls_max} pulls are under way, which is the maximum of this server "
                "(TISTREAM_API__PULLS_MAX): retry later"
            )
        watched = GuardedProgress(view, lambda: not read_caller.gone() and read_caller.still(), self.clock)
        room = MemoryShare(self.memory, tenant, read_caller.alive)
        self.metrics.pulls.labels(call).inc()
        return Admitted(self, tenant, call, read_caller, request, watched, room)


@dataclass(slots=True)
class Admitted:
    """One admitted read, which has a slot until `release`."""

    admission: Admission
    tenant: Tenant
    call: str
    read_caller: ReadCaller
    request: Span
    watched: GuardedProgress
    room: MemoryShare
    _totals: list[int] = field(default_factory=lambda: [0, 0, 0])
    _slowed_ms: Callable[[], int] = lambda: 0

    def count(self, events: int, rows: int, size: int) -> None:
        """Count events, the rows among them, and bytes that are about to be sent."""
        metrics = self.admission.metrics
        metrics.events.labels(self.call).inc(events)
        metrics.bytes.labels(self.call).inc(size)
        self.read_caller.rows(rows)
        for at, more in enumerate((events, rows, size)):
            self._totals[at] += more

    def release(self) -> None:
        """End the read: release its slot and its memory share."""
        self.room.close()
        self.admission.metrics.pulls.labels(self.call).dec()
        self.admission.slots.release()
        self.admission.limits.end_pull(self.tenant)
        names = ("tistream.events", "tistream.rows", "tistream.bytes")
        self.request.set(dict(zip(names, self._totals, strict=True)))
        self.request.set({"tistream.waited_ms": self.watched.waited_ms, "tistream.slowed_ms": self._slowed_ms()})

    def answer(self, pieces: Iterator[Piece]) -> Answer:
        """Make the answer that sends these pieces, at the tenant's byte rate. Its first bytes are made at once; an
        error while they are made is raised here, after `release`."""
        metered = RateLimitedPieces(self.watched, self.admission.limits, self.tenant)
        self._slowed_ms = lambda: metered.slowed_ms
        answer = Answer(metered.pieces(pieces), self.release, self.admission.dropped)
        try:
            answer.begin()
        except BaseException:
            answer.close()
            raise
        return answer
