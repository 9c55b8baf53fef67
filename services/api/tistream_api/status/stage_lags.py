"""Computes how far each stage of a tenant is behind: pushed, dispatched, sorted, schema known, served. Pure. Each
number is a distance from the wall clock, so a stage's own delay is its number minus the previous stage's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tistream.model.ts import physical_ms
from tistream.wire.dispatcher import StoreStatus
from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import TaskStatus

STAGES = ("push", "dispatch", "sort", "schema", "serve")
UNKNOWN = -1


def stage_lags(
    at_ms: int,
    route: TenantRoute,
    stores: Sequence[StoreStatus],
    statuses: Mapping[int, TaskStatus],
    schema_ts: int,
    resolved_ts: int,
) -> tuple[int, ...]:
    """For each of STAGES, how many ms it is behind `at_ms` (Unix ms); UNKNOWN if a service of that stage did not
    report. `schema_ts`: up to which the schema is known. `resolved_ts`: up to which the tenant can be read."""
    reported = {store.store_id for store in stores}
    all_reported = bool(reported) and reported >= {store.store_id for store in route.stores or ()}
    every = [statuses.get(task.task_id) for task in route.tasks]
    there = [status for status in every if status is not None]
    complete = bool(every) and len(there) == len(every)
    reached = (
        _lowest(store.last_file_ts for store in stores) if all_reported else 0,
        _lowest(received(status, one) for status in there for one in reported) if all_reported and complete else 0,
        _lowest(status.progress_ts for status in there) if complete else 0,
        schema_ts,
        resolved_ts,
    )
    return tuple(max(0, at_ms - physical_ms(ts)) if ts > 0 else UNKNOWN for ts in reached)


def received(status: TaskStatus, store_id: int) -> int:
    """The ts of the newest file of a store that a task has received; 0 if it has received none."""
    return max((chain.at_ts for chain in status.received.get(store_id, ())), default=0)


def _lowest(numbers: Iterable[int]) -> int:
    return min(numbers, default=0)
