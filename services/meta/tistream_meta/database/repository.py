"""Rows <-> model: the only file that has a Connection, with those of the rows (tenant_rows.py, task_rows.py, …).

Persisted: clusters, tenants, tasks with their epochs, stores with their dispatchers, nodes with their newest start, the
owner's lease, and the version of the route table. Not persisted: liveness (heard again within a heartbeat),
announcements (a lost one costs latency only), route tables (made from the rest).

Every write transaction begins by touching the owner row under this process's owner_rev. That takes the write lock
before anything is read, so no transaction is upgraded half-way, and it fences: a meta server that has lost its lease
to another writes nothing. Whatever changes a route raises the route version in the same transaction. A transaction may
be done again (transactions.py): what it is made of does nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row, and_, case, func, insert, select, true, update

from tistream.errors import Fenced, Superseded, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.wire.limits import Limits as TenantLimits
from tistream.wire.route_mark import NOTHING_SEEN, Mark
from tistream.wire.tokens import KnownTokens, StoreToken, TokenInfo
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, counter_rows, store_rows, tables, task_rows, tenant_rows, token_rows
from tistream_meta.database.audit_log import AuditLog
from tistream_meta.database.engine import DEFAULT_LIMITS, Limits, now_ms, open_engine
from tistream_meta.database.tenant_ends import TenantEnds
from tistream_meta.database.transactions import CommitUnknown, Transactions, translated
from tistream_meta.database.usage_book import UsageBook
from tistream_meta.decide.incarnations import Standing, Start, standing
from tistream_meta.decide.model import FOR_EVER, Change, Child, Encryption, Node, Owner, Plan, Retention, Store, Tenant
from tistream_meta.decide.policies import Command
from tistream_meta.decide.split_merge import CarryOn, Order
from tistream_meta.migrations import migrate

T = TypeVar("T")

_OWNER_ROW = 1
FORGOTTEN_IDS = 1 << 20  # that a database may have given to tasks after the backup from which it was restored


class Repository:
    """The meta database. Thread-safe: each call is a transaction of its own.

    Every method raises Unavailable where the database does not answer; after that a write may have been done all the
    same. Writes raise Fenced once another meta server owns it.
    """

    def __init__(self, engine: Engine, node_id: str) -> None:
        self._engine = engine
        self._node_id = node_id
        self._owner_rev = 0
        self._now_ms = now_ms(engine)
        self._transactions = Transactions(engine, Random(node_id))
        self.prepared = False  # whether the tables are there
        self.usage = UsageBook(self._transactions)
        self.ends = TenantEnds(self._write, self._now_ms)
        self.audit = AuditLog(self._transactions, self._write, self._now_ms)
        self._unsure: tuple[int, int] | None = None  # (owner_rev, lease_until_ms) of an election that may have been won

    @classmethod
    def open(cls, url: str, node_id: str, limits: Limits = DEFAULT_LIMITS) -> Repository:
        """The database at `url`, as database.open_engine takes it."""
        return cls(open_engine(url, limits), node_id)

    @property
    def owner_rev(self) -> int:
        """The one under which this process was the owner last; 0 if it never was."""
        return self._owner_rev

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def prepare(self) -> int:
        """Bring the schema up to date; its version."""
        with translated():
            version = migrate(self._engine, then=_seed)
        self.prepared = True
        return version

    # -- owner ---------------------------------------------------------------------------------------------------

    def take_ownership(self, lease_ms: int, url: str, above: Mark = NOTHING_SEEN, *, first: bool = True) -> Owner:
        """Become the owner, under a new owner_rev, if the lease has run out or is this process's own, or at its `first`
        time that of an earlier process of its name; who is the owner now.

        Its routes come after the ones `above`: a database that was restored has forgotten how far it had come, and
        which ids it had given to tasks, whose manifests are there.
        """
        owner = tables.owner
        # A process that was the owner before knows of no successor under its own name, and must not take it for itself.
        own = true() if first else owner.c.owner_rev == self._owner_rev
        if self._unsure is not None:
            # The answer to an election was lost. If the row is exactly as that has left it, it was won, and nobody has
            # come after: else who won it without knowing would hold up everybody for as long as the lease lasts.
            rev, until_ms = self._unsure
            own = own | and_(owner.c.owner_rev == rev, owner.c.lease_until_ms == until_ms)
        take = (
            update(owner)
            .where(owner.c.id == _OWNER_ROW)
            .where((owner.c.lease_until_ms < self._now_ms) | and_(owner.c.node_id == self._node_id, own))
            .values(
                node_id=self._node_id,
                owner_rev=case((owner.c.owner_rev < above.owner_rev, above.owner_rev), else_=owner.c.owner_rev) + 1,
                lease_until_ms=self._now_ms + lease_ms,
                url=url,
            )
        )

        left: tuple[int, int] | None = None

        def body(connection: Connection) -> tuple[bool, Owner]:
            nonlocal left
            if taken := connection.execute(take).rowcount == 1:
                if counter_rows.read(connection, tables.ROUTE_VERSION) < above.version:
                    counter_rows.raise_by(connection, tables.LAST_TASK_ID, FORGOTTEN_IDS)
                counter_rows.raise_to(connection, tables.ROUTE_VERSION, above.version + 1)
                # Of a restored database: an API server that knows as many changes of tokens must not know others.
                counter_rows.raise_to(connection, tables.TOKENS_VERSION, self._now(connection))
                row = connection.execute(select(owner.c.owner_rev, owner.c.lease_until_ms)).one()
                left = (row.owner_rev, row.lease_until_ms)
            return taken, self._owner(connection)

        try:
            taken, found = self._transactions.run(body)
        except CommitUnknown:
            self._unsure = left or self._unsure
            raise
        self._unsure = None
        if taken:
            self._owner_rev = found.owner_rev
        return found

    def _now(self, connection: Connection) -> int:
        return int(connection.execute(select(self._now_ms)).scalar_one())

    def owner(self) -> Owner:
        """Who holds the lease, or held it last."""
        return self._transactions.run(self._owner)

    def _owner(self, connection: Connection) -> Owner:
        owner = tables.owner
        left_ms = (owner.c.lease_until_ms - self._now_ms).label("left_ms")
        row = connection.execute(select(owner, left_ms).where(owner.c.id == _OWNER_ROW)).one()
        return Owner(row.node_id, row.owner_rev, row.url, int(row.left_ms))

    def renew(self, lease_ms: int, heard: Iterable[str] = ()) -> None:
        """Extend the lease, and note the nodes that were heard since the last renewal."""
        names = sorted(heard)

        def body(connection: Connection) -> None:
            connection.execute(update(tables.owner).values(lease_until_ms=self._now_ms + lease_ms))
            if names:
                nodes = tables.nodes
                connection.execute(
                    update(nodes).where(nodes.c.node_id.in_(names)).values(last_heartbeat_ms=self._now_ms)
                )

        self._write(body)

    # -- tenants and tasks ---------------------------------------------------------------------------------------

    def create_tenant(
        self,
        key: TenantKey,
        retention: Retention | None = None,
        default: Retention = FOR_EVER,
        encryption: Encryption | None = None,
        index_keys: bool | None = None,
    ) -> tuple[Tenant, Change | None]:
        """Register a tenant, and its cluster with its first one; the tenant as it is, if it was there before.
        `retention` None: the default, or what it has; so `encryption` and `index_keys`. Raises AlreadyDiffers where it
        has another."""

        def create(connection: Connection) -> tuple[Tenant, bool]:
            return tenant_rows.create(connection, key, retention, encryption, default, self._now_ms, index_keys)

        return self._change_tenant(key, create)

    def set_retention(self, key: TenantKey, retention: Retention) -> tuple[Tenant, Change | None]:
        """Say how long a tenant's rows are kept; the same again changes nothing. Raises UnknownName."""
        return self._change_tenant(key, lambda connection: tenant_rows.set_retention(connection, key, retention))

    def set_limits(self, key: TenantKey, limits: TenantLimits) -> tuple[Tenant, Change | None]:
        """Say what a tenant may use; the same again changes nothing. Raises UnknownName."""
        return self._change_tenant(key, lambda connection: tenant_rows.set_limits(connection, key, limits))

    def set_encryption(self, key: TenantKey, encryption: Encryption) -> tuple[Tenant, Change | None]:
        """Say what a tenant's objects are encrypted with; the same again changes nothing. Raises UnknownName."""
        return self._change_tenant(key, lambda connection: tenant_rows.set_encryption(connection, key, encryption))

    def _change_tenant(
        self, key: TenantKey, change: Callable[[Connection], tuple[Tenant, bool]]
    ) -> tuple[Tenant, Change | None]:
        """`change` tells the tenant as it is after it, and whether that is new."""

        def body(connection: Connection) -> tuple[Tenant, Change | None]:
            known = tenant_rows.find(connection, key)
            tenant, new = change(connection)
            if not new:
                return tenant, None
            audit_log.note_tenant(connection, self._now_ms, key, known, tenant)
            return tenant, Change(counter_rows.next_version(connection), tenants=(tenant,))

        return self._write(body)

    def tenant(self, key: TenantKey) -> Tenant:
        """As it is. Raises UnknownName."""
        return self._transactions.run(lambda connection: tenant_rows.one(connection, key))

    def tenants_of(self, cluster_id: str) -> tuple[Tenant, ...]:
        """In the order of their names. Raises UnknownName if no tenant ever named that cluster."""

        def body(connection: Connection) -> tuple[Tenant, ...]:
            return tenant_rows.of_cluster(connection, cluster_id)

        return self._transactions.run(body)

    def set_problem(self, key: TenantKey, problem: str) -> Change | None:
        """Say why a tenant cannot start yet; None if that was said already."""

        def body(connection: Connection) -> Change | None:
            tenant = tenant_rows.set_problem(connection, key, problem)
            return None if tenant is None else Change(counter_rows.next_version(connection), tenants=(tenant,))

        return self._write(body)

    def activate(self, key: TenantKey, snapshot_ts: int, spans: Sequence[KeySpan]) -> Change | None:
        """Give a tenant its start and its tasks, in one transaction; None if it had them already."""

        def body(connection: Connection) -> Change | None:
            tenant = tenant_rows.start(connection, key, snapshot_ts)
            if tenant is None:
                return None
            first = counter_rows.next_task_ids(connection, len(spans))
            children = [Child(first + at, span) for at, span in enumerate(spans)]
            task_rows.add(connection, key, children)
            return Change(
                counter_rows.next_version(connection),
                tenants=(tenant,),
                tasks=task_rows.some(connection, [child.task_id for child in children]),
            )

        return self._write(body)

    def new_task_ids(self, count: int) -> int:
        """The first of `count` ids in a row that no task ever had."""
        return self._write(lambda connection: counter_rows.next_task_ids(connection, count))

    def order(self, orders: Sequence[Order], *, asked: bool = False) -> Change:
        """Note what tasks are to be sealed into, or that they are not any more, in one transaction. `asked`: by an
        operator."""

        def body(connection: Connection) -> Change:
            task_ids = [task_id for one in orders for task_id in one.task_ids]
            known = task_rows.some(connection, task_ids) if asked else ()
            for one in orders:
                task_rows.order(connection, one)
            change = self._of_tasks(connection, task_ids)
            audit_log.note_tasks(connection, self._now_ms, known, change.tasks)
            return change

        return self._write(body)

    def carry_on(self, ended: Sequence[CarryOn]) -> Change:
        """Put children in the place of sealed tasks, in one transaction."""

        def body(connection: Connection) -> Change:
            for one in ended:
                task_rows.carry_on(connection, one)
            change = self._of_tasks(connection, [child.task_id for one in ended for child in one.children])
            return replace(change, gone=tuple(task_id for one in ended for task_id in one.parents))

        return self._write(body)

    def take(self, commands: Sequence[Command], *, asked: bool = False) -> Change:
        """Take steps, in one transaction: name next sorters, give that up, hand tasks over under new epochs. `asked`:
        by an operator."""

        def body(connection: Connection) -> Change:
            task_ids = [command.task_id for command in commands]
            known = task_rows.some(connection, task_ids) if asked else ()
            task_rows.take(connection, commands)
            change = self._of_tasks(connection, task_ids)
            audit_log.note_tasks(connection, self._now_ms, known, change.tasks)
            return change

        return self._write(body)

    def raise_epochs(self, above: Mapping[int, int]) -> Change:
        """Give tasks epochs above these, each to the sorter that it is with."""

        def body(connection: Connection) -> Change:
            task_rows.raise_epochs(connection, above)
            return self._of_tasks(connection, list(above))

        return self._write(body)

    def give(self, stores: Sequence[Store]) -> Change:
        """Note stores and who reads them, in one transaction: known ones move, the others are new."""

        def body(connection: Connection) -> Change:
            store_rows.give(connection, stores, self._now_ms)
            return Change(counter_rows.next_version(connection), stores=tuple(stores))

        return self._write(body)

    @staticmethod
    def _of_tasks(connection: Connection, task_ids: Sequence[int]) -> Change:
        return Change(counter_rows.next_version(connection), tasks=task_rows.some(connection, task_ids))

    def drain(self, node_id: str, draining: bool) -> Change:
        """Note that a node is to be empty, or is not any more. Raises UnknownName."""
        nodes = tables.nodes

        def body(connection: Connection) -> Change:
            found = connection.execute(select(nodes).where(nodes.c.node_id == node_id)).one_or_none()
            if found is None:
                raise UnknownName(f"no node {node_id}")
            connection.execute(update(nodes).where(nodes.c.node_id == node_id).values(draining=int(draining)))
            known = _node(found)
            node = replace(known, draining=draining)
            audit_log.note(connection, self._now_ms, shown.node(node_id), shown.of_node(known), shown.of_node(node))
            return Change(counter_rows.next_version(connection), nodes=(node,))

        return self._write(body)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def new_start(self) -> int:
        """A start_epoch above all that were handed out before."""

        def body(connection: Connection) -> int:
            counter_rows.raise_by(connection, tables.LAST_START, 1)
            return counter_rows.read(connection, tables.LAST_START)

        return self._write(body)

    def register(self, node_id: str, role: str, url: str, start: Start) -> tuple[Node, Change | None]:
        """Note a start of a process; again the same changes nothing. The tasks of a sorter get new epochs: what an
        earlier start still writes for them is fenced. Raises Superseded where a newer start was noted."""
        nodes = tables.nodes

        def body(connection: Connection) -> tuple[Node, Change | None]:
            row = connection.execute(select(nodes).where(nodes.c.node_id == node_id)).one_or_none()
            registered = None if row is None else _node(row)
            match standing(registered, start):
                case Standing.SUPERSEDED:
                    raise Superseded(f"a newer start of {node_id} has registered")
                case Standing.REGISTERED:
                    assert registered is not None
                    return registered, None
            node = Node(node_id, role, url, start.start_epoch, start.instance)
            values = {
                "role": role,
                "url": url,
                "start_epoch": start.start_epoch,
                "instance": start.instance,
                "last_heartbeat_ms": self._now_ms,
                "draining": 0,
            }
            if row is None:
                connection.execute(insert(nodes).values(node_id=node_id, **values))
            else:
                connection.execute(update(nodes).where(nodes.c.node_id == node_id).values(**values))
            # Only a number from before this database's time is above the counter: the next ones go on from there.
            counter_rows.raise_to(connection, tables.LAST_START, start.start_epoch)
            task_rows.fence(connection, node_id)
            tasks = task_rows.at_sorter(connection, node_id)
            return node, Change(counter_rows.next_version(connection), tasks=tasks, nodes=(node,))

        return self._write(body)

    # -- tokens --------------------------------------------------------------------------------------------------

    def tokens_version(self) -> int:
        """It grows whenever a token is made or revoked, and at each election."""
        return self._transactions.run(lambda connection: counter_rows.read(connection, tables.TOKENS_VERSION))

    def known_tokens(self) -> KnownTokens:
        """The valid ones, and their version."""
        return self._transactions.run(lambda connection: token_rows.known(connection, self._now_ms))

    def tokens(self) -> tuple[TokenInfo, ...]:
        """The valid ones, and of those that have ended the newest; the oldest first."""
        return self._transactions.run(token_rows.every)

    def store_token(self, token: StoreToken) -> TokenInfo:
        """Keep a token; the same again changes nothing, though it be revoked. Raises AlreadyDiffers, LimitReached."""
        return self._write(lambda connection: token_rows.store(connection, token, self._now_ms))

    def revoke_token(self, token_id: str) -> TokenInfo:
        """Nobody is let in by it any more; again changes nothing. Raises UnknownName."""
        return self._write(lambda connection: token_rows.revoke(connection, token_id, self._now_ms))

    # -- everything ----------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Everything, as of one moment: as the owner, so that whatever it has written before is there, or will never
        be. Tenants, stores and nodes by name, tasks of a tenant in key order."""

        def body(connection: Connection) -> Plan:
            version = counter_rows.read(connection, tables.ROUTE_VERSION)
            tenants = tenant_rows.every(connection)
            tasks = task_rows.all_tasks(connection)
            node_rows = connection.execute(select(tables.nodes).order_by(tables.nodes.c.node_id)).all()
            return Plan(
                version=version,
                tenants=tenants,
                tasks=tasks,
                nodes=tuple(map(_node, node_rows)),
                stores=store_rows.every(connection),
            )

        return self._write(body)

    def raise_version(self) -> Change:
        """The routes change by something that is not persisted: which nodes are alive."""
        return self._write(lambda connection: Change(counter_rows.next_version(connection)))

    def _write(self, body: Callable[[Connection], T]) -> T:
        """`body` in a transaction of the owner's. Raises Fenced if this process is not the owner any more."""
        owner = tables.owner
        touch = (
            update(owner)
            .where(owner.c.id == _OWNER_ROW, owner.c.owner_rev == self._owner_rev, owner.c.node_id == self._node_id)
            # Not the same value: whether a row that stays as it is counts is up to the driver.
            .values(lease_until_ms=owner.c.lease_until_ms + 1)
        )

        def fenced(connection: Connection) -> T:
            if connection.execute(touch).rowcount != 1:
                current = connection.execute(select(owner.c.owner_rev)).scalar_one()
                raise Fenced("meta database", held_epoch=self._owner_rev, current_epoch=current)
            return body(connection)

        return self._transactions.run(fenced)


def _seed(connection: Connection) -> None:
    """The rows that exist always."""
    # A database of before there was a counter of starts has numbers already.
    started = connection.execute(select(func.coalesce(func.max(tables.nodes.c.start_epoch), 0))).scalar_one()
    first = {tables.ROUTE_VERSION: 1, tables.LAST_TASK_ID: 0, tables.LAST_START: started, tables.TOKENS_VERSION: 1}
    first[tables.LAST_AUDIT] = 0
    for name, value in first.items():
        counter_rows.seed(connection, name, value)
    if connection.execute(select(tables.owner)).one_or_none() is None:
        connection.execute(
            insert(tables.owner).values(id=_OWNER_ROW, node_id="", owner_rev=0, lease_until_ms=0, url="")
        )


def _node(row: Row[Any]) -> Node:
    return Node(row.node_id, row.role, row.url, row.start_epoch, row.instance, bool(row.draining))
