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


@mutant("tistream_api:access.allows", invariants=(20,), catchers=("test_an_action_is_not_another",))
def access_any_action_will_do(original: Function) -> Function:
    """Who may push may read."""

    def broken(grants: Any, action: Any, resource: Any) -> bool:
        own = list(grants)
        return any(original(own, one, resource) for grant in own for one in grant.actions)

    return broken
