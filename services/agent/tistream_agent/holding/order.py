"""What an agent is to hold: a territory, where its changes come from, and the number of the assignment. Pure."""

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
    """One territory. `pd`: addresses. `pd_cluster_id`: that PD must have; None: that of its first answer. `epoch`: of
    the assignment; 0: of a process that serves the territory of its settings."""

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
        """What names the territory."""
        return self.tenant, self.store_id


@dataclass(frozen=True, slots=True)
class Changes:
    """What a process changes after a beat: territories that it ends, and that it begins. One that is in both continues
    under a new assignment."""

    end: tuple[Key, ...]
    begin: tuple[Order, ...]


def addresses(text: str) -> tuple[str, ...]:
    """Addresses that are separated by commas."""
    return tuple(address.strip() for address in text.split(",") if address.strip())


def order_of(work: TerritoryWork) -> Order:
    """The order in a meta server's answer. Raises InvalidRequest for names that cannot be one."""
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
    """A report of what is held."""
    return TerritoryReport(
        cluster_id=order.tenant.cluster_id,
        tenant_id=order.tenant.tenant_id,
        territory=str(order.store_id),
        epoch=order.epoch,
        **state.model_dump(include=set(TerritoryState.model_fields)),
    )


def changes(held: Mapping[Key, Order], fenced: Iterable[Key], wanted: Iterable[Order]) -> Changes:
    """What follows from a meta server's answer. `held`: the present orders. `fenced`: those of them that another agent
    had fenced when the beat was sent; if the answer still names them, they begin anew, because no other agent is to
    hold them."""
    asked = {order.key: order for order in wanted}
    fenced = set(fenced)
    again = {key for key, order in held.items() if asked.get(key) != order or key in fenced}
    begin = tuple(order for key, order in asked.items() if key not in held or key in again)
    return Changes(tuple(sorted(again)), begin)
