"""Who is let in, and until when: what a meta server tells, an issuer's keys, and the clock."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tistream.clock import ManualClock
from tistream.errors import Unauthenticated, Unavailable
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.token_client import TokenClient
from tistream.wire.tokens import EVERYTHING, KnownToken, KnownTokens, hash_of, token_text
from tistream_api.auth.callers import Callers
from tistream_api.auth.jwt_callers import LEEWAY_MS, REFRESH_LEAST_MS, REFRESH_MS, JwtCallers, keys_of
from tistream_api.settings import OidcSettings

ID, SECRET = "0123456789abcdef", "S" * 43
NOW_MS = 1_700_000_000_000
OIDC = OidcSettings(issuer="https://issuer", audience="us", jwks_url="https://issuer/keys")


class World:
    """A meta server's answers, as bytes; and an issuer."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.told = KnownTokens(version=1, tokens=[])
        self.document: dict[str, Any] = {"keys": []}
        self.reads = 0
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        self.jwts = JwtCallers(OIDC, self._read_keys, self.clock)
        self.callers = Callers(TokenClient(MetaClient(http, "http://meta")), self.clock, self.jwts)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=self.told.model_dump_json().encode())

    def _read_keys(self) -> bytes:
        self.reads += 1
        return json.dumps(self.document).encode()

    def tell(self, *tokens: KnownToken) -> None:
        self.told = KnownTokens(version=self.told.version + 1, tokens=list(tokens))
        self.callers.follow()

    def publish(self, key: Any, kid: str, algorithm: type[jwt.algorithms.Algorithm]) -> None:
        public = algorithm.to_jwk(key.public_key(), as_dict=True)
        self.document["keys"].append({**public, "kid": kid, "use": "sig"})

    def sign(self, key: Any, alg: str, **claims: Any) -> str:
        made = {"iss": OIDC.issuer, "aud": "us", "sub": "ann", "exp": NOW_MS // 1000 + 60, "tistream": []}
        return "Bearer " + jwt.encode({**made, **claims}, key, algorithm=alg, headers={"kid": "k"})


def known(secret: str = SECRET, expires_ms: int | None = None) -> KnownToken:
    return KnownToken(token_id=ID, secret_hash=hash_of(secret), grants=[EVERYTHING], expires_ms=expires_ms)


def test_nobody_is_let_in_before_the_tokens_are_known_and_nobody_is_called_unknown() -> None:
    world = World()
    with pytest.raises(Unavailable):
        world.callers.of(f"Bearer {token_text(ID, SECRET)}")
    with pytest.raises(Unauthenticated):
        world.callers.of(None)


def test_the_secret_must_be_the_one_that_was_kept() -> None:
    world = World()
    world.tell(known())
    caller = world.callers.of(f"bearer {token_text(ID, SECRET)}")
    assert caller.grants == (EVERYTHING,)
    for text in (
        token_text(ID, "T" * 43),
        token_text("f" * 16, SECRET),
        token_text(ID, hash_of(SECRET)[:43]),
        f"{ID}_{SECRET}",
    ):
        with pytest.raises(Unauthenticated):
            world.callers.of(f"Bearer {text}")


def test_a_token_ends_when_it_expires_or_is_told_no_more() -> None:
    world = World()
    world.tell(known(expires_ms=NOW_MS + 100))
    caller = world.callers.of(f"Bearer {token_text(ID, SECRET)}")
    world.clock.advance(99)
    assert world.callers.still(caller)
    world.clock.advance(1)
    assert not world.callers.still(caller)
    with pytest.raises(Unauthenticated):
        world.callers.of(f"Bearer {token_text(ID, SECRET)}")
    world.tell(known())
    caller = world.callers.of(f"Bearer {token_text(ID, SECRET)}")
    assert world.callers.still(caller)
    world.tell()
    assert not world.callers.still(caller)


@pytest.mark.parametrize(
    ("key", "alg", "kind"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256", jwt.algorithms.ECAlgorithm),
        (rsa.generate_private_key(65537, 2048), "RS256", jwt.algorithms.RSAAlgorithm),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA", jwt.algorithms.OKPAlgorithm),
    ],
    ids=["ES256", "RS256", "EdDSA"],
)
def test_a_jwt_is_valid_from_its_beginning_to_its_end(key: Any, alg: str, kind: Any) -> None:
    world = World()
    world.publish(key, "k", kind)
    world.jwts.refresh()
    seconds = NOW_MS // 1000
    header = world.sign(key, alg, nbf=seconds + 10, exp=seconds + 60)
    caller = world.callers.of(header)
    assert caller.name == "subject ann"
    early = world.sign(key, alg, nbf=seconds + 31)
    with pytest.raises(Unauthenticated):
        world.callers.of(early)
    world.clock.advance(60_000 + LEEWAY_MS - 1)
    assert world.callers.still(world.callers.of(header))
    world.clock.advance(1)
    assert not world.callers.still(caller)
    with pytest.raises(Unauthenticated):
        world.callers.of(header)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nbf": NOW_MS // 1000 + 31}, f"claim nbf is {NOW_MS // 1000 + 31}, and this server's clock says"),
        ({"exp": NOW_MS // 1000 - 31}, "the token has expired"),
        ({"sub": ""}, "claim sub is missing or empty"),
        ({"tistream": [{"actions": ["fly"]}]}, "claim tistream has 1 mistakes"),
        ({"aud": "them"}, "Audience"),
    ],
)
def test_the_log_has_why_a_jwt_was_rejected_and_the_answer_has_not(
    claims: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    key = ec.generate_private_key(ec.SECP256R1())
    world.publish(key, "k", jwt.algorithms.ECAlgorithm)
    world.jwts.refresh()
    with caplog.at_level("INFO"), pytest.raises(Unauthenticated) as answer:
        world.callers.of(world.sign(key, "ES256", **claims))
    assert reason in caplog.records[-1].__dict__["reason"]
    assert reason not in str(answer.value)


def test_a_jwt_that_names_nobody_is_not_valid() -> None:
    """Bearers of such would share one name in the log, and one limit."""
    world = World()
    key = ec.generate_private_key(ec.SECP256R1())
    world.publish(key, "k", jwt.algorithms.ECAlgorithm)
    world.jwts.refresh()
    assert world.callers.of(world.sign(key, "ES256", sub="bob")).name == "subject bob"
    nameless = jwt.encode(
        {"iss": OIDC.issuer, "aud": "us", "exp": NOW_MS // 1000 + 60}, key, algorithm="ES256", headers={"kid": "k"}
    )
    for header in (f"Bearer {nameless}", world.sign(key, "ES256", sub="")):
        with pytest.raises(Unauthenticated):
            world.callers.of(header)


def test_the_keys_are_read_now_and_then_and_sooner_when_one_is_missing_but_not_at_will() -> None:
    world = World()
    key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(Unavailable):
        world.callers.of(world.sign(key, "ES256"))
    world.jwts.refresh()
    assert world.reads == 1
    for _ in range(100):
        with pytest.raises(Unauthenticated):
            world.callers.of(world.sign(key, "ES256"))
        world.jwts.refresh()
    assert world.reads == 1
    world.publish(key, "k", jwt.algorithms.ECAlgorithm)
    world.clock.advance(REFRESH_LEAST_MS)
    world.jwts.refresh()
    assert world.reads == 2
    assert world.callers.of(world.sign(key, "ES256")).name == "subject ann"
    world.clock.advance(REFRESH_MS - 1)
    world.jwts.refresh()
    assert world.reads == 2
    world.clock.advance(1)
    world.jwts.refresh()
    assert world.reads == 3


def test_another_key_of_the_same_name_is_read_when_a_token_was_signed_with_it() -> None:
    """As an issuer does that names its key by its place in a file."""
    world = World()
    first, second = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    world.publish(first, "k", jwt.algorithms.ECAlgorithm)
    world.jwts.refresh()
    world.document["keys"].clear()
    world.publish(second, "k", jwt.algorithms.ECAlgorithm)
    world.clock.advance(REFRESH_LEAST_MS)
    world.jwts.refresh()
    assert world.reads == 1, "nobody has shown that there is another one"
    with pytest.raises(Unauthenticated):
        world.callers.of(world.sign(second, "ES256"))
    world.jwts.refresh()
    assert world.callers.of(world.sign(second, "ES256")).name == "subject ann"
    with pytest.raises(Unauthenticated):
        world.callers.of(world.sign(first, "ES256"))


def test_of_a_key_set_what_signs_in_secret_and_what_is_strange_is_left_out() -> None:
    world = World()
    world.publish(ec.generate_private_key(ec.SECP256R1()), "good", jwt.algorithms.ECAlgorithm)
    world.publish(ec.generate_private_key(ec.SECP384R1()), "other-curve", jwt.algorithms.ECAlgorithm)
    world.document["keys"] += [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric", "alg": "HS256"},
        {"kty": "new", "kid": "strange"},
        {**world.document["keys"][0], "kid": "to-encrypt", "use": "enc"},
    ]
    assert set(keys_of(json.dumps(world.document).encode())) == {"good"}
    for nonsense in (b"", b"[]", b'{"keys": 3}', b'{"keys": [3]}'):
        with pytest.raises(ValueError, match="is not a key set"):
            keys_of(nonsense)


def test_who_makes_a_token_is_answered_when_it_is_so_here() -> None:
    """The loop that follows is another thread: it takes what is told while the answer waits."""
    world = World()
    follows = threading.Timer(0.2, lambda: world.tell(known()))
    follows.start()
    assert world.callers.await_token(ID)
    assert world.callers.of(f"Bearer {token_text(ID, SECRET)}").token_id == ID
    world.tell()
    assert not world.callers.await_token(ID), "nobody tells of it: the answer does not wait for ever"


def test_a_token_that_was_revoked_here_lets_nobody_in_whatever_is_told_of_it() -> None:
    world = World()
    world.tell(known())
    header = f"Bearer {token_text(ID, SECRET)}"
    caller = world.callers.of(header)
    world.callers.forget(ID)
    for _ in range(2):
        assert not world.callers.still(caller)
        with pytest.raises(Unauthenticated):
            world.callers.of(header)
        world.tell(known())  # by a meta server that is late
