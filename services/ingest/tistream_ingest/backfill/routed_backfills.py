"""Finds the backfills that this process must run. The meta server lists all backfills, and the running ingest processes
divide them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tistream.errors import AlreadyDiffers, UnknownName
from tistream.wire.bulk.backfills import BackfillRow, EndBackfill
from tistream.wire.clients.meta_client import MetaClient
from tistream_ingest.plan.checkpoint_state import runs_here

log = logging.getLogger(__name__)


class RoutedBackfills:
    """Implements backfill_runner.Backfills. `peers`: the URLs of the ingest processes. If a process has an outdated
    list, two processes may run the same backfill, which does no harm (BackfillRunner)."""

    def __init__(self, own_url: str, meta: MetaClient, peers: Callable[[], Sequence[str]]) -> None:
        self._own_url, self._meta, self._peers = own_url, meta, peers

    def running(self) -> list[BackfillRow]:
        """The running backfills that this process must run. Raises Unavailable."""
        urls = list(self._peers())
        try:
            rows = self._meta.running_backfills().backfills
        except UnknownName:  # the meta server's version has no backfills
            return []
        return [row for row in rows if runs_here((row.cluster_id, row.tenant_id, row.backfill_id), self._own_url, urls)]

    def ended(self) -> list[BackfillRow]:
        """The ended backfills, of all tenants, whose objects this process must delete. Raises Unavailable."""
        urls = list(self._peers())
        try:
            rows = self._meta.ended_backfills().backfills
        except UnknownName:  # the meta server's version does not list them
            return []
        return [row for row in rows if runs_here((row.cluster_id, row.tenant_id, row.backfill_id), self._own_url, urls)]

    def end(self, row: BackfillRow, end: EndBackfill) -> None:
        """Report the end of a backfill, unless it has ended already. Raises Unavailable."""
        try:
            self._meta.end_backfill(row, end)
        except AlreadyDiffers as error:
            fields = {"tenant": f"{row.cluster_id}/{row.tenant_id}", "backfill": row.backfill_id}
            log.info("backfill had ended", extra={**fields, "reason": str(error)})
