"""Answers SignedChanges: checks and admits each request, counts the bytes that its URLs are good for, and records them
in the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tistream import trace
from tistream.errors import NotFoundYet, TiStreamError, Unavailable
from tistream.follow.tenant_view import TenantView
from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream.read.cursor import Scope
from tistream.wire.audit import SignedRead
from tistream.wire.signed import SignedChanges
from tistream_api.points.point_reads import PointReads, table_window
from tistream_api.pull.admitted import Admitted, ReadCaller
from tistream_api.pull.filtered import check_choice
from tistream_api.pull.start import check_kind
from tistream_api.request.signed_query import SignedRequest
from tistream_api.signed.signed_answer import SignedAnswers
from tistream_api.signed.stretch import StretchLimits, slowed

log = logging.getLogger(__name__)

REPLANS = 3
AHEAD_S = 2  # an answer has at most the bytes that the tenant's rate allows in this time, which are its burst


@dataclass(slots=True)
class SignedReads:
    """Answers SignedChanges for every tenant, with the limits of `points`. `record` records in the audit log what an
    answer gives; it raises TiStreamError if that may have failed. Thread-safe."""

    points: PointReads
    answers: SignedAnswers
    limits: StretchLimits
    record: Callable[[TenantKey, SignedRead], object]

    def changes(
        self, view: TenantView, scope: Scope, ask: SignedRequest, read_caller: ReadCaller, count: Callable[[int], None]
    ) -> SignedChanges:
        """The answer of SignedChanges. `count` is called with the bytes of the row groups, which count as served. If
        the tenant's rate does not allow them now, or the audit log takes no entry of them, the answer has no URLs and
        its `direct` is false: the reader must pull the range. Raises InvalidRequest and its subclasses, Unavailable,
        TooManyRequests."""
        check_kind(view, TenantKind.TIDB)
        self.answers.signing.signer()
        admitted = self.points.admission.begin(view, "SignedChanges", read_caller, trace.here())

        def found() -> SignedChanges:
            return self._found(view, scope, ask, admitted)

        try:
            read_caller.has_slot()
            view.wait_fresh(read_caller.alive)
            admitted.room.take()
            steps = (one() for one in [found])  # made inside a working step
            answer = next(self.points.working.each(admitted.tenant, steps, read_caller.alive))
            groups = [group for one in answer.objects for group in one.groups]
            rows, size = sum(group.rows for group in groups), sum(group.length for group in groups)
            given = SignedRead(
                database=scope.database or "",
                table=scope.table or "",
                start_ts=answer.start_ts,
                end_ts=answer.end_ts,
                row_groups=len(groups),
                rows=rows,
                bytes=size,
                seconds=answer.seconds,
            )
            reserve = self.points.admission.limits.reserve
            if groups and not (reserve(admitted.tenant, size) and self._recorded(scope, given)):
                return answer.model_copy(update={"direct": False, "objects": []})
            admitted.count(0, rows, size)
            count(size)
            return answer
        finally:
            admitted.release()

    def _found(self, view: TenantView, scope: Scope, ask: SignedRequest, admitted: Admitted) -> SignedChanges:
        window = table_window(self.points, view, scope, ask.low, ask.high)
        if ask.choice is not None:
            check_choice(ask.choice, view.source, scope, window, begins=True)
        rate = self.points.admission.limits.limits_of(admitted.tenant).served_bytes_per_second
        limits = slowed(self.limits, rate, AHEAD_S)
        for _ in range(REPLANS):
            try:
                return self.answers.answer(view.source, scope, window, view.resolved_ts(), limits, ask.choice)
            except NotFoundYet:  # compaction has deleted the segment: the same rows are in other segments
                view.replan()
                view.check_served(window.low)
        raise Unavailable("segments disappear repeatedly while they are read: retry")

    def _recorded(self, scope: Scope, given: SignedRead) -> bool:
        """Whether the audit log has an entry of what an answer gives."""
        try:
            self.record(scope.tenant, given)
        except TiStreamError as error:
            reason = {"tenant": str(scope.tenant), "reason": str(error)}
            log.warning("no URLs are given, because the audit log has no entry of them", extra=reason)
            return False
        return True
