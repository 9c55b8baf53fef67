"""Begins a pull: checks that the request can be answered, and determines its start and its limits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tistream import trace
from tistream.clock import Clock
from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.follow.tenant_view import TenantView
from tistream.model.tenant_kind import TenantKind
from tistream.model.ts import Window, from_physical_ms
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.read.imported import check_pull
from tistream.read.raw_scope import RawScope
from tistream.read.scan import Budget
from tistream.read.source_contract import Batch
from tistream.trace import Span
from tistream_api.admission.memory_budget import MemoryBudget
from tistream_api.admission.tenant_limits import TenantLimits
from tistream_api.encode.compression import compressed
from tistream_api.encode.encoding import Encoder, new_encoder
from tistream_api.encode.one_stream import one_stream
from tistream_api.encode.shown_names import MayRead, ShownNames
from tistream_api.metrics import ApiMetrics
from tistream_api.pull.admitted import Admission, Answer, ReadCaller
from tistream_api.pull.answer import Pull, PullableProgress, ScanFrom
from tistream_api.pull.decode_slots import DecodeSlots, SlotEncoder
from tistream_api.pull.dropped_answers import DroppedAnswers
from tistream_api.pull.filtered import check_choice, check_databases, scope_of
from tistream_api.pull.wanted import wanted
from tistream_api.request.params import DDL, PullParams
from tistream_api.tenant.near_names import nearest

# Statuses of refusals for a name or a filter, which a later schema may lift
MAY_COME = (InvalidRequest.http_status, UnknownName.http_status)


def check_kind(view: TenantView, kind: TenantKind) -> None:
    """Check that a call is for tenants of this kind. Raises InvalidRequest, which names the calls of the other kind."""
    if view.route.kind is kind:
        return
    if kind is TenantKind.TIDB:
        raise InvalidRequest(f"tenant {view.tenant} is RawKV: it has no tables; its changes are at …/raw/changes")
    raise InvalidRequest(f"tenant {view.tenant} is a TiDB: its changes are at …/changes, not at …/raw/changes")


def _check_asked(
    view: TenantView, scope: Scope, params: PullParams, may_read: MayRead | None, resolved_ts: int
) -> None:
    """Check, by the schema up to `resolved_ts`, that the name of a pull with a start_ts and the names in its filter
    exist. Raises UnknownName, and for the filter InvalidRequest."""
    assert params.start_ts is not None
    low = min(params.start_ts, resolved_ts)
    high = max(low, resolved_ts if params.end_ts is None else min(params.end_ts, resolved_ts))
    if not view.source.name_exists(scope, low, high):
        raise UnknownName(
            f"there is no {scope.shown} between {low} and {high}"
            f"{nearest(view.source, scope, high, may_read)}: ListDBs and ListTables have the names"
        )
    if params.choice is not None:
        check_choice(params.choice, view.source, scope, Window(low, high), begins=True)


def _check_imports(view: TenantView, scope: Scope, params: PullParams, low: int) -> None:
    """Raise TableImported if the pull would lack imported rows of a table whose rows it sends."""
    if params.events != DDL:
        check_pull(view.source, view.shards(), scope_of(scope, params.choice), low, params.end_ts)


@dataclass(slots=True)
class Pulls:
    """Begins the pulls of every tenant. Thread-safe. `slots` limits the concurrent pulls of all tenants, `limits` those
    of one tenant, `working` those that read or render rows at one time, and `memory` the bytes that they hold."""

    clock: Clock
    budget: Budget
    slots: threading.Semaphore
    limits: TenantLimits
    metrics: ApiMetrics
    working: DecodeSlots
    memory: MemoryBudget
    dropped: DroppedAnswers = field(default_factory=DroppedAnswers)

    def answer(
        self,
        view: TenantView,
        scope: Scope,
        params: PullParams,
        still: Callable[[], bool],
        rows: Callable[[int], None] = lambda _: None,
        has_slot: Callable[[], None] = lambda: None,
        may_read: MayRead | None = None,
        gone: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Begin an answer, and make its first bytes.

        `still`, `rows`, `has_slot`, `may_read` and `gone` are those of a ReadCaller. Raises InvalidRequest and its
        subclasses, Unavailable, TooManyRequests.
        """
        check_kind(view, TenantKind.RAW if isinstance(scope, RawScope) else TenantKind.TIDB)
        request = trace.here()
        with trace.child("begin pull"):
            return self._answer(view, scope, params, still, rows, has_slot, may_read, gone, request)

    def _answer(
        self,
        view: TenantView,
        scope: Scope,
        params: PullParams,
        still: Callable[[], bool],
        rows: Callable[[int], None],
        has_slot: Callable[[], None],
        may_read: MayRead | None,
        gone: Callable[[], bool],
        request: Span,
    ) -> Answer:
        read_caller = ReadCaller(still, rows, has_slot, may_read, gone)
        admission = Admission(self.clock, self.slots, self.limits, self.metrics, self.memory, self.dropped)
        admitted = admission.begin(view, scope.call, read_caller, request)
        try:
            has_slot()
            with trace.child("wait fresh"):
                view.wait_fresh(read_caller.alive)
            until_ms = self.clock.monotonic_ms() + params.wait_ms
            start = self._start(view, scope, params, may_read, admitted.watched, until_ms)
            # The answer waits only for what is left of wait_ms: the read timeouts of clients rest on wait_ms.
            params = replace(params, wait_ms=max(0, until_ms - self.clock.monotonic_ms()))
            one = one_stream(params, view.source, scope, view.resolved_ts)
            coded = compressed(new_encoder(params, one), params.coding)
        except BaseException:
            admitted.release()
            raise
        encoder: Encoder = SlotEncoder(coded, self.working, admitted.tenant, read_caller.alive)
        if may_read is not None:
            encoder = ShownNames(encoder, may_read)
        scanner = self._scanner(view, scope, params, read_caller.alive)
        pull = Pull(
            scope, params, start, admitted.watched, scanner, self.clock, admitted.count, encoder, one, admitted.room
        )
        return admitted.answer(pull.answer())

    def _start(
        self,
        view: TenantView,
        scope: Scope,
        params: PullParams,
        may_read: MayRead | None,
        progress: PullableProgress,
        until_ms: int,
    ) -> Position:
        """Check that a pull can be answered, and return its start. Waits up to `until_ms` (monotonic clock)."""
        if params.cursor is not None:
            start = cursors.decode(scope, params.cursor)
            if params.end_ts is not None and params.end_ts < start.commit_ts:
                raise InvalidRequest(
                    f"end_ts {params.end_ts} lies below the cursor, which is at {start.commit_ts}: everything up to "
                    "end_ts was sent",
                    {"parameter": "end_ts"},
                )
            view.check_served(start.low_ts)
            view.check_known()
            if not isinstance(scope, RawScope):
                _check_imports(view, scope, params, start.low_ts)
            if params.choice is not None:
                low = min(start.low_ts, view.resolved_ts())
                check_choice(params.choice, view.source, scope, Window(low, low), begins=False)
            return start
        assert params.start_ts is not None  # Parse_pull requires one of the two
        view.check_served(params.start_ts)
        view.check_known()
        resolved_ts = view.resolved_ts()
        if params.start_ts > max(resolved_ts, self._now_ts()):
            raise InvalidRequest(
                f"start_ts {params.start_ts} lies in the future: use at most the present, such as resolved_ts "
                f"{resolved_ts}",
                {"parameter": "start_ts"},
            )
        if isinstance(scope, RawScope):
            return Position(params.start_ts)
        resolved_ts = self._checked(view, scope, params, may_read, progress, until_ms)
        _check_imports(view, scope, params, min(params.start_ts, resolved_ts))
        return Position(params.start_ts)

    def _checked(
        self,
        view: TenantView,
        scope: Scope,
        params: PullParams,
        may_read: MayRead | None,
        progress: PullableProgress,
        until_ms: int,
    ) -> int:
        """Check the names that a pull with a start_ts asks for, and return the resolved_ts at which they exist.

        If start_ts lies above resolved_ts, a missing table or column may be one that was just created: the pull waits
        up to `until_ms` (monotonic clock) for resolved_ts to reach start_ts, and checks again. Raises Unavailable if
        they are missing and resolved_ts has not reached start_ts by then, and otherwise the errors of _check_asked."""
        assert params.start_ts is not None
        resolved_ts = view.resolved_ts()
        try:
            _check_asked(view, scope, params, may_read, resolved_ts)
        except InvalidRequest as error:
            if params.start_ts <= resolved_ts or error.http_status not in MAY_COME:
                raise
        else:
            return resolved_ts
        if params.choice is not None:
            check_databases(params.choice, scope)
        progress.wait_above(params.start_ts - 1, until_ms - self.clock.monotonic_ms())
        resolved_ts = view.resolved_ts()
        try:
            _check_asked(view, scope, params, may_read, resolved_ts)
        except InvalidRequest as error:
            if params.start_ts <= resolved_ts or error.http_status not in MAY_COME:
                raise
            raise Unavailable(
                f"the schema is known up to {resolved_ts}, and at start_ts {params.start_ts} it may be another: retry "
                f"once resolved_ts has reached start_ts. Until then, {error}"
            ) from error
        return resolved_ts

    def _now_ts(self) -> int:
        return from_physical_ms(self.clock.now_ms() + 1) - 1

    def _scanner(self, view: TenantView, scope: Scope, params: PullParams, alive: Callable[[], None]) -> ScanFrom:
        def scan(start: Position, high: int, limit: int | None) -> Iterator[Batch]:
            budget = self.budget if limit is None else self.budget.for_page(limit)
            tenant = (view.tenant.cluster_id, view.tenant.tenant_id)
            found = wanted(params.events, view.source, scope, start, high, budget, alive, params.choice)
            return self.working.each(tenant, found, alive)

        return scan
