"""Three meta servers on a real MariaDB that is restarted, that hangs, and that loses their connections."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from support import plain_http
from support.mariadb import MariaDb
from support.metas import LOST_MS, Metas, asked, done
from support.mysql_wire import Lose, Wire
from support.waiting import eventually
from tistream.errors import Unavailable
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import StartOf

ANSWER_MS = 3_000
LEASE_MS = 3_000  # of those who are to lose it while the database is away: what is asserted holds at any speed


@pytest.fixture
def metas(mysql_url: str) -> Iterator[Metas]:
    running = Metas(mysql_url, 3, lease_ms=LEASE_MS, database_answer_ms=ANSWER_MS)
    yield running
    running.end()


@dataclass
class Watched:
    """How many owners there were at once, looked at all the time."""

    most: int = 0
    seen: set[int] = field(default_factory=set)


@contextmanager
def watched(metas: Metas) -> Iterator[Watched]:
    found, ended = Watched(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            owners = metas.owners()
            found.most = max(found.most, len(owners))
            found.seen.update(owners)
            time.sleep(0.005)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def ask(url: str, method: str, path: str, body: object = None) -> httpx.Response:
    return plain_http.request(method, f"{url}{path}", json=body)


NEEDS_DATABASE: list[tuple[str, str, object]] = [
    ("GET", "/v1/owner", None),
    ("GET", "/v1/clusters/7/tenants", None),
    ("POST", "/v1/clusters/7/tenants", {"tenant_id": "beta"}),
    ("POST", "/upcall/v1/nodes/sorter-9/starts", None),
    ("POST", "/v1/nodes/sorter-1/drain", {"draining": True}),
]


def come_again(metas: Metas) -> None:
    """Whatever needs the database is refused while it is away, by each of them, with a word on when to come again."""
    with ThreadPoolExecutor(32) as many:
        asked = [
            (method, path, many.submit(ask, metas.servers[number].url, method, path, body))
            for number in metas.servers
            for method, path, body in NEEDS_DATABASE
        ]
    for method, path, one in asked:
        answer = one.result()
        assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "1"), (method, path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert "secret" not in answer.text


def begun(metas: Metas) -> tuple[StartOf, int]:
    """A tenant, a sorter that has its task, and the version of the routes that say so, which all tell."""
    client = metas.client()
    asked(lambda: client.create_tenant("7", "acme"))
    start = StartOf(instance="i", start_epoch=asked(lambda: client.new_start("sorter-1")).start_epoch)
    asked(lambda: client.register("sorter-1", "sorter", "http://sorter-1", start))
    eventually(lambda: placed(client) == [("sorter-1", 1)])
    version = asked(client.routes).version
    for number in metas.servers:
        one = metas.client(number)
        eventually(lambda one=one: asked(one.routes).version >= version)
    return start, version


def works_again(metas: Metas, start: StartOf) -> None:
    """As before: one owner, everybody ready, the same task under the same epoch; new tenants start."""
    eventually(lambda: sum(map(metas.ready, metas.servers)) == 3)
    client = metas.client()
    eventually(lambda: done(lambda: client.heartbeat("sorter-1", start)))
    eventually(lambda: done(lambda: client.create_tenant("7", "after")))
    eventually(lambda: told(client)[:2] == ["acme", "after"])
    eventually(lambda: placed(client) == [("sorter-1", 1)])
    eventually(lambda: len(metas.owners()) == 1)


def told(client: MetaClient) -> list[str]:
    """The tenants of the routes; none while whoever answers knows less than the client."""
    try:
        return [tenant.tenant_id for tenant in client.routes().tenants]
    except Unavailable:
        return []


def placed(client: MetaClient) -> list[tuple[str | None, int]]:
    """Where the tasks of the first tenant are, and under which epochs; none while whoever answers knows less."""
    try:
        return [(task.sorter_node, task.task_epoch) for task in client.routes().tenants[0].tasks]
    except Unavailable:
        return []


def test_the_database_is_restarted_while_they_serve(metas: Metas, mariadb: MariaDb) -> None:
    start, version = begun(metas)
    with watched(metas) as owners:
        mariadb.stop()
        try:
            come_again(metas)
            assert metas.client().routes().version >= version, "routes are told without it"
            eventually(lambda: not metas.owners())
        finally:
            mariadb.start()
        works_again(metas, start)
    assert owners.most == 1


def test_a_database_that_hangs_holds_nobody_up_and_when_it_goes_on_all_is_well(metas: Metas, mariadb: MariaDb) -> None:
    start, version = begun(metas)
    with watched(metas) as owners:
        with mariadb.hanging():
            come_again(metas)
            assert metas.client().routes().version >= version
            eventually(lambda: not metas.owners())
            come_again(metas)
        works_again(metas, start)
    assert owners.most == 1


def test_a_database_that_hangs_for_less_than_a_lease_changes_nothing(mysql_url: str, mariadb: MariaDb) -> None:
    metas = Metas(mysql_url, 3, database_answer_ms=ANSWER_MS)
    start, _ = begun(metas)
    owner = metas.owner()
    rev = metas.client(owner).routes().owner_rev
    with watched(metas) as owners:
        with mariadb.hanging():
            assert not done(lambda: metas.turn(owner)), "a renewal has met it"
            assert not done(lambda: metas.client(owner).create_tenant("7", "after"))
        works_again(metas, start)
        asked(metas.turn)
    assert owners.seen == {owner}
    assert metas.client().routes().owner_rev == rev
    metas.end()


def test_nodes_that_could_not_be_heard_while_the_database_was_away_are_not_lost(
    mysql_url: str, mariadb: MariaDb, caplog: pytest.LogCaptureFixture
) -> None:
    metas = Metas(mysql_url, 1, database_answer_ms=ANSWER_MS)
    start, _ = begun(metas)
    client = metas.client()
    assert done(lambda: client.heartbeat("sorter-1", start))
    mariadb.stop()
    try:
        assert not done(lambda: client.create_tenant("7", "after"))  # now the plan has to be read again
        metas.clock.advance(2 * LOST_MS)
        assert not done(lambda: client.heartbeat("sorter-1", start)), "they are refused"
    finally:
        mariadb.start()
    eventually(lambda: done(lambda: client.create_tenant("7", "after")))
    eventually(lambda: done(lambda: client.heartbeat("sorter-1", start)))
    assert [vars(one) for one in caplog.records if one.msg == "node" and vars(one)["to"] == "lost"] == []
    metas.end()


def test_connections_that_are_killed_all_the_time_cost_no_more_than_a_moment(metas: Metas, mariadb: MariaDb) -> None:
    start, _ = begun(metas)
    client, killed = metas.client(), 0
    with watched(metas) as owners:
        for number in range(12):
            killed += mariadb.kill()
            eventually(lambda number=number: done(lambda: client.create_tenant("8", f"tenant-{number:02}")))
        works_again(metas, start)
    assert killed > 12
    assert owners.most == 1
    made = asked(lambda: client.tenants("8")).tenants
    assert [one.tenant_id for one in made] == [f"tenant-{number:02}" for number in range(12)]


@pytest.mark.parametrize("lose", [Lose.COMMIT, Lose.ANSWER])
def test_a_request_whose_commit_has_no_answer_is_asked_again_and_routes_tell_what_is_so(
    mysql_url: str, lose: Lose
) -> None:
    wire = Wire(mysql_url, of=b"INSERT INTO tenants")
    metas = Metas(wire.url, 1)
    start, _ = begun(metas)
    url = metas.servers[0].url
    wire.lose = lose
    answer = ask(url, "POST", "/v1/clusters/7/tenants", {"tenant_id": "beta"})
    assert (answer.status_code, wire.lost) == (503, 1)
    assert "unknown whether it has committed" in answer.json()["detail"]
    eventually(lambda: ask(url, "POST", "/v1/clusters/7/tenants", {"tenant_id": "beta"}).status_code == 201)
    eventually(lambda: told(metas.client()) == ["acme", "beta"])
    works = metas.client().heartbeat("sorter-1", start)
    assert works.owner_rev == 1
    metas.end()
    wire.close()


def test_a_password_is_in_no_log_and_in_no_answer(
    mariadb: MariaDb, mysql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    metas = Metas(mysql_url.replace(":secret@", ":hunter2-%2Fx@"), 1)
    eventually(lambda: "Access denied" in caplog.text + str([vars(one) for one in caplog.records]))
    answers = [ask(metas.servers[0].url, method, path, body) for method, path, body in NEEDS_DATABASE]
    answers += [ask(metas.servers[0].url, "GET", path) for path in ("/readyz", "/metrics")]
    metas.end()
    said = caplog.text + str([vars(one) for one in caplog.records]) + " ".join(one.text for one in answers)
    assert "hunter2" not in said
    assert {answer.status_code for answer in answers[:-1]} == {503}
