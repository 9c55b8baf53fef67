"""Changefeeds with the names of TiCDC's API."""

from __future__ import annotations

import pytest

from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import ChangefeedInfo, HeldBy, State
from tistream_api.feeds.ticdc_shapes import AskedState, detail, entry, is_asked_for

TENANT = TenantKey("7294539441777121232", "acme")
TS = 1_760_000_000_123 << 18


def info(state: State = "running", error: str | None = None, end_ts: str | None = None) -> ChangefeedInfo:
    return ChangefeedInfo(
        changefeed_id="orders",
        state=state,
        sink_uri="kafka://h:1/t",
        config={"case-sensitive": True},
        start_ts=str(TS),
        end_ts=end_ts,
        created_ms="1760000000000",
        checkpoint_ts=str(TS + 5),
        resolved_ts=str(TS + 9),
        error=error,
        held_by=[] if error is None else [HeldBy(stage="encode", object="t", reason="too large")],
        since_ms=None if error is None else "1760000001000",
        node_id="w1",
    )


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ("running", "normal"),
        ("retrying", "warning"),
        ("paused", "stopped"),
        ("failed", "failed"),
        ("finished", "finished"),
        ("removing", "removed"),
    ],
)
def test_states_have_the_names_of_ticdc(state: State, named: str) -> None:
    assert entry(TENANT, info(state)).state == detail(TENANT, info(state)).state == named


def test_a_list_of_one_state_is_asked_for_by_its_name_of_ticdc() -> None:
    every: tuple[State, ...] = ("running", "retrying", "paused", "failed", "finished")
    lists: list[tuple[AskedState | None, list[State]]] = [
        ("warning", ["retrying"]),
        ("stopped", ["paused"]),
        ("pending", []),
        ("all", [*every]),
        (None, [*every]),
    ]
    for state, wanted in lists:
        assert [one for one in every if is_asked_for(info(one), state)] == wanted


def test_an_entry_has_the_members_of_ticdc() -> None:
    assert entry(TENANT, info()).model_dump() == {
        "upstream_id": 7294539441777121232,
        "namespace": "acme",
        "id": "orders",
        "state": "normal",
        "checkpoint_tso": TS + 5,
        "checkpoint_time": "2025-10-09 08:53:20.123",
        "error": None,
    }


def test_a_feed_by_itself_has_its_configuration_and_its_error() -> None:
    found = detail(TenantKey("eu", "acme"), info("failed", "t: too large", str(TS + 100)))
    assert (found.upstream_id, found.target_ts, found.config) == (0, TS + 100, {"case-sensitive": True})
    assert (found.resolved_ts, found.checkpoint_ts, found.create_time) == (TS + 9, TS + 5, "2025-10-09 08:53:20.000")
    assert found.error is not None
    assert found.error.model_dump() == {
        "time": "2025-10-09 08:53:21.000",
        "addr": "w1",
        "code": "TiStream:encode",
        "message": "t: too large",
    }
    assert detail(TENANT, info()).target_ts == 0
