from __future__ import annotations

import dataclasses

import pytest

from support.faulty_store import Fault, FaultyObjectStore
from support.manifest_holder import TASK, TENANT, Holder, manifest_key
from tistream.errors import (
    CommitConflict,
    CommitStateUnknown,
    CorruptObject,
    Fenced,
    InvariantBroken,
    NotFoundYet,
    Unavailable,
)
from tistream.format import manifest as manifest_format
from tistream.format.manifest import KIND_CHECKPOINT, KIND_CLAIM, KIND_SEAL
from tistream.model.span import WHOLE, KeySpan
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.manifest_log import ATTEMPTS, ManifestLog, Sealed
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


def names(objects: ObjectStore) -> list[str]:
    view = TaskObjects(objects, TENANT, TASK).follow()
    return [found.key.removeprefix("segment/") for found in view.segments]


def test_a_new_task_begins_with_a_claim(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    claim = TaskObjects(objects, TENANT, TASK).manifest(1)
    assert (claim.kind, claim.task_epoch, claim.nonce, claim.span) == (KIND_CLAIM, 1, "a", WHOLE)
    first = holder.commit("one")
    second = holder.commit("two")
    assert (first.number, second.number) == (2, 3)
    assert names(objects) == ["one", "two"]


def test_recovery_gives_the_newest_state_under_the_claims(objects: MemoryObjectStore) -> None:
    last = Holder(objects, "a", 1).claim().commit("one")
    Holder(objects, "b", 2).claim()
    view = Holder(objects, "c", 3).log.recover()
    assert (view.number, view.epoch, view.flushed_ts) == (3, 2, 10)
    assert view.state is not None
    assert view.state.nonce == last.nonce
    assert view.last is not None
    assert view.last.kind == KIND_CLAIM


def test_an_old_holder_is_fenced_however_long_it_was_paused(objects: MemoryObjectStore) -> None:
    old = Holder(objects, "old", 1).claim()
    old.commit("one")
    new = Holder(objects, "new", 2).claim()
    with pytest.raises(Fenced) as raised:
        old.commit("lost")
    assert (raised.value.held_epoch, raised.value.current_epoch) == (1, 2)
    new.commit("two")
    assert names(objects) == ["one", "two"]
    with pytest.raises(AssertionError, match="before claim"):
        old.commit("again")


def test_a_claimant_reads_what_it_loses_to(objects: MemoryObjectStore) -> None:
    old = Holder(objects, "old", 1).claim()
    new = Holder(objects, "new", 2)
    new.log.recover()
    old.commit("one")
    old.commit("two")
    view = new.log.claim(2, "new", 0)
    assert (view.number, view.flushed_ts) == (4, 20)
    assert [found.key for found in view.segments] == ["segment/one", "segment/two"]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_claim_needs_a_higher_epoch(objects: MemoryObjectStore, epoch: int) -> None:
    Holder(objects, "first", 2).claim()
    with pytest.raises(Fenced):
        Holder(objects, "second", epoch).claim()


def test_a_seal_ends_the_task(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    children = ((8, KeySpan(b"", b"m")), (9, KeySpan(b"m", b"")))
    seal = dataclasses.replace(holder.tick("last", KIND_SEAL), children=children)
    assert holder.log.commit(seal).sealed
    with pytest.raises(Sealed) as raised:
        Holder(objects, "b", 2).claim()
    assert raised.value.children == children
    with pytest.raises(InvariantBroken):
        holder.commit("more")


def test_commit_before_claim_is_a_mistake(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1)
    with pytest.raises(AssertionError):
        holder.commit("one")
    holder.claim()
    holder.log.recover()
    with pytest.raises(AssertionError):
        holder.commit("one")


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.REFUSED, Fault.DELAYED])
def test_an_unknown_answer_is_settled_at_the_same_number(objects: MemoryObjectStore, fault: Fault) -> None:
    faulty = FaultyObjectStore(objects)
    holder = Holder(faulty, "a", 1).claim()
    faulty.plan.extend([fault, fault])
    one = holder.commit("one")
    faulty.deliver()
    two = holder.commit("two")
    assert (one.number, two.number) == (2, 3)
    assert names(objects) == ["one", "two"]


