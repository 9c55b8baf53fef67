"""The memory of the process that all pulls share. Each pull that reads and encodes rows holds a fixed part of it, its
share.

A share covers the most memory that one pull holds between two steps of its work: its decoded rows, and the encoded
bytes that its client has not read. The memory that a step needs while it runs is limited by decode_slots.py. A pull
that waits for new rows holds no share. If pulls wait for a share, the tenant with the fewest bytes is next; no tenant
has more than half of the budget, so a tenant whose clients read nothing leaves the other half to others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.concurrency import Event, new_event, new_lock
from tistream.errors import TooManyRequests

SHARE_BYTES = 64 << 20  # decoded rows, events, buffers of encoder and compressor: test_held_bytes.py
PARTS = 2  # one tenant has at most 1/2 of the budget
WAIT_MS = 5_000
LOOK_MS = 250  # how often a waiting pull checks that its client is connected
KEPT_BYTES = 4 * SHARE_BYTES  # released by pulls, but not yet by the allocators


@dataclass(slots=True)
class _Waiter:
    number: int
    amount: int
    admitted: Event


class MemoryBudget:
    """The memory budget of all pulls of the process: `bytes_max`, or the size of one share if that is more, because
    otherwise no pull could be answered. Thread-safe."""

    def __init__(self, bytes_max: int, clock: Clock, wait_ms: int = WAIT_MS) -> None:
        self._all = max(bytes_max, SHARE_BYTES)
        self._of_one = max(self._all // PARTS, SHARE_BYTES)
        self._clock, self._wait_ms = clock, wait_ms
        self._lock = new_lock()
        self._of: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[_Waiter]] = {}
        self._numbers = self._most = self._high = 0

    @property
    def held(self) -> int:
        """The bytes of all shares that are held now."""
        with self._lock:
            return self._of.total()

    @property
    def most(self) -> int:
        """The highest value, in bytes, that `held` has had since the process started."""
        return self._most

    def begin(self, tenant: Hashable, amount: int, alive: Callable[[], None]) -> None:
        """Wait until `amount` bytes are free for `tenant`, and reserve them. The caller must call `end` with
        the same tenant and amount. `alive` is called while it waits, and raises if the client has disconnected. Raises
        TooManyRequests after `wait_ms`, and the errors of `alive`."""
        with self._lock:
            self._numbers += 1
            mine = _Waiter(self._numbers, amount, new_event())
            self._waiting.setdefault(tenant, deque()).append(mine)
            self._admit()
        until_ms = self._clock.monotonic_ms() + self._wait_ms
        try:
            while not mine.admitted.wait(LOOK_MS / 1000):
                alive()
                if self._clock.monotonic_ms() >= until_ms:
                    raise TooManyRequests(
                        "the memory for pulls (TISTREAM_API__PULL_MEMORY_BYTES) is used up by those that are under "
                        "way: retry later",
                        2.0,
                    )
        except BaseException:
            self._leave(tenant, mine)
            raise

    def end(self, tenant: Hashable, amount: int) -> None:
        """Release `amount` bytes of `tenant`."""
        with self._lock:
            self._of[tenant] -= amount
            if not self._of[tenant]:
                del self._of[tenant]
            self._admit()

    def freed_much(self) -> bool:
        """Whether the held memory is KEPT_BYTES below its highest value since this method last returned True. Returning
        True begins a new count. The caller should then let the allocators return memory to the system."""
        with self._lock:
            held = self._of.total()
            if self._high - held < KEPT_BYTES:
                return False
            self._high = held
            return True

    def _leave(self, tenant: Hashable, mine: _Waiter) -> None:
        with self._lock:
            if not mine.admitted.is_set():
                self._waiting[tenant].remove(mine)
                if not self._waiting[tenant]:
                    del self._waiting[tenant]
                self._admit()
                return
        self.end(tenant, mine.amount)

    def _admit(self) -> None:
        while True:
            may = [
                (self._of[tenant], line[0].number, tenant)
                for tenant, line in self._waiting.items()
                if self._of[tenant] + line[0].amount <= self._of_one
            ]
            if not may:
                return
            *_, tenant = min(may, key=lambda one: one[:2])
            first = self._waiting[tenant][0]
            held = self._of.total() + first.amount
            if held > self._all:
                return
            self._waiting[tenant].popleft()
            if not self._waiting[tenant]:
                del self._waiting[tenant]
            self._of[tenant] += first.amount
            self._most, self._high = max(self._most, held), max(self._high, held)
            first.admitted.set()


class MemoryShare:
    """The share of one pull in the memory budget. `alive` raises if the client has disconnected."""

    def __init__(
        self, memory: MemoryBudget, tenant: Hashable, alive: Callable[[], None], amount: int = SHARE_BYTES
    ) -> None:
        self._memory, self._tenant, self._alive, self._amount = memory, tenant, alive, amount
        self._lock = new_lock()
        self._has = self._over = False

    def take(self) -> None:
        """Wait for a share of the memory budget, and reserve it. Does nothing if the pull has one. Raises
        TooManyRequests, and the errors of `alive`."""
        if self._has:
            return
        self._memory.begin(self._tenant, self._amount, self._alive)
        with self._lock:
            self._has = True
            over = self._over
        if over:  # the answer was closed meanwhile
            self.give()

    def give(self) -> None:
        """Release the share; `take` may reserve it again. Idempotent."""
        with self._lock:
            had, self._has = self._has, False
        if had:
            self._memory.end(self._tenant, self._amount)

    def close(self) -> None:
        """Release the share for good. If another thread is inside `take`, that call releases its share at once."""
        with self._lock:
            self._over = True
        self.give()
