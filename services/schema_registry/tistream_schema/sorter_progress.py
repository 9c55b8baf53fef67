"""Follows the progress of tasks. Each sorter is asked once for the tasks of all tenants, so an idle tenant costs no
request of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tistream.concurrency import new_lock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.problem import PeerFailed
from tistream.wire.sorter import ProgressPage, TaskProgress
from tistream_schema.expected_tasks import SchemaTask
from tistream_schema.metrics import SchemaMetrics

log = logging.getLogger(__name__)

NOT_FOUND = 404
WAIT_MS = 5_000  # how long a sorter waits for a task that moves
WAITING_MAX = 128  # requests that wait; each occupies a connection, and heartbeats need some of the client's 256


class SorterProgress:
    """The newest reported progress of each task. One thread for each sorter requests it, and many threads read it.

    A report stays true, so it may be some milliseconds old. If a sorter does not answer, no progress of its tasks is
    returned. Then only their manifests show the progress.
    """

    def __init__(self, sorters: SorterClient, metrics: SchemaMetrics, waiting_max: int = WAITING_MAX) -> None:
        self._sorters, self._metrics = sorters, metrics
        self._waiting, self._waiting_max = 0, waiting_max
        self._lock = new_lock()
        self._reported: dict[str, dict[int, TaskProgress]] = {}
        self._silent: set[str] = set()
        self._answered: dict[str, tuple[str, int]] = {}  # by sorter: its boot, and the version of its last answer

    def forget(self, url: str) -> None:
        """Forget a sorter that has no tasks any more."""
        with self._lock:
            self._reported.pop(url, None)
            self._answered.pop(url, None)
            self._silent.discard(url)

    def poll(self, url: str) -> set[TenantKey]:
        """Ask a sorter once; it waits up to WAIT_MS for a task that moves, unless `waiting_max` requests wait already.
        Returns the tenants with new progress, and those whose progress is not known any more."""
        with self._lock:
            known = self._answered.get(url, ("", 0))
            waits = self._waiting < self._waiting_max
            self._waiting += waits
        try:
            page = self._page(url, *known, WAIT_MS if waits else 0)
        except TiStreamError as error:
            log.debug("no progress from a sorter", extra={"url": url, "error": str(error)})
            self._metrics.silent.inc()
            return self._fell_silent(url)
        finally:
            with self._lock:
                self._waiting -= waits
        return self._apply(url, page)

    def _page(self, url: str, boot: str, after: int, wait_ms: int) -> ProgressPage:
        try:
            return self._sorters.progress(url, boot, after, wait_ms)
        except PeerFailed as error:
            if error.status != NOT_FOUND:
                raise
        # A sorter of an older version does not have this call.
        held = self._sorters.tasks(url).tasks
        fields = TaskProgress.model_fields
        reported = [TaskProgress.model_validate({name: getattr(status, name) for name in fields}) for status in held]
        return ProgressPage(boot="", version=0, tasks=reported)

    def of(self, tasks: Iterable[SchemaTask]) -> dict[int, TaskProgress]:
        """The reported progress of these tasks, by task id. Tasks without a report are left out."""
        with self._lock:
            found = ((task, self._reported.get(task.sorter_url or "", {}).get(task.task_id)) for task in tasks)
            return {task.task_id: one for task, one in found if one is not None and task.sorter_url not in self._silent}

    def _apply(self, url: str, page: ProgressPage) -> set[TenantKey]:
        reported = {progress.task_id: progress for progress in page.tasks}
        with self._lock:
            before = self._answered.get(url)
            self._answered[url] = page.boot, page.version
            again = url in self._silent
            self._silent.discard(url)
            known = self._reported.get(url, {})
            same = before is not None and before[0] == page.boot
            kept = known if page.boot and same else {}
            self._reported[url] = kept | reported
            if again:
                return _tenants(self._reported[url].values())
            # A task that cannot advance is listed too. Without a boot id the page has all tasks of the sorter.
            compared = known if same else {}
            return _tenants(one for one in reported.values() if compared.get(one.task_id) != one)

    def _fell_silent(self, url: str) -> set[TenantKey]:
        with self._lock:
            if url in self._silent:
                return set()
            self._silent.add(url)
            return _tenants(self._reported.get(url, {}).values())


def _tenants(reported: Iterable[TaskProgress]) -> set[TenantKey]:
    return {TenantKey(progress.cluster_id, progress.tenant_id) for progress in reported}
