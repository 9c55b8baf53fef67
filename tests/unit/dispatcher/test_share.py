"""What is whose: of a tenant's stores each dispatcher reads its own, and one looks for those that are nobody's."""

from __future__ import annotations

import math

from tistream.wire.meta import StoreRoute, TenantRoute
from tistream_dispatcher.stores.load import FIRST_MS, SPAN_MS, StoreLoad
from tistream_dispatcher.tenant.share import Share

STORES = [
    StoreRoute(store_id=1, dispatcher_node="a"),
    StoreRoute(store_id=2, dispatcher_node="b"),
    StoreRoute(store_id=3, dispatcher_node=None),
]


def route(stores: list[StoreRoute] | None, discoverer: str | None = "a") -> TenantRoute:
    return TenantRoute(
        cluster_id="7", tenant_id="t", snapshot_ts=1, tasks=[], stores=stores, dispatcher_node=discoverer
    )


def test_every_store_is_read_by_the_one_that_the_route_names() -> None:
    a, b, c = (Share.of(route(STORES), node) for node in "abc")
    assert (a.stores, b.stores, c.stores) == ({1}, {2}, set())
    assert [share.reads(3) for share in (a, b, c)] == [False] * 3
    assert (a.is_empty, b.is_empty, c.is_empty) == (False, False, True)


def test_a_store_that_is_nobodys_concerns_only_who_looks_for_stores() -> None:
    a, b = (Share.of(route(STORES), node) for node in "ab")
    assert [a.concerns(store) for store in (1, 2, 3, 4)] == [True, False, False, True]
    assert [b.concerns(store) for store in (1, 2, 3, 4)] == [False, True, False, False]
    assert Share.of(route([], "c"), "c").is_empty is False


def test_where_the_meta_server_gives_no_stores_out_all_are_its_own() -> None:
    share = Share.of(route(None, None), "a")
    assert (share.reads(5), share.concerns(5), share.discovers, share.is_empty) == (True, True, True, False)


def test_load_is_bytes_a_second_and_fades() -> None:
    load = StoreLoad.begun(5_000)
    assert load.per_second(5_000 + FIRST_MS - 1) is None
    for second in range(120):
        load = load.added(5_000 + second * 1_000, 700)
    rate = load.per_second(125_000)
    assert rate is not None
    assert math.isclose(rate, 700, rel_tol=0.05)
    assert (load.per_second(125_000 + SPAN_MS) or 0) < 300
    assert (load.per_second(125_000 + 20 * SPAN_MS) or 0) < 0.001


def test_a_young_stores_load_is_not_taken_for_little() -> None:
    load = StoreLoad.begun(0)
    for second in range(12):
        load = load.added(second * 1_000, 700)
    rate = load.per_second(12_000)
    assert rate is not None
    assert math.isclose(rate, 700, rel_tol=0.2)
