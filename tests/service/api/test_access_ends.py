"""What is under way when a token ends, a flood, a meta server that is away: on real services."""
# Attack: a body that names its tenant twice, a giant body, and one with very many mistakes
# Attack: streams and long polls whose token is revoked or expires: they end, others continue
# Attack: a tenant that floods, or whose requests take long: its 429s, and the answers of others; many tokens of one
#   tenant share its limit
# Attack: endless rejections: they are delayed, other requests are not; a tenant that uses all of its limit: its
#   operator gets through
# Attack: an issuer that changes its keys; no meta server

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from support.access_calls import Answer, send
from support.access_world import CLOCK, Guarded, Issuer, start_guarded
from support.ahead_clock import STANDING, AheadClock
from support.http_world import Server
from support.waiting import PATIENCE_S, eventually
from tistream.service.http.app import THREADS
from tistream_api.admission import reject_throttle as refusals
from tistream_api.admission.token_bucket import BURST_S
from tistream_api.auth import jwt_callers
from tistream_api.settings import LimitSettings
from tistream_cli.commands.token import create_token
from tistream_client.cli import errors
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError

LIMITS = LimitSettings(pulls_at_once=3)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def world(guarded_api: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With an API server and an issuer of its own."""
    issuer = Issuer(tmp_path_factory.mktemp("ends") / "keys.json")
    api = start_guarded(guarded_api.up, issuer, guarded_api.objects, limits=LIMITS, pulls_max=8)
    yield replace(guarded_api, api=api, issuer=issuer).settled()
    api.stop()


def tenant_path(world: Guarded, more: str) -> str:
    return f"/v1/clusters/{world.other.cluster}/tenants/{world.other.tenant}/{more}"


class Reader(threading.Thread):
    """One pull, read to its end."""

    def __init__(self, world: Guarded, header: str, query: str, url: str | None = None) -> None:
        super().__init__(daemon=True)
        self._url = (url or world.url) + tenant_path(world, f"changes?{query}")
        self._header = header
        self.lines: list[dict[str, Any]] = []
        self.begun = threading.Event()
        self.status = 0
        self.start()

    def run(self) -> None:
        eventually(self._answered)

    @property
    def answer(self) -> tuple[int, list[dict[str, Any]]]:
        """Its status, and the newest lines that have come."""
        return self.status, self.lines[-3:]

    def _answered(self) -> bool:
        """A server that has just begun may know the token and not the tenant's tasks yet: 503, come again."""
        headers = {"authorization": self._header}
        with httpx.stream("GET", self._url, headers=headers, timeout=PATIENCE_S, trust_env=False) as answer:
            self.status = answer.status_code
            if self.status == 503:
                return False
            self.begun.set()
            if self.status == 200:
                self.lines.extend(json.loads(line) for line in answer.iter_lines())
        return True


def newest(world: Guarded, header: str) -> str:
    answer = send(world.url, "GET", tenant_path(world, "status"), header)
    told: str = json.loads(answer.raw.split(b"\r\n\r\n")[-1])["resolved_ts"]
    return told


@pytest.mark.parametrize("query", ["follow=true", "wait_ms=60000"])
def test_streams_and_long_polls_end_with_their_token(world: Guarded, query: str) -> None:
    """Of a server to which the minute of a long poll is longer than anything is waited for here."""
    api = start_guarded(world.up, world.issuer, world.objects, clock=AheadClock(speed=0.1))
    try:
        token = world.token(world.other.grant(["read"], "tenant"))
        header = known_to(api, world, token)
        reader = Reader(world, header, f"start_ts={newest(world, header)}&{query}", api.url)
        bystander = known_to(api, world, world.token(world.other.grant(["read"], "tenant")))
        other = Reader(world, bystander, f"start_ts={newest(world, bystander)}&follow=true", api.url)
        eventually(lambda: pulls_of(api) == 2 or not (reader.is_alive() and other.is_alive()))
        assert [reader.is_alive(), other.is_alive()] == [True, True], f"{reader.answer} and {other.answer}"
        world.tokens.revoke(token.split("_")[1])
        reader.join(PATIENCE_S)
        assert not reader.is_alive(), "it ends long before the 60 s of a long poll"
        assert reader.status == 200
        assert reader.lines[-1]["type"] == "resolved", "its end is in good order"
        assert send(api.url, "GET", tenant_path(world, "status"), header).status == 401
        assert other.is_alive(), "those of other tokens go on"
        world.tokens.revoke(bystander.split("_")[1])
        other.join(PATIENCE_S)
        assert not other.is_alive()
    finally:
        api.stop()


def pulls_of(api: Server) -> float:
    """That are under way: who asked for them was let in."""
    (found,) = [one for one in api.app.state.metrics.collect() if one.name == "tistream_api_pulls"]
    return sum(sample.value for sample in found.samples)


def known_to(api: Server, world: Guarded, token: str) -> str:
    """Wait until that API server has heard of it too; as a header."""
    header = world.known(token)
    eventually(lambda: send(api.url, "GET", tenant_path(world, "nowhere"), header).status not in (401, 503))
    return header


def test_streams_end_when_their_token_expires(world: Guarded) -> None:
    clock = AheadClock()
    api = start_guarded(world.up, world.issuer, world.objects, clock=clock)
    try:
        token = world.token(world.other.grant(["read"], "tenant"), expires_ms=clock.now_ms() + HOUR_MS)
        header = known_to(api, world, token)
        reader = Reader(world, header, f"start_ts={newest(world, header)}&follow=true", api.url)
        eventually(reader.begun.is_set)
        eventually(lambda: len(reader.lines) > 1)
        assert reader.is_alive()
        clock.advance(HOUR_MS)
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
        assert reader.status == 200
    finally:
        api.stop()


def test_a_flood_is_told_to_come_back_and_others_are_answered(world: Guarded) -> None:
    few, clock = LimitSettings(requests_per_second=1, notifications_per_second=1), AheadClock(STANDING)
    api = start_guarded(world.up, world.issuer, world.objects, clock=clock, limits=few)
    try:
        header = world.known(world.token(world.other.grant(["read", "push"], "tenant")))
        mine = world.known(world.token(world.mine.grant(["read"], "tenant")))
        own = f"/v1/clusters/{world.mine.cluster}/tenants/{world.mine.tenant}/status"
        eventually(lambda: send(api.url, "GET", own, mine).status == 200)
        body = {"cluster_id": world.other.cluster, "tenant_id": world.other.tenant, "store_id": "1", "ts": "5"}
        for method, path, content, fine in (
            ("GET", tenant_path(world, "databases?ts=x"), None, 400),
            ("POST", "/v1/notifications", json.dumps(body).encode(), 202),
        ):

            def asked(method: str = method, path: str = path, content: bytes | None = content) -> Answer:
                return send(api.url, method, path, header, content)

            eventually(lambda fine=fine, asked=asked: asked().status == fine)
            eventually(lambda asked=asked: asked().status == 429)
            clock.advance(1_000)
            assert send(api.url, "GET", own, mine).status == 200
            assert asked().status == fine
            assert asked().status == 429
            clock.advance(1_000)
        answers = [send(api.url, "GET", tenant_path(world, "status"), header) for _ in range(2)]
        while answers[-1].status != 429:
            answers.append(send(api.url, "GET", tenant_path(world, "status"), header))
        assert "retry-after: 1" in answers[-1].headers
    finally:
        api.stop()


class Askers:
    """So many that are refused again and again meanwhile, and what they were told."""

    def __init__(self, url: str, path: str, count: int) -> None:
        self._url, self._path = url, path
        self.refused = list[int]()
        self._asking = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]

    def _ask(self) -> None:
        while self._asking.is_set():
            with suppress(OSError):  # the server ends
                self.refused.append(send(self._url, "GET", self._path, "Bearer wrong").status)

    def __enter__(self) -> list[int]:
        self._asking.set()
        for one in self._threads:
            one.start()
        return self.refused

    def __exit__(self, *_: object) -> None:
        self._asking.clear()


