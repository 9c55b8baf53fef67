"""Tokens between services: what is taken, what is not, and keys that change while processes run."""
# Attack: service tokens with other algorithms, changed claims, too long a life, too long a text

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from tistream.clock import ManualClock
from tistream.errors import Unavailable
from tistream.wire.auth.secret_file import SecretFile, bearer_text
from tistream.wire.auth.service_auth import ServiceAuth, ServiceKeys
from tistream.wire.auth.service_token import BadKeys, BadToken, Caller, parse_keys, sign, verify
from tistream.wire.clients.client import HttpClient

OLD, NEW = b"o" * 32, b"n" * 32
CALLER = Caller("sorter-2", "sorter")
NOW_S = 1_800_000_000


def text_of(*keys: bytes) -> str:
    return "".join(base64.b64encode(key).decode() + "\n" for key in keys)


def jwt(header: object, claims: object, key: bytes = OLD) -> str:
    """As anybody could make one."""
    texts = [json.dumps(part, separators=(",", ":")).encode() for part in (header, claims)]
    parts = [base64.urlsafe_b64encode(text).rstrip(b"=") for text in texts]
    signed = b".".join(parts)
    signature = base64.urlsafe_b64encode(hmac.digest(key, signed, hashlib.sha256)).rstrip(b"=")
    return (signed + b"." + signature).decode()


CLAIMS = {"iss": "sorter-2", "sub": "sorter", "iat": NOW_S, "exp": NOW_S + 60}


def test_it_is_a_jwt_that_says_who_calls_and_lives_for_a_minute() -> None:
    header, claims, _ = sign(OLD, CALLER, NOW_S).split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "HS256", "typ": "JWT"}
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == CLAIMS
    assert verify(sign(OLD, CALLER, NOW_S), (OLD,), NOW_S) == CALLER


@pytest.mark.parametrize("keys", [(OLD,), (NEW, OLD), (OLD, NEW)])
def test_every_key_of_the_file_verifies(keys: tuple[bytes, ...]) -> None:
    assert verify(sign(OLD, CALLER, NOW_S), keys, NOW_S) == CALLER


@pytest.mark.parametrize("later_s", [-30, 0, 60, 89])
def test_clocks_may_be_half_a_minute_apart(later_s: int) -> None:
    assert verify(sign(OLD, CALLER, NOW_S), (OLD,), NOW_S + later_s) == CALLER


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (sign(NEW, CALLER, NOW_S), "a key that is not known"),
        (sign(OLD, CALLER, NOW_S - 90), "expired"),
        (sign(OLD, CALLER, NOW_S + 31), "future"),
        (jwt({"alg": "HS256", "typ": "JWT"}, {**CLAIMS, "exp": NOW_S + 86_400}), "future"),
        (jwt({"alg": "none", "typ": "JWT"}, CLAIMS), "no token of a service"),
        (jwt({"alg": "none"}, CLAIMS).rpartition(".")[0] + ".", "no token of a service"),
        (jwt({"typ": "JWT", "alg": "HS512"}, CLAIMS), "no token of a service"),
        (jwt({"alg": "HS256", "typ": "JWT"}, {"iss": "x", "sub": "y"}), "claims"),
        (jwt({"alg": "HS256", "typ": "JWT"}, [1]), "claims"),
        (sign(OLD, CALLER, NOW_S)[:-2], "a key that is not known"),
        (sign(OLD, CALLER, NOW_S) + "=", "a key that is not known"),
        (sign(OLD, CALLER, NOW_S).rpartition(".")[0] + ".", "a key that is not known"),
        ("", "no token of a service"),
        ("..", "no token of a service"),
        ("tst_0123456789abcdef_secret", "no token of a service"),
        ("ü" * 40, "no token of a service"),
        (sign(OLD, CALLER, NOW_S) + "A" * 4_096, "no token of a service"),
    ],
)
def test_anything_else_is_refused(token: str, reason: str) -> None:
    with pytest.raises(BadToken, match=reason):
        verify(token, (OLD,), NOW_S)


def test_a_token_that_was_taken_before_expires_and_is_worth_nothing_without_its_key() -> None:
    token = sign(OLD, CALLER, NOW_S)
    for _ in range(2):
        assert verify(token, (NEW, OLD), NOW_S) == CALLER
    with pytest.raises(BadToken, match="expired"):
        verify(token, (NEW, OLD), NOW_S + 90)
    with pytest.raises(BadToken, match="a key that is not known"):
        verify(token, (NEW,), NOW_S)


