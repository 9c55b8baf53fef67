"""The protocol of numbered objects by itself, with entries of plain bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from support.faulty_store import Fault, FaultyObjectStore
from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject, Fenced, KeyUnusable, Unavailable
from tistream.format import floor as floor_format
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.numbered_log import NumberedLog, NumberedObjects, Retries
from tistream.storage.object_store import ObjectStore

BASE = b"base"
RETRIES = Retries(3, (1.0, 2.0))


class Words:
    """Entries are words; readers may begin at the word "base"; the word "damaged" cannot be read."""

    what, noun, floor_key = "the words", "word", "floor"

    def key(self, number: int) -> str:
        return f"word-{number:03}"

    def decode(self, number: int, body: bytes) -> bytes:
        if body == b"damaged":
            raise CorruptObject(self.key(number), "is damaged")
        return body

    def why_not_base(self, number: int, entry: bytes | None) -> str | None:
        return None if entry == BASE else f"names {number}, which is {entry!r}"


def entries_of(objects: ObjectStore) -> NumberedObjects[bytes]:
    return NumberedObjects(objects, Words())


def log_of(objects: ObjectStore, *, puts: Retries = RETRIES, slept: list[float] | None = None) -> NumberedLog[bytes]:
    sleep = (lambda _seconds: None) if slept is None else slept.append
    return NumberedLog(entries_of(objects), sleep, puts=puts, floors=RETRIES)


def not_fenced(_number: int) -> None:
    """No rival has fenced the writer."""


def fenced(*_numbers: int) -> NoReturn:
    raise Fenced("the words", held_epoch=1, current_epoch=2)


def written(objects: ObjectStore, *words: bytes) -> None:
    for number, word in enumerate(words, 1):
        log_of(objects).append(number, word)


class Interrupted(MemoryObjectStore):
    """`meanwhile` runs once, before the entry `key` is read."""

    key = ""
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def get(self, key: str) -> bytes:
        if key == self.key:
            self.key = ""
            self.meanwhile()
        return super().get(key)


def test_entries_are_read_from_the_beginning_and_then_only_new_ones() -> None:
    objects = MemoryObjectStore()
    written(objects, b"one", b"two")
    entries = entries_of(objects)
    run = entries.follow(0)
    assert (run.restarted, run.entries) == (True, [b"one", b"two"])
    log_of(objects).append(3, b"three")
    run = entries.follow(2)
    assert (run.restarted, run.entries) == (False, [b"three"])


def test_readers_begin_at_the_floor_and_begin_again_when_it_passes_them() -> None:
    objects = MemoryObjectStore()
    written(objects, b"one", b"two", BASE, b"four")
    assert log_of(objects).raise_floor(3) == 3
    for last in (0, 1):
        run = entries_of(objects).follow(last)
        assert (run.restarted, run.entries) == (True, [BASE, b"four"])
    assert entries_of(objects).follow(2).restarted is False
    assert log_of(objects).raise_floor(2) == 3, "the floor only rises"


def test_a_damaged_entry_is_an_error_unless_the_floor_has_passed_it_meanwhile() -> None:
    objects = Interrupted()
    written(objects, b"one", b"damaged", BASE)
    with pytest.raises(CorruptObject, match="word-002"):
        entries_of(objects).follow(1)
    objects.key, objects.meanwhile = "word-002", lambda: objects.put("floor", floor_format.encode(3))
    run = entries_of(objects).follow(1)
    assert (run.restarted, run.entries) == (True, [BASE])


@pytest.mark.parametrize(("floor", "why"), [(2, "b'two'"), (7, "None")])
def test_a_floor_that_names_no_base_is_corrupt(floor: int, why: str) -> None:
    objects = MemoryObjectStore()
    written(objects, b"one", b"two")
    objects.put("floor", floor_format.encode(floor))
    with pytest.raises(CorruptObject, match=f"^floor: names {floor}, which is {why}"):
        entries_of(objects).follow(0)


def test_the_loser_of_an_append_reads_on_and_so_does_who_the_floor_has_passed() -> None:
    objects = MemoryObjectStore()
    assert log_of(objects).append(1, b"one")
    assert not log_of(objects).append(1, b"other")
    assert log_of(objects).append(1, b"one"), "its own bytes are at the number"
    objects.put("floor", floor_format.encode(5))
    assert not log_of(objects).append(4, b"zombie")


def test_a_commit_that_lost_is_fenced_or_a_conflict() -> None:
    objects = MemoryObjectStore()
    written(objects, b"one")
    with pytest.raises(Fenced):
        log_of(objects).commit(1, b"other", lost=fenced, passed=fenced)
    with pytest.raises(CommitConflict):
        log_of(objects).commit(1, b"other", lost=not_fenced, passed=fenced)


def test_a_commit_below_the_floor_proves_nothing() -> None:
    objects = MemoryObjectStore()
    objects.put("floor", floor_format.encode(5))
    with pytest.raises(Fenced):
        log_of(objects).commit(4, b"zombie", lost=not_fenced, passed=fenced)
    log_of(objects).commit(5, b"five", lost=not_fenced, passed=fenced)


def test_a_doubt_outlives_a_commit_until_it_is_settled_or_forgotten() -> None:
    objects = FaultyObjectStore(MemoryObjectStore(), [Fault.LOST] * RETRIES.attempts)
    log = log_of(objects)
    with pytest.raises(CommitStateUnknown):
        log.commit(1, b"one", lost=not_fenced, passed=fenced)
    with pytest.raises(AssertionError, match="earlier word: put that one again"):
        log.commit(1, b"other", lost=not_fenced, passed=fenced)
    objects.plan.extend([Fault.REFUSED] * RETRIES.attempts)
    with pytest.raises(CommitStateUnknown):  # the earlier put may have happened, though this one did not
        log.commit(1, b"one", lost=not_fenced, passed=fenced)
    log.commit(1, b"one", lost=not_fenced, passed=fenced)
    log.commit(2, b"two", lost=not_fenced, passed=fenced)
    objects.plan.extend([Fault.LOST] * RETRIES.attempts)
    with pytest.raises(CommitStateUnknown):
        log.commit(3, b"three", lost=not_fenced, passed=fenced)
    log.forget_doubt()
    log.commit(3, b"other", lost=not_fenced, passed=fenced)
    assert entries_of(objects).follow(0).entries == [b"one", b"two", b"other"]


def test_after_an_unknown_answer_a_refusal_settles_nothing() -> None:
    """The first put may yet arrive, so another entry must not follow."""
    objects = FaultyObjectStore(MemoryObjectStore(), [Fault.DELAYED, Fault.REFUSED, Fault.REFUSED])
    log = log_of(objects)
    with pytest.raises(CommitStateUnknown, match="refused"):
        log.commit(1, b"one", lost=not_fenced, passed=fenced)
    objects.deliver()
    with pytest.raises(AssertionError, match="earlier word"):
        log.commit(1, b"other", lost=not_fenced, passed=fenced)
    log.commit(1, b"one", lost=not_fenced, passed=fenced)
    assert entries_of(objects).follow(0).entries == [b"one"]


class Keyless(MemoryObjectStore):
    """A store whose key cannot be used."""

    def put_new(self, key: str, body: bytes) -> None:
        raise KeyUnusable(f"{key}: the key is disabled")


@pytest.mark.parametrize(
    ("objects", "ends_on", "pauses"),
    [
        (FaultyObjectStore(MemoryObjectStore(), [Fault.REFUSED] * 3), (KeyUnusable,), [1.0, 2.0]),
        (FaultyObjectStore(MemoryObjectStore(), [Fault.REFUSED] * 3), (Unavailable,), []),
        (Keyless(), (KeyUnusable,), []),
        (Keyless(), (), [1.0, 2.0]),
    ],
)
def test_a_put_is_tried_again_but_for_errors_that_end_the_call(
    objects: ObjectStore, ends_on: tuple[type[Unavailable], ...], pauses: list[float]
) -> None:
    slept = list[float]()
    log = log_of(objects, puts=Retries(3, (1.0, 2.0), ends_on), slept=slept)
    with pytest.raises(Unavailable):
        log.append(1, b"one")
    assert slept == pauses


@pytest.mark.parametrize(("ends_on", "pauses"), [((KeyUnusable,), []), ((), [1.0, 2.0, 2.0])])
def test_the_floor_is_tried_again_but_for_errors_that_end_the_call(
    ends_on: tuple[type[Unavailable], ...], pauses: list[float]
) -> None:
    slept, floors = list[float](), Retries(4, (1.0, 2.0), ends_on)
    log = NumberedLog(entries_of(Keyless()), slept.append, puts=RETRIES, floors=floors)
    with pytest.raises(KeyUnusable):
        log.raise_floor(1)
    assert slept == pauses