def test_a_lost_answer_whose_number_went_to_a_newer_epoch_is_fenced(objects: MemoryObjectStore) -> None:
    faulty = FaultyObjectStore(objects)
    old = Holder(faulty, "old", 1).claim()
    faulty.plan.extend([Fault.DELAYED] * ATTEMPTS)
    manifest = old.tick("one")
    with pytest.raises(CommitStateUnknown):
        old.log.commit(manifest)
    Holder(objects, "new", 2).claim()
    faulty.deliver()
    with pytest.raises(Fenced):
        old.log.commit(manifest)
    assert names(objects) == []


def test_in_doubt_only_the_same_bytes_may_follow(objects: MemoryObjectStore) -> None:
    faulty = FaultyObjectStore(objects)
    holder = Holder(faulty, "a", 1).claim()
    faulty.plan.extend([Fault.DELAYED] * ATTEMPTS)
    manifest = holder.tick("one")
    with pytest.raises(CommitStateUnknown, match="the answer was lost"):  # an operator is told why
        holder.log.commit(manifest)
    with pytest.raises(AssertionError, match="earlier manifest"):
        holder.commit("other")
    faulty.plan.append(Fault.REFUSED)
    faulty.deliver()
    holder.log.commit(manifest)
    assert names(objects) == ["one"]


class SilentReads(FaultyObjectStore):
    """Reads of what ends with `silent` have no answer, after the first `answered` ones."""

    silent = "nothing"
    answered = 0

    def get(self, key: str) -> bytes:
        if key.endswith(self.silent):
            self.answered -= 1
            if self.answered >= 0:
                return self.inner.get(key)
            raise Unavailable(f"{key}: 503 SlowDown")
        return self.inner.get(key)


def test_a_commit_is_in_doubt_until_the_floor_was_read(objects: MemoryObjectStore) -> None:
    """A manifest that was put while the floor could not be read stands: its holder must not put another one."""
    store = SilentReads(objects)
    holder = Holder(store, "a", 1).claim()
    store.silent = "floor"
    with pytest.raises(CommitStateUnknown, match="503 SlowDown"):
        holder.commit("one")
    with pytest.raises(AssertionError, match="put that one again"):
        holder.commit("two")
    store.silent = "nothing"
    holder.commit("one")
    holder.commit("two")
    assert names(objects) == ["one", "two"]


def test_a_conflict_is_in_doubt_until_the_winner_was_read(objects: MemoryObjectStore) -> None:
    store = SilentReads(objects)
    old = Holder(store, "old", 1).claim()
    Holder(objects, "new", 2).claim()
    store.silent, store.answered = manifest_key(2), 1  # it is seen to be another's, but not whose
    with pytest.raises(CommitStateUnknown):
        old.commit("lost")
    store.silent = "nothing"
    with pytest.raises(Fenced):
        old.commit("lost")
    assert names(objects) == []


def test_what_surely_did_not_happen_is_unavailable_and_leaves_no_doubt(objects: MemoryObjectStore) -> None:
    faulty = FaultyObjectStore(objects)
    holder = Holder(faulty, "a", 1).claim()
    faulty.plan.extend([Fault.REFUSED] * ATTEMPTS)
    with pytest.raises(Unavailable):
        holder.commit("one")
    holder.commit("other")
    assert names(objects) == ["other"]


