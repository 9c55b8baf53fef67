"""Sends a tenant's files to the sorters of its tasks, and records which files the sorters have received."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.file_batch import encode
from tistream.wire.problem import PeerBusy
from tistream.wire.sorter import FilesReceipt, Hold, TaskStatus
from tistream_dispatcher.delivery.delivery_trace import delivery_trace
from tistream_dispatcher.delivery.receivers import Receivers
from tistream_dispatcher.delivery.sorter_link import SorterLink
from tistream_dispatcher.delivery.window import FileWindow, RoutedFile, batch_for

log = logging.getLogger(__name__)

UNCLAIMED_MS = 200  # pause before the next request for tasks that the sorter does not hold yet


@dataclass(frozen=True, slots=True)
class ResyncPauses:
    """Pauses between two requests to a sorter for its positions: usually `pause_ms`. Once its manifests cover all
    received files, the pause grows to `idle_ms`."""

    pause_ms: int
    idle_ms: int


class Delivery:
    """Sends the files of one tenant, and records the files that each task has received. Only the tenant's thread may
    use it."""

    def __init__(
        self,
        tenant: TenantKey,
        sorters: SorterClient,
        receivers: Receivers,
        window: FileWindow,
        clock: Clock,
        resync: ResyncPauses,
    ) -> None:
        self._tenant = tenant
        self._sorters = sorters
        self._receivers = receivers
        self._window = window
        self._clock = clock
        self._resync = resync
        self._version = 0
        self._served: dict[int, tuple[str | None, int]] = {}  # task -> (sorter's URL, epoch)
        self._links: dict[str, SorterLink] = {}

    def set_tasks(self, version: int, served: Mapping[int, tuple[str | None, int]]) -> None:
        """Set the tasks, from a route table of this `version`. `served`: by task id, the URL of the task's sorter (None
        if it has none) and the epoch. The positions of a task whose sorter or epoch has changed become unknown
        again."""
        unchanged = [task for task, by in served.items() if self._served.get(task) == by]
        self._receivers.keep_only(unchanged)
        self._version, self._served = version, dict(served)
        by_url: dict[str, list[int]] = {}
        for task, (url, _) in served.items():
            if url is not None:
                by_url.setdefault(url, []).append(task)
        links = {}
        for url, tasks in by_url.items():
            known = self._links.get(url)
            links[url] = SorterLink(url, tuple(tasks)) if known is None or known.tasks != tuple(tasks) else known
            if any(task not in self._receivers.received for task in tasks):
                links[url].sync_ms = links[url].send_ms = 0
        self._links = links

    def request_all(self) -> None:
        """Make the next `sync` request the positions from every sorter, because a new store must begin at the tasks'
        current positions."""
        for link in self._links.values():
            link.sync_ms = 0

    def leave(self, store_id: int) -> None:
        """Forget that sorters did not accept files of a store, because another dispatcher reads it from now on."""
        for link in self._links.values():
            link.resumed(store_id)

    def sync(self) -> None:
        """Request the positions from each sorter for which that is due, and store them. The positions of a task that
        its sorter does not hold become unknown. An error is recorded for its sorter, which is asked again later."""
        for link in self._links.values():
            if self._clock.monotonic_ms() < link.sync_ms:
                continue
            try:
                answer = self._sorters.tasks(link.url, self._tenant.cluster_id, self._tenant.tenant_id)
            except TiStreamError as error:
                self._failed(link, error)
                continue
            reported = set()
            settled = len(self._window) == 0
            for status in answer.tasks:
                epoch = self._served[status.task_id][1] if status.task_id in link.tasks else None
                if epoch is not None and status.task_epoch >= epoch:
                    self._receivers.set_status(status, epoch)
                    reported.add(status.task_id)
                    settled &= _settled(status)
            for task in set(link.tasks) - reported:
                self._receivers.forget(task)
            complete = len(reported) == len(link.tasks)
            pause_ms = link.synced(self._resync.pause_ms, self._resync.idle_ms, settled=settled and complete)
            if not complete:
                pause_ms = min(UNCLAIMED_MS, pause_ms)
            link.sync_ms = self._clock.monotonic_ms() + pause_ms

    def send(self) -> bool:
        """Send one batch to every sorter that lacks files and is not paused after an error. Returns whether any sorter
        received a file."""
        moved = False
        for link in self._links.values():
            now_ms = self._clock.monotonic_ms()
            tasks = [task for task in link.tasks if task in self._receivers.received]
            if now_ms < link.send_ms or not tasks:
                continue
            files = self._window.batch(tasks, self._receivers, link.stalled_now(now_ms))
            if files:
                moved |= self._post(link, files, tasks)
            elif link.problem is not None and now_ms < link.sync_ms:
                link.succeeded()  # the sorter answers, and lacks no file
        return moved

    def _post(self, link: SorterLink, files: tuple[RoutedFile, ...], tasks: list[int]) -> bool:
        with delivery_trace(self._tenant, files, len(tasks)) as span:
            got = self._posted(link, files, tasks)
            if link.problem is not None:
                span.fail("sorter")
            return got

    def _posted(self, link: SorterLink, files: tuple[RoutedFile, ...], tasks: list[int]) -> bool:
        body = encode(batch_for(self._version, files, tasks, self._receivers.flushed_by_all(self._served)))
        lacked = [(file, task) for file in files for task in tasks if self._receivers.lacks(task, file.place)]
        try:
            receipt = self._sorters.post_files(link.url, body)
        except TiStreamError as error:
            self._failed(link, error)
            return False
        link.succeeded()
        link.sync_ms = min(link.sync_ms, self._clock.monotonic_ms() + self._resync.pause_ms)
        self._note(link, receipt)
        got = {file.ref.store_id for file, task in lacked if not self._receivers.lacks(task, file.place)}
        for store_id in {file.ref.store_id for file in files}:
            if store_id in got:
                link.resumed(store_id)
            else:
                link.stall(store_id, self._clock.monotonic_ms())
        return bool(got)

    def _note(self, link: SorterLink, receipt: FilesReceipt) -> None:
        for task, received in receipt.received.items():
            if task in self._receivers.received:
                self._receivers.set_received(task, received)
        for task in receipt.unknown_tasks:
            self._receivers.forget(task)
            link.sync_ms = min(link.sync_ms, self._clock.monotonic_ms() + UNCLAIMED_MS)

    def _failed(self, link: SorterLink, error: TiStreamError) -> None:
        if link.problem is None:
            log.warning("sorter fails", extra={"tenant": str(self._tenant), "sorter": link.url, "reason": str(error)})
        link.failed(str(error), self._clock.monotonic_ms(), busy=isinstance(error, PeerBusy))

    def next_ms(self) -> int | None:
        """When the next call of `sync` or `send` is due, in monotonic ms; None if there are no sorters."""
        pending = len(self._window) > 0
        due = [link.sync_ms for link in self._links.values()]
        for link in self._links.values():
            if pending:
                due.append(max([link.send_ms, *(until_ms for until_ms, _ in link.stalled.values())]))
        return min(due, default=None)

    def holds(self) -> list[Hold]:
        """The holds (see glossary) for sorters that fail, one for each such sorter."""
        return [
            Hold(stage="sort" if link.busy else "node", reason=f"sorter at {link.url}: {link.problem}")
            for link in self._links.values()
            if link.problem is not None
        ]


def _settled(status: TaskStatus) -> bool:
    """Whether the task's manifests cover everything that it has received, and no older chain still has to be closed."""
    newer = [chain for chains in status.received.values() for chain in chains[1:]]
    return status.received == status.durable and all(chain.first_ts <= status.flushed_ts for chain in newer)
