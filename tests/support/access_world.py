"""Two tenants of one cluster on a platform whose API wants tokens; nothing is mocked but Spark (api_world.py)."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from support import golden
from support.access_calls import Target, send
from support.api_world import Platform, platform
from support.http_world import CLOCK, Server, never_superseded
from support.platform import free_port
from support.waiting import eventually
from tistream.clock import Clock
from tistream.errors import Unavailable
from tistream.wire.clients.token_client import TokenClient
from tistream.wire.tokens import EVERYTHING, Grant, StoreToken, hash_of, token_text
from tistream_api.app import build_app as build_api
from tistream_api.app import draw_token
from tistream_api.settings import ApiSettings, OidcSettings

ISSUER, AUDIENCE = "https://issuer.example", "tistream-test"
SECRETS = {"mine": ("shop", "k_int"), "other": ("wide", "small")}


class Recording:
    """An object store that records every key and prefix that is requested."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)

        def noted(key: str, *more: Any, **named: Any) -> Any:
            self.asked.add(key)
            return found(key, *more, **named)

        return noted


class Issuer:
    """An OpenID Connect issuer that signs JSON Web Tokens; its keys are in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.publish(self.key)

    def publish(self, key: ec.EllipticCurvePrivateKey, kid: str = "k1") -> None:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        self.path.write_text(json.dumps({"keys": [{**public, "kid": kid, "use": "sig", "alg": "ES256"}]}))

    def sign(self, grants: object, key: Any = None, alg: str = "ES256", kid: str = "k1", **claims: Any) -> str:
        now = int(time.time())
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "somebody", "exp": now + 600, "tistream": grants, **claims}
        made = {name: value for name, value in made.items() if value is not None}
        return jwt.encode(made, self.key if key is None else key, algorithm=alg, headers={"kid": kid})

    def unsigned(self, grants: object) -> str:
        """A JSON Web Token with `alg: none`."""
        told = [
            {"alg": "none", "typ": "JWT", "kid": "k1"},
            {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "exp": int(time.time()) + 600, "tistream": grants},
        ]
        parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in told]
        return ".".join([*parts, ""])


@dataclass
class Guarded:
    """A platform with authentication. `api` requires tokens; `mine` and `other` are tenants of one cluster, `elsewhere`
    has the name of `other` in another cluster."""

    up: Platform
    api: Server
    objects: Recording
    tokens: TokenClient
    issuer: Issuer
    mine: Target
    other: Target
    elsewhere: Target

    @property
    def url(self) -> str:
        return self.api.url

    def token(self, *grants: dict[str, Any], expires_ms: int | None = None, label: str = "") -> str:
        """Create a token that the API server knows."""
        token_id, secret = draw_token()
        kept = StoreToken(
            token_id=token_id,
            secret_hash=hash_of(secret),
            label=label,
            grants=[Grant(**grant) for grant in grants],
            expires_ms=expires_ms,
        )
        eventually(lambda: self._stored(kept))
        return token_text(token_id, secret)

    def _stored(self, kept: StoreToken) -> bool:
        """The same again is no error: a request whose answer was too late is made again."""
        with suppress(Unavailable):
            self.tokens.store(kept)
            return True
        return False

    def known(self, token: str) -> str:
        """Wait until the API server has read the token, and return it as a header. The server has read it once it knows
        a token that was created later."""
        probe = self.token(EVERYTHING.model_dump())
        eventually(lambda: send(self.url, "GET", "/metrics", f"Bearer {probe}").status == 200)
        return f"Bearer {token}"

    def settled(self) -> Guarded:
        """Wait until the API server is ready, has read the issuer's keys, and reads both tenants to their ends."""
        eventually(lambda: send(self.url, "GET", "/readyz", None).status == 200)
        eventually(lambda: send(self.url, "GET", "/v1/tokens", f"Bearer {self.issuer.sign([])}").status == 403)
        header = self.known(self.token(EVERYTHING.model_dump()))
        for one in (self.mine, self.other):
            path = f"/v1/clusters/{one.cluster}/tenants/{one.tenant}/status"
            end = resolved(self.up.api.url, path, None)
            eventually(lambda path=path, end=end: resolved(self.url, path, header) == end)
        return self


def resolved(url: str, path: str, header: str | None) -> str | None:
    """The resolved_ts of a tenant's status; None while there is none."""
    answer = send(url, "GET", path, header)
    found: str | None = json.loads(answer.raw.split(b"\r\n\r\n")[-1]).get("resolved_ts")
    return found


def start_guarded(up: Platform, issuer: Issuer, objects: Recording, clock: Clock = CLOCK, **settings: Any) -> Server:
    """Start one more API server of the platform, with authentication. Rejections are not delayed, unless the caller
    says so."""
    port = free_port()
    settings = {"refusals_per_second": 0, **settings}
    made = ApiSettings(
        port=port,
        node_id=f"api-{port}",
        meta_url=up.world.meta.url,
        auth="on",
        oidc=OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=issuer.path),
        **settings,
    )
    return Server(build_api(made, objects, clock, end=never_superseded), port)  # type: ignore[arg-type]


@contextmanager
def guarded(directory: Path, **settings: Any) -> Iterator[Guarded]:
    """A platform with authentication whose tenants can be read to their ends."""
    cluster, tag = f"c{secrets.token_hex(6)}", secrets.token_hex(6)
    with platform(directory, ranges=1) as up:
        for name, set_name in (("mine", "everything"), ("other", "large")):
            loaded = golden.load_as(set_name, cluster, f"{name}{tag}")
            consumer = up.create(loaded)
            up.put(*loaded.deliveries)
            consumer.wait_for(loaded.end_ts)
        issuer, objects = Issuer(directory / "keys.json"), Recording(up.world.objects)
        api = start_guarded(up, issuer, objects, **settings)
        tokens = TokenClient(up.world.client)
        mine, other = (Target(cluster, f"{name}{tag}", *SECRETS[name], draw_token()[0]) for name in SECRETS)
        elsewhere = Target(f"d{cluster}", other.tenant, other.database, other.table, other.token_id)
        try:
            yield Guarded(up, api, objects, tokens, issuer, mine, other, elsewhere).settled()
        finally:
            api.stop()
