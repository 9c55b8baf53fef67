"""Counts the bytes of change files that a tenant has pushed, each file once, according to the manifests
(docs/adr/0014). Pure.

Every file goes to every task of its tenant, so only one task counts: the one with the lowest keys. A file is counted
when a manifest's positions move past it. After a merge that has moved the positions back, files arrive again, and are
not counted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tistream.format.manifest import NOTHING_TAKEN, ChainPosition, IntakeCount, Manifest
from tistream.wire.file_batch import FileRef
from tistream.wire.usage import hour_of
from tistream_sorter.state.positions import received
from tistream_sorter.state.task_state import TaskIdentity, TaskState

HOURS_MAX = 72  # hours of intake that a manifest restates; older hours cannot be reported any more

Chains = Mapping[int, tuple[ChainPosition, ...]]


def counts_intake(identity: TaskIdentity) -> bool:
    """Whether this is the task that counts the files of its tenant."""
    return not identity.span.start


def uncounted(state: TaskState, ref: FileRef) -> int:
    """The bytes that a file adds to the count: 0 if the file was counted before, or if another task counts."""
    if not counts_intake(state.identity):
        return 0
    before = _at(state.intake.through, ref.store_id, ref.chain_ts)
    return 0 if before is not None and ref.ts <= before else ref.size


def counted(state: TaskState, now_ms: int) -> TaskState:
    """Add the bytes of files since the last manifest to the count of the current hour of `now_ms` (wall clock). Returns
    the new state."""
    intake = state.intake
    through = _ahead(received(intake.through, state.positions, state.flushed_ts), state.positions)
    if not state.uncounted_bytes and through == intake.through:
        return state
    hours = dict(intake.hours)
    if state.uncounted_bytes:
        hour = hour_of(now_ms)
        hours[hour] = hours.get(hour, 0) + state.uncounted_bytes
    newest = dict(sorted(hours.items())[-HOURS_MAX:])
    return replace(state, intake=IntakeCount(newest, through), uncounted_bytes=0)


def inherited(identity: TaskIdentity, first: Manifest, positions: Chains) -> IntakeCount:
    """The count of pushed bytes with which a child task begins. `positions`: the child's positions in the chains of
    change files. `first`: the seal of the parent with the lowest keys."""
    if not counts_intake(identity):
        return NOTHING_TAKEN
    stores = {*first.positions, *first.intake.through}
    reached = {
        store: _furthest(first.positions.get(store, ()), first.intake.through.get(store, ())) for store in stores
    }
    return IntakeCount(first.intake.hours, _ahead(reached, positions))


def _furthest(*several: tuple[ChainPosition, ...]) -> tuple[ChainPosition, ...]:
    at: dict[int, int] = {}
    for chain in (chain for chains in several for chain in chains):
        at[chain.first_ts] = max(chain.at_ts, at.get(chain.first_ts, 0))
    return tuple(ChainPosition(first_ts, at_ts) for first_ts, at_ts in sorted(at.items()))


def _ahead(reached: Chains, positions: Chains) -> dict[int, tuple[ChainPosition, ...]]:
    """The chains in `reached` whose position is above the one in `positions`."""
    found = {
        store: tuple(chain for chain in chains if (_at(positions, store, chain.first_ts) or 0) < chain.at_ts)
        for store, chains in reached.items()
    }
    return {store: chains for store, chains in sorted(found.items()) if chains}


def _at(positions: Chains, store_id: int, first_ts: int) -> int | None:
    return next((chain.at_ts for chain in positions.get(store_id, ()) if chain.first_ts == first_ts), None)
