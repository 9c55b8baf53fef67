"""Registers a process as a node of the platform, and sends its heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tistream.errors import Superseded, UnknownName
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import Registered, StartOf, StoreReport, TaskReport

log = logging.getLogger(__name__)


class Membership:
    """Registers a process and sends its heartbeats. Run `beat` in a loop, about once a second.

    `registered` is `None` until the first beat reached the meta server. A process that the meta server has forgotten
    registers again. If another process has registered later under the same name, this process must end: `end` is called
    once. `instance` is drawn at random at each start of a process. `tasks` returns a sorter's reports for each
    heartbeat, `stores` a dispatcher's. `on_writes` is called when the answer to a heartbeat says that the owner has
    written something, or that there is a new owner. `calm` returns whether the next report says nothing new; then the
    heartbeat after it may come later (HeartbeatAnswer). `wake` calls `beat` now.
    """

    def __init__(
        self,
        meta: MetaClient,
        node_id: str,
        role: str,
        url: str,
        *,
        instance: str,
        end: Callable[[], None],
        tasks: Callable[[], Sequence[TaskReport]] = tuple,
        stores: Callable[[], Sequence[StoreReport]] = tuple,
        calm: Callable[[], bool] = lambda: False,
    ) -> None:
        self.on_writes: Callable[[], None] = lambda: None
        self.wake: Callable[[], None] = lambda: None
        self._calm, self._is_calm = calm, False
        meta.on_owner = self.hurry
        self._meta = meta
        self._node_id = node_id
        self._role = role
        self._url = url
        self._instance = instance
        self._end = end
        self._tasks = tasks
        self._stores = stores
        self._sequence = 0
        self._start_epoch: int | None = None  # requested once, and kept for the process's life
        self._superseded = False
        self._written: tuple[int, int] | None = None  # (owner_rev, writes) of the last answer; None: it has no writes
        self.registered: Registered | None = None

    def hurry(self) -> None:
        """Send the next heartbeat now, if it may come late because there was nothing new to report."""
        if self._is_calm:
            self._is_calm = False
            self.wake()

    def rest_ms(self, poll_ms: int, rest_ms: int) -> int:
        """The pause until the next look at a list that the meta server keeps: `rest_ms` if heartbeats are answered with
        what has been written, so that `on_writes` is called when the list changes; otherwise `poll_ms`."""
        return poll_ms if self._written is None else max(poll_ms, rest_ms)

    def beat(self) -> int | None:
        """Register this process if necessary; otherwise send a heartbeat. Returns the milliseconds until the next call;
        None: the default. Raises Unavailable."""
        if self._superseded:
            return None
        try:
            return self._beat()
        except Superseded as error:
            self._superseded = True
            log.error("superseded: this process ends", extra={"node": self._node_id, "reason": str(error)})
            self._end()
            return None

    def _beat(self) -> int | None:
        if self._start_epoch is None:
            self._start_epoch = self._meta.new_start(self._node_id).start_epoch
        start = StartOf(instance=self._instance, start_epoch=self._start_epoch)
        if self.registered is not None:
            try:
                self._sequence += 1
                self._is_calm = calm = self._calm()
                tasks, stores = self._tasks(), self._stores()
                answer = self._meta.heartbeat(self._node_id, start, sequence=self._sequence, tasks=tasks, stores=stores)
                before, self._written = self._written, None
                if answer.writes is not None:
                    self._written = answer.owner_rev, answer.writes
                if self._written != before:
                    self.on_writes()
                return max(answer.next_ms, answer.calm_ms or 0) if calm else answer.next_ms
            except UnknownName as error:
                log.warning("registering again", extra={"node": self._node_id, "error": str(error)})
                self.registered = None
        self.registered = self._meta.register(self._node_id, self._role, self._url, start)
        return None
