"""A log of numbered objects on conditional puts, with a floor: the protocol of design.md 4, for any payload.

Terms
-----
entry    Object `number` of the log, from 1 without a hole. One conditional put creates it, so one writer decides its
         content, for ever. `Payload` defines the keys of entries, their decoding, and where readers may begin.
floor    A number, in an object of its own, that only rises. Entry `floor` restates the log. Entries below it may be
         deleted at any moment, and then created again by a put that was under way for long (a *zombie*). So an entry
         below the floor proves nothing, to its readers and to its writer.
doubt    A put without an answer may have happened, may still happen, or may never happen.

Protocol
--------
* A reader reads the floor *after* the entries that it relies on. If the floor has passed the first of them, the reader
  begins again at the floor. It never uses LIST.
* A writer puts an entry at the number after the last one that it has read. After an unknown answer it puts the same
  bytes at the same number again, until it knows whose bytes the number holds. It never tries the next number: one
  entry could be committed twice.
* A writer reads the floor after its put. If the number is below the floor, the object that it put is garbage.
* The floor is raised by a conditional put too, and is durable before anything below it is deleted.

There are two kinds of writers. They differ in what follows when a number is lost to another writer.

* `commit`, for a *holder*, whose work another holder must not repeat. It loses its right to write when a rival has
  fenced it, which the caller decides (`lost`, `passed`). The doubt outlives the call: until it is settled, the holder
  may only put the same bytes.
* `append`, for replicas that write the same content. The loser reads the winner's entry and adopts it. So a doubt
  needs no memory: the entry at the number is read before the next entry is written.

Error semantics
---------------
CommitStateUnknown  The entry may have been written, or may yet be. Put the same bytes again, or stop for good.
CommitConflict      Another writer's bytes hold the number.
Unavailable         Nothing happened, or nothing was read. The same call may succeed later.
CorruptObject       An entry at or above the floor, or the floor, is damaged; or the floor names an entry at which
                    readers cannot begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, NoReturn, Protocol, TypeVar

from tistream import trace
from tistream.errors import (
    CommitConflict,
    CommitStateUnknown,
    CorruptObject,
    KeyUnusable,
    NotFoundYet,
    RetryableError,
    TiStreamError,
    Unavailable,
)
from tistream.format import floor as floor_format
from tistream.storage.object_store import ObjectStore

Entry = TypeVar("Entry")

PLANS = 10  # how many times the floor may overtake one call of a reader


class Payload(Protocol[Entry]):
    """What differs between logs: the keys of the entries, and how an entry is decoded. Implementations do no I/O and
    have no state."""

    @property
    def what(self) -> str:
        """The name of the log in error texts."""

    @property
    def noun(self) -> str:
        """The name of an entry in traces."""

    @property
    def floor_key(self) -> str:
        """The key of the floor object."""

    def key(self, number: int) -> str:
        """The object key of entry `number`."""

    def decode(self, number: int, body: bytes) -> Entry:
        """Decode an entry. Raises CorruptObject if it is damaged, or is not entry `number` of this log."""

    def why_not_base(self, number: int, entry: Entry | None) -> str | None:
        """The reason why readers cannot begin at entry `number`, to which the floor points; None if they can. `entry`
        is None if that object does not exist."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and when one call of the log repeats a request. `pauses`: seconds between attempts; after the last
    pause of the list, that pause is used again. `ends_on`: the kinds of Unavailable that end the call at once, because
    the caller decides whether to wait longer."""

    attempts: int
    pauses: tuple[float, ...]
    ends_on: tuple[type[Unavailable], ...] = (KeyUnusable,)

    def __call__(self, sleep: Callable[[float], None]) -> Iterator[None]:
        """Yield for each attempt: once at first, and then again after each pause."""
        yield
        for at in range(self.attempts - 1):
            sleep(self.pauses[min(at, len(self.pauses) - 1)])
            yield


@dataclass(frozen=True, slots=True)
class EntryRun(Generic[Entry]):
    """Consecutive entries that a reader has read. `restarted`: the first of them is the entry at which readers begin
    (the floor, or 1), and replaces everything that the reader knew."""

    restarted: bool
    entries: list[Entry]


class NumberedObjects(Generic[Entry]):
    """Reads the entries and the floor of one log from the store. `floor_seen`: the highest floor that this object has
    read."""

    def __init__(self, objects: ObjectStore, payload: Payload[Entry]) -> None:
        self.objects = objects
        self.payload = payload
        self.floor_seen = 0

    def floor(self) -> int:
        """The number of the entry at which readers begin; 0 if no floor was written yet. Raises Unavailable,
        CorruptObject."""
        key = self.payload.floor_key
        try:
            self.floor_seen = max(self.floor_seen, floor_format.decode(key, self.objects.get(key)))
        except NotFoundYet:
            return self.floor_seen
        return self.floor_seen

    def entry(self, number: int) -> Entry:
        """Read entry `number`, which may be below the floor. Raises NotFoundYet, Unavailable, CorruptObject."""
        return self.payload.decode(number, self.objects.get(self.payload.key(number)))

    def follow(self, last: int) -> EntryRun[Entry]:
        """Read every entry after `last` (0: from the beginning). If nothing is new, this costs two small requests.

        Raises:
            CorruptObject: an entry or the floor is damaged, or the floor names an entry at which readers cannot begin.
            Unavailable: no answer came, or the floor moved faster than this reader reads.
        """
        restarted = not last
        for _ in range(PLANS):
            base = 0 if last else self.floor()
            first = base or last + 1
            try:
                entries = [self._base(base), *self._run(base + 1)] if base else list(self._run(first))
            except CorruptObject:
                if self.floor() <= first:
                    raise  # otherwise the entry is below the floor, and does not belong to the log any more
            else:
                if self.floor() <= first:
                    return EntryRun(restarted, entries)
            last, restarted = 0, True
        raise Unavailable(f"{self.payload.what}: its floor moves faster than it can be read")

    def _base(self, number: int) -> Entry:
        """Read the entry that the floor names. Raises CorruptObject if readers cannot begin there."""
        found: Entry | None = None
        with suppress(NotFoundYet):
            found = self.entry(number)
        problem = self.payload.why_not_base(number, found)
        if found is None or problem is not None:
            raise CorruptObject(self.payload.floor_key, problem or f"names entry {number}, which does not exist")
        return found

    def _run(self, number: int) -> Iterator[Entry]:
        while True:
            try:
                yield self.entry(number)
            except NotFoundYet:
                return
            number += 1


class NumberedLog(Generic[Entry]):
    """One writer's access to a numbered log (the module explains the protocol). Not thread-safe."""

    def __init__(
        self,
        entries: NumberedObjects[Entry],
        sleep: Callable[[float], None],
        *,
        puts: Retries,
        floors: Retries,
    ) -> None:
        self._entries = entries
        self._objects, self._payload = entries.objects, entries.payload
        self._sleep = sleep
        self._puts, self._floors = puts, floors
        self._in_doubt: bytes | None = None  # the bytes that this holder may have put at the next number

    def forget_doubt(self) -> None:
        """Forget a put whose result is unknown. Only for a caller that has given up its claim and will read the log
        again."""
        self._in_doubt = None

    def commit(
        self,
        number: int,
        body: bytes,
        *,
        lost: Callable[[int], None],
        passed: Callable[[int, int], NoReturn],
    ) -> None:
        """Put `body` as entry `number`, for a holder. When this returns, the entry is part of the log.

        `lost(number)` is called if another writer has the number; it raises Fenced if that writer has fenced this one.
        `passed(number, floor)` is called if the floor is above the number; it raises the error that the caller needs.
        Both may read the log; their retryable errors become CommitStateUnknown.

        Raises:
            CommitConflict: another writer has the number and has not fenced this one.
            CommitStateUnknown, Unavailable: see the module.
        """
        assert self._in_doubt in (None, body), (
            f"the number may hold an earlier {self._payload.noun}: put that one again"
        )
        try:
            self.put(number, body)
        except CommitStateUnknown:
            self._in_doubt = body
            raise
        except CommitConflict:
            self._in_doubt = body
            with self._unknown_until_read(number):
                lost(number)
            raise
        self._in_doubt = body
        with self._unknown_until_read(number):
            floor = self._entries.floor()
            if number < floor:
                passed(number, floor)
        self._in_doubt = None

    def append(self, number: int, body: bytes) -> bool:
        """Put `body` as entry `number`, for a replica. Returns whether the entry is part of the log. If not, another
        writer has the number, or the floor is above it; the caller must read the log again.

        Raises CommitStateUnknown, Unavailable.
        """
        try:
            self.put(number, body)
        except CommitConflict:
            return False
        return self._entries.floor() <= number

    def put(self, number: int, body: bytes) -> None:
        """Put `body` as entry `number`. After a put without an answer, put the same bytes again, until it is known
        whose bytes the object has. The entry is part of the log only if the floor, which the caller must read
        afterwards, is not above the number. Raises CommitConflict, CommitStateUnknown, Unavailable."""
        key = self._payload.key(number)
        doubtful = self._in_doubt is not None
        problem: TiStreamError = Unavailable(f"cannot write {key}")
        for _ in self._puts(self._sleep):
            try:
                try:
                    with trace.child(f"put {self._payload.noun}", attributes={"tistream.bytes": len(body)}):
                        self._objects.put_new(key, body)
                    return
                except CommitConflict:
                    if self._objects.get(key) == body:
                        return
                    raise
            except CommitStateUnknown as error:
                doubtful, problem = True, error
            except NotFoundYet:
                # Garbage collection deleted it between the two calls, or the conflict had another cause: put again.
                pass
            except Unavailable as error:
                problem = error
                if isinstance(error, self._puts.ends_on):
                    break
        if not doubtful:
            raise problem
        reason = problem.reason if isinstance(problem, CommitStateUnknown) else str(problem)
        raise CommitStateUnknown(key, reason) from problem

    def raise_floor(self, number: int) -> int:
        """Set the floor to entry `number`, which must be one at which readers can begin. Entries below it may be
        deleted once this returns.

        Returns: The floor, which never decreases: possibly a higher one than requested.

        Raises CommitConflict, CommitStateUnknown, Unavailable: try again later. Raises CorruptObject if the stored
        floor is damaged.
        """
        problem: TiStreamError = Unavailable(f"{self._payload.what}: lost every race for the floor")
        for _ in self._floors(self._sleep):
            try:
                return self._raise_floor_once(number)
            except (CommitConflict, CommitStateUnknown, Unavailable) as error:
                problem = error
                if isinstance(error, self._floors.ends_on):
                    break
        raise problem

    def _raise_floor_once(self, number: int) -> int:
        key, body = self._payload.floor_key, floor_format.encode(number)
        try:
            # The version is read before the body, so that put_if detects a change in between.
            version = self._objects.head(key).version
            current = floor_format.decode(key, self._objects.get(key))
        except NotFoundYet:
            self._objects.put_new(key, body)
            current = number
        else:
            if current < number:
                self._objects.put_if(key, body, version)
        self._entries.floor_seen = max(current, number)
        return self._entries.floor_seen

    @contextmanager
    def _unknown_until_read(self, number: int) -> Iterator[None]:
        """Convert retryable errors to CommitStateUnknown for a `with` block: the result of a write is known only after
        these reads."""
        try:
            yield
        except RetryableError as error:
            raise CommitStateUnknown(self._payload.key(number), str(error)) from error