def test_a_store_that_refuses_is_told_within_a_second(objects: MemoryObjectStore) -> None:
    """The sorter's other tasks wait for this one's commit, and its status for what became of it."""
    faulty, slept = FaultyObjectStore(objects), list[float]()
    holder = Holder(faulty, "a", 1)
    holder.log = ManifestLog(faulty, TENANT, TASK, WHOLE, sleep=slept.append)
    holder.claim()
    faulty.plan.extend([Fault.REFUSED] * 1_000)
    with pytest.raises(Unavailable):
        holder.commit("one")
    assert sum(slept) <= 1.0


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.DELAYED])
def test_a_claim_in_doubt_may_be_made_again(objects: MemoryObjectStore, fault: Fault) -> None:
    faulty = FaultyObjectStore(objects)
    holder = Holder(faulty, "a", 1)
    faulty.plan.extend([fault] * ATTEMPTS)
    if fault is Fault.UNANSWERED:
        holder.claim()  # its own claim is there when it reads it back
    else:
        with pytest.raises(CommitStateUnknown):
            holder.claim()
        faulty.deliver()
        holder.log.claim(1, "a", 5)
    assert holder.log.view.number == 1
    holder.commit("one")
    assert names(objects) == ["one"]


def test_a_foreign_manifest_without_a_newer_epoch_is_a_conflict(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    foreign = dataclasses.replace(holder.tick("foreign"), nonce="twin")
    objects.put_new(manifest_key(2), manifest_format.encode(foreign))
    with pytest.raises(CommitConflict):
        holder.commit("one")
    with pytest.raises(AssertionError):
        holder.commit("one")


def test_the_floor_only_rises(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    first = holder.commit("one", KIND_CHECKPOINT).number
    second = holder.commit("two", KIND_CHECKPOINT).number
    assert holder.log.raise_floor(second) == second
    assert holder.log.raise_floor(first) == second
    assert TaskObjects(objects, TENANT, TASK).floor() == second
    tick = holder.commit("three").number
    with pytest.raises(InvariantBroken, match="not a checkpoint"):
        holder.log.raise_floor(tick)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.REFUSED])
def test_the_floor_rises_through_faults(objects: MemoryObjectStore, fault: Fault) -> None:
    faulty = FaultyObjectStore(objects)
    holder = Holder(faulty, "a", 1).claim()
    for name in ("one", "two"):
        checkpoint = holder.commit(name, KIND_CHECKPOINT).number
        faulty.plan.append(fault)
        assert holder.log.raise_floor(checkpoint) == checkpoint
        assert TaskObjects(objects, TENANT, TASK).floor() == checkpoint


