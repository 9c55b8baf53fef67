"""Shares the work of decoding and rendering rows fairly between the pulls of all tenants.

If many pulls of one tenant worked at the same time, another tenant would get a small share of the interpreter, and each
of its steps would wait for all of them. So only a few pulls work at a time, and only very few of one tenant while other
tenants are active. The next pull is that of the waiting tenant with the fewest running steps. A pull that waits for
rows, or for its client, does not count.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tistream.clock import Clock
from tistream.concurrency import Event, new_event, new_lock
from tistream.read.events import Events
from tistream_api.encode.encoding import Encoder
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece

T = TypeVar("T")

# Limits of a machine with enough memory, and of any: a live stream does not wait behind one long pull
AT_ONCE_MIN, AT_ONCE_LEAST = 8, 4
# Transient memory of one step, beside what the pull holds: a row group is unpacked, decoded and rendered
WORK_BYTES = 128 << 20
WORK_PART = 4  # 1/4 of the process's memory is for these steps
BESIDE_PART = 4  # 1/4 of the steps may be one tenant's while other tenants are active
LOOK_MS = 250  # how often a waiting pull checks that its client is connected
BESIDE_MS = 2_000  # how long a tenant counts as active after a step: a follower works only now and then


def slots_for(cores: int, memory: int) -> int:
    """How many decode slots a machine should have: more than cores, because some steps wait for the object store.
    `memory`: bytes that the process may use; a container may have little memory on a machine with many cores."""
    return max(AT_ONCE_LEAST, min(max(AT_ONCE_MIN, 2 * cores), memory // WORK_PART // WORK_BYTES))


class DecodeSlots:
    """Limits how many steps of decoding run at the same time to `at_once`. Thread-safe. A tenant that is alone may run
    three quarters of them, so that another tenant can start at once. While other tenants are active, each tenant gets a
    quarter. A quarter should be more than one step, because otherwise a live stream would wait behind each step of its
    own tenant's long pulls."""

    def __init__(self, at_once: int, clock: Clock) -> None:
        self._at_once, self._clock = at_once, clock
        self._alone, self._beside = max(1, at_once - max(1, at_once // 4)), max(1, at_once // BESIDE_PART)
        self._lock = new_lock()
        self._worked_ms: dict[Hashable, int] = {}  # when each tenant's last step ended, oldest first
        self._working: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[tuple[int, Event]]] = {}
        self._numbers = 0

    def each(self, tenant: Hashable, items: Iterator[T], alive: Callable[[], None] = lambda: None) -> Iterator[T]:
        """Yield `items`. Each is computed only while this pull, which is one of `tenant`, holds a decode slot.
        Calls `alive` before each and while it waits; what `alive` raises ends the iteration."""
        while True:
            self._begin(tenant, alive)
            try:
                alive()
                item = next(items)
            except StopIteration:
                return
            finally:
                self._end(tenant)
            yield item

    def _begin(self, tenant: Hashable, alive: Callable[[], None]) -> None:
        admitted = new_event()
        with self._lock:
            self._numbers += 1
            mine = self._numbers, admitted
            self._waiting.setdefault(tenant, deque()).append(mine)
            self._admit()
        try:
            while not admitted.wait(LOOK_MS / 1000):
                alive()
        except BaseException:
            self._leave(tenant, mine)
            raise

    def _leave(self, tenant: Hashable, mine: tuple[int, Event]) -> None:
        """Leave the queue. If the slot was granted in the meantime, release it."""
        with self._lock:
            if not mine[1].is_set():
                self._waiting[tenant].remove(mine)
                if not self._waiting[tenant]:
                    del self._waiting[tenant]
                self._admit()  # with one tenant fewer, the limit of the others may be higher
                return
        self._end(tenant)

    def _end(self, tenant: Hashable) -> None:
        with self._lock:
            self._working[tenant] -= 1
            if not self._working[tenant]:
                del self._working[tenant]
            self._worked_ms.pop(tenant, None)
            self._worked_ms[tenant] = self._clock.monotonic_ms()
            self._admit()

    def _admit(self) -> None:
        """Start as many waiting steps as fit."""
        of_one = self._beside if self._several() else self._alone
        while self._working.total() < self._at_once:
            may = [
                (self._working[tenant], line[0][0], tenant)
                for tenant, line in self._waiting.items()
                if self._working[tenant] < of_one
            ]
            if not may:
                return
            *_, tenant = min(may, key=lambda one: one[:2])
            _, admitted = self._waiting[tenant].popleft()
            if not self._waiting[tenant]:
                del self._waiting[tenant]
            self._working[tenant] += 1
            admitted.set()

    def _several(self) -> bool:
        """Whether several tenants have steps that run, wait, or ended a moment ago."""
        since_ms = self._clock.monotonic_ms() - BESIDE_MS
        while self._worked_ms and next(iter(self._worked_ms.values())) <= since_ms:
            del self._worked_ms[next(iter(self._worked_ms))]
        there: tuple[Mapping[Hashable, object], ...] = (self._worked_ms, self._working, self._waiting)
        return any(len(one) > 1 for one in there) or len(set().union(*there)) > 1


@dataclass(slots=True)
class SlotEncoder:
    """An encoder that holds a decode slot while it encodes events, piece by piece. The end of an answer is encoded
    without a slot. `alive`: as in DecodeSlots.each."""

    inner: Encoder
    working: DecodeSlots
    tenant: Hashable
    alive: Callable[[], None] = lambda: None

    def events(self, events: Events) -> Iterator[Piece]:
        """Implement Encoder.events: encode the next events, which may be empty."""
        return self.working.each(self.tenant, self.inner.events(events), self.alive)

    def end(self, end: PageEnd) -> Iterator[Piece]:
        """Implement Encoder.end: encode the position at the end of an answer."""
        return self.inner.end(end)

    def close(self) -> Iterator[Piece]:
        """Implement Encoder.close: encode the end of the answer."""
        return self.inner.close()
