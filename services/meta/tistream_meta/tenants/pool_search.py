"""Searches the object store for the tasks of a tenant that have manifests, because the meta database has forgotten
them. This costs 256 LIST requests, because task prefixes begin with one of 256 names, and three requests or more for
each task."""

from __future__ import annotations

from collections.abc import Iterator

from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.object_store import ObjectStore
from tistream_meta.decide.model import Child
from tistream_meta.tenants.pool_frontier import PoolTask


def pool_tasks(objects: ObjectStore, tenant: TenantKey) -> list[PoolTask]:
    """List every task of the tenant that ever had a manifest, sealed ones included.

    Raises:
        CorruptObject, InvariantBroken: the manifests of a task are damaged, or contradict each other.
        Unavailable: the object store does not answer.
    """
    return [task for task_id in _ids(objects, tenant) if (task := _task(objects, tenant, task_id)) is not None]


def _ids(objects: ObjectStore, tenant: TenantKey) -> Iterator[int]:
    for prefix in layout.task_prefixes(tenant):
        for entry in objects.list_after(prefix, delimiter="/"):
            task_id = layout.task_of(entry.key)
            if task_id is not None and entry.key == layout.task_prefix(tenant, task_id):
                yield task_id


def _task(objects: ObjectStore, tenant: TenantKey, task_id: int) -> PoolTask | None:
    view = TaskObjects(objects, tenant, task_id).follow()
    if view.last is None:  # the objects of a tick whose claim was lost, or strange ones
        return None
    children = tuple(Child(child_id, span) for child_id, span in view.last.children) if view.sealed else ()
    return PoolTask(task_id, view.last.span, view.epoch, view.state is not None, children)
