"""What an operator asks of a simulated platform: tasks are moved, split and merged, nodes drained, stores retired. In a
fiber of its own."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from support.sim.platform import SimPlatform
from tistream.errors import InvalidRequest, TiStreamError
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import Accepted, NodeInfo, RetireOrder, TaskInfo

log = logging.getLogger(__name__)

DRAINED_US = 3_000_000
SILENT = 0.75  # share of retirements of the store that has pushed nothing for longest; others are mostly refused
RETIRE_TRIES = 8
RETIRE_PAUSE_US = 500_000
TASKS_MAX = 10


@dataclass
class Operator:
    """Chooses at random among what is there. What the platform refuses, or does not answer, is given up."""

    platform: SimPlatform
    rng: random.Random

    def move(self) -> None:
        """Move a random task to some sorter."""

        def ask(meta: MetaClient) -> None:
            task, node = self._task(meta), self._node(meta, "sorter")
            if task is not None and node is not None:
                meta.move(task.task_id, node.node_id)

        self._try(ask)

    def split(self) -> None:
        """Split a random task at some key."""

        def ask(meta: MetaClient) -> None:
            task = self._task(meta)
            if task is not None and len(meta.tasks().tasks) < TASKS_MAX:
                meta.split(task.task_id, self._key_inside(task))

        self._try(ask)

    def merge(self) -> None:
        """Merge two random neighbouring tasks."""

        def ask(meta: MetaClient) -> None:
            tasks = sorted(meta.tasks().tasks, key=lambda task: task.start_key)
            if len(tasks) > 1:
                at = self.rng.randrange(len(tasks) - 1)
                meta.merge(tasks[at].task_id, tasks[at + 1].task_id)

        self._try(ask)

    def retire(self) -> None:
        """A store: of one that leads no region nothing is needed, and if it pushes again it is found again."""

        def ask(meta: MetaClient) -> None:
            tenants = meta.routes().tenants
            if not tenants or not tenants[0].stores:
                return
            tenant, files = tenants[0], self.platform.objects.audit.files
            silent = min((max(files.there.get(one.store_id, ()), default=0), one.store_id) for one in tenant.stores)[1]
            store_id = silent if self.rng.random() < SILENT else self.rng.choice(tenant.stores).store_id
            files.retired.add(store_id)
            api = self.rng.choice(self.platform.of("api")).url
            path = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/stores/{store_id}/retire"
            self._until_taken(lambda: self.platform.client().send("POST", api + path, RetireOrder(), Accepted))

        self._try(ask)

    def _until_taken(self, order: Callable[[], object]) -> None:
        """Repeat an order, as its refusal asks for. Raise the last refusal."""
        for _ in range(RETIRE_TRIES - 1):
            try:
                order()
            except InvalidRequest:
                self.platform.scheduler.sleep(self.rng.randrange(RETIRE_PAUSE_US))
            else:
                return
        order()

    def _key_inside(self, task: TaskInfo) -> str:
        """Between the ends as numbers; of the whole key space near a table's rows, where there is something to cut."""
        start = bytes.fromhex(task.start_key)
        end = bytes.fromhex(task.end_key) or b"t\x80\0\0\0\0\0\1\0"
        width = max(len(start), len(end)) + 2
        low = int.from_bytes(max(start, b"t\x80" if end > b"t\x80" else b"").ljust(width, b"\0"), "big")
        high = int.from_bytes(end.ljust(width, b"\0"), "big")
        return self.rng.randrange(low + 1, max(low + 2, high)).to_bytes(width, "big").hex()

    def drain(self) -> None:
        """Drain a random node for a while."""

        def ask(meta: MetaClient) -> None:
            node = self._node(meta, self.rng.choice(("sorter", "dispatcher")))
            if node is not None:
                meta.drain(node.node_id)
                self.platform.scheduler.sleep(DRAINED_US)
                self._try(partial(_undo, node.node_id))

        self._try(ask)

    def _try(self, ask: Callable[[MetaClient], None]) -> None:
        meta = MetaClient(self.platform.client(), self.platform.meta_urls)
        try:
            ask(meta)
        except TiStreamError as error:
            log.debug("an operator gives up", extra={"error": str(error)})

    def _task(self, meta: MetaClient) -> TaskInfo | None:
        tasks = meta.tasks().tasks
        return self.rng.choice(tasks) if tasks else None

    def _node(self, meta: MetaClient, role: str) -> NodeInfo | None:
        nodes = [node for node in meta.nodes().nodes if node.role == role]
        return self.rng.choice(nodes) if nodes else None


def _undo(node_id: str, meta: MetaClient) -> None:
    meta.drain(node_id, draining=False)
