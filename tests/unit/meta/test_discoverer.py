"""Who looks for a tenant's new stores: one that is there, always the same, and all dispatchers have their part."""

from __future__ import annotations

from collections import Counter

from tistream.model.ids import TenantKey
from tistream_meta.decide.discoverer import Discoverers
from tistream_meta.decide.liveness import NodeState

ALIVE, SUSPECT, LOST, DRAINING = NodeState.ALIVE, NodeState.SUSPECT, NodeState.LOST, NodeState.DRAINING
TENANTS = [TenantKey("7", f"tenant-{number}") for number in range(2_000)]


def of(states: dict[str, NodeState]) -> dict[TenantKey, str | None]:
    discoverers = Discoverers(states)
    return {tenant: discoverers.of(tenant) for tenant in TENANTS}


def test_tenants_are_spread_evenly() -> None:
    counts = Counter(of({f"dispatcher-{number}": ALIVE for number in range(1, 6)}).values())
    assert len(counts) == 5
    assert all(320 <= count <= 480 for count in counts.values()), counts


def test_who_comes_or_goes_changes_only_its_own_tenants() -> None:
    three = of({"a": ALIVE, "b": ALIVE, "c": ALIVE})
    for gone in (LOST, DRAINING):
        two = of({"a": ALIVE, "b": ALIVE, "c": gone})
        assert set(two.values()) == {"a", "b"}
        assert all(two[tenant] == three[tenant] for tenant in TENANTS if three[tenant] != "c")


def test_who_is_only_late_keeps_its_tenants() -> None:
    assert of({"a": ALIVE, "b": SUSPECT}) == of({"a": ALIVE, "b": ALIVE})


def test_somebody_looks_as_long_as_there_is_anybody() -> None:
    assert set(of({"a": DRAINING, "b": LOST}).values()) == {"a"}
    assert set(of({"a": LOST, "b": LOST}).values()) == {"a", "b"}
    assert set(of({}).values()) == {None}
