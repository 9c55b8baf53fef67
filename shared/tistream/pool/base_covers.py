"""Reads what backfills have made known (tistream.model.base_cover) from the newest manifests of a tenant's tasks."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.model.base_cover import Cover, clipped, laid_over
from tistream.model.ids import TenantKey
from tistream.pool.lineage import Lineage, RoutedTask
from tistream.storage.object_store import ObjectStore


def cover_of(objects: ObjectStore, tenant: TenantKey, tasks: Iterable[RoutedTask]) -> Cover:
    """The tenant's cover: the spans of keys whose rows are all known. `tasks` are the tasks in the tenant's route.
    Raises the errors of Lineage.covers."""
    lineage = Lineage(objects, tenant)
    logs = [cover for task in tasks for cover in lineage.covers(task, None)]
    return laid_over((), (base for one in logs for base in clipped(one.log.view.cover, one.span)))