def test_claims_that_were_changed_are_refused() -> None:
    header, _, signature = sign(OLD, CALLER, NOW_S).split(".")
    _, claims, _ = sign(OLD, Caller("meta-1", "meta"), NOW_S).split(".")
    with pytest.raises(BadToken):
        verify(f"{header}.{claims}.{signature}", (OLD,), NOW_S)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no key"),
        ("# nothing\n\n", "no key"),
        ("not base64!\n", "line 1 is not base64"),
        (text_of(OLD) + text_of(b"k" * 31), "line 2 has 31 bytes"),
    ],
)
def test_a_file_without_keys_is_refused_and_nothing_of_it_is_told(text: str, reason: str) -> None:
    with pytest.raises(BadKeys, match=reason) as told:
        parse_keys(text)
    assert base64.b64encode(b"k" * 31).decode() not in str(told.value)


def test_comments_and_empty_lines_are_left_out() -> None:
    assert parse_keys(f"# of March\n{text_of(NEW)}\n{text_of(OLD)}") == (NEW, OLD)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "service.key"
    path.write_text(text_of(OLD))
    return path


def rewrite(file: Path, text: str) -> None:
    """As a mounted secret changes: another file takes its place."""
    fresh = file.with_suffix(".fresh")
    fresh.write_text(text)
    os.replace(fresh, file)


def test_a_token_is_sent_for_twenty_seconds_and_then_there_is_a_new_one(file: Path) -> None:
    clock = ManualClock(NOW_S * 1000)
    auth = ServiceAuth(ServiceKeys(file, clock), CALLER, clock)
    first = auth()
    clock.advance(19_999)
    assert auth() == first
    clock.advance(1)
    assert auth() != first


def test_a_new_key_signs_and_the_former_one_is_taken_until_it_is_gone(file: Path) -> None:
    clock = ManualClock(NOW_S * 1000)
    signer, server = ServiceKeys(file, clock), ServiceKeys(file, clock)
    before = signer.sign(CALLER)
    rewrite(file, text_of(NEW, OLD))
    after = signer.sign(CALLER)
    assert after != before
    assert server.verify(after) == server.verify(before) == CALLER  # at once: it looks again before it refuses
    rewrite(file, text_of(NEW))
    clock.advance(1_000)
    assert server.verify(after) == CALLER
    with pytest.raises(BadToken):
        server.verify(before)


def test_a_file_that_breaks_changes_nothing_and_is_logged(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW_S * 1000)
    keys = ServiceKeys(file, clock)
    rewrite(file, "half a k")
    clock.advance(1_000)
    with caplog.at_level(logging.ERROR):
        assert keys.verify(sign(OLD, CALLER, NOW_S)) == CALLER
    assert "was not read anew" in caplog.text
    file.unlink()
    assert keys.sign(CALLER) == sign(OLD, CALLER, NOW_S + 1)
    rewrite(file, text_of(NEW))
    assert keys.sign(CALLER) == sign(NEW, CALLER, NOW_S + 1)


def test_a_file_that_is_wrong_at_first_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(ValueError, match=f"{tmp_path}/token: it holds no token"):
        SecretFile(tmp_path / "token", bearer_text)
    with pytest.raises(FileNotFoundError):
        ServiceKeys(tmp_path / "nowhere", ManualClock())


class _Nothing(BaseModel):
    pass


def test_each_call_and_each_attempt_bears_the_token_of_then() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(503 if len(seen) < 3 else 200, json={})

    numbers = iter(range(9))
    transport = httpx.MockTransport(answer)
    client = HttpClient(transport=transport, sleep=lambda _: None, auth=lambda: f"Bearer {next(numbers)}")
    client.get("http://peer/x", _Nothing, attempts=3)
    assert seen == ["Bearer 0", "Bearer 1", "Bearer 2"]


def test_a_peer_that_does_not_take_the_token_is_like_one_that_does_not_answer() -> None:
    """Keys are being changed: loops come again, and a call to any of several meta servers asks the next one."""
    refused = httpx.MockTransport(lambda _: httpx.Response(401, json={"detail": "expired; are the clocks right?"}))
    with pytest.raises(Unavailable, match="are the clocks right"):
        HttpClient(transport=refused, auth=lambda: "Bearer x").request("GET", "http://peer/x")
