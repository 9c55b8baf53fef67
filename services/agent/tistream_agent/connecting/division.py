"""Decides how territories are divided anew: one is split, or neighbours are merged. Pure.

A division replaces territories (the parents) by others (the children) that have the same keys. Its steps are:

1. The chain of each parent gets a last file, which names the children. Afterwards the parent's agent can put no file
   (it is fenced), and every process that repeats the division follows the names in that file.
2. The chain of each child begins with a file that repeats, for its keys, what the last files of the parents promise.
3. The platform gives the children to agents, in place of the parents.

Garbage collection is held back for the children before step 1, and for the parents until after step 3. A division may
be interrupted anywhere: the chains show which steps are missing, and the parents that the platform still has show
whether step 3 has begun. Two processes that divide the same parents at once meet in conditional PUTs: the parent with
the lowest id gets its last file first, alone, and the others get the names that this file has. Ids are reserved before
a last file names them (reservation.py), so divisions of different parents never name the same ones.

Two divisions that share some parents cannot both be finished: a parent of the one that is left behind has a last file
that names children with keys of its partner, which went elsewhere. It gets one more last file, which names children for
its own keys (`given_up`). Its hold is released after they have theirs, as in every division. The same happens to the
parents that are left if one is disconnected before step 3.

`tistream disconnect` takes a territory from the platform, puts a last file without children into its chain, and
releases its hold. It may come between any two steps of a division:

* before all parents have their last files: no child was begun, and none is now (`next_steps`). The parents that have
  theirs are given up as above, the others stay as they are.
* after that, and before step 3: the platform replaces all parents or none, so it never gets the children. They must not
  come back: the platform refuses them (409), and `check_whole` before it. If other parents are left, they are given up
  as above; the chains of the old children end, and their holds.
* before step 3, of a child whose chain is begun: its siblings are handed over without it.
* while a process is between its look at the chains and its holds (`_hold_again`): the hold that was released may be
  there again. So the chains of the children are read once more after their holds are set; that of a child which ended
  before is left to end in minutes. A later `disconnect` releases the hold after it was set.
* after step 3: the same, for a repeat of the division. What the platform refuses then has no new hold either.

What no process repairs ends by itself: a hold that is set while its process dies, or that an agent renews in the
seconds in which its chain ends, lasts for a day at most, because only the agent of a listed territory renews one. A
child that is disconnected after it was read for the last time, but before step 3, is listed, and its agent stops in
state `sealed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.model.span import KeySpan, merge_spans
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_agent.core.chain import ChainEnd, Child, Position, tiled
from tistream_agent.core.received.range_logs import bounds_among, ranges_of
from tistream_agent.reservation import Reservation


@dataclass(frozen=True, slots=True)
class SealParent:
    """Put the last file of a parent's chain, with the names of the children."""

    store_id: int
    position: Position


@dataclass(frozen=True, slots=True)
class BeginChild:
    """Put the first file of a child's chain."""

    store_id: int
    position: Position


DivisionStep = SealParent | BeginChild

_WAIT = "run the command again once `tistream agent list` shows it as running"


def recorded_children(parents: Mapping[int, ChainEnd]) -> tuple[Child, ...]:
    """The children that the parents' last files name; empty if no parent has its last file yet. Raises InvalidRequest
    if two last files name different children."""
    named = {number: end.children for number, end in parents.items() if end.children}
    if len(set(named.values())) > 1:
        told = "; ".join(f"{number} into {_ids(children)}" for number, children in sorted(named.items()))
        raise InvalidRequest(f"the territories were divided separately ({told}): name those that were divided together")
    return next(iter(named.values()), ())


def given_up(parents: Mapping[int, ChainEnd], listed: Container[int]) -> list[int]:
    """The parents whose last files name children that the platform will never have: the chain of another parent, which
    was to name the same ones, ended in another way, or another parent was disconnected since it named them. Their keys
    need new children.

    Args:
        parents: the ends of the parents' chains.
        listed: the territories that the platform has.
    """
    return [
        number
        for number, end in sorted(parents.items())
        if end.children
        and any(
            _left(end, other, one in listed) or (number in listed and _disconnected(end, other, one in listed))
            for one, other in parents.items()
        )
    ]


def _left(end: ChainEnd, other: ChainEnd, is_listed: bool) -> bool:
    """Whether the chain `other` has keys of the children that `end` names, and never names these children."""
    if not other.sealed or other.children == end.children or other.position is None:
        return False
    if not other.children and is_listed:  # it was disconnected, and may be read again
        return False
    return any(one.span.overlaps(child.span) for one in other.position.promises for child in end.children)


