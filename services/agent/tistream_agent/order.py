"""Orders to an agent: to hold a territory (to read its span of keys), from which cluster, and with the epoch of the
assignment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tistream.model.ids import TenantKey, parse_store_id
from tistream.model.span import WHOLE, KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.wire.bulk.territories import TerritoryReport, TerritoryState, TerritoryWork

Key = tuple[TenantKey, int]


@dataclass(frozen=True, slots=True)
class Order:
    """The order to hold one territory. `pd` are the addresses of PD. `pd_cluster_id` is the cluster id that PD must
    have; None means that of its first answer. `epoch` is that of the assignment; 0 if the territory comes from the
    settings."""

    tenant: TenantKey
    store_id: int
    pd: tuple[str, ...]
    pd_cluster_id: int | None
    kind: TenantKind = TenantKind.TIDB
    keyspace: str = ""
    span: KeySpan = WHOLE
    epoch: int = 0

    @property
    def key(self) -> Key:
        """The identity of the territory: tenant and store id."""
        return self.tenant, self.store_id


@dataclass(frozen=True, slots=True)
class Changes:
    """The territories that a process must stop, and those that it must start, after an answer of the meta server. A
    territory in both continues under a new assignment."""

    end: tuple[Key, ...]
    begin: tuple[Order, ...]


def addresses(text: str) -> tuple[str, ...]:
    """Split a text into addresses, which are separated by commas."""
    return tuple(address.strip() for address in text.split(",") if address.strip())


def order_of(work: TerritoryWork) -> Order:
    """Convert a territory in a meta server's answer to an Order. Raises InvalidRequest for malformed names."""
    return Order(
        TenantKey.parse(work.cluster_id, work.tenant_id),
        parse_store_id(work.territory),
        addresses(work.pd),
        int(work.pd_cluster_id),
        work.kind,
        work.keyspace,
        KeySpan(bytes.fromhex(work.start_key), bytes.fromhex(work.end_key)),
        work.epoch,
    )


def report_of(order: Order, state: TerritoryState) -> TerritoryReport:
    """The report about a territory that this process holds, for a heartbeat."""
    return TerritoryReport(
        cluster_id=order.tenant.cluster_id,
        tenant_id=order.tenant.tenant_id,
        territory=str(order.store_id),
        epoch=order.epoch,
        **state.model_dump(include=set(TerritoryState.model_fields)),
    )


def changes(held: Mapping[Key, Order], fenced: Iterable[Key], wanted: Iterable[Order]) -> Changes:
    """Compute which territories must stop and start after a meta server's answer, `wanted`. `held` are the present
    orders. `fenced` are the territories that another agent had claimed when the heartbeat was sent. Those of them that
    are still in `wanted` start again, because the meta server assigns them to no other agent."""
    asked = {order.key: order for order in wanted}
    fenced = set(fenced)
    again = {key for key, order in held.items() if asked.get(key) != order or key in fenced}
    begin = tuple(order for key, order in asked.items() if key not in held or key in again)
    return Changes(tuple(sorted(again)), begin)
