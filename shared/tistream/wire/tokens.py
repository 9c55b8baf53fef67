"""Tokens of API users and their grants: requests to create them, and the forms in which meta servers store them and API
servers receive them.

A token's text is `tst_<token_id>_<secret>`. Only the SHA-256 of the secret is stored. The secret is 32 random bytes, so
it cannot be found by trying, and a slow password hash would not protect it better.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

ANY = "*"
NAME_MAX = 256
GRANTS_MAX = 64
LABEL = "^[ -~]{0,128}$"
LABEL_MAX = 128
FORMULA = tuple("=+-@\t\r\n")  # first characters of a cell that spreadsheets interpret as a formula
_LEVELS = ("cluster", "tenant", "database", "table")
_TOKEN = re.compile(r"tst_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")

Action = Literal["read", "push", "operate", "feed"]


class Grant(StrictRequest):
    """Allowed actions, and the objects on which they are allowed; `*` stands for every name. A database, for example,
    may be named only if its cluster and tenant are named too."""

    actions: list[Action] = Field(min_length=1, max_length=4)
    cluster: str = ANY
    tenant: str = ANY
    database: str = Field(default=ANY, min_length=1, max_length=NAME_MAX)
    table: str = Field(default=ANY, min_length=1, max_length=NAME_MAX)

    @model_validator(mode="after")
    def _named_from_the_top(self) -> Self:
        names = [getattr(self, level) for level in _LEVELS]
        named = [name != ANY for name in names]
        if sorted(named, reverse=True) != named:
            level = _LEVELS[named.index(False)]
            raise ValueError(f"it names something below {level} *: name the {level} too")
        try:
            TenantKey.parse(*("any" if name == ANY else name for name in names[:2]))
        except InvalidRequest as error:
            raise ValueError(str(error)) from error
        return self


def tenant_of_grants(grants: Iterable[Grant]) -> tuple[str, str] | None:
    """The cluster and tenant whose rate limits apply to a token's requests: of the tenants in its grants, the one with
    the lowest cluster and tenant id, compared as texts. None if a grant covers all tenants of a cluster, or if there is
    no grant."""
    tenants = [(grant.cluster, grant.tenant) for grant in grants]
    return None if any(tenant == ANY for _, tenant in tenants) else min(tenants, default=None)


def limit_groups(grants: Iterable[Grant]) -> frozenset[str] | None:
    """The groups in which a token counts: the clusters or tenants of its grants. The number of tokens in each group is
    limited. Tokens for parts of a tenant form a group of their own, which an operator of the whole tenant can revoke.
    None: a grant covers everything, and there is no limit."""
    found = set()
    for grant in grants:
        if grant.cluster == ANY:
            return None
        part = "" if grant.database == ANY else "parts of "
        found.add(f"cluster {grant.cluster}" if grant.tenant == ANY else f"{part}tenant {grant.cluster}/{grant.tenant}")
    return frozenset(found)


EVERYTHING = Grant(actions=["read", "push", "operate", "feed"])


class NewToken(StrictRequest):
    """`POST /v1/tokens` at the API: create a token. `expires_in_s` null: it does not expire."""

    label: str = Field(default="", max_length=LABEL_MAX)
    grants: list[Grant] = Field(min_length=1, max_length=GRANTS_MAX)
    expires_in_s: int | None = Field(default=None, ge=1, le=3_155_760_000)

    @field_validator("label")
    @classmethod
    def _text(cls, label: str) -> str:
        if label.lstrip(" ").startswith(FORMULA):
            raise ValueError(
                f"it begins with {label.lstrip(' ')[:1]!r}: a spreadsheet that lists tokens would run it as a formula; "
                "begin with a letter or a digit"
            )
        if not re.fullmatch(LABEL, label):
            raise ValueError("it may hold letters, digits, spaces and signs of ASCII alone")
        return label


class StoreToken(StrictRequest):
    """`POST /v1/tokens` at the meta server: store a token that the API has created. `secret_hash` is hexadecimal."""

    token_id: str = Field(pattern="^[0-9a-f]{16}$")
    secret_hash: str = Field(pattern="^[0-9a-f]{64}$")
    label: str = Field(default="", pattern=LABEL)
    grants: list[Grant] = Field(min_length=1, max_length=GRANTS_MAX)
    expires_ms: int | None = Field(default=None, ge=0, lt=1 << 62)


class TokenInfo(Wire):
    """A token without its secret. Times are milliseconds since the Unix epoch; null: the event never happens."""

    token_id: str
    label: str
    grants: list[Grant]
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


class MadeToken(TokenInfo):
    """The answer (201) of `POST /v1/tokens` at the API. The token's text is returned only here."""

    token: str


class TokenList(Wire):
    """The answer of `GET /v1/tokens`, oldest first, including revoked tokens."""

    tokens: list[TokenInfo]


class KnownToken(Wire):
    """A token that is valid until `expires_ms`, with what an API server needs to verify it."""

    token_id: str
    secret_hash: str
    grants: list[Grant]
    expires_ms: int | None = None


class KnownTokens(Wire):
    """The answer of `GET /upcall/v1/tokens?known_version=N&wait_ms=M`: all valid tokens. It comes at once if the
    version is not N, otherwise after a wait."""

    version: int
    tokens: list[KnownToken]


def token_text(token_id: str, secret: str) -> str:
    """Build a token's text from its id and its secret."""
    return f"tst_{token_id}_{secret}"


def parse_token(text: str) -> tuple[str, str] | None:
    """Split a token's text into (token_id, secret); None if it is malformed."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else (found[1], found[2])


def hash_of(secret: str) -> str:
    """The hash of a secret, in hexadecimal, as it is stored."""
    return hashlib.sha256(secret.encode("ascii")).hexdigest()