def _disconnected(end: ChainEnd, other: ChainEnd, is_listed: bool) -> bool:
    """Whether the chain `other` has named the same children as `end`, and its territory was disconnected. The caller
    has seen that the platform lists the territory of `end`: so the children have not replaced them."""
    return other.children == end.children and not is_listed


def new_children(keys: Iterable[KeySpan], starts: Sequence[bytes], into: int, ids: Iterable[int]) -> tuple[Child, ...]:
    """Divide the keys of territories among `into` new ones with about equally many regions.

    Args:
        keys: the keys of each territory that is divided.
        starts: the first keys of all regions.
        ids: ids for the new territories.

    Raises InvalidRequest if the territories are not neighbours, or have fewer regions than `into`.
    """
    found = list(keys)
    together = merge_spans(found, len(found))
    if len(together) != 1:
        raise InvalidRequest(
            "the territories are no neighbours: only territories without keys between them can be merged"
        )
    [span] = together
    inside = [one for one in starts if one in span and one != span.start]
    if into > len(inside) + 1:
        raise InvalidRequest(f"{len(inside) + 1} regions are too few for {into} territories: give a lower --into")
    parts = ranges_of(span, bounds_among([span.start, *inside], into))
    return tuple(Child(number, part) for part, number in zip(parts, ids, strict=False))


def check_claimed(parents: Mapping[int, KeySpan], ends: Mapping[int, ChainEnd]) -> None:
    """Check that the chain of each parent promises the parent's keys, and no others: the chain of a new territory
    promises other keys too until an agent claims it.

    Args:
        parents: the keys of each territory that is divided.
        ends: the ends of their chains.

    Raises InvalidRequest.
    """
    for number, span in sorted(parents.items()):
        position = ends[number].position
        if position is None:
            raise InvalidRequest(f"territory {number} has no files yet: {_WAIT}")
        promised = [promise.span for promise in position.promises]
        if merge_spans(promised, len(promised)) != (span,):
            raise InvalidRequest(f"no agent has claimed territory {number} with the keys that it has now: {_WAIT}")


def next_steps(
    children: Sequence[Child],
    parents: Mapping[int, ChainEnd],
    begun: Mapping[int, ChainEnd],
    listed: Container[int],
) -> Sequence[DivisionStep]:
    """The steps that are due now; the chains must be read again after them. Empty if every child has its chain, or had
    it before the platform gave it to an agent.

    Args:
        children: `recorded_children`, or `new_children` if no parent names any.
        parents: the ends of the parents' chains.
        begun: the ends of the children's chains.
        listed: the territories that the platform has, read after the chains.

    Raises InvalidRequest if the parents are not those of the children, have no files, or were disconnected before they
    got their last files.
    """
    ends = {number: end.position for number, end in parents.items()}
    positions = {number: position for number, position in ends.items() if position is not None}
    if empty := sorted(ends.keys() - positions.keys()):
        raise InvalidRequest(f"territory {empty[0]} has no files yet: {_WAIT}")
    promises = [promise for position in positions.values() for promise in position.promises]
    had = merge_spans((promise.span for promise in promises), len(promises))
    if had != merge_spans((child.span for child in children), len(children)):
        raise InvalidRequest(
            f"{_ids(children)} have other keys than {', '.join(map(str, sorted(parents)))}: name every territory that "
            "was divided into them"
        )
    unnamed = [one for one, end in sorted(parents.items()) if not end.children]
    if unnamed and (gone := [one for one in sorted(parents) if one not in listed]):
        ended = f"run `tistream disconnect --territory {gone[0]}` in case it was interrupted, then this command again"
        advice = ended if gone[0] in unnamed else "divide the others without it"
        raise InvalidRequest(f"territory {gone[0]} was disconnected, so it is divided no more: {advice}")
    if unnamed:
        return [SealParent(one, positions[one]) for one in (unnamed if len(unnamed) < len(parents) else unnamed[:1])]
    if any(one not in listed for one in parents):
        return []  # every child was begun before: a chain that is missing was ended since, and its store retired
    next_ts = _first_ts(parents)
    return [
        BeginChild(child.store_id, Position(0, next_ts, tiled(f"territory {child.store_id}", child.span, promises)))
        for child in children
        if begun[child.store_id].position is None
    ]


