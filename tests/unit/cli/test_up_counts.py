"""How many of each service `tistream up` starts, and what they are called."""

from __future__ import annotations

from tistream_cli.platform.up import SERVICES, Counts


def test_one_of_each_bears_the_services_name() -> None:
    assert Counts().children() == {service: service for service in SERVICES}


def test_the_others_bear_a_number_too() -> None:
    children = Counts(meta=2, dispatcher=3, api=2).children()
    assert [name for name, service in children.items() if service == "dispatcher"] == [
        "dispatcher",
        "dispatcher-2",
        "dispatcher-3",
    ]
    assert len(children) == 2 + 1 + 1 + 3 + 1 + 1 + 2
