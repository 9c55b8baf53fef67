"""Claims restores from the meta server and runs them, one at a time. Loops call `step` and `beat`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from tistream.errors import ClaimEnded, Unavailable, UnknownName
from tistream.wire.bulk.restores import RestoreReport, RestoreWork
from tistream.wire.clients.meta_client import MetaClient
from tistream_ingest.restore import restore_plan
from tistream_ingest.restore.restore_attempt import RestoreAttempt, RestoreRefused, RestoreRetry

log = logging.getLogger(__name__)

BEAT_MS = 5_000  # a few times in a lease


@dataclass(slots=True)
class Claims:
    """Claims and runs the restores of this process. `new(work, report)` creates the RestoreAttempt that runs the
    claimed restore `work` and sends its reports by calling `report`. `poll_ms`: the pause after a call that found no
    restore."""

    meta: MetaClient
    node_id: str
    poll_ms: int
    new: Callable[[RestoreWork, Callable[[RestoreReport], object]], RestoreAttempt]
    sleep: Callable[[float], None] = time.sleep
    _running: RestoreAttempt | None = None
    _reason: str | None = None
    _ended: bool = False  # the claim has ended: the next report ends the attempt

    def step(self) -> int:
        """Loop body: claim a restore and run it to its end. Returns the pause before the next call, in ms. If another
        process takes the restore over, or it is removed, its attempt ends without an error. Raises Unavailable if no
        meta server answers."""
        work = self.meta.claim_restore(self.node_id)
        if work is None:
            return self.poll_ms
        fields = {"restore": work.wanted.restore_id, "tenant": f"{work.cluster_id}/{work.tenant_id}"}
        log.info("restore begins", extra={**fields, "epoch": work.epoch})
        self._ended, self._reason = False, None
        self._running = self.new(work, lambda report: self._report(work, report))
        try:
            self._run(self._running)
            log.info("restore ends", extra=fields)
        except (ClaimEnded, UnknownName) as error:
            log.warning("restore was taken away", extra={**fields, "error": str(error)})
        finally:
            self._running = None
        return 0

    def beat(self) -> None:
        """Loop body: renew the claim, because a job may take longer than the lease. If the claim has ended, the next
        report of the attempt ends it. Raises Unavailable."""
        running = self._running
        if running is not None and not self._ended:
            try:
                self.meta.report_restore(running.work, running.progress_report("running", self._reason))
            except (ClaimEnded, UnknownName):
                self._ended = True

    def _run(self, running: RestoreAttempt) -> None:
        failures = 0

        def progressed() -> None:
            nonlocal failures
            failures = 0
            self._reason = None

        running.progressed = progressed
        while True:
            try:
                running.attempt()
                return
            except RestoreRefused as error:
                self._fail(running, str(error))
                return
            except RestoreRetry as error:
                failures += 1
                pause_s = restore_plan.pause_s(failures)
                if pause_s is None:
                    self._fail(running, f"{error} (after {failures} attempts)")
                    return
                self._reason = f"waits, and tries again: {error}"
                log.warning("restore waits", extra={"restore": running.work.wanted.restore_id, "error": str(error)})
                with suppress(Unavailable):  # the next beat reports it; without a claim the failures would count from 0
                    running.report_progress("running", self._reason)
                self.sleep(pause_s)

    def _fail(self, running: RestoreAttempt, reason: str) -> None:
        """Report that a restore has failed. The claim is kept until the meta server answers, for as many attempts as a
        restore has. Raises ClaimEnded, Unavailable."""
        for failures in count(1):
            try:
                running.end("failed", reason)
                return
            except Unavailable:
                pause_s = restore_plan.pause_s(failures)
                if pause_s is None:
                    raise
                self.sleep(pause_s)

    def _report(self, work: RestoreWork, report: RestoreReport) -> object:
        if self._ended:
            raise ClaimEnded(f"restore {work.wanted.restore_id} was claimed by another process, or has ended")
        return self.meta.report_restore(work, report)
