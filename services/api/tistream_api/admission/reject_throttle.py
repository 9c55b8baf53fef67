"""How soon a refusal is told. Each costs its sender nothing and the server some milliseconds, and without a valid token
there is no tenant whose limit it would count for: so who is refused again and again waits for it, and who asks one
question after the other is refused no faster than that. What is not refused never waits here. Pure.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network

from tistream.clock import Clock
from tistream_api.admission.token_bucket import Bucket

WAIT_MAX_S = 3.0  # clients give up after five
WAITING_MAX, WAITING_EACH = 1_024, 512  # a refusal that waits takes some 50 KB, also when its sender has gone
REMEMBERED = 4_096  # who was refused; beyond, those are forgotten that were refused longest ago
_PREFIX = 64  # of an IPv6 address: who has one has all that begin so


@dataclass(slots=True)
class Refusals:
    """`per_second` of each who is refused come at once; 0: all do. For one thread, that of the event loop."""

    clock: Clock
    per_second: float
    waiting: int = 0
    _waiting_of: Counter[str] = field(default_factory=Counter)
    _of: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def wait_s(self, who: str) -> float:
        """One more was refused: for how many seconds to wait before it is told."""
        now_ms = self.clock.monotonic_ms()
        bucket = self._bucket(who, now_ms)
        wait_s = bucket.take(now_ms, self.per_second)
        if not 0 < wait_s < WAIT_MAX_S:  # nobody owes more than is waited for: it would be the next one's
            return min(wait_s, WAIT_MAX_S)
        return bucket.charge(now_ms, self.per_second, 1)

    def begin(self, who: str) -> bool:
        """It waits: `end` follows; False: so many do that there is no room for another."""
        if self.waiting >= WAITING_MAX or self._waiting_of[who] >= WAITING_EACH:
            return False
        self.waiting += 1
        self._waiting_of[who] += 1
        return True

    def end(self, who: str) -> None:
        """It is told."""
        self.waiting -= 1
        self._waiting_of[who] -= 1
        if not self._waiting_of[who]:
            del self._waiting_of[who]

    def _bucket(self, who: str, now_ms: int) -> Bucket:
        found = self._of.get(who)
        if found is None:
            found = self._of[who] = Bucket(now_ms)
        self._of.move_to_end(who)
        while len(self._of) > REMEMBERED:
            self._of.popitem(last=False)
        return found


def network_of(host: str) -> str:
    """Whose address it is: of IPv6 the first 64 bits, which one machine has to itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address, _PREFIX), strict=False))
    return str(address)