def test_readers_begin_at_the_floor(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    for name in ("one", "two"):
        holder.commit(name)
    checkpoint = holder.commit("three", KIND_CHECKPOINT).number
    holder.commit("four")
    holder.log.raise_floor(checkpoint)
    for number in range(1, checkpoint):
        objects.delete(manifest_key(number))
    assert names(objects) == ["one", "two", "three", "four"]
    Holder(objects, "b", 2).claim().commit("five")
    assert names(objects) == ["one", "two", "three", "four", "five"]


def test_a_reader_that_slept_through_a_collection_plans_again(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    holder.commit("one")
    task = TaskObjects(objects, TENANT, TASK)
    slept = task.follow()
    holder.commit("two")
    checkpoint = holder.commit("three", KIND_CHECKPOINT).number
    holder.log.raise_floor(checkpoint)
    for number in range(1, checkpoint):
        objects.delete(manifest_key(number))
    assert [found.key for found in task.follow(slept).segments] == ["segment/one", "segment/two", "segment/three"]


def test_a_put_long_under_way_brings_back_a_collected_number_and_nobody_believes_it(
    objects: MemoryObjectStore,
) -> None:
    faulty = FaultyObjectStore(objects)
    old = Holder(faulty, "old", 1).claim()
    old.commit("one")
    reader = TaskObjects(objects, TENANT, TASK)
    slept = reader.follow()
    faulty.plan.extend([Fault.DELAYED] * ATTEMPTS)
    zombie = old.tick("zombie")
    with pytest.raises(CommitStateUnknown):
        old.log.commit(zombie)
    new = Holder(objects, "new", 2).claim()
    checkpoint = new.commit("two", KIND_CHECKPOINT).number
    new.log.raise_floor(checkpoint)
    for number in range(1, checkpoint):
        objects.delete(manifest_key(number))
    faulty.deliver()
    assert objects.get(manifest_key(zombie.number)) == manifest_format.encode(zombie)
    assert [found.key for found in reader.follow(slept).segments] == ["segment/one", "segment/two"]
    with pytest.raises(Fenced):
        old.log.commit(zombie)  # finds its own bytes at the number, and the floor above it
    new.commit("three")
    assert names(objects) == ["one", "two", "three"]


def test_a_claim_below_the_floor_says_nothing(objects: MemoryObjectStore) -> None:
    old = Holder(objects, "old", 1).claim()
    claimant = Holder(objects, "new", 2)
    claimant.log.recover()
    old.commit("one")
    checkpoint = old.commit("two", KIND_CHECKPOINT).number
    old.log.raise_floor(checkpoint)
    for number in range(1, checkpoint):
        objects.delete(manifest_key(number))
    view = claimant.log.claim(2, "new", 0)
    assert view.number == checkpoint + 1
    assert len(view.segments) == 2
    with pytest.raises(Fenced):
        old.commit("late")


def test_following_with_nothing_new_costs_two_requests(objects: MemoryObjectStore) -> None:
    measured = MeasuredObjectStore(objects)
    Holder(objects, "a", 1).claim().commit("one")
    task = TaskObjects(measured, TENANT, TASK)
    view = task.follow()
    before = measured.traffic()["get"].requests
    assert task.follow(view) == view
    assert measured.traffic()["get"].requests == before + 2
    assert measured.traffic()["list"].requests == 0


def test_a_floor_without_its_checkpoint_is_corrupt(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    checkpoint = holder.commit("one", KIND_CHECKPOINT).number
    holder.log.raise_floor(checkpoint)
    objects.delete(manifest_key(checkpoint))
    with pytest.raises(CorruptObject, match="does not exist"):
        TaskObjects(objects, TENANT, TASK).follow()


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"version":2,"checkpoint":1}', b'{"version":1,"checkpoint":0}'])
def test_a_damaged_floor_is_corrupt(objects: MemoryObjectStore, body: bytes) -> None:
    objects.put(layout.floor(TENANT, TASK), body)
    with pytest.raises(CorruptObject):
        TaskObjects(objects, TENANT, TASK).follow()


def test_a_manifest_of_another_task_is_corrupt(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    other = dataclasses.replace(holder.tick("one"), task_id=TASK + 1)
    objects.put_new(manifest_key(2), manifest_format.encode(other))
    with pytest.raises(CorruptObject):
        TaskObjects(objects, TENANT, TASK).follow()


@pytest.mark.parametrize("change", [{"flushed_ts": 0}, {"low_ts": 5}, {"task_epoch": 1}])
def test_manifests_that_contradict_each_other_stop_their_readers(
    objects: MemoryObjectStore, change: dict[str, int]
) -> None:
    holder = Holder(objects, "a", 2).claim()
    holder.commit("one")
    wrong = dataclasses.replace(holder.tick("two"), **change)
    objects.put_new(manifest_key(3), manifest_format.encode(wrong))
    with pytest.raises(InvariantBroken):
        TaskObjects(objects, TENANT, TASK).follow()


def test_a_holder_writes_nothing_that_readers_would_refuse(objects: MemoryObjectStore) -> None:
    holder = Holder(objects, "a", 1).claim()
    holder.commit("one")
    with pytest.raises(InvariantBroken):
        holder.log.commit(dataclasses.replace(holder.tick("two"), flushed_ts=0, low_ts=0))
    with pytest.raises(NotFoundYet):
        objects.get(manifest_key(3))


def test_a_task_of_another_span_is_refused(objects: MemoryObjectStore) -> None:
    Holder(objects, "a", 1).claim().commit("one")
    log = ManifestLog(objects, TENANT, TASK, KeySpan(b"a", b"b"), sleep=lambda _: None)
    with pytest.raises(InvariantBroken):
        log.recover()
