"""Who may see what, and who waits for whom."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Function, mutant


@mutant(
    "tistream_api:access._covers",
    invariants=(20,),
    catchers=("test_a_grant_covers_what_it_names_and_all_below_and_nothing_above",),
)
def access_grant_covers_what_is_above(original: Function) -> Function:
    """A token for one table opens its database, and its tenant."""

    def broken(grant: Any, resource: Any) -> bool:
        from tistream_api.auth.access import _touches

        return _touches(grant, resource)

    return broken


@mutant(
    "tistream_api:signed_answer.only_of",
    invariants=(20,),
    catchers=("test_a_reader_gets_no_byte_of_another_table", "test_what_is_in_shared_row_groups_is_pulled"),
)
def access_a_row_group_of_several_tables_is_given(original: Function) -> Function:
    """A reader of one table fetches row groups that have rows of others."""

    def broken(source: Any, scope: Any, group: Any, resolved_ts: Any) -> bool:
        return True

    return broken


@mutant("tistream_api:access.allows", invariants=(20,), catchers=("test_an_action_is_not_another",))
def access_any_action_will_do(original: Function) -> Function:
    """Who may push may read."""

    def broken(grants: Any, action: Any, resource: Any) -> bool:
        own = list(grants)
        return any(original(own, one, resource) for grant in own for one in grant.actions)

    return broken
