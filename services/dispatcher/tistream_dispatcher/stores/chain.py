"""The chains of one store's files: decides which file is next, and what blocks it (design.md 2). Pure.

Watermarks that do not connect are another matter: tistream_sorter.watermark.slices.

Every file names its predecessor. A chain begins with a file whose prev_ts is 0. An agent that lost data before it was
pushed begins a new chain, with a file in which all watermarks have a base_ts (a *fresh* file). The files between the
first file of a chain and that of the next one are the chain's *territory*. Per chain:

    next file: prev_ts = at_ts                  -> ready
    some later file: prev_ts > at_ts            -> a file is missing: wait, never skip
    prev_ts < at_ts, or two with one prev_ts    -> broken: quarantine
    a file that cannot be read                  -> damaged: quarantine; the files before it are still returned

A fresh file ends a quarantine: the older chain, damaged or broken, is abandoned. An older chain that only waits stays
open beside the new one, because slices may rest on its late files. It is closed once the tenant's flushed_ts has passed
the new chain's beginning. Files of different chains may be returned in any order. If as many chains are open as a task
may have, no other chain begins: its files wait and are not lost, and it begins once an older chain is closed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from sortedcontainers import SortedDict, SortedList

from tistream.format.manifest import ChainPosition
from tistream.model.ts import MAX_TS

GRACE_MS = 2_000  # a file that cannot be read may still be in the middle of its upload
CHAINS_MAX = 1_000  # open chains of one store; a sorter accepts a few more (tistream_sorter.state.positions)
# Files remembered per chain: they distinguish a repeated announcement from an unknown file with an old ts.
_REMEMBERED = 64

STAGE_MISSING = "push"
STAGE_DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A change file that could be read. `fresh`: its prev_ts is 0 and all its watermarks have a base_ts."""

    ts: int
    prev_ts: int
    fresh: bool = False

    def __post_init__(self) -> None:
        assert 0 <= self.prev_ts < self.ts
        assert not self.fresh or self.prev_ts == 0


@dataclass(frozen=True, slots=True)
class NextFile:
    """The file that is next, and the first ts of its chain."""

    file: SeenFile
    chain_ts: int


@dataclass(frozen=True, slots=True)
class ChainHold:
    """Why a store makes no progress. `ts` names the file: one that is missing, or the beginning of a chain for which
    there is no room (stage STAGE_MISSING), or one that is damaged or breaks the chain (STAGE_DAMAGED)."""

    stage: str
    ts: int
    reason: str

    @property
    def quarantined(self) -> bool:
        return self.stage == STAGE_DAMAGED


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """A set of files of one store that were read and that no reader needs again; `ts in read` says whether a file
    belongs to it. No file above `through` belongs to it. Of the files up to `through`, those at or below `since` belong
    to it, and above `since` those in `routed`. The set stays true while the store is read further, but not if the store
    is read again from an earlier position."""

    through: int
    since: int  # files up to this ts are not remembered one by one
    routed: frozenset[int]
    begins: tuple[int, ...] = ()  # first files of the known chains, ascending, closed ones included

    def __contains__(self, ts: int) -> bool:
        return ts <= self.through and (ts <= self.since or ts in self.routed)

    def same_chain(self, ts: int, later_ts: int) -> bool:
        """Whether both files are of one chain: no known chain begins after `ts` and at or below `later_ts`."""
        return bisect_right(self.begins, ts) == bisect_right(self.begins, later_ts)


@dataclass(slots=True)
class _Chain:
    first_ts: int
    at_ts: int
    # The newest files, ascending; files below the first of them are not remembered.
    routed: list[int] = field(default_factory=list)

    def advance(self, ts: int) -> None:
        assert ts > self.at_ts
        self.at_ts = ts
        self.routed.append(ts)
        del self.routed[:-_REMEMBERED]


