"""The hostile tenant's own process: `python -m support.hostile.attacker` attacks with one kind of traffic for some
seconds, and tells as JSON what it was answered."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field

import httpx

from support.access_calls import Call, Target, calls
from support.hostile.wire import Answer, Connection, request
from support.waiting import PATIENCE_S

HOSTILE_NAMES = (
    b"n" * 1024,
    "名前🦊ẞ".encode(),
    b"..",
    b"../../committed",
    b"%2e%2e%2f%2e%2e%2fetc",
    b"a%00b",
    b"a\x00b",
    b"%0d%0ax-evil:%20yes",
    b"\xff\xfe",
    b"%25%32%65",
    "\u202egood".encode(),
    b"'%20OR%201=1--",
    b"*",
)
QUERIES = (b"cursor=%s", b"start_ts=%s", b"end_ts=%s&start_ts=0", b"limit=%s&start_ts=0", b"format=%s", b"%s=1")
# By kind: what it has to be told before it ends, however slow the machine is.
WANTED = {
    "routes": {"other 403", "nobody 401"},
    "pulls": {"pulls 200"},
    "notifications": {"notifications 202"},
    "bodies": {"bodies 413"},
}
MORE_S = PATIENCE_S / 2  # it goes on for that at most
NICE = 10  # an attacker has machines of its own: here it must not take from the platform what it costs itself


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of an attacker process. `secrets`: texts that no answer may contain. `named`: the other tenant's name,
    which an answer may contain only if the request did."""

    kind: str
    url: str
    token: str
    seconds: float
    cluster: str
    own: str
    other: str
    secrets: tuple[str, ...] = ()
    connections: int = 16
    idle: int = 500
    begin_ts: str = "1"
    now_ts: str = "1"
    seed: int = 1


@dataclass(slots=True)
class Told:
    """The answers that an attacker received: counts by status and by the tenant that was asked about; `leaks` and
    `odd`: answers that must not occur."""

    statuses: Counter[str] = field(default_factory=Counter)
    without_retry_after: int = 0
    closed: int = 0
    received: int = 0
    leaks: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


