"""Reads and writes the territories in the meta database, one row each. territory_policy.py decides."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, update

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, tables, tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.territories import territory_policy
from tistream_meta.territories.territory_policy import Agent, Territory, Upstream

log = logging.getLogger(__name__)

_ROWS = tables.territories


class TerritoryBook:
    """Reads and writes the territories in the meta database. Each call is a transaction of its own, and raises the
    errors of the repository's calls."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def add(self, wanted: Territory) -> tuple[Territory, bool]:
        """Add a territory. Returns (the territory, whether it is new). Raises UnknownName, AlreadyDiffers,
        LimitReached."""

        def body(connection: Connection) -> tuple[Territory, bool]:
            tenant_rows.one(connection, wanted.tenant)
            if not territory_policy.check_new(_read(connection, _of(wanted.tenant)), wanted):
                return _one(connection, wanted.tenant, wanted.store_id), False
            self._insert(connection, wanted)
            return wanted, True

        return self._write(body)

    def every(self) -> list[Territory]:
        """The territories of all tenants, by tenant and id."""
        return self._transactions.run(_read)

    def wanted(self) -> list[Territory]:
        """The territories that some agent should hold, without those of tenants that are being deleted."""
        return self._transactions.run(_wanted)

    def of_tenant(self, key: TenantKey) -> list[Territory]:
        """The territories of a tenant, by id. Raises UnknownName."""

        def body(connection: Connection) -> list[Territory]:
            tenant_rows.one(connection, key)
            return _read(connection, _of(key))

        return self._transactions.run(body)

    def remove(self, key: TenantKey, store_id: int) -> Territory:
        """Remove a territory. Its agent stops reading it after the agent's next beat. Raises UnknownName."""

        def body(connection: Connection) -> Territory:
            found = _one(connection, key, store_id)
            self._delete(connection, found)
            return found

        return self._write(body)

    def replace(self, key: TenantKey, gone: Collection[int], wanted: Sequence[Territory]) -> list[Territory]:
        """Remove the territories with the ids `gone`, and add the `wanted` ones, in one transaction. The call may be
        repeated. Returns the territories of the tenant. Raises UnknownName, LimitReached, and AlreadyDiffers, also if
        one of `gone` was removed by another call."""

        def body(connection: Connection) -> list[Territory]:
            tenant_rows.one(connection, key)
            there = _read(connection, _of(key))
            new = territory_policy.check_replacement(there, gone, wanted)
            for one in there:
                if one.store_id in gone:
                    self._delete(connection, one)
            for one in new:
                self._insert(connection, one)
            return _read(connection, _of(key))

        return self._write(body)

    def _insert(self, connection: Connection, one: Territory) -> None:
        connection.execute(insert(_ROWS).values(created_ms=self._now_ms, **_values(one)))
        audit_log.note(connection, self._now_ms, _subject(one), None, {"upstream": _upstream(one.upstream)})

    def _delete(self, connection: Connection, one: Territory) -> None:
        connection.execute(delete(_ROWS).where(_is(*one.key)))
        audit_log.note(connection, self._now_ms, _subject(one), {"upstream": _upstream(one.upstream)}, None)

    def held(self, node_id: str, instance: str, agents: Mapping[str, Agent]) -> list[Territory]:
        """Assign the territories that need another agent, store that, and return those that this agent must hold.
        Territories of a tenant that is being deleted have no agent."""

        def judged(connection: Connection) -> tuple[list[Territory], list[tuple[Territory, str]]]:
            there = _wanted(connection)
            given = territory_policy.assignments(there, agents)
            now = {one.key: one for one in [*there, *(territory for territory, _ in given)]}
            return [one for _, one in sorted(now.items()) if one.held_by(node_id, instance)], given

        def body(connection: Connection) -> list[Territory]:
            mine, given = judged(connection)
            for one, why in given:
                values = {"epoch": one.epoch, "node_id": one.node_id, "instance": one.instance}
                connection.execute(update(_ROWS).where(_is(*one.key)).values(**values))
                fields = {"tenant": str(one.tenant), "territory": one.store_id, "epoch": one.epoch}
                log.info("territory given", extra={**fields, "node": one.node_id, "why": why})
            return mine

        mine, given = self._transactions.run(judged)
        return self._write(body) if given else mine  # usually nothing is written


def _read(connection: Connection, *where: ColumnElement[bool]) -> list[Territory]:
    rows = connection.execute(select(_ROWS).where(*where).order_by(*_ROWS.primary_key))
    return [_territory(row) for row in rows]


def _wanted(connection: Connection) -> list[Territory]:
    ending = {one.key for one in tenant_rows.every(connection) if one.erasing or one.delete_at_ms is not None}
    return [one for one in _read(connection) if one.tenant not in ending]


def _one(connection: Connection, key: TenantKey, store_id: int) -> Territory:
    there = _read(connection, _of(key))
    for one in there:
        if one.store_id == store_id:
            return one
    names = ", ".join(str(one.store_id) for one in there) or "none"
    raise UnknownName(f"tenant {key} has no territory {store_id}: it has {names}")


def _of(key: TenantKey) -> ColumnElement[bool]:
    return and_(_ROWS.c.cluster_id == key.cluster_id, _ROWS.c.tenant_id == key.tenant_id)


def _is(key: TenantKey, store_id: int) -> ColumnElement[bool]:
    return and_(_of(key), _ROWS.c.store_id == store_id)


def _subject(one: Territory) -> shown.Subject:
    return shown.Subject(f"territory {one.store_id} of tenant {one.tenant}", one.tenant)


def _upstream(one: Upstream) -> dict[str, Any]:
    return {"pd": one.pd, "pd_cluster_id": str(one.pd_cluster_id), "kind": one.kind, "keyspace": one.keyspace}


def _values(one: Territory) -> dict[str, Any]:
    return {
        "cluster_id": one.tenant.cluster_id,
        "tenant_id": one.tenant.tenant_id,
        "store_id": one.store_id,
        "range_start": one.span.start,
        "range_end": one.span.end,
        "upstream": json.dumps(_upstream(one.upstream)),
        "epoch": one.epoch,
        "node_id": one.node_id,
        "instance": one.instance,
    }


def _territory(row: Row[Any]) -> Territory:
    said = json.loads(row.upstream)
    return Territory(
        TenantKey(row.cluster_id, row.tenant_id),
        row.store_id,
        KeySpan(bytes(row.range_start), bytes(row.range_end)),
        Upstream(said["pd"], int(said["pd_cluster_id"]), TenantKind(said["kind"]), said["keyspace"]),
        row.epoch,
        row.node_id,
        row.instance,
    )
