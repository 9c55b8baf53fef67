"""What an agent holds: what follows from an answer of the meta servers, when a claim waits, and where a chain ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.territories import TerritoryInfo, TerritoryState, TerritoryWork
from tistream.wire.meta import NodeInfo
from tistream_agent.claim_pause import ERROR_PAUSE_MAX_S, PAUSE_MAX_S, after_error_s, count_claims, pause_s
from tistream_agent.connecting.platform import agent_rows, as_table, check_same
from tistream_agent.order import Changes, Order, changes, order_of, report_of
from tistream_agent.position import newest_file
from tistream_agent.settings import AgentSettings
from tistream_agent.status import LATE_MS, RecordedState, territory_status

ACME = TenantKey("7", "acme")
ONE = Order(ACME, 1, ("pd-1:2379", "pd-2:2379"), 17, TenantKind.TIDB, "ks", KeySpan(b"a", b""), 3)
WORK = TerritoryWork(
    cluster_id="7",
    tenant_id="acme",
    territory="1",
    pd="pd-1:2379, pd-2:2379",
    pd_cluster_id="17",
    kind=TenantKind.TIDB,
    keyspace="ks",
    start_key="61",
    end_key="",
    epoch=3,
)


def test_an_order_is_what_the_meta_server_answers_and_is_reported_under_its_epoch() -> None:
    assert order_of(WORK) == ONE
    report = report_of(ONE, TerritoryState(state="running", lag_ms=7))
    assert (report.territory, report.epoch, report.state, report.lag_ms) == ("1", 3, "running", 7)


def test_what_is_held_under_the_same_assignment_goes_on() -> None:
    assert changes({ONE.key: ONE}, [], [ONE]) == Changes((), ())


def test_a_new_assignment_begins_anew() -> None:
    later = replace(ONE, epoch=4)
    assert changes({ONE.key: ONE}, [], [later]) == Changes((ONE.key,), (later,))


def test_what_is_not_given_any_more_ends() -> None:
    two = replace(ONE, store_id=2)
    assert changes({ONE.key: ONE}, [], [two]) == Changes((ONE.key,), (two,))
    assert changes({ONE.key: ONE}, [], []) == Changes((ONE.key,), ())


def test_one_that_was_fenced_begins_anew_only_if_it_is_still_given() -> None:
    assert changes({ONE.key: ONE}, [ONE.key], [ONE]) == Changes((ONE.key,), (ONE,))
    assert changes({ONE.key: ONE}, [ONE.key], []) == Changes((ONE.key,), ())


def test_a_claim_waits_twice_as_long_after_each_other_up_to_a_minute() -> None:
    assert [pause_s(number) for number in range(10)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(10_000) == PAUSE_MAX_S


def test_the_pause_after_unexpected_errors_doubles_up_to_five_minutes_and_begins_anew_after_a_long_run() -> None:
    pauses = [0.0]
    for _ in range(11):
        pauses.append(after_error_s(pauses[-1], 5))
    assert pauses[1:] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert after_error_s(64, ERROR_PAUSE_MAX_S - 1) == 128
    assert after_error_s(64, ERROR_PAUSE_MAX_S) == 1


@settings(max_examples=examples(200))
@given(st.lists(st.integers(min_value=1, max_value=40), max_size=12))
def test_claims_are_counted_with_few_reads(runs: list[int]) -> None:
    nonces = [f"{number:x}" for number, length in enumerate(runs) for _ in range(length)]
    read: list[str] = []

    def nonce_of(name: str) -> str:
        read.append(name)
        return nonces[int(name)]

    assert count_claims([str(at) for at in range(len(nonces))], nonce_of) == max(0, len(runs) - 1)
    assert len(read) == len(set(read))
    assert len(read) <= 2 + 2 * len(runs) * len(nonces).bit_length()


@pytest.mark.parametrize("files", [0, 1, 2, 999, 1_000, 1_001, 1_999, 5_000])
def test_the_end_of_a_chain_is_found(files: int) -> None:
    objects, first = MemoryObjectStore(), 470_000_000_000_000_000
    for number in range(files):
        objects.put(layout.change_file(ACME, 1, first + number), b"")
    objects.put(layout.change_file(ACME, 11, first + 90_000), b"of another store")
    newest = first + files - 1 if files else 0
    assert newest_file(objects, ACME, 1) == newest
    if files:
        assert newest_file(objects, ACME, 1, first + files // 2) == newest


NOW_MS = 1_700_000_000_000
SEEN = RecordedState(
    (NOW_MS - LATE_MS - 7_000) << 18, KeySpan(b"t", b"u"), "region 7 on store 2 scans", NOW_MS - 12_000, 3, 90
)


def test_a_late_territory_says_how_long_it_has_waited_for_what() -> None:
    status = territory_status(ONE, 17, "running", "", SEEN, NOW_MS)
    assert status.reason == "region 7 on store 2 scans for 12 s"
    assert (status.lag_ms, status.span, status.subscriptions, status.epoch) == (12_000, ("74", "75"), 3, 3)
    live = replace(SEEN, waits_for="region 7 on store 2 is live")
    reason = territory_status(ONE, 17, "running", "", live, NOW_MS).reason
    assert reason.startswith("region 7 on store 2 is live, and TiKV's resolved ts is 12 s old")
    near = replace(SEEN, durable_ts=(NOW_MS - 900) << 18)
    assert territory_status(ONE, 17, "running", "", near, NOW_MS).reason == "region 7 on store 2 scans"


def test_one_that_has_stopped_keeps_its_reason_and_how_far_it_was() -> None:
    status = territory_status(ONE, 17, "fenced", "fenced by another agent", SEEN, NOW_MS)
    assert (status.state, status.reason, status.lag_ms) == ("fenced", "fenced by another agent", 12_000)
    assert territory_status(ONE, 0, "starting", "asks PD", None, NOW_MS).resolved_ts == "0"


def test_an_agent_without_a_cluster_asks_the_meta_servers_and_half_a_cluster_is_refused() -> None:
    assert AgentSettings().given_by_meta
    whole = AgentSettings(pd="pd-1:2379", cluster="7", tenant="acme", territory=4)
    assert not whole.given_by_meta
    assert (whole.order.store_id, whole.order.epoch, whole.order.pd) == (4, 0, ("pd-1:2379",))
    for part in ({"pd": "pd:2379"}, {"cluster": "7"}, {"pd": "pd:2379", "tenant": "acme"}):
        with pytest.raises(ValueError, match="must be set; without PD, CLUSTER and TENANT"):
            AgentSettings(**part)  # type: ignore[arg-type]


# Attack: the keyspace or the kind of another tenant is given, and the hold of its territories would be looked for there
def test_a_command_for_another_keyspace_than_the_territories_have_is_refused() -> None:
    found = {1: TerritoryInfo(**WORK.model_dump())}
    check_same(found, TenantKind.TIDB, "ks")
    check_same(found, TenantKind.TIDB, "ks", "17")
    for wrong in ((TenantKind.RAW, "ks"), (TenantKind.TIDB, ""), (TenantKind.TIDB, "ks", "18")):
        with pytest.raises(InvalidRequest, match="territory 1 is of PD cluster 17, --kind tidb and --keyspace 'ks'"):
            check_same(found, *wrong)  # type: ignore[arg-type]


def test_the_list_shows_each_territory_with_its_agent_and_those_without() -> None:
    said = TerritoryState(state="running", reason="region 7 on store 2 scans", resolved_ts="9", lag_ms=1_250)
    held = TerritoryInfo(**WORK.model_dump(), node_id="agent-1", said=said)
    lost = held.model_copy(update={"territory": "2", "node_id": None, "said": None})
    nodes = [
        NodeInfo(node_id=name, role="agent", url="http://127.0.0.1:1", state="alive", start_epoch=1)
        for name in ("agent-1", "agent-2")
    ]
    assert agent_rows(nodes, [held, lost]) == [
        ("agent-1", "alive", "7/acme", "1", "running", "1.2 s", "region 7 on store 2 scans"),
        ("agent-2", "alive", "-", "-", "-", "-", "-"),
        ("-", "-", "7/acme", "2", "-", "-", "no agent has reported it yet"),
    ]
    assert as_table([("a", "long"), ("longer", "b")]) == "a       long\nlonger  b"