def test_who_is_refused_without_end_waits_for_it(world: Guarded) -> None:
    api = start_guarded(world.up, world.issuer, world.objects, refusals_per_second=5)
    own = tenant_path(world, "status")
    try:
        header = world.known(world.token(world.other.grant(["read"], "tenant")))
        eventually(lambda: send(api.url, "GET", own, header).status == 200)
        began = time.monotonic()
        with Askers(api.url, own, 12) as refused:
            eventually(lambda: len(refused) >= 30)
            count, seconds = len(refused), time.monotonic() - began
        assert count <= 5 * (seconds + BURST_S) + 12
        assert set(refused) == {401}
    finally:
        api.stop()


def test_who_is_not_refused_waits_for_nothing_beside_those_who_are(
    world: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal waits for a second more than the one before: the server's clock stands."""
    monkeypatch.setattr(refusals, "WAIT_MAX_S", 2 * PATIENCE_S)
    api = start_guarded(world.up, world.issuer, world.objects, clock=AheadClock(STANDING), refusals_per_second=1)
    own = tenant_path(world, "status")
    try:
        header = world.known(world.token(world.other.grant(["read"], "tenant")))
        eventually(lambda: send(api.url, "GET", own, header).status == 200)
        with Askers(api.url, own, 12) as refused:
            eventually(lambda: len(refused) >= 5)
            before = len(refused)
            answers = [send(api.url, "GET", own, header).status for _ in range(40)]
            assert answers == [200] * 40
            assert len(refused) - before < 2 * len(answers), "twelve ask, and are answered less often than twice as one"
            assert send(api.url, "GET", "/readyz", None).status == 200
    finally:
        api.stop()


def test_a_tenant_that_asks_what_is_long_in_being_answered_leaves_threads_to_others(world: Guarded) -> None:
    """More questions than the server has threads, each of which is answered after a minute."""
    clock = AheadClock(STANDING)  # to which none of them is answered while this runs
    api = start_guarded(world.up, world.issuer, world.objects, clock=clock, list_wait_ms=60_000)
    asking: list[socket.socket] = []
    try:
        header = world.known(world.token(world.other.grant(["read"], "tenant")))
        mine = world.known(world.token(world.mine.grant(["read"], "tenant")))
        own = f"/v1/clusters/{world.mine.cluster}/tenants/{world.mine.tenant}/status"
        eventually(lambda: send(api.url, "GET", own, mine).status == 200)
        path = tenant_path(world, f"databases?ts={(int(time.time() * 1000) - 1_000) << 18}")
        asked = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: {header}\r\n\r\n".encode()
        for _ in range(THREADS + 150):
            asking.append(socket.create_connection(("127.0.0.1", api.port)))
            asking[-1].sendall(asked)
        eventually(lambda: any(select.select(asking, [], [], 0)[0]))  # who is too many is told so
        assert send(api.url, "GET", own, mine).status == 200
        assert send(api.url, "GET", "/readyz", None).status == 200
        answered = [one.recv(64).split(b" ")[1] for one in select.select(asking, [], [], 0)[0]]
        assert set(answered) == {b"429"}
        assert len(answered) < len(asking) - 100
    finally:
        for one in asking:
            one.close()
        api.stop()


def test_a_giant_body_is_not_taken(world: Guarded) -> None:
    header = world.known(world.token(world.other.grant(["push"], "tenant")))
    giant = b'{"cluster_id":"' + b"7" * (2 << 20) + b'"}'
    answer = send(world.url, "POST", "/v1/notifications", header, giant)
    assert answer.status == 413


def test_a_body_that_is_wrong_in_very_many_places_is_told_the_first(world: Guarded) -> None:
    header = world.known(world.token(world.other.grant(["push", "operate"], "tenant")))
    for members, told in ((100, "81 more"), (30_000 // 8, "more than 1000 members")):
        wrong = b"{" + b",".join(b'"%05d":1' % number for number in range(members)) + b"}"
        answer = send(world.url, "POST", "/v1/tokens", header, wrong)
        assert answer.status == 400
        assert told.encode() in answer.raw
        assert len(answer.raw) < 8_000
    announcement = send(world.url, "POST", "/v1/notifications", header, b'{"cluster_id":"' + b"7" * 1_100 + b'"}')
    assert announcement.status == 413
    assert b"larger than 1024 bytes" in announcement.raw


def test_tokens_of_one_tenant_have_one_limit_together(world: Guarded) -> None:
    few = LimitSettings(requests_per_second=16)
    api = start_guarded(world.up, world.issuer, world.objects, clock=AheadClock(STANDING), limits=few)
    try:
        own = [world.known(world.token(world.other.grant(["read"], "tenant"))) for _ in range(6)]
        eventually(lambda: send(api.url, "GET", "/v1/tenants", own[-1]).status == 200)
        with ThreadPoolExecutor(6) as threads:
            asked = [header for header in own for _ in range(30)]
            told = Counter(threads.map(lambda header: send(api.url, "GET", "/v1/tenants", header).status, asked))
        assert told[429], "with 30 of each token none alone has asked more than two seconds' worth"
    finally:
        api.stop()


def test_questions_that_name_no_tenant_are_limited_by_who_asks(world: Guarded) -> None:
    few = LimitSettings(requests_per_second=1)
    api = start_guarded(world.up, world.issuer, world.objects, clock=AheadClock(STANDING), limits=few)
    try:
        header = world.known(world.token(world.other.grant(["read"], "tenant")))
        mine = world.known(world.token(world.mine.grant(["read"], "tenant")))
        for path in ("/v1/tenants", f"/v1/clusters/{world.mine.cluster}/tenants"):
            eventually(lambda path=path: send(api.url, "GET", path, header).status == 429)
            eventually(lambda path=path: send(api.url, "GET", path, mine).status == 200)
    finally:
        api.stop()


def test_a_command_without_a_token_is_told_how_to_name_one(world: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (errors.TOKEN_FILE, errors.TOKEN):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CliError, match=r"needs a token.*; `tistream --token-file FILE …` or TISTREAM_TOKEN_FILE names"):
        ApiClient(world.url).call("GET", "/v1/tenants")
    monkeypatch.setenv(errors.TOKEN, "wrong")
    with pytest.raises(CliError, match=r"the token is not valid: it is malformed, unknown, expired or revoked"):
        ApiClient(world.url).call("GET", "/v1/tenants")


def test_who_makes_a_token_is_told_until_when_it_is_valid(
    world: Guarded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However long was asked for: no longer than the token that makes it."""
    grant = {"actions": ["operate"], "cluster": world.other.cluster}
    expires_ms = CLOCK.now_ms() + 3_600_000
    told = []
    for ends_ms in (None, expires_ms):
        maker = world.known(world.token(grant, expires_ms=ends_ms))
        monkeypatch.setenv(errors.TOKEN, maker.removeprefix("Bearer "))
        create_token(ApiClient(world.url), [f"operate:{world.other.cluster}"], "", "forever", None)
        told.append(capsys.readouterr().err)
    assert "valid until it is revoked;" in told[0]
    assert f"valid until {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(expires_ms // 1000))};" in told[1]


def test_a_tenant_that_uses_all_it_may_does_not_keep_its_operator_out(world: Guarded) -> None:
    """Who may raise its limit must be able to see it."""
    few = LimitSettings(requests_per_second=1)
    api = start_guarded(world.up, world.issuer, world.objects, clock=AheadClock(STANDING), limits=few)
    cluster = {"actions": ["read", "operate"], "cluster": world.other.cluster}
    try:
        header = world.known(world.token(world.other.grant(["read", "operate"], "tenant")))
        operator = world.known(world.token(cluster))
        path = tenant_path(world, "quotas")
        eventually(lambda: send(api.url, "GET", path, header).status == 429)
        eventually(lambda: send(api.url, "GET", path, operator).status == 200)
        eventually(lambda: send(api.url, "GET", path, operator).status == 429)  # its own limit
        # Who operates a tenant alone is that tenant, by however many tokens it asks.
        own = [world.known(world.token(world.other.grant(["read", "operate"], "tenant"))) for _ in range(3)]
        eventually(lambda: send(api.url, "GET", path, own[-1]).status == 429)
        assert {send(api.url, "GET", path, token).status for _ in range(5) for token in own} == {429}
    finally:
        api.stop()


def test_a_tenant_has_its_pulls_and_no_more(world: Guarded) -> None:
    token = world.token(world.other.grant(["read"], "tenant"))
    header = world.known(token)
    start = newest(world, header)
    readers = [Reader(world, header, f"start_ts={start}&follow=true") for _ in range(3)]
    for reader in readers:
        eventually(reader.begun.is_set)
    path = tenant_path(world, f"changes?start_ts={start}")
    assert send(world.url, "GET", path, header).status == 429
    world.tokens.revoke(token.split("_")[1])
    for reader in readers:
        reader.join(PATIENCE_S)
    again = world.known(world.token(world.other.grant(["read"], "tenant")))
    eventually(lambda: send(world.url, "GET", path, again).status == 200)


def test_a_body_that_reads_in_two_ways_is_passed_on_as_it_was_checked(world: Guarded) -> None:
    """The tenant twice: whichever is checked, that one is announced."""
    header = world.known(world.token(world.mine.grant(["push"], "tenant")))
    mine, other = world.mine.tenant, world.other.tenant
    for first, second in ((mine, other), (other, mine)):
        body = (
            f'{{"cluster_id":"{world.mine.cluster}","tenant_id":"{first}","tenant_id":"{second}",'
            f'"store_id":"1","ts":"7"}}'
        )
        before = world.up.world.client.announcements(0)
        answer = send(world.url, "POST", "/v1/notifications", header, body.encode())
        assert answer.status in (202, 400, 403)
        after = world.up.world.client.announcements(before.next_after)
        assert {one.tenant_id for one in after.announcements} <= {mine}


def test_an_issuers_new_keys_are_taken_and_old_ones_are_not(world: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_callers, "REFRESH_LEAST_MS", 0)
    path = tenant_path(world, "status")
    grants = [world.other.grant(["read"], "tenant")]
    eventually(lambda: send(world.url, "GET", path, f"Bearer {world.issuer.sign(grants)}").status == 200)
    fresh = ec.generate_private_key(ec.SECP256R1())
    world.issuer.publish(fresh, "k9")
    header = f"Bearer {world.issuer.sign(grants, key=fresh, kid='k9')}"
    eventually(lambda: send(world.url, "GET", path, header).status == 200)
    assert send(world.url, "GET", path, f"Bearer {world.issuer.sign(grants)}").status == 401


def test_tokens_are_checked_while_no_meta_server_answers(world: Guarded) -> None:
    header = world.known(world.token(world.other.grant(["read"], "tenant")))
    refused: list[int] = []

    def without_meta() -> None:
        path = tenant_path(world, "status")
        eventually(lambda: send(world.url, "GET", path, header).status == 200)
        refused.append(send(world.url, "GET", path, header[:-1] + "!").status)

    world.up.world.restart_meta(without_meta)
    assert refused == [401]
    assert world.known(world.token(world.mine.grant(["read"], "tenant"))), "it follows them again"
