"""A holder that is replaced, and all below collected, at any moment of a commit, while any of its requests fail: it is
fenced, or has committed, and never stops as if something were broken."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from enum import Enum

import pytest

from support.effort import FULL, cases
from support.faulty_store import FaultyObjectStore
from support.manifest_holder import TASK, TENANT, Holder, manifest_key
from tistream.errors import CommitStateUnknown, Fenced, Unavailable
from tistream.format.manifest import KIND_CHECKPOINT
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_follow import TaskObjects


class Moment(Enum):
    """What happens at one of the holder's requests."""

    PASS = "."
    REFUSED = "r"  # it did not happen, or no answer came
    UNANSWERED = "u"  # it happened, and no answer came
    CLAIM = "c"  # before it another holder claims the task
    COLLECT = "x"  # before it another holder claims, restates everything, and what lies below the floor is deleted


class Interrupted(FaultyObjectStore):
    """A store whose user is interrupted at each of its requests, by a plan."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        super().__init__(inner)
        self.moments: deque[Moment] = deque()
        self.epochs = itertools.count(2)
        self.replaced = False

    def _moment(self) -> Moment:
        moment = self.moments.popleft() if self.moments else Moment.PASS
        if moment in (Moment.CLAIM, Moment.COLLECT):
            self._overtake(collect=moment is Moment.COLLECT)
        if moment is Moment.REFUSED:
            raise Unavailable("refused")
        return moment

    def _overtake(self, *, collect: bool) -> None:
        self.replaced = True
        epoch = next(self.epochs)
        other = Holder(self.inner, f"other{epoch}", epoch).claim()
        if collect:
            other.log.raise_floor(other.commit(f"by{epoch}", KIND_CHECKPOINT).number)
            for number in range(1, TaskObjects(self.inner, TENANT, TASK).floor()):
                self.inner.delete(manifest_key(number))

    def put_new(self, key: str, body: bytes) -> None:
        moment = self._moment()
        self.inner.put_new(key, body)
        if moment is Moment.UNANSWERED:
            raise CommitStateUnknown(key, "the answer was lost")

    def get(self, key: str) -> bytes:
        moment = self._moment()
        body = self.inner.get(key)
        if moment is Moment.UNANSWERED:
            raise Unavailable("the answer was lost")
        return body


def outcome(moments: Sequence[Moment]) -> tuple[str, bool, bool]:
    """How the commit ended, whether it is there, and whether the holder was replaced."""
    store = Interrupted(MemoryObjectStore())
    holder = Holder(store, "old", 1).claim()
    holder.commit("before", KIND_CHECKPOINT)
    manifest = holder.tick("mine")
    store.moments.extend(moments)
    for _ in range(4):
        try:
            holder.log.commit(manifest)
            ended = "committed"
            break
        except (CommitStateUnknown, Unavailable):
            continue  # the very same manifest again, as a sorter does
        except Fenced as error:
            ended = "fenced" if error.current_epoch > error.held_epoch else "fenced by nobody"
            break
    live = [found.key for found in TaskObjects(store.inner, TENANT, TASK).follow().segments]
    return ended, "segment/mine" in live, store.replaced


@pytest.mark.parametrize(
    ("moments", "there"),
    [
        pytest.param("x.r", False, id="put where all was collected, and who has the task cannot be read at once"),
        pytest.param(".xr", True, id="collected after it was put"),
        pytest.param("c.x", False, id="the manifest that it lost to is collected before it is read"),
        pytest.param("c.xr", False, id="and what came after it cannot be read at once"),
    ],
)
def test_the_windows_after_the_put(moments: str, there: bool) -> None:
    assert outcome([Moment(one) for one in moments]) == ("fenced", there, True)


@pytest.mark.parametrize("first", cases([Moment.PASS, Moment.CLAIM], [*Moment][1:3] + [*Moment][4:]))
def test_a_replaced_holder_is_fenced_at_whatever_moment(first: Moment) -> None:
    for more in itertools.product(Moment, repeat=5 if FULL else 4):
        moments = (first, *more)
        ended, there, replaced = outcome(moments)
        shown = "".join(moment.value for moment in moments)
        assert there or ended == "fenced", shown
        assert replaced or ended == "committed", shown
