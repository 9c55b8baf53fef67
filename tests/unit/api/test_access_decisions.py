"""Grants and what they open: the decision alone."""
# Attack: random grants: a token never grants more than its creator may operate

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tistream.wire.tokens import EVERYTHING, Grant
from tistream_api.auth.access import Resource, allows, allows_part, may_manage, resource_of

ORDERS = Resource("7", "acme", "shop", "orders")
LEVELS = ("cluster", "tenant", "database", "table")
names = st.sampled_from(["a", "B", "b", "ß"])


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    depth = draw(st.integers(0, 4))
    named = {level: draw(st.sampled_from(["a", "b"]) if at < 2 else names) for at, level in enumerate(LEVELS[:depth])}
    return Grant(
        actions=draw(st.lists(st.sampled_from(["read", "push", "operate", "feed"]), min_size=1, max_size=4)), **named
    )


@st.composite
def resources(draw: st.DrawFn) -> Resource:
    depth = draw(st.integers(0, 4))
    return Resource(*(draw(st.sampled_from(["a", "b"]) if at < 2 else names) for at in range(depth)))


@pytest.mark.parametrize("depth", range(5))
def test_a_grant_covers_what_it_names_and_all_below_and_nothing_above(depth: int) -> None:
    whole = ("7", "acme", "shop", "orders")
    grant = Grant(actions=["read"], **dict(zip(LEVELS, whole[:depth], strict=False)))
    for asked in range(5):
        assert allows([grant], "read", Resource(*whole[:asked])) == (asked >= depth)
        assert allows_part([grant], "read", Resource(*whole[:asked]))
    for at in range(depth):
        other = Resource(*(name if number != at else "x" for number, name in enumerate(whole)))
        assert not allows([grant], "read", other)
        assert not allows_part([grant], "read", other)


def test_an_action_is_not_another() -> None:
    for granted, asked in product(("read", "push", "operate", "feed"), repeat=2):
        assert allows([Grant(actions=[granted])], asked, ORDERS) == (granted == asked)  # type: ignore[arg-type,list-item]


def test_names_compare_as_tidb_compares_them_and_those_of_tenants_exactly() -> None:
    grant = Grant(actions=["read"], cluster="7", tenant="acme", database="Shop", table="Ördërs")
    assert allows([grant], "read", Resource("7", "acme", "sHOP", "öRDËRS"))
    assert not allows([grant], "read", Resource("7", "Acme", "shop", "ördërs"))
    below = Grant(actions=["read"], cluster="7", tenant="acme", database="#a")
    assert not allows([below], "read", Resource("7", "acme", "b")), "only * itself is any name"


def test_two_grants_are_not_one() -> None:
    """Action, cluster and tenant must all come from the same."""
    both = [
        Grant(actions=["read"], cluster="7", tenant="acme"),
        Grant(actions=["push"], cluster="8", tenant="beta"),
    ]
    assert not allows(both, "push", Resource("7", "acme"))
    assert not allows(both, "read", Resource("8", "beta"))
    assert not allows(both, "read", Resource("7", "beta"))


@pytest.mark.parametrize(
    "named",
    [
        {"tenant": "acme"},
        {"cluster": "7", "database": "shop"},
        {"cluster": "7", "tenant": "acme", "table": "orders"},
        {"cluster": "../7"},
        {"cluster": "7", "tenant": "a/b"},
        {"cluster": "7", "tenant": "acme", "database": ""},
        {"cluster": "7", "tenant": "acme", "database": "d" * 1024},
        {"clusters": "7"},
    ],
)
def test_a_grant_that_could_be_misread_is_refused(named: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Grant(actions=["read"], **named)  # type: ignore[arg-type]


@given(grants(), resources())
def test_what_is_covered_is_touched_and_what_is_touched_has_something_covered(grant: Grant, resource: Resource) -> None:
    action = grant.actions[0]
    if allows([grant], action, resource):
        assert allows_part([grant], action, resource)
    if allows_part([grant], action, resource):
        own, asked = resource_of(grant).names, resource.names
        narrower = Resource(*(mine if mine is not None else theirs for mine, theirs in zip(own, asked, strict=True)))
        assert allows([grant], action, narrower)


@given(st.lists(grants(), max_size=3), st.lists(grants(), min_size=1, max_size=3), resources())
def test_what_is_given_opens_nothing_that_the_giver_may_not_operate(
    own: list[Grant], given_: list[Grant], resource: Resource
) -> None:
    if may_manage(own, given_) and any(
        allows(given_, action, resource) for action in ("read", "push", "operate", "feed")
    ):
        assert allows(own, "operate", resource)


def test_who_may_operate_everything_may_give_everything() -> None:
    assert may_manage([EVERYTHING], [EVERYTHING])
    assert not may_manage([Grant(actions=["read", "push"])], [Grant(actions=["read"], cluster="7")])