class StoreChains:
    """The state of one store: its open chains, and the files that were seen and are not next yet."""

    def __init__(self, positions: Iterable[ChainPosition] = (), chains_max: int = CHAINS_MAX) -> None:
        """Begin at `positions`, which every task has reached. At most `chains_max` chains may be open."""
        self._chains_max = chains_max
        self._held_open: frozenset[int] = frozenset()  # chains that tasks still have open
        ordered = sorted(positions, key=lambda position: position.first_ts)
        self._chains = [_Chain(position.first_ts, position.at_ts, [position.at_ts]) for position in ordered]
        self._waiting: SortedDict = SortedDict()  # ts -> SeenFile
        self._by_prev: SortedList = SortedList()  # (prev_ts, ts) of the same files
        self._damaged: SortedDict = SortedDict()  # ts -> reason
        self._ignored_below = 0

    # -- input -----------------------------------------------------------------------------------------------------

    def must_read(self, ts: int) -> bool:
        """Whether the file `ts` must be read. It need not if it is known already, or as old as files that are ignored
        or not remembered any more. An unknown file between known ones must be read, because it breaks the chain."""
        if ts < self._ignored_below or ts in self._waiting or ts in self._damaged:
            return False
        place = self._territory(ts)
        if place is None:
            return True
        chain = self._chains[place]
        return ts > chain.at_ts or (ts > chain.routed[0] and ts not in chain.routed)

    def has_seen(self, ts: int) -> bool:
        """Whether the file has been seen and waits for its turn, or is known to be damaged."""
        return ts in self._waiting or ts in self._damaged

    def with_same_prev(self, ts: int) -> list[int]:
        """All waiting files that name the same predecessor as the file `ts`, including that file. More than one of them
        breaks the chain. Only `ts` itself if it does not wait."""
        file = self._waiting.get(ts)
        return [ts] if file is None else [rival.ts for rival in self._with_prev(file.prev_ts)]

    def backlog(self) -> tuple[int, int]:
        """Returns (the number of files that wait, the newest ts of these; 0 if no file waits)."""
        return len(self._waiting), self._waiting.keys()[-1] if self._waiting else 0

    def see(self, file: SeenFile) -> None:
        """Record that a file was read, perhaps after it had been damaged. It waits until it is next; a file that its
        chain does not need any more is ignored."""
        self.forget(file.ts)
        if self.must_read(file.ts):
            self._waiting[file.ts] = file
            self._by_prev.add((file.prev_ts, file.ts))
        self._settle()

    def damage(self, ts: int, reason: str, unchanged_ms: int) -> None:
        """Record that a file could not be read and has not changed for `unchanged_ms`. Below GRACE_MS it counts as
        missing, because its upload may not be complete."""
        if unchanged_ms < GRACE_MS:
            return
        self.forget(ts)
        if self.must_read(ts):
            self._damaged[ts] = reason
        self._settle()

    def forget(self, ts: int) -> None:
        """Forget that a file waits or is damaged, for example because it was deleted. Does nothing for another file."""
        self._damaged.pop(ts, None)
        known = self._waiting.pop(ts, None)
        if known is not None:
            self._by_prev.remove((known.prev_ts, ts))

    def close(self, flushed_ts: int) -> None:
        """Close all chains before the newest one that began at or below `flushed_ts`. Every task has flushed up to this
        ts, so no slice needs late files of the closed chains."""
        while len(self._chains) > 1 and self._chains[1].first_ts <= flushed_ts:
            del self._chains[0]
        if self._chains and self._chains[0].first_ts <= flushed_ts:
            self._ignore_below(self._chains[0].first_ts)

    def held_open(self, chains: Iterable[int]) -> None:
        """Set the chains, by first ts, that tasks still have open. They may include chains that were abandoned here."""
        self._held_open = frozenset(chains)

    # -- output ----------------------------------------------------------------------------------------------------

    def ready(self) -> NextFile | None:
        """The file that is next, of the oldest chain that has such a file; None if no file is next."""
        for place, chain in enumerate(self._chains):
            found = self._successor(place)
            if found is not None:
                return NextFile(found, chain.first_ts)
        start = self._next_start()
        return NextFile(start, start.ts) if start is not None and self._has_room(start) else None

    def advance(self, ready: NextFile) -> None:
        """Record that a file was routed, so that it is the newest of its chain. `ready` must be the result of
        `ready()`."""
        assert ready == self.ready()
        ts = ready.file.ts
        self.forget(ts)
        if ready.chain_ts == ts:
            self._chains.append(_Chain(ts, ts, [ts]))
            self._chains.sort(key=lambda chain: chain.first_ts)
        else:
            next(chain for chain in self._chains if chain.first_ts == ready.chain_ts).advance(ts)
        self._settle()

    def hold(self) -> ChainHold | None:
        """Why the store makes no progress; None if nothing blocks it. Of several reasons: a quarantine first, then a
        chain for which there is no room, then the oldest missing file."""
        newest = len(self._chains) - 1
        trouble = self._trouble(newest) if self._chains else self._first_damaged(0, MAX_TS)
        return trouble or self._crowded() or next(self._missing(), None)

    def positions(self) -> tuple[ChainPosition, ...]:
        """The position in each open chain, oldest chain first."""
        return tuple(ChainPosition(chain.first_ts, chain.at_ts) for chain in self._chains)

    def last_ts(self) -> int:
        """The ts of the newest file that was routed; 0 before the first."""
        return self._chains[-1].at_ts if self._chains else 0

    def list_after(self) -> int:
        """The ts after which LIST looks for files: a little before the position of the oldest open chain."""
        return self._chains[0].routed[0] if self._chains else 0

    def may_begin_older(self) -> bool:
        """Whether a chain that is older than the known ones, and whose files are late, could still begin."""
        return bool(self._chains) and self._ignored_below < self._chains[0].first_ts

    def read(self, chain_ts: int, through: int) -> ReadFiles | None:
        """The set of files up to `through` that were read, if `chain_ts` is the oldest open chain and no older one can
        begin; otherwise None.

        Left out are files that wait or are damaged, and unknown files between the ones that were read, because they
        must be noticed. Also left out is the chain's newest file: its writer continues after it, and it keeps other
        writers from continuing the chain.
        """
        if not self._chains or self._chains[0].first_ts != chain_ts or self.may_begin_older():
            return None
        chain = self._chains[0]
        begins = tuple(one.first_ts for one in self._chains)
        return ReadFiles(min(through, chain.at_ts - 1), chain.routed[0], frozenset(chain.routed), begins)

    def passed_by(self, positions: Iterable[ChainPosition]) -> bool:
        """Whether another dispatcher has sent files after the positions here: tasks have higher positions in a known
        chain, or a position in a newer one."""
        at = {chain.first_ts: chain.at_ts for chain in self._chains}
        newest = max(at, default=0)
        return any(
            position.at_ts > at[position.first_ts] if position.first_ts in at else position.first_ts > newest
            for position in positions
        )

    # -- rules ---------------------------------------------------------------------------------------------------

    def _territory(self, ts: int) -> int | None:
        """The index of the chain to which a file with this ts belongs: the last one that begins at or below `ts`. None
        if `ts` lies before the first chain."""
        for place in range(len(self._chains) - 1, -1, -1):
            if self._chains[place].first_ts <= ts:
                return place
        return None

    def _end(self, place: int) -> int:
        return self._chains[place + 1].first_ts if place + 1 < len(self._chains) else MAX_TS + 1

    def _with_prev(self, prev_ts: int) -> list[SeenFile]:
        return [self._waiting[ts] for _, ts in self._by_prev.irange((prev_ts, 0), (prev_ts, MAX_TS))]

    def _successor(self, place: int) -> SeenFile | None:
        chain = self._chains[place]
        found = [file for file in self._with_prev(chain.at_ts) if file.ts < self._end(place)]
        if len(found) != 1 or self._broken(place) is not None:
            return None
        return found[0] if self._first_damaged(chain.at_ts, found[0].ts) is None else None

    def _may_start(self, file: SeenFile) -> bool:
        """Whether a file with prev_ts 0 may begin a chain at its place among the known chains."""
        place = self._territory(file.ts)
        if place is not None:
            return file.fresh and file.ts > self._chains[place].at_ts
        if self._chains or file.fresh:
            return True
        return self._waiting.keys()[0] == file.ts and self._first_damaged(0, file.ts) is None

    def _next_start(self) -> SeenFile | None:
        return next((start for start in self._with_prev(0) if self._may_start(start)), None)

    def _open(self) -> set[int]:
        return {*(chain.first_ts for chain in self._chains), *self._held_open}

    def _has_room(self, start: SeenFile) -> bool:
        """Whether the chain that begins with this file is open already, or one more chain may be opened."""
        return len(self._chains) + len(self._held_open) < self._chains_max or (
            len(self._open() - {start.ts}) < self._chains_max
        )

    def _crowded(self) -> ChainHold | None:
        """The hold for a chain that cannot begin because too many are open; None if there is no such chain. Its text
        says what to do."""
        start = self._next_start()
        if start is None or self._has_room(start):
            return None
        known = self._open()
        missing = next(self._missing(), None)
        late = (
            "their late files have come" if missing is None else f"the late files have arrived, first file {missing.ts}"
        )
        reason = (
            f"chain {start.ts} cannot begin: {len(known)} chains of the store are open, the oldest since {min(known)}; "
            f"it begins once {late}, or their keys were scanned again"
        )
        return ChainHold(STAGE_MISSING, start.ts, reason)

    def _trouble(self, place: int) -> ChainHold | None:
        """The hold of the chain with this index, if it is in quarantine; None if it is not."""
        return self._broken(place) or self._first_damaged(self._chains[place].at_ts, self._end(place))

    def _first_damaged(self, above: int, below: int) -> ChainHold | None:
        for ts in self._damaged.irange(above, below, inclusive=(False, False)):
            return ChainHold(STAGE_DAMAGED, ts, self._damaged[ts])
        return None

    def _broken(self, place: int) -> ChainHold | None:
        chain, end = self._chains[place], self._end(place)
        twins = [file for file in self._with_prev(chain.at_ts) if file.ts < end]
        if len(twins) > 1:
            reason = (
                f"broken chain: files {twins[0].ts} and {twins[1].ts} both name {chain.at_ts} as the one before; the "
                "store must begin a new chain"
            )
            return ChainHold(STAGE_DAMAGED, twins[1].ts, reason)
        for prev_ts, ts in self._by_prev.irange((0, 0), (chain.at_ts, 0)):
            if chain.first_ts <= ts < end and not self._may_start(self._waiting[ts]):
                reason = (
                    f"broken chain: its prev_ts {prev_ts} lies below the store's position {chain.at_ts}; the store "
                    "must begin a new chain"
                )
                return ChainHold(STAGE_DAMAGED, ts, reason)
        return None

    def _missing(self) -> Iterator[ChainHold]:
        """Yield a hold for the missing file of each territory: the predecessor of the lowest waiting file."""
        bounds = [0, *(chain.first_ts for chain in self._chains), MAX_TS + 1]
        for place, (low, high) in enumerate(pairwise(bounds), start=-1):
            at_ts = self._chains[place].at_ts if place >= 0 else 0
            for ts in self._waiting.irange(low, high, inclusive=(True, False)):
                prev_ts = self._waiting[ts].prev_ts
                if prev_ts > at_ts:
                    yield ChainHold(STAGE_MISSING, prev_ts, f"file {ts} has come, the one before it has not")
                break

    def _settle(self) -> None:
        """Abandon every chain but the newest that is damaged or broken, and with it the chains before it. Ignore all
        files before the first chain if one of them is damaged."""
        for place in range(len(self._chains) - 2, -1, -1):
            if self._trouble(place) is not None:
                self._ignore_below(self._chains[place + 1].first_ts)
                del self._chains[: place + 1]
                return
        if self._chains and self._damaged and self._damaged.keys()[0] < self._chains[0].first_ts:
            self._ignore_below(self._chains[0].first_ts)

    def _ignore_below(self, ts: int) -> None:
        self._ignored_below = max(self._ignored_below, ts)
        for known in [*self._waiting.irange(0, ts, inclusive=(True, False))]:
            self.forget(known)
        for known in [*self._damaged.irange(0, ts, inclusive=(True, False))]:
            self.forget(known)