class Attacker:
    """One kind of attack, by several coroutines, until time is up."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.told = orders, Told()
        self._end = time.monotonic() + orders.seconds
        self._wanted = WANTED.get(orders.kind, set())

    async def run(self) -> Told:
        """Execute the orders."""
        kinds: dict[str, Callable[[], list[Awaitable[None]]]] = {
            "routes": self._routes,
            "lists": self._lists,
            "pulls": self._pulls,
            "idle": self._idle,
            "notifications": self._notifications,
            "bodies": self._bodies,
            "names": self._names,
        }
        await asyncio.gather(*kinds[self.orders.kind]())
        return self.told

    def _going(self) -> bool:
        return self._left() > 0

    def _left(self) -> float:
        """For how many seconds it still attacks."""
        left = self._end - time.monotonic()
        return left if self._wanted <= self.told.statuses.keys() else left + MORE_S

    def _note(self, what: str, answer: Answer | None, *, names_other: bool) -> None:
        told = self.told
        if answer is None:
            told.closed += 1
            return
        told.statuses[f"{what} {answer.status}"] += 1
        told.received += len(answer.head) + len(answer.body)
        told.without_retry_after += answer.status in (429, 503) and not answer.retry_after
        whole = (answer.head + answer.body).decode("utf-8", "replace")
        looked_for = self.orders.secrets if names_other else (*self.orders.secrets, self.orders.other)
        told.leaks += [f"{secret} in an answer to {what}: {whole[:500]}" for secret in looked_for if secret in whole]
        if answer.status >= 500 and answer.status != 503:
            told.odd.append(f"{what}: {whole[:500]}")
        if names_other and answer.status < 300:
            told.odd.append(f"{what}, of the other's: {whole[:500]}")

    def _target(self, tenant: str) -> Target:
        return Target(self.orders.cluster, tenant, "test", "t", "0123456789abcdef")

    def _calls(self) -> list[Call]:
        document = httpx.get(f"{self.orders.url}/openapi.json", trust_env=False, timeout=PATIENCE_S).json()
        return list(calls(document))

    # -- kinds -----------------------------------------------------------------------------------------------------

    def _routes(self) -> list[Awaitable[None]]:
        """Request every route for its own and for the other tenant, with its token and without one."""
        known = self._calls()

        async def one(number: int) -> None:
            connection = Connection(self.orders.url)
            rng = random.Random(self.orders.seed * 1_000 + number)
            while self._going():
                call, other = rng.choice(known), rng.random() < 0.5
                target = self._target(self.orders.other if other else self.orders.own)
                token = self.orders.token if rng.random() < 0.8 else None
                data = request(call.method, call.path(target).encode(), token, call.content(target) or b"")
                about = {True: "other", False: "own"}[other] if token else "nobody"
                # Of what names no tenant in its path the answer must be as if there was no other.
                named = other and ("{tenant_id}" in call.template or call.body is not None)
                self._note(about, await connection.ask(data), names_other=named)
            connection.close()

        return [one(number) for number in range(self.orders.connections)]

    def _lists(self) -> list[Awaitable[None]]:
        """Request lists at a ts that is not resolved yet, whose answers have to wait."""
        path = f"/v1/clusters/{self.orders.cluster}/tenants/{self.orders.own}/databases?ts={self.orders.now_ts}"

        async def one() -> None:
            connection = Connection(self.orders.url)
            while self._going():
                answer = await connection.ask(request("GET", path.encode(), self.orders.token))
                self._note("lists", answer, names_other=False)
                if answer is not None and answer.status == 429:
                    await asyncio.sleep(0.2)
            connection.close()

        return [one() for _ in range(self.orders.connections)]

    def _pulls(self) -> list[Awaitable[None]]:
        """Open as many pulls as allowed, and read only their beginning."""
        base = f"/v1/clusters/{self.orders.cluster}/tenants/{self.orders.own}/changes"

        async def one(number: int) -> None:
            queries = ("follow=true&start_ts={0}", "start_ts={0}&limit=1000000", "start_ts={0}&wait_ms=60000")
            query = queries[number % len(queries)].format(self.orders.now_ts if number % 2 else self.orders.begin_ts)
            while self._going():
                connection = Connection(self.orders.url, receive_bytes=4_096)
                try:
                    await connection.write(request("GET", f"{base}?{query}".encode(), self.orders.token))
                    reader = connection._reader
                    assert reader is not None
                    async with asyncio.timeout(max(0.1, self._left())):
                        head = await reader.readuntil(b"\r\n")
                        status = int(head.split(b" ", 2)[1])
                        self.told.statuses[f"pulls {status}"] += 1
                        if status == 200:
                            await asyncio.sleep(self._left())
                        else:
                            await asyncio.sleep(0.5)
                except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    self.told.closed += 1
                connection.close()

        return [one(number) for number in range(self.orders.connections)]

    def _idle(self) -> list[Awaitable[None]]:
        """Open connections without a complete request, and replace those that are closed."""

        async def one(number: int) -> None:
            while self._going():
                connection = Connection(self.orders.url)
                try:
                    await connection.write(b"" if number % 2 else b"GET /v1/tenants HTTP/1.1\r\nhost: x\r\nx-slow: ")
                    while self._going():
                        await asyncio.sleep(min(2.0, max(0.0, self._left())))
                        await connection.write(b"" if number % 2 else b"a")
                    self.told.statuses["idle held"] += 1
                except OSError:
                    self.told.statuses["idle closed"] += 1
                connection.close()

        return [one(number) for number in range(self.orders.idle)]

    def _notifications(self) -> list[Awaitable[None]]:
        """Announce files and stores that do not exist, and those of the other tenant."""
        numbers = itertools.count(1)

        async def one() -> None:
            connection = Connection(self.orders.url)
            while self._going():
                number = next(numbers)
                other = number % 10 == 0
                told = {
                    "cluster_id": self.orders.cluster,
                    "tenant_id": self.orders.other if other else self.orders.own,
                    "store_id": str(1 + number % 3 if number % 2 else 1_000_000 + number),
                    "ts": str(470_000_000_000_000_000 + number),
                }
                data = request("POST", b"/v1/notifications", self.orders.token, json.dumps(told).encode())
                answer = await connection.ask(data)
                self._note("other" if other else "notifications", answer, names_other=other)
                if answer is not None and answer.status == 429:
                    await asyncio.sleep(0.05)
            connection.close()

        return [one() for _ in range(self.orders.connections)]

    def _bodies(self) -> list[Awaitable[None]]:
        """Send huge request bodies, and requests that claim to have one."""
        giant = b'{"cluster_id":"' + b"9" * (32 << 20) + b'"}'

        async def one(number: int) -> None:
            while self._going():
                connection = Connection(self.orders.url)
                said = 1 << 40 if number % 2 else None
                data = request("POST", b"/v1/notifications", self.orders.token, giant if said is None else b"{", said)
                try:
                    answer = await connection.ask(data, max(0.1, self._left()))
                    self._note("bodies", answer, names_other=False)
                except TimeoutError:
                    self.told.closed += 1
                connection.close()

        return [one(number) for number in range(self.orders.connections)]

    def _names(self) -> list[Awaitable[None]]:
        """Send hostile names in each place of each route, and in each parameter."""
        known = self._calls()
        base = f"/v1/clusters/{self.orders.cluster}/tenants/{self.orders.own}".encode()

        def questions() -> Iterator[bytes]:
            for name in HOSTILE_NAMES:
                for call in known:
                    target, body = self._target(self.orders.own), call.content(self._target(self.orders.own)) or b""
                    for parameter in call.parameters:
                        path = call.path(target, **{parameter: "\x01"}).encode().replace(b"\x01", name)
                        yield request(call.method, path, self.orders.token, body)
                for query in QUERIES:
                    yield request("GET", base + b"/changes?" + query.replace(b"%s", name), self.orders.token)
                shown = json.dumps(name.decode("latin-1"))
                body = f'{{"cluster_id":{shown},"tenant_id":{shown},"store_id":"1","ts":"1"}}'.encode()
                yield request("POST", b"/v1/notifications", self.orders.token, body)

        async def one(number: int) -> None:
            connection = Connection(self.orders.url)
            rng, everything = random.Random(number), list(questions())
            while self._going():
                answer = await connection.ask(rng.choice(everything))
                self._note("names", answer, names_other=False)
                # The name of its own tenant in a route that it may call is answered; all else is refused.
            connection.close()

        return [one(number) for number in range(self.orders.connections)]


def main() -> None:
    """Orders as JSON on stdin, what was answered on stdout."""
    os.nice(NICE)
    given = json.loads(sys.stdin.read())
    orders = Orders(**{**given, "secrets": tuple(given["secrets"])})
    told = asyncio.run(Attacker(orders).run())
    print(json.dumps({**asdict(told), "statuses": dict(told.statuses)}))


if __name__ == "__main__":
    main()
