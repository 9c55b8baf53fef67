"""What the sorters tell of their tasks, asked for all tenants at once: an idle tenant costs no request of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tistream.concurrency import new_lock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.wire.sorter import ProgressPage, TaskProgress
from tistream.wire.sorter_client import SorterClient
from tistream_schema.expected_tasks import SchemaTask
from tistream_schema.metrics import SchemaMetrics

log = logging.getLogger(__name__)


class SorterProgress:
    """The newest progress by sorter and task. One thread polls, many read.

    What was told stays true, so it may be some milliseconds old. Of a sorter that does not answer nothing is told: then
    its manifests alone tell how far it is.
    """

    def __init__(self, sorters: SorterClient, metrics: SchemaMetrics) -> None:
        self._sorters, self._metrics = sorters, metrics
        self._lock = new_lock()
        self._told: dict[str, dict[int, TaskProgress]] = {}
        self._silent: set[str] = set()
        self._asked: dict[str, tuple[str, int]] = {}  # by sorter: its boot, and the version of its last answer

    def poll(self, urls: Iterable[str]) -> set[TenantKey]:
        """Ask those sorters, and forget others. The tenants for which something is new, or not told any more."""
        wanted = set(urls)
        with self._lock:
            for url in self._told.keys() - wanted:
                del self._told[url]
        self._asked = {url: asked for url, asked in self._asked.items() if url in wanted}
        self._silent &= wanted
        changed: set[TenantKey] = set()
        for url in sorted(wanted):
            try:
                page = self._sorters.progress(url, *self._asked.get(url, ("", 0)))
            except TiStreamError as error:
                log.debug("no progress from a sorter", extra={"url": url, "error": str(error)})
                self._metrics.silent.inc()
                changed |= self._fell_silent(url)
                continue
            changed |= self._take(url, page)
        return changed

    def of(self, tasks: Iterable[SchemaTask]) -> dict[int, TaskProgress]:
        """What their sorters told of these tasks."""
        with self._lock:
            found = ((task, self._told.get(task.sorter_url or "", {}).get(task.task_id)) for task in tasks)
            return {
                task.task_id: told for task, told in found if told is not None and task.sorter_url not in self._silent
            }

    def _take(self, url: str, page: ProgressPage) -> set[TenantKey]:
        before = self._asked.get(url)
        self._asked[url] = page.boot, page.version
        told = {progress.task_id: progress for progress in page.tasks}
        with self._lock:
            again = url in self._silent
            self._silent.discard(url)
            kept = self._told.get(url, {}) if before is not None and before[0] == page.boot else {}
            self._told[url] = kept | told
            return _tenants((self._told[url] if again else told).values())

    def _fell_silent(self, url: str) -> set[TenantKey]:
        with self._lock:
            if url in self._silent:
                return set()
            self._silent.add(url)
            return _tenants(self._told.get(url, {}).values())


def _tenants(told: Iterable[TaskProgress]) -> set[TenantKey]:
    return {TenantKey(progress.cluster_id, progress.tenant_id) for progress in told}
