"""The meta server: who is lost, who owns, which start of a process counts, where tasks go."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Function, mutant

LEASE = "test_another_node_waits_for_the_lease_and_then_fences_the_first[sqlite]"


@mutant(
    "tistream_meta:liveness.liveness",
    invariants=(22,),
    catchers=("test_a_new_owner_counts_silence_from_its_own_beginning",),
)
def new_owner_counts_old_silence(original: Function) -> Function:
    """A new owner calls nodes lost that it could not have heard yet."""
    return lambda heard_ms, owner_since_ms, now_ms, timings: original(heard_ms, heard_ms or 0, now_ms, timings)


@mutant("tistream_meta:Repository.take_ownership", invariants=(22,), catchers=(LEASE,))
def lease_not_awaited(original: Function) -> Function:
    """A meta server takes the ownership while another's lease runs."""

    def broken(self: Any, *arguments: Any, **options: Any) -> Any:
        from sqlalchemy import update

        from tistream_meta.database import tables

        self._transactions.run(lambda connection: connection.execute(update(tables.owner).values(lease_until_ms=0)))
        return original(self, *arguments, **options)

    return broken


@mutant("tistream_meta:Repository._write", invariants=(11, 22), catchers=(LEASE,))
def old_meta_server_writes(original: Function) -> Function:
    """A meta server that lost its lease still writes to the database."""
    return lambda self, body: self._transactions.run(body)


@mutant(
    "tistream_meta:start_status",
    invariants=(15, 21),
    catchers=("test_a_replaced_process_that_wakes_ends_itself_and_epochs_stand_still",),
)
def replaced_start_registers_again(original: Function) -> Function:
    """A process that was replaced and wakes registers again, and so does its successor, for ever."""

    def broken(registered: Any, start: Any) -> Any:
        from tistream_meta.decide.incarnations import StartStatus

        found = original(registered, start)
        return StartStatus.UNKNOWN if found is StartStatus.SUPERSEDED else found

    return broken


@mutant(
    "tistream_meta:is_lost",
    invariants=(21,),
    catchers=("test_it_comes_to_rest_with_every_task_at_a_sorter_that_is_there",),
)
def tasks_of_lost_sorters_stay(original: Function) -> Function:
    """The tasks of a sorter that is lost are not given to another."""
    return lambda node, nodes: node is None


@mutant(
    "tistream_meta:pool_frontier._cover",
    invariants=(14,),
    catchers=("test_tasks_are_found_across_seals[of a merge only one half is sealed]",),
)
def child_of_half_a_merge(original: Function) -> Function:
    """A tenant that the database forgot continues with a child of which one parent is not sealed."""
    return lambda parents, span: True


@mutant(
    "tistream_meta:TenantStarts._continued",
    invariants=(12, 14),
    catchers=("test_a_tenant_that_is_registered_again_is_routed_to_its_tasks",),
)
def forgotten_tenant_begins_anew(original: Function) -> Function:
    """A tenant that the database forgot begins anew, though its files were deleted for tasks that have manifests."""

    def broken(self: Any, key: Any) -> Any:
        from tistream_meta.tenants.pool_frontier import NO_TASKS

        return NO_TASKS

    return broken
