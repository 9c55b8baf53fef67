"""`tistream agent divide`: splits a territory of the platform's agents, or merges neighbours, while they are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain as chained
from typing import Protocol

from tistream.errors import (
    CommitConflict,
    CommitStateUnknown,
    CorruptObject,
    InvalidRequest,
    TiStreamError,
    Unavailable,
)
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.storage.object_store import ObjectStore
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_agent.connecting.checks import CannotConnect, Check
from tistream_agent.connecting.division import (
    BeginChild,
    DivisionStep,
    SealParent,
    check_claimed,
    check_free,
    check_number,
    check_whole,
    given_up,
    is_under_way,
    new_children,
    next_steps,
    recorded_children,
    unclaimed,
)
from tistream_agent.connecting.territories import first_keys, not_taken
from tistream_agent.core import chain
from tistream_agent.core.chain import ChainEnd, Child
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.core.keys import encoded_bound
from tistream_agent.core.steps import HoldRefused
from tistream_agent.position import end_of_chain, newest_file
from tistream_agent.reservation import Reservation
from tistream_agent.reserved_ids import ReservedIds
from tistream_agent.upstream.gc_hold import PLANNED_TTL_S, TTL_S, GcHold
from tistream_agent.upstream.keyspaces import TenantKeys
from tistream_agent.upstream.own_hold import SETTLE_S
from tistream_agent.upstream.pd import HoldTooLow, PdClient

_ROUNDS = 50
_IDS_END = 1 << 63  # the push contract has no store id at or above it


class Assignments(Protocol):
    """The territories that the platform gives to agents."""

    def spans(self) -> Mapping[int, KeySpan]:
        """The keys of each territory of the tenant, by id. Raises InvalidRequest if the tenant's territories are of
        another cluster or keyspace than the caller's."""
        ...

    def replace(self, gone: Collection[int], children: Sequence[Child]) -> None:
        """Create the children, REPLACED_BY_MAX at most, in place of the territories `gone`, in one step. No error if
        that has been done. Raises InvalidRequest, and changes nothing, if another process has removed some of them."""
        ...


