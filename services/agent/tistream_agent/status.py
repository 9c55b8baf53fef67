"""The status of territories (the spans of keys that agents read), for the answer of `/status`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, Field

from tistream.model import ts as tso
from tistream.model.span import KeySpan, shown_key
from tistream.wire.bulk.territories import TerritoryState
from tistream_agent.order import Order

LATE_MS = 5_000  # a lag above it has a culprit


class TerritoryStatus(TerritoryState):
    """The status of one territory. `pd_cluster_id` is the cluster id that PD states; 0 until PD has answered. `epoch`
    is that of the assignment. `slowest_region` is the region of the keys that are furthest behind; empty if PD has not
    answered yet. `by_state` has, by state, the number of key ranges that wait for PD, must be registered, are being
    scanned, or are live."""

    cluster_id: str
    tenant_id: str
    territory: str
    pd_cluster_id: str
    epoch: int
    slowest_region: str = ""
    by_state: dict[str, int] = Field(default_factory=dict)


class AgentStatus(BaseModel):
    """The answer of `GET /status`. `problem` is the reason why the agent cannot request territories from the meta
    servers; empty if it can, or if its settings name a territory."""

    node_id: str
    problem: str = ""
    territories: list[TerritoryStatus]


@dataclass(frozen=True, slots=True)
class RecordedState:
    """The state of a territory's agent, as its thread has recorded it for other threads. `durable_ts`: all changes up
    to it are in files. `span`, `waits_for`: the keys that are furthest behind, and what they wait for in words, since
    `since_ms`. `region_id` is the region of these keys; 0 if PD has not answered yet. `subscriptions`: the number of
    key ranges, and `by_state` their number by state, subscribed or not."""

    durable_ts: int
    span: KeySpan
    waits_for: str
    since_ms: int
    subscriptions: int
    buffer_bytes: int
    region_id: int = 0
    by_state: Mapping[str, int] = field(default_factory=dict)


def territory_status(
    order: Order, pd_cluster_id: int, state: str, reason: str, seen: RecordedState | None, now_ms: int
) -> TerritoryStatus:
    """Build the status of a territory. `seen` is None before the territory has begun. `reason` says why it does not
    run."""
    status = TerritoryStatus(
        cluster_id=order.tenant.cluster_id,
        tenant_id=order.tenant.tenant_id,
        territory=str(order.store_id),
        pd_cluster_id=str(pd_cluster_id),
        epoch=order.epoch,
        state=state,
        reason=reason,
    )
    if seen is None:
        return status
    lag_ms = max(0, now_ms - tso.physical_ms(seen.durable_ts))
    found = {
        "resolved_ts": str(seen.durable_ts),
        "lag_ms": lag_ms,
        "span": (shown_key(seen.span.start), shown_key(seen.span.end)),
        "subscriptions": seen.subscriptions,
        "buffer_bytes": seen.buffer_bytes,
        "held_ts": str(seen.durable_ts - 1),
        "slowest_region": str(seen.region_id) if seen.region_id else "",
        "by_state": dict(seen.by_state),
    }
    if state == "running":
        found["reason"] = _waits(seen, lag_ms, now_ms)
    return status.model_copy(update=found)


def _waits(seen: RecordedState, lag_ms: int, now_ms: int) -> str:
    """Say what the keys that are furthest behind wait for. If the lag is LATE_MS or more, the text also says for how
    long, or what holds back TiKV's resolved ts."""
    for_s = max(0, now_ms - seen.since_ms) // 1_000
    if lag_ms < LATE_MS:
        return seen.waits_for
    if seen.waits_for.endswith(" is live"):
        return (
            f"{seen.waits_for}, and TiKV's resolved ts is {lag_ms // 1_000} s old: a lock of a long transaction holds "
            "it, or its leader"
        )
    return f"{seen.waits_for} for {for_s} s" if for_s else seen.waits_for