def unclaimed(parents: Mapping[int, ChainEnd], begun: Mapping[int, ChainEnd]) -> dict[int, int]:
    """The children that no agent has claimed yet, each with the lowest ts that its chain promises. No agent holds back
    garbage collection for them.

    Args:
        parents: the ends of the parents' chains, which all name the children.
        begun: the ends of the children's chains.
    """
    first_ts = _first_ts(parents)
    return {
        number: end.position.lowest_ts
        for number, end in begun.items()
        if end.position is not None and end.position.prev_ts == first_ts and not end.sealed
    }


def is_under_way(one: Reservation, there: Container[int], end: Callable[[int], ChainEnd | None]) -> bool:
    """Whether the platform may get a territory of the id that a division has reserved.

    Args:
        there: the territories that the platform has.
        end: reads the end of a chain; None if its newest file is damaged, so that no agent continues it.
    """
    if one.parents and all(number in there for number in one.parents):
        return True
    found = end(one.store_id)
    return found is not None and found.position is not None and not found.sealed


def check_number(
    after: int,
    there: Container[int],
    others: Iterable[Reservation],
    advice: str = "give a lower --into, or merge others first",
) -> None:
    """Check that a command leaves the tenant no more territories than it may have, also once the other divisions that
    are under way are finished.

    Args:
        after: the number of territories after this command alone.
        there: the territories that the platform has.
        others: the ids that the other divisions have reserved, and that are not among `there`.
        advice: what the user may do if it is refused.

    Raises InvalidRequest.
    """
    reserved: dict[tuple[int, ...], Counter[str]] = {}
    for one in others:
        reserved.setdefault(one.parents, Counter())[one.division] += 1
    more = {its: max(ids.values()) - sum(one in there for one in its) for its, ids in reserved.items()}
    growing = {its: number for its, number in more.items() if number > 0}
    if after + sum(growing.values()) <= TERRITORIES_MAX:
        return
    beside = "; ".join(", ".join(map(str, its)) for its in sorted(growing))
    told = f" with the divisions of {beside}, which are to be finished by the same commands" if beside else ""
    raise InvalidRequest(f"the tenant would have more than {TERRITORIES_MAX} territories{told}: {advice}")


def check_whole(parents: Collection[int], heirs: Iterable[Child], listed: Container[int]) -> None:
    """Check that the platform has every parent or, if it has replaced them, every child of `heirs`, which are those
    with an open chain. It replaces all in one step, so in any other case some were disconnected. Raises
    InvalidRequest."""
    gone = [number for number in sorted(parents) if number not in listed]
    lost = [child for child in heirs if child.store_id not in listed]
    if not gone:
        return
    if len(gone) < len(parents):
        raise InvalidRequest(
            f"territory {gone[0]} was disconnected while it was divided: run this command again, which gives each of "
            "the others a new one in its place"
        )
    if lost:
        raise InvalidRequest(
            f"the platform has neither {', '.join(map(str, gone))} nor {_ids(lost)}, so some were disconnected: run "
            f"`tistream disconnect --territory` for {_ids(lost)}, and then `tistream connect --assign`, which gives "
            "their keys to new ones"
        )


def check_free(heirs: Collection[Child], there: Mapping[int, KeySpan], parents: Collection[int]) -> None:
    """Check that the platform can take the children `heirs` in place of the parents. `there`: the keys of each
    territory that it has. Raises InvalidRequest if another territory has some of their keys, or if the tenant would
    have too many."""
    for child in heirs:
        for number, span in sorted(there.items()):
            if number != child.store_id and number not in parents and span.overlaps(child.span):
                raise InvalidRequest(
                    f"territory {number} has keys of the new territory {child.store_id}: run `tistream disconnect "
                    f"--territory` for one of the two, and then this command again"
                )
    after = {child.store_id for child in heirs} | (there.keys() - set(parents))
    if len(after) > max(TERRITORIES_MAX, len(there)):
        raise InvalidRequest(
            f"the tenant has {len(there)} territories, and {TERRITORIES_MAX} is the maximum, so there is no room for "
            f"{_ids(heirs)}: merge others first, and then run this command again"
        )


def _first_ts(parents: Mapping[int, ChainEnd]) -> int:
    """The name of the first file of each child's chain."""
    return 1 + max(end.position.prev_ts for end in parents.values() if end.position is not None)


def _ids(children: Iterable[Child]) -> str:
    return ", ".join(str(child.store_id) for child in children)
