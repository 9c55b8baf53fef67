"""Decides whether a store may be retired. It may if no slice waits for it, and if the manifests of every task contain
all of its files. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tistream.errors import InvalidRequest
from tistream.model.span import shown_key
from tistream.wire.sorter import Chain, StoreNeed


def taken_ts(store_id: int, needs: Mapping[int, StoreNeed]) -> int:
    """The ts up to which the manifests of every task contain the store's files; 0 if no task ever received one. `needs`
    maps each task of the tenant to what it needs of the store. Raises InvalidRequest if a task still needs the
    store."""
    for task_id, need in sorted(needs.items()):
        if (reason := _reason(task_id, need)) is not None:
            raise InvalidRequest(f"store {store_id} cannot be retired: {reason}")
    newest = {task_id: _newest(need.durable) for task_id, need in needs.items()}
    through = max(newest.values(), default=0)
    for task_id, at_ts in sorted(newest.items()):
        if at_ts < through:
            raise InvalidRequest(
                f"store {store_id} cannot be retired: task {task_id} has its files up to {at_ts}, another one up to "
                f"{through}; retry once it has caught up"
            )
    return through


def _reason(task_id: int, need: StoreNeed) -> str | None:
    if need.resting is not None:
        one = need.resting
        return (
            f"task {task_id} waits for what it pushes next: region {one.region_id} for the keys from "
            f"{shown_key(bytes.fromhex(one.start_key)) or 'the first'} was last reported by it, at {one.resolved_ts}; "
            "once other stores lead its regions, and have pushed so, it may go"
        )
    if need.waits is not None:
        return f"{need.waits}; it may go once that has come, or its keys were scanned by another store"
    if not need.known:
        return f"task {task_id} has just begun, and has no manifest yet; try again in a moment"
    if _places(need.received) != _places(need.durable):
        return f"task {task_id} has files of it that are in no manifest yet; try again in a moment"
    if need.pointed is not None:
        return f"a transaction that is open still rests on its file {need.pointed}: it ends with its commit or rollback"
    return None


def _places(chains: list[Chain]) -> dict[int, int]:
    return {chain.first_ts: chain.at_ts for chain in chains}


def _newest(chains: list[Chain]) -> int:
    return max((chain.at_ts for chain in chains), default=0)
