"""Epochs are handed to one start of a sorter: a process that was replaced, and wakes, takes none of its successor's."""

from __future__ import annotations

import pytest

from tistream.wire.meta import RouteTable, TaskRoute, TenantRoute
from tistream_sorter.node.assignment import TaskRules, wanted_tasks


def table(node: str, start_epoch: int, *, index_keys: bool | None = None) -> RouteTable:
    task = TaskRoute(
        task_id=1,
        start_key="",
        end_key="",
        task_epoch=7,
        sorter_node=node,
        sorter_url="http://127.0.0.1:1",
        sorter_start_epoch=start_epoch,
    )
    tenant = TenantRoute(cluster_id="7", tenant_id="acme", snapshot_ts=5, tasks=[task], index_keys=index_keys)
    return RouteTable(version=1, tenants=[tenant])


def test_only_the_newest_start_of_a_sorter_takes_its_tasks() -> None:
    routes = table("sorter-1", start_epoch=3)

    def epochs(node: str, start_epoch: int) -> list[int]:
        tasks = wanted_tasks(routes, node, start_epoch, TaskRules(keep_index_keys=False, checkpoint_every=64))
        return [task.task_epoch for task in tasks]

    assert epochs("sorter-1", 3) == [7]
    assert epochs("sorter-1", 2) == []
    assert epochs("sorter-2", 3) == []


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("told", [None, False, True])
def test_index_keys_are_kept_as_the_tenant_has_it_and_else_as_the_sorter_does(told: bool | None, default: bool) -> None:
    rules = TaskRules(keep_index_keys=default, checkpoint_every=64)
    (task,) = wanted_tasks(table("sorter-1", 3, index_keys=told), "sorter-1", 3, rules)
    assert task.keep_index_keys is (default if told is None else told)
