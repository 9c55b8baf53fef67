"""Holders race, pause, crash and lose answers at random; what was committed stays committed, once and in order."""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.faulty_store import Fault, FaultyObjectStore
from support.manifest_holder import TASK, TENANT, Holder, manifest_key
from tistream.errors import CommitConflict, CommitStateUnknown, Fenced, Unavailable
from tistream.format.manifest import KIND_CHECKPOINT, KIND_TICK, Manifest
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.manifest_log import ATTEMPTS

HOLDERS = 3
STEPS = ("restart", "commit", "checkpoint", "collect", "deliver", "fault", "stall", "overtake")


class Race:
    def __init__(self) -> None:
        self.store = MemoryObjectStore()
        self.network = FaultyObjectStore(self.store)
        self.epochs = itertools.count(1)
        self.names = map(str, itertools.count())
        self.holders: list[Holder | None] = [None] * HOLDERS
        self.doubts: list[Manifest | None] = [None] * HOLDERS
        self.committed: list[str] = []
        self.refused: set[str] = set()
        self.reader = TaskObjects(self.store, TENANT, TASK)
        self.view = self.reader.follow()

    def restart(self, at: int) -> None:
        """The process dies and a new one takes its place with a new epoch; or it tries to, in vain."""
        holder = Holder(self.network, f"holder{at}-{next(self.names)}", next(self.epochs))
        self.holders[at], self.doubts[at] = None, None
        with suppress(Fenced, CommitStateUnknown, Unavailable):
            self.holders[at] = holder.claim()

    def commit(self, at: int, kind: str) -> None:
        holder = self.holders[at]
        if holder is None:
            return
        doubt, self.doubts[at] = self.doubts[at], None
        manifest = doubt or holder.tick(next(self.names), kind)
        name = manifest.segments[0].key
        try:
            holder.log.commit(manifest)
            self.committed.append(name)
            if manifest.kind == KIND_CHECKPOINT:
                holder.log.raise_floor(manifest.number)
        except CommitStateUnknown:
            self.doubts[at] = manifest if name not in self.committed else None
        except Unavailable:
            pass
        except (Fenced, CommitConflict):
            if doubt is None:  # one in doubt may have been committed, and its number collected since
                self.refused.add(name)
            self.holders[at] = None

    def collect(self) -> None:
        for number in range(1, self.reader.floor()):
            self.store.delete(manifest_key(number))

    def step(self, what: str, at: int, fault: Fault, times: int) -> None:
        if what == "restart":
            self.restart(at)
        elif what in ("commit", "checkpoint"):
            self.commit(at, KIND_TICK if what == "commit" else KIND_CHECKPOINT)
        elif what == "collect":
            self.collect()
        elif what == "stall":  # a commit whose every put stays under way
            self.network.plan = deque([Fault.DELAYED] * ATTEMPTS)
            self.commit(at, KIND_TICK)
        elif what == "overtake":  # another takes over, and all that was is collected
            self.network.plan.clear()
            self.restart(at)
            self.commit(at, KIND_CHECKPOINT)
            self.collect()
        elif what == "deliver":
            self.network.deliver()
        else:
            self.network.plan.extend([fault] * times)
        if times == 1:  # else it sleeps
            self.view = self.reader.follow(self.view)
        self.check()

    def check(self) -> None:
        fresh = self.reader.follow()
        live = [found.key for found in fresh.segments]
        caught_up = self.reader.follow(self.view)
        assert [found.key for found in caught_up.segments] == live
        assert len(set(live)) == len(live), "committed twice"
        assert not self.refused & set(live), "refused, and yet there"
        assert [name for name in live if name in self.committed] == self.committed, "lost or out of order"


step = st.tuples(
    st.sampled_from(STEPS), st.integers(0, HOLDERS - 1), st.sampled_from(list(Fault)), st.sampled_from([1, 2, 10])
)


DOUBT_COLLECTED = [
    ("restart", 1, Fault.NONE, 1),
    ("stall", 1, Fault.NONE, 1),
    ("deliver", 0, Fault.NONE, 1),
    ("overtake", 0, Fault.NONE, 1),
    ("commit", 1, Fault.NONE, 1),
]


@settings(max_examples=examples(150), deadline=None)
@example(DOUBT_COLLECTED)
@given(st.lists(step, max_size=40))
def test_commits_survive_any_race(steps: list[tuple[str, int, Fault, int]]) -> None:
    race = Race()
    for what, at, fault, times in steps:
        race.step(what, at, fault, times)
    race.network.plan.clear()
    for what in ("deliver", "collect", "restart", "commit"):
        race.step(what, 0, Fault.NONE, 0)
    assert race.holders[0] is not None, "a start without faults takes over"
