"""`tistream connect`: checks a TiDB cluster, holds back its garbage collection (GC), stores its schema, and registers
the tenant."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice

from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject, NotFoundYet, TiStreamError, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan, merge_spans
from tistream.model.tenant_kind import TenantKind
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_agent.connecting.checks import CannotConnect, Check, FailedCheck
from tistream_agent.connecting.division import check_number, is_under_way
from tistream_agent.connecting.store_checks import store_checks
from tistream_agent.connecting.territories import REGIONS_MAX, covers, divided, first_keys, not_taken, oversized
from tistream_agent.core import chain
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.core.keys import KeyMap, encoded_bound
from tistream_agent.core.steps import HoldRefused
from tistream_agent.position import divided_text, end_of_chain, newest_file, snapshot_ts
from tistream_agent.reservation import Reservation
from tistream_agent.reserved_ids import ReservedIds
from tistream_agent.upstream.gc_hold import GcHold
from tistream_agent.upstream.keyspaces import TenantKeys, tenant_keys
from tistream_agent.upstream.own_hold import SETTLE_S
from tistream_agent.upstream.pd import DEADLINE_S, NULL_KEYSPACE, HoldTooLow, PdClient
from tistream_agent.upstream.raw_api import raw_snapshot
from tistream_agent.upstream.schema_snap import SchemaReader
from tistream_agent.upstream.stores import Channels

_SEALS = 50


@dataclass(frozen=True, slots=True)
class Connection:
    """The cluster and the tenant to connect. `keyspace` is as in the settings of the agent (keyspaces.tenant_keys).
    `regions_max`: of a territory. `call_s`: how long a call to a TiKV store may take."""

    tenant: TenantKey
    territory: int = 1
    keyspace: str = ""
    kind: TenantKind = TenantKind.TIDB
    regions_max: int = REGIONS_MAX
    call_s: float = DEADLINE_S


class Connector:
    """Connects one tenant.

    Args:
        register: creates the tenant in the platform; no error if it exists.
        reached: returns the ts up to which the platform has every change of the tenant; None if it has no snapshot of
            the tenant. A chain that begins above that ts would leave a gap, for which the platform
            would wait for ever.
        show: called with the result of each check.
        nonce: returns a new hexadecimal nonce for the chain's first file.
    """

    def __init__(
        self,
        connection: Connection,
        pd: PdClient,
        channels: Channels,
        objects: ObjectStore,
        register: Callable[[TenantKey], None],
        reached: Callable[[TenantKey], int | None],
        sleep: Callable[[float], None],
        show: Callable[[Check], None],
        nonce: str,
    ) -> None:
        self._connection, self._pd, self._channels, self._objects = connection, pd, channels, objects
        self._register, self._reached = register, reached
        self._sleep, self._show, self._nonce = sleep, show, nonce
        self._ids = ReservedIds(objects, connection.tenant)

    def check(self) -> int:
        """Run all checks that change nothing. Returns PD's cluster id. Raises CannotConnect."""
        cluster_id = self._pd_check()
        connection = self._connection
        for check in store_checks(self._pd, self._channels, connection.kind, connection.call_s):
            self._passed(check)
        self._passed(self._history_check())
        return cluster_id

    def connect(self) -> int:
        """Hold back GC, store the schema, and register the tenant. Returns the tenant's snapshot_ts. Raises
        CannotConnect.

        The call may be repeated: an existing chain of files, or an existing schema_snap (the object with the tenant's
        schema as of its snapshot_ts), is kept, and the agent continues from it. The first chain of a new territory
        begins at the ts that the platform has reached.
        """
        tenant = self._connection.tenant
        owned = self._owned()
        hold = GcHold(self._pd, tenant, self._connection.territory, owned.held)
        end = self._end(self._connection.territory)
        self._check_undivided(end)
        position = end.position
        if position is None or end.sealed:
            why = self._refusal(self._connection.territory, end)
            if why is not None:
                self._passed(Check("chain", False, f"{why}; give another --territory"))
        stored = self._stored() if position is None else position.lowest_ts
        known = self._known() if stored is None else None
        begins = known if stored is None else stored
        ts = self._pd.timestamps(1) if begins is None else begins
        moved = hold.move(ts - 1)
        if isinstance(moved, HoldRefused):
            self._passed(Check("garbage collection", False, str(HoldTooLow(moved.ts, moved.safe_point))))
        self._passed(Check("garbage collection", True, f"held at {ts - 1} as {hold.service_id}"))
        if known is not None:
            self._passed(Check("schema", True, f"the platform has it, and every change up to {ts}"))
        elif stored is None:
            if self._connection.kind is TenantKind.RAW:
                body, said = raw_snapshot(ts), f"RawKV has none; the changes begin at {ts}"
            else:
                body = SchemaReader(self._pd, self._channels, self._sleep, owned.keys.prefix).read(ts)
                said = f"read from TiKV as of {ts}, {len(body)} bytes"
            self._new(layout.schema_snap(tenant), body)
            self._passed(Check("schema", True, said))
        else:
            self._passed(Check("schema", True, f"stored already; the agent goes on at {ts}"))
        if position is None:
            # The registry deletes schema_snap once it has read it: from then on only the chain says where to begin.
            position = chain.new_chain(WHOLE, ts)
            self._new(*self._next_file(position, self._nonce))
        elif end.sealed:
            self._new(*self._next_file(position, self._nonce))
            self._passed(Check("chain", True, f"opened again at {ts}"))
        try:
            self._register(tenant)
        except TiStreamError as error:
            why = f"{error}; the schema is stored: run the command again"
            self._passed(Check("tenant", False, why, later=isinstance(error, Unavailable)))
        self._passed(Check("tenant", True, f"{tenant} is registered"))
        return ts

    def divide(self, taken: Mapping[int, KeySpan], begins_ts: int) -> list[tuple[int, KeySpan]]:
        """Divide the keys that no territory has among new ones, so that none has too many regions. `taken` has the
        existing territories of the tenant, `begins_ts` is what `connect` has returned. Returns the id and the keys
        of each new territory; the ids count from the connection's on. Each gets a hold on GC, and a chain that an agent
        may continue. The call may be repeated. Raises CannotConnect, InvalidRequest."""
        owned, tenant, most = self._owned(), self._connection.tenant, self._connection.regions_max
        starts = self._starts(owned.keys)
        waiting = self._unfinished(taken)
        if waiting:
            its, again = ", ".join(map(str, waiting)), "run `tistream agent divide` again for the old ones"
            self._passed(Check("territories", True, f"a division has yet to hand over {its}: {again}"))
        spans = self._new_spans(taken, waiting, starts)
        ends = dict(self._usable(taken, len(spans)))
        found = list(zip(ends, spans, strict=True))
        known = self._known() if found else None
        lowest = [begins_ts, *(end.position.lowest_ts for end in ends.values() if end.position is not None)]
        begins_ts = min(lowest) if known is None else known  # of a chain that ended long ago, history may be gone
        for number, span in found:
            position = ends[number].position
            goes_on = position is not None and not ends[number].sealed and covers(position, span)
            at = position.lowest_ts if position is not None and goes_on else begins_ts
            moved = GcHold(self._pd, tenant, number, owned.held).move(at - 1)
            if isinstance(moved, HoldRefused):
                self._passed(Check("garbage collection", False, str(HoldTooLow(moved.ts, moved.safe_point))))
            if not goes_on:
                self._new(*self._next_file(chain.begins_at(position, at), self._nonce, number))
        if not any(self._connection.territory in its for its in (taken, waiting, ends)):
            GcHold(self._pd, tenant, self._connection.territory, owned.held).release()  # `connect` has set it
        for number, regions in oversized(taken, starts, most):
            advice = f"`tistream agent divide --territory {number} --into {regions // most + 1}` splits it"
            self._passed(Check("territories", True, f"territory {number} has {regions} regions: {advice}"))
        new = ", ".join(str(number) for number, _ in found) or "none"
        self._passed(Check("territories", True, f"{len(starts)} regions; new ones: {new}"))
        return found

    def check_room(self, taken: Mapping[int, KeySpan]) -> None:
        """Check that the tenant may have as many territories as `divide` would make. Changes nothing. Raises
        InvalidRequest, Unavailable."""
        self._new_spans(taken, self._unfinished(taken), self._starts(self._owned().keys))

    def _new_spans(
        self, taken: Mapping[int, KeySpan], waiting: Mapping[int, tuple[KeySpan, ...]], starts: Sequence[bytes]
    ) -> list[KeySpan]:
        """The keys of each new territory. Raises InvalidRequest if there would be too many territories."""
        owners = [*taken.values(), *(span for its in waiting.values() for span in its)]
        spans = [part for span in not_taken(owners) for part in divided(span, starts, self._connection.regions_max)]
        others = [one for one in self._ids.by_divisions() if spans and one.store_id not in taken]
        if len(taken) + len(spans) + len(others) > TERRITORIES_MAX:
            growing = [one for one in others if is_under_way(one, taken, self.sound_end)]
            merge = "merge others first, with `tistream agent divide --into 1`"
            check_number(len(taken) + len(spans), taken, growing, merge)
        return spans

    def _unfinished(self, taken: Container[int]) -> dict[int, tuple[KeySpan, ...]]:
        """The territories whose chains a division has begun, and which the platform does not have yet, with their keys.
        While a division replaces territories, the platform has neither the old nor the new ones."""
        found: dict[int, tuple[KeySpan, ...]] = {}
        for number in (one.store_id for one in self._ids.by_divisions()):
            end = None if number in taken else self.sound_end(number)
            if end is not None and end.position is not None and not end.sealed:
                spans = [promise.span for promise in end.position.promises]
                found[number] = merge_spans(spans, len(spans))
        return found

    def _usable(self, taken: Container[int], number: int) -> Iterator[tuple[int, chain.ChainEnd]]:
        """Yield `number` ids for new territories, each with the end of its chain. They are the lowest ones, from the
        connection's id on, that no territory has, that no territory had which was divided, and that no division has
        reserved."""
        free = ((one, self.sound_end(one)) for one in count(self._connection.territory) if one not in taken)
        sound = ((one, end) for one, end in free if end is not None and not end.children)
        return islice((one for one in sound if self._refusal(*one) is None), number)

    def _refusal(self, number: int, end: chain.ChainEnd) -> str | None:
        """Reserve an id by name. Returns the reason why its chain may not be begun, or opened for other keys; None if
        that may be done."""
        if end.sealed:
            self._ids.name(number)
            return None
        try:
            return self._ids.reserve(Reservation(number))
        except CorruptObject as error:
            return str(error)

    def _end(self, territory: int) -> chain.ChainEnd:
        return end_of_chain(self._objects, self._connection.tenant, territory, None)

    def sound_end(self, territory: int) -> chain.ChainEnd | None:
        """The end of a chain; None if its newest file is damaged: no agent continues it, so its keys need another
        territory."""
        try:
            return self._end(territory)
        except CorruptObject:
            return None

    def _check_undivided(self, end: chain.ChainEnd) -> None:
        if end.children:
            tenant, territory = self._connection.tenant, self._connection.territory
            why, heir = divided_text(tenant, territory, end.children), self._heir(end.children)
            other = "another --territory" if heir is None else f"--territory {heir}"
            self._passed(Check("chain", False, f"{why}; else connect with {other}"))

    def _heir(self, children: Iterable[chain.Child]) -> int | None:
        """The first territory that an agent may continue, of those that have the keys now; None if all have ended."""
        for child in children:
            end = self._end(child.store_id)
            if end.position is not None and not end.sealed:
                return child.store_id
            if (found := self._heir(end.children)) is not None:
                return found
        return None

    def undivided(self) -> None:
        """Warn the user if the tenant has more regions than a territory should have. The warning says what to
        do. Call this only if one agent will read all keys of the tenant: that is not checked here."""
        regions = len(self._starts(self._owned().keys))
        if regions > self._connection.regions_max:
            advice = "--assign divides them among the platform's agents; for one agent, set RANGE_LOGS"
            self._passed(Check("territories", True, f"{regions} regions in one: {advice}"))

    def _starts(self, keys: KeyMap) -> list[bytes]:
        """The first keys of the tenant's regions. Raises Unavailable."""
        wire = keys.on_wire(WHOLE)
        assert wire is not None
        return first_keys(keys, self._pd.regions(encoded_bound(wire.start), encoded_bound(wire.end)))

    def _stored(self) -> int | None:
        """The ts of the stored schema_snap; None if there is no schema_snap."""
        try:
            return snapshot_ts(self._objects, self._connection.tenant)
        except NotFoundYet:
            return None

    def _known(self) -> int | None:
        try:
            return self._reached(self._connection.tenant)
        except TiStreamError as error:
            why = f"it does not say whether it has the tenant: {error}"
            self._passed(Check("platform", False, why, later=isinstance(error, Unavailable)))
            raise

    def _new(self, key: str, body: bytes) -> None:
        """Create an object. Raises CannotConnect if another `connect` has created it at the same time."""
        try:
            self._objects.put_new(key, body)
        except CommitConflict as error:
            raise CannotConnect(f"{key} was created at the same time: run the command again") from error

    def _next_file(self, position: chain.Position, nonce: str, territory: int | None = None) -> tuple[str, bytes]:
        """The key and the bytes of the next file of a territory's chain; None: that of the connection. It has no rows,
        and repeats up to which ts each key is complete (`position`)."""
        number = self._connection.territory if territory is None else territory
        draft = draft_without_rows(self._connection.tenant, number, position, nonce)
        return draft.key, draft.data()

    def left_by_divisions(self, taken: Container[int]) -> list[int]:
        """The territories whose chains are open though the platform has only `taken`: divisions that died have begun
        them. The holds on GC of the ids that divisions have reserved, and not begun, are released. Raises
        Unavailable."""
        held = self._owned().held
        for one in self._ids.by_divisions():
            if one.store_id not in taken and not newest_file(self._objects, self._connection.tenant, one.store_id):
                GcHold(self._pd, self._connection.tenant, one.store_id, held).release()
        return sorted(self._unfinished(taken))

    def disconnect(self) -> None:
        """End the chain with a last file that no agent may follow, which ends its agent, and delete the hold on GC. The
        tenant and its rows stay. The call may be repeated. Raises Unavailable, and CannotConnect if an agent writes
        files so fast that no last file can be put."""
        if self._seal():
            # The agent notices with its next file, and may refresh the hold until then.
            self._sleep(SETTLE_S)
        GcHold(self._pd, self._connection.tenant, self._connection.territory, self._owned().held).release()
        self._passed(Check("garbage collection", True, "not held any more"))

    def _seal(self) -> bool:
        """Put a last file after the chain's newest one. Returns whether the chain was open before."""
        territory = self._connection.territory
        for _ in range(_SEALS):
            try:
                end = self._end(territory)
            except CorruptObject as error:
                self._passed(Check("chain", True, f"ends with a file after which no agent continues: {error}"))
                return False
            if end.position is None or end.sealed:
                self._passed(Check("chain", True, "sealed already" if end.sealed else "has no file"))
                return False
            try:
                self._objects.put_new(*self._next_file(end.position, chain.SEALED))
            except (CommitConflict, CommitStateUnknown):
                continue  # the agent was faster, or no answer came: the newest file shows which
            self._passed(Check("chain", True, f"sealed after {end.position.prev_ts}"))
            return True
        raise CannotConnect(f"the agent of territory {territory} writes faster than its chain is sealed: stop it first")

    def _owned(self) -> TenantKeys:
        return tenant_keys(self._pd, self._connection.kind, self._connection.keyspace)

    def _passed(self, check: Check) -> None:
        self._show(check)
        if not check.passed:
            raise FailedCheck(check)

    def _pd_check(self) -> int:
        try:
            cluster_id = self._pd.cluster_id
        except TiStreamError as error:
            check = Check("PD", False, str(error), later=isinstance(error, Unavailable))
            self._show(check)
            raise FailedCheck(check) from error
        self._passed(Check("PD", True, f"cluster {cluster_id}"))
        return cluster_id

    def _history_check(self) -> Check:
        """Check whether the cluster still has all versions that the tenant's chain needs to continue. Raises
        InvalidRequest for a wrong keyspace."""
        connection, name = self._connection, "history"
        owned = self._owned()
        end = self._end(connection.territory)
        self._check_undivided(end)
        position = end.position
        reached = self._stored() if position is None else position.lowest_ts
        if reached is None:
            try:
                reached = self._reached(connection.tenant)
            except Unavailable as error:
                return Check(name, True, f"not known before the platform answers: {error}")
        if reached is None:
            return Check(name, True, "none is needed: the tenant begins now")
        safe_point = self._pd.safe_point() if owned.held == NULL_KEYSPACE else 0
        if reached - 1 < safe_point:
            return Check(name, False, str(HoldTooLow(reached - 1, safe_point)))
        return Check(name, True, f"the agent goes on at {reached}")
