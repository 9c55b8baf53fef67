"""Every tenant in a few words."""

from __future__ import annotations

import pytest
from test_api_status import NOW_MS, picture, store, task

from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import Hold
from tistream_api.status.overview import summary

DAMAGED = Hold(stage="damaged", store_id="1", object="a/b", reason="its CRC-32 is another")
ROUTE = TenantRoute(cluster_id="7", tenant_id="acme", snapshot_ts=1, tasks=[], stores=[], retention_ms=3_600_000)


def test_a_tenant_on_time_is_live_and_nothing_holds_it() -> None:
    told = summary(ROUTE, picture(1_200)).model_dump()
    assert (told["state"], told["held_by"], told["waits"], told["lag_seconds"]) == ("live", None, None, 1.2)
    assert (told["cluster_id"], told["tenant_id"], told["retention_ms"]) == ("7", "acme", "3600000")


def test_a_late_tenant_says_at_which_stage_and_why() -> None:
    told = summary(ROUTE, picture(60_000, stores=[store(60_000)])).model_dump()
    assert told["state"] == "late"
    assert told["held_by"]["stage"] == "push"
    assert "store 1 pushed nothing" in told["held_by"]["reason"]


@pytest.mark.parametrize("lag_ms", [1_200, 60_000])
def test_damage_is_told_however_late_the_tenant_is(lag_ms: int) -> None:
    told = summary(ROUTE, picture(lag_ms, statuses={1: task(holds=[DAMAGED.model_dump()])})).model_dump()
    assert told["state"] == "damaged"
    assert told["held_by"]["object"] == "a/b"


def test_a_tenant_that_cannot_be_read_yet_waits_and_has_no_lag() -> None:
    new = TenantRoute(cluster_id="7", tenant_id="new", snapshot_ts=None, tasks=[], problem="schema_snap has not come")
    told = summary(new, picture(NOW_MS)).model_dump()
    assert (told["state"], told["waits"], told["lag_seconds"]) == ("waiting", "schema_snap has not come", None)
    unread = summary(ROUTE, picture(0, resolved_ts=0)).model_dump()
    assert (unread["state"], unread["waits"], unread["resolved_ts"]) == ("waiting", "it is being read", None)
