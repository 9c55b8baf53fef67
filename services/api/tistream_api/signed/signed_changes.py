"""Answers SignedChanges: checks and admits each request, and counts the bytes that its URLs are good for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tistream import trace
from tistream.errors import NotFoundYet, Unavailable
from tistream.follow.tenant_view import TenantView
from tistream.model.tenant_kind import TenantKind
from tistream.read.cursor import Scope
from tistream.wire.signed import SignedChanges
from tistream_api.points.point_reads import PointReads, table_window
from tistream_api.pull.admitted import Admitted, ReadCaller
from tistream_api.pull.start import check_kind
from tistream_api.request.signed_query import SignedRequest
from tistream_api.signed.signed_answer import SignedAnswers
from tistream_api.signed.stretch import StretchLimits, slowed

REPLANS = 3
AHEAD_S = 2  # an answer has at most the bytes that the tenant's rate allows in this time, which are its burst


@dataclass(slots=True)
class SignedReads:
    """Answers SignedChanges for every tenant, with the limits of `points`. Thread-safe."""

    points: PointReads
    answers: SignedAnswers
    limits: StretchLimits

    def changes(
        self, view: TenantView, scope: Scope, ask: SignedRequest, read_caller: ReadCaller, count: Callable[[int], None]
    ) -> SignedChanges:
        """The answer of SignedChanges. `count` is called with the bytes of the row groups, which count as served. If
        the tenant's rate does not allow them now, the answer has no URLs and its `direct` is false: the reader must
        pull the range, which slows it down. Raises InvalidRequest and its subclasses, Unavailable, TooManyRequests."""
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
            size = sum(group.length for group in groups)
            if size and not self.points.admission.limits.reserve(admitted.tenant, size):
                return answer.model_copy(update={"direct": False, "objects": []})
            admitted.count(0, sum(group.rows for group in groups), size)
            count(size)
            return answer
        finally:
            admitted.release()

    def _found(self, view: TenantView, scope: Scope, ask: SignedRequest, admitted: Admitted) -> SignedChanges:
        window = table_window(self.points, view, scope, ask.low, ask.high)
        rate = self.points.admission.limits.limits_of(admitted.tenant).served_bytes_per_second
        limits = slowed(self.limits, rate, AHEAD_S)
        for _ in range(REPLANS):
            try:
                return self.answers.answer(view.source, scope, window, view.resolved_ts(), limits)
            except NotFoundYet:  # compaction has deleted the segment: the same rows are in other segments
                view.replan()
                view.check_served(window.low)
        raise Unavailable("segments disappear repeatedly while they are read: retry")
