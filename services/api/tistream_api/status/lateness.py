"""Finds out why a tenant is late, from the reports of all services (design.md 6, `held_by`). Pure. A hold is one reason
why a stage makes no progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tistream.model.ts import physical_ms
from tistream.wire.bulk.territories import TerritoryInfo
from tistream.wire.dispatcher import StoreStatus
from tistream.wire.sorter import Hold, TaskStatus
from tistream_api.status.stage_lags import received

LATE_SECONDS = 5.0
# The most specific cause first: a damaged object also makes a log range missing, and that makes the watermark late.
_RECOVERING = ("starting", "running", "fenced")  # states of a territory; in others it waits for a person
_STAGES = ("damaged", "push", "schema", "sort", "dispatch", "node")


@dataclass(frozen=True, slots=True)
class TenantReports:
    """What all services report about a tenant at one moment. `schema_ts`: up to which the schema is known.
    `unreachable`: the services that did not answer, as holds with the reason. `route_problem`: why the tenant has not
    started; `snapshot_object` is the object from which it starts."""

    now_ms: int
    resolved_ts: int
    schema_ts: int
    task_ids: Sequence[int]
    statuses: Mapping[int, TaskStatus]
    stores: Sequence[StoreStatus] = ()
    holds: Sequence[Hold] = ()  # from the schema registry and the dispatchers
    snapshot_object: str = ""
    route_problem: str | None = None
    unreachable: Sequence[Hold] = field(default_factory=tuple)
    sorters: Mapping[int, str | None] = field(default_factory=dict)  # task -> the sorter node that it is assigned to
    paused: str | None = None  # why no more input is read
    territories: Sequence[TerritoryInfo] = ()  # of agents that push the tenant's files; requested if it is late

    @property
    def lag_seconds(self) -> float:
        """How many seconds resolved_ts is behind the wall clock; at least 0."""
        return max(0.0, (self.now_ms - physical_ms(self.resolved_ts)) / 1000)


def held_by(picture: TenantReports) -> Hold | None:
    """The most urgent hold (reason why the tenant makes no progress); None if the tenant is on time and nothing blocks
    it.

    A quarantined store, a gap in a store's files, a range of keys whose agent does not read it, and a row that cannot
    be decoded are shown at once. Other holds are shown only once the tenant is late, because short waits are normal;
    for example, a log range is missing until another store's next file arrives. If an operator has paused the tenant,
    the pause is returned.
    """
    if picture.paused is not None:
        return Hold(stage="dispatch", reason=picture.paused)
    late = picture.lag_seconds > LATE_SECONDS
    holds = [(hold, True) for hold in _lasting(picture)] + [(hold, False) for hold in _waits(picture) if late]
    if holds:
        return min(holds, key=lambda one: _rank(*one))[0]
    return _suspect(picture) if late else None


def _rank(hold: Hold, lasting: bool) -> tuple[int, int]:
    """The sort key of holds; the lowest is shown. The order is: damage; a hold of the sorter, which is always a failure
    of the platform, for example a tick that cannot write, or a task that has stopped; input that is missing and that
    does not come by itself (`lasting`); a store that is not read, because a missing range of a log may be in it; a hold
    that names an object; a hold that only says that there is no progress. Equal holds are in the order of _STAGES."""
    first = {"damaged": 0, "sort": 1}.get(hold.stage)
    if first is None and lasting and hold.stage == "push":
        first = 2
    elif first is None and hold.stage == "dispatch" and hold.store_id is not None:
        first = 3
    elif first is None:
        first = 4 if hold.object is not None else 5
    return first, _STAGES.index(hold.stage)


def _lasting(picture: TenantReports) -> list[Hold]:
    """The holds that are shown at once, because they may last: damage, what a store waits for, a territory that its
    agent does not read, and every other hold that names an object."""
    holds = [hold for status in picture.statuses.values() for hold in status.holds if hold.stage == "damaged"]
    for store in picture.stores:
        if store.hold is not None:
            holds.append(store.hold)
        elif store.quarantined:
            holds.append(Hold(stage="damaged", store_id=str(store.store_id), reason="the store is quarantined"))
    holds += [
        hold
        for one in picture.territories
        if one.said is not None and one.said.state not in _RECOVERING and (hold := _of_territory(one)) is not None
    ]
    return [*holds, *(hold for hold in picture.holds if hold.object is not None)]


def _of_territory(one: TerritoryInfo) -> Hold | None:
    """The hold of a territory whose files are late; None if they are up to date."""
    said = one.said
    if one.node_id is None:
        problem = "no agent holds it: is one alive? (`tistream agent list`)"
    elif said is None:
        problem = f"{one.node_id}, which is to hold it, has reported nothing yet"
    elif said.state == "running" and said.lag_ms <= LATE_SECONDS * 1000:
        return None
    else:
        problem = f"{one.node_id}: {said.state}: {said.reason}"
    return Hold(stage="push", store_id=one.territory, reason=f"territory {one.territory}: {problem}")


def _waits(picture: TenantReports) -> list[Hold]:
    """The holds that are shown only once the tenant is late, because short waits are normal."""
    holds = [_of_route(picture)] if picture.route_problem or not picture.task_ids else []
    for status in picture.statuses.values():
        holds.extend(status.holds)
        if status.stopped is not None:
            holds.append(Hold(stage="sort", reason=f"task {status.task_id} stopped: {status.stopped}"))
    return [*holds, *(hold for hold in picture.holds if hold.object is None)]


def _of_route(picture: TenantReports) -> Hold:
    problem = picture.route_problem or "schema_snap has not come, or has not been read yet"
    if "damaged" in problem:
        return Hold(stage="damaged", object=picture.snapshot_object, reason=problem)
    if "has not come" in problem:
        return Hold(stage="push", object=picture.snapshot_object, reason=problem)
    return Hold(stage="node", reason=problem)


def _suspect(picture: TenantReports) -> Hold:
    """A hold that names the stage that is behind. It is used if no service has reported a hold."""
    if picture.unreachable:
        return picture.unreachable[0]
    unserved = sorted(set(picture.task_ids) - set(picture.statuses))
    if unserved:
        node = picture.sorters.get(unserved[0])
        holder = f": {node}, which has it, does not" if node else ""
        return Hold(stage="node", reason=f"no sorter reports task {unserved[0]}{holder}")
    progress = min(status.progress_ts for status in picture.statuses.values())
    if physical_ms(progress) - physical_ms(picture.schema_ts) > LATE_SECONDS * 1000:
        return Hold(stage="schema", reason=f"the schema is known up to {picture.schema_ts} only")
    held = [hold for one in picture.territories if (hold := _of_territory(one)) is not None]
    if held:
        return held[0]
    if not picture.stores:
        return Hold(stage="push", reason="no store has pushed a file")
    return _slow(picture, progress)


def _slow(picture: TenantReports, progress: int) -> Hold:
    """A hold that names the store that has stopped pushing, or the stage that the store's newest file has reached. Use
    it only if all services have reported."""
    for store in picture.stores:
        if not store.read:
            reason = "the store is not read yet: its dispatcher does not know what the tasks have received of it"
            return Hold(stage="dispatch", store_id=str(store.store_id), reason=reason)
    silent = min(picture.stores, key=lambda store: store.last_file_ts)
    store_id, newest = str(silent.store_id), silent.last_file_ts
    if picture.now_ms - physical_ms(newest) > LATE_SECONDS * 1000:
        return Hold(stage="push", store_id=store_id, reason=f"store {store_id} pushed nothing after its file {newest}")
    if min((received(status, silent.store_id) for status in picture.statuses.values()), default=0) < newest:
        return Hold(stage="dispatch", store_id=store_id, reason=f"file {newest} is not with every sorter yet")
    return Hold(stage="sort", reason=f"the slowest task has come to {progress}")
