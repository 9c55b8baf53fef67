"""The hold on GC of the territory that an agent reads. It is renewed only while the chain is the agent's own.

`tistream disconnect` and `tistream agent divide` put a last file into the chain, wait for SETTLE_S, and release the
hold. An agent that slept since before that file would renew it for a day. So before each request to PD the agent must
have seen, less than PROOF_MS ago, that the newest file of the chain is its own: it has put one, or it reads it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.errors import FatalError, TiStreamError, Unavailable
from tistream_agent.core.steps import HoldRefused, HoldSet
from tistream_agent.upstream.gc_hold import TTL_S, GcHold
from tistream_agent.upstream.pd import DEADLINE_S

PROOF_MS = 2_000
SETTLE_S = PROOF_MS / 1_000 + DEADLINE_S + 1.0  # after a last file: then no request to PD rests on an older proof
UNSEEN_MS = TTL_S * 1_000 // 2  # without an answer of the object store the hold is renewed from here on


class Overtaken(FatalError):
    """Raised if the newest file of the chain, `ts`, is of another process: it has the nonce `nonce`."""

    code = "fenced"

    def __init__(self, ts: int, nonce: str) -> None:
        super().__init__(f"file {ts} of the chain has nonce {nonce}: the hold on GC is not this agent's any more")
        self.ts, self.nonce = ts, nonce


class ChainUnseen(Unavailable):
    """Raised if the chain cannot be read, so that it is not known whether the hold is this agent's."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time on both clocks, in ms. The monotonic clock may stand still while a machine is suspended, and the other
    one may be set back: the later of the two counts."""

    monotonic_ms: int
    now_ms: int

    def until(self, later: Moment) -> int:
        """The milliseconds from this moment to a later one."""
        return max(later.monotonic_ms - self.monotonic_ms, later.now_ms - self.now_ms)


class OwnHold:
    """The hold of the territory that this agent has claimed. Thread-safe.

    Args:
        nonce: that of the agent's files.
        newest: returns the ts and the nonce of the newest file of the chain; its argument is the ts of one of its
            files, or 0. Raises TiStreamError.
    """

    def __init__(self, hold: GcHold, nonce: str, newest: Callable[[int], tuple[int, str]], clock: Clock) -> None:
        self._hold, self._nonce, self._newest, self._clock = hold, nonce, newest, clock
        self._known_ts = 0
        self._seen: Moment | None = None  # the chain was the agent's own then
        self._renewed: Moment | None = None

    def moment(self) -> Moment:
        """The present time, for `seen`."""
        return Moment(self._clock.monotonic_ms(), self._clock.now_ms())

    def seen(self, at: Moment) -> None:
        """Record that a PUT which had begun at `at` has created a file of this agent."""
        self._seen = at

    def move(self, ts: int) -> HoldSet | HoldRefused:
        """Make PD keep all versions above `ts` for a day. Returns whether PD has accepted that. Raises Overtaken,
        ChainUnseen, Unavailable."""
        moved = self._hold.move(ts, check=self._check)
        if isinstance(moved, HoldSet):
            self._renewed = self.moment()
        return moved

    def _check(self) -> None:
        """Check that the hold is this agent's. While the object store does not answer, or not in time, that is not
        known: the hold, which lasts for a day, is renewed all the same once half of the day is over. Raises Overtaken,
        ChainUnseen."""
        at = self.moment()
        if self._seen is not None and self._seen.until(at) < PROOF_MS:
            return
        try:
            ts, nonce = self._newest(self._known_ts)
        except TiStreamError as error:
            problem = f"cannot be read: {error}"
        else:
            if ts and nonce != self._nonce:
                raise Overtaken(ts, nonce)
            self._known_ts = ts
            if at.until(self.moment()) < PROOF_MS:
                self._seen = at
                return
            problem = "was read too slowly"  # it may have been the newest one only when the read began
        if self._renewed is None or self._renewed.until(at) < UNSEEN_MS:
            raise ChainUnseen(f"the newest file of the chain {problem}")
