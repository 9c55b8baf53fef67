"""Decides how long a rejection (a 4xx answer) is delayed. Pure. A rejection costs its sender nothing and the server
some milliseconds, and without a valid token no tenant's rate limit applies. So a sender that is rejected repeatedly
waits for the answer, and one that sends requests one after the other is rejected at a limited rate. Requests that
succeed are never delayed here."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network

from tistream.clock import Clock
from tistream_api.admission.token_bucket import Bucket

WAIT_MAX_S = 3.0  # clients give up after five
WAITING_MAX, WAITING_EACH = 1_024, 512  # A delayed rejection takes about 50 KB, also when its sender has disconnected
REMEMBERED = 4_096  # senders with a bucket; above it, those whose last rejection is oldest are dropped
_PREFIX = 64  # bits of an IPv6 address that identify its sender, who holds all addresses with this prefix


@dataclass(slots=True)
class RejectionLimit:
    """The rate limit of rejections, for each sender. A sender's rejections are sent without delay up to `per_second` of
    them a second, and a burst of BURST_S seconds' worth; 0 disables the limit. `waiting` is the number of rejections
    that are delayed now. Not thread-safe: only the event loop's thread may call it."""

    clock: Clock
    per_second: float
    waiting: int = 0
    _waiting_of: Counter[str] = field(default_factory=Counter)
    _of: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def wait_s(self, sender: str) -> float:
        """The seconds by which a rejection of `sender` must be delayed: from 0 to WAIT_MAX_S. The rejection counts
        towards the sender's rate, but not if the delay is WAIT_MAX_S, so that no delay is longer."""
        now_ms = self.clock.monotonic_ms()
        bucket = self._bucket(sender, now_ms)
        wait_s = bucket.take(now_ms, self.per_second)
        if not 0 < wait_s < WAIT_MAX_S:  # A delay of WAIT_MAX_S is not charged: the debt of a sender never exceeds it
            return min(wait_s, WAIT_MAX_S)
        return bucket.charge(now_ms, self.per_second, 1)

    def begin(self, sender: str) -> bool:
        """Reserve a place for a rejection of `sender` that will be delayed; the caller must call `end`. Returns
        False if too many are delayed already."""
        if self.waiting >= WAITING_MAX or self._waiting_of[sender] >= WAITING_EACH:
            return False
        self.waiting += 1
        self._waiting_of[sender] += 1
        return True

    def end(self, sender: str) -> None:
        """Record that a delayed rejection of `sender` was sent, so that another one may be delayed."""
        self.waiting -= 1
        self._waiting_of[sender] -= 1
        if not self._waiting_of[sender]:
            del self._waiting_of[sender]

    def _bucket(self, sender: str, now_ms: int) -> Bucket:
        found = self._of.get(sender)
        if found is None:
            found = self._of[sender] = Bucket(now_ms)
        self._of.move_to_end(sender)
        while len(self._of) > REMEMBERED:
            self._of.popitem(last=False)
        return found


def network_of(host: str) -> str:
    """The network of an address, by which rejections are counted: for IPv6 the first 64 bits, which usually belong to
    one machine; for IPv4 the address itself. A text that is no address is returned unchanged."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address, _PREFIX), strict=False))
    return str(address)