class Divider:
    """Divides territories of one tenant. Every call of `divide` may be repeated, after any interruption.

    Args:
        owned: the keys of the tenant.
        assigned: the territories that the platform gives to agents.
        sleep: waits for a number of seconds.
        show: displays a finished step to the user.
        nonce: a new hexadecimal nonce, for the first files of the new chains and for their ids' reservations.
    """

    def __init__(
        self,
        tenant: TenantKey,
        owned: TenantKeys,
        pd: PdClient,
        objects: ObjectStore,
        assigned: Assignments,
        sleep: Callable[[float], None],
        show: Callable[[Check], None],
        nonce: str,
    ) -> None:
        self._tenant, self._owned, self._pd, self._objects = tenant, owned, pd, objects
        self._assigned, self._sleep, self._show, self._nonce = assigned, sleep, show, nonce
        self._ids = ReservedIds(objects, tenant)
        self._held = set[int]()  # the children for which this call of `divide` has set a hold

    def divide(self, parents: Sequence[int], into: int) -> tuple[Child, ...]:
        """Replace the territories `parents`, which must be neighbours, by `into` new ones. If a division of them was
        begun before, it is finished as it was begun. If it never can be, because some of them were divided with others
        or disconnected, each that is left is replaced by one new territory. Returns the new territories.

        Raises InvalidRequest, CannotConnect if history is gone or agents write too fast, CorruptObject, Unavailable.
        If it has changed nothing before it raises, it leaves no hold on GC.
        """
        self._held.clear()
        there = self._assigned.spans()  # a command for another cluster or keyspace changes nothing
        ends = {number: self._end(number) for number in parents}
        left = given_up(ends, there)
        if not left:
            children = self._replaced(parents, into)
            if len(children) != into:
                why = f"{_ids(children)} are of a division that was begun before: --into {into} was not used"
                self._show(Check("territories", True, why))
            return children
        made = tuple(child for number in left for child in self._replaced([number], 1, ends[number].children))
        self._end_for_good({child.store_id for number in left for child in ends[number].children})
        return made

    def keep_held(self, number: int) -> bool:
        """Hold back garbage collection for a day for a territory of the platform whose chain a division has ended, or
        begun: no agent may do that. Returns whether the platform still has the territory; if not, it is not held.
        Raises TiStreamError."""
        end = self._end(number)
        assert end.position is not None
        self._hold(number).move(end.position.lowest_ts - 1)
        if number in self._assigned.spans():
            return True
        self._hold(number).release()  # a process that has removed it from the platform may have released it before
        return False

    def _replaced(self, parents: Sequence[int], into: int, never: tuple[Child, ...] = ()) -> tuple[Child, ...]:
        """`divide`. `never`: children that a last file names, and that no process can begin."""
        children = self._chains(parents, into, never)
        self._hand_over(parents, children)
        self._sleep(SETTLE_S)  # the agents notice with their next files, and may refresh their holds until then
        for number in parents:
            self._hold(number).release()
        self._release_unused(parents)
        return children

    def _release_unused(self, parents: Sequence[int]) -> None:
        """Release the holds on GC of the ids that divisions of these parents have reserved, and whose chains were not
        begun: the platform has replaced the parents, or they were disconnected, so no process uses these ids."""
        for one in self._ids.by_divisions():
            if not set(parents).isdisjoint(one.parents) and self._is_unused(one.store_id):
                self._hold(one.store_id).release()

    def _end_for_good(self, children: Collection[int]) -> None:
        """End the chains of children that the platform will never have, because others have some of their keys, and let
        their holds end in minutes: `connect --assign` gives away the other keys then. An id that was disconnected, and
        connected again, is of no division any more."""
        there = self._assigned.spans()
        for number in [one.store_id for one in self._ids.by_divisions() if one.store_id in children]:
            end = None if number in there else self._sound_end(number)
            if end is not None and end.position is not None and not end.sealed:
                self._put(SealParent(number, end.position), ())
                self._let_end(number, end)

    def _hand_over(self, parents: Sequence[int], children: Sequence[Child]) -> None:
        """Give the children to the platform in place of the parents. Those that were ended since have handed their keys
        on."""
        begun = {child.store_id: self._end(child.store_id) for child in children}
        heirs = [child for child in children if _is_open(begun[child.store_id])]
        there = self._assigned.spans()
        ends = {number: self._end(number) for number in parents}
        fresh = unclaimed(ends, begun)
        try:
            check_whole(parents, heirs, there)
            check_free(heirs, there, parents)
            for child in heirs:
                self._hold_again(child.store_id, begun[child.store_id], is_claimed=child.store_id not in fresh)
            heirs = self._still_open(children, heirs)
            for number, end in ends.items():
                self._let_end(number, end)
            self._assigned.replace(parents, heirs)
        except InvalidRequest:
            with suppress(TiStreamError):  # what is held for a day then ends by itself
                self._hold_what_is_there(parents, fresh)
            raise
        self._show(Check("territories", True, f"{', '.join(map(str, parents))} became {_ids(children)}"))
        known = [*(child.span for child in heirs), *(span for number, span in there.items() if number not in parents)]
        if left := [child for child in children if any(one.overlaps(child.span) for one in not_taken(known))]:
            advice = "`tistream connect --assign` gives such keys to new ones"
            self._show(Check("territories", True, f"no territory has all keys of {_ids(left)}, which ended: {advice}"))

    def _still_open(self, children: Sequence[Child], heirs: Sequence[Child]) -> list[Child]:
        """Read the chains of children again, now that garbage collection is held back for them. Returns those of
        `heirs` that have not ended. What has ended may have been disconnected, or divided, before this process has set
        its hold: that ends in minutes, unless the platform has the territory."""
        ends = {child.store_id: self._end(child.store_id) for child in children if child.store_id in self._held}
        closed = [number for number, end in ends.items() if not _is_open(end)]
        there = self._assigned.spans() if closed else {}
        for number in closed:
            if number not in there:
                self._let_end(number, ends[number])
        return [child for child in heirs if child.store_id not in closed]

    def _hold_what_is_there(self, parents: Sequence[int], fresh: Collection[int]) -> None:
        """Hold back garbage collection after a hand-over that was refused: for a day for the parents that the platform
        has, and for minutes for children that it does not have, if no agent has claimed them (`fresh`), or if their
        chains have ended and this process has set their holds."""
        self._keep_listed(parents)
        for number in sorted(self._held.union(fresh) - self._assigned.spans().keys()):
            end = self._end(number)
            if number in fresh or end.sealed:
                self._let_end(number, end)
        self._keep_listed(fresh)  # another process may have handed them over meanwhile

    def _keep_listed(self, numbers: Collection[int]) -> None:
        for number in numbers:
            if number in self._assigned.spans():
                self.keep_held(number)

    def _chains(self, parents: Sequence[int], into: int, never: tuple[Child, ...]) -> tuple[Child, ...]:
        """End the chains of the parents, and begin those of the children, which are returned."""
        planned: tuple[Child, ...] = ()  # what this call has planned, while no last file names any children
        named = False  # whether a last file may name what was planned, though none was read
        sealing = False  # whether a last file is being put
        try:
            for _ in range(_ROUNDS):
                ends = {number: _without(self._end(number), never) for number in parents}
                children = recorded_children(ends)
                if children and planned not in ((), children):  # another division was faster
                    self._give_up(planned)
                planned = () if children else planned or self._planned(parents, into, ends)
                held_s = TTL_S if children else PLANNED_TTL_S
                children = children or planned
                begun = {child.store_id: self._end(child.store_id) for child in children}
                steps = next_steps(children, ends, begun, self._assigned.spans())
                if not steps:
                    return children
                lowest = min(end.position.lowest_ts for end in ends.values() if end.position is not None)
                self._hold_back([number for number, end in begun.items() if not end.sealed], lowest, held_s)
                for step in steps:
                    sealing = isinstance(step, SealParent)
                    self._put(step, children)
                    named = named or sealing
                    sealing = False
        except (TiStreamError, KeyboardInterrupt) as error:
            named = named or (sealing and isinstance(error, KeyboardInterrupt))  # the store may have the file
            if not named or isinstance(error, CannotConnect | InvalidRequest):
                self._give_up(planned)
            if not named:
                self._forget(planned)
            raise
        self._give_up(planned)
        raise CannotConnect(f"the agents of {parents} write faster than their chains are ended: run the command again")

    def _planned(self, parents: Sequence[int], into: int, ends: Mapping[int, ChainEnd]) -> tuple[Child, ...]:
        there, keys = self._assigned.spans(), self._owned.keys
        if unknown := [number for number in parents if number not in there]:
            raise InvalidRequest(
                f"the platform's agents have no territory {unknown[0]}: `tistream agent list` shows which they have"
            )
        after = len(there) - len(parents) + into
        check_number(after, there, ())
        spans = {number: there[number] for number in parents}
        check_claimed(spans, ends)
        wire = keys.on_wire(WHOLE)
        assert wire is not None
        starts = first_keys(keys, self._pd.regions(encoded_bound(wire.start), encoded_bound(wire.end)))
        children = new_children(spans.values(), starts, into, self._free_ids(max(there), parents))
        try:
            self._check_others(after, there, parents)
        except InvalidRequest:
            self._forget(children)
            raise
        return children

    def _check_others(self, after: int, there: Mapping[int, KeySpan], parents: Sequence[int]) -> None:
        """Check the number of territories together with the divisions under way. The caller has reserved its ids: so of
        two divisions at once, at least one sees the other. Raises InvalidRequest."""
        others = [one for one in self._ids.by_divisions() if one.division != self._nonce and one.store_id not in there]
        if after + len(others) > TERRITORIES_MAX:
            check_number(after, there, [one for one in others if self._is_under_way(one, there, parents)])

    def _is_under_way(self, one: Reservation, there: Mapping[int, KeySpan], parents: Sequence[int]) -> bool:
        """Whether the platform may get a territory of the id `one`, beside a division of `parents`."""
        if not set(parents).isdisjoint(one.parents):
            return False  # at most one of the two is finished
        return is_under_way(one, there, self._sound_end)

    def _forget(self, planned: Sequence[Child]) -> None:
        """Let no division count the ids of children that will not be. They stay reserved."""
        for child in planned:
            try:
                self._ids.name(child.store_id)
            except TiStreamError as error:
                self._show(Check("territories", True, f"id {child.store_id} counts as one under way: {error}"))

    def _free_ids(self, above: int, parents: Sequence[int]) -> Iterator[int]:
        """Ids for new territories, above those that exist while there are such ids. They are reserved when they are
        taken from the iterator, and no territory ever had them."""
        for number in chained(range(above + 1, _IDS_END), range(1, above)):
            if self._is_unused(number) and self._reserve(number, parents) and self._is_unused(number):
                yield number

    def _is_unused(self, number: int) -> bool:
        return not newest_file(self._objects, self._tenant, number)

    def _reserve(self, number: int, parents: Sequence[int]) -> bool:
        try:
            return self._ids.reserve(Reservation(number, self._nonce, tuple(sorted(parents)))) is None
        except CorruptObject as error:
            self._show(Check("territories", True, f"id {number} is left out: {error}"))
            return False

    def _give_up(self, planned: Sequence[Child]) -> None:
        """Release the holds on GC of new territories that will not be. Those of the parents still hold what they
        need."""
        for child in planned:
            try:
                self._hold(child.store_id).release()
            except Unavailable as error:
                self._show(
                    Check("garbage collection", True, f"held for territory {child.store_id} for minutes: {error}")
                )

    def _hold_back(self, children: Sequence[int], lowest_ts: int, held_s: int = TTL_S) -> None:
        """Hold back garbage collection at `lowest_ts` for each child, for `held_s` seconds. Raises CannotConnect if
        history is gone."""
        for number in children:
            self._held.add(number)
            moved = self._hold(number).move(lowest_ts - 1, held_s)
            if isinstance(moved, HoldRefused):
                raise CannotConnect(str(HoldTooLow(moved.ts, moved.safe_point)))

    def _hold_again(self, number: int, end: ChainEnd, *, is_claimed: bool) -> None:
        """Hold back garbage collection for a child that the platform gets: the hold of a command that died may have run
        out, or may have been released by `tistream disconnect`. Raises CannotConnect if history is gone."""
        assert end.position is not None
        try:
            self._hold_back([number], end.position.lowest_ts)
        except CannotConnect:
            if not is_claimed:  # the hold of an agent that has claimed it is at the end of a newer file
                raise

    def _let_end(self, number: int, end: ChainEnd) -> None:
        """Let the hold of a territory end in minutes: of a parent, because the children have theirs, and a command that
        dies before it releases the hold leaves none for a day; of a child, because no agent may need it."""
        if end.position is not None:
            self._hold(number).move(end.position.lowest_ts - 1, PLANNED_TTL_S)

    def _put(self, step: DivisionStep, children: tuple[Child, ...]) -> None:
        if isinstance(step, BeginChild):
            draft = draft_without_rows(self._tenant, step.store_id, step.position, self._nonce)
        else:
            draft = draft_without_rows(self._tenant, step.store_id, step.position, chain.SEALED, children)
        try:
            self._objects.put_new(draft.key, draft.data())
        except (CommitConflict, CommitStateUnknown):
            return  # another process was faster, or no answer came: the chain shows which
        self._show(Check("chain", True, f"territory {step.store_id}: file {step.position.next_ts}"))

    def _hold(self, number: int) -> GcHold:
        return GcHold(self._pd, self._tenant, number, self._owned.held)

    def _end(self, number: int) -> ChainEnd:
        return end_of_chain(self._objects, self._tenant, number, None)

    def _sound_end(self, number: int) -> ChainEnd | None:
        try:
            return self._end(number)
        except CorruptObject:
            return None


def _without(end: ChainEnd, never: tuple[Child, ...]) -> ChainEnd:
    return replace(end, children=()) if end.children == never else end


def _is_open(end: ChainEnd) -> bool:
    return end.position is not None and not end.sealed


def _ids(children: Sequence[Child]) -> str:
    return ", ".join(str(child.store_id) for child in children)
