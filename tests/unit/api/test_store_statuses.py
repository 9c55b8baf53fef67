"""The stores of a tenant out of what all its dispatchers tell: each once, and what nobody reads is named."""

from __future__ import annotations

from tistream.wire.dispatcher import StoreList, StoreStatus
from tistream.wire.meta import StoreRoute, TenantRoute
from tistream.wire.sorter import Hold
from tistream_api.status.store_statuses import merged, unread


def route(**stores: str | None) -> TenantRoute:
    """s1="a": store 1 is with dispatcher a."""
    routes = [StoreRoute(store_id=int(name[1:]), dispatcher_node=node) for name, node in stores.items()]
    return TenantRoute(cluster_id="7", tenant_id="t", snapshot_ts=1, tasks=[], stores=routes)


def told(node: str, **stores: int) -> StoreList:
    """s1=500: it is at file 500 of store 1."""
    found = [
        StoreStatus(cluster_id="7", tenant_id="t", store_id=int(name[1:]), chains=[], last_file_ts=ts)
        for name, ts in stores.items()
    ]
    return StoreList(node_id=node, stores=found)


def test_every_store_is_told_once_by_whom_the_route_names() -> None:
    answers = [told("a", s1=500, s2=100), told("b", s2=300, s3=400), told("c", s2=900)]
    found = merged(route(s1="a", s2="b", s3="b"), answers)
    assert [(store.store_id, store.last_file_ts) for store in found] == [(1, 500), (2, 300), (3, 400)]


def test_a_store_that_another_reads_still_is_told_by_that_one() -> None:
    at = route(s1="b")
    assert [store.last_file_ts for store in merged(at, [told("a", s1=500), told("b")])] == [500]
    assert unread(at, [told("a", s1=500), told("b")]) == []


def test_a_store_that_nobody_reads_is_named_with_the_reason() -> None:
    holds = unread(route(s1=None, s2="gone", s3="a", s4="a"), [told("a", s4=7)])
    assert [(hold.stage, hold.store_id) for hold in holds] == [("dispatch", store) for store in "123"]
    assert "because none takes stores" in holds[0].reason
    assert "gone, which has it, does not answer" in holds[1].reason
    assert "a, which has it, has not taken it yet" in holds[2].reason


def test_a_retired_store_is_left_out_though_a_dispatcher_still_tells_of_it() -> None:
    answers = [told("a", s1=500, s2=100)]
    here = route(s1="a", s2="a")
    assert [store.store_id for store in merged(here, answers)] == [1, 2]
    retired = route(s1="a").model_copy(update={"retired_stores": [2]})
    assert [store.store_id for store in merged(retired, answers)] == [1]
    assert unread(retired, answers) == []


def test_where_the_meta_server_gives_no_stores_out_whatever_is_told_counts() -> None:
    old = TenantRoute(cluster_id="7", tenant_id="t", snapshot_ts=1, tasks=[])
    assert [store.store_id for store in merged(old, [told("a", s1=5, s2=6)])] == [1, 2]
    assert unread(old, [told("a", s1=5)]) == []


def test_the_hold_has_what_an_operator_needs() -> None:
    (hold,) = unread(route(s9=None), [])
    assert hold == Hold(
        stage="dispatch", store_id="9", reason="no dispatcher reads the store, because none takes stores"
    )
