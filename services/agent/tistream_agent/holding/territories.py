"""Runs the territories (spans of keys) that this process holds, each in a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tistream.concurrency import Thread, new_lock, start_thread
from tistream.wire.bulk.territories import TerritoryReport
from tistream_agent.order import Changes, Key, Order, changes, report_of
from tistream_agent.run import FENCED, TerritoryRun
from tistream_agent.status import TerritoryStatus

log = logging.getLogger(__name__)

BUFFER_MIN_BYTES = 8 << 20


class Territories:
    """Starts and stops territories. Thread-safe.

    Args:
        new_run: creates the run of an order.
        ended: called with the stop's code when a territory has stopped for good.
        buffer_bytes: the memory that all territories share.
    """

    def __init__(
        self, new_run: Callable[[Order], TerritoryRun], ended: Callable[[str], None], buffer_bytes: int
    ) -> None:
        self._new_run, self._ended, self._buffer_bytes = new_run, ended, buffer_bytes
        self._lock = new_lock()
        self._runs: dict[Key, tuple[TerritoryRun, Thread]] = {}

    def follow(self, wanted: Sequence[Order], fenced: Sequence[Key] = ()) -> Changes:
        """Hold exactly these territories from now on. `fenced` are those that another agent had claimed when the
        heartbeat was sent. Returns what was stopped and started."""
        with self._lock:
            found = changes({key: run.order for key, (run, _) in self._runs.items()}, fenced, wanted)
            there = {order.key for order in wanted}
            ending = [key for key in self._runs if key not in there or key in found.end]
            for key in ending:
                run, _ = self._runs.pop(key)
                run.stop()
                log.info("territory ends here", extra={"tenant": str(key[0]), "territory": key[1]})
            for order in found.begin:
                self._begin(order)
            self._share()
            return found

    def _begin(self, order: Order) -> None:
        run = self._new_run(order)
        name = f"territory-{order.tenant.tenant_id}-{order.store_id}"
        self._runs[order.key] = run, start_thread(name, lambda: self._body(run))

    def _body(self, run: TerritoryRun) -> None:
        code = run.run()
        if code is not None:
            self._ended(code)

    def _share(self) -> None:
        """Divide the memory evenly among the territories."""
        for run, _ in self._runs.values():
            run.buffer_bytes = max(BUFFER_MIN_BYTES, self._buffer_bytes // len(self._runs))

    def stop(self, timeout_s: float) -> None:
        """Stop all territories, and wait at most `timeout_s` for each of them."""
        with self._lock:
            runs = list(self._runs.values())
        for run, _ in runs:
            run.stop()
        for _, thread in runs:
            thread.join(timeout_s)

    def statuses(self) -> list[TerritoryStatus]:
        """The statuses of the territories, by tenant and id."""
        with self._lock:
            return [run.status() for _, (run, _) in sorted(self._runs.items(), key=lambda one: one[0])]

    def reports(self) -> tuple[list[TerritoryReport], list[Key]]:
        """What the next heartbeat states: the reports of the territories, and those that another agent has claimed."""
        with self._lock:
            runs = [run for run, _ in self._runs.values()]
        statuses = [(run.order, run.status()) for run in runs]
        fenced = [run.order.key for run in runs if run.ended == FENCED]
        return [report_of(order, status) for order, status in statuses], fenced

    def not_ready(self) -> str | None:
        """The reason why a territory does not run; None if all run."""
        with self._lock:
            problems = [
                f"territory {key[1]} of tenant {key[0]}: {problem}"
                for key, (run, _) in sorted(self._runs.items(), key=lambda one: one[0])
                if (problem := run.not_ready()) is not None
            ]
        return problems[0] if problems else None
