"""Starts a pull: checks that the request can be answered, and determines its start and its limits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from starlette.requests import ClientDisconnect

from tistream import trace
from tistream.clock import Clock
from tistream.errors import InvalidRequest, TooManyRequests, UnknownName
from tistream.model.ts import from_physical_ms
from tistream.trace import Span
from tistream_api.admission.memory_budget import Memory, Room
from tistream_api.admission.tenant_limits import TenantLimits
from tistream_api.encode.compression import compressed
from tistream_api.encode.encoding import Encoder, new_encoder
from tistream_api.encode.one_stream import one_stream
from tistream_api.encode.piece import Piece
from tistream_api.encode.shown_names import MayRead, ShownNames
from tistream_api.metrics import ApiMetrics
from tistream_api.pull.answer import Pull, ScanFrom
from tistream_api.pull.decode_slots import Working, WorkingEncoder
from tistream_api.pull.guarded_progress import Metered, Watched
from tistream_api.read import cursor as cursors
from tistream_api.read.cursor import Position, Scope
from tistream_api.read.scan import Budget
from tistream_api.read.source_contract import Batch
from tistream_api.read.wanted import wanted
from tistream_api.request.params import PullParams
from tistream_api.tenant.tenant_view import TenantView


class Answer:
    """An answer's bytes, and the slot that it holds until it ends or is dropped."""

    def __init__(self, chunks: Iterator[Piece], release: Callable[[], None]) -> None:
        self._chunks = chunks
        self._release: Callable[[], None] | None = release
        self._first: Piece | None = None

    def begin(self) -> None:
        """Make the first bytes, so that errors of the request are raised while it can still get a status."""
        self._first = next(self._chunks, None)

    def __iter__(self) -> Iterator[Piece]:
        try:
            if self._first is not None:
                yield self._first
            self._first = None
            yield from self._chunks
        finally:
            self.close()

    def close(self) -> None:
        """Release the slot. Idempotent."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __del__(self) -> None:
        self.close()


@dataclass(slots=True)
class Pulls:
    """Pulls of every tenant. Thread-safe. `slots` limits the pulls under way, `limits` those of one tenant, `working`
    those that read or render rows at the moment, and `memory` what they hold."""

    clock: Clock
    budget: Budget
    slots: threading.Semaphore
    limits: TenantLimits
    metrics: ApiMetrics
    working: Working
    memory: Memory

    def answer(
        self,
        view: TenantView,
        scope: Scope,
        params: PullParams,
        still: Callable[[], bool],
        rows: Callable[[int], None] = lambda _: None,
        counted: Callable[[], None] = lambda: None,
        may_read: MayRead | None = None,
        gone: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Begin an answer.

        `still` returns whether the caller may still read; the answer ends when it returns False. `rows` is called with
        the number of rows about to be sent, and `counted` once the pull counts as under way. `may_read` returns whether
        a name may be shown to the caller; None: all may. When `gone` returns True, because the client has disconnected,
        the answer ends with ClientDisconnect. Raises InvalidRequest and its subclasses, Unavailable, TooManyRequests.
        """
        request = trace.here()
        with trace.child("begin pull"):
            return self._answer(view, scope, params, still, rows, counted, may_read, gone, request)

    def _answer(
        self,
        view: TenantView,
        scope: Scope,
        params: PullParams,
        still: Callable[[], bool],
        rows: Callable[[int], None],
        counted: Callable[[], None],
        may_read: MayRead | None,
        gone: Callable[[], bool],
        request: Span,
    ) -> Answer:
        tenant = (view.tenant.cluster_id, view.tenant.tenant_id)
        self.limits.begin_pull(tenant)
        if not self.slots.acquire(blocking=False):
            self.limits.end_pull(tenant)
            raise TooManyRequests("as many pulls as this server answers at once are under way")
        try:
            counted()
            with trace.child("wait fresh"):
                view.wait_fresh()
            start = self._start(view, scope, params)
        except BaseException:
            self.slots.release()
            self.limits.end_pull(tenant)
            raise
        events, sent = self.metrics.events.labels(scope.call), self.metrics.bytes.labels(scope.call)
        under_way = self.metrics.pulls.labels(scope.call)

        totals = [0, 0, 0]

        def count(events_sent: int, rows_sent: int, bytes_sent: int) -> None:
            events.inc(events_sent)
            sent.inc(bytes_sent)
            rows(rows_sent)
            for at, more in enumerate((events_sent, rows_sent, bytes_sent)):
                totals[at] += more

        def alive() -> None:
            if gone():
                raise ClientDisconnect

        room = Room(self.memory, tenant, alive)

        def release() -> None:
            room.close()
            under_way.dec()
            self.slots.release()
            self.limits.end_pull(tenant)
            request.set(dict(zip(("tistream.events", "tistream.rows", "tistream.bytes"), totals, strict=True)))
            request.set({"tistream.waited_ms": watched.waited_ms, "tistream.slowed_ms": metered.slowed_ms})

        under_way.inc()
        one = one_stream(params, view.source, scope, view.resolved_ts)
        coded = compressed(new_encoder(params, one), params.coding)
        encoder: Encoder = WorkingEncoder(coded, self.working, tenant, alive)
        if may_read is not None:
            encoder = ShownNames(encoder, may_read)
        watched = Watched(view, lambda: not gone() and still(), self.clock)
        scanner = self._scanner(view, scope, params.events, alive)
        pull = Pull(scope, params, start, watched, scanner, self.clock, count, encoder, one, room)
        metered = Metered(watched, self.limits, tenant)
        answer = Answer(metered.pieces(pull.answer()), release)
        try:
            answer.begin()
        except BaseException:
            answer.close()
            raise
        return answer

    def _start(self, view: TenantView, scope: Scope, params: PullParams) -> Position:
        if params.cursor is not None:
            start = cursors.decode(scope, params.cursor)
            if params.end_ts is not None and params.end_ts < start.commit_ts:
                raise InvalidRequest(f"end_ts {params.end_ts} lies below the cursor", {"parameter": "end_ts"})
            view.check_retained(start.low_ts)
            view.check_known()
            return start
        assert params.start_ts is not None  # Parse_pull requires one of the two
        view.check_retained(params.start_ts)
        view.check_known()
        resolved_ts = view.resolved_ts()
        if params.start_ts > max(resolved_ts, self._now_ts()):
            raise InvalidRequest(f"start_ts {params.start_ts} lies in the future", {"parameter": "start_ts"})
        low = min(params.start_ts, resolved_ts)
        high = resolved_ts if params.end_ts is None else min(params.end_ts, resolved_ts)
        if not view.source.bears(scope, low, max(low, high)):
            what = f"database {scope.database!r}" if scope.table is None else f"table {scope.database}.{scope.table}"
            raise UnknownName(f"no {what} between {low} and {max(low, high)}")
        return Position(params.start_ts)

    def _now_ts(self) -> int:
        return from_physical_ms(self.clock.now_ms() + 1) - 1

    def _scanner(self, view: TenantView, scope: Scope, events: str, alive: Callable[[], None]) -> ScanFrom:
        def scan(start: Position, high: int, limit: int | None) -> Iterator[Batch]:
            budget = self.budget if limit is None else self.budget.for_page(limit)
            tenant = (view.tenant.cluster_id, view.tenant.tenant_id)
            return self.working.each(tenant, wanted(events, view.source, scope, start, high, budget), alive)

        return scan
