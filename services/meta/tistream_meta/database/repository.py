"""Reads and writes the meta database, and converts between rows and the values of decide/model.py. Only this module and
the modules of the rows (tenant_rows.py, task_rows.py, …) use a Connection.

Persisted: clusters, tenants, tasks with their epochs, stores with their dispatchers, nodes with their newest start, the
owner's lease, and the version of the route table. Not persisted: liveness (heartbeats come within seconds),
announcements (a lost one costs latency only), route tables (made from the rest).

Every write transaction begins with an update of the owner row under this process's owner_rev. The update takes the
write lock before anything is read, so no transaction has to upgrade its lock later. It is also a fence: a meta server
that has lost its lease to another cannot write. A transaction that changes a route raises the route version. A
transaction may be retried (transactions.py), so its body only reads and writes the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, case, insert, select, true, update

from tistream.errors import Fenced, Superseded, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.wire.clients.route_mark import NOTHING_SEEN, RouteMark
from tistream.wire.tokens import KnownTokens, StoreToken, TokenInfo
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, counter_rows, store_rows, tables, task_rows, tenant_rows, token_rows
from tistream_meta.database.audit_log import AuditLog, Write
from tistream_meta.database.engine import DEFAULT_LIMITS, ConnectionLimits, now_ms, open_engine
from tistream_meta.database.source_book import StoredSources
from tistream_meta.database.tenant_ends import TenantEnds
from tistream_meta.database.transactions import CommitUnknown, Transactions, translated
from tistream_meta.database.usage_book import UsageBook
from tistream_meta.decide.incarnations import Start, StartStatus, start_status
from tistream_meta.decide.model import FOR_EVER, Change, Encryption, Node, Owner, Plan, Retention, Store, Task, Tenant
from tistream_meta.decide.split_merge import Succession, TaskOrder
from tistream_meta.decide.task_policy import Command
from tistream_meta.migrations import migrate

T = TypeVar("T")

FORGOTTEN_IDS = 1 << 20  # task ids that may have been given out after the backup from which a database was restored


class Repository:
    """The meta database. Thread-safe: each call is a transaction of its own.

    Every method raises Unavailable if the database does not answer; a write may have been committed all the same.
    Writes raise Fenced once another meta server is the owner.
    """

    def __init__(self, engine: Engine, node_id: str) -> None:
        self._engine = engine
        self._node_id = node_id
        self._owner_rev = 0
        self._now_ms = now_ms(engine)
        self._transactions = Transactions(engine, Random(node_id))
        self.prepared = False  # whether the tables exist
        self.write_count = 0  # how many writes as the owner this process has made, renewals of the lease not counted
        self.usage = UsageBook(self._transactions)
        self.ends = TenantEnds(self._write, self._now_ms)
        self.sources = StoredSources(self._transactions, self._write, self._now_ms)
        self.audit = AuditLog(self._transactions, self._write, self._now_ms)
        self._unsure: Row[int, int] | None = None  # (owner_rev, lease_until_ms) of an election that may have been won

    @classmethod
    def open(cls, url: str, node_id: str, limits: ConnectionLimits = DEFAULT_LIMITS) -> Repository:
        """Open the database at `url`, whose form engine.open_engine describes. `node_id` is the name of this meta
        server."""
        return cls(open_engine(url, limits), node_id)

    def part(self, make: Callable[[Transactions, Write, ColumnElement[int]], T]) -> T:
        """Build a part of the repository that has a class of its own, such as FeedBook. `make` gets what the part
        needs: transactions, the function for writes as the owner, and the database's clock in ms."""
        return make(self._transactions, self._write, self._now_ms)

    @property
    def owner_rev(self) -> int:
        """The owner_rev under which this process was last the owner; 0 if it never was."""
        return self._owner_rev

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def prepare(self) -> int:
        """Migrate the schema to the newest version. Returns that version. Raises NewerDatabase if a newer program made
        the database."""
        with translated():
            version = migrate(self._engine, then=counter_rows.begin)
        self.prepared = True
        return version

    # -- owner ---------------------------------------------------------------------------------------------------

    def take_ownership(
        self, lease_ms: int, url: str, above: RouteMark = NOTHING_SEEN, *, first: bool = True, restored: bool = False
    ) -> Owner:
        """Become the owner under a new owner_rev, if the lease has expired or is this process's own. At its `first`
        election a process may also take the lease of an earlier process of its name. Returns the owner, whichever
        process it is.

        `above` are the newest routes that a node has followed, as far as this process knows; the new routes get higher
        versions. If the database has older routes, it was restored from a backup, and has forgotten routes, and ids of
        tasks that have manifests; so ids are skipped. `restored`: the caller knows of such a restore, so ids are
        skipped in any case.
        """
        owner = tables.owner
        # A process that was the owner before does not know of a successor under its own name, and must not take that
        # lease.
        own = true() if first else owner.c.owner_rev == self._owner_rev
        if self._unsure is not None:
            # The answer to an election was lost. If the row is exactly as that election left it, it was won and no
            # other followed. Without this check a winner that does not know of its election would block all others
            # until the lease expires.
            rev, until_ms = self._unsure
            own = own | and_(owner.c.owner_rev == rev, owner.c.lease_until_ms == until_ms)
        take = (
            update(owner)
            .where(owner.c.id == counter_rows.OWNER_ROW)
            .where((owner.c.lease_until_ms < self._now_ms) | and_(owner.c.node_id == self._node_id, own))
            .values(
                node_id=self._node_id,
                owner_rev=case((owner.c.owner_rev < above.owner_rev, above.owner_rev), else_=owner.c.owner_rev) + 1,
                lease_until_ms=self._now_ms + lease_ms,
                url=url,
            )
        )

        left: Row[int, int] | None = None

        def body(connection: Connection) -> tuple[bool, Owner]:
            nonlocal left
            if taken := connection.execute(take).rowcount == 1:
                if restored or counter_rows.read(connection, tables.ROUTE_VERSION) < above.version:
                    counter_rows.raise_by(connection, tables.LAST_TASK_ID, FORGOTTEN_IDS)
                counter_rows.raise_to(connection, tables.ROUTE_VERSION, above.version + 1)
                # After a restore: an API server that knows the tokens at one version must not see other tokens at that
                # version.
                counter_rows.raise_to(connection, tables.TOKENS_VERSION, self._now(connection))
                left = connection.execute(select(owner.c.owner_rev, owner.c.lease_until_ms)).one()
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
        """The meta server that holds the lease, or held it last."""
        return self._transactions.run(self._owner)

    def _owner(self, connection: Connection) -> Owner:
        owner = tables.owner
        left_ms = (owner.c.lease_until_ms - self._now_ms).label("left_ms")
        row = connection.execute(select(owner, left_ms).where(owner.c.id == counter_rows.OWNER_ROW)).one()
        version = counter_rows.read(connection, tables.ROUTE_VERSION)
        return Owner(row.node_id, row.owner_rev, row.url, int(row.left_ms), version)

    def renew(self, lease_ms: int, heard_from: Iterable[str] = ()) -> None:
        """Extend the lease. `heard_from` are the nodes that have sent a heartbeat since the last renewal: for them, the
        present time is stored as that of their last heartbeat."""
        names = sorted(heard_from)

        def body(connection: Connection) -> None:
            connection.execute(update(tables.owner).values(lease_until_ms=self._now_ms + lease_ms))
            if names:
                nodes = tables.nodes
                connection.execute(
                    update(nodes).where(nodes.c.node_id.in_(names)).values(last_heartbeat_ms=self._now_ms)
                )

        self._write(body, counts=False)

    # -- tenants and tasks ---------------------------------------------------------------------------------------

    def create_tenant(
        self,
        key: TenantKey,
        retention: Retention | None = None,
        default: Retention = FOR_EVER,
        encryption: Encryption | None = None,
        index_keys: bool | None = None,
        kind: TenantKind | None = None,
    ) -> tuple[Tenant, Change | None]:
        """Register a tenant, and its cluster if this is the cluster's first tenant. An existing tenant is returned
        unchanged; it is compared with those of `retention`, `encryption`, `index_keys` and `kind` that are not None.
        `default` is the retention of a new tenant for which None is given. Returns (the tenant, the change; None if the
        tenant existed). Raises AlreadyDiffers if the tenant exists with other values, or is being erased."""

        def create(connection: Connection) -> tuple[Tenant, bool]:
            return tenant_rows.create(connection, key, retention, encryption, default, self._now_ms, index_keys, kind)

        return self._change_tenant(key, create)

    def set_rule(self, key: TenantKey, rule: tenant_rows.Rule) -> tuple[Tenant, Change | None]:
        """Set a tenant's retention, encryption key or quotas. Idempotent. Returns (the tenant, the change; None if
        nothing changed). Raises UnknownName."""
        return self._change_tenant(key, lambda connection: tenant_rows.set_rule(connection, key, rule))

    def _change_tenant(
        self, key: TenantKey, change: Callable[[Connection], tuple[Tenant, bool]]
    ) -> tuple[Tenant, Change | None]:
        """Change one tenant's row. `change` returns the changed tenant, and whether it differs from before."""

        def body(connection: Connection) -> tuple[Tenant, Change | None]:
            known = tenant_rows.find(connection, key)
            tenant, new = change(connection)
            if not new:
                return tenant, None
            audit_log.note_tenant(connection, self._now_ms, key, known, tenant)
            return tenant, Change(counter_rows.next_version(connection), tenants=(tenant,))

        return self._write(body)

    def tenant(self, key: TenantKey) -> Tenant:
        """A tenant. Raises UnknownName."""
        return self._transactions.run(lambda connection: tenant_rows.one(connection, key))

    def tenants_of(self, cluster_id: str) -> tuple[Tenant, ...]:
        """The tenants of a cluster, by name. Raises UnknownName if the cluster never had a tenant."""

        def body(connection: Connection) -> tuple[Tenant, ...]:
            return tenant_rows.of_cluster(connection, cluster_id)

        return self._transactions.run(body)

    def set_problem(self, key: TenantKey, problem: str) -> Change | None:
        """Store the reason why a tenant cannot start yet. Returns None if the same reason is stored already, or the
        tenant has started."""

        def body(connection: Connection) -> Change | None:
            tenant = tenant_rows.set_problem(connection, key, problem)
            return None if tenant is None else Change(counter_rows.next_version(connection), tenants=(tenant,))

        return self._write(body)

    def activate(
        self,
        key: TenantKey,
        snapshot_ts: int,
        spans: Sequence[KeySpan],
        continued: Sequence[Task] = (),
        last_id: int = 0,
    ) -> Change | None:
        """Store a tenant's snapshot_ts and create its tasks, one for each of `spans`, in one transaction. Returns None
        if the tenant has started already, is being erased, or does not exist.

        `continued` are tasks from before a restore of the database, and `last_id` is the highest id that the tenant
        used then. Raises AlreadyDiffers if another task has one of their ids.
        """

        def body(connection: Connection) -> Change | None:
            tenant = tenant_rows.start(connection, key, snapshot_ts)
            if tenant is None:
                return None
            tasks = task_rows.begin(connection, key, spans, continued, last_id)
            return Change(counter_rows.next_version(connection), tenants=(tenant,), tasks=tasks)

        return self._write(body)

    def new_task_ids(self, count: int) -> int:
        """Reserve `count` consecutive task ids that no task ever had. Returns the first of them."""
        return self._write(lambda connection: counter_rows.next_task_ids(connection, count))

    def order_seals(self, orders: Sequence[TaskOrder], *, by_operator: bool = False) -> Change:
        """Store or withdraw orders to tasks to seal themselves, that is, to end their logs in favour of the children of
        a split or merge. One transaction. `by_operator`: an operator requested it."""

        def body(connection: Connection) -> Change:
            task_ids = [task_id for one in orders for task_id in one.task_ids]
            known = task_rows.some(connection, task_ids) if by_operator else ()
            for one in orders:
                task_rows.order_seals(connection, one)
            change = self._of_tasks(connection, task_ids)
            audit_log.note_tasks(connection, self._now_ms, known, change.tasks)
            return change

        return self._write(body)

    def replace_sealed(self, ended: Sequence[Succession]) -> Change:
        """Replace sealed tasks by their children, in one transaction."""

        def body(connection: Connection) -> Change:
            for one in ended:
                task_rows.replace_sealed(connection, one)
            change = self._of_tasks(connection, [child.task_id for one in ended for child in one.children])
            return replace(change, gone=tuple(task_id for one in ended for task_id in one.parents))

        return self._write(body)

    def execute_moves(self, commands: Sequence[Command], *, by_operator: bool = False) -> Change:
        """Write steps of moves of tasks, in one transaction: name next sorters, abandon moves, hand tasks over under
        new epochs. `by_operator`: an operator requested it."""

        def body(connection: Connection) -> Change:
            task_ids = [command.task_id for command in commands]
            known = task_rows.some(connection, task_ids) if by_operator else ()
            task_rows.execute_moves(connection, commands)
            change = self._of_tasks(connection, task_ids)
            audit_log.note_tasks(connection, self._now_ms, known, change.tasks)
            return change

        return self._write(body)

    def raise_epochs(self, above: Mapping[int, int]) -> Change:
        """Raise the epoch of each task in `above` (by task id) above the given one. That is the epoch of a claim in the
        task's manifests, which a restored database does not know. The tasks stay with their sorters."""

        def body(connection: Connection) -> Change:
            task_rows.raise_epochs(connection, above)
            return self._of_tasks(connection, list(above))

        return self._write(body)

    def assign_stores(self, stores: Sequence[Store]) -> Change:
        """Assign stores to dispatchers, in one transaction. Stores without a row are inserted."""

        def body(connection: Connection) -> Change:
            store_rows.assign_stores(connection, stores, self._now_ms)
            return Change(counter_rows.next_version(connection), stores=tuple(stores))

        return self._write(body)

    @staticmethod
    def _of_tasks(connection: Connection, task_ids: Sequence[int]) -> Change:
        return Change(counter_rows.next_version(connection), tasks=task_rows.some(connection, task_ids))

    def drain(self, node_id: str, draining: bool) -> Change:
        """Store whether an operator drains a node. Raises UnknownName."""
        nodes = tables.nodes

        def body(connection: Connection) -> Change:
            found = connection.execute(select(nodes).where(nodes.c.node_id == node_id)).one_or_none()
            if found is None:
                raise UnknownName(f"there is no node {node_id}: `tistream node list` has the names")
            connection.execute(update(nodes).where(nodes.c.node_id == node_id).values(draining=int(draining)))
            known = _node(found)
            node = replace(known, draining=draining)
            audit_log.note(connection, self._now_ms, shown.node(node_id), shown.of_node(known), shown.of_node(node))
            return Change(counter_rows.next_version(connection), nodes=(node,))

        return self._write(body)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def new_start(self) -> int:
        """Reserve a start_epoch that is higher than all before."""

        def body(connection: Connection) -> int:
            counter_rows.raise_by(connection, tables.LAST_START, 1)
            return counter_rows.read(connection, tables.LAST_START)

        return self._write(body)

    def register(self, node_id: str, role: str, url: str, start: Start) -> tuple[Node, Change | None]:
        """Register a start of a process, which also ends a drain of its node. The tasks of a sorter get new epochs,
        which fences off an earlier start. Idempotent. Returns (the node, the change; None if this start was registered
        already). Raises Superseded if a newer start has registered."""
        nodes = tables.nodes

        def body(connection: Connection) -> tuple[Node, Change | None]:
            row = connection.execute(select(nodes).where(nodes.c.node_id == node_id)).one_or_none()
            registered = None if row is None else _node(row)
            match start_status(registered, start):
                case StartStatus.SUPERSEDED:
                    raise Superseded(f"a newer start of {node_id} has registered")
                case StartStatus.REGISTERED:
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
            # Only a number from before a loss of the database is above the counter. The next numbers follow it.
            counter_rows.raise_to(connection, tables.LAST_START, start.start_epoch)
            task_rows.fence(connection, node_id)
            tasks = task_rows.at_sorter(connection, node_id)
            return node, Change(counter_rows.next_version(connection), tasks=tasks, nodes=(node,))

        return self._write(body)

    # -- tokens --------------------------------------------------------------------------------------------------

    def tokens_version(self) -> int:
        """The version of the token list. It grows whenever a token is created, revoked or loses a grant, and at each
        election."""
        return self._transactions.run(lambda connection: counter_rows.read(connection, tables.TOKENS_VERSION))

    def known_tokens(self) -> KnownTokens:
        """The valid tokens, and the version of the token list."""
        return self._transactions.run(lambda connection: token_rows.known(connection, self._now_ms))

    def tokens(self) -> tuple[TokenInfo, ...]:
        """The valid tokens and the newest of the expired and revoked ones, the oldest first."""
        return self._transactions.run(token_rows.every)

    def store_token(self, token: StoreToken) -> TokenInfo:
        """Store a token. Idempotent, also after it was revoked. Raises AlreadyDiffers if it exists with another secret,
        LimitReached if the tenant has too many valid tokens, and InvalidRequest if its grants are too long."""
        return self._write(lambda connection: token_rows.store(connection, token, self._now_ms))

    def revoke_token(self, token_id: str) -> TokenInfo:
        """Revoke a token. Idempotent. Raises UnknownName."""
        return self._write(lambda connection: token_rows.revoke(connection, token_id, self._now_ms))

    # -- everything ----------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Read everything from which the route table is made, as one consistent snapshot. The read is in a write
        transaction of the owner, so that no earlier write of this owner can be committed after it. Tenants, stores and
        nodes are ordered by name, tasks of a tenant by key."""

        def body(connection: Connection) -> Plan:
            version = counter_rows.read(connection, tables.ROUTE_VERSION)
            tenants = tenant_rows.every(connection)
            tasks = task_rows.all_tasks(connection)
            nodes = tuple(map(_node, connection.execute(select(tables.nodes).order_by(tables.nodes.c.node_id))))
            stores = store_rows.every(connection)
            return Plan(version=version, tenants=tenants, tasks=tasks, nodes=nodes, stores=stores)

        return self._write(body)

    def raise_version(self) -> Change:
        """Raise the route version because the set of live nodes has changed. That set is not in the database."""
        return self._write(lambda connection: Change(counter_rows.next_version(connection)))

    def _write(self, body: Callable[[Connection], T], *, counts: bool = True) -> T:
        """Run `body` in a transaction that commits only if this process is the owner. Raises Fenced if it is not any
        more. `counts`: whether `write_count` grows."""
        owner = tables.owner
        touch = (
            update(owner)
            .where(
                owner.c.id == counter_rows.OWNER_ROW,
                owner.c.owner_rev == self._owner_rev,
                owner.c.node_id == self._node_id,
            )
            # A different value, because drivers differ in whether an unchanged row counts as updated.
            .values(lease_until_ms=owner.c.lease_until_ms + 1)
        )

        def fenced(connection: Connection) -> T:
            if connection.execute(touch).rowcount != 1:
                current = connection.execute(select(owner.c.owner_rev)).scalar_one()
                raise Fenced("meta database", held_epoch=self._owner_rev, current_epoch=current)
            return body(connection)

        try:
            return self._transactions.run(fenced)
        finally:
            self.write_count += counts  # it may be committed though there is no answer


def _node(row: Row[Any]) -> Node:
    return Node(row.node_id, row.role, row.url, row.start_epoch, row.instance, bool(row.draining))
